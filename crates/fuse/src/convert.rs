//! From the protocol's types to the file system's, and back.

use std::time::Duration;

use dendro_fs::FileTime;
use dendro_fuse_transport::{Attr, AttrReply, Entry, Errno, SetTime, Time};

/// How long the kernel may cache replies: forever, since it is notified of every change that does
/// not come from itself.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// The preferred size of transfers in stat(2): 64 KiB, so that programs that follow it need fewer
/// requests.
const PREFERRED_TRANSFER_BYTES: u32 = 64 << 10;

pub(crate) fn errno(error: &dendro_fs::FsError) -> Errno {
    Errno::from_raw(error.errno())
}

fn attr(attr: &dendro_fs::Attr) -> Attr {
    Attr {
        ino: attr.ino.0,
        size_bytes: attr.size_bytes,
        blocks_512: attr.blocks_512,
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
        btime: time(attr.btime),
        mode: attr.mode(),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize_bytes: PREFERRED_TRANSFER_BYTES,
    }
}

pub(crate) fn attributes(found: &dendro_fs::Attr) -> AttrReply {
    AttrReply { attr: attr(found), valid: FOREVER }
}

pub(crate) fn entry(found: &dendro_fs::Attr) -> Entry {
    Entry {
        node: found.ino.0,
        generation: u64::from(found.generation),
        entry_valid: FOREVER,
        attr: attr(found),
        attr_valid: FOREVER,
    }
}

/// The reply to a lookup that found nothing, which the kernel caches.
pub(crate) fn absent() -> Entry {
    Entry::absent(FOREVER)
}

const fn time(time: FileTime) -> Time {
    Time { secs: time.secs, nanos: time.nanos }
}

pub(crate) const fn file_time(time: Time) -> FileTime {
    FileTime { secs: time.secs, nanos: time.nanos }
}

pub(crate) const fn set_time(time: SetTime) -> dendro_fs::SetTime {
    match time {
        SetTime::Now => dendro_fs::SetTime::Now,
        SetTime::At(time) => dendro_fs::SetTime::At(file_time(time)),
    }
}
