//! Log-structured volumes as a library: files, or lists of records and pages, with snapshots and
//! clones, without a mount and without a daemon.
//!
//! - [`Volume`]: an image file, a block device, or memory, that is open. It is made with
//!   [`CreateOptions`] and opened with [`OpenOptions`].
//! - [`Runner`]: the threads that write the log, clean segments and make the log durable at
//!   intervals. A program that wants no threads calls [`Volume::step`] instead.
//! - [`Files`] and [`File`]: the files of one version, by paths.
//! - [`disk`]: lists, and atomic recovery units that change them.
//! - [`Error`]: what can go wrong, each with the errno that Linux has for it.
//!
//! C programs use the same through `libdendro` (`crates/capi`), Python programs through the package
//! `dendrofs` (`crates/python`).
//!
//! # A volume of files
//! ```
//! use dendrofs::{CreateOptions, Volume};
//!
//! # fn main() -> Result<(), dendrofs::Error> {
//! let volume = Volume::in_memory(32 << 20, &CreateOptions::files())?;
//! let files = volume.files(volume.main())?;
//! files.create_dir("notes")?;
//! files.write("notes/today", b"written")?;
//!
//! let before = volume.snapshot("before")?;
//! files.write("notes/today", b"written again")?;
//!
//! assert_eq!(files.read("notes/today")?, b"written again");
//! assert_eq!(volume.files(before)?.read("notes/today")?, b"written");
//! volume.close()
//! # }
//! ```
//!
//! # A volume of lists
//! A list has *records*, up to 1,024 bytes each, and *pages* of 4,096 bytes, both with an index. An
//! atomic recovery unit changes any number of lists, and takes effect whole or not at all, whatever
//! crashes. Units take effect in their order: after a crash the volume has all units up to one of
//! them, and none after it. [`Volume::flush`] moves that point past everything that was committed.
//! ```
//! use dendrofs::disk::{Aru, ListHints};
//! use dendrofs::{CreateOptions, Volume};
//!
//! # fn main() -> Result<(), dendrofs::Error> {
//! let volume = Volume::in_memory(32 << 20, &CreateOptions::lists())?;
//! let list = volume.disk().allocate_list()?;
//! let mut unit = Aru::new(volume.main());
//! unit.create_list(list, ListHints::default());
//! unit.put_record(list, 0, b"a record".to_vec());
//! unit.put_record(Volume::ROOT, 0, list.0.to_le_bytes().to_vec());
//! volume.disk().commit(unit)?;
//! volume.flush()?;
//! assert_eq!(&*volume.disk().record(volume.main(), list, 0)?.expect("just put"), b"a record");
//! # volume.close()
//! # }
//! ```
//! [`Volume::ROOT`] is a list that each volume of lists has from the beginning: a place for what a
//! program has to find again.
//!
//! # Several clients
//! A volume is made for files or for lists. Beside these it can have other *clients*, each with
//! files, a block device or lists, and with versions of its own. They share the room. Lists of two
//! clients may have the same number.
//! ```
//! use dendrofs::{ClientKind, CreateOptions, Volume};
//!
//! # fn main() -> Result<(), dendrofs::Error> {
//! let volume = Volume::in_memory(32 << 20, &CreateOptions::files())?;
//! let others = volume.create_client("others", ClientKind::Files)?;
//! volume.files(others)?.write("notes", b"of the others")?;
//! assert!(volume.files(volume.main())?.read("notes").is_err());
//! assert_eq!(volume.clients()?[1].name.as_deref(), Some("others"));
//!
//! volume.set_quota(others, Some(1 << 20))?;
//! let refused = volume.files(others)?.write("large", &vec![7; 2 << 20]).unwrap_err();
//! assert_eq!(refused.errno(), libc::EDQUOT);
//! # volume.close()
//! # }
//! ```
//! A *quota* bounds what all versions of a client take together.
//!
//! # Versions
//! A *view* names a version: the head of a branch, which can be changed, or a snapshot. A snapshot
//! and a branch cost some microseconds, whatever the volume holds. [`Volume::view`] finds a version
//! by its name, as the command `dendro` does: `@before`, `branch`, `branch@snapshot`.
//!
//! [`Volume::send`] writes a snapshot, or what it has and another one has not, as a stream of
//! bytes, and [`Volume::receive`] reads that into another volume. The commands `dendro send` and
//! `dendro receive` write and read the same.
//!
//! # Durability
//! Nothing has to be flushed for a volume to be sound. What was not flushed can be missing after a
//! crash, from the end. A [`Runner`] flushes every five seconds unless it is told otherwise;
//! [`Volume::flush`], [`Files::sync`] and [`File::sync`] flush at once.
//!
//! # What is stable
//! The items of this crate's root: before version 1.0 they change only where the version's second
//! number does. [`disk`] is the interface of the layer below and may gain methods. Volumes are
//! those of the command `dendro`: each can open what the other has made, one at a time. The format
//! on the device is versioned by itself, and old volumes go on being readable.
//!
//! # Modules, each of which uses only those above it
//!
//! | module | what it is |
//! |--------|------------|
//! | `error` | errors |
//! | `options` | how volumes are made and opened |
//! | `metadata` | what is known of files |
//! | `hints` | hints of lists that a unit changes in part |
//! | `walk` | from a path to a file |
//! | `open_disk` | the disk of an open volume, and its file systems |
//! | `file`, `files` | files of a version |
//! | `volume` | an open volume, and its versions |
//! | `streams` | versions as streams |
//! | `runner` | the background threads |

#![forbid(unsafe_code)]

mod error;
mod file;
mod files;
mod hints;
mod metadata;
mod open_disk;
mod options;
mod runner;
mod streams;
mod volume;
mod walk;

pub use dendro_base::ClientKind;
pub use error::{Error, Result};
pub use file::File;
pub use files::Files;
pub use hints::given_hints;
pub use metadata::{Entry, FileType, Metadata};
pub use options::{CreateOptions, OpenOptions};
pub use runner::Runner;
pub use volume::{Client, Volume};

/// Lists, units and versions: the interface of the logical disk (de Jonge, Kaashoek and Hsieh,
/// 1993).
pub mod disk {
    pub use dendro_base::Timestamp;
    pub use dendro_disk::{
        Aru, Branch, CHANGE_BYTES, CommitSeq, Completion, Condition, Error, GROUP_PAGES, Lid,
        ListCompression, ListHints, Locality, LogicalDisk, MAX_PAGE_COUNT, MAX_RECORD_LEN_BYTES,
        MAX_UNIT_GROUPS, Op, Outlasts, PAGE_SIZE, PageRange, Quota, Record, Reservation, Result,
        Snapshot, Space, VersionTable, VersionUsage, Versions, View,
    };
}
