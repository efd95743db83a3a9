//! The disk of an open volume, which is shut down when nobody has it any more, and its mounted file
//! systems.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use dendro_base::sync::{Condvar, Mutex, MutexGuard};
use dendro_base::{Clock, SystemClock};
use dendro_disk::{Error as DiskError, LogicalDisk, View};
use dendro_fs::{FileSystem, FsError};
use dendro_logdisk::LogDisk;

use crate::opening::Devices;

/// The disk of an open volume.
pub(crate) struct OpenDisk {
    disk: Arc<LogDisk>,
    /// What it lies on, if that is known here.
    devices: Option<Arc<Devices>>,
    had_runner: AtomicBool,
    /// The file systems that are mounted, or being closed. A version has one at a time, because it
    /// keeps i-nodes in memory.
    mounted: Mutex<Vec<(View, Weak<Mounted>)>>,
    /// Signals that one was closed.
    closed: Condvar,
    /// Held while a version is received.
    receiving: Mutex<()>,
}

impl OpenDisk {
    pub(crate) fn new(disk: Arc<LogDisk>, devices: Option<Arc<Devices>>) -> Self {
        Self {
            disk,
            devices,
            had_runner: AtomicBool::new(false),
            mounted: Mutex::default(),
            closed: Condvar::default(),
            receiving: Mutex::default(),
        }
    }

    /// Lets nobody else receive a version until what this returns is dropped.
    pub(crate) fn receiving(&self) -> MutexGuard<'_, ()> {
        self.receiving.lock()
    }

    pub(crate) const fn disk(&self) -> &Arc<LogDisk> {
        &self.disk
    }

    /// Does a step of the disk's work in the background. If there is none, copies a piece to a
    /// device that lacks something. Returns whether there was work.
    pub(crate) fn background_step(&self) -> Result<bool, DiskError> {
        if self.disk.background_step()? {
            return Ok(true);
        }
        let Some(devices) = &self.devices else { return Ok(false) };
        for note in devices.take_notes() {
            log::warn!("{note}");
        }
        let step = devices.bring_up_step();
        let step =
            step.map_err(|error| DiskError::Io(format!("a device cannot be brought up: {error}")))?;
        Ok(step.is_some())
    }

    /// Makes everything durable, and closes the devices.
    pub(crate) fn shut_down(&self) -> Result<(), DiskError> {
        self.disk.shut_down()?;
        if let Some(devices) = &self.devices {
            // Without that, the devices are compared by the next opening.
            let _ = devices.close();
        }
        Ok(())
    }

    /// Notes that it has a runner. Returns whether it had none before.
    pub(crate) fn take_runner(&self) -> bool {
        !self.had_runner.swap(true, Ordering::Relaxed)
    }

    /// The file system of a version, which is mounted unless it is already.
    ///
    /// # Errors
    /// Those of [`FileSystem::mount`].
    pub(crate) fn mount(self: &Arc<Self>, view: View) -> Result<Arc<Mounted>, FsError> {
        let mut mounted = self.mounted.lock();
        while let Some((_, found)) = mounted.iter().find(|(of, _)| *of == view) {
            match found.upgrade() {
                Some(found) => return Ok(found),
                // The last value was dropped, and its file system is being closed.
                None => self.closed.wait(&mut mounted),
            }
        }
        let options = dendro_fs::Options { view, ..dendro_fs::Options::default() };
        let disk = Arc::clone(&self.disk) as Arc<dyn LogicalDisk>;
        let fs = FileSystem::mount(disk, options, Arc::new(SystemClock) as Arc<dyn Clock>)?;
        let made = Arc::new(Mounted { fs, entry: Entry { view, disk: Arc::clone(self) } });
        mounted.push((view, Arc::downgrade(&made)));
        Ok(made)
    }
}

impl Drop for OpenDisk {
    fn drop(&mut self) {
        if let Err(error) = self.shut_down() {
            log::error!("a volume could not be closed: {error}");
        }
    }
}

/// The mounted file system of a version. It is closed when nobody has it any more, and keeps the
/// volume open until then.
pub(crate) struct Mounted {
    fs: FileSystem,
    /// Dropped after the file system was closed, even if that panics.
    entry: Entry,
}

impl Deref for Mounted {
    type Target = FileSystem;

    fn deref(&self) -> &FileSystem {
        &self.fs
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.fs.is_read_only()
            && let Err(error) = self.fs.close()
        {
            let view = self.entry.view;
            log::error!("the files of {view} could not be closed: {error}");
        }
    }
}

/// The entry of a file system among those that are mounted.
struct Entry {
    view: View,
    disk: Arc<OpenDisk>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.disk.mounted.lock().retain(|(of, _)| *of != self.view);
        self.disk.closed.notify_all();
    }
}
