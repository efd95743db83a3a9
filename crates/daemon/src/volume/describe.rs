//! Facts about a volume, as commands show them.

use std::path::Path;

use dendro_control::streams::ReceivedPart;
use dendro_control::{
    CheckpointInfo, CompressionInfo, CompressionKinds, FeatureInfo, SegmentInfo, SpaceInfo,
    SuperblockInfo, VolumeInfo,
};
use dendro_disk::{LogicalDisk, PAGE_SIZE, Versions};
use dendro_format::superblock::{
    COMPATIBLE_ALLOCATED, COMPATIBLE_BACKUPS, COMPATIBLE_GROWS, COMPATIBLE_METADATA_COPY,
    INCOMPATIBLE_CHUNK_SKIPS, INCOMPATIBLE_CLIENTS, INCOMPATIBLE_COMPRESSION, INCOMPATIBLE_FRAMES,
    INCOMPATIBLE_MAP_EPOCHS, INCOMPATIBLE_MIRRORS, INCOMPATIBLE_NEIGHBOURS, INCOMPATIBLE_QUOTAS,
    INCOMPATIBLE_REARRANGEMENTS, INCOMPATIBLE_RECEIVED, INCOMPATIBLE_REMADE_LISTS,
    INCOMPATIBLE_REUSE, INCOMPATIBLE_SET, INCOMPATIBLE_SPREAD, INCOMPATIBLE_VERSIONS,
    MAJOR_VERSION, READ_ONLY_REMOVALS,
};
use dendro_format::{Compression, Superblock};
use dendro_logdisk::{LogDisk, Stats};
use dendro_transfer::kept_parts;

use super::devices::{Devices, device_infos};

/// The facts about the volume on `source` and these devices, without its mounts.
pub fn describe(source: &Path, disk: &LogDisk, devices: &Devices) -> VolumeInfo {
    let superblock = disk.superblock();
    let stats = disk.stats();
    let space = disk.space();
    VolumeInfo {
        source: source.display().to_string(),
        uuid: superblock.uuid.to_string(),
        label: superblock.label.clone(),
        format_version: u32::from(MAJOR_VERSION),
        created_unix_s: superblock.created.secs(),
        device_size_bytes: superblock.layout.len_bytes(),
        max_size_bytes: Some(superblock.max_len_bytes).filter(|max| *max > 0),
        segments: SegmentInfo {
            size_bytes: superblock.layout.segment_size_bytes(),
            total: u64::from(superblock.layout.segment_count()),
            clean: Some(u64::from(stats.segments.clean)),
        },
        features: features(&superblock),
        devices: if devices.is_listed() { device_infos(devices) } else { Vec::new() },
        metadata_copies: superblock.metadata_copies(),
        unmirrored_bytes: disk.unmirrored_bytes(),
        default_compression: Some(compression_kinds(default_compression(&superblock))),
        compression_in_force: None,
        space: SpaceInfo {
            capacity_bytes: space.capacity_bytes,
            live_bytes: space.live_bytes,
            available_bytes: space.available_bytes,
            reserved_bytes: space.reserved_bytes,
            compression: compression(&stats),
        },
        superblock: SuperblockInfo {
            sequence: superblock.seq,
            written_unix_s: superblock.written.secs(),
        },
        checkpoint: CheckpointInfo {
            sequence: stats.checkpoint_seq,
            written_unix_s: stats.checkpoint_time.secs(),
            log_bytes: stats.log_bytes,
            last_commit: stats.commit_seq,
            durable_commit: stats.durable_seq,
            clean: superblock.clean,
        },
        damage: disk.recovery_notes().to_vec(),
        met_damage: None,
        received_parts: received_parts(disk),
        mount: None,
        served: None,
    }
}

/// How new data and what the cleaner moves are compressed unless a mount says otherwise.
pub(crate) const fn default_compression(
    superblock: &Superblock,
) -> (Option<Compression>, Option<Compression>) {
    let (new, cold) = (superblock.compression, superblock.cold_compression);
    (Compression::from_byte(new), Compression::from_byte(cold))
}

/// The same, as it is told.
pub(crate) fn compression_kinds(
    (new, cold): (Option<Compression>, Option<Compression>),
) -> CompressionKinds {
    let kind = |of: Option<Compression>| of.map_or_else(|| "none".into(), |of| of.to_string());
    CompressionKinds { new: kind(new), cold: kind(cold) }
}

/// What compression gains, if that is known.
pub(crate) fn compression(stats: &Stats) -> Option<CompressionInfo> {
    let compressed = stats.compressed?;
    Some(CompressionInfo {
        page_bytes: compressed.page_count().saturating_mul(PAGE_SIZE as u64),
        stored_bytes: compressed.stored_bytes(),
        data_bytes: stats.live_bytes.saturating_sub(stats.node_bytes),
    })
}

/// The versions of which a part was received, and is kept.
fn received_parts(disk: &LogDisk) -> Vec<ReceivedPart> {
    let table = disk.versions();
    let parts = kept_parts(&table).map(|token| ReceivedPart {
        volume_uuid: token.version.volume.to_string(),
        epoch: token.version.epoch,
        token: token.to_string(),
    });
    parts.collect()
}

fn features(superblock: &Superblock) -> FeatureInfo {
    // A flag of newer software is shown by its position.
    let names = |flags: u64, known: &[(u64, &str)]| {
        let set = (0..u64::BITS).map(|bit| 1 << bit).filter(|flag| flags & flag != 0);
        let name = |flag: u64| {
            let known = known.iter().find(|(known, _)| *known == flag);
            known.map_or_else(
                || format!("bit {}", flag.trailing_zeros()),
                |(_, name)| (*name).into(),
            )
        };
        set.map(name).collect()
    };
    FeatureInfo {
        compatible: names(
            superblock.compatible,
            &[
                (COMPATIBLE_ALLOCATED, "allocated"),
                (COMPATIBLE_METADATA_COPY, "metadata-copy"),
                (COMPATIBLE_BACKUPS, "backups"),
                (COMPATIBLE_GROWS, "grows"),
            ],
        ),
        read_only_compatible: names(superblock.read_only, &[(READ_ONLY_REMOVALS, "removals")]),
        incompatible: names(
            superblock.incompatible,
            &[
                (INCOMPATIBLE_VERSIONS, "versions"),
                (INCOMPATIBLE_MAP_EPOCHS, "map-epochs"),
                (INCOMPATIBLE_CHUNK_SKIPS, "chunk-skips"),
                (INCOMPATIBLE_REUSE, "reuse"),
                (INCOMPATIBLE_MIRRORS, "mirrors"),
                (INCOMPATIBLE_REMADE_LISTS, "remade-lists"),
                (INCOMPATIBLE_RECEIVED, "received-versions"),
                (INCOMPATIBLE_SET, "set"),
                (INCOMPATIBLE_CLIENTS, "clients"),
                (INCOMPATIBLE_COMPRESSION, "compression"),
                (INCOMPATIBLE_SPREAD, "spread"),
                (INCOMPATIBLE_NEIGHBOURS, "neighbours"),
                (INCOMPATIBLE_QUOTAS, "quotas"),
                (INCOMPATIBLE_FRAMES, "frames"),
                (INCOMPATIBLE_REARRANGEMENTS, "rearrangements"),
            ],
        ),
    }
}
