//! How a volume is made and opened.

use dendro_base::Uuid;
use dendro_base::sync::Arc;
use dendro_base::units::MIB;
use dendro_policy::{Kind, Policy};

use std::time::Duration;

/// How a volume is made.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// Bytes in a segment: a power of two from 128 KiB to 64 MiB.
    pub segment_size_bytes: u64,
    /// The volume's name, 64 bytes of UTF-8 at most.
    pub label: String,
    /// Its identity.
    pub uuid: Uuid,
    /// A random key for the clients' hash tables.
    pub hash_key: [u8; 16],
    /// All of the device has its place on the file system that holds it, and is to keep it.
    pub is_allocated: bool,
}

impl Default for FormatOptions {
    /// Segments of 4 MiB, no label; identity and hash key are zero and should be drawn.
    fn default() -> Self {
        Self {
            segment_size_bytes: 4 * MIB,
            label: String::new(),
            uuid: Uuid::default(),
            hash_key: [0; 16],
            is_allocated: false,
        }
    }
}

/// What is done when the log, or the superblocks and checkpoints that it starts from, are damaged where
/// they were durable, so that changes are lost that were promised to stay. Opened for reading only, the
/// volume is as it was before these changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// The volume is not opened, and nothing is written.
    #[default]
    Stop,
    /// They are given up: the volume goes on from before them, and that state is kept as a snapshot.
    Truncate,
    /// The volume is opened for reading only, and shows what can be made of those that lie behind the
    /// damage too. Nothing is written.
    Skip,
}

/// How a volume is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Nothing is written; the log is rolled forward in memory alone.
    pub read_only: bool,
    /// Bound on the clean map nodes kept in memory. Dirty ones take up to half as much more.
    pub cache_size_bytes: u64,
    /// A checkpoint is due after so many bytes of log: the bound on what recovery reads.
    pub checkpoint_log_bytes: u64,
    /// What is cleaned next, and what is written together. It can be exchanged later.
    pub policy: Arc<dyn Policy>,
    /// When cleaning goes on by itself. It can be changed later.
    pub cleaning: CleanSettings,
    /// The share of each segment, in percent, that stays free of live blocks when the volume is
    /// full, so that cleaning has something to gain: with r percent the last overwrites at random
    /// cost about 100 / 2r blocks written for each. 50 at most.
    pub reserve_percent: u8,
    /// With so many bytes of blocks between flushes, in the mean, blocks are kept apart from the
    /// main log by temperature, as the policy says; with fewer they stay in it, where a flush costs
    /// one write.
    pub stream_bytes: u64,
    /// Freed segments are discarded, so that an image file shrinks; not of a volume that was made to keep
    /// what is allocated.
    pub discard: bool,
    /// What is done when something is damaged that was durable.
    pub on_loss: OnLoss,
    /// Accept payload in roll-forward without looking at its checksums. For the test of the crash
    /// tests: with it they must fail.
    #[doc(hidden)]
    pub skip_payload_checks: bool,
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
            discard: true,
            on_loss: OnLoss::Stop,
            skip_payload_checks: false,
        }
    }
}

/// When cleaning goes on by itself. Everything may be changed while the disk is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanSettings {
    /// Clean segments, beyond those in reserve, below which segments are cleaned; `None`: a 128th of
    /// all, from 2 to 64.
    pub min_clean_segments: Option<u32>,
    /// So many are made in idle times; `None`: four times as many as the former.
    pub max_clean_segments: Option<u32>,
    /// Nothing is cleaned but for a commit that finds no room, and nothing coalesced.
    pub is_suspended: bool,
    /// What is coalesced, and when.
    pub coalescing: CoalesceSettings,
}

/// What is coalesced, and when. Everything may be changed while the disk is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoalesceSettings {
    /// Whether it is done in idle times at all.
    pub is_on: bool,
    /// How long nobody has written or read then. The disk does not watch the time: this is for
    /// whoever calls [`LogDisk::coalesce_step`](crate::LogDisk::coalesce_step).
    pub after: Duration,
    /// Pieces of so many bytes or more stay where they are, also when it is asked for.
    pub piece_bytes: u32,
    /// In idle times so much may be written again, in percent of what clients write to pages.
    pub share_percent: u32,
    /// Move everything, however it lies. For tests, which have little that lies scattered.
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
