//! When do bytes of sessions travel? All of a worker's turn together, those that came before it and the answers at its end, by one system call each;
//! or by a call of the session's own, where the session or the client is to see them at once.
//!
//! A turn is what a worker does between two looks at its sockets: it serves the sessions that have something to do, one after the other (a tick of
//! its `LocalSet`, 61 at most). An answer to a client of the same machine wakes its thread, and so does taking its request out of a Unix socket, if
//! the client waits for room there as for bytes, which event loops do. At the end of such a call the kernel may give the thread the worker's
//! processor: once for each request and each answer, with the worker's caches, or once for all of a turn.
//!
//! Invariants:
//! 1. The bytes of a session leave in order, whoever sends them: batch and write take them from the front of the same [`Output`].
//! 2. A batch sends what a write would: [`Output::releasable`], and nothing behind the durable horizon.
//! 3. What has no room in its socket the session writes itself: it is woken for that, and comes into no batch until all of it has left. Of what waits
//!    for the horizon behind what leaves, the session has begun its wait: a batch that has sent all that it may wakes nobody.
//! 4. An answer waits for its turn's end at most; and once it has waited for [`WAIT_MAX`], only for the session that is served then.
//! 5. Bytes come in order, whoever takes them: what a batch received is [`Line::take_received`] before anything is read, and what is to be received
//!    is taken back by a read.
//! 6. A batch that gives nothing tells nothing: the session reads itself, and so finds out whether its client is gone.
//! 7. A socket that a batch has emptied is not ready any more, which only its next edge changes; the reactor runs on the same thread, between turns.
//!
//! Without io_uring ([`Sockets::new`] tells), over TLS, on links, and while the worker is hardly ever switched away ([`Choice`]) every request is a read,
//! and every answer a write.

use super::choice::{Choice, Together};
use super::reply::Output;
use super::stream::Stream;
use bytes::BytesMut;
use freshet_engine::io::sockets::{BATCH_MAX, Outgoing, RECEIVE_BYTES, Sockets};
use freshet_engine::mem::touched::note;
use smallvec::SmallVec;
use std::cell::{RefCell, RefMut};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Once;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::AsyncWrite;

/// A longer answer is worth a system call of its own.
const BATCHED_BYTES_MAX: usize = 8 << 10;

/// Enough for the short statements of ten sessions or so, and little beside what the turn takes anyway.
const WAIT_MAX: Duration = Duration::from_micros(100);

/// A session's socket, and what travels through it.
pub struct Line {
    pub socket: Stream,
    pub output: Output,
    /// TLS holds nothing back that the socket had no room for.
    pub is_flushed: bool,
    /// When the first byte of what is being answered came.
    pub arrived: Option<Instant>,
    /// Came by a batch, and is not read yet.
    received: Vec<u8>,
    /// Something leaves with others at the end of the turn.
    leaves: bool,
    /// There was no room for all: the session waits for it.
    is_stuck: bool,
    /// In the turn's list of those that something is to come for; and whether it still is.
    is_listed: bool,
    comes: bool,
    /// A batch received nothing.
    reads_itself: bool,
    /// The session's task.
    waker: Option<Waker>,
}

impl Line {
    pub fn new(socket: Stream) -> Line {
        Line {
            socket,
            output: Output::default(),
            is_flushed: true,
            arrived: None,
            received: Vec::new(),
            leaves: false,
            is_stuck: false,
            is_listed: false,
            comes: false,
            reads_itself: false,
            waker: None,
        }
    }

    /// Moves what a batch received behind the input; whether that was something. Nothing comes by a batch any more that was to.
    pub fn take_received(&mut self, input: &mut BytesMut) -> bool {
        self.comes = false;
        input.extend_from_slice(&self.received);
        let is_something = !self.received.is_empty();
        self.received.clear();
        is_something
    }

    /// Gives the memory back that nothing is in.
    pub fn give_spare_back(&mut self) {
        self.output.give_spare_back();
        if self.received.is_empty() {
            self.received = Vec::new();
        }
    }

    /// Notes what every turn of the session touches.
    pub fn note_touched(&self) {
        let Line { output, is_flushed, arrived, received, waker, .. } = self;
        note(&self.socket);
        note(is_flushed);
        note(arrived);
        note(received);
        note(waker);
        output.note_touched();
    }

    fn is_woken_by(&mut self, cx: &Context<'_>) {
        if self.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
    }

    fn wake(&self) {
        self.waker.iter().for_each(Waker::wake_by_ref);
    }

    // ---- out

    /// Writes what may leave, as far as the socket has room.
    pub fn poll_write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while !self.output.releasable().is_empty() {
            match Pin::new(&mut self.socket).poll_write(cx, self.output.releasable()) {
                Poll::Pending => {
                    self.is_stuck = true;
                    return Ok(());
                }
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => {
                    self.output.consume(count);
                    self.is_flushed = !self.socket.is_tls();
                }
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        self.is_stuck = false;
        Ok(())
    }

    /// What TLS holds back.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if !self.is_flushed
            && let Poll::Ready(flushed) = Pin::new(&mut self.socket).poll_flush(cx)
        {
            flushed?;
            self.is_flushed = true;
        }
        Ok(())
    }

    /// Leaves with others, if it may; whether that is new.
    fn leaves(&mut self, cx: &Context<'_>) -> Option<bool> {
        let may = !self.is_stuck && self.output.releasable().len() <= BATCHED_BYTES_MAX;
        if !may || self.socket.descriptor().is_none() {
            return None;
        }
        self.is_woken_by(cx);
        Some(!std::mem::replace(&mut self.leaves, true))
    }

    /// A batch has sent so many bytes.
    fn sent(&mut self, count: usize, answered: &mut dyn FnMut(Instant)) {
        self.output.consume(count);
        if !self.output.releasable().is_empty() {
            self.is_stuck = true;
            self.wake();
        } else if self.output.unsent() == 0
            && let Some(arrived) = self.arrived.take()
        {
            answered(arrived);
        }
    }

    // ---- in

    /// Comes with others, if it may; whether that is new.
    fn comes(&mut self, cx: &Context<'_>) -> Option<bool> {
        if std::mem::take(&mut self.reads_itself) || self.socket.descriptor().is_none() {
            return None;
        }
        self.is_woken_by(cx);
        self.comes = true;
        Some(!std::mem::replace(&mut self.is_listed, true))
    }

    /// Whether something is there that comes at the end of the turn.
    pub fn is_coming(&self) -> bool {
        self.comes
    }

    /// A batch has received this.
    fn receive(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
        self.reads_itself = bytes.is_empty();
        if bytes.len() < RECEIVE_BYTES && !bytes.is_empty() {
            self.socket.was_emptied();
        }
        self.wake();
    }
}

/// A line in a batch.
struct Travelling<'a>(RefMut<'a, Line>);

impl AsFd for Travelling<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket.descriptor().expect("invariant: only what has a descriptor comes into a batch")
    }
}

impl Outgoing for Travelling<'_> {
    fn socket(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn bytes(&self) -> &[u8] {
        self.0.output.releasable()
    }
}

type Batch<'a> = SmallVec<[Travelling<'a>; BATCH_MAX]>;

type Lines = Vec<Rc<RefCell<Line>>>;

/// What travels at the end of the turn.
struct Turn {
    choice: Choice,
    sockets: Sockets,
    leaving: Lines,
    /// When the first of them was to leave.
    since: Instant,
    coming: Lines,
    answered: Box<dyn FnMut(Instant)>,
}

thread_local! {
    /// This worker's, if bytes travel together here.
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// Lets the bytes of this thread's sessions travel together, where that gains. `answered` is told when what has been answered whole had come.
pub fn begin(together: Together, answered: impl FnMut(Instant) + 'static) {
    match Sockets::new() {
        Ok(sockets) => {
            let answered = Box::new(answered);
            let (leaving, coming, since) = (Vec::new(), Vec::new(), Instant::now());
            let turn = Turn { choice: Choice::new(together), sockets, leaving, since, coming, answered };
            TURN.set(Some(turn));
        }
        Err(error) => {
            static TOLD: Once = Once::new();
            TOLD.call_once(
                || tracing::info!(%error, "no io_uring here: each request and answer takes a call of its own"),
            );
        }
    }
}

/// Lets what may leave do so at the end of the turn; false where it is to be written instead.
pub fn leaves_with_others(line: &Rc<RefCell<Line>>, cx: &Context<'_>) -> bool {
    TURN.with_borrow_mut(|turn| {
        let Some(turn) = turn else { return false };
        if !turn.choice.answers() {
            return false;
        }
        let leaves = line.borrow_mut().leaves(cx);
        if leaves == Some(true) {
            turn.leaves(line);
        }
        leaves.is_some()
    })
}

/// Sends what has waited for long enough.
pub fn send_overdue() {
    TURN.with_borrow_mut(|turn| {
        if let Some(turn) = turn
            && !turn.leaving.is_empty()
            && turn.since.elapsed() > WAIT_MAX
        {
            turn.send();
        }
    });
}

/// Lets come what is there at the end of the turn, whereupon the session is woken; false where it is to be read instead.
pub fn comes_with_others(line: &Rc<RefCell<Line>>, cx: &Context<'_>) -> bool {
    TURN.with_borrow_mut(|turn| {
        let Some(turn) = turn else { return false };
        if !turn.choice.is_together() {
            return false;
        }
        let comes = line.borrow_mut().comes(cx);
        if comes == Some(true) {
            turn.coming.push(line.clone());
        }
        comes.is_some()
    })
}

/// The end of a turn of this thread. Whether sessions go on for which something came.
pub fn end() -> bool {
    TURN.with_borrow_mut(|place| {
        let Some(turn) = place else { return false };
        turn.send();
        let is_something = turn.receive();
        if turn.sockets.is_broken() {
            tracing::warn!("io_uring refuses its service: each request and answer takes a call of its own from now on");
            *place = None;
        }
        is_something
    })
}

impl Turn {
    fn leaves(&mut self, line: &Rc<RefCell<Line>>) {
        if self.leaving.is_empty() {
            self.since = Instant::now();
        }
        self.leaving.push(line.clone());
    }

    /// Sends all that is to leave.
    fn send(&mut self) {
        let Turn { sockets, leaving, answered, .. } = self;
        for lines in leaving.chunks(BATCH_MAX) {
            let lines = lines.iter().map(|line| line.borrow_mut());
            let mut batch: Batch<'_> = lines.map(Travelling).collect();
            batch.iter_mut().for_each(|line| line.0.leaves = false);
            // Its session may have written it meanwhile, or waits for room to write the rest.
            batch.retain(|line| !line.0.is_stuck && !line.bytes().is_empty());
            match batch.as_mut_slice() {
                [] => {}
                // The usual call costs less for one.
                [Travelling(one)] => {
                    let sent = one.socket.try_write(one.output.releasable()).unwrap_or(0);
                    one.sent(sent, answered);
                }
                many => {
                    sockets.send(many);
                    many.iter_mut().enumerate().for_each(|(n, line)| line.0.sent(sockets.sent(n), answered));
                }
            }
        }
        leaving.clear();
    }

    /// Receives what has come for all that wait for it; whether they go on.
    fn receive(&mut self) -> bool {
        let is_something = !self.coming.is_empty();
        for lines in self.coming.chunks(BATCH_MAX) {
            let lines = lines.iter().map(|line| line.borrow_mut());
            let mut batch: Batch<'_> = lines.map(Travelling).collect();
            batch.iter_mut().for_each(|line| line.0.is_listed = false);
            // Its session may have read meanwhile, and wait no more.
            batch.retain(|line| std::mem::take(&mut line.0.comes));
            match batch.as_mut_slice() {
                [] => {}
                [Travelling(one)] => {
                    one.reads_itself = true;
                    one.wake();
                }
                many => {
                    self.sockets.receive(many);
                    many.iter_mut().enumerate().for_each(|(n, line)| line.0.receive(self.sockets.received(n)));
                }
            }
        }
        self.coming.clear();
        is_something
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pgwire::stream::Socket;
    use freshet_engine::ids::Cts;
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use tokio::net::UnixStream;

    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Session {
        line: Rc<RefCell<Line>>,
        client: UnixStream,
        woken: Arc<Counted>,
    }

    impl Session {
        fn new() -> Session {
            let (server, client) = UnixStream::pair().expect("a pair of sockets");
            let line = Rc::new(RefCell::new(Line::new(Stream::Plain(Socket::local(server)))));
            line.borrow_mut().arrived = Some(Instant::now());
            Session { line, client, woken: Arc::new(Counted(AtomicUsize::new(0))) }
        }

        fn answer(&self, bytes: &[u8]) {
            self.line.borrow_mut().output.copy_data(bytes);
        }

        /// Whether it leaves with others.
        fn leaves(&self) -> bool {
            let waker = Waker::from(self.woken.clone());
            leaves_with_others(&self.line, &Context::from_waker(&waker))
        }

        /// Whether its requests come with those of others.
        fn comes(&self) -> bool {
            let waker = Waker::from(self.woken.clone());
            comes_with_others(&self.line, &Context::from_waker(&waker))
        }

        /// Whether bytes may be there, as far as the reactor knows.
        async fn is_ready(&self) -> bool {
            poll_fn(|cx| Poll::Ready(self.line.borrow().socket.poll_read_ready(cx).is_ready())).await
        }

        fn requested(&self) -> Option<Vec<u8>> {
            let mut input = BytesMut::new();
            self.line.borrow_mut().take_received(&mut input).then(|| input.to_vec())
        }

        fn received(&self) -> Vec<u8> {
            let mut bytes = vec![0; 1 << 20];
            let count = self.client.try_read(&mut bytes).unwrap_or(0);
            bytes.truncate(count);
            bytes
        }

        fn woken(&self) -> usize {
            self.woken.0.load(Ordering::Relaxed)
        }
    }

    /// Runs with turns, and gives how many were answered; where there is no io_uring nothing runs.
    fn with_turns(test: impl AsyncFnOnce(&Cell<usize>)) {
        let answered = Rc::new(Cell::new(0));
        let count = answered.clone();
        begin(Together::Always, move |_| count.set(count.get() + 1));
        if TURN.with_borrow(Option::is_none) {
            return println!("skipped: no io_uring here");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(test(&answered));
        TURN.take();
    }

    #[test]
    fn what_a_turn_answers_leaves_at_its_end() {
        with_turns(async |answered| {
            for sessions in [1, 2, BATCH_MAX + 5] {
                let sessions: Vec<Session> = (0..sessions).map(|_| Session::new()).collect();
                for (number, session) in sessions.iter().enumerate() {
                    session.answer(format!("answer {number}").as_bytes());
                    assert!(session.leaves() && session.leaves(), "twice is once");
                    assert!(session.received().is_empty());
                }
                // What came behind leaves with it.
                sessions[0].answer(b"more");
                end();
                for (number, session) in sessions.iter().enumerate() {
                    let _ = session.client.readable().await;
                    let mut all = format!("answer {number}").into_bytes();
                    if number == 0 {
                        all.extend(b"more");
                    }
                    assert_eq!(session.received(), all);
                    assert_eq!((session.woken(), session.line.borrow().output.unsent()), (0, 0));
                }
                assert_eq!(answered.replace(0), sessions.len());
                end();
            }
        });
    }

    #[test]
    fn what_waits_for_the_horizon_stays() {
        with_turns(async |answered| {
            let sessions = [Session::new(), Session::new()];
            for session in &sessions {
                session.answer(b"now");
                session.line.borrow_mut().output.depend(Cts(7));
                session.answer(b"when 7 is durable");
                assert!(session.leaves());
            }
            end();
            for session in &sessions {
                let _ = session.client.readable().await;
                assert_eq!(session.received(), b"now");
                assert!(session.line.borrow().output.unsent() > 0);
            }
            assert_eq!(answered.get(), 0);
        });
    }

    #[test]
    fn a_client_that_takes_nothing_is_written_to_by_its_session_alone() {
        with_turns(async |_| {
            let (slow, quick) = (Session::new(), Session::new());
            let piece = [7; 4000];
            let mut sent = 0;
            while slow.woken() == 0 {
                slow.answer(&piece);
                quick.answer(b"quick");
                assert!(slow.leaves() && quick.leaves());
                end();
                sent += piece.len();
                let _ = quick.client.readable().await;
                assert_eq!(quick.received(), b"quick");
            }
            assert!(!slow.leaves(), "it has to write the rest");
            let mut taken = 0;
            while taken < sent {
                let both = poll_fn(|cx| {
                    slow.line.borrow_mut().poll_write(cx)?;
                    slow.client.poll_read_ready(cx)
                });
                both.await.expect("a client");
                taken += slow.received().len();
            }
            assert_eq!((taken, slow.line.borrow().output.unsent()), (sent, 0));
            slow.answer(b"well again");
            assert!(slow.leaves());
        });
    }

    #[test]
    fn what_has_come_is_received_at_the_turns_end() {
        with_turns(async |_| {
            let sessions = [Session::new(), Session::new(), Session::new()];
            let [short, long, silent] = &sessions;
            let bytes = vec![7; RECEIVE_BYTES + 9];
            for (session, bytes) in [(short, &b"request"[..]), (long, &bytes)] {
                let _ = session.client.writable().await;
                assert_eq!(session.client.try_write(bytes).expect("there is room"), bytes.len());
                let _ = poll_fn(|cx| session.line.borrow().socket.poll_read_ready(cx)).await;
            }
            sessions.iter().for_each(|session| assert!(session.comes() && session.comes(), "twice is once"));
            assert!(end() && !end());
            assert_eq!(sessions.each_ref().map(Session::woken), [1; 3]);
            assert_eq!((short.requested(), short.requested()), (Some(b"request".to_vec()), None));
            assert_eq!(long.requested(), Some(bytes[..RECEIVE_BYTES].to_vec()));
            assert_eq!((short.is_ready().await, long.is_ready().await), (false, true), "one is emptied, one is not");
            assert_eq!(silent.requested(), None);
            assert!(!silent.comes(), "it reads itself, and so finds out whether its client is gone");
            // A read of one's own takes the place of what was to come.
            assert!(long.comes() && silent.comes());
            assert_eq!(long.requested(), None);
            assert!(end());
            assert_eq!((long.woken(), silent.woken()), (1, 2));
        });
    }

    #[test]
    fn one_whose_client_is_gone_is_told() {
        with_turns(async |_| {
            let sessions = [Session::new(), Session::new()];
            for session in &sessions {
                session.answer(b"answer");
                assert!(session.leaves());
            }
            let [mut gone, other] = sessions;
            gone.client = UnixStream::pair().expect("a pair of sockets").0;
            end();
            let _ = other.client.readable().await;
            assert_eq!(other.received(), b"answer");
            assert_eq!(gone.woken(), 1);
            let written = poll_fn(|cx| Poll::Ready(gone.line.borrow_mut().poll_write(cx))).await;
            assert_eq!(written.map_err(|error| error.kind()), Err(io::ErrorKind::BrokenPipe));
        });
    }

    #[test]
    fn long_answers_and_threads_without_turns_write_at_once() {
        with_turns(async |_| {
            let session = Session::new();
            session.answer(&[7; BATCHED_BYTES_MAX + 1]);
            assert!(!session.leaves());
            let session = Session::new();
            session.answer(b"short");
            TURN.take();
            assert!(!session.leaves());
        });
    }
}
