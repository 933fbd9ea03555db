//! What is a table, an index, a constraint, a sequence, a view? Definitions, as the system table keeps them.
//!
//! SQL text in them (defaults, checks, views) means something to the SQL layer only.

use crate::schema::{EnumId, KeyColumn, Layout, LayoutError, Missing, Row, Type};

/// A table's identity, kept through TRUNCATE. It is also the oid that clients see.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TableId(pub u32);

/// An index's identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IndexId(pub u32);

/// Name spaces of sessions' temporary tables are called so, with the session's number behind.
pub const TEMPORARY_PREFIX: &str = "pg_temp_";

/// A name space of relations (an SQL schema): its oid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NamespaceId(pub u32);

impl NamespaceId {
    /// There without a definition, with PostgreSQL's oid, until it is dropped: then a definition without a name says so.
    pub const PUBLIC: NamespaceId = NamespaceId(2200);
    /// `pg_catalog`: there without a definition; nothing is created in it.
    pub const CATALOG: NamespaceId = NamespaceId(11);
    /// `information_schema`: as `pg_catalog`.
    pub const INFORMATION: NamespaceId = NamespaceId(13207);

    /// Whether it has the system's relations only.
    pub fn is_system(self) -> bool {
        matches!(self, NamespaceId::CATALOG | NamespaceId::INFORMATION)
    }
}

impl Default for NamespaceId {
    fn default() -> NamespaceId {
        NamespaceId::PUBLIC
    }
}

/// A collation, by the oid that clients see. All order by bytes: definitions keep it for show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollationId(pub u32);

/// An operator class, by its oid; kept for show, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OperatorClassId(pub u32);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    pub id: NamespaceId,
    pub name: String,
}

/// What gives a column its value where nobody does.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ColumnRole {
    /// The default, if there is one.
    #[default]
    Plain,
    /// GENERATED ALWAYS AS (...) STORED: `default` is the expression.
    Generated,
    /// GENERATED ALWAYS AS IDENTITY: `default` asks the sequence.
    IdentityAlways,
    IdentityByDefault,
    /// What an index on an expression, or a partial unique one, is about: computed like a generated column, seen by nobody.
    Hidden,
    /// Dropped: its place in the record stays, with whatever is in it.
    Dropped,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ColumnDef {
    pub name: String,
    pub ty: Type,
    pub not_null: bool,
    /// The default's SQL text, meaningful to the SQL layer only.
    pub default: Option<String>,
    pub role: ColumnRole,
    /// What rows have that were there before the column, where it lies in the table's extension; `None`: null.
    pub missing: Option<Missing>,
    /// `None`: its type's.
    pub collation: Option<CollationId>,
}

impl Default for ColumnDef {
    fn default() -> ColumnDef {
        let (name, ty, role) = (String::new(), Type::Int8, ColumnRole::Plain);
        ColumnDef { name, ty, not_null: false, default: None, role, missing: None, collation: None }
    }
}

impl ColumnDef {
    /// Whether statements can name it, and `*` means it.
    pub fn is_visible(&self) -> bool {
        !matches!(self.role, ColumnRole::Hidden | ColumnRole::Dropped)
    }

    /// Whether its value follows from the others'.
    pub fn is_computed(&self) -> bool {
        matches!(self.role, ColumnRole::Hidden | ColumnRole::Generated)
    }

    pub fn is_identity(&self) -> bool {
        matches!(self.role, ColumnRole::IdentityAlways | ColumnRole::IdentityByDefault)
    }
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TableDef {
    pub namespace: NamespaceId,
    pub name: String,
    pub columns: Vec<ColumnDef>,
    /// Checks and foreign keys; primary and unique keys are their indexes'.
    pub constraints: Vec<Constraint>,
    /// Columns that lie in the record itself: those that there were when the storage was made. 0: all.
    pub base_columns: u16,
    /// Records of many columns have a word for a link to an extension, too.
    pub is_linked: bool,
}

impl TableDef {
    /// How its records are laid out.
    pub fn layout(&self) -> Result<Layout, LayoutError> {
        let types: Vec<Type> = self.columns.iter().map(|c| c.ty).collect();
        let base = if self.base_columns == 0 { types.len() } else { types.len().min(self.base_columns.into()) };
        let layout = Layout::with_link(&types[..base], self.is_linked)?;
        if base == types.len() {
            return Ok(layout);
        }
        let bytes = types.iter().map(|ty| ty.field_bytes()).sum();
        let extended = layout.extended(&types[base..], |i| self.columns[base + i].missing.as_ref());
        extended.ok_or(LayoutError::TooWide(bytes))
    }

    /// The same for a storage that has no rows yet: every column lies in the record.
    pub(crate) fn for_new_storage(mut self) -> TableDef {
        (self.base_columns, self.is_linked) = (0, true);
        self.columns.iter_mut().for_each(|column| column.missing = None);
        self
    }

    /// The same with one more column, in the extension.
    pub(crate) fn with_added(mut self, column: ColumnDef) -> TableDef {
        if self.base_columns == 0 {
            self.base_columns = self.columns.len() as u16;
        }
        self.columns.push(column);
        self
    }
}

/// A CHECK or a foreign key of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Constraint {
    /// Its oid; 0 until the table is created.
    pub id: u32,
    pub name: String,
    pub kind: ConstraintKind,
    /// False: NOT VALID. Rows from before it may break it.
    pub validated: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConstraintKind {
    /// The condition's SQL text, and the columns that it names.
    Check {
        condition: String,
        columns: Vec<u16>,
    },
    Foreign(ForeignKey),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignKey {
    pub columns: Vec<u16>,
    /// The referenced table; `TableId(0)` while the table refers to itself and has no id yet.
    pub parent: TableId,
    pub parent_columns: Vec<u16>,
    /// The unique index that it rests on; `IndexId(0)` while that has no id yet.
    pub parent_index: IndexId,
    /// MATCH FULL.
    pub full: bool,
    pub on_update: Action,
    pub on_delete: Action,
    /// Those of `columns` that ON DELETE SET NULL and SET DEFAULT set; none: all.
    pub delete_columns: Vec<u16>,
    pub deferrable: bool,
    pub deferred: bool,
}

/// What becomes of a row whose referenced row goes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Action {
    #[default]
    NoAction,
    Restrict,
    Cascade,
    SetNull,
    SetDefault,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum IndexKind {
    Hash,
    #[default]
    BTree,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct IndexDef {
    pub name: String,
    pub kind: IndexKind,
    pub unique: bool,
    pub primary: bool,
    pub columns: Vec<KeyColumn>,
    /// The oid of the primary key or UNIQUE constraint whose index this is; 0: a plain index. `u32::MAX` until it is created.
    pub constraint: u32,
    /// A bit for each column that was defined with NULLS FIRST (ascending) or LAST (descending). Entries are in the usual order all the same.
    pub nulls_against: u32,
    /// A partial index's condition. Of a unique one a hidden column is null where it does not hold; another has all rows.
    pub predicate: Option<String>,
    /// INCLUDE: kept for show.
    pub include: Vec<u16>,
    /// The index of a DEFERRABLE key is no unique one: rows with equal keys are entered, and looked at later (`Session::demand_unique`).
    pub deferrable: bool,
    /// That is at commit, unless it is asked for before.
    pub deferred: bool,
    /// Of a key: two nulls are as equal as two values.
    pub nulls_not_distinct: bool,
    /// What its keys name, one for each of `columns`; empty where none names anything.
    pub named: Vec<KeyNames>,
}

/// What a key of an index was defined with besides its order.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KeyNames {
    /// `None`: the collation of what the key is over.
    pub collation: Option<CollationId>,
    /// `None`: the default class of its type.
    pub class: Option<OperatorClassId>,
}

impl IndexDef {
    /// The constraint is there as soon as the index is.
    pub const CONSTRAINT: u32 = u32::MAX;

    /// What the key at this place names.
    pub fn names_of(&self, at: usize) -> KeyNames {
        self.named.get(at).copied().unwrap_or_default()
    }

    /// Whether no two rows have the same key, sooner or later.
    pub fn is_key(&self) -> bool {
        self.unique || self.deferrable
    }

    /// Whether any number of rows may have this one's key: one with a null equals none.
    pub(crate) fn exempts(&self, layout: &Layout, row: &Row) -> bool {
        !self.nulls_not_distinct && self.columns.iter().any(|c| row.is_null(layout, usize::from(c.column)))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SequenceDef {
    pub namespace: NamespaceId,
    pub name: String,
    pub ty: Type,
    pub start: i64,
    pub increment: i64,
    pub min: i64,
    pub max: i64,
    /// As given; values are handed out one by one all the same.
    pub cache: i64,
    pub cycle: bool,
    /// OWNED BY: the column with which it is dropped. Of an identity column it is part.
    pub owner: Option<(TableId, u16)>,
}

/// CREATE TYPE ... AS ENUM.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct EnumDef {
    pub namespace: NamespaceId,
    pub name: String,
    /// In their order, which is that of their numbers.
    pub labels: Vec<EnumLabel>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnumLabel {
    /// 0 until it is created.
    pub oid: u32,
    /// What values are stored as.
    pub number: i64,
    pub text: String,
}

impl EnumDef {
    /// Between the numbers of labels that are declared one after the other: as many times can one be put between two.
    const STEP: i64 = 1 << 32;
    /// Of the first label: there is room before it, too.
    const FIRST: i64 = 1 << 48;

    /// A type with these labels.
    pub fn new(namespace: NamespaceId, name: String, labels: impl IntoIterator<Item = String>) -> EnumDef {
        let label = |(at, text)| EnumLabel { oid: 0, number: EnumDef::FIRST + at as i64 * EnumDef::STEP, text };
        EnumDef { namespace, name, labels: labels.into_iter().enumerate().map(label).collect() }
    }

    pub fn label_of(&self, number: i64) -> Option<&EnumLabel> {
        self.labels.binary_search_by_key(&number, |label| label.number).ok().map(|at| &self.labels[at])
    }

    pub fn label(&self, text: &[u8]) -> Option<&EnumLabel> {
        self.labels.iter().find(|label| label.text.as_bytes() == text)
    }

    /// Puts a new label at this place. False: the numbers of its neighbours have none between them.
    pub fn insert_label(&mut self, at: usize, text: String) -> bool {
        let below = at.checked_sub(1).map(|at| self.labels[at].number);
        let number = match (below, self.labels.get(at).map(|label| label.number)) {
            (None, None) => Some(EnumDef::FIRST),
            (Some(below), None) => below.checked_add(EnumDef::STEP),
            (None, Some(above)) => Some(above - above.min(2 * EnumDef::STEP) / 2).filter(|&number| number < above),
            (Some(below), Some(above)) => Some(below + (above - below) / 2).filter(|&number| number > below),
        };
        let Some(number) = number else { return false };
        self.labels.insert(at, EnumLabel { oid: 0, number, text });
        true
    }
}

/// An enum of one schema version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnumType {
    pub id: EnumId,
    pub def: EnumDef,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ViewDef {
    pub namespace: NamespaceId,
    pub name: String,
    pub columns: Vec<(String, Option<Type>)>,
    /// A SELECT whose relations are named with their schemas.
    pub query: String,
    /// Oids of the tables, views and sequences that it reads.
    pub reads: Vec<u32>,
    /// WITH CHECK OPTION.
    pub check: Option<CheckOption>,
    /// What an INSERT gives a column that it leaves out, in place of the table's default.
    pub defaults: Vec<(u16, String)>,
}

/// Which conditions a row must meet that is written through a view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckOption {
    /// The view's own.
    Local,
    /// Those of the views below it too.
    Cascaded,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    pub id: u32,
    pub def: ViewDef,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(def: &EnumDef) -> Vec<&str> {
        assert!(def.labels.is_sorted_by(|a, b| a.number < b.number), "{def:?}");
        def.labels.iter().map(|label| label.text.as_str()).collect()
    }

    #[test]
    fn labels_are_put_where_they_are_asked_for() {
        let mut def = EnumDef::new(NamespaceId::PUBLIC, "e".into(), ["b", "d"].map(String::from));
        for (at, text) in [(0, "a"), (2, "c"), (4, "e")] {
            assert!(def.insert_label(at, text.into()));
        }
        assert_eq!(ordered(&def), ["a", "b", "c", "d", "e"]);
        assert_eq!(def.label(b"c").and_then(|c| def.label_of(c.number)).map(|c| c.text.as_str()), Some("c"));
        assert_eq!((def.label(b"x"), def.label_of(1)), (None, None));
        let mut empty = EnumDef::default();
        assert!(empty.insert_label(0, "a".into()));
    }

    /// Halving the distance, as often as its bits allow.
    #[test]
    fn a_place_has_room_for_some_labels_only() {
        let mut def = EnumDef::new(NamespaceId::PUBLIC, "e".into(), ["a", "z"].map(String::from));
        let made = (0..100).take_while(|n| def.insert_label(1, n.to_string())).count();
        assert_eq!(made, 32);
        ordered(&def);
        let before = (0..100_000).take_while(|n| def.insert_label(0, format!("b{n}"))).count();
        assert!(before > 60_000, "{before}");
        ordered(&def);
    }
}
