//! What requests do not say about their callers, as far as `/proc` shows it.
//!
//! - [`groups`]: the groups of a caller.
//! - [`capabilities`]: the capabilities of a caller.
//! - [`interrupts`]: whether a caller still waits for a long request.

pub(crate) mod capabilities;
pub(crate) mod groups;
pub(crate) mod interrupts;
