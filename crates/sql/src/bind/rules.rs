//! Which rules does a change of a table have to keep? From the catalog's definitions to bound expressions and foreign keys.

use super::names::namespace_name;
use super::scope::Scope;
use super::{Bind, Binder, Refusal};
use crate::compiled::rules::{Check, Child, DeferrableKey, Event, Parent, Rules};
use crate::error::SqlError;
use crate::expr::Expr;
use crate::value::cast::CastContext;
use freshet_engine::catalog::{ConstraintKind, ForeignKey, Index, IndexKind, Schema, Table};
use freshet_engine::schema::Type;
use std::sync::Arc;

impl Binder<'_> {
    /// `None`: the table has no rules for this. `sets`: the columns that an update sets.
    pub fn rules(&mut self, table: &Arc<Table>, event: Event, sets: &[u16]) -> Bind<Option<Arc<Rules>>> {
        let has_checks = event != Event::Delete && self.through.as_ref().is_some_and(|t| !t.checks.is_empty());
        let is_free = !has_checks
            && table.def.constraints.is_empty()
            && !table.def.columns.iter().any(|c| c.is_computed())
            && !table.indexes.iter().any(|i| i.def.deferrable)
            && (event == Event::Insert || self.schema.references(table.id).next().is_none());
        if is_free {
            return Ok(None);
        }
        let sets = (event == Event::Update).then_some(sets);
        let (mut rules, uses_clock) = rules_with_uses(table, self.schema, event, sets)?;
        // What its children compute when they follow is not looked into.
        self.uses_clock |= uses_clock || !rules.children.is_empty();
        if has_checks {
            self.add_view_checks(&mut rules)?;
        }
        let is_empty = rules.computed.is_empty()
            && rules.checks.is_empty()
            && rules.keys.is_empty()
            && rules.view_checks.is_empty()
            && rules.parents.is_empty()
            && rules.children.is_empty();
        Ok((!is_empty).then(|| Arc::new(rules)))
    }

    /// What the views that the change goes through ask of the written row.
    fn add_view_checks(&mut self, rules: &mut Rules) -> Bind<()> {
        // A subquery is the other road's, and none of a row's checks.
        let beyond = self.beyond.take();
        let asked = self.through.as_ref().map(|through| through.checks.clone()).unwrap_or_default();
        for (name, condition, scope) in asked {
            let condition = self.condition(&condition, "WHERE", &scope).map_err(without_position)?;
            note_long(rules, &condition);
            rules.view_checks.push(Check { name, condition });
        }
        self.beyond = beyond;
        Ok(())
    }
}

/// The rules for any change of this kind, or for an update of `sets` only.
pub fn rules_of(
    table: &Arc<Table>,
    schema: &Arc<Schema>,
    event: Event,
    sets: Option<&[u16]>,
) -> Result<Rules, SqlError> {
    rules_with_uses(table, schema, event, sets).map(|(rules, _)| rules).map_err(plain)
}

pub fn plain(refusal: Refusal) -> SqlError {
    match refusal {
        Refusal::Error(error) => error,
        Refusal::NotCompiled { what, .. } => SqlError::unsupported(what),
    }
}

/// A default as an expression of the column's type.
pub fn default_expr(text: &str, ty: Type, schema: &Arc<Schema>) -> Result<Expr, SqlError> {
    super::expr::default_of(text, ty, schema).map(|(expr, _)| expr).map_err(plain)
}

/// An expression over a table's columns, as the type.
pub fn table_expr(text: &str, ty: Type, table: &Arc<Table>, schema: &Arc<Schema>) -> Bind<(Expr, bool)> {
    let ast = crate::parse::parse_expression(text)?;
    let mut binder = Binder::new(text, schema, &[]);
    let bound = binder.bind(&ast, &Scope::of_table(table, None)).map_err(without_position)?;
    let expr = binder.coerce(bound, ty, CastContext::Assignment).map_err(without_position)?;
    if !binder.parameters.is_empty() {
        return Err(SqlError::new("42P02", "there is no parameter $1").into());
    }
    Ok((expr, binder.uses_clock))
}

/// The text is the catalog's, not the statement's.
fn without_position(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Error(mut error) => {
            error.position = None;
            Refusal::Error(error)
        }
        Refusal::NotCompiled { what, .. } => SqlError::unsupported(what).into(),
    }
}

fn rules_with_uses(
    table: &Arc<Table>,
    schema: &Arc<Schema>,
    event: Event,
    sets: Option<&[u16]>,
) -> Bind<(Rules, bool)> {
    let mut rules = Rules {
        table: table.clone(),
        namespace: namespace_name(schema, table.def.namespace),
        tables: vec![Some(table.clone())],
        computed: Vec::new(),
        not_null: Vec::new(),
        checks: Vec::new(),
        view_checks: Vec::new(),
        long_columns: Vec::new(),
        keys: Vec::new(),
        parents: Vec::new(),
        children: Vec::new(),
    };
    let mut uses_clock = false;
    let mut changed: Option<Vec<u16>> = sets.map(<[u16]>::to_vec);
    if event != Event::Delete {
        // Generated columns first: hidden ones may be over them.
        let hidden = |&at: &usize| table.def.columns[at].role == freshet_engine::catalog::ColumnRole::Hidden;
        let computed = (0..table.def.columns.len()).filter(|&at| table.def.columns[at].is_computed());
        let (last, first): (Vec<usize>, Vec<usize>) = computed.partition(hidden);
        for at in first.into_iter().chain(last) {
            uses_clock |= add_computed(&mut rules, schema, at, &mut changed)?;
        }
        for constraint in &table.def.constraints {
            match &constraint.kind {
                // Where rows may break it, it has not been asked of what stays.
                ConstraintKind::Check { condition, columns } if !constraint.validated || touches(&changed, columns) => {
                    let (condition, uses) = table_expr(condition, Type::Bool, table, schema)?;
                    uses_clock |= uses;
                    note_long(&mut rules, &condition);
                    rules.checks.push(Check { name: constraint.name.clone(), condition });
                }
                ConstraintKind::Foreign(key) if touches(&changed, &key.columns) => {
                    rules.parents.push(parent_of(schema, constraint.id, &constraint.name, key)?);
                }
                _ => {}
            }
        }
        for index in table.indexes.iter().filter(|index| index.def.deferrable) {
            let columns: Vec<u16> = index.def.columns.iter().map(|c| c.column).collect();
            if touches(&changed, &columns) {
                rules.keys.push(DeferrableKey { id: index.def.constraint, index: index.clone(), columns });
            }
        }
        // PostgreSQL checks in the order of names.
        rules.checks.sort_by(|a, b| a.name.cmp(&b.name));
    }
    if event != Event::Insert {
        for (child, constraint, key) in schema.references(table.id) {
            if event == Event::Delete || touches(&changed, &key.parent_columns) {
                rules.children.push(child_of(table, child, constraint.id, &constraint.name, key)?);
            }
        }
    }
    Ok((rules, uses_clock))
}

fn touches(changed: &Option<Vec<u16>>, columns: &[u16]) -> bool {
    // A check that names no column is checked with every change.
    changed.as_ref().is_none_or(|changed| columns.is_empty() || columns.iter().any(|c| changed.contains(c)))
}

fn add_computed(rules: &mut Rules, schema: &Arc<Schema>, at: usize, changed: &mut Option<Vec<u16>>) -> Bind<bool> {
    let table = rules.table.clone();
    let def = &table.def.columns[at];
    let text = def.default.as_deref().unwrap_or("NULL");
    let (expr, uses_clock) = table_expr(text, def.ty, &table, schema)?;
    let mut columns = Vec::new();
    expr.walk(&mut |e| {
        if let Expr::Column { column, .. } = e {
            columns.push(*column);
        }
        true
    });
    if !touches(changed, &columns) {
        return Ok(false);
    }
    changed.iter_mut().for_each(|changed| changed.push(at as u16));
    note_long(rules, &expr);
    if def.not_null {
        rules.not_null.push(at as u16);
    }
    rules.computed.push((at as u16, expr));
    Ok(uses_clock)
}

fn note_long(rules: &mut Rules, expr: &Expr) {
    super::change::add_long_columns(&rules.table, expr, &mut rules.long_columns);
}

fn parent_of(schema: &Schema, id: u32, name: &str, key: &ForeignKey) -> Bind<Parent> {
    let broken = || SqlError::new("XX000", format!("the foreign key {name} leads nowhere"));
    let table = schema.table_by_id(key.parent).ok_or_else(broken)?;
    let index = table.indexes.iter().find(|i| i.id == key.parent_index).ok_or_else(broken)?;
    let mut order = Vec::with_capacity(key.columns.len());
    for column in &index.def.columns {
        order.push(key.parent_columns.iter().position(|&c| c == column.column).ok_or_else(broken)?);
    }
    Ok(Parent {
        id,
        name: name.to_owned(),
        columns: key.columns.clone(),
        table: table.clone(),
        index: index.clone(),
        order,
        full: key.full,
        deferrable: key.deferrable,
        deferred: key.deferred,
    })
}

fn child_of(parent: &Arc<Table>, child: &Arc<Table>, id: u32, name: &str, key: &ForeignKey) -> Bind<Child> {
    let is_char = |table: &Table, column: u16| matches!(table.layout.column_type(usize::from(column)), Type::Char(_));
    let pairs = key.columns.iter().zip(&key.parent_columns);
    let padded: Vec<bool> = pairs.map(|(&own, &there)| is_char(parent, there) && !is_char(child, own)).collect();
    // Texts that differ in blanks lie at different places.
    let mut indexes = child.indexes.iter().filter(|_| !padded.contains(&true));
    let index = indexes.find_map(|index| order_in(index, &key.columns).map(|order| (index.clone(), order)));
    let rests_on = parent.indexes.iter().find(|i| i.id == key.parent_index);
    let rests_on = rests_on.ok_or_else(|| SqlError::new("XX000", format!("the foreign key {name} leads nowhere")))?;
    Ok(Child {
        id,
        name: name.to_owned(),
        columns: key.parent_columns.clone(),
        table: child.clone(),
        child_columns: key.columns.clone(),
        index,
        key: rests_on.clone(),
        on_update: key.on_update,
        on_delete: key.on_delete,
        delete_columns: key.delete_columns.clone(),
        padded,
        deferrable: key.deferrable,
        deferred: key.deferred,
    })
}

/// For each column of the index, which of `columns` it is, if the index finds rows by all of these.
fn order_in(index: &Index, columns: &[u16]) -> Option<Vec<Option<usize>>> {
    let order = index.def.columns.iter().map(|c| columns.iter().position(|&column| column == c.column));
    let order: Vec<Option<usize>> = order.collect();
    let leading = order.iter().take_while(|at| at.is_some()).count();
    let is_whole = leading == columns.len() && order.iter().skip(leading).all(Option::is_none);
    let serves = match index.def.kind {
        IndexKind::Hash => is_whole && order.len() == columns.len(),
        IndexKind::BTree => is_whole,
    };
    serves.then_some(order)
}
