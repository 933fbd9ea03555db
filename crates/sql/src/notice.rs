//! What is a client told besides results and errors?

/// How much a client wants to be told, most first: `client_min_messages`.
pub(crate) const LEVELS: &[&str] =
    &["debug5", "debug4", "debug3", "debug2", "debug1", "debug", "log", "info", "notice", "warning", "error"];

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    pub sqlstate: &'static str,
    pub message: String,
    pub detail: Option<String>,
}

impl Notice {
    pub fn new(sqlstate: &'static str, message: impl Into<String>) -> Notice {
        Notice { sqlstate, message: message.into(), detail: None }
    }

    pub fn with_detail(self, detail: impl Into<String>) -> Notice {
        Notice { detail: Some(detail.into()), ..self }
    }

    /// A warning, but a mere notice with the state of success, where IF NOT EXISTS skips and where a name is cut.
    pub fn severity(&self) -> &'static str {
        match self.sqlstate {
            "00000" | "42622" | "42701" | "42710" | "42P06" | "42P07" => "NOTICE",
            _ => "WARNING",
        }
    }

    /// Whether a client that wants messages from `level` on is told.
    pub(crate) fn is_told(&self, level: &str) -> bool {
        let rank = |level: &str| LEVELS.iter().position(|known| known.eq_ignore_ascii_case(level));
        rank(self.severity()) >= rank(level)
    }
}

#[cfg(test)]
mod tests {
    use super::Notice;

    #[test]
    fn who_wants_warnings_only_is_told_no_notices() {
        let (skipped, warned) = (Notice::new("42P07", "exists"), Notice::new("25P01", "no transaction"));
        assert!(skipped.is_told("notice") && skipped.is_told("debug1") && !skipped.is_told("warning"));
        assert!(warned.is_told("warning") && !warned.is_told("error"));
    }
}
