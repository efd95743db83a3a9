//! Versions and files as people read them.

use dendro_control::versions::FileInfo;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::json::files::modified_unix_ns;

/// A time where the one who asks is: `2026-11-21 10:00:00`.
pub(super) fn time(unix_ns: i64) -> String {
    match Timestamp::from_nanosecond(i128::from(unix_ns)) {
        Ok(time) => time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => unix_ns.to_string(),
    }
}

/// The time of day where the one who asks is: `10:00:00`.
pub(crate) fn clock_time(unix_ns: i64) -> String {
    let time = time(unix_ns);
    time.split_once(' ').map_or(time.clone(), |(_, clock)| clock.to_owned())
}

/// When a file was written.
pub(super) fn modified(file: &FileInfo) -> String {
    time(modified_unix_ns(file))
}

/// Columns as wide as they must be, the first line above them; columns of numbers to the right.
pub(crate) fn columns<const N: usize>(
    head: [&str; N],
    rows: &[[String; N]],
    to_the_right: &[usize],
) -> String {
    let head = head.map(str::to_owned);
    let all = || [&head].into_iter().chain(rows);
    let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in all() {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let cell = match to_the_right.contains(&column) {
                true => format!("{cell:>width$}  "),
                false => format!("{cell:width$}  "),
            };
            line.push_str(&cell);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            [["a".into(), "10".into(), "x".into()], ["länger".into(), "9".into(), String::new()]];
        let text = columns(["NAME", "SIZE", "LAST"], &rows, &[1]);
        assert_eq!(text, "NAME    SIZE  LAST\na         10  x\nlänger     9\n");
    }
}
