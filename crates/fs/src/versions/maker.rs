//! Who made a version, of those that a user who is not root has made and may take away again.
//!
//! It stands in what the version itself sees, so it goes with it, and no rollback takes it away: in a
//! branch's head, and in the head that a snapshot is made of, just before that. What goes on from a version
//! has the record too; but that names the version that it is about.

use dendro_disk::{Aru, LogicalDisk, View};
use zerocopy::IntoBytes;

use crate::error::{FsError, Result};
use crate::format::{
    BRANCH_MAKER_INDEX, MakerV1, RECORD_VERSION, SNAPSHOT_MAKER_INDEX, VOLUME_LIST, split_head,
};

/// Where it stands: apart, since snapshots of a branch are made by others, too.
const fn index(of: View) -> u64 {
    match of.epoch {
        None => BRANCH_MAKER_INDEX,
        Some(_) => SNAPSHOT_MAKER_INDEX,
    }
}

/// The user who made the version `of`; `None` where nobody is known to have, who is not root.
///
/// # Errors
/// [`FsError::Corrupted`]; what the disk says.
pub fn maker(disk: &dyn LogicalDisk, of: View) -> Result<Option<u32>> {
    let Some(record) = disk.record(of, VOLUME_LIST, index(of))? else { return Ok(None) };
    let (told, _) = split_head::<MakerV1>(&record, "the maker of a version")?;
    if told.version != RECORD_VERSION {
        return Err(FsError::Corrupted("the maker of a version is told in an unknown way".into()));
    }
    let is_about_it = (told.branch.get(), told.epoch.get()) == (of.branch, of.epoch.unwrap_or(0));
    Ok(is_about_it.then(|| told.uid.get()))
}

/// Notes that the user `uid` makes, or has made, the version `of`: the head that is written to, or the
/// snapshot that is made of it next.
///
/// # Errors
/// What the disk says.
pub fn note_maker(disk: &dyn LogicalDisk, of: View, uid: u32) -> Result<()> {
    let told = MakerV1 {
        version: RECORD_VERSION,
        reserved: [0; 3],
        uid: uid.into(),
        branch: of.branch.into(),
        reserved1: 0.into(),
        epoch: of.epoch.unwrap_or(0).into(),
    };
    let mut aru = Aru::new(View { branch: of.branch, epoch: None });
    aru.put_record(VOLUME_LIST, index(of), told.as_bytes().to_vec());
    disk.commit(aru)?;
    Ok(())
}

/// Forgets who made the branch with this head, if anybody did.
///
/// # Errors
/// What the disk says.
pub fn forget_maker(disk: &dyn LogicalDisk, head: View) -> Result<()> {
    if disk.record(head, VOLUME_LIST, BRANCH_MAKER_INDEX)?.is_some() {
        let mut aru = Aru::new(head);
        aru.delete_record(VOLUME_LIST, BRANCH_MAKER_INDEX);
        disk.commit(aru)?;
    }
    Ok(())
}
