//! What do checks and foreign keys demand, and do the rows that are there keep it?

use super::create::{NewTable, bind_over, constraint_name, scope_of};
use super::{Definer, Done};
use crate::bind::names::{RelationName, namespace_name};
use crate::bind::rules::rules_of;
use crate::bind::scope::fold;
use crate::compiled::rules::{self, Event, Rules};
use crate::compiled::{Halt, Run, Scratch};
use crate::error::SqlError;
use crate::expr::{Frame, truth};
use crate::parse::set_columns;
use crate::value::cast;
use crate::value::pgtype::name as type_name;
use freshet_engine::catalog::{
    Action, ColumnDef, ColumnRole, Constraint, ConstraintKind, ForeignKey, IndexDef, IndexId, Schema, Table, TableDef,
    TableId,
};
use freshet_engine::schema::{NetworkKind, Row, Type};
use sqlparser::ast::{
    self, CheckConstraint, ConstraintCharacteristics, ConstraintReferenceMatchKind, DeferrableInitial,
    ForeignKeyConstraint, Ident, ReferentialAction,
};
use std::sync::Arc;

/// A check or a foreign key as it was written.
pub enum NewConstraint {
    Check { name: Option<String>, expr: Box<ast::Expr> },
    Foreign { name: Option<String>, key: Box<ForeignKeyConstraint>, columns: Vec<Ident> },
}

impl NewConstraint {
    pub fn check(check: &CheckConstraint, label: Option<&Ident>) -> Result<NewConstraint, SqlError> {
        if check.enforced == Some(false) {
            return Err(SqlError::unsupported("NOT ENFORCED"));
        }
        let name = check.name.as_ref().or(label).map(fold);
        Ok(NewConstraint::Check { name, expr: check.expr.clone() })
    }

    /// `own`: the column that the constraint stands at.
    pub fn foreign(
        key: &ForeignKeyConstraint,
        label: Option<&Ident>,
        own: Option<&Ident>,
    ) -> Result<NewConstraint, SqlError> {
        // A marker there says which columns ON DELETE sets.
        if key.index_name.as_ref().is_some_and(|name| set_columns(name).is_none()) {
            return Err(SqlError::unsupported("this form of FOREIGN KEY"));
        }
        let columns = own.map_or_else(|| key.columns.clone(), |own| vec![own.clone()]);
        let name = key.name.as_ref().or(label).map(fold);
        Ok(NewConstraint::Foreign { name, key: Box::new(key.clone()), columns })
    }
}

fn action_of(action: Option<&ReferentialAction>) -> Action {
    match action {
        None | Some(ReferentialAction::NoAction) => Action::NoAction,
        Some(ReferentialAction::Restrict) => Action::Restrict,
        Some(ReferentialAction::Cascade) => Action::Cascade,
        Some(ReferentialAction::SetNull) => Action::SetNull,
        Some(ReferentialAction::SetDefault) => Action::SetDefault,
    }
}

/// Whether it is DEFERRABLE, and INITIALLY DEFERRED.
pub(super) fn deferral(characteristics: Option<&ConstraintCharacteristics>) -> Result<(bool, bool), SqlError> {
    let Some(c) = characteristics else { return Ok((false, false)) };
    if c.enforced == Some(false) {
        return Err(SqlError::unsupported("NOT ENFORCED"));
    }
    let deferred = c.initially == Some(DeferrableInitial::Deferred);
    if deferred && c.deferrable == Some(false) {
        return Err(SqlError::new("42601", "constraint declared INITIALLY DEFERRED must be DEFERRABLE"));
    }
    Ok((deferred || c.deferrable == Some(true), deferred))
}

/// What a foreign key refers to: the table's definition and unique indexes, its own or another's.
struct Referenced {
    id: TableId,
    name: String,
    def: TableDef,
    indexes: Vec<(IndexId, IndexDef)>,
}

impl Referenced {
    fn of(table: &Table) -> Referenced {
        let indexes = table.indexes.iter().map(|i| (i.id, i.def.clone())).collect();
        Referenced { id: table.id, name: table.def.name.clone(), def: table.def.clone(), indexes }
    }
}

impl Definer<'_> {
    /// Binds the constraints of a table that is being created, and its generated columns.
    pub(super) fn bind_constraints(&mut self, new: &mut NewTable) -> Done<()> {
        let schema = self.schema();
        self.keep_generated(&mut new.def, 0)?;
        check_generated(&new.def, None, &schema)?;
        for constraint in std::mem::take(&mut new.constraints) {
            let own: Vec<(IndexId, IndexDef)> = new.indexes.iter().map(|i| (IndexId(0), i.clone())).collect();
            let taken: Vec<String> = new.indexes.iter().map(|i| i.name.clone()).collect();
            let bound = self.bind_constraint(constraint, &new.def, TableId(0), &own, &taken, &schema)?;
            new.def.constraints.push(bound);
        }
        Ok(())
    }

    /// `own` are the table's indexes, `taken` the names of its other constraints.
    pub(super) fn bind_constraint(
        &mut self,
        constraint: NewConstraint,
        def: &TableDef,
        id: TableId,
        own: &[(IndexId, IndexDef)],
        taken: &[String],
        schema: &Arc<Schema>,
    ) -> Done<Constraint> {
        let is_taken = |name: &str| taken.iter().any(|t| t == name);
        let (given, kind, label) = match constraint {
            NewConstraint::Check { name, expr } => {
                let text = self.kept(&expr, Some(Type::Bool), &scope_of(def))?;
                let (bound, columns, _) = bind_over(&text, Type::Bool, def, schema)?;
                if bound.is_volatile() {
                    return Err(SqlError::unsupported("a sequence in a check").into());
                }
                let column = match columns.as_slice() {
                    [one] => def.columns[usize::from(*one)].name.clone(),
                    _ => String::new(),
                };
                (name, ConstraintKind::Check { condition: text, columns }, (column, "check"))
            }
            NewConstraint::Foreign { name, key, columns } => {
                let shown = name.clone();
                let parts: Vec<String> = columns.iter().map(fold).collect();
                let chosen = shown.unwrap_or_else(|| constraint_name(def, &parts.join("_"), "fkey", is_taken));
                let key = self.foreign_key(&chosen, &key, &columns, def, id, own, schema)?;
                (name, ConstraintKind::Foreign(key), (parts.join("_"), "fkey"))
            }
        };
        let name = match given {
            Some(name) if is_taken(&name) || def.constraints.iter().any(|c| c.name == name) => {
                let message = format!("constraint \"{name}\" for relation \"{}\" already exists", def.name);
                return Err(SqlError::new("42710", message).into());
            }
            Some(name) => name,
            None => constraint_name(def, &label.0, label.1, is_taken),
        };
        Ok(Constraint { id: 0, name, kind, validated: true })
    }

    #[allow(clippy::too_many_arguments, reason = "both sides of the key, one of which may be on its way")]
    fn foreign_key(
        &mut self,
        name: &str,
        key: &ForeignKeyConstraint,
        columns: &[Ident],
        def: &TableDef,
        id: TableId,
        own: &[(IndexId, IndexDef)],
        schema: &Arc<Schema>,
    ) -> Done<ForeignKey> {
        let missing = |name: &str| {
            SqlError::new("42703", format!("column \"{name}\" referenced in foreign key constraint does not exist"))
        };
        let mut here = Vec::with_capacity(columns.len());
        for column in columns {
            let column = fold(column);
            let at = def.columns.iter().position(|c| c.name == column && c.is_visible());
            here.push(at.ok_or_else(|| missing(&column))? as u16);
        }
        let wanted = RelationName::of(&key.foreign_table)?;
        let itself = wanted.name == def.name
            && match &wanted.namespace {
                Some(namespace) => *namespace == namespace_name(schema, def.namespace),
                None => wanted.table(schema).is_none_or(|t| t.id == id),
            };
        let parent = match itself {
            true => Referenced { id, name: def.name.clone(), def: def.clone(), indexes: own.to_vec() },
            false => {
                let parent = self.table(&key.foreign_table)?;
                self.check_references(parent.id.0)?;
                Referenced::of(&parent)
            }
        };
        let is_temporary = |namespace| crate::bind::names::is_temporary(schema, namespace);
        let kinds = match (is_temporary(def.namespace), is_temporary(parent.def.namespace)) {
            (false, true) => Some("permanent"),
            (true, false) => Some("temporary"),
            _ => None,
        };
        if let Some(kind) = kinds {
            let message = format!("constraints on {kind} tables may reference only {kind} tables");
            return Err(SqlError::new("42P16", message).into());
        }
        let (there, index) = referenced_columns(&key.referred_columns, &parent, here.len(), missing)?;
        for (&a, &b) in here.iter().zip(&there) {
            let (a, b) = (&def.columns[usize::from(a)], &parent.def.columns[usize::from(b)]);
            check_comparable(name, a.ty, &a.name, b.ty, &b.name)?;
        }
        let (deferrable, deferred) = deferral(key.characteristics.as_ref())?;
        let full = match key.match_kind {
            None | Some(ConstraintReferenceMatchKind::Simple) => false,
            Some(ConstraintReferenceMatchKind::Full) => true,
            Some(ConstraintReferenceMatchKind::Partial) => {
                return Err(SqlError::new("0A000", "MATCH PARTIAL not yet implemented").into());
            }
        };
        let (on_update, on_delete) = (action_of(key.on_update.as_ref()), action_of(key.on_delete.as_ref()));
        let computed = here.iter().find(|&&c| def.columns[usize::from(c)].role == ColumnRole::Generated);
        if computed.is_some() && (on_update != Action::NoAction && on_update != Action::Restrict) {
            let message = "invalid ON UPDATE action for foreign key constraint containing generated column";
            return Err(SqlError::new("42601", message).into());
        }
        if computed.is_some() && matches!(on_delete, Action::SetNull | Action::SetDefault) {
            let message = "invalid ON DELETE action for foreign key constraint containing generated column";
            return Err(SqlError::new("42601", message).into());
        }
        let delete_columns = delete_columns(key, &here, def, missing)?;
        Ok(ForeignKey {
            columns: here,
            parent: parent.id,
            parent_columns: there,
            parent_index: index,
            full,
            on_update,
            on_delete,
            delete_columns,
            deferrable,
            deferred,
        })
    }

    // ---- rows that are there

    /// Checks every row of the table against these constraints of its.
    pub(super) fn validate(&mut self, id: TableId, ids: &[u32]) -> Done<()> {
        let schema = self.schema();
        let table = schema.table_by_id(id).expect("the table that was just changed").clone();
        let mut rules = rules_of(&table, &schema, Event::Insert, None)?;
        let names: Vec<String> =
            table.def.constraints.iter().filter(|c| ids.contains(&c.id)).map(|c| c.name.clone()).collect();
        rules.parents.retain(|p| ids.contains(&p.id));
        rules.checks.retain(|c| names.contains(&c.name));
        let rules = Arc::new(rules);
        let (env, interrupt, constraints) = (self.env, &mut *self.interrupt, &mut *self.constraints);
        let mut scratch = Scratch::default();
        self.engine.each_row_alone(id, &mut |engine, _, row| -> Done<()> {
            interrupt.step()?;
            let mut run = Run::new(engine, (&[], env), &mut scratch, interrupt, constraints);
            check_row(&rules, row, &mut run)?;
            rules::demand_parents(&rules, row, &mut run)
        })
    }

    /// 23502 if a row has a null there.
    pub(super) fn check_not_null(&mut self, id: TableId, column: usize) -> Done<()> {
        let schema = self.schema();
        let interrupt = &mut *self.interrupt;
        self.engine.each_row_alone(id, &mut |_, table, row: &mut Row| -> Done<()> {
            interrupt.step()?;
            if !row.is_null(&table.layout, column) {
                return Ok(());
            }
            let (table, name) = (&table.def, &table.def.columns[column].name);
            let message = format!("column \"{name}\" of relation \"{}\" contains null values", table.name);
            let namespace = namespace_name(&schema, table.namespace);
            Err(SqlError::new("23502", message).about(&namespace, &table.name, Some(name), None).into())
        })?;
        Ok(self.engine.check_shown_not_null(id, column)?)
    }
}

fn check_row(rules: &Rules, row: &mut Row, run: &mut Run<'_>) -> Done<()> {
    for &column in &rules.long_columns {
        run.engine.fetch_long(&rules.table, row, usize::from(column));
    }
    for check in &rules.checks {
        let frame = Frame { tables: &rules.tables, rows: std::slice::from_ref(row), ..Frame::new(run.env) };
        if truth(&check.condition, &frame)? == Some(false) {
            let table = &rules.table.def.name;
            let message =
                format!("check constraint \"{}\" of relation \"{table}\" is violated by some row", check.name);
            return Err(SqlError::new("23514", message).about(&rules.namespace, table, None, Some(&check.name)).into());
        }
    }
    Ok(())
}

/// The referenced columns, and the unique index over exactly these.
fn referenced_columns(
    names: &[Ident],
    parent: &Referenced,
    count: usize,
    missing: impl Fn(&str) -> SqlError,
) -> Result<(Vec<u16>, IndexId), SqlError> {
    if names.is_empty() {
        let primary = parent.indexes.iter().find(|(_, i)| i.primary);
        let Some((id, index)) = primary else {
            let message = format!("there is no primary key for referenced table \"{}\"", parent.name);
            return Err(SqlError::new("42704", message));
        };
        if index.deferrable {
            let message = format!("cannot use a deferrable primary key for referenced table \"{}\"", parent.name);
            return Err(SqlError::new("55000", message));
        }
        let columns: Vec<u16> = index.columns.iter().map(|c| c.column).collect();
        check_count(columns.len(), count)?;
        return Ok((columns, *id));
    }
    let mut there = Vec::with_capacity(names.len());
    for name in names {
        let name = fold(name);
        let at = parent.def.columns.iter().position(|c| c.name == name && c.is_visible());
        there.push(at.ok_or_else(|| missing(&name))? as u16);
    }
    check_count(there.len(), count)?;
    let mut wanted = there.clone();
    wanted.sort_unstable();
    let fits = |index: &IndexDef| {
        let mut own: Vec<u16> = index.columns.iter().map(|c| c.column).collect();
        own.sort_unstable();
        index.is_key() && index.predicate.is_none() && own == wanted
    };
    // One that is checked at once, if there is one.
    match parent.indexes.iter().filter(|(_, i)| fits(i)).min_by_key(|(_, i)| i.deferrable) {
        Some((_, index)) if index.deferrable => {
            let message = format!("cannot use a deferrable unique constraint for referenced table \"{}\"", parent.name);
            Err(SqlError::new("55000", message))
        }
        Some((id, _)) => Ok((there, *id)),
        None => {
            let message =
                format!("there is no unique constraint matching given keys for referenced table \"{}\"", parent.name);
            Err(SqlError::new("42830", message))
        }
    }
}

/// The columns that ON DELETE SET NULL or SET DEFAULT names.
fn delete_columns(
    key: &ForeignKeyConstraint,
    own: &[u16],
    def: &TableDef,
    missing: impl Fn(&str) -> SqlError,
) -> Result<Vec<u16>, SqlError> {
    let Some(list) = key.index_name.as_ref().and_then(set_columns) else { return Ok(Vec::new()) };
    let mut columns = Vec::new();
    for expr in crate::parse::parse_expressions(list)? {
        let ast::Expr::Identifier(name) = expr else {
            return Err(SqlError::new("42601", format!("syntax error at or near \"{expr}\"")));
        };
        let name = fold(&name);
        let at = def.columns.iter().position(|c| c.name == name && c.is_visible()).ok_or_else(|| missing(&name))?;
        if !own.contains(&(at as u16)) {
            let message = format!("column \"{name}\" referenced in ON DELETE SET action must be part of foreign key");
            return Err(SqlError::new("42P10", message));
        }
        columns.push(at as u16);
    }
    Ok(columns)
}

fn check_count(there: usize, here: usize) -> Result<(), SqlError> {
    match there == here {
        true => Ok(()),
        false => Err(SqlError::new("42830", "number of referencing and referenced columns for foreign key disagree")),
    }
}

fn check_comparable(key: &str, a: Type, a_name: &str, b: Type, b_name: &str) -> Result<(), SqlError> {
    let text = |ty| matches!(ty, Type::Text | Type::Varchar(_) | Type::Char(_));
    let network = |ty| matches!(ty, Type::Network(NetworkKind::Inet | NetworkKind::Cidr));
    let comparable = cast::without_modifier(a) == cast::without_modifier(b)
        || (text(a) && text(b))
        || cast::context(a, b) == Some(cast::CastContext::Implicit)
        || (network(a) && network(b))
        || (cast::is_integer(a) && cast::is_integer(b))
        || (cast::is_float(a) && cast::is_float(b));
    if comparable {
        return Ok(());
    }
    let message = format!("foreign key constraint \"{key}\" cannot be implemented");
    Err(SqlError::new("42804", message).with_detail(format!(
        "Key columns \"{a_name}\" and \"{b_name}\" are of incompatible types: {} and {}.",
        type_name(a),
        type_name(b)
    )))
}

/// 42804 where, once these columns have these types, a foreign key of either side would compare what cannot be compared.
pub(super) fn check_foreign_types(schema: &Schema, table: &Table, types: &[(u16, Type)]) -> Result<(), SqlError> {
    for (child, constraint, key) in schema.foreign_keys() {
        let Some(parent) = schema.table_by_id(key.parent) else { continue };
        for (&own, &there) in key.columns.iter().zip(&key.parent_columns) {
            let new_type = |other: &Table, column: u16| {
                types.iter().find(|(at, _)| other.id == table.id && *at == column).map(|(_, ty)| *ty)
            };
            if new_type(child, own).is_none() && new_type(parent, there).is_none() {
                continue;
            }
            let type_of = |other: &Table, column: u16| {
                new_type(other, column).unwrap_or(other.def.columns[usize::from(column)].ty)
            };
            let (a, b) = (&child.def.columns[usize::from(own)], &parent.def.columns[usize::from(there)]);
            check_comparable(&constraint.name, type_of(child, own), &a.name, type_of(parent, there), &b.name)?;
        }
    }
    Ok(())
}

/// Generated columns are over plain ones, and give the same whenever they are computed. `before`: what the table had already.
pub fn check_generated(def: &TableDef, before: Option<&TableDef>, schema: &Arc<Schema>) -> Result<(), Halt> {
    for column in def.columns.iter().filter(|c| c.role == ColumnRole::Generated) {
        let text = column.default.as_deref().unwrap_or("NULL");
        let (expr, over, is_mutable) = bind_over(text, column.ty, def, schema)?;
        let is_same = |old: &ColumnDef| old.role == ColumnRole::Generated && old.default == column.default;
        // A table of before this was asked keeps its columns.
        let is_new = before.is_none_or(|before| !before.columns.iter().any(is_same));
        if is_mutable || is_new && expr.is_stable() {
            return Err(SqlError::new("42P17", "generation expression is not immutable").into());
        }
        if let Some(other) = over.iter().find(|&&c| def.columns[usize::from(c)].role == ColumnRole::Generated) {
            let name = &def.columns[usize::from(*other)].name;
            let message = format!("cannot use generated column \"{name}\" in column generation expression");
            return Err(SqlError::new("42P17", message)
                .with_detail("A generated column cannot reference another generated column.")
                .into());
        }
    }
    Ok(())
}
