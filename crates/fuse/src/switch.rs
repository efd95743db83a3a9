//! Replacing the file system that a mount shows.

use std::sync::Arc;

use dendro_fs::versions::Stale;
use dendro_fs::{FileSystem, Ino};
use dendro_fuse_transport::Notifier;

use crate::current_fs::CurrentFs;

/// Replaces the file system that a mount shows.
#[derive(Clone, Debug)]
pub struct Switch {
    current: Arc<CurrentFs>,
    notifier: Notifier,
}

impl Switch {
    pub(crate) const fn new(current: Arc<CurrentFs>, notifier: Notifier) -> Self {
        Self { current, notifier }
    }

    /// The file system that the mount shows now.
    #[must_use]
    pub fn fs(&self) -> Arc<FileSystem> {
        self.current.get()
    }

    /// Whether the file system is still mounted: false as soon as the kernel has unmounted it, even
    /// if requests are still being served. It does not wait.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        self.notifier.is_connected()
    }

    /// Notifies the kernel that `name` was added to the directory `parent`, but not through the
    /// mount. The kernel may have cached that it does not exist.
    pub fn notify_new_name(&self, parent: Ino, name: &[u8]) {
        // If this fails, the file system is being unmounted.
        let _ = self.notifier.invalidate_entry(parent.0, name);
        for changed in [parent, Ino::ROOT] {
            let _ = self.notifier.invalidate_data(changed.0, 0, None);
        }
    }

    /// Calls `change` with the file system that the mount shows, while no request is being served.
    /// If it returns another view of the same disk, and in what the two views differ, the mount
    /// shows that view from then on. Files keep their i-node numbers. So the working directories of
    /// processes stay valid, and open files go on as if another process had changed them.
    ///
    /// `change` must not wait for anything that may wait for the mount. When this returns, the
    /// kernel has no outdated cache entries.
    ///
    /// # Errors
    /// Errors of `change`, after which nothing has changed.
    pub fn exchange<T, E>(
        &self,
        change: impl FnOnce(&FileSystem) -> Result<(Option<(Arc<FileSystem>, Vec<Stale>)>, T), E>,
    ) -> Result<T, E> {
        let (stale, rest) = self.current.exchange(|old| {
            let (new, rest) = change(old)?;
            let Some((new, stale)) = new else { return Ok((None, (Vec::new(), rest))) };
            new.take_lookups(old);
            Ok((Some(new), (stale, rest)))
        })?;
        // Only now that requests are served again: the kernel may have a lock for a waiting request
        // that the notification needs. Removed files come first: after the removal of a directory
        // above a file, the kernel could not find that file any more.
        let is_gone = |stale: &&Stale| matches!(stale, Stale::Entry { gone: Some(_), .. });
        let (gone, others): (Vec<_>, Vec<_>) = stale.iter().partition(is_gone);
        for stale in gone.into_iter().chain(others) {
            let notified = match stale {
                Stale::Inode(ino) => self.notifier.invalidate_data(ino.0, 0, None),
                Stale::Entry { parent, name, gone: None } => {
                    self.notifier.invalidate_entry(parent.0, name)
                }
                // Processes that watch the file get an event. Directories are not reported in this
                // way: one that exists again later would stay dead while it is a working directory.
                Stale::Entry { parent, name, gone: Some(gone) } => self
                    .notifier
                    .delete(parent.0, gone.0, name)
                    .or_else(|_| self.notifier.invalidate_entry(parent.0, name)),
            };
            if notified.is_err() {
                // The file system is being unmounted.
                break;
            }
        }
        Ok(rest)
    }
}
