//! Clients of a ship's own host, through its socket file.

use crate::client::read_message;
use crate::{Fixture, loopback};
use freshet_server::ship::multiplexer;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The bodies of messages up to ReadyForQuery, with their kinds.
fn until_ready(socket: &mut UnixStream) -> Vec<(u8, Vec<u8>)> {
    let mut messages = Vec::new();
    loop {
        messages.push(read_message(socket));
        if matches!(messages.last(), Some((b'Z', _))) {
            return messages;
        }
    }
}

#[test]
fn a_session_through_a_ships_socket_file_is_as_any_other() {
    let fixture = Fixture::new(|_| {});
    let directory = tempfile::tempdir().expect("a directory");
    let socket = Some(directory.path().to_owned());
    let to = fixture.server.server.local_addr().to_string();
    let ship = multiplexer::start(multiplexer::Options { socket, ..multiplexer::Options::new(loopback(), to) });
    let ship = ship.expect("a ship");
    let file = ship.socket_file().expect("there is one").to_owned();
    assert_eq!(file, directory.path().join(format!(".s.PGSQL.{}", ship.local_addr().port())), "where libpq looks");

    let mut client = UnixStream::connect(&file).expect("the ship listens");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit");
    let hello = b"\0\x03\0\0user\0alice\0database\0freshet\0\0";
    client.write_all(&(hello.len() as u32 + 4).to_be_bytes()).expect("it is taken");
    client.write_all(hello).expect("it is taken");
    assert_eq!(until_ready(&mut client)[0], (b'R', vec![0; 4]), "let in");
    let query = b"select 6 * 7\0";
    client.write_all(b"Q").expect("it is taken");
    client.write_all(&(query.len() as u32 + 4).to_be_bytes()).expect("it is taken");
    client.write_all(query).expect("it is taken");
    let row = until_ready(&mut client).into_iter().find(|(kind, _)| *kind == b'D').expect("a row");
    assert_eq!(row.1, b"\0\x01\0\0\0\x0242");

    ship.stop();
    assert_eq!(client.read(&mut [0]).expect("an end"), 0);
    assert!(!file.exists(), "the file goes with the ship");
}
