//! SEARCH and CYCLE behind a query of WITH RECURSIVE, which sqlparser does not know.
//!
//! `t (a, b) AS (...) CYCLE a SET c USING p` becomes `t (a, b, "<marker>...") AS (...)`: behind its columns stands what [`walk_of`] reads.

use super::mend::{MARKER, is_word, keyword, marked, opening, spanned, words_of};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// How a recursion goes through what it finds.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Walk {
    pub search: Option<Search>,
    pub cycle: Option<Cycle>,
}

/// SEARCH: a column to sort by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Search {
    pub depth_first: bool,
    pub by: Vec<String>,
    pub set: String,
}

/// CYCLE: a column that tells that a row came twice on its way, and one with that way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cycle {
    pub columns: Vec<String>,
    pub set: String,
    /// As they are written.
    pub to: String,
    pub default: String,
    pub using: String,
}

const WALK: &str = "walk";
/// Between parts of a marker, and between names within one.
const PART: char = '\u{1}';
const NAME: char = '\u{2}';

/// The statement's tokens; without blanks if it may have such clauses.
pub(super) fn with_marked_walks(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let has = |word: Keyword| tokens.iter().any(|t| keyword(Some(t)) == word);
    if !has(Keyword::WITH) || !(has(Keyword::SEARCH) || has(Keyword::CYCLE)) {
        return tokens;
    }
    let mut tokens = words_of(tokens);
    // From the end, so that places before it stay.
    for at in (1..tokens.len()).rev() {
        let begins = matches!(keyword(tokens.get(at)), Keyword::SEARCH | Keyword::CYCLE);
        if begins && tokens[at - 1].token == Token::RParen {
            mark(&mut tokens, at);
        }
    }
    tokens
}

/// What is read of the tokens from a place on.
struct Reader<'t> {
    tokens: &'t [TokenWithSpan],
    at: usize,
}

impl Reader<'_> {
    fn takes(&mut self, text: &str) -> Option<()> {
        is_word(self.tokens.get(self.at), text).then(|| self.at += 1)
    }

    fn name(&mut self) -> Option<String> {
        let Token::Word(word) = &self.tokens.get(self.at)?.token else { return None };
        self.at += 1;
        Some(if word.quote_style.is_some() { word.value.clone() } else { word.value.to_lowercase() })
    }

    fn names(&mut self) -> Option<Vec<String>> {
        let mut names = vec![self.name()?];
        while self.tokens.get(self.at).is_some_and(|t| t.token == Token::Comma) {
            self.at += 1;
            names.push(self.name()?);
        }
        Some(names)
    }

    /// The words before one of these.
    fn words(&mut self, end: &str) -> Option<String> {
        let rest = self.tokens.get(self.at..)?;
        let count = rest.iter().position(|token| is_word(Some(token), end))?;
        let words: Vec<String> = rest[..count].iter().map(|token| token.token.to_string()).collect();
        self.at += count;
        (count > 0).then(|| words.join(" "))
    }

    fn search(&mut self) -> Option<Search> {
        self.takes("search")?;
        let depth_first = self.takes("depth").is_some();
        if !depth_first {
            self.takes("breadth")?;
        }
        self.takes("first")?;
        self.takes("by")?;
        let by = self.names()?;
        self.takes("set")?;
        Some(Search { depth_first, by, set: self.name()? })
    }

    fn cycle(&mut self) -> Option<Cycle> {
        self.takes("cycle")?;
        let columns = self.names()?;
        self.takes("set")?;
        let set = self.name()?;
        let (mut to, mut default) = ("true".to_owned(), "false".to_owned());
        if self.takes("to").is_some() {
            to = self.words("default")?;
            self.takes("default")?;
            default = self.words("using")?;
        }
        self.takes("using")?;
        Some(Cycle { columns, set, to, default, using: self.name()? })
    }
}

/// The clauses that begin at a place, behind the parenthesis of a query.
fn mark(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let mut reader = Reader { tokens, at };
    let mut walk = Walk::default();
    if keyword(tokens.get(at)) == Keyword::SEARCH {
        walk.search = reader.search();
        if walk.search.is_none() {
            return;
        }
    }
    if keyword(tokens.get(reader.at)) == Keyword::CYCLE {
        walk.cycle = reader.cycle();
        if walk.cycle.is_none() {
            return;
        }
    }
    let end = reader.at;
    let Some(behind) = behind_name(tokens, at - 1) else { return };
    let place = tokens[at].clone();
    let marker = marked(&marker_of(&walk));
    tokens.drain(at..end);
    let added = match tokens[behind - 1].token {
        Token::RParen => vec![(behind - 1, Token::Comma), (behind, marker)],
        _ => vec![(behind, Token::LParen), (behind + 1, marker), (behind + 2, Token::RParen)],
    };
    for (at, token) in added {
        tokens.insert(at, spanned(&place, token));
    }
}

/// The place behind the name and the columns of the query that closes at `close`.
fn behind_name(tokens: &[TokenWithSpan], close: usize) -> Option<usize> {
    let mut at = opening(tokens, close)?.checked_sub(1)?;
    if keyword(tokens.get(at)) == Keyword::MATERIALIZED {
        at = at.checked_sub(1)?;
        at = if keyword(tokens.get(at)) == Keyword::NOT { at.checked_sub(1)? } else { at };
    }
    (at > 0 && keyword(tokens.get(at)) == Keyword::AS).then_some(at)
}

/// What [`walk_of`] reads, behind the marker.
fn marker_of(walk: &Walk) -> String {
    let names = |names: &[String]| names.join(&NAME.to_string());
    let mut parts = vec![WALK.to_owned()];
    if let Some(Search { depth_first, by, set }) = &walk.search {
        parts.extend([if *depth_first { "depth" } else { "breadth" }.to_owned(), names(by), set.clone()]);
    }
    if let Some(Cycle { columns, set, to, default, using }) = &walk.cycle {
        parts.extend(["cycle".to_owned(), names(columns), set.clone(), to.clone(), default.clone(), using.clone()]);
    }
    parts.join(&PART.to_string())
}

/// Whether a text as its tree writes it has such clauses.
pub fn has_walk(text: &str) -> bool {
    text.contains(&format!("\"{MARKER}{WALK}{PART}"))
}

/// The clauses that a column behind the others stands for.
#[cfg(feature = "query")]
pub fn walk_of(column: &str) -> Option<Walk> {
    let mut parts = column.strip_prefix(MARKER)?.strip_prefix(WALK)?.strip_prefix(PART)?.split(PART).map(str::to_owned);
    let names = |names: String| names.split(NAME).map(str::to_owned).collect::<Vec<_>>();
    let mut walk = Walk::default();
    while let Some(kind) = parts.next() {
        let columns = names(parts.next()?);
        let set = parts.next()?;
        match kind.as_str() {
            "cycle" => {
                let [to, default, using] = [parts.next()?, parts.next()?, parts.next()?];
                walk.cycle = Some(Cycle { columns, set, to, default, using });
            }
            kind => walk.search = Some(Search { depth_first: kind == "depth", by: columns, set }),
        }
    }
    Some(walk)
}
