//! What a template of numbers asks for.

use super::super::Result;
use crate::error::SqlError;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Nine,
    Zero,
    /// `.` or `D`.
    Point,
    /// `,` and `G`, of which the former takes a comma only.
    Comma,
    Group,
    Sign,
    Minus,
    Plus,
    PlusOrMinus,
    Ordinal(bool),
    Currency,
    Roman(bool),
    Literal(char),
}

/// Where `S` puts the sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum SignPlace {
    #[default]
    None,
    Before,
    After,
}

#[derive(Clone, Default, Debug)]
pub(super) struct Template {
    pub parts: Vec<Part>,
    pub fill: bool,
    /// `PR`: angle brackets around negative numbers.
    pub brackets: bool,
    /// Digit positions before the point and after it.
    pub before: usize,
    pub after: usize,
    /// `V`: digits that are shifted before the point.
    pub shifted: usize,
    pub has_shift: bool,
    pub has_point: bool,
    /// The digit position from which zeros are shown.
    pub zero_from: Option<usize>,
    /// How many positions there are up to the last that shows a zero.
    pub zero_end: usize,
    pub sign: SignPlace,
    /// Digit positions before `S`.
    pub before_sign: usize,
    /// `S` was there, wherever it puts the sign.
    pub has_sign: bool,
    /// MI or SG, PL or SG.
    pub minus: bool,
    pub plus: bool,
    pub exponent: bool,
    pub roman: bool,
    /// `B`, which changes nothing.
    pub blank: bool,
}

/// A word of a template.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    Shown(Part),
    Fill,
    Brackets,
    Shift,
    Exponent,
    Blank,
    /// `C` and `SP`.
    Nothing,
}

/// Longer words before those that they begin with. Each is also written in small letters.
const WORDS: &[(&str, Word)] = &[
    ("EEEE", Word::Exponent),
    ("FM", Word::Fill),
    ("MI", Word::Shown(Part::Minus)),
    ("PL", Word::Shown(Part::Plus)),
    ("PR", Word::Brackets),
    ("RN", Word::Shown(Part::Roman(true))),
    ("SG", Word::Shown(Part::PlusOrMinus)),
    ("SP", Word::Nothing),
    ("TH", Word::Shown(Part::Ordinal(true))),
    ("9", Word::Shown(Part::Nine)),
    ("0", Word::Shown(Part::Zero)),
    (".", Word::Shown(Part::Point)),
    (",", Word::Shown(Part::Comma)),
    ("B", Word::Blank),
    ("C", Word::Nothing),
    ("D", Word::Shown(Part::Point)),
    ("G", Word::Shown(Part::Group)),
    ("L", Word::Shown(Part::Currency)),
    ("S", Word::Shown(Part::Sign)),
    ("V", Word::Shift),
];

/// The word that a template goes on with, and its length.
fn word_at(rest: &str) -> Option<(Word, usize)> {
    let is_small = rest.starts_with(|c: char| c.is_ascii_lowercase());
    let written = |word: &str| match is_small {
        true => rest.starts_with(&word.to_ascii_lowercase()),
        false => rest.starts_with(word),
    };
    let (word, found) = WORDS.iter().find(|(word, _)| written(word))?;
    let found = match found {
        Word::Shown(Part::Roman(_)) => Word::Shown(Part::Roman(!is_small)),
        Word::Shown(Part::Ordinal(_)) => Word::Shown(Part::Ordinal(!is_small)),
        found => *found,
    };
    Some((found, word.len()))
}

fn syntax<T>(message: &str) -> Result<T> {
    Err(SqlError::new("42601", message))
}

impl Template {
    pub fn parse(source: &str) -> Result<Template> {
        let mut t = Template::default();
        let mut rest = source;
        while let Some(c) = rest.chars().next() {
            if let Some((word, length)) = word_at(rest) {
                t.take(word)?;
                rest = &rest[length..];
            } else if let Some(quoted) = rest.strip_prefix('"') {
                rest = after_quoted(quoted, &mut t.parts);
            } else {
                let escaped = rest.strip_prefix('\\').filter(|after| after.starts_with('"'));
                let c = if escaped.is_some() { '"' } else { c };
                rest = &escaped.unwrap_or(rest)[c.len_utf8()..];
                t.parts.push(Part::Literal(c));
            }
        }
        Ok(t)
    }

    fn take(&mut self, word: Word) -> Result<()> {
        if self.exponent && word != Word::Exponent {
            return syntax("\"EEEE\" must be the last pattern used");
        }
        match word {
            Word::Fill => self.fill = true,
            Word::Brackets if self.has_sign || self.plus || self.minus => {
                return syntax("cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together");
            }
            Word::Brackets => self.brackets = true,
            Word::Shift if self.has_point => return syntax("cannot use \"V\" and decimal point together"),
            Word::Shift => self.has_shift = true,
            Word::Exponent => self.take_exponent()?,
            Word::Blank => self.blank |= self.before == 0 && self.after == 0 && self.zero_from.is_none(),
            Word::Nothing => {}
            Word::Shown(part) => {
                self.take_part(part)?;
                self.parts.push(part);
            }
        }
        Ok(())
    }

    fn take_exponent(&mut self) -> Result<()> {
        if self.exponent {
            return syntax("cannot use \"EEEE\" twice");
        }
        let is_other = self.blank || self.fill || self.has_sign || self.brackets || self.minus || self.plus;
        if is_other || self.roman || self.has_shift {
            return Err(SqlError::new("42601", "\"EEEE\" is incompatible with other formats")
                .with_detail("\"EEEE\" may only be used together with digit and decimal point patterns."));
        }
        self.exponent = true;
        Ok(())
    }

    fn take_part(&mut self, part: Part) -> Result<()> {
        let together = |what: &str| syntax(&format!("cannot use \"S\" and \"{what}\" together"));
        match part {
            Part::Nine if self.brackets => return syntax("\"9\" must be ahead of \"PR\""),
            Part::Zero if self.brackets => return syntax("\"0\" must be ahead of \"PR\""),
            Part::Nine if self.has_shift => self.shifted += 1,
            Part::Nine if self.has_point => self.after += 1,
            Part::Nine => self.before += 1,
            Part::Zero => self.take_zero(),
            Part::Point if self.has_point => return syntax("multiple decimal points"),
            Part::Point if self.has_shift => return syntax("cannot use \"V\" and decimal point together"),
            Part::Point => self.has_point = true,
            Part::Sign if self.has_sign => return syntax("cannot use \"S\" twice"),
            Part::Sign if self.plus || self.minus || self.brackets => {
                return syntax("cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together");
            }
            Part::Sign => {
                self.has_sign = true;
                self.sign = if self.has_point { SignPlace::After } else { SignPlace::Before };
                self.before_sign = self.before;
            }
            Part::Minus if self.has_sign => return together("MI"),
            Part::Minus => self.minus = true,
            Part::Plus if self.has_sign => return together("PL"),
            Part::Plus => self.plus = true,
            Part::PlusOrMinus if self.has_sign => return together("SG"),
            Part::PlusOrMinus => (self.minus, self.plus) = (true, true),
            Part::Roman(_) => self.roman = true,
            _ => {}
        }
        Ok(())
    }

    fn take_zero(&mut self) {
        if self.has_point {
            self.after += 1;
        } else {
            self.zero_from = self.zero_from.or(Some(self.before));
            self.before += 1;
        }
        self.zero_end = self.before + self.after;
    }
}

/// Takes what stands in double quotes; gives what follows them.
fn after_quoted<'a>(source: &'a str, parts: &mut Vec<Part>) -> &'a str {
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
