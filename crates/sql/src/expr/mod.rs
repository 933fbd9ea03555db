//! What is an expression worth? Bound expressions and their evaluation over a frame of rows.
//!
//! A bound expression knows where each value lies (a source's column, a parameter) and of which type it is; names and
//! implicit casts are gone. Evaluation borrows from rows, parameters and constants wherever it can and owns only what
//! it computes. NULL follows SQL's three-valued logic.

mod eval;
mod one_of;
mod advisory;
mod sequence;
mod show;
mod sleep;

pub use advisory::KeyCall;
pub use eval::{Frame, evaluate, test, truth};
pub use one_of::{Lists, Members, Search};
pub use sequence::{SequenceCall, SequenceRef, SessionSequences};
pub use show::show;
#[cfg(feature = "query")]
pub use show::show_value;
pub(crate) use sleep::is_asked as is_sleep;

use crate::role::Access;
use crate::route::Level;
use crate::settings::Settings;
use crate::statistics::Statistics;
use crate::value::cast::{is_integer, is_text, needs_clock};
use crate::value::function::Function;
use crate::value::operator::BinaryOperator;
use crate::value::{Clock, Datum};
use crate::value::{is_read_by_clock, network};
use freshet_engine::catalog::RoleId;
use freshet_engine::engine::Engine;
use freshet_engine::schema::Type;
use freshet_engine::txn::AdvisoryKeys;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// What the session and the clock know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnvValue {
    /// The transaction's start.
    Now,
    /// The statement's.
    StatementTime,
    /// When the database was opened.
    OpenedTime,
    LocalTimestamp,
    CurrentDate,
    LocalTime,
    User,
    SessionUser,
    Database,
    Schema,
    Version,
    BackendPid,
    TransactionId,
    TransactionIdIfAssigned,
    /// The transaction's number in 31 bits, as rows would carry it: an integer to who casts it, never 0.
    Xid,
    ServerAddress,
    ServerPort,
    ClientAddress,
    ClientPort,
}

impl EnvValue {
    /// What a transaction that asks is marked with until its end.
    pub fn is_of_transaction(self) -> bool {
        matches!(self, EnvValue::TransactionId | EnvValue::TransactionIdIfAssigned | EnvValue::Xid)
    }
}

/// The two ends of a connection over TCP: each an `inet` and a port.
#[derive(Clone, Debug)]
pub struct Ends {
    server: (Box<[u8]>, u16),
    client: (Box<[u8]>, u16),
}

impl Ends {
    pub fn new(server: SocketAddr, client: SocketAddr) -> Ends {
        let of = |address: SocketAddr| (network::Network::of(address.ip().to_canonical()).to_stored(), address.port());
        Ends { server: of(server), client: of(client) }
    }
}

/// What `txid_current` said in the transaction that is open.
#[derive(Clone, Default, Debug)]
pub struct TransactionNumber(Arc<AtomicI64>);

impl TransactionNumber {
    pub fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Some thread of the statement gives it, and the others find it.
    fn get_or_give(&self, give: impl FnOnce() -> i64) -> i64 {
        match self.0.load(Ordering::Relaxed) {
            0 => {
                let given = give();
                self.0
                    .compare_exchange(0, given, Ordering::Relaxed, Ordering::Relaxed)
                    .map_or_else(|other| other, |_| given)
            }
            given => given,
        }
    }
}

/// The values behind [`EnvValue`] and the session's settings.
#[derive(Clone, Default, Debug)]
#[repr(C)]
pub struct Env {
    /// The session's zone, and when its transaction began.
    pub clock: Clock,
    pub settings: Settings,
    /// Of the transaction that the statement is in.
    pub level: Level,
    pub read_only: bool,
    pub deferrable: bool,
    pub number: TransactionNumber,
    /// The transaction has changed something, or is about to.
    pub changes: bool,
    /// When the statement began, if it asks.
    pub statement: i64,
    /// The name of the role whose rights are in force.
    pub user: String,
    /// The name of the role that the session is of.
    pub session_user: String,
    /// By their numbers: the one in force, and the session's.
    pub role: RoleId,
    pub session_role: RoleId,
    /// What the role in force may do; `None`: everything.
    pub access: Option<Arc<Access>>,
    pub database: String,
    /// `current_schema`, where it is not `public`; empty: there is none.
    pub schema: Option<String>,
    pub backend_pid: i32,
    /// `None`: the client came another way than over TCP.
    pub ends: Option<Ends>,
    /// What system views tell about; `None` where a plan is only looked at.
    pub engine: Option<Engine>,
    /// What the session has of sequences; `None` where nothing may be taken from one.
    pub sequences: Option<Arc<SessionSequences>>,
    /// The session's advisory locks, once a statement may ask for one.
    pub keys: Option<Arc<AdvisoryKeys>>,
    /// What the session says and hears; `None` where there is no session.
    pub(crate) hearing: Option<Arc<crate::channel::Hearing>>,
    /// What the session keeps by name.
    pub listed: Option<Arc<crate::session::listed::Listed>>,
    /// Who else is connected.
    pub activity: Option<Arc<crate::activity::Activity>>,
    /// What is known of tables; `None` where nothing is.
    pub statistics: Option<Arc<Statistics>>,
}

impl Env {
    /// The number of the transaction; `None` where there is no database.
    fn transaction_id(&self) -> Option<i64> {
        let (activity, engine) = (self.activity.as_ref()?, self.engine.as_ref()?);
        Some(self.number.get_or_give(|| activity.number_transaction(engine.newest_cts())))
    }

    /// The same, if the transaction has one: it asked for it, or it changes something.
    fn assigned_transaction_id(&self) -> Option<i64> {
        let is_assigned = self.changes || self.number.0.load(Ordering::Relaxed) != 0;
        if is_assigned { self.transaction_id() } else { None }
    }

    /// Takes what the settings say of how values are read and written.
    pub(crate) fn set_clock(&mut self) {
        self.clock.zone = self.settings.zone.clone();
        self.clock.dates = self.settings.dates;
        self.clock.intervals = self.settings.intervals;
    }
}

/// A bound expression.
#[derive(Clone, PartialEq, Debug)]
pub enum Expr {
    Const(Datum),
    /// Zero-based.
    Param(u16),
    /// A column of a stored row.
    Column {
        source: u16,
        column: u16,
    },
    /// A column of a computed row.
    Cell {
        source: u16,
        column: u16,
    },
    /// The result of an aggregate; a [`Expr::Cell`] once grouping is planned.
    Aggregate(u16),
    Cast {
        expr: Box<Expr>,
        from: Type,
        to: Type,
        explicit: bool,
    },
    /// Arithmetic, concatenation and the like; comparisons are [`Expr::Compare`].
    Binary {
        operator: BinaryOperator,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    Negate {
        expr: Box<Expr>,
        ty: Type,
    },
    Compare {
        operator: BinaryOperator,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    IsNull {
        expr: Box<Expr>,
        negated: bool,
    },
    /// IS [NOT] TRUE, IS [NOT] FALSE.
    IsTruth {
        expr: Box<Expr>,
        value: bool,
        negated: bool,
    },
    /// IS [NOT] DISTINCT FROM.
    Distinct {
        /// Equality.
        operator: BinaryOperator,
        left: Box<Expr>,
        right: Box<Expr>,
        negated: bool,
    },
    In {
        expr: Box<Expr>,
        /// Each with its equality.
        list: Vec<(BinaryOperator, Expr)>,
        negated: bool,
        /// By which a long list is searched.
        search: Option<Search>,
    },
    Like {
        expr: Box<Expr>,
        pattern: Box<Expr>,
        escape: Option<char>,
        insensitive: bool,
        negated: bool,
    },
    Case {
        branches: Vec<(Expr, Expr)>,
        otherwise: Option<Box<Expr>>,
    },
    /// A value that is computed once for all of the [`Expr::Given`]s of its number in the body.
    Let {
        id: u16,
        value: Box<Expr>,
        body: Box<Expr>,
    },
    Given(u16),
    /// The arguments have the function's types.
    Call {
        function: Box<Function>,
        args: Vec<Expr>,
    },
    Coalesce(Vec<Expr>),
    NullIf {
        /// Equality.
        operator: BinaryOperator,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    /// GREATEST, LEAST.
    Extreme {
        greatest: bool,
        list: Vec<Expr>,
        ty: Type,
    },
    /// `left operator ANY (array)` or ALL: unknown if no element decides and one compares as unknown.
    Quantified {
        operator: BinaryOperator,
        left: Box<Expr>,
        array: Box<Expr>,
        all: bool,
        /// By which a long constant array is searched.
        members: Option<Members>,
    },
    Env(EnvValue),
    /// `current_setting(name, missing_ok)`.
    Setting {
        name: Box<Expr>,
        missing_ok: bool,
    },
    /// nextval, currval, setval: each evaluation counts.
    Sequence {
        call: SequenceCall,
        sequence: SequenceRef,
        args: Vec<Expr>,
    },
    /// lastval().
    LastValue,
    /// An advisory lock: each evaluation counts.
    Key {
        call: KeyCall,
        args: Vec<Expr>,
    },
}

/// Whether every value of a type is one of another.
fn always_casts(from: Type, to: Type) -> bool {
    let is_wide = matches!(to, Type::Text | Type::Float8 | Type::Numeric { typmod: None });
    from == to
        || matches!((from, to), (Type::Int2, Type::Int4 | Type::Int8) | (Type::Int4, Type::Int8))
        || (is_wide && is_integer(from))
}

impl Expr {
    pub const NULL: Expr = Expr::Const(Datum::Null);

    /// Whether evaluating it changes something, or gives another value each time.
    pub fn is_volatile(&self) -> bool {
        let mut found = false;
        self.walk(&mut |e| {
            found |= match e {
                Expr::Sequence { .. } | Expr::LastValue | Expr::Key { .. } => true,
                Expr::Call { function, .. } => function.is_volatile(),
                _ => false,
            };
            !found
        });
        found
    }

    /// Whether it gives the same whenever it is computed, whatever becomes of its table. A row does not: what shows it shows columns that come
    /// later too, and values as the session's settings have it.
    pub fn is_immutable(&self) -> bool {
        let mut makes_row = false;
        self.walk(&mut |e| {
            makes_row |= matches!(e, Expr::Call { function, .. } if function.makes_row());
            !makes_row
        });
        !makes_row && !self.is_volatile()
    }

    /// Whether it may give something else in another statement or session, as PostgreSQL has it, where [`Expr::is_immutable`] knows that of its
    /// functions it does not here.
    pub fn is_stable(&self) -> bool {
        let mut found = false;
        self.walk(&mut |e| {
            found |= match e {
                Expr::Env(_) | Expr::Setting { .. } => true,
                Expr::Call { function, .. } => function.is_stable(),
                _ => false,
            };
            !found
        });
        found
    }

    /// Whether it takes or looks at a sequence's value.
    pub fn asks_sequence(&self) -> bool {
        let mut found = false;
        self.walk(&mut |e| {
            found |= matches!(e, Expr::Sequence { .. } | Expr::LastValue | Expr::Key { .. });
            !found
        });
        found
    }

    /// Whether computing it may be an error. What is not known to give a value always may be one.
    pub fn may_fail(&self) -> bool {
        let mut found = false;
        self.walk(&mut |e| {
            found |= !e.gives_always();
            !found
        });
        found
    }

    /// Whether it gives a value for all of its operands.
    fn gives_always(&self) -> bool {
        match self {
            Expr::Const(_)
            | Expr::Param(_)
            | Expr::Column { .. }
            | Expr::Cell { .. }
            | Expr::Compare { .. }
            | Expr::And(_)
            | Expr::Or(_)
            | Expr::Not(_)
            | Expr::IsNull { .. }
            | Expr::IsTruth { .. }
            | Expr::Distinct { .. }
            | Expr::In { .. }
            | Expr::Case { .. }
            | Expr::Let { .. }
            | Expr::Given(_)
            | Expr::Coalesce(_)
            | Expr::NullIf { .. }
            | Expr::Extreme { .. }
            | Expr::Env(_) => true,
            Expr::Cast { from, to, .. } => always_casts(*from, *to),
            _ => false,
        }
    }

    /// Whether it may leave some of its operands without a look.
    pub fn chooses(&self) -> bool {
        let mut found = false;
        self.walk(&mut |e| {
            found |= matches!(e, Expr::Case { .. } | Expr::Coalesce(_) | Expr::And(_) | Expr::Or(_));
            !found
        });
        found
    }

    /// How many operators it computes, as PostgreSQL counts what a condition costs.
    pub fn operators(&self) -> usize {
        let mut count = 0;
        self.walk(&mut |e| {
            count += match e {
                Expr::In { list, .. } => list.len().div_ceil(2),
                Expr::Cast { .. }
                | Expr::Binary { .. }
                | Expr::Negate { .. }
                | Expr::Compare { .. }
                | Expr::Distinct { .. }
                | Expr::Like { .. }
                | Expr::Call { .. }
                | Expr::NullIf { .. }
                | Expr::Quantified { .. } => 1,
                _ => 0,
            };
            true
        });
        count
    }

    pub fn is_constant(&self) -> bool {
        matches!(self, Expr::Const(_))
    }

    /// Calls `f` on this expression and on those beneath, until it says not to go deeper.
    pub fn walk(&self, f: &mut impl FnMut(&Expr) -> bool) {
        if f(self) {
            self.children(&mut |child| child.walk(f));
        }
    }

    fn children(&self, f: &mut dyn FnMut(&Expr)) {
        match self {
            Expr::Const(_)
            | Expr::Param(_)
            | Expr::Column { .. }
            | Expr::Cell { .. }
            | Expr::Aggregate(_)
            | Expr::LastValue
            | Expr::Given(_)
            | Expr::Env(_) => {}
            Expr::Cast { expr, .. }
            | Expr::Negate { expr, .. }
            | Expr::Not(expr)
            | Expr::IsNull { expr, .. }
            | Expr::IsTruth { expr, .. }
            | Expr::Setting { name: expr, .. } => f(expr),
            Expr::Binary { left, right, .. }
            | Expr::Compare { left, right, .. }
            | Expr::NullIf { left, right, .. }
            | Expr::Distinct { left, right, .. }
            | Expr::Let { value: left, body: right, .. }
            | Expr::Quantified { left, array: right, .. } => {
                f(left);
                f(right);
            }
            Expr::And(list)
            | Expr::Or(list)
            | Expr::Coalesce(list)
            | Expr::Call { args: list, .. }
            | Expr::Sequence { args: list, .. }
            | Expr::Key { args: list, .. }
            | Expr::Extreme { list, .. } => list.iter().for_each(f),
            Expr::In { expr, list, .. } => {
                f(expr);
                list.iter().for_each(|(_, item)| f(item));
            }
            Expr::Like { expr, pattern, .. } => {
                f(expr);
                f(pattern);
            }
            Expr::Case { branches, otherwise } => {
                for (condition, result) in branches {
                    f(condition);
                    f(result);
                }
                otherwise.iter().for_each(|e| f(e));
            }
        }
    }

    /// Rebuilds from the leaves up: `f` sees each expression after those beneath it were rebuilt; where `before` gives
    /// a replacement, nothing beneath is looked at.
    pub fn rewrite(self, before: &mut impl FnMut(&Expr) -> Option<Expr>) -> Expr {
        if let Some(replacement) = before(&self) {
            return replacement;
        }
        let mut boxed = |e: Box<Expr>| Box::new(e.rewrite(before));
        match self {
            leaf @ (Expr::Const(_)
            | Expr::Param(_)
            | Expr::Column { .. }
            | Expr::Cell { .. }
            | Expr::Aggregate(_)
            | Expr::LastValue
            | Expr::Given(_)
            | Expr::Env(_)) => leaf,
            Expr::Cast { expr, from, to, explicit } => Expr::Cast { expr: boxed(expr), from, to, explicit },
            Expr::Binary { operator, left, right } => Expr::Binary { operator, left: boxed(left), right: boxed(right) },
            Expr::Negate { expr, ty } => Expr::Negate { expr: boxed(expr), ty },
            Expr::Compare { operator, left, right } => {
                Expr::Compare { operator, left: boxed(left), right: boxed(right) }
            }
            Expr::And(list) => Expr::And(rewrite_all(list, before)),
            Expr::Or(list) => Expr::Or(rewrite_all(list, before)),
            Expr::Not(expr) => Expr::Not(boxed(expr)),
            Expr::Setting { name, missing_ok } => Expr::Setting { name: boxed(name), missing_ok },
            Expr::IsNull { expr, negated } => Expr::IsNull { expr: boxed(expr), negated },
            Expr::IsTruth { expr, value, negated } => Expr::IsTruth { expr: boxed(expr), value, negated },
            Expr::Distinct { operator, left, right, negated } => {
                Expr::Distinct { operator, left: boxed(left), right: boxed(right), negated }
            }
            Expr::In { expr, list, negated, search: Some(search) } => {
                let expr = boxed(expr);
                let (list, search) = Search::rewritten(search, list, &mut |item| item.rewrite(before));
                Expr::In { expr, list, negated, search }
            }
            Expr::In { expr, list, negated, search: None } => {
                let expr = boxed(expr);
                let list = list.into_iter().map(|(operator, item)| (operator, item.rewrite(before)));
                Expr::one_of(expr, list.collect(), negated)
            }
            Expr::Like { expr, pattern, escape, insensitive, negated } => {
                Expr::Like { expr: boxed(expr), pattern: boxed(pattern), escape, insensitive, negated }
            }
            Expr::Case { branches, otherwise } => Expr::Case {
                branches: branches.into_iter().map(|(c, r)| (c.rewrite(before), r.rewrite(before))).collect(),
                otherwise: otherwise.map(|e| Box::new(e.rewrite(before))),
            },
            Expr::Let { id, value, body } => Expr::Let { id, value: boxed(value), body: boxed(body) },
            Expr::Call { function, args } => Expr::Call { function, args: rewrite_all(args, before) },
            Expr::Key { call, args } => Expr::Key { call, args: rewrite_all(args, before) },
            Expr::Sequence { call, sequence, args } => {
                Expr::Sequence { call, sequence, args: rewrite_all(args, before) }
            }
            Expr::Coalesce(list) => Expr::Coalesce(rewrite_all(list, before)),
            Expr::NullIf { operator, left, right } => Expr::NullIf { operator, left: boxed(left), right: boxed(right) },
            Expr::Extreme { greatest, list, ty } => Expr::Extreme { greatest, list: rewrite_all(list, before), ty },
            // A constant array stays what it is.
            Expr::Quantified { operator, left, array, all, members: members @ Some(_) } => {
                Expr::Quantified { operator, left: boxed(left), array, all, members }
            }
            Expr::Quantified { operator, left, array, all, members: None } => {
                let left = boxed(left);
                Expr::quantified(operator, left, boxed(array), all)
            }
        }
    }

    /// Whether a column or cell of a source that `is` tells occurs.
    pub fn mentions(&self, is: impl Fn(u16) -> bool) -> bool {
        let mut found = false;
        self.walk(&mut |e| {
            if let Expr::Column { source, .. } | Expr::Cell { source, .. } = e {
                found |= is(*source);
            }
            !found
        });
        found
    }

    /// The highest source that occurs.
    pub fn last_source(&self) -> Option<u16> {
        let mut last = None;
        self.walk(&mut |e| {
            if let Expr::Column { source, .. } | Expr::Cell { source, .. } = e {
                last = last.max(Some(*source));
            }
            true
        });
        last
    }

    /// Whether what this expression itself computes depends on the clock.
    pub fn needs_clock(&self) -> bool {
        match self {
            Expr::Cast { expr, from, to, .. } => match (expr.as_ref(), to.unrounded()) {
                (Expr::Const(Datum::Bytes(text)), Type::Date | Type::Timestamp | Type::Timestamptz | Type::Time)
                    if is_text(*from) =>
                {
                    is_read_by_clock(text, *to)
                }
                _ => needs_clock(*from, *to),
            },
            Expr::Call { function, .. } => function.needs_clock(),
            Expr::Env(_) => true,
            _ => false,
        }
    }

    pub fn has_aggregate(&self) -> bool {
        let mut found = false;
        self.walk(&mut |e| {
            found |= matches!(e, Expr::Aggregate(_));
            !found
        });
        found
    }
}

fn rewrite_all(list: Vec<Expr>, before: &mut impl FnMut(&Expr) -> Option<Expr>) -> Vec<Expr> {
    list.into_iter().map(|e| e.rewrite(before)).collect()
}
