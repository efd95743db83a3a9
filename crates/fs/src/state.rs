//! The state of a mounted view: what is in memory beside the disk.
//!
//! - [`FsState`]: the disk, the view, and everything below; locks and commits i-nodes.
//! - [`Node`]: an i-node in memory with its lock; `ReadGuard` and [`WriteGuard`] are that lock.
//! - `node_cache`: the bounded set of i-nodes in memory.
//! - `references`: how often each i-node was looked up and opened.
//! - `orphan_set`: the files without a name that are still in use.
//! - `freeing_queue`: the files of which pages are freed in the background.
//! - `access_times`: when reading a file changes its access time.
//!
//! Arrows: `fs_state` → all others; `references`, `node_cache` → `node`, `shards`.
//!
//! # Lock order
//! 1. The rename lock ([`FsState::lock_renames`]), for renames between directories: while it is
//!    locked, no directory changes its parent.
//! 2. I-nodes: a directory before its entries. Directories of which neither is above the other, and
//!    then other files, in ascending order of their numbers. Only rename and copies lock more than
//!    a directory and one entry of it.
//! 3. The shards of the node cache and of the references, the set of orphans, and the queue of
//!    freeing: innermost, locked for a few instructions only.
//!
//! The write-back of access times when the cache is full happens while the caller may have any
//! i-node locked. So it only tries to lock. The same goes for the freeing of pages in the
//! background, which a commit that lacks space goes on with.

mod access_times;
mod freeing_queue;
mod fs_state;
mod node;
mod node_cache;
mod orphan_set;
mod references;
mod shards;

pub(crate) use fs_state::FsState;
pub(crate) use node::{Node, WriteGuard};
