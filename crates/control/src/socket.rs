//! The sockets: where they are, what travels over them as bytes, and the files beside them.
//!
//! Both sides use this; it knows lines of bytes and no commands.

mod caller;
mod connect;
mod deadline;
mod fd_passing;
mod line;
mod paths;

pub mod closing_error;
pub mod identity_file;

pub use caller::Caller;
pub(crate) use connect::{connect_at_once, is_overrun, is_readable};
pub(crate) use deadline::{Deadline, now};
pub(crate) use line::{line_of, newline, read_line, read_until, send_line, write_all, write_line};
pub use paths::{DIRECTORY_VARIABLE, create_directory, directories, directory, in_directory};
pub(crate) use paths::{file_name, foreign_owner};
