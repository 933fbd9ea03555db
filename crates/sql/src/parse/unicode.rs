//! `U&'...'` and `U&"..."`, with UESCAPE or without: texts and names whose letters may be written as numbers.
//!
//! The tokenizer reads a text without `U&` (two blanks stand for it, so that all stays at its place); what the numbers mean is put in behind it.

use super::{Offsets, is_word, position};
use crate::error::SqlError;
use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

/// The text with blanks for each `U&`, and where the quotation marks behind these stand; `None`: there is none.
pub(super) fn hidden(sql: &str) -> Option<(String, Vec<usize>)> {
    let bytes = sql.as_bytes();
    let may_be = memchr::memchr_iter(b'&', bytes).any(|at| begins(bytes, at.wrapping_sub(1)));
    if !may_be {
        return None;
    }
    let (mut at, mut quotes) = (0, Vec::new());
    while at < bytes.len() {
        at = match bytes[at] {
            b'u' | b'U' if begins(bytes, at) => {
                quotes.push(at + 2);
                quoted_end(bytes, at + 2, false)
            }
            b'\'' => {
                quoted_end(bytes, at, at > 0 && matches!(bytes[at - 1], b'e' | b'E') && !is_part_of_name(bytes, at - 1))
            }
            b'"' => quoted_end(bytes, at, false),
            b'-' if bytes[at..].starts_with(b"--") => {
                memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |end| at + end)
            }
            b'/' if bytes[at..].starts_with(b"/*") => comment_end(bytes, at),
            b'$' if !is_part_of_name(bytes, at) => dollar_end(bytes, at),
            _ => at + 1,
        };
    }
    if quotes.is_empty() {
        return None;
    }
    let mut text = sql.as_bytes().to_vec();
    quotes.iter().for_each(|&quote| text[quote - 2..quote].fill(b' '));
    Some((String::from_utf8(text).expect("blanks stand for ASCII letters"), quotes))
}

/// Whether `U&` and a quotation mark begin here.
fn begins(bytes: &[u8], at: usize) -> bool {
    let is_it = matches!(bytes.get(at..at.saturating_add(3)), Some([b'u' | b'U', b'&', b'\'' | b'"']));
    is_it && !is_part_of_name(bytes, at)
}

/// Whether a name goes on here.
fn is_part_of_name(bytes: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| bytes[before]);
    before.is_some_and(|b| b == b'_' || b == b'$' || b.is_ascii_alphanumeric() || !b.is_ascii())
}

fn quoted_end(bytes: &[u8], open: usize, escapes: bool) -> usize {
    let mut at = open + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if escapes => at += 1,
            b if b == bytes[open] && bytes.get(at + 1) == Some(&b) => at += 1,
            b if b == bytes[open] => return at + 1,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

fn comment_end(bytes: &[u8], open: usize) -> usize {
    let (mut at, mut depth) = (open, 0usize);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if bytes[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// Behind a `$tag$ ... $tag$` that begins here, or behind the sign.
fn dollar_end(bytes: &[u8], open: usize) -> usize {
    let is_tag = |b: &u8| *b == b'_' || b.is_ascii_alphanumeric() || !b.is_ascii();
    let tag = bytes[open + 1..].iter().take_while(|b| is_tag(b)).count();
    let delimiter = &bytes[open..bytes.len().min(open + tag + 2)];
    if !delimiter.ends_with(b"$") || delimiter.len() < 2 || bytes.get(open + 1).is_some_and(u8::is_ascii_digit) {
        return open + 1;
    }
    let rest = open + delimiter.len();
    memchr::memmem::find(&bytes[rest..], delimiter).map_or(bytes.len(), |end| rest + end + delimiter.len())
}

/// Puts into the tokens behind these quotation marks what their numbers mean.
pub(super) fn put(sql: &str, tokens: &mut [TokenWithSpan], quotes: &[usize]) -> Result<(), SqlError> {
    let mut offsets = Offsets::new(sql);
    let mut wanted = quotes.iter().copied().peekable();
    for at in 0..tokens.len() {
        let Some(&quote) = wanted.peek() else { break };
        let start = tokens[at].span.start;
        if offsets.advance_to(start) != quote {
            continue;
        }
        wanted.next();
        let escape = take_escape(sql, tokens, at)?;
        // The first letter behind the quotation mark.
        let first = position(sql, start).map_or(1, |quote| quote + 1);
        let text = match &mut tokens[at].token {
            Token::SingleQuotedString(text) => text,
            Token::Word(word) => &mut word.value,
            _ => continue,
        };
        *text = meant(text, escape, first)?;
    }
    Ok(())
}

/// The character behind UESCAPE, both of which become blanks.
fn take_escape(sql: &str, tokens: &mut [TokenWithSpan], at: usize) -> Result<char, SqlError> {
    let mut words = (at + 1..tokens.len()).filter(|&at| !matches!(tokens[at].token, Token::Whitespace(_)));
    let Some(word) = words.next().filter(|&word| is_word(&tokens[word].token, "uescape")) else { return Ok('\\') };
    let literal = words.next();
    let place = |at: usize| position(sql, tokens[at].span.start);
    let Some((literal, Token::SingleQuotedString(text))) = literal.map(|at| (at, &tokens[at].token)) else {
        let message = "UESCAPE must be followed by a simple string literal";
        return Err(SqlError::new("42601", message).at(literal.and_then(place)));
    };
    let mut letters = text.chars();
    let escape = letters.next().filter(|c| {
        letters.next().is_none() && !c.is_ascii_hexdigit() && !c.is_ascii_whitespace() && !matches!(c, '+' | '\'' | '"')
    });
    let Some(escape) = escape else {
        let message = format!("invalid Unicode escape character at or near \"{}\"", tokens[literal].token);
        return Err(SqlError::new("42601", message).at(place(literal)));
    };
    for at in [word, literal] {
        tokens[at].token = Token::Whitespace(Whitespace::Space);
    }
    Ok(escape)
}

/// `first`: where the text begins, in characters.
fn meant(text: &str, escape: char, first: usize) -> Result<String, SqlError> {
    let letters: Vec<char> = text.chars().collect();
    let refused = |message: &str, at: usize| SqlError::new("42601", message).at(Some(first + at));
    let (mut out, mut at, mut high) = (String::with_capacity(text.len()), 0, None);
    while at < letters.len() {
        let begins = letters[at] == escape && letters.get(at + 1) != Some(&escape);
        if !begins {
            if high.is_some() {
                return Err(refused("invalid Unicode surrogate pair", at));
            }
            out.push(letters[at]);
            at += 1 + usize::from(letters[at] == escape);
            continue;
        }
        let is_long = letters.get(at + 1) == Some(&'+');
        let (skipped, digits) = if is_long { (2, 6) } else { (1, 4) };
        let Some(code) = number(letters.get(at + skipped..at + skipped + digits)) else {
            let hint = "Unicode escapes must be \\XXXX or \\+XXXXXX.";
            return Err(refused("invalid Unicode escape", at).with_hint(hint));
        };
        let code = match (high.take(), code) {
            (None, 0xd800..=0xdbff) => {
                high = Some(code);
                at += skipped + digits;
                continue;
            }
            (Some(high), 0xdc00..=0xdfff) => 0x1_0000 + ((high - 0xd800) << 10) + (code - 0xdc00),
            (Some(_), _) | (None, 0xdc00..=0xdfff) => return Err(refused("invalid Unicode surrogate pair", at)),
            (None, code) => code,
        };
        match char::from_u32(code).filter(|c| *c != '\0') {
            Some(c) => out.push(c),
            None => return Err(refused("invalid Unicode escape value", at)),
        }
        at += skipped + digits;
    }
    match high {
        Some(_) => Err(refused("invalid Unicode surrogate pair", letters.len())),
        None => Ok(out),
    }
}

fn number(digits: Option<&[char]>) -> Option<u32> {
    digits?.iter().try_fold(0, |number, digit| Some(number << 4 | digit.to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotes(sql: &str) -> usize {
        hidden(sql).map_or(0, |(_, quotes)| quotes.len())
    }

    #[test]
    fn what_stands_in_texts_and_comments_is_no_literal() {
        assert_eq!(quotes(r#"select U&'a', u&"b""#), 2);
        assert_eq!(quotes("select xu&'a', 'U&''a', \"U&'\", E'\\'U&' /* U&'/*U&'*/ */ -- U&'"), 0);
        assert_eq!(quotes("select $$U&'$$, $t$ U&' $$ $t$, $1 + U&'a'"), 1);
        assert_eq!(quotes("select U&'a''U&''b'"), 1);
    }
}
