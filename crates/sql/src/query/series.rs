//! `generate_series` in FROM: whole numbers from, to, by.

use super::cells::{Writer, data_type};
use super::fault::carried;
use super::plan::df;
use crate::bind::Bind;
use crate::error::SqlError;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use freshet_engine::schema::{Type, Value};
use std::sync::Arc;

pub const COLUMN: &str = "value";
const BATCH_ROWS: usize = 8192;

/// The numbers; `next` is `None` once they are all given, or where an argument is null.
#[derive(Clone, Debug)]
pub struct Series {
    ty: Type,
    next: Option<i64>,
    last: i64,
    step: i64,
    schema: SchemaRef,
}

impl Series {
    pub fn provider(ty: Type, [from, to, by]: [Option<i64>; 3]) -> Bind<Arc<dyn TableProvider>> {
        if by == Some(0) {
            return Err(SqlError::new("22023", "step size cannot equal zero").into());
        }
        let schema = Arc::new(Schema::new(vec![Field::new(COLUMN, data_type(ty), false)]));
        let (next, last, step) = match (from, to, by) {
            (Some(from), Some(to), Some(by)) => (Some(from), to, by),
            _ => (None, 0, 1),
        };
        let series = Series { ty, next, last, step, schema: schema.clone() };
        Ok(Arc::new(df(StreamingTable::try_new(schema, vec![Arc::new(series)]))?))
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        let mut out = Writer::new(self.ty, BATCH_ROWS);
        let mut rows = 0;
        while rows < BATCH_ROWS
            && let Some(value) = self.next
            && if self.step > 0 { value <= self.last } else { value >= self.last }
        {
            out.push(&Value::Int(value)).map_err(carried)?;
            self.next = value.checked_add(self.step);
            rows += 1;
        }
        if rows == 0 {
            return Ok(None);
        }
        Ok(Some(RecordBatch::try_new(self.schema.clone(), vec![out.finish()])?))
    }
}

impl PartitionStream for Series {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = futures::stream::try_unfold(self.clone(), |mut series| async move {
            Ok(series.batch()?.map(|batch| (batch, series)))
        });
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches))
    }
}
