//! The files of which pages are still to be freed, in the background.

use std::collections::BTreeMap;
use std::ops::Bound;

use dendro_base::sync::{Arc, Mutex};

use super::node::Node;
use crate::types::Ino;

/// The files of which pages are freed in the background. Each has the state
/// [`FREEING`](crate::layout::inode::InodeState::FREEING), and is on the disk's orphan list.
#[derive(Debug, Default)]
pub(crate) struct FreeingQueue {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    files: BTreeMap<Ino, Waiting>,
    /// The file that had the last turn.
    last: Option<Ino>,
    /// Whether the disk has the chore of freeing them.
    is_handed_over: bool,
}

#[derive(Debug)]
struct Waiting {
    /// It keeps the i-node in memory.
    node: Arc<Node>,
    /// The pages to be freed that lie before this one have been freed.
    from: u64,
}

impl FreeingQueue {
    /// Adds a file of whose pages to be freed those before `from` have been freed; the caller has
    /// it locked for changing. Returns whether the chore must be handed over to the disk.
    #[must_use]
    pub(crate) fn insert(&self, node: Arc<Node>, from: u64) -> bool {
        let mut queue = self.queue.lock();
        queue.files.insert(node.ino(), Waiting { node, from });
        !std::mem::replace(&mut queue.is_handed_over, true)
    }

    /// Removes a file, which the caller has locked for changing, or which does not exist any more.
    /// Returns the page before which all has been freed.
    pub(crate) fn remove(&self, ino: Ino) -> Option<u64> {
        self.queue.lock().files.remove(&ino).map(|waiting| waiting.from)
    }

    /// The file whose turn it is. If there is none, the chore is finished, and the next file that
    /// is added must hand it over again.
    pub(crate) fn next(&self) -> Option<Arc<Node>> {
        let mut queue = self.queue.lock();
        let behind = (queue.last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let next = queue.files.range(behind).next().or_else(|| queue.files.first_key_value());
        let next = next.map(|(ino, waiting)| (*ino, Arc::clone(&waiting.node)));
        match next {
            None => queue.is_handed_over = false,
            Some((ino, _)) => queue.last = Some(ino),
        }
        next.map(|(_, node)| node)
    }

    /// Removes all files.
    pub(crate) fn clear(&self) {
        self.queue.lock().files.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_turns_and_the_chore_is_handed_over_when_there_is_one_again() {
        let queue = FreeingQueue::default();
        let [a, b] = [3, 5].map(|ino| Arc::new(Node::new(Ino(ino))));
        assert!(queue.insert(Arc::clone(&b), 7));
        assert!(!queue.insert(Arc::clone(&a), 1));
        let turns: Vec<_> = (0..4).map(|_| queue.next().unwrap().ino().0).collect();
        assert_eq!(turns, [3, 5, 3, 5]);
        assert!(!queue.insert(b, 9));
        assert_eq!(queue.remove(Ino(5)), Some(9));
        assert_eq!(queue.remove(Ino(3)), Some(1));
        assert_eq!(queue.remove(Ino(3)), None);
        assert!(queue.next().is_none());
        assert!(queue.insert(a, 0));
    }
}
