//! Opening files.

use crate::attributes;
use crate::error::{FsError, Result};
use crate::orphans;
use crate::state::FsState;
use crate::types::{Caller, FileKind, Ino, OpenOptions, SetAttr};

/// See [`crate::FileSystem::open`].
pub(crate) fn open(fs: &FsState, ino: Ino, options: OpenOptions) -> Result<()> {
    let node = fs.node(ino);
    {
        let inode = fs.read(&node)?;
        if options.write || options.truncate {
            fs.check_writable()?;
            inode.check_changeable()?;
            if inode.kind == FileKind::Directory {
                return Err(FsError::IsDirectory);
            }
        }
        fs.references().add_open(ino);
    }
    if options.truncate {
        let changes =
            SetAttr { size_bytes: Some(0), kill_priv: options.kill_priv, ..SetAttr::default() };
        if let Err(error) = attributes::set(fs, &Caller::default(), ino, &changes) {
            orphans::release(fs, ino);
            return Err(error);
        }
    }
    Ok(())
}
