//! What is said about streams.

use dendro_control::streams::{SentInfo, StreamInfo, StreamVersion};
use dendro_daemon::text;

pub(super) fn sent_summary(info: &SentInfo) -> String {
    match info.stream_count {
        1 => summary(&info.stream),
        count => format!(
            "{count} snapshots up to {}: {}",
            named(&info.stream.snapshot),
            text::size(info.sequence_bytes)
        ),
    }
}

pub(super) fn summary(info: &StreamInfo) -> String {
    let content = text::size(info.content_bytes);
    let compressed = match info.compressed {
        true => format!(", compressed from {content}"),
        false => String::new(),
    };
    format!(
        "{}{}: {}{compressed}; {} new, {} changed, {} deleted",
        named(&info.snapshot),
        info.base_snapshot
            .as_ref()
            .map_or_else(String::new, |base| format!(" from {}", named(base))),
        text::size(info.stream_bytes),
        text::counted(info.made_lists, "file", "files"),
        info.changed_lists,
        info.deleted_lists,
    )
}

pub(super) fn named(version: &StreamVersion) -> String {
    match &version.name {
        Some(name) => format!("@{}", text::printable(name)),
        None => format!("@{}", version.epoch),
    }
}
