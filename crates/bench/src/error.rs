//! Why did a run fail?

use freshet_engine::engine::OpenError;
use freshet_engine::txn;
use std::fmt;
use std::io;

#[derive(Debug)]
pub enum BenchError {
    /// What was asked for cannot be done: exit code 2.
    Usage(String),
    /// This machine or directory has not what the run needs.
    Machine(String),
    /// The engine refused.
    Engine(String),
    /// The figures do not count: the data is not what was written.
    WrongData(String),
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchError::Usage(what) | BenchError::Machine(what) | BenchError::Engine(what) => f.write_str(what),
            BenchError::WrongData(what) => write!(f, "wrong data, so no figures: {what}"),
        }
    }
}

impl std::error::Error for BenchError {}

impl From<OpenError> for BenchError {
    fn from(error: OpenError) -> BenchError {
        BenchError::Engine(error.to_string())
    }
}

impl From<txn::Error> for BenchError {
    fn from(error: txn::Error) -> BenchError {
        BenchError::Engine(error.to_string())
    }
}

/// Names the file or directory in an I/O error.
pub fn on(path: &std::path::Path) -> impl FnOnce(io::Error) -> BenchError + '_ {
    move |error| BenchError::Machine(format!("{}: {error}", path.display()))
}
