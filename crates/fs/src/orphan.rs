//! Files without a name that something still holds, and files of which too much was cut off to be freed
//! at once.
//!
//! What is to be freed is entered on the orphan list in the unit that makes it so, and taken off
//! in the unit that ends the freeing. So a crash in between loses nothing: the next mount finishes.
//! Removing a file that nothing holds is one unit, however large the file: the disk frees what was in it.

use dendro_base::sync::Arc;
use dendro_disk::{Aru, MAX_PAGE_COUNT, MAX_RECORD_LEN_BYTES};
use zerocopy::IntoBytes;

use crate::error::{FsError, Result};
use crate::filesystem::FileSystem;
use crate::format::{
    HEAD_INDEX, ORPHAN_LIST, ORPHAN_REMOVE, ORPHAN_TRUNCATE, OrphanV1, RECORD_VERSION, split_head,
};
use crate::inode::Inode;
use crate::node::{Node, WriteGuard};
use crate::types::{FileKind, FileTime, Ino};

/// The most pages that one unit frees: 64 MiB.
pub(crate) const MAX_PAGES_FREED: u64 = 16_384;

/// How many orphans a walk takes at a time.
const BATCH_LEN: usize = 64;

const _: () = assert!(size_of::<OrphanV1>() <= MAX_RECORD_LEN_BYTES);

/// What becomes of a file that lost a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has others.
    Lives,
    /// It is on the orphan list until nothing holds it.
    Held,
    /// The unit deletes it.
    Deleted,
}

/// Enters `ino` on the orphan list.
pub(crate) fn enter(aru: &mut Aru<'_>, ino: Ino, kind: u8) {
    let orphan = OrphanV1 { version: RECORD_VERSION, kind, reserved: [0; 6] };
    aru.put_record(ORPHAN_LIST, ino.0, orphan.as_bytes().to_vec());
}

/// Takes `ino` off the orphan list.
pub(crate) fn leave(aru: &mut Aru<'_>, ino: Ino) {
    aru.delete_record(ORPHAN_LIST, ino.0);
}

impl FileSystem {
    /// Takes a name of `child` away within `aru`. After the commit, [`Self::enter_fate`] and, with
    /// no lock held, [`Self::finish_fate`] must follow.
    pub(crate) fn drop_name(
        &self,
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
            Fate::Lives
        } else if !is_directory && self.refs.is_held(ino) {
            Fate::Held
        } else {
            Fate::Deleted
        };
        match fate {
            Fate::Deleted => {
                aru.delete_list(ino.lid());
            }
            Fate::Lives => {
                aru.put_record(ino.lid(), HEAD_INDEX, child.encode());
            }
            Fate::Held => {
                aru.put_record(ino.lid(), HEAD_INDEX, child.encode());
                enter(aru, ino, ORPHAN_REMOVE);
            }
        }
        if fate == Fate::Deleted && child.state.contains(crate::inode::State::TRUNCATING) {
            leave(aru, ino);
        }
        fate
    }

    /// Enters in memory what was committed.
    pub(crate) fn enter_fate(&self, guard: &mut WriteGuard<'_>, child: Inode, fate: Fate) {
        match fate {
            Fate::Lives => guard.set(child),
            Fate::Held => {
                guard.set(child);
                self.orphans.lock().insert(guard.ino(), false);
            }
            Fate::Deleted => guard.set_gone(child),
        }
    }

    /// Lets go of a file that lost its last name.
    pub(crate) fn finish_fate(&self, node: &Arc<Node>, fate: Fate) {
        match fate {
            Fate::Lives => (),
            // Whoever held it may have let go before it was entered as held.
            Fate::Held => self.reap(node.ino()),
            Fate::Deleted => self.remember_gone(node),
        }
    }

    /// Keeps how a removed file was for as long as somebody knows it.
    fn remember_gone(&self, node: &Arc<Node>) {
        if !self.refs.remember(node) {
            node.forget_gone();
        }
    }

    fn remove_gone(&self, node: &Arc<Node>) {
        let ino = node.ino();
        match self.remove_orphan(ino) {
            Ok(()) => self.remember_gone(node),
            // It stays on the list; the next mount tries again.
            Err(error) => {
                log::warn!("i-node {ino}: a removed file's space was not all freed: {error}")
            }
        }
    }

    /// Removes a file on the orphan list that nothing holds any more.
    pub(crate) fn reap(&self, ino: Ino) {
        if !self.orphans.lock().contains_key(&ino) {
            return;
        }
        let node = self.node(ino);
        match node.write(&*self.disk, self.view) {
            Ok(mut guard) => {
                if guard.inode().nlink > 0 || self.refs.is_held(ino) {
                    return;
                }
                let inode = guard.edit();
                guard.set_gone(inode);
                self.orphans.lock().remove(&ino);
            }
            Err(FsError::Stale) => return,
            Err(error) => {
                log::warn!("i-node {ino}: a removed file's space was not freed: {error}");
                return;
            }
        }
        self.remove_gone(&node);
    }

    /// Removes an orphan that nobody can reach.
    fn remove_orphan(&self, ino: Ino) -> Result<()> {
        let mut aru = self.aru();
        aru.set_reclaims().delete_list(ino.lid());
        leave(&mut aru, ino);
        self.disk.commit(aru)?;
        Ok(())
    }

    /// Punches pages from `first_page` on, unit by unit, until one more unit can take the rest;
    /// answers where the rest begins, if there is any.
    pub(crate) fn free_pages(&self, ino: Ino, first_page: u64) -> Result<Option<u64>> {
        let mut from = first_page;
        loop {
            let Some(next) = self.disk.next_data(self.view, ino.lid(), from)? else {
                return Ok(None);
            };
            let end = next.saturating_add(MAX_PAGES_FREED).min(MAX_PAGE_COUNT);
            if end == MAX_PAGE_COUNT || self.disk.next_data(self.view, ino.lid(), end)?.is_none() {
                return Ok(Some(next));
            }
            let mut aru = self.aru();
            aru.set_reclaims().punch_pages(ino.lid(), next, end - next);
            self.disk.commit(aru)?;
            from = end;
        }
    }

    /// Finishes all that is on the orphan list and not held.
    pub(crate) fn finish_orphans(&self) -> Result<()> {
        let mut from = 0;
        loop {
            let batch = self.disk.records(self.view, ORPHAN_LIST, from, BATCH_LEN)?;
            let Some(&(last, _)) = batch.last() else { return Ok(()) };
            for (index, record) in &batch {
                if let Err(error) = self.finish_orphan(Ino(*index), record) {
                    // One file that can't be freed must not keep the others from being mounted.
                    log::warn!("i-node {index}: an orphan was not freed: {error}");
                }
            }
            let Some(next) = last.checked_add(1) else { return Ok(()) };
            from = next;
        }
    }

    fn finish_orphan(&self, ino: Ino, record: &[u8]) -> Result<()> {
        let (orphan, _) = split_head::<OrphanV1>(record, "an orphan")?;
        let node = self.node(ino);
        let mut guard = match node.write(&*self.disk, self.view) {
            Ok(guard) => guard,
            Err(FsError::Stale) => {
                let mut aru = self.aru();
                leave(aru.set_reclaims(), ino);
                self.disk.commit(aru)?;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        match (orphan.version, orphan.kind) {
            (RECORD_VERSION, ORPHAN_TRUNCATE) => self.finish_truncation(&mut guard),
            (RECORD_VERSION, ORPHAN_REMOVE) if guard.inode().nlink == 0 => {
                let inode = guard.edit();
                guard.set_gone(inode);
                drop(guard);
                self.remove_orphan(ino)?;
                node.forget_gone();
                Ok(())
            }
            _ => Err(FsError::Corrupted(format!("i-node {ino} is not the orphan it is listed as"))),
        }
    }
}
