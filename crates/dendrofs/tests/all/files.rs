//! Files by paths.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use dendrofs::{CreateOptions, FileType, Files, Volume};

fn new_files() -> (Volume, Files) {
    let volume = Volume::in_memory(64 << 20, &CreateOptions::files()).expect("it is large enough");
    let files = volume.files(volume.main()).expect("it holds files");
    (volume, files)
}

fn errno<T: std::fmt::Debug>(result: Result<T, dendrofs::Error>) -> i32 {
    result.expect_err("it must fail").errno()
}

#[test]
fn what_is_written_is_read_in_pieces_and_whole() {
    let (_volume, files) = new_files();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    files.write("large", &bytes).unwrap();
    assert_eq!(files.read("/large").unwrap(), bytes);
    let mut file = files.open("large").unwrap();
    file.seek(SeekFrom::End(-10)).unwrap();
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).unwrap();
    assert_eq!(tail, bytes[bytes.len() - 10..]);
    assert_eq!(file.len().unwrap(), bytes.len() as u64);

    let mut file = files.create("large").unwrap();
    assert!(file.is_empty().unwrap());
    file.write_all(b"new").unwrap();
    file.set_len(5).unwrap();
    assert_eq!(files.read("large").unwrap(), b"new\0\0");
    assert!(files.read("none").is_err());
}

#[test]
fn a_replaced_file_has_the_new_bytes_and_the_old_permissions() {
    let (_volume, files) = new_files();
    files.write("file", b"old").unwrap();
    files.set_mode("file", 0o600).unwrap();
    let before = files.metadata("file").unwrap();
    let reader = files.open("file").unwrap();
    files.replace("file", b"new bytes").unwrap();
    let after = files.metadata("file").unwrap();
    assert_eq!(files.read("file").unwrap(), b"new bytes");
    assert_eq!((after.mode, after.uid), (0o600, before.uid));
    assert_ne!(after.ino, before.ino);
    // Who had it open reads the old one on.
    let mut buf = [0; 8];
    assert_eq!(reader.read_at(0, &mut buf).unwrap(), 3);
    files.replace("other", b"made").unwrap();
    let names: Vec<_> = files.read_dir("").unwrap().into_iter().map(|of| of.name).collect();
    assert_eq!(names, ["file", "other"]);
    files.create_dir("dir").unwrap();
    assert_eq!(errno(files.replace("dir", b"")), libc::EISDIR);
}

#[test]
fn names_are_made_renamed_linked_and_removed() {
    let (_volume, files) = new_files();
    files.create_dir_all("a/b/c").unwrap();
    files.create_dir_all("a/b/c").unwrap();
    assert_eq!(errno(files.create_dir("a")), libc::EEXIST);
    assert_eq!(errno(files.create_dir("x/y")), libc::ENOENT);
    files.write("a/file", b"1").unwrap();
    files.hard_link("a/file", "a/b/link").unwrap();
    assert_eq!(files.metadata("a/b/link").unwrap().link_count, 2);
    files.rename("a/b/link", "moved").unwrap();
    assert!(!files.exists("a/b/link").unwrap());
    assert_eq!(errno(files.remove_dir("a/b")), libc::ENOTEMPTY);
    files.remove_dir("a/b/c").unwrap();
    assert_eq!(errno(files.remove_file("a/b")), libc::EISDIR);
    files.remove_file("a/file").unwrap();
    assert_eq!(files.read("moved").unwrap(), b"1");
    assert_eq!(errno(files.create_dir_all("moved/under")), libc::ENOTDIR);
    assert_eq!(errno(files.remove_file("/")), libc::EINVAL);
}

#[test]
fn symbolic_links_are_followed_up_to_a_limit() {
    let (_volume, files) = new_files();
    files.create_dir_all("dir/sub").unwrap();
    files.write("dir/file", b"found").unwrap();
    files.symlink("../file", "dir/sub/up").unwrap();
    files.symlink("/dir/sub", "short").unwrap();
    files.symlink("/", "root").unwrap();
    assert_eq!(files.read("short/up").unwrap(), b"found");
    assert_eq!(files.read("root/root/dir/./sub/../file").unwrap(), b"found");
    assert_eq!(files.read_link("short").unwrap(), Path::new("/dir/sub"));
    assert_eq!(files.symlink_metadata("short").unwrap().file_type, FileType::Symlink);
    assert_eq!(files.metadata("short").unwrap().file_type, FileType::Directory);
    assert_eq!(files.metadata("root").unwrap().ino, files.metadata("/").unwrap().ino);
    // A link to nothing: writing makes the file that it leads to.
    files.symlink("made", "dangling").unwrap();
    assert!(!files.exists("dangling").unwrap());
    files.write("dangling", b"through").unwrap();
    assert_eq!(files.read("made").unwrap(), b"through");
    files.symlink("loop", "loop").unwrap();
    assert_eq!(errno(files.read("loop")), libc::ELOOP);
}

#[test]
fn a_file_that_is_removed_while_it_is_open_is_read_until_it_is_dropped() {
    let (volume, files) = new_files();
    files.write("file", &[1; 100_000]).unwrap();
    let file = files.open("file").unwrap();
    files.remove_file("file").unwrap();
    let mut buf = [0; 10];
    assert_eq!(file.read_at(99_995, &mut buf).unwrap(), 5);
    drop(file);
    drop(files);
    while volume.step().unwrap() {}
    let files = volume.files(volume.main()).unwrap();
    assert_eq!(files.read_dir("/").unwrap(), []);
}

#[test]
fn the_files_of_a_snapshot_cannot_be_changed() {
    let (volume, files) = new_files();
    files.write("file", b"1").unwrap();
    let kept = volume.files(volume.snapshot("kept").unwrap()).unwrap();
    assert_eq!(errno(kept.write("file", b"2")), libc::EROFS);
    assert_eq!(errno(kept.create_dir("dir")), libc::EROFS);
    let branch = volume.branch(volume.view("@kept").unwrap(), "work").unwrap();
    let work = volume.files(branch).unwrap();
    work.write("file", b"3").unwrap();
    assert_eq!(files.read("file").unwrap(), b"1");
    assert_eq!(volume.files(volume.view("work").unwrap()).unwrap().read("file").unwrap(), b"3");
}

#[test]
fn two_values_for_the_files_of_one_head_show_the_same() {
    let (volume, one) = new_files();
    let other = volume.files(volume.main()).unwrap();
    one.write("file", b"1").unwrap();
    assert_eq!(other.read("file").unwrap(), b"1");
    one.write("file", b"longer").unwrap();
    assert_eq!(other.read("file").unwrap(), b"longer");
    other.remove_file("file").unwrap();
    assert!(!one.exists("file").unwrap());
    other.create_dir("dir").unwrap();
    one.write("dir/new", b"2").unwrap();
    other.write("dir/new2", b"2").unwrap();
    assert_eq!(one.read_dir("dir").unwrap().len(), 2);
}

#[test]
fn threads_open_and_close_the_files_of_one_head_at_the_same_time() {
    let volume = Volume::in_memory(64 << 20, &CreateOptions::files()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let volume = &volume;
            scope.spawn(move || {
                for turn in 0..40 {
                    let files = volume.files(volume.main()).unwrap();
                    files.write(format!("kept-{thread}-{turn}"), b"kept").unwrap();
                    // It goes when the file system is closed, or before.
                    let _open = files.create_new(format!("gone-{thread}")).unwrap();
                    files.remove_file(format!("gone-{thread}")).unwrap();
                }
            });
        }
    });
    let files = volume.files(volume.main()).unwrap();
    assert_eq!(files.read_dir("/").unwrap().len(), 160);
    drop(files);
    assert_eq!(dendro_fs::verify(volume.disk(), volume.main()).unwrap(), []);
}

#[test]
fn a_new_file_must_not_be_there_and_one_to_be_changed_must() {
    let (_volume, files) = new_files();
    assert_eq!(errno(files.open_to_write("file")), libc::ENOENT);
    files.create_new("file").unwrap().write_all(b"old").unwrap();
    files.open_to_write("file").unwrap().write_all(b"n").unwrap();
    assert_eq!(files.read("file").unwrap(), b"nld");
    files.symlink("nowhere", "link").unwrap();
    files.create_dir("dir").unwrap();
    for path in ["file", "link", "dir", "/", ""] {
        assert_eq!(errno(files.create_new(path)), libc::EEXIST, "{path}");
    }
    assert_eq!(errno(files.open_to_write("dir")), libc::EISDIR);
}

#[test]
fn extended_attributes_are_set_replaced_listed_and_removed() {
    let (_volume, files) = new_files();
    files.write("file", b"").unwrap();
    files.symlink("file", "link").unwrap();
    assert!(files.xattrs("file").unwrap().is_empty());
    files.set_xattr("link", "user.a", b"1").unwrap();
    files.set_xattr("file", "user.a", b"2").unwrap();
    files.set_xattr("file", "user.b", b"").unwrap();
    assert_eq!(files.xattr("link", "user.a").unwrap(), b"2");
    assert_eq!(files.xattrs("file").unwrap(), ["user.a", "user.b"]);
    files.remove_xattr("file", "user.a").unwrap();
    assert_eq!(files.xattrs("file").unwrap(), ["user.b"]);
    assert_eq!(errno(files.xattr("file", "user.a")), libc::ENODATA);
    assert_eq!(errno(files.remove_xattr("file", "user.a")), libc::ENODATA);
    assert_eq!(errno(files.set_xattr("file", "nonsense.a", b"")), libc::EOPNOTSUPP);
    assert_eq!(errno(files.xattrs("none")), libc::ENOENT);
}
