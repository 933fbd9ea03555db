//! What does a row mean where a value is asked for? `ROW(a, b)`, and the name of a source alone, which is its whole row.
//!
//! A row is a value that can be shown, counted, put into JSON and taken apart by field. As a value it has no order and no equality here: rows are
//! compared, sorted and told apart field by field, where they are written out (`more`, [`by_fields`]).

use super::expr::Bound;
use super::more::row_items;
use super::scope::{Found, Scope, ScopeSource, fold, relation_name};
use super::{Bind, Binder, not_compiled};
use crate::error::SqlError;
use crate::expr::Expr;
use crate::value::Datum;
use crate::view::TABLEOID;
use freshet_engine::schema::{SystemKind, Type};
use sqlparser::ast::{self, AccessExpr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident};

/// The function that makes a row of names and values in turn; no statement can call it.
pub const MAKE: &str = "row of";

/// The type of a row.
pub const RECORD: Type = Type::System(SystemKind::Record);

/// 42883 for types without the operators that sorting or telling apart needs.
pub fn must_compare(ty: Type, operator: &str) -> Result<(), SqlError> {
    let name = match ty {
        Type::Json => "json",
        RECORD => "record",
        Type::System(SystemKind::Void) => "void",
        Type::Array(&Type::Json) => "json[]",
        Type::Array(&RECORD) => "record[]",
        _ => return Ok(()),
    };
    Err(SqlError::new("42883", format!("could not identify an {operator} operator for type {name}")))
}

/// The fields of a row that is made here: it is sorted and told apart as they are. `None`: it is none, or was made elsewhere.
pub fn fields_of(expr: &Expr) -> Option<Vec<(Expr, Type)>> {
    let Expr::Call { function, args } = expr else { return None };
    let pairs = args.chunks_exact(2).zip(function.arguments.chunks_exact(2));
    function.makes_row().then(|| pairs.map(|(pair, types)| (pair[1].clone(), types[1])).collect())
}

/// What sorting or grouping by an expression goes by: itself, or a row's fields.
pub fn by_fields(expr: Expr, ty: Type) -> Vec<(Expr, Type)> {
    match fields_of(&expr) {
        Some(fields) => fields.into_iter().flat_map(|(expr, ty)| by_fields(expr, ty)).collect(),
        None => vec![(expr, ty)],
    }
}

impl Binder<'_> {
    /// `ROW(a, b)`: its fields are called f1, f2, ...
    pub(super) fn row_value(&mut self, items: &[&ast::Expr], scope: &Scope) -> Bind<Bound> {
        let bound = self.bind_all(items, scope)?;
        let fields = bound.into_iter().enumerate().map(|(i, value)| (format!("f{}", i + 1), value));
        self.record(fields.collect())
    }

    /// `ROW(t.*, a)`: the columns of a source are fields like others; `None`: it is something else.
    pub(super) fn row_of_columns(&mut self, ast: &ast::Expr, scope: &Scope) -> Bind<Option<Bound>> {
        let ast::Expr::Function(function) = ast else { return Ok(None) };
        let FunctionArguments::List(list) = &function.args else { return Ok(None) };
        let has_source =
            list.args.iter().any(|arg| matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(_))));
        if !has_source || !function.name.to_string().eq_ignore_ascii_case("row") {
            return Ok(None);
        }
        let mut values = Vec::new();
        for arg in &list.args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(item)) => values.push(self.bind(item, scope)?),
                FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(name)) => {
                    let columns = row_columns(scope.source(&relation_name(name)?)?, scope, self.through.is_some());
                    values.extend(columns.into_iter().map(|(_, found)| Bound::new(scope.expr(found), found.ty)));
                }
                other => return not_compiled(format!("the argument {other}")),
            }
        }
        let fields = values.into_iter().enumerate().map(|(i, value)| (format!("f{}", i + 1), value));
        self.record(fields.collect()).map(Some)
    }

    /// The row of these fields.
    pub fn record(&mut self, fields: Vec<(String, Bound)>) -> Bind<Bound> {
        let name = |name: String| Bound::new(Expr::Const(Datum::Bytes(name.into_bytes().into())), Type::Text);
        let args = fields.into_iter().flat_map(|(field, value)| [name(field), value]);
        self.call_bound(MAKE, args.collect())
    }

    /// The row of the source that is called so; `None`: there is none.
    pub(super) fn whole_row(&mut self, name: &str, scope: &Scope) -> Bind<Option<Bound>> {
        let Ok(source) = scope.source(name) else { return Ok(None) };
        let columns = row_columns(source, scope, self.through.is_some());
        let fields = columns.iter().map(|&(ref name, found)| (name.clone(), Bound::new(scope.expr(found), found.ty)));
        let record = self.record(fields.collect())?;
        let of = &scope.sources[usize::from(source)];
        if !of.nullable {
            return Ok(Some(record));
        }
        // Where the join found no row there is none, which a column tells that has a value in every row.
        let Some(column) = column_with_values(of) else {
            let message = "the row of a relation without a NOT NULL column on the nullable side of an outer join";
            return not_compiled(message);
        };
        let found = Found { source, column, ty: of.columns[usize::from(column)].ty };
        let is_missing = Expr::IsNull { expr: Box::new(scope.expr(found)), negated: false };
        let value = Expr::Case { branches: vec![(is_missing, Expr::NULL)], otherwise: Some(Box::new(record.expr)) };
        Ok(Some(Bound::new(value, RECORD)))
    }

    /// `t IS [NOT] NULL` of a source: what holds of all its columns; `None`: it is no source.
    pub(super) fn whole_row_is_null(&mut self, ast: &ast::Expr, negated: bool, scope: &Scope) -> Option<Bound> {
        let name = row_name(ast, scope)?;
        let source = scope.source(&name).ok()?;
        let parts = row_columns(source, scope, self.through.is_some()).into_iter().map(|(_, found)| {
            let expr = Box::new(scope.expr(found));
            Expr::IsNull { expr, negated }
        });
        Some(Bound::new(Expr::And(parts.collect()), Type::Bool))
    }

    /// `(t).a`, `(ROW(1, 2)).f1`; `None`: it is something else.
    pub(super) fn row_field(&mut self, ast: &ast::Expr, scope: &Scope) -> Bind<Option<Bound>> {
        let ast::Expr::CompoundFieldAccess { root, access_chain } = ast else { return Ok(None) };
        let (ast::Expr::Nested(inner), [AccessExpr::Dot(ast::Expr::Identifier(field))]) =
            (root.as_ref(), access_chain.as_slice())
        else {
            return Ok(None);
        };
        if let Some(name) = row_name(inner, scope) {
            let parts = vec![Ident::with_quote('"', name), field.clone()];
            return self.bind(&ast::Expr::CompoundIdentifier(parts), scope).map(Some);
        }
        let Some(items) = row_items(inner) else { return Ok(None) };
        let name = fold(field);
        let at = name.strip_prefix('f').and_then(|n| n.parse::<usize>().ok());
        match at.filter(|&n| n > 0).and_then(|n| items.get(n - 1)) {
            Some(item) => self.bind(item, scope).map(Some),
            None => {
                let message = format!("could not identify column \"{name}\" in record data type");
                Err(SqlError::new("42703", message).into())
            }
        }
    }
}

/// The source that a name alone means, where no column is called so.
fn row_name(ast: &ast::Expr, scope: &Scope) -> Option<String> {
    match ast {
        ast::Expr::Identifier(ident) => {
            let name = fold(ident);
            (scope.column(&name).is_err() && scope.source(&name).is_ok()).then_some(name)
        }
        ast::Expr::QualifiedWildcard(name, _) => {
            let name = relation_name(name).ok()?;
            scope.source(&name).is_ok().then_some(name)
        }
        ast::Expr::Nested(inner) => row_name(inner, scope),
        _ => None,
    }
}

/// The columns of a source's row, whether joins merged them or not; `through`: of a change through a view, which has an order of its own.
fn row_columns(source: u16, scope: &Scope, through: bool) -> Vec<(String, Found)> {
    let of = &scope.sources[usize::from(source)];
    let is_shown = |name: &str| !name.is_empty() && (of.table.is_some() || name != TABLEOID);
    let order: Vec<u16> = match through && scope.is_first(source) {
        true => scope.first.iter().filter(|found| found.source == source).map(|found| found.column).collect(),
        false => (0..of.columns.len() as u16).collect(),
    };
    let columns = order.into_iter().map(|at| (at, &of.columns[usize::from(at)]));
    let shown = columns.filter(|(_, column)| is_shown(&column.name));
    shown.map(|(at, column)| (column.name.clone(), Found { source, column: at, ty: column.ty })).collect()
}

/// A column that is null in no row.
fn column_with_values(source: &ScopeSource) -> Option<u16> {
    let Some(table) = &source.table else { return source.present };
    table.def.columns.iter().position(|column| column.not_null && column.is_visible()).map(|at| at as u16)
}
