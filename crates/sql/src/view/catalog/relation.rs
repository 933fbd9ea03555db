//! Which relations does a schema have, and which columns have they? Tables, indexes, views, sequences and the system's own, in one form.

use super::super::Cells;
use super::fixed::{self, TypeFacts};
use super::shape::{self, Shape};
use crate::define::shown_key;
use crate::value::pgtype;
use freshet_engine::catalog::{ColumnRole, Index, IndexDef, IndexKind, NamespaceId, Schema, Sequence, Table, View};
use freshet_engine::schema::{KeyColumn, Type};
use std::sync::Arc;

/// What a relation is.
#[derive(Clone, Copy)]
pub enum Kind<'a> {
    Table(&'a Arc<Table>),
    Index(&'a Arc<Table>, &'a Arc<Index>),
    View(&'a View),
    Sequence,
    System(&'static Shape),
}

#[derive(Clone, Copy)]
pub struct Relation<'a> {
    pub oid: u32,
    pub name: &'a str,
    pub namespace: NamespaceId,
    pub kind: Kind<'a>,
}

/// A column, its place counted from 1.
pub struct Attribute<'a> {
    pub number: i16,
    pub name: std::borrow::Cow<'a, str>,
    /// `None`: dropped, or seen by nobody. Its number is not used again.
    pub ty: Option<Type>,
    pub not_null: bool,
    /// Of `pg_attrdef`: the default's or the generated column's expression.
    pub default: Option<&'a str>,
    pub role: ColumnRole,
    pub collation: Option<u32>,
}

/// The collation "C".
pub const C: u32 = 950;

impl Attribute<'_> {
    fn plain(number: usize, name: &str, ty: Type) -> Attribute<'_> {
        Attribute {
            number: number as i16,
            name: name.into(),
            ty: Some(ty),
            not_null: false,
            default: None,
            role: ColumnRole::Plain,
            collation: None,
        }
    }

    /// Its type's oid, with what the catalog says of that.
    pub fn facts(&self) -> (u32, Option<&'static TypeFacts>) {
        let oid = self.ty.map_or(0, |ty| pgtype::describe(ty).oid);
        let facts = match self.ty {
            Some(Type::Enum(_)) => Some(&fixed::ENUM),
            Some(Type::Array(Type::Enum(_))) => Some(&fixed::ENUM_ARRAY),
            _ => fixed::type_facts(oid),
        };
        (oid, facts)
    }

    pub fn modifier(&self) -> i32 {
        self.ty.map_or(-1, |ty| pgtype::describe(ty).modifier)
    }

    pub fn collation(&self) -> u32 {
        self.collation.unwrap_or_else(|| self.facts().1.map_or(0, |facts| facts.collation))
    }
}

/// Every relation: those of users by their number, then the system's.
pub fn relations(schema: &Schema) -> Vec<Relation<'_>> {
    let mut all = Vec::new();
    for table in schema.tables() {
        let namespace = table.def.namespace;
        all.push(Relation { oid: table.id.0, name: &table.def.name, namespace, kind: Kind::Table(table) });
        let index = |index| Relation { oid: 0, name: "", namespace, kind: Kind::Index(table, index) };
        all.extend(table.indexes.iter().map(|i| Relation { oid: i.id.0, name: &i.def.name, ..index(i) }));
    }
    let view = |v: &'_ Arc<View>| (v.id, v.def.namespace);
    all.extend(schema.views().map(|v| {
        let (oid, namespace) = view(v);
        Relation { oid, name: &v.def.name, namespace, kind: Kind::View(v) }
    }));
    all.extend(schema.sequences().map(|s| Relation {
        oid: s.id,
        name: &s.def.name,
        namespace: s.def.namespace,
        kind: Kind::Sequence,
    }));
    all.sort_unstable_by_key(|relation| relation.oid);
    let system = |shape: &'static Shape| Relation {
        oid: shape.oid,
        name: shape.name,
        namespace: shape.namespace,
        kind: Kind::System(shape),
    };
    all.extend(shape::all().iter().map(system));
    all
}

/// What a sequence has as a relation.
pub const SEQUENCE_COLUMNS: &[(&str, Type)] =
    &[("last_value", Type::Int8), ("log_cnt", Type::Int8), ("is_called", Type::Bool)];

impl<'a> Relation<'a> {
    /// Whose owner is its own: an index's is its table's.
    pub fn owned_as(&self) -> u32 {
        match self.kind {
            Kind::Index(table, _) => table.id.0,
            _ => self.oid,
        }
    }

    /// `pg_class.relkind`.
    pub fn letter(&self) -> char {
        match self.kind {
            Kind::Table(_) => 'r',
            Kind::Index(..) => 'i',
            Kind::View(_) => 'v',
            Kind::Sequence => 'S',
            Kind::System(shape) => char::from(shape.kind),
        }
    }

    /// Of tables and views, tables of the system included.
    pub fn is_table_or_view(&self) -> bool {
        matches!(self.letter(), 'r' | 'v')
    }

    pub fn attributes(&self) -> Vec<Attribute<'a>> {
        match self.kind {
            Kind::Table(table) => table_attributes(table),
            Kind::Index(table, index) => index_attributes(table, &index.def),
            Kind::View(view) => {
                let columns = view.def.columns.iter().enumerate();
                let default = |i: usize| view.def.defaults.iter().find(|(of, _)| usize::from(*of) == i);
                columns
                    .map(|(i, (name, ty))| Attribute {
                        default: default(i).map(|(_, text)| text.as_str()),
                        ..Attribute::plain(i + 1, name, ty.unwrap_or(Type::Text))
                    })
                    .collect()
            }
            Kind::Sequence => {
                let columns = SEQUENCE_COLUMNS.iter().enumerate();
                columns
                    .map(|(i, &(name, ty))| Attribute { not_null: true, ..Attribute::plain(i + 1, name, ty) })
                    .collect()
            }
            Kind::System(shape) => {
                let columns = shape.columns.iter().zip(&shape.details).enumerate();
                columns
                    .map(|(i, (&(name, ty), detail))| Attribute {
                        not_null: detail.not_null,
                        collation: detail.is_c.then_some(C),
                        ..Attribute::plain(i + 1, name, ty)
                    })
                    .collect()
            }
        }
    }
}

fn table_attributes(table: &Table) -> Vec<Attribute<'_>> {
    let columns = table.def.columns.iter().enumerate();
    let attributes = columns.map(|(i, column)| {
        if !column.is_visible() {
            let name = format!("........pg.dropped.{}........", i + 1);
            let gone = Attribute::plain(i + 1, "", column.ty);
            return Attribute { name: name.into(), ty: None, ..gone };
        }
        Attribute {
            not_null: column.not_null,
            default: column.default.as_deref().filter(|_| !column.is_identity()),
            role: column.role,
            collation: column.collation.map(|named| named.0),
            ..Attribute::plain(i + 1, &column.name, column.ty)
        }
    });
    attributes.collect()
}

/// What a key of an index is computed from.
pub enum Key {
    /// A column, from 1.
    Column(i16),
    Expression(String),
}

pub fn key(table: &Table, def: &IndexDef, key: &KeyColumn) -> Key {
    let column = &table.def.columns[usize::from(key.column)];
    if column.is_visible() {
        return Key::Column(key.column as i16 + 1);
    }
    let text = shown_key(column.default.as_deref().unwrap_or_default(), def.predicate.as_deref());
    let own = table.def.columns.iter().position(|c| c.is_visible() && names(&text, &c.name));
    own.map_or(Key::Expression(text), |at| Key::Column(at as i16 + 1))
}

/// Whether the text is the column's name and nothing else.
fn names(text: &str, column: &str) -> bool {
    text == column
        || crate::bind::names::quoted(column) == text
        || format!("\"{}\"", column.replace('"', "\"\"")) == text
}

/// The collation of a key of an index, 0 for a type that has none: the one that it names, else that of what it is over.
pub fn key_collation(table: &Table, def: &IndexDef, at: usize) -> u32 {
    let over = &def.columns[at];
    let column = match key(table, def, over) {
        Key::Column(number) => &table.def.columns[number as usize - 1],
        Key::Expression(_) => &table.def.columns[usize::from(over.column)],
    };
    let named = def.names_of(at).collation.or(column.collation).map(|named| named.0);
    named.unwrap_or_else(|| Attribute::plain(0, "", column.ty).collation())
}

fn index_attributes<'a>(table: &'a Table, def: &'a IndexDef) -> Vec<Attribute<'a>> {
    let mut attributes: Vec<Attribute<'a>> = Vec::new();
    let keys = def.columns.iter().map(|k| (k.column, key(table, def, k)));
    let included = def.include.iter().map(|&column| (column, Key::Column(column as i16 + 1)));
    for (at, (column, key)) in keys.chain(included).enumerate() {
        let ty = table.def.columns[usize::from(column)].ty;
        let name = match key {
            Key::Column(number) => table.def.columns[number as usize - 1].name.clone(),
            Key::Expression(text) => expression_name(&text),
        };
        let taken = |name: &str| attributes.iter().any(|a| a.name == name);
        let numbered = (1..).map(|n| format!("{name}{n}"));
        let name = std::iter::once(name.clone()).chain(numbered).find(|name| !taken(name)).unwrap_or_default();
        let collation = (at < def.columns.len()).then(|| key_collation(table, def, at));
        attributes.push(Attribute { name: name.into(), collation, ..Attribute::plain(at + 1, "", ty) });
    }
    attributes
}

/// As PostgreSQL calls an index's column that is computed: by its function, if it is a call.
fn expression_name(text: &str) -> String {
    match crate::parse::parse_expression(text) {
        Ok(sqlparser::ast::Expr::Function(call)) => {
            call.name.0.last().map(|p| p.to_string().to_lowercase()).unwrap_or_default()
        }
        _ => "expr".to_owned(),
    }
}

/// The access method's oid.
pub fn access_method(kind: IndexKind) -> u32 {
    match kind {
        IndexKind::BTree => 403,
        IndexKind::Hash => 405,
    }
}

/// Where a sequence stands, as a row.
pub fn sequence_row(sequence: &Sequence) -> Cells {
    let value = sequence.state.value();
    super::fill::cells![value.last, 0_i64, value.is_called].to_vec()
}
