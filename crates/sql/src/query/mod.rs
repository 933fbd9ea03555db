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
//! | `per_row` | which plan it has for all of them |
//! | `scan` | how it reads a table |
//! | `first` | where the first rows of a sort are found without sorting |
//! | `series` | `generate_series` |
//! | `convert` | how a bound expression becomes one of DataFusion's |
//! | `grouping` | which groups ROLLUP and its like ask for |
//! | `window` | what window functions see |
//! | `frame` | which rows a window's frame names |
//! | `ranged` | what functions give over ranges with offsets, and over frames that leave out rows |
//! | `shift` | `lag` and `lead` by a column |
//! | `tile` | `ntile` by a column |
//! | `plan` | what a query reads |
//! | `called` | which functions stand in FROM |
//! | `from` | what FROM, WITH, INTERSECT and EXCEPT read |
//! | `recursion` | what the terms of WITH RECURSIVE may be |
//! | `walks` | what SEARCH and CYCLE add to a recursion |
//! | `iterate` | how a recursion runs that DataFusion's own does not run |
//! | `change` | how rows are changed by what a query finds |
//! | `lock` | how rows are locked that a query finds |
//! | `merge` | what MERGE does with each row |
//! | `with` | what changes within WITH do |
//! | `estimate` | how many rows a plan gives |
//! | `order` | in which order tables are joined |
//! | `rules` | which of DataFusion's logical rules are mended |
//! | `constants` | what DataFusion must not know to be constant |
//! | `sorted` | which sorts of subqueries stay |
//! | `run` | where and how a plan runs |
//! | `template` | which plans are made once for many runs |
//! | `lookup` | when a join looks its rows up |
//! | `asked` | which groups of a subquery somebody asks for |
//! | `lazy` | for which rows the right side of AND and OR is computed |
//! | `exchange` | how its parts run on all cores |
//! | `explain` | what EXPLAIN shows of a plan |
//! | `interrupt` | how a query is stopped |
//!
//! A statement is bound by the compiled road's binder and computed by its evaluator; DataFusion joins, groups, sorts, ranks and combines
//! (`plan`). A first run is planned with the parameters as literals; those that follow share a plan where they can (`template`), in which scans
//! still find their indexes by a run's values.

mod apply;
mod asked;
mod called;
mod cells;
mod change;
mod compute;
mod constants;
mod convert;
mod estimate;
mod exchange;
mod explain;
mod fault;
mod first;
mod fixed;
mod fold;
mod frame;
mod from;
mod gather;
mod grouping;
mod interrupt;
mod iterate;
mod lazy;
mod lock;
mod lookup;
mod merge;
mod order;
mod per_row;
mod plan;
mod ranged;
mod recursion;
mod replace;
mod rules;
mod run;
mod scan;
mod series;
mod sets;
mod shift;
mod sorted;
mod sums;
mod template;
mod text;
mod tile;
mod walks;
mod window;
mod with;

use crate::bind::expr::SessionLiteral;
use crate::bind::names::{enter_database, tables_below};
use crate::bind::{Binder, Refusal};
use crate::catalog::Known;
use crate::compiled::Halt;
use crate::error::SqlError;
use crate::explain::Options;
use crate::expr::Env;
use crate::road::{Planned, Progress, Request, Road, RoadContext, Running};
use crate::rows::{Column, RowSet};
use crate::unwind::reading;
use crate::value::{Clock, Datum};
use change::Action;
use datafusion::arrow::array::RecordBatch;
use datafusion::logical_expr::LogicalPlan;
use explain::Explaining;
use freshet_engine::catalog::Schema;
use freshet_engine::engine::Kind;
use freshet_engine::schema::{Type, Value};
use freshet_engine::txn::{Isolation, Reader, Session, Stop, WaitToken};
use plan::Planner;
use sqlparser::ast::Statement;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use template::{Choice, Facts, Holes, Template, Templates};
use with::Part;

/// The road to DataFusion.
pub struct DataFusion;

impl Road for DataFusion {
    fn plan(&self, request: &Request<'_>) -> Result<Arc<dyn Planned>, SqlError> {
        reading(|| self.planned(request))
    }
}

impl DataFusion {
    fn planned(&self, request: &Request<'_>) -> Result<Arc<dyn Planned>, SqlError> {
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
            change: bound.parts.iter().map(|part| part.action.command()).find(|command| *command != "SELECT"),
            locks: bound.parts.iter().map(|part| &part.action).chain([&bound.action]).any(Action::locks),
            uses_sequences: bound.uses_sequences,
            session_literals: bound.session_literals,
            per_row: AtomicBool::new(ways.per_row.get()),
            is_correlated: ways.is_correlated.get(),
            is_wide: AtomicBool::new(false),
            templates: Templates::default(),
            parameters,
        }))))
    }
}

/// A statement bound to parameters: what is read, and what becomes of it.
struct Bound {
    /// The changes within WITH, which come first.
    parts: Vec<Part>,
    plan: LogicalPlan,
    action: Action,
    uses_sequences: bool,
    uses_clock: bool,
    session_literals: Vec<SessionLiteral>,
    /// Of a plan that is kept: its parameters.
    holes: Option<Holes>,
}

/// In which of its ways a statement is planned.
#[derive(Default)]
struct Ways {
    /// Correlated subqueries run for each row around them.
    per_row: Cell<bool>,
    /// Some of them are left to DataFusion: found by binding.
    is_correlated: Cell<bool>,
    /// Sums are taken of numbers of any size (`fixed`).
    is_wide: bool,
    /// Parameters stay open: the plan is kept.
    is_kept: bool,
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
    if !env.database.is_empty() {
        // A session's: it runs, on whatever thread.
        enter_database(&env.database);
    }
    let mut planner = Planner::new(parameters, env, reader);
    planner.per_row = ways.per_row.get();
    planner.is_wide = ways.is_wide;
    if ways.is_kept {
        let types: Vec<Type> = declared.iter().map(|ty| ty.unwrap_or(Type::Text)).collect();
        planner.holes = Some(Holes::new(&types));
    }
    let mut binder = Binder::new(sql, schema, declared);
    binder.beyond = Some(&planner);
    let bound = match statement {
        Statement::Query(query) => planner.statement(&mut binder, query),
        other => planner.change(&mut binder, other),
    };
    let parts = planner.parts.take();
    ways.is_correlated.set(planner.is_correlated.get());
    if !ways.per_row.get() && planner.reader.is_none() && planner.is_correlated.get() {
        // What DataFusion cannot join runs for each row.
        let is_joined = parts.iter().all(|part| part.plan.as_ref().is_none_or(run::can_run));
        let can_join =
            !planner.is_deep.get() && is_joined && bound.as_ref().is_ok_and(|(rel, _)| run::can_run(&rel.plan));
        if !can_join {
            ways.per_row.set(true);
            return bind(sql, statement, schema, declared, parameters, env, None, ways);
        }
    }
    match bound {
        Ok((rel, action)) => {
            let uses_sequences = binder.uses_sequences;
            let (uses_clock, types) = (binder.uses_clock, binder.parameter_types());
            let session_literals = std::mem::take(&mut binder.session_literals);
            let holes = planner.holes.take();
            Ok((Bound { parts, plan: rel.plan, action, uses_sequences, uses_clock, session_literals, holes }, types))
        }
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
    /// The first change within WITH.
    change: Option<&'static str>,
    /// Rows are locked.
    locks: bool,
    /// Correlated subqueries run for each row around them. They do too once DataFusion could not join them in a run: whether it can may depend on
    /// the parameters' values, for a condition that no row meets leaves nothing to join.
    per_row: AtomicBool,
    /// There are some that were left to DataFusion.
    is_correlated: bool,
    uses_sequences: bool,
    session_literals: Vec<SessionLiteral>,
    /// A run found that its sums do not fit at a fixed scale.
    is_wide: AtomicBool,
    templates: Templates,
}

impl DataFusionStatement {
    fn bind(&self, parameters: &[Datum], env: &Env, reader: Option<Reader>) -> Result<Bound, SqlError> {
        let is_wide = self.is_wide.load(Ordering::Relaxed);
        let ways = Ways { per_row: Cell::new(self.is_per_row()), is_wide, ..Ways::default() };
        self.bind_in(&ways, parameters, env, reader)
    }

    fn bind_in(&self, ways: &Ways, parameters: &[Datum], env: &Env, reader: Option<Reader>) -> Result<Bound, SqlError> {
        let declared: Vec<Option<Type>> = self.parameters.iter().copied().map(Some).collect();
        let bind = || bind(&self.sql, &self.statement, &self.schema, &declared, parameters, env, reader, ways);
        reading(|| match bind() {
            Ok((bound, _)) => Ok(bound),
            Err(Unbound::Error(error)) => Err(error),
            Err(Unbound::Parameters(_)) => Err(SqlError::new("08P01", "a parameter has no value")),
        })
    }

    fn is_per_row(&self) -> bool {
        self.per_row.load(Ordering::Relaxed)
    }

    /// Whether what failed may end well with its subqueries run for each row, if that is not how it was planned; from now on they are.
    fn leaves_joining(&self, error: &SqlError, was_per_row: bool) -> bool {
        let may_help = error.sqlstate == "0A000" && self.is_correlated && !was_per_row;
        if may_help {
            self.per_row.store(true, Ordering::Relaxed);
            self.templates.give_up();
        }
        may_help
    }

    /// Says what will be read, where somebody wants to know; gives what to wait for while a table is barred.
    fn enter_read(&self, session: &mut Session) -> Result<Option<WaitToken>, SqlError> {
        if session.isolation() != Isolation::Serializable && !session.has_barred_tables() {
            return Ok(None);
        }
        for table in tables_below(&self.statement, &self.schema) {
            session.note_table(&table);
            match session.read_table(&table) {
                Ok(()) => {}
                Err(Stop::Wait(token)) => return Ok(Some(token)),
                Err(Stop::Error(error)) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}

/// A statement that cannot begin yet.
struct Barred(Option<WaitToken>);

impl Running for Barred {
    fn step(&mut self, _: &mut RoadContext<'_>, _: &mut RowSet) -> Result<Progress, SqlError> {
        Ok(Progress::Restart(self.0.take().unwrap_or_else(WaitToken::ready)))
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

    fn locks(&self) -> bool {
        self.0.locks
    }

    fn uses_sequences(&self) -> bool {
        self.0.uses_sequences
    }

    fn session_literals(&self) -> Vec<SessionLiteral> {
        self.0.session_literals.clone()
    }

    fn explain(&self, context: &mut RoadContext<'_>, options: &Options) -> Result<Box<dyn Running>, SqlError> {
        if options.analyze {
            return self.0.enter(context, Some(*options));
        }
        Ok(Box::new(self.0.shown(context, options)?))
    }

    fn start(&self, context: &mut RoadContext<'_>) -> Result<Box<dyn Running>, SqlError> {
        self.0.enter(context, None)
    }
}

impl DataFusionStatement {
    /// The command that decides whether anything is changed.
    fn changing(&self) -> &'static str {
        self.change.unwrap_or(self.command)
    }

    fn writes(&self) -> bool {
        self.changing() != "SELECT"
    }

    /// Starts a run; `explaining`: to measure it.
    fn enter(
        self: &Arc<Self>,
        context: &mut RoadContext<'_>,
        explaining: Option<Options>,
    ) -> Result<Box<dyn Running>, SqlError> {
        if self.writes() && context.session.refuses_changes() {
            let message = format!("cannot execute {} in a read-only transaction", self.changing());
            return Err(SqlError::new("25006", message));
        }
        match self.enter_read(context.session)? {
            Some(token) => Ok(Box::new(Barred(Some(token)))),
            None => Ok(Box::new(self.run(context, explaining)?)),
        }
    }

    /// The parts of a run, the statement itself last.
    fn parts(&self, context: &mut RoadContext<'_>) -> Result<VecDeque<Part>, SqlError> {
        let reader = match self.change {
            None => context.session.reader(),
            Some(_) => context.session.reader_before_changes(),
        };
        let Bound { parts, plan, action, .. } = self.bind(context.parameters, context.env, Some(reader))?;
        count_planning(context.env);
        let last = Part { plan: Some(plan), action, into: None, name: None };
        Ok(parts.into_iter().chain([last]).collect())
    }

    fn run(
        self: &Arc<Self>,
        context: &mut RoadContext<'_>,
        explaining: Option<Options>,
    ) -> Result<InProgress, SqlError> {
        let is_wide = self.is_wide.load(Ordering::Relaxed);
        let started = Instant::now();
        if explaining.is_none()
            && let Some(running) = self.run_template(context, is_wide)?
        {
            return Ok(running);
        }
        let was_per_row = self.is_per_row();
        let (first, parts, query, explaining) = match self.started(context, explaining, started, was_per_row) {
            Err(error) if self.leaves_joining(&error, was_per_row) => {
                self.started(context, explaining, started, was_per_row)?
            }
            run => run?,
        };
        let statement = self.clone();
        Ok(InProgress {
            query,
            part: first,
            next: parts,
            follows: false,
            given: 0,
            changed: change::Changed::new(),
            statement,
            is_wide,
            was_per_row,
            explaining,
        })
    }

    /// The first part of a run, those that follow, and the first one's query.
    #[expect(clippy::type_complexity, reason = "what a run is made of")]
    fn started(
        &self,
        context: &mut RoadContext<'_>,
        explaining: Option<Options>,
        started: Instant,
        was_per_row: bool,
    ) -> Result<(Part, VecDeque<Part>, Option<run::Query>, Option<Explaining>), SqlError> {
        let mut parts = self.parts(context)?;
        let first = parts.pop_front().expect("invariant: the statement itself is a part");
        let mut explaining = explaining.map(|options| Explaining::new(options, started));
        let may_be_too_wide = first.plan.as_ref().is_none_or(fixed::may_be_too_wide);
        let giving = match explaining.is_none() && parts.is_empty() {
            true => self.giving(&first.action, context, may_be_too_wide, was_per_row),
            false => run::Giving::Whole,
        };
        let query = start_query(&first, context, explaining.as_mut(), giving)?;
        Ok((first, parts, query, explaining))
    }

    /// How a run that gives rows gives them: in parts only if it cannot turn out that the statement is to be run in another way.
    fn giving(
        &self,
        action: &Action,
        context: &RoadContext<'_>,
        may_be_too_wide: bool,
        is_per_row: bool,
    ) -> run::Giving {
        let only_gives = matches!(action, Action::Give(_)) && self.change.is_none();
        let may_leave_joining = self.is_correlated && !is_per_row;
        match context.in_parts && only_gives && !may_be_too_wide && !may_leave_joining {
            true => run::Giving::Parts,
            false => run::Giving::Whole,
        }
    }

    /// A run by a plan that is kept; `None`: it is planned for its values.
    fn run_template(
        self: &Arc<Self>,
        context: &mut RoadContext<'_>,
        is_wide: bool,
    ) -> Result<Option<InProgress>, SqlError> {
        let facts = Facts::of(context.env, context.parameters, is_wide);
        let template = match self.templates.choose(&facts) {
            _ if self.is_per_row() => return Ok(None),
            Choice::Plan => return Ok(None),
            Choice::Use(template) => template,
            Choice::Make => match self.template(context, &facts)? {
                Some(template) => template,
                None => return Ok(None),
            },
        };
        let action = template.action.clone();
        let workers = workers_for(&action, template.bound(), context);
        let reader = context.session.reader();
        let filled = template.fill(reader, context.parameters, workers)?;
        let memory_mb = context.env.settings.query_memory_mb();
        let account = context.engine.account(Kind::Queries);
        let reader = context.session.reader();
        let giving = self.giving(&template.action, context, template.may_be_too_wide, false);
        let query = run::Query::start(run::Work::Template(filled), memory_mb, account, reader, giving)?;
        Ok(Some(InProgress {
            query: Some(query),
            part: Part { plan: None, action, into: None, name: None },
            next: VecDeque::new(),
            follows: false,
            given: 0,
            changed: change::Changed::new(),
            statement: self.clone(),
            is_wide,
            was_per_row: false,
            explaining: None,
        }))
    }

    /// A plan that is kept from now on; `None`: there can be none.
    fn template(&self, context: &mut RoadContext<'_>, facts: &Facts<'_>) -> Result<Option<Arc<Template>>, SqlError> {
        let ways = Ways { is_wide: facts.is_wide, is_kept: true, ..Ways::default() };
        // What is kept knows no session's catalog.
        let clock = Clock { catalog: Known::default(), ..context.env.clock.clone() };
        let env = Env { clock, ..context.env.clone() };
        let reader = context.session.reader();
        let bound = self.bind_in(&ways, context.parameters, &env, Some(reader));
        let made = match bound {
            Ok(Bound { parts, plan, action, uses_sequences: false, uses_clock: false, holes: Some(holes), .. })
                if parts.is_empty() && !action.locks() =>
            {
                // Tables may have been sampled just now.
                let facts = Facts::of(context.env, context.parameters, facts.is_wide);
                let account = context.engine.account(Kind::Statements);
                Template::new(plan, action, holes, &facts, account).map(Arc::new)
            }
            _ => None,
        };
        match &made {
            None => self.templates.give_up(),
            Some(template) => {
                count_planning(context.env);
                self.templates.keep(template);
            }
        }
        Ok(made)
    }

    /// What EXPLAIN tells of a statement that does not run.
    fn shown(&self, context: &mut RoadContext<'_>, options: &Options) -> Result<Shown, SqlError> {
        let was_per_row = self.is_per_row();
        match self.lines(context, options) {
            Err(error) if self.leaves_joining(&error, was_per_row) => self.lines(context, options).map(Shown),
            lines => lines.map(Shown),
        }
    }

    fn lines(&self, context: &mut RoadContext<'_>, options: &Options) -> Result<Vec<String>, SqlError> {
        let mut explaining = Explaining::new(*options, Instant::now());
        for part in self.parts(context)? {
            if let Some(plan) = &part.plan {
                explaining.plan = Some(run::planned(plan, workers_for(&part.action, plan, context))?);
            }
            explaining.finish_part(&part, context.env);
        }
        Ok(explaining.lines())
    }
}

/// The lines of an EXPLAIN of a statement that did not run.
struct Shown(Vec<String>);

impl Running for Shown {
    fn step(&mut self, _: &mut RoadContext<'_>, rows: &mut RowSet) -> Result<Progress, SqlError> {
        give_lines(&self.0, rows)?;
        Ok(Progress::Done(0))
    }
}

fn give_lines(lines: &[String], rows: &mut RowSet) -> Result<(), SqlError> {
    for line in lines {
        rows.push(&Value::Bytes(line.as_bytes()));
        rows.finish_row()?;
    }
    Ok(())
}

/// Counts that a query was planned.
fn count_planning(env: &Env) {
    env.statistics.iter().for_each(|statistics| {
        statistics.plannings.fetch_add(1, Ordering::Relaxed);
    });
}

/// On how many workers a part's query runs.
fn workers_for(action: &Action, plan: &LogicalPlan, context: &RoadContext<'_>) -> run::Parts {
    match (action, context.env.settings.parallel_workers()) {
        (_, 0) => run::Parts::One,
        (Action::Give(_), _) => run::Parts::of(plan),
        // Rows are changed in the order in which one scan finds them.
        _ => run::Parts::One,
    }
}

fn start_query(
    part: &Part,
    context: &mut RoadContext<'_>,
    explaining: Option<&mut Explaining>,
    giving: run::Giving,
) -> Result<Option<run::Query>, SqlError> {
    let Some(plan) = &part.plan else { return Ok(None) };
    let memory_mb = context.env.settings.query_memory_mb();
    let workers = workers_for(&part.action, plan, context);
    let work = match explaining {
        None => run::Work::Plan(Box::new(plan.clone()), workers),
        Some(explaining) => run::Work::Ready(explaining.watch(plan, workers)?),
    };
    let reader = context.session.reader();
    run::Query::start(work, memory_mb, context.engine.account(Kind::Queries), reader, giving).map(Some)
}

/// A run of a statement: its parts one after the other.
struct InProgress {
    /// `None`: the part needs none.
    query: Option<run::Query>,
    part: Part,
    next: VecDeque<Part>,
    /// Changes within WITH came before the part.
    follows: bool,
    /// Rows that parts of the result had.
    given: u64,
    changed: change::Changed,
    statement: Arc<DataFusionStatement>,
    /// The run was planned for sums of any size.
    is_wide: bool,
    /// It was planned with its correlated subqueries run for each row.
    was_per_row: bool,
    /// Of EXPLAIN ANALYZE.
    explaining: Option<Explaining>,
}

impl InProgress {
    /// As `apply`; what EXPLAIN ANALYZE runs gives the lines that tell of it.
    fn apply_or_explain(
        &mut self,
        batches: &[RecordBatch],
        context: &mut RoadContext<'_>,
        rows: &mut RowSet,
    ) -> Result<Option<u64>, Halt> {
        if self.explaining.is_none() {
            return self.apply(batches, context, rows);
        }
        let mut given = RowSet::default();
        given.charge_to(context.engine);
        let count = self.apply(batches, context, &mut given)?;
        if let (Some(_), Some(explaining)) = (count, self.explaining.take()) {
            give_lines(&explaining.lines(), rows)?;
        }
        Ok(count)
    }

    /// Whether the statement, planned in another way, may not meet the error; it is from now on.
    fn is_to_run_again(&self, error: &SqlError) -> bool {
        if self.given > 0 {
            return false;
        }
        if error.sqlstate == fixed::TOO_WIDE && !self.is_wide {
            self.statement.is_wide.store(true, Ordering::Relaxed);
            return true;
        }
        self.statement.leaves_joining(error, self.was_per_row)
    }

    /// Applies what the part's query gave; `None`: another part follows.
    fn apply(
        &mut self,
        batches: &[RecordBatch],
        context: &mut RoadContext<'_>,
        rows: &mut RowSet,
    ) -> Result<Option<u64>, Halt> {
        if let Some(explaining) = &mut self.explaining {
            explaining.finish_part(&self.part, context.env);
        }
        let Some(next) = self.next.pop_front() else {
            let count = change::apply(&self.part.action, batches, &mut self.changed, context, rows)?;
            change::finish(&self.part.action, context, self.follows)?;
            return Ok(Some(count));
        };
        let mut given = RowSet::default();
        given.charge_to(context.engine);
        change::apply(&self.part.action, batches, &mut self.changed, context, &mut given)?;
        self.part.give(&given)?;
        self.query = start_query(&next, context, self.explaining.as_mut(), run::Giving::Whole)?;
        self.part = next;
        self.follows = true;
        Ok(None)
    }
}

impl Running for InProgress {
    fn step(&mut self, context: &mut RoadContext<'_>, rows: &mut RowSet) -> Result<Progress, SqlError> {
        loop {
            let result = match &self.query {
                None => None,
                Some(query) => match query.take() {
                    Some(result) => Some(result),
                    None => return Ok(Progress::Pending(Box::pin(query.ready()))),
                },
            };
            // Its reads ended when the snapshot was: the client hears why.
            context.session.check_snapshot()?;
            let collected = match result {
                Some(Err(error)) if self.is_to_run_again(&error) => {
                    if self.follows {
                        // What came before is undone.
                        return Ok(Progress::Restart(WaitToken::ready()));
                    }
                    let options = self.explaining.as_ref().map(|explaining| explaining.options);
                    *self = self.statement.clone().run(context, options)?;
                    continue;
                }
                result => result.transpose()?,
            };
            if let Some(part) = collected.as_ref().filter(|collected| !collected.is_last) {
                let given = change::apply(&self.part.action, &part.batches, &mut self.changed, context, rows);
                self.given += given.map_err(|halt| match halt {
                    Halt::Error(error) => error,
                    Halt::Wait(_) | Halt::TooLong => {
                        unreachable!("invariant: rows that are only given wait for nothing")
                    }
                })?;
                return Ok(Progress::Part);
            }
            let batches = collected.as_ref().map_or(&[][..], |collected| &collected.batches);
            match self.apply_or_explain(batches, context, rows) {
                Ok(Some(count)) => return Ok(Progress::Done(self.given + count)),
                Ok(None) => {}
                Err(Halt::Wait(token)) => return Ok(Progress::Restart(token)),
                Err(Halt::TooLong) => unreachable!("invariant: a run of this road has no limit"),
                Err(Halt::Error(error)) => return Err(error),
            }
        }
    }
}
