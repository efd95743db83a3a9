//! The log-structured disk, made and opened in all ways.

use std::fmt::Display;
use std::time::Duration;

use dendro_base::sync::Arc;
use dendro_base::{Clock, Rng, Timestamp, Uuid};
use dendro_device::Device;
use dendro_disk::{Error, Lid, PAGE_SIZE, Versions, View};
use dendro_format::Compression;
use dendro_logdisk::{
    CleanSettings, CoalesceSettings, Coalesced, Discards, FormatOptions, LogDisk, OpenOptions,
    Place,
};
use dendro_policy::{Classes, Kind, Policy, Scatter};

use crate::disk::{Engine, NOW};
use crate::outside;
use crate::system::Outcome;

/// Background work that goes on for longer without an end has none.
const MAX_BACKGROUND_STEPS: usize = 10_000;

/// Makes [`LogDisk`]s.
#[derive(Clone, Debug)]
pub struct LogEngine {
    /// How volumes are made.
    pub format: FormatOptions,
    /// How they are opened.
    pub open: OpenOptions,
    /// They are made longer while they have fewer segments; 0: they stay as they are.
    pub grows_to: u32,
    /// Whether they are made shorter.
    pub shrinks: bool,
    /// How often in a hundred background work lays down together what is scattered.
    pub lays_down_percent: u64,
}

impl LogEngine {
    /// Any options, of segments not longer than 2^`max_segment_size_log2` bytes: caches so small
    /// that nodes come and go, and checkpoints all the time.
    #[must_use]
    pub fn draw(rng: &mut Rng, max_segment_size_log2: u8) -> Self {
        let mut uuid = Uuid::default();
        rng.fill(&mut uuid.0);
        let log2 = match rng.below(10) {
            0..5 => 17,
            5..7 => 18,
            7..9 => 19,
            _ => 20,
        };
        let format = FormatOptions {
            segment_size_bytes: 1 << log2.min(max_segment_size_log2),
            uuid,
            has_backups: uuid.0[0] % 2 == 0,
            metadata_copies: 1 + uuid.0[1] % 2,
            max_len_bytes: if uuid.0[5] % 4 == 0 { u64::from(uuid.0[6]) << 16 } else { 0 },
            ..FormatOptions::default()
        };
        let open = OpenOptions {
            cache_size_bytes: [64 << 10, 64 << 10, 256 << 10, 16 << 20][rng.below(4) as usize],
            checkpoint_log_bytes: [16 << 10, 64 << 10, 256 << 10, 1 << 20, 1 << 30]
                [rng.below(5) as usize],
            discards: [Discards::Never, Discards::InTime, Discards::AtOnce, Discards::AtOnce]
                [rng.below(4) as usize],
            policy: policy(rng),
            cleaning: CleanSettings {
                min_clean_segments: rng.chance(50).then(|| rng.below(6) as u32),
                max_clean_segments: rng.chance(50).then(|| rng.below(30) as u32),
                is_suspended: rng.chance(10),
                coalescing: CoalesceSettings {
                    piece_bytes: [8 << 10, 128 << 10, 2 << 20][rng.below(3) as usize],
                    share_percent: [0, 25, 1000][rng.below(3) as usize],
                    moves_everything: rng.chance(60),
                    ..CoalesceSettings::default()
                },
            },
            reserve_percent: [1, 4, 20][rng.below(3) as usize],
            stream_bytes: [0, OpenOptions::default().stream_bytes][rng.below(2) as usize],
            compression: match uuid.0[7] % 4 {
                0 => None,
                1 => Some(None),
                2 => Some(Some(Compression::Lz4)),
                _ => Some(Some(Compression::Zstd { level: 1 + uuid.0[8] % 5 })),
            },
            cold_compression: match uuid.0[9] % 4 {
                0 => None,
                1 => Some(None),
                2 => Some(Some(Compression::Lz4)),
                _ => Some(Some(Compression::Zstd { level: 3 + uuid.0[10] % 5 })),
            },
            put_off_groups: match uuid.0[11] % 4 {
                0 | 1 => u64::from(uuid.0[12] % 3),
                _ => OpenOptions::default().put_off_groups,
            },
            ..OpenOptions::default()
        };
        let grows_to = if uuid.0[2] % 4 == 0 { 40 + 2 * u32::from(uuid.0[3]) } else { 0 };
        let shrinks = uuid.0[4] % 4 == 0;
        Self { format, open, grows_to, shrinks, lays_down_percent: 0 }
    }

    fn open_with(&self, device: Arc<dyn Device>, options: OpenOptions) -> Outcome<LogDisk> {
        self.open_disk(device, options).map_err(text)
    }

    /// Opens a disk with other options than its own.
    pub(crate) fn open_disk(
        &self,
        device: Arc<dyn Device>,
        options: OpenOptions,
    ) -> dendro_disk::Result<LogDisk> {
        LogDisk::open(device, options, clock())
    }
}

/// Any policy; half of the time one that keeps everything apart from everything.
fn policy(rng: &mut Rng) -> Arc<dyn Policy> {
    if rng.chance(50) {
        let classes = Classes { users: rng.below(4) as u8, survivors: rng.below(4) as u8 };
        return Arc::new(Scatter::new(classes, rng.next_u64()));
    }
    users_policy(rng)
}

/// Any policy that users can choose: it has few classes on small volumes.
pub(crate) fn users_policy(rng: &mut Rng) -> Arc<dyn Policy> {
    Arc::from(Kind::ALL[rng.below(Kind::ALL.len() as u64) as usize].policy())
}

/// Puts together what lies scattered, of any version, or compresses it, as far as chance has it.
fn coalesce(disk: &LogDisk, rng: &mut Rng) -> dendro_disk::Result<()> {
    let views: Vec<View> = disk.versions().views().collect();
    let view = views[rng.below(views.len() as u64) as usize];
    let with = any_compression(rng);
    if rng.chance(50) {
        // What has not been written to the device stays as it is.
        while disk.write_step(Duration::ZERO)? {}
    }
    let mut next = Some(Place { list: rng.below(20), page: rng.below(600) });
    while let Some(place) = next.filter(|_| rng.chance(70)) {
        let until = Lid(place.list + 1 + rng.below(40));
        match put_together(disk, view, place, until, with, rng.chance(10)) {
            // The map cannot be read: some was moved, and the rest stays.
            Err(dendro_disk::Error::Io(_)) => break,
            done => next = done?.next,
        }
    }
    Ok(())
}

/// Half of the time a way to compress what is put together.
fn any_compression(rng: &mut Rng) -> Option<Compression> {
    match rng.below(6) {
        0 => Some(Compression::Lz4),
        1 | 2 => Some(Compression::Zstd { level: 1 + rng.below(9) as u8 }),
        _ => None,
    }
}

/// Puts together the lists up to `until`, or compresses them.
fn put_together(
    disk: &LogDisk,
    view: View,
    from: Place,
    until: Lid,
    with: Option<Compression>,
    is_trial: bool,
) -> dendro_disk::Result<Coalesced> {
    match with {
        None => disk.coalesce(view, from, until, is_trial),
        Some(with) => disk.compress(view, from, until, with, is_trial),
    }
}

/// Writes what is queued, and puts together what a version has scattered, or compresses it.
fn lay_down(disk: &LogDisk, rng: &mut Rng) -> dendro_disk::Result<()> {
    let views: Vec<View> = disk.versions().views().collect();
    let view = views[rng.below(views.len() as u64) as usize];
    while disk.write_step(Duration::ZERO)? {}
    let with = any_compression(rng);
    let mut next = Some(Place { list: 0, page: 0 });
    while let Some(place) = next {
        let done = put_together(disk, view, place, Lid::CLIENT_END, with, false)?;
        next = done.next.filter(|_| !done.lacks_room);
    }
    Ok(())
}

/// Makes the volume or its device a little longer.
fn grow(disk: &LogDisk, rng: &mut Rng) -> dendro_disk::Result<()> {
    let size = disk.superblock().layout.segment_size_bytes();
    let device_bytes = disk.device_len_bytes();
    let added_bytes = match rng.below(4) {
        0 => 0,
        1 => (1 + rng.below(40)) * PAGE_SIZE as u64,
        _ => rng.below(4 * size) / PAGE_SIZE as u64 * PAGE_SIZE as u64,
    };
    let taken_bytes = if rng.chance(80) { u64::MAX } else { device_bytes + rng.below(size) };
    match disk.grow(taken_bytes, device_bytes + added_bytes) {
        // The device failed to become longer, and the volume is as before.
        Err(Error::Io(_)) => Ok(()),
        grown => grown,
    }
}

/// Goes on making the volume shorter, or begins with it or gives it up.
fn shrink(disk: &LogDisk, rng: &mut Rng) -> dendro_disk::Result<()> {
    if rng.chance(30) {
        let size = disk.superblock().layout.segment_size_bytes();
        let least_bytes = disk.smallest_len_bytes();
        let spare = (disk.superblock().layout.len_bytes() - least_bytes) / size;
        let added = if rng.chance(50) { 0 } else { rng.below(spare + 1) };
        let len_bytes = least_bytes + added * size;
        let behind_bytes = (1 + rng.below(40)) * PAGE_SIZE as u64;
        match disk.begin_shrinking(len_bytes, len_bytes + behind_bytes) {
            // It is being made shorter, or is as short.
            Ok(()) | Err(Error::Io(_) | Error::NoSpace { .. }) => {}
            begun => return begun,
        }
    }
    for _ in 0..rng.below(20) {
        match disk.shrink_step() {
            Ok(Some(_)) => {}
            // It is done, or the volume is as before.
            Ok(None) | Err(Error::Io(_) | Error::NoSpace { .. }) => break,
            stepped => return stepped.map(drop),
        }
    }
    if rng.chance(5) {
        disk.stop_shrinking();
    }
    Ok(())
}

/// Stands still, so that the model knows when versions were made.
struct StandingClock;

impl Clock for StandingClock {
    fn now(&self) -> Timestamp {
        NOW
    }
}

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(StandingClock)
}

fn text(error: impl Display) -> String {
    error.to_string()
}

impl Engine for LogEngine {
    type Disk = LogDisk;

    fn format(&self, device: Arc<dyn Device>) -> Outcome<()> {
        dendro_logdisk::format(&device, &self.format, &clock()).map_err(text)
    }

    fn open(&self, device: Arc<dyn Device>) -> Outcome<LogDisk> {
        self.open_with(device, self.open.clone())
    }

    fn open_read_only(&self, device: Arc<dyn Device>) -> Outcome<Option<LogDisk>> {
        let options = OpenOptions { read_only: true, ..self.open.clone() };
        self.open_with(device, options).map(Some)
    }

    fn versions<'d>(&self, disk: &'d LogDisk) -> Option<&'d dyn Versions> {
        Some(disk)
    }

    fn describe(&self, disk: &LogDisk) -> String {
        format!("{:?}", disk.stats())
    }

    fn background(&self, disk: &LogDisk, rng: &mut Rng) -> Outcome<()> {
        if disk.superblock().layout.segment_count() < self.grows_to && rng.chance(25) {
            return grow(disk, rng).map_err(text);
        }
        if self.shrinks && rng.chance(25) {
            return shrink(disk, rng).map_err(text);
        }
        if self.lays_down_percent > 0 && rng.chance(self.lays_down_percent) {
            return lay_down(disk, rng).map_err(text);
        }
        match rng.below(14) {
            13 => coalesce(disk, rng).map_err(text),
            12 => disk.coalesce_step().map(drop).map_err(text),
            11 => disk.idle_step().map(drop).map_err(text),
            10 => {
                disk.set_policy(policy(rng));
                Ok(())
            }
            0 => disk.checkpoint().map_err(text),
            1 => {
                for _ in 0..MAX_BACKGROUND_STEPS {
                    if !disk.background_step().map_err(text)? {
                        return Ok(());
                    }
                }
                Err("background work has no end".into())
            }
            2..5 => disk.write_step(Duration::ZERO).map(drop).map_err(text),
            5 => outside::clean(disk, rng).map_err(text),
            _ => disk.background_step().map(drop).map_err(text),
        }
    }

    fn recount(&self, disk: &LogDisk, device: &dyn Device) -> Outcome<()> {
        if disk.versions().quotas().len() == 0 {
            return Ok(());
        }
        // The checkpoint records what is counted, and the check counts it in another way.
        match disk.checkpoint() {
            Err(Error::NoSpace { .. }) => return Ok(()),
            taken => taken.map_err(text)?,
        }
        let report = dendro_check::verify(device, &dendro_check::Options { data: false });
        if report.is_sound() { Ok(()) } else { Err(format!("after a checkpoint: {report}")) }
    }

    fn metadata_copies(&self, disk: &LogDisk) -> u64 {
        u64::from(disk.superblock().metadata_copies())
    }

    fn segment_len_bytes(&self) -> u64 {
        self.format.segment_size_bytes
    }

    fn clean(&self, disk: &LogDisk, rng: &mut Rng) -> Outcome<()> {
        match rng.below(40) {
            0 => {
                disk.set_policy(users_policy(rng));
                Ok(())
            }
            1 => disk.checkpoint().map_err(text),
            2..5 => outside::clean(disk, rng).map_err(text),
            5..10 => disk.write_step(Duration::ZERO).map(drop).map_err(text),
            10..20 => disk.background_step().map(drop).map_err(text),
            20..23 => disk.idle_step().map(drop).map_err(text),
            _ => disk.clean_step().map(drop).map_err(text),
        }
    }

    fn verify(&self, device: &dyn Device) -> Outcome<()> {
        let report = dendro_check::verify(device, &dendro_check::Options { data: true });
        if report.is_sound() { Ok(()) } else { Err(report.to_string()) }
    }
}
