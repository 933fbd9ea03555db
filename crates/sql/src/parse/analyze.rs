//! What are VACUUM and ANALYZE asked for? Options, old and new in form, then tables, each perhaps with columns.

use super::grammar::Grammar;
use super::printed::parser_of;
use super::{Kept, Parsed, near, syntax_error};
use crate::error::SqlError;
use sqlparser::ast::{Ident, ObjectName};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// A table to sample, and the columns that were named.
#[derive(Clone, Debug)]
pub struct Analyzed {
    pub table: ObjectName,
    pub columns: Vec<Ident>,
}

const VACUUM_OPTIONS: &[&str] = &[
    "analyze",
    "analyse",
    "buffer_usage_limit",
    "disable_page_skipping",
    "freeze",
    "full",
    "index_cleanup",
    "parallel",
    "process_main",
    "process_toast",
    "skip_locked",
    "truncate",
    "verbose",
];
const ANALYZE_OPTIONS: &[&str] = &["buffer_usage_limit", "skip_locked", "verbose"];
const OLD_OPTIONS: &[&str] = &["full", "freeze", "verbose", "analyze", "analyse"];

pub(super) fn parse_analyze(words: &[&TokenWithSpan], sql: &str) -> Result<Parsed, SqlError> {
    let is_vacuum = word(&words[0].token) == "vacuum";
    let tokens: Vec<TokenWithSpan> = words[1..].iter().map(|t| (*t).clone()).collect();
    let dialect = Grammar::default();
    let mut parser = parser_of(&dialect, tokens);
    let mut samples = !is_vacuum;
    if parser.consume_token(&Token::LParen) {
        samples |= options(&mut parser, is_vacuum, sql)?;
    } else {
        let known = if is_vacuum { OLD_OPTIONS } else { &["verbose"] };
        while known.contains(&word(&parser.peek_token().token).as_str()) {
            samples |= word(&parser.next_token().token).starts_with("analy");
        }
    }
    let tables = match parser.peek_token().token {
        Token::EOF => Vec::new(),
        _ => parser.parse_comma_separated(analyzed).map_err(|e| syntax_error(sql, e))?,
    };
    match parser.peek_token() {
        next if next.token != Token::EOF => Err(near(sql, &next)),
        _ if samples => Ok(Parsed::Analyze { tables, tag: if is_vacuum { "VACUUM" } else { "ANALYZE" } }),
        _ if tables.iter().any(|analyzed| !analyzed.columns.is_empty()) => {
            Err(SqlError::new("0A000", "ANALYZE option must be specified when a column list is provided"))
        }
        _ => {
            let of = tables.into_iter().map(|analyzed| Kept::Table(analyzed.table)).collect();
            Ok(Parsed::Upkeep { tag: "VACUUM", of })
        }
    }
}

fn word(token: &Token) -> String {
    match token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_lowercase(),
        _ => String::new(),
    }
}

/// The list in parentheses; whether it asks for a sample.
fn options(parser: &mut Parser<'_>, is_vacuum: bool, sql: &str) -> Result<bool, SqlError> {
    let mut samples = false;
    loop {
        let name = parser.next_token();
        let option = word(&name.token);
        let known = if is_vacuum { VACUUM_OPTIONS } else { ANALYZE_OPTIONS };
        if option.is_empty() {
            return Err(near(sql, &name));
        }
        if !known.contains(&option.as_str()) {
            let command = if is_vacuum { "VACUUM" } else { "ANALYZE" };
            return Err(SqlError::new("42601", format!("unrecognized {command} option \"{option}\"")));
        }
        let value = match parser.peek_token().token {
            Token::Comma | Token::RParen => "on".to_owned(),
            token => {
                parser.next_token();
                token.to_string().to_lowercase()
            }
        };
        samples |= option.starts_with("analy") && !["off", "false", "0", "'off'", "'false'"].contains(&value.as_str());
        if parser.consume_token(&Token::RParen) {
            return Ok(samples);
        }
        if !parser.consume_token(&Token::Comma) {
            return Err(near(sql, &parser.peek_token()));
        }
    }
}

fn analyzed(parser: &mut Parser<'_>) -> Result<Analyzed, ParserError> {
    let table = parser.parse_object_name(false)?;
    let mut columns = Vec::new();
    if parser.consume_token(&Token::LParen) {
        columns = parser.parse_comma_separated(Parser::parse_identifier)?;
        parser.expect_token(&Token::RParen)?;
    }
    Ok(Analyzed { table, columns })
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn of(sql: &str) -> Result<(usize, &'static str), String> {
        match parse(sql) {
            Ok(Parsed::Analyze { tables, tag }) => Ok((tables.len(), tag)),
            Ok(Parsed::Upkeep { tag, .. }) => Ok((usize::MAX, tag)),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.sqlstate.to_owned()),
        }
    }

    #[test]
    fn forms_old_and_new_are_told_apart() {
        assert_eq!(of("ANALYZE"), Ok((0, "ANALYZE")));
        assert_eq!(of("analyze verbose t, s.u (a, b)"), Ok((2, "ANALYZE")));
        assert_eq!(of("VACUUM ANALYZE t"), Ok((1, "VACUUM")));
        assert_eq!(of("VACUUM (ANALYZE, VERBOSE false) t"), Ok((1, "VACUUM")));
        assert_eq!(of("VACUUM (ANALYZE off)"), Ok((usize::MAX, "VACUUM")));
        assert_eq!(of("VACUUM FULL t"), Ok((usize::MAX, "VACUUM")));
        assert_eq!(of("ANALYZE (speed) t"), Err("42601".to_owned()));
        assert_eq!(of("ANALYZE t u"), Err("42601".to_owned()));
    }
}
