//! How is one of many values found?
//!
//! A list of `IN` keeps the order in which it was written, which EXPLAIN and views show. A long one of constants has a second order
//! beside it, by value, made once with the expression: a row's value is looked for in it by halves. So has a long constant array of `= ANY` and
//! `<> ALL`. Of lists and arrays that are parameters a run makes the order ([`Lists`]), once it has looked into one a few times.

use super::Expr;
use crate::error::SqlError;
use crate::value::operator::{BinaryOp, BinaryOperator};
use crate::value::{self, Datum, cast};
use freshet_engine::schema::Value;
use std::cell::RefCell;
use std::cmp::Ordering;
use std::sync::Arc;

/// Shorter lists are asked item by item.
const ITEMS_MIN: usize = 9;

/// How a long list is searched whose items are all compared by one order.
#[derive(Clone, PartialEq, Debug)]
pub enum Search {
    /// Constants that are not null.
    Sorted(Sorted),
    /// Constants and parameters: a run knows their order by what tells this list from others.
    InRun(Arc<()>),
}

/// The places of a list's items in the order of their values.
#[derive(Clone, PartialEq, Debug)]
pub struct Sorted(Arc<[u32]>);

impl Expr {
    /// `expr [NOT] IN (list)`, each item with its equality.
    pub fn one_of(expr: Box<Expr>, list: Vec<(BinaryOperator, Expr)>, negated: bool) -> Expr {
        let search = Search::of(&list);
        Expr::In { expr, list, negated, search }
    }
}

impl Search {
    /// `None`: the list is short, or has other items than constants and parameters of one kind.
    fn of(list: &[(BinaryOperator, Expr)]) -> Option<Search> {
        let (first, _) = list.first().filter(|_| list.len() >= ITEMS_MIN)?;
        let is_alike = first.orders_right() && list.iter().all(|(operator, _)| operator == first);
        if first.op != BinaryOp::Eq || !is_alike && !list.iter().all(|(operator, _)| is_of_integers(operator)) {
            return None;
        }
        let Some(values) = list.iter().map(|(_, item)| known(item)).collect::<Option<Vec<_>>>() else {
            let is_given = |item: &Expr| matches!(item, Expr::Const(_) | Expr::Param(_));
            return list.iter().all(|(_, item)| is_given(item)).then(|| Search::InRun(Arc::new(())));
        };
        let mut order: Vec<u32> = (0..u32::try_from(list.len()).ok()?).collect();
        let is_sorted = sort(&mut order, |a, b| first.compare(&values[*a as usize], &values[*b as usize]));
        is_sorted.then(|| Search::Sorted(Sorted(order.into())))
    }
}

impl Sorted {
    /// Whether the list that this is the order of has the value, which is not null.
    pub(super) fn has(&self, list: &[(BinaryOperator, Expr)], wanted: &Value<'_>) -> Result<bool, SqlError> {
        is_among(self.0.len(), |at| {
            let (operator, item) = &list[self.0[at] as usize];
            operator.compare(wanted, &known(item).expect("invariant: only constants are sorted"))
        })
    }
}

/// The items of an array in the order of their values.
#[derive(Clone, Debug)]
pub struct Members(Arc<Items>);

#[derive(Debug)]
struct Items {
    known: Vec<Datum>,
    has_null: bool,
}

/// Of equal expressions: they follow from operator and array.
impl PartialEq for Members {
    fn eq(&self, _: &Members) -> bool {
        true
    }
}

impl Expr {
    /// `left operator ANY (array)`, or ALL.
    pub fn quantified(operator: BinaryOperator, left: Box<Expr>, array: Box<Expr>, all: bool) -> Expr {
        let members = match array.as_ref() {
            Expr::Const(array) => Members::of(&operator, all, array),
            _ => None,
        };
        Expr::Quantified { operator, left, array, all, members }
    }
}

impl Members {
    /// `None`: it is not asked whether a value is among them, the array is short, or its items are not compared by the order they have.
    fn of(operator: &BinaryOperator, all: bool, array: &Datum) -> Option<Members> {
        let Datum::Bytes(stored) = array else { return None };
        let asks = operator.op == if all { BinaryOp::Ne } else { BinaryOp::Eq };
        if !asks || !operator.orders_right() {
            return None;
        }
        Members::of_items(operator, value::array_items(operator.right, stored))
    }

    fn of_items(operator: &BinaryOperator, mut items: Vec<Datum>) -> Option<Members> {
        let count = items.len();
        items.retain(|item| *item != Datum::Null);
        let has_null = items.len() < count;
        let is_sorted = count >= ITEMS_MIN && sort(&mut items, |a, b| operator.compare(&a.as_value(), &b.as_value()));
        is_sorted.then(|| Members(Arc::new(Items { known: items, has_null })))
    }

    /// What ANY or ALL says of a value.
    pub(super) fn truth(
        &self,
        operator: &BinaryOperator,
        all: bool,
        wanted: &Value<'_>,
    ) -> Result<Option<bool>, SqlError> {
        if wanted.is_null() {
            return Ok(None);
        }
        let Items { known, has_null } = self.0.as_ref();
        Ok(match is_among(known.len(), |at| operator.compare(wanted, &known[at].as_value()))? {
            true => Some(!all),
            false if *has_null => None,
            false => Some(all),
        })
    }
}

/// Looks into an array that is a parameter before its items are put in order, which takes as long as some.
const LOOKS: u32 = 4;
/// Arrays and lists of one run: so many are found as fast as one that is short is looked through.
const KEPT_MAX: usize = 16;

/// The members of arrays that are parameters of one run.
#[derive(Default)]
pub struct Lists {
    /// Where the run's parameters are, which stay as they are until it is over. A frame with others, of a row say, has nothing here.
    parameters: Option<usize>,
    kept: RefCell<Vec<Kept>>,
}

struct Kept {
    of: Of,
    looks: u32,
    members: Option<Members>,
}

/// Whose members they are.
enum Of {
    Array(u16, BinaryOperator, bool),
    /// It is kept, so that no other list is told by the same.
    List(Arc<()>),
}

impl Search {
    /// The same of a list as it was, or with parameters replaced.
    pub(super) fn rewritten(
        search: Search,
        list: Vec<(BinaryOperator, Expr)>,
        rewrite: &mut impl FnMut(Expr) -> Expr,
    ) -> (Vec<(BinaryOperator, Expr)>, Option<Search>) {
        // Constants stay what they are.
        let Search::InRun(_) = search else { return (list, Some(search)) };
        let mut is_same = true;
        let mut rewritten = |(operator, item): (BinaryOperator, Expr)| match item {
            Expr::Param(parameter) => {
                let item = rewrite(Expr::Param(parameter));
                is_same &= item == Expr::Param(parameter);
                (operator, item)
            }
            constant => (operator, constant),
        };
        let list: Vec<_> = list.into_iter().map(&mut rewritten).collect();
        let search = if is_same { Some(search) } else { Search::of(&list) };
        (list, search)
    }
}

impl Lists {
    /// A run with these parameters begins.
    pub fn begin(&mut self, parameters: &[Datum]) {
        self.parameters = Some(place(parameters));
        self.kept.get_mut().clear();
    }

    /// The run is over, or rests.
    pub fn end(&mut self) {
        self.parameters = None;
        self.kept.get_mut().clear();
    }

    /// Of an array that is one of the run's parameters, if it is looked into often enough.
    pub(super) fn of_array(
        &self,
        parameter: u16,
        (operator, all): (&BinaryOperator, bool),
        parameters: &[Datum],
    ) -> Option<Members> {
        let is_it = |of: &Of| matches!(of, Of::Array(p, o, a) if (*p, o, *a) == (parameter, operator, all));
        let make = || Members::of(operator, all, &parameters[usize::from(parameter)]);
        self.kept(parameters, is_it, || Of::Array(parameter, *operator, all), make)
    }

    /// The same of a list of constants and of the run's parameters.
    pub(super) fn of_list(
        &self,
        token: &Arc<()>,
        list: &[(BinaryOperator, Expr)],
        parameters: &[Datum],
    ) -> Option<Members> {
        let is_it = |of: &Of| matches!(of, Of::List(other) if Arc::ptr_eq(other, token));
        let given = |(_, item): &(BinaryOperator, Expr)| match item {
            Expr::Const(datum) => datum.clone(),
            Expr::Param(parameter) => parameters[usize::from(*parameter)].clone(),
            _ => unreachable!("invariant: such a list has constants and parameters"),
        };
        let make = || Members::of_items(&list[0].0, list.iter().map(given).collect());
        self.kept(parameters, is_it, || Of::List(token.clone()), make)
    }

    fn kept(
        &self,
        parameters: &[Datum],
        is_it: impl Fn(&Of) -> bool,
        of: impl FnOnce() -> Of,
        make: impl FnOnce() -> Option<Members>,
    ) -> Option<Members> {
        if self.parameters != Some(place(parameters)) {
            return None;
        }
        let mut all = self.kept.borrow_mut();
        let at = match all.iter().position(|kept| is_it(&kept.of)) {
            Some(at) => at,
            None if all.len() == KEPT_MAX => return None,
            None => {
                all.push(Kept { of: of(), looks: 0, members: None });
                all.len() - 1
            }
        };
        let kept = &mut all[at];
        kept.looks = kept.looks.saturating_add(1);
        if kept.looks == LOOKS {
            kept.members = make();
        }
        kept.members.clone()
    }
}

fn place(parameters: &[Datum]) -> usize {
    parameters.as_ptr().addr()
}

fn is_of_integers(operator: &BinaryOperator) -> bool {
    cast::is_integer(operator.left) && cast::is_integer(operator.right)
}

/// Whether all could be compared.
fn sort<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Result<Ordering, SqlError>) -> bool {
    let mut failed = false;
    items.sort_by(|a, b| {
        let compared = compare(a, b);
        failed |= compared.is_err();
        compared.unwrap_or(Ordering::Equal)
    });
    !failed
}

/// By halves; `compare` says how what is wanted compares to the item at a place.
fn is_among(count: usize, compare: impl Fn(usize) -> Result<Ordering, SqlError>) -> Result<bool, SqlError> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        match compare(middle)? {
            Ordering::Equal => return Ok(true),
            Ordering::Less => high = middle,
            Ordering::Greater => low = middle + 1,
        }
    }
    Ok(false)
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
        let frame = Frame::new(&env);
        truth(&Expr::one_of(Box::new(Expr::Const(wanted)), list, negated), &frame).unwrap()
    }

    #[test]
    fn sorted_lists_answer_as_item_by_item() {
        let ty = Type::Float8;
        let floats = list((ty, ty), &["9", "NaN", "-1", "0", "3", "3", "-Infinity", "8", "7", "6"]);
        assert!(Search::of(&floats).is_some());
        for (wanted, is_in) in [(f64::NAN, true), (-0.0, true), (f64::INFINITY, false), (3.0, true), (3.5, false)] {
            assert_eq!(ask(Datum::Float(wanted), floats.clone(), false), Some(is_in), "{wanted}");
            assert_eq!(ask(Datum::Float(wanted), floats.clone(), true), Some(!is_in), "{wanted}");
        }
        assert_eq!(ask(Datum::Null, floats.clone(), true), None);
        let integers =
            [list((Type::Int8, Type::Int4), &["5", "4", "3", "2", "1"]), list((Type::Int8, Type::Int8), &["9"; 5])];
        let mut integers = integers.concat();
        assert!(Search::of(&integers).is_some());
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
            assert!(Search::of(&list).is_none());
        }
    }

    /// Item by item it would be 10^11 comparisons.
    #[test]
    fn a_long_list_is_searched_by_halves() {
        let ty = Type::Int4;
        let operator = BinaryOperator::resolve(BinaryOp::Eq, Some(ty), Some(ty)).unwrap();
        let items = (0..1_000_000).rev().map(|i| (operator, Expr::Const(Datum::Int(2 * i))));
        let items: Vec<_> = items.collect();
        let Some(Search::Sorted(sorted)) = Search::of(&items) else { panic!("they are constants") };
        let found = (0..100_000).filter(|&i| sorted.has(&items, &Value::Int(i)).unwrap());
        assert_eq!(found.count(), 50_000);
    }

    /// A long array of every number below 60 that 3 divides, as a constant, as a run's parameter, and item by item.
    #[test]
    fn arrays_in_order_answer_as_item_by_item() {
        let ty = Type::Int4;
        let items: Vec<Datum> = (0..20).rev().map(|i| Datum::Int(3 * i)).collect();
        for (op, all) in [(BinaryOp::Eq, false), (BinaryOp::Ne, true), (BinaryOp::Eq, true), (BinaryOp::Lt, false)] {
            let operator = BinaryOperator::resolve(op, Some(ty), Some(ty)).unwrap();
            for nulls in 0..2 {
                let items = [items.clone(), vec![Datum::Null; nulls]].concat();
                let parameters = [Datum::Null, value::array_datum(ty, items)];
                let mut lists = Lists::default();
                lists.begin(&parameters);
                let env = Env::default();
                let frame = Frame { parameters: &parameters, ..Frame::new(&env) };
                let in_run = Frame { lists: Some(&lists), ..frame };
                let wanted = |i: i64| if i < 60 { Datum::Int(i) } else { Datum::Null };
                for i in 0..=60 {
                    let left = || Box::new(Expr::Const(wanted(i)));
                    let of_parameter = Expr::quantified(operator, left(), Box::new(Expr::Param(1)), all);
                    let constant =
                        Expr::quantified(operator, left(), Box::new(Expr::Const(parameters[1].clone())), all);
                    let due = truth(&of_parameter, &frame).unwrap();
                    assert_eq!(truth(&constant, &frame).unwrap(), due, "{op:?} {all} {i}");
                    assert_eq!(truth(&of_parameter, &in_run).unwrap(), due, "{op:?} {all} {i}");
                }
                let asks = matches!((op, all), (BinaryOp::Eq, false) | (BinaryOp::Ne, true));
                assert_eq!(lists.of_array(1, (&operator, all), &parameters).is_some(), asks, "{op:?} {all}");
            }
        }
    }

    #[test]
    fn a_run_s_lists_are_of_its_own_parameters() {
        let ty = Type::Int4;
        let operator = BinaryOperator::resolve(BinaryOp::Eq, Some(ty), Some(ty)).unwrap();
        let array = |of: i64| [value::array_datum(ty, vec![Datum::Int(of); ITEMS_MIN])];
        let (mut parameters, others) = (array(1), array(2));
        let mut lists = Lists::default();
        let has = |lists: &Lists, parameters: &[Datum], wanted: i64| {
            let members = (0..LOOKS).filter_map(|_| lists.of_array(0, (&operator, false), parameters)).last()?;
            members.truth(&operator, false, &Value::Int(wanted)).unwrap()
        };
        assert_eq!(has(&lists, &parameters, 1), None, "no run has begun");
        lists.begin(&parameters);
        assert_eq!(has(&lists, &parameters, 1), Some(true));
        assert_eq!(has(&lists, &others, 2), None);
        // The next run finds its own where the last one had theirs.
        parameters = others;
        lists.begin(&parameters);
        assert_eq!((has(&lists, &parameters, 1), has(&lists, &parameters, 2)), (Some(false), Some(true)));
    }

    #[test]
    fn lists_of_parameters_answer_as_item_by_item() {
        let ty = Type::Int4;
        let operator = BinaryOperator::resolve(BinaryOp::Eq, Some(ty), Some(ty)).unwrap();
        let (env, mut lists) = (Env::default(), Lists::default());
        for nulls in 0..2 {
            let parameters: Vec<Datum> =
                (0..20).map(|i| if i < nulls { Datum::Null } else { Datum::Int(3 * i) }).collect();
            lists.begin(&parameters);
            let frame = Frame { parameters: &parameters, ..Frame::new(&env) };
            let in_run = Frame { lists: Some(&lists), ..frame };
            // Two lists of one run; the constants are looked for beside the parameters.
            for shift in [1, 2] {
                let items = (0..20)
                    .map(|i| if i < 10 { Expr::Param(i) } else { Expr::Const(Datum::Int((3 * i + shift).into())) });
                let items: Vec<_> = items.map(|item| (operator, item)).collect();
                let wanted = Expr::Column { source: 0, column: 0 };
                let Expr::In { list, search: Some(search), .. } = Expr::one_of(Box::new(wanted), items, false) else {
                    panic!("it is long, and all are given");
                };
                for (i, negated) in (0..=61).flat_map(|i| [(i, false), (i, true)]) {
                    let wanted = if i < 61 { Datum::Int(i) } else { Datum::Null };
                    let (expr, list, search) = (Box::new(Expr::Const(wanted)), list.clone(), Some(search.clone()));
                    let asks = Expr::In { expr, list, negated, search };
                    assert_eq!(truth(&asks, &in_run).unwrap(), truth(&asks, &frame).unwrap(), "{i} {negated} {shift}");
                }
            }
            assert_eq!(lists.kept.borrow().iter().filter(|kept| kept.members.is_some()).count(), 2);
        }
    }

    /// As the body of a CASE with an operand is, for each row.
    #[test]
    fn a_rewritten_list_is_told_by_the_same_unless_a_parameter_went() {
        let ty = Type::Int4;
        let operator = BinaryOperator::resolve(BinaryOp::Eq, Some(ty), Some(ty)).unwrap();
        let items = |replaced: Option<u16>| {
            let item = move |i| if Some(i) == replaced { Expr::Const(Datum::Int(5)) } else { Expr::Param(i) };
            (0..ITEMS_MIN as u16).map(move |i| (operator, item(i))).collect::<Vec<_>>()
        };
        let token = |expr: &Expr| match expr {
            Expr::In { search: Some(Search::InRun(token)), .. } => token.clone(),
            other => panic!("{other:?}"),
        };
        let list = Expr::one_of(Box::new(Expr::Given(0)), items(None), false);
        let given = list.clone().rewrite(&mut |e| match e {
            Expr::Given(0) => Some(Expr::Const(Datum::Int(7))),
            _ => None,
        });
        assert!(Arc::ptr_eq(&token(&list), &token(&given)));
        let replaced = list.clone().rewrite(&mut |e| match e {
            Expr::Param(3) => Some(Expr::Const(Datum::Int(5))),
            _ => None,
        });
        assert_eq!(replaced, Expr::one_of(Box::new(Expr::Given(0)), items(Some(3)), false));
        assert!(!Arc::ptr_eq(&token(&list), &token(&replaced)));
    }

    #[test]
    fn an_array_with_nan_is_equal_to_itself() {
        let ty = Type::Float8;
        let operator = BinaryOperator::resolve(BinaryOp::Ne, Some(ty), Some(ty)).unwrap();
        let array = value::array_datum(ty, vec![Datum::Float(f64::NAN); ITEMS_MIN]);
        let asks = || Expr::quantified(operator, Box::new(Expr::Param(0)), Box::new(Expr::Const(array.clone())), true);
        assert_eq!(asks(), asks());
    }
}
