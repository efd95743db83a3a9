//! What the checkpoint under way says about the map stream. It is written by the thread that takes
//! the checkpoint, and read without its lock.

use dendro_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The state of the map stream.
#[derive(Debug, Default)]
pub(crate) struct MapStream {
    /// About what the checkpoint under way has still to write.
    left_bytes: AtomicU64,
    /// The bytes that are left in the segment that the map stream fills.
    room_bytes: AtomicU64,
    /// Whether nodes of a checkpoint wait for room on the host.
    is_out_of_room: AtomicBool,
}

impl MapStream {
    pub(crate) fn left_bytes(&self) -> u64 {
        self.left_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_left(&self, len_bytes: u64) {
        self.left_bytes.store(len_bytes, Ordering::Relaxed);
    }

    /// Notes that the checkpoint has written nodes of `len_bytes`.
    pub(crate) fn note_written(&self, len_bytes: u64) {
        self.set_left(self.left_bytes().saturating_sub(len_bytes));
    }

    pub(crate) fn room_bytes(&self) -> u64 {
        self.room_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_room(&self, len_bytes: u64) {
        self.room_bytes.store(len_bytes, Ordering::Relaxed);
    }

    /// Whether nodes of a checkpoint wait for room on the host.
    pub(crate) fn is_out_of_room(&self) -> bool {
        self.is_out_of_room.load(Ordering::Relaxed)
    }

    pub(crate) fn set_out_of_room(&self, is_out_of_room: bool) {
        self.is_out_of_room.store(is_out_of_room, Ordering::Relaxed);
    }
}
