//! What do pg_advisory_lock and its like do? They lock keys of the application, by the engine's lock table.
//!
//! An expression has no transaction at hand: a key that must be waited for ends the evaluation with an error that the session takes for a wait,
//! as a sequence's does. The statement then runs again, and finds the key its own.

use super::Expr;
use super::eval::{Frame, Scalar, evaluate};
use super::sleep::{self, Span};
use crate::activity::Ask;
use crate::catalog::oid;
use crate::error::SqlError;
use crate::role;
use crate::value::{Datum, array_datum, array_items};
use freshet_engine::catalog::RoleId;
use freshet_engine::schema::{OidKind, SystemKind, Type, Value};
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
    /// Of other sessions: who is in the way of one, whether it is one of these, and requests to one.
    Blockers,
    IsBlocked,
    Cancel,
    Terminate,
    /// Of `pg_stat_statements`.
    ForgetStatements,
    Sleep(Span),
    /// `pg_notify(channel, payload)`.
    Notify,
}

/// One of the functions on keys and sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyCall {
    pub action: KeyAction,
    pub shared: bool,
}

impl KeyCall {
    pub fn of_name(name: &str) -> Option<KeyCall> {
        let name = name.strip_prefix("pg_")?;
        let other = match name {
            "blocking_pids" => Some(KeyAction::Blockers),
            "isolation_test_session_is_blocked" => Some(KeyAction::IsBlocked),
            "cancel_backend" => Some(KeyAction::Cancel),
            "terminate_backend" => Some(KeyAction::Terminate),
            "stat_statements_reset" => Some(KeyAction::ForgetStatements),
            "notify" => Some(KeyAction::Notify),
            "sleep" => Some(KeyAction::Sleep(Span::Seconds)),
            "sleep_for" => Some(KeyAction::Sleep(Span::Interval)),
            "sleep_until" => Some(KeyAction::Sleep(Span::Until)),
            _ => None,
        };
        if let Some(action) = other {
            return Some(KeyCall { action, shared: false });
        }
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
            KeyAction::Blockers => "pg_blocking_pids".to_owned(),
            KeyAction::IsBlocked => "pg_isolation_test_session_is_blocked".to_owned(),
            KeyAction::Cancel => "pg_cancel_backend".to_owned(),
            KeyAction::Terminate => "pg_terminate_backend".to_owned(),
            KeyAction::ForgetStatements => "pg_stat_statements_reset".to_owned(),
            KeyAction::Sleep(span) => span.name().to_owned(),
            KeyAction::Notify => "pg_notify".to_owned(),
        }
    }

    /// Whether it says how it went.
    fn tells(self) -> bool {
        let silent = matches!(
            self.action,
            KeyAction::Lock { nowait: false, .. }
                | KeyAction::UnlockAll
                | KeyAction::Blockers
                | KeyAction::ForgetStatements
                | KeyAction::Sleep(_)
                | KeyAction::Notify
        );
        !silent
    }

    pub fn result(self) -> Type {
        match self.action {
            KeyAction::Blockers => Type::Array(&Type::Int4),
            _ if self.tells() => Type::Bool,
            _ => Type::System(SystemKind::Void),
        }
    }

    /// The arguments' types, of so many.
    pub fn arguments(self, count: usize) -> Option<&'static [Type]> {
        const STATEMENT: &[Type] = &[Type::Oid(OidKind::Oid), Type::Oid(OidKind::Oid), Type::Int8];
        match (self.action, count) {
            (KeyAction::ForgetStatements, 0..=3) => Some(&STATEMENT[..count]),
            (KeyAction::UnlockAll, 0) => Some(&[]),
            (KeyAction::Notify, 2) => Some(&[Type::Text, Type::Text]),
            (KeyAction::Sleep(span), 1) => Some(span.arguments()),
            (KeyAction::Blockers | KeyAction::Cancel | KeyAction::Terminate, 1) => Some(&[Type::Int4]),
            (KeyAction::IsBlocked, 2) => Some(&[Type::Int4, Type::Array(&Type::Int4)]),
            (KeyAction::Lock { .. } | KeyAction::Unlock, 1) => Some(&[Type::Int8]),
            (KeyAction::Lock { .. } | KeyAction::Unlock, 2) => Some(&[Type::Int4, Type::Int4]),
            _ => None,
        }
    }
}

pub fn call<'a>(call: KeyCall, args: &'a [Expr], frame: &Frame<'a>) -> Result<Scalar<'a>, SqlError> {
    if let KeyAction::Sleep(span) = call.action {
        return sleep::call(span, &args[0], frame);
    }
    if call.action == KeyAction::Notify {
        return notify(args, frame);
    }
    if !matches!(call.action, KeyAction::Lock { .. } | KeyAction::Unlock | KeyAction::UnlockAll) {
        return of_session(call, args, frame);
    }
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
        KeyAction::Blockers
        | KeyAction::IsBlocked
        | KeyAction::Cancel
        | KeyAction::Terminate
        | KeyAction::ForgetStatements
        | KeyAction::Sleep(_)
        | KeyAction::Notify => {
            unreachable!("invariant: these are of other sessions, or of no key")
        }
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

/// pg_notify(channel, payload): NOTIFY with values. A null is an empty text.
fn notify<'a>(args: &'a [Expr], frame: &Frame<'a>) -> Result<Scalar<'a>, SqlError> {
    let hearing = frame.env.hearing.as_ref().ok_or_else(|| SqlError::unsupported("pg_notify here"))?;
    let text = |arg: &'a Expr| match evaluate(arg, frame)?.value() {
        Value::Bytes(text) => Ok(String::from_utf8_lossy(text).into_owned()),
        _ => Ok::<String, SqlError>(String::new()),
    };
    hearing.say(&text(&args[0])?, &text(&args[1])?)?;
    Ok(Scalar::Own(Datum::Bytes(Default::default())))
}

/// Whether the session's role may end what that one does: as a superuser, or with the rights of its role.
fn check_signal(call: KeyCall, pid: i32, frame: &Frame<'_>) -> Result<(), SqlError> {
    let (Some(access), Some(activity)) = (&frame.env.access, &frame.env.activity) else { return Ok(()) };
    let Some(member) = activity.members().into_iter().find(|member| member.pid == pid) else { return Ok(()) };
    let (what, done) = match call.action {
        KeyAction::Terminate => ("terminate superuser process", "process is being terminated"),
        _ => ("cancel superuser query", "query is being canceled"),
    };
    if role::is_superuser(&access.schema, member.role) {
        return Err(SqlError::new("42501", format!("must be a superuser to {what}")));
    }
    if access.has_role(member.role) {
        return Ok(());
    }
    let message = format!("must be a member of the role whose {done} or member of pg_signal_backend");
    Err(SqlError::new("42501", message))
}

/// What another session waits for, or is told.
fn of_session<'a>(call: KeyCall, args: &'a [Expr], frame: &Frame<'a>) -> Result<Scalar<'a>, SqlError> {
    let here = || SqlError::unsupported(format!("{} here", call.name()));
    if call.action == KeyAction::ForgetStatements {
        return forget_statements(args, frame);
    }
    let engine = frame.env.engine.as_ref().ok_or_else(here)?;
    let Value::Int(pid) = evaluate(&args[0], frame)?.value() else { return Ok(Scalar::NULL) };
    let blockers = || u32::try_from(pid).map_or_else(|_| Vec::new(), |pid| engine.blockers(pid));
    if matches!(call.action, KeyAction::Cancel | KeyAction::Terminate) {
        check_signal(call, pid as i32, frame)?;
    }
    let ask = |what| frame.env.activity.as_ref().is_some_and(|activity| activity.ask(pid as i32, what));
    let is_served = frame.env.activity.as_ref().is_some_and(|activity| activity.is_served(pid as i32));
    Ok(Scalar::Own(match call.action {
        KeyAction::Blockers => {
            let pids = blockers().into_iter().map(|pid| Datum::Int(i64::from(pid)));
            array_datum(Type::Int4, pids.collect())
        }
        KeyAction::IsBlocked => {
            let watched = evaluate(&args[1], frame)?;
            let Value::Bytes(watched) = watched.value() else { return Ok(Scalar::NULL) };
            let watched = array_items(Type::Int4, watched);
            let is_watched = |pid: u32| watched.contains(&Datum::Int(i64::from(pid)));
            Datum::Bool(blockers().into_iter().any(is_watched))
        }
        KeyAction::Cancel => Datum::Bool(ask(Ask::Cancel)),
        // The statement ends as the session does, and gives nothing.
        KeyAction::Terminate if is_served && pid == i64::from(frame.env.backend_pid) => {
            return Err(SqlError::new("57P01", "terminating connection due to administrator command"));
        }
        KeyAction::Terminate => Datum::Bool(ask(Ask::Terminate)),
        KeyAction::Lock { .. }
        | KeyAction::Unlock
        | KeyAction::UnlockAll
        | KeyAction::ForgetStatements
        | KeyAction::Sleep(_)
        | KeyAction::Notify => {
            unreachable!("invariant: these are of the session itself")
        }
    }))
}

/// pg_stat_statements_reset(user, database, statement), each of which may be left out or 0: all of them.
fn forget_statements<'a>(args: &'a [Expr], frame: &Frame<'a>) -> Result<Scalar<'a>, SqlError> {
    let mut given = [0; 3];
    for (number, arg) in given.iter_mut().zip(args) {
        let Value::Int(value) = evaluate(arg, frame)?.value() else { return Ok(Scalar::NULL) };
        *number = value;
    }
    let [user, database, query_id] = given;
    let is_ours = database == 0 || database == i64::from(oid::DATABASE);
    let nowhere = || SqlError::unsupported("pg_stat_statements_reset here");
    let activity = frame.env.activity.as_ref().ok_or_else(nowhere)?;
    if frame.env.access.is_some() {
        return Err(SqlError::new("42501", "permission denied for function pg_stat_statements_reset"));
    }
    if is_ours {
        let user = (user != 0).then(|| role_name(frame, user));
        activity.statements.reset(user.as_deref(), Some(query_id).filter(|&id| id != 0), crate::session::now());
    }
    Ok(Scalar::Own(Datum::Bytes(Default::default())))
}

/// The name of the role with this number; one that nobody has where there is none.
fn role_name(frame: &Frame<'_>, number: i64) -> String {
    let id = u32::try_from(number).map_or(RoleId(0), RoleId);
    let engine = frame.env.engine.as_ref();
    let named = engine.and_then(|engine| role::known_name(&engine.schema(), id, Some(&frame.env.session_user)));
    named.unwrap_or_default()
}
