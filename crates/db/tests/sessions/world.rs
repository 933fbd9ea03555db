//! A database of its own for each test, and clients that are driven step by step.

use freshet_db::sql::{Outcome, Session, Step, Wait};
use freshet_db::{Database, Options, RowSet, SqlError};
use std::time::Duration;

pub const ACCOUNTS: &str = "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)";

pub struct World {
    pub db: Database,
    _dir: tempfile::TempDir,
}

impl World {
    pub fn new(setup: &str) -> World {
        let dir = tempfile::tempdir().expect("a directory for the database");
        let db = Database::open(Options::small(dir.path())).expect("the database opens");
        db.session().and_then(|mut s| s.run(setup)).expect("the setup runs");
        World { db, _dir: dir }
    }

    pub fn client(&self) -> Client {
        Client { session: self.db.sql_session().expect("a session"), rows: RowSet::default() }
    }
}

pub struct Client {
    pub session: Session,
    pub rows: RowSet,
}

impl Client {
    pub fn start(&mut self, sql: &str) -> Result<Step, SqlError> {
        let statement = self.session.prepare(sql, &[])?;
        self.session.execute(&statement, &[], &mut self.rows)
    }

    /// A statement that must not wait for anyone; for room in a log that is just being prepared it may.
    pub fn run(&mut self, sql: &str) -> Result<Outcome, SqlError> {
        let mut step = self.start(sql)?;
        loop {
            match step {
                Step::Done(outcome) => return Ok(outcome),
                Step::Wait(wait) if wait.is_lock() => panic!("{sql} waits"),
                Step::Wait(mut wait) => {
                    wait.block(None);
                    step = self.session.resume(&mut self.rows)?;
                }
                Step::Part(_) => unreachable!("nobody asked for messages"),
            }
        }
    }

    /// As a client sees it: the answer leaves when what it depends on is durable.
    pub fn ok(&mut self, sql: &str) -> String {
        let outcome = self.run(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        self.answered(outcome).tag.to_string()
    }

    pub fn answered(&self, outcome: Outcome) -> Outcome {
        if let Some(cts) = outcome.durable {
            self.session.engine().wait_durable(cts).wait().expect("the log works");
        }
        outcome
    }

    pub fn fails(&mut self, sql: &str) -> &'static str {
        self.run(sql).expect_err(sql).sqlstate
    }

    /// A statement that must wait: for a lock, or for a query that goes on elsewhere with its snapshot taken.
    pub fn waits(&mut self, sql: &str) -> Wait {
        // A query may be over before anybody has looked.
        let tries = if sql.starts_with("SELECT") { 1000 } else { 1 };
        for _ in 0..tries {
            if let Step::Wait(wait) = self.start(sql).unwrap_or_else(|e| panic!("{sql}: {e}")) {
                return wait;
            }
        }
        panic!("{sql} does not wait")
    }

    /// Goes on after a wait, through waits that are ready at once.
    pub fn resume(&mut self, mut wait: Wait) -> Result<Outcome, SqlError> {
        loop {
            assert!(wait.block(Some(Duration::from_secs(20))), "what was waited for has happened");
            match self.session.resume(&mut self.rows)? {
                Step::Done(outcome) => return Ok(self.answered(outcome)),
                Step::Wait(next) => wait = next,
                Step::Part(_) => unreachable!("nobody asked for messages"),
            }
        }
    }

    pub fn number(&mut self, sql: &str) -> Option<i64> {
        self.ok(sql);
        self.rows.i64(0, 0)
    }

    /// A column of integers.
    pub fn numbers(&mut self, sql: &str) -> Vec<i64> {
        self.ok(sql);
        (0..self.rows.len()).filter_map(|row| self.rows.i64(row, 0)).collect()
    }
}
