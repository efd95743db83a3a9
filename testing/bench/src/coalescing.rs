//! What coalescing gains: a file that was written over in random order is read from front to back,
//! before and after.
//!
//! The file is on an image that is read past the host's cache. Times are of reading all of it, in
//! calls of a MiB, the map's nodes in memory.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dendro_base::{Clock, Rng, SystemClock};
use dendro_device::{
    AlignedBuf, Device, Direct, FileDevice, IoSlice, IoSliceMut, OpenOptions as DeviceOptions,
};
use dendro_disk::{Aru, CommitSeq, Lid, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{Discards, FormatOptions, LogDisk, OpenOptions, Place, format};

use crate::engine::new_list;
use crate::file_device::with_all_blocks;
use crate::measure::{median, time};

const MIB: usize = 1 << 20;
const VOLUME_BYTES: u64 = 1 << 30;
const FILE_BYTES: usize = 256 * MIB;
const ROUNDS: usize = 3;

/// A file that counts how often it is read.
struct Counting {
    device: FileDevice,
    reads: AtomicU64,
}

impl Device for Counting {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> dendro_device::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.device.read_at(offset, buf)
    }
    fn read_vectored_at(
        &self,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> dendro_device::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.device.read_vectored_at(offset, parts)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> dendro_device::Result<()> {
        self.device.write_at(offset, bytes)
    }
    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> dendro_device::Result<()> {
        self.device.write_vectored_at(offset, parts)
    }
    fn flush(&self) -> dendro_device::Result<()> {
        self.device.flush()
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> dendro_device::Result<()> {
        self.device.discard(offset, len_bytes)
    }
}

pub(crate) fn run(directory: &Path) -> io::Result<()> {
    println!(
        "{:<32} {:>15} {:>15} {:>15} {:>9}",
        "256 MiB read in order, each MiB", "as written", "then", "coalesced", "written"
    );
    let image = directory.join("dendro-bench.img");
    let result = (|| {
        for (record_bytes, share) in
            [(64 << 10, 100), (16 << 10, 100), (4 << 10, 100), (4 << 10, 10)]
        {
            row(&image, record_bytes, share)?;
        }
        Ok(())
    })();
    let _ = std::fs::remove_file(&image);
    result
}

/// A volume on an image whose blocks the host has allocated.
fn volume(image: &Path) -> io::Result<(LogDisk, Arc<Counting>)> {
    let _ = std::fs::remove_file(image);
    drop(with_all_blocks(image, VOLUME_BYTES)?);
    let device = DeviceOptions::new().direct(Direct::Auto).open(image).map_err(io::Error::other)?;
    let counting = Arc::new(Counting { device, reads: AtomicU64::new(0) });
    let device: Arc<dyn Device> = Arc::clone(&counting) as _;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    format(&device, &FormatOptions::default(), &clock).map_err(io::Error::other)?;
    let options = OpenOptions { discards: Discards::Never, ..OpenOptions::default() };
    let disk = LogDisk::open(device, options, clock).map_err(io::Error::other)?;
    Ok((disk, counting))
}

/// Writes a file in order, then `share` percent of as many bytes over it in records at random.
fn row(image: &Path, record_bytes: usize, share: usize) -> io::Result<()> {
    let (disk, device) = volume(image)?;
    let list = new_list(&disk);
    let mut data = AlignedBuf::zeroed(MIB);
    let mut rng = Rng::new(7);
    rng.fill(&mut data);
    let mut write = |at: usize, len: usize| {
        data[0] = data[0].wrapping_add(1);
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, (at / PAGE_SIZE) as u64, &data[..len]);
        disk.commit(aru).expect("there is room");
        while disk.background_step().expect("the file can be written") {}
    };
    for at in (0..FILE_BYTES).step_by(MIB) {
        write(at, MIB);
    }
    let in_order = read(&disk, &device, list);
    for _ in 0..FILE_BYTES / record_bytes * share / 100 {
        write(rng.below((FILE_BYTES / record_bytes) as u64) as usize * record_bytes, record_bytes);
    }
    let scattered = read(&disk, &device, list);
    let mut next = Some(Place::START);
    while let Some(place) = next {
        let done = disk.coalesce(View::HEAD, place, Lid::CLIENT_END, false);
        let done = done.map_err(io::Error::other)?;
        assert!(!done.lacks_room, "half of the volume is free");
        next = done.next;
        while disk.background_step().map_err(io::Error::other)? {}
    }
    let coalesced = read(&disk, &device, list);
    let what = format!("{share} % over in {} KiB", record_bytes >> 10);
    let show = |(reads, seconds): (f64, f64)| format!("{reads:.1} in {:.2} ms", seconds * 1000.0);
    println!(
        "{what:<32} {:>15} {:>15} {:>15} {:>5} MiB",
        show(in_order),
        show(scattered),
        show(coalesced),
        disk.stats().coalesced_bytes / MIB as u64
    );
    Ok(())
}

/// Reads of the device, and seconds, that a MiB of the list takes.
fn read(disk: &LogDisk, device: &Counting, list: Lid) -> (f64, f64) {
    disk.flush(CommitSeq::LATEST).expect("the file can be written");
    let mut buf = AlignedBuf::zeroed(MIB);
    let mut all = || {
        for number in 0..FILE_BYTES / MIB {
            let at = (number * MIB / PAGE_SIZE) as u64;
            disk.read_pages(View::HEAD, list, at, &mut buf).expect("it can be read");
        }
    };
    // The map's nodes are in memory then.
    all();
    device.reads.store(0, Ordering::Relaxed);
    let seconds = (0..ROUNDS).map(|_| time(&mut all).as_secs_f64()).collect();
    let mib = (FILE_BYTES / MIB) as f64;
    let reads = device.reads.load(Ordering::Relaxed) as f64 / ROUNDS as f64;
    (reads / mib, median(seconds) / mib)
}
