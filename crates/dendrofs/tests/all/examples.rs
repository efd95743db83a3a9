//! The examples do what they say, also after a crash.

#![allow(unreachable_pub, reason = "examples are programs of their own")]

#[path = "../../examples/key_value.rs"]
mod key_value;
#[path = "../../examples/queue.rs"]
mod queue;
#[path = "../../examples/read_version.rs"]
mod read_version;

use std::path::Path;

use dendrofs::{CreateOptions, OpenOptions, Volume};

use self::key_value::Store;
use self::queue::Queue;

#[test]
fn the_queue_returns_what_was_pushed_once_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("queue.img");
    let mut queue = Queue::open(&path).unwrap();
    for number in 0..300_u32 {
        queue.push(&number.to_le_bytes()).unwrap();
    }
    for number in 0..100_u32 {
        assert_eq!(queue.pop().unwrap().unwrap(), number.to_le_bytes());
    }
    drop(queue);
    let mut queue = Queue::open(&path).unwrap();
    assert_eq!(queue.waiting(), 200);
    for number in 100..300_u32 {
        assert_eq!(queue.pop().unwrap().unwrap(), number.to_le_bytes());
    }
    assert_eq!(queue.pop().unwrap(), None);
}

#[test]
fn after_a_crash_the_queue_is_as_after_one_of_its_operations_at_or_past_the_last_sync() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("queue.img"), dir.path().join("copy.img"));
    let mut queue = Queue::open(&path).unwrap();
    for number in 0..50_u32 {
        queue.push(&number.to_le_bytes()).unwrap();
    }
    assert_eq!(queue.pop().unwrap().unwrap(), 0_u32.to_le_bytes());
    queue.sync().unwrap();
    queue.push(&50_u32.to_le_bytes()).unwrap();
    // The image as it is now is what a crash of the process leaves.
    std::fs::copy(&path, &copy).unwrap();
    let mut after = Queue::open(&copy).unwrap();
    assert!((49..=50).contains(&after.waiting()), "{} wait", after.waiting());
    for number in 1..50_u32 {
        assert_eq!(after.pop().unwrap().unwrap(), number.to_le_bytes());
    }
}

#[test]
fn the_store_changes_pairs_together_and_shows_versions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pairs.img");
    let store = Store::open(&path).unwrap();
    store.change(&[("a", Some(b"1")), ("b", Some(b"2"))]).unwrap();
    store.snapshot("one").unwrap();
    store.change(&[("a", None), ("b", Some(b"3")), ("c", Some(b"4"))]).unwrap();
    store.close().unwrap();

    let store = Store::open(&path).unwrap();
    let now = ["a", "b", "c"].map(|key| store.get(key).unwrap());
    assert_eq!(now, [None, Some(b"3".to_vec()), Some(b"4".to_vec())]);
    let one = store.version("one").unwrap();
    let then = ["a", "b", "c"].map(|key| store.get_at(one, key).unwrap());
    assert_eq!(then, [Some(b"1".to_vec()), Some(b"2".to_vec()), None]);
}

#[test]
fn files_of_a_version_are_listed_without_a_mount() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let volume = Volume::create(&path, 64 << 20, &CreateOptions::files()).unwrap();
    let files = volume.files(volume.main()).unwrap();
    files.create_dir_all("a/b").unwrap();
    files.write("a/b/file", &[7; 5000]).unwrap();
    volume.snapshot("kept").unwrap();
    files.remove_file("a/b/file").unwrap();
    drop(files);
    volume.close().unwrap();

    let volume = Volume::open(&path, &OpenOptions::new().read_only(true)).unwrap();
    let mut found = Vec::new();
    let kept = volume.files(volume.view("@kept").unwrap()).unwrap();
    read_version::list(&kept, Path::new("/"), &mut found).unwrap();
    assert_eq!(found, [("/a/b/file".into(), 5000)]);
    found.clear();
    let now = volume.files(volume.main()).unwrap();
    read_version::list(&now, Path::new("/"), &mut found).unwrap();
    assert_eq!(found, []);
}
