//! Findings and their kinds.

use std::fmt;

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Information; nothing is wrong.
    Note,
    /// Something is wrong that does not affect data, such as a wrong count.
    Warning,
    /// Something cannot be read, or will be lost.
    Error,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $severity:ident, $title:literal;)*) => {
        /// The kind of a finding. The meaning of a number never changes; numbers of kinds that are
        /// no longer in use are not used again.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum FindingKind { $($(#[$doc])* $name = $number,)* }

        impl FindingKind {
            /// All kinds, by ascending number.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// How bad it is.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }

            /// What it is, in a few words.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

kinds! {
    /// No superblock, or unknown features.
    NoVolume = 1, Error, "the volume cannot be opened";
    /// The device is shorter than the volume.
    DeviceTooShort = 2, Error, "the device is shorter than the volume";
    /// The superblock logs have lost the newest superblock.
    SuperblocksLost = 3, Error, "the superblocks at the device's beginning are lost";
    /// The checkpoint that the superblock names is unusable.
    CheckpointUnusable = 10, Error, "the checkpoint cannot be used";
    /// The checkpoint's positions are not in segments of the log.
    CheckpointPosition = 11, Error, "the checkpoint names a place that is not in the log";
    /// One of two copies of the checkpoint is unusable.
    CheckpointCopy = 12, Warning, "one of two copies of the checkpoint cannot be used";
    /// A map node lies where none can.
    NodeOutside = 20, Error, "a map node lies outside the log";
    /// A map node cannot be read.
    NodeUnreadable = 21, Error, "a map node cannot be read";
    /// A map node is damaged, or another node lies there.
    NodeDamaged = 22, Error, "a map node is damaged";
    /// A map node is at another level than its parent says.
    NodeLevel = 23, Error, "a map node is of the wrong level";
    /// A map node's keys belong elsewhere.
    NodeKeys = 24, Error, "a map node's keys belong elsewhere";
    /// A map node is newer than the checkpoint that reaches it.
    NodeNewer = 25, Error, "a map node is newer than its checkpoint";
    /// A map node has entries that are newer than its parent says.
    NodeEpoch = 26, Error, "a map node's entries are newer than its parent says";
    /// A chunk's skip passes over entries that it should not.
    ChunkSkip = 27, Error, "a chunk's skip over older entries is wrong";
    /// One of two copies of a map node cannot be read, or is damaged.
    NodeCopy = 28, Warning, "one of two copies of a map node is damaged";
    /// An entry's epoch is none, or one that has not begun.
    EntryEpoch = 29, Error, "an entry of the map has an epoch that has not been";
    /// A block lies where none can.
    BlockOutside = 30, Error, "a page's block lies outside the log";
    /// A block cannot be read.
    BlockUnreadable = 31, Error, "a page's block cannot be read";
    /// A block's checksum is wrong.
    BlockDamaged = 32, Error, "a page's block is damaged";
    /// A block's compression, or a flag of it, is unknown.
    BlockCompression = 33, Error, "a page's block is compressed in an unknown way";
    /// Two entries of the map name the same bytes.
    Overlap = 34, Error, "blocks or map nodes overlap";
    /// A live block lies where the log will be written next.
    BehindLog = 35, Error, "a block or map node lies where the log goes on";
    /// A block that no version has any more is unreadable or damaged.
    BlockGone = 36, Note, "a block that no snapshot or branch sees any more is damaged";
    /// Records or pages of a list that does not exist.
    NoSuchList = 40, Error, "there are records or pages of a list that does not exist";
    /// A list has a number that the volume will use for a new list.
    ListNumber = 41, Error, "a list's number is to be given out again";
    /// A record of the table of versions is unreadable.
    VersionUnreadable = 42, Error, "the record of a snapshot or branch cannot be read";
    /// An entry that no snapshot or branch sees, and that no collection is going to remove.
    Unseen = 43, Warning, "something is kept that no snapshot or branch sees";
    /// A record of the list of removals is unreadable.
    RemovalUnreadable = 44, Warning, "a list that is being removed is recorded wrongly";
    /// The recorded usage of a segment is unreadable.
    UsageUnreadable = 50, Warning, "the usage of a segment cannot be read";
    /// The recorded usage of a segment is wrong.
    UsageWrong = 51, Warning, "the usage of a segment is recorded wrongly";
    /// Usage is recorded for a segment that does not exist.
    UsageOutside = 52, Warning, "usage is recorded for a segment that is not in the log";
    /// The sum of live bytes is wrong.
    LiveBytesWrong = 53, Warning, "the sum of live bytes is recorded wrongly";
    /// Pages that are zeros, short or compressed are counted wrongly.
    PageCountsWrong = 54, Warning, "pages that are zeros, short or compressed are counted wrongly";
    /// What a client uses of its quota is recorded wrongly.
    QuotaWrong = 55, Warning, "what a client uses of its quota is recorded wrongly";
    /// The volume says that it was shut down cleanly, but the log continues.
    NotClean = 60, Warning, "the volume is marked clean, but there is a log to roll forward";
    /// The log continues behind the checkpoint.
    LogGoesOn = 61, Note, "the log goes on behind the checkpoint";
    /// A durable partial segment is damaged.
    LogLost = 62, Error, "a durable part of the log is damaged";
    /// There are more findings than are kept.
    TooMany = 99, Note, "there are more findings of a kind than are listed";
}

impl FindingKind {
    /// Its number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// Whether the contents of a page are lost.
    #[must_use]
    pub const fn is_of_contents(self) -> bool {
        matches!(self, Self::BlockUnreadable | Self::BlockDamaged)
    }

    /// Whether all of the map can be read in spite of it, so that a rebuild has nothing to do:
    /// damaged contents of files, and copies of which the other one is sound.
    #[must_use]
    pub const fn leaves_map_whole(self) -> bool {
        self.is_of_contents() || matches!(self, Self::CheckpointCopy | Self::NodeCopy)
    }
}

/// One thing that a verification has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// The place and the details.
    pub detail: String,
    /// The list that it is about, if that is a file.
    pub list: Option<u64>,
    /// The versions that have it; `None` if it is not about what versions see, if none sees it, or
    /// if the map does not tell.
    pub seen_in: Option<SeenIn>,
}

/// Versions that have what a finding is about, as indexes into [`Report::versions`].
///
/// [`Report::versions`]: super::Report::versions
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SeenIn {
    /// The first of them, up to sixteen.
    pub first: Vec<usize>,
    /// The last one; if the head of a branch has it, the last of those.
    pub last: usize,
    /// How many there are.
    pub count: usize,
    /// Whether the head of a branch has it.
    pub is_in_head: bool,
}

impl Finding {
    pub(super) fn new(kind: FindingKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), list: None, seen_in: None }
    }

    /// How bad it is.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        self.kind.severity()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity() {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity} {}: {}: {}", self.kind.number(), self.kind.title(), self.detail)
    }
}

impl Serialize for Finding {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut out = serializer.serialize_struct("Finding", 6)?;
        out.serialize_field("number", &self.kind.number())?;
        out.serialize_field("severity", &self.severity())?;
        out.serialize_field("title", self.kind.title())?;
        out.serialize_field("detail", &self.detail)?;
        out.serialize_field("list", &self.list)?;
        out.serialize_field("seen_in", &self.seen_in)?;
        out.end()
    }
}
