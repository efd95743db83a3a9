//! Serving the requests of a mount.
//!
//! - [`session`]: a mount from the handshake to its end; its threads.
//! - [`worker`]: a thread that reads requests from `/dev/fuse`.
//! - [`dispatch`]: from a request to the file system's method, and to the reply's bytes.
//! - [`reply`]: sending a reply over `/dev/fuse`.
//! - [`cpus`]: which CPUs there are, and pinning threads to them.
//!
//! Arrows: `session` → `worker`, `cpus` → `dispatch`, `reply`.

mod cpus;
pub(crate) mod dispatch;
mod reply;
mod session;
mod worker;

pub use session::{Choice, Options, Session, Transport, enable_uring};
