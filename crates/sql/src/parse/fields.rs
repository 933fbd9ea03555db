//! Rows among the outputs of a SELECT, which sqlparser does not take.
//!
//! | PostgreSQL | becomes |
//! |---|---|
//! | `SELECT (f(x)).*` | `SELECT "<marker>fields"(f(x))`, which [`row_of_fields`] reads |
//! | `SELECT t.* = u.*` | `SELECT (t.*) = u.*` |

use super::mend::{MARKER, keyword, marked, opening, spanned, words_of};
use sqlparser::ast::{Expr, Function};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

const FIELDS: &str = "fields";
/// Each moves the rest of the statement, which may be long; more are a syntax error.
const MENDED_MAX: usize = 100;

/// The statement's tokens; without blanks if fields are among the outputs.
pub(super) fn with_fields(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_star = |two: &[TokenWithSpan]| two[0].token == Token::Period && two[1].token == Token::Mul;
    if !tokens.windows(2).any(is_star) {
        return tokens;
    }
    let is_end = |three: &[TokenWithSpan]| three[0].token == Token::RParen && is_star(&three[1..]);
    let mut tokens = words_of(tokens);
    let is_compared = |four: &[TokenWithSpan]| is_star(&four[1..3]) && is_comparison(&four[3]);
    let mended = tokens.windows(4).filter(|four| is_end(&four[..3]) || is_compared(four)).count();
    if mended > MENDED_MAX {
        return tokens;
    }
    for at in (1..tokens.len().saturating_sub(3)).rev() {
        let is_row = matches!(tokens[at].token, Token::Word(_)) && is_star(&tokens[at + 1..at + 3]);
        if is_row && begins_output(&tokens, at) && is_comparison(&tokens[at + 3]) {
            let place = tokens[at].clone();
            tokens.insert(at + 3, spanned(&place, Token::RParen));
            tokens.insert(at, spanned(&place, Token::LParen));
        }
    }
    for close in (1..tokens.len().saturating_sub(2)).rev() {
        if !is_end(&tokens[close..close + 3]) {
            continue;
        }
        let Some(open) = opening(&tokens, close).filter(|&open| begins_output(&tokens, open)) else { continue };
        let name = spanned(&tokens[open], marked(FIELDS));
        tokens.drain(close + 1..close + 3);
        tokens.insert(open, name);
    }
    tokens
}

fn is_comparison(token: &TokenWithSpan) -> bool {
    let is_sign = matches!(token.token, Token::Eq | Token::Neq | Token::Lt | Token::Gt | Token::LtEq | Token::GtEq);
    is_sign || keyword(Some(token)) == Keyword::IS
}

fn begins_output(tokens: &[TokenWithSpan], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| tokens.get(before));
    let begins = matches!(keyword(before), Keyword::SELECT | Keyword::DISTINCT | Keyword::ALL | Keyword::RETURNING);
    begins || before.is_some_and(|t| t.token == Token::Comma)
}

/// The row whose fields are meant.
pub fn row_of_fields(function: &Function) -> Option<&Expr> {
    let name = function.name.0.first()?.as_ident()?.value.strip_prefix(MARKER)?;
    let args = crate::bind::expr::plain_args(&function.args).filter(|_| name == FIELDS)?;
    args.first().copied()
}

/// A text with marked names as its tree writes it, with PostgreSQL's form for fields.
pub(super) fn in_own_words(mut text: String) -> String {
    let marked = format!("\"{MARKER}{FIELDS}\"");
    while let Some(at) = text.find(&marked) {
        let (mut depth, mut quote) = (0, None);
        let end = text[at + marked.len()..].char_indices().find(|&(_, c)| {
            match (quote, c) {
                (Some(q), _) if q == c => quote = None,
                (Some(_), _) => {}
                (None, '\'' | '"') => quote = Some(c),
                (None, '(') => depth += 1,
                (None, ')') => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        if let Some((end, _)) = end {
            text.insert_str(at + marked.len() + end + 1, ".*");
        }
        text.replace_range(at..at + marked.len(), "");
    }
    text
}
