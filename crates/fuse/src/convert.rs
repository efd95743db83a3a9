//! From `fuser`'s types to the file system's, and back.

use std::time::{Duration, SystemTime};

use dendro_fs::{Attr, FileKind, FileTime, FsError, SetTime};
use fuser::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};

/// What stat(2) advises as the size of transfers: 64 KiB, so that programs which go by it make
/// fewer round trips.
const PREFERRED_TRANSFER_BYTES: u32 = 64 << 10;

pub(crate) fn errno(error: &FsError) -> Errno {
    Errno::from_i32(error.errno())
}

pub(crate) const fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::Directory => FileType::Directory,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Regular => FileType::RegularFile,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Socket => FileType::Socket,
    }
}

pub(crate) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size_bytes,
        blocks: attr.blocks_512,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.btime),
        kind: file_type(attr.kind),
        perm: (attr.perm & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: PREFERRED_TRANSFER_BYTES,
        flags: 0,
    }
}

/// An answer to a lookup that found nothing, which the kernel remembers: i-node 0.
pub(crate) const fn absent() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(requested_time(time)),
    }
}

/// The time that the kernel asked for. Of a time before 1970, `fuser` 0.18 makes the epoch less
/// the seconds *and* less the nanoseconds, where the nanoseconds count forwards; this undoes it.
pub(crate) fn requested_time(time: SystemTime) -> FileTime {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => FileTime {
            secs: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanos: after.subsec_nanos(),
        },
        Err(before) => FileTime {
            secs: 0i64.saturating_sub_unsigned(before.duration().as_secs()),
            nanos: before.duration().subsec_nanos(),
        },
    }
}

fn system_time(time: FileTime) -> SystemTime {
    let whole = Duration::from_secs(time.secs.unsigned_abs());
    let second = if time.secs < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    };
    second
        .and_then(|second| second.checked_add(Duration::from_nanos(u64::from(time.nanos))))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_come_and_go_exactly() {
        let time = FileTime { secs: -2, nanos: 800_000_000 };
        let sent = SystemTime::UNIX_EPOCH - Duration::from_millis(1200);
        assert_eq!(system_time(time), sent);
        // What fuser 0.18 makes of (-2 s, 800 ms).
        let received = SystemTime::UNIX_EPOCH - Duration::new(2, 800_000_000);
        assert_eq!(requested_time(received), time);
    }

    #[test]
    fn the_ends_of_time_are_no_panic() {
        for secs in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
            let time = FileTime { secs, nanos: 999_999_999 };
            let _ = requested_time(system_time(time));
        }
    }
}
