//! Space: how much there is, and where ENOSPC and EDQUOT come from.
//!
//! - The disk checks the worst case of each atomic recovery unit before it commits the unit. If it
//!   does not fit, the commit fails with `NoSpace`, and nothing has changed. So the file system
//!   needs no reservations of its own.
//!   The same goes for the quota of the client that the version belongs to, with `OverQuota`.
//! - A unit that frees space, or takes no more than before, says so ([`reclaiming`], or
//!   `set_reclaims` of the unit). The disk commits it on a full volume, too.
//! - An operation of several units first checks that all of it fits ([`check_fits`]).
//! - Access times that do not fit stay in memory ([`FsState::write_back_atime`]).
//! - [`FsError::Full`](crate::FsError::Full) is ENOSPC for limits other than the disk's space.

use dendro_disk::{Aru, PAGE_SIZE};

use crate::error::Result;
use crate::state::FsState;
use crate::types::{MAX_NAME_LEN_BYTES, StatFs};

/// The least space that a small file takes, to estimate how many more files there can be.
const SMALL_FILE_LEN: u64 = 512;

/// How many bytes of data take one byte of the map, in a long range of one file.
const DATA_PER_MAP_BYTE: u64 = 256;

/// See [`crate::FileSystem::statfs`].
pub(crate) fn statfs(fs: &FsState) -> StatFs {
    let space = fs.disk().space_of(fs.view());
    let used = space.live_bytes.saturating_add(space.reserved_bytes);
    let free = space.capacity_bytes.saturating_sub(used);
    StatFs {
        block_size: PAGE_SIZE as u32,
        blocks: space.capacity_bytes / PAGE_SIZE as u64,
        blocks_free: free / PAGE_SIZE as u64,
        blocks_available: space.available_bytes.min(free) / PAGE_SIZE as u64,
        files: space.capacity_bytes / SMALL_FILE_LEN,
        files_free: space.available_bytes.min(free) / SMALL_FILE_LEN,
        name_max: MAX_NAME_LEN_BYTES as u32,
    }
}

/// Fails if `data_bytes` of new data in one file do not fit, before any of it is written. The disk
/// does the check, since it can first free space of files that were deleted a moment ago.
pub(crate) fn check_fits(fs: &FsState, data_bytes: u64) -> Result<()> {
    let map_bytes = data_bytes / DATA_PER_MAP_BYTE;
    if fs.disk().quota(fs.view()).is_some() {
        drop(fs.disk().reserve_in(fs.view(), data_bytes)?);
    }
    Ok(fs.disk().check_free(data_bytes.saturating_add(map_bytes))?)
}

/// A new unit that frees space, and so is committed on a full volume, too.
pub(crate) fn reclaiming<'a>(fs: &FsState) -> Aru<'a> {
    let mut aru = fs.aru();
    aru.set_reclaims();
    aru
}
