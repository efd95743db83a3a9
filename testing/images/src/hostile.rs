//! Damaged images under the engine: whatever is there, it answers.

use std::sync::Arc;

use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, CommitSeq, Lid, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

use crate::forge::Forge;
use crate::{golden, manifest};

/// Lists whose contents are read; a damaged volume may claim to have any number.
const MAX_LISTS: usize = 64;

/// Background work that goes on for longer has no end.
const MAX_BACKGROUND_STEPS: usize = 100_000;

/// Opens an image, reads from it, writes to it and shuts it down, as far as it lets itself.
/// Returns what was read, if all could be.
///
/// # Panics
/// When the engine does.
pub fn exercise(image: &[u8]) -> Option<String> {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(image));
    let disk = LogDisk::open(device, OpenOptions::default(), clock).ok()?;
    let before = manifest::of_first(&disk, View::HEAD, MAX_LISTS).ok();
    let _ = write(&disk);
    finish_background(&disk);
    let _ = disk.shut_down();
    let _ = (disk.stats(), disk.space(), disk.read_only_reason());
    before
}

/// Does the background work that is due.
///
/// # Panics
/// When it has no end.
pub fn finish_background(disk: &LogDisk) {
    let is_done = (0..MAX_BACKGROUND_STEPS).any(|_| !matches!(disk.background_step(), Ok(true)));
    assert!(is_done, "background work has no end");
}

fn write(disk: &LogDisk) -> dendro_disk::Result<()> {
    for list in disk.lists(View::HEAD, Lid(0), 8)? {
        let mut aru = Aru::new(View::HEAD);
        let page = [7; PAGE_SIZE];
        aru.put_record(list, 1, &b"new"[..]).write_pages(list, 2, &page).punch_pages(list, 0, 2);
        let _ = disk.commit(aru);
    }
    let list = disk.allocate_list()?;
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, Default::default()).delete_list(Lid::FIRST);
    disk.commit(aru)?;
    disk.flush(CommitSeq::LATEST)
}

/// What a fuzzer forges: the golden images, and one whose map has three levels.
///
/// # Panics
/// When the golden images are not there, or one is not sound.
#[must_use]
pub fn forges() -> Vec<Forge> {
    let golden = golden::all().expect("the golden images are there");
    let images = golden.into_iter().map(|golden| golden.image);
    let images = images.chain([tall().expect("there is room")]);
    images.map(|image| Forge::new(&image).expect("it is sound")).collect()
}

/// A volume whose map has three levels, with records and pages.
fn tall() -> dendro_disk::Result<Vec<u8>> {
    let memory = Arc::new(MemoryDevice::new(8 << 20));
    let device: Arc<dyn Device> = Arc::clone(&memory) as _;
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: 128 << 10, ..FormatOptions::default() };
    format(&device, &options, &clock)?;
    let disk = LogDisk::open(device, OpenOptions::default(), clock)?;
    for number in 0..40 {
        let list = disk.allocate_list()?;
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, ListHints::default());
        for index in 0..55 {
            aru.put_record(list, index, [number as u8; 1000]);
        }
        aru.write_pages(list, number, vec![number as u8; 2 * PAGE_SIZE]);
        disk.commit(aru)?;
    }
    disk.shut_down()?;
    Ok(memory.to_bytes())
}

/// Damages a random part of what an image holds.
pub fn damage(rng: &mut Rng, image: &mut [u8]) {
    let blocks: Vec<usize> = (0..image.len())
        .step_by(PAGE_SIZE)
        .filter(|&at| image[at..at + PAGE_SIZE].iter().any(|&byte| byte != 0))
        .collect();
    for _ in 0..=rng.below(4) {
        let at = blocks[rng.below(blocks.len() as u64) as usize];
        let mut bytes = image[at..at + PAGE_SIZE].to_vec();
        dendro_format::testing::mutate(rng, &mut bytes);
        bytes.resize(PAGE_SIZE, 0);
        image[at..at + PAGE_SIZE].copy_from_slice(&bytes);
    }
}
