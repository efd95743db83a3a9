//! Linux's error numbers, the same on every architecture that matters here.

/// Operation not permitted.
pub const EPERM: i32 = 1;
/// No such file or directory.
pub const ENOENT: i32 = 2;
/// Interrupted system call.
pub const EINTR: i32 = 4;
/// Input/output error.
pub const EIO: i32 = 5;
/// No such device or address.
pub const ENXIO: i32 = 6;
/// Argument list too long.
pub const E2BIG: i32 = 7;
/// Resource temporarily unavailable.
pub const EAGAIN: i32 = 11;
/// Permission denied.
pub const EACCES: i32 = 13;
/// Device or resource busy.
pub const EBUSY: i32 = 16;
/// File exists.
pub const EEXIST: i32 = 17;
/// Invalid cross-device link.
pub const EXDEV: i32 = 18;
/// No such device.
pub const ENODEV: i32 = 19;
/// Not a directory.
pub const ENOTDIR: i32 = 20;
/// Is a directory.
pub const EISDIR: i32 = 21;
/// Invalid argument.
pub const EINVAL: i32 = 22;
/// File too large.
pub const EFBIG: i32 = 27;
/// No space left on device.
pub const ENOSPC: i32 = 28;
/// Read-only file system.
pub const EROFS: i32 = 30;
/// Too many links.
pub const EMLINK: i32 = 31;
/// Numerical result out of range.
pub const ERANGE: i32 = 34;
/// File name too long.
pub const ENAMETOOLONG: i32 = 36;
/// Directory not empty.
pub const ENOTEMPTY: i32 = 39;
/// No data available.
pub const ENODATA: i32 = 61;
/// Message too long.
pub const EMSGSIZE: i32 = 90;
/// Operation not supported.
pub const EOPNOTSUPP: i32 = 95;
/// Stale file handle.
pub const ESTALE: i32 = 116;
/// Disk quota exceeded.
pub const EDQUOT: i32 = 122;
