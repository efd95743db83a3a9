//! Which user created a version. Versions that a user other than root created, that user may
//! delete.
//!
//! The record is part of the version itself: it is written to the new branch's head, and before a
//! snapshot to the head of which the snapshot is taken. So it is deleted together with the version,
//! and a rollback does not remove it. Descendants of the version inherit the record. So the record
//! names the version that it belongs to.

use dendro_disk::{Aru, LogicalDisk, View};
use zerocopy::IntoBytes;

use crate::error::{FsError, Result};
use crate::layout::format::{
    BRANCH_MAKER_INDEX, MakerV1, RECORD_VERSION, SNAPSHOT_MAKER_INDEX, VOLUME_LIST, split_head,
};
use crate::layout::volume::check_kind;

/// The index of the record. Branches and snapshots have different ones, since other users may
/// create snapshots of a branch.
const fn index(of: View) -> u64 {
    match of.epoch {
        None => BRANCH_MAKER_INDEX,
        Some(_) => SNAPSHOT_MAKER_INDEX,
    }
}

/// The user who created the version `of`; `None` if that was root, or is not known.
///
/// # Errors
/// [`FsError::Corrupted`]; errors of the disk.
pub fn maker(disk: &dyn LogicalDisk, of: View) -> Result<Option<u32>> {
    if check_kind(disk, of).is_err() {
        return Ok(None);
    }
    let Some(record) = disk.record(of, VOLUME_LIST, index(of))? else { return Ok(None) };
    let (maker, _) = split_head::<MakerV1>(&record, "the maker of a version")?;
    if maker.version != RECORD_VERSION {
        return Err(FsError::Corrupted(
            "the maker of a version has an unknown record version".into(),
        ));
    }
    let belongs_to_it =
        (maker.branch.get(), maker.epoch.get()) == (of.branch, of.epoch.unwrap_or(0));
    Ok(belongs_to_it.then(|| maker.uid.get()))
}

/// Records that the user `uid` created the version `of`: a branch's head, or the next snapshot of
/// it.
///
/// # Errors
/// [`FsError::NoFiles`]; errors of the disk.
pub fn note_maker(disk: &dyn LogicalDisk, of: View, uid: u32) -> Result<()> {
    check_kind(disk, of)?;
    let maker = MakerV1 {
        version: RECORD_VERSION,
        reserved: [0; 3],
        uid: uid.into(),
        branch: of.branch.into(),
        reserved1: 0.into(),
        epoch: of.epoch.unwrap_or(0).into(),
    };
    let mut aru = Aru::new(View { branch: of.branch, epoch: None });
    aru.put_record(VOLUME_LIST, index(of), maker.as_bytes().to_vec());
    disk.commit(aru)?;
    Ok(())
}

/// Removes the record of who created the branch with this head, if there is one.
///
/// # Errors
/// Errors of the disk.
pub fn forget_maker(disk: &dyn LogicalDisk, head: View) -> Result<()> {
    if check_kind(disk, head).is_ok()
        && disk.record(head, VOLUME_LIST, BRANCH_MAKER_INDEX)?.is_some()
    {
        let mut aru = Aru::new(head);
        aru.delete_record(VOLUME_LIST, BRANCH_MAKER_INDEX);
        disk.commit(aru)?;
    }
    Ok(())
}
