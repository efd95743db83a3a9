//! Image files and block devices.

mod at_once;
mod device;
mod length;
mod lock;
mod open;
mod probe;
mod transfer;

pub use device::FileDevice;
pub use open::{Direct, OpenOptions};
pub use probe::FileKind;
