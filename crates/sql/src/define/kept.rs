//! What does a definition keep of its session? Nothing: literals that the session's zone, clock or search path gives a meaning are kept as what they
//! meant when the definition was made, as PostgreSQL keeps the constants that it has read.
//!
//! The binder notes such literals as it types them ([`SessionLiteral`]); they are then written anew, with an offset, as a day, or by an object's
//! number, and with their type: whoever reads the text reads the same value.

use super::create::scope_of;
use super::{Definer, Done};
use crate::bind::Binder;
use crate::bind::expr::SessionLiteral;
use crate::bind::scope::Scope;
use crate::catalog::{Known, Relation};
use crate::error::SqlError;
use crate::parse::parse_expression;
use crate::parse::printed::literal;
use crate::value::cast::CastContext;
use crate::value::pgtype::{format_type, name as type_name};
use crate::value::{self, Clock, Datum};
use freshet_engine::catalog::{ColumnRole, TableDef};
use freshet_engine::schema::{OidKind, Type};
use sqlparser::ast::{self, Expr, ValueWithSpan, VisitMut, VisitorMut};
use sqlparser::tokenizer::Span;
use std::ops::ControlFlow;

impl Definer<'_> {
    /// The expression's text as a definition keeps it. What cannot be bound stays: whoever defines it says why.
    pub(super) fn kept(&self, expr: &Expr, to: Option<Type>, scope: &Scope) -> Done<String> {
        let text = expr.to_string();
        let schema = self.schema();
        let mut ast = parse_expression(&text)?;
        let mut binder = Binder::new(&text, &schema, &[]);
        let Ok(bound) = binder.bind(&ast, scope) else { return Ok(text) };
        if let Some(to) = to
            && binder.coerce(bound, to, CastContext::Assignment).is_err()
        {
            return Ok(text);
        }
        if binder.session_literals.is_empty() {
            return Ok(text);
        }
        fix(&mut ast, &binder.session_literals, &self.reading_clock())?;
        Ok(ast.to_string())
    }

    /// A view's query as it is kept.
    pub(super) fn kept_query(&self, text: String, literals: &[SessionLiteral]) -> Done<String> {
        if literals.is_empty() {
            return Ok(text);
        }
        let mut query = super::view::parsed(&text)?;
        fix(query.as_mut(), literals, &self.reading_clock())?;
        Ok(query.to_string())
    }

    /// Generated columns from this one on, as they are kept: over all of the table's.
    pub(super) fn keep_generated(&self, def: &mut TableDef, from: usize) -> Done<()> {
        let scope = scope_of(def);
        for column in def.columns.iter_mut().skip(from).filter(|c| c.role == ColumnRole::Generated) {
            if let Some(text) = &column.default {
                column.default = Some(self.kept(&parse_expression(text)?, Some(column.ty), &scope)?);
            }
        }
        Ok(())
    }

    /// By what this definition's literals are read.
    pub(super) fn reading_clock(&self) -> Clock {
        Clock { catalog: Known::of_schema(&self.schema()), ..self.env.clock.clone() }
    }
}

/// Gives these literals of a tree the form that means the same to everybody.
pub(super) fn fix<T: VisitMut>(tree: &mut T, literals: &[SessionLiteral], clock: &Clock) -> Result<(), SqlError> {
    match VisitMut::visit(tree, &mut Fix { literals, clock }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Fix<'a> {
    literals: &'a [SessionLiteral],
    clock: &'a Clock,
}

impl Fix<'_> {
    /// The literal that stands there, and its type, where it is one of these.
    fn constant(&self, value: &ValueWithSpan) -> Result<Option<(ValueWithSpan, Type)>, SqlError> {
        let Some(found) = self.literals.iter().find(|literal| literal.is_at(value)) else { return Ok(None) };
        if found.ty == Type::Oid(OidKind::Role) {
            // Roles go, whatever names them.
            let message = format!("constant of the type {} cannot be used here", type_name(found.ty));
            return Err(SqlError::new("0A000", message));
        }
        let text = fixed_text(found, self.clock)?;
        // Without a place it is not taken for a literal of the text.
        Ok(Some((ValueWithSpan { value: literal(text), span: Span::empty() }, found.ty)))
    }

    fn fix(&self, expr: &mut Expr) -> Result<(), SqlError> {
        match expr {
            Expr::TypedString(typed) => {
                if let Some((value, _)) = self.constant(&typed.value)? {
                    typed.value = value;
                }
            }
            Expr::Cast { expr, .. } => {
                if let Some(inner) = bare_literal(expr)
                    && let Some((value, _)) = self.constant(inner)?
                {
                    *inner = value;
                }
            }
            Expr::Value(inner) => {
                if let Some((value, ty)) = self.constant(inner)? {
                    *expr = cast_to(value, ty)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl VisitorMut for Fix<'_> {
    type Break = SqlError;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        match self.fix(expr) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// The literal within parentheses.
fn bare_literal(expr: &mut Expr) -> Option<&mut ValueWithSpan> {
    match expr {
        Expr::Value(value) => Some(value),
        Expr::Nested(inner) => bare_literal(inner),
        _ => None,
    }
}

fn cast_to(value: ValueWithSpan, ty: Type) -> Result<Expr, SqlError> {
    let mut cast = parse_expression(&format!("''::{}", format_type(ty)))?;
    if let Expr::Cast { expr, .. } = &mut cast {
        **expr = Expr::Value(value);
    }
    Ok(cast)
}

/// Adds the relations that literals name to what a view reads.
pub(super) fn note_objects(literals: &[SessionLiteral], clock: &Clock, reads: &mut Vec<u32>) {
    let classes = literals.iter().filter(|literal| literal.ty == Type::Oid(OidKind::Class));
    let numbers = classes.filter_map(|literal| value::from_text_by(literal.ty, literal.text.as_bytes(), clock).ok());
    for number in numbers {
        let Datum::Int(number) = number else { continue };
        let found = clock.catalog.get().and_then(|catalog| catalog.relation(u32::try_from(number).ok()?));
        if let Some(relation @ (Relation::Table(_) | Relation::View(_) | Relation::Sequence(_))) = found
            && !reads.contains(&relation.oid())
        {
            reads.push(relation.oid());
        }
    }
}

/// Moments as Greenwich has them, objects by their numbers.
fn fixed_text(literal: &SessionLiteral, clock: &Clock) -> Result<String, SqlError> {
    let ty = literal.ty.unrounded();
    let datum = value::from_text_by(ty, literal.text.as_bytes(), clock)?;
    let mut shown = Vec::new();
    value::to_text(ty, &datum.as_value(), &mut shown);
    Ok(String::from_utf8_lossy(&shown).into_owned())
}

/// A text that is shown as it is kept, with moments and names of objects as their reader has them.
pub fn shown_by<T: VisitMut>(tree: &mut T, clock: &Clock) {
    struct Show<'a>(&'a Clock);
    impl VisitorMut for Show<'_> {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            let (value, data_type) = match expr {
                Expr::TypedString(typed) => (Some(&mut typed.value), &typed.data_type),
                Expr::Cast { expr, data_type, .. } => (bare_literal(expr), &*data_type),
                _ => return ControlFlow::Continue(()),
            };
            if let (Some(value), Some(ty)) = (value, shown_type(data_type))
                && let Some(text) = value.value.clone().into_string()
                && !value::is_read_by_clock(text.as_bytes(), ty)
                && let Ok(datum) = value::from_text_by(ty, text.as_bytes(), self.0)
            {
                let mut shown = Vec::new();
                value::to_text_by(ty, &datum.as_value(), self.0, &mut shown);
                value.value = literal(String::from_utf8_lossy(&shown).into_owned());
            }
            ControlFlow::Continue(())
        }
    }
    let _ = VisitMut::visit(tree, &mut Show(clock));
}

/// The type, if its values are shown by a session.
fn shown_type(data_type: &ast::DataType) -> Option<Type> {
    let ty = crate::bind::types::type_of(data_type).ok()?.unrounded();
    let is_moment = matches!(ty, Type::Timestamptz | Type::Timestamp | Type::Date);
    (is_moment || value::cast::shows_names(ty)).then_some(ty)
}
