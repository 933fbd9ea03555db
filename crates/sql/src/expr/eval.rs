//! Evaluation.

use super::{Env, EnvValue, Expr, Lists, Search};
use crate::error::SqlError;
use crate::unwind::changing;
use crate::value::function::Function;
use crate::value::operator::BinaryOperator;
use crate::value::{self, Datum};
use freshet_engine::catalog::Table;
use freshet_engine::schema::{Layout, Row, Type, Value};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// What an expression may look at: one row of each source, parameters, the environment.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    /// By source; `None` for a computed one.
    pub tables: &'a [Option<Arc<Table>>],
    /// By source; empty for a computed one.
    pub rows: &'a [Row],
    /// By source; empty for a stored one.
    pub cells: &'a [Vec<Datum>],
    pub parameters: &'a [Datum],
    pub env: &'a Env,
    /// What the run has put in order of its parameters.
    pub lists: Option<&'a Lists>,
}

impl<'a> Frame<'a> {
    /// Of nothing but the environment.
    #[inline]
    pub fn new(env: &'a Env) -> Frame<'a> {
        Frame { tables: &[], rows: &[], cells: &[], parameters: &[], env, lists: None }
    }

    #[inline]
    pub fn column(&self, source: u16, column: u16) -> Value<'a> {
        let (layout, row) = self.place(source);
        row.get(layout, usize::from(column))
    }

    /// Where the columns of a stored source stand.
    #[inline]
    pub fn place(&self, source: u16) -> (&'a Layout, &'a Row) {
        let source = usize::from(source);
        let table = self.tables[source].as_ref().expect("invariant: a column is of a stored source");
        (&table.layout, &self.rows[source])
    }
}

/// A value on its way: a view of what is there, or what was just computed.
#[derive(Debug)]
pub enum Scalar<'a> {
    View(Value<'a>),
    Own(Datum),
}

impl Scalar<'_> {
    pub const NULL: Scalar<'static> = Scalar::View(Value::Null);

    pub fn value(&self) -> Value<'_> {
        match self {
            Scalar::View(value) => *value,
            Scalar::Own(datum) => datum.as_value(),
        }
    }

    pub fn is_null(&self) -> bool {
        match self {
            Scalar::View(value) => value.is_null(),
            Scalar::Own(datum) => matches!(datum, Datum::Null),
        }
    }

    pub fn into_datum(self) -> Datum {
        match self {
            Scalar::View(value) => value.into(),
            Scalar::Own(datum) => datum,
        }
    }
}

impl From<Option<bool>> for Scalar<'_> {
    fn from(truth: Option<bool>) -> Self {
        Scalar::View(truth.map_or(Value::Null, Value::Bool))
    }
}

/// Whether a condition is TRUE: neither false nor unknown.
pub fn test(expr: &Expr, frame: &Frame<'_>) -> Result<bool, SqlError> {
    Ok(truth(expr, frame)? == Some(true))
}

/// A condition's truth; `None` is unknown.
pub fn truth(expr: &Expr, frame: &Frame<'_>) -> Result<Option<bool>, SqlError> {
    match expr {
        Expr::Compare { operator, left, right } => {
            let (left, right) = (evaluate(left, frame)?, evaluate(right, frame)?);
            let order = order(operator, &left.value(), &right.value())?;
            Ok(order.map(|order| operator.op.holds(order)))
        }
        Expr::And(list) => junction(list, frame, false),
        Expr::Or(list) => junction(list, frame, true),
        Expr::Not(inner) => Ok(truth(inner, frame)?.map(|b| !b)),
        Expr::IsNull { expr, negated } => Ok(Some(evaluate(expr, frame)?.is_null() != *negated)),
        Expr::IsTruth { expr, value, negated } => Ok(Some((truth(expr, frame)? == Some(*value)) != *negated)),
        Expr::Distinct { operator, left, right, negated } => {
            let (left, right) = (evaluate(left, frame)?, evaluate(right, frame)?);
            let equal = match order(operator, &left.value(), &right.value())? {
                Some(order) => order == Ordering::Equal,
                None => left.is_null() && right.is_null(),
            };
            Ok(Some(equal == *negated))
        }
        Expr::In { expr, list, negated, search } => {
            let wanted = evaluate(expr, frame)?;
            let found = match search {
                Some(Search::Sorted(_)) if wanted.is_null() => None,
                Some(Search::Sorted(sorted)) => Some(sorted.has(list, &wanted.value())?),
                Some(Search::InRun(token)) => {
                    match frame.lists.and_then(|lists| lists.of_list(token, list, frame.parameters)) {
                        Some(members) => members.truth(&list[0].0, false, &wanted.value())?,
                        None => member(&wanted, list, frame)?,
                    }
                }
                None => member(&wanted, list, frame)?,
            };
            Ok(found.map(|b| b != *negated))
        }
        Expr::Quantified { operator, left, array, all, members } => match members {
            Some(members) => members.truth(operator, *all, &evaluate(left, frame)?.value()),
            None => quantified(operator, left, array, *all, frame),
        },
        Expr::Like { expr, pattern, escape, insensitive, negated } => {
            let (text, pattern) = (evaluate(expr, frame)?, evaluate(pattern, frame)?);
            let (Value::Bytes(text), Value::Bytes(pattern)) = (text.value(), pattern.value()) else {
                return Ok(None);
            };
            let found = value::pattern::like(text, pattern, *escape, *insensitive)?;
            Ok(Some(found != *negated))
        }
        other => match evaluate(other, frame)?.value() {
            Value::Bool(b) => Ok(Some(b)),
            _ => Ok(None),
        },
    }
}

/// The order of two values; `None` if either is null.
fn order(operator: &BinaryOperator, left: &Value<'_>, right: &Value<'_>) -> Result<Option<Ordering>, SqlError> {
    if left.is_null() || right.is_null() {
        return Ok(None);
    }
    operator.compare(left, right).map(Some)
}

/// AND ends at the first false, OR at the first true (`until`).
fn junction(list: &[Expr], frame: &Frame<'_>, until: bool) -> Result<Option<bool>, SqlError> {
    let mut unknown = false;
    for expr in list {
        match truth(expr, frame)? {
            Some(b) if b == until => return Ok(Some(until)),
            Some(_) => {}
            None => unknown = true,
        }
    }
    Ok(if unknown { None } else { Some(!until) })
}

/// ANY ends at the first element for which the operator holds, ALL at the first for which it does not.
fn quantified(
    operator: &BinaryOperator,
    left: &Expr,
    array: &Expr,
    all: bool,
    frame: &Frame<'_>,
) -> Result<Option<bool>, SqlError> {
    let left = evaluate(left, frame)?;
    if let (Expr::Param(parameter), Some(lists)) = (array, frame.lists)
        && let Some(members) = lists.of_array(*parameter, (operator, all), frame.parameters)
    {
        return members.truth(operator, all, &left.value());
    }
    let array = evaluate(array, frame)?;
    let Value::Bytes(stored) = array.value() else {
        return Ok(None);
    };
    let mut unknown = false;
    for item in value::array_items(operator.right, stored) {
        match operator.apply(&left.value(), &item.as_value())? {
            Datum::Bool(holds) if holds != all => return Ok(Some(!all)),
            Datum::Bool(_) => {}
            _ => unknown = true,
        }
    }
    Ok(if unknown { None } else { Some(all) })
}

fn member(wanted: &Scalar<'_>, list: &[(BinaryOperator, Expr)], frame: &Frame<'_>) -> Result<Option<bool>, SqlError> {
    let mut unknown = wanted.is_null();
    for (operator, item) in list {
        let item = evaluate(item, frame)?;
        match order(operator, &wanted.value(), &item.value())? {
            Some(Ordering::Equal) => return Ok(Some(true)),
            Some(_) => {}
            None => unknown = true,
        }
    }
    Ok(if unknown { None } else { Some(false) })
}

/// The expression's value.
pub fn evaluate<'a>(expr: &'a Expr, frame: &Frame<'a>) -> Result<Scalar<'a>, SqlError> {
    match expr {
        Expr::Column { source, column } => Ok(Scalar::View(frame.column(*source, *column))),
        Expr::Param(i) => Ok(Scalar::View(frame.parameters[usize::from(*i)].as_value())),
        Expr::Const(datum) => Ok(Scalar::View(datum.as_value())),
        Expr::Cell { source, column } => {
            Ok(Scalar::View(frame.cells[usize::from(*source)][usize::from(*column)].as_value()))
        }
        Expr::Aggregate(_) => unreachable!("invariant: grouping replaces aggregates before a run"),
        Expr::Cast { expr, from, to, explicit } => {
            let inner = evaluate(expr, frame)?;
            if inner.is_null() {
                return Ok(Scalar::NULL);
            }
            value::cast::cast_by(*from, &inner.value(), *to, *explicit, &frame.env.clock).map(Scalar::Own)
        }
        Expr::Binary { operator, left, right } => {
            let (left, right) = (evaluate(left, frame)?, evaluate(right, frame)?);
            operator.apply(&left.value(), &right.value()).map(Scalar::Own)
        }
        Expr::Negate { expr, ty } => {
            let inner = evaluate(expr, frame)?;
            if inner.is_null() {
                return Ok(Scalar::NULL);
            }
            value::operator::negate(*ty, &inner.value()).map(Scalar::Own)
        }
        Expr::Case { branches, otherwise } => {
            for (condition, result) in branches {
                if test(condition, frame)? {
                    return evaluate(result, frame);
                }
            }
            match otherwise {
                Some(result) => evaluate(result, frame),
                None => Ok(Scalar::NULL),
            }
        }
        Expr::Let { id, value, body } => {
            let value = evaluate(value, frame)?.into_datum();
            let is_it = |e: &Expr| matches!(e, Expr::Given(given) if given == id);
            let body = body.as_ref().clone().rewrite(&mut |e| is_it(e).then(|| Expr::Const(value.clone())));
            Ok(Scalar::Own(evaluate(&body, frame)?.into_datum()))
        }
        Expr::Given(_) => unreachable!("invariant: a given value stands in its Let's body, where it is replaced"),
        Expr::Call { function, args } => call(function, args, frame),
        Expr::Coalesce(list) => {
            for item in list {
                let item = evaluate(item, frame)?;
                if !item.is_null() {
                    return Ok(item);
                }
            }
            Ok(Scalar::NULL)
        }
        Expr::NullIf { operator, left, right } => {
            let (left, right) = (evaluate(left, frame)?, evaluate(right, frame)?);
            match order(operator, &left.value(), &right.value())? {
                Some(Ordering::Equal) => Ok(Scalar::NULL),
                _ => Ok(left),
            }
        }
        Expr::Extreme { greatest, list, ty } => extreme(*greatest, list, *ty, frame),
        Expr::Env(what) => Ok(environment(*what, frame.env)),
        Expr::Setting { name, missing_ok } => setting(name, *missing_ok, frame),
        Expr::Sequence { call, sequence, args } => changing(|| super::sequence::call(*call, sequence, args, frame)),
        Expr::LastValue => super::sequence::last_value(frame),
        Expr::Key { call, args } => changing(|| super::advisory::call(*call, args, frame)),
        Expr::Compare { .. }
        | Expr::And(_)
        | Expr::Or(_)
        | Expr::Not(_)
        | Expr::IsNull { .. }
        | Expr::IsTruth { .. }
        | Expr::Distinct { .. }
        | Expr::In { .. }
        | Expr::Quantified { .. }
        | Expr::Like { .. } => Ok(truth(expr, frame)?.into()),
    }
}

fn call<'a>(function: &Function, args: &'a [Expr], frame: &Frame<'a>) -> Result<Scalar<'a>, SqlError> {
    let mut scalars = Vec::with_capacity(args.len());
    for arg in args {
        scalars.push(evaluate(arg, frame)?);
    }
    let values: Vec<Value<'_>> = scalars.iter().map(Scalar::value).collect();
    function.call_by(&values, &frame.env.clock).map(Scalar::Own)
}

fn extreme<'a>(greatest: bool, list: &'a [Expr], ty: Type, frame: &Frame<'a>) -> Result<Scalar<'a>, SqlError> {
    let wanted = if greatest { Ordering::Greater } else { Ordering::Less };
    let mut best = Scalar::NULL;
    for item in list {
        let item = evaluate(item, frame)?;
        if item.is_null() {
            continue;
        }
        if best.is_null() || ty.compare(&item.value(), &best.value()) == wanted {
            best = item;
        }
    }
    Ok(best)
}

fn setting<'a>(name: &'a Expr, missing_ok: bool, frame: &Frame<'a>) -> Result<Scalar<'a>, SqlError> {
    let name = evaluate(name, frame)?;
    let Value::Bytes(name) = name.value() else {
        return Ok(Scalar::NULL);
    };
    let name = text_of(name);
    match setting_of_transaction(&name, frame.env).or_else(|| frame.env.settings.get(&name)) {
        Some(value) => Ok(Scalar::Own(Datum::Bytes(value.into_bytes().into()))),
        None if missing_ok => Ok(Scalar::NULL),
        None => Err(SqlError::new("42704", format!("unrecognized configuration parameter \"{name}\""))),
    }
}

fn on_off(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

/// What the transaction, not the session, has of a setting.
fn setting_of_transaction(name: &str, env: &Env) -> Option<String> {
    match name.to_ascii_lowercase().as_str() {
        "transaction_isolation" => Some(env.level.name().to_owned()),
        "transaction_read_only" => Some(on_off(env.read_only).to_owned()),
        "transaction_deferrable" => Some(on_off(env.deferrable).to_owned()),
        _ => None,
    }
}

fn environment(what: EnvValue, env: &Env) -> Scalar<'_> {
    let local = || env.clock.zone.to_local(env.clock.now);
    let value = match what {
        EnvValue::Now => Value::Int(env.clock.now),
        EnvValue::StatementTime => Value::Int(env.statement),
        EnvValue::OpenedTime => env.activity.as_ref().map_or(Value::Null, |activity| Value::Int(activity.opened_us())),
        EnvValue::LocalTimestamp => Value::Int(local()),
        EnvValue::CurrentDate => Value::Int(local().div_euclid(MICROS_PER_DAY)),
        EnvValue::LocalTime => Value::Int(local().rem_euclid(MICROS_PER_DAY)),
        EnvValue::User => Value::Bytes(env.user.as_bytes()),
        EnvValue::SessionUser => Value::Bytes(env.session_user.as_bytes()),
        EnvValue::Database => Value::Bytes(env.database.as_bytes()),
        EnvValue::Schema => match env.schema.as_deref() {
            None => Value::Bytes(b"public"),
            Some("") => Value::Null,
            Some(name) => Value::Bytes(name.as_bytes()),
        },
        EnvValue::Version => Value::Bytes(VERSION.as_bytes()),
        EnvValue::BackendPid => Value::Int(i64::from(env.backend_pid)),
        EnvValue::TransactionId => env.transaction_id().map_or(Value::Null, Value::Int),
        EnvValue::TransactionIdIfAssigned => env.assigned_transaction_id().map_or(Value::Null, Value::Int),
        EnvValue::Xid => Value::Int(env.transaction_id().map_or(1, |number| (number & i64::from(i32::MAX)).max(1))),
        EnvValue::ServerAddress => address(env.ends.as_ref().map(|ends| &ends.server)),
        EnvValue::ServerPort => port(env.ends.as_ref().map(|ends| &ends.server)),
        EnvValue::ClientAddress => address(env.ends.as_ref().map(|ends| &ends.client)),
        EnvValue::ClientPort => port(env.ends.as_ref().map(|ends| &ends.client)),
    };
    Scalar::View(value)
}

fn address(end: Option<&(Box<[u8]>, u16)>) -> Value<'_> {
    end.map_or(Value::Null, |(address, _)| Value::Bytes(address))
}

fn port(end: Option<&(Box<[u8]>, u16)>) -> Value<'static> {
    end.map_or(Value::Null, |(_, port)| Value::Int(i64::from(*port)))
}

/// Begins as PostgreSQL's does: clients read the number out of it.
const VERSION: &str = concat!("PostgreSQL 15.0 compatible (Freshet ", env!("CARGO_PKG_VERSION"), ")");

/// A text's characters, for messages.
pub fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
