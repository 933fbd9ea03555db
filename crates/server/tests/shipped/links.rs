//! How many links does a ship make?

use crate::loopback;
use freshet_server::link::frame::{self, Frame, GREETING_BYTES, Welcome};
use freshet_server::ship::links::SESSIONS_USUAL_MAX;
use freshet_server::ship::multiplexer::{self, Ship};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A server that counts its links and the sessions on them, and says nothing to these.
#[derive(Default)]
struct Counted {
    links: AtomicUsize,
    sessions: AtomicUsize,
}

impl Counted {
    fn start() -> (Arc<Counted>, SocketAddr) {
        let counted = Arc::new(Counted::default());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let counts = counted.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let (socket, counts) = (socket.expect("a link"), counts.clone());
                std::thread::spawn(move || counts.serve(socket));
            }
        });
        (counted, address)
    }

    fn serve(&self, mut socket: TcpStream) {
        socket.read_exact(&mut [0; GREETING_BYTES]).expect("a greeting");
        self.links.fetch_add(1, Ordering::SeqCst);
        socket.write_all(&Welcome { version: 1, sessions_max: 1024, workers: 3 }.bytes()).expect("it reads");
        let (mut input, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let mut taken = 0;
            while let Some((frame, _, length)) = frame::next(&input[taken..]).expect("frames") {
                match frame {
                    Frame::Open => drop(self.sessions.fetch_add(1, Ordering::SeqCst)),
                    Frame::Group(number) => {
                        let mut turn = Vec::new();
                        Frame::Turn(number).write(0, &mut turn);
                        socket.write_all(&turn).expect("it reads");
                    }
                    _ => {}
                }
                taken += length;
            }
            input.drain(..taken);
            match socket.read(&mut piece) {
                Ok(0) | Err(_) => return,
                Ok(count) => input.extend_from_slice(&piece[..count]),
            }
        }
    }

    /// The links that there are with so many sessions.
    fn links_at(&self, sessions: usize) -> usize {
        let end = Instant::now() + Duration::from_secs(20);
        while self.sessions.load(Ordering::SeqCst) < sessions {
            assert!(Instant::now() < end, "{} sessions", self.sessions.load(Ordering::SeqCst));
            std::thread::sleep(Duration::from_millis(1));
        }
        self.links.load(Ordering::SeqCst)
    }
}

fn come(ship: &Ship, clients: &mut Vec<TcpStream>, count: usize) {
    clients.extend((0..count).map(|_| TcpStream::connect(ship.local_addr()).expect("the ship listens")));
}

#[test]
fn another_link_is_made_when_those_there_have_many_sessions() {
    let (counted, address) = Counted::start();
    let ship = multiplexer::start(multiplexer::Options::new(loopback(), address.to_string())).expect("a ship");
    let mut clients = Vec::new();
    come(&ship, &mut clients, SESSIONS_USUAL_MAX);
    assert_eq!(counted.links_at(SESSIONS_USUAL_MAX), 1);
    come(&ship, &mut clients, 1);
    assert_eq!(counted.links_at(SESSIONS_USUAL_MAX + 1), 2);
}

#[test]
fn as_many_links_are_made_as_are_asked_for() {
    let (counted, address) = Counted::start();
    let options = multiplexer::Options { links: Some(2), ..multiplexer::Options::new(loopback(), address.to_string()) };
    let ship = multiplexer::start(options).expect("a ship");
    let mut clients = Vec::new();
    come(&ship, &mut clients, 1);
    assert_eq!(counted.links_at(1), 1);
    come(&ship, &mut clients, 2);
    assert_eq!(counted.links_at(3), 2);
}
