//! What every device promises, asked of each of them.

use std::sync::Arc;

use dendro_base::Rng;
use dendro_device::sim::SimDevice;
use dendro_device::{
    AlignedBuf, BLOCK_SIZE, Device, Direct, Error, FileDevice, IoSlice, IoSliceMut, MemoryDevice,
    OpenOptions, ReadAhead, ReadOf,
};
use tempfile::TempDir;

const LEN_BYTES: u64 = 3 << 20;

/// Runs `check` on a fresh device of each kind, `LEN_BYTES` long.
fn on_every_device(check: impl Fn(&dyn Device)) {
    check(&MemoryDevice::new(LEN_BYTES));
    check(&SimDevice::new(LEN_BYTES, 1));
    check(&Arc::new(MemoryDevice::new(LEN_BYTES)));
    check(&ReadAhead::new(MemoryDevice::new(LEN_BYTES)));
    for (direct, folder) in [
        (Direct::Auto, TempDir::new().unwrap()),
        (Direct::Never, TempDir::new().unwrap()),
        // Where temporary files are in memory, direct I/O may not work; here it mostly does.
        (Direct::Auto, TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()),
        (Direct::Writes, TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()),
    ] {
        let path = folder.path().join("volume");
        let device = OpenOptions::new().direct(direct).create(&path, LEN_BYTES).unwrap();
        assert!(direct != Direct::Never || !device.is_direct());
        check(&device);
    }
}

fn random_bytes(len: usize, rng: &mut Rng) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    rng.fill(&mut buf);
    buf
}

#[test]
fn a_read_returns_what_the_last_write_put_there() {
    on_every_device(|device| {
        assert_eq!(device.len_bytes(), LEN_BYTES);
        let mut rng = Rng::new(4);
        let mut expected = random_bytes(LEN_BYTES as usize, &mut rng);
        device.write_at(0, &expected).unwrap();
        for round in 0..200 {
            let block_count = 1 + rng.below(if round % 20 == 0 { 400 } else { 8 });
            let first = rng.below(LEN_BYTES / BLOCK_SIZE as u64 - block_count + 1);
            let offset = first as usize * BLOCK_SIZE;
            let len = block_count as usize * BLOCK_SIZE;
            // Every other write is of memory that is not aligned.
            let skip = (round % 2) * 3;
            let memory = random_bytes(len + skip, &mut rng);
            let bytes = &memory[skip..skip + len];
            device.write_at(offset as u64, bytes).unwrap();
            expected[offset..offset + len].copy_from_slice(bytes);

            let len = rng.below(if round % 20 == 0 { LEN_BYTES } else { 9000 }) as usize;
            let offset = rng.below(LEN_BYTES - len as u64 + 1) as usize;
            let mut read = vec![0; len];
            device.read_at(offset as u64, &mut read).unwrap();
            assert!(read == expected[offset..offset + len], "{len} bytes at {offset}");
        }
        device.flush().unwrap();
        let mut all = AlignedBuf::zeroed(LEN_BYTES as usize);
        device.read_at(0, &mut all).unwrap();
        assert!(*all == *expected);
    });
}

#[test]
fn parts_are_read_and_written_one_after_the_other() {
    on_every_device(|device| {
        let mut rng = Rng::new(11);
        let mut expected = random_bytes(LEN_BYTES as usize, &mut rng);
        device.write_at(0, &expected).unwrap();
        for round in 0..100 {
            // Memory that is aligned, or not, in parts that now and then are empty.
            let skip = (round % 2) * 3;
            let counts: Vec<usize> = (0..rng.below(5)).map(|_| rng.below(20) as usize).collect();
            let lens: Vec<usize> = counts.iter().map(|count| count * BLOCK_SIZE).collect();
            let len: usize = lens.iter().sum();
            let first = rng.below((LEN_BYTES as usize - len) as u64 / BLOCK_SIZE as u64 + 1);
            let offset = first as usize * BLOCK_SIZE;
            let memory = random_bytes(len + skip, &mut rng);
            let mut rest = &memory[skip..];
            let parts: Vec<IoSlice<'_>> =
                lens.iter().map(|&len| IoSlice::new(rest.split_off(..len).unwrap())).collect();
            device.write_vectored_at(offset as u64, &parts).unwrap();
            expected[offset..offset + len].copy_from_slice(&memory[skip..skip + len]);

            // Reads need not be of whole blocks.
            let lens: Vec<usize> = lens.iter().map(|&len| len - len.min(round % 3)).collect();
            let len: usize = lens.iter().sum();
            let mut read = AlignedBuf::zeroed(len + skip);
            let mut rest = &mut read[skip..];
            let mut parts: Vec<IoSliceMut<'_>> = lens
                .iter()
                .map(|&len| IoSliceMut::new(rest.split_off_mut(..len).unwrap()))
                .collect();
            device.read_vectored_at(offset as u64, &mut parts).unwrap();
            assert!(read[skip..skip + len] == expected[offset..offset + len], "round {round}");
        }
        let mut all = AlignedBuf::zeroed(LEN_BYTES as usize);
        device.read_at(0, &mut all).unwrap();
        assert!(*all == *expected);
    });
}

#[test]
fn reads_made_together_are_as_those_made_one_by_one() {
    on_every_device(|device| {
        let mut rng = Rng::new(12);
        let expected = random_bytes(LEN_BYTES as usize, &mut rng);
        device.write_at(0, &expected).unwrap();
        for round in 0..60 {
            // Whole blocks in aligned memory, and anything in any memory; more reads than a batch.
            let unit = if round % 3 == 0 { 1 } else { BLOCK_SIZE };
            let count = rng.below(if round % 10 == 0 { 300 } else { 20 }) as usize;
            let mut bufs: Vec<_> = (0..count).map(|_| AlignedBuf::zeroed(3 * BLOCK_SIZE)).collect();
            let skip = if round % 2 == 0 { 0 } else { 3 };
            let lens: Vec<[usize; 2]> = (0..count)
                .map(|_| [0; 2].map(|_| rng.below((BLOCK_SIZE / unit) as u64 + 1) as usize * unit))
                .collect();
            let offsets: Vec<usize> = lens
                .iter()
                .map(|lens| {
                    let places = LEN_BYTES as usize - lens[0] - lens[1];
                    rng.below((places / unit) as u64 + 1) as usize * unit
                })
                .collect();
            let mut parts: Vec<_> = bufs
                .iter_mut()
                .zip(&lens)
                .map(|(buf, lens)| {
                    let (a, b) = buf[skip..skip + lens[0] + lens[1]].split_at_mut(lens[0]);
                    [IoSliceMut::new(a), IoSliceMut::new(b)]
                })
                .collect();
            let mut reads: Vec<_> = parts
                .iter_mut()
                .zip(&offsets)
                .map(|(parts, &offset)| ReadOf { offset: offset as u64, parts })
                .collect();
            device.read_each(&mut reads).unwrap();
            for (at, buf) in bufs.iter().enumerate() {
                let len = lens[at][0] + lens[at][1];
                let theirs = &expected[offsets[at]..offsets[at] + len];
                assert!(buf[skip..skip + len] == *theirs, "round {round}, read {at}");
            }
        }
        let mut block = [0; BLOCK_SIZE];
        let mut inside = [0; BLOCK_SIZE];
        let mut parts = [[IoSliceMut::new(&mut inside)], [IoSliceMut::new(&mut block)]];
        let [a, b] = &mut parts;
        let mut reads =
            [ReadOf { offset: 0, parts: a }, ReadOf { offset: LEN_BYTES - 1, parts: b }];
        assert!(matches!(device.read_each(&mut reads), Err(Error::OutOfRange { .. })));
    });
}

#[test]
fn parts_that_are_not_whole_blocks_or_past_the_end_are_refused() {
    on_every_device(|device| {
        let (block, short) = ([0; BLOCK_SIZE], [0; 512]);
        let write = |offset, parts: &[&[u8]]| {
            let parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
            device.write_vectored_at(offset, &parts)
        };
        let end = LEN_BYTES - BLOCK_SIZE as u64;
        assert!(matches!(write(0, &[&block, &short]), Err(Error::Misaligned { .. })));
        assert!(matches!(write(512, &[&block]), Err(Error::Misaligned { .. })));
        assert!(matches!(write(end, &[&block, &block]), Err(Error::OutOfRange { .. })));
        let (mut a, mut b) = (block, block);
        let mut parts = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        assert!(matches!(device.read_vectored_at(end, &mut parts), Err(Error::OutOfRange { .. })));
        device.read_vectored_at(end, &mut parts[..1]).unwrap();
        device.read_vectored_at(LEN_BYTES, &mut []).unwrap();
    });
}

#[test]
fn ranges_past_the_end_are_refused() {
    on_every_device(|device| {
        let block = vec![0; BLOCK_SIZE];
        let out_of_range = |answer| matches!(answer, Err(Error::OutOfRange { .. }));
        for offset in [LEN_BYTES, LEN_BYTES + BLOCK_SIZE as u64, u64::MAX - 4095] {
            assert!(out_of_range(device.write_at(offset, &block)));
            assert!(out_of_range(device.discard(offset, BLOCK_SIZE as u64)));
            assert!(out_of_range(device.read_at(offset, &mut [0])));
        }
        assert!(out_of_range(device.read_at(LEN_BYTES - 1, &mut [0; 2])));
        assert!(out_of_range(device.read_at(u64::MAX, &mut [0; 2])));
        device.read_at(LEN_BYTES - 1, &mut [0]).unwrap();
        device.read_at(LEN_BYTES, &mut []).unwrap();
    });
}

#[test]
fn writes_and_discards_that_are_not_whole_blocks_are_refused() {
    on_every_device(|device| {
        let misaligned = |answer| matches!(answer, Err(Error::Misaligned { .. }));
        assert!(misaligned(device.write_at(512, &[0; BLOCK_SIZE])));
        assert!(misaligned(device.write_at(0, &[0; 512])));
        assert!(misaligned(device.discard(1, BLOCK_SIZE as u64)));
        assert!(misaligned(device.discard(0, 1)));
        device.write_at(0, &[]).unwrap();
        device.discard(0, 0).unwrap();
    });
}

#[test]
fn a_discard_leaves_its_neighbours_alone_and_can_be_written_again() {
    on_every_device(|device| {
        let bytes = random_bytes(8 * BLOCK_SIZE, &mut Rng::new(5));
        device.write_at(0, &bytes).unwrap();
        device.discard(2 * BLOCK_SIZE as u64, 4 * BLOCK_SIZE as u64).unwrap();
        let mut read = AlignedBuf::zeroed(8 * BLOCK_SIZE);
        device.read_at(0, &mut read).unwrap();
        assert!(read[..2 * BLOCK_SIZE] == bytes[..2 * BLOCK_SIZE]);
        assert!(read[6 * BLOCK_SIZE..] == bytes[6 * BLOCK_SIZE..]);
        device.write_at(0, &bytes).unwrap();
        device.read_at(0, &mut read).unwrap();
        assert!(*read == *bytes);
    });
}

#[test]
fn threads_that_use_different_blocks_do_not_disturb_each_other() {
    on_every_device(|device| {
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    for step in 0..50 {
                        let offset = (thread + 4 * rng.below(100)) * BLOCK_SIZE as u64;
                        let block = random_bytes(BLOCK_SIZE, &mut rng);
                        device.write_at(offset, &block).unwrap();
                        let mut read = vec![0; BLOCK_SIZE - 1];
                        device.read_at(offset + 1, &mut read).unwrap();
                        assert!(read == block[1..]);
                        if step % 25 == 0 {
                            device.flush().unwrap();
                        }
                    }
                });
            }
        });
    });
}

#[test]
fn a_device_open_for_reading_reads_and_refuses_to_change() {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("volume");
    let bytes = random_bytes(BLOCK_SIZE, &mut Rng::new(6));
    FileDevice::create(&path, LEN_BYTES).unwrap().write_at(4096, &bytes).unwrap();

    let device = OpenOptions::new().read_only(true).open(&path).unwrap();
    assert!(device.is_read_only());
    let mut read = vec![0; BLOCK_SIZE];
    device.read_at(4096, &mut read).unwrap();
    assert!(read == *bytes);
    assert!(matches!(device.write_at(0, &bytes), Err(Error::ReadOnly)));
    assert!(matches!(device.discard(0, 4096), Err(Error::ReadOnly)));
    assert!(matches!(device.extend(LEN_BYTES * 2, &[0; 4096], false), Err(Error::ReadOnly)));
    assert!(matches!(device.truncate(4096), Err(Error::ReadOnly)));
    device.flush().unwrap();
}
