//! Cleaning over the control socket: the daemon's side of it, and the two commands that use nothing
//! else.

pub(crate) mod clean;
mod cleaner;
pub(crate) mod cleanerd;
pub(crate) mod service;
