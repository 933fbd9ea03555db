//! What is made with a schema: `CREATE SCHEMA s CREATE TABLE t (...) CREATE VIEW v AS ... GRANT ...`.

use super::words::Words;
use super::{Offsets, Parsed, RoleCommand, Utility, keyword, near, parse};
use crate::error::SqlError;
use sqlparser::ast::Statement;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// One of the commands within.
#[derive(Clone, Debug)]
pub struct Element {
    /// As long as the statement up to its end, with the command at its place.
    pub sql: String,
    pub utility: Utility,
}

/// `words` begin with CREATE SCHEMA; `None`: nothing is made with the schema.
pub(super) fn schema_of(words: &[&TokenWithSpan], sql: &str) -> Result<Option<Utility>, SqlError> {
    let starts = starts(words);
    let Some(&first) = starts.first() else { return Ok(None) };
    let words = Words { sql, words, at: 0 };
    let Parsed::Sql(schema) = parse(words.text_between(0, first))? else {
        return Err(near(sql, words.words[first]));
    };
    if let Statement::CreateSchema { if_not_exists: true, .. } = schema.as_ref() {
        let message = "CREATE SCHEMA IF NOT EXISTS cannot include schema elements";
        return Err(SqlError::unsupported_as(message).at(words.position_of(first)));
    }
    let ends = starts.iter().skip(1).copied().chain([words.words.len()]);
    let elements = starts.iter().zip(ends).map(|(&start, end)| element(&words, start, end));
    let mut elements = elements.collect::<Result<Vec<Element>, SqlError>>()?;
    elements.sort_by_key(|element| rank(&element.utility));
    Ok(Some(Utility::CreateSchemaOf { schema, elements }))
}

/// Where commands begin, none of which stands within another.
fn starts(words: &[&TokenWithSpan]) -> Vec<usize> {
    let mut depth = 0isize;
    let mut starts = Vec::new();
    for (at, word) in words.iter().enumerate().skip(2) {
        depth += isize::from(word.token == Token::LParen) - isize::from(word.token == Token::RParen);
        // As a label or a field's name, and in WITH GRANT OPTION, the words are others.
        let is_named =
            words[at - 1].token == Token::Period || matches!(keyword(words[at - 1]), Keyword::AS | Keyword::WITH);
        let begins = matches!(keyword(word), Keyword::CREATE | Keyword::GRANT) && !is_named;
        let is_quoted = matches!(&word.token, Token::Word(word) if word.quote_style.is_some());
        if depth == 0 && begins && !is_quoted {
            starts.push(at);
        }
    }
    starts
}

fn element(words: &Words<'_>, start: usize, end: usize) -> Result<Element, SqlError> {
    let text = words.text_between(start, end);
    let before = Offsets::new(words.sql).advance_to(words.words[start].span.start);
    let sql = format!("{}{text}", " ".repeat(words.sql[..before].chars().count()));
    let refused = || words.words.get(start + 1).map_or_else(|| words.unexpected(), |word| near(words.sql, word));
    let utility = match parse(&sql)? {
        Parsed::Utility(utility) => match *utility {
            utility @ Utility::CreateSequence { .. } => utility,
            Utility::Role(command) if matches!(command.as_ref(), RoleCommand::Grant(grant) if grant.is_grant) => {
                Utility::Role(command)
            }
            _ => return Err(refused()),
        },
        Parsed::Sql(statement) => match *statement {
            Statement::CreateTable(create) if create.query.is_some() => {
                return Err(SqlError::new("42601", "syntax error at or near \"as\""));
            }
            Statement::CreateTable(_) | Statement::CreateIndex(_) | Statement::CreateView(_) => {
                Utility::Statement(statement)
            }
            _ => return Err(refused()),
        },
        _ => return Err(refused()),
    };
    Ok(Element { sql, utility })
}

/// PostgreSQL makes what others may name first.
fn rank(utility: &Utility) -> u8 {
    match utility {
        Utility::CreateSequence { .. } => 0,
        Utility::Statement(statement) => match statement.as_ref() {
            Statement::CreateTable(_) => 1,
            Statement::CreateView(_) => 2,
            _ => 3,
        },
        _ => 4,
    }
}
