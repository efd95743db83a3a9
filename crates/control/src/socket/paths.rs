//! Where the sockets are.
//!
//! | daemons of | directory |
//! |------------|-----------|
//! | root       | `/run/dendro` |
//! | a user     | `$XDG_RUNTIME_DIR/dendro`, or `/tmp/dendro-UID` where there is no such directory |
//! | either, if it is set | `$DENDRO_RUNTIME_DIR` |
//!
//! A socket is named after its volume, `UUID.sock`; if copies of one image are mounted at the same
//! time, the others are `UUID-N.sock`. Only the owner and root can connect, unless the socket has
//! been opened to every user ([`Gate::open`](crate::Gate::open)).

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The environment variable that names the directory of sockets.
pub const DIRECTORY_VARIABLE: &str = "DENDRO_RUNTIME_DIR";

const EXTENSION: &str = "sock";
const ROOTS_DIRECTORY: &str = "/run/dendro";

/// The directory where a daemon of this process's user puts its socket.
#[must_use]
pub fn directory() -> PathBuf {
    if let Some(directory) = env::var_os(DIRECTORY_VARIABLE).filter(|value| !value.is_empty()) {
        return PathBuf::from(directory);
    }
    let uid = effective_uid();
    if uid == 0 {
        return PathBuf::from(ROOTS_DIRECTORY);
    }
    match env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()) {
        Some(directory) => Path::new(&directory).join("dendro"),
        None => PathBuf::from(format!("/tmp/dendro-{uid}")),
    }
}

/// The directories where daemons that this process may talk to can have put their sockets.
#[must_use]
pub fn directories() -> Vec<PathBuf> {
    let mut found = vec![directory()];
    if env::var_os(DIRECTORY_VARIABLE).is_some() {
        return found;
    }
    if effective_uid() != 0 {
        // Only root can make sockets there.
        found.push(PathBuf::from(ROOTS_DIRECTORY));
        return found;
    }
    let users = fs::read_dir("/run/user").into_iter().flatten().flatten();
    found.extend(users.map(|user| user.path().join("dendro")));
    let temporary = fs::read_dir("/tmp").into_iter().flatten().flatten();
    found.extend(
        temporary
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("dendro-"))
            .map(|entry| entry.path()),
    );
    found
}

/// The owner of a socket's directory, and so of its daemon, if it is not this process's user. Root
/// reaches the sockets of all users, some of them in directories that any user can make.
pub(crate) fn foreign_owner(socket: &Path) -> io::Result<Option<u32>> {
    let directory = socket.parent().filter(|path| !path.as_os_str().is_empty());
    let directory = fs::symlink_metadata(directory.unwrap_or(Path::new(".")))?;
    if !directory.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "its directory is a link"));
    }
    Ok(Some(directory.uid()).filter(|&uid| uid != effective_uid()))
}

/// All sockets in `directory`, in the order of their names; none when it cannot be read.
#[must_use]
pub fn in_directory(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension() == Some(OsStr::new(EXTENSION)))
        .collect();
    found.sort();
    found
}

/// The name of the `attempt`-th socket of a volume.
pub(crate) fn file_name(uuid: &str, attempt: u32) -> String {
    match attempt {
        0 => format!("{uuid}.{EXTENSION}"),
        _ => format!("{uuid}-{attempt}.{EXTENSION}"),
    }
}

/// Makes `directory` for its owner alone, or checks that the one that is there belongs to this
/// process's user. In `/tmp`, another user could have made it to receive the requests.
///
/// # Errors
/// When it cannot be made, or belongs to somebody else.
pub fn create_directory(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let owner = fs::symlink_metadata(directory)?;
    if !owner.is_dir() || owner.uid() != effective_uid() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("it belongs to user {}; set {DIRECTORY_VARIABLE} to another", owner.uid()),
        ));
    }
    Ok(())
}

fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}
