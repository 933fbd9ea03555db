//! What does CREATE TABLE (LIKE t INCLUDING ...) take from another table?

use super::create::{Commented, NewTable, expression_name};
use super::{Definer, Done, unused};
use crate::bind::types::type_of;
use crate::error::SqlError;
use crate::parse::{Like, SequenceClauses, parse_expression};
use freshet_engine::catalog::{ColumnDef, ColumnRole, ConstraintKind, IndexDef, SequenceDef, Table};
use freshet_engine::schema::KeyColumn;
use sqlparser::ast::{self, DataType};
use std::sync::Arc;

/// A table whose indexes are to be copied, and which of its columns became which.
pub struct LikeIndexes {
    table: Arc<Table>,
    places: Vec<Option<u16>>,
    /// Whether their comments are copied.
    comments: bool,
}

impl Definer<'_> {
    /// The columns of the table that the type's place names.
    pub(super) fn columns_like(&mut self, column: &ast::ColumnDef, like: &Like<'_>, new: &mut NewTable) -> Done<()> {
        let DataType::Custom(name, _) = &column.data_type else {
            return Err(type_of(&column.data_type, &self.schema())
                .err()
                .unwrap_or_else(|| SqlError::new("42601", "LIKE wants a table"))
                .into());
        };
        let table = self.table(name)?;
        self.check_table(table.id.0, crate::role::acl::Privileges::SELECT)?;
        let has = |part: &str| like.included.contains(&part);
        let schema = self.schema();
        let mut places = Vec::with_capacity(table.def.columns.len());
        for (at, column) in table.def.columns.iter().enumerate() {
            if !column.is_visible() {
                places.push(None);
                continue;
            }
            if new.def.columns.iter().any(|c| c.name == column.name) {
                let message = format!("column \"{}\" specified more than once", column.name);
                return Err(SqlError::new("42701", message).into());
            }
            let place = new.def.columns.len() as u16;
            places.push(Some(place));
            let keeps = match column.role {
                ColumnRole::Plain => has("defaults"),
                ColumnRole::Generated => has("generated"),
                _ => false,
            };
            let role = if keeps { column.role } else { ColumnRole::Plain };
            let default = column.default.clone().filter(|_| keeps);
            new.def.columns.push(ColumnDef { default, role, missing: None, ..column.clone() });
            if column.is_identity() && has("identity") {
                self.identity_like(&table, at as u16, place, new)?;
            }
            if let Some(comment) = schema.comment(table.id.0, at as u16 + 1).filter(|_| has("comments")) {
                new.comments.push((Commented::Column(place + 1), comment.to_string()));
            }
        }
        for constraint in table.def.constraints.iter().filter(|_| has("constraints")) {
            if let ConstraintKind::Check { condition, .. } = &constraint.kind {
                let expr = Box::new(parse_expression(condition)?);
                if let Some(comment) = schema.comment(constraint.id, 0).filter(|_| has("comments")) {
                    new.comments.push((Commented::Constraint(constraint.name.clone()), comment.to_string()));
                }
                let name = Some(constraint.name.clone());
                new.constraints.push(super::constraint::NewConstraint::Check { name, expr });
            }
        }
        if has("indexes") {
            new.likes.push(LikeIndexes { table, places, comments: has("comments") });
        }
        Ok(())
    }

    fn identity_like(&mut self, table: &Table, at: u16, place: u16, new: &mut NewTable) -> Done<()> {
        let schema = self.schema();
        let owned = schema.sequences_of(table.id).find(|s| s.def.owner == Some((table.id, at)));
        let clauses = owned.map(|sequence| clauses_of(&sequence.def)).unwrap_or_default();
        let column = &table.def.columns[usize::from(at)];
        let text = self.new_sequence(new, place, column.ty, &clauses)?;
        let def = &mut new.def.columns[usize::from(place)];
        (def.default, def.role) = (Some(text), column.role);
        Ok(())
    }

    /// The indexes and keys of the tables that LIKE names, under names of their own.
    pub(super) fn indexes_like(&mut self, new: &mut NewTable) -> Done<()> {
        for LikeIndexes { table, places, comments } in std::mem::take(&mut new.likes) {
            for index in &table.indexes {
                if index.def.primary && new.indexes.iter().any(|i| i.primary) {
                    let message = format!("multiple primary keys for table \"{}\" are not allowed", new.def.name);
                    return Err(SqlError::new("42P16", message).into());
                }
                let copy = self.index_like(&table, &index.def, &places, new)?;
                if let Some(comment) = self.engine.schema().comment(index.id.0, 0).filter(|_| comments) {
                    new.comments.push((Commented::Index(copy.name.clone()), comment.to_string()));
                }
                let at = if copy.primary { 0 } else { new.indexes.len() };
                new.indexes.insert(at, copy);
            }
        }
        Ok(())
    }

    fn index_like(
        &self,
        table: &Table,
        index: &IndexDef,
        places: &[Option<u16>],
        new: &mut NewTable,
    ) -> Done<IndexDef> {
        let mut parts = Vec::with_capacity(index.columns.len());
        let mut columns = Vec::with_capacity(index.columns.len());
        for key in &index.columns {
            let old = &table.def.columns[usize::from(key.column)];
            let column = match places[usize::from(key.column)] {
                Some(place) => place,
                None => hidden_like(old, new),
            };
            let text = super::create::shown_key(old.default.as_deref().unwrap_or_default(), index.predicate.as_deref());
            parts.push(match parse_expression(&text) {
                Ok(ast::Expr::Identifier(column)) if !old.is_visible() => column.value,
                Ok(expr) if !old.is_visible() => expression_name(&expr),
                _ => old.name.clone(),
            });
            columns.push(KeyColumn { column, ..*key });
        }
        parts.extend(index.include.iter().map(|&column| table.def.columns[usize::from(column)].name.clone()));
        let include = index.include.iter().filter_map(|&column| places[usize::from(column)]).collect();
        let (second, label) = match (index.primary, index.constraint != 0) {
            (true, _) => (String::new(), "pkey"),
            (false, true) => (parts.join("_"), "key"),
            (false, false) => (parts.join("_"), "idx"),
        };
        let schema = self.engine.schema();
        let namespace = new.def.namespace;
        let taken = |name: &str| new.indexes.iter().any(|i| i.name == name) || schema.has_relation_in(namespace, name);
        let name = unused(&new.def.name, &second, label, taken);
        let constraint = if index.constraint != 0 { IndexDef::CONSTRAINT } else { 0 };
        Ok(IndexDef { name, columns, include, constraint, ..index.clone() })
    }
}

/// The new table's hidden column of the same expression.
fn hidden_like(old: &ColumnDef, new: &mut NewTable) -> u16 {
    let known = |c: &ColumnDef| c.role == ColumnRole::Hidden && c.default == old.default;
    let at = new.def.columns.iter().position(known).unwrap_or_else(|| {
        let at = new.def.columns.len();
        let name = format!("........hidden.{}........", at + 1);
        new.def.columns.push(ColumnDef { name, missing: None, ..old.clone() });
        at
    });
    at as u16
}

fn clauses_of(def: &SequenceDef) -> SequenceClauses {
    SequenceClauses {
        increment: Some(def.increment),
        min: Some(Some(def.min)),
        max: Some(Some(def.max)),
        start: Some(def.start),
        cache: Some(def.cache),
        cycle: Some(def.cycle),
        ..SequenceClauses::default()
    }
}
