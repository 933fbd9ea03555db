//! Which fields does a type of intervals keep, and how many digits of a second? `interval day to second(3)`.
//!
//! The number that such a type has in `Type::Rounded`, of which definitions are stored:
//!
//! | number | |
//! |---|---|
//! | 0 to 6 | all fields, a second of so many digits |
//! | 8 * n + d | the fields of [`FIELDS`] from 1 on, a second of d digits; of as many as it has where d is 7 |

use super::Interval;
use super::parse::{Fields, Unit};
use crate::value::datetime::{self, HOUR_US, MINUTE_US};
use crate::value::pgtype::SECOND_DIGITS_MAX;

/// Of how many digits nothing is said.
const UNSAID: u8 = 7;
/// The same in a type's modifier.
const UNSAID_MODIFIER: i32 = 0xffff;
/// All fields, in the high half of a modifier.
const ALL_FIELDS: i32 = 0x7fff;

const YEAR: i32 = 1 << 2;
const MONTH: i32 = 1 << 1;
const DAY: i32 = 1 << 3;
const HOUR: i32 = 1 << 10;
const MINUTE: i32 = 1 << 11;
const SECOND: i32 = 1 << 12;

/// The first and last field, PostgreSQL's bits in a modifier, and the name.
const FIELDS: [(Unit, Unit, i32, &str); 13] = [
    (Unit::Year, Unit::Year, YEAR, "year"),
    (Unit::Month, Unit::Month, MONTH, "month"),
    (Unit::Year, Unit::Month, YEAR | MONTH, "year to month"),
    (Unit::Day, Unit::Day, DAY, "day"),
    (Unit::Hour, Unit::Hour, HOUR, "hour"),
    (Unit::Minute, Unit::Minute, MINUTE, "minute"),
    (Unit::Second, Unit::Second, SECOND, "second"),
    (Unit::Day, Unit::Hour, DAY | HOUR, "day to hour"),
    (Unit::Day, Unit::Minute, DAY | HOUR | MINUTE, "day to minute"),
    (Unit::Day, Unit::Second, DAY | HOUR | MINUTE | SECOND, "day to second"),
    (Unit::Hour, Unit::Minute, HOUR | MINUTE, "hour to minute"),
    (Unit::Hour, Unit::Second, HOUR | MINUTE | SECOND, "hour to second"),
    (Unit::Minute, Unit::Second, MINUTE | SECOND, "minute to second"),
];

/// What a type of intervals is limited to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limit {
    /// By its place in the table above.
    fields: Option<usize>,
    digits: Option<u8>,
}

impl Limit {
    pub fn of(number: u8) -> Limit {
        match number {
            0..=SECOND_DIGITS_MAX => Limit { fields: None, digits: Some(number) },
            _ => Limit {
                fields: usize::from(number / 8).checked_sub(1).filter(|at| *at < FIELDS.len()),
                digits: Some(number % 8).filter(|digits| *digits != UNSAID),
            },
        }
    }

    /// `None`: there are no such fields.
    pub fn new(fields: Fields, digits: Option<u8>) -> Option<Limit> {
        let at = FIELDS.iter().position(|(first, last, ..)| (*first, *last) == (fields.first, fields.last))?;
        Some(Limit { fields: Some(at), digits })
    }

    pub fn number(self) -> u8 {
        match self.fields {
            None => self.digits.unwrap_or(SECOND_DIGITS_MAX),
            Some(at) => (at as u8 + 1) * 8 + self.digits.unwrap_or(UNSAID),
        }
    }

    /// What a number without a unit counts.
    pub fn fields(self) -> Option<Fields> {
        self.fields.map(|at| Fields { first: FIELDS[at].0, last: FIELDS[at].1 })
    }

    pub fn digits(self) -> Option<u8> {
        self.digits
    }

    /// The fields with the digits, as they stand behind `interval`.
    pub fn name(self) -> String {
        let digits = self.digits.map_or(String::new(), |digits| format!("({digits})"));
        match self.fields {
            None => digits,
            Some(at) => format!(" {}{digits}", FIELDS[at].3),
        }
    }

    /// The names of the fields, if it is limited to some, with the digits.
    pub fn of_fields(self) -> Option<String> {
        self.fields.map(|_| self.name().trim_start().to_uppercase())
    }

    pub fn modifier(self) -> i32 {
        let fields = self.fields.map_or(ALL_FIELDS, |at| FIELDS[at].2);
        fields << 16 | self.digits.map_or(UNSAID_MODIFIER, i32::from)
    }

    /// `None`: it limits nothing, or is none.
    pub fn of_modifier(modifier: i32) -> Option<Limit> {
        if modifier < 0 {
            return None;
        }
        let (bits, digits) = (modifier >> 16, modifier & UNSAID_MODIFIER);
        let digits = u8::try_from(digits).ok().filter(|digits| *digits <= SECOND_DIGITS_MAX);
        let fields = FIELDS.iter().position(|(_, _, own, _)| *own == bits);
        (fields.is_some() || digits.is_some()).then_some(Limit { fields, digits })
    }

    /// Larger fields than those that are kept stay, too.
    pub fn apply(self, span: Interval) -> Interval {
        let cut = |us: i64, unit: i64| us / unit * unit;
        let last = self.fields.map_or(Unit::Second, |at| FIELDS[at].1);
        let kept = match last {
            Unit::Year => Interval { months: span.months / 12 * 12, days: 0, us: 0 },
            Unit::Month => Interval { days: 0, us: 0, ..span },
            Unit::Day => Interval { us: 0, ..span },
            Unit::Hour => Interval { us: cut(span.us, HOUR_US), ..span },
            Unit::Minute => Interval { us: cut(span.us, MINUTE_US), ..span },
            _ => span,
        };
        let us = self.digits.map_or(kept.us, |digits| datetime::rounded(kept.us, digits.into()));
        Interval { us, ..kept }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_modifiers_read_back() {
        for at in 0..FIELDS.len() {
            for digits in [None, Some(0), Some(3), Some(6)] {
                let limit = Limit { fields: Some(at), digits };
                assert_eq!(Limit::of(limit.number()), limit);
                assert_eq!(Limit::of_modifier(limit.modifier()), Some(limit));
            }
        }
        assert_eq!(Limit::of_modifier(-1), None);
        assert_eq!(Limit::of(3).modifier(), 0x7fff_0003);
        let fields = Fields { first: Unit::Day, last: Unit::Second };
        let limit = Limit::new(fields, Some(3)).expect("day to second");
        assert_eq!((limit.modifier(), limit.name().as_str()), (470_286_339, " day to second(3)"));
    }
}
