//! What is said of a session's prepared statements and cursors? PREPARE, EXECUTE, DEALLOCATE; DECLARE, FETCH, MOVE, CLOSE, and changes
//! WHERE CURRENT OF a cursor.

use super::words::Words;
use super::{parse_expressions, parse_types};
use crate::error::SqlError;
use sqlparser::ast::{DataType, Expr};
use sqlparser::tokenizer::{Token, TokenWithSpan};

#[derive(Clone, PartialEq, Debug)]
pub enum NamedStatement {
    Prepare {
        name: String,
        types: Vec<Option<DataType>>,
        sql: String,
    },
    Execute {
        around: Around,
        name: String,
        arguments: Vec<Expr>,
        /// Their text, and how many characters stand before it.
        sql: String,
        before: usize,
    },
    /// `None`: all.
    Deallocate(Option<String>),
    Declare {
        name: String,
        /// SCROLL or NO SCROLL.
        scroll: Option<bool>,
        hold: bool,
        sql: String,
    },
    Fetch {
        name: String,
        direction: Direction,
        /// MOVE: only goes there.
        moves: bool,
    },
    /// `None`: all.
    Close(Option<String>),
    /// UPDATE or DELETE of a cursor's row: the text before WHERE, and from RETURNING on.
    Current {
        cursor: String,
        before: String,
        after: String,
    },
}

/// What stands around an EXECUTE.
#[derive(Clone, PartialEq, Debug)]
pub enum Around {
    Nothing,
    /// What says EXPLAIN, and how.
    Explain(String),
    /// CREATE TABLE up to AS, and what stands behind the EXECUTE: WITH [NO] DATA.
    Create(String, String),
}

/// Where FETCH and MOVE go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// So many rows on, or back if negative; 0: the row it stands on.
    Forward(i64),
    ForwardAll,
    BackwardAll,
    /// From the end if negative.
    Absolute(i64),
    Relative(i64),
}

/// `None`: it is about something else.
pub fn parse_named(words: &[&TokenWithSpan], sql: &str) -> Result<Option<NamedStatement>, SqlError> {
    let mut words = Words { sql, words, at: 0 };
    let commands = ["prepare", "execute", "deallocate", "declare", "fetch", "move", "close", "update", "delete"];
    if let Some(create) = created(&mut words) {
        return execute(&mut words, Around::Create(create, String::new())).map(Some);
    }
    let around = explained(&mut words)?.map_or(Around::Nothing, Around::Explain);
    let named = match words.takes_one_of(&commands) {
        Some(1) => execute(&mut words, around)?,
        Some(0) => prepare(&mut words)?,
        Some(2) => {
            words.takes("prepare");
            NamedStatement::Deallocate(name_or_all(&mut words)?)
        }
        Some(3) => declare(&mut words)?,
        Some(4) => fetch(&mut words, false)?,
        Some(5) => fetch(&mut words, true)?,
        Some(6) => NamedStatement::Close(name_or_all(&mut words)?),
        Some(_) => return current(&mut words),
        None => return Ok(None),
    };
    words.expect_end()?;
    Ok(Some(named))
}

fn name_or_all(words: &mut Words<'_>) -> Result<Option<String>, SqlError> {
    if words.takes("all") { Ok(None) } else { words.name().map(Some) }
}

fn prepare(words: &mut Words<'_>) -> Result<NamedStatement, SqlError> {
    if words.is("transaction") {
        return Err(SqlError::unsupported("PREPARE TRANSACTION").at(words.position()));
    }
    let name = words.name()?;
    let mut types = Vec::new();
    if words.peek() == Some(&Token::LParen) {
        let (from, to) = words.parenthesized()?;
        for data_type in parse_types(words.text_between(from, to))? {
            let is_unknown = data_type.to_string().eq_ignore_ascii_case("unknown");
            types.push(Some(data_type).filter(|_| !is_unknown));
        }
    }
    words.expect("as")?;
    let sql = rest(words, &["select", "insert", "update", "delete", "values", "with", "table", "merge"])?;
    Ok(NamedStatement::Prepare { name, types, sql })
}

/// The rest of the text, a statement that begins with one of these words.
fn rest(words: &mut Words<'_>, commands: &[&str]) -> Result<String, SqlError> {
    let is_one = commands.iter().any(|command| words.is(command)) || words.peek() == Some(&Token::LParen);
    if !is_one {
        return Err(words.unexpected());
    }
    let sql = words.text_between(words.at, words.words.len()).to_owned();
    words.at = words.words.len();
    Ok(sql)
}

/// The text of an EXPLAIN before an EXECUTE, which comes next then. `None`: it explains something else, or nothing.
fn explained(words: &mut Words<'_>) -> Result<Option<String>, SqlError> {
    if !words.takes("explain") {
        return Ok(None);
    }
    if words.peek() == Some(&Token::LParen) {
        words.parenthesized()?;
    } else {
        words.takes("analyze");
        words.takes("verbose");
    }
    let is_execute = words.is("execute");
    let text = is_execute.then(|| words.text_between(0, words.at).to_owned());
    if !is_execute {
        words.at = 0;
    }
    Ok(text)
}

/// The text of a CREATE TABLE AS before its EXECUTE, which is passed. `None`: it is something else.
fn created(words: &mut Words<'_>) -> Option<String> {
    if !words.is("create") {
        return None;
    }
    let is = |at: usize, word: &str| words.words.get(at).is_some_and(|t| super::is_word(&t.token, word));
    // Not a query's `AS execute`: a query stands behind the AS that is meant.
    let mut depth = 0i32;
    let named = (1..words.words.len()).find(|&at| {
        match words.words[at].token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth == 0 && is(at, "as")
    })?;
    let execute = Some(named + 1).filter(|&at| is(at, "execute"))?;
    (1..4).any(|at| is(at, "table")).then(|| {
        words.at = execute + 1;
        words.text_between(0, execute).to_owned()
    })
}

fn execute(words: &mut Words<'_>, mut around: Around) -> Result<NamedStatement, SqlError> {
    let name = words.name()?;
    let mut sql = String::new();
    let mut before = 0;
    if words.peek() == Some(&Token::LParen) {
        let (from, to) = words.parenthesized()?;
        sql = words.text_between(from, to).to_owned();
        before = words.position_of(from).map_or(0, |position| position - 1);
    }
    let arguments =
        if sql.is_empty() { Vec::new() } else { parse_expressions(&sql).map_err(|error| moved(error, before))? };
    if let Around::Create(_, behind) = &mut around {
        let start = words.at;
        if words.takes("with") {
            words.takes("no");
            words.expect("data")?;
        }
        words.expect_end()?;
        *behind = words.text_between(start, words.at).to_owned();
    }
    Ok(NamedStatement::Execute { around, name, arguments, sql, before })
}

/// The position in the whole of an error in a part.
pub(crate) fn moved(mut error: SqlError, before: usize) -> SqlError {
    error.position = error.position.map(|position| position + before);
    error
}

fn declare(words: &mut Words<'_>) -> Result<NamedStatement, SqlError> {
    let name = words.name()?;
    let mut scroll = None;
    loop {
        match words.takes_one_of(&["binary", "insensitive", "asensitive", "scroll", "no", "cursor"]) {
            Some(0) => return Err(SqlError::unsupported("a BINARY cursor")),
            // Every cursor sees what its DECLARE saw.
            Some(1 | 2) => {}
            Some(3) => scroll = Some(true),
            Some(4) => {
                words.expect("scroll")?;
                scroll = Some(false);
            }
            Some(_) => break,
            None => return Err(words.unexpected()),
        }
    }
    let hold = match words.takes_one_of(&["with", "without"]) {
        None => false,
        Some(given) => {
            words.expect("hold")?;
            given == 0
        }
    };
    words.expect("for")?;
    let sql = rest(words, &["select", "values", "with", "table"])?;
    Ok(NamedStatement::Declare { name, scroll, hold, sql })
}

fn number(words: &mut Words<'_>) -> Result<Option<i64>, SqlError> {
    let start = words.at;
    let negative = words.takes_token(&Token::Minus);
    if !negative {
        words.takes_token(&Token::Plus);
    }
    let Some(Token::Number(digits, _)) = words.peek() else {
        if words.at > start {
            return Err(words.unexpected());
        }
        return Ok(None);
    };
    let Ok(value) = digits.parse::<i32>() else {
        return Err(words.unexpected());
    };
    words.at += 1;
    Ok(Some(if negative { -i64::from(value) } else { value.into() }))
}

fn fetch(words: &mut Words<'_>, moves: bool) -> Result<NamedStatement, SqlError> {
    let start = words.at;
    let directions = ["next", "prior", "first", "last", "absolute", "relative", "all", "forward", "backward"];
    let given = words.takes_one_of(&directions);
    let is_last = words.at == words.words.len();
    // `FETCH next` may mean a cursor of that name.
    let direction = if is_last {
        words.at = start;
        Direction::Forward(1)
    } else {
        direction(words, given)?
    };
    words.takes_one_of(&["from", "in"]);
    Ok(NamedStatement::Fetch { name: words.name()?, direction, moves })
}

fn direction(words: &mut Words<'_>, given: Option<usize>) -> Result<Direction, SqlError> {
    Ok(match given {
        Some(0) => Direction::Forward(1),
        Some(1) => Direction::Forward(-1),
        Some(2) => Direction::Absolute(1),
        Some(3) => Direction::Absolute(-1),
        Some(4 | 5) => match (number(words)?, given) {
            (Some(n), Some(4)) => Direction::Absolute(n),
            (Some(n), _) => Direction::Relative(n),
            (None, _) => return Err(words.unexpected()),
        },
        Some(6) => Direction::ForwardAll,
        Some(7) if words.takes("all") => Direction::ForwardAll,
        Some(8) if words.takes("all") => Direction::BackwardAll,
        Some(8) => Direction::Forward(-number(words)?.unwrap_or(1)),
        _ => Direction::Forward(number(words)?.unwrap_or(1)),
    })
}

/// `... WHERE CURRENT OF name [RETURNING ...]`.
fn current(words: &mut Words<'_>) -> Result<Option<NamedStatement>, SqlError> {
    let count = words.words.len();
    for at in 1..count.saturating_sub(3) {
        words.at = at;
        if !(words.takes("where") && words.takes("current") && words.takes("of")) {
            continue;
        }
        let cursor = words.name()?;
        if words.at < count && !words.is("returning") {
            return Err(words.unexpected());
        }
        let before = words.text_between(0, at).to_owned();
        let after = words.text_between(words.at, count).to_owned();
        return Ok(Some(NamedStatement::Current { cursor, before, after }));
    }
    Ok(None)
}
