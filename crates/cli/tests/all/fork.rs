//! Working trees that go on from another one.

use std::fs::{self, File};

use crate::common::{Said, Scratch, mounts, said, skips_mounts};
use serde_json::Value;

fn json(said: &Said) -> Value {
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

fn with_files() -> Option<Scratch> {
    if skips_mounts() {
        return None;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    fs::create_dir_all(scratch.inside("src/deep")).unwrap();
    fs::write(scratch.inside("src/deep/file"), "one").unwrap();
    fs::write(scratch.inside("top"), "top").unwrap();
    Some(scratch)
}

/// The names of all branches and snapshots.
fn versions(scratch: &Scratch) -> Vec<String> {
    let list = scratch.dendro(["snapshot", "list", &scratch.image()]).succeeds().out;
    list.lines().skip(1).map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn a_fork_is_a_tree_of_its_own_until_it_is_dropped() {
    let Some(scratch) = with_files() else { return };
    let (mount, dest) = (scratch.mount_point(), scratch.text("work"));
    let made = scratch.dendro(["fork", &mount, &dest]).succeeds();
    assert_eq!(made.out, format!("{dest}\tbranch work\n"));
    assert_eq!(versions(&scratch), [":main", ":work", "@fork-work"]);
    fs::write(scratch.path("work/src/deep/file"), "of the fork").unwrap();
    fs::write(scratch.path("work/new"), vec![1; 500_000]).unwrap();
    assert_eq!(fs::read_to_string(scratch.inside("src/deep/file")).unwrap(), "one");
    // It is named in the table of mounts.
    let line = mounts().lines().find(|line| line.contains(&dest)).unwrap().to_owned();
    assert!(line.starts_with(&format!("{}:work ", scratch.image())), "{line}");
    let list = scratch.dendro(["forks", &mount]).succeeds().out;
    let line = list.lines().nth(1).unwrap();
    assert!(
        line.starts_with(":work") && line.contains("@fork-work") && line.ends_with(&dest),
        "{list}"
    );
    let forks = json(&scratch.dendro(["forks", "--json", &dest]).succeeds());
    let forks = &forks["forks"];
    // The root has a new name, the file is new, and the other one was changed.
    assert_eq!((&forks[0]["branch_name"], &forks[0]["changes"]), (&"work".into(), &3.into()));
    assert_eq!(forks[0]["mount_points"], serde_json::json!([dest]));
    assert!(forks[0]["exclusive_bytes"].as_u64().unwrap() >= 500_000, "{forks}");
    // Two trees are compared, whichever names them.
    let expected = "M\t/\n+\t/new\nM\t/src/deep/file\n";
    assert_eq!(scratch.dendro(["diff", &mount, &dest]).succeeds().out, expected);
    assert_eq!(
        scratch.dendro(["diff", &format!("{mount}@fork-work"), &dest]).succeeds().out,
        expected
    );
    let stat = scratch.dendro(["diff", "--stat", &dest, &mount]).succeeds().out;
    assert_eq!(stat, "0 added, 1 removed, 2 modified, 0 renamed\n");
    let stat = json(&scratch.dendro(["diff", "--stat", "--json", &mount, ":work"]).succeeds());
    assert_eq!((&stat["added"], &stat["modified"]), (&1.into(), &2.into()));
    scratch.dendro(["diff", &mount]).fails(2, &["say what to compare it with"]);
    scratch.dendro(["diff", &mount, "/proc"]).fails(2, &["is no mount of this volume"]);
    scratch.dendro(["fork", &mount, &dest]).fails(1, &["not empty"]);
    let open = File::open(scratch.path("work/new")).unwrap();
    scratch.dendro(["drop", &dest]).fails(32, &["work", "--force"]);
    assert_eq!(versions(&scratch), [":main", ":work", "@fork-work"], "nothing was done");
    drop(open);
    let dropped = scratch.dendro(["drop", &dest]).succeeds();
    assert!(dropped.out.contains("dropped :work"), "{dropped:?}");
    assert_eq!(versions(&scratch), [":main"]);
    assert!(!scratch.path("work").exists());
    scratch.dendro(["drop", &mount]).fails(1, &["shows the main branch"]);
    assert!(scratch.is_mounted());
    scratch.umount();
}

#[test]
fn many_forks_of_a_directory_are_made_and_dropped_at_once() {
    let Some(scratch) = with_files() else { return };
    let (src, dest) = (scratch.text("mnt/src"), scratch.text("w"));
    let made = json(&scratch.dendro(["fork", "-n", "3", "--json", &src, &dest]).succeeds());
    let made = &made["forks"];
    assert_eq!(made.as_array().unwrap().len(), 3);
    for number in 1..=3 {
        let fork = &made[number - 1];
        let path = fork["path"].as_str().unwrap();
        let place = format!("{dest}/{number}");
        // Root sees the directory alone.
        let expected = if crate::common::is_root() { place } else { format!("{place}/src") };
        assert_eq!(
            (fork["branch_name"].as_str(), path),
            (Some(&*format!("w-{number}")), &*expected)
        );
        assert_eq!(fs::read_dir(path).unwrap().count(), 1);
        fs::write(format!("{path}/deep/file"), format!("{number}")).unwrap();
    }
    assert_eq!(fs::read_to_string(scratch.inside("src/deep/file")).unwrap(), "one");
    let path = made[1]["path"].as_str().unwrap();
    // Paths in it are those of the volume.
    let history = scratch.dendro(["history", &format!("{path}/deep/file")]).succeeds().out;
    assert!(history.contains("@fork-w"), "{history}");
    fs::remove_file(format!("{path}/deep/file")).unwrap();
    scratch.dendro(["undelete", &format!("{path}/deep/file")]).succeeds();
    assert_eq!(fs::read_to_string(format!("{path}/deep/file")).unwrap(), "one");
    // One goes by itself, and the snapshot stays for the others.
    scratch.dendro(["drop", &format!("{dest}/2")]).succeeds();
    assert_eq!(versions(&scratch), [":main", ":w-1", ":w-3", "@fork-w"]);
    // After a crash the others are there, mounted nowhere.
    scratch.umount();
    scratch.dendro(["umount", &format!("{dest}/1"), &format!("{dest}/3")]).succeeds();
    let forks = scratch.dendro(["forks", &scratch.image()]).succeeds().out;
    assert_eq!(forks.matches("not mounted").count(), 2, "{forks}");
    scratch.dendro(["drop", &format!("{}:w-1", scratch.image())]).succeeds();
    scratch.mount_with("clone=w-3");
    assert_eq!(fs::read_to_string(scratch.inside("src/deep/file")).unwrap(), "3");
    scratch.umount();
    scratch.dendro(["drop", "--json", &format!("{}:w-3", scratch.image())]).succeeds();
    assert_eq!(versions(&scratch), [":main"]);
    // Of an image that nobody has mounted, too; and all at once.
    scratch.dendro(["fork", "-q", "-n", "2", &scratch.image(), &scratch.text("x")]).succeeds();
    assert_eq!(fs::read_to_string(scratch.path("x/2/top")).unwrap(), "top");
    scratch.dendro(["drop", &scratch.text("x")]).succeeds();
    assert!(!scratch.path("x").exists());
    assert_eq!(versions(&scratch), [":main"]);
}

#[test]
fn what_cannot_be_forked_leaves_nothing() {
    let Some(scratch) = with_files() else { return };
    let mount = scratch.mount_point();
    scratch.dendro(["fork", &mount, &scratch.text("no/such")]).fails(1, &["no/such"]);
    scratch.dendro(["fork", &scratch.text("mnt/top"), &scratch.text("w")]).fails(1, &["directory"]);
    scratch.dendro(["fork", "--name", "a,b", &mount, &scratch.text("w")]).fails(1, &["comma"]);
    scratch.dendro(["fork", "-o", "bogus", &mount, &scratch.text("w")]).fails(1, &["bogus"]);
    assert!(!scratch.path("w").exists());
    assert_eq!(versions(&scratch), [":main"]);
    scratch.dendro(["drop", &scratch.text("none")]).fails(1, &["none"]);
    scratch.dendro(["drop", "/proc"]).fails(1, &["no fork is mounted there", "TARGET:NAME"]);
    scratch.umount();
}

#[test]
fn branches_are_named_from_inside_the_volume() {
    let Some(scratch) = with_files() else { return };
    let inside = |arguments: &[&str]| {
        let mut command = scratch.command(arguments);
        said(command.current_dir(scratch.inside("src")).output().unwrap())
    };
    inside(&["snapshot", "create", "@one"]).succeeds();
    inside(&["clone", "@one", "b"]).succeeds();
    fs::write(scratch.inside("top"), "changed").unwrap();
    assert_eq!(inside(&["diff", "@one"]).succeeds().out, "M\t/top\n");
    assert_eq!(inside(&["diff", "@one", ":b"]).succeeds().out, "");
    inside(&["branch", "rename", ":b", "c"]).succeeds();
    let list = json(&inside(&["branch", "list", "--json"]).succeeds());
    let names: Vec<_> =
        list["branches"].as_array().unwrap().iter().map(|of| &of["branch_name"]).collect();
    assert_eq!(names, ["main", "c"]);
    inside(&["branch", "delete", "@one"]).fails(2, &["name a branch"]);
    inside(&["branch", "delete", "-n", ":c"]).succeeds();
    inside(&["branch", "delete", ":c"]).succeeds();
    assert_eq!(versions(&scratch), [":main", "@one"]);
    let outside = scratch.dendro(["snapshot", "list", "@one"]);
    assert_ne!(outside.code, Some(0));
    assert!(outside.err.contains(".: is neither in a dendrofs mount"), "{outside:?}");
    scratch.umount();
}

#[test]
fn several_mounts_are_unmounted_at_once() {
    let Some(scratch) = with_files() else { return };
    let mount = scratch.mount_point();
    scratch.dendro(["fork", "-n", "2", &mount, &scratch.text("w")]).succeeds();
    let [one, two] = ["w/1", "w/2"].map(|name| scratch.text(name));
    let busy = File::open(scratch.path("w/1/top")).unwrap();
    let said = scratch.dendro(["umount", &one, "/proc", &two]);
    said.fails(32, &["w/1", "/proc"]);
    assert!(!mounts().contains(&two) && mounts().contains(&one), "each by itself");
    drop(busy);
    // All by itself would take the mounts of other tests away.
    scratch.dendro(["umount", "--all", &one]).fails(2, &["--all"]);
    scratch.dendro(["umount", &one, &mount]).succeeds();
    assert!(!mounts().contains(&mount) && !mounts().contains(&one));
}
