//! What sqlparser takes and PostgreSQL does not: forms of other dialects.

use super::{is_word, near, position};
use crate::error::SqlError;
use sqlparser::ast::{CreateTableLikeKind, Ident, Select, SelectItem, Statement, TableFactor, Visit, Visitor};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};
use std::ops::ControlFlow;

/// What is to be looked at once the statement is parsed.
#[derive(Default)]
pub(super) struct Doubts {
    /// A literal stands where an alias may: behind a word or a parenthesis.
    has_quoted_alias: bool,
    has_auto_increment: bool,
    /// IDENTITY, which the grammar swallows where no AS stands before it.
    has_bare_identity: bool,
}

/// 42601 for tokens, blanks among them, that stand beside each other in no statement.
pub(super) fn check_tokens(sql: &str, tokens: &[TokenWithSpan]) -> Result<Doubts, SqlError> {
    let mut doubts = Doubts::default();
    let mut last: Option<&TokenWithSpan> = None;
    // A call's parenthesis, behind which IGNORE or RESPECT was met.
    let mut is_treated = false;
    let (mut is_beside, mut breaks) = (false, false);
    for token in tokens {
        match &token.token {
            Token::Whitespace(blank) => {
                is_beside = false;
                breaks |= matches!(blank, Whitespace::Newline | Whitespace::SingleLineComment { .. });
                continue;
            }
            Token::Number(text, _) if text.contains('_') => return Err(junk(sql, token, text)),
            Token::Word(word) if is_beside && word.quote_style.is_none() && is_number(last) => {
                let number = last.map(|last| last.token.to_string()).unwrap_or_default();
                return Err(junk(sql, last.unwrap_or(token), &format!("{number}{}", word.value)));
            }
            Token::SingleQuotedString(_) => {
                let is_wrong = match last.map(|last| &last.token) {
                    Some(Token::SingleQuotedString(_)) => !breaks,
                    Some(Token::Number(..)) => true,
                    Some(before) => is_word(before, "as"),
                    None => false,
                };
                if is_wrong {
                    return Err(near(sql, token));
                }
                doubts.has_quoted_alias |= last.is_some_and(|last| may_end_expression(&last.token));
            }
            Token::Word(word) if is_treated && word.keyword == Keyword::NULLS => return Err(near(sql, token)),
            Token::Word(word) => {
                doubts.has_auto_increment |= word.keyword == Keyword::AUTO_INCREMENT;
                let is_behind = match last.map(|last| &last.token) {
                    Some(Token::Word(before)) => {
                        !matches!(before.keyword, Keyword::AS | Keyword::INCLUDING | Keyword::EXCLUDING)
                    }
                    Some(Token::RParen | Token::RBracket) => true,
                    _ => false,
                };
                let is_identity = word.keyword == Keyword::IDENTITY && word.quote_style.is_none();
                doubts.has_bare_identity |= is_identity && is_behind;
            }
            Token::DoubleEq => {
                let message = "operator does not exist: ==";
                let error = SqlError::new("42883", message).at(position(sql, token.span.start));
                return Err(error.with_hint(
                    "No operator matches the given name and argument types. You might need to add explicit type casts.",
                ));
            }
            _ => {}
        }
        is_treated = matches!(&token.token, Token::Word(word) if matches!(word.keyword, Keyword::IGNORE | Keyword::RESPECT))
            && matches!(last.map(|last| &last.token), Some(Token::RParen));
        (last, is_beside, breaks) = (Some(token), true, false);
    }
    Ok(doubts)
}

fn is_number(token: Option<&TokenWithSpan>) -> bool {
    matches!(token.map(|t| &t.token), Some(Token::Number(..)))
}

fn may_end_expression(token: &Token) -> bool {
    match token {
        Token::RParen | Token::RBracket => true,
        Token::Word(word) => word.keyword == Keyword::NoKeyword || word.quote_style.is_some(),
        _ => false,
    }
}

fn junk(sql: &str, token: &TokenWithSpan, text: &str) -> SqlError {
    let message = format!("trailing junk after numeric literal at or near \"{text}\"");
    SqlError::new("42601", message).at(position(sql, token.span.start))
}

/// 42601 for a statement that PostgreSQL's grammar does not have.
pub(super) fn check_statement(statement: &Statement, doubts: &Doubts) -> Result<(), SqlError> {
    let refuse = |at: &str| Err(SqlError::new("42601", format!("syntax error at or near \"{at}\"")));
    match statement {
        Statement::Insert(insert) if !insert.into => return refuse(&insert.table.to_string()),
        Statement::CreateTable(create) => {
            if let Some(CreateTableLikeKind::Plain(_)) = create.like {
                return refuse("LIKE");
            }
            if doubts.has_bare_identity && create.query.is_none() {
                return refuse("IDENTITY");
            }
            if doubts.has_auto_increment {
                return refuse("AUTO_INCREMENT");
            }
        }
        _ => {}
    }
    if doubts.has_quoted_alias
        && let ControlFlow::Break(alias) = statement.visit(&mut QuotedAliases)
    {
        return refuse(&format!("'{alias}'"));
    }
    Ok(())
}

struct QuotedAliases;

impl QuotedAliases {
    fn ask(alias: &Ident) -> ControlFlow<String> {
        match alias.quote_style {
            Some('\'') => ControlFlow::Break(alias.value.clone()),
            _ => ControlFlow::Continue(()),
        }
    }
}

impl Visitor for QuotedAliases {
    type Break = String;

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<String> {
        for item in &select.projection {
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                QuotedAliases::ask(alias)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<String> {
        match factor {
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. }
            | TableFactor::Function { alias: Some(alias), .. }
            | TableFactor::UNNEST { alias: Some(alias), .. }
            | TableFactor::NestedJoin { alias: Some(alias), .. } => QuotedAliases::ask(&alias.name),
            _ => ControlFlow::Continue(()),
        }
    }
}
