//! Which of DataFusion's logical rules are mended? Those of DataFusion 55 that change what a query gives.
//!
//! | rule | what it does wrong | here |
//! |---|---|---|
//! | `push_down_filter` | a condition without columns goes below an aggregate without groups, which gives its row all the same | such an aggregate keeps its filters above it |
//! | `extract_equijoin_predicate` | keys of `=` join those of IS NOT DISTINCT FROM, by which nulls are equal | the keys are those of `=`; the others are conditions |
//! | `eliminate_cross_join` | keys of a WHERE's `=` join those of IS NOT DISTINCT FROM | a plan with an inner join by such keys is left to `push_down_filter` |
//! | `eliminate_duplicated_expr` | sort keys go that a unique one before them decides, also where the rows of that one were unnested | it is left out |

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{JoinType, NullEquality, Result};
use datafusion::logical_expr::logical_plan::Join;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use std::sync::Arc;

type Rule = Arc<dyn OptimizerRule + Send + Sync>;

/// The rules as they are used.
pub fn mended(rules: &[Rule]) -> Vec<Rule> {
    let mend = |rule: &Rule| -> Option<Rule> {
        match rule.name() {
            "eliminate_duplicated_expr" => None,
            "push_down_filter" => Some(Arc::new(KeepAboveOneGroup(rule.clone()))),
            "eliminate_cross_join" => Some(Arc::new(LeaveNullKeys(rule.clone()))),
            "extract_equijoin_predicate" => Some(Arc::new(KeepKeysAlike(rule.clone()))),
            _ => Some(rule.clone()),
        }
    };
    rules.iter().filter_map(mend).collect()
}

/// `push_down_filter`, which leaves filters above aggregates that give a row of no rows.
#[derive(Debug)]
struct KeepAboveOneGroup(Rule);

impl OptimizerRule for KeepAboveOneGroup {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        // Nothing that such an aggregate gives is a column of its input: there is nothing to push.
        if filters_one_group(&plan) { Ok(Transformed::no(plan)) } else { self.0.rewrite(plan, config) }
    }
}

fn filters_one_group(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Filter(filter) = plan else { return false };
    match filter.input.as_ref() {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        input => filters_one_group(input),
    }
}

/// `eliminate_cross_join`, which leaves joins alone whose keys match nulls.
#[derive(Debug)]
struct LeaveNullKeys(Rule);

impl OptimizerRule for LeaveNullKeys {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        // It is called for the whole plan, and goes into subqueries by itself.
        if joins_nulls(&plan)? { Ok(Transformed::no(plan)) } else { self.0.rewrite(plan, config) }
    }
}

fn joins_nulls(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= matches_nulls(node);
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Set operations join so too, but by semi and anti joins, to which no key is added.
fn matches_nulls(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Join(join) if join.join_type == JoinType::Inner && join.null_equality == NullEquality::NullEqualsNull)
}

/// `extract_equijoin_predicate`, which does not mix keys that match nulls with keys that do not.
#[derive(Debug)]
struct KeepKeysAlike(Rule);

impl OptimizerRule for KeepKeysAlike {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Join(join) if may_mix_keys(&join) => {
                // The rule takes keys of one kind: those of `=`, or, where there are none, these again.
                let rewritten = self.0.rewrite(LogicalPlan::Join(with_conditions_for_keys(join)), config)?;
                Ok(Transformed::yes(rewritten.data))
            }
            plan => self.0.rewrite(plan, config),
        }
    }
}

fn may_mix_keys(join: &Join) -> bool {
    let is_equality = |part: &&Expr| matches!(part, Expr::BinaryExpr(BinaryExpr { op: Operator::Eq, .. }));
    join.null_equality == NullEquality::NullEqualsNull
        && !join.null_aware
        && join.filter.as_ref().is_some_and(|filter| split_conjunction(filter).iter().any(is_equality))
}

/// The same join of keys that match nulls, with a condition for each of them.
fn with_conditions_for_keys(join: Join) -> Join {
    let alike =
        |(left, right)| Expr::BinaryExpr(BinaryExpr::new(Box::new(left), Operator::IsNotDistinctFrom, Box::new(right)));
    let conditions = join.on.into_iter().map(alike).chain(join.filter);
    Join {
        filter: conjunction(conditions.collect::<Vec<_>>()),
        on: Vec::new(),
        null_equality: NullEquality::NullEqualsNothing,
        ..join
    }
}
