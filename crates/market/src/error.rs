//! Why does a run end early? One clear line each.

use crate::lines::FeedError;
use freshet_db::{OpenError, SqlError};
use std::fmt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub enum MarketError {
    /// Options that do not fit each other or the data directory.
    Usage(String),
    Feed(FeedError),
    Open(OpenError),
    /// A statement failed, and what it was for.
    Sql {
        doing: String,
        error: Box<SqlError>,
    },
    File {
        path: PathBuf,
        error: std::io::Error,
    },
    Listen(String),
    /// The database does not hold a row that it must.
    State(String),
}

pub type Result<T> = std::result::Result<T, MarketError>;

impl MarketError {
    pub fn file(path: &Path, error: std::io::Error) -> MarketError {
        MarketError::File { path: path.to_owned(), error }
    }
}

/// Says what a statement was for when it fails.
pub trait Doing<T> {
    fn doing(self, what: &str) -> Result<T>;
}

impl<T> Doing<T> for std::result::Result<T, SqlError> {
    fn doing(self, what: &str) -> Result<T> {
        self.map_err(|error| MarketError::Sql { doing: what.to_owned(), error: Box::new(error) })
    }
}

impl From<FeedError> for MarketError {
    fn from(error: FeedError) -> MarketError {
        MarketError::Feed(error)
    }
}

impl fmt::Display for MarketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MarketError::Usage(text) | MarketError::Listen(text) | MarketError::State(text) => f.write_str(text),
            MarketError::Feed(error) => write!(f, "{error}"),
            MarketError::Open(error) => write!(f, "{error}"),
            MarketError::Sql { doing, error } => write!(f, "{doing}: {error}"),
            MarketError::File { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for MarketError {}
