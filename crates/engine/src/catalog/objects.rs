//! The system table: one row per object, written and recovered like any row.
//!
//! | column | type | meaning |
//! |---|---|---|
//! | id | bigint | the object's id; row 0 holds the counters and is the lock that serialises DDL |
//! | kind | smallint | 0 counters, 1 table, 2 index |
//! | definition | bytea | below |
//!
//! Its layout and storage are fixed in code, because recovery needs it before it knows any other table.
//!
//! Definitions are little-endian; strings are length u32 and bytes.
//!
//! | kind | fields |
//! |---|---|
//! | counters | version u8, next id u32, next storage u32, schema version u64 |
//! | table | version u8, storage u32, name, columns u16, each: name, type 12 bytes, not null u8, default (0, or 1 and string) |
//! | index | version u8, table id u32, name, kind u8, unique u8, primary u8, columns u16, each: column u16, descending u8 |

use super::{ColumnDef, Gate, IndexDef, IndexKind, Table, TableDef, TableId};
use crate::ids::StorageId;
use crate::mem::Pages;
use crate::schema::{KeyColumn, Layout, Row, Type, Value};
use crate::table::Store;
use std::sync::Arc;

pub(crate) const SYSTEM_STORAGE: StorageId = StorageId(1);
pub(crate) const SYSTEM_TYPES: [Type; 3] = [Type::Int8, Type::Int2, Type::Bytea];
const VERSION: u8 = 1;

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
}

/// A definition that is not what this version writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BadObject(pub &'static str);

/// The system table itself.
pub(crate) fn system_table(pages: &Arc<Pages>) -> Arc<Table> {
    let column = |name: &str, ty| ColumnDef { name: name.into(), ty, not_null: true, default: None };
    let names = ["id", "kind", "definition"];
    let columns = names.into_iter().zip(SYSTEM_TYPES).map(|(name, ty)| column(name, ty)).collect();
    let layout = Layout::new(&SYSTEM_TYPES).expect("three narrow columns");
    let store = Arc::new(Store::new(pages, SYSTEM_STORAGE, layout.words()));
    let def = TableDef { name: "freshet_objects".into(), columns };
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
                1
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
                2
            }
        };
        (kind, out)
    }

    fn decode(kind: i64, bytes: &[u8]) -> Result<Object, BadObject> {
        let mut reader = Reader(bytes);
        if reader.u8()? != VERSION {
            return Err(BadObject("a definition of an unknown version"));
        }
        match kind {
            0 => Ok(Object::Counters(Counters {
                next_id: reader.u32()?,
                next_storage: reader.u32()?,
                schema_version: u64::from(reader.u32()?) | u64::from(reader.u32()?) << 32,
            })),
            1 => {
                let storage = StorageId(reader.u32()?);
                let name = reader.string()?;
                let columns = (0..reader.u16()?).map(|_| reader.column()).collect::<Result<_, _>>()?;
                Ok(Object::Table(TableObject { storage, def: TableDef { name, columns } }))
            }
            2 => {
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
                Ok(Object::Index { table, def: IndexDef { name, kind, unique, primary, columns } })
            }
            _ => Err(BadObject("an unknown kind of object")),
        }
    }
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_column(out: &mut Vec<u8>, column: &ColumnDef) {
    put_string(out, &column.name);
    out.extend_from_slice(&type_bytes(column.ty));
    out.push(u8::from(column.not_null));
    match &column.default {
        None => out.push(0),
        Some(text) => {
            out.push(1);
            put_string(out, text);
        }
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

    fn column(&mut self) -> Result<ColumnDef, BadObject> {
        let name = self.string()?;
        let ty = self.type_of()?;
        let not_null = self.u8()? != 0;
        let default = if self.u8()? == 0 { None } else { Some(self.string()?) };
        Ok(ColumnDef { name, ty, not_null, default })
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
            _ => return Err(BadObject("an unknown type")),
        };
        Ok(if code & ARRAY == 0 { ty } else { Type::array_of(ty) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(object: Object) {
        let (kind, bytes) = object.encode();
        assert_eq!(Object::decode(kind, &bytes), Ok(object.clone()));
        for cut in 0..bytes.len() {
            assert!(Object::decode(kind, &bytes[..cut]).is_err(), "{object:?} cut at {cut}");
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
        ];
        let columns = types.iter().enumerate().map(|(i, &ty)| ColumnDef {
            name: format!("c{i}"),
            ty,
            not_null: i % 2 == 0,
            default: (i == 3).then(|| "1 + 2".to_string()),
        });
        let def = TableDef { name: "täble".into(), columns: columns.collect() };
        round_trip(Object::Table(TableObject { storage: StorageId(9), def }));
        round_trip(Object::Index {
            table: TableId(16384),
            def: IndexDef {
                name: "i".into(),
                kind: IndexKind::BTree,
                unique: true,
                primary: false,
                columns: vec![KeyColumn { column: 3, descending: true }, KeyColumn { column: 0, descending: false }],
            },
        });
    }
}
