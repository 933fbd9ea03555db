//! `SET a[1] = value`, which sqlparser does not take: it becomes `SET a = "<marker>"(value, 1)`.

use super::mend::{MARKER, keyword, spanned};
use sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, FunctionArguments};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

const ELEMENT: &str = "element";
const SLICE: &str = "slice";

/// What is assigned to a part of a column.
pub struct Part<'a> {
    pub value: &'a Expr,
    /// One for each dimension or level; of a slice its two bounds.
    pub subscripts: Vec<&'a Expr>,
    pub is_slice: bool,
}

/// The part of its column that a value is for; `None`: it is for all of it.
pub fn part_of(value: &Expr) -> Option<Part<'_>> {
    let Expr::Function(function) = value else { return None };
    let name = function.name.0.first()?.as_ident()?.value.strip_prefix(MARKER)?;
    let FunctionArguments::List(list) = &function.args else { return None };
    let plain = |arg| match arg {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref expr)) => Some(expr),
        _ => None,
    };
    let mut args = list.args.iter().filter_map(plain);
    Some(Part { value: args.next()?, subscripts: args.collect(), is_slice: name == SLICE })
}

/// The statement's tokens without blanks, with calls for what is assigned to parts.
pub(super) fn with_parts(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut mended = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        let begins = keyword(tokens.get(at)) == Keyword::SET;
        mended.push(tokens[at].clone());
        at += 1;
        if !begins {
            continue;
        }
        at = assignment(&tokens, at, &mut mended);
        while tokens.get(at).is_some_and(|t| t.token == Token::Comma) {
            mended.push(tokens[at].clone());
            at = assignment(&tokens, at + 1, &mut mended);
        }
    }
    mended
}

/// Writes the assignment that begins here; gives where it ends.
fn assignment(tokens: &[TokenWithSpan], at: usize, mended: &mut Vec<TokenWithSpan>) -> usize {
    let end = value_end(tokens, at);
    let Some((name, subscripts, value)) = parts(tokens, at, end) else {
        mended.extend_from_slice(&tokens[at..end]);
        return end;
    };
    let place = &tokens[at];
    let put = |token: Token| spanned(place, token);
    let marker = Word { value: format!("{MARKER}{name}"), quote_style: Some('"'), keyword: Keyword::NoKeyword };
    mended.extend([place.clone(), put(Token::Eq), put(Token::Word(marker)), put(Token::LParen)]);
    mended.extend_from_slice(value);
    for subscript in subscripts {
        mended.push(put(Token::Comma));
        mended.extend_from_slice(subscript);
    }
    mended.push(put(Token::RParen));
    end
}

type Parts<'a> = (&'static str, Vec<&'a [TokenWithSpan]>, &'a [TokenWithSpan]);

/// The subscripts of a target, and the value; `None`: it has none, or is written otherwise.
fn parts(tokens: &[TokenWithSpan], at: usize, end: usize) -> Option<Parts<'_>> {
    if !matches!(tokens.get(at)?.token, Token::Word(_)) {
        return None;
    }
    let mut subscripts: Vec<&[TokenWithSpan]> = Vec::new();
    let mut next = at + 1;
    while tokens.get(next).is_some_and(|t| t.token == Token::LBracket) {
        let close = closing(tokens, next).filter(|&close| close < end)?;
        subscripts.push(&tokens[next + 1..close]);
        next = close + 1;
    }
    let is_assigned = tokens.get(next).is_some_and(|t| t.token == Token::Eq) && next + 1 < end;
    if subscripts.is_empty() || subscripts.iter().any(|subscript| subscript.is_empty()) || !is_assigned {
        return None;
    }
    let value = &tokens[next + 1..end];
    let colon = |subscript: &&[TokenWithSpan]| colon_of(subscript).is_some();
    match subscripts.as_slice() {
        [one] if colon(one) => {
            let (lower, upper) = one.split_at(colon_of(one)?);
            let upper = &upper[1..];
            (!lower.is_empty() && !upper.is_empty()).then(|| (SLICE, vec![lower, upper], value))
        }
        several if several.iter().any(colon) => None,
        _ => Some((ELEMENT, subscripts, value)),
    }
}

/// How much deeper it is after a token.
fn step(token: &Token) -> isize {
    match token {
        Token::LParen | Token::LBracket => 1,
        Token::RParen | Token::RBracket => -1,
        _ => 0,
    }
}

fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0;
    (open..tokens.len()).find(|&at| {
        depth += step(&tokens[at].token);
        depth == 0
    })
}

fn colon_of(subscript: &[TokenWithSpan]) -> Option<usize> {
    let mut depth = 0;
    subscript.iter().position(|t| {
        depth += step(&t.token);
        depth == 0 && t.token == Token::Colon
    })
}

/// Where an assignment's value ends.
fn value_end(tokens: &[TokenWithSpan], at: usize) -> usize {
    let (mut depth, mut cases) = (0, 0);
    for (i, token) in tokens.iter().enumerate().skip(at) {
        depth += step(&token.token);
        let ends = match keyword(Some(token)) {
            _ if depth < 0 => true,
            _ if depth > 0 => false,
            Keyword::CASE => {
                cases += 1;
                false
            }
            Keyword::END => {
                cases -= 1;
                false
            }
            Keyword::WHEN => cases == 0,
            Keyword::WHERE | Keyword::RETURNING => true,
            Keyword::FROM => keyword(tokens.get(i.wrapping_sub(1))) != Keyword::DISTINCT,
            _ => matches!(token.token, Token::Comma | Token::SemiColon | Token::EOF),
        };
        if ends {
            return i;
        }
    }
    tokens.len()
}
