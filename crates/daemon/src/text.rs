//! Numbers and names as users read and write them.

use std::time::Duration;

use dendro_base::Timestamp;
use dendro_base::units::{GIB, KIB, MIB, TIB};
use dendro_control::check::VersionWithFile;
use dendro_format::layout::FIRST_LOG_SEGMENT;

/// How many segments hold superblocks; they are never part of the log.
pub const SUPERBLOCK_SEGMENTS: u32 = FIRST_LOG_SEGMENT.0;
/// That number in words.
pub const SUPERBLOCKS_HELD: &str = "2 hold superblocks";
const _: () = assert!(SUPERBLOCK_SEGMENTS == 2);

const PIB: u64 = 1 << 50;
const NS_PER_S: u64 = 1_000_000_000;

/// Parses a size: digits, an optional fraction, and an optional unit K, M, G, T or P (powers of
/// 1024; `KiB` and `KB` are the same as `K`). Without a unit, bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("\"{text}\" is no size; write for instance 512M, 1.5G or 4096");
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let unit = unit.trim().to_ascii_lowercase();
    let unit_bytes = match unit.strip_suffix("ib").or(unit.strip_suffix('b')).unwrap_or(&unit) {
        "" => 1,
        "k" => KIB,
        "m" => MIB,
        "g" => GIB,
        "t" => TIB,
        "p" => PIB,
        _ => return Err(wrong()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let size = whole.checked_mul(unit_bytes).ok_or_else(wrong)?;
    if fraction.is_empty() {
        return if number.ends_with('.') { Err(wrong()) } else { Ok(size) };
    }
    if fraction.len() > 9 {
        return Err(wrong());
    }
    let scale = 10u128.pow(u32::try_from(fraction.len()).map_err(|_| wrong())?);
    let fraction: u128 = fraction.parse().map_err(|_| wrong())?;
    let part = u64::try_from(fraction * u128::from(unit_bytes) / scale).map_err(|_| wrong())?;
    size.checked_add(part).ok_or_else(wrong)
}

const UNITS: [(u64, &str); 5] =
    [(PIB, "PiB"), (TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];

/// As [`size`], of so many bytes or the next larger number that it can tell: a size that is asked
/// for must not be told too small.
pub fn size_at_least(bytes: u64) -> String {
    let Some((unit_bytes, _)) = UNITS.into_iter().find(|&(unit, _)| bytes >= unit) else {
        return size(bytes);
    };
    let steps = match bytes / unit_bytes {
        0..10 => 100,
        10..100 => 10,
        _ => 1,
    };
    let told = (u128::from(bytes) * steps).div_ceil(u128::from(unit_bytes));
    size(u64::try_from((told * u128::from(unit_bytes)).div_ceil(steps)).unwrap_or(u64::MAX))
}

/// A size with a unit and at most two decimals: `1.5 GiB`.
pub fn size(bytes: u64) -> String {
    let Some((unit_bytes, unit)) = UNITS.into_iter().find(|&(unit, _)| bytes >= unit) else {
        return if bytes == 1 { "1 byte".into() } else { format!("{bytes} bytes") };
    };
    let whole = bytes / unit_bytes;
    let hundredths = u128::from(bytes % unit_bytes) * 100 / u128::from(unit_bytes);
    match hundredths {
        0 => format!("{whole} {unit}"),
        _ if whole >= 100 => format!("{whole} {unit}"),
        _ if hundredths % 10 == 0 || whole >= 10 => format!("{whole}.{} {unit}", hundredths / 10),
        _ => format!("{whole}.{hundredths:02} {unit}"),
    }
}

/// A size of few characters, for columns: `1.5M`.
pub fn short_size(bytes: u64) -> String {
    let units = [(PIB, "P"), (TIB, "T"), (GIB, "G"), (MIB, "M"), (KIB, "K")];
    match units.into_iter().find(|&(unit, _)| bytes >= unit) {
        None => bytes.to_string(),
        Some((unit_bytes, unit)) => {
            let value = bytes as f64 / unit_bytes as f64;
            if value < 9.95 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
        }
    }
}

/// A duration with a unit, in about three digits: `45 µs`, `1.25 s`, `2 h 5 min`.
pub fn duration(ns: u64) -> String {
    let secs = ns / NS_PER_S;
    let two = |large: u64, name: &str, small: u64, small_name: &str| match small {
        0 => format!("{large} {name}"),
        small => format!("{large} {name} {small} {small_name}"),
    };
    match secs {
        0 => short_time(ns),
        1..60 => short_time(ns),
        60..3600 => two(secs / 60, "min", secs % 60, "s"),
        3600..86_400 => two(secs / 3600, "h", secs / 60 % 60, "min"),
        _ => two(secs / 86_400, "d", secs / 3600 % 24, "h"),
    }
}

/// A duration below about a minute.
fn short_time(ns: u64) -> String {
    let units = [(NS_PER_S, "s"), (1_000_000, "ms"), (1_000, "µs")];
    let Some((unit_ns, unit)) = units.into_iter().find(|&(unit, _)| ns >= unit) else {
        return format!("{ns} ns");
    };
    let value = ns as f64 / unit_ns as f64;
    match value {
        _ if ns.is_multiple_of(unit_ns) => format!("{} {unit}", ns / unit_ns),
        ..9.995 => format!("{value:.2} {unit}"),
        ..99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// A duration in few characters, for columns: `45us`, `1.2ms`, `3.4s`; `-` for `None`.
pub fn short_duration(ns: Option<u64>) -> String {
    let Some(ns) = ns else { return "-".into() };
    let units = [(NS_PER_S, "s"), (1_000_000, "ms"), (1_000, "us")];
    let (unit_ns, unit) = units.into_iter().find(|&(unit, _)| ns >= unit).unwrap_or((1, "ns"));
    let value = ns as f64 / unit_ns as f64;
    if value < 9.95 && unit_ns > 1 {
        format!("{value:.1}{unit}")
    } else {
        format!("{value:.0}{unit}")
    }
}

/// A number with separated thousands: `8,472`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with a noun in the singular or the plural.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// How many versions have something, from which to which; and what the file is called in the first
/// one, if it has another path there.
#[must_use]
pub fn versions(first: &VersionWithFile, last: &VersionWithFile, count: u64) -> String {
    let other_path = first.path.as_ref().filter(|path| last.path.as_ref() != Some(path));
    let there = other_path.map_or_else(String::new, |path| format!(", there {path},"));
    let (first, last) = (printable(&first.version), printable(&last.version));
    format!("{count} versions, from {first}{there} to {last}")
}

/// `text` without control characters, for a terminal: the maker of a volume chose its label.
pub fn printable(text: &str) -> String {
    let escaped = |one: char| match one.is_control() {
        true => one.escape_default().to_string(),
        false => one.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Parses `on` or `off`.
pub fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("\"{text}\" is neither on nor off")),
    }
}

/// Parses a period of whole seconds: `5`, `5s`, `2m`, `1h`.
pub fn parse_period(text: &str) -> Result<Duration, String> {
    let wrong = || format!("\"{text}\" is no time; write for instance 5, 30s or 2m");
    let (number, factor) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        _ => (text, 1),
    };
    let count: u64 = number.parse().map_err(|_| wrong())?;
    count.checked_mul(factor).map(Duration::from_secs).ok_or_else(wrong)
}

/// Parses an interval of seconds and fractions of them: `1`, `0.5`, `2s`, `1m`, `250ms`.
pub fn parse_interval(text: &str) -> Result<Duration, String> {
    let wrong = || format!("\"{text}\" is no time; write for instance 1, 0.5, 250ms or 2m");
    let (number, factor) = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)]
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))
        .unwrap_or((text, 1.0));
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds: f64 = number.parse().ok().filter(|_| is_plain).ok_or_else(wrong)?;
    Duration::try_from_secs_f64(seconds * factor).map_err(|_| wrong())
}

/// Parses a percentage from 0 to 100 as a fraction.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err(format!("\"{text}\" is no percentage; write for instance 90%")),
    }
}

/// A time in UTC, like RFC 3339.
pub fn time(unix_s: i64) -> String {
    Timestamp(unix_s.saturating_mul(1_000_000_000)).utc()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("1k"), Ok(1024));
        assert_eq!(parse_size("1.5G"), Ok(3 << 29));
        assert_eq!(parse_size("2 MiB"), Ok(2 << 20));
        assert_eq!(parse_size("3TB"), Ok(3 << 40));
        for wrong in ["", "G", "-1", "1x", "1..5", "1.", "99999999999P", "1e3"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_print_short() {
        assert_eq!((size(0), size(1)), ("0 bytes".into(), "1 byte".into()));
        assert_eq!(size(1023), "1023 bytes");
        assert_eq!(size(1 << 20), "1 MiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
        for bytes in [0, 1023, 1024, 1025, (5 << 30) + 1, (15 << 20) - 1, (700 << 20) + 3] {
            let told = size_at_least(bytes);
            let again = parse_size(told.trim_end_matches(" bytes")).unwrap();
            assert!(again >= bytes && again - bytes <= bytes / 100 + 1, "{bytes}: {told}");
        }
        assert_eq!(size(1_300_000), "1.23 MiB");
        assert_eq!(size(u64::MAX), "16383 PiB");
    }

    #[test]
    fn short_sizes_fit_a_column() {
        assert_eq!(short_size(1023), "1023");
        assert_eq!(short_size(1 << 10), "1.0K");
        assert_eq!(short_size(10_188), "9.9K");
        assert_eq!(short_size(10_200), "10K");
        assert_eq!(short_size((1 << 20) - 1), "1024K");
        assert_eq!(short_size(u64::MAX), "16384P");
    }

    #[test]
    fn times_have_units_that_fit() {
        let all = [0, 999, 45_000, 1_234_567, 999_999_999, 1_250_000_000, 59_960_000_000];
        let expected = ["0 ns", "999 ns", "45 µs", "1.23 ms", "1000 ms", "1.25 s", "60.0 s"];
        assert_eq!(all.map(duration), expected);
        let long = [60, 7500, 86_399, 90_000].map(|secs| duration(secs * NS_PER_S));
        assert_eq!(long, ["1 min", "2 h 5 min", "23 h 59 min", "1 d 1 h"]);
        let short = [Some(999), Some(1_250), Some(45_000), Some(9_960_000), Some(61 * NS_PER_S)];
        assert_eq!(short.map(short_duration), ["999ns", "1.2us", "45us", "10ms", "61s"]);
        assert_eq!(short_duration(None), "-");
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([0, 999, 1000, 8_472_001].map(count), ["0", "999", "1,000", "8,472,001"]);
    }

    #[test]
    fn periods_have_units() {
        assert_eq!(parse_period("5"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_period("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "s", "5d5", "1.5", "-1"] {
            assert!(parse_period(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn intervals_have_units_and_fractions() {
        assert_eq!(parse_interval("1"), Ok(Duration::from_secs(1)));
        assert_eq!(parse_interval("0.5s"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_interval("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_interval("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "s", "-1", "1e3", "inf", "1d", "99999999999999999999999"] {
            assert!(parse_interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn percentages_are_fractions() {
        assert_eq!(parse_percent("90%"), Ok(0.9));
        assert_eq!(parse_percent("5"), Ok(0.05));
        for wrong in ["", "%", "101%", "-1", "NaN"] {
            assert!(parse_percent(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_controls_a_terminal_is_printed_as_an_escape() {
        assert_eq!(printable("a\nb\u{1b}[31m\u{9b}"), "a\\nb\\u{1b}[31m\\u{9b}");
        assert_eq!(printable("Äpfel 目 \\ \"x\""), "Äpfel 目 \\ \"x\"");
    }

    #[test]
    fn times_are_dates() {
        assert_eq!(time(0), "1970-01-01 00:00:00Z");
        assert_eq!(time(951_782_400), "2000-02-29 00:00:00Z");
        assert_eq!(time(1_795_305_599), "2026-11-21 23:59:59Z");
        assert_eq!(time(-1), "1969-12-31 23:59:59Z");
    }
}
