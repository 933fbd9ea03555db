//! The input side: fields, and what each of them turns out to mean.

use super::abbreviations::{self, Abbreviation};
use super::*;
use crate::error::SqlError;
use crate::value::fault;
use crate::value::text::is_space;
use crate::value::zone::Clock;
use freshet_engine::schema::Type;

/// Which parts of a date and time have been met.
const YEAR: u8 = 1;
const MONTH: u8 = 2;
const DAY: u8 = 4;
const DATE: u8 = YEAR | MONTH | DAY;
const TIME: u8 = 8;
const ZONE: u8 = 16;
const DAY_OF_YEAR: u8 = 32;
const WEEKDAY: u8 = 64;

/// Longest text PostgreSQL takes apart.
const TEXT_MAX: usize = 128;
const FIELDS_MAX: usize = 25;
/// Zones are less than 16 hours from Greenwich.
const ZONE_HOURS_MAX: i64 = 15;

/// Why a text is refused; the message is made where the type is known.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Refusal {
    Format,
    FieldRange,
    /// A month or day out of range: the order of the fields may be the cause.
    FieldOrder,
    ZoneRange,
    UnknownZone(String),
}

type Parsed<T> = Result<T, Refusal>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    Number,
    Date,
    Time,
    Zone,
    Word,
    /// A sign and a word.
    Signed,
}

struct FieldText {
    look: Look,
    text: String,
}

/// Reads a `date`: days since 2000-01-01.
pub(crate) fn read_date(text: &[u8], clock: &Clock) -> Result<i64, SqlError> {
    let moment = parse(text, false, clock.dates.order).map_err(|r| refuse(r, "date", text))?;
    let days = match moment {
        Moment::Now => shown(clock).div_euclid(DAY_US),
        Moment::Today { shift_days, .. } => shown(clock).div_euclid(DAY_US) + shift_days,
        Moment::Infinity => return Ok(DATE_INFINITY),
        Moment::NegativeInfinity => return Ok(DATE_NEGATIVE_INFINITY),
        Moment::Epoch => -EPOCH_DAYS,
        Moment::At { days, .. } => days,
    };
    if !date_in_range(days) {
        return Err(fault::quoted("22008", "date out of range", text));
    }
    Ok(days)
}

/// Reads a `time`: microseconds since midnight.
pub(crate) fn read_time(text: &[u8], clock: &Clock) -> Result<i64, SqlError> {
    if is_now(text) {
        return Ok(shown(clock).rem_euclid(DAY_US));
    }
    // A date before the time is not looked at.
    match parse(text, true, DateOrder::Mdy).map_err(|r| refuse(r, "time", text))? {
        Moment::At { time, .. } => Ok(time),
        _ => Err(fault::invalid_datetime("time", text)),
    }
}

/// Reads a `timestamp`, which ignores a zone: microseconds since 2000-01-01.
pub(crate) fn read_timestamp(text: &[u8], clock: &Clock) -> Result<i64, SqlError> {
    read_moment(text, false, clock)
}

/// Reads a `timestamptz`; without a zone of its own it is a local time of the clock's.
pub(crate) fn read_timestamptz(text: &[u8], clock: &Clock) -> Result<i64, SqlError> {
    read_moment(text, true, clock)
}

/// Whether a time is the clock's.
fn is_now(text: &[u8]) -> bool {
    text.trim_ascii().eq_ignore_ascii_case(b"now")
}

/// Whether a date or timestamp means the same by every clock.
fn is_fixed(text: &[u8], zoned: bool) -> bool {
    let [first, others @ ..] = DateOrder::ALL.map(|order| parse(text, false, order));
    let by_itself = match &first {
        Ok(Moment::Now | Moment::Today { .. }) => false,
        Ok(Moment::At { zone: Told::No, .. }) => !zoned,
        _ => true,
    };
    by_itself && others.iter().all(|other| *other == first)
}

/// The texts of an array's elements, as far as commas and quotes tell them apart.
fn elements(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut is_quoted = false;
    text.split(move |byte| {
        is_quoted ^= *byte == b'"';
        matches!(byte, b'"' | b'{' | b'}') || *byte == b',' && !is_quoted
    })
}

/// Whether a literal of this type means something else for another clock. Of arrays of `timestamptz` that is said of some that mean the same.
pub(crate) fn is_read_by_clock(text: &[u8], to: Type) -> bool {
    match to.unrounded() {
        Type::Date | Type::Timestamp => !is_fixed(text, false),
        Type::Timestamptz => !is_fixed(text, true),
        Type::Time => is_now(text),
        Type::Array(element) => match *element {
            Type::Timestamptz => true,
            Type::Date | Type::Timestamp => elements(text).any(|element| !is_fixed(element, false)),
            Type::Time => elements(text).any(is_now),
            _ => false,
        },
        _ => false,
    }
}

/// The local time that a clock shows.
fn shown(clock: &Clock) -> i64 {
    clock.zone.to_local(clock.now)
}

/// A zone by name, or by an abbreviation in use.
pub(crate) fn zone_named(name: &str) -> Result<Zone, SqlError> {
    match zone_of(&name.to_ascii_lowercase()) {
        Some(Word::Zone(offset_s)) => return Ok(Zone::east(offset_s)),
        Some(Word::Place(zone)) => return Ok(zone),
        _ => {}
    }
    Zone::named(name).ok_or_else(|| crate::value::zone::unknown(name))
}

/// As [`zone_named`], but what is counted from Greenwich is counted to the east, as in a timestamp.
pub(crate) fn zone_or_offset(name: &str) -> Result<Zone, SqlError> {
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(fault::quoted("22023", "invalid input syntax for type numeric time zone", name.as_bytes())
            .with_hint("Numeric time zones must have \"-\" or \"+\" as first character."));
    }
    let offset = if name.starts_with(['-', '+']) { offset_us(name) } else { Err(Refusal::Format) };
    match offset {
        Ok(us) => Ok(Zone::east(us / SECOND_US)),
        Err(Refusal::ZoneRange) => Err(SqlError::new("22023", format!("numeric time zone \"{name}\" out of range"))),
        Err(_) => zone_named(name),
    }
}

/// `+hh`, `+hhmm`, `+hh:mm`, `+hh:mm:ss`.
fn offset_us(text: &str) -> Parsed<i64> {
    let (sign, digits) = (if text.starts_with('-') { -1 } else { 1 }, &text[1..]);
    let mut numbers = [0i64; 3];
    if digits.contains(':') {
        let mut parts = digits.split(':');
        for (slot, part) in numbers.iter_mut().zip(&mut parts) {
            *slot = part.parse().map_err(|_| Refusal::Format)?;
        }
        if parts.next().is_some() {
            return Err(Refusal::Format);
        }
    } else {
        let number: i64 = digits.parse().map_err(|_| Refusal::Format)?;
        (numbers[0], numbers[1]) = if digits.len() > 2 { (number / 100, number % 100) } else { (number, 0) };
    }
    let [hours, minutes, seconds] = numbers;
    if !(0..=ZONE_HOURS_MAX).contains(&hours) || minutes > 59 || seconds > 59 {
        return Err(Refusal::ZoneRange);
    }
    Ok(sign * (hours * HOUR_US + minutes * MINUTE_US + seconds * SECOND_US))
}

fn read_moment(text: &[u8], zoned: bool, clock: &Clock) -> Result<i64, SqlError> {
    let name = if zoned { "timestamp with time zone" } else { "timestamp" };
    let (days, time, told) = match parse(text, false, clock.dates.order).map_err(|r| refuse(r, name, text))? {
        Moment::Now if zoned => return Ok(clock.now),
        Moment::Now => return Ok(shown(clock)),
        Moment::Today { shift_days, time, zone } => (shown(clock).div_euclid(DAY_US) + shift_days, time, zone),
        Moment::Infinity => return Ok(INFINITY),
        Moment::NegativeInfinity => return Ok(NEGATIVE_INFINITY),
        Moment::Epoch => (-EPOCH_DAYS, 0, Told::Offset(0)),
        Moment::At { days, time, zone } => (days, time, zone),
    };
    let local = days.checked_mul(DAY_US).and_then(|us| us.checked_add(time));
    let moment = local.and_then(|local| match told {
        _ if !zoned => Some(local),
        Told::Offset(offset) => local.checked_sub(offset),
        Told::Zone(own) => Some(own.to_utc(local)),
        Told::No => Some(clock.zone.to_utc(local)),
    });
    moment.filter(|us| timestamp_in_range(*us)).ok_or_else(|| fault::quoted("22008", "timestamp out of range", text))
}

fn refuse(refusal: Refusal, type_name: &str, text: &[u8]) -> SqlError {
    let out_of_range = "date/time field value out of range";
    match refusal {
        Refusal::Format => fault::invalid_datetime(type_name, text),
        Refusal::FieldRange => fault::quoted("22008", out_of_range, text),
        Refusal::FieldOrder => {
            let mut error = fault::quoted("22008", out_of_range, text);
            error.hint = Some("Perhaps you need a different \"datestyle\" setting.".to_owned());
            error
        }
        Refusal::ZoneRange => fault::quoted("22009", "time zone displacement out of range", text),
        Refusal::UnknownZone(zone) => SqlError::new("22023", format!("time zone \"{zone}\" not recognized")),
    }
}

/// What a text says.
#[derive(PartialEq, Eq, Debug)]
enum Moment {
    Infinity,
    NegativeInfinity,
    Epoch,
    Now,
    /// A time of the day that is so many days after the clock's.
    Today {
        shift_days: i64,
        time: i64,
        zone: Told,
    },
    At {
        days: i64,
        /// Microseconds, up to 24 hours.
        time: i64,
        zone: Told,
    },
}

/// Which zone a text names.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Told {
    No,
    /// Microseconds east of Greenwich.
    Offset(i64),
    Zone(Zone),
}

fn parse(text: &[u8], time_only: bool, order: DateOrder) -> Parsed<Moment> {
    let fields = cut(text)?;
    if !time_only && let [field] = fields.as_slice() {
        match field.text.as_str() {
            "infinity" => return Ok(Moment::Infinity),
            "-infinity" => return Ok(Moment::NegativeInfinity),
            "epoch" => return Ok(Moment::Epoch),
            "now" => return Ok(Moment::Now),
            _ => {}
        }
    }
    let mut reading = Reading::new(time_only, order);
    for (i, field) in fields.iter().enumerate() {
        reading.take(field, i, &fields)?;
    }
    reading.finish()
}

// Stage 1: fields by their look.

struct Cutter<'a> {
    text: &'a [u8],
    at: usize,
}

impl Cutter<'_> {
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn run(&mut self, into: &mut String, accept: impl Fn(u8) -> bool) {
        while self.at < self.text.len() && accept(self.peek()) {
            into.push(self.peek().to_ascii_lowercase() as char);
            self.at += 1;
        }
    }
}

fn cut(text: &[u8]) -> Parsed<Vec<FieldText>> {
    if text.len() > TEXT_MAX {
        return Err(Refusal::Format);
    }
    let mut cutter = Cutter { text, at: 0 };
    let mut fields = Vec::new();
    while cutter.at < text.len() {
        let byte = cutter.peek();
        if is_space(byte) {
            cutter.at += 1;
            continue;
        }
        let mut field = String::new();
        let look = if byte.is_ascii_digit() {
            cut_number(&mut cutter, &mut field)
        } else if byte == b'.' {
            cutter.run(&mut field, |b| b == b'.' || b.is_ascii_digit());
            Look::Number
        } else if byte.is_ascii_alphabetic() {
            cut_word(&mut cutter, &mut field)
        } else if matches!(byte, b'+' | b'-') {
            cut_signed(&mut cutter, &mut field)?
        } else if byte.is_ascii_punctuation() {
            cutter.at += 1;
            continue;
        } else {
            return Err(Refusal::Format);
        };
        fields.push(FieldText { look, text: field });
        if fields.len() > FIELDS_MAX {
            return Err(Refusal::Format);
        }
    }
    Ok(fields)
}

fn cut_number(cutter: &mut Cutter<'_>, field: &mut String) -> Look {
    let digit = |b: u8| b.is_ascii_digit();
    cutter.run(field, digit);
    let delimiter = cutter.peek();
    match delimiter {
        b':' => {
            cutter.run(field, |b| digit(b) || matches!(b, b':' | b'.'));
            Look::Time
        }
        b'-' | b'/' | b'.' => {
            cutter.at += 1;
            field.push(delimiter as char);
            if !digit(cutter.peek()) {
                cutter.run(field, |b| b.is_ascii_alphanumeric() || b == delimiter);
                return Look::Date;
            }
            cutter.run(field, digit);
            if cutter.peek() == delimiter {
                cutter.run(field, |b| digit(b) || b == delimiter);
                return Look::Date;
            }
            if delimiter == b'.' { Look::Number } else { Look::Date }
        }
        _ => Look::Number,
    }
}

fn cut_word(cutter: &mut Cutter<'_>, field: &mut String) -> Look {
    cutter.run(field, |b| b.is_ascii_alphabetic());
    let next = cutter.peek();
    // "jan-08-1999" and zone names: a known word ends where its letters end, but "PST8PDT" is one name.
    let ends = || !matches!(Word::of(field), None | Some(Word::Zone(_) | Word::Place(_)));
    let joined = matches!(next, b'-' | b'/' | b'.') || ((next == b'+' || next.is_ascii_digit()) && !ends());
    if !joined {
        return Look::Word;
    }
    cutter.run(field, |b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'/' | b'_' | b'.' | b':'));
    Look::Date
}

fn cut_signed(cutter: &mut Cutter<'_>, field: &mut String) -> Parsed<Look> {
    field.push(cutter.peek() as char);
    cutter.at += 1;
    while is_space(cutter.peek()) {
        cutter.at += 1;
    }
    if cutter.peek().is_ascii_digit() {
        cutter.run(field, |b| b.is_ascii_digit() || matches!(b, b':' | b'.' | b'-'));
        Ok(Look::Zone)
    } else if cutter.peek().is_ascii_alphabetic() {
        cutter.run(field, |b| b.is_ascii_alphabetic());
        Ok(Look::Signed)
    } else {
        Err(Refusal::Format)
    }
}

/// A word with a meaning.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Word {
    Month(i64),
    Weekday,
    Am,
    Pm,
    Bc,
    Ad,
    /// Seconds east of Greenwich.
    Zone(i64),
    /// A zone's time by its abbreviation.
    Place(Zone),
    /// The `t` of ISO 8601: a time follows.
    IsoTime,
    /// The `j` before a Julian day.
    Julian,
    Ignored,
    /// Midnight in Greenwich.
    AllBalls,
    /// So many days from today.
    Today(i64),
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const WEEKDAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

impl Word {
    fn of(text: &str) -> Option<Word> {
        let names = |full: &&str| *full == text || &full[..3] == text;
        if let Some(month) = MONTHS.iter().position(&names) {
            return Some(Word::Month(month as i64 + 1));
        }
        if WEEKDAYS.iter().any(names) {
            return Some(Word::Weekday);
        }
        Some(match text {
            "sept" => Word::Month(9),
            "tue" | "tues" | "wed" | "weds" | "thu" | "thur" | "thurs" => Word::Weekday,
            "am" => Word::Am,
            "pm" => Word::Pm,
            "bc" | "b.c." => Word::Bc,
            "ad" | "a.d." => Word::Ad,
            "t" => Word::IsoTime,
            "j" | "jd" | "julian" => Word::Julian,
            "at" | "on" => Word::Ignored,
            "allballs" => Word::AllBalls,
            "today" => Word::Today(0),
            "tomorrow" => Word::Today(1),
            "yesterday" => Word::Today(-1),
            zone => return zone_of(zone),
        })
    }
}

/// An abbreviation of PostgreSQL's default set.
fn zone_of(name: &str) -> Option<Word> {
    Some(match abbreviations::find(name)? {
        Abbreviation::Fixed { offset_s, .. } => Word::Zone(*offset_s),
        Abbreviation::Of(place) => Word::Place(Zone::abbreviated(place, name)?),
    })
}

// Stage 2: what the fields mean.

/// The date and time as far as it has been read.
struct Reading {
    met: u8,
    time_only: bool,
    order: DateOrder,
    text_month: bool,
    two_digit_year: bool,
    year: i64,
    month: i64,
    day: i64,
    day_of_year: i64,
    time: i64,
    hour: i64,
    half: Option<Word>,
    bc: bool,
    offset: i64,
    zone: Option<Zone>,
    julian: Option<i64>,
    /// Days from today.
    shift_days: Option<i64>,
    /// The last field was `t` or `j`, which tells what the next number is.
    prefix: Option<Word>,
}

impl Reading {
    fn new(time_only: bool, order: DateOrder) -> Reading {
        Reading {
            met: 0,
            time_only,
            order,
            text_month: false,
            two_digit_year: false,
            year: 0,
            month: 0,
            day: 0,
            day_of_year: 0,
            time: 0,
            hour: 0,
            half: None,
            bc: false,
            offset: 0,
            zone: None,
            julian: None,
            shift_days: None,
            prefix: None,
        }
    }

    fn add(&mut self, parts: u8) -> Parsed<()> {
        if self.met & parts != 0 {
            return Err(Refusal::Format);
        }
        self.met |= parts;
        Ok(())
    }

    fn has(&self, parts: u8) -> bool {
        self.met & parts == parts
    }

    fn take(&mut self, field: &FieldText, index: usize, fields: &[FieldText]) -> Parsed<()> {
        let text = field.text.as_str();
        match field.look {
            Look::Date if self.prefix == Some(Word::Julian) => Err(Refusal::Format),
            Look::Date if self.is_zone_name(text, index, fields) => self.zone_name(text),
            Look::Date if self.time_only && !self.is_date_of_time(index, fields) => Err(Refusal::Format),
            Look::Date => self.date(text),
            Look::Time => {
                if self.prefix == Some(Word::Julian) {
                    return Err(Refusal::Format);
                }
                self.prefix = None;
                self.clock_time(text)
            }
            Look::Zone => self.zone(text),
            Look::Number => self.number_field(text),
            Look::Word => self.word(text),
            Look::Signed => Err(Refusal::Format),
        }
    }

    /// A joined field after a complete date is a zone by name or, with leading digits, a time and such a zone.
    fn is_zone_name(&self, text: &str, index: usize, fields: &[FieldText]) -> bool {
        let starts_with_letter = text.starts_with(|c: char| c.is_ascii_alphabetic());
        starts_with_letter && (self.time_only || self.has(MONTH | DAY)) && !self.is_date_of_time(index, fields)
    }

    /// Before a time of day, a date is read and ignored if it comes first and the time next, or if there is another date last.
    fn is_date_of_time(&self, index: usize, fields: &[FieldText]) -> bool {
        let looks = |field: Option<&FieldText>, look| field.is_some_and(|f| f.look == look);
        index == 0 && fields.len() >= 2 && (looks(fields.get(1), Look::Time) || looks(fields.last(), Look::Date))
    }

    fn zone_name(&mut self, text: &str) -> Parsed<()> {
        let zone = Zone::named(text).ok_or_else(|| Refusal::UnknownZone(text.to_owned()))?;
        self.add(ZONE)?;
        self.zone = Some(zone);
        Ok(())
    }

    fn word(&mut self, text: &str) -> Parsed<()> {
        let word = Word::of(text).ok_or(Refusal::Format)?;
        match word {
            Word::Month(month) => {
                // "99 jan 8": a number taken for the month was the day.
                if self.has(MONTH) && !self.text_month && !self.has(DAY) && (1..=31).contains(&self.month) {
                    self.day = self.month;
                    self.met = self.met & !MONTH | DAY;
                }
                self.add(MONTH)?;
                self.text_month = true;
                self.month = month;
            }
            Word::Weekday => self.add(WEEKDAY)?,
            Word::Ignored => {}
            Word::Am | Word::Pm => self.half = Some(word),
            Word::Bc => self.bc = true,
            Word::Ad => self.bc = false,
            Word::Zone(offset_s) => {
                self.add(ZONE)?;
                self.offset = offset_s * SECOND_US;
            }
            Word::Place(zone) => {
                self.add(ZONE)?;
                self.zone = Some(zone);
            }
            Word::IsoTime => {
                if !self.time_only && !self.has(DATE) {
                    return Err(Refusal::Format);
                }
                self.prefix = Some(word);
            }
            Word::Julian => self.prefix = Some(word),
            Word::AllBalls => self.add(TIME | ZONE)?,
            Word::Today(_) if self.time_only => return Err(Refusal::Format),
            Word::Today(shift_days) => {
                self.add(DATE)?;
                self.shift_days = Some(shift_days);
            }
        }
        Ok(())
    }

    fn number_field(&mut self, text: &str) -> Parsed<()> {
        match self.prefix.take() {
            Some(Word::Julian) => return self.julian_day(text),
            Some(_) => return self.run_of_digits(text, self.met | DATE),
            None => {}
        }
        if self.time_only {
            return self.run_of_digits(text, self.met | DATE);
        }
        let point = text.find('.');
        match point {
            Some(_) if self.met & DATE == 0 => self.date(text),
            Some(point) if point > 2 => self.run_of_digits(text, self.met),
            None if text.len() >= 6 && !(self.has(DATE) && self.has(TIME)) => self.run_of_digits(text, self.met),
            _ => self.number(text, self.met, self.text_month).map(|parts| self.met |= parts),
        }
    }

    fn julian_day(&mut self, text: &str) -> Parsed<()> {
        self.add(DATE)?;
        let day: i64 = text.parse().map_err(|_| Refusal::Format)?;
        self.julian = Some(day - 2_451_545);
        Ok(())
    }

    /// A field with its own delimiters: words for the month first, then the numbers.
    fn date(&mut self, text: &str) -> Parsed<()> {
        let parts: Vec<&str> = text
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|p| !p.is_empty())
            .flat_map(split_letters)
            .collect();
        let is_word = |p: &&&str| p.starts_with(|c: char| c.is_ascii_alphabetic());
        let mut local = 0;
        for part in parts.iter().filter(is_word) {
            match Word::of(part) {
                Some(Word::Month(month)) if self.met & MONTH == 0 && local & MONTH == 0 => {
                    self.month = month;
                    self.text_month = true;
                    local |= MONTH;
                }
                Some(Word::Ignored | Word::Weekday) => {}
                _ => return Err(Refusal::Format),
            }
        }
        for part in parts.iter().filter(|p| !is_word(p)) {
            let met = self.number(part, self.met & DATE | local, self.text_month)?;
            if met & local != 0 {
                return Err(Refusal::Format);
            }
            local |= met;
        }
        // Nothing but a zone may stand before a date with delimiters.
        if (self.met | local) & !(DAY_OF_YEAR | ZONE) != DATE {
            return Err(Refusal::Format);
        }
        self.add(local)
    }

    /// One number: the next missing part of the date, given the parts in `met`. Returns the part.
    fn number(&mut self, text: &str, met: u8, text_month: bool) -> Parsed<u8> {
        if let Some(point) = text.find('.') {
            if point > 2 {
                self.run_of_digits(text, met | DATE)?;
                return Ok(0);
            }
            return Err(Refusal::Format);
        }
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Refusal::Format);
        }
        let value = text.parse::<i32>().map(i64::from).map_err(|_| Refusal::FieldRange)?;
        let length = text.len();
        if length == 3 && met & DATE == YEAR && (1..=366).contains(&value) {
            self.day_of_year = value;
            return Ok(MONTH | DAY | DAY_OF_YEAR);
        }
        let is_year_first = length >= 3 || self.order == DateOrder::Ymd;
        let part = match met & DATE {
            0 if is_year_first => YEAR,
            0 if self.order == DateOrder::Dmy => DAY,
            0 | DAY | YEAR => MONTH,
            MONTH if text_month && is_year_first => YEAR,
            MONTH => DAY,
            m if m == YEAR | MONTH && text_month && length >= 3 && self.two_digit_year => {
                // "08-jan-1999" began with the day after all.
                self.day = self.year;
                self.year = value;
                self.two_digit_year = false;
                return Ok(DAY);
            }
            m if m == YEAR | MONTH => DAY,
            m if m == YEAR | DAY => MONTH,
            m if m == MONTH | DAY => YEAR,
            _ => {
                self.run_of_digits(text, met)?;
                return Ok(0);
            }
        };
        match part {
            YEAR => {
                self.year = value;
                self.two_digit_year = length <= 2;
            }
            MONTH => self.month = value,
            _ => self.day = value,
        }
        Ok(part)
    }

    /// Digits run together: `yyyymmdd`, `yymmdd`, or with a complete date `hhmmss`, `hhmm`, with a fraction or not.
    fn run_of_digits(&mut self, text: &str, met: u8) -> Parsed<()> {
        let (digits, fraction) = match text.find('.') {
            Some(point) => (&text[..point], fraction_us(&text[point..])?),
            None => (text, 0),
        };
        let number = |t: &str| t.parse::<i64>().map_err(|_| Refusal::Format);
        let has_point = digits.len() < text.len();
        if !has_point && met & DATE != DATE && digits.len() >= 6 {
            let (rest, day) = digits.split_at(digits.len() - 2);
            let (year, month) = rest.split_at(rest.len() - 2);
            self.day = number(day)?;
            self.month = number(month)?;
            self.year = year.parse::<i32>().map(i64::from).map_err(|_| Refusal::FieldRange)?;
            self.two_digit_year = year.len() == 2;
            return self.add(DATE);
        }
        if met & TIME != 0 || !matches!(digits.len(), 4 | 6) {
            return Err(Refusal::Format);
        }
        let second = if digits.len() == 6 { number(&digits[4..])? } else { 0 };
        self.set_time(number(&digits[..2])?, number(&digits[2..4])?, second, fraction)
    }

    /// `hh:mm`, `hh:mm:ss`, `hh:mm:ss.fraction`.
    fn clock_time(&mut self, text: &str) -> Parsed<()> {
        let (clock, fraction) = match text.find('.') {
            Some(point) => (&text[..point], fraction_us(&text[point..])?),
            None => (text, 0),
        };
        let mut numbers = [0i64; 3];
        let mut count = 0;
        for part in clock.split(':') {
            let slot = numbers.get_mut(count).ok_or(Refusal::Format)?;
            count += 1;
            if part.is_empty() && count < 2 || part.len() > 10 {
                return Err(Refusal::Format);
            }
            *slot = if part.is_empty() { 0 } else { part.parse().map_err(|_| Refusal::Format)? };
        }
        if count < 2 || clock.len() < text.len() && count != 3 {
            return Err(Refusal::Format);
        }
        self.set_time(numbers[0], numbers[1], numbers[2], fraction)
    }

    fn set_time(&mut self, hour: i64, minute: i64, second: i64, fraction: i64) -> Parsed<()> {
        self.add(TIME)?;
        let in_hour = minute * MINUTE_US + second * SECOND_US + fraction;
        if hour > 24 || minute > 59 || second > 60 || hour * HOUR_US + in_hour > DAY_US {
            return Err(Refusal::FieldRange);
        }
        self.hour = hour;
        self.time = in_hour;
        Ok(())
    }

    fn zone(&mut self, text: &str) -> Parsed<()> {
        self.add(ZONE)?;
        self.offset = offset_us(text)?;
        Ok(())
    }

    fn finish(mut self) -> Parsed<Moment> {
        let time = self.time_of_day()?;
        if self.time_only {
            if !self.has(TIME) {
                return Err(Refusal::Format);
            }
            return Ok(Moment::At { days: 0, time, zone: Told::No });
        }
        if !self.has(DATE) || self.prefix.is_some() {
            return Err(Refusal::Format);
        }
        let zone = match self.zone.take() {
            Some(zone) => Told::Zone(zone),
            None if self.has(ZONE) => Told::Offset(self.offset),
            None => Told::No,
        };
        if let Some(shift_days) = self.shift_days {
            return Ok(Moment::Today { shift_days, time, zone });
        }
        let days = match self.julian {
            Some(days) => days,
            None => self.days()?,
        };
        Ok(Moment::At { days, time, zone })
    }

    fn time_of_day(&self) -> Parsed<i64> {
        if self.half.is_some() && self.hour > 12 {
            return Err(Refusal::FieldRange);
        }
        let hour = match self.half {
            Some(Word::Am) if self.hour == 12 => 0,
            Some(Word::Pm) if self.hour != 12 => self.hour + 12,
            _ => self.hour,
        };
        Ok(hour * HOUR_US + self.time)
    }

    fn days(&mut self) -> Parsed<i64> {
        if self.bc {
            if self.year <= 0 {
                return Err(Refusal::FieldRange);
            }
            self.year = 1 - self.year;
        } else if self.two_digit_year {
            self.year += if self.year < 70 { 2000 } else { 1900 };
        } else if self.year <= 0 {
            return Err(Refusal::FieldRange);
        }
        let first = Civil { year: self.year, month: 1, day: 1 };
        if self.has(DAY_OF_YEAR) {
            return Ok(days_of(first) + self.day_of_year - 1);
        }
        if !(1..=12).contains(&self.month) || !(1..=31).contains(&self.day) {
            return Err(Refusal::FieldOrder);
        }
        if self.day > days_in_month(self.year, self.month) {
            return Err(Refusal::FieldRange);
        }
        Ok(days_of(Civil { month: self.month, day: self.day, ..first }))
    }
}

/// Cuts `8jan1999` between digits and letters.
fn split_letters(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let letters = first.is_ascii_alphabetic();
        let end = rest.find(|c: char| c.is_ascii_alphabetic() != letters).unwrap_or(rest.len());
        parts.push(&rest[..end]);
        rest = &rest[end..];
    }
    parts
}

/// `.123` in microseconds, rounded to even as the float that PostgreSQL computes with.
fn fraction_us(text: &str) -> Parsed<i64> {
    let digits = text.strip_prefix('.').unwrap_or(text);
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Refusal::Format);
    }
    if digits.is_empty() {
        return Ok(0);
    }
    let fraction: f64 = text.parse().map_err(|_| Refusal::Format)?;
    Ok((fraction * 1e6).round_ties_even() as i64)
}
