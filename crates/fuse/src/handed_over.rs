//! The files of which the kernel has handed something over that it had collected.

use std::collections::HashSet;
use std::sync::Arc;

use dendro_base::sync::Mutex;
use dendro_fuse_transport::Notifier;

/// The most files that are remembered.
const MAX_NODES: usize = 4096;

/// Files of which the kernel may show an old number of blocks: it does not know how many blocks
/// there are when it has handed something over. It asks again when a file is closed, so this is
/// about files that stay open. To notify it of each write would make the next write(2) ask for all
/// attributes, and for the capabilities of the file.
#[derive(Debug, Default)]
pub(crate) struct HandedOver {
    nodes: Mutex<HashSet<u64>>,
}

impl HandedOver {
    /// Something of `node` was handed over.
    pub(crate) fn add(&self, node: u64) {
        let mut nodes = self.nodes.lock();
        // Most of the others are closed by now.
        if nodes.len() < MAX_NODES {
            nodes.insert(node);
        }
    }

    fn take(&self) -> HashSet<u64> {
        std::mem::take(&mut *self.nodes.lock())
    }
}

/// Has the kernel ask for numbers of blocks again that it does not know.
#[derive(Clone, Debug)]
pub struct BlockCounts {
    handed_over: Arc<HandedOver>,
    notifier: Notifier,
}

impl BlockCounts {
    pub(crate) const fn new(handed_over: Arc<HandedOver>, notifier: Notifier) -> Self {
        Self { handed_over, notifier }
    }

    /// Does so for the files of which the kernel has handed something over since the last call, or
    /// for the first few thousand of them. A thread that serves requests must not call this.
    pub fn refresh(&self) {
        for node in self.handed_over.take() {
            if self.notifier.invalidate_attributes(node).is_err() {
                // The file system is being unmounted.
                break;
            }
        }
    }
}
