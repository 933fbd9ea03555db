//! Does a text match a LIKE pattern? `%` is any run of characters, `_` one character, the escape makes the next one plain.
//!
//! Matching goes left to right and on failure only returns to the last `%`: a shorter run for an earlier one could not
//! match more. The time is at most length times pattern length.

use super::fault;
use crate::error::SqlError;

/// `escape`: `None` for `ESCAPE ''`. `fold`: ILIKE. Bytes that are not UTF-8 (of `bytea`) count as one character each.
pub fn like(value: &[u8], pattern: &[u8], escape: Option<char>, fold: bool) -> Result<bool, SqlError> {
    if fold {
        let lower = |bytes: &[u8]| super::text::lower(&String::from_utf8_lossy(bytes)).into_bytes();
        return matches(&lower(value), &lower(pattern), escape);
    }
    matches(value, pattern, escape)
}

/// As [`like`], with bytes for characters.
pub fn like_bytes(value: &[u8], pattern: &[u8], escape: Option<u8>) -> Result<bool, SqlError> {
    let (mut at, mut next) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let is_escape = pattern.get(next).is_some_and(|byte| escape == Some(*byte));
        let step = match pattern.get(next) {
            None if at == value.len() => return Ok(true),
            None => None,
            Some(b'%') if !is_escape => {
                next += 1;
                retry = Some((next, at));
                continue;
            }
            Some(_) if at == value.len() => None,
            Some(b'_') if !is_escape => Some(next + 1),
            Some(_) if is_escape => match pattern.get(next + 1) {
                None => return Err(fault::pattern_ends_with_escape()),
                Some(byte) => (value[at] == *byte).then_some(next + 2),
            },
            Some(byte) => (value[at] == *byte).then_some(next + 1),
        };
        match (step, retry) {
            (Some(after), _) => (at, next) = (at + 1, after),
            (None, Some((after, from))) if from < value.len() => {
                retry = Some((after, from + 1));
                (at, next) = (from + 1, after);
            }
            (None, _) => return Ok(false),
        }
    }
}

/// What an element of a pattern matches.
enum Element<'a> {
    Run,
    One,
    Plain(&'a [u8]),
    /// The escape, with nothing behind it: an error, should a character have to match it.
    Dangling,
}

fn matches(value: &[u8], pattern: &[u8], escape: Option<char>) -> Result<bool, SqlError> {
    let (mut at, mut next) = (0, 0);
    // Where to go on after a failure: the pattern after the last `%`, and the value from which it is tried next.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let step = match element(pattern, next, escape) {
            None if at == value.len() => return Ok(true),
            None => None,
            Some((Element::Run, after)) => {
                if after == pattern.len() {
                    return Ok(true);
                }
                match literal(&pattern[after..], escape) {
                    // Before another `%` its first place is as good as any.
                    Some((literal, false)) => match memchr::memmem::find(&value[at..], literal) {
                        Some(found) => {
                            (at, next) = (at + found + literal.len(), after + literal.len());
                            continue;
                        }
                        None => return Ok(false),
                    },
                    Some((literal, true)) => return Ok(value[at..].ends_with(literal)),
                    None => {}
                }
                retry = Some((after, at));
                next = after;
                continue;
            }
            Some((Element::Dangling, _)) if at < value.len() => return Err(fault::pattern_ends_with_escape()),
            Some((Element::One, after)) if at < value.len() => Some((at + char_length(value, at), after)),
            Some((Element::Plain(plain), after)) if value[at..].starts_with(plain) => Some((at + plain.len(), after)),
            Some(_) => None,
        };
        match (step, retry) {
            (Some((to, after)), _) => (at, next) = (to, after),
            (None, Some((after, from))) if from < value.len() => {
                let from = from + char_length(value, from);
                retry = Some((after, from));
                (at, next) = (from, after);
            }
            (None, _) => return Ok(false),
        }
    }
}

/// The plain text that a pattern begins with, and whether the pattern ends with it; `None` unless that or a `%` follows.
fn literal(pattern: &[u8], escape: Option<char>) -> Option<(&[u8], bool)> {
    let is_escape = |byte: u8| escape.is_some_and(|e| !e.is_ascii() || e as u32 == u32::from(byte));
    let end = pattern.iter().position(|&byte| byte == b'%' || byte == b'_' || is_escape(byte)).unwrap_or(pattern.len());
    match pattern.get(end) {
        None => Some((pattern, true)),
        Some(b'%') if end > 0 && !is_escape(b'%') => Some((&pattern[..end], false)),
        Some(_) => None,
    }
}

fn element(pattern: &[u8], at: usize, escape: Option<char>) -> Option<(Element<'_>, usize)> {
    let first = pattern.get(at)?;
    let length = char_length(pattern, at);
    let plain = &pattern[at..at + length];
    let mut buffer = [0; 4];
    if escape.is_some_and(|e| e.encode_utf8(&mut buffer).as_bytes() == plain) {
        let start = at + length;
        if start == pattern.len() {
            return Some((Element::Dangling, start));
        }
        let end = start + char_length(pattern, start);
        return Some((Element::Plain(&pattern[start..end]), end));
    }
    Some(match first {
        b'%' => (Element::Run, at + 1),
        b'_' => (Element::One, at + 1),
        _ => (Element::Plain(plain), at + length),
    })
}

fn char_length(bytes: &[u8], at: usize) -> usize {
    let length = match bytes[at] {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    };
    length.min(bytes.len() - at)
}

/// The text with which every match of a case-sensitive pattern begins; an index can search by it.
pub fn like_prefix(pattern: &[u8], escape: Option<char>) -> Vec<u8> {
    let (mut prefix, mut at) = (Vec::new(), 0);
    while let Some((Element::Plain(plain), after)) = element(pattern, at, escape) {
        prefix.extend_from_slice(plain);
        at = after;
    }
    prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_between_and_after_runs_are_found() {
        let like = |value: &str, pattern: &str| like(value.as_bytes(), pattern.as_bytes(), Some('\\'), false);
        for (value, pattern, expected) in [
            ("a special and a request", "%special%request%", true),
            ("a request, specially", "%special%request%", false),
            ("specialrequest", "%special%request%", true),
            ("LARGE BRUSHED BRASS", "%BRASS", true),
            ("LARGE BRASS BRUSHED", "%BRASS", false),
            ("aXbaXb", "%X_a%b", true),
            ("grün", "%ü%", true),
            ("grün", "%ü_", true),
            ("50%", "%\\%", true),
            ("50", "%\\%", false),
            ("ab", "%%b", true),
            ("", "%a%", false),
        ] {
            assert_eq!(like(value, pattern), Ok(expected), "{value} {pattern}");
        }
        assert_eq!(like("b", "%a%\\"), Ok(false));
        assert!(like("ba", "%\\").is_err());
    }
}
