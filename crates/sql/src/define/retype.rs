//! What do expressions over a column mean once its type is another one? What they meant: as PostgreSQL, they are read anew from the text that the
//! catalog shows of them, in which constants and casts have the types that they had.

use super::create::{HIDING_ENDS, hiding, scope_of, shown_key};
use super::{Definer, Done};
use crate::bind::Refusal;
use crate::catalog::Catalog;
use crate::catalog::definition::{stored_default, style};
use crate::parse::parse_expression;
use freshet_engine::catalog::{
    ColumnRole, ConstraintKind, Index, IndexDef, IndexId, Schema, SchemaPath, Table, TableDef,
};
use freshet_engine::schema::Type;
use sqlparser::ast::Expr;
use std::sync::Arc;

/// A table whose column gets another type, with the catalog that shows its expressions.
struct Respelled<'a> {
    table: &'a Table,
    at: usize,
    schema: &'a Arc<Schema>,
    /// Names every object with its schema.
    catalog: Catalog,
}

impl Respelled<'_> {
    /// The expression with the types of what is in it, if it is over the column.
    fn expression(&self, text: &str) -> String {
        let is_name = parse_expression(text).is_ok_and(|ast| matches!(ast, Expr::Identifier(_)));
        match !is_name && mentions(text, &self.table.def, self.at, self.schema) {
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
    /// Gives the definition, whose column has its new type, the texts that mean what they meant; those of indexes' predicates are given back.
    pub(super) fn respell(&self, table: &Table, def: &mut TableDef, at: usize) -> Done<Vec<(IndexId, String)>> {
        let schema = self.schema();
        let named = Arc::new(schema.with_path(SchemaPath::from(Vec::new())));
        let respelled = Respelled { table, at, schema: &schema, catalog: Catalog::new(named, None) };
        self.respell_default(&respelled, def);
        let scope = scope_of(def);
        for constraint in &mut def.constraints {
            if let ConstraintKind::Check { condition, columns } = &mut constraint.kind
                && columns.contains(&(at as u16))
            {
                let text = respelled.expression(condition);
                *condition = self.kept(&parse_expression(&text)?, Some(Type::Bool), &scope)?;
            }
        }
        for at in (0..def.columns.len()).filter(|&at| !super::alter::is_indexed(table, at)) {
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
    fn respell_default(&self, respelled: &Respelled<'_>, def: &mut TableDef) {
        let before = &respelled.table.def.columns[respelled.at];
        if before.is_computed() || before.is_identity() {
            return;
        }
        let Some(text) = before.default.as_deref().filter(|text| text.contains('\'')) else { return };
        if super::alter::asks_sequence(text, before.ty, respelled.schema) {
            return;
        }
        let stored = stored_default(respelled.at as u16 + 1, text);
        let text = respelled.catalog.expression(&stored, respelled.table.id.0, style(false));
        def.columns[respelled.at].default = Some(text);
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

/// Whether an expression over the table names the column.
pub(super) fn mentions(text: &str, def: &TableDef, at: usize, schema: &Arc<Schema>) -> bool {
    let bound: Result<_, Refusal> = super::create::bind_over(text, Type::Text, def, schema)
        .or_else(|_| super::create::bind_over(text, Type::Bool, def, schema));
    match bound {
        Ok((_, columns, _)) => columns.contains(&(at as u16)),
        // What cannot be bound as either is looked at by its words.
        Err(_) => super::view::mentions(text, &def.columns[at].name),
    }
}
