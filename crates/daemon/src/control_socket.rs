//! The control socket of a daemon, and the card beside it.

use std::path::PathBuf;
use std::sync::OnceLock;

use dendro_base::sync::Mutex;
use dendro_control::{Gate, Pong, Server, identity_file};

/// The control socket, once there is one.
#[derive(Default)]
pub(crate) struct ControlSocket {
    path: OnceLock<PathBuf>,
    /// The right of other users to connect to it.
    gate: OnceLock<Gate>,
    /// Held while the card beside it is written.
    card: Mutex<()>,
}

impl ControlSocket {
    /// Makes the socket known. Only the first call counts.
    pub(crate) fn set(&self, server: &Server) {
        let _ = self.path.set(server.path().to_path_buf());
        let _ = self.gate.set(server.gate());
    }

    /// Writes the card if there is a socket, and opens the socket to other users if it is for them.
    /// `state` returns whether it is for other users, and what the card says.
    pub(crate) fn write_card(&self, state: impl FnOnce() -> (bool, Pong)) {
        let Some(path) = self.path.get() else { return };
        let _one_at_a_time = self.card.lock();
        let (is_for_others, pong) = state();
        if is_for_others && let Some(Err(error)) = self.gate.get().map(Gate::open) {
            log::warn!("{}: others cannot be let in: {error}", path.display());
        }
        if let Err(error) = identity_file::write(path, &pong) {
            log::warn!("{}: no card can be left beside it: {error}", path.display());
        }
    }
}
