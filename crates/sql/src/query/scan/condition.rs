//! Which filters does a scan decide by itself? Those that it can say of a row by the engine's comparisons, or by the compiled evaluator.

use super::super::cells::{data_type, datum};
use super::super::compute::{Computed, Key};
use super::super::convert::{narrowed, native};
use super::super::template::{filled, has_hole};
use crate::error::SqlError;
use crate::expr::{Env, Expr, Frame, evaluate, test};
use crate::value::cast::{is_integer, is_numeric};
use crate::value::operator::BinaryOp;
use crate::value::{Datum, array_items};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr as DfExpr, Operator};
use freshet_engine::catalog::Table;
use freshet_engine::schema::{Row, Type};
use std::sync::Arc;

/// A filter that a scan decides by itself. Only TRUE passes, so that neither NOT nor unknown needs a place.
#[derive(Debug, Clone)]
pub enum Condition {
    Compare {
        column: usize,
        op: BinaryOp,
        with: Datum,
    },
    /// Both columns are of one type.
    Columns {
        left: usize,
        op: BinaryOp,
        right: usize,
    },
    /// In the order of the column's type, each value once, no null.
    In {
        column: usize,
        list: Vec<Datum>,
    },
    Null {
        column: usize,
        negated: bool,
    },
    /// What the optimizer made of a condition that is always, or never, true.
    Always(bool),
    All(Vec<Condition>),
    Any(Vec<Condition>),
    /// An expression of the compiled road, over the row as source 0.
    Computed {
        expr: Expr,
        env: Arc<Env>,
    },
}

impl Condition {
    /// A hole in it stands for a value that is not known yet.
    pub fn of(filter: &DfExpr, table: &Table) -> Option<Condition> {
        if has_hole(filter) {
            return Condition::of(&filled(filter.clone(), &[]).ok()?, table);
        }
        match filter {
            DfExpr::BinaryExpr(binary) => match binary.op {
                Operator::And => Self::both(&binary.left, &binary.right, table).map(Condition::All),
                Operator::Or => Self::both(&binary.left, &binary.right, table).map(Condition::Any),
                op => {
                    let (op, plain) = (comparison(op)?, |side| Side::plain(side, table));
                    if let (Some(left), Some(right)) = (plain(&binary.left), plain(&binary.right)) {
                        let (left, right, is_one_type) = (left.column, right.column, left.own == right.own);
                        return is_one_type.then_some(Condition::Columns { left, op, right });
                    }
                    let (column, op, with) = compared(&binary.left, op, &binary.right, table)
                        .or_else(|| compared(&binary.right, op.flipped(), &binary.left, table))?;
                    Some(Condition::compare(column, op, with, table))
                }
            },
            DfExpr::Literal(ScalarValue::Boolean(truth), _) => Some(Condition::Always(*truth == Some(true))),
            DfExpr::IsNull(inner) => {
                Some(Condition::Null { column: Side::plain(inner, table)?.column, negated: false })
            }
            DfExpr::IsNotNull(inner) => {
                Some(Condition::Null { column: Side::plain(inner, table)?.column, negated: true })
            }
            DfExpr::InList(list) if !list.negated => {
                let side = Side::plain(&list.expr, table)?;
                let items = list.list.iter().map(|item| side.value(item));
                Some(Condition::among(side.column, items.collect::<Option<_>>()?, table))
            }
            DfExpr::ScalarFunction(call) => {
                let computed = call.func.inner().downcast_ref::<Computed>()?;
                let arg = |a: &DfExpr| match a {
                    DfExpr::Literal(scalar, _) => Some(Expr::Const(datum(scalar)?)),
                    DfExpr::Column(column) => {
                        Some(Expr::Column { source: 0, column: table.column(&column.name)? as u16 })
                    }
                    _ => None,
                };
                let args = call.args.iter().map(arg).collect::<Option<Vec<Expr>>>()?;
                let expr = computed.expr().clone().rewrite(&mut |e| match e {
                    Expr::Cell { column, .. } => args.get(usize::from(*column)).cloned(),
                    _ => None,
                });
                if let Some((column, list)) = listed(&expr, table) {
                    return Some(Condition::among(column, list, table));
                }
                if let Some((column, op, with)) = evaluated(&expr, table) {
                    return Some(Condition::compare(column, op, with, table));
                }
                let env = Arc::new(Env { clock: computed.clock().clone(), ..Env::default() });
                Some(Condition::Computed { expr, env })
            }
            _ => None,
        }
    }

    /// A number beyond those of the column's type is compared with none of them.
    fn compare(column: usize, op: BinaryOp, with: Datum, table: &Table) -> Condition {
        let (least, greatest) = match (&with, table.def.columns[column].ty) {
            (Datum::Int(_), Type::Int2) => (i64::from(i16::MIN), i64::from(i16::MAX)),
            (Datum::Int(_), Type::Int4) => (i64::from(i32::MIN), i64::from(i32::MAX)),
            _ => (i64::MIN, i64::MAX),
        };
        let holds_for_all = match with {
            Datum::Int(with) if with < least => matches!(op, BinaryOp::Gt | BinaryOp::Ge | BinaryOp::Ne),
            Datum::Int(with) if with > greatest => matches!(op, BinaryOp::Lt | BinaryOp::Le | BinaryOp::Ne),
            _ => return Condition::Compare { column, op, with },
        };
        if holds_for_all { Condition::Null { column, negated: true } } else { Condition::Always(false) }
    }

    /// Whether it holds for no row.
    pub fn is_never(&self) -> bool {
        match self {
            Condition::Compare { with, .. } => *with == Datum::Null,
            Condition::In { list, .. } => list.is_empty(),
            Condition::Always(truth) => !truth,
            Condition::All(list) => list.iter().any(Condition::is_never),
            Condition::Any(list) => list.iter().all(Condition::is_never),
            Condition::Columns { .. } | Condition::Null { .. } | Condition::Computed { .. } => false,
        }
    }

    /// That the column's value is one of these.
    fn among(column: usize, mut list: Vec<Datum>, table: &Table) -> Condition {
        let ty = table.layout.column_type(column);
        list.retain(|item| *item != Datum::Null);
        list.sort_by(|a, b| ty.compare(&a.as_value(), &b.as_value()));
        list.dedup_by(|a, b| ty.compare(&a.as_value(), &b.as_value()).is_eq());
        Condition::In { column, list }
    }

    fn both(left: &DfExpr, right: &DfExpr, table: &Table) -> Option<Vec<Condition>> {
        Some(vec![Condition::of(left, table)?, Condition::of(right, table)?])
    }

    /// Columns that are looked at.
    pub fn columns(&self, out: &mut Vec<usize>) {
        match self {
            Condition::Compare { column, .. } | Condition::In { column, .. } | Condition::Null { column, .. } => {
                out.push(*column);
            }
            Condition::Columns { left, right, .. } => out.extend([*left, *right]),
            Condition::Always(_) => {}
            Condition::All(list) | Condition::Any(list) => list.iter().for_each(|c| c.columns(out)),
            Condition::Computed { expr, .. } => expr.walk(&mut |e| {
                if let Expr::Column { column, .. } = e {
                    out.push(usize::from(*column));
                }
                true
            }),
        }
    }

    pub fn holds(&self, tables: &[Option<Arc<Table>>; 1], row: &Row) -> Result<bool, SqlError> {
        let table = tables[0].as_ref().expect("invariant: the only source is a table");
        let get = |column: usize| row.get(&table.layout, column);
        Ok(match self {
            Condition::Compare { column, op, with } => {
                let (value, with) = (get(*column), with.as_value());
                !value.is_null() && !with.is_null() && {
                    op.holds(table.layout.column_type(*column).compare(&value, &with))
                }
            }
            Condition::Columns { left, op, right } => {
                let (a, b) = (get(*left), get(*right));
                !a.is_null() && !b.is_null() && op.holds(table.layout.column_type(*left).compare(&a, &b))
            }
            Condition::In { column, list } => {
                let (value, ty) = (get(*column), table.layout.column_type(*column));
                !value.is_null() && list.binary_search_by(|item| ty.compare(&item.as_value(), &value)).is_ok()
            }
            Condition::Null { column, negated } => row.is_null(&table.layout, *column) != *negated,
            Condition::Always(truth) => *truth,
            Condition::All(list) => {
                for condition in list {
                    if !condition.holds(tables, row)? {
                        return Ok(false);
                    }
                }
                true
            }
            Condition::Any(list) => {
                for condition in list {
                    if condition.holds(tables, row)? {
                        return Ok(true);
                    }
                }
                false
            }
            Condition::Computed { expr, env } => {
                test(expr, &Frame { tables, rows: std::slice::from_ref(row), ..Frame::new(env) })?
            }
        })
    }
}

/// The column and the values of `column = ANY (array)`, where no element has to be converted.
fn listed(expr: &Expr, table: &Table) -> Option<(usize, Vec<Datum>)> {
    let Expr::Quantified { operator, left, array, all: false, .. } = expr else { return None };
    let (Expr::Column { column, .. }, Expr::Const(array)) = (left.as_ref(), array.as_ref()) else { return None };
    let column = usize::from(*column);
    let ty = table.def.columns.get(column)?.ty;
    if operator.op != BinaryOp::Eq || (operator.left, operator.right) != (ty, ty) {
        return None;
    }
    let items = match array {
        Datum::Bytes(stored) => array_items(ty, stored),
        _ => Vec::new(),
    };
    Some((column, items))
}

fn comparison(op: Operator) -> Option<BinaryOp> {
    Some(match op {
        Operator::Eq => BinaryOp::Eq,
        Operator::NotEq => BinaryOp::Ne,
        Operator::Lt => BinaryOp::Lt,
        Operator::LtEq => BinaryOp::Le,
        Operator::Gt => BinaryOp::Gt,
        Operator::GtEq => BinaryOp::Ge,
        _ => return None,
    })
}

/// A comparison that the evaluator would make, as one with a value of the column's own type.
fn evaluated(expr: &Expr, table: &Table) -> Option<(usize, BinaryOp, Datum)> {
    let Expr::Compare { operator, left, right } = expr else { return None };
    let (column, ty, op, of, with) = match (left.as_ref(), right.as_ref()) {
        (Expr::Column { column, .. }, Expr::Const(with)) => (*column, operator.left, operator.op, operator.right, with),
        (Expr::Const(with), Expr::Column { column, .. }) => {
            (*column, operator.right, operator.op.flipped(), operator.left, with)
        }
        _ => return None,
    };
    let own = table.def.columns.get(usize::from(column))?.ty;
    if !is_alike(own, ty) {
        return None;
    }
    let (op, with) = own_value(own, op, of, with)?;
    Some((usize::from(column), op, with))
}

/// `side op literal`, where the side is a column or what it is compared as, as a comparison with a value of the column's own type.
fn compared(side: &DfExpr, op: BinaryOp, literal: &DfExpr, table: &Table) -> Option<(usize, BinaryOp, Datum)> {
    let side = Side::of(side, table)?;
    let (op, with) = own_value(side.own, op, side.ty, &side.value(literal)?)?;
    Some((side.column, op, with))
}

/// `column op value` with a value of another type as one of the column's.
fn own_value(own: Type, op: BinaryOp, of: Type, value: &Datum) -> Option<(BinaryOp, Datum)> {
    if *value == Datum::Null || is_alike(own, of) {
        return Some((op, value.clone()));
    }
    // As which the evaluator compares them.
    let wider = match own {
        Type::Float8 => Some(Type::Float8),
        Type::Numeric { .. } => Some(Type::Numeric { typmod: None }),
        _ => None,
    };
    if let Some(to) = wider.filter(|_| is_integer(of) || is_numeric(of)) {
        let expr = Box::new(Expr::Const(value.clone()));
        let cast = Expr::Cast { expr, from: of, to, explicit: false };
        return Some((op, evaluate(&cast, &Frame::new(&Env::default())).ok()?.into_datum()));
    }
    let (op, value) = narrowed(own, native(op)?, of, value)?;
    Some((comparison(op)?, value))
}

/// Whether values of both types have one form and one order.
fn is_alike(one: Type, other: Type) -> bool {
    let are = |is_kind: fn(Type) -> bool| is_kind(one) && is_kind(other);
    one.unrounded() == other.unrounded() || are(is_integer) || are(|ty| matches!(ty, Type::Numeric { .. }))
}

/// Whether a cast never fails and leaves what is different different, in its order.
fn keeps_all(from: Type, to: Type) -> bool {
    (is_integer(from) || matches!(from, Type::Decimal { .. })) && to == Type::Numeric { typmod: None }
}

/// A column, and how it is compared.
struct Side<'e> {
    column: usize,
    own: Type,
    /// As values of which type. An optimizer takes a cast away where it knows the value on the other side, and not where that is a hole.
    ty: Type,
    /// By the key; keys are for DataFusion, the engine compares the values themselves.
    key: Option<&'e Key>,
}

impl<'e> Side<'e> {
    fn of(expr: &'e DfExpr, table: &Table) -> Option<Side<'e>> {
        let (key, expr) = match key_and_argument(expr) {
            Some((key, argument)) => (Some(key), argument),
            None => (None, expr),
        };
        let column_of = |expr: &DfExpr| match expr {
            DfExpr::Column(column) => table.column(&column.name).map(|column| (column, table.def.columns[column].ty)),
            _ => None,
        };
        let (column, own, ty) = match expr {
            DfExpr::Cast(cast) => {
                let (column, own) = column_of(&cast.expr)?;
                let wider = match (own, cast.field.data_type()) {
                    (Type::Int2, DataType::Int32) => Type::Int4,
                    (Type::Int2 | Type::Int4, DataType::Int64) => Type::Int8,
                    _ => return None,
                };
                (column, own, wider)
            }
            DfExpr::ScalarFunction(call) => {
                let computed = call.func.inner().downcast_ref::<Computed>()?;
                let Expr::Cast { expr, from, to, .. } = computed.expr() else { return None };
                let [argument] = call.args.as_slice() else { return None };
                let (column, own) = column_of(argument)?;
                let is_whole = matches!(expr.as_ref(), Expr::Cell { .. }) && own == *from && keeps_all(own, *to);
                is_whole.then_some((column, own, *to))?
            }
            plain => {
                let (column, own) = column_of(plain)?;
                (column, own, own)
            }
        };
        let is_own_key = key.is_none_or(|key| is_alike(key.ty(), ty));
        is_own_key.then_some(Side { column, own, ty, key })
    }

    /// The literal as a value of the type that the column is compared as.
    fn value(&self, literal: &DfExpr) -> Option<Datum> {
        let (is_key, literal) = match key_and_argument(literal) {
            Some((_, argument)) => (false, argument),
            None => (self.key.is_some(), literal),
        };
        let DfExpr::Literal(scalar, _) = literal else { return None };
        let value = (scalar.data_type() == data_type(self.ty)).then(|| datum(scalar)).flatten()?;
        Some(match self.key.filter(|_| is_key) {
            Some(key) => key.value_of(value),
            None => value,
        })
    }

    /// A column that is compared as it is.
    fn plain(expr: &'e DfExpr, table: &Table) -> Option<Side<'e>> {
        Side::of(expr, table).filter(|side| side.ty == side.own)
    }
}

fn key_and_argument(expr: &DfExpr) -> Option<(&Key, &DfExpr)> {
    let DfExpr::ScalarFunction(call) = expr else { return None };
    Some((call.func.inner().downcast_ref::<Key>()?, call.args.first()?))
}

/// The conditions with those that hold together each for itself.
pub fn parts_of(conditions: impl Iterator<Item = Condition>) -> Vec<Condition> {
    let mut parts = Vec::new();
    for condition in conditions {
        match condition {
            Condition::All(list) => parts.extend(list),
            one => parts.push(one),
        }
    }
    parts
}
