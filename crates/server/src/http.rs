//! What is told over HTTP? `/metrics` for Prometheus, `/healthz` and `/readyz` for whoever keeps the process alive and sends it clients.
//!
//! | path | 200 | 503 |
//! |---|---|---|
//! | `/healthz` | the process answers | the log failed: nothing more is acknowledged |
//! | `/readyz` | sessions are served | recovery is under way (with the time that is left), the server stops, the log failed |
//! | `/metrics` | always: before the database is open only what is known then | |
//!
//! It has a thread of its own, so that it answers while every worker is busy, and from the beginning, so that a recovery can be watched. Requests are
//! read up to [`HEAD_BYTES_MAX`], answered and closed; each has [`PATIENCE`] at most, and beyond [`CONNECTIONS_MAX`] the oldest makes room
//! ([`starting`](crate::starting)): silent connections keep no probe out.

use crate::admission::Origin;
use crate::listener::{ListenError, bound};
use crate::metrics;
use crate::starting::StartingPlaces;
use crate::watched::Watched;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::LocalSet;

const HEAD_BYTES_MAX: usize = 8 << 10;
/// What is taken of a request that is too long.
const UNREAD_BYTES_MAX: usize = 8 * HEAD_BYTES_MAX;
const HEADERS_MAX: usize = 64;
const CONNECTIONS_MAX: usize = 32;
const PATIENCE: Duration = Duration::from_secs(5);
const BACKLOG: u32 = 128;

/// Answers until dropped.
pub struct Http {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Http {
    pub fn start(listen: SocketAddr, watched: Arc<Watched>) -> Result<Http, ListenError> {
        let failed = |error: std::io::Error| ListenError(format!("cannot listen on {listen} for HTTP: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let listener = {
            let _inside = runtime.enter();
            bound(listen).and_then(|socket| socket.listen(BACKLOG)).map_err(failed)?
        };
        let address = listener.local_addr().map_err(failed)?;
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || LocalSet::new().block_on(&runtime, accept(listener, watched, stopped)))
            .map_err(failed)?;
        Ok(Http { address, stop, thread: Some(thread) })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic there has already been told.
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, watched: Arc<Watched>, mut stopped: watch::Receiver<bool>) {
    let places = StartingPlaces::new(CONNECTIONS_MAX);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.wait_for(|stopped| *stopped) => return,
        };
        let Ok((socket, address)) = accepted else {
            // Out of descriptors, mostly.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let watched = watched.clone();
        let mut place = places.enter((Origin::At(address.ip()), false));
        tokio::task::spawn_local(async move {
            tokio::select! {
                // Whoever is answered already is answered first.
                biased;
                _ = tokio::time::timeout(PATIENCE, serve(socket, &watched)) => {}
                () = place.lost() => {}
            }
        });
    }
}

async fn serve(mut socket: TcpStream, watched: &Watched) -> std::io::Result<()> {
    let mut head = Vec::with_capacity(1024);
    let answer = loop {
        match answer(&head, watched) {
            Some(answer) => break answer,
            None if head.len() >= HEAD_BYTES_MAX => {
                break Answer::plain(431, "the request's head is too long\n", false);
            }
            None => {
                if socket.read_buf(&mut head).await? == 0 {
                    return Ok(());
                }
            }
        }
    };
    socket.write_all(answer.bytes().as_bytes()).await?;
    socket.shutdown().await?;
    // Closed with bytes unread, it would take the answer back.
    while head.len() < UNREAD_BYTES_MAX && socket.read_buf(&mut head).await? > 0 {}
    Ok(())
}

struct Answer {
    status: u16,
    content_type: &'static str,
    body: String,
    /// HEAD: the body's length without it.
    head_only: bool,
}

impl Answer {
    fn plain(status: u16, body: impl Into<String>, head_only: bool) -> Answer {
        Answer { status, content_type: "text/plain; charset=utf-8", body: body.into(), head_only }
    }

    fn bytes(&self) -> String {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let Answer { status, content_type, body, .. } = self;
        let length = body.len();
        let allow = if *status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{allow}Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        );
        if self.head_only { head } else { head + body }
    }
}

/// `None`: the request is not whole yet.
fn answer(head: &[u8], watched: &Watched) -> Option<Answer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return None,
        Err(error) => return Some(Answer::plain(400, format!("{error}\n"), false)),
    }
    let head_only = request.method == Some("HEAD");
    if !head_only && request.method != Some("GET") {
        return Some(Answer::plain(405, "only GET and HEAD are served\n", false));
    }
    let path = request.path.unwrap_or_default();
    let verdict = |trouble: Option<String>| match trouble {
        None => Answer::plain(200, "ok\n", head_only),
        Some(reason) => Answer::plain(503, reason + "\n", head_only),
    };
    Some(match path.split('?').next().unwrap_or_default() {
        "/healthz" => verdict(watched.sickness()),
        "/readyz" => verdict(watched.unreadiness()),
        "/metrics" => {
            let content_type = "text/plain; version=0.0.4; charset=utf-8";
            Answer { status: 200, content_type, body: metrics::text(watched), head_only }
        }
        _ => Answer::plain(404, "there are /metrics, /healthz and /readyz\n", head_only),
    })
}
