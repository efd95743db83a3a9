//! From the values of a reply to its bytes.

use std::time::Duration;

use super::abi::{
    AttrOnWire, AttrOut, CreateOut, EntryOut, OpenOut, StatfsOut, StatxOnWire, StatxOut, StatxTime,
};
use super::types::{Attr, AttrReply, Entry, Opened, StatFs, Time};

/// The fields of statx(2) that are filled: `STATX_BASIC_STATS` and `STATX_BTIME`.
const STATX_FILLED: u32 = 0x0fff;

fn attr(attr: &Attr) -> AttrOnWire {
    AttrOnWire {
        ino: attr.ino,
        size: attr.size_bytes,
        blocks: attr.blocks_512,
        atime: attr.atime.secs,
        mtime: attr.mtime.secs,
        ctime: attr.ctime.secs,
        atime_nsec: attr.atime.nanos,
        mtime_nsec: attr.mtime.nanos,
        ctime_nsec: attr.ctime.nanos,
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.blksize_bytes,
        flags: 0,
    }
}

const fn split(valid: Duration) -> (u64, u32) {
    (valid.as_secs(), valid.subsec_nanos())
}

pub(crate) fn entry(entry: &Entry) -> EntryOut {
    let (entry_valid, entry_valid_nsec) = split(entry.entry_valid);
    let (attr_valid, attr_valid_nsec) = split(entry.attr_valid);
    EntryOut {
        node: entry.node,
        generation: entry.generation,
        entry_valid,
        attr_valid,
        entry_valid_nsec,
        attr_valid_nsec,
        attr: attr(&entry.attr),
    }
}

pub(crate) fn attributes(reply: &AttrReply) -> AttrOut {
    let (attr_valid, attr_valid_nsec) = split(reply.valid);
    AttrOut { attr_valid, attr_valid_nsec, padding: 0, attr: attr(&reply.attr) }
}

const fn statx_time(time: Time) -> StatxTime {
    StatxTime { secs: time.secs, nanos: time.nanos, reserved: 0 }
}

pub(crate) fn statx(reply: &AttrReply) -> StatxOut {
    let (attr_valid, attr_valid_nsec) = split(reply.valid);
    let attr = &reply.attr;
    StatxOut {
        attr_valid,
        attr_valid_nsec,
        flags: 0,
        spare: [0; 2],
        stat: StatxOnWire {
            mask: STATX_FILLED,
            blksize: attr.blksize_bytes,
            attributes: 0,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: (attr.mode & 0xffff) as u16,
            spare0: 0,
            ino: attr.ino,
            size: attr.size_bytes,
            blocks: attr.blocks_512,
            attributes_mask: 0,
            atime: statx_time(attr.atime),
            btime: statx_time(attr.btime),
            ctime: statx_time(attr.ctime),
            mtime: statx_time(attr.mtime),
            // Linux's 32-bit encoding has the 12 bits of the major number between 8 low and 12 high
            // bits of the minor number.
            rdev_major: (attr.rdev >> 8) & 0xfff,
            rdev_minor: (attr.rdev & 0xff) | ((attr.rdev >> 12) & 0xf_ff00),
            dev_major: 0,
            dev_minor: 0,
            spare2: [0; 14],
        },
    }
}

pub(crate) const fn opened(opened: &Opened) -> OpenOut {
    OpenOut { handle: opened.handle, open_flags: opened.flags.bits(), backing_id: 0 }
}

pub(crate) fn created(made: &Entry, open: &Opened) -> CreateOut {
    CreateOut { entry: entry(made), open: opened(open) }
}

pub(crate) const fn statfs(stat: &StatFs) -> StatfsOut {
    StatfsOut {
        blocks: stat.blocks,
        bfree: stat.blocks_free,
        bavail: stat.blocks_available,
        files: stat.files,
        ffree: stat.files_free,
        bsize: stat.block_bytes,
        namelen: stat.name_max_bytes,
        frsize: stat.fragment_bytes,
        padding: 0,
        spare: [0; 6],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_taken_apart_as_the_kernel_puts_them_together() {
        let (major, minor) = (0xabc_u32, 0x1_2345_u32);
        let rdev = (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12);
        let reply = AttrReply { attr: Attr { rdev, ..Attr::default() }, valid: Duration::ZERO };
        let stat = statx(&reply).stat;
        assert_eq!((stat.rdev_major, stat.rdev_minor), (major, minor));
    }

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        let time = Time { secs: -2, nanos: 800_000_000 };
        let wire = attr(&Attr { mtime: time, ..Attr::default() });
        assert_eq!((wire.mtime, wire.mtime_nsec), (-2, 800_000_000));
    }
}
