//! Pages of which a part is changed, again and again: the rest of the page is in memory, and it is
//! always what the file has.

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_device::sim::SimDevice;
use dendro_disk::{CommitSeq, LogicalDisk, PAGE_SIZE};
use dendro_fs::{Caller, FileSystem, Ino};
use dendro_logdisk::{FormatOptions, LogDisk};

use crate::common::files_on;

struct Fixture {
    device: Arc<SimDevice>,
    disk: Arc<LogDisk>,
    fs: FileSystem,
}

impl Fixture {
    fn new(len_bytes: u64, segment_size_bytes: u64) -> Self {
        let device = Arc::new(SimDevice::new(len_bytes, 5));
        let options = FormatOptions { segment_size_bytes, ..FormatOptions::default() };
        let (disk, fs) = files_on(&(Arc::clone(&device) as _), &options, 32 << 20);
        Self { device, disk, fs }
    }

    fn create(&self, name: &str) -> Ino {
        let caller = Caller::default();
        let made = self.fs.create(&caller, Ino::ROOT, name.as_bytes(), 0o644, Default::default());
        made.unwrap().ino
    }

    fn write(&self, ino: Ino, at: usize, data: &[u8]) {
        assert_eq!(self.fs.write(ino, at as u64, data, false).unwrap(), data.len());
    }

    /// Nothing stays in memory because it has not been written yet.
    fn flush(&self) {
        self.disk.flush(CommitSeq::LATEST).unwrap();
    }

    fn contents(&self, ino: Ino, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert_eq!(self.fs.read(ino, 0, &mut bytes).unwrap(), len);
        bytes
    }
}

/// A file in the volume and in memory.
struct File<'f> {
    fixture: &'f Fixture,
    ino: Ino,
    bytes: Vec<u8>,
}

impl<'f> File<'f> {
    fn new(fixture: &'f Fixture, name: &str, bytes: Vec<u8>) -> Self {
        let ino = fixture.create(name);
        fixture.write(ino, 0, &bytes);
        Self { fixture, ino, bytes }
    }

    /// Changes up to 200 bytes.
    fn change(&mut self, rng: &mut Rng) {
        let len = 1 + rng.below(200) as usize;
        let at = rng.below((self.bytes.len() - len) as u64) as usize;
        rng.fill(&mut self.bytes[at..at + len]);
        self.fixture.write(self.ino, at, &self.bytes[at..at + len]);
    }

    fn append(&mut self, rng: &mut Rng) {
        let at = self.bytes.len();
        self.bytes.resize(at + 1 + rng.below(200) as usize, 0);
        rng.fill(&mut self.bytes[at..]);
        self.fixture.write(self.ino, at, &self.bytes[at..]);
    }

    fn check(&self) {
        assert!(self.fixture.contents(self.ino, self.bytes.len()) == self.bytes);
    }
}

fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

#[test]
fn a_page_that_was_changed_in_part_is_not_read_to_be_changed_again() {
    const PAGES: usize = 200;
    let fixture = Fixture::new(64 << 20, 1 << 20);
    let mut rng = Rng::new(1);
    let mut accounts = File::new(&fixture, "accounts", noise(&mut rng, PAGES * PAGE_SIZE));
    let mut log = File::new(&fixture, "log", noise(&mut rng, 1000));
    for page in 0..PAGES {
        let at = page * PAGE_SIZE + 100;
        accounts.bytes[at] ^= 1;
        fixture.write(accounts.ino, at, &accounts.bytes[at..=at]);
    }
    log.append(&mut rng);
    fixture.flush();
    let read_count = fixture.device.counts().reads;
    for _ in 0..1000 {
        accounts.change(&mut rng);
        log.append(&mut rng);
        fixture.flush();
    }
    assert_eq!(fixture.device.counts().reads, read_count);
    accounts.check();
    log.check();
}

#[test]
fn the_end_of_a_new_file_is_not_read_to_be_appended_to() {
    let fixture = Fixture::new(64 << 20, 1 << 20);
    let mut rng = Rng::new(3);
    let mut files: Vec<_> = (0..100)
        .map(|number| {
            let len = 1 + rng.below(2 * PAGE_SIZE as u64) as usize;
            File::new(&fixture, &format!("f{number}"), noise(&mut rng, len))
        })
        .collect();
    fixture.flush();
    let read_count = fixture.device.counts().reads;
    files.iter_mut().for_each(|file| file.append(&mut rng));
    assert_eq!(fixture.device.counts().reads, read_count);
    fixture.flush();
    files.iter().for_each(File::check);
}

#[test]
fn what_is_kept_of_a_page_is_never_older_than_the_page() {
    let fixture = Fixture::new(24 << 20, 128 << 10);
    let mut rng = Rng::new(2);
    let mut files: Vec<_> = (0..4)
        .map(|number| File::new(&fixture, &format!("f{number}"), noise(&mut rng, 2 << 20)))
        .collect();
    for round in 0..12_000 {
        let file = &mut files[rng.below(4) as usize];
        match rng.below(40) {
            0 => fixture.flush(),
            1 => {
                // A whole page replaces what was kept of it.
                let at = rng.below(500) as usize * PAGE_SIZE;
                rng.fill(&mut file.bytes[at..at + PAGE_SIZE]);
                fixture.write(file.ino, at, &file.bytes[at..at + PAGE_SIZE]);
            }
            2..4 => while fixture.disk.background_step().unwrap() {},
            _ => file.change(&mut rng),
        }
        if round % 1000 == 0 {
            files.iter().for_each(File::check);
        }
    }
    files.iter().for_each(File::check);
    let stats = fixture.disk.stats();
    assert!(stats.written_bytes > 2 * (24 << 20), "no segment was filled again");
    assert!(stats.recent_page_bytes > 0);
}
