//! `pg_stat_statements` and `pg_stat_statements_info`: which statements take the time? The columns of version 1.10 of PostgreSQL's extension. What is
//! not counted here (plans, blocks, write-ahead log, JIT) is null.

use super::{About, Cells, SystemView, number, text};
use crate::catalog::oid;
use crate::error::SqlError;
use crate::statements::Entry;
use crate::value::Datum;
use freshet_engine::catalog::RoleId;
use freshet_engine::schema::{OidKind, Type};

pub struct StatementsView;

const OID: Type = Type::Oid(OidKind::Oid);

impl SystemView for StatementsView {
    fn name(&self) -> &'static str {
        "pg_stat_statements"
    }

    fn columns(&self) -> &'static [(&'static str, Type)] {
        &[
            ("userid", OID),
            ("dbid", OID),
            ("toplevel", Type::Bool),
            ("queryid", Type::Int8),
            ("query", Type::Text),
            ("plans", Type::Int8),
            ("total_plan_time", Type::Float8),
            ("min_plan_time", Type::Float8),
            ("max_plan_time", Type::Float8),
            ("mean_plan_time", Type::Float8),
            ("stddev_plan_time", Type::Float8),
            ("calls", Type::Int8),
            ("total_exec_time", Type::Float8),
            ("min_exec_time", Type::Float8),
            ("max_exec_time", Type::Float8),
            ("mean_exec_time", Type::Float8),
            ("stddev_exec_time", Type::Float8),
            ("rows", Type::Int8),
            ("shared_blks_hit", Type::Int8),
            ("shared_blks_read", Type::Int8),
            ("shared_blks_dirtied", Type::Int8),
            ("shared_blks_written", Type::Int8),
            ("local_blks_hit", Type::Int8),
            ("local_blks_read", Type::Int8),
            ("local_blks_dirtied", Type::Int8),
            ("local_blks_written", Type::Int8),
            ("temp_blks_read", Type::Int8),
            ("temp_blks_written", Type::Int8),
            ("blk_read_time", Type::Float8),
            ("blk_write_time", Type::Float8),
            ("temp_blk_read_time", Type::Float8),
            ("temp_blk_write_time", Type::Float8),
            ("wal_records", Type::Int8),
            ("wal_fpi", Type::Int8),
            ("wal_bytes", Type::Numeric { typmod: None }),
            ("jit_functions", Type::Int8),
            ("jit_generation_time", Type::Float8),
            ("jit_inlining_count", Type::Int8),
            ("jit_inlining_time", Type::Float8),
            ("jit_optimization_count", Type::Int8),
            ("jit_optimization_time", Type::Float8),
            ("jit_emission_count", Type::Int8),
            ("jit_emission_time", Type::Float8),
        ]
    }

    fn rows(&self, about: &About<'_>) -> Result<Vec<Cells>, SqlError> {
        let entries = about.env.activity.as_ref().map_or_else(Vec::new, |activity| activity.statements.entries());
        let rows = entries.iter().map(|entry| {
            let role = about.schema.role_named(&entry.user).map(|role| role.id);
            let mut cells = row(entry, self.columns().len());
            cells[0] = Datum::Int(role.unwrap_or(RoleId::FIRST).0.into());
            let is_hidden = about.env.access.as_ref().is_some_and(|access| role.is_none_or(|id| !access.has_role(id)));
            if is_hidden {
                // What others do is theirs, and the superusers'.
                cells[3] = Datum::Null;
                cells[4] = text("<insufficient privilege>");
            }
            cells
        });
        Ok(rows.collect())
    }
}

fn row(entry: &Entry, width: usize) -> Cells {
    let runs = entry.runs();
    let mut cells = vec![Datum::Null; width];
    cells[1] = Datum::Int(oid::DATABASE.into());
    cells[2] = Datum::Bool(true);
    cells[3] = Datum::Int(entry.query_id);
    cells[4] = text(&entry.text);
    cells[11] = number(runs.calls);
    let times = [runs.total_ms, runs.min_ms, runs.max_ms, runs.mean_ms(), runs.deviation_ms()];
    for (cell, ms) in cells[12..17].iter_mut().zip(times) {
        *cell = Datum::Float(ms);
    }
    cells[17] = number(runs.rows);
    cells
}

pub struct StatementsInfoView;

impl SystemView for StatementsInfoView {
    fn name(&self) -> &'static str {
        "pg_stat_statements_info"
    }

    fn columns(&self) -> &'static [(&'static str, Type)] {
        &[("dealloc", Type::Int8), ("stats_reset", Type::Timestamptz)]
    }

    fn rows(&self, about: &About<'_>) -> Result<Vec<Cells>, SqlError> {
        let Some(activity) = &about.env.activity else { return Ok(Vec::new()) };
        let reset = activity.statements.reset_at().map_or(Datum::Null, Datum::Int);
        Ok(vec![vec![number(activity.statements.evictions()), reset]])
    }
}
