//! Files in versions of the disk: what changed between two views, the versions of one file, what
//! was removed from a directory, and restoring it.
//!
//! - [`diff()`]: the names that were removed, added or renamed, and the files that changed.
//!   [`seen`] reduces these to what a user may see.
//! - [`history`]: the versions of the file at a path.
//! - [`removed`]: the names that a directory had and does not have any more.
//! - [`stale`]: what a cache filled from one view must drop before it shows another.
//! - [`path_of`]: the path of a file.
//! - [`maker`]: which user created a version, and may delete it.
//! - [`restore`]: copies a file or a whole tree from one view to another.
//!
//! Callers can ask for a user with limited permissions ([`Credentials`](crate::Credentials)). Then
//! these functions show and copy what the kernel would let that user see in a mount of the view.
//!
//! All except the last read the disk directly, without a mounted file system, through a [`Tree`]. A
//! head may change meanwhile. Then each file is seen as it was at one moment, but different files
//! at different moments.
//!
//! Arrows: `diff` → `paths_in_view` → `tree`; `history`, `stale`, `restore` → `tree`.

mod diff;
mod history;
mod maker;
mod paths_in_view;
mod restore;
mod stale;
#[cfg(test)]
mod tests;
mod tree;

pub use diff::{Change, diff, seen};
pub use history::{PathVersion, Removed, history, removed};
pub use maker::{forget_maker, maker, note_maker};
pub use paths_in_view::path_of;
pub use restore::{Restored, restore};
pub use stale::{Stale, stale};
pub use tree::Tree;
