//! Links in TLS: whom a ship takes for its server, and whom the server's rules let in.

use crate::client::*;
use crate::{Fixture, loopback};
use freshet_server::admission::{Rule, Rules};
use freshet_server::link::frame::Welcome;
use freshet_server::ship::multiplexer::{self, Ship};
use freshet_server::ship::tls::{Security, SslMode};
use freshet_server::tls::TlsFiles;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const MODES: [SslMode; 4] = [SslMode::Prefer, SslMode::Require, SslMode::VerifyCa, SslMode::VerifyFull];

fn only_encrypted() -> Rules {
    #[derive(serde::Deserialize)]
    struct File {
        rule: Vec<Rule>,
    }
    let text = "[[rule]]\ntype='hostssl'\ndatabase='all'\nuser='all'\naddress='all'\nmethod='trust'\n";
    Rules(toml::from_str::<File>(text).expect("rules").rule)
}

/// A certificate as the server reads it.
fn files(directory: &Path, chain: &str, key: &KeyPair) -> TlsFiles {
    let files = TlsFiles { certificate: directory.join("server.crt"), key: directory.join("server.key") };
    std::fs::write(&files.certificate, chain).expect("a file");
    std::fs::write(&files.key, key.serialize_pem()).expect("a file");
    std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o600)).expect("its own file");
    files
}

/// A certificate for localhost that signs itself.
fn own(directory: &Path, change: impl FnOnce(&mut CertificateParams)) -> TlsFiles {
    let key = KeyPair::generate().expect("a key");
    let mut asked = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    change(&mut asked);
    files(directory, &asked.self_signed(&key).expect("a certificate").pem(), &key)
}

/// A certificate for localhost, and the file of the authority that signed it.
fn signed(directory: &Path) -> (TlsFiles, PathBuf) {
    let authority_key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::new(Vec::<String>::new()).expect("no name");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = directory.join("root.crt");
    std::fs::write(&root, authority.self_signed(&authority_key).expect("a certificate").pem()).expect("a file");
    let key = KeyPair::generate().expect("a key");
    let asked = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let made = asked.signed_by(&key, &Issuer::new(authority, authority_key)).expect("a certificate");
    (files(directory, &made.pem(), &key), root)
}

fn serve(files: &TlsFiles) -> Fixture {
    Fixture::new(|options| {
        options.tls = Some(files.clone());
        options.rules = only_encrypted();
    })
}

/// A ship to `host`, at the port of the fixture's server.
fn ship(fixture: &Fixture, host: &str, mode: SslMode, roots: Option<&Path>) -> Ship {
    let to = format!("{host}:{}", fixture.server.server.local_addr().port());
    let security = Security { mode, roots: roots.map(Path::to_owned) };
    multiplexer::start(multiplexer::Options { security, ..multiplexer::Options::new(loopback(), to) }).expect("a ship")
}

/// What a client is told at the start.
fn told(ship: &Ship) -> Vec<Reply> {
    let mut client = Client::open(ship.local_addr());
    client.start(&[("user", "u")]);
    client.until_ready()
}

fn refusal(ship: &Ship) -> (String, String) {
    match told(ship).first() {
        Some(Reply::Error(_, state, message)) => (state.clone(), message.clone()),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_rule_that_asks_for_tls_lets_a_link_in_tls_in_and_no_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let (files, root) = signed(directory.path());
    let fixture = serve(&files);
    assert_eq!(refusal(&ship(&fixture, "localhost", SslMode::Disable, None)).0, "28000");
    for mode in MODES {
        let ship = ship(&fixture, "localhost", mode, Some(&root));
        let mut client = Client::connect(ship.local_addr());
        assert_eq!(client.value("select 41 + 1"), "42", "{mode:?}");
        // More than a window each way, from several clients at once.
        std::thread::scope(|scope| {
            for number in 0..4 {
                let at = ship.local_addr();
                scope.spawn(move || {
                    let mut client = Client::connect(at);
                    let long = "x".repeat(300_000 + number);
                    assert_eq!(client.value(&format!("select '{long}'")), long);
                    assert_eq!(client.value(&format!("select length('{long}')")), long.len().to_string());
                });
            }
        });
    }
}

#[test]
fn a_server_that_shows_a_root_certificate_itself_is_trusted() {
    let directory = tempfile::tempdir().expect("a directory");
    // As `openssl req -x509` makes them: an authority of its own.
    let files = own(directory.path(), |asked| asked.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let fixture = serve(&files);
    for mode in MODES {
        let ship = ship(&fixture, "localhost", mode, Some(&files.certificate));
        assert_eq!(Client::connect(ship.local_addr()).value("select 1"), "1", "{mode:?}");
    }
}

#[test]
fn a_name_that_is_not_the_certificates_is_refused_where_names_count() {
    let directory = tempfile::tempdir().expect("a directory");
    let (files, root) = signed(directory.path());
    let fixture = serve(&files);
    let (state, message) = refusal(&ship(&fixture, "127.0.0.1", SslMode::VerifyFull, Some(&root)));
    assert_eq!(state, "08006");
    assert!(message.contains("not valid for name"), "{message}");
    let ship = ship(&fixture, "127.0.0.1", SslMode::VerifyCa, Some(&root));
    assert_eq!(Client::connect(ship.local_addr()).value("select 1"), "1");
}

#[test]
fn another_authoritys_certificate_is_refused_where_one_is_named() {
    let (directory, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("another"));
    let (files, _) = signed(directory.path());
    let (_, other_root) = signed(other.path());
    let fixture = serve(&files);
    for mode in [SslMode::Require, SslMode::VerifyCa, SslMode::VerifyFull] {
        let (state, message) = refusal(&ship(&fixture, "localhost", mode, Some(&other_root)));
        assert_eq!(state, "08006", "{mode:?}");
        assert!(message.contains("certificate"), "{message}");
    }
    // What is not looked at: only those who listen on the way are kept out.
    assert_eq!(
        Client::connect(ship(&fixture, "localhost", SslMode::Require, None).local_addr()).value("select 1"),
        "1"
    );
}

#[test]
fn an_expired_certificate_is_refused_though_it_is_the_root() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = own(directory.path(), |asked| {
        asked.not_before = rcgen::date_time_ymd(2001, 1, 1);
        asked.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    let fixture = serve(&files);
    let (state, message) = refusal(&ship(&fixture, "localhost", SslMode::VerifyCa, Some(&files.certificate)));
    assert_eq!(state, "08006");
    assert!(message.contains("xpired"), "{message}");
}

#[test]
fn a_server_without_tls_is_asked_in_clear_only_where_that_will_do() {
    let fixture = Fixture::new(|_| {});
    for mode in [SslMode::Disable, SslMode::Prefer] {
        let ship = ship(&fixture, "localhost", mode, None);
        assert_eq!(Client::connect(ship.local_addr()).value("select 1"), "1", "{mode:?}");
    }
    let (state, message) = refusal(&ship(&fixture, "localhost", SslMode::Require, None));
    assert_eq!(state, "08006");
    assert!(message.contains("does not support TLS"), "{message}");
}

#[test]
fn a_ship_does_not_start_without_the_certificates_it_verifies_by() {
    let start = |mode, roots: Option<&str>| {
        let security = Security { mode, roots: roots.map(PathBuf::from) };
        let options = multiplexer::Options { security, ..multiplexer::Options::new(loopback(), "localhost:1") };
        multiplexer::start(options).err().expect("refused")
    };
    assert!(start(SslMode::VerifyFull, None).contains("--sslrootcert"));
    let missing = start(SslMode::VerifyCa, Some("/nowhere/root.crt"));
    assert!(missing.contains("/nowhere/root.crt"), "{missing}");
    assert!(start(SslMode::Require, Some("/dev/null")).contains("no certificate in it"));
}

/// Whoever answers in place of a server ends its own link at most; in clear nothing is said after TLS was asked for.
#[test]
fn garbage_in_place_of_tls_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let to = format!("localhost:{}", listener.local_addr().expect("bound").port());
    let welcome = Welcome { version: 1, sessions_max: 4, workers: 1 }.bytes();
    let lies: [&[u8]; 8] = [
        b"",
        b"?",
        b"E",
        b"R\0\0\0\x08\0\0\0\0",
        b"S",
        b"SS garbage that no handshake begins with, and enough of it for a record's header",
        b"S\x16\x03\x03\xff\xff\x02\0\0\0",
        &[b"S", &welcome[..]].concat(),
    ];
    for mode in [SslMode::Prefer, SslMode::Require] {
        for lie in lies {
            let security = Security { mode, roots: None };
            let options = multiplexer::Options { security, ..multiplexer::Options::new(loopback(), to.clone()) };
            let ship = multiplexer::start(options).expect("a ship");
            let mut client = Client::open(ship.local_addr());
            client.start(&[("user", "u")]);
            let (mut socket, _) = listener.accept().expect("a link");
            let mut asked = [0; 8];
            socket.read_exact(&mut asked).expect("a request");
            assert_eq!(asked, *b"\0\0\0\x08\x04\xd2\x16\x2f", "for TLS");
            socket.write_all(lie).expect("it reads");
            // Where the first bytes were enough, the link is gone by now.
            let _ = socket.shutdown(Shutdown::Write);
            assert_eq!(sqlstate(&client.until_ready()), "08006", "{lie:?}");
            let mut said = Vec::new();
            // It may be reset.
            let _ = socket.read_to_end(&mut said);
            assert!(!said.windows(4).any(|bytes| bytes == b"FSHP"), "a greeting in clear after {lie:?}");
        }
    }
}
