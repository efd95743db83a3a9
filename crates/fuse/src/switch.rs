//! Showing another file system in a mount that stays.

use std::sync::Arc;

use dendro_fs::versions::Stale;
use dendro_fs::{FileSystem, Ino};
use dendro_fuse_transport::Notifier;

use crate::live::Live;

/// Exchanges the file system behind a mount.
#[derive(Clone, Debug)]
pub struct Switch {
    live: Arc<Live>,
    notifier: Notifier,
}

impl Switch {
    pub(crate) const fn new(live: Arc<Live>, notifier: Notifier) -> Self {
        Self { live, notifier }
    }

    /// The file system that the mount shows now.
    #[must_use]
    pub fn fs(&self) -> Arc<FileSystem> {
        self.live.get()
    }

    /// Whether the mount is there: false as soon as the kernel has unmounted it, even if its requests
    /// are still being served. Waits for nothing.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        self.notifier.is_connected()
    }

    /// Tells the kernel that the directory `parent` has `name` now, which was not put there through the
    /// mount: it may remember that there was none.
    pub fn tell_new_name(&self, parent: Ino, name: &[u8]) {
        // Where it is being unmounted, nobody will look any more.
        let _ = self.notifier.invalidate_entry(parent.0, name);
        for changed in [parent, Ino::ROOT] {
            let _ = self.notifier.invalidate_data(changed.0, 0, None);
        }
    }

    /// Calls `change` with the file system that the mount shows, while no request is served. If it
    /// answers another view of the same disk, and in what they differ, the mount shows that from then on.
    /// Files keep their i-node numbers, so directories that processes work in stay what they are, and
    /// what is open goes on as another's change of the file would have it.
    ///
    /// `change` must not wait for anything that itself may wait for the mount. When this returns, the
    /// kernel believes nothing any more that is not so.
    ///
    /// # Errors
    /// Those of `change`, after which all is as it was.
    pub fn exchange<T, E>(
        &self,
        change: impl FnOnce(&FileSystem) -> Result<(Option<(Arc<FileSystem>, Vec<Stale>)>, T), E>,
    ) -> Result<T, E> {
        let (stale, rest) = self.live.exchange(|old| {
            let (new, rest) = change(old)?;
            let Some((new, stale)) = new else { return Ok((None, (Vec::new(), rest))) };
            new.take_lookups(old);
            Ok((Some(new), (stale, rest)))
        })?;
        // Not before requests are served again: the kernel may hold, for one that waits, the very
        // lock that this takes.
        // What is gone first: with a directory above it that is gone too, the kernel would lose the way to it.
        let is_gone = |stale: &&Stale| matches!(stale, Stale::Entry { gone: Some(_), .. });
        let (gone, others): (Vec<_>, Vec<_>) = stale.iter().partition(is_gone);
        for stale in gone.into_iter().chain(others) {
            let told = match stale {
                Stale::Inode(ino) => self.notifier.invalidate_data(ino.0, 0, None),
                Stale::Entry { parent, name, gone: None } => {
                    self.notifier.invalidate_entry(parent.0, name)
                }
                // Who watches it is told. Not of directories: one that comes back would stay dead for as
                // long as somebody is in it.
                Stale::Entry { parent, name, gone: Some(gone) } => self
                    .notifier
                    .delete(parent.0, gone.0, name)
                    .or_else(|_| self.notifier.invalidate_entry(parent.0, name)),
            };
            if told.is_err() {
                // It is being unmounted, and nobody will look any more.
                break;
            }
        }
        Ok(rest)
    }
}
