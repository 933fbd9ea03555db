//! What is EXPLAIN asked for? Options in parentheses or as words before the statement.

use crate::error::SqlError;
use sqlparser::ast::{AnalyzeFormatKind, Expr, UtilityOption, Value};

/// What to tell, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    pub analyze: bool,
    pub verbose: bool,
    pub costs: bool,
    pub timing: bool,
    pub summary: bool,
    pub format: Format,
}

/// How it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Text,
    Json,
    Xml,
    Yaml,
}

impl Format {
    fn named(word: &str) -> Result<Format, SqlError> {
        Ok(match word.to_lowercase().as_str() {
            "text" => Format::Text,
            "json" => Format::Json,
            "xml" => Format::Xml,
            "yaml" => Format::Yaml,
            other => {
                let message = format!("unrecognized value for EXPLAIN option \"format\": \"{other}\"");
                return Err(SqlError::new("22023", message));
            }
        })
    }
}

impl Options {
    pub fn of(
        analyze: bool,
        verbose: bool,
        format: Option<&AnalyzeFormatKind>,
        list: Option<&[UtilityOption]>,
    ) -> Result<Options, SqlError> {
        let mut options = Options { analyze, verbose, costs: true, timing: true, summary: false, format: Format::Text };
        if let Some(AnalyzeFormatKind::Keyword(format) | AnalyzeFormatKind::Assignment(format)) = format {
            options.format = Format::named(&format.to_string())?;
        }
        let (mut timing, mut summary, mut wal) = (None, None, false);
        for option in list.into_iter().flatten() {
            let name = option.name.value.to_lowercase();
            let word = option.arg.as_ref().map(word);
            if name == "format" {
                options.format = Format::named(word.as_deref().unwrap_or_default())?;
                continue;
            }
            let on = is_on(&name, word.as_deref())?;
            match name.as_str() {
                "analyze" | "analyse" => options.analyze = on,
                "verbose" => options.verbose = on,
                "costs" => options.costs = on,
                "timing" => timing = Some(on),
                "summary" => summary = Some(on),
                // There is nothing to tell: rows are in memory, and settings that advise a planner do nothing.
                "buffers" | "settings" => {}
                "wal" => wal = on,
                _ => return Err(SqlError::new("42601", format!("unrecognized EXPLAIN option \"{name}\""))),
            }
        }
        for (name, is_asked) in [("WAL", wal), ("TIMING", timing == Some(true))] {
            if is_asked && !options.analyze {
                return Err(SqlError::new("22023", format!("EXPLAIN option {name} requires ANALYZE")));
            }
        }
        options.timing = timing.unwrap_or(options.analyze);
        options.summary = summary.unwrap_or(options.analyze);
        Ok(options)
    }
}

fn word(arg: &Expr) -> String {
    match arg {
        Expr::Identifier(ident) => ident.value.to_lowercase(),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => text.to_lowercase(),
            other => other.to_string().to_lowercase(),
        },
        other => other.to_string().to_lowercase(),
    }
}

fn is_on(name: &str, word: Option<&str>) -> Result<bool, SqlError> {
    match word {
        None | Some("on" | "true" | "1") => Ok(true),
        Some("off" | "false" | "0") => Ok(false),
        Some(_) => Err(SqlError::new("42601", format!("{name} requires a Boolean value"))),
    }
}
