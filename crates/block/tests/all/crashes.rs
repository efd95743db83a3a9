use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use dendro_base::Rng;
use dendro_block::BlockDevice;
use dendro_device::Device;
use dendro_device::sim::{CrashStyle, SimDevice};
use dendro_disk::View;
use dendro_logdisk::LogDisk;
use dendro_nbd::Export;

use crate::{formatted, make_device, open, open_device};

const SIZE: usize = 256 << 10;

/// Opens what a crash has left, and finds which of the states it is.
fn recover(sim: &SimDevice, states: &[Vec<u8>], rng: &mut Rng) -> usize {
    let style = CrashStyle::draw(rng);
    let image = Arc::new(sim.crash_image(rng, style));
    let device = open_device(open(&(image as Arc<dyn Device>)), View::HEAD);
    let mut all = vec![1; SIZE];
    device.read(0, &mut all).unwrap();
    states.iter().rposition(|state| *state == all).expect("it is none of the states")
}

fn background(disk: &LogDisk, rng: &mut Rng) {
    match rng.below(8) {
        0 => drop(disk.write_step(Duration::ZERO).unwrap()),
        1 => drop(disk.background_step().unwrap()),
        _ => {}
    }
}

/// A range to be changed: in part whole pages, in part some bytes, which may all be of one page.
fn draw_range(rng: &mut Rng) -> Range<usize> {
    let offset = rng.below(SIZE as u64) as usize;
    let len = 1 + rng.below((SIZE - offset) as u64) as usize;
    let (offset, len) = match rng.below(10) {
        0..3 => (offset / 4096 * 4096, len.next_multiple_of(4096)),
        3..6 => (offset, len.min(5000)),
        _ => (offset, len.min(20_000)),
    };
    offset..(offset + len).min(SIZE)
}

/// Does any change to a range of `state`, and the same to the device.
fn change(device: &BlockDevice, state: &mut [u8], is_durable: bool, rng: &mut Rng) {
    let range = draw_range(rng);
    let (at, len) = (range.start as u64, range.len() as u64);
    match rng.below(10) {
        0 | 1 => {
            state[range].fill(0);
            device.zero(at, len, rng.chance(70), is_durable).unwrap();
        }
        2..5 => {
            // Of a trim, only whole pages change.
            let pages = range.start.next_multiple_of(4096)..range.end / 4096 * 4096;
            state[pages.start..pages.end.max(pages.start)].fill(0);
            device.trim(at, len, is_durable).unwrap();
        }
        _ => {
            rng.fill(&mut state[range.clone()]);
            device.write(at, &state[range], is_durable).unwrap();
        }
    }
}

/// After a power cut, a device is as it was after one of the requests, and after none before the
/// last that was made durable. Each request is there whole or not at all.
#[test]
fn a_power_cut_leaves_all_requests_up_to_one() {
    let (mut image_count, mut lost_count) = (0, 0);
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let sim = Arc::new(SimDevice::new(16 << 20, seed));
        let disk = formatted(&(Arc::clone(&sim) as Arc<dyn Device>));
        make_device(&*disk, SIZE as u64);
        let device = open_device(Arc::clone(&disk) as _, View::HEAD);
        device.flush().unwrap();
        let mut states = vec![vec![0; SIZE]];
        let mut durable = 0;
        for _ in 0..60 {
            let mut state = states.last().unwrap().clone();
            let is_durable = rng.chance(20);
            change(&device, &mut state, is_durable, &mut rng);
            states.push(state);
            if is_durable {
                durable = states.len() - 1;
            } else if rng.chance(10) {
                device.flush().unwrap();
                durable = states.len() - 1;
            }
            background(&disk, &mut rng);
            if rng.chance(if is_durable { 50 } else { 15 }) {
                let found = recover(&sim, &states, &mut rng);
                assert!(found >= durable, "seed {seed}: {found} before {durable}");
                image_count += 1;
                lost_count += usize::from(found + 1 < states.len());
            }
        }
    }
    // Crashes that lose nothing would show nothing.
    assert!(image_count > 50 && lost_count > 10, "{image_count}, {lost_count}");
}

/// A request with FUA makes durable what was done before it, also if it changes nothing itself.
#[test]
fn a_durable_request_that_changes_nothing_makes_durable_what_was_before_it() {
    type Request = fn(&BlockDevice, bool);
    let trim: Request = |device, fua| device.trim(0, 64 << 10, fua).unwrap();
    let zero: Request = |device, fua| device.zero(0, 64 << 10, true, fua).unwrap();
    let trim_nothing: Request = |device, fua| device.trim(100, 5000, fua).unwrap();
    let trim_in_a_page: Request = |device, fua| device.trim(5000, 100, fua).unwrap();
    let zero_a_hole: Request = |device, fua| device.zero(128 << 10, 8192, true, fua).unwrap();
    let zero_in_a_hole: Request =
        |device, fua| device.zero((128 << 10) + 7, 5000, true, fua).unwrap();
    let write: Request = |device, fua| device.write(0, &[2; 64 << 10], fua).unwrap();
    let cases = [
        (trim, trim),
        (trim, zero),
        (zero, trim),
        (write, trim_nothing),
        (write, trim_in_a_page),
        (write, zero_a_hole),
        (write, zero_in_a_hole),
    ];
    for (number, (before, durable)) in cases.into_iter().enumerate() {
        let sim = Arc::new(SimDevice::new(16 << 20, 1));
        let disk = formatted(&(Arc::clone(&sim) as Arc<dyn Device>));
        make_device(&*disk, SIZE as u64);
        let device = open_device(Arc::clone(&disk) as _, View::HEAD);
        device.write(0, &[1; 64 << 10], false).unwrap();
        device.flush().unwrap();
        before(&device, false);
        durable(&device, true);
        let mut expected = vec![1; SIZE];
        device.read(0, &mut expected).unwrap();
        let image = sim.crash_image(&mut Rng::new(1), CrashStyle::Nothing);
        let device = open_device(open(&(Arc::new(image) as Arc<dyn Device>)), View::HEAD);
        let mut found = vec![1; SIZE];
        device.read(0, &mut found).unwrap();
        assert!(found == expected, "case {number}: the change before it is lost");
    }
}
