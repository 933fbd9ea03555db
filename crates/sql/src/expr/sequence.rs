//! What do nextval, currval, setval and lastval give?
//!
//! The values come from the engine's memory (see its `catalog::sequence`); what a session was given last is the session's own.
//!
//! An expression has no transaction at hand. So what an answer depends on is noted here for the statement's end, and a sequence that another
//! transaction is changing ends the evaluation with an error that the session takes for a wait.

use super::Expr;
use super::eval::{Frame, Scalar, evaluate};
use super::sleep::Sleeps;
use crate::bind::names::is_temporary;
use crate::catalog::Relation;
use crate::error::SqlError;
use crate::role::Access;
use crate::role::acl::Privileges;
use crate::value::Datum;
use freshet_engine::catalog::{Sequence, SequenceValue};
use freshet_engine::engine::TakenValue;
use freshet_engine::ids::Cts;
use freshet_engine::schema::Value;
use freshet_engine::txn::WaitToken;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SequenceCall {
    Next,
    /// As an identity column takes its own for whoever may insert.
    Own,
    Current,
    Set,
}

impl SequenceCall {
    pub fn name(self) -> &'static str {
        match self {
            SequenceCall::Next | SequenceCall::Own => "nextval",
            SequenceCall::Current => "currval",
            SequenceCall::Set => "setval",
        }
    }
}

/// The sequence of a plan's schema; `None`: the first argument is its oid, whatever that turns out to be.
#[derive(Clone, Debug)]
pub struct SequenceRef(pub Option<Arc<Sequence>>);

impl SequenceRef {
    fn id(&self) -> Option<u32> {
        self.0.as_ref().map(|sequence| sequence.id)
    }
}

impl PartialEq for SequenceRef {
    fn eq(&self, other: &SequenceRef) -> bool {
        self.id() == other.id()
    }
}

/// What one session has of sequences.
#[derive(Default, Debug)]
pub struct SessionSequences {
    inner: Mutex<Inner>,
    /// Since the statement began.
    has_slept: AtomicBool,
}

#[derive(Default, Debug)]
struct Inner {
    /// By sequence: what the session was given last.
    given: HashMap<u32, i64>,
    /// Of which it was given one last.
    last: Option<u32>,
    /// What answers depend on that show values.
    dependency: Cts,
    /// A sequence that another transaction is changing.
    awaited: Option<Arc<Sequence>>,
    /// The wait for an advisory lock.
    awaited_key: Option<WaitToken>,
    sleeps: Sleeps,
    read_only: bool,
    /// What the session's role may do, unless that is everything. It stands here because both roads have these at hand.
    access: Option<Arc<Access>>,
}

impl SessionSequences {
    /// What the statement's answer depends on; forgotten with that.
    pub fn take_dependency(&self) -> Cts {
        std::mem::take(&mut self.inner.lock().dependency)
    }

    /// The sequence to wait for, where that is what ended the statement.
    pub fn take_awaited(&self) -> Option<Arc<Sequence>> {
        self.inner.lock().awaited.take()
    }

    /// The wait for an advisory lock, where that is what ended the statement.
    pub fn take_awaited_key(&self) -> Option<WaitToken> {
        self.inner.lock().awaited_key.take()
    }

    pub(super) fn await_key(&self, token: WaitToken) {
        self.inner.lock().awaited_key = Some(token);
    }

    /// A statement begins, as which nobody has slept.
    pub fn begin_statement(&self) {
        if self.has_slept.load(Ordering::Relaxed) {
            self.has_slept.store(false, Ordering::Relaxed);
            self.inner.lock().sleeps = Sleeps::default();
        }
    }

    /// The statement runs, or runs again.
    pub fn begin_run(&self) {
        if self.has_slept.load(Ordering::Relaxed) {
            self.inner.lock().sleeps.begin_run();
        }
    }

    /// How long to sleep, where that is what ended the statement.
    pub fn take_awaited_sleep(&self) -> Option<Duration> {
        self.inner.lock().sleeps.take_awaited()
    }

    /// Whether the statement has slept for this call already.
    pub(super) fn has_slept(&self, length: Duration) -> bool {
        self.has_slept.store(true, Ordering::Relaxed);
        self.inner.lock().sleeps.is_over(length)
    }

    pub fn set_read_only(&self, read_only: bool) {
        self.inner.lock().read_only = read_only;
    }

    pub fn set_access(&self, access: Option<Arc<Access>>) {
        self.inner.lock().access = access;
    }

    /// DISCARD SEQUENCES.
    pub fn forget(&self) {
        let mut inner = self.inner.lock();
        inner.given.clear();
        inner.last = None;
    }
}

pub fn call<'a>(
    call: SequenceCall,
    sequence: &'a SequenceRef,
    args: &'a [Expr],
    frame: &Frame<'a>,
) -> Result<Scalar<'a>, SqlError> {
    let own = own(frame)?;
    let (sequence, args) = match (&sequence.0, args) {
        (Some(sequence), args) => (sequence.clone(), args),
        (None, [oid, args @ ..]) => match evaluate(oid, frame)?.value() {
            Value::Int(oid) => (with_oid(oid, frame)?, args),
            _ => return Ok(Scalar::NULL),
        },
        (None, []) => unreachable!("invariant: a sequence that is not known is an argument"),
    };
    let sequence = &sequence;
    let access = own.inner.lock().access.clone();
    let any_of = match call {
        SequenceCall::Own => None,
        SequenceCall::Next => Some(Privileges::USAGE.with(Privileges::UPDATE)),
        SequenceCall::Current => Some(Privileges::USAGE.with(Privileges::SELECT)),
        SequenceCall::Set => Some(Privileges::UPDATE),
    };
    if let (Some(access), Some(any_of)) = (access, any_of) {
        access.check_sequence(sequence.id, any_of)?;
    }
    match call {
        SequenceCall::Next | SequenceCall::Own => next(own, sequence, frame).map(int),
        SequenceCall::Current => match own.inner.lock().given.get(&sequence.id) {
            Some(value) => Ok(int(*value)),
            None => Err(SqlError::new(
                "55000",
                format!("currval of sequence \"{}\" is not yet defined in this session", sequence.def.name),
            )),
        },
        SequenceCall::Set => {
            let value = evaluate(&args[0], frame)?;
            let is_called = match args.get(1) {
                None => true,
                Some(arg) => match evaluate(arg, frame)?.value() {
                    Value::Bool(is_called) => is_called,
                    _ => return Ok(Scalar::NULL),
                },
            };
            match value.value() {
                Value::Int(last) => set(own, sequence, SequenceValue { last, is_called }, frame).map(int),
                _ => Ok(Scalar::NULL),
            }
        }
    }
}

/// The sequence with this oid, in the schema that the statement sees.
fn with_oid(oid: i64, frame: &Frame<'_>) -> Result<Arc<Sequence>, SqlError> {
    let catalog =
        frame.env.clock.catalog.0.as_ref().ok_or_else(|| SqlError::unsupported("a sequence by its oid here"))?;
    let id = u32::try_from(oid).unwrap_or_default();
    if let Some(sequence) = catalog.schema.sequence_by_id(id) {
        return Ok(sequence.clone());
    }
    let table = catalog.schema.table_by_id(freshet_engine::catalog::TableId(id)).map(|table| table.def.name.clone());
    let other = table.or_else(|| catalog.schema.view_by_id(id).map(|view| view.def.name.clone()));
    Err(match other {
        Some(name) => SqlError::new("42809", format!("\"{name}\" is not a sequence")),
        None => SqlError::new("42P01", format!("relation with OID {oid} does not exist")),
    })
}

fn int(value: i64) -> Scalar<'static> {
    Scalar::Own(Datum::Int(value))
}

fn own<'a>(frame: &Frame<'a>) -> Result<&'a SessionSequences, SqlError> {
    frame.env.sequences.as_deref().ok_or_else(|| SqlError::unsupported("a sequence here"))
}

/// A read-only transaction takes values from temporary sequences only.
fn writable(
    own: &SessionSequences,
    call: SequenceCall,
    sequence: &Sequence,
    frame: &Frame<'_>,
) -> Result<(), SqlError> {
    let engine = frame.env.engine.as_ref();
    let is_temporary = || engine.is_some_and(|e| is_temporary(&e.schema(), sequence.def.namespace));
    match own.inner.lock().read_only {
        true if !is_temporary() => {
            let message = format!("cannot execute {}() in a read-only transaction", call.name());
            Err(SqlError::new("25006", message))
        }
        _ => Ok(()),
    }
}

fn next(own: &SessionSequences, sequence: &Arc<Sequence>, frame: &Frame<'_>) -> Result<i64, SqlError> {
    writable(own, SequenceCall::Next, sequence, frame)?;
    let engine = frame.env.engine.as_ref().ok_or_else(|| SqlError::unsupported("a sequence here"))?;
    match engine.take_value(sequence)? {
        TakenValue::Value(value, depends_on) => {
            let mut inner = own.inner.lock();
            inner.given.insert(sequence.id, value);
            inner.last = Some(sequence.id);
            inner.dependency = inner.dependency.max(depends_on);
            Ok(value)
        }
        TakenValue::AtEnd => Err(at_end(sequence)),
        TakenValue::Busy => Err(busy(own, sequence)),
    }
}

fn at_end(sequence: &Sequence) -> SqlError {
    let def = &sequence.def;
    let (what, limit) = if def.increment > 0 { ("maximum", def.max) } else { ("minimum", def.min) };
    SqlError::new("2200H", format!("nextval: reached {what} value of sequence \"{}\" ({limit})", def.name))
}

fn busy(own: &SessionSequences, sequence: &Arc<Sequence>) -> SqlError {
    own.inner.lock().awaited = Some(sequence.clone());
    SqlError::new("55P03", format!("sequence \"{}\" is being changed by another transaction", sequence.def.name))
}

fn set(
    own: &SessionSequences,
    sequence: &Arc<Sequence>,
    value: SequenceValue,
    frame: &Frame<'_>,
) -> Result<i64, SqlError> {
    writable(own, SequenceCall::Set, sequence, frame)?;
    let def = &sequence.def;
    if !(def.min..=def.max).contains(&value.last) {
        let message = format!(
            "setval: value {} is out of bounds for sequence \"{}\" ({}..{})",
            value.last, def.name, def.min, def.max
        );
        return Err(SqlError::new("22003", message));
    }
    let engine = frame.env.engine.as_ref().ok_or_else(|| SqlError::unsupported("a sequence here"))?;
    match engine.set_sequence(sequence, value)? {
        TakenValue::Busy => Err(busy(own, sequence)),
        TakenValue::Value(_, depends_on) => {
            let mut inner = own.inner.lock();
            inner.dependency = inner.dependency.max(depends_on);
            if value.is_called {
                inner.given.insert(sequence.id, value.last);
            }
            Ok(value.last)
        }
        TakenValue::AtEnd => unreachable!("invariant: a value that is set is within the bounds"),
    }
}

pub fn last_value<'a>(frame: &Frame<'a>) -> Result<Scalar<'a>, SqlError> {
    let inner = own(frame)?.inner.lock();
    if let (Some(access), Some(last)) = (&inner.access, inner.last) {
        access.check_sequence(last, Privileges::USAGE.with(Privileges::SELECT))?;
    }
    // A sequence that was dropped has no value any more.
    let is_there = |last: &u32| {
        let catalog = frame.env.clock.catalog.get();
        catalog.is_none_or(|catalog| matches!(catalog.relation(*last), Some(Relation::Sequence(_))))
    };
    let value = inner.last.filter(is_there).and_then(|last| inner.given.get(&last));
    value.map(|value| int(*value)).ok_or_else(|| SqlError::new("55000", "lastval is not yet defined in this session"))
}
