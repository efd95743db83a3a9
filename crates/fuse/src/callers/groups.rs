//! The groups of callers.

/// Whether a thread is in the group `gid`. A thread in another pid namespace (0) cannot be seen,
/// and counts as not in the group.
pub(crate) fn is_member(thread: u32, gid: u32) -> bool {
    thread != 0
        && std::fs::read_to_string(format!("/proc/{thread}/status"))
            .is_ok_and(|status| has_group(&status, gid))
}

fn has_group(status: &str, gid: u32) -> bool {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
    let is_gid = |word: &str| word.parse() == Ok(gid);
    // The four are real, effective, saved, and that for file access, which counts.
    let own = field("Gid:").and_then(|gids: &str| gids.split_whitespace().nth(3));
    own.is_some_and(is_gid)
        || field("Groups:").is_some_and(|gids| gids.split_whitespace().any(is_gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_for_file_systems_and_those_beside_it_count() {
        let status = "Name:\tcp\nUid:\t1\t1\t1\t1\nGid:\t2\t3\t4\t5\nFDSize:\t64\nGroups:\t6 70 \n";
        let found: Vec<u32> = (0..100).filter(|&gid| has_group(status, gid)).collect();
        assert_eq!(found, [5, 6, 70]);
        assert!(!has_group("Name:\tcp\nGid:\t2\t3\nGroups:\t \n", 3));
    }

    #[test]
    fn a_caller_that_cannot_be_seen_is_in_no_group() {
        assert!(is_member(std::process::id(), rustix::process::getegid().as_raw()));
        assert!(!is_member(0, rustix::process::getegid().as_raw()));
        assert!(!is_member(u32::MAX, 0));
    }
}
