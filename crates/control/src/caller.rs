//! Who asks, by what the kernel says of the connection.
//!
//! A daemon's own user and root may do everything. Others reach the socket only where it has been opened to
//! them ([`Gate::open`](crate::Gate::open)), and what they may have done,
//! [`Admin::for_other`](crate::Admin::for_other) says.

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
    /// The groups beside it, as far as they can be seen.
    pub groups: Vec<u32>,
}

/// What the kernel says of users that the daemon's user namespace does not have.
const UNKNOWN_ID: u32 = 65_534;

impl Caller {
    /// Who is at the other end; nothing where that cannot be told.
    pub(crate) fn of(stream: &UnixStream) -> Option<Self> {
        let told = socket_peercred(stream).ok()?;
        let (uid, gid) = (told.uid.as_raw(), told.gid.as_raw());
        if uid == UNKNOWN_ID && !has_all_users() {
            return None;
        }
        // One that cannot be seen, or is gone, has no groups beside its own. Its number may be another
        // process's by now, but not one of another user's.
        let status = fs::read_to_string(format!("/proc/{}/status", told.pid.as_raw_nonzero()));
        let groups = status.map(|status| groups_of(&status, uid)).unwrap_or_default();
        Some(Self { uid, gid, groups })
    }

    /// Whether this process's user may ask for anything of daemons of this one's.
    pub(crate) fn is_master(&self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }

    /// Whether it is in the group.
    #[must_use]
    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Whether every user has a number in this process's user namespace.
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
        assert!(caller.is_master());
        assert!(!Caller { uid: caller.uid + 1, ..caller }.is_master());
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
