//! Error numbers that the kernel accepts in a reply.

/// Why a request fails: a number from 1 to 511. The kernel refuses a reply with any other number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{}", std::io::Error::from_raw_os_error(*.0))]
pub struct Errno(i32);

/// The first number that only the kernel itself uses (`ERESTARTSYS`).
const FIRST_INTERNAL: i32 = 512;

/// The result of a request.
pub type Result<T> = std::result::Result<T, Errno>;

impl Errno {
    /// The file system does not have this request. Most of these the kernel does not send again.
    pub const NOSYS: Self = Self(libc::ENOSYS);
    /// The request is invalid.
    pub const INVAL: Self = Self(libc::EINVAL);
    /// It failed for a reason that has no number of its own.
    pub const IO: Self = Self(libc::EIO);
    /// There is nothing of that name.
    pub const NOENT: Self = Self(libc::ENOENT);
    /// The buffer is too small.
    pub const RANGE: Self = Self(libc::ERANGE);
    /// No such ioctl.
    pub const NOTTY: Self = Self(libc::ENOTTY);
    /// This user may not do that.
    pub const ACCES: Self = Self(libc::EACCES);
    /// The name exists.
    pub const EXIST: Self = Self(libc::EEXIST);
    /// Not a directory.
    pub const NOTDIR: Self = Self(libc::ENOTDIR);
    /// A directory.
    pub const ISDIR: Self = Self(libc::EISDIR);
    /// The directory is not empty.
    pub const NOTEMPTY: Self = Self(libc::ENOTEMPTY);
    /// No such attribute.
    pub const NODATA: Self = Self(libc::ENODATA);
    /// Beyond the end.
    pub const NXIO: Self = Self(libc::ENXIO);
    /// The name is too long.
    pub const NAMETOOLONG: Self = Self(libc::ENAMETOOLONG);
    /// It is not supported.
    pub const OPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    /// A number is too large for its field.
    pub const OVERFLOW: Self = Self(libc::EOVERFLOW);
    /// The file was removed, though its number is still known.
    pub const STALE: Self = Self(libc::ESTALE);
    /// There is no room.
    pub const NOSPC: Self = Self(libc::ENOSPC);
    /// It cannot be changed.
    pub const ROFS: Self = Self(libc::EROFS);
    /// The two are in different file systems.
    pub const XDEV: Self = Self(libc::EXDEV);
    /// There are too many.
    pub const NFILE: Self = Self(libc::ENFILE);

    /// The number `raw`; [`Self::IO`] if the kernel would refuse it.
    #[must_use]
    pub const fn from_raw(raw: i32) -> Self {
        if raw > 0 && raw < FIRST_INTERNAL { Self(raw) } else { Self::IO }
    }

    /// The number.
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_the_kernel_would_refuse_become_eio() {
        for raw in [i32::MIN, -1, 0, 512, 4095, i32::MAX] {
            assert_eq!(Errno::from_raw(raw), Errno::IO);
        }
        assert_eq!(Errno::from_raw(libc::EDQUOT).raw(), libc::EDQUOT);
        assert_eq!(Errno::from_raw(511).raw(), 511);
    }
}
