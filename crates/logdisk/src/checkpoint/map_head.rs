//! Where the map stream continues: in the segment that it is filling, in a clean one, or after a
//! crash behind the checkpoint that was found.

use dendro_device::AlignedBuf;
use dendro_disk::{Error, Result};
use dendro_format::{Head, SegmentNo};
use dendro_policy::Class;

use super::{Checkpointer, Checkpoints, MapHead};
use crate::engine::PARTIAL_LEN_BYTES;
use crate::log::partial::{MIN_CAPACITY_BYTES, Partial, Tables};

impl Checkpointer {
    /// Opens a partial segment of the map stream.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when no segment is clean.
    pub(super) fn open_map_partial(&self, checkpoints: &mut Checkpoints) -> Result<Partial> {
        let size = self.volume.layout().segment_size_bytes();
        if let Some(segment) = checkpoints.head.segment
            && !self.is_retired(segment)
            && size - u64::from(checkpoints.head.offset_bytes) >= MIN_CAPACITY_BYTES as u64
        {
            return Ok(self.map_partial(checkpoints, segment));
        }
        self.open_next_map_segment(checkpoints)
    }

    /// Opens a partial segment in the next segment of the map stream.
    ///
    /// # Errors
    /// As [`Self::open_map_partial`].
    pub(super) fn open_next_map_segment(&self, checkpoints: &mut Checkpoints) -> Result<Partial> {
        let segment = {
            let mut engine = self.volume.write();
            if let Some(full) = checkpoints.head.segment.take() {
                engine.state_mut().segments_mut().close(full);
            }
            let segment = engine.state_mut().segments_mut().open(Head::Map, Class::MAIN);
            let is_mirrored = self.volume.metadata_copies() > 1;
            if let Some(segment) = segment.filter(|_| is_mirrored) {
                let kept = self.accounts.kept_from_mirrors(&engine) as usize;
                let domain = |segment| self.volume.failure_domain(segment);
                engine.state_mut().segments_mut().open_mirror(segment, kept, domain);
            }
            segment
        };
        let Some(segment) = segment else {
            if let Some(partial) = self.continue_behind_recovered(checkpoints) {
                return Ok(partial);
            }
            let needed_bytes = self.accounts.map_stream().left_bytes().max(1);
            return Err(Error::NoSpace { needed_bytes, available_bytes: 0 });
        };
        checkpoints.head.segment = Some(segment);
        checkpoints.head.offset_bytes = 0;
        self.note_map_room(checkpoints);
        Ok(self.map_partial(checkpoints, segment))
    }

    /// Continues the map stream behind the checkpoint from which the volume was recovered, where a
    /// checkpoint that a crash interrupted, or a damaged one that is given up, may have left nodes.
    /// A nearly full volume may have no other room, and could not be opened otherwise.
    fn continue_behind_recovered(&self, checkpoints: &mut Checkpoints) -> Option<Partial> {
        let end = checkpoints.recovered_end.take()?;
        let layout = self.volume.layout();
        let left_bytes = layout.segment_size_bytes().saturating_sub(end.offset_bytes.into());
        let has_room = left_bytes >= MIN_CAPACITY_BYTES as u64;
        if !has_room || !layout.is_log_segment(end.segment) || self.is_retired(end.segment) {
            return None;
        }
        self.volume.write().state_mut().segments_mut().take(end.segment, Head::Map);
        checkpoints.head = MapHead::at(end);
        self.note_map_room(checkpoints);
        Some(self.map_partial(checkpoints, end.segment))
    }

    pub(super) fn note_map_room(&self, checkpoints: &Checkpoints) {
        let room_bytes =
            self.volume.layout().segment_size_bytes() - u64::from(checkpoints.head.offset_bytes);
        self.accounts.map_stream().set_room(room_bytes);
    }

    fn map_partial(&self, checkpoints: &mut Checkpoints, segment: SegmentNo) -> Partial {
        let size = self.volume.layout().segment_size_bytes();
        let offset = checkpoints.head.offset_bytes;
        let capacity = (size - u64::from(offset)).min(PARTIAL_LEN_BYTES as u64) as usize;
        let buf = checkpoints
            .buf
            .take()
            .unwrap_or_else(|| AlignedBuf::zeroed(PARTIAL_LEN_BYTES.min(size as usize)));
        let epoch = self.volume.read().state().versions().epoch();
        Partial::new(
            buf,
            capacity,
            segment,
            self.volume.layout().segment_offset(segment),
            offset,
            epoch,
            Tables::default(),
        )
    }
}
