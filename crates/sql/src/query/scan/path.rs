//! Which way do a scan's rows come? The one that costs least: the whole table, or what its conditions leave of an index, of several keys or arms, or of an
//! index's order where first rows are wanted.
//!
//! A path gives a superset of what the conditions want; each row is asked for all of them.

use super::super::compute::Key;
use super::super::estimate::share;
use super::condition::Condition;
use super::{Snapshot, Wanted};
use crate::value::Datum;
use crate::value::operator::BinaryOp;
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::Schema;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use freshet_engine::catalog::{Index, IndexKind};
use freshet_engine::schema::{KeyBuf, KeyPart, Type};
use freshet_engine::txn::Direction;
use std::sync::Arc;

/// What rows are sorted by: a column, or the key that it is compared by.
#[derive(Clone, Debug)]
pub struct SortKey {
    /// The column's place among those of what gives the rows.
    pub place: usize,
    pub options: SortOptions,
    /// As the sort has it.
    expr: Arc<dyn PhysicalExpr>,
}

impl SortKey {
    /// `None`: it is computed.
    pub fn of(expr: &Arc<dyn PhysicalExpr>, options: SortOptions) -> Option<SortKey> {
        let column = match Key::within(expr) {
            Some((_, argument)) => argument.downcast_ref::<PhysicalColumn>()?,
            None => expr.downcast_ref::<PhysicalColumn>()?,
        };
        Some(SortKey { place: column.index(), options, expr: expr.clone() })
    }

    pub fn at(&self, place: usize) -> SortKey {
        SortKey { place, ..self.clone() }
    }

    /// Over rows of this schema.
    fn sort_expr(&self, schema: &Schema) -> PhysicalSortExpr {
        let column: Arc<dyn PhysicalExpr> = Arc::new(PhysicalColumn::new(schema.field(self.place).name(), self.place));
        let expr = match Key::within(&self.expr) {
            Some(_) => self.expr.clone().with_new_children(vec![column]).expect("invariant: a key has one argument"),
            None => column,
        };
        PhysicalSortExpr::new(expr, self.options)
    }

    /// Whether DataFusion so sorts values of the type as an index does.
    fn is_as_of_index(&self, ty: Type) -> bool {
        let of_numbers =
            matches!(ty.unrounded(), Type::Bool | Type::Int2 | Type::Int4 | Type::Int8 | Type::Decimal { .. });
        let of_time = matches!(ty.unrounded(), Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz);
        let of_bytes = matches!(ty, Type::Text | Type::Varchar(_) | Type::Uuid | Type::Bytea | Type::Network(_));
        match Key::within(&self.expr) {
            Some(_) => Key::of(ty).is_some(),
            None => of_numbers || of_time || of_bytes,
        }
    }
}

/// The first rows of an order.
#[derive(Clone)]
pub struct First {
    pub keys: Vec<SortKey>,
    pub count: usize,
    /// None of them may have a null for its first key.
    pub has_values: bool,
    /// Not every row that a scan gives is one of them.
    pub is_filtered: bool,
}

/// How rows are found. Each gives a superset of what the conditions want.
#[derive(Debug)]
pub enum Path {
    All,
    /// The whole key is given.
    Lookup {
        index: Arc<Index>,
        key: Vec<Datum>,
    },
    /// Equal values for a prefix of an ordered key, and perhaps bounds on the next column.
    Range {
        index: Arc<Index>,
        equal: Vec<Datum>,
        lower: Option<Datum>,
        upper: Option<Datum>,
        direction: Direction,
    },
    /// The rows of all of these, each once: of a list's values, of the arms of an OR.
    Several(Vec<Path>),
    /// There are none.
    Nothing,
}

/// What it costs to look a key up, and to fetch a row of an index, in rows that are read one after another.
const LOOKUP_ROWS: f64 = 2.0;

impl Snapshot {
    /// How the rows for which all these hold are found: by the index that leads to the fewest, by several look-ups where that is less.
    pub fn path_for(&self, conditions: &[Condition]) -> Path {
        let all: Vec<&Condition> = conditions.iter().collect();
        let mut best: Option<(f64, usize, Path)> = None;
        for index in &self.table.indexes {
            let Some((worth, path)) = Path::through(index, &all) else { continue };
            let cost = LOOKUP_ROWS + LOOKUP_ROWS * self.rows_by(&path, conditions);
            let is_better =
                best.as_ref().is_none_or(|(least, most, _)| cost < *least || cost == *least && worth > *most);
            if is_better {
                best = Some((cost, worth, path));
            }
        }
        let limit = best.as_ref().map_or(self.table.slots() as f64, |(cost, ..)| *cost);
        match self.several(conditions, limit) {
            Some(path) => path,
            None => best.map_or(Path::All, |(_, _, path)| path),
        }
    }

    /// Rows that a path leads to, estimated.
    fn rows_by(&self, path: &Path, conditions: &[Condition]) -> f64 {
        if path.is_of_one_row() {
            return 1.0;
        }
        let used: Vec<Condition> = conditions.iter().filter(|c| path.finds_by(c)).cloned().collect();
        self.rows_of(&[]) * share(&used, &self.table, self.known.as_deref())
    }

    /// The cheapest of the lists and ORs that lead to rows through indexes, if it costs less than this.
    fn several(&self, conditions: &[Condition], mut limit: f64) -> Option<Path> {
        let mut best = None;
        for (at, condition) in conditions.iter().enumerate() {
            let arms = match condition {
                Condition::In { list, .. } => list.len(),
                Condition::Any(arms) => arms.len(),
                _ => continue,
            };
            if arms as f64 * LOOKUP_ROWS >= limit {
                continue;
            }
            let rest = conditions[..at].iter().chain(&conditions[at + 1..]).collect();
            let Some(paths) = self.arms(condition, rest) else { continue };
            let rows = match paths.iter().all(Path::is_of_one_row) {
                true => paths.len() as f64,
                false => self.rows_of(&[]) * share(std::slice::from_ref(condition), &self.table, self.known.as_deref()),
            };
            let cost = LOOKUP_ROWS * (paths.len() as f64 + rows);
            if cost < limit {
                (limit, best) = (cost, Some(Path::Several(paths)));
            }
        }
        best
    }

    /// A path for each value or arm, beside what else holds; none if one of them leads through no index.
    fn arms<'c>(&self, condition: &'c Condition, mut beside: Vec<&'c Condition>) -> Option<Vec<Path>> {
        let through = |index: &Arc<Index>, conditions: &[&Condition]| Path::through(index, conditions);
        match condition {
            Condition::In { column, list } => {
                let equal = |item: &Datum| Condition::Compare { column: *column, op: BinaryOp::Eq, with: item.clone() };
                let first = equal(list.first()?);
                let asked =
                    |item: &Condition, index: &Arc<Index>| through(index, &[beside.as_slice(), &[item]].concat());
                let usable = self.table.indexes.iter().filter_map(|index| {
                    let (worth, path) = asked(&first, index)?;
                    path.finds_by(&first).then_some((worth, index))
                });
                let (_, index) = usable.max_by_key(|(worth, _)| *worth)?;
                list.iter().map(|item| asked(&equal(item), index).map(|(_, path)| path)).collect()
            }
            Condition::Any(arms) => {
                let count = beside.len();
                let path_of = |arm: &'c Condition| {
                    beside.truncate(count);
                    match arm {
                        Condition::All(list) => beside.extend(list),
                        one => beside.push(one),
                    }
                    let paths = self.table.indexes.iter().filter_map(|index| through(index, &beside));
                    let own = paths.filter(|(_, path)| beside[count..].iter().any(|c| path.finds_by(c)));
                    own.max_by_key(|(worth, _)| *worth).map(|(_, path)| path)
                };
                arms.iter().filter(|arm| !arm.is_never()).map(path_of).collect()
            }
            _ => None,
        }
    }
}

impl Path {
    fn is_of_one_row(&self) -> bool {
        matches!(self, Path::Lookup { index, .. } if index.def.unique)
    }

    /// The index, if there is but one.
    fn index(&self) -> Option<&Arc<Index>> {
        match self {
            Path::All | Path::Nothing => None,
            Path::Lookup { index, .. } | Path::Range { index, .. } => Some(index),
            Path::Several(paths) => {
                let first = paths.first()?.index()?;
                let is_same = |path: &Path| path.index().is_some_and(|index| Arc::ptr_eq(index, first));
                paths.iter().all(is_same).then_some(first)
            }
        }
    }

    /// By name, each once.
    pub fn index_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = match self {
            Path::Several(paths) => paths.iter().flat_map(Path::index_names).collect(),
            one => one.index().map(|index| index.def.name.as_str()).into_iter().collect(),
        };
        names.sort_unstable();
        names.dedup();
        names
    }

    /// One after the other.
    pub fn arm(&self, at: usize) -> Option<&Path> {
        match self {
            Path::Several(paths) => paths.get(at),
            one => (at == 0).then_some(one),
        }
    }

    /// Whether it finds its rows by this condition, among others.
    pub fn finds_by(&self, condition: &Condition) -> bool {
        let (index, equal, bounded) = match self {
            Path::All | Path::Nothing => return false,
            Path::Several(paths) => {
                return match condition {
                    Condition::Compare { .. } => paths.iter().all(|path| path.finds_by(condition)),
                    Condition::In { column, .. } => {
                        let is_key =
                            |index: &Arc<Index>| index.def.columns.iter().any(|c| usize::from(c.column) == *column);
                        self.index().is_some_and(is_key)
                    }
                    Condition::Any(arms) => arms.iter().filter(|arm| !arm.is_never()).count() == paths.len(),
                    _ => false,
                };
            }
            Path::Lookup { index, key } => (index, key.len(), false),
            Path::Range { index, equal, lower, upper, .. } => (index, equal.len(), lower.is_some() || upper.is_some()),
        };
        let Condition::Compare { column, op, .. } = condition else { return false };
        let at = index.def.columns.iter().position(|c| usize::from(c.column) == *column);
        at.is_some_and(|at| match op {
            BinaryOp::Eq => at < equal,
            BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => bounded && at == equal,
            _ => false,
        })
    }

    /// The path through an index and its worth, if the conditions give a key.
    fn through(index: &Arc<Index>, conditions: &[&Condition]) -> Option<(usize, Path)> {
        let equal_to = |wanted: usize| {
            conditions.iter().find_map(|c| match c {
                Condition::Compare { column, op: BinaryOp::Eq, with } if *column == wanted => Some(with.clone()),
                _ => None,
            })
        };
        let columns: Vec<usize> = index.def.columns.iter().map(|c| usize::from(c.column)).collect();
        let equal: Vec<Datum> = columns.iter().map_while(|&c| equal_to(c)).collect();
        if equal.len() == columns.len() {
            let worth = 100 + columns.len() + usize::from(index.def.unique) * 1000;
            return Some((worth, Path::Lookup { index: index.clone(), key: equal }));
        }
        if index.def.kind == IndexKind::Hash {
            return None;
        }
        let next = columns[equal.len()];
        let bound = |ops: [BinaryOp; 2]| {
            conditions.iter().find_map(|c| match c {
                Condition::Compare { column, op, with }
                    if *column == next && ops.contains(op) && *with != Datum::Null =>
                {
                    Some(with.clone())
                }
                _ => None,
            })
        };
        let lower = bound([BinaryOp::Gt, BinaryOp::Ge]);
        let upper = bound([BinaryOp::Lt, BinaryOp::Le]);
        let worth = equal.len() * 4 + usize::from(lower.is_some()) + usize::from(upper.is_some());
        (worth > 0)
            .then(|| (worth, Path::Range { index: index.clone(), equal, lower, upper, direction: Direction::Forward }))
    }
}

/// The order of an index, or its reverse, that rows are given in.
#[derive(Clone, Debug)]
pub struct InOrder {
    index: Arc<Index>,
    direction: Direction,
    /// As it was asked for, by place among the scan's columns. The nodes above rely on it.
    keys: Vec<SortKey>,
    /// Rows that are looked at where each one meets the conditions.
    rows: f64,
}

impl InOrder {
    /// By these keys, which the index's first columns are.
    pub fn asked_for(self, keys: Vec<SortKey>) -> InOrder {
        InOrder { keys, ..self }
    }

    pub fn sort_exprs(&self, schema: &Schema) -> Vec<PhysicalSortExpr> {
        self.keys.iter().map(|key| key.sort_expr(schema)).collect()
    }

    /// As much of the index as the conditions leave.
    pub fn path(&self, conditions: &[Condition]) -> Path {
        let InOrder { index, direction, .. } = self.clone();
        match Path::through(&index, &conditions.iter().collect::<Vec<_>>()) {
            Some((_, Path::Range { equal, lower, upper, .. })) => Path::Range { index, equal, lower, upper, direction },
            // Its rows have one key.
            Some((_, lookup)) => lookup,
            None => Path::Range { index, equal: Vec::new(), lower: None, upper: None, direction },
        }
    }
}

/// Of rows that come in order, one of so many passes what DataFusion asks of them: its default, too.
const PASSING: f64 = 5.0;
/// What it costs to plan a query, in rows that are read.
const PLANNING_ROWS: f64 = 3_000.0;

impl Snapshot {
    /// The index through which the first rows in an order are found for the least, if that is less than to find all of them by a path and to sort.
    pub fn order_by_index(&self, wanted: &Wanted, path: &Path, first: &First) -> Option<InOrder> {
        let conditions = self.conditions(&wanted.filters);
        let met = self.rows_of(&wanted.filters);
        let rows = first.count as f64 * if first.is_filtered { PASSING } else { 1.0 };
        let orders = self.table.indexes.iter().filter_map(|index| {
            let direction = self.direction(index, first, &conditions)?;
            let order = InOrder { index: index.clone(), direction, keys: Vec::new(), rows };
            Some((self.cost_in_order(&order, &conditions, met), order))
        });
        let (least, order) = orders.min_by(|a, b| a.0.total_cmp(&b.0))?;
        (least <= self.cost_of_all(path, &conditions)).then_some(order)
    }

    /// Of the first rows, where so many meet the conditions.
    fn cost_in_order(&self, order: &InOrder, conditions: &[Condition], met: f64) -> f64 {
        let rows = self.rows_by(&order.path(conditions), conditions).max(1.0);
        LOOKUP_ROWS + LOOKUP_ROWS * rows.min(order.rows * (rows / met).max(1.0))
    }

    fn cost_of_all(&self, path: &Path, conditions: &[Condition]) -> f64 {
        match path {
            Path::All => self.table.slots() as f64,
            path => LOOKUP_ROWS + LOOKUP_ROWS * self.rows_by(path, conditions),
        }
    }

    /// Whether all rows, now that the values are known, are found and sorted for less than the first ones in this order, planning included.
    pub fn is_better_sorted(&self, order: &InOrder, conditions: &[Condition]) -> bool {
        if conditions.iter().any(Condition::is_never) {
            return false;
        }
        let first = self.cost_in_order(order, conditions, self.rows_that_meet(conditions));
        first > PLANNING_ROWS && first > PLANNING_ROWS + self.cost_of_all(&self.path_for(conditions), conditions)
    }

    /// How an index is read to give rows in an order. Columns that all rows have one value of say nothing of it.
    fn direction(&self, index: &Index, first: &First, conditions: &[Condition]) -> Option<Direction> {
        if index.def.kind != IndexKind::BTree {
            return None;
        }
        let is_one = |column: usize| {
            let equal =
                |c: &Condition| matches!(c, Condition::Compare { column: of, op: BinaryOp::Eq, .. } if *of == column);
            conditions.iter().any(equal)
        };
        let has_value = |column: usize| {
            let compared = |c: &Condition| matches!(c, Condition::Compare { column: of, .. } if *of == column);
            self.table.def.columns[column].not_null || conditions.iter().any(compared)
        };
        if first.has_values && first.keys.iter().any(|key| key.options.nulls_first && !has_value(key.place)) {
            return None;
        }
        let mut columns = index.def.columns.iter().filter(|c| !is_one(usize::from(c.column)));
        let mut direction = None;
        for key in first.keys.iter().filter(|key| !is_one(key.place)) {
            let column = columns.next().filter(|column| usize::from(column.column) == key.place)?;
            let (of, options) = (&self.table.def.columns[key.place], key.options);
            // Nulls are the largest values of an index.
            let nulls_are_there = of.not_null || options.nulls_first == options.descending;
            if !nulls_are_there || !key.is_as_of_index(of.ty) {
                return None;
            }
            let needed = if column.descending == options.descending { Direction::Forward } else { Direction::Backward };
            if *direction.get_or_insert(needed) != needed {
                return None;
            }
        }
        Some(direction.unwrap_or(Direction::Forward))
    }
}

/// The ends of a range in the index's own words.
pub fn range_ends(index: &Index, equal: &[Datum], lower: Option<&Datum>, upper: Option<&Datum>) -> (KeyBuf, KeyBuf) {
    let descending = index.def.columns[equal.len()].descending;
    let (first, last) = if descending { (upper, lower) } else { (lower, upper) };
    let mut low = KeyBuf::default();
    index.spec.encode(&mut low, |i| match (i.cmp(&equal.len()), first) {
        (std::cmp::Ordering::Less, _) => KeyPart::Value(equal[i].as_value()),
        (std::cmp::Ordering::Equal, Some(bound)) => KeyPart::Value(bound.as_value()),
        _ => KeyPart::Lowest,
    });
    let mut high = KeyBuf::default();
    index.spec.encode(&mut high, |i| match (i.cmp(&equal.len()), last) {
        (std::cmp::Ordering::Less, _) => KeyPart::Value(equal[i].as_value()),
        (std::cmp::Ordering::Equal, Some(bound)) => KeyPart::Value(bound.as_value()),
        _ => KeyPart::Highest,
    });
    index.spec.pad_high(&mut high);
    (low, high)
}
