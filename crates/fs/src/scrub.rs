//! The scrub of the volume, recorded in it, so that it continues after a restart. The record is in
//! the list that describes the volume, in the main branch's head. Software that does not know it
//! ignores it.

use dendro_base::Timestamp;
use dendro_disk::{Aru, LogicalDisk, View};
use zerocopy::IntoBytes;

use crate::error::{FsError, Result};
use crate::layout::format::{
    RECORD_VERSION, SCRUB_INDEX, ScrubV1, VOLUME_LIST, split_bytes, split_head,
};

/// How a scrub stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubState {
    /// It runs, or runs again with the next mount.
    Running,
    /// It waits until a user resumes it.
    Paused,
    /// It has reached the end.
    Finished,
    /// A user ended it.
    Cancelled,
}

/// A pass that has reached the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubPass {
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// Bytes that were read and compared.
    pub checked_bytes: u64,
    /// Damaged places that it found.
    pub found_count: u64,
}

/// The scrub of a volume, as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptScrub {
    /// How the newest pass stands.
    pub state: ScrubState,
    /// When it began.
    pub started: Timestamp,
    /// The most bytes that are read in a second; `None`: what the volume's use leaves.
    pub rate_bytes_per_sec: Option<u64>,
    /// The memory for what it reads next; `None`: as much as the disk takes of its own accord. It
    /// is recorded in KiB.
    pub memory_bytes: Option<u64>,
    /// Where it is, as the disk states it.
    pub position: Vec<u8>,
    /// The last pass that has reached the end.
    pub last_complete: Option<ScrubPass>,
}

impl KeptScrub {
    fn encode(&self) -> Vec<u8> {
        let state = match self.state {
            ScrubState::Running => 0,
            ScrubState::Paused => 1,
            ScrubState::Finished => 2,
            ScrubState::Cancelled => 3,
        };
        let none = Timestamp(0);
        let last = self.last_complete.unwrap_or(ScrubPass {
            started: none,
            ended: none,
            checked_bytes: 0,
            found_count: 0,
        });
        let head = ScrubV1 {
            version: RECORD_VERSION,
            state,
            position_len: (self.position.len() as u16).into(),
            memory_kib: kib(self.memory_bytes).into(),
            started_nanos: self.started.0.into(),
            rate: self.rate_bytes_per_sec.unwrap_or(0).into(),
            last_started_nanos: last.started.0.into(),
            last_ended_nanos: last.ended.0.into(),
            last_checked_bytes: last.checked_bytes.into(),
            last_found_count: last.found_count.into(),
        };
        [head.as_bytes(), &self.position].concat()
    }

    fn decode(record: &[u8]) -> Result<Self> {
        let (head, rest) = split_head::<ScrubV1>(record, "the record of a scrub")?;
        let (position, _) = split_bytes(rest, usize::from(head.position_len.get()), "a position")?;
        let state = match head.state {
            0 => ScrubState::Running,
            1 => ScrubState::Paused,
            2 => ScrubState::Finished,
            3 => ScrubState::Cancelled,
            _ => return Err(FsError::Corrupted("the scrub has an unknown state".into())),
        };
        let last = ScrubPass {
            started: Timestamp(head.last_started_nanos.get()),
            ended: Timestamp(head.last_ended_nanos.get()),
            checked_bytes: head.last_checked_bytes.get(),
            found_count: head.last_found_count.get(),
        };
        Ok(Self {
            state,
            started: Timestamp(head.started_nanos.get()),
            rate_bytes_per_sec: Some(head.rate.get()).filter(|rate| *rate > 0),
            memory_bytes: Some(u64::from(head.memory_kib.get()) << 10).filter(|bytes| *bytes > 0),
            position: position.to_vec(),
            last_complete: Some(last).filter(|last| last.ended.0 != 0),
        })
    }
}

/// 0 for none, and 1 at least for some.
fn kib(memory_bytes: Option<u64>) -> u32 {
    memory_bytes.map_or(0, |bytes| u32::try_from(bytes >> 10).unwrap_or(u32::MAX).max(1))
}

/// The scrub that is recorded in the main branch's `head`; `None` if there is none, or the record
/// is malformed.
///
/// # Errors
/// Errors of the disk.
pub fn kept_scrub(disk: &dyn LogicalDisk, head: View) -> Result<Option<KeptScrub>> {
    let record = disk.record(head, VOLUME_LIST, SCRUB_INDEX)?;
    let ours = record.filter(|record| record.first() == Some(&RECORD_VERSION));
    Ok(ours.and_then(|record| KeptScrub::decode(&record).ok()))
}

/// Records the scrub in place of what was recorded before.
///
/// # Errors
/// Errors of the disk.
pub fn keep_scrub(disk: &dyn LogicalDisk, head: View, scrub: &KeptScrub) -> Result<()> {
    let mut aru = Aru::new(head);
    aru.put_record(VOLUME_LIST, SCRUB_INDEX, scrub.encode());
    disk.commit(aru)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Fixture;
    use crate::verify;

    #[test]
    fn what_is_recorded_is_there_until_it_is_replaced_and_no_bytes_panic() {
        let fixture = Fixture::new();
        let disk = &*fixture.disk;
        assert_eq!(kept_scrub(disk, View::HEAD), Ok(None));
        let running = KeptScrub {
            state: ScrubState::Running,
            started: Timestamp(-5),
            rate_bytes_per_sec: Some(1 << 20),
            memory_bytes: Some(8 << 20),
            position: vec![9; 100],
            last_complete: None,
        };
        let last = ScrubPass {
            started: Timestamp(1),
            ended: Timestamp(2),
            checked_bytes: 3,
            found_count: 4,
        };
        for state in [ScrubState::Paused, ScrubState::Finished, ScrubState::Cancelled] {
            let other = KeptScrub {
                state,
                last_complete: Some(last),
                rate_bytes_per_sec: None,
                memory_bytes: None,
                ..running.clone()
            };
            for scrub in [&running, &other] {
                keep_scrub(disk, View::HEAD, scrub).unwrap();
                assert_eq!(kept_scrub(disk, View::HEAD).unwrap().as_ref(), Some(scrub));
            }
        }
        assert!(verify(disk, View::HEAD).unwrap().is_empty());
        fixture.assert_sound();
        let record = running.encode();
        for len in 0..record.len() {
            assert!(KeptScrub::decode(&record[..len]).is_err());
        }
        assert!(KeptScrub::decode(&[[1, 9].as_slice(), &record[2..]].concat()).is_err());
    }
}
