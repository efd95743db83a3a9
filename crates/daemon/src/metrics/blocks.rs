//! Requests of clients of NBD, for the block devices in the volume.

use dendro_nbd::{Activity, FailureKind, RequestKind};

use super::metric::{Metric, counter, gauge};

pub(super) fn all(activity: &Activity) -> Vec<Metric> {
    let mut metrics = requests(activity);
    metrics.extend(bytes(activity));
    metrics.extend(failures(activity));
    metrics.extend([
        gauge(
            "nbd_connections",
            "dendro_nbd_open_connections",
            "Connections of clients of NBD.",
            activity.open_connections(),
        ),
        counter(
            "nbd_connections_in_all",
            "dendro_nbd_connections_total",
            "Connections of clients of NBD that there are and were.",
            activity.begun_connections(),
        ),
    ]);
    metrics
}

fn requests(activity: &Activity) -> Vec<Metric> {
    let metric = |kind: RequestKind| {
        let (name, labels) = match kind {
            RequestKind::Read => ("nbd_read_requests", "kind=\"read\""),
            RequestKind::Write => ("nbd_write_requests", "kind=\"write\""),
            RequestKind::Zero => ("nbd_zero_requests", "kind=\"zero\""),
            RequestKind::Trim => ("nbd_trim_requests", "kind=\"trim\""),
            RequestKind::Flush => ("nbd_flush_requests", "kind=\"flush\""),
            RequestKind::BlockStatus => ("nbd_block_status_requests", "kind=\"block_status\""),
            RequestKind::Other => ("nbd_other_requests", "kind=\"other\""),
        };
        let help = "Requests of clients of NBD, by kind.";
        let count = activity.requests(kind);
        Metric { labels, ..counter(name, "dendro_nbd_requests_total", help, count) }
    };
    RequestKind::ALL.map(metric).to_vec()
}

fn bytes(activity: &Activity) -> Vec<Metric> {
    let metric = |kind: RequestKind| {
        let (name, labels) = match kind {
            RequestKind::Read => ("nbd_read_bytes", "kind=\"read\""),
            RequestKind::Write => ("nbd_write_bytes", "kind=\"write\""),
            RequestKind::Zero => ("nbd_zero_bytes", "kind=\"zero\""),
            RequestKind::Trim => ("nbd_trim_bytes", "kind=\"trim\""),
            RequestKind::Flush | RequestKind::BlockStatus | RequestKind::Other => return None,
        };
        let help = "Bytes that clients of NBD read, wrote, zeroed and trimmed.";
        let bytes = activity.bytes(kind);
        Some(Metric { labels, ..counter(name, "dendro_nbd_bytes_total", help, bytes) })
    };
    RequestKind::ALL.into_iter().filter_map(metric).collect()
}

fn failures(activity: &Activity) -> Vec<Metric> {
    let metric = |kind: FailureKind| {
        let (name, labels) = match kind {
            FailureKind::Io => ("nbd_io_errors", "reason=\"io\""),
            FailureKind::NoSpace => ("nbd_no_space_errors", "reason=\"no_space\""),
            FailureKind::Refused => ("nbd_refused_requests", "reason=\"refused\""),
        };
        let help = "Requests of clients of NBD that failed, by reason.";
        let count = activity.failures(kind);
        Metric { labels, ..counter(name, "dendro_nbd_failed_requests_total", help, count) }
    };
    FailureKind::ALL.map(metric).to_vec()
}
