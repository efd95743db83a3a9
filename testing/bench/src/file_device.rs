//! (b), (c) The log on a file, beside plain writing to one.

use std::fs::OpenOptions as FileOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use dendro_device::{AlignedBuf, Device, FileDevice};
use dendro_disk::{Aru, CommitSeq, LogicalDisk, PAGE_SIZE, View};

use crate::engine;
use crate::measure::{beside, print, time};

const MIB: usize = 1 << 20;
const BULK_BYTES: usize = 512 * MIB;
const IMAGE_BYTES: u64 = 4 << 30;
const SOURCE_BYTES: usize = 256 * MIB;
const APPENDS: usize = 500;
const O_DIRECT: i32 = 0o40000;

pub(crate) fn run(directory: &Path) -> io::Result<()> {
    let image = directory.join("dendro-bench.img");
    let plain = directory.join("dendro-bench.plain");
    let result = compare(&image, &plain);
    for path in [&image, &plain] {
        let _ = std::fs::remove_file(path);
    }
    result
}

/// A new image file of which the host has allocated all blocks.
pub(crate) fn with_all_blocks(image: &Path, len_bytes: u64) -> io::Result<FileDevice> {
    let device = FileDevice::create(image, len_bytes).map_err(io::Error::other)?;
    let zeros = AlignedBuf::zeroed(MIB);
    for offset in (0..len_bytes).step_by(MIB) {
        device.write_at(offset, &zeros).map_err(io::Error::other)?;
    }
    device.flush().map_err(io::Error::other)?;
    Ok(device)
}

fn compare(image: &Path, plain: &Path) -> io::Result<()> {
    // Both files have all their blocks, so that neither waits for the host to allocate any.
    let device = with_all_blocks(image, IMAGE_BYTES)?;
    let disk = engine::disk_keeping_blocks(Arc::new(device) as Arc<dyn Device>);
    let list = engine::new_list(&disk);
    // Both write data that the processor's caches do not hold, as data to be written are.
    let mut source = AlignedBuf::zeroed(SOURCE_BYTES);
    dendro_base::Rng::new(1).fill(&mut source);
    let file = FileOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(O_DIRECT)
        .open(plain)?;
    let zeros = AlignedBuf::zeroed(MIB);
    for offset in (0..BULK_BYTES).step_by(MIB) {
        file.write_all_at(&zeros, offset as u64)?;
    }
    file.sync_all()?;
    let ours = || {
        time(|| {
            engine::with_writer(&disk, || {
                for (number, data) in (0..).zip(bulk(&source)) {
                    let mut aru = Aru::new(View::HEAD);
                    aru.write_pages(list, number * (MIB / PAGE_SIZE) as u64, data);
                    disk.commit(aru).expect("there is room");
                }
                disk.flush(CommitSeq::LATEST).expect("the file can be written");
            });
        })
    };
    let theirs = || {
        time(|| {
            for (number, data) in (0..).zip(bulk(&source)) {
                file.write_all_at(data, number * MIB as u64).expect("there is room");
            }
            file.sync_data().expect("the file can be written");
        })
    };
    let gib = BULK_BYTES as f64 / f64::from(1 << 30);
    let (us, them) = beside(7, ours, theirs);
    print("b  sequential writing, and plain O_DIRECT", " GiB/s", gib / us, gib / them);
    fsyncs(&disk, &file, list)
}

/// All that is written in a round, in pieces of 1 MiB.
fn bulk(source: &[u8]) -> impl Iterator<Item = &[u8]> {
    source.chunks(MIB).cycle().take(BULK_BYTES / MIB)
}

fn fsyncs(
    disk: &dendro_logdisk::LogDisk,
    file: &std::fs::File,
    list: dendro_disk::Lid,
) -> io::Result<()> {
    let block = AlignedBuf::zeroed(PAGE_SIZE);
    let mut next = 1 << 30;
    let ours = || {
        time(|| {
            for _ in 0..APPENDS {
                let mut aru = Aru::new(View::HEAD);
                aru.write_pages(list, next, &[9_u8; 100][..]);
                aru.put_record(list, 0, &[1_u8; 128][..]);
                let seq = disk.commit(aru).expect("there is room");
                disk.flush(seq).expect("the file can be written");
                next += 1;
            }
        })
    };
    let theirs = || {
        time(|| {
            for number in 0..APPENDS {
                file.write_all_at(&block, (number * PAGE_SIZE) as u64).expect("it is there");
                file.sync_data().expect("the file can be written");
            }
        })
    };
    let count = APPENDS as f64;
    let (us, them) = beside(5, ours, theirs);
    print("c  small append + fsync, and 4 KiB write + fdatasync", "/s", count / us, count / them);
    shared_fsyncs(disk, list, count / them);
    Ok(())
}

/// The same by clients side by side, who share flushes.
fn shared_fsyncs(disk: &dendro_logdisk::LogDisk, list: dendro_disk::Lid, plain_rate: f64) {
    const CLIENTS: u64 = 8;
    let append = |client: u64| {
        for number in 0..APPENDS as u64 {
            let mut aru = Aru::new(View::HEAD);
            aru.write_pages(list, (client << 20) + number, &[9_u8; 100][..]);
            aru.put_record(list, 1 + client, &[1_u8; 128][..]);
            let seq = disk.commit(aru).expect("there is room");
            disk.flush(seq).expect("the file can be written");
        }
    };
    let mut rates: Vec<f64> = (0..5)
        .map(|_| {
            let took = time(|| {
                std::thread::scope(|scope| {
                    for client in 0..CLIENTS {
                        scope.spawn(move || append(client));
                    }
                });
            });
            (CLIENTS as usize * APPENDS) as f64 / took.as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    let what = "c  the same by 8 clients together, and 1 plain one";
    print(what, "/s", rates[2], plain_rate);
}
