//! What do we answer, and when may it leave? Replies of one session in order, each with the commit it depends on.
//!
//! ```text
//! sent | durable, may leave | waits for mark 1 | waits for mark 2 |
//!      ^ start              ^ mark 1           ^ mark 2           ^ end
//! ```
//!
//! Invariants:
//! 1. No byte at or after a mark leaves before the mark's commit timestamp is durable (DESIGN invariant 3).
//! 2. Marks rise in position and in timestamp, so that the last one tells what everything waits for.
//!
//! Hot replies are written straight from the row set; the rest go through pgwire's message types.

use super::frame::Format;
use ::pgwire::messages::Message;
use bytes::BytesMut;
use freshet_db::sql::notice::Notice;
use freshet_db::sql::value::pgtype;
use freshet_db::sql::{CopyDirection, CopyShape};
use freshet_db::{Column, RowSet, SqlError, Type};
use freshet_engine::ids::Cts;
use freshet_engine::mem::touched::{note, note_start};
use std::collections::VecDeque;

/// A buffer that grew beyond this is given back once it is empty, whatever comes next. One that is smaller stays as long as the session does something.
pub const KEEP_BYTES: usize = 128 << 10;

/// Each buffer of a session that does nothing, and its rows and parameters together, keep at most this, so that a session keeps 64 KiB in all.
pub const IDLE_BYTES: usize = 16 << 10;

/// What RowDescription says of a column behind its name.
const FIELD_BYTES: usize = 18;

/// From `at` on, bytes wait for `cts`.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: usize,
    cts: Cts,
}

/// The formats of a result's columns, as Bind asked for them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResultFormats {
    All(Format),
    Each(Vec<Format>),
}

impl ResultFormats {
    pub fn get(&self, column: usize) -> Format {
        match self {
            ResultFormats::All(format) => *format,
            ResultFormats::Each(formats) => formats.get(column).copied().unwrap_or(Format::Text),
        }
    }

    /// Column by column which is wanted in binary form, the last bit for all that come behind it; `None` if they do not agree.
    pub fn binary_columns(&self) -> Option<u64> {
        match self {
            ResultFormats::All(Format::Text) => Some(0),
            ResultFormats::All(Format::Binary) => Some(u64::MAX),
            ResultFormats::Each(formats) if formats.len() < 64 => {
                let bit = |(at, format): (usize, &Format)| u64::from(*format == Format::Binary) << at;
                Some(formats.iter().enumerate().map(bit).sum())
            }
            ResultFormats::Each(_) => None,
        }
    }
}

/// How bad an error is for the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    Error,
    /// The session ends.
    Fatal,
}

#[derive(Default, Debug)]
pub struct Output {
    bytes: Vec<u8>,
    /// Bytes before this have left.
    start: usize,
    marks: VecDeque<Mark>,
    /// The largest timestamp that any reply so far depended on.
    largest: Cts,
}

impl Output {
    /// Notes what every turn of the session touches.
    pub fn note_touched(&self) {
        note(self);
        note_start(self.bytes.as_slice());
    }

    /// Bytes that have not left.
    pub fn unsent(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Whether it keeps more than that of a session that does nothing.
    pub fn has_spare(&self) -> bool {
        self.bytes.capacity() > IDLE_BYTES
    }

    /// Gives the memory back that nothing is in.
    pub fn give_spare_back(&mut self) {
        if self.bytes.is_empty() && self.marks.is_empty() {
            self.bytes = Vec::new();
            self.marks = VecDeque::new();
        }
    }

    /// What is written from now on waits until `cts` is durable.
    pub fn depend(&mut self, cts: Cts) {
        if cts > self.largest {
            self.largest = cts;
            self.marks.push_back(Mark { at: self.bytes.len(), cts });
        }
    }

    /// What was written elsewhere comes behind what is here.
    pub fn append(&mut self, other: Output) {
        debug_assert_eq!(other.start, 0, "nothing of it has left");
        let mut written = 0;
        for mark in &other.marks {
            self.bytes.extend_from_slice(&other.bytes[written..mark.at]);
            written = mark.at;
            self.depend(mark.cts);
        }
        self.bytes.extend_from_slice(&other.bytes[written..]);
    }

    /// Drops the marks that are durable; what everything that is left waits for.
    pub fn waits_for(&mut self, is_durable: impl Fn(Cts) -> bool) -> Option<Cts> {
        while self.marks.front().is_some_and(|m| is_durable(m.cts)) {
            self.marks.pop_front();
        }
        self.marks.back().map(|m| m.cts)
    }

    /// What may leave. [`waits_for`](Output::waits_for) moves its end.
    pub fn releasable(&self) -> &[u8] {
        let end = self.marks.front().map_or(self.bytes.len(), |m| m.at);
        &self.bytes[self.start..end]
    }

    /// `count` bytes have left.
    pub fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.bytes.len());
        if self.start == self.bytes.len() && self.marks.is_empty() {
            self.start = 0;
            if self.bytes.capacity() > KEEP_BYTES {
                self.bytes = Vec::new();
            } else {
                self.bytes.clear();
            }
        } else if self.start >= KEEP_BYTES {
            self.bytes.drain(..self.start);
            for mark in &mut self.marks {
                mark.at -= self.start;
            }
            self.start = 0;
        }
    }

    /// Takes back what can no longer become durable: the log failed.
    pub fn discard_pending(&mut self) {
        if let Some(first) = self.marks.front() {
            self.bytes.truncate(first.at);
            self.marks.clear();
        }
    }

    // ---- hot replies

    pub fn parse_complete(&mut self) {
        self.bytes.extend_from_slice(b"1\0\0\0\x04");
    }

    pub fn bind_complete(&mut self) {
        self.bytes.extend_from_slice(b"2\0\0\0\x04");
    }

    pub fn close_complete(&mut self) {
        self.bytes.extend_from_slice(b"3\0\0\0\x04");
    }

    pub fn no_data(&mut self) {
        self.bytes.extend_from_slice(b"n\0\0\0\x04");
    }

    pub fn empty_query(&mut self) {
        self.bytes.extend_from_slice(b"I\0\0\0\x04");
    }

    pub fn portal_suspended(&mut self) {
        self.bytes.extend_from_slice(b"s\0\0\0\x04");
    }

    pub fn ready_for_query(&mut self, status: u8) {
        self.bytes.extend_from_slice(b"Z\0\0\0\x05");
        self.bytes.push(status);
    }

    /// `INSERT` carries a zero oid before its count, as in PostgreSQL.
    pub fn command_complete(&mut self, command: &str, rows: Option<u64>) {
        let body = self.begin(b'C');
        self.bytes.extend_from_slice(command.as_bytes());
        if let Some(rows) = rows {
            if command == "INSERT" {
                self.bytes.extend_from_slice(b" 0");
            }
            self.bytes.push(b' ');
            let mut digits = itoa::Buffer::new();
            self.bytes.extend_from_slice(digits.format(rows).as_bytes());
        }
        self.bytes.push(0);
        self.end(body);
    }

    pub fn data_row(&mut self, rows: &RowSet, row: usize, formats: &ResultFormats) -> Result<(), SqlError> {
        rows.write_message(row, |column| formats.get(column) == Format::Binary, &mut self.bytes)
    }

    /// Appends messages of rows, whole ones, until there are `room` bytes or a little more, and at least one; how many bytes of them it took.
    pub fn data_rows(&mut self, messages: &[u8], room: usize) -> usize {
        let mut end = messages.len();
        if end > room {
            end = 0;
            while end < room.max(1) {
                let length = messages[end + 1..end + 5].try_into().expect("a message has its length behind its kind");
                end += 1 + u32::from_be_bytes(length) as usize;
            }
        }
        self.bytes.extend_from_slice(&messages[..end]);
        end
    }

    pub fn row_description(&mut self, columns: &[Column], formats: &ResultFormats) {
        let body = self.begin(b'T');
        self.put_count(columns.len());
        for (at, column) in columns.iter().enumerate() {
            let ty = pgtype::describe(column.declared());
            let (table, number) = column.origin.unwrap_or((0, 0));
            let format: u16 = match formats.get(at) {
                Format::Text => 0,
                Format::Binary => 1,
            };
            self.put_string(&column.name);
            let mut fixed = [0; FIELD_BYTES];
            fixed[..4].copy_from_slice(&table.to_be_bytes());
            fixed[4..6].copy_from_slice(&number.to_be_bytes());
            fixed[6..10].copy_from_slice(&ty.oid.to_be_bytes());
            fixed[10..12].copy_from_slice(&ty.length.to_be_bytes());
            fixed[12..16].copy_from_slice(&ty.modifier.to_be_bytes());
            fixed[16..].copy_from_slice(&format.to_be_bytes());
            self.bytes.extend_from_slice(&fixed);
        }
        self.end(body);
    }

    pub fn parameter_description(&mut self, types: &[Type]) {
        let body = self.begin(b't');
        self.put_count(types.len());
        for ty in types {
            let oid = pgtype::describe(*ty).oid;
            self.bytes.extend_from_slice(&oid.to_be_bytes());
        }
        self.end(body);
    }

    /// CopyInResponse (`G`) or CopyOutResponse (`H`): the format of the whole and of each column.
    pub fn copy_response(&mut self, shape: &CopyShape) {
        let body = self.begin(if shape.direction == CopyDirection::In { b'G' } else { b'H' });
        self.bytes.push(u8::from(shape.is_binary));
        self.put_count(shape.columns);
        for _ in 0..shape.columns {
            self.bytes.extend_from_slice(&u16::from(shape.is_binary).to_be_bytes());
        }
        self.end(body);
    }

    pub fn copy_done(&mut self) {
        self.bytes.extend_from_slice(b"c\0\0\0\x04");
    }

    /// Whole CopyData messages.
    pub fn copy_data(&mut self, messages: &[u8]) {
        self.bytes.extend_from_slice(messages);
    }

    // ---- errors and notices

    pub fn error(&mut self, severity: Severity, error: &SqlError) {
        let severity = match severity {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
        };
        let position = error.position.map(|p| p.to_string());
        let about = error.about.as_deref();
        self.fields(
            b'E',
            &[
                (b'S', Some(severity)),
                (b'V', Some(severity)),
                (b'C', Some(error.sqlstate)),
                (b'M', Some(&error.message)),
                (b'D', error.detail.as_deref()),
                (b'H', error.hint.as_deref()),
                (b'P', position.as_deref()),
                (b'W', error.context.as_ref().map(|context| context.0.as_str())),
                (b's', about.and_then(|a| a.schema.as_deref())),
                (b't', about.and_then(|a| a.table.as_deref())),
                (b'c', about.and_then(|a| a.column.as_deref())),
                (b'n', about.and_then(|a| a.constraint.as_deref())),
                (b'R', error.routine()),
            ],
        );
    }

    pub fn notice(&mut self, notice: &Notice) {
        let severity = notice.severity();
        self.fields(
            b'N',
            &[
                (b'S', Some(severity)),
                (b'V', Some(severity)),
                (b'C', Some(notice.sqlstate)),
                (b'M', Some(&notice.message)),
                (b'D', notice.detail.as_deref()),
            ],
        );
    }

    fn fields(&mut self, kind: u8, fields: &[(u8, Option<&str>)]) {
        let body = self.begin(kind);
        for (code, text) in fields {
            if let Some(text) = text {
                self.bytes.push(*code);
                self.put_string(text);
            }
        }
        self.bytes.push(0);
        self.end(body);
    }

    // ---- the rest

    /// A rare message, by pgwire's encoder.
    pub fn message(&mut self, message: &impl Message) {
        let mut encoded = BytesMut::new();
        match message.encode(&mut encoded) {
            Ok(()) => self.bytes.extend_from_slice(&encoded),
            Err(error) => tracing::warn!(%error, "a reply could not be encoded and is left out"),
        }
    }

    /// One byte without a frame: the answer to a request for encryption.
    pub fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    // ---- parts

    /// Starts a message; gives the position of its length word.
    fn begin(&mut self, kind: u8) -> usize {
        self.bytes.push(kind);
        self.reserve_length()
    }

    fn reserve_length(&mut self) -> usize {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        at
    }

    fn end(&mut self, at: usize) {
        let length = (self.bytes.len() - at) as u32;
        self.bytes[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// The protocol counts columns and parameters in 16 bits.
    fn put_count(&mut self, count: usize) {
        let count = u16::try_from(count).expect("SQL allows fewer than 65,536 columns");
        self.bytes.extend_from_slice(&count.to_be_bytes());
    }

    /// A zero byte would end the string early on the client's side.
    fn put_string(&mut self, text: &str) {
        match text.as_bytes().contains(&0) {
            false => self.bytes.extend_from_slice(text.as_bytes()),
            true => self.bytes.extend(text.bytes().map(|b| if b == 0 { b' ' } else { b })),
        }
        self.bytes.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::pgwire::messages::{DecodeContext, PgWireBackendMessage, ProtocolVersion, data, response};

    fn context() -> DecodeContext {
        let mut context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
        context.awaiting_frontend_ssl = false;
        context.awaiting_frontend_startup = false;
        context
    }

    fn decoded<M: Message>(output: &Output) -> M {
        let mut bytes = BytesMut::from(output.releasable());
        let message = M::decode(&mut bytes, &context()).unwrap().unwrap();
        assert!(bytes.is_empty(), "one message");
        message
    }

    #[test]
    fn replies_are_what_pgwire_reads() {
        let mut output = Output::default();
        output.command_complete("INSERT", Some(3));
        assert_eq!(decoded::<response::CommandComplete>(&output).tag, "INSERT 0 3");

        let mut output = Output::default();
        output.command_complete("BEGIN", None);
        assert_eq!(decoded::<response::CommandComplete>(&output).tag, "BEGIN");

        let mut output = Output::default();
        let columns = [Column { origin: Some((16_384, 2)), ..Column::new("n", Type::Int4) }];
        output.row_description(&columns, &ResultFormats::All(Format::Binary));
        let fields = decoded::<data::RowDescription>(&output).fields;
        assert_eq!(fields, [data::FieldDescription::new("n".into(), 16_384, 2, 23, 4, -1, 1)]);

        let mut output = Output::default();
        let mut error = SqlError::new("42601", "bad\0text");
        error.position = Some(7);
        output.error(Severity::Fatal, &error);
        let fields = decoded::<response::ErrorResponse>(&output).fields;
        assert!(fields.contains(&(b'S', "FATAL".into())));
        assert!(fields.contains(&(b'C', "42601".into())));
        assert!(fields.contains(&(b'M', "bad text".into())));
        assert!(fields.contains(&(b'P', "7".into())));

        let mut output = Output::default();
        output.ready_for_query(b'T');
        let mut bytes = BytesMut::from(output.releasable());
        assert!(matches!(
            PgWireBackendMessage::decode(&mut bytes, &context()),
            Ok(Some(PgWireBackendMessage::ReadyForQuery(_)))
        ));
    }

    #[test]
    fn nothing_leaves_before_what_it_depends_on() {
        let mut output = Output::default();
        output.parse_complete();
        output.depend(Cts(10));
        output.bind_complete();
        output.depend(Cts(5));
        output.no_data();
        output.depend(Cts(20));
        output.close_complete();
        let durable_to = |horizon| move |cts: Cts| cts.0 <= horizon;

        assert_eq!(output.waits_for(durable_to(0)), Some(Cts(20)));
        assert_eq!(output.releasable(), b"1\0\0\0\x04");
        output.consume(5);
        assert_eq!(output.releasable(), b"");
        assert_eq!(output.waits_for(durable_to(19)), Some(Cts(20)));
        assert_eq!(output.releasable(), b"2\0\0\0\x04n\0\0\0\x04");
        output.consume(3);
        assert_eq!(output.waits_for(durable_to(20)), None);
        assert_eq!(output.releasable().len(), 12);
        output.consume(12);
        assert_eq!(output.unsent(), 0);

        output.depend(Cts(30));
        output.parse_complete();
        output.discard_pending();
        assert_eq!(output.unsent(), 0);
    }

    #[test]
    fn what_was_written_elsewhere_waits_for_the_same_as_here() {
        let mut here = Output::default();
        here.parse_complete();
        here.depend(Cts(10));
        here.bind_complete();
        let mut elsewhere = Output::default();
        // Behind a reply that waits for 10 this one waits for it anyway.
        elsewhere.depend(Cts(5));
        elsewhere.no_data();
        elsewhere.depend(Cts(20));
        elsewhere.close_complete();
        here.append(elsewhere);

        let durable_to = |horizon| move |cts: Cts| cts.0 <= horizon;
        let mut leaves = |horizon| {
            let waits_for = here.waits_for(durable_to(horizon));
            let bytes = here.releasable().to_vec();
            here.consume(bytes.len());
            (waits_for, bytes)
        };
        assert_eq!(leaves(5), (Some(Cts(20)), b"1\0\0\0\x04".to_vec()));
        assert_eq!(leaves(10), (Some(Cts(20)), b"2\0\0\0\x04n\0\0\0\x04".to_vec()));
        assert_eq!(leaves(20), (None, b"3\0\0\0\x04".to_vec()));
    }

    /// A reader that is always a little behind does not make the buffer grow.
    #[test]
    fn sent_bytes_are_given_back() {
        let mut output = Output::default();
        output.parse_complete();
        for at in 0..4 * KEEP_BYTES as u64 / 5 {
            output.depend(Cts(at + 1));
            output.parse_complete();
            assert!(output.waits_for(|cts| cts.0 <= at).is_some());
            output.consume(output.releasable().len());
        }
        assert!(output.bytes.len() <= KEEP_BYTES + 10);
    }
}
