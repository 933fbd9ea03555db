//! What do pg_advisory_lock and its like do? They lock keys of the application, by the engine's lock table.
//!
//! An expression has no transaction at hand: a key that must be waited for ends the evaluation with an error that the session takes for a wait,
//! as a sequence's does. The statement then runs again, and finds the key its own.

use super::Expr;
use super::eval::{Frame, Scalar, evaluate};
use crate::error::SqlError;
use crate::value::Datum;
use freshet_engine::schema::Value;
use freshet_engine::txn::{AdvisoryKey, KeyTaken};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyAction {
    /// `kept`: for the session, not for the transaction.
    Lock {
        kept: bool,
        nowait: bool,
    },
    Unlock,
    UnlockAll,
}

/// One of the functions on keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyCall {
    pub action: KeyAction,
    pub shared: bool,
}

impl KeyCall {
    pub fn of_name(name: &str) -> Option<KeyCall> {
        let name = name.strip_prefix("pg_")?;
        let (name, nowait) = name.strip_prefix("try_").map_or((name, false), |rest| (rest, true));
        let name = name.strip_prefix("advisory_")?;
        let (name, shared) = name.strip_suffix("_shared").map_or((name, false), |rest| (rest, true));
        let action = match (name, nowait) {
            ("lock", _) => KeyAction::Lock { kept: true, nowait },
            ("xact_lock", _) => KeyAction::Lock { kept: false, nowait },
            ("unlock", false) => KeyAction::Unlock,
            ("unlock_all", false) if !shared => KeyAction::UnlockAll,
            _ => return None,
        };
        Some(KeyCall { action, shared })
    }

    pub fn name(self) -> String {
        let shared = if self.shared { "_shared" } else { "" };
        match self.action {
            KeyAction::Lock { kept, nowait } => {
                let (tries, of) = (if nowait { "try_" } else { "" }, if kept { "" } else { "xact_" });
                format!("pg_{tries}advisory_{of}lock{shared}")
            }
            KeyAction::Unlock => format!("pg_advisory_unlock{shared}"),
            KeyAction::UnlockAll => "pg_advisory_unlock_all".to_owned(),
        }
    }

    /// Whether it says how it went; the others give PostgreSQL's void, an empty text.
    pub fn tells(self) -> bool {
        matches!(self.action, KeyAction::Lock { nowait: true, .. } | KeyAction::Unlock)
    }

    pub fn arguments(self) -> std::ops::RangeInclusive<usize> {
        if self.action == KeyAction::UnlockAll { 0..=0 } else { 1..=2 }
    }
}

pub fn call<'a>(call: KeyCall, args: &'a [Expr], frame: &Frame<'a>) -> Result<Scalar<'a>, SqlError> {
    let keys = frame.env.keys.as_deref().ok_or_else(|| SqlError::unsupported(format!("{} here", call.name())))?;
    let mut numbers = [0; 2];
    for (number, arg) in numbers.iter_mut().zip(args) {
        match evaluate(arg, frame)?.value() {
            Value::Int(value) => *number = value,
            _ => return Ok(Scalar::NULL),
        }
    }
    let key = match args.len() {
        2 => AdvisoryKey::Two(numbers[0] as i32, numbers[1] as i32),
        _ => AdvisoryKey::One(numbers[0]),
    };
    let done = match call.action {
        KeyAction::Unlock => keys.unlock(key, call.shared),
        KeyAction::UnlockAll => {
            keys.unlock_all();
            true
        }
        KeyAction::Lock { kept, nowait } => match keys.lock(key, call.shared, kept, nowait)? {
            KeyTaken::Yes => true,
            KeyTaken::No => false,
            KeyTaken::Wait(token) => {
                let sequences = frame.env.sequences.as_deref();
                let session = sequences.ok_or_else(|| SqlError::unsupported("an advisory lock here"))?;
                session.await_key(token);
                return Err(SqlError::new("55P03", "the advisory lock is another session's"));
            }
        },
    };
    Ok(Scalar::Own(if call.tells() { Datum::Bool(done) } else { Datum::Bytes(Default::default()) }))
}
