use dendro_base::units::PAGE_SIZE;
use dendro_device::MemoryDevice;
use dendro_format::Layout;

use super::*;
use crate::log::segments::Segments;

#[test]
fn a_thread_that_assists_leaves_what_others_queue_meanwhile() {
    let layout = Layout::new(19, 64).expect("a valid layout");
    let segments = Segments::new(layout);
    let device = MemoryDevice::new(layout.len_bytes());
    let writer = Writer::default();
    // Every other page, so that each takes a write of its own.
    let push = |index: u64| {
        let base = Addr::from_bytes(layout.segment_offset(SegmentNo(8)) + 2 * index * 4096);
        let buf = AlignedBuf::zeroed(PAGE_SIZE);
        let closed = Closed::new(buf, PAGE_SIZE, base, segments.generation_at(base), false);
        writer.push(Arc::new(closed));
    };
    (0..MAX_WAITING as u64 + 2).for_each(push);
    let count = writer.queued_count();
    let mut write_count = 0;
    while writer.is_over_limit_among(count) {
        push(count + write_count);
        write_count += 1;
        let write_again = |_: u64, _: &[u8]| Err(Refusal::from("it cannot fail".to_owned()));
        assert!(writer.write_one(&device, write_again).is_ok_and(|wrote| wrote));
    }
    assert_eq!(write_count, 3);
    assert!(writer.is_over_limit(), "the others assist with theirs");
}
