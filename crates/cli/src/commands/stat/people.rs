//! The statistics since the mount for users: in groups, with units, and with derived numbers.

use dendro_control::CompressionInfo;
use dendro_daemon::metrics::requests::{self, Summary};
use dendro_daemon::text::{count, counted, duration, size};

use super::statistics::Statistics;
use crate::output::{self, columns};

/// All of it, in the order of users' questions: is it well, what is requested, what is written,
/// what is cleaned, what is kept.
pub(super) fn text(source: &str, statistics: &Statistics<'_>) -> String {
    let groups = [
        (
            "Requests that came to the daemon, and how long they took there",
            requests_text(statistics),
        ),
        ("Written", written(statistics)),
        ("Cleaned", cleaned(statistics)),
        ("Room", room(statistics)),
        ("Memory", memory(statistics)),
    ];
    let mut text = format!("{source}\n{}", head(statistics));
    // Most volumes have none.
    let blocks = (statistics.number("nbd_connections_in_all") > 0)
        .then(|| ("Block devices", blocks(statistics)));
    for (title, rows) in groups.into_iter().chain(blocks) {
        text += &format!("\n{title}\n{rows}");
    }
    text
}

fn share(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.0}%", share * 100.0))
}

fn head(statistics: &Statistics<'_>) -> String {
    let state = match statistics.is("latched") {
        true => "stopped taking writes; `dendro info` says why".into(),
        false => failures(statistics),
    };
    output::table(&[("mounted for", duration(statistics.number("mounted_ns"))), ("state", state)])
}

/// Failures of requests whose reason lies with the volume.
fn failures(statistics: &Statistics<'_>) -> String {
    let kinds = [
        ("io_errors", "could not read or write (EIO)"),
        ("no_space_errors", "found no room (ENOSPC)"),
        ("read_only_errors", "met a read-only volume (EROFS)"),
        ("nbd_io_errors", "could not read or write a block device (EIO)"),
        ("nbd_no_space_errors", "found no room for a block device (ENOSPC)"),
    ];
    let failures = kinds.into_iter().filter_map(|(name, what)| match statistics.number(name) {
        0 => None,
        1 => Some(format!("1 request {what}")),
        many => Some(format!("{} requests {what}", count(many))),
    });
    let failures: Vec<_> = failures.collect();
    if failures.is_empty() { "good: no request has failed".into() } else { failures.join(", ") }
}

fn requests_text(statistics: &Statistics<'_>) -> String {
    let all_requests = statistics.requests();
    let seconds = (statistics.number("mounted_ns") as f64 / 1e9).max(1.0);
    let kinds = [
        ("read", "reads"),
        ("write", "writes"),
        ("sync", "syncs"),
        ("lookup", "look-ups"),
        ("change", "changes"),
    ];
    let row = |(kind, name): (&str, &str)| {
        let summary = all_requests.get(kind).map(requests::Counts::summary).unwrap_or_default();
        let Summary { requests, median_ns, p90_ns, p99_ns, longest_ns } = summary;
        let time = |ns: Option<u64>| match ns {
            None => "-".into(),
            // The daemon does not distinguish longer times.
            Some(u64::MAX) => "minutes".into(),
            Some(ns) => duration(ns),
        };
        [
            format!("  {name}"),
            count(requests),
            format!("{:.1}", requests as f64 / seconds),
            time(median_ns),
            time(p90_ns),
            time(p99_ns),
            time(longest_ns),
        ]
    };
    let head = ["", "COUNT", "A SECOND", "MEDIAN", "90%", "99%", "LONGEST"];
    columns(head, &kinds.map(row), &[1, 2, 3, 4, 5, 6])
}

fn written(statistics: &Statistics<'_>) -> String {
    let (pages, records) =
        (statistics.number("user_page_bytes"), statistics.number("user_record_bytes"));
    let amplification = match statistics.share("write_amplification") {
        Some(factor) => format!("{factor:.2} bytes for each of theirs"),
        None => "nothing for theirs yet".into(),
    };
    let seconds = (statistics.number("mounted_ns") as f64 / 1e9).max(1.0);
    let rate = |bytes: u64| format!("{} a second", size((bytes as f64 / seconds) as u64));
    let device = statistics.number("written_bytes");
    let read = statistics.number("read_bytes");
    output::table(&[
        (
            "by programs",
            format!(
                "{}: {} of data, {} of names and attributes",
                size(pages + records),
                size(pages),
                size(records)
            ),
        ),
        ("to the device", format!("{}, {}: {amplification}", size(device), rate(device))),
        ("waited for room", duration(statistics.number("stalled_ns"))),
        ("read by programs", format!("{}, {}", size(read), rate(read))),
        (
            "commits",
            format!(
                "{}, of which {} are durable; the last checkpoint is number {}",
                count(statistics.number("last_commit")),
                count(statistics.number("durable_commit")),
                count(statistics.number("checkpoint_sequence"))
            ),
        ),
        (
            "since that",
            format!(
                "{} of log, for a mount after a crash to read",
                size(statistics.number("log_bytes"))
            ),
        ),
    ])
}

fn cleaned(statistics: &Statistics<'_>) -> String {
    let debt = match statistics.number("debt_segments") {
        0 => "none: as many segments are clean as are to be kept ready".into(),
        missing => format!("{} segments fewer are clean than are to be", count(missing)),
    };
    let full = match statistics.share("cleaned_utilisation") {
        None => String::new(),
        full => format!(", {} full in the mean", share(full)),
    };
    output::table(&[
        ("policy", statistics.word("policy").to_owned()),
        (
            "segments",
            format!(
                "{}{full}; {} emptied by themselves",
                count(statistics.number("cleaned_segments")),
                count(statistics.number("reused_segments"))
            ),
        ),
        ("moved for that", size(statistics.number("cleaner_moved_bytes"))),
        (
            "by other cleaners",
            format!(
                "{} segments, {} moved",
                count(statistics.number("external_released_segments")),
                size(statistics.number("external_moved_bytes"))
            ),
        ),
        (
            "put together",
            format!(
                "{}, which saves {} reads of the device",
                size(statistics.number("coalesced_bytes")),
                count(statistics.number("coalesced_reads"))
            ),
        ),
        ("debt", debt),
    ])
}

fn room(statistics: &Statistics<'_>) -> String {
    let of = |name: &str| count(statistics.number(name));
    let oldest = match statistics.get("oldest_snapshot_ns") {
        None => String::new(),
        Some(age_ns) => format!(", the oldest {} old", duration(age_ns)),
    };
    let gain = CompressionInfo {
        page_bytes: statistics.number("compressed_page_bytes"),
        stored_bytes: statistics.number("compressed_stored_bytes"),
        data_bytes: statistics.number("data_bytes"),
    };
    let mut rows = vec![(
        "alive",
        format!(
            "{} of {}; {} can be written",
            size(statistics.number("live_bytes")),
            size(statistics.number("capacity_bytes")),
            size(statistics.number("available_bytes"))
        ),
    )];
    if gain.page_bytes > 0 {
        rows.push(("compressed", output::compression(&gain)));
    }
    rows.extend([
        ("dead, for cleaning", size(statistics.number("reclaimable_bytes"))),
        (
            "segments",
            format!(
                "{} clean, {} dirty, {} pending, {} being filled, of {}",
                of("clean_segments"),
                of("dirty_segments"),
                of("pending_segments"),
                of("open_segments"),
                size(statistics.number("segment_bytes"))
            ),
        ),
        ("snapshots", format!("{}{oldest}", of("snapshot_count"))),
    ]);
    output::table(&rows)
}

fn memory(statistics: &Statistics<'_>) -> String {
    let of = |name: &str| size(statistics.number(name));
    output::table(&[
        ("in all", of("resident_bytes")),
        (
            "nodes of the map",
            format!(
                "{} cached, of {} allowed; {} dirty, {} superseded",
                of("cached_node_bytes"),
                of("cache_size_bytes"),
                of("dirty_node_bytes"),
                of("superseded_node_bytes")
            ),
        ),
        (
            "i-nodes",
            format!(
                "{}: {}; the kernel knows {}: {}",
                count(statistics.number("inode_count")),
                of("inode_bytes"),
                count(statistics.number("looked_up_count")),
                of("looked_up_bytes")
            ),
        ),
        (
            "buffers",
            format!(
                "{} of log, {} read ahead, {} of pages changed in part",
                of("log_buffer_bytes"),
                of("read_ahead_bytes"),
                of("recent_page_bytes")
            ),
        ),
        ("table of segments", of("segment_table_bytes")),
    ])
}

/// What clients of NBD have asked for.
fn blocks(statistics: &Statistics<'_>) -> String {
    let requests = |kind: &str| statistics.number(&format!("nbd_{kind}_requests"));
    let of = |kind: &str| {
        let bytes = statistics.number(&format!("nbd_{kind}_bytes"));
        format!("{}: {}", counted(requests(kind), "request", "requests"), size(bytes))
    };
    output::table(&[
        (
            "connections",
            format!(
                "{} now, {} in all",
                count(statistics.number("nbd_connections")),
                count(statistics.number("nbd_connections_in_all"))
            ),
        ),
        ("read", of("read")),
        ("written", of("write")),
        ("zeroed", of("zero")),
        ("trimmed", of("trim")),
        (
            "without data",
            format!(
                "{}, {} of block status, {} others",
                counted(requests("flush"), "flush", "flushes"),
                count(requests("block_status")),
                count(requests("other"))
            ),
        ),
        (
            "failed",
            format!(
                "{} with EIO, {} for lack of room, {} refused",
                count(statistics.number("nbd_io_errors")),
                count(statistics.number("nbd_no_space_errors")),
                count(requests("refused"))
            ),
        ),
        ("memory", size(statistics.number("nbd_memory_bytes"))),
    ])
}

#[cfg(test)]
mod tests {
    use dendro_control::Facts;

    use super::*;

    #[test]
    fn what_is_wrong_stands_at_the_top() {
        let facts = |text: &str| serde_json::from_str::<Facts>(text).unwrap();
        let shown = |text: &str| super::text("a.img", &Statistics::of(&facts(text)));
        let well = shown(r#"{"mounted_ns":7500000000000}"#);
        assert!(well.contains("2 h 5 min") && well.contains("no request has failed"), "{well}");
        let wrong = shown(r#"{"io_errors":1,"no_space_errors":2000}"#);
        let line = wrong.lines().nth(2).unwrap();
        assert!(line.contains("1 request could not read or write (EIO), 2,000 requests"), "{line}");
        let blocks = shown(r#"{"nbd_connections_in_all":2,"nbd_io_errors":1}"#);
        assert!(blocks.contains("1 request could not read or write a block device"), "{blocks}");
        assert!(blocks.contains("0 now, 2 in all") && !well.contains("Block devices"), "{blocks}");
        let latched = shown(r#"{"latched":true}"#);
        assert!(latched.contains("stopped taking writes"), "{latched}");
        // A daemon that reports nothing is no error.
        assert!(shown("{}").lines().all(|line| line.len() < 100), "{}", shown("{}"));
    }
}
