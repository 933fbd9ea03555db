//! Which tables, views, sequences and enums are there, and what does a name mean? One immutable version of the catalog.
//!
//! Tables, indexes, views and sequences of one name space share their names. A schema is cheap to copy: what a change does not touch is shared.

use super::{
    ColumnRole, Constraint, ConstraintKind, EnumType, ForeignKey, Index, Namespace, NamespaceId, Rights, Role, RoleId,
    Sequence, Table, TableId, View,
};
use crate::schema::{EnumId, Type};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Where a bare name is looked for, first to last.
pub type SchemaPath = Arc<[NamespaceId]>;

type Named<T> = Arc<BTreeMap<NamespaceId, BTreeMap<String, Arc<T>>>>;

/// A comment and the id of its own row.
#[derive(Clone, Debug)]
struct Comment {
    id: u32,
    text: Arc<str>,
}

/// What hangs on an object and goes with it: comments by object and column, and rights by object.
#[derive(Default, Debug)]
pub(crate) struct Attached {
    pub comments: Vec<(u32, u16)>,
    pub rights: Vec<u32>,
}

/// What somebody computed of one version of the catalog, kept for as long as that is.
#[derive(Clone, Default, Debug)]
struct Derived(Arc<OnceLock<Arc<dyn Any + Send + Sync>>>);

/// One version of the catalog.
#[derive(Clone, Debug)]
pub struct Schema {
    /// Grows with every committed DDL; a transaction's own copy has its own.
    pub version: u64,
    path: SchemaPath,
    tables: Named<Table>,
    by_id: Arc<BTreeMap<TableId, Arc<Table>>>,
    views: Named<View>,
    sequences: Named<Sequence>,
    enums: Named<EnumType>,
    enums_by_id: Arc<BTreeMap<EnumId, Arc<EnumType>>>,
    namespaces: Arc<BTreeMap<NamespaceId, Arc<Namespace>>>,
    /// By object and column number (0: the object itself).
    comments: Arc<BTreeMap<(u32, u16), Comment>>,
    roles: Arc<BTreeMap<RoleId, Arc<Role>>>,
    /// By object, with the id of their own row.
    rights: Arc<BTreeMap<u32, (u32, Rights)>>,
    /// The version in which roles or rights changed last.
    rights_version: u64,
    derived: Derived,
}

impl Default for Schema {
    fn default() -> Schema {
        let fixed = [
            (NamespaceId::PUBLIC, "public"),
            (NamespaceId::CATALOG, "pg_catalog"),
            (NamespaceId::INFORMATION, "information_schema"),
        ];
        let fixed = fixed.map(|(id, name)| (id, Arc::new(Namespace { id, name: name.into() })));
        Schema {
            version: 0,
            path: Arc::new([NamespaceId::PUBLIC]),
            tables: Arc::default(),
            by_id: Arc::default(),
            views: Arc::default(),
            sequences: Arc::default(),
            enums: Arc::default(),
            enums_by_id: Arc::default(),
            namespaces: Arc::new(fixed.into()),
            comments: Arc::default(),
            roles: Arc::default(),
            rights: Arc::default(),
            rights_version: 0,
            derived: Derived::default(),
        }
    }
}

impl Schema {
    /// The same enums along the same path, and nothing else: it keeps no table's memory.
    pub fn enums_alone(&self) -> Schema {
        Schema {
            version: self.version,
            path: self.path.clone(),
            enums: self.enums.clone(),
            enums_by_id: self.enums_by_id.clone(),
            namespaces: self.namespaces.clone(),
            ..Schema::default()
        }
    }

    pub fn has_enums(&self) -> bool {
        !self.enums_by_id.is_empty()
    }

    // ---- names

    pub fn path(&self) -> &SchemaPath {
        &self.path
    }

    /// The same catalog for who looks names up along another path.
    pub fn with_path(&self, path: SchemaPath) -> Schema {
        Schema { path, ..self.clone() }
    }

    fn find<'a, T>(&'a self, named: &'a Named<T>, name: &str) -> Option<&'a Arc<T>> {
        self.path.iter().find_map(|namespace| named.get(namespace)?.get(name))
    }

    /// The table that a bare name means.
    pub fn table(&self, name: &str) -> Option<&Arc<Table>> {
        self.find(&self.tables, name)
    }

    pub fn table_in(&self, namespace: NamespaceId, name: &str) -> Option<&Arc<Table>> {
        self.tables.get(&namespace)?.get(name)
    }

    pub fn table_by_id(&self, id: TableId) -> Option<&Arc<Table>> {
        self.by_id.get(&id)
    }

    /// By id, so in the order in which they were created.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.by_id.values()
    }

    pub fn tables_in(&self, namespace: NamespaceId) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.get(&namespace).into_iter().flat_map(BTreeMap::values)
    }

    /// The table and the index that a bare name means.
    pub fn index(&self, name: &str) -> Option<(&Arc<Table>, &Arc<Index>)> {
        self.path.iter().find_map(|&namespace| self.index_in(namespace, name))
    }

    pub fn index_in(&self, namespace: NamespaceId, name: &str) -> Option<(&Arc<Table>, &Arc<Index>)> {
        let mut tables = self.tables_in(namespace);
        tables.find_map(|t| t.indexes.iter().find(|i| i.def.name == name).map(|i| (t, i)))
    }

    pub fn view(&self, name: &str) -> Option<&Arc<View>> {
        self.find(&self.views, name)
    }

    pub fn view_in(&self, namespace: NamespaceId, name: &str) -> Option<&Arc<View>> {
        self.views.get(&namespace)?.get(name)
    }

    pub fn view_by_id(&self, id: u32) -> Option<&Arc<View>> {
        self.views().find(|view| view.id == id)
    }

    pub fn views(&self) -> impl Iterator<Item = &Arc<View>> {
        self.views.values().flat_map(BTreeMap::values)
    }

    pub fn sequence(&self, name: &str) -> Option<&Arc<Sequence>> {
        self.find(&self.sequences, name)
    }

    pub fn sequence_in(&self, namespace: NamespaceId, name: &str) -> Option<&Arc<Sequence>> {
        self.sequences.get(&namespace)?.get(name)
    }

    pub fn sequence_by_id(&self, id: u32) -> Option<&Arc<Sequence>> {
        self.sequences().find(|sequence| sequence.id == id)
    }

    pub fn sequences(&self) -> impl Iterator<Item = &Arc<Sequence>> {
        self.sequences.values().flat_map(BTreeMap::values)
    }

    /// The enum that a bare name means.
    pub fn enum_type(&self, name: &str) -> Option<&Arc<EnumType>> {
        self.find(&self.enums, name)
    }

    pub fn enum_in(&self, namespace: NamespaceId, name: &str) -> Option<&Arc<EnumType>> {
        self.enums.get(&namespace)?.get(name)
    }

    pub fn enum_by_id(&self, id: EnumId) -> Option<&Arc<EnumType>> {
        self.enums_by_id.get(&id)
    }

    /// In the order in which they were created.
    pub fn enums(&self) -> impl Iterator<Item = &Arc<EnumType>> {
        self.enums_by_id.values()
    }

    /// Columns of this type or of arrays of it, by their places. Those that were dropped count no more.
    pub fn columns_of_enum(&self, id: EnumId) -> impl Iterator<Item = (&Arc<Table>, usize)> {
        let is_of = move |ty: Type| matches!(ty, Type::Enum(own) | Type::Array(&Type::Enum(own)) if own == id);
        self.tables().flat_map(move |table| {
            let columns = table.def.columns.iter().enumerate();
            columns.filter(move |(_, c)| is_of(c.ty) && c.role != ColumnRole::Dropped).map(move |(at, _)| (table, at))
        })
    }

    pub fn namespace(&self, name: &str) -> Option<&Arc<Namespace>> {
        self.namespaces.values().find(|n| n.name == name)
    }

    pub fn namespace_by_id(&self, id: NamespaceId) -> Option<&Arc<Namespace>> {
        self.namespaces.get(&id)
    }

    pub fn namespaces(&self) -> impl Iterator<Item = &Arc<Namespace>> {
        self.namespaces.values()
    }

    /// A table or index of the public name space, or whatever the path begins with.
    pub fn has_relation(&self, name: &str) -> bool {
        self.path.iter().any(|&namespace| self.has_relation_in(namespace, name))
    }

    /// Whether a table, index, view or sequence has this name.
    pub fn has_relation_in(&self, namespace: NamespaceId, name: &str) -> bool {
        self.table_in(namespace, name).is_some()
            || self.view_in(namespace, name).is_some()
            || self.sequence_in(namespace, name).is_some()
            || self.index_in(namespace, name).is_some()
    }

    pub fn comment(&self, object: u32, column: u16) -> Option<&Arc<str>> {
        self.comments.get(&(object, column)).map(|comment| &comment.text)
    }

    /// The id under which the comment itself is stored.
    pub(crate) fn comment_id(&self, object: u32, column: u16) -> Option<u32> {
        self.comments.get(&(object, column)).map(|comment| comment.id)
    }

    /// Comments by object and column number (0: the object itself).
    pub fn comments(&self) -> impl Iterator<Item = (u32, u16, &Arc<str>)> {
        self.comments.iter().map(|(&(object, column), comment)| (object, column, &comment.text))
    }

    pub fn role(&self, id: RoleId) -> Option<&Arc<Role>> {
        self.roles.get(&id)
    }

    pub fn role_named(&self, name: &str) -> Option<&Arc<Role>> {
        self.roles.values().find(|role| role.def.name == name)
    }

    /// None before the first one is made: then there is but the first role.
    pub fn roles(&self) -> impl Iterator<Item = &Arc<Role>> {
        self.roles.values()
    }

    pub fn has_roles(&self) -> bool {
        !self.roles.is_empty()
    }

    /// The version in which roles or rights changed last, since the database was opened.
    pub fn rights_version(&self) -> u64 {
        self.rights_version
    }

    /// What is said of the object's owner and of grants, if anything is.
    pub fn rights(&self, object: u32) -> Option<&Rights> {
        self.rights.get(&object).map(|(_, rights)| rights)
    }

    pub fn owner(&self, object: u32) -> RoleId {
        self.rights(object).map_or_else(|| Rights::unsaid(object).owner, |rights| rights.owner)
    }

    /// Everything of which an owner or grants are said.
    pub fn all_rights(&self) -> impl Iterator<Item = (u32, &Rights)> {
        self.rights.iter().map(|(&object, (_, rights))| (object, rights))
    }

    /// The id under which an object's rights are stored.
    pub(crate) fn rights_id(&self, object: u32) -> Option<u32> {
        self.rights.get(&object).map(|(id, _)| *id)
    }

    /// What the caller derives from this version, made by the first who asks. Copies along another path share it, and a change forgets it; so
    /// it must follow from the definitions alone. There is one type of such things.
    pub fn derived<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let kept = self.derived.0.get_or_init(|| Arc::new(make())).clone();
        kept.downcast().expect("invariant: one type of things is derived from a schema")
    }

    // ---- what refers to what

    /// Foreign keys that refer to the table, with the tables that have them.
    pub fn references(&self, parent: TableId) -> impl Iterator<Item = (&Arc<Table>, &Constraint, &ForeignKey)> {
        self.foreign_keys().filter(move |(_, _, key)| key.parent == parent)
    }

    pub fn foreign_keys(&self) -> impl Iterator<Item = (&Arc<Table>, &Constraint, &ForeignKey)> {
        self.tables().flat_map(|table| {
            table.def.constraints.iter().filter_map(move |constraint| match &constraint.kind {
                ConstraintKind::Foreign(key) => Some((table, constraint, key)),
                ConstraintKind::Check { .. } => None,
            })
        })
    }

    /// Views that read this table, view or sequence.
    pub fn readers(&self, id: u32) -> impl Iterator<Item = &Arc<View>> {
        self.views().filter(move |view| view.def.reads.contains(&id))
    }

    pub fn sequences_of(&self, table: TableId) -> impl Iterator<Item = &Arc<Sequence>> {
        self.sequences().filter(move |s| s.def.owner.is_some_and(|(owner, _)| owner == table))
    }

    // ---- changes

    /// Puts a table in its place; one of the same id, perhaps with another name, goes.
    pub(crate) fn put(&mut self, table: Arc<Table>) {
        self.derived = Derived::default();
        self.remove_table(table.id);
        let names = Arc::make_mut(&mut self.tables).entry(table.def.namespace).or_default();
        names.insert(table.def.name.clone(), table.clone());
        Arc::make_mut(&mut self.by_id).insert(table.id, table);
    }

    pub(crate) fn remove_table(&mut self, id: TableId) {
        self.derived = Derived::default();
        if !self.by_id.contains_key(&id) {
            return;
        }
        let Some(old) = Arc::make_mut(&mut self.by_id).remove(&id) else { return };
        if let Some(names) = Arc::make_mut(&mut self.tables).get_mut(&old.def.namespace) {
            names.remove(&old.def.name);
        }
    }

    pub(crate) fn put_view(&mut self, view: Arc<View>) {
        self.derived = Derived::default();
        self.remove_view(view.id);
        let names = Arc::make_mut(&mut self.views).entry(view.def.namespace).or_default();
        names.insert(view.def.name.clone(), view);
    }

    pub(crate) fn remove_view(&mut self, id: u32) {
        self.derived = Derived::default();
        let names = Arc::make_mut(&mut self.views);
        names.values_mut().for_each(|names| names.retain(|_, view| view.id != id));
    }

    pub(crate) fn put_sequence(&mut self, sequence: Arc<Sequence>) {
        self.derived = Derived::default();
        self.remove_sequence(sequence.id);
        let names = Arc::make_mut(&mut self.sequences).entry(sequence.def.namespace).or_default();
        names.insert(sequence.def.name.clone(), sequence);
    }

    pub(crate) fn remove_sequence(&mut self, id: u32) {
        self.derived = Derived::default();
        let names = Arc::make_mut(&mut self.sequences);
        names.values_mut().for_each(|names| names.retain(|_, sequence| sequence.id != id));
    }

    pub(crate) fn put_enum(&mut self, made: Arc<EnumType>) {
        self.remove_enum(made.id);
        let names = Arc::make_mut(&mut self.enums).entry(made.def.namespace).or_default();
        names.insert(made.def.name.clone(), made.clone());
        Arc::make_mut(&mut self.enums_by_id).insert(made.id, made);
    }

    pub(crate) fn remove_enum(&mut self, id: EnumId) {
        self.derived = Derived::default();
        if !self.enums_by_id.contains_key(&id) {
            return;
        }
        let Some(old) = Arc::make_mut(&mut self.enums_by_id).remove(&id) else { return };
        if let Some(names) = Arc::make_mut(&mut self.enums).get_mut(&old.def.namespace) {
            names.remove(&old.def.name);
        }
    }

    /// Names are looked up in `public` where nobody says otherwise, whichever that is. One without a name is the one that was dropped
    /// though it is there without a definition.
    pub(crate) fn put_namespace(&mut self, namespace: Namespace) {
        if namespace.name.is_empty() {
            return self.remove_namespace(namespace.id);
        }
        if namespace.name == "public" {
            self.path = Arc::new([namespace.id]);
        }
        self.derived = Derived::default();
        Arc::make_mut(&mut self.namespaces).insert(namespace.id, Arc::new(namespace));
    }

    pub(crate) fn remove_namespace(&mut self, id: NamespaceId) {
        if self.path[..] == [id] {
            self.path = Arc::new([]);
        }
        self.derived = Derived::default();
        Arc::make_mut(&mut self.namespaces).remove(&id);
    }

    /// Comments on the object and its columns: column and the id of the comment's row.
    pub(crate) fn comments_of(&self, object: u32) -> Vec<(u16, u32)> {
        let of = self.comments.range((object, 0)..=(object, u16::MAX));
        of.map(|(&(_, column), comment)| (column, comment.id)).collect()
    }

    pub(crate) fn put_comment(&mut self, object: u32, column: u16, id: u32, text: &str) {
        self.derived = Derived::default();
        Arc::make_mut(&mut self.comments).insert((object, column), Comment { id, text: text.into() });
    }

    pub(crate) fn remove_comment(&mut self, object: u32, column: u16) {
        self.derived = Derived::default();
        Arc::make_mut(&mut self.comments).remove(&(object, column));
    }

    /// Forgets what hung on dropped objects.
    pub(crate) fn forget(&mut self, attached: &Attached) {
        attached.comments.iter().for_each(|&(object, column)| self.remove_comment(object, column));
        attached.rights.iter().for_each(|&object| self.remove_rights(object));
    }

    fn rights_changed(&mut self) {
        self.derived = Derived::default();
        self.rights_version = self.version;
    }

    pub(crate) fn put_role(&mut self, role: Arc<Role>) {
        self.rights_changed();
        Arc::make_mut(&mut self.roles).insert(role.id, role);
    }

    pub(crate) fn remove_role(&mut self, id: RoleId) {
        self.rights_changed();
        Arc::make_mut(&mut self.roles).remove(&id);
    }

    pub(crate) fn put_rights(&mut self, object: u32, id: u32, rights: Rights) {
        self.rights_changed();
        Arc::make_mut(&mut self.rights).insert(object, (id, rights));
    }

    pub(crate) fn remove_rights(&mut self, object: u32) {
        self.rights_changed();
        Arc::make_mut(&mut self.rights).remove(&object);
    }
}
