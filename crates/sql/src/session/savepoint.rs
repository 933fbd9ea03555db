//! Savepoints, as PostgreSQL has them.
//!
//! | block | SAVEPOINT s | ROLLBACK TO s | RELEASE s |
//! |---|---|---|---|
//! | none, implicit | 25P01 | 25P01 | 25P01 |
//! | explicit | stands above the others, even those of its name | undoes what came after it, which it survives | forgets it and those above it |
//! | failed | 25P02 | makes the block good again | 25P02 |
//!
//! An error undoes what came after the newest savepoint at once, and lets go of the locks taken since; the rest of the transaction stands until
//! the client says what is to become of it. Settings go back with the rest, and so does what the session knows of its temporary tables, and what is owed to
//! deferred constraints: rows that are gone owe nothing, and what was settled by rows that are gone is owed again.

use super::{Block, Session, SqlError, Step, aborted, done};
use crate::compiled::rules::Mark;
use crate::define::Temporary;
use crate::route::Modes;
use crate::settings::Settings;
use freshet_engine::txn;

pub(super) struct Savepoint {
    name: String,
    /// `None`: the engine's transaction had not begun.
    mark: Option<txn::Savepoint>,
    modes: Modes,
    constraints: Mark,
    temporary: Temporary,
    settings: Settings,
    settings_before: Option<Settings>,
    settings_after: Option<Settings>,
    said: crate::channel::Mark,
}

impl Session {
    pub(super) fn set_savepoint(&mut self, name: &str) -> Result<Step, SqlError> {
        self.needs_block("SAVEPOINT")?;
        self.push_savepoint(name);
        Ok(done("SAVEPOINT"))
    }

    pub(super) fn push_savepoint(&mut self, name: &str) {
        let mark = self.inner.in_transaction().then(|| self.inner.savepoint());
        self.savepoints.push(Savepoint {
            name: name.to_owned(),
            mark,
            modes: self.modes,
            constraints: self.constraints.mark(),
            temporary: self.temporary.clone(),
            settings: self.env.settings.clone(),
            settings_before: self.settings_before.clone(),
            settings_after: self.settings_after.clone(),
            said: self.said(),
        });
    }

    pub(super) fn release_savepoint(&mut self, name: &str) -> Result<Step, SqlError> {
        self.needs_block("RELEASE SAVEPOINT")?;
        let at = self.find_savepoint(name)?;
        self.drop_savepoints(at);
        Ok(done("RELEASE"))
    }

    /// What came after the savepoint stays.
    pub(super) fn drop_savepoints(&mut self, from: usize) {
        // As in PostgreSQL, READ ONLY since then ends with it.
        self.modes.read_only = self.savepoints[from].modes.read_only;
        self.inner.set_read_only(self.is_read_only());
        self.savepoints.truncate(from);
        self.keep_cursors();
    }

    pub(super) fn roll_back_to_savepoint(&mut self, name: &str) -> Result<Step, SqlError> {
        if self.block != Block::Failed {
            self.needs_block("ROLLBACK TO SAVEPOINT")?;
        }
        let at = self.find_savepoint(name)?;
        self.savepoints.truncate(at + 1);
        self.undo_to_savepoint();
        self.block = Block::Explicit;
        Ok(done("ROLLBACK"))
    }

    /// SET CONSTRAINTS is about to settle what was deferred.
    pub(super) fn keep_what_is_owed(&mut self) {
        for savepoint in &mut self.savepoints {
            self.constraints.keep_for(&mut savepoint.constraints);
        }
    }

    /// Undoes what came after the newest savepoint; false if there is none.
    pub(super) fn undo_to_savepoint(&mut self) -> bool {
        let above = self.savepoints.len();
        let Some(newest) = self.savepoints.last_mut() else {
            return false;
        };
        self.constraints.return_to(&mut newest.constraints);
        if self.inner.in_transaction() {
            let beginning = txn::Savepoint::default();
            self.inner.rollback_to(newest.mark.as_ref().unwrap_or(&beginning));
            self.inner.rest();
        }
        self.names.end_cursors_above(above);
        if let Some(hearing) = &self.env.hearing {
            hearing.return_to(newest.said);
        }
        self.temporary.clone_from(&newest.temporary);
        self.modes = newest.modes;
        self.inner.set_read_only(newest.modes.read_only == Some(true));
        self.settings_before.clone_from(&newest.settings_before);
        self.settings_after.clone_from(&newest.settings_after);
        let settings = newest.settings.clone();
        self.take_settings(settings);
        true
    }

    fn needs_block(&mut self, command: &str) -> Result<(), SqlError> {
        match self.block {
            Block::Explicit => Ok(()),
            Block::Failed => Err(aborted()),
            Block::None | Block::Implicit => {
                self.fail();
                Err(SqlError::new("25P01", format!("{command} can only be used in transaction blocks")))
            }
        }
    }

    /// The newest of this name.
    fn find_savepoint(&mut self, name: &str) -> Result<usize, SqlError> {
        let found = self.savepoints.iter().rposition(|savepoint| savepoint.name == name);
        found.ok_or_else(|| {
            self.fail();
            SqlError::new("3B001", format!("savepoint \"{name}\" does not exist"))
        })
    }
}
