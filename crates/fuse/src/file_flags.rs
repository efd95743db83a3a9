//! The flags of files that chattr(1) sets and lsattr(1) shows, as ioctls pass them.
//!
//! The kernel does not know the flags of files on FUSE. So only the file system enforces them: when
//! a file is changed, not when it is opened.

use dendro_fs::FileFlags;
use dendro_fuse_transport::{Errno, Result};
use zerocopy::{FromBytes, IntoBytes};

/// The minor protocol version of Linux 5.14. From Linux 5.13 on, the kernel checks whether a caller
/// may change flags. It passes on unknown commands without a check, so only the two known ones are
/// accepted.
pub(crate) const KERNEL_CHECKS_MINOR: u32 = 34;

/// The commands of linux/fs.h. The length in them is that of a C `long`, but 32 bits are passed.
const GET_FLAGS: u32 = 0x8000_6601 | (size_of::<libc::c_long>() as u32) << 16;
const SET_FLAGS: u32 = 0x4000_6602 | (size_of::<libc::c_long>() as u32) << 16;
const GET_XATTR: u32 = 0x801c_581f;
const SET_XATTR: u32 = 0x401c_5820;

/// The length of a `struct fsxattr`: flags, extent size, number of extents, project, copy-on-write
/// extent size, padding.
const XATTR_LEN_BYTES: usize = 28;
/// The offsets of its fields that other file systems can set, and that must be 0 here.
const OTHER_FIELDS: [usize; 3] = [4, 12, 16];
/// The bits of the flags in it.
const XFLAGS: [(u32, FileFlags); 4] = [
    (0x08, FileFlags::IMMUTABLE),
    (0x10, FileFlags::APPEND),
    (0x40, FileFlags::NO_ATIME),
    (0x80, FileFlags::NO_DUMP),
];

/// What an ioctl requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagsRequest {
    /// The flags in the form of `FS_IOC_GETFLAGS`.
    Get,
    /// The flags in the form of `FS_IOC_FSGETXATTR`.
    GetXattr,
    /// Setting the flags.
    Set(FileFlags),
    /// Setting those of the flags that `FS_IOC_FSSETXATTR` names, which are not all.
    SetXattr(FileFlags),
}

/// The flags that `FS_IOC_FSSETXATTR` names.
pub(crate) fn in_xattr() -> FileFlags {
    XFLAGS.iter().map(|(_, flag)| *flag).collect()
}

/// What the ioctl `command` requests with `input`.
pub(crate) fn parse(command: u32, input: &[u8]) -> Result<FlagsRequest> {
    let number = |at: usize| {
        let bytes = input.get(at..at + 4).ok_or(Errno::INVAL)?;
        u32::read_from_bytes(bytes).map_err(|_| Errno::INVAL)
    };
    match command {
        GET_FLAGS => Ok(FlagsRequest::Get),
        GET_XATTR => Ok(FlagsRequest::GetXattr),
        SET_FLAGS => {
            FileFlags::from_bits(number(0)?).map(FlagsRequest::Set).ok_or(Errno::OPNOTSUPP)
        }
        SET_XATTR => {
            let xflags = number(0)?;
            let known = XFLAGS.iter().fold(0, |all, (bit, _)| all | bit);
            for at in OTHER_FIELDS {
                if number(at)? != 0 {
                    return Err(Errno::OPNOTSUPP);
                }
            }
            if xflags & !known != 0 {
                return Err(Errno::OPNOTSUPP);
            }
            let set = XFLAGS.iter().filter(|(bit, _)| xflags & bit != 0);
            Ok(FlagsRequest::SetXattr(set.map(|(_, flag)| *flag).collect()))
        }
        _ => Err(Errno::NOTTY),
    }
}

/// Writes flags to `out`, which is zeroed, in the form that was requested.
pub(crate) fn encode(request: FlagsRequest, flags: FileFlags, out: &mut [u8]) -> Result<()> {
    let number = match request {
        FlagsRequest::Get => flags.bits(),
        FlagsRequest::GetXattr if out.len() < XATTR_LEN_BYTES => return Err(Errno::INVAL),
        FlagsRequest::GetXattr => XFLAGS
            .iter()
            .filter(|(_, flag)| flags.contains(*flag))
            .fold(0, |all, (bit, _)| all | bit),
        FlagsRequest::Set(_) | FlagsRequest::SetXattr(_) => return Ok(()),
    };
    out.get_mut(..4).ok_or(Errno::INVAL)?.copy_from_slice(number.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xattr(numbers: [u32; 7]) -> Vec<u8> {
        numbers.as_bytes().to_vec()
    }

    #[test]
    fn flags_pass_in_both_forms_and_other_fields_are_not_supported() {
        let all = FileFlags::all();
        for (flags, xflags) in [(all, 0xd8), (FileFlags::APPEND, 0x10), (FileFlags::empty(), 0)] {
            let mut out = [0; 8];
            encode(parse(GET_FLAGS, &[]).unwrap(), flags, &mut out).unwrap();
            assert_eq!(parse(SET_FLAGS, &out), Ok(FlagsRequest::Set(flags)));
            assert_eq!(parse(SET_FLAGS, &out[..4]), Ok(FlagsRequest::Set(flags)));
            let mut out = [0; XATTR_LEN_BYTES];
            encode(parse(GET_XATTR, &[]).unwrap(), flags, &mut out).unwrap();
            assert_eq!(out[..], xattr([xflags, 0, 0, 0, 0, 0, 0]));
            let named = flags & in_xattr();
            assert_eq!(parse(SET_XATTR, &out), Ok(FlagsRequest::SetXattr(named)));
        }
        assert_eq!(parse(SET_FLAGS, 0x0008_0000_u32.as_bytes()), Err(Errno::OPNOTSUPP));
        for unknown in [[1, 0, 0, 0, 0, 0, 0], [0, 4096, 0, 0, 0, 0, 0], [0, 0, 0, 7, 0, 0, 0]] {
            assert_eq!(parse(SET_XATTR, &xattr(unknown)), Err(Errno::OPNOTSUPP));
        }
        assert_eq!(parse(SET_XATTR, &[0; 20]), Ok(FlagsRequest::SetXattr(FileFlags::empty())));
        assert_eq!(parse(SET_XATTR, &[0; 19]), Err(Errno::INVAL));
        assert_eq!(parse(SET_FLAGS, &[0; 3]), Err(Errno::INVAL));
        assert_eq!(encode(FlagsRequest::Get, all, &mut [0; 3]), Err(Errno::INVAL));
        assert_eq!(encode(FlagsRequest::GetXattr, all, &mut [0; 27]), Err(Errno::INVAL));
        // Commands that the kernel would pass on without a check.
        let other_len = if size_of::<libc::c_long>() == 8 { 0x4004_6602 } else { 0x4008_6602 };
        for unknown in [0x541b, other_len] {
            assert_eq!(parse(unknown, &[0; 8]), Err(Errno::NOTTY));
        }
    }
}
