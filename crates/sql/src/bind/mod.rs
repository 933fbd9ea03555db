//! What does a statement mean? Names to columns, literals and parameters to types, clauses to a compiled program.
//!
//! Every field of a syntax tree that is taken is looked at: what has no meaning here is an error that names it. What another road could
//! serve is refused as [`Refusal::NotCompiled`]; `route` decides what becomes of it.

pub mod change;
pub mod conflict;
pub mod cte;
pub mod expr;
pub mod names;
pub mod rules;
pub mod sequence;
mod element;
mod flatten;
pub mod from;
mod gather;
mod hidden;
pub mod init;
pub mod more;
pub mod query;
pub mod record;
pub mod scope;
pub mod through;
pub mod types;

#[cfg(feature = "query")]
pub(crate) use flatten::locks_for;
#[cfg(feature = "query")]
pub(crate) use more::row_items;

use crate::compiled::aggregate::Aggregate;
use crate::error::SqlError;
use crate::statistics::Statistics;
use crate::view::Relation;
use freshet_engine::catalog::{Schema, Table, TableId};
use freshet_engine::schema::Type;
use sqlparser::ast::{self, ObjectName};
use std::collections::HashSet;
use std::sync::Arc;

/// Why the compiled road does not take a statement.
#[derive(Debug)]
pub enum Refusal {
    Error(SqlError),
    /// Fine SQL, but not for this road.
    NotCompiled {
        what: String,
        position: Option<usize>,
    },
}

impl From<SqlError> for Refusal {
    fn from(error: SqlError) -> Refusal {
        Refusal::Error(error)
    }
}

pub type Bind<T> = Result<T, Refusal>;

/// Shorthand for a refusal without a place.
pub fn not_compiled<T>(what: impl std::fmt::Display) -> Bind<T> {
    Err(Refusal::NotCompiled { what: what.to_string(), position: None })
}

/// Sources from this one on are none of FROM: they stand for what another road computes.
pub const PLACEHOLDERS: u16 = 0xfff0;

/// What another road can bind beyond the compiled one.
pub trait Beyond {
    /// Asked first about every expression; `None`: bind it as usual.
    fn expression(&self, binder: &mut Binder<'_>, ast: &ast::Expr, scope: &scope::Scope) -> Bind<Option<expr::Bound>>;
    /// `(SELECT ...)` as a row: its columns, which one run of the query gives.
    fn row_subquery(&self, binder: &mut Binder<'_>, query: &ast::Query, scope: &scope::Scope)
    -> Bind<Vec<expr::Bound>>;
    /// A name (with the source that it names) that the scope does not have.
    fn outer_column(&self, names: &[String], source: Option<&scope::SourceName>) -> Bind<Option<expr::Bound>>;
    /// Whether a relation of this name, without a schema, is a part of WITH.
    fn is_part_of_with(&self, name: &str) -> bool;
    /// Whether it is a value of a subquery, or of a query around, that is computed (see `rows::Column`).
    fn is_computed(&self, expr: &crate::expr::Expr) -> bool;
    /// Whether a set-returning function stands in it.
    fn has_set(&self, expr: &crate::expr::Expr) -> bool;
    /// The row of the nearest source around this query that is called so; `None`: there is none.
    fn outer_row(&self, binder: &mut Binder<'_>, name: &str) -> Bind<Option<expr::Bound>>;
    /// The names of its columns.
    fn columns_around(&self, source: &scope::SourceName) -> Option<Vec<String>>;
    /// Whether the nearest source of this name around this query is not hidden by a column there.
    fn is_outer_row(&self, name: &str) -> bool;
    /// Where binding stands before an aggregate's arguments.
    fn mark(&self, binder: &Binder<'_>) -> Mark;
    /// The query around this one whose aggregate it is: `is_own` says that its arguments mention columns of this one, besides what subqueries in them
    /// were seen to name since the mark. `None`: it is this query's.
    fn owner(&self, mark: &Mark, is_own: bool) -> Option<usize>;
    /// An aggregate of a query around this one, bound there; gives what stands for its value here. What was bound since the mark is forgotten.
    fn folded_around(&self, binder: &mut Binder<'_>, mark: Mark, owner: usize, parts: Parts<'_>) -> Bind<expr::Bound>;
}

/// Binds an aggregate's parts within the scope of its query.
pub type Parts<'p> = &'p mut dyn FnMut(&mut Binder<'_>, &scope::Scope) -> Bind<(Aggregate, Type)>;

/// What another road has met when an aggregate's arguments begin.
#[cfg_attr(not(feature = "query"), expect(dead_code, reason = "the other road's"))]
pub struct Mark {
    /// How many queries stand around this one.
    pub levels: usize,
    /// How many columns of theirs were found.
    pub reached: usize,
    /// How many values of each one's row are asked for.
    pub slots: Vec<usize>,
    /// What is to be computed for each row of this one.
    pub pending: usize,
}

/// `xmax` of a new row: nobody's where it was inserted, the transaction's where ON CONFLICT updated a row that was there, for which it was locked.
#[derive(Clone, Copy)]
pub(crate) struct Xmax {
    pub of: TableId,
    pub is_updated: bool,
    pub is_asked: bool,
}

/// The state of binding one statement.
pub struct Binder<'a> {
    pub sql: &'a str,
    pub schema: &'a Arc<Schema>,
    /// As declared or found so far.
    pub parameters: Vec<Option<Type>>,
    /// Whether the statement asks what time it is.
    pub uses_clock: bool,
    /// Whether it takes values from sequences.
    pub uses_sequences: bool,
    /// Of which a definition keeps what they mean now.
    pub session_literals: Vec<expr::SessionLiteral>,
    depth: usize,
    /// How often a column of a query around this one was found.
    pub(crate) outer_columns: usize,
    /// The last number of an [`crate::expr::Expr::Given`].
    given: u16,
    /// Of the INSERT being bound.
    pub(crate) overriding: Option<crate::parse::Overriding>,
    /// What `xmax` is in the RETURNING being bound; `None` where there is no such column.
    pub(crate) xmax: Option<Xmax>,
    /// The view that the change being bound goes through.
    pub(crate) through: Option<through::Through>,
    /// `None` on the compiled road.
    pub beyond: Option<&'a dyn Beyond>,
    /// What is bound is the text of a view, as it was kept.
    pub is_kept: bool,
    /// Where aggregates are allowed, those met so far.
    pub(crate) aggregates: Option<Vec<Aggregate>>,
    pub(crate) in_aggregate: bool,
    /// Those of the queries around, the nearest last.
    #[cfg_attr(not(feature = "query"), expect(dead_code, reason = "the other road's"))]
    pub(crate) aggregates_around: Vec<Option<Vec<Aggregate>>>,
    /// What the outputs of the next SELECT are stored into: types for literals and parameters without one.
    pub(crate) output_types: Vec<Type>,
    /// The queries whose values the statement uses; `None` where it may use none.
    pub init: Option<init::InitBinding>,
    /// The rows that queries may be about.
    pub(crate) around: Option<init::Around>,
    /// Some are.
    pub(crate) asks_rows: bool,
    /// The locking clauses of the SELECT whose FROM is being bound.
    pub(crate) locking: Vec<ast::LockClause>,
    /// By which paths are chosen, where there are several.
    pub statistics: Option<Arc<Statistics>>,
    /// They were asked.
    pub is_estimated: bool,
    /// Of tables that they do not know.
    pub unknown_tables: Vec<TableId>,
    /// Subqueries, by their addresses, that were found to be more than their table.
    pub(crate) not_flat: HashSet<usize>,
}

impl<'a> Binder<'a> {
    pub fn new(sql: &'a str, schema: &'a Arc<Schema>, declared: &[Option<Type>]) -> Binder<'a> {
        crate::value::pgtype::name_by(schema);
        Binder {
            sql,
            schema,
            parameters: declared.to_vec(),
            uses_clock: false,
            uses_sequences: false,
            session_literals: Vec::new(),
            depth: 0,
            outer_columns: 0,
            given: 0,
            overriding: None,
            xmax: None,
            through: None,
            beyond: None,
            is_kept: false,
            around: None,
            asks_rows: false,
            aggregates: None,
            in_aggregate: false,
            aggregates_around: Vec::new(),
            output_types: Vec::new(),
            init: None,
            locking: Vec::new(),
            statistics: None,
            is_estimated: false,
            unknown_tables: Vec::new(),
            not_flat: HashSet::new(),
        }
    }

    /// The parameters' types; one that nothing typed is text.
    pub fn parameter_types(&self) -> Vec<Type> {
        let types = self.parameters.iter();
        types.map(|ty| ty.unwrap_or(Type::Text)).collect()
    }

    pub fn table(&self, name: &ObjectName) -> Bind<Arc<Table>> {
        let position = name
            .0
            .first()
            .and_then(|part| part.as_ident())
            .and_then(|ident| crate::parse::span_position(self.sql, ident.span));
        if let Some(relation) = crate::view::find(&names::RelationName::of(name)?, self.schema) {
            return Err(relation.refuse_change().at(position).into());
        }
        self.relation(name)
    }

    /// What the name means, if it is computed: a system relation or a sequence.
    pub fn view(&self, name: &ObjectName) -> Option<Relation> {
        crate::view::find(&names::RelationName::of(name).ok()?, self.schema)
    }
}
