//! Making nodes of the map whole again that are kept twice: the next checkpoint writes a node that
//! is marked as changed once more, and again twice.

use dendro_format::{Addr, Head, Key};

use crate::engine::Engine;
use crate::volume::Volume;
use crate::volume::holds::LockHolder;

impl Volume {
    /// Has the node written anew of which a copy is damaged. Returns whether another is sound.
    pub(super) fn mend_node(&self, level: u8, key: &Key) -> bool {
        if self.metadata_copies() < 2 {
            return false;
        }
        if self.is_writable() {
            return self.rewrite_node_of(level, key);
        }
        let place = self.look(|engine, nodes| engine.state().map().node_place(level, key, nodes));
        place.ok().flatten().is_some_and(|place| self.store().load(&place).is_ok())
    }

    /// Has a sound node written anew if its segment should have a mirror, and has none, or one that
    /// is lost with it.
    pub(super) fn mirror_if_alone(&self, addr: Addr, level: u8, key: &Key) {
        if self.metadata_copies() < 2 || !self.is_writable() {
            return;
        }
        let is_alone = {
            let engine = self.read();
            let segments = engine.state().segments();
            let segment = segments.layout().segment_of(addr);
            segments.head(segment) == Head::Map
                && segments.lacks_mirror(segment, |one| self.failure_domain(one))
                && self.has_room_to_mend(&engine)
        };
        if is_alone {
            self.rewrite_node_of(level, key);
        }
    }

    /// Whether there is so much room that mirrors are opened for what is marked as changed.
    fn has_room_to_mend(&self, engine: &Engine) -> bool {
        const TIMES: u64 = 6;
        let size = self.layout().segment_size_bytes();
        let clean_bytes = u64::from(engine.state().segments().clean_count()) * size;
        clean_bytes > TIMES * (engine.state().map().dirty_len_bytes() + size)
            && !self.is_over_dirty_limit(engine)
    }

    fn rewrite_node_of(&self, level: u8, key: &Key) -> bool {
        let rewritten = self.change(LockHolder::Cleaning, |engine, nodes| {
            match engine.state().map().node_place(level, key, nodes)? {
                Some(place) => engine.state_mut().rewrite_node(&place, level, key, nodes),
                None => Ok(false),
            }
        });
        rewritten.unwrap_or(false)
    }
}
