//! What a checkpoint does for the mirrors of the map's segments.

use dendro_format::SegmentNo;

use super::{CheckpointJob, Checkpointer, WaitingNodes};
use crate::log::writer::Refusal;

impl Checkpointer {
    /// The segments with mirrors in which something of a job's checkpoint lies, or the checkpoint
    /// itself, in `last`.
    pub(super) fn mirrors_of(
        &self,
        job: &CheckpointJob,
        last: SegmentNo,
    ) -> Vec<(SegmentNo, SegmentNo)> {
        let mut list = self.mirrors.list();
        let engine = self.volume.read();
        list.retain(|(of, _)| {
            *of == last
                || job.added.contains_key(of)
                || engine.state().segments().frozen_bytes_of(*of) > 0
        });
        list
    }

    /// Whether the segment or its mirror is not to be filled any further.
    pub(super) fn is_retired(&self, segment: SegmentNo) -> bool {
        let engine = self.volume.read();
        let mirror = self.mirrors.of(segment);
        [Some(segment), mirror].iter().flatten().any(|it| engine.state().segments().is_retired(*it))
    }

    /// Writes a partial segment of the map, and writes it to the mirror.
    pub(super) fn write_twice(&self, nodes: &mut WaitingNodes) -> Result<(), Refusal> {
        let bytes = &nodes.buf[..nodes.len_bytes];
        if !nodes.is_written {
            self.volume.write_somewhere(nodes.offset, bytes)?;
            nodes.is_written = true;
        }
        let Some(mirror_offset) = nodes.mirror_offset else { return Ok(()) };
        match self.volume.write_somewhere(mirror_offset, bytes) {
            Err(Refusal::Failed(_)) => {
                // One copy is enough to go on. A mirror that has not all of the segment is none.
                let mut engine = self.volume.write();
                if let Some(mirror) = self.mirrors.of(nodes.segment) {
                    engine.state_mut().segments_mut().retire(mirror);
                }
                engine.state_mut().segments_mut().release_mirror(nodes.segment);
                Ok(())
            }
            written => written,
        }
    }
}
