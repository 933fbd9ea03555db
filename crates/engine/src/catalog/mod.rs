//! Which tables and indexes are there? Definitions, and immutable snapshots of the schema.
//!
//! A [`Schema`] is one immutable version of the catalog with the storage it leads to; a transaction that changes it
//! works on its own copy, which commit publishes.

use crate::schema::{KeyColumn, KeySpec, Layout, Type};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A table's identity, kept through TRUNCATE. It is also the oid that clients see.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TableId(pub u32);

/// An index's identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IndexId(pub u32);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ColumnDef {
    pub name: String,
    pub ty: Type,
    pub not_null: bool,
    /// The default's SQL text, meaningful to the SQL layer only.
    pub default: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableDef {
    pub name: String,
    pub columns: Vec<ColumnDef>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexKind {
    Hash,
    BTree,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexDef {
    pub name: String,
    pub kind: IndexKind,
    pub unique: bool,
    pub primary: bool,
    pub columns: Vec<KeyColumn>,
}

/// An index of one schema version.
#[derive(Debug)]
pub struct Index {
    pub id: IndexId,
    pub def: IndexDef,
    pub spec: KeySpec,
}

/// A table of one schema version.
#[derive(Debug)]
pub struct Table {
    pub id: TableId,
    pub def: TableDef,
    pub layout: Layout,
    /// In order of creation, the primary key's first where there is one.
    pub indexes: Vec<Arc<Index>>,
}

impl Table {
    pub fn column(&self, name: &str) -> Option<usize> {
        self.def.columns.iter().position(|c| c.name == name)
    }
}

/// One version of the catalog.
#[derive(Clone, Default, Debug)]
pub struct Schema {
    /// Grows with every committed DDL; a transaction's own copy has its own.
    pub version: u64,
    tables: BTreeMap<String, Arc<Table>>,
}

impl Schema {
    pub fn table(&self, name: &str) -> Option<&Arc<Table>> {
        self.tables.get(name)
    }

    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.values()
    }

    /// The table and the index of this name.
    pub fn index(&self, name: &str) -> Option<(&Arc<Table>, &Arc<Index>)> {
        self.tables().find_map(|t| {
            t.indexes
                .iter()
                .find(|i| i.def.name == name)
                .map(|i| (t, i))
        })
    }
}
