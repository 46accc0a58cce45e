//! Durations and sizes, as people write them in a profile.

use std::time::Duration;

use jiff::SignedDuration;

/// A longer duration is a typing error.
const LONGEST: Duration = Duration::from_secs(7 * 86400);

/// `90s`, `45m`, `1h30m`, `500ms`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("is `{text}`, which is not a duration; write for example 90s, 45m or 1h30m");
    let parsed: SignedDuration = text.parse().map_err(|_| wrong())?;
    let parsed = Duration::try_from(parsed).map_err(|_| wrong())?;
    if parsed.is_zero() {
        return Err("is zero, which would stop everything; leave it out for the usual 15m".into());
    }
    if parsed > LONGEST {
        return Err(format!("is `{text}`; the longest a command may take is a week"));
    }
    Ok(parsed)
}

pub(crate) fn show_duration(duration: Duration) -> String {
    // A week fits into what jiff counts with.
    SignedDuration::try_from(duration)
        .map_or_else(|_| format!("{duration:?}"), |signed| format!("{signed:#}"))
}

const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// `512MiB`, `4GiB`, or bytes. Powers of two; a plain K, M, G or T is the same.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("is `{text}`, which is not a size; write for example 512MiB or 4GiB");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let factor = match unit.trim() {
        "" | "B" | "b" => 1,
        unit => {
            let same = |known: &str| {
                [known, &known[..1], &format!("{}B", &known[..1])]
                    .iter()
                    .any(|one| one.eq_ignore_ascii_case(unit))
            };
            UNITS.iter().find(|(known, _)| same(known)).map(|(_, factor)| *factor).ok_or_else(wrong)?
        }
    };
    match number.checked_mul(factor) {
        Some(0) => Err("is zero, which would stop everything; leave it out for the usual 8GiB".into()),
        Some(size) => Ok(size),
        None => Err(format!("is `{text}`, which is more than can be counted")),
    }
}

pub(crate) fn show_size(size: u64) -> String {
    match UNITS.iter().find(|(_, factor)| size >= *factor && size.is_multiple_of(*factor)) {
        Some((unit, factor)) => format!("{}{unit}", size / factor),
        None => size.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_read_as_people_write_them() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["", "x", "90", "-5s", "0s", "8d", "1 fortnight"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        for (text, bytes) in
            [("1500", 1500), ("4GiB", 4 << 30), ("2k", 2048), ("3mb", 3 << 20), ("1 T", 1 << 40)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "x", "-1", "1.5G", "99999999T", "0", "0MiB", "4XiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_is_read_back() {
        for bytes in [1, 1023, 1024, 1536, 5 << 20, 3 << 30, (1 << 40) + 1] {
            assert_eq!(size(&show_size(bytes)), Ok(bytes));
        }
        for millis in [1, 999, 1000, 61_001, 5_400_000, 604_800_000] {
            let one = Duration::from_millis(millis);
            assert_eq!(duration(&show_duration(one)), Ok(one));
        }
    }
}
