//! The systems under test: what a workload may ask of any of them, and who can answer.
//!
//! | module | adapter | how |
//! |---|---|---|
//! | [`sql`] | | statements as text, for every adapter that speaks SQL |
//! | `ahead` | | what our embedded drivers know before it runs |
//! | [`freshet`] | `freshet` | embedded, prepared SQL through the public API |
//! | [`native`] | `freshet-native` | the engine's row API, without SQL |
//! | [`sqlite`] | `sqlite` | SQLite in this process |
//! | [`redb`] | `redb` | a key-value store in this process |
//! | [`child`], [`wire`] | | servers in processes of their own, and how they are asked |
//! | [`freshet_wire`] | `freshet-wire` | our server over loopback, tokio-postgres |
//! | [`postgres`] | `postgres` | PostgreSQL over loopback, tokio-postgres |
//!
//! A workload says *what* ([`Op`], by table, index and key); an adapter knows how its system says it. Rules that make figures comparable:
//!
//! 1. One operation is one transaction, unless it is [`Op::Transaction`].
//! 2. A session is one connection: its operations run one after another, and its next one is submitted only after its last one
//!    was answered. Sessions run at the same time as far as the system can.
//! 3. An operation is answered when the system would tell its client so: a durable driver answers when the commit is on the device.
//! 4. [`Answer`]s are what the system said, never what was asked for: the oracle compares the two.
//! 5. A system keeps all data in memory (its cache is as large) and its log on the devices of the plan: one that has one log on the first of
//!    them, one whose log lies with its data all of it there ([`Setup::one_place`]).

mod ahead;
pub mod freshet;
pub mod native;
#[cfg(feature = "peers")]
pub mod redb;
pub mod sql;
#[cfg(feature = "peers")]
pub mod sqlite;
pub mod child;
pub mod wire;
pub mod freshet_wire;
pub mod shipped;
pub mod postgres;

use crate::device::LogFiles;
use crate::error::{BenchError, on};
use crate::log_plan::LogPlan;
use crate::shape::{IndexShape, TableShape};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

/// How a system is set up. Every adapter asserts that it is.
#[derive(Clone, Debug)]
pub struct Setup {
    /// An empty directory of its own.
    pub dir: PathBuf,
    pub log: LogPlan,
    pub memory_bytes: u64,
    /// Sessions of all drivers together, at most.
    pub sessions_max: usize,
    /// Connections of one driver, at most, where there are connections: sessions beyond share them.
    pub connections: usize,
    /// The log's files, where it does not lie on directories.
    pub log_files: Option<LogFiles>,
    /// Where a server's socket file lies, if it has one: a short path.
    pub socket: Option<PathBuf>,
}

impl Setup {
    pub fn new(dir: PathBuf, log: LogPlan, memory_bytes: u64, sessions_max: usize) -> Result<Setup, BenchError> {
        let log_files = log.files(&dir)?;
        Ok(Setup { dir, log, memory_bytes, sessions_max, connections: CONNECTIONS_USUAL, log_files, socket: None })
    }

    /// Where a system lies that has its data and its log in one place: with the log, if that was given a directory.
    pub fn one_place(&self) -> Result<PathBuf, BenchError> {
        let place = match &self.log {
            LogPlan::Directories(_) => self.log.directories(&self.dir).swap_remove(0),
            _ => self.dir.clone(),
        };
        std::fs::create_dir_all(&place).map_err(on(&place))?;
        Ok(place)
    }

    /// Modelled devices take their time from now on, or no more. Before, the log's files that are made ahead are made.
    pub fn engage(&self, engaged: bool) {
        if let (Some(LogFiles::Modelled(io)), true) = (&self.log_files, engaged) {
            io.settle();
        }
        self.log.engage(engaged);
    }
}

/// Enough that a server with a process for each is at its best.
pub const CONNECTIONS_USUAL: usize = 32;

/// One thing to do. Keys are values of the index's column.
#[derive(Clone, Copy, Debug)]
pub enum Op<'a> {
    /// The row with this key (any of them where the index is not unique, all if the system gives all).
    Search {
        table: usize,
        index: usize,
        key: i64,
        fetch: Fetch,
    },
    /// The rows of all these keys, in one statement.
    SearchMany {
        table: usize,
        index: usize,
        keys: &'a [i64],
    },
    /// Adds to `column` of the row with this key.
    Update {
        table: usize,
        index: usize,
        key: i64,
        column: usize,
        add: i64,
    },
    Insert {
        table: usize,
        cells: &'a [i64],
    },
    /// Inserts the table's row with this number.
    InsertRow {
        table: usize,
        id: u64,
    },
    Delete {
        table: usize,
        index: usize,
        key: i64,
    },
    /// The next `rows` rows in the order of a B+-tree, from this key on.
    Traverse {
        table: usize,
        index: usize,
        key: i64,
        rows: usize,
    },
    /// All of them in one transaction, one statement after another. Not nested.
    Transaction(&'a [Op<'a>]),
    /// The sum of the table's counters, over all rows.
    Sum {
        table: usize,
    },
}

/// What a search brings back of its row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fetch {
    Counter,
    Row,
}

/// What the system said.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Answer {
    /// Rows found or changed, of all statements.
    pub rows: u64,
    /// The sum of the counters that searches brought back, or that `Sum` counted.
    pub sum: i64,
}

impl Answer {
    pub fn add(&mut self, other: Answer) {
        self.rows += other.rows;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

pub enum Submitted {
    Done(Answer),
    /// The session is busy until [`Driver::completions`] names it.
    InFlight,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    pub session: usize,
    pub answer: Answer,
}

/// The sessions of one thread, `0..n`. Made on the thread that uses it.
pub trait Driver {
    /// Starts an operation on an idle session. It may block where the system gives a client no other way.
    fn submit(&mut self, session: usize, op: &Op<'_>) -> Result<Submitted, BenchError>;

    /// Appends those who were answered since; with `wait`, blocks until there is one. Never called with `wait` while nobody is busy.
    fn completions(&mut self, wait: bool, done: &mut Vec<Completion>) -> Result<(), BenchError>;
}

/// What a table holds, by a full scan.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Content {
    pub rows: u64,
    /// Of its counters.
    pub sum: i64,
}

/// What the system says about itself, as counted since it was opened. `None`: it does not tell.
#[derive(Clone, Copy, Default, Debug)]
pub struct Facts {
    /// Of commit records, without headers and padding of groups.
    pub log_bytes: Option<u64>,
    /// Headers and padding.
    pub log_overhead_bytes: Option<u64>,
    pub flushes: Option<u64>,
    pub checkpoints: Option<u64>,
    /// Of rows and their versions, and of indexes.
    pub table_bytes: Option<u64>,
    pub version_bytes: Option<u64>,
    pub index_bytes: Option<u64>,
}

impl Facts {
    /// With what a later stretch added to its counters; sizes are the later ones.
    pub fn grown_by(&self, before: &Facts, after: &Facts) -> Facts {
        let grown = |count: fn(&Facts) -> Option<u64>| {
            let ((own, before), after) = count(self).zip(count(before)).zip(count(after))?;
            Some(own + after.saturating_sub(before))
        };
        Facts {
            log_bytes: grown(|f| f.log_bytes),
            log_overhead_bytes: grown(|f| f.log_overhead_bytes),
            flushes: grown(|f| f.flushes),
            checkpoints: grown(|f| f.checkpoints),
            ..*after
        }
    }
}

/// Where a load is: rows done, for the progress bar.
pub struct Loading<'a> {
    pub table: usize,
    pub rows: std::ops::Range<u64>,
    pub threads: usize,
    pub done: &'a AtomicU64,
}

/// A running system with tables.
pub trait Adapter: Send + Sync {
    /// Makes the tables; called once, before all else.
    fn create(&mut self, tables: &[TableShape]) -> Result<(), BenchError>;

    /// Inserts the rows with these numbers as fast as the system can; durable when it returns.
    fn load(&self, loading: &Loading<'_>) -> Result<(), BenchError>;

    /// So many sessions for the calling thread; `durable` as in rule 3, otherwise answered at commit.
    fn driver<'a>(&'a self, sessions: usize, durable: bool) -> Result<Box<dyn Driver + 'a>, BenchError>;

    fn content(&self, table: usize) -> Result<Content, BenchError>;

    fn facts(&self) -> Facts;

    /// Images what changed, so that the log's files are recycled instead of made; ours only, which alone lies on modelled devices.
    fn checkpoint(&self) -> Result<(), BenchError> {
        Ok(())
    }

    /// Builds one more index over a table's rows; `false` if the system has no way to. It is the table's next one from then on.
    fn build_index(&mut self, _table: usize, _index: &IndexShape) -> Result<bool, BenchError> {
        Ok(false)
    }

    /// Memory of the process that holds the data, as far as it is resident; `None` where that is several processes.
    fn resident_bytes(&self) -> Option<u64> {
        Some(freshet_engine::mem::resident_bytes())
    }

    /// What the reader should know: settings, versions.
    fn note(&self) -> String {
        String::new()
    }
}

/// Why there is no such system here, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    pub reason: String,
    pub remedy: String,
}

impl Missing {
    /// What a run says that goes on without it.
    pub fn line(&self, name: &str) -> String {
        format!("{name}: left out: {self}")
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.reason, self.remedy)
    }
}

impl From<Missing> for BenchError {
    fn from(missing: Missing) -> BenchError {
        BenchError::Machine(missing.to_string())
    }
}

/// An adapter, not yet started.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    pub about: &'static str,
    pub is_available: fn() -> Result<(), Missing>,
    pub start: fn(&Setup) -> Result<Box<dyn Adapter>, BenchError>,
    /// Its data lie where its log does.
    pub is_in_one_place: bool,
    /// A table has its key and no other index.
    pub has_one_index: bool,
}

impl Kind {
    pub fn is_ours(&self) -> bool {
        self.name.starts_with("freshet")
    }
}

/// Every adapter, ours first.
pub const KINDS: &[Kind] = &[freshet::KIND, native::KIND, freshet_wire::KIND, SQLITE, REDB, postgres::KIND];

#[cfg(feature = "peers")]
const SQLITE: Kind = sqlite::KIND;
#[cfg(feature = "peers")]
const REDB: Kind = redb::KIND;
#[cfg(not(feature = "peers"))]
const SQLITE: Kind = left_out("sqlite", "SQLite embedded");
#[cfg(not(feature = "peers"))]
const REDB: Kind = left_out("redb", "redb embedded");

/// A peer that this program was built without.
#[cfg(not(feature = "peers"))]
const fn left_out(name: &'static str, about: &'static str) -> Kind {
    Kind {
        name,
        about,
        is_available: || {
            let remedy = "build with the feature `peers` (cargo build --release --features peers)".into();
            Err(Missing { reason: "this program was built without it".into(), remedy })
        },
        start: |_| Err(BenchError::Usage("this program was built without the peers".into())),
        is_in_one_place: true,
        has_one_index: false,
    }
}

/// The adapters of these names, or those of `usual` where none is named. An unknown name is answered with all names.
pub fn chosen(names: &[String], usual: &[&str]) -> Result<Vec<Kind>, BenchError> {
    let find = |name: &str| {
        KINDS.iter().copied().find(|kind| kind.name == name).ok_or_else(|| {
            let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
            BenchError::Usage(format!("there is no adapter {name}; there are: {}", known.join(", ")))
        })
    };
    match names {
        [] => usual.iter().map(|name| find(name)).collect(),
        names => names.iter().map(|name| find(name)).collect(),
    }
}

/// Runs `work` on so many threads; the first error wins.
pub fn on_threads<T: Send>(
    threads: usize,
    work: impl Fn(usize) -> Result<T, BenchError> + Sync,
) -> Result<Vec<T>, BenchError> {
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads.max(1)).map(|n| scope.spawn(move || work(n))).collect();
        running.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests;
