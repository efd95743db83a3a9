//! Files without a name: those that are still in use, and those that a crash left.
//!
//! A file that loses its last name while it is in use becomes an *orphan*. The unit that removes
//! the name enters it on the orphan list; the unit that deletes the file removes it from the list.
//! So after a crash between the two the next mount deletes the file. A file that is not in use is
//! deleted together with its last name, in one unit however large it is: the disk frees what was in
//! it.

use dendro_base::sync::Arc;
use dendro_disk::Aru;

use crate::error::{FsError, Result};
use crate::layout::format::{
    HEAD_INDEX, ORPHAN_LIST, ORPHAN_PUNCH, ORPHAN_REMOVE, ORPHAN_TRUNCATE, OrphanV1,
    RECORD_VERSION, split_head,
};
use crate::layout::inode::Inode;
use crate::layout::orphan_list::{enter, leave};
use crate::no_space;
use crate::state::{FsState, Node, WriteGuard};
use crate::types::{FileKind, FileTime, Ino};

/// How many orphans a walk reads at a time.
const BATCH_LEN: usize = 64;

/// What happens to a file that loses a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has other names.
    Linked,
    /// It has no name and is in use: it is on the orphan list now.
    Orphaned,
    /// It has no name and is not in use: the unit deletes it.
    Deleted,
}

/// Takes back `count` lookups of a file. See [`crate::FileSystem::forget`].
pub(crate) fn forget(fs: &FsState, ino: Ino, count: u64) {
    if let Some(removed) = fs.references().drop_lookups(ino, count) {
        removed.drop_last_state();
    }
    delete_if_unused(fs, ino);
}

/// Takes back one open of a file. See [`crate::FileSystem::release`].
pub(crate) fn release(fs: &FsState, ino: Ino) {
    if let Some(removed) = fs.references().drop_open(ino) {
        removed.drop_last_state();
    }
    delete_if_unused(fs, ino);
}

/// Subtracts a name of `child` within `aru`. After the commit, [`store_fate`] must follow and then,
/// without any lock, [`finish_fate`].
pub(crate) fn drop_name(
    fs: &FsState,
    aru: &mut Aru<'_>,
    ino: Ino,
    child: &mut Inode,
    now: FileTime,
) -> Fate {
    aru.set_reclaims();
    child.ctime = now;
    let is_directory = child.kind == FileKind::Directory;
    child.nlink = if is_directory { 0 } else { child.nlink.saturating_sub(1) };
    let fate = if child.nlink > 0 {
        Fate::Linked
    } else if !is_directory && fs.references().is_in_use(ino) {
        Fate::Orphaned
    } else {
        Fate::Deleted
    };
    match fate {
        Fate::Deleted => {
            aru.delete_list(ino.lid());
        }
        Fate::Linked => {
            aru.put_record(ino.lid(), HEAD_INDEX, child.encode());
        }
        Fate::Orphaned => {
            aru.put_record(ino.lid(), HEAD_INDEX, child.encode());
            enter(aru, ino, ORPHAN_REMOVE);
        }
    }
    if fate == Fate::Deleted && child.freeing_orphan().is_some() {
        leave(aru, ino);
    }
    fate
}

/// Stores the committed state of the file in memory.
pub(crate) fn store_fate(fs: &FsState, guard: &mut WriteGuard<'_>, child: Inode, fate: Fate) {
    match fate {
        Fate::Linked => guard.set(child),
        Fate::Orphaned => {
            guard.set(child);
            fs.orphans().insert_unlinked(guard.ino(), fs.disk().expect_release());
        }
        Fate::Deleted => guard.set_removed(child),
    }
}

/// Finishes the removal of a name.
pub(crate) fn finish_fate(fs: &FsState, node: &Arc<Node>, fate: Fate) {
    match fate {
        Fate::Linked => (),
        // Its last user may have released it before it was in the set of orphans.
        Fate::Orphaned => delete_if_unused(fs, node.ino()),
        Fate::Deleted => keep_last_state(fs, node),
    }
}

/// Keeps the last state of a removed file for as long as it is looked up or open.
fn keep_last_state(fs: &FsState, node: &Arc<Node>) {
    if !fs.references().keep_last_state(node) {
        node.drop_last_state();
    }
}

/// Deletes an orphan if it is not in use any more.
fn delete_if_unused(fs: &FsState, ino: Ino) {
    if !fs.orphans().contains(ino) {
        return;
    }
    let node = fs.node(ino);
    let mut guard = match fs.write(&node) {
        Ok(guard) => guard,
        Err(FsError::Stale) => return,
        Err(error) => {
            log::warn!("i-node {ino}: a removed file's space was not freed: {error}");
            return;
        }
    };
    if guard.inode().nlink > 0 || fs.references().is_in_use(ino) {
        return;
    }
    let inode = guard.edit();
    guard.set_removed(inode);
    let _expected = fs.orphans().remove(ino);
    // Before the lock is released: whoever closes the file system meanwhile takes a file for
    // deleted that it finds removed, and then shuts the disk down.
    let deleted = delete_orphan(fs, ino);
    drop(guard);
    match deleted {
        Ok(()) => keep_last_state(fs, &node),
        // It stays on the list; the next mount tries again.
        Err(error) => {
            log::warn!("i-node {ino}: a removed file's space was not all freed: {error}");
        }
    }
}

/// Deletes an orphan that nothing refers to.
fn delete_orphan(fs: &FsState, ino: Ino) -> Result<()> {
    let mut aru = no_space::reclaiming(fs);
    aru.delete_list(ino.lid());
    leave(&mut aru, ino);
    fs.disk().commit(aru)?;
    Ok(())
}

/// Deletes all orphans, and calls `free` for the files on the orphan list of which something is
/// still to be freed.
pub(crate) fn finish_all(
    fs: &FsState,
    free: fn(&FsState, &mut WriteGuard<'_>) -> Result<()>,
) -> Result<()> {
    let mut from = 0;
    loop {
        let batch = fs.disk().records(fs.view(), ORPHAN_LIST, from, BATCH_LEN)?;
        let Some(&(last, _)) = batch.last() else { return Ok(()) };
        for (index, record) in &batch {
            if let Err(error) = finish(fs, Ino(*index), record, free) {
                // One file that cannot be freed must not prevent the mount.
                log::warn!("i-node {index}: an orphan was not freed: {error}");
            }
        }
        let Some(next) = last.checked_add(1) else { return Ok(()) };
        from = next;
    }
}

fn finish(
    fs: &FsState,
    ino: Ino,
    record: &[u8],
    free: fn(&FsState, &mut WriteGuard<'_>) -> Result<()>,
) -> Result<()> {
    let (orphan, _) = split_head::<OrphanV1>(record, "an orphan")?;
    let node = fs.node(ino);
    let mut guard = match fs.write(&node) {
        Ok(guard) => guard,
        Err(FsError::Stale) => {
            let mut aru = no_space::reclaiming(fs);
            leave(&mut aru, ino);
            fs.disk().commit(aru)?;
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    match (orphan.version, orphan.kind) {
        (RECORD_VERSION, ORPHAN_TRUNCATE | ORPHAN_PUNCH) => free(fs, &mut guard),
        (RECORD_VERSION, ORPHAN_REMOVE) if guard.inode().nlink == 0 => {
            let inode = guard.edit();
            guard.set_removed(inode);
            drop(guard);
            delete_orphan(fs, ino)?;
            node.drop_last_state();
            Ok(())
        }
        _ => Err(FsError::Corrupted(format!("i-node {ino} is not the orphan it is listed as"))),
    }
}
