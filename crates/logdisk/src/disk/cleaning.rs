//! Cleaning and coalescing, as the programs see them that drive or replace them.

use dendro_base::sync::Arc;
use dendro_disk::{Lid, Result, View};
use dendro_format::{Addr, Compression};
use dendro_policy::Policy;

use super::LogDisk;
use crate::clean::coalesce::{Coalesced, Place, coalesce};
use crate::clean::external::{
    Block, BlockName, Blocks, MapCursor, QuestionError, Released, Rewritten, SegmentFacts,
    SummaryCursor, VolumeFacts,
};
use crate::options::CleanSettings;

impl LogDisk {
    /// The settings of background cleaning.
    pub fn clean_settings(&self) -> CleanSettings {
        self.accounts.clean_settings()
    }

    /// Changes the settings of background cleaning.
    pub fn set_clean_settings(&self, settings: CleanSettings) {
        self.accounts.set_clean_settings(settings);
    }

    /// The policy that the cleaner uses.
    pub fn policy(&self) -> Arc<dyn Policy> {
        Arc::clone(self.volume.read().streams().policy())
    }

    /// Replaces the policy that the cleaner uses.
    pub fn set_policy(&self, policy: Arc<dyn Policy>) {
        self.volume.write().set_policy(policy);
    }

    /// Performs one cleaning step if clean segments are few, and returns whether it did. Several
    /// threads may call this at the same time; each works on a segment of its own.
    ///
    /// # Errors
    /// [`dendro_disk::Error::Failed`] when the device fails.
    pub fn clean_step(&self) -> Result<bool> {
        self.cleaner.step()
    }

    /// Performs one cleaning step in advance, as long as there are segments with few live blocks,
    /// or writes zeros to a segment of an image that the log will fill soon. Returns whether it did
    /// either. It is meant for times in which no client writes.
    ///
    /// # Errors
    /// As [`Self::clean_step`].
    pub fn idle_step(&self) -> Result<bool> {
        Ok(self.cleaner.idle_step()? || self.checkpointer.write_ahead_step()?)
    }

    /// A number that grows when clients change something or read from the device. As long as it
    /// stays the same, the disk is idle.
    pub fn activity(&self) -> u64 {
        self.volume.read().commit_seq() + self.reader.device_reads()
    }

    /// Performs one step of coalescing on what the head of the main branch sees, and returns
    /// whether it did. It needs a stretch that has not been written for a while, and many clean
    /// segments. It is meant for idle times, and stops as soon as a client writes.
    ///
    /// # Errors
    /// As [`Self::clean_step`].
    pub fn coalesce_step(&self) -> Result<bool> {
        self.idle_coalescing.step()
    }

    /// Coalesces the pages of the lists before `until`, from `from` on, as `view` sees them. In a
    /// trial it only returns what that would do. A call does a bounded part of the work: call it
    /// again with [`Coalesced::next`]. Blocks that have not been written to the device are not
    /// moved, so flush first. After a crash, the blocks that were moved last may be at their old
    /// places.
    ///
    /// # Errors
    /// [`dendro_disk::Error::Failed`] when the device fails, [`dendro_disk::Error::ReadOnly`] when
    /// the disk takes no changes, [`dendro_disk::Error::NoSuchView`] when there is no such view,
    /// and an error when the map cannot be read. Blocks may have been moved by then, which is no
    /// loss.
    pub fn coalesce(
        &self,
        view: View,
        from: Place,
        until: Lid,
        is_trial: bool,
    ) -> Result<Coalesced> {
        coalesce(&self.mover, view, from, until, None, is_trial)
    }

    /// As [`Self::coalesce`], and pages are compressed with `with` where that takes less, also
    /// those that do not lie scattered. What does not become smaller stays as it is, and so do
    /// lists that are never to be compressed. A trial compresses, and writes nothing.
    ///
    /// # Errors
    /// As [`Self::coalesce`], and when the superblock cannot state that there are compressed pages.
    pub fn compress(
        &self,
        view: View,
        from: Place,
        until: Lid,
        with: Compression,
        is_trial: bool,
    ) -> Result<Coalesced> {
        coalesce(&self.mover, view, from, until, Some(with), is_trial)
    }

    /// How [`Self::compress`] does it where nobody says how: as the cleaner compresses what it
    /// moves, or else as new pages are, or else with Zstandard.
    pub fn usual_compression(&self) -> Compression {
        self.mover.compressors().usual()
    }

    /// The state of the volume at this moment, for an external cleaner
    /// ([`external`](crate::external)).
    pub fn volume_facts(&self) -> VolumeFacts {
        self.external.volume_facts()
    }

    /// The number of segments that may be filled.
    pub fn clean_segment_count(&self) -> u32 {
        self.external.clean_segment_count()
    }

    /// The segments of the log from number `from` on, in their order: at most `max` of them and at
    /// most [`MAX_SEGMENTS_PER_CALL`](crate::external::MAX_SEGMENTS_PER_CALL).
    pub fn segments(&self, from: u32, max: usize) -> Vec<SegmentFacts> {
        self.external.segments(from, max)
    }

    /// Makes those of `segments` clean that hold nothing live. It takes a checkpoint if there are
    /// any, as (external 5) requires. Returns the state of each segment after that. Segments beyond
    /// [`MAX_SEGMENTS_PER_CALL`](crate::external::MAX_SEGMENTS_PER_CALL) are refused as
    /// [`Released::Unknown`].
    ///
    /// # Errors
    /// [`dendro_disk::Error::Failed`] when the device fails, [`dendro_disk::Error::ReadOnly`] when
    /// the disk takes no changes.
    pub fn release(&self, segments: &[u32]) -> Result<Vec<Released>> {
        self.external.release(segments)
    }

    /// The blocks of a segment as its own summaries state: at most `max` of them and at most
    /// [`MAX_BLOCKS_PER_CALL`](crate::external::MAX_BLOCKS_PER_CALL). Most of them may be dead.
    /// Pages that were moved to another list have the name that they had before the move;
    /// [`Self::mapped_blocks`] finds those.
    ///
    /// # Errors
    /// When the segment has not been filled, is clean, or cannot be read.
    pub fn segment_blocks(
        &self,
        number: u32,
        from: SummaryCursor,
        max: usize,
    ) -> std::result::Result<Blocks<SummaryCursor>, QuestionError> {
        self.external.segment_blocks(number, from, max)
    }

    /// The live pages of a segment as the map states. A complete answer needs a walk over the whole
    /// map, and each call does a part of it. So a call may find nothing and still return a next
    /// place.
    ///
    /// # Errors
    /// As [`Self::segment_blocks`].
    pub fn mapped_blocks(
        &self,
        number: u32,
        from: MapCursor,
    ) -> std::result::Result<Blocks<MapCursor>, QuestionError> {
        self.external.mapped_blocks(number, from)
    }

    /// Returns where the blocks with these names lie now, if they lie anywhere. A block is live if
    /// it lies where a segment's summaries say. Names beyond
    /// [`MAX_BLOCKS_PER_CALL`](crate::external::MAX_BLOCKS_PER_CALL) are ignored.
    ///
    /// A node of the map that has changed since it was written lies nowhere, and neither does a
    /// page of zeros.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn locate(&self, names: &[BlockName]) -> Result<Vec<Option<Addr>>> {
        self.external.locate(names)
    }

    /// Writes each of these blocks again if the map names it at that address now (external 1), so
    /// that it is no longer live in the segment that it lay in. Returns the result of each block;
    /// blocks beyond [`MAX_BLOCKS_PER_CALL`](crate::external::MAX_BLOCKS_PER_CALL) are ignored.
    ///
    /// When this returns, the pages have their place in the order of the log. They are durable with
    /// the next flush or checkpoint; until then a crash leaves them where they were. Nodes of the
    /// map are written by the next checkpoint.
    ///
    /// # Errors
    /// [`dendro_disk::Error::Failed`] when the device fails, [`dendro_disk::Error::ReadOnly`] when
    /// the disk takes no changes, and an error when the map cannot be read. Blocks may have been
    /// moved by then, which is no loss.
    pub fn rewrite(&self, blocks: &[Block]) -> Result<Vec<Rewritten>> {
        self.external.rewrite(blocks)
    }
}

#[cfg(test)]
mod tests {
    use dendro_disk::{Lid, View};

    use super::{CleanSettings, LogDisk, Place};
    use crate::clean::cleaner::tests::disk_half_alive;
    use crate::external::{Rewritten, SummaryCursor};

    #[test]
    fn nothing_else_moves_blocks_while_a_thread_makes_room_alone() {
        let disk = disk_half_alive();
        let mut settings = disk.clean_settings();
        settings.coalescing.moves_everything = true;
        disk.set_clean_settings(settings);
        let clean_step = || {
            let min_clean_segments = Some(60);
            disk.set_clean_settings(CleanSettings { min_clean_segments, ..settings });
            let has_cleaned = disk.clean_step().unwrap();
            disk.set_clean_settings(settings);
            has_cleaned
        };
        let full = |disk: &LogDisk| {
            let facts = disk.segments(0, 64).into_iter();
            facts.max_by_key(|facts| facts.live_bytes).unwrap().number
        };
        let blocks =
            disk.segment_blocks(full(&disk), SummaryCursor::default(), 100).unwrap().blocks;
        let coalesce =
            || disk.coalesce(View::HEAD, Place::START, Lid::CLIENT_END, false).unwrap().moved_bytes;
        let moved = |outcomes: &[Rewritten]| outcomes.contains(&Rewritten::Moved);

        let claim = disk.accounts.claim();
        assert!(!clean_step());
        assert!(!moved(&disk.rewrite(&blocks).unwrap()));
        assert_eq!(coalesce(), 0);
        drop(claim);

        assert!(clean_step());
        assert!(moved(&disk.rewrite(&blocks).unwrap()));
        assert!(coalesce() > 0);
    }
}
