//! What do numbers and names of objects mean to a statement? The schema that it sees, along its session's search path, with what the session is.
//!
//! | module | question |
//! |---|---|
//! | `oid` | which numbers do objects have that the engine has none for |
//! | `builtin` | what does PostgreSQL bring along under fixed numbers |
//! | `names` | which object does a name mean, and how is an object named |
//! | `deparse` | how does PostgreSQL write an expression that it keeps |
//! | `select` | how does PostgreSQL write a view's query |
//! | `definition` | how does PostgreSQL write a definition |
//!
//! ```text
//! session: a statement begins ─ Catalog of its schema ─▶ Clock.catalog ─┬─ value::oid: `regclass` and its like, read and written
//! binder: a literal's type    ─ Catalog of the schema ─▶                └─ value::function::catalog: `pg_get_expr`, `format_type`, ...
//! ```
//!
//! 1. A catalog is of one version of the schema: a transaction sees its own definitions.
//! 2. It is reached through the clock, by which values are read and written: so both roads and every function that shows a value have it.

pub mod builtin;
pub mod definition;
mod deparse;
pub mod names;
pub mod oid;
mod select;

use crate::error::SqlError;
use crate::role::Access;
use crate::value::{Clock, DateStyle, IntervalStyle, Zone};
use freshet_engine::catalog::{Constraint, Index, NamespaceId, RoleId, Schema, Sequence, Table, TableId, View};
use freshet_engine::engine::Engine;
use sqlparser::ast::VisitMut;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// What a session tells of itself.
#[derive(Clone, Debug)]
pub struct SessionFacts {
    pub engine: Engine,
    /// The name of the role in force.
    pub user: String,
    pub session_user: String,
    pub role: RoleId,
    /// What that may do; `None`: everything.
    pub access: Option<Arc<Access>>,
    pub database: String,
    /// By which its definitions show their constants.
    pub zone: Zone,
    pub dates: DateStyle,
    pub intervals: IntervalStyle,
    /// On which channels it listens.
    pub(crate) hearing: Option<Arc<crate::channel::Hearing>>,
}

/// The objects of a schema by number and name.
pub struct Catalog {
    /// With the session's search path.
    pub schema: Arc<Schema>,
    /// `None` while a statement is bound.
    pub session: Option<SessionFacts>,
    places: OnceLock<HashMap<u32, Place>>,
}

/// Where an object is found that the schema does not find by its number.
enum Place {
    Index(TableId, usize),
    View(Arc<View>),
    Sequence(Arc<Sequence>),
    /// Of [`freshet_engine::catalog::TableDef::constraints`].
    Constraint(TableId, usize),
    /// A key, by the place of its index.
    Key(TableId, usize),
}

/// A relation of the schema or of the system.
#[derive(Clone, Copy)]
pub enum Relation<'a> {
    Table(&'a Arc<Table>),
    Index(&'a Arc<Table>, &'a Arc<Index>),
    View(&'a Arc<View>),
    Sequence(&'a Arc<Sequence>),
    System(&'static builtin::SystemRelation),
}

/// What `pg_constraint` has a row of.
#[derive(Clone, Copy)]
pub enum TableConstraint<'a> {
    /// A check or a foreign key.
    Rule(&'a Arc<Table>, &'a Constraint),
    /// A primary key or UNIQUE.
    Key(&'a Arc<Table>, &'a Arc<Index>),
}

impl Catalog {
    pub fn new(schema: Arc<Schema>, session: Option<SessionFacts>) -> Catalog {
        Catalog { schema, session, places: OnceLock::new() }
    }

    /// By what definitions read and show their constants.
    fn clock(&self) -> Clock {
        let catalog = Known::of_schema(&self.schema);
        match &self.session {
            Some(facts) => {
                let (dates, intervals) = (facts.dates, facts.intervals);
                Clock { zone: facts.zone.clone(), dates, intervals, catalog, ..Clock::default() }
            }
            None => Clock { catalog, ..Clock::default() },
        }
    }

    /// A text of a definition that cannot be written as PostgreSQL would: as it was given, with this session's names and zone.
    fn as_given<T: VisitMut + std::fmt::Display>(&self, text: &str, tree: Result<T, SqlError>) -> String {
        match tree {
            Ok(mut tree) => {
                crate::define::shown_by(&mut tree, &self.clock());
                crate::parse::in_own_words(&tree.to_string())
            }
            Err(_) => text.to_owned(),
        }
    }

    fn places(&self) -> &HashMap<u32, Place> {
        self.places.get_or_init(|| {
            let mut places = HashMap::new();
            for table in self.schema.tables() {
                for (at, index) in table.indexes.iter().enumerate() {
                    places.insert(index.id.0, Place::Index(table.id, at));
                    if index.def.constraint != 0 {
                        places.insert(index.def.constraint, Place::Key(table.id, at));
                    }
                }
                for (at, constraint) in table.def.constraints.iter().enumerate() {
                    places.insert(constraint.id, Place::Constraint(table.id, at));
                }
            }
            places.extend(self.schema.views().map(|view| (view.id, Place::View(view.clone()))));
            places.extend(self.schema.sequences().map(|s| (s.id, Place::Sequence(s.clone()))));
            places
        })
    }

    fn table(&self, id: TableId) -> Option<&Arc<Table>> {
        self.schema.table_by_id(id)
    }

    pub fn relation(&self, oid: u32) -> Option<Relation<'_>> {
        if let Some(table) = self.table(TableId(oid)) {
            return Some(Relation::Table(table));
        }
        match self.places().get(&oid) {
            Some(Place::Index(table, at)) => {
                let table = self.table(*table)?;
                Some(Relation::Index(table, &table.indexes[*at]))
            }
            Some(Place::View(view)) => Some(Relation::View(view)),
            Some(Place::Sequence(sequence)) => Some(Relation::Sequence(sequence)),
            Some(Place::Constraint(..) | Place::Key(..)) => None,
            None => builtin::relation(oid).map(Relation::System),
        }
    }

    pub fn constraint(&self, oid: u32) -> Option<TableConstraint<'_>> {
        match self.places().get(&oid)? {
            Place::Constraint(table, at) => {
                let table = self.table(*table)?;
                Some(TableConstraint::Rule(table, &table.def.constraints[*at]))
            }
            Place::Key(table, at) => {
                let table = self.table(*table)?;
                Some(TableConstraint::Key(table, &table.indexes[*at]))
            }
            _ => None,
        }
    }

    pub fn namespace_name(&self, id: NamespaceId) -> Option<&str> {
        self.schema.namespace_by_id(id).map(|namespace| namespace.name.as_str())
    }
}

impl Relation<'_> {
    pub fn oid(&self) -> u32 {
        match self {
            Relation::Table(table) => table.id.0,
            Relation::Index(_, index) => index.id.0,
            Relation::View(view) => view.id,
            Relation::Sequence(sequence) => sequence.id,
            Relation::System(system) => system.oid,
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Relation::Table(table) => &table.def.name,
            Relation::Index(_, index) => &index.def.name,
            Relation::View(view) => &view.def.name,
            Relation::Sequence(sequence) => &sequence.def.name,
            Relation::System(system) => system.name,
        }
    }

    pub fn namespace(&self) -> NamespaceId {
        match self {
            Relation::Table(table) | Relation::Index(table, _) => table.def.namespace,
            Relation::View(view) => view.def.namespace,
            Relation::Sequence(sequence) => sequence.def.namespace,
            Relation::System(system) => system.namespace,
        }
    }
}

/// A catalog where there is one. Two are equal if they are the same.
#[derive(Clone, Default)]
pub struct Known(pub Option<Arc<Catalog>>);

impl Known {
    /// The catalog of a schema, without a session.
    pub fn of_schema(schema: &Arc<Schema>) -> Known {
        Known(Some(Arc::new(Catalog::new(schema.clone(), None))))
    }

    pub fn get(&self) -> Option<&Catalog> {
        self.0.as_deref()
    }

    /// Whether it is of this version of the schema, along this path, and shows constants as this clock does.
    pub fn is_of(&self, schema: &Arc<Schema>, clock: &Clock) -> bool {
        let shows_alike = |facts: &SessionFacts| {
            facts.zone == clock.zone && facts.dates == clock.dates && facts.intervals == clock.intervals
        };
        self.0.as_ref().is_some_and(|catalog| {
            Arc::ptr_eq(&catalog.schema, schema) && catalog.session.as_ref().is_none_or(shows_alike)
        })
    }
}

impl PartialEq for Known {
    fn eq(&self, other: &Known) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Eq for Known {}

impl std::hash::Hash for Known {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.is_some().hash(state);
    }
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            None => f.write_str("no catalog"),
            Some(catalog) => write!(f, "catalog {}", catalog.schema.version),
        }
    }
}
