//! What do `pg_stat_database`, `pg_stat_bgwriter` and `pg_stat_wal` say? What this database counts of what PostgreSQL does; the rest is null.

use super::super::About;
use super::fill::{Filled, Filler, Source, cells, source};
use crate::catalog::oid;
use crate::counts::Count;
use crate::value::{from_text, pgtype::NUMERIC};

pub static SOURCES: &[Source] = &[
    source(
        "pg_stat_database",
        &[
            "datid",
            "datname",
            "numbackends",
            "xact_commit",
            "xact_rollback",
            "tup_returned",
            "tup_inserted",
            "tup_updated",
            "tup_deleted",
            "deadlocks",
            "sessions",
        ],
        database,
    ),
    source("pg_stat_bgwriter", &["checkpoints_timed", "checkpoints_req"], checkpoints),
    source("pg_stat_wal", &["wal_records", "wal_bytes", "wal_write", "wal_sync"], log),
];

fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn database(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let Some(activity) = &about.env.activity else { return Ok(()) };
    let sums = activity.counts.sums();
    let of = |what| count(sums.get(what));
    rows.row(cells![
        oid::DATABASE,
        about.env.database.as_str(),
        activity.members().len() as i32,
        of(Count::Commits),
        of(Count::Rollbacks),
        of(Count::RowsGiven),
        of(Count::RowsInserted),
        of(Count::RowsUpdated),
        of(Count::RowsDeleted),
        of(Count::Deadlocks),
        count(activity.joined()),
    ]);
    Ok(())
}

fn checkpoints(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let asked = about.env.activity.as_ref().map_or(0, |activity| activity.counts.sums().get(Count::CheckpointsAsked));
    let finished = about.engine.stats().checkpoints;
    // One that serves two who asked is one.
    let asked = asked.min(finished);
    rows.row(cells![count(finished - asked), count(asked)]);
    Ok(())
}

fn log(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let stats = about.engine.stats();
    let bytes = from_text(NUMERIC, stats.commit_record_bytes.to_string().as_bytes())?;
    rows.row(cells![count(stats.commit_records), bytes, count(stats.groups), count(stats.flushes)]);
    Ok(())
}
