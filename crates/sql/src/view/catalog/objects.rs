//! The tables of `pg_catalog`: what the schema has, in PostgreSQL's form.
//!
//! A hidden column, which an index on an expression is about, stands as a dropped one: clients count columns without gaps.

use super::super::About;
use super::fill::{Fill, Filled, Filler, NO_CHAR, Source, cells};
use super::fixed;
use super::relation::{Attribute, Key, Kind, Relation, access_method, key, key_collation, relations};
use super::roles;
use crate::bind::names::is_temporary;
use crate::catalog::oid;
use crate::role::acl::Kind as AclKind;
use crate::value::{Datum, array_datum, pgtype, vector_datum};
use freshet_engine::catalog::{
    Action, CheckOption, ColumnRole, Constraint, ConstraintKind, ForeignKey, IndexDef, NamespaceId, RoleId, Schema,
    Table,
};
use freshet_engine::schema::{EnumId, Type, VectorKind};

/// The access method of tables.
const HEAP: u32 = 2;

// Functions of `pg_proc` that read and write rows and arrays.
const RECORD_IN: u32 = 2290;
const RECORD_OUT: u32 = 2291;
const ARRAY_IN: u32 = 750;
const ARRAY_OUT: u32 = 751;
const ENUM_IN: u32 = 3506;
const ENUM_OUT: u32 = 3507;

/// Oids of the relations that others name.
mod class {
    pub const DATABASE: u32 = 1262;
    pub const AUTHID: u32 = 1260;
    pub const TYPE: u32 = 1247;
    pub const CLASS: u32 = 1259;
    pub const ATTRDEF: u32 = 2604;
    pub const CONSTRAINT: u32 = 2606;
    pub const NAMESPACE: u32 = 2615;
    pub const REWRITE: u32 = 2618;
}

const CATALOG: NamespaceId = NamespaceId::CATALOG;

const fn source(relation: &'static str, columns: &'static [&'static str], fill: Fill) -> Source {
    Source { namespace: CATALOG, relation, columns, follows_schema: true, fill }
}

pub static SOURCES: &[Source] = &[
    source("pg_namespace", &["oid", "nspname", "nspowner", "nspacl"], namespaces),
    source(
        "pg_class",
        &[
            "oid",
            "relname",
            "relnamespace",
            "reltype",
            "relowner",
            "relam",
            "relfilenode",
            "reltuples",
            "relhasindex",
            "relisshared",
            "relpersistence",
            "relkind",
            "relnatts",
            "relchecks",
            "relhasrules",
            "relhastriggers",
            "relispopulated",
            "relreplident",
            "relacl",
            "reloptions",
        ],
        classes,
    ),
    source(
        "pg_attribute",
        &[
            "attrelid",
            "attname",
            "atttypid",
            "attstattarget",
            "attlen",
            "attnum",
            "attndims",
            "attcacheoff",
            "atttypmod",
            "attbyval",
            "attalign",
            "attstorage",
            "attnotnull",
            "atthasdef",
            "attidentity",
            "attgenerated",
            "attisdropped",
            "attislocal",
            "attcollation",
        ],
        attributes,
    ),
    source("pg_attrdef", &["oid", "adrelid", "adnum", "adbin"], defaults),
    source(
        "pg_type",
        &[
            "oid",
            "typname",
            "typnamespace",
            "typowner",
            "typlen",
            "typbyval",
            "typtype",
            "typcategory",
            "typisdefined",
            "typdelim",
            "typrelid",
            "typelem",
            "typarray",
            "typinput",
            "typoutput",
            "typalign",
            "typstorage",
            "typtypmod",
            "typacl",
        ],
        row_types,
    ),
    source("pg_enum", &["oid", "enumtypid", "enumsortorder", "enumlabel"], enum_labels),
    source(
        "pg_index",
        &[
            "indexrelid",
            "indrelid",
            "indnatts",
            "indnkeyatts",
            "indisunique",
            "indnullsnotdistinct",
            "indisprimary",
            "indimmediate",
            "indisvalid",
            "indisready",
            "indislive",
            "indkey",
            "indcollation",
            "indclass",
            "indoption",
            "indexprs",
            "indpred",
        ],
        indexes,
    ),
    source(
        "pg_constraint",
        &[
            "oid",
            "conname",
            "connamespace",
            "contype",
            "condeferrable",
            "condeferred",
            "convalidated",
            "conrelid",
            "conindid",
            "confrelid",
            "confupdtype",
            "confdeltype",
            "confmatchtype",
            "conislocal",
            "connoinherit",
            "conkey",
            "confkey",
            "confdelsetcols",
            "conbin",
        ],
        constraints,
    ),
    source(
        "pg_sequence",
        &["seqrelid", "seqtypid", "seqstart", "seqincrement", "seqmax", "seqmin", "seqcache", "seqcycle"],
        sequences,
    ),
    source("pg_description", &["objoid", "classoid", "objsubid", "description"], descriptions),
    source("pg_shdescription", &["objoid", "classoid", "description"], shared_descriptions),
    source(
        "pg_depend",
        &["classid", "objid", "objsubid", "refclassid", "refobjid", "refobjsubid", "deptype"],
        dependencies,
    ),
    source("pg_rewrite", &["oid", "rulename", "ev_class", "ev_type", "ev_enabled", "is_instead"], rules),
    Source {
        follows_schema: false,
        ..source(
            "pg_database",
            &[
                "oid",
                "datname",
                "datdba",
                "encoding",
                "datlocprovider",
                "datistemplate",
                "datallowconn",
                "datconnlimit",
                "dattablespace",
                "datcollate",
                "datctype",
                "datacl",
            ],
            databases,
        )
    },
];

fn namespaces(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for namespace in about.schema.namespaces() {
        let id = namespace.id.0;
        let granted = roles::list(about, AclKind::Schema, id);
        rows.row(cells![id, namespace.name.as_str(), roles::owner(about.schema, id), granted]);
    }
    Ok(())
}

// ---- relations and their columns

fn classes(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let schema = about.schema;
    let parents: std::collections::HashSet<u32> = schema.foreign_keys().map(|(_, _, key)| key.parent.0).collect();
    for relation in relations(schema) {
        let (mut method, mut has_index, mut checks, mut has_triggers) = (0, false, 0, false);
        match relation.kind {
            Kind::Table(table) => {
                let foreign = |c: &Constraint| matches!(c.kind, ConstraintKind::Foreign(_));
                method = HEAP;
                has_index = !table.indexes.is_empty();
                checks = table.def.constraints.iter().filter(|c| !foreign(c)).count();
                has_triggers = table.def.constraints.iter().any(foreign) || parents.contains(&table.id.0);
            }
            Kind::Index(_, index) => method = access_method(index.def.kind),
            Kind::System(shape) if shape.kind == b'r' => method = HEAP,
            _ => {}
        }
        let kind = relation.letter();
        let is_stored = matches!(kind, 'r' | 'i' | 'S');
        let is_system = matches!(relation.kind, Kind::System(_));
        let granted = match kind {
            'r' | 'v' => roles::list(about, AclKind::Table, relation.oid),
            'S' => roles::list(about, AclKind::Sequence, relation.oid),
            _ => Datum::Null,
        };
        let replica_identity = if kind == 'r' && !is_system { 'd' } else { 'n' };
        rows.row(cells![
            relation.oid,
            relation.name,
            relation.namespace.0,
            row_type(&relation),
            roles::owner(schema, relation.owned_as()),
            method,
            if is_stored { relation.oid } else { 0 },
            row_count(about, &relation),
            has_index,
            matches!(relation.kind, Kind::System(shape) if shape.is_shared),
            persistence(schema, relation.namespace),
            kind,
            width(&relation),
            checks as i32,
            kind == 'v',
            has_triggers,
            true,
            replica_identity,
            granted,
            options(&relation),
        ]);
    }
    Ok(())
}

/// `reltuples`: what was counted when the table was sampled.
fn row_count(about: &About<'_>, relation: &Relation<'_>) -> f32 {
    let sampled = |table| about.env.statistics.as_ref().and_then(|statistics| statistics.get(table));
    match relation.kind {
        Kind::Table(table) | Kind::Index(table, _) => match sampled(table) {
            Some(known) => known.rows.round() as f32,
            None if relation.letter() == 'r' => -1.0,
            None => 0.0,
        },
        _ if relation.letter() == 'r' => -1.0,
        _ => 0.0,
    }
}

/// `pg_class.reloptions`.
fn options(relation: &Relation<'_>) -> Datum {
    let Kind::View(view) = relation.kind else { return Datum::Null };
    let option = match view.def.check {
        None => return Datum::Null,
        Some(CheckOption::Local) => "check_option=local",
        Some(CheckOption::Cascaded) => "check_option=cascaded",
    };
    array_datum(Type::Text, vec![Datum::Bytes(option.as_bytes().into())])
}

/// The oid of the type that a relation's rows have; indexes have none, sequences neither since PostgreSQL 14.
fn row_type(relation: &Relation<'_>) -> u32 {
    match relation.kind {
        Kind::Table(_) | Kind::View(_) => oid::row_type(relation.oid),
        Kind::System(shape) => shape.row_type,
        Kind::Index(..) | Kind::Sequence => 0,
    }
}

fn width(relation: &Relation<'_>) -> i32 {
    let columns = match relation.kind {
        Kind::Table(table) => table.def.columns.len(),
        Kind::Index(_, index) => index.def.columns.len() + index.def.include.len(),
        Kind::View(view) => view.def.columns.len(),
        Kind::Sequence => super::relation::SEQUENCE_COLUMNS.len(),
        Kind::System(shape) => shape.columns.len(),
    };
    columns as i32
}

fn persistence(schema: &Schema, namespace: NamespaceId) -> char {
    if is_temporary(schema, namespace) { 't' } else { 'p' }
}

fn attributes(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for relation in relations(about.schema) {
        for attribute in relation.attributes() {
            rows.row(attribute_row(relation.oid, &attribute));
        }
    }
    Ok(())
}

fn attribute_row(relation: u32, attribute: &Attribute<'_>) -> [Datum; 19] {
    let (ty, facts) = attribute.facts();
    let is_array = matches!(attribute.ty, Some(Type::Array(_)));
    let identity = match attribute.role {
        ColumnRole::IdentityAlways => "a",
        ColumnRole::IdentityByDefault => "d",
        _ => NO_CHAR,
    };
    let generated = if attribute.role == ColumnRole::Generated { "s" } else { NO_CHAR };
    cells![
        relation,
        attribute.name.as_ref(),
        ty,
        if attribute.ty.is_some() { -1 } else { 0 },
        facts.map_or(-1, |f| f.length),
        i32::from(attribute.number),
        i32::from(is_array),
        -1,
        attribute.modifier(),
        facts.is_some_and(|f| f.by_value),
        facts.map_or('i', |f| f.align),
        facts.map_or('p', |f| f.storage),
        attribute.not_null,
        attribute.default.is_some(),
        identity,
        generated,
        attribute.ty.is_none(),
        true,
        attribute.collation(),
    ]
}

fn defaults(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let tables = about.schema.tables().map(|table| (table.id.0, Kind::Table(table)));
    for (id, kind) in tables.chain(about.schema.views().map(|view| (view.id, Kind::View(view)))) {
        let relation = Relation { oid: id, name: "", namespace: CATALOG, kind };
        for attribute in relation.attributes() {
            if let Some(text) = attribute.default {
                let number = attribute.number;
                let stored = crate::catalog::definition::stored_default(number as u16, text);
                let own = oid::column_default(id, number as u16);
                rows.row(cells![own, id, i32::from(number), stored]);
            }
        }
    }
    Ok(())
}

fn row_types(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for relation in relations(about.schema) {
        let own = row_type(&relation);
        if own == 0 {
            continue;
        }
        let is_system = matches!(relation.kind, Kind::System(_));
        let array = if is_system { 0 } else { oid::row_array(relation.oid) };
        let row = |oid: u32, name: &str, kind: char, category: char, relid: u32, element: u32, array: u32| {
            let (input, output) = if kind == 'c' { (RECORD_IN, RECORD_OUT) } else { (ARRAY_IN, ARRAY_OUT) };
            cells![
                oid,
                name,
                relation.namespace.0,
                roles::owner(about.schema, relation.oid),
                -1,
                false,
                kind,
                category,
                true,
                ',',
                relid,
                element,
                array,
                input,
                output,
                'd',
                'x',
                -1,
                Datum::Null
            ]
        };
        rows.row(row(own, relation.name, 'c', 'C', relation.oid, 0, array));
        if array != 0 {
            rows.row(row(array, &array_name(relation.name), 'b', 'A', 0, own, 0));
        }
    }
    enum_types(about, rows);
    Ok(())
}

/// Enums and their arrays.
fn enum_types(about: &About<'_>, rows: &mut Filler<'_>) {
    for made in about.schema.enums() {
        let (own, array) = (made.id.0, oid::row_array(made.id.0));
        let mut row = |oid: u32, name: &str, facts: fixed::TypeFacts, element: u32, array: u32| {
            let is_enum = element == 0;
            let (input, output) = if is_enum { (ENUM_IN, ENUM_OUT) } else { (ARRAY_IN, ARRAY_OUT) };
            rows.row(cells![
                oid,
                name,
                made.def.namespace.0,
                roles::owner(about.schema, own),
                facts.length,
                facts.by_value,
                if is_enum { 'e' } else { 'b' },
                if is_enum { 'E' } else { 'A' },
                true,
                ',',
                0,
                element,
                array,
                input,
                output,
                facts.align,
                facts.storage,
                -1,
                if is_enum { roles::list(about, AclKind::Type, own) } else { Datum::Null }
            ]);
        };
        row(own, &made.def.name, fixed::ENUM, 0, array);
        row(array, &array_name(&made.def.name), fixed::ENUM_ARRAY, own, 0);
    }
}

/// What the type of arrays of a type of this name is called.
pub fn array_name(name: &str) -> String {
    std::iter::once('_').chain(name.chars()).take(63).collect()
}

fn enum_labels(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for made in about.schema.enums() {
        for (at, label) in made.def.labels.iter().enumerate() {
            rows.row(cells![label.oid, made.id.0, (at + 1) as f32, label.text.as_str()]);
        }
    }
    Ok(())
}

// ---- indexes and constraints

fn indexes(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for table in about.schema.tables() {
        for index in &table.indexes {
            rows.row(index_row(table, index.id.0, &index.def));
        }
    }
    Ok(())
}

fn index_row(table: &Table, id: u32, def: &IndexDef) -> [Datum; 17] {
    let method = access_method(def.kind);
    let keys: Vec<Key> = def.columns.iter().map(|k| key(table, def, k)).collect();
    let number = |key: &Key| if let Key::Column(number) = key { i64::from(*number) } else { 0 };
    let expressions: Vec<&str> =
        keys.iter().filter_map(|k| if let Key::Expression(text) = k { Some(text.as_str()) } else { None }).collect();
    let type_oid = |column: u16| pgtype::describe(table.def.columns[usize::from(column)].ty).oid;
    let types: Vec<u32> = def.columns.iter().map(|k| type_oid(k.column)).collect();
    let collation = |at: usize| i64::from(key_collation(table, def, at));
    let default_class = |at: usize| match table.def.columns[usize::from(def.columns[at].column)].ty {
        Type::Enum(_) => fixed::operator_class_of_enums(method),
        Type::Array(Type::Enum(_)) => fixed::operator_class(method, 1009),
        _ => fixed::operator_class(method, types[at]),
    };
    let class = |at: usize| i64::from(def.names_of(at).class.map_or_else(|| default_class(at), |class| class.0));
    let option = |(at, key): (usize, &freshet_engine::schema::KeyColumn)| {
        let against = def.nulls_against >> at.min(31) & 1 == 1;
        i64::from(key.descending) | i64::from(key.descending != against) << 1
    };
    let included = def.include.iter().map(|&c| i64::from(c) + 1);
    cells![
        id,
        table.id.0,
        (def.columns.len() + def.include.len()) as i32,
        def.columns.len() as i32,
        def.is_key(),
        def.nulls_not_distinct,
        def.primary,
        !def.deferrable,
        true,
        true,
        true,
        vector_datum(VectorKind::Int2, keys.iter().map(number).chain(included).collect()),
        vector_datum(VectorKind::Oid, (0..types.len()).map(collation).collect()),
        vector_datum(VectorKind::Oid, (0..types.len()).map(class).collect()),
        vector_datum(VectorKind::Int2, def.columns.iter().enumerate().map(option).collect()),
        (!expressions.is_empty()).then(|| expressions.join(", ")),
        def.predicate.as_deref(),
    ]
}

fn numbers(columns: &[u16]) -> Datum {
    array_datum(Type::Int2, columns.iter().map(|&c| Datum::Int(i64::from(c) + 1)).collect())
}

fn action(action: Action) -> &'static str {
    match action {
        Action::NoAction => "a",
        Action::Restrict => "r",
        Action::Cascade => "c",
        Action::SetNull => "n",
        Action::SetDefault => "d",
    }
}

/// What `pg_constraint` has of a foreign key only.
struct Referenced {
    index: u32,
    table: u32,
    update: &'static str,
    delete: &'static str,
    matching: &'static str,
    columns: Datum,
    set_columns: Datum,
}

impl Referenced {
    const NOTHING: Referenced = Referenced {
        index: 0,
        table: 0,
        update: " ",
        delete: " ",
        matching: " ",
        columns: Datum::Null,
        set_columns: Datum::Null,
    };

    fn of(key: &ForeignKey) -> Referenced {
        Referenced {
            index: key.parent_index.0,
            table: key.parent.0,
            update: action(key.on_update),
            delete: action(key.on_delete),
            matching: if key.full { "f" } else { "s" },
            columns: numbers(&key.parent_columns),
            set_columns: match key.delete_columns.as_slice() {
                [] => Datum::Null,
                some => numbers(some),
            },
        }
    }
}

fn constraints(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for table in about.schema.tables() {
        let namespace = table.def.namespace.0;
        for constraint in &table.def.constraints {
            let (kind, columns, deferrable, deferred, referenced, text) = match &constraint.kind {
                ConstraintKind::Check { condition, columns } => {
                    ('c', columns, false, false, Referenced::NOTHING, Some(condition.as_str()))
                }
                ConstraintKind::Foreign(key) => {
                    ('f', &key.columns, key.deferrable, key.deferred, Referenced::of(key), None)
                }
            };
            rows.row(cells![
                constraint.id,
                constraint.name.as_str(),
                namespace,
                kind,
                deferrable,
                deferred,
                constraint.validated,
                table.id.0,
                referenced.index,
                referenced.table,
                referenced.update,
                referenced.delete,
                referenced.matching,
                true,
                kind == 'f',
                numbers(columns),
                referenced.columns,
                referenced.set_columns,
                text
            ]);
        }
        for index in table.indexes.iter().filter(|index| index.def.constraint != 0) {
            let columns: Vec<u16> = index.def.columns.iter().map(|k| k.column).collect();
            let kind = if index.def.primary { 'p' } else { 'u' };
            let none = Referenced::NOTHING;
            rows.row(cells![
                index.def.constraint,
                index.def.name.as_str(),
                namespace,
                kind,
                index.def.deferrable,
                index.def.deferred,
                true,
                table.id.0,
                index.id.0,
                none.table,
                none.update,
                none.delete,
                none.matching,
                true,
                true,
                numbers(&columns),
                none.columns,
                none.set_columns,
                Datum::Null
            ]);
        }
    }
    Ok(())
}

// ---- the rest

fn sequences(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for sequence in about.schema.sequences() {
        let def = &sequence.def;
        let ty = pgtype::describe(def.ty).oid;
        rows.row(cells![sequence.id, ty, def.start, def.increment, def.max, def.min, def.cache, def.cycle]);
    }
    Ok(())
}

fn descriptions(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let schema = about.schema;
    let constraints = schema.tables().flat_map(|table| {
        let keys = table.indexes.iter().map(|index| index.def.constraint).filter(|&id| id != 0);
        table.def.constraints.iter().map(|c| c.id).chain(keys)
    });
    let constraints: std::collections::HashSet<u32> = constraints.collect();
    for (object, column, text) in schema.comments().filter(|(object, ..)| shared_class(schema, *object).is_none()) {
        let class = match object {
            id if constraints.contains(&id) => class::CONSTRAINT,
            id if schema.namespace_by_id(NamespaceId(id)).is_some() => class::NAMESPACE,
            id if schema.enum_by_id(EnumId(id)).is_some() => class::TYPE,
            _ => class::CLASS,
        };
        rows.row(cells![object, class, i32::from(column as i16), text.as_ref()]);
    }
    if schema.namespace_by_id(NamespaceId::PUBLIC).is_some() && schema.comment(NamespaceId::PUBLIC.0, 0).is_none() {
        rows.row(cells![NamespaceId::PUBLIC.0, class::NAMESPACE, 0, "standard public schema"]);
    }
    Ok(())
}

/// Of an object that belongs to no database, and of the database.
fn shared_class(schema: &Schema, object: u32) -> Option<u32> {
    match object {
        oid::DATABASE => Some(class::DATABASE),
        id => schema.role(RoleId(id)).map(|_| class::AUTHID),
    }
}

fn shared_descriptions(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for (object, _, text) in about.schema.comments() {
        if let Some(class) = shared_class(about.schema, object) {
            rows.row(cells![object, class, text.as_ref()]);
        }
    }
    Ok(())
}

fn rules(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    for view in about.schema.views() {
        rows.row(cells![oid::rule(view.id), "_RETURN", view.id, '1', 'O', true]);
    }
    Ok(())
}

/// An object: its class, number and column.
type Address = (u32, u32, i32);

fn dependencies(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let schema = about.schema;
    let mut add = |(class, object, column): Address, (on, other, part): Address, kind: char| {
        rows.row(cells![class, object, column, on, other, part, kind]);
    };
    for table in schema.tables() {
        let itself = (class::CLASS, table.id.0, 0);
        let column = |at: u16| (class::CLASS, table.id.0, i32::from(at) + 1);
        add(itself, (class::NAMESPACE, table.def.namespace.0, 0), 'n');
        add((class::TYPE, oid::row_type(table.id.0), 0), itself, 'i');
        for (at, def) in table.def.columns.iter().enumerate() {
            match def.ty {
                Type::Enum(of) if def.is_visible() => add(column(at as u16), (class::TYPE, of.0, 0), 'n'),
                Type::Array(Type::Enum(of)) if def.is_visible() => {
                    add(column(at as u16), (class::TYPE, oid::row_array(of.0), 0), 'n');
                }
                _ => {}
            }
            if def.is_visible() && def.default.is_some() && !def.is_identity() {
                let default = (class::ATTRDEF, oid::column_default(table.id.0, at as u16 + 1), 0);
                add(default, column(at as u16), 'a');
                for sequence in sequences_named_in(schema, def.default.as_deref().unwrap_or_default()) {
                    add(default, (class::CLASS, sequence, 0), 'n');
                }
            }
        }
        for index in &table.indexes {
            let own = (class::CLASS, index.id.0, 0);
            let constraint = (class::CONSTRAINT, index.def.constraint, 0);
            let depends = if index.def.constraint == 0 { own } else { constraint };
            if index.def.constraint != 0 {
                add(own, constraint, 'i');
            }
            for part in &index.def.columns {
                if let Key::Column(number) = key(table, &index.def, part) {
                    add(depends, (class::CLASS, table.id.0, i32::from(number)), 'a');
                }
            }
            index.def.include.iter().for_each(|&carried| add(depends, column(carried), 'a'));
        }
        for constraint in &table.def.constraints {
            let own = (class::CONSTRAINT, constraint.id, 0);
            match &constraint.kind {
                ConstraintKind::Check { columns, .. } => columns.iter().for_each(|&c| add(own, column(c), 'a')),
                ConstraintKind::Foreign(key) => {
                    key.columns.iter().for_each(|&c| add(own, column(c), 'a'));
                    let parent = |&c: &u16| (class::CLASS, key.parent.0, i32::from(c) + 1);
                    key.parent_columns.iter().for_each(|c| add(own, parent(c), 'n'));
                    add(own, (class::CLASS, key.parent_index.0, 0), 'n');
                }
            }
        }
    }
    for sequence in schema.sequences() {
        let own = (class::CLASS, sequence.id, 0);
        add(own, (class::NAMESPACE, sequence.def.namespace.0, 0), 'n');
        if let Some((table, column)) = sequence.def.owner {
            let of_identity =
                schema.table_by_id(table).is_some_and(|t| t.def.columns[usize::from(column)].is_identity());
            add(own, (class::CLASS, table.0, i32::from(column) + 1), if of_identity { 'i' } else { 'a' });
        }
    }
    for made in schema.enums() {
        let own = (class::TYPE, made.id.0, 0);
        add(own, (class::NAMESPACE, made.def.namespace.0, 0), 'n');
        add((class::TYPE, oid::row_array(made.id.0), 0), own, 'i');
    }
    for view in schema.views() {
        let (own, rule) = ((class::CLASS, view.id, 0), (class::REWRITE, oid::rule(view.id), 0));
        add(own, (class::NAMESPACE, view.def.namespace.0, 0), 'n');
        add(rule, own, 'i');
        view.def.reads.iter().for_each(|&id| add(rule, (class::CLASS, id, 0), 'n'));
    }
    Ok(())
}

/// The sequences that a default asks.
fn sequences_named_in(schema: &Schema, text: &str) -> Vec<u32> {
    if !text.contains("nextval") {
        return Vec::new();
    }
    let named = |s: &&std::sync::Arc<freshet_engine::catalog::Sequence>| {
        text.contains(&crate::bind::names::qualified(schema, s.def.namespace, &s.def.name))
    };
    schema.sequences().filter(named).map(|s| s.id).collect()
}

fn databases(about: &About<'_>, rows: &mut Filler<'_>) -> Filled {
    let setting = |name: &str| about.env.settings.get(name).unwrap_or_default();
    let (collate, ctype) = (setting("lc_collate"), setting("lc_ctype"));
    let name = about.env.database.as_str();
    let owner = roles::owner(about.schema, oid::DATABASE);
    let granted = roles::list(about, AclKind::Database, oid::DATABASE);
    rows.row(cells![oid::DATABASE, name, owner, 6, 'c', false, true, -1, oid::TABLESPACE, collate, ctype, granted]);
    Ok(())
}
