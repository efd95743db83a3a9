//! What a checkpoint does for the mirrors of the map's segments.

use dendro_base::priority;
use dendro_format::SegmentNo;

use super::{CheckpointJob, Checkpointer, WaitingNodes};
use crate::log::writer::Refusal;

/// The most that a thread of low priority writes with one system call. A megabyte keeps a CPU from
/// all others for half a millisecond.
const YIELDING_LEN_BYTES: usize = 128 << 10;

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
        let most = if priority::is_low() { YIELDING_LEN_BYTES } else { nodes.len_bytes };
        let write = |offset: u64| {
            let mut pieces = (offset..).step_by(most).zip(bytes.chunks(most));
            pieces.try_for_each(|(offset, piece)| self.volume.write_somewhere(offset, piece))
        };
        if !nodes.is_written {
            write(nodes.offset)?;
            nodes.is_written = true;
        }
        let Some(mirror_offset) = nodes.mirror_offset else { return Ok(()) };
        match write(mirror_offset) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use dendro_base::ManualClock;
    use dendro_base::sync::Arc;
    use dendro_device::sim::SimDevice;
    use dendro_disk::{Aru, LogicalDisk, View};

    use crate::testing::make_list;
    use crate::{CLEANER_NICENESS, FormatOptions, LogDisk, OpenOptions, format};

    /// How often this thread has given up its CPU.
    fn switches() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs a kernel")]
    fn a_thread_of_low_priority_writes_the_same_map_in_more_pieces_and_gives_way_meanwhile() {
        const COUNT: u64 = 300_000;
        let writes = |is_lowered: bool| {
            // On a small volume or with a small cache, the memory that is left for commits would be
            // half used.
            let device = Arc::new(SimDevice::new(2 << 30, 1));
            let (shared, clock) = (Arc::clone(&device) as _, Arc::new(ManualClock::default()) as _);
            let options = FormatOptions { metadata_copies: 2, ..FormatOptions::default() };
            format(&shared, &options, &clock).unwrap();
            let open = || {
                let options = OpenOptions { cache_size_bytes: 512 << 20, ..OpenOptions::default() };
                LogDisk::open(Arc::clone(&shared), options, Arc::clone(&clock)).unwrap()
            };
            let disk = open();
            let list = make_list(&disk);
            let mut aru = Aru::new(View::HEAD);
            for index in 0..COUNT {
                aru.put_record(list, index, &index.to_le_bytes()[..]);
            }
            disk.commit(aru).unwrap();
            let before = device.counts().writes;
            let take = || {
                if is_lowered {
                    priority::lower_thread(CLEANER_NICENESS);
                }
                let before = switches();
                disk.checkpoint().unwrap();
                (priority::is_low(), switches() - before)
            };
            let (was_low, given_way) =
                std::thread::scope(|scope| scope.spawn(take).join().unwrap());
            let count = device.counts().writes - before;
            drop(disk);
            let disk = open();
            for index in (0..COUNT).step_by(499) {
                let record = disk.record(View::HEAD, list, index).unwrap();
                assert_eq!(record.as_deref(), Some(&index.to_le_bytes()[..]));
            }
            (was_low, count, given_way)
        };
        let ((_, whole, _), (was_low, pieces, given_way)) = (writes(false), writes(true));
        // Without the privilege the thread keeps its priority.
        assert!(if was_low { pieces > whole } else { pieces == whole }, "{pieces}, {whole}");
        assert!(!was_low || given_way >= 12, "{given_way}");
    }
}
