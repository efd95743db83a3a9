//! Limits of the process that it was started with, and that are not meant for a file system.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lifts the limits of open descriptors and of the length of files as far as the process may.
///
/// Each mount takes some descriptors for each thread; the usual limit allows about fifty mounts.
/// The image is a file to the kernel, so a shell's `ulimit -f` would hold for the whole volume.
pub(crate) fn lift() {
    for resource in [Resource::Nofile, Resource::Fsize] {
        let limit = getrlimit(resource);
        let _ = setrlimit(resource, Rlimit { current: limit.maximum, ..limit });
    }
    // Only the superuser may lift a hard limit. If that fails, a write behind it fails.
    let _ = setrlimit(Resource::Fsize, Rlimit { current: None, maximum: None });
}
