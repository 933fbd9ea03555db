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

    /// What a call says that cannot wait itself.
    fn refused(self) -> SqlError {
        SqlError::unsupported(format!("{} here", self.name()))
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

    /// Whether this call has been slept for; if not, it is from now on, unless another call has ended the run already. Calls that are short count, too:
    /// a moment that was waited for is past in the next run.
    pub fn is_over(&mut self, length: Duration) -> bool {
        if self.awaited.is_some() {
            return false;
        }
        self.met += 1;
        if self.met <= self.done {
            return true;
        }
        self.done = self.met;
        self.awaited = (!length.is_zero()).then_some(length);
        self.awaited.is_none()
    }

    pub fn take_awaited(&mut self) -> Option<Duration> {
        self.awaited.take()
    }
}

pub fn call<'a>(span: Span, arg: &'a Expr, frame: &Frame<'a>) -> Result<Scalar<'a>, SqlError> {
    let given = evaluate(arg, frame)?;
    let seconds = match (span, given.value()) {
        (_, Value::Null) => 0.0,
        (Span::Seconds, Value::Float(seconds)) => seconds,
        (Span::Until, Value::Int(moment)) => moment.saturating_sub(now()) as f64 / 1e6,
        (Span::Interval, Value::Bytes(stored)) => {
            let begin = now();
            let end = moved_in(begin, Interval::from_stored(stored), &frame.env.clock.zone)?;
            end.saturating_sub(begin) as f64 / 1e6
        }
        (_, other) => unreachable!("invariant: an argument has its type: {other:?}"),
    };
    let is_over = match &frame.env.sequences {
        Some(sequences) => sequences.has_slept(length_of(seconds)),
        None => seconds <= 0.0,
    };
    match given.is_null() {
        _ if !is_over => Err(span.refused()),
        true => Ok(Scalar::NULL),
        false => Ok(Scalar::Own(Datum::Bytes(Default::default()))),
    }
}

/// Whether the error is a call's that ended a run, or may be.
pub fn is_asked(error: &SqlError) -> bool {
    [Span::Seconds, Span::Interval, Span::Until].iter().any(|span| span.refused().message == error.message)
}

/// As long as there are numbers for it; who sleeps longer is woken by nobody.
fn length_of(seconds: f64) -> Duration {
    if seconds.is_nan() || seconds <= 0.0 {
        return Duration::ZERO;
    }
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
