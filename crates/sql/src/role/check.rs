//! What must a role be allowed for a statement? Looked up by the names in its syntax tree, before either road has it and before views are put
//! into it: so both roads, EXPLAIN, cursors, COPY and prepared statements are held to the same.
//!
//! | in the statement | asked for |
//! |---|---|
//! | a relation that is read | SELECT on it |
//! | the target of INSERT | INSERT; SELECT too with RETURNING or ON CONFLICT DO UPDATE, which asks for UPDATE besides |
//! | the target of UPDATE, DELETE | UPDATE, DELETE; SELECT too where any column is read |
//! | the target of COPY FROM | INSERT; SELECT too where its WHERE names a column |
//! | the target of MERGE | what its actions do, and SELECT |
//! | FOR UPDATE and its like | UPDATE too |
//! | a view | the same of its owner on what it reads, all the way down |
//!
//! USAGE of the schemas that are named is `names`' to ask for. A name that means a common table expression asks for nothing. Values of sequences are asked for where they are taken.

use super::acl::{Kind, Privileges};
use super::{Access, denied};
use crate::bind::cte::Ctes;
use crate::bind::names::RelationName;
use crate::bind::scope::fold;
use crate::error::SqlError;
use crate::parse::copy::CopyStatement;
use crate::view;
use freshet_engine::catalog::Schema;
use freshet_engine::txn::LockMode;
use sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Query, SelectItem, SetExpr, Statement,
    TableFactor, Visit, Visitor,
};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// What holds passwords, values of everybody's rows or the server's configuration: the superusers'.
const SECRET: [(&str, &str); 6] = [
    ("pg_authid", "table"),
    ("pg_statistic", "table"),
    ("pg_shadow", "view"),
    ("pg_config", "view"),
    ("pg_file_settings", "view"),
    ("pg_hba_file_rules", "view"),
];

/// Whether a relation of the system's is one of those.
pub fn is_secret(name: &str) -> bool {
    SECRET.iter().any(|(own, _)| *own == name)
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

/// Who asks for what by names: a session's role, or a view's owner.
#[derive(Clone, Copy)]
struct Asker<'a> {
    schema: &'a Arc<Schema>,
    /// `None`: everything is allowed.
    access: Option<&'a Access>,
    /// Views that were named, and what for: their owners are asked next.
    views: &'a RefCell<Vec<(u32, u16)>>,
}

impl Asker<'_> {
    /// Asks for privileges on a relation by its name; what it does not mean is the binder's to say.
    fn relation(&self, name: &RelationName, wanted: Privileges) -> Checked {
        if let Some(access) = self.access {
            check_system(access, name)?;
        }
        match find(self.schema, name) {
            Some(Found::Table(id, name)) => self.ask(Kind::Table, id, "table", name, wanted),
            Some(Found::Sequence(id, name)) => self.ask(Kind::Sequence, id, "sequence", name, wanted),
            Some(Found::View(id, name)) => {
                self.ask(Kind::Table, id, "view", name, wanted)?;
                self.views.borrow_mut().push((id, wanted.0));
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn ask(&self, kind: Kind, object: u32, what: &str, name: &str, wanted: Privileges) -> Checked {
        match self.access {
            Some(access) if !access.may(kind, object, wanted) => Err(denied(what, name)),
            _ => Ok(()),
        }
    }
}

/// What holds secrets is the superusers'.
fn check_system(access: &Access, name: &RelationName) -> Checked {
    // Whichever of the two the name means: a table of a user with the name of one of the system's is asked for as well.
    if let Some(view::Relation::View(view)) = view::find(name, &access.schema)
        && let Some((name, what)) = SECRET.iter().find(|(name, _)| *name == view.name())
    {
        return Err(denied(what, name));
    }
    Ok(())
}

/// Asks with `ask`, and then the owners of the views that it named, down to tables. Each is asked once for the same, however often it is named.
fn ask_through_views(access: &Access, ask: impl FnOnce(Asker<'_>) -> Checked) -> Checked {
    let views = RefCell::new(Vec::new());
    let schema = &access.schema;
    ask(Asker { schema, access: Some(access), views: &views })?;
    let mut asked = BTreeSet::new();
    // Given back before the owner is asked, who may name more.
    let next = || views.borrow_mut().pop();
    while let Some((id, wanted)) = next() {
        let Some(view) = schema.view_by_id(id).filter(|_| asked.insert((id, wanted))) else { continue };
        let owner = Access::of(schema, schema.owner(id));
        let query = crate::define::view::query_of(view)?;
        Walk::of(Asker { schema, access: owner.as_ref(), views: &views }).view(&query, Privileges(wanted))?;
    }
    Ok(())
}

impl Access {
    fn check_relation(&self, name: &RelationName, wanted: Privileges) -> Checked {
        ask_through_views(self, |asker| asker.relation(name, wanted))
    }

    /// A statement of the grammar's, EXPLAIN included.
    pub fn check_statement(&self, statement: &Statement) -> Checked {
        match statement {
            Statement::Explain { statement, .. } => match statement.as_ref() {
                // Of what would be made there is no more than the query.
                Statement::CreateTable(create) if let Some(query) = &create.query => {
                    ask_through_views(self, |asker| checked(query.visit(&mut Walk::of(asker))))
                }
                statement => self.check_statement(statement),
            },
            Statement::Query(_)
            | Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Merge(_) => ask_through_views(self, |asker| checked(statement.visit(&mut Walk::of(asker)))),
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
                let wanted = match copy.into_table {
                    true => with_select(Privileges::INSERT, reads_columns(copy.condition.iter().map(|c| &*c.expr))),
                    false => Privileges::SELECT,
                };
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

    /// A value is taken from a sequence or looked at.
    pub fn check_sequence(&self, id: u32, any_of: Privileges) -> Checked {
        let Some(sequence) = self.schema.sequence_by_id(id) else { return Ok(()) };
        match self.held(Kind::Sequence, id).0.has_any(any_of) {
            true => Ok(()),
            false => Err(denied("sequence", &sequence.def.name)),
        }
    }
}

struct Walk<'a> {
    asker: Asker<'a>,
    ctes: Ctes,
    /// Targets of changes, which are not read by being named.
    targets: Vec<*const TableFactor>,
}

impl<'a> Walk<'a> {
    fn of(asker: Asker<'a>) -> Walk<'a> {
        Walk { asker, ctes: Ctes::default(), targets: Vec::new() }
    }

    fn read(&self, name: &ObjectName) -> Checked {
        let name = RelationName::of(name)?;
        if self.ctes.has(&name) { Ok(()) } else { self.asker.relation(&name, Privileges::SELECT) }
    }

    fn change(&self, name: &ObjectName, wanted: Privileges) -> Checked {
        self.asker.relation(&RelationName::of(name)?, wanted)
    }

    /// A view's query. What is changed or locked through the view is so in the relations that it is from.
    fn view(&mut self, query: &Query, wanted: Privileges) -> Checked {
        if wanted != Privileges::SELECT {
            self.through_query(query, &Through { of: None, wanted, are_targets: true })?;
        }
        checked(query.visit(self))
    }

    /// Asks for what a change or a lock goes to through a query: the relations in its FROM, in joins, parentheses and subqueries.
    fn through_query(&mut self, query: &Query, through: &Through<'_>) -> Checked {
        self.ctes.enter(query);
        let done = self.through_body(&query.body, through);
        self.ctes.leave(query);
        done
    }

    fn through_body(&mut self, body: &SetExpr, through: &Through<'_>) -> Checked {
        match body {
            SetExpr::Select(select) => {
                select.from.iter().flat_map(factors).try_for_each(|factor| self.through_factor(factor, through))
            }
            SetExpr::Query(query) => self.through_query(query, through),
            _ => Ok(()),
        }
    }

    fn through_factor(&mut self, factor: &TableFactor, through: &Through<'_>) -> Checked {
        match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                let relation = RelationName::of(name)?;
                let called = alias.as_ref().map_or_else(|| relation.name.clone(), |alias| fold(&alias.name));
                if self.ctes.has_in_body(&relation) || !through.names(&called) {
                    return Ok(());
                }
                if through.are_targets {
                    self.targets.push(std::ptr::from_ref(factor));
                }
                self.asker.relation(&relation, through.wanted)
            }
            TableFactor::NestedJoin { table_with_joins, .. } => {
                factors(table_with_joins).try_for_each(|factor| self.through_factor(factor, through))
            }
            TableFactor::Derived { subquery, alias, .. } => {
                let called = alias.as_ref().map(|alias| fold(&alias.name)).unwrap_or_default();
                match through.names(&called) {
                    true => self.through_query(subquery, &Through { of: None, ..*through }),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
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

    /// Rows that are locked are those of the tables in FROM, or of those of them that are named. The query was entered.
    fn locked(&mut self, query: &Query) -> Checked {
        if query.locks.is_empty() {
            return Ok(());
        }
        let named: Vec<Vec<ast::Ident>> = query.locks.iter().map(|lock| crate::parse::locking(lock).1).collect();
        let all = named.iter().any(Vec::is_empty);
        let of: Vec<String> = named.iter().flatten().map(fold).collect();
        let of = if all { None } else { Some(of.as_slice()) };
        self.through_body(&query.body, &Through { of, wanted: Privileges::UPDATE, are_targets: false })
    }
}

/// What goes to the relations of a FROM.
struct Through<'a> {
    /// Those that are called so; `None`: all.
    of: Option<&'a [String]>,
    wanted: Privileges,
    /// They are not read by being named there.
    are_targets: bool,
}

impl Through<'_> {
    fn names(&self, called: &str) -> bool {
        self.of.is_none_or(|of| of.iter().any(|name| name == called))
    }
}

/// What a FROM item names, joined or not.
fn factors(table: &ast::TableWithJoins) -> impl Iterator<Item = &TableFactor> {
    std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation))
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
                Expr::QualifiedWildcard(..) => ControlFlow::Break(()),
                Expr::Function(function) if takes_rows(function) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }

        fn pre_visit_select(&mut self, select: &ast::Select) -> ControlFlow<()> {
            let is_row = |item: &SelectItem| matches!(item, SelectItem::QualifiedWildcard(..));
            if select.projection.iter().any(is_row) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    expressions.into_iter().any(|expr| expr.visit(&mut Finds).is_break())
}

/// Whether an argument is `t.*`: all columns, none of which is named.
fn takes_rows(function: &ast::Function) -> bool {
    let FunctionArguments::List(list) = &function.args else { return false };
    list.args.iter().any(|arg| {
        let (FunctionArg::Unnamed(arg) | FunctionArg::Named { arg, .. } | FunctionArg::ExprNamed { arg, .. }) = arg;
        matches!(arg, FunctionArgExpr::QualifiedWildcard(_))
    })
}

fn checked(walked: ControlFlow<SqlError>) -> Checked {
    match walked {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
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
        self.ctes.enter(query);
        flow(self.locked(query))
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        // `TABLE t` names its table otherwise.
        let mut named = crate::define::view::tables_of(&query.body).into_iter();
        let checked = named.try_for_each(|name| match self.ctes.has_in_body(&name) {
            true => Ok(()),
            false => self.asker.relation(&name, Privileges::SELECT),
        });
        self.ctes.leave(query);
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
