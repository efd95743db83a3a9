//! Records rewritten at random, as in the experiment of 2007.

use std::io;
use std::path::Path;

use dendro_base::Rng;
use dendro_disk::{Aru, CommitSeq, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::LogDisk;

use super::rig::{Timed, VOLUME_BYTES, fill, noise, volume, with_threads};
use crate::engine::new_list;
use crate::measure::time;

const RECORD_BYTES: usize = 64 << 10;

pub(super) fn rewrite_all(image: &Path, percents: &[u64]) -> io::Result<()> {
    println!(
        "\n{:<28} {:>12} {:>8} {:>9}",
        "Rewriting 64 KiB records", "seconds", "ratio", "written"
    );
    for (name, hot) in [("uniform", false), ("10/90", true)] {
        let mut quarter = None;
        for &live_percent in [25].iter().chain(percents) {
            let (disk, device) = volume(image)?;
            let (seconds, amplification) =
                with_threads(&disk, || rewrite(&disk, &device, live_percent, hot));
            let quarter = *quarter.get_or_insert(seconds);
            let stats = disk.stats();
            println!(
                "  waited for room {:.2?}; {} segments cleaned, {} checkpoints; device: {}",
                stats.stalled,
                stats.cleaned_segments,
                stats.checkpoint_seq,
                device.take()
            );
            println!(
                "{:<28} {seconds:>12.2} {:>7.2}x {amplification:>8.2}x",
                format!("{name}, {live_percent} %"),
                seconds / quarter
            );
            disk.shut_down().map_err(io::Error::other)?;
        }
    }
    Ok(())
}

fn rewrite(disk: &LogDisk, device: &Timed, live_percent: u64, hot: bool) -> (f64, f64) {
    let list = new_list(disk);
    let record_pages = (RECORD_BYTES / PAGE_SIZE) as u64;
    let records = VOLUME_BYTES * live_percent / 100 / RECORD_BYTES as u64;
    let data = noise(RECORD_BYTES);
    fill(disk, list, records * record_pages, &data);
    disk.flush(CommitSeq::LATEST).expect("the file can be written");
    device.take();
    let before = disk.stats();
    let mut rng = Rng::new(live_percent);
    let took = time(|| {
        for _ in 0..VOLUME_BYTES * 8 / 10 / RECORD_BYTES as u64 {
            let tenth = (records / 10).max(1);
            let record = match hot.then(|| rng.chance(90)) {
                None => rng.below(records),
                Some(true) => rng.below(tenth),
                Some(false) => tenth + rng.below(records - tenth),
            };
            let mut aru = Aru::new(View::HEAD);
            aru.write_pages(list, record * record_pages, &data[..]);
            disk.commit(aru).expect("there is room");
        }
        disk.flush(CommitSeq::LATEST).expect("the file can be written");
    });
    let after = disk.stats();
    let written = (after.written_bytes - before.written_bytes) as f64;
    let user = (after.user_page_bytes - before.user_page_bytes) as f64;
    (took.as_secs_f64(), written / user)
}
