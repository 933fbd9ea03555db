//! Which plans are made once for many runs? Those of statements that run again, with their parameters open.
//!
//! | what is kept | where | what a run does with it |
//! |---|---|---|
//! | a physical plan | parameters stand in scans' filters only, as in most statements | scans get the run's snapshot, and find their paths by its values |
//! | an optimized logical plan | parameters stand elsewhere too, or it runs on all cores | literals take their places; it is made physical |
//!
//! 1. A plan is kept with the statement, which is bound to one version of the schema and one search path.
//! 2. It is used as long as what planning looked at is the same: statistics, the session's zone and workers, the values that shaped it (LIMIT), and about
//!    how large its tables are. What knows the clock, the session or what another part of the statement gave is planned for each run.
//! 3. A first run is planned for its values; a second one says that more will come.
//!
//! A subquery that runs for each row around it has such a plan, too, with the row's values open (`per_row`).

use super::apply::ApplyExec;
use super::cells::literal;
use super::change::Action;
use super::estimate::snapshot_of;
use super::fixed;
use super::lookup::IndexLookupJoin;
use super::run::{Parts, optimized, planned_from};
use super::scan::SnapshotScan;
use crate::error::SqlError;
use crate::expr::{Env, EnvValue, Expr};
use crate::value::DateStyle;
use crate::value::Datum;
use crate::value::interval::IntervalStyle;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr as DfExpr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use freshet_engine::catalog::Table;
use freshet_engine::engine::{Account, Claim};
use freshet_engine::schema::Type;
use freshet_engine::txn::Reader;
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// Plans of one statement that are kept for different values of what shapes them.
const KEPT_MAX: usize = 4;

/// The parameters that a plan leaves open.
#[derive(Debug)]
pub struct Holes {
    types: Vec<Type>,
    /// By number of the hole: a parameter, as a value of a type.
    open: RefCell<Vec<(u16, Type)>>,
    /// Parameters whose values shaped the plan.
    used: RefCell<BTreeSet<u16>>,
    /// What the session alone knows became part of the plan.
    knows_session: Cell<bool>,
}

impl Holes {
    pub fn new(types: &[Type]) -> Holes {
        Holes {
            types: types.to_vec(),
            open: RefCell::default(),
            used: RefCell::default(),
            knows_session: Cell::new(false),
        }
    }

    /// What stands for a parameter's value.
    pub fn hole(&self, parameter: u16, ty: Type) -> DfExpr {
        let mut open = self.open.borrow_mut();
        let at = open.iter().position(|known| *known == (parameter, ty)).unwrap_or_else(|| {
            open.push((parameter, ty));
            open.len() - 1
        });
        hole_at(at, ty)
    }

    /// As a value of its own type.
    pub fn own(&self, parameter: u16) -> DfExpr {
        self.hole(parameter, self.types[usize::from(parameter)])
    }

    /// The values in the expression shape the plan.
    pub fn use_values(&self, expr: &Expr) {
        expr.walk(&mut |e| {
            if let Expr::Param(i) = e {
                self.used.borrow_mut().insert(*i);
            }
            true
        });
        self.note_session(expr);
    }

    /// The expression's value becomes part of the plan: settings and what else the session knows make it that session's plan.
    pub fn note_session(&self, expr: &Expr) {
        expr.walk(&mut |e| {
            let is_known = match e {
                Expr::Setting { .. } => true,
                Expr::Env(value) => *value != EnvValue::Version,
                _ => false,
            };
            self.knows_session.set(self.knows_session.get() || is_known);
            !is_known
        });
    }
}

/// What stands for the value that is the `at`-th, of a type.
pub fn hole_at(at: usize, ty: Type) -> DfExpr {
    hole_of_type(at, super::cells::data_type(ty))
}

pub fn hole_of_type(at: usize, ty: DataType) -> DfExpr {
    let field = Field::new("", ty, true);
    DfExpr::Placeholder(Placeholder::new_with_field(format!("${at}"), Some(Arc::new(field))))
}

/// The place of a hole.
pub fn hole_of(expr: &DfExpr) -> Option<usize> {
    match expr {
        DfExpr::Placeholder(placeholder) => placeholder.id.strip_prefix('$')?.parse().ok(),
        _ => None,
    }
}

/// The expression with values in its holes; unknown ones are null.
pub fn filled(expr: DfExpr, values: &[ScalarValue]) -> Result<DfExpr> {
    let filled = expr.transform_up(|e| match (&e, hole_of(&e)) {
        (DfExpr::Placeholder(Placeholder { field: Some(field), .. }), Some(at)) => {
            let value = match values.get(at) {
                Some(value) => value.clone(),
                None => ScalarValue::try_from(field.data_type())?,
            };
            Ok(Transformed::yes(DfExpr::Literal(value, None)))
        }
        _ => Ok(Transformed::no(e)),
    })?;
    Ok(filled.data)
}

pub fn has_hole(expr: &DfExpr) -> bool {
    expr.exists(|e| Ok(hole_of(e).is_some())).unwrap_or(true)
}

/// The plans that a statement keeps.
#[derive(Debug, Default)]
pub struct Templates(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    has_run: bool,
    /// The statement's plans depend on more than is looked at.
    never: bool,
    list: Vec<Arc<Template>>,
}

/// What a plan depends on.
#[derive(Debug)]
struct Valid {
    epoch: u64,
    zone: String,
    dates: DateStyle,
    intervals: IntervalStyle,
    workers: usize,
    is_wide: bool,
    used: Vec<(u16, Datum)>,
    /// With the slots that they had.
    tables: Vec<(Arc<Table>, u64)>,
}

/// Slots up to which it matters little how a table is read.
const SMALL_SLOTS: u64 = 1_000;

impl Valid {
    fn is_now(&self, run: &Facts<'_>) -> bool {
        let is_alike = |(table, slots): &(Arc<Table>, u64)| {
            let (now, then) = (table.slots().max(SMALL_SLOTS), (*slots).max(SMALL_SLOTS));
            now <= then * 2 && then <= now * 2
        };
        self.epoch == run.epoch
            && self.zone == run.zone
            && self.dates == run.dates
            && self.intervals == run.intervals
            && self.workers == run.workers
            && self.is_wide == run.is_wide
            && self.used.iter().all(|(at, value)| run.parameters.get(usize::from(*at)) == Some(value))
            && self.tables.iter().all(is_alike)
    }
}

/// What planning looks at besides the statement.
pub struct Facts<'a> {
    pub parameters: &'a [Datum],
    pub is_wide: bool,
    epoch: u64,
    zone: String,
    dates: DateStyle,
    intervals: IntervalStyle,
    workers: usize,
}

impl<'a> Facts<'a> {
    pub fn of(env: &Env, parameters: &'a [Datum], is_wide: bool) -> Facts<'a> {
        Facts {
            parameters,
            is_wide,
            epoch: env.statistics.as_ref().map_or(0, |statistics| statistics.epoch()),
            zone: env.settings.get("timezone").unwrap_or_default(),
            dates: env.settings.dates,
            intervals: env.settings.intervals,
            workers: env.settings.parallel_workers(),
        }
    }
}

/// What is to be done about a run's plan.
pub enum Choice {
    /// It is planned for its values.
    Plan,
    Use(Arc<Template>),
    /// One is to be made for it and for those that follow.
    Make,
}

impl Templates {
    pub fn choose(&self, facts: &Facts<'_>) -> Choice {
        let mut kept = self.0.lock();
        if !std::mem::replace(&mut kept.has_run, true) || kept.never {
            return Choice::Plan;
        }
        match kept.list.iter().find(|template| template.valid.is_now(facts)) {
            Some(template) => Choice::Use(template.clone()),
            None => Choice::Make,
        }
    }

    /// The statement is planned for each run.
    pub fn give_up(&self) {
        let mut kept = self.0.lock();
        kept.never = true;
        kept.list.clear();
    }

    pub fn keep(&self, template: &Arc<Template>) {
        let mut kept = self.0.lock();
        if kept.list.len() >= KEPT_MAX {
            kept.list.remove(0);
        }
        kept.list.push(template.clone());
    }
}

/// A plan for many runs.
#[derive(Debug)]
pub struct Template {
    bound: LogicalPlan,
    pub action: Action,
    open: Vec<(u16, Type)>,
    valid: Valid,
    made: OnceLock<Made>,
    /// A run may fail when it has given rows, and be run again in another way.
    pub may_be_too_wide: bool,
    /// Counts until the last run is over.
    _charge: Account,
}

/// What a plan takes for each of its nodes, in all of its forms.
const NODE_BYTES: u64 = 8 << 10;

#[derive(Debug)]
enum Made {
    Physical(Arc<dyn ExecutionPlan>),
    /// Optimized.
    Logical(Box<LogicalPlan>),
    /// It cannot be planned without its values.
    Neither,
}

/// A template with the values of a run.
pub struct Filled {
    template: Arc<Template>,
    reader: Reader,
    values: Vec<ScalarValue>,
    pub workers: Parts,
}

impl Template {
    /// `None`: the plan knows more than a statement and its values, or there is no room for it.
    pub fn new(
        bound: LogicalPlan,
        action: Action,
        holes: Holes,
        facts: &Facts<'_>,
        charge: Account,
    ) -> Option<Template> {
        let mut tables = Vec::new();
        let mut is_plain = true;
        let mut nodes = 0;
        let looked = bound.apply_with_subqueries(|node| {
            nodes += 1;
            match node {
                LogicalPlan::TableScan(scan) => match snapshot_of(scan) {
                    Some(snapshot) => tables.push((snapshot.table().clone(), snapshot.table().slots())),
                    None => is_plain = false,
                },
                LogicalPlan::RecursiveQuery(_) | LogicalPlan::Extension(_) => is_plain = false,
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        });
        let is_plain = is_plain && !holes.knows_session.get();
        if looked.is_err() || !is_plain || !charge.take(nodes * NODE_BYTES, Claim::Growth) {
            return None;
        }
        let bound = at_snapshot(bound, None).ok()?;
        let used = holes.used.into_inner();
        let value = |i: u16| Some((i, facts.parameters.get(usize::from(i))?.clone()));
        let valid = Valid {
            epoch: facts.epoch,
            zone: facts.zone.clone(),
            dates: facts.dates,
            intervals: facts.intervals,
            workers: facts.workers,
            is_wide: facts.is_wide,
            used: used.into_iter().map(value).collect::<Option<_>>()?,
            tables,
        };
        let (may_be_too_wide, open) = (fixed::may_be_too_wide(&bound), holes.open.into_inner());
        Some(Template { bound, action, open, valid, made: OnceLock::new(), may_be_too_wide, _charge: charge })
    }

    /// With a run's snapshot and values.
    pub fn fill(self: &Arc<Self>, reader: Reader, parameters: &[Datum], workers: Parts) -> Result<Filled, SqlError> {
        let mut values = Vec::with_capacity(self.open.len());
        for (parameter, ty) in &self.open {
            let value = parameters.get(usize::from(*parameter)).unwrap_or(&Datum::Null);
            values.push(literal(*ty, &value.as_value())?);
        }
        Ok(Filled { template: self.clone(), reader, values, workers })
    }

    pub fn bound(&self) -> &LogicalPlan {
        &self.bound
    }

    fn made(&self, workers: Parts) -> &Made {
        self.made.get_or_init(|| self.make(workers).unwrap_or(Made::Neither))
    }

    fn make(&self, workers: Parts) -> Result<Made> {
        let optimized = optimized(&self.bound, workers)?;
        if workers == Parts::One && !has_hole_beyond_scans(&optimized)? {
            let physical = planned_from(&optimized, workers)?;
            if is_reusable(&physical)? {
                return Ok(Made::Physical(physical));
            }
        }
        Ok(Made::Logical(Box::new(optimized)))
    }
}

impl Filled {
    /// The plan of the run.
    pub fn physical(&self) -> Result<Arc<dyn ExecutionPlan>> {
        match self.template.made(self.workers) {
            Made::Physical(plan) => match instance(plan.clone(), &self.reader, &self.values)? {
                Some(plan) => Ok(plan),
                None => self.planned(),
            },
            Made::Logical(plan) => planned_from(&self.logical(plan)?, self.workers),
            Made::Neither => self.planned(),
        }
    }

    /// With its values.
    fn planned(&self) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.logical(&self.template.bound)?;
        planned_from(&optimized(&plan, self.workers)?, self.workers)
    }

    /// A logical plan with the run's snapshot, and literals in its holes.
    fn logical(&self, plan: &LogicalPlan) -> Result<LogicalPlan> {
        let plan = at_snapshot(plan.clone(), Some(&self.reader))?;
        with_exprs(plan, &|_| true, &mut |expr| match has_hole(&expr) {
            true => Ok(Transformed::yes(filled(expr, &self.values)?)),
            false => Ok(Transformed::no(expr)),
        })
    }
}

/// A physical plan with no traces of other runs. `None`: it is a bad one for these values.
pub fn instance(
    plan: Arc<dyn ExecutionPlan>,
    reader: &Reader,
    values: &[ScalarValue],
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let mut is_bad = false;
    let fresh = plan.transform_up(|node| {
        let at_run: Option<Arc<dyn ExecutionPlan>> = if let Some(scan) = node.downcast_ref::<SnapshotScan>() {
            scan.at(reader, values)?.map(|scan| Arc::new(scan) as _)
        } else if let Some(join) = node.downcast_ref::<IndexLookupJoin>() {
            join.at(reader, values)?.map(|join| Arc::new(join) as _)
        } else if let Some(apply) = node.downcast_ref::<ApplyExec>() {
            Some(Arc::new(apply.at(values)))
        } else {
            Some(Arc::clone(&node).reset_state()?)
        };
        is_bad |= at_run.is_none();
        Ok(match at_run {
            Some(fresh) => Transformed::yes(fresh),
            None => Transformed::new(node, false, TreeNodeRecursion::Stop),
        })
    })?;
    Ok((!is_bad).then_some(fresh.data))
}

/// The plan with its tables as this reader sees them; `None`: it holds on to no run's snapshot.
fn at_snapshot(plan: LogicalPlan, reader: Option<&Reader>) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::TableScan(mut scan) => {
            if let Some(snapshot) = snapshot_of(&scan) {
                scan.source = provider_as_source(Arc::new(snapshot.at(reader)));
            }
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(plan.data)
}

/// The plan with other expressions in the nodes that are asked for them. The others know an output by the name that it had.
pub fn with_exprs(
    plan: LogicalPlan,
    is_asked: &dyn Fn(&LogicalPlan) -> bool,
    other: &mut dyn FnMut(DfExpr) -> Result<Transformed<DfExpr>>,
) -> Result<LogicalPlan> {
    let replaced = plan.transform_up_with_subqueries(|node| {
        if !is_asked(&node) {
            return Ok(Transformed::no(node));
        }
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let replaced = other(expr)?;
            Ok(if replaced.transformed { replaced.update_data(|expr| name.restore(expr)) } else { replaced })
        })
    })?;
    Ok(replaced.data)
}

fn has_hole_beyond_scans(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if !matches!(node, LogicalPlan::TableScan(_)) {
            node.apply_expressions(|expr| {
                found |= has_hole(expr);
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Operators that know nothing of a run once they are reset.
const REUSABLE: &[&str] = &[
    "SnapshotScan",
    "IndexLookupJoin",
    "KeptRows",
    "SubqueryPerRow",
    "FilterExec",
    "ProjectionExec",
    "HashJoinExec",
    "NestedLoopJoinExec",
    "CrossJoinExec",
    "AggregateExec",
    "SortExec",
    "SortExec(TopK)",
    "GlobalLimitExec",
    "LocalLimitExec",
    "CoalesceBatchesExec",
    "CoalescePartitionsExec",
    "UnionExec",
    "WindowAggExec",
    "BoundedWindowAggExec",
    "PlaceholderRowExec",
    "EmptyExec",
    "CooperativeExec",
];

pub fn is_reusable(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut all = true;
    plan.apply(|node| {
        all &= REUSABLE.contains(&node.name());
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(all)
}
