//! How does a physical rule of ours change a plan? It puts nodes in the place of nodes, each seen once, and leaves the others.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// What stands in a node's place; `None`: it stays.
type Replaced = Result<Option<Arc<dyn ExecutionPlan>>>;

/// A rule that looks at each node for itself. What it gives has the node's schema.
#[derive(Debug)]
pub struct Replace {
    pub name: &'static str,
    pub order: NodeOrder,
    pub with: fn(&Arc<dyn ExecutionPlan>) -> Replaced,
}

/// Which node of two, one below the other, is seen first. What replaces a node is not looked at again; below it is, going down.
#[derive(Debug)]
pub enum NodeOrder {
    Down,
    Up,
}

impl PhysicalOptimizerRule for Replace {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let replace = |node| Ok((self.with)(&node)?.map_or_else(|| Transformed::no(node), Transformed::yes));
        let replaced = match self.order {
            NodeOrder::Down => plan.transform_down(replace),
            NodeOrder::Up => plan.transform_up(replace),
        };
        Ok(replaced?.data)
    }

    fn name(&self) -> &str {
        self.name
    }

    fn schema_check(&self) -> bool {
        true
    }
}
