//! How are a source's rows found? Access paths over the engine's indexes, and computed sources.
//!
//! | path | when | rows |
//! |---|---|---|
//! | `Unique` | every column of a unique index has an equality | at most one, checked by the engine |
//! | `Lookup` | every column of another index has an equality | candidates, read and checked |
//! | `Points` | as those, with an IN list or `= ANY(array)` on one column | one probe for each distinct value |
//! | `Range` | equalities on the first columns of a B+-tree, then bounds | in key order, a superset |
//! | `Union` | an OR of which every arm has one of these | each row of an arm, once |
//! | `Scan` | otherwise | all |
//!
//! `Unique`, `Points` and `Union` answer their conditions exactly, `Range` its equalities, and `Points` sees to it that a row comes up once; on the other
//! paths, and of a range's bounds, all conditions stay in the step's filter, so that stale entries and inexact bounds cost time and never a wrong row. A
//! range's equalities rely on `range_next`: it gives a row under its own key only.

use super::estimate::shares;
use super::union::{Arm, UnionCursor, try_union};
use super::{Halt, Kept, Level, Run, Scratch};
use crate::charge::Charge;
use crate::error::SqlError;
use crate::expr::{Env, Expr, Frame, evaluate};
use crate::statistics::{Statistics, TableStatistics};
use crate::value::cast::to_f64;
use crate::value::network::Network;
use crate::value::operator::BinaryOp;
use crate::value::pattern::like_prefix;
use crate::value::search::{Place, place};
use crate::value::{Datum, array_items};
use crate::view::{Relation, Rows};
use freshet_engine::catalog::{Index, IndexKind, Schema, Table, TableId};
use freshet_engine::ids::RowId;
use freshet_engine::schema::{KeyPart, KeySpec, NetworkKind, Row, Type, Value};
use freshet_engine::txn::{Direction, RangeCursor, Session, Stop, Strength, TableCursor};
use std::cell::{Cell, RefCell};
use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

/// A value that a key column must have or is bounded by.
#[derive(Clone, PartialEq, Debug)]
pub struct KeyValue {
    pub expr: Expr,
    /// The type of the comparison it comes from, and the column's.
    from: Type,
    to: Type,
    /// The expression's value is the key's value as it stands: no conversion, no copy.
    direct: bool,
    form: Form,
}

/// What of its expression's value a key is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Value,
    /// The null that IS NULL asks for.
    Null,
    /// Of a pattern with this escape: the first text that begins as its matches do, and the first that comes after all of those.
    FirstMatch(Option<char>),
    AfterMatches(Option<char>),
    /// Of a network: the first address in it, and the last one.
    FirstWithin,
    LastWithin,
}

impl KeyValue {
    fn new(expr: Expr, from: Type, to: Type) -> KeyValue {
        let leaf = matches!(expr, Expr::Const(_) | Expr::Param(_) | Expr::Column { .. } | Expr::Cell { .. });
        let direct = leaf && converts_to_itself(from, to);
        KeyValue { expr, from, to, direct, form: Form::Value }
    }

    fn in_form(form: Form, expr: Expr, from: Type, to: Type) -> KeyValue {
        match form {
            Form::Value => KeyValue::new(expr, from, to),
            _ => KeyValue { expr, from, to, direct: false, form },
        }
    }

    /// The expression, if its value is the key's as it stands.
    pub fn leaf(&self) -> Option<&Expr> {
        self.direct.then_some(&self.expr)
    }
}

/// The values that one key column takes in turn.
#[derive(Clone, Debug)]
pub enum List {
    Values(Vec<KeyValue>),
    /// The elements of an array; the types are those of an element.
    Array(KeyValue),
}

impl List {
    /// Values, as far as they are known before it runs.
    pub fn expected(&self) -> usize {
        match self {
            List::Values(values) => values.len(),
            List::Array(_) => 10,
        }
    }

    /// What it is made of.
    fn keys(&self) -> &[KeyValue] {
        match self {
            List::Values(values) => values,
            List::Array(array) => std::slice::from_ref(array),
        }
    }
}

/// A bound of a range; exclusive ends are left to the filter.
#[derive(Clone, Debug)]
pub struct Range {
    pub index: Arc<Index>,
    pub equal: Vec<KeyValue>,
    pub lower: Option<KeyValue>,
    pub upper: Option<KeyValue>,
    pub direction: Direction,
    /// Without the nulls of the column after the equalities.
    pub not_null: bool,
    /// A pattern bounds it and nobody wants its order: where that turns out to begin with a wildcard, the table is read instead.
    by_pattern: bool,
}

#[derive(Clone, Debug)]
pub enum Access {
    Unique {
        index: Arc<Index>,
        keys: Vec<KeyValue>,
    },
    Lookup {
        index: Arc<Index>,
        keys: Vec<KeyValue>,
    },
    /// `keys[varying]` takes each value of `list`.
    Points {
        index: Arc<Index>,
        keys: Vec<KeyValue>,
        varying: usize,
        list: List,
    },
    Range(Range),
    /// The rows of several paths, each of an arm of an OR.
    Union(Vec<Arm>),
    Scan,
    /// Integers from the first to the second by the third.
    Series([Expr; 3]),
    /// Rows of expressions.
    Values(Vec<Vec<Expr>>),
    /// A query's rows, computed once.
    Derived(Box<super::query::Query>),
    /// What the database tells about itself; with a key, the rows that have this value in the column.
    View {
        view: Relation,
        schema: Arc<Schema>,
        key: Option<(u16, KeyValue)>,
    },
}

// ---- choosing

/// `column op value` as a condition tells it.
struct Usable<'a> {
    column: u16,
    op: BinaryOp,
    value: &'a Expr,
    ty: Type,
    form: Form,
    /// Where the condition stands in the list.
    at: usize,
}

struct UsableList<'a> {
    column: u16,
    /// Where the condition stands.
    at: usize,
    wanted: Wanted<'a>,
}

enum Wanted<'a> {
    /// Values and their types.
    Values(Vec<(&'a Expr, Type)>),
    /// An array, and its elements' type.
    Array(&'a Expr, Type),
}

/// What choosing found.
pub struct Choice {
    pub access: Access,
    /// Conditions that the path answers exactly.
    pub answered: Vec<usize>,
    /// Conditions that it finds its rows by.
    pub keyed: Vec<usize>,
    /// The rows come in the wanted order.
    pub ordered: bool,
    /// Larger is better.
    pub rank: Rank,
}

/// How good a path is: one row before many, more equalities before fewer, a bound before none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Rank {
    pub one_row: bool,
    pub equalities: usize,
    pub bounds: usize,
    pub list: bool,
    pub ordered: bool,
    pub whole_key: bool,
    /// A narrow index before a wide one.
    pub spare_columns: Reverse<usize>,
}

/// The order that a query wants of one source's rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WantedOrder {
    pub column: u16,
    pub descending: bool,
}

/// Chooses the path to `source`, whose conditions may use values of the sources that `available` tells.
pub fn choose(
    table: &Arc<Table>,
    source: u16,
    conditions: &[Expr],
    available: &dyn Fn(u16) -> bool,
    order: &[WantedOrder],
    known: &Knowledge,
) -> Choice {
    let unions = (0..conditions.len()).filter_map(|at| try_union(table, source, conditions, at, available, known));
    choose_among(unions.collect(), table, source, conditions, available, order, known)
}

/// As `choose`, for an arm of an OR.
pub(super) fn choose_one(
    table: &Arc<Table>,
    source: u16,
    conditions: &[Expr],
    available: &dyn Fn(u16) -> bool,
    known: &Knowledge,
) -> Choice {
    choose_among(Vec::new(), table, source, conditions, available, &[], known)
}

fn choose_among(
    unions: Vec<Choice>,
    table: &Arc<Table>,
    source: u16,
    conditions: &[Expr],
    available: &dyn Fn(u16) -> bool,
    order: &[WantedOrder],
    known: &Knowledge,
) -> Choice {
    let (usable, lists) = usable(source, conditions, available);
    let found = table.indexes.iter().flat_map(|index| {
        [try_index(table, index, &usable, order), try_points(table, index, &usable, &lists, order)]
            .into_iter()
            .flatten()
    });
    let unordered = |union: Choice| Choice { ordered: order.is_empty(), ..union };
    let mut found: Vec<Choice> = found.chain(unions.into_iter().map(unordered)).collect();
    found.retain(|choice| !finds_many_nulls(choice, table, source, conditions, known));
    let whole = Choice {
        access: Access::Scan,
        answered: Vec::new(),
        keyed: Vec::new(),
        ordered: order.is_empty(),
        rank: Rank::default(),
    };
    // Of equals the first.
    let Some(ranked) =
        (0..found.len()).rev().max_by_key(|&at| found[at].rank).filter(|&at| found[at].rank > whole.rank)
    else {
        return whole;
    };
    if found.len() == 1 || found[ranked].rank.one_row {
        return found.swap_remove(ranked);
    }
    let cheapest = known.of(table).and_then(|known| {
        let cost = |choice: &Choice| {
            let keyed = choice.keyed.iter().map(|&at| &conditions[at]);
            let rows = known.rows_of(table) * shares(keyed, source, table, Some(&known));
            if choice.ordered { rows } else { rows * UNORDERED_COST }
        };
        let costs: Vec<f64> = found.iter().map(cost).collect();
        let cheapest = (0..found.len()).min_by(|&a, &b| costs[a].total_cmp(&costs[b]))?;
        (costs[cheapest] * CLEARLY < costs[ranked]).then_some(cheapest)
    });
    found.swap_remove(cheapest.unwrap_or(ranked))
}

/// Of a table's rows: those who want more by nulls alone had better read it whole.
const NULLS_MAX: f64 = 0.25;

/// Whether a path has nothing but nulls to go by, and many rows have them.
fn finds_many_nulls(choice: &Choice, table: &Table, source: u16, conditions: &[Expr], known: &Knowledge) -> bool {
    let mut keyed = choice.keyed.iter().map(|&at| &conditions[at]).peekable();
    if choice.rank.ordered || keyed.peek().is_none() || !keyed.clone().all(|c| matches!(c, Expr::IsNull { .. })) {
        return false;
    }
    known.of(table).is_some_and(|known| shares(keyed, source, table, Some(&known)) > NULLS_MAX)
}

/// Rows that must be sorted cost so much more than those that come in order, of which a limit may take the first.
const UNORDERED_COST: f64 = 10.0;
/// So much cheaper must a path be than the one that has most of the conditions.
const CLEARLY: f64 = 2.0;

/// What planning knows of tables, and whether it has asked.
#[derive(Default)]
pub struct Knowledge {
    pub statistics: Option<Arc<Statistics>>,
    pub is_asked: Cell<bool>,
    /// Tables of which nothing is known, or no more: a run may sample them.
    pub unknown: RefCell<Vec<TableId>>,
}

impl Knowledge {
    pub fn of(&self, table: &Table) -> Option<Arc<TableStatistics>> {
        let statistics = self.statistics.as_ref()?;
        self.is_asked.set(true);
        let known = statistics.get(table);
        if known.as_ref().is_none_or(|known| known.is_old(table)) && !self.unknown.borrow().contains(&table.id) {
            self.unknown.borrow_mut().push(table.id);
        }
        known
    }
}

/// The column of a computed relation by which its rows are found, with the value.
pub fn view_key(
    view: &Relation,
    source: u16,
    conditions: &[Expr],
    available: &dyn Fn(u16) -> bool,
) -> Option<(u16, KeyValue)> {
    let (usable, _) = usable(source, conditions, available);
    usable.iter().filter(|u| u.op == BinaryOp::Eq && !u.is_null()).find_map(|u| {
        let (_, to) = view.every_column().nth(usize::from(u.column))?;
        let is_whole = !matches!(to, Type::Float4 | Type::Float8 | Type::Bool) && to.as_array() == to;
        let key = || KeyValue::new(u.value.clone(), u.ty, to);
        (is_whole && key_convertible(u.ty, to)).then(|| (u.column, key()))
    })
}

fn usable<'a>(
    source: u16,
    conditions: &'a [Expr],
    available: &dyn Fn(u16) -> bool,
) -> (Vec<Usable<'a>>, Vec<UsableList<'a>>) {
    let known = |e: &Expr| !e.mentions(|s| !available(s) || s == source) && !e.is_volatile();
    let mut usable = Vec::new();
    let mut lists = Vec::new();
    for (at, condition) in conditions.iter().enumerate() {
        match condition {
            Expr::Compare { operator, left, right } => {
                let sides = [
                    (left, operator.left, operator.op, right, operator.right),
                    (right, operator.right, operator.op.flipped(), left, operator.left),
                ];
                for (side, own, op, value, ty) in sides {
                    if let Some(column) = plain_column(side, source)
                        && known(value)
                        && has_one_value(ty, own)
                    {
                        usable.push(Usable { column, op, value, ty, form: Form::Value, at });
                    }
                }
            }
            Expr::In { expr, list, negated: false, .. } => {
                if let Some(column) = plain_column(expr, source)
                    && list.iter().all(|(operator, item)| known(item) && has_one_value(operator.right, operator.left))
                {
                    let list = list.iter().map(|(operator, item)| (item, operator.right));
                    lists.push(UsableList { column, at, wanted: Wanted::Values(list.collect()) });
                }
            }
            Expr::Quantified { operator, left, array, all: false, .. } if operator.op == BinaryOp::Eq => {
                if let Some(column) = plain_column(left, source)
                    && known(array)
                    && has_one_value(operator.right, operator.left)
                {
                    lists.push(UsableList { column, at, wanted: Wanted::Array(array, operator.right) });
                }
            }
            // A bare boolean column is its comparison with true.
            Expr::Column { source: s, column } if *s == source => usable.push(Usable {
                column: *column,
                op: BinaryOp::Eq,
                value: &Expr::Const(Datum::Bool(true)),
                ty: Type::Bool,
                form: Form::Value,
                at,
            }),
            Expr::IsNull { expr, negated: false } => {
                if let Some(column) = plain_column(expr, source) {
                    let (op, value) = (BinaryOp::Eq, &Expr::NULL);
                    usable.push(Usable { column, op, value, ty: Type::Bool, form: Form::Null, at });
                }
            }
            Expr::Like { expr, pattern, escape, insensitive: false, negated: false } => {
                if let Some(column) = plain_column(expr, source)
                    && known(pattern)
                    && may_begin_plainly(pattern, *escape)
                {
                    let (value, ty) = (pattern.as_ref(), Type::Text);
                    let (first, after) = (Form::FirstMatch(*escape), Form::AfterMatches(*escape));
                    usable.push(Usable { column, op: BinaryOp::Ge, value, ty, form: first, at });
                    usable.push(Usable { column, op: BinaryOp::Lt, value, ty, form: after, at });
                }
            }
            Expr::Call { function, args } => {
                if let Some((address, network)) = function.containment()
                    && let Some(column) = plain_column(&args[address], source)
                    && known(&args[network])
                {
                    let (value, ty) = (&args[network], function.arguments[network]);
                    usable.push(Usable { column, op: BinaryOp::Ge, value, ty, form: Form::FirstWithin, at });
                    usable.push(Usable { column, op: BinaryOp::Le, value, ty, form: Form::LastWithin, at });
                }
            }
            _ => {}
        }
    }
    (usable, lists)
}

impl Wanted<'_> {
    fn is_convertible(&self, to: Type) -> bool {
        match self {
            Wanted::Values(values) => values.iter().all(|(_, ty)| key_convertible(*ty, to)),
            Wanted::Array(_, ty) => key_convertible(*ty, to),
        }
    }

    fn keys(&self, to: Type) -> List {
        let key = |expr: &Expr, ty: Type| KeyValue::new(expr.clone(), ty, to);
        match self {
            Wanted::Values(values) => List::Values(values.iter().map(|(e, ty)| key(e, *ty)).collect()),
            Wanted::Array(array, ty) => List::Array(key(array, *ty)),
        }
    }
}

/// Whether the matches of a pattern may all begin with the same text.
fn may_begin_plainly(pattern: &Expr, escape: Option<char>) -> bool {
    match pattern {
        Expr::Const(Datum::Bytes(pattern)) => !like_prefix(pattern, escape).is_empty(),
        Expr::Const(_) => false,
        _ => true,
    }
}

/// The column of `source` that this is.
fn plain_column(expr: &Expr, source: u16) -> Option<u16> {
    match expr {
        Expr::Column { source: s, column } | Expr::Cell { source: s, column } if *s == source => Some(*column),
        _ => None,
    }
}

/// Whether a value equals at most one of the column's: many texts of a `varchar` equal one `char`, differing in blanks at their ends, and lie
/// apart in an index.
fn has_one_value(from: Type, to: Type) -> bool {
    !matches!((from, to), (Type::Char(_), Type::Varchar(_)))
}

/// Whether a value that is compared with the column can be turned into the column's own type, exactly or as a bound.
fn key_convertible(from: Type, to: Type) -> bool {
    use Type::*;
    let (from, to) = (from.unrounded(), to.unrounded());
    converts_to_itself(from, to)
        || matches!(
            (from, to),
            (
                Int2 | Int4 | Int8 | Decimal { .. } | Numeric { .. },
                Int2 | Int4 | Int8 | Decimal { .. } | Numeric { .. } | Float8
            ) | (Date | Timestamp | Timestamptz, Date | Timestamp | Timestamptz)
                | (Varchar(_), Char(_))
        )
}

fn converts_to_itself(from: Type, to: Type) -> bool {
    use Type::*;
    let (from, to) = (from.unrounded(), to.unrounded());
    from == to
        || matches!(
            (from, to),
            (Int2, Int4 | Int8)
                | (Int4, Int8)
                | (Text | Varchar(_), Text | Varchar(_))
                | (Text | Char(_), Text | Char(_))
                | (Numeric { .. }, Numeric { .. })
                | (Float4, Float8)
                | (Network(NetworkKind::Inet | NetworkKind::Cidr), Network(NetworkKind::Inet | NetworkKind::Cidr))
        )
        || matches!(
            (from, to),
            (Decimal { precision: p1, scale: s1 }, Decimal { precision: p2, scale: s2 })
                if s1 == s2 && p1 <= p2
        )
}

fn key_value(table: &Table, column: u16, usable: &Usable<'_>) -> Option<KeyValue> {
    let to = table.layout.column_type(usize::from(column));
    let is_key = usable.form == Form::Null || key_convertible(usable.ty, to);
    is_key.then(|| KeyValue::in_form(usable.form, usable.value.clone(), usable.ty, to))
}

fn equality<'a, 'u>(table: &Table, column: u16, usable: &'u [Usable<'a>]) -> Option<(KeyValue, &'u Usable<'a>)> {
    usable
        .iter()
        .filter(|u| u.column == column && u.op == BinaryOp::Eq)
        .find_map(|u| key_value(table, column, u).map(|key| (key, u)))
}

impl Usable<'_> {
    fn is_null(&self) -> bool {
        self.form == Form::Null
    }
}

fn try_index(table: &Arc<Table>, index: &Arc<Index>, usable: &[Usable<'_>], order: &[WantedOrder]) -> Option<Choice> {
    let columns: Vec<_> = index.spec.columns().collect();
    let mut keys = Vec::new();
    let mut answered = Vec::new();
    for column in &columns {
        let Some((key, condition)) = equality(table, column.column, usable) else {
            break;
        };
        keys.push(key);
        answered.push(condition.at);
    }
    let equalities = keys.len();
    let whole_key = equalities == columns.len();
    // A null says less than a value: many rows may have it, also in a unique index.
    let nulls = keys.iter().filter(|key| key.form == Form::Null).count();
    let one_row = whole_key && index.def.unique && nulls == 0;
    let rank = |bounds, ordered| Rank {
        one_row,
        equalities: equalities - nulls,
        whole_key,
        bounds,
        ordered,
        list: false,
        spare_columns: Reverse(columns.len() - equalities),
    };
    if one_row {
        return Some(Choice {
            access: Access::Unique { index: index.clone(), keys },
            keyed: answered.clone(),
            answered,
            ordered: true,
            rank: rank(0, !order.is_empty()),
        });
    }
    if index.def.kind == IndexKind::Hash {
        return (whole_key && nulls == 0).then(|| Choice {
            access: Access::Lookup { index: index.clone(), keys },
            answered: Vec::new(),
            keyed: answered,
            ordered: order.is_empty(),
            rank: rank(0, false),
        });
    }
    let next = columns.get(equalities);
    let bound = |ops: [BinaryOp; 2]| {
        let column = next?.column;
        let found = usable.iter().filter(|u| u.column == column && ops.contains(&u.op));
        found.filter_map(|u| Some((key_value(table, column, u)?, u.at))).next()
    };
    let (lower, low_at) = bound([BinaryOp::Gt, BinaryOp::Ge]).unzip();
    let (upper, high_at) = bound([BinaryOp::Lt, BinaryOp::Le]).unzip();
    let mut keyed = answered.clone();
    keyed.extend(low_at);
    keyed.extend(high_at.filter(|_| high_at != low_at));
    let is_pattern = |key: &Option<KeyValue>| key.as_ref().is_some_and(|key| matches!(key.form, Form::FirstMatch(_)));
    let by_pattern = equalities == 0 && order.is_empty() && is_pattern(&lower) && low_at == high_at;
    let bounds = usize::from(lower.is_some()) + usize::from(upper.is_some());
    let direction = ordered_by(&columns, equalities, usable, order);
    if equalities == 0 && bounds == 0 && (order.is_empty() || direction.is_none()) {
        return None;
    }
    Some(Choice {
        access: Access::Range(Range {
            index: index.clone(),
            equal: keys,
            lower,
            upper,
            direction: direction.unwrap_or(Direction::Forward),
            not_null: false,
            by_pattern,
        }),
        answered: if nulls == 0 { answered } else { Vec::new() },
        keyed,
        ordered: direction.is_some(),
        rank: rank(bounds, direction.is_some() && !order.is_empty()),
    })
}

/// The direction in which an index after its first `fixed` columns gives the wanted order, if it does. Columns with an equality
/// have one value and order nothing.
fn ordered_by(
    columns: &[freshet_engine::schema::KeyColumn],
    fixed: usize,
    usable: &[Usable<'_>],
    order: &[WantedOrder],
) -> Option<Direction> {
    let constant = |column: u16| usable.iter().any(|u| u.column == column && u.op == BinaryOp::Eq);
    let mut direction = None;
    let mut rest = columns[fixed..].iter().filter(|c| !constant(c.column));
    for wanted in order.iter().filter(|w| !constant(w.column)) {
        let column = rest.next()?;
        if column.column != wanted.column {
            return None;
        }
        let needed = if column.descending == wanted.descending { Direction::Forward } else { Direction::Backward };
        if direction.is_some_and(|d| d != needed) {
            return None;
        }
        direction = Some(needed);
    }
    Some(direction.unwrap_or(Direction::Forward))
}

fn try_points(
    table: &Arc<Table>,
    index: &Arc<Index>,
    usable: &[Usable<'_>],
    lists: &[UsableList<'_>],
    order: &[WantedOrder],
) -> Option<Choice> {
    let mut keys = Vec::new();
    let mut answered = Vec::new();
    let mut varying = None;
    for (i, column) in index.spec.columns().enumerate() {
        if let Some((key, condition)) = equality(table, column.column, usable).filter(|(_, found)| !found.is_null()) {
            keys.push(key);
            answered.push(condition.at);
            continue;
        }
        let to = table.layout.column_type(usize::from(column.column));
        let list = lists.iter().find(|l| l.column == column.column && l.wanted.is_convertible(to))?;
        if varying.is_some() {
            return None;
        }
        varying = Some((i, list.wanted.keys(to)));
        answered.push(list.at);
        keys.push(KeyValue::new(Expr::NULL, to, to));
    }
    let (varying, list) = varying?;
    let equalities = keys.len() - 1;
    Some(Choice {
        access: Access::Points { index: index.clone(), keys, varying, list },
        keyed: answered.clone(),
        answered,
        ordered: order.is_empty(),
        rank: Rank {
            one_row: false,
            // A list narrows more than a bound and less than an equality.
            equalities,
            whole_key: true,
            bounds: 0,
            ordered: false,
            list: true,
            spare_columns: Reverse(0),
        },
    })
}

// ---- values of keys

/// Where a key's value lies among the column's values; `None` for a NULL, which equals nothing and bounds to nothing.
fn resolve(key: &KeyValue, frame: &Frame<'_>) -> Result<Option<Place>, SqlError> {
    if key.form == Form::Null {
        return Ok(Some(Place::At(Datum::Null)));
    }
    let scalar = evaluate(&key.expr, frame)?;
    if scalar.is_null() {
        return Ok(None);
    }
    if let (Form::FirstMatch(escape) | Form::AfterMatches(escape), Value::Bytes(pattern)) = (key.form, scalar.value()) {
        return Ok(Some(match_bound(like_prefix(pattern, escape), key.form)));
    }
    if let (Form::FirstWithin | Form::LastWithin, Value::Bytes(stored)) = (key.form, scalar.value()) {
        let network = Network::from_stored(stored);
        let end = if key.form == Form::FirstWithin { network.network() } else { network.last() };
        return Ok(Some(Place::At(end.to_datum())));
    }
    if converts_to_itself(key.from, key.to) {
        return Ok(Some(Place::At(scalar.into_datum())));
    }
    place_among(key, &scalar.value()).map(Some)
}

/// An end of the texts that begin so.
fn match_bound(mut prefix: Vec<u8>, form: Form) -> Place {
    if matches!(form, Form::FirstMatch(_)) {
        return if prefix.is_empty() { Place::BelowAll } else { Place::At(Datum::Bytes(prefix.into())) };
    }
    // No byte of a text is 255.
    while prefix.pop_if(|last| *last == u8::MAX).is_some() {}
    match prefix.last_mut() {
        None => Place::AboveAll,
        Some(last) => {
            *last += 1;
            Place::At(Datum::Bytes(prefix.into()))
        }
    }
}

/// The place of a value that is not null; an error is the comparison's own.
fn place_among(key: &KeyValue, value: &Value<'_>) -> Result<Place, SqlError> {
    if let Some(place) = place(key.from, value, key.to) {
        return Ok(place);
    }
    // Of what `key_convertible` lets through, only a number beyond all floats has no place among them.
    let float = to_f64(key.from, value).expect("invariant: a key's value has a place, unless it is a number");
    float.map(|_| Place::AboveAll)
}

/// An element of an array as a value of the key's column; `None`: the column has none like it.
fn place_of(array: &KeyValue, item: &Datum) -> Result<Option<Datum>, SqlError> {
    Ok(match item {
        Datum::Null => None,
        item if converts_to_itself(array.from, array.to) => Some(item.clone()),
        item => match place_among(array, &item.as_value())? {
            Place::At(datum) => Some(datum),
            _ => None,
        },
    })
}

/// The value of a key that needs no conversion.
fn direct<'a>(key: &'a KeyValue, frame: &Frame<'a>) -> Value<'a> {
    match &key.expr {
        Expr::Const(datum) => datum.as_value(),
        Expr::Param(i) => frame.parameters[usize::from(*i)].as_value(),
        Expr::Column { source, column } => frame.column(*source, *column),
        Expr::Cell { source, column } => frame.cells[usize::from(*source)][usize::from(*column)].as_value(),
        _ => unreachable!("invariant: a direct key is a leaf"),
    }
}

/// Computes the keys that are not direct into `computed`; false if some key can equal nothing.
fn compute(keys: &[KeyValue], frame: &Frame<'_>, computed: &mut Vec<Datum>) -> Result<bool, SqlError> {
    computed.clear();
    for key in keys {
        if key.direct {
            if direct(key, frame).is_null() {
                return Ok(false);
            }
            computed.push(Datum::Null);
            continue;
        }
        match resolve(key, frame)? {
            Some(Place::At(datum)) => computed.push(datum),
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn value_of<'a>(keys: &'a [KeyValue], i: usize, frame: &Frame<'a>, computed: &'a [Datum]) -> Value<'a> {
    let key = &keys[i];
    if key.direct { direct(key, frame) } else { computed[i].as_value() }
}

// ---- running

/// Where a path stands.
pub enum Cursor {
    Done,
    /// One row, read at opening.
    One,
    Candidates(usize),
    Points {
        values: Vec<Datum>,
        next: usize,
        candidate: usize,
    },
    Range {
        entries: RangeCursor,
        /// The equalities' values are longer than the words of a key, so that rows of others lie among theirs.
        is_cut: bool,
    },
    Union(UnionCursor),
    Scan(TableCursor),
    Series {
        next: Option<i64>,
        stop: i64,
        step: i64,
    },
    Values(usize),
    /// All rows of a computed relation, or those selected.
    View {
        rows: Arc<Rows>,
        selected: Option<Arc<[u32]>>,
        at: usize,
    },
    /// Rows, and what they are charged.
    Derived(std::vec::IntoIter<Vec<Datum>>, #[expect(dead_code, reason = "held until the rows are gone")] Charge),
    Kept(Arc<Kept>, usize),
}

/// One source's step, as its cursor needs it.
#[derive(Clone, Copy)]
pub struct StepView<'a> {
    pub tables: &'a [Option<Arc<Table>>],
    pub source: u16,
    pub access: &'a Access,
    /// Variable-length columns that the statement looks at.
    pub long_columns: &'a [u16],
    pub depth: usize,
}

impl<'a> StepView<'a> {
    fn table(&self) -> &'a Arc<Table> {
        self.tables[usize::from(self.source)].as_ref().expect("invariant: an index path is over a stored source")
    }
}

impl Access {
    /// Calls `f` with every expression that the path itself evaluates.
    pub fn expressions(&self, f: &mut dyn FnMut(&Expr)) {
        match self {
            Access::Unique { keys, .. } | Access::Lookup { keys, .. } => {
                keys.iter().for_each(|k| f(&k.expr));
            }
            Access::Points { keys, list, .. } => {
                keys.iter().chain(list.keys()).for_each(|k| f(&k.expr));
            }
            Access::Range(range) => {
                let keys = range.equal.iter().chain(&range.lower).chain(&range.upper);
                keys.for_each(|k| f(&k.expr));
            }
            Access::Union(arms) => {
                for arm in arms {
                    arm.access.expressions(f);
                    arm.condition.iter().for_each(&mut *f);
                }
            }
            Access::Series(bounds) => bounds.iter().for_each(f),
            Access::Values(rows) => rows.iter().flatten().for_each(f),
            Access::View { key, .. } => key.iter().for_each(|(_, k)| f(&k.expr)),
            Access::Scan | Access::Derived(_) => {}
        }
    }
}

pub fn open(view: &StepView<'_>, run: &mut Run<'_>) -> Result<Cursor, Halt> {
    match view.access {
        Access::Unique { index, keys } => open_unique(view, index, keys, run),
        Access::Lookup { index, keys } => open_lookup(view, index, keys, run),
        Access::Points { keys, varying, list, .. } => open_points(view, keys, *varying, list, run),
        Access::Range(range) => open_range(view, range, run),
        Access::Union(_) => Ok(Cursor::Union(UnionCursor::new())),
        Access::Scan => Ok(Cursor::Scan(TableCursor::default())),
        Access::Series(bounds) => open_series(view, bounds, run),
        Access::Values(_) => Ok(Cursor::Values(0)),
        Access::Derived(query) if view.depth == 0 => {
            let (rows, charge) = super::query::materialize(query, run)?;
            Ok(Cursor::Derived(rows.into_iter(), charge))
        }
        Access::Derived(query) => Ok(Cursor::Kept(kept(query, view.depth, run)?, 0)),
        Access::View { view: relation, schema, key } => {
            let rows = crate::view::rows(relation, schema, run.env)?;
            let selected = match key {
                None => None,
                Some((column, key)) => match resolve(key, &run.frame(view.tables))? {
                    Some(Place::At(value)) => Some(rows.having(*column, &value)),
                    _ => return Ok(Cursor::Done),
                },
            };
            Ok(Cursor::View { rows, selected, at: 0 })
        }
    }
}

/// The rows of a query in FROM: it depends on no row of the loops before it.
fn kept(query: &super::query::Query, depth: usize, run: &mut Run<'_>) -> Result<Arc<Kept>, Halt> {
    if let Some(kept) = &run.scratch.levels[depth].kept {
        return Ok(kept.clone());
    }
    let (rows, charge) = super::query::materialize(query, run)?;
    let kept = Arc::new(Kept { rows, charge });
    run.scratch.levels[depth].kept = Some(kept.clone());
    Ok(kept)
}

/// A frame that leaves the engine free for use.
fn parts_frame<'a>(view: &StepView<'a>, scratch: &'a Scratch, parameters: &'a [Datum], env: &'a Env) -> Frame<'a> {
    let Scratch { rows, cells, lists, .. } = scratch;
    Frame { tables: view.tables, rows, cells, parameters, env, lists: Some(lists) }
}

fn open_unique(view: &StepView<'_>, index: &Index, keys: &[KeyValue], run: &mut Run<'_>) -> Result<Cursor, Halt> {
    let found = at_key(view, keys, run, |engine, key, row| Ok(engine.get(view.table(), index, |i| key.value(i), row)))?;
    let Some(id) = found else { return Ok(Cursor::Done) };
    run.scratch.ids[usize::from(view.source)] = id;
    Ok(Cursor::One)
}

/// Locks the row that the unique key names as it is now; it then stands in the scratch.
pub fn lock_unique(view: &StepView<'_>, strength: Strength, run: &mut Run<'_>) -> Result<Option<RowId>, Halt> {
    let Access::Unique { index, keys } = view.access else {
        unreachable!("invariant: only a search by key locks by key");
    };
    at_key(view, keys, run, |engine, key, row| engine.lock_by_key(view.table(), index, |i| key.value(i), strength, row))
}

/// A key's columns, for one row of the sources before.
struct KeyAt<'a> {
    keys: &'a [KeyValue],
    frame: &'a Frame<'a>,
    computed: &'a [Datum],
}

impl KeyAt<'_> {
    #[inline]
    fn value(&self, column: usize) -> Value<'_> {
        value_of(self.keys, column, self.frame, self.computed)
    }
}

/// Brings the row that a unique key names into the scratch, its long values too.
#[inline]
fn at_key(
    view: &StepView<'_>,
    keys: &[KeyValue],
    run: &mut Run<'_>,
    find: impl FnOnce(&mut Session, KeyAt<'_>, &mut Row) -> Result<Option<RowId>, Stop>,
) -> Result<Option<RowId>, Halt> {
    let source = usize::from(view.source);
    let mut row = std::mem::take(&mut run.scratch.rows[source]);
    let mut computed = std::mem::take(&mut run.scratch.levels[view.depth].computed);
    let frame = parts_frame(view, run.scratch, run.parameters, run.env);
    let found = match compute(keys, &frame, &mut computed) {
        Ok(true) => find(run.engine, KeyAt { keys, frame: &frame, computed: &computed }, &mut row).map_err(Halt::from),
        Ok(false) => Ok(None),
        Err(error) => Err(error.into()),
    };
    run.scratch.levels[view.depth].computed = computed;
    run.scratch.rows[source] = row;
    let found = found?;
    if found.is_some() {
        fetch_long(view, run);
    }
    Ok(found)
}

fn open_lookup(view: &StepView<'_>, index: &Index, keys: &[KeyValue], run: &mut Run<'_>) -> Result<Cursor, Halt> {
    let mut level = std::mem::take(&mut run.scratch.levels[view.depth]);
    level.candidates.clear();
    let frame = parts_frame(view, run.scratch, run.parameters, run.env);
    let usable = compute(keys, &frame, &mut level.computed);
    if let Ok(true) = usable {
        let value = |i| value_of(keys, i, &frame, &level.computed);
        run.engine.lookup(view.table(), index, value, &mut level.candidates);
    }
    run.scratch.levels[view.depth] = level;
    usable?;
    Ok(Cursor::Candidates(0))
}

/// Values of a list that are looked up together.
const POINTS_TOGETHER: usize = 64;

fn open_points(
    view: &StepView<'_>,
    keys: &[KeyValue],
    varying: usize,
    list: &List,
    run: &mut Run<'_>,
) -> Result<Cursor, Halt> {
    let mut level = std::mem::take(&mut run.scratch.levels[view.depth]);
    level.candidates.clear();
    level.wanted.clear();
    let opened = sorted_points(view, keys, varying, list, &mut level.computed, run);
    run.scratch.levels[view.depth] = level;
    Ok(Cursor::Points { values: opened?, next: 0, candidate: 0 })
}

/// The list's values in order, each once. The key's other values go to `computed`; where one of them can equal nothing there are none.
fn sorted_points(
    view: &StepView<'_>,
    keys: &[KeyValue],
    varying: usize,
    list: &List,
    computed: &mut Vec<Datum>,
    run: &Run<'_>,
) -> Result<Vec<Datum>, SqlError> {
    let frame = run.frame(view.tables);
    // The varying key itself holds NULL, which equals nothing: it is left out.
    let mut after = Vec::new();
    let usable = compute(&keys[..varying], &frame, computed)? && compute(&keys[varying + 1..], &frame, &mut after)?;
    if !usable {
        return Ok(Vec::new());
    }
    computed.push(Datum::Null);
    computed.append(&mut after);
    let mut values = Vec::with_capacity(list.keys().len());
    match list {
        List::Values(list) => {
            for key in list {
                if let Some(Place::At(datum)) = resolve(key, &frame)? {
                    values.push(datum);
                }
            }
        }
        List::Array(array) => {
            if let Value::Bytes(stored) = evaluate(&array.expr, &frame)?.value() {
                for item in array_items(array.from, stored) {
                    values.extend(place_of(array, &item)?);
                }
            }
        }
    }
    let ty = list.keys().first().map_or(Type::Bool, |k| k.to);
    values.sort_by(|a, b| ty.compare(&a.as_value(), &b.as_value()));
    values.dedup_by(|a, b| ty.compare(&a.as_value(), &b.as_value()).is_eq());
    Ok(values)
}

/// Whether the row at hand has the key that the candidate was looked up for.
fn has_point(view: &StepView<'_>, values: &[Datum], candidate: usize, run: &Run<'_>) -> bool {
    let Access::Points { index, keys, varying, .. } = view.access else {
        unreachable!("invariant: a cursor is of its path");
    };
    let level = &run.scratch.levels[view.depth];
    let point = &values[level.wanted[candidate] as usize];
    let frame = run.frame(view.tables);
    index.spec.row_matches(&view.table().layout, &run.scratch.rows[usize::from(view.source)], |i| {
        if i == *varying { point.as_value() } else { value_of(keys, i, &frame, &level.computed) }
    })
}

/// Whether the row has the values of the range's equalities, of which some may be the null that IS NULL asks for (those are in the filter too).
#[cold]
fn has_equal(view: &StepView<'_>, range: &Range, run: &mut Run<'_>) -> bool {
    let (table, source) = (view.table(), usize::from(view.source));
    let columns = || range.index.spec.columns().take(range.equal.len()).map(|key| usize::from(key.column));
    columns().for_each(|column| run.engine.fetch_long(table, &mut run.scratch.rows[source], column));
    let (frame, computed) = (run.frame(view.tables), &run.scratch.levels[view.depth].computed);
    columns().enumerate().all(|(i, column)| {
        match (run.scratch.rows[source].get(&table.layout, column), value_of(&range.equal, i, &frame, computed)) {
            (Value::Null, other) | (other, Value::Null) => other.is_null(),
            (own, wanted) => table.layout.column_type(column).compare(&own, &wanted) == Ordering::Equal,
        }
    })
}

/// Looks up the next values of the list; false when there are none.
fn next_points(view: &StepView<'_>, values: &[Datum], next: &mut usize, run: &mut Run<'_>) -> bool {
    let Access::Points { index, keys, varying, .. } = view.access else {
        unreachable!("invariant: a cursor is of its path");
    };
    let first = *next;
    let points = &values[first..values.len().min(first + POINTS_TOGETHER)];
    *next += points.len();
    let mut level = std::mem::take(&mut run.scratch.levels[view.depth]);
    let Level { candidates, wanted, computed, .. } = &mut level;
    candidates.clear();
    wanted.clear();
    let frame = parts_frame(view, run.scratch, run.parameters, run.env);
    let value = |at: usize, i: usize| {
        if i == *varying { points[at].as_value() } else { value_of(keys, i, &frame, computed) }
    };
    run.engine.lookup_many(view.table(), index, points.len(), value, |at, id| {
        candidates.push(id);
        wanted.push((first + at) as u32);
    });
    run.scratch.levels[view.depth] = level;
    !points.is_empty()
}

fn open_range(view: &StepView<'_>, range: &Range, run: &mut Run<'_>) -> Result<Cursor, Halt> {
    if let Some(lower) = range.lower.as_ref().filter(|_| range.by_pattern)
        && resolve(lower, &run.frame(view.tables))? == Some(Place::BelowAll)
    {
        return Ok(Cursor::Scan(TableCursor::default()));
    }
    let mut level = std::mem::take(&mut run.scratch.levels[view.depth]);
    let filled = fill_bounds(view, range, &mut level, run);
    let cursor = match filled {
        Ok(true) => {
            let entries = run.engine.range(&range.index, &level.lower, &level.upper, range.direction);
            Ok(Cursor::Range { entries, is_cut: KeySpec::is_cut(&level.lower.words) })
        }
        Ok(false) => Ok(Cursor::Done),
        Err(error) => Err(error.into()),
    };
    run.scratch.levels[view.depth] = level;
    cursor
}

/// Encodes both ends; false if the range is empty.
fn fill_bounds(view: &StepView<'_>, range: &Range, level: &mut Level, run: &Run<'_>) -> Result<bool, SqlError> {
    let frame = run.frame(view.tables);
    if !compute(&range.equal, &frame, &mut level.computed)? {
        return Ok(false);
    }
    let mut low = None;
    let mut high = None;
    if let Some(key) = &range.lower {
        match resolve(key, &frame)? {
            None | Some(Place::AboveAll) => return Ok(false),
            Some(Place::BelowAll) => {}
            Some(Place::At(datum) | Place::Above(datum)) => low = Some(datum),
        }
    }
    if let Some(key) = &range.upper {
        match resolve(key, &frame)? {
            None | Some(Place::BelowAll) => return Ok(false),
            Some(Place::AboveAll) => {}
            Some(Place::At(datum) | Place::Above(datum)) => high = Some(datum),
        }
    }
    let bounded = range.lower.is_some() || range.upper.is_some() || range.not_null;
    let spec = &range.index.spec;
    let fixed = range.equal.len();
    let descending = spec.columns().nth(fixed).is_some_and(|column| column.descending);
    let value_below = low.as_ref().map(|d| KeyPart::Value(d.as_value()));
    // A bounded column has no null; nulls stand at the end of an ascending index and at the start of a descending one.
    let value_above = match &high {
        Some(datum) => Some(KeyPart::Value(datum.as_value())),
        None if bounded => Some(KeyPart::AboveValues),
        None => None,
    };
    let (first, last) = if descending { (value_above, value_below) } else { (value_below, value_above) };
    spec.encode(&mut level.lower, |i| match i.cmp(&fixed) {
        Ordering::Less => KeyPart::Value(value_of(&range.equal, i, &frame, &level.computed)),
        Ordering::Equal => first.unwrap_or(KeyPart::Lowest),
        Ordering::Greater => KeyPart::Lowest,
    });
    spec.encode(&mut level.upper, |i| match i.cmp(&fixed) {
        Ordering::Less => KeyPart::Value(value_of(&range.equal, i, &frame, &level.computed)),
        Ordering::Equal => last.unwrap_or(KeyPart::Highest),
        Ordering::Greater => KeyPart::Highest,
    });
    spec.pad_high(&mut level.upper);
    Ok(true)
}

fn open_series(view: &StepView<'_>, bounds: &[Expr; 3], run: &mut Run<'_>) -> Result<Cursor, Halt> {
    let frame = run.frame(view.tables);
    let mut numbers = [0i64; 3];
    for (number, expr) in numbers.iter_mut().zip(bounds) {
        match evaluate(expr, &frame)?.value() {
            Value::Int(v) => *number = v,
            _ => return Ok(Cursor::Done),
        }
    }
    let [start, stop, step] = numbers;
    if step == 0 {
        return Err(SqlError::new("22023", "step size cannot equal zero").into());
    }
    Ok(Cursor::Series { next: Some(start), stop, step })
}

/// Moves to the next row, which then stands in the scratch's rows or cells.
pub fn next(view: &StepView<'_>, cursor: &mut Cursor, run: &mut Run<'_>) -> Result<bool, Halt> {
    run.row()?;
    let source = usize::from(view.source);
    let id = match cursor {
        Cursor::Done => return Ok(false),
        Cursor::One => {
            *cursor = Cursor::Done;
            return Ok(true);
        }
        Cursor::Candidates(at) => next_candidate(view, at, run),
        Cursor::Points { values, next, candidate } => loop {
            if let Some(id) = next_candidate(view, candidate, run) {
                // An entry may be stale, or of a key cut short: a row comes up at its own value of the list only.
                fetch_keys(view, run);
                if has_point(view, values, *candidate - 1, run) {
                    break Some(id);
                }
                continue;
            }
            if !next_points(view, values, next, run) {
                break None;
            }
            *candidate = 0;
        },
        Cursor::Range { entries, is_cut } => {
            let Access::Range(range) = view.access else {
                unreachable!("invariant: a cursor is of its path");
            };
            loop {
                let row = &mut run.scratch.rows[source];
                let id = run.engine.range_next(view.table(), &range.index, entries, row);
                if id.is_none() || !*is_cut || has_equal(view, range, run) {
                    break id;
                }
                run.row()?;
            }
        }
        Cursor::Union(union) => {
            let Access::Union(arms) = view.access else {
                unreachable!("invariant: a cursor is of its path");
            };
            return union.next(arms, view, run);
        }
        Cursor::Scan(scan) => {
            let row = &mut run.scratch.rows[source];
            run.engine.scan_next(view.table(), scan, row)
        }
        Cursor::Series { next, stop, step } => {
            let Some(value) = *next else {
                return Ok(false);
            };
            if (*step > 0 && value > *stop) || (*step < 0 && value < *stop) {
                return Ok(false);
            }
            *next = value.checked_add(*step);
            let cells = &mut run.scratch.cells[source];
            cells.clear();
            cells.push(Datum::Int(value));
            return Ok(true);
        }
        Cursor::Values(at) => return next_values(view, at, run),
        Cursor::View { rows, selected, at } => {
            let place = match selected {
                Some(selected) => selected.get(*at).map(|&place| place as usize),
                None => Some(*at),
            };
            let Some(row) = place.and_then(|place| rows.rows.get(place)) else {
                return Ok(false);
            };
            *at += 1;
            run.scratch.cells[source].clone_from(row);
            return Ok(true);
        }
        Cursor::Derived(rows, _) => {
            let Some(row) = rows.next() else {
                return Ok(false);
            };
            run.scratch.cells[source] = row;
            return Ok(true);
        }
        Cursor::Kept(kept, at) => {
            let Some(row) = kept.rows.get(*at) else {
                return Ok(false);
            };
            *at += 1;
            run.scratch.cells[source].clone_from(row);
            return Ok(true);
        }
    };
    let Some(id) = id else {
        return Ok(false);
    };
    run.scratch.ids[source] = id;
    fetch_long(view, run);
    Ok(true)
}

fn next_candidate(view: &StepView<'_>, at: &mut usize, run: &mut Run<'_>) -> Option<RowId> {
    let source = usize::from(view.source);
    loop {
        let candidates = &run.scratch.levels[view.depth].candidates;
        let id = *candidates.get(*at)?;
        run.engine.load_ahead_of(view.table(), candidates, *at);
        *at += 1;
        let row = &mut run.scratch.rows[source];
        if run.engine.read(view.table(), id, row) {
            return Some(id);
        }
    }
}

fn next_values(view: &StepView<'_>, at: &mut usize, run: &mut Run<'_>) -> Result<bool, Halt> {
    let Access::Values(rows) = view.access else {
        unreachable!("invariant: a cursor is of its path");
    };
    let Some(exprs) = rows.get(*at) else {
        return Ok(false);
    };
    *at += 1;
    let source = usize::from(view.source);
    let mut cells = std::mem::take(&mut run.scratch.cells[source]);
    cells.clear();
    let frame = run.frame(view.tables);
    for expr in exprs {
        cells.push(evaluate(expr, &frame)?.into_datum());
    }
    run.scratch.cells[source] = cells;
    Ok(true)
}

/// Brings the index's columns onto the row's heap, where they are long.
fn fetch_keys(view: &StepView<'_>, run: &mut Run<'_>) {
    let Access::Points { index, .. } = view.access else {
        unreachable!("invariant: a cursor is of its path");
    };
    run.engine.fetch_key_columns(view.table(), index, &mut run.scratch.rows[usize::from(view.source)]);
}

/// Brings the long values that the statement looks at onto the row's heap.
pub fn fetch_long(view: &StepView<'_>, run: &mut Run<'_>) {
    let row = &mut run.scratch.rows[usize::from(view.source)];
    for &column in view.long_columns {
        run.engine.fetch_long(view.table(), row, usize::from(column));
    }
}
