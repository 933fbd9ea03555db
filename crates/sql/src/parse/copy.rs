//! What does a COPY say? PostgreSQL's grammar with the options of 9.0 and of before, which sqlparser has only in part.

use super::Offsets;
use super::words::Words;
use crate::error::SqlError;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// A COPY as it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyStatement {
    pub source: CopySource,
    pub into_table: bool,
    pub place: CopyPlace,
    pub options: Vec<CopyOption>,
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
    if words.is("where") {
        return Err(SqlError::unsupported("COPY with WHERE").at(words.position()));
    }
    match words.peek() {
        None => Ok(CopyStatement { source, into_table, place, options }),
        Some(_) => Err(words.unexpected()),
    }
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
