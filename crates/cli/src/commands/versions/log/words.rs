//! Versions in words.

use dendro_daemon::text;

use super::graph::{Node, What};
use crate::output::local_time::time;

const NS_PER_S: u64 = 1_000_000_000;

/// The texts of a row: name, age, time, and description.
pub(super) fn words(node: &Node, now_ns: i64) -> [String; 4] {
    // Whole seconds are enough.
    let age = |time_ns: i64| {
        let secs = u64::try_from(now_ns.saturating_sub(time_ns)).unwrap_or(0) / NS_PER_S;
        secs.max(1) * NS_PER_S
    };
    if node.what == What::Gone {
        let why = "what these go on from is deleted";
        return ["(deleted)".into(), String::new(), String::new(), why.into()];
    }
    let mut when = time(node.time_ns);
    let ago = match node.what {
        What::Head { .. } => "now".into(),
        _ => text::duration(age(node.time_ns)) + " ago",
    };
    let what = match &node.what {
        What::Head { is_main, mount_points } => {
            when = format!("made {when}");
            let kind = if *is_main { "the main branch" } else { "branch" };
            match mount_points.is_empty() {
                true => kind.to_owned(),
                false => format!("{kind}, on {}", mount_points.join(", ")),
            }
        }
        What::Snapshot { is_held: true, .. } => "held".into(),
        What::Snapshot { is_named: true, .. } => String::new(),
        What::Snapshot { .. } => "automatic".into(),
        What::Folded { oldest_ns, .. } => format!("automatic, from {}", time(*oldest_ns)),
        What::Gone => String::new(),
    };
    let name = match node.what {
        What::Folded { count, .. } => format!("{} snapshots", text::count(count as u64)),
        _ => text::printable(&node.name),
    };
    [name, ago, when, what]
}
