use std::collections::HashSet;

use dendro_base::Rng;
use rustix::io::Errno;

use super::blocks::SECTOR_SIZE;
use super::*;
use crate::device::{BLOCK_SIZE, Device};
use crate::error::Error;

const BLOCK: u64 = BLOCK_SIZE as u64;

fn block(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK_SIZE]
}

fn read_block(device: &SimDevice, index: u64) -> Vec<u8> {
    let mut bytes = block(0);
    device.read_at(index * BLOCK, &mut bytes).unwrap();
    bytes
}

/// The bytes that the sectors of a block consist of, where each is of one byte throughout.
fn sectors(bytes: &[u8]) -> Vec<u8> {
    bytes
        .chunks(SECTOR_SIZE)
        .map(|sector| {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "torn within a sector");
            sector[0]
        })
        .collect()
}

/// A device of 16 blocks, all durably 1, of which the first four were overwritten with 2 and the
/// first two of these with 3, unflushed.
fn written() -> SimDevice {
    let device = SimDevice::from_bytes(&vec![1; 16 * BLOCK_SIZE], 5);
    device.write_at(0, &vec![2; 4 * BLOCK_SIZE]).unwrap();
    device.write_at(0, &vec![3; 2 * BLOCK_SIZE]).unwrap();
    device
}

#[test]
fn a_crash_may_lose_all_or_none_of_what_is_not_flushed() {
    let device = written();
    let mut rng = Rng::new(1);
    let nothing = device.crash_image(&mut rng, CrashStyle::Nothing);
    assert!(nothing.to_bytes() == vec![1; 16 * BLOCK_SIZE]);
    let everything = device.crash_image(&mut rng, CrashStyle::Everything);
    assert!(everything.to_bytes() == device.to_bytes());
    assert_eq!(device.unflushed_count(), 2);
    assert_eq!(everything.unflushed_count(), 0);
}

#[test]
fn what_is_flushed_is_in_every_image() {
    let device = written();
    device.flush().unwrap();
    let durable = device.to_bytes();
    device.write_at(8 * BLOCK, &block(9)).unwrap();
    let mut rng = Rng::new(2);
    for style in CrashStyle::ALL {
        for _ in 0..50 {
            let image = device.crash_image(&mut rng, style).to_bytes();
            for (at, (is, was)) in image.chunks(BLOCK_SIZE).zip(durable.chunks(4096)).enumerate() {
                assert!(is == was || at == 8, "{style:?} changed block {at}");
            }
        }
    }
}

#[test]
fn a_subset_is_made_of_whole_writes_in_any_order_and_reaches_every_outcome() {
    let device = written();
    let mut rng = Rng::new(3);
    let mut seen = HashSet::new();
    for _ in 0..400 {
        let bytes = device.crash_image(&mut rng, CrashStyle::Subset).to_bytes();
        assert!(bytes[4 * BLOCK_SIZE..].iter().all(|byte| *byte == 1));
        let blocks: Vec<u8> = (0..4).map(|index| bytes[index * BLOCK_SIZE]).collect();
        seen.insert(blocks);
    }
    // None; the first; the second; the second over the first. The first over the second is the
    // first again.
    let expected = [[1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 1, 1], [3, 3, 2, 2]];
    assert_eq!(seen, expected.iter().map(|blocks| blocks.to_vec()).collect());
}

#[test]
fn a_torn_image_is_made_of_old_and_new_sectors_and_mixes_them() {
    let device = written();
    let mut rng = Rng::new(4);
    let mut mixed_count = 0;
    let mut seen = HashSet::new();
    for _ in 0..200 {
        let image = device.crash_image(&mut rng, CrashStyle::Torn);
        for index in 0..16 {
            let found = sectors(&read_block(&image, index));
            let allowed: &[u8] = match index {
                0..2 => &[1, 2, 3],
                2..4 => &[1, 2],
                _ => &[1],
            };
            assert!(found.iter().all(|byte| allowed.contains(byte)));
            mixed_count += u64::from(found.iter().any(|byte| *byte != found[0]));
            seen.insert(found);
        }
    }
    assert!(mixed_count > 100 && seen.len() > 50, "{mixed_count} mixed, {} kinds", seen.len());
    assert!(
        seen.iter().any(|found| found.iter().filter(|byte| **byte == 3).count() == 7),
        "no write lost a single sector"
    );
}

#[test]
fn with_the_last_write_torn_the_others_are_whole() {
    let device = written();
    let mut rng = Rng::new(5);
    let mut seen = HashSet::new();
    for _ in 0..100 {
        let image = device.crash_image(&mut rng, CrashStyle::LastTorn);
        for index in 0..4 {
            let found = sectors(&read_block(&image, index));
            assert!(found.iter().all(|byte| *byte == 2 || (index < 2 && *byte == 3)));
            seen.insert(found);
        }
    }
    assert!(seen.len() > 20);
}

#[test]
fn the_same_seed_makes_the_same_images() {
    let run = |seed| {
        let device = SimDevice::new(64 * BLOCK, 11);
        let mut rng = Rng::new(seed);
        for step in 0..40u8 {
            device.write_at(rng.below(60) * BLOCK, &vec![step; 4 * BLOCK_SIZE]).unwrap();
            device.discard(rng.below(60) * BLOCK, 2 * BLOCK).unwrap();
            if rng.chance(10) {
                device.flush().unwrap();
            }
        }
        let style = CrashStyle::draw(&mut rng);
        (device.crash_image(&mut rng, style).to_bytes(), rng.next_u64())
    };
    for seed in 0..20 {
        assert!(run(seed) == run(seed));
    }
    assert!(run(1) != run(2));
}

#[test]
fn an_image_can_crash_in_turn_and_leaves_its_origin_alone() {
    let device = written();
    let before = device.to_bytes();
    let mut rng = Rng::new(6);
    let image = device.crash_image(&mut rng, CrashStyle::Everything);
    image.write_at(0, &block(8)).unwrap();
    let second = image.crash_image(&mut rng, CrashStyle::Nothing);
    assert_eq!(read_block(&second, 0), block(3));
    image.flush().unwrap();
    let second = image.crash_image(&mut rng, CrashStyle::Nothing);
    assert_eq!(read_block(&second, 0), block(8));
    assert!(device.to_bytes() == before);
}

#[test]
fn unwritten_and_discarded_blocks_read_as_anything_but_steadily() {
    let device = SimDevice::new(64 * BLOCK, 3);
    assert!(read_block(&device, 0) != block(0));
    device.write_at(0, &vec![1; 64 * BLOCK_SIZE]).unwrap();
    device.flush().unwrap();
    device.discard(0, 64 * BLOCK).unwrap();
    let kinds: HashSet<Vec<u8>> = (0..64).map(|index| read_block(&device, index)).collect();
    assert!(kinds.contains(&block(0)) && kinds.contains(&block(1)) && kinds.len() > 10);
    assert!(device.to_bytes() == device.to_bytes());
    let kept = device.crash_image(&mut Rng::new(1), CrashStyle::Nothing);
    assert!(kept.to_bytes() == vec![1; 64 * BLOCK_SIZE]);
}

#[test]
fn the_power_goes_after_so_many_writes_or_calls() {
    let device = SimDevice::new(16 * BLOCK, 1);
    device.cut_after_writes(2);
    device.write_at(0, &block(1)).unwrap();
    device.flush().unwrap();
    assert!(device.is_powered());
    device.write_at(BLOCK, &block(2)).unwrap();
    assert!(!device.is_powered());
    assert!(device.write_at(0, &block(3)).is_err());
    assert!(device.flush().is_err());
    assert!(device.discard(0, BLOCK).is_err());
    assert!(device.read_at(0, &mut [0]).is_err());
    let image = device.crash_image(&mut Rng::new(1), CrashStyle::Everything);
    assert_eq!((read_block(&image, 0), read_block(&image, 1)), (block(1), block(2)));

    image.cut_after_calls(2);
    image.read_at(0, &mut [0]).unwrap();
    image.flush().unwrap();
    image.write_at(0, &block(4)).unwrap();
    assert!(image.flush().is_err());
    let image = image.crash_image(&mut Rng::new(1), CrashStyle::Nothing);
    image.cut_after_writes(0);
    assert!(image.flush().is_err());
}

#[test]
fn faults_strike_when_they_were_told_to() {
    let device = SimDevice::new(64 * BLOCK, 1);
    let write = |index: u64| device.write_at(index * BLOCK, &block(1)).is_ok();
    device.inject(Fault::fail(Call::Write).nth(2));
    assert_eq!([write(0), write(0), write(0)], [true, false, true]);
    device.inject(Fault::fail(Call::Write).times(2));
    assert_eq!([write(0), write(0), write(0)], [false, false, true]);
    device.inject(Fault::fail(Call::Write).within(4 * BLOCK..5 * BLOCK).forever());
    assert_eq!([write(3), write(4), write(5), write(4)], [true, false, true, false]);
    device.clear_faults();
    device.inject(Fault::fail(Call::Write).when(|offset, _| offset == 7 * BLOCK).forever());
    assert_eq!([write(6), write(7)], [true, false]);
    device.clear_faults();
    device.inject(Fault::fail(Call::Write).per_mille(500).forever());
    let failures = (0..200).filter(|_| !write(0)).count();
    assert!((60..140).contains(&failures), "{failures}");
    device.clear_faults();
    device.inject(Fault::fail(Call::Write).os_error(Errno::NOSPC.raw_os_error()));
    let Err(Error::Io { source, operation: "write", .. }) = device.write_at(0, &block(1)) else {
        panic!("the write should have failed");
    };
    assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(device.struck_count(), 7 + failures as u64);
}

#[test]
fn a_failed_write_may_have_written_its_start() {
    let device = SimDevice::from_bytes(&vec![1; 4 * BLOCK_SIZE], 1);
    device.inject(Fault::fail_write_after(BLOCK + 1030));
    assert!(device.write_at(0, &vec![2; 4 * BLOCK_SIZE]).is_err());
    let bytes = device.to_bytes();
    let written = BLOCK_SIZE + 1024;
    assert!(bytes[..written].iter().all(|byte| *byte == 2));
    assert!(bytes[written..].iter().all(|byte| *byte == 1));
    assert_eq!(device.unflushed_count(), 1);
}

#[test]
fn a_lost_write_leaves_the_old_content_and_a_lost_flush_nothing_durable() {
    let device = written();
    device.inject(Fault::lose(Call::Write));
    device.write_at(0, &block(9)).unwrap();
    assert_eq!(read_block(&device, 0), block(3));
    device.inject(Fault::lose(Call::Flush));
    device.flush().unwrap();
    let image = device.crash_image(&mut Rng::new(1), CrashStyle::Nothing);
    assert!(image.to_bytes() == vec![1; 16 * BLOCK_SIZE]);
}

#[test]
fn a_misdirected_call_hits_another_place() {
    let device = written();
    device.inject(Fault::misdirect(Call::Write, 9 * BLOCK + 5));
    device.write_at(0, &block(9)).unwrap();
    assert_eq!((read_block(&device, 0), read_block(&device, 9)), (block(3), block(9)));
    device.inject(Fault::misdirect(Call::Read, u64::MAX));
    assert_eq!(read_block(&device, 0), block(1));
}

#[test]
fn flipped_bits_are_as_many_as_asked_and_stored_only_by_writes() {
    let device = SimDevice::from_bytes(&vec![0; 4 * BLOCK_SIZE], 1);
    let ones = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_ones()).sum::<u32>();
    device.inject(Fault::flip_bits(Call::Read, 1));
    assert_eq!(ones(&read_block(&device, 0)), 1);
    assert_eq!(ones(&read_block(&device, 0)), 0);
    device.inject(Fault::flip_bits(Call::Write, 1));
    device.write_at(0, &block(0)).unwrap();
    assert_eq!(ones(&read_block(&device, 0)), 1);

    device.corrupt(BLOCK + 10..BLOCK + 11, 1);
    assert_eq!(ones(&read_block(&device, 1)[10..11]), 1);
    device.swap_blocks(BLOCK, 3 * BLOCK);
    assert_eq!(ones(&read_block(&device, 1)), 0);
    assert_eq!(ones(&read_block(&device, 3)), 1);
    let image = device.crash_image(&mut Rng::new(1), CrashStyle::Nothing);
    assert_eq!(ones(&read_block(&image, 3)), 1);
}

#[test]
fn what_a_failed_flush_took_is_never_durable_again() {
    let device = SimDevice::from_bytes(&vec![0; 64 * BLOCK_SIZE], 1);
    device.start_recording();
    for index in 0..64 {
        device.write_at(index * BLOCK, &block(1)).unwrap();
    }
    device.inject(Fault::fail(Call::Flush));
    assert!(device.flush().is_err());
    assert!(device.to_bytes() == vec![1; 64 * BLOCK_SIZE]);
    device.write_at(0, &block(2)).unwrap();
    device.flush().unwrap();
    device.flush().unwrap();
    let mut rng = Rng::new(1);
    let image = device.crash_image(&mut rng, CrashStyle::Everything).to_bytes();
    let lost_count = image.chunks(BLOCK_SIZE).filter(|block| block[0] == 0).count();
    assert!((10..54).contains(&lost_count), "{lost_count}");
    assert_eq!(image[0], 2);

    let recording = device.take_recording().unwrap();
    let whole = recording.image_at(64, &mut rng, CrashStyle::Everything).to_bytes();
    assert!(whole == vec![1; 64 * BLOCK_SIZE]);
    assert_eq!(recording.event(64), EventKind::FailedFlush);
    let after = recording.image_at(66, &mut rng, CrashStyle::Everything).to_bytes();
    assert!(after == image);
    let end = recording.image_at(recording.len(), &mut rng, CrashStyle::Nothing).to_bytes();
    assert!(end == image);
}

/// A random workload on `device`; calls `after` after each call.
fn work(device: &SimDevice, seed: u64, mut after: impl FnMut()) {
    let mut rng = Rng::new(seed);
    for step in 0..150u64 {
        match rng.below(20) {
            0 => device.flush().unwrap(),
            1 => device.discard(rng.below(59) * BLOCK, 5 * BLOCK).unwrap(),
            _ => {
                let mut bytes = vec![0; (1 + rng.below(5) as usize) * BLOCK_SIZE];
                Rng::new(step).fill(&mut bytes);
                device.write_at(rng.below(59) * BLOCK, &bytes).unwrap();
            }
        }
        after();
    }
}

#[test]
fn an_image_of_a_recording_is_the_one_the_device_would_have_made_then() {
    for seed in 0..5 {
        let device = SimDevice::new(64 * BLOCK, seed);
        device.write_at(BLOCK, &block(1)).unwrap();
        device.start_recording();
        let mut images = Vec::new();
        work(&device, seed, || {
            for style in CrashStyle::ALL {
                let mut rng = Rng::new(seed);
                let image = device.crash_image(&mut rng, style).to_bytes();
                images.push((device.recorded_count(), style, image));
            }
        });
        let recording = device.take_recording().unwrap();
        for (index, style, expected) in &images {
            let image = recording.image_at(*index, &mut Rng::new(seed), *style);
            assert!(image.to_bytes() == *expected, "{style:?} at {index}");
        }
        assert!((0..recording.len()).any(|index| recording.event(index) == EventKind::Flush));
        assert!(recording.unflushed_at(1) == 1 && !recording.is_empty());
    }
}

#[test]
fn a_recording_without_flushes_gives_the_images_the_device_would_have() {
    let device = SimDevice::new(64 * BLOCK, 1);
    device.inject(Fault::lose(Call::Flush).forever());
    device.start_recording();
    let mut images = Vec::new();
    work(&device, 9, || images.push((device.recorded_count(), device.to_bytes())));
    let recording = device.take_recording().unwrap();
    for (index, expected) in &images {
        let image = recording.image_at(*index, &mut Rng::new(1), CrashStyle::Everything);
        assert!(image.to_bytes() == *expected);
    }
    assert_eq!(recording.unflushed_at(recording.len()), recording.len());
}

#[test]
fn a_device_becomes_longer_with_its_new_end_or_not_at_all_and_the_rest_may_be_lost() {
    let device = written();
    device.start_recording();
    device.extend(32 * BLOCK, &block(7), false).unwrap();
    device.write_at(20 * BLOCK, &block(8)).unwrap();
    device.truncate(24 * BLOCK).unwrap();
    assert_eq!(device.len_bytes(), 24 * BLOCK);
    assert!(device.read_at(24 * BLOCK, &mut block(0)).is_err());
    let recording = device.take_recording().unwrap();
    // Two writes had not been flushed when the recording began.
    assert_eq!(recording.event(2), EventKind::Len { len_bytes: 32 * BLOCK });
    let mut rng = Rng::new(4);
    let mut seen = HashSet::new();
    for style in CrashStyle::ALL.into_iter().cycle().take(500) {
        assert_eq!(recording.image_at(2, &mut rng, style).len_bytes(), 16 * BLOCK);
        let image = recording.image_at(4, &mut rng, style);
        assert_eq!(image.len_bytes(), 32 * BLOCK);
        assert!(read_block(&image, 31) == block(7), "{style:?}");
        let image = recording.image_at(5, &mut rng, style);
        assert_eq!(image.len_bytes(), 24 * BLOCK);
        seen.insert((read_block(&image, 0) == block(1), read_block(&image, 20) == block(8)));
    }
    assert_eq!(seen.len(), 4, "what was pending stays so");
}
