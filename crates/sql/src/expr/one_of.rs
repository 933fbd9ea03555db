//! How is one of many constants found?
//!
//! A list of `IN` keeps the order in which it was written, which EXPLAIN and views show. A long one of constants has a second order
//! beside it, by value, made once with the expression: a row's value is looked for in it by halves.

use super::Expr;
use crate::error::SqlError;
use crate::value::operator::{BinaryOp, BinaryOperator};
use crate::value::{Datum, cast};
use freshet_engine::schema::Value;
use std::cmp::Ordering;
use std::sync::Arc;

/// Shorter lists are asked item by item.
const ITEMS_MIN: usize = 9;

/// The places of a list's items in the order of their values: constants that are not null, all compared by one order.
#[derive(Clone, PartialEq, Debug)]
pub struct Sorted(Arc<[u32]>);

impl Expr {
    /// `expr [NOT] IN (list)`, each item with its equality.
    pub fn one_of(expr: Box<Expr>, list: Vec<(BinaryOperator, Expr)>, negated: bool) -> Expr {
        let sorted = Sorted::of(&list);
        Expr::In { expr, list, negated, sorted }
    }
}

impl Sorted {
    /// `None`: the list is short, or has other items than constants of one kind.
    fn of(list: &[(BinaryOperator, Expr)]) -> Option<Sorted> {
        let (first, _) = list.first().filter(|_| list.len() >= ITEMS_MIN)?;
        let is_integers = |of: &BinaryOperator| cast::is_integer(of.left) && cast::is_integer(of.right);
        let is_alike = first.left == first.right && list.iter().all(|(operator, _)| operator == first);
        if first.op != BinaryOp::Eq || !is_alike && !list.iter().all(|(operator, _)| is_integers(operator)) {
            return None;
        }
        let values = list.iter().map(|(_, item)| known(item)).collect::<Option<Vec<_>>>()?;
        let mut order: Vec<u32> = (0..u32::try_from(list.len()).ok()?).collect();
        let mut failed = false;
        order.sort_by(|a, b| {
            let compared = first.compare(&values[*a as usize], &values[*b as usize]);
            failed |= compared.is_err();
            compared.unwrap_or(Ordering::Equal)
        });
        (!failed).then(|| Sorted(order.into()))
    }

    /// Whether the list that this is the order of has the value, which is not null.
    pub(super) fn has(&self, list: &[(BinaryOperator, Expr)], wanted: &Value<'_>) -> Result<bool, SqlError> {
        let (mut low, mut high) = (0, self.0.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let (operator, item) = &list[self.0[middle] as usize];
            let item = known(item).expect("invariant: only constants are sorted");
            match operator.compare(wanted, &item)? {
                Ordering::Equal => return Ok(true),
                Ordering::Less => high = middle,
                Ordering::Greater => low = middle + 1,
            }
        }
        Ok(false)
    }
}

/// A constant's value that is not null.
fn known(item: &Expr) -> Option<Value<'_>> {
    match item {
        Expr::Const(Datum::Null) => None,
        Expr::Const(datum) => Some(datum.as_value()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::{Env, Frame, truth};
    use crate::value;
    use freshet_engine::schema::Type;

    fn list(types: (Type, Type), items: &[&str]) -> Vec<(BinaryOperator, Expr)> {
        let operator = BinaryOperator::resolve(BinaryOp::Eq, Some(types.0), Some(types.1)).unwrap();
        let read = |item: &&str| Expr::Const(value::from_text(types.1, item.as_bytes()).unwrap());
        items.iter().map(|item| (operator, read(item))).collect()
    }

    fn ask(wanted: Datum, list: Vec<(BinaryOperator, Expr)>, negated: bool) -> Option<bool> {
        let env = Env::default();
        let frame = Frame { tables: &[], rows: &[], cells: &[], parameters: &[], env: &env };
        truth(&Expr::one_of(Box::new(Expr::Const(wanted)), list, negated), &frame).unwrap()
    }

    #[test]
    fn sorted_lists_answer_as_item_by_item() {
        let ty = Type::Float8;
        let floats = list((ty, ty), &["9", "NaN", "-1", "0", "3", "3", "-Infinity", "8", "7", "6"]);
        assert!(Sorted::of(&floats).is_some());
        for (wanted, is_in) in [(f64::NAN, true), (-0.0, true), (f64::INFINITY, false), (3.0, true), (3.5, false)] {
            assert_eq!(ask(Datum::Float(wanted), floats.clone(), false), Some(is_in), "{wanted}");
            assert_eq!(ask(Datum::Float(wanted), floats.clone(), true), Some(!is_in), "{wanted}");
        }
        assert_eq!(ask(Datum::Null, floats.clone(), true), None);
        let integers =
            [list((Type::Int8, Type::Int4), &["5", "4", "3", "2", "1"]), list((Type::Int8, Type::Int8), &["9"; 5])];
        let mut integers = integers.concat();
        assert!(Sorted::of(&integers).is_some());
        assert_eq!(ask(Datum::Int(9), integers.clone(), false), Some(true));
        assert_eq!(ask(Datum::Int(6), integers.clone(), false), Some(false));
        integers.push((integers[0].0, Expr::NULL));
        assert_eq!(
            (ask(Datum::Int(6), integers.clone(), true), ask(Datum::Int(5), integers, true)),
            (None, Some(false))
        );
    }

    #[test]
    fn other_lists_are_not_sorted() {
        let short = list((Type::Text, Type::Text), &["a"; ITEMS_MIN - 1]);
        let other = list((Type::Numeric { typmod: None }, Type::Int4), &["1"; ITEMS_MIN]);
        let of_columns = vec![(short[0].0, Expr::Column { source: 0, column: 0 }); ITEMS_MIN];
        for list in [short, other, of_columns] {
            assert!(Sorted::of(&list).is_none());
        }
    }

    /// Item by item it would be 10^11 comparisons.
    #[test]
    fn a_long_list_is_searched_by_halves() {
        let ty = Type::Int4;
        let operator = BinaryOperator::resolve(BinaryOp::Eq, Some(ty), Some(ty)).unwrap();
        let items = (0..1_000_000).rev().map(|i| (operator, Expr::Const(Datum::Int(2 * i))));
        let items: Vec<_> = items.collect();
        let sorted = Sorted::of(&items).unwrap();
        let found = (0..100_000).filter(|&i| sorted.has(&items, &Value::Int(i)).unwrap());
        assert_eq!(found.count(), 50_000);
    }
}
