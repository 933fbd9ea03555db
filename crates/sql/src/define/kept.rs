//! What does a definition keep of its session? Nothing: literals that the session's zone, clock or search path gives a meaning are kept as what they
//! meant when the definition was made, as PostgreSQL keeps the constants that it has read.
//!
//! The binder notes such literals as it types them ([`SessionLiteral`]); they are then written anew, with an offset, as a day, or by an object's
//! number, and with their type: whoever reads the text reads the same value. Enums and their labels are kept by their numbers, too
//! ([`kept_name`]): they may get other names.

use super::create::scope_of;
use super::{Definer, Done};
use crate::bind::Binder;
use crate::bind::expr::{SessionLiteral, kept_label};
use crate::bind::scope::Scope;
use crate::bind::types::{kept_name, type_of};
use crate::catalog::{Known, Relation};
use crate::error::SqlError;
use crate::parse::parse_expression;
use crate::parse::printed::literal;
use crate::value::cast::CastContext;
use crate::value::pgtype::{format_type, name as type_name};
use crate::value::{self, Clock, Datum, quoted_ident};
use freshet_engine::catalog::{ColumnRole, Schema, TableDef};
use freshet_engine::schema::{OidKind, Type};
use sqlparser::ast::{self, Expr, ValueWithSpan, Visit, VisitMut, VisitorMut, visit_expressions};
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
        let is_plain = !without_qualifiers(&mut ast);
        if is_plain && binder.session_literals.is_empty() && !names_enums(&ast, &schema) {
            return Ok(text);
        }
        fix(&mut ast, &binder.session_literals, &self.reading_clock())?;
        Ok(ast.to_string())
    }

    /// A view's query as it is kept.
    pub(super) fn kept_query(&self, text: String, literals: &[SessionLiteral]) -> Done<String> {
        let mut query = super::view::parsed(&text)?;
        if literals.is_empty() && !names_enums(&query, &self.schema()) {
            return Ok(text);
        }
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

/// The one relation's columns by their bare names, as it may be called otherwise one day. Whether anything was left out.
fn without_qualifiers(ast: &mut Expr) -> bool {
    struct Bare(bool);
    impl VisitorMut for Bare {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::CompoundIdentifier(parts) = expr
                && let Some(column) = parts.pop()
            {
                *expr = Expr::Identifier(column);
                self.0 = true;
            }
            ControlFlow::Continue(())
        }
    }
    let mut bare = Bare(false);
    let _ = VisitMut::visit(ast, &mut bare);
    bare.0
}

/// The enum that a type's name means, or an array's elements', as definitions call it.
fn kept_type(data_type: &ast::DataType, schema: &Schema) -> Option<ast::DataType> {
    let ty = type_of(data_type, schema).ok()?;
    let (Type::Enum(id) | Type::Array(&Type::Enum(id))) = ty else { return None };
    let name = quoted_ident(&kept_name(schema.enum_by_id(id)?));
    let array = if ty == Type::Enum(id) { "" } else { "[]" };
    match parse_expression(&format!("''::pg_catalog.{name}{array}")) {
        Ok(Expr::Cast { data_type: kept, .. }) => Some(kept).filter(|kept| kept != data_type),
        _ => None,
    }
}

/// Whether a cast is to an enum that is not called as definitions do.
fn names_enums<T: Visit>(tree: &T, schema: &Schema) -> bool {
    let found = visit_expressions(tree, |expr| {
        let is_named = match expr {
            Expr::Cast { data_type, .. } => kept_type(data_type, schema).is_some(),
            Expr::TypedString(typed) => kept_type(&typed.data_type, schema).is_some(),
            _ => false,
        };
        if is_named { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found.is_break()
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
        let value = match found.ty {
            Type::Enum(_) => ast::Value::Number(text, false),
            _ => literal(text),
        };
        // Without a place it is not taken for a literal of the text.
        Ok(Some((ValueWithSpan { value, span: Span::empty() }, found.ty)))
    }

    /// Calls an enum as definitions do.
    fn fix_type(&self, data_type: &mut ast::DataType) {
        let kept = self.clock.catalog.get().and_then(|catalog| kept_type(data_type, &catalog.schema));
        if let Some(kept) = kept {
            *data_type = kept;
        }
    }

    fn cast_to(&self, value: ValueWithSpan, ty: Type) -> Result<Expr, SqlError> {
        let mut cast = parse_expression(&format!("''::{}", format_type(ty)))?;
        if let Expr::Cast { expr, data_type, .. } = &mut cast {
            **expr = Expr::Value(value);
            self.fix_type(data_type);
        }
        Ok(cast)
    }

    fn fix(&self, expr: &mut Expr) -> Result<(), SqlError> {
        match expr {
            Expr::TypedString(typed) => {
                if let Some((value, ty)) = self.constant(&typed.value)? {
                    match ty {
                        Type::Enum(_) => *expr = self.cast_to(value, ty)?,
                        _ => typed.value = value,
                    }
                } else {
                    self.fix_type(&mut typed.data_type);
                }
            }
            Expr::Cast { expr, data_type, .. } => {
                self.fix_type(data_type);
                if let Some(inner) = bare_literal(expr)
                    && let Some((value, _)) = self.constant(inner)?
                {
                    *inner = value;
                }
            }
            Expr::Value(inner) => {
                if let Some((value, ty)) = self.constant(inner)? {
                    *expr = self.cast_to(value, ty)?;
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
    // Those stay as they are written: only labels by themselves have numbers.
    if matches!(ty, Type::Array(Type::Enum(_))) {
        return Ok(literal.text.clone());
    }
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
            if let Expr::Cast { expr: inner, data_type, .. } = expr
                && let Some(schema) = self.0.catalog.get().map(|catalog| &catalog.schema)
                && let Ok(ty @ (Type::Enum(_) | Type::Array(&Type::Enum(_)))) = type_of(data_type, schema)
            {
                show_enum(inner, data_type, ty, self.0);
            }
            let (value, data_type) = match expr {
                Expr::TypedString(typed) => (Some(&mut typed.value), &typed.data_type),
                Expr::Cast { expr, data_type, .. } => (bare_literal(expr), &*data_type),
                _ => return ControlFlow::Continue(()),
            };
            if let (Some(value), Some(ty)) = (value, shown_type(data_type, self.0))
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

/// A cast to an enum by its name, and of a label by its text.
fn show_enum(inner: &mut Expr, data_type: &mut ast::DataType, ty: Type, clock: &Clock) {
    if let Some(number) = kept_label(inner, data_type, ty) {
        let mut label = Vec::new();
        value::to_text_by(ty, &value::Datum::Int(number).as_value(), clock, &mut label);
        let value = literal(String::from_utf8_lossy(&label).into_owned());
        *inner = Expr::Value(ValueWithSpan { value, span: Span::empty() });
    }
    if let Ok(Expr::Cast { data_type: named, .. }) = parse_expression(&format!("''::{}", format_type(ty))) {
        *data_type = named;
    }
}

/// The type, if its values are shown by a session.
fn shown_type(data_type: &ast::DataType, clock: &Clock) -> Option<Type> {
    let ty = match clock.catalog.get() {
        Some(catalog) => type_of(data_type, &catalog.schema),
        None => type_of(data_type, &Schema::default()),
    };
    let ty = ty.ok()?.unrounded();
    let is_moment = matches!(ty, Type::Timestamptz | Type::Timestamp | Type::Date);
    (is_moment || value::cast::shows_names(ty)).then_some(ty)
}
