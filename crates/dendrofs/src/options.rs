//! How volumes are made and opened.

use std::path::PathBuf;
use std::str::FromStr;

use dendro_base::units::MIB;
use dendro_format::Compression as OfPages;
use dendro_format::superblock::LABEL_LEN_BYTES;

use crate::error::{Error, Result};

/// What a new volume holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    Files,
    Lists,
}

/// How new pages are compressed. What is there stays as it is, and is read with any options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// They are not.
    None,
    /// With LZ4, which is fast.
    Lz4,
    /// With Zstandard, which gains more.
    Zstd {
        /// 1 to 15: higher levels take more time.
        level: u8,
    },
}

impl Compression {
    /// Zstandard with the level that is used where none is stated.
    pub const ZSTD: Self = Self::of(Some(OfPages::ZSTD));

    const fn of(pages: Option<OfPages>) -> Self {
        match pages {
            None => Self::None,
            Some(OfPages::Lz4) => Self::Lz4,
            Some(OfPages::Zstd { level }) => Self::Zstd { level },
        }
    }

    pub(crate) const fn of_pages(self) -> Option<OfPages> {
        match self {
            Self::None => None,
            Self::Lz4 => Some(OfPages::Lz4),
            Self::Zstd { level } => Some(OfPages::Zstd { level }),
        }
    }

    /// Whether there is such a level.
    fn check(self) -> Result<()> {
        match self {
            Self::None | Self::Lz4 => Ok(()),
            Self::Zstd { level } => format!("zstd:{level}").parse::<Self>().map(drop),
        }
    }
}

impl FromStr for Compression {
    type Err = Error;

    /// `none`, `lz4`, `zstd`, or `zstd:` and a level, as for `dendro mkfs`.
    fn from_str(text: &str) -> Result<Self> {
        OfPages::parse(text).map(Self::of).map_err(|why| Error::BadOption { why })
    }
}

/// How to make a volume.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    pub(crate) contents: Contents,
    pub(crate) label: String,
    pub(crate) segment_size_bytes: Option<u64>,
    pub(crate) metadata_copies: u8,
    pub(crate) compression: Compression,
    pub(crate) open: OpenOptions,
}

impl CreateOptions {
    /// A volume of files. The root directory belongs to the user of this process.
    #[must_use]
    pub fn files() -> Self {
        Self::of(Contents::Files)
    }

    /// A volume of lists.
    #[must_use]
    pub fn lists() -> Self {
        Self::of(Contents::Lists)
    }

    fn of(contents: Contents) -> Self {
        Self {
            contents,
            label: String::new(),
            segment_size_bytes: None,
            metadata_copies: 1,
            compression: Compression::None,
            open: OpenOptions::default(),
        }
    }

    /// The volume's name for people, up to 64 bytes.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Bytes in a segment: a power of two from 128 KiB to 64 MiB. Otherwise it follows the size of
    /// the volume.
    #[must_use]
    pub const fn segment_size_bytes(mut self, len_bytes: u64) -> Self {
        self.segment_size_bytes = Some(len_bytes);
        self
    }

    /// How often the map is kept, 1 or 2: the second copy lies far from the first.
    #[must_use]
    pub const fn metadata_copies(mut self, count: u8) -> Self {
        self.metadata_copies = count;
        self
    }

    /// How new pages are compressed, now and whenever the volume is opened, where neither their
    /// list nor who opens the volume says something else.
    #[must_use]
    pub const fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// How the volume is opened once it is made. That cannot be for reading only.
    #[must_use]
    pub fn open_with(mut self, options: OpenOptions) -> Self {
        self.open = options;
        self
    }

    /// Whether a volume can be made so, as far as that does not depend on its size.
    pub(crate) fn check(&self) -> Result<()> {
        self.compression.check()?;
        self.open.check()?;
        let why = match () {
            () if self.label.len() > LABEL_LEN_BYTES => {
                format!("a label of {} bytes; it can have {LABEL_LEN_BYTES}", self.label.len())
            }
            () if self.label.contains('\0') => "the label has a zero byte".into(),
            () if !matches!(self.metadata_copies, 1 | 2) => {
                "a volume keeps its map once or twice".into()
            }
            () if self.open.read_only => "a new volume cannot be read-only".into(),
            () => return Ok(()),
        };
        Err(Error::BadOption { why })
    }
}

/// How to open a volume.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    pub(crate) read_only: bool,
    pub(crate) cache_size_bytes: u64,
    pub(crate) discard: bool,
    pub(crate) compression: Option<Compression>,
    pub(crate) devices: Vec<PathBuf>,
    pub(crate) degraded: bool,
}

impl Default for OpenOptions {
    /// For reading and writing, with a cache of 64 MiB, and discarding what is free.
    fn default() -> Self {
        Self {
            read_only: false,
            cache_size_bytes: 64 * MIB,
            discard: true,
            compression: None,
            devices: Vec::new(),
            degraded: false,
        }
    }
}

impl OpenOptions {
    /// The default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing is written. What lies behind the last checkpoint is read into memory.
    #[must_use]
    pub const fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// The memory for the map, in bytes.
    #[must_use]
    pub const fn cache_size_bytes(mut self, len_bytes: u64) -> Self {
        self.cache_size_bytes = len_bytes;
        self
    }

    /// Whether segments that become free are given back, so that an image shrinks.
    #[must_use]
    pub const fn discard(mut self, discard: bool) -> Self {
        self.discard = discard;
        self
    }

    /// How new pages are compressed until the volume is closed, where their list says nothing else.
    /// Otherwise they are compressed as [`CreateOptions::compression`] has said.
    #[must_use]
    pub const fn compression(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// Names a further device of a volume that lies on several. Each call names one. Devices that
    /// are where they were last, and block devices of this machine, are found without that.
    #[must_use]
    pub fn device(mut self, path: impl Into<PathBuf>) -> Self {
        self.devices.push(path.into());
        self
    }

    /// Whether devices of the volume may be absent. A mirrored volume is opened with those that
    /// have everything; a volume that is spread over devices can only be read then.
    #[must_use]
    pub const fn degraded(mut self, degraded: bool) -> Self {
        self.degraded = degraded;
        self
    }

    /// Whether a volume can be opened so, as far as that does not depend on the volume.
    pub(crate) fn check(&self) -> Result<()> {
        self.compression.map_or(Ok(()), Compression::check)
    }
}
