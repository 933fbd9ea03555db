//! What do INSERT, UPDATE and DELETE change?

use super::expr::{Bound, default_of};
use super::from::{From, conjuncts, is_bare, plan_loops};
use super::names::RelationName;
use super::query::{has_star, looked_at};
use super::scope::{Scope, fold, relation_name};
use super::{Bind, Binder, Refusal, Xmax, not_compiled};
use crate::compiled::change::{Delete, Given, Insert, InsertSource, Returning, Update};
use crate::compiled::init::{RowQueries, reads};
use crate::compiled::query::Query;
use crate::compiled::rules::Event;
use crate::error::SqlError;
use crate::expr::{Expr, SequenceCall};
use crate::parse::{Overriding, has_query, part_of, parts_of, span_position};
use crate::rows::Column;
use crate::value::cast::{self, CastContext};
use crate::value::pgtype::name as type_name;
use freshet_engine::catalog::{ColumnRole, Table};
use freshet_engine::schema::Type;
use sqlparser::ast::{
    self, AssignmentTarget, FromTable, ObjectName, SelectItem, SetExpr, Spanned, TableFactor, TableObject,
    TableWithJoins,
};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Binds the rows of an INSERT.
pub type BindSource<'s> = dyn FnMut(&mut Binder<'_>, &Arc<Table>, &mut Vec<u16>, bool) -> Bind<InsertSource> + 's;

impl Binder<'_> {
    pub fn insert(&mut self, insert: &ast::Insert) -> Bind<Insert> {
        self.insert_with(insert, &mut |binder, table, targets, explicit| match &insert.source {
            // DEFAULT VALUES
            None => {
                targets.clear();
                Ok(InsertSource::Values(vec![Vec::new()]))
            }
            Some(query) => match query.body.as_ref() {
                SetExpr::Values(values) if is_bare(query) => binder.insert_values(table, targets, values, explicit),
                _ => binder.insert_query(table, targets, query, explicit),
            },
        })
    }

    /// An INSERT whose rows `source` binds: it is given the table, the target columns, and whether they were named.
    pub fn insert_with(&mut self, insert: &ast::Insert, bind_source: &mut BindSource<'_>) -> Bind<Insert> {
        let ast::Insert {
            insert_token: _,
            optimizer_hints: _,
            or,
            ignore,
            into: _,
            table,
            table_alias,
            columns,
            overwrite,
            source: _,
            assignments,
            partitioned,
            after_columns,
            has_table_keyword,
            on,
            returning,
            output,
            replace_into,
            priority,
            insert_alias,
            settings,
            format_clause,
            multi_table_insert_type,
            multi_table_into_clauses,
            multi_table_when_clauses,
            multi_table_else_clause,
        } = insert;
        if or.is_some()
            || *ignore
            || *overwrite
            || !assignments.is_empty()
            || !after_columns.is_empty()
            || *has_table_keyword
            || output.is_some()
            || *replace_into
            || priority.is_some()
            || insert_alias.is_some()
            || settings.is_some()
            || format_clause.is_some()
            || multi_table_insert_type.is_some()
            || !multi_table_into_clauses.is_empty()
            || !multi_table_when_clauses.is_empty()
            || multi_table_else_clause.is_some()
        {
            return Err(SqlError::unsupported("an INSERT clause of another dialect").into());
        }
        let TableObject::TableName(name) = table else {
            return Err(SqlError::unsupported(format!("INSERT INTO {table}")).into());
        };
        let alias = table_alias.as_ref().map(|a| fold(&a.alias));
        let (table, scope) = self.named_target(name, alias, "insert into")?;
        let notes = crate::parse::notes(partitioned.as_deref());
        let explicit = !columns.is_empty();
        self.overriding = notes.overriding;
        let mut targets = self.targets(&table, columns)?;
        let source = bind_source(self, &table, &mut targets, explicit)?;
        let mut plan = self.insert_into(&table, targets, source)?;
        let (inserted, asks_xmax) = self.returning_of_new(returning.as_deref(), &table, &scope, false)?;
        plan.returning = inserted;
        if let Some(on) = on {
            let mut conflict = self.on_conflict(&table, &scope, on, notes.predicate)?;
            if let Some(update) = conflict.update.as_mut().filter(|_| asks_xmax) {
                (update.returning, _) = self.returning_of_new(returning.as_deref(), &table, &scope, true)?;
            }
            plan.conflict = Some(Box::new(conflict));
        }
        Ok(plan)
    }

    /// An INSERT of these rows alone.
    pub fn insert_into(&mut self, table: &Arc<Table>, columns: Vec<u16>, source: InsertSource) -> Bind<Insert> {
        let mut defaults = Vec::new();
        for (i, column) in table.def.columns.iter().enumerate() {
            let has_default = column.default.is_some() || self.view_default(i).is_some();
            if !columns.contains(&(i as u16)) && has_default && !column.is_computed() {
                defaults.push((i as u16, self.default(table, i)?));
            }
        }
        let not_null = table.def.columns.iter().enumerate();
        let not_null = not_null.filter(|(_, c)| c.not_null && !c.is_computed()).map(|(i, _)| i as u16);
        let not_null = not_null.collect();
        let rules = self.rules(table, Event::Insert, &[])?;
        let tables = vec![Some(table.clone())];
        Ok(Insert { tables, columns, source, defaults, not_null, rules, conflict: None, returning: None })
    }

    pub fn targets(&self, table: &Table, columns: &[ObjectName]) -> Bind<Vec<u16>> {
        if let (true, Some(through)) = (columns.is_empty(), &self.through) {
            return Ok(through.columns.iter().map(|(_, column)| *column).collect());
        }
        if columns.is_empty() {
            let all = 0..table.def.columns.len() as u16;
            return Ok(all.filter(|&c| table.def.columns[usize::from(c)].is_visible()).collect());
        }
        let mut targets = Vec::with_capacity(columns.len());
        for name in columns {
            let column = self.target(table, name)?;
            if targets.contains(&column) {
                let is_other = columns.iter().filter(|other| *other == name).count() == 1;
                if is_other && self.through.is_some() {
                    return Err(twice(table, column).into());
                }
                return Err(SqlError::new("42701", format!("column \"{name}\" specified more than once"))
                    .at(span_position(self.sql, name.span()))
                    .into());
            }
            targets.push(column);
        }
        Ok(targets)
    }

    pub fn target(&self, table: &Table, name: &ObjectName) -> Bind<u16> {
        let (wanted, field) = match name.0.as_slice() {
            // A field of a column, never a column of a table.
            [first, .., field] => (first.as_ident().map(fold).unwrap_or_default(), Some(field)),
            _ => (relation_name(name)?, None),
        };
        let found = match &self.through {
            Some(through) => {
                let column = through.columns.iter().find(|(name, _)| *name == wanted).map(|(_, column)| *column);
                column.map_or(Ok(()), |column| through.check_set(column))?;
                column
            }
            None => table.named_column(&wanted).map(|column| column as u16),
        };
        match (found, field) {
            (Some(column), None) => Ok(column),
            (Some(column), Some(field)) => {
                let ty = type_name(table.def.columns[usize::from(column)].ty);
                let field = field.as_ident().map(fold).unwrap_or_default();
                let what = format!("cannot assign to field \"{field}\" of column \"{wanted}\"");
                let error = SqlError::new("42804", format!("{what} because its type {ty} is not a composite type"));
                Err(error.at(span_position(self.sql, name.span())).into())
            }
            (None, _) => Err(SqlError::new(
                "42703",
                format!("column \"{wanted}\" of relation \"{}\" does not exist", table.def.name),
            )
            .at(span_position(self.sql, name.span()))
            .into()),
        }
    }

    /// 42601 where a view that shows a column twice is given both, 0A000 where a computed one is given.
    pub fn check_once(&self, table: &Table, targets: &[u16]) -> Result<(), SqlError> {
        let Some(through) = &self.through else { return Ok(()) };
        targets.iter().try_for_each(|&column| through.check_set(column))?;
        let mut all = targets.iter().enumerate();
        let again = all.find(|(at, column)| targets[..*at].contains(column));
        again.map_or(Ok(()), |(_, &column)| Err(twice(table, column)))
    }

    pub fn insert_values(
        &mut self,
        table: &Arc<Table>,
        targets: &mut Vec<u16>,
        values: &ast::Values,
        explicit: bool,
    ) -> Bind<InsertSource> {
        let ast::Values { explicit_row, value_keyword, rows } = values;
        if *explicit_row || *value_keyword {
            return Err(SqlError::new("42601", "VALUES takes rows in parentheses").into());
        }
        let width = rows.first().map_or(0, |row| row.content.len());
        check_width(width, targets, explicit)?;
        self.check_once(table, targets)?;
        let mut list = Vec::with_capacity(rows.len());
        for row in rows {
            if row.content.len() != width {
                return Err(SqlError::new("42601", "VALUES lists must all be the same length").into());
            }
            let mut exprs = Vec::with_capacity(width);
            for (&column, ast) in targets.iter().zip(&row.content) {
                exprs.push(self.assigned(table, column, ast, &Scope::default())?);
            }
            list.push(exprs);
        }
        Ok(InsertSource::Values(list))
    }

    fn insert_query(
        &mut self,
        table: &Arc<Table>,
        targets: &mut Vec<u16>,
        query: &ast::Query,
        explicit: bool,
    ) -> Bind<InsertSource> {
        let type_of = |&column: &u16| table.def.columns.get(usize::from(column)).map_or(Type::Text, |c| c.ty);
        self.output_types = targets.iter().map(type_of).collect();
        let query = self.query(query)?;
        check_width(query.columns.len(), targets, explicit)?;
        self.check_once(table, targets)?;
        let mut given = Vec::with_capacity(targets.len());
        for (at, (&target, from)) in targets.iter().zip(query.columns.iter()).enumerate() {
            let column = &table.def.columns[usize::from(target)];
            given.push(Given { at, cast: assignment_cast(from.ty, column.ty, &column.name)? });
        }
        self.note_names(&given);
        self.leave_aside(table, targets, &mut given)?;
        Ok(InsertSource::Query(Box::new(query), given))
    }

    /// Names and labels are read and written by the catalog.
    pub fn note_names(&mut self, given: &[Given]) {
        let is_by_name = |(from, to): (Type, Type)| cast::shows_names(from) || cast::shows_names(to);
        self.uses_clock |= given.iter().filter_map(|value| value.cast).any(is_by_name);
    }

    /// Of what a query gives the targets, leaves aside what OVERRIDING USER VALUE says. An error for what may not be given.
    pub fn leave_aside(&self, table: &Table, targets: &mut Vec<u16>, given: &mut Vec<Given>) -> Bind<()> {
        let all = std::mem::take(targets).into_iter().zip(std::mem::take(given));
        for (column, value) in all {
            if !self.check_insertable(table, column)? {
                targets.push(column);
                given.push(value);
            }
        }
        Ok(())
    }

    /// A column whose value only the database makes. True: the value given is left aside for it (OVERRIDING USER VALUE).
    fn check_insertable(&self, table: &Table, column: u16) -> Bind<bool> {
        let def = &table.def.columns[usize::from(column)];
        let message = || format!("cannot insert a non-DEFAULT value into column \"{}\"", def.name);
        match def.role {
            ColumnRole::Generated => {
                let detail = format!("Column \"{}\" is a generated column.", def.name);
                Err(SqlError::new("428C9", message()).with_detail(detail).into())
            }
            _ if def.is_identity() && self.overriding == Some(Overriding::User) => Ok(true),
            ColumnRole::IdentityAlways if self.overriding != Some(Overriding::System) => {
                let detail = format!("Column \"{}\" is an identity column defined as GENERATED ALWAYS.", def.name);
                Err(SqlError::new("428C9", message())
                    .with_detail(detail)
                    .with_hint("Use OVERRIDING SYSTEM VALUE to override.")
                    .into())
            }
            _ => Ok(false),
        }
    }

    /// The value that an UPDATE gives a column.
    pub fn updated(&mut self, table: &Arc<Table>, column: u16, ast: &ast::Expr, scope: &Scope) -> Bind<Expr> {
        let def = &table.def.columns[usize::from(column)];
        let what = match def.role {
            ColumnRole::Generated => "a generated column.",
            ColumnRole::IdentityAlways => ALWAYS,
            // A view's column has no default but its own.
            _ if self.through.as_ref().is_some_and(|t| !t.own_defaults.contains(&column)) && is_default(ast) => {
                return Ok(Expr::NULL);
            }
            _ => return self.value_of(table, column, ast, scope),
        };
        if is_default(ast) && self.through.is_none() {
            return self.default(table, usize::from(column));
        }
        Err(only_default(&def.name, what).into())
    }

    /// A column of a row that an UPDATE gives several.
    fn updated_to(&mut self, table: &Table, column: u16, value: Bound) -> Bind<Expr> {
        let def = &table.def.columns[usize::from(column)];
        match def.role {
            ColumnRole::Generated => Err(only_default(&def.name, "a generated column.").into()),
            ColumnRole::IdentityAlways => Err(only_default(&def.name, ALWAYS).into()),
            _ => {
                let from = value.ty;
                self.assign(value, def.ty, &def.name, from)
            }
        }
    }

    /// The value that an INSERT gives a column.
    pub fn assigned(&mut self, table: &Arc<Table>, column: u16, ast: &ast::Expr, scope: &Scope) -> Bind<Expr> {
        if !is_default(ast) && self.check_insertable(table, column)? {
            return self.default(table, usize::from(column));
        }
        self.value_of(table, column, ast, scope)
    }

    fn value_of(&mut self, table: &Arc<Table>, column: u16, ast: &ast::Expr, scope: &Scope) -> Bind<Expr> {
        if is_default(ast) {
            return self.default(table, usize::from(column));
        }
        let def = &table.def.columns[usize::from(column)];
        if let Some(parts) = parts_of(ast) {
            return self.of_parts(def, &parts, scope);
        }
        let bound = self.bind(ast, scope)?;
        let from = bound.ty;
        self.assign(bound, def.ty, &def.name, from).map_err(|e| match e {
            Refusal::Error(e) => e.at(span_position(self.sql, ast.span())).into(),
            other => other,
        })
    }

    fn assign(
        &mut self,
        bound: Bound,
        to: freshet_engine::schema::Type,
        name: &str,
        from: Option<freshet_engine::schema::Type>,
    ) -> Bind<Expr> {
        if let Some(from) = from {
            assignment_cast(from, to, name)?;
        }
        self.coerce(bound, to, CastContext::Assignment)
    }

    /// The default that a column has where a view is changed.
    fn view_default(&self, column: usize) -> Option<String> {
        let defaults = &self.through.as_ref()?.defaults;
        defaults.iter().find(|(of, _)| usize::from(*of) == column).map(|(_, text)| text.clone())
    }

    fn default(&mut self, table: &Arc<Table>, column: usize) -> Bind<Expr> {
        let def = &table.def.columns[column];
        let of_view = self.view_default(column);
        let is_own = of_view.is_none();
        match of_view.or_else(|| def.default.clone()) {
            // A computed column's is set when the others are.
            _ if def.is_computed() => Ok(Expr::NULL),
            None => Ok(Expr::NULL),
            Some(text) => {
                let (expr, uses) = default_of(&text, def.ty, self.schema)?;
                self.uses_clock |= uses.clock;
                self.uses_sequences |= uses.sequences;
                Ok(if def.is_identity() && is_own { with_own_sequence(expr) } else { expr })
            }
        }
    }

    pub fn returning(&mut self, items: Option<&[SelectItem]>, scope: &Scope) -> Bind<Option<Returning>> {
        let Some(items) = items else {
            return Ok(None);
        };
        let items = self.items(items, scope)?;
        let table = scope.sources[0].table.as_ref().expect("invariant: a change is to a stored table");
        let columns = items.iter().map(|item| Column {
            origin: match item.expr {
                Expr::Column { column, .. } => Some((table.id.0, column + 1)),
                _ => None,
            },
            is_computed: item.is_computed,
            ..Column::new(&item.name, item.ty)
        });
        let columns = columns.collect();
        let output: Vec<Expr> = items.into_iter().map(|item| item.expr).collect();
        let long_columns = long_columns(table, output.iter());
        Ok(Some(Returning { output, columns, long_columns, queries: None }))
    }

    /// What an INSERT returns of rows that it has inserted, or updated instead, and whether that differs.
    fn returning_of_new(
        &mut self,
        items: Option<&[SelectItem]>,
        table: &Table,
        scope: &Scope,
        is_updated: bool,
    ) -> Bind<(Option<Returning>, bool)> {
        let around = self.xmax.replace(Xmax { of: table.id, is_updated, is_asked: false });
        let returning = self.returning_of_insert(items, table, scope);
        let xmax = std::mem::replace(&mut self.xmax, around);
        Ok((returning?, xmax.is_some_and(|xmax| xmax.is_asked)))
    }

    /// What an INSERT returns: its queries may be about the new row, or are asked of each because another road finds the rows.
    fn returning_of_insert(
        &mut self,
        items: Option<&[SelectItem]>,
        table: &Table,
        scope: &Scope,
    ) -> Bind<Option<Returning>> {
        let has_query = |item: &SelectItem| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => has_query(expr),
            _ => false,
        };
        let Some(asking) = items.filter(|items| items.iter().any(has_query)) else {
            return self.returning(items, scope);
        };
        let refused = |what: &str| SqlError::unsupported(format!("{what} in INSERT's RETURNING"));
        if let Some(part) = self.named_part(&asking.to_vec()) {
            return Err(refused(&format!("a subquery of \"{part}\" of WITH")).into());
        }
        // They are computed by the compiled road, whoever plans the rest.
        let (beyond, parameters) = (self.beyond.take(), self.parameters.clone());
        self.surround(scope.clone());
        let returning = self.returning(items, scope);
        let around = self.around.take().expect("it was just set");
        self.beyond = beyond;
        if around.arguments.is_empty() && self.beyond.is_none() {
            self.parameters = parameters;
            return self.returning(items, scope);
        }
        let returning = returning.map_err(|refusal| match refusal {
            Refusal::NotCompiled { what, .. } => refused(&format!("{what} like this")).into(),
            error => error,
        })?;
        if around.queries.iter().any(|asked| reads(&asked.plan.query, table.id)) {
            // It would see what the statement has inserted before.
            return Err(refused("a subquery of the target").into());
        }
        self.asks_rows = true;
        let count = around.count();
        let arguments: Vec<(u16, Expr)> =
            around.arguments.iter().map(|&(number, found)| (number, scope.expr(found))).collect();
        let queries = RowQueries { count, arguments, of_condition: Vec::new(), of_sets: around.queries };
        Ok(returning.map(|returning| {
            let asked = queries.arguments.iter().map(|(_, column)| column);
            let long_columns = long_columns(table, returning.output.iter().chain(asked));
            Returning { long_columns, queries: Some(Arc::new(queries)), ..returning }
        }))
    }

    pub fn update(&mut self, update: &ast::Update) -> Bind<Update> {
        let ast::Update {
            update_token: _,
            optimizer_hints: _,
            table,
            assignments,
            from,
            selection,
            returning,
            output,
            or,
            order_by,
            limit,
        } = update;
        if output.is_some() || or.is_some() || !order_by.is_empty() || limit.is_some() {
            return Err(SqlError::unsupported("an UPDATE clause of another dialect").into());
        }
        if from.is_some() {
            return not_compiled("UPDATE ... FROM");
        }
        let (table, scope) = self.target_table(table, "update")?;
        let sets = self.sets((&table, 0), assignments, &scope)?;
        let mut search = self.search(&table, &scope, selection.as_ref())?;
        for (_, expr) in &sets {
            add_long_columns(&table, expr, &mut search.long_columns[0]);
        }
        let returning = self.returning(returning.as_deref(), &scope)?;
        let not_null = sets.iter().map(|(column, _)| *column);
        let not_null = not_null.filter(|&c| table.def.columns[usize::from(c)].not_null).collect();
        let columns: Vec<u16> = sets.iter().map(|(column, _)| *column).collect();
        let rules = self.rules(&table, Event::Update, &columns)?;
        Ok(Update { search, sets, not_null, rules, returning })
    }

    /// SET's columns and their values; `target`: which source of the scope the table is that they are of.
    pub fn sets(
        &mut self,
        (table, target): (&Arc<Table>, u16),
        assignments: &[ast::Assignment],
        scope: &Scope,
    ) -> Bind<Vec<(u16, Expr)>> {
        let mut sets: Vec<(u16, Expr)> = Vec::with_capacity(assignments.len());
        let mut parts = Vec::new();
        for (name, value) in self.single_assignments(assignments, scope)? {
            let column = self.target(table, &name)?;
            let before = sets.iter().position(|(c, _)| *c == column);
            let value = match value {
                New::Expr(value) => value,
                New::Asked(_) if before.is_some() => return Err(twice(table, column).into()),
                New::Asked(asked) => {
                    sets.push((column, self.updated_to(table, column, asked)?));
                    continue;
                }
            };
            if let Some(part) = part_of(&value) {
                // Several parts of a column are given one after the other.
                let is_part = |at: usize| parts.contains(&sets[at].0);
                if before.is_none_or(is_part) {
                    let given = before.map(|at| sets.remove(at).1);
                    let value = self.with_part(table, (target, column), &part, given, scope)?;
                    sets.push((column, value));
                    parts.push(column);
                    continue;
                }
            }
            if before.is_some() {
                return Err(twice(table, column).into());
            }
            let value = self.updated(table, column, &value, scope)?;
            sets.push((column, value));
        }
        // DEFAULT, which it is anyway.
        sets.retain(|(column, _)| table.def.columns[usize::from(*column)].role != ColumnRole::Generated);
        Ok(sets)
    }

    pub fn delete(&mut self, delete: &ast::Delete) -> Bind<Delete> {
        let ast::Delete {
            delete_token: _,
            optimizer_hints: _,
            tables,
            from,
            using,
            selection,
            returning,
            output,
            order_by,
            limit,
        } = delete;
        if !tables.is_empty() || output.is_some() || !order_by.is_empty() || limit.is_some() {
            return Err(SqlError::unsupported("a DELETE clause of another dialect").into());
        }
        if using.is_some() {
            return not_compiled("DELETE ... USING");
        }
        let from = match from {
            FromTable::WithFromKeyword(list) | FromTable::WithoutKeyword(list) => list,
        };
        let [table] = from.as_slice() else {
            return not_compiled("DELETE from several tables");
        };
        let (table, scope) = self.target_table(table, "delete from")?;
        let search = self.search(&table, &scope, selection.as_ref())?;
        let returning = self.returning(returning.as_deref(), &scope)?;
        let rules = self.rules(&table, Event::Delete, &[])?;
        Ok(Delete { search, rules, returning })
    }

    /// The table that changes, and its row's names. `command`: as messages call it, `delete from`.
    pub fn target_table(&mut self, target: &TableWithJoins, command: &str) -> Bind<(Arc<Table>, Scope)> {
        let TableFactor::Table {
            name,
            alias,
            args: None,
            with_hints: _,
            version: None,
            with_ordinality: false,
            partitions: _,
            json_path: None,
            sample: None,
            index_hints: _,
        } = &target.relation
        else {
            return not_compiled(format!("a change of {}", target.relation));
        };
        if !target.joins.is_empty() {
            return not_compiled("a change of a join");
        }
        self.named_target(name, alias.as_ref().map(|a| fold(&a.name)), command)
    }

    fn named_target(&mut self, name: &ObjectName, alias: Option<String>, command: &str) -> Bind<(Arc<Table>, Scope)> {
        self.through = self.through(name, command)?;
        if let Some(through) = &self.through {
            let own = RelationName::of(name)?;
            let namespace = own.view(self.schema).map(|view| view.def.namespace).filter(|_| alias.is_none());
            let mut scope = through.scope(alias.unwrap_or(own.name));
            scope.sources[0].namespace = namespace;
            return Ok((through.table.clone(), scope));
        }
        let table = self.table(name)?;
        let scope = Scope::of_table(&table, alias);
        Ok((table, scope))
    }

    /// What a view that is changed through asks of the rows.
    pub fn view_conditions(&mut self) -> Bind<Vec<Expr>> {
        let asked = self.through.as_ref().map(|through| through.conditions.clone()).unwrap_or_default();
        let mut conditions = Vec::new();
        let around = std::mem::replace(&mut self.is_kept, true);
        for (condition, scope) in asked {
            conditions.extend(conjuncts(self.condition(&condition, "WHERE", &scope)?));
        }
        self.is_kept = around;
        Ok(conditions)
    }

    /// The rows that a change applies to.
    pub fn search(&mut self, table: &Arc<Table>, scope: &Scope, selection: Option<&ast::Expr>) -> Bind<Query> {
        let mut conditions = self.view_conditions()?;
        if let Some(selection) = selection {
            conditions.extend(conjuncts(self.condition(selection, "WHERE", scope)?));
        }
        let (scope, known) = (scope.clone(), self.knowledge());
        let mut from = From { scope, computed: vec![None], outer: vec![None], conditions: Vec::new(), known };
        let recheck = conditions.clone();
        let loops = plan_loops(&mut from, conditions, &[]);
        self.note_estimates(&from.known);
        let mut query = Query {
            tables: vec![Some(table.clone())],
            names: from.names(),
            long_columns: Vec::new(),
            widths: from.widths(),
            steps: loops.steps,
            precondition: loops.precondition,
            grouping: None,
            output: Vec::new(),
            columns: Arc::new([]),
            distinct: false,
            sort: Vec::new(),
            orders: Vec::new(),
            limit: None,
            offset: None,
            locks: Vec::new(),
            recheck,
        };
        query.long_columns = looked_at(&query);
        Ok(query)
    }
}

const ALWAYS: &str = "an identity column defined as GENERATED ALWAYS.";

fn only_default(column: &str, what: &str) -> SqlError {
    SqlError::new("428C9", format!("column \"{column}\" can only be updated to DEFAULT"))
        .with_detail(format!("Column \"{column}\" is {what}"))
}

fn twice(table: &Table, column: u16) -> SqlError {
    let name = &table.def.columns[usize::from(column)].name;
    SqlError::new("42601", format!("multiple assignments to same column \"{name}\""))
}

pub fn check_width(given: usize, targets: &mut Vec<u16>, explicit: bool) -> Result<(), SqlError> {
    if given > targets.len() {
        return Err(SqlError::new("42601", "INSERT has more expressions than target columns"));
    }
    if given < targets.len() {
        if explicit {
            return Err(SqlError::new("42601", "INSERT has more target columns than expressions"));
        }
        targets.truncate(given);
    }
    Ok(())
}

/// The cast that storing a value of type `from` needs; 42804 if there is none.
pub fn assignment_cast(
    from: freshet_engine::schema::Type,
    to: freshet_engine::schema::Type,
    name: &str,
) -> Result<Option<(freshet_engine::schema::Type, freshet_engine::schema::Type)>, SqlError> {
    if from == to {
        return Ok(None);
    }
    match cast::context(from, to) {
        Some(CastContext::Implicit | CastContext::Assignment) => Ok(Some((from, to))),
        _ => Err(SqlError::new(
            "42804",
            format!("column \"{name}\" is of type {} but expression is of type {}", type_name(to), type_name(from)),
        )
        .with_hint("You will need to rewrite or cast the expression.")),
    }
}

/// An identity column's default: whoever may insert need not be allowed the sequence.
fn with_own_sequence(default: Expr) -> Expr {
    default.rewrite(&mut |e| match e {
        Expr::Sequence { call: SequenceCall::Next, sequence, args } => {
            Some(Expr::Sequence { call: SequenceCall::Own, sequence: sequence.clone(), args: args.clone() })
        }
        _ => None,
    })
}

/// The keyword DEFAULT, which the grammar takes for a name.
pub fn is_default(ast: &ast::Expr) -> bool {
    matches!(ast, ast::Expr::Identifier(ident)
        if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

/// What a column is set to.
enum New {
    Expr(ast::Expr),
    /// A column of a row that a query gives.
    Asked(Bound),
}

impl Binder<'_> {
    /// Assignments of one column each: `(a, b) = (1, 2)` and `(a, b) = (SELECT x, y ...)` taken apart.
    fn single_assignments(&mut self, assignments: &[ast::Assignment], scope: &Scope) -> Bind<Vec<(ObjectName, New)>> {
        let mut single = Vec::with_capacity(assignments.len());
        for assignment in assignments {
            let names = match &assignment.target {
                AssignmentTarget::ColumnName(name) => {
                    single.push((name.clone(), New::Expr(assignment.value.clone())));
                    continue;
                }
                AssignmentTarget::Tuple(names) => names,
            };
            let values = self.several_values(&assignment.value, names.len(), scope)?;
            if values.len() != names.len() {
                return Err(other_width().into());
            }
            single.extend(names.iter().cloned().zip(values));
        }
        Ok(single)
    }

    fn several_values(&mut self, value: &ast::Expr, count: usize, scope: &Scope) -> Bind<Vec<New>> {
        let values: Vec<ast::Expr> = match value {
            ast::Expr::Tuple(values) => values.clone(),
            // VALUES in parentheses.
            ast::Expr::Nested(value) if matches!(value.as_ref(), ast::Expr::Subquery(_)) => {
                return self.several_values(value, count, scope);
            }
            ast::Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("row") => {
                match super::expr::plain_args(&function.args) {
                    Some(args) => args.into_iter().cloned().collect(),
                    None => return Err(SqlError::new("42601", "syntax error in a row's values").into()),
                }
            }
            ast::Expr::Subquery(query) => match self.asked_row(query, scope)? {
                Some(row) => return Ok(row.into_iter().map(New::Asked).collect()),
                None => columns_of_query(query, count)?,
            },
            _ => {
                let message = "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression";
                return Err(SqlError::new("0A000", message).into());
            }
        };
        Ok(values.into_iter().map(New::Expr).collect())
    }

    /// The columns of a query that is asked once for all of them. `None`: asked for each alone it gives the same, and may become a join.
    fn asked_row(&mut self, query: &ast::Query, scope: &Scope) -> Bind<Option<Vec<Bound>>> {
        let is_volatile = calls_in(query).iter().any(|name| CHANGING.contains(&name.as_str()));
        match self.beyond {
            Some(beyond) if is_volatile || !has_plain_rows(query) => beyond.row_subquery(self, query, scope).map(Some),
            Some(_) => Ok(None),
            None if self.around.is_some() => self.row_subquery(query).map(Some),
            None if is_volatile => not_compiled("a row that may be another when it is asked again"),
            None => Ok(None),
        }
    }
}

fn other_width() -> SqlError {
    SqlError::new("42601", "number of columns does not match number of values")
}

/// Whether which rows a query gives depends on nothing but what it reads: not on their order, nor on which of equal ones is left.
fn has_plain_rows(query: &ast::Query) -> bool {
    let is_plain = query.order_by.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
    is_plain
        && query.with.is_none()
        && matches!(query.body.as_ref(), SetExpr::Select(select) if select.distinct.is_none())
}

/// A query of `count` columns as one of each, which all see the same rows.
fn columns_of_query(query: &ast::Query, count: usize) -> Bind<Vec<ast::Expr>> {
    if let SetExpr::Select(select) = query.body.as_ref() {
        let given = select.projection.len();
        let is_open = has_star(select);
        if !is_open && given != count {
            return Err(other_width().into());
        }
        if !is_open && is_the_same_by_column(query, select) {
            let one = |item: &SelectItem| {
                let mut query = query.clone();
                let mut select = select.clone();
                select.projection = vec![item.clone()];
                query.body = Box::new(SetExpr::Select(select));
                ast::Expr::Subquery(Box::new(query))
            };
            return Ok(select.projection.iter().map(one).collect());
        }
    }
    let name = |at: usize| format!("\"column{at}\"");
    let names: Vec<String> = (0..count).map(name).collect();
    let one = |at: usize| {
        let text = format!("SELECT {} FROM ({query}) AS \"row\" ({})", names[at], names.join(", "));
        let query = crate::parse::parse(&text)?.query();
        let query = query.ok_or_else(|| SqlError::new("XX000", "invariant: a SELECT is a query"))?;
        Ok(ast::Expr::Subquery(query))
    };
    (0..count).map(one).collect()
}

/// Functions that give another value each time.
const CHANGING: [&str; 7] =
    ["random", "nextval", "setval", "gen_random_uuid", "uuid_generate_v4", "clock_timestamp", "timeofday"];
const FOLDING: [&str; 5] = ["count", "sum", "min", "max", "avg"];

/// Whether each output alone is what it is beside the others: nothing orders or cuts by them, and none makes one row of all where another does not.
fn is_the_same_by_column(query: &ast::Query, select: &ast::Select) -> bool {
    let calls: Vec<Vec<String>> = select.projection.iter().map(calls_in).collect();
    let folds = |calls: &Vec<String>| calls.iter().any(|name| FOLDING.contains(&name.as_str()));
    has_plain_rows(query) && (calls.iter().all(Vec::is_empty) || calls.iter().all(folds))
}

/// The names of all functions that are called.
fn calls_in(node: &impl ast::Visit) -> Vec<String> {
    let mut names = Vec::new();
    let _ = ast::visit_expressions(node, |expr| {
        if let ast::Expr::Function(function) = expr {
            names.extend(function.name.0.last().and_then(|part| part.as_ident()).map(fold));
        }
        ControlFlow::<()>::Continue(())
    });
    names
}

pub(super) fn add_long_columns(table: &Table, expr: &Expr, columns: &mut Vec<u16>) {
    expr.walk(&mut |e| {
        if let Expr::Column { column, .. } = e {
            let variable = table.layout.column_type(usize::from(*column)).is_variable();
            if variable && !columns.contains(column) {
                columns.push(*column);
            }
        }
        true
    });
}

pub(super) fn long_columns<'e>(table: &Table, exprs: impl Iterator<Item = &'e Expr>) -> Vec<u16> {
    let mut columns = Vec::new();
    for expr in exprs {
        add_long_columns(table, expr, &mut columns);
    }
    columns
}

/// A query that changes nothing.
pub fn is_select(query: &ast::Query) -> bool {
    let changes_within = || query.with.iter().flat_map(|with| &with.cte_tables).any(|cte| is_change(&cte.query));
    !is_change(query) && !changes_within()
}

/// A query whose body is INSERT, UPDATE, DELETE or MERGE, as it may stand behind and within WITH.
pub fn is_change(query: &ast::Query) -> bool {
    matches!(query.body.as_ref(), SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_))
}
