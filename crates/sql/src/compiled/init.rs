//! How does a statement use what a query of its own gives, where that is the same for every row? The query runs first, once, and what it comes to
//! is one more parameter.
//!
//! 1. A query may use the parameters of those before it. Each runs whether its value is needed or not.
//! 2. They see what the statement sees. What they lock is locked when the statement runs: so a worker takes the next job of a queue.

use super::query::{self, Query};
use super::{Halt, Run};
use crate::error::SqlError;
use crate::route::Plan;
use crate::rows::RowSet;
use crate::value::{Datum, array_datum};
use freshet_engine::schema::Type;

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
    /// The value of the only row, or null.
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
            parameters.push(plan.gives.of(&rows)?);
        }
        Ok(parameters)
    }
}

impl Gives {
    fn of(self, rows: &RowSet) -> Result<Datum, SqlError> {
        Ok(match self {
            Gives::Scalar if rows.len() > 1 => {
                let message = "more than one row returned by a subquery used as an expression";
                return Err(SqlError::new("21000", message));
            }
            Gives::Scalar if rows.len() == 1 => Datum::from(rows.get(0, 0)),
            Gives::Scalar => Datum::Null,
            Gives::Exists => Datum::Bool(!rows.is_empty()),
            Gives::Array(element) => {
                array_datum(element, (0..rows.len()).map(|row| Datum::from(rows.get(row, 0))).collect())
            }
        })
    }
}
