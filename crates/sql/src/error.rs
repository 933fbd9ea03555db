//! The one place where an error gets its SQLSTATE.

/// An error as a client sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SqlError {
    /// Five characters, PostgreSQL's meaning.
    pub sqlstate: &'static str,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    /// 1-based character position in the statement's text.
    pub position: Option<usize>,
}

impl SqlError {
    pub fn new(sqlstate: &'static str, message: impl Into<String>) -> SqlError {
        SqlError { sqlstate, message: message.into(), detail: None, hint: None, position: None }
    }
}

impl std::fmt::Display for SqlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (SQLSTATE {})", self.message, self.sqlstate)
    }
}

impl std::error::Error for SqlError {}
