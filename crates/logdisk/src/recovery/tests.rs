use dendro_base::{ManualClock, Rng};
use dendro_device::MemoryDevice;
use dendro_disk::{Aru, CommitSeq, ListHints, LogicalDisk, View};
use dendro_format::Record;

use super::roll_forward::Scanned;
use super::*;
use crate::{LogDisk, format};

const SEGMENT_BYTES: u64 = 128 << 10;
const SEGMENT_COUNT: u64 = 256;

/// A volume whose blocks go to payload streams. It takes no checkpoint by itself, because the limit
/// of log between checkpoints is high.
fn formatted(device: &Arc<MemoryDevice>) -> LogDisk {
    let shared: Arc<dyn Device> = Arc::clone(device) as Arc<dyn Device>;
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: SEGMENT_BYTES, ..FormatOptions::default() };
    format(&shared, &options, &clock).expect("the device is large enough");
    let options =
        OpenOptions { checkpoint_log_bytes: u64::MAX, stream_bytes: 0, ..OpenOptions::default() };
    LogDisk::open(shared, options, clock).expect("it was formatted")
}

/// A checkpoint, and the log behind it.
struct RecoveredLog {
    superblock: Superblock,
    checkpoint: Checkpoint,
    chain: Chain,
    store: NodeStore,
}

impl RecoveredLog {
    fn on(device: &dyn Device) -> Self {
        let copy: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&bytes_of(device)));
        let Start { superblock, checkpoint, .. } =
            Start::find(&VolumeDevice::new(Arc::clone(&copy))).expect("it was formatted");
        let store =
            NodeStore::new(copy, superblock.uuid, superblock.layout, Mirrors::default(), 1 << 20);
        let reader = SegmentReader::new(device, superblock.layout, superblock.uuid);
        let rules = Rules {
            durable_position: None,
            beyond: None,
            keeps_later: false,
            skip_payload_checks: false,
        };
        let chain = Scan::new(reader, &checkpoint).run(&rules).expect("it can be read");
        Self { superblock, checkpoint, chain, store }
    }

    /// Rolls the log forward.
    fn forward(&mut self, device: &dyn Device) -> Result<(u64, State, Option<Error>)> {
        let Self { superblock, checkpoint, chain, store } = self;
        let nodes = PinnedNodes::loading(store);
        let roll = RollForward { device, superblock, checkpoint, mirrors: &Mirrors::default() };
        let mut state = roll.restored(&nodes)?;
        let (last_unit, misfit) = roll.forward(&mut state, chain, &nodes, false)?;
        Ok((last_unit, state, misfit))
    }
}

/// The segments that recovery may fill.
fn clean_after_crash(device: &dyn Device) -> Vec<SegmentNo> {
    let mut found = RecoveredLog::on(device);
    let (_, mut state, _) = found.forward(device).expect("it is sound");
    let RecoveredLog { superblock, checkpoint, chain, .. } = &found;
    state.segments_mut().settle();
    for segment in chain.segments(checkpoint) {
        state.segments_mut().close(segment);
    }
    take_reused(device, state.segments_mut(), checkpoint, superblock, chain)
        .expect("it can be flushed");
    state.segments().clean_segments()
}

#[test]
fn the_log_from_an_older_checkpoint_is_cut_off_before_records_that_cannot_be_applied() {
    let device = Arc::new(MemoryDevice::new(SEGMENT_COUNT * SEGMENT_BYTES));
    let disk = formatted(&device);
    let list = disk.allocate_list().expect("the disk is writable");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default()).write_pages(list, 0, vec![7; PAGE_SIZE]);
    disk.commit(aru).expect("there is room");
    disk.flush(CommitSeq::LATEST).expect("the device works");
    let mut found = RecoveredLog::on(&*device);
    let last = found.chain.partials.last().expect("a unit was flushed");
    let last_unit = last.header.commit_seq;
    // The record releases the segment of the page for reuse, as if nothing in it were live.
    let mut records = Vec::new();
    let segment = *found.chain.payload_segments.last().unwrap_or(&last.header.segment);
    Record::Reuse { segment }.encode(&mut records);
    let behind = Scanned::behind(last, records);
    found.chain.partials.push(behind);
    let (unit, state, misfit) = found.forward(&*device).expect("a state is left");
    assert_eq!(unit, last_unit);
    assert!(state.segments().live_bytes() >= PAGE_SIZE as u64);
    assert!(
        matches!(&misfit, Some(Error::Corrupted(why)) if why.contains("for reuse")),
        "{misfit:?}"
    );
}

fn bytes_of(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; device.len_bytes() as usize];
    device.read_at(0, &mut bytes).expect("memory can be read");
    bytes
}

#[test]
fn segments_clean_before_a_crash_are_clean_after_it_without_a_checkpoint() {
    let device = Arc::new(MemoryDevice::new(SEGMENT_COUNT * SEGMENT_BYTES));
    let disk = formatted(&device);
    let list = disk.allocate_list().expect("the disk is writable");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    disk.commit(aru).expect("there is room");
    let page_count = SEGMENT_COUNT * SEGMENT_BYTES * 2 / 3 / PAGE_SIZE as u64;
    let mut rng = Rng::new(1);
    let mut write = |page: u64| {
        let mut bytes = vec![0; PAGE_SIZE];
        rng.fill(&mut bytes);
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, page, bytes);
        disk.commit(aru).expect("there is room");
        while disk.background_step().expect("the device works") {}
        rng.below(page_count)
    };
    for page in 0..page_count {
        write(page);
    }
    disk.checkpoint().expect("the device works");
    let reused_before = disk.stats().reused_segments;
    let mut page = 0;
    for _ in 0..20 {
        for _ in 0..page_count / 10 {
            page = write(page);
        }
        disk.flush(CommitSeq::LATEST).expect("the device works");
        let clean = disk.volume().read().state().segments().clean_segments();
        let found = clean_after_crash(&*device);
        let lacking: Vec<_> = clean.iter().filter(|segment| !found.contains(segment)).collect();
        assert!(lacking.is_empty(), "{lacking:?} of {clean:?}; found are {found:?}");
    }
    assert!(disk.stats().reused_segments > reused_before + 100, "{:?}", disk.stats());
}
