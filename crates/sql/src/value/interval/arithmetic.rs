//! How intervals add, multiply and move dates.

use super::{Interval, MONTH_DAYS, out_of_range};
use crate::error::SqlError;
use crate::value::datetime::{self, Civil, DAY_US, SECOND_US, civil_of, days_in_month, days_of};

impl Interval {
    pub(crate) fn of_us(us: i64) -> Interval {
        Interval { us, ..Interval::default() }
    }

    pub(crate) fn negated(self) -> Result<Interval, SqlError> {
        Interval::default().minus(self)
    }

    pub(crate) fn plus(self, other: Interval) -> Result<Interval, SqlError> {
        Interval::checked(
            i128::from(self.months) + i128::from(other.months),
            i128::from(self.days) + i128::from(other.days),
            i128::from(self.us) + i128::from(other.us),
        )
    }

    pub(crate) fn minus(self, other: Interval) -> Result<Interval, SqlError> {
        Interval::checked(
            i128::from(self.months) - i128::from(other.months),
            i128::from(self.days) - i128::from(other.days),
            i128::from(self.us) - i128::from(other.us),
        )
    }

    pub(crate) fn times(self, factor: f64) -> Result<Interval, SqlError> {
        self.scaled(|v| v * factor)
    }

    pub(crate) fn divided(self, by: f64) -> Result<Interval, SqlError> {
        self.scaled(|v| v / by)
    }

    /// What is left of a month goes into days, what is left of a day into time.
    fn scaled(self, scale: impl Fn(f64) -> f64) -> Result<Interval, SqlError> {
        let rounded = |seconds: f64| (seconds * 1e6).round_ties_even() / 1e6;
        let whole = |v: f64| -> Result<i32, SqlError> {
            let fits = !v.is_nan() && v >= f64::from(i32::MIN) && v <= f64::from(i32::MAX);
            fits.then_some(v as i32).ok_or_else(out_of_range)
        };
        let (months, days) = (scale(f64::from(self.months)), scale(f64::from(self.days)));
        let result_months = whole(months)?;
        let mut result_days = i64::from(whole(days)?);
        let month_days = rounded((months - f64::from(result_months)) * MONTH_DAYS as f64);
        let day_seconds = (DAY_US / SECOND_US) as f64;
        let mut seconds = rounded((days - result_days as f64 + month_days - month_days.trunc()) * day_seconds);
        if seconds.abs() >= day_seconds {
            let carried = (seconds / day_seconds).trunc();
            result_days += carried as i64;
            seconds -= carried * day_seconds;
        }
        result_days += month_days as i64;
        let us = (scale(self.us as f64) + seconds * SECOND_US as f64).round_ties_even();
        if us.is_nan() || us.abs() >= i64::MAX as f64 {
            return Err(out_of_range());
        }
        let days = i32::try_from(result_days).map_err(|_| out_of_range())?;
        Ok(Interval { months: result_months, days, us: us as i64 })
    }

    /// Days of 24 hours become days.
    pub(crate) fn justify_hours(self) -> Result<Interval, SqlError> {
        let mut days = i128::from(self.days) + i128::from(self.us / DAY_US);
        let mut us = self.us % DAY_US;
        if days > 0 && us < 0 {
            (days, us) = (days - 1, us + DAY_US);
        } else if days < 0 && us > 0 {
            (days, us) = (days + 1, us - DAY_US);
        }
        Interval::checked(self.months.into(), days, us.into())
    }

    /// 30 days become a month.
    pub(crate) fn justify_days(self) -> Result<Interval, SqlError> {
        let month_days = MONTH_DAYS as i32;
        let mut months = i128::from(self.months) + i128::from(self.days / month_days);
        let mut days = self.days % month_days;
        if months > 0 && days < 0 {
            (months, days) = (months - 1, days + month_days);
        } else if months < 0 && days > 0 {
            (months, days) = (months + 1, days - month_days);
        }
        Interval::checked(months, days.into(), self.us.into())
    }

    /// Both, with one sign in all parts.
    pub(crate) fn justify(self) -> Result<Interval, SqlError> {
        let month_days = i128::from(MONTH_DAYS);
        let day = i128::from(DAY_US);
        let mut days = i128::from(self.days) + i128::from(self.us / DAY_US);
        let mut us = i128::from(self.us % DAY_US);
        let mut months = i128::from(self.months) + days / month_days;
        days %= month_days;
        if months > 0 && (days < 0 || days == 0 && us < 0) {
            (months, days) = (months - 1, days + month_days);
        } else if months < 0 && (days > 0 || days == 0 && us > 0) {
            (months, days) = (months + 1, days - month_days);
        }
        if days > 0 && us < 0 {
            (days, us) = (days - 1, us + day);
        } else if days < 0 && us > 0 {
            (days, us) = (days + 1, us - day);
        }
        Interval::checked(months, days, us)
    }
}

/// A civil day some months later; the 31st becomes the last of a shorter month.
fn months_later(civil: Civil, months: i64) -> Civil {
    let counted = civil.year * 12 + civil.month - 1 + months;
    let (year, month) = (counted.div_euclid(12), counted.rem_euclid(12) + 1);
    Civil { year, month, day: civil.day.min(days_in_month(year, month)) }
}

fn timestamp_out_of_range() -> SqlError {
    SqlError::new("22008", "timestamp out of range")
}

/// A timestamp without a zone some months and days later.
fn days_later(timestamp: i64, interval: Interval) -> Result<i64, SqlError> {
    let (mut days, time) = (timestamp.div_euclid(DAY_US), timestamp.rem_euclid(DAY_US));
    if interval.months != 0 {
        days = days_of(months_later(civil_of(days), interval.months.into()));
    }
    days += i64::from(interval.days);
    let moved = days.checked_mul(DAY_US).and_then(|us| us.checked_add(time));
    moved.filter(|us| datetime::timestamp_in_range(*us)).ok_or_else(timestamp_out_of_range)
}

/// `timestamp + interval`.
pub(crate) fn moved(timestamp: i64, interval: Interval) -> Result<i64, SqlError> {
    if !datetime::is_finite(timestamp) {
        return Ok(timestamp);
    }
    let moved = days_later(timestamp, interval)?.checked_add(interval.us);
    moved.filter(|us| datetime::timestamp_in_range(*us)).ok_or_else(timestamp_out_of_range)
}

/// `timestamptz + interval`: months and days by the clock of the zone.
pub(crate) fn moved_in(timestamp: i64, interval: Interval, zone: &crate::value::zone::Zone) -> Result<i64, SqlError> {
    if !datetime::is_finite(timestamp) {
        return Ok(timestamp);
    }
    let mut moved = timestamp;
    if interval.months != 0 || interval.days != 0 {
        moved = zone.to_utc(days_later(zone.to_local(timestamp), interval)?);
    }
    let moved = moved.checked_add(interval.us);
    moved.filter(|us| datetime::timestamp_in_range(*us)).ok_or_else(timestamp_out_of_range)
}

/// `timestamp - timestamp`: days and time.
pub(crate) fn between(a: i64, b: i64) -> Result<Interval, SqlError> {
    if !datetime::is_finite(a) || !datetime::is_finite(b) {
        return Err(SqlError::new("22008", "cannot subtract infinite timestamps"));
    }
    let us = a.checked_sub(b).ok_or_else(out_of_range)?;
    Interval::of_us(us).justify_hours()
}

/// `age(a, b)`: years, months, days and time as a calendar counts them.
pub(crate) fn age(a: i64, b: i64) -> Result<Interval, SqlError> {
    if !datetime::is_finite(a) || !datetime::is_finite(b) {
        return Err(timestamp_out_of_range());
    }
    let flipped = a < b;
    let (late, early) = if flipped { (b, a) } else { (a, b) };
    let (day_a, day_b) = (civil_of(late.div_euclid(DAY_US)), civil_of(early.div_euclid(DAY_US)));
    let mut us = late.rem_euclid(DAY_US) - early.rem_euclid(DAY_US);
    let mut days = day_a.day - day_b.day;
    let mut months = (day_a.year - day_b.year) * 12 + day_a.month - day_b.month;
    if us < 0 {
        (us, days) = (us + DAY_US, days - 1);
    }
    // The days of the month in which the count begins: the earlier one's.
    while days < 0 {
        (days, months) = (days + days_in_month(day_b.year, day_b.month), months - 1);
    }
    let sign = if flipped { -1 } else { 1 };
    Interval::checked((months * sign).into(), (days * sign).into(), (us * sign).into())
}
