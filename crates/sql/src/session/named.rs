//! What does a session keep by name? Prepared statements, the protocol's and those of PREPARE alike, and cursors.
//!
//! 1. A statement's name is one of bytes, as the protocol has it; those of PREPARE are UTF-8.
//! 2. A cursor has all rows of its query from its DECLARE on: they are counted in the memory limit, and never change.
//! 3. A cursor without HOLD ends with its transaction; one with HOLD that a transaction made goes with it when that rolls back.
//! 4. A portal that Bind gave a name is a cursor. Who speaks the protocol runs its query, or lends it here before a FETCH or MOVE; the rows that
//!    Execute has not sent are here.

use super::listed::{ListedCursor, ListedStatement};
use super::{Block, CommandTag, Outcome, Session, Step, done, is_same_row, now};
use crate::bind::names::{RelationName, enter_database};
use crate::bind::query::has_group_by;
use crate::bind::types::type_of;
use crate::bind::{Binder, Refusal, scope::Scope};
use crate::cache::Prepared;
use crate::error::SqlError;
use crate::expr::{Frame, evaluate};
use crate::parse::named::{Around, Direction, NamedStatement, moved};
use crate::parse::printed::literal;
use crate::parse::{parse, span_position, with_values};
use crate::route::Plan;
use crate::rows::{Column, RowSet};
use crate::value::cast::{self, CastContext};
use crate::value::{self, Datum};
use foldhash::fast::RandomState;
use freshet_engine::catalog::Table;
use freshet_engine::ids::Cts;
use freshet_engine::mem::touched::{note, note_bytes, note_start};
use freshet_engine::schema::Type;
use sqlparser::ast::{self, Ident, Spanned};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Cursors that one session may have: what they hold is charged, their names are not.
const CURSORS_MAX: usize = 10_000;

/// A value as an expression of its type.
fn typed_literal(value: &Datum, ty: Type) -> String {
    let name = value::pgtype::name(ty);
    if matches!(value, Datum::Null) {
        return format!("(NULL::{name})");
    }
    let mut text = Vec::new();
    value::to_text(ty, &value.as_value(), &mut text);
    format!("({}::{name})", literal(String::from_utf8_lossy(&text).into_owned()))
}

/// The query with the statement's own names of its columns: a literal in a parameter's place would give another.
fn named_as(statement: &Prepared, query: &str) -> String {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let names: Vec<String> = statement.columns.iter().map(|column| quoted(&column.name)).collect();
    format!("SELECT * FROM ({query}\n) AS \"execute\"({})", names.join(", "))
}

#[derive(Default)]
pub(super) struct Names {
    /// Asked three times a statement.
    statements: HashMap<Box<[u8]>, Kept, RandomState>,
    cursors: BTreeMap<String, Cursor>,
    /// A DECLARE whose query runs.
    declaring: Option<Declaring>,
    /// A FETCH from a portal whose query runs.
    opening: Option<Opening>,
}

/// A prepared statement, and its entry in the session's list.
struct Kept {
    prepared: Arc<Prepared>,
    _listed: Option<Arc<ListedStatement>>,
}

struct Declaring {
    name: String,
    text: Box<str>,
    scroll: Option<bool>,
    hold: bool,
    columns: Arc<[Column]>,
    row: Option<RowKey>,
}

/// What names a cursor's row in its table: hidden columns behind the others.
#[derive(Clone)]
struct RowKey {
    table: Arc<Table>,
    columns: Vec<String>,
}

struct Cursor {
    rows: RowSet,
    /// What FETCH gives.
    columns: Arc<[Column]>,
    /// 0: before the first row; one more than there are: behind the last.
    position: usize,
    scroll: Option<bool>,
    hold: bool,
    /// The transaction that made it has not ended.
    is_new: bool,
    /// Savepoints below it.
    savepoints: usize,
    row: Option<RowKey>,
    durable: Option<Cts>,
    source: Source,
    _listed: Option<Arc<ListedCursor>>,
}

/// Where a cursor's rows come from.
enum Source {
    Declared,
    /// Bind. With `run`, which is how its query ended, the rows are here.
    Bound {
        run: Option<CommandTag>,
        lent: Option<(Arc<Prepared>, Vec<Datum>)>,
    },
}

/// What FETCH or MOVE says.
#[derive(Clone, Copy)]
struct Move {
    direction: Direction,
    /// Only goes there.
    moves: bool,
}

struct Opening {
    name: String,
    then: Move,
    columns: Arc<[Column]>,
}

impl Cursor {
    fn is_unread(&self) -> bool {
        matches!(self.source, Source::Bound { run: None, .. })
    }
}

impl Names {
    /// Notes what a look for `statement` touches, if that is among the first ones.
    pub(super) fn note_touched(&self, statement: Option<&Arc<Prepared>>) {
        /// The table's bytes lie behind its entries, of which there are four at least.
        const ENTRIES_BYTES: usize = 4 * size_of::<(Box<[u8]>, Kept)>();
        note(&self.statements);
        note_start(&self.cursors);
        let Some(statement) = statement else { return };
        let mut first = self.statements.iter().take(16);
        if let Some((name, kept)) = first.find(|(_, kept)| Arc::ptr_eq(&kept.prepared, statement)) {
            note_bytes(std::ptr::from_ref(kept).addr(), ENTRIES_BYTES);
            note(&**name);
        }
    }

    /// The query of a portal that was lent for the statement that runs.
    fn take_lent(&mut self, name: &str) -> Option<(Arc<Prepared>, Vec<Datum>)> {
        match &mut self.cursors.get_mut(name)?.source {
            Source::Bound { lent, .. } => lent.take(),
            Source::Declared => None,
        }
    }

    /// The transaction goes back to the newest of so many savepoints.
    pub(super) fn end_cursors_above(&mut self, savepoints: usize) {
        self.cursors.retain(|_, cursor| !cursor.is_new || cursor.savepoints < savepoints);
    }
}

impl Session {
    // ---- statements

    /// The prepared statement of this name.
    #[inline]
    pub fn statement(&self, name: &[u8]) -> Option<&Arc<Prepared>> {
        self.names.statements.get(name).map(|kept| &kept.prepared)
    }

    pub fn keep_statement(&mut self, name: &[u8], statement: &Arc<Prepared>) -> Result<(), SqlError> {
        self.keep(name, statement, None)
    }

    /// `declaration`: the PREPARE that it is of.
    fn keep(&mut self, name: &[u8], prepared: &Arc<Prepared>, declaration: Option<&str>) -> Result<(), SqlError> {
        if self.names.statements.contains_key(name) {
            let name = String::from_utf8_lossy(name);
            return Err(SqlError::new("42P05", format!("prepared statement \"{name}\" already exists")));
        }
        let listed = self.env.listed.as_ref().map(|listed| {
            listed.add_statement(ListedStatement {
                name: String::from_utf8_lossy(name).into_owned(),
                declaration: declaration.map(Into::into),
                prepared: prepared.clone(),
                made_at: now(),
            })
        });
        self.names.statements.insert(name.into(), Kept { prepared: prepared.clone(), _listed: listed });
        Ok(())
    }

    /// The statement as it is planned now, kept under its name instead, if it was planned for another schema or path, another plan is known, and what it
    /// takes and gives is the same: an older one goes the longer way each time.
    #[inline]
    pub fn renewed(&mut self, name: &[u8], statement: Arc<Prepared>) -> Arc<Prepared> {
        let statement = match self.is_planned_for_now(&statement) {
            true => statement,
            false => self.renew(name, statement),
        };
        match statement.plan {
            Plan::Named(_) => self.reshaped(statement),
            _ => statement,
        }
    }

    #[cold]
    fn renew(&mut self, name: &[u8], statement: Arc<Prepared>) -> Arc<Prepared> {
        let schema = self.inner.schema().clone();
        let path = self.path(&schema);
        let known = self.cache.get(&statement.sql, &statement.declared, &schema, &path, self.rights_key);
        let fits = |new: &Arc<Prepared>| new.parameters == statement.parameters && new.columns == statement.columns;
        let Some(new) = known.filter(fits) else { return statement };
        if let Some(kept) = self.names.statements.get_mut(name) {
            kept.prepared = new.clone();
        }
        new
    }

    /// A FETCH as it is of the cursor that has the name now: it may have been prepared before there was one.
    #[cold]
    fn reshaped(&mut self, statement: Arc<Prepared>) -> Arc<Prepared> {
        let Plan::Named(named) = &statement.plan else { return statement };
        let NamedStatement::Fetch { name, moves: false, .. } = &**named else { return statement };
        match self.names.cursors.get(name) {
            Some(cursor) if cursor.columns != statement.columns => {
                self.prepare(&statement.sql, &statement.declared).unwrap_or(statement)
            }
            _ => statement,
        }
    }

    pub fn forget_statement(&mut self, name: &[u8]) {
        self.names.statements.remove(name);
    }

    pub(super) fn forget_statements(&mut self) {
        self.names.statements.clear();
    }

    fn prepared_named(&self, name: &str) -> Result<Arc<Prepared>, SqlError> {
        self.statement(name.as_bytes())
            .cloned()
            .ok_or_else(|| SqlError::new("26000", format!("prepared statement \"{name}\" does not exist")))
    }

    /// What a statement about names gives and takes, which only the session knows.
    pub(super) fn shape_of_named(
        &mut self,
        named: &NamedStatement,
        declared: &[Option<Type>],
    ) -> Result<(Arc<[Column]>, Vec<Type>), SqlError> {
        Ok(match named {
            NamedStatement::Execute { around: Around::Create(..), .. } => (Arc::new([]), Vec::new()),
            NamedStatement::Execute { around, name, .. } => {
                let statement = self.executed(name)?;
                (self.explained(around, statement)?.columns.clone(), Vec::new())
            }
            // A cursor that is not there yet may be when the statement runs.
            NamedStatement::Fetch { name, moves: false, .. } => {
                let columns = self.names.cursors.get(name).map(|cursor| cursor.columns.clone());
                (columns.unwrap_or_else(|| Arc::new([])), Vec::new())
            }
            NamedStatement::Declare { sql, .. } => {
                let query = self.plan_in_transaction(sql, declared)?;
                if matches!(&query.plan, Plan::Other(planned) if planned.writes()) {
                    let message = "DECLARE CURSOR must not contain data-modifying statements in WITH";
                    return Err(SqlError::new("0A000", message));
                }
                (Arc::new([]), query.parameters.clone())
            }
            NamedStatement::Current { before, after, .. } => {
                let change = self.plan_in_transaction(&format!("{before} WHERE false {after}"), declared)?;
                (change.columns.clone(), change.parameters.clone())
            }
            _ => (Arc::new([]), Vec::new()),
        })
    }

    pub(super) fn run_named(
        &mut self,
        statement: &Prepared,
        named: &NamedStatement,
        parameters: &[Datum],
        rows: &mut RowSet,
    ) -> Result<Step, SqlError> {
        let step = match named {
            NamedStatement::Prepare { name, types, sql } => self.prepare_named(name, types, sql, &statement.sql),
            NamedStatement::Execute { around: Around::Create(create, behind), name, arguments, sql, before } => {
                return self.create_by_named((create, behind), name, arguments, (sql, *before), rows);
            }
            NamedStatement::Execute { around, name, arguments, sql, before } => {
                return self.execute_named((around, name), arguments, (sql, *before), &statement.columns, rows);
            }
            NamedStatement::Deallocate(None) => {
                self.forget_statements();
                Ok(done("DEALLOCATE ALL"))
            }
            NamedStatement::Deallocate(Some(name)) => self.prepared_named(name).map(|_| {
                self.forget_statement(name.as_bytes());
                done("DEALLOCATE")
            }),
            NamedStatement::Declare { name, scroll, hold, sql } => {
                let declaring = Declaring {
                    name: name.clone(),
                    text: statement.sql.as_str().into(),
                    scroll: *scroll,
                    hold: *hold,
                    columns: Arc::new([]),
                    row: None,
                };
                return self.declare(declaring, sql, (&statement.declared, parameters), rows);
            }
            NamedStatement::Fetch { name, direction, moves } => {
                let then = Move { direction: *direction, moves: *moves };
                if let Some((query, parameters)) = self.names.take_lent(name) {
                    let converts = self.converts(&query, &parameters)?;
                    let parameters = if converts { std::mem::take(&mut self.converted) } else { parameters };
                    let opening = Opening { name: name.clone(), then, columns: statement.columns.clone() };
                    return self.open(opening, &query, &parameters, rows);
                }
                self.fetch(name, then, rows)
            }
            NamedStatement::Close(None) => {
                self.names.cursors.clear();
                Ok(done("CLOSE CURSOR ALL"))
            }
            NamedStatement::Close(Some(name)) => match self.names.cursors.remove(name) {
                Some(_) => Ok(done("CLOSE CURSOR")),
                None => Err(no_cursor(name)),
            },
            NamedStatement::Current { cursor, before, after } => {
                return self.change_current(cursor, (before, after), (&statement.declared, parameters), rows);
            }
        };
        step.map_err(|error| self.statement_failed(error))
    }

    fn prepare_named(
        &mut self,
        name: &str,
        types: &[Option<ast::DataType>],
        sql: &str,
        declaration: &str,
    ) -> Result<Step, SqlError> {
        if self.statement(name.as_bytes()).is_some() {
            return Err(SqlError::new("42P05", format!("prepared statement \"{name}\" already exists")));
        }
        let schema = self.schema_to_plan_by();
        let schema = self.named(&schema);
        // A parameter has a type and no length.
        let plain = |ty: &ast::DataType| Ok(cast::without_modifier(type_of(ty, &schema)?));
        let types = types.iter().map(|ty| ty.as_ref().map(plain).transpose());
        let types = types.collect::<Result<Vec<Option<Type>>, SqlError>>()?;
        let statement = self.plan_in_transaction(sql, &types)?;
        self.keep(name.as_bytes(), &statement, Some(declaration))?;
        Ok(done("PREPARE"))
    }

    /// The statement that an EXECUTE names.
    fn executed(&mut self, name: &str) -> Result<Arc<Prepared>, SqlError> {
        let statement = self.prepared_named(name)?;
        let statement = self.renewed(name.as_bytes(), statement);
        // They would execute each other without an end.
        if matches!(&statement.plan, Plan::Named(inner) if matches!(**inner, NamedStatement::Execute { .. })) {
            return Err(SqlError::unsupported("EXECUTE of a prepared EXECUTE"));
        }
        Ok(statement)
    }

    /// The statement, or behind an EXPLAIN what explains it.
    fn explained(&mut self, around: &Around, statement: Arc<Prepared>) -> Result<Arc<Prepared>, SqlError> {
        let Around::Explain(explain) = around else { return Ok(statement) };
        let types: Vec<Option<Type>> = statement.parameters.iter().copied().map(Some).collect();
        self.plan_in_transaction(&format!("{explain} {}", statement.sql), &types)
    }

    fn execute_named(
        &mut self,
        (around, name): (&Around, &str),
        arguments: &[ast::Expr],
        text: (&str, usize),
        promised: &[Column],
        rows: &mut RowSet,
    ) -> Result<Step, SqlError> {
        let prepared = self.executed(name).and_then(|statement| {
            let statement = self.explained(around, statement)?;
            // The client was told these, and has said in which form it wants each.
            if !is_same_row(promised, &statement.columns) {
                return Err(SqlError::plan_changed());
            }
            let parameters = self.arguments(name, &statement, arguments, text)?;
            Ok((statement, parameters))
        });
        let (statement, parameters) = prepared.map_err(|error| self.statement_failed(error))?;
        rows.start(&statement.columns);
        self.start(&statement, &parameters, rows)
    }

    /// CREATE TABLE AS EXECUTE: that of the prepared query with the arguments in it.
    fn create_by_named(
        &mut self,
        (create, behind): (&str, &str),
        name: &str,
        arguments: &[ast::Expr],
        text: (&str, usize),
        rows: &mut RowSet,
    ) -> Result<Step, SqlError> {
        let created = self.executed(name).and_then(|statement| {
            if !parse(&statement.sql).is_ok_and(|parsed| parsed.query().is_some()) {
                return Err(SqlError::new("42809", "prepared statement is not a SELECT"));
            }
            let values = self.arguments(name, &statement, arguments, text)?;
            let values: Vec<String> =
                values.iter().zip(&statement.parameters).map(|(value, &ty)| typed_literal(value, ty)).collect();
            let query = match values.is_empty() {
                true => statement.sql.to_string(),
                false => named_as(&statement, &with_values(&statement.sql, &values)?),
            };
            self.plan_in_transaction(&format!("{create} {query} {behind}"), &[])
        });
        let statement = created.map_err(|mut error| {
            // The text is none of the client's.
            error.position = None;
            self.statement_failed(error)
        })?;
        rows.start(&statement.columns);
        self.start(&statement, &[], rows)
    }

    /// EXECUTE's arguments as the statement's parameters.
    fn arguments(
        &mut self,
        name: &str,
        statement: &Prepared,
        arguments: &[ast::Expr],
        (sql, before): (&str, usize),
    ) -> Result<Vec<Datum>, SqlError> {
        let wanted = &statement.parameters;
        if arguments.len() != wanted.len() {
            let message = format!("wrong number of parameters for prepared statement \"{name}\"");
            let detail = format!("Expected {} parameters but got {}.", wanted.len(), arguments.len());
            return Err(SqlError::new("42601", message).with_detail(detail));
        }
        self.clock_read = self.clock_read && self.block == Block::Explicit;
        self.read_clock();
        let schema = self.schema_to_plan_by();
        let schema = self.named(&schema);
        enter_database(&self.env.database);
        let mut binder = Binder::new(sql, &schema, &[]);
        let mut values = Vec::with_capacity(wanted.len());
        for (i, (argument, &ty)) in arguments.iter().zip(wanted).enumerate() {
            let expr = binder.bind(argument, &Scope::default()).and_then(|bound| {
                let from = bound.ty;
                binder.coerce(bound, ty, CastContext::Assignment).map_err(|refusal| match refusal {
                    Refusal::Error(error) if error.sqlstate == "42804" => SqlError::new(
                        "42804",
                        format!(
                            "parameter ${} of type {} cannot be coerced to the expected type {}",
                            i + 1,
                            from.map_or("unknown", value::pgtype::name),
                            value::pgtype::name(ty)
                        ),
                    )
                    .with_hint("You will need to rewrite or cast the expression.")
                    .at(span_position(sql, argument.span()))
                    .into(),
                    other => other,
                })
            });
            let expr = expr.map_err(|refusal| match refusal {
                Refusal::Error(error) => moved(error.at(span_position(sql, argument.span())), before),
                Refusal::NotCompiled { what, position } => {
                    SqlError::unsupported(format!("{what} as an argument of EXECUTE")).at(position)
                }
            })?;
            if !binder.parameters.is_empty() {
                return Err(SqlError::new("42P02", "there is no parameter $1"));
            }
            let frame = Frame::new(&self.env);
            values.push(evaluate(&expr, &frame)?.into_datum());
        }
        Ok(values)
    }

    // ---- cursors

    /// The columns of a cursor, for who describes it as a portal.
    pub fn cursor_columns(&self, name: &[u8]) -> Option<&Arc<[Column]>> {
        let name = std::str::from_utf8(name).ok()?;
        self.names.cursors.get(name).map(|cursor| &cursor.columns)
    }

    /// Closes a cursor as a portal; there need not be one.
    pub fn close_cursor(&mut self, name: &[u8]) {
        if let Ok(name) = std::str::from_utf8(name) {
            self.names.cursors.remove(name);
        }
    }

    /// Makes the portal that Bind is about to make a cursor too.
    pub fn bind_cursor(&mut self, name: &str, statement: &Prepared) -> Result<(), SqlError> {
        if self.names.cursors.contains_key(name) {
            return Err(SqlError::new("42P03", format!("cursor \"{name}\" already exists")));
        }
        let listed = self.env.listed.as_ref().map(|listed| {
            listed.add_cursor(ListedCursor {
                name: name.to_owned(),
                declaration: statement.sql.as_str().into(),
                hold: false,
                scroll: false,
                made_at: now(),
            })
        });
        let cursor = Cursor {
            _listed: listed,
            rows: RowSet::default(),
            columns: statement.columns.clone(),
            position: 0,
            scroll: Some(false),
            hold: false,
            is_new: true,
            savepoints: self.savepoints.len(),
            row: None,
            durable: None,
            source: Source::Bound { run: None, lent: None },
        };
        self.names.cursors.insert(name.to_owned(), cursor);
        Ok(())
    }

    /// Whether the portal that Bind gave this name is still there: CLOSE and the end of its transaction take it away.
    pub fn has_bound_cursor(&self, name: &[u8]) -> bool {
        let cursor = std::str::from_utf8(name).ok().and_then(|name| self.names.cursors.get(name));
        cursor.is_some_and(|cursor| matches!(cursor.source, Source::Bound { .. }))
    }

    /// The portal that a FETCH or MOVE reads from, if its query has not run.
    #[inline]
    pub fn unread_cursor(&self, statement: &Prepared) -> Option<String> {
        let Plan::Named(named) = &statement.plan else { return None };
        let NamedStatement::Fetch { name, .. } = &**named else { return None };
        let cursor = self.names.cursors.get(name)?;
        (cursor.is_unread() && !cursor.columns.is_empty()).then(|| name.clone())
    }

    /// The query of the portal that the next statement reads from.
    pub fn lend_query(&mut self, name: &str, query: Arc<Prepared>, parameters: Vec<Datum>) {
        if let Some(Cursor { source: Source::Bound { lent, .. }, .. }) = self.names.cursors.get_mut(name) {
            *lent = Some((query, parameters));
        }
    }

    /// The rows of a portal that has run, how many of them were passed, and how its query ended; `keep_rows` gives back what is left.
    pub fn take_rows(&mut self, name: &[u8]) -> Option<(RowSet, usize, CommandTag)> {
        let cursor = self.names.cursors.get_mut(std::str::from_utf8(name).ok()?)?;
        let Source::Bound { run, .. } = &mut cursor.source else { return None };
        let tag = run.take()?;
        let rows = std::mem::take(&mut cursor.rows);
        let passed = cursor.position.min(rows.len());
        Some((rows, passed, tag))
    }

    /// A portal's rows, of which so many were sent.
    pub fn keep_rows(&mut self, name: &[u8], rows: RowSet, sent: usize, tag: CommandTag) {
        let cursor = std::str::from_utf8(name).ok().and_then(|name| self.names.cursors.get_mut(name));
        if let Some(cursor) = cursor
            && let Source::Bound { run, .. } = &mut cursor.source
        {
            *run = Some(tag);
            (cursor.rows, cursor.position) = (rows, sent);
        }
    }

    /// No transaction is open: what portals there were are over.
    pub fn end_portals(&mut self) {
        self.names.cursors.retain(|_, cursor| cursor.hold);
    }

    fn cursor(&mut self, name: &str) -> Result<&mut Cursor, SqlError> {
        self.names.cursors.get_mut(name).ok_or_else(|| no_cursor(name))
    }

    fn declare(
        &mut self,
        declaring: Declaring,
        sql: &str,
        (declared, parameters): (&[Option<Type>], &[Datum]),
        rows: &mut RowSet,
    ) -> Result<Step, SqlError> {
        let planned = self.check_declare(&declaring.name, declaring.hold).and_then(|()| {
            let plain = self.plan_in_transaction(sql, declared)?;
            if plain.columns.is_empty() {
                return Err(SqlError::new("42601", "a cursor is of a query"));
            }
            let columns = plain.columns.clone();
            Ok(match self.with_row_key(sql, declared, &plain.parameters) {
                Some((keyed, key)) => (keyed, columns, Some(key)),
                None => (plain, columns, None),
            })
        });
        let (query, columns, row) = planned.map_err(|error| self.statement_failed(error))?;
        rows.start(&query.columns);
        let step = self.start(&query, parameters, rows);
        // Set behind the start: an error in there forgets it, like any.
        self.names.declaring = step.is_ok().then_some(Declaring { columns, row, ..declaring });
        self.declared(step, rows)
    }

    fn check_declare(&mut self, name: &str, hold: bool) -> Result<(), SqlError> {
        if self.block == Block::None && !hold {
            return Err(SqlError::new("25P01", "DECLARE CURSOR can only be used in transaction blocks"));
        }
        if self.names.cursors.contains_key(name) {
            return Err(SqlError::new("42P03", format!("cursor \"{name}\" already exists")));
        }
        if self.names.cursors.len() >= CURSORS_MAX {
            return Err(SqlError::new("54000", format!("a session has at most {CURSORS_MAX} cursors")));
        }
        Ok(())
    }

    /// The query with what names its rows behind its columns, if it is of one table with a primary key.
    fn with_row_key(
        &mut self,
        sql: &str,
        declared: &[Option<Type>],
        parameters: &[Type],
    ) -> Option<(Arc<Prepared>, RowKey)> {
        let mut query = crate::parse::parse(sql).ok()?.query()?;
        let ast::SetExpr::Select(select) = query.body.as_mut() else {
            return None;
        };
        let is_folded = has_group_by(select) || select.having.is_some();
        let ([from], None, false) = (select.from.as_slice(), &select.distinct, is_folded) else {
            return None;
        };
        let (ast::TableFactor::Table { name, alias, .. }, []) = (&from.relation, from.joins.as_slice()) else {
            return None;
        };
        let schema = self.schema_to_plan_by();
        enter_database(&self.env.database);
        let table = Binder::new(sql, &self.named(&schema), &[]).table(name).ok()?;
        let primary = table.indexes.iter().find(|index| index.def.primary)?;
        let columns = primary.def.columns.iter().map(|key| table.def.columns[usize::from(key.column)].name.clone());
        let columns: Vec<String> = columns.collect();
        let qualifier = alias.as_ref().map_or_else(|| Ident::with_quote('"', &table.def.name), |a| a.name.clone());
        for column in &columns {
            let parts = vec![qualifier.clone(), Ident::with_quote('"', column)];
            select.projection.push(ast::SelectItem::UnnamedExpr(ast::Expr::CompoundIdentifier(parts)));
        }
        let key = RowKey { table, columns };
        let query = self.plan_in_transaction(&query.to_string(), declared).ok()?;
        (query.parameters == parameters).then_some((query, key))
    }

    /// A statement has come to a step: if it was a DECLARE's query and is over, its rows are the cursor's.
    pub(super) fn declared(&mut self, step: Result<Step, SqlError>, rows: &mut RowSet) -> Result<Step, SqlError> {
        let step = self.filed(step, rows);
        self.tell_state(&step);
        self.watched(&step);
        match step {
            Ok(Step::Done(outcome)) if self.names.declaring.is_some() => {
                let declaring = self.names.declaring.take().expect("just seen");
                let listed = self.env.listed.as_ref().map(|listed| {
                    listed.add_cursor(ListedCursor {
                        name: declaring.name.clone(),
                        declaration: declaring.text,
                        hold: declaring.hold,
                        scroll: declaring.scroll != Some(false),
                        made_at: now(),
                    })
                });
                let cursor = Cursor {
                    _listed: listed,
                    rows: std::mem::take(rows),
                    columns: declaring.columns,
                    position: 0,
                    scroll: declaring.scroll,
                    hold: declaring.hold,
                    is_new: self.block != Block::None,
                    savepoints: self.savepoints.len(),
                    row: declaring.row,
                    durable: outcome.durable,
                    source: Source::Declared,
                };
                self.names.cursors.insert(declaring.name, cursor);
                rows.start(&(Arc::new([]) as Arc<[Column]>));
                let tag = CommandTag { command: "DECLARE CURSOR", rows: None };
                let durable = outcome.durable.filter(|_| self.block == Block::None);
                Ok(Step::Done(Outcome { tag, durable, notices: outcome.notices }))
            }
            Ok(Step::Done(outcome)) if self.names.opening.is_some() => {
                let opening = self.names.opening.take().expect("just seen");
                self.opened(opening, outcome, rows).map_err(|error| self.statement_failed(error))
            }
            other => other,
        }
    }

    /// Runs the query of a portal, from which is then fetched.
    fn open(
        &mut self,
        opening: Opening,
        query: &Arc<Prepared>,
        parameters: &[Datum],
        rows: &mut RowSet,
    ) -> Result<Step, SqlError> {
        rows.start(&query.columns);
        let step = self.start(query, parameters, rows);
        self.names.opening = step.is_ok().then_some(opening);
        self.declared(step, rows)
    }

    fn opened(&mut self, opening: Opening, outcome: Outcome, rows: &mut RowSet) -> Result<Step, SqlError> {
        let cursor = self.cursor(&opening.name)?;
        cursor.rows = std::mem::take(rows);
        cursor.durable = outcome.durable;
        cursor.source = Source::Bound { run: Some(outcome.tag), lent: None };
        rows.charge_to(&self.engine);
        rows.start(&opening.columns);
        match self.fetch(&opening.name, opening.then, rows)? {
            Step::Done(fetched) => Ok(Step::Done(Outcome { notices: outcome.notices, ..fetched })),
            other => Ok(other),
        }
    }

    pub(super) fn forget_declaring(&mut self) {
        self.names.declaring = None;
        self.names.opening = None;
    }

    /// A transaction has ended.
    #[inline]
    pub(super) fn end_cursors(&mut self, committed: bool) {
        if !self.names.cursors.is_empty() {
            self.names.cursors.retain(|_, cursor| {
                let stays = cursor.hold && (committed || !cursor.is_new);
                cursor.is_new = false;
                stays
            });
        }
    }

    /// A savepoint was released: what stood above it stands on those that are left.
    pub(super) fn keep_cursors(&mut self) {
        let left = self.savepoints.len();
        self.names.cursors.values_mut().for_each(|cursor| cursor.savepoints = cursor.savepoints.min(left));
    }

    pub(super) fn close_cursors(&mut self) {
        self.names.cursors.clear();
    }

    fn fetch(&mut self, name: &str, Move { direction, moves }: Move, rows: &mut RowSet) -> Result<Step, SqlError> {
        let cursor = self.cursor(name)?;
        if cursor.is_unread() {
            return Err(SqlError::new("55000", format!("portal \"{name}\" cannot be run")));
        }
        let found = cursor.go(direction)?;
        let count = found.len() as u64;
        if !moves {
            if *rows.columns() != cursor.columns {
                return Err(SqlError::plan_changed());
            }
            for row in found {
                (0..cursor.columns.len()).for_each(|column| rows.push(&cursor.rows.get(row - 1, column)));
                rows.finish_row()?;
            }
        }
        let durable = cursor.durable;
        let durable = durable.and_then(|cts| self.depends_on(cts));
        let command = if moves { "MOVE" } else { "FETCH" };
        Ok(Step::Done(Outcome { tag: CommandTag { command, rows: Some(count) }, durable, notices: Vec::new() }))
    }

    fn change_current(
        &mut self,
        cursor: &str,
        (before, after): (&str, &str),
        (declared, parameters): (&[Option<Type>], &[Datum]),
        rows: &mut RowSet,
    ) -> Result<Step, SqlError> {
        let planned = self.current_row(cursor).and_then(|(table, condition)| {
            let schema = self.schema_to_plan_by();
            let changed = changed_table(before).and_then(|name| name.table(&self.named(&schema)).cloned());
            if changed.is_none_or(|changed| changed.id != table.id) {
                let table = &table.def.name;
                let message = format!("cursor \"{cursor}\" is not a simply updatable scan of table \"{table}\"");
                return Err(SqlError::new("24000", message));
            }
            self.plan_in_transaction(&format!("{before} WHERE {condition} {after}"), declared)
        });
        let change = planned.map_err(|error| self.statement_failed(error))?;
        rows.start(&change.columns);
        self.start(&change, parameters, rows)
    }

    /// The table of the cursor's row, and what is true of that row only.
    fn current_row(&mut self, name: &str) -> Result<(Arc<Table>, String), SqlError> {
        let cursor = self.cursor(name)?;
        let Some(key) = &cursor.row else {
            let message = format!("WHERE CURRENT OF \"{name}\"");
            return Err(SqlError::unsupported(message)
                .with_detail("The cursor is not of one table with a primary key, without grouping."));
        };
        if cursor.position == 0 || cursor.position > cursor.rows.len() {
            return Err(SqlError::new("24000", format!("cursor \"{name}\" is not positioned on a row")));
        }
        let first = cursor.columns.len();
        let conditions = key.columns.iter().enumerate().map(|(i, column)| {
            let value = cursor.rows.display(cursor.position - 1, first + i).unwrap_or_default();
            format!("{} = {}", Ident::with_quote('"', column), literal(value))
        });
        Ok((key.table.clone(), conditions.collect::<Vec<_>>().join(" AND ")))
    }
}

impl Cursor {
    /// Goes on; the 1-based rows passed, in the order in which they are given.
    fn go(&mut self, direction: Direction) -> Result<Vec<usize>, SqlError> {
        let last = self.rows.len();
        let at = self.position;
        let is_back = match direction {
            Direction::Forward(n) | Direction::Relative(n) => n < 0,
            Direction::ForwardAll => false,
            Direction::BackwardAll => true,
            Direction::Absolute(n) => n < 0 || (n as usize) < at,
        };
        if is_back && self.scroll == Some(false) {
            return Err(SqlError::new("55000", "cursor can only scan forward")
                .with_hint("Declare it with SCROLL option to enable backward scan."));
        }
        let count = |n: i64| usize::try_from(n.unsigned_abs()).unwrap_or(usize::MAX);
        Ok(match direction {
            Direction::Forward(0) | Direction::Relative(0) => self.only(at),
            Direction::Forward(n) if n > 0 => self.forward(count(n)),
            Direction::Forward(n) => self.backward(count(n)),
            Direction::ForwardAll => self.forward(usize::MAX),
            Direction::BackwardAll => self.backward(usize::MAX),
            Direction::Absolute(n) if n >= 0 => self.only(count(n).min(last + 1)),
            Direction::Absolute(n) => self.only((last + 1).saturating_sub(count(n))),
            Direction::Relative(n) if n > 0 => self.only(at.saturating_add(count(n)).min(last + 1)),
            Direction::Relative(n) => self.only(at.saturating_sub(count(n))),
        })
    }

    /// Stands on this row, if there is one there.
    fn only(&mut self, position: usize) -> Vec<usize> {
        self.position = position;
        let is_row = (1..=self.rows.len()).contains(&position);
        if is_row { vec![position] } else { Vec::new() }
    }

    fn forward(&mut self, count: usize) -> Vec<usize> {
        let last = self.rows.len();
        let first = self.position + 1;
        let end = self.position.saturating_add(count);
        self.position = end.min(last + 1);
        (first..=end.min(last)).collect()
    }

    fn backward(&mut self, count: usize) -> Vec<usize> {
        let before = self.position;
        self.position = before.saturating_sub(count);
        (self.position.max(1)..before).rev().collect()
    }
}

fn no_cursor(name: &str) -> SqlError {
    SqlError::new("34000", format!("cursor \"{name}\" does not exist"))
}

/// The table that an INSERT, UPDATE or DELETE names, if that is all the statement changes.
pub(super) fn changed_table(sql: &str) -> Option<RelationName> {
    let crate::parse::Parsed::Sql(statement) = crate::parse::parse(sql).ok()? else {
        return None;
    };
    let table = match statement.as_ref() {
        ast::Statement::Update(update) => &update.table.relation,
        ast::Statement::Delete(delete) => match &delete.from {
            ast::FromTable::WithFromKeyword(list) | ast::FromTable::WithoutKeyword(list) => &list.first()?.relation,
        },
        ast::Statement::Insert(insert) => {
            let with = insert.source.as_ref().and_then(|source| source.with.as_ref());
            return match &insert.table {
                ast::TableObject::TableName(name) if with.is_none() => RelationName::of(name).ok(),
                _ => None,
            };
        }
        _ => return None,
    };
    match table {
        ast::TableFactor::Table { name, .. } => RelationName::of(name).ok(),
        _ => None,
    }
}
