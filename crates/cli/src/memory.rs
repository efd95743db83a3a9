//! How much memory the daemon takes for the map's nodes, unless it is told.

use std::fs;
use std::path::{Path, PathBuf};

/// No less, so that small machines get anything done …
const LEAST_BYTES: u64 = 64 << 20;
/// … and no more, whatever there is: enough for all names and i-nodes of two million files.
const MOST_BYTES: u64 = 1 << 30;
/// In between, this part of what can be had. The kernel cannot take it back as it can its own caches.
const PART: u64 = 32;

/// Where control groups are.
const GROUPS: &str = "/sys/fs/cgroup";

/// The size of the cache on this machine.
pub(crate) fn default_cache_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let there_bytes = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit_bytes = group_limit(Path::new(GROUPS), &groups).unwrap_or(u64::MAX);
    part_of(there_bytes.min(limit_bytes))
}

fn part_of(memory_bytes: u64) -> u64 {
    (memory_bytes / PART).clamp(LEAST_BYTES, MOST_BYTES)
}

/// The least of the limits that the process's group and those above it have; `table` is
/// /proc/self/cgroup.
fn group_limit(root: &Path, table: &str) -> Option<u64> {
    let group = table.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mut directory: PathBuf = root.join(group);
    let mut least = None;
    loop {
        let limit = fs::read_to_string(directory.join("memory.max")).ok();
        // "max" where there is none.
        let limit = limit.and_then(|text| text.trim().parse().ok());
        least = least.into_iter().chain(limit).min();
        if directory == root || !directory.pop() {
            return least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_machines_give_a_part_and_small_ones_enough() {
        assert_eq!(part_of(1 << 30), 64 << 20);
        assert_eq!(part_of(16 << 30), 512 << 20);
        assert_eq!(part_of(1 << 40), 1 << 30);
        assert!((LEAST_BYTES..=MOST_BYTES).contains(&default_cache_bytes()));
    }

    #[test]
    fn the_tightest_limit_of_the_groups_above_counts() {
        let root = tempfile::tempdir().unwrap();
        let below = root.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        let limit = |table: &str| group_limit(root.path(), table);
        assert_eq!(limit("0::/a/b\n"), None);
        fs::write(below.join("memory.max"), "max\n").unwrap();
        fs::write(root.path().join("a/memory.max"), "1000000\n").unwrap();
        assert_eq!(limit("1:name=systemd:/x\n0::/a/b\n"), Some(1_000_000));
        fs::write(below.join("memory.max"), "5000\n").unwrap();
        assert_eq!(limit("0::/a/b\n"), Some(5000));
        assert_eq!(limit("0::/\n"), None);
        assert_eq!(limit("4:memory:/a\n"), None);
    }
}
