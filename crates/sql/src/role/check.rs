//! What must a role be allowed for a statement? Looked up by the names in its syntax tree, before either road has it and before views are put
//! into it: so both roads, EXPLAIN, cursors, COPY and prepared statements are held to the same.
//!
//! | in the statement | asked for |
//! |---|---|
//! | a relation that is read | SELECT on it, USAGE of a schema that is named |
//! | the target of INSERT | INSERT; SELECT too with RETURNING or ON CONFLICT DO UPDATE, which asks for UPDATE besides |
//! | the target of UPDATE, DELETE | UPDATE, DELETE; SELECT too where any column is read |
//! | the target of MERGE | what its actions do, and SELECT |
//! | FOR UPDATE and its like | UPDATE too |
//! | a view | the same of its owner on what it reads, all the way down |
//!
//! A name that means a common table expression asks for nothing; which does follows the same rule as the query: without RECURSIVE those that
//! stand before it. Values of sequences are asked for where they are taken.

use super::acl::{Kind, Privileges};
use super::{Access, denied};
use crate::bind::names::RelationName;
use crate::bind::scope::fold;
use crate::error::SqlError;
use crate::parse::copy::CopyStatement;
use crate::view;
use freshet_engine::catalog::{Schema, TableId};
use freshet_engine::txn::LockMode;
use sqlparser::ast::{self, Expr, ObjectName, Query, SetExpr, Statement, TableFactor, Visit, Visitor};
use std::ops::ControlFlow;
use std::sync::Arc;

/// What holds passwords: the superusers'.
const SECRET: [&str; 2] = ["pg_authid", "pg_shadow"];

/// Whether a relation of the system's is one of those.
pub fn is_secret(name: &str) -> bool {
    SECRET.contains(&name)
}

type Checked = Result<(), SqlError>;

/// A relation that a name means.
enum Found<'s> {
    Table(u32, &'s str),
    View(u32, &'s str),
    Sequence(u32, &'s str),
}

fn find<'s>(schema: &'s Schema, name: &RelationName) -> Option<Found<'s>> {
    if let Some(table) = name.table(schema) {
        return Some(Found::Table(table.id.0, &table.def.name));
    }
    if let Some(view) = name.view(schema) {
        return Some(Found::View(view.id, &view.def.name));
    }
    name.sequence(schema).map(|s| Found::Sequence(s.id, &s.def.name))
}

impl Access {
    /// Asks for privileges on a relation by its name; what it does not mean is the binder's to say.
    pub fn check_relation(&self, name: &RelationName, wanted: Privileges) -> Checked {
        if let Some(namespace) = &name.namespace
            && let Some(known) = self.schema.namespace(namespace)
            && !self.may_use(known.id)
        {
            return Err(denied("schema", namespace));
        }
        // Whichever of the two the name means: a table of a user with the name of one of the system's is asked for as well.
        if let Some(view::Relation::View(view)) = view::find(name, &self.schema)
            && is_secret(view.name())
        {
            return Err(denied(if view.name() == "pg_authid" { "table" } else { "view" }, view.name()));
        }
        match find(&self.schema, name) {
            Some(Found::Table(id, name)) => self.ask(Kind::Table, id, "table", name, wanted),
            Some(Found::Sequence(id, name)) => self.ask(Kind::Sequence, id, "sequence", name, wanted),
            Some(Found::View(id, name)) => {
                self.ask(Kind::Table, id, "view", name, wanted)?;
                self.check_view(id, wanted, 0)
            }
            None => Ok(()),
        }
    }

    fn ask(&self, kind: Kind, object: u32, what: &str, name: &str, wanted: Privileges) -> Checked {
        if self.may(kind, object, wanted) { Ok(()) } else { Err(denied(what, name)) }
    }

    /// Whether the owner of a view may do with what it reads what is done with the view.
    fn check_view(&self, id: u32, wanted: Privileges, depth: usize) -> Checked {
        check_view(&self.schema, id, wanted, depth)
    }

    /// A statement of the grammar's, EXPLAIN included.
    pub fn check_statement(&self, statement: &Statement) -> Checked {
        match statement {
            Statement::Explain { statement, .. } => self.check_statement(statement),
            Statement::Query(_)
            | Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Merge(_) => {
                let mut walk = Walk { access: self, levels: Vec::new(), targets: Vec::new() };
                let walked = statement.visit(&mut walk);
                if let ControlFlow::Break(error) = walked {
                    return Err(error);
                }
                Ok(())
            }
            // What defines is checked as it runs, the query of CREATE TABLE AS when its rows are inserted.
            _ => Ok(()),
        }
    }

    pub fn check_copy(&self, copy: &CopyStatement) -> Checked {
        use crate::parse::copy::{CopyPlace, CopySource};
        if let CopyPlace::File(_) = copy.place {
            let (role, way) = match copy.into_table {
                true => ("pg_read_server_files", "from"),
                false => ("pg_write_server_files", "to"),
            };
            let message = format!("must be superuser or have privileges of the {role} role to COPY {way} a file");
            return Err(SqlError::new("42501", message)
                .with_hint("Anyone can COPY to stdout or from stdin. psql's \\copy command also works for anyone."));
        }
        match &copy.source {
            CopySource::Table { name, .. } => {
                let wanted = if copy.into_table { Privileges::INSERT } else { Privileges::SELECT };
                self.check_relation(&RelationName::of(&crate::parse::parse_name(name)?)?, wanted)
            }
            // Planned by itself.
            CopySource::Query(_) => Ok(()),
        }
    }

    pub fn check_lock(&self, names: &[ObjectName], mode: LockMode) -> Checked {
        let change = Privileges::UPDATE.with(Privileges::DELETE).with(Privileges::TRUNCATE);
        for name in names {
            let name = RelationName::of(name)?;
            let Some(table) = name.table(&self.schema) else { continue };
            let (has, _) = self.held(Kind::Table, table.id.0);
            let any_of = match mode {
                LockMode::AccessShare => change.with(Privileges::SELECT),
                LockMode::RowExclusive => change.with(Privileges::INSERT),
                _ => change,
            };
            if !has.has_any(any_of) {
                return Err(denied("table", &table.def.name));
            }
        }
        Ok(())
    }

    /// A value is taken from a sequence or looked at. An identity column takes its own for whoever may insert.
    pub fn check_sequence(&self, id: u32, any_of: Privileges) -> Checked {
        let Some(sequence) = self.schema.sequence_by_id(id) else { return Ok(()) };
        let is_identity = sequence.def.owner.is_some_and(|(table, column)| is_identity(&self.schema, table, column));
        if is_identity && any_of.has(Privileges::USAGE) || self.held(Kind::Sequence, id).0.has_any(any_of) {
            return Ok(());
        }
        Err(denied("sequence", &sequence.def.name))
    }
}

fn is_identity(schema: &Schema, table: TableId, column: u16) -> bool {
    let table = schema.table_by_id(table);
    table.and_then(|table| table.def.columns.get(usize::from(column))).is_some_and(|column| column.is_identity())
}

/// Views nest as deep as they were made; a cycle is not possible.
const VIEWS_MAX: usize = 1000;

fn check_view(schema: &Arc<Schema>, id: u32, wanted: Privileges, depth: usize) -> Checked {
    let Some(view) = schema.view_by_id(id).filter(|_| depth < VIEWS_MAX) else { return Ok(()) };
    let owner = Access::of(schema, schema.owner(id));
    for &read in &view.def.reads {
        // What is changed through a view is changed in the one relation that it reads.
        if let Some(owner) = &owner {
            if let Some(table) = schema.table_by_id(TableId(read)) {
                owner.ask(Kind::Table, read, "table", &table.def.name, wanted)?;
            } else if let Some(inner) = schema.view_by_id(read) {
                owner.ask(Kind::Table, read, "view", &inner.def.name, wanted)?;
            } else if let Some(sequence) = schema.sequence_by_id(read)
                && !owner.held(Kind::Sequence, read).0.has_any(Privileges::SELECT.with(Privileges::USAGE))
            {
                return Err(denied("sequence", &sequence.def.name));
            }
        }
        check_view(schema, read, wanted, depth + 1)?;
    }
    Ok(())
}

/// The common table expressions of a query, and which of them are seen where we are. Nodes are told apart by their addresses: the visitor lends
/// them for a call only.
struct Level {
    names: Vec<String>,
    queries: Vec<*const Query>,
    is_recursive: bool,
    visible: usize,
}

impl Level {
    fn of(query: &Query) -> Level {
        let with = query.with.as_ref();
        let ctes = with.map_or(&[][..], |with| &with.cte_tables);
        Level {
            names: ctes.iter().map(|cte| fold(&cte.alias.name)).collect(),
            queries: ctes.iter().map(|cte| std::ptr::from_ref(&*cte.query)).collect(),
            is_recursive: with.is_some_and(|with| with.recursive),
            visible: 0,
        }
    }

    fn sees(&self, name: &str) -> bool {
        let visible = if self.is_recursive { self.names.len() } else { self.visible };
        self.names[..visible].iter().any(|own| own == name)
    }
}

struct Walk<'a> {
    access: &'a Access,
    levels: Vec<Level>,
    /// Targets of changes, which are not read by being named.
    targets: Vec<*const TableFactor>,
}

impl Walk<'_> {
    fn is_cte(&self, name: &RelationName) -> bool {
        name.namespace.is_none() && self.levels.iter().any(|level| level.sees(&name.name))
    }

    fn read(&self, name: &ObjectName) -> Checked {
        let name = RelationName::of(name)?;
        if self.is_cte(&name) { Ok(()) } else { self.access.check_relation(&name, Privileges::SELECT) }
    }

    fn change(&self, name: &ObjectName, wanted: Privileges) -> Checked {
        self.access.check_relation(&RelationName::of(name)?, wanted)
    }

    fn change_factor(&mut self, factor: &TableFactor, wanted: Privileges) -> Checked {
        self.targets.push(std::ptr::from_ref(factor));
        match factor {
            TableFactor::Table { name, .. } => self.change(name, wanted),
            _ => Ok(()),
        }
    }

    fn statement(&mut self, statement: &Statement) -> Checked {
        match statement {
            Statement::Insert(insert) => self.insert(insert),
            Statement::Update(update) => {
                let assigned = update.assignments.iter().map(|assignment| &assignment.value);
                let reads = update.returning.is_some() || reads_columns(assigned.chain(&update.selection));
                let wanted = with_select(Privileges::UPDATE, reads);
                self.change_factor(&update.table.relation, wanted)
            }
            Statement::Delete(delete) => {
                let (ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from)) = &delete.from;
                let reads = delete.returning.is_some() || reads_columns(&delete.selection);
                let wanted = with_select(Privileges::DELETE, reads);
                from.iter().try_for_each(|table| self.change_factor(&table.relation, wanted))
            }
            Statement::Merge(merge) => {
                let done = merge.clauses.iter().fold(Privileges::SELECT, |all, clause| {
                    all.with(match &clause.action {
                        ast::MergeAction::Insert(_) => Privileges::INSERT,
                        ast::MergeAction::Update(_) => Privileges::UPDATE,
                        ast::MergeAction::Delete { .. } => Privileges::DELETE,
                    })
                });
                self.change_factor(&merge.table, done)
            }
            _ => Ok(()),
        }
    }

    fn insert(&self, insert: &ast::Insert) -> Checked {
        let ast::TableObject::TableName(name) = &insert.table else { return Ok(()) };
        let mut wanted = with_select(Privileges::INSERT, insert.returning.is_some());
        if let Some(ast::OnInsert::OnConflict(conflict)) = &insert.on {
            wanted = match conflict.action {
                ast::OnConflictAction::DoUpdate(_) => wanted.with(Privileges::UPDATE).with(Privileges::SELECT),
                ast::OnConflictAction::DoNothing => with_select(wanted, conflict.conflict_target.is_some()),
            };
        }
        self.change(name, wanted)
    }

    /// `TABLE t`, which names its table otherwise.
    fn tables_of(&self, body: &SetExpr) -> Checked {
        match body {
            SetExpr::Table(table) => {
                let name = RelationName {
                    namespace: table.schema_name.clone(),
                    name: table.table_name.clone().unwrap_or_default(),
                };
                if self.is_cte(&name) { Ok(()) } else { self.access.check_relation(&name, Privileges::SELECT) }
            }
            SetExpr::SetOperation { left, right, .. } => {
                self.tables_of(left)?;
                self.tables_of(right)
            }
            _ => Ok(()),
        }
    }

    /// Rows that are locked are those of the tables in FROM, or of those of them that are named.
    fn locked(&self, query: &Query, own: &Level) -> Checked {
        if query.locks.is_empty() {
            return Ok(());
        }
        let SetExpr::Select(select) = query.body.as_ref() else { return Ok(()) };
        let named: Vec<Vec<ast::Ident>> = query.locks.iter().map(|lock| crate::parse::locking(lock).1).collect();
        let all = named.iter().any(Vec::is_empty);
        let of: Vec<String> = named.iter().flatten().map(fold).collect();
        let joined = |table: &ast::TableWithJoins| {
            let factors = std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation));
            factors.cloned().collect::<Vec<_>>()
        };
        for factor in select.from.iter().flat_map(joined) {
            let TableFactor::Table { name, alias, .. } = &factor else { continue };
            let relation = RelationName::of(name)?;
            let called = alias.as_ref().map_or_else(|| relation.name.clone(), |alias| fold(&alias.name));
            let is_own = relation.namespace.is_none() && own.names.contains(&relation.name);
            if !is_own && !self.is_cte(&relation) && (all || of.contains(&called)) {
                self.access.check_relation(&relation, Privileges::UPDATE)?;
            }
        }
        Ok(())
    }
}

fn with_select(wanted: Privileges, reads: bool) -> Privileges {
    if reads { wanted.with(Privileges::SELECT) } else { wanted }
}

fn reads_columns<'e>(expressions: impl IntoIterator<Item = &'e Expr>) -> bool {
    struct Finds;
    impl Visitor for Finds {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                // DEFAULT is read as a name.
                Expr::Identifier(name) if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default") => {
                    ControlFlow::Continue(())
                }
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    expressions.into_iter().any(|expr| expr.visit(&mut Finds).is_break())
}

fn flow(checked: Checked) -> ControlFlow<SqlError> {
    match checked {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

impl Visitor for Walk<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        let own = Level::of(query);
        flow(self.locked(query, &own))?;
        self.levels.push(own);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        // Its body is over, and all of its expressions are seen by it.
        let checked = self.tables_of(&query.body);
        self.levels.pop();
        if let Some(outer) = self.levels.last_mut()
            && let Some(at) = outer.queries.iter().position(|own| std::ptr::eq(*own, query))
        {
            outer.visible = at + 1;
        }
        flow(checked)
    }

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<SqlError> {
        flow(self.statement(statement))
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<SqlError> {
        match factor {
            // One with arguments is a function.
            TableFactor::Table { name, args: None, .. } if !self.targets.contains(&std::ptr::from_ref(factor)) => {
                flow(self.read(name))
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Parsed, parse};

    /// The names that a statement asks SELECT for, by a walk that is allowed nothing: what it stumbles over first.
    fn ctes_seen(sql: &str, name: &str) -> bool {
        struct Sees<'a>(Walk<'a>, &'a str, bool);
        impl Visitor for Sees<'_> {
            type Break = SqlError;
            fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
                self.0.levels.push(Level::of(query));
                ControlFlow::Continue(())
            }
            fn post_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
                self.0.post_visit_query(query)
            }
            fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<SqlError> {
                if let TableFactor::Table { name, .. } = factor
                    && let Ok(name) = RelationName::of(name)
                    && name.name == self.1
                {
                    self.2 &= self.0.is_cte(&name);
                }
                ControlFlow::Continue(())
            }
        }
        let Ok(Parsed::Sql(statement)) = parse(sql) else { panic!("{sql}") };
        let nobody = Access { role: RoleId(1), schema: Arc::default(), has: Default::default() };
        let mut sees = Sees(Walk { access: &nobody, levels: Vec::new(), targets: Vec::new() }, name, true);
        assert!(statement.visit(&mut sees).is_continue(), "{sql}");
        sees.2
    }

    use freshet_engine::catalog::RoleId;

    #[test]
    fn an_expression_does_not_hide_the_table_that_it_reads() {
        for sql in [
            "with t as (select 1) select * from t",
            "with a as (select 1), t as (select * from a) select * from (select * from t) x",
            "with recursive t as (select 1 union all select * from t) select * from t",
            "with t as (select 1) select (select count(*) from t)",
            "with t as (select 1), u as (select * from t) select * from u, t",
        ] {
            assert!(ctes_seen(sql, "t"), "{sql}");
        }
        for sql in [
            "with t as (select * from t) select * from t",
            "with u as (select * from t), t as (select 1) select * from t",
            "select * from (with t as (select 1) select * from t) x, t",
            "with t as (select 1) select * from public.t",
        ] {
            assert!(!ctes_seen(sql, "t"), "{sql}");
        }
    }
}
