//! A SQL session: settings, the transaction's state as clients see it, prepare and execute in steps.
//!
//! Nothing here parks a thread: what must wait comes back as [`Step::Wait`], and the caller (a blocking API or an
//! event loop) resumes.
//!
//! | block | entered by | a statement | left by |
//! |---|---|---|---|
//! | none | | is a transaction of its own | |
//! | implicit | `begin_implicit` | runs in the block's transaction | `commit_implicit`, an error, BEGIN (becomes explicit) |
//! | explicit | BEGIN | runs in the block's transaction | COMMIT, ROLLBACK |
//! | failed | an error in an explicit block | is refused with 25P02 | COMMIT, ROLLBACK: both roll back; ROLLBACK TO |
//!
//! The engine's transaction starts with a block's first statement that needs one. DO ([`block`]) has statements of its own, within a block of this kind.
//!
//! What a reply waits for (DESIGN section 4): everything examined. [`Outcome::durable`] and [`Session::error_dependency`] tell it,
//! and are `None` where it is durable already, where the answer is provisional (a tag inside a block), or where the session
//! chose deferred commit.

mod block;
mod channel;
mod copy;
pub(crate) mod leftover;
pub mod listed;
mod named;
mod renewed;
mod role;
mod savepoint;
mod watch;

pub use leftover::drop_all as drop_leftovers;

pub use copy::{CopyDirection, CopyPiece, CopyShape};
pub use role::Audited;
pub use watch::{Slow, SlowLog};

use crate::activity::{Ask, Member};
use crate::bind::names::{enter_database, is_database_named, is_temporary, is_temporary_of};
pub use crate::cache::Prepared;
use crate::cache::StatementCache;
use crate::catalog::{Catalog, Known, SessionFacts};
use crate::compiled::once::Once;
use crate::compiled::point::{Point, PointScratch};
use crate::compiled::rules::{self, Constraints};
use crate::compiled::{Halt, Interrupt, Run, Scratch, change, lock, query};
use crate::copy::encode::Framing;
use crate::counts::{Count, Counting};
use crate::define::{self, Defined, Definer, Temporary};
use crate::error::SqlError;
use crate::explain::{self, Explained};
use crate::expr::{Env, Expr, Frame, SessionSequences, evaluate};
use crate::notice::Notice;
use crate::parse;
use crate::road::{Planned, Progress, RoadContext, Running};
use crate::route::{ConfigOutput, ConfigQuery, Level, Modes, Plan, route, route_by};
use crate::rows::{RowSet, is_same_row};
pub use crate::settings::Settings;
use crate::settings::{self, Forced, RECOVERY_TARGET};
use crate::shape::{self, Shape, Taken};
use crate::sleep::Sleep;
use crate::statistics::SAMPLE_ROWS;
use crate::value::cast::{self, CastContext};
use crate::value::{self, Clock, Datum, Seeded, numeric};
use freshet_engine::catalog::{NamespaceId, Schema, SchemaPath, Table, TableId};
use freshet_engine::engine::{Account, Claim, Engine, Kind};
use freshet_engine::ids::Cts;
use freshet_engine::io::urgency::{Served, start_thread};
use freshet_engine::mem::prefetch::prefetch_value;
use freshet_engine::mem::touched::{note, note_bytes, note_start};
use freshet_engine::schema::{Row, Type, Value};
use freshet_engine::txn::{Error, Isolation, Stop, WaitToken};
use parking_lot::Mutex;
use std::cell::Cell;
use std::future::Future;
use std::mem::offset_of;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What ReadyForQuery tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransactionStatus {
    Idle,
    Open,
    Failed,
}

/// What completed, as in CommandComplete: `INSERT 0 3`, `SELECT 5`, `BEGIN`, ...
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandTag {
    pub command: &'static str,
    pub rows: Option<u64>,
}

impl std::fmt::Display for CommandTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.rows {
            // The zero was once the inserted row's oid.
            Some(rows) if self.command == "INSERT" => write!(f, "INSERT 0 {rows}"),
            Some(rows) => write!(f, "{} {rows}", self.command),
            None => f.write_str(self.command),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    pub tag: CommandTag,
    /// The reply must wait until this is durable (`Engine::wait_durable`). `None`: it may leave at once (a provisional tag inside a
    /// transaction, a read at the durable horizon, a deferred commit).
    pub durable: Option<Cts>,
    /// E.g. "there is no transaction in progress": what the session's client wants to be told.
    pub notices: Vec<Notice>,
}

/// A statement's progress.
pub enum Step {
    Done(Outcome),
    /// Await or block on this, then `resume`.
    Wait(Wait),
    /// The rows are a part of the result: `resume` once they have been taken, for the next. They may leave once this is durable. Only who asked for
    /// messages ([`RowSet::send_as`]) is given parts.
    Part(Option<Cts>),
}

/// A lock, room in the log, a query on its own threads, or a thread that the statement may hold.
pub struct Wait(On);

enum On {
    Engine(WaitToken),
    Other(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// Nothing to wait for: see [`Wait::is_elsewhere`].
    Elsewhere,
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            On::Engine(token) => Pin::new(token).poll(context),
            On::Other(future) => future.as_mut().poll(context),
            On::Elsewhere => Poll::Ready(()),
        }
    }
}

impl Wait {
    /// Whether `lock_timeout` bounds it: not the time that a query takes on its own threads.
    pub fn is_lock(&self) -> bool {
        matches!(&self.0, On::Engine(token) if token.is_lock())
    }

    /// How long the same lock was waited for before: LOCK TABLE waits for one writer after the other.
    pub fn waited(&self) -> Duration {
        match &self.0 {
            On::Engine(token) => token.waited(),
            _ => Duration::ZERO,
        }
    }

    /// The statement takes longer than [`Session::limit_inline`] allows: go on with [`Session::resume_elsewhere`] on a thread that
    /// serves nobody else.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.0, On::Elsewhere)
    }

    /// Waits on the calling thread; false if `limit` passed first.
    pub fn block(&mut self, limit: Option<Duration>) -> bool {
        match &mut self.0 {
            On::Engine(token) => token.block(limit),
            On::Other(future) => freshet_engine::txn::block_on(future, limit).is_some(),
            On::Elsewhere => true,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Block {
    None,
    Implicit,
    Explicit,
    Failed,
}

/// A commit under way: what is said when it is done.
#[derive(Clone)]
struct Commit {
    tag: CommandTag,
    notices: Vec<Notice>,
    /// A block of the same modes follows.
    chain: bool,
}

/// What a wait interrupted.
enum Pending {
    /// Run the statement again.
    Run {
        statement: Arc<Prepared>,
        parameters: Vec<Datum>,
    },
    /// A run of the other road goes on.
    Road {
        statement: Arc<Prepared>,
        parameters: Vec<Datum>,
        running: Box<dyn Running>,
        /// A part of its rows has been given: it can only go on.
        gave_part: bool,
    },
    /// A compiled query that has given a part of its rows goes on.
    Giving(Box<Giving>),
    /// Commit again.
    Commit(Commit),
    Checkpoint(Arc<Background>),
    /// A COPY goes on.
    Copy,
}

/// A compiled query between two parts of its rows.
struct Giving {
    statement: Arc<Prepared>,
    parameters: Vec<Datum>,
    scratch: Box<Scratch>,
    paused: query::Paused,
    /// Rows that have been given.
    given: u64,
}

/// What a plan takes for each byte of its text, and besides: a literal of two characters is an expression of 48 bytes.
const PLAN_BYTES_PER_CHARACTER: u64 = 24;
const PLAN_BYTES: u64 = 2048;
/// The syntax tree stands beside the plan while it is bound.
const PARSING_FACTOR: u64 = 4;

fn plan_bytes(sql: &str) -> u64 {
    PLAN_BYTES + sql.len() as u64 * PLAN_BYTES_PER_CHARACTER
}

/// A statement's memory while it is planned.
struct Planning {
    account: Account,
    /// There is room to keep it for others.
    keeps: bool,
}

impl Planning {
    fn shrink(&mut self, bytes: u64) {
        self.account.hold(bytes, Claim::Forced);
    }
}

/// A temporary table of so many slots is emptied on commit by deleting its rows. A larger one is truncated: that is DDL, which waits for others'
/// and makes everybody plan anew.
const EMPTIED_BY_ROW_MAX: u64 = 1_000;

/// What a connection takes: its state on both sides, buffers that it keeps, small results.
const SESSION_BYTES: u64 = 48 << 10;

/// What of a statement that will run soon is to be on its way to the processor's cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ahead {
    /// The session, and the index entry of the key: about sixteen statements before it runs.
    Entry,
    /// The row that the entry names: about eight before.
    Row,
}

/// No commit has it.
const NOTHING: Cts = Cts::ZERO;

/// A longer text of the last statement does not stay with an idle session.
const TEXT_KEPT_BYTES: usize = 4 << 10;

std::thread_local! {
    /// What a short look-up reads into: a session's own would be cold.
    static ROW: Cell<Option<Box<Row>>> = const { Cell::new(None) };
}

/// One connection's state.
///
/// What the short ways (`change_once`, `look_up`) look at is together, in two lines after the engine's session: thousands of sessions take turns, each is
/// cold, and every line is a miss.
#[repr(C, align(64))]
pub struct Session {
    inner: freshet_engine::txn::Session,
    // A line.
    engine: Engine,
    pending: Option<Box<Pending>>,
    /// Zero: the last error stands on nothing that may be lost.
    error_dependency: Cts,
    counts: Counting,
    /// Of the role in force, if it may not do everything; else 0. Plans are shared by who has the same.
    rights_key: u32,
    block: Block,
    /// Something may be in its mailbox.
    has_listened: bool,
    temporary: Temporary,
    // The next one, from within `temporary` to within `env`.
    env: Env,
    // The rest.
    looking: PointScratch,
    identity: role::Identity,
    auditor: Option<role::Auditor>,
    cache: Arc<StatementCache>,
    interrupt: Interrupt,
    inline_limit: Option<Duration>,
    /// The statement that runs has met the limit once.
    is_long: bool,
    /// Of the explicit block.
    modes: Modes,
    savepoints: Vec<savepoint::Savepoint>,
    copying: Option<copy::Copying>,
    /// A block of DO that runs.
    doing: Option<Box<block::Doing>>,
    said_before_error: Vec<Notice>,
    copy_framing: Framing,
    names: named::Names,
    /// Parameters in their types' forms, where they did not come so.
    converted: Vec<Datum>,
    prepare_dependency: Option<Cts>,
    /// The last statement of `prepare_text` that was planned without its values, and the text that it came as.
    shaped: (Weak<Prepared>, String),
    reported: Vec<(String, String)>,
    /// The settings before the block's first SET, and before its first SET LOCAL.
    /// As they were before the transaction that changed them: a rollback brings them back.
    settings_before: Option<Settings>,
    /// What a commit leaves, where that is not what holds now: without what SET LOCAL set.
    settings_after: Option<Settings>,
    constraints: Constraints,
    /// As it was before the transaction that changed it.
    temporary_before: Option<Temporary>,
    /// Its place among those who are connected to a server.
    member: Option<Arc<Member>>,
    /// A schema with another search path than its own, and that path, as they were last asked for.
    named: Option<(Arc<Schema>, Arc<Schema>)>,
    /// Whether `env.now` is of the current transaction.
    clock_read: bool,
    /// What runs is the INSERT of a CREATE TABLE AS, which is answered as its query is.
    fills_table: bool,
    watching: watch::Watching,
    /// What a connection takes, busy or not.
    _account: Account,
}

/// From the engine's session on.
const SHORT_WAYS_BYTES: usize = HOT + 128;

/// The line of `inner`'s end.
const HOT: usize = size_of::<freshet_engine::txn::Session>();
const _: () = assert!(offset_of!(Session, engine) == HOT && offset_of!(Session, temporary.namespace) + 8 <= HOT + 64);
const _: () = assert!(offset_of!(Session, env.clock) >= HOT + 64);
const _: () = assert!(offset_of!(Session, env.settings.fast.has_search_path) < HOT + 128);

impl Session {
    /// A session with a statement cache of its own; sessions of one database share one by [`Session::with_cache`].
    pub fn new(engine: &Engine) -> Result<Session, SqlError> {
        Session::with_cache(engine, Arc::default())
    }

    pub fn with_cache(engine: &Engine, cache: Arc<StatementCache>) -> Result<Session, SqlError> {
        let account = engine.account(Kind::Sessions);
        // Who comes to delete finds a place in the reserve.
        if !account.take(SESSION_BYTES, Claim::Growth) && !account.take(SESSION_BYTES, Claim::Finish) {
            return Err(Error::OutOfMemory("another session").into());
        }
        let interrupt = Interrupt::default();
        let mut inner = engine.connect()?;
        inner.cancel_with(interrupt.cancelled.clone());
        let statistics = cache.statistics.clone();
        let (version, defaults) = cache.activity.defaults();
        let settings = Settings::with_defaults(defaults);
        let (dates, intervals) = (settings.dates, settings.intervals);
        let seeded = Seeded::of_session();
        let clock = Clock { zone: settings.zone.clone(), dates, intervals, seeded, ..Clock::default() };
        Ok(Session {
            watching: watch::Watching::new(version),
            counts: cache.activity.counts.counting(),
            rights_key: 0,
            _account: account,
            inner,
            identity: role::Identity::default(),
            auditor: None,
            engine: engine.clone(),
            cache: cache.clone(),
            looking: PointScratch::default(),
            interrupt,
            inline_limit: None,
            is_long: false,
            env: Env {
                settings,
                clock,
                user: "freshet".to_owned(),
                session_user: "freshet".to_owned(),
                database: "freshet".to_owned(),
                engine: Some(engine.clone()),
                sequences: Some(Arc::new(SessionSequences::default())),
                listed: Some(Default::default()),
                hearing: Some(Default::default()),
                activity: Some(cache.activity.clone()),
                statistics: Some(statistics),
                ..Env::default()
            },
            block: Block::None,
            has_listened: false,
            modes: Modes::default(),
            savepoints: Vec::new(),
            pending: None,
            copying: None,
            doing: None,
            said_before_error: Vec::new(),
            copy_framing: Framing::NONE,
            names: named::Names::default(),
            converted: Vec::new(),
            error_dependency: NOTHING,
            prepare_dependency: None,
            shaped: (Weak::new(), String::new()),
            reported: Vec::new(),
            settings_before: None,
            settings_after: None,
            constraints: Constraints::default(),
            temporary: Temporary::default(),
            temporary_before: None,
            member: None,
            named: None,
            clock_read: false,
            fills_table: false,
        })
    }

    /// The session's zone, and when its transaction began.
    pub fn clock(&self) -> &Clock {
        &self.env.clock
    }

    /// As [`Session::clock`], for values that are read before their statement begins: with a catalog, or with the time ('now'), if values of the
    /// type are read by that.
    pub fn clock_for(&mut self, ty: Type) -> &Clock {
        if !self.clock_read && cast::needs_clock(Type::Text, ty) {
            self.env.clock.now = now();
        }
        if cast::shows_names(ty) {
            let schema = self.schema_to_plan_by();
            self.know(&schema);
        }
        &self.env.clock
    }

    /// The type of this number, one of users' included.
    pub fn type_of_oid(&self, oid: u32) -> Option<Type> {
        value::pgtype::from_oid_in(oid, -1, &self.schema_to_plan_by())
    }

    /// Who serves the session hears from here what others ask of it (pg_cancel_backend, pg_terminate_backend). After `identify`.
    pub fn serve(&self, asker: impl Fn(Ask) + Send + Sync + 'static) {
        if let Some(member) = &self.member {
            self.cache.activity.serve(member, Box::new(asker));
        }
    }

    /// What others see of the session, once a server serves it: its server notes there what it waits for.
    pub fn member(&self) -> Option<Arc<Member>> {
        self.member.clone()
    }

    /// Memory that waits for the next statement.
    pub fn spare_bytes(&self) -> usize {
        let converted = self.converted.capacity() * size_of::<Datum>();
        self.inner.spare_bytes() + self.looking.spare_bytes() + converted + self.shaped.1.capacity()
    }

    /// Gives it back: nothing happens in the session.
    pub fn give_spare_back(&mut self) {
        self.inner.give_spare_back();
        self.looking = PointScratch::default();
        self.converted = Vec::new();
        if self.shaped.1.capacity() > TEXT_KEPT_BYTES {
            self.shaped = (Weak::new(), String::new());
        }
    }

    /// The statement is over, or waits: for those who look on.
    fn tell_state(&self, step: &Result<Step, SqlError>) {
        // A COPY has only begun.
        let goes_on = step.is_ok() && self.copying.is_some();
        if let (Err(_) | Ok(Step::Done(_)), false) = (step, goes_on) {
            self.tell_end();
        }
    }

    fn tell_end(&self) {
        if let Some(member) = &self.member {
            member.ended(now(), self.status());
        }
    }

    /// How often queries that are not compiled were planned, of all sessions that share the statement cache.
    pub fn queries_planned(&self) -> u64 {
        self.cache.statistics.plannings.load(Ordering::Relaxed)
    }

    pub fn idle_session_timeout(&self) -> Option<Duration> {
        self.env.settings.fast.idle_session_timeout
    }

    /// What the client's socket is to do.
    pub fn keepalive(&self) -> settings::Keepalive {
        self.env.settings.keepalive
    }

    pub fn idle_in_transaction_timeout(&self) -> Option<Duration> {
        self.env.settings.fast.idle_in_transaction_timeout
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Bytes of the last commit's record with its header.
    pub fn last_commit_record_bytes(&self) -> u64 {
        self.inner.last_record_bytes()
    }

    /// Set it from any thread to end the statement that is running with 57014. Who waits is ended by [`Session::cancel`].
    pub fn cancel_flag(&self) -> Arc<AtomicBool> {
        self.interrupt.cancelled.clone()
    }

    /// Whether the caller sees to each outcome's durability at once: it blocks and writes the log itself, or asks for the flush. Its commits wake nobody.
    #[inline]
    pub fn set_waits_inline(&mut self, waits_inline: bool) {
        self.inner.set_waits_inline(waits_inline && !self.env.settings.fast.deferred_commit);
    }

    /// How long a statement may hold the thread of `execute` and `resume`, for callers that serve many sessions on one thread. A longer one
    /// gives [`Wait::is_elsewhere`]. `None`, the default: as long as it takes.
    pub fn limit_inline(&mut self, limit: Option<Duration>) {
        self.inline_limit = limit;
    }

    // ---- preparing

    /// The transaction's, if it has one of its own, or what is committed now: as the statement will see it.
    fn schema_to_plan_by(&self) -> Arc<Schema> {
        self.inner.own_schema().cloned().unwrap_or_else(|| self.engine.schema())
    }

    /// Parses and binds one statement; uses the shared cache. `types`: declared parameter types, `None` where unknown.
    pub fn prepare(&mut self, sql: &str, types: &[Option<Type>]) -> Result<Arc<Prepared>, SqlError> {
        self.shaped.0 = Weak::new();
        self.error_dependency = NOTHING;
        let schema = self.schema_to_plan_by();
        // Read after the schema. What is there, what is not, and its columns may be another session's latest commit.
        self.prepare_dependency = self.depends_on(self.engine.schema_cts());
        let prepared = self.while_wanted(sql.len(), |session| session.plan(sql, types, &schema));
        // Nothing is looked up in a failed block, where what is no SQL is told all the same.
        if self.block == Block::Failed && prepared.is_err() && parse::parse(sql).is_ok() {
            return Err(aborted());
        }
        let prepared = prepared.inspect_err(|_| {
            self.fail();
            self.error_dependency = self.error_dependency.max(self.prepare_dependency.unwrap_or(NOTHING));
        })?;
        if self.block == Block::Failed && !prepared.ends_transaction() && !prepared.is_empty() {
            return Err(aborted());
        }
        Ok(prepared)
    }

    /// As [`Session::prepare`], for a text with its values in it: the statement, and the values that are its parameters. Texts that differ in their
    /// values alone are planned once ([`crate::shape`]).
    pub fn prepare_text(&mut self, sql: &str) -> Result<(Arc<Prepared>, Vec<Datum>), SqlError> {
        match self.prepare_shape(sql) {
            Some(shaped) => Ok(shaped),
            None => match self.prepare(sql, &[])? {
                prepared if prepared.parameters.is_empty() => Ok((prepared, Vec::new())),
                // Nobody gives them values.
                _ => {
                    self.fail();
                    let (name, position) = parse::first_parameter(sql).unwrap_or_else(|| ("$1".to_owned(), None));
                    Err(SqlError::new("42P02", format!("there is no parameter {name}")).at(position))
                }
            },
        }
    }

    fn prepare_shape(&mut self, sql: &str) -> Option<(Arc<Prepared>, Vec<Datum>)> {
        let shape = shape::of(sql)?;
        if self.block == Block::Failed || self.env.settings.fast.road.is_some() {
            return None;
        }
        self.error_dependency = NOTHING;
        let schema = self.schema_to_plan_by();
        self.prepare_dependency = self.depends_on(self.engine.schema_cts());
        let prepared = self.plan_shape(&shape, &schema)?;
        let values = shape.values.into_iter().zip(&prepared.parameters).map(|(value, &ty)| match value {
            Taken::Integer(number) => Some(Datum::Int(number)),
            Taken::Text(text) => value::from_text_by(ty, text.as_bytes(), self.clock_for(ty)).ok(),
        });
        let values = values.collect::<Option<Vec<Datum>>>()?;
        let (statement, text) = &mut self.shaped;
        *statement = Arc::downgrade(&prepared);
        text.clear();
        text.push_str(sql);
        Some((prepared, values))
    }

    /// One look into the cache where the shape is in use.
    fn plan_shape(&mut self, shape: &Shape, schema: &Arc<Schema>) -> Option<Arc<Prepared>> {
        self.refresh_access(schema);
        let found = match self.cache.get(&shape.text, &shape.types, schema, &self.path(schema), self.rights_key) {
            Some(found) => Some(found),
            None if self.cache.is_refused(&shape.text) => return None,
            None => match self.plan(&shape.text, &shape.types, schema) {
                // Another role's may be of use.
                Err(error) if error.sqlstate == "42501" => return None,
                planned => planned.ok(),
            },
        };
        let planned = found.filter(|prepared| prepared.fits_all_values());
        if planned.is_none() {
            self.cache.refuse(&shape.text);
        }
        planned
    }

    /// What the answer to the last `prepare` depends on: it is told once this is durable.
    pub fn prepare_dependency(&self) -> Option<Cts> {
        self.prepare_dependency
    }

    fn plan(&mut self, sql: &str, types: &[Option<Type>], schema: &Arc<Schema>) -> Result<Arc<Prepared>, SqlError> {
        // The cache has plans of sessions that let the road be chosen.
        let forced = self.env.settings.fast.road;
        self.refresh_access(schema);
        if forced.is_none()
            && let Some(found) = self.cache.get(sql, types, schema, &self.path(schema), self.rights_key)
        {
            return Ok(found);
        }
        let mut charge = self.planning(sql)?;
        let path_schema = self.named(schema);
        enter_database(&self.env.database);
        let access = self.env.access.as_ref().map(|access| access.along(&path_schema));
        let known = Some(&self.cache.statistics);
        let mut routed = route_by(sql, &path_schema, types, forced, known, access.as_ref())?;
        // Which road is shown depends on how large tables are now.
        let is_fleeting = matches!(routed.plan, Plan::Named(_) | Plan::Explain(_)) || is_database_named();
        if let Plan::Named(named) = &routed.plan {
            (routed.columns, routed.parameters) = self.shape_of_named(named, types)?;
        }
        charge.shrink(plan_bytes(sql));
        let notice = parse::cut_name_notice(sql).or_else(|| parse::digits_notice(sql));
        let notice = notice.or_else(|| parse::global_notice(sql));
        let notice = notice.or(routed.notice.take()).map(Box::new);
        // Definitions look at rows by expressions that may need it.
        let needs_catalog = routed.uses_clock
            || matches!(routed.plan, Plan::Define(_))
            || routed.columns.iter().any(|c| cast::shows_names(c.ty));
        let prepared = Arc::new(Prepared {
            sql: sql.to_owned(),
            parameters: routed.parameters,
            columns: routed.columns,
            declared: types.into(),
            schema: schema.clone(),
            point: match &routed.plan {
                Plan::Select(query) if notice.is_none() && !needs_catalog => Point::of(query),
                _ => None,
            },
            once: match &routed.plan {
                plan if !routed.uses_clock && notice.is_none() => Once::of(plan),
                _ => None,
            },
            plan: routed.plan,
            notice,
            tracked: Default::default(),
            heavy: OnceLock::new(),
            uses_clock: routed.uses_clock,
            needs_catalog,
            uses_sequences: routed.uses_sequences,
            path: path_schema.path().clone(),
            epoch: routed.epoch,
            unknown_tables: routed.unknown_tables.into(),
            role: self.rights_key,
            rights_version: match Arc::ptr_eq(schema, &self.engine.schema()) {
                true => schema.rights_version(),
                false => u64::MAX,
            },
            _charge: charge.account,
        });
        if charge.keeps && forced.is_none() && !is_fleeting && Arc::ptr_eq(schema, &self.engine.schema()) {
            self.cache.insert(&prepared);
        }
        Ok(prepared)
    }

    /// Where this session looks for bare names: what `search_path` says, its temporary tables before it where it does not say `pg_temp`.
    fn path(&self, schema: &Arc<Schema>) -> SchemaPath {
        let own = self.own_temporary(schema);
        if own.is_none() && !self.env.settings.fast.has_search_path {
            let usual = schema.path();
            return match &self.env.access {
                Some(access) if !usual.iter().all(|&id| access.may_use(id)) => {
                    usual.iter().copied().filter(|&id| access.may_use(id)).collect()
                }
                _ => usual.clone(),
            };
        }
        let text = self.env.settings.get("search_path").unwrap_or_default();
        let names = settings::list(&text);
        // Where it is not named, what is temporary comes first.
        let first = own.filter(|_| !names.iter().any(|name| name == "pg_temp"));
        let names = names.into_iter().map(|name| if name == "$user" { self.env.user.clone() } else { name });
        // Another session's temporary tables are on nobody's path, a superuser's neither.
        let found = names.filter_map(|name| match name.as_str() {
            "pg_temp" => own,
            _ => schema.namespace(&name).map(|n| n.id).filter(|&id| !is_temporary(schema, id)),
        });
        let mut path: Vec<NamespaceId> = first.into_iter().chain(found).collect();
        let mut seen = std::collections::HashSet::new();
        path.retain(|id| seen.insert(*id));
        if let Some(access) = &self.env.access {
            path.retain(|&id| access.may_use(id));
        }
        path.into()
    }

    /// The schema of this session's temporary tables, if it is there.
    pub(crate) fn own_temporary(&self, schema: &Schema) -> Option<NamespaceId> {
        self.temporary.namespace.filter(|&id| is_temporary_of(schema, id, self.inner.number()))
    }

    /// The schema as this session names what is in it.
    fn named(&mut self, schema: &Arc<Schema>) -> Arc<Schema> {
        let path = self.path(schema);
        if path == *schema.path() {
            return schema.clone();
        }
        if let Some((base, named)) = &self.named
            && Arc::ptr_eq(base, schema)
            && *named.path() == path
        {
            return named.clone();
        }
        let named = Arc::new(schema.with_path(path));
        self.named = Some((schema.clone(), named.clone()));
        named
    }

    /// Memory for parsing and binding a statement.
    fn planning(&self, sql: &str) -> Result<Planning, SqlError> {
        let account = self.engine.account(Kind::Statements);
        let bytes = plan_bytes(sql) * PARSING_FACTOR;
        let keeps = account.take(bytes, Claim::Growth);
        // What is needed to delete must be planned; it is not kept.
        if !keeps && !account.take(bytes, Claim::Finish) {
            return Err(Error::OutOfMemory("a statement's plan").into());
        }
        Ok(Planning { account, keeps })
    }

    /// Reads a text of so many bytes, until somebody cancels it or its time is over.
    pub(super) fn while_wanted<T>(
        &mut self,
        bytes: usize,
        read: impl FnOnce(&mut Session) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        if !parse::wanted::is_long(bytes) {
            return read(self);
        }
        let cancelled = self.interrupt.cancelled.clone();
        // A block's time runs already.
        let deadline = match self.doing {
            Some(_) => self.interrupt.deadline,
            None => {
                cancelled.store(false, Ordering::Relaxed);
                self.statement_timeout().map(|limit| Instant::now() + limit)
            }
        };
        parse::wanted::while_wanted(&cancelled, deadline, || read(self))
    }

    /// Splits a simple-protocol script at its semicolons; each piece is prepared just before it runs.
    pub fn split(&self, script: &str) -> Result<Vec<String>, SqlError> {
        parse::split(script)
    }

    /// PostgreSQL reads a script whole before any of it runs: the first piece that is no SQL, and what is wrong with it.
    pub fn first_fault(&mut self, pieces: &[String]) -> Option<(usize, SqlError)> {
        let bytes = pieces.iter().map(String::len).sum();
        let mut at = 0;
        let read = self.while_wanted(bytes, |session| match session.first_bad(pieces) {
            None => Ok(()),
            Some((bad, error)) => {
                at = bad;
                Err(error)
            }
        });
        read.err().map(|error| (at, error))
    }

    fn first_bad(&self, pieces: &[String]) -> Option<(usize, SqlError)> {
        if pieces.len() < 2 {
            return None;
        }
        let schema = self.schema_to_plan_by();
        let path = self.path(&schema);
        // One that is known need not be read again.
        let is_known = |piece: &str| {
            let shape = shape::of(piece)?;
            self.cache.get(&shape.text, &shape.types, &schema, &path, self.rights_key)
        };
        pieces.iter().enumerate().filter(|(_, piece)| is_known(piece).is_none()).find_map(|(at, piece)| {
            let read = self.planning(piece).and_then(|_planning| parse::parse(piece).map(drop));
            read.err().map(|error| (at, error))
        })
    }

    // ---- executing

    /// Starts a statement. Rows go to `rows`. An error fails an open transaction as in PostgreSQL.
    pub fn execute(
        &mut self,
        statement: &Arc<Prepared>,
        parameters: &[Datum],
        rows: &mut RowSet,
    ) -> Result<Step, SqlError> {
        let looked_up = match self.block {
            Block::None => self.look_up(statement, parameters, rows),
            _ => self.look_up_inside(statement, parameters, rows),
        };
        if let Some(looked_up) = looked_up {
            let durable = looked_up.map_err(|error| *error)?;
            let tag = CommandTag { command: "SELECT", rows: Some(rows.len() as u64) };
            return Ok(Step::Done(Outcome { tag, durable, notices: Vec::new() }));
        }
        if let (Some(once), Some(durable)) = (&statement.once, self.change_once(statement, parameters)) {
            rows.charge_to(&self.engine);
            rows.start(&statement.columns);
            return Ok(Step::Done(Outcome { tag: once.tag(), durable, notices: Vec::new() }));
        }
        self.fills_table = false;
        if !statement.plan.only_gives() {
            rows.keep_cells();
        }
        self.begin_rows(statement, rows);
        if self.pending.is_some() || self.copying.is_some() {
            self.cancel(SqlError::new("57014", "canceling statement: another one was started"));
        }
        if self.block == Block::Failed && !statement.ends_transaction() && !statement.is_empty() {
            return Err(aborted());
        }
        let converts = self.converts(statement, parameters)?;
        self.begin_watching(statement);
        self.env.sequences.iter().for_each(|sequences| sequences.begin_statement());
        if !converts {
            let step = self.start(statement, parameters, rows);
            return self.declared(step, rows);
        }
        let converted = std::mem::take(&mut self.converted);
        let step = self.start(statement, &converted, rows);
        self.converted = converted;
        self.declared(step, rows)
    }

    /// Whether the statement only looks rows up by key, each time at a snapshot of its own.
    #[inline]
    pub fn stands_alone(&self, statement: &Prepared) -> bool {
        statement.point.is_some() && self.env.settings.fast.level.isolation() == Isolation::ReadCommitted
    }

    /// Runs a statement that changes one row by its key as a transaction of its own: what its reply waits for, if anything. `None`: nothing has happened, and
    /// `execute` is to run it.
    #[inline]
    pub fn change_once(&mut self, statement: &Prepared, parameters: &[Datum]) -> Option<Option<Cts>> {
        let once = statement.once.as_ref()?;
        once.prefetch(parameters);
        let fast = self.env.settings.fast;
        let is_plain = fast.level.isolation() == Isolation::ReadCommitted && !fast.read_only;
        let is_allowed = statement.rights_version == self.inner.rights_version();
        if !is_plain || !is_allowed || !self.takes_short_way(statement, parameters) {
            return None;
        }
        // Another schema may have another table of that name, another constraint, another child. If DDL commits from here on, the engine, which knows
        // as of which schema this session has last written the table, says no.
        if !self.inner.has_newest_schema() || !self.is_planned_for_now(statement) {
            return None;
        }
        let started = self.timer();
        let cts = once.run(&mut self.inner, parameters, &self.env)?;
        self.error_dependency = NOTHING;
        self.watched_short(statement, started, 1, Some(once.counts_as()));
        Some(self.depends_on(cts))
    }

    /// Runs a statement that looks rows up by key as a transaction of its own: what its reply waits for, if anything. `None`: this is no such
    /// statement, or not the moment for it, and `execute` is to run it.
    #[inline]
    pub fn look_up(
        &mut self,
        statement: &Prepared,
        parameters: &[Datum],
        rows: &mut RowSet,
    ) -> Option<Result<Option<Cts>, Box<SqlError>>> {
        let point = statement.point.as_ref()?;
        point.prefetch(parameters);
        if !self.takes_short_way(statement, parameters) {
            return None;
        }
        if self.look_up_newest(statement, point, parameters, rows) {
            return Some(Ok(None));
        }
        self.start_look_up(statement, rows)?;
        let started = self.timer();
        let given = point.run(&mut self.inner, parameters, &mut self.looking, rows);
        let ended = self.end_look_up(given);
        self.watched_look_up(statement, started, rows.len() as u64, &ended);
        Some(ended)
    }

    /// As `look_up`, within the transaction that is open. `None`: `execute` is to run it; at most a statement was begun.
    fn look_up_inside(
        &mut self,
        statement: &Prepared,
        parameters: &[Datum],
        rows: &mut RowSet,
    ) -> Option<Result<Option<Cts>, Box<SqlError>>> {
        let point = statement.point.as_ref()?;
        let is_open = matches!(self.block, Block::Explicit | Block::Implicit) && self.inner.in_transaction();
        let is_free = self.pending.is_none() && self.copying.is_none() && !self.inner.has_barred_tables();
        if !is_open || !is_free || !have_form(statement, parameters) {
            return None;
        }
        point.prefetch(parameters);
        self.begin_rows(statement, rows);
        self.inner.begin_statement();
        if !self.is_planned_for_now(statement) || self.inner.may_be_renewed() {
            return None;
        }
        let started = self.timer();
        if let Some(member) = &self.member {
            member.started(now(), self.text_of(statement));
        }
        let given = match self.inner.check_snapshot() {
            Ok(()) => point.run(&mut self.inner, parameters, &mut self.looking, rows),
            Err(error) => Err(error.into()),
        };
        let ended = match given {
            Ok(()) => {
                self.inner.rest();
                self.watched_inside(statement, started, rows.len() as u64);
                Ok(self.depends_on(self.inner.dependency()))
            }
            Err(error) => {
                self.watched_failure(&error);
                Err(Box::new(self.statement_failed(error)))
            }
        };
        self.tell_end();
        Some(ended)
    }

    /// Runs `look_up`'s statement with many sets of parameters, at one snapshot and with their cache misses overlapped. `ends` learns how many
    /// rows there are after each set.
    pub fn look_up_many(
        &mut self,
        statement: &Prepared,
        sets: &[&[Datum]],
        rows: &mut RowSet,
        ends: &mut Vec<usize>,
    ) -> Option<Result<Option<Cts>, Box<SqlError>>> {
        let point = statement.point.as_ref().filter(|point| point.is_single())?;
        if !sets.iter().all(|parameters| self.takes_short_way(statement, parameters)) {
            return None;
        }
        self.start_look_up(statement, rows)?;
        let started = self.timer();
        let given = point.run_many(&mut self.inner, sets, &mut self.looking, rows, ends);
        let ended = self.end_look_up(given);
        self.watched_look_up(statement, started, rows.len() as u64, &ended);
        Some(ended)
    }

    /// Starts loading what a run of the statement with this key will want, if it is one row by its key (`Prepared::key_parameter`). It says nothing
    /// about the outcome: it may be left out, and the statement may run otherwise or never.
    #[inline]
    pub fn load_ahead(&self, statement: &Prepared, key: i64, what: Ahead) {
        if what == Ahead::Entry {
            prefetch_value(&self.engine);
            prefetch_value(&self.env.settings.fast.level);
            self.inner.load_ahead();
            self.inner.load_schema_ahead();
        } else if statement.point.is_some() {
            self.inner.load_place_ahead();
        }
        match (&statement.once, &statement.point) {
            (Some(once), _) => once.load_ahead(&self.inner, key, what),
            (None, Some(point)) => point.load_ahead(key, what),
            (None, None) => {}
        }
    }

    /// Notes what every statement touches: of the session, and of its names for `statement`.
    pub fn note_touched(&self, statement: Option<&Arc<Prepared>>) {
        let Session { inner, interrupt, watching, cache, modes, inline_limit, converted, reported, .. } = self;
        self.names.note_touched(statement);
        note_bytes(std::ptr::from_ref(inner).addr(), SHORT_WAYS_BYTES);
        note(interrupt);
        note(watching);
        note_start(cache);
        note_start(modes);
        note_start(inline_limit);
        note_start(converted);
        note_start(reported);
    }

    #[inline]
    fn takes_short_way(&self, statement: &Prepared, parameters: &[Datum]) -> bool {
        have_form(statement, parameters)
            && self.block == Block::None
            && self.pending.is_none()
            && !self.inner.in_transaction()
            && !self.inner.has_barred_tables()
    }

    /// Gives the row of an integer key where it takes no transaction to speak of, as mostly. False: nothing has happened, and `start_look_up` comes next.
    #[inline]
    fn look_up_newest(&mut self, statement: &Prepared, point: &Point, parameters: &[Datum], rows: &mut RowSet) -> bool {
        let started = self.timer();
        if !self.is_planned_for_now(statement) {
            return false;
        }
        let mut row = ROW.take().unwrap_or_default();
        let is_given = point.look_up_newest(&mut self.inner, parameters, &mut row) && {
            self.begin_rows(statement, rows);
            point.give_found(&row, rows).is_ok()
        };
        ROW.set(Some(row));
        if is_given {
            self.watched_short(statement, started, 1, None);
        }
        is_given
    }

    /// Makes `rows` this statement's, empty and paid for by this session.
    #[inline]
    fn begin_rows(&mut self, statement: &Prepared, rows: &mut RowSet) {
        self.error_dependency = NOTHING;
        rows.charge_to(&self.engine);
        rows.show_by(&self.env.clock);
        rows.start(&statement.columns);
    }

    /// Begins the transaction of a look-up; `None` if the statement must be planned anew first.
    #[inline]
    fn start_look_up(&mut self, statement: &Prepared, rows: &mut RowSet) -> Option<()> {
        self.begin_rows(statement, rows);
        self.inner.begin_read();
        if !self.is_planned_for_now(statement) {
            self.inner.rollback();
            return None;
        }
        Some(())
    }

    #[inline]
    fn end_look_up(&mut self, given: Result<(), SqlError>) -> Result<Option<Cts>, Box<SqlError>> {
        if given.is_ok() && self.inner.end_plain_read() {
            return Ok(None);
        }
        self.commit_look_up(given)
    }

    #[cold]
    fn commit_look_up(&mut self, given: Result<(), SqlError>) -> Result<Option<Cts>, Box<SqlError>> {
        match (given, self.inner.commit()) {
            (Ok(()), Ok(committed)) => Ok(self.depends_on(committed.cts)),
            (Err(error), Ok(committed)) => {
                self.error_dependency = self.depends_on(committed.cts).unwrap_or(NOTHING);
                Err(Box::new(error))
            }
            (_, Err(Stop::Error(error))) => Err(Box::new(error.into())),
            (_, Err(Stop::Wait(_))) => unreachable!("invariant: who wrote nothing has nothing to wait for"),
        }
    }

    /// Goes on after a wait.
    pub fn resume(&mut self, rows: &mut RowSet) -> Result<Step, SqlError> {
        let is_long = match self.pending.as_deref() {
            Some(Pending::Run { .. }) => self.is_long,
            // What a query gave is applied or copied at once, however much it is.
            Some(Pending::Road { .. } | Pending::Giving(_)) => true,
            Some(Pending::Copy) => true,
            _ => false,
        };
        if is_long && self.inline_limit.is_some() {
            return Ok(Step::Wait(Wait(On::Elsewhere)));
        }
        let step = self.go_on(rows);
        self.declared(step, rows)
    }

    /// Goes on, for as long as it takes.
    pub fn resume_elsewhere(&mut self, rows: &mut RowSet) -> Result<Step, SqlError> {
        let limit = self.inline_limit.take();
        let step = self.go_on(rows);
        // A file is written here too, with the limit still away.
        let step = self.declared(step, rows);
        self.inline_limit = limit;
        step
    }

    fn go_on(&mut self, rows: &mut RowSet) -> Result<Step, SqlError> {
        self.member.iter().for_each(|member| member.set_sleeping(false));
        if self.doing.is_some() { self.go_on_in_block() } else { self.go_on_alone(rows) }
    }

    fn go_on_alone(&mut self, rows: &mut RowSet) -> Result<Step, SqlError> {
        match self.pending.take().map(|pending| *pending) {
            None => Err(SqlError::new("55000", "no statement is waiting")),
            Some(Pending::Run { statement, parameters }) => match &statement.plan {
                Plan::Copy(plan) => self.start_copy(&statement, plan, rows),
                _ => self.attempt(&statement, &parameters, rows),
            },
            Some(Pending::Road { statement, parameters, running, gave_part }) => {
                self.drive(statement, parameters, running, gave_part, rows)
            }
            Some(Pending::Giving(giving)) => self.go_on_giving(*giving, rows),
            Some(Pending::Commit(commit)) => self.commit(commit),
            Some(Pending::Copy) => self.go_on_copying(),
            Some(Pending::Checkpoint(background)) => match background.result() {
                Some(result) => {
                    result?;
                    Ok(done("CHECKPOINT"))
                }
                None => Ok(self.wait_checkpoint(background)),
            },
        }
    }

    fn start(&mut self, statement: &Arc<Prepared>, parameters: &[Datum], rows: &mut RowSet) -> Result<Step, SqlError> {
        if self.doing.is_none() {
            self.interrupt.deadline = self.statement_timeout().map(|limit| Instant::now() + limit);
            self.inner.end_by(self.interrupt.deadline);
            if let Some(member) = &self.member {
                member.started(now(), self.text_of(statement));
            }
        }
        self.begin_saying();
        match &statement.plan {
            Plan::Select(_)
            | Plan::Insert(_)
            | Plan::Update(_)
            | Plan::Delete(_)
            | Plan::Init(_)
            | Plan::Define(_)
            | Plan::Lock(_)
            | Plan::Analyze { .. }
            | Plan::Explain(_)
            | Plan::Other(_) => {
                if matches!(statement.plan, Plan::Lock(_)) && self.block == Block::None {
                    return Err(SqlError::new("25P01", "LOCK TABLE can only be used in transaction blocks"));
                }
                if self.doing.is_none() {
                    self.interrupt.cancelled.store(false, Ordering::Relaxed);
                }
                self.is_long = false;
                self.enter_transaction(&statement.plan, statement.uses_sequences);
                // A definition may compute defaults for rows that are there, or go on as an INSERT.
                if statement.uses_clock || matches!(statement.plan, Plan::Define(_)) {
                    self.read_clock();
                    if self.doing.is_none() {
                        self.env.statement = now();
                    }
                }
                self.attempt(statement, parameters, rows)
            }
            Plan::SetConstraints { ids, deferred } => self.set_constraints(ids.as_deref(), *deferred, statement, rows),
            Plan::Empty => Ok(done("")),
            Plan::Begin { start, modes } => self.begin(*start, *modes),
            Plan::Commit { chain } => self.end_block(*chain),
            Plan::Rollback { chain } => self.abort_block(*chain),
            Plan::Savepoint(name) => self.set_savepoint(name),
            Plan::Release(name) => self.release_savepoint(name),
            Plan::RollbackTo(name) => self.roll_back_to_savepoint(name),
            Plan::SetTransaction { modes, session } => self.set_transaction(*modes, *session),
            Plan::Set { name, value, local } => {
                let result = self.set_value(name, value.as_deref(), *local);
                let warning = result.inspect_err(|_| self.fail())?;
                Ok(self.told("SET", None, warning))
            }
            Plan::Reset(name) => {
                let warning = self.set_value(name, None, false).inspect_err(|_| self.fail())?;
                Ok(self.told("RESET", None, warning))
            }
            Plan::SetConfig(config) => {
                let is_alone = self.block == Block::None;
                let given = self.give_config(config, parameters, rows);
                if is_alone {
                    // Its own transaction ends: what is local goes, of a failure nothing stays.
                    self.restore_settings(given.is_ok());
                } else if given.is_err() {
                    self.fail();
                }
                given
            }
            Plan::Named(named) => self.run_named(statement, named, parameters, rows),
            Plan::Copy(plan) => self.start_copy(statement, plan, rows),
            Plan::ResetAll => {
                self.reset_all();
                Ok(done("RESET"))
            }
            Plan::DiscardAll => self.discard_all(),
            Plan::DiscardSequences => {
                self.env.sequences.iter().for_each(|sequences| sequences.forget());
                Ok(done("DISCARD SEQUENCES"))
            }
            Plan::DiscardTemp => self.discard_temp(),
            Plan::Show(name) => {
                let value = self.setting(name).unwrap_or_default();
                give_text(rows, &[&value])?;
                Ok(done("SHOW"))
            }
            Plan::ShowAll => {
                for (name, value) in self.env.settings.all() {
                    let value = self.setting_of_database(name).unwrap_or(value);
                    give_text(rows, &[name, &value, ""])?;
                }
                Ok(done("SHOW"))
            }
            Plan::ExplainRestart => {
                let restart = crate::view::Relation::View(&crate::view::RESTART);
                for row in &crate::view::rows(&restart, self.inner.schema(), &self.env)?.rows {
                    row.iter().for_each(|cell| rows.push(&cell.as_value()));
                    rows.finish_row()?;
                }
                Ok(done("EXPLAIN"))
            }
            Plan::Checkpoint => {
                self.counts.add(Count::CheckpointsAsked, 1);
                let background = Background::start(self.engine.clone());
                Ok(self.wait_checkpoint(background))
            }
            Plan::Channel(command) => self.channel_command(command),
            Plan::Do(block) => self.start_block(block),
            Plan::NoOperation(tag) => {
                if *tag == "VACUUM" && matches!(self.block, Block::Explicit) {
                    self.fail();
                    return Err(SqlError::new("25001", "VACUUM cannot run inside a transaction block"));
                }
                Ok(done(tag))
            }
        }
    }

    fn enter_transaction(&mut self, plan: &Plan, uses_sequences: bool) {
        if self.inner.in_transaction() {
            return;
        }
        self.clock_read = self.clock_read && self.block == Block::Explicit;
        let fast = self.env.settings.fast;
        if self.block == Block::None && plan.only_reads() && !uses_sequences {
            self.inner.begin_read();
            return;
        }
        let modes = match self.block {
            Block::Explicit | Block::Implicit => self.modes,
            Block::None | Block::Failed => Modes::default(),
        };
        let level = modes.isolation.unwrap_or(fast.level);
        let read_only = modes.read_only.unwrap_or(fast.read_only);
        self.inner.begin(level.isolation(), read_only);
    }

    /// Of the block that is open, or of the transaction that would begin now.
    fn level(&self) -> Level {
        self.modes.isolation.unwrap_or(self.env.settings.fast.level)
    }

    fn is_read_only(&self) -> bool {
        self.modes.read_only.unwrap_or(self.env.settings.fast.read_only)
    }

    fn is_deferrable(&self) -> bool {
        self.modes.deferrable.unwrap_or(self.env.settings.fast.deferrable)
    }

    fn read_clock(&mut self) {
        if !self.clock_read {
            self.env.clock.now = now();
            self.clock_read = true;
        }
    }

    /// Runs the statement from its beginning.
    fn attempt(
        &mut self,
        statement: &Arc<Prepared>,
        parameters: &[Datum],
        rows: &mut RowSet,
    ) -> Result<Step, SqlError> {
        // What is bound as it runs.
        enter_database(&self.env.database);
        if self.inner.is_read_only() {
            let own = self.temporary_changed_by(statement);
            self.inner.permit_own_changes(own);
        }
        match &statement.plan {
            Plan::Lock(_) => self.inner.begin_statement_to_lock(),
            plan if plan.locks_by_key() => self.inner.begin_statement_at_newest(),
            _ => self.inner.begin_statement(),
        }
        if let Err(error) = self.inner.check_snapshot() {
            return Err(self.statement_failed(error.into()));
        }
        if let Err(error) = self.check_renewed(statement) {
            return Err(self.statement_failed(error));
        }
        self.constraints.start_statement();
        self.say_anew();
        (self.env.level, self.env.read_only) = (self.level(), self.is_read_only());
        self.env.deferrable = self.is_deferrable();
        self.env.changes = !statement.plan.only_reads() || self.inner.has_changed();
        if let Some(sequences) = &self.env.sequences {
            // A definition's, too, which evaluates defaults.
            sequences.begin_run();
            if statement.uses_sequences {
                sequences.set_read_only(self.inner.is_read_only());
                self.env.keys.get_or_insert_with(|| self.inner.advisory_keys());
            }
        }
        if !self.knows_access(self.inner.schema()) {
            let schema = self.inner.schema().clone();
            self.refresh_access(&schema);
        }
        if !statement.unknown_tables.is_empty() {
            self.sample_unknown(statement);
        }
        let is_planned = self.is_planned_for_now(statement) && !self.cache.is_outdated(statement);
        let has_public = !self.inner.schema().path().is_empty();
        let has_own_path = self.temporary.namespace.is_some() || self.env.settings.fast.has_search_path;
        if has_own_path || self.env.schema.is_some() || !has_public {
            self.env.schema = self.current_schema();
        }
        if !is_planned {
            let statement = match self.replan(statement) {
                Ok(statement) => statement,
                Err(error) => return Err(self.statement_failed(error)),
            };
            if self.inner.is_at_newest() && !statement.plan.locks_by_key() {
                self.inner.begin_statement_anew();
            }
            self.read_catalog(&statement, rows);
            return self.run(&statement, parameters, rows);
        }
        self.read_catalog(statement, rows);
        self.run(statement, parameters, rows)
    }

    /// The schema of this session's temporary tables, if the statement changes rows of one of them and no others, which a read-only transaction may, too.
    fn temporary_changed_by(&mut self, statement: &Prepared) -> Option<NamespaceId> {
        if statement.plan.only_reads() || self.temporary.namespace.is_none() {
            return None;
        }
        let schema = self.schema_to_plan_by();
        let schema = self.named(&schema);
        let changed = named::changed_table(&statement.sql);
        let table = changed.as_ref().and_then(|name| name.table(&schema));
        table.map(|table| table.def.namespace).filter(|&id| Some(id) == self.own_temporary(&schema))
    }

    /// Has a few rows looked at of tables that the statement's plan should have known: it is planned anew then. What cannot be sampled now stays
    /// unknown.
    #[cold]
    fn sample_unknown(&mut self, statement: &Prepared) {
        let schema = self.inner.schema().clone();
        let tables = statement.unknown_tables.iter().filter_map(|id| schema.table_by_id(*id));
        for table in tables.filter(|table| self.cache.statistics.lacks(table)).collect::<Vec<_>>() {
            let reader = self.inner.reader();
            self.cache.statistics.of(table, &reader);
        }
    }

    /// Gives the statement the catalog that it asks, and no other one its memory.
    fn read_catalog(&mut self, statement: &Prepared, rows: &mut RowSet) {
        if !statement.needs_catalog {
            if self.env.clock.catalog != Known::default() {
                self.env.clock.catalog = Known::default();
                rows.show_by(&self.env.clock);
            }
            return;
        }
        let schema = self.inner.schema().clone();
        self.know(&schema);
        rows.show_by(&self.env.clock);
    }

    /// Makes this schema the one in which names of objects are found.
    fn know(&mut self, schema: &Arc<Schema>) {
        let schema = self.named(schema);
        if self.env.clock.catalog.is_of(&schema, &self.env.clock) {
            return;
        }
        let facts = SessionFacts {
            engine: self.engine.clone(),
            user: self.env.user.clone(),
            session_user: self.env.session_user.clone(),
            role: self.env.role,
            access: self.env.access.clone(),
            database: self.env.database.clone(),
            zone: self.env.clock.zone.clone(),
            dates: self.env.clock.dates,
            intervals: self.env.clock.intervals,
            hearing: self.env.hearing.clone(),
        };
        self.env.clock.catalog = Known(Some(Arc::new(Catalog::new(schema, Some(facts)))));
    }

    /// Where an unqualified CREATE goes, if that is not `public`.
    fn current_schema(&self) -> Option<String> {
        let schema = self.inner.schema();
        let first = self.path(schema).iter().copied().find(|&id| Some(id) != self.temporary.namespace);
        let first = first.and_then(|id| schema.namespace_by_id(id)).map(|n| n.name.clone());
        Some(first.unwrap_or_default()).filter(|name| name != "public")
    }

    /// Whether the statement was planned for the schema that this session sees, by what names mean to it now.
    #[inline]
    fn is_planned_for_now(&self, statement: &Prepared) -> bool {
        Arc::ptr_eq(self.inner.schema(), &statement.schema) && !self.names_otherwise(statement)
    }

    /// Whether names mean something else now than when the statement was planned.
    #[inline]
    fn names_otherwise(&self, statement: &Prepared) -> bool {
        let is_usual = self.temporary.namespace.is_none() && !self.env.settings.fast.has_search_path;
        statement.role != self.rights_key
            || !(is_usual && statement.path == *self.inner.schema().path())
                && self.path(self.inner.schema()) != statement.path
    }

    /// The statement for the schema that is current now.
    fn replan(&mut self, statement: &Arc<Prepared>) -> Result<Arc<Prepared>, SqlError> {
        let schema = self.inner.schema().clone();
        let mut new = self.plan(&statement.sql, &statement.declared, &schema)?;
        if new.parameters != statement.parameters {
            // Its parameters keep the types that they were told to have.
            let told: Vec<Option<Type>> = statement.parameters.iter().copied().map(Some).collect();
            new = self.plan(&statement.sql, &told, &schema)?;
        }
        if !is_same_row(&new.columns, &statement.columns) || new.parameters != statement.parameters {
            return Err(SqlError::plan_changed());
        }
        Ok(new)
    }

    fn run(&mut self, statement: &Arc<Prepared>, parameters: &[Datum], rows: &mut RowSet) -> Result<Step, SqlError> {
        if self.inner.refuses_changes() && !statement.plan.only_reads() {
            return Err(self.statement_failed(read_only_error(Error::ReadOnly.into(), statement)));
        }
        if matches!(statement.plan, Plan::Define(_) | Plan::Analyze { .. }) && self.inline_limit.is_some() {
            // An index is built in one go, and so is a sample taken.
            return Ok(self.too_long(statement, parameters));
        }
        if let Plan::Define(definition) = &statement.plan {
            if definition.is_concurrent() && matches!(self.block, Block::Explicit) {
                let message = format!("{} CONCURRENTLY cannot run inside a transaction block", definition.tag());
                return Err(self.statement_failed(SqlError::new("25001", message)));
            }
            return self.define(definition, statement, parameters, rows);
        }
        if let Plan::Analyze { tables, tag } = &statement.plan {
            return self.analyze(tables, tag, statement);
        }
        if let Plan::Explain(explained) = &statement.plan {
            return self.explain(explained, statement, parameters, rows);
        }
        let other = match &statement.plan {
            Plan::Other(planned) => Some(planned),
            Plan::Select(query) if query.is_heavy() => self.heavy(statement),
            Plan::Init(init) if init.is_heavy() => self.heavy(statement),
            _ => None,
        };
        if let Some(planned) = other {
            // A statement that is compiled may have had no use for it.
            self.read_clock();
            self.interrupt.limit_inline(None);
            return match planned.start(&mut self.road_context(parameters, takes_parts(statement, rows))) {
                Ok(running) => self.drive(statement.clone(), parameters.to_vec(), running, false, rows),
                Err(error) => Err(self.statement_failed(error)),
            };
        }
        self.run_compiled(statement, parameters, rows)
    }

    fn run_compiled(
        &mut self,
        statement: &Arc<Prepared>,
        parameters: &[Datum],
        rows: &mut RowSet,
    ) -> Result<Step, SqlError> {
        if self.inline_limit.is_some() && statement.uses_sequences && statement.plan.may_be_long() {
            // It would begin anew, and what it had taken of a sequence by then is not given back.
            return Ok(self.too_long(statement, parameters));
        }
        self.interrupt.limit_inline(self.inline_limit);
        let mut scratch = Scratch::of_thread();
        scratch.gives_parts = takes_parts(statement, rows) && matches!(statement.plan, Plan::Select(_));
        let mut run = Run::new(
            &mut self.inner,
            (parameters, &self.env),
            &mut scratch,
            &mut self.interrupt,
            &mut self.constraints,
        );
        let result = match &statement.plan {
            Plan::Explain(explained) => measured(explained, &mut run, rows).map(|()| ("EXPLAIN", None)),
            plan => run_program(plan, &mut run, rows),
        };
        if let Some(paused) = scratch.paused.take() {
            let (statement, parameters, given) = (statement.clone(), parameters.to_vec(), rows.len() as u64);
            return self.give_part(Giving { statement, parameters, scratch, paused, given });
        }
        scratch.gives_parts = false;
        scratch.leave_to_thread();
        match result {
            Ok((command, rows)) => self.finish(statement, CommandTag { command, rows }, Vec::new()),
            Err(Halt::Error(error)) => self.failed_or_waits(error, statement, parameters, rows),
            Err(Halt::TooLong) => {
                self.inner.rollback_statement();
                rows.start(&statement.columns);
                Ok(self.too_long(statement, parameters))
            }
            Err(Halt::Wait(token)) => {
                self.inner.rollback_statement();
                rows.start(&statement.columns);
                self.pending =
                    Some(Box::new(Pending::Run { statement: statement.clone(), parameters: parameters.to_vec() }));
                Ok(Step::Wait(Wait(On::Engine(token))))
            }
        }
    }

    /// Gives the rows that a compiled query has found so far; it goes on when they have been taken.
    fn give_part(&mut self, mut giving: Giving) -> Result<Step, SqlError> {
        giving.scratch.forget_lists();
        // What was read is what the snapshot has only if it still stands.
        if let Err(error) = self.inner.check_snapshot() {
            return Err(self.statement_failed(error.into()));
        }
        let durable = self.depends_on(self.inner.dependency());
        self.pending = Some(Box::new(Pending::Giving(Box::new(giving))));
        Ok(Step::Part(durable))
    }

    fn go_on_giving(&mut self, giving: Giving, rows: &mut RowSet) -> Result<Step, SqlError> {
        let Giving { statement, parameters, mut scratch, paused, given } = giving;
        let Plan::Select(query) = &statement.plan else {
            unreachable!("invariant: only a query gives parts");
        };
        self.interrupt.limit_inline(None);
        let mut run = Run::new(
            &mut self.inner,
            (&parameters, &self.env),
            &mut scratch,
            &mut self.interrupt,
            &mut self.constraints,
        );
        let result = query::go_on(query, paused, &mut run, rows);
        let given = given + rows.len() as u64;
        match (result, scratch.paused.take()) {
            (Ok(()), Some(paused)) => self.give_part(Giving { statement, parameters, scratch, paused, given }),
            (Ok(()), None) => {
                scratch.gives_parts = false;
                scratch.leave_to_thread();
                self.finish(&statement, CommandTag { command: "SELECT", rows: Some(given) }, Vec::new())
            }
            (Err(Halt::Error(error)), _) => Err(self.statement_failed(error)),
            (Err(Halt::Wait(_) | Halt::TooLong), _) => {
                unreachable!("invariant: a query that has given rows waits for nothing, and has a thread for itself")
            }
        }
    }

    /// 72000 if the snapshot of the statement that is open was ended. Who sends a part of its rows asks now and then, for nobody else does meanwhile.
    pub fn check_snapshot(&self) -> Result<(), SqlError> {
        Ok(self.inner.check_snapshot()?)
    }

    /// The plan of the other road for a compiled statement whose tables are large.
    fn heavy<'s>(&mut self, statement: &'s Arc<Prepared>) -> Option<&'s Arc<dyn Planned>> {
        if self.env.settings.fast.road.is_some() || statement.uses_sequences {
            return None;
        }
        let made = statement.heavy.get_or_init(|| {
            let schema = self.named(&statement.schema);
            let routed = route(&statement.sql, &schema, &statement.declared, Some(Forced::Query), None).ok()?;
            let is_same = routed.gives(&statement.parameters, &statement.columns);
            match routed.plan {
                Plan::Other(planned) if is_same => Some(planned),
                _ => None,
            }
        });
        made.as_ref()
    }

    /// What the other road gets of this session.
    fn road_context<'s>(&'s mut self, parameters: &'s [Datum], in_parts: bool) -> RoadContext<'s> {
        RoadContext {
            engine: &self.engine,
            session: &mut self.inner,
            parameters,
            env: &self.env,
            interrupt: &mut self.interrupt,
            constraints: &mut self.constraints,
            in_parts,
        }
    }

    /// EXPLAIN, on the road that the statement takes.
    fn explain(
        &mut self,
        explained: &Explained,
        statement: &Arc<Prepared>,
        parameters: &[Datum],
        rows: &mut RowSet,
    ) -> Result<Step, SqlError> {
        let Plan::Other(planned) = &explained.of else {
            return self.run_compiled(statement, parameters, rows);
        };
        self.interrupt.limit_inline(None);
        match planned.explain(&mut self.road_context(parameters, false), &explained.options) {
            Ok(running) => self.drive(statement.clone(), parameters.to_vec(), running, false, rows),
            Err(error) => Err(self.statement_failed(error)),
        }
    }

    fn analyze(
        &mut self,
        tables: &[Arc<Table>],
        command: &'static str,
        statement: &Arc<Prepared>,
    ) -> Result<Step, SqlError> {
        self.interrupt.limit_inline(None);
        let reader = self.inner.reader();
        for table in tables {
            let interrupt = &mut self.interrupt;
            let mut look = || match interrupt.look() {
                Err(Halt::Error(error)) => Err(error),
                Err(Halt::Wait(_) | Halt::TooLong) => unreachable!("invariant: a sample has no limit"),
                Ok(()) => Ok(()),
            };
            if let Err(error) = self.cache.statistics.analyze(table, &reader, SAMPLE_ROWS, &mut look) {
                return Err(self.statement_failed(error));
            }
        }
        let schema = self.inner.schema().clone();
        self.cache.statistics.retain(|id| schema.tables().any(|table| table.id.0 == id));
        self.finish(statement, CommandTag { command, rows: None }, Vec::new())
    }

    /// The statement sleeps, with its row locks and without its snapshot, and runs again.
    fn sleep(
        &mut self,
        length: Duration,
        statement: &Arc<Prepared>,
        parameters: &[Datum],
        rows: &mut RowSet,
    ) -> Result<Step, SqlError> {
        let sleep = match Sleep::of(length) {
            Ok(sleep) => sleep,
            Err(error) => {
                let refused = SqlError::new("53000", format!("no thread to be woken by: {error}"));
                return Err(self.statement_failed(refused));
            }
        };
        self.inner.rollback_statement();
        self.inner.rest();
        rows.start(&statement.columns);
        self.member.iter().for_each(|member| member.set_sleeping(true));
        self.pending = Some(Box::new(Pending::Run { statement: statement.clone(), parameters: parameters.to_vec() }));
        Ok(Step::Wait(Wait(On::Other(Box::pin(sleep)))))
    }

    /// An error, unless it stands for sleeping, or for waiting for a key or for a sequence that another transaction is changing.
    fn failed_or_waits(
        &mut self,
        error: SqlError,
        statement: &Arc<Prepared>,
        parameters: &[Datum],
        rows: &mut RowSet,
    ) -> Result<Step, SqlError> {
        let asleep = self.env.sequences.as_ref().and_then(|s| s.take_awaited_sleep());
        if let Some(length) = asleep.filter(|_| crate::expr::is_sleep(&error)) {
            return self.sleep(length, statement, parameters, rows);
        }
        if let Some(token) = self.env.sequences.as_ref().and_then(|s| s.take_awaited_key()) {
            self.inner.wait_for_key();
            self.inner.rollback_statement();
            rows.start(&statement.columns);
            self.pending =
                Some(Box::new(Pending::Run { statement: statement.clone(), parameters: parameters.to_vec() }));
            return Ok(Step::Wait(Wait(On::Engine(token))));
        }
        let awaited = self.env.sequences.as_ref().and_then(|s| s.take_awaited());
        let Some(sequence) = awaited else {
            return Err(self.statement_failed(read_only_error(error, statement)));
        };
        self.inner.rollback_statement();
        rows.start(&statement.columns);
        match self.inner.wait_for_sequence(&sequence) {
            Stop::Wait(token) => {
                self.pending =
                    Some(Box::new(Pending::Run { statement: statement.clone(), parameters: parameters.to_vec() }));
                Ok(Step::Wait(Wait(On::Engine(token))))
            }
            Stop::Error(error) => Err(self.statement_failed(error.into())),
        }
    }

    fn define(
        &mut self,
        definition: &define::Definition,
        statement: &Arc<Prepared>,
        parameters: &[Datum],
        rows: &mut RowSet,
    ) -> Result<Step, SqlError> {
        self.interrupt.limit_inline(None);
        let path = self.path(self.inner.schema());
        let mut temporary = self.temporary.clone();
        let definer = Definer {
            sql: &definition.sql,
            engine: &mut self.inner,
            env: &self.env,
            constraints: &mut self.constraints,
            interrupt: &mut self.interrupt,
            path,
            temporary: &mut temporary,
            defined: Defined::default(),
        };
        let result = define::run(definition, definer);
        if result.is_ok() {
            if temporary != self.temporary {
                let before = std::mem::replace(&mut self.temporary, temporary);
                self.temporary_before.get_or_insert(before);
            }
            self.tell_auditor(definition.tag(), statement);
        }
        match result {
            Ok(Defined { notices, then: None }) => {
                let tag = CommandTag { command: definition.tag(), rows: None };
                self.finish(statement, tag, notices)
            }
            Ok(Defined { then: Some(insert), .. }) => {
                // A statement of its own: where it has to wait, what was created stays.
                self.fills_table = true;
                let schema = self.inner.schema().clone();
                match self.plan(&insert, &[], &schema) {
                    Ok(insert) => self.attempt(&insert, &[], rows),
                    Err(error) => Err(self.statement_failed(error)),
                }
            }
            Err(Halt::Error(error)) => self.failed_or_waits(error, statement, parameters, rows),
            Err(Halt::TooLong) => unreachable!("invariant: a definition has no limit"),
            Err(Halt::Wait(token)) => {
                self.inner.rollback_statement();
                rows.start(&statement.columns);
                self.pending =
                    Some(Box::new(Pending::Run { statement: statement.clone(), parameters: parameters.to_vec() }));
                Ok(Step::Wait(Wait(On::Engine(token))))
            }
        }
    }

    /// SET CONSTRAINTS; what is no longer deferred is looked at.
    fn set_constraints(
        &mut self,
        ids: Option<&[u32]>,
        deferred: bool,
        statement: &Arc<Prepared>,
        rows: &mut RowSet,
    ) -> Result<Step, SqlError> {
        if matches!(self.block, Block::None) {
            let warning = Notice::new("25P01", "SET CONSTRAINTS can only be used in transaction blocks");
            return Ok(self.told("SET CONSTRAINTS", None, Some(warning)));
        }
        if !deferred {
            self.keep_what_is_owed();
        }
        self.constraints.set(ids, deferred);
        if deferred || !self.constraints.has_deferred() {
            return Ok(done("SET CONSTRAINTS"));
        }
        self.attempt(statement, &[], rows)
    }

    /// What is due before a commit: deferred constraints, and what becomes of temporary tables.
    fn before_commit(&mut self) -> Result<(), Halt> {
        if self.constraints.has_deferred() {
            self.inner.begin_statement();
            self.interrupt.limit_inline(self.inline_limit);
            let mut scratch = Scratch::of_thread();
            let settled = rules::settle(
                &mut Run::new(
                    &mut self.inner,
                    (&[], &self.env),
                    &mut scratch,
                    &mut self.interrupt,
                    &mut self.constraints,
                ),
                None,
            );
            scratch.leave_to_thread();
            settled?;
        }
        // A statement of its own that only reads has left no row in them.
        if self.temporary.on_commit.is_empty() || self.block == Block::None && self.inner.is_read_only() {
            return Ok(());
        }
        if let Some(schema) = self.inner.own_schema() {
            check_emptied_together(schema, &self.temporary.on_commit)?;
        }
        let schema = self.inner.schema().clone();
        let own = self.own_temporary(&schema);
        let is_due = |&(id, drops): &(TableId, bool)| {
            let table = schema.table_by_id(id).filter(|table| Some(table.def.namespace) == own);
            table.is_some_and(|table| drops || table.slots() > 0)
        };
        let due: Vec<_> = self.temporary.on_commit.iter().copied().filter(is_due).collect();
        if due.is_empty() {
            return Ok(());
        }
        self.inner.begin_upkeep();
        for (id, _) in due.iter().filter(|(_, drops)| !drops) {
            let is_small = schema.table_by_id(*id).is_some_and(|table| table.slots() <= EMPTIED_BY_ROW_MAX);
            match is_small {
                true => self.inner.delete_rows_alone(*id)?,
                false => self.inner.truncate_by_id(*id)?,
            }
        }
        let gone: Vec<_> = due.into_iter().filter(|(_, drops)| *drops).map(|(id, _)| id).collect();
        if gone.is_empty() { Ok(()) } else { self.drop_at_commit(&gone) }
    }

    /// Drops tables with what depends on them.
    fn drop_at_commit(&mut self, tables: &[TableId]) -> Result<(), Halt> {
        // The session's own list is cleared when the transaction is over.
        let mut temporary = self.temporary.clone();
        let definer = Definer {
            sql: "",
            engine: &mut self.inner,
            env: &self.env,
            constraints: &mut self.constraints,
            interrupt: &mut self.interrupt,
            path: Arc::new([NamespaceId::PUBLIC]),
            temporary: &mut temporary,
            defined: Defined::default(),
        };
        define::drop_at_commit(definer, tables)
    }

    /// The session's temporary tables are gone, for this session at once.
    fn drop_temporary(&mut self) {
        let own = self.own_temporary(&self.engine.schema());
        self.temporary = Temporary::default();
        let Some(namespace) = own else { return };
        if !self.drop_schema_at_once(namespace) {
            leftover::leave(&self.engine, &self.cache, namespace);
        }
    }

    /// Drops a temporary schema with all that is in it, unless that would have to wait for somebody.
    fn drop_schema_at_once(&mut self, namespace: NamespaceId) -> bool {
        assert!(!self.inner.in_transaction(), "invariant: temporary tables are dropped in a transaction of their own");
        self.inner.begin(freshet_engine::txn::Isolation::ReadCommitted, false);
        self.inner.set_nowait(true);
        self.inner.begin_statement();
        let definer = Definer {
            sql: "",
            engine: &mut self.inner,
            env: &self.env,
            constraints: &mut self.constraints,
            interrupt: &mut self.interrupt,
            path: Arc::new([NamespaceId::PUBLIC]),
            temporary: &mut self.temporary,
            defined: Defined::default(),
        };
        let is_dropped = define::drop_temporary(definer, namespace).is_ok() && self.inner.commit().is_ok();
        self.inner.set_nowait(false);
        if self.inner.in_transaction() {
            self.inner.rollback();
        }
        is_dropped
    }

    /// The statement runs anew, elsewhere.
    fn too_long(&mut self, statement: &Arc<Prepared>, parameters: &[Datum]) -> Step {
        self.is_long = true;
        self.pending = Some(Box::new(Pending::Run { statement: statement.clone(), parameters: parameters.to_vec() }));
        Step::Wait(Wait(On::Elsewhere))
    }

    /// Goes on with a run of the other road.
    fn drive(
        &mut self,
        statement: Arc<Prepared>,
        parameters: Vec<Datum>,
        mut running: Box<dyn Running>,
        gave_part: bool,
        rows: &mut RowSet,
    ) -> Result<Step, SqlError> {
        let in_parts = takes_parts(&statement, rows);
        let progress = running.step(&mut self.road_context(&parameters, in_parts), rows);
        match progress {
            Ok(Progress::Done(count)) => {
                let command = match &statement.plan {
                    Plan::Explain(_) => {
                        return self.finish(&statement, CommandTag { command: "EXPLAIN", rows: None }, Vec::new());
                    }
                    Plan::Other(planned) => planned.command(),
                    // What the other road does for the compiled one are queries.
                    _ => "SELECT",
                };
                let tag = CommandTag { command, rows: Some(count) };
                self.finish(&statement, tag, Vec::new())
            }
            Ok(Progress::Pending(future)) => {
                self.pending = Some(Box::new(Pending::Road { statement, parameters, running, gave_part }));
                Ok(Step::Wait(Wait(On::Other(future))))
            }
            Ok(Progress::Part) => {
                let durable = self.depends_on(self.inner.dependency());
                self.pending = Some(Box::new(Pending::Road { statement, parameters, running, gave_part: true }));
                Ok(Step::Part(durable))
            }
            Ok(Progress::Restart(token)) => {
                self.inner.rollback_statement();
                rows.start(&statement.columns);
                self.pending = Some(Box::new(Pending::Run { statement, parameters }));
                Ok(Step::Wait(Wait(On::Engine(token))))
            }
            // The compiled road keeps less in memory.
            Err(error)
                if error.sqlstate == "53200"
                    && !gave_part
                    && matches!(statement.plan, Plan::Select(_) | Plan::Init(_)) =>
            {
                drop(running);
                rows.start(&statement.columns);
                self.run_compiled(&statement, &parameters, rows)
            }
            Err(error) => self.failed_or_waits(error, &statement, &parameters, rows),
        }
    }

    /// Those of the notices that `client_min_messages` lets through.
    fn wanted(&self, notices: impl IntoIterator<Item = Notice>) -> Vec<Notice> {
        let level = self.env.settings.get("client_min_messages").unwrap_or_default();
        notices.into_iter().filter(|notice| notice.is_told(&level)).collect()
    }

    fn told(&self, command: &'static str, durable: Option<Cts>, notice: Option<Notice>) -> Step {
        let tag = CommandTag { command, rows: None };
        let notices = if notice.is_some() { self.wanted(notice) } else { Vec::new() };
        Step::Done(Outcome { tag, durable, notices })
    }

    /// A statement has run: commits it if it is a transaction of its own.
    fn finish(&mut self, statement: &Prepared, tag: CommandTag, notices: Vec<Notice>) -> Result<Step, SqlError> {
        let notices = match (&statement.notice, notices.is_empty()) {
            (None, true) => notices,
            (own, _) => self.wanted(own.as_deref().cloned().into_iter().chain(notices)),
        };
        if statement.uses_sequences
            && let Some(sequences) = &self.env.sequences
        {
            self.inner.depend_on(sequences.take_dependency());
        }
        let tag = match std::mem::take(&mut self.fills_table) {
            true => CommandTag { command: "SELECT", ..tag },
            false => tag,
        };
        if self.block == Block::None {
            return self.commit(Commit { tag, notices, chain: false });
        }
        self.inner.rest();
        let durable = if statement.gives_rows() { self.depends_on(self.inner.dependency()) } else { None };
        Ok(Step::Done(Outcome { tag, durable, notices }))
    }

    fn commit(&mut self, commit: Commit) -> Result<Step, SqlError> {
        if self.constraints.has_deferred() || !self.temporary.on_commit.is_empty() {
            match self.before_commit() {
                Ok(()) => {}
                Err(Halt::Wait(token)) => {
                    self.inner.rollback_statement();
                    self.pending = Some(Box::new(Pending::Commit(commit)));
                    return Ok(Step::Wait(Wait(On::Engine(token))));
                }
                Err(Halt::TooLong) => {
                    self.inner.rollback_statement();
                    self.pending = Some(Box::new(Pending::Commit(commit)));
                    return Ok(Step::Wait(Wait(On::Elsewhere)));
                }
                // It is over, whatever savepoints it has.
                Err(Halt::Error(error)) => {
                    self.roll_back();
                    self.leave_block(false);
                    return Err(error);
                }
            }
        }
        let dependency = self.inner.dependency();
        let speaking = self.speaking()?;
        let latch = speaking.as_ref().map(|activity| activity.channels.speak());
        match self.inner.commit() {
            Ok(committed) => {
                self.hear_commit(committed.cts);
                drop(latch);
                self.counts.add(Count::Commits, 1);
                let durable = self.depends_on(committed.cts);
                let Commit { tag, notices, chain } = commit;
                self.leave_or_chain(true, chain);
                Ok(Step::Done(Outcome { tag, durable, notices }))
            }
            Err(Stop::Wait(token)) => {
                self.pending = Some(Box::new(Pending::Commit(commit)));
                Ok(Step::Wait(Wait(On::Engine(token))))
            }
            Err(Stop::Error(error)) => {
                self.counts.add(Count::Rollbacks, 1);
                self.error_dependency = self.depends_on(dependency).unwrap_or(NOTHING);
                self.leave_block(false);
                Err(error.into())
            }
        }
    }

    /// What a reply that depends on `cts` waits for.
    fn depends_on(&mut self, cts: Cts) -> Option<Cts> {
        if cts == Cts::ZERO || self.engine.is_durable(cts) {
            return None;
        }
        if self.env.settings.fast.deferred_commit {
            self.inner.acknowledged_deferred(cts);
            return None;
        }
        Some(cts)
    }

    // ---- errors

    /// Ends the statement in progress with an error (57014 cancel, 55P03 lock timeout).
    pub fn cancel(&mut self, error: SqlError) -> SqlError {
        self.inner.abandon_wait();
        let error = match self.pending.take().map(|pending| *pending) {
            None | Some(Pending::Checkpoint(_)) => {
                self.fail();
                error
            }
            // The block was to end, and so it does.
            Some(Pending::Commit(_)) => {
                self.roll_back();
                self.leave_block(false);
                error
            }
            Some(_) => self.statement_failed(error),
        };
        self.leave_failed_block();
        self.watched_failure(&error);
        self.tell_end();
        error
    }

    /// An error of the protocol or of parameter decoding fails an open transaction as one of a statement does.
    pub fn fail(&mut self) {
        self.pending = None;
        self.copying = None;
        self.forget_declaring();
        match self.block {
            // What stood at the newest savepoint stands.
            Block::Failed => {}
            Block::Explicit => {
                let dependency = self.inner.dependency();
                if !self.undo_to_savepoint() {
                    self.roll_back();
                    self.settle_channels(false);
                    self.settle_temporary(false);
                    self.restore_settings(false);
                } else if self.inner.in_transaction() {
                    self.error_dependency = self.depends_on(dependency).unwrap_or(NOTHING);
                }
                self.block = Block::Failed;
            }
            Block::Implicit | Block::None => {
                self.roll_back();
                self.leave_block(false);
            }
        }
    }

    /// Rolls the engine's transaction back, if there is one; the error that is the reason waits for what it examined.
    fn roll_back(&mut self) {
        if self.inner.in_transaction() {
            let dependency = self.inner.dependency();
            self.inner.rollback();
            self.counts.add(Count::Rollbacks, 1);
            self.error_dependency = self.depends_on(dependency).unwrap_or(NOTHING);
        }
    }

    fn statement_failed(&mut self, error: SqlError) -> SqlError {
        self.fail();
        error
    }

    /// What the last error depends on: it is told once this is durable.
    pub fn error_dependency(&self) -> Option<Cts> {
        (self.error_dependency != NOTHING).then_some(self.error_dependency)
    }

    pub fn status(&self) -> TransactionStatus {
        match self.block {
            Block::None | Block::Implicit => TransactionStatus::Idle,
            Block::Explicit => TransactionStatus::Open,
            Block::Failed => TransactionStatus::Failed,
        }
    }

    // ---- blocks

    fn begin(&mut self, start: bool, modes: Modes) -> Result<Step, SqlError> {
        let tag = if start { "START TRANSACTION" } else { "BEGIN" };
        if self.block == Block::Explicit {
            let warning = Notice::new("25001", "there is already a transaction in progress");
            return Ok(self.told(tag, None, Some(warning)));
        }
        // Statements before it in the same script may have begun the transaction.
        if let Err(message) = self.check_modes(modes) {
            self.fail();
            return Err(SqlError::new("25001", message));
        }
        self.block = Block::Explicit;
        self.modes = modes;
        self.fix_defaults();
        self.inner.set_read_only(self.is_read_only());
        self.clock_read = false;
        self.read_clock();
        Ok(done(tag))
    }

    /// A block's modes are those of its beginning, whatever becomes of the defaults.
    fn fix_defaults(&mut self) {
        self.modes = Modes {
            isolation: Some(self.level()),
            read_only: Some(self.is_read_only()),
            deferrable: Some(self.is_deferrable()),
        };
    }

    fn set_transaction(&mut self, modes: Modes, session: bool) -> Result<Step, SqlError> {
        if session {
            if let Some(level) = modes.isolation {
                self.set_value("default_transaction_isolation", Some(level.name()), false)?;
            }
            if let Some(read_only) = modes.read_only {
                let value = if read_only { "on" } else { "off" };
                self.set_value("default_transaction_read_only", Some(value), false)?;
            }
            if let Some(deferrable) = modes.deferrable {
                let value = if deferrable { "on" } else { "off" };
                self.set_value("default_transaction_deferrable", Some(value), false)?;
            }
            return Ok(done("SET"));
        }
        if self.block == Block::None {
            let warning = Notice::new("25P01", "SET TRANSACTION can only be used in transaction blocks");
            return Ok(self.told("SET", None, Some(warning)));
        }
        if let Err(message) = self.check_modes(modes) {
            self.fail();
            return Err(SqlError::new("25001", message));
        }
        self.modes.isolation = modes.isolation.or(self.modes.isolation);
        self.modes.deferrable = modes.deferrable.or(self.modes.deferrable);
        if let Some(read_only) = modes.read_only {
            self.modes.read_only = Some(read_only);
            self.inner.set_read_only(read_only);
        }
        Ok(done("SET"))
    }

    /// What may change when: the level before the first query and any savepoint, read only at any time, back to read-write before the first query.
    fn check_modes(&self, modes: Modes) -> Result<(), &'static str> {
        let has_begun = self.inner.in_transaction();
        if modes.isolation.is_some_and(|level| level != self.level()) {
            if has_begun {
                return Err("SET TRANSACTION ISOLATION LEVEL must be called before any query");
            }
            if !self.savepoints.is_empty() {
                return Err("SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction");
            }
        }
        if modes.read_only == Some(false) && self.is_read_only() {
            if !self.savepoints.is_empty() {
                return Err("cannot set transaction read-write mode inside a read-only transaction");
            }
            if has_begun {
                return Err("transaction read-write mode must be set before any query");
            }
        }
        if modes.deferrable.is_some() {
            if !self.savepoints.is_empty() {
                return Err("SET TRANSACTION [NOT] DEFERRABLE cannot be called within a subtransaction");
            }
            if has_begun {
                return Err("SET TRANSACTION [NOT] DEFERRABLE must be called before any query");
            }
        }
        Ok(())
    }

    fn end_block(&mut self, chain: bool) -> Result<Step, SqlError> {
        self.check_chain("COMMIT", chain)?;
        match self.block {
            Block::Failed => Ok(self.roll_back_block(chain)),
            Block::None => Ok(self.told("COMMIT", None, Some(no_transaction()))),
            Block::Implicit | Block::Explicit => {
                let warning = (self.block == Block::Implicit).then(no_transaction);
                if !self.inner.in_transaction() {
                    self.speaking()?;
                    self.leave_or_chain(true, chain);
                    return Ok(self.told("COMMIT", None, warning));
                }
                let tag = CommandTag { command: "COMMIT", rows: None };
                let notices = self.wanted(warning);
                self.commit(Commit { tag, notices, chain })
            }
        }
    }

    fn abort_block(&mut self, chain: bool) -> Result<Step, SqlError> {
        self.check_chain("ROLLBACK", chain)?;
        Ok(self.roll_back_block(chain))
    }

    fn check_chain(&mut self, command: &str, chain: bool) -> Result<(), SqlError> {
        if chain && matches!(self.block, Block::None | Block::Implicit) {
            self.fail();
            let message = format!("{command} AND CHAIN can only be used in transaction blocks");
            return Err(SqlError::new("25P01", message));
        }
        Ok(())
    }

    fn roll_back_block(&mut self, chain: bool) -> Step {
        let warning = matches!(self.block, Block::None | Block::Implicit).then(no_transaction);
        let mut durable = None;
        if self.inner.in_transaction() {
            let dependency = self.inner.dependency();
            self.inner.rollback();
            self.counts.add(Count::Rollbacks, 1);
            durable = self.depends_on(dependency);
        }
        self.leave_or_chain(false, chain);
        self.told("ROLLBACK", durable, warning)
    }

    /// Leaves the block; with `chain` for another one of the same modes.
    fn leave_or_chain(&mut self, committed: bool, chain: bool) {
        let modes = self.modes;
        self.leave_block(committed);
        if chain {
            self.block = Block::Explicit;
            self.modes = modes;
            self.read_clock();
        }
    }

    fn leave_block(&mut self, committed: bool) {
        self.block = Block::None;
        self.modes = Modes::default();
        self.savepoints.clear();
        self.clock_read = false;
        self.env.number.forget();
        self.end_cursors(committed);
        self.constraints.end();
        self.settle_channels(committed);
        self.settle_temporary(committed);
        self.restore_settings(committed);
    }

    /// A transaction is over: what it did with temporary tables is undone, or they are as it left them.
    fn settle_temporary(&mut self, committed: bool) {
        if let Some(before) = self.temporary_before.take()
            && !committed
        {
            self.temporary = before;
        }
        if committed && !self.temporary.on_commit.is_empty() {
            let schema = self.engine.schema();
            self.temporary.on_commit.retain(|&(id, _)| schema.table_by_id(id).is_some());
        }
    }

    /// Several statements of one simple query run as one transaction unless they control it themselves.
    pub fn begin_implicit(&mut self) {
        if self.block == Block::None {
            self.block = Block::Implicit;
        }
    }

    /// Ends what `begin_implicit` began, if it is still there.
    pub fn commit_implicit(&mut self) -> Result<Step, SqlError> {
        self.error_dependency = NOTHING;
        if self.block != Block::Implicit {
            return Ok(done(""));
        }
        self.interrupt.deadline = self.statement_timeout().map(|limit| Instant::now() + limit);
        if !self.inner.in_transaction() {
            self.speaking()?;
            self.leave_block(true);
            return Ok(done(""));
        }
        let tag = CommandTag { command: "COMMIT", rows: None };
        self.commit(Commit { tag, notices: Vec::new(), chain: false })
    }

    /// Rolls back what is open; the session goes on.
    pub fn abandon(&mut self) {
        self.inner.abandon_wait();
        self.pending = None;
        self.doing = None;
        self.copying = None;
        if self.inner.in_transaction() {
            self.inner.rollback();
            self.counts.add(Count::Rollbacks, 1);
        }
        self.leave_block(false);
    }

    /// The session ends (the client is gone): what is open is rolled back, and what is only its own goes.
    pub fn close(&mut self) {
        self.abandon();
        self.drop_temporary();
        self.env.keys.iter().for_each(|keys| keys.unlock_all());
        self.leave_channels();
        if let Some(member) = self.member.take() {
            self.cache.activity.leave(&member);
        }
    }

    // ---- settings

    pub fn setting(&self, name: &str) -> Option<String> {
        match name.to_ascii_lowercase().as_str() {
            "transaction_isolation" => Some(self.level().name().to_owned()),
            "transaction_read_only" => Some(if self.is_read_only() { "on" } else { "off" }.to_owned()),
            "transaction_deferrable" => Some(if self.is_deferrable() { "on" } else { "off" }.to_owned()),
            name => self.setting_of_database(name).or_else(|| self.env.settings.get(name)),
        }
    }

    /// A setting that is the database's, not the session's.
    fn setting_of_database(&self, name: &str) -> Option<String> {
        let of_database = name.eq_ignore_ascii_case(RECOVERY_TARGET);
        of_database.then(|| settings::show_time(self.engine.recovery_target().unwrap_or_default()))
    }

    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        self.set_value(name, Some(value), false).map(|_| ())
    }

    fn set_value(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<Option<Notice>, SqlError> {
        let has_own_rules = name.eq_ignore_ascii_case(RECOVERY_TARGET) || name.starts_with("transaction_");
        if local && !has_own_rules && self.block == Block::None {
            return Ok(Some(Notice::new("25P01", "SET LOCAL can only be used in transaction blocks")));
        }
        self.assign(name, value, local, self.block != Block::None)
    }

    /// `is_undoable`: within a transaction, whose end settles it.
    fn assign(
        &mut self,
        name: &str,
        value: Option<&str>,
        local: bool,
        is_undoable: bool,
    ) -> Result<Option<Notice>, SqlError> {
        if matches!(name, "transaction_isolation" | "transaction_read_only" | "transaction_deferrable") {
            return self.set_of_transaction(name, value.unwrap_or_default());
        }
        if name.eq_ignore_ascii_case(RECOVERY_TARGET) {
            return self.set_recovery_target(value, local);
        }
        if settings::is_superusers(name) {
            self.check_superuser(name)?;
        }
        let before = is_undoable.then(|| self.env.settings.clone());
        let told = match (name.to_ascii_lowercase().as_str(), value) {
            ("role", value) => {
                self.set_role(value.unwrap_or("none"))?;
                None
            }
            ("session_authorization", value) => {
                self.set_session_authorization(value)?;
                None
            }
            (_, Some(value)) => self.env.settings.set(name, value)?,
            (_, None) => self.env.settings.reset(name)?,
        };
        self.reported.extend(told);
        self.env.set_clock();
        if name.eq_ignore_ascii_case("application_name") {
            self.tell_application_name();
        }
        if let Some(before) = before {
            self.note_setting(name, before, local);
        }
        Ok(None)
    }

    /// The outputs of a SELECT with `set_config`, each as the settings are when its turn comes.
    fn give_config(&mut self, query: &ConfigQuery, parameters: &[Datum], rows: &mut RowSet) -> Result<Step, SqlError> {
        self.read_clock();
        let mut given = Vec::with_capacity(query.outputs.len());
        for output in &query.outputs {
            let value = match output {
                ConfigOutput::Value(expr) => self.value_alone(expr, parameters)?,
                ConfigOutput::Set { name, value, local } => {
                    let [name, value, local] = [
                        self.value_alone(name, parameters)?,
                        self.value_alone(value, parameters)?,
                        self.value_alone(local, parameters)?,
                    ];
                    let Datum::Bytes(name) = name else {
                        return Err(SqlError::new("22004", "SET requires parameter name"));
                    };
                    let name = String::from_utf8_lossy(&name).into_owned();
                    if query.only_known && self.setting(&name).is_none() {
                        return Ok(self.told("SELECT 0", None, None));
                    }
                    let value = match &value {
                        Datum::Bytes(value) => Some(String::from_utf8_lossy(value)),
                        _ => None,
                    };
                    self.assign(&name, value.as_deref(), local == Datum::Bool(true), true)?;
                    Datum::Bytes(self.setting(&name).unwrap_or_default().into_bytes().into())
                }
            };
            given.push(value);
        }
        // What is shown by the session is so as it is at the end.
        rows.show_by(&self.env.clock);
        given.iter().for_each(|value| rows.push(&value.as_value()));
        rows.finish_row()?;
        Ok(self.told("SELECT 1", None, None))
    }

    /// An expression over nothing.
    fn value_alone(&self, expr: &Expr, parameters: &[Datum]) -> Result<Datum, SqlError> {
        let frame = Frame { parameters, ..Frame::new(&self.env) };
        Ok(evaluate(expr, &frame)?.into_datum())
    }

    /// A setting was changed within a transaction, before which all were as in `before`: what a rollback or a commit is to leave.
    fn note_setting(&mut self, name: &str, before: Settings, local: bool) {
        match (&mut self.settings_after, local) {
            (None, true) => self.settings_after = Some(before.clone()),
            (Some(after), false) => after.take_one(name, &self.env.settings),
            _ => {}
        }
        self.settings_before.get_or_insert(before);
    }

    /// `SET transaction_isolation = ...` is SET TRANSACTION in another spelling.
    fn set_of_transaction(&mut self, name: &str, value: &str) -> Result<Option<Notice>, SqlError> {
        let mut scratch = Settings::default();
        scratch.set(name, value)?;
        let value = scratch.get(name).unwrap_or_default();
        let mut modes = Modes::default();
        match name {
            "transaction_read_only" => modes.read_only = Some(value == "on"),
            "transaction_isolation" => modes.isolation = Level::of_name(&value),
            _ => modes.deferrable = Some(value == "on"),
        }
        match self.set_transaction(modes, false)? {
            Step::Done(outcome) => Ok(outcome.notices.into_iter().next()),
            Step::Wait(_) | Step::Part(_) => unreachable!("invariant: SET TRANSACTION waits for nothing"),
        }
    }

    /// The whole database's, at once and not undone by a rollback: so not where a rollback could be meant to. Warns where it cannot be held.
    fn set_recovery_target(&mut self, value: Option<&str>, local: bool) -> Result<Option<Notice>, SqlError> {
        self.check_superuser(RECOVERY_TARGET)?;
        if local || self.block == Block::Explicit {
            let message = format!("SET {RECOVERY_TARGET} cannot run inside a transaction block");
            return Err(SqlError::new("25001", message).with_hint("It sets the whole database, at once."));
        }
        match value {
            Some(value) => self.engine.set_recovery_target(settings::time_of(RECOVERY_TARGET, value)?),
            None => self.engine.reset_recovery_target(),
        }
        Ok(self.engine.restart_forecast().warning().map(|warning| Notice::new("01000", warning)))
    }

    fn restore_settings(&mut self, committed: bool) {
        let (before, after) = (self.settings_before.take(), self.settings_after.take());
        if let Some(restored) = if committed { after } else { before } {
            self.take_settings(restored);
        }
    }

    fn take_settings(&mut self, restored: Settings) {
        let changes = restored.reported_changes(&self.env.settings);
        self.reported.extend(changes);
        self.env.settings = restored;
        self.env.set_clock();
        self.tell_application_name();
        self.assume_settings();
    }

    fn tell_application_name(&self) {
        if let Some(member) = &self.member {
            member.set_application_name(&self.env.settings.get("application_name").unwrap_or_default());
        }
    }

    fn reset_all(&mut self) {
        let fresh = self.fresh_settings();
        self.reported.extend(fresh.reported_changes(&self.env.settings));
        let before = std::mem::replace(&mut self.env.settings, fresh);
        self.env.set_clock();
        self.tell_application_name();
        if self.block != Block::None {
            self.settings_after = None;
            self.settings_before.get_or_insert(before);
        }
    }

    fn discard_all(&mut self) -> Result<Step, SqlError> {
        if self.block != Block::None {
            self.fail();
            return Err(SqlError::new("25001", "DISCARD ALL cannot run inside a transaction block"));
        }
        self.reset_all();
        self.set_session_authorization(None)?;
        self.close_cursors();
        self.forget_statements();
        self.drop_temporary();
        self.env.sequences.iter().for_each(|sequences| sequences.forget());
        self.env.keys.iter().for_each(|keys| keys.unlock_all());
        self.listen_no_more();
        Ok(done("DISCARD ALL"))
    }

    fn discard_temp(&mut self) -> Result<Step, SqlError> {
        if self.block != Block::None && self.temporary.namespace.is_some() {
            self.fail();
            return Err(SqlError::unsupported("DISCARD TEMP inside a transaction block"));
        }
        self.drop_temporary();
        Ok(done("DISCARD TEMP"))
    }

    /// Settings changed since the last call, for ParameterStatus.
    pub fn take_reported(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.reported)
    }

    /// What is set so far is what RESET and DISCARD ALL go back to.
    pub fn begin_settings(&mut self) {
        self.env.settings.begin();
    }

    /// All settings that a client is told at start-up.
    pub fn reported_settings(&self) -> Vec<(String, String)> {
        self.env.settings.reported()
    }

    pub fn lock_timeout(&self) -> Option<Duration> {
        self.env.settings.fast.lock_timeout
    }

    pub fn statement_timeout(&self) -> Option<Duration> {
        self.env.settings.fast.statement_timeout
    }

    /// Until `statement_timeout` ends the statement that was begun last.
    pub fn statement_time_left(&self) -> Option<Duration> {
        self.interrupt.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    // ---- parameters

    /// Checks the parameters' forms. True: they stand in `converted` in the forms of their types.
    fn converts(&mut self, statement: &Prepared, parameters: &[Datum]) -> Result<bool, SqlError> {
        let types = &statement.parameters;
        if types.len() != parameters.len() {
            self.fail();
            return Err(SqlError::new(
                "08P01",
                format!(
                    "bind message supplies {} parameters, but prepared statement requires {}",
                    parameters.len(),
                    types.len()
                ),
            ));
        }
        if types.iter().zip(parameters).all(|(&ty, datum)| has_form(ty, datum)) {
            return Ok(false);
        }
        self.converted.clear();
        for (i, (&ty, datum)) in types.iter().zip(parameters).enumerate() {
            match convert(ty, datum, self.clock_for(ty)) {
                Ok(datum) => self.converted.push(datum),
                Err(error) => {
                    self.fail();
                    let detail = format!("Parameter ${} is of type {}.", i + 1, value::pgtype::name(ty));
                    return Err(match error.detail {
                        Some(_) => error,
                        None => error.with_detail(detail),
                    });
                }
            }
        }
        Ok(true)
    }

    fn wait_checkpoint(&mut self, background: Arc<Background>) -> Step {
        let future = Box::pin(BackgroundDone(background.clone()));
        self.pending = Some(Box::new(Pending::Checkpoint(background)));
        Step::Wait(Wait(On::Other(future)))
    }
}

/// Whether the parameters are as the statement wants them.
#[inline]
fn have_form(statement: &Prepared, parameters: &[Datum]) -> bool {
    let types = &statement.parameters;
    match (types.as_slice(), parameters) {
        ([Type::Int8], [Datum::Int(_)]) => true,
        _ => {
            let has_form = |(&ty, datum): (&Type, &Datum)| {
                matches!((ty, datum), (Type::Int8, Datum::Int(_))) || has_form(ty, datum)
            };
            types.len() == parameters.len() && types.iter().zip(parameters).all(has_form)
        }
    }
}

/// Whether the statement's rows may be given part by part: what waits for a sequence, a key or a time is run again, and then has given none.
fn takes_parts(statement: &Prepared, rows: &RowSet) -> bool {
    rows.is_sent() && !statement.uses_sequences
}

fn done(command: &'static str) -> Step {
    Step::Done(Outcome { tag: CommandTag { command, rows: None }, durable: None, notices: Vec::new() })
}

/// Runs a compiled statement on rows.
fn run_program(plan: &Plan, run: &mut Run<'_>, rows: &mut RowSet) -> Result<(&'static str, Option<u64>), Halt> {
    match plan {
        Plan::Select(plan) => query::run(plan, run, rows).map(|()| ("SELECT", Some(rows.len() as u64))),
        Plan::Insert(plan) => change::insert(plan, run, rows).map(|n| ("INSERT", Some(n))),
        Plan::Update(plan) => change::update(plan, run, rows).map(|n| ("UPDATE", Some(n))),
        Plan::Delete(plan) => change::delete(plan, run, rows).map(|n| ("DELETE", Some(n))),
        Plan::Init(init) => {
            let parameters = init.parameters(run)?;
            run.under(&parameters, |run| run_program(&init.then, run, rows))
        }
        Plan::Lock(locks) => lock::lock_tables(locks, run).map(|()| ("LOCK TABLE", None)),
        Plan::SetConstraints { ids, .. } => rules::settle(run, ids.as_deref()).map(|()| ("SET CONSTRAINTS", None)),
        other => unreachable!("invariant: only statements on rows and schema run: {other:?}"),
    }
}

/// The lines of EXPLAIN of a compiled statement, which runs if it is to be measured.
fn measured(explained: &Explained, run: &mut Run<'_>, rows: &mut RowSet) -> Result<(), Halt> {
    if explain::nodes(&explained.of, run.env, None).is_none() {
        give_text(rows, &["Utility Statement"])?;
        return Ok(());
    }
    let planning_ms = explained.planning_ms;
    let started = Instant::now();
    let mut measured = None;
    if explained.options.analyze {
        let mut given = RowSet::default();
        run.env.engine.iter().for_each(|engine| given.charge_to(engine));
        given.start(&explained.columns);
        run.scratch.watch = Some(Box::default());
        let result = run_program(&explained.of, run, &mut given);
        let watch = run.scratch.watch.take().unwrap_or_default();
        result?;
        let total_ms = started.elapsed().as_secs_f64() * 1e3;
        measured = Some(explain::Measured { watch: *watch, total_ms, rows: given.len() as u64 });
    }
    let times = explain::Times { planning_ms, execution_ms: started.elapsed().as_secs_f64() * 1e3 };
    let node = explain::nodes(&explained.of, run.env, measured.as_ref()).expect("it is the same plan");
    for line in explain::lines(&node, "compiled", &explained.options, times) {
        give_text(rows, &[&line])?;
    }
    Ok(())
}

fn give_text(rows: &mut RowSet, cells: &[&str]) -> Result<(), SqlError> {
    for cell in cells {
        rows.push(&Value::Bytes(cell.as_bytes()));
    }
    rows.finish_row()
}

fn aborted() -> SqlError {
    SqlError::new("25P02", "current transaction is aborted, commands ignored until end of transaction block")
}

fn no_transaction() -> Notice {
    Notice::new("25P01", "there is no transaction in progress")
}

/// 0A000 where a table is emptied at each commit, and one that refers to it is not.
fn check_emptied_together(schema: &Schema, on_commit: &[(TableId, bool)]) -> Result<(), SqlError> {
    let is_emptied = |id| on_commit.contains(&(id, false));
    let Some((child, _, key)) =
        schema.foreign_keys().find(|(child, _, key)| is_emptied(key.parent) && !is_emptied(child.id))
    else {
        return Ok(());
    };
    let parent = schema.table_by_id(key.parent).map(|table| table.def.name.as_str()).unwrap_or_default();
    let detail = format!(
        "Table \"{}\" references \"{parent}\", but they do not have the same ON COMMIT setting.",
        child.def.name
    );
    Err(SqlError::new("0A000", "unsupported ON COMMIT and foreign key combination").with_detail(detail))
}

/// The engine knows that a write was refused, the statement what it is called.
fn read_only_error(error: SqlError, statement: &Prepared) -> SqlError {
    if error.sqlstate != "25006" {
        return error;
    }
    let Some(command) = changing(&statement.plan) else { return error };
    SqlError::new("25006", format!("cannot execute {command} in a read-only transaction"))
}

/// What a plan that writes is called where it must not.
fn changing(plan: &Plan) -> Option<&'static str> {
    Some(match plan {
        Plan::Insert(_) => "INSERT",
        Plan::Update(_) => "UPDATE",
        Plan::Delete(_) => "DELETE",
        Plan::Select(_) => "SELECT FOR UPDATE",
        Plan::Init(init) => return changing(&init.then),
        Plan::Explain(explained) => return changing(&explained.of),
        Plan::Define(definition) => definition.tag(),
        Plan::Other(planned) => match planned.command() {
            "SELECT" => "SELECT FOR UPDATE",
            command => command,
        },
        _ => return None,
    })
}

/// Microseconds since 2000-01-01.
pub fn now() -> i64 {
    const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64);
    since_1970 - POSTGRES_EPOCH_US
}

/// Whether a parameter can go into expressions and rows as it stands.
#[inline]
pub(crate) fn has_form(ty: Type, datum: &Datum) -> bool {
    match (ty, datum) {
        (_, Datum::Null) => true,
        (Type::Int8 | Type::Timestamp | Type::Timestamptz, Datum::Int(_)) => true,
        (Type::Int4 | Type::Date, Datum::Int(v)) => i32::try_from(*v).is_ok(),
        (Type::Int2, Datum::Int(v)) => i16::try_from(*v).is_ok(),
        (Type::Time, Datum::Int(v)) => (0..=86_400_000_000).contains(v),
        (Type::Bool, Datum::Bool(_)) => true,
        (Type::Float8 | Type::Float4, Datum::Float(_)) => true,
        (Type::Uuid, Datum::Uuid(_)) => true,
        (Type::Decimal { precision, .. }, Datum::Decimal(v)) => numeric::fits(*v, precision),
        (Type::Text | Type::Bytea | Type::Numeric { typmod: None }, Datum::Bytes(_)) => true,
        (Type::Interval | Type::Json | Type::Jsonb | Type::Array(_) | Type::Vector(_), Datum::Bytes(_)) => true,
        (Type::System(_) | Type::Network(_), Datum::Bytes(_)) => true,
        (Type::Oid(_), Datum::Int(v)) => u32::try_from(*v).is_ok(),
        (Type::Name, Datum::Bytes(v)) => v.len() <= 63,
        (Type::CharByte, Datum::Bytes(v)) => v.len() <= 1,
        // As many bytes as characters are allowed cannot be too many characters.
        (Type::Varchar(n), Datum::Bytes(v)) => v.len() as u64 <= u64::from(n),
        (Type::Char(n), Datum::Bytes(v)) => v.len() as u64 <= u64::from(n) && v.last() != Some(&b' '),
        _ => false,
    }
}

/// A parameter in another form than its type's: text is read, numbers are cast as in an assignment.
pub(crate) fn convert(ty: Type, datum: &Datum, clock: &Clock) -> Result<Datum, SqlError> {
    let from = match datum {
        _ if has_form(ty, datum) => return Ok(datum.clone()),
        // Its number, where it is one's.
        Datum::Int(number)
            if let Type::Enum(id) = ty
                && clock.catalog.get().is_some_and(|catalog| catalog.label_of(id, *number).is_some()) =>
        {
            return Ok(datum.clone());
        }
        datum if let Type::Rounded(kind, _) = ty => {
            let plain = convert(kind.plain(), datum, clock)?;
            return cast::cast(kind.plain(), &plain.as_value(), ty, false);
        }
        Datum::Int(_) => Type::Int8,
        Datum::Float(_) => Type::Float8,
        Datum::Bool(_) => Type::Bool,
        Datum::Bytes(_) if matches!(ty, Type::Varchar(_) | Type::Char(_)) => Type::Text,
        Datum::Bytes(text) if !matches!(ty, Type::Numeric { .. }) => {
            return value::from_text_by(ty, text, clock);
        }
        Datum::Bytes(_) => value::pgtype::NUMERIC,
        Datum::Decimal(_) if matches!(ty, Type::Decimal { .. }) => {
            return Err(SqlError::new("22003", "numeric field overflow"));
        }
        other => {
            return Err(SqlError::new(
                "42804",
                format!("a parameter of type {} cannot be {other:?}", value::pgtype::name(ty)),
            ));
        }
    };
    if cast::context(from, ty).is_none_or(|needed| needed > CastContext::Assignment) {
        return Err(SqlError::new(
            "42804",
            format!("a parameter of type {} cannot be {datum:?}", value::pgtype::name(ty)),
        ));
    }
    cast::cast(from, &datum.as_value(), ty, false)
}

/// Work on a thread of its own: a checkpoint writes for long, and sessions share their threads.
struct Background {
    state: Mutex<BackgroundState>,
}

#[derive(Default)]
struct BackgroundState {
    result: Option<Result<(), SqlError>>,
    waker: Option<Waker>,
}

impl Background {
    fn start(engine: Engine) -> Arc<Background> {
        let background = Arc::new(Background { state: Mutex::default() });
        let told = background.clone();
        let thread = std::thread::Builder::new().name("freshet-checkpoint".to_owned());
        let thread = start_thread(thread, Served::AsOthers, move || {
            let result = engine.checkpoint().map_err(SqlError::from);
            let waker = {
                let mut state = told.state.lock();
                state.result = Some(result);
                state.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        if let Err(error) = thread {
            let refused = SqlError::new("53000", format!("no thread for a checkpoint: {error}"));
            background.state.lock().result = Some(Err(refused));
        }
        background
    }

    fn result(&self) -> Option<Result<(), SqlError>> {
        self.state.lock().result.clone()
    }
}

struct BackgroundDone(Arc<Background>);

impl Future for BackgroundDone {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.state.lock();
        if state.result.is_some() {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
