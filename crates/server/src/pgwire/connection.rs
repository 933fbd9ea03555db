//! How does a session meet its socket? One task that reads what is there, runs it, and writes once.
//!
//! Every wait of the session is one poll of everything that may end it: requests of others, room for replies, the
//! durable horizon, a lock, a time limit, bytes from the client. The order below is the order of the polls.
//!
//! Invariants:
//! 1. Replies leave when the horizon has passed what they depend on, all of a burst together: a pipeline costs one flush,
//!    and while it flushes the next requests run.
//! 2. A session holds at most [`OUTPUT_BYTES_MAX`] and one row set of replies, one message of input, and, while it is
//!    blocked, [`READ_AHEAD_BYTES`] more.
//! 3. A client that goes away is noticed in every wait; its transaction is rolled back and its locks go.
//!
//! 4. A client that does nothing, or only parts of a message, for `idle_session_timeout` or `idle_in_transaction_session_timeout` is ended; so is
//!    one that takes nothing of what it asked for. Until then a cancel request and `statement_timeout` end a result of which rows are left to send.
//! 5. What its buffers have beyond 64 KiB is given back when nothing has happened for [`SPARE_KEPT`]. Until then they stay: who gives large results
//!    one after the other allocates nothing for them.
//! 6. A statement holds its worker for [`INLINE_LIMIT`] at most: a longer one is undone and runs anew on a thread of a pool, and
//!    the session with it, once there is a place there ([`super::long`]). Cancel requests, a client that goes and the end of the server reach it there by its flag.
//!    So is a message long enough to keep its worker as long while it is read and planned ([`Conversation::run_long`]), undone by nobody.
//! 7. A session that is served twice in a row by its worker is alone there, as far as can be told, and its commits wake no thread of the log: it asks
//!    for the flush at the end of its burst anyway, and a thread that is woken twice for one flush cost a lone client up to a fifth of its rate (7.1 to 8.7 k/s in turns).

use super::conversation::{Conversation, OUTPUT_BYTES_MAX, Progress};
use super::keepalive::Applied;
use super::long::{LongPlace, LongStatements};
use super::registry::{Membership, Request, stopping};
use super::reply::{IDLE_BYTES, KEEP_BYTES, Output, Severity};
use super::startup::Hello;
use super::stream::Stream;
use super::turn::{self, Line, comes_with_others, leaves_with_others};
use ::pgwire::messages::startup::{Authentication, BackendKeyData, ParameterStatus, SecretKey};
use bytes::BytesMut;
use freshet_db::SqlError;
use freshet_db::sql::activity::{Activity, Ask, Awaits, Member};
use freshet_db::sql::session::Slow;
use freshet_db::sql::{Session, Wait};
use freshet_engine::engine::{DurableWait, Engine};
use freshet_engine::mem::touched::{is_noting, note, note_start};
use freshet_engine::txn::Error;
use std::cell::{Cell, RefCell, RefMut};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::AsyncWrite;
use tokio::time::Sleep;
use tokio_util::io::poll_read_buf;

/// One read takes at most about this much, so that one client cannot hold its worker.
const READ_BYTES: usize = 16 << 10;

/// Room behind the part of a message that is at hand: with less the buffer is put in order first, or grows.
const ROOM_BYTES: usize = 4 << 10;

/// How long a session that does nothing keeps the memory of what it did.
const SPARE_KEPT: Duration = Duration::from_secs(1);

/// What a blocked session reads ahead, to notice that its client is gone.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// What one session may cost the others of its worker: a few hundred short statements.
const INLINE_LIMIT: Duration = Duration::from_millis(2);

/// How long a client may take to fetch the last replies.
const FAREWELL: Duration = Duration::from_secs(5);

/// Between two looks whether a client has gone behind what it has sent.
const HANG_UP_LOOK: Duration = Duration::from_millis(100);

/// Between two looks whether a snapshot was ended.
const SNAPSHOT_LOOK: Duration = Duration::from_millis(100);

/// How often a thread that takes a long message is told that nobody wants it, if that is so: who begins to read, or to run, takes what was said before
/// for another's.
const TAKING_LOOK: Duration = Duration::from_millis(20);

/// After so many turns in a row of one session its worker flushes for it: two switches of threads cost as much as half a flush, and a session that comes
/// now and then waits at most once in as many turns for a flush that is not its own.
const LONE_TURNS: i32 = 32;

/// A device that takes longer holds the worker for too long.
const LONE_FLUSH_MAX: Duration = Duration::from_micros(500);

/// Turns until a device that was slow is tried again: it may always be so, or have been once.
const SLOW_TURNS: i32 = 100;

thread_local! {
    /// The session that this worker served last, by its number, and how often in a row.
    static SERVED_LAST: Cell<(i32, i32)> = const { Cell::new((0, 0)) };

    /// How often this worker served a session since it was asked.
    static SERVED: Cell<u64> = const { Cell::new(0) };
}

/// How often this thread served a session since it was asked last.
pub fn take_served() -> u64 {
    SERVED.take()
}

/// A session begins a turn. Whether it had the last one too.
fn is_served_again(pid: i32) -> bool {
    SERVED.set(SERVED.get() + 1);
    let (last, turns) = SERVED_LAST.get();
    SERVED_LAST.set((pid, if last == pid { turns.saturating_add(1) } else { turns.min(0) }));
    last == pid
}

/// The turn's session waits for the log. If its worker has had nothing else to do for a while, it flushes.
fn flush_if_lone(wait: &DurableWait) {
    let (pid, turns) = SERVED_LAST.get();
    if turns < LONE_TURNS {
        return;
    }
    let started = Instant::now();
    wait.flush_once();
    if started.elapsed() > LONE_FLUSH_MAX {
        SERVED_LAST.set((pid, -SLOW_TURNS));
    }
}

/// Why a session goes on.
enum Event {
    /// There is input, room, or the wait is over.
    GoOn,
    /// The client went away.
    Gone,
    Cancel,
    Terminate,
    LockTimeout,
    StatementTimeout,
    /// The client does nothing for too long, with a transaction open or without.
    IdleTimeout,
    LogFailed(String),
    /// Of the statement whose rows are sent while it goes on.
    SnapshotEnded,
}

/// A statement that waits.
struct Blocked {
    wait: Wait,
    is_over: bool,
    was_polled: bool,
    lock_limit: Option<Pin<Box<Sleep>>>,
}

/// What the conversation needs to go on.
enum Need {
    Input {
        missing: usize,
    },
    /// The client is to take some of what it asked for.
    Room,
    /// A COPY goes on, unless it is to end.
    Turn,
    Wait(Blocked),
    /// A thread for a long statement.
    Place(Pin<Box<dyn Future<Output = LongPlace>>>),
    /// Everything sent: the session ends.
    Farewell,
}

/// Which way bytes travel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Travels {
    /// Who waits for them goes on when they have.
    Now,
    /// At the end of the worker's turn.
    WithOthers,
}

/// What all connections of a server share.
#[derive(Clone)]
pub struct Shared {
    pub engine: Engine,
    pub activity: Arc<Activity>,
    pub long: Arc<LongStatements>,
    /// The longest message of a client.
    pub message_bytes_max: usize,
}

pub struct Connection {
    shared: Shared,
    /// Shared with the worker's turn while something of it is to travel.
    line: Rc<RefCell<Line>>,
    /// Away while a long statement runs elsewhere, which only `elsewhere` waits for.
    conversation: Option<Conversation>,
    /// Behind the conversation, and dropped after it: who is let in for a member that left finds its place in the engine free.
    membership: Membership,
    input: BytesMut,
    /// What the input takes: the buffer itself tells only what it has from its first byte on.
    input_bytes: usize,
    durable: Option<DurableWait>,
    /// The time limit of the statement with this number.
    statement_limit: Option<(u64, Pin<Box<Sleep>>)>,
    /// When it is next looked whether the snapshot of a statement whose rows are being sent still stands.
    snapshot_look: Option<Pin<Box<Sleep>>>,
    /// When it is next looked whether a client is there still of whom enough lies unread.
    hang_up_look: Option<Pin<Box<Sleep>>>,
    /// When a session in which nothing happens is ended.
    idle_limit: Option<Pin<Box<Sleep>>>,
    /// When memory that is kept for statements after this one is given back, if none has begun.
    spare_limit: Option<(u64, Pin<Box<Sleep>>)>,
    /// For the statement that goes on elsewhere.
    place: Option<LongPlace>,
    keepalive: Applied,
    /// Its last burst had several statements: they share a call of the session's own, and what the client does with the answers is not put off.
    is_pipelining: bool,
    /// Where others see what it waits for.
    member: Option<Arc<Member>>,
}

impl Connection {
    /// `input`: what came behind the startup packet.
    pub fn new(
        shared: Shared,
        socket: Stream,
        membership: Membership,
        mut session: Box<Session>,
        input: BytesMut,
    ) -> Box<Connection> {
        session.limit_inline(Some(INLINE_LIMIT));
        session.log_slow_with(log_slow);
        let message_bytes_max = shared.message_bytes_max;
        Box::new(Connection {
            shared,
            line: Rc::new(RefCell::new(Line::new(socket))),
            membership,
            conversation: Some(Conversation::new(*session, message_bytes_max)),
            input_bytes: input.capacity(),
            input,
            durable: None,
            statement_limit: None,
            snapshot_look: None,
            hang_up_look: None,
            idle_limit: None,
            spare_limit: None,
            place: None,
            keepalive: Applied::default(),
            is_pipelining: false,
            member: None,
        })
    }

    /// Lives until the client or the server ends it.
    pub async fn run(mut self: Box<Self>, hello: &Hello) {
        match self.greet(hello) {
            Ok(()) => self.converse().await,
            Err(error) => {
                self.output().error(Severity::Fatal, &error);
                self.farewell().await;
            }
        }
        self.conversation().close();
    }

    fn output(&self) -> RefMut<'_, Output> {
        RefMut::map(self.line.borrow_mut(), |line| &mut line.output)
    }

    fn unsent(&self) -> usize {
        self.line.borrow().output.unsent()
    }

    fn conversation(&mut self) -> &mut Conversation {
        self.conversation.as_mut().expect("invariant: nobody else runs while a statement is elsewhere")
    }

    fn greet(&mut self, hello: &Hello) -> Result<(), SqlError> {
        let line = &mut *self.line.borrow_mut();
        if let Some(negotiate) = &hello.negotiate {
            line.output.message(&negotiate.message());
        }
        let pid = self.membership.key.pid;
        let conversation = self.conversation.as_mut().expect("a session begins here");
        let session = conversation.session();
        session.identify(&hello.user, &hello.database, pid)?;
        let ends = line.socket.tcp().map(|socket| (socket.local_addr(), socket.peer_addr()));
        if let Some((Ok(server), Ok(client))) = ends {
            session.connected_over(server, client);
        }
        self.member = session.member();
        let signal = self.membership.signal.clone();
        session.serve(move |ask| {
            signal.send(match ask {
                Ask::Cancel => Request::Cancel,
                Ask::Terminate => Request::Terminate,
                Ask::Hear => Request::Hear,
            });
        });
        session.audit_with(|made| {
            tracing::info!(
                target: "audit",
                user = made.user,
                session_user = made.session_user,
                database = made.database,
                pid = made.pid,
                statement = made.statement,
                "audit: {}",
                made.command
            );
        });
        for (name, value) in &hello.settings {
            session.set(name, value)?;
        }
        session.begin_settings();
        line.output.message(&Authentication::Ok);
        // They are told here, whole; only later changes are told one by one.
        session.take_reported();
        for (name, value) in session.reported_settings() {
            line.output.message(&ParameterStatus::new(name, value));
        }
        let key = self.membership.key;
        line.output.message(&BackendKeyData::new(key.pid, SecretKey::I32(key.secret)));
        conversation.ready(&mut line.output);
        Ok(())
    }

    async fn converse(&mut self) {
        loop {
            let conversation = self.conversation.as_mut().expect("invariant: what was elsewhere is back");
            let unread = self.input.len();
            conversation.session().set_waits_inline(is_served_again(self.membership.key.pid));
            let begun = conversation.statements_begun();
            let mut progress = conversation.run(&mut self.input, &mut self.line.borrow_mut().output);
            if matches!(progress, Progress::Long) && self.has_message_place() {
                progress = Box::pin(self.take_elsewhere()).await;
                if self.membership.signal.is_set(Request::Terminate) {
                    return self.terminate().await;
                }
            }
            let conversation = self.conversation();
            self.is_pipelining = conversation.statements_begun() > begun + 1;
            if is_noting() {
                self.note_touched();
            }
            if self.input.len() < unread {
                // A message was taken, so the client is not idle. A part of one does not count.
                self.idle_limit = None;
            }
            let wants_place = match &progress {
                Progress::Blocked(wait) => wait.is_elsewhere(),
                progress => matches!(progress, Progress::Long),
            };
            if !wants_place {
                self.place = None;
            }
            let need = match progress {
                Progress::NeedInput { missing } => {
                    self.before_input();
                    Need::Input { missing }
                }
                Progress::Full => self.room(),
                Progress::Blocked(wait) if wait.is_elsewhere() => match self.place_elsewhere() {
                    None => {
                        Box::pin(self.elsewhere()).await;
                        if self.membership.signal.is_set(Request::Terminate) && self.conversation().was_cancelled() {
                            // Its end is the session's, and told as that.
                            return self.terminate().await;
                        }
                        continue;
                    }
                    Some(Ok(need)) => need,
                    Some(Err(error)) => {
                        self.cancel(error);
                        continue;
                    }
                },
                Progress::Blocked(wait) => Need::Wait(self.blocked(wait)),
                Progress::Yield => {
                    tokio::task::yield_now().await;
                    match self.conversation().is_copying() {
                        true => Need::Turn,
                        false => continue,
                    }
                }
                Progress::Long => {
                    // That of a statement before it.
                    self.statement_limit = None;
                    Need::Place(Box::pin(self.shared.long.message_place()))
                }
                Progress::Closed => return self.farewell().await,
            };
            if !self.pause(need).await {
                return;
            }
        }
    }

    /// Notes what every turn of the session touches.
    fn note_touched(&self) {
        let Connection { conversation, membership, input, durable, idle_limit, spare_limit, .. } = self;
        // In the order in which they are wanted.
        note(membership);
        note(&self.line);
        note(&self.is_pipelining);
        note(input);
        note(&*membership.signal);
        note(durable);
        note(&self.shared);
        note(&self.member);
        self.line.borrow().note_touched();
        note_start(&**input);
        if let Some(conversation) = conversation {
            conversation.note_touched();
        }
        note(idle_limit);
        note(spare_limit);
        if let Some((_, limit)) = spare_limit {
            note(&**limit);
        }
    }

    /// Sees to a thread for a long message.
    fn has_message_place(&mut self) -> bool {
        self.place = self.place.take().or_else(|| self.shared.long.try_message_place());
        self.place.is_some()
    }

    /// Lets the conversation take a long message, and what came with it, on a thread without other sessions. Replies of statements before it leave
    /// meanwhile.
    async fn take_elsewhere(&mut self) -> Progress {
        let mut conversation = self.conversation.take().expect("invariant: it has just said that the message is long");
        let mut input = std::mem::take(&mut self.input);
        let cancelled = conversation.session().cancel_flag();
        let mut look = Box::pin(tokio::time::sleep(TAKING_LOOK));
        let mut taking = self.shared.long.run(move || {
            let mut output = Output::default();
            conversation.session().set_waits_inline(false);
            let progress = conversation.run_long(&mut input, &mut output);
            (conversation, input, output, progress)
        });
        let taken = poll_fn(|cx| {
            self.membership.signal.register(cx.waker());
            let mut is_over = self.membership.signal.is_set(Request::Cancel);
            is_over |= self.poll_output(Travels::Now, cx).is_err();
            while look.as_mut().poll(cx).is_ready() {
                look.as_mut().reset(tokio::time::Instant::now() + TAKING_LOOK);
                is_over |= self.line.borrow().socket.has_hung_up();
            }
            if is_over {
                cancelled.store(true, Ordering::Relaxed);
            }
            Pin::new(&mut taking).poll(cx)
        });
        let (conversation, input, output, progress) =
            taken.await.expect("invariant: a statement that panics ends itself or the process");
        if !conversation.is_at_work() {
            // Who wanted its end comes too late.
            self.membership.signal.clear(Request::Cancel);
        }
        (self.conversation, self.input, self.place) = (Some(conversation), input, None);
        self.output().append(output);
        progress
    }

    /// Sees to a thread for a long statement: `None` if there is one.
    fn place_elsewhere(&mut self) -> Option<Result<Need, SqlError>> {
        if self.place.is_some() {
            return None;
        }
        self.place = self.shared.long.try_place();
        if self.place.is_some() {
            return None;
        }
        self.limit_statement();
        self.look_at_snapshot();
        let is_new = self.conversation().is_new_work();
        let place = self.shared.long.place(is_new);
        Some(place.map(|place| Need::Place(Box::pin(place))))
    }

    /// Lets a long statement run on a thread of its own, to its end or its next wait. Replies of statements before it leave meanwhile.
    async fn elsewhere(&mut self) {
        let mut conversation = self.conversation.take().expect("invariant: one statement at a time");
        let cancelled = conversation.session().cancel_flag();
        let mut running = self.shared.long.run(move || {
            let is_over = conversation.run_elsewhere();
            (conversation, is_over)
        });
        let landed = poll_fn(|cx| {
            self.poll_end(&cancelled, cx);
            Pin::new(&mut running).poll(cx)
        });
        let (conversation, is_over) =
            landed.await.expect("invariant: a statement that panics ends itself or the process");
        self.conversation = Some(conversation);
        self.place = None;
        if is_over {
            // One that waits may not have looked at its flag: then the request ends the wait.
            self.membership.signal.clear(Request::Cancel);
        }
    }

    /// Tells the statement that runs elsewhere that nobody wants its end any more.
    fn poll_end(&mut self, cancelled: &AtomicBool, cx: &mut Context<'_>) {
        let signal = &self.membership.signal;
        signal.register(cx.waker());
        let mut is_over = signal.is_set(Request::Cancel) || signal.is_set(Request::Terminate);
        is_over |= self.poll_output(Travels::Now, cx).is_err();
        while !is_over && self.input.len() < READ_AHEAD_BYTES {
            match self.poll_input(Travels::Now, cx) {
                Poll::Ready(event) => is_over = matches!(event, Event::Gone),
                Poll::Pending => break,
            }
        }
        is_over |= self.poll_hang_up(cx);
        if is_over {
            cancelled.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until the conversation can go on; false when the session is over.
    async fn pause(&mut self, mut need: Need) -> bool {
        let awaits = self.awaits(&need);
        if awaits != Awaits::Nothing {
            self.tell_awaits(awaits);
        }
        let event = poll_fn(|cx| self.poll_event(&mut need, cx)).await;
        if awaits != Awaits::Nothing {
            self.tell_awaits(Awaits::Nothing);
        }
        let error = match event {
            Event::GoOn => {
                if matches!(need, Need::Room) {
                    self.idle_limit = None;
                }
                if matches!(need, Need::Input { .. }) && !self.is_copying() {
                    // A cancel request that came before its statement has nothing to cancel.
                    self.membership.signal.clear(Request::Cancel);
                }
                return true;
            }
            Event::Gone => {
                let is_copying = self.is_copying();
                if is_copying || matches!(need, Need::Wait(_) | Need::Place(_)) {
                    let gone = SqlError::new("08006", "the client is gone");
                    self.cancel(gone);
                }
                self.farewell().await;
                return false;
            }
            Event::Terminate => {
                self.terminate().await;
                return false;
            }
            Event::LogFailed(reason) => {
                self.end_with_log(reason).await;
                return false;
            }
            Event::IdleTimeout => {
                let error = match self.conversation().has_open_transaction() {
                    false => SqlError::new("57P05", "terminating connection due to idle-session timeout"),
                    true => SqlError::new("25P03", "terminating connection due to idle-in-transaction timeout"),
                };
                self.fatal(&error).await;
                return false;
            }
            Event::Cancel => SqlError::new("57014", "canceling statement due to user request"),
            Event::StatementTimeout => SqlError::new("57014", "canceling statement due to statement timeout"),
            Event::LockTimeout => SqlError::new("55P03", "canceling statement due to lock timeout"),
            Event::SnapshotEnded => match self.conversation().session().check_snapshot() {
                Ok(()) => return true,
                Err(error) => error,
            },
        };
        self.cancel(error);
        true
    }

    /// What others are to see of the wait; nothing where they see it otherwise.
    fn awaits(&self, need: &Need) -> Awaits {
        match need {
            Need::Room => Awaits::ClientWrite,
            Need::Place(_) => Awaits::Place,
            Need::Input { .. } if self.is_copying() => Awaits::ClientRead,
            _ => Awaits::Nothing,
        }
    }

    fn tell_awaits(&self, awaits: Awaits) {
        self.member.iter().for_each(|member| member.set_awaits(awaits));
    }

    fn is_copying(&self) -> bool {
        self.conversation.as_ref().is_some_and(Conversation::is_copying)
    }

    /// The client is to take something, for which it has as long as it may do nothing; the statement has its own time.
    fn room(&mut self) -> Need {
        if self.can_cancel_sending() {
            self.limit_statement();
        } else {
            self.statement_limit = None;
        }
        self.idle_limit = self.new_idle_limit();
        self.look_at_snapshot();
        Need::Room
    }

    /// Looks from now on whether the snapshot stands by which a statement reads on.
    fn look_at_snapshot(&mut self) {
        if self.conversation().reads_on() {
            self.snapshot_look.get_or_insert_with(|| Box::pin(tokio::time::sleep(SNAPSHOT_LOOK)));
        } else {
            self.snapshot_look = None;
        }
    }

    /// Whether the statement whose answer is sent can still fail.
    fn can_cancel_sending(&self) -> bool {
        self.is_copying() || self.conversation.as_ref().is_some_and(Conversation::can_take_rows_back)
    }

    fn new_idle_limit(&mut self) -> Option<Pin<Box<Sleep>>> {
        let conversation = self.conversation();
        let limit = match conversation.has_open_transaction() {
            false => conversation.session().idle_session_timeout(),
            true => conversation.session().idle_in_transaction_timeout(),
        };
        limit.map(|limit| Box::pin(tokio::time::sleep(limit)))
    }

    /// Nothing is left to do: what is to be seen to before the client says more.
    fn before_input(&mut self) {
        let conversation = self.conversation.as_mut().expect("invariant: nobody else runs while the client is awaited");
        let is_copying = conversation.is_copying();
        let mut line = self.line.borrow_mut();
        conversation.tell_notifications(&mut line.output);
        let has_spare = conversation.has_spare() || line.output.has_spare() || self.input_bytes > IDLE_BYTES;
        if has_spare && self.spare_limit.is_none() {
            let number = conversation.statements_begun();
            self.spare_limit = Some((number, Box::pin(tokio::time::sleep(SPARE_KEPT))));
        }
        let session = conversation.session();
        session.follow_defaults();
        if let Some(socket) = line.socket.tcp() {
            self.keepalive.follow(session.keepalive(), socket);
        }
        drop(line);
        if is_copying {
            self.idle_limit = None;
        } else if self.idle_limit.is_none() {
            self.idle_limit = self.new_idle_limit();
        }
    }

    fn cancel(&mut self, error: SqlError) {
        let conversation = self.conversation.as_mut().expect("invariant: what waits is here");
        conversation.cancel(error, &mut self.line.borrow_mut().output);
    }

    fn tell_awaits_log(&self, awaits: bool) {
        self.member.iter().for_each(|member| member.set_awaits_log(awaits));
    }

    /// The session ends: rows that are left are not sent any more.
    async fn fatal(&mut self, error: &SqlError) {
        self.conversation().stop_reading();
        self.output().error(Severity::Fatal, error);
        self.farewell().await;
    }

    /// Somebody else ends the session.
    async fn terminate(&mut self) {
        match self.shared.engine.failure() {
            None => self.fatal(&stopping()).await,
            // Who waits for something else than the log is told the same as who waits for the log.
            Some(reason) => self.end_with_log(reason).await,
        }
    }

    async fn end_with_log(&mut self, reason: String) {
        self.log_failed(reason);
        self.farewell().await;
    }

    /// What waits for the horizon will never be true: it is taken back.
    fn log_failed(&mut self, reason: String) {
        self.output().discard_pending();
        self.durable = None;
        self.output().error(Severity::Fatal, &SqlError::new("58030", reason));
    }

    /// Sends what is left, if the client takes it in time. Whether it was taken or not, the session ends here.
    async fn farewell(&mut self) {
        if let Ok(Event::LogFailed(reason)) = self.last_words().await {
            self.log_failed(reason);
            let _ = self.last_words().await;
        }
        if self.line.borrow().socket.is_tls() {
            // Without it the client could not tell the end from one that somebody else made.
            let shut = poll_fn(|cx| Pin::new(&mut self.line.borrow_mut().socket).poll_shutdown(cx));
            let _ = tokio::time::timeout(FAREWELL, shut).await;
        }
    }

    async fn last_words(&mut self) -> Result<Event, tokio::time::error::Elapsed> {
        tokio::time::timeout(FAREWELL, poll_fn(|cx| self.poll_event(&mut Need::Farewell, cx))).await
    }

    fn blocked(&mut self, wait: Wait) -> Blocked {
        self.limit_statement();
        let limit = self.conversation().session().lock_timeout().filter(|_| wait.is_lock());
        let limit = limit.map(|limit| limit.saturating_sub(wait.waited()));
        Blocked {
            wait,
            is_over: false,
            was_polled: false,
            lock_limit: limit.map(|limit| Box::pin(tokio::time::sleep(limit))),
        }
    }

    /// Sees to it that a statement that waits ends in time.
    fn limit_statement(&mut self) {
        let conversation = self.conversation();
        let number = conversation.statements_begun();
        let limit = conversation.time_left();
        if self.statement_limit.as_ref().is_none_or(|(limited, _)| *limited != number) {
            self.statement_limit = limit.map(|limit| (number, Box::pin(tokio::time::sleep(limit))));
        }
    }

    fn poll_event(&mut self, need: &mut Need, cx: &mut Context<'_>) -> Poll<Event> {
        if let Some(event) = self.poll_requests(need, cx) {
            return Poll::Ready(event);
        }
        let unsent = self.unsent();
        let travels = self.travels(need);
        if let Err(event) = self.poll_output(travels, cx) {
            return Poll::Ready(event);
        }
        match need {
            Need::Input { missing } => {
                if self.unsent() >= OUTPUT_BYTES_MAX {
                    return Poll::Pending;
                }
                if *missing > 0 {
                    self.make_room((*missing).min(KEEP_BYTES));
                }
                let input = self.poll_input(travels, cx);
                if input.is_ready() {
                    self.line.borrow_mut().arrived.get_or_insert_with(Instant::now);
                }
                if input.is_pending() {
                    self.poll_spare(cx);
                }
                // A client of whom something is on its way does something.
                let is_idle = input.is_pending() && !self.line.borrow().is_coming();
                match &mut self.idle_limit {
                    Some(limit) if is_idle => limit.as_mut().poll(cx).map(|()| Event::IdleTimeout),
                    _ => input,
                }
            }
            Need::Room if self.unsent() < OUTPUT_BYTES_MAX => Poll::Ready(Event::GoOn),
            Need::Room => self.poll_unread(self.unsent() < unsent, cx),
            Need::Turn => Poll::Ready(match self.poll_while_blocked(cx) {
                Poll::Ready(event) => event,
                Poll::Pending => Event::GoOn,
            }),
            Need::Wait(blocked) => self.poll_blocked(blocked, cx),
            Need::Place(place) => match place.as_mut().poll(cx) {
                Poll::Ready(place) => {
                    self.place = Some(place);
                    Poll::Ready(Event::GoOn)
                }
                Poll::Pending => self.poll_while_blocked(cx),
            },
            Need::Farewell if self.unsent() == 0 && self.line.borrow().is_flushed => Poll::Ready(Event::GoOn),
            Need::Farewell => Poll::Pending,
        }
    }

    /// Requests, and answers to them, travel with those of others, if others are served too; not those of a pipeline, and not if others may wait for
    /// this session's locks.
    fn travels(&self, need: &Need) -> Travels {
        let has_own = self.is_pipelining || SERVED_LAST.get().1 >= LONE_TURNS;
        let is_quiet = |conversation: &Conversation| !conversation.is_copying() && !conversation.has_open_transaction();
        match need {
            Need::Input { .. } if !has_own && self.conversation.as_ref().is_some_and(is_quiet) => Travels::WithOthers,
            _ => Travels::Now,
        }
    }

    /// Gives back what no statement has used for a while.
    fn poll_spare(&mut self, cx: &mut Context<'_>) {
        let begun = self.conversation().statements_begun();
        while let Some((number, limit)) = &mut self.spare_limit
            && limit.as_mut().poll(cx).is_ready()
        {
            if *number == begun {
                self.spare_limit = None;
                self.give_spare_back();
            } else {
                *number = begun;
                limit.as_mut().reset(tokio::time::Instant::now() + SPARE_KEPT);
            }
        }
    }

    fn give_spare_back(&mut self) {
        self.line.borrow_mut().give_spare_back();
        self.conversation().give_spare_back();
        self.empty_input();
    }

    /// Gives the input's memory back, if nothing is in it.
    fn empty_input(&mut self) {
        if self.input.is_empty() {
            (self.input, self.input_bytes) = (BytesMut::new(), 0);
        }
    }

    /// Makes room for so much more input.
    fn make_room(&mut self, bytes: usize) {
        self.input.reserve(bytes);
        self.input_bytes = self.input_bytes.max(self.input.capacity());
    }

    fn poll_requests(&mut self, need: &Need, cx: &mut Context<'_>) -> Option<Event> {
        if matches!(need, Need::Farewell) {
            return None;
        }
        let signal = &self.membership.signal;
        signal.register(cx.waker());
        if signal.is_set(Request::Terminate) {
            return Some(Event::Terminate);
        }
        if matches!(need, Need::Input { .. }) && signal.is_set(Request::Leave) && self.has_nothing_open() {
            return Some(Event::Terminate);
        }
        let signal = &self.membership.signal;
        if signal.is_set(Request::Cancel) {
            signal.clear(Request::Cancel);
            let can_fail = match need {
                Need::Wait(_) | Need::Place(_) => true,
                Need::Room => self.can_cancel_sending(),
                _ => self.is_copying(),
            };
            if can_fail {
                return Some(Event::Cancel);
            }
        }
        if signal.is_set(Request::Hear) {
            // Whoever is busy looks when it is not.
            signal.clear(Request::Hear);
            return matches!(need, Need::Input { .. }).then_some(Event::GoOn);
        }
        None
    }

    /// No transaction, no message that has begun to come: the session can end without a loss.
    fn has_nothing_open(&mut self) -> bool {
        let input_is_empty = self.input.is_empty();
        let conversation = self.conversation();
        input_is_empty && !conversation.is_copying() && !conversation.has_open_transaction()
    }

    /// Writes what may leave. While a wait for the horizon is under way nothing is written: what may leave already leaves
    /// with the rest.
    fn poll_output(&mut self, travels: Travels, cx: &mut Context<'_>) -> Result<(), Event> {
        turn::send_overdue();
        let engine = &self.shared.engine;
        let mut line = self.line.borrow_mut();
        while line.output.unsent() > 0 {
            if let Some(wait) = &mut self.durable {
                match Pin::new(wait).poll(cx) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(())) => {
                        self.durable = None;
                        self.tell_awaits_log(false);
                    }
                    Poll::Ready(Err(error)) => return Err(log_failed(error)),
                }
            } else if let Some(cts) = line.output.waits_for(|cts| engine.is_durable(cts)) {
                let wait = engine.wait_durable(cts);
                self.tell_awaits_log(true);
                flush_if_lone(&wait);
                self.durable = Some(wait);
                continue;
            }
            // Moves the end of what may leave.
            line.output.waits_for(|cts| engine.is_durable(cts));
            if travels == Travels::WithOthers {
                drop(line);
                let leaves = leaves_with_others(&self.line, cx);
                line = self.line.borrow_mut();
                if leaves && line.output.waits_for(|cts| engine.is_durable(cts)).is_none() {
                    return Ok(());
                }
                if leaves {
                    // What is behind that has its own wait to begin: nobody else wakes the session for it.
                    continue;
                }
            }
            line.poll_write(cx).map_err(|_| Event::Gone)?;
            if !line.output.releasable().is_empty() {
                return Ok(());
            }
            if line.output.unsent() == 0
                && let Some(arrived) = line.arrived.take()
            {
                self.shared.activity.latency.add(arrived.elapsed());
            }
        }
        line.poll_flush(cx).map_err(|_| Event::Gone)
    }

    fn poll_input(&mut self, travels: Travels, cx: &mut Context<'_>) -> Poll<Event> {
        if self.input_bytes > KEEP_BYTES {
            self.empty_input();
        }
        if self.line.borrow_mut().take_received(&mut self.input) {
            self.input_bytes = self.input_bytes.max(self.input.capacity());
            return Poll::Ready(Event::GoOn);
        }
        if travels == Travels::WithOthers && self.input.is_empty() {
            // What goes wrong here does so again for who reads.
            let _ = ready!(self.line.borrow().socket.poll_read_ready(cx));
            if comes_with_others(&self.line, cx) {
                return Poll::Pending;
            }
        }
        self.make_room(if self.input.is_empty() { READ_BYTES } else { ROOM_BYTES });
        let read = ready!(poll_read_buf(Pin::new(&mut self.line.borrow_mut().socket), cx, &mut self.input));
        Poll::Ready(match read {
            Ok(0) | Err(_) => Event::Gone,
            Ok(_) => Event::GoOn,
        })
    }

    fn poll_blocked(&mut self, blocked: &mut Blocked, cx: &mut Context<'_>) -> Poll<Event> {
        if blocked.is_over {
            return Poll::Ready(Event::GoOn);
        }
        let is_first = !std::mem::replace(&mut blocked.was_polled, true);
        if Pin::new(&mut blocked.wait).poll(cx).is_ready() {
            if !is_first {
                return Poll::Ready(Event::GoOn);
            }
            // Over at once: it goes on behind the other sessions, so that neither they nor its own limits are kept from their turn by one
            // that never gets what it waits for.
            blocked.is_over = true;
            cx.waker().wake_by_ref();
        }
        if let Some(limit) = &mut blocked.lock_limit
            && limit.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Event::LockTimeout);
        }
        self.poll_while_blocked(cx)
    }

    /// What ends the wait for a client that does not read; each part that it takes gives it more time to do something.
    fn poll_unread(&mut self, has_read: bool, cx: &mut Context<'_>) -> Poll<Event> {
        if has_read && self.idle_limit.is_some() {
            self.idle_limit = self.new_idle_limit();
        }
        if let Some((_, limit)) = &mut self.statement_limit
            && limit.as_mut().poll(cx).is_ready()
        {
            self.statement_limit = None;
            return Poll::Ready(Event::StatementTimeout);
        }
        if self.poll_snapshot(cx) {
            return Poll::Ready(Event::SnapshotEnded);
        }
        match &mut self.idle_limit {
            Some(limit) => limit.as_mut().poll(cx).map(|()| Event::IdleTimeout),
            None => Poll::Pending,
        }
    }

    /// Whether the snapshot of the statement whose rows are sent was ended. Its session does nothing meanwhile that would tell it, and what the snapshot
    /// keeps is kept for as long as nobody has noticed.
    fn poll_snapshot(&mut self, cx: &mut Context<'_>) -> bool {
        if self.snapshot_look.is_some() && !self.conversation().reads_on() {
            self.snapshot_look = None;
        }
        while let Some(look) = &mut self.snapshot_look
            && look.as_mut().poll(cx).is_ready()
        {
            look.as_mut().reset(tokio::time::Instant::now() + SNAPSHOT_LOOK);
            if self.conversation().session().check_snapshot().is_err() {
                self.snapshot_look = None;
                return true;
            }
        }
        false
    }

    /// What may end any wait of a statement.
    fn poll_while_blocked(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if let Some((_, limit)) = &mut self.statement_limit
            && limit.as_mut().poll(cx).is_ready()
        {
            self.statement_limit = None;
            return Poll::Ready(Event::StatementTimeout);
        }
        if self.poll_snapshot(cx) {
            return Poll::Ready(Event::SnapshotEnded);
        }
        while self.input.len() < READ_AHEAD_BYTES {
            if let Event::Gone = ready!(self.poll_input(Travels::Now, cx)) {
                return Poll::Ready(Event::Gone);
            }
        }
        if self.poll_hang_up(cx) { Poll::Ready(Event::Gone) } else { Poll::Pending }
    }

    /// Whether a client has gone whose input is read no further: its end stands behind what lies unread, where no read finds it.
    fn poll_hang_up(&mut self, cx: &mut Context<'_>) -> bool {
        if self.input.len() < READ_AHEAD_BYTES {
            return false;
        }
        let look = self.hang_up_look.get_or_insert_with(|| Box::pin(tokio::time::sleep(HANG_UP_LOOK)));
        while look.as_mut().poll(cx).is_ready() {
            look.as_mut().reset(tokio::time::Instant::now() + HANG_UP_LOOK);
            if self.line.borrow().socket.has_hung_up() {
                return true;
            }
        }
        false
    }
}

fn log_slow(slow: &Slow<'_>) {
    let took_ms = slow.took.as_secs_f64() * 1e3;
    tracing::info!(
        target: "statement",
        pid = slow.pid,
        user = slow.user,
        database = slow.database,
        duration_ms = took_ms,
        "duration: {took_ms:.3} ms  statement: {}",
        slow.statement
    );
}

fn log_failed(error: Error) -> Event {
    Event::LogFailed(match error {
        Error::LogFailed(reason) => reason,
        other => format!("the commit did not become durable: {other:?}"),
    })
}
