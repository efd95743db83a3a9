//! A line on a terminal that says how far long work is.

use indicatif::{ProgressBar, ProgressStyle};

/// It goes away when the work ends. Where standard error is no terminal, there is none.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// None where that is wanted `quiet`.
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        bar.set_style(ProgressStyle::with_template("{wide_msg}").expect("it names a message"));
        Self(bar)
    }

    pub(crate) fn say(&self, how_far: String) {
        self.0.set_message(how_far);
        self.0.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
