//! What may the two terms of WITH RECURSIVE be?

use super::from::{is_named, mentions};
use super::plan::Rel;
use crate::bind::Bind;
use crate::bind::names::RelationName;
use crate::bind::query::{has_own_call, is_aggregate};
use crate::error::SqlError;
use crate::value::cast::{common_type, same_base, without_modifier};
use crate::value::pgtype::format_type;
use sqlparser::ast::{self, JoinOperator, Select, SetExpr, SetOperator, TableFactor, TableWithJoins};

/// Each column of the recursive term has the type of the other term's, precision and length included.
pub fn check_types(name: &str, anchor: &Rel, term: &Rel) -> Bind<()> {
    if anchor.columns.len() != term.columns.len() {
        return Err(SqlError::new("42601", "each UNION query must have the same number of columns").into());
    }
    for (i, (a, t)) in anchor.columns.iter().zip(&term.columns).enumerate() {
        let (own, other) = (a.declared(), (!t.untyped).then(|| t.declared()));
        let common = common_type("UNION", &[Some(own), other])?;
        let overall = if other == Some(own) { own } else { without_modifier(common) };
        if !same_base(own, overall) || own != overall {
            let message = format!(
                "recursive query \"{name}\" column {} has type {} in non-recursive term but type {} overall",
                i + 1,
                format_type(own),
                format_type(overall)
            );
            return Err(SqlError::new("42804", message)
                .with_hint("Cast the output of the non-recursive term to the correct type.")
                .into());
        }
    }
    Ok(())
}

fn invalid<T>(message: String) -> Bind<T> {
    Err(SqlError::new("42P19", message).into())
}

fn must_not_appear<T>(name: &str, place: &str) -> Bind<T> {
    invalid(format!("recursive reference to query \"{name}\" must not appear within {place}"))
}

/// What stands in WITH before the two terms is read by both.
pub fn check_with(name: &str, with: &ast::With) -> Bind<()> {
    if with.cte_tables.iter().any(|cte| mentions(cte.query.as_ref(), name)) {
        return must_not_appear(name, "a subquery");
    }
    Ok(())
}

/// The recursive term names the query once, where its rows are read as they come.
pub fn check_term(name: &str, term: &SetExpr) -> Bind<()> {
    let mut found = 0;
    check_body(name, term, &mut found)?;
    match found {
        0 | 1 => Ok(()),
        _ => invalid(format!("recursive reference to query \"{name}\" must not appear more than once")),
    }
}

fn check_body(name: &str, body: &SetExpr, found: &mut usize) -> Bind<()> {
    match body {
        SetExpr::Select(select) => check_select(name, select, found),
        SetExpr::Query(query) => check_query(name, query, found),
        SetExpr::SetOperation { op, left, right, .. } => {
            match op {
                SetOperator::Intersect if mentions(body, name) => return must_not_appear(name, "INTERSECT"),
                SetOperator::Except if mentions(right.as_ref(), name) => return must_not_appear(name, "EXCEPT"),
                _ => {}
            }
            check_body(name, left, found)?;
            check_body(name, right, found)
        }
        SetExpr::Table(table) => {
            *found += usize::from(table.schema_name.is_none() && table.table_name.as_deref() == Some(name));
            Ok(())
        }
        _ => Ok(()),
    }
}

fn check_query(name: &str, query: &ast::Query, found: &mut usize) -> Bind<()> {
    let is_hidden =
        |with: &ast::With| with.cte_tables.iter().any(|cte| crate::bind::scope::fold(&cte.alias.name) == name);
    match &query.with {
        // Another query of that name.
        Some(with) if is_hidden(with) => return Ok(()),
        Some(with) => with.cte_tables.iter().try_for_each(|cte| check_query(name, &cte.query, found))?,
        None => {}
    }
    check_body(name, &query.body, found)
}

fn check_select(name: &str, select: &Select, found: &mut usize) -> Bind<()> {
    let mut direct = 0;
    for from in &select.from {
        check_joined(name, from, &mut direct, found)?;
    }
    let is_grouping = |function: &ast::Function| function.over.is_none() && is_aggregate(function);
    if direct > 0 && has_own_call(select, is_grouping) {
        return invalid("aggregate functions are not allowed in a recursive query's recursive term".to_owned());
    }
    *found += direct;
    let mut outside = select.clone();
    outside.from.clear();
    if mentions(&outside, name) {
        return must_not_appear(name, "a subquery");
    }
    Ok(())
}

fn check_joined(name: &str, from: &TableWithJoins, direct: &mut usize, found: &mut usize) -> Bind<()> {
    check_factor(name, &from.relation, direct, found)?;
    let mut is_before = mentions(&from.relation, name);
    for join in &from.joins {
        let is_in = mentions(&join.relation, name);
        let is_nullable = match &join.join_operator {
            JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => is_in,
            JoinOperator::Right(_) | JoinOperator::RightOuter(_) => is_before,
            JoinOperator::FullOuter(_) => is_in || is_before,
            _ => false,
        };
        if is_nullable {
            return must_not_appear(name, "an outer join");
        }
        check_factor(name, &join.relation, direct, found)?;
        if mentions(&join.join_operator, name) {
            return must_not_appear(name, "a subquery");
        }
        is_before |= is_in;
    }
    Ok(())
}

fn check_factor(name: &str, factor: &TableFactor, direct: &mut usize, found: &mut usize) -> Bind<()> {
    match factor {
        TableFactor::Table { name: table, args: None, .. } => {
            *direct += usize::from(RelationName::of(table).is_ok_and(|table| is_named(&table, name)));
            Ok(())
        }
        TableFactor::Derived { subquery, .. } => check_query(name, subquery, found),
        TableFactor::NestedJoin { table_with_joins, .. } => check_joined(name, table_with_joins, direct, found),
        _ => Ok(()),
    }
}
