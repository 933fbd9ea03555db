//! Which subqueries have one value for the whole statement? Those that compile by themselves: they know no column around them.

use super::expr::Bound;
use super::scope::{Found, Scope, SourceName};
use super::{Bind, Binder, Refusal, not_compiled};
use crate::compiled::init::{Gives, InitPlan, RowQuery};
use crate::compiled::query::Query;
use crate::expr::Expr;
use crate::value::operator::BinaryOp;
use crate::value::{Datum, cast::without_modifier};
use freshet_engine::schema::Type;
use sqlparser::ast;

/// Values of a list that is compared with one after the other, at most.
const LIST_MAX: i64 = 1_000;

/// Queries met so far.
#[derive(Default)]
pub struct InitBinding {
    /// The number of the first one's value among the parameters.
    pub first: u16,
    pub plans: Vec<InitPlan>,
}

/// Numbers that are left to the statement's own queries where others are asked of each row.
const KEPT: usize = 64;

/// Rows that are at hand where an expression is computed: queries in it may use their columns.
pub struct Around {
    scope: Scope,
    /// The next parameter.
    next: usize,
    /// By the parameters' numbers.
    pub arguments: Vec<(u16, Found)>,
    pub queries: Vec<RowQuery>,
    /// A query is being bound.
    is_within: bool,
    /// It has named a column of the rows at hand.
    is_named: bool,
}

impl Around {
    fn take_number(&mut self) -> Option<u16> {
        let number = u16::try_from(self.next).ok();
        self.next += 1;
        number
    }

    /// How many parameters there are with its own.
    pub fn count(&self) -> u16 {
        u16::try_from(self.next).unwrap_or(u16::MAX)
    }
}

impl Binder<'_> {
    /// Makes the columns of rows at hand parameters of the queries that are met from now on.
    pub(super) fn surround(&mut self, scope: Scope) {
        let next = highest_parameter(self.sql).max(self.parameters.len()) + KEPT;
        self.around =
            Some(Around { scope, next, arguments: Vec::new(), queries: Vec::new(), is_within: false, is_named: false });
    }

    /// A column of the rows at hand, for the query that is being bound.
    pub(super) fn column_around(&mut self, source: Option<&SourceName>, name: &str) -> Option<Bound> {
        let around = self.around.as_mut().filter(|around| around.is_within)?;
        let found = match source {
            None => around.scope.column(name).ok()?,
            Some(source) => around.scope.qualified(source, name).ok()?,
        };
        around.is_named = true;
        let known = around.arguments.iter().find(|(_, column)| *column == found).map(|(number, _)| *number);
        let number = match known {
            Some(number) => number,
            None => {
                let number = around.take_number()?;
                around.arguments.push((number, found));
                number
            }
        };
        Some(Bound::new(Expr::Param(number), found.ty))
    }

    /// `(SELECT ...)` as a value.
    pub(super) fn scalar_subquery(&mut self, query: &ast::Query) -> Bind<Bound> {
        let query = self.init_query(query)?;
        let [column] = &query.columns[..] else { return not_compiled("a subquery") };
        let ty = column.ty;
        self.init_plan(query, Gives::Scalar, ty)
    }

    /// `(SELECT ...)` as a row, asked of rows at hand.
    pub(super) fn row_subquery(&mut self, query: &ast::Query) -> Bind<Vec<Bound>> {
        let query = self.init_query(query)?;
        let Some(around) = &mut self.around else { return not_compiled("a subquery") };
        let mut numbers = Vec::with_capacity(query.columns.len());
        let mut row = Vec::with_capacity(query.columns.len());
        for column in query.columns.iter() {
            let Some(number) = around.take_number() else { return not_compiled("so many subqueries") };
            numbers.push(number);
            row.push(Bound::new(Expr::Param(number), column.ty));
        }
        around.queries.push(RowQuery { numbers, plan: InitPlan { query, gives: Gives::Scalar } });
        Ok(row)
    }

    pub(super) fn exists_subquery(&mut self, query: &ast::Query, negated: bool) -> Bind<Bound> {
        let mut query = self.init_query(query)?;
        if query.limit.is_none() && !query.locks_rows() {
            query.limit = Some(Expr::Const(Datum::Int(1)));
        }
        let bound = self.init_plan(query, Gives::Exists, Type::Bool)?;
        let expr = if negated { Expr::Not(Box::new(bound.expr)) } else { bound.expr };
        Ok(Bound::new(expr, Type::Bool))
    }

    /// `left [NOT] IN (SELECT ...)` of few rows, as a worker takes some jobs of a queue. Of many the other road makes a join.
    pub(super) fn in_subquery(
        &mut self,
        left: &ast::Expr,
        query: &ast::Query,
        negated: bool,
        scope: &Scope,
    ) -> Bind<Bound> {
        let query = self.init_query(query)?;
        let has_few = matches!(query.limit, Some(Expr::Const(Datum::Int(limit))) if limit <= LIST_MAX);
        if !has_few && !query.locks_rows() && self.around.is_none() {
            return not_compiled("a subquery");
        }
        let [column] = &query.columns[..] else { return not_compiled("a subquery") };
        let element = without_modifier(column.ty);
        if !is_element(element) {
            return not_compiled("a subquery");
        }
        let left = self.bind(left, scope)?;
        let array = self.init_plan(query, Gives::Array(element), Type::array_of(element))?;
        let op = if negated { BinaryOp::Ne } else { BinaryOp::Eq };
        self.quantified_over(left, op, array, negated)
    }

    /// A query by itself. What it does not know it may know of the query around it: that is another road's.
    fn init_query(&mut self, query: &ast::Query) -> Bind<Query> {
        match &mut self.around {
            Some(around) if around.is_within => return not_compiled("a subquery"),
            Some(around) => (around.is_within, around.is_named) = (true, false),
            None if self.init.is_none() => return not_compiled("a subquery"),
            None => {}
        }
        let in_aggregate = std::mem::take(&mut self.in_aggregate);
        let stored = std::mem::take(&mut self.output_types);
        let locking = std::mem::take(&mut self.locking);
        let uses_sequences = std::mem::take(&mut self.uses_sequences);
        let bound = self.query(query);
        self.around.iter_mut().for_each(|around| around.is_within = false);
        let is_volatile = std::mem::replace(&mut self.uses_sequences, uses_sequences);
        self.locking = locking;
        self.output_types = stored;
        self.in_aggregate = in_aggregate;
        // One that is about no row is asked once for all.
        let is_each = self.around.as_ref().is_some_and(|around| around.is_named);
        self.uses_sequences |= is_volatile && is_each;
        match bound {
            Ok(query) if !is_volatile || is_each => Ok(query),
            Ok(_) => not_compiled("a subquery that asks a sequence"),
            Err(Refusal::Error(_) | Refusal::NotCompiled { .. }) => not_compiled("a subquery"),
        }
    }

    fn init_plan(&mut self, query: Query, gives: Gives, ty: Type) -> Bind<Bound> {
        if let Some(around) = &mut self.around {
            let Some(number) = around.take_number() else { return not_compiled("so many subqueries") };
            around.queries.push(RowQuery { numbers: vec![number], plan: InitPlan { query, gives } });
            return Ok(Bound::new(Expr::Param(number), ty));
        }
        let highest = highest_parameter(self.sql).max(self.parameters.len());
        let Some(init) = &mut self.init else { return not_compiled("a subquery") };
        if init.plans.is_empty() {
            init.first = u16::try_from(highest).unwrap_or(u16::MAX);
        }
        if self.asks_rows && init.plans.len() >= KEPT {
            return not_compiled("so many subqueries");
        }
        let number = usize::from(init.first) + init.plans.len();
        let Ok(number) = u16::try_from(number) else { return not_compiled("so many subqueries") };
        init.plans.push(InitPlan { query, gives });
        Ok(Bound::new(Expr::Param(number), ty))
    }
}

/// Whether arrays may be of it.
fn is_element(ty: Type) -> bool {
    !matches!(ty, Type::Array(_) | Type::Vector(_) | Type::System(_) | Type::Decimal { .. })
}

/// The highest `$n` of a text, or more: one may stand in a literal.
fn highest_parameter(sql: &str) -> usize {
    let numbers = sql.split('$').skip(1).filter_map(|rest| {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        rest[..digits].parse::<u16>().ok()
    });
    numbers.max().map_or(0, usize::from)
}
