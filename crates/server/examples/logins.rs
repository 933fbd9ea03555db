//! How many clients come in a second? Connections one after the other on several threads, each with a SCRAM exchange of its own.
//!
//! `cargo run --release --example logins -- PORT USER PASSWORD [THREADS] [SECONDS]`
//!
//! The client keeps the keys that follow from salt and password, as drivers with a pool may: what is measured is the server's part.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::io::{Error, Read, Result, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    mac.update(text);
    mac.finalize().into_bytes().into()
}

/// PBKDF2: made once for a salt.
fn salted(password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32] {
    let mut last = hmac(password, &[salt, &1_u32.to_be_bytes()].concat());
    let mut all = last;
    for _ in 1..iterations {
        last = hmac(password, &last);
        all.iter_mut().zip(last).for_each(|(byte, other)| *byte ^= other);
    }
    all
}

struct Client {
    port: u16,
    user: String,
    password: String,
    /// Salt, client key, stored key.
    keys: Option<(String, [u8; 32], [u8; 32])>,
}

fn frame(socket: &mut TcpStream) -> Result<(u8, Vec<u8>)> {
    let mut header = [0; 5];
    socket.read_exact(&mut header)?;
    let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
    let mut body = vec![0; length - 4];
    socket.read_exact(&mut body)?;
    match header[0] {
        b'E' => Err(Error::other(String::from_utf8_lossy(&body).into_owned())),
        kind => Ok((kind, body)),
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind], &(body.len() as u32 + 4).to_be_bytes()[..], body].concat()
}

impl Client {
    fn log_in(&mut self) -> Result<()> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port))?;
        socket.set_nodelay(true)?;
        let body = [&[0, 3, 0, 0][..], b"user\0", self.user.as_bytes(), b"\0database\0test\0\0"].concat();
        socket.write_all(&[&(body.len() as u32 + 4).to_be_bytes()[..], &body].concat())?;
        frame(&mut socket)?;
        let bare = "n=,r=abcdefghijklmnopqrstuvwx";
        let first = format!("n,,{bare}");
        let body = [b"SCRAM-SHA-256\0", &(first.len() as u32).to_be_bytes()[..], first.as_bytes()].concat();
        socket.write_all(&message(b'p', &body))?;
        let challenge = String::from_utf8(frame(&mut socket)?.1[4..].to_vec()).map_err(Error::other)?;
        let part = |at: usize| challenge.split(',').nth(at).and_then(|part| part.get(2..)).unwrap_or_default();
        let (nonce, salt, iterations) = (part(0), part(1), part(2).parse().map_err(Error::other)?);
        if self.keys.as_ref().is_none_or(|(own, _, _)| own != salt) {
            let raw = STANDARD.decode(salt).map_err(Error::other)?;
            let client = hmac(&salted(self.password.as_bytes(), &raw, iterations), b"Client Key");
            self.keys = Some((salt.to_owned(), client, Sha256::digest(client).into()));
        }
        let (_, client, stored) = self.keys.as_ref().expect("just made");
        let without = format!("c=biws,r={nonce}");
        let mut proof = hmac(stored, format!("{bare},{challenge},{without}").as_bytes());
        proof.iter_mut().zip(client).for_each(|(byte, key)| *byte ^= key);
        socket.write_all(&message(b'p', format!("{without},p={}", STANDARD.encode(proof)).as_bytes()))?;
        while frame(&mut socket)?.0 != b'Z' {}
        socket.write_all(&message(b'X', b""))
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [port, user, password, rest @ ..] = args.as_slice() else {
        eprintln!("usage: logins PORT USER PASSWORD [THREADS] [SECONDS]");
        std::process::exit(2);
    };
    let number = |at: usize, or: u64| rest.get(at).and_then(|n| n.parse().ok()).unwrap_or(or);
    let (threads, seconds) = (number(0, 8), number(1, 5));
    let port = port.parse().expect("a port");
    let start = Instant::now();
    let counts: Vec<u64> = std::thread::scope(|scope| {
        let work = || {
            let mut client = Client { port, user: user.clone(), password: password.clone(), keys: None };
            let mut count = 0;
            while start.elapsed() < Duration::from_secs(seconds) {
                client.log_in().expect("a login");
                count += 1;
            }
            count
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().map(|thread| thread.join().expect("a thread")).collect()
    });
    let all: u64 = counts.iter().sum();
    println!("{all} logins in {seconds} s on {threads} threads: {:.0}/s", all as f64 / start.elapsed().as_secs_f64());
}
