//! What do window functions see? Calls with OVER: bound by the compiled road's binder, ranked and framed by DataFusion.
//!
//! | function | computed by | type |
//! |---|---|---|
//! | row_number, rank, dense_rank | DataFusion | bigint |
//! | percent_rank, cume_dist | DataFusion | double precision |
//! | ntile | DataFusion | integer |
//! | lag, lead, first_value, last_value, nth_value | DataFusion | the argument's |
//! | those of these with an argument that is not the same for all rows, frames with EXCLUDE or a RANGE with an offset | `shift`, `tile`, `ranged` | the same |
//! | aggregates | as without a window | as without a window |

use super::cells::data_type;
use super::convert::{Leaf, Leaves, key};
use super::frame::{Edge, Exclusion, Frame};
use super::plan::{Planner, WINDOW, aggregate_call, df, refuse};
use super::ranged::{Framed, Takes, ranged_udwf};
use super::shift::shift_udwf;
use super::tile::tile_udwf;
use crate::bind::expr::Bound;
use crate::bind::record::{by_fields, fields_of, must_compare};
use crate::bind::scope::{Scope, fold};
use crate::bind::{Bind, Binder};
use crate::compiled::aggregate::{Aggregate, AggregateFunction};
use crate::compiled::sort::KeyOrder;
use crate::error::SqlError;
use crate::expr::Expr;
use crate::parse::exclusion_of;
use crate::value::Datum;
use crate::value::aggregate::Gathered;
use crate::value::cast::{CastContext, common_type, without_modifier};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Column as DfColumn;
use datafusion::functions_window::cume_dist::cume_dist_udwf;
use datafusion::functions_window::lead_lag::{lag_udwf, lead_udwf};
use datafusion::functions_window::nth_value::{first_value_udwf, last_value_udwf, nth_value_udwf};
use datafusion::functions_window::ntile::ntile_udwf;
use datafusion::functions_window::rank::{dense_rank_udwf, percent_rank_udwf, rank_udwf};
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::{Cast, Sort, WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::{
    Expr as DfExpr, LogicalPlan, LogicalPlanBuilder, WindowFrame, WindowFrameBound, WindowFrameUnits,
    WindowFunctionDefinition, WindowUDF,
};
use freshet_engine::schema::Type;
use sqlparser::ast::{
    self, FunctionArg, FunctionArgExpr, FunctionArguments, NamedWindowExpr, Select, WindowSpec, WindowType,
};
use std::sync::Arc;

/// What is computed.
#[derive(Clone, PartialEq, Debug)]
enum Over {
    Aggregate(Aggregate),
    Function(&'static str, Vec<(Expr, Type)>),
}

/// A call with OVER.
#[derive(Clone, PartialEq, Debug)]
pub struct Window {
    over: Over,
    partition: Vec<(Expr, Type)>,
    order: Vec<(Expr, KeyOrder)>,
    frame: Option<Frame>,
    filter: Option<Expr>,
    ty: Type,
}

impl Window {
    /// Whether it is an aggregate that gives up no row which leaves its frame, so that it has to take all of each frame again.
    fn must_begin_anew(&self, frame: &Frame) -> bool {
        let is_truth = |aggregate: &Aggregate| {
            matches!(aggregate.function, AggregateFunction::BoolAnd | AggregateFunction::BoolOr)
        };
        frame.start != Edge::First && matches!(&self.over, Over::Aggregate(aggregate) if is_truth(aggregate))
    }

    /// Visits every expression.
    pub fn each_expr(&mut self, f: &dyn Fn(&mut Expr) -> Bind<()>) -> Bind<()> {
        match &mut self.over {
            Over::Aggregate(aggregate) => {
                aggregate.arg.iter_mut().try_for_each(|(expr, _)| f(expr))?;
                aggregate.filter.iter_mut().try_for_each(f)?;
                if let Some(gathered) = &mut aggregate.gathered {
                    let mut done = Ok(());
                    gathered.each_expr(&mut |expr| {
                        if done.is_ok() {
                            done = f(expr);
                        }
                    });
                    done?;
                }
            }
            Over::Function(_, args) => args.iter_mut().try_for_each(|(expr, _)| f(expr))?,
        }
        self.partition.iter_mut().try_for_each(|(expr, _)| f(expr))?;
        self.order.iter_mut().try_for_each(|(expr, _)| f(expr))?;
        self.frame.iter_mut().filter_map(|frame| frame.along.as_mut()).try_for_each(|along| f(&mut along.key))?;
        self.filter.iter_mut().try_for_each(f)
    }
}

impl Planner<'_> {
    /// Notes the WINDOW clause.
    pub(super) fn name_windows(&self, select: &Select) -> Bind<()> {
        let mut named: Vec<(String, WindowSpec)> = Vec::with_capacity(select.named_window.len());
        for ast::NamedWindowDefinition(name, definition) in &select.named_window {
            let name = fold(name);
            let NamedWindowExpr::WindowSpec(spec) = definition else {
                return Err(SqlError::new("42601", format!("window \"{name}\" needs parentheses")).into());
            };
            if named.iter().any(|(known, _)| *known == name) {
                return Err(SqlError::new("42P20", format!("window \"{name}\" is already defined")).into());
            }
            named.push((name, extended(&named, spec.clone())?));
        }
        self.state.borrow_mut().named_windows = named;
        Ok(())
    }

    pub(super) fn bind_window(&self, binder: &mut Binder<'_>, function: &ast::Function, scope: &Scope) -> Bind<Bound> {
        let ast::Function { name, uses_odbc_syntax, parameters, args, filter, null_treatment, over, within_group } =
            function;
        if *uses_odbc_syntax
            || *parameters != FunctionArguments::None
            || null_treatment.is_some()
            || !within_group.is_empty()
        {
            return refuse(format!("the call {function}"));
        }
        let Some(windows) = self.state.borrow_mut().windows.take() else {
            return Err(SqlError::new("42P20", "window functions are not allowed here").into());
        };
        let bound = self.window_parts(binder, name, args, filter.as_deref(), over.as_ref(), scope);
        let mut windows = windows;
        let result = bound.map(|window| {
            let ty = window.ty;
            let at = windows.iter().position(|w| *w == window).unwrap_or_else(|| {
                windows.push(window);
                windows.len() - 1
            });
            Bound::new(Expr::Cell { source: WINDOW, column: at as u16 }, ty)
        });
        self.state.borrow_mut().windows = Some(windows);
        result
    }

    fn window_parts(
        &self,
        binder: &mut Binder<'_>,
        name: &ast::ObjectName,
        args: &FunctionArguments,
        filter: Option<&ast::Expr>,
        over: Option<&WindowType>,
        scope: &Scope,
    ) -> Bind<Window> {
        let spec = match over {
            Some(WindowType::WindowSpec(spec)) => extended(&self.state.borrow().named_windows, spec.clone())?,
            Some(WindowType::NamedWindow(name)) => window_named(&self.state.borrow().named_windows, &fold(name))?,
            None => return refuse("a call without OVER"),
        };
        let WindowSpec { window_name: _, partition_by, order_by, window_frame } = spec;
        let (exclusion, partition_by) = parted(partition_by);
        let mut partition = Vec::with_capacity(partition_by.len());
        for ast in &partition_by {
            let bound = binder.bind(ast, scope)?;
            let bound = binder.known(bound)?;
            let ty = bound.ty.unwrap_or(Type::Text);
            for (expr, ty) in by_fields(bound.expr, ty) {
                must_compare(ty, "equality")?;
                partition.push((expr, ty));
            }
        }
        let mut order = Vec::with_capacity(order_by.len());
        for item in &order_by {
            let ast::OrderByExpr { expr, options, with_fill: None } = item else {
                return refuse("WITH FILL");
            };
            let bound = binder.bind(expr, scope)?;
            let bound = binder.known(bound)?;
            let descending = options.asc == Some(false);
            let nulls_first = options.nulls_first.unwrap_or(descending);
            let ty = bound.ty.unwrap_or(Type::Text);
            let nulls_first = if fields_of(&bound.expr).is_some() { descending } else { nulls_first };
            for (expr, ty) in by_fields(bound.expr, ty) {
                must_compare(ty, "ordering")?;
                order.push((expr, KeyOrder { ty, descending, nulls_first }));
            }
        }
        let frame = window_frame.as_ref().map(|frame| self.bind_frame(binder, frame, &order, scope)).transpose()?;
        let frame = frame.map(|frame| Frame { exclusion, ..frame });
        let filter = filter.map(|f| binder.condition(f, "FILTER", scope)).transpose()?;
        let (over, ty) = self.windowed(binder, name, args, scope)?;
        if filter.is_some() && !matches!(over, Over::Aggregate(_)) {
            return refuse("FILTER of a window function that is no aggregate");
        }
        Ok(Window { over, partition, order, frame, filter, ty })
    }

    fn windowed(
        &self,
        binder: &mut Binder<'_>,
        name: &ast::ObjectName,
        args: &FunctionArguments,
        scope: &Scope,
    ) -> Bind<(Over, Type)> {
        let name = name.to_string().to_lowercase();
        if let Some(what) = Gathered::named(&name) {
            let (args, order, distinct) = binder.gathered_args(what, &name, args, &[], scope)?;
            if distinct || !order.is_empty() {
                return refuse("DISTINCT or ORDER BY in the arguments of a window function");
            }
            let (aggregate, ty) = binder.gathered_over(what, &name, args, order, false, None)?;
            return Ok((Over::Aggregate(aggregate), ty));
        }
        let (mut bound, star) = self.window_args(binder, args, scope)?;
        if let Some(function) = AggregateFunction::named(&name) {
            let arg = bound.pop();
            if !bound.is_empty() || (star && function != AggregateFunction::Count) {
                return refuse(format!("{name} with these arguments"));
            }
            if arg.as_ref().is_some_and(|arg| arg.ty.is_none()) {
                function.check_known(&name)?;
            }
            let arg = arg.map(|a| binder.known(a)).transpose()?;
            let arg = arg.map(|a| binder.time_to_add(function, a)).transpose()?;
            let ty = arg.as_ref().and_then(|a| a.ty).map(Type::unrounded);
            if let (Some(Type::Interval), Some(arg)) = (ty, &arg) {
                let what = match function {
                    AggregateFunction::Sum => Some(Gathered::SumInterval),
                    AggregateFunction::Avg => Some(Gathered::AvgInterval),
                    _ => None,
                };
                if let Some(what) = what {
                    let (aggregate, ty) =
                        binder.gathered_over(what, &name, vec![arg.clone()], Vec::new(), false, None)?;
                    return Ok((Over::Aggregate(aggregate), ty));
                }
            }
            if let (AggregateFunction::Min | AggregateFunction::Max, Some(ty)) = (function, ty) {
                must_compare(ty, "ordering")?;
            }
            let Some((input, result)) = function.types(ty) else {
                return Err(no_function(&name).into());
            };
            let arg = match (arg, input) {
                (Some(arg), Some(input)) => Some((binder.coerce(arg, input, CastContext::Implicit)?, input)),
                (Some(arg), None) => Some((arg.expr, ty.unwrap_or(Type::Text))),
                (None, _) => None,
            };
            return Ok((
                Over::Aggregate(Aggregate { function, arg, distinct: false, filter: None, gathered: None }),
                result,
            ));
        }
        if star {
            return Err(no_function(&name).into());
        }
        self.window_function(binder, &name, bound)
    }

    fn window_args(
        &self,
        binder: &mut Binder<'_>,
        args: &FunctionArguments,
        scope: &Scope,
    ) -> Bind<(Vec<Bound>, bool)> {
        let FunctionArguments::List(list) = args else {
            return refuse("this call of a window function");
        };
        if list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
            return refuse("DISTINCT or a clause in the arguments of a window function");
        }
        let mut bound = Vec::with_capacity(list.args.len());
        for arg in &list.args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => bound.push(binder.bind(e, scope)?),
                FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => return Ok((Vec::new(), true)),
                other => return refuse(format!("the argument {other}")),
            }
        }
        Ok((bound, false))
    }

    fn window_function(&self, binder: &mut Binder<'_>, name: &str, args: Vec<Bound>) -> Bind<(Over, Type)> {
        let with_default = args.len() == 3;
        let mut args = args.into_iter();
        let first = args.next();
        let (known, ty) = match name {
            "row_number" => ("row_number", Type::Int8),
            "rank" => ("rank", Type::Int8),
            "dense_rank" => ("dense_rank", Type::Int8),
            "percent_rank" => ("percent_rank", Type::Float8),
            "cume_dist" => ("cume_dist", Type::Float8),
            "ntile" => ("ntile", Type::Int4),
            "lag" => ("lag", Type::Text),
            "lead" => ("lead", Type::Text),
            "first_value" => ("first_value", Type::Text),
            "last_value" => ("last_value", Type::Text),
            "nth_value" => ("nth_value", Type::Text),
            _ => return Err(no_function(name).into()),
        };
        let of_rows = matches!(known, "row_number" | "rank" | "dense_rank" | "percent_rank" | "cume_dist");
        let mut bound = Vec::new();
        let ty = match first {
            None if of_rows => ty,
            Some(first) if !of_rows => {
                if known == "ntile" {
                    bound.push((binder.coerce(first, Type::Int4, CastContext::Implicit)?, Type::Int4));
                    ty
                } else {
                    let default = args.as_slice().get(1).and_then(|default| default.ty);
                    let types = [first.ty.map(Type::unrounded), default.map(Type::unrounded)];
                    let ty = match types {
                        // The value and what stands for it where there is none are of one type.
                        [_, Some(_)] => common_type(known, &types).map_err(|_| no_function(name))?,
                        [of_value, None] => of_value.unwrap_or(Type::Text),
                    };
                    let ty = if with_default { without_modifier(ty) } else { ty };
                    bound.push((binder.coerce(first, ty, CastContext::Implicit)?, ty));
                    ty
                }
            }
            _ => return Err(no_function(name).into()),
        };
        for (i, arg) in args.enumerate() {
            let want = match (known, i) {
                ("lag" | "lead" | "nth_value", 0) => Type::Int4,
                ("lag" | "lead", 1) => ty,
                _ => return Err(no_function(name).into()),
            };
            bound.push((binder.coerce(arg, want, CastContext::Implicit)?, want));
        }
        let number = |at: usize| match bound.get(at) {
            Some((Expr::Const(Datum::Int(n)), _)) => Some(*n),
            _ => None,
        };
        if known == "ntile" && number(0).is_some_and(|n| n <= 0) {
            return Err(SqlError::new("22014", "argument of ntile must be greater than zero").into());
        }
        if known == "nth_value" && number(1).is_some_and(|n| n <= 0) {
            return Err(SqlError::new("22016", "argument of nth_value must be greater than zero").into());
        }
        let is_null = matches!(bound.get(1), Some((Expr::Const(Datum::Null), _)));
        let is_same =
            |from: usize| bound.iter().skip(from).all(|(arg, _)| !arg.mentions(|_| true) && !arg.is_volatile());
        if matches!(known, "lag" | "lead") && (is_null || !is_same(1)) {
            bound.resize(3, (Expr::NULL, ty));
            return Ok((Over::Function(if known == "lag" { "lag_by" } else { "lead_by" }, bound), ty));
        }
        if known == "nth_value" && bound.len() != 2 {
            return Err(no_function(name).into());
        }
        let is_null = bound.last().is_some_and(|(arg, _)| matches!(arg, Expr::Const(Datum::Null)));
        let known = match known {
            "nth_value" if is_null || !is_same(1) => "nth_value_by",
            "ntile" if is_null || !is_same(0) => "ntile_by",
            known => known,
        };
        Ok((Over::Function(known, bound), ty))
    }

    /// Adds the window functions' columns; gives what each one's placeholder stands for.
    pub(super) fn window(
        &self,
        plan: LogicalPlan,
        sources: &[Vec<Leaf>],
        windows: &[Window],
    ) -> Bind<(LogicalPlan, Vec<Leaf>)> {
        if windows.is_empty() {
            return Ok((plan, Vec::new()));
        }
        let mut calls: Vec<DfExpr> = Vec::with_capacity(windows.len());
        let mut leaves = Vec::with_capacity(windows.len());
        for window in windows {
            let call = self.with_leaves(sources, |leaves| self.window_call(window, leaves))?;
            let column = DfColumn::new_unqualified(call.schema_name().to_string());
            let given = DfExpr::Column(column);
            let given = match &window.over {
                // Ranks are unsigned there.
                Over::Function("row_number" | "rank" | "dense_rank" | "ntile", _) => {
                    DfExpr::Cast(Cast::new(Box::new(given), data_type(window.ty)))
                }
                _ => given,
            };
            leaves.push(Leaf::new(given, window.ty));
            if !calls.contains(&call) {
                calls.push(call);
            }
        }
        Ok((df(LogicalPlanBuilder::window_plan(plan, calls))?, leaves))
    }

    fn window_call(&self, window: &Window, leaves: &Leaves<'_>) -> Result<DfExpr, SqlError> {
        let filter = window.filter.as_ref().map(|f| leaves.condition(f)).transpose()?;
        let (fun, args, filter) = match self.ranged(window, filter.as_ref(), leaves)? {
            Some((function, args)) => (WindowFunctionDefinition::WindowUDF(function), args, None),
            None => {
                let (fun, args) = called(window, leaves)?;
                (fun, args, filter)
            }
        };
        let partition_by = window.partition.iter().map(|(expr, ty)| Ok(key(leaves.convert(expr, *ty)?, *ty)));
        let order_by = window.order.iter().map(|(expr, order)| {
            let expr = key(leaves.convert(expr, order.ty)?, order.ty);
            Ok(Sort { expr, asc: !order.descending, nulls_first: order.nulls_first })
        });
        // What is not DataFusion's has its frame already.
        let plain = window.frame.as_ref().map_or_else(|| Some(default_frame(window)), Frame::plain);
        let frame = plain.unwrap_or_else(|| default_frame(window));
        let frame = match window.order.iter().all(|(_, order)| has_ranges(&data_type(order.ty))) {
            true => frame,
            false => by_groups(frame),
        };
        let params = WindowFunctionParams {
            args,
            partition_by: partition_by.collect::<Result<_, SqlError>>()?,
            order_by: order_by.collect::<Result<_, SqlError>>()?,
            window_frame: frame,
            filter: filter.map(Box::new),
            null_treatment: None,
            distinct: false,
        };
        Ok(DfExpr::WindowFunction(Box::new(WindowFunction { fun, params })))
    }

    /// The function over a range with an offset, and its arguments; `None`: the frame is none, or does not matter.
    #[expect(clippy::type_complexity, reason = "the parts of one call")]
    fn ranged(
        &self,
        window: &Window,
        filter: Option<&DfExpr>,
        leaves: &Leaves<'_>,
    ) -> Result<Option<(Arc<WindowUDF>, Vec<DfExpr>)>, SqlError> {
        let by_column = matches!(&window.over, Over::Function("nth_value_by", _));
        let unsaid = Frame::UNSAID;
        let frame = match &window.frame {
            Some(frame) if frame.is_ours() || by_column || window.must_begin_anew(frame) => frame,
            None if by_column => &unsaid,
            _ => return Ok(None),
        };
        let (takes, mut args) = match &window.over {
            Over::Aggregate(aggregate) => {
                let (function, args, _) = aggregate_call(aggregate, leaves)?;
                (Takes::Aggregate(function), args)
            }
            Over::Function(name, args) => {
                let takes = match (*name, args.get(1)) {
                    ("first_value", _) => Takes::First,
                    ("last_value", _) => Takes::Last,
                    ("nth_value", Some((Expr::Const(Datum::Int(nth)), _))) => Takes::Nth(*nth),
                    ("nth_value" | "nth_value_by", _) => Takes::NthBy,
                    _ => return Ok(None),
                };
                let count = if takes == Takes::NthBy { 2 } else { 1 };
                let args = args.iter().take(count).map(|(value, ty)| leaves.convert(value, *ty));
                (takes, args.collect::<Result<_, _>>()?)
            }
        };
        args.extend(filter.cloned());
        let arguments = (args.len(), filter.is_some());
        let orders: Vec<KeyOrder> = match &frame.along {
            Some(along) => {
                args.push(leaves.convert(&along.key, along.ty)?);
                vec![KeyOrder { ty: along.ty, ..window.order[0].1 }]
            }
            None => {
                for (key, order) in &window.order {
                    args.push(leaves.convert(key, order.ty)?);
                }
                window.order.iter().map(|(_, order)| *order).collect()
            }
        };
        let clock = leaves.env.clock.clone();
        let function = ranged_udwf(takes, arguments, Framed { frame, orders }, clock, data_type(window.ty));
        Ok(Some((function, args)))
    }

    /// Of the rows with equal keys the first in the order.
    pub(super) fn first_of_each(
        &self,
        rel: super::plan::Rel,
        keys: Vec<DfExpr>,
        order: &[Sort],
    ) -> Bind<super::plan::Rel> {
        let plan = self.first_rows(rel.plan, keys, order)?;
        let outputs = rel.columns.into_iter().map(|c| (DfExpr::Column(c.column.clone()), c)).collect();
        self.project(plan, outputs, rel.at_most_one)
    }

    /// The first row of each partition; a column of their numbers stays beside them.
    pub(super) fn first_rows(&self, plan: LogicalPlan, keys: Vec<DfExpr>, order: &[Sort]) -> Bind<LogicalPlan> {
        let (plan, number) = self.numbered(plan, keys, order.to_vec())?;
        let first = number.eq(super::convert::lit(Type::Int8, &Datum::Int(1)).map_err(crate::bind::Refusal::Error)?);
        df(df(LogicalPlanBuilder::from(plan).filter(first))?.build())
    }

    /// The rows whose rank in the order is at most `last`.
    pub(super) fn ranked_to(&self, rel: super::plan::Rel, order: &[Sort], last: u64) -> Bind<super::plan::Rel> {
        let (plan, rank) = self.counted(rank_udwf(), rel.plan, Vec::new(), order.to_vec())?;
        let last = Datum::Int(i64::try_from(last).unwrap_or(i64::MAX));
        let last = super::convert::lit(Type::Int8, &last).map_err(crate::bind::Refusal::Error)?;
        let plan = df(df(LogicalPlanBuilder::from(plan).filter(rank.lt_eq(last)))?.build())?;
        let outputs = rel.columns.into_iter().map(|c| (DfExpr::Column(c.column.clone()), c)).collect();
        self.project(plan, outputs, rel.at_most_one)
    }

    /// Numbers the rows of each partition; gives the number.
    pub(super) fn numbered(
        &self,
        plan: LogicalPlan,
        keys: Vec<DfExpr>,
        order: Vec<Sort>,
    ) -> Bind<(LogicalPlan, DfExpr)> {
        self.counted(row_number_udwf(), plan, keys, order)
    }

    fn counted(
        &self,
        function: Arc<WindowUDF>,
        plan: LogicalPlan,
        keys: Vec<DfExpr>,
        order: Vec<Sort>,
    ) -> Bind<(LogicalPlan, DfExpr)> {
        let params = WindowFunctionParams {
            args: Vec::new(),
            partition_by: keys,
            // A number does not depend on the frame, and not every key has ranges.
            window_frame: WindowFrame::new(None),
            order_by: order,
            filter: None,
            null_treatment: None,
            distinct: false,
        };
        let fun = WindowFunctionDefinition::WindowUDF(function);
        let call = DfExpr::WindowFunction(Box::new(WindowFunction { fun, params }));
        let column = DfExpr::Column(DfColumn::new_unqualified(call.schema_name().to_string()));
        let plan = df(LogicalPlanBuilder::window_plan(plan, vec![call]))?;
        Ok((plan, DfExpr::Cast(Cast::new(Box::new(column), data_type(Type::Int8)))))
    }
}

fn window_named(named: &[(String, WindowSpec)], name: &str) -> Result<WindowSpec, SqlError> {
    let found = named.iter().find(|(known, _)| known == name);
    let missing = || SqlError::new("42704", format!("window \"{name}\" does not exist"));
    found.map(|(_, spec)| spec.clone()).ok_or_else(missing)
}

/// What a window's frame leaves out, and by what its rows are parted.
fn parted(partition_by: Vec<ast::Expr>) -> (Exclusion, Vec<ast::Expr>) {
    let exclusion = partition_by.iter().find_map(exclusion_of).map(Exclusion::named).unwrap_or_default();
    (exclusion, partition_by.into_iter().filter(|part| exclusion_of(part).is_none()).collect())
}

/// A window with what it takes from the one that it names.
fn extended(named: &[(String, WindowSpec)], spec: WindowSpec) -> Result<WindowSpec, SqlError> {
    let Some(name) = &spec.window_name else { return Ok(spec) };
    let name = fold(name);
    let base = window_named(named, &name)?;
    let wrong = |message: String| Err(SqlError::new("42P20", message));
    let (excludes, own): (Vec<ast::Expr>, Vec<ast::Expr>) =
        spec.partition_by.into_iter().partition(|part| exclusion_of(part).is_some());
    if !own.is_empty() {
        return wrong(format!("cannot override PARTITION BY clause of window \"{name}\""));
    }
    if !spec.order_by.is_empty() && !base.order_by.is_empty() {
        return wrong(format!("cannot override ORDER BY clause of window \"{name}\""));
    }
    if base.window_frame.is_some() {
        return wrong(format!("cannot copy window \"{name}\" because it has a frame clause"));
    }
    let order_by = if base.order_by.is_empty() { spec.order_by } else { base.order_by };
    let partition_by = excludes.into_iter().chain(base.partition_by).collect();
    Ok(WindowSpec { window_name: None, partition_by, order_by, window_frame: spec.window_frame })
}

fn default_frame(window: &Window) -> WindowFrame {
    WindowFrame::new((!window.order.is_empty()).then_some(false))
}

/// DataFusion's function, and its arguments.
fn called(window: &Window, leaves: &Leaves<'_>) -> Result<(WindowFunctionDefinition, Vec<DfExpr>), SqlError> {
    match &window.over {
        Over::Aggregate(aggregate) => {
            let (function, args, _) = aggregate_call(aggregate, leaves)?;
            Ok((WindowFunctionDefinition::AggregateUDF(function), args))
        }
        Over::Function(name, args) => {
            let args = args.iter().map(|(expr, ty)| leaves.convert(expr, *ty)).collect::<Result<_, _>>()?;
            Ok((WindowFunctionDefinition::WindowUDF(named_function(name)), args))
        }
    }
}

/// A range between the ends and the current row's peers is one of groups of peers, which needs no arithmetic on the key.
fn by_groups(frame: WindowFrame) -> WindowFrame {
    let plain = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => true,
        WindowFrameBound::Preceding(value) | WindowFrameBound::Following(value) => value.is_null(),
    };
    if frame.units == WindowFrameUnits::Range && plain(&frame.start_bound) && plain(&frame.end_bound) {
        return WindowFrame::new_bounds(WindowFrameUnits::Groups, frame.start_bound, frame.end_bound);
    }
    frame
}

/// Whether DataFusion compares keys of this type with a range's bounds.
fn has_ranges(ty: &DataType) -> bool {
    ty.is_numeric() || matches!(ty, DataType::Date32 | DataType::Timestamp(..) | DataType::Utf8 | DataType::Utf8View)
}

fn named_function(name: &str) -> Arc<WindowUDF> {
    match name {
        "row_number" => row_number_udwf(),
        "rank" => rank_udwf(),
        "dense_rank" => dense_rank_udwf(),
        "percent_rank" => percent_rank_udwf(),
        "cume_dist" => cume_dist_udwf(),
        "ntile" => ntile_udwf(),
        "ntile_by" => tile_udwf(),
        "lag_by" => shift_udwf(false),
        "lead_by" => shift_udwf(true),
        "lag" => lag_udwf(),
        "lead" => lead_udwf(),
        "first_value" => first_value_udwf(),
        "last_value" => last_value_udwf(),
        _ => nth_value_udwf(),
    }
}

fn no_function(name: &str) -> SqlError {
    SqlError::new("42883", format!("window function {name} with these arguments does not exist"))
        .with_hint("No function matches the given name and argument types.")
}
