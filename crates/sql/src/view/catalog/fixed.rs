//! Which rows are the same in every database? Those of `rows.txt`, which `scripts/catalog` took from a PostgreSQL 15: its types, functions,
//! operators and casts as far as they are here too.
//!
//! A section begins with `== relation column...`; its rows are in the text format of COPY.

use super::shape;
use crate::value::{Datum, from_text};
use freshet_engine::catalog::NamespaceId;
use freshet_engine::schema::Type;
use std::collections::HashMap;
use std::sync::LazyLock;

/// The rows of one relation, or of a part of its columns.
pub struct Section {
    pub columns: Vec<&'static str>,
    pub rows: Vec<Vec<Datum>>,
}

/// A section as it stands in the file.
struct Text {
    columns: Vec<&'static str>,
    lines: Vec<&'static str>,
}

static TEXTS: LazyLock<HashMap<&'static str, Text>> = LazyLock::new(|| {
    let mut texts: HashMap<&str, Text> = HashMap::new();
    let mut name = "";
    for line in include_str!("rows.txt").lines() {
        if let Some(head) = line.strip_prefix("== ") {
            let mut words = head.split(' ');
            name = words.next().unwrap_or_default();
            texts.insert(name, Text { columns: words.collect(), lines: Vec::new() });
        } else if let Some(text) = texts.get_mut(name) {
            text.lines.push(line);
        }
    }
    texts
});

type Reading = Box<dyn FnOnce() -> Section + Send>;

/// Each is read when it is first asked for.
static SECTIONS: LazyLock<HashMap<&'static str, LazyLock<Section, Reading>>> = LazyLock::new(|| {
    let lazy = |(&name, text): (&&'static str, &'static Text)| {
        let read: Reading = Box::new(move || read(name, text));
        (name, LazyLock::new(read))
    };
    TEXTS.iter().map(lazy).collect()
});

/// The fixed rows of a relation of `pg_catalog`.
pub fn section(relation: &str) -> Option<&'static Section> {
    // What is known of settings is no row by itself.
    (relation != "pg_settings").then(|| SECTIONS.get(relation).map(|lazy| &**lazy)).flatten()
}

/// What PostgreSQL says of its settings.
pub fn settings() -> &'static Section {
    &SECTIONS["pg_settings"]
}

fn read(relation: &str, text: &Text) -> Section {
    let shape = shape::find(NamespaceId::CATALOG, relation).expect("a section of rows.txt is of a relation");
    let type_of = |name: &&str| shape.columns.iter().find(|(column, _)| column == name).map(|(_, ty)| *ty);
    let types: Vec<Type> =
        text.columns.iter().map(|name| type_of(name).expect("a column of rows.txt is there")).collect();
    let rows = text.lines.iter().map(|line| line.split('\t').zip(&types).map(|(cell, &ty)| datum(cell, ty)).collect());
    Section { columns: text.columns.clone(), rows: rows.collect() }
}

fn datum(cell: &str, ty: Type) -> Datum {
    if cell == "\\N" {
        return Datum::Null;
    }
    // Functions are numbers in the file.
    if let Type::Oid(_) = ty {
        return Datum::Int(cell.parse().expect("an oid in rows.txt"));
    }
    from_text(ty, unescaped(cell).as_bytes()).expect("rows.txt has values of its columns' types")
}

fn unescaped(cell: &str) -> String {
    let mut out = String::with_capacity(cell.len());
    let mut chars = cell.chars();
    while let Some(c) = chars.next() {
        let escaped = if c == '\\' { chars.next() } else { None };
        out.push(match escaped {
            Some('t') => '\t',
            Some('n') => '\n',
            Some(other) => other,
            None => c,
        });
    }
    out
}

/// What `pg_type` says of a type, as far as columns repeat it.
#[derive(Clone, Copy, Debug)]
pub struct TypeFacts {
    pub name: &'static str,
    pub length: i32,
    pub by_value: bool,
    pub align: char,
    pub storage: char,
    pub collation: u32,
}

/// Of enums, whose names are not here.
pub const ENUM: TypeFacts = TypeFacts { name: "", length: 4, by_value: true, align: 'i', storage: 'p', collation: 0 };
pub const ENUM_ARRAY: TypeFacts =
    TypeFacts { name: "", length: -1, by_value: false, align: 'i', storage: 'x', collation: 0 };

static TYPES: LazyLock<HashMap<u32, TypeFacts>> = LazyLock::new(|| {
    let text = &TEXTS["pg_type"];
    let at = |name: &str| text.columns.iter().position(|c| *c == name).expect("a column of pg_type");
    let (oid, name, length, by_value) = (at("oid"), at("typname"), at("typlen"), at("typbyval"));
    let (align, storage, collation) = (at("typalign"), at("typstorage"), at("typcollation"));
    let letter = |word: &str| word.chars().next().unwrap_or('c');
    let facts = text.lines.iter().map(|line| {
        let cells: Vec<&'static str> = line.split('\t').collect();
        let facts = TypeFacts {
            name: cells[name],
            length: cells[length].parse().unwrap_or(-1),
            by_value: cells[by_value] == "t",
            align: letter(cells[align]),
            storage: letter(cells[storage]),
            collation: cells[collation].parse().unwrap_or(0),
        };
        (cells[oid].parse().unwrap_or(0), facts)
    });
    facts.collect()
});

/// Of a type by its oid.
pub fn type_facts(oid: u32) -> Option<&'static TypeFacts> {
    TYPES.get(&oid)
}

/// The default operator classes by access method and type.
static CLASSES: LazyLock<HashMap<(u32, u32), u32>> = LazyLock::new(|| {
    let text = &TEXTS["pg_opclass"];
    let at = |name: &str| text.columns.iter().position(|c| *c == name).expect("a column of pg_opclass");
    let (oid, method, input, default) = (at("oid"), at("opcmethod"), at("opcintype"), at("opcdefault"));
    let number = |word: &str| word.parse().unwrap_or(0);
    let lines = text.lines.iter().map(|line| line.split('\t').collect::<Vec<_>>());
    lines.filter(|c| c[default] == "t").map(|c| ((number(c[method]), number(c[input])), number(c[oid]))).collect()
});

/// The operator class that an index on a column of this type has.
pub fn operator_class(method: u32, ty: u32) -> u32 {
    // Strings of a limited length are compared as text, arrays of all types alike.
    let ty = match ty {
        1043 => 25,
        ty if type_facts(ty).is_some_and(|facts| facts.name.starts_with('_')) => 2277,
        ty => ty,
    };
    CLASSES.get(&(method, ty)).copied().unwrap_or(0)
}

/// That which enums share: it takes `anyenum`.
pub fn operator_class_of_enums(method: u32) -> u32 {
    const BTREE: u32 = 403;
    if method == BTREE { 3522 } else { 3523 }
}
