//! What do PostgreSQL's system relations say of this database? `pg_catalog` and `information_schema`, generated from the engine's schema.
//!
//! | module | question |
//! |---|---|
//! | `shape` | which relations are there, with which columns: all of PostgreSQL 15's |
//! | `fixed` | which rows are the same in every database: types, functions, operators, casts |
//! | `fill` | how does a generator give rows of a relation's shape |
//! | `relation` | which relations, with which columns, does a schema have, the system's included |
//! | `objects` | the tables of `pg_catalog` |
//! | `listing` | its views |
//! | `roles` | who there is, and what is granted |
//! | `information` | `information_schema` |
//! | `usage` | its relations of uses, and of rights on types, functions and sequences |
//! | `statistics` | what the planner knows of columns |
//! | `named` | which prepared statements and cursors does the session have |
//! | `definition` | how are expressions and queries of definitions written |
//!
//! 1. A relation without a generator is about what is not there (triggers, policies, publications): it is empty.
//! 2. Rows that follow from the definitions alone are made once for each version of the schema, and kept with it, with what finds them by a column.
//! 3. `pg_catalog` is searched first, unless the search path says where; so it hides tables of users, as in PostgreSQL.

mod definition;
mod fill;
mod fixed;
mod information;
mod listing;
mod named;
mod objects;
mod relation;
mod roles;
mod shape;
mod statistics;
mod usage;
mod work;

use super::{About, Cells, SystemView};
use crate::error::SqlError;
use fill::{Filler, Source};
use freshet_engine::catalog::NamespaceId;
use freshet_engine::schema::Type;
pub use relation::{SEQUENCE_COLUMNS, sequence_row};
pub use shape::Shape;

/// The relation of this name.
pub fn named(namespace: NamespaceId, name: &str) -> Option<&'static dyn SystemView> {
    shape::find(namespace, name).map(|shape| shape as &dyn SystemView)
}

/// Whether it is a table in PostgreSQL: changing it has another error than changing a view.
pub fn is_table(name: &str) -> bool {
    shape::find(NamespaceId::CATALOG, name).is_some_and(|shape| shape.kind == b'r')
}

/// Every generator.
fn sources() -> impl Iterator<Item = &'static Source> {
    let all = objects::SOURCES.iter().chain(listing::SOURCES).chain(roles::SOURCES);
    all.chain(information::SOURCES)
        .chain(usage::SOURCES)
        .chain(statistics::SOURCES)
        .chain(work::SOURCES)
        .chain(named::SOURCES)
}

impl SystemView for Shape {
    fn name(&self) -> &'static str {
        self.name
    }

    fn columns(&self) -> &'static [(&'static str, Type)] {
        self.columns
    }

    fn rows(&self, about: &About<'_>) -> Result<Vec<Cells>, SqlError> {
        let mut filler = Filler::new(self);
        filler.fixed(self.name);
        if let Some(source) = self.source {
            filler.start(source);
            (source.fill)(about, &mut filler)?;
        }
        Ok(filler.rows)
    }

    fn number(&self) -> u32 {
        if self.kind == b'r' { self.oid } else { 0 }
    }

    fn follows_schema(&self) -> bool {
        self.source.is_none_or(|source| source.follows_schema)
    }

    fn follows_statistics(&self) -> bool {
        self.name == "pg_class"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_are_of_relations_and_columns_that_are_there() {
        for source in sources() {
            let shape = shape::find(source.namespace, source.relation).expect(source.relation);
            assert!(std::ptr::eq(shape.source.expect("found by its name"), source), "{} twice", source.relation);
            let mut filler = Filler::new(shape);
            filler.start(source);
        }
    }
}
