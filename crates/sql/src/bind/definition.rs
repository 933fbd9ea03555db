//! What do CREATE, DROP and TRUNCATE define?
//!
//! A primary key is a B+-tree, which serves ranges and orders as well as equality. A table that is only ever asked for whole keys
//! may choose a hash index for it: `CREATE TABLE ... WITH (primary_key = hash)`.

use super::expr::default_of;
use super::scope::{fold, relation_name};
use super::types::type_of;
use super::{Bind, Binder, Refusal};
use crate::compiled::definition::Definition;
use crate::error::SqlError;
use crate::parse::span_position;
use freshet_engine::catalog::{ColumnDef, IndexDef, IndexKind, TableDef};
use freshet_engine::schema::KeyColumn;
use sqlparser::ast::helpers::stmt_create_table::CreateTableBuilder;
use sqlparser::ast::{
    self, ColumnOption, CreateTableOptions, Ident, IndexColumn, IndexOption, IndexType, KeyOrIndexDisplay,
    NullsDistinctOption, ObjectName, ObjectType, Spanned, SqlOption, TableConstraint,
};

impl Binder<'_> {
    pub fn create_table(&mut self, create: &ast::CreateTable) -> Bind<Definition> {
        refuse_other_clauses(create)?;
        let name = relation_name(&create.name)?;
        if crate::view::named(&name).is_some() {
            return Err(
                SqlError::new("42P07", format!("relation \"{name}\" already exists: it is a system view")).into()
            );
        }
        let primary_kind = primary_key_kind(&create.table_options)?;
        let mut columns: Vec<ColumnDef> = Vec::with_capacity(create.columns.len());
        let mut keys = Vec::new();
        for column in &create.columns {
            let def = self.column_def(column, &mut keys)?;
            if columns.iter().any(|c| c.name == def.name) {
                return Err(SqlError::new("42701", format!("column \"{}\" specified more than once", def.name))
                    .at(span_position(self.sql, column.name.span))
                    .into());
            }
            columns.push(def);
        }
        for constraint in &create.constraints {
            keys.push(self.table_constraint(constraint)?);
        }
        let indexes = self.key_indexes(&name, &mut columns, keys, primary_kind)?;
        Ok(Definition::CreateTable {
            table: TableDef { name, columns, ..TableDef::default() },
            indexes,
            if_not_exists: create.if_not_exists,
        })
    }

    fn column_def(&mut self, column: &ast::ColumnDef, keys: &mut Vec<Key>) -> Bind<ColumnDef> {
        let ast::ColumnDef { name, data_type, options } = column;
        let ty = type_of(data_type).map_err(|e| e.at(span_position(self.sql, name.span)))?;
        let mut def = ColumnDef { name: fold(name), ty, ..ColumnDef::default() };
        for option in options {
            match &option.option {
                ColumnOption::Null => {}
                ColumnOption::NotNull => def.not_null = true,
                ColumnOption::Default(expr) => {
                    let text = expr.to_string();
                    let (expr, _) = default_of(&text, ty, self.schema).map_err(|e| match e {
                        Refusal::Error(mut e) => {
                            e.position = None;
                            Refusal::Error(e)
                        }
                        Refusal::NotCompiled { what, .. } => {
                            SqlError::unsupported(format!("{what} in a default")).into()
                        }
                    })?;
                    if expr != crate::expr::Expr::NULL {
                        def.default = Some(text);
                    }
                }
                ColumnOption::PrimaryKey(constraint) => {
                    let columns = vec![plain_column(name)];
                    keys.push(primary_key(constraint, option.name.as_ref(), Some(columns))?);
                }
                ColumnOption::Unique(constraint) => {
                    let columns = vec![plain_column(name)];
                    keys.push(unique(constraint, option.name.as_ref(), Some(columns))?);
                }
                other => {
                    return Err(SqlError::unsupported(format!("the column option {other}")).into());
                }
            }
        }
        Ok(def)
    }

    fn table_constraint(&mut self, constraint: &TableConstraint) -> Bind<Key> {
        match constraint {
            TableConstraint::PrimaryKey(constraint) => primary_key(constraint, None, None),
            TableConstraint::Unique(constraint) => unique(constraint, None, None),
            other => Err(SqlError::unsupported(format!("the constraint {other}")).into()),
        }
    }

    fn key_indexes(
        &self,
        table: &str,
        columns: &mut [ColumnDef],
        keys: Vec<Key>,
        primary_kind: IndexKind,
    ) -> Bind<Vec<IndexDef>> {
        if keys.iter().filter(|k| k.primary).count() > 1 {
            return Err(
                SqlError::new("42P16", format!("multiple primary keys for table \"{table}\" are not allowed")).into()
            );
        }
        let mut indexes: Vec<IndexDef> = Vec::with_capacity(keys.len());
        for key in keys {
            let mut list = Vec::with_capacity(key.columns.len());
            for column in &key.columns {
                let key_column = self.key_column(column, |name| columns.iter().position(|c| c.name == name))?;
                list.push(key_column);
            }
            if key.primary {
                for column in &list {
                    columns[usize::from(column.column)].not_null = true;
                }
            }
            let parts = list.iter().map(|c| columns[usize::from(c.column)].name.as_str());
            let parts: Vec<&str> = parts.collect();
            let name = key.name.unwrap_or_else(|| {
                if key.primary {
                    format!("{table}_pkey")
                } else {
                    unused(format!("{table}_{}_key", parts.join("_")), |n| {
                        indexes.iter().any(|i| i.name == n) || self.schema.index(n).is_some()
                    })
                }
            });
            let index = IndexDef {
                name,
                kind: match key.kind {
                    Some(kind) => kind,
                    None if key.primary => primary_kind,
                    None => IndexKind::BTree,
                },
                unique: true,
                primary: key.primary,
                columns: list,
                constraint: IndexDef::CONSTRAINT,
                ..IndexDef::default()
            };
            // The primary key's index comes first.
            if index.primary {
                indexes.insert(0, index);
            } else {
                indexes.push(index);
            }
        }
        Ok(indexes)
    }

    fn key_column(&self, column: &IndexColumn, find: impl Fn(&str) -> Option<usize>) -> Bind<KeyColumn> {
        let IndexColumn { column: ast::OrderByExpr { expr, options, with_fill: None }, operator_class: None } = column
        else {
            return Err(SqlError::unsupported(format!("the index column {column}")).into());
        };
        let ast::Expr::Identifier(ident) = expr else {
            return Err(SqlError::unsupported("an index on an expression")
                .at(span_position(self.sql, expr.span()))
                .into());
        };
        let descending = options.asc == Some(false);
        if options.nulls_first.is_some_and(|first| first != descending) {
            return Err(SqlError::unsupported("NULLS FIRST or LAST against the order").into());
        }
        match find(&fold(ident)) {
            Some(at) => Ok(KeyColumn { column: at as u16, descending }),
            None => Err(SqlError::new("42703", format!("column \"{}\" named in key does not exist", fold(ident)))
                .at(span_position(self.sql, ident.span))
                .into()),
        }
    }

    pub fn create_index(&mut self, create: &ast::CreateIndex) -> Bind<Definition> {
        let ast::CreateIndex {
            name,
            table_name,
            using,
            columns,
            unique,
            concurrently,
            if_not_exists,
            include,
            nulls_distinct,
            with,
            predicate,
            index_options,
            alter_options,
        } = create;
        let refuse = |what: &str| Err(SqlError::unsupported(what).into());
        if *concurrently {
            return refuse("CREATE INDEX CONCURRENTLY");
        }
        if !include.is_empty() {
            return refuse("INCLUDE");
        }
        if *nulls_distinct == Some(false) {
            return refuse("NULLS NOT DISTINCT");
        }
        if !with.is_empty() {
            return refuse("WITH on an index");
        }
        if predicate.is_some() {
            return refuse("a partial index");
        }
        if !index_options.is_empty() || !alter_options.is_empty() {
            return refuse("an index option of another dialect");
        }
        let table = self.table(table_name)?;
        let kind = match using {
            None => IndexKind::BTree,
            Some(using) => index_kind(using)?,
        };
        let mut list = Vec::with_capacity(columns.len());
        for column in columns {
            list.push(self.key_column(column, |name| table.column(name))?);
        }
        let name = match name {
            Some(name) => relation_name(name)?,
            None => {
                let parts = list.iter().map(|c| table.def.columns[usize::from(c.column)].name.as_str());
                let parts: Vec<&str> = parts.collect();
                unused(format!("{}_{}_idx", table.def.name, parts.join("_")), |n| self.schema.index(n).is_some())
            }
        };
        Ok(Definition::CreateIndex {
            table: table.def.name.clone(),
            index: IndexDef { name, kind, unique: *unique, columns: list, ..IndexDef::default() },
            if_not_exists: *if_not_exists,
        })
    }

    #[allow(clippy::too_many_arguments, reason = "the clauses of DROP as the grammar has them")]
    pub fn drop(
        &mut self,
        object: &ObjectType,
        if_exists: bool,
        names: &[ObjectName],
        purge: bool,
        temporary: bool,
        table: Option<&ObjectName>,
    ) -> Bind<Definition> {
        if purge || temporary || table.is_some() {
            return Err(SqlError::unsupported("a DROP clause of another dialect").into());
        }
        let names = names.iter().map(relation_name).collect::<Result<_, _>>()?;
        match object {
            ObjectType::Table => Ok(Definition::DropTables { names, if_exists }),
            ObjectType::Index => Ok(Definition::DropIndexes { names, if_exists }),
            other => Err(SqlError::unsupported(format!("DROP {other}")).into()),
        }
    }

    pub fn truncate(&mut self, truncate: &ast::Truncate) -> Bind<Definition> {
        let ast::Truncate {
            table_names,
            partitions,
            table: _,
            if_exists,
            // There are no sequences to restart.
            identity: _,
            // No foreign keys to follow.
            cascade: _,
            on_cluster,
        } = truncate;
        if partitions.is_some() || *if_exists || on_cluster.is_some() {
            return Err(SqlError::unsupported("a TRUNCATE clause of another dialect").into());
        }
        let mut names = Vec::with_capacity(table_names.len());
        for target in table_names {
            names.push(self.table(&target.name)?.def.name.clone());
        }
        Ok(Definition::Truncate { names })
    }
}

/// A primary key or a UNIQUE constraint.
struct Key {
    name: Option<String>,
    primary: bool,
    kind: Option<IndexKind>,
    columns: Vec<IndexColumn>,
}

fn plain_column(name: &Ident) -> IndexColumn {
    IndexColumn::from(name.clone())
}

fn primary_key(
    constraint: &ast::PrimaryKeyConstraint,
    option_name: Option<&Ident>,
    own: Option<Vec<IndexColumn>>,
) -> Bind<Key> {
    let ast::PrimaryKeyConstraint { name, index_name, index_type, columns, index_options, characteristics } =
        constraint;
    if index_name.is_some() || characteristics.is_some() {
        return Err(SqlError::unsupported("this form of PRIMARY KEY").into());
    }
    Ok(Key {
        name: name.as_ref().or(option_name).map(fold),
        primary: true,
        kind: constraint_kind(index_type.as_ref(), index_options)?,
        columns: own.unwrap_or_else(|| columns.clone()),
    })
}

fn unique(constraint: &ast::UniqueConstraint, option_name: Option<&Ident>, own: Option<Vec<IndexColumn>>) -> Bind<Key> {
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
    if index_name.is_some()
        || characteristics.is_some()
        || *index_type_display != KeyOrIndexDisplay::None
        || *nulls_distinct == NullsDistinctOption::NotDistinct
    {
        return Err(SqlError::unsupported("this form of UNIQUE").into());
    }
    Ok(Key {
        name: name.as_ref().or(option_name).map(fold),
        primary: false,
        kind: constraint_kind(index_type.as_ref(), index_options)?,
        columns: own.unwrap_or_else(|| columns.clone()),
    })
}

fn constraint_kind(index_type: Option<&IndexType>, options: &[IndexOption]) -> Bind<Option<IndexKind>> {
    match (index_type, options) {
        (None, []) => Ok(None),
        (Some(kind), []) | (None, [IndexOption::Using(kind)]) => Ok(Some(index_kind(kind)?)),
        _ => Err(SqlError::unsupported("an index option of a constraint").into()),
    }
}

fn index_kind(using: &IndexType) -> Result<IndexKind, SqlError> {
    match using {
        IndexType::BTree => Ok(IndexKind::BTree),
        IndexType::Hash => Ok(IndexKind::Hash),
        other => Err(SqlError::unsupported(format!("the access method {other}"))),
    }
}

/// `WITH (primary_key = hash | btree)`.
fn primary_key_kind(options: &CreateTableOptions) -> Result<IndexKind, SqlError> {
    let list = match options {
        CreateTableOptions::None => return Ok(IndexKind::BTree),
        CreateTableOptions::With(list) => list,
        other => return Err(SqlError::unsupported(format!("{other}"))),
    };
    let mut kind = IndexKind::BTree;
    for option in list {
        let SqlOption::KeyValue { key, value } = option else {
            return Err(SqlError::unsupported(format!("the storage parameter {option}")));
        };
        match fold(key).as_str() {
            "primary_key" => {
                kind = match value.to_string().trim_matches('\'').to_lowercase().as_str() {
                    "hash" => IndexKind::Hash,
                    "btree" => IndexKind::BTree,
                    other => {
                        return Err(SqlError::new(
                            "22023",
                            format!("invalid value for parameter \"primary_key\": \"{other}\""),
                        )
                        .with_hint("Available values: hash, btree."));
                    }
                }
            }
            // Pages are filled: rows never move, and old versions lie elsewhere. pgbench asks for exactly that.
            "fillfactor" if value.to_string() == "100" => {}
            "fillfactor" => return Err(SqlError::unsupported("a fillfactor below 100")),
            other => {
                return Err(SqlError::new("22023", format!("unrecognized parameter \"{other}\"")));
            }
        }
    }
    Ok(kind)
}

/// Everything but what we take must be as if it had not been written.
fn refuse_other_clauses(create: &ast::CreateTable) -> Result<(), SqlError> {
    for (there, what) in [
        (create.or_replace, "OR REPLACE"),
        (create.temporary, "a temporary table"),
        (create.query.is_some(), "CREATE TABLE AS"),
        (create.like.is_some(), "LIKE"),
        (create.inherits.is_some(), "INHERITS"),
        (create.partition_by.is_some(), "PARTITION BY"),
        (create.partition_of.is_some(), "PARTITION OF"),
        (create.on_commit.is_some(), "ON COMMIT"),
    ] {
        if there {
            return Err(SqlError::unsupported(what));
        }
    }
    let plain = CreateTableBuilder::new(create.name.clone())
        .columns(create.columns.clone())
        .constraints(create.constraints.clone())
        .if_not_exists(create.if_not_exists)
        .hive_distribution(create.hive_distribution.clone())
        .hive_formats(create.hive_formats.clone())
        .table_options(create.table_options.clone())
        .build();
    if plain != *create {
        return Err(SqlError::unsupported("a CREATE TABLE clause of another dialect"));
    }
    Ok(())
}

/// The name, or the first of name1, name2, ... that is free.
fn unused(name: String, taken: impl Fn(&str) -> bool) -> String {
    if !taken(&name) {
        return name;
    }
    (1u32..).map(|n| format!("{name}{n}")).find(|n| !taken(n)).expect("some number is free")
}
