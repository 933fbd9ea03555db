//! The system table: one row per object, written and recovered like any row.
//!
//! | column | type | meaning |
//! |---|---|---|
//! | id | bigint | the object's id; row 0 holds the counters and is the lock that serialises DDL |
//! | kind | smallint | 0 counters, 1 table, 2 index, 3 sequence, 4 view, 5 name space, 6 comment, 7 role, 8 rights, 9 index, 10 view, 11 table, 12 index, 13 enum |
//! | definition | bytea | below |
//!
//! Its layout and storage are fixed in code, because recovery needs it before it knows any other table.
//!
//! Definitions are little-endian; strings are length u32 and bytes.
//!
//! | kind | fields |
//! |---|---|
//! | counters | version u8, next id u32, next storage u32, schema version u64 |
//! | table | version u8, storage u32, name, columns u16, each: name, type 12 bytes, not null u8, default (0, or 1 and string), role u8; name space u32, constraints u16 and each; columns in the record u16 (0: all), linked u8, what is missing of each column: 0 (null), 1 and 16 bytes, or 2 and bytes u32; of kind 11 collations u16, each: column u16, collation u32 |
//! | constraint | id u32, name, validated u8, kind u8; check: condition, columns; foreign key: columns, parent u32, parent's columns, parent's index u32, full u8, on update u8, on delete u8, deferrable u8, deferred u8 |
//! | index | version u8, table id u32, name, kind u8, unique u8, primary u8, columns u16, each: column u16, descending u8; constraint u32, nulls u32, predicate (0, or 1 and string), included columns; deferrable u8, deferred u8; of kind 12 nulls not distinct u8, and for each column collation u32, class u32 (0: none named) |
//! | sequence | version u8, name space u32, name, type 12 bytes, start, increment, min, max, cache, last i64, cycle u8, called u8, owner (0, or 1, table u32 and column u16) |
//! | view | version u8, name space u32, name, columns u16, each: name, type (0, or 1 and 12 bytes), query, reads u16, each u32; check option u8 (0 none, 1 local, 2 cascaded); of kind 10 defaults u16, each: column u16, text |
//! | enum | version u8, name space u32, name, labels u16 in their order, each: oid u32, number i64, text |
//! | name space | version u8, name |
//! | comment | version u8, object u32, column u16, text |
//! | role | version u8, name, attributes u16 (bits: superuser, inherits, creates roles, creates databases, logs in, replicates, bypasses row security), connections i32, valid until (0, or 1 and i64), verifier (0, or 1 and string), memberships u16, each: role u32, grantor u32, admin u8; settings u16, each: name, value |
//! | rights | version u8, object u32, owner u32, grants (0, or 1 and u16 of them, each: grantee u32, grantor u32, privileges u16, grantable u16) |
//!
//! An index of NULLS NOT DISTINCT is of kind 9, and else as of kind 2; a view with defaults is of kind 10, which has them behind the check option;
//! a table with columns that name a collation is of kind 11, an index with keys that name a collation or a class of kind 12. Enums are of kind 13. A program that does not know them says so. Kinds 7 and 8 came with version 3: a program from before them says that it does not know the kind, and a database without roles has none.
//! A list of columns is u16 and so many u16. Version 2 of tables ends before the columns in the record, of indexes before deferrable. Version 1 of tables and indexes ends before what follows the semicolon, and its columns have no role;
//! versions 1 and 2 of views end there too;
//! a sequence's `last` and `called` are the limit up to which values may be given out.
use super::{
    Action, CheckOption, CollationId, ColumnDef, ColumnRole, Constraint, ConstraintKind, EnumDef, EnumLabel,
    ForeignKey, Grant, IndexDef, IndexId, IndexKind, KeyNames, Membership, NamespaceId, OperatorClassId, Rights,
    RoleDef, RoleId, SequenceDef, SequenceValue, Table, TableDef, TableId, Verifier, ViewDef,
};
use crate::ids::StorageId;
use crate::mem::Pages;
use crate::schema::{
    EnumId, KeyColumn, Layout, Missing, NetworkKind, OidKind, Row, SystemKind, TimeKind, Type, Value, VectorKind,
};
use crate::sync::gate::Gate;
use crate::table::Store;
use std::sync::Arc;

pub(crate) const SYSTEM_STORAGE: StorageId = StorageId(1);
pub(crate) const SYSTEM_TYPES: [Type; 3] = [Type::Int8, Type::Int2, Type::Bytea];
const VERSION: u8 = 3;
/// The number of a table, and of one whose columns name collations: who does not know them must not write it.
const TABLE: i64 = 1;
const COLLATED_TABLE: i64 = 11;
/// The number of an index, and of one whose nulls are equal: who does not know that must not write it.
const INDEX: i64 = 2;
const STRICT_INDEX: i64 = 9;
/// Of one whose keys name collations or classes.
const NAMING_INDEX: i64 = 12;
/// The same of a view, and of one with defaults.
const VIEW: i64 = 4;
const VIEW_WITH_DEFAULTS: i64 = 10;
const ENUM: i64 = 13;
/// Tables without an extension, indexes without deferred keys.
const SECOND_VERSION: u8 = 2;
/// Views have a check option from here on.
const CHECK_OPTION_VERSION: u8 = 3;
/// Tables and indexes without what came later; the others are the same.
const FIRST_VERSION: u8 = 1;

/// Where the next ids come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counters {
    pub next_id: u32,
    pub next_storage: u32,
    pub schema_version: u64,
}

impl Counters {
    /// Ids that clients see as oids start where PostgreSQL's user objects do.
    pub const FIRST: Counters = Counters { next_id: 16384, next_storage: 2, schema_version: 1 };
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TableObject {
    pub storage: StorageId,
    pub def: TableDef,
}

/// A row of the system table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Object {
    Counters(Counters),
    Table(TableObject),
    Index { table: TableId, def: IndexDef },
    Sequence { def: SequenceDef, value: SequenceValue },
    View(ViewDef),
    Enum(EnumDef),
    Namespace(String),
    Comment { object: u32, column: u16, text: String },
    Role(RoleDef),
    Rights { object: u32, rights: Rights },
}

/// A definition that is not what this version writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BadObject(pub &'static str);

/// The system table itself.
pub(crate) fn system_table(pages: &Arc<Pages>) -> Arc<Table> {
    let column = |name: &str, ty| ColumnDef { name: name.into(), ty, not_null: true, ..ColumnDef::default() };
    let names = ["id", "kind", "definition"];
    let columns = names.into_iter().zip(SYSTEM_TYPES).map(|(name, ty)| column(name, ty)).collect();
    let layout = Layout::new(&SYSTEM_TYPES).expect("three narrow columns");
    let store = Arc::new(Store::new(pages, SYSTEM_STORAGE, layout.words()));
    let def = TableDef { name: "freshet_objects".into(), columns, ..TableDef::default() };
    Arc::new(Table::new(TableId(1), def, layout, Vec::new(), store, Arc::new(Gate::default())))
}

impl Object {
    pub fn to_row(&self, system: &Table, id: u32) -> Row {
        let mut row = Row::new(&system.layout);
        let (kind, bytes) = self.encode();
        row.set(&system.layout, 0, &Value::Int(i64::from(id)));
        row.set(&system.layout, 1, &Value::Int(kind));
        row.set(&system.layout, 2, &Value::Bytes(&bytes));
        row
    }

    /// The object's id and content. The row's definition must have been fetched.
    pub fn of_row(system: &Table, row: &Row) -> Result<(u32, Object), BadObject> {
        Object::of_record(&system.layout, row)
    }

    /// The same by the system table's layout.
    pub fn of_record(layout: &Layout, row: &Row) -> Result<(u32, Object), BadObject> {
        let (Value::Int(id), Value::Int(kind), Value::Bytes(bytes)) =
            (row.get(layout, 0), row.get(layout, 1), row.get(layout, 2))
        else {
            return Err(BadObject("a system row has nulls"));
        };
        let id = u32::try_from(id).map_err(|_| BadObject("an object id out of range"))?;
        Ok((id, Object::decode(kind, bytes)?))
    }

    fn encode(&self) -> (i64, Vec<u8>) {
        let mut out = vec![VERSION];
        let kind = match self {
            Object::Counters(c) => {
                out.extend_from_slice(&c.next_id.to_le_bytes());
                out.extend_from_slice(&c.next_storage.to_le_bytes());
                out.extend_from_slice(&c.schema_version.to_le_bytes());
                0
            }
            Object::Table(table) => {
                out.extend_from_slice(&table.storage.0.to_le_bytes());
                put_string(&mut out, &table.def.name);
                out.extend_from_slice(&(table.def.columns.len() as u16).to_le_bytes());
                table.def.columns.iter().for_each(|c| put_column(&mut out, c));
                out.extend_from_slice(&table.def.namespace.0.to_le_bytes());
                out.extend_from_slice(&(table.def.constraints.len() as u16).to_le_bytes());
                table.def.constraints.iter().for_each(|c| put_constraint(&mut out, c));
                out.extend_from_slice(&table.def.base_columns.to_le_bytes());
                out.push(u8::from(table.def.is_linked));
                table.def.columns.iter().for_each(|c| put_missing(&mut out, c.missing.as_ref()));
                if put_collations(&mut out, &table.def.columns) { COLLATED_TABLE } else { TABLE }
            }
            Object::Index { table, def } => {
                out.extend_from_slice(&table.0.to_le_bytes());
                put_string(&mut out, &def.name);
                let kind = match def.kind {
                    IndexKind::Hash => 0,
                    IndexKind::BTree => 1,
                };
                out.extend_from_slice(&[kind, u8::from(def.unique), u8::from(def.primary)]);
                out.extend_from_slice(&(def.columns.len() as u16).to_le_bytes());
                for column in &def.columns {
                    out.extend_from_slice(&column.column.to_le_bytes());
                    out.push(u8::from(column.descending));
                }
                out.extend_from_slice(&def.constraint.to_le_bytes());
                out.extend_from_slice(&def.nulls_against.to_le_bytes());
                put_optional(&mut out, def.predicate.as_deref());
                put_columns(&mut out, &def.include);
                out.extend_from_slice(&[u8::from(def.deferrable), u8::from(def.deferred)]);
                match (def.named.is_empty(), def.nulls_not_distinct) {
                    (true, false) => INDEX,
                    (true, true) => STRICT_INDEX,
                    (false, _) => {
                        put_names(&mut out, def);
                        NAMING_INDEX
                    }
                }
            }
            Object::Sequence { def, value } => {
                put_sequence(&mut out, def, *value);
                3
            }
            Object::View(def) => {
                put_view(&mut out, def);
                if def.defaults.is_empty() { VIEW } else { VIEW_WITH_DEFAULTS }
            }
            Object::Enum(def) => {
                put_enum(&mut out, def);
                ENUM
            }
            Object::Namespace(name) => {
                put_string(&mut out, name);
                5
            }
            Object::Comment { object, column, text } => {
                out.extend_from_slice(&object.to_le_bytes());
                out.extend_from_slice(&column.to_le_bytes());
                put_string(&mut out, text);
                6
            }
            Object::Role(def) => {
                put_role(&mut out, def);
                7
            }
            Object::Rights { object, rights } => {
                out.extend_from_slice(&object.to_le_bytes());
                put_rights(&mut out, rights);
                8
            }
        };
        (kind, out)
    }

    fn decode(object_kind: i64, bytes: &[u8]) -> Result<Object, BadObject> {
        let mut reader = Reader(bytes);
        let version = reader.u8()?;
        if !(FIRST_VERSION..=VERSION).contains(&version) {
            return Err(BadObject("a definition of an unknown version"));
        }
        let is_first = version == FIRST_VERSION;
        match object_kind {
            0 => Ok(Object::Counters(Counters {
                next_id: reader.u32()?,
                next_storage: reader.u32()?,
                schema_version: u64::from(reader.u32()?) | u64::from(reader.u32()?) << 32,
            })),
            TABLE | COLLATED_TABLE => {
                let storage = StorageId(reader.u32()?);
                let name = reader.string()?;
                let columns = (0..reader.u16()?).map(|_| reader.column(is_first)).collect::<Result<_, _>>()?;
                let mut def = TableDef { name, columns, ..TableDef::default() };
                if !is_first {
                    def.namespace = NamespaceId(reader.u32()?);
                    def.constraints = (0..reader.u16()?).map(|_| reader.constraint()).collect::<Result<_, _>>()?;
                }
                if version > SECOND_VERSION {
                    def.base_columns = reader.u16()?;
                    def.is_linked = reader.flag()?;
                    for column in &mut def.columns {
                        column.missing = reader.missing()?;
                    }
                }
                if object_kind == COLLATED_TABLE {
                    reader.collations(&mut def.columns)?;
                }
                Ok(Object::Table(TableObject { storage, def }))
            }
            INDEX | STRICT_INDEX | NAMING_INDEX => {
                let table = TableId(reader.u32()?);
                let name = reader.string()?;
                let kind = match reader.u8()? {
                    0 => IndexKind::Hash,
                    1 => IndexKind::BTree,
                    _ => return Err(BadObject("an unknown kind of index")),
                };
                let (unique, primary) = (reader.u8()? != 0, reader.u8()? != 0);
                let columns = (0..reader.u16()?)
                    .map(|_| Ok(KeyColumn { column: reader.u16()?, descending: reader.u8()? != 0 }))
                    .collect::<Result<_, _>>()?;
                let nulls_not_distinct = object_kind == STRICT_INDEX;
                let mut def =
                    IndexDef { name, kind, unique, primary, columns, nulls_not_distinct, ..IndexDef::default() };
                if !is_first {
                    def.constraint = reader.u32()?;
                    def.nulls_against = reader.u32()?;
                    def.predicate = reader.optional()?;
                    def.include = reader.columns()?;
                }
                if version > SECOND_VERSION {
                    (def.deferrable, def.deferred) = (reader.flag()?, reader.flag()?);
                }
                if object_kind == NAMING_INDEX {
                    def.nulls_not_distinct = reader.flag()?;
                    def.named = def.columns.iter().map(|_| reader.names()).collect::<Result<_, _>>()?;
                }
                Ok(Object::Index { table, def })
            }
            3 => reader.sequence(),
            VIEW | VIEW_WITH_DEFAULTS => reader.view(version, object_kind == VIEW_WITH_DEFAULTS),
            5 => Ok(Object::Namespace(reader.string()?)),
            6 => Ok(Object::Comment { object: reader.u32()?, column: reader.u16()?, text: reader.string()? }),
            7 => Ok(Object::Role(reader.role()?)),
            ENUM => Ok(Object::Enum(reader.enum_def()?)),
            8 => Ok(Object::Rights { object: reader.u32()?, rights: reader.rights()? }),
            _ => Err(BadObject("an unknown kind of object")),
        }
    }
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_optional(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        None => out.push(0),
        Some(text) => {
            out.push(1);
            put_string(out, text);
        }
    }
}

fn put_missing(out: &mut Vec<u8>, missing: Option<&Missing>) {
    match missing {
        None => out.push(0),
        Some(Missing::Fixed(words)) => {
            out.push(1);
            words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        }
        Some(Missing::Bytes(bytes)) => {
            out.push(2);
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        }
    }
}

/// Whether there is any.
fn put_collations(out: &mut Vec<u8>, columns: &[ColumnDef]) -> bool {
    let named: Vec<_> = columns.iter().enumerate().filter_map(|(at, c)| Some((at as u16, c.collation?))).collect();
    if named.is_empty() {
        return false;
    }
    out.extend_from_slice(&(named.len() as u16).to_le_bytes());
    for (column, CollationId(collation)) in named {
        out.extend_from_slice(&column.to_le_bytes());
        out.extend_from_slice(&collation.to_le_bytes());
    }
    true
}

fn put_names(out: &mut Vec<u8>, def: &IndexDef) {
    out.push(u8::from(def.nulls_not_distinct));
    for at in 0..def.columns.len() {
        let KeyNames { collation, class } = def.names_of(at);
        out.extend_from_slice(&collation.map_or(0, |c| c.0).to_le_bytes());
        out.extend_from_slice(&class.map_or(0, |c| c.0).to_le_bytes());
    }
}

fn put_columns(out: &mut Vec<u8>, columns: &[u16]) {
    out.extend_from_slice(&(columns.len() as u16).to_le_bytes());
    columns.iter().for_each(|column| out.extend_from_slice(&column.to_le_bytes()));
}

fn put_column(out: &mut Vec<u8>, column: &ColumnDef) {
    put_string(out, &column.name);
    out.extend_from_slice(&type_bytes(column.ty));
    out.push(u8::from(column.not_null));
    put_optional(out, column.default.as_deref());
    out.push(match column.role {
        ColumnRole::Plain => 0,
        ColumnRole::Generated => 1,
        ColumnRole::IdentityAlways => 2,
        ColumnRole::IdentityByDefault => 3,
        ColumnRole::Hidden => 4,
        ColumnRole::Dropped => 5,
    });
}

/// Codes of constraints; the second foreign key's ON DELETE names columns.
const FOREIGN: u8 = 1;
const FOREIGN_WITH_COLUMNS: u8 = 2;

fn put_constraint(out: &mut Vec<u8>, constraint: &Constraint) {
    out.extend_from_slice(&constraint.id.to_le_bytes());
    put_string(out, &constraint.name);
    out.push(u8::from(constraint.validated));
    match &constraint.kind {
        ConstraintKind::Check { condition, columns } => {
            out.push(0);
            put_string(out, condition);
            put_columns(out, columns);
        }
        ConstraintKind::Foreign(key) => {
            out.push(if key.delete_columns.is_empty() { FOREIGN } else { FOREIGN_WITH_COLUMNS });
            put_columns(out, &key.columns);
            out.extend_from_slice(&key.parent.0.to_le_bytes());
            put_columns(out, &key.parent_columns);
            out.extend_from_slice(&key.parent_index.0.to_le_bytes());
            let actions = [key.on_update, key.on_delete].map(action_code);
            out.extend_from_slice(&[u8::from(key.full), actions[0], actions[1]]);
            if !key.delete_columns.is_empty() {
                put_columns(out, &key.delete_columns);
            }
            out.extend_from_slice(&[u8::from(key.deferrable), u8::from(key.deferred)]);
        }
    }
}

fn action_code(action: Action) -> u8 {
    match action {
        Action::NoAction => 0,
        Action::Restrict => 1,
        Action::Cascade => 2,
        Action::SetNull => 3,
        Action::SetDefault => 4,
    }
}

fn put_sequence(out: &mut Vec<u8>, def: &SequenceDef, value: SequenceValue) {
    out.extend_from_slice(&def.namespace.0.to_le_bytes());
    put_string(out, &def.name);
    out.extend_from_slice(&type_bytes(def.ty));
    for number in [def.start, def.increment, def.min, def.max, def.cache, value.last] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&[u8::from(def.cycle), u8::from(value.is_called)]);
    match def.owner {
        None => out.push(0),
        Some((table, column)) => {
            out.push(1);
            out.extend_from_slice(&table.0.to_le_bytes());
            out.extend_from_slice(&column.to_le_bytes());
        }
    }
}

fn put_view(out: &mut Vec<u8>, def: &ViewDef) {
    out.extend_from_slice(&def.namespace.0.to_le_bytes());
    put_string(out, &def.name);
    out.extend_from_slice(&(def.columns.len() as u16).to_le_bytes());
    for (name, ty) in &def.columns {
        put_string(out, name);
        match ty {
            None => out.push(0),
            Some(ty) => {
                out.push(1);
                out.extend_from_slice(&type_bytes(*ty));
            }
        }
    }
    put_string(out, &def.query);
    out.extend_from_slice(&(def.reads.len() as u16).to_le_bytes());
    def.reads.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
    out.push(match def.check {
        None => 0,
        Some(CheckOption::Local) => 1,
        Some(CheckOption::Cascaded) => 2,
    });
    if !def.defaults.is_empty() {
        out.extend_from_slice(&(def.defaults.len() as u16).to_le_bytes());
        for (column, text) in &def.defaults {
            out.extend_from_slice(&column.to_le_bytes());
            put_string(out, text);
        }
    }
}

fn put_enum(out: &mut Vec<u8>, def: &EnumDef) {
    out.extend_from_slice(&def.namespace.0.to_le_bytes());
    put_string(out, &def.name);
    out.extend_from_slice(&(def.labels.len() as u16).to_le_bytes());
    for EnumLabel { oid, number, text } in &def.labels {
        out.extend_from_slice(&oid.to_le_bytes());
        out.extend_from_slice(&number.to_le_bytes());
        put_string(out, text);
    }
}

fn put_role(out: &mut Vec<u8>, def: &RoleDef) {
    put_string(out, &def.name);
    let attributes = [
        def.is_superuser,
        def.inherits,
        def.creates_roles,
        def.creates_databases,
        def.can_log_in,
        def.replicates,
        def.bypasses_row_security,
    ];
    let bits = attributes.iter().enumerate().fold(0u16, |bits, (at, &is_set)| bits | u16::from(is_set) << at);
    out.extend_from_slice(&bits.to_le_bytes());
    out.extend_from_slice(&def.connections_max.to_le_bytes());
    match def.valid_until {
        None => out.push(0),
        Some(until) => {
            out.push(1);
            out.extend_from_slice(&until.to_le_bytes());
        }
    }
    put_optional(out, def.verifier.as_ref().map(|verifier| verifier.0.as_str()));
    out.extend_from_slice(&(def.member_of.len() as u16).to_le_bytes());
    for membership in &def.member_of {
        out.extend_from_slice(&membership.of.0.to_le_bytes());
        out.extend_from_slice(&membership.grantor.0.to_le_bytes());
        out.push(u8::from(membership.admin));
    }
    out.extend_from_slice(&(def.settings.len() as u16).to_le_bytes());
    for (name, value) in &def.settings {
        put_string(out, name);
        put_string(out, value);
    }
}

fn put_rights(out: &mut Vec<u8>, rights: &Rights) {
    out.extend_from_slice(&rights.owner.0.to_le_bytes());
    let Some(grants) = &rights.grants else { return out.push(0) };
    out.push(1);
    out.extend_from_slice(&(grants.len() as u16).to_le_bytes());
    for grant in grants {
        out.extend_from_slice(&grant.grantee.0.to_le_bytes());
        out.extend_from_slice(&grant.grantor.0.to_le_bytes());
        out.extend_from_slice(&grant.privileges.to_le_bytes());
        out.extend_from_slice(&grant.grantable.to_le_bytes());
    }
}

/// What is added to the code of a type for that of its arrays.
const ARRAY: u32 = 0x100;

/// Code, then two parameters. The code of an array is its element's and [`ARRAY`].
fn type_bytes(ty: Type) -> [u8; 12] {
    let (array, ty) = match ty {
        Type::Array(element) => (ARRAY, *element),
        other => (0, other),
    };
    let (code, a, b): (u32, u32, u32) = match ty {
        Type::Bool => (1, 0, 0),
        Type::Int2 => (2, 0, 0),
        Type::Int4 => (3, 0, 0),
        Type::Int8 => (4, 0, 0),
        Type::Float4 => (5, 0, 0),
        Type::Float8 => (6, 0, 0),
        Type::Decimal { precision, scale } => (7, precision.into(), scale.into()),
        Type::Numeric { typmod: None } => (8, 0, 0),
        Type::Numeric { typmod: Some((precision, scale)) } => (9, precision.into(), u32::from(scale as u16)),
        Type::Char(n) => (10, n, 0),
        Type::Varchar(n) => (11, n, 0),
        Type::Text => (12, 0, 0),
        Type::Bytea => (13, 0, 0),
        Type::Date => (14, 0, 0),
        Type::Time => (15, 0, 0),
        Type::Timestamp => (16, 0, 0),
        Type::Timestamptz => (17, 0, 0),
        Type::Uuid => (18, 0, 0),
        Type::Interval => (19, 0, 0),
        Type::Json => (20, 0, 0),
        Type::Jsonb => (21, 0, 0),
        Type::Oid(kind) => (22, kind as u32, 0),
        Type::Name => (23, 0, 0),
        Type::CharByte => (24, 0, 0),
        Type::Vector(VectorKind::Int2) => (25, 0, 0),
        Type::Vector(VectorKind::Oid) => (26, 0, 0),
        Type::System(kind) => (27, kind as u32, 0),
        Type::Enum(EnumId(oid)) => (29, oid, 0),
        Type::Network(kind) => (30, kind as u32, 0),
        Type::Rounded(kind, digits) => (28, kind as u32, digits.into()),
        Type::Array(_) => unreachable!("invariant: the elements of an array are scalar"),
    };
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&(code | array).to_le_bytes());
    bytes[4..8].copy_from_slice(&a.to_le_bytes());
    bytes[8..].copy_from_slice(&b.to_le_bytes());
    bytes
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], BadObject> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(BadObject("a definition cut short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, BadObject> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, BadObject> {
        Ok(u16::from_le_bytes(self.take(2)?.try_into().expect("2 bytes")))
    }

    fn u32(&mut self) -> Result<u32, BadObject> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("4 bytes")))
    }

    fn string(&mut self) -> Result<String, BadObject> {
        let length = self.u32()? as usize;
        String::from_utf8(self.take(length)?.to_vec()).map_err(|_| BadObject("a name that is not UTF-8"))
    }

    fn i64(&mut self) -> Result<i64, BadObject> {
        Ok(i64::from_le_bytes(self.take(8)?.try_into().expect("8 bytes")))
    }

    fn flag(&mut self) -> Result<bool, BadObject> {
        Ok(self.u8()? != 0)
    }

    fn optional(&mut self) -> Result<Option<String>, BadObject> {
        if self.flag()? { self.string().map(Some) } else { Ok(None) }
    }

    fn columns(&mut self) -> Result<Vec<u16>, BadObject> {
        (0..self.u16()?).map(|_| self.u16()).collect()
    }

    fn column(&mut self, is_first: bool) -> Result<ColumnDef, BadObject> {
        let name = self.string()?;
        let ty = self.type_of()?;
        let not_null = self.flag()?;
        let default = self.optional()?;
        let role = if is_first { 0 } else { self.u8()? };
        let role = match role {
            0 => ColumnRole::Plain,
            1 => ColumnRole::Generated,
            2 => ColumnRole::IdentityAlways,
            3 => ColumnRole::IdentityByDefault,
            4 => ColumnRole::Hidden,
            5 => ColumnRole::Dropped,
            _ => return Err(BadObject("an unknown role of a column")),
        };
        Ok(ColumnDef { name, ty, not_null, default, role, missing: None, collation: None })
    }

    fn collations(&mut self, columns: &mut [ColumnDef]) -> Result<(), BadObject> {
        for _ in 0..self.u16()? {
            let column = columns.get_mut(usize::from(self.u16()?));
            let column = column.ok_or(BadObject("a collation of a column that is not there"))?;
            column.collation = Some(CollationId(self.u32()?));
        }
        Ok(())
    }

    fn names(&mut self) -> Result<KeyNames, BadObject> {
        let named = |oid: u32| (oid != 0).then_some(oid);
        let (collation, class) = (named(self.u32()?), named(self.u32()?));
        Ok(KeyNames { collation: collation.map(CollationId), class: class.map(OperatorClassId) })
    }

    fn missing(&mut self) -> Result<Option<Missing>, BadObject> {
        Ok(match self.u8()? {
            0 => None,
            1 => Some(Missing::Fixed([self.i64()? as u64, self.i64()? as u64])),
            2 => {
                let length = self.u32()? as usize;
                Some(Missing::Bytes(self.take(length)?.into()))
            }
            _ => return Err(BadObject("an unknown form of what is missing")),
        })
    }

    fn constraint(&mut self) -> Result<Constraint, BadObject> {
        let (id, name, validated) = (self.u32()?, self.string()?, self.flag()?);
        let kind = match self.u8()? {
            0 => ConstraintKind::Check { condition: self.string()?, columns: self.columns()? },
            kind @ (FOREIGN | FOREIGN_WITH_COLUMNS) => ConstraintKind::Foreign(ForeignKey {
                columns: self.columns()?,
                parent: TableId(self.u32()?),
                parent_columns: self.columns()?,
                parent_index: IndexId(self.u32()?),
                full: self.flag()?,
                on_update: self.action()?,
                on_delete: self.action()?,
                delete_columns: if kind == FOREIGN_WITH_COLUMNS { self.columns()? } else { Vec::new() },
                deferrable: self.flag()?,
                deferred: self.flag()?,
            }),
            _ => return Err(BadObject("an unknown kind of constraint")),
        };
        Ok(Constraint { id, name, kind, validated })
    }

    fn action(&mut self) -> Result<Action, BadObject> {
        Ok(match self.u8()? {
            0 => Action::NoAction,
            1 => Action::Restrict,
            2 => Action::Cascade,
            3 => Action::SetNull,
            4 => Action::SetDefault,
            _ => return Err(BadObject("an unknown action of a foreign key")),
        })
    }

    fn sequence(&mut self) -> Result<Object, BadObject> {
        let (namespace, name, ty) = (NamespaceId(self.u32()?), self.string()?, self.type_of()?);
        let (start, increment, min, max) = (self.i64()?, self.i64()?, self.i64()?, self.i64()?);
        let (cache, last) = (self.i64()?, self.i64()?);
        let (cycle, is_called) = (self.flag()?, self.flag()?);
        let owner = if self.flag()? { Some((TableId(self.u32()?), self.u16()?)) } else { None };
        let def = SequenceDef { namespace, name, ty, start, increment, min, max, cache, cycle, owner };
        Ok(Object::Sequence { def, value: SequenceValue { last, is_called } })
    }

    fn view(&mut self, version: u8, has_defaults: bool) -> Result<Object, BadObject> {
        let (namespace, name) = (NamespaceId(self.u32()?), self.string()?);
        let column = |reader: &mut Self| {
            let name = reader.string()?;
            let ty = if reader.flag()? { Some(reader.type_of()?) } else { None };
            Ok((name, ty))
        };
        let columns = (0..self.u16()?).map(|_| column(self)).collect::<Result<_, _>>()?;
        let query = self.string()?;
        let reads = (0..self.u16()?).map(|_| self.u32()).collect::<Result<_, _>>()?;
        let check = match if version < CHECK_OPTION_VERSION { 0 } else { self.u8()? } {
            0 => None,
            1 => Some(CheckOption::Local),
            2 => Some(CheckOption::Cascaded),
            _ => return Err(BadObject("an unknown check option")),
        };
        let mut defaults = Vec::new();
        for _ in 0..if has_defaults { self.u16()? } else { 0 } {
            defaults.push((self.u16()?, self.string()?));
        }
        Ok(Object::View(ViewDef { namespace, name, columns, query, reads, check, defaults }))
    }

    fn enum_def(&mut self) -> Result<EnumDef, BadObject> {
        let (namespace, name) = (NamespaceId(self.u32()?), self.string()?);
        let label =
            |reader: &mut Self| Ok(EnumLabel { oid: reader.u32()?, number: reader.i64()?, text: reader.string()? });
        let labels = (0..self.u16()?).map(|_| label(self)).collect::<Result<_, _>>()?;
        Ok(EnumDef { namespace, name, labels })
    }

    fn role(&mut self) -> Result<RoleDef, BadObject> {
        let name = self.string()?;
        let bits = self.u16()?;
        let has = |at: u32| bits >> at & 1 == 1;
        Ok(RoleDef {
            name,
            is_superuser: has(0),
            inherits: has(1),
            creates_roles: has(2),
            creates_databases: has(3),
            can_log_in: has(4),
            replicates: has(5),
            bypasses_row_security: has(6),
            connections_max: self.u32()? as i32,
            valid_until: if self.flag()? { Some(self.i64()?) } else { None },
            verifier: self.optional()?.map(Verifier),
            member_of: (0..self.u16()?).map(|_| self.membership()).collect::<Result<_, _>>()?,
            settings: (0..self.u16()?).map(|_| Ok((self.string()?, self.string()?))).collect::<Result<_, _>>()?,
        })
    }

    fn membership(&mut self) -> Result<Membership, BadObject> {
        Ok(Membership { of: RoleId(self.u32()?), grantor: RoleId(self.u32()?), admin: self.flag()? })
    }

    fn rights(&mut self) -> Result<Rights, BadObject> {
        let owner = RoleId(self.u32()?);
        let grant = |reader: &mut Self| {
            Ok(Grant {
                grantee: RoleId(reader.u32()?),
                grantor: RoleId(reader.u32()?),
                privileges: reader.u16()?,
                grantable: reader.u16()?,
            })
        };
        let grants =
            if self.flag()? { Some((0..self.u16()?).map(|_| grant(self)).collect::<Result<_, _>>()?) } else { None };
        Ok(Rights { owner, grants })
    }

    fn type_of(&mut self) -> Result<Type, BadObject> {
        let (code, a, b) = (self.u32()?, self.u32()?, self.u32()?);
        let ty = match code & !ARRAY {
            1 => Type::Bool,
            2 => Type::Int2,
            3 => Type::Int4,
            4 => Type::Int8,
            5 => Type::Float4,
            6 => Type::Float8,
            7 => Type::Decimal { precision: a as u8, scale: b as u8 },
            8 => Type::Numeric { typmod: None },
            9 => Type::Numeric { typmod: Some((a as u16, b as u16 as i16)) },
            10 => Type::Char(a),
            11 => Type::Varchar(a),
            12 => Type::Text,
            13 => Type::Bytea,
            14 => Type::Date,
            15 => Type::Time,
            16 => Type::Timestamp,
            17 => Type::Timestamptz,
            18 => Type::Uuid,
            19 => Type::Interval,
            20 => Type::Json,
            21 => Type::Jsonb,
            22 => Type::Oid(*OidKind::ALL.get(a as usize).ok_or(BadObject("an unknown kind of oid"))?),
            23 => Type::Name,
            24 => Type::CharByte,
            25 => Type::Vector(VectorKind::Int2),
            26 => Type::Vector(VectorKind::Oid),
            // What inet was before columns could be of it.
            27 if a == 4 => Type::Network(NetworkKind::Inet),
            27 => {
                let kind = SystemKind::ALL.into_iter().find(|kind| *kind as u32 == a);
                Type::System(kind.ok_or(BadObject("an unknown system type"))?)
            }
            30 => Type::Network(*NetworkKind::ALL.get(a as usize).ok_or(BadObject("an unknown type of addresses"))?),
            29 => Type::Enum(EnumId(a)),
            28 if b <= 6 => {
                Type::Rounded(*TimeKind::ALL.get(a as usize).ok_or(BadObject("an unknown type of times"))?, b as u8)
            }
            _ => return Err(BadObject("an unknown type")),
        };
        Ok(if code & ARRAY == 0 { ty } else { Type::array_of(ty) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_codes_of_their_order() {
        let types = OidKind::ALL.map(Type::Oid).into_iter().chain(SystemKind::ALL.map(Type::System));
        let types =
            types.chain(TimeKind::ALL.map(|kind| Type::Rounded(kind, 3))).chain(NetworkKind::ALL.map(Type::Network));
        for ty in types {
            assert_eq!(Reader(&type_bytes(ty)).type_of(), Ok(ty));
            assert_eq!(Reader(&type_bytes(Type::array_of(ty))).type_of(), Ok(Type::array_of(ty)));
        }
    }

    fn round_trip(object: Object) {
        let (kind, bytes) = object.encode();
        assert_eq!(Object::decode(kind, &bytes), Ok(object.clone()));
        for cut in 0..bytes.len() {
            assert!(Object::decode(kind, &bytes[..cut]).is_err(), "{object:?} cut at {cut}");
        }
    }

    /// As version 2 wrote them: what came later stands at the end and is not there.
    #[test]
    fn definitions_of_version_2_are_read() {
        let column = |name: &str| ColumnDef { name: name.to_owned(), ty: Type::Int4, ..ColumnDef::default() };
        let kind = ConstraintKind::Check { condition: "a > 1".into(), columns: vec![0] };
        let def = TableDef {
            namespace: NamespaceId(16390),
            name: "t".into(),
            columns: vec![column("a"), column("b")],
            constraints: vec![Constraint { id: 16500, name: "k".into(), kind, validated: true }],
            ..TableDef::default()
        };
        let table = Object::Table(TableObject { storage: StorageId(9), def });
        let columns = vec![KeyColumn { column: 1, descending: true }];
        let predicate = Some("a > 0".to_owned());
        let index = IndexDef { name: "i".into(), unique: true, columns, predicate, ..IndexDef::default() };
        let index = Object::Index { table: TableId(16384), def: index };
        // How many columns are its base, whether it is linked, and what each column is where it is missing; deferrable and deferred.
        for (object, later) in [(table, 2 + 1 + 2), (index, 2)] {
            let (kind, mut bytes) = object.encode();
            bytes[0] = SECOND_VERSION;
            bytes.truncate(bytes.len() - later);
            assert_eq!(Object::decode(kind, &bytes), Ok(object));
        }
    }

    #[test]
    fn definitions_read_back_and_cut_ones_are_refused() {
        round_trip(Object::Counters(Counters::FIRST));
        let types = [
            Type::Bool,
            Type::Interval,
            Type::Jsonb,
            Type::array_of(Type::Varchar(7)),
            Type::Decimal { precision: 12, scale: 4 },
            Type::Numeric { typmod: Some((50, -3)) },
            Type::Numeric { typmod: None },
            Type::Varchar(77),
            Type::Timestamptz,
            Type::Oid(OidKind::Class),
            Type::Vector(VectorKind::Oid),
            Type::array_of(Type::Name),
            Type::CharByte,
            Type::Enum(EnumId(16400)),
            Type::array_of(Type::Enum(EnumId(16400))),
        ];
        let roles = [ColumnRole::Plain, ColumnRole::Generated, ColumnRole::IdentityAlways, ColumnRole::Dropped];
        let columns = types.iter().enumerate().map(|(i, &ty)| ColumnDef {
            name: format!("c{i}"),
            ty,
            not_null: i % 2 == 0,
            default: (i == 3).then(|| "1 + 2".to_string()),
            role: roles[i % roles.len()],
            missing: match i {
                4 => Some(Missing::Fixed([7, u64::MAX])),
                7 => Some(Missing::Bytes(b"before"[..].into())),
                _ => None,
            },
            collation: (i == 7).then_some(CollationId(950)),
        });
        let check = ConstraintKind::Check { condition: "c0 > 1".into(), columns: vec![0] };
        let foreign = ConstraintKind::Foreign(ForeignKey {
            columns: vec![1, 2],
            parent: TableId(16400),
            parent_columns: vec![0, 3],
            parent_index: IndexId(16401),
            full: true,
            on_update: Action::Cascade,
            on_delete: Action::SetDefault,
            delete_columns: vec![2],
            deferrable: true,
            deferred: false,
        });
        let constraints = [check, foreign].into_iter().enumerate().map(|(i, kind)| Constraint {
            id: 16500 + i as u32,
            name: format!("k{i}"),
            kind,
            validated: i == 0,
        });
        let def = TableDef {
            namespace: NamespaceId(16390),
            name: "täble".into(),
            columns: columns.collect(),
            constraints: constraints.collect(),
            base_columns: 4,
            is_linked: true,
        };
        round_trip(Object::Table(TableObject { storage: StorageId(9), def }));
        round_trip(Object::Index {
            table: TableId(16384),
            def: IndexDef {
                name: "i".into(),
                kind: IndexKind::BTree,
                unique: true,
                primary: false,
                columns: vec![KeyColumn { column: 3, descending: true }, KeyColumn { column: 0, descending: false }],
                constraint: 16385,
                nulls_against: 2,
                predicate: Some("c0 > 0".into()),
                include: vec![1, 2],
                deferrable: true,
                deferred: false,
                nulls_not_distinct: true,
                named: vec![
                    KeyNames { collation: Some(CollationId(950)), class: None },
                    KeyNames { collation: None, class: Some(OperatorClassId(10045)) },
                ],
            },
        });
        round_trip(Object::Sequence {
            def: SequenceDef {
                namespace: NamespaceId::PUBLIC,
                name: "s".into(),
                ty: Type::Int4,
                start: 5,
                increment: -2,
                min: i64::MIN,
                max: 7,
                cache: 1,
                cycle: true,
                owner: Some((TableId(16384), 3)),
            },
            value: SequenceValue { last: -3, is_called: true },
        });
        round_trip(Object::View(ViewDef {
            namespace: NamespaceId::PUBLIC,
            name: "v".into(),
            columns: vec![("a".into(), Some(Type::Varchar(3))), ("b".into(), None)],
            query: "SELECT 1, NULL".into(),
            reads: vec![16384, 16390],
            check: Some(CheckOption::Local),
            defaults: vec![(1, "7".into()), (0, "'x'".into())],
        }));
        let (kind, mut bytes) = Object::View(ViewDef { query: "SELECT 1".into(), ..ViewDef::default() }).encode();
        bytes[0] = CHECK_OPTION_VERSION - 1;
        bytes.pop();
        let Ok(Object::View(view)) = Object::decode(kind, &bytes) else { panic!("a view of before") };
        assert_eq!((view.query.as_str(), view.check), ("SELECT 1", None));
        let label = |oid, number, text: &str| EnumLabel { oid, number, text: text.into() };
        round_trip(Object::Enum(EnumDef {
            namespace: NamespaceId(16390),
            name: "Laune".into(),
            labels: vec![label(16401, i64::MIN, "trüb"), label(16402, 1 << 48, ""), label(16403, i64::MAX, "froh")],
        }));
        round_trip(Object::Enum(EnumDef::default()));
        round_trip(Object::Namespace("app".into()));
        round_trip(Object::Comment { object: 16384, column: 2, text: "what it is".into() });
        round_trip(Object::Role(RoleDef {
            name: "rôle".into(),
            is_superuser: true,
            can_log_in: true,
            bypasses_row_security: true,
            connections_max: -1,
            valid_until: Some(i64::MAX),
            verifier: Some(Verifier("SCRAM-SHA-256$4096:c2FsdA==$a:b".into())),
            member_of: vec![Membership { of: RoleId(16390), grantor: RoleId::FIRST, admin: true }],
            settings: vec![("search_path".into(), "a, b".into())],
            ..RoleDef::default()
        }));
        let grant = Grant { grantee: RoleId::PUBLIC, grantor: RoleId(16390), privileges: 0x91, grantable: 1 };
        for grants in [None, Some(vec![]), Some(vec![grant, grant])] {
            round_trip(Object::Rights { object: 16384, rights: Rights { owner: RoleId(16390), grants } });
        }
    }
}
