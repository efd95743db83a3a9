use std::sync::Arc;
use std::time::Duration;

use dendro_base::Rng;
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
            let offset = rng.below(SIZE as u64) as usize;
            let len = 1 + rng.below((SIZE - offset) as u64) as usize;
            let (offset, len) = match rng.chance(30) {
                true => (offset / 4096 * 4096, len.next_multiple_of(4096)),
                false => (offset, len.min(20_000)),
            };
            let range = offset..(offset + len).min(SIZE);
            let (at, len) = (offset as u64, range.len() as u64);
            let is_durable = rng.chance(15);
            match rng.below(10) {
                0 | 1 => {
                    state[range].fill(0);
                    device.zero(at, len, rng.chance(70), is_durable).unwrap();
                }
                _ => {
                    rng.fill(&mut state[range.clone()]);
                    device.write(at, &state[range], is_durable).unwrap();
                }
            }
            states.push(state);
            if is_durable {
                durable = states.len() - 1;
            } else if rng.chance(10) {
                device.flush().unwrap();
                durable = states.len() - 1;
            }
            background(&disk, &mut rng);
            if rng.chance(15) {
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
