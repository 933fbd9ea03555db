//! The views of `pg_catalog`: what its tables have, with names in place of numbers, and what the server knows of itself.

use super::super::About;
use super::fill::{Cell, Filled, Filler, NO_CHAR, Source, cells, source};
use super::fixed;
use super::relation::{Kind, Relation, relations};
use crate::bind::names::namespace_name;
use crate::role::Access;
use crate::role::acl::{Kind as AclKind, Privileges};
use crate::value::datetime::abbreviations::Abbreviation;
use crate::value::interval::Interval;
use crate::value::{Datum, Zone, pgtype};
use freshet_engine::catalog::Table;
use std::sync::Arc;

const TABLE_COUNTS: &[&str] = &[
    "relid",
    "schemaname",
    "relname",
    "seq_scan",
    "seq_tup_read",
    "idx_scan",
    "idx_tup_fetch",
    "n_tup_ins",
    "n_tup_upd",
    "n_tup_del",
    "n_tup_hot_upd",
    "n_live_tup",
    "n_dead_tup",
    "n_mod_since_analyze",
    "n_ins_since_vacuum",
    "vacuum_count",
    "autovacuum_count",
    "analyze_count",
    "autoanalyze_count",
];
const TABLE_READS: &[&str] =
    &["relid", "schemaname", "relname", "heap_blks_read", "heap_blks_hit", "idx_blks_read", "idx_blks_hit"];
const INDEX_COUNTS: &[&str] =
    &["relid", "indexrelid", "schemaname", "relname", "indexrelname", "idx_scan", "idx_tup_read", "idx_tup_fetch"];
const INDEX_READS: &[&str] =
    &["relid", "indexrelid", "schemaname", "relname", "indexrelname", "idx_blks_read", "idx_blks_hit"];

pub static SOURCES: &[Source] = &[
    source(
        "pg_tables",
        &["schemaname", "tablename", "tableowner", "hasindexes", "hasrules", "hastriggers", "rowsecurity"],
        tables,
    ),
    source("pg_views", &["schemaname", "viewname", "viewowner", "definition"], views),
    source("pg_timezone_names", &["name", "abbrev", "utc_offset", "is_dst"], zones),
    source("pg_timezone_abbrevs", &["abbrev", "utc_offset", "is_dst"], abbreviations),
    source("pg_indexes", &["schemaname", "tablename", "indexname", "indexdef"], indexes),
    source(
        "pg_sequences",
        &[
            "schemaname",
            "sequencename",
            "sequenceowner",
            "data_type",
            "start_value",
            "min_value",
            "max_value",
            "increment_by",
            "cycle",
            "cache_size",
            "last_value",
        ],
        sequences,
    ),
    source(
        "pg_settings",
        &[
            "name",
            "setting",
            "unit",
            "category",
            "short_desc",
            "extra_desc",
            "context",
            "vartype",
            "source",
            "min_val",
            "max_val",
            "enumvals",
            "boot_val",
            "reset_val",
            "pending_restart",
        ],
        settings,
    ),
    source("pg_stat_all_tables", TABLE_COUNTS, table_counts),
    source("pg_stat_user_tables", TABLE_COUNTS, table_counts),
    source("pg_statio_all_tables", TABLE_READS, table_reads),
    source("pg_statio_user_tables", TABLE_READS, table_reads),
    source("pg_stat_all_indexes", INDEX_COUNTS, index_counts),
    source("pg_stat_user_indexes", INDEX_COUNTS, index_counts),
    source("pg_statio_all_indexes", INDEX_READS, index_reads),
    source("pg_statio_user_indexes", INDEX_READS, index_reads),
];

/// Relations with the names of their schemas.
fn named<'a>(about: &'a About<'_>) -> impl Iterator<Item = (Relation<'a>, String)> {
    relations(about.schema).into_iter().map(|relation| (relation, namespace_name(about.schema, relation.namespace)))
}

fn owner(about: &About<'_>, object: u32) -> String {
    super::roles::name(about, about.schema.owner(object))
}

fn tables(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let parents: std::collections::HashSet<_> = about.schema.foreign_keys().map(|(_, _, key)| key.parent).collect();
    for (relation, space) in named(about).filter(|(relation, _)| relation.letter() == 'r') {
        let (has_indexes, has_triggers) = match relation.kind {
            Kind::Table(table) => {
                let refers = about.schema.foreign_keys().any(|(own, _, _)| own.id == table.id);
                (!table.indexes.is_empty(), refers || parents.contains(&table.id))
            }
            _ => (false, false),
        };
        rows.row(cells![space, relation.name, owner(about, relation.oid), has_indexes, false, has_triggers, false]);
    }
    Ok(())
}

fn views(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for view in about.schema.views() {
        let space = namespace_name(about.schema, view.def.namespace);
        let text = super::definition::view(about.schema, view);
        rows.row(cells![space, view.def.name.as_str(), owner(about, view.id), text]);
    }
    Ok(())
}

/// Each table's indexes, with the schema's name.
fn each_index(about: &About<'_>, mut each: impl FnMut(&str, &Arc<Table>, &freshet_engine::catalog::Index)) {
    for table in about.schema.tables() {
        let space = namespace_name(about.schema, table.def.namespace);
        table.indexes.iter().for_each(|index| each(&space, table, index));
    }
}

fn indexes(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    each_index(about, |space, table, index| {
        let text = super::definition::index(about.schema, table, index);
        rows.row(cells![space, table.def.name.as_str(), index.def.name.as_str(), text]);
    });
    Ok(())
}

fn sequences(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for sequence in about.schema.sequences() {
        let def = &sequence.def;
        let space = namespace_name(about.schema, def.namespace);
        let value = sequence.state.value();
        let may_see = |access: &Access| {
            let any_of = Privileges::SELECT.with(Privileges::USAGE);
            access.held(AclKind::Sequence, sequence.id).0.has_any(any_of)
        };
        let last = value.is_called.then_some(value.last).filter(|_| about.env.access.as_deref().is_none_or(may_see));
        let ty = pgtype::describe(def.ty).oid;
        rows.row(cells![
            space,
            def.name.as_str(),
            owner(about, sequence.id),
            ty,
            def.start,
            def.min,
            def.max,
            def.increment,
            def.cycle,
            def.cache,
            last
        ]);
    }
    Ok(())
}

/// The zones that SET TimeZone takes by name, as they are now.
fn zones(_: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let now = crate::session::now();
    for (name, zone) in Zone::all() {
        let us = zone.offset_s(now) * 1_000_000;
        let offset = Datum::Bytes(Interval { us, ..Interval::default() }.to_stored());
        rows.row(cells![name.as_str(), zone.abbreviation(now), offset, zone.is_dst(now)]);
    }
    Ok(())
}

fn abbreviations(_: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let now = crate::session::now();
    for (name, abbreviation) in crate::value::datetime::abbreviations::all() {
        let (offset_s, is_summer) = match abbreviation {
            Abbreviation::Fixed { offset_s, is_summer } => (*offset_s, *is_summer),
            Abbreviation::Of(place) => match Zone::abbreviated(place, name) {
                Some(zone) => (zone.offset_s(now), false),
                None => continue,
            },
        };
        let offset = Datum::Bytes(Interval { us: offset_s * 1_000_000, ..Interval::default() }.to_stored());
        rows.row(cells![name.to_ascii_uppercase(), offset, is_summer]);
    }
    Ok(())
}

/// Our settings; what PostgreSQL says of those that it has too.
fn settings(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    const KNOWN: [&str; 11] = [
        "name",
        "unit",
        "category",
        "short_desc",
        "extra_desc",
        "context",
        "vartype",
        "min_val",
        "max_val",
        "enumvals",
        "boot_val",
    ];
    let section = fixed::settings();
    let at = KNOWN.map(|name| section.columns.iter().position(|c| *c == name).unwrap_or_default());
    for (name, value) in about.env.settings.all() {
        let known = section.rows.iter().find(|row| row[at[0]] == name.cell());
        let of = |i: usize, or: &str| known.map_or_else(|| or.cell(), |row| row[at[i]].clone());
        let none = |i: usize| known.map_or(Datum::Null, |row| row[at[i]].clone());
        let default = about.env.settings.default_of(name).unwrap_or_default();
        let source = if value == default { "default" } else { "session" };
        let unit = none(1);
        let counted = |value: &str| match &unit {
            Datum::Bytes(unit) => crate::settings::in_unit(value, &String::from_utf8_lossy(unit)),
            _ => value.to_owned(),
        };
        let (value, default) = (counted(&value), counted(&default));
        rows.row(cells![
            name,
            value.as_str(),
            unit.clone(),
            of(2, "Freshet"),
            of(3, NO_CHAR),
            none(4),
            of(5, "user"),
            of(6, "string"),
            source,
            none(7),
            none(8),
            none(9),
            default.as_str(),
            default.as_str(),
            false,
        ]);
    }
    Ok(())
}

/// Tables of users. The system's are computed: nobody counts their reads.
fn each_table(about: &About<'_>, mut each: impl FnMut(&str, &Table)) {
    for table in about.schema.tables() {
        each(&namespace_name(about.schema, table.def.namespace), table);
    }
}

/// About how many rows there are: an index has an entry for each, and some stale ones.
fn live_rows(table: &Table) -> i64 {
    let counted = table.indexes.iter().filter(|index| index.def.predicate.is_none()).map(|index| index.entries()).min();
    i64::try_from(counted.unwrap_or_else(|| table.slots())).unwrap_or(i64::MAX)
}

fn table_counts(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    each_table(about, |space, table| {
        let zeros = std::iter::repeat_n(0_i64.cell(), TABLE_COUNTS.len() - 12);
        let none = std::iter::repeat_n(0_i64.cell(), 8);
        let head = cells![table.id.0, space, table.def.name.as_str()];
        rows.row(head.into_iter().chain(none).chain([live_rows(table).cell()]).chain(zeros));
    });
    Ok(())
}

fn table_reads(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    each_table(about, |space, table| {
        rows.row(cells![table.id.0, space, table.def.name.as_str(), 0_i64, 0_i64, 0_i64, 0_i64]);
    });
    Ok(())
}

fn index_counts(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    each_index(about, |space, table, index| {
        let (name, own) = (table.def.name.as_str(), index.def.name.as_str());
        rows.row(cells![table.id.0, index.id.0, space, name, own, 0_i64, 0_i64, 0_i64]);
    });
    Ok(())
}

fn index_reads(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    each_index(about, |space, table, index| {
        let (name, own) = (table.def.name.as_str(), index.def.name.as_str());
        rows.row(cells![table.id.0, index.id.0, space, name, own, 0_i64, 0_i64]);
    });
    Ok(())
}
