//! What could any server reach here? One that does nothing: it reads messages, answers each with bytes that were ready before, and writes once
//! for all that it read. Its rate is what the kernel, loopback and the client leave; the rest of a server's time is its own.
//!
//! | message | answer |
//! |---|---|
//! | Parse, Bind, Close | the completion |
//! | Describe | the parameters, and one `int4` column for a SELECT or no data |
//! | Execute, Query | one row `0` for a SELECT, in the format that Bind asked for; the tag of the statement's first word |
//! | Sync | ReadyForQuery, in the state that BEGIN and END left |
//!
//! A statement that was recorded ([`record`]) is answered with what a real server said: parameters, columns and rows of one execution.
//! As many threads as cores, each with its own event loop; a connection stays with one of them, as in our server.

use crate::adapter::child::{Server, free_address};
use crate::adapter::freshet_wire;
use crate::adapter::wire::{Address, ask, lasting};
use crate::error::{BenchError, on};
use crate::machine::processors;
use bytes::{Buf, BytesMut, TryGetError};
use clap::Args;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::LocalSet;

/// A server that does nothing but answer
#[derive(Args, Clone, Debug)]
pub struct ResponderArgs {
    #[arg(long)]
    listen: SocketAddr,
    /// Clients come through `.s.PGSQL.<port>` in this directory, too
    #[arg(long, value_name = "DIR")]
    socket: Option<PathBuf>,
    /// What real servers said: a line for each statement
    #[arg(long, value_name = "FILE")]
    recorded: Option<PathBuf>,
}

/// It in a process of its own.
pub struct Responder {
    address: Address,
    server: Server,
}

impl Responder {
    /// What it says goes to a file in `dir`. `socket`: where its socket file lies, if it has one.
    pub fn start(dir: &Path, recorded: Option<&Path>, socket: Option<&Path>) -> Result<Responder, BenchError> {
        let at = free_address()?;
        let mut command = Command::new(freshet_wire::program()?);
        command.args(["bench", "responder", "--listen", &at.to_string()]);
        if let Some(recorded) = recorded {
            command.arg("--recorded").arg(recorded);
        }
        if let Some(socket) = socket {
            command.arg("--socket").arg(socket);
        }
        let mut server = Server::start("responder", command, dir, Signal::TERM)?;
        let address = Address { at, user: "freshet", database: "freshet", socket: lasting(socket) };
        server.wait_until(|| ask(address, "SELECT 1").map(drop))?;
        Ok(Responder { address, server })
    }

    pub fn address(&self) -> Address {
        self.address
    }

    pub fn server(&self) -> &Server {
        &self.server
    }
}

/// What a server said to a statement, as it came: messages with their heads.
#[derive(Clone, Serialize, Deserialize, Debug)]
struct Recorded {
    sql: String,
    /// ParameterDescription, then RowDescription or NoData.
    described: Vec<u8>,
    /// Rows and CommandComplete.
    executed: Vec<u8>,
}

/// Asks a server once for each of the statements, with one text for all of a statement's parameters and results in binary, and writes what it
/// said to `file`.
pub fn record(address: Address, statements: &[&str], parameter: &str, file: &Path) -> Result<(), BenchError> {
    let failed = |error: std::io::Error| BenchError::Engine(format!("recording from {}: {error}", address.at));
    let mut stream = std::net::TcpStream::connect(address.at).map_err(failed)?;
    let mut hello = BytesMut::from(&196_608u32.to_be_bytes()[..]);
    hello.extend_from_slice(format!("user\0{}\0database\0{}\0\0", address.user, address.database).as_bytes());
    stream
        .write_all(&((hello.len() + 4) as u32).to_be_bytes())
        .and_then(|()| stream.write_all(&hello))
        .map_err(failed)?;
    until_ready(&mut stream).map_err(failed)?;
    let mut out = std::fs::File::create(file).map_err(on(file))?;
    for sql in statements {
        let said = ask_for(&mut stream, sql, parameter).map_err(failed)?;
        let recorded = Recorded::of(sql, &said)
            .ok_or_else(|| BenchError::Engine(format!("{sql}: {}", String::from_utf8_lossy(&said))))?;
        let line = serde_json::to_string(&recorded).expect("bytes and text can be written as JSON");
        writeln!(out, "{line}").map_err(on(file))?;
    }
    Ok(())
}

fn ask_for(stream: &mut std::net::TcpStream, sql: &str, parameter: &str) -> std::io::Result<Vec<u8>> {
    let mut asked = BytesMut::new();
    put(&mut asked, b'P', &[b"\0", sql.as_bytes(), b"\0\0\0"]);
    put(&mut asked, b'D', &[b"S\0"]);
    let count = parameters(sql.as_bytes());
    let mut values = count.to_be_bytes().to_vec();
    for _ in 0..count {
        values.extend_from_slice(&(parameter.len() as u32).to_be_bytes());
        values.extend_from_slice(parameter.as_bytes());
    }
    // Portal and statement without a name; all parameters as text; all results in binary.
    put(&mut asked, b'B', &[b"\0\0", &0u16.to_be_bytes(), &values, &1u16.to_be_bytes(), &1u16.to_be_bytes()]);
    put(&mut asked, b'E', &[b"\0", &0u32.to_be_bytes()]);
    put(&mut asked, b'S', &[]);
    stream.write_all(&asked)?;
    until_ready(stream)
}

/// All messages before the next ReadyForQuery.
fn until_ready(stream: &mut std::net::TcpStream) -> std::io::Result<Vec<u8>> {
    let mut said = Vec::new();
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let mut body = vec![0; length.saturating_sub(4)];
        stream.read_exact(&mut body)?;
        if head[0] == b'Z' {
            return Ok(said);
        }
        said.extend_from_slice(&head);
        said.extend_from_slice(&body);
    }
}

impl Recorded {
    /// `None` if the server did not answer as it should.
    fn of(sql: &str, said: &[u8]) -> Option<Recorded> {
        let mut recorded = Recorded { sql: sql.to_owned(), described: Vec::new(), executed: Vec::new() };
        let mut rest = said;
        while let [kind, a, b, c, d, ..] = *rest {
            let (message, after) = rest.split_at_checked(1 + u32::from_be_bytes([a, b, c, d]) as usize)?;
            match kind {
                b't' | b'T' | b'n' => recorded.described.extend_from_slice(message),
                b'D' | b'C' => recorded.executed.extend_from_slice(message),
                b'E' => return None,
                _ => {}
            }
            rest = after;
        }
        (!recorded.described.is_empty() && !recorded.executed.is_empty()).then_some(recorded)
    }
}

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;
const INT4: u32 = 23;
/// Of every parameter: clients send numbers of any size.
const INT8: u32 = 20;
/// A message beyond is not one of pgbench's: the connection ends.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Serves until the process is killed.
pub fn run(args: &ResponderArgs) -> Result<(), BenchError> {
    let failed = |error: std::io::Error| BenchError::Machine(format!("{}: {error}", args.listen));
    let listener = std::net::TcpListener::bind(args.listen).map_err(failed)?;
    let cores = processors();
    let recorded = Arc::new(recorded(args.recorded.as_deref())?);
    let workers: Vec<_> = (0..cores).map(|_| worker(recorded.clone())).collect();
    if let Some(dir) = &args.socket {
        let file = dir.join(format!(".s.PGSQL.{}", args.listen.port()));
        let local = UnixListener::bind(&file).map_err(on(&file))?;
        let workers = workers.clone();
        std::thread::spawn(move || hand_out(local.incoming().map(|stream| stream.map(Stream::Local)), &workers));
    }
    hand_out(listener.incoming().map(|stream| stream.map(Stream::Tcp)), &workers).map_err(failed)
}

/// Each connection to the next worker.
fn hand_out(accepted: impl Iterator<Item = std::io::Result<Stream>>, workers: &[Streams]) -> std::io::Result<()> {
    for (stream, worker) in accepted.zip(workers.iter().cycle()) {
        if worker.blocking_send(stream?).is_err() {
            return Err(std::io::Error::other("a thread of the responder ended"));
        }
    }
    Ok(())
}

/// How a client came.
enum Stream {
    Tcp(std::net::TcpStream),
    Local(std::os::unix::net::UnixStream),
}

/// What was recorded, by statement.
type Recordings = HashMap<Vec<u8>, Recorded>;

fn recorded(file: Option<&Path>) -> Result<Recordings, BenchError> {
    let Some(file) = file else { return Ok(Recordings::new()) };
    let text = std::fs::read_to_string(file).map_err(on(file))?;
    let lines = text.lines().map(|line| {
        let recorded: Recorded =
            serde_json::from_str(line).map_err(|error| BenchError::Usage(format!("{}: {error}", file.display())))?;
        Ok((recorded.sql.clone().into_bytes(), recorded))
    });
    lines.collect()
}

type Streams = tokio::sync::mpsc::Sender<Stream>;

fn worker(recorded: Arc<Recordings>) -> Streams {
    let (streams, mut accepted) = tokio::sync::mpsc::channel::<Stream>(64);
    std::thread::spawn(move || {
        let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = built.expect("a process can make an event loop");
        LocalSet::new().block_on(&runtime, async move {
            while let Some(stream) = accepted.recv().await {
                let talk = Talk::new(recorded.clone());
                tokio::task::spawn_local(async move {
                    // A client that goes away ends its connection, not the responder.
                    let _ = greet(stream, talk).await;
                });
            }
        });
    });
    streams
}

async fn greet(stream: Stream, talk: Talk) -> std::io::Result<()> {
    match stream {
        Stream::Tcp(stream) => {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            serve(TcpStream::from_std(stream)?, talk).await
        }
        Stream::Local(stream) => {
            stream.set_nonblocking(true)?;
            serve(UnixStream::from_std(stream)?, talk).await
        }
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, mut talk: Talk) -> std::io::Result<()> {
    let (mut input, mut output) = (BytesMut::with_capacity(8 << 10), BytesMut::with_capacity(8 << 10));
    loop {
        while talk.take(&mut input, &mut output).map_err(|()| std::io::ErrorKind::InvalidData)? {}
        if !output.is_empty() {
            stream.write_all(&output).await?;
            output.clear();
        }
        if talk.is_over || stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    }
}

/// What a statement is answered with: messages as they are sent.
#[derive(Clone, Debug)]
struct Said {
    described: Vec<u8>,
    text: Answer,
    binary: Answer,
    /// The transaction's state after it, where it changes.
    status: Option<u8>,
}

/// What depends on the format of the results.
#[derive(Clone, Debug)]
struct Answer {
    /// RowDescription or NoData.
    columns: Vec<u8>,
    executed: Vec<u8>,
}

/// How a client wants a column's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Text,
    Binary,
}

impl Said {
    fn of(sql: &[u8], recorded: &Recordings) -> Said {
        let word: Vec<u8> =
            sql.trim_ascii().iter().take_while(|b| b.is_ascii_alphabetic()).map(u8::to_ascii_lowercase).collect();
        let (tag, status): (&[u8], _) = match &word[..] {
            b"select" => (b"SELECT 1\0", None),
            b"update" => (b"UPDATE 1\0", None),
            b"insert" => (b"INSERT 0 1\0", None),
            b"delete" => (b"DELETE 1\0", None),
            b"begin" => (b"BEGIN\0", Some(b'T')),
            b"end" | b"commit" => (b"COMMIT\0", Some(b'I')),
            _ => (b"SET\0", None),
        };
        if let Some(known) = recorded.get(sql) {
            let columns = last_message(&known.described).to_vec();
            let answer = Answer { columns, executed: known.executed.clone() };
            return Said { described: known.described.clone(), text: answer.clone(), binary: answer, status };
        }
        let gives_a_row = word == b"select";
        let [text, binary] = [Format::Text, Format::Binary].map(|format| Answer::of(gives_a_row, tag, format));
        let mut described = BytesMut::new();
        let count = parameters(sql);
        put(&mut described, b't', &[&count.to_be_bytes(), &INT8.to_be_bytes().repeat(usize::from(count))]);
        described.extend_from_slice(&text.columns);
        Said { described: described.to_vec(), text, binary, status }
    }

    fn answer(&self, format: Format) -> &Answer {
        match format {
            Format::Text => &self.text,
            Format::Binary => &self.binary,
        }
    }
}

impl Answer {
    fn of(gives_a_row: bool, tag: &[u8], format: Format) -> Answer {
        let (mut columns, mut executed) = (BytesMut::new(), BytesMut::new());
        if gives_a_row {
            one_column(&mut columns, format);
            let zero: &[u8] = if format == Format::Text { b"0" } else { &[0; 4] };
            put(&mut executed, b'D', &[&1u16.to_be_bytes(), &(zero.len() as u32).to_be_bytes(), zero]);
        } else {
            put(&mut columns, b'n', &[]);
        }
        put(&mut executed, b'C', &[tag]);
        Answer { columns: columns.to_vec(), executed: executed.to_vec() }
    }
}

/// The format that a Bind's body asks for its first column in.
fn result_format(mut body: &[u8]) -> Result<Format, TryGetError> {
    for _name in 0..2 {
        let end = body.iter().position(|b| *b == 0).unwrap_or(body.len());
        body = body.get(end + 1..).unwrap_or_default();
    }
    for _format in 0..body.try_get_u16()? {
        body.try_get_u16()?;
    }
    for _parameter in 0..body.try_get_u16()? {
        let length = usize::try_from(body.try_get_i32()?).unwrap_or(0);
        body = body.get(length..).unwrap_or_default();
    }
    let is_binary = body.try_get_u16()? > 0 && body.try_get_u16()? == 1;
    Ok(if is_binary { Format::Binary } else { Format::Text })
}

fn last_message(mut messages: &[u8]) -> &[u8] {
    while let [_, a, b, c, d, ..] = *messages {
        let length = 1 + u32::from_be_bytes([a, b, c, d]) as usize;
        if length >= messages.len() {
            break;
        }
        messages = &messages[length..];
    }
    messages
}

/// The highest `$n`.
fn parameters(sql: &[u8]) -> u16 {
    let numbers = sql.split(|b| *b == b'$').skip(1).map(|rest| {
        let digits = rest.iter().take_while(|b| b.is_ascii_digit());
        digits.fold(0u16, |number, digit| number.saturating_mul(10).saturating_add(u16::from(digit - b'0')))
    });
    numbers.max().unwrap_or(0)
}

/// One connection's state.
struct Talk {
    recorded: Arc<Recordings>,
    has_started: bool,
    is_over: bool,
    status: u8,
    statements: HashMap<Vec<u8>, Rc<Said>>,
    /// Of the last Bind. A pipeline binds and executes in turn, so there is one portal at a time, whatever its name.
    bound: Option<(Rc<Said>, Format)>,
}

impl Talk {
    fn new(recorded: Arc<Recordings>) -> Talk {
        let statements = HashMap::new();
        Talk { recorded, has_started: false, is_over: false, status: b'I', statements, bound: None }
    }

    /// Answers the first message of `input`, if it is there whole.
    fn take(&mut self, input: &mut BytesMut, output: &mut BytesMut) -> Result<bool, ()> {
        let head = usize::from(self.has_started);
        let Some(length) = input.get(head..head + 4) else { return Ok(false) };
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(());
        }
        if input.len() < head + length {
            return Ok(false);
        }
        let message = input.split_to(head + length);
        match self.has_started {
            true => self.answer(message[0], &message[5..], output),
            false => self.start(&message[4..], output)?,
        }
        Ok(!self.is_over)
    }

    fn start(&mut self, mut body: &[u8], output: &mut BytesMut) -> Result<(), ()> {
        match body.try_get_u32().map_err(drop)? {
            SSL_REQUEST | GSS_REQUEST => output.extend_from_slice(b"N"),
            CANCEL_REQUEST => self.is_over = true,
            _ => {
                self.has_started = true;
                put(output, b'R', &[&0u32.to_be_bytes()]);
                for setting in
                    ["server_version\x0015.0\0", "client_encoding\0UTF8\0", "standard_conforming_strings\0on\0"]
                {
                    put(output, b'S', &[setting.as_bytes()]);
                }
                put(output, b'K', &[&[0; 8]]);
                put(output, b'Z', &[b"I"]);
            }
        }
        Ok(())
    }

    fn answer(&mut self, kind: u8, body: &[u8], output: &mut BytesMut) {
        let mut words = body.split(|b| *b == 0);
        let mut word = || words.next().unwrap_or_default();
        match kind {
            b'P' => {
                let name = word().to_vec();
                self.statements.insert(name, Rc::new(Said::of(word(), &self.recorded)));
                put(output, b'1', &[]);
            }
            b'B' => {
                let (_portal, statement) = (word(), word());
                let format = result_format(body).unwrap_or(Format::Text);
                self.bound = self.statements.get(statement).map(|said| (said.clone(), format));
                put(output, b'2', &[]);
            }
            b'D' => match body.split_first() {
                Some((b'S', name)) => {
                    let said = self.statements.get(name.strip_suffix(b"\0").unwrap_or(name));
                    output.extend_from_slice(said.map_or(&[], |said| &said.described));
                }
                _ => {
                    let columns = self.bound.as_ref().map(|(said, format)| &said.answer(*format).columns[..]);
                    output.extend_from_slice(columns.unwrap_or_default());
                }
            },
            b'E' => {
                if let Some((said, format)) = self.bound.clone() {
                    self.execute(&said, format, output);
                }
            }
            b'C' => put(output, b'3', &[]),
            b'S' => put(output, b'Z', &[&[self.status]]),
            b'Q' => {
                let said = Said::of(word(), &self.recorded);
                if said.text.columns.first() == Some(&b'T') {
                    output.extend_from_slice(&said.text.columns);
                }
                self.execute(&said, Format::Text, output);
                put(output, b'Z', &[&[self.status]]);
            }
            b'X' => self.is_over = true,
            _ => {}
        }
    }

    fn execute(&mut self, said: &Said, format: Format, output: &mut BytesMut) {
        output.extend_from_slice(&said.answer(format).executed);
        self.status = said.status.unwrap_or(self.status);
    }
}

/// RowDescription: `abalance`, an `int4`.
fn one_column(output: &mut BytesMut, format: Format) {
    let table_and_column = [0; 6];
    let format = [0, u8::from(format == Format::Binary)];
    let parts: [&[u8]; 7] = [
        &1u16.to_be_bytes(),
        b"abalance\0",
        &table_and_column,
        &INT4.to_be_bytes(),
        &4u16.to_be_bytes(),
        &(-1i32).to_be_bytes(),
        &format,
    ];
    put(output, b'T', &parts);
}

fn put(output: &mut BytesMut, kind: u8, parts: &[&[u8]]) {
    let length = 4 + parts.iter().map(|part| part.len()).sum::<usize>();
    output.extend_from_slice(&[kind]);
    output.extend_from_slice(&(length as u32).to_be_bytes());
    parts.iter().for_each(|part| output.extend_from_slice(part));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        put(&mut bytes, kind, &[body]);
        bytes.to_vec()
    }

    fn kinds(mut answer: &[u8]) -> String {
        let mut kinds = String::new();
        while let [kind, a, b, c, d, ..] = *answer {
            kinds.push(kind as char);
            answer = &answer[1 + u32::from_be_bytes([a, b, c, d]) as usize..];
        }
        kinds
    }

    #[test]
    fn a_pipeline_is_answered_message_by_message() {
        let mut talk = Talk { has_started: true, ..Talk::new(Arc::default()) };
        let mut input = BytesMut::new();
        for part in [
            message(b'P', b"s\0select abalance from t where aid = $1\0\0\0"),
            message(b'B', b"\0s\0\0\0\0\0\0\0"),
            message(b'D', b"P\0"),
            message(b'E', b"\0\0\0\0\0"),
            message(b'S', b""),
            message(b'Q', b"BEGIN\0"),
            message(b'Q', b"update t set a = 1\0"),
            message(b'Q', b"END\0"),
        ] {
            input.extend_from_slice(&part);
        }
        // A message that is not there whole waits.
        input.extend_from_slice(b"S\0");
        let mut output = BytesMut::new();
        while talk.take(&mut input, &mut output) == Ok(true) {}
        assert_eq!(kinds(&output), "12TDCZCZCZCZ");
        assert_eq!(&input[..], b"S\0");
        assert_eq!(talk.status, b'I');
    }

    #[test]
    fn a_row_comes_in_the_format_that_was_asked_for() {
        let mut talk = Talk { has_started: true, ..Talk::new(Arc::default()) };
        let mut answer = |formats: &[u8]| {
            let mut output = BytesMut::new();
            // One parameter, as binary: eight bytes, the last of which looks like a format.
            let bind = [b"\0s\0\0\x01\0\x01\0\x01\0\0\0\x08\0\0\0\0\0\x01\0\x01", formats].concat();
            talk.answer(b'P', b"s\0select abalance from t where aid = $1\0\0\0", &mut BytesMut::new());
            talk.answer(b'B', &bind, &mut BytesMut::new());
            talk.answer(b'E', b"\0\0\0\0\0", &mut output);
            output.to_vec()
        };
        let row = |value: &[u8]| {
            let length = (value.len() as u32).to_be_bytes();
            [message(b'D', &[b"\0\x01", &length[..], value].concat()), message(b'C', b"SELECT 1\0")].concat()
        };
        assert_eq!(answer(b"\0\x01\0\x01"), row(&[0; 4]));
        assert_eq!(answer(b"\0\x01\0\0"), row(b"0"));
        assert_eq!(answer(b"\0\0"), row(b"0"));
    }

    #[test]
    fn a_recorded_statement_is_answered_as_it_was() {
        let mut said = message(b'1', b"");
        for (kind, body) in
            [(b't', &b"\0\x01"[..]), (b'T', b"columns"), (b'2', b""), (b'D', b"row"), (b'C', b"SELECT 1\0")]
        {
            said.extend(message(kind, body));
        }
        let known = Recorded::of("SELECT x", &said).expect("it was answered");
        let said = Said::of(b"SELECT x", &HashMap::from([(b"SELECT x".to_vec(), known)]));
        assert_eq!(
            (kinds(&said.described), kinds(&said.text.columns), kinds(&said.binary.executed)),
            ("tT".into(), "T".into(), "DC".into())
        );
    }

    #[test]
    fn parameters_are_counted_and_lies_about_lengths_end_the_connection() {
        assert_eq!(parameters(b" UPDATE t SET a = $2 WHERE b = $1"), 2);
        let mut talk = Talk { has_started: true, ..Talk::new(Arc::default()) };
        let mut lie = BytesMut::from(&b"Q\xff\xff\xff\xff"[..]);
        assert_eq!(talk.take(&mut lie, &mut BytesMut::new()), Err(()));
    }
}
