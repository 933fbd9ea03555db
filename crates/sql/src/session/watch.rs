//! What is a session's share in the statistics? It counts its statements, and times them where somebody wants to know.

use super::role::SECRET_TEXT;
use super::{Prepared, Session, Step};
use crate::copy::CopyPlan;
use crate::counts::Count;
use crate::error::SqlError;
use crate::route::Plan;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A statement that took at least `log_min_duration_statement`.
#[derive(Clone, Copy, Debug)]
pub struct Slow<'a> {
    pub pid: i32,
    pub user: &'a str,
    pub database: &'a str,
    /// From its beginning to its outcome, waits for locks included; not the flush that its answer waits for.
    pub took: Duration,
    pub statement: &'a str,
}

pub type SlowLog = fn(&Slow<'_>);

/// What is known of the statement that runs.
struct Timed {
    started: Instant,
    statement: Arc<Prepared>,
}

pub(super) struct Watching {
    running: Option<Timed>,
    /// The COPY that runs, if one does, is FROM.
    copies_in: bool,
    slow_log: Option<SlowLog>,
    /// The defaults' version that the settings follow.
    pub defaults_version: u64,
}

impl Watching {
    pub fn new(defaults_version: u64) -> Watching {
        Watching { running: None, copies_in: false, slow_log: None, defaults_version }
    }
}

impl Session {
    /// Who hears of statements that take at least `log_min_duration_statement`.
    pub fn log_slow_with(&mut self, log: SlowLog) {
        self.watching.slow_log = Some(log);
    }

    /// When a statement begins, if that is of interest.
    #[inline]
    pub(super) fn timer(&self) -> Option<Instant> {
        self.env.settings.fast.is_timed.then(Instant::now)
    }

    /// A statement that takes more than the short way begins.
    pub(super) fn begin_watching(&mut self, statement: &Arc<Prepared>) {
        self.watching.copies_in =
            matches!(&statement.plan, Plan::Copy(plan) if matches!(**plan, CopyPlan::From { .. }));
        self.watching.running = self.timer().map(|started| Timed { started, statement: statement.clone() });
    }

    /// A statement on the short way, a transaction of its own, ended well.
    #[inline]
    pub(super) fn watched_short(
        &mut self,
        statement: &Prepared,
        started: Option<Instant>,
        rows: u64,
        changed: Option<Count>,
    ) {
        let changed = changed.unwrap_or(Count::RowsGiven);
        self.watched_plain(statement, started, rows, &[(Count::Statements, 1), (Count::Commits, 1), (changed, rows)]);
    }

    /// A look-up within a transaction ended well.
    pub(super) fn watched_inside(&self, statement: &Prepared, started: Option<Instant>, rows: u64) {
        self.watched_plain(statement, started, rows, &[(Count::Statements, 1), (Count::RowsGiven, rows)]);
    }

    #[inline]
    fn watched_plain(&self, statement: &Prepared, started: Option<Instant>, rows: u64, counts: &[(Count, u64)]) {
        self.counts.add_all(counts);
        if let Some(started) = started {
            self.timed(statement, started.elapsed(), rows);
        }
    }

    /// A look-up ended.
    #[inline]
    pub(super) fn watched_look_up<T>(
        &mut self,
        statement: &Prepared,
        started: Option<Instant>,
        rows: u64,
        ended: &Result<T, Box<SqlError>>,
    ) {
        match ended {
            Ok(_) => self.watched_short(statement, started, rows, None),
            Err(error) => self.watched_failure(error),
        }
    }

    /// A step on the long way came to this.
    pub(super) fn watched(&mut self, step: &Result<Step, SqlError>) {
        let counts = &self.counts;
        match step {
            Ok(Step::Wait(wait)) => counts.add(Count::LockWaits, u64::from(wait.is_lock())),
            Ok(Step::Part(_)) => {}
            // It has only begun.
            Ok(Step::Done(_)) if self.copying.is_some() => {}
            Ok(Step::Done(outcome)) => {
                counts.add(Count::Statements, 1);
                let rows = outcome.tag.rows.unwrap_or(0);
                match outcome.tag.command {
                    "SELECT" => counts.add(Count::RowsGiven, rows),
                    "INSERT" => {
                        let updated = self.constraints.take_updated_instead().min(rows);
                        counts.add(Count::RowsInserted, rows - updated);
                        counts.add(Count::RowsUpdated, updated);
                    }
                    "UPDATE" => counts.add(Count::RowsUpdated, rows),
                    "DELETE" => counts.add(Count::RowsDeleted, rows),
                    "COPY" if self.watching.copies_in => counts.add(Count::RowsInserted, rows),
                    "COPY" => counts.add(Count::RowsGiven, rows),
                    _ => {}
                }
                if let Some(timed) = self.watching.running.take() {
                    self.timed(&timed.statement, timed.started.elapsed(), rows);
                }
            }
            Err(error) => self.watched_failure(error),
        }
    }

    /// A statement ended with an error. As in PostgreSQL its time is logged, and not counted by its text.
    pub(super) fn watched_failure(&mut self, error: &SqlError) {
        let counts = &self.counts;
        counts.add(Count::Errors, 1);
        match error.sqlstate {
            "40P01" => counts.add(Count::Deadlocks, 1),
            "40001" => counts.add(Count::SerializationFailures, 1),
            "55P03" => counts.add(Count::LockTimeouts, 1),
            _ => {}
        }
        if let Some(timed) = self.watching.running.take() {
            self.log_if_slow(&timed.statement, timed.started.elapsed());
        }
    }

    #[cold]
    fn timed(&self, statement: &Prepared, took: Duration, rows: u64) {
        let fast = self.env.settings.fast;
        let is_of_rows = statement.plan.is_of_rows();
        if fast.tracks && (is_of_rows || fast.tracks_utility) && !matches!(statement.plan, Plan::Empty) {
            let activity = &self.cache.activity;
            let text = self.text_of(statement);
            activity.statements.count(&statement.tracked, &self.env.user, text, took, rows);
        }
        self.log_if_slow(statement, took);
    }

    fn log_if_slow(&self, statement: &Prepared, took: Duration) {
        let least = self.env.settings.fast.log_min_duration;
        if let (Some(log), true) = (self.watching.slow_log, least.is_some_and(|least| took >= least)) {
            let (user, database) = (self.env.user.as_str(), self.env.database.as_str());
            log(&Slow { pid: self.env.backend_pid, user, database, took, statement: self.text_of(statement) });
        }
    }

    /// The statement as it came, for others to read: without a password.
    pub(super) fn text_of<'s>(&'s self, statement: &'s Prepared) -> &'s str {
        if statement.is_secret() {
            return SECRET_TEXT;
        }
        let (shaped, text) = &self.shaped;
        if std::ptr::eq(shaped.as_ptr(), statement) { text } else { &statement.sql }
    }

    /// Takes up the defaults of the server's configuration, where they have changed.
    #[inline]
    pub fn follow_defaults(&mut self) {
        if self.watching.defaults_version != self.cache.activity.defaults_version() {
            self.take_defaults();
        }
    }

    #[cold]
    fn take_defaults(&mut self) {
        let (version, defaults) = self.cache.activity.defaults();
        let before = self.env.settings.clone();
        self.env.settings.set_defaults(defaults);
        self.watching.defaults_version = version;
        self.env.set_clock();
        self.reported.extend(self.env.settings.reported_changes(&before));
    }
}
