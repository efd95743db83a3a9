//! The memory of the requests of a connection.

use dendro_base::sync::{Condvar, Mutex};

use crate::wire::MAX_LEN_BYTES;

/// How many bytes the requests that are under way may still take.
pub(crate) struct Budget {
    left_bytes: Mutex<u64>,
    returned: Condvar,
}

/// A part of a budget, which returns to it when this is dropped.
pub(crate) struct Share<'a> {
    budget: &'a Budget,
    len_bytes: u64,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self { left_bytes: Mutex::new(MAX_LEN_BYTES.into()), returned: Condvar::new() }
    }

    /// Waits until `len_bytes` are left, which is at most [`MAX_LEN_BYTES`], and takes them.
    pub(crate) fn take(&self, len_bytes: u32) -> Share<'_> {
        debug_assert!(len_bytes <= MAX_LEN_BYTES);
        let len_bytes = len_bytes.into();
        let mut left = self.left_bytes.lock();
        while *left < len_bytes {
            self.returned.wait(&mut left);
        }
        *left -= len_bytes;
        Share { budget: self, len_bytes }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        *self.budget.left_bytes.lock() += self.len_bytes;
        self.budget.returned.notify_all();
    }
}
