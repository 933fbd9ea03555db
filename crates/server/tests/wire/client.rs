//! A client that sees every message: it sends what a test says and gives what the server answers.

use bytes::{Bytes, BytesMut};
use pgwire::messages::cancel::CancelRequest;
use pgwire::messages::copy::{CopyData, CopyDone, CopyFail};
use pgwire::messages::extendedquery::{Bind, Close, Describe, Execute, Parse, Sync};
use pgwire::messages::response::TransactionStatus;
use pgwire::messages::simplequery::Query;
use pgwire::messages::startup::{BackendKeyData, Startup};
use pgwire::messages::{DecodeContext, Message, PgWireBackendMessage, ProtocolVersion};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A test that waits longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Client {
    address: SocketAddr,
    socket: TcpStream,
    input: BytesMut,
    context: DecodeContext,
    pub key: Option<BackendKeyData>,
    pub parameters: Vec<(String, String)>,
}

/// A server message, as far as tests look at it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    ParseComplete,
    BindComplete,
    CloseComplete,
    NoData,
    PortalSuspended,
    EmptyQuery,
    Parameters(Vec<u32>),
    /// Name, type, format of each column.
    Columns(Vec<(String, u32, i16)>),
    Row(Vec<Option<Vec<u8>>>),
    Complete(String),
    /// Whether it is binary, and the number of columns.
    CopyIn(bool, usize),
    CopyOut(bool, usize),
    CopyData(Vec<u8>),
    CopyDone,
    /// Severity, SQLSTATE, message.
    Error(String, String, String),
    /// SQLSTATE, message.
    Notice(String, String),
    Parameter(String, String),
    /// Process number, channel, payload.
    Notification(i32, String, String),
    /// `I`, `T` or `E`.
    Ready(char),
    /// The server closed the connection.
    Closed,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let mut client = Client::open(address);
        client.start(&[("user", "tester"), ("database", "test")]);
        assert_eq!(client.until_ready(), [Reply::Ready('I')]);
        client
    }

    /// A connection without a word.
    pub fn open(address: SocketAddr) -> Client {
        Client::of(address, TcpStream::connect(address).expect("the server listens"))
    }

    /// A connection that is open already.
    pub fn of(address: SocketAddr, socket: TcpStream) -> Client {
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket.set_nodelay(true).expect("no delay");
        let mut context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
        context.awaiting_frontend_ssl = false;
        context.awaiting_frontend_startup = false;
        Client { address, socket, input: BytesMut::new(), context, key: None, parameters: Vec::new() }
    }

    pub fn start(&mut self, parameters: &[(&str, &str)]) {
        let mut startup = Startup::new();
        for (name, value) in parameters {
            startup.parameters.insert((*name).to_owned(), (*value).to_owned());
        }
        self.send(&encoded(startup));
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the server reads");
    }

    /// Where the server may be gone.
    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// Nothing more will be sent.
    pub fn finish(&mut self) {
        // A server that has closed already does not mind.
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }

    /// The next message; authentication, key and settings at the start are kept and passed over.
    pub fn read(&mut self) -> Reply {
        loop {
            let decoded = PgWireBackendMessage::decode(&mut self.input, &self.context);
            match decoded.expect("a well-formed reply") {
                Some(message) => {
                    if let Some(reply) = self.reply(message) {
                        return reply;
                    }
                }
                None => match self.fill() {
                    Ok(0) => return Reply::Closed,
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                        return Reply::Closed;
                    }
                    Err(error) => panic!("no reply: {error}"),
                },
            }
        }
    }

    /// The next message as it came, where nothing of it was read.
    pub fn read_raw(&mut self) -> (u8, Vec<u8>) {
        assert!(self.input.is_empty(), "replies were read ahead");
        read_message(&mut self.socket)
    }

    pub fn server_address(&self) -> SocketAddr {
        self.address
    }

    pub fn own_address(&self) -> SocketAddr {
        self.socket.local_addr().expect("an address")
    }

    fn fill(&mut self) -> std::io::Result<usize> {
        let mut bytes = [0; 16 << 10];
        let count = self.socket.read(&mut bytes)?;
        self.input.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    /// Whether bytes of a reply are there before `limit` has passed.
    pub fn hears_within(&mut self, limit: Duration) -> bool {
        if !self.input.is_empty() {
            return true;
        }
        self.socket.set_read_timeout(Some(limit)).expect("a timeout");
        let heard = self.fill();
        self.socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        match heard {
            Ok(_) => true,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => false,
            Err(error) => panic!("no reply: {error}"),
        }
    }

    fn reply(&mut self, message: PgWireBackendMessage) -> Option<Reply> {
        use PgWireBackendMessage as M;
        Some(match message {
            M::Authentication(_) => return None,
            M::BackendKeyData(key) => {
                self.key = Some(key);
                return None;
            }
            M::ParameterStatus(p) if self.key.is_none() => {
                self.parameters.push((p.name, p.value));
                return None;
            }
            M::ParameterStatus(p) => Reply::Parameter(p.name, p.value),
            M::ParseComplete(_) => Reply::ParseComplete,
            M::BindComplete(_) => Reply::BindComplete,
            M::CloseComplete(_) => Reply::CloseComplete,
            M::NoData(_) => Reply::NoData,
            M::PortalSuspended(_) => Reply::PortalSuspended,
            M::EmptyQueryResponse(_) => Reply::EmptyQuery,
            M::ParameterDescription(p) => Reply::Parameters(p.types),
            M::RowDescription(r) => {
                Reply::Columns(r.fields.into_iter().map(|f| (f.name, f.type_id, f.format_code)).collect())
            }
            M::DataRow(row) => Reply::Row(fields(&row.data)),
            M::CommandComplete(c) => Reply::Complete(c.tag),
            M::CopyInResponse(c) => Reply::CopyIn(c.format == 1, c.column_formats.len()),
            M::CopyOutResponse(c) => Reply::CopyOut(c.format == 1, c.column_formats.len()),
            M::CopyData(c) => Reply::CopyData(c.data.to_vec()),
            M::CopyDone(_) => Reply::CopyDone,
            M::ErrorResponse(e) => Reply::Error(field(&e.fields, b'S'), field(&e.fields, b'C'), field(&e.fields, b'M')),
            M::NoticeResponse(n) => Reply::Notice(field(&n.fields, b'C'), field(&n.fields, b'M')),
            M::NotificationResponse(n) => Reply::Notification(n.pid, n.channel, n.payload),
            M::ReadyForQuery(r) => Reply::Ready(match r.status {
                TransactionStatus::Idle => 'I',
                TransactionStatus::Transaction => 'T',
                TransactionStatus::Error => 'E',
            }),
            other => panic!("an unexpected message: {other:?}"),
        })
    }

    /// Replies up to and with the next ReadyForQuery, or the end.
    pub fn until_ready(&mut self) -> Vec<Reply> {
        let mut replies = Vec::new();
        loop {
            replies.push(self.read());
            if matches!(replies.last(), Some(Reply::Ready(_) | Reply::Closed)) {
                return replies;
            }
        }
    }

    /// A simple query and all its replies.
    pub fn query(&mut self, script: &str) -> Vec<Reply> {
        self.send(&query(script));
        self.until_ready()
    }

    /// A simple query that must succeed: its rows as text.
    pub fn rows(&mut self, script: &str) -> Vec<Vec<Option<String>>> {
        let replies = self.query(script);
        let failed = replies.iter().find(|r| matches!(r, Reply::Error(..)));
        assert_eq!(failed, None, "{script}");
        replies.iter().filter_map(text_row).collect()
    }

    /// One value of a simple query.
    pub fn value(&mut self, script: &str) -> String {
        let rows = self.rows(script);
        let row = rows.first().expect("a row");
        row[0].clone().expect("not null")
    }

    /// The SQLSTATE of a simple query that must fail.
    pub fn sqlstate(&mut self, script: &str) -> String {
        sqlstate(&self.query(script))
    }

    /// Asks, over another connection, to cancel what this session does.
    pub fn cancel(&self) {
        let key = self.key.as_ref().expect("a session with a key");
        let request = CancelRequest::new(key.pid, key.secret_key.clone());
        let mut other = Client::open(self.address);
        other.send(&encoded(request));
        assert_eq!(other.read(), Reply::Closed);
    }
}

/// A message of a server over whatever it came: its kind and body.
pub fn read_message(socket: &mut impl Read) -> (u8, Vec<u8>) {
    let mut head = [0; 5];
    socket.read_exact(&mut head).expect("a message");
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let mut body = vec![0; length - 4];
    socket.read_exact(&mut body).expect("its body");
    (head[0], body)
}

pub fn sqlstate(replies: &[Reply]) -> String {
    let states: Vec<&String> = replies
        .iter()
        .filter_map(|r| match r {
            Reply::Error(_, state, _) => Some(state),
            _ => None,
        })
        .collect();
    match states[..] {
        [state] => state.clone(),
        _ => panic!("not one error: {replies:?}"),
    }
}

pub fn text_row(reply: &Reply) -> Option<Vec<Option<String>>> {
    let Reply::Row(row) = reply else {
        return None;
    };
    let text = |field: &Vec<u8>| String::from_utf8(field.clone()).expect("text");
    Some(row.iter().map(|f| f.as_ref().map(text)).collect())
}

fn field(fields: &[(u8, String)], code: u8) -> String {
    let field = fields.iter().find(|(c, _)| *c == code);
    field.map(|(_, text)| text.clone()).unwrap_or_default()
}

fn fields(mut data: &[u8]) -> Vec<Option<Vec<u8>>> {
    let mut fields = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk::<4>() {
        match usize::try_from(i32::from_be_bytes(*length)) {
            Ok(length) => {
                fields.push(Some(rest[..length].to_vec()));
                data = &rest[length..];
            }
            Err(_) => {
                fields.push(None);
                data = rest;
            }
        }
    }
    fields
}

// ---- messages of a client

pub fn encoded(message: impl Message) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes).expect("a message that fits");
    bytes.to_vec()
}

fn named(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_owned())
}

pub fn query(script: &str) -> Vec<u8> {
    encoded(Query::new(script.to_owned()))
}

pub fn parse(name: &str, sql: &str, types: &[u32]) -> Vec<u8> {
    encoded(Parse::new(named(name), sql.to_owned(), types.to_vec()))
}

pub fn bind(portal: &str, statement: &str, parameters: &[Option<&[u8]>]) -> Vec<u8> {
    bind_formats(portal, statement, &[], parameters, &[])
}

pub fn bind_text(portal: &str, statement: &str, parameters: &[&str]) -> Vec<u8> {
    let parameters: Vec<_> = parameters.iter().map(|p| Some(p.as_bytes())).collect();
    bind(portal, statement, &parameters)
}

pub fn bind_formats(
    portal: &str,
    statement: &str,
    parameter_formats: &[i16],
    parameters: &[Option<&[u8]>],
    result_formats: &[i16],
) -> Vec<u8> {
    let parameters = parameters.iter().map(|p| p.map(Bytes::copy_from_slice)).collect();
    encoded(Bind::new(named(portal), named(statement), parameter_formats.to_vec(), parameters, result_formats.to_vec()))
}

pub fn describe_statement(name: &str) -> Vec<u8> {
    encoded(Describe::new(b'S', named(name)))
}

pub fn describe_portal(name: &str) -> Vec<u8> {
    encoded(Describe::new(b'P', named(name)))
}

pub fn close_statement(name: &str) -> Vec<u8> {
    encoded(Close::new(b'S', named(name)))
}

pub fn close_portal(name: &str) -> Vec<u8> {
    encoded(Close::new(b'P', named(name)))
}

pub fn execute(portal: &str, rows_max: i32) -> Vec<u8> {
    encoded(Execute::new(named(portal), rows_max))
}

pub fn copy_data(bytes: &[u8]) -> Vec<u8> {
    encoded(CopyData::new(Bytes::copy_from_slice(bytes)))
}

pub fn copy_done() -> Vec<u8> {
    encoded(CopyDone::new())
}

pub fn copy_fail(reason: &str) -> Vec<u8> {
    encoded(CopyFail::new(reason.to_owned()))
}

pub fn sync() -> Vec<u8> {
    encoded(Sync::new())
}

/// Parse, Bind and Execute of the unnamed statement, text parameters, no Sync.
pub fn run(sql: &str, parameters: &[&str]) -> Vec<u8> {
    [parse("", sql, &[]), bind_text("", "", parameters), execute("", 0)].concat()
}
