//! Volumes of which the device has lost its end, and their logs.

use std::sync::Arc;

use dendro_base::{ManualClock, Rng};
use dendro_check::{Extent, Options, verify};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, CommitSeq, Lid, ListHints, LogicalDisk, Op, View};
use dendro_logdisk::{FormatOptions, LogDisk, OnLoss, OpenOptions, format};
use dendro_policy::{Classes, Scatter};

use crate::rebuild::{SEGMENT_LEN_BYTES, open, rebuilt};

/// Pages that were written to a list after the last checkpoint, by a log in a lower segment than
/// their own, while other low segments are clean.
fn with_pages_behind_their_log() -> (Vec<u8>, Lid, Vec<u8>) {
    let device = Arc::new(MemoryDevice::new(8 << 20));
    let clock = Arc::<ManualClock>::default;
    let options = FormatOptions { segment_size_bytes: 128 << 10, ..FormatOptions::default() };
    format(&(Arc::clone(&device) as Arc<dyn Device>), &options, &(clock() as _)).expect("it fits");
    let policy = Arc::new(Scatter::new(Classes { users: 1, survivors: 1 }, 4));
    let options = OpenOptions { stream_bytes: 0, policy, ..OpenOptions::default() };
    let disk = LogDisk::open(Arc::clone(&device) as _, options, clock()).expect("it works");
    let mut rng = Rng::new(1);
    let mut write = |list, first_page, count: usize| {
        let mut data = vec![0; count * 4096];
        rng.fill(&mut data);
        let mut aru = Aru::new(View::HEAD);
        aru.push(Op::WritePages { list, first_page, data: data.clone().into() });
        disk.commit(aru).expect("there is room");
        disk.flush(CommitSeq::LATEST).expect("it works");
        data
    };
    let [filler, list] = [(); 2].map(|()| {
        let list = disk.allocate_list().expect("it works");
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, ListHints::default());
        disk.commit(aru).expect("there is room");
        list
    });
    write(filler, 0, 20 * 32 + 4);
    let mut aru = Aru::new(View::HEAD);
    aru.delete_list(filler);
    disk.commit(aru).expect("there is room");
    while disk.background_step().expect("it works") {}
    disk.checkpoint().expect("it works");
    let pages = (0..6).flat_map(|unit| write(list, 2 * unit, 2)).collect();
    (device.to_bytes(), list, pages)
}

#[test]
fn a_log_that_names_what_the_device_has_lost_ends_before_that() {
    let (whole, list, pages) = with_pages_behind_their_log();
    let mut lost_count = 0;
    for count in 17..40 {
        let mut bytes = whole[..count * SEGMENT_LEN_BYTES].to_vec();
        assert_eq!(rebuilt(&mut bytes).extent, Extent::Parts);
        let opened = open(&bytes).map(drop);
        lost_count += u32::from(matches!(opened, Err(dendro_disk::Error::Lost(_))));
        let options = OpenOptions { on_loss: OnLoss::Truncate, ..OpenOptions::default() };
        let device = Arc::new(MemoryDevice::from_bytes(&bytes));
        let disk = LogDisk::open(Arc::clone(&device) as _, options, Arc::<ManualClock>::default());
        let disk = disk.unwrap_or_else(|error| panic!("{count} segments: {error}"));
        let found_count = disk.count_pages(View::HEAD, list, 0..100).expect("it can be read");
        assert!(opened.is_err() || found_count == 12, "{found_count} pages");
        let mut found = vec![0; found_count as usize * 4096];
        disk.read_pages(View::HEAD, list, 0, &mut found).expect("they are there");
        assert!(found == pages[..found.len()]);
        disk.shut_down().expect("it works");
        assert!(verify(&*device, &Options { data: true }).is_sound());
    }
    assert!(lost_count > 0, "nothing that the log names was lost");
}
