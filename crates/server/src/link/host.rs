//! Where do a link's sessions live? On the worker that has the link; each is let in by the reception, as if it had come by itself.
//!
//! 1. A link costs nothing but its own buffers until a session on it is let in: who may come in, and how often, is the reception's to say,
//!    which takes the link's peer for the client's address.

use super::driver::{Ended, Heartbeat, drive};
use super::frame::{LINK_VERSION, Welcome};
use super::mux::{End, Mux, Pipe};
use crate::admission::Origin;
use bytes::BytesMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};

/// Links of one server: more are refused.
pub const LINKS_MAX: usize = 64;
/// Sessions beyond the server's own limit that a link may have: so that the server can tell them that they are too many.
const REFUSED_MAX: usize = 64;
/// Sessions of links that have not been looked at, as the kernel holds connections.
const OPENED_MAX: usize = 1024;

/// A session that came on a link and was not let in yet.
pub struct Opened {
    pub pipe: Pipe,
    /// The link's, which is taken for the client's.
    pub origin: Origin,
    /// Where the link lives.
    pub worker: usize,
    pub is_encrypted: bool,
}

/// What links have to know of the server.
#[derive(Clone)]
pub struct Host {
    pub opened: mpsc::Sender<Opened>,
    pub stopped: watch::Receiver<bool>,
    pub connections_max: usize,
    pub workers: usize,
}

impl Host {
    /// The reception takes the sessions from the receiver.
    pub fn new(
        stopped: watch::Receiver<bool>,
        connections_max: usize,
        workers: usize,
    ) -> (Host, mpsc::Receiver<Opened>) {
        let (opened, receiver) = mpsc::channel(OPENED_MAX);
        (Host { opened, stopped, connections_max, workers }, receiver)
    }

    fn welcome(&self) -> Welcome {
        let sessions_max = (self.connections_max + REFUSED_MAX).min(1 << 16) as u32;
        Welcome { version: LINK_VERSION, sessions_max, workers: self.workers as u32 }
    }

    /// Serves one link to its end.
    pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut socket: S,
        input: BytesMut,
        origin: Origin,
        worker: usize,
        is_encrypted: bool,
    ) {
        let welcome = self.welcome();
        let greeted = async {
            socket.write_all(&welcome.bytes()).await?;
            socket.flush().await
        };
        if let Err(error) = greeted.await {
            return tracing::info!("a link from {origin} was lost: {error}");
        }
        tracing::info!("a link from {origin}");
        let mux = Mux::new(End::Server, welcome.sessions_max as usize);
        let opened = |pipe| {
            // Where the reception has too many before it, or is gone, the session ends.
            let _ = self.opened.try_send(Opened { pipe, origin, worker, is_encrypted });
        };
        let heartbeat = Heartbeat::usual(false);
        match drive(mux, socket, input, heartbeat, opened, self.stopped.clone()).await {
            ended @ (Ended::Closed | Ended::Stopped) => tracing::info!("the link from {origin} ended: {ended}"),
            ended => tracing::warn!("the link from {origin} ended: {ended}"),
        }
    }
}

/// A place among a server's links, given back when dropped.
pub struct LinkPlace {
    all: Arc<AtomicUsize>,
    of_worker: Arc<AtomicUsize>,
}

impl LinkPlace {
    pub fn take(all: &Arc<AtomicUsize>, of_worker: &Arc<AtomicUsize>) -> Option<LinkPlace> {
        if all.fetch_add(1, Ordering::Relaxed) >= LINKS_MAX {
            all.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        of_worker.fetch_add(1, Ordering::Relaxed);
        Some(LinkPlace { all: all.clone(), of_worker: of_worker.clone() })
    }
}

impl Drop for LinkPlace {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
        self.of_worker.fetch_sub(1, Ordering::Relaxed);
    }
}
