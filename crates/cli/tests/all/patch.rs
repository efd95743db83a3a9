//! `dendro diff --patch`: what git-apply(1) makes of it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Scratch, is_root, skips_mounts};

fn bytes(seed: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(seed).wrapping_add(at >> 5) >> 3) as u8).collect()
}

fn lines(count: u32, word: &str) -> String {
    (0..count).map(|number| format!("{word} {number}\n")).collect()
}

fn make_executable(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The tree as it is at first.
fn fill(root: &Path) {
    let put = |name: &str, content: &[u8]| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    put("text", lines(50, "line").as_bytes());
    put("no newline", b"one\ntwo");
    put("crlf", b"one\r\ntwo\r\n");
    put("binary", &bytes(77, 5000));
    put("long", lines(30_000, "long").as_bytes());
    put("same", b"same\n");
    put("empty", b"");
    put("script", b"#!/bin/sh\n");
    put("becomes a link", b"text\n");
    put("becomes a directory", b"text\n");
    put("directory/that/moves", b"moved\n");
    put("directory/that/changes", lines(9, "old").as_bytes());
    put("directory that goes/a/b", b"b\n");
    put("becomes a file/inside", b"inside\n");
    put("renamed", lines(20, "renamed").as_bytes());
    put("\u{e4}\"\\\t\n\u{1}", b"strange\n");
    put("one of two names", b"shared\n");
    fs::hard_link(root.join("one of two names"), root.join("the other")).unwrap();
    symlink("text", root.join("link")).unwrap();
    symlink("/nowhere", root.join("becomes text")).unwrap();
    make_executable(&root.join("becomes plain"));
}

/// Changes it in every way there is.
fn change(root: &Path) {
    let put = |name: &str, content: &[u8]| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    let changed = lines(50, "line").replace("line 7\n", "seven\n").replace("line 40\n", "");
    put("text", changed.as_bytes());
    put("no newline", b"one\nzwei");
    put("crlf", b"one\r\nzwei\r\n");
    let mut binary = bytes(77, 5000);
    binary[1234] ^= 1;
    binary.extend([0; 70]);
    put("binary", &binary);
    put("long", lines(30_000, "other").as_bytes());
    make_executable(&root.join("script"));
    fs::set_permissions(root.join("becomes plain"), fs::Permissions::from_mode(0o644)).unwrap();
    for name in ["becomes a link", "becomes a directory", "becomes text", "link"] {
        fs::remove_file(root.join(name)).unwrap();
    }
    symlink("binary", root.join("link")).unwrap();
    symlink("the\ntarget", root.join("becomes a link")).unwrap();
    put("becomes a directory/inside", b"inside\n");
    put("becomes text", b"text\n");
    fs::rename(root.join("directory"), root.join("elsewhere")).unwrap();
    put("elsewhere/that/changes", lines(9, "new").as_bytes());
    for name in ["directory that goes", "becomes a file"] {
        fs::remove_dir_all(root.join(name)).unwrap();
    }
    put("becomes a file", b"a file\n");
    fs::rename(root.join("renamed"), root.join("has another name")).unwrap();
    put("\u{e4}\"\\\t\n\u{1}", b"stranger\n");
    put("the other", b"changed under one name\n");
    put("new/empty", b"");
    put("new/binary", &bytes(3, 3000));
    put("new/executable", b"#!/bin/sh\nexit\n");
    make_executable(&root.join("new/executable"));
}

/// What git knows of a tree.
fn content(root: &Path) -> BTreeMap<PathBuf, (bool, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut rest = vec![root.to_path_buf()];
    while let Some(directory) = rest.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().to_path_buf();
            if metadata.is_dir() {
                rest.push(path);
            } else if metadata.is_symlink() {
                let target = fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes();
                all.insert(name, (false, [b"-> ".to_vec(), target].concat()));
            } else {
                all.insert(name, (metadata.mode() & 0o100 != 0, fs::read(&path).unwrap()));
            }
        }
    }
    all
}

fn git_apply(directory: &Path, patch: &[u8], more: &[&str]) {
    let file = directory.with_extension("patch");
    fs::write(&file, patch).unwrap();
    let mut git = Command::new("git");
    git.current_dir(directory).arg("apply").args(more).arg(&file);
    git.env("GIT_CEILING_DIRECTORIES", directory.parent().unwrap());
    let Output { status, stderr, .. } = git.output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
}

fn patch(scratch: &Scratch, arguments: &[&str]) -> Vec<u8> {
    let mut command = scratch.command([&["diff", "--patch"], arguments].concat());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    output.stdout
}

fn has_git() -> bool {
    let has = Command::new("git").arg("--version").output().is_ok();
    if !has {
        eprintln!("left out: there is no git");
    }
    has
}

#[test]
fn git_makes_the_new_tree_of_the_old_one_by_a_patch_and_the_old_one_back() {
    if skips_mounts() || !has_git() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = scratch.mount_point();
    let root = PathBuf::from(&mount);
    fs::write(root.join("becomes plain"), b"plain\n").unwrap();
    fill(&root);
    scratch.dendro(["snapshot", "create", &format!("{mount}@old")]).succeeds();
    change(&root);
    let old = content(&root.join(".dendro/snapshots/old"));
    let new = content(&root);
    assert!(old != new);

    let made = patch(&scratch, &[&format!("{mount}@old")]);
    let copy = scratch.path("copy");
    let mut cp = Command::new("cp");
    cp.arg("-a").arg(format!("{mount}/.dendro/snapshots/old")).arg(&copy);
    assert!(cp.status().unwrap().success());
    git_apply(&copy, &made, &[]);
    assert_eq!(content(&copy), new);
    git_apply(&copy, &made, &["--reverse"]);
    assert_eq!(content(&copy), old);

    // The other way round, and of a volume that is not mounted.
    scratch.dendro(["snapshot", "create", &format!("{mount}@new")]).succeeds();
    let back = patch(&scratch, &[&format!("{mount}@new..old")]);
    git_apply(&copy, &made, &[]);
    git_apply(&copy, &back, &[]);
    assert_eq!(content(&copy), old);
    scratch.umount();
    assert!(patch(&scratch, &[&format!("{}@old..new", scratch.image())]) == made);
    assert!(patch(&scratch, &[&format!("{}@old", scratch.image())]) == made);
}

#[test]
fn a_fork_of_a_directory_has_a_patch_for_that_directory() {
    if skips_mounts() || !is_root() || !has_git() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let project = scratch.inside("project");
    fs::create_dir(&project).unwrap();
    fs::write(project.join("becomes plain"), b"plain\n").unwrap();
    fill(&project);
    fs::write(scratch.inside("elsewhere"), b"not in it\n").unwrap();
    let fork = scratch.path("fork");
    scratch.dendro(["fork", "-q", project.to_str().unwrap(), fork.to_str().unwrap()]).succeeds();
    change(&fork);
    let made = patch(&scratch, &[&scratch.mount_point(), fork.to_str().unwrap()]);
    let new = content(&fork);
    git_apply(&project, &made, &[]);
    assert_eq!(content(&project), new);
    scratch.dendro(["drop", fork.to_str().unwrap()]).succeeds();
    scratch.umount();
}

#[test]
fn what_no_patch_can_have_is_told_and_what_is_mounted_nowhere_too() {
    if skips_mounts() || !is_root() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount_with("nosnapdir");
    let mount = scratch.mount_point();
    scratch.dendro(["snapshot", "create", &format!("{mount}@old")]).succeeds();
    fs::create_dir(scratch.inside("directory")).unwrap();
    let pipe = scratch.inside("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::write(scratch.inside("file"), b"text\n").unwrap();
    let old = format!("{mount}@old");
    scratch.dendro(["diff", "--patch", &old]).fails(1, &["@old", "mounted nowhere", ".dendro"]);
    scratch.dendro(["diff", "--patch", "--stat", &old]).fails(2, &["--stat"]);
    fs::create_dir(scratch.path("past")).unwrap();
    let past = scratch.text("past");
    scratch.dendro(["mount", "-o", "snapshot=old", &scratch.image(), &past]).succeeds();
    let said = scratch.dendro(["diff", "--patch", &old]).succeeds();
    assert!(said.out.contains("+++ b/file\n@@ -0,0 +1"), "{said:?}");
    assert!(!said.out.contains("pipe") && !said.out.contains("directory"), "{said:?}");
    assert!(said.err.contains("1 devices, pipes or sockets"), "{said:?}");
    assert!(said.err.contains("1 empty directories"), "{said:?}");
    scratch.dendro(["umount", &past]).succeeds();
    scratch.umount();
}
