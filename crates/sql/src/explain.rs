//! What does EXPLAIN say? The road, and on the compiled one the paths to the rows.

use crate::compiled::access::Access;
use crate::compiled::change::InsertSource;
use crate::compiled::query::{Query, Step};
use crate::route::Plan;
use freshet_engine::catalog::{Index, IndexKind};
use freshet_engine::txn::Direction;

/// The lines of EXPLAIN.
pub fn lines(plan: &Plan) -> Vec<String> {
    let mut out = Vec::new();
    match plan {
        Plan::Select(query) => query_lines(query, 0, &mut out),
        Plan::Insert(insert) => {
            out.push(format!("Insert on {}", table_name(&insert.tables, 0)));
            match &insert.source {
                InsertSource::Values(rows) => out.push(format!("  Values: {} rows", rows.len())),
                InsertSource::Query(query, _) => query_lines(query, 1, &mut out),
            }
        }
        Plan::Update(update) => {
            out.push(format!("Update on {}", table_name(&update.search.tables, 0)));
            query_lines(&update.search, 1, &mut out);
        }
        Plan::Delete(delete) => {
            out.push(format!("Delete on {}", table_name(&delete.search.tables, 0)));
            query_lines(&delete.search, 1, &mut out);
        }
        Plan::Other(planned) => {
            out.push("DataFusion:".to_owned());
            out.extend(planned.explain().into_iter().map(|line| format!("  {line}")));
            return out;
        }
        _ => out.push("Utility Statement".to_owned()),
    }
    if let Some(first) = out.first_mut() {
        first.insert_str(0, "Compiled: ");
    }
    out
}

fn table_name(tables: &[Option<std::sync::Arc<freshet_engine::catalog::Table>>], source: usize) -> &str {
    match tables.get(source) {
        Some(Some(table)) => &table.def.name,
        _ => "computed rows",
    }
}

fn query_lines(query: &Query, depth: usize, out: &mut Vec<String>) {
    let mut depth = depth;
    let mut push = |depth: &mut usize, text: String| {
        out.push(format!("{}{text}", "  ".repeat(*depth)));
        *depth += 1;
    };
    if query.limit.is_some() || query.offset.is_some() {
        push(&mut depth, "Limit".to_owned());
    }
    if !query.locks.is_empty() {
        push(&mut depth, "LockRows".to_owned());
    }
    if !query.sort.is_empty() {
        push(&mut depth, "Sort".to_owned());
    }
    if query.distinct {
        push(&mut depth, "Unique".to_owned());
    }
    if let Some(grouping) = &query.grouping {
        let name = if grouping.keys.is_empty() { "Aggregate" } else { "HashAggregate" };
        push(&mut depth, name.to_owned());
    }
    if query.steps.len() > 1 {
        push(&mut depth, "Nested Loop".to_owned());
    }
    if query.steps.is_empty() {
        push(&mut depth, "Result".to_owned());
    }
    for step in &query.steps {
        step_lines(query, step, depth, out);
    }
}

fn step_lines(query: &Query, step: &Step, depth: usize, out: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    let table = table_name(&query.tables, usize::from(step.source));
    let outer = if step.outer.is_some() { " (left join)" } else { "" };
    let keyed =
        |index: &Index, how: &str| format!("Index Scan{how} using {} on {table} ({})", index.def.name, kind(index));
    let head = match &step.access {
        Access::Unique { index, .. } | Access::Lookup { index, .. } => keyed(index, ""),
        Access::Points { index, .. } => keyed(index, ""),
        Access::Range(range) => keyed(
            &range.index,
            match range.direction {
                Direction::Forward => "",
                Direction::Backward => " Backward",
            },
        ),
        Access::Scan => format!("Seq Scan on {table}"),
        Access::Series(_) => "Function Scan on generate_series".to_owned(),
        Access::Values(rows) => format!("Values Scan: {} rows", rows.len()),
        Access::Derived(_) => "Subquery Scan".to_owned(),
        Access::View { view, .. } => format!("System View {}", view.name()),
    };
    out.push(format!("{indent}{head}{outer}"));
    if let Access::Derived(inner) = &step.access {
        query_lines(inner, depth + 1, out);
    }
    if !step.conditions.is_empty() {
        let name = match &step.access {
            Access::Unique { .. } | Access::Lookup { .. } | Access::Points { .. } | Access::Range(_) => "Cond",
            _ => "Filter",
        };
        out.push(format!("{indent}  {name}: {}", step.conditions.join(" AND ")));
    }
}

fn kind(index: &Index) -> &'static str {
    match index.def.kind {
        IndexKind::Hash => "hash",
        IndexKind::BTree => "btree",
    }
}
