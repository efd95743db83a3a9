//! What those who watch files hear when another head takes the place of one that is mounted.

use std::collections::BTreeMap;
use std::fs;
use std::mem::MaybeUninit;
use std::path::PathBuf;

use crate::common::{Scratch, skips_mounts};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

/// Watches files, and knows them by their names.
struct Watch {
    inotify: OwnedFd,
    watched: BTreeMap<i32, String>,
}

impl Watch {
    fn of(scratch: &Scratch, names: &[&str]) -> Self {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        let add = |name: &&str| {
            let flags = WatchFlags::DELETE_SELF | WatchFlags::MODIFY | WatchFlags::ATTRIB;
            let number = inotify::add_watch(&inotify, scratch.inside(name), flags).unwrap();
            (number, (*name).to_owned())
        };
        let watched = names.iter().map(add).collect();
        Self { inotify, watched }
    }

    /// Which of them are said to be gone.
    fn gone(&self) -> Vec<String> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut gone = Vec::new();
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::DELETE_SELF) {
                gone.push(self.watched[&event.wd()].clone());
            }
        }
        gone.sort();
        gone
    }
}

#[test]
fn who_watches_a_file_that_goes_with_a_head_hears_of_it_and_it_can_come_back() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let (mount, inside) = (scratch.mount_point(), |name: &str| -> PathBuf { scratch.inside(name) });
    for name in ["changes", "goes", "stays"] {
        fs::write(inside(name), "old").unwrap();
    }
    fs::create_dir(inside("dir")).unwrap();
    scratch.dendro(["snapshot", "create", &format!("{mount}@old")]).succeeds();
    fs::write(inside("changes"), "changed").unwrap();
    fs::remove_file(inside("goes")).unwrap();
    fs::rename(inside("stays"), inside("has another name")).unwrap();
    fs::write(inside("dir/new"), "new").unwrap();
    fs::create_dir(inside("new dir")).unwrap();
    fs::write(inside("new dir/new"), "new").unwrap();

    let watched = ["changes", "has another name", "dir", "dir/new", "new dir", "new dir/new"];
    let watch = Watch::of(&scratch, &watched);
    scratch.dendro(["rollback", &format!("{mount}@old")]).succeeds();
    assert_eq!(watch.gone(), ["dir/new", "new dir/new"]);
    assert_eq!(fs::read(inside("changes")).unwrap(), b"old");
    assert!(!inside("dir/new").exists() && inside("stays").exists());

    let watch = Watch::of(&scratch, &["changes", "stays", "goes", "dir"]);
    scratch.dendro(["rollback", "--undo", &mount]).succeeds();
    assert_eq!(watch.gone(), ["goes"]);
    // The same files, and nothing is left of their having gone.
    for name in ["dir/new", "new dir/new"] {
        assert_eq!(fs::read(inside(name)).unwrap(), b"new");
        fs::write(inside(name), "again").unwrap();
        fs::hard_link(inside(name), inside("link")).unwrap();
        fs::remove_file(inside("link")).unwrap();
    }
    fs::write(inside("new dir/newer"), "newer").unwrap();
    scratch.umount();
}
