//! `{1,2}`, `{{a,"b c"},{NULL,"null"}}`, `[0:1]={5,6}`.

use super::{Array, Dimension, check_dimensions};
use crate::error::SqlError;
use crate::value::text::{is_space, trim_space};
use crate::value::zone::Clock;
use crate::value::{Datum, fault, text};
use freshet_engine::schema::Type;

/// The input function.
pub(crate) fn read(element: Type, literal: &[u8], clock: &Clock) -> Result<Datum, SqlError> {
    let malformed = |detail: &str| {
        let error = fault::quoted("22P02", "malformed array literal", literal);
        fault::with_detail(error, detail.to_owned())
    };
    let trimmed = trim_space(literal);
    let (bounds, body) = dimensions(trimmed).map_err(&malformed)?;
    let mut reader = Reader { rest: body, items: Vec::new(), lengths: Vec::new() };
    reader.array(0).map_err(&malformed)?;
    if !trim_space(reader.rest).is_empty() {
        return Err(malformed("Junk after closing right brace."));
    }
    let Reader { items, lengths, .. } = reader;
    check_dimensions(lengths.len())?;
    let mut values = Vec::with_capacity(items.len());
    for item in items {
        values.push(match item {
            None => Datum::Null,
            Some(item) => text::read(element, &item, clock)?,
        });
    }
    if values.is_empty() {
        return Ok(Array::default().to_datum(element));
    }
    let lengths: Vec<u32> = lengths.into_iter().map(|l| l.unwrap_or(0)).collect();
    let dimensions = match bounds {
        None => lengths.iter().map(|&length| Dimension { length, lower: 1 }).collect(),
        Some(bounds) => {
            let given: Vec<u32> = bounds.iter().map(|b| b.length).collect();
            if given != lengths {
                return Err(malformed("Specified array dimensions do not match array contents."));
            }
            bounds
        }
    };
    Ok(Array { dimensions, items: values }.to_datum(element))
}

type Malformed<T> = Result<T, &'static str>;

/// `[1:2][0:1]=` before the braces.
fn dimensions(text: &[u8]) -> Malformed<(Option<Vec<Dimension>>, &[u8])> {
    if text.first() != Some(&b'[') {
        return Ok((None, text));
    }
    let wrong = "\"[\" must introduce explicitly-specified array dimensions.";
    let equals = text.iter().position(|b| *b == b'=').ok_or("Missing \"=\" after array dimensions.")?;
    let (head, body) = (&text[..equals], &text[equals + 1..]);
    let head = std::str::from_utf8(head).map_err(|_| wrong)?.trim();
    let mut found = Vec::new();
    for part in head.split_inclusive(']') {
        let inner = part.trim().strip_prefix('[').and_then(|p| p.strip_suffix(']')).ok_or(wrong)?;
        let (lower, upper) = inner.split_once(':').unwrap_or(("1", inner));
        let (lower, upper): (i32, i32) =
            (lower.trim().parse().map_err(|_| wrong)?, upper.trim().parse().map_err(|_| wrong)?);
        let length = i64::from(upper) - i64::from(lower) + 1;
        let length =
            u32::try_from(length).ok().filter(|&l| l > 0).ok_or("upper bound cannot be less than lower bound")?;
        found.push(Dimension { length, lower });
    }
    Ok((Some(found), trim_space(body)))
}

struct Reader<'a> {
    rest: &'a [u8],
    items: Vec<Option<Vec<u8>>>,
    /// By depth; `None` until the first array of this depth is complete.
    lengths: Vec<Option<u32>>,
}

impl Reader<'_> {
    fn skip_space(&mut self) {
        while self.rest.first().is_some_and(|b| is_space(*b)) {
            self.rest = &self.rest[1..];
        }
    }

    fn next(&mut self) -> Malformed<u8> {
        let (&byte, rest) = self.rest.split_first().ok_or("Unexpected end of input.")?;
        self.rest = rest;
        Ok(byte)
    }

    /// An array whose brace comes next.
    fn array(&mut self, depth: usize) -> Malformed<()> {
        self.skip_space();
        if self.next()? != b'{' {
            return Err("Array value must start with \"{\" or dimension information.");
        }
        if depth > 64 {
            return Err("Unexpected \"{\" character.");
        }
        if self.lengths.len() <= depth {
            self.lengths.push(None);
        }
        let mut length = 0;
        self.skip_space();
        if self.rest.first() == Some(&b'}') {
            self.rest = &self.rest[1..];
            return if depth == 0 { Ok(()) } else { Err("Unexpected \"}\" character.") };
        }
        loop {
            self.skip_space();
            if self.rest.first() == Some(&b'{') {
                let has_elements = length > 0 && self.lengths.len() == depth + 1;
                if has_elements {
                    return Err("Unexpected \"{\" character.");
                }
                self.array(depth + 1)?;
            } else if self.lengths.len() > depth + 1 {
                return Err("Unexpected array element.");
            } else {
                let item = self.item()?;
                self.items.push(item);
            }
            length += 1;
            self.skip_space();
            match self.next()? {
                b',' => {}
                b'}' => return self.complete(depth, length),
                _ => return Err("Unexpected array element."),
            }
        }
    }

    fn complete(&mut self, depth: usize, length: u32) -> Malformed<()> {
        match self.lengths[depth] {
            Some(known) if known != length => {
                Err("Multidimensional arrays must have sub-arrays with matching dimensions.")
            }
            _ => {
                self.lengths[depth] = Some(length);
                Ok(())
            }
        }
    }

    /// An element; `None` for NULL.
    fn item(&mut self) -> Malformed<Option<Vec<u8>>> {
        let mut item = Vec::new();
        if self.rest.first() == Some(&b'"') {
            self.next()?;
            loop {
                match self.next()? {
                    b'"' => return Ok(Some(item)),
                    b'\\' => item.push(self.next()?),
                    byte => item.push(byte),
                }
            }
        }
        let mut escaped = false;
        while let Some(&byte) = self.rest.first() {
            match byte {
                b',' | b'}' => break,
                b'{' => return Err("Unexpected \"{\" character."),
                b'"' => return Err("Incorrectly quoted array element."),
                _ => {}
            }
            self.next()?;
            if byte == b'\\' {
                escaped = true;
                item.push(self.next()?);
            } else {
                item.push(byte);
            }
        }
        let kept = trim_space(&item).to_vec();
        if kept.is_empty() && !escaped {
            return Err("Unexpected \",\" or \"}\" character.");
        }
        Ok((escaped || !kept.eq_ignore_ascii_case(b"null")).then_some(kept))
    }
}

/// The output function.
pub(crate) fn write(element: Type, stored: &[u8], clock: &Clock, out: &mut Vec<u8>) {
    let array = Array::from_stored(element, stored);
    if array.dimensions.is_empty() {
        return out.extend_from_slice(b"{}");
    }
    if array.dimensions.iter().any(|d| d.lower != 1) {
        for Dimension { length, lower } in &array.dimensions {
            let upper = i64::from(*lower) + i64::from(*length) - 1;
            out.extend_from_slice(format!("[{lower}:{upper}]").as_bytes());
        }
        out.push(b'=');
    }
    let mut items = array.items.iter();
    write_level(element, &array.dimensions, &mut items, clock, out);
}

fn write_level<'a>(
    element: Type,
    dimensions: &[Dimension],
    items: &mut impl Iterator<Item = &'a Datum>,
    clock: &Clock,
    out: &mut Vec<u8>,
) {
    let Some((first, inner)) = dimensions.split_first() else {
        return;
    };
    out.push(b'{');
    for i in 0..first.length {
        if i > 0 {
            out.push(b',');
        }
        if inner.is_empty() {
            write_item(
                element,
                items.next().expect("invariant: an array has as many items as its dimensions say"),
                clock,
                out,
            );
        } else {
            write_level(element, inner, items, clock, out);
        }
    }
    out.push(b'}');
}

fn write_item(element: Type, item: &Datum, clock: &Clock, out: &mut Vec<u8>) {
    if *item == Datum::Null {
        return out.extend_from_slice(b"NULL");
    }
    let mut shown = Vec::new();
    text::write(element, &item.as_value(), clock, &mut shown);
    let special = |b: &u8| matches!(b, b'{' | b'}' | b',' | b'"' | b'\\') || is_space(*b);
    if !shown.is_empty() && !shown.eq_ignore_ascii_case(b"null") && !shown.iter().any(special) {
        return out.extend_from_slice(&shown);
    }
    out.push(b'"');
    for byte in shown {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}
