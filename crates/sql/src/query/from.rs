//! What do FROM, WITH and the set operations that compare rows read?

use super::apply::Kind;
use super::called::Called;
use super::cells::{Writer, data_type};
use super::convert::{Leaf, key, lit};
use super::iterate;
use super::plan::{
    Cte, FromRel, Halves, Output, Pending, PerRow, Planner, Reached, Rel, as_unsupported, df, numbered_name, output,
    refuse, subquery_of,
};
use super::walks::{Walked, walked};
use crate::bind::change::is_change;
use crate::bind::expr::Bound;
use crate::bind::from::{alias_parts, check_condition, left_of_using, rename, right_of_using, within_from};
use crate::bind::names::{RelationName, alias_of_source, is_of_view};
use crate::bind::record::must_compare;
use crate::bind::scope::{
    Found, Merged, MergedOf, Scope, ScopeColumn, ScopeSource, fold, hidden_of_view, relation_name,
};
use crate::bind::{Bind, Binder, PLACEHOLDERS, locks_for};
use crate::define::view::tables_of;
use crate::error::SqlError;
use crate::expr::Expr;
use crate::parse::{Walk, columns_and_alias, walk_of};
use crate::value::Datum;
use crate::value::operator::BinaryOp;
use crate::view::{Cells, Relation};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, Schema as ArrowSchema};
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::catalog::default_table_source::{DefaultTableSource, provider_as_source};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column as DfColumn, JoinType, NullEquality, NullHandling, TableReference};
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{Expr as DfExpr, LogicalPlan, LogicalPlanBuilder, TableScan};
use freshet_engine::catalog::Schema;
use freshet_engine::schema::Type;
use sqlparser::ast::{
    self, FunctionArg, Join, JoinConstraint, JoinOperator, ObjectName, SetExpr, TableAlias, TableFactor, TableWithJoins,
};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A left join of a source by a condition with a query in it, or of a function, as one with the rows of the source that meet the condition: found for
/// each row before it, as the query is.
fn asking_join(join: &Join) -> Bind<Option<Join>> {
    let Join { relation, global, join_operator } = join;
    let (JoinOperator::Left(JoinConstraint::On(condition)) | JoinOperator::LeftOuter(JoinConstraint::On(condition))) =
        join_operator
    else {
        return Ok(None);
    };
    let is_function = match relation {
        TableFactor::Table { args, .. } => args.is_some(),
        TableFactor::Function { .. } | TableFactor::UNNEST { .. } => true,
        _ => false,
    };
    let name = match relation {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. } => Some(&alias.name),
        TableFactor::Table { name, alias: None, args: None, .. } => name.0.last().and_then(|part| part.as_ident()),
        TableFactor::Derived { lateral: false, alias: Some(alias), .. } => Some(&alias.name),
        _ => None,
    };
    let Some(name) = name.filter(|_| is_function || crate::parse::has_query(condition)) else { return Ok(None) };
    let text = format!("SELECT * FROM {relation} WHERE {condition}");
    let Some(subquery) = crate::parse::parse(&text)?.query() else { return Ok(None) };
    let alias = TableAlias { explicit: true, name: name.clone(), columns: Vec::new(), at: None };
    let relation = TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None };
    let always = JoinConstraint::On(ast::Expr::value(ast::Value::Boolean(true)));
    Ok(Some(Join { relation, global: *global, join_operator: JoinOperator::LeftOuter(always) }))
}

/// The columns that USING merged are a source of their own, too, if they are named: `x.a` and `x.*` mean them, `*` and `a` do not.
fn name_merged(item: &mut FromRel, join: &Join) -> Bind<()> {
    let (JoinOperator::Join(constraint)
    | JoinOperator::Inner(constraint)
    | JoinOperator::Left(constraint)
    | JoinOperator::LeftOuter(constraint)
    | JoinOperator::Right(constraint)
    | JoinOperator::RightOuter(constraint)
    | JoinOperator::FullOuter(constraint)) = &join.join_operator
    else {
        return Ok(());
    };
    let JoinConstraint::Using(columns) = constraint else { return Ok(()) };
    let (columns, Some(alias)) = columns_and_alias(columns) else { return Ok(()) };
    let merged = &item.scope.first[..columns.len()];
    let place = |found: &Found| (usize::from(found.source), usize::from(found.column));
    let column = |found: &Found| {
        let (source, column) = place(found);
        item.scope.sources[source].columns[column].clone()
    };
    let named: Vec<ScopeColumn> = merged.iter().map(column).collect();
    let leaves = merged.iter().map(place).map(|(source, column)| item.sources[source][column].clone()).collect();
    let mut source = ScopeSource::of_columns(alias.to_owned(), named);
    source.merged = (0..columns.len() as u16).collect();
    item.scope.add(source)?;
    item.sources.push(leaves);
    Ok(())
}

/// The names of the columns that `*` shows.
fn shown_names(scope: &Scope) -> Vec<String> {
    let name = |f: Found| scope.sources[usize::from(f.source)].columns[usize::from(f.column)].name.clone();
    scope.all().into_iter().map(name).collect()
}

fn is_true(condition: &Expr) -> bool {
    match condition {
        Expr::Const(Datum::Bool(true)) => true,
        Expr::And(parts) => parts.iter().all(is_true),
        _ => false,
    }
}

/// What holds of every row, and is not seen to: a full join without a condition is none to DataFusion.
fn always(plan: &LogicalPlan) -> Bind<Vec<DfExpr>> {
    let column = plan.schema().columns().into_iter().next();
    match column.map(DfExpr::Column) {
        Some(column) => Ok(vec![column.clone().is_null().or(column.is_not_null())]),
        None => refuse("a FULL JOIN of rows without columns on a condition that always holds"),
    }
}

/// One entry of FROM before it is joined.
pub(super) struct Entry {
    plan: LogicalPlan,
    /// One, or those of a join in parentheses.
    sources: Vec<(ScopeSource, Vec<Leaf>)>,
    /// What `*` shows first of them, and of joins within them, by their own numbers.
    first: Vec<Found>,
    first_within: Vec<(u16, Vec<Found>)>,
    after: After,
    /// Its rows are computed for each row before it.
    per_row: Option<Box<EachRow>>,
}

/// Rows that are computed for each row of what stands before.
struct EachRow {
    pending: Pending,
    /// The names that the plan's new columns get.
    columns: Vec<DfColumn>,
}

impl Entry {
    pub(super) fn of(plan: LogicalPlan, source: ScopeSource, leaves: Vec<Leaf>) -> Entry {
        Entry {
            plan,
            sources: vec![(source, leaves)],
            first: Vec::new(),
            first_within: Vec::new(),
            after: After::Beside,
            per_row: None,
        }
    }

    /// Which column of its one source has a value in every row.
    fn told_by(mut self, present: Option<u16>) -> Entry {
        if let [(source, _)] = self.sources.as_mut_slice() {
            source.present = present;
        }
        self
    }

    pub(super) fn placed(self, after: After) -> Entry {
        Entry { after, ..self }
    }

    /// Adds its sources to those before it.
    fn add_to(&mut self, item: &mut FromRel) -> Bind<()> {
        let offset = item.scope.sources.len() as u16;
        for (source, leaves) in std::mem::take(&mut self.sources) {
            item.scope.add(source)?;
            item.sources.push(leaves);
        }
        let shifted = |first: &[Found]| -> Vec<Found> {
            first.iter().map(|f| Found { source: f.source + offset, ..*f }).collect()
        };
        match item.scope.items.last() == Some(&offset) {
            true => item.scope.first.extend(shifted(&self.first)),
            false if self.first.is_empty() => {}
            false => item.scope.first_within.push((offset, shifted(&self.first))),
        }
        let within = self.first_within.iter().map(|(begin, first)| (begin + offset, shifted(first)));
        item.scope.first_within.extend(within);
        Ok(())
    }
}

/// How an entry stands to what is before it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// By itself: it is joined.
    Beside,
    /// A subquery for each row before it.
    Lateral,
    /// Its plan has the rows before it already: they were expanded by a function of their columns.
    Expanded,
}

impl Planner<'_> {
    pub fn from(&self, binder: &mut Binder<'_>, list: &[TableWithJoins]) -> Bind<FromRel> {
        let nothing = df(LogicalPlanBuilder::empty(true).build())?;
        let start = FromRel { plan: nothing, scope: Scope::default(), sources: Vec::new(), halves: None };
        self.relation_after(binder, start, list)
    }

    /// FROM behind sources that are there already.
    pub fn relation_after(&self, binder: &mut Binder<'_>, start: FromRel, list: &[TableWithJoins]) -> Bind<FromRel> {
        let mut all = start;
        for TableWithJoins { relation, joins } in list {
            let first = all.sources.len();
            let mut item = FromRel { plan: all.plan.clone(), ..all.clone() };
            item.scope.begin_item();
            let mut entry = self.factor(binder, relation, &item, NullHandling::Drop)?;
            let beside = entry.after == After::Beside && entry.per_row.is_none();
            entry.add_to(&mut item)?;
            item.plan = match entry.per_row.take() {
                Some(each) => self.each_row(all.plan.clone(), *each)?,
                None if entry.after == After::Lateral => {
                    df(df(LogicalPlanBuilder::from(all.plan.clone()).cross_join(entry.plan))?.build())?
                }
                None => entry.plan,
            };
            // What is computed for each row before it needs those of the items before this one, too.
            let follows = first > 0 && beside && joins.iter().any(is_lateral) && joins.iter().all(keeps_left);
            if follows {
                let (before, beside) = (all.plan.clone(), item.plan);
                item.plan = crossed(before.clone(), beside.clone())?;
                item.halves = Some(Halves { before, beside, first: first as u16 });
            }
            for join in joins {
                self.join(binder, &mut item, join, if beside { first } else { 0 })?;
                item.halves = None;
            }
            if first > 0 && beside && !follows {
                item.plan = df(df(LogicalPlanBuilder::from(all.plan).cross_join(item.plan))?.build())?;
            }
            all = item;
        }
        Ok(all)
    }

    fn factor(
        &self,
        binder: &mut Binder<'_>,
        factor: &TableFactor,
        before: &FromRel,
        nulls: NullHandling,
    ) -> Bind<Entry> {
        let TableFactor::Derived { alias: Some(alias), .. } = factor else {
            return self.unqualified_factor(binder, factor, before, nulls);
        };
        let around = binder.is_kept;
        binder.is_kept |= is_of_view(&alias.name);
        let entry = self.unqualified_factor(binder, factor, before, nulls);
        binder.is_kept = around;
        let mut entry = entry?;
        entry.sources[0].0.namespace = alias_of_source(&alias.name).1;
        Ok(entry)
    }

    fn unqualified_factor(
        &self,
        binder: &mut Binder<'_>,
        factor: &TableFactor,
        before: &FromRel,
        nulls: NullHandling,
    ) -> Bind<Entry> {
        match factor {
            TableFactor::Table {
                name,
                alias,
                args,
                with_hints,
                version: None,
                with_ordinality,
                partitions,
                json_path: None,
                sample: None,
                index_hints,
            } if with_hints.is_empty() && partitions.is_empty() && index_hints.is_empty() => match args {
                None if !with_ordinality => self.named(binder, name, alias.as_ref(), nulls),
                Some(ast::TableFunctionArgs { args, settings: None }) => {
                    let call = Called { name, args, ordinality: *with_ordinality, alias: alias.as_ref() };
                    self.called(binder, &call, before, nulls)
                }
                _ => refuse(format!("the source {factor}")),
            },
            TableFactor::Function { lateral: _, name, args, with_ordinality, alias } => {
                let call = Called { name, args, ordinality: *with_ordinality, alias: alias.as_ref() };
                self.called(binder, &call, before, nulls)
            }
            TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset: false,
                with_offset_alias: None,
                with_ordinality,
            } => {
                let arg = |e: &ast::Expr| FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e.clone()));
                let args: Vec<FunctionArg> = array_exprs.iter().map(arg).collect();
                let name = ObjectName::from(vec![ast::Ident::new("unnest")]);
                let call = Called { name: &name, args: &args, ordinality: *with_ordinality, alias: alias.as_ref() };
                self.called(binder, &call, before, nulls)
            }
            TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None }
                if nulls == NullHandling::Drop
                    && let Some(values) = values_alone(subquery) =>
            {
                self.values_beside(binder, values, alias, before)
            }
            TableFactor::Derived { lateral, subquery, alias, sample: None } => {
                let (name, names) = alias_parts(alias.as_ref()).map_err(as_unsupported)?;
                let Some(name) = name else {
                    return Err(SqlError::new("42601", "subquery in FROM must have an alias").into());
                };
                if *lateral && self.per_row {
                    let (scope, sources) = (before.scope.clone(), before.sources.clone());
                    let (rel, per_row) =
                        self.per_row_query(binder, &scope, sources, |binder| self.query(binder, subquery))?;
                    let (rel, present) = self.with_presence(rel, nulls)?;
                    let entry = match per_row.slots.is_empty() {
                        true => self.entry(rel, name, names, false),
                        false => self.lateral_entry(rel, per_row, name, names),
                    };
                    return entry.map(|entry| entry.told_by(present));
                }
                if let Some(entry) = self.locked_table(binder, subquery, &name, &names)? {
                    return Ok(entry);
                }
                let locked = binder.locked_derived(subquery, &name);
                let subquery = locked.as_ref().unwrap_or(subquery);
                let rel = match lateral {
                    false => self.query(binder, subquery)?,
                    true => self.correlated(binder, &before.scope, before.sources.clone(), |binder| {
                        self.query(binder, subquery)
                    })?,
                };
                if *lateral {
                    self.note_unjoinable(&rel)?;
                }
                let (rel, present) = self.with_presence(rel, nulls)?;
                self.entry(rel, name, names, *lateral).map(|entry| entry.told_by(present))
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } if table_with_joins.joins.is_empty() => {
                self.factor(binder, &table_with_joins.relation, before, nulls)
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                let inner = self.from(binder, std::slice::from_ref(table_with_joins.as_ref()))?;
                match alias {
                    None => {
                        let (first, first_within) = (inner.scope.first.clone(), inner.scope.first_within.clone());
                        let sources = inner.scope.sources.into_iter().zip(inner.sources).collect();
                        let after = After::Beside;
                        Ok(Entry { plan: inner.plan, sources, first, first_within, after, per_row: None })
                    }
                    Some(alias) => self.named_join(inner, alias),
                }
            }
            other => refuse(format!("the source {other}")),
        }
    }

    /// A subquery whose table is to be locked in the query around it; `None`: it is more than a table, or nothing is locked.
    fn locked_table(
        &self,
        binder: &mut Binder<'_>,
        query: &ast::Query,
        name: &str,
        names: &[String],
    ) -> Bind<Option<Entry>> {
        if locks_for(&binder.locking, name).is_empty() || self.reads_with(query) {
            return Ok(None);
        }
        let beyond = binder.beyond.take();
        let flat = binder.flat_source(query, name, names);
        binder.beyond = beyond;
        let Ok(Some((source, conditions))) = flat else { return Ok(None) };
        let table = source.table.clone().expect("invariant: it stands for a table");
        let (mut plan, leaves) = self.table(&table, name)?;
        let own = vec![leaves.clone()];
        for condition in conditions {
            plan = self.filter(plan, &condition, &own)?;
        }
        Ok(Some(Entry::of(plan, source, leaves)))
    }

    /// A join in parentheses with a name of its own.
    fn named_join(&self, inner: FromRel, alias: &TableAlias) -> Bind<Entry> {
        let (name, names) = alias_parts(Some(alias)).map_err(as_unsupported)?;
        let name = name.expect("an alias has a name");
        let mut outputs = Vec::new();
        for found in inner.scope.all() {
            let column = &inner.scope.sources[usize::from(found.source)].columns[usize::from(found.column)];
            let leaf = &inner.sources[usize::from(found.source)][usize::from(found.column)];
            outputs.push((leaf.expr.clone(), output(column.name.clone(), leaf.ty)));
        }
        let rel = self.project(inner.plan, outputs, false)?;
        self.entry(rel, name, names, false)
    }

    /// `LATERAL (VALUES (a), (b))`: each row before it as often as there are rows of values, with these.
    fn values_beside(
        &self,
        binder: &mut Binder<'_>,
        values: &ast::Values,
        alias: &TableAlias,
        before: &FromRel,
    ) -> Bind<Entry> {
        let (name, names) = alias_parts(Some(alias)).map_err(as_unsupported)?;
        let name = name.expect("an alias has a name");
        let (rows, types) = self.within(&before.sources, || {
            self.without_sets("VALUES", || binder.value_rows_of(values, &before.scope)).map_err(within_from)
        })?;
        let column = |(at, &ty): (usize, &Type)| ScopeColumn {
            is_computed: true,
            ..ScopeColumn::new(format!("column{}", at + 1), ty)
        };
        let mut source = ScopeSource::of_columns(name, types.iter().enumerate().map(column).collect());
        rename(&mut source, names)?;
        let mentions = |is: &dyn Fn(u16) -> bool| rows.iter().flatten().any(|value| value.mentions(is));
        let is_column = |source: u16| source < PLACEHOLDERS;
        // What is about the items before alone is computed before these meet the others.
        let halves =
            before.halves.as_ref().filter(|halves| !mentions(&|source| is_column(source) && source >= halves.first));
        let is_about = mentions(&is_column);
        let start = match halves {
            _ if !is_about => df(LogicalPlanBuilder::empty(true).build())?,
            Some(halves) => halves.before.clone(),
            None => before.plan.clone(),
        };
        let (start, number) = self.numbered_rows(start, rows.len())?;
        let mut all: Vec<DfExpr> = start.schema().columns().into_iter().map(DfExpr::Column).collect();
        all.retain(|column| Some(column) != number.as_ref());
        let number = number.map(|number| self.given(number, Type::Int4));
        let mut leaves = Vec::with_capacity(types.len());
        for (at, &ty) in types.iter().enumerate() {
            let value = self.of_rows(binder, &rows, at, number.as_ref())?;
            let given = self.with_leaves(&before.sources, |leaves| leaves.convert(&value, ty))?;
            let name = self.unique("value of");
            all.push(given.alias(name.clone()));
            leaves.push(Leaf::new(DfExpr::Column(DfColumn::new_unqualified(name)), ty));
        }
        let mut plan = df(df(LogicalPlanBuilder::from(start).project(all))?.build())?;
        if let Some(halves) = halves.filter(|_| is_about) {
            plan = crossed(plan, halves.beside.clone())?;
        }
        Ok(Entry::of(plan, source, leaves).placed(if is_about { After::Expanded } else { After::Beside }))
    }

    /// Each row of a plan so many times, with a number from 0; `None`: once.
    fn numbered_rows(&self, plan: LogicalPlan, times: usize) -> Bind<(LogicalPlan, Option<DfExpr>)> {
        if times == 1 {
            return Ok((plan, None));
        }
        let rows = (0..times as i64).map(|number| Ok(vec![lit(Type::Int4, &Datum::Int(number))?]));
        let numbers = df(LogicalPlanBuilder::values(rows.collect::<Result<Vec<_>, SqlError>>()?))?;
        let relation = TableReference::bare(self.unique("row of"));
        let numbers = df(df(numbers.alias(relation.clone()))?.build())?;
        let number = DfExpr::Column(DfColumn::new(Some(relation), "column1"));
        Ok((crossed(plan, numbers)?, Some(number)))
    }

    /// The value that a column of VALUES has in the row of this number.
    fn of_rows(
        &self,
        binder: &mut Binder<'_>,
        rows: &[Vec<Expr>],
        column: usize,
        number: Option<&Bound>,
    ) -> Bind<Expr> {
        let Some(number) = number else { return Ok(rows[0][column].clone()) };
        let mut branches = Vec::with_capacity(rows.len());
        for (at, row) in rows.iter().enumerate() {
            let own = Bound::new(Expr::Const(Datum::Int(at as i64)), Type::Int4);
            branches.push((binder.compare(BinaryOp::Eq, number.clone(), own)?.expr, row[column].clone()));
        }
        Ok(Expr::Case { branches, otherwise: None })
    }

    /// A derived table that refers to what stands before it, run for each row of that.
    fn lateral_entry(&self, rel: Rel, per_row: PerRow, name: String, names: Vec<String>) -> Bind<Entry> {
        let types = rel.columns.iter().map(|c| c.ty).collect();
        let columns = rel.columns.iter().map(Output::scope_column).collect();
        let kind = Kind::Lateral { left: false };
        let source = ScopeSource::of_columns(name, columns);
        self.each_entry(source, names, per_row, Some(rel.plan), kind, types)
    }

    fn each_entry(
        &self,
        mut source: ScopeSource,
        names: Vec<String>,
        per_row: PerRow,
        subplan: Option<LogicalPlan>,
        kind: Kind,
        types: Vec<Type>,
    ) -> Bind<Entry> {
        rename(&mut source, names)?;
        let relation = TableReference::bare(self.unique(&source.name));
        let columns: Vec<DfColumn> =
            (0..types.len()).map(|i| DfColumn::new(Some(relation.clone()), format!("c{i}"))).collect();
        let leaves = columns.iter().zip(&types).map(|(c, ty)| Leaf::new(DfExpr::Column(c.clone()), *ty)).collect();
        let pending = Pending::of(self.unique("each"), per_row, subplan, kind, types);
        let nothing = df(LogicalPlanBuilder::empty(true).build())?;
        let mut entry = Entry::of(nothing, source, leaves);
        entry.per_row = Some(Box::new(EachRow { pending, columns }));
        Ok(entry)
    }

    /// The rows of a plan, each beside those that are computed for it.
    fn each_row(&self, plan: LogicalPlan, each: EachRow) -> Bind<LogicalPlan> {
        let EachRow { pending, columns } = each;
        let kept = plan.schema().columns();
        let name = pending.name().to_owned();
        let plan = self.apply_one(plan, pending)?;
        let mut outputs: Vec<DfExpr> = kept.into_iter().map(DfExpr::Column).collect();
        for (i, column) in columns.into_iter().enumerate() {
            let given = DfExpr::Column(DfColumn::new_unqualified(numbered_name(&name, i)));
            outputs.push(given.alias_qualified(column.relation, column.name));
        }
        df(df(LogicalPlanBuilder::from(plan).project(outputs))?.build())
    }

    /// A table, or a common table expression.
    fn named(
        &self,
        binder: &mut Binder<'_>,
        name: &ObjectName,
        alias: Option<&TableAlias>,
        nulls: NullHandling,
    ) -> Bind<Entry> {
        let (alias, names) = alias_parts(alias).map_err(as_unsupported)?;
        let cte = match name.0.as_slice() {
            [ast::ObjectNamePart::Identifier(ident)] => {
                let name = fold(ident);
                let mut state = self.state.borrow_mut();
                let found = state.ctes.iter().rev().find(|cte| cte.name == name);
                let found = found.map(|cte| (cte.name.clone(), cte.rel.clone(), cte.around.clone(), cte.added));
                found.map(|(name, mut rel, around, added)| -> Bind<(String, Rel, usize)> {
                    rel.plan = df(read_again(rel.plan, &mut state.readings))?;
                    state.reached.extend(around.into_iter().map(Reached::ByWith));
                    Ok((name, rel, added))
                })
            }
            _ => None,
        };
        if let Some((name, rel, added)) = cte.transpose()? {
            let width = rel.columns.len() as u16;
            let (rel, present) = self.with_presence(rel, nulls)?;
            let mut entry = self.entry(rel, alias.unwrap_or(name), names, false)?;
            entry.sources[0].0.merged.extend(width - added as u16..width);
            return Ok(entry.told_by(present));
        }
        if let [ast::ObjectNamePart::Identifier(ident)] = name.0.as_slice()
            && self.state.borrow().silent_ctes.contains(&fold(ident))
        {
            let message = format!("WITH query \"{}\" does not have a RETURNING clause", fold(ident));
            return Err(SqlError::new("0A000", message).into());
        }
        if let Some(view) = binder.view(name) {
            let rel = self.view(&view, binder.schema)?;
            let namespace = view.namespace().filter(|_| alias.is_none());
            let mut entry = self.entry(rel, alias.unwrap_or_else(|| view.name().to_owned()), names, false)?;
            let source = &mut entry.sources[0].0;
            (source.merged, source.namespace) = (hidden_of_view(&view), namespace);
            return Ok(entry);
        }
        let table = binder.table(name).map_err(as_unsupported)?;
        let mut source = ScopeSource::of_relation(&table, alias);
        let (plan, mut leaves) = self.table(&table, &source.name)?;
        // The row id is for changes and locks only.
        if binder.locking.is_empty() {
            leaves.truncate(table.def.columns.len());
        }
        rename(&mut source, names)?;
        Ok(Entry::of(plan, source, leaves))
    }

    /// A system relation's rows as they are now: plans are made anew for every run.
    fn view(&self, view: &Relation, schema: &Arc<Schema>) -> Bind<Rel> {
        let rows = crate::view::rows(view, schema, self.env)?;
        let batch = match rows.batch.get() {
            Some(batch) => batch.clone(),
            None => rows
                .batch
                .get_or_init({
                    let batch = batch_of(view, &rows.rows)?;
                    || batch
                })
                .clone(),
        };
        let table = df(MemTable::try_new(batch.schema(), vec![vec![batch]]))?;
        let relation = TableReference::bare(self.unique(view.name()));
        let plan = df(LogicalPlanBuilder::scan(relation, provider_as_source(Arc::new(table)), None))?;
        let plan = df(plan.build())?;
        let given = plan.schema().columns().into_iter().map(DfExpr::Column);
        let outputs = given.zip(view.every_column().map(|(name, ty)| output(name.to_owned(), ty))).collect();
        self.project(plan, outputs, false)
    }

    fn entry(&self, rel: Rel, name: String, names: Vec<String>, lateral: bool) -> Bind<Entry> {
        let columns = rel.columns.iter().map(Output::scope_column).collect();
        let mut source = ScopeSource::of_columns(name.clone(), columns);
        rename(&mut source, names)?;
        let correlated = lateral && !rel.plan.all_out_ref_exprs().is_empty();
        let rel = match correlated {
            true => Rel { plan: LogicalPlan::Subquery(subquery_of(rel.plan)), ..rel },
            false => rel,
        };
        let (plan, leaves) = self.source(rel, &name)?;
        let after = if correlated { After::Lateral } else { After::Beside };
        Ok(Entry { after, ..Entry::of(plan, source, leaves) })
    }

    /// A query that an outer join may extend gets a last column that is true in every row: what tells that there is one.
    fn with_presence(&self, rel: Rel, nulls: NullHandling) -> Bind<(Rel, Option<u16>)> {
        if nulls == NullHandling::Drop {
            return Ok((rel, None));
        }
        let Rel { plan, columns, at_most_one } = rel;
        let at = columns.len() as u16;
        let mut outputs: Vec<(DfExpr, Output)> =
            columns.into_iter().map(|c| (DfExpr::Column(c.column.clone()), c)).collect();
        outputs.push((lit(Type::Bool, &Datum::Bool(true))?, output(String::new(), Type::Bool)));
        Ok((self.project(plan, outputs, at_most_one)?, Some(at)))
    }

    // ---- joins

    fn join(&self, binder: &mut Binder<'_>, item: &mut FromRel, join: &Join, first: usize) -> Bind<()> {
        let before = item.clone();
        self.asks_pairs.set(false);
        let joined = self.join_sides(binder, item, join, first);
        if !self.asks_pairs.take() {
            return joined.and_then(|()| name_merged(item, join));
        }
        // In the other way of planning, what is joined is found for each row before it.
        self.is_correlated.set(true);
        self.is_deep.set(true);
        match asking_join(join)? {
            Some(asking) if self.per_row => {
                *item = before;
                self.join_sides(binder, item, &asking, first)?;
                name_merged(item, join)
            }
            _ => joined,
        }
    }

    fn join_sides(&self, binder: &mut Binder<'_>, item: &mut FromRel, join: &Join, first: usize) -> Bind<()> {
        let Join { relation, global, join_operator } = join;
        if *global {
            return refuse("a GLOBAL join");
        }
        check_condition(join_operator)?;
        let (constraint, kind) = match join_operator {
            JoinOperator::Join(c) | JoinOperator::Inner(c) | JoinOperator::CrossJoin(c) => (c, JoinType::Inner),
            JoinOperator::Left(c) | JoinOperator::LeftOuter(c) => (c, JoinType::Left),
            JoinOperator::Right(c) | JoinOperator::RightOuter(c) => (c, JoinType::Right),
            JoinOperator::FullOuter(c) => (c, JoinType::Full),
            _ => return refuse(format!("the join {join}")),
        };
        let nulls = if kind == JoinType::Left { NullHandling::PreserveAndExpandEmpty } else { NullHandling::Drop };
        let mut entry = self.factor(binder, relation, item, nulls)?;
        let expanded = entry.after == After::Expanded;
        let lateral = entry.after != After::Beside || entry.per_row.is_some();
        if lateral && !matches!(kind, JoinType::Inner | JoinType::Left) {
            let message = "The combining JOIN type must be INNER or LEFT for a LATERAL reference.";
            return Err(SqlError::new("42P10", "invalid reference to FROM-clause entry").with_detail(message).into());
        }
        let before = item.scope.clone();
        let added = item.sources.len();
        entry.add_to(item)?;
        // A join sees its own sides only.
        let scope = item.scope.behind(first);
        let mut asked = Vec::new();
        let condition = match constraint {
            JoinConstraint::On(on) => {
                let sources = item.sources.clone();
                let is_outer = kind != JoinType::Inner;
                let ways = (is_outer, !(is_outer && lateral));
                let (condition, of_each_row) =
                    self.join_condition(&sources, ways, || binder.condition(on, "JOIN/ON", &scope))?;
                asked = of_each_row;
                Some(condition)
            }
            JoinConstraint::Using(columns) => {
                let columns = columns_and_alias(columns).0;
                let names = columns.iter().map(relation_name).collect::<Result<Vec<_>, _>>()?;
                Some(self.using(binder, &names, &before.behind(first), item, kind)?)
            }
            JoinConstraint::Natural => {
                let left = before.behind(first);
                let right = shown_names(&item.scope.behind(added));
                let names = shown_names(&left).into_iter().filter(|name| right.contains(name)).collect::<Vec<_>>();
                Some(self.using(binder, &names, &left, item, kind)?)
            }
            JoinConstraint::None => None,
        };
        if kind == JoinType::Left && lateral {
            item.scope.sources[added..].iter_mut().for_each(|source| source.nullable = true);
        }
        if let Some(mut each) = entry.per_row.take() {
            let plan = std::mem::replace(&mut item.plan, df(LogicalPlanBuilder::empty(true).build())?);
            let always = matches!(condition, None | Some(Expr::Const(Datum::Bool(true))));
            if kind == JoinType::Left {
                if !always {
                    self.join_within(
                        &mut each.pending,
                        condition.as_ref().expect("an outer join has one"),
                        item,
                        added,
                    )?;
                }
                each.pending.keep_left();
                item.plan = self.each_row(plan, *each)?;
                return self.make_merged(item);
            }
            // What is about the items before alone is found before these meet the others.
            let halves = item.halves.take().filter(|halves| each.pending.is_of(halves.before.schema()));
            item.plan = match halves {
                Some(Halves { before, beside, first: _ }) => crossed(self.each_row(before, *each)?, beside)?,
                None => self.each_row(plan, *each)?,
            };
            if let Some(condition) = condition.filter(|_| !always) {
                item.plan = self.filter_asking(item.plan.clone(), &condition, &item.sources, asked)?;
            }
            return self.make_merged(item);
        }
        if expanded {
            item.plan = entry.plan;
            return match condition {
                None => Ok(()),
                Some(condition) if kind == JoinType::Inner => {
                    item.plan = self.filter_asking(item.plan.clone(), &condition, &item.sources, asked)?;
                    self.make_merged(item)
                }
                Some(condition) if is_true(&condition) => Ok(()),
                Some(_) => {
                    self.asks_pairs.set(true);
                    refuse("a LEFT JOIN of a function of its columns on a condition")
                }
            };
        }
        if kind != JoinType::Inner {
            for pending in std::mem::take(&mut asked) {
                self.ask_side(&mut item.plan, &mut entry.plan, pending)?;
            }
        }
        let left = LogicalPlanBuilder::from(item.plan.clone());
        if let Some(condition) = condition.as_ref().filter(|_| !asked.is_empty()) {
            // A subquery in an inner join's condition is asked of the joined rows.
            let joined = df(df(left.cross_join(entry.plan))?.build())?;
            item.plan = self.filter_asking(joined, condition, &item.sources, asked)?;
            return Ok(());
        }
        let joined = match condition {
            None => df(left.cross_join(entry.plan))?,
            Some(condition) => {
                let parts = match condition {
                    Expr::And(parts) => parts,
                    one => vec![one],
                };
                let mut on = self.with_leaves(&item.sources, |leaves| {
                    parts.iter().map(|p| leaves.condition(p)).collect::<Result<Vec<_>, _>>()
                })?;
                on.iter().for_each(|part| self.note_compared(part));
                if kind == JoinType::Full && parts.iter().all(is_true) {
                    on = always(&item.plan)?;
                }
                df(left.join_on(entry.plan, kind, on))?
            }
        };
        item.plan = df(joined.build())?;
        let (left, right) = item.scope.sources.split_at_mut(added);
        let extended = |sources: &mut [ScopeSource]| sources.iter_mut().for_each(|source| source.nullable = true);
        if matches!(kind, JoinType::Left | JoinType::Full) {
            extended(right);
        }
        if matches!(kind, JoinType::Right | JoinType::Full) {
            extended(&mut left[first..]);
        }
        self.make_merged(item)
    }

    /// What a condition asks of each row, computed for the rows of the side that it is about before they are joined.
    fn ask_side(&self, left: &mut LogicalPlan, right: &mut LogicalPlan, pending: Pending) -> Bind<()> {
        let side = match (pending.is_of(left.schema()), pending.is_of(right.schema())) {
            (true, _) => left,
            (_, true) => right,
            (false, false) => {
                self.asks_pairs.set(true);
                return refuse("a subquery about both sides in the condition of an outer join");
            }
        };
        *side = self.apply_one(side.clone(), pending)?;
        Ok(())
    }

    /// Merged columns that are none of either side: a FULL JOIN's, and those of two types.
    fn make_merged(&self, item: &mut FromRel) -> Bind<()> {
        let pairs = std::mem::take(&mut self.state.borrow_mut().merged);
        if pairs.is_empty() {
            return Ok(());
        }
        let relation = TableReference::bare(self.unique("merged"));
        let mut outputs: Vec<DfExpr> = item.plan.schema().columns().into_iter().map(DfExpr::Column).collect();
        let (mut columns, mut leaves, mut first) = (Vec::new(), Vec::new(), Vec::new());
        let source = item.scope.sources.len() as u16;
        for (i, pair) in pairs.into_iter().enumerate() {
            let Merged { left, right, ty, .. } = pair;
            let cell = |found: Found| {
                let expr = item.scope.expr(found);
                if found.ty == ty {
                    return expr;
                }
                Expr::Cast { expr: Box::new(expr), from: found.ty, to: ty, explicit: false }
            };
            let made = match pair.of {
                MergedOf::Both => Expr::Coalesce(vec![cell(left), cell(right)]),
                _ => cell(pair.kept()),
            };
            let value = self.with_leaves(&item.sources, |leaves| leaves.convert(&made, ty))?;
            let column = DfColumn::new(Some(relation.clone()), format!("c{i}"));
            outputs.push(value.alias_qualified(column.relation.clone(), column.name.clone()));
            let name = item.scope.sources[usize::from(right.source)].columns[usize::from(right.column)].name.clone();
            columns.push(ScopeColumn::new(name, ty));
            leaves.push(Leaf::new(DfExpr::Column(column), ty));
            first.push(Found { source, column: i as u16, ty });
            item.scope.sources[usize::from(left.source)].merged.push(left.column);
            item.scope.sources[usize::from(right.source)].merged.push(right.column);
        }
        // No name means it: its columns are found by theirs.
        let name = format!(" {relation}");
        item.scope.add(ScopeSource::of_columns(name, columns))?;
        item.sources.push(leaves);
        item.scope.merge_first(first);
        item.plan = df(df(LogicalPlanBuilder::from(item.plan.clone()).project(outputs))?.build())?;
        Ok(())
    }

    /// A LEFT JOIN LATERAL's condition decides which of the inner rows are there.
    fn join_within(&self, pending: &mut Pending, condition: &Expr, item: &FromRel, added: usize) -> Bind<()> {
        let mut sources = Vec::with_capacity(item.sources.len());
        for (at, leaves) in item.sources.iter().enumerate() {
            sources.push(match at == added {
                true => pending.inner_leaves(leaves),
                false => leaves.iter().map(|leaf| pending.slot_of(leaf)).collect(),
            });
        }
        let condition = self.with_leaves(&sources, |leaves| leaves.condition(condition))?;
        pending.filter_within(condition)
    }

    fn using(
        &self,
        binder: &mut Binder<'_>,
        names: &[String],
        before: &Scope,
        item: &mut FromRel,
        kind: JoinType,
    ) -> Bind<Expr> {
        // What is joined may be a join in parentheses.
        let after = item.scope.behind(before.sources.len());
        let mut merged = Vec::with_capacity(names.len());
        let mut conditions = Vec::with_capacity(names.len());
        for name in names {
            let left = left_of_using(before, name)?;
            let right = right_of_using(&after, name)?;
            let (l, r) = (item.scope.expr(left), item.scope.expr(right));
            conditions.push(binder.compare(BinaryOp::Eq, Bound::new(l, left.ty), Bound::new(r, right.ty))?.expr);
            let of = match kind {
                JoinType::Full => MergedOf::Both,
                JoinType::Left => MergedOf::Left,
                JoinType::Right => MergedOf::Right,
                _ => MergedOf::Either,
            };
            merged.push(Merged::new(left, right, of)?);
        }
        if merged.iter().any(Merged::is_made) {
            self.state.borrow_mut().merged = merged;
            return Ok(Expr::And(conditions));
        }
        for hidden in merged.iter().map(Merged::hidden) {
            item.scope.sources[usize::from(hidden.source)].merged.push(hidden.column);
        }
        item.scope.merge_first(merged.iter().map(Merged::kept).collect());
        Ok(Expr::And(conditions))
    }

    // ---- WITH

    /// The WITH of a query, and whether that is the statement itself, where changes may stand.
    pub(super) fn with(
        &self,
        binder: &mut Binder<'_>,
        with: &ast::With,
        (query_of, is_statement): (&ast::Query, bool),
    ) -> Bind<()> {
        for cte in in_order(with)? {
            let ast::Cte { alias, query, from: None, materialized: _, closing_paren_token: _ } = cte else {
                return refuse("this WITH");
            };
            let (name, names) = alias_parts(Some(alias)).map_err(as_unsupported)?;
            let name = name.expect("an alias has a name");
            let walk = names.last().and_then(|column| walk_of(column));
            let mut names = names;
            names.truncate(names.len() - usize::from(walk.is_some()));
            let reached = self.reached();
            let recursive = with.recursive && names_itself(query, &name);
            if walk.is_some() && !recursive {
                return Err(SqlError::new("42601", "WITH query is not recursive").into());
            }
            let rel = match recursive {
                _ if is_change(query) && !is_statement => {
                    let message = "WITH clause containing a data-modifying statement must be at the top level";
                    return Err(SqlError::new("0A000", message).into());
                }
                _ if is_change(query) => self.change_within(binder, &name, query)?,
                is_recursive => {
                    let rel = match is_recursive {
                        true => {
                            let rel = self.recursive(binder, query, (&name, &mut names), walk.as_ref())?;
                            // What follows are the columns that are added, if any.
                            names.truncate(rel.columns.len());
                            rel
                        }
                        false => self.query(binder, query)?,
                    };
                    Some(self.query_within(cte, rel, query_of, self.reached_out(reached).is_empty())?)
                }
            };
            let Some(mut rel) = rel else {
                self.state.borrow_mut().silent_ctes.push(name);
                continue;
            };
            rename_outputs(&mut rel, &name, &names)?;
            let around = self.reached_out(reached);
            self.state.borrow_mut().ctes.push(Cte { name, rel, around, added: 0 });
        }
        Ok(())
    }

    /// `names`: the columns as they are called, to which those are added that `walk` asks for.
    fn recursive(
        &self,
        binder: &mut Binder<'_>,
        query: &ast::Query,
        (name, names): (&str, &mut Vec<String>),
        walk: Option<&Walk>,
    ) -> Bind<Rel> {
        let SetExpr::SetOperation { op: ast::SetOperator::Union, set_quantifier, left, right } = query.body.as_ref()
        else {
            let message = format!(
                "recursive query \"{name}\" does not have the form non-recursive-term UNION [ALL] recursive-term"
            );
            return Err(SqlError::new("42P19", message).into());
        };
        if query.order_by.is_some() || query.limit_clause.is_some() || query.fetch.is_some() {
            return refuse("ORDER BY or LIMIT in a recursive query");
        }
        if let Some(with) = &query.with {
            super::recursion::check_with(name, with)?;
            self.with(binder, with, (query, false))?;
        }
        if !query.locks.is_empty() {
            return Err(SqlError::new("0A000", "FOR UPDATE/SHARE in a recursive query is not implemented").into());
        }
        let all = *set_quantifier == ast::SetQuantifier::All;
        super::recursion::check_term(name, right)?;
        let mut terms = None;
        let mut added = 0;
        if let Some(walk) = walk {
            let mut shape = self.tried(binder, left)?;
            rename_outputs(&mut shape, name, names)?;
            added = 2 * usize::from(walk.cycle.is_some()) + usize::from(walk.search.is_some());
            let own = shape.columns.iter().map(|column| column.name.clone()).collect();
            let Walked { first, term, names: all } = walked(name, walk, [left, right], &shape, own)?;
            *names = all;
            terms = Some((first, term));
        }
        let (left, right) = terms.as_ref().map_or((left.as_ref(), right.as_ref()), |(first, term)| (first, term));
        let anchor = self.set_operand(binder, left)?;
        // A computed number's scale is that of one row: the rows that follow have their own.
        let types: Vec<Type> = anchor.columns.iter().map(Output::declared).collect();
        let mut anchor = self.cast_columns(anchor, &types)?;
        if !all {
            types.iter().try_for_each(|ty| must_compare(*ty, "equality"))?;
        }
        rename_outputs(&mut anchor, name, names)?;
        let fields = anchor.columns.iter().map(|c| Field::new(&c.column.name, data_type(c.ty), true));
        let schema = Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()));
        let table = self.unique(name);
        let work = Arc::new(CteWorkTable::new(&table, schema));
        let scan = LogicalPlanBuilder::scan(TableReference::bare(table.clone()), provider_as_source(work), None);
        let relation = Some(TableReference::bare(table.clone()));
        let columns = anchor.columns.iter().map(|c| Output {
            column: DfColumn::new(relation.clone(), c.column.name.clone()),
            untyped: false,
            ..c.clone()
        });
        let outputs = columns.map(|c| (DfExpr::Column(c.column.clone()), c)).collect();
        let itself = self.project(df(df(scan)?.build())?, outputs, false)?;
        let mark = self.recursion_mark();
        self.state.borrow_mut().ctes.push(Cte { name: name.to_owned(), rel: itself, around: vec![mark], added });
        let term = self.set_operand(binder, right);
        self.state.borrow_mut().ctes.pop();
        self.state.borrow_mut().reached.retain(|reached| reached.level() != mark);
        let term = term?;
        super::recursion::check_types(name, &anchor, &term)?;
        let term = self.cast_columns(term, &types)?;
        let (first, term) = match all {
            true => (anchor.plan, term.plan),
            false => (told_apart(anchor.plan, &types)?, told_apart(term.plan, &types)?),
        };
        let plan = df(df(LogicalPlanBuilder::from(first).to_recursive_query(table, term, !all))?.build())?;
        let given = plan.schema().columns().into_iter().map(DfExpr::Column);
        let outputs = given.zip(anchor.columns.into_iter().map(|c| Output { untyped: false, ..c })).collect();
        self.project(plan, outputs, false)
    }

    // ---- INTERSECT and EXCEPT

    /// The rows of `left` that `right` has, or has not. With ALL the n-th of equal rows meets the n-th.
    pub(super) fn matching(&self, left: Rel, right: Rel, all: bool, present: bool) -> Bind<Rel> {
        let left = if all { left } else { self.distinct(left)? };
        let outputs = left.columns.clone();
        let (left, left_keys) = self.keyed(left, all, "l")?;
        let (right, right_keys) = self.keyed(right, all, "r")?;
        let kind = if present { JoinType::LeftSemi } else { JoinType::LeftAnti };
        let keys = (left_keys, right_keys);
        let joined = LogicalPlanBuilder::from(left.plan).join_detailed(
            right.plan,
            kind,
            keys,
            None,
            NullEquality::NullEqualsNull,
        );
        let columns = left.columns.into_iter().take(outputs.len()).map(|c| DfExpr::Column(c.column));
        self.project(df(df(joined)?.build())?, columns.zip(outputs).collect(), false)
    }

    /// The relation under a name, with columns that its rows are compared by.
    fn keyed(&self, rel: Rel, numbered: bool, name: &str) -> Bind<(Rel, Vec<DfColumn>)> {
        let width = rel.columns.len();
        let keys: Vec<DfExpr> = rel.columns.iter().map(|c| key(DfExpr::Column(c.column.clone()), c.ty)).collect();
        let mut outputs: Vec<(DfExpr, Output)> =
            rel.columns.into_iter().map(|c| (DfExpr::Column(c.column.clone()), c)).collect();
        let types: Vec<Type> = outputs.iter().map(|(_, c)| c.ty).collect();
        outputs.extend(keys.iter().cloned().zip(types).map(|(key, ty)| (key, output(String::new(), ty))));
        let mut plan = rel.plan;
        if numbered {
            let (with_number, number) = self.numbered(plan, keys, Vec::new())?;
            plan = with_number;
            outputs.push((number, output(String::new(), Type::Int8)));
        }
        let rel = self.project(plan, outputs, false)?;
        let relation = TableReference::bare(self.unique(name));
        let plan = df(df(LogicalPlanBuilder::from(rel.plan).alias(relation.clone()))?.build())?;
        let columns: Vec<Output> = rel
            .columns
            .into_iter()
            .map(|c| Output { column: DfColumn::new(Some(relation.clone()), c.column.name.clone()), ..c })
            .collect();
        let keys = columns[width..].iter().map(|c| c.column.clone()).collect();
        Ok((Rel { plan, columns, at_most_one: false }, keys))
    }
}

/// The plan with each reading of a recursion's rows by a name of its own, of which `readings` are taken.
fn read_again(plan: LogicalPlan, readings: &mut HashSet<String>) -> datafusion::common::Result<LogicalPlan> {
    let renamed = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::TableScan(scan) = &node else { return Ok(Transformed::no(node)) };
        let source = scan.source.downcast_ref::<DefaultTableSource>();
        let Some(work) = source.and_then(|source| source.table_provider.downcast_ref::<CteWorkTable>()) else {
            return Ok(Transformed::no(node));
        };
        if readings.insert(work.name().to_owned()) {
            return Ok(Transformed::no(node));
        }
        let name = iterate::reading(work.name(), readings.len());
        let again = CteWorkTable::new(&name, scan.source.schema());
        readings.insert(name);
        let scan = TableScan { source: provider_as_source(Arc::new(again)), ..scan.clone() };
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    })?;
    Ok(renamed.data)
}

/// The rows with keys behind them for the columns whose equal values may be written differently.
fn told_apart(plan: LogicalPlan, types: &[Type]) -> Bind<LogicalPlan> {
    let columns: Vec<DfExpr> = plan.schema().columns().into_iter().map(DfExpr::Column).collect();
    let has_key = |(_, ty): &(usize, &Type)| super::compute::Key::of(**ty).is_some();
    let keys = types.iter().enumerate().filter(has_key);
    let keys: Vec<DfExpr> = keys.map(|(at, ty)| key(columns[at].clone(), *ty).alias(iterate::key_of(at))).collect();
    if keys.is_empty() {
        return Ok(plan);
    }
    df(df(LogicalPlanBuilder::from(plan).project(columns.into_iter().chain(keys)))?.build())
}

fn crossed(left: LogicalPlan, right: LogicalPlan) -> Bind<LogicalPlan> {
    df(df(LogicalPlanBuilder::from(left).cross_join(right))?.build())
}

/// VALUES that are all of a query, without a query in them.
fn values_alone(query: &ast::Query) -> Option<&ast::Values> {
    let ast::Query { with: None, body, order_by: None, limit_clause: None, fetch: None, locks, .. } = query else {
        return None;
    };
    let SetExpr::Values(values) = body.as_ref() else { return None };
    struct Query;
    impl ast::Visitor for Query {
        type Break = ();
        fn pre_visit_query(&mut self, _: &ast::Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    (locks.is_empty() && !values.rows.is_empty() && ast::Visit::visit(values, &mut Query).is_continue())
        .then_some(values)
}

/// A system relation's rows in columns.
fn batch_of(view: &Relation, rows: &[Cells]) -> Bind<RecordBatch> {
    let mut fields = Vec::with_capacity(view.columns().len());
    let mut arrays = Vec::with_capacity(view.columns().len());
    for (at, (_, ty)) in view.every_column().enumerate() {
        let mut cells = Writer::new(ty, rows.len());
        for row in rows {
            cells.push(&row[at].as_value())?;
        }
        fields.push(Field::new(format!("v{at}"), data_type(ty), true));
        arrays.push(cells.finish());
    }
    df(RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), arrays).map_err(Into::into))
}

/// Whether what is joined may look at what stands before it.
fn is_lateral(join: &Join) -> bool {
    match &join.relation {
        TableFactor::Derived { lateral, .. } => *lateral,
        TableFactor::Table { args, .. } => args.is_some(),
        TableFactor::Function { .. } | TableFactor::UNNEST { .. } => true,
        _ => false,
    }
}

/// Whether a join extends no row of what stands before it from what it joins.
fn keeps_left(join: &Join) -> bool {
    use JoinOperator as J;
    matches!(join.join_operator, J::Join(_) | J::Inner(_) | J::CrossJoin(_) | J::Left(_) | J::LeftOuter(_))
}

fn rename_outputs(rel: &mut Rel, name: &str, names: &[String]) -> Bind<()> {
    if names.len() > rel.columns.len() {
        let message = format!(
            "WITH query \"{name}\" has {} columns available but {} columns specified",
            rel.columns.len(),
            names.len()
        );
        return Err(SqlError::new("42P10", message).into());
    }
    for (column, name) in rel.columns.iter_mut().zip(names) {
        column.name.clone_from(name);
    }
    Ok(())
}

/// The queries of a WITH, each behind those that it reads: with RECURSIVE it may read those that are written behind it.
fn in_order(with: &ast::With) -> Bind<Vec<&ast::Cte>> {
    let names: Vec<String> = with.cte_tables.iter().map(|cte| fold(&cte.alias.name)).collect();
    if let Some(at) = (1..names.len()).find(|&at| names[..at].contains(&names[at])) {
        let message = format!("WITH query name \"{}\" specified more than once", names[at]);
        return Err(SqlError::new("42712", message).into());
    }
    let mut left: Vec<(&ast::Cte, &String)> = with.cte_tables.iter().zip(&names).collect();
    if with.recursive {
        for at in 0..left.len() {
            let reads_none = |cte: &ast::Cte, own: &String| {
                !left[at..].iter().any(|(_, name)| *name != own && mentions(cte.query.as_ref(), name))
            };
            let Some(next) = (at..left.len()).find(|&next| reads_none(left[next].0, left[next].1)) else {
                return Err(SqlError::new("0A000", "mutual recursion between WITH items is not implemented").into());
            };
            left.swap(at, next);
        }
        left.iter().try_for_each(|(cte, own)| check_first_term(cte, own))?;
    }
    Ok(left.into_iter().map(|(cte, _)| cte).collect())
}

/// Whether a query of WITH RECURSIVE reads its own rows: not those of one in the WITH before its terms that is called so.
fn names_itself(query: &ast::Query, name: &str) -> bool {
    let own: Vec<&ast::Cte> = query.with.iter().flat_map(|with| &with.cte_tables).collect();
    let is_hidden = own.iter().any(|cte| fold(&cte.alias.name) == name);
    // What stands in that WITH may read the rows that are hidden behind it: whoever does is not told by its name.
    mentions(query, name) && !(is_hidden && !own.iter().any(|cte| mentions(cte.query.as_ref(), name)))
}

/// What has not the form of a recursion is told so where it names itself.
fn check_first_term(cte: &ast::Cte, own: &str) -> Bind<()> {
    if let SetExpr::SetOperation { left, .. } = cte.query.body.as_ref()
        && names_itself(&cte.query, own)
        && (mentions(left.as_ref(), own) || tables_of(left).iter().any(|table| is_named(table, own)))
    {
        let message = format!("recursive reference to query \"{own}\" must not appear within its non-recursive term");
        return Err(SqlError::new("42P19", message).into());
    }
    Ok(())
}

/// Whether a query reads a relation of this name anywhere.
pub fn mentions(node: &impl ast::Visit, name: &str) -> bool {
    readings(node, name) > 0
}

/// How often it does, at most: names of deeper queries may hide it.
pub fn readings(node: &impl ast::Visit, name: &str) -> usize {
    struct Readings<'a>(&'a str, usize);
    impl ast::Visitor for Readings<'_> {
        type Break = ();
        fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
            self.1 += tables_of(&query.body).iter().filter(|table| is_named(table, self.0)).count();
            ControlFlow::Continue(())
        }
        fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
            self.1 += usize::from(RelationName::of(relation).is_ok_and(|relation| is_named(&relation, self.0)));
            ControlFlow::Continue(())
        }
    }
    let mut readings = Readings(name, 0);
    let _ = node.visit(&mut readings);
    readings.1
}

/// Whether a relation's name could mean a query of WITH.
pub fn is_named(relation: &RelationName, name: &str) -> bool {
    relation.namespace.is_none() && relation.name == name
}
