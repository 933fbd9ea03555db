//! Aggregates of all their rows: `string_agg(a, ',' ORDER BY b)`, `percentile_cont(0.5) WITHIN GROUP (ORDER BY a)`.

use super::expr::Bound;
use super::record::must_compare;
use super::scope::Scope;
use super::{Bind, Binder, not_compiled};
use crate::compiled::aggregate::{Aggregate, AggregateFunction, Gathers};
use crate::compiled::sort::KeyOrder;
use crate::error::SqlError;
use crate::expr::Expr;
use crate::value::aggregate::Gathered;
use crate::value::cast::{self, CastContext};
use crate::value::pgtype::name as type_name;
use freshet_engine::schema::Type;
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments};

/// The ORDER BY among an aggregate's arguments, where there is no other clause.
pub(super) fn order_clause(clauses: &[FunctionArgumentClause]) -> Option<&[ast::OrderByExpr]> {
    match clauses {
        [FunctionArgumentClause::OrderBy(order)] => Some(order),
        _ => None,
    }
}

impl Binder<'_> {
    pub(super) fn gathered_call(&mut self, what: Gathered, function: &ast::Function, scope: &Scope) -> Bind<Bound> {
        let ast::Function { name, args, filter, over, within_group, .. } = function;
        if self.beyond.is_none() {
            return not_compiled(format!("the aggregate {name}"));
        }
        let whole = ast::Expr::Function(function.clone());
        if over.is_some() {
            return Err(self.not_compiled("a window function", &whole));
        }
        let name = name.to_string().to_lowercase();
        self.within_aggregate(&whole, scope, &mut |binder, scope| {
            let filter = filter.as_deref().map(|f| binder.condition(f, "FILTER", scope)).transpose()?;
            let (args, order, distinct) = binder.gathered_args(what, &name, args, within_group, scope)?;
            binder.gathered_over(what, &name, args, order, distinct, filter)
        })
    }

    /// Arguments, what rows are ordered by, and whether duplicates go.
    #[expect(clippy::type_complexity, reason = "the parts of one call")]
    pub fn gathered_args(
        &mut self,
        what: Gathered,
        name: &str,
        args: &FunctionArguments,
        within: &[ast::OrderByExpr],
        scope: &Scope,
    ) -> Bind<(Vec<Bound>, Vec<(Expr, KeyOrder)>, bool)> {
        let FunctionArguments::List(list) = args else {
            return Err(SqlError::unsupported(format!("this call of {name}")).into());
        };
        let distinct = matches!(list.duplicate_treatment, Some(ast::DuplicateTreatment::Distinct));
        let mut bound = Vec::with_capacity(list.args.len() + within.len());
        for arg in &list.args {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) = arg else {
                return Err(SqlError::unsupported(format!("the argument {arg}")).into());
            };
            bound.push(self.bind(arg, scope)?);
        }
        if what.is_ordered_set() == within.is_empty() {
            let message = match within.is_empty() {
                true => format!("WITHIN GROUP is required for ordered-set aggregate {name}"),
                false => format!("{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP"),
            };
            return Err(SqlError::new("42809", message).into());
        }
        if !within.is_empty() && (distinct || !list.clauses.is_empty()) {
            return Err(SqlError::new("42809", "cannot use DISTINCT or ORDER BY with WITHIN GROUP").into());
        }
        if !within.is_empty() {
            for item in within {
                let value = self.bind(&item.expr, scope)?;
                bound.push(self.known(value)?);
            }
            return Ok((bound, self.aggregate_order(within, scope)?, false));
        }
        let order = match order_clause(&list.clauses) {
            Some(order) => self.aggregate_order(order, scope)?,
            None if list.clauses.is_empty() => Vec::new(),
            None => return Err(SqlError::unsupported(format!("a clause in the arguments of {name}")).into()),
        };
        Ok((bound, order, distinct))
    }

    pub fn aggregate_order(&mut self, list: &[ast::OrderByExpr], scope: &Scope) -> Bind<Vec<(Expr, KeyOrder)>> {
        let mut order = Vec::with_capacity(list.len());
        for item in list {
            let ast::OrderByExpr { expr, options, with_fill: None } = item else {
                return Err(SqlError::unsupported("WITH FILL").into());
            };
            let bound = self.bind(expr, scope)?;
            let bound = self.known(bound)?;
            let descending = options.asc == Some(false);
            let nulls_first = options.nulls_first.unwrap_or(descending);
            let ty = bound.ty.unwrap_or(Type::Text);
            must_compare(ty, "ordering")?;
            order.push((bound.expr, KeyOrder { ty, descending, nulls_first }));
        }
        Ok(order)
    }

    /// The aggregate of bound parts, and its result's type.
    pub fn gathered_over(
        &mut self,
        what: Gathered,
        name: &str,
        args: Vec<Bound>,
        mut order: Vec<(Expr, KeyOrder)>,
        distinct: bool,
        filter: Option<Expr>,
    ) -> Bind<(Aggregate, Type)> {
        let types: Vec<Option<Type>> = args.iter().map(|a| a.ty).collect();
        let Some(signature) = what.resolve(&types) else {
            let shown: Vec<&str> = types.iter().map(|ty| ty.map_or("unknown", type_name)).collect();
            let message = format!("function {name}({}) does not exist", shown.join(", "));
            return Err(SqlError::new("42883", message)
                .with_hint(
                    "No function matches the given name and argument types. You might need to add explicit type casts.",
                )
                .into());
        };
        // What is ordered by is compared with the arguments as they are written, without the casts to what is computed with.
        let text = |ty: Option<Type>| ty.unwrap_or(Type::Text);
        let written = args.iter().filter(|_| distinct).map(|arg| (arg.expr.clone(), text(arg.ty))).collect::<Vec<_>>();
        let mut exprs = Vec::with_capacity(args.len());
        for (arg, ty) in args.into_iter().zip(&signature.arguments) {
            exprs.push(self.coerce(arg, *ty, CastContext::Implicit)?);
        }
        if what.is_ordered_set() {
            // Rows are ordered by the values as they are computed with.
            let first = exprs.len() - order.len();
            for (i, (expr, by)) in order.iter_mut().enumerate() {
                (*expr, by.ty) = (exprs[first + i].clone(), signature.arguments[first + i]);
            }
        }
        if distinct {
            signature.arguments.iter().try_for_each(|ty| must_compare(*ty, "equality"))?;
        }
        if distinct && order.iter().any(|(expr, by)| !written.iter().any(|(arg, ty)| arg == expr && *ty == by.ty)) {
            let message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
            return Err(SqlError::new("42P10", message).into());
        }
        // Documents show names and labels.
        self.uses_clock |= signature.arguments.iter().any(|ty| cast::shows_names(*ty));
        let result = signature.result;
        let gathered = Some(Box::new(Gathers { signature, args: exprs, order }));
        let function = AggregateFunction::Gathered;
        Ok((Aggregate { function, arg: None, distinct, filter, gathered }, result))
    }
}
