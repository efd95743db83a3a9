//! Who may connect to a socket.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Decides whether other users than the daemon's own and root may connect. It is closed at first.
#[derive(Clone, Debug)]
pub struct Gate {
    path: PathBuf,
    is_open: Arc<AtomicBool>,
}

impl Gate {
    /// A gate that is closed, of the socket at `path`.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, is_open: Arc::default() }
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Lets every user connect; what other users' requests may do is up to
    /// [`Admin::for_other`](crate::Admin::for_other). Clients have to find the socket, so its
    /// directory is opened as well.
    ///
    /// # Errors
    /// When the permissions cannot be changed.
    pub fn open(&self) -> io::Result<()> {
        // Set first: from the moment the permissions change, other users may connect.
        if self.is_open.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let add = |path: &Path, more: u32| {
            let now = fs::metadata(path)?.permissions().mode() & 0o7777;
            fs::set_permissions(path, fs::Permissions::from_mode(now | more))
        };
        if let Some(directory) = self.path.parent() {
            add(directory, 0o055)?;
        }
        add(&self.path, 0o066)
    }
}
