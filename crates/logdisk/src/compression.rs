//! Which pages are compressed, and with what. Compressors and decompressors are used by many
//! threads in turn: each has memory of its own that takes time to set up.

use dendro_base::sync::Mutex;
use dendro_base::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};
use dendro_disk::{Lid, ListCompression};
use dendro_format::compression::{DEFAULT_ZSTD_LEVEL, Packer, Unpacker};
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
    /// How the cleaner compresses what it moves.
    cold: Option<Recompression>,
    /// The features that the superblock is known to state.
    marked: AtomicU64,
    /// Which lists' new pages gain by compression.
    new_doubts: Doubts,
    pub(crate) packers: Pool<Packer>,
    pub(crate) unpackers: Pool<Unpacker>,
}

/// How blocks that are moved are compressed.
pub(crate) struct Recompression {
    with: Compression,
    /// The level of blocks that are compressed with Zstandard. They do not state theirs, and are
    /// taken for new ones.
    zstd_level: u8,
    /// What was in vain so far. `None`: a client asks for it, and everything is tried.
    tried: Option<Tried>,
}

/// What is not worth compressing when it is moved.
#[derive(Default)]
struct Tried {
    doubts: Doubts,
    settled: Settled,
}

/// For each list, and others that share its place, how often compressing gained nothing.
pub(crate) struct Doubts([AtomicU8; DOUBTS]);

/// Blocks that compressing does not make smaller, by the checksums of what is stored of them. Each
/// one replaces another one of the same place, so that it is tried again some time. Contents that
/// are new and have the checksum of another one stay as they are.
struct Settled(Box<[AtomicU16]>);

/// The checksums that are kept, of 512 MiB of whole pages. It is a power of two.
const SETTLED: usize = 1 << 17;

/// Places for the lists whose pages are compressed. Lists that share one disturb each other little.
const DOUBTS: usize = 1024;
/// After so many pages of a list that gained nothing, one in so many is tried.
const MAX_DOUBT: u8 = 16;

impl Compressors {
    /// Compressors for the volume of this superblock. By default, pages are compressed as `ways`
    /// say: new ones, and those that the cleaner moves.
    pub(crate) fn new(
        superblock: &Superblock,
        ways: (Option<Compression>, Option<Compression>),
    ) -> Self {
        Self {
            new_pages: ways.0,
            cold: ways.1.map(|with| Recompression::new(with, ways.0, Some(Tried::default()))),
            marked: AtomicU64::new(superblock.incompatible),
            new_doubts: Doubts::default(),
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
        self.are_marked(INCOMPATIBLE_COMPRESSION)
    }

    /// Whether the superblock states these features.
    pub(crate) fn are_marked(&self, features: u64) -> bool {
        self.marked.load(Ordering::Relaxed) & features == features
    }

    /// Notes that a superblock is durable that states them.
    pub(crate) fn note_marked(&self, features: u64) {
        self.marked.fetch_or(features, Ordering::Relaxed);
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

    /// How the cleaner compresses what it moves and what may be compressed.
    pub(crate) const fn cold(&self) -> Option<&Recompression> {
        self.cold.as_ref()
    }

    /// How blocks are compressed that a client wants compressed with `with`.
    pub(crate) const fn asked_for(&self, with: Compression) -> Recompression {
        Recompression::new(with, self.new_pages, None)
    }

    /// How blocks are compressed that a client wants compressed, and does not say how: as the
    /// cleaner does, or else as new pages are.
    pub(crate) fn usual(&self) -> Compression {
        let cold = self.cold.as_ref().map(Recompression::with);
        cold.or(self.new_pages).unwrap_or(Compression::ZSTD)
    }

    /// Of which lists new pages gain by compression.
    pub(crate) const fn new_doubts(&self) -> &Doubts {
        &self.new_doubts
    }
}

impl Recompression {
    const fn new(with: Compression, new_pages: Option<Compression>, tried: Option<Tried>) -> Self {
        let zstd_level = match new_pages {
            Some(Compression::Zstd { level }) => level,
            // New pages are compressed so only in lists that ask for it.
            _ => DEFAULT_ZSTD_LEVEL,
        };
        Self { with, zstd_level, tried }
    }

    pub(crate) const fn with(&self) -> Compression {
        self.with
    }

    /// Whether a client asks for it.
    pub(crate) const fn is_asked_for(&self) -> bool {
        self.tried.is_none()
    }

    /// Whether this compresses harder than blocks of this kind are compressed.
    pub(crate) const fn is_harder(&self, kind: u8) -> bool {
        match self.with {
            _ if kind == 0 => true,
            Compression::Lz4 => false,
            Compression::Zstd { level } if kind == self.with.kind() => level > self.zstd_level,
            Compression::Zstd { .. } => true,
        }
    }

    /// Whether compressing the next page of a list may gain something.
    pub(crate) fn is_worth_trying(&self, list: Lid) -> bool {
        self.tried.as_ref().is_none_or(|tried| tried.doubts.is_worth_trying(list))
    }

    /// Notes whether compressing a page of a list gained something.
    pub(crate) fn note_tried(&self, list: Lid, gained: bool) {
        if let Some(tried) = &self.tried {
            tried.doubts.note_tried(list, gained);
        }
    }

    /// Whether a block with this checksum does not become smaller when it is moved once more.
    pub(crate) fn is_settled(&self, crc32c: u32) -> bool {
        self.tried.as_ref().is_some_and(|tried| tried.settled.has(crc32c))
    }

    /// Notes that a block with this checksum does not.
    pub(crate) fn settle(&self, crc32c: u32) {
        if let Some(tried) = &self.tried {
            tried.settled.note(crc32c);
        }
    }

    /// How often in a row compressing pages of a list has gained nothing.
    #[cfg(test)]
    pub(crate) fn in_vain(&self, list: Lid) -> u8 {
        self.tried.as_ref().map_or(0, |tried| tried.doubts.doubt(list).load(Ordering::Relaxed))
    }
}

impl Default for Settled {
    fn default() -> Self {
        Self((0..SETTLED).map(|_| AtomicU16::new(0)).collect())
    }
}

impl Settled {
    /// The place of a checksum, and the part of it that is kept there; 0 stands for none.
    fn place(&self, crc32c: u32) -> Option<(&AtomicU16, u16)> {
        let rest = (crc32c >> 16) as u16;
        (rest != 0).then(|| (&self.0[crc32c as usize % SETTLED], rest))
    }

    /// Whether a block with this checksum is one of those.
    fn has(&self, crc32c: u32) -> bool {
        self.place(crc32c).is_some_and(|(kept, rest)| kept.load(Ordering::Relaxed) == rest)
    }

    /// Notes that a block with this checksum is one of those.
    fn note(&self, crc32c: u32) {
        if let Some((kept, rest)) = self.place(crc32c) {
            kept.store(rest, Ordering::Relaxed);
        }
    }
}

impl Default for Doubts {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU8::new(0)))
    }
}

impl Doubts {
    fn doubt(&self, list: Lid) -> &AtomicU8 {
        &self.0[(list.0 % DOUBTS as u64) as usize]
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
