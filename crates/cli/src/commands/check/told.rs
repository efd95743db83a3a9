//! Where progress is told: on the terminal, and at the descriptor that `-C` names.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use dendro_control::check::CheckProgress;

use crate::failure::{Failure, code};
use crate::output::progress::Progress;

/// The share of the whole at which each pass ends, in percent: those that systemd-fsck has for the
/// passes of e2fsck.
const PASS_ENDS: [u64; 6] = [0, 70, 90, 92, 95, 100];

/// Where progress is told.
pub(super) struct Told {
    line: Progress,
    /// The descriptor, and the device as the lines name it.
    lines: Option<(RefCell<File>, String)>,
}

impl Told {
    /// Progress on the terminal; a bar with `-C` or `-C 0`, and at any other descriptor lines as
    /// those of e2fsck: pass, how much was done, how much there is, and `device`.
    ///
    /// # Errors
    /// The descriptor is not open for writing.
    pub(super) fn new(quiet: bool, wish: Option<i32>, device: &Path) -> Result<Self, Failure> {
        let line = if wish == Some(0) { Progress::bar(quiet) } else { Progress::new(quiet) };
        let lines = match wish.filter(|&descriptor| descriptor != 0) {
            None => None,
            Some(descriptor) => {
                let opened =
                    OpenOptions::new().append(true).open(format!("/proc/self/fd/{descriptor}"));
                let file = opened.map_err(|error| {
                    let why = format_args!("-C {descriptor}: it is not open for writing: {error}");
                    Failure::new(why).with_code(code::CHECK_USAGE)
                })?;
                Some((RefCell::new(file), device.display().to_string()))
            }
        };
        Ok(Self { line, lines })
    }

    pub(super) fn tell(&self, progress: &CheckProgress) {
        self.line.show_part(percent(progress), progress.text.clone());
        if let Some((file, device)) = &self.lines {
            let CheckProgress { pass, done, of, .. } = progress;
            // Who asked for it may be gone, which changes nothing.
            let _ =
                file.borrow_mut().write_all(format!("{pass} {done} {of} {device}\n").as_bytes());
        }
    }

    /// Says what is done, which has no known length.
    pub(super) fn show(&self, text: String) {
        self.line.show(text);
    }
}

/// How much of the whole is done.
fn percent(progress: &CheckProgress) -> u64 {
    let pass = (progress.pass as usize).clamp(1, PASS_ENDS.len() - 1);
    let (from, to) = (PASS_ENDS[pass - 1], PASS_ENDS[pass]);
    let part = u128::from(to - from) * u128::from(progress.done.min(progress.of));
    from + (part / u128::from(progress.of.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_grows_to_the_whole() {
        let of = |pass, done| percent(&CheckProgress { pass, done, of: 10, ..Default::default() });
        assert_eq!([of(1, 0), of(1, 10), of(2, 5), of(5, 10), of(9, 10)], [0, 70, 80, 100, 100]);
        assert_eq!(percent(&CheckProgress { pass: 3, ..Default::default() }), 90);
    }
}
