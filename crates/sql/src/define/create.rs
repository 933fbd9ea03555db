//! What do CREATE TABLE and CREATE INDEX define?
//!
//! A primary key is a B+-tree, which serves ranges and orders as well as equality. A table that is only ever asked for whole keys
//! may choose a hash index for it: `CREATE TABLE ... WITH (primary_key = hash)`.
//!
//! An index on an expression is one on a hidden column that is computed like a generated one. A partial unique index has a hidden column, too,
//! which is null where the predicate does not hold, because nulls are never equal; any other partial index has all rows.

use super::constraint::{NewConstraint, deferral};
use super::like::LikeIndexes;
use super::sequence::NewSequence;
use super::storage::Storage;
use super::{Definer, Done, on_commit_drops, unused};
use crate::bind::change::is_select;
use crate::bind::names::{RelationName, qualified, quoted};
use crate::bind::scope::{Scope, ScopeSource, fold};
use crate::bind::types::type_of;
use crate::bind::{Bind, Binder, Refusal};
use crate::catalog::Catalog;
use crate::compiled::Halt;
use crate::compiled::change::shown_index_key;
use crate::compiled::sort::sort_looking;
use crate::error::SqlError;
use crate::parse::{Parsed, Stored, keys_and_carried, like_of, span_position};
use crate::value::Datum;
use crate::value::cast::CastContext;
use freshet_engine::catalog::{
    ColumnDef, ColumnRole, IndexDef, IndexKind, KeyNames, NamespaceId, Schema, Table, TableDef, TableId,
};
use freshet_engine::schema::{KeyColumn, Row, SystemKind, Type};
use sqlparser::ast::helpers::stmt_create_table::CreateTableBuilder;
use sqlparser::ast::{
    self, ColumnOption, GeneratedAs, Ident, IndexColumn, IndexOption, IndexType, KeyOrIndexDisplay,
    NullsDistinctOption, Spanned, TableConstraint,
};
use std::cmp::Ordering;
use std::sync::Arc;

/// How many columns an index has at most, with those of INCLUDE.
const KEY_COLUMNS_MAX: usize = 32;

/// The INSERT that fills a table. Changes within WITH stand before it, where they may.
fn insert_of(target: &str, query: String) -> Result<String, SqlError> {
    match crate::parse::parse(&query)? {
        Parsed::Sql(statement) => match *statement {
            ast::Statement::Query(mut inner) if !is_select(&inner) => {
                let with = inner.with.take().map(|with| with.to_string()).unwrap_or_default();
                Ok(format!("{with} INSERT INTO {target} {inner}"))
            }
            _ => Ok(format!("INSERT INTO {target} {query}")),
        },
        _ => Ok(format!("INSERT INTO {target} {query}")),
    }
}

/// A table on its way.
pub struct NewTable {
    pub def: TableDef,
    pub indexes: Vec<IndexDef>,
    pub sequences: Vec<NewSequence>,
    pub constraints: Vec<NewConstraint>,
    pub keys: Vec<Key>,
    /// Tables whose indexes it gets too.
    pub likes: Vec<LikeIndexes>,
    pub comments: Vec<(Commented, String)>,
}

/// What of a table a comment is about.
pub enum Commented {
    /// By its number from 1.
    Column(u16),
    Index(String),
    Constraint(String),
}

impl NewTable {
    fn new(namespace: NamespaceId, name: String) -> NewTable {
        NewTable::of(TableDef { namespace, name, ..TableDef::default() })
    }

    /// A table with these columns, to which more comes.
    pub(super) fn of(def: TableDef) -> NewTable {
        NewTable {
            def,
            indexes: Vec::new(),
            sequences: Vec::new(),
            constraints: Vec::new(),
            keys: Vec::new(),
            likes: Vec::new(),
            comments: Vec::new(),
        }
    }
}

impl Definer<'_> {
    pub(super) fn create_table(&mut self, create: &ast::CreateTable) -> Done<()> {
        refuse_other_clauses(create)?;
        let written = RelationName::of(&create.name)?;
        if crate::view::named(&written.name).is_some() {
            let message = format!("relation \"{}\" already exists: it is a system view", written.name);
            return Err(SqlError::new("42P07", message).into());
        }
        let namespace = self.home(&written, create.temporary)?;
        let name = written.name;
        if self.engine.schema().has_relation_in(namespace, &name) {
            // As in PostgreSQL, which reads the query first.
            if let Some(query) = &create.query {
                super::view::columns_of(query, &self.schema())?;
            }
            if create.if_not_exists {
                self.notice("42P07", format!("relation \"{name}\" already exists, skipping"));
                return Ok(());
            }
            return Err(already_exists(&name).into());
        }
        self.check_no_enum(namespace, &name, true)?;
        let mut new = NewTable::new(namespace, name);
        if let Some(query) = &create.query {
            self.columns_of_query(query, &create.columns, &mut new)?;
        } else {
            for column in &create.columns {
                match like_of(&column.name) {
                    Some(like) => self.columns_like(column, &like, &mut new)?,
                    None => self.add_column(column, &mut new)?,
                }
            }
        }
        check_width(&new.def)?;
        for constraint in &create.constraints {
            self.add_table_constraint(constraint, &mut new)?;
        }
        let mut stored = super::storage::of_table(&create.table_options)?;
        let primary_kind = take_primary_key_kind(&mut stored)?;
        self.accept_stored(&stored, Storage::Table)?;
        self.key_indexes(&mut new, primary_kind)?;
        self.indexes_like(&mut new)?;
        self.bind_constraints(&mut new)?;
        let comments = std::mem::take(&mut new.comments);
        let id = self.make_table(new)?;
        let made = self.engine.schema().table_by_id(id).cloned();
        for (of, comment) in comments {
            let index =
                |name: String| made.iter().flat_map(|t| &t.indexes).find(|i| i.def.name == name).map(|i| i.id.0);
            let constraint =
                |name: String| made.iter().flat_map(|t| &t.def.constraints).find(|c| c.name == name).map(|c| c.id);
            let (object, column) = match of {
                Commented::Column(column) => (Some(id.0), column),
                Commented::Index(name) => (index(name), 0),
                Commented::Constraint(name) => (constraint(name), 0),
            };
            if let Some(object) = object {
                self.engine.set_comment(object, column, Some(&comment))?;
            }
        }
        if let Some(drops) = on_commit_drops(create.on_commit) {
            self.temporary.on_commit.push((id, drops));
        }
        Ok(())
    }

    /// Makes sequences, the table, and ties them together.
    fn make_table(&mut self, mut new: NewTable) -> Done<TableId> {
        let mut made = Vec::new();
        for sequence in std::mem::take(&mut new.sequences) {
            let id = self.engine.create_sequence(sequence.def.clone(), sequence.start())?;
            made.push((id, sequence));
        }
        let id = self.engine.create_table_with_id(new.def, new.indexes)?;
        for (sequence, NewSequence { mut def, column }) in made {
            def.owner = Some((id, column));
            self.engine.redefine_sequence(sequence, def, None)?;
        }
        Ok(id)
    }

    /// The columns that a query gives, and the INSERT that follows.
    fn columns_of_query(&mut self, query: &ast::Query, names: &[ast::ColumnDef], new: &mut NewTable) -> Done<()> {
        let schema = self.schema();
        let (columns, text) = super::view::columns_of(query, &schema)?;
        if names.len() > columns.len() {
            return Err(SqlError::new("42601", "too many column names were specified").into());
        }
        for (i, (name, ty)) in columns.into_iter().enumerate() {
            let name = names.get(i).map_or(name, |column| fold(&column.name));
            check_column_name(&name)?;
            if new.def.columns.iter().any(|c| c.name == name) {
                return Err(SqlError::new("42701", format!("column \"{name}\" specified more than once")).into());
            }
            new.def.columns.push(ColumnDef { name, ty: ty.unwrap_or(Type::Text), ..ColumnDef::default() });
        }
        let target = qualified(&schema, new.def.namespace, &new.def.name);
        self.defined.then = Some(insert_of(&target, text)?);
        Ok(())
    }

    pub(super) fn add_column(&mut self, column: &ast::ColumnDef, new: &mut NewTable) -> Done<()> {
        let position = span_position(self.sql, column.name.span);
        let name = fold(&column.name);
        check_column_name(&name).map_err(|e| e.at(position))?;
        if new.def.columns.iter().any(|c| c.name == name) {
            let message = format!("column \"{name}\" specified more than once");
            return Err(SqlError::new("42701", message).at(position).into());
        }
        let at = new.def.columns.len() as u16;
        let serial = super::sequence::serial_type(&column.data_type);
        let ty = match serial {
            Some(ty) => ty,
            None => stored_type(&column.data_type, &self.schema()).map_err(|e| e.at(position))?,
        };
        self.check_type(ty)?;
        new.def.columns.push(ColumnDef { name: name.clone(), ty, ..ColumnDef::default() });
        check_values(&column.options, serial.is_some()).map_err(|what| {
            SqlError::new("42601", format!("{what} for column \"{name}\" of table \"{}\"", new.def.name))
        })?;
        if serial.is_some() {
            let text = self.new_sequence(new, at, ty, &crate::parse::SequenceClauses::default())?;
            let def = &mut new.def.columns[usize::from(at)];
            (def.default, def.not_null) = (Some(text), true);
        }
        let mut null = false;
        for option in &column.options {
            let label = option.name.as_ref();
            match &option.option {
                ColumnOption::Null => null = true,
                ColumnOption::NotNull => new.def.columns[usize::from(at)].not_null = true,
                ColumnOption::Default(expr) => {
                    new.def.columns[usize::from(at)].default = self.default_text(expr, ty)?;
                }
                ColumnOption::PrimaryKey(constraint) => {
                    new.keys.push(primary_key(constraint, label, Some(vec![plain_column(&column.name)]))?);
                }
                ColumnOption::Unique(constraint) => {
                    new.keys.push(unique(constraint, label, Some(vec![plain_column(&column.name)]))?);
                }
                ColumnOption::Check(check) => new.constraints.push(NewConstraint::check(check, label)?),
                ColumnOption::ForeignKey(key) => {
                    new.constraints.push(NewConstraint::foreign(key, label, Some(&column.name))?);
                }
                ColumnOption::Generated {
                    generated_as,
                    sequence_options,
                    generation_expr,
                    generation_expr_mode,
                    ..
                } => {
                    self.generated(
                        new,
                        at,
                        generated_as,
                        sequence_options.as_deref(),
                        generation_expr.as_ref(),
                        generation_expr_mode.as_ref(),
                    )?;
                }
                ColumnOption::Collation(collation) => {
                    new.def.columns[usize::from(at)].collation = crate::bind::types::collation_of(collation, ty)?;
                }
                ColumnOption::DialectSpecific(tokens) => {
                    let text: Vec<String> = tokens.iter().map(ToString::to_string).collect();
                    return Err(SqlError::unsupported(format!("the column option {}", text.join(" "))).into());
                }
                other => return Err(SqlError::unsupported(format!("the column option {other}")).into()),
            }
        }
        if null && new.def.columns[usize::from(at)].not_null {
            let message =
                format!("conflicting NULL/NOT NULL declarations for column \"{name}\" of table \"{}\"", new.def.name);
            return Err(SqlError::new("42601", message).at(position).into());
        }
        Ok(())
    }

    fn generated(
        &mut self,
        new: &mut NewTable,
        at: u16,
        generated_as: &GeneratedAs,
        options: Option<&[ast::SequenceOptions]>,
        expr: Option<&ast::Expr>,
        mode: Option<&ast::GeneratedExpressionMode>,
    ) -> Done<()> {
        if let Some(expr) = expr {
            if mode != Some(&ast::GeneratedExpressionMode::Stored) {
                return Err(SqlError::unsupported("a generated column that is not STORED").into());
            }
            let def = &mut new.def.columns[usize::from(at)];
            (def.default, def.role) = (Some(expr.to_string()), ColumnRole::Generated);
            return Ok(());
        }
        let role = match generated_as {
            GeneratedAs::Always => ColumnRole::IdentityAlways,
            GeneratedAs::ByDefault => ColumnRole::IdentityByDefault,
            GeneratedAs::ExpStored => return Err(SqlError::new("42601", "syntax error in GENERATED").into()),
        };
        let clauses = crate::parse::clauses_of(options.unwrap_or_default())?;
        let ty = new.def.columns[usize::from(at)].ty;
        let text = self.new_sequence(new, at, ty, &clauses)?;
        let def = &mut new.def.columns[usize::from(at)];
        (def.default, def.role, def.not_null) = (Some(text), role, true);
        Ok(())
    }

    /// A default's text as it is stored: sequences by their full names. `None`: NULL.
    pub(super) fn default_text(&self, expr: &ast::Expr, ty: Type) -> Done<Option<String>> {
        let schema = self.schema();
        let full = super::view::with_full_sequence_names(expr, &schema);
        let text = self.kept(&full, Some(ty), &Scope::default())?;
        let (bound, _) = crate::bind::expr::default_of(&text, ty, &schema).map_err(|refusal| match refusal {
            Refusal::Error(e) if e.sqlstate == "42703" => {
                Halt::Error(SqlError::new("0A000", "cannot use column reference in DEFAULT expression"))
            }
            Refusal::Error(mut e) => {
                e.position = None;
                Halt::Error(e)
            }
            Refusal::NotCompiled { what, .. } if what == "a subquery" => {
                Halt::Error(SqlError::new("0A000", "cannot use subquery in DEFAULT expression"))
            }
            Refusal::NotCompiled { what, .. } => Halt::Error(SqlError::unsupported(format!("{what} in a default"))),
        })?;
        Ok((bound != crate::expr::Expr::NULL).then_some(text))
    }

    fn add_table_constraint(&mut self, constraint: &TableConstraint, new: &mut NewTable) -> Done<()> {
        match constraint {
            TableConstraint::PrimaryKey(constraint) => new.keys.push(primary_key(constraint, None, None)?),
            TableConstraint::Unique(constraint) => new.keys.push(unique(constraint, None, None)?),
            TableConstraint::Check(check) => new.constraints.push(NewConstraint::check(check, None)?),
            TableConstraint::ForeignKey(key) => new.constraints.push(NewConstraint::foreign(key, None, None)?),
            other => return Err(SqlError::unsupported(format!("the constraint {other}")).into()),
        }
        Ok(())
    }

    /// The indexes of primary and unique keys.
    fn key_indexes(&mut self, new: &mut NewTable, primary_kind: IndexKind) -> Done<()> {
        let keys = std::mem::take(&mut new.keys);
        if keys.iter().filter(|k| k.primary).count() > 1 {
            let message = format!("multiple primary keys for table \"{}\" are not allowed", new.def.name);
            return Err(SqlError::new("42P16", message).into());
        }
        for key in keys {
            let index = self.key_index(&key, &mut new.def, &new.indexes, primary_kind)?;
            let same = |i: &IndexDef| {
                let is_key = i.unique && index.unique && !i.primary && !index.primary;
                is_key && i.columns == index.columns && i.include == index.include
            };
            if key.name.is_none() && new.indexes.iter().any(same) {
                continue;
            }
            // The primary key's index comes first.
            let at = if index.primary { 0 } else { new.indexes.len() };
            new.indexes.insert(at, index);
        }
        Ok(())
    }

    pub(super) fn key_index(
        &self,
        key: &Key,
        def: &mut TableDef,
        others: &[IndexDef],
        primary_kind: IndexKind,
    ) -> Done<IndexDef> {
        let mut list: Vec<KeyColumn> = Vec::with_capacity(key.columns.len());
        for column in &key.columns {
            let key_column =
                self.key_column(column, |name| def.columns.iter().position(|c| c.is_visible() && c.name == name))?;
            if list.iter().any(|c| c.column == key_column.0.column) {
                let name = &def.columns[usize::from(key_column.0.column)].name;
                let what = if key.primary { "primary key" } else { "unique" };
                return Err(
                    SqlError::new("42701", format!("column \"{name}\" appears twice in {what} constraint")).into()
                );
            }
            list.push(key_column.0);
        }
        if key.primary {
            for column in &list {
                def.columns[usize::from(column.column)].not_null = true;
            }
        }
        let kind = key.kind.unwrap_or(if key.primary { primary_kind } else { IndexKind::BTree });
        check_keys(&list, def, kind)?;
        check_carried(&key.carried, list.len(), kind)?;
        let mut include = Vec::with_capacity(key.carried.len());
        for column in &key.carried {
            let column = IndexColumn { column: column.clone(), operator_class: None };
            let find = |name: &str| def.columns.iter().position(|c| c.is_visible() && c.name == name);
            include.push(self.key_column(&column, find)?.0.column);
        }
        let all = list.iter().map(|c| &c.column).chain(&include);
        let parts: Vec<&str> = all.map(|&c| def.columns[usize::from(c)].name.as_str()).collect();
        let schema = self.engine.schema();
        let taken = |n: &str| others.iter().any(|i| i.name == n) || schema.has_relation_in(def.namespace, n);
        let is_constraint = |n: &str| def.constraints.iter().any(|c| c.name == n);
        let unused_of = |columns: &str, label| unused(&def.name, columns, label, |n| taken(n) || is_constraint(n));
        let name = match (&key.name, key.primary) {
            (Some(name), _) if taken(name) => return Err(already_exists(name).into()),
            (Some(name), _) if is_constraint(name) => {
                let message = format!("constraint \"{name}\" for relation \"{}\" already exists", def.name);
                return Err(SqlError::new("42710", message).into());
            }
            (Some(name), _) => name.clone(),
            (None, true) => unused_of("", "pkey"),
            (None, false) => unused_of(&parts.join("_"), "key"),
        };
        Ok(IndexDef {
            name,
            kind,
            unique: !key.deferrable,
            primary: key.primary,
            columns: list,
            include,
            constraint: IndexDef::CONSTRAINT,
            deferrable: key.deferrable,
            deferred: key.deferred,
            nulls_not_distinct: key.nulls_not_distinct,
            ..IndexDef::default()
        })
    }

    /// A column of an index, and whether its nulls are asked for against the order.
    fn key_column(&self, column: &IndexColumn, find: impl Fn(&str) -> Option<usize>) -> Done<(KeyColumn, bool)> {
        let IndexColumn { column: ast::OrderByExpr { expr, options, with_fill: None }, operator_class } = column else {
            return Err(SqlError::unsupported(format!("the index column {column}")).into());
        };
        if let Some(class) = operator_class {
            return Err(SqlError::new("42601", format!("syntax error at or near \"{class}\"")).into());
        }
        let ast::Expr::Identifier(ident) = expr else {
            return Err(SqlError::unsupported("an expression here").at(span_position(self.sql, expr.span())).into());
        };
        let descending = options.asc == Some(false);
        let against = options.nulls_first.is_some_and(|first| first != descending);
        match find(&fold(ident)) {
            Some(at) => Ok((KeyColumn { column: at as u16, descending }, against)),
            None => Err(SqlError::new("42703", format!("column \"{}\" named in key does not exist", fold(ident)))
                .at(span_position(self.sql, ident.span))
                .into()),
        }
    }

    pub(super) fn create_index(&mut self, create: &ast::CreateIndex) -> Done<()> {
        let ast::CreateIndex {
            name,
            table_name,
            using,
            columns,
            unique: is_unique,
            // Nobody is blocked but writers, for as long as the index is built.
            concurrently: _,
            if_not_exists,
            // It stands among the columns.
            include: _,
            nulls_distinct,
            with,
            predicate,
            index_options,
            alter_options,
        } = create;
        let refuse = |what: &str| Err(SqlError::unsupported(what).into());
        let nulls_not_distinct = *nulls_distinct == Some(false);
        if nulls_not_distinct && *is_unique && predicate.is_some() {
            // Where the condition does not hold its keys are null.
            return refuse("NULLS NOT DISTINCT of a partial index");
        }
        if !index_options.is_empty() || !alter_options.is_empty() {
            return refuse("an index option of another dialect");
        }
        let table = self.table(table_name)?;
        self.check_owner(table.id.0)?;
        self.nothing_awaited(&table, "CREATE INDEX")?;
        let namespace = table.def.namespace;
        let given = name.as_ref().map(RelationName::of).transpose()?.map(|n| n.name);
        if let Some(name) = given.as_ref().filter(|n| self.engine.schema().has_relation_in(namespace, n)) {
            if *if_not_exists {
                self.notice("42P07", format!("relation \"{name}\" already exists, skipping"));
                return Ok(());
            }
            return Err(already_exists(name).into());
        }
        let kind = match using {
            None => IndexKind::BTree,
            Some(using) => index_kind(using)?,
        };
        self.accept_stored(&super::storage::of_index(with)?, Storage::Index(kind))?;
        let (columns, carried) = keys_and_carried(columns);
        check_carried(&carried, columns.len(), kind)?;
        let predicate = match predicate {
            None => None,
            Some(predicate) => Some(self.predicate(predicate, &table)?),
        };
        let Keys { columns: list, nulls_against, names: mut parts, named } =
            self.index_columns(&table, (&columns, kind), *is_unique, predicate.as_deref())?;
        let table = self.engine.schema().table_by_id(table.id).cloned().expect("the table that was just changed");
        check_keys(&list, &table.def, kind)?;
        let mut include = Vec::with_capacity(carried.len());
        for column in &carried {
            include.push(carried_column(column, &table)?);
            parts.push(table.def.columns[usize::from(include[include.len() - 1])].name.clone());
        }
        let schema = self.engine.schema();
        let name = given.unwrap_or_else(|| {
            unused(&table.def.name, &parts.join("_"), "idx", |n| schema.has_relation_in(namespace, n))
        });
        let index = IndexDef {
            name,
            kind,
            unique: *is_unique,
            columns: list,
            nulls_against,
            predicate,
            include,
            nulls_not_distinct,
            named,
            ..IndexDef::default()
        };
        self.build_index(&table, index).map(drop)
    }

    /// Builds an index, with PostgreSQL's words where its keys are not unique.
    pub(super) fn build_index(
        &mut self,
        table: &Arc<Table>,
        index: IndexDef,
    ) -> Done<freshet_engine::catalog::IndexId> {
        use freshet_engine::txn::{Error, Stop};
        match self.engine.create_index_on(table.id, index.clone()) {
            Err(Stop::Error(Error::UniqueViolation { index: name })) => {
                let namespace = crate::bind::names::namespace_name(self.engine.schema(), table.def.namespace);
                let error = SqlError::new("23505", format!("could not create unique index \"{name}\""));
                let mut error = error.about(&namespace, &table.def.name, None, Some(&name));
                error.detail = self.duplicate(table, &index)?;
                Err(error.into())
            }
            other => Ok(other?),
        }
    }

    /// The least key that is there twice, in PostgreSQL's words; `None`: it is not looked for among so many.
    fn duplicate(&mut self, table: &Arc<Table>, index: &IndexDef) -> Done<Option<String>> {
        const ROWS_MAX: usize = 1_000_000;
        let names = Catalog::new(self.engine.schema().clone(), None).index_columns(table.id, index);
        let columns: Vec<usize> = index.columns.iter().map(|key| usize::from(key.column)).collect();
        let mut keys: Vec<(Vec<Datum>, String)> = Vec::new();
        let clock = &self.reading_clock();
        let interrupt = &mut *self.interrupt;
        self.engine.each_row_alone(table.id, &mut |engine, table, row: &mut Row| -> Done<()> {
            interrupt.step()?;
            let has_null = columns.iter().any(|&column| row.is_null(&table.layout, column));
            if keys.len() <= ROWS_MAX && (index.nulls_not_distinct || !has_null) {
                columns.iter().for_each(|&column| engine.fetch_long(table, row, column));
                let key = columns.iter().map(|&column| row.get(&table.layout, column).into()).collect();
                keys.push((key, shown_index_key(&names, &columns, table, row, clock)));
            }
            Ok(())
        })?;
        if keys.len() > ROWS_MAX {
            return Ok(None);
        }
        let compare = |a: &[Datum], b: &[Datum]| {
            let cells = columns.iter().zip(a.iter().zip(b));
            let orders = cells.map(|(&column, (a, b))| match (a, b) {
                (Datum::Null, _) | (_, Datum::Null) => (*a == Datum::Null).cmp(&(*b == Datum::Null)),
                _ => table.layout.column_type(column).compare(&a.as_value(), &b.as_value()),
            });
            orders.fold(Ordering::Equal, Ordering::then)
        };
        let key = |at: u32| keys[at as usize].0.as_slice();
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        sort_looking(&mut order, |&a, &b| compare(key(a), key(b)), &mut || self.interrupt.look())?;
        let twice = order.windows(2).find(|pair| compare(key(pair[0]), key(pair[1])).is_eq());
        Ok(twice.map(|pair| format!("{} is duplicated.", keys[pair[0] as usize].1)))
    }

    fn predicate(&self, expr: &ast::Expr, table: &Arc<Table>) -> Done<String> {
        let text = self.kept(expr, Some(Type::Bool), &Scope::of_table(table, None))?;
        let (bound, uses_clock) = crate::bind::rules::table_expr(&text, Type::Bool, table, &self.schema())?;
        if uses_clock || !bound.is_immutable() || bound.is_stable() {
            let message = "functions in index predicate must be marked IMMUTABLE";
            return Err(SqlError::new("42P17", message).into());
        }
        Ok(text)
    }

    /// The index's columns, which may be hidden ones that are made for it.
    fn index_columns(
        &mut self,
        table: &Arc<Table>,
        (columns, kind): (&[IndexColumn], IndexKind),
        is_unique: bool,
        predicate: Option<&str>,
    ) -> Done<Keys> {
        let mut keys = Keys::default();
        let mut def = table.def.clone();
        for (i, column) in columns.iter().enumerate() {
            let (expr, collation) = without_collation(&column.column.expr);
            let plain = matches!(expr, ast::Expr::Identifier(_));
            let hides = i == 0 && is_unique && predicate.is_some();
            let ident = IndexColumn {
                column: ast::OrderByExpr { expr: expr.clone(), ..column.column.clone() },
                // Looked at below, with the column's type.
                operator_class: None,
            };
            let mut text = String::new();
            let (mut key, nulls) = match plain {
                true => self.key_column(&ident, |name| table.named_column(name))?,
                false => {
                    let options = &column.column.options;
                    let descending = options.asc == Some(false);
                    let nulls = options.nulls_first.is_some_and(|first| first != descending);
                    text = self.kept(expr, None, &Scope::of_table(table, None))?;
                    let at = self.hidden_column(&mut def, table, &text)?;
                    keys.names.push(expression_name(expr));
                    (KeyColumn { column: at, descending }, nulls)
                }
            };
            keys.named.push(key_names(&def.columns[usize::from(key.column)], collation, (column, kind))?);
            if plain {
                keys.names.push(table.def.columns[usize::from(key.column)].name.clone());
            }
            if let Some(predicate) = predicate.filter(|_| hides) {
                if plain {
                    text = quoted(&table.def.columns[usize::from(key.column)].name);
                }
                key.column =
                    self.hidden_column(&mut def, table, &format!("{}{text}{HIDING_ENDS}", hiding(predicate)))?;
            }
            keys.nulls_against |= u32::from(nulls) << i.min(31);
            keys.columns.push(key);
        }
        if keys.named.iter().all(|named| *named == KeyNames::default()) {
            keys.named.clear();
        }
        if def.columns.len() > table.def.columns.len() {
            self.rewrite(table, def)?;
        }
        Ok(keys)
    }

    /// The hidden column of this expression, made if there is none.
    fn hidden_column(&self, def: &mut TableDef, table: &Arc<Table>, text: &str) -> Done<u16> {
        let ty = index_type(text, &Scope::of_table(table, None), &self.schema(), true)?;
        let known = |c: &ColumnDef| c.role == ColumnRole::Hidden && c.ty == ty && c.default.as_deref() == Some(text);
        if let Some(at) = def.columns.iter().position(known) {
            return Ok(at as u16);
        }
        let at = def.columns.len() as u16;
        def.columns.push(ColumnDef {
            name: format!("........hidden.{}........", at + 1),
            ty,
            default: Some(text.to_owned()),
            role: ColumnRole::Hidden,
            ..ColumnDef::default()
        });
        Ok(at)
    }
}

/// 42704 for a key of a type that has neither order nor equality.
pub(super) fn check_keys(keys: &[KeyColumn], def: &TableDef, kind: IndexKind) -> Result<(), SqlError> {
    if !keys.iter().any(|key| def.columns[usize::from(key.column)].ty == Type::Json) {
        return Ok(());
    }
    let method = match kind {
        IndexKind::BTree => "btree",
        IndexKind::Hash => "hash",
    };
    let message = format!("data type json has no default operator class for access method \"{method}\"");
    let hint = "You must specify an operator class for the index or define a default operator class for the data type.";
    Err(SqlError::new("42704", message).with_hint(hint))
}

/// Whether an index of this kind can have these columns besides its keys, of which there are so many.
fn check_carried(carried: &[ast::OrderByExpr], keys: usize, kind: IndexKind) -> Result<(), SqlError> {
    if carried.is_empty() {
        return Ok(());
    }
    if kind == IndexKind::Hash {
        return Err(SqlError::new("0A000", "access method \"hash\" does not support included columns"));
    }
    match keys + carried.len() <= KEY_COLUMNS_MAX {
        true => Ok(()),
        false => Err(SqlError::new("54011", format!("cannot use more than {KEY_COLUMNS_MAX} columns in an index"))),
    }
}

/// The column that INCLUDE names in CREATE INDEX.
fn carried_column(carried: &ast::OrderByExpr, table: &Table) -> Result<u16, SqlError> {
    let ast::OrderByExpr { expr, options, .. } = carried;
    let refuse = |what: &str| Err(SqlError::new("42P17", format!("including column does not support {what}")));
    let (expr, collation) = without_collation(expr);
    let ast::Expr::Identifier(ident) = expr else {
        return Err(SqlError::new("0A000", "expressions are not supported in included columns"));
    };
    let Some(at) = table.named_column(&fold(ident)) else {
        return Err(SqlError::new("42703", format!("column \"{}\" does not exist", fold(ident))));
    };
    match (collation, options.asc, options.nulls_first) {
        (Some(_), ..) => refuse("a collation"),
        (None, Some(_), _) => refuse("ASC/DESC options"),
        (None, None, Some(_)) => refuse("NULLS FIRST/LAST options"),
        (None, None, None) => Ok(at as u16),
    }
}

/// The type of what an index is to be over; 42P17 for what is not the same each time.
pub(super) fn index_type(text: &str, scope: &Scope, schema: &Arc<Schema>, is_new: bool) -> Done<Type> {
    let ast = crate::parse::parse_expression(text)?;
    let mut binder = Binder::new(text, schema, &[]);
    let bound = binder.bind(&ast, scope)?;
    let ty = bound.ty.unwrap_or(Type::Text);
    let expr = binder.coerce(bound, ty, CastContext::Implicit)?;
    // Earlier releases took what depends on the session: such indexes stay.
    if binder.uses_clock || !expr.is_immutable() || is_new && expr.is_stable() {
        return Err(SqlError::new("42P17", "functions in index expression must be marked IMMUTABLE").into());
    }
    Ok(ty)
}

/// 42P17 for the predicate of an index that is there, if it is not the same each time over the columns' new types.
pub(super) fn check_predicate(text: &str, def: &TableDef, schema: &Arc<Schema>) -> Done<()> {
    let (bound, _, is_mutable) = bind_over(text, Type::Bool, def, schema)?;
    match is_mutable || bound.is_stable() {
        true => Err(SqlError::new("42P17", "functions in index predicate must be marked IMMUTABLE").into()),
        false => Ok(()),
    }
}

/// What a partial unique index's first column is computed by.
pub(super) fn hiding(predicate: &str) -> String {
    format!("CASE WHEN ({predicate}) THEN ")
}

pub(super) const HIDING_ENDS: &str = " END";

/// A hidden column's expression as it was written in its index.
pub fn shown_key(text: &str, predicate: Option<&str>) -> String {
    let hidden = predicate.and_then(|p| text.strip_prefix(hiding(p).as_str())?.strip_suffix(HIDING_ENDS));
    hidden.unwrap_or(text).to_owned()
}

/// What the keys of an index are.
#[derive(Default)]
struct Keys {
    columns: Vec<KeyColumn>,
    /// A bit for each whose nulls are against the order.
    nulls_against: u32,
    /// What the index is called after.
    names: Vec<String>,
    named: Vec<KeyNames>,
}

/// A key's expression and the collation that it is given, the outermost.
fn without_collation(expr: &ast::Expr) -> (&ast::Expr, Option<&ast::ObjectName>) {
    match expr {
        ast::Expr::Nested(inner) => without_collation(inner),
        ast::Expr::Collate { expr, collation } => (without_collation(expr).0, Some(collation)),
        other => (other, None),
    }
}

/// What the key over the column names; its collation, if it is not the column's.
fn key_names(
    over: &ColumnDef,
    collation: Option<&ast::ObjectName>,
    (key, kind): (&IndexColumn, IndexKind),
) -> Result<KeyNames, SqlError> {
    let collation = match collation {
        None => None,
        Some(collation) => {
            let named = crate::bind::types::collation_of(collation, over.ty)?;
            let own = crate::bind::types::own_collation(over.ty);
            named.or(own).filter(|named| over.collation.or(own) != Some(*named))
        }
    };
    let class = key.operator_class.as_ref().map(|class| super::opclass::class(class, kind, over.ty)).transpose()?;
    Ok(KeyNames { collation, class: class.flatten() })
}

pub(super) fn expression_name(expr: &ast::Expr) -> String {
    match expr {
        ast::Expr::Function(function) => function.name.to_string().to_lowercase(),
        _ => "expr".to_owned(),
    }
}

/// The type of a column that is declared. Those of the system's relations alone are kept as the text that was given, and are no types to a table.
pub(super) fn stored_type(declared: &ast::DataType, schema: &Schema) -> Result<Type, SqlError> {
    let ty = type_of(declared, schema)?;
    let element = if let Type::Array(element) = ty { *element } else { ty };
    match element {
        Type::System(kind) if kind != SystemKind::Record => {
            Err(SqlError::unsupported(format!("a column of type {}", crate::value::pgtype::name(ty))))
        }
        _ => Ok(ty),
    }
}

/// The scope of a table that is not there yet.
pub fn scope_of(def: &TableDef) -> Scope {
    Scope { sources: vec![ScopeSource::of_def(def.name.clone(), def)], ..Scope::default() }
}

/// An expression over such a table, with the columns that it names.
pub fn bind_over(
    text: &str,
    ty: Type,
    def: &TableDef,
    schema: &Arc<Schema>,
) -> Bind<(crate::expr::Expr, Vec<u16>, bool)> {
    let ast = crate::parse::parse_expression(text)?;
    let mut binder = Binder::new(text, schema, &[]);
    let bound = binder.bind(&ast, &scope_of(def))?;
    let expr = binder.coerce(bound, ty, CastContext::Assignment)?;
    let mut columns = Vec::new();
    expr.walk(&mut |e| {
        if let crate::expr::Expr::Cell { column, .. } = e
            && !columns.contains(column)
        {
            columns.push(*column);
        }
        true
    });
    let is_mutable = binder.uses_clock || !expr.is_immutable();
    Ok((expr, columns, is_mutable))
}

/// A primary key or a UNIQUE constraint.
pub struct Key {
    pub name: Option<String>,
    pub primary: bool,
    pub kind: Option<IndexKind>,
    pub columns: Vec<IndexColumn>,
    /// INCLUDE.
    pub carried: Vec<ast::OrderByExpr>,
    pub deferrable: bool,
    pub deferred: bool,
    pub nulls_not_distinct: bool,
}

fn plain_column(name: &Ident) -> IndexColumn {
    IndexColumn::from(name.clone())
}

pub fn primary_key(
    constraint: &ast::PrimaryKeyConstraint,
    option_name: Option<&Ident>,
    own: Option<Vec<IndexColumn>>,
) -> Result<Key, SqlError> {
    let ast::PrimaryKeyConstraint { name, index_name, index_type, columns, index_options, characteristics } =
        constraint;
    let (deferrable, deferred) = deferral(characteristics.as_ref())?;
    if index_name.is_some() {
        return Err(SqlError::unsupported("this form of PRIMARY KEY"));
    }
    let (columns, carried) = keys_and_carried(columns);
    Ok(Key {
        name: name.as_ref().or(option_name).map(fold),
        primary: true,
        kind: constraint_kind(index_type.as_ref(), index_options)?,
        columns: own.unwrap_or(columns),
        carried,
        deferrable,
        deferred,
        nulls_not_distinct: false,
    })
}

pub fn unique(
    constraint: &ast::UniqueConstraint,
    option_name: Option<&Ident>,
    own: Option<Vec<IndexColumn>>,
) -> Result<Key, SqlError> {
    let ast::UniqueConstraint {
        name,
        index_name,
        index_type_display,
        index_type,
        columns,
        index_options,
        characteristics,
        nulls_distinct,
    } = constraint;
    let (deferrable, deferred) = deferral(characteristics.as_ref())?;
    if index_name.is_some() || *index_type_display != KeyOrIndexDisplay::None {
        return Err(SqlError::unsupported("this form of UNIQUE"));
    }
    let (columns, carried) = keys_and_carried(columns);
    Ok(Key {
        name: name.as_ref().or(option_name).map(fold),
        primary: false,
        kind: constraint_kind(index_type.as_ref(), index_options)?,
        columns: own.unwrap_or(columns),
        carried,
        deferrable,
        deferred,
        nulls_not_distinct: *nulls_distinct == NullsDistinctOption::NotDistinct,
    })
}

fn constraint_kind(index_type: Option<&IndexType>, options: &[IndexOption]) -> Result<Option<IndexKind>, SqlError> {
    match (index_type, options) {
        (None, []) => Ok(None),
        (Some(kind), []) | (None, [IndexOption::Using(kind)]) => Ok(Some(index_kind(kind)?)),
        _ => Err(SqlError::unsupported("an index option of a constraint")),
    }
}

fn index_kind(using: &IndexType) -> Result<IndexKind, SqlError> {
    match using {
        IndexType::BTree => Ok(IndexKind::BTree),
        IndexType::Hash => Ok(IndexKind::Hash),
        other => Err(SqlError::unsupported(format!("the access method {other}"))),
    }
}

/// Takes `primary_key = hash | btree` out of a table's options.
fn take_primary_key_kind(options: &mut Vec<Stored>) -> Result<IndexKind, SqlError> {
    let is_it = |stored: &Stored| matches!(stored, Stored::Option(option) if option.namespace.is_none() && option.name == "primary_key");
    let Some(at) = options.iter().position(is_it) else { return Ok(IndexKind::BTree) };
    let Stored::Option(option) = options.remove(at) else { return Ok(IndexKind::BTree) };
    match option.value_or_true().to_lowercase().as_str() {
        "hash" => Ok(IndexKind::Hash),
        "btree" => Ok(IndexKind::BTree),
        other => {
            let message = format!("invalid value for parameter \"primary_key\": \"{other}\"");
            Err(SqlError::new("22023", message).with_hint("Available values: hash, btree."))
        }
    }
}

/// As many columns as PostgreSQL's tables have, those that were dropped counted with them.
pub fn check_width(def: &TableDef) -> Result<(), SqlError> {
    const COLUMNS_MAX: usize = 1600;
    match def.columns.iter().filter(|c| c.role != ColumnRole::Hidden).count() > COLUMNS_MAX {
        true => Err(SqlError::new("54011", format!("tables can have at most {COLUMNS_MAX} columns"))),
        false => Ok(()),
    }
}

/// What each table has besides in PostgreSQL is no name for a column of one's own.
pub fn check_column_name(name: &str) -> Result<(), SqlError> {
    match name {
        "tableoid" | "ctid" | "xmin" | "cmin" | "xmax" | "cmax" => {
            Err(SqlError::new("42701", format!("column name \"{name}\" conflicts with a system column name")))
        }
        _ => Ok(()),
    }
}

/// A column's values come from one of a default, which a serial has, a sequence of its own and an expression.
fn check_values(options: &[ast::ColumnOptionDef], is_serial: bool) -> Result<(), &'static str> {
    let count = |of: fn(&ColumnOption) -> bool| options.iter().filter(|option| of(&option.option)).count();
    let defaults = usize::from(is_serial) + count(|option| matches!(option, ColumnOption::Default(_)));
    let identities = count(|option| matches!(option, ColumnOption::Generated { generation_expr: None, .. }));
    let expressions = count(|option| matches!(option, ColumnOption::Generated { generation_expr: Some(_), .. }));
    match (defaults, identities, expressions) {
        (2.., _, _) => Err("multiple default values specified"),
        (_, 2.., _) => Err("multiple identity specifications"),
        (_, _, 2..) => Err("multiple generation clauses specified"),
        (1, 1, _) => Err("both default and identity specified"),
        (1, _, 1) => Err("both default and generation expression specified"),
        (_, 1, 1) => Err("both identity and generation expression specified"),
        _ => Ok(()),
    }
}

pub fn already_exists(name: &str) -> SqlError {
    SqlError::new("42P07", format!("relation \"{name}\" already exists"))
}

/// Everything but what we take must be as if it had not been written.
fn refuse_other_clauses(create: &ast::CreateTable) -> Result<(), SqlError> {
    for (there, what) in [
        (create.or_replace, "OR REPLACE"),
        (create.inherits.is_some(), "INHERITS"),
        (create.partition_by.is_some(), "PARTITION BY"),
        (create.partition_of.is_some(), "PARTITION OF"),
    ] {
        if there {
            return Err(SqlError::unsupported(what));
        }
    }
    if create.on_commit.is_some() && !create.temporary {
        return Err(SqlError::new("42P16", "ON COMMIT can only be used on temporary tables"));
    }
    let plain = CreateTableBuilder::new(create.name.clone())
        .columns(create.columns.clone())
        .constraints(create.constraints.clone())
        .if_not_exists(create.if_not_exists)
        .temporary(create.temporary)
        .query(create.query.clone())
        .like(create.like.clone())
        .on_commit(create.on_commit)
        .hive_distribution(create.hive_distribution.clone())
        .hive_formats(create.hive_formats.clone())
        .table_options(create.table_options.clone())
        .build();
    if plain != *create {
        return Err(SqlError::unsupported("a CREATE TABLE clause of another dialect"));
    }
    Ok(())
}

/// A constraint's name that PostgreSQL would choose.
pub fn constraint_name(def: &TableDef, column: &str, label: &str, taken: impl Fn(&str) -> bool) -> String {
    let known = |n: &str| def.constraints.iter().any(|c| c.name == n) || taken(n);
    unused(&def.name, column, label, known)
}
