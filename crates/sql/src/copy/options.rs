//! What does the WITH list of a COPY ask for? PostgreSQL's options, checks and messages.

use crate::error::SqlError;
use crate::parse::copy::{CopyOption, OptionValue};
use freshet_engine::catalog::Table;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Text,
    Csv,
    Binary,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    No,
    Yes,
    /// Its names must be the columns'.
    Match,
}

/// A format with all that is asked of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Format {
    pub kind: Kind,
    pub delimiter: u8,
    pub null: Vec<u8>,
    pub header: Header,
    pub quote: u8,
    pub escape: u8,
    /// By column copied.
    pub force_quote: Vec<bool>,
    pub force_not_null: Vec<bool>,
    pub force_null: Vec<bool>,
    /// Rows with values that cannot be read are left out and counted.
    pub ignores_errors: bool,
    pub names: Vec<String>,
}

/// Options as they are met, each at most once.
#[derive(Default)]
struct Given<'a> {
    format: Option<Kind>,
    delimiter: Option<&'a str>,
    null: Option<&'a str>,
    header: Option<Header>,
    quote: Option<&'a str>,
    escape: Option<&'a str>,
    force_quote: Option<&'a OptionValue>,
    force_not_null: Option<&'a OptionValue>,
    force_null: Option<&'a OptionValue>,
    ignores_errors: Option<bool>,
    freeze: Option<bool>,
    encoding: Option<&'a str>,
}

impl Format {
    pub fn is_binary(&self) -> bool {
        self.kind == Kind::Binary
    }

    /// `names`: of the columns copied. `table`: of a table's, whose other columns are not copied.
    pub fn of(
        options: &[CopyOption],
        into_table: bool,
        names: &[String],
        table: Option<&Table>,
    ) -> Result<Format, SqlError> {
        let given = Given::of(options, into_table)?;
        given.check_kind(into_table)?;
        let kind = given.format.unwrap_or(Kind::Text);
        let csv = kind == Kind::Csv;
        let one = |option: Option<&str>, default: u8, what: &str| match option.map(str::as_bytes) {
            None => Ok(default),
            Some([byte]) => Ok(*byte),
            Some(_) => Err(SqlError::unsupported_as(format!("COPY {what} must be a single one-byte character"))),
        };
        let delimiter = one(given.delimiter, if csv { b',' } else { b'\t' }, "delimiter")?;
        let quote = one(given.quote, b'"', "quote")?;
        let escape = one(given.escape, quote, "escape")?;
        let null = given.null.unwrap_or(if csv { "" } else { "\\N" }).as_bytes().to_vec();
        let format = Format {
            kind,
            delimiter,
            null,
            header: given.header.unwrap_or(Header::No),
            quote,
            escape,
            force_quote: chosen(given.force_quote, names, table, "FORCE_QUOTE")?,
            force_not_null: chosen(given.force_not_null, names, table, "FORCE_NOT_NULL")?,
            force_null: chosen(given.force_null, names, table, "FORCE_NULL")?,
            ignores_errors: given.ignores_errors.unwrap_or(false),
            names: names.to_vec(),
        };
        if kind != Kind::Binary {
            format.check_characters()?;
        }
        Ok(format)
    }

    fn check_characters(&self) -> Result<(), SqlError> {
        let invalid = |message: String| Err(SqlError::new("22023", message));
        if matches!(self.delimiter, b'\r' | b'\n') {
            return invalid("COPY delimiter cannot be newline or carriage return".to_owned());
        }
        if self.null.iter().any(|b| matches!(b, b'\r' | b'\n')) {
            return invalid("COPY null representation cannot use newline or carriage return".to_owned());
        }
        let reserved = b"\\.abcdefghijklmnopqrstuvwxyz0123456789";
        if self.kind == Kind::Text && reserved.contains(&self.delimiter) {
            return invalid(format!("COPY delimiter cannot be \"{}\"", char::from(self.delimiter)));
        }
        if self.null.contains(&self.delimiter) {
            return invalid("COPY delimiter must not appear in the NULL specification".to_owned());
        }
        if self.kind == Kind::Csv {
            if self.delimiter == self.quote {
                return invalid("COPY delimiter and quote must be different".to_owned());
            }
            if self.null.contains(&self.quote) {
                return invalid("CSV quote character must not appear in the NULL specification".to_owned());
            }
        }
        Ok(())
    }
}

impl<'a> Given<'a> {
    fn of(options: &'a [CopyOption], into_table: bool) -> Result<Given<'a>, SqlError> {
        let mut given = Given::default();
        for option in options {
            given.take(option, into_table)?;
        }
        if let Some(encoding) = given.encoding {
            check_encoding(encoding)?;
        }
        Ok(given)
    }

    fn take(&mut self, option: &'a CopyOption, into_table: bool) -> Result<(), SqlError> {
        let CopyOption { name, value, position } = option;
        let text = || text(name, value);
        match name.as_str() {
            "format" => {
                let kind = kind(text()?);
                once(&mut self.format, || kind.map_err(|error| error.at(*position)))
            }
            "delimiter" => once(&mut self.delimiter, text),
            "null" => once(&mut self.null, text),
            "header" => once(&mut self.header, || header(value, into_table)),
            "quote" => once(&mut self.quote, text),
            "escape" => once(&mut self.escape, text),
            "force_quote" => once(&mut self.force_quote, || Ok(value)),
            "force_not_null" => once(&mut self.force_not_null, || Ok(value)),
            "force_null" => once(&mut self.force_null, || Ok(value)),
            "freeze" => once(&mut self.freeze, || boolean(name, value)),
            "encoding" => once(&mut self.encoding, text),
            "on_error" => once(&mut self.ignores_errors, || on_error(text()?, into_table)),
            _ => Err(SqlError::new("42601", format!("option \"{name}\" not recognized")).at(*position)),
        }
        .map_err(|error| if error.message.starts_with("conflicting") { error.at(*position) } else { error })
    }

    fn check_kind(&self, into_table: bool) -> Result<(), SqlError> {
        let kind = self.format.unwrap_or(Kind::Text);
        let refuse = |sqlstate, what: &str| Err(SqlError::new(sqlstate, what));
        if kind == Kind::Binary {
            if self.delimiter.is_some() {
                return refuse("42601", "cannot specify DELIMITER in BINARY mode");
            }
            if self.null.is_some() {
                return refuse("42601", "cannot specify NULL in BINARY mode");
            }
            if self.header.is_some_and(|h| h != Header::No) {
                return refuse("0A000", "cannot specify HEADER in BINARY mode");
            }
            if self.ignores_errors == Some(true) {
                return refuse("42601", "only ON_ERROR STOP is allowed in BINARY mode");
            }
        }
        if kind != Kind::Csv {
            let only_csv = [
                (self.quote.is_some(), "COPY quote available only in CSV mode"),
                (self.escape.is_some(), "COPY escape available only in CSV mode"),
                (self.force_quote.is_some(), "COPY force quote available only in CSV mode"),
                (self.force_not_null.is_some(), "COPY force not null available only in CSV mode"),
                (self.force_null.is_some(), "COPY force null available only in CSV mode"),
            ];
            if let Some((_, message)) = only_csv.iter().find(|(is_given, _)| *is_given) {
                return refuse("0A000", message);
            }
        }
        if self.force_quote.is_some() && into_table {
            return refuse("0A000", "COPY force quote only available using COPY TO");
        }
        if self.force_not_null.is_some() && !into_table {
            return refuse("0A000", "COPY force not null only available using COPY FROM");
        }
        if self.force_null.is_some() && !into_table {
            return refuse("0A000", "COPY force null only available using COPY FROM");
        }
        Ok(())
    }
}

fn once<T>(place: &mut Option<T>, value: impl FnOnce() -> Result<T, SqlError>) -> Result<(), SqlError> {
    if place.is_some() {
        return Err(SqlError::new("42601", "conflicting or redundant options"));
    }
    *place = Some(value()?);
    Ok(())
}

fn text<'a>(name: &str, value: &'a OptionValue) -> Result<&'a str, SqlError> {
    match value {
        OptionValue::Text(text) => Ok(text),
        _ => Err(SqlError::new("42601", format!("{name} requires a parameter"))),
    }
}

fn kind(text: &str) -> Result<Kind, SqlError> {
    match text {
        "text" => Ok(Kind::Text),
        "csv" => Ok(Kind::Csv),
        "binary" => Ok(Kind::Binary),
        _ => Err(SqlError::new("22023", format!("COPY format \"{text}\" not recognized"))),
    }
}

fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "1" => Some(true),
        "false" | "off" | "0" => Some(false),
        _ => None,
    }
}

fn boolean(name: &str, value: &OptionValue) -> Result<bool, SqlError> {
    match value {
        OptionValue::None => Ok(true),
        OptionValue::Text(text) => {
            truth(text).ok_or_else(|| SqlError::new("42601", format!("{name} requires a Boolean value")))
        }
        _ => Err(SqlError::new("42601", format!("{name} requires a Boolean value"))),
    }
}

fn header(value: &OptionValue, into_table: bool) -> Result<Header, SqlError> {
    let told = match value {
        OptionValue::None => Some(true),
        OptionValue::Text(text) if text.eq_ignore_ascii_case("match") => {
            if !into_table {
                return Err(SqlError::new("0A000", "cannot use \"match\" with HEADER in COPY TO"));
            }
            return Ok(Header::Match);
        }
        OptionValue::Text(text) => truth(text),
        _ => None,
    };
    match told {
        Some(true) => Ok(Header::Yes),
        Some(false) => Ok(Header::No),
        None => Err(SqlError::new("42601", "header requires a Boolean value or \"match\"")),
    }
}

fn on_error(text: &str, into_table: bool) -> Result<bool, SqlError> {
    if !into_table {
        return Err(SqlError::new("42601", "COPY ON_ERROR cannot be used with COPY TO"));
    }
    match text.to_ascii_lowercase().as_str() {
        "ignore" => Ok(true),
        "stop" => Ok(false),
        _ => Err(SqlError::new("22023", format!("COPY ON_ERROR \"{text}\" not recognized"))),
    }
}

fn check_encoding(name: &str) -> Result<(), SqlError> {
    match name.to_ascii_uppercase().replace(['-', '_'], "").as_str() {
        "UTF8" | "UNICODE" => Ok(()),
        _ => Err(SqlError::unsupported(format!("COPY with the encoding {name}")).with_hint("UTF8 is there.")),
    }
}

/// Which of the columns an option names.
fn chosen(
    value: Option<&OptionValue>,
    names: &[String],
    table: Option<&Table>,
    option: &str,
) -> Result<Vec<bool>, SqlError> {
    match value {
        None => Ok(vec![false; names.len()]),
        Some(OptionValue::Star) => Ok(vec![true; names.len()]),
        Some(OptionValue::List(list)) => {
            if let Some(name) = list.iter().find(|name| !names.contains(name)) {
                return Err(match table {
                    Some(table) if table.column(name).is_some() => {
                        SqlError::new("42P10", format!("{option} column \"{name}\" not referenced by COPY"))
                    }
                    Some(table) => super::no_column(name, table),
                    None => SqlError::new("42703", format!("column \"{name}\" does not exist")),
                });
            }
            Ok(names.iter().map(|name| list.contains(name)).collect())
        }
        Some(_) => {
            let option = option.to_lowercase();
            Err(SqlError::new("22023", format!("argument to option \"{option}\" must be a list of column names")))
        }
    }
}
