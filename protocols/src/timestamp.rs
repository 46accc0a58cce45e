//! A time as files have it: with the offset of the place where it was written.

#![allow(clippy::disallowed_methods, reason = "opens the machine's time zone")]

use std::fmt;
use std::path::Path;

use jiff::civil::{DateTime, Time};
use jiff::fmt::temporal::Pieces;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, Zoned};
use serde::{Serialize, Serializer};

/// A time zone by its name, `Europe/Zurich`. It is read from the host's own file, or else from the built-in copy: a
/// database of all zones would first walk through hundreds of folders, every time.
pub fn zone(name: &str) -> Option<TimeZone> {
    let is_plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-_".contains(&b))
    };
    if name == "UTC" {
        return Some(TimeZone::UTC);
    }
    if !name.split('/').all(is_plain) {
        return None;
    }
    let file = Path::new("/usr/share/zoneinfo").join(name);
    let known = std::fs::read(file).ok().and_then(|bytes| TimeZone::tzif(name, &bytes).ok());
    known.or_else(|| TimeZoneDatabase::bundled().get(name).ok())
}

/// To the second, with its offset: `2026-01-31T16:10:00+01:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OffsetTimestamp {
    at: Timestamp,
    offset: Offset,
}

impl OffsetTimestamp {
    pub fn from_zoned(now: &Zoned) -> Self {
        let at = Timestamp::from_second(now.timestamp().as_second()).unwrap_or(now.timestamp());
        Self { at, offset: now.offset() }
    }

    /// Reads an ISO date and time. A time without an offset, and a date alone, are local to `zone`.
    pub fn parse(text: &str, zone: &TimeZone) -> Option<Self> {
        let pieces = Pieces::parse(text.trim()).ok()?;
        let local = DateTime::from_parts(pieces.date(), pieces.time().unwrap_or(Time::midnight()));
        let zoned = match pieces.to_numeric_offset() {
            // `Z` gives a time and no place.
            Some(offset) => offset.to_timestamp(local).ok()?.to_zoned(TimeZone::fixed(offset)),
            None => zone.to_zoned(local).ok()?,
        };
        Some(Self::from_zoned(&zoned))
    }

    pub fn timestamp(self) -> Timestamp {
        self.at
    }

    fn zoned(self) -> Zoned {
        self.at.to_zoned(TimeZone::fixed(self.offset))
    }

    /// `2026-01-31`
    pub fn date(self) -> String {
        self.zoned().strftime("%Y-%m-%d").to_string()
    }

    /// `1610`
    pub fn hhmm(self) -> String {
        self.zoned().strftime("%H%M").to_string()
    }
}

impl fmt::Display for OffsetTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.zoned().strftime("%Y-%m-%dT%H:%M:%S%:z"))
    }
}

impl Serialize for OffsetTimestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_files_write_is_read() {
        let zone = TimeZone::get("Europe/Zurich").expect("a zone");
        for (text, read) in [
            ("2026-01-31T16:10:00+01:00", "2026-01-31T16:10:00+01:00"),
            ("2026-01-31T16:10:00Z", "2026-01-31T16:10:00+00:00"),
            ("2026-01-31T16:10:00.123456+01:00", "2026-01-31T16:10:00+01:00"),
            ("2026-01-31 16:10", "2026-01-31T16:10:00+01:00"),
            ("2026-07-31", "2026-07-31T00:00:00+02:00"),
        ] {
            assert_eq!(
                OffsetTimestamp::parse(text, &zone).map(|moment| moment.to_string()).as_deref(),
                Some(read),
                "{text}"
            );
        }
        assert_eq!(OffsetTimestamp::parse("yesterday", &zone), None);
    }

    #[test]
    fn zones_are_found_and_paths_are_not() {
        for name in
            ["UTC", "Europe/Zurich", "Pacific/Auckland", "America/Argentina/Buenos_Aires", "Etc/GMT+3"]
        {
            assert_eq!(zone(name).as_ref().and_then(TimeZone::iana_name), Some(name));
        }
        for name in ["", "Mars", "../../etc/passwd", "/etc/localtime", "Europe/", "zone.tab"] {
            assert_eq!(zone(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_moment_reads_back_as_itself(second in -2_000_000_000_i64..4_000_000_000, hours in -12_i8..=14) {
            let zone = TimeZone::fixed(Offset::from_hours(hours).expect("an offset"));
            let moment = OffsetTimestamp::from_zoned(&Timestamp::from_second(second).expect("a time").to_zoned(zone));
            prop_assert_eq!(OffsetTimestamp::parse(&moment.to_string(), &TimeZone::UTC), Some(moment));
        }
    }
}
