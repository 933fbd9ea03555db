//! What sqlparser does not take, told in words that it takes.
//!
//! | PostgreSQL | becomes |
//! |---|---|
//! | `BEGIN ISOLATION LEVEL SERIALIZABLE, [NOT] DEFERRABLE` | without the last words: nothing here is deferred |
//! | `FOR NO KEY UPDATE`, `FOR KEY SHARE`, `OF a, b` | `FOR UPDATE OF "<marker><strength>".a.b`, which [`locking`] reads |
//! | MERGE's `DO NOTHING` | `UPDATE SET "<marker>" = 0` or `INSERT ("<marker>") VALUES (0)`, which [`is_nothing`] tells |
//! | MERGE's `INSERT DEFAULT VALUES` | `INSERT VALUES (DEFAULT)` |
//! | `'a'` and on another line `'b'` | `'ab'` |
//! | `a OPERATOR(pg_catalog.=) ANY (b)` | `a = ANY (b)` |
//! | `a LIKE ANY (b)`, `a NOT ILIKE ALL (b)` | `a ~~ ANY (b)`, `a !~~* ALL (b)`, which the grammar takes with subqueries too |
//! | `SET a[1] = value` | `SET a = "<marker>"(value, 1)`, which [`super::element`] reads |
//! | `(t).*`, `SELECT (t.*)` | `t.*` |
//! | `TABLE t` | `SELECT * FROM t` |
//! | `FROM ONLY t` | `FROM t`: nothing is inherited |
//! | `CREATE RECURSIVE VIEW v (a) AS ...` | `CREATE VIEW v (a) AS WITH RECURSIVE v (a) AS (...) SELECT a FROM v` |
//! | `CREATE TABLE t (a, b) AS` | `CREATE TABLE t (a text, b text) AS`: the types are the query's |
//! | `CREATE TABLE t (CHECK (...) NOT VALID)` | without NOT VALID |
//! | `CREATE TABLE t (...) WITHOUT OIDS` | without them |
//! | `DROP DATABASE d WITH (FORCE)` | `DROP DATABASE d` |
//! | `EXPLAIN (SELECT ...)` | `EXPLAIN (COSTS) (SELECT ...)`: the grammar takes the first parenthesis for the options |
//! | `((SELECT ...) UNION ...)` as a value | `(SELECT * FROM ((SELECT ...) UNION ...) AS "<marker>")` |
//! | `IN ((SELECT ...), 1)` | `IN (COALESCE((SELECT ...)), 1)`: the grammar takes the first parenthesis for the whole |
//!
//! What stays keeps its place in the text, so errors point where they should.

use sqlparser::ast::{Ident, LockClause, LockType, ObjectName};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace, Word};

/// No identifier of a statement begins so: NUL is in no text.
pub(super) const MARKER: char = '\0';

/// How strongly a row is locked, weakest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RowLock {
    KeyShare,
    Share,
    NoKeyUpdate,
    Update,
}

impl RowLock {
    const ALL: [RowLock; 4] = [RowLock::KeyShare, RowLock::Share, RowLock::NoKeyUpdate, RowLock::Update];

    /// As in `SELECT ... FOR`.
    pub fn words(self) -> &'static str {
        match self {
            RowLock::KeyShare => "KEY SHARE",
            RowLock::Share => "SHARE",
            RowLock::NoKeyUpdate => "NO KEY UPDATE",
            RowLock::Update => "UPDATE",
        }
    }
}

/// What a clause locks, and how: no tables means all.
pub fn locking(clause: &LockClause) -> (RowLock, Vec<Ident>) {
    let plain = match clause.lock_type {
        LockType::Update => RowLock::Update,
        LockType::Share => RowLock::Share,
    };
    let parts = clause.of.iter().flat_map(|name| name.0.iter()).filter_map(|part| part.as_ident().cloned());
    let mut parts: Vec<Ident> = parts.collect();
    let marked = parts.first().and_then(|first| first.value.strip_prefix(MARKER).map(str::to_owned));
    match marked {
        None => (plain, parts),
        Some(words) => {
            parts.remove(0);
            (RowLock::ALL.into_iter().find(|lock| lock.words() == words).unwrap_or(plain), parts)
        }
    }
}

/// The same clause for all of the relations that it stands beside.
pub fn locking_all(clause: &LockClause) -> LockClause {
    let first = clause.of.iter().flat_map(|name| name.0.first());
    let mut marker = first.filter(|part| part.as_ident().is_some_and(|ident| ident.value.starts_with(MARKER)));
    let of = marker.next().cloned().map(|part| ObjectName(vec![part]));
    LockClause { of, ..clause.clone() }
}

pub(super) fn keyword(token: Option<&TokenWithSpan>) -> Keyword {
    match token.map(|t| &t.token) {
        Some(Token::Word(word)) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

pub(super) fn is_word(token: Option<&TokenWithSpan>, text: &str) -> bool {
    token.is_some_and(|t| super::is_word(&t.token, text))
}

/// The statement's tokens, blanks aside, as sqlparser takes them.
pub fn mend(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let tokens = with_joined_literals(tokens);
    let first = tokens.iter().find(|t| !matches!(t.token, Token::Whitespace(_)));
    if matches!(keyword(first), Keyword::BEGIN | Keyword::START | Keyword::SET) {
        return without_deferrable(tokens);
    }
    let tokens = super::forms::with_plain_forms(tokens);
    let tokens = super::joins::with_parentheses(tokens);
    let tokens = super::groups::with_plain_groups(tokens);
    let tokens = super::walks::with_marked_walks(tokens);
    let first = tokens.iter().find(|t| !matches!(t.token, Token::Whitespace(_)));
    let has = |tokens: &[TokenWithSpan], word| tokens.iter().any(|t| keyword(Some(t)) == word);
    let tokens = match keyword(first) {
        Keyword::CREATE => created(tokens),
        Keyword::DROP => dropped(tokens),
        Keyword::EXPLAIN => explained(tokens),
        _ => tokens,
    };
    let joins = [Keyword::UNION, Keyword::INTERSECT, Keyword::EXCEPT, Keyword::ORDER, Keyword::LIMIT, Keyword::FETCH];
    let joins = tokens.iter().any(|t| joins.contains(&keyword(Some(t))));
    let tokens = if joins { with_derived_values(words_of(tokens)) } else { tokens };
    let tokens = if has(&tokens, Keyword::TABLE) { without_table_queries(words_of(tokens)) } else { tokens };
    let tokens = if has(&tokens, Keyword::EXISTS) { with_outputs(words_of(tokens)) } else { tokens };
    let tokens = if has(&tokens, Keyword::ONLY) { without_only(words_of(tokens)) } else { tokens };
    let first = tokens.iter().find(|t| !matches!(t.token, Token::Whitespace(_)));
    let changes = matches!(keyword(first), Keyword::MERGE | Keyword::WITH) && has(&tokens, Keyword::MERGE);
    let tokens = if changes { merged(tokens) } else { tokens };
    let tokens = if has(&tokens, Keyword::INSERT) { with_bare_sources(words_of(tokens)) } else { tokens };
    let assigns = has(&tokens, Keyword::SET) || has(&tokens, Keyword::INTO);
    let has_parts = assigns && tokens.iter().any(|t| t.token == Token::LBracket);
    let tokens = if has_parts { super::element::with_parts(words_of(tokens)) } else { tokens };
    let tokens = if tokens.iter().any(|t| t.token == Token::Mul) {
        super::fields::with_fields(with_plain_rows(tokens))
    } else {
        tokens
    };
    let tokens = if has(&tokens, Keyword::OPERATOR) { with_plain_operators(words_of(tokens)) } else { tokens };
    let is_like = |t: &TokenWithSpan| matches!(keyword(Some(t)), Keyword::LIKE | Keyword::ILIKE);
    let tokens = if tokens.iter().any(is_like) { with_operators_for_likes(words_of(tokens)) } else { tokens };
    let tokens = if has(&tokens, Keyword::IN) { with_queries_in_lists(words_of(tokens)) } else { tokens };
    if has(&tokens, Keyword::FOR) { with_plain_locks(limits_before_locks(words_of(tokens))) } else { tokens }
}

fn begins_query(token: Option<&TokenWithSpan>) -> bool {
    matches!(keyword(token), Keyword::SELECT | Keyword::VALUES | Keyword::WITH | Keyword::TABLE)
}

/// Whether a query in parentheses that stands before is a part of a longer one.
fn goes_on(token: Option<&TokenWithSpan>) -> bool {
    use Keyword::{EXCEPT, FETCH, INTERSECT, LIMIT, OFFSET, ORDER, UNION};
    matches!(keyword(token), UNION | INTERSECT | EXCEPT | ORDER | LIMIT | OFFSET | FETCH)
}

/// INSERT of a query in parentheses: the grammar takes one for a list of columns, unless it begins with SELECT.
fn with_bare_sources(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut at = 0;
    while at + 1 < tokens.len() {
        if keyword(tokens.get(at)) == Keyword::INSERT && keyword(tokens.get(at + 1)) == Keyword::INTO {
            while let Some((open, close)) = source_in_parentheses(&tokens, at + 2) {
                if goes_on(tokens.get(close + 1)) {
                    // The first of several: `(SELECT * FROM (...) AS source)`.
                    let (first, last) = (tokens[open].clone(), tokens[close].clone());
                    let behind = [Token::make_keyword("AS"), Token::make_word("source", None), Token::RParen];
                    tokens.splice(close + 1..close + 1, behind.map(|token| spanned(&last, token)));
                    let [select, from] = ["SELECT", "FROM"].map(Token::make_keyword);
                    let before = [Token::LParen, select, Token::Mul, from];
                    tokens.splice(open..open, before.map(|token| spanned(&first, token)));
                    break;
                }
                tokens.remove(close);
                tokens.remove(open);
            }
        }
        at += 1;
    }
    tokens
}

/// The parentheses around the whole source of an INSERT whose target begins here.
fn source_in_parentheses(tokens: &[TokenWithSpan], target: usize) -> Option<(usize, usize)> {
    let is_open = |at: usize| tokens.get(at).is_some_and(|t| t.token == Token::LParen);
    let begins = |at: usize| is_open(at) && (begins_query(tokens.get(at + 1)) || is_open(at + 1));
    let mut open = (target..tokens.len()).find(|&at| is_open(at))?;
    if !begins(open) {
        // Columns, and perhaps OVERRIDING { SYSTEM | USER } VALUE.
        let behind = closing(tokens, open)? + 1;
        let overrides = is_word(tokens.get(behind), "overriding");
        open = if overrides { behind + 3 } else { behind };
    }
    let only_names = tokens[target..open].iter().all(|t| {
        let is_name =
            |w: &Word| !matches!(w.keyword, Keyword::SELECT | Keyword::VALUES | Keyword::WITH | Keyword::DEFAULT);
        !matches!(&t.token, Token::Word(word) if word.quote_style.is_none() && !is_name(word))
    });
    let close = closing(tokens, open).filter(|_| begins(open) && only_names)?;
    let ends = match tokens.get(close + 1) {
        None => true,
        Some(t) if matches!(t.token, Token::RParen | Token::SemiColon | Token::EOF) => true,
        word => goes_on(word) || matches!(keyword(word), Keyword::RETURNING | Keyword::ON),
    };
    let is_plain = keyword(tokens.get(open + 1)) == Keyword::SELECT;
    (ends && !is_plain).then_some((open, close))
}

/// EXPLAIN of a query in parentheses.
fn explained(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut words = words_of(tokens);
    let opens = words.iter().skip(1).take_while(|t| t.token == Token::LParen).count();
    if opens > 0 && begins_query(words.get(1 + opens)) {
        let option = [Token::LParen, Token::make_word("costs", None), Token::RParen];
        let place = words[0].clone();
        words.splice(1..1, option.map(|token| spanned(&place, token)));
    }
    words
}

/// A value that is a query whose first word stands in parentheses of its own.
fn with_derived_values(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    // Where each parenthesis closes, and where the first word stands behind it and those that follow.
    let (mut closes, mut open) = (vec![None; tokens.len()], Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => open.push(at),
            Token::RParen => {
                if let Some(opened) = open.pop() {
                    closes[opened] = Some(at);
                }
            }
            _ => {}
        }
    }
    let mut first = vec![tokens.len(); tokens.len() + 1];
    for at in (0..tokens.len()).rev() {
        first[at] = if tokens[at].token == Token::LParen { first[at + 1] } else { at };
    }
    let goes_on = |at: usize| goes_on(tokens.get(at));
    let is_value = |at: usize| match at.checked_sub(1).and_then(|before| tokens.get(before)).map(|t| &t.token) {
        Some(Token::Word(word)) => matches!(
            word.keyword,
            Keyword::SELECT
                | Keyword::ANY
                | Keyword::SOME
                | Keyword::ALL
                | Keyword::AND
                | Keyword::OR
                | Keyword::NOT
                | Keyword::WHEN
                | Keyword::THEN
                | Keyword::ELSE
                | Keyword::CASE
                | Keyword::WHERE
                | Keyword::BETWEEN
        ),
        Some(token) => !matches!(token, Token::RParen | Token::SemiColon),
        None => false,
    };
    let mut ends = Vec::new();
    let mut mended = Vec::with_capacity(tokens.len());
    for (at, token) in tokens.iter().enumerate() {
        let inner = tokens.get(at + 1).filter(|t| token.token == Token::LParen && t.token == Token::LParen);
        let close = inner.and_then(|_| closes[at + 1]).filter(|&close| goes_on(close + 1));
        if let (Some(_), Some(end)) = (close, closes[at])
            && begins_query(tokens.get(first[at]))
            && is_value(at)
        {
            let words = [Token::LParen, Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")];
            mended.extend(words.into_iter().map(|word| spanned(token, word)));
            ends.push(end);
        }
        mended.push(token.clone());
        if ends.last() == Some(&at) {
            ends.pop();
            let words = [Token::make_keyword("AS"), Token::make_word(&MARKER.to_string(), Some('"')), Token::RParen];
            mended.extend(words.into_iter().map(|word| spanned(token, word)));
        }
    }
    mended
}

/// `DROP INDEX CONCURRENTLY`: no reader waits for any. `DROP DATABASE d WITH (FORCE)`: there is none that others use.
fn dropped(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut words = words_of(tokens);
    let end = words.len();
    let is_forced = keyword(words.get(1)) == Keyword::DATABASE
        && end > 5
        && words[end - 3].token == Token::LParen
        && is_word(words.get(end - 2), "force")
        && words[end - 1].token == Token::RParen;
    if is_forced {
        words.truncate(end - 3);
        words.pop_if(|last| keyword(Some(last)) == Keyword::WITH);
    }
    if keyword(words.get(1)) == Keyword::INDEX && keyword(words.get(2)) == Keyword::CONCURRENTLY {
        words.remove(2);
    }
    words
}

/// `TABLE t` where a query begins. The grammar takes it, too, and with it whatever token stands behind the name.
fn without_table_queries(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let begins = |before: Option<&TokenWithSpan>| match before {
        None => true,
        Some(t) if matches!(t.token, Token::LParen | Token::RParen) => true,
        word => {
            let sets = [Keyword::UNION, Keyword::INTERSECT, Keyword::EXCEPT, Keyword::ALL, Keyword::DISTINCT];
            sets.contains(&keyword(word)) || keyword(word) == Keyword::AS
        }
    };
    let is_query = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        let named = matches!(tokens.get(at + 1).map(|t| &t.token), Some(Token::Word(_)));
        keyword(tokens.get(at)) == Keyword::TABLE && named && begins(before)
    };
    let mut mended = Vec::with_capacity(tokens.len());
    for (at, token) in tokens.iter().enumerate() {
        match is_query(at) {
            true => {
                let words = [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")];
                mended.extend(words.into_iter().map(|word| spanned(token, word)));
            }
            false => mended.push(token.clone()),
        }
    }
    mended
}

/// Literals that nothing but blanks with a new line parts are one.
fn with_joined_literals(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut joined: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    for token in tokens {
        if let Token::SingleQuotedString(more) = &token.token
            && let Some(last) = joined.iter().rposition(|t| !matches!(t.token, Token::Whitespace(_)))
            && is_line_break(&joined[last + 1..])
        {
            // Behind E'a' a backslash would mean something else than it was read as.
            let text = match &mut joined[last].token {
                Token::SingleQuotedString(text) => Some(text),
                Token::EscapedStringLiteral(text) if !more.contains('\\') => Some(text),
                _ => None,
            };
            if let Some(text) = text {
                text.push_str(more);
                joined.truncate(last + 1);
                continue;
            }
        }
        joined.push(token);
    }
    joined
}

fn is_line_break(blanks: &[TokenWithSpan]) -> bool {
    let breaks = |t: &TokenWithSpan| {
        matches!(t.token, Token::Whitespace(Whitespace::Newline | Whitespace::SingleLineComment { .. }))
    };
    let comments = |t: &TokenWithSpan| matches!(t.token, Token::Whitespace(Whitespace::MultiLineComment(_)));
    blanks.iter().any(breaks) && !blanks.iter().any(comments)
}

/// `OPERATOR(pg_catalog.=)` before ANY, ALL and SOME, as pg_dump and psql write it.
fn with_plain_operators(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    const WIDTH: usize = 6;
    let mut at = 0;
    while at + WIDTH < tokens.len() {
        let is_named = keyword(tokens.get(at)) == Keyword::OPERATOR
            && tokens[at + 1].token == Token::LParen
            && is_word(tokens.get(at + 2), "pg_catalog")
            && tokens[at + 3].token == Token::Period
            && tokens[at + 5].token == Token::RParen;
        if is_named && matches!(keyword(tokens.get(at + WIDTH)), Keyword::ANY | Keyword::ALL | Keyword::SOME) {
            let symbol = tokens[at + 4].clone();
            tokens.splice(at..at + WIDTH, [symbol]);
        }
        at += 1;
    }
    tokens
}

/// `[NOT] LIKE` before ANY, SOME and ALL as the operator that it is.
fn with_operators_for_likes(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    for at in (1..tokens.len()).rev() {
        let folds = match keyword(tokens.get(at)) {
            Keyword::LIKE => false,
            Keyword::ILIKE => true,
            _ => continue,
        };
        let is_quantified = matches!(keyword(tokens.get(at + 1)), Keyword::ANY | Keyword::ALL | Keyword::SOME)
            && tokens.get(at + 2).is_some_and(|t| t.token == Token::LParen);
        if !is_quantified {
            continue;
        }
        let is_negated = keyword(tokens.get(at - 1)) == Keyword::NOT;
        tokens[at].token = match (is_negated, folds) {
            (false, false) => Token::DoubleTilde,
            (false, true) => Token::DoubleTildeAsterisk,
            (true, false) => Token::ExclamationMarkDoubleTilde,
            (true, true) => Token::ExclamationMarkDoubleTildeAsterisk,
        };
        if is_negated {
            tokens.remove(at - 1);
        }
    }
    tokens
}

/// Without ONLY before the table that is read or changed.
fn without_only(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    use Keyword::{FROM, INTO, JOIN, ON, TRUNCATE, UPDATE, USING};
    // ON: of CREATE INDEX.
    let before = [FROM, UPDATE, JOIN, USING, TRUNCATE, INTO, ON];
    let mut at = 1;
    while at + 1 < tokens.len() {
        let is_only = keyword(tokens.get(at)) == Keyword::ONLY
            && before.contains(&keyword(tokens.get(at - 1)))
            && matches!(tokens[at + 1].token, Token::Word(_));
        if is_only {
            tokens.remove(at);
        }
        at += 1;
    }
    tokens
}

/// `EXISTS (SELECT)`, whose query has no outputs, with one.
fn with_outputs(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    for at in (3..tokens.len()).rev() {
        let is_empty = tokens[at].token == Token::RParen
            && keyword(tokens.get(at - 1)) == Keyword::SELECT
            && tokens[at - 2].token == Token::LParen
            && keyword(tokens.get(at - 3)) == Keyword::EXISTS;
        if is_empty {
            let output = spanned(&tokens[at], Token::Number("1".to_owned(), false));
            tokens.insert(at, output);
        }
    }
    tokens
}

/// CREATE TABLE without NOT VALID (all of its rows are) and NULLS DISTINCT, and with types for the columns that are named before AS.
fn created(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut tokens = words_of(tokens);
    if let Some(at) = tokens.iter().take(4).position(|t| keyword(Some(t)) == Keyword::RECURSIVE) {
        return recursive_view(tokens, at);
    }
    let Some(table) = tokens.iter().take(4).position(|t| keyword(Some(t)) == Keyword::TABLE) else { return tokens };
    let Some(open) = tokens.iter().position(|t| t.token == Token::LParen) else { return tokens };
    super::forms::like_columns(&mut tokens, open);
    super::forms::strict_columns(&mut tokens, open);
    for at in (1..tokens.len()).rev() {
        let has_no_oids = is_word(tokens.get(at), "oids") && keyword(tokens.get(at - 1)) == Keyword::WITHOUT;
        if has_no_oids && at > 1 && tokens[at - 2].token == Token::RParen {
            tokens.drain(at - 1..=at);
            continue;
        }
        let is_valid = is_word(tokens.get(at), "valid") && keyword(tokens.get(at - 1)) == Keyword::NOT;
        // As it is anyway.
        let is_distinct = keyword(tokens.get(at)) == Keyword::DISTINCT && is_word(tokens.get(at - 1), "nulls");
        if is_valid || is_distinct {
            tokens.drain(at - 1..=at);
        }
    }
    let Some(close) = closing(&tokens, open) else { return tokens };
    let names = &tokens[open + 1..close];
    let is_list = !names.len().is_multiple_of(2)
        && names.iter().enumerate().all(|(i, t)| match i % 2 {
            0 => matches!(t.token, Token::Word(_)),
            _ => t.token == Token::Comma,
        });
    let follows = tokens[close + 1..].iter().any(|t| keyword(Some(t)) == Keyword::AS);
    // Only the table's name stands before.
    let leads = tokens[table + 1..open].iter().all(|t| matches!(t.token, Token::Word(_) | Token::Period))
        && !tokens[table + 1..open].iter().any(|t| keyword(Some(t)) == Keyword::AS);
    if is_list && follows && leads {
        for at in (open + 1..close).step_by(2).rev() {
            let place = tokens[at].clone();
            tokens.insert(at + 1, spanned(&place, Token::make_keyword("TEXT")));
        }
    }
    tokens
}

/// A view of a recursive query, which has its name and columns.
fn recursive_view(mut tokens: Vec<TokenWithSpan>, at: usize) -> Vec<TokenWithSpan> {
    let open = tokens.iter().position(|t| t.token == Token::LParen);
    let Some((open, close)) = open.and_then(|open| Some((open, closing(&tokens, open)?))) else { return tokens };
    let is_view = keyword(tokens.get(at + 1)) == Keyword::VIEW && keyword(tokens.get(close + 1)) == Keyword::AS;
    if !is_view || open <= at + 2 {
        return tokens;
    }
    let place = tokens[at].clone();
    let put = |token: Token| spanned(&place, token);
    let word = |text: &str| put(Token::make_keyword(text));
    let (name, columns) = (tokens[open - 1].clone(), tokens[open + 1..close].to_vec());
    let mut query = vec![word("WITH"), word("RECURSIVE"), name.clone()];
    query.extend_from_slice(&tokens[open..=close]);
    query.extend([word("AS"), put(Token::LParen)]);
    query.extend(tokens.drain(close + 2..));
    query.extend([put(Token::RParen), word("SELECT")]);
    query.extend(columns);
    query.extend([word("FROM"), name]);
    tokens.extend(query);
    tokens.remove(at);
    tokens
}

/// Takes `WITH [NO] DATA` off the end of a CREATE; gives whether there are to be data.
pub fn take_with_data(tokens: &mut Vec<TokenWithSpan>) -> Option<bool> {
    let is_blank = |t: &TokenWithSpan| matches!(t.token, Token::Whitespace(_));
    let words: Vec<usize> = (0..tokens.len()).filter(|&i| !is_blank(&tokens[i])).collect();
    let word = |back: usize| words.len().checked_sub(back).and_then(|at| tokens.get(words[at]));
    if keyword(words.first().map(|&at| &tokens[at])) != Keyword::CREATE || !is_word(word(1), "data") {
        return None;
    }
    let no = usize::from(is_word(word(2), "no"));
    let with = 2 + no;
    if keyword(word(with)) != Keyword::WITH {
        return None;
    }
    let at = words[words.len() - with];
    tokens.truncate(at);
    Some(no == 0)
}

/// Takes `WITH [LOCAL | CASCADED] CHECK OPTION` off the end of a CREATE VIEW; gives the word that it has, or stands for.
pub fn take_check_option(tokens: &mut Vec<TokenWithSpan>) -> Option<&'static str> {
    let is_blank = |t: &TokenWithSpan| matches!(t.token, Token::Whitespace(_));
    let words: Vec<usize> = (0..tokens.len()).filter(|&i| !is_blank(&tokens[i])).collect();
    let word = |back: usize| words.len().checked_sub(back).and_then(|at| tokens.get(words[at]));
    let is_create = keyword(words.first().map(|&at| &tokens[at])) == Keyword::CREATE;
    if !is_create || !is_word(word(1), "option") || keyword(word(2)) != Keyword::CHECK {
        return None;
    }
    let (option, with) = match word(3) {
        local if is_word(local, "local") => ("local", 4),
        cascaded if is_word(cascaded, "cascaded") => ("cascaded", 4),
        _ => ("cascaded", 3),
    };
    if keyword(word(with)) != Keyword::WITH {
        return None;
    }
    let at = words[words.len() - with];
    tokens.truncate(at);
    Some(option)
}

/// `(t).*` without the parentheses, and `(t.*)` alone among outputs.
fn with_plain_rows(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is = |tokens: &[TokenWithSpan], at: usize, token: &Token| tokens.get(at).is_some_and(|t| t.token == *token);
    let is_row = |tokens: &[TokenWithSpan], at: usize| {
        is(tokens, at, &Token::LParen)
            && matches!(tokens.get(at + 1).map(|t| &t.token), Some(Token::Word(_)))
            && is(tokens, at + 2, &Token::RParen)
            && is(tokens, at + 3, &Token::Period)
            && is(tokens, at + 4, &Token::Mul)
    };
    let is_columns = |tokens: &[TokenWithSpan], at: usize| {
        at > 0
            && (tokens[at - 1].token == Token::Comma || keyword(tokens.get(at - 1)) == Keyword::SELECT)
            && is(tokens, at, &Token::LParen)
            && matches!(tokens.get(at + 1).map(|t| &t.token), Some(Token::Word(_)))
            && is(tokens, at + 2, &Token::Period)
            && is(tokens, at + 3, &Token::Mul)
            && is(tokens, at + 4, &Token::RParen)
            && (is(tokens, at + 5, &Token::Comma) || keyword(tokens.get(at + 5)) == Keyword::FROM)
    };
    let stars = |tokens: &[TokenWithSpan]| {
        tokens.windows(2).any(|pair| pair[0].token == Token::Period && pair[1].token == Token::Mul)
    };
    if !stars(&tokens) {
        return tokens;
    }
    let mut mended = words_of(tokens);
    let mut at = 0;
    while at < mended.len() {
        // Not the argument of a call: no name stands before it.
        let is_call = at > 0 && matches!(&mended[at - 1].token, Token::Word(w) if w.keyword == Keyword::NoKeyword);
        if is_row(&mended, at) && !is_call {
            mended.remove(at + 2);
            mended.remove(at);
        } else if is_columns(&mended, at) {
            mended.remove(at + 4);
            mended.remove(at);
        }
        at += 1;
    }
    mended
}

fn with_queries_in_lists(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let starts_list = |i: usize| {
        let opens = |i: usize| tokens.get(i).is_some_and(|t| t.token == Token::LParen);
        let first = (i + 1..).find(|&at| !opens(at)).unwrap_or(i);
        let query =
            matches!(keyword(tokens.get(first)), Keyword::SELECT | Keyword::VALUES | Keyword::WITH | Keyword::TABLE);
        keyword(tokens.get(i)) == Keyword::IN && first > i + 2 && query
    };
    if !(0..tokens.len()).any(starts_list) {
        return tokens;
    }
    let mut mended = tokens.clone();
    // From the end, so that places before it stay.
    for at in (0..tokens.len()).rev().filter(|&i| starts_list(i)) {
        let Some(close) = closing(&mended, at + 2) else { continue };
        // What goes on as a query is one; a list goes on with a comma or an operator.
        let goes_on = [
            Keyword::UNION,
            Keyword::INTERSECT,
            Keyword::EXCEPT,
            Keyword::ORDER,
            Keyword::LIMIT,
            Keyword::OFFSET,
            Keyword::FETCH,
        ];
        let is_query = |t: &TokenWithSpan| t.token == Token::RParen || goes_on.contains(&keyword(Some(t)));
        if mended.get(close + 1).is_some_and(|t| !is_query(t)) {
            let place = mended[at + 2].clone();
            mended.insert(close + 1, spanned(&place, Token::RParen));
            mended.insert(at + 2, spanned(&place, Token::LParen));
            mended.insert(at + 2, spanned(&place, Token::make_keyword("COALESCE")));
        }
    }
    mended
}

/// Where the parenthesis that opens at `open` closes.
pub(super) fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Where the parenthesis opens that closes at `close`.
pub(super) fn opening(tokens: &[TokenWithSpan], close: usize) -> Option<usize> {
    let mut depth = 0usize;
    (0..=close).rev().find(|&at| {
        match tokens[at].token {
            Token::RParen => depth += 1,
            Token::LParen => depth -= 1,
            _ => {}
        }
        depth == 0
    })
}

/// Whether the name marks MERGE's DO NOTHING.
#[cfg(feature = "query")]
pub fn is_nothing(name: &Ident) -> bool {
    name.value.starts_with(MARKER)
}

fn merged(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let tokens = words_of(tokens);
    let word = |at: usize| keyword(tokens.get(at));
    let mut mended: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut is_matched = true;
    let mut at = 0;
    while at < tokens.len() {
        let place = &tokens[at];
        let mut put = |new: &[Token]| mended.extend(new.iter().map(|token| spanned(place, token.clone())));
        if word(at) == Keyword::MATCHED {
            is_matched = at == 0 || word(at - 1) != Keyword::NOT;
        }
        if word(at) == Keyword::DO && is_word(tokens.get(at + 1), "nothing") && at > 0 && word(at - 1) == Keyword::THEN
        {
            let (name, zero) = (nothing(), Token::Number("0".to_owned(), false));
            match is_matched {
                true => put(&[Token::make_keyword("UPDATE"), Token::make_keyword("SET"), name, Token::Eq, zero]),
                false => {
                    put(&[Token::make_keyword("INSERT"), Token::LParen, name, Token::RParen]);
                    put(&[Token::make_keyword("VALUES"), Token::LParen, zero, Token::RParen]);
                }
            }
            at += 2;
        } else if word(at) == Keyword::DEFAULT && word(at + 1) == Keyword::VALUES {
            put(&[Token::make_keyword("VALUES"), Token::LParen, Token::make_keyword("DEFAULT"), Token::RParen]);
            at += 2;
        } else {
            mended.push(place.clone());
            at += 1;
        }
    }
    mended
}

fn nothing() -> Token {
    Token::Word(Word { value: MARKER.to_string(), quote_style: Some('"'), keyword: Keyword::NoKeyword })
}

pub(super) fn words_of(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    tokens.into_iter().filter(|t| !matches!(t.token, Token::Whitespace(_))).collect()
}

fn without_deferrable(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    // A setting's name or value is none of the modes.
    if !tokens.iter().any(|t| is_word(Some(t), "deferrable")) || tokens.iter().any(|t| t.token == Token::Eq) {
        return tokens;
    }
    let mut mended: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    for token in words_of(tokens) {
        if !is_word(Some(&token), "deferrable") {
            mended.push(token);
            continue;
        }
        mended.pop_if(|last| keyword(Some(last)) == Keyword::NOT);
        // A comma goes with the mode that it led to.
        mended.pop_if(|last| last.token == Token::Comma);
    }
    // After DEFERRABLE as the first mode.
    let leads = |t: &TokenWithSpan| {
        matches!(keyword(Some(t)), Keyword::BEGIN | Keyword::TRANSACTION | Keyword::WORK | Keyword::START)
    };
    if let Some(at) = mended.iter().position(|t| t.token == Token::Comma)
        && at > 0
        && leads(&mended[at - 1])
    {
        mended.remove(at);
    }
    mended
}

fn with_plain_locks(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let tokens = words_of(tokens);
    let mut mended = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        let Some((lock, words)) = lock_at(&tokens[at..]) else {
            mended.push(tokens[at].clone());
            at += 1;
            continue;
        };
        mended.push(tokens[at].clone());
        let of = at + 1 + words;
        let (tables, next) = tables_at(&tokens, of);
        let plain = if lock <= RowLock::Share { "SHARE" } else { "UPDATE" };
        let place = &tokens[at + 1];
        mended.push(spanned(place, Token::make_keyword(plain)));
        let is_plain = matches!(lock, RowLock::Share | RowLock::Update) && tables.len() <= 1;
        if !is_plain || !tables.is_empty() {
            mended.push(spanned(place, Token::make_keyword("OF")));
            let mut name = vec![];
            if !is_plain {
                name.push(spanned(place, marker(lock)));
            }
            name.extend(tables.into_iter().cloned());
            for (i, part) in name.into_iter().enumerate() {
                if i > 0 {
                    mended.push(spanned(&part, Token::Period));
                }
                mended.push(part);
            }
        }
        at = next;
    }
    mended
}

/// LIMIT, OFFSET and FETCH may stand behind the locking clauses too.
fn limits_before_locks(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut at = 0;
    while at < tokens.len() {
        let mut behind = at;
        while let Some((_, words)) = lock_at(&tokens[behind..]) {
            behind = tables_at(&tokens, behind + 1 + words).1;
            behind += match keyword(tokens.get(behind)) {
                Keyword::NOWAIT => 1,
                Keyword::SKIP => 2,
                _ => 0,
            };
        }
        let limits = [Keyword::LIMIT, Keyword::OFFSET, Keyword::FETCH];
        if behind > at && limits.contains(&keyword(tokens.get(behind))) {
            let end = limits_end(&tokens, behind);
            tokens[at..end].rotate_left(behind - at);
            at = end;
            continue;
        }
        at = behind.max(at + 1);
    }
    tokens
}

/// Where the limits of a query end that begin here.
fn limits_end(tokens: &[TokenWithSpan], from: usize) -> usize {
    const NEXT: &[Keyword] =
        &[Keyword::FOR, Keyword::RETURNING, Keyword::ON, Keyword::UNION, Keyword::INTERSECT, Keyword::EXCEPT];
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 0 => return at,
            Token::RParen => depth -= 1,
            Token::SemiColon => return at,
            _ if depth == 0 && NEXT.contains(&keyword(Some(token))) => return at,
            _ => {}
        }
    }
    tokens.len()
}

pub(super) fn spanned(place: &TokenWithSpan, token: Token) -> TokenWithSpan {
    TokenWithSpan { token, span: place.span }
}

/// A name that no user gives.
pub(super) fn marked(text: &str) -> Token {
    Token::Word(Word { value: format!("{MARKER}{text}"), quote_style: Some('"'), keyword: Keyword::NoKeyword })
}

fn marker(lock: RowLock) -> Token {
    marked(lock.words())
}

/// A locking clause that begins here: its strength, and its words after FOR.
fn lock_at(tokens: &[TokenWithSpan]) -> Option<(RowLock, usize)> {
    if keyword(tokens.first()) != Keyword::FOR {
        return None;
    }
    let word = |i: usize| keyword(tokens.get(i));
    match (word(1), word(2), word(3)) {
        (Keyword::UPDATE, ..) => Some((RowLock::Update, 1)),
        (Keyword::SHARE, ..) => Some((RowLock::Share, 1)),
        (Keyword::NO, Keyword::KEY, Keyword::UPDATE) => Some((RowLock::NoKeyUpdate, 3)),
        (Keyword::KEY, Keyword::SHARE, _) => Some((RowLock::KeyShare, 2)),
        _ => None,
    }
}

/// The tables after OF, if it stands at `at`, and what comes after them.
fn tables_at(tokens: &[TokenWithSpan], at: usize) -> (Vec<&TokenWithSpan>, usize) {
    let mut tables = Vec::new();
    if keyword(tokens.get(at)) != Keyword::OF {
        return (tables, at);
    }
    let mut next = at + 1;
    while let Some(table) = tokens.get(next).filter(|t| matches!(t.token, Token::Word(_))) {
        tables.push(table);
        next += 1;
        if tokens.get(next).is_none_or(|t| t.token != Token::Comma) {
            break;
        }
        next += 1;
    }
    (tables, next)
}
