//! Which time does a clock on a wall show? Time zones by name, with their changes, from the IANA database that the crate `jiff` brings along.
//!
//! A local time that a change skips is read with the offset before the change, one that comes twice with the offset after it, as
//! PostgreSQL does.

use super::datetime::{self, DateStyle, SECOND_US};
use super::interval::{Interval, IntervalStyle};
use crate::catalog::Known;
use crate::error::SqlError;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use parking_lot::Mutex;
use std::sync::Arc;

/// Seconds from 1970 to 2000.
const EPOCH_S: i64 = 946_684_800;
/// The calendar and with it the rules of a zone repeat.
const CYCLE_S: i64 = 146_097 * 86_400;
/// After these years moments are looked up a number of cycles nearer; before them a zone had its first time already.
const NEAR_S: std::ops::Range<i64> = -60_000_000_000..60_000_000_000;

/// Changes of a zone that are searched for an abbreviation, each way: there is an end to those that its rules foresee.
const CHANGES_MAX: usize = 400;

/// What values are read and written by: the session's zone and its styles of dates and intervals, when its transaction began (microseconds since
/// 2000-01-01 UTC), and the catalog in which names of objects are found. What each result compares comes first: see [`crate::rows::RowSet`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Clock {
    pub zone: Zone,
    pub catalog: Known,
    pub now: i64,
    pub dates: DateStyle,
    pub intervals: IntervalStyle,
    pub seeded: Seeded,
}

impl Clock {
    /// In Greenwich, for values that no zone changes.
    pub const UTC: &'static Clock = &Clock {
        zone: Zone::Utc,
        catalog: Known(None),
        now: 0,
        dates: DateStyle::DEFAULT,
        intervals: IntervalStyle::Postgres,
        seeded: Seeded(None),
    };
}

/// The numbers that `random()` gives a session after `setseed`: xoroshiro128**, as PostgreSQL 15 computes them. All clocks are equal in this.
#[derive(Clone, Debug, Default)]
pub struct Seeded(Option<Arc<Mutex<Option<[u64; 2]>>>>);

impl Seeded {
    /// Of a session.
    pub fn of_session() -> Seeded {
        Seeded(Some(Arc::default()))
    }

    pub(crate) fn set(&self, seed: f64) {
        let mut state = (((1_u64 << 52) - 1) as f64 * seed) as i64 as u64;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        };
        let words = [next(), next()];
        if let Some(shared) = &self.0 {
            *shared.lock() = Some(words);
        }
    }

    /// The next 64 bits; `None`: the session was given no seed.
    pub(crate) fn next(&self) -> Option<u64> {
        let mut shared = self.0.as_ref()?.lock();
        let words = shared.as_mut()?;
        let (first, mixed) = (words[0], words[1] ^ words[0]);
        *words = [first.rotate_left(24) ^ mixed ^ mixed << 16, mixed.rotate_left(37)];
        Some(first.wrapping_mul(5).rotate_left(7).wrapping_mul(9))
    }
}

impl PartialEq for Seeded {
    fn eq(&self, _: &Seeded) -> bool {
        true
    }
}

impl Eq for Seeded {}

impl std::hash::Hash for Seeded {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

/// A time zone. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub enum Zone {
    #[default]
    Utc,
    Fixed(Arc<Fixed>),
    Named(Arc<Named>),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Fixed {
    offset_s: i64,
    name: String,
    abbreviation: String,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Named {
    zone: TimeZone,
    name: String,
    /// Its time is the one that it calls so, whether it is in force or not.
    abbreviation: Option<String>,
}

impl Named {
    /// Seconds east of Greenwich of the time with the abbreviation: as it was last, or else as it will be first.
    fn abbreviated_s(&self, moment: i64) -> Option<i64> {
        let wanted = self.abbreviation.as_deref()?;
        let moment = near(moment);
        let now = self.zone.to_offset_info(moment);
        if now.abbreviation() == wanted {
            return Some(now.offset().seconds().into());
        }
        let change =
            |change: jiff::tz::TimeZoneTransition<'_>| (change.abbreviation() == wanted).then(|| change.offset());
        let before = self.zone.preceding(moment).take(CHANGES_MAX).find_map(change);
        let offset = before.or_else(|| self.zone.following(moment).take(CHANGES_MAX).find_map(change));
        offset.map(|offset| offset.seconds().into())
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Zone) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Zone {}

impl std::hash::Hash for Zone {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl Zone {
    /// Whether one is a clone of the other, which says that they are equal; others may be equal, too.
    #[inline]
    pub fn is_clone_of(&self, other: &Zone) -> bool {
        match (self, other) {
            (Zone::Utc, Zone::Utc) => true,
            (Zone::Fixed(zone), Zone::Fixed(other)) => Arc::ptr_eq(zone, other),
            (Zone::Named(zone), Zone::Named(other)) => Arc::ptr_eq(zone, other),
            _ => false,
        }
    }

    /// The zone as SHOW TimeZone tells it.
    pub fn name(&self) -> &str {
        match self {
            Zone::Utc => "UTC",
            Zone::Fixed(fixed) => &fixed.name,
            Zone::Named(named) => &named.name,
        }
    }

    /// A name of the database, in any case, or a POSIX zone like `EST5`, `UTC+3` (the sign is that of the way west) or
    /// `PST8PDT,M3.2.0,M11.1.0`.
    pub fn named(name: &str) -> Option<Zone> {
        if matches!(name.to_ascii_uppercase().as_str(), "UTC" | "ETC/UTC") {
            return Some(if name.len() == 3 { Zone::Utc } else { Zone::fixed(0, "Etc/UTC", "UTC") });
        }
        match jiff::tz::db().get(name) {
            Ok(zone) => {
                let name = zone.iana_name().unwrap_or(name).to_owned();
                Some(Zone::Named(Arc::new(Named { zone, name, abbreviation: None })))
            }
            Err(_) => posix(name).or_else(|| posix_with_summer(name)),
        }
    }

    /// The time that a zone calls by an abbreviation.
    pub(crate) fn abbreviated(place: &str, abbreviation: &str) -> Option<Zone> {
        let zone = jiff::tz::db().get(place).ok()?;
        let abbreviation = abbreviation.to_ascii_uppercase();
        let name = abbreviation.clone();
        Some(Zone::Named(Arc::new(Named { zone, name, abbreviation: Some(abbreviation) })))
    }

    /// Those that there are by name.
    pub fn all() -> Vec<(String, Zone)> {
        let names = jiff::tz::db().available().map(|name| name.to_string());
        names.filter_map(|name| Zone::named(&name).map(|zone| (name, zone))).collect()
    }

    /// Whether it is summer time there.
    pub fn is_dst(&self, moment: i64) -> bool {
        match self {
            Zone::Named(named) => named.zone.to_offset_info(near(moment)).dst().is_dst(),
            Zone::Utc | Zone::Fixed(_) => false,
        }
    }

    /// What SET TimeZone takes: also a number of hours to the east.
    pub fn of_setting(value: &str) -> Option<Zone> {
        let value = value.trim();
        if value.eq_ignore_ascii_case("local") || value.eq_ignore_ascii_case("default") {
            return Some(Zone::Utc);
        }
        match value.parse::<f64>() {
            Ok(hours) if hours.abs() < 168.0 => Some(Zone::east((hours * 3600.0).round() as i64)),
            Ok(_) => None,
            Err(_) => Zone::named(value),
        }
    }

    /// So far from Greenwich as an interval without days says.
    pub(crate) fn of_interval(stored: &[u8]) -> Result<Zone, SqlError> {
        let refused =
            |what: &str| SqlError::new("22023", format!("invalid interval value for time zone: {what} not allowed"));
        match Interval::from_stored(stored) {
            Interval { months: 0, days: 0, us } => Ok(Zone::east(us / SECOND_US)),
            Interval { months: 0, .. } => Err(refused("day")),
            _ => Err(refused("month")),
        }
    }

    /// A fixed offset, named as PostgreSQL names it: `<-05>+05`.
    pub fn east(offset_s: i64) -> Zone {
        let shown = |offset: i64, plus: &str| {
            let sign = if offset < 0 { "-" } else { plus };
            let (hours, minutes) = (offset.abs() / 3600, offset.abs() % 3600 / 60);
            if minutes == 0 { format!("{sign}{hours:02}") } else { format!("{sign}{hours:02}:{minutes:02}") }
        };
        let abbreviation = shown(offset_s, "+");
        // As POSIX has it, to the west; of nothing, too.
        let west = if offset_s == 0 { "-00".to_owned() } else { shown(-offset_s, "+") };
        Zone::fixed(offset_s, &format!("<{abbreviation}>{west}"), &abbreviation)
    }

    fn fixed(offset_s: i64, name: &str, abbreviation: &str) -> Zone {
        Zone::Fixed(Arc::new(Fixed { offset_s, name: name.to_owned(), abbreviation: abbreviation.to_owned() }))
    }

    /// Seconds east of Greenwich at a moment (microseconds since 2000-01-01 UTC).
    pub fn offset_s(&self, moment: i64) -> i64 {
        match self {
            Zone::Utc => 0,
            Zone::Fixed(fixed) => fixed.offset_s,
            Zone::Named(named) => {
                named.abbreviated_s(moment).unwrap_or_else(|| named.zone.to_offset(near(moment)).seconds().into())
            }
        }
    }

    /// The zone's name of its time at a moment: `CEST`.
    pub fn abbreviation(&self, moment: i64) -> String {
        match self {
            Zone::Utc => "UTC".to_owned(),
            Zone::Fixed(fixed) => fixed.abbreviation.clone(),
            Zone::Named(named) => named.zone.to_offset_info(near(moment)).abbreviation().to_owned(),
        }
    }

    /// The local time of a moment.
    pub fn to_local(&self, moment: i64) -> i64 {
        match self {
            Zone::Utc => moment,
            _ if !datetime::is_finite(moment) => moment,
            _ => moment.saturating_add(self.offset_s(moment) * SECOND_US),
        }
    }

    /// The moment of a local time.
    pub fn to_utc(&self, local: i64) -> i64 {
        match self {
            Zone::Utc => local,
            _ if !datetime::is_finite(local) => local,
            Zone::Fixed(fixed) => local.saturating_sub(fixed.offset_s * SECOND_US),
            Zone::Named(named) => {
                let offset: Offset = match named.zone.to_ambiguous_timestamp(civil(local)).offset() {
                    AmbiguousOffset::Unambiguous { offset } => offset,
                    AmbiguousOffset::Gap { before, .. } => before,
                    AmbiguousOffset::Fold { after, .. } => after,
                };
                let moment = local.saturating_sub(i64::from(offset.seconds()) * SECOND_US);
                named.abbreviated_s(moment).map_or(moment, |offset_s| local.saturating_sub(offset_s * SECOND_US))
            }
        }
    }
}

/// 22023: there is no such zone.
pub(crate) fn unknown(name: &str) -> SqlError {
    SqlError::new("22023", format!("time zone \"{name}\" not recognized"))
}

fn near(moment: i64) -> Timestamp {
    let seconds = moment.div_euclid(SECOND_US) + EPOCH_S;
    let seconds = if seconds < NEAR_S.end { seconds.max(NEAR_S.start) } else { seconds.rem_euclid(CYCLE_S) + CYCLE_S };
    Timestamp::from_second(seconds).expect("a time within some thousand years")
}

fn civil(local: i64) -> DateTime {
    Offset::UTC.to_datetime(near(local))
}

/// `PST8PDT,M3.2.0,M11.1.0`; without rules, those of the United States, as PostgreSQL has it.
fn posix_with_summer(name: &str) -> Option<Zone> {
    let name = name.to_ascii_uppercase();
    let text = if name.contains(',') { name.clone() } else { format!("{name},M3.2.0,M11.1.0") };
    let zone = jiff::tz::TimeZone::posix(&text).ok()?;
    Some(Zone::Named(Arc::new(Named { zone, name, abbreviation: None })))
}

/// Letters or `<...>`, then hours to the west with minutes or not; no rules for summer time.
fn posix(name: &str) -> Option<Zone> {
    let (abbreviation, rest) = match name.strip_prefix('<') {
        Some(quoted) => quoted.split_once('>')?,
        None => name.split_at(name.find(|c: char| !c.is_ascii_alphabetic())?),
    };
    let (sign, digits) = match rest.as_bytes().first()? {
        b'-' => (1, &rest[1..]),
        b'+' => (-1, &rest[1..]),
        _ => (-1, rest),
    };
    let mut parts = digits.split(':').map(|part| part.parse::<i64>().ok().filter(|v| (0..168).contains(v)));
    let hours = parts.next()??;
    let minutes = parts.next().unwrap_or(Some(0))?;
    if parts.next().is_some() || minutes > 59 || digits.starts_with('+') {
        return None;
    }
    Some(Zone::fixed(sign * (hours * 3600 + minutes * 60), name, abbreviation))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> i64 {
        datetime::read_timestamp(text.as_bytes(), Clock::UTC).expect("a timestamp")
    }

    #[test]
    fn local_times_that_are_skipped_or_come_twice() {
        let zone = Zone::named("america/new_york").expect("a zone");
        assert_eq!(zone.name(), "America/New_York");
        for (local, utc) in [
            ("2024-01-01 12:00", "2024-01-01 17:00"),
            ("2024-07-01 12:00", "2024-07-01 16:00"),
            ("2024-03-10 02:30", "2024-03-10 07:30"),
            ("2024-11-03 01:30", "2024-11-03 06:30"),
            ("12024-07-01 12:00", "12024-07-01 16:00"),
        ] {
            assert_eq!(zone.to_utc(at(local)), at(utc), "{local}");
        }
        assert_eq!(zone.to_local(at("2024-07-01 16:00")), at("2024-07-01 12:00"));
        assert_eq!(zone.abbreviation(at("2024-07-01 16:00")), "EDT");
        for long_ago in ["4000-07-01 BC", "0001-07-01", "1800-07-01"] {
            assert_eq!(zone.offset_s(at(long_ago)), -17_762, "{long_ago}: its own noon");
        }
    }

    #[test]
    fn settings_name_offsets() {
        let zone = Zone::of_setting("+3").expect("an offset");
        assert_eq!((zone.name(), zone.offset_s(0)), ("<+03>-03", 10_800));
        let zone = Zone::of_setting("UTC+3").expect("a POSIX zone");
        assert_eq!(zone.offset_s(0), -10_800);
        assert!(Zone::of_setting("nope").is_none());
    }
}
