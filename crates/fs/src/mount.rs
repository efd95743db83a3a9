//! Creating, opening and closing a file system.

use dendro_base::Clock;
use dendro_base::sync::Arc;
use dendro_disk::{
    Aru, Branch, ClientKind, CommitSeq, Lid, ListHints, LogicalDisk, Versions, View, make_client,
};

use crate::data::freeing::{begin_freeing, finish_freeing};
use crate::error::{FsError, Result};
use crate::layout::format::{HEAD_INDEX, LISTS, ORPHAN_LIST, VOLUME_LIST};
use crate::layout::inode::Inode;
use crate::layout::volume;
use crate::state::FsState;
use crate::types::{FileKind, FileTime, FormatOptions, Ino, MAX_NAME_LEN_BYTES, Options};
use crate::{durability, orphans, staged};

/// See [`crate::FileSystem::create_on`].
pub(crate) fn create_on(
    disk: &dyn LogicalDisk,
    options: &FormatOptions,
    clock: &dyn Clock,
) -> Result<()> {
    let mut aru = new_lists(disk, &options.label, FIRST_LISTS)?;
    describe_files(&mut aru, options, clock);
    disk.commit(aru)?;
    Ok(disk.flush(CommitSeq::LATEST)?)
}

/// The lists that a new file system has.
const FIRST_LISTS: [Lid; 3] = [Ino::ROOT.lid(), VOLUME_LIST, ORPHAN_LIST];

/// Puts a root directory and the description into [`FIRST_LISTS`].
fn describe_files(aru: &mut Aru<'_>, options: &FormatOptions, clock: &dyn Clock) {
    let now = FileTime::from(clock.now());
    let mut root = Inode::new(FileKind::Directory, options.mode, now);
    (root.uid, root.gid, root.nlink) = (options.uid, options.gid, 2);
    root.parent = Ino::ROOT.0;
    aru.put_record(Ino::ROOT.lid(), HEAD_INDEX, root.encode());
    let description = volume::encode(&options.label, options.hash_key, now, 0);
    aru.put_record(VOLUME_LIST, HEAD_INDEX, description);
}

/// Makes a client called `name` on a disk that has others: one of files has an empty file system,
/// as `files` say, and others the list [`Lid::FIRST`]. It gets a quota, if one is given. Nothing is
/// flushed.
///
/// # Errors
/// [`Invalid`](FsError::Invalid) for an unknown kind; [`NameTooLong`](FsError::NameTooLong) for the
/// label; errors of the disk, among them that the name is taken, or cannot be one.
pub fn create_client(
    disk: &dyn Versions,
    name: &str,
    kind: ClientKind,
    quota_bytes: Option<u64>,
    files: &FormatOptions,
    clock: &dyn Clock,
) -> Result<Branch> {
    if let ClientKind::Unknown(_) = kind {
        return Err(FsError::Invalid("clients of this kind cannot be made"));
    }
    make_client(disk, name, kind, |disk, head| {
        if quota_bytes.is_some() {
            disk.set_quota(head.branch, quota_bytes)?;
        }
        let mut aru = Aru::new(head);
        if kind == ClientKind::Files {
            check_label(&files.label)?;
            for list in FIRST_LISTS {
                aru.create_list(list, ListHints::default());
            }
            describe_files(&mut aru, files, clock);
        } else {
            aru.create_list(Lid::FIRST, ListHints::default());
        }
        Ok(disk.commit(aru).map(drop)?)
    })
}

fn check_label(label: &str) -> Result<()> {
    if label.len() > MAX_NAME_LEN_BYTES { Err(FsError::NameTooLong) } else { Ok(()) }
}

/// Describes an empty disk as one that holds lists of a program, and no files. The list
/// [`Lid::FIRST`] is made with it, as what the program finds first.
///
/// Commands that work on files refuse such a volume, and a check finds nothing wrong with it but
/// what is wrong with its lists. Nothing is flushed.
///
/// # Errors
/// [`Exists`](FsError::Exists) if the disk has lists;
/// [`NameTooLong`](FsError::NameTooLong) for the label; errors of the disk.
pub fn describe_lists(disk: &dyn LogicalDisk, label: &str, clock: &dyn Clock) -> Result<()> {
    let mut aru = new_lists(disk, label, [Lid::FIRST, VOLUME_LIST])?;
    let description = volume::encode(label, [0; 16], clock.now().into(), LISTS);
    aru.put_record(VOLUME_LIST, HEAD_INDEX, description);
    disk.commit(aru)?;
    Ok(())
}

/// A unit that makes the first lists of an empty disk, whose label is checked.
fn new_lists<'a, const N: usize>(
    disk: &dyn LogicalDisk,
    label: &str,
    lists: [Lid; N],
) -> Result<Aru<'a>> {
    check_label(label)?;
    if !disk.lists(View::HEAD, Lid(0), 1)?.is_empty() {
        return Err(FsError::Exists);
    }
    let mut aru = Aru::new(View::HEAD);
    for list in lists {
        if disk.allocate_list()? != list {
            return Err(FsError::Exists);
        }
        aru.create_list(list, ListHints::default());
    }
    Ok(aru)
}

/// See [`crate::FileSystem::mount`]. Of names' hashes only those bits count that `hash_mask` has.
pub(crate) fn mount(
    disk: Arc<dyn LogicalDisk>,
    options: &Options,
    clock: Arc<dyn Clock>,
    hash_mask: u64,
) -> Result<Arc<FsState>> {
    let fs = FsState::open(disk, options, clock, hash_mask)?;
    check_root(&fs)?;
    if !fs.is_mounted_read_only() {
        orphans::finish_all(&fs, begin_freeing)?;
        staged::clear_all(&fs);
    }
    Ok(fs)
}

fn check_root(fs: &FsState) -> Result<()> {
    let root = fs.node(Ino::ROOT);
    let checked = match fs.read(&root) {
        Ok(inode) => inode.check_directory(),
        Err(error) => Err(error),
    };
    checked.map_err(|error| match error {
        FsError::Stale | FsError::NotDirectory => {
            FsError::Corrupted("there is no root directory".into())
        }
        other => other,
    })
}

/// Finishes what was to be done when files are closed, or in the background.
fn finish(fs: &FsState) -> Result<()> {
    orphans::finish_all(fs, finish_freeing)?;
    fs.orphans().clear();
    fs.freeing().clear();
    Ok(())
}

/// See [`crate::FileSystem::close`].
pub(crate) fn close(fs: &FsState) -> Result<()> {
    if fs.is_read_only() {
        return Ok(());
    }
    finish(fs)?;
    durability::sync_all(fs)
}

/// See [`crate::FileSystem::shut_down`].
pub(crate) fn shut_down(fs: &FsState) -> Result<()> {
    if !fs.is_read_only() {
        finish(fs)?;
        fs.write_back_all_atimes()?;
    }
    Ok(fs.disk().shut_down()?)
}
