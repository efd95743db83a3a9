//! Changes beside clients that have devices open.

use dendro_disk::{CommitSeq, ListCompression, Snapshot, VersionTable, View};

use crate::devices::Devices;
use crate::error::{Error, Result};
use crate::manage::{self, Listed, compression, size_bytes};

impl Devices {
    /// All devices, as [`manage::list`] lists them.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub fn all(&self) -> Result<Vec<Listed>> {
        manage::list(self.disk())
    }

    /// Makes a device, which is a client of its own. Its pages are compressed as `compression`
    /// says. It is durable when this returns.
    ///
    /// # Errors
    /// [`Error::BadSize`]; [`Error::Disk`], where the name is taken.
    pub fn create(
        &self,
        name: &str,
        size_bytes: u64,
        compression: ListCompression,
    ) -> Result<Listed> {
        let disk = &**self.disk();
        let view = manage::create_client(disk, name, size_bytes, compression)?;
        disk.flush(CommitSeq::LATEST)?;
        Ok(Listed { view, name: name.to_owned(), size_bytes, compression })
    }

    /// Gives a device another size, as [`manage::resize`] does. If clients have it open, it can
    /// become longer alone: they learn of that when they open it again. The size is durable when
    /// this returns.
    ///
    /// # Errors
    /// [`Error::WouldShrink`] without `may_shrink`, [`Error::CannotShrink`], [`Error::NotFound`],
    /// and those of [`manage::resize`].
    pub fn resize(&self, name: &str, new_size_bytes: u64, may_shrink: bool) -> Result<Listed> {
        let _changing = self.changing();
        let device = self.named(name)?;
        if new_size_bytes < device.size_bytes {
            let size_bytes = device.size_bytes;
            match (may_shrink, self.open_count(device.view)) {
                (false, _) => return Err(Error::WouldShrink(size_bytes)),
                (true, 0) => {}
                (true, count) => return Err(Error::CannotShrink { size_bytes, count }),
            }
        }
        let opened = self.opened(device.view);
        let disk = &**self.disk();
        manage::resize(disk, device.view, new_size_bytes)?;
        // Nobody writes behind the former end before all there is zeros.
        opened.iter().for_each(|open| open.note_size(new_size_bytes));
        disk.flush(CommitSeq::LATEST)?;
        Ok(Listed { size_bytes: new_size_bytes, ..device })
    }

    /// Deletes a device, and `with_snapshots` those of its snapshots that no other device has in
    /// its past. Returns what was deleted, which is durable.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::MainBranch`], [`Error::HasSnapshots`], [`Error::Held`],
    /// [`Error::Connected`]; then nothing was deleted. [`Error::Disk`].
    pub fn delete(&self, name: &str, with_snapshots: bool) -> Result<Vec<Listed>> {
        let _changing = self.changing();
        let device = self.named(name)?;
        let versions = self.disk().versions();
        if device.view == versions.main_head() {
            return Err(Error::MainBranch);
        }
        let snapshots = own_snapshots(&versions, device.view);
        if !snapshots.is_empty() && !with_snapshots {
            let titles: Vec<_> = snapshots.iter().map(|of| of.title()).collect();
            return Err(Error::HasSnapshots(titles.join(" ")));
        }
        if let Some(held) = snapshots.iter().find(|snapshot| snapshot.is_held) {
            return Err(Error::Held(held.title()));
        }
        let disk = &**self.disk();
        let mut deleted = Vec::new();
        for snapshot in snapshots {
            let view = snapshot.view();
            let size_bytes = size_bytes(disk, view).unwrap_or(device.size_bytes);
            let name = name.to_owned() + &snapshot.title();
            let compression = compression(disk, view).unwrap_or(device.compression);
            deleted.push(Listed { view, name, size_bytes, compression });
        }
        deleted.push(device);
        for Listed { view, name, .. } in &deleted {
            match self.open_count(*view) {
                0 => {}
                count => return Err(Error::Connected { name: name.clone(), count }),
            }
        }
        for one in &deleted {
            disk.delete(one.view)?;
        }
        disk.flush(CommitSeq::LATEST)?;
        Ok(deleted)
    }

    /// The head of a device, and its size.
    fn named(&self, name: &str) -> Result<Listed> {
        let disk = &**self.disk();
        let head = disk.versions().branch_named(name).ok_or(Error::NotFound)?.head();
        let size_bytes = size_bytes(disk, head).map_err(|error| error.naming(name))?;
        let compression = compression(disk, head)?;
        Ok(Listed { view: head, name: name.to_owned(), size_bytes, compression })
    }
}

/// The snapshots in the past of `head` that are in the past of no other head.
fn own_snapshots(versions: &VersionTable, head: View) -> Vec<&Snapshot> {
    let heads = versions.branches().map(|branch| branch.head());
    let others: Vec<_> =
        heads.filter(|other| *other != head).flat_map(|other| versions.past(other)).collect();
    let past = versions.past(head).into_iter();
    past.filter(|snapshot| !others.contains(snapshot)).collect()
}
