//! How do rows get an order that no index gives? A sort that keeps no more than the query's LIMIT needs.
//!
//! A few rows are sorted in one go. Of many, runs of [`RUN_ROWS`] are, which are then merged, and between the runs and every so many merged rows the
//! sort looks whether anybody still waits for it. Equal rows keep the order in which they came, either way.

use super::Halt;
use crate::charge::{Charge, room_for};
use crate::value::Datum;
use freshet_engine::schema::Type;
use std::cmp::Ordering;

/// One key of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyOrder {
    pub ty: Type,
    pub descending: bool,
    pub nulls_first: bool,
}

/// Rows on their way to be sorted: `orders.len()` keys, then the outputs, in one flat list.
pub struct Sorter<'q> {
    orders: &'q [KeyOrder],
    width: usize,
    /// Rows that can still be among the first; `None`: all.
    keep: Option<usize>,
    cells: Vec<Datum>,
    /// What the cells own.
    owned_bytes: u64,
    charge: Charge,
}

/// Says whether a sort is to go on.
pub type Look<'a> = dyn FnMut() -> Result<(), Halt> + 'a;

/// Rows that are sorted in one go: some milliseconds' work.
const RUN_ROWS: usize = 4096;

/// How many rows may gather beyond those kept before the surplus is dropped.
const SURPLUS: usize = 1024;

impl<'q> Sorter<'q> {
    pub fn new(orders: &'q [KeyOrder], outputs: usize, keep: Option<usize>, charge: Charge) -> Sorter<'q> {
        Sorter { orders, width: orders.len() + outputs, keep, cells: Vec::new(), owned_bytes: 0, charge }
    }

    /// Takes a row's next cell; rows are complete every `width` cells.
    pub fn push(&mut self, datum: Datum) {
        self.owned_bytes += datum.memory_bytes() - size_of::<Datum>() as u64;
        self.cells.push(datum);
    }

    /// The row is complete; 53200 if there is no room for another. `look` is asked whether to go on.
    pub fn row_done(&mut self, look: &mut Look<'_>) -> Result<(), Halt> {
        if let Some(keep) = self.keep
            && self.rows() >= keep.saturating_mul(2).saturating_add(SURPLUS)
        {
            let order = self.order(keep, look)?;
            self.take(&order);
        }
        // The order itself is a number for each row, and another while runs are merged.
        let beside = self.owned_bytes + (self.rows() * 2 * size_of::<u32>()) as u64;
        self.charge.reach(beside + (self.cells.capacity() * size_of::<Datum>()) as u64)?;
        Ok(room_for(&mut self.cells, self.width, beside, &mut self.charge)?)
    }

    /// Gives the rows' outputs in order, once `look` has let it come to its end.
    pub fn finish(mut self, look: &mut Look<'_>) -> Result<impl Iterator<Item = Vec<Datum>> + use<'q>, Halt> {
        let order = self.order(self.keep.unwrap_or(usize::MAX), look)?;
        let (width, keys) = (self.width, self.orders.len());
        Ok(order.into_iter().map(move |row| {
            let start = row as usize * width;
            self.cells[start + keys..start + width]
                .iter_mut()
                .map(|cell| std::mem::replace(cell, Datum::Null))
                .collect()
        }))
    }

    fn rows(&self) -> usize {
        // A query may select nothing and order by nothing, but then it is not sorted.
        self.cells.len() / self.width.max(1)
    }

    /// The first `keep` rows in order; equal rows keep the order in which they came.
    fn order(&self, keep: usize, look: &mut Look<'_>) -> Result<Vec<u32>, Halt> {
        let mut order: Vec<u32> = (0..self.rows() as u32).collect();
        let compare = |a: &u32, b: &u32| self.compare(*a as usize, *b as usize);
        sort_looking(&mut order, compare, look)?;
        order.truncate(keep);
        Ok(order)
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        let (a, b) = (a * self.width, b * self.width);
        for (i, key) in self.orders.iter().enumerate() {
            let order = compare_keys(key, &self.cells[a + i], &self.cells[b + i]);
            if order != Ordering::Equal {
                return order;
            }
        }
        Ordering::Equal
    }

    fn take(&mut self, order: &[u32]) {
        let mut kept = Vec::with_capacity(order.len() * self.width);
        for &row in order {
            let start = row as usize * self.width;
            let cells = &mut self.cells[start..start + self.width];
            kept.extend(cells.iter_mut().map(|cell| std::mem::replace(cell, Datum::Null)));
        }
        self.owned_bytes = kept.iter().map(|d| d.memory_bytes() - size_of::<Datum>() as u64).sum();
        self.cells = kept;
    }
}

/// A stable sort that asks `look` whether to go on.
pub(crate) fn sort_looking<T: Copy>(
    items: &mut Vec<T>,
    mut compare: impl FnMut(&T, &T) -> Ordering,
    look: &mut Look<'_>,
) -> Result<(), Halt> {
    if items.len() <= RUN_ROWS {
        items.sort_by(compare);
        return Ok(());
    }
    for run in items.chunks_mut(RUN_ROWS) {
        look()?;
        run.sort_by(&mut compare);
    }
    let mut merged = Vec::with_capacity(items.len());
    let mut width = RUN_ROWS;
    while width < items.len() {
        merged.clear();
        for pair in items.chunks(2 * width) {
            let (left, right) = pair.split_at(width.min(pair.len()));
            merge(left, right, &mut merged, &mut compare, look)?;
        }
        std::mem::swap(items, &mut merged);
        width *= 2;
    }
    Ok(())
}

/// Appends two runs as one to `merged`; of equals those of `left` come first.
fn merge<'a, T: Copy>(
    mut left: &'a [T],
    mut right: &'a [T],
    merged: &mut Vec<T>,
    compare: &mut impl FnMut(&T, &T) -> Ordering,
    look: &mut Look<'_>,
) -> Result<(), Halt> {
    look()?;
    // Runs that lie apart, as those of rows that came in order, are not gone through.
    let (apart, reversed) = match (left, right) {
        ([left_first, .., left_last], [right_first, .., right_last]) => {
            (compare(left_last, right_first) != Ordering::Greater, compare(left_first, right_last) == Ordering::Greater)
        }
        _ => (false, false),
    };
    if reversed {
        std::mem::swap(&mut left, &mut right);
    }
    while !(apart || reversed)
        && let ([first, left_rest @ ..], [second, right_rest @ ..]) = (left, right)
    {
        if merged.len().is_multiple_of(RUN_ROWS) {
            look()?;
        }
        if compare(first, second) == Ordering::Greater {
            merged.push(*second);
            right = right_rest;
        } else {
            merged.push(*first);
            left = left_rest;
        }
    }
    merged.extend_from_slice(left);
    merged.extend_from_slice(right);
    Ok(())
}

fn compare_keys(key: &KeyOrder, a: &Datum, b: &Datum) -> Ordering {
    let null = |datum: &Datum| matches!(datum, Datum::Null);
    match (null(a), null(b)) {
        (true, true) => Ordering::Equal,
        (true, false) if key.nulls_first => Ordering::Less,
        (true, false) => Ordering::Greater,
        (false, true) if key.nulls_first => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => {
            let order = key.ty.compare(&a.as_value(), &b.as_value());
            if key.descending { order.reverse() } else { order }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn go_on() -> Result<(), Halt> {
        Ok(())
    }

    fn key(descending: bool, nulls_first: bool) -> KeyOrder {
        KeyOrder { ty: Type::Int8, descending, nulls_first }
    }

    fn sorted(orders: &[KeyOrder], keep: Option<usize>, rows: &[(Datum, i64)]) -> Vec<i64> {
        let mut sorter = Sorter::new(orders, 1, keep, Charge::default());
        for (k, out) in rows {
            sorter.push(k.clone());
            sorter.push(Datum::Int(*out));
            sorter.row_done(&mut go_on).expect("nothing is charged");
        }
        sorter
            .finish(&mut go_on)
            .expect("nobody ends it")
            .map(|row| match row[0] {
                Datum::Int(v) => v,
                _ => panic!("an output that was not put in"),
            })
            .collect()
    }

    #[test]
    fn nulls_stand_where_they_are_told_and_equal_keys_keep_their_order() {
        let rows = [(Datum::Int(2), 0), (Datum::Null, 1), (Datum::Int(1), 2), (Datum::Int(2), 3)];
        assert_eq!(sorted(&[key(false, false)], None, &rows), [2, 0, 3, 1]);
        assert_eq!(sorted(&[key(true, true)], None, &rows), [1, 0, 3, 2]);
        assert_eq!(sorted(&[key(true, false)], Some(2), &rows), [0, 3]);
    }

    #[test]
    fn a_limit_keeps_the_first_rows_of_many() {
        let rows: Vec<(Datum, i64)> = (0..10_000).map(|i| (Datum::Int(i * 7919 % 10_000), i * 7919 % 10_000)).collect();
        assert_eq!(sorted(&[key(false, false)], Some(5), &rows), [0, 1, 2, 3, 4]);
    }

    /// Numbers in several orders, which come up several times each, beside their places.
    fn numbers() -> Vec<(&'static str, Vec<(u64, usize)>)> {
        const COUNT: usize = 5 * RUN_ROWS + 77;
        let of = |number: &dyn Fn(u64) -> u64| (0..COUNT).map(|at| (number(at as u64), at)).collect();
        vec![
            ("mixed", of(&|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50)),
            ("rising", of(&|at| at / 3)),
            ("falling", of(&|at| (COUNT as u64 - at) / 3)),
            ("strictly falling", of(&|at| COUNT as u64 - at)),
            ("all the same", of(&|_| 7)),
            ("a saw", of(&|at| at % 1000)),
            ("one late", of(&|at| if at == COUNT as u64 - 1 { 0 } else { at })),
        ]
    }

    #[test]
    fn runs_that_are_merged_have_the_order_of_one_sort() {
        for (name, mut items) in numbers() {
            let mut expected = items.clone();
            expected.sort_by_key(|(number, _)| *number);
            sort_looking(&mut items, |a, b| a.0.cmp(&b.0), &mut go_on).expect("nobody ends it");
            assert!(items == expected, "{name}");
        }
    }

    /// Between two looks there is no more than the sort of one run.
    #[test]
    fn a_sort_ends_when_it_is_told_to() {
        let (_, items) = numbers().swap_remove(0);
        let (asked, compared) = (Cell::new(0), Cell::new(0));
        let (mut last, mut most) = (0, 0);
        let mut compare = |a: &(u64, usize), b: &(u64, usize)| {
            compared.set(compared.get() + 1);
            a.0.cmp(&b.0)
        };
        let mut count = || {
            asked.set(asked.get() + 1);
            most = most.max(compared.get() - last);
            last = compared.get();
            Ok(())
        };
        sort_looking(&mut items.clone(), &mut compare, &mut count).expect("nobody ends it");
        assert!(most <= RUN_ROWS * 16, "{most} comparisons without a look");
        let looks = asked.get();
        assert!(looks > 5 * 3, "each run, and each merge of them: {looks}");
        for end in 1..=looks {
            asked.set(0);
            let mut stop = || {
                asked.set(asked.get() + 1);
                if asked.get() == end { Err(Halt::TooLong) } else { Ok(()) }
            };
            let ended = sort_looking(&mut items.clone(), &mut compare, &mut stop);
            assert!(matches!(ended, Err(Halt::TooLong)) && asked.get() == end, "at look {end}");
        }
    }
}
