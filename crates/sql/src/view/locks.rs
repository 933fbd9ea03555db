//! `pg_locks`: who holds what, and who waits for it? One row for each mode of each lock.
//!
//! Rows that one transaction has for itself are there only while others wait for them, as tuples; who waits for the end of a transaction waits for
//! its process, which stands in `virtualxid`.

use super::{About, Cells, SystemView, number, text};
use crate::catalog::oid;
use crate::error::{SqlError, mode_name};
use crate::value::Datum;
use freshet_engine::schema::Type;
use freshet_engine::txn::{AdvisoryKey, LockFact, Thing};
use std::time::Instant;

pub struct LocksView;

impl SystemView for LocksView {
    fn name(&self) -> &'static str {
        "pg_locks"
    }

    fn columns(&self) -> &'static [(&'static str, Type)] {
        &[
            ("locktype", Type::Text),
            ("database", Type::Int8),
            ("relation", Type::Int8),
            ("page", Type::Int4),
            ("tuple", Type::Int2),
            ("virtualxid", Type::Text),
            ("transactionid", Type::Int8),
            ("classid", Type::Int8),
            ("objid", Type::Int8),
            ("objsubid", Type::Int2),
            ("virtualtransaction", Type::Text),
            ("pid", Type::Int4),
            ("mode", Type::Text),
            ("granted", Type::Bool),
            ("fastpath", Type::Bool),
            ("waitstart", Type::Timestamptz),
        ]
    }

    fn rows(&self, about: &About<'_>) -> Result<Vec<Cells>, SqlError> {
        Ok(about.engine.locks().iter().map(row).collect())
    }
}

fn row(fact: &LockFact) -> Cells {
    let mut cells = vec![Datum::Null; 16];
    cells[0] = text(kind(fact.thing));
    if !matches!(fact.thing, Thing::Transaction(_)) {
        cells[1] = number(u64::from(oid::DATABASE));
    }
    match fact.thing {
        Thing::Table(table) => cells[2] = number(u64::from(table.0)),
        Thing::Row(row) => {
            cells[3] = number(u64::from(row.page().0));
            cells[4] = number(u64::from(row.slot()));
        }
        Thing::Transaction(process) => cells[5] = text(&process.to_string()),
        Thing::Advisory(key) => {
            let (class, object, sub) = match key {
                AdvisoryKey::One(key) => ((key as u64 >> 32) as u32, key as u32, 1),
                AdvisoryKey::Two(class, object) => (class as u32, object as u32, 2),
            };
            cells[7] = number(u64::from(class));
            cells[8] = number(u64::from(object));
            cells[9] = number(sub);
        }
    }
    cells[10] = text(&fact.session.to_string());
    cells[11] = number(u64::from(fact.session));
    cells[12] = text(mode_name(fact.mode));
    cells[13] = Datum::Bool(fact.is_granted);
    cells[14] = Datum::Bool(false);
    cells[15] = fact.since.map_or(Datum::Null, |since| Datum::Int(crate::session::now() - micros_ago(since)));
    cells
}

fn micros_ago(since: Instant) -> i64 {
    i64::try_from(since.elapsed().as_micros()).unwrap_or(i64::MAX)
}

/// The lock's kind, and the name of a wait for it.
pub fn kind(thing: Thing) -> &'static str {
    match thing {
        Thing::Row(_) => "tuple",
        Thing::Table(_) => "relation",
        Thing::Advisory(_) => "advisory",
        Thing::Transaction(_) => "transactionid",
    }
}
