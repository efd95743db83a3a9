//! Metrics: what a volume has done since it was mounted, in one table, which `dendro stat` and
//! Prometheus get.
//!
//! - [`requests`]: the requests of programs, and how long they took.
//! - `blocks`: requests of clients of NBD.
//! - `metric`: one row of the table. `exposition`: the table in Prometheus's text format.

mod blocks;
pub(crate) mod exposition;
mod metric;
pub mod requests;

use std::time::Duration;

use dendro_base::Timestamp;
use dendro_control::Facts;
use dendro_disk::{LogicalDisk, Space, VersionTable, Versions};
use dendro_fs::MemoryUse;
use dendro_fuse::Timings;
use dendro_logdisk::{LockHolder, LogDisk, Stats};
use dendro_nbd::Activity;
use exposition::{Exposition, label};
use metric::{Metric, counter, gauge};
use serde_json::Value;

use crate::cleaning;
use crate::volume::compression;

/// Bytes written to the device for each byte that clients wrote; null until they have written
/// something.
fn write_amplification(stats: &Stats) -> Value {
    let user_bytes = stats.user_page_bytes + stats.user_record_bytes;
    match user_bytes {
        0 => Value::Null,
        _ => (stats.written_bytes as f64 / user_bytes as f64).into(),
    }
}

/// The mean share of live data in cleaned segments; null until one was cleaned.
fn cleaned_utilisation(stats: &Stats, segment_size_bytes: u64) -> Value {
    match stats.cleaned_segments {
        0 => Value::Null,
        count => {
            let bytes = count as f64 * segment_size_bytes as f64;
            (stats.cleaned_live_bytes as f64 / bytes).into()
        }
    }
}

/// Memory that the disk does not count itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// Of all mounts together.
    pub(crate) mounts: MemoryUse,
    pub(crate) read_ahead_bytes: u64,
    /// The resident set of the process, as the kernel counts it.
    pub(crate) resident_bytes: Option<u64>,
}

/// What the metrics need besides the disk's own statistics.
pub(crate) struct Context<'a> {
    pub(crate) memory: Memory,
    pub(crate) timings: &'a Timings,
    /// The requests of clients of NBD.
    pub(crate) blocks: &'a Activity,
    /// How long the volume has been mounted.
    pub(crate) mounted_for: Duration,
    /// Whether the volume has become read-only after a failure.
    pub(crate) is_latched: bool,
    pub(crate) now: Timestamp,
}

fn all(disk: &LogDisk, context: &Context<'_>) -> Vec<Metric> {
    let stats = disk.stats();
    let memory = &context.memory;
    let size = disk.superblock().layout.segment_size_bytes();
    let mut metrics = traffic(&stats, context);
    metrics.extend(requests::failures(context.timings));
    metrics.extend(blocks::all(context.blocks));
    metrics.extend(health(disk, &stats, context));
    metrics.extend(cleaning(&stats, size));
    metrics.extend(segments(&stats));
    metrics.extend(longest_holds(&stats));
    metrics.extend(state(&stats, &disk.space()));
    metrics.extend(memory_by_part(&stats, context));
    metrics.extend(memory_in_all(disk.cache_size_bytes(), memory));
    metrics
}

fn traffic(stats: &Stats, context: &Context<'_>) -> Vec<Metric> {
    vec![
        counter(
            "read_bytes",
            "dendro_read_bytes_total",
            "Bytes of file data read by clients; what the kernel had cached is not in it.",
            context.timings.read_bytes(),
        ),
        counter(
            "written_bytes",
            "dendro_device_written_bytes_total",
            "Bytes written to the device, superblocks aside.",
            stats.written_bytes,
        ),
        counter(
            "user_page_bytes",
            "dendro_user_page_bytes_total",
            "Bytes of file data written by clients.",
            stats.user_page_bytes,
        ),
        counter(
            "user_record_bytes",
            "dendro_user_record_bytes_total",
            "Bytes of records, such as i-nodes and names, written by clients.",
            stats.user_record_bytes,
        ),
        gauge(
            "write_amplification",
            "dendro_write_amplification",
            "Bytes written to the device for each byte written by clients, since the mount.",
            write_amplification(stats),
        ),
        counter(
            "stalled_ns",
            "dendro_stalled_seconds_total",
            "How long writers have waited for room.",
            ns(stats.stalled),
        )
        .nanoseconds(),
    ]
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Metrics that show the health of the volume.
fn health(disk: &LogDisk, stats: &Stats, context: &Context<'_>) -> Vec<Metric> {
    let size = disk.superblock().layout.segment_size_bytes();
    let held = u64::from(stats.segments.open + stats.segments.dirty + stats.segments.pending);
    let (count, age) = snapshots(&disk.versions(), context.now);
    vec![
        gauge(
            "mounted_ns",
            "dendro_mounted_seconds",
            "How long the volume has been mounted.",
            ns(context.mounted_for),
        )
        .nanoseconds(),
        gauge(
            "latched",
            "dendro_latched",
            "Whether the volume has stopped taking writes because the device failed.",
            context.is_latched,
        ),
        gauge("snapshot_count", "dendro_snapshots", "Snapshots.", count),
        gauge(
            "oldest_snapshot_ns",
            "dendro_oldest_snapshot_age_seconds",
            "The age of the oldest snapshot.",
            age.map(ns),
        )
        .nanoseconds(),
        gauge(
            "reclaimable_bytes",
            "dendro_reclaimable_bytes",
            "Bytes that cleaning could give back: what is dead in segments that are not clean.",
            (held * size).saturating_sub(stats.live_bytes),
        ),
        gauge(
            "debt_segments",
            "dendro_cleaning_debt_segments",
            "Segments that cleaning is behind: so many fewer are clean than it keeps ready.",
            cleaning::debt_segments(&disk.volume_facts(), &disk.clean_settings()),
        ),
    ]
}

/// The number of snapshots, and the age of the oldest.
fn snapshots(table: &VersionTable, now: Timestamp) -> (usize, Option<Duration>) {
    let oldest = table.snapshots().map(|snapshot| snapshot.time.0).min();
    let age_ns = oldest.map(|oldest| u64::try_from(now.0.saturating_sub(oldest)).unwrap_or(0));
    (table.snapshots().len(), age_ns.map(Duration::from_nanos))
}

fn cleaning(stats: &Stats, segment_size_bytes: u64) -> Vec<Metric> {
    vec![
        counter(
            "cleaned_segments",
            "dendro_cleaned_segments_total",
            "Segments cleaned by the daemon's own cleaner.",
            stats.cleaned_segments,
        ),
        counter(
            "reused_segments",
            "dendro_reused_segments_total",
            "Emptied segments made clean without waiting for a checkpoint.",
            stats.reused_segments,
        ),
        counter(
            "cleaned_live_bytes",
            "dendro_cleaned_live_bytes_total",
            "Bytes alive in the segments cleaned by the daemon's own cleaner.",
            stats.cleaned_live_bytes,
        ),
        gauge(
            "cleaned_utilisation",
            "dendro_cleaned_utilisation",
            "The share of the segments cleaned that was alive, in the mean, since the mount.",
            cleaned_utilisation(stats, segment_size_bytes),
        ),
        counter(
            "cleaner_moved_bytes",
            "dendro_cleaner_moved_bytes_total",
            "Bytes of blocks moved by the daemon's own cleaner.",
            stats.moved_bytes,
        ),
        counter(
            "coalesced_bytes",
            "dendro_coalesced_bytes_total",
            "Bytes of blocks written again because they lay scattered.",
            stats.coalesced_bytes,
        ),
        counter(
            "coalesced_reads",
            "dendro_coalesced_reads_total",
            "Reads of the device that this saves, each time that all of it is read.",
            stats.coalesced_reads,
        ),
        counter(
            "external_released_segments",
            "dendro_external_released_segments_total",
            "Segments made clean at the word of cleaners in other processes.",
            stats.external_released_segments,
        ),
        counter(
            "external_moved_bytes",
            "dendro_external_moved_bytes_total",
            "Bytes of blocks moved at the word of cleaners in other processes.",
            stats.external_moved_bytes,
        ),
    ]
}

fn segments(stats: &Stats) -> Vec<Metric> {
    let help = "Segments by state.";
    [
        ("clean_segments", "state=\"clean\"", stats.segments.clean),
        ("open_segments", "state=\"open\"", stats.segments.open),
        ("dirty_segments", "state=\"dirty\"", stats.segments.dirty),
        ("pending_segments", "state=\"pending\"", stats.segments.pending),
        ("retired_segments", "state=\"retired\"", stats.segments.retired),
        ("mirror_segments", "state=\"mirror\"", stats.segments.mirror),
    ]
    .into_iter()
    .map(|(name, labels, value)| Metric { labels, ..gauge(name, "dendro_segments", help, value) })
    .collect()
}

/// How long the engine's lock was held at most, by what held it.
fn longest_holds(stats: &Stats) -> Vec<Metric> {
    let help = "The longest time for which one step of this work kept others from the volume.";
    let held = LockHolder::ALL.into_iter().zip(stats.longest_holds);
    held.map(|(holder, longest)| {
        let (name, labels) = match holder {
            LockHolder::Checkpoint => ("longest_hold_checkpoint_ns", "by=\"checkpoint\""),
            LockHolder::Cleaning => ("longest_hold_cleaning_ns", "by=\"cleaning\""),
            LockHolder::Removal => ("longest_hold_removal_ns", "by=\"removal\""),
            LockHolder::Versions => ("longest_hold_versions_ns", "by=\"versions\""),
            LockHolder::Walk => ("longest_hold_walk_ns", "by=\"walk\""),
        };
        let metric = gauge(name, "dendro_longest_hold_seconds", help, ns(longest));
        Metric { labels, ..metric.nanoseconds() }
    })
    .collect()
}

fn state(stats: &Stats, space: &Space) -> Vec<Metric> {
    let gain = compression(stats);
    vec![
        gauge(
            "capacity_bytes",
            "dendro_capacity_bytes",
            "Bytes that could be used if the volume were empty.",
            space.capacity_bytes,
        ),
        gauge("live_bytes", "dendro_live_bytes", "Bytes that can be reached.", stats.live_bytes),
        gauge(
            "data_bytes",
            "dendro_data_bytes",
            "Bytes that data take, without the map.",
            stats.live_bytes.saturating_sub(stats.node_bytes),
        ),
        gauge(
            "compressed_page_bytes",
            "dendro_compressed_page_bytes",
            "Bytes of the pages that are stored compressed.",
            gain.map(|gain| gain.page_bytes),
        ),
        gauge(
            "compressed_stored_bytes",
            "dendro_compressed_stored_bytes",
            "Bytes that these pages take.",
            gain.map(|gain| gain.stored_bytes),
        ),
        gauge(
            "available_bytes",
            "dendro_available_bytes",
            "Bytes that can still be written.",
            space.available_bytes,
        ),
        counter(
            "last_commit",
            "dendro_commits_total",
            "The last commit's number.",
            stats.commit_seq,
        ),
        counter(
            "durable_commit",
            "dendro_durable_commits_total",
            "The number of the last commit context to be durable.",
            stats.durable_seq,
        ),
        counter(
            "checkpoint_sequence",
            "dendro_checkpoints_total",
            "The last checkpoint's number.",
            stats.checkpoint_seq,
        ),
        gauge(
            "log_bytes",
            "dendro_log_since_checkpoint_bytes",
            "Bytes of log that a mount after a crash would read.",
            stats.log_bytes,
        ),
    ]
}

/// Memory, with a metric for each part. DESIGN §5 has the bounds.
fn memory_by_part(stats: &Stats, context: &Context<'_>) -> Vec<Metric> {
    let memory = &context.memory;
    let help = "Memory by what it is taken for, about.";
    [
        ("cached_node_bytes", "part=\"cached_nodes\"", stats.cached_node_bytes),
        ("dirty_node_bytes", "part=\"dirty_nodes\"", stats.dirty_node_bytes),
        ("superseded_node_bytes", "part=\"superseded_nodes\"", stats.superseded_node_bytes),
        ("segment_table_bytes", "part=\"segment_table\"", stats.segment_table_bytes),
        ("recent_page_bytes", "part=\"recent_pages\"", stats.recent_page_bytes),
        ("log_buffer_bytes", "part=\"log_buffers\"", stats.log_buffer_bytes),
        ("read_ahead_bytes", "part=\"read_ahead\"", memory.read_ahead_bytes),
        ("inode_bytes", "part=\"inodes\"", memory.mounts.inode_bytes),
        ("looked_up_bytes", "part=\"looked_up\"", memory.mounts.looked_up_bytes),
        ("nbd_memory_bytes", "part=\"nbd\"", context.blocks.memory_bytes()),
    ]
    .into_iter()
    .map(|(name, labels, value)| Metric {
        labels,
        ..gauge(name, "dendro_memory_bytes", help, value)
    })
    .collect()
}

fn memory_in_all(cache_size_bytes: u64, memory: &Memory) -> Vec<Metric> {
    vec![
        gauge(
            "cache_size_bytes",
            "dendro_cache_size_bytes",
            "Memory that the map's nodes may take, as cache= says.",
            cache_size_bytes,
        ),
        gauge(
            "inode_count",
            "dendro_inodes",
            "I-nodes that the daemon keeps in memory.",
            memory.mounts.inode_count,
        ),
        gauge(
            "looked_up_count",
            "dendro_looked_up_inodes",
            "I-nodes that the kernel has looked up and not forgotten.",
            memory.mounts.looked_up_count,
        ),
        gauge(
            "resident_bytes",
            "dendro_resident_bytes",
            "All memory of the daemon that is resident.",
            memory.resident_bytes,
        ),
    ]
}

/// Names and numbers, for `dendro stat`.
pub(crate) fn facts(disk: &LogDisk, context: &Context<'_>) -> Facts {
    let size = disk.superblock().layout.segment_size_bytes();
    all(disk, context)
        .into_iter()
        .map(|metric| (metric.name.to_owned(), metric.value))
        .chain([
            ("segment_bytes".to_owned(), size.into()),
            ("policy".to_owned(), disk.policy().kind().name().into()),
            ("requests".to_owned(), requests::facts(context.timings)),
        ])
        .collect()
}

/// The table in Prometheus's text format, version 0.0.4.
pub(crate) fn exposition(
    disk: &LogDisk,
    context: &Context<'_>,
    source: &str,
    mount_point: &str,
) -> String {
    let superblock = disk.superblock();
    let mut text = Exposition::default();
    text.begin("dendro_volume_info", "gauge", "The volume.");
    let uuid = superblock.uuid.to_string();
    let labels = [
        ("uuid", &*uuid),
        ("label", &superblock.label),
        ("source", source),
        ("mount_point", mount_point),
    ];
    let labels = labels.map(|(name, value)| label(name, value)).join(",");
    text.sample("dendro_volume_info", &labels, 1);
    let mut last = "";
    for metric in all(disk, context) {
        // A metric without a value yet is left out.
        let Some(value) = metric.sample() else { continue };
        let Metric { metric, labels, kind, help, .. } = metric;
        if metric != last {
            text.begin(metric, kind.name(), help);
            last = metric;
        }
        text.sample(metric, labels, value);
    }
    requests::expose(context.timings, &mut text);
    text.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_that_have_no_meaning_yet_have_no_value() {
        let stats = Stats::default();
        assert_eq!(write_amplification(&stats), Value::Null);
        assert_eq!(cleaned_utilisation(&stats, 1000), Value::Null);
        let stats = Stats {
            written_bytes: 300,
            user_page_bytes: 80,
            user_record_bytes: 20,
            cleaned_segments: 4,
            cleaned_live_bytes: 1000,
            ..Stats::default()
        };
        assert_eq!(write_amplification(&stats), Value::from(3.0));
        assert_eq!(cleaned_utilisation(&stats, 1000), Value::from(0.25));
    }
}
