//! Completion as somebody has it who types: in a real bash, on a terminal.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::common::{Scratch, wait_until};

/// What stands on the line when TAB was pressed behind `line`, in a bash in the scratch's
/// directory.
fn completed(scratch: &Scratch, line: &str) -> String {
    let told = scratch.path("told");
    let _ = fs::remove_file(&told);
    // The line is not run: a function that is bound to a key says how it is.
    let setup = format!(
        "PATH={}:$PATH\n. {}\nshow() {{ printf %s \"$READLINE_LINE\" > {}.new; mv {}.new {}; }}\n\
         bind -x '\"\\C-g\": show'\nPS1=ready\n",
        scratch.text("bin"),
        scratch.text("completions"),
        told.display(),
        told.display(),
        told.display(),
    );
    fs::write(scratch.path("setup"), setup).unwrap();
    let bash = format!("bash --noprofile --rcfile {} -i", scratch.text("setup"));
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60", "script", "-qec", &bash, "/dev/null"]);
    scratch.prepare(&mut command);
    command.current_dir(scratch.path("")).env("TERM", "dumb").env_remove("HISTFILE");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut keys, mut shown) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(b"ready") {
        assert_eq!(shown.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&seen));
        seen.push(byte[0]);
    }
    keys.write_all(format!("{line}\t\x07").as_bytes()).unwrap();
    wait_until("the line is completed", || told.exists());
    // Nothing is left to be run: the line goes, and the shell.
    keys.write_all(b"\x15exit\n").unwrap();
    drop(keys);
    let mut rest = Vec::new();
    shown.read_to_end(&mut rest).unwrap();
    child.wait().unwrap();
    fs::read_to_string(&told).unwrap()
}

#[test]
fn what_is_completed_in_bash_stands_behind_what_was_typed() {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !has("bash") || !has("script") {
        eprintln!("left out: it takes bash and script");
        return;
    }
    let scratch = Scratch::with_volume();
    fs::create_dir(scratch.path("bin")).unwrap();
    for name in ["dendro", "mount.dendro"] {
        let link = scratch.path("bin").join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_dendro"), link).unwrap();
    }
    let script = scratch.dendro(["completions", "bash"]).succeeds().out;
    fs::write(scratch.path("completions"), script).unwrap();
    scratch.dendro(["clone", &scratch.image(), "draft"]).succeeds();
    scratch.dendro(["snapshot", "create", &format!("{}@before", scratch.image())]).succeeds();
    for (typed, whole) in [
        ("dendro diff image@be", "dendro diff image@before "),
        ("dendro log image:dr", "dendro log image:draft "),
        ("dendro mount image mnt -o ro,clone=dr", "dendro mount image mnt -o ro,clone=draft"),
        ("mount.dendro image mnt -o snapshot=b", "mount.dendro image mnt -o snapshot=before"),
        ("dendro mount image mnt -o noat", "dendro mount image mnt -o noatime"),
        ("dendro clean set --policy lad", "dendro clean set --policy ladder "),
        // Nothing is offered where there is nothing to name.
        ("dendro mount image mnt -o ro,snapshot=no", "dendro mount image mnt -o ro,snapshot=no"),
        ("dendro mount nothing mnt -o ro,clone=", "dendro mount nothing mnt -o ro,clone="),
        ("dendro log nothing:", "dendro log nothing:"),
    ] {
        assert_eq!(completed(&scratch, typed), whole, "{typed}");
    }
}
