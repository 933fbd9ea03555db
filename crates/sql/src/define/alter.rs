//! What does ALTER TABLE change?
//!
//! | action | rows |
//! |---|---|
//! | DROP COLUMN, RENAME, defaults, constraints NOT VALID, longer varchar | stay as they are |
//! | ADD COLUMN with no default or one that is the same for all rows | stay as they are: what they are missing is the column's to say |
//! | SET NOT NULL, ADD CHECK, ADD FOREIGN KEY, VALIDATE | are looked at |
//! | other ADD COLUMN, other types, generated columns | are written anew, into another storage; readers go on with the old one |

use super::constraint::{NewConstraint, check_generated};
use super::create::{NewTable, check_column_name, primary_key, unique};
use super::retype::mentions;
use super::storage::Storage;
use super::{Definer, Done};
use crate::bind::names::{OWN_TEMPORARY, RelationName, is_temporary};
use crate::bind::scope::fold;
use crate::error::SqlError;
use crate::expr::{Expr, Frame, evaluate};
use crate::parse::{AlterAction, AlterKind, SequenceClauses, Triggers};
use freshet_engine::catalog::{
    ColumnDef, ColumnRole, Constraint, ConstraintKind, IndexDef, IndexId, IndexKind, KeyNames, NamespaceId, Schema,
    Table, TableDef, TableId, View, ViewDef,
};
use freshet_engine::schema::{KeyColumn, Missing, Row, Type};
use sqlparser::ast::{self, Ident, ObjectName, TableConstraint};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Whether a statement that changes types does this before: what goes is gone by then, unless a USING reads it.
fn goes_before(action: &AlterAction, types: &[&AlterAction]) -> bool {
    let reads = |column: &Ident| {
        types.iter().any(|action| match action {
            AlterAction::SetType { using: Some(using), .. } => names(using, &fold(column)),
            _ => false,
        })
    };
    match action {
        AlterAction::DropColumn { name, .. } => !reads(name),
        AlterAction::DropConstraint { .. } | AlterAction::DropDefault(_) | AlterAction::DropNotNull(_) => true,
        AlterAction::DropIdentity { .. } | AlterAction::DropExpression { .. } => true,
        _ => false,
    }
}

/// Whether the expression may name the column.
fn names(expr: &ast::Expr, column: &str) -> bool {
    let is_it = |name: &Ident| fold(name) == column;
    let named = ast::visit_expressions(expr, |expr: &ast::Expr| match expr {
        ast::Expr::Identifier(name) if is_it(name) => ControlFlow::Break(()),
        ast::Expr::CompoundIdentifier(names) if names.last().is_some_and(is_it) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    named.is_break()
}

impl Definer<'_> {
    pub(super) fn alter(
        &mut self,
        kind: AlterKind,
        name: &ObjectName,
        if_exists: bool,
        actions: &[AlterAction],
    ) -> Done<()> {
        let written = self.named(name)?;
        let schema = self.schema();
        let found = written.table(&schema).is_some()
            || written.view(&schema).is_some()
            || written.sequence(&schema).is_some()
            || written.index(&schema).is_some();
        if !found && if_exists {
            self.notice("00000", format!("relation \"{written}\" does not exist, skipping"));
            return Ok(());
        }
        match kind {
            AlterKind::Table if written.table(&schema).is_some() => {
                let id = self.table(name)?.id;
                self.check_owner(id.0)?;
                self.engine.set_creator(schema.owner(id.0));
                self.alter_table_by(id, actions)
            }
            // ALTER TABLE renames whatever is there.
            AlterKind::Table | AlterKind::View if written.view(&schema).is_some() => {
                let id = written.view(&schema).expect("just looked up").id;
                self.check_owner(id)?;
                actions.iter().try_for_each(|action| self.alter_view(id, action))
            }
            AlterKind::Table | AlterKind::Sequence if written.sequence(&schema).is_some() => {
                let id = written.sequence(&schema).expect("just looked up").id;
                self.check_owner(id)?;
                actions.iter().try_for_each(|action| self.move_sequence(id, action))
            }
            AlterKind::Table | AlterKind::Index if written.index(&schema).is_some() => {
                let id = written.index(&schema).expect("just looked up").1.id;
                self.check_index_owner(id)?;
                actions.iter().try_for_each(|action| self.alter_index(id, action))
            }
            _ if found => {
                let what = kind.name().to_lowercase();
                Err(SqlError::new("42809", format!("\"{}\" is not a {what}", written.name)).into())
            }
            _ => Err(written.undefined().into()),
        }
    }

    /// There are no triggers of users. Foreign keys cannot be switched off: whoever asks for that is told, where a table has any.
    fn switch_triggers(&self, table: &Table, enable: bool, which: &Triggers) -> Done<()> {
        match which {
            Triggers::Named(name) => {
                let (name, table) = (fold(name), &table.def.name);
                Err(SqlError::new("42704", format!("trigger \"{name}\" for table \"{table}\" does not exist")).into())
            }
            Triggers::All if !enable => {
                let refers = |constraint: &Constraint, from: TableId| match &constraint.kind {
                    ConstraintKind::Foreign(key) => from == table.id || key.parent == table.id,
                    _ => false,
                };
                let schema = self.schema();
                match schema.tables().any(|other| other.def.constraints.iter().any(|c| refers(c, other.id))) {
                    true => {
                        let message = "switching foreign keys off is not supported";
                        Err(SqlError::new("0A000", message)
                            .with_hint(
                                "Drop the foreign keys and add them again, or make them DEFERRABLE and defer them.",
                            )
                            .into())
                    }
                    false => Ok(()),
                }
            }
            Triggers::All | Triggers::User => Ok(()),
        }
    }

    pub(super) fn current(&self, id: TableId) -> Arc<Table> {
        self.engine.schema().table_by_id(id).cloned().expect("the table is this transaction's")
    }

    pub(super) fn column(&self, table: &Table, name: &Ident) -> Done<usize> {
        let name = fold(name);
        let found = table.named_column(&name);
        Ok(found.ok_or_else(|| {
            SqlError::new("42703", format!("column \"{name}\" of relation \"{}\" does not exist", table.def.name))
        })?)
    }

    /// In the order of the statement, but for what goes before types change, and these together.
    fn alter_table_by(&mut self, id: TableId, actions: &[AlterAction]) -> Done<()> {
        let (types, others): (Vec<&AlterAction>, Vec<&AlterAction>) =
            actions.iter().partition(|action| matches!(action, AlterAction::SetType { .. }));
        let (before, after): (Vec<&AlterAction>, Vec<&AlterAction>) =
            others.into_iter().partition(|action| !types.is_empty() && goes_before(action, &types));
        before.into_iter().try_for_each(|action| self.alter_table(id, action))?;
        if !types.is_empty() {
            let table = self.current(id);
            self.nothing_awaited(&table, "ALTER TABLE")?;
            self.set_types(&table, &types)?;
        }
        after.into_iter().try_for_each(|action| self.alter_table(id, action))
    }

    fn alter_table(&mut self, id: TableId, action: &AlterAction) -> Done<()> {
        let table = self.current(id);
        self.nothing_awaited(&table, "ALTER TABLE")?;
        match action {
            AlterAction::AddColumn { def, if_not_exists } => self.add_table_column(&table, def, *if_not_exists),
            AlterAction::DropColumn { name, if_exists, cascade } => {
                self.drop_column(&table, name, *if_exists, *cascade)
            }
            AlterAction::AddConstraint { constraint, not_valid } => self.add_constraint(&table, constraint, *not_valid),
            AlterAction::AddUsingIndex { name, primary, index } => {
                self.add_using_index(&table, name.as_ref(), *primary, index)
            }
            AlterAction::DropConstraint { name, if_exists, cascade } => {
                self.drop_constraint(&table, name, *if_exists, *cascade)
            }
            AlterAction::ValidateConstraint(name) => self.validate_constraint(&table, name),
            AlterAction::AlterConstraint { name, deferrable, deferred } => {
                if *deferred && !deferrable {
                    let message = "constraint declared INITIALLY DEFERRED must be DEFERRABLE";
                    return Err(SqlError::new("42601", message).into());
                }
                let name = fold(name);
                let known = table.def.constraints.iter().any(|c| c.name == name);
                if !known {
                    return Err(no_constraint(&name, &table).into());
                }
                self.change_def(id, |def| {
                    for constraint in def.constraints.iter_mut().filter(|c| c.name == name) {
                        if let ConstraintKind::Foreign(key) = &mut constraint.kind {
                            (key.deferrable, key.deferred) = (*deferrable, *deferred);
                        }
                    }
                })
            }
            AlterAction::RenameColumn { old, new } => self.rename_column(&table, old, new),
            AlterAction::RenameConstraint { old, new } => self.rename_constraint(&table, old, new),
            AlterAction::Rename(new) => {
                let new = fold(new);
                self.check_free(table.def.namespace, &new)?;
                self.check_no_enum(table.def.namespace, &new, false)?;
                let namespace = table.def.namespace;
                self.rename_in_views(id.0, (namespace, &table.def.name), (namespace, &new))?;
                self.change_def(id, |def| def.name = new)
            }
            AlterAction::SetSchema(name) => self.set_schema(&table, name),
            AlterAction::SetDefault(column, expr) => {
                let at = self.column(&table, column)?;
                let def = &table.def.columns[at];
                self.check_plain(&table, at)?;
                let text = self.default_text(expr, def.ty)?;
                self.change_def(id, |def| def.columns[at].default = text)
            }
            AlterAction::DropDefault(column) => {
                let at = self.column(&table, column)?;
                self.check_plain(&table, at)?;
                self.change_def(id, |def| def.columns[at].default = None)
            }
            AlterAction::SetNotNull(column) => {
                let at = self.column(&table, column)?;
                self.check_not_null(id, at)?;
                self.change_def(id, |def| def.columns[at].not_null = true)
            }
            AlterAction::DropNotNull(column) => self.drop_not_null(&table, column),
            AlterAction::SetType { .. } => self.set_types(&table, &[action]),
            AlterAction::AddIdentity { column, always, clauses } => self.add_identity(&table, column, *always, clauses),
            AlterAction::SetIdentity { column, always, clauses } => self.set_identity(&table, column, *always, clauses),
            AlterAction::DropIdentity { column, if_exists } => self.drop_identity(&table, column, *if_exists),
            AlterAction::DropExpression { column, if_exists } => {
                let at = self.column(&table, column)?;
                if table.def.columns[at].role != ColumnRole::Generated {
                    let message = format!(
                        "column \"{}\" of relation \"{}\" is not a stored generated column",
                        table.def.columns[at].name, table.def.name
                    );
                    if *if_exists {
                        self.notice("00000", format!("{message}, skipping"));
                        return Ok(());
                    }
                    return Err(SqlError::new("55000", message).into());
                }
                self.change_def(id, |def| {
                    (def.columns[at].role, def.columns[at].default) = (ColumnRole::Plain, None);
                })
            }
            AlterAction::Owner(new) => self.change_owner(id.0, new),
            AlterAction::Triggers { enable, which } => self.switch_triggers(&table, *enable, which),
            AlterAction::Storage { options, resets } => self.alter_storage(options, *resets, Storage::Table),
            AlterAction::ColumnStorage { column, options, resets } => {
                self.column(&table, column)?;
                self.alter_storage(options, *resets, Storage::Column)
            }
            AlterAction::ColumnAdvice { column, what, value } => {
                self.column(&table, column)?;
                self.accept_advice(what, value)
            }
            AlterAction::Stored(stored) => self.accept_stored(stored, Storage::Table),
            AlterAction::ByIndex { what, index } => {
                let wanted = fold(index);
                if !table.indexes.iter().any(|index| index.def.name == wanted) {
                    let message = format!("index \"{wanted}\" for table \"{}\" does not exist", table.def.name);
                    return Err(SqlError::new("42704", message).into());
                }
                self.nothing(what)
            }
            AlterAction::Nothing(what) => self.nothing(what),
        }
    }

    fn nothing(&mut self, what: &str) -> Done<()> {
        self.notice("00000", format!("{what} changes nothing here"));
        Ok(())
    }

    fn check_free(&self, namespace: freshet_engine::catalog::NamespaceId, name: &str) -> Done<()> {
        match self.engine.schema().has_relation_in(namespace, name) {
            true => Err(super::create::already_exists(name).into()),
            false => Ok(()),
        }
    }

    /// A column whose default may be changed.
    fn check_plain(&self, table: &Table, at: usize) -> Done<()> {
        let def = &table.def.columns[at];
        let (name, relation) = (&def.name, &table.def.name);
        match def.role {
            ColumnRole::IdentityAlways | ColumnRole::IdentityByDefault => {
                let message = format!("column \"{name}\" of relation \"{relation}\" is an identity column");
                Err(SqlError::new("42601", message).into())
            }
            ColumnRole::Generated => {
                let message = format!("column \"{name}\" of relation \"{relation}\" is a generated column");
                Err(SqlError::new("42601", message).into())
            }
            _ => Ok(()),
        }
    }

    // ---- columns

    fn add_table_column(&mut self, table: &Arc<Table>, column: &ast::ColumnDef, if_not_exists: bool) -> Done<()> {
        let name = fold(&column.name);
        check_column_name(&name)?;
        if table.named_column(&name).is_some() {
            let message = format!("column \"{name}\" of relation \"{}\" already exists", table.def.name);
            if if_not_exists {
                self.notice("42701", format!("{message}, skipping"));
                return Ok(());
            }
            return Err(SqlError::new("42701", message).into());
        }
        let before = visible_names(table);
        self.keep_meaning(table.id.0, (table.def.namespace, &table.def.name), &before, &name)?;
        let mut new = NewTable::of(table.def.clone());
        self.add_column(column, &mut new)?;
        super::create::check_width(&new.def)?;
        self.keep_generated(&mut new.def, table.def.columns.len())?;
        check_generated(&new.def, Some(&table.def), &self.schema())?;
        let at = table.def.columns.len() as u16;
        let mut made = Vec::new();
        for sequence in std::mem::take(&mut new.sequences) {
            let id = self.engine.create_sequence(sequence.def.clone(), sequence.start())?;
            made.push((id, sequence.def));
        }
        let keys = std::mem::take(&mut new.keys);
        // The key's own check comes with its index.
        if !self.add_at_once(table, &new.def)? {
            self.rewrite(table, new.def)?;
        }
        for (id, mut def) in made {
            def.owner = Some((table.id, at));
            self.engine.redefine_sequence(id, def, None)?;
        }
        let added = &self.current(table.id).def.columns[usize::from(at)];
        if added.not_null && added.missing.is_none() {
            self.check_not_null(table.id, usize::from(at))?;
        }
        for key in keys {
            self.add_key(table.id, &key)?;
        }
        for constraint in new.constraints {
            self.add_bound(table.id, constraint, false)?;
        }
        Ok(())
    }

    /// Adds the last column of `def` without looking at a row: its value is the same for all of them. False: it is not, or there is nothing to gain.
    fn add_at_once(&mut self, table: &Arc<Table>, def: &TableDef) -> Done<bool> {
        let Some((column, before)) = def.columns.split_last() else { return Ok(false) };
        let is_alone = before.len() == table.def.columns.len() && column.role == ColumnRole::Plain;
        if !is_alone || table.slots() == 0 {
            return Ok(false);
        }
        let missing = match &column.default {
            None => None,
            Some(text) => {
                let expr = crate::bind::rules::default_expr(text, column.ty, &self.schema())?;
                if expr.is_volatile() {
                    return Ok(false);
                }
                let frame = Frame::new(self.env);
                Missing::of(column.ty, &evaluate(&expr, &frame)?.into_datum().as_value())
            }
        };
        Ok(self.engine.add_column(table.id, ColumnDef { missing, ..column.clone() })?)
    }

    /// Gives the table a definition with other columns at its end, or other types; every row is written anew.
    pub(super) fn rewrite(&mut self, table: &Arc<Table>, def: TableDef) -> Done<()> {
        self.rewrite_with(table, def, &[])
    }

    /// As [`Definer::rewrite`]: columns get what these expressions over the rows as they were give.
    pub(super) fn rewrite_with(&mut self, table: &Arc<Table>, def: TableDef, converted: &[(usize, Expr)]) -> Done<()> {
        let schema = self.schema();
        let mut defaults = Vec::new();
        for (at, column) in def.columns.iter().enumerate().skip(table.def.columns.len()) {
            if let (false, Some(text)) = (column.is_computed(), &column.default) {
                defaults.push((at, crate::bind::rules::default_expr(text, column.ty, &schema)?));
            }
        }
        let computed = self.computed(table, &def, &schema)?;
        let old_tables = vec![Some(table.clone())];
        let (env, interrupt) = (self.env, &mut *self.interrupt);
        let convert = &mut |engine: &mut freshet_engine::txn::Session,
                            old: &Table,
                            row: &mut Row,
                            new: &Table,
                            record: &mut Row|
         -> Done<()> {
            interrupt.step()?;
            for at in 0..old.def.columns.len() {
                engine.fetch_long(old, row, at);
            }
            let before = row.clone();
            for at in 0..old.def.columns.len() {
                if old.def.columns[at].role == ColumnRole::Dropped {
                    continue;
                }
                match converted.iter().find(|(column, _)| *column == at) {
                    Some((_, expr)) => {
                        let frame =
                            Frame { tables: &old_tables, rows: std::slice::from_ref(&before), ..Frame::new(env) };
                        let value = evaluate(expr, &frame)?.into_datum();
                        record.set(&new.layout, at, &value.as_value());
                    }
                    None => record.set(&new.layout, at, &before.get(&old.layout, at)),
                }
            }
            for (at, expr) in &defaults {
                let frame = Frame::new(env);
                let value = evaluate(expr, &frame)?.into_datum();
                record.set(&new.layout, *at, &value.as_value());
            }
            for (at, expr) in &computed {
                let cells = [(0..new.def.columns.len()).map(|at| record.get(&new.layout, at).into()).collect()];
                let frame = Frame { cells: &cells, ..Frame::new(env) };
                let value = evaluate(expr, &frame)?.into_datum();
                record.set(&new.layout, *at, &value.as_value());
            }
            Ok(())
        };
        self.engine.rewrite_table(table.id, def, convert)
    }

    /// Computed columns of the new definition over its cells: those that are new, and hidden ones if a type changes. (A generated one is over
    /// no column whose type changes, and keeps its value.)
    fn computed(&self, table: &Table, def: &TableDef, schema: &Arc<Schema>) -> Done<Vec<(usize, Expr)>> {
        let mut computed = Vec::new();
        for role in [ColumnRole::Generated, ColumnRole::Hidden] {
            for (at, column) in def.columns.iter().enumerate().filter(|(_, c)| c.role == role) {
                let is_same = table.def.columns.iter().zip(&def.columns).all(|(a, b)| a.ty == b.ty);
                let is_kept = is_same || role == ColumnRole::Generated || !is_indexed(table, at);
                if at < table.def.columns.len() && is_kept {
                    continue;
                }
                let text = column.default.as_deref().unwrap_or("NULL");
                computed.push((at, super::create::bind_over(text, column.ty, def, schema)?.0));
            }
        }
        Ok(computed)
    }

    pub(super) fn drop_column(&mut self, table: &Arc<Table>, name: &Ident, if_exists: bool, cascade: bool) -> Done<()> {
        let at = match self.column(table, name) {
            Ok(at) => at,
            Err(_) if if_exists => {
                let message =
                    format!("column \"{}\" of relation \"{}\" does not exist, skipping", fold(name), table.def.name);
                self.notice("00000", message);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let column = at as u16;
        let shown = table.def.columns[at].name.clone();
        self.release_column(table, at, cascade)?;
        // Without what went along.
        let table = &self.current(table.id);
        let relation = self.full_name(table.def.namespace, &table.def.name);
        let place = table.def.columns[..at].iter().filter(|c| c.is_visible()).count();
        self.change_views(table.id.0, |query| super::view::with_column_gone(query, &relation, place))?;
        let schema = self.schema();
        let uses = |i: &IndexDef| {
            let is_key = i.columns.iter().any(|c| c.column == column) || i.include.contains(&column);
            let hidden = i.columns.iter().map(|c| &table.def.columns[usize::from(c.column)]);
            let mut hidden = hidden.filter(|c| c.role == ColumnRole::Hidden).filter_map(|c| c.default.as_deref());
            is_key
                || hidden.any(|text| mentions(text, &table.def, at, &schema))
                || i.predicate.as_deref().is_some_and(|p| mentions(p, &table.def, at, &schema))
        };
        for index in table.indexes.iter().filter(|i| uses(&i.def)) {
            self.release_index(table, index.id, &format!("column {shown} of table {}", table.def.name), cascade)?;
            self.engine.drop_index_by_id(index.id)?;
        }
        let owned: Vec<u32> =
            schema.sequences().filter(|s| s.def.owner == Some((table.id, column))).map(|s| s.id).collect();
        self.change_def(table.id, |def| {
            def.constraints.retain(|c| match &c.kind {
                ConstraintKind::Check { columns, .. } => !columns.contains(&column),
                ConstraintKind::Foreign(key) => !key.columns.contains(&column),
            });
            let hidden: Vec<usize> = (0..def.columns.len())
                .filter(|&i| def.columns[i].role == ColumnRole::Hidden)
                .filter(|&i| mentions(def.columns[i].default.as_deref().unwrap_or_default(), &table.def, at, &schema))
                .collect();
            for i in hidden.into_iter().chain([at]) {
                def.columns[i] = ColumnDef {
                    name: format!("........pg.dropped.{}........", i + 1),
                    ty: def.columns[i].ty,
                    role: ColumnRole::Dropped,
                    ..ColumnDef::default()
                };
            }
        })?;
        self.engine.set_comment(table.id.0, column + 1, None)?;
        for sequence in owned {
            self.engine.drop_sequence(sequence)?;
        }
        Ok(())
    }

    /// Views and generated columns that read the column: gone with it, or forbidding that.
    fn release_column(&mut self, table: &Arc<Table>, at: usize, cascade: bool) -> Done<()> {
        let schema = self.schema();
        let name = table.def.columns[at].name.clone();
        let mut lines = Vec::new();
        let mut views: Vec<u32> = Vec::new();
        let relation = self.full_name(table.def.namespace, &table.def.name);
        let place = table.def.columns[..at].iter().filter(|c| c.is_visible()).count();
        let columns = visible_names(table);
        let uses = |v: &&Arc<View>| super::view::uses_column(&v.def.query, &relation, &columns, place, &schema);
        for view in schema.readers(table.id.0).filter(uses) {
            lines.push(format!("view {} depends on column {name} of table {}", view.def.name, table.def.name));
            views.push(view.id);
        }
        let generated: Vec<usize> = (0..table.def.columns.len())
            .filter(|&i| i != at && table.def.columns[i].role == ColumnRole::Generated)
            .filter(|&i| mentions(table.def.columns[i].default.as_deref().unwrap_or_default(), &table.def, at, &schema))
            .collect();
        for &i in &generated {
            let other = &table.def.columns[i].name;
            lines.push(format!("column {other} of table {0} depends on column {name} of table {0}", table.def.name));
        }
        if lines.is_empty() {
            return Ok(());
        }
        if !cascade {
            let message =
                format!("cannot drop column {name} of table {} because other objects depend on it", table.def.name);
            return Err(SqlError::new("2BP01", message)
                .with_detail(lines.join("\n"))
                .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
                .into());
        }
        for view in views {
            if let Some(view) = self.engine.schema().view_by_id(view).cloned() {
                let schema = self.schema();
                let name = crate::bind::names::qualified(&schema, view.def.namespace, &view.def.name);
                let name = RelationName::of_text(&name)?;
                let ident = |text: &str| ast::ObjectNamePart::Identifier(Ident::with_quote('"', text));
                let parts = name.namespace.iter().map(|n| ident(n)).chain([ident(&name.name)]);
                self.drop(&ast::ObjectType::View, true, &[ObjectName(parts.collect())], true)?;
            }
        }
        for i in generated {
            let ident = Ident::with_quote('"', table.def.columns[i].name.clone());
            let table = self.current(table.id);
            self.drop_column(&table, &ident, true, true)?;
        }
        Ok(())
    }

    fn rename_column(&mut self, table: &Arc<Table>, old: &Ident, new: &Ident) -> Done<()> {
        let at = self.column(table, old)?;
        let new = fold(new);
        check_column_name(&new)?;
        if table.column(&new).is_some() {
            let message = format!("column \"{new}\" of relation \"{}\" already exists", table.def.name);
            return Err(SqlError::new("42701", message).into());
        }
        let old = table.def.columns[at].name.clone();
        let visible = table.def.columns.iter().filter(|c| c.is_visible());
        let names: Vec<String> = visible.map(|c| c.name.clone()).collect();
        let relation = self.full_name(table.def.namespace, &table.def.name);
        self.change_views(table.id.0, |query| super::view::with_columns_named(query, &relation, &names))?;
        let renamed = |text: &str| super::view::rename_column(text, &old, &new);
        self.change_def(table.id, |def| {
            def.columns[at].name = new.clone();
            for column in def.columns.iter_mut().filter(|c| c.is_computed()) {
                column.default = column.default.as_deref().map(renamed);
            }
            for constraint in &mut def.constraints {
                if let ConstraintKind::Check { condition, .. } = &mut constraint.kind {
                    *condition = renamed(condition);
                }
            }
        })?;
        let with_predicate: Vec<_> = table.indexes.iter().filter(|i| i.def.predicate.is_some()).cloned().collect();
        for index in with_predicate {
            let predicate = index.def.predicate.as_deref().map(renamed);
            self.engine.redefine_index(index.id, IndexDef { predicate, ..index.def.clone() })?;
        }
        Ok(())
    }

    /// Views hold the text of what they read: each is written anew before a name changes under it.
    pub(super) fn change_views(&mut self, id: u32, change: impl Fn(&str) -> Result<String, SqlError>) -> Done<()> {
        let readers: Vec<_> = self.engine.schema().readers(id).cloned().collect();
        for view in readers {
            let query = change(&view.def.query)?;
            if query != view.def.query {
                self.engine.redefine_view(view.id, ViewDef { query, ..view.def.clone() })?;
            }
        }
        Ok(())
    }

    /// Before a relation, whose columns are these, gets another one: no view's bare name becomes that column's.
    pub(super) fn keep_meaning(
        &mut self,
        id: u32,
        (namespace, name): (NamespaceId, &str),
        columns: &[String],
        new: &str,
    ) -> Done<()> {
        let (relation, schema) = (self.full_name(namespace, name), self.schema());
        self.change_views(id, |query| super::view::with_column_come(query, &relation, columns, new, &schema))
    }

    /// A relation gets another name or schema.
    fn rename_in_views(&mut self, id: u32, old: (NamespaceId, &str), new: (NamespaceId, &str)) -> Done<()> {
        let full = |(namespace, name): (NamespaceId, &str)| self.full_name(namespace, name);
        let (old, new) = (full(old), full(new));
        self.change_views(id, |query| super::view::with_relation_renamed(query, &old, &new))
    }

    pub(super) fn full_name(&self, namespace: NamespaceId, name: &str) -> RelationName {
        let namespace = crate::bind::names::namespace_name(self.engine.schema(), namespace);
        RelationName { namespace: Some(namespace), name: name.to_owned() }
    }

    fn drop_not_null(&mut self, table: &Arc<Table>, column: &Ident) -> Done<()> {
        let at = self.column(table, column)?;
        let def = &table.def.columns[at];
        let primary = table.indexes.iter().filter(|i| i.def.primary);
        if primary.flat_map(|i| &i.def.columns).any(|c| usize::from(c.column) == at) {
            return Err(SqlError::new("42P16", format!("column \"{}\" is in a primary key", def.name)).into());
        }
        if def.is_identity() {
            let message = format!("column \"{}\" of relation \"{}\" is an identity column", def.name, table.def.name);
            return Err(SqlError::new("42601", message).into());
        }
        self.change_def(table.id, |def| def.columns[at].not_null = false)
    }

    // ---- identity

    fn add_identity(
        &mut self,
        table: &Arc<Table>,
        column: &Ident,
        always: bool,
        clauses: &SequenceClauses,
    ) -> Done<()> {
        let at = self.column(table, column)?;
        let def = &table.def.columns[at];
        let (name, relation) = (&def.name, &table.def.name);
        if !def.not_null {
            let message = format!(
                "column \"{name}\" of relation \"{relation}\" must be declared NOT NULL before identity can be added"
            );
            return Err(SqlError::new("55000", message).into());
        }
        if def.is_identity() {
            let message = format!("column \"{name}\" of relation \"{relation}\" is already an identity column");
            return Err(SqlError::new("55000", message).into());
        }
        if def.default.is_some() {
            let message = format!("column \"{name}\" of relation \"{relation}\" already has a default value");
            return Err(SqlError::new("55000", message).into());
        }
        let mut new = NewTable::of(table.def.clone());
        let text = self.new_sequence(&mut new, at as u16, def.ty, clauses)?;
        let role = if always { ColumnRole::IdentityAlways } else { ColumnRole::IdentityByDefault };
        for mut sequence in new.sequences {
            sequence.def.owner = Some((table.id, at as u16));
            let start = sequence.start();
            self.engine.create_sequence(sequence.def, start)?;
        }
        self.change_def(table.id, |def| (def.columns[at].default, def.columns[at].role) = (Some(text), role))
    }

    pub(super) fn identity(&self, table: &Table, at: usize) -> Done<u32> {
        let owner = Some((table.id, at as u16));
        let found = self.engine.schema().sequences().find(|s| s.def.owner == owner).map(|s| s.id);
        match found.filter(|_| table.def.columns[at].is_identity()) {
            Some(id) => Ok(id),
            None => {
                let name = &table.def.columns[at].name;
                let message = format!("column \"{name}\" of relation \"{}\" is not an identity column", table.def.name);
                Err(SqlError::new("55000", message).into())
            }
        }
    }

    fn set_identity(
        &mut self,
        table: &Arc<Table>,
        column: &Ident,
        always: Option<bool>,
        clauses: &SequenceClauses,
    ) -> Done<()> {
        let at = self.column(table, column)?;
        let sequence = self.identity(table, at)?;
        self.change_sequence(sequence, clauses)?;
        match always {
            None => Ok(()),
            Some(always) => {
                let role = if always { ColumnRole::IdentityAlways } else { ColumnRole::IdentityByDefault };
                self.change_def(table.id, |def| def.columns[at].role = role)
            }
        }
    }

    fn drop_identity(&mut self, table: &Arc<Table>, column: &Ident, if_exists: bool) -> Done<()> {
        let at = self.column(table, column)?;
        let sequence = match self.identity(table, at) {
            Ok(sequence) => sequence,
            Err(super::Halt::Error(error)) if if_exists => {
                self.notice("00000", format!("{}, skipping", error.message));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.change_def(table.id, |def| (def.columns[at].default, def.columns[at].role) = (None, ColumnRole::Plain))?;
        Ok(self.engine.drop_sequence(sequence)?)
    }

    // ---- constraints

    fn add_constraint(&mut self, table: &Arc<Table>, constraint: &TableConstraint, not_valid: bool) -> Done<()> {
        match constraint {
            TableConstraint::PrimaryKey(key) => self.add_key(table.id, &primary_key(key, None, None)?),
            TableConstraint::Unique(key) => self.add_key(table.id, &unique(key, None, None)?),
            TableConstraint::Check(check) => self.add_bound(table.id, NewConstraint::check(check, None)?, not_valid),
            TableConstraint::ForeignKey(key) => {
                self.add_bound(table.id, NewConstraint::foreign(key, None, None)?, not_valid)
            }
            other => Err(SqlError::unsupported(format!("the constraint {other}")).into()),
        }
    }

    fn add_key(&mut self, id: TableId, key: &super::create::Key) -> Done<()> {
        let table = self.current(id);
        if key.primary && table.indexes.iter().any(|i| i.def.primary) {
            let message = format!("multiple primary keys for table \"{}\" are not allowed", table.def.name);
            return Err(SqlError::new("42P16", message).into());
        }
        let mut def = table.def.clone();
        let index = self.key_index(key, &mut def, &[], IndexKind::BTree)?;
        if let Some(column) = def.columns.iter().zip(&table.def.columns).position(|(a, b)| a.not_null != b.not_null) {
            self.check_not_null(id, column)?;
            self.engine.redefine_table(id, def)?;
        }
        let table = self.current(id);
        self.build_index(&table, index).map(drop)
    }

    fn add_using_index(&mut self, table: &Arc<Table>, name: Option<&Ident>, primary: bool, index: &Ident) -> Done<()> {
        let wanted = fold(index);
        let Some(index) = table.indexes.iter().find(|i| i.def.name == wanted) else {
            return Err(SqlError::new("42704", format!("index \"{wanted}\" does not exist")).into());
        };
        if index.def.constraint != 0 {
            return Err(
                SqlError::new("55000", format!("index \"{wanted}\" is already associated with a constraint")).into()
            );
        }
        check_is_plain(table, &index.def)?;
        if primary {
            if table.indexes.iter().any(|i| i.def.primary) {
                let message = format!("multiple primary keys for table \"{}\" are not allowed", table.def.name);
                return Err(SqlError::new("42P16", message).into());
            }
            for column in &index.def.columns {
                self.check_not_null(table.id, usize::from(column.column))?;
            }
            let columns = index.def.columns.clone();
            self.change_def(table.id, |def| {
                columns.iter().for_each(|c| def.columns[usize::from(c.column)].not_null = true);
            })?;
        }
        let name = name.map_or(wanted, fold);
        // A primary key has no nulls that could be equal.
        let nulls_not_distinct = index.def.nulls_not_distinct && !primary;
        let def = IndexDef { name, primary, constraint: IndexDef::CONSTRAINT, nulls_not_distinct, ..index.def.clone() };
        Ok(self.engine.redefine_index(index.id, def)?)
    }

    fn add_bound(&mut self, id: TableId, constraint: NewConstraint, not_valid: bool) -> Done<()> {
        let table = self.current(id);
        let schema = self.schema();
        let own: Vec<(IndexId, IndexDef)> = table.indexes.iter().map(|i| (i.id, i.def.clone())).collect();
        let taken: Vec<String> = own.iter().filter(|(_, i)| i.constraint != 0).map(|(_, i)| i.name.clone()).collect();
        let mut bound = self.bind_constraint(constraint, &table.def, id, &own, &taken, &schema)?;
        bound.validated = !not_valid;
        let name = bound.name.clone();
        self.change_def(id, |def| def.constraints.push(bound))?;
        if not_valid {
            return Ok(());
        }
        let made = self.current(id).def.constraints.iter().find(|c| c.name == name).map(|c| c.id);
        self.validate(id, &[made.expect("the constraint that was just added")])
    }

    fn drop_constraint(&mut self, table: &Arc<Table>, name: &Ident, if_exists: bool, cascade: bool) -> Done<()> {
        let name = fold(name);
        if let Some(index) = table.indexes.iter().find(|i| i.def.constraint != 0 && i.def.name == name) {
            let what = format!("constraint {name} on table {}", table.def.name);
            self.release_index(table, index.id, &what, cascade)?;
            self.engine.drop_index_by_id(index.id)?;
            return if index.def.primary { self.release_groups(table, &what, cascade) } else { Ok(()) };
        }
        if table.def.constraints.iter().any(|c| c.name == name) {
            return self.change_def(table.id, |def| def.constraints.retain(|c| c.name != name));
        }
        if if_exists {
            let message = format!("constraint \"{name}\" of relation \"{}\" does not exist, skipping", table.def.name);
            self.notice("00000", message);
            return Ok(());
        }
        Err(no_constraint(&name, table).into())
    }

    fn validate_constraint(&mut self, table: &Arc<Table>, name: &Ident) -> Done<()> {
        let name = fold(name);
        let Some(constraint) = table.def.constraints.iter().find(|c| c.name == name) else {
            return Err(no_constraint(&name, table).into());
        };
        if constraint.validated {
            return Ok(());
        }
        let id = constraint.id;
        self.validate(table.id, &[id])?;
        self.change_def(table.id, |def| {
            def.constraints.iter_mut().filter(|c| c.id == id).for_each(|c| c.validated = true);
        })
    }

    fn rename_constraint(&mut self, table: &Arc<Table>, old: &Ident, new: &Ident) -> Done<()> {
        let (old, new) = (fold(old), fold(new));
        let known = |name: &str| {
            table.def.constraints.iter().any(|c| c.name == name)
                || table.indexes.iter().any(|i| i.def.constraint != 0 && i.def.name == name)
        };
        if !known(&old) {
            let message = format!("constraint \"{old}\" for table \"{}\" does not exist", table.def.name);
            return Err(SqlError::new("42704", message).into());
        }
        if known(&new) {
            let message = format!("constraint \"{new}\" for relation \"{}\" already exists", table.def.name);
            return Err(SqlError::new("42710", message).into());
        }
        if let Some(index) = table.indexes.iter().find(|i| i.def.constraint != 0 && i.def.name == old) {
            self.check_free(table.def.namespace, &new)?;
            return Ok(self.engine.redefine_index(index.id, IndexDef { name: new, ..index.def.clone() })?);
        }
        self.change_def(table.id, |def| {
            def.constraints.iter_mut().filter(|c| c.name == old).for_each(|c| c.name.clone_from(&new));
        })
    }

    // ---- other relations

    /// The schema that a relation is to go to, from the one where it is.
    fn new_home(&self, old: NamespaceId, name: &Ident) -> Done<NamespaceId> {
        let name = fold(name);
        let temporary = || SqlError::new("0A000", "cannot move objects into or out of temporary schemas");
        if name == OWN_TEMPORARY {
            return Err(temporary().into());
        }
        let schema = self.engine.schema();
        let found = schema.namespace(&name).map(|n| n.id);
        let id = found.ok_or_else(|| SqlError::new("3F000", format!("schema \"{name}\" does not exist")))?;
        if id != old {
            self.check_create_in(id)?;
        }
        if is_temporary(schema, id) || is_temporary(schema, old) {
            return Err(temporary().into());
        }
        Ok(id)
    }

    fn set_schema(&mut self, table: &Arc<Table>, name: &Ident) -> Done<()> {
        let id = self.new_home(table.def.namespace, name)?;
        if id == table.def.namespace {
            return Ok(());
        }
        self.check_free(id, &table.def.name)?;
        self.rename_in_views(table.id.0, (table.def.namespace, &table.def.name), (id, &table.def.name))?;
        let owned: Vec<_> = self.engine.schema().sequences_of(table.id).cloned().collect();
        self.change_def(table.id, |def| def.namespace = id)?;
        for sequence in owned {
            self.rename_sequence(sequence.id, id, sequence.def.name.clone())?;
        }
        Ok(())
    }

    fn alter_view(&mut self, id: u32, action: &AlterAction) -> Done<()> {
        let schema = self.engine.schema().clone();
        let view = schema.view_by_id(id).expect("the view was just looked up");
        match action {
            AlterAction::Rename(new) => {
                let new = fold(new);
                self.check_free(view.def.namespace, &new)?;
                self.check_no_enum(view.def.namespace, &new, false)?;
                self.rename_in_views(id, (view.def.namespace, &view.def.name), (view.def.namespace, &new))?;
                Ok(self.engine.redefine_view(id, ViewDef { name: new, ..view.def.clone() })?)
            }
            AlterAction::SetSchema(name) => {
                let namespace = self.new_home(view.def.namespace, name)?;
                self.check_free(namespace, &view.def.name)?;
                self.rename_in_views(id, (view.def.namespace, &view.def.name), (namespace, &view.def.name))?;
                Ok(self.engine.redefine_view(id, ViewDef { namespace, ..view.def.clone() })?)
            }
            AlterAction::RenameColumn { old, new } => {
                let (old, new) = (fold(old), fold(new));
                let names: Vec<String> = view.def.columns.iter().map(|(name, _)| name.clone()).collect();
                let relation = self.full_name(view.def.namespace, &view.def.name);
                self.change_views(id, |query| super::view::with_columns_named(query, &relation, &names))?;
                let mut def = view.def.clone();
                match def.columns.iter_mut().find(|(name, _)| *name == old) {
                    Some(column) => column.0 = new,
                    None => return Err(SqlError::new("42703", format!("column \"{old}\" does not exist")).into()),
                }
                Ok(self.engine.redefine_view(id, def)?)
            }
            AlterAction::SetDefault(column, expr) => {
                let (at, ty) = view_column(&view.def, column)?;
                let text = self.default_text(expr, ty)?;
                if text.as_ref().is_some_and(|text| asks_sequence(text, ty, &schema)) {
                    // Nothing would keep it from being dropped.
                    return Err(SqlError::unsupported("a sequence in a view's default").into());
                }
                Ok(self.engine.redefine_view(id, with_default(&view.def, at, text))?)
            }
            AlterAction::DropDefault(column) => {
                let (at, _) = view_column(&view.def, column)?;
                Ok(self.engine.redefine_view(id, with_default(&view.def, at, None))?)
            }
            AlterAction::Owner(new) => self.change_owner(id, new),
            AlterAction::Storage { options, resets } => {
                let check = super::view::changed_check(view.def.check, options, *resets)?;
                if check.is_some() {
                    let query = super::view::query_of(view)?;
                    crate::bind::through::check_changeable(&query)?;
                }
                Ok(self.engine.redefine_view(id, ViewDef { check, ..view.def.clone() })?)
            }
            _ => Err(SqlError::new("42809", format!("\"{}\" is not a table", view.def.name)).into()),
        }
    }

    fn move_sequence(&mut self, id: u32, action: &AlterAction) -> Done<()> {
        let schema = self.engine.schema().clone();
        let sequence = schema.sequence_by_id(id).expect("the sequence was just looked up");
        match action {
            AlterAction::Rename(new) => {
                let new = fold(new);
                self.check_free(sequence.def.namespace, &new)?;
                self.rename_sequence(id, sequence.def.namespace, new)
            }
            AlterAction::SetSchema(name) => {
                let namespace = self.new_home(sequence.def.namespace, name)?;
                self.check_free(namespace, &sequence.def.name)?;
                self.rename_sequence(id, namespace, sequence.def.name.clone())
            }
            AlterAction::Owner(new) => self.change_owner(id, new),
            AlterAction::Nothing(what) => self.nothing(what),
            _ => Err(SqlError::new("42809", format!("\"{}\" is not a table", sequence.def.name)).into()),
        }
    }

    /// Another name, also in the defaults that ask it.
    fn rename_sequence(&mut self, id: u32, namespace: freshet_engine::catalog::NamespaceId, name: String) -> Done<()> {
        let schema = self.engine.schema().clone();
        let sequence = schema.sequence_by_id(id).expect("the sequence is this transaction's");
        let ask = |namespace, name: &str| {
            super::sequence::default_of_sequence(&schema, namespace, name).trim_end_matches("::regclass)").to_owned()
        };
        let (old, new) = (ask(sequence.def.namespace, &sequence.def.name), ask(namespace, &name));
        if let Some(view) = schema.readers(id).next() {
            let message = format!("a change of the name of a sequence that view {} reads", view.def.name);
            return Err(SqlError::unsupported(message).into());
        }
        for table in schema.tables() {
            if table.def.columns.iter().any(|c| c.default.as_deref().is_some_and(|d| d.contains(&old))) {
                self.change_def(table.id, |def| {
                    for default in def.columns.iter_mut().filter_map(|c| c.default.as_mut()) {
                        *default = default.replace(&old, &new);
                    }
                })?;
            }
        }
        let def = freshet_engine::catalog::SequenceDef { namespace, name, ..sequence.def.clone() };
        Ok(self.engine.redefine_sequence(id, def, None)?)
    }

    fn alter_index(&mut self, id: IndexId, action: &AlterAction) -> Done<()> {
        let schema = self.engine.schema().clone();
        let found = schema.tables().find_map(|t| t.indexes.iter().find(|i| i.id == id).map(|i| (t, i)));
        let (table, index) = found.expect("the index was just looked up");
        match action {
            AlterAction::Rename(new) => {
                let new = fold(new);
                self.check_free(table.def.namespace, &new)?;
                Ok(self.engine.redefine_index(id, IndexDef { name: new, ..index.def.clone() })?)
            }
            // An index is its table's owner's.
            AlterAction::Owner(_) => {
                let message = format!("cannot change owner of index \"{}\"", index.def.name);
                self.notice("01000", message);
                Ok(())
            }
            AlterAction::Storage { options, resets } => {
                self.alter_storage(options, *resets, Storage::Index(index.def.kind))
            }
            AlterAction::Stored(stored) => self.accept_stored(stored, Storage::Index(index.def.kind)),
            _ => Err(SqlError::new("42809", format!("\"{}\" is not a table", index.def.name)).into()),
        }
    }
}

pub(super) fn visible_names(table: &Table) -> Vec<String> {
    table.def.columns.iter().filter(|c| c.is_visible()).map(|c| c.name.clone()).collect()
}

fn no_constraint(name: &str, table: &Table) -> SqlError {
    let message = format!("constraint \"{name}\" of relation \"{}\" does not exist", table.def.name);
    SqlError::new("42704", message)
}

/// Whether an index is over the column: of a hidden one that was dropped with its index nobody asks anything.
pub(super) fn is_indexed(table: &Table, at: usize) -> bool {
    table.indexes.iter().any(|index| index.def.columns.iter().any(|key| usize::from(key.column) == at))
}

/// 42809 for an index that is not as a constraint would make it.
fn check_is_plain(table: &Table, def: &IndexDef) -> Result<(), SqlError> {
    let refuse = |message: String| {
        let detail = "Cannot create a primary key or unique constraint using such an index.";
        Err(SqlError::new("42809", message).with_detail(detail))
    };
    let name = &def.name;
    if !def.unique {
        return refuse(format!("\"{name}\" is not a unique index"));
    }
    // A partial one's first key is hidden, too.
    let is_computed = |key: &KeyColumn| !table.def.columns[usize::from(key.column)].is_visible();
    if def.predicate.is_none() && def.columns.iter().any(is_computed) {
        return refuse(format!("index \"{name}\" contains expressions"));
    }
    if def.predicate.is_some() {
        return refuse(format!("\"{name}\" is a partial index"));
    }
    for (at, key) in def.columns.iter().enumerate() {
        if key.descending || def.nulls_against >> at.min(31) & 1 == 1 || def.names_of(at) != KeyNames::default() {
            let number = at + 1;
            return refuse(format!("index \"{name}\" column number {number} does not have default sorting behavior"));
        }
    }
    Ok(())
}

/// A view's column of this name, with its type.
fn view_column(def: &ViewDef, name: &Ident) -> Done<(u16, Type)> {
    let name = fold(name);
    match def.columns.iter().position(|(column, _)| *column == name) {
        Some(at) => Ok((at as u16, def.columns[at].1.unwrap_or(Type::Text))),
        None => {
            let message = format!("column \"{name}\" of relation \"{}\" does not exist", def.name);
            Err(SqlError::new("42703", message).into())
        }
    }
}

fn with_default(def: &ViewDef, column: u16, text: Option<String>) -> ViewDef {
    let others = def.defaults.iter().filter(|(at, _)| *at != column).cloned();
    ViewDef { defaults: others.chain(text.map(|text| (column, text))).collect(), ..def.clone() }
}

pub(super) fn asks_sequence(text: &str, ty: Type, schema: &Arc<Schema>) -> bool {
    crate::bind::expr::default_of(text, ty, schema).is_ok_and(|(_, uses)| uses.sequences)
}
