//! Which link takes the next client? The one with the fewest of them; another link is made once all have many, up to one for each worker of the
//! server. One link is what a ship's thread can fill with short statements, and two would have groups half as large.

use super::tls::{LinkSocket, Security};
use crate::link::driver::{Ended, Heartbeat, drive};
use crate::link::frame::{self, WELCOME_BYTES, Welcome};
use crate::link::mux::{End, Mux, Pipe};
use ::pgwire::messages::{DecodeContext, Message, ProtocolVersion, response::ErrorResponse};
use bytes::BytesMut;
use freshet_db::SqlError;
use std::cell::{Cell, RefCell};
use std::io;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, watch};

/// How long the server may take to answer.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Clients that come so soon after a failure share it.
const FAILURE_KEPT: Duration = Duration::from_millis(200);
/// Beyond this a server's workers share links.
const LINKS_USUAL_MAX: u32 = 4;
/// With so many sessions on each link one more is made, where nobody says how many there are to be.
pub const SESSIONS_USUAL_MAX: usize = 256;
/// The longest error that a server may answer the greeting with.
const REFUSAL_BYTES_MAX: usize = 8 << 10;

pub struct Links {
    server: String,
    security: Security,
    /// `None`: up to one for each of the server's workers, as it takes.
    asked: Option<usize>,
    heartbeat: Heartbeat,
    up: RefCell<Vec<Mux>>,
    wanted: Cell<usize>,
    /// Held while a link is made; the last failure.
    making: Mutex<Option<(Instant, Refusal)>>,
    stop: watch::Receiver<bool>,
}

/// Why a client gets no session, as it is told.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub sqlstate: String,
    pub message: String,
}

impl Refusal {
    fn unreachable(server: &str, reason: impl std::fmt::Display) -> Refusal {
        Refusal { sqlstate: "08006".to_owned(), message: format!("the server at {server} cannot be reached: {reason}") }
    }
}

impl Links {
    pub fn new(
        server: String,
        security: Security,
        asked: Option<usize>,
        heartbeat: Heartbeat,
        stop: watch::Receiver<bool>,
    ) -> Links {
        let (up, wanted) = (RefCell::default(), Cell::new(asked.unwrap_or(1)));
        Links { server, security, asked, heartbeat, up, wanted, making: Mutex::default(), stop }
    }

    /// A session for one client.
    pub async fn open(&self) -> Result<Pipe, Refusal> {
        if self.wants_another() {
            self.make().await?;
        }
        let fewest = self.up.borrow().iter().min_by_key(|mux| mux.held()).cloned();
        let Some(mux) = fewest else { return Err(Refusal::unreachable(&self.server, "the link was lost")) };
        mux.open().ok_or_else(|| {
            let error = SqlError::new("53300", "sorry, too many clients already");
            Refusal { sqlstate: error.sqlstate.to_owned(), message: error.message }
        })
    }

    /// Links that are there.
    pub fn count(&self) -> usize {
        let mut up = self.up.borrow_mut();
        up.retain(|mux| !mux.is_over());
        up.len()
    }

    fn wants_another(&self) -> bool {
        self.count() < self.wanted.get()
            && (self.asked.is_some() || self.up.borrow().iter().all(|mux| mux.held() >= SESSIONS_USUAL_MAX))
    }

    /// One link more, if it is still missing. Without any, a failure is the client's; with one, the next client tries again.
    async fn make(&self) -> Result<(), Refusal> {
        let mut last = self.making.lock().await;
        if !self.wants_another() {
            return Ok(());
        }
        let known = last.as_ref().filter(|(at, _)| at.elapsed() < FAILURE_KEPT);
        let failed = match known {
            Some((_, refusal)) => refusal.clone(),
            None => match self.connect().await {
                Ok(()) => return Ok(()),
                Err(refusal) => {
                    tracing::warn!("{}", refusal.message);
                    *last = Some((Instant::now(), refusal.clone()));
                    refusal
                }
            },
        };
        if self.count() == 0 { Err(failed) } else { Ok(()) }
    }

    async fn connect(&self) -> Result<(), Refusal> {
        let connected = tokio::time::timeout(CONNECT_LIMIT, self.greet()).await;
        let connected = connected.unwrap_or_else(|_| Err(Refusal::unreachable(&self.server, "it does not answer")));
        let (socket, input, welcome) = connected?;
        let usual = welcome.workers.clamp(1, LINKS_USUAL_MAX) as usize;
        self.wanted.set(self.asked.unwrap_or(usual));
        let mux = Mux::new(End::Ship, welcome.sessions_max as usize);
        self.up.borrow_mut().push(mux.clone());
        let (server, heartbeat, stop) = (self.server.clone(), self.heartbeat, self.stop.clone());
        tokio::task::spawn_local(async move {
            match drive(mux, socket, input, heartbeat, drop, stop).await {
                Ended::Stopped => {}
                ended => tracing::warn!("a link to {server} ended: {ended}"),
            }
        });
        Ok(())
    }

    async fn greet(&self) -> Result<(LinkSocket, BytesMut, Welcome), Refusal> {
        let unreachable = |error: io::Error| Refusal::unreachable(&self.server, error);
        let socket = TcpStream::connect(&self.server).await.map_err(unreachable)?;
        socket.set_nodelay(true).map_err(unreachable)?;
        let mut socket = self.security.secure(socket, &self.server).await.map_err(unreachable)?;
        socket.write_all(&frame::greeting()).await.map_err(unreachable)?;
        socket.flush().await.map_err(unreachable)?;
        let mut input = BytesMut::new();
        loop {
            if input.first() == Some(&b'E') {
                if let Some(refusal) = self.refusal(&input) {
                    return Err(refusal);
                }
            } else if let Some(bytes) = input.first_chunk::<WELCOME_BYTES>() {
                let welcome = Welcome::read(bytes).map_err(|v| Refusal::unreachable(&self.server, v.0))?;
                let rest = input.split_off(WELCOME_BYTES);
                return Ok((socket, rest, welcome));
            }
            match socket.read_buf(&mut input).await.map_err(unreachable)? {
                0 => return Err(Refusal::unreachable(&self.server, "it closed the connection")),
                _ if input.len() > REFUSAL_BYTES_MAX => {
                    return Err(Refusal::unreachable(&self.server, "its answer is not understood"));
                }
                _ => {}
            }
        }
    }

    /// The error that the server answered with, once it is whole: while it recovers, say. A server that does not know links says that it
    /// does not know the protocol.
    fn refusal(&self, input: &BytesMut) -> Option<Refusal> {
        let mut context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
        context.awaiting_frontend_ssl = false;
        context.awaiting_frontend_startup = false;
        let error = match ErrorResponse::decode(&mut input.clone(), &context) {
            Ok(None) => return None,
            Ok(Some(error)) => error,
            Err(error) => return Some(Refusal::unreachable(&self.server, error)),
        };
        let field = |code: u8| error.fields.iter().find(|(c, _)| *c == code).map(|(_, text)| text.clone());
        let (sqlstate, message) = (field(b'C')?, field(b'M').unwrap_or_default());
        Some(match sqlstate.as_str() {
            "0A000" => Refusal::unreachable(&self.server, format_args!("it takes no links ({message})")),
            _ => Refusal { sqlstate, message },
        })
    }
}
