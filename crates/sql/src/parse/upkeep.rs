//! What are VACUUM, CLUSTER and REINDEX asked for? Nothing is to be done for them here: what they name must be there.

use super::grammar::Grammar;
use super::printed::parser_of;
use super::{Parsed, is_word, near, syntax_error};
use crate::error::SqlError;
use sqlparser::ast::{Ident, ObjectName};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// What is to be kept up.
#[derive(Clone, Debug)]
pub enum Kept {
    Table(ObjectName),
    Index(ObjectName),
    /// An index of a table.
    IndexOf(ObjectName, Ident),
    Schema(Ident),
}

type Read<T> = Result<T, ParserError>;

/// `CLUSTER` and `REINDEX` in all of their forms.
pub(super) fn parse_upkeep(words: &[&TokenWithSpan], sql: &str) -> Result<Parsed, SqlError> {
    let is_cluster = is_word(&words[0].token, "cluster");
    let tokens: Vec<TokenWithSpan> = words[1..].iter().map(|t| (*t).clone()).collect();
    let dialect = Grammar::default();
    let mut parser = parser_of(&dialect, tokens);
    let known: &[&str] = if is_cluster { &["verbose"] } else { &["concurrently", "tablespace", "verbose"] };
    let tag = if is_cluster { "CLUSTER" } else { "REINDEX" };
    if parser.consume_token(&Token::LParen) {
        options(&mut parser, known, tag, sql)?;
    }
    let of = if is_cluster { cluster(&mut parser) } else { reindex(&mut parser) };
    let of = of.map_err(|e| syntax_error(sql, e))?;
    match parser.peek_token() {
        next if next.token == Token::EOF => Ok(Parsed::Upkeep { tag, of: of.into_iter().collect() }),
        next => Err(near(sql, &next)),
    }
}

/// The rest of a list in parentheses.
fn options(parser: &mut Parser<'_>, known: &[&str], tag: &str, sql: &str) -> Result<(), SqlError> {
    loop {
        let name = parser.next_token();
        let Token::Word(word) = &name.token else { return Err(near(sql, &name)) };
        let option = word.value.to_lowercase();
        if !known.contains(&option.as_str()) {
            return Err(SqlError::new("42601", format!("unrecognized {tag} option \"{option}\"")));
        }
        if !matches!(parser.peek_token().token, Token::Comma | Token::RParen) {
            parser.next_token();
        }
        if parser.consume_token(&Token::RParen) {
            return Ok(());
        }
        if !parser.consume_token(&Token::Comma) {
            return Err(near(sql, &parser.peek_token()));
        }
    }
}

/// `[VERBOSE] [table [USING index]]`, `[VERBOSE] index ON table`
fn cluster(p: &mut Parser<'_>) -> Read<Option<Kept>> {
    let _ = p.parse_keyword(Keyword::VERBOSE);
    if p.peek_token().token == Token::EOF {
        return Ok(None);
    }
    let name = p.parse_object_name(false)?;
    if p.parse_keyword(Keyword::USING) {
        return Ok(Some(Kept::IndexOf(name, p.parse_identifier()?)));
    }
    if p.parse_keyword(Keyword::ON) {
        let index = name.0.last().and_then(|part| part.as_ident()).cloned();
        let table = p.parse_object_name(false)?;
        return Ok(index.map(|index| Kept::IndexOf(table, index)));
    }
    Ok(Some(Kept::Table(name)))
}

/// `{INDEX | TABLE | SCHEMA | DATABASE | SYSTEM} [CONCURRENTLY] name`
fn reindex(p: &mut Parser<'_>) -> Read<Option<Kept>> {
    let kinds = [Keyword::INDEX, Keyword::TABLE, Keyword::SCHEMA, Keyword::DATABASE, Keyword::SYSTEM];
    let kind = p.expect_one_of_keywords(&kinds)?;
    let _ = p.parse_keyword(Keyword::CONCURRENTLY);
    Ok(match kind {
        Keyword::INDEX => Some(Kept::Index(p.parse_object_name(false)?)),
        Keyword::TABLE => Some(Kept::Table(p.parse_object_name(false)?)),
        Keyword::SCHEMA => Some(Kept::Schema(p.parse_identifier()?)),
        // This one.
        _ => {
            p.parse_identifier()?;
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn of(sql: &str) -> Result<(&'static str, usize), &'static str> {
        match parse(sql) {
            Ok(Parsed::Upkeep { tag, of }) => Ok((tag, of.len())),
            Ok(_) => Err("another statement"),
            Err(error) => Err(error.sqlstate),
        }
    }

    #[test]
    fn every_form_is_read() {
        for sql in ["CLUSTER", "cluster verbose", "CLUSTER (verbose off)"] {
            assert_eq!(of(sql), Ok(("CLUSTER", 0)), "{sql}");
        }
        for sql in ["CLUSTER s.t", "cluster verbose t using i", "CLUSTER i ON t"] {
            assert_eq!(of(sql), Ok(("CLUSTER", 1)), "{sql}");
        }
        for sql in ["REINDEX TABLE t", "reindex (verbose, tablespace x) index concurrently s.i", "REINDEX SCHEMA s"] {
            assert_eq!(of(sql), Ok(("REINDEX", 1)), "{sql}");
        }
        assert_eq!(of("REINDEX DATABASE d"), Ok(("REINDEX", 0)));
        for sql in ["REINDEX", "REINDEX t", "CLUSTER t u", "REINDEX (speed) TABLE t", "CLUSTER (speed) t"] {
            assert_eq!(of(sql), Err("42601"), "{sql}");
        }
    }
}
