//! When an agent says that it may go on, in the words of those who write such programs.

use std::sync::LazyLock;

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan, Zoned};
use regex::Regex;

use super::pattern;

/// A time of day that has just gone by is that of now, not that of tomorrow.
const JUST: SignedDuration = SignedDuration::from_mins(10);

/// A moment, in seconds since 1970: `1794907371`, `2026-11-17T10:15:00Z`, `2 days 3 hours`, `90s`, `10:15 AM`,
/// `3pm (Europe/Berlin)`, `Nov 24th, 2026 9:12 AM`.
pub(super) fn moment(text: &str) -> Option<i64> {
    found(text, &Zoned::now())
}

fn found(text: &str, now: &Zoned) -> Option<i64> {
    // Some languages put a space of their own before `PM`.
    let text: String = text.trim().chars().map(|one| if one.is_whitespace() { ' ' } else { one }).collect();
    let text = text.as_str();
    number(text, now)
        .or_else(|| text.parse::<Timestamp>().ok().map(Timestamp::as_second))
        .or_else(|| time_of_day(text, now))
        .or_else(|| duration(text, now))
}

/// Seconds or milliseconds since 1970, or seconds from now.
fn number(text: &str, now: &Zoned) -> Option<i64> {
    let number: i64 = text.parse().ok().filter(|number| *number >= 0)?;
    Some(match number {
        1_000_000_000_000.. => number / 1000,
        1_000_000_000.. => number,
        _ => now.timestamp().as_second().saturating_add(number),
    })
}

static PARTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern::of_text(
        r"(?i)(\d+)\s*(?:(d)(?:ays?)?|(h)(?:ours?|rs?)?|(m)(?:in(?:ute)?s?)?|(s)(?:ec(?:ond)?s?)?)",
    )
    .ok()
});

/// `2 days 3 hours`, from now.
fn duration(text: &str, now: &Zoned) -> Option<i64> {
    let mut seconds: Option<i64> = None;
    for part in PARTS.as_ref()?.captures_iter(text) {
        let after = text[part.get(0)?.end()..].chars().next();
        // Of `3 months`, nothing is known.
        if after.is_some_and(char::is_alphabetic) {
            continue;
        }
        let count: i64 = part[1].parse().ok()?;
        let unit = [(2, 86_400), (3, 3_600), (4, 60), (5, 1)]
            .into_iter()
            .find(|(group, _)| part.get(*group).is_some());
        seconds = Some(seconds.unwrap_or(0).saturating_add(count.saturating_mul(unit?.1)));
    }
    Some(now.timestamp().as_second().saturating_add(seconds?))
}

static CLOCK: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let date = r"(?:(?<month>[A-Z][a-z]{2})[a-z]* (?<day>\d{1,2})(?:st|nd|rd|th)?(?:,? (?<year>\d{4}))?,?\s+(?:at )?)?";
    let time = r"(?<hour>\d{1,2})(?::(?<minute>\d{2}))?\s*(?<half>[AaPp])?\.?(?:[Mm]\.?)?";
    pattern::of_text(&format!(r"^{date}{time}(?:\s*\((?<zone>[A-Za-z_/+-]+)\))?$")).ok()
});

/// The next time it is that late, or the one of that day.
fn time_of_day(text: &str, now: &Zoned) -> Option<i64> {
    let found = CLOCK.as_ref()?.captures(text)?;
    let part = |name: &str| found.name(name).map(|part| part.as_str());
    if part("minute").is_none() && part("half").is_none() {
        return None;
    }
    let hour: i8 = part("hour")?.parse().ok()?;
    let hour = match part("half").map(str::to_ascii_lowercase).as_deref() {
        Some("a") => hour % 12,
        Some(_) => hour % 12 + 12,
        None => hour,
    };
    let time = Time::new(hour, part("minute").unwrap_or("0").parse().ok()?, 0, 0).ok()?;
    let zone = match part("zone") {
        Some(name) => TimeZone::get(name).ok()?,
        None => now.time_zone().clone(),
    };
    let here = now.with_time_zone(zone.clone());
    let Some(month) = part("month") else {
        let today = here.date().to_datetime(time).to_zoned(zone).ok()?;
        let next = match today.duration_since(&here) < -JUST {
            true => today.checked_add(1.day()).ok()?,
            false => today,
        };
        return Some(next.timestamp().as_second());
    };
    let month = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        .iter()
        .position(|name| *name == month)?;
    let year = match part("year") {
        Some(year) => year.parse().ok()?,
        None => here.year(),
    };
    let date = Date::new(year, i8::try_from(month + 1).ok()?, part("day")?.parse().ok()?).ok()?;
    Some(date.to_datetime(time).to_zoned(zone).ok()?.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Option<String> {
        let now: Zoned = "2026-11-17T09:15:30+01:00[Europe/Berlin]".parse().expect("a time");
        let found = found(text, &now)?;
        Some(
            Timestamp::from_second(found)
                .expect("a time")
                .to_zoned(now.time_zone().clone())
                .datetime()
                .to_string(),
        )
    }

    #[test]
    fn every_way_to_say_it() {
        for (text, expected) in [
            ("1794907371", "2026-11-17T10:22:51"),
            ("1794907371000", "2026-11-17T10:22:51"),
            ("120", "2026-11-17T09:17:30"),
            ("2026-11-17T10:00:00Z", "2026-11-17T11:00:00"),
            ("10:15 AM", "2026-11-17T10:15:00"),
            ("10:15\u{202f}AM", "2026-11-17T10:15:00"),
            ("9:12 AM", "2026-11-17T09:12:00"),
            ("9:00 AM", "2026-11-18T09:00:00"),
            ("3pm", "2026-11-17T15:00:00"),
            ("12am", "2026-11-18T00:00:00"),
            ("3pm (America/New_York)", "2026-11-17T21:00:00"),
            ("Nov 24th, 2026 9:12 AM", "2026-11-24T09:12:00"),
            ("Nov 24, 9am", "2026-11-24T09:00:00"),
            ("17:30", "2026-11-17T17:30:00"),
            ("90s", "2026-11-17T09:17:00"),
            ("2 days 3 hours 5 minutes", "2026-11-19T12:20:30"),
            ("6m0s", "2026-11-17T09:21:30"),
        ] {
            assert_eq!(at(text).as_deref(), Some(expected), "{text}");
        }
        for nothing in ["", "soon", "-5", "25:00", "3 months", "Foo 3, 2026 9:12 AM", "(Mars/Phobos)"] {
            assert_eq!(at(nothing), None, "{nothing}");
        }
    }
}
