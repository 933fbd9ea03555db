//! What do changes within WITH do? They run first, each on the snapshot of the whole statement; what they return is read like any query of WITH.
//!
//! 1. All plans are made before anything is changed, and read what was there before: none sees what another changes, but for what it returns.
//! 2. They run in the order in which they are written, the statement itself last. Constraints are looked at when all are done.
//! 3. A row that one part has changed is left alone by those after it.
//! 4. A query of WITH that asks what has another value each time is run once too, as one that is cut by a LIMIT, MATERIALIZED or long and read twice;
//!    wherever WITH stands, unless it is about a row around its query.

use super::apply::plans_within;
use super::cells::{Writer, data_type};
use super::change::{Action, columns_of};
use super::from::readings;
use super::plan::{Planner, Rel, df, output, refuse};
use crate::bind::change::is_change;
use crate::bind::scope::fold;
use crate::bind::{Bind, Binder};
use crate::error::SqlError;
use crate::rows::{Column, RowSet};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, Schema as ArrowSchema};
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::TableReference;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::MemTable;
use datafusion::datasource::memory::PartitionData;
use datafusion::logical_expr::{Expr as DfExpr, LogicalPlan, LogicalPlanBuilder, Volatility};
use sqlparser::ast::{self, SetExpr, Statement};
use std::sync::Arc;

/// A query of WITH that is read twice stands at each place with the conditions around it, and its rows leave as they come, up to this size: no query
/// reaches it but by parts that each read the one before twice, which would double it each.
const NODES_MAX: usize = 512;

/// A change of several in a statement, or a query that locks rows.
pub struct Part {
    /// `None`: the action needs none.
    pub plan: Option<LogicalPlan>,
    pub action: Action,
    /// Where those after it read what it returns.
    pub into: Option<PartitionData>,
    /// What WITH calls it.
    pub name: Option<String>,
}

impl Part {
    /// Lets the parts after it read what it returned.
    pub fn give(&self, rows: &RowSet) -> Result<(), SqlError> {
        let Some(into) = &self.into else { return Ok(()) };
        let columns = rows.columns();
        let mut fields = Vec::with_capacity(columns.len());
        let mut arrays = Vec::with_capacity(columns.len());
        for (at, column) in columns.iter().enumerate() {
            let mut cells = Writer::new(column.ty, rows.len());
            for row in 0..rows.len() {
                cells.push(&rows.get(row, at))?;
            }
            fields.push(field(at, column));
            arrays.push(cells.finish());
        }
        let batch = RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), arrays);
        let batch = batch.map_err(|error| super::fault::sql_error(error.into()))?;
        let mut shared = into.try_write().expect("invariant: no plan that reads it has started");
        *shared = vec![batch];
        Ok(())
    }
}

/// Whether it may give other rows each time.
pub(super) fn is_volatile(plan: &LogicalPlan) -> Bind<bool> {
    let mut found = false;
    df(plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(|inner| Ok(is_changing(inner)))?;
            Ok(TreeNodeRecursion::Continue)
        })
    }))?;
    for within in plans_within(plan) {
        found = found || is_volatile(&within)?;
    }
    Ok(found)
}

/// How many nodes it has; not counted beyond [`NODES_MAX`] and one more.
fn count_nodes(plan: &LogicalPlan) -> Bind<usize> {
    let mut nodes = 0;
    df(plan.apply_with_subqueries(|_| {
        nodes += 1;
        Ok(if nodes > NODES_MAX { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    }))?;
    for within in plans_within(plan) {
        if nodes > NODES_MAX {
            break;
        }
        nodes += count_nodes(&within)?;
    }
    Ok(nodes)
}

fn is_changing(expr: &DfExpr) -> bool {
    match expr {
        DfExpr::ScalarFunction(call) => {
            call.func.signature().volatility == Volatility::Volatile && call.func.name() != super::sets::LISTED
        }
        _ => false,
    }
}

fn field(at: usize, column: &Column) -> Field {
    Field::new(format!("v{at}"), data_type(column.ty), true)
}

impl Planner<'_> {
    /// A query, or a change behind WITH, as a whole statement.
    pub fn statement(&self, binder: &mut Binder<'_>, query: &ast::Query) -> Bind<(Rel, Action)> {
        if let Some(with) = &query.with {
            self.with(binder, with, (query, true))?;
        }
        if is_change(query) {
            return match query.body.as_ref() {
                SetExpr::Insert(change)
                | SetExpr::Update(change)
                | SetExpr::Delete(change)
                | SetExpr::Merge(change) => self.change(binder, change),
                _ => refuse("this change"),
            };
        }
        let rest = ast::Query { with: None, ..query.clone() };
        if !rest.locks.is_empty() {
            return self.locked(binder, &rest);
        }
        self.is_outermost.set(true);
        let rel = self.query(binder, if query.with.is_some() { &rest } else { query })?;
        let columns = columns_of(&rel.columns);
        Ok((rel, Action::Give(columns)))
    }

    /// INSERT, UPDATE, DELETE or MERGE.
    pub fn change(&self, binder: &mut Binder<'_>, statement: &Statement) -> Bind<(Rel, Action)> {
        match statement {
            Statement::Insert(insert) => self.insert(binder, insert),
            Statement::Update(update) => self.update(binder, update),
            Statement::Delete(delete) => self.delete(binder, delete),
            Statement::Merge(merge) => self.merge(binder, merge),
            other => refuse(other.to_string().split(' ').next().unwrap_or_default()),
        }
    }

    /// A change within WITH; gives what it returns. `None`: nothing.
    pub(super) fn change_within(&self, binder: &mut Binder<'_>, name: &str, query: &ast::Query) -> Bind<Option<Rel>> {
        if query.with.is_some() {
            return refuse("WITH within a change within WITH");
        }
        let (SetExpr::Insert(change) | SetExpr::Update(change) | SetExpr::Delete(change)) = query.body.as_ref() else {
            return refuse("MERGE not supported in WITH query");
        };
        let (rel, action) = self.change(binder, change)?;
        let columns = action.columns();
        let (returned, into) = match action.returns() {
            false => (None, None),
            true => {
                let (rel, into) = self.returned_later(name, &columns)?;
                (Some(rel), Some(into))
            }
        };
        self.parts.borrow_mut().push(Part { plan: Some(rel.plan), action, into, name: Some(name.to_owned()) });
        Ok(returned)
    }

    /// A query within WITH. Where each reading could have other rows it is run once, before all that reads it; `is_fixed`: it is about no row around
    /// the query that WITH stands before.
    pub(super) fn query_within(&self, cte: &ast::Cte, rel: Rel, query: &ast::Query, is_fixed: bool) -> Bind<Rel> {
        let name = &fold(&cte.alias.name);
        let is_asked = cte.materialized == Some(ast::CteAsMaterialized::Materialized);
        let is_cut = cte.query.limit_clause.is_some() || cte.query.fetch.is_some();
        let is_shared = readings(query, name) > 1;
        let is_once =
            is_shared && (is_asked || is_cut || cte.materialized.is_none() && count_nodes(&rel.plan)? > NODES_MAX);
        let is_changing = is_volatile(&rel.plan)?;
        match is_fixed {
            true if is_changing && readings(query, name) > 0 || is_once => {}
            false if is_changing && is_shared => {
                return refuse("a WITH query with other rows each time that is about a row around it and read twice");
            }
            true | false => return Ok(rel),
        }
        let columns = columns_of(&rel.columns);
        let (kept, into) = self.returned_later(name, &columns)?;
        let action = Action::Give(columns);
        self.parts.borrow_mut().push(Part {
            plan: Some(rel.plan),
            action,
            into: Some(into),
            name: Some(name.to_owned()),
        });
        Ok(kept)
    }

    /// A relation whose rows come when the change before it was applied.
    pub(super) fn returned_later(&self, name: &str, columns: &[Column]) -> Bind<(Rel, PartitionData)> {
        let fields: Vec<Field> = columns.iter().enumerate().map(|(at, column)| field(at, column)).collect();
        let table = df(MemTable::try_new(Arc::new(ArrowSchema::new(fields)), vec![Vec::new()]))?;
        let into = table.batches[0].clone();
        let relation = TableReference::bare(self.unique(name));
        let plan = df(LogicalPlanBuilder::scan(relation, provider_as_source(Arc::new(table)), None))?;
        let plan = df(plan.build())?;
        let given = plan.schema().columns().into_iter().map(DfExpr::Column);
        let outputs = given.zip(columns.iter().map(|column| output(column.name.clone(), column.ty))).collect();
        Ok((self.project(plan, outputs, false)?, into))
    }
}
