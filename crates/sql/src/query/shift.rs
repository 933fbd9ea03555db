//! `lag` and `lead` by as many rows as each row says: DataFusion's own take a constant.

use datafusion::arrow::array::{Array, ArrayRef, Int32Array};
use datafusion::arrow::compute::interleave;
use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl};
use std::sync::Arc;

/// Of a value, the rows that it is away (integers), and what stands for it where there is none.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Shift {
    is_lead: bool,
    signature: Signature,
}

pub fn shift_udwf(is_lead: bool) -> Arc<WindowUDF> {
    Arc::new(WindowUDF::from(Shift { is_lead, signature: Signature::any(3, Volatility::Immutable) }))
}

impl WindowUDFImpl for Shift {
    fn name(&self) -> &str {
        if self.is_lead { "lead_by" } else { "lag_by" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn partition_evaluator(&self, _: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Shifted { is_lead: self.is_lead }))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let value = args.input_fields().first().ok_or_else(|| DataFusionError::Internal("no value".to_owned()))?;
        Ok(Arc::new(value.as_ref().clone().with_name(args.name()).with_nullable(true)))
    }
}

#[derive(Debug)]
struct Shifted {
    is_lead: bool,
}

impl PartitionEvaluator for Shifted {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let [value, by, otherwise] = values else {
            return Err(DataFusionError::Internal("a shift has three arguments".to_owned()));
        };
        let by = by.as_any().downcast_ref::<Int32Array>();
        let by = by.ok_or_else(|| DataFusionError::Internal("a shift is by an integer".to_owned()))?;
        let none = datafusion::arrow::array::new_null_array(value.data_type(), 1);
        let place = |row: usize| {
            if by.is_null(row) {
                return (2, 0);
            }
            let by = i64::from(by.value(row));
            let from = if self.is_lead { row as i64 + by } else { row as i64 - by };
            usize::try_from(from).ok().filter(|&from| from < rows).map_or((1, row), |from| (0, from))
        };
        let places: Vec<(usize, usize)> = (0..rows).map(place).collect();
        Ok(interleave(&[value.as_ref(), otherwise.as_ref(), none.as_ref()], &places)?)
    }
}
