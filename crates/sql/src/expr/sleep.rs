//! What do pg_sleep, pg_sleep_for and pg_sleep_until do? The statement waits, and no thread with it.
//!
//! An expression cannot wait: its evaluation ends with an error that the session takes for a wait, as an advisory lock's does. The statement then runs
//! again and passes as many calls as it has slept for already.

use super::Expr;
use super::eval::{Frame, Scalar, evaluate};
use crate::error::SqlError;
use crate::session::now;
use crate::value::Datum;
use crate::value::interval::{Interval, moved_in};
use freshet_engine::schema::{Type, Value};
use std::time::Duration;

/// How long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    Seconds,
    Interval,
    Until,
}

impl Span {
    pub fn name(self) -> &'static str {
        match self {
            Span::Seconds => "pg_sleep",
            Span::Interval => "pg_sleep_for",
            Span::Until => "pg_sleep_until",
        }
    }

    pub fn arguments(self) -> &'static [Type] {
        match self {
            Span::Seconds => &[Type::Float8],
            Span::Interval => &[Type::Interval],
            Span::Until => &[Type::Timestamptz],
        }
    }
}

/// What a statement has slept.
#[derive(Default, Debug)]
pub(super) struct Sleeps {
    /// In all its runs.
    done: u64,
    /// Calls of this run.
    met: u64,
    /// What the run ended for.
    awaited: Option<Duration>,
}

impl Sleeps {
    /// The statement runs, again or not.
    pub fn begin_run(&mut self) {
        (self.met, self.awaited) = (0, None);
    }

    /// Whether this call has been slept for; if not, it is from now on.
    pub fn is_over(&mut self, length: Duration) -> bool {
        self.met += 1;
        let is_over = self.met <= self.done;
        if !is_over {
            self.done = self.met;
            self.awaited = Some(length);
        }
        is_over
    }

    pub fn take_awaited(&mut self) -> Option<Duration> {
        self.awaited.take()
    }
}

pub fn call<'a>(span: Span, arg: &'a Expr, frame: &Frame<'a>) -> Result<Scalar<'a>, SqlError> {
    let given = evaluate(arg, frame)?;
    let seconds = match (span, given.value()) {
        (_, Value::Null) => return Ok(Scalar::NULL),
        (Span::Seconds, Value::Float(seconds)) => seconds,
        (Span::Until, Value::Int(moment)) => moment.saturating_sub(now()) as f64 / 1e6,
        (Span::Interval, Value::Bytes(stored)) => {
            let begin = now();
            let end = moved_in(begin, Interval::from_stored(stored), &frame.env.clock.zone)?;
            end.saturating_sub(begin) as f64 / 1e6
        }
        (_, other) => unreachable!("invariant: an argument has its type: {other:?}"),
    };
    let is_long = seconds > 0.0;
    let here = || SqlError::unsupported(format!("{} here", span.name()));
    if is_long && !frame.env.sequences.as_ref().ok_or_else(here)?.has_slept(length_of(seconds)) {
        return Err(here());
    }
    Ok(Scalar::Own(Datum::Bytes(Default::default())))
}

/// As long as there are numbers for it; who sleeps longer is woken by nobody.
fn length_of(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
