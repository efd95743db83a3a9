//! The daemon's identity: its answer to a ping, and the card beside its socket.

use std::sync::Arc;

use dendro_control::{Pong, Server};
use dendro_fuse::Access;

use crate::state::Daemon;
use crate::views::MountedView;

impl Daemon<'_> {
    pub(crate) fn pong(&self) -> Pong {
        let views = self.views.all();
        let has_gone = |view: &Arc<MountedView>| !views.iter().any(|of| Arc::ptr_eq(of, view));
        let closing = self.views.all_open().into_iter().filter(has_gone);
        let closing = closing.map(|view| view.info()).collect();
        Pong {
            software: env!("CARGO_PKG_VERSION").into(),
            daemon: self.name.clone(),
            pid: std::process::id(),
            uuid: self.volume.uuid().to_string(),
            source: self.volume.source().display().to_string(),
            devices: self.device_paths(),
            mount_point: self.mount_point.display().to_string(),
            views: views.iter().map(|view| view.info()).collect(),
            closing,
            serves_blocks: false,
        }
    }

    /// The other devices of the volume than the one by which it is named.
    fn device_paths(&self) -> Vec<String> {
        let source = self.volume.source();
        let paths = self.volume.devices().present_paths().into_iter();
        paths.filter(|path| *path != source).map(|path| path.display().to_string()).collect()
    }

    /// Makes the socket known, and writes the card beside it.
    pub(crate) fn open_control_socket(&self, server: &Server) {
        self.control_socket.set(server);
        self.write_card();
    }

    /// Writes the card, which names the volume and the mounts of this process in case it does not
    /// answer, and opens the socket to other users if a mount is open to them.
    pub(crate) fn write_card(&self) {
        // Other users get answers as soon as one of the mounts is open to them.
        self.control_socket.write_card(|| (self.is_for_others(), self.pong()));
    }

    /// Whether other users may use a mount, as far as permissions in it allow.
    pub(crate) fn is_for_everybody(&self, view: &MountedView) -> bool {
        self.in_force(view).access == Some(Access::All)
    }

    /// Whether this daemon carries out requests of other users.
    pub(crate) fn is_for_others(&self) -> bool {
        rustix::process::geteuid().is_root()
            && self.views.all().iter().any(|view| self.is_for_everybody(view))
    }
}
