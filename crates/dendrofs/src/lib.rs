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
//! List 2 belongs to the file system: it says what the volume holds. The library does not keep a
//! unit from changing it, and the volume can be unusable afterwards. The same holds for units on a
//! version of files, whose lists all belong to the file system, and for record 0 of the list of a
//! block device.
//!
//! ## Conditions
//! A unit can have conditions. It is committed if all of them hold right before its changes.
//! Otherwise it changes nothing, and the program reads again what the unit is based on. So threads
//! need no lock between reading and writing.
//! ```
//! use dendrofs::disk::{Aru, Error as DiskError};
//! # use dendrofs::{CreateOptions, Volume};
//! # fn main() -> Result<(), dendrofs::Error> {
//! # let volume = Volume::in_memory(32 << 20, &CreateOptions::lists())?;
//! let (disk, main) = (volume.disk(), volume.main());
//! let raise = || {
//!     let before = disk.record(main, Volume::ROOT, 0)?;
//!     let count = before.as_deref().map_or(0, |record| record[0]);
//!     let mut unit = Aru::new(main);
//!     unit.require_record(Volume::ROOT, 0, before).put_record(Volume::ROOT, 0, [count + 1]);
//!     disk.commit(unit)
//! };
//! raise()?;
//!
//! // Nothing of the list has changed since it was read.
//! let seen = disk.last_commit();
//! let count = disk.records(main, Volume::ROOT, 0, 100)?.len();
//! let mut unit = Aru::new(main);
//! unit.require_unchanged(Volume::ROOT, seen).put_record(Volume::ROOT, count as u64, *b"new");
//! raise()?;
//! assert_eq!(disk.commit(unit), Err(DiskError::ConditionFailed(Volume::ROOT)));
//! # volume.close()
//! # }
//! ```
//!
//! ## Reservations
//! A program that accepts work before it writes it reserves the room. The unit that uses the
//! reservation is not refused for what others write meanwhile, if it is no larger
//! ([`disk::Aru::payload_bytes`]). A reservation that is dropped gives the room back. One of
//! another volume is of no use to a unit.
//! ```
//! use dendrofs::disk::{Aru, CHANGE_BYTES, PAGE_SIZE};
//! # use dendrofs::{CreateOptions, Volume};
//! # fn main() -> Result<(), dendrofs::Error> {
//! # let volume = Volume::in_memory(32 << 20, &CreateOptions::lists())?;
//! let room = volume.disk().reserve_in(volume.main(), 16 * PAGE_SIZE as u64 + CHANGE_BYTES)?;
//! // Later:
//! let mut unit = Aru::new(volume.main());
//! unit.write_pages(Volume::ROOT, 0, vec![7; 16 * PAGE_SIZE]).use_reservation(room);
//! volume.disk().commit(unit)?;
//! # volume.close()
//! # }
//! ```
//! [`disk::LogicalDisk::reserve_in`] counts against the quota of a client too;
//! [`disk::LogicalDisk::reserve`] does not.
//!
//! ## Hints
//! A list has hints, which say how it lies on the device and change nothing of what it holds. A
//! list that is *near* another one is laid down beside it when the cleaner moves both, and so are
//! all lists that are near the same one. A list that is *clustered* is kept in the order of its
//! pages. How new pages are compressed is a hint too; without it, [`CreateOptions::compression`]
//! and [`OpenOptions::compression`] say so. A unit gives hints to a list that it makes, or changes
//! those of a list.
//! ```
//! use dendrofs::disk::{Aru, ListCompression, ListHints, Locality, Op};
//! # use dendrofs::{CreateOptions, Volume};
//! # fn main() -> Result<(), dendrofs::Error> {
//! # let volume = Volume::in_memory(32 << 20, &CreateOptions::lists())?;
//! let (index, table) = (volume.disk().allocate_list()?, volume.disk().allocate_list()?);
//! let hints = ListHints { locality: Locality::Clustered, ..ListHints::default() };
//! let mut unit = Aru::new(volume.main());
//! unit.create_list(table, ListHints { compression: ListCompression::Zstd, ..hints });
//! unit.create_list(index, ListHints { near: Some(table), ..hints });
//! volume.disk().commit(unit)?;
//!
//! let old = volume.disk().hints(volume.main(), table)?.expect("it was just made");
//! let mut unit = Aru::new(volume.main());
//! let hints = ListHints { compression: ListCompression::Never, ..old };
//! unit.push(Op::SetHints { list: table, hints });
//! volume.disk().commit(unit)?;
//! assert_eq!(volume.disk().hints(volume.main(), table)?, Some(hints));
//! # volume.close()
//! # }
//! ```
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
//! [`Volume::create_block_device`] makes a client that is a block device. Its contents are the
//! pages of its list [`Volume::ROOT`], and `dendro nbd` serves it.
//! ```
//! # use dendrofs::{CreateOptions, Volume};
//! use dendrofs::disk::Aru;
//!
//! # fn main() -> Result<(), dendrofs::Error> {
//! # let volume = Volume::in_memory(32 << 20, &CreateOptions::files())?;
//! let device = volume.create_block_device("device", 1 << 30)?;
//! let mut unit = Aru::new(device);
//! unit.write_bytes(Volume::ROOT, 512, b"the second sector".as_slice());
//! volume.disk().commit(unit)?;
//! assert_eq!(volume.block_device_len_bytes(device)?, 1 << 30);
//! # volume.close()
//! # }
//! ```
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
//! [`disk::LogicalDisk::flush_for`] is told which failure a commit is to [outlast](disk::Outlasts):
//! the end of the process, that of the system, or the loss of a device. The last needs a volume on
//! several devices that each hold all of it, which `dendro mkfs` makes;
//! [`disk::Error::OneCopy`] says that there is one alone at present.
//!
//! [`disk::LogicalDisk::when_durable`] does not wait. A runner makes the commit durable soon, and
//! some thread calls what was given, which wakes an event loop or sends a message. It must neither
//! wait nor panic. Without a runner it is called by [`Volume::step`], by a flush, or when the
//! volume is closed.
//! ```
//! use std::sync::mpsc::channel;
//!
//! use dendrofs::disk::{Aru, Error as DiskError, Outlasts};
//! use dendrofs::{CreateOptions, Runner, Volume};
//!
//! # fn main() -> Result<(), dendrofs::Error> {
//! let volume = Volume::in_memory(32 << 20, &CreateOptions::lists())?;
//! let runner = Runner::start(&volume)?;
//! let mut unit = Aru::new(volume.main());
//! unit.put_record(Volume::ROOT, 0, *b"a record");
//! let commit = volume.disk().commit(unit)?;
//!
//! let (done, is_done) = channel();
//! volume.disk().when_durable(commit, Box::new(move |outcome| drop(done.send(outcome))));
//! // The thread does something else meanwhile.
//! is_done.recv().expect("it is called once")?;
//!
//! volume.disk().flush_for(Outlasts::Process, commit)?;
//! let of_medium = volume.disk().flush_for(Outlasts::Medium, commit);
//! assert_eq!(of_medium, Err(DiskError::OneCopy));
//! # runner.stop();
//! # volume.close()
//! # }
//! ```
//!
//! # Several devices
//! [`Volume::open`] opens a volume that is mirrored on several devices, or spread over them, by any
//! of these. The others are found where they were last, or where [`OpenOptions::device`] says.
//! A mirrored volume of which a device is lost is opened with [`OpenOptions::degraded`]. A runner
//! copies what it lacks to a device that is there again.
//!
//! # What is stable
//! The items of this crate's root: before version 1.0 they change only where the version's second
//! number does. [`disk`] is the interface of the layer below: its traits may gain methods, and
//! [`disk::Op`], [`disk::Condition`] and [`FsError`] variants, in any version. A `match` on one of
//! them has a `_` arm. Volumes are those of the command `dendro`: each can open what the other has
//! made, one at a time. The format on the device is versioned by itself, and old volumes go on
//! being readable.
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
//! | `opening` | opening the disk of a volume on its devices |
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
mod opening;
mod options;
mod runner;
mod streams;
mod volume;
mod walk;

pub use dendro_base::ClientKind;
pub use dendro_device::Error as DeviceError;
pub use dendro_fs::FsError;
pub use error::{Error, Result};
pub use file::File;
pub use files::Files;
pub use hints::given_hints;
pub use metadata::{Entry, FileType, Metadata};
pub use options::{Compression, CreateOptions, OpenOptions};
pub use runner::Runner;
pub use volume::{Client, Volume};

/// Lists, units and versions: the interface of the logical disk (de Jonge, Kaashoek and Hsieh,
/// 1993).
pub mod disk {
    pub use dendro_base::{Origin, Timestamp, Uuid};
    pub use dendro_disk::{
        Aru, Branch, CHANGE_BYTES, Chore, ChoreStep, Client, ClientKind, CommitSeq, Completion,
        Condition, Error, ExpectedRelease, GROUP_PAGES, Ledger, Lid, ListCompression, ListHints,
        Locality, LogicalDisk, MAX_NAME_LEN_BYTES, MAX_PAGE_COUNT, MAX_RECORD_LEN_BYTES,
        MAX_TASKS_PUT_OFF, MAX_UNIT_GROUPS, Op, Outlasts, PAGE_SIZE, PageRange, Quota, Record,
        Reservation, Result, ScanPlace, ScanPoint, Scanned, Snapshot, Space, VersionTable,
        VersionUsage, Versions, View,
    };
}
