//! How is a statement run that is not compiled? On DataFusion, over the statement's snapshot, with PostgreSQL's meaning.
//!
//! | module | question |
//! |---|---|
//! | `cells` | how values travel in Arrow |
//! | `fault` | what a client hears of DataFusion's errors |
//! | `compute` | how it computes what PostgreSQL defines |
//! | `fixed` | how arithmetic on decimals is done for whole columns |
//! | `fold` | how sums and averages are taken |
//! | `sums` | how those of decimals and integers are taken fast |
//! | `gather` | how aggregates are taken that need all their rows |
//! | `apply` | how a subquery is run for each row around it |
//! | `scan` | how it reads a table |
//! | `series` | `generate_series` |
//! | `convert` | how a bound expression becomes one of DataFusion's |
//! | `grouping` | which groups ROLLUP and its like ask for |
//! | `window` | what window functions see |
//! | `plan` | what a query reads |
//! | `from` | what FROM, WITH, INTERSECT and EXCEPT read |
//! | `change` | how rows are changed by what a query finds |
//! | `estimate` | how many rows a plan gives |
//! | `order` | in which order tables are joined |
//! | `run` | where and how a plan runs |
//! | `exchange` | how its parts run on all cores |
//! | `interrupt` | how a query is stopped |
//!
//! A statement is bound by the compiled road's binder and computed by its evaluator; DataFusion joins, groups, sorts, ranks and combines
//! (`plan`). It is planned anew for every run, with the parameters as literals: what a plan costs is small against what such
//! statements do, and an index is chosen by values.

mod apply;
mod cells;
mod change;
mod compute;
mod convert;
mod estimate;
mod exchange;
mod fault;
mod fixed;
mod fold;
mod from;
mod gather;
mod grouping;
mod interrupt;
mod order;
mod plan;
mod run;
mod scan;
mod series;
mod sets;
mod sums;
mod window;

use crate::bind::{Binder, Refusal};
use crate::compiled::Halt;
use crate::error::SqlError;
use crate::expr::Env;
use crate::road::{Planned, Progress, Request, Road, RoadContext, Running};
use crate::rows::{Column, RowSet};
use crate::value::Datum;
use change::{Action, columns_of};
use datafusion::logical_expr::LogicalPlan;
use freshet_engine::catalog::Schema;
use freshet_engine::engine::Kind;
use freshet_engine::schema::Type;
use freshet_engine::txn::Reader;
use plan::Planner;
use sqlparser::ast::Statement;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The road to DataFusion.
pub struct DataFusion;

impl Road for DataFusion {
    fn plan(&self, request: &Request<'_>) -> Result<Arc<dyn Planned>, SqlError> {
        let env = Env::default();
        let ways = Ways::default();
        let mut parameters = request.declared.to_vec();
        // Types are found by binding; values are null until there are some.
        let (bound, parameters) = loop {
            let nulls = vec![Datum::Null; parameters.len()];
            let (sql, statement) = (request.sql, request.statement);
            let bound = bind(sql, statement, request.schema, &parameters, &nulls, &env, None, &ways);
            match bound {
                Ok((bound, types)) => break (bound, types),
                // A parameter that nothing declared was met: there is one more than thought.
                Err(Unbound::Parameters(count)) if count > parameters.len() => parameters.resize(count, None),
                Err(Unbound::Parameters(_)) => return Err(SqlError::new("42P02", "there is no such parameter")),
                Err(Unbound::Error(error)) => return Err(error),
            }
        };
        Ok(Arc::new(Shared(Arc::new(DataFusionStatement {
            sql: request.sql.to_owned(),
            statement: request.statement.clone(),
            schema: request.schema.clone(),
            columns: bound.action.columns(),
            command: bound.action.command(),
            per_row: ways.per_row.get(),
            is_wide: AtomicBool::new(false),
            parameters,
        }))))
    }
}

/// A statement bound to parameters: what is read, and what becomes of it.
struct Bound {
    plan: LogicalPlan,
    action: Action,
}

/// In which of its ways a statement is planned.
#[derive(Default)]
struct Ways {
    /// Correlated subqueries run for each row around them.
    per_row: Cell<bool>,
    /// Sums are taken of numbers of any size (`fixed`).
    is_wide: bool,
}

enum Unbound {
    Error(SqlError),
    /// The statement has this many parameters.
    Parameters(usize),
}

#[expect(clippy::too_many_arguments, reason = "a statement, what it stands in, and what is known of it")]
fn bind(
    sql: &str,
    statement: &Statement,
    schema: &Arc<Schema>,
    declared: &[Option<Type>],
    parameters: &[Datum],
    env: &Env,
    reader: Option<Reader>,
    ways: &Ways,
) -> Result<(Bound, Vec<Type>), Unbound> {
    let highest = highest_parameter(statement);
    if highest > parameters.len() {
        return Err(Unbound::Parameters(highest));
    }
    let mut planner = Planner::new(parameters, env, reader);
    planner.per_row = ways.per_row.get();
    planner.is_wide = ways.is_wide;
    let mut binder = Binder::new(sql, schema, declared);
    binder.beyond = Some(&planner);
    let bound = match statement {
        Statement::Query(query) => planner.query(&mut binder, query).map(|rel| {
            let columns = columns_of(&rel.columns);
            (rel, Action::Give(columns))
        }),
        Statement::Insert(insert) => planner.insert(&mut binder, insert),
        Statement::Update(update) => planner.update(&mut binder, update),
        Statement::Delete(delete) => planner.delete(&mut binder, delete),
        other => plan::refuse(other.to_string().split(' ').next().unwrap_or_default()),
    };
    if !ways.per_row.get() && planner.reader.is_none() && planner.is_correlated.get() {
        // What DataFusion cannot join runs for each row.
        let can_join = !planner.is_deep.get() && bound.as_ref().is_ok_and(|(rel, _)| run::can_run(&rel.plan));
        if !can_join {
            ways.per_row.set(true);
            return bind(sql, statement, schema, declared, parameters, env, None, ways);
        }
    }
    match bound {
        Ok((rel, action)) => Ok((Bound { plan: rel.plan, action }, binder.parameter_types())),
        Err(Refusal::Error(error)) => Err(Unbound::Error(error)),
        Err(Refusal::NotCompiled { what, position }) => Err(Unbound::Error(SqlError::unsupported(what).at(position))),
    }
}

/// The highest `$n` of a statement.
fn highest_parameter(statement: &Statement) -> usize {
    let mut highest = 0;
    let _ = sqlparser::ast::visit_expressions(statement, |expr| {
        if let sqlparser::ast::Expr::Value(value) = expr
            && let sqlparser::ast::Value::Placeholder(name) = &value.value
            && let Some(number) = name.strip_prefix('$').and_then(|n| n.parse::<usize>().ok())
        {
            highest = highest.max(number.min(usize::from(u16::MAX)));
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
    highest
}

/// A statement of this road. Its plan is made for each run.
#[derive(Debug)]
struct DataFusionStatement {
    sql: String,
    statement: Statement,
    schema: Arc<Schema>,
    parameters: Vec<Type>,
    columns: Arc<[Column]>,
    command: &'static str,
    /// Correlated subqueries run for each row around them.
    per_row: bool,
    /// A run found that its sums do not fit at a fixed scale.
    is_wide: AtomicBool,
}

impl DataFusionStatement {
    fn bind(&self, parameters: &[Datum], env: &Env, reader: Option<Reader>) -> Result<Bound, SqlError> {
        let declared: Vec<Option<Type>> = self.parameters.iter().copied().map(Some).collect();
        let ways = Ways { per_row: Cell::new(self.per_row), is_wide: self.is_wide.load(Ordering::Relaxed) };
        match bind(&self.sql, &self.statement, &self.schema, &declared, parameters, env, reader, &ways) {
            Ok((bound, _)) => Ok(bound),
            Err(Unbound::Error(error)) => Err(error),
            Err(Unbound::Parameters(_)) => Err(SqlError::new("08P01", "a parameter has no value")),
        }
    }
}

/// The statement, which its runs hold too.
#[derive(Debug)]
struct Shared(Arc<DataFusionStatement>);

impl Planned for Shared {
    fn parameters(&self) -> Vec<Type> {
        self.0.parameters.clone()
    }

    fn columns(&self) -> Arc<[Column]> {
        self.0.columns.clone()
    }

    fn command(&self) -> &'static str {
        self.0.command
    }

    fn writes(&self) -> bool {
        self.0.writes()
    }

    fn explain(&self) -> Vec<String> {
        let nulls = vec![Datum::Null; self.0.parameters.len()];
        let shown = self.0.bind(&nulls, &Env::default(), None).and_then(|bound| run::explain(&bound.plan));
        shown.unwrap_or_else(|error| vec![format!("cannot be planned: {error}")])
    }

    fn start(&self, context: &mut RoadContext<'_>) -> Result<Box<dyn Running>, SqlError> {
        if self.writes() && context.session.is_read_only() {
            let message = format!("cannot execute {} in a read-only transaction", self.command());
            return Err(SqlError::new("25006", message));
        }
        let query = self.0.run(context)?;
        Ok(Box::new(query))
    }
}

impl DataFusionStatement {
    fn writes(&self) -> bool {
        self.command != "SELECT"
    }

    fn run(self: &Arc<Self>, context: &mut RoadContext<'_>) -> Result<InProgress, SqlError> {
        let reader = context.session.reader();
        let bound = self.bind(context.parameters, context.env, Some(reader))?;
        let memory_mb = context.env.settings.query_memory_mb();
        let parts = match (&bound.action, context.env.settings.parallel_workers()) {
            (_, 0) => run::Parts::One,
            (Action::Give(_), _) => run::Parts::of(&bound.plan),
            // Rows are changed in the order in which one scan finds them.
            _ => run::Parts::One,
        };
        let query = run::Query::start(bound.plan, parts, memory_mb, context.engine.account(Kind::Queries))?;
        Ok(InProgress { query, action: bound.action, statement: self.clone() })
    }
}

/// A run of a statement.
struct InProgress {
    query: run::Query,
    action: Action,
    statement: Arc<DataFusionStatement>,
}

impl Running for InProgress {
    fn step(&mut self, context: &mut RoadContext<'_>, rows: &mut RowSet) -> Result<Progress, SqlError> {
        let Some(result) = self.query.take() else {
            return Ok(Progress::Pending(Box::pin(self.query.ready())));
        };
        // Its reads ended when the snapshot was: the client hears why.
        context.session.check_snapshot()?;
        let collected = match result {
            Err(error) if error.sqlstate == fixed::TOO_WIDE => {
                self.statement.is_wide.store(true, Ordering::Relaxed);
                *self = self.statement.clone().run(context)?;
                return Ok(Progress::Pending(Box::pin(self.query.ready())));
            }
            result => result?,
        };
        match change::apply(&self.action, &collected.batches, context, rows) {
            Ok(count) => Ok(Progress::Done(count)),
            Err(Halt::Wait(token)) => Ok(Progress::Restart(token)),
            Err(Halt::TooLong) => unreachable!("invariant: a run of this road has no limit"),
            Err(Halt::Error(error)) => Err(error),
        }
    }
}
