//! Sizes and durations as people write them.

use std::time::Duration;

use agency_sandbox::policy::MemoryLimit;

/// `512MiB`, `4GiB`, `1500000`. Powers of two; a plain K, M, G or T is the same.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err(format!("`{text}` is not a size; write for example 512MiB or 4GiB")),
    };
    let number: u64 =
        number.parse().map_err(|_| format!("`{text}` is not a size; write for example 512MiB or 4GiB"))?;
    match number.checked_mul(factor) {
        Some(0) => Err("a limit of zero would stop everything; leave the option out for the usual".into()),
        Some(size) => Ok(size),
        None => Err(format!("`{text}` is too large")),
    }
}

/// An amount of memory, or `none` for as much as there is.
pub(crate) fn memory(text: &str) -> Result<MemoryLimit, String> {
    match text {
        "none" => Ok(MemoryLimit::Unlimited),
        text => size(text).map(MemoryLimit::Bytes),
    }
}

/// `90s`, `45m`, `2h`, `1h30m`, `500ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration; write for example 90s, 45m or 1h30m");
    let mut total = Duration::ZERO;
    let mut rest = text;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let (number, tail) = split(rest);
        let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, next) = tail.split_at(end);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let part = match unit {
            "ms" => Some(Duration::from_millis(number)),
            "s" | "" => Some(Duration::from_secs(number)),
            "m" => number.checked_mul(60).map(Duration::from_secs),
            "h" => number.checked_mul(3600).map(Duration::from_secs),
            "d" => number.checked_mul(86400).map(Duration::from_secs),
            _ => None,
        };
        // More than a century is a slip of the finger, and more than the clock can add.
        const LONGEST: Duration = Duration::from_secs(100 * 365 * 86400);
        total = part
            .and_then(|part| total.checked_add(part))
            .filter(|total| *total <= LONGEST)
            .ok_or_else(wrong)?;
        rest = next;
    }
    if total.is_zero() {
        return Err("a deadline of zero would stop everything; leave the option out for none".into());
    }
    Ok(total)
}

/// A number of things, at least one.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("a limit of zero would stop everything; leave the option out for no limit".into()),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("`{text}` is not a whole number")),
    }
}

fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// How long something took, in seconds: `12s`, `1m12s`, `1h02m`.
pub(crate) fn elapsed(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h{minutes:02}m"),
    }
}

/// A moment, in seconds since 1970, as a clock here shows it.
pub(crate) fn local_time(seconds: i64) -> String {
    let moment = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
    moment.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(size("1500"), Ok(1500));
        assert_eq!(size("4GiB"), Ok(4 << 30));
        assert_eq!(size("2k"), Ok(2048));
        for wrong in ["", "x", "4 GiB", "-1", "1.5G", "99999999999T", "0", "0MiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["", "m", "5x", "0s", "18446744073709551615d", "-5s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
