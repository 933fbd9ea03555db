//! How does a link meet its socket? One task an end: it writes what its sessions left, reads what is there, and lets them run.
//!
//! ```text
//! write ─▶ read ─▶ wake the sessions ─▶ go to the end of the queue ─▶ (they run) ─▶ write ...
//! ```
//!
//! Sessions wake the driver when they have written. As it stands in the queue behind all that it woke, one write takes what all of them left:
//! so a group's answers are one message without anybody waiting for anybody.

use super::frame::Violation;
use super::mux::{Mux, Pipe};
use bytes::BytesMut;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::io::poll_read_buf;

/// One read takes at most about this much.
const READ_BYTES: usize = 64 << 10;
/// A buffer that grew beyond this is given back.
const KEEP_BYTES: usize = 256 << 10;
/// How long the last bytes may take once the server stops.
const FAREWELL: Duration = Duration::from_secs(5);

/// How a link ends.
#[derive(Debug)]
pub enum Ended {
    /// The peer closed it.
    Closed,
    Failed(io::Error),
    Broken(Violation),
    /// Nothing was heard of the peer for so long.
    Silent(Duration),
    /// We were told to stop, and everything was said.
    Stopped,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Closed => f.write_str("the peer closed it"),
            Ended::Failed(error) => write!(f, "{error}"),
            Ended::Broken(Violation(what)) => write!(f, "the peer broke the protocol: {what}"),
            Ended::Silent(time) => write!(f, "nothing was heard of the peer for {} s", time.as_secs_f64()),
            Ended::Stopped => f.write_str("stopped"),
        }
    }
}

/// How a peer that vanished without a word is noticed.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeat {
    pub interval: Duration,
    /// Intervals without a byte after which the peer counts as gone.
    pub silent_max: u32,
    /// This end asks; the other answers.
    pub asks: bool,
}

impl Heartbeat {
    /// A ship asks four times a minute, and either end gives the other a minute.
    pub fn usual(asks: bool) -> Heartbeat {
        Heartbeat { interval: Duration::from_secs(15), silent_max: 4, asks }
    }
}

struct Driver<S, F> {
    mux: Mux,
    socket: S,
    input: BytesMut,
    /// What is being written, and how much of it has left.
    writing: Vec<u8>,
    written: usize,
    is_flushed: bool,
    on_open: F,
    heartbeat: Heartbeat,
    tick: Interval,
    silent: u32,
}

/// Drives one end until it ends; then all its sessions have been told. `input`: what came behind the greeting. `on_open` gets sessions
/// that the peer begins. When `stop` says so, the link ends as soon as its sessions have.
pub async fn drive<S, F>(
    mux: Mux,
    socket: S,
    input: BytesMut,
    heartbeat: Heartbeat,
    on_open: F,
    mut stop: watch::Receiver<bool>,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: FnMut(Pipe),
{
    let mut tick = tokio::time::interval_at(Instant::now() + heartbeat.interval, heartbeat.interval);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (writing, written) = (Vec::new(), 0);
    let mut driver =
        Driver { mux, socket, input, writing, written, is_flushed: true, on_open, heartbeat, tick, silent: 0 };
    let stopped = async {
        // A sender that is gone stops nobody any more.
        if stop.wait_for(|stop| *stop).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let ended = match driver.take_input() {
        Ok(()) => tokio::select! {
            ended = poll_fn(|cx| driver.poll(cx, false)) => Some(ended),
            () = stopped => None,
        },
        Err(ended) => Some(ended),
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            let rest = tokio::time::timeout(2 * FAREWELL, poll_fn(|cx| driver.poll(cx, true))).await;
            rest.unwrap_or(Ended::Stopped)
        }
    };
    driver.mux.end();
    ended
}

impl<S: AsyncRead + AsyncWrite + Unpin, F: FnMut(Pipe)> Driver<S, F> {
    fn poll(&mut self, cx: &mut Context<'_>, is_stopping: bool) -> Poll<Ended> {
        match self.try_poll(cx, is_stopping) {
            Ok(()) => Poll::Pending,
            Err(ended) => Poll::Ready(ended),
        }
    }

    fn try_poll(&mut self, cx: &mut Context<'_>, is_stopping: bool) -> Result<(), Ended> {
        self.mux.register(cx.waker());
        self.poll_heartbeat(cx)?;
        let is_written = self.poll_write(cx)?;
        if is_stopping && is_written && self.mux.held() == 0 {
            return Err(Ended::Stopped);
        }
        if !self.mux.may_read() {
            return Ok(());
        }
        self.input.reserve(READ_BYTES);
        match poll_read_buf(Pin::new(&mut self.socket), cx, &mut self.input) {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(0)) => Err(Ended::Closed),
            Poll::Ready(Ok(_)) => {
                self.silent = 0;
                self.take_input()?;
                cx.waker().wake_by_ref();
                Ok(())
            }
            Poll::Ready(Err(error)) => Err(Ended::Failed(error)),
        }
    }

    fn take_input(&mut self) -> Result<(), Ended> {
        let opened = self.mux.receive(&mut self.input).map_err(Ended::Broken)?;
        opened.into_iter().for_each(&mut self.on_open);
        if self.input.is_empty() && self.input.capacity() > KEEP_BYTES {
            self.input = BytesMut::new();
        }
        Ok(())
    }

    fn poll_heartbeat(&mut self, cx: &mut Context<'_>) -> Result<(), Ended> {
        while self.tick.poll_tick(cx).is_ready() {
            self.silent += 1;
            if self.silent > self.heartbeat.silent_max {
                return Err(Ended::Silent(self.heartbeat.interval * self.heartbeat.silent_max));
            }
            if self.heartbeat.asks {
                self.mux.ping();
            }
        }
        Ok(())
    }

    /// Whether all that may leave now has left.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<bool, Ended> {
        loop {
            while self.written < self.writing.len() {
                match Pin::new(&mut self.socket).poll_write(cx, &self.writing[self.written..]) {
                    Poll::Pending => return Ok(false),
                    Poll::Ready(Ok(0)) => return Err(Ended::Closed),
                    Poll::Ready(Ok(count)) => {
                        self.written += count;
                        self.is_flushed = false;
                    }
                    Poll::Ready(Err(error)) => return Err(Ended::Failed(error)),
                }
            }
            self.written = 0;
            match self.writing.capacity() > KEEP_BYTES {
                true => self.writing = Vec::new(),
                false => self.writing.clear(),
            }
            if !self.mux.take_out(&mut self.writing) {
                break;
            }
        }
        if !self.is_flushed {
            match Pin::new(&mut self.socket).poll_flush(cx) {
                Poll::Pending => return Ok(false),
                Poll::Ready(flushed) => flushed.map_err(Ended::Failed)?,
            }
            self.is_flushed = true;
        }
        Ok(true)
    }
}
