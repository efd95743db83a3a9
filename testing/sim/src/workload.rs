//! What a seed's work is like.

use dendro_base::Rng;
use dendro_disk::testgen::Profile;
use dendro_format::Compression;
use dendro_fs::FreeingLimits;
use dendro_logdisk::{CleanSettings, CoalesceSettings};

use crate::campaign::Effort;
use crate::collected::CollectedSystem;
use crate::disk::DiskSystem;
use crate::disk::threads::crowded::Crowd;
use crate::files::FsSystem;
use crate::log::{LogEngine, users_policy};
use crate::mirrored::MirroredEngine;
use crate::spread::SpreadEngine;

/// The disk and the units that `seed` makes, and how much is done with them.
#[must_use]
pub fn of_seed(seed: u64) -> (DiskSystem<LogEngine>, Effort) {
    let mut rng = Rng::new(seed.rotate_left(32));
    let kind = match rng.below(10) {
        0 => Kind::Long,
        1 | 2 => Kind::Full,
        _ => Kind::Short,
    };
    let engine = LogEngine::draw(&mut rng, if kind == Kind::Full { 18 } else { 20 });
    let segment_count = match kind {
        Kind::Long => 128 + rng.below(128),
        Kind::Full => 16 + rng.below(16),
        Kind::Short => {
            // The smallest volumes can hold next to nothing, and their segments are used again
            // soon.
            let bits = rng.below(4);
            16 + rng.below(16 << bits)
        }
    };
    let device_len_bytes = engine.format.segment_size_bytes * segment_count;
    let profile = profile(kind, &mut rng, device_len_bytes);
    let effort = match kind {
        Kind::Long => Effort::LONG,
        Kind::Full => Effort { step_count: 200, point_count: Some(100), ..Effort::SHORT },
        Kind::Short => {
            // The longer, the fewer of its points.
            let step_count = 40 << rng.below(4);
            let point_count = (step_count > 100).then_some(100);
            Effort { step_count, point_count, images_per_point: 6, ..Effort::SHORT }
        }
    };
    let bulk_percent = if rng.chance(50) { 0 } else { rng.below(30) };
    let versions_percent = if rng.chance(50) { 0 } else { 1 + rng.below(20) };
    let quotas_percent = if rng.chance(60) { 0 } else { 1 + rng.below(50) };
    let system = DiskSystem {
        bulk_percent,
        versions_percent,
        quotas_percent,
        ..DiskSystem::new(engine, profile)
    };
    (system, Effort { device_len_bytes, ..effort })
}

/// The disk on two devices that `seed` makes, and how much is done with it. They have together the
/// length that the harness is told.
#[must_use]
pub fn mirrored_of_seed(seed: u64) -> (DiskSystem<MirroredEngine>, Effort) {
    let mut rng = Rng::new(seed.rotate_left(40));
    let engine = MirroredEngine::draw(&mut rng, 18);
    // One segment more, for the rosters.
    let half_len_bytes = engine.log.format.segment_size_bytes * (18 + rng.below(64));
    let profile = profile(Kind::Short, &mut rng, half_len_bytes);
    let step_count = 40 << rng.below(3);
    let effort = Effort {
        device_len_bytes: engine.device_len_bytes(2 * half_len_bytes),
        step_count,
        point_count: Some(60),
        images_per_point: 5,
    };
    let versions_percent = if rng.chance(50) { 0 } else { 1 + rng.below(20) };
    (DiskSystem { versions_percent, ..DiskSystem::new(engine, profile) }, effort)
}

/// The disk spread over two devices that `seed` makes, and how much is done with it. They, and a
/// third one, have together the length that the harness is told.
#[must_use]
pub fn spread_of_seed(seed: u64) -> (DiskSystem<SpreadEngine>, Effort) {
    let mut rng = Rng::new(seed.rotate_left(24));
    let engine = SpreadEngine::draw(&mut rng, 18);
    let segment_bytes = engine.log.format.segment_size_bytes;
    // Three segments and the rosters are on each; a disk on one alone has sixteen segments.
    let least = if engine.begins_alone { 20 } else { 14 };
    let third_len_bytes = segment_bytes * (least + rng.below(40));
    let profile = profile(Kind::Short, &mut rng, 2 * (third_len_bytes - 5 * segment_bytes));
    let step_count = 40 << rng.below(3);
    let effort = Effort {
        device_len_bytes: engine.device_len_bytes(3 * third_len_bytes),
        step_count,
        point_count: Some(60),
        images_per_point: 5,
    };
    let versions_percent = if rng.chance(50) { 0 } else { 1 + rng.below(20) };
    (DiskSystem { versions_percent, ..DiskSystem::new(engine, profile) }, effort)
}

/// A disk of many segments that `seed` makes, most of it filled before the work begins, and how
/// much is done with it: cleaning picks several segments at a time, and a checkpoint has so many
/// nodes to write that segments are emptied and filled anew meanwhile.
#[must_use]
pub fn large_of_seed(seed: u64) -> (DiskSystem<LogEngine>, Effort) {
    let mut rng = Rng::new(seed.rotate_left(8));
    let mut engine = LogEngine::draw(&mut rng, 17);
    if rng.chance(80) {
        engine.open.policy = users_policy(&mut rng);
    }
    let device_len_bytes = engine.format.segment_size_bytes * (512 + rng.below(256));
    let ballast_bytes = device_len_bytes * (60 + rng.below(30)) / 100;
    let profile = Profile {
        max_ops: 200,
        max_write_bytes: 64 << 10,
        target_bytes: ballast_bytes,
        ..Profile::default()
    };
    let system = DiskSystem {
        bulk_percent: [20, 50, 90][rng.below(3) as usize],
        versions_percent: if rng.chance(60) { 0 } else { 1 + rng.below(4) },
        ballast_bytes,
        ..DiskSystem::new(engine, profile)
    };
    let effort =
        Effort { device_len_bytes, step_count: 1500, point_count: Some(30), images_per_point: 2 };
    (system, effort)
}

/// The disk that `seed` makes, with so many segments that there is always time to compress what is
/// moved, and how much is done with it: pages of few lists are put into frames all the time, and
/// are written, freed, moved and shared afterwards.
#[must_use]
pub fn framed_of_seed(seed: u64) -> (DiskSystem<LogEngine>, Effort) {
    let mut rng = Rng::new(seed.rotate_left(56));
    let mut engine = LogEngine::draw(&mut rng, 17);
    (engine.grows_to, engine.shrinks, engine.lays_down_percent) = (0, false, 40);
    let level = 3 + rng.below(5) as u8;
    let cold = if rng.chance(30) { Compression::Lz4 } else { Compression::Zstd { level } };
    engine.open.cold_compression = Some(Some(cold));
    engine.open.cleaning = CleanSettings {
        min_clean_segments: Some(0),
        max_clean_segments: rng.chance(70).then_some(1000),
        coalescing: CoalesceSettings { moves_everything: true, ..CoalesceSettings::default() },
        ..CleanSettings::default()
    };
    let device_len_bytes = engine.format.segment_size_bytes * (200 + rng.below(200));
    let profile = Profile {
        max_lists: 4,
        max_ops: 10,
        max_write_bytes: 128 << 10,
        max_large_write_bytes: 300 << 10,
        target_bytes: 1 << 20,
        wrong_percent: 1,
    };
    let versions_percent = if rng.chance(50) { 0 } else { 1 + rng.below(20) };
    let quotas_percent = if rng.chance(60) { 0 } else { 1 + rng.below(50) };
    let system =
        DiskSystem { versions_percent, quotas_percent, ..DiskSystem::new(engine, profile) };
    let effort =
        Effort { device_len_bytes, step_count: 400, point_count: Some(60), images_per_point: 4 };
    (system, effort)
}

/// The disk that `seed` makes for many threads, its length, and who they are. It has few segments,
/// for it is to stay nearly full.
#[must_use]
pub fn crowded_of_seed(seed: u64) -> (DiskSystem<LogEngine>, u64, Crowd) {
    let mut rng = Rng::new(seed.rotate_left(48));
    let mut engine = LogEngine::draw(&mut rng, 18);
    engine.open.policy = users_policy(&mut rng);
    let device_len_bytes = engine.format.segment_size_bytes * (24 + rng.below(60));
    let profile = profile(Kind::Short, &mut rng, device_len_bytes);
    let crowd = Crowd::draw(&mut rng);
    (DiskSystem::new(engine, profile), device_len_bytes, crowd)
}

/// The file system that `seed` makes, and how much is done with it.
#[must_use]
pub fn files_of_seed(seed: u64) -> (FsSystem<LogEngine>, Effort) {
    let mut rng = Rng::new(seed.rotate_left(16));
    let engine = LogEngine::draw(&mut rng, 19);
    let device_len_bytes = (8 << 20) + engine.format.segment_size_bytes * rng.below(64);
    let profile = dendro_fs::testing::Profile {
        target_files: 5 + rng.below(40) as usize,
        max_write_len: [500, 9000, 40_000][rng.below(3) as usize],
        max_offset: [5000, 100_000][rng.below(2) as usize],
        max_xattr_len: [60, 3000][rng.below(2) as usize],
        sync_percent: [3, 10][rng.below(2) as usize],
        one_unit_only: true,
        ..Default::default()
    };
    let step_count = 50 << rng.below(4);
    let effort = Effort {
        device_len_bytes,
        step_count,
        point_count: (step_count > 50).then_some(60),
        images_per_point: 5,
    };
    let inode_cache_len = if rng.chance(50) { 0 } else { 1000 };
    let freeing = match rng.chance(50) {
        true => FreeingLimits::default(),
        // Some of what is cut off is left to the background.
        false => {
            FreeingLimits { pages_in_unit: 1 + rng.below(8), units_in_call: rng.below(3) as u32 }
        }
    };
    (FsSystem { engine, profile, inode_cache_len, freeing }, effort)
}

/// The file system below a kernel that collects that `seed` makes, and how much is done with it.
/// Programs have few files, so that they often write to one that is open.
#[must_use]
pub fn collected_of_seed(seed: u64) -> (CollectedSystem<LogEngine>, Effort) {
    let (mut files, effort) = files_of_seed(seed.rotate_left(4));
    files.profile.target_files = files.profile.target_files.min(12);
    (CollectedSystem { files, bug: None }, Effort { point_count: Some(40), ..effort })
}

/// What kind of work a seed does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Few steps, many crashes.
    Short,
    /// Many steps.
    Long,
    /// Nothing is deleted before there is no more space.
    Full,
}

/// Units for a volume so long.
fn profile(kind: Kind, rng: &mut Rng, device_len_bytes: u64) -> Profile {
    if kind == Kind::Full {
        return Profile {
            max_write_bytes: device_len_bytes / 4,
            max_large_write_bytes: device_len_bytes / 2,
            target_bytes: device_len_bytes,
            ..Profile::default()
        };
    }
    match rng.below(3) {
        // Many commits in a batch, and images that are checked fast.
        0 => Profile {
            max_lists: 4,
            max_ops: 30,
            max_write_bytes: 9000,
            max_large_write_bytes: (100 << 10).min(device_len_bytes / 16),
            target_bytes: 64 << 10,
            wrong_percent: 3,
        },
        1 => Profile {
            max_write_bytes: (32 << 10).min(device_len_bytes / 64),
            max_large_write_bytes: (300 << 10).min(device_len_bytes / 16),
            target_bytes: (256 << 10).min(device_len_bytes / 16),
            ..Profile::default()
        },
        // Units larger than a small segment.
        _ => Profile {
            max_write_bytes: (128 << 10).min(device_len_bytes / 64),
            max_large_write_bytes: (1200 << 10).min(device_len_bytes / 8),
            target_bytes: (1 << 20).min(device_len_bytes / 8),
            ..Profile::default()
        },
    }
}
