//! Which functions stand in FROM, and what do they give? Sets of rows, values, several beside each other.

use super::convert::Leaf;
use super::from::{After, Entry};
use super::plan::{FromRel, Planner, as_unsupported, df, int_of, refuse};
use super::series::Series;
use super::sets::{ONLY_RECORDS, SetCall, is_set, set_name};
use crate::bind::from::{alias_parts, is_series, rename, within_from};
use crate::bind::names::RelationName;
use crate::bind::scope::{ScopeColumn, ScopeSource, fold};
use crate::bind::types::type_of;
use crate::bind::{Bind, Binder};
use crate::error::SqlError;
use crate::expr::Expr;
use crate::parse::{call_of, rows_from};
use crate::value::Datum;
use crate::value::function::rows::RowFunction;
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::{Column as DfColumn, NullHandling, TableReference};
use datafusion::logical_expr::{Expr as DfExpr, LogicalPlanBuilder};
use freshet_engine::catalog::Schema;
use freshet_engine::schema::Type;
use sqlparser::ast::{self, FunctionArg, ObjectName, TableAlias};

/// A call in FROM.
pub(super) struct Called<'a> {
    pub name: &'a ObjectName,
    pub args: &'a [FunctionArg],
    pub ordinality: bool,
    pub alias: Option<&'a TableAlias>,
}

/// Whether the argument is a whole number as it stands: a series of such streams.
fn is_whole_number(arg: &FunctionArg) -> bool {
    use ast::{Expr as A, FunctionArgExpr, UnaryOperator, Value as V};
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) = arg else { return false };
    let number = |e: &A| matches!(e, A::Value(v) if matches!(&v.value, V::Number(n, _) if n.bytes().all(|b| b.is_ascii_digit())) || matches!(v.value, V::Placeholder(_)));
    match arg {
        A::UnaryOp { op: UnaryOperator::Minus, expr } => number(expr),
        A::Cast { expr, data_type, .. } => {
            number(expr)
                && matches!(
                    data_type,
                    ast::DataType::BigInt(None) | ast::DataType::Int(None) | ast::DataType::Integer(None)
                )
        }
        other => number(other),
    }
}

impl Planner<'_> {
    /// A function in FROM.
    pub(super) fn called(
        &self,
        binder: &mut Binder<'_>,
        call: &Called<'_>,
        before: &FromRel,
        nulls: NullHandling,
    ) -> Bind<Entry> {
        let Called { name, args, ordinality, alias } = *call;
        if rows_from(name) {
            return self.called_beside(binder, call, before, nulls);
        }
        let populated = populated(name, args, binder.schema)?;
        if !is_set(name) && populated.is_none() {
            return self.called_once(binder, call, before);
        }
        if !ordinality && is_series(name) && args.iter().all(is_whole_number) {
            return self.series(binder, name, args, alias);
        }
        let mut defined = defined_columns(alias, binder.schema)?;
        let plain = alias.map(without_types);
        let (alias, names) = alias_parts(plain.as_ref()).map_err(as_unsupported)?;
        let own = name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
        let mut relations = Vec::new();
        let (name, args) = match populated {
            Some((name, columns)) if defined.is_empty() => {
                relations = columns.iter().map(|(name, _)| name.clone()).collect();
                defined = columns;
                (name.to_owned(), &args[1..])
            }
            Some(_) => return Err(SqlError::new("42601", ONLY_RECORDS).into()),
            None => (set_name(name).expect("it was asked above"), args),
        };
        let call =
            self.within(&before.sources, || self.set_call(binder, &name, args, ordinality, &defined, &before.scope))?;
        let mut source = self.set_source(&call, &own, alias);
        rename(&mut source, relations)?;
        rename(&mut source, names)?;
        self.expanded(source, std::slice::from_ref(&call), before, nulls)
    }

    /// The rows of such calls as a source.
    fn expanded(&self, source: ScopeSource, calls: &[SetCall], before: &FromRel, nulls: NullHandling) -> Bind<Entry> {
        let (start, after, nulls) = match calls.iter().any(SetCall::mentions_columns) {
            true => (before.plan.clone(), After::Expanded, nulls),
            false => (df(LogicalPlanBuilder::empty(true).build())?, After::Beside, NullHandling::Drop),
        };
        let (plan, leaves) = self.expand(start, &before.sources, calls, nulls)?;
        Ok(Entry::of(plan, source, leaves.into_iter().flatten().collect()).placed(after))
    }

    /// A function that gives one value: a row of it.
    fn called_once(&self, binder: &mut Binder<'_>, call: &Called<'_>, before: &FromRel) -> Bind<Entry> {
        let Called { name, args, ordinality, alias } = *call;
        if !defined_columns(alias, binder.schema)?.is_empty() {
            return Err(SqlError::new("42601", ONLY_RECORDS).into());
        }
        let (alias, names) = alias_parts(alias).map_err(as_unsupported)?;
        let list = ast::FunctionArgumentList { duplicate_treatment: None, args: args.to_vec(), clauses: Vec::new() };
        let function = call_of(name.clone(), ast::FunctionArguments::List(list));
        let bound = self.within(&before.sources, || binder.bind(&function, &before.scope));
        let bound = binder.known(bound.map_err(within_from)?)?;
        let ty = bound.ty.unwrap_or(Type::Text);
        let own = name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
        let called = alias.unwrap_or(own);
        let mut columns = vec![ScopeColumn::new(called.clone(), ty)];
        let mut values = vec![(bound.expr, ty)];
        if ordinality {
            columns.push(ScopeColumn::new("ordinality".to_owned(), Type::Int8));
            values.push((Expr::Const(Datum::Int(1)), Type::Int8));
        }
        let mut source = ScopeSource { is_scalar: !ordinality, ..ScopeSource::of_columns(called, columns) };
        rename(&mut source, names)?;
        let (start, after) = match values[0].0.mentions(|_| true) {
            true => (before.plan.clone(), After::Expanded),
            false => (df(LogicalPlanBuilder::empty(true).build())?, After::Beside),
        };
        let mut all: Vec<DfExpr> = start.schema().columns().into_iter().map(DfExpr::Column).collect();
        let mut leaves = Vec::with_capacity(values.len());
        for (value, ty) in values {
            let given = self.with_leaves(&before.sources, |leaves| leaves.convert(&value, ty))?;
            let name = self.unique("value of");
            all.push(given.alias(name.clone()));
            leaves.push(Leaf::new(DfExpr::Column(DfColumn::new_unqualified(name)), ty));
        }
        let plan = df(df(LogicalPlanBuilder::from(start).project(all))?.build())?;
        Ok(Entry::of(plan, source, leaves).placed(after))
    }

    /// `ROWS FROM (f(x), g(y))`: the n-th rows of all beside each other.
    fn called_beside(
        &self,
        binder: &mut Binder<'_>,
        call: &Called<'_>,
        before: &FromRel,
        nulls: NullHandling,
    ) -> Bind<Entry> {
        let Called { args, ordinality, alias, .. } = *call;
        let mut functions = Vec::with_capacity(args.len());
        for arg in args {
            let FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Function(function))) = arg else {
                return Err(SqlError::new("42601", format!("syntax error at or near \"{arg}\"")).into());
            };
            let ast::FunctionArguments::List(list) = &function.args else {
                return refuse(format!("the function {function} in FROM"));
            };
            functions.push((&function.name, list.args.as_slice()));
        }
        if let [(name, args)] = functions.as_slice() {
            return self.called(binder, &Called { name, args, ordinality, alias }, before, nulls);
        }
        if ordinality {
            return refuse("ROWS FROM several functions WITH ORDINALITY");
        }
        let (alias, names) = alias_parts(alias).map_err(as_unsupported)?;
        let mut calls = Vec::with_capacity(functions.len());
        let mut columns = Vec::new();
        let mut first = None;
        for (name, args) in functions {
            let Some(name) = set_name(name) else { return refuse(format!("the function {name} in ROWS FROM")) };
            let call =
                self.within(&before.sources, || self.set_call(binder, &name, args, false, &[], &before.scope))?;
            let source = self.set_source(&call, &name, None);
            first.get_or_insert(source.name);
            columns.extend(source.columns);
            calls.push(call);
        }
        let mut source = ScopeSource::of_columns(alias.or(first).unwrap_or_default(), columns);
        rename(&mut source, names)?;
        self.expanded(source, &calls, before, nulls)
    }

    /// A series of constants, which streams.
    fn series(
        &self,
        binder: &mut Binder<'_>,
        name: &ObjectName,
        args: &[FunctionArg],
        alias: Option<&TableAlias>,
    ) -> Bind<Entry> {
        let (bounds, source) = binder.series(name, args, alias).map_err(as_unsupported)?;
        let ty = source.columns[0].ty;
        let mut numbers = [Some(0); 3];
        for (number, bound) in numbers.iter_mut().zip(bounds) {
            *number = int_of(&self.constant(&bound, "generate_series")?);
        }
        let relation = TableReference::bare(self.unique(&source.name));
        let provider = Series::provider(ty, numbers)?;
        let plan = df(LogicalPlanBuilder::scan(relation.clone(), provider_as_source(provider), None))?;
        let column = DfColumn::new(Some(relation), super::series::COLUMN);
        let leaves = vec![Leaf::new(DfExpr::Column(column), ty)];
        Ok(Entry::of(df(plan.build())?, source, leaves))
    }
}

/// A function that gives rows of a relation's, which a null names: the one that gives the same of a definition list, and the list.
type Populated = (&'static str, Vec<(String, Type)>);

/// `jsonb_populate_recordset(NULL::t, document)`.
fn populated(name: &ObjectName, args: &[FunctionArg], schema: &Schema) -> Bind<Option<Populated>> {
    let name = name.to_string().to_lowercase();
    let Some(alike) = RowFunction::of_named_columns(name.trim_start_matches("pg_catalog.")) else { return Ok(None) };
    let [FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Cast { expr, data_type, .. })), _] = args else {
        return Ok(None);
    };
    let (ast::Expr::Value(value), ast::DataType::Custom(named, _)) = (expr.as_ref(), data_type) else {
        return Ok(None);
    };
    let relation = RelationName::of(named)?;
    let (table, view) = (relation.table(schema), relation.view(schema));
    let columns = match (table, view) {
        _ if value.value != ast::Value::Null => return Ok(None),
        (Some(table), _) => {
            table.def.columns.iter().filter(|column| column.is_visible()).map(|c| (c.name.clone(), c.ty)).collect()
        }
        (None, Some(view)) => {
            view.def.columns.iter().map(|(name, ty)| (name.clone(), ty.unwrap_or(Type::Text))).collect()
        }
        (None, None) => return Ok(None),
    };
    Ok(Some((alike, columns)))
}

/// The columns of a definition list, `AS t(a int, b text)`.
fn defined_columns(alias: Option<&TableAlias>, schema: &Schema) -> Bind<Vec<(String, Type)>> {
    let columns = alias.iter().flat_map(|alias| &alias.columns);
    let typed = columns.filter_map(|column| column.data_type.as_ref().map(|ty| (fold(&column.name), ty)));
    let defined: Vec<(String, Type)> =
        typed.map(|(name, ty)| Ok((name, type_of(ty, schema)?))).collect::<Result<_, SqlError>>()?;
    match alias {
        Some(alias) if !defined.is_empty() && defined.len() < alias.columns.len() => {
            Err(SqlError::new("42601", "every column of a definition list has a type").into())
        }
        _ => Ok(defined),
    }
}

fn without_types(alias: &TableAlias) -> TableAlias {
    let mut plain = alias.clone();
    plain.columns.iter_mut().for_each(|column| column.data_type = None);
    plain
}
