//! What do abbreviations of zones mean? Those of PostgreSQL 15's set `Default`, in `abbreviations.txt`: a line has the abbreviation in lower case,
//! then seconds east of Greenwich, with `D` in summer time, or the zone whose time is called so.

use std::collections::HashMap;
use std::sync::LazyLock;

pub(crate) enum Abbreviation {
    Fixed {
        offset_s: i64,
        is_summer: bool,
    },
    /// What a zone calls its time so, when it did.
    Of(&'static str),
}

static ALL: LazyLock<HashMap<&'static str, Abbreviation>> = LazyLock::new(|| {
    let of_line = |line: &'static str| {
        let mut words = line.split(' ');
        let (name, means) = (words.next()?, words.next()?);
        let abbreviation = match means.parse() {
            Ok(offset_s) => Abbreviation::Fixed { offset_s, is_summer: words.next() == Some("D") },
            Err(_) => Abbreviation::Of(means),
        };
        Some((name, abbreviation))
    };
    include_str!("abbreviations.txt").lines().filter_map(of_line).collect()
});

/// By its name in lower case.
pub(super) fn find(name: &str) -> Option<&'static Abbreviation> {
    ALL.get(name)
}

pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static Abbreviation)> {
    ALL.iter().map(|(name, abbreviation)| (*name, abbreviation))
}
