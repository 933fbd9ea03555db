//! How many rows does a plan give? Estimates from the statistics of tables, and rules of thumb where there are none.
//!
//! | condition | share of rows without statistics |
//! |---|---|
//! | equals a constant | one row of a unique column; a 200th |
//! | lies on one side of a constant | a third |
//! | computed from columns | a quarter |

use super::scan::{Condition, Snapshot};
use crate::expr::{Env, Expr, Frame, test};
use crate::statistics::TableStatistics;
use crate::value::Datum;
use crate::value::operator::BinaryOp;
use datafusion::catalog::default_table_source::DefaultTableSource;
use datafusion::common::{Column, JoinType};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Distinct, Expr as DfExpr, FetchType, Join, LogicalPlan, Operator, TableScan};
use freshet_engine::catalog::Table;

const EQUAL: f64 = 0.005;
const ONE_SIDE: f64 = 1.0 / 3.0;
const COMPUTED: f64 = 0.25;
/// Of a grouping whose values are not known: rows of a group.
const ROWS_OF_GROUP: f64 = 5.0;
/// That a set-returning function gives for a row.
const ROWS_OF_LIST: f64 = 10.0;

/// The share of a table's rows for which all conditions hold.
pub fn share(conditions: &[Condition], table: &Table, known: Option<&TableStatistics>) -> f64 {
    let mut all = 1.0;
    let mut ranges: Vec<(usize, f64, bool)> = Vec::new();
    for condition in conditions {
        let own = share_of(condition, table, known);
        // Two ends of a range are not independent: what both leave is what neither takes away.
        if let Condition::Compare { column, op, .. } = condition
            && matches!(op, BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge)
        {
            let is_known = is_known(condition, table, known);
            match ranges.iter_mut().find(|(of, ..)| of == column) {
                Some((_, both, were_known)) => {
                    *both = (*both + own - 1.0).max(if *were_known && is_known { 0.0 } else { EQUAL });
                }
                None => ranges.push((*column, own, is_known)),
            }
            continue;
        }
        all *= own;
    }
    ranges.iter().fold(all, |all, (_, own, _)| all * own).clamp(0.0, 1.0)
}

/// Whether statistics tell the share of a comparison.
fn is_known(condition: &Condition, table: &Table, known: Option<&TableStatistics>) -> bool {
    let Condition::Compare { column, with, .. } = condition else { return false };
    let def = table.def.columns.get(*column);
    *with != Datum::Null && def.is_some_and(|def| known.is_some_and(|known| known.column(&def.name, def.ty).is_some()))
}

fn share_of(condition: &Condition, table: &Table, known: Option<&TableStatistics>) -> f64 {
    let column_of = |column: usize| {
        let def = table.def.columns.get(column)?;
        Some((def.ty, known?.column(&def.name, def.ty)?))
    };
    match condition {
        Condition::Compare { column, op, with } => match column_of(*column) {
            Some((ty, values)) if *with != Datum::Null => values.compared(ty, *op, with),
            // A value that is not known yet.
            Some((_, values)) if *op == BinaryOp::Eq => (1.0 - values.null_fraction) / values.distinct.max(1.0),
            _ => match op {
                BinaryOp::Eq => unknown_equal(table, *column),
                BinaryOp::Ne => 1.0 - unknown_equal(table, *column),
                _ => ONE_SIDE,
            },
        },
        Condition::Columns { op: BinaryOp::Eq, .. } => EQUAL,
        Condition::Columns { .. } => ONE_SIDE,
        Condition::In { column, list } => {
            let one = |item: &Datum| match column_of(*column) {
                Some((ty, values)) => values.equal(ty, item),
                None => unknown_equal(table, *column),
            };
            list.iter().map(one).sum::<f64>().min(1.0)
        }
        Condition::Null { column, negated } => {
            let nulls = column_of(*column).map_or(EQUAL, |(_, values)| values.null_fraction);
            if *negated { 1.0 - nulls } else { nulls }
        }
        Condition::Always(truth) => f64::from(u8::from(*truth)),
        Condition::All(list) => share(list, table, known),
        Condition::Any(list) => 1.0 - list.iter().map(|c| 1.0 - share_of(c, table, known)).product::<f64>(),
        Condition::Computed { expr, env } => match only_column(expr).and_then(|c| Some((c, column_of(c)?.1))) {
            Some((column, values)) => values.holding(|value| holds(expr, column, value, env)),
            None => COMPUTED,
        },
    }
}

fn unknown_equal(table: &Table, column: usize) -> f64 {
    match is_unique(table, &[column]) {
        true => 1.0 / table.slots().max(1) as f64,
        false => EQUAL,
    }
}

/// The one column that an expression looks at.
fn only_column(expr: &Expr) -> Option<usize> {
    let mut columns = Vec::new();
    expr.walk(&mut |e| {
        if let Expr::Column { column, .. } = e {
            columns.push(usize::from(*column));
        }
        true
    });
    columns.dedup();
    (columns.len() == 1).then(|| columns[0])
}

fn holds(expr: &Expr, column: usize, value: &Datum, env: &Env) -> bool {
    let over_cell = expr.clone().rewrite(&mut |e| match e {
        Expr::Column { column: c, .. } if usize::from(*c) == column => Some(Expr::Cell { source: 0, column: 0 }),
        _ => None,
    });
    let cells = [vec![value.clone()]];
    test(&over_cell, &Frame { cells: &cells, ..Frame::new(env) }).unwrap_or(false)
}

/// Whether rows with these columns equal are one row.
fn is_unique(table: &Table, columns: &[usize]) -> bool {
    table
        .indexes
        .iter()
        .filter(|index| index.def.unique)
        .any(|index| index.def.columns.iter().all(|key| columns.contains(&usize::from(key.column))))
}

/// The table that a scan reads.
pub fn snapshot_of(scan: &TableScan) -> Option<&Snapshot> {
    scan.source.downcast_ref::<DefaultTableSource>()?.table_provider.downcast_ref::<Snapshot>()
}

/// The rows of a plan.
pub fn rows(plan: &LogicalPlan) -> f64 {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let all = snapshot_of(scan).map_or(1_000.0, |snapshot| snapshot.rows_of(&scan.filters));
            scan.fetch.map_or(all, |fetch| all.min(fetch as f64))
        }
        LogicalPlan::Filter(filter) => {
            let conditions = split_conjunction(&filter.predicate);
            conditions.iter().fold(rows(&filter.input), |rows, c| rows * filtered(&filter.input, c))
        }
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => 1.0,
        LogicalPlan::Aggregate(aggregate) => groups(&aggregate.input, &aggregate.group_expr),
        LogicalPlan::Distinct(Distinct::All(input)) => rows(input) / ROWS_OF_GROUP,
        LogicalPlan::Limit(limit) => {
            let all = rows(&limit.input);
            match limit.get_fetch_type() {
                Ok(FetchType::Literal(Some(fetch))) => all.min(fetch as f64),
                _ => all,
            }
        }
        LogicalPlan::Join(join) => joined(join),
        LogicalPlan::Values(values) => values.values.len() as f64,
        LogicalPlan::EmptyRelation(_) => 1.0,
        LogicalPlan::Unnest(unnest) => rows(&unnest.input) * ROWS_OF_LIST,
        LogicalPlan::Union(union) => union.inputs.iter().map(|input| rows(input)).sum(),
        other => other.inputs().into_iter().map(rows).fold(1.0, f64::max),
    }
}

/// The share of an input's rows for which a condition above it holds.
fn filtered(input: &LogicalPlan, condition: &DfExpr) -> f64 {
    match condition {
        DfExpr::BinaryExpr(binary) if binary.op == Operator::Eq => {
            let values = [&binary.left, &binary.right].into_iter().find_map(|side| distinct_of(input, side));
            values.map_or(EQUAL, |values| 1.0 / values.max(1.0))
        }
        _ => ONE_SIDE,
    }
}

fn groups(input: &LogicalPlan, by: &[DfExpr]) -> f64 {
    let rows = rows(input);
    let values: Option<f64> = by.iter().map(|expr| distinct_of(input, expr)).product();
    values.unwrap_or(rows / ROWS_OF_GROUP).clamp(1.0, rows.max(1.0))
}

fn distinct_of(plan: &LogicalPlan, expr: &DfExpr) -> Option<f64> {
    match expr {
        DfExpr::Column(column) => distinct(plan, column),
        DfExpr::Alias(alias) => distinct_of(plan, &alias.expr),
        _ => None,
    }
}

fn joined(join: &Join) -> f64 {
    let (left, right) = (rows(&join.left), rows(&join.right));
    let mut share: f64 = 1.0;
    let mut met: f64 = 1.0;
    for (a, b) in &join.on {
        let (a, b) = (distinct_of(&join.left, a).unwrap_or(left), distinct_of(&join.right, b).unwrap_or(right));
        share /= a.max(b).max(1.0);
        met = met.min(b / a.max(1.0));
    }
    let both = (left * right * share).max(1.0);
    match join.join_type {
        JoinType::Inner => both,
        JoinType::Left => both.max(left),
        JoinType::Right => both.max(right),
        JoinType::Full => both.max(left).max(right),
        JoinType::LeftSemi | JoinType::LeftMark => (left * met.min(1.0)).max(1.0),
        JoinType::RightSemi | JoinType::RightMark => right,
        JoinType::LeftAnti => (left * (1.0 - met.min(0.9))).max(1.0),
        JoinType::RightAnti => right,
    }
}

/// The distinct values of a plan's column, at most as many as it has rows.
pub fn distinct(plan: &LogicalPlan, column: &Column) -> Option<f64> {
    let found = match plan {
        LogicalPlan::TableScan(scan) => snapshot_of(scan)?.distinct(&column.name)?,
        LogicalPlan::SubqueryAlias(alias) => {
            let at = plan.schema().maybe_index_of_column(column)?;
            return distinct(&alias.input, &Column::from(alias.input.schema().qualified_field(at)));
        }
        LogicalPlan::Projection(projection) => {
            let at = plan.schema().maybe_index_of_column(column)?;
            return distinct_of(&projection.input, projection.expr.get(at)?);
        }
        LogicalPlan::Aggregate(aggregate) => match aggregate.group_expr.as_slice() {
            [only] if plan.schema().maybe_index_of_column(column) == Some(0) => {
                groups(&aggregate.input, std::slice::from_ref(only))
            }
            _ => return None,
        },
        other => {
            let input = other.inputs().into_iter().find(|input| input.schema().has_column(column))?;
            distinct(input, column)?
        }
    };
    Some(found.min(rows(plan)).max(1.0))
}

/// Whether the columns of a scanned table hold a key of it; then its rows before any condition.
pub fn rows_by_key(plan: &LogicalPlan, columns: &[&Column]) -> Option<f64> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let snapshot = snapshot_of(scan)?;
            let table = snapshot.table();
            let at: Vec<usize> = columns.iter().filter_map(|column| table.column(&column.name)).collect();
            is_unique(table, &at).then(|| snapshot.rows_of(&[]))
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let inner: Option<Vec<Column>> = columns
                .iter()
                .map(|column| {
                    let at = plan.schema().maybe_index_of_column(column)?;
                    Some(Column::from(alias.input.schema().qualified_field(at)))
                })
                .collect();
            let inner = inner?;
            rows_by_key(&alias.input, &inner.iter().collect::<Vec<_>>())
        }
        LogicalPlan::Projection(projection) => {
            let inner: Vec<&Column> = columns
                .iter()
                .filter_map(|column| match projection.expr.get(plan.schema().maybe_index_of_column(column)?)? {
                    DfExpr::Column(inner) => Some(inner),
                    _ => None,
                })
                .collect();
            rows_by_key(&projection.input, &inner)
        }
        LogicalPlan::Filter(filter) => rows_by_key(&filter.input, columns),
        _ => None,
    }
}
