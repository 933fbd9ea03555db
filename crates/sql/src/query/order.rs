//! In which order are tables joined? By the rows that each order is estimated to make on its way; DataFusion joins them as they were written.
//!
//! A tree of inner joins is a set of relations and a set of conditions. The best tree for a set of relations is made of the best trees for two
//! halves of it (Selinger's dynamic programming, over bushy trees); with many relations the two that make the fewest rows are joined first.
//!
//! 1. Only inner joins are taken apart, and semi joins with a key, which are the same: another join stays whole, as a relation.
//! 2. Every condition is applied at the first join that has all it mentions.
//! 3. The smaller side of a join is its left one, which a hash join keeps in memory.

use super::estimate::{distinct, rows, rows_by_key};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, NullEquality, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Expr, Filter, Join, JoinConstraint, LogicalPlan, LogicalPlanBuilder, Operator, Projection,
};
use std::sync::Arc;

/// Relations of which all trees are looked at: 3^10 splits are 59,049.
const EXHAUSTIVE_MAX: usize = 10;
/// A row costs so much more to keep in a hash table than to pass by it.
const BUILD_COST: f64 = 2.0;
const OTHER_CONDITION: f64 = 1.0 / 3.0;
/// Fewer rows are joined as they come.
const WORTH_ROWS: f64 = 2_000.0;

/// The plan with its inner joins in a better order; `None` if there is nothing to order.
pub fn ordered(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let mut is_changed = false;
    let ordered = plan.clone().transform_down(|node| {
        if let Some(turned) = smaller_first(&node)? {
            is_changed = true;
            return Ok(Transformed::yes(turned));
        }
        let Some(tree) = Tree::of(&node) else {
            return Ok(Transformed::no(node));
        };
        is_changed = true;
        let joined = tree.joined(node.schema().columns())?;
        // What is below was ordered with it.
        Ok(Transformed::new(joined, true, TreeNodeRecursion::Jump))
    })?;
    Ok(is_changed.then_some(ordered.data))
}

/// A product with its smaller side on the left: DataFusion gives a batch for each row of that and each batch of the other side, so that a table
/// beside a function of few rows would come in as many batches as it has rows. `None`: it is none, or stands so already.
fn smaller_first(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let LogicalPlan::Join(join) = plan else { return Ok(None) };
    let is_product = join.join_type == JoinType::Inner && join.on.is_empty() && join.filter.is_none();
    let asks = matches!(join.right.as_ref(), LogicalPlan::Subquery(_));
    if !is_product || asks || rows(&join.left) <= rows(&join.right) {
        return Ok(None);
    }
    let (left, right) = (join.left.as_ref().clone(), join.right.as_ref().clone());
    let turned = LogicalPlanBuilder::from(right).cross_join(left)?.build()?;
    let columns = plan.schema().columns().into_iter().map(Expr::Column).collect();
    Ok(Some(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(turned))?)))
}

/// Relations that are joined, by what.
struct Tree {
    relations: Vec<LogicalPlan>,
    /// The rows of each, estimated.
    sizes: Vec<f64>,
    conditions: Vec<Condition>,
}

struct Condition {
    expr: Expr,
    /// The relations that it mentions.
    of: u32,
    /// The sides of an equality of two sets of relations.
    equal: Option<[(Expr, u32); 2]>,
}

impl Tree {
    /// `None`: there is nothing to order.
    fn of(plan: &LogicalPlan) -> Option<Tree> {
        if !matches!(plan, LogicalPlan::Join(join) if is_plain(join)) {
            return None;
        }
        let (mut relations, mut exprs) = (Vec::new(), Vec::new());
        take_apart(plan, &mut relations, &mut exprs);
        if !(3..=32).contains(&relations.len()) {
            return None;
        }
        let sizes: Vec<f64> = relations.iter().map(rows).collect();
        if sizes.iter().sum::<f64>() < WORTH_ROWS {
            return None;
        }
        if exprs.iter().any(Expr::is_volatile) {
            return None;
        }
        let conditions = exprs.into_iter().map(|expr| Condition::new(expr, &relations)).collect();
        Some(Tree { relations, sizes, conditions })
    }

    fn joined(self, columns: Vec<Column>) -> Result<LogicalPlan> {
        let shares = self.shares();
        let best = match self.relations.len() {
            n if n <= EXHAUSTIVE_MAX => exhaustive(&self, &shares),
            _ => greedy(&self, &shares),
        };
        let mut relations = Vec::with_capacity(self.relations.len());
        for relation in &self.relations {
            relations.push(ordered(relation)?.unwrap_or_else(|| relation.clone()));
        }
        let (plan, applied) = build(&best, &relations, &self.conditions)?;
        let left: Vec<Expr> =
            self.conditions.iter().filter(|c| c.of & !applied != 0 || c.of == 0).map(|c| c.expr.clone()).collect();
        let plan = match conjunction(left) {
            Some(rest) => LogicalPlan::Filter(Filter::try_new(rest, Arc::new(plan))?),
            None => plan,
        };
        let columns = columns.into_iter().map(Expr::Column).collect();
        Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?))
    }

    /// What share of the pairs of rows each group of conditions leaves, with the relations that it is of.
    fn shares(&self) -> Vec<(u32, f64)> {
        let mut shares: Vec<(u32, f64)> = Vec::new();
        let mut of: Vec<u32> = self.conditions.iter().map(|c| c.of).collect();
        of.sort_unstable();
        of.dedup();
        for of in of {
            let group: Vec<&Condition> = self.conditions.iter().filter(|c| c.of == of).collect();
            shares.push((of, self.share(&group)));
        }
        shares
    }

    /// Of conditions that mention the same relations.
    fn share(&self, group: &[&Condition]) -> f64 {
        let equal: Vec<&[(Expr, u32); 2]> = group.iter().filter_map(|c| c.equal.as_ref()).collect();
        let others = OTHER_CONDITION.powi((group.len() - equal.len()) as i32);
        if let Some(by_key) = self.share_by_key(&equal) {
            return by_key * others;
        }
        let mut shares: Vec<f64> = equal.iter().map(|sides| self.equal_share(sides)).collect();
        shares.sort_by(f64::total_cmp);
        // Columns that are joined together hang together: each further condition counts half as much in the exponent.
        let equal = shares.iter().enumerate().map(|(i, share)| share.powf(0.5_f64.powi(i as i32))).product::<f64>();
        equal * others
    }

    /// Each row of one side meets at most one of the other, whose key it is.
    fn share_by_key(&self, equal: &[&[(Expr, u32); 2]]) -> Option<f64> {
        let relations =
            equal.iter().flat_map(|sides| sides.iter().map(|(_, of)| *of)).filter(|of| of.count_ones() == 1);
        let by_key = relations.filter_map(|of| {
            let columns: Vec<&Column> = equal
                .iter()
                .flat_map(|sides| sides.iter())
                .filter(|(_, side)| *side == of)
                .filter_map(|(expr, _)| match expr {
                    Expr::Column(column) => Some(column),
                    _ => None,
                })
                .collect();
            rows_by_key(&self.relations[of.trailing_zeros() as usize], &columns)
        });
        by_key.reduce(f64::max).map(|rows| 1.0 / rows.max(1.0))
    }

    fn equal_share(&self, sides: &[(Expr, u32); 2]) -> f64 {
        let values = sides.iter().map(|(expr, of)| match expr {
            Expr::Column(column) if of.count_ones() == 1 => {
                let at = of.trailing_zeros() as usize;
                distinct(&self.relations[at], column).unwrap_or_else(|| self.sizes[at].sqrt())
            }
            _ => 200.0,
        });
        1.0 / values.fold(1.0, f64::max)
    }
}

/// Whether its rows are those of an inner join, on the columns that it gives.
fn is_plain(join: &Join) -> bool {
    let meets_once = |side: &LogicalPlan, on: &mut dyn Iterator<Item = &Expr>| {
        let columns: Option<Vec<&Column>> = on.map(|expr| expr.try_as_col()).collect();
        columns.is_some_and(|columns| rows_by_key(side, &columns).is_some())
    };
    let is_inner = match join.join_type {
        JoinType::Inner => true,
        JoinType::LeftSemi => meets_once(&join.right, &mut join.on.iter().map(|(_, right)| right)),
        JoinType::RightSemi => meets_once(&join.left, &mut join.on.iter().map(|(left, _)| left)),
        _ => false,
    };
    is_inner && join.null_equality == NullEquality::NullEqualsNothing && !join.null_aware
}

/// Whether a projection only leaves out columns.
fn is_narrowing(projection: &Projection) -> bool {
    projection.expr.iter().all(|expr| matches!(expr, Expr::Column(_)))
}

fn take_apart(plan: &LogicalPlan, relations: &mut Vec<LogicalPlan>, conditions: &mut Vec<Expr>) {
    match plan {
        LogicalPlan::Join(join) if is_plain(join) => {
            take_apart(&join.left, relations, conditions);
            take_apart(&join.right, relations, conditions);
            let on = join.on.iter().map(|(left, right)| left.clone().eq(right.clone()));
            conditions.extend(on);
            conditions.extend(join.filter.iter().flat_map(|filter| split_conjunction(filter)).cloned());
        }
        LogicalPlan::Projection(projection) if is_narrowing(projection) && holds_join(&projection.input) => {
            take_apart(&projection.input, relations, conditions);
        }
        LogicalPlan::Filter(filter) if holds_join(&filter.input) => {
            take_apart(&filter.input, relations, conditions);
            conditions.extend(split_conjunction(&filter.predicate).into_iter().cloned());
        }
        other => relations.push(other.clone()),
    }
}

fn holds_join(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(join) => is_plain(join),
        LogicalPlan::Projection(projection) => is_narrowing(projection) && holds_join(&projection.input),
        LogicalPlan::Filter(filter) => holds_join(&filter.input),
        _ => false,
    }
}

impl Condition {
    fn new(expr: Expr, relations: &[LogicalPlan]) -> Condition {
        let of = mentioned(&expr, relations);
        let equal = match &expr {
            Expr::BinaryExpr(binary) if binary.op == Operator::Eq => {
                let (left, right) = (mentioned(&binary.left, relations), mentioned(&binary.right, relations));
                let are_apart = left != 0 && right != 0 && left & right == 0;
                are_apart.then(|| [((*binary.left).clone(), left), ((*binary.right).clone(), right)])
            }
            _ => None,
        };
        Condition { expr, of, equal }
    }
}

fn mentioned(expr: &Expr, relations: &[LogicalPlan]) -> u32 {
    let of = |column: &&Column| relations.iter().position(|relation| relation.schema().has_column(column));
    expr.column_refs().iter().filter_map(of).fold(0, |set, at| set | 1 << at)
}

/// A tree of joins over relations by their places.
#[derive(Clone, Debug)]
enum Shape {
    One(usize),
    Two(Box<Shape>, Box<Shape>),
}

#[derive(Clone, Debug)]
struct Best {
    cost: f64,
    rows: f64,
    shape: Shape,
}

fn rows_of(set: u32, tree: &Tree, shares: &[(u32, f64)]) -> f64 {
    let all: f64 = (0..tree.sizes.len()).filter(|at| set & 1 << at != 0).map(|at| tree.sizes[at]).product();
    shares.iter().filter(|(of, _)| of & !set == 0).fold(all, |rows, (_, share)| rows * share).max(1.0)
}

fn two(a: &Best, b: &Best, rows: f64, is_joined: bool) -> Best {
    let (small, large) = if a.rows <= b.rows { (a, b) } else { (b, a) };
    let own = match is_joined {
        true => small.rows * BUILD_COST + large.rows,
        false => small.rows * large.rows,
    };
    let shape = Shape::Two(Box::new(small.shape.clone()), Box::new(large.shape.clone()));
    Best { cost: small.cost + large.cost + own + rows, rows, shape }
}

/// Whether an equality lies between two sets.
fn meets(a: u32, b: u32, tree: &Tree) -> bool {
    tree.conditions
        .iter()
        .filter_map(|c| c.equal.as_ref())
        .any(|[(_, left), (_, right)]| (left & !a == 0 && right & !b == 0) || (left & !b == 0 && right & !a == 0))
}

fn exhaustive(tree: &Tree, shares: &[(u32, f64)]) -> Shape {
    let count = tree.relations.len();
    let mut best: Vec<Option<Best>> = vec![None; 1 << count];
    for set in 1u32..1 << count {
        let rows = rows_of(set, tree, shares);
        if set.count_ones() == 1 {
            let shape = Shape::One(set.trailing_zeros() as usize);
            best[set as usize] = Some(Best { cost: 0.0, rows, shape });
            continue;
        }
        let mut found: Option<Best> = None;
        let mut half = (set - 1) & set;
        while half > 0 {
            let other = set & !half;
            if half < other
                && let (Some(a), Some(b)) = (&best[half as usize], &best[other as usize])
            {
                let made = two(a, b, rows, meets(half, other, tree));
                if found.as_ref().is_none_or(|found| made.cost < found.cost) {
                    found = Some(made);
                }
            }
            half = (half - 1) & set;
        }
        best[set as usize] = found;
    }
    best.pop().flatten().expect("invariant: every set has two halves").shape
}

/// The two that make the fewest rows, again and again.
fn greedy(tree: &Tree, shares: &[(u32, f64)]) -> Shape {
    let one = |at: usize| {
        let set = 1 << at;
        (set, Best { cost: 0.0, rows: rows_of(set, tree, shares), shape: Shape::One(at) })
    };
    let mut parts: Vec<(u32, Best)> = (0..tree.relations.len()).map(one).collect();
    while parts.len() > 1 {
        let mut found: Option<(bool, usize, usize, Best)> = None;
        for a in 0..parts.len() {
            for b in a + 1..parts.len() {
                let set = parts[a].0 | parts[b].0;
                let is_joined = meets(parts[a].0, parts[b].0, tree);
                let made = two(&parts[a].1, &parts[b].1, rows_of(set, tree, shares), is_joined);
                let is_better =
                    found.as_ref().is_none_or(|(joined, _, _, best)| (!is_joined, made.rows) < (!joined, best.rows));
                if is_better {
                    found = Some((is_joined, a, b, made));
                }
            }
        }
        let (_, a, b, made) = found.expect("invariant: there are two");
        let set = parts[a].0 | parts[b].0;
        parts.remove(b);
        parts[a] = (set, made);
    }
    parts.remove(0).1.shape
}

/// The joins of a shape, and the relations in them.
fn build(shape: &Shape, relations: &[LogicalPlan], conditions: &[Condition]) -> Result<(LogicalPlan, u32)> {
    let (left, right) = match shape {
        Shape::One(at) => {
            let (plan, set) = (relations[*at].clone(), 1 << at);
            let own: Vec<Expr> = conditions.iter().filter(|c| c.of == set).map(|c| c.expr.clone()).collect();
            return Ok(match conjunction(own) {
                Some(own) => (LogicalPlan::Filter(Filter::try_new(own, Arc::new(plan))?), set),
                None => (plan, set),
            });
        }
        Shape::Two(left, right) => (left, right),
    };
    let ((left, a), (right, b)) = (build(left, relations, conditions)?, build(right, relations, conditions)?);
    let (mut on, mut others) = (Vec::new(), Vec::new());
    for condition in conditions.iter().filter(|c| c.of & !(a | b) == 0 && c.of & !a != 0 && c.of & !b != 0) {
        match &condition.equal {
            Some([(x, x_of), (y, y_of)]) if x_of & !a == 0 && y_of & !b == 0 => on.push((x.clone(), y.clone())),
            Some([(x, x_of), (y, y_of)]) if x_of & !b == 0 && y_of & !a == 0 => on.push((y.clone(), x.clone())),
            _ => others.push(condition.expr.clone()),
        }
    }
    let filter = conjunction(others);
    if on.is_empty() && filter.is_none() {
        return Ok((LogicalPlanBuilder::from(left).cross_join(right)?.build()?, a | b));
    }
    let nothing = NullEquality::NullEqualsNothing;
    let join = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        filter,
        JoinType::Inner,
        JoinConstraint::On,
        nothing,
        false,
    )?;
    Ok((LogicalPlan::Join(join), a | b))
}
