//! Where clean nodes come from.

use dendro_format::NodePtr;

use crate::fault::Outcome;
use crate::map::node::SharedNode;

/// The source of clean nodes.
pub(crate) trait Nodes {
    /// The node at `place`.
    fn node(&self, place: &NodePtr) -> Outcome<SharedNode>;

    /// The node at `place`, which is not asked for again.
    fn take(&self, place: &NodePtr) -> Outcome<SharedNode>;

    /// Notes the leaves that follow the one that a walk has just missed. The walk needs them next,
    /// if it goes on so far.
    fn note_following(&self, _following: &mut dyn Iterator<Item = NodePtr>) {}

    /// The node at `place` if that takes no I/O.
    fn node_if_cached(&self, place: &NodePtr) -> Option<SharedNode>;
}
