//! `ntile` by a number that is not known before: DataFusion's own takes a constant. As in PostgreSQL the first row's number counts for its partition.

use super::fault::carried;
use crate::error::SqlError;
use datafusion::arrow::array::{Array, ArrayRef, Int32Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl};
use std::sync::Arc;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Tile {
    signature: Signature,
}

pub fn tile_udwf() -> Arc<WindowUDF> {
    Arc::new(WindowUDF::from(Tile { signature: Signature::any(1, Volatility::Immutable) }))
}

impl WindowUDFImpl for Tile {
    fn name(&self) -> &str {
        "ntile_by"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn partition_evaluator(&self, _: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Tiled))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), DataType::Int32, true)))
    }
}

#[derive(Debug)]
struct Tiled;

impl PartitionEvaluator for Tiled {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let tiles = values.first().and_then(|tiles| tiles.as_any().downcast_ref::<Int32Array>());
        let tiles = tiles.ok_or_else(|| DataFusionError::Internal("ntile is by an integer".to_owned()))?;
        if rows == 0 || tiles.is_null(0) {
            return Ok(datafusion::arrow::array::new_null_array(&DataType::Int32, rows));
        }
        let Some(tiles) = usize::try_from(tiles.value(0)).ok().filter(|tiles| *tiles > 0) else {
            return Err(carried(SqlError::new("22014", "argument of ntile must be greater than zero")));
        };
        let numbers: Int32Array = (0..rows).map(|row| tile(row, rows, tiles) as i32).collect::<Vec<i32>>().into();
        Ok(Arc::new(numbers))
    }
}

/// The tile of a row, from one: the first ones have a row more where they cannot all have as many.
fn tile(row: usize, rows: usize, tiles: usize) -> usize {
    let (least, longer) = (rows / tiles, rows % tiles);
    let of_longer = longer * (least + 1);
    match row < of_longer {
        true => row / (least + 1) + 1,
        false => longer + (row - of_longer) / least.max(1) + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::tile;

    #[test]
    fn the_first_tiles_are_the_longer_ones() {
        let all = |rows, tiles| (0..rows).map(|row| tile(row, rows, tiles)).collect::<Vec<_>>();
        assert_eq!(all(7, 3), [1, 1, 1, 2, 2, 3, 3]);
        assert_eq!(all(2, 5), [1, 2]);
        assert_eq!(all(4, 1), [1, 1, 1, 1]);
    }
}
