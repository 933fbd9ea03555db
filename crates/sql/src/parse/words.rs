//! Commands that are read word by word, where sqlparser has no grammar for them.

use super::{Offsets, near, span_position};
use crate::bind::scope::fold;
use crate::error::SqlError;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// The words of a command, taken from left to right.
pub(super) struct Words<'a> {
    pub sql: &'a str,
    pub words: &'a [&'a TokenWithSpan],
    pub at: usize,
}

impl Words<'_> {
    pub fn peek(&self) -> Option<&Token> {
        self.words.get(self.at).map(|t| &t.token)
    }

    pub fn position(&self) -> Option<usize> {
        self.position_of(self.at)
    }

    pub fn position_of(&self, word: usize) -> Option<usize> {
        self.words.get(word).and_then(|t| span_position(self.sql, t.span))
    }

    pub fn unexpected(&self) -> SqlError {
        match self.words.get(self.at) {
            Some(token) => near(self.sql, token),
            None => SqlError::new("42601", "syntax error at end of input").at(Some(self.sql.chars().count() + 1)),
        }
    }

    pub fn is(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Word(w)) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
    }

    pub fn takes(&mut self, word: &str) -> bool {
        let is = self.is(word);
        self.at += usize::from(is);
        is
    }

    pub fn takes_token(&mut self, token: &Token) -> bool {
        let is = self.peek() == Some(token);
        self.at += usize::from(is);
        is
    }

    pub fn expect_token(&mut self, token: &Token) -> Result<(), SqlError> {
        if self.takes_token(token) { Ok(()) } else { Err(self.unexpected()) }
    }

    pub fn name(&mut self) -> Result<String, SqlError> {
        let Some(Token::Word(word)) = self.peek() else {
            return Err(self.unexpected());
        };
        let name = fold(&word.to_ident(self.words[self.at].span));
        self.at += 1;
        Ok(name)
    }

    pub fn text(&mut self) -> Result<String, SqlError> {
        let text = match self.peek() {
            Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => text.clone(),
            Some(Token::DollarQuotedString(text)) => text.value.clone(),
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        Ok(text)
    }

    pub fn names(&mut self) -> Result<Vec<String>, SqlError> {
        let mut names = vec![self.name()?];
        while self.takes_token(&Token::Comma) {
            names.push(self.name()?);
        }
        Ok(names)
    }

    /// One of these words, by its place in the list.
    pub fn takes_one_of(&mut self, words: &[&str]) -> Option<usize> {
        words.iter().position(|word| self.takes(word))
    }

    pub fn expect(&mut self, word: &str) -> Result<(), SqlError> {
        if self.takes(word) { Ok(()) } else { Err(self.unexpected()) }
    }

    pub fn expect_end(&self) -> Result<(), SqlError> {
        if self.at == self.words.len() { Ok(()) } else { Err(self.unexpected()) }
    }

    /// The statement's text from the word at `from` up to the word at `to`, or to its end.
    pub fn text_between(&self, from: usize, to: usize) -> &str {
        let mut offsets = Offsets::new(self.sql);
        let mut offset = |at: usize| match self.words.get(at) {
            Some(token) => offsets.advance_to(token.span.start),
            None => self.sql.len(),
        };
        let start = offset(from);
        let end = offset(to);
        self.sql[start..end].trim_end_matches(|c: char| c == ';' || c.is_whitespace())
    }

    /// Passes what stands in parentheses; gives the places of its first word and of the closing one.
    pub fn parenthesized(&mut self) -> Result<(usize, usize), SqlError> {
        let open = self.at;
        let mut depth = 0usize;
        loop {
            match self.peek() {
                Some(Token::LParen) => depth += 1,
                Some(Token::RParen) => depth = depth.saturating_sub(1),
                Some(_) => {}
                None => return Err(self.unexpected()),
            }
            self.at += 1;
            if depth == 0 {
                return Ok((open + 1, self.at - 1));
            }
        }
    }
}
