//! GROUP BY in PostgreSQL's own words, told in those that sqlparser takes.
//!
//! | PostgreSQL | becomes |
//! |---|---|
//! | `GROUP BY ALL a, b` | `GROUP BY a, b`, which is the same |
//! | `GROUP BY DISTINCT a, ROLLUP (b)` | `GROUP BY "<marker>distinct", a, ROLLUP (b)`, which [`distinct_keys`] reads |
//! | `ROLLUP ((SELECT 1), (a + 1) * 2)` | `ROLLUP (((SELECT 1)), ((a + 1) * 2))`: the grammar takes the first parenthesis for that of several keys |
//! | `GROUPING SETS (GROUPING SETS ((), a), b)` | `GROUPING SETS ("<marker>grouping sets"("<marker>none", a), b)`, which [`is_sets`] and [`is_none`] tell |

use super::mend::{MARKER, closing, keyword, marked, spanned, words_of};
use sqlparser::ast::{Expr, Ident};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

const DISTINCT: &str = "distinct";
const SETS: &str = "grouping sets";
const NONE: &str = "none";
/// Each nested one moves the rest of the statement, which may be long; among more, nested ones are a syntax error.
const SETS_MAX: usize = 100;

/// The statement's tokens; without blanks if it groups.
pub(super) fn with_plain_groups(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words = |word: Keyword| tokens.iter().filter(|t| keyword(Some(t)) == word).count();
    if words(Keyword::GROUP) == 0 {
        return tokens;
    }
    let may_nest = words(Keyword::GROUPING) <= SETS_MAX;
    let mut tokens = words_of(tokens);
    // From the end, so that places before it stay.
    for at in (2..tokens.len()).rev() {
        quantifier(&mut tokens, at);
        if may_nest && begins_sets(&tokens, at) {
            sets_within(&mut tokens, at + 2);
        }
        if matches!(keyword(tokens.get(at - 1)), Keyword::ROLLUP | Keyword::CUBE | Keyword::SETS) {
            one_key_each(&mut tokens, at);
        }
    }
    tokens
}

/// ALL or DISTINCT behind GROUP BY.
fn quantifier(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let word = |at: usize| keyword(tokens.get(at));
    if word(at - 2) != Keyword::GROUP || word(at - 1) != Keyword::BY {
        return;
    }
    match word(at) {
        // Alone it would be another dialect's.
        Keyword::ALL if tokens.get(at + 1).is_some_and(|t| !matches!(t.token, Token::RParen | Token::EOF)) => {
            tokens.remove(at);
        }
        Keyword::DISTINCT => {
            let place = tokens[at].clone();
            tokens.splice(at..=at, [marked(DISTINCT), Token::Comma].map(|token| spanned(&place, token)));
        }
        _ => {}
    }
}

/// Parentheses around the entries of a list that begin with one which is not that of several keys.
fn one_key_each(tokens: &mut Vec<TokenWithSpan>, open: usize) {
    let opens = |at: usize| tokens.get(at).is_some_and(|token| token.token == Token::LParen);
    let Some(close) = closing(tokens, open).filter(|_| opens(open)) else { return };
    let mut depth = 0usize;
    let mut ends = Vec::new();
    for (at, token) in tokens.iter().enumerate().take(close).skip(open + 1) {
        match token.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
            Token::Comma if depth == 0 => ends.push(at),
            _ => {}
        }
    }
    ends.push(close);
    let firsts = std::iter::once(open + 1).chain(ends.iter().map(|end| end + 1));
    let is_one = |&(first, end): &(usize, usize)| {
        let is_query = matches!(keyword(tokens.get(first + 1)), Keyword::SELECT | Keyword::WITH | Keyword::VALUES);
        opens(first) && (is_query || closing(tokens, first).is_some_and(|closed| closed + 1 < end))
    };
    let entries: Vec<(usize, usize)> = firsts.zip(ends.iter().copied()).filter(is_one).collect();
    for (first, end) in entries.into_iter().rev() {
        for (at, token) in [(end, Token::RParen), (first, Token::LParen)] {
            let token = spanned(&tokens[at], token);
            tokens.insert(at, token);
        }
    }
}

fn begins_sets(tokens: &[TokenWithSpan], at: usize) -> bool {
    keyword(tokens.get(at)) == Keyword::GROUPING
        && keyword(tokens.get(at + 1)) == Keyword::SETS
        && tokens.get(at + 2).is_some_and(|t| t.token == Token::LParen)
}

/// GROUPING SETS within those whose parenthesis opens at `open`.
fn sets_within(tokens: &mut Vec<TokenWithSpan>, open: usize) {
    let Some(mut close) = closing(tokens, open) else { return };
    let mut at = open + 1;
    while at < close {
        if begins_sets(tokens, at) {
            let Some(end) = closing(tokens, at + 2) else { return };
            let mut inner: Vec<TokenWithSpan> = tokens[at + 2..=end].to_vec();
            for empty in (1..inner.len() - 1).rev() {
                // Not a call's.
                let begins = matches!(inner[empty - 1].token, Token::LParen | Token::Comma);
                if begins && inner[empty].token == Token::LParen && inner[empty + 1].token == Token::RParen {
                    let none = spanned(&inner[empty], marked(NONE));
                    inner.splice(empty..empty + 2, [none]);
                }
            }
            let sets = spanned(&tokens[at], marked(SETS));
            let before = tokens.len();
            tokens.splice(at..=end, std::iter::once(sets).chain(inner));
            close -= before - tokens.len();
        }
        at += 1;
    }
}

fn is_marked(ident: &Ident, text: &str) -> bool {
    ident.value.strip_prefix(MARKER) == Some(text)
}

/// What GROUP BY names, and whether sets that are equal count once.
pub fn distinct_keys(list: &[Expr]) -> (&[Expr], bool) {
    match list {
        [Expr::Identifier(first), keys @ ..] if is_marked(first, DISTINCT) => (keys, true),
        keys => (keys, false),
    }
}

/// Whether the function stands for GROUPING SETS.
#[cfg(feature = "query")]
pub fn is_sets(name: &sqlparser::ast::ObjectName) -> bool {
    name.0.first().and_then(|part| part.as_ident()).is_some_and(|ident| is_marked(ident, SETS))
}

/// Whether it stands for the set of no keys.
#[cfg(feature = "query")]
pub fn is_none(key: &Expr) -> bool {
    matches!(key, Expr::Identifier(ident) if is_marked(ident, NONE))
}

/// A text with marked names as its tree writes it, with PostgreSQL's words for those of GROUP BY.
pub(super) fn in_own_words(text: &str) -> String {
    let quoted = |name: &str| format!("\"{MARKER}{name}\"");
    text.replace(&format!("{}, ", quoted(DISTINCT)), "DISTINCT ")
        .replace(&format!("{}(", quoted(SETS)), "GROUPING SETS (")
        .replace(&quoted(NONE), "()")
}
