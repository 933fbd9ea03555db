//! What does a COPY say? PostgreSQL's grammar with the options of 9.0 and of before, which sqlparser has only in part.

use super::Offsets;
use super::words::Words;
use crate::error::SqlError;
use sqlparser::ast::{self, SetExpr};
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// A COPY as it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyStatement {
    pub source: CopySource,
    pub into_table: bool,
    pub place: CopyPlace,
    pub options: Vec<CopyOption>,
    pub condition: Option<CopyCondition>,
}

/// WHERE: which of the rows that come are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyCondition {
    /// As long as the statement, with the condition at its place.
    pub sql: String,
    pub expr: Box<ast::Expr>,
}

/// An option as it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyOption {
    pub name: String,
    pub value: OptionValue,
    /// Where its name stands.
    pub position: Option<usize>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CopySource {
    Table {
        /// As it is written, schema included.
        name: String,
        columns: Vec<String>,
    },
    /// The query's text.
    Query(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CopyPlace {
    /// STDIN, STDOUT.
    Client,
    File(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OptionValue {
    None,
    Text(String),
    List(Vec<String>),
    Star,
}

/// `words` begin with COPY.
pub fn parse_copy(words: &[&TokenWithSpan], sql: &str) -> Result<CopyStatement, SqlError> {
    let mut words = Words { sql, words, at: 1 };
    let is_binary = words.takes("binary");
    let source = words.source()?;
    let into_table = match (words.takes("from"), &source) {
        (true, CopySource::Table { .. }) => true,
        (false, _) if words.takes("to") => false,
        _ => {
            words.at -= usize::from(words.at == words.words.len());
            return Err(words.unexpected());
        }
    };
    let place = words.place()?;
    let mut options = Vec::new();
    if is_binary {
        let value = OptionValue::Text("binary".to_owned());
        options.push(CopyOption { name: "format".to_owned(), value, position: None });
    }
    words.takes("with");
    if words.takes_token(&Token::LParen) {
        words.options(&mut options)?;
    } else {
        words.old_options(&mut options)?;
    }
    let is_of_table = matches!(source, CopySource::Table { .. });
    let condition = if is_of_table && words.is("where") { Some(words.condition(into_table)?) } else { None };
    words.expect_end()?;
    Ok(CopyStatement { source, into_table, place, options, condition })
}

impl Words<'_> {
    fn source(&mut self) -> Result<CopySource, SqlError> {
        if self.peek() == Some(&Token::LParen) {
            return self.query();
        }
        let start = self.at;
        self.name()?;
        while self.takes_token(&Token::Period) {
            self.name()?;
        }
        let text = |t: &&TokenWithSpan| match &t.token {
            Token::Word(word) => word.to_ident(t.span).to_string(),
            other => other.to_string(),
        };
        let name = self.words[start..self.at].iter().map(text).collect();
        let columns = if self.takes_token(&Token::LParen) {
            let names = self.names()?;
            self.expect_token(&Token::RParen)?;
            names
        } else {
            Vec::new()
        };
        Ok(CopySource::Table { name, columns })
    }

    /// The text between the parentheses.
    fn query(&mut self) -> Result<CopySource, SqlError> {
        let mut depth = 0usize;
        let first = self.words[self.at];
        loop {
            match self.peek() {
                Some(Token::LParen) => depth += 1,
                Some(Token::RParen) => depth -= 1,
                Some(_) => {}
                None => return Err(self.unexpected()),
            }
            if depth == 0 {
                break;
            }
            self.at += 1;
        }
        let mut offsets = Offsets::new(self.sql);
        let start = offsets.advance_to(first.span.start) + 1;
        let end = offsets.advance_to(self.words[self.at].span.start);
        self.at += 1;
        Ok(CopySource::Query(self.sql[start..end].to_owned()))
    }

    /// The condition is read as that of a SELECT, whose text is the statement's from there on.
    fn condition(&mut self, into_table: bool) -> Result<CopyCondition, SqlError> {
        if !into_table {
            let error = SqlError::new("42601", "WHERE clause not allowed with COPY TO").at(self.position());
            return Err(error.with_hint("Try the COPY (SELECT ...) TO variant."));
        }
        let start = Offsets::new(self.sql).advance_to(self.words[self.at].span.start);
        let blanks = self.sql[..start].chars().count() - "select 1".len();
        let sql = format!("select 1{}{}", " ".repeat(blanks), &self.sql[start..]);
        let first = self.at;
        self.at += 1;
        self.pass_condition()?;
        let no_condition = |words: &Words<'_>| words.unexpected();
        let Some(query) = super::parse(&sql)?.query() else { return Err(no_condition(self)) };
        let SetExpr::Select(mut select) = *query.body else { return Err(no_condition(self)) };
        let Some(expr) = select.selection.take().filter(|_| self.at > first + 1) else {
            return Err(no_condition(self));
        };
        Ok(CopyCondition { sql, expr: Box::new(expr) })
    }

    /// Goes to the end of the condition: what of a SELECT may stand behind it, may not here.
    fn pass_condition(&mut self) -> Result<(), SqlError> {
        const CLAUSES: [&str; 11] =
            ["group", "having", "window", "union", "intersect", "except", "order", "limit", "offset", "fetch", "for"];
        while let Some(token) = self.peek() {
            match token {
                Token::LParen => drop(self.parenthesized()?),
                Token::Placeholder(name) => {
                    let message = format!("there is no parameter {name}");
                    return Err(SqlError::new("42P02", message).at(self.position()));
                }
                _ if CLAUSES.iter().any(|clause| self.is(clause)) => return Err(self.unexpected()),
                _ => self.at += 1,
            }
        }
        Ok(())
    }

    fn place(&mut self) -> Result<CopyPlace, SqlError> {
        if self.takes("stdin") || self.takes("stdout") {
            return Ok(CopyPlace::Client);
        }
        if self.is("program") {
            return Err(SqlError::unsupported("COPY with PROGRAM").at(self.position()));
        }
        Ok(CopyPlace::File(self.text()?))
    }

    fn options(&mut self, options: &mut Vec<CopyOption>) -> Result<(), SqlError> {
        loop {
            let position = self.position();
            let name = self.name()?.to_lowercase();
            options.push(CopyOption { name, value: self.option_value()?, position });
            if !self.takes_token(&Token::Comma) {
                return self.expect_token(&Token::RParen);
            }
        }
    }

    fn option_value(&mut self) -> Result<OptionValue, SqlError> {
        let value = match self.peek() {
            Some(Token::Comma | Token::RParen) => return Ok(OptionValue::None),
            Some(Token::Mul) => OptionValue::Star,
            Some(Token::Number(number, _)) => OptionValue::Text(number.clone()),
            Some(Token::Word(_)) => return Ok(OptionValue::Text(self.name()?)),
            Some(Token::LParen) => {
                self.at += 1;
                let names = self.names()?;
                self.expect_token(&Token::RParen)?;
                return Ok(OptionValue::List(names));
            }
            _ => return Ok(OptionValue::Text(self.text()?)),
        };
        self.at += 1;
        Ok(value)
    }

    /// The options of before 9.0, which need no parentheses.
    fn old_options(&mut self, options: &mut Vec<CopyOption>) -> Result<(), SqlError> {
        loop {
            let position = self.position();
            let mut put = |name: &str, value: OptionValue| {
                options.push(CopyOption { name: name.to_owned(), value, position });
            };
            if self.takes("binary") {
                put("format", OptionValue::Text("binary".to_owned()));
            } else if self.takes("csv") {
                put("format", OptionValue::Text("csv".to_owned()));
            } else if self.takes("header") {
                put("header", OptionValue::None);
            } else if self.takes("freeze") {
                put("freeze", OptionValue::None);
            } else if self.takes("force") {
                if self.takes("quote") {
                    let value = match self.takes_token(&Token::Mul) {
                        true => OptionValue::Star,
                        false => OptionValue::List(self.names()?),
                    };
                    put("force_quote", value);
                    continue;
                }
                let name = if self.takes("not") { "force_not_null" } else { "force_null" };
                if !self.takes("null") {
                    return Err(self.unexpected());
                }
                put(name, OptionValue::List(self.names()?));
            } else {
                let Some(name) = ["delimiter", "delimiters", "null", "quote", "escape", "encoding"]
                    .into_iter()
                    .find(|name| self.is(name))
                else {
                    return Ok(());
                };
                self.at += 1;
                self.takes("as");
                put(name.trim_end_matches('s'), OptionValue::Text(self.text()?));
            }
        }
    }
}
