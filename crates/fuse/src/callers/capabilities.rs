//! The capabilities of callers.

/// A capability, by its number in linux/capability.h.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Capability {
    /// `CAP_FOWNER`.
    AnyOwner = 3,
    /// `CAP_LINUX_IMMUTABLE`.
    Immutable = 9,
    /// `CAP_SYS_ADMIN`.
    SystemAdmin = 21,
}

/// Whether a thread has a capability; `None` if the thread cannot be seen from here.
pub(crate) fn has(thread: u32, capability: Capability) -> Option<bool> {
    if thread == 0 {
        return None;
    }
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    Some(effective(&status)? >> capability as u32 & 1 == 1)
}

fn effective(status: &str) -> Option<u64> {
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(set.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_set_counts() {
        let status = "Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000000208\nCapBnd:\t0\n";
        assert_eq!(effective(status), Some(0x208));
        assert_eq!(effective("CapEff:\tx\n"), None);
        assert_eq!(effective("Name:\tx\n"), None);
    }

    #[test]
    fn nothing_is_known_of_a_caller_that_cannot_be_seen() {
        assert!(has(std::process::id(), Capability::Immutable).is_some());
        assert!(has(0, Capability::Immutable).is_none());
        assert!(has(u32::MAX, Capability::AnyOwner).is_none());
    }
}
