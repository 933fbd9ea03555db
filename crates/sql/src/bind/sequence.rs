//! Which sequence do nextval and its like name? One that is known when the statement is planned, where a literal says which.

use super::expr::Bound;
use super::names::{RelationName, quoted};
use super::scope::Scope;
use super::{Bind, Binder};
use crate::error::SqlError;
use crate::expr::{Expr, KeyCall, SequenceCall, SequenceRef};
use crate::parse::span_position;
use crate::value::cast::{CastContext, is_text};
use freshet_engine::catalog::Sequence;
use freshet_engine::schema::{OidKind, Type};
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments, Spanned};
use std::sync::Arc;

/// Whether a text that is cast to it is still the text of a name.
fn is_name(ty: &ast::DataType) -> bool {
    matches!(ty.to_string().to_lowercase().trim_start_matches("pg_catalog."), "regclass" | "text" | "varchar")
}

/// The text of a literal, also as `::regclass`.
pub fn literal_name(arg: &ast::Expr) -> Option<&str> {
    match arg {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => Some(text),
            _ => None,
        },
        ast::Expr::Nested(inner) => literal_name(inner),
        ast::Expr::Cast { expr, data_type, .. } if is_name(data_type) => literal_name(expr),
        _ => None,
    }
}

impl Binder<'_> {
    /// nextval, currval, setval, lastval, pg_get_serial_sequence; `None`: another function.
    pub(super) fn sequence_call(&mut self, name: &str, args: &[&ast::Expr], scope: &Scope) -> Bind<Option<Bound>> {
        let call = match (name, args.len()) {
            ("nextval", 1) => SequenceCall::Next,
            ("currval", 1) => SequenceCall::Current,
            ("setval", 2 | 3) => SequenceCall::Set,
            ("lastval", 0) => {
                self.uses_sequences = true;
                // It asks the catalog whether the sequence is there still.
                self.uses_clock = true;
                return Ok(Some(Bound::new(Expr::LastValue, Type::Int8)));
            }
            _ => return Ok(None),
        };
        self.uses_sequences = true;
        let sequence = SequenceRef(self.sequence_named(args[0])?);
        let mut rest = Vec::new();
        if sequence.0.is_none() {
            let class = Type::Oid(OidKind::Class);
            let named = self.bind(args[0], scope)?;
            let named = match named.ty {
                Some(ty) if is_text(ty) => self.explicit_cast(named, class)?,
                _ => self.coerce(named, class, CastContext::Implicit)?,
            };
            // Found in the catalog when it is asked.
            self.uses_clock = true;
            rest.push(named);
        }
        for (arg, ty) in args[1..].iter().zip([Type::Int8, Type::Bool]) {
            let bound = self.bind(arg, scope)?;
            rest.push(self.coerce(bound, ty, CastContext::Implicit)?);
        }
        Ok(Some(Bound::new(Expr::Sequence { call, sequence, args: rest }, Type::Int8)))
    }

    /// pg_advisory_lock, pg_blocking_pids and their like; `None`: another function.
    pub(super) fn key_call(&mut self, name: &str, args: &[&ast::Expr], scope: &Scope) -> Bind<Option<Bound>> {
        let Some(call) = KeyCall::of_name(name) else { return Ok(None) };
        let Some(types) = call.arguments(args.len()) else { return Ok(None) };
        // Whoever locks is no plain reader.
        self.uses_sequences = true;
        let mut keys = Vec::with_capacity(args.len());
        for (arg, &ty) in args.iter().zip(types) {
            let bound = self.bind(arg, scope)?;
            keys.push(self.coerce(bound, ty, CastContext::Implicit)?);
        }
        Ok(Some(Bound::new(Expr::Key { call, args: keys }, call.result())))
    }

    /// The sequence that a literal names; `None`: none does.
    fn sequence_named(&mut self, arg: &ast::Expr) -> Bind<Option<Arc<Sequence>>> {
        let position = span_position(self.sql, arg.span());
        let Some(text) = self.name_text(arg)? else { return Ok(None) };
        let name = RelationName::of_text(&text).map_err(|e| e.at(position))?;
        match name.sequence(self.schema) {
            Some(sequence) => Ok(Some(sequence.clone())),
            None if name.table(self.schema).is_some() || name.view(self.schema).is_some() => {
                Err(SqlError::new("42809", format!("\"{name}\" is not a sequence")).at(position).into())
            }
            None => Err(name.undefined().at(position).into()),
        }
    }

    /// The text of a literal, also as `::regclass`, or what pg_get_serial_sequence gives.
    fn name_text(&mut self, arg: &ast::Expr) -> Bind<Option<String>> {
        if let Some(text) = literal_name(arg) {
            return Ok(Some(text.to_owned()));
        }
        Ok(match arg {
            ast::Expr::Nested(inner) => self.name_text(inner)?,
            ast::Expr::Cast { expr, data_type, .. } if is_name(data_type) => self.name_text(expr)?,
            ast::Expr::Function(function) => {
                let name = function.name.to_string().to_lowercase();
                if name.trim_start_matches("pg_catalog.") != "pg_get_serial_sequence" {
                    return Ok(None);
                }
                let FunctionArguments::List(list) = &function.args else { return Ok(None) };
                match list.args.as_slice() {
                    [
                        FunctionArg::Unnamed(FunctionArgExpr::Expr(table)),
                        FunctionArg::Unnamed(FunctionArgExpr::Expr(column)),
                    ] => self.serial_sequence(table, column)?,
                    _ => None,
                }
            }
            _ => None,
        })
    }

    fn serial_sequence(&mut self, table: &ast::Expr, column: &ast::Expr) -> Bind<Option<String>> {
        let (Some(table), Some(column)) = (self.name_text(table)?, self.name_text(column)?) else { return Ok(None) };
        let name = RelationName::of_text(&table)?;
        let table = name.table(self.schema).ok_or_else(|| name.undefined())?;
        let at = table.column(&column).ok_or_else(|| {
            let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.def.name);
            SqlError::new("42703", message)
        })?;
        let owned = self.schema.sequences().find(|s| s.def.owner == Some((table.id, at as u16)));
        Ok(owned.map(|s| {
            let namespace = super::names::namespace_name(self.schema, s.def.namespace);
            format!("{}.{}", quoted(&namespace), quoted(&s.def.name))
        }))
    }
}
