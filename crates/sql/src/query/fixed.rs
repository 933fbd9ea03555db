//! How is arithmetic on decimals done for whole columns? As integers at a scale that is known before.
//!
//! A sum, difference or product of decimals, integers and constants has one display scale, whatever its values are (PostgreSQL's rules for
//! numeric: the larger scale, and the sum of both). So its values are 128-bit integers at that scale, computed a column at a time.
//!
//! The integers may be too small, for what the types allow or for a long sum. Then nothing is rounded: the run fails with [`TOO_WIDE`], and its
//! statement runs again with the evaluator's numbers of any size (`Planner::is_wide`). It only read, so nobody notices.

use super::apply::plans_within;
use super::cells::data_type;
use super::fault::carried;
use super::sums::FixedSum;
use crate::error::SqlError;
use crate::value::Datum;
use crate::value::numeric::{Numeric, POWERS};
use crate::value::operator::BinaryOp;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Int16Type, Int32Type, Int64Type};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
    WindowFunctionDefinition,
};
use freshet_engine::schema::{Type, Value};
use std::borrow::Cow;
use std::sync::Arc;

/// The code of a run that needs wider numbers. No client sees it.
pub const TOO_WIDE: &str = "FR001";

/// Scales above it leave too few digits before the point.
const SCALE_MAX: u8 = 24;
const DIGITS: u8 = 38;

pub fn too_wide() -> DataFusionError {
    carried(SqlError::new(TOO_WIDE, "a number needs more than 38 digits"))
}

/// Whether a run of the plan may fail with [`TOO_WIDE`], and then perhaps when it has given rows.
pub fn may_be_too_wide(plan: &LogicalPlan) -> bool {
    let is_fixed = |expr: &Expr| match expr {
        Expr::ScalarFunction(call) => call.func.inner().downcast_ref::<Fixed>().is_some(),
        Expr::AggregateFunction(call) => call.func.inner().downcast_ref::<FixedSum>().is_some(),
        Expr::WindowFunction(call) => match &call.fun {
            WindowFunctionDefinition::AggregateUDF(function) => function.inner().downcast_ref::<FixedSum>().is_some(),
            WindowFunctionDefinition::WindowUDF(_) => false,
        },
        _ => false,
    };
    let mut found = false;
    let looked = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(|part| Ok(is_fixed(part)))?;
            Ok(TreeNodeRecursion::Continue)
        })
    });
    found || looked.is_err() || plans_within(plan).iter().any(may_be_too_wide)
}

/// What is computed, over the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Term {
    Argument { at: usize, scale: u8 },
    Constant { unscaled: i128, scale: u8 },
    Joined { op: Op, left: Box<Term>, right: Box<Term> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Add,
    Sub,
    Mul,
}

impl Op {
    pub fn of(op: BinaryOp) -> Option<Op> {
        Some(match op {
            BinaryOp::Add => Op::Add,
            BinaryOp::Sub => Op::Sub,
            BinaryOp::Mul => Op::Mul,
            _ => return None,
        })
    }
}

/// The scale of a type whose values are integers at one scale.
pub fn scale_of(ty: Type) -> Option<u8> {
    match ty {
        Type::Int2 | Type::Int4 | Type::Int8 => Some(0),
        Type::Decimal { scale, .. } => Some(scale),
        _ => None,
    }
}

impl Term {
    /// A constant of a type; `None` if it is null, has no scale, or is too long.
    pub fn constant(ty: Type, datum: &Datum) -> Option<Term> {
        let (unscaled, scale) = match (ty, datum.as_value()) {
            (Type::Numeric { .. }, Value::Bytes(stored)) => Numeric::from_stored(stored).small()?,
            (_, Value::Int(v)) => (i128::from(v), scale_of(ty)?),
            (_, Value::Decimal(v)) => (v, scale_of(ty)?),
            _ => return None,
        };
        (scale <= SCALE_MAX).then_some(Term::Constant { unscaled, scale })
    }

    /// `None` if the scale becomes too large.
    pub fn joined(op: Op, left: Term, right: Term) -> Option<Term> {
        let term = Term::Joined { op, left: Box::new(left), right: Box::new(right) };
        (term.scale() <= SCALE_MAX).then_some(term)
    }

    pub fn scale(&self) -> u8 {
        match self {
            Term::Argument { scale, .. } | Term::Constant { scale, .. } => *scale,
            Term::Joined { op: Op::Mul, left, right } => left.scale().saturating_add(right.scale()),
            Term::Joined { left, right, .. } => left.scale().max(right.scale()),
        }
    }

    fn compute<'a>(&self, columns: &'a [ArrayRef]) -> Result<Numbers<'a>> {
        Ok(match self {
            Term::Argument { at, .. } => Numbers::Many(integers(&columns[*at])?),
            Term::Constant { unscaled, .. } => Numbers::One(*unscaled),
            Term::Joined { op, left, right } => {
                let (left_up, right_up) = match op {
                    Op::Mul => (0, 0),
                    _ => (self.scale() - left.scale(), self.scale() - right.scale()),
                };
                let left = left.compute(columns)?.raised(left_up)?;
                let right = right.compute(columns)?.raised(right_up)?;
                match op {
                    Op::Add => left.with(&right, i128::checked_add)?,
                    Op::Sub => left.with(&right, i128::checked_sub)?,
                    Op::Mul => left.with(&right, product)?,
                }
            }
        })
    }
}

/// Most factors are short: one instruction multiplies them, where 128 bits and a check take many.
#[inline]
fn product(a: i128, b: i128) -> Option<i128> {
    let (short_a, short_b) = (a as i64, b as i64);
    if i128::from(short_a) == a && i128::from(short_b) == b {
        return Some(i128::from(short_a) * i128::from(short_b));
    }
    a.checked_mul(b)
}

enum Numbers<'a> {
    One(i128),
    Many(Cow<'a, [i128]>),
}

impl<'a> Numbers<'a> {
    fn raised(self, places: u8) -> Result<Numbers<'a>> {
        match places {
            0 => Ok(self),
            places => self.with(&Numbers::One(POWERS[usize::from(places)]), product),
        }
    }

    fn with(self, other: &Numbers<'_>, op: impl Fn(i128, i128) -> Option<i128>) -> Result<Numbers<'a>> {
        let computed: Option<Vec<i128>> = match (&self, other) {
            (Numbers::One(a), Numbers::One(b)) => return op(*a, *b).map(Numbers::One).ok_or_else(too_wide),
            (Numbers::One(a), Numbers::Many(b)) => b.iter().map(|b| op(*a, *b)).collect(),
            (Numbers::Many(a), Numbers::One(b)) => a.iter().map(|a| op(*a, *b)).collect(),
            (Numbers::Many(a), Numbers::Many(b)) => a.iter().zip(b.iter()).map(|(a, b)| op(*a, *b)).collect(),
        };
        computed.map(|numbers| Numbers::Many(Cow::Owned(numbers))).ok_or_else(too_wide)
    }
}

/// The unscaled values of a column of decimals or integers; where it is null, any.
pub fn integers(array: &ArrayRef) -> Result<Cow<'_, [i128]>> {
    Ok(match array.data_type() {
        DataType::Decimal128(..) => Cow::Borrowed(array.as_primitive::<Decimal128Type>().values().as_ref()),
        DataType::Int16 => array.as_primitive::<Int16Type>().values().iter().map(|&v| v.into()).collect(),
        DataType::Int32 => array.as_primitive::<Int32Type>().values().iter().map(|&v| v.into()).collect(),
        DataType::Int64 => array.as_primitive::<Int64Type>().values().iter().map(|&v| v.into()).collect(),
        other => return Err(DataFusionError::Internal(format!("no numbers at one scale: {other}"))),
    })
}

/// A term as DataFusion's function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Fixed {
    term: Term,
    ty: Type,
    signature: Signature,
}

impl Fixed {
    /// It gives decimals of 38 digits at the term's scale.
    pub fn new(term: Term, arguments: usize) -> Fixed {
        let ty = Type::Decimal { precision: DIGITS, scale: term.scale() };
        Fixed::of_type(term, arguments, ty)
    }

    /// It gives decimals of this type, which has the term's scale.
    pub fn of_type(term: Term, arguments: usize, ty: Type) -> Fixed {
        Fixed { term, ty, signature: Signature::any(arguments, Volatility::Immutable) }
    }

    pub fn ty(&self) -> Type {
        self.ty
    }
}

impl ScalarUDFImpl for Fixed {
    fn name(&self) -> &str {
        "decimal"
    }

    fn schema_name(&self, args: &[datafusion::logical_expr::Expr]) -> Result<String> {
        Ok(super::compute::column_name(self.name(), &(&self.term, self.ty), args))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(data_type(self.ty()))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns = ColumnarValue::values_to_arrays(&args.args)?;
        let nulls = columns.iter().fold(None, |nulls, column| NullBuffer::union(nulls.as_ref(), column.nulls()));
        let values = match self.term.compute(&columns)? {
            Numbers::Many(values) => values.into_owned(),
            Numbers::One(value) => vec![value; columns.first().map_or(args.number_rows, |c| c.len())],
        };
        let array = Decimal128Array::new(values.into(), nulls).with_data_type(data_type(self.ty()));
        if args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_))) {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?));
        }
        Ok(ColumnarValue::Array(Arc::new(array)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::cells::{Cells, Writer};
    use datafusion::arrow::datatypes::Field;
    use datafusion::config::ConfigOptions;

    const PRICE: Type = Type::Decimal { precision: 15, scale: 2 };

    fn run(term: &Term, columns: &[(Type, &[Value<'_>])]) -> Result<ArrayRef> {
        let arrays = columns.iter().map(|(ty, values)| {
            let mut writer = Writer::new(*ty, values.len());
            values.iter().for_each(|v| writer.push(v).expect("in range"));
            ColumnarValue::Array(writer.finish())
        });
        let fixed = Fixed::new(term.clone(), columns.len());
        let rows = columns[0].1.len();
        let args = ScalarFunctionArgs {
            args: arrays.collect(),
            arg_fields: Vec::new(),
            number_rows: rows,
            return_field: Arc::new(Field::new("r", data_type(fixed.ty()), true)),
            config_options: Arc::new(ConfigOptions::new()),
        };
        fixed.invoke_with_args(args)?.into_array(rows)
    }

    fn discounted() -> Term {
        let one = Term::constant(Type::Int4, &Datum::Int(1)).expect("a number");
        let rest = Term::joined(Op::Sub, one, Term::Argument { at: 1, scale: 2 }).expect("short");
        Term::joined(Op::Mul, Term::Argument { at: 0, scale: 2 }, rest).expect("short")
    }

    #[test]
    fn products_have_the_scales_of_numeric() {
        let term = discounted();
        assert_eq!(term.scale(), 4);
        let prices = [Value::Decimal(10_000), Value::Null, Value::Decimal(-333)];
        let discounts = [Value::Decimal(5), Value::Decimal(5), Value::Decimal(100)];
        let result = run(&term, &[(PRICE, &prices), (PRICE, &discounts)]).expect("fits");
        let cells = Cells::of(&result).expect("decimals");
        assert_eq!(cells.get(0), Value::Decimal(950_000));
        assert_eq!(cells.get(1), Value::Null);
        assert_eq!(cells.get(2), Value::Decimal(0));
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let wide = Type::Decimal { precision: 38, scale: 0 };
        let column = Term::Argument { at: 0, scale: 0 };
        let square = Term::joined(Op::Mul, column.clone(), column).expect("short");
        let most = [Value::Decimal(10_i128.pow(37))];
        let error = run(&square, &[(wide, &most)]).expect_err("75 digits");
        assert_eq!(crate::query::fault::sql_error(error).sqlstate, TOO_WIDE);
        assert!(Term::constant(Type::Numeric { typmod: None }, &Datum::Null).is_none());
    }
}
