//! Who hears what is said on a channel? NOTIFY's messages, from the commit of one session to the idle moments of others.
//!
//! A session collects what its transaction says and which channels it asks for ([`Hearing`]); its commit gives the messages to the mailboxes of those who
//! listen ([`Channels`]); each session takes what is in its own when no transaction of its is open. Nothing is kept on disk: as in PostgreSQL, who is not
//! connected hears nothing.
//!
//! Invariants:
//! 1. What a transaction says is heard if it commits, by every session that listened before that, and once however often the same is said.
//! 2. Messages are heard in the order of their transactions' commits: who has something to say holds [`Channels::speak`]'s latch over its commit.
//! 3. A message tells with `cts` what it depends on: a client is told no sooner than that is durable.
//! 4. Messages that wait for their sessions take [`WAITING_BYTES_MAX`] at most; a transaction that would say more than there is room for does not commit.

use crate::activity::{Activity, Ask};
use crate::error::SqlError;
use freshet_engine::ids::Cts;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// What may wait in all mailboxes together: a session that listens and never ends its transaction hears nothing, and keeps all.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// A message's own memory beside its texts, about.
const MESSAGE_BYTES: usize = 96;

/// PostgreSQL's limits: a name's, and a page less its head.
const CHANNEL_BYTES_MAX: usize = 63;
const PAYLOAD_BYTES_MAX: usize = 7_999;

/// What a transaction says.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Said {
    channel: Box<str>,
    payload: Box<str>,
}

/// What a session hears.
#[derive(Clone, Debug)]
pub struct Notification {
    said: Arc<Said>,
    /// The process number of the session that said it.
    pub pid: i32,
    /// What the client may be told no sooner than this is durable.
    pub cts: Cts,
}

impl Notification {
    pub fn channel(&self) -> &str {
        &self.said.channel
    }

    pub fn payload(&self) -> &str {
        &self.said.payload
    }

    fn bytes(&self) -> usize {
        self.said.channel.len() + self.said.payload.len() + MESSAGE_BYTES
    }
}

/// What one session has not been told yet.
#[derive(Default)]
struct Mailbox {
    /// 0: of no server.
    pid: AtomicI32,
    waiting: Mutex<VecDeque<Notification>>,
    has_any: AtomicBool,
}

/// The channels of a database.
#[derive(Default)]
pub(crate) struct Channels {
    listeners: Mutex<HashMap<Box<str>, Vec<Arc<Mailbox>>>>,
    waiting_bytes: AtomicUsize,
    speaking: Mutex<()>,
}

impl Channels {
    /// Whoever commits something to say holds this meanwhile.
    pub fn speak(&self) -> MutexGuard<'_, ()> {
        self.speaking.lock()
    }

    fn listen(&self, channel: &str, mailbox: &Arc<Mailbox>) {
        let mut listeners = self.listeners.lock();
        listeners.entry(channel.into()).or_default().push(mailbox.clone());
    }

    fn unlisten(&self, channel: &str, mailbox: &Arc<Mailbox>) {
        let mut listeners = self.listeners.lock();
        let Some(of_channel) = listeners.get_mut(channel) else { return };
        of_channel.retain(|other| !Arc::ptr_eq(other, mailbox));
        if of_channel.is_empty() {
            listeners.remove(channel);
        }
    }

    /// Gives the messages to all who listen, and gives those whom a server has to wake.
    fn give(&self, said: Vec<Arc<Said>>, pid: i32, cts: Cts) -> BTreeSet<i32> {
        let listeners = self.listeners.lock();
        let mut woken = BTreeSet::new();
        for said in said {
            for mailbox in listeners.get(&said.channel).into_iter().flatten() {
                let notification = Notification { said: said.clone(), pid, cts };
                self.waiting_bytes.fetch_add(notification.bytes(), Ordering::Relaxed);
                let mut waiting = mailbox.waiting.lock();
                waiting.push_back(notification);
                mailbox.has_any.store(true, Ordering::Release);
                woken.insert(mailbox.pid.load(Ordering::Relaxed));
            }
        }
        woken.remove(&0);
        woken
    }

    /// The bytes that such messages would take.
    fn needed(&self, said: &[Arc<Said>]) -> usize {
        let listeners = self.listeners.lock();
        let bytes = |said: &Arc<Said>| {
            let heard_by = listeners.get(&said.channel).map_or(0, Vec::len);
            heard_by * (said.channel.len() + said.payload.len() + MESSAGE_BYTES)
        };
        said.iter().map(bytes).sum()
    }
}

enum Asked {
    Listen(Box<str>),
    /// `None`: all of them.
    Unlisten(Option<Box<str>>),
}

/// What the open transaction asks and says.
#[derive(Default)]
struct Turn {
    asked: Vec<Asked>,
    said: Vec<Arc<Said>>,
    known: HashSet<Arc<Said>>,
    /// How much had been said when the statement began that runs: it says that anew if it runs again.
    before_statement: usize,
}

impl Turn {
    fn truncate(&mut self, mark: Mark) {
        self.asked.truncate(mark.asked);
        for gone in self.said.drain(mark.said.min(self.said.len())..) {
            self.known.remove(&gone);
        }
    }
}

/// Where a savepoint stands among them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Mark {
    asked: usize,
    said: usize,
}

/// A session's part in the channels.
#[derive(Default)]
pub(crate) struct Hearing {
    mailbox: Arc<Mailbox>,
    /// Whether the open transaction may have asked or said anything: looked at before each commit.
    is_busy: AtomicBool,
    listens: Mutex<BTreeSet<Box<str>>>,
    turn: Mutex<Turn>,
}

impl std::fmt::Debug for Hearing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hearing({:?})", self.listens.lock())
    }
}

impl Hearing {
    /// Whom a server wakes by this process number.
    pub fn identify(&self, pid: i32) {
        self.mailbox.pid.store(pid, Ordering::Relaxed);
    }

    pub fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Relaxed)
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.is_busy.store(true, Ordering::Relaxed);
        self.turn.lock()
    }

    fn end_turn(&self) -> Turn {
        let turn = std::mem::take(&mut *self.turn.lock());
        self.is_busy.store(false, Ordering::Relaxed);
        turn
    }

    pub fn ask_to_listen(&self, channel: &str) {
        self.turn().asked.push(Asked::Listen(channel.into()));
    }

    /// `None`: on all channels.
    pub fn ask_to_unlisten(&self, channel: Option<&str>) {
        self.turn().asked.push(Asked::Unlisten(channel.map(Into::into)));
    }

    pub fn say(&self, channel: &str, payload: &str) -> Result<(), SqlError> {
        let invalid = |message| Err(SqlError::new("22023", message));
        if channel.is_empty() {
            return invalid("channel name cannot be empty");
        }
        if channel.len() > CHANNEL_BYTES_MAX {
            return invalid("channel name too long");
        }
        if payload.len() > PAYLOAD_BYTES_MAX {
            return invalid("payload string too long");
        }
        let said = Arc::new(Said { channel: channel.into(), payload: payload.into() });
        let mut turn = self.turn();
        if turn.known.insert(said.clone()) {
            turn.said.push(said);
        }
        Ok(())
    }

    pub fn has_said(&self) -> bool {
        !self.turn.lock().said.is_empty()
    }

    pub fn mark(&self) -> Mark {
        let turn = self.turn.lock();
        Mark { asked: turn.asked.len(), said: turn.said.len() }
    }

    /// Forgets what was asked and said since.
    pub fn return_to(&self, mark: Mark) {
        self.turn.lock().truncate(mark);
    }

    /// A statement begins.
    pub fn begin_statement(&self) {
        let mut turn = self.turn.lock();
        turn.before_statement = turn.said.len();
    }

    /// The statement runs, perhaps once more.
    pub fn begin_run(&self) {
        let mut turn = self.turn.lock();
        let mark = Mark { asked: turn.asked.len(), said: turn.before_statement };
        turn.truncate(mark);
    }

    /// 54000 where the mailboxes have no room for what the transaction says.
    pub fn check_room(&self, channels: &Channels) -> Result<(), SqlError> {
        let needed = channels.needed(&self.turn.lock().said);
        if channels.waiting_bytes.load(Ordering::Relaxed) + needed > WAITING_BYTES_MAX {
            return Err(SqlError::new("54000", "too many notifications in the NOTIFY queue"));
        }
        Ok(())
    }

    /// The transaction has committed, as of `cts`: what it asked for holds, and what it said is heard.
    pub fn commit(&self, activity: &Activity, cts: Cts) {
        let turn = self.end_turn();
        let mut listens = self.listens.lock();
        for asked in turn.asked {
            match asked {
                Asked::Listen(channel) => {
                    if listens.insert(channel.clone()) {
                        activity.channels.listen(&channel, &self.mailbox);
                    }
                }
                Asked::Unlisten(Some(channel)) => {
                    if listens.remove(&channel) {
                        activity.channels.unlisten(&channel, &self.mailbox);
                    }
                }
                Asked::Unlisten(None) => {
                    for channel in std::mem::take(&mut *listens) {
                        activity.channels.unlisten(&channel, &self.mailbox);
                    }
                }
            }
        }
        drop(listens);
        let pid = self.mailbox.pid.load(Ordering::Relaxed);
        for other in activity.channels.give(turn.said, pid, cts) {
            activity.ask(other, Ask::Hear);
        }
    }

    pub fn roll_back(&self) {
        self.end_turn();
    }

    /// In the order of their names.
    pub fn channels(&self) -> Vec<String> {
        self.listens.lock().iter().map(|channel| channel.to_string()).collect()
    }

    pub fn has_any(&self) -> bool {
        self.mailbox.has_any.load(Ordering::Acquire)
    }

    /// What was said to the session since it was told last.
    pub fn take(&self, channels: &Channels) -> Vec<Notification> {
        let mut waiting = self.mailbox.waiting.lock();
        self.mailbox.has_any.store(false, Ordering::Release);
        let taken: Vec<Notification> = std::mem::take(&mut *waiting).into();
        channels.waiting_bytes.fetch_sub(taken.iter().map(Notification::bytes).sum(), Ordering::Relaxed);
        taken
    }

    /// The session ends.
    pub fn leave(&self, channels: &Channels) {
        self.roll_back();
        for channel in std::mem::take(&mut *self.listens.lock()) {
            channels.unlisten(&channel, &self.mailbox);
        }
        self.take(channels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(hearing: &Hearing, activity: &Activity) -> Vec<String> {
        let taken = hearing.take(&activity.channels);
        taken.iter().map(|n| format!("{}:{}", n.channel(), n.payload())).collect()
    }

    fn listening(activity: &Activity, channel: &str) -> Hearing {
        let hearing = Hearing::default();
        hearing.ask_to_listen(channel);
        hearing.commit(activity, Cts::ZERO);
        hearing
    }

    #[test]
    fn what_commits_is_heard_once_in_order() {
        let activity = Activity::default();
        let (a, b) = (listening(&activity, "x"), listening(&activity, "y"));
        for (channel, payload) in [("x", "1"), ("y", "1"), ("x", "2"), ("x", "1"), ("z", "1")] {
            b.say(channel, payload).expect("short");
        }
        assert!(!a.has_any());
        b.commit(&activity, Cts::ZERO);
        assert_eq!(texts(&a, &activity), ["x:1", "x:2"]);
        assert_eq!(texts(&b, &activity), ["y:1"]);
        assert!(texts(&a, &activity).is_empty());
        assert_eq!(activity.channels.waiting_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_rolled_back_was_never_said() {
        let activity = Activity::default();
        let a = listening(&activity, "x");
        a.say("x", "kept").expect("short");
        let mark = a.mark();
        a.say("x", "gone").expect("short");
        a.ask_to_unlisten(None);
        a.return_to(mark);
        a.say("x", "gone").expect("short");
        a.return_to(mark);
        a.begin_statement();
        a.say("x", "first run").expect("short");
        a.begin_run();
        a.say("x", "second run").expect("short");
        a.commit(&activity, Cts::ZERO);
        assert_eq!(texts(&a, &activity), ["x:kept", "x:second run"]);
        a.say("x", "gone").expect("short");
        a.roll_back();
        a.commit(&activity, Cts::ZERO);
        assert!(texts(&a, &activity).is_empty());
    }

    #[test]
    fn a_full_queue_refuses_a_commit_and_an_end_empties_it() {
        let activity = Activity::default();
        let a = listening(&activity, "x");
        let speaker = Hearing::default();
        let payload = "p".repeat(PAYLOAD_BYTES_MAX);
        let mut rounds = 0;
        let refused = loop {
            speaker.say("x", &payload).expect("as long as may be");
            match speaker.check_room(&activity.channels) {
                Ok(()) => speaker.commit(&activity, Cts::ZERO),
                Err(error) => break error,
            }
            rounds += 1;
        };
        assert_eq!(refused.sqlstate, "54000");
        assert!(rounds * PAYLOAD_BYTES_MAX < WAITING_BYTES_MAX && rounds > 8_000, "{rounds}");
        a.leave(&activity.channels);
        assert_eq!(activity.channels.waiting_bytes.load(Ordering::Relaxed), 0);
        assert!(activity.channels.listeners.lock().is_empty());
        speaker.check_room(&activity.channels).expect("nobody listens");
    }

    #[test]
    fn what_is_too_long_or_nameless_is_refused() {
        let hearing = Hearing::default();
        for (channel, payload) in [("", "x"), (&*"c".repeat(64), "x"), ("x", &*"p".repeat(8_000))] {
            assert_eq!(hearing.say(channel, payload).expect_err("a limit").sqlstate, "22023");
        }
    }
}
