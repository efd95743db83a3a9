//! A device on which other threads commit during each read, and a large map on it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dendro_base::{Clock, ManualClock};
use dendro_device::{Device, MemoryDevice, Result};
use dendro_disk::{Aru, Lid, LogicalDisk, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

use super::new_list;

const CACHE_BYTES: u64 = 256 << 10;
pub(crate) const CHUNK_PAGES: u64 = 32;

/// What other threads do during a read.
type Others = Arc<dyn Fn() + Send + Sync>;

/// A device that counts reads, and lets another thread commit during each of them.
pub(crate) struct Busy {
    pub(crate) memory: MemoryDevice,
    read_count: AtomicU64,
    /// Those of them that no commit of the other thread issued.
    own_count: AtomicU64,
    others: Mutex<Option<Others>>,
    is_committing: AtomicBool,
}

impl Device for Busy {
    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        // A walk that would never end is ended here, and is then seen to have taken long.
        let is_endless = self.read_count.fetch_add(1, Ordering::Relaxed) > 100_000;
        if !self.is_committing.load(Ordering::Relaxed) {
            self.own_count.fetch_add(1, Ordering::Relaxed);
        }
        let others = self.others.lock().expect("no thread panics").clone();
        if let Some(others) = others
            && !is_endless
            && !self.is_committing.swap(true, Ordering::Relaxed)
        {
            others();
            self.is_committing.store(false, Ordering::Relaxed);
        }
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.memory.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<()> {
        self.memory.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.memory.discard(offset, len_bytes)
    }
}

impl Busy {
    /// Returns how many reads were not issued by the other thread, which cleans as well where
    /// clean segments are few.
    pub(crate) fn own_reads(&self) -> u64 {
        self.own_count.load(Ordering::Relaxed)
    }

    /// Returns how many reads `work` takes while no other thread does anything.
    pub(crate) fn reads_alone(&self, work: impl FnOnce()) -> u64 {
        let before = self.read_count.load(Ordering::Relaxed);
        work();
        self.read_count.load(Ordering::Relaxed) - before
    }

    /// Returns how many reads `work` takes while another thread commits.
    pub(crate) fn reads_of(&self, disk: &Arc<LogDisk>, others: Lid, work: impl FnOnce()) -> u64 {
        let disk = Arc::downgrade(disk);
        let commit = move || {
            if let Some(disk) = disk.upgrade() {
                let mut aru = Aru::new(View::HEAD);
                aru.put_record(others, 0, vec![1; 8]);
                disk.commit(aru).expect("there is room");
            }
        };
        self.reads_beside(Arc::new(commit), work)
    }

    /// Returns how many reads `work` takes while another thread does something during each.
    pub(crate) fn reads_beside(&self, others: Others, work: impl FnOnce()) -> u64 {
        *self.others.lock().expect("no thread panics") = Some(others);
        let read_count = self.reads_alone(work);
        *self.others.lock().expect("no thread panics") = None;
        read_count
    }
}

/// Returns a disk with a list that has a page in each of `count` chunks and a record beside each.
/// Their nodes are many times as many as the cache holds; their approximate number is returned too.
pub(crate) fn disk_with_large_list(count: u64) -> (Arc<Busy>, Arc<LogDisk>, Lid, u64) {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let device = Arc::new(Busy {
        memory: MemoryDevice::new(256 << 20),
        read_count: AtomicU64::new(0),
        own_count: AtomicU64::new(0),
        others: Mutex::new(None),
        is_committing: AtomicBool::new(false),
    });
    let dynamic = Arc::clone(&device) as Arc<dyn Device>;
    let options = FormatOptions { segment_size_bytes: 256 << 10, ..FormatOptions::default() };
    format(&dynamic, &options, &clock).expect("the device is large enough");
    let options = OpenOptions { cache_size_bytes: CACHE_BYTES, ..OpenOptions::default() };
    let disk = Arc::new(LogDisk::open(dynamic, options, clock).expect("it was formatted"));
    let list = new_list(&disk);
    for from in (0..count).step_by(256) {
        let mut aru = Aru::new(View::HEAD);
        for number in from..count.min(from + 256) {
            aru.write_pages(list, number * CHUNK_PAGES, vec![9; 16]);
            aru.put_record(list, number, vec![7; 16]);
        }
        disk.commit(aru).expect("there is room");
    }
    disk.checkpoint().expect("the device works");
    let node_count = count * 64 / 4096;
    (device, disk, list, node_count)
}
