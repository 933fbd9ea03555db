//! Who comes in: SCRAM, TLS, rules, and what is done to those who lie, leave or try for long.

use crate::Fixture;
use crate::client::encoded;
use freshet_db::{Database, Options};
use freshet_server::admission::{Rule, Rules};
use freshet_server::delay::LoginDelay;
use freshet_server::listener;
use freshet_server::tls::TlsFiles;
use pgwire::messages::startup::{SslRequest, Startup};
use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring};

const PATIENCE: Duration = Duration::from_secs(30);
const PASSWORD: &[u8] = b"correct horse";

fn rules(text: &str) -> Rules {
    #[derive(serde::Deserialize)]
    struct File {
        rule: Vec<Rule>,
    }
    Rules(toml::from_str::<File>(text).expect("rules").rule)
}

const EVERYBODY_BY_PASSWORD: &str =
    "[[rule]]\ntype='host'\ndatabase='all'\nuser='all'\naddress='all'\nmethod='scram-sha-256'\n";

/// A server that asks everybody for a password; alice has one.
fn guarded(change: impl FnOnce(&mut freshet_server::listener::Options)) -> Fixture {
    let fixture = Fixture::new(|options| {
        options.rules = rules(EVERYBODY_BY_PASSWORD);
        options.login_delay = LoginDelay { first: Duration::from_millis(1), max: Duration::from_millis(2) };
        change(options);
    });
    let mut session = fixture.database.session().expect("a session");
    for sql in [
        "create role alice login password 'correct horse'",
        "create role nologin password 'correct horse'",
        "create role late login password 'correct horse' valid until '2001-01-01'",
        "create role bare login",
        "create role single login password 'correct horse' connection limit 1",
    ] {
        session.run(sql).expect(sql);
    }
    fixture
}

/// A connection that sees every frame.
struct Raw<S> {
    stream: S,
    input: Vec<u8>,
}

impl Raw<TcpStream> {
    fn open(address: SocketAddr) -> Raw<TcpStream> {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Raw { stream, input: Vec::new() }
    }
}

fn startup(user: &str) -> Vec<u8> {
    let mut startup = Startup::new();
    startup.parameters.insert("user".to_owned(), user.to_owned());
    startup.parameters.insert("database".to_owned(), "test".to_owned());
    encoded(startup).to_vec()
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind];
    frame.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    frame.extend_from_slice(body);
    frame
}

fn initial(mechanism: &str, message: &[u8]) -> Vec<u8> {
    let mut body = [mechanism.as_bytes(), b"\0"].concat();
    body.extend_from_slice(&(message.len() as u32).to_be_bytes());
    body.extend_from_slice(message);
    frame(b'p', &body)
}

/// SQLSTATE and message of an ErrorResponse.
fn error(body: &[u8]) -> (String, String) {
    let field = |kind: u8| {
        let found = body.split(|b| *b == 0).find(|field| field.first() == Some(&kind));
        found.map_or(String::new(), |field| String::from_utf8_lossy(&field[1..]).into_owned())
    };
    (field(b'C'), field(b'M'))
}

impl<S: Read + Write> Raw<S> {
    fn send(&mut self, bytes: &[u8]) {
        // A server that has hung up already is found out when it is read.
        let _ = self.stream.write_all(bytes).and_then(|()| self.stream.flush());
    }

    /// The next frame; `None`: the connection is over.
    fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some(header) = self.input.first_chunk::<5>() {
                let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
                if self.input.len() > length {
                    let frame: Vec<u8> = self.input.drain(..=length).collect();
                    return Some((frame[0], frame[5..].to_vec()));
                }
            }
            let mut bytes = [0; 16 << 10];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.input.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no reply: {error}"),
                Err(_) => return None,
            }
        }
    }

    fn expect(&mut self, kind: u8) -> Vec<u8> {
        match self.next() {
            Some((found, body)) if found == kind => body,
            Some((b'E', body)) => panic!("an error instead of {:?}: {:?}", char::from(kind), error(&body)),
            other => panic!("{other:?} instead of {:?}", char::from(kind)),
        }
    }

    /// The error that ends the connection.
    fn refusal(&mut self) -> (String, String) {
        match self.next() {
            Some((b'E', body)) => {
                assert_eq!(self.next(), None, "nothing follows");
                error(&body)
            }
            other => panic!("{other:?} instead of an error"),
        }
    }

    /// Up to the server's offer of mechanisms.
    fn ask(&mut self, user: &str) -> Vec<String> {
        self.send(&startup(user));
        let body = self.expect(b'R');
        assert_eq!(body[..4], 10_u32.to_be_bytes(), "AuthenticationSASL");
        let names = body[4..].split(|b| *b == 0).filter(|name| !name.is_empty());
        names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    /// The whole of it.
    fn log_in(
        &mut self,
        user: &str,
        password: &[u8],
        mechanism: &str,
        binding: ChannelBinding,
    ) -> Result<(), (String, String)> {
        self.ask(user);
        let mut client = ScramSha256::new(password, binding);
        self.send(&initial(mechanism, client.message()));
        let (kind, body) = self.next().expect("an answer");
        if kind == b'E' {
            return Err(error(&body));
        }
        client.update(&body[4..]).expect("a challenge");
        self.send(&frame(b'p', client.message()));
        let (kind, body) = self.next().expect("an answer");
        if kind == b'E' {
            return Err(error(&body));
        }
        client.finish(&body[4..]).expect("the server knows the password too");
        match self.next().expect("an answer") {
            (b'R', body) if body == 0_u32.to_be_bytes() => {}
            (b'E', body) => return Err(error(&body)),
            other => panic!("{other:?}"),
        }
        while self.next().expect("settings and the end of the start").0 != b'Z' {}
        Ok(())
    }

    fn plainly(&mut self, user: &str, password: &[u8]) -> Result<(), (String, String)> {
        self.log_in(user, password, "SCRAM-SHA-256", ChannelBinding::unsupported())
    }

    /// The first cell that a statement gives.
    fn query(&mut self, sql: &str) -> Result<String, (String, String)> {
        self.send(&frame(b'Q', &[sql.as_bytes(), b"\0"].concat()));
        let mut cell = Ok(String::new());
        loop {
            match self.next().expect("an answer") {
                (b'D', body) => cell = Ok(String::from_utf8_lossy(&body[6..]).into_owned()),
                (b'E', body) => cell = Err(error(&body)),
                (b'Z', _) => return cell,
                _ => {}
            }
        }
    }
}

fn connect(fixture: &Fixture) -> Raw<TcpStream> {
    Raw::open(fixture.server.local_addr())
}

fn is_well(fixture: &Fixture) {
    let mut client = connect(fixture);
    client.plainly("alice", PASSWORD).expect("alice comes in");
    assert_eq!(client.query("select current_user"), Ok("alice".to_owned()));
}

fn state<T: std::fmt::Debug>(result: Result<T, (String, String)>) -> String {
    result.expect_err("refused").0
}

#[test]
fn the_password_lets_in_and_nothing_else_does() {
    let fixture = guarded(|_| {});
    is_well(&fixture);
    let wrong = connect(&fixture).plainly("alice", b"wrong");
    assert_eq!(wrong, Err(("28P01".into(), "password authentication failed for user \"alice\"".into())));
    for user in ["late", "bare", "nobody"] {
        assert_eq!(state(connect(&fixture).plainly(user, PASSWORD)), "28P01", "{user}");
    }
    let nologin = connect(&fixture).plainly("nologin", PASSWORD);
    assert_eq!(nologin, Err(("28000".into(), "role \"nologin\" is not permitted to log in".into())));
}

#[test]
fn a_role_has_as_many_sessions_as_it_may() {
    let fixture = guarded(|_| {});
    let mut first = connect(&fixture);
    first.plainly("single", PASSWORD).expect("the one");
    let second = connect(&fixture).plainly("single", PASSWORD);
    assert_eq!(second, Err(("53300".into(), "too many connections for role \"single\"".into())));
    first.send(&frame(b'X', b""));
    assert_eq!(first.next(), None);
    let start = Instant::now();
    while connect(&fixture).plainly("single", PASSWORD).is_err() {
        assert!(start.elapsed() < PATIENCE, "the place comes back");
    }
}

#[test]
fn a_wrong_password_a_thousand_times() {
    let fixture = guarded(|_| {});
    let mut other = connect(&fixture);
    other.plainly("alice", PASSWORD).expect("alice comes in");
    for round in 0..1000 {
        assert_eq!(state(connect(&fixture).plainly("alice", format!("guess {round}").as_bytes())), "28P01");
        if round % 100 == 0 {
            assert_eq!(other.query("select 7"), Ok("7".to_owned()), "others go on");
        }
    }
    is_well(&fixture);
    let start = Instant::now();
    while fixture.server.sessions() > 1 {
        assert!(start.elapsed() < PATIENCE, "nobody else is left");
        std::thread::yield_now();
    }
}

#[test]
fn a_wrong_password_waits_and_nobody_waits_with_it() {
    let second = Duration::from_secs(1);
    let fixture = guarded(|options| options.login_delay = LoginDelay { first: 3 * second, max: 3 * second });
    let address = fixture.server.local_addr();
    let start = Instant::now();
    let wrong = std::thread::spawn(move || {
        let refused = Raw::open(address).plainly("single", b"wrong");
        (refused, start.elapsed())
    });
    is_well(&fixture);
    assert!(!wrong.is_finished(), "its answer still waits");
    let (refused, took) = wrong.join().expect("a refusal");
    assert_eq!(state(refused), "28P01");
    assert!(took >= 3 * second, "{took:?}");
}

/// Who does not wait for an answer guesses no faster: the password itself waits, a right one too, and another user's login does not make good.
#[test]
fn the_next_password_waits_before_it_is_looked_at() {
    let delay = Duration::from_millis(1500);
    let fixture = guarded(|options| options.login_delay = LoginDelay { first: delay, max: delay });
    let took = |user: &str| {
        let start = Instant::now();
        connect(&fixture).plainly(user, PASSWORD).expect("it is the right one");
        start.elapsed()
    };
    assert!(took("alice") < delay);
    let mut guess = connect(&fixture);
    guess.ask("alice");
    let mut client = ScramSha256::new(b"wrong", ChannelBinding::unsupported());
    guess.send(&initial("SCRAM-SHA-256", client.message()));
    client.update(&guess.expect(b'R')[4..]).expect("a challenge");
    guess.send(&frame(b'p', client.message()));
    // Given up before its answer: that comes in 1.5 s.
    std::thread::sleep(Duration::from_millis(200));
    drop(guess);
    assert!(took("single") < delay, "another user's");
    assert!(took("alice") >= delay, "the next of the same");
    assert!(took("alice") < delay, "it made good");
}

/// Else two connections with a restart between tell who is there: the salts of those stay.
#[test]
fn salts_of_who_is_not_there_stay_over_a_restart() {
    let salts = |directory: &Path| {
        let database = Database::open(Options::small(directory)).expect("it opens");
        let mut options = listener::Options::new("127.0.0.1:0".parse().expect("an address"));
        options.rules = rules(EVERYBODY_BY_PASSWORD);
        let server = listener::listen(&database, options).expect("a free port");
        let mut session = database.session().expect("a session");
        let _ = session.run("create role bare login");
        let salt = |user: &str| {
            let mut client = Raw::open(server.local_addr());
            client.ask(user);
            client.send(&initial("SCRAM-SHA-256", b"n,,n=,r=abc"));
            String::from_utf8(client.expect(b'R')).expect("text").split(',').nth(1).expect("a salt").to_owned()
        };
        ["nobody", "noone", "bare"].map(salt)
    };
    let (one, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let before = salts(one.path());
    assert_eq!(before, salts(one.path()));
    let elsewhere = salts(other.path());
    assert!(before.iter().all(|salt| !elsewhere.contains(salt)), "of another database they are others");
}

#[test]
fn who_is_not_there_cannot_be_told_from_who_is() {
    let fixture = guarded(|_| {});
    let challenge = |user: &str| {
        let mut client = connect(&fixture);
        let mechanisms = client.ask(user);
        client.send(&initial("SCRAM-SHA-256", b"n,,n=,r=abc"));
        let body = client.expect(b'R');
        let text = String::from_utf8(body[4..].to_vec()).expect("text");
        let salt = text.split(',').nth(1).expect("a salt").to_owned();
        (mechanisms, salt, text.split(',').nth(2).expect("iterations").to_owned())
    };
    let (alice, nobody, again, other) =
        (challenge("alice"), challenge("nobody"), challenge("nobody"), challenge("noone"));
    assert_eq!((&alice.0, &alice.2), (&nobody.0, &nobody.2));
    assert_eq!(alice.1.len(), nobody.1.len());
    assert_eq!(nobody.1, again.1, "the same salt every time");
    assert_ne!(nobody.1, other.1);
}

#[test]
fn clients_are_killed_at_every_state() {
    let fixture = guarded(|_| {});
    let mut scram = ScramSha256::new(PASSWORD, ChannelBinding::unsupported());
    for round in 0..40 {
        for stage in 0..6 {
            let mut client = connect(&fixture);
            if stage == 0 {
                continue;
            }
            let start = startup("alice");
            client.send(&start[..if stage == 1 { start.len() / 2 } else { start.len() }]);
            if stage < 3 {
                continue;
            }
            client.expect(b'R');
            scram = ScramSha256::new(PASSWORD, ChannelBinding::unsupported());
            let first = initial("SCRAM-SHA-256", scram.message());
            client.send(&first[..if stage == 3 { 1 + round % (first.len() - 1) } else { first.len() }]);
            if stage < 4 {
                continue;
            }
            let body = client.expect(b'R');
            scram.update(&body[4..]).expect("a challenge");
            let last = frame(b'p', scram.message());
            client.send(&last[..if stage == 4 { 1 + round % (last.len() - 1) } else { last.len() }]);
            // At the last stage it is gone when it has come in.
        }
    }
    drop(scram);
    is_well(&fixture);
    let start = Instant::now();
    while fixture.server.sessions() > 0 {
        assert!(start.elapsed() < PATIENCE, "sessions of the gone end");
        std::thread::yield_now();
    }
}

#[test]
fn frames_that_lie_are_refused() {
    let fixture = guarded(|_| {});
    let lies: Vec<Vec<u8>> = vec![
        frame(b'Q', b"select 1\0"),
        frame(b'X', b""),
        b"p\xff\xff\xff\xff".to_vec(),
        b"p\0\0\0\x03".to_vec(),
        b"p\x7f\xff\xff\xff".to_vec(),
        b"p\0\0\x04\x01".to_vec(),
        frame(b'p', b""),
        frame(b'p', b"SCRAM-SHA-256"),
        frame(b'p', b"SCRAM-SHA-256\0"),
        frame(b'p', b"SCRAM-SHA-256\0\0\0\0\x09n,,n=,r="),
        frame(b'p', b"SCRAM-SHA-256\0\0\0\0\x01n,,n=,r=abc"),
        initial("SCRAM-SHA-1", b"n,,n=,r=abc"),
        initial("SCRAM-SHA-256-PLUS", b"p=tls-server-end-point,,n=,r=abc"),
        initial("SCRAM-SHA-256", b""),
        initial("SCRAM-SHA-256", b"\xff\xfe"),
        initial("SCRAM-SHA-256", b"n,,n=,r="),
        initial("SCRAM-SHA-256", &[b'n'; 900]),
        frame(b'p', b"correct horse\0"),
    ];
    for lie in lies {
        let mut client = connect(&fixture);
        client.ask("alice");
        client.send(&lie);
        let (sqlstate, message) = client.refusal();
        assert_eq!(sqlstate, "08P01", "{lie:?}: {message}");
    }
    // In place of the proof.
    for lie in [frame(b'p', b""), frame(b'p', b"c=biws,r=abc"), frame(b'p', &[b'a'; 800]), frame(b'P', b"\0\0\0\0")] {
        let mut client = connect(&fixture);
        client.ask("alice");
        client.send(&initial("SCRAM-SHA-256", b"n,,n=,r=abc"));
        client.expect(b'R');
        client.send(&lie);
        assert_eq!(client.refusal().0, "08P01", "{lie:?}");
    }
    is_well(&fixture);
}

#[test]
fn who_says_nothing_is_dropped_in_time() {
    let fixture = guarded(|options| options.authentication_timeout = Duration::from_millis(300));
    let mut silent = connect(&fixture);
    let mut half = connect(&fixture);
    half.ask("alice");
    assert_eq!(silent.next(), None);
    assert_eq!(half.next(), None);
}

/// A byte now and then is no more than silence: before the first packet is whole, within a handshake, and in place of the password.
#[test]
fn who_says_a_byte_now_and_then_is_dropped_in_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = certificate(directory.path());
    let fixture = guarded(|options| {
        options.tls = Some(files.clone());
        options.authentication_timeout = Duration::from_millis(300);
    });
    let at_start = connect(&fixture);
    let mut in_handshake = connect(&fixture);
    in_handshake.send(&encoded(SslRequest::new()));
    in_handshake.stream.read_exact(&mut [0]).expect("S");
    let mut at_password = connect(&fixture);
    at_password.ask("alice");
    let hello = [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], &[7; 64]].concat();
    let says = [startup("alice"), hello, frame(b'p', &[b'a'; 64])];
    std::thread::scope(|scope| {
        for (client, bytes) in [at_start, in_handshake, at_password].into_iter().zip(&says) {
            scope.spawn(move || drip(client.stream, bytes));
        }
    });
    is_well(&fixture);
}

/// Says a byte each 30 ms until the server has closed; it has to do so before all is said.
fn drip(mut socket: TcpStream, bytes: &[u8]) {
    socket.set_read_timeout(Some(Duration::from_millis(30))).expect("a timeout");
    let is_closed = bytes.iter().any(|&byte| {
        let heard = socket.write_all(&[byte]).and_then(|()| socket.read_to_end(&mut Vec::new()));
        !matches!(heard, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    });
    assert!(is_closed, "after {} bytes", bytes.len());
}

#[test]
fn rules_say_who_comes_in() {
    let fixture = Fixture::new(|options| {
        options.rules = rules(
            "[[rule]]\ntype='host'\ndatabase='all'\nuser='eve'\naddress='all'\nmethod='reject'\n\
             [[rule]]\ntype='host'\ndatabase='test'\nuser=['tester', '+staff']\naddress='127.0.0.1'\nmethod='trust'\n",
        );
    });
    let mut session = fixture.database.session().expect("a session");
    for sql in ["create role tester login superuser", "create role staff", "create role sue login in role staff"] {
        session.run(sql).expect(sql);
    }
    let refused = |user: &str| {
        let mut client = connect(&fixture);
        client.send(&startup(user));
        client.refusal()
    };
    let where_from = |user: &str| format!("for host \"127.0.0.1\", user \"{user}\", database \"test\", no encryption");
    assert_eq!(refused("eve"), ("28000".into(), format!("pg_hba.conf rejects connection {}", where_from("eve"))));
    assert_eq!(refused("joe"), ("28000".into(), format!("no pg_hba.conf entry {}", where_from("joe"))));
    for user in ["tester", "sue"] {
        let mut client = connect(&fixture);
        client.send(&startup(user));
        assert_eq!(client.expect(b'R'), 0_u32.to_be_bytes(), "{user}");
    }
    session.run("drop role sue").expect("nothing is hers");
    assert_eq!(refused("sue").0, "28000");
}

#[test]
fn trust_lets_in_who_is_there_once_there_are_roles() {
    let fixture = Fixture::new(|_| {});
    let come = |user: &str| {
        let mut client = connect(&fixture);
        client.send(&startup(user));
        client
    };
    come("anybody").expect(b'R');
    fixture.database.session().expect("a session").run("create role carl login").expect("the first role");
    come("carl").expect(b'R');
    come("freshet").expect(b'R');
    let refused = come("anybody").refusal();
    assert_eq!(refused, ("28000".into(), "role \"anybody\" does not exist".into()));
}

#[test]
fn the_last_places_are_the_superusers() {
    let fixture = guarded(|options| {
        options.connections_max = 3;
        options.connections_reserved = 1;
    });
    let made = "create role boss login superuser password 'correct horse'";
    fixture.database.session().expect("a session").run(made).expect(made);
    let come = |user: &str| {
        let mut raw = connect(&fixture);
        raw.plainly(user, PASSWORD).map(|()| raw)
    };
    let _places = [come("alice").expect("the first"), come("alice").expect("the second")];
    let (state, message) = come("alice").err().expect("refused");
    assert_eq!(state, "53300");
    assert_eq!(message, "remaining connection slots are reserved for non-replication superuser connections");
    let mut boss = come("boss").expect("the last place");
    assert_eq!(boss.query("select 1").expect("it is served"), "1");
    assert_eq!(come("boss").err().expect("refused").1, "sorry, too many clients already");
}

// ---- TLS

/// A certificate for localhost, in files as the server reads them.
fn certificate(directory: &Path) -> TlsFiles {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let files = TlsFiles { certificate: directory.join("server.crt"), key: directory.join("server.key") };
    std::fs::write(&files.certificate, made.cert.pem()).expect("a file");
    let _ = std::fs::remove_file(&files.key);
    std::fs::write(&files.key, made.signing_key.serialize_pem()).expect("a file");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o600)).expect("its own file");
    files
}

type Tls = Raw<StreamOwned<ClientConnection, TcpStream>>;

/// A client that trusts this certificate and no other.
fn encrypted(socket: TcpStream, files: &TlsFiles, protocol: Option<&[u8]>) -> std::io::Result<Tls> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&files.certificate).expect("a certificate")).expect("a root");
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocol.into_iter().map(<[u8]>::to_vec).collect();
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
    let mut stream = StreamOwned::new(connection, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(Raw { stream, input: Vec::new() })
}

fn after_request(fixture: &Fixture, files: &TlsFiles) -> std::io::Result<Tls> {
    let mut plain = connect(fixture);
    plain.send(&encoded(SslRequest::new()));
    let mut answer = [0];
    plain.stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"S");
    encrypted(plain.stream, files, None)
}

fn bound(tls: &Tls) -> ChannelBinding {
    let shown = tls.stream.conn.peer_certificates().expect("a certificate")[0].clone();
    ChannelBinding::tls_server_end_point(Sha256::digest(&shown).to_vec())
}

struct Encrypted {
    fixture: Fixture,
    files: TlsFiles,
    directory: tempfile::TempDir,
}

fn with_tls() -> Encrypted {
    let directory = tempfile::tempdir().expect("a directory");
    let files = certificate(directory.path());
    let fixture = guarded(|options| options.tls = Some(files.clone()));
    Encrypted { fixture, files, directory }
}

#[test]
fn a_session_through_tls_is_bound_to_its_certificate() {
    let Encrypted { fixture, files, directory: _directory } = with_tls();
    let mut tls = after_request(&fixture, &files).expect("TLS");
    let binding = bound(&tls);
    tls.log_in("alice", PASSWORD, "SCRAM-SHA-256-PLUS", binding).expect("alice comes in");
    assert_eq!(tls.query("select 42"), Ok("42".to_owned()));
    // Much in both directions: records that the socket has no room for are not lost.
    let long = "x".repeat(300_000);
    for _ in 0..5 {
        assert_eq!(tls.query(&format!("select '{long}'")).map(|cell| cell.len()), Ok(long.len()));
    }
    let other = ChannelBinding::tls_server_end_point(vec![7; 32]);
    let mut tls = after_request(&fixture, &files).expect("TLS");
    assert_eq!(state(tls.log_in("alice", PASSWORD, "SCRAM-SHA-256-PLUS", other)), "28000");
    let mut tls = after_request(&fixture, &files).expect("TLS");
    assert_eq!(tls.ask("alice"), ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"]);
    // Who could bind, and was told by somebody that we cannot.
    let mut tls = after_request(&fixture, &files).expect("TLS");
    let cut = tls.log_in("alice", PASSWORD, "SCRAM-SHA-256", ChannelBinding::unrequested());
    assert_eq!(cut.expect_err("refused").1, "SCRAM channel binding negotiation error");
    // In clear it goes on too: the rule says `host`.
    is_well(&fixture);
}

#[test]
fn tls_may_begin_at_once_where_it_says_what_for() {
    let Encrypted { fixture, files, directory: _directory } = with_tls();
    let mut tls = encrypted(connect(&fixture).stream, &files, Some(b"postgresql")).expect("TLS");
    tls.plainly("alice", PASSWORD).expect("alice comes in");
    assert_eq!(tls.query("select 1"), Ok("1".to_owned()));
    for protocol in [None, Some(&b"http/1.1"[..])] {
        let refused = encrypted(connect(&fixture).stream, &files, protocol);
        if let Ok(mut tls) = refused {
            tls.send(&startup("alice"));
            assert_eq!(tls.next(), None, "{protocol:?}");
        }
    }
    is_well(&fixture);
}

#[test]
fn garbage_in_place_of_tls_ends_its_connection_only() {
    let Encrypted { fixture, directory: _directory, .. } = with_tls();
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], &[0xff; 4096], hello, &[0x16; 512], b"\x15\x03\x03\0\x02\x02\0"]
    {
        let mut client = connect(&fixture);
        client.send(&encoded(SslRequest::new()));
        let mut answer = [0];
        client.stream.read_exact(&mut answer).expect("S");
        client.send(garbage);
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        // An alert of TLS, or nothing: never an answer of ours.
        let mut rest = Vec::new();
        let _ = client.stream.read_to_end(&mut rest);
        assert!(rest.is_empty() || rest[0] == 0x15, "{garbage:?}: {rest:?}");
        // The same at once.
        let mut client = connect(&fixture);
        client.send(garbage);
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        let _ = client.stream.read_to_end(&mut rest);
    }
    is_well(&fixture);
}

#[test]
fn what_came_in_clear_is_not_taken_for_encrypted() {
    let Encrypted { fixture, directory: _directory, .. } = with_tls();
    let mut client = connect(&fixture);
    client.send(&[&encoded(SslRequest::new())[..], &startup("alice")].concat());
    let (sqlstate, message) = client.refusal();
    assert_eq!((sqlstate.as_str(), message.as_str()), ("08P01", "received unencrypted data after SSL request"));
}

#[test]
fn another_certificate_is_taken_up_and_a_broken_one_is_not() {
    let Encrypted { fixture, files, directory } = with_tls();
    let mut old = after_request(&fixture, &files).expect("TLS");
    old.plainly("alice", PASSWORD).expect("alice comes in");
    certificate(directory.path());
    fixture.server.certificate().reload();
    let mut new = after_request(&fixture, &files).expect("the new certificate is the one that is shown");
    let binding = bound(&new);
    new.log_in("alice", PASSWORD, "SCRAM-SHA-256-PLUS", binding).expect("and bound");
    assert_eq!(old.query("select 1"), Ok("1".to_owned()), "who is there stays");
    let good = std::fs::read(&files.certificate).expect("the file");
    std::fs::write(&files.certificate, "nothing of the kind").expect("the file");
    fixture.server.certificate().reload();
    std::fs::write(&files.certificate, &good).expect("the file");
    after_request(&fixture, &files)
        .expect("what was in force stays")
        .plainly("alice", PASSWORD)
        .expect("alice comes in");
    // Without being told: the files are looked at.
    certificate(directory.path());
    let start = Instant::now();
    while after_request(&fixture, &files).is_err() {
        assert!(start.elapsed() < PATIENCE, "the new certificate is found");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_key_that_others_can_read_is_none() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    let files = certificate(directory.path());
    std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o644)).expect("its own file");
    let refused = freshet_server::tls::Tls::load(files).err().expect("refused").to_string();
    assert!(refused.contains("group or world access"), "{refused}");
}

/// `freshet top`, as libpq would: encrypted where it is asked for, and with a password that no list of processes shows.
#[test]
fn top_watches_through_tls() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = certificate(directory.path());
    let fixture = guarded(|options| {
        options.tls = Some(files.clone());
        options.rules = rules(&EVERYBODY_BY_PASSWORD.replace("'host'", "'hostssl'"));
    });
    let port = fixture.server.local_addr().port();
    let to = format!("host=localhost hostaddr=127.0.0.1 port={port} user=alice");
    let look = |to: &str, arguments: &[&str], password: Option<&str>| {
        let mut command = crate::command::freshet(&["top", "--once", "--interval", "0.1", "--to", to]);
        for name in ["PGSSLMODE", "PGSSLROOTCERT", "PGPASSWORD"] {
            command.env_remove(name);
        }
        command.args(arguments).envs(password.map(|password| ("PGPASSWORD", password)));
        let output = command.output().expect("the binary runs");
        let told = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        (output.status.code(), told)
    };
    let password = Some("correct horse");
    let root = files.certificate.to_str().expect("a readable path");
    let verified = ["--sslmode", "verify-full", "--sslrootcert", root];
    for (to, arguments) in [(to.clone(), &[][..]), (format!("{to} sslmode=require"), &[]), (to.clone(), &verified)] {
        let (code, told) = look(&to, arguments, password);
        assert!(code == Some(0) && told.contains("commits per second"), "{to} {arguments:?}: {told}");
    }
    let (code, told) = look(&format!("{to} sslmode=disable"), &[], password);
    assert!(code == Some(1) && told.contains("no encryption"), "{told}");
    assert_eq!(look(&to, &[], Some("wrong")).0, Some(1));
    assert_eq!(look(&to, &[], None).0, Some(1));
    let other = tempfile::tempdir().expect("a directory");
    let stranger = certificate(other.path()).certificate;
    let stranger = ["--sslmode", "verify-ca", "--sslrootcert", stranger.to_str().expect("a readable path")];
    assert_eq!(look(&to, &stranger, password).0, Some(1));
    let elsewhere = format!("host=127.0.0.1 port={port} user=alice");
    assert_eq!(look(&elsewhere, &verified, password).0, Some(1), "the certificate is for localhost");
}
