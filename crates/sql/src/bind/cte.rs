//! Which names mean common table expressions? Kept along a walk over a statement's syntax tree: without RECURSIVE an expression sees those that
//! stand before it, a body all of its query's, and a table of the same name is meant wherever none is seen.

use super::names::RelationName;
use super::scope::fold;
use sqlparser::ast::Query;

/// Those of the queries that the walk is in.
#[derive(Default)]
pub struct Ctes {
    levels: Vec<Level>,
}

/// Those of one query. Nodes are told apart by their addresses: a visitor lends them for a call only.
struct Level {
    names: Vec<String>,
    queries: Vec<*const Query>,
    is_recursive: bool,
    visible: usize,
}

impl Level {
    fn of(query: &Query) -> Level {
        let with = query.with.as_ref();
        let ctes = with.map_or(&[][..], |with| &with.cte_tables);
        Level {
            names: ctes.iter().map(|cte| fold(&cte.alias.name)).collect(),
            queries: ctes.iter().map(|cte| std::ptr::from_ref(&*cte.query)).collect(),
            is_recursive: with.is_some_and(|with| with.recursive),
            visible: 0,
        }
    }

    fn sees(&self, name: &str) -> bool {
        let visible = if self.is_recursive { self.names.len() } else { self.visible };
        self.names[..visible].iter().any(|own| own == name)
    }
}

impl Ctes {
    /// Before anything of the query is visited.
    pub fn enter(&mut self, query: &Query) {
        self.levels.push(Level::of(query));
    }

    /// After all of it was.
    pub fn leave(&mut self, query: &Query) {
        self.levels.pop();
        if let Some(outer) = self.levels.last_mut()
            && let Some(at) = outer.queries.iter().position(|own| std::ptr::eq(*own, query))
        {
            outer.visible = at + 1;
        }
    }

    /// Whether the name means one where the walk is.
    pub fn has(&self, name: &RelationName) -> bool {
        name.namespace.is_none() && self.levels.iter().any(|level| level.sees(&name.name))
    }

    /// Whether it does in the body of the query that was entered last.
    pub fn has_in_body(&self, name: &RelationName) -> bool {
        let own = self.levels.last().is_some_and(|level| level.names.contains(&name.name));
        own && name.namespace.is_none() || self.has(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Parsed, parse};
    use sqlparser::ast::{TableFactor, Visit, Visitor};
    use std::ops::ControlFlow;

    /// Whether every place where the statement names `t` means an expression.
    fn is_always_an_expression(sql: &str) -> bool {
        struct Sees(Ctes, bool);
        impl Visitor for Sees {
            type Break = ();
            fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
                self.0.enter(query);
                ControlFlow::Continue(())
            }
            fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
                self.0.leave(query);
                ControlFlow::Continue(())
            }
            fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
                if let TableFactor::Table { name, .. } = factor
                    && let Ok(name) = RelationName::of(name)
                    && name.name == "t"
                {
                    self.1 &= self.0.has(&name);
                }
                ControlFlow::Continue(())
            }
        }
        let Ok(Parsed::Sql(statement)) = parse(sql) else { panic!("{sql}") };
        let mut sees = Sees(Ctes::default(), true);
        assert!(statement.visit(&mut sees).is_continue(), "{sql}");
        sees.1
    }

    #[test]
    fn an_expression_does_not_hide_the_table_that_it_reads() {
        for sql in [
            "with t as (select 1) select * from t",
            "with a as (select 1), t as (select * from a) select * from (select * from t) x",
            "with recursive t as (select 1 union all select * from t) select * from t",
            "with t as (select 1) select (select count(*) from t)",
            "with t as (select 1), u as (select * from t) select * from u, t",
        ] {
            assert!(is_always_an_expression(sql), "{sql}");
        }
        for sql in [
            "with t as (select * from t) select * from t",
            "with u as (select * from t), t as (select 1) select * from t",
            "select * from (with t as (select 1) select * from t) x, t",
            "with t as (select 1) select * from public.t",
        ] {
            assert!(!is_always_an_expression(sql), "{sql}");
        }
    }
}
