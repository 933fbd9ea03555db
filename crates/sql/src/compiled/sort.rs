//! How do rows get an order that no index gives? A sort that keeps no more than the query's LIMIT needs.

use crate::charge::{Charge, room_for};
use crate::error::SqlError;
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

    /// The row is complete; 53200 if there is no room for another.
    pub fn row_done(&mut self) -> Result<(), SqlError> {
        if let Some(keep) = self.keep
            && self.rows() >= keep.saturating_mul(2).saturating_add(SURPLUS)
        {
            let order = self.order(keep);
            self.take(&order);
        }
        // The order itself is a number for each row.
        let beside = self.owned_bytes + (self.rows() * size_of::<u32>()) as u64;
        self.charge.reach(beside + (self.cells.capacity() * size_of::<Datum>()) as u64)?;
        room_for(&mut self.cells, self.width, beside, &mut self.charge)
    }

    /// Gives the rows' outputs in order.
    pub fn finish(mut self) -> impl Iterator<Item = Vec<Datum>> {
        let order = self.order(self.keep.unwrap_or(usize::MAX));
        let (width, keys) = (self.width, self.orders.len());
        order.into_iter().map(move |row| {
            let start = row as usize * width;
            self.cells[start + keys..start + width]
                .iter_mut()
                .map(|cell| std::mem::replace(cell, Datum::Null))
                .collect()
        })
    }

    fn rows(&self) -> usize {
        // A query may select nothing and order by nothing, but then it is not sorted.
        self.cells.len() / self.width.max(1)
    }

    /// The first `keep` rows in order; equal rows keep the order in which they came.
    fn order(&self, keep: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.rows() as u32).collect();
        order.sort_by(|&a, &b| self.compare(a as usize, b as usize));
        order.truncate(keep);
        order
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

    fn key(descending: bool, nulls_first: bool) -> KeyOrder {
        KeyOrder { ty: Type::Int8, descending, nulls_first }
    }

    fn sorted(orders: &[KeyOrder], keep: Option<usize>, rows: &[(Datum, i64)]) -> Vec<i64> {
        let mut sorter = Sorter::new(orders, 1, keep, Charge::default());
        for (k, out) in rows {
            sorter.push(k.clone());
            sorter.push(Datum::Int(*out));
            sorter.row_done().expect("nothing is charged");
        }
        sorter
            .finish()
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
}
