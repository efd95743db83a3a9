//! Mounting the file system in memory over each transport.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::thread;

use super::Memory;
use dendro_fuse_transport::{
    Access, Choice, InitFlags, MountRequest, Notifier, Options, Session, Transport, UnmountMode,
    Wishes, mount, unmount,
};

pub(crate) struct Test<'a> {
    pub memory: &'a Memory,
    pub root: &'a Path,
    pub notifier: Notifier,
}

impl Test<'_> {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

pub(crate) fn wishes() -> Wishes {
    let flags = InitFlags::DO_READDIRPLUS
        | InitFlags::READDIRPLUS_AUTO
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::HANDLE_KILLPRIV_V2
        | InitFlags::DONT_MASK
        | InitFlags::SETXATTR_EXT
        | InitFlags::HAS_EXPIRE_ONLY
        | InitFlags::ASYNC_DIO
        | InitFlags::CACHE_SYMLINKS;
    Wishes { flags: Wishes::default().flags | flags, ..Wishes::default() }
}

pub(crate) fn request() -> MountRequest {
    MountRequest {
        source: "memory, with a comma".into(),
        subtype: "memory".into(),
        read_only: false,
        access: Access::All,
        default_permissions: true,
        dev: true,
        suid: true,
        exec: true,
        sync: false,
        dirsync: false,
        noatime: false,
        nosymfollow: false,
        block_device: false,
    }
}

/// Unmounts when dropped, so that the server does not wait after a failed assertion.
struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = unmount(self.0, UnmountMode::Abort);
        } else {
            unmount(self.0, UnmountMode::Idle).unwrap();
        }
    }
}

pub(crate) fn is_left_out() -> bool {
    let why = if std::env::var_os("DENDRO_SKIP_MOUNT").is_some() {
        "DENDRO_SKIP_MOUNT is set"
    } else if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        &format!("/dev/fuse cannot be opened: {error}")
    } else if !rustix::process::geteuid().is_root() {
        "root alone can mount this way"
    } else {
        return false;
    };
    eprintln!("left out: {why}");
    true
}

/// Mounts over each transport, and calls `test`.
pub(crate) fn over_both(test: impl Fn(&Test<'_>)) {
    for choice in [Choice::Device, Choice::Uring] {
        over(Options { choice, wishes: wishes(), ..Options::default() }, &test);
    }
}

#[allow(clippy::disallowed_methods, reason = "the server's thread")]
pub(crate) fn over(options: Options, test: impl Fn(&Test<'_>)) {
    if is_left_out() {
        return;
    }
    let memory = Memory::new();
    let directory = tempfile::tempdir().unwrap();
    let mounted = mount(directory.path(), &request()).unwrap();
    let root = mounted.mount_point().to_path_buf();
    let session = match Session::start(mounted, &memory, options) {
        Ok(session) => session,
        Err(error) if options.choice == Choice::Uring => {
            unmount(&root, UnmountMode::Detach).unwrap();
            eprintln!("left out: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let is_uring = matches!(session.transport(), Transport::Uring { .. });
    assert_eq!(is_uring, options.choice == Choice::Uring);
    assert_eq!(is_uring, session.why_no_uring().is_none());
    let notifier = session.notifier();
    thread::scope(|scope| {
        let server = scope.spawn(move || session.run());
        {
            let _unmount = Unmount(&root);
            test(&Test { memory: &memory, root: &root, notifier });
        }
        server.join().unwrap().unwrap();
    });
    assert!(memory.agreed.lock().unwrap().unwrap().flags.contains(InitFlags::MAX_PAGES));
}
