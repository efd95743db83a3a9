//! The users' flags of files, which chattr(1) sets and lsattr(1) shows: the only ioctls there are.
//!
//! The kernel knows nothing of the flags of files of FUSE, so the file system alone enforces them: when
//! something is changed, not when a file is opened for it.

use dendro_fs::{FileFlags, FileSystem, FsError, Ino};
use dendro_fuse_transport::{Errno, Request, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::adapter::Adapter;
use crate::capabilities::{self, Capability};

/// The protocol's version in Linux 5.14, from which on (5.13, in truth) the kernel looks whether somebody may
/// change flags. It passes a number that it does not know on without a look: so there is one for each alone.
pub(crate) const KERNEL_LOOKS_MINOR: u32 = 34;

/// From linux/fs.h, where they have the length of a C `long`; 32 bits are passed.
const GET_FLAGS: u32 = 0x8000_6601 | (size_of::<libc::c_long>() as u32) << 16;
const SET_FLAGS: u32 = 0x4000_6602 | (size_of::<libc::c_long>() as u32) << 16;
const GET_XATTR: u32 = 0x801c_581f;
const SET_XATTR: u32 = 0x401c_5820;

/// Bytes of a `struct fsxattr`: flags, extent size, count of extents, project, another size, padding.
const XATTR_LEN_BYTES: usize = 28;
/// Which numbers in it are no flags, and can be set on other file systems.
const OTHER_NUMBERS: [usize; 3] = [4, 12, 16];
/// What is called what in it.
const XFLAGS: [(u32, FileFlags); 4] = [
    (0x08, FileFlags::IMMUTABLE),
    (0x10, FileFlags::APPEND),
    (0x40, FileFlags::NO_ATIME),
    (0x80, FileFlags::NO_DUMP),
];

/// What an ioctl asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Flags,
    Xattr,
    ToSet(FileFlags),
}

/// What `command` asks for with `input`.
pub(crate) fn asked(command: u32, input: &[u8]) -> Result<Asked> {
    let number = |at: usize| {
        let bytes = input.get(at..at + 4).ok_or(Errno::INVAL)?;
        u32::read_from_bytes(bytes).map_err(|_| Errno::INVAL)
    };
    match command {
        GET_FLAGS => Ok(Asked::Flags),
        GET_XATTR => Ok(Asked::Xattr),
        SET_FLAGS => FileFlags::from_bits(number(0)?).map(Asked::ToSet).ok_or(Errno::OPNOTSUPP),
        SET_XATTR => {
            let xflags = number(0)?;
            let known = XFLAGS.iter().fold(0, |all, (bit, _)| all | bit);
            for at in OTHER_NUMBERS {
                if number(at)? != 0 {
                    return Err(Errno::OPNOTSUPP);
                }
            }
            if xflags & !known != 0 {
                return Err(Errno::OPNOTSUPP);
            }
            let set = XFLAGS.iter().filter(|(bit, _)| xflags & bit != 0);
            Ok(Asked::ToSet(set.map(|(_, flag)| *flag).collect()))
        }
        _ => Err(Errno::NOTTY),
    }
}

/// Writes flags to `out`, which is zeroed, as they were asked for.
pub(crate) fn tell(asked: Asked, flags: FileFlags, out: &mut [u8]) -> Result<()> {
    let number = match asked {
        Asked::Flags => flags.bits(),
        Asked::Xattr if out.len() < XATTR_LEN_BYTES => return Err(Errno::INVAL),
        Asked::Xattr => XFLAGS
            .iter()
            .filter(|(_, flag)| flags.contains(*flag))
            .fold(0, |all, (bit, _)| all | bit),
        Asked::ToSet(_) => return Ok(()),
    };
    out.get_mut(..4).ok_or(Errno::INVAL)?.copy_from_slice(number.as_bytes());
    Ok(())
}

impl Adapter {
    /// See [`asked`] and [`tell`].
    pub(crate) fn flags(
        &self,
        fs: &FileSystem,
        request: &Request,
        node: u64,
        asked: Asked,
        out: &mut [u8],
    ) -> Result<()> {
        let attr = self.answer("ioctl", fs.getattr(Ino(node)))?;
        let Asked::ToSet(flags) = asked else { return tell(asked, attr.flags, out) };
        // Where the kernel has looked, it need not say whose request it is.
        let has_looked = self.kernel_looks_at_flags();
        let is_able = |capability| {
            let seen = capabilities::has(request.pid, capability);
            seen.unwrap_or(has_looked || request.uid == 0)
        };
        if !has_looked && request.uid != attr.uid && !is_able(Capability::AnyOwner) {
            return self.answer("ioctl", Err(FsError::NotPermitted("it is another user's file")));
        }
        let is_privileged = is_able(Capability::Immutable);
        self.answer("ioctl", fs.set_flags(Ino(node), flags, is_privileged))?;
        self.note_changed_attributes(node);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xattr(numbers: [u32; 7]) -> Vec<u8> {
        numbers.as_bytes().to_vec()
    }

    #[test]
    fn flags_go_over_in_both_ways_and_others_are_not_supported() {
        let all = FileFlags::all();
        for (flags, xflags) in [(all, 0xd8), (FileFlags::APPEND, 0x10), (FileFlags::empty(), 0)] {
            let mut out = [0; 8];
            tell(asked(GET_FLAGS, &[]).unwrap(), flags, &mut out).unwrap();
            assert_eq!(asked(SET_FLAGS, &out), Ok(Asked::ToSet(flags)));
            assert_eq!(asked(SET_FLAGS, &out[..4]), Ok(Asked::ToSet(flags)));
            let mut out = [0; XATTR_LEN_BYTES];
            tell(asked(GET_XATTR, &[]).unwrap(), flags, &mut out).unwrap();
            assert_eq!(out[..], xattr([xflags, 0, 0, 0, 0, 0, 0]));
            assert_eq!(asked(SET_XATTR, &out), Ok(Asked::ToSet(flags)));
        }
        assert_eq!(asked(SET_FLAGS, 0x0008_0000_u32.as_bytes()), Err(Errno::OPNOTSUPP));
        for unknown in [[1, 0, 0, 0, 0, 0, 0], [0, 4096, 0, 0, 0, 0, 0], [0, 0, 0, 7, 0, 0, 0]] {
            assert_eq!(asked(SET_XATTR, &xattr(unknown)), Err(Errno::OPNOTSUPP));
        }
        assert_eq!(asked(SET_XATTR, &[0; 20]), Ok(Asked::ToSet(FileFlags::empty())));
        assert_eq!(asked(SET_XATTR, &[0; 19]), Err(Errno::INVAL));
        assert_eq!(asked(SET_FLAGS, &[0; 3]), Err(Errno::INVAL));
        assert_eq!(tell(Asked::Flags, all, &mut [0; 3]), Err(Errno::INVAL));
        assert_eq!(tell(Asked::Xattr, all, &mut [0; 27]), Err(Errno::INVAL));
        // What a kernel that looks would not look at.
        let other_len = if size_of::<libc::c_long>() == 8 { 0x4004_6602 } else { 0x4008_6602 };
        for unknown in [0x541b, other_len] {
            assert_eq!(asked(unknown, &[0; 8]), Err(Errno::NOTTY));
        }
    }
}
