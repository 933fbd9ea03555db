//! What does a client hear of DataFusion's errors? Our own errors pass through it untouched; its own get their SQLSTATE here.

use crate::error::SqlError;
use crate::value::second_row;
use datafusion::arrow::error::ArrowError;
use datafusion::common::DataFusionError;

/// Our error as DataFusion carries it.
pub fn carried(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The error that a client sees.
pub fn sql_error(error: DataFusionError) -> SqlError {
    match error.find_root() {
        DataFusionError::External(inner) => match inner.downcast_ref::<SqlError>() {
            Some(own) => own.clone(),
            None => internal(&inner.to_string()),
        },
        DataFusionError::ArrowError(inner, _) => arrow_error(inner),
        DataFusionError::ResourcesExhausted(what) => SqlError::new("53200", "out of memory")
            .with_detail(first_line(what))
            .with_hint("The setting freshet.query_memory_mb limits what a query may hold; nothing is written to disk."),
        DataFusionError::NotImplemented(what) => not_supported(what),
        DataFusionError::Execution(what) if what.contains("more than one row") => second_row(),
        DataFusionError::Plan(what) => not_supported(what),
        other => {
            let text = other.to_string();
            if text.contains("subquery") || text.contains("Subquery") || text.contains("OuterReference") {
                return not_supported("this correlated subquery").with_detail(first_line(&text));
            }
            internal(&text)
        }
    }
}

fn arrow_error(error: &ArrowError) -> SqlError {
    match error {
        ArrowError::ExternalError(inner) => match inner.downcast_ref::<SqlError>() {
            Some(own) => own.clone(),
            None => match inner.downcast_ref::<DataFusionError>() {
                Some(inner) => match inner.find_root() {
                    DataFusionError::External(own) => match own.downcast_ref::<SqlError>() {
                        Some(own) => own.clone(),
                        None => internal(&own.to_string()),
                    },
                    other => internal(&other.to_string()),
                },
                None => internal(&inner.to_string()),
            },
        },
        ArrowError::DivideByZero => SqlError::new("22012", "division by zero"),
        ArrowError::ArithmeticOverflow(_) => SqlError::new("22003", "value out of range"),
        other => internal(&other.to_string()),
    }
}

/// What DataFusion can parse and not plan.
fn not_supported(what: &str) -> SqlError {
    SqlError::unsupported("this query").with_detail(format!("DataFusion: {}", first_line(what)))
}

fn internal(what: &str) -> SqlError {
    SqlError::new("XX000", format!("the query failed: {}", first_line(what)))
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_errors_come_through_whatever_wraps_them() {
        let own = SqlError::new("22012", "division by zero");
        let wrapped = carried(own.clone()).context("somewhere").context("elsewhere");
        assert_eq!(sql_error(wrapped), own);
        let by_arrow = ArrowError::ExternalError(Box::new(carried(own.clone())));
        assert_eq!(sql_error(DataFusionError::ArrowError(Box::new(by_arrow), None)), own);
        let memory = DataFusionError::ResourcesExhausted("Failed to allocate".to_owned());
        assert_eq!(sql_error(memory).sqlstate, "53200");
    }
}
