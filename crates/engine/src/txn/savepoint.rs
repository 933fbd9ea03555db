//! How does a transaction go back a part of the way? A mark of its lists, and an undo of what they have gained since.
//!
//! | list | order | what goes back |
//! |---|---|---|
//! | writes, key changes | by command | those of later commands are undone, newest first |
//! | held and shared rows, claims, tables | as they were locked, entered | what follows the mark is let go: long values first, then rows, then tables |
//! | DDL | | the transaction's own schema is again what it was; what was created since is collected at the transaction's end |
//!
//! 1. Command numbers are never used twice: going back does not turn them back.
//! 2. What stands before a mark in `held` and `tables` stays there: rows are locked and tables entered at the end, and an undone insert leaves
//!    a gap among the rows of its own statement, which the last of them fills.
//! 3. Locks go after the writes under them are undone. A row that was locked before and more strongly since stays so.
//! 4. The snapshot of a REPEATABLE READ transaction stays: it is the transaction's.

use super::session::Session;
use crate::planted::{self, Bug};
use std::sync::Arc;

/// Where a transaction stood.
#[derive(Clone, Debug, Default)]
pub struct Savepoint {
    command: u32,
    held: usize,
    tables: usize,
    shares: usize,
    claims: usize,
    keys: usize,
    loads: usize,
    loaded: usize,
    dropped: usize,
    schema: Option<Arc<crate::catalog::Schema>>,
}

impl Session {
    /// Where the transaction stands, between two statements. The default one is where it began.
    pub fn savepoint(&mut self) -> Savepoint {
        self.abandon_wait();
        Savepoint {
            command: self.command,
            held: self.held.len(),
            tables: self.tables.len(),
            shares: self.shares.len(),
            claims: self.claims.len(),
            keys: self.keys.as_ref().map_or(0, |keys| keys.of_transaction()),
            loads: self.ddl.loads.len(),
            loaded: self.ddl.loaded.len(),
            dropped: self.ddl.dropped.len(),
            schema: self.ddl.schema.clone(),
        }
    }

    /// Undoes what was done since, and lets go of what was locked since. Savepoints of between are void.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) {
        self.close_lease();
        self.abandon_wait();
        self.ddl.loads.drain(savepoint.loads..).for_each(|load| load.close());
        let kept = savepoint.command + u32::from(planted::is(Bug::KeepUndone));
        self.undo(|command| command > kept);
        if !planted::is(Bug::KeepSchema) {
            self.ddl.schema.clone_from(&savepoint.schema);
        }
        if savepoint.schema.is_none() {
            self.ddl.before = (None, 0);
        }
        self.ddl.dropped.truncate(savepoint.dropped);
        self.ddl.loaded.truncate(savepoint.loaded);
        self.release_from(if planted::is(Bug::ReleaseEarlier) { savepoint.held / 2 } else { savepoint.held });
        self.release_claims_from(savepoint.shares, savepoint.claims);
        self.keys.iter().for_each(|keys| keys.release_from(savepoint.keys));
        self.leave_tables(savepoint.tables);
    }

    /// Takes the announcements of all but the first tables back, and tells whoever waits for one of them, or at a gate.
    fn leave_tables(&mut self, kept: usize) {
        while self.tables.len() > kept {
            if let Some(table) = self.tables.pop() {
                self.place().withdraw_table(table.id);
            }
        }
        self.tell_if_waited();
    }
}
