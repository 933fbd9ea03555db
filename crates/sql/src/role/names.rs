//! Which schemas does a statement name? All must be usable, before anything says what is in them.
//!
//! Asked for what the user wrote only: a view, a default or a stored plan names relations that were found when they were made.

use super::{Access, denied};
use crate::bind::names::RelationName;
use crate::bind::sequence::literal_name;
use crate::define::Definition;
use crate::define::view::tables_of;
use crate::error::SqlError;
use crate::parse::Parsed;
use crate::parse::copy::CopySource;
use sqlparser::ast::{self, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Visit, Visitor};
use std::ops::ControlFlow;

/// Functions whose first argument is the text of a relation's name, which is looked up when the statement is planned.
const OF_A_NAME: [&str; 4] = ["nextval", "currval", "setval", "pg_get_serial_sequence"];

impl Access {
    /// 42501 where the name says a schema that may not be used. One that is not there is the binder's to refuse.
    pub fn check_usable(&self, name: &RelationName) -> Result<(), SqlError> {
        match &name.namespace {
            Some(namespace) => self.check_schema(namespace),
            None => Ok(()),
        }
    }

    pub fn check_schema(&self, namespace: &str) -> Result<(), SqlError> {
        match self.schema.namespace(namespace) {
            Some(known) if !self.may_use(known.id) => Err(denied("schema", namespace)),
            _ => Ok(()),
        }
    }

    /// The names in a statement, but those of definitions, which are asked for as they run.
    pub fn check_names(&self, parsed: &Parsed) -> Result<(), SqlError> {
        let check = |name: &ObjectName| self.check_usable(&RelationName::of(name)?);
        match parsed {
            Parsed::Sql(statement) if !Definition::takes(statement) => self.check_names_in(statement.as_ref()),
            Parsed::Analyze { tables, .. } => tables.iter().map(|analyzed| &analyzed.table).try_for_each(check),
            Parsed::LockTable { names, .. } => names.iter().try_for_each(check),
            Parsed::Copy(copy) => match &copy.source {
                CopySource::Table { name, .. } => {
                    self.check_usable(&RelationName::of(&crate::parse::parse_name(name)?)?)
                }
                // Planned by itself.
                CopySource::Query(_) => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// The names in a part of a statement.
    pub fn check_names_in(&self, part: &impl Visit) -> Result<(), SqlError> {
        match part.visit(&mut Names(self)) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }
}

struct Names<'a>(&'a Access);

impl Names<'_> {
    fn name(&self, name: &RelationName) -> ControlFlow<SqlError> {
        match self.0.check_usable(name) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

impl Visitor for Names<'_> {
    type Break = SqlError;

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<SqlError> {
        match RelationName::of(relation) {
            Ok(name) => self.name(&name),
            Err(_) => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<SqlError> {
        // `TABLE t` names its table otherwise.
        tables_of(&query.body).iter().try_for_each(|name| self.name(name))
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        match text_name(expr).map(RelationName::of_text) {
            Some(Ok(name)) => self.name(&name),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// The text that an expression takes for a relation's name.
fn text_name(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Cast { expr, data_type: ast::DataType::Regclass, .. } => literal_name(expr),
        Expr::Function(function) => {
            let name = function.name.0.last()?.as_ident()?.value.to_lowercase();
            let FunctionArguments::List(list) = &function.args else { return None };
            match list.args.first() {
                Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))) if OF_A_NAME.contains(&name.as_str()) => {
                    literal_name(arg)
                }
                _ => None,
            }
        }
        _ => None,
    }
}
