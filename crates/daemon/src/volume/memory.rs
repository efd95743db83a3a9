//! How much memory the daemon takes for the map's nodes, if no option says it.

use std::fs;
use std::path::{Path, PathBuf};

/// The least, so that small machines work at all …
const MIN_BYTES: u64 = 64 << 20;
/// … unless it is more than this part of the available memory: the rest of the daemon takes some,
/// too.
const MAX_PART: u64 = 4;
/// The smallest cache that an option may ask for.
const MIN_ASKED_BYTES: u64 = 1 << 20;
/// The most: enough for all names and i-nodes of two million files.
const MAX_BYTES: u64 = 1 << 30;
/// In between, this part of the available memory. The kernel cannot reclaim it like its own caches.
const PART: u64 = 24;

/// One i-node is kept in memory for so many bytes of the cache, between these bounds.
const INODE_PART_BYTES: u64 = 4096;
const MIN_INODES: u64 = 4096;
const MAX_INODES: u64 = 32_768;

/// Requests of clients of NBD take this part of the cache's size, between these bounds.
const NBD_PART: u64 = 8;
const MIN_NBD_BYTES: u64 = 32 << 20;
const MAX_NBD_BYTES: u64 = 128 << 20;

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";

/// The default size of the cache on this machine.
pub fn default_cache_bytes() -> u64 {
    part_of(available_bytes())
}

/// The memory that a check may take on this machine, unless it is told.
pub fn default_check_bytes() -> u64 {
    (available_bytes() / MAX_PART).max(MIN_BYTES)
}

/// The memory of the machine, or what the process's groups allow.
fn available_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let there_bytes = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit_bytes = group_limit(Path::new(GROUPS), &groups).unwrap_or(u64::MAX);
    there_bytes.min(limit_bytes)
}

/// The memory for requests of clients of NBD, beside a cache of that size. It has to have room for
/// the longest request.
pub fn nbd_memory_bytes(cache_bytes: u64) -> u64 {
    (cache_bytes / NBD_PART).clamp(MIN_NBD_BYTES, MAX_NBD_BYTES)
}

/// How many i-nodes each mount keeps in memory beside a cache of that size; each takes about 300
/// bytes without data.
pub fn inode_cache_len(cache_bytes: u64) -> usize {
    (cache_bytes / INODE_PART_BYTES).clamp(MIN_INODES, MAX_INODES) as usize
}

/// The resident set of this process, as the kernel counts it.
pub fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn part_of(memory_bytes: u64) -> u64 {
    let least = MIN_BYTES.min(memory_bytes / MAX_PART).max(MIN_ASKED_BYTES);
    let part = (memory_bytes / PART).clamp(least, MAX_BYTES);
    // Whole MiB, as options and messages have it.
    part - part % MIN_ASKED_BYTES
}

/// The lowest limit of the process's groups and of those above them; `table` is /proc/self/cgroup,
/// and `root` is where the hierarchies are mounted.
fn group_limit(root: &Path, table: &str) -> Option<u64> {
    table.lines().filter_map(|line| limit_of_line(root, line)).min()
}

/// The limit for one line of the table: a hierarchy of version 1, with the names of its
/// controllers, or that of version 2, which has no names.
fn limit_of_line(root: &Path, line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, group) = (fields.next()?, fields.next()?);
    if controllers.is_empty() {
        // Beside hierarchies of version 1 it is mounted one directory deeper.
        let roots = [root.to_path_buf(), root.join("unified")];
        return roots.iter().filter_map(|root| least_upwards(root, group, limit_v2)).min();
    }
    if !controllers.split(',').any(|name| name == "memory") {
        return None;
    }
    let roots = [root.join(controllers), root.join("memory")];
    roots.iter().filter_map(|root| least_upwards(root, group, limit_v1)).min()
}

/// The lowest limit of a group and of those above it, as far as they are visible: a container may
/// see its own group as the root.
fn least_upwards(root: &Path, group: &str, limit_of: impl Fn(&Path) -> Option<u64>) -> Option<u64> {
    // A path outside of what is mounted here begins with "/..".
    let group = group.trim_start_matches('/');
    let is_visible = !Path::new(group).components().any(|part| part.as_os_str() == "..");
    let mut directory: PathBuf = if is_visible { root.join(group) } else { root.to_path_buf() };
    let mut least = None;
    loop {
        least = least.into_iter().chain(limit_of(&directory)).min();
        if directory == root || !directory.pop() {
            return least;
        }
    }
}

/// Above `memory.max` the kernel kills processes, above `memory.high` it slows them down. Both
/// contain "max" if there is no limit.
fn limit_v2(directory: &Path) -> Option<u64> {
    let limits = ["memory.max", "memory.high"].map(|name| number_in(&directory.join(name)));
    limits.into_iter().flatten().min()
}

/// The group's own limit, and that of groups above it, even if they are not visible. Without a
/// limit it is more than any machine has.
fn limit_v1(directory: &Path) -> Option<u64> {
    let own = number_in(&directory.join("memory.limit_in_bytes"));
    let statistics = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    let above = statistics.lines().find_map(|line| {
        line.strip_prefix("hierarchical_memory_limit ")?.trim().parse::<u64>().ok()
    });
    own.into_iter().chain(above).min()
}

fn number_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_machines_give_a_part_and_small_ones_enough() {
        assert_eq!(part_of(1 << 30), 64 << 20);
        assert_eq!(part_of(12 << 30), 512 << 20);
        assert_eq!(part_of(1 << 40), 1 << 30);
        // A group of 256 MiB has room for the cache and for all else.
        assert_eq!(part_of(256 << 20), 64 << 20);
        assert_eq!(part_of(128 << 20), 32 << 20);
        assert_eq!(part_of(0), MIN_ASKED_BYTES);
        assert!((MIN_ASKED_BYTES..=MAX_BYTES).contains(&default_cache_bytes()));
    }

    /// A directory with these files, by their names and contents.
    fn groups(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    #[test]
    fn the_tightest_limit_of_the_groups_above_counts() {
        let limit = |files: &[(&str, &str)], table: &str| group_limit(groups(files).path(), table);
        let table = "1:name=systemd:/x\n0::/a/b\n";
        assert_eq!(limit(&[], table), None);
        let none = ("a/b/memory.max", "max\n");
        let above = ("a/memory.max", "1000000\n");
        assert_eq!(limit(&[none], table), None);
        assert_eq!(limit(&[none, above], table), Some(1_000_000));
        assert_eq!(limit(&[("a/b/memory.max", "5000\n"), above], table), Some(5000));
        assert_eq!(limit(&[above], "0::/\n"), None);
    }

    #[test]
    fn being_slowed_down_is_a_limit_too() {
        let root = groups(&[("a/memory.max", "1000000\n"), ("a/memory.high", "900000\n")]);
        assert_eq!(group_limit(root.path(), "0::/a\n"), Some(900_000));
    }

    #[test]
    fn groups_of_version_1_are_limits_too() {
        let table = "12:cpu,cpuacct:/c\n7:memory:/a/b\n0::/\n";
        let unlimited = "9223372036854771712\n";
        let root = groups(&[
            ("memory/a/b/memory.limit_in_bytes", unlimited),
            ("memory/a/memory.limit_in_bytes", "268435456\n"),
        ]);
        assert_eq!(group_limit(root.path(), table), Some(256 << 20));
        // Limits of invisible groups are known here.
        let root = groups(&[(
            "memory/memory.stat",
            "cache 1\nhierarchical_memory_limit 1000\nhierarchical_memsw_limit 5\n",
        )]);
        assert_eq!(group_limit(root.path(), table), Some(1000));
        // The controller may be mounted with others.
        let root = groups(&[("cpu,memory/a/memory.limit_in_bytes", "4096\n")]);
        assert_eq!(group_limit(root.path(), "3:cpu,memory:/a\n"), Some(4096));
        // Version 2 without that controller beside it.
        let root = groups(&[("unified/a/memory.max", "77\n")]);
        assert_eq!(group_limit(root.path(), "0::/a\n"), Some(77));
    }

    #[test]
    fn a_group_beyond_what_is_mounted_is_the_one_that_can_be_seen() {
        let root = groups(&[("memory.max", "1234\n")]);
        assert_eq!(group_limit(root.path(), "0::/../../other\n"), Some(1234));
        assert_eq!(group_limit(root.path(), "0::/docker/0123\n"), Some(1234));
        assert_eq!(group_limit(root.path(), "nonsense\n0:\n"), None);
    }
}
