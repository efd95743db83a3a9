//! A progress line on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// The line disappears when the work ends. There is none if standard error is no terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A line that says what is done. No line if `quiet`.
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        bar.set_style(ProgressStyle::with_template("{wide_msg}").expect("it names a message"));
        Self(bar)
    }

    /// A bar before it that shows the part. No line if `quiet`.
    pub(crate) fn bar(quiet: bool) -> Self {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(100) };
        let style = ProgressStyle::with_template("{bar:30} {pos:>3} % {wide_msg}");
        bar.set_style(style.expect("it names a bar, a position and a message"));
        Self(bar)
    }

    pub(crate) fn show(&self, how_far: String) {
        self.0.set_message(how_far);
        self.0.tick();
    }

    /// As [`Self::show`], where `percent` of the whole are done.
    pub(crate) fn show_part(&self, percent: u64, how_far: String) {
        self.0.set_position(percent);
        self.show(how_far);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
