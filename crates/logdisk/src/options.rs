//! The options for making and opening a volume.

use dendro_base::Uuid;
use dendro_base::sync::Arc;
use dendro_base::units::MIB;
use dendro_disk::MAX_UNIT_GROUPS;
use dendro_format::{Compression, Superblock};
use dendro_policy::{Kind, Policy};

use std::time::Duration;

/// The options for making a volume.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// Bytes in a segment: a power of two from 128 KiB to 64 MiB.
    pub segment_size_bytes: u64,
    /// The volume's name, 64 bytes of UTF-8 at most.
    pub label: String,
    /// The volume's identity.
    pub uuid: Uuid,
    /// A random key for the clients' hash tables.
    pub hash_key: [u8; 16],
    /// Whether the whole device is allocated on the host and must stay allocated.
    pub is_allocated: bool,
    /// Whether the volume keeps backups of its superblock at the end of the device. They lie behind
    /// the segments, so that it may have one segment less. A device that has room for 16 segments
    /// alone has none.
    pub has_backups: bool,
    /// How often nodes of the map and checkpoints are kept, 1 or 2: the second time in segments
    /// that mirror those of the map.
    pub metadata_copies: u8,
    /// The length in bytes up to which the device becomes longer by itself when the volume gets
    /// full; 0: it keeps its length.
    pub max_len_bytes: u64,
    /// Whether the device is a set of devices.
    pub is_on_set: bool,
    /// Whether each device of the set holds a part of the volume alone.
    pub is_spread: bool,
    /// How new pages are compressed, where neither their list nor who opens the volume says
    /// something else.
    pub compression: Option<Compression>,
    /// How the cleaner compresses what it moves, where who opens the volume says nothing else.
    pub cold_compression: Option<Compression>,
}

impl Default for FormatOptions {
    /// Segments of 4 MiB and no label. The identity and the hash key are zero; the caller should
    /// set random ones.
    fn default() -> Self {
        Self {
            segment_size_bytes: 4 * MIB,
            label: String::new(),
            uuid: Uuid::default(),
            hash_key: [0; 16],
            is_allocated: false,
            has_backups: false,
            metadata_copies: 1,
            max_len_bytes: 0,
            is_on_set: false,
            is_spread: false,
            compression: None,
            cold_compression: None,
        }
    }
}

/// What is done when a part of the log, a superblock or a checkpoint is damaged that had been
/// durable, so that acknowledged changes are lost. If the volume is opened for reading only, it
/// shows the state before these changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// The volume is not opened, and nothing is written.
    #[default]
    Stop,
    /// The changes are given up. The volume continues from the state before them, and that state is
    /// kept as a snapshot.
    Truncate,
    /// The volume is opened for reading only. It also shows what can be recovered of the changes
    /// behind the damage. Nothing is written.
    Skip,
}

/// When clean segments are discarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discards {
    /// They are not.
    Never,
    /// When they have been clean for 10 to 20 minutes, are many, or the file system that holds the
    /// image has little room, and when the disk is shut down.
    #[default]
    InTime,
    /// When the checkpoint is durable that makes them clean.
    AtOnce,
}

impl Discards {
    /// What holds for a volume with this superblock.
    pub(crate) const fn on(self, superblock: &Superblock) -> Self {
        if superblock.is_allocated() { Self::Never } else { self }
    }
}

/// The options for opening a volume.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Nothing is written; the log is rolled forward in memory only.
    pub read_only: bool,
    /// The bound on the nodes of the map in memory, and on the segment table.
    pub cache_size_bytes: u64,
    /// The bytes of log after which a checkpoint is due. This bounds what recovery reads. As many
    /// bytes of emptied segments are enough where a sparse image would grow without one.
    pub checkpoint_log_bytes: u64,
    /// The policy: it decides what is cleaned next and what is written together. It can be replaced
    /// later.
    pub policy: Arc<dyn Policy>,
    /// When background cleaning runs. It can be changed later.
    pub cleaning: CleanSettings,
    /// The share of each segment, in percent, that stays free of live blocks when the volume is
    /// full, so that cleaning has something to gain. With r percent, random overwrites on a full
    /// volume cost about 100 / 2r written blocks each. The maximum is 50.
    pub reserve_percent: u8,
    /// If clients write at least this many bytes of blocks between flushes, in the mean, blocks go
    /// to payload streams as the policy decides. If they write less, blocks stay in the main log,
    /// where a flush costs one write.
    pub stream_bytes: u64,
    /// When clean segments are discarded, so that an image file shrinks. Of a volume that was made
    /// to stay allocated they never are.
    pub discards: Discards,
    /// What is done when something is damaged that was durable.
    pub on_loss: OnLoss,
    /// How long a client that lacks space waits for another one that has said that it is about to
    /// give some back ([`LogicalDisk::expect_release`](dendro_disk::LogicalDisk::expect_release)).
    /// The time counts from that moment on.
    pub release_wait: Duration,
    /// Whether the device is a set of devices. A volume that lies on a set is not opened for
    /// writing on one of these devices alone.
    pub is_on_set: bool,
    /// How new pages are compressed, or that they are not, where their list says nothing else.
    /// `None`: as the volume says.
    pub compression: Option<Option<Compression>>,
    /// How the cleaner compresses what it moves, in lists that may be compressed, or that it moves
    /// blocks as they are stored. `None`: as the volume says.
    pub cold_compression: Option<Option<Compression>>,
    /// Accept payload in roll-forward without verifying its checksums. This exists to test the
    /// crash tests, which must fail with it.
    #[doc(hidden)]
    pub skip_payload_checks: bool,
    /// A unit puts off what it punches, moves or exchanges of more groups than this, if it can.
    /// Crash tests make it less than [`MAX_UNIT_GROUPS`], so that short units put something off.
    #[doc(hidden)]
    pub put_off_groups: u64,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            cache_size_bytes: 64 * MIB,
            checkpoint_log_bytes: 128 * MIB,
            policy: Arc::from(Kind::default().policy()),
            cleaning: CleanSettings::default(),
            reserve_percent: 4,
            stream_bytes: 512 << 10,
            discards: Discards::default(),
            on_loss: OnLoss::Stop,
            release_wait: Duration::ZERO,
            is_on_set: false,
            compression: None,
            cold_compression: None,
            skip_payload_checks: false,
            put_off_groups: MAX_UNIT_GROUPS,
        }
    }
}

/// When background cleaning runs. Everything may be changed while the disk is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanSettings {
    /// The number of clean segments, beyond the reserves, below which segments are cleaned. `None`
    /// means a 128th of all segments, but at least 2 and at most 64.
    pub min_clean_segments: Option<u32>,
    /// The number of clean segments that cleaning makes in idle times. `None` means four times the
    /// former.
    pub max_clean_segments: Option<u32>,
    /// Whether cleaning is suspended: segments are cleaned only for a commit that finds no room,
    /// and nothing is coalesced.
    pub is_suspended: bool,
    /// What is coalesced, and when.
    pub coalescing: CoalesceSettings,
}

/// What is coalesced, and when. Everything may be changed while the disk is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoalesceSettings {
    /// Whether coalescing runs in idle times.
    pub is_on: bool,
    /// How long nobody must have written or read before that. The disk does not measure this time;
    /// the caller of [`LogDisk::coalesce_step`](crate::LogDisk::coalesce_step) does.
    pub after: Duration,
    /// The size of pieces, in bytes, from which on they are not moved, even when coalescing is
    /// requested.
    pub piece_bytes: u32,
    /// The bytes that may be written again in idle times, in percent of what clients write to
    /// pages.
    pub share_percent: u32,
    /// Move everything, wherever it lies. This is for tests, which have little scattered data.
    #[doc(hidden)]
    pub moves_everything: bool,
}

impl Default for CoalesceSettings {
    fn default() -> Self {
        Self {
            is_on: true,
            after: Duration::from_secs(30),
            piece_bytes: 128 << 10,
            share_percent: 25,
            moves_everything: false,
        }
    }
}
