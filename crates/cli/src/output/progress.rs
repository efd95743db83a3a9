//! A progress line on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// The line disappears when the work ends. There is none if standard error is no terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// No line if `quiet`.
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        bar.set_style(ProgressStyle::with_template("{wide_msg}").expect("it names a message"));
        Self(bar)
    }

    pub(crate) fn show(&self, how_far: String) {
        self.0.set_message(how_far);
        self.0.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
