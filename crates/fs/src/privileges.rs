//! Privileges that a file gives to processes that run it: the set-id bits and capabilities. Changes
//! by users who may not give such privileges remove them.

use crate::error::Result;
use crate::layout::inode::{Inode, InodeState, S_ISGID, S_ISUID, S_IXGRP};
use crate::layout::record_edits::RecordEdits;
use crate::layout::xattr_records::CAPABILITY;
use crate::state::FsState;
use crate::types::Ino;
use crate::xattr;

/// Which privileges a write takes from its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privileges {
    /// None.
    None,
    /// Its capabilities.
    Capabilities,
    /// Its capabilities and set-id bits.
    All,
}

impl Privileges {
    /// Those that a change of data takes, which clears the set-id bits too with `kill_priv`.
    pub(crate) const fn of_change(kill_priv: bool) -> Self {
        if kill_priv { Self::All } else { Self::Capabilities }
    }
}

/// Removes the capabilities of a file that is being changed and, with `set_ids`, clears its set-id
/// bits. The set-group-id bit of a file that its group cannot execute has another meaning, and
/// stays.
pub(crate) fn drop_privileges(
    fs: &FsState,
    edits: &mut RecordEdits<'_>,
    ino: Ino,
    inode: &mut Inode,
    set_ids: bool,
) -> Result<()> {
    if set_ids {
        inode.perm &= !S_ISUID;
        if inode.perm & S_IXGRP != 0 {
            inode.perm &= !S_ISGID;
        }
    }
    if inode.state.contains(InodeState::CAPABILITY) {
        xattr::put(fs, edits, ino, inode, CAPABILITY, None)?;
    }
    Ok(())
}

/// Whether the file gives any privileges to processes that run it.
pub(crate) const fn has_privileges(inode: &Inode) -> bool {
    inode.perm & (S_ISUID | S_ISGID) != 0 || inode.state.contains(InodeState::CAPABILITY)
}
