//! The statistics of a daemon, by name.

use dendro_control::Facts;
use dendro_daemon::metrics::requests::{self, Requests};
use serde_json::Value;

/// The statistics. A daemon of another version may report less.
pub(super) struct Statistics<'a>(&'a Facts);

impl<'a> Statistics<'a> {
    pub(super) const fn of(facts: &'a Facts) -> Self {
        Self(facts)
    }

    pub(super) fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(Value::as_u64)
    }

    /// A number that counts, and begins at 0.
    pub(super) fn number(&self, name: &str) -> u64 {
        self.get(name).unwrap_or(0)
    }

    pub(super) fn share(&self, name: &str) -> Option<f64> {
        self.0.get(name).and_then(Value::as_f64)
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(super) fn word(&self, name: &str) -> &'a str {
        self.0.get(name).and_then(Value::as_str).unwrap_or("-")
    }

    /// The requests of programs, by kind.
    pub(super) fn requests(&self) -> Requests {
        requests::of(self.0)
    }
}
