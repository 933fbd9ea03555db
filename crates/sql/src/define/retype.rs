//! How do columns get other types? All of a statement at once, each by a conversion over the row as it was, and rows are written anew at most once.
//!
//! Expressions over such a column go on to mean what they meant: as PostgreSQL, they are read anew from the text that the catalog shows of them, in
//! which constants and casts have the types that they had.

use super::alter::{is_indexed, visible_names};
use super::constraint::{check_foreign_types, check_generated};
use super::create::{HIDING_ENDS, hiding, scope_of, shown_key};
use super::{Definer, Done};
use crate::bind::names::quoted;
use crate::bind::scope::Scope;
use crate::bind::types::{collation_of, own_collation};
use crate::bind::{Binder, Refusal};
use crate::catalog::Catalog;
use crate::catalog::definition::{stored_default, style};
use crate::error::SqlError;
use crate::expr::Expr;
use crate::parse::{AlterAction, SequenceClauses, parse_expression};
use crate::value::cast::{self, CastContext};
use crate::value::pgtype::{SECOND_DIGITS_MAX, name as type_name};
use freshet_engine::catalog::{
    CollationId, ColumnDef, ColumnRole, ConstraintKind, Index, IndexDef, IndexId, Schema, SchemaPath, Table, TableDef,
};
use freshet_engine::schema::Type;
use sqlparser::ast;
use std::sync::Arc;

/// A column that gets another type.
struct Retyped {
    at: usize,
    ty: Type,
    collation: Option<CollationId>,
    before: ColumnDef,
    /// Its new value, over the row as it was.
    conversion: Expr,
    /// Whether that may be another one than the cast's.
    has_using: bool,
}

impl Retyped {
    fn stays(&self) -> bool {
        !self.has_using && is_trivial(self.before.ty, self.ty)
    }
}

/// A table some columns of which get other types, with the catalog that shows its expressions.
struct Respelled<'a> {
    table: &'a Table,
    columns: &'a [usize],
    schema: &'a Arc<Schema>,
    /// Names every object with its schema.
    catalog: Catalog,
}

impl Respelled<'_> {
    /// The expression with the types of what is in it, if it is over any of the columns.
    fn expression(&self, text: &str) -> String {
        let is_name = parse_expression(text).is_ok_and(|ast| matches!(ast, ast::Expr::Identifier(_)));
        let is_over = |&at: &usize| mentions(text, &self.table.def, at, self.schema);
        match !is_name && self.columns.iter().any(is_over) {
            true => self.catalog.expression(text, self.table.id.0, style(false)),
            false => text.to_owned(),
        }
    }

    fn predicate(&self, index: &Index) -> Option<String> {
        index.def.predicate.as_deref().map(|predicate| self.expression(predicate))
    }

    /// What a hidden column of an index is computed by.
    fn key(&self, index: &Index, text: &str) -> String {
        let shown = shown_key(text, index.def.predicate.as_deref());
        match self.predicate(index).filter(|_| shown != text) {
            Some(predicate) => format!("{}{}{HIDING_ENDS}", hiding(&predicate), self.expression(&shown)),
            None => self.expression(text),
        }
    }
}

impl Definer<'_> {
    /// Gives columns other types, as these actions, which are all [`AlterAction::SetType`], say.
    pub(super) fn set_types(&mut self, table: &Arc<Table>, actions: &[&AlterAction]) -> Done<()> {
        let mut retyped: Vec<Retyped> = Vec::with_capacity(actions.len());
        for action in actions {
            let AlterAction::SetType { column, ty, collation, using } = action else { continue };
            let new = self.retyped(table, column, (ty, collation.as_ref()), using.as_ref())?;
            if retyped.iter().any(|other| other.at == new.at) {
                let name = &new.before.name;
                return Err(SqlError::new("0A000", format!("cannot alter type of column \"{name}\" twice")).into());
            }
            retyped.push(new);
        }
        let schema = self.schema();
        let types: Vec<(u16, Type)> = retyped.iter().map(|new| (new.at as u16, new.ty)).collect();
        check_foreign_types(&schema, table, &types)?;
        let mut def = table.def.clone();
        for Retyped { at, ty, collation, .. } in &retyped {
            (def.columns[*at].ty, def.columns[*at].collation) = (*ty, *collation);
        }
        let is_other = |new: &&Retyped| cast::without_modifier(new.before.ty) != cast::without_modifier(new.ty);
        let others: Vec<usize> = retyped.iter().filter(is_other).map(|new| new.at).collect();
        let predicates = self.respell(table, &mut def, &others)?;
        retyped.iter().try_for_each(|new| check_default(new, &def, &schema))?;
        check_generated(&def, Some(&table.def), &schema)?;
        let hidden_stay = retype_hidden(&mut def, table, &schema)?;
        check_indexes(table, &def)?;
        let columns: Vec<u16> = types.iter().map(|(at, _)| *at).collect();
        check_checks(&def, &columns, &schema)?;
        let layout = def.layout().map_err(|_| SqlError::new("54000", "the row is too wide"))?;
        let stays = retyped.iter().all(Retyped::stays) && hidden_stay && layout.is_same_record(&table.layout);
        match stays {
            true => self.engine.redefine_table(table.id, def)?,
            false => {
                let converted: Vec<(usize, Expr)> = retyped.into_iter().map(|new| (new.at, new.conversion)).collect();
                self.rewrite_with(table, def, &converted)?;
            }
        }
        for &at in &columns {
            self.take_collation(&self.current(table.id), usize::from(at))?;
        }
        self.set_predicates(&self.current(table.id), predicates)?;
        if stays { Ok(()) } else { self.validate_over(table, &columns, &schema) }
    }

    /// What one of the actions asks of the table as it is before all of them.
    fn retyped(
        &mut self,
        table: &Arc<Table>,
        column: &ast::Ident,
        (declared, collation): (&ast::DataType, Option<&ast::ObjectName>),
        using: Option<&ast::Expr>,
    ) -> Done<Retyped> {
        let at = self.column(table, column)?;
        let ty = super::create::stored_type(declared, &self.schema())?;
        self.check_type(ty)?;
        let collation = collation.map(|named| collation_of(named, ty)).transpose()?.flatten();
        let before = table.def.columns[at].clone();
        if before.role == ColumnRole::Generated && using.is_some() {
            return Err(SqlError::new("42601", "cannot specify USING when altering type of generated column").into());
        }
        if before.is_identity() {
            self.retype_identity(table, at, declared, ty)?;
        }
        let schema = self.schema();
        let relation = self.full_name(table.def.namespace, &table.def.name);
        let place = table.def.columns[..at].iter().filter(|c| c.is_visible()).count();
        let columns = visible_names(table);
        let uses = |v: &&Arc<freshet_engine::catalog::View>| {
            super::view::uses_column(&v.def.query, &relation, &columns, place, &schema)
        };
        if let Some(view) = schema.readers(table.id.0).find(uses) {
            return Err(SqlError::new("0A000", "cannot alter type of a column used by a view or rule")
                .with_detail(format!("view {} depends on column \"{}\"", view.def.name, before.name))
                .into());
        }
        check_no_generated_over(table, at, &schema)?;
        let conversion = match using {
            Some(using) => self.conversion(table, &before.name, ty, using)?,
            None => self.automatic(&before, at, ty)?,
        };
        Ok(Retyped { at, ty, collation, before, conversion, has_using: using.is_some() })
    }

    /// A USING as a value of the new type.
    fn conversion(&self, table: &Arc<Table>, name: &str, ty: Type, using: &ast::Expr) -> Done<Expr> {
        let schema = self.schema();
        let mut binder = Binder::new(self.sql, &schema, &[]);
        let bound = binder.bind(using, &Scope::of_table(table, None))?;
        let from = bound.ty;
        let value = binder.coerce(bound, ty, CastContext::Assignment).map_err(|_| {
            let from = from.map_or("unknown", type_name);
            let to = type_name(ty);
            let message =
                format!("result of USING clause for column \"{name}\" cannot be cast automatically to type {to}");
            SqlError::new("42804", message).with_hint(format!("You might need to add an explicit cast from {from}."))
        })?;
        Ok(value)
    }

    /// Checks the rows against the validated constraints over these columns, and those that refer to them.
    fn validate_over(&mut self, table: &Arc<Table>, columns: &[u16], schema: &Arc<Schema>) -> Done<()> {
        let is_over = |of: &[u16]| of.iter().any(|column| columns.contains(column));
        let keys: Vec<u32> = schema
            .foreign_keys()
            .filter(|(t, c, key)| t.id == table.id && c.validated && is_over(&key.columns))
            .map(|(_, c, _)| c.id)
            .collect();
        let checks = table
            .def
            .constraints
            .iter()
            .filter(|c| matches!(&c.kind, ConstraintKind::Check { columns, .. } if is_over(columns)));
        let ids: Vec<u32> = checks.filter(|c| c.validated).map(|c| c.id).chain(keys).collect();
        if !ids.is_empty() {
            self.validate(table.id, &ids)?;
        }
        let children = schema.references(table.id);
        children
            .filter(|(_, constraint, key)| constraint.validated && is_over(&key.parent_columns))
            .map(|(child, constraint, _)| (child.id, constraint.id))
            .try_for_each(|(child, id)| self.validate(child, &[id]))
    }

    /// A key that names the collation that its column has got names none: it has the column's from now on.
    fn take_collation(&mut self, table: &Table, at: usize) -> Done<()> {
        let column = &table.def.columns[at];
        let collation = column.collation.or_else(|| own_collation(column.ty));
        for index in &table.indexes {
            let mut def = index.def.clone();
            for (named, key) in def.named.iter_mut().zip(&def.columns) {
                if usize::from(key.column) == at && named.collation == collation {
                    named.collation = None;
                }
            }
            if def != index.def {
                self.engine.redefine_index(index.id, def)?;
            }
        }
        Ok(())
    }

    /// An identity column's sequence has the column's type.
    fn retype_identity(&mut self, table: &Table, at: usize, declared: &ast::DataType, ty: Type) -> Done<()> {
        if !cast::is_integer(ty) {
            let message = "identity column type must be smallint, integer, or bigint";
            return Err(SqlError::new("22023", message).into());
        }
        let sequence = self.identity(table, at)?;
        self.change_sequence(sequence, &SequenceClauses { ty: Some(declared.clone()), ..SequenceClauses::default() })
    }

    /// The cast that needs no USING.
    fn automatic(&self, column: &ColumnDef, at: usize, ty: Type) -> Done<Expr> {
        let allowed = column.ty == ty
            || matches!(cast::context(column.ty, ty), Some(CastContext::Implicit | CastContext::Assignment));
        if !allowed {
            let message = format!("column \"{}\" cannot be cast automatically to type {}", column.name, type_name(ty));
            return Err(SqlError::new("42804", message)
                .with_hint(format!("You might need to specify \"USING {}::{}\".", quoted(&column.name), type_name(ty)))
                .into());
        }
        let expr = Box::new(Expr::Column { source: 0, column: at as u16 });
        Ok(Expr::Cast { expr, from: column.ty, to: ty, explicit: false })
    }

    /// Gives the definition, whose columns have their new types, the texts that mean what they meant; those of indexes' predicates are given back.
    fn respell(&self, table: &Table, def: &mut TableDef, retyped: &[usize]) -> Done<Vec<(IndexId, String)>> {
        if retyped.is_empty() {
            return Ok(Vec::new());
        }
        let schema = self.schema();
        let named = Arc::new(schema.with_path(SchemaPath::from(Vec::new())));
        let respelled = Respelled { table, columns: retyped, schema: &schema, catalog: Catalog::new(named, None) };
        retyped.iter().for_each(|&at| self.respell_default(&respelled, def, at));
        let scope = scope_of(def);
        for constraint in &mut def.constraints {
            if let ConstraintKind::Check { condition, columns } = &mut constraint.kind
                && columns.iter().any(|&column| retyped.contains(&usize::from(column)))
            {
                let text = respelled.expression(condition);
                *condition = self.kept(&parse_expression(&text)?, Some(Type::Bool), &scope)?;
            }
        }
        for at in (0..def.columns.len()).filter(|&at| !is_indexed(table, at)) {
            // What no index asks any more is computed all the same.
            let column = &mut def.columns[at];
            if let (ColumnRole::Hidden, Some(text)) = (column.role, &column.default) {
                column.default = Some(respelled.expression(text));
            }
        }
        let mut predicates = Vec::new();
        for index in &table.indexes {
            for key in &index.def.columns {
                let column = &mut def.columns[usize::from(key.column)];
                if let (ColumnRole::Hidden, Some(text)) = (column.role, &column.default) {
                    column.default = Some(respelled.key(index, text));
                }
            }
            if let Some(predicate) = respelled.predicate(index) {
                super::create::check_predicate(&predicate, def, &schema)?;
                predicates.push((index.id, predicate));
            }
        }
        Ok(predicates)
    }

    /// A constant keeps the type that it was read as. What has none, and what asks a sequence, stays as it is.
    fn respell_default(&self, respelled: &Respelled<'_>, def: &mut TableDef, at: usize) {
        let before = &respelled.table.def.columns[at];
        if before.is_computed() || before.is_identity() {
            return;
        }
        let Some(text) = before.default.as_deref().filter(|text| text.contains('\'')) else { return };
        if super::alter::asks_sequence(text, before.ty, respelled.schema) {
            return;
        }
        let stored = stored_default(at as u16 + 1, text);
        let text = respelled.catalog.expression(&stored, respelled.table.id.0, style(false));
        def.columns[at].default = Some(text);
    }

    /// Gives indexes their predicates anew.
    pub(super) fn set_predicates(&mut self, table: &Table, predicates: Vec<(IndexId, String)>) -> Done<()> {
        for (id, predicate) in predicates {
            let Some(index) = table.indexes.iter().find(|index| index.id == id) else { continue };
            if index.def.predicate.as_ref() != Some(&predicate) {
                let def = IndexDef { predicate: Some(predicate), ..index.def.clone() };
                self.engine.redefine_index(id, def)?;
            }
        }
        Ok(())
    }
}

/// 42804 for a default that the column's new type does not take.
fn check_default(new: &Retyped, def: &TableDef, schema: &Arc<Schema>) -> Result<(), SqlError> {
    let Retyped { at, ty, before, .. } = new;
    let (false, Some(text)) = (before.is_computed() || before.is_identity(), &def.columns[*at].default) else {
        return Ok(());
    };
    let refuse = || {
        let (name, ty) = (&before.name, type_name(*ty));
        SqlError::new("42804", format!("default for column \"{name}\" cannot be cast automatically to type {ty}"))
    };
    crate::bind::rules::default_expr(text, *ty, schema).map(drop).map_err(|_| refuse())
}

/// Whether indexes can be over the types of their keys.
fn check_indexes(table: &Table, def: &TableDef) -> Result<(), SqlError> {
    for index in &table.indexes {
        super::create::check_keys(&index.def.columns, def, index.def.kind)?;
        for (i, key) in index.def.columns.iter().enumerate() {
            if let Some(class) = index.def.names_of(i).class {
                super::opclass::check_class(class, def.columns[usize::from(key.column)].ty)?;
            }
        }
    }
    Ok(())
}

/// Whether the checks over these columns are conditions still.
fn check_checks(def: &TableDef, retyped: &[u16], schema: &Arc<Schema>) -> Done<()> {
    for constraint in &def.constraints {
        if let ConstraintKind::Check { condition, columns } = &constraint.kind
            && columns.iter().any(|column| retyped.contains(column))
        {
            super::create::bind_over(condition, Type::Bool, def, schema)?;
        }
    }
    Ok(())
}

/// Gives the columns that indexes' expressions are kept in the types that these have now; whether all values stay as they are.
fn retype_hidden(def: &mut TableDef, table: &Table, schema: &Arc<Schema>) -> Done<bool> {
    let mut stay = true;
    for at in 0..def.columns.len() {
        let column = &def.columns[at];
        if column.role != ColumnRole::Hidden || !is_indexed(table, at) {
            continue;
        }
        let text = column.default.as_deref().expect("what is hidden is computed");
        let ty = super::create::index_type(text, &super::create::scope_of(def), schema, false)?;
        stay &= is_trivial(column.ty, ty);
        def.columns[at].ty = ty;
    }
    Ok(stay)
}

/// Values of the one type are values of the other as they are.
fn is_trivial(from: Type, to: Type) -> bool {
    match (from, to) {
        (a, b) if a == b => true,
        (Type::Varchar(_), Type::Text) => true,
        (Type::Varchar(a), Type::Varchar(b)) => a <= b,
        (Type::Text, Type::Varchar(n)) => n == crate::value::pgtype::UNLIMITED,
        (Type::Decimal { precision: p, scale: s }, Type::Decimal { precision: q, scale: t }) => s == t && p <= q,
        (from, Type::Rounded(kind, SECOND_DIGITS_MAX)) => from.unrounded() == kind.plain(),
        (Type::Rounded(a, p), Type::Rounded(b, q)) => a == b && p <= q && q <= SECOND_DIGITS_MAX,
        (from @ Type::Rounded(..), to) => from.unrounded() == to,
        _ => false,
    }
}

/// 0A000 for a column that a generated one is computed of.
fn check_no_generated_over(table: &Table, at: usize, schema: &Arc<Schema>) -> Result<(), SqlError> {
    let is_over = |c: &&ColumnDef| {
        c.role == ColumnRole::Generated && mentions(c.default.as_deref().unwrap_or_default(), &table.def, at, schema)
    };
    let Some(generated) = table.def.columns.iter().find(is_over) else { return Ok(()) };
    let name = &table.def.columns[at].name;
    let error = SqlError::new("0A000", "cannot alter type of a column used by a generated column");
    Err(error.with_detail(format!("Column \"{name}\" is used by generated column \"{}\".", generated.name)))
}

/// Whether an expression over the table names the column.
pub fn mentions(text: &str, def: &TableDef, at: usize, schema: &Arc<Schema>) -> bool {
    let bound: Result<_, Refusal> = super::create::bind_over(text, Type::Text, def, schema)
        .or_else(|_| super::create::bind_over(text, Type::Bool, def, schema));
    match bound {
        Ok((_, columns, _)) => columns.contains(&(at as u16)),
        // What cannot be bound as either is looked at by its words.
        Err(_) => super::view::mentions(text, &def.columns[at].name),
    }
}
