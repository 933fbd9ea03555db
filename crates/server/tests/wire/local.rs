//! Clients of the same machine, through the socket file.

use crate::Fixture;
use crate::client::read_message;
use freshet_server::admission::{Method, Names, Rule, Rules, Transport};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn serve(dir: &Path, rules: Vec<Rule>) -> Fixture {
    Fixture::new(|options| {
        options.socket = Some(dir.to_owned());
        options.rules = Rules(rules);
    })
}

fn local_rule(method: Method) -> Rule {
    let all = || Names::One("all".to_owned());
    Rule { transport: Transport::Local, database: all(), user: all(), address: None, method }
}

fn file(server: &Fixture) -> PathBuf {
    server.server.socket_file().expect("there is one").to_owned()
}

fn connect(file: &Path) -> UnixStream {
    let socket = UnixStream::connect(file).expect("the server listens");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit");
    socket
}

fn startup(socket: &mut UnixStream) {
    let body = b"\0\x03\0\0user\0alice\0database\0freshet\0\0";
    socket.write_all(&(body.len() as u32 + 4).to_be_bytes()).expect("it is taken");
    socket.write_all(body).expect("it is taken");
}

/// The kinds of messages and the last one's body, up to one of this kind.
fn until(socket: &mut UnixStream, last: u8) -> (Vec<u8>, Vec<u8>) {
    let mut kinds = Vec::new();
    loop {
        let (kind, body) = read_message(socket);
        kinds.push(kind);
        if kind == last {
            return (kinds, body);
        }
    }
}

#[test]
fn a_session_through_the_file_is_as_any_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let fixture = serve(dir.path(), Vec::new());
    let file = file(&fixture);
    let name = format!(".s.PGSQL.{}", fixture.server.local_addr().port());
    assert_eq!(file, dir.path().join(name), "where libpq looks for it");
    let mut socket = connect(&file);
    // There is no TLS here: libpq asks for it with sslmode=require only over TCP, others may.
    socket.write_all(b"\0\0\0\x08\x04\xd2\x16\x2f").expect("it is taken");
    let mut answer = [0];
    socket.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"N");
    startup(&mut socket);
    let (kinds, _) = until(&mut socket, b'Z');
    assert_eq!(kinds[0], b'R');
    let ask = |socket: &mut UnixStream, sql: &[u8]| {
        socket.write_all(b"Q").expect("it is taken");
        socket.write_all(&(sql.len() as u32 + 4).to_be_bytes()).expect("it is taken");
        socket.write_all(sql).expect("it is taken");
    };
    ask(&mut socket, b"select repeat('x', 300000)\0");
    assert_eq!(until(&mut socket, b'Z').0, b"TDCZ");
    // As in PostgreSQL it is nowhere, and its port is -1.
    ask(&mut socket, b"select coalesce(client_addr, 'nowhere') || client_port from pg_stat_activity\0");
    let (_, row) = until(&mut socket, b'D');
    assert!(row.ends_with(b"nowhere-1"), "{row:?}");
    until(&mut socket, b'Z');
    assert_eq!(fixture.server.sessions(), 1);
    drop(socket);
    drop(fixture);
    assert!(!file.exists(), "it goes with the server");
}

#[test]
fn rules_for_local_clients_are_theirs_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let fixture = serve(dir.path(), vec![local_rule(Method::Reject)]);
    let mut socket = connect(&file(&fixture));
    startup(&mut socket);
    let (_, error) = until(&mut socket, b'E');
    let error = String::from_utf8_lossy(&error);
    assert!(error.contains("28000") && error.contains("[local]"), "{error}");
    drop(fixture);
    let fixture = serve(dir.path(), vec![local_rule(Method::Scram)]);
    let mut socket = connect(&file(&fixture));
    startup(&mut socket);
    let (_, asked) = until(&mut socket, b'R');
    assert!(asked.starts_with(&10u32.to_be_bytes()), "it has to prove who it is");
}
