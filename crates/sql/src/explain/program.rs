//! Which nodes does a compiled statement have?
//!
//! Loops over paths to rows, then groups, order and limit: see `compiled::query`. What comes first there stands innermost here.

use super::{Actual, ENTRY_COST, Estimate, Node, OPERATOR_COST, ROW_COST};
use crate::compiled::access::Access;
use crate::compiled::aggregate::Grouping;
use crate::compiled::change::InsertSource;
use crate::compiled::estimate::{OTHER, shares};
use crate::compiled::query::{Query, SortKey, Step};
use crate::compiled::watch::{StepWatch, Watch};
use crate::expr::{Env, Expr};
use crate::route::Plan;
use crate::rows::Column;
use freshet_engine::catalog::Index;
use freshet_engine::schema::Type;
use freshet_engine::txn::Direction;

/// Rows of a function or of values that are not counted.
const UNKNOWN_ROWS: f64 = 1000.0;
/// Of a group whose values are not known.
const ROWS_OF_GROUP: f64 = 10.0;

/// What was measured of a run.
pub struct Measured {
    pub watch: Watch,
    pub total_ms: f64,
    /// That the statement gave.
    pub rows: u64,
}

/// What the nodes of a query are made of.
#[derive(Clone, Copy)]
struct Of<'a> {
    env: &'a Env,
    measured: Option<&'a Measured>,
    /// Rows that the query gave, and how long it took, where that was measured.
    whole: Option<Actual>,
}

/// The nodes of a compiled plan; `None`: it is a command, not a program.
pub fn nodes(plan: &Plan, env: &Env, measured: Option<&Measured>) -> Option<Node> {
    let given = |rows: u64| {
        measured.map(|measured| Actual {
            startup_ms: measured.total_ms,
            total_ms: measured.total_ms,
            rows: rows as f64,
            loops: 1,
        })
    };
    let whole = given(measured.map_or(0, |measured| measured.rows));
    let of = Of { env, measured, whole };
    let (what, table, mut source) = match plan {
        Plan::Select(query) => return Some(of_query(query, of)),
        Plan::Init(init) => {
            let mut node = nodes(&init.then, env, measured)?;
            let first = init.plans.iter().zip(usize::from(init.first) + 1..).enumerate().map(|(at, (plan, number))| {
                let name = format!("InitPlan {} (returns ${number})", at + 1);
                Node { subplan: Some(name), ..of_query(&plan.query, Of { whole: None, ..of }) }
            });
            node.children.splice(0..0, first);
            return Some(node);
        }
        Plan::Insert(insert) => {
            let source = match &insert.source {
                InsertSource::Values(rows) => {
                    let rows = rows.len() as f64;
                    let kind = if rows == 1.0 { "Result" } else { "Values Scan" };
                    Node::new(kind, Estimate { total: rows * ROW_COST, rows, ..Estimate::default() })
                }
                InsertSource::Query(query, _) => of_query(query, of),
            };
            ("Insert", insert.tables.first(), source)
        }
        Plan::Update(update) => ("Update", update.search.tables.first(), of_query(&update.search, of)),
        Plan::Delete(delete) => ("Delete", delete.search.tables.first(), of_query(&delete.search, of)),
        _ => return None,
    };
    source.actual = source.actual.or(whole);
    let table = table.and_then(Option::as_ref).map(|table| table.def.name.as_str());
    let mut node = Node::change(what, table, source);
    node.actual = given(0);
    Some(node)
}

/// The nodes of a query that is not measured.
#[cfg(feature = "query")]
pub fn query_node(query: &Query, env: &Env) -> Node {
    of_query(query, Of { env, measured: None, whole: None })
}

fn of_query(query: &Query, of: Of<'_>) -> Node {
    let width = width_of(&query.columns);
    let joined = loops(query, of, width);
    let measured = |mut node: Node| {
        node.actual = of.whole.filter(|_| node.actual.is_none()).or(node.actual);
        node
    };
    let mut node = joined;
    if let Some(grouping) = &query.grouping {
        node = measured(grouped(query, grouping, node, width));
    }
    if query.distinct {
        let rows = (node.estimate.rows / ROWS_OF_GROUP).max(1.0);
        let total = node.estimate.total + node.estimate.rows * OPERATOR_COST;
        let keys = query.columns.iter().map(|column| column.name.clone()).collect();
        let estimate = Estimate { startup: total, total, rows, width };
        node = measured(Node::aggregate(keys, "Simple", estimate).over(vec![node]));
    }
    if !query.sort.is_empty() {
        let rows = node.estimate.rows;
        let startup = node.estimate.total + rows * rows.max(2.0).log2() * 2.0 * OPERATOR_COST;
        let estimate = Estimate { startup, total: startup + rows * OPERATOR_COST, rows, width };
        let keys = query.sort.iter().map(|key| sort_key(query, key)).collect();
        node = measured(Node::new("Sort", estimate).listing("Sort Key", keys).over(vec![node]));
    }
    if !query.locks.is_empty() {
        let estimate = Estimate { total: node.estimate.total + node.estimate.rows * ROW_COST, ..node.estimate };
        node = measured(Node::new("LockRows", estimate).over(vec![node]));
    }
    if query.limit.is_some() || query.offset.is_some() {
        node = measured(limited(query, node));
    }
    node
}

fn width_of(columns: &[Column]) -> f64 {
    columns.iter().map(|column| width(column.ty)).sum()
}

/// Of a type's values, where none is known.
fn width(ty: Type) -> f64 {
    if ty.is_variable() { 32.0 } else { ty.field_bytes() as f64 }
}

/// A key as it is shown; `over_groups`: its cells are of the groups' rows.
fn shown(query: &Query, expr: &Expr, over_groups: bool) -> String {
    let of_source = |source: u16, column: u16| {
        let at = usize::from(source);
        let name = match query.tables.get(at) {
            Some(Some(table)) => table.def.columns.get(usize::from(column)).map_or("?", |c| c.name.as_str()),
            _ => query.columns.get(usize::from(column)).map_or("?", |c| c.name.as_str()),
        };
        match query.names.get(at) {
            Some(source) if query.tables.len() > 1 => format!("{source}.{name}"),
            _ => name.to_owned(),
        }
    };
    let Some(grouping) = query.grouping.as_ref().filter(|_| over_groups) else {
        return crate::expr::show(expr, &of_source);
    };
    crate::expr::show(expr, &|_, column| {
        let at = usize::from(column);
        match (grouping.keys.get(at), at.checked_sub(grouping.keys.len())) {
            (Some((key, _)), _) => crate::expr::show(key, &of_source),
            (None, Some(at)) => match grouping.aggregates.get(at) {
                Some(aggregate) => {
                    let arg = aggregate.arg.as_ref().map(|(arg, _)| crate::expr::show(arg, &of_source));
                    format!("{}({})", format!("{:?}", aggregate.function).to_lowercase(), arg.unwrap_or("*".to_owned()))
                }
                None => "?".to_owned(),
            },
            (None, None) => "?".to_owned(),
        }
    })
}

fn sort_key(query: &Query, key: &SortKey) -> String {
    let text = shown(query, &key.expr, true);
    let nulls = match (key.order.descending, key.order.nulls_first) {
        (false, true) => " NULLS FIRST",
        (true, false) => " NULLS LAST",
        _ => "",
    };
    format!("{text}{}{nulls}", if key.order.descending { " DESC" } else { "" })
}

fn limited(query: &Query, node: Node) -> Node {
    let count = |expr: &Option<Expr>| match expr {
        Some(Expr::Const(crate::value::Datum::Int(n))) => Some(*n as f64),
        _ => None,
    };
    let Estimate { startup, total, rows, width } = node.estimate;
    let (skipped, wanted) = (count(&query.offset).unwrap_or(0.0), count(&query.limit).unwrap_or(rows));
    let given = (rows - skipped).clamp(0.0, wanted.max(0.0));
    let share = ((given + skipped) / rows.max(1.0)).min(1.0);
    let estimate = Estimate { startup, total: startup + (total - startup) * share, rows: given, width };
    Node::new("Limit", estimate).over(vec![node])
}

fn grouped(query: &Query, grouping: &Grouping, node: Node, width: f64) -> Node {
    let Estimate { total, rows, .. } = node.estimate;
    let total = total + rows * OPERATOR_COST * (grouping.aggregates.len() + grouping.keys.len()) as f64;
    let groups = if grouping.keys.is_empty() { 1.0 } else { (rows / ROWS_OF_GROUP).max(1.0) };
    let estimate = Estimate { startup: total, total: total + groups * ROW_COST, rows: groups, width };
    let keys = grouping.keys.iter().map(|(key, _)| shown(query, key, false)).collect();
    Node::aggregate(keys, "Simple", estimate).over(vec![node])
}

/// The loops, one within the other.
fn loops(query: &Query, of: Of<'_>, width: f64) -> Node {
    let mut joined: Option<Node> = None;
    for (depth, step) in query.steps.iter().enumerate() {
        let watched = of.measured.map(|measured| measured.watch.step(query, depth).unwrap_or_default());
        let inner = scan(query, step, of, watched);
        joined = Some(match joined {
            None => inner,
            Some(outer) => {
                let (a, b) = (outer.estimate, inner.estimate);
                let rows = (a.rows * b.rows).max(1.0);
                let total = a.total + a.rows * b.total + rows * ROW_COST;
                let estimate = Estimate { startup: a.startup + b.startup, total, rows, width };
                let which = if step.outer.is_some() { "Left" } else { "Inner" };
                let mut node = Node::join("Nested Loop", which, estimate);
                node.actual = match (outer.actual, inner.actual, watched) {
                    (Some(before), Some(own), Some(watched)) => Some(Actual {
                        startup_ms: before.startup_ms + own.startup_ms,
                        total_ms: before.total_ms + own.total_ms * own.loops as f64,
                        rows: watched.rows as f64,
                        loops: 1,
                    }),
                    _ => None,
                };
                node.over(vec![outer, inner])
            }
        });
    }
    joined.unwrap_or_else(|| {
        let mut node = Node::new("Result", Estimate { total: ROW_COST, rows: 1.0, width, ..Estimate::default() });
        node.actual = of.whole;
        node
    })
}

fn actual(watched: StepWatch) -> Actual {
    let loops = watched.loops.max(1) as f64;
    let milliseconds = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    Actual {
        startup_ms: milliseconds(watched.startup).min(milliseconds(watched.total) / loops),
        total_ms: milliseconds(watched.total) / loops,
        rows: watched.rows as f64 / loops,
        loops: watched.loops,
    }
}

fn scan(query: &Query, step: &Step, of: Of<'_>, watched: Option<StepWatch>) -> Node {
    let mut node = unmeasured_scan(query, step, of);
    node.actual = watched.map(actual);
    if !step.conditions.is_empty() {
        node = node.with_all("Filter", &step.conditions);
        if let Some(removed) = watched.map(|watched| watched.removed / watched.loops.max(1)).filter(|&n| n > 0) {
            node = node.counting("Rows Removed by Filter", removed);
        }
    }
    node
}

fn unmeasured_scan(query: &Query, step: &Step, of: Of<'_>) -> Node {
    let env = of.env;
    let table = query.tables.get(usize::from(step.source)).and_then(Option::as_ref);
    let known = table.and_then(|table| env.statistics.as_ref()?.get(table));
    let all =
        table.map_or(UNKNOWN_ROWS, |table| known.as_ref().map_or(table.slots() as f64, |known| known.rows_of(table)));
    let share: f64 = match table {
        Some(table) => {
            let asked = step.filter.iter().chain(step.outer.iter().flatten()).chain(&step.answered);
            shares(asked, step.source, table, known.as_deref())
        }
        None => OTHER.powi(step.filter.len() as i32),
    };
    let rows = (all * share).max(1.0);
    let conditions = step.filter.len() as f64;
    let width = table.map_or(32.0, |table| table.def.columns.iter().map(|c| width(c.ty)).sum());
    let full = Estimate { total: all * (ROW_COST + conditions * OPERATOR_COST), rows, width, ..Estimate::default() };
    let by_index = |rows: f64| {
        let total = ENTRY_COST + rows * (ENTRY_COST + ROW_COST + conditions * OPERATOR_COST);
        Estimate { startup: ENTRY_COST, total, rows, width }
    };
    let name = table.map_or("", |table| &table.def.name);
    let alias = query.names.get(usize::from(step.source)).map_or(name, String::as_str);
    let keyed = |index: &Index, direction: Direction, rows: f64| {
        let (way, told) = match direction {
            Direction::Forward => (" using ", "Forward"),
            Direction::Backward => (" Backward using ", "Backward"),
        };
        let node = Node::new("Index Scan", by_index(rows)).being("Scan Direction", told);
        let node = node.about(way, "Index Name", &index.def.name).on(name, alias);
        node.with_all("Index Cond", &step.keyed)
    };
    match &step.access {
        Access::Unique { index, .. } => keyed(index, Direction::Forward, 1.0),
        Access::Lookup { index, .. } => keyed(index, Direction::Forward, rows),
        Access::Points { index, list, .. } => {
            let rows = if index.def.unique { rows.min(list.expected() as f64) } else { rows };
            keyed(index, Direction::Forward, rows)
        }
        Access::Range(range) => keyed(&range.index, range.direction, rows),
        Access::Union(arms) => {
            let mut names: Vec<&str> = Vec::new();
            arms.iter().filter_map(|arm| index_of(&arm.access)).for_each(|index| {
                if !names.contains(&index.def.name.as_str()) {
                    names.push(&index.def.name);
                }
            });
            let node = Node::new("Index Union Scan", by_index(rows));
            node.about(" using ", "Index Name", &names.join(", ")).on(name, alias).with_all("Index Cond", &step.keyed)
        }
        Access::Scan => Node::new("Seq Scan", full).on(name, alias),
        Access::Series(_) => of_function("generate_series", alias, full),
        Access::Values(rows) => {
            let rows = rows.len() as f64;
            let estimate = Estimate { total: rows * ROW_COST, rows, ..full };
            Node::new("Values Scan", estimate).about(" on ", "Alias", alias)
        }
        Access::Derived(inner) => {
            let inner = of_query(inner, Of { whole: None, ..of });
            let estimate = Estimate { total: inner.estimate.total + inner.estimate.rows * ROW_COST, ..inner.estimate };
            Node::new("Subquery Scan", estimate).about(" on ", "Alias", alias).over(vec![inner])
        }
        Access::View { view, .. } => of_function(view.name(), alias, full),
    }
}

fn index_of(access: &Access) -> Option<&Index> {
    match access {
        Access::Unique { index, .. } | Access::Lookup { index, .. } | Access::Points { index, .. } => Some(index),
        Access::Range(range) => Some(&range.index),
        _ => None,
    }
}

fn of_function(name: &str, alias: &str, estimate: Estimate) -> Node {
    let node = Node::new("Function Scan", estimate).about(" on ", "Function Name", name).being("Alias", alias);
    if name == alias { node } else { node.adding(&format!(" {alias}")) }
}
