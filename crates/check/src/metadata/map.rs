//! Copying the map, children before their parents, whose entries have their checksums.

use std::sync::Arc;

use dendro_base::units::PAGE_SIZE;
use dendro_format::{CHUNK_PAGES, Chunk, Entries, Key, NodePtr, Space, Value, node};

use super::MetadataCopy;
use crate::error::{NodeProblemKind, Result};
use crate::read::{Node, Pending};

/// What is known of the list whose entries are being copied.
#[derive(Clone, Copy)]
struct Current {
    list: u64,
    /// Where its file ends, in the version in which it is shortest.
    end_bytes: u64,
}

/// What one walk over the map keeps.
struct Walk<'p> {
    current: Current,
    progress: &'p mut dyn FnMut(u64),
}

impl MetadataCopy<'_> {
    /// Copies the map. Returns the checksum of the root in the copy.
    pub(super) fn copy_map(
        &mut self,
        root: NodePtr,
        level: u8,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u32> {
        let current = Current { list: 0, end_bytes: u64::MAX };
        let mut walk = Walk { current, progress };
        self.copy_node(&Pending::root(root, level), &mut walk)
    }

    /// Copies a node and what is below it. Returns its checksum in the copy.
    fn copy_node(&mut self, pending: &Pending, walk: &mut Walk<'_>) -> Result<u32> {
        let place = pending.child.place;
        let (mut node, is_visited) = match pending.read(self.volume) {
            Ok(node) => (node, true),
            Err(problem) => {
                self.report.bad_node_count += 1;
                let is_there = !matches!(
                    problem.kind,
                    NodeProblemKind::Outside
                        | NodeProblemKind::Unreadable
                        | NodeProblemKind::Damaged
                );
                match self.volume.node(place) {
                    // It is a node, but not one that belongs here.
                    Ok(node) if is_there => (node, false),
                    _ => return Ok(place.crc32c),
                }
            }
        };
        match &mut node.entries {
            Entries::Inner(children) if is_visited => {
                // One level after the other: no map is high.
                let pending: Vec<Pending> = pending.children(children).collect();
                for ((_, child), pending) in children.iter_mut().zip(&pending) {
                    child.place.crc32c = self.copy_node(pending, walk)?;
                }
            }
            Entries::Inner(_) => {}
            Entries::Leaf(entries) => {
                for (key, value) in entries {
                    self.hide_entry(key, value, &mut walk.current)?;
                }
            }
        }
        self.put_node(&node, walk)
    }

    fn put_node(&mut self, node: &Node, walk: &mut Walk<'_>) -> Result<u32> {
        let (bytes, crc32c) = node::encode(&node.info, &node.entries);
        if bytes.len() != node.place.len_bytes as usize {
            // A node of an older version takes less. What it says of its children would not fit.
            self.report.bad_node_count += 1;
            return Ok(node.place.crc32c);
        }
        // A copy that is damaged stays so.
        if node.problem.is_none() {
            self.target.put(node.place.addr.bytes(), &bytes)?;
        }
        let mirror = self.volume.mirror_of(node.place.addr);
        if let Some(mirror) = mirror.filter(|it| self.volume.node_at(node.place, *it).is_ok()) {
            self.target.put(mirror.bytes(), &bytes)?;
        }
        self.report.node_count += 1;
        (walk.progress)(self.report.node_count);
        Ok(crc32c)
    }

    fn hide_entry(&mut self, key: &Key, value: &mut Value, current: &mut Current) -> Result<()> {
        if key.list != current.list {
            *current = Current { list: key.list, end_bytes: u64::MAX };
        }
        match value {
            Value::Record(record) => {
                if key.space == Space::Records
                    && let Some(end) = self.hide.end_bytes(key.index, record)
                {
                    current.end_bytes = current.end_bytes.min(end);
                }
                let mut hidden = record.to_vec();
                self.hide_record(key.list, key.index, &mut hidden);
                *record = hidden.into();
            }
            Value::Chunk(chunk) => *chunk = Arc::new(self.without_data(key, chunk, *current)?),
            Value::List(_) | Value::Tombstone => {}
        }
        Ok(())
    }

    /// The chunk with the checksums of blocks of zeros.
    fn without_data(&mut self, key: &Key, chunk: &Chunk, current: Current) -> Result<Chunk> {
        let mut hidden = chunk.clone();
        for (slot, page) in chunk.iter().filter(|(_, page)| page.len_bytes > 0) {
            let index = key.index.saturating_mul(CHUNK_PAGES) | u64::from(slot);
            let start = index.saturating_mul(PAGE_SIZE as u64);
            let end = current.end_bytes.saturating_sub(start).min(PAGE_SIZE as u64);
            let (crc32c, mark) = self.blocks.of_map(page, end as usize);
            if let Some(mark) = mark {
                self.target.put(mark.offset, &[1])?;
            }
            hidden.set(slot, dendro_format::PageRef { crc32c, compression: 0, ..page });
        }
        Ok(hidden)
    }
}
