//! Which system relations does PostgreSQL 15 have? Their names, numbers and columns, as `scripts/catalog` read them from one.
//!
//! A line of `relations.txt`: `c` (pg_catalog) or `i` (information_schema), name, kind, oid, the row type's oid, `s` where databases share it, then
//! for each column `name:type[/modifier][!][^]`: not null, and with the collation "C" though the type's is another. Types are PostgreSQL's oids;
//! a domain stands as the type that it is of.

use super::fill::Source;
use crate::value::pgtype;
use freshet_engine::catalog::NamespaceId;
use freshet_engine::schema::Type;
use std::collections::HashMap;
use std::sync::LazyLock;

/// A relation's head.
pub struct Shape {
    pub namespace: NamespaceId,
    pub name: &'static str,
    /// `r` or `v`, as `pg_class.relkind`.
    pub kind: u8,
    pub oid: u32,
    /// The oid of its row type.
    pub row_type: u32,
    pub is_shared: bool,
    pub columns: &'static [(&'static str, Type)],
    pub details: Vec<Detail>,
    pub source: Option<&'static Source>,
}

/// What else there is to say of a column.
#[derive(Clone, Copy)]
pub struct Detail {
    pub not_null: bool,
    /// Its collation is "C", though its type's is another.
    pub is_c: bool,
}

static SHAPES: LazyLock<Vec<Shape>> = LazyLock::new(|| include_str!("relations.txt").lines().map(read).collect());

static BY_NAME: LazyLock<HashMap<(NamespaceId, &'static str), usize>> =
    LazyLock::new(|| SHAPES.iter().enumerate().map(|(at, shape)| ((shape.namespace, shape.name), at)).collect());

pub fn all() -> &'static [Shape] {
    &SHAPES
}

pub fn find(namespace: NamespaceId, name: &str) -> Option<&'static Shape> {
    BY_NAME.get(&(namespace, name)).map(|&at| &SHAPES[at])
}

fn read(line: &'static str) -> Shape {
    let mut words = line.split(' ');
    let mut word = || words.next().expect("relations.txt has six words before the columns");
    let namespace = if word() == "c" { NamespaceId::CATALOG } else { NamespaceId::INFORMATION };
    let (name, kind) = (word(), word().as_bytes()[0]);
    let mut number = || word().parse().expect("an oid in relations.txt");
    let (oid, row_type) = (number(), number());
    let is_shared = word() == "s";
    let (columns, details) = words.map(column).unzip::<_, _, Vec<_>, Vec<_>>();
    let source = super::sources().find(|s| s.namespace == namespace && s.relation == name);
    Shape { namespace, name, kind, oid, row_type, is_shared, columns: columns.leak(), details, source }
}

fn column(word: &'static str) -> ((&'static str, Type), Detail) {
    let (name, rest) = word.split_once(':').expect("a column of relations.txt has a type");
    let detail = Detail { not_null: rest.contains('!'), is_c: rest.contains('^') };
    let rest = rest.trim_end_matches(['!', '^']);
    let (oid, modifier) = rest.split_once('/').unwrap_or((rest, "-1"));
    let number = |text: &str| text.parse::<i64>().expect("a number in relations.txt");
    let ty = pgtype::from_oid(number(oid) as u32, number(modifier) as i32);
    ((name, ty.expect("relations.txt has types that are there")), detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_are_read() {
        let class = find(NamespaceId::CATALOG, "pg_class").expect("there");
        assert_eq!((class.oid, class.kind, class.columns[1].0), (1259, b'r', "relname"));
        assert!(class.details[1].not_null && all().len() > 200);
        assert!(find(NamespaceId::INFORMATION, "columns").is_some_and(|s| s.columns.len() == 44));
    }
}
