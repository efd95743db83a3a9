//! Which pages are compressed, and with what. Compressors and decompressors are used by many
//! threads in turn: each has memory of its own that takes time to set up.

use dendro_base::sync::Mutex;
use dendro_base::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use dendro_disk::{Lid, ListCompression};
use dendro_format::compression::{Packer, Unpacker};
use dendro_format::superblock::INCOMPATIBLE_COMPRESSION;
use dendro_format::{Compression, Superblock};

/// What is kept for the threads that compress or decompress next, at most.
const MAX_SPARE: usize = 16;

/// Things that are used in turn.
pub(crate) struct Pool<T>(Mutex<Vec<T>>);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<T: Default> Pool<T> {
    /// Does `work` with one of them.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let mut one = self.0.lock().pop().unwrap_or_default();
        let result = work(&mut one);
        let mut spare = self.0.lock();
        if spare.len() < MAX_SPARE {
            spare.push(one);
        }
        result
    }
}

/// How new pages are compressed, and what does it.
pub(crate) struct Compressors {
    /// How pages are compressed of lists for which nothing else is said.
    new_pages: Option<Compression>,
    /// Whether the superblock states that blocks may be compressed.
    is_marked: AtomicBool,
    /// For each list, and others that share its place, how often compressing gained nothing.
    doubts: [AtomicU8; DOUBTS],
    pub(crate) packers: Pool<Packer>,
    pub(crate) unpackers: Pool<Unpacker>,
}

/// Places for the lists whose pages are compressed. Lists that share one disturb each other little.
const DOUBTS: usize = 1024;
/// After so many pages of a list that gained nothing, one in so many is tried.
const MAX_DOUBT: u8 = 16;

impl Compressors {
    /// Compressors for the volume of this superblock. By default, pages are compressed with
    /// `new_pages`.
    pub(crate) fn new(superblock: &Superblock, new_pages: Option<Compression>) -> Self {
        let is_marked = superblock.incompatible & INCOMPATIBLE_COMPRESSION != 0;
        Self {
            new_pages,
            is_marked: AtomicBool::new(is_marked),
            doubts: std::array::from_fn(|_| AtomicU8::new(0)),
            packers: Pool::default(),
            unpackers: Pool::default(),
        }
    }

    /// Whether there may be lists whose pages are to be compressed.
    pub(crate) fn may_compress(&self) -> bool {
        self.new_pages.is_some() || self.is_marked()
    }

    /// Whether the superblock states that blocks may be compressed.
    pub(crate) fn is_marked(&self) -> bool {
        self.is_marked.load(Ordering::Relaxed)
    }

    /// Notes that a superblock is durable that states it.
    pub(crate) fn note_marked(&self) {
        self.is_marked.store(true, Ordering::Relaxed);
    }

    /// How pages of a list with this hint are compressed.
    pub(crate) const fn choose(&self, hint: ListCompression) -> Option<Compression> {
        match (hint, self.new_pages) {
            (ListCompression::AsOthers, others) => others,
            (ListCompression::Never, _) => None,
            (ListCompression::Lz4, _) => Some(Compression::Lz4),
            // At the level that is used for others.
            (ListCompression::Zstd, Some(zstd @ Compression::Zstd { .. })) => Some(zstd),
            (ListCompression::Zstd, _) => Some(Compression::ZSTD),
        }
    }

    fn doubt(&self, list: Lid) -> &AtomicU8 {
        &self.doubts[(list.0 % DOUBTS as u64) as usize]
    }

    /// Whether compressing the next page of a list may gain something.
    pub(crate) fn is_worth_trying(&self, list: Lid) -> bool {
        let doubt = self.doubt(list).load(Ordering::Relaxed);
        let waits = (MAX_DOUBT..2 * MAX_DOUBT - 1).contains(&doubt);
        if waits {
            self.doubt(list).store(doubt + 1, Ordering::Relaxed);
        }
        !waits
    }

    /// Notes whether compressing a page of a list gained something.
    pub(crate) fn note_tried(&self, list: Lid, gained: bool) {
        let doubt = self.doubt(list);
        let next = match doubt.load(Ordering::Relaxed) {
            _ if gained => 0,
            few if few < MAX_DOUBT => few + 1,
            _ => MAX_DOUBT,
        };
        doubt.store(next, Ordering::Relaxed);
    }
}
