//! What do set-returning functions give, in FROM and among the outputs?
//!
//! A call becomes a list for each row of what it is called on, which is unnested: the row is repeated for each element.
//!
//! | where | on what | rows without an element |
//! |---|---|---|
//! | FROM f(constants) | one row | none |
//! | FROM t, f(t.x); JOIN f(t.x) ON ... | the rows of t: functions in FROM are always lateral | none |
//! | LEFT JOIN f(t.x) ON true | the same | one with nulls |
//! | SELECT f(t.x), ... | the rows after WHERE, GROUP BY and window functions, and after an ORDER BY that does not mention them; several calls advance together, the shorter with nulls, and calls of their rows follow | none |
//! | GROUP BY f(t.x), by name or number too | the rows after WHERE | none |
//!
//! `generate_series` of constant whole numbers in FROM is not here but in `series`: it streams.

use super::cells::{Writer, data_type};
use super::compute::readable;
use super::convert::{Leaf, Leaves, call};
use super::fault::carried;
use super::plan::{Planner, SETS, WINDOW, df, refuse};
use super::window::Window;
use crate::bind::expr::Bound;
use crate::bind::query::OrderItem;
use crate::bind::scope::{Scope, ScopeColumn, ScopeSource, fold};
use crate::bind::{Bind, Binder};
use crate::compiled::aggregate::Aggregate;
use crate::error::SqlError;
use crate::expr::Expr;
use crate::value::cast::CastContext;
use crate::value::set::SetFunction;
use crate::value::{Clock, Datum, array_datum};
use datafusion::arrow::array::{Array, ArrayRef, ListArray};
use datafusion::arrow::buffer::{OffsetBuffer, ScalarBuffer};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{Column as DfColumn, NullHandling, Result, UnnestOptions};
use datafusion::logical_expr::{
    ColumnarValue, Expr as DfExpr, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDFImpl, Signature,
    Volatility,
};
use freshet_engine::schema::{Type, Value};
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, ObjectNamePart, SelectItem};
use std::sync::Arc;

/// A call whose arguments are bound.
#[derive(Clone, PartialEq, Debug)]
pub struct SetCall {
    pub function: SetFunction,
    pub args: Vec<Expr>,
    /// WITH ORDINALITY: one more column, the row's number.
    ordinality: bool,
}

impl SetCall {
    /// Whether it is of columns: another set for each row.
    pub fn mentions_columns(&self) -> bool {
        self.args.iter().any(|arg| arg.mentions(|_| true))
    }

    /// Types of its columns.
    fn types(&self) -> impl Iterator<Item = Type> {
        let ordinality = self.ordinality.then_some(Type::Int8);
        self.function.columns.iter().map(|&(_, ty)| ty).chain(ordinality)
    }
}

/// 42601.
pub const ONLY_RECORDS: &str = "a column definition list is only allowed for functions returning \"record\"";

/// The name of a function as it is looked up, unless it is another schema's.
pub fn set_name(name: &ObjectName) -> Option<String> {
    let names: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(fold).collect();
    let name = match names.as_slice() {
        [name] => name,
        [schema, name] if schema == "pg_catalog" || schema == "information_schema" => name,
        _ => return None,
    };
    SetFunction::exists(name).then(|| name.clone())
}

impl Planner<'_> {
    pub fn set_call(
        &self,
        binder: &mut Binder<'_>,
        name: &str,
        args: &[FunctionArg],
        ordinality: bool,
        defined: &[(String, Type)],
        scope: &Scope,
    ) -> Bind<SetCall> {
        let mut bound = Vec::with_capacity(args.len());
        for arg in args {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) = arg else {
                return refuse(format!("the argument {arg}"));
            };
            bound.push(binder.bind(arg, scope)?);
        }
        let types: Vec<Option<Type>> = bound.iter().map(|b| b.ty).collect();
        let function =
            if defined.is_empty() { SetFunction::resolve(name, &types)? } else { of_columns(name, defined)? };
        if !defined.is_empty() {
            let keys = defined.iter().map(|(key, _)| Datum::Bytes(key.as_bytes().into())).collect();
            let keys = Expr::Const(array_datum(Type::Text, keys));
            bound.push(Bound::new(keys, Type::array_of(Type::Text)));
        }
        if bound.len() != function.arguments.len() {
            let message = format!("function {name} takes one argument");
            return Err(SqlError::new("42883", message).into());
        }
        binder.uses_clock |= function.arguments.contains(&Type::Timestamptz);
        let mut args = Vec::with_capacity(bound.len());
        for (arg, &ty) in bound.into_iter().zip(&function.arguments) {
            args.push(binder.coerce(arg, ty, CastContext::Implicit)?);
        }
        Ok(SetCall { function, args, ordinality })
    }

    /// What a call gives as a source of FROM.
    pub fn set_source(&self, call: &SetCall, name: &str, alias: Option<String>) -> ScopeSource {
        let source = alias.clone().unwrap_or_else(|| name.to_owned());
        let only = call.function.columns.len() == 1;
        let is_scalar = only && !call.ordinality && !call.function.gives_records();
        let mut columns: Vec<ScopeColumn> = call
            .function
            .columns
            .iter()
            .map(|&(column, ty)| {
                // The one column of a function is called as its source is, unless the function names it.
                let name = if only && column != "value" { source.as_str() } else { column };
                ScopeColumn::new(name.to_owned(), ty)
            })
            .collect();
        if call.ordinality {
            columns.push(ScopeColumn::new("ordinality".to_owned(), Type::Int8));
        }
        ScopeSource { is_scalar, ..ScopeSource::of_columns(source, columns) }
    }

    /// The plan with each of its rows repeated for each row of the calls, and by call the columns that they add.
    pub fn expand(
        &self,
        plan: LogicalPlan,
        sources: &[Vec<Leaf>],
        calls: &[SetCall],
        nulls: NullHandling,
    ) -> Bind<(LogicalPlan, Vec<Vec<Leaf>>)> {
        let mut all: Vec<DfExpr> = plan.schema().columns().into_iter().map(DfExpr::Column).collect();
        let (mut lists, mut leaves) = (Vec::new(), Vec::with_capacity(calls.len()));
        for of in calls {
            let args = self.with_leaves(sources, |leaves| converted(of, leaves))?;
            let mut columns = Vec::new();
            for (at, ty) in of.types().enumerate() {
                let name = self.unique("set");
                let list = Listed::new(of.function.clone(), at, ty, self.env.clock.clone());
                all.push(self::call(list, args.clone()).alias(name.clone()));
                let column = DfColumn::new_unqualified(name);
                columns.push(Leaf::new(DfExpr::Column(column.clone()), ty));
                lists.push(column);
            }
            leaves.push(columns);
        }
        let plan = df(LogicalPlanBuilder::from(plan).project(all))?;
        let options = UnnestOptions { null_handling: nulls, ..UnnestOptions::default() };
        let plan = df(plan.unnest_columns_with_options(lists, options))?;
        Ok((df(plan.build())?, leaves))
    }

    // ---- among the outputs

    /// A call among the outputs, as the column that it will be; `None`: it is none.
    pub fn set_output(
        &self,
        binder: &mut Binder<'_>,
        function: &ast::Function,
        column: Option<&str>,
        scope: &Scope,
    ) -> Bind<Option<Bound>> {
        let (Some(name), FunctionArguments::List(list)) = (set_name(&function.name), &function.args) else {
            return Ok(None);
        };
        if self.state.borrow().sets.is_none() {
            let message = match self.state.borrow().setless {
                Some(clause) => format!("set-returning functions are not allowed in {clause}"),
                None => format!("set-returning functions are not allowed here: {name}"),
            };
            return Err(SqlError::new("0A000", message).into());
        }
        if function.over.is_some() || function.filter.is_some() || !list.clauses.is_empty() {
            return refuse(format!("the call {function}"));
        }
        let call = self.set_call(binder, &name, &list.args, false, &[], scope)?;
        let at = match column {
            None => 0,
            Some(column) => {
                call.function.columns.iter().position(|(name, _)| *name == column).ok_or_else(|| {
                    SqlError::new("42703", format!("column \"{column}\" not found in data type record"))
                })?
            }
        };
        let columns = call.function.columns.clone();
        let ty = columns[at].1;
        let mut state = self.state.borrow_mut();
        let sets = state.sets.as_mut().expect("it was looked at above");
        let known = sets.iter().position(|other| *other == call);
        let known = known.unwrap_or_else(|| {
            sets.push(call);
            sets.len() - 1
        });
        drop(state);
        let cell = |at: usize, ty| Bound::new(Expr::Cell { source: SETS, column: set_cell(known, at) }, ty);
        if column.is_none() && SetFunction::fields(&name).is_some() {
            let fields = columns.iter().enumerate().map(|(at, &(field, ty))| (field.to_owned(), cell(at, ty)));
            return binder.record(fields.collect()).map(Some);
        }
        Ok(Some(cell(at, ty)))
    }
}

/// The calls among a block's outputs, by when their rows come: those of GROUP BY before the groups, the others behind groups and
/// window functions. Those of one time advance together.
pub struct OutputSets {
    /// How many there are: cells of [`SETS`] tell them apart.
    count: usize,
    /// Those of GROUP BY, once there.
    pub placed: Placed,
    /// The others, with their numbers.
    pub later: Vec<(usize, SetCall)>,
}

/// Cells of calls, and what they became.
#[derive(Default)]
pub struct Placed(Vec<(u16, Expr)>);

impl Placed {
    /// Puts the columns in the place of their cells.
    pub fn put(&self, expr: &mut Expr) {
        if self.0.is_empty() {
            return;
        }
        let taken = std::mem::replace(expr, Expr::NULL);
        *expr = taken.rewrite(&mut |e| match e {
            Expr::Cell { source: SETS, column } => {
                self.0.iter().find(|(cell, _)| cell == column).map(|(_, placed)| placed.clone())
            }
            _ => None,
        });
    }

    /// Refuses an expression over groups that asks for a call of GROUP BY otherwise than its key does.
    pub fn refuse_loose(&self, expr: &Expr) -> Bind<()> {
        let mut is_loose = false;
        expr.walk(&mut |e| {
            is_loose |= self.0.iter().any(|(_, placed)| placed == e);
            !is_loose
        });
        if is_loose {
            let message = "a set-returning function must appear in the GROUP BY clause as it is among the outputs";
            return Err(SqlError::new("42803", message).into());
        }
        Ok(())
    }
}

impl OutputSets {
    pub fn new(calls: Vec<SetCall>) -> Self {
        OutputSets { count: calls.len(), placed: Placed::default(), later: calls.into_iter().enumerate().collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether rows come behind ORDER BY, which mentions none of the calls, and neither does DISTINCT ON: each row's stay together and in
    /// their order then.
    pub fn come_last(&self, order: &[OrderItem], on: &[(Expr, Type)]) -> bool {
        let mut asked = order.iter().map(|by| &by.expr).chain(on.iter().map(|(expr, _)| expr));
        !self.later.is_empty() && !order.is_empty() && !asked.any(|expr| expr.mentions(|source| source == SETS))
    }

    /// What is folded has its rows before any call's, and so has a window: there are only those of GROUP BY.
    pub fn refuse_in(&self, aggregates: &[Aggregate], windows: &mut [Window]) -> Bind<()> {
        if self.is_empty() {
            return Ok(());
        }
        let refuse = |what: &str| -> Bind<()> {
            let message = format!("{what} function calls cannot contain set-returning function calls");
            Err(SqlError::new("0A000", message).into())
        };
        if aggregates.iter().any(|aggregate| aggregate.mentions(|source| source == SETS)) {
            return refuse("aggregate");
        }
        let placed = |expr: &mut Expr| {
            self.placed.put(expr);
            if expr.mentions(|source| source == SETS) { refuse("window") } else { Ok(()) }
        };
        windows.iter_mut().try_for_each(|window| window.each_expr(&placed))
    }

    /// The plan with the rows of the calls that are, or are part of, keys of GROUP BY, and the keys over their columns.
    pub fn expand_keys(
        &mut self,
        planner: &Planner<'_>,
        plan: LogicalPlan,
        sources: &[Vec<Leaf>],
        keys: &mut [(Expr, Type)],
    ) -> Bind<LogicalPlan> {
        let in_key = |call: usize| {
            let is = |e: &Expr| matches!(e, Expr::Cell { source: SETS, column } if usize::from(*column) / COLUMNS_MAX == call);
            keys.iter().any(|(key, _)| {
                let mut found = false;
                key.walk(&mut |e| {
                    found |= is(e);
                    !found
                });
                found
            })
        };
        let (now, later) = std::mem::take(&mut self.later).into_iter().partition(|(at, _)| in_key(*at));
        self.later = later;
        let now: Vec<(usize, SetCall)> = now;
        if now.is_empty() {
            return Ok(plan);
        }
        let (numbers, calls): (Vec<usize>, Vec<SetCall>) = now.into_iter().unzip();
        let (plan, leaves) = planner.expand(plan, sources, &calls, NullHandling::Drop)?;
        for (call, columns) in numbers.into_iter().zip(leaves) {
            for (at, leaf) in columns.into_iter().enumerate() {
                self.placed.0.push((set_cell(call, at), planner.given(leaf.expr, leaf.ty).expr));
            }
        }
        keys.iter_mut().for_each(|(key, _)| self.placed.put(key));
        self.later.iter_mut().flat_map(|(_, call)| &mut call.args).for_each(|arg| self.placed.put(arg));
        Ok(plan)
    }

    /// The plan with the rows of the other calls, and by call its columns.
    pub fn expand_outputs(
        mut self,
        planner: &Planner<'_>,
        plan: LogicalPlan,
        sources: &[Vec<Leaf>],
        windows: &[Leaf],
    ) -> Bind<(LogicalPlan, Vec<Vec<Leaf>>)> {
        let mut leaves = vec![Vec::new(); self.count];
        if self.later.is_empty() {
            return Ok((plan, leaves));
        }
        for arg in self.later.iter_mut().flat_map(|(_, call)| &mut call.args) {
            let taken = std::mem::replace(arg, Expr::NULL);
            *arg = taken.rewrite(&mut |e| match e {
                Expr::Cell { source: WINDOW, column } => {
                    let leaf = &windows[usize::from(*column)];
                    Some(planner.given(leaf.expr.clone(), leaf.ty).expr)
                }
                _ => None,
            });
        }
        let mut plan = plan;
        while !self.later.is_empty() {
            // Those of which others are called come first; what is called of none advances with them.
            let of_sets = |(_, call): &(usize, SetCall)| call.args.iter().any(|arg| arg.mentions(|s| s == SETS));
            let (later, now): (Vec<_>, Vec<_>) = self.later.into_iter().partition(of_sets);
            self.later = later;
            if now.is_empty() {
                return refuse("a set-returning function of one that is grouped by");
            }
            let (numbers, calls): (Vec<usize>, Vec<SetCall>) = now.into_iter().unzip();
            let expanded;
            (plan, expanded) = planner.expand(plan, sources, &calls, NullHandling::Drop)?;
            let mut placed = Placed::default();
            for (call, columns) in numbers.into_iter().zip(expanded) {
                for (at, leaf) in columns.iter().enumerate() {
                    placed.0.push((set_cell(call, at), planner.given(leaf.expr.clone(), leaf.ty).expr));
                }
                leaves[call] = columns;
            }
            self.later.iter_mut().flat_map(|(_, call)| &mut call.args).for_each(|arg| placed.put(arg));
        }
        Ok((plan, leaves))
    }
}

/// The function with the columns of a definition list.
fn of_columns(name: &str, defined: &[(String, Type)]) -> std::result::Result<SetFunction, SqlError> {
    let types: Vec<Type> = defined.iter().map(|&(_, ty)| ty).collect();
    SetFunction::with_columns(name, &types).ok_or_else(|| SqlError::new("42601", ONLY_RECORDS))
}

/// Columns of a call that a cell's number can tell apart.
const COLUMNS_MAX: usize = 16;

fn set_cell(call: usize, column: usize) -> u16 {
    (call * COLUMNS_MAX + column) as u16
}

/// What a cell of [`SETS`] stands for.
pub fn set_leaf(leaves: &[Vec<Leaf>], cell: u16) -> Option<Leaf> {
    let cell = usize::from(cell);
    leaves.get(cell / COLUMNS_MAX)?.get(cell % COLUMNS_MAX).cloned()
}

fn converted(call: &SetCall, leaves: &Leaves<'_>) -> std::result::Result<Vec<DfExpr>, SqlError> {
    call.args.iter().zip(&call.function.arguments).map(|(arg, &ty)| leaves.convert(arg, ty)).collect()
}

/// `f(...)` of several columns among the outputs is a row value: one output for each of its fields, called `name.field`.
pub fn spread_rows(projection: &[SelectItem]) -> Vec<SelectItem> {
    let mut items = Vec::with_capacity(projection.len());
    for item in projection {
        let (expr, alias) = match item {
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(fold(alias))),
            SelectItem::UnnamedExpr(expr) => (expr, None),
            _ => {
                items.push(item.clone());
                continue;
            }
        };
        let fields = match expr {
            ast::Expr::Function(function) if function.over.is_none() => row_fields(&function.name),
            _ => None,
        };
        let Some((name, fields)) = fields else {
            items.push(item.clone());
            continue;
        };
        let name = alias.unwrap_or(name);
        items.extend(fields.iter().map(|field| SelectItem::ExprWithAlias {
            expr: ast::Expr::CompoundFieldAccess {
                root: Box::new(ast::Expr::Nested(Box::new(expr.clone()))),
                access_chain: vec![ast::AccessExpr::Dot(ast::Expr::Identifier(ast::Ident::new(*field)))],
            },
            alias: ast::Ident::with_quote('"', format!("{name}.{field}")),
        }));
    }
    items
}

/// The function's name and the fields of its rows, where these are row values.
fn row_fields(name: &ObjectName) -> Option<(String, &'static [&'static str])> {
    let name = set_name(name)?;
    SetFunction::fields(&name).map(|fields| (name, fields))
}

/// `(f(...)).field` or `(source.row).field`.
pub enum FieldOf<'a> {
    Call(&'a ast::Function, String),
    Column(Box<ast::Expr>),
}

pub fn field_of<'a>(root: &'a ast::Expr, chain: &[ast::AccessExpr]) -> Option<FieldOf<'a>> {
    let (ast::Expr::Nested(root), [ast::AccessExpr::Dot(ast::Expr::Identifier(field))]) = (root, chain) else {
        return None;
    };
    let field = fold(field);
    match root.as_ref() {
        ast::Expr::Function(function) => Some(FieldOf::Call(function, field)),
        ast::Expr::CompoundIdentifier(parts) => {
            let mut parts = parts.clone();
            let row = parts.pop()?;
            parts.push(ast::Ident::with_quote('"', format!("{}.{field}", fold(&row))));
            Some(FieldOf::Column(Box::new(ast::Expr::CompoundIdentifier(parts))))
        }
        ast::Expr::Identifier(row) => {
            let name = ast::Ident::with_quote('"', format!("{}.{field}", fold(row)));
            Some(FieldOf::Column(Box::new(ast::Expr::Identifier(name))))
        }
        _ => None,
    }
}

/// Whether the name could be that of a set-returning function in FROM.
pub fn is_set(name: &ObjectName) -> bool {
    name.0.iter().all(|part| matches!(part, ObjectNamePart::Identifier(_))) && set_name(name).is_some()
}

// ---- lists

/// What DataFusion calls such a list. It is the same each time.
pub const LISTED: &str = "rows";

/// One column of a call's rows, as a list for each row of its arguments.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Listed {
    function: SetFunction,
    /// Beyond the function's columns: the number of the row.
    column: usize,
    ty: Type,
    clock: Clock,
    signature: Signature,
}

impl Listed {
    fn new(function: SetFunction, column: usize, ty: Type, clock: Clock) -> Listed {
        let signature = match function.arguments.len() {
            // Nobody makes a literal of millions of rows while he plans.
            0 => Signature::nullary(Volatility::Volatile),
            n => Signature::any(n, Volatility::Volatile),
        };
        Listed { function, column, ty, clock, signature }
    }

    fn element(&self) -> Arc<Field> {
        Arc::new(Field::new_list_field(data_type(self.ty), true))
    }

    fn push(&self, rows: &[Datum], out: &mut Writer) -> std::result::Result<usize, SqlError> {
        let width = self.function.columns.len();
        let count = rows.len() / width;
        for row in 0..count {
            match rows.get(row * width + self.column) {
                Some(datum) if self.column < width => out.push(&datum.as_value())?,
                _ => out.push(&Value::Int(row as i64 + 1))?,
            }
        }
        Ok(count)
    }
}

impl ScalarUDFImpl for Listed {
    fn name(&self) -> &str {
        LISTED
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(self.element()))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let rows = if arrays.is_empty() { 1 } else { arrays[0].len() };
        let columns = readable(&arrays)?;
        let mut values = Vec::with_capacity(columns.len());
        let mut out = Writer::new(self.ty, rows);
        let mut offsets = Vec::with_capacity(rows + 1);
        let mut end = 0_usize;
        offsets.push(0);
        for row in 0..rows {
            values.clear();
            values.extend(columns.iter().map(|column| column.get(row)));
            let given = self.function.rows(&values, &self.clock).map_err(carried)?;
            end += self.push(&given, &mut out).map_err(carried)?;
            let offset = i32::try_from(end);
            offsets.push(offset.map_err(|_| carried(SqlError::new("54000", "too many rows of a set at once")))?);
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let list: ArrayRef = Arc::new(ListArray::try_new(self.element(), offsets, out.finish(), None)?);
        Ok(ColumnarValue::Array(list))
    }
}
