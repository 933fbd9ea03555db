//! What do `pg_statistic` and `pg_stats` say? What the planner of queries that are not compiled knows of columns: see `crate::statistics`.

use super::super::About;
use super::fill::{Filled, Filler, Source, cells, source};
use crate::bind::names::namespace_name;
use crate::role::acl::{Kind as AclKind, Privileges};
use crate::statistics::{ColumnStatistics, TableStatistics};
use crate::value::{Datum, array_datum, to_text};
use freshet_engine::catalog::Table;
use freshet_engine::schema::Type;
use std::sync::Arc;

pub static SOURCES: &[Source] = &[
    source(
        "pg_statistic",
        &[
            "starelid",
            "staattnum",
            "stainherit",
            "stanullfrac",
            "stawidth",
            "stadistinct",
            "stakind1",
            "stakind2",
            "stakind3",
            "stanumbers1",
            "stanumbers2",
            "stanumbers3",
            "stavalues1",
            "stavalues2",
            "stavalues3",
        ],
        statistic,
    ),
    source(
        "pg_stats",
        &[
            "schemaname",
            "tablename",
            "attname",
            "inherited",
            "null_frac",
            "avg_width",
            "n_distinct",
            "most_common_vals",
            "most_common_freqs",
            "histogram_bounds",
            "correlation",
        ],
        stats,
    ),
];

/// PostgreSQL scales the number of distinct values with the table, if it is more than this share of its rows.
const SCALED_SHARE: f64 = 0.1;

// `pg_statistic.stakind`.
const MOST_COMMON: i32 = 1;
const HISTOGRAM: i32 = 2;
const CORRELATION: i32 = 3;

/// A column with what is known of it.
struct Known<'a> {
    table: &'a Arc<Table>,
    number: i32,
    name: &'a str,
    ty: Type,
    all: &'a TableStatistics,
    column: &'a ColumnStatistics,
}

fn each(about: &About<'_>, give: &mut dyn FnMut(Known<'_>)) {
    let Some(statistics) = &about.env.statistics else { return };
    // They have values of rows in them.
    let may_read = |table: &&Arc<Table>| {
        let access = about.env.access.as_ref();
        access.is_none_or(|access| access.may(AclKind::Table, table.id.0, Privileges::SELECT))
    };
    for table in about.schema.tables().filter(may_read) {
        let Some(all) = statistics.get(table) else { continue };
        for (at, def) in table.def.columns.iter().enumerate().filter(|(_, def)| def.is_visible()) {
            if let Some(column) = all.column(&def.name, def.ty) {
                give(Known { table, number: at as i32 + 1, name: &def.name, ty: def.ty, all: &all, column });
            }
        }
    }
}

impl Known<'_> {
    /// As a number of values, or negative as a share of the rows.
    fn distinct(&self) -> f32 {
        let (distinct, rows) = (self.column.distinct, self.all.rows.max(1.0));
        let distinct = if distinct > rows * SCALED_SHARE { -(distinct / rows).min(1.0) } else { distinct.round() };
        distinct as f32
    }

    fn common(&self) -> (Datum, Datum) {
        if self.column.common.is_empty() {
            return (Datum::Null, Datum::Null);
        }
        let shares = self.column.common.iter().map(|(_, share)| Datum::Float(f64::from(*share as f32)));
        let values = self.column.common.iter().map(|(value, _)| value);
        (array_text(self.ty, values), array_datum(Type::Float4, shares.collect()))
    }

    fn bounds(&self) -> Datum {
        if self.column.bounds.len() < 2 { Datum::Null } else { array_text(self.ty, self.column.bounds.iter()) }
    }

    fn correlation(&self) -> Datum {
        let is_ordered = self.ty != Type::Json && self.column.null_fraction < 1.0;
        if is_ordered { Datum::Float(f64::from(self.column.correlation as f32)) } else { Datum::Null }
    }
}

fn statistic(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    each(about, &mut |known| {
        let (common, shares) = known.common();
        let (bounds, correlation) = (known.bounds(), known.correlation());
        let of_correlation = match correlation {
            Datum::Null => Datum::Null,
            correlation => array_datum(Type::Float4, vec![correlation]),
        };
        let mut slots: Vec<(i32, Datum, Datum)> = vec![
            (MOST_COMMON, shares, common),
            (HISTOGRAM, Datum::Null, bounds),
            (CORRELATION, of_correlation, Datum::Null),
        ];
        slots.retain(|(_, numbers, values)| *numbers != Datum::Null || *values != Datum::Null);
        slots.resize(3, (0, Datum::Null, Datum::Null));
        let kinds = slots.iter().map(|(kind, _, _)| Datum::Int(i64::from(*kind)));
        let numbers = slots.iter().map(|(_, numbers, _)| numbers.clone());
        let values = slots.iter().map(|(_, _, values)| values.clone());
        let first: Vec<Datum> = cells![
            known.table.id.0,
            known.number,
            false,
            known.column.null_fraction as f32,
            known.column.width.round() as i32,
            known.distinct(),
        ]
        .into_iter()
        .collect();
        rows.row(first.into_iter().chain(kinds).chain(numbers).chain(values));
    });
    Ok(())
}

fn stats(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    each(about, &mut |known| {
        let (common, shares) = known.common();
        rows.row(cells![
            namespace_name(about.schema, known.table.def.namespace),
            known.table.def.name.as_str(),
            known.name,
            false,
            known.column.null_fraction as f32,
            known.column.width.round() as i32,
            known.distinct(),
            common,
            shares,
            known.bounds(),
            known.correlation(),
        ]);
    });
    Ok(())
}

/// Values as the text of an array of them.
fn array_text<'v>(ty: Type, values: impl Iterator<Item = &'v Datum>) -> Datum {
    let mut out = vec![b'{'];
    for (i, value) in values.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        let mut text = Vec::new();
        to_text(ty, &value.as_value(), &mut text);
        let is_special = |c: &u8| matches!(c, b'{' | b'}' | b',' | b'"' | b'\\') || c.is_ascii_whitespace();
        if !text.is_empty() && !text.iter().any(is_special) && !text.eq_ignore_ascii_case(b"null") {
            out.extend(text);
            continue;
        }
        out.push(b'"');
        for c in text {
            if matches!(c, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(c);
        }
        out.push(b'"');
    }
    out.push(b'}');
    Datum::Bytes(out.into())
}
