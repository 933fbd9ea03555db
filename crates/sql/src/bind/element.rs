//! What does an assignment to an element of an array or to a field of a document give its column?

use super::change::{assignment_cast, is_default};
use super::expr::Bound;
use super::scope::{Found, Scope};
use super::{Bind, Binder};
use crate::error::SqlError;
use crate::expr::Expr;
use crate::parse::Part;
use crate::value::Datum;
use crate::value::cast::CastContext;
use crate::value::function::{ASSIGN, Function};
use crate::value::pgtype::name as type_name;
use freshet_engine::catalog::{ColumnDef, Table};
use freshet_engine::schema::Type;
use sqlparser::ast;
use std::sync::Arc;

impl Binder<'_> {
    /// The column of the table, which is the source `target`, with one of its parts changed; `before`: by an assignment that stands before this
    /// one.
    pub(super) fn with_part(
        &mut self,
        table: &Arc<Table>,
        (target, column): (u16, u16),
        part: &Part<'_>,
        before: Option<Expr>,
        scope: &Scope,
    ) -> Bind<Expr> {
        let def = &table.def.columns[usize::from(column)];
        if def.is_computed() {
            let message = format!("column \"{}\" can only be updated to DEFAULT", def.name);
            return Err(SqlError::new("428C9", message).into());
        }
        let itself = before.unwrap_or_else(|| scope.expr(Found { source: target, column, ty: def.ty }));
        self.part_given(def, itself, part, scope)
    }

    /// What an INSERT gives a column by its parts alone: the rest of it is null.
    pub(super) fn of_parts(&mut self, def: &ColumnDef, parts: &[Part<'_>], scope: &Scope) -> Bind<Expr> {
        parts.iter().try_fold(Expr::NULL, |before, part| self.part_given(def, before, part, scope))
    }

    fn part_given(&mut self, def: &ColumnDef, itself: Expr, part: &Part<'_>, scope: &Scope) -> Bind<Expr> {
        if is_default(part.value) {
            return Err(SqlError::unsupported_as("cannot set an array element to DEFAULT").into());
        }
        let value = self.bind(part.value, scope)?;
        match def.ty {
            Type::Array(element) => {
                let wanted = if part.is_slice { def.ty } else { *element };
                let mut args = vec![itself, self.part_value(value, wanted, &def.name)?];
                let function = match part.is_slice {
                    true => {
                        let given = part.subscripts.iter().enumerate();
                        let given = given.map(|(at, bound)| i64::from(bound.is_some()) << at).sum();
                        args.push(Expr::Const(Datum::Int(given)));
                        Function::set_slice(def.ty, part.subscripts.len() / 2)?
                    }
                    false => Function::set_subscript(def.ty, part.subscripts.len()),
                };
                for subscript in &part.subscripts {
                    args.push(match subscript {
                        Some(subscript) => self.subscript(subscript, scope)?,
                        None => Expr::Const(Datum::Int(0)),
                    });
                }
                Ok(Expr::Call { function: Box::new(function), args })
            }
            Type::Jsonb if part.is_slice => {
                Err(SqlError::new("42804", "jsonb subscript does not support slices").into())
            }
            Type::Jsonb => {
                let value = Bound::new(self.part_value(value, Type::Jsonb, &def.name)?, Type::Jsonb);
                let mut args = vec![Bound::new(itself, Type::Jsonb), value];
                for subscript in part.subscripts.iter().flatten() {
                    args.push(self.json_step(subscript, scope)?);
                }
                Ok(self.call_bound(ASSIGN, args)?.expr)
            }
            other => {
                let what = type_name(other);
                let message = format!("cannot subscript type {what} because it does not support subscripting");
                Err(SqlError::new("42804", message).into())
            }
        }
    }

    fn part_value(&mut self, value: Bound, to: Type, name: &str) -> Bind<Expr> {
        if let Some(from) = value.ty {
            assignment_cast(from, to, name)?;
        }
        self.coerce(value, to, CastContext::Assignment)
    }

    /// A key or a number in a document.
    pub(super) fn json_step(&mut self, ast: &ast::Expr, scope: &Scope) -> Bind<Bound> {
        let bound = self.bind(ast, scope)?;
        let to = match bound.ty {
            None => Type::Text,
            Some(Type::Int2 | Type::Int4 | Type::Int8) => Type::Int4,
            Some(ty) if crate::value::cast::is_text(ty) => Type::Text,
            Some(other) => {
                let message = format!("subscript type {} is not supported", type_name(other));
                return Err(SqlError::new("42804", message)
                    .with_hint("jsonb subscript must be coercible to either integer or text.")
                    .into());
            }
        };
        Ok(Bound::new(self.coerce(bound, to, CastContext::Assignment)?, to))
    }
}
