//! How does DataFusion compute what PostgreSQL defines? It calls the evaluator of the compiled road, row by row.
//!
//! Both roads have one meaning because they have one evaluator: DataFusion itself only compares values of one type, joins, sorts and
//! groups. What it compares by must be equal exactly where PostgreSQL's values are equal, so floats and numerics go through [`Key`].

use super::cells::{Cells, Writer, data_type};
use super::fault::carried;
use crate::error::SqlError;
use crate::expr::{Env, Expr, Frame, SessionSequences, evaluate};
use crate::value::cast::has_forms;
use crate::value::numeric::stored_of_key;
use crate::value::{Clock, Datum};
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr as DfExpr, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use freshet_engine::engine::Engine;
use freshet_engine::schema::{Type, Value};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

fn takes_any(arguments: usize) -> Signature {
    match arguments {
        0 => Signature::nullary(Volatility::Immutable),
        n => Signature::any(n, Volatility::Immutable),
    }
}

/// A bound expression over its arguments, which stand as the cells of source 0.
#[derive(Debug)]
pub struct Computed {
    expr: Expr,
    result: Type,
    /// As EXPLAIN shows it, the arguments as `#1`, `#2`.
    name: String,
    arguments: usize,
    clock: Clock,
    /// Of the session, where sequences are asked.
    sequences: Option<(Engine, Arc<SessionSequences>)>,
    signature: Signature,
}

impl Computed {
    pub fn new(expr: Expr, arguments: usize, result: Type, clock: Clock) -> Computed {
        let name = crate::expr::show(&expr, &|_, column| format!("#{}", column + 1));
        let mut signature = takes_any(arguments);
        if expr.is_volatile() {
            signature.volatility = Volatility::Volatile;
        }
        Computed { expr, result, name, arguments, clock, sequences: None, signature }
    }

    /// With what the session has of sequences, if they are asked.
    pub fn with_sequences(mut self, env: &Env) -> Computed {
        if self.expr.asks_sequence() {
            self.sequences = env.engine.clone().zip(env.sequences.clone());
        }
        self
    }

    pub fn expr(&self) -> &Expr {
        &self.expr
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub fn result(&self) -> Type {
        self.result
    }

    /// Whether it may be computed within another expression, as often as that asks for it.
    pub fn is_plain(&self) -> bool {
        let mut names_values = false;
        self.expr.walk(&mut |e| {
            names_values |= matches!(e, Expr::Let { .. });
            !names_values
        });
        !names_values && self.sequences.is_none() && !self.expr.is_volatile()
    }
}

impl PartialEq for Computed {
    fn eq(&self, other: &Computed) -> bool {
        self.result == other.result && self.arguments == other.arguments && self.expr == other.expr
    }
}

impl Eq for Computed {}

impl Hash for Computed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.result.hash(state);
    }
}

/// The name of a call's column. DataFusion takes columns of one name for one, so what is computed is all in it, where the function's name says less.
pub fn column_name(name: &str, computes: &dyn std::fmt::Debug, args: &[DfExpr]) -> String {
    let args: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
    format!("{name}[{computes:?}]({})", args.join(","))
}

impl ScalarUDFImpl for Computed {
    fn name(&self) -> &str {
        &self.name
    }

    fn schema_name(&self, args: &[DfExpr]) -> Result<String> {
        Ok(column_name(&self.name, &(&self.expr, self.result), args))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(data_type(self.result))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        // A call on literals gives arrays of one row.
        let rows = arrays.first().map_or(args.number_rows, |a| a.len());
        let columns = readable(&arrays)?;
        let (engine, sequences) = self.sequences.clone().unzip();
        let env = Env { clock: self.clock.clone(), engine, sequences, ..Env::default() };
        let mut cells = [vec![Datum::Null; columns.len()]];
        let mut out = Writer::new(self.result, rows);
        for row in 0..rows {
            for (cell, column) in cells[0].iter_mut().zip(&columns) {
                *cell = column.get(row).into();
            }
            let frame = Frame { cells: &cells, ..Frame::new(&env) };
            let scalar = evaluate(&self.expr, &frame).map_err(carried)?;
            out.push(&scalar.value()).map_err(carried)?;
        }
        one_or_many(out.finish(), &args.args)
    }
}

/// An array, or the scalar that a call on scalars gives.
fn one_or_many(array: ArrayRef, args: &[ColumnarValue]) -> Result<ColumnarValue> {
    let scalar = args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
    if scalar && (!args.is_empty() || array.len() == 1) {
        return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?));
    }
    Ok(ColumnarValue::Array(array))
}

pub fn readable(arrays: &[ArrayRef]) -> Result<Vec<Cells<'_>>> {
    arrays.iter().map(readable_one).collect()
}

pub fn readable_one(array: &ArrayRef) -> Result<Cells<'_>> {
    Cells::of(array.as_ref()).ok_or_else(|| {
        let message = format!("a value of Arrow's type {} has no SQL type", array.data_type());
        carried(SqlError::unsupported(message))
    })
}

/// What a value is compared, grouped and sorted by, where the value itself says more than its order: a float's sign of zero and
/// NaN's bits, a numeric's display scale.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Key {
    ty: Type,
    signature: Signature,
}

impl Key {
    /// `None`: the value is its own key.
    pub fn of(ty: Type) -> Option<Key> {
        let ty = ty.unrounded();
        has_forms(ty).then(|| Key { ty, signature: takes_any(1) })
    }

    /// The key that an expression of a physical plan is, and of what.
    pub fn within(expr: &Arc<dyn PhysicalExpr>) -> Option<(&Key, &Arc<dyn PhysicalExpr>)> {
        let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
        Some((call.fun().inner().downcast_ref::<Key>()?, call.args().first()?))
    }

    pub fn ty(&self) -> Type {
        self.ty
    }

    /// A value that has this key.
    pub fn value_of(&self, key: Datum) -> Datum {
        let Datum::Bytes(key) = key else { return key };
        Datum::Bytes(match self.ty {
            Type::Numeric { .. } => stored_of_key(&key),
            // Neither months nor days of its own.
            Type::Interval => [&*key, &[0; 8]].concat().into(),
            // Without what orders nothing: it can be compared, and not be read.
            _ => [&*key, &[0; 4]].concat().into(),
        })
    }
}

impl ScalarUDFImpl for Key {
    fn name(&self) -> &str {
        "key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(data_type(self.ty))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let cells = readable_one(&arrays[0])?;
        let rows = arrays[0].len();
        let mut out = Writer::new(self.ty, rows);
        for row in 0..rows {
            let key = match cells.get(row) {
                Value::Float(v) if v.is_nan() => Value::Float(f64::NAN),
                Value::Float(v) => Value::Float(v + 0.0),
                Value::Bytes(stored) => Value::Bytes(self.ty.key_bytes(stored)),
                other => other,
            };
            out.push(&key).map_err(carried)?;
        }
        one_or_many(out.finish(), &args.args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::numeric::Numeric;
    use datafusion::arrow::datatypes::Field;
    use datafusion::config::ConfigOptions;
    use std::sync::Arc;

    fn call(udf: &dyn ScalarUDFImpl, ty: Type, values: &[Value<'_>]) -> ArrayRef {
        let mut writer = Writer::new(ty, values.len());
        values.iter().for_each(|v| writer.push(v).expect("in range"));
        let args = ScalarFunctionArgs {
            args: vec![ColumnarValue::Array(writer.finish())],
            arg_fields: vec![Arc::new(Field::new("a", data_type(ty), true))],
            number_rows: values.len(),
            return_field: Arc::new(Field::new("r", data_type(ty), true)),
            config_options: Arc::new(ConfigOptions::new()),
        };
        let result = udf.invoke_with_args(args).expect("keys do not fail");
        result.into_array(values.len()).expect("an array")
    }

    fn value_bytes(value: Datum) -> Box<[u8]> {
        match value {
            Datum::Bytes(bytes) => bytes,
            other => panic!("not bytes: {other:?}"),
        }
    }

    #[test]
    fn a_key_is_of_a_value_that_has_it() {
        let ty = Type::Numeric { typmod: None };
        let key = Key::of(ty).expect("has a key");
        for text in
            ["0", "0.00", "-0.01", "100", "12.345", "-99999.5", "1e-30", "-1e40", "NaN", "Infinity", "-Infinity"]
        {
            let stored = Numeric::parse(text.as_bytes()).expect("a number").to_stored();
            let again = value_bytes(key.value_of(Datum::Bytes(ty.key_bytes(&stored).into())));
            assert_eq!(ty.key_bytes(&again), ty.key_bytes(&stored), "{text}");
            let same = Numeric::from_stored(&again).cmp(&Numeric::from_stored(&stored));
            assert!(same.is_eq(), "{text}");
        }
    }

    #[test]
    fn keys_are_equal_where_values_are() {
        let ty = Type::Numeric { typmod: None };
        let [a, b] = ["1.5", "1.50"].map(|t| Numeric::parse(t.as_bytes()).expect("a number").to_stored());
        let keys = call(&Key::of(ty).expect("has a key"), ty, &[Value::Bytes(&a), Value::Bytes(&b)]);
        let cells = Cells::of(&keys).expect("binary");
        assert_eq!(cells.get(0), cells.get(1));
        let keys = call(
            &Key::of(Type::Float8).expect("has a key"),
            Type::Float8,
            &[Value::Float(-0.0), Value::Float(f64::from_bits(0xfff8_0000_0000_0001))],
        );
        let cells = Cells::of(&keys).expect("floats");
        assert!(matches!(cells.get(0), Value::Float(v) if v.to_bits() == 0));
        assert!(matches!(cells.get(1), Value::Float(v) if v.to_bits() == f64::NAN.to_bits()));
        assert!(Key::of(Type::Text).is_none());
    }
}
