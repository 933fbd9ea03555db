//! How does a statement use what a query of its own gives, where that is the same for every row? The query runs first, once, and what it comes to
//! is one more parameter.
//!
//! 1. A query may use the parameters of those before it. Each runs whether its value is needed or not.
//! 2. They see what the statement sees. What they lock is locked when the statement runs: so a worker takes the next job of a queue.
//!
//! Of a row in the way of an INSERT queries may be asked that are about it ([`RowQueries`]): then its columns are parameters, too.

use super::access::Access;
use super::query::{self, Query};
use super::{Halt, Run, Scratch};
use crate::error::SqlError;
use crate::expr::{Expr, evaluate};
use crate::route::Plan;
use crate::rows::RowSet;
use crate::value::{Datum, array_datum, second_row};
use freshet_engine::catalog::{Table, TableId};
use freshet_engine::schema::Type;
use std::sync::Arc;

/// Queries, and the statement that uses what they come to.
#[derive(Debug)]
pub struct Init {
    pub plans: Vec<InitPlan>,
    /// The number of the first one's value among the parameters.
    pub first: u16,
    pub then: Plan,
}

#[derive(Debug)]
pub struct InitPlan {
    pub query: Query,
    pub gives: Gives,
}

/// What a query's rows come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gives {
    /// The values of the only row, or nulls.
    Scalar,
    /// Whether there is a row.
    Exists,
    /// All values, which are of this type.
    Array(Type),
}

impl Init {
    /// Whether one of the queries locks rows.
    pub fn locks(&self) -> bool {
        self.plans.iter().any(|plan| plan.query.locks_rows())
    }

    /// Whether the other road does better: see [`Query::is_heavy`].
    pub fn is_heavy(&self) -> bool {
        let Plan::Select(then) = &self.then else { return false };
        let heavy = |query: &Query| query.is_heavy();
        then.locks.is_empty() && !self.locks() && (heavy(then) || self.plans.iter().any(|plan| heavy(&plan.query)))
    }

    /// The statement's parameters, and what the queries come to.
    pub fn parameters(&self, run: &mut Run<'_>) -> Result<Vec<Datum>, Halt> {
        let mut parameters = run.parameters.to_vec();
        parameters.resize(usize::from(self.first), Datum::Null);
        for plan in &self.plans {
            let mut rows = RowSet::default();
            run.env.engine.iter().for_each(|engine| rows.charge_to(engine));
            query::run(&plan.query, &mut run.with_parameters(&parameters), &mut rows)?;
            parameters.push(plan.gives.of(&rows, 0)?);
        }
        Ok(parameters)
    }
}

/// Queries that are asked anew of each row, as what one is about goes into its parameters.
#[derive(Debug)]
pub struct RowQueries {
    /// How many parameters there are with these.
    pub count: u16,
    /// What of the row they use, by the parameters' numbers.
    pub arguments: Vec<(u16, Expr)>,
    /// For the condition, which is asked first.
    pub of_condition: Vec<RowQuery>,
    pub of_sets: Vec<RowQuery>,
}

#[derive(Debug)]
pub struct RowQuery {
    /// The parameters that are its value: of a row, one for each column.
    pub numbers: Vec<u16>,
    pub plan: InitPlan,
}

impl RowQueries {
    /// The statement's parameters, and what the queries use of the rows at hand.
    pub fn parameters(&self, tables: &[Option<Arc<Table>>], run: &Run<'_>) -> Result<Vec<Datum>, Halt> {
        let mut parameters = run.parameters.to_vec();
        parameters.resize(usize::from(self.count), Datum::Null);
        for (number, column) in &self.arguments {
            parameters[usize::from(*number)] = Datum::from(evaluate(column, &run.frame(tables))?.value());
        }
        Ok(parameters)
    }

    /// Adds what the queries come to.
    pub fn ask(&self, queries: &[RowQuery], parameters: &mut [Datum], run: &mut Run<'_>) -> Result<(), Halt> {
        for RowQuery { numbers, plan } in queries {
            let mut rows = RowSet::default();
            run.env.engine.iter().for_each(|engine| rows.charge_to(engine));
            // The rows at hand stay in the statement's own.
            let mut scratch = Scratch::of_thread();
            let inner = &mut Run::new(
                &mut *run.engine,
                (parameters, run.env),
                &mut scratch,
                &mut *run.interrupt,
                &mut *run.constraints,
            );
            let asked = query::run(&plan.query, inner, &mut rows);
            scratch.leave_to_thread();
            asked?;
            for (column, number) in numbers.iter().enumerate() {
                parameters[usize::from(*number)] = plan.gives.of(&rows, column)?;
            }
        }
        Ok(())
    }
}

/// Whether a query reads the table.
pub fn reads(query: &Query, table: TableId) -> bool {
    let is_in = |access: &Access| matches!(access, Access::Derived(inner) if reads(inner, table));
    query.tables.iter().flatten().any(|read| read.id == table) || query.steps.iter().any(|step| is_in(&step.access))
}

impl Gives {
    fn of(self, rows: &RowSet, column: usize) -> Result<Datum, SqlError> {
        Ok(match self {
            Gives::Scalar if rows.len() > 1 => return Err(second_row()),
            Gives::Scalar if rows.len() == 1 => Datum::from(rows.get(0, column)),
            Gives::Scalar => Datum::Null,
            Gives::Exists => Datum::Bool(!rows.is_empty()),
            Gives::Array(element) => {
                array_datum(element, (0..rows.len()).map(|row| Datum::from(rows.get(row, column))).collect())
            }
        })
    }
}
