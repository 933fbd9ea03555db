//! `to_char` and `to_number` of numbers.
//!
//! A template has digit positions before and after the point. A number fills those before it from the right; `9` leaves blank what it
//! does not fill, `0` shows a zero from there on. The sign stands before the first digit, unless the template says where.

use super::super::arguments::{Arguments, numeric, text};
use super::Result;
use crate::error::SqlError;
use crate::value::Datum;
use crate::value::numeric::Numeric;
use freshet_engine::schema::Type;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Nine,
    Zero,
    Point,
    /// `,` or `G`.
    Group,
    Sign,
    Minus,
    Plus,
    PlusOrMinus,
    Ordinal(bool),
    Currency,
    /// `V`: what follows are digits that are shifted before the point.
    Shift,
    Exponent,
    Roman(bool),
    Literal(char),
}

#[derive(Default)]
struct Template {
    parts: Vec<Part>,
    fill: bool,
    /// `PR`: angle brackets around negative numbers.
    brackets: bool,
    before: usize,
    after: usize,
    shifted: usize,
    /// The digit position from which zeros are shown.
    zero_from: Option<usize>,
}

fn syntax(message: &str) -> SqlError {
    SqlError::new("42601", message)
}

fn template(source: &str) -> Result<Template> {
    let mut t = Template::default();
    let mut rest = source;
    let (mut point, mut shift) = (false, false);
    while let Some(c) = rest.chars().next() {
        let upper: String = rest.chars().take(4).collect::<String>().to_ascii_uppercase();
        let (part, length) = match c {
            _ if upper.starts_with("EEEE") => (Part::Exponent, 4),
            _ if upper.starts_with("FM") => {
                (t.fill, rest) = (true, &rest[2..]);
                continue;
            }
            _ if upper.starts_with("PR") => {
                (t.brackets, rest) = (true, &rest[2..]);
                continue;
            }
            _ if upper.starts_with("MI") => (Part::Minus, 2),
            _ if upper.starts_with("PL") => (Part::Plus, 2),
            _ if upper.starts_with("SG") => (Part::PlusOrMinus, 2),
            _ if upper.starts_with("RN") => (Part::Roman(c == 'R'), 2),
            _ if upper.starts_with("TH") => (Part::Ordinal(c == 'T'), 2),
            '9' | '0' => (if c == '9' { Part::Nine } else { Part::Zero }, 1),
            '.' | 'D' | 'd' => (Part::Point, 1),
            ',' | 'G' | 'g' => (Part::Group, 1),
            'S' | 's' => (Part::Sign, 1),
            'L' | 'l' => (Part::Currency, 1),
            'V' | 'v' => (Part::Shift, 1),
            '"' => {
                rest = quoted(&rest[1..], &mut t.parts);
                continue;
            }
            // Elsewhere it stands for itself.
            '\\' if rest[1..].starts_with('"') => (Part::Literal('"'), 2),
            c => (Part::Literal(c), c.len_utf8()),
        };
        match part {
            Part::Nine | Part::Zero if shift => t.shifted += 1,
            Part::Nine | Part::Zero if point => t.after += 1,
            Part::Nine | Part::Zero => {
                if part == Part::Zero && t.zero_from.is_none() {
                    t.zero_from = Some(t.before);
                }
                t.before += 1;
            }
            Part::Point if point => return Err(syntax("multiple decimal points")),
            Part::Point => point = true,
            Part::Shift => shift = true,
            _ => {}
        }
        t.parts.push(part);
        rest = &rest[length..];
    }
    Ok(t)
}

/// Takes what stands in double quotes; gives what follows them.
fn quoted<'a>(source: &'a str, parts: &mut Vec<Part>) -> &'a str {
    let mut chars = source.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => parts.push(Part::Literal(chars.next().unwrap_or(c))),
            c => parts.push(Part::Literal(c)),
        }
    }
    chars.as_str()
}

/// A number in digits: sign, before the point, after it.
struct Digits {
    negative: bool,
    before: String,
    after: String,
    /// NaN and infinities fill the template with a sign that they do not fit.
    fits: bool,
}

fn digits(number: &Numeric, t: &Template) -> Result<Digits> {
    let Numeric::Finite(_) = number else {
        return Ok(Digits { negative: false, before: String::new(), after: String::new(), fits: false });
    };
    let shifted = match t.shifted {
        0 => number.clone(),
        n => number.mul(&Numeric::parse(format!("1e{n}").as_bytes())?)?,
    };
    let rounded = shifted.round(t.after as i64)?;
    let mut shown = Vec::new();
    rounded.write(&mut shown);
    let shown = String::from_utf8(shown).expect("digits");
    let negative = shown.starts_with('-');
    let (before, after) =
        shown.trim_start_matches('-').split_once('.').map_or((shown.trim_start_matches('-'), ""), |p| p);
    let positions = t.before + t.shifted;
    let before = if before == "0" && (t.after > 0) { "" } else { before };
    // Without a place before the point not even its zero fits.
    let fits = before.len() <= positions && (positions > 0 || t.after == 0);
    Ok(Digits { negative, before: before.to_owned(), after: after.to_owned(), fits })
}

fn shown(number: &Numeric, source: &str) -> Result<String> {
    let t = template(source)?;
    if t.parts.contains(&Part::Exponent) {
        return exponent(number, &t);
    }
    if let Some(Part::Roman(upper)) = t.parts.iter().find(|p| matches!(p, Part::Roman(_))) {
        return Ok(roman(number, *upper, t.fill));
    }
    let digits = digits(number, &t)?;
    Ok(layout(&t, &digits))
}

fn layout(t: &Template, d: &Digits) -> String {
    let positions = t.before + t.shifted;
    // The first position that shows a digit.
    let first_digit = if d.fits { positions - d.before.len() } else { 0 };
    let zero_from = t.zero_from.unwrap_or(usize::MAX);
    let first = first_digit.min(zero_from).min(positions);
    let own_sign = t.parts.iter().any(|p| matches!(p, Part::Sign | Part::Minus | Part::Plus | Part::PlusOrMinus));
    let leading_sign = !own_sign && !t.brackets;
    // S before the digits stands right before the first of them.
    let sign_at = t.parts.iter().position(|p| *p == Part::Sign);
    let digit_at = t.parts.iter().position(|p| matches!(p, Part::Nine | Part::Zero | Part::Point)).unwrap_or(0);
    let sign_before = sign_at.is_some_and(|at| at < digit_at);
    let sign = if d.negative { '-' } else { '+' };
    let mut out = String::new();
    let mut placed = false;
    let mut place_sign = |out: &mut String| {
        if placed {
            return;
        }
        placed = true;
        if leading_sign {
            match (d.negative, t.fill) {
                (true, _) => out.push('-'),
                (false, false) => out.push(' '),
                (false, true) => {}
            }
        } else if sign_before {
            out.push(sign);
        } else if t.brackets {
            match (d.negative, t.fill) {
                (true, _) => out.push('<'),
                (false, false) => out.push(' '),
                (false, true) => {}
            }
        }
    };
    let kept_after = match t.fill {
        false => t.after,
        true => {
            let significant = d.after.trim_end_matches('0').len();
            let zeros = after_zeros(t);
            significant.max(zeros)
        }
    };
    let (mut at, mut behind, mut in_fraction) = (0, 0, false);
    // Whether the position before shows a digit: only behind one stands a separator.
    let mut behind_digit = false;
    for (i, part) in t.parts.iter().enumerate() {
        match part {
            Part::Nine | Part::Zero if !in_fraction => {
                behind_digit = at >= first;
                if behind_digit {
                    place_sign(&mut out);
                    match (d.fits, at >= first_digit) {
                        (false, _) => out.push('#'),
                        (true, true) => out.push(d.before.as_bytes()[at - first_digit] as char),
                        (true, false) => out.push('0'),
                    }
                } else if !t.fill {
                    out.push(' ');
                }
                at += 1;
            }
            Part::Nine | Part::Zero => {
                behind_digit = !d.fits || behind < kept_after;
                if !d.fits {
                    out.push('#');
                } else if behind_digit {
                    out.push(d.after.as_bytes().get(behind).map_or('0', |b| *b as char));
                }
                behind += 1;
            }
            // PostgreSQL goes no further where no digit follows the point.
            Part::Point if t.after == 0 && d.fits => return out,
            Part::Point => {
                (in_fraction, behind_digit) = (true, false);
                place_sign(&mut out);
                if t.fill && d.before.is_empty() && kept_after == 0 && t.zero_from.is_none() {
                    out.push('0');
                }
                out.push('.');
            }
            Part::Group if behind_digit => out.push(','),
            Part::Group if !t.fill => out.push(' '),
            Part::Group => {}
            Part::Sign if Some(i) == sign_at && sign_before => {}
            Part::Sign | Part::PlusOrMinus => out.push(sign),
            Part::Minus if d.negative => out.push('-'),
            Part::Minus if !t.fill => out.push(' '),
            Part::Plus if !d.negative => out.push('+'),
            Part::Plus if !t.fill => out.push(' '),
            Part::Minus | Part::Plus => {}
            Part::Ordinal(upper) => {
                if !d.negative && t.after == 0 {
                    let number = d.before.parse().unwrap_or(0);
                    out.push_str(super::ordinal_of(number, *upper));
                }
            }
            Part::Currency => out.push(' '),
            Part::Shift | Part::Exponent | Part::Roman(_) => {}
            Part::Literal(c) => out.push(*c),
        }
    }
    if t.brackets {
        match (d.negative, t.fill) {
            (true, _) => out.push('>'),
            (false, false) => out.push(' '),
            (false, true) => {}
        }
    }
    out
}

/// How many digits after the point a template's zeros ask for.
fn after_zeros(t: &Template) -> usize {
    let point = t.parts.iter().position(|p| *p == Part::Point).unwrap_or(t.parts.len());
    let mut count = 0;
    let mut last = 0;
    for part in &t.parts[point..] {
        if matches!(part, Part::Nine | Part::Zero) {
            count += 1;
            if *part == Part::Zero {
                last = count;
            }
        }
    }
    last
}

fn exponent(number: &Numeric, t: &Template) -> Result<String> {
    let sign = |negative: bool| match (negative, t.fill) {
        (true, _) => "-",
        (false, true) => "",
        (false, false) => " ",
    };
    let Numeric::Finite(_) = number else {
        return Ok(format!(" {}", "#".repeat(t.before + t.after + 6)));
    };
    let mut shown = Vec::new();
    number.write(&mut shown);
    let shown = String::from_utf8(shown).expect("digits");
    let negative = shown.starts_with('-');
    let plain = shown.trim_start_matches('-');
    let (before, _) = plain.split_once('.').unwrap_or((plain, ""));
    let all: String = plain.chars().filter(char::is_ascii_digit).collect();
    let leading = all.chars().take_while(|c| *c == '0').count();
    let mut exponent = before.len() as i64 - 1 - leading as i64;
    if leading == all.len() {
        exponent = 0;
    }
    let scale = Numeric::parse(format!("1e{}", -exponent).as_bytes())?;
    let mut mantissa = number.clone().abs().mul(&scale)?.round(t.after as i64)?;
    if mantissa.cmp(&Numeric::from_i64(10)).is_ge() {
        exponent += 1;
        mantissa = mantissa.div(&Numeric::from_i64(10))?.round(t.after as i64)?;
    }
    let mut digits = Vec::new();
    mantissa.write(&mut digits);
    let digits = String::from_utf8(digits).expect("digits");
    Ok(format!("{}{digits}e{}{:02}", sign(negative), if exponent < 0 { '-' } else { '+' }, exponent.abs()))
}

fn roman(number: &Numeric, upper: bool, fill: bool) -> String {
    const VALUES: [(i64, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    let value = number.round(0).ok().and_then(|n| n.to_i64("integer").ok()).filter(|v| (1..4000).contains(v));
    let mut out = String::new();
    match value {
        None => out.push_str("###############"),
        Some(mut value) => {
            for (size, letters) in VALUES {
                while value >= size {
                    out.push_str(letters);
                    value -= size;
                }
            }
        }
    }
    let out = if upper { out } else { out.to_lowercase() };
    if fill { out } else { format!("{out:>15}") }
}

pub(crate) fn numeric_to_char(a: &Arguments<'_>) -> Result {
    Ok(text(shown(&a.number(0), a.text(1))?))
}

/// A float is shown with as many digits as it surely has.
pub(crate) fn float_to_char(a: &Arguments<'_>) -> Result {
    let number = match a.types[0] {
        Type::Float4 => Numeric::from_f32(a.float(0) as f32),
        _ => Numeric::from_f64(a.float(0)),
    };
    Ok(text(shown(&number, a.text(1))?))
}

/// Digits, point and sign of the text; what else stands in it is skipped where the template has something of its kind.
pub(crate) fn to_number(a: &Arguments<'_>) -> Result {
    let t = template(a.text(1))?;
    let source = a.text(0).trim();
    let mut negative = source.contains('-') || t.brackets && source.starts_with('<');
    let (mut before, mut after) = (String::new(), String::new());
    let mut rest = source.chars().peekable();
    let (mut positions, mut in_fraction) = (0usize, false);
    for part in &t.parts {
        while rest.peek().is_some_and(|c| matches!(c, ' ' | '-' | '+' | '<')) {
            rest.next();
        }
        match part {
            Part::Nine | Part::Zero => {
                if let Some(c) = rest.peek().copied() {
                    if c.is_ascii_digit() {
                        if in_fraction {
                            after.push(c)
                        } else {
                            before.push(c)
                        };
                        rest.next();
                    } else if c == '.' && !in_fraction && t.after > 0 {
                        // Fewer digits than positions: the point comes early.
                    }
                }
                positions += 1;
            }
            Part::Point => {
                while rest.peek().is_some_and(char::is_ascii_digit) {
                    rest.next();
                }
                if rest.peek() == Some(&'.') {
                    rest.next();
                }
                in_fraction = true;
            }
            Part::Group if rest.peek() == Some(&',') => {
                rest.next();
            }
            Part::Currency | Part::Literal(_) if rest.peek().is_some_and(|c| !c.is_ascii_digit() && *c != '.') => {
                rest.next();
            }
            _ => {}
        }
    }
    if before.is_empty() && after.is_empty() {
        return Err(SqlError::new(
            "22P02",
            format!("invalid input syntax for type numeric: \"{}\"", if source.is_empty() { " " } else { source }),
        ));
    }
    if positions == 0 {
        negative = false;
    }
    let sign = if negative { "-" } else { "" };
    let whole = if before.is_empty() { "0" } else { &before };
    let number = if after.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{after}") };
    let number = Numeric::parse(number.as_bytes())?;
    Ok(match number {
        Numeric::Finite(_) => numeric(&number),
        _ => Datum::Null,
    })
}
