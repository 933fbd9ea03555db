//! Regular expressions: PostgreSQL's advanced ones, run by the crate `regex`.
//!
//! What that crate lacks (references to groups, looking ahead) is 2201B, not another answer. It takes of alternatives the first that
//! matches, where PostgreSQL takes the longest: `docs/compat.md` says so.

use super::arguments::{Arguments, text};
use crate::error::SqlError;
use crate::value::Datum;
use crate::value::array::Array;
use freshet_engine::schema::Type;
use regex::{Captures, Match, Regex, RegexBuilder};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

type Result<T = Datum> = std::result::Result<T, SqlError>;

/// How an expression is to be read.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Flags {
    insensitive: bool,
    /// `.` and brackets do not match a newline, `^` and `$` match at one.
    newline: bool,
    anchors: bool,
    expanded: bool,
    literal: bool,
    global: bool,
}

impl Flags {
    fn of(letters: &str) -> Result<Flags> {
        let mut flags = Flags::default();
        for letter in letters.chars() {
            match letter {
                'g' => flags.global = true,
                'i' => flags.insensitive = true,
                'c' => flags.insensitive = false,
                'n' | 'm' => (flags.newline, flags.anchors) = (true, true),
                'p' => (flags.newline, flags.anchors) = (true, false),
                'w' => (flags.newline, flags.anchors) = (false, true),
                's' => (flags.newline, flags.anchors) = (false, false),
                'x' => flags.expanded = true,
                't' => flags.expanded = false,
                'q' => flags.literal = true,
                'e' | 'b' => {}
                _ => {
                    let message = format!("invalid regular expression option: \"{letter}\"");
                    return Err(SqlError::new("22023", message));
                }
            }
        }
        Ok(flags)
    }
}

thread_local! {
    /// The expressions of late.
    static COMPILED: RefCell<HashMap<(String, Flags), Rc<Regex>>> = RefCell::default();
}

const KEPT_MAX: usize = 64;

fn compiled(pattern: &str, flags: Flags) -> Result<Rc<Regex>> {
    let key = (pattern.to_owned(), flags);
    if let Some(known) = COMPILED.with(|c| c.borrow().get(&key).cloned()) {
        return Ok(known);
    }
    let made = Rc::new(compile(pattern, flags)?);
    COMPILED.with(|c| {
        let mut known = c.borrow_mut();
        if known.len() >= KEPT_MAX {
            known.clear();
        }
        known.insert(key, made.clone());
    });
    Ok(made)
}

fn wrong(reason: impl std::fmt::Display) -> SqlError {
    SqlError::new("2201B", format!("invalid regular expression: {reason}"))
}

fn compile(pattern: &str, mut flags: Flags) -> Result<Regex> {
    let mut pattern = pattern;
    if let Some(rest) = pattern.strip_prefix("***=") {
        (pattern, flags.literal) = (rest, true);
    }
    pattern = pattern.strip_prefix("***:").unwrap_or(pattern);
    if !flags.literal
        && let Some((letters, rest)) = pattern.strip_prefix("(?").and_then(|p| p.split_once(')'))
        && !letters.is_empty()
        && letters.bytes().all(|b| b.is_ascii_lowercase())
    {
        let own = Flags::of(letters)?;
        flags = Flags { global: flags.global, insensitive: flags.insensitive || own.insensitive, ..own };
        pattern = rest;
    }
    let source = if flags.literal { regex::escape(pattern) } else { translated(pattern)? };
    RegexBuilder::new(&source)
        .case_insensitive(flags.insensitive)
        .multi_line(flags.anchors)
        .dot_matches_new_line(!flags.newline)
        .ignore_whitespace(flags.expanded)
        .size_limit(32 << 20)
        .build()
        .map_err(|e| wrong(e.to_string().lines().last().unwrap_or("it cannot be read").trim_start_matches("error: ")))
}

/// The expression in the crate's words.
fn translated(pattern: &str) -> Result<String> {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut chars = pattern.chars().peekable();
    // How often what stands last was quantified: a second time only by `?`, which makes it lazy.
    let mut quantified = 0;
    while let Some(c) = chars.next() {
        let is_count = c == '{' && chars.peek().is_some_and(char::is_ascii_digit);
        if is_count || matches!(c, '*' | '+' | '?') {
            quantified += 1;
            if quantified > 2 || quantified == 2 && c != '?' {
                return Err(wrong("quantifier operand invalid"));
            }
            out.push(c);
            while is_count && !out.ends_with('}') {
                out.push(chars.next().ok_or_else(|| wrong("braces {} not balanced"))?);
            }
            continue;
        }
        quantified = 0;
        match c {
            '\\' => match chars.next().ok_or_else(|| wrong("invalid escape \\ sequence"))? {
                'm' => out.push_str(r"\b{start}"),
                'M' => out.push_str(r"\b{end}"),
                'y' => out.push_str(r"\b"),
                'Y' => out.push_str(r"\B"),
                'A' => out.push_str(r"\A"),
                'Z' => out.push_str(r"\z"),
                'e' => out.push_str(r"\x1B"),
                'B' => out.push_str(r"\\"),
                '0' => out.push_str(r"\x00"),
                digit @ '1'..='9' => {
                    return Err(SqlError::unsupported(format!("a regular expression with the reference \\{digit}")));
                }
                other if other.is_ascii_alphabetic() => out.extend(['\\', other]),
                other => out.push_str(&regex::escape(&other.to_string())),
            },
            '[' => bracket(&mut chars, &mut out)?,
            '(' if chars.peek() == Some(&'?') => {
                chars.next();
                match chars.next() {
                    Some(':') => out.push_str("(?:"),
                    Some('=' | '!' | '<') => {
                        return Err(SqlError::unsupported("a regular expression that looks ahead or behind"));
                    }
                    _ => return Err(wrong("quantifier operand invalid")),
                }
            }
            // No number follows: the brace stands for itself.
            '{' => out.push_str(r"\{"),
            other => out.push(other),
        }
    }
    Ok(out)
}

/// What stands between `[:` and `:]`; the last two mean where words begin and end.
const CLASSES: [&str; 15] = [
    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit", "<", ">",
];

/// A bracket expression up to its end: only classes and ranges mean something in it.
fn bracket(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) -> Result<()> {
    let unbalanced = || wrong("brackets [] not balanced");
    let start = out.len();
    out.push('[');
    if chars.peek() == Some(&'^') {
        out.push('^');
        chars.next();
    }
    let mut first = true;
    loop {
        match chars.next().ok_or_else(unbalanced)? {
            ']' if !first => {
                out.push(']');
                // Word boundaries in their old form.
                for (old, new) in [("[[:<:]]", r"\b{start}"), ("[[:>:]]", r"\b{end}")] {
                    if &out[start..] == old {
                        out.replace_range(start.., new);
                    }
                }
                return Ok(());
            }
            ']' => out.push_str(r"\]"),
            '[' => match chars.peek() {
                Some(':') => {
                    let mut class = String::from("[");
                    while !class.ends_with(":]") || class.len() < 4 {
                        class.push(chars.next().ok_or_else(unbalanced)?);
                    }
                    if !CLASSES.contains(&&class[2..class.len() - 2]) {
                        return Err(wrong("invalid character class"));
                    }
                    out.push_str(&class);
                }
                Some('=' | '.') => {
                    return Err(SqlError::unsupported("a collating element in a regular expression"));
                }
                _ => out.push_str(r"\["),
            },
            '\\' => match chars.next().ok_or_else(unbalanced)? {
                letter if letter.is_ascii_alphabetic() => out.extend(['\\', letter]),
                other => out.push_str(&regex::escape(&other.to_string())),
            },
            c @ ('&' | '~') => out.extend(['\\', c]),
            c => out.push(c),
        }
        first = false;
    }
}

/// Whether the text has what the expression says anywhere.
pub fn matches_regex(value: &[u8], pattern: &[u8], insensitive: bool) -> Result<bool> {
    let text = |bytes| std::str::from_utf8(bytes).expect("invariant: texts are UTF-8");
    Ok(compiled(text(pattern), Flags { insensitive, ..Flags::default() })?.is_match(text(value)))
}

fn is_match(a: &Arguments<'_>, insensitive: bool) -> Result<bool> {
    Ok(compiled(a.text(1), Flags { insensitive, ..Flags::default() })?.is_match(a.text(0)))
}

pub(super) fn matches(a: &Arguments<'_>) -> Result {
    is_match(a, false).map(Datum::Bool)
}

pub(super) fn matches_folded(a: &Arguments<'_>) -> Result {
    is_match(a, true).map(Datum::Bool)
}

pub(super) fn differs(a: &Arguments<'_>) -> Result {
    is_match(a, false).map(|found| Datum::Bool(!found))
}

pub(super) fn differs_folded(a: &Arguments<'_>) -> Result {
    is_match(a, true).map(|found| Datum::Bool(!found))
}

/// A `SIMILAR TO` pattern as a regular expression; the part between `\"`s, if there are two, is a group. What stands before it takes as
/// little as it can.
fn similar_pattern(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut out = String::from("^(?:");
    let mut chars = pattern.chars();
    let mut quotes = 0;
    // Where they end: before the first quote they turn out to be lazy.
    let mut quantifiers = Vec::new();
    let mut in_bracket = false;
    while let Some(c) = chars.next() {
        if Some(c) == escape {
            let next = chars.next().ok_or_else(|| SqlError::new("22025", "invalid escape sequence"))?;
            if next == '"' && !in_bracket {
                quotes += 1;
                match quotes {
                    1 => {
                        quantifiers.drain(..).rev().for_each(|end| out.insert(end, '?'));
                        out.push_str(")(");
                    }
                    2 => out.push_str(")(?:"),
                    _ => {
                        let message =
                            "SQL regular expression may not contain more than two escape-double-quote separators";
                        return Err(SqlError::new("2200C", message));
                    }
                }
            } else {
                out.extend(['\\', next]);
            }
            continue;
        }
        match c {
            ']' if in_bracket => {
                in_bracket = false;
                out.push(c);
            }
            _ if in_bracket => out.push(c),
            '[' => {
                in_bracket = true;
                out.push(c);
            }
            '%' | '*' | '+' | '?' | '}' => {
                out.push_str(if c == '%' { "." } else { "" });
                out.push(if c == '%' { '*' } else { c });
                quantifiers.push(out.len());
            }
            '_' => out.push('.'),
            '(' => out.push_str("(?:"),
            '\\' | '.' | '^' | '$' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out.push_str(")$");
    Ok(out)
}

fn escape_of(a: &Arguments<'_>, at: usize) -> Result<Option<char>> {
    let mut chars = a.text(at).chars();
    match (chars.next(), chars.next()) {
        (first, None) => Ok(first),
        _ => {
            Err(SqlError::new("22025", "invalid escape string")
                .with_hint("Escape string must be empty or one character."))
        }
    }
}

pub(super) fn similar(a: &Arguments<'_>) -> Result {
    let pattern = similar_pattern(a.text(1), escape_of(a, 2)?)?;
    Ok(Datum::Bool(compiled(&pattern, Flags::default())?.is_match(a.text(0))))
}

pub(super) fn substring_similar(a: &Arguments<'_>) -> Result {
    let pattern = similar_pattern(a.text(1), escape_of(a, 2)?)?;
    let regex = compiled(&pattern, Flags::default())?;
    Ok(first_part(&regex, a.text(0)))
}

/// The first group of the first match, or the match without one.
fn first_part(regex: &Regex, value: &str) -> Datum {
    let Some(found) = regex.captures(value) else {
        return Datum::Null;
    };
    let part = if regex.captures_len() > 1 { found.get(1) } else { found.get(0) };
    part.map_or(Datum::Null, |part| text(part.as_str()))
}

pub(super) fn substring(a: &Arguments<'_>) -> Result {
    let regex = compiled(a.text(1), Flags::default())?;
    Ok(first_part(&regex, a.text(0)))
}

/// The expression in argument 1 with the flags in argument `at`, if it is there.
fn with_flags(a: &Arguments<'_>, at: usize, function: &str) -> Result<(Rc<Regex>, Flags)> {
    let flags = if a.len() > at { Flags::of(a.text(at))? } else { Flags::default() };
    if flags.global && !function.is_empty() {
        let message = format!("{function} does not support the \"global\" option");
        return Err(SqlError::new("22023", message));
    }
    Ok((compiled(a.text(1), flags)?, flags))
}

/// What a match gives: its groups, or itself.
pub(super) fn parts(found: &Captures<'_>) -> Datum {
    let item = |part: Option<regex::Match<'_>>| part.map_or(Datum::Null, |m| text(m.as_str()));
    let items: Vec<Datum> = match found.len() {
        1 => vec![item(found.get(0))],
        _ => found.iter().skip(1).map(item).collect(),
    };
    Array::of(items).to_datum(Type::Text)
}

pub(super) fn regexp_like(a: &Arguments<'_>) -> Result {
    Ok(Datum::Bool(with_flags(a, 2, "regexp_like()")?.0.is_match(a.text(0))))
}

pub(super) fn regexp_match(a: &Arguments<'_>) -> Result {
    let (regex, _) =
        with_flags(a, 2, "regexp_match()").map_err(|e| e.with_hint("Use the regexp_matches function instead."))?;
    Ok(regex.captures(a.text(0)).map_or(Datum::Null, |found| parts(&found)))
}

/// All matches, or the first: the rows of `regexp_matches`.
pub(super) fn regexp_matches(a: &Arguments<'_>) -> Result<Vec<Datum>> {
    let (regex, flags) = with_flags(a, 2, "")?;
    let limit = if flags.global { usize::MAX } else { 1 };
    Ok(groups_from(&regex, a.text(0), 0).take(limit).map(|(_, found)| parts(&found)).collect())
}

/// `\1` to `\9`, `\&` and `\\` in what replaces a match.
fn replacement(template: &str, found: &Captures<'_>, out: &mut String) {
    let mut chars = template.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('&') => out.push_str(found.get(0).map_or("", |m| m.as_str())),
            Some(digit @ '1'..='9') => {
                out.push_str(found.get(digit as usize - '0' as usize).map_or("", |m| m.as_str()));
            }
            Some('\\') => out.push('\\'),
            Some(other) => out.extend(['\\', other]),
            None => out.push('\\'),
        }
    }
}

/// Replaces the `nth` match from a byte on, or every one if `nth` is 0.
fn replaced(regex: &Regex, value: &str, from: usize, nth: usize, template: &str) -> String {
    let mut out = value[..from].to_owned();
    let mut done = from;
    for (i, (whole, found)) in groups_from(regex, value, from).enumerate() {
        if nth != 0 && i + 1 != nth {
            continue;
        }
        out.push_str(&value[done..whole.start()]);
        replacement(template, &found, &mut out);
        done = whole.end();
        if nth != 0 {
            break;
        }
    }
    out.push_str(&value[done..]);
    out
}

/// Matches from a byte on. The next one is looked for where the last one ends, or one character behind it if that was empty: behind a match that
/// is not empty an empty one may follow at once, which the crate's own iterators leave out.
fn each_from<'v, T>(
    value: &'v str,
    from: usize,
    find: impl Fn(usize) -> Option<(Match<'v>, T)>,
) -> impl Iterator<Item = (Match<'v>, T)> {
    let mut next = Some(from);
    std::iter::from_fn(move || {
        let (found, what) = find(next?)?;
        let behind = || value[found.end()..].chars().next().map(|c| found.end() + c.len_utf8());
        next = if found.is_empty() { behind() } else { Some(found.end()) };
        Some((found, what))
    })
}

fn found_from<'v>(regex: &Regex, value: &'v str, from: usize) -> impl Iterator<Item = Match<'v>> {
    each_from(value, from, move |at| regex.find_at(value, at).map(|found| (found, ()))).map(|(found, ())| found)
}

fn groups_from<'v>(regex: &Regex, value: &'v str, from: usize) -> impl Iterator<Item = (Match<'v>, Captures<'v>)> {
    each_from(value, from, move |at| {
        let groups = regex.captures_at(value, at)?;
        Some((groups.get(0).expect("group 0 is the match"), groups))
    })
}

pub(super) fn regexp_replace(a: &Arguments<'_>) -> Result {
    let (regex, flags) = with_flags(a, 3, "")?;
    Ok(text(replaced(&regex, a.text(0), 0, usize::from(!flags.global), a.text(2))))
}

/// Where a search begins: a place counted in characters from 1.
fn from_place(a: &Arguments<'_>, at: usize) -> Result<usize> {
    let place = positive(a, at, "start")?;
    let value = a.text(0);
    Ok(value.char_indices().map(|(i, _)| i).nth(place - 1).unwrap_or(value.len()))
}

fn positive(a: &Arguments<'_>, at: usize, name: &str) -> Result<usize> {
    if a.len() <= at {
        return Ok(1);
    }
    usize::try_from(a.int(at)).ok().filter(|&v| v > 0).ok_or_else(|| invalid_parameter(name, a.int(at)))
}

fn invalid_parameter(name: &str, value: i64) -> SqlError {
    SqlError::new("22023", format!("invalid value for parameter \"{name}\": {value}"))
}

pub(super) fn regexp_replace_from(a: &Arguments<'_>) -> Result {
    let (regex, _) = with_flags(a, 5, "")?;
    let nth = if a.len() > 4 && a.int(4) == 0 { 0 } else { positive(a, 4, "n")? };
    Ok(text(replaced(&regex, a.text(0), from_place(a, 3)?, nth, a.text(2))))
}

/// The pieces between matches; an empty match parts only what stands before it from what follows.
pub(super) fn regexp_split(a: &Arguments<'_>) -> Result<Vec<Datum>> {
    let (regex, _) = with_flags(a, 2, "regexp_split_to_table()")?;
    let value = a.text(0);
    let mut pieces = Vec::new();
    let (mut done, mut last) = (0, 0);
    for found in found_from(&regex, value, 0) {
        // An empty match at either end, or just behind another, parts nothing.
        if found.start() < value.len() && found.end() > last {
            pieces.push(text(&value[done..found.start()]));
            done = found.end();
        }
        last = found.end();
    }
    pieces.push(text(&value[done..]));
    Ok(pieces)
}

pub(super) fn regexp_split_to_array(a: &Arguments<'_>) -> Result {
    Ok(Array::of(regexp_split(a)?).to_datum(Type::Text))
}

pub(super) fn regexp_count(a: &Arguments<'_>) -> Result {
    let (regex, _) = with_flags(a, 3, "regexp_count()")?;
    let from = if a.len() > 2 { from_place(a, 2)? } else { 0 };
    Ok(Datum::Int(found_from(&regex, a.text(0), from).count() as i64))
}

/// The match that arguments 2 (from where) and 3 (which) ask for, or the part of it that stands behind the flags, if they are given.
fn nth_match<'a>(a: &Arguments<'a>, flags_at: usize, function: &str) -> Result<Option<Match<'a>>> {
    let (from, nth) = (from_place(a, 2)?, positive(a, 3, "n")?);
    let part = match a.len() > flags_at + 1 {
        true => usize::try_from(a.int(flags_at + 1)).map_err(|_| invalid_parameter("subexpr", a.int(flags_at + 1)))?,
        false => 0,
    };
    let (regex, _) = with_flags(a, flags_at, function)?;
    // Without parentheses the whole is the first part.
    let part = if part == 1 && regex.captures_len() == 1 { 0 } else { part };
    let found = groups_from(&regex, a.text(0), from).nth(nth - 1);
    Ok(found.and_then(|(_, groups)| groups.get(part)))
}

pub(super) fn regexp_instr(a: &Arguments<'_>) -> Result {
    let behind = if a.len() > 4 { a.int(4) } else { 0 };
    if !matches!(behind, 0 | 1) {
        return Err(invalid_parameter("endoption", behind));
    }
    let found = nth_match(a, 5, "regexp_instr()")?;
    let place = found.map(|found| if behind == 1 { found.end() } else { found.start() });
    Ok(Datum::Int(place.map_or(0, |at| a.text(0)[..at].chars().count() as i64 + 1)))
}

pub(super) fn regexp_substr(a: &Arguments<'_>) -> Result {
    Ok(nth_match(a, 4, "regexp_substr()")?.map_or(Datum::Null, |found| text(found.as_str())))
}
