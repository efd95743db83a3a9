//! Numbers as people write and read them.

use std::time::Duration;

use dendro_base::Timestamp;
use dendro_base::units::{GIB, KIB, MIB, TIB};

const PIB: u64 = 1 << 50;

/// Reads a size: digits, an optional fraction, and an optional unit K, M, G, T or P (powers of
/// 1024; `KiB` and `KB` are the same as `K`). Without a unit, bytes.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
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

/// A size with a unit and at most two decimals: `1.5 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    let units = [(PIB, "PiB"), (TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];
    let Some((unit_bytes, unit)) = units.into_iter().find(|&(unit, _)| bytes >= unit) else {
        return format!("{bytes} bytes");
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
pub(crate) fn short_size(bytes: u64) -> String {
    let units = [(PIB, "P"), (TIB, "T"), (GIB, "G"), (MIB, "M"), (KIB, "K")];
    match units.into_iter().find(|&(unit, _)| bytes >= unit) {
        None => bytes.to_string(),
        Some((unit_bytes, unit)) => {
            let value = bytes as f64 / unit_bytes as f64;
            if value < 9.95 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
        }
    }
}

/// `text` as a terminal can be given it: whoever made a volume chose its label.
pub(crate) fn printable(text: &str) -> String {
    let escaped = |one: char| match one.is_control() {
        true => one.escape_default().to_string(),
        false => one.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Reads `on` or `off`.
pub(crate) fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("\"{text}\" is neither on nor off")),
    }
}

/// Reads a period of whole seconds: `5`, `5s`, `2m`, `1h`.
pub(crate) fn parse_period(text: &str) -> Result<Duration, String> {
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

/// Reads an interval of seconds and parts of them: `1`, `0.5`, `2s`, `1m`, `250ms`.
pub(crate) fn parse_interval(text: &str) -> Result<Duration, String> {
    let wrong = || format!("\"{text}\" is no time; write for instance 1, 0.5, 250ms or 2m");
    let (number, factor) = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)]
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))
        .unwrap_or((text, 1.0));
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds: f64 = number.parse().ok().filter(|_| is_plain).ok_or_else(wrong)?;
    Duration::try_from_secs_f64(seconds * factor).map_err(|_| wrong())
}

/// Reads a percentage from 0 to 100 as a fraction.
pub(crate) fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err(format!("\"{text}\" is no percentage; write for instance 90%")),
    }
}

/// A time as RFC 3339 has it, in UTC.
pub(crate) fn time(unix_s: i64) -> String {
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
        assert_eq!(size(0), "0 bytes");
        assert_eq!(size(1023), "1023 bytes");
        assert_eq!(size(1 << 20), "1 MiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
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
