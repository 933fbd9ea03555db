//! Which column does a name mean?

use super::names::{RelationName, within_database};
use crate::error::SqlError;
use crate::expr::Expr;
use crate::value::cast::common_type;
use crate::view::{Relation, TABLEOID};
use freshet_engine::catalog::{NamespaceId, Table, TableDef};
use freshet_engine::schema::Type;
use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};
use std::sync::Arc;

/// An identifier as it is looked up: folded to lower case unless quoted.
pub fn fold(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// The name of a column or a constraint, which has one part; `public` before it says nothing.
pub fn relation_name(name: &ObjectName) -> Result<String, SqlError> {
    let mut parts = Vec::with_capacity(name.0.len());
    for part in &name.0 {
        match part {
            ObjectNamePart::Identifier(ident) => parts.push(fold(ident)),
            ObjectNamePart::Function(_) => {
                return Err(SqlError::new("42601", format!("invalid name {name}")));
            }
        }
    }
    within_database(&mut parts, 3)?;
    match parts.len() {
        1 => Ok(parts.remove(0)),
        2 if parts[0] == "public" => Ok(parts.remove(1)),
        2 => Err(SqlError::new("42P01", format!("relation \"{}.{}\" does not exist", parts[0], parts[1]))),
        _ => Err(SqlError::new("42601", format!("improper qualified name (too many dotted names): {name}"))),
    }
}

/// A column of a source.
#[derive(Clone, Debug)]
pub struct ScopeColumn {
    /// Empty: dropped or hidden, in no `*` and found by nobody.
    pub name: String,
    pub ty: Type,
    /// As `Column`'s.
    pub is_computed: bool,
}

impl ScopeColumn {
    pub fn new(name: String, ty: Type) -> ScopeColumn {
        ScopeColumn { name, ty, is_computed: false }
    }
}

/// What one entry of FROM offers.
#[derive(Clone, Debug)]
pub struct ScopeSource {
    /// The alias, or the table's name.
    pub name: String,
    /// The schema of a relation that has no alias.
    pub namespace: Option<NamespaceId>,
    pub table: Option<Arc<Table>>,
    pub columns: Vec<ScopeColumn>,
    /// Columns that `USING` merged into an earlier source's: not in `*`, not found by their bare name.
    pub merged: Vec<u16>,
    /// The columns of a subquery that stands for its table: what follows from the table's keys does not follow here.
    pub derived: bool,
    /// An outer join extends it with nulls where it has no row.
    pub nullable: bool,
    /// A function that gives plain values: its name alone means its column, whatever that is called.
    pub is_scalar: bool,
    /// A column without a name that has a value in every row, of a query that an outer join may extend.
    pub present: Option<u16>,
    /// What the last columns are computed by: those of a view that are no columns of the table which is changed through it.
    pub computed: Vec<Expr>,
}

impl ScopeSource {
    /// Columns of no table, all of them in `*`.
    pub fn of_columns(name: String, columns: Vec<ScopeColumn>) -> ScopeSource {
        let merged = Vec::new();
        ScopeSource {
            name,
            namespace: None,
            table: None,
            columns,
            merged,
            derived: false,
            nullable: false,
            is_scalar: false,
            present: None,
            computed: Vec::new(),
        }
    }

    pub fn of_table(name: String, table: &Arc<Table>) -> ScopeSource {
        ScopeSource { table: Some(table.clone()), ..ScopeSource::of_def(name, &table.def) }
    }

    /// The schema of the relation that it is, whatever it is called.
    fn home(&self) -> Option<NamespaceId> {
        let of_table = || self.table.as_ref().filter(|_| !self.derived).map(|table| table.def.namespace);
        self.namespace.or_else(of_table)
    }

    /// A table in FROM, or as the target of a change.
    pub fn of_relation(table: &Arc<Table>, alias: Option<String>) -> ScopeSource {
        match alias {
            None => ScopeSource::of_table(table.def.name.clone(), table),
            Some(alias) => ScopeSource { namespace: None, ..ScopeSource::of_table(alias, table) },
        }
    }

    /// The columns of a table that need not be there yet.
    pub fn of_def(name: String, def: &TableDef) -> ScopeSource {
        let columns = def.columns.iter().map(|c| {
            let name = if c.is_visible() { c.name.clone() } else { String::new() };
            ScopeColumn::new(name, c.ty)
        });
        ScopeSource { namespace: Some(def.namespace), ..ScopeSource::of_columns(name, columns.collect()) }
    }

    pub fn of_view(name: String, view: &Relation) -> ScopeSource {
        let columns = view.every_column().map(|(name, ty)| ScopeColumn::new(name.to_owned(), ty));
        ScopeSource { merged: hidden_of_view(view), ..ScopeSource::of_columns(name, columns.collect()) }
    }
}

/// The columns that `*` does not mean, though they have names.
pub fn hidden_of_view(view: &Relation) -> Vec<u16> {
    (view.columns().len()..view.every_column().count()).map(|at| at as u16).collect()
}

/// A source, as a reference to it or to a column of it names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceName {
    /// With a schema it is the relation itself, not what an alias calls so.
    pub relation: RelationName,
    /// The schema, if it is there.
    pub namespace: Option<NamespaceId>,
    /// Of a view that was kept, in which something was renamed since: an alias stands for the relation, whatever schema it had.
    pub is_lenient: bool,
}

impl SourceName {
    /// Without a schema.
    pub fn bare(name: String) -> SourceName {
        SourceName { relation: RelationName { namespace: None, name }, namespace: None, is_lenient: false }
    }

    pub fn leniently(&self) -> SourceName {
        SourceName { is_lenient: true, ..self.clone() }
    }

    fn means(&self, source: &ScopeSource) -> bool {
        let is_there = match self.is_lenient {
            true => source.namespace.is_none(),
            false => self.namespace.is_some() && source.namespace == self.namespace,
        };
        source.name == self.relation.name && (self.relation.namespace.is_none() || is_there)
    }
}

/// A column found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    pub source: u16,
    pub column: u16,
    pub ty: Type,
}

/// Whose value a column has that USING merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MergedOf {
    /// An inner join's: they are equal.
    Either,
    Left,
    Right,
    /// A full join's: what either has.
    Both,
}

/// A pair of columns that USING merged, and what became of them.
#[derive(Clone, Copy, Debug)]
pub struct Merged {
    pub left: Found,
    pub right: Found,
    /// The type that both have in common.
    pub ty: Type,
    pub of: MergedOf,
}

impl Merged {
    pub fn new(left: Found, right: Found, of: MergedOf) -> Result<Merged, SqlError> {
        let ty = common_type("JOIN/USING", &[Some(left.ty), Some(right.ty)])?;
        let of = match of {
            // One that needs no conversion.
            MergedOf::Either if left.ty != ty && right.ty == ty => MergedOf::Right,
            MergedOf::Either => MergedOf::Left,
            of => of,
        };
        Ok(Merged { left, right, ty, of })
    }

    /// The column that it shows, which may be of another type.
    pub fn kept(&self) -> Found {
        if self.of == MergedOf::Right { self.right } else { self.left }
    }

    /// The column that it does not show.
    pub fn hidden(&self) -> Found {
        if self.of == MergedOf::Right { self.left } else { self.right }
    }

    /// Whether it is a column of neither side.
    pub fn is_made(&self) -> bool {
        self.of == MergedOf::Both || self.kept().ty != self.ty
    }
}

/// The sources that names are looked up in.
#[derive(Clone, Default, Debug)]
pub struct Scope {
    pub sources: Vec<ScopeSource>,
    /// What `*` shows before all else of their item of FROM: the columns that USING merged.
    pub first: Vec<Found>,
    /// The same of joins in parentheses that do not begin their item: what `*` shows before all else of them, with their first source.
    pub first_within: Vec<(u16, Vec<Found>)>,
    /// The first source of each of FROM's items, which commas part.
    pub items: Vec<u16>,
}

impl Scope {
    pub fn of_table(table: &Arc<Table>, alias: Option<String>) -> Scope {
        Scope { sources: vec![ScopeSource::of_relation(table, alias)], ..Scope::default() }
    }

    pub fn add(&mut self, source: ScopeSource) -> Result<u16, SqlError> {
        // Relations of different schemas are told apart by those, even where an alias of the same name stands before one: a view that is kept has such.
        let is_same = |s: &ScopeSource| {
            let (own, other) = (s.home(), source.home());
            s.name == source.name && (own.is_none() || other.is_none() || own == other)
        };
        if self.sources.iter().any(is_same) {
            return Err(SqlError::new("42712", format!("table name \"{}\" specified more than once", source.name)));
        }
        self.sources.push(source);
        Ok(self.sources.len() as u16 - 1)
    }

    /// What is added from now on is another item of FROM.
    pub fn begin_item(&mut self) {
        self.items.push(self.sources.len() as u16);
    }

    /// The scope without what stands before `first`: its sources keep their numbers and lose their names.
    pub fn behind(&self, first: usize) -> Scope {
        let mut scope = self.clone();
        for source in scope.sources.iter_mut().take(first) {
            source.name = String::new();
            source.columns.clear();
        }
        let is_behind = |found: &Found| usize::from(found.source) >= first;
        scope.first.retain(is_behind);
        scope.first_within.iter_mut().for_each(|(_, within)| within.retain(is_behind));
        scope
    }

    /// Notes the columns that USING merged, in its order.
    pub fn merge_first(&mut self, merged: Vec<Found>) {
        let before = std::mem::take(&mut self.first);
        let hidden = |f: &Found| self.sources[usize::from(f.source)].merged.contains(&f.column);
        let kept: Vec<Found> = before.into_iter().filter(|f| !merged.contains(f) && !hidden(f)).collect();
        self.first = merged;
        self.first.extend(kept);
    }

    /// Whether USING merged it into another.
    fn is_hidden(&self, found: &Found) -> bool {
        self.sources[usize::from(found.source)].merged.contains(&found.column)
    }

    /// Whether `*` shows all of the source's columns before all else.
    pub fn is_first(&self, source: u16) -> bool {
        let named = self.sources[usize::from(source)].columns.iter().filter(|column| !column.name.is_empty()).count();
        self.first.iter().filter(|found| found.source == source).count() == named
    }

    /// The columns of `*` in their order.
    pub fn all(&self) -> Vec<Found> {
        let mut all = Vec::new();
        for (i, source) in self.sources.iter().enumerate() {
            let i = i as u16;
            if i == 0 || self.items.contains(&i) {
                let end = self.items.iter().find(|begin| **begin > i).copied().unwrap_or(u16::MAX);
                all.extend(self.first.iter().filter(|found| (i..end).contains(&found.source)));
            }
            let is_shown = |found: &&Found| !self.is_hidden(found) && !self.first.contains(found);
            let within = self.first_within.iter().filter(|(begin, _)| *begin == i).flat_map(|(_, first)| first);
            for found in within.filter(is_shown) {
                if !all.contains(found) {
                    all.push(*found);
                }
            }
            for (j, column) in source.columns.iter().enumerate() {
                let found = Found { source: i, column: j as u16, ty: column.ty };
                let is_before =
                    self.first.contains(&found) || self.first_within.iter().any(|(_, f)| f.contains(&found));
                if !(column.name.is_empty() || self.is_hidden(&found) || is_before) {
                    all.push(found);
                }
            }
        }
        all
    }

    /// A bare column name.
    pub fn column(&self, name: &str) -> Result<Found, SqlError> {
        let mut found = None;
        for (i, source) in self.sources.iter().enumerate() {
            for (j, column) in source.columns.iter().enumerate() {
                let is_merged = source.merged.contains(&(j as u16)) && name != TABLEOID;
                if column.name != name || is_merged {
                    continue;
                }
                if found.is_some() {
                    return Err(SqlError::new("42702", format!("column reference \"{name}\" is ambiguous")));
                }
                found = Some(Found { source: i as u16, column: j as u16, ty: column.ty });
            }
        }
        found = found.or_else(|| self.scalar(name));
        found.ok_or_else(|| SqlError::new("42703", format!("column \"{name}\" does not exist")))
    }

    /// The value of a function in FROM that is called so.
    fn scalar(&self, name: &str) -> Option<Found> {
        let source = self.source(name).ok()?;
        let of = &self.sources[usize::from(source)];
        let column = of.columns.first().filter(|_| of.is_scalar)?;
        Some(Found { source, column: 0, ty: column.ty })
    }

    /// `qualifier.name`.
    pub fn qualified(&self, qualifier: &SourceName, name: &str) -> Result<Found, SqlError> {
        let source = self.source_named(qualifier)?;
        let columns = &self.sources[usize::from(source)].columns;
        let mut named = columns.iter().enumerate().filter(|(_, column)| column.name == name);
        match (named.next(), named.next()) {
            (Some((column, of)), None) => Ok(Found { source, column: column as u16, ty: of.ty }),
            (Some(_), Some(_)) => Err(SqlError::new("42702", format!("column reference \"{name}\" is ambiguous"))),
            (None, _) => {
                let qualifier = &qualifier.relation.name;
                Err(SqlError::new("42703", format!("column {qualifier}.{name} does not exist")))
            }
        }
    }

    /// The table whose `tableoid` is meant, where no column is called so.
    pub fn tableoid(&self, source: Option<&SourceName>, name: &str) -> Result<Option<&Arc<Table>>, SqlError> {
        if name != TABLEOID {
            return Ok(None);
        }
        let is_meant = |of: &&ScopeSource| source.is_none_or(|source| source.means(of));
        let mut stored =
            self.sources.iter().filter(is_meant).filter(|source| !source.derived && source.table.is_some());
        match (stored.next(), stored.next()) {
            (Some(source), None) if source.nullable => {
                Err(SqlError::unsupported("the tableoid of a relation that an outer join extends"))
            }
            (Some(source), None) => Ok(source.table.as_ref()),
            // Of several none, as in PostgreSQL: there is no such column.
            (None, _) | (Some(_), Some(_)) => Ok(None),
        }
    }

    /// The source of this name.
    pub fn source(&self, qualifier: &str) -> Result<u16, SqlError> {
        self.source_named(&SourceName::bare(qualifier.to_owned()))
    }

    pub fn source_named(&self, named: &SourceName) -> Result<u16, SqlError> {
        let name = &named.relation.name;
        let meant = || self.sources.iter().enumerate().filter(|(_, source)| named.means(source));
        let is_home = |source: &ScopeSource| named.is_lenient && source.home() == named.namespace;
        let at_home = || meant().filter(|(_, source)| is_home(source)).map(|(at, _)| at as u16);
        let mut all = meant().map(|(at, _)| at as u16);
        match (all.next(), all.next()) {
            (Some(source), None) => Ok(source),
            (Some(_), Some(_)) => match (at_home().next(), at_home().nth(1)) {
                (Some(source), None) => Ok(source),
                _ => Err(SqlError::new("42P09", format!("table reference \"{name}\" is ambiguous"))),
            },
            (None, _) if self.sources.iter().any(|source| source.name == *name) => {
                Err(SqlError::new("42P01", format!("invalid reference to FROM-clause entry for table \"{name}\"")))
            }
            (None, _) => Err(SqlError::new("42P01", format!("missing FROM-clause entry for table \"{name}\""))),
        }
    }

    /// The expression that reads a column.
    pub fn expr(&self, found: Found) -> Expr {
        let source = &self.sources[usize::from(found.source)];
        let stored = source.columns.len() - source.computed.len();
        if let Some(computed) = usize::from(found.column).checked_sub(stored).and_then(|at| source.computed.get(at)) {
            return computed.clone();
        }
        match source.table {
            Some(_) => Expr::Column { source: found.source, column: found.column },
            None => Expr::Cell { source: found.source, column: found.column },
        }
    }
}
