//! How long the other end of a connection may take.

use std::io;
use std::time::{Duration, Instant};

/// The moment at which patience with the other end is over. It holds for a whole message: one that
/// sends a byte now and then gets no more time than one that sends nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(timeout: Duration) -> Self {
        Self(now() + timeout)
    }

    /// The time that is left.
    ///
    /// # Errors
    /// When none is left: `TimedOut`, with `why`.
    pub(crate) fn left(self, why: &str) -> io::Result<Duration> {
        match self.0.saturating_duration_since(now()) {
            Duration::ZERO => Err(io::Error::new(io::ErrorKind::TimedOut, why)),
            left => Ok(left),
        }
    }
}

/// The clock of all deadlines.
#[allow(clippy::disallowed_methods, reason = "how long a client may take is real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
