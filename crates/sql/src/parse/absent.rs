//! What kinds of objects can there be none of here? Scripts begin by dropping what they will make: with IF EXISTS nothing is to be done, else
//! nothing of the kind is there.

use super::{is_word, near};
use crate::error::SqlError;
use crate::notice::Notice;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// A command on an object that is not there, or, of the one extension that PostgreSQL always has, is.
#[derive(Debug)]
pub struct Absent {
    pub tag: &'static str,
    pub notices: Vec<Notice>,
}

/// The words of a kind, its tag, and what messages call it.
const KINDS: &[(&[&str], &str, &str)] = &[
    (&["aggregate"], "DROP AGGREGATE", "aggregate"),
    (&["collation"], "DROP COLLATION", "collation"),
    (&["domain"], "DROP DOMAIN", "type"),
    (&["event", "trigger"], "DROP EVENT TRIGGER", "event trigger"),
    (&["extension"], "DROP EXTENSION", "extension"),
    (&["foreign", "table"], "DROP FOREIGN TABLE", "foreign table"),
    (&["function"], "DROP FUNCTION", "function"),
    (&["materialized", "view"], "DROP MATERIALIZED VIEW", "materialized view"),
    (&["policy"], "DROP POLICY", "policy"),
    (&["procedure"], "DROP PROCEDURE", "procedure"),
    (&["publication"], "DROP PUBLICATION", "publication"),
    (&["routine"], "DROP ROUTINE", "routine"),
    (&["rule"], "DROP RULE", "rule"),
    (&["server"], "DROP SERVER", "server"),
    (&["statistics"], "DROP STATISTICS", "statistics object"),
    (&["subscription"], "DROP SUBSCRIPTION", "subscription"),
    (&["trigger"], "DROP TRIGGER", "trigger"),
    (&["type"], "DROP TYPE", "type"),
];

/// `DROP kind [IF EXISTS] name, ...`, and `CREATE EXTENSION IF NOT EXISTS plpgsql`.
pub(super) fn absent(words: &[&TokenWithSpan], sql: &str) -> Result<Option<Absent>, SqlError> {
    let is = |at: usize, text: &str| words.get(at).is_some_and(|t| is_word(&t.token, text));
    let are = |at: usize, texts: &[&str]| texts.iter().enumerate().all(|(i, text)| is(at + i, text));
    let is_language = words.get(5).is_some_and(|t| matches!(&t.token, Token::Word(w) if w.value == "plpgsql"));
    if are(0, &["create", "extension", "if", "not", "exists"]) && is_language {
        let notice = Notice::new("42710", "extension \"plpgsql\" already exists, skipping");
        return Ok(Some(Absent { tag: "CREATE EXTENSION", notices: vec![notice] }));
    }
    if !is(0, "drop") {
        return Ok(None);
    }
    let Some((kind, tag, called)) = KINDS.iter().find(|(kind, ..)| are(1, kind)) else { return Ok(None) };
    let is_asked = are(1 + kind.len(), &["if", "exists"]);
    let first = 1 + kind.len() + if is_asked { 2 } else { 0 };
    let mut names = Names { words, at: first };
    let mut notices = Vec::new();
    loop {
        let Some(name) = names.name() else {
            return Err(words
                .get(names.at)
                .map_or_else(|| SqlError::new("42601", "syntax error at end of input"), |token| near(sql, token)));
        };
        let arguments = names.parenthesized();
        let of = (is(names.at, "on")).then(|| {
            names.at += 1;
            names.name().unwrap_or_default()
        });
        let of = of.map(|relation| format!(" for relation \"{relation}\"")).unwrap_or_default();
        let name = match *called {
            "function" | "procedure" | "routine" | "aggregate" => format!("{name}({})", arguments.unwrap_or_default()),
            _ => format!("\"{name}\""),
        };
        let message = format!("{called} {name}{of} does not exist");
        if !is_asked {
            let sqlstate = match *called {
                "function" | "procedure" | "routine" | "aggregate" => "42883",
                "materialized view" | "foreign table" => "42P01",
                _ => "42704",
            };
            return Err(SqlError::new(sqlstate, message));
        }
        notices.push(Notice::new("00000", format!("{message}, skipping")));
        if !names.comma() {
            break;
        }
    }
    names.at += usize::from(is(names.at, "cascade") || is(names.at, "restrict"));
    match words.get(names.at) {
        None => Ok(Some(Absent { tag, notices })),
        Some(token) => Err(near(sql, token)),
    }
}

/// Reads names among the words.
struct Names<'a> {
    words: &'a [&'a TokenWithSpan],
    at: usize,
}

impl Names<'_> {
    fn token(&self) -> Option<&Token> {
        self.words.get(self.at).map(|t| &t.token)
    }

    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        loop {
            let Some(Token::Word(word)) = self.token() else { return None };
            name.push_str(&if word.quote_style.is_some() { word.value.clone() } else { word.value.to_lowercase() });
            self.at += 1;
            if self.token() != Some(&Token::Period) {
                return Some(name);
            }
            name.push('.');
            self.at += 1;
        }
    }

    /// What stands between parentheses, if they come next.
    fn parenthesized(&mut self) -> Option<String> {
        if self.token() != Some(&Token::LParen) {
            return None;
        }
        let close = self.words[self.at..].iter().position(|t| t.token == Token::RParen)? + self.at;
        let mut text = String::new();
        for token in &self.words[self.at + 1..close] {
            match &token.token {
                Token::Comma => text.push(','),
                other => {
                    let blank = if text.is_empty() || text.ends_with(',') { "" } else { " " };
                    text.push_str(&format!("{blank}{other}"));
                }
            }
        }
        self.at = close + 1;
        Some(text)
    }

    fn comma(&mut self) -> bool {
        let is_there = self.token() == Some(&Token::Comma);
        self.at += usize::from(is_there);
        is_there
    }
}
