//! What does EXPLAIN say? A plan as a tree of nodes, in the words and the layout of PostgreSQL, as text or as JSON.
//!
//! | module | question |
//! |---|---|
//! | `options` | what was asked for |
//! | `program` | which nodes a compiled statement has |
//! | `render` | how nodes are written |
//!
//! 1. Names of nodes and properties are PostgreSQL's where it has such a node. After the plan stands which road runs it.
//! 2. Costs are in PostgreSQL's unit (a page read in sequence is 1); rows come from statistics where there are some.
//! 3. With ANALYZE the statement runs, and its own result is thrown away.

mod options;
mod program;
mod render;

pub use options::{Format, Options};
#[cfg(feature = "query")]
pub use program::query_node;
pub use program::{Measured, nodes};
pub use render::lines;

use crate::route::Plan;
use crate::rows::Column;
use std::sync::Arc;

/// An EXPLAIN: what of, and how.
#[derive(Debug)]
pub struct Explained {
    pub options: Options,
    pub of: Plan,
    /// Of the statement's own rows.
    pub columns: Arc<[Column]>,
    /// What it took to plan, when that was done.
    pub planning_ms: f64,
}

/// A step of a plan.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// PostgreSQL's node type.
    pub kind: String,
    /// What the text form calls it, where that is not its type: `HashAggregate`, `Insert`.
    pub title: Option<String>,
    /// What the text form says after that: ` using i on t`.
    pub about: String,
    pub properties: Vec<Property>,
    pub estimate: Estimate,
    pub actual: Option<Actual>,
    pub children: Vec<Node>,
    /// It computes what others use: `InitPlan 1 (returns $0)`, `CTE x`.
    pub subplan: Option<String>,
}

/// More about a node.
#[derive(Clone, Debug)]
pub struct Property {
    pub name: &'static str,
    pub value: Told,
    /// Told by the node's first line, so that only JSON has it by itself.
    pub is_about: bool,
}

/// A property's value.
#[derive(Clone, Debug)]
pub enum Told {
    Text(String),
    List(Vec<String>),
    Count(u64),
}

/// What a node is expected to cost and to give.
#[derive(Clone, Copy, Debug, Default)]
pub struct Estimate {
    pub startup: f64,
    pub total: f64,
    pub rows: f64,
    pub width: f64,
}

/// What a node took and gave, in each of its loops on average.
#[derive(Clone, Copy, Debug, Default)]
pub struct Actual {
    /// Until the first row, and until the last.
    pub startup_ms: f64,
    pub total_ms: f64,
    pub rows: f64,
    pub loops: u64,
}

impl Node {
    pub fn new(kind: impl Into<String>, estimate: Estimate) -> Node {
        Node { kind: kind.into(), estimate, ..Node::default() }
    }

    pub fn titled(mut self, title: impl Into<String>) -> Node {
        self.title = Some(title.into());
        self
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Node {
        self.properties.push(Property { name, value: Told::Text(value.into()), is_about: false });
        self
    }

    /// Conditions that all hold, if there are any.
    pub fn with_all(self, name: &'static str, conditions: &[String]) -> Node {
        match conditions {
            [] => self,
            conditions => self.with(name, all_of(conditions)),
        }
    }

    pub fn listing(mut self, name: &'static str, values: Vec<String>) -> Node {
        self.properties.push(Property { name, value: Told::List(values), is_about: false });
        self
    }

    pub fn counting(mut self, name: &'static str, count: u64) -> Node {
        self.properties.push(Property { name, value: Told::Count(count), is_about: false });
        self
    }

    /// A property that the title tells.
    pub fn being(mut self, name: &'static str, value: impl Into<String>) -> Node {
        self.properties.push(Property { name, value: Told::Text(value.into()), is_about: true });
        self
    }

    /// A property that the text form tells on the node's own line.
    pub fn about(mut self, words: &str, name: &'static str, value: &str) -> Node {
        self.about.push_str(words);
        self.about.push_str(value);
        self.being(name, value)
    }

    /// A relation, by the name that the statement gives it.
    pub fn on(self, relation: &str, alias: &str) -> Node {
        let node = self.about(" on ", "Relation Name", relation).being("Alias", alias);
        if relation == alias { node } else { node.adding(&format!(" {alias}")) }
    }

    /// More words on the node's own line.
    pub fn adding(mut self, words: &str) -> Node {
        self.about.push_str(words);
        self
    }

    /// A join as PostgreSQL calls it: `Hash Left Join`, `Nested Loop`.
    pub fn join(how: &str, which: &str, estimate: Estimate) -> Node {
        let outer = if which == "Inner" { String::new() } else { format!(" {which}") };
        let (kind, title) = match (how, which) {
            ("Nested Loop", "Inner") => ("Nested Loop".to_owned(), "Nested Loop".to_owned()),
            ("Nested Loop", _) => ("Nested Loop".to_owned(), format!("Nested Loop{outer} Join")),
            _ => (format!("{how} Join"), format!("{how}{outer} Join")),
        };
        Node::new(kind, estimate).titled(title).being("Join Type", which)
    }

    /// Groups, by keys or as a whole.
    pub fn aggregate(keys: Vec<String>, part: &str, estimate: Estimate) -> Node {
        let strategy = if keys.is_empty() { "Plain" } else { "Hashed" };
        let title = if keys.is_empty() { "Aggregate" } else { "HashAggregate" };
        let title = if part == "Simple" { title.to_owned() } else { format!("{part} {title}") };
        let node = Node::new("Aggregate", estimate).titled(title).being("Strategy", strategy);
        let node = node.being("Partial Mode", part);
        if keys.is_empty() { node } else { node.listing("Group Key", keys) }
    }

    pub fn over(mut self, children: Vec<Node>) -> Node {
        self.children = children;
        self
    }

    /// The change that its child's rows are for.
    pub fn change(operation: &str, relation: Option<&str>, source: Node) -> Node {
        let estimate = Estimate { rows: 0.0, width: 0.0, ..source.estimate };
        let node = Node::new("ModifyTable", estimate).titled(operation).being("Operation", operation);
        let node = match relation {
            Some(relation) => node.on(relation, relation),
            None => node,
        };
        node.over(vec![source])
    }
}

/// Conditions that all hold, as one.
pub fn all_of(conditions: &[String]) -> String {
    match conditions {
        [one] => one.clone(),
        several => format!("({})", several.join(" AND ")),
    }
}

/// PostgreSQL's: of a row that passes, of an operator on it, of an index entry.
pub const ROW_COST: f64 = 0.01;
pub const OPERATOR_COST: f64 = 0.0025;
pub const ENTRY_COST: f64 = 0.005;

/// What was measured of a statement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    pub planning_ms: f64,
    pub execution_ms: f64,
}
