//! Volumes and their mounts.

use dendro_control::damage::DamageInfo;
use dendro_control::devices::{DeviceInfo, DeviceState};
use dendro_control::streams::ReceivedPart;
use dendro_control::{
    CheckpointInfo, FeatureInfo, MountInfo, SegmentInfo, ServedInfo, SpaceInfo, SuperblockInfo,
    ViewInfo, VolumeInfo,
};
use dendro_daemon::text;
use serde::Serialize;

use super::unix_ns;

/// A volume, mounted or not.
#[derive(Serialize)]
pub(crate) struct Volume<'a> {
    source: &'a str,
    uuid: &'a str,
    label: &'a str,
    format_version: u32,
    created_unix_ns: i64,
    device_size_bytes: u64,
    max_size_bytes: Option<u64>,
    devices: Vec<Device<'a>>,
    segment_bytes: u64,
    total_segments: u64,
    superblock_segments: u32,
    clean_segments: Option<u64>,
    features: &'a FeatureInfo,
    metadata_copies: u8,
    unmirrored_bytes: u64,
    default_compress: &'a str,
    default_compress_cold: &'a str,
    compress_in_force: Option<&'a str>,
    compress_cold_in_force: Option<&'a str>,
    space: &'a SpaceInfo,
    superblock: Superblock,
    checkpoint: Checkpoint,
    damage: &'a [String],
    met_damage: Option<MetDamage>,
    received_parts: &'a [ReceivedPart],
    mount: Option<Mount<'a>>,
    block_server: Option<BlockServer<'a>>,
}

/// Where the block devices of a volume are served.
#[derive(Serialize)]
pub(crate) struct BlockServer<'a> {
    uri: &'a str,
    pid: u32,
    software: &'a str,
    read_only: Option<&'a str>,
    served_unix_ns: i64,
}

impl<'a> From<&'a ServedInfo> for BlockServer<'a> {
    fn from(info: &'a ServedInfo) -> Self {
        Self {
            uri: &info.uri,
            pid: info.pid,
            software: &info.software,
            read_only: info.read_only.as_deref(),
            served_unix_ns: unix_ns(info.since_unix_s),
        }
    }
}

/// A device of a volume that lies on a set of them.
#[derive(Serialize)]
pub(crate) struct Device<'a> {
    device_path: &'a str,
    device_uuid: Option<&'a str>,
    state: DeviceState,
    present: bool,
    leaves: bool,
    since_unix_ns: Option<i64>,
    device_bytes: Option<u64>,
    failed_reads: u64,
    held_bytes: u64,
    fast: bool,
}

impl<'a> From<&'a DeviceInfo> for Device<'a> {
    fn from(info: &'a DeviceInfo) -> Self {
        Self {
            device_path: &info.path,
            device_uuid: Some(&*info.uuid).filter(|uuid| !uuid.is_empty()),
            state: info.state,
            present: info.is_present,
            leaves: info.leaves,
            since_unix_ns: Some(unix_ns(info.since_unix_s)).filter(|since| *since > 0),
            device_bytes: Some(info.size_bytes).filter(|size| *size > 0),
            failed_reads: info.failed_reads,
            held_bytes: info.held_bytes,
            fast: info.is_fast,
        }
    }
}

/// What `dendro damage` lists, in numbers.
#[derive(Serialize)]
struct MetDamage {
    place_count: u64,
    met_count: u64,
    first_unix_ns: Option<i64>,
    last_unix_ns: Option<i64>,
}

#[derive(Serialize)]
struct Superblock {
    sequence: u64,
    written_unix_ns: i64,
}

#[derive(Serialize)]
struct Checkpoint {
    sequence: u64,
    written_unix_ns: i64,
    log_bytes: u64,
    last_commit: u64,
    durable_commit: u64,
    clean: bool,
}

#[derive(Serialize)]
struct Mount<'a> {
    mount_point: &'a str,
    pid: u32,
    software: &'a str,
    read_only: Option<&'a str>,
    mounted_unix_ns: i64,
    transport: &'a str,
    socket: &'a str,
    log: &'a str,
    views: Vec<View<'a>>,
}

/// One mount of a view.
#[derive(Serialize)]
pub(crate) struct View<'a> {
    id: u64,
    mount_point: &'a str,
    device: &'a str,
    mount_id: Option<u64>,
    namespace: &'a str,
    version: &'a str,
    branch: u32,
    epoch: Option<u64>,
    main: bool,
    read_only: Option<&'a str>,
    mounted_unix_ns: i64,
    transport: &'a str,
    options: &'a [String],
}

impl<'a> From<&'a VolumeInfo> for Volume<'a> {
    fn from(info: &'a VolumeInfo) -> Self {
        let SegmentInfo { size_bytes, total, clean } = info.segments;
        let SuperblockInfo { sequence, written_unix_s } = info.superblock;
        let default = info.default_compression.as_ref();
        let now = info.compression_in_force.as_ref();
        Self {
            source: &info.source,
            uuid: &info.uuid,
            label: &info.label,
            format_version: info.format_version,
            created_unix_ns: unix_ns(info.created_unix_s),
            device_size_bytes: info.device_size_bytes,
            max_size_bytes: info.max_size_bytes,
            devices: info.devices.iter().map(Device::from).collect(),
            segment_bytes: size_bytes,
            total_segments: total,
            superblock_segments: text::SUPERBLOCK_SEGMENTS,
            clean_segments: clean,
            features: &info.features,
            metadata_copies: info.metadata_copies,
            unmirrored_bytes: info.unmirrored_bytes,
            default_compress: default.map_or("", |kinds| &kinds.new),
            default_compress_cold: default.map_or("", |kinds| &kinds.cold),
            compress_in_force: now.map(|kinds| &*kinds.new),
            compress_cold_in_force: now.map(|kinds| &*kinds.cold),
            space: &info.space,
            superblock: Superblock { sequence, written_unix_ns: unix_ns(written_unix_s) },
            checkpoint: Checkpoint::from(&info.checkpoint),
            damage: &info.damage,
            met_damage: info.met_damage.as_ref().map(MetDamage::from),
            received_parts: &info.received_parts,
            mount: info.mount.as_ref().map(Mount::from),
            block_server: info.served.as_ref().map(BlockServer::from),
        }
    }
}

impl From<&DamageInfo> for MetDamage {
    fn from(info: &DamageInfo) -> Self {
        let DamageInfo { place_count, met_count, first_unix_ns, last_unix_ns, .. } = *info;
        Self { place_count, met_count, first_unix_ns, last_unix_ns }
    }
}

impl From<&CheckpointInfo> for Checkpoint {
    fn from(info: &CheckpointInfo) -> Self {
        Self {
            sequence: info.sequence,
            written_unix_ns: unix_ns(info.written_unix_s),
            log_bytes: info.log_bytes,
            last_commit: info.last_commit,
            durable_commit: info.durable_commit,
            clean: info.clean,
        }
    }
}

impl<'a> From<&'a MountInfo> for Mount<'a> {
    fn from(info: &'a MountInfo) -> Self {
        Self {
            mount_point: &info.mount_point,
            pid: info.pid,
            software: &info.software,
            read_only: info.read_only.as_deref(),
            mounted_unix_ns: unix_ns(info.since_unix_s),
            transport: &info.transport,
            socket: &info.socket,
            log: &info.log,
            views: info.views.iter().map(View::from).collect(),
        }
    }
}

impl<'a> From<&'a ViewInfo> for View<'a> {
    fn from(info: &'a ViewInfo) -> Self {
        Self {
            id: info.id,
            mount_point: &info.mount_point,
            device: &info.device,
            mount_id: info.mount_id,
            namespace: &info.namespace,
            version: &info.version,
            branch: info.branch,
            epoch: info.epoch,
            main: info.is_main,
            read_only: info.read_only.as_deref(),
            mounted_unix_ns: unix_ns(info.since_unix_s),
            transport: &info.transport,
            options: &info.options,
        }
    }
}
