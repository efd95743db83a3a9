//! The user at the other end of a connection, as the kernel reports it.
//!
//! The daemon's own user and root may do everything. Other users can only connect once
//! [`Gate::open`](crate::Gate::open) has let them, and
//! [`Admin::for_other`](crate::Admin::for_other) decides what they may do.

use std::fs;
use std::os::unix::net::UnixStream;

use rustix::net::sockopt::socket_peercred;

/// The user and the groups of a process, as they were when it connected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The supplementary groups, as far as they can be read.
    pub groups: Vec<u32>,
}

/// The id that the kernel reports for users that the daemon's user namespace does not have.
const UNKNOWN_ID: u32 = 65_534;

impl Caller {
    /// The user at the other end; `None` where that is not known.
    pub(crate) fn of(stream: &UnixStream) -> Option<Self> {
        let peer = socket_peercred(stream).ok()?;
        let (uid, gid) = (peer.uid.as_raw(), peer.gid.as_raw());
        if uid == UNKNOWN_ID && !has_all_users() {
            return None;
        }
        // A process that cannot be seen, or is gone, counts as having no supplementary groups. If
        // its number belongs to a process of another user by now, `groups_of` finds out.
        let status = fs::read_to_string(format!("/proc/{}/status", peer.pid.as_raw_nonzero()));
        let groups = status.map(|status| groups_of(&status, uid)).unwrap_or_default();
        Some(Self { uid, gid, groups })
    }

    /// Whether the caller is root or this process's own user, who may ask for anything.
    pub(crate) fn may_do_anything(&self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }

    /// Whether the caller is in the group.
    #[must_use]
    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Whether this process's user namespace has all users.
fn has_all_users() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// The groups in `/proc/PID/status`, if the process is the user's.
fn groups_of(status: &str, uid: u32) -> Vec<u32> {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
    // Real, effective, saved, and that for file systems.
    let effective = field("Uid:").and_then(|uids: &str| uids.split_whitespace().nth(1));
    match effective.and_then(|text| text.parse().ok()) == Some(uid) {
        true => field("Groups:")
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|text| text.parse().ok())
            .collect(),
        false => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_is_known() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let caller = Caller::of(&ours).unwrap();
        assert_eq!(caller.uid, rustix::process::geteuid().as_raw());
        assert!(caller.is_in(rustix::process::getegid().as_raw()));
        assert!(caller.may_do_anything());
        assert!(!Caller { uid: caller.uid + 1, ..caller }.may_do_anything());
    }

    #[test]
    fn groups_are_believed_of_a_process_of_the_user_alone() {
        let status = "Name:\tcp\nUid:\t1\t2\t3\t4\nGid:\t5\t5\t5\t5\nGroups:\t6 70 \n";
        assert_eq!(groups_of(status, 2), [6, 70]);
        assert!(groups_of(status, 1).is_empty(), "the number is another process's by now");
        assert!(groups_of("", 0).is_empty());
        let caller = Caller { uid: 2, gid: 5, groups: vec![6, 70] };
        let found: Vec<u32> = (0..100).filter(|&gid| caller.is_in(gid)).collect();
        assert_eq!(found, [5, 6, 70]);
    }
}
