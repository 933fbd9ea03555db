//! How do a feed's dates and times become the numbers the database stores?
//!
//! PostgreSQL's origin: dates count days, timestamps count microseconds, both since 2000-01-01. The civil calendar is
//! Howard Hinnant's `days_from_civil`, which needs no table and no loop.

use std::fmt;

pub const MICROS_PER_SECOND: i64 = 1_000_000;
pub const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// Days from 1970-01-01 to 2000-01-01.
const EPOCH_2000_DAYS: i64 = 10_957;

/// Days since 2000-01-01.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Date(pub i32);

/// Microseconds since 2000-01-01.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timestamp(pub i64);

impl Date {
    /// `None` where the calendar has no such day.
    pub fn new(year: i32, month: u32, day: u32) -> Option<Date> {
        if !(1..=12).contains(&month) || day == 0 || day > days_in_month(year, month) {
            return None;
        }
        let (y, m) = if month <= 2 {
            (i64::from(year) - 1, i64::from(month) + 9)
        } else {
            (i64::from(year), i64::from(month) - 3)
        };
        let era = y.div_euclid(400);
        let year_of_era = y.rem_euclid(400);
        let day_of_year = (153 * m + 2) / 5 + i64::from(day) - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = era * 146_097 + day_of_era - 719_468 - EPOCH_2000_DAYS;
        Some(Date(days as i32))
    }

    pub fn civil(self) -> (i32, u32, u32) {
        let z = i64::from(self.0) + EPOCH_2000_DAYS + 719_468;
        let era = z.div_euclid(146_097);
        let day_of_era = z.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let m = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * m + 2) / 5 + 1;
        let month = if m < 10 { m + 3 } else { m - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        (year as i32, month as u32, day as u32)
    }

    /// Monday 1 to Sunday 7; 2000-01-01 was a Saturday.
    pub fn weekday(self) -> i16 {
        ((self.0 + 5).rem_euclid(7) + 1) as i16
    }

    pub fn is_weekday(self) -> bool {
        self.weekday() <= 5
    }

    /// The `count` weekdays before this day, oldest first.
    pub fn weekdays_before(self, count: usize) -> Vec<Date> {
        let mut days: Vec<Date> =
            (1..).map(|back| Date(self.0 - back)).filter(|day| day.is_weekday()).take(count).collect();
        days.reverse();
        days
    }

    pub fn at(self, micros_of_day: i64) -> Timestamp {
        Timestamp(i64::from(self.0) * MICROS_PER_DAY + micros_of_day)
    }

    /// Reads `YYYY-MM-DD`.
    pub fn parse(text: &[u8]) -> Option<Date> {
        if text.len() != 10 || text[4] != b'-' || text[7] != b'-' {
            return None;
        }
        let year = digits(&text[0..4])?;
        let month = digits(&text[5..7])?;
        Date::new(year as i32, month, digits(&text[8..10])?)
    }
}

impl Timestamp {
    pub fn date(self) -> Date {
        Date(self.0.div_euclid(MICROS_PER_DAY) as i32)
    }

    pub fn micros_of_day(self) -> i64 {
        self.0.rem_euclid(MICROS_PER_DAY)
    }

    /// Reads `YYYY-MM-DD HH:MM:SS.mmm`, the feed's only form.
    pub fn parse(text: &[u8]) -> Option<Timestamp> {
        if text.len() != 23 || text[10] != b' ' || text[13] != b':' || text[16] != b':' || text[19] != b'.' {
            return None;
        }
        let date = Date::parse(&text[0..10])?;
        let hour = digits(&text[11..13])?;
        let minute = digits(&text[14..16])?;
        let second = digits(&text[17..19])?;
        let milli = digits(&text[20..23])?;
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let seconds = i64::from(hour * 3_600 + minute * 60 + second);
        Some(date.at(seconds * MICROS_PER_SECOND + i64::from(milli) * 1_000))
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.civil();
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.micros_of_day();
        let (seconds, millis) = (micros / MICROS_PER_SECOND, micros % MICROS_PER_SECOND / 1_000);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        write!(f, "{} {hour:02}:{minute:02}:{second:02}.{millis:03}", self.date())
    }
}

fn days_in_month(year: i32, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// At most nine digits and nothing else.
fn digits(text: &[u8]) -> Option<u32> {
    text.iter().try_fold(0u32, |n, &b| b.is_ascii_digit().then(|| n * 10 + u32::from(b - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_count_from_2000_and_read_back() {
        assert_eq!(Date::new(2000, 1, 1), Some(Date(0)));
        assert_eq!(Date::new(2021, 12, 1), Some(Date(8005)));
        for days in (-100_000..100_000).step_by(37) {
            let (year, month, day) = Date(days).civil();
            assert_eq!(Date::new(year, month, day), Some(Date(days)));
        }
    }

    #[test]
    fn days_that_do_not_exist_are_refused() {
        assert_eq!(Date::parse(b"2021-02-29"), None);
        assert_eq!(Date::parse(b"2021-13-01"), None);
        assert_eq!(Date::parse(b"2021-00-01"), None);
        assert_eq!(Date::parse(b"2021-1-011"), None);
        assert!(Date::parse(b"2020-02-29").is_some());
        assert_eq!(Date::parse(b"1900-02-29"), None);
    }

    #[test]
    fn timestamps_read_and_write_the_same_text() {
        for text in ["2021-12-01 09:15:01.000", "1999-12-31 23:59:59.999"] {
            let ts = Timestamp::parse(text.as_bytes()).expect("valid");
            assert_eq!(ts.to_string(), text);
        }
        for bad in
            ["2021-12-01 24:00:00.000", "2021-12-01 09:60:00.000", "2021-12-01T09:15:01.000", "2021-12-01 09:15:01", ""]
        {
            assert_eq!(Timestamp::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn weekdays_before_a_monday_start_on_friday() {
        let monday = Date::parse(b"2021-11-29").expect("valid");
        assert_eq!(monday.weekday(), 1);
        let days = monday.weekdays_before(6);
        assert_eq!(days[5].to_string(), "2021-11-26");
        assert_eq!(days[0].to_string(), "2021-11-19");
    }
}
