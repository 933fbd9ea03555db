//! Which locks does a transaction hold besides the rows that it has for itself? Rows that it shares, and tables.
//!
//! | list | ends with | order |
//! |---|---|---|
//! | shares: rows locked FOR SHARE, FOR KEY SHARE | the transaction, or a savepoint of before | as they were locked |
//! | claims: tables | the same | as they were locked |
//!
//! 1. What stands in a list is held in the lock table, and the other way about, once a wait is settled.
//! 2. Who writes a table has announced that, and asks for nothing while its gate is open. Who closes the gate waits for those who announced
//!    themselves before. Locking rows counts as writing there, though PostgreSQL's ROW SHARE is less.

use super::core::Core;
use super::locks::{Asked, LockFact, LockMode, Mode, ModeName, Strength, Thing, Wish};
use super::session::{Held, Pending, Session, container};
use super::wait::WaitToken;
use super::{Error, Stop};
use crate::catalog::{Table, TableId};
use crate::mem::Claim;
use crate::planted::{self, Bug};
use crate::sync::fences;
use crate::table::SessionNo;
use std::sync::Arc;
use std::time::Instant;

/// Locks of tables and keys that one transaction may hold.
const CLAIMS_MAX: usize = 1 << 16;

/// What a row that is shared takes in the lock table and the list: a lock with its place in a map twice as large, and a holder.
pub(super) const SHARE_BYTES: u64 = 512;

/// Who was writing a table when this transaction closed its gate: only these are in its way. Whoever comes later has a lock that goes together with
/// this one, or waits for it.
pub(super) struct Awaited {
    table: TableId,
    /// With the number of the transaction in which it was.
    writers: Vec<(SessionNo, u64)>,
    since: Instant,
}

/// A table or key that the transaction has locked.
#[derive(Clone, Copy)]
pub(super) struct Claimed {
    pub thing: Thing,
    pub mode: Mode,
}

impl Session {
    // ---- tables

    /// Locks a table until the transaction's end (LOCK TABLE). Those who read it are kept out by ACCESS EXCLUSIVE, if they ask
    /// (`read_table`); those who read it already are not waited for: their snapshots stand.
    pub fn lock_table(&mut self, table: &Arc<Table>, mode: LockMode) -> Result<(), Stop> {
        self.claim_table(table, Mode::of_table(mode, true))?;
        if mode >= LockMode::Share {
            self.wait_for_writers(table)?;
        }
        Ok(())
    }

    /// Closes the table's gate and waits for everyone who writes it: a change of the schema.
    pub(super) fn take_alone(&mut self, table: &Arc<Table>) -> Result<(), Stop> {
        self.claim_table(table, LockMode::AccessExclusive.into())?;
        if planted::is(Bug::SkipWriters) {
            return Ok(());
        }
        self.wait_for_writers(table)?;
        // Whoever has it alone looks at its newest rows; what is said of them, a refusal too, waits until they are durable (DESIGN invariant 3).
        self.dependency = self.dependency.max(self.core.log.now());
        Ok(())
    }

    /// The gate is closed, by this session.
    fn wait_for_writers(&mut self, table: &Arc<Table>) -> Result<(), Stop> {
        let core = self.core.clone();
        let is_writing = |(no, serial): (SessionNo, u64)| {
            let place = core.sessions.place(no);
            place.serial() == serial && place.writes_table(table.id)
        };
        let awaited = self.awaited_of(table.id);
        // Before it writes a row, who only locks some asks for more, which does not go together with this lock.
        let only_locks_rows = |no: SessionNo| core.locks.only_locks_rows(no, table.id);
        awaited.writers.retain(|&writer| is_writing(writer) && !only_locks_rows(writer.0));
        let (writer, since) = (awaited.writers.first().copied(), awaited.since);
        match writer {
            Some(writer) => Err(match self.wait_for_session(writer.0, Some(table.id), || is_writing(writer)) {
                Stop::Wait(token) => Stop::Wait(token.since(since)),
                refused => refused,
            }),
            None => {
                // What they committed last is in the next snapshot, as what was committed before the claim was granted.
                self.met = self.met.max(core.log.now());
                Ok(())
            }
        }
    }

    /// Looks for writers when the gate has just been closed, and not again.
    fn awaited_of(&mut self, table: TableId) -> &mut Awaited {
        let at = self.awaited.iter().position(|awaited| awaited.table == table);
        let at = at.unwrap_or_else(|| {
            // Writers announce with a light fence: see `SessionPlace::announce_table`.
            fences::heavy();
            self.core.wait_for_short_changes(table);
            let all = self.core.sessions.all().filter(|(no, place)| *no != self.no && place.writes_table(table));
            let writers = all.map(|(no, place)| (no, place.serial())).collect();
            self.awaited.push(Awaited { table, writers, since: Instant::now() });
            self.awaited.len() - 1
        });
        &mut self.awaited[at]
    }

    /// Whether readers have to ask before they read a table: somebody has locked one by LOCK TABLE.
    #[inline]
    pub fn has_barred_tables(&self) -> bool {
        self.core.locks.is_barred()
    }

    /// Whoever reads the table asks, if some table is barred.
    pub fn read_table(&mut self, table: &Arc<Table>) -> Result<(), Stop> {
        if self.has_barred_tables() {
            self.claim_table(table, LockMode::AccessShare.into())?;
        }
        Ok(())
    }

    pub(super) fn claim_table(&mut self, table: &Arc<Table>, mode: Mode) -> Result<(), Stop> {
        let thing = Thing::Table(table.id);
        if self.has_claim(thing, mode) {
            return Ok(());
        }
        self.room_for_claim()?;
        let wish = Wish { mode, kept: false, nowait: self.nowait };
        let asked = self.core.locks.ask_table(self.no, table.id, &table.gate, wish);
        self.take_claim(asked, thing, mode)
    }

    fn has_claim(&self, thing: Thing, mode: Mode) -> bool {
        self.claims.iter().any(|claim| claim.thing == thing && claim.mode == mode)
    }

    /// Whether the transaction has only asked to lock rows of the table, whose gate was closed.
    pub(super) fn only_locks_rows(&self, table: TableId) -> bool {
        let thing = Thing::Table(table);
        self.has_claim(thing, Mode::of_locker(false)) && !self.has_claim(thing, Mode::of_writer())
    }

    fn room_for_claim(&mut self) -> Result<(), Error> {
        // A transaction that holds something is no plain read, whose end lets go of nothing.
        self.kept_is_void();
        if self.claims.len() < CLAIMS_MAX { Ok(()) } else { Err(Error::TooManyLocks) }
    }

    fn take_claim(&mut self, asked: Asked, thing: Thing, mode: Mode) -> Result<(), Stop> {
        match asked {
            Asked::Newly => self.note_claim(thing, mode),
            Asked::Mine => {}
            Asked::Queued(_) => {
                self.waiting = true;
                self.pending = Some(Pending::Table { thing, mode });
                return Err(stop_of_asked(asked));
            }
            refused => return Err(stop_of_asked(refused)),
        }
        Ok(())
    }

    // ---- rows

    /// Asks the lock table for a row: `Newly` or `Mine` if it is there, `Dead` if the row is not.
    pub(super) fn ask_row(&mut self, table: &Arc<Table>, held: Held, strength: Strength) -> Result<Asked, Stop> {
        let slot = container(table, held.container).slot(held.row);
        let wish = Wish::of_row(strength, self.nowait);
        let asked = self.core.locks.ask_row(self.no, held.row, slot, wish);
        match asked {
            Asked::Newly if strength.is_shared() => {
                self.shares.push((held, strength));
                if !self.account.take(SHARE_BYTES, Claim::Growth) {
                    self.account.take(SHARE_BYTES, Claim::Forced);
                    self.stop_sharing_last();
                    return Err(Error::OutOfMemory("row locks").into());
                }
            }
            Asked::Newly => self.held.push(held),
            Asked::Mine | Asked::Dead => {}
            Asked::Queued(_) => {
                self.waiting = true;
                self.pending = Some(Pending::Row { held, table: table.clone(), strength: Some(strength) });
                return Err(stop_of_asked(asked));
            }
            refused => return Err(stop_of_asked(refused)),
        }
        Ok(asked)
    }

    /// Stops sharing the row that was shared last.
    pub(super) fn stop_sharing_last(&mut self) {
        if let Some((held, strength)) = self.shares.pop() {
            self.account.give(SHARE_BYTES);
            self.stop_sharing(held, strength);
        }
    }

    fn stop_sharing(&self, held: Held, strength: Strength) {
        let slot = container(&self.tables[usize::from(held.table)], held.container).slot(held.row);
        self.core.locks.stop_sharing(self.no, held.row, slot, strength);
    }

    // ---- waits and ends

    /// Takes note of a table that was granted while it was waited for.
    pub(super) fn settle_claim(&mut self, thing: Thing, mode: Mode) {
        if self.core.locks.has(self.no, thing, mode, false) && !self.has_claim(thing, mode) {
            self.note_claim(thing, mode);
        }
    }

    /// The next snapshot shows what was committed before the table was this transaction's.
    fn note_claim(&mut self, thing: Thing, mode: Mode) {
        self.claims.push(Claimed { thing, mode });
        self.met = self.met.max(self.core.log.now());
    }

    /// Lets go of what was shared and claimed since there was so much.
    pub(super) fn release_claims_from(&mut self, shares: usize, claims: usize) {
        while self.shares.len() > shares {
            self.stop_sharing_last();
        }
        while self.claims.len() > claims {
            if let Some(Claimed { thing, mode }) = self.claims.pop() {
                // While another of its claims keeps the gate closed, who has come since is none of those who are waited for.
                if !self.claims.iter().any(|claim| claim.thing == thing && claim.mode.closes_gate()) {
                    self.awaited.retain(|awaited| Thing::Table(awaited.table) != thing);
                }
                self.core.locks.give_up(self.no, thing, mode, false);
            }
        }
    }

    /// The transaction is over.
    pub(super) fn release_claims(&mut self) {
        self.release_claims_from(0, 0);
        if let Some(keys) = &self.keys {
            keys.end_transaction();
        }
    }
}

impl Session {
    /// How the session is called in [`super::LockFact`], [`super::Blocked`] and by `Engine::blockers`: a server's process number. Until then by
    /// its own number.
    pub fn set_name(&self, name: u32) {
        self.core.locks.set_name(self.no, Some(name));
    }
}

impl Core {
    /// What sessions hold and wait for, and the tables that they write.
    pub(crate) fn lock_facts(&self) -> Vec<LockFact> {
        let mut facts = self.locks.facts();
        let mode = ModeName::Table(LockMode::RowExclusive);
        for (no, table) in self.sessions.written_tables() {
            let (session, thing) = (self.locks.name(no), Thing::Table(table));
            if !facts.iter().any(|f| f.session == session && f.thing == thing && f.mode == mode) {
                facts.push(LockFact { session, thing, mode, is_granted: true, since: None });
            }
        }
        facts
    }

    pub(crate) fn blockers(&self, session: u32) -> Vec<u32> {
        self.locks.blockers(session)
    }
}

pub(super) fn stop_of_asked(asked: Asked) -> Stop {
    match asked {
        Asked::Free | Asked::Dead | Asked::Newly | Asked::Mine => Stop::Wait(WaitToken::ready()),
        Asked::Queued(signal) => Stop::Wait(WaitToken::signal(signal)),
        Asked::Busy => Error::LockNotAvailable.into(),
        Asked::Deadlock(cycle) => Error::Deadlock(cycle).into(),
    }
}
