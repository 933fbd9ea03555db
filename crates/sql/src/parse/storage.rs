//! Where and how is something to be stored? What definitions say of that, much of which the grammar lacks, is taken out of them and left in them as
//! options under names that no text has, which [`stored_of`] tells.

use super::mend::{MARKER, closing, is_word, keyword};
use sqlparser::ast::{CreateTableOptions, Expr, Ident, SqlOption, Statement, Value};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// `name = value` of a list; `toast.name` has a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageOption {
    pub namespace: Option<String>,
    pub name: String,
    /// `None`: not given.
    pub value: Option<String>,
}

impl StorageOption {
    pub fn of(name: String, value: Option<String>) -> StorageOption {
        match name.split_once('.') {
            Some((namespace, name)) => {
                StorageOption { namespace: Some(namespace.to_owned()), name: name.to_owned(), value }
            }
            None => StorageOption { namespace: None, name, value },
        }
    }

    fn full_name(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}.{}", self.name),
            None => self.name.clone(),
        }
    }

    /// A name alone is true.
    pub fn value_or_true(&self) -> &str {
        self.value.as_deref().unwrap_or("true")
    }
}

/// What else is said of storage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stored {
    Unlogged,
    Tablespace(String),
    /// The access method of a table.
    Method(String),
    Compression(String),
    /// An option of what is defined.
    Option(StorageOption),
    /// An option of a key's index.
    KeyOption(StorageOption),
}

impl Stored {
    fn marked(&self) -> (String, &str) {
        let (name, value) = match self {
            Stored::Unlogged => ("unlogged".to_owned(), "true"),
            Stored::Tablespace(name) => ("tablespace".to_owned(), name.as_str()),
            Stored::Method(name) => ("method".to_owned(), name.as_str()),
            Stored::Compression(name) => ("compression".to_owned(), name.as_str()),
            Stored::Option(option) => (format!("option {}", option.full_name()), option.value_or_true()),
            Stored::KeyOption(option) => (format!("key {}", option.full_name()), option.value_or_true()),
        };
        (format!("{MARKER}{name}"), value)
    }
}

/// What an option's name and value stand for; `None`: they are an option's own.
pub fn stored_of(name: &str, value: &str) -> Option<Stored> {
    let value = || value.to_owned();
    Some(match name.strip_prefix(MARKER)? {
        "unlogged" => Stored::Unlogged,
        "tablespace" => Stored::Tablespace(value()),
        "method" => Stored::Method(value()),
        "compression" => Stored::Compression(value()),
        other => match other.split_once(' ')? {
            ("option", name) => Stored::Option(StorageOption::of(name.to_owned(), Some(value()))),
            ("key", name) => Stored::KeyOption(StorageOption::of(name.to_owned(), Some(value()))),
            _ => return None,
        },
    })
}

/// Leaves what was taken out of a definition in it.
pub(super) fn leave(statement: &mut Statement, stored: &[Stored]) {
    let option = |stored: &Stored| {
        let (name, value) = stored.marked();
        (Ident::new(name), Expr::Value(Value::SingleQuotedString(value.to_owned()).with_empty_span()))
    };
    match statement {
        Statement::CreateTable(create) if !stored.is_empty() => {
            let more = stored.iter().map(option).map(|(key, value)| SqlOption::KeyValue { key, value });
            match &mut create.table_options {
                CreateTableOptions::With(options) => options.extend(more),
                other => *other = CreateTableOptions::With(more.collect()),
            }
        }
        Statement::CreateIndex(create) => create.with.extend(stored.iter().map(option).map(|(key, value)| {
            let (left, right) = (Box::new(Expr::Identifier(key)), Box::new(value));
            Expr::BinaryOp { left, op: sqlparser::ast::BinaryOperator::Eq, right }
        })),
        _ => {}
    }
}

/// Takes what is said of storage out of CREATE TABLE, CREATE INDEX and ALTER TABLE, whose blanks are gone.
pub(super) fn take(tokens: &mut Vec<TokenWithSpan>) -> Vec<Stored> {
    let word = |at: usize| keyword(tokens.get(at));
    let kind = match word(0) {
        Keyword::CREATE => (1..4).map(word).find(|w| matches!(w, Keyword::TABLE | Keyword::INDEX | Keyword::VIEW)),
        Keyword::ALTER if word(1) == Keyword::TABLE => Some(Keyword::ALTER),
        _ => None,
    };
    match kind {
        Some(kind @ (Keyword::TABLE | Keyword::INDEX | Keyword::ALTER)) => taken(tokens, kind),
        _ => Vec::new(),
    }
}

fn taken(tokens: &mut Vec<TokenWithSpan>, kind: Keyword) -> Vec<Stored> {
    let mut stored = Vec::new();
    if kind == Keyword::TABLE && keyword(tokens.get(1)) == Keyword::UNLOGGED {
        tokens.remove(1);
        stored.push(Stored::Unlogged);
    }
    let (mut at, mut depth, mut starts_item) = (1, 0, false);
    while at < tokens.len() {
        let length = clause(tokens, at, (kind, depth, starts_item), &mut stored);
        if length > 0 {
            tokens.drain(at..at + length);
            continue;
        }
        starts_item = matches!(tokens[at].token, Token::LParen | Token::Comma);
        match tokens[at].token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            // A query follows.
            _ if kind == Keyword::TABLE && depth == 0 && keyword(tokens.get(at)) == Keyword::AS => break,
            _ => {}
        }
        at += 1;
    }
    stored
}

/// How many tokens from here on say how something is stored.
fn clause(
    tokens: &[TokenWithSpan],
    at: usize,
    (kind, depth, starts_item): (Keyword, i32, bool),
    stored: &mut Vec<Stored>,
) -> usize {
    let word = |at: usize| keyword(tokens.get(at));
    let is_key = kind == Keyword::ALTER && depth == 0 || kind == Keyword::TABLE && depth == 1;
    match word(at) {
        Keyword::USING if is_key && word(at + 1) == Keyword::INDEX && word(at + 2) == Keyword::TABLESPACE => {
            named(tokens, at + 3).map_or(0, |name| {
                stored.push(Stored::Tablespace(name));
                4
            })
        }
        Keyword::TABLESPACE if kind != Keyword::ALTER && depth == 0 => named(tokens, at + 1).map_or(0, |name| {
            stored.push(Stored::Tablespace(name));
            2
        }),
        Keyword::USING if kind == Keyword::TABLE && depth == 0 => named(tokens, at + 1).map_or(0, |name| {
            stored.push(Stored::Method(name));
            2
        }),
        Keyword::WITH if tokens.get(at + 1).is_some_and(|t| t.token == Token::LParen) => {
            let Some(close) = closing(tokens, at + 1) else { return 0 };
            let Some(options) = options_of(&tokens[at + 1..=close]) else { return 0 };
            stored.extend(options.into_iter().map(if is_key { Stored::KeyOption } else { Stored::Option }));
            close + 1 - at
        }
        _ if kind == Keyword::TABLE && depth == 1 && !starts_item && is_word(tokens.get(at), "compression") => {
            named(tokens, at + 1).map_or(0, |name| {
                stored.push(Stored::Compression(name));
                2
            })
        }
        _ => 0,
    }
}

fn named(tokens: &[TokenWithSpan], at: usize) -> Option<String> {
    match tokens.get(at).map(|t| &t.token) {
        Some(Token::Word(word)) if word.quote_style.is_some() => Some(word.value.clone()),
        Some(Token::Word(word)) => Some(word.value.to_lowercase()),
        _ => None,
    }
}

fn options_of(tokens: &[TokenWithSpan]) -> Option<Vec<StorageOption>> {
    let dialect = super::grammar::Grammar::default();
    let mut parser = super::parser_of(&dialect, tokens.to_vec());
    storage_options(&mut parser).ok()
}

/// `(name [= value], ...)`
pub(super) fn storage_options(p: &mut Parser<'_>) -> Result<Vec<StorageOption>, ParserError> {
    p.expect_token(&Token::LParen)?;
    let options = p.parse_comma_separated(|p| {
        let mut name = crate::bind::scope::fold(&p.parse_identifier()?);
        if p.consume_token(&Token::Period) {
            name = format!("{name}.{}", crate::bind::scope::fold(&p.parse_identifier()?));
        }
        let value = if p.consume_token(&Token::Eq) { Some(option_value(p)?) } else { None };
        Ok(StorageOption::of(name, value))
    })?;
    p.expect_token(&Token::RParen)?;
    Ok(options)
}

pub(super) fn option_value(p: &mut Parser<'_>) -> Result<String, ParserError> {
    let sign = if p.consume_token(&Token::Minus) { "-" } else { "" };
    let _ = sign.is_empty() && p.consume_token(&Token::Plus);
    match p.next_token().token {
        Token::Number(digits, _) => Ok(format!("{sign}{digits}")),
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) if sign.is_empty() => Ok(text),
        Token::Word(word) if sign.is_empty() => {
            Ok(if word.quote_style.is_some() { word.value } else { word.value.to_lowercase() })
        }
        _ => {
            p.prev_token();
            p.expected("a value", p.peek_token())
        }
    }
}
