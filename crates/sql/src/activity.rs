//! Who is connected, and what are they doing? For `pg_stat_activity`, and for those who cancel or end another's statement.
//!
//! 1. A member's state is written by its own session, at the beginning and the end of a statement. Statements that take the shortest way (one
//!    row by its key, in a transaction of its own) are over before anybody could look, and are not noted.
//! 2. What its server waits for with it, as for its client to read, the server notes, where the wait begins and where it ends ([`Awaits`]).
//! 3. What is asked of a member goes through whoever serves it: nothing here knows of sockets.

use crate::channel::Channels;
use crate::counts::AllCounts;
use crate::latency::Latency;
use crate::session::TransactionStatus;
use crate::settings::Defaults;
use crate::statements::Statements;
use freshet_engine::catalog::RoleId;
use freshet_engine::ids::Cts;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// As much of a statement's text as is shown.
const QUERY_BYTES_MAX: usize = 1024;

/// What can be asked of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// To end its statement.
    Cancel,
    /// To end.
    Terminate,
    /// To look at what was said on its channels.
    Hear,
}

type Asker = Box<dyn Fn(Ask) + Send + Sync>;

/// What a session does.
#[derive(Clone, Debug, Default)]
pub struct Doing {
    pub application_name: String,
    pub is_active: bool,
    /// Its statement sleeps (`pg_sleep`).
    pub is_sleeping: bool,
    pub status: Option<TransactionStatus>,
    /// Microseconds, as the clock's; `None`: not since the session began.
    pub transaction_start: Option<i64>,
    pub query_start: Option<i64>,
    pub state_change: Option<i64>,
    pub query: String,
}

impl Doing {
    /// As pg_stat_activity names it.
    pub fn state(&self) -> &'static str {
        match self.status {
            _ if self.is_active => "active",
            Some(TransactionStatus::Open) => "idle in transaction",
            Some(TransactionStatus::Failed) => "idle in transaction (aborted)",
            _ => "idle",
        }
    }
}

/// What a session waits for that only its server knows of.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Awaits {
    #[default]
    Nothing,
    /// The client is to send rows.
    ClientRead,
    /// The client is to take what it asked for.
    ClientWrite,
    /// A place for a long statement.
    Place,
}

/// A session that is connected.
pub struct Member {
    pub pid: i32,
    /// Who logged in, and the name it said: the role may be called otherwise since.
    pub role: RoleId,
    pub user: String,
    pub database: String,
    pub start: i64,
    /// Where its client is, over TCP.
    client: OnceLock<SocketAddr>,
    doing: Mutex<Doing>,
    awaits: AtomicU8,
    /// Its answer leaves when the log is durable so far.
    awaits_log: AtomicBool,
    asker: RwLock<Option<Asker>>,
}

impl Member {
    pub fn doing(&self) -> Doing {
        self.doing.lock().clone()
    }

    pub fn client(&self) -> Option<SocketAddr> {
        self.client.get().copied()
    }

    pub(crate) fn set_client(&self, client: SocketAddr) {
        // A session has one.
        let _ = self.client.set(client);
    }

    pub fn awaits(&self) -> Awaits {
        let all = [Awaits::ClientRead, Awaits::ClientWrite, Awaits::Place];
        let told = self.awaits.load(Ordering::Relaxed);
        all.into_iter().find(|awaits| *awaits as u8 == told).unwrap_or_default()
    }

    pub fn set_awaits(&self, awaits: Awaits) {
        self.awaits.store(awaits as u8, Ordering::Relaxed);
    }

    pub fn awaits_log(&self) -> bool {
        self.awaits_log.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn set_awaits_log(&self, awaits: bool) {
        self.awaits_log.store(awaits, Ordering::Relaxed);
    }

    pub(crate) fn started(&self, now: i64, sql: &str) {
        let mut doing = self.doing.lock();
        doing.is_active = true;
        doing.transaction_start.get_or_insert(now);
        (doing.query_start, doing.state_change) = (Some(now), Some(now));
        let shown = &sql[..sql.floor_char_boundary(QUERY_BYTES_MAX)];
        if doing.query != shown {
            doing.query.clear();
            doing.query.push_str(shown);
        }
    }

    pub(crate) fn ended(&self, now: i64, status: TransactionStatus) {
        let mut doing = self.doing.lock();
        (doing.is_active, doing.status, doing.state_change) = (false, Some(status), Some(now));
        doing.is_sleeping = false;
        if status == TransactionStatus::Idle {
            doing.transaction_start = None;
        }
    }

    pub(crate) fn set_sleeping(&self, is_sleeping: bool) {
        self.doing.lock().is_sleeping = is_sleeping;
    }

    pub(crate) fn set_application_name(&self, name: &str) {
        self.doing.lock().application_name = name.to_owned();
    }
}

/// The sessions of a database that a server serves, by their process numbers.
#[derive(Default)]
pub struct Activity {
    opened: Opened,
    members: Mutex<BTreeMap<i32, Arc<Member>>>,
    /// Sessions that a server ever served.
    joined: AtomicU64,
    /// The last number that a transaction was given.
    numbered: AtomicU64,
    /// What all sessions have done, those of the program itself included.
    pub counts: Arc<AllCounts>,
    pub statements: Statements,
    pub(crate) channels: Channels,
    /// How long the clients of a server waited.
    pub latency: Latency,
    /// Settings of the server's configuration, and how often they changed.
    defaults: Mutex<Defaults>,
    defaults_version: AtomicU64,
}

struct Opened(i64);

impl Default for Opened {
    fn default() -> Opened {
        Opened(crate::session::now())
    }
}

impl std::fmt::Debug for Activity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Activity({})", self.members.lock().len())
    }
}

impl Activity {
    /// When the database was opened, as the clock has it.
    pub fn opened_us(&self) -> i64 {
        self.opened.0
    }

    /// A number that no other transaction of this database has: above each one's that asked before, and above the newest commit's, which is above those
    /// of earlier runs.
    pub(crate) fn number_transaction(&self, newest: Cts) -> i64 {
        let next = |last: u64| (last + 1).max(newest.0);
        let before = self.numbered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        next(before.unwrap_or_else(|last| last)) as i64
    }

    /// Whether somebody hears what is asked of this session.
    pub(crate) fn is_served(&self, pid: i32) -> bool {
        self.members.lock().get(&pid).is_some_and(|member| member.asker.read().is_some())
    }

    pub(crate) fn join(&self, pid: i32, role: RoleId, user: &str, database: &str, now: i64) -> Arc<Member> {
        let member = Arc::new(Member {
            pid,
            role,
            user: user.to_owned(),
            database: database.to_owned(),
            start: now,
            client: OnceLock::new(),
            doing: Mutex::default(),
            awaits: AtomicU8::new(Awaits::Nothing as u8),
            awaits_log: AtomicBool::new(false),
            asker: RwLock::new(None),
        });
        self.joined.fetch_add(1, Ordering::Relaxed);
        self.members.lock().insert(pid, member.clone());
        member
    }

    /// Sessions that a server ever served.
    pub fn joined(&self) -> u64 {
        self.joined.load(Ordering::Relaxed)
    }

    /// From now on sessions have these where nobody sets anything else; those that are there, from their next look on.
    pub fn set_defaults(&self, defaults: Defaults) {
        *self.defaults.lock() = defaults;
        self.defaults_version.fetch_add(1, Ordering::Release);
    }

    #[inline]
    pub(crate) fn defaults_version(&self) -> u64 {
        self.defaults_version.load(Ordering::Relaxed)
    }

    pub(crate) fn defaults(&self) -> (u64, Defaults) {
        // The version first: who meets newer defaults with it looks again.
        let version = self.defaults_version.load(Ordering::Acquire);
        (version, self.defaults.lock().clone())
    }

    pub(crate) fn leave(&self, member: &Arc<Member>) {
        let mut members = self.members.lock();
        if members.get(&member.pid).is_some_and(|known| Arc::ptr_eq(known, member)) {
            members.remove(&member.pid);
        }
    }

    pub fn members(&self) -> Vec<Arc<Member>> {
        self.members.lock().values().cloned().collect()
    }

    /// Asks the session of this number; false if there is none.
    pub fn ask(&self, pid: i32, what: Ask) -> bool {
        let member = self.members.lock().get(&pid).cloned();
        let Some(member) = member else { return false };
        match member.asker.read().as_ref() {
            Some(asker) => {
                asker(what);
                true
            }
            None => false,
        }
    }

    pub(crate) fn serve(&self, member: &Member, asker: Asker) {
        *member.asker.write() = Some(asker);
    }
}
