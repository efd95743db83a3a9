//! fsync and sync. The disk's order is a promise: whatever came before is durable, too.

use dendro_disk::CommitSeq;

use crate::error::{FsError, Result};
use crate::state::FsState;
use crate::types::Ino;

/// See [`crate::FileSystem::sync_all`].
pub(crate) fn sync_all(fs: &FsState) -> Result<()> {
    let sync = || {
        fs.write_back_all_atimes()?;
        Ok(fs.disk().flush(CommitSeq::LATEST)?)
    };
    sync().map_err(FsError::when_syncing)
}

/// See [`crate::FileSystem::fsync`].
pub(crate) fn fsync(fs: &FsState, ino: Ino, datasync: bool) -> Result<()> {
    let node = fs.node(ino);
    let sync = || {
        if !datasync && node.pending_atime().is_some() {
            fs.write_back_atime(&mut fs.write(&node)?)?;
        }
        // Even if this file did not change, what came before must be durable.
        Ok(fs.disk().flush(CommitSeq::LATEST)?)
    };
    sync().map_err(FsError::when_syncing)
}
