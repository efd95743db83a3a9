//! What other users have of a mount that root has made.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Said, Scratch, said};

/// Users of whom the system need not know.
const ALICE: u32 = 54_321;
const BOB: u32 = 54_322;
/// A user of one test alone, whose mounts are those of that test.
const CAROL: u32 = 54_323;
/// A group of Bob's.
const STAFF: u32 = 54_400;

/// No command may take longer.
const TIMEOUT_S: &str = "120";

/// A volume that is mounted with `options`, where others can go, and the binary where they can run
/// it.
fn volume(options: &str) -> Option<Scratch> {
    if crate::common::skips_mounts() || !crate::common::is_root() {
        return None;
    }
    let scratch = Scratch::with_volume();
    open(&scratch.path(""), 0o755);
    let binary = Path::new(env!("CARGO_BIN_EXE_dendro"));
    if fs::hard_link(binary, scratch.path("dendro")).is_err() {
        fs::copy(binary, scratch.path("dendro")).unwrap();
    }
    scratch.mount_with(options);
    Some(scratch)
}

fn open(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A program, run as a user.
fn command(scratch: &Scratch, user: u32, groups: &str) -> Command {
    let mut command = Command::new("setpriv");
    let user = user.to_string();
    command.args(["--reuid", &user, "--regid", &user]);
    match groups {
        "" => command.arg("--clear-groups"),
        groups => command.args(["--groups", groups]),
    };
    command.args(["timeout", "--signal=KILL", TIMEOUT_S]);
    scratch.prepare(&mut command);
    command
}

fn dendro(scratch: &Scratch, user: u32, arguments: &[&str]) -> Said {
    let binary = scratch.path("dendro");
    said(command(scratch, user, "").arg(binary).args(arguments).output().unwrap())
}

/// Runs a line of the shell as a user.
fn shell(scratch: &Scratch, user: u32, line: &str) -> Said {
    said(command(scratch, user, "").args(["sh", "-c", line]).output().unwrap())
}

/// A directory that belongs to a user.
fn directory_of(scratch: &Scratch, user: u32, name: &str) -> PathBuf {
    let path = scratch.path(name);
    fs::create_dir(&path).unwrap();
    chown(&path, Some(user), Some(user)).unwrap();
    path
}

/// Files that everybody may read, that one user may, and that nobody else may come near; in a
/// snapshot, and then gone.
fn fill(scratch: &Scratch) {
    let public = scratch.inside("pub");
    fs::create_dir(&public).unwrap();
    open(&public, 0o777);
    let private = scratch.inside("priv");
    fs::create_dir(&private).unwrap();
    open(&private, 0o700);
    for (file, mode) in [("pub/open", 0o6755), ("pub/shut", 0o600), ("priv/secret", 0o644)] {
        fs::write(scratch.inside(file), file).unwrap();
        open(&scratch.inside(file), mode);
    }
    let at = |name: &str| format!("{}@{name}", scratch.mount_point());
    scratch.dendro(["snapshot", "create", &at("full")]).succeeds();
    for file in ["pub/open", "pub/shut", "priv/secret"] {
        fs::remove_file(scratch.inside(file)).unwrap();
    }
    scratch.dendro(["snapshot", "create", &at("bare")]).succeeds();
}

#[test]
fn everybody_sees_the_past_of_what_everybody_may_see() {
    let Some(scratch) = volume("users=0") else { return };
    fill(&scratch);
    let (mount, full) = (scratch.mount_point(), format!("{}@full", scratch.mount_point()));
    let bob = |arguments: &[&str]| dendro(&scratch, BOB, arguments);
    let inside = |name: &str| scratch.inside(name).to_str().unwrap().to_owned();

    let told = bob(&["info", &mount]).succeeds().out;
    assert!(told.contains("users=0"), "{told}");
    bob(&["stat", &mount]).succeeds();
    bob(&["sync", &mount]).succeeds();
    let listed = bob(&["snapshot", "list", &mount]).succeeds().out;
    assert!(listed.contains("@full") && listed.contains("@bare"), "{listed}");

    let history = bob(&["history", &inside("pub/shut")]).succeeds().out;
    assert!(history.contains("@full"), "anybody can stat it: {history}");
    bob(&["history", &inside("priv/secret")]).fails(1, &["/priv/secret", "permissions"]);
    let all = scratch.dendro(["diff", &full, &mount]).succeeds().out;
    assert!(all.contains("/priv/secret"), "{all}");
    let changes = bob(&["diff", &full, &mount]).succeeds().out;
    assert!(changes.contains("-\t/pub/open") && changes.contains("M\t/priv\n"), "{changes}");
    assert!(!changes.contains("secret"), "{changes}");
    let names = bob(&["undelete", "--list", &inside("pub")]).succeeds().out;
    assert!(names.contains("open") && names.contains("shut"), "{names}");
    bob(&["undelete", "--list", &inside("priv")]).fails(1, &["permissions"]);

    // What Bob brings back is Bob's, and runs as nobody else.
    bob(&["undelete", &inside("pub/open")]).succeeds();
    let file = fs::metadata(scratch.inside("pub/open")).unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (BOB, BOB, 0o755));
    assert_eq!(fs::read(scratch.inside("pub/open")).unwrap(), b"pub/open");
    bob(&["undelete", &inside("pub/shut")]).fails(1, &["/pub/shut", "permissions"]);
    bob(&["undelete", &inside("priv/secret")]).fails(1, &["permissions"]);
    // Nor where Bob may not make files, nor in the past alone.
    bob(&["undelete", "--to", &inside("new"), &inside("pub/open")]).fails(1, &["permissions"]);
    assert!(!scratch.inside("new").exists() && !scratch.inside("pub/shut").exists());
}

#[test]
fn nobody_else_gets_further_than_that() {
    let Some(scratch) = volume("users=0") else { return };
    fill(&scratch);
    let (mount, full) = (scratch.mount_point(), format!("{}@full", scratch.mount_point()));
    let new = format!("{mount}@new");
    scratch.dendro(["clone", &full, "branch"]).succeeds();
    let branch = format!("{mount}:branch");
    let told = "this needs root, or the user who mounted it";
    let advice = "users=";
    let refused: [(&[&str], &str); 14] = [
        (&["snapshot", "create", &new], advice),
        (&["clone", &full, "mine"], advice),
        (&["snapshot", "rename", &full, "other"], advice),
        (&["usage", &mount], advice),
        (&["fork", &mount, &scratch.text("fork")], advice),
        (&["snapshot", "delete", &full], told),
        (&["snapshot", "delete", &branch], told),
        (&["diff", &full, &branch], told),
        (&["rollback", &full], told),
        (&["promote", &branch], told),
        (&["set", &mount, "commit=1"], told),
        (&["clean", "run", &mount], told),
        (&["segments", &mount], told),
        (&["history", "--volume", &scratch.image(), "/pub/open"], told),
    ];
    // Where Bob could make the directory.
    open(&scratch.path(""), 0o777);
    for (arguments, part) in refused {
        dendro(&scratch, BOB, arguments).fails(1, &["permission denied", told, part]);
    }
    assert!(!scratch.path("fork").exists());
    let versions = scratch.dendro(["snapshot", "list", "--json", &mount]).succeeds().out;
    assert!(versions.contains("\"full\"") && !versions.contains("\"new\""), "{versions}");
    // The branch that nobody sees in this mount is not told of.
    let listed = dendro(&scratch, BOB, &["snapshot", "list", &mount]).succeeds().out;
    assert!(!listed.contains(":branch"), "{listed}");
}

#[test]
fn a_mount_that_cannot_be_reached_shows_nothing() {
    let Some(scratch) = volume("users=54322") else { return };
    fill(&scratch);
    let socket = scratch.info(&scratch.mount_point())["mount"]["socket"].clone();
    let socket = socket.as_str().unwrap();
    let device = scratch.info(&scratch.mount_point())["mount"]["views"][0]["device"].clone();
    let ask = |action: &str| {
        let asked = format!(
            r#"{{"version":1,"command":"versions","mount":{device},"action":{action},"of":{{}},"path":"/pub/open"}}"#
        );
        let line = format!("printf '%s\\n' '{asked}' | python3 -c '{CONVERSE}' {socket}");
        shell(&scratch, BOB, &line).out
    };
    // Whoever just talks to the socket has not shown that the mount can be reached.
    let said = ask("\"history\"");
    assert!(said.contains("permission denied"), "{said}");
    // Where it lies beyond a directory that Bob may not go through, commands do not get there
    // either.
    open(&scratch.path(""), 0o700);
    let inside = scratch.inside("pub/open").to_str().unwrap().to_owned();
    let said = dendro(&scratch, 0, &["history", &inside]).succeeds();
    assert!(said.out.contains("@full"), "{said:?}");
    open(&scratch.path(""), 0o711);
    open(&scratch.path("run"), 0o711);
    // The past is hidden with the directory that shows it.
    scratch.umount();
    scratch.mount_with("nosnapdir");
    dendro(&scratch, BOB, &["history", &inside]).fails(1, &["does not show the past"]);
    scratch.umount();
    scratch.mount_with("noallow_other");
    let refused = dendro(&scratch, BOB, &["history", &inside]);
    assert_ne!(refused.code, Some(0), "{refused:?}");
}

/// Sends a line to a socket, and prints the answer.
const CONVERSE: &str = "import socket,sys\n\
                        s=socket.socket(socket.AF_UNIX)\n\
                        s.connect(sys.argv[1])\n\
                        s.sendall(sys.stdin.buffer.read())\n\
                        print(s.makefile().readline())";

#[test]
fn delegates_make_versions_and_take_away_what_they_made() {
    let Some(scratch) = volume("users=54321,group=54400") else { return };
    fill(&scratch);
    let mount = scratch.mount_point();
    let version = |name: &str| format!("{mount}{name}");
    let alice = |arguments: &[&str]| dendro(&scratch, ALICE, arguments);
    alice(&["snapshot", "create", &version("@alices")]).succeeds();
    alice(&["snapshot", "rename", &version("@alices"), "hers"]).succeeds();
    alice(&["snapshot", "create", &version("@before-rollback-2026-11-24T20.31.05")])
        .fails(1, &["choose another name"]);
    scratch.dendro(["snapshot", "create", &version("@roots")]).succeeds();
    alice(&["clone", &version("@hers"), "work"]).succeeds();
    alice(&["diff", &version("@hers"), &version(":work")]).succeeds();
    alice(&["usage", &mount]).succeeds();
    // Whoever is in the group may too, and is another user.
    let bob = |arguments: &[&str]| {
        let mut command = command(&scratch, BOB, &STAFF.to_string());
        said(command.arg(scratch.path("dendro")).args(arguments).output().unwrap())
    };
    bob(&["snapshot", "create", &version("@bobs")]).succeeds();
    let others = "was made by another user";
    for name in ["@full", "@roots", "@bobs", ":main"] {
        alice(&["snapshot", "delete", &version(name)]).fails(1, &["permission denied", others]);
    }
    bob(&["snapshot", "delete", &version("@hers")]).fails(1, &[others]);
    bob(&["diff", &version("@full"), &version(":work")]).fails(1, &["is not to be seen"]);
    alice(&["snapshot", "delete", "-n", &version("@hers")]).succeeds();
    // What root puts in the place of the main branch is everybody's.
    scratch.dendro(["promote", "--force", &version(":work")]).succeeds();
    scratch.dendro(["promote", "--force", &version(":work")]).succeeds();
    alice(&["snapshot", "delete", &version(":work")]).fails(1, &[others]);
    // They are known again after the next mount; and no longer delegates when that is over.
    scratch.umount();
    scratch.mount_with("defaults");
    alice(&["snapshot", "create", &version("@more")]).fails(1, &["users="]);
    alice(&["snapshot", "delete", &version("@hers")]).succeeds();
    scratch.dendro(["set", &mount, "users=54321"]).succeeds();
    alice(&["snapshot", "create", &version("@more")]).succeeds();
    scratch.dendro(["set", &mount, "users="]).succeeds();
    alice(&["snapshot", "create", &version("@again")]).fails(1, &["users="]);
    scratch.dendro(["snapshot", "delete", &version("@more")]).succeeds();
}

#[test]
fn the_owner_of_an_image_is_a_delegate_where_that_is_said() {
    let Some(scratch) = volume("owner") else { return };
    chown(scratch.image(), Some(ALICE), None).unwrap();
    let version = format!("{}@a", scratch.mount_point());
    dendro(&scratch, BOB, &["snapshot", "create", &version]).fails(1, &["owner"]);
    dendro(&scratch, ALICE, &["snapshot", "create", &version]).succeeds();
}

#[test]
fn a_delegates_fork_is_mounted_with_the_permissions_that_everybody_has() {
    let Some(scratch) = volume("users=54321") else { return };
    fs::create_dir(scratch.inside("pub")).unwrap();
    open(&scratch.inside("pub"), 0o777);
    fs::write(scratch.inside("secret"), "root's").unwrap();
    open(&scratch.inside("secret"), 0o600);
    let home = directory_of(&scratch, ALICE, "home");
    let fork = home.join("fork").to_str().unwrap().to_owned();
    let alice = |arguments: &[&str]| dendro(&scratch, ALICE, arguments);
    alice(&["fork", &scratch.mount_point(), &fork]).succeeds();
    let entry = crate::common::mounts();
    let entry = entry.lines().find(|line| line.contains(&fork)).unwrap();
    for option in ["nosuid", "nodev", "default_permissions", "user_id=54321"] {
        assert!(entry.contains(option), "{entry}");
    }
    shell(&scratch, ALICE, &format!("echo hers >{fork}/pub/file && cat {fork}/pub/file"))
        .succeeds();
    let denied = shell(&scratch, ALICE, &format!("cat {fork}/secret || echo x >{fork}/new"));
    denied.fails(2, &["Permission denied"]);
    assert!(!scratch.inside("pub/file").exists());
    let forks = alice(&["forks", &scratch.mount_point()]).succeeds().out;
    assert!(forks.contains(&fork), "{forks}");
    // Neither where she may not mount, nor what she has not made, nor for others to take away.
    alice(&["fork", &scratch.mount_point(), &scratch.text("mine")]).fails(1, &["mine"]);
    scratch.dendro(["clone", &format!("{}@fork-fork", scratch.mount_point()), "roots"]).succeeds();
    let other = home.join("other");
    fs::create_dir(&other).unwrap();
    chown(&other, Some(ALICE), None).unwrap();
    let other = other.to_str().unwrap().to_owned();
    let image = scratch.image();
    alice(&["mount", "-o", "clone=roots", &image, &other]).fails(32, &["permission denied"]);
    alice(&["mount", &image, &other]).fails(32, &["permission denied"]);
    dendro(&scratch, BOB, &["drop", &fork]).fails(32, &["permission denied"]);
    dendro(&scratch, BOB, &["umount", &fork]).fails(32, &["permission denied"]);
    // As long as she has it mounted, and afterwards.
    alice(&["umount", &fork]).succeeds();
    alice(&["mount", "-o", "clone=fork", &image, &fork]).succeeds();
    assert_eq!(fs::read_to_string(format!("{fork}/pub/file")).unwrap(), "hers\n");
    // What she tries in it leaves it hers.
    let line = format!("echo tried >{fork}/pub/file");
    alice(&["try", &fork, "--", "sh", "-c", &line]).succeeds();
    assert_eq!(fs::read_to_string(format!("{fork}/pub/file")).unwrap(), "tried\n");
    alice(&["drop", &fork]).succeeds();
    assert!(!Path::new(&fork).exists());
    let versions = scratch.dendro(["snapshot", "list", &scratch.mount_point()]).succeeds().out;
    assert!(!versions.contains(":fork") && versions.contains("@fork-fork"), "{versions}");
}

#[test]
fn all_that_a_user_unmounts_are_the_mounts_of_that_user() {
    let Some(scratch) = volume("users=54323") else { return };
    let forks = directory_of(&scratch, CAROL, "home").join("forks").to_str().unwrap().to_owned();
    dendro(&scratch, CAROL, &["fork", "-n", "2", &scratch.mount_point(), &forks]).succeeds();
    assert_eq!(crate::common::mounts().matches(&forks).count(), 2);
    // Somebody still has one open when it is unmounted, but not for long.
    let fork = fs::read_dir(&forks).unwrap().next().unwrap().unwrap().path();
    let open = fs::File::open(fork).unwrap();
    let said = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            drop(open);
        });
        dendro(&scratch, CAROL, &["umount", "--all", "--json"]).succeeds()
    });
    assert_eq!(said.out.matches(&forks).count(), 2, "{said:?}");
    assert_eq!(said.err, "", "root's mount is not hers");
    assert!(!crate::common::mounts().contains(&forks) && scratch.is_mounted());
}

#[test]
fn what_a_user_put_in_the_way_of_a_fork_is_not_unmounted_for_it() {
    let Some(scratch) = volume("users=54321") else { return };
    let home = directory_of(&scratch, ALICE, "home");
    fs::create_dir(home.join("dir")).unwrap();
    chown(home.join("dir"), Some(ALICE), None).unwrap();
    let fork = home.join("dir/mnt").to_str().unwrap().to_owned();
    dendro(&scratch, ALICE, &["fork", &scratch.mount_point(), &fork]).succeeds();
    // `dir/mnt` is the first mount now, and the fork lies elsewhere.
    fs::rename(home.join("dir"), home.join("moved")).unwrap();
    std::os::unix::fs::symlink(scratch.path(""), home.join("dir")).unwrap();
    crate::common::signal(scratch.daemon_pid(), "TERM");
    crate::common::wait_until("the volume is unmounted", || !scratch.is_mounted());
    let moved = home.join("moved/mnt").to_str().unwrap().to_owned();
    assert!(crate::common::mounts().contains(&moved));
    scratch.dendro(["umount", &moved]).succeeds();
}

#[test]
fn a_delegate_tries_a_command_on_a_clone() {
    let Some(scratch) = volume("users=54321") else { return };
    fs::create_dir(scratch.inside("pub")).unwrap();
    open(&scratch.inside("pub"), 0o777);
    fs::write(scratch.inside("secret"), "root's").unwrap();
    open(&scratch.inside("secret"), 0o600);
    let mount = scratch.mount_point();
    let run = |line: &str| dendro(&scratch, ALICE, &["try", &mount, "--", "sh", "-c", line]);
    let tried = format!("echo tried >{mount}/pub/file && ls {mount}/pub");
    let succeeded = run(&tried).succeeds();
    assert!(
        succeeded.out.contains("file") && succeeded.err.contains("before-try"),
        "{succeeded:?}"
    );
    let file = fs::metadata(scratch.inside("pub/file")).unwrap();
    assert_eq!(file.uid(), ALICE);
    run(&format!("rm {mount}/pub/file; cat {mount}/secret")).fails(1, &["Permission denied"]);
    assert!(scratch.inside("pub/file").exists(), "a command that fails changes nothing");
    let versions = scratch.dendro(["snapshot", "list", &mount]).succeeds().out;
    assert!(!versions.contains("try-") || versions.contains("@before-try-"), "{versions}");
    // The tree is everybody's still.
    let main = format!("{mount}:main");
    dendro(&scratch, ALICE, &["snapshot", "delete", &main]).fails(1, &["permission denied"]);
    dendro(&scratch, BOB, &["try", &mount, "--", "true"]).fails(125, &["users="]);
    // Bounds that could not be kept up are not left behind.
    scratch.umount();
    scratch.mount_with("users=54321,nodev");
    run("true").fails(125, &["nodev"]);
}

#[test]
fn a_delegate_takes_back_what_is_its_own() {
    let Some(scratch) = volume("users=54321:54322") else { return };
    fs::create_dir(scratch.inside("pub")).unwrap();
    open(&scratch.inside("pub"), 0o777);
    let mount = scratch.mount_point();
    let file = scratch.inside("pub/file");
    let run = |line: &str| dendro(&scratch, ALICE, &["try", &mount, "--", "sh", "-c", line]);
    let undo = |user| dendro(&scratch, user, &["rollback", "--undo", &mount]);
    undo(ALICE).fails(1, &["nothing to be taken back"]);
    run(&format!("echo one >{mount}/pub/file")).succeeds();
    // It is not another delegate's.
    undo(BOB).fails(1, &["permission denied", "only a try of your own"]);
    undo(ALICE).succeeds();
    assert!(!file.exists());
    // That can be taken back, too, and so on.
    for _ in 0..2 {
        undo(BOB).fails(1, &["permission denied"]);
        undo(ALICE).succeeds();
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\n");
        undo(ALICE).succeeds();
        assert!(!file.exists());
    }
    undo(0).succeeds();
    assert_eq!(fs::read_to_string(&file).unwrap(), "one\n");
    undo(ALICE).fails(1, &["permission denied"]);
    run(&format!("echo two >{mount}/pub/file")).succeeds();
    // Others have changed something since.
    fs::write(scratch.inside("roots"), "root's").unwrap();
    undo(ALICE).fails(1, &["permission denied", "nothing was changed since"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "two\n");
    run(&format!("echo three >{mount}/pub/file")).succeeds();
    undo(ALICE).succeeds();
    assert_eq!(fs::read_to_string(&file).unwrap(), "two\n");
    assert!(scratch.inside("roots").exists());
    // Of all this nothing is left but the last; and that is the user's who took it back.
    let list = scratch.dendro(["snapshot", "list", &mount]).succeeds().out;
    assert_eq!(list.matches("after-try-").count(), 1, "{list}");
    let kept = list.split_whitespace().rfind(|word| word.contains("before-undo-"));
    let kept = kept.unwrap().trim_start_matches('@');
    let of_kept = format!("{mount}@{kept}");
    dendro(&scratch, BOB, &["snapshot", "delete", &of_kept]).fails(1, &["permission denied"]);
    dendro(&scratch, ALICE, &["snapshot", "delete", &of_kept]).succeeds();
}

#[test]
fn a_delegates_fork_goes_back_to_its_past() {
    let Some(scratch) = volume("users=54321:54322") else { return };
    let own = directory_of(&scratch, ALICE, "own");
    fs::create_dir(scratch.inside("pub")).unwrap();
    open(&scratch.inside("pub"), 0o777);
    let fork = own.join("fork").to_str().unwrap().to_owned();
    let alice = |words: &[&str]| dendro(&scratch, ALICE, words);
    alice(&["fork", &scratch.mount_point(), &fork]).succeeds();
    let sh = |line: &str| shell(&scratch, ALICE, line);
    sh(&format!("echo one >{fork}/pub/file")).succeeds();
    alice(&["snapshot", "create", &format!("{fork}@one")]).succeeds();
    sh(&format!("echo two >{fork}/pub/file")).succeeds();
    let back = format!("{fork}@one");
    dendro(&scratch, BOB, &["rollback", &back]).fails(1, &[]);
    alice(&["rollback", "--force", &back]).fails(1, &["permission denied"]);
    for _ in 0..2 {
        alice(&["rollback", &back]).succeeds();
        let read = || sh(&format!("cat {fork}/pub/file")).succeeds().out;
        assert_eq!(read(), "one\n");
        alice(&["rollback", "--undo", &fork]).succeeds();
        assert_eq!(read(), "two\n");
    }
    // It is still the user's.
    alice(&["drop", &fork]).succeeds();
}

#[test]
fn a_mount_by_the_words_of_fstab_delegates() {
    let Some(scratch) = volume("defaults") else { return };
    scratch.umount();
    let options = "users=54321,users,nofail,dev,suid,exec";
    scratch.mount_with(options);
    let told = scratch.info(&scratch.mount_point())["mount"]["views"][0]["options"].to_string();
    assert!(told.contains("users=54321"), "{told}");
    let bad = ["mount", "-o", "users=no-such-user", &scratch.image(), &scratch.mount_point()];
    scratch.dendro(bad).fails(1, &["no user no-such-user"]);
}
