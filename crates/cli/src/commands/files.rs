//! `dendro ls`, `cat` and `cp`: files of a volume that is not mounted, read without FUSE.
//!
//! Nothing is written to the image. The engine rolls the log forward in memory. Images that do not
//! mount are read as far as that is possible.
//!
//! - [`state`]: which state of the volume is read. [`tree`]: paths and directories in it.
//!   [`content`]: the parts of a file, those that cannot be read included.
//! - [`ls`], [`cat`], [`cp`]: the commands. [`place`]: where copies go.

pub(crate) mod cat;
mod content;
pub(crate) mod cp;
pub(crate) mod ls;
mod place;
pub(crate) mod state;
pub(crate) mod tree;
