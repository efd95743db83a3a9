//! Standard output and standard error.

pub(crate) mod json;
pub(crate) mod local_time;
pub(crate) mod progress;
pub(crate) mod space_bar;
pub(crate) mod svg;

use std::fmt::Display;
use std::io::{self, Write};

use dendro_control::CompressionInfo;
use dendro_daemon::text;

use crate::failure::Failure;

/// Writes `text` to standard output. It is no failure if the reader has gone, as `head` does.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format_args!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes `message` to standard error. A failure of that changes nothing; `eprintln!` would panic
/// and could end a mount.
pub(crate) fn message(message: impl Display) {
    let _ = writeln!(io::stderr(), "{message}");
}

/// Lines of names and values, with the values aligned.
pub(crate) fn table(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
    rows.iter().map(|(name, value)| format!("  {name:width$}{value}\n")).collect()
}

/// What compression gains, in words.
pub(crate) fn compression(info: &CompressionInfo) -> String {
    let (plain, data) = (info.plain_bytes(), info.data_bytes);
    format!(
        "{} of pages in {}; all data {} in {}{}",
        text::size(info.page_bytes),
        text::size(info.stored_bytes),
        text::size(plain),
        text::size(data),
        ratio(plain, data).map(|ratio| format!(", {ratio} to 1")).unwrap_or_default()
    )
}

/// How many times as much `plain` is as `stored`, with two decimals that are not rounded up.
pub(crate) fn ratio(plain: u64, stored: u64) -> Option<String> {
    let hundredths = (u128::from(plain) * 100).checked_div(stored.into())?;
    Some(format!("{}.{:02}", hundredths / 100, hundredths % 100))
}

/// The width if standard output is no terminal, and its bounds.
const DEFAULT_WIDTH: usize = 80;
const LEAST_WIDTH: usize = 40;
const WIDEST: usize = 160;

/// The width of the terminal in columns, or a default for files.
pub(crate) fn width() -> usize {
    let columns = match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => DEFAULT_WIDTH,
    };
    columns.clamp(LEAST_WIDTH, WIDEST)
}

/// A table with a header line. Columns are as wide as their widest cell; those in `to_the_right`
/// are right-aligned.
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
