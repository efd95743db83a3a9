//! An image on a device with bad places: a file system with this one file, whose reads fail there
//! with EIO, as those of a disk do.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dendro_fuse_transport::{
    Access, Attr, AttrReply, Choice, Entry, Errno, FileSystem, MountRequest, OpenHow, Opened,
    OpenedFlags, Options, Request, Result, Session, StatFs, UnmountMode, WriteHow, mount, unmount,
};

const ROOT: u64 = 1;
const IMAGE: u64 = 2;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
/// So that a length that was changed is seen at once.
const VALID: Duration = Duration::ZERO;

struct OneFile {
    image: File,
    bad: Mutex<Option<Range<u64>>>,
}

impl OneFile {
    fn attr(&self, node: u64) -> Result<Attr> {
        let size_bytes = self.image.metadata().map_err(|_| Errno::IO)?.len();
        Ok(match node {
            ROOT => Attr { ino: ROOT, mode: S_IFDIR | 0o755, nlink: 2, ..Attr::default() },
            IMAGE => Attr {
                ino: IMAGE,
                mode: S_IFREG | 0o600,
                nlink: 1,
                size_bytes,
                blocks_512: size_bytes / 512,
                blksize_bytes: 4096,
                ..Attr::default()
            },
            _ => return Err(Errno::NOENT),
        })
    }
}

impl FileSystem for &OneFile {
    fn lookup(&self, _: &Request<'_>, parent: u64, name: &[u8]) -> Result<Entry> {
        if parent != ROOT || name != b"image" {
            return Err(Errno::NOENT);
        }
        let attr = self.attr(IMAGE)?;
        Ok(Entry { node: IMAGE, generation: 0, entry_valid: VALID, attr, attr_valid: VALID })
    }

    fn getattr(&self, _: &Request<'_>, node: u64, _: Option<u64>) -> Result<AttrReply> {
        Ok(AttrReply { attr: self.attr(node)?, valid: VALID })
    }

    fn open(&self, _: &Request<'_>, _: u64, _: OpenHow) -> Result<Opened> {
        // Nothing is cached, so that each read comes to the bad places.
        Ok(Opened { handle: 0, flags: OpenedFlags::DIRECT_IO })
    }

    fn read(&self, _: &Request<'_>, _: u64, _: u64, at: u64, out: &mut [u8]) -> Result<usize> {
        let end = at + out.len() as u64;
        let bad = self.bad.lock().expect("nobody panics");
        if bad.as_ref().is_some_and(|range| range.start < end && at < range.end) {
            return Err(Errno::IO);
        }
        self.image.read_at(out, at).map_err(|_| Errno::IO)
    }

    fn write(&self, _: &Request<'_>, _: u64, how: &WriteHow, data: &[u8]) -> Result<usize> {
        self.image.write_at(data, how.offset).map_err(|_| Errno::IO)
    }

    fn fsync(&self, _: &Request<'_>, _: u64, _: u64, _: bool) -> Result<()> {
        self.image.sync_data().map_err(|_| Errno::IO)
    }

    fn statfs(&self, _: &Request<'_>, _: u64) -> Result<StatFs> {
        let (blocks, block_bytes) = (1 << 20, 4096);
        Ok(StatFs {
            blocks,
            blocks_free: blocks,
            blocks_available: blocks,
            files: 2,
            files_free: 0,
            block_bytes,
            fragment_bytes: block_bytes,
            name_max_bytes: 255,
        })
    }
}

/// The image on such a device, while this lives.
pub(crate) struct FailingDevice {
    directory: PathBuf,
    files: Arc<OneFile>,
    server: Option<JoinHandle<()>>,
}

impl FailingDevice {
    /// Shows `image` on the directory `at`, which it makes.
    #[allow(clippy::disallowed_methods, reason = "the server's thread")]
    pub(crate) fn new(image: &Path, at: PathBuf) -> Self {
        std::fs::create_dir(&at).expect("there is room");
        let image = File::options().read(true).write(true).open(image).expect("there is an image");
        let files = Arc::new(OneFile { image, bad: Mutex::new(None) });
        let request = MountRequest {
            source: "failing".into(),
            subtype: "failing".into(),
            read_only: false,
            access: Access::Owner,
            default_permissions: false,
            dev: false,
            suid: false,
            exec: true,
            sync: false,
            dirsync: false,
            noatime: false,
            nosymfollow: false,
            block_device: false,
        };
        let mounted = mount(&at, &request).expect("FUSE can be mounted");
        let served = Arc::clone(&files);
        let server = thread::spawn(move || {
            let options = Options { choice: Choice::Device, ..Options::default() };
            let session = Session::start(mounted, &*served, options).expect("the kernel agrees");
            session.run().expect("it is served to its end");
        });
        Self { directory: at, files, server: Some(server) }
    }

    /// The path of the image there.
    pub(crate) fn image(&self) -> String {
        self.directory.join("image").to_str().expect("it is text").to_owned()
    }

    /// From now on these bytes cannot be read; `None`: all can.
    pub(crate) fn fail(&self, bad: Option<Range<u64>>) {
        *self.files.bad.lock().expect("nobody panics") = bad;
    }
}

impl Drop for FailingDevice {
    fn drop(&mut self) {
        let _ = unmount(&self.directory, UnmountMode::Abort);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}
