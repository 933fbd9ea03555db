//! What does a view stand for? Its query, in place of its name.
//!
//! 1. A view's text names relations with their schemas, and the columns that `*` meant when it was created: it means the same whatever the search
//!    path, and whatever columns come later.
//! 2. A statement that names views is rewritten before it is bound, so both roads see tables only.

use super::kept::note_objects;
use super::{Definer, Done};
use crate::bind::cte::Ctes;
use crate::bind::names::{
    RelationName, alias_of_view, is_temporary, name_of_view, namespace_name, namespace_named, qualified,
};
use crate::bind::query::has_group_by;
use crate::bind::record::RECORD;
use crate::bind::scope::fold;
use crate::error::SqlError;
use crate::parse::printed::literal;
use crate::parse::{Parsed, StorageOption, parse, parse_expression};
use crate::route::Routed;
use crate::value::pgtype::name as type_name;
use freshet_engine::catalog::{CheckOption, NamespaceId, Schema, TableId, View, ViewDef};
use freshet_engine::schema::{SystemKind, Type};
use sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, JoinConstraint, ObjectName, ObjectNamePart,
    Query, SelectItem, SetExpr, Statement, TableAlias, TableFactor, Value, Visit, VisitMut, Visitor, VisitorMut,
};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

impl Definer<'_> {
    pub(super) fn create_view(&mut self, create: &ast::CreateView) -> Done<()> {
        if create.materialized || create.secure || create.or_alter || create.to.is_some() {
            return Err(SqlError::unsupported("this kind of view").into());
        }
        if crate::parse::has_into(&create.query) {
            return Err(SqlError::new("0A000", "views must not contain SELECT INTO").into());
        }
        if !crate::bind::change::is_select(&create.query) {
            let message = "views must not contain data-modifying statements in WITH";
            return Err(SqlError::new("0A000", message).into());
        }
        self.check_names_in(&create.query)?;
        let written = RelationName::of(&create.name)?;
        let schema = self.schema();
        let (routed, text) = routed(&create.query, &schema)?;
        let mut columns = shown_columns(&routed);
        let text = self.kept_query(text, &routed.session_literals)?;
        if crate::parse::has_walk(&text) {
            return Err(SqlError::unsupported("SEARCH or CYCLE in a view").into());
        }
        if create.columns.len() > columns.len() {
            return Err(SqlError::new("42601", "CREATE VIEW specifies more column names than columns").into());
        }
        for (column, given) in columns.iter_mut().zip(&create.columns) {
            column.0 = fold(&given.name);
        }
        let mut names = HashSet::new();
        if let Some((name, _)) = columns.iter().find(|(name, _)| !names.insert(name.clone())) {
            return Err(SqlError::new("42701", format!("column \"{name}\" specified more than once")).into());
        }
        let mut reads = reads_of(&create.query, &schema);
        let temporary = create.temporary || self.becomes_temporary(&written, &reads);
        note_objects(&routed.session_literals, &self.reading_clock(), &mut reads);
        let check = check_option(&create.options)?;
        if check.is_some() {
            crate::bind::through::check_changeable(&create.query)?;
        }
        let namespace = self.home(&written, temporary)?;
        // A temporary one's own schema may have come with it.
        let schema = self.schema();
        let def =
            ViewDef { namespace, name: written.name.clone(), columns, query: text, reads, check, defaults: Vec::new() };
        if let Some(old) = schema.view_in(namespace, &written.name).filter(|_| create.or_replace) {
            self.check_owner(old.id)?;
            check_replacement(old, &def, &schema)?;
            let before: Vec<String> = old.def.columns.iter().map(|(name, _)| name.clone()).collect();
            for (new, _) in &def.columns[before.len()..] {
                self.keep_meaning(old.id, (namespace, &written.name), &before, new)?;
            }
            if def.reads.contains(&old.id) {
                let message = format!("infinite recursion detected in rules for relation \"{}\"", def.name);
                return Err(SqlError::new("42P17", message).into());
            }
            let defaults = old.def.defaults.clone();
            return Ok(self.engine.redefine_view(old.id, ViewDef { defaults, ..def })?);
        }
        if schema.has_relation_in(namespace, &written.name) {
            let is_view = schema.view_in(namespace, &written.name).is_some();
            let error = match create.or_replace && !is_view {
                true => SqlError::new("42809", format!("\"{}\" is not a view", written.name)),
                false => super::create::already_exists(&written.name),
            };
            return Err(error.into());
        }
        self.check_no_enum(namespace, &def.name, true)?;
        self.engine.create_view(def)?;
        Ok(())
    }
}

impl Definer<'_> {
    /// Whether a view reads what is temporary, which its author is told.
    fn becomes_temporary(&mut self, name: &RelationName, reads: &[u32]) -> bool {
        let schema = self.schema();
        let namespace_of = |&id: &u32| {
            let table = schema.table_by_id(TableId(id)).map(|table| table.def.namespace);
            table.or_else(|| schema.view_by_id(id).map(|view| view.def.namespace))
        };
        let is_so = reads.iter().filter_map(namespace_of).any(|namespace| is_temporary(&schema, namespace));
        if is_so {
            self.notice("00000", format!("view \"{}\" will be a temporary view", name.name));
        }
        is_so
    }
}

/// What WITH says of a view. What it reads is asked of its owner: one that asks for more security than it would get is refused.
fn check_option(options: &ast::CreateTableOptions) -> Result<Option<CheckOption>, SqlError> {
    let options = match options {
        ast::CreateTableOptions::None => return Ok(None),
        ast::CreateTableOptions::With(options) => options,
        other => return Err(SqlError::unsupported(other)),
    };
    let mut check = None;
    for option in options {
        let (name, value) = match option {
            ast::SqlOption::KeyValue { key, value } => (fold(key), value_text(value)),
            ast::SqlOption::Ident(key) => (fold(key), "true".to_owned()),
            other => return Err(SqlError::unsupported(other)),
        };
        match (name.as_str(), value.as_str()) {
            ("check_option", "local") => check = Some(CheckOption::Local),
            ("check_option", "cascaded") => check = Some(CheckOption::Cascaded),
            ("check_option", _) => {
                let message = format!("invalid value for enum option \"check_option\": {value}");
                return Err(SqlError::new("22023", message).with_detail("Valid values are \"local\" and \"cascaded\"."));
            }
            ("security_barrier" | "security_invoker", "false" | "off" | "0" | "no") => {}
            ("security_barrier" | "security_invoker", "true" | "on" | "1" | "yes") => {
                return Err(SqlError::unsupported(format!("a view with {name}")));
            }
            ("security_barrier" | "security_invoker", _) => {
                let message = format!("invalid value for boolean option \"{name}\": {value}");
                return Err(SqlError::new("22023", message));
            }
            _ => return Err(SqlError::new("22023", format!("unrecognized parameter \"{name}\""))),
        }
    }
    Ok(check)
}

/// The check option of a view, some of whose options are set or reset.
pub fn changed_check(
    before: Option<CheckOption>,
    options: &[StorageOption],
    resets: bool,
) -> Result<Option<CheckOption>, SqlError> {
    let named = |option: &&StorageOption| option.namespace.is_none() && option.name == "check_option";
    if resets {
        return Ok(before.filter(|_| options.iter().find(named).is_none()));
    }
    let literal = |option: &StorageOption| {
        let value = option.value.clone().unwrap_or_else(|| "true".to_owned());
        let value = Expr::Value(Value::SingleQuotedString(value).with_empty_span());
        ast::SqlOption::KeyValue { key: Ident::with_quote('"', option.name.clone()), value }
    };
    let list = options.iter().map(literal).collect();
    Ok(check_option(&ast::CreateTableOptions::With(list))?.or(before))
}

fn value_text(value: &Expr) -> String {
    match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => text.to_lowercase(),
            other => other.to_string().to_lowercase(),
        },
        other => other.to_string().to_lowercase(),
    }
}

fn check_replacement(old: &View, new: &ViewDef, schema: &Arc<Schema>) -> Result<(), SqlError> {
    if new.columns.len() < old.def.columns.len() {
        return Err(SqlError::new("42P16", "cannot drop columns from view"));
    }
    for (at, ((old_name, old_type), (name, ty))) in old.def.columns.iter().zip(&new.columns).enumerate() {
        if old_name != name {
            let message = format!("cannot change name of view column \"{old_name}\" to \"{name}\"");
            return Err(SqlError::new("42P16", message)
                .with_hint("Use ALTER VIEW ... RENAME COLUMN ... to change name of view column instead."));
        }
        if old_type != ty && types_now(old, schema).get(at) != Some(ty) {
            let shown = |ty: &Option<Type>| ty.map_or_else(|| "text".to_owned(), |ty| type_name(ty).to_owned());
            let message = format!(
                "cannot change data type of view column \"{old_name}\" from {} to {}",
                shown(old_type),
                shown(ty)
            );
            return Err(SqlError::new("42P16", message));
        }
    }
    Ok(())
}

/// The types that a view's query gives now. (Those that are kept are of the release that made it.)
fn types_now(view: &View, schema: &Arc<Schema>) -> Vec<Option<Type>> {
    let shape = query_of(view).and_then(|query| columns_of(&query, schema));
    shape.map(|(columns, _)| columns.into_iter().map(|(_, ty)| ty).collect()).unwrap_or_default()
}

/// Whether a view shows a column that its GROUP BY does not have any more.
pub(super) fn lacks_group(view: &View, schema: &Arc<Schema>) -> bool {
    let shape = query_of(view).and_then(|query| columns_of(&query, schema));
    shape.is_err_and(|error| error.sqlstate == "42803")
}

/// The columns of a view, and its query's text.
pub type ViewShape = (Vec<(String, Option<Type>)>, String);

/// The columns that a query gives, and its text as a view keeps it.
pub fn columns_of(query: &Query, schema: &Arc<Schema>) -> Result<ViewShape, SqlError> {
    let (routed, text) = routed(query, schema)?;
    Ok((shown_columns(&routed), text))
}

fn shown_columns(routed: &Routed) -> Vec<(String, Option<Type>)> {
    routed.columns.iter().map(|c| (c.name.clone(), Some(c.declared()))).collect()
}

/// A query with the names that a view keeps, as it is planned, and its text.
fn routed(query: &Query, schema: &Arc<Schema>) -> Result<(Routed, String), SqlError> {
    let mut query = query.clone();
    let mut called = Called { schema, sources: HashMap::new() };
    let _ = query.visit(&mut called);
    let mut full = Full { schema, ctes: Ctes::default(), called: called.sources };
    let _ = VisitMut::visit(&mut query, &mut full);
    let text = query.to_string();
    let routed = crate::route::route(&text, schema, &[], None, None).map_err(|mut error| {
        error.position = None;
        error
    })?;
    if !routed.parameters.is_empty() {
        return Err(SqlError::new("42P02", "there is no parameter $1"));
    }
    let is_pseudo = |ty: Type| matches!(ty, RECORD | Type::System(SystemKind::Void));
    if let Some(column) = routed.columns.iter().find(|column| is_pseudo(column.ty)) {
        let message = format!("column \"{}\" has pseudo-type {}", column.name, type_name(column.ty));
        return Err(SqlError::new("42P16", message));
    }
    Ok((routed, text))
}

fn object_name(namespace: &str, name: &str) -> ObjectName {
    let part = |text: &str| ObjectNamePart::Identifier(Ident::with_quote('"', text));
    ObjectName(vec![part(namespace), part(name)])
}

/// Gives relations their schemas and `*` its columns.
struct Full<'a> {
    schema: &'a Arc<Schema>,
    ctes: Ctes,
    called: HashMap<String, Vec<Option<String>>>,
}

/// By what the sources of a query are called, their schemas; `None`: it has none there.
struct Called<'a> {
    schema: &'a Arc<Schema>,
    sources: HashMap<String, Vec<Option<String>>>,
}

impl Visitor for Called<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        let (called, namespace) = match factor {
            TableFactor::Table { name, alias: None, args: None, .. } => {
                let Ok(relation) = RelationName::of(name) else { return ControlFlow::Continue(()) };
                let table = relation.table(self.schema).map(|table| table.def.namespace);
                let id = table.or_else(|| relation.view(self.schema).map(|view| view.def.namespace));
                (relation.name, id.map(|id| namespace_name(self.schema, id)))
            }
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. }
            | TableFactor::Function { alias: Some(alias), .. }
            | TableFactor::NestedJoin { alias: Some(alias), .. } => (fold(&alias.name), None),
            _ => return ControlFlow::Continue(()),
        };
        self.sources.entry(called).or_default().push(namespace);
        ControlFlow::Continue(())
    }
}

/// A source whose columns are known.
struct Listed {
    /// Of a relation without an alias.
    namespace: Option<NamespaceId>,
    name: Ident,
    columns: Vec<Ident>,
}

impl Full<'_> {
    /// The relation's full name, unless it is a query's own.
    fn name(&self, name: &ObjectName) -> Option<ObjectName> {
        let relation = RelationName::of(name).ok()?;
        if relation.namespace.is_some() || self.ctes.has(&relation) {
            return None;
        }
        let table = relation.table(self.schema).map(|t| t.def.namespace);
        let namespace = table.or_else(|| relation.view(self.schema).map(|v| v.def.namespace))?;
        Some(object_name(&crate::bind::names::namespace_name(self.schema, namespace), &relation.name))
    }

    /// What `TABLE t` stands for, unless `t` is the query's own.
    fn select_from(&self, table: &ast::Table) -> Option<SetExpr> {
        let relation = named_by(table);
        if self.ctes.has_in_body(&relation) {
            return None;
        }
        query_of_table(table).ok().map(|query| *query.body)
    }

    /// A source's alias and columns, if it is a plain relation, or a subquery that stands for itself.
    fn columns(&self, factor: &TableFactor) -> Option<Listed> {
        if let TableFactor::Derived { lateral: false, subquery, alias: Some(alias), .. } = factor
            && alias.columns.is_empty()
        {
            let (columns, _) = columns_of(subquery, self.schema).ok()?;
            let columns = columns.into_iter().map(|(name, _)| Ident::with_quote('"', name)).collect();
            return Some(Listed { namespace: None, name: alias.name.clone(), columns });
        }
        let TableFactor::Table { name, alias, args: None, .. } = factor else { return None };
        let relation = RelationName::of(name).ok()?;
        // What stands in the body of the query that was just entered.
        if self.ctes.has_in_body(&relation) {
            return None;
        }
        if alias.as_ref().is_some_and(|a| !a.columns.is_empty()) {
            return None;
        }
        let (namespace, names): (NamespaceId, Vec<String>) = match relation.table(self.schema) {
            Some(table) => {
                let visible = table.def.columns.iter().filter(|c| c.is_visible());
                (table.def.namespace, visible.map(|c| c.name.clone()).collect())
            }
            None => {
                let view = relation.view(self.schema)?;
                (view.def.namespace, view.def.columns.iter().map(|(name, _)| name.clone()).collect())
            }
        };
        let namespace = alias.is_none().then_some(namespace);
        let name = alias.as_ref().map_or_else(|| Ident::with_quote('"', relation.name.clone()), |a| a.name.clone());
        Some(Listed { namespace, name, columns: names.into_iter().map(|name| Ident::with_quote('"', name)).collect() })
    }

    fn is_listed(&self, wanted: &RelationName, listed: &Listed) -> bool {
        let is_in = |name: &String| namespace_named(self.schema, name).is_some_and(|id| listed.namespace == Some(id));
        fold(&listed.name) == wanted.name && wanted.namespace.as_ref().is_none_or(is_in)
    }

    fn expand(&self, select: &mut ast::Select) {
        let mut sources = Vec::new();
        let mut is_plain = true;
        for item in &select.from {
            sources.push(self.columns(&item.relation));
            for join in &item.joins {
                sources.push(self.columns(&join.relation));
                is_plain &= matches!(constraint_of(join), Some(JoinConstraint::On(_) | JoinConstraint::None));
            }
        }
        let all = |listed: &Listed| -> Vec<SelectItem> {
            let same = sources.iter().flatten().filter(|other| fold(&other.name) == fold(&listed.name)).count();
            let namespace = listed.namespace.filter(|_| same > 1);
            let namespace = namespace.map(|id| Ident::with_quote('"', namespace_name(self.schema, id)));
            let column = |c: &Ident| {
                let parts = namespace.iter().chain([&listed.name, c]).cloned();
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts.collect()))
            };
            listed.columns.iter().map(column).collect()
        };
        let mut projection = Vec::new();
        for item in select.projection.drain(..) {
            match &item {
                SelectItem::Wildcard(_) if is_plain && sources.iter().all(Option::is_some) => {
                    sources.iter().flatten().for_each(|source| projection.extend(all(source)));
                }
                SelectItem::QualifiedWildcard(ast::SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    let wanted = RelationName::of(name).ok();
                    let is_wanted = |listed: &&Listed| wanted.as_ref().is_some_and(|w| self.is_listed(w, listed));
                    let mut found = sources.iter().flatten().filter(is_wanted);
                    match (found.next(), found.next()) {
                        (Some(source), None) => projection.extend(all(source)),
                        _ => projection.push(item),
                    }
                }
                _ => projection.push(item),
            }
        }
        select.projection = projection;
    }
}

impl VisitorMut for Full<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.ctes.enter(query);
        expand_bodies(self, &mut query.body);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.ctes.leave(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, .. } = factor
            && name.0.len() == 3
        {
            // The database's name, by which the next session may not call it.
            name.0.remove(0);
        }
        if let TableFactor::Table { name, alias, args: None, .. } = factor
            && let Some(full) = self.name(name)
        {
            if alias.is_none() {
                let own = name.0.last().and_then(|p| p.as_ident()).cloned();
                *alias = own.map(alias_of);
            }
            *name = full;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(parts) = expr
            && parts.len() == 4
        {
            parts.remove(0);
        }
        // What has one meaning without its schema keeps it when that is called otherwise.
        if let Expr::CompoundIdentifier(parts) = expr
            && let [namespace, source, _] = parts.as_slice()
            && let Some([Some(only)]) = self.called.get(&fold(source)).map(Vec::as_slice)
            && *only == fold(namespace)
        {
            parts.remove(0);
        }
        full_sequence(expr, self.schema);
        ControlFlow::Continue(())
    }
}

fn expand_bodies(full: &Full<'_>, body: &mut SetExpr) {
    if let SetExpr::Table(table) = body
        && let Some(select) = full.select_from(table)
    {
        *body = select;
    }
    match body {
        SetExpr::Select(select) => full.expand(select),
        SetExpr::SetOperation { left, right, .. } => {
            expand_bodies(full, left);
            expand_bodies(full, right);
        }
        _ => {}
    }
}

fn named_by(table: &ast::Table) -> RelationName {
    RelationName { namespace: table.schema_name.clone(), name: table.table_name.clone().unwrap_or_default() }
}

/// What `TABLE t` stands for.
pub fn query_of_table(table: &ast::Table) -> Result<Box<Query>, SqlError> {
    let part = |name: &String| ObjectNamePart::Identifier(Ident::with_quote('"', name.clone()));
    let name = ObjectName(table.schema_name.iter().chain(&table.table_name).map(part).collect());
    let query = parse(&format!("SELECT * FROM {name}"))?.query();
    query.ok_or_else(|| SqlError::new("XX000", "invariant: a SELECT is a query"))
}

/// What a body names by `TABLE t`.
pub fn tables_of(body: &SetExpr) -> Vec<RelationName> {
    match body {
        SetExpr::Table(table) => vec![named_by(table)],
        SetExpr::SetOperation { left, right, .. } => [tables_of(left), tables_of(right)].concat(),
        _ => Vec::new(),
    }
}

fn alias_of(name: Ident) -> TableAlias {
    TableAlias { explicit: true, name, columns: Vec::new(), at: None }
}

/// `nextval('s')` with the sequence's schema.
fn full_sequence(expr: &mut Expr, schema: &Schema) {
    let Expr::Function(function) = expr else { return };
    let name = function.name.to_string().to_lowercase();
    if !matches!(name.trim_start_matches("pg_catalog."), "nextval" | "currval" | "setval") {
        return;
    }
    let FunctionArguments::List(list) = &mut function.args else { return };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))) = list.args.first_mut() else { return };
    let text = match arg {
        Expr::Cast { expr, .. } => expr.as_mut(),
        other => other,
    };
    let Expr::Value(value) = text else { return };
    let (Value::SingleQuotedString(name) | Value::EscapedStringLiteral(name)) = &value.value else { return };
    let Ok(relation) = RelationName::of_text(name) else { return };
    if let Some(sequence) = relation.sequence(schema) {
        value.value = literal(qualified(schema, sequence.def.namespace, &sequence.def.name));
    }
}

/// The expression with sequences by their full names.
pub fn with_full_sequence_names(expr: &Expr, schema: &Schema) -> Expr {
    struct Sequences<'a>(&'a Schema);
    impl VisitorMut for Sequences<'_> {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            full_sequence(expr, self.0);
            ControlFlow::Continue(())
        }
    }
    let mut expr = expr.clone();
    let _ = VisitMut::visit(&mut expr, &mut Sequences(schema));
    expr
}

/// Oids of the tables, views and sequences that a query reads.
fn reads_of(query: &Query, schema: &Schema) -> Vec<u32> {
    struct Reads<'a> {
        schema: &'a Schema,
        ctes: Ctes,
        found: Vec<u32>,
    }
    impl Reads<'_> {
        fn note(&mut self, id: Option<u32>) {
            self.found.extend(id.filter(|id| !self.found.contains(id)));
        }
    }
    impl Visitor for Reads<'_> {
        type Break = ();
        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            self.ctes.enter(query);
            for name in tables_of(&query.body) {
                if !self.ctes.has_in_body(&name) {
                    self.note(name.table(self.schema).map(|t| t.id.0));
                    self.note(name.view(self.schema).map(|v| v.id));
                }
            }
            ControlFlow::Continue(())
        }
        fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            self.ctes.leave(query);
            ControlFlow::Continue(())
        }
        fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
            if let Ok(name) = RelationName::of(name)
                && !self.ctes.has(&name)
            {
                self.note(name.table(self.schema).map(|t| t.id.0));
                self.note(name.view(self.schema).map(|v| v.id));
            }
            ControlFlow::Continue(())
        }
        fn pre_visit_value(&mut self, value: &ast::ValueWithSpan) -> ControlFlow<()> {
            // A sequence is named by a text; one that only looks like it forbids a DROP too much.
            if let Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) = &value.value
                && let Ok(name) = RelationName::of_text(text)
            {
                self.note(name.sequence(self.schema).map(|s| s.id));
            }
            ControlFlow::Continue(())
        }
    }
    let mut reads = Reads { schema, ctes: Ctes::default(), found: Vec::new() };
    let _ = query.visit(&mut reads);
    reads.found
}

/// Whether the text has the name as a word.
pub fn mentions(text: &str, name: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    text.match_indices(name).any(|(at, found)| {
        let before = text[..at].chars().next_back().is_some_and(is_name);
        let after = text[at + found.len()..].chars().next().is_some_and(is_name);
        !before && !after
    })
}

/// As `mentions`, of a name in any case.
fn may_mention(text: &str, name: &str) -> bool {
    mentions(&text.to_lowercase(), &name.to_lowercase())
}

/// Whether a view's query uses the column of a relation that is its visible one at `place`; `columns`: the names of all of these.
pub fn uses_column(
    query: &str,
    relation: &RelationName,
    columns: &[String],
    place: usize,
    schema: &Arc<Schema>,
) -> bool {
    may_name(query, relation, &columns[place], place) && !stands_without(query, relation, columns, place, schema)
}

/// Whether a view's query may name the column of a relation: by its name, or, as its visible column at `place`, by one that it has had
/// (see [`with_columns_named`]).
fn may_name(query: &str, relation: &RelationName, column: &str, place: usize) -> bool {
    let mut names = Vec::new();
    let bare = each_source(query, relation, |_, alias| {
        names.push(alias.columns.get(place).map_or_else(|| column.to_owned(), |had| had.name.value.clone()));
        alias.columns.clear();
    });
    match bare {
        Ok(bare) => names.iter().any(|name| may_mention(&bare, name)) || reads_all(&bare, relation),
        Err(_) => true,
    }
}

/// Whether a view's query gives the same where the column cannot be named: there are two of its name then, of a type without operators, so that
/// its name is ambiguous and no join is by it.
fn stands_without(
    query: &str,
    relation: &RelationName,
    columns: &[String],
    place: usize,
    schema: &Arc<Schema>,
) -> bool {
    if has_star_of(query, relation) {
        return false;
    }
    let list = |_: &str, names: &[String]| {
        let shown = names.iter().enumerate().flat_map(|(at, name)| match at == place {
            true => vec![absent(name); 2],
            false => vec![quoted(name)],
        });
        Some(shown.collect())
    };
    let wrapped = parsed(query).map(|mut statement| {
        let mut wrap = Wrap { relation, columns, list: &list, sources: 0 };
        let _ = VisitMut::visit(statement.as_mut(), &mut wrap);
        statement.to_string()
    });
    wrapped.is_ok_and(|wrapped| gives_same(query, &wrapped, schema))
}

/// An output that stands for a column and compares with nothing.
fn absent(name: &str) -> String {
    format!("NULL::json AS {}", quoted(name))
}

fn quoted(name: &str) -> String {
    Ident::with_quote('"', name).to_string()
}

/// Whether both are queries with columns of the same names and types.
fn gives_same(query: &str, other: &str, schema: &Arc<Schema>) -> bool {
    let columns = |query: &str| {
        let routed = crate::route::route(query, schema, &[], None, None).ok()?;
        Some(routed.columns.iter().map(|column| (column.name.clone(), column.ty)).collect::<Vec<_>>())
    };
    columns(query).is_some_and(|own| columns(other) == Some(own))
}

/// A view's query without the name that it has for the visible column at `place`, which goes, and which it does not read.
pub fn with_column_gone(query: &str, relation: &RelationName, place: usize) -> Result<String, SqlError> {
    each_source(query, relation, |_, alias| {
        if place < alias.columns.len() {
            alias.columns.remove(place);
        }
    })
}

/// A view's query that goes on to mean what it means when a relation, whose columns are these, gets another one: where a name could be the new
/// column's, the relation is read as a query that does not have it. Whose row is used as a whole has it, if no name becomes its.
pub fn with_column_come(
    query: &str,
    relation: &RelationName,
    columns: &[String],
    new: &str,
    schema: &Arc<Schema>,
) -> Result<String, SqlError> {
    let takes_all = reads_all(query, relation);
    if !takes_all && !may_mention(query, new) {
        return Ok(query.to_owned());
    }
    let statement = parsed(query)?;
    let read = |source: &str, names: &[String]| {
        let is_read = |name: &&String| takes_all || may_mention(query, name) || is_whole(&statement, source);
        let read: Vec<String> = names.iter().filter(is_read).map(|name| quoted(name)).collect();
        Some(if read.is_empty() { names.iter().take(1).map(|name| quoted(name)).collect() } else { read })
    };
    let with_new = |source: &str, names: &[String]| match is_whole(&statement, source) {
        true => Some(names.iter().map(|name| quoted(name)).chain([absent(new)]).collect()),
        false => read(source, names),
    };
    let open = |source: &str, names: &[String]| if is_whole(&statement, source) { None } else { read(source, names) };
    let wrapped = |list: &List<'_>| {
        let mut wrapped = statement.clone();
        let mut wrap = Wrap { relation, columns, list, sources: 0 };
        let _ = VisitMut::visit(wrapped.as_mut(), &mut wrap);
        (wrapped.to_string(), wrap.sources)
    };
    let (closed, sources) = wrapped(&read);
    if sources == 1 && !is_grouped(&statement) {
        // Whatever is named is this relation's already.
        return Ok(query.to_owned());
    }
    if gives_same(query, &wrapped(&with_new).0, schema) {
        return Ok(wrapped(&open).0);
    }
    // What follows from the relation's keys does not follow from a query's.
    let stands = crate::route::route(&closed, schema, &[], None, None).is_ok();
    Ok(if stands { closed } else { query.to_owned() })
}

/// What is read of a source of this name with these columns; `None`: it stays as it is.
type List<'a> = dyn Fn(&str, &[String]) -> Option<Vec<String>> + 'a;

/// Puts queries in the place of a relation.
struct Wrap<'a> {
    relation: &'a RelationName,
    columns: &'a [String],
    list: &'a List<'a>,
    sources: usize,
}

impl VisitorMut for Wrap<'_> {
    type Break = ();

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        self.sources += 1;
        let TableFactor::Table { name, alias, args: None, .. } = factor else { return ControlFlow::Continue(()) };
        if RelationName::of(name).is_ok_and(|found| found == *self.relation) {
            let named = alias.iter().flat_map(|alias| alias.columns.iter().map(|column| column.name.value.clone()));
            let mut names: Vec<String> = named.collect();
            names.extend(self.columns.iter().skip(names.len()).cloned());
            let own = || Ident::with_quote('"', self.relation.name.clone());
            let outer = alias_of(alias.as_ref().map_or_else(own, |alias| alias.name.clone()));
            if let Some(list) = (self.list)(&fold(&outer.name), &names)
                && let Ok(Statement::Query(subquery)) =
                    parsed(&format!("SELECT {} FROM {factor}", list.join(", "))).map(|statement| *statement)
            {
                *factor = TableFactor::Derived { lateral: false, subquery, alias: Some(outer), sample: None };
            }
        }
        ControlFlow::Continue(())
    }
}

/// Whether a source's row may be used as a whole.
fn is_whole(statement: &Statement, source: &str) -> bool {
    struct Whole<'a>(&'a str, bool);
    impl Visitor for Whole<'_> {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            self.1 |= matches!(expr, Expr::Identifier(ident) if fold(ident) == self.0);
            ControlFlow::Continue(())
        }
    }
    let mut whole = Whole(source, false);
    let _ = statement.visit(&mut whole);
    whole.1
}

/// Whether a query reads the relation where a `*` means all of its columns.
fn has_star_of(query: &str, relation: &RelationName) -> bool {
    let Ok(statement) = parsed(query) else { return true };
    any_select(&statement, |select| is_starred(select, relation))
}

/// Whether a SELECT reads the relation and has a `*` that means its columns: another source's `q.*` does not.
fn is_starred(select: &ast::Select, relation: &RelationName) -> bool {
    let mut names = Vec::new();
    select.from.iter().for_each(|from| add_names(from, relation, &mut names));
    let means = |item: &SelectItem| match item {
        SelectItem::Wildcard(_) => true,
        SelectItem::QualifiedWildcard(ast::SelectItemQualifiedWildcardKind::ObjectName(of), _) => {
            of.0.last().and_then(|part| part.as_ident()).is_none_or(|ident| names.contains(&fold(ident)))
        }
        _ => false,
    };
    !names.is_empty() && select.projection.iter().any(means)
}

/// What the relation is called in an entry of FROM.
fn add_names(from: &ast::TableWithJoins, relation: &RelationName, names: &mut Vec<String>) {
    for factor in std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)) {
        match factor {
            TableFactor::Table { name, alias, .. } if RelationName::of(name).is_ok_and(|found| found == *relation) => {
                names.push(alias.as_ref().map_or_else(|| relation.name.clone(), |alias| fold(&alias.name)));
            }
            TableFactor::NestedJoin { table_with_joins, .. } => add_names(table_with_joins, relation, names),
            _ => {}
        }
    }
}

pub fn parsed(query: &str) -> Result<Box<Statement>, SqlError> {
    match parse(query)? {
        Parsed::Sql(statement) => Ok(statement),
        _ => Err(SqlError::new("XX000", "a view's text is no query")),
    }
}

fn is_grouped(statement: &Statement) -> bool {
    any_select(statement, has_group_by)
}

/// Whether a query reads the relation where a `*` or a NATURAL JOIN means all of its columns.
fn reads_all(query: &str, relation: &RelationName) -> bool {
    let Ok(statement) = parsed(query) else { return true };
    any_select(&statement, |select| {
        let (mut is_there, mut is_open) = (false, is_starred(select, relation));
        for from in &select.from {
            look_at(from, relation, &mut is_there, &mut is_open);
        }
        is_there && is_open
    })
}

/// Whether it holds for any SELECT, those of subqueries included.
fn any_select(statement: &Statement, holds: impl FnMut(&ast::Select) -> bool) -> bool {
    struct Selects<F>(F, bool);
    impl<F: FnMut(&ast::Select) -> bool> Visitor for Selects<F> {
        type Break = ();
        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            each_select(&query.body, &mut |select| self.1 |= (self.0)(select));
            ControlFlow::Continue(())
        }
    }
    let mut selects = Selects(holds, false);
    let _ = statement.visit(&mut selects);
    selects.1
}

fn look_at(from: &ast::TableWithJoins, relation: &RelationName, is_there: &mut bool, is_open: &mut bool) {
    let factors = std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation));
    for factor in factors {
        match factor {
            TableFactor::Table { name, .. } => {
                *is_there |= RelationName::of(name).is_ok_and(|found| found == *relation)
            }
            TableFactor::NestedJoin { table_with_joins, .. } => look_at(table_with_joins, relation, is_there, is_open),
            _ => {}
        }
    }
    *is_open |= from.joins.iter().any(is_natural);
}

fn is_natural(join: &ast::Join) -> bool {
    matches!(constraint_of(join), Some(JoinConstraint::Natural))
}

/// How the rows of an SQL join meet; `None`: another dialect's join.
fn constraint_of(join: &ast::Join) -> Option<&JoinConstraint> {
    use ast::JoinOperator as J;
    match &join.join_operator {
        J::Join(c)
        | J::Inner(c)
        | J::Left(c)
        | J::LeftOuter(c)
        | J::Right(c)
        | J::RightOuter(c)
        | J::FullOuter(c)
        | J::CrossJoin(c) => Some(c),
        _ => None,
    }
}

fn each_select(body: &SetExpr, each: &mut impl FnMut(&ast::Select)) {
    match body {
        SetExpr::Select(select) => each(select),
        SetExpr::SetOperation { left, right, .. } => {
            each_select(left, each);
            each_select(right, each);
        }
        _ => {}
    }
}

/// A view's query with another name of a relation, by whose alias its columns are named.
pub fn with_relation_renamed(query: &str, old: &RelationName, new: &RelationName) -> Result<String, SqlError> {
    let namespace = new.namespace.as_deref().unwrap_or("public");
    each_source(query, old, |name, _| *name = object_name(namespace, &new.name))
}

/// A view's query that names the columns of a relation as they are called until now, whatever they are called later.
pub fn with_columns_named(query: &str, relation: &RelationName, columns: &[String]) -> Result<String, SqlError> {
    each_source(query, relation, |_, alias| {
        let missing = columns.iter().skip(alias.columns.len());
        let missing = missing.map(|name| Ident::with_quote('"', name.clone()));
        alias.columns.extend(missing.map(|name| ast::TableAliasColumnDef { name, data_type: None }));
    })
}

/// Calls `each` with the name and the alias wherever the query reads the relation; gives the query's text after that.
fn each_source(
    query: &str,
    relation: &RelationName,
    each: impl FnMut(&mut ObjectName, &mut TableAlias),
) -> Result<String, SqlError> {
    struct Sources<'a, F>(&'a RelationName, F);
    impl<F: FnMut(&mut ObjectName, &mut TableAlias)> VisitorMut for Sources<'_, F> {
        type Break = ();
        fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
            if let TableFactor::Table { name, alias, args: None, .. } = factor
                && RelationName::of(name).is_ok_and(|found| found == *self.0)
            {
                // Views give every source its alias.
                let own = self.0.name.clone();
                (self.1)(name, alias.get_or_insert_with(|| alias_of(Ident::with_quote('"', own))));
            }
            ControlFlow::Continue(())
        }
    }
    let mut statement = parsed(query)?;
    let _ = VisitMut::visit(statement.as_mut(), &mut Sources(relation, each));
    Ok(statement.to_string())
}

/// An expression over a table's columns with one of them renamed.
pub fn rename_column(text: &str, old: &str, new: &str) -> String {
    struct Rename<'a>(&'a str, &'a str);
    impl VisitorMut for Rename<'_> {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            let last = match expr {
                Expr::Identifier(ident) => Some(ident),
                Expr::CompoundIdentifier(parts) => parts.last_mut(),
                _ => None,
            };
            if let Some(ident) = last.filter(|ident| fold(ident) == self.0) {
                *ident = Ident::with_quote('"', self.1);
            }
            ControlFlow::Continue(())
        }
    }
    match parse_expression(text) {
        Ok(mut expr) => {
            let _ = VisitMut::visit(&mut expr, &mut Rename(old, new));
            expr.to_string()
        }
        Err(_) => text.to_owned(),
    }
}

// ---- at use

/// The statement with queries in place of views; `None`: it names none.
pub fn expand(statement: &Statement, schema: &Schema) -> Result<Option<Statement>, SqlError> {
    if schema.views().next().is_none() {
        return Ok(None);
    }
    struct Expand<'a> {
        schema: &'a Schema,
        ctes: Ctes,
        any: bool,
        depth: usize,
        /// The next table is what the statement changes.
        is_target: bool,
    }
    impl VisitorMut for Expand<'_> {
        type Break = SqlError;
        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
            self.ctes.enter(query);
            ControlFlow::Continue(())
        }
        fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
            self.ctes.leave(query);
            ControlFlow::Continue(())
        }
        fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<SqlError> {
            self.is_target = matches!(statement, Statement::Update(_) | Statement::Delete(_) | Statement::Merge(_));
            ControlFlow::Continue(())
        }
        fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
            const VIEWS_MAX: usize = 1000;
            let TableFactor::Table { name, alias, args: None, .. } = factor else {
                return ControlFlow::Continue(());
            };
            if std::mem::take(&mut self.is_target) {
                return ControlFlow::Continue(());
            }
            let Ok(relation) = RelationName::of(name) else { return ControlFlow::Continue(()) };
            if self.ctes.has(&relation) {
                return ControlFlow::Continue(());
            }
            let Some(view) = relation.view(self.schema) else { return ControlFlow::Continue(()) };
            if relation.table(self.schema).is_some() || crate::view::find(&relation, self.schema).is_some() {
                return ControlFlow::Continue(());
            }
            (self.any, self.depth) = (true, self.depth + 1);
            if self.depth > VIEWS_MAX {
                return ControlFlow::Break(SqlError::new("54001", "stack depth limit exceeded"));
            }
            match derived(view, alias.as_ref()) {
                Ok(derived) => {
                    *factor = derived;
                    ControlFlow::Continue(())
                }
                Err(error) => ControlFlow::Break(error),
            }
        }
    }
    let mut statement = statement.clone();
    let mut expand = Expand { schema, ctes: Ctes::default(), any: false, depth: 0, is_target: false };
    match VisitMut::visit(&mut statement, &mut expand) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(expand.any.then_some(statement)),
    }
}

/// What the view stands for.
pub fn query_of(view: &View) -> Result<Box<Query>, SqlError> {
    match *parsed(&view.def.query)? {
        Statement::Query(query) => Ok(query),
        _ => Err(SqlError::new("XX000", format!("the view {} is no query", view.def.name))),
    }
}

/// The view as a subquery, with its columns' names.
fn derived(view: &View, alias: Option<&TableAlias>) -> Result<TableFactor, SqlError> {
    let subquery = query_of(view)?;
    let mut alias = match alias {
        None => alias_of(name_of_view(view)),
        Some(alias) => TableAlias { name: alias_of_view(&alias.name), ..alias.clone() },
    };
    for (name, _) in view.def.columns.iter().skip(alias.columns.len()) {
        let name = Ident::with_quote('"', name.clone());
        alias.columns.push(ast::TableAliasColumnDef { name, data_type: None });
    }
    Ok(TableFactor::Derived { lateral: false, subquery, alias: Some(alias), sample: None })
}
