//! What do `pg_prepared_statements` and `pg_cursors` say? What this session has of them, as PostgreSQL.

use super::super::About;
use super::fill::{Filled, Filler, Source, cells, source};
use crate::value::{Datum, array_datum, pgtype};
use freshet_engine::schema::{OidKind, Type};

pub static SOURCES: &[Source] = &[
    source("pg_prepared_statements", &["name", "statement", "prepare_time", "parameter_types", "from_sql"], statements),
    source("pg_cursors", &["name", "statement", "is_holdable", "is_binary", "is_scrollable", "creation_time"], cursors),
];

fn statements(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let Some(listed) = &about.env.listed else { return Ok(()) };
    for statement in listed.statements() {
        let types = statement.prepared.parameters.iter();
        let types = types.map(|&ty| Datum::Int(pgtype::describe(ty).oid.into())).collect();
        rows.row(cells![
            statement.name.as_str(),
            statement.text(),
            statement.made_at,
            array_datum(Type::Oid(OidKind::Type), types),
            statement.declaration.is_some(),
        ]);
    }
    Ok(())
}

fn cursors(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let Some(listed) = &about.env.listed else { return Ok(()) };
    for cursor in listed.cursors() {
        rows.row(cells![
            cursor.name.as_str(),
            &*cursor.declaration,
            cursor.hold,
            // BINARY is refused.
            false,
            cursor.scroll,
            cursor.made_at,
        ]);
    }
    Ok(())
}
