//! How does PostgreSQL write a definition? Indexes, constraints, defaults and views, as `pg_get_indexdef` and its like give them.
//!
//! Expressions are written by `deparse`; what that does not know is shown as it was given.

use super::deparse::{Deparser, Style};
use super::{Catalog, Relation, TableConstraint, names, oid};
use crate::bind::scope::Scope;
use crate::define::shown_key;
use crate::value::quoted_ident;
use freshet_engine::catalog::{
    Action, ColumnRole, Constraint, ConstraintKind, ForeignKey, Index, IndexDef, IndexKind, KeyNames, Table, TableId,
    View,
};
use std::sync::Arc;

/// Parentheses everywhere.
const PLAIN: Style = Style { pretty: false };

pub fn style(pretty: bool) -> Style {
    Style { pretty }
}

/// A column's default as `pg_attrdef` has it: which column it is of (from 1) decides what a literal in it is.
pub fn stored_default(column: u16, text: &str) -> String {
    format!("{{COLUMN {column}}} {text}")
}

fn split_default(stored: &str) -> (Option<u16>, &str) {
    let marked = stored.strip_prefix("{COLUMN ").and_then(|rest| rest.split_once("} "));
    match marked.and_then(|(column, text)| Some((column.parse().ok()?, text))) {
        Some((column, text)) => (Some(column), text),
        None => (None, stored),
    }
}

impl Catalog {
    /// An expression over a relation's columns (0: over none), which may be one of [`stored_default`].
    pub fn expression(&self, text: &str, relation: u32, style: Style) -> String {
        let table = self.schema.table_by_id(TableId(relation));
        let scope = table.map_or_else(Scope::default, |table| Scope::of_table(table, None));
        let deparser = Deparser { catalog: self, scope: &scope, qualified: false, style };
        let (column, text) = split_default(text);
        let to = column.and_then(|column| {
            let at = usize::from(column).checked_sub(1)?;
            match table {
                Some(table) => Some(table.def.columns.get(at)?.ty),
                None => self.schema.view_by_id(relation)?.def.columns.get(at)?.1,
            }
        });
        let ast = crate::parse::parse_expression(text);
        let shown = ast.as_ref().ok().and_then(|ast| deparser.shown(ast, to));
        shown.unwrap_or_else(|| self.as_given(text, ast))
    }

    fn key_expression(&self, table: &Arc<Table>, text: &str, style: Style) -> (String, bool) {
        let scope = Scope::of_table(table, None);
        let deparser = Deparser { catalog: self, scope: &scope, qualified: false, style };
        let ast = crate::parse::parse_expression(text);
        let shown = ast.as_ref().ok().and_then(|ast| deparser.shown_key(ast));
        shown.unwrap_or_else(|| (self.as_given(text, ast), false))
    }

    // ---- indexes

    /// One key of an index, without its order; within parentheses what is neither a column nor a call.
    fn index_key(&self, table: &Arc<Table>, index: &IndexDef, at: usize, style: Style) -> String {
        let column = &table.def.columns[usize::from(index.columns[at].column)];
        if column.role != ColumnRole::Hidden {
            return quoted_ident(&column.name);
        }
        let text = shown_key(column.default.as_deref().unwrap_or_default(), index.predicate.as_deref());
        let (shown, is_call) = self.key_expression(table, &text, style);
        let is_column =
            crate::parse::parse_expression(&text).is_ok_and(|ast| matches!(ast, sqlparser::ast::Expr::Identifier(_)));
        if is_call || is_column { shown } else { format!("({shown})") }
    }

    /// What a key names besides its order: a collation that its column has not, and a class.
    fn key_names(&self, table: &Table, index: &IndexDef, at: usize) -> String {
        let KeyNames { collation, class } = index.names_of(at);
        let column = &table.def.columns[usize::from(index.columns[at].column)];
        let collation = collation.filter(|named| column.collation != Some(*named));
        let collation = collation.and_then(|named| names::collation_name(named.0));
        let collation = collation.map(|name| format!(" COLLATE {}", quoted_ident(name)));
        let class = class.map(|class| format!(" {}", names::operator_class_name(class)));
        collation.unwrap_or_default() + &class.unwrap_or_default()
    }

    /// An index's keys as a message names them: a column's name, or the expression.
    pub fn index_columns(&self, table: TableId, index: &IndexDef) -> Vec<String> {
        let Some(table) = self.schema.table_by_id(table) else { return Vec::new() };
        (0..index.columns.len()).map(|at| self.index_key(table, index, at, style(true))).collect()
    }

    fn index_include(&self, table: &Table, index: &Index) -> Vec<String> {
        index.def.include.iter().map(|&at| quoted_ident(&table.def.columns[usize::from(at)].name)).collect()
    }

    /// `CREATE INDEX ...`. Prettily the table's schema is left out where it is found without.
    pub fn index_definition(&self, table: &Arc<Table>, index: &Index, pretty: bool) -> String {
        let style = style(pretty);
        let unique = if index.def.is_key() { "UNIQUE " } else { "" };
        let on = match pretty {
            true => self.relation_name(Relation::Table(table)),
            false => self.qualified_name(Relation::Table(table)),
        };
        let method = match index.def.kind {
            IndexKind::Hash => "hash",
            IndexKind::BTree => "btree",
        };
        let keys: Vec<String> = (0..index.def.columns.len())
            .map(|at| {
                let descending = index.def.columns[at].descending;
                let against = index.def.nulls_against >> at.min(31) & 1 == 1;
                let order = match (descending, against) {
                    (false, false) => "",
                    (false, true) => " NULLS FIRST",
                    (true, false) => " DESC",
                    (true, true) => " DESC NULLS LAST",
                };
                self.index_key(table, &index.def, at, style) + &self.key_names(table, &index.def, at) + order
            })
            .collect();
        let name = quoted_ident(&index.def.name);
        let mut out = format!("CREATE {unique}INDEX {name} ON {on} USING {method} ({})", keys.join(", "));
        let include = self.index_include(table, index);
        if !include.is_empty() {
            out += &format!(" INCLUDE ({})", include.join(", "));
        }
        if index.def.nulls_not_distinct {
            out += " NULLS NOT DISTINCT";
        }
        if let Some(predicate) = &index.def.predicate {
            out += &format!(" WHERE {}", self.expression(predicate, table.id.0, style));
        }
        out
    }

    /// The definition of an index, or of one of its columns (from 1). `None`: there is no such index.
    pub fn index_text(&self, oid: u32, column: i64, pretty: bool) -> Option<String> {
        let Relation::Index(table, index) = self.relation(oid)? else { return None };
        if column == 0 {
            return Some(self.index_definition(table, index, pretty));
        }
        let at = usize::try_from(column - 1).ok();
        let keys = index.def.columns.len();
        let style = style(pretty);
        Some(match at {
            Some(at) if at < keys => self.index_key(table, &index.def, at, style),
            Some(at) => self.index_include(table, index).get(at - keys).cloned().unwrap_or_default(),
            None => String::new(),
        })
    }

    // ---- constraints

    pub fn constraint_text(&self, oid: u32, pretty: bool) -> Option<String> {
        Some(match self.constraint(oid)? {
            TableConstraint::Key(table, index) => self.key_constraint(table, index),
            TableConstraint::Rule(table, constraint) => self.rule(table, constraint, pretty),
        })
    }

    fn key_constraint(&self, table: &Arc<Table>, index: &Index) -> String {
        let word = match (index.def.primary, index.def.nulls_not_distinct) {
            (true, _) => "PRIMARY KEY",
            (false, true) => "UNIQUE NULLS NOT DISTINCT",
            (false, false) => "UNIQUE",
        };
        let keys: Vec<String> =
            (0..index.def.columns.len()).map(|at| self.index_key(table, &index.def, at, PLAIN)).collect();
        let include = self.index_include(table, index);
        let mut out = format!("{word} ({})", keys.join(", "));
        if !include.is_empty() {
            out += &format!(" INCLUDE ({})", include.join(", "));
        }
        out + deferral(index.def.deferrable, index.def.deferred)
    }

    fn rule(&self, table: &Arc<Table>, constraint: &Constraint, pretty: bool) -> String {
        let mut out = match &constraint.kind {
            ConstraintKind::Check { condition, .. } => {
                format!("CHECK ({})", self.expression(condition, table.id.0, style(pretty)))
            }
            ConstraintKind::Foreign(key) => self.foreign_key(table, key),
        };
        if !constraint.validated {
            out += " NOT VALID";
        }
        out
    }

    fn foreign_key(&self, table: &Arc<Table>, key: &ForeignKey) -> String {
        let names = |table: &Table, columns: &[u16]| -> String {
            let names = columns.iter().map(|&at| quoted_ident(&table.def.columns[usize::from(at)].name));
            names.collect::<Vec<_>>().join(", ")
        };
        let parent = self.schema.table_by_id(key.parent).unwrap_or(table);
        let mut out = format!(
            "FOREIGN KEY ({}) REFERENCES {}({})",
            names(table, &key.columns),
            self.relation_name(Relation::Table(parent)),
            names(parent, &key.parent_columns)
        );
        if key.full {
            out += " MATCH FULL";
        }
        for (event, action) in [("UPDATE", key.on_update), ("DELETE", key.on_delete)] {
            let word = match action {
                Action::NoAction => continue,
                Action::Restrict => "RESTRICT",
                Action::Cascade => "CASCADE",
                Action::SetNull => "SET NULL",
                Action::SetDefault => "SET DEFAULT",
            };
            out += &format!(" ON {event} {word}");
            if event == "DELETE" && !key.delete_columns.is_empty() {
                out += &format!(" ({})", names(table, &key.delete_columns));
            }
        }
        out + deferral(key.deferrable, key.deferred)
    }

    // ---- views

    pub fn view_of(&self, oid: u32) -> Option<&Arc<View>> {
        match self.relation(oid)? {
            Relation::View(view) => Some(view),
            _ => None,
        }
    }

    /// The view's query, with a semicolon at its end.
    pub fn view_text(&self, view: &View, pretty: bool) -> String {
        super::select::view_query(self, view, style(pretty)).unwrap_or_else(|| {
            let query = &view.def.query;
            format!(" {};", self.as_given(query, crate::define::view::parsed(query)))
        })
    }

    /// The rule of a view, by the rule's number.
    pub fn rule_text(&self, rule: u32, pretty: bool) -> Option<String> {
        let view = self.schema.views().find(|view| oid::rule(view.id) == rule)?;
        let name = match pretty {
            true => self.relation_name(Relation::View(view)),
            false => self.qualified_name(Relation::View(view)),
        };
        let query = self.view_text(view, pretty);
        Some(format!("CREATE RULE \"_RETURN\" AS\n    ON SELECT TO {name} DO INSTEAD {query}"))
    }

    // ---- types

    /// A type by number, with what its modifier says; `???` for none that there is.
    pub fn type_text(&self, number: u32, modifier: Option<i32>) -> String {
        if number == 0 {
            return "-".to_owned();
        }
        let Some(name) = self.show_type(number) else { return "???".to_owned() };
        let (element, suffix) = match name.strip_suffix("[]") {
            Some(element) => (element.to_owned(), "[]"),
            None => (name, ""),
        };
        format!("{}{suffix}", with_modifier(&element, modifier))
    }
}

fn with_modifier(name: &str, modifier: Option<i32>) -> String {
    match (name, modifier) {
        // Without a length it is not what `character` means.
        ("character", Some(-1)) => "bpchar".to_owned(),
        ("bit", Some(-1)) => "\"bit\"".to_owned(),
        (_, None | Some(..=-1)) => name.to_owned(),
        ("character" | "character varying", Some(n)) if n >= 4 => format!("{name}({})", n - 4),
        ("bit" | "bit varying", Some(n)) => format!("{name}({n})"),
        ("numeric", Some(n)) if n >= 4 => {
            let packed = n - 4;
            format!("numeric({},{})", packed >> 16 & 0xffff, ((packed & 0x7ff) ^ 0x400) - 0x400)
        }
        ("interval", Some(n)) => interval_with(n),
        (name, Some(n)) => match name.split_once(' ') {
            Some((first, rest)) if first.starts_with("time") => format!("{first}({n}) {rest}"),
            _ => name.to_owned(),
        },
    }
}

/// Fields in the high half, by bits of their own; digits of the seconds in the low one.
fn interval_with(modifier: i32) -> String {
    let (fields, digits) = (modifier >> 16 & 0x7fff, modifier & 0xffff);
    let names = match fields {
        0x0004 => " year",
        0x0002 => " month",
        0x0008 => " day",
        0x0400 => " hour",
        0x0800 => " minute",
        0x1000 => " second",
        0x0006 => " year to month",
        0x0408 => " day to hour",
        0x0c08 => " day to minute",
        0x1c08 => " day to second",
        0x0c00 => " hour to minute",
        0x1c00 => " hour to second",
        0x1800 => " minute to second",
        _ => "",
    };
    if digits == 0xffff { format!("interval{names}") } else { format!("interval{names}({digits})") }
}

fn deferral(deferrable: bool, deferred: bool) -> &'static str {
    match (deferrable, deferred) {
        (false, _) => "",
        (true, false) => " DEFERRABLE",
        (true, true) => " DEFERRABLE INITIALLY DEFERRED",
    }
}
