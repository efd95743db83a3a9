//! Loop devices: image files as block devices.

use std::fmt;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::block_device;
use crate::device::BLOCK_SIZE;

const CONTROL: &str = "/dev/loop-control";
/// From linux/loop.h.
const LOOP_CTL_GET_FREE: Opcode = 0x4C82;
const LOOP_CONFIGURE: Opcode = 0x4C0A;
const FLAG_READ_ONLY: u32 = 1;
const FLAG_AUTOCLEAR: u32 = 4;
const FLAG_DIRECT_IO: u32 = 16;
/// How often another process may take the free device first, before this one gives up.
const TRIES: u32 = 16;

/// `struct loop_config` with the `struct loop_info64` in it.
#[derive(FromZeros, IntoBytes, Immutable)]
#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    /// Device, i-node, the device's number; offset, size limit.
    numbers: [u64; 5],
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    names_and_key: [u8; 64 + 64 + 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Config>() == 8 + 232 + 64);

/// Asks for the number of a free loop device.
struct GetFree;

// SAFETY: LOOP_CTL_GET_FREE takes no argument, touches no memory, and returns a number.
unsafe impl Ioctl for GetFree {
    type Output = u32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(
        out: IoctlOutput,
        _: *mut std::ffi::c_void,
    ) -> rustix::io::Result<u32> {
        u32::try_from(out).map_err(|_| Errno::RANGE)
    }
}

/// An image file, attached to a loop device, with direct I/O if the image's file system supports
/// it. The kernel detaches it once the device is neither open nor mounted; this value counts as
/// open.
pub struct LoopDevice {
    path: PathBuf,
    _open: OwnedFd,
}

impl LoopDevice {
    /// Attaches `image` to a free loop device.
    ///
    /// # Errors
    /// The system's error: this process may not do that, or there are no loop devices.
    pub fn attach(image: &Path, read_only: bool) -> io::Result<Self> {
        let image = image.canonicalize()?;
        let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let file = rustix::fs::open(&image, access | OFlags::CLOEXEC, Mode::empty())?;
        let named = |errno: Errno| {
            io::Error::new(io::Error::from(errno).kind(), format!("{CONTROL}: {errno}"))
        };
        let control = rustix::fs::open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(named)?;
        let mut config = Config::new_zeroed();
        config.fd = file.as_raw_fd().cast_unsigned();
        config.block_size = block_size(&file);
        config.flags = FLAG_AUTOCLEAR | FLAG_DIRECT_IO | if read_only { FLAG_READ_ONLY } else { 0 };
        // The name that the kernel shows beside the path, which it knows by itself.
        let name = image.as_os_str().as_encoded_bytes();
        let len = name.len().min(63);
        config.names_and_key[..len].copy_from_slice(&name[..len]);
        for _ in 0..TRIES {
            // SAFETY: see `GetFree`.
            let number = unsafe { ioctl(&control, GetFree) }.map_err(named)?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let open = rustix::fs::open(&path, access | OFlags::CLOEXEC, Mode::empty())?;
            match configure(&open, &config) {
                Ok(()) => return Ok(Self { path, _open: open }),
                // Direct I/O requires larger blocks, or is not supported.
                Err(Errno::INVAL) if config.flags & FLAG_DIRECT_IO != 0 => {
                    config.flags &= !FLAG_DIRECT_IO;
                    config.block_size = 0;
                }
                Err(Errno::BUSY) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "no loop device stays free"))
    }

    /// The device's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for LoopDevice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LoopDevice").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The block size for `image`: [`BLOCK_SIZE`] if it consists of whole blocks, which makes fewer
/// requests and is aligned for direct I/O everywhere; otherwise 0, the smallest.
fn block_size(image: &OwnedFd) -> u32 {
    let len = rustix::fs::fstat(image).map_or(0, |stat| stat.st_size);
    let block = BLOCK_SIZE as u32;
    if len % i64::from(block) == 0 { block } else { 0 }
}

fn configure(device: &OwnedFd, config: &Config) -> rustix::io::Result<()> {
    let mut bytes = [0; size_of::<Config>()];
    bytes.copy_from_slice(config.as_bytes());
    // SAFETY: LOOP_CONFIGURE reads a `struct loop_config`, as long as this array, and touches no
    // other memory of this process; the descriptor in it is open.
    unsafe { ioctl(device, Setter::<LOOP_CONFIGURE, [u8; size_of::<Config>()]>::new(bytes)) }
}

/// The file behind the loop device `path`; `None` if `path` is no loop device or a detached one.
#[must_use]
pub fn loop_backing_file(path: &Path) -> Option<PathBuf> {
    let stat = rustix::fs::stat(path).ok()?;
    let is_block =
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::BlockDevice;
    if is_block { block_device::loop_backing_file(stat.st_rdev) } else { None }
}
