//! Which road does a statement take? Compiled where it can be; else the other road, where there is one; else 0A000.
//!
//! What neither road takes is an error that names it.

mod config;

pub use config::{ConfigOutput, ConfigQuery};

use crate::bind::change::is_select;
use crate::bind::expr::SessionLiteral;
use crate::bind::init::InitBinding;
use crate::bind::{Bind, Binder, Refusal, not_compiled};
use crate::compiled::change::{Delete, Insert, InsertSource, Update};
use crate::compiled::init::Init;
use crate::compiled::lock::TableLocks;
use crate::compiled::query::Query;
use crate::copy::CopyPlan;
use crate::define::Definition;
use crate::error::SqlError;
use crate::explain::{Explained, Format, Options};
use crate::expr::Expr;
use crate::notice::Notice;
use crate::parse::analyze::Analyzed;
use crate::parse::block::DoBlock;
pub use crate::parse::channel::ChannelCommand;
use crate::parse::named::NamedStatement;
use crate::parse::{Kept, Parsed, Utility, parse};
use crate::road::{Planned, Request, other_road};
use crate::role::Access;
use crate::rows::{Column, is_same_row};
use crate::settings::{Forced, Setting, joined, takes_list};
use crate::statistics::Statistics;
use crate::value::{Datum, Zone};
use freshet_engine::catalog::{Schema, Table, TableId};
use freshet_engine::schema::Type;
use freshet_engine::txn::{Isolation, LockMode};
use sqlparser::ast::{
    self, DiscardObject, Reset, Set, Statement, TransactionAccessMode, TransactionIsolationLevel, TransactionMode,
};
use std::sync::Arc;
use std::time::Instant;

/// What BEGIN or SET TRANSACTION asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Modes {
    pub isolation: Option<Level>,
    pub read_only: Option<bool>,
    /// Told by SHOW, and nothing else: no transaction waits for its beginning.
    pub deferrable: Option<bool>,
}

/// SQL's isolation levels by their names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Level {
    ReadUncommitted,
    #[default]
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Level {
    const ALL: [Level; 4] = [Level::ReadUncommitted, Level::ReadCommitted, Level::RepeatableRead, Level::Serializable];

    /// As SHOW writes it.
    pub fn name(self) -> &'static str {
        match self {
            Level::ReadUncommitted => "read uncommitted",
            Level::ReadCommitted => "read committed",
            Level::RepeatableRead => "repeatable read",
            Level::Serializable => "serializable",
        }
    }

    pub fn of_name(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }

    /// What the engine gives: nobody reads what is not committed.
    pub fn isolation(self) -> Isolation {
        match self {
            Level::ReadUncommitted | Level::ReadCommitted => Isolation::ReadCommitted,
            Level::RepeatableRead => Isolation::RepeatableRead,
            Level::Serializable => Isolation::Serializable,
        }
    }
}

/// A statement's program.
#[derive(Debug)]
pub enum Plan {
    Empty,
    Select(Box<Query>),
    Insert(Box<Insert>),
    Update(Box<Update>),
    Delete(Box<Delete>),
    /// Queries whose values a change or a SELECT uses, and that.
    Init(Box<Init>),
    Define(Box<Definition>),
    /// SET CONSTRAINTS: these, by id, or all.
    SetConstraints {
        ids: Option<Vec<u32>>,
        deferred: bool,
    },
    /// LOCK TABLE.
    Lock(Box<TableLocks>),
    Begin {
        start: bool,
        modes: Modes,
    },
    /// `chain`: another block of the same modes follows.
    Commit {
        chain: bool,
    },
    Rollback {
        chain: bool,
    },
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    SetTransaction {
        modes: Modes,
        session: bool,
    },
    /// `None`: to its default.
    Set {
        name: String,
        value: Option<String>,
        local: bool,
    },
    /// `SELECT set_config(name, value, is_local), ...`: SET with the values as its row.
    SetConfig(Box<ConfigQuery>),
    Reset(String),
    ResetAll,
    DiscardAll,
    DiscardSequences,
    DiscardTemp,
    Show(String),
    ShowAll,
    Explain(Box<Explained>),
    ExplainRestart,
    Checkpoint,
    Channel(ChannelCommand),
    Do(DoBlock),
    NoOperation(&'static str),
    /// Samples these tables.
    Analyze {
        tables: Vec<Arc<Table>>,
        tag: &'static str,
    },
    Copy(Arc<CopyPlan>),
    Named(Arc<NamedStatement>),
    Other(Arc<dyn Planned>),
}

impl Plan {
    /// Looks at no snapshot: changes at most one row, which a unique key names, or inserts values.
    pub fn locks_by_key(&self) -> bool {
        match self {
            Plan::Insert(insert) => insert.reads_nothing(),
            Plan::Update(update) => update.search.is_by_key(),
            Plan::Delete(delete) => delete.search.is_by_key(),
            _ => false,
        }
    }

    /// A SELECT, VALUES, or what stands for one.
    pub fn is_query(&self) -> bool {
        match self {
            Plan::Select(_) => true,
            Plan::Init(init) => init.then.is_query(),
            Plan::Other(planned) => planned.command() == "SELECT",
            _ => false,
        }
    }

    /// Gives or changes rows, and so is no utility statement.
    pub fn is_of_rows(&self) -> bool {
        matches!(
            self,
            Plan::Select(_)
                | Plan::Insert(_)
                | Plan::Update(_)
                | Plan::Delete(_)
                | Plan::Init(_)
                | Plan::Other(_)
                | Plan::SetConfig(_)
        )
    }

    /// Not known beforehand to be over soon: it finds rows, or is given many.
    pub fn may_be_long(&self) -> bool {
        const MANY: usize = 64;
        match self {
            Plan::Select(query) => !query.finds_one(),
            Plan::Insert(insert) => match &insert.source {
                InsertSource::Values(rows) => rows.len() > MANY,
                InsertSource::Query(query, _) => !query.finds_one(),
            },
            Plan::Update(_) | Plan::Delete(_) => true,
            Plan::Init(init) => init.then.may_be_long(),
            _ => false,
        }
    }

    /// Its rows are all that it gives, one after the other as they are found: who sends them need not keep them.
    pub fn only_gives(&self) -> bool {
        match self {
            Plan::Select(_) => true,
            Plan::Other(planned) => planned.command() == "SELECT" && !planned.writes() && !planned.locks(),
            _ => false,
        }
    }

    /// Runs at the durable horizon when it is a transaction of its own.
    pub fn only_reads(&self) -> bool {
        match self {
            Plan::Select(query) => !query.locks_rows(),
            Plan::Init(init) => init.then.only_reads() && !init.locks(),
            Plan::Lock(locks) => locks.mode <= LockMode::RowExclusive,
            Plan::Other(planned) => !planned.writes() && !planned.locks(),
            Plan::Analyze { .. } => true,
            Plan::Explain(explained) => !explained.options.analyze || explained.of.only_reads(),
            Plan::Copy(copy) => !matches!(copy.as_ref(), CopyPlan::From { .. }),
            _ => false,
        }
    }
}

/// A plan with what its callers see.
#[derive(Debug)]
pub struct Routed {
    pub plan: Plan,
    pub parameters: Vec<Type>,
    pub columns: Arc<[Column]>,
    pub uses_clock: bool,
    /// Takes values from sequences: writes, though it may be a SELECT.
    pub uses_sequences: bool,
    /// What a view of it keeps as it is read now.
    pub session_literals: Vec<SessionLiteral>,
    /// Of the statistics that it was planned by; `None`: by none.
    pub epoch: Option<u64>,
    /// Tables of which these should be known, and are not.
    pub unknown_tables: Vec<TableId>,
    /// What is said when it is done.
    pub notice: Option<Notice>,
}

impl Routed {
    /// Whether it may run in the place of a plan with these parameters, whose rows have these columns.
    pub fn gives(&self, parameters: &[Type], columns: &[Column]) -> bool {
        self.parameters == parameters && is_same_row(&self.columns, columns)
    }
}

/// Parses, binds and routes one statement, of whose tables nothing is known.
pub fn route(
    sql: &str,
    schema: &Arc<Schema>,
    declared: &[Option<Type>],
    forced: Option<Forced>,
    access: Option<&Access>,
) -> Result<Routed, SqlError> {
    route_by(sql, schema, declared, forced, None, access)
}

/// Parses, binds and routes one statement, by what is known of its tables.
pub fn route_by(
    sql: &str,
    schema: &Arc<Schema>,
    declared: &[Option<Type>],
    forced: Option<Forced>,
    known: Option<&Arc<Statistics>>,
    access: Option<&Access>,
) -> Result<Routed, SqlError> {
    let parsed = parse(sql)?;
    access.map_or(Ok(()), |access| access.check_names(&parsed))?;
    match parsed {
        Parsed::Empty => Ok(plain(Plan::Empty)),
        Parsed::Checkpoint if access.is_some() => {
            let message = "must be superuser or have privileges of pg_checkpoint to do CHECKPOINT";
            Err(SqlError::new("42501", message))
        }
        Parsed::Checkpoint => Ok(plain(Plan::Checkpoint)),
        Parsed::ExplainRestart => {
            Ok(Routed { columns: crate::view::columns(&crate::view::RESTART), ..plain(Plan::ExplainRestart) })
        }
        Parsed::Channel(command) => Ok(plain(Plan::Channel(command))),
        Parsed::Do(block) => Ok(plain(Plan::Do(block))),
        Parsed::NoOperation(tag) => Ok(plain(Plan::NoOperation(tag))),
        Parsed::Upkeep { tag, of } => upkeep(schema, tag, &of),
        Parsed::Analyze { tables: named, tag } => {
            let (mut tables, mut notice) = analyzed(schema, &named)?;
            if let Some(access) = access {
                let other = tables.iter().find(|table| !access.owns(table.id.0)).filter(|_| !named.is_empty());
                notice = notice
                    .or(other.map(|table| passed_over(&table.def.name, "only table or database owner can analyze it")));
                tables.retain(|table| access.owns(table.id.0));
            }
            Ok(Routed { notice, ..plain(Plan::Analyze { tables, tag }) })
        }
        Parsed::Named(named) => Ok(plain(Plan::Named(Arc::new(*named)))),
        Parsed::Abort => Ok(plain(Plan::Rollback { chain: false })),
        Parsed::Copy(copy) => {
            let columns_of = |sql: &str| {
                let routed = route(sql, schema, &[], forced, access)?;
                if routed.columns.is_empty() {
                    return Err(SqlError::unsupported("COPY of a statement that gives no rows"));
                }
                Ok(routed.columns.iter().map(|c| c.name.clone()).collect())
            };
            let plan = crate::copy::bind(&copy, schema, columns_of)?;
            access.map_or(Ok(()), |access| access.check_copy(&copy))?;
            Ok(plain(Plan::Copy(Arc::new(plan))))
        }
        Parsed::Utility(utility) => {
            Ok(plain(Plan::Define(Box::new(Definition { sql: sql.to_owned(), utility: *utility }))))
        }
        Parsed::LockTable { names, mode, nowait } => {
            let routed = lock_table(schema, &names, mode, nowait)?;
            access.map_or(Ok(()), |access| access.check_lock(&names, mode))?;
            Ok(routed)
        }
        Parsed::SetConstraints { names, deferred } => set_constraints(schema, names.as_deref(), deferred),
        Parsed::Sql(statement) => {
            let routed = route_statement(sql, &statement, schema, declared, forced, known)?;
            access.map_or(Ok(()), |access| access.check_statement(&statement))?;
            Ok(routed)
        }
    }
}

fn plain(plan: Plan) -> Routed {
    Routed {
        plan,
        parameters: Vec::new(),
        columns: Arc::new([]),
        uses_clock: false,
        uses_sequences: false,
        session_literals: Vec::new(),
        epoch: None,
        unknown_tables: Vec::new(),
        notice: None,
    }
}

fn text_column(name: &str) -> Arc<[Column]> {
    Arc::new([Column::new(name, Type::Text)])
}

fn route_statement(
    sql: &str,
    statement: &Statement,
    schema: &Arc<Schema>,
    declared: &[Option<Type>],
    forced: Option<Forced>,
    known: Option<&Arc<Statistics>>,
) -> Result<Routed, SqlError> {
    if let Some(mut control) = control(statement)? {
        if let Plan::Begin { modes, .. } | Plan::SetTransaction { modes, .. } = &mut control.plan {
            // The parser below has no word for it.
            modes.deferrable = crate::parse::deferrable(sql);
        }
        return Ok(control);
    }
    if Definition::takes(statement) {
        let utility = Utility::Statement(Box::new(statement.clone()));
        return Ok(plain(Plan::Define(Box::new(Definition { sql: sql.to_owned(), utility }))));
    }
    if let Some(expanded) = crate::define::view::expand(statement, schema)? {
        return route_expanded(sql, &expanded, schema, declared, forced, known);
    }
    route_expanded(sql, statement, schema, declared, forced, known)
}

fn lock_table(schema: &Schema, names: &[ast::ObjectName], mode: LockMode, nowait: bool) -> Result<Routed, SqlError> {
    let mut tables = Vec::with_capacity(names.len());
    for name in names {
        let name = crate::bind::names::RelationName::of(name)?;
        match name.table(schema) {
            Some(table) => tables.push(table.clone()),
            None if name.view(schema).is_some() => return Err(SqlError::unsupported("LOCK TABLE of a view")),
            None if name.sequence(schema).is_some() => {
                return Err(SqlError::new("42809", format!("cannot lock relation \"{name}\"")));
            }
            None => return Err(name.undefined()),
        }
    }
    Ok(plain(Plan::Lock(Box::new(TableLocks { tables, mode, nowait }))))
}

fn set_constraints(schema: &Schema, names: Option<&[ast::ObjectName]>, deferred: bool) -> Result<Routed, SqlError> {
    let Some(names) = names else { return Ok(plain(Plan::SetConstraints { ids: None, deferred })) };
    let mut ids = Vec::new();
    for name in names {
        let wanted = crate::bind::names::RelationName::of(name)?.name;
        let before = ids.len();
        for (_, constraint, key) in schema.foreign_keys().filter(|(_, c, _)| c.name == wanted) {
            if !key.deferrable {
                return Err(SqlError::new("42809", format!("constraint \"{wanted}\" is not deferrable")));
            }
            ids.push(constraint.id);
        }
        let keys = schema.tables().flat_map(|table| &table.indexes);
        for index in keys.filter(|i| i.def.constraint != 0 && i.def.name == wanted) {
            if !index.def.deferrable {
                return Err(SqlError::new("42809", format!("constraint \"{wanted}\" is not deferrable")));
            }
            ids.push(index.def.constraint);
        }
        if ids.len() == before {
            return Err(SqlError::new("42704", format!("constraint \"{wanted}\" does not exist")));
        }
    }
    Ok(plain(Plan::SetConstraints { ids: Some(ids), deferred }))
}

/// What is named is there; nothing is done for it, which is told.
fn upkeep(schema: &Schema, tag: &'static str, of: &[Kept]) -> Result<Routed, SqlError> {
    use crate::bind::names::RelationName;
    for kept in of {
        match kept {
            Kept::Table(name) => {
                let name = RelationName::of(name)?;
                let is_view = name.view(schema).is_some();
                // VACUUM leaves out what is no table.
                let is_there = name.table(schema).is_some() || is_view && tag == "VACUUM";
                if !is_there && crate::view::find(&name, schema).is_none() {
                    let is_other = is_view || name.index(schema).is_some();
                    let message = format!("\"{}\" is not a table", name.name);
                    return Err(if is_other { SqlError::new("42809", message) } else { name.undefined() });
                }
            }
            Kept::Index(name) => {
                let name = RelationName::of(name)?;
                name.index(schema).ok_or_else(|| name.undefined())?;
            }
            Kept::IndexOf(table, index) => {
                let name = RelationName::of(table)?;
                let table = name.table(schema).ok_or_else(|| name.undefined())?;
                let index = crate::bind::scope::fold(index);
                if !table.indexes.iter().any(|known| known.def.name == index) {
                    let message = format!("index \"{index}\" for table \"{}\" does not exist", table.def.name);
                    return Err(SqlError::new("42704", message));
                }
            }
            Kept::Schema(name) => {
                let name = crate::bind::scope::fold(name);
                if schema.namespace(&name).is_none() {
                    return Err(SqlError::new("3F000", format!("schema \"{name}\" does not exist")));
                }
            }
        }
    }
    let notice = Notice::new("00000", format!("{tag} changes nothing here"));
    Ok(Routed { notice: Some(notice), ..plain(Plan::NoOperation(tag)) })
}

/// The tables that are to be sampled: all, where none is named. System relations, of which nothing is kept, and views may be named too: nothing is
/// done for them, which is told of views, as PostgreSQL does.
fn analyzed(schema: &Schema, named: &[Analyzed]) -> Result<(Vec<Arc<Table>>, Option<Notice>), SqlError> {
    if named.is_empty() {
        return Ok((schema.tables().cloned().collect(), None));
    }
    let mut tables = Vec::with_capacity(named.len());
    let mut notice = None;
    for Analyzed { table, columns } in named {
        let name = crate::bind::names::RelationName::of(table)?;
        let Some(table) = name.table(schema) else {
            let is_view_or_index = name.view(schema).is_some() || name.index(schema).is_some();
            if is_view_or_index || name.sequence(schema).is_some() {
                notice = Some(passed_over(&name.name, "cannot analyze non-tables or special system tables"));
            } else if crate::view::find(&name, schema).is_none() {
                return Err(name.undefined());
            }
            continue;
        };
        for column in columns {
            let column = crate::bind::scope::fold(column);
            if table.column(&column).is_none() {
                let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.def.name);
                return Err(SqlError::new("42703", message));
            }
        }
        tables.push(table.clone());
    }
    Ok((tables, notice))
}

fn passed_over(name: &str, why: &str) -> Notice {
    Notice::new("01000", format!("skipping \"{name}\" --- {why}"))
}

/// The query whose rows a CREATE TABLE AS takes.
fn made_of(statement: &Statement) -> Option<Statement> {
    match statement {
        Statement::CreateTable(create) => create.query.clone().map(Statement::Query),
        _ => None,
    }
}

/// A statement on rows, over tables only.
fn route_expanded(
    sql: &str,
    statement: &Statement,
    schema: &Arc<Schema>,
    declared: &[Option<Type>],
    forced: Option<Forced>,
    known: Option<&Arc<Statistics>>,
) -> Result<Routed, SqlError> {
    if let Some(set) = config::set_config(sql, statement, schema, declared)? {
        return Ok(set);
    }
    if let Statement::Explain {
        describe_alias: ast::DescribeAlias::Explain,
        analyze,
        verbose,
        query_plan: false,
        estimate: false,
        statement,
        format,
        options,
    } = statement
    {
        let options = Options::of(*analyze, *verbose, format.as_ref(), options.as_deref())?;
        let made_of = made_of(statement);
        if options.analyze && made_of.is_some() {
            return Err(SqlError::unsupported("EXPLAIN ANALYZE of CREATE TABLE AS"));
        }
        let statement = made_of.as_ref().unwrap_or(statement);
        let started = Instant::now();
        let mut explained = route_statement(sql, statement, schema, declared, forced, known)?;
        let is_heavy = match &explained.plan {
            Plan::Select(query) => query.is_heavy(),
            Plan::Init(init) => init.is_heavy(),
            _ => false,
        };
        if forced.is_none()
            && is_heavy
            && let Ok(other) = route_statement(sql, statement, schema, declared, Some(Forced::Query), known)
            && other.gives(&explained.parameters, &explained.columns)
        {
            explained = other;
        }
        let planning_ms = started.elapsed().as_secs_f64() * 1e3;
        let ty = if options.format == Format::Json { Type::Json } else { Type::Text };
        let Routed { plan: of, columns, .. } = explained;
        return Ok(Routed {
            plan: Plan::Explain(Box::new(Explained { options, of, columns, planning_ms })),
            columns: Arc::new([Column::new("QUERY PLAN", ty)]),
            parameters: explained.parameters,
            uses_clock: explained.uses_clock,
            uses_sequences: explained.uses_sequences,
            session_literals: Vec::new(),
            epoch: explained.epoch,
            unknown_tables: explained.unknown_tables,
            notice: None,
        });
    }
    if forced == Some(Forced::Query) && other_road_can(statement) {
        return take_other_road(sql, statement, schema, declared, "this statement", None);
    }
    let mut binder = Binder::new(sql, schema, declared);
    binder.init = Some(InitBinding::default());
    binder.statistics = known.cloned();
    let epoch = known.map(|known| known.epoch());
    match compile(&mut binder, statement) {
        Ok((plan, columns)) => {
            let InitBinding { first, plans } = binder.init.take().unwrap_or_default();
            let plan = match plans.is_empty() {
                true => plan,
                false => Plan::Init(Box::new(Init { plans, first, then: plan })),
            };
            Ok(Routed {
                plan,
                parameters: binder.parameter_types(),
                columns,
                uses_clock: binder.uses_clock,
                uses_sequences: binder.uses_sequences,
                session_literals: binder.session_literals,
                epoch: epoch.filter(|_| binder.is_estimated),
                unknown_tables: binder.unknown_tables,
                notice: None,
            })
        }
        Err(Refusal::Error(error)) => Err(error),
        Err(Refusal::NotCompiled { what, position }) if forced == Some(Forced::Compiled) => {
            Err(SqlError::unsupported(format!("{what} on the compiled road")).at(position))
        }
        Err(Refusal::NotCompiled { what, position }) => {
            take_other_road(sql, statement, schema, declared, &what, position)
        }
    }
}

/// Whether the other road serves statements of this kind. VALUES without a query have nothing to plan.
fn other_road_can(statement: &Statement) -> bool {
    match statement {
        Statement::Query(_) | Statement::Merge(_) => true,
        Statement::Insert(insert) => insert.source.as_ref().is_some_and(|source| match source.body.as_ref() {
            ast::SetExpr::Values(_) => false,
            _ => is_select(source),
        }),
        Statement::Update(_) | Statement::Delete(_) => true,
        _ => false,
    }
}

fn take_other_road(
    sql: &str,
    statement: &Statement,
    schema: &Arc<Schema>,
    declared: &[Option<Type>],
    what: &str,
    position: Option<usize>,
) -> Result<Routed, SqlError> {
    let Some(road) = other_road() else {
        return Err(without_road(what).at(position));
    };
    let planned = road.plan(&Request { sql, statement, schema, declared })?;
    Ok(Routed {
        parameters: planned.parameters(),
        columns: planned.columns(),
        uses_clock: true,
        // Defaults may ask one.
        uses_sequences: planned.writes() || planned.uses_sequences(),
        session_literals: planned.session_literals(),
        epoch: None,
        unknown_tables: Vec::new(),
        notice: None,
        plan: Plan::Other(planned),
    })
}

fn without_road(what: &str) -> SqlError {
    SqlError::new("0A000", format!("{what} needs the feature `query` (DataFusion), which this build lacks"))
}

fn compile(binder: &mut Binder<'_>, statement: &Statement) -> Bind<(Plan, Arc<[Column]>)> {
    let no_columns: Arc<[Column]> = Arc::new([]);
    let given = |returning: &Option<crate::compiled::change::Returning>| {
        returning.as_ref().map_or_else(|| no_columns.clone(), |r| r.columns.clone())
    };
    Ok(match statement {
        Statement::Query(query) if is_select(query) => {
            let query = binder.query(query)?;
            let columns = query.columns.clone();
            (Plan::Select(Box::new(query)), columns)
        }
        Statement::Insert(insert) => {
            let insert = binder.insert(insert)?;
            let columns = given(&insert.returning);
            (Plan::Insert(Box::new(insert)), columns)
        }
        Statement::Update(update) => {
            let update = binder.update(update)?;
            let columns = given(&update.returning);
            (Plan::Update(Box::new(update)), columns)
        }
        Statement::Delete(delete) => {
            let delete = binder.delete(delete)?;
            let columns = given(&delete.returning);
            (Plan::Delete(Box::new(delete)), columns)
        }
        Statement::Query(_) => return not_compiled("a change with WITH"),
        Statement::Merge(_) => return not_compiled("MERGE"),
        other => {
            let text = other.to_string();
            let words: Vec<&str> = text.split_whitespace().take(2).collect();
            return Err(SqlError::unsupported(words.join(" ")).into());
        }
    })
}

/// Statements about the session and its transaction.
fn control(statement: &Statement) -> Result<Option<Routed>, SqlError> {
    let plan = match statement {
        Statement::StartTransaction {
            modes,
            begin,
            transaction: _,
            modifier: None,
            statements,
            exception: None,
            has_end_keyword: false,
        } if statements.is_empty() => Plan::Begin { start: !begin, modes: transaction_modes(modes)? },
        Statement::Commit { chain, end: _, modifier: None } => Plan::Commit { chain: *chain },
        Statement::Rollback { chain, savepoint: None } => Plan::Rollback { chain: *chain },
        Statement::Rollback { chain: false, savepoint: Some(name) } => Plan::RollbackTo(savepoint_name(name)),
        Statement::Commit { .. } | Statement::Rollback { .. } => {
            return Err(SqlError::unsupported(format!("{statement}")));
        }
        Statement::Savepoint { name } => Plan::Savepoint(savepoint_name(name)),
        Statement::ReleaseSavepoint { name } => Plan::Release(savepoint_name(name)),
        Statement::Set(set) => set_plan(set)?,
        Statement::Reset(reset) => match &reset.reset {
            Reset::ALL => Plan::ResetAll,
            Reset::ConfigurationParameter(name) => Plan::Reset(setting_name(name)),
        },
        Statement::Discard { object_type } => match object_type {
            DiscardObject::ALL => Plan::DiscardAll,
            DiscardObject::PLANS => Plan::NoOperation("DISCARD PLANS"),
            DiscardObject::SEQUENCES => Plan::DiscardSequences,
            DiscardObject::TEMP => Plan::DiscardTemp,
        },
        Statement::ShowVariable { variable } => return show(variable).map(Some),
        _ => return Ok(None),
    };
    Ok(Some(plain(plan)))
}

fn savepoint_name(name: &ast::Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

fn show(variable: &[ast::Ident]) -> Result<Routed, SqlError> {
    let parts: Vec<String> = variable.iter().map(|i| i.value.to_lowercase()).collect();
    let name = match parts.as_slice() {
        [all] if all == "all" => {
            let column = |name: &str| Column::new(name, Type::Text);
            return Ok(Routed {
                columns: Arc::new([column("name"), column("setting"), column("description")]),
                ..plain(Plan::ShowAll)
            });
        }
        [time, zone] if time == "time" && zone == "zone" => "timezone".to_owned(),
        [a, b, c] if a == "transaction" && b == "isolation" && c == "level" => "transaction_isolation".to_owned(),
        [session, authorization] if session == "session" && authorization == "authorization" => {
            "session_authorization".to_owned()
        }
        parts => parts.join("."),
    };
    Ok(Routed { columns: text_column(&crate::settings::display_name(&name)?), ..plain(Plan::Show(name)) })
}

fn transaction_modes(modes: &[TransactionMode]) -> Result<Modes, SqlError> {
    let mut result = Modes::default();
    for mode in modes {
        match mode {
            TransactionMode::AccessMode(TransactionAccessMode::ReadOnly) => {
                result.read_only = Some(true);
            }
            TransactionMode::AccessMode(TransactionAccessMode::ReadWrite) => {
                result.read_only = Some(false);
            }
            TransactionMode::IsolationLevel(level) => {
                result.isolation = Some(match level {
                    TransactionIsolationLevel::ReadUncommitted => Level::ReadUncommitted,
                    TransactionIsolationLevel::ReadCommitted => Level::ReadCommitted,
                    TransactionIsolationLevel::RepeatableRead => Level::RepeatableRead,
                    TransactionIsolationLevel::Serializable => Level::Serializable,
                    other @ TransactionIsolationLevel::Snapshot => {
                        return Err(SqlError::unsupported(format!("ISOLATION LEVEL {other}"))
                            .with_hint("REPEATABLE READ reads at a snapshot."));
                    }
                });
            }
        }
    }
    Ok(result)
}

fn setting_name(name: &ast::ObjectName) -> String {
    name.to_string().replace('"', "").to_lowercase()
}

fn set_plan(set: &Set) -> Result<Plan, SqlError> {
    Ok(match set {
        Set::SingleAssignment { scope, hivevar: false, variable, values } => Plan::Set {
            name: setting_name(variable),
            value: setting_value(&setting_name(variable), values)?,
            local: is_local(scope.as_ref())?,
        },
        Set::SetTimeZone { local, value } => Plan::Set {
            name: "timezone".to_owned(),
            value: setting_value("timezone", std::slice::from_ref(value))?,
            local: *local,
        },
        Set::SetNames { charset_name, collation_name: None } => {
            Plan::Set { name: "client_encoding".to_owned(), value: Some(charset_name.value.clone()), local: false }
        }
        Set::SetNamesDefault {} => Plan::Set { name: "client_encoding".to_owned(), value: None, local: false },
        Set::SetTransaction { modes, snapshot: None, session } => {
            Plan::SetTransaction { modes: transaction_modes(modes)?, session: *session }
        }
        Set::SetRole { context_modifier, role_name } => Plan::Set {
            name: "role".to_owned(),
            value: Some(role_name.as_ref().map_or_else(|| "none".to_owned(), crate::bind::scope::fold)),
            local: is_local(context_modifier.as_ref())?,
        },
        Set::SetSessionAuthorization(ast::SetSessionAuthorizationParam { scope, kind }) => Plan::Set {
            name: "session_authorization".to_owned(),
            value: match kind {
                ast::SetSessionAuthorizationParamKind::Default => None,
                ast::SetSessionAuthorizationParamKind::User(name) => Some(crate::bind::scope::fold(name)),
            },
            local: is_local(Some(scope))?,
        },
        other => return Err(SqlError::unsupported(other.to_string())),
    })
}

fn is_local(scope: Option<&ast::ContextModifier>) -> Result<bool, SqlError> {
    match scope {
        None | Some(ast::ContextModifier::Session) => Ok(false),
        Some(ast::ContextModifier::Local) => Ok(true),
        Some(ast::ContextModifier::Global) => Err(SqlError::unsupported("SET GLOBAL")),
    }
}

/// `INTERVAL '-05:30' HOUR TO MINUTE` as the zone that is so far from Greenwich.
fn zone_east(interval: &ast::Expr) -> Result<String, SqlError> {
    let schema = Arc::default();
    let bound = Binder::new("", &schema, &[]).bind(interval, &crate::bind::scope::Scope::default());
    match bound.map_err(crate::bind::rules::plain)?.expr {
        Expr::Const(Datum::Bytes(stored)) => Ok(Zone::of_interval(&stored)?.name().to_owned()),
        _ => Err(SqlError::unsupported(format!("the zone {interval}"))),
    }
}

/// The value as text; `None` for DEFAULT.
fn setting_value(setting: &str, values: &[ast::Expr]) -> Result<Option<String>, SqlError> {
    if values.len() > 1 && !takes_list(setting) {
        return Err(SqlError::new("22023", format!("SET {setting} takes only one argument")));
    }
    let mut parts = Vec::with_capacity(values.len());
    for value in values {
        parts.push(match value {
            ast::Expr::Identifier(ident)
                if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default") =>
            {
                return Ok(None);
            }
            ast::Expr::Identifier(ident) => Setting::Name(ident.clone()),
            ast::Expr::Interval(_) if setting == "timezone" => Setting::Text(zone_east(value)?),
            ast::Expr::Value(v) => Setting::Text(match &v.value {
                ast::Value::SingleQuotedString(s) | ast::Value::EscapedStringLiteral(s) => s.clone(),
                ast::Value::Number(n, _) => n.clone(),
                ast::Value::Boolean(b) => b.to_string(),
                other => return Err(SqlError::unsupported(format!("the value {other}"))),
            }),
            other => Setting::Text(other.to_string()),
        });
    }
    Ok(Some(joined(setting, &parts)))
}
