//! The FUSE protocol: from bytes to values, and from values to bytes. No I/O.
//!
//! - [`abi`]: the structures and numbers of the protocol.
//! - [`types`]: the values that requests and replies consist of.
//! - [`init`]: the handshake.
//! - [`parse`]: from a request's bytes to an operation.
//! - [`security_context`]: the security attributes that a request has for a new file.
//! - [`encode`]: from a reply's values to its bytes.
//! - [`dirent`]: the replies to READDIR and READDIRPLUS.
//!
//! Arrows: `parse`, `encode`, `init` → `types` → `security_context` → `abi`; `dirent` → `encode`.

pub(crate) mod abi;
pub(crate) mod dirent;
pub(crate) mod encode;
pub(crate) mod init;
pub(crate) mod parse;
pub(crate) mod security_context;
pub(crate) mod types;
