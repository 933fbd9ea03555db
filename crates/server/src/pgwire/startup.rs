//! Who comes in? From the first byte of a connection to a session's parameters, or a cancel request.
//!
//! | first 8 bytes | meaning | answer |
//! |---|---|---|
//! | length, 80877103 | SSLRequest | `S`, and TLS begins; `N` without a certificate: the client goes on in clear or leaves |
//! | length, 80877104 | GSSENCRequest | `N` |
//! | length, 80877102 | CancelRequest | none; the connection ends |
//! | 12, "FSHP" | greeting of a link ([`crate::link`]) | a welcome; from then on frames |
//! | length, 3.x | StartupMessage | NegotiateProtocolVersion where we speak less, then the session begins |
//!
//! Pure: bytes in, a verdict out. How the client proves who it is follows (`reception`).

use super::registry::CancelKey;
use crate::link::frame as link;
use ::pgwire::messages::cancel::CancelRequest;
use ::pgwire::messages::startup::{GssEncRequest, NegotiateProtocolVersion, SslRequest, Startup};
use ::pgwire::messages::{DecodeContext, Message, ProtocolVersion};
use bytes::BytesMut;
use freshet_db::SqlError;

/// The longest first packet (PostgreSQL's limit).
pub const PACKET_BYTES_MAX: usize = 10_000;

/// What a client asks for at the start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hello {
    pub user: String,
    pub database: String,
    /// Settings, in the order in which they take effect.
    pub settings: Vec<(String, String)>,
    /// To be sent first, where the client speaks more than we do.
    pub negotiate: Option<Negotiate>,
}

/// The newest minor version that we speak for this client, and the protocol options that we do not know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Negotiate {
    pub version: i32,
    pub options: Vec<String>,
}

impl Negotiate {
    pub fn message(&self) -> NegotiateProtocolVersion {
        NegotiateProtocolVersion::new(self.version, self.options.clone())
    }
}

#[derive(Debug)]
pub enum Opening {
    /// The packet is not whole yet.
    NeedInput,
    /// Go on in TLS, if there is a certificate.
    Encrypt,
    /// Answer `N` and go on.
    RefuseEncryption,
    Cancel(CancelKey),
    /// A link of this version begins.
    Link(u32),
    Hello(Hello),
}

/// Takes the next packet off the input.
pub fn next(input: &mut BytesMut) -> Result<Opening, SqlError> {
    let Some(header) = input.first_chunk::<4>() else {
        return Ok(Opening::NeedInput);
    };
    let length = usize::try_from(i32::from_be_bytes(*header)).unwrap_or(0);
    if !(8..=PACKET_BYTES_MAX).contains(&length) {
        return Err(SqlError::new("08P01", "invalid length of startup packet"));
    }
    if input.len() < length {
        return Ok(Opening::NeedInput);
    }
    let mut packet = input.split_to(length);
    if SslRequest::is_ssl_request_packet(&packet) {
        return Ok(Opening::Encrypt);
    }
    if GssEncRequest::is_gss_enc_request_packet(&packet) {
        return Ok(Opening::RefuseEncryption);
    }
    let context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
    if CancelRequest::is_cancel_request_packet(&packet) {
        return cancel(&mut packet, &context);
    }
    if let Some(version) = link::greeted(&packet) {
        return Ok(Opening::Link(version));
    }
    check_version(&packet)?;
    match Startup::decode(&mut packet, &context) {
        Ok(Some(startup)) => hello(startup).map(Opening::Hello),
        _ => Err(SqlError::new("08P01", "invalid startup packet layout")),
    }
}

fn cancel(packet: &mut BytesMut, context: &DecodeContext) -> Result<Opening, SqlError> {
    let invalid = || SqlError::new("08P01", "invalid cancel request");
    let request = CancelRequest::decode(packet, context).ok().flatten();
    let request = request.ok_or_else(invalid)?;
    Ok(Opening::Cancel(CancelKey { pid: request.pid, secret: request.secret_key.as_i32().ok_or_else(invalid)? }))
}

fn check_version(packet: &[u8]) -> Result<(), SqlError> {
    let major = u16::from_be_bytes([packet[4], packet[5]]);
    let minor = u16::from_be_bytes([packet[6], packet[7]]);
    if major == Startup::PG_PROTOCOL_LATEST {
        return Ok(());
    }
    Err(SqlError::new("0A000", format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.2")))
}

fn hello(startup: Startup) -> Result<Hello, SqlError> {
    let version = match startup.protocol_number_minor {
        0 | 1 => ProtocolVersion::PROTOCOL3_0,
        _ => ProtocolVersion::PROTOCOL3_2,
    };
    let spoken = version.version_number().1 == startup.protocol_number_minor;
    let mut hello = Hello::default();
    let mut command_line = None;
    let mut unknown_options = Vec::new();
    for (name, value) in startup.parameters {
        match name.as_str() {
            "user" => hello.user = value,
            "database" => hello.database = value,
            "options" => command_line = Some(value),
            "replication" => refuse_replication(&value)?,
            _ if name.starts_with("_pq_.") => unknown_options.push(name),
            _ => hello.settings.push((name, value)),
        }
    }
    if hello.user.is_empty() {
        return Err(SqlError::new("28000", "no PostgreSQL user name specified in startup packet"));
    }
    if hello.database.is_empty() {
        hello.database.clone_from(&hello.user);
    }
    if let Some(command_line) = command_line {
        // The command line takes effect first, so that a setting named by itself wins.
        hello.settings.splice(0..0, command_line_settings(&command_line)?);
    }
    if !spoken || !unknown_options.is_empty() {
        hello.negotiate = Some(Negotiate { version: version.into(), options: unknown_options });
    }
    Ok(hello)
}

fn refuse_replication(value: &str) -> Result<(), SqlError> {
    match value.to_ascii_lowercase().as_str() {
        "false" | "off" | "no" | "0" => Ok(()),
        _ => Err(SqlError::new("0A000", "replication connections are not supported")),
    }
}

/// `-c name=value` and `--name=value`, separated by blanks; a backslash takes the next character as it is.
fn command_line_settings(line: &str) -> Result<Vec<(String, String)>, SqlError> {
    let mut words = split_words(line).into_iter();
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let assignment = match (word.strip_prefix("--"), word.strip_prefix("-c")) {
            (Some(long), _) => Some(long.to_owned()),
            (None, Some("")) => words.next(),
            (None, Some(joined)) => Some(joined.to_owned()),
            (None, None) => None,
        };
        let pair = assignment
            .as_deref()
            .and_then(|a| a.split_once('='))
            .ok_or_else(|| SqlError::new("42601", format!("invalid command-line argument: {word}")))?;
        settings.push((pair.0.replace('-', "_"), pair.1.to_owned()));
    }
    Ok(settings)
}

fn split_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        if c.is_whitespace() {
            words.extend(word.take());
        } else {
            let taken = if c == '\\' { characters.next().unwrap_or(c) } else { c };
            word.get_or_insert_default().push(taken);
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::pgwire::messages::startup::SecretKey;

    fn startup(minor: u16, parameters: &[(&str, &str)]) -> BytesMut {
        let mut startup = Startup::new();
        startup.protocol_number_minor = minor;
        for (name, value) in parameters {
            startup.parameters.insert((*name).into(), (*value).into());
        }
        let mut bytes = BytesMut::new();
        startup.encode(&mut bytes).unwrap();
        bytes
    }

    fn opened(mut bytes: BytesMut) -> Result<Hello, SqlError> {
        match next(&mut bytes)? {
            Opening::Hello(hello) => Ok(hello),
            other => panic!("not a hello: {other:?}"),
        }
    }

    #[test]
    fn parameters_and_options_are_read() {
        let hello = opened(startup(
            0,
            &[("user", "u"), ("application_name", ""), ("options", r"-c lock_timeout=2s --search-path=a\ b -cx.y=\\")],
        ))
        .unwrap();
        assert_eq!((hello.user.as_str(), hello.database.as_str()), ("u", "u"));
        let settings: Vec<_> = hello.settings.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(
            settings,
            [("lock_timeout", "2s"), ("search_path", "a b"), ("x.y", "\\"), ("application_name", ""),]
        );
        assert_eq!(hello.negotiate, None);
    }

    #[test]
    fn a_newer_client_is_told_what_we_speak() {
        assert_eq!(opened(startup(2, &[("user", "u")])).unwrap().negotiate, None);
        let hello = opened(startup(9999, &[("user", "u"), ("_pq_.x", "1")])).unwrap();
        assert_eq!(hello.negotiate, Some(Negotiate { version: 196_610, options: vec!["_pq_.x".into()] }));
    }

    #[test]
    fn what_cannot_be_served_is_refused() {
        let sqlstate = |minor, parameters: &[(&str, &str)]| opened(startup(minor, parameters)).unwrap_err().sqlstate;
        assert_eq!(sqlstate(0, &[]), "28000");
        assert_eq!(sqlstate(0, &[("user", "u"), ("replication", "database")]), "0A000");
        assert_eq!(sqlstate(0, &[("user", "u"), ("options", "-x")]), "42601");
        let old = next(&mut BytesMut::from(&b"\0\0\0\x09\0\x02\0\0\0"[..]));
        assert_eq!(old.unwrap_err().sqlstate, "0A000");
        for bytes in [&b"\0\0\0\x07"[..], b"\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n"] {
            let refused = next(&mut BytesMut::from(bytes));
            assert_eq!(refused.unwrap_err().sqlstate, "08P01", "{bytes:?}");
        }
    }

    #[test]
    fn packets_may_come_in_pieces() {
        let whole = startup(0, &[("user", "u")]);
        for cut in 0..whole.len() {
            let mut bytes = BytesMut::from(&whole[..cut]);
            assert!(matches!(next(&mut bytes), Ok(Opening::NeedInput)), "{cut}");
            assert_eq!(bytes.len(), cut, "nothing is taken");
        }
        let mut ssl = BytesMut::new();
        SslRequest::new().encode(&mut ssl).unwrap();
        ssl.extend_from_slice(&whole);
        assert!(matches!(next(&mut ssl), Ok(Opening::Encrypt)));
        assert!(matches!(next(&mut ssl), Ok(Opening::Hello(_))));
        assert!(ssl.is_empty());
    }

    #[test]
    fn a_cancel_request_gives_its_key() {
        let mut bytes = BytesMut::new();
        CancelRequest::new(7, SecretKey::I32(-9)).encode(&mut bytes).unwrap();
        let Ok(Opening::Cancel(key)) = next(&mut bytes) else {
            panic!("not a cancel request");
        };
        assert_eq!((key.pid, key.secret), (7, -9));
        let short = next(&mut BytesMut::from(&b"\0\0\0\x08\x04\xd2\x16\x2e"[..]));
        assert_eq!(short.unwrap_err().sqlstate, "08P01");
    }
}
