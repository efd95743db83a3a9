//! What commands print as JSON is what docs/JSON.md says, no more and no less.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use dendro_nbd::testing::Client;

use crate::common::{Scratch, said, signal, skips_mounts, wait_until};
use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/JSON.md");

/// What is on the page, and takes damage or an unusual machine to be seen.
const UNSEEN: [(&str, &str); 20] = [
    // These take damage of the map that no older checkpoint makes good.
    ("rebuild", "bad_nodes[]"),
    ("rebuild", "affected_beyond"),
    ("rebuild", "affected_files[]"),
    ("rebuild", "affected_files[].list"),
    ("rebuild", "affected_files[].paths"),
    ("rebuild", "affected_files[].paths[]"),
    ("rebuild", "lost_pages[]"),
    ("rebuild", "lost_pages[].list"),
    ("rebuild", "lost_pages[].page_count"),
    ("rebuild", "lost_pages[].page_index"),
    ("rebuild", "restored[]"),
    ("rebuild", "restored[].complete"),
    ("rebuild", "restored[].detail"),
    ("rebuild", "restored[].first_list"),
    ("rebuild", "restored[].last_list"),
    // The map of a volume that is in use is sound.
    ("scrub", "problem"),
    ("ls", "entries[].problem"),
    ("mkfs, info", "damage[]"),
    // A check takes no time here.
    ("damage", "last_check.progress"),
    // The daemon cleans when it must.
    ("stat", "cleaned_utilisation"),
];

/// Objects whose members are called as what they are about.
const MAPS: [&str; 1] = ["latency"];

/// The names that a dump has are those of the format.
const AS_IN_FORMAT: &str = "dump";

/// A member: its type, whether it may be null, and whether it may be absent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    kind: String,
    null: bool,
    absent: bool,
    meaning: String,
}

/// Commands that print the same, and what that is.
struct Section {
    commands: Vec<String>,
    members: BTreeMap<String, Member>,
}

/// The page's sections.
fn page() -> Vec<Section> {
    let mut all: Vec<Section> = Vec::new();
    for line in PAGE.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            let commands = heading.split(", ").map(|name| name.trim_matches('`').to_owned());
            // A long heading goes on with the next one.
            match all.last_mut().filter(|section| section.members.is_empty()) {
                Some(section) => section.commands.extend(commands),
                None => {
                    all.push(Section { commands: commands.collect(), members: BTreeMap::new() })
                }
            }
            continue;
        }
        let Some(row) = line.strip_prefix("| `") else { continue };
        let section = all.last_mut().unwrap();
        let cells: Vec<&str> = row.trim_end_matches(" |").splitn(3, " | ").collect();
        let [path, types, meaning] = cells[..] else { panic!("no row of three cells: {line}") };
        let (types, absent) = match types.strip_suffix(", may be absent") {
            Some(types) => (types, true),
            None => (types, false),
        };
        let null = types.ends_with(" or null");
        let kind = types.trim_end_matches(" or null").to_owned();
        let member = Member { kind, null, absent, meaning: meaning.to_owned() };
        let is_new = section.members.insert(path.trim_end_matches('`').to_owned(), member);
        assert!(is_new.is_none(), "{:?}: {path} is told of twice", section.commands);
    }
    assert!(all.len() > 20, "the page has another form");
    all
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// The members of `value` and of what is in it, with the types seen.
fn collect(value: &Value, path: &str, seen: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    if !path.is_empty() {
        seen.entry(path.to_owned()).or_default().insert(kind(value));
    }
    match value {
        Value::Array(all) => all.iter().for_each(|one| collect(one, &format!("{path}[]"), seen)),
        Value::Object(members) => {
            for (name, member) in members {
                let name = if MAPS.contains(&path) { "*" } else { name };
                let dot = if path.is_empty() { "" } else { "." };
                collect(member, &format!("{path}{dot}{name}"), seen);
            }
        }
        _ => {}
    }
}

/// What commands have printed so far.
#[derive(Default)]
struct Printed(BTreeMap<String, Vec<Value>>);

impl Printed {
    /// Notes what `command` has printed, one object or one a line.
    #[track_caller]
    fn note(&mut self, command: &str, out: &str) -> Value {
        let values: Vec<Value> = match serde_json::from_str(out) {
            Ok(one) => vec![one],
            Err(_) => out.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        };
        assert!(!values.is_empty(), "{command} prints nothing");
        for value in &values {
            assert_eq!(value["schema"], 1, "{command}: {value}");
        }
        let last = values.last().cloned().unwrap();
        self.0.entry(command.to_owned()).or_default().extend(values);
        last
    }

    #[track_caller]
    fn run(&mut self, scratch: &Scratch, command: &str, more: &[&str]) -> Value {
        let all = command.split(' ').chain(["--json"]).chain(more.iter().copied());
        let out = scratch.dendro(all).succeeds().out;
        self.note(command, &out)
    }

    /// Where the page and what was printed differ.
    fn differences(&self) -> Vec<String> {
        let page = page();
        let told = |command: &String| page.iter().any(|of| of.commands.contains(command));
        let unknown = self.0.keys().filter(|command| !told(command));
        let mut found: Vec<_> = unknown.map(|of| format!("{of} is not on the page")).collect();
        for Section { commands, members } in &page {
            let mut values = Vec::new();
            for command in commands {
                match self.0.get(command) {
                    Some(printed) => values.extend(printed),
                    None => found.push(format!("{command} is on the page, and was not run")),
                }
            }
            found.extend(compare(&commands.join(", "), members, &values));
        }
        found
    }
}

fn compare(section: &str, told: &BTreeMap<String, Member>, values: &[&Value]) -> Vec<String> {
    let is_dump = section == AS_IN_FORMAT;
    let mut seen = BTreeMap::new();
    values.iter().for_each(|value| collect(value, "", &mut seen));
    // What lies on a device decides how deep it goes, and what of it there is.
    seen.retain(|path, _| !is_dump || path.matches(['.', '[']).count() < 2);
    let mut found = Vec::new();
    for (path, kinds) in &seen {
        let Some(member) = told.get(path) else {
            let kinds: Vec<_> = kinds.iter().copied().collect();
            found.push(format!("{section}: | `{path}` | {} | |", kinds.join(" or ")));
            continue;
        };
        let fits = |kind: &&str| *kind == member.kind || *kind == "null" && member.null;
        if let Some(kind) = kinds.iter().find(|kind| !fits(kind)) {
            found.push(format!("{section}: {path} is {kind}, and the page says {member:?}"));
        }
    }
    for (path, member) in told {
        let is_unseen =
            is_dump || UNSEEN.iter().any(|(of, known)| section.starts_with(of) && path == known);
        let kinds = seen.get(path);
        if !is_unseen && !kinds.is_some_and(|kinds| kinds.contains(&*member.kind)) {
            found.push(format!("{section}: {path} was never a {}", member.kind));
        }
        let is_at_top = !path.contains(['[', '.']);
        let lacks = |value: &&&Value| value.get(path).is_none();
        if !member.absent
            && is_at_top
            && let Some(value) = values.iter().find(lacks)
        {
            found.push(format!("{section}: {path} is absent in {value}"));
        }
    }
    found
}

#[test]
fn each_fact_has_one_name_one_type_and_one_unit() {
    let mut types: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for Section { commands, members } in page() {
        let command = commands.join(", ");
        if command == AS_IN_FORMAT {
            continue;
        }
        for (path, Member { kind, meaning, .. }) in members {
            let name = path.rsplit('.').next().unwrap().to_owned();
            for wrong in ["_s", "_ms", "_us", "_secs", "_kib", "_mib", "_percent", "_time"] {
                let is_rate = name.ends_with("_per_s");
                assert!(is_rate || !name.ends_with(wrong), "{command}: the unit of {path}");
            }
            assert!(!meaning.is_empty(), "{command}: what is {path}?");
            types.entry(name.clone()).or_default().insert(kind);
            if name.ends_with("[]") {
                // Its list says what it is.
                continue;
            }
            names.entry(meaning).or_default().insert(name);
        }
    }
    for (name, types) in types {
        assert_eq!(types.len(), 1, "{name} is of several types: {types:?}");
    }
    for (meaning, names) in names {
        assert_eq!(names.len(), 1, "\"{meaning}\" has several names: {names:?}");
    }
}

/// Segments of which a part is dead.
fn churn(scratch: &Scratch) {
    for round in 0..4 {
        for number in 0..40 {
            let path = scratch.inside(&format!("dir/{number}"));
            if round == 0 || number % 2 == 0 {
                fs::write(path, vec![number; 50_000]).unwrap();
            }
        }
        scratch.dendro(["sync", &scratch.mount_point()]).succeeds();
    }
}

/// The past, mounted too.
fn try_the_past(scratch: &Scratch, printed: &mut Printed) {
    let past = &*scratch.text("past");
    fs::create_dir(past).unwrap();
    printed.run(scratch, "mount", &["-o", "snapshot=named", &scratch.image(), past]);
    printed.run(scratch, "info", &[past]);
    printed.run(scratch, "set", &[past]);
    printed.run(scratch, "umount", &[past]);
}

/// Two versions of a file, a branch, and names that are gone.
fn prepare(scratch: &Scratch) {
    fs::create_dir(scratch.inside("dir")).unwrap();
    for (name, len) in [("dir/a", 9000), ("b", 300_000), ("c", 10)] {
        fs::write(scratch.inside(name), vec![7; len]).unwrap();
    }
    rustix::fs::symlink("b", scratch.inside("link")).unwrap();
}

fn try_the_mount(scratch: &Scratch, printed: &mut Printed) {
    let mount = &*scratch.mount_point();
    let log = scratch.text("log");
    printed.run(scratch, "mount", &["--log-file", &log, &scratch.image(), mount]);
    prepare(scratch);
    printed.run(scratch, "sync", &[mount]);
    printed.run(scratch, "info", &[mount]);
    printed.run(scratch, "set", &[mount, "commit=7"]);
    let one = format!("{mount}@named");
    scratch.dendro(["snapshot", "create", &one]).succeeds();
    churn(scratch);
    printed.run(scratch, "segments", &[mount]);
    printed.run(scratch, "resize", &[mount, "+3M"]);
    printed.run(scratch, "clean suspend", &[mount]);
    printed.run(scratch, "clean resume", &[mount]);
    let set = ["--min-clean-segments", "3", "--max-clean-segments", "9", mount];
    printed.run(scratch, "clean set", &set);
    printed.run(scratch, "clean status", &[mount]);
    printed.run(scratch, "clean run", &["-n", "1", mount]);
    printed.run(scratch, "clean coalesce", &[mount]);
    printed.run(scratch, "clean coalesce", &["-n", "--compress", mount]);
    printed.run(scratch, "scrub status", &[mount]);
    printed.run(scratch, "scrub start", &["--wait", mount]);
    // So much that it takes minutes.
    fs::write(scratch.inside("for-scrub"), vec![b'x'; 2 << 20]).unwrap();
    scratch.dendro(["sync", mount]).succeeds();
    printed.run(scratch, "scrub start", &["--rate", "4K", "--memory", "8M", mount]);
    printed.run(scratch, "scrub pause", &[mount]);
    printed.run(scratch, "scrub resume", &[mount]);
    printed.run(scratch, "scrub cancel", &[mount]);
    printed.run(scratch, "stat", &[mount]);
    let mut watch = scratch.command(["stat", "--watch", "0.2", "--count", "4", "--json", mount]);
    let watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    for number in 0..20 {
        fs::write(scratch.inside("w"), vec![number; 100_000]).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // Others clean meanwhile.
    scratch.dendro(["clean", "run", "-n", "1", mount]).succeeds();
    printed.note("stat --watch", &said(watch.wait_with_output().unwrap()).succeeds().out);
    printed.run(scratch, "stat", &[mount]);
    churn(scratch);
    try_cleanerd(scratch, printed);
    try_the_past(scratch, printed);
}

fn try_cleanerd(scratch: &Scratch, printed: &mut Printed) {
    let out = fs::File::create(scratch.path("cleaned")).unwrap();
    let mut command = scratch.command(["-q", "cleanerd", "--json"]);
    command.args(["--min-clean-segments", "100%", "--max-clean-segments", "100%"]);
    let mut cleaner = command.arg(scratch.mount_point()).stdout(out).spawn().unwrap();
    let lines = || fs::read_to_string(scratch.path("cleaned")).unwrap();
    wait_until("a segment was cleaned", || lines().ends_with('\n'));
    // timeout(1) passes it on.
    signal(cleaner.id(), "TERM");
    cleaner.wait().unwrap();
    printed.note("cleanerd", &lines());
}

fn try_versions(scratch: &Scratch, printed: &mut Printed) {
    let mount = &*scratch.mount_point();
    let at = |version: &str| format!("{mount}{version}");
    printed.run(scratch, "snapshot create", &[&at("@one")]);
    printed.run(scratch, "snapshot create", &[mount]);
    fs::remove_file(scratch.inside("dir/a")).unwrap();
    fs::rename(scratch.inside("c"), scratch.inside("d")).unwrap();
    printed.run(scratch, "diff", &[&at("@one")]);
    printed.run(scratch, "diff --stat", &[&at("@one")]);
    printed.run(scratch, "history", &[scratch.inside("dir/a").to_str().unwrap()]);
    scratch.dendro(["snapshot", "create", &at("@without")]).succeeds();
    fs::remove_file(scratch.inside("dir/1")).unwrap();
    printed.run(scratch, "history", &[scratch.inside("dir/1").to_str().unwrap()]);
    printed.run(scratch, "undelete --list", &[scratch.inside("dir").to_str().unwrap()]);
    printed.run(scratch, "undelete", &[scratch.inside("dir/a").to_str().unwrap()]);
    printed.run(scratch, "snapshot rename", &[&at("@one"), "first"]);
    printed.run(scratch, "snapshot hold", &[&at("@first")]);
    printed.run(scratch, "snapshot release", &[&at("@first")]);
    printed.run(scratch, "clone", &[&at("@first"), "draft"]);
    printed.run(scratch, "branch rename", &[&at(":draft"), "work"]);
    printed.run(scratch, "branch list", &[mount]);
    printed.run(scratch, "client create", &["--kind", "application", &at(":disk")]);
    printed.run(scratch, "client set", &["--quota", "1M", &at(":disk")]);
    printed.run(scratch, "client rename", &[&at(":disk"), "vm"]);
    printed.run(scratch, "client list", &[mount]);
    printed.run(scratch, "client delete", &["-n", &at(":vm")]);
    printed.run(scratch, "snapshot list", &[mount]);
    printed.run(scratch, "usage", &[mount]);
    printed.run(scratch, "usage --files", &[mount]);
    printed.run(scratch, "log", &[mount]);
    let other = scratch.text("other");
    printed.run(scratch, "mkfs", &["--size", "64M", "--max-size", "128M", &other]);
    let (full, changes) = (scratch.text("full"), scratch.text("changes"));
    printed.run(scratch, "send", &["-o", &full, &at("@first")]);
    printed.run(scratch, "send", &["--from", "@first", "-o", &changes, &at("@without")]);
    try_streams(scratch, printed, mount, &other, [full, changes]);
    printed.run(scratch, "branch delete", &["-n", &at(":work")]);
    printed.run(scratch, "snapshot delete", &["-n", &at("@first"), ":work"]);
    let tree = scratch.text("tree");
    printed.run(scratch, "fork", &[mount, &tree]);
    fs::write(scratch.path("tree/new"), "x").unwrap();
    printed.run(scratch, "forks", &[mount]);
    printed.run(scratch, "drop", &[&tree]);
    let held = fs::File::open(scratch.inside("d")).unwrap();
    printed.run(scratch, "rollback", &["--force", &at("@first")]);
    drop(held);
    printed.run(scratch, "promote", &["--force", &at(":work")]);
    // What is replaced then is of a branch that is gone, and was made from another.
    fs::write(scratch.inside("new"), "x").unwrap();
    scratch.dendro(["rollback", "--force", &at("@first")]).succeeds();
    printed.run(scratch, "snapshot list", &[mount]);
    if crate::common::is_root() {
        fs::write(scratch.inside("d"), "moved later").unwrap();
        let script = format!("echo 1 > {mount}/e");
        let out = scratch.dendro(["try", "--json", mount, "--", "sh", "-c", &script]).succeeds();
        printed.note("try", &out.out);
        // Others change it meanwhile, whom the private mount does not hide from.
        let outside = scratch.inside("f");
        let script =
            format!("nsenter -t {} -m mv {mount}/d {}", std::process::id(), outside.display());
        let out = scratch.dendro(["try", "--json", mount, "--", "sh", "-c", &script]);
        assert_eq!(out.code, Some(125), "{out:?}");
        printed.note("try", &out.out);
    }
}

fn try_streams(
    scratch: &Scratch,
    printed: &mut Printed,
    mount: &str,
    other: &str,
    streams: [String; 2],
) {
    let cut = scratch.text("cut");
    let bytes = fs::read(&streams[0]).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 1]).unwrap();
    scratch.dendro(["receive", "--resumable", other, &cut]).fails(1, &["--resume"]);
    printed.run(scratch, "info", &[other]);
    printed.run(scratch, "receive --abort", &[other]);
    for stream in &streams {
        printed.run(scratch, "stream verify", &[stream]);
        printed.run(scratch, "stream list", &[stream]);
        printed.run(scratch, "receive", &[other, stream]);
    }
    printed.run(scratch, "stream restore", &[&streams[0], "--to", &scratch.text("restored")]);
    let all = scratch.text("all");
    printed.run(scratch, "send", &["--all", "-o", &all, mount]);
    printed.run(scratch, "stream verify", &[&all]);
    let copy = scratch.text("copy-of-all");
    printed.run(scratch, "mkfs", &["--size", "64M", &copy]);
    printed.run(scratch, "receive", &["--branches", &copy, &all]);
    let standby = scratch.text("standby");
    printed.run(scratch, "mkfs", &["--size", "64M", &standby]);
    for _ in 0..2 {
        printed.run(scratch, "replicate", &["--once", mount, &standby]);
    }
    try_failing_replication(scratch, printed, mount);
}

/// A standby that is not there, until it is given up.
fn try_failing_replication(scratch: &Scratch, printed: &mut Printed, mount: &str) {
    let out = fs::File::create(scratch.path("failed")).unwrap();
    let mut command = scratch.command(["-q", "replicate", "--json", mount]);
    let mut replicating = command.arg(scratch.path("nowhere")).stdout(out).spawn().unwrap();
    let lines = || fs::read_to_string(scratch.path("failed")).unwrap();
    wait_until("it has failed", || lines().ends_with('\n'));
    // timeout(1) passes it on.
    signal(replicating.id(), "TERM");
    replicating.wait().unwrap();
    printed.note("replicate", &lines());
}

/// Reads all files that can be read, those of snapshots too.
fn read_all(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => read_all(&entry.path()),
            kind if kind.is_file() => drop(fs::read(entry.path())),
            _ => {}
        }
    }
}

/// Has the damaged page met.
fn try_damage(scratch: &Scratch, printed: &mut Printed) {
    printed.run(scratch, "damage", &[&scratch.image()]);
    scratch.mount();
    let mount = &*scratch.mount_point();
    read_all(Path::new(mount));
    wait_until("the damage is told", || {
        let told = scratch.dendro(["damage", "--json", mount]).succeeds().out;
        let told: Value = serde_json::from_str(&told).unwrap();
        told["place_count"] != 0
    });
    printed.run(scratch, "damage", &[mount]);
    printed.run(scratch, "info", &[mount]);
    let found = scratch.dendro(["check", "--data", "--json", mount]);
    assert_eq!(found.code, Some(4), "{found:?}");
    printed.note("check", &found.out);
    printed.run(scratch, "stat", &[mount]);
    let found = scratch.dendro(["scrub", "--wait", "--json", mount]);
    assert_eq!(found.code, Some(4), "{found:?}");
    printed.note("scrub start", &found.out);
    printed.run(scratch, "damage", &["--clear", mount]);
    scratch.umount();
}

/// A volume on two devices, which moves to a third.
fn try_devices(scratch: &Scratch, printed: &mut Printed) {
    let [one, two, three] = ["one", "two", "three"].map(|name| scratch.text(name));
    let mount = scratch.text("mirrored");
    fs::create_dir(&mount).unwrap();
    printed.run(scratch, "mkfs", &["--size", "16M", "--copies", "2", &one, &two]);
    scratch.dendro(["mount", &one, &mount]).succeeds();
    printed.run(scratch, "device offline", &[&mount, &two]);
    printed.run(scratch, "device list", &[&mount]);
    printed.run(scratch, "device add", &[&mount, &two]);
    printed.run(scratch, "info", &[&mount]);
    printed.run(scratch, "device remove", &[&mount, &one]);
    printed.run(scratch, "migrate", &[&mount, &three]);
    printed.run(scratch, "device replace", &["--force", &mount, &three, &one]);
    scratch.dendro(["umount", &mount]).succeeds();
    printed.run(scratch, "device list", &[&one]);
    printed.run(scratch, "device forget", &[&one]);
    let arguments = ["-f", "--size", "16M", "--copies", "1", "--fast", &two, &one];
    printed.run(scratch, "mkfs", &arguments);
    printed.run(scratch, "device set", &["--slow", &one, &two]);
    // One that is alone.
    printed.run(scratch, "device list", &[&scratch.image()]);
}

/// Block devices, on a volume of their own.
fn try_blocks(scratch: &Scratch, printed: &mut Printed) {
    let volume = scratch.text("blocks");
    scratch.dendro(["mkfs", "--size", "16M", &volume]).succeeds();
    let device = format!("{volume}/disk");
    printed.run(scratch, "block create", &[&device, "1G"]);
    printed.run(scratch, "block resize", &[&device, "2G"]);
    scratch.dendro(["snapshot", "create", &format!("{volume}:disk@kept")]).succeeds();
    printed.run(scratch, "block list", &[&volume]);
    let socket = scratch.text("nbd");
    for more in [&["--socket", &socket][..], &["--read-only", "--listen", "localhost:0"]] {
        let out = fs::File::create(scratch.path("serving")).unwrap();
        let mut command = scratch.command(["nbd", "--json", &volume]);
        let mut server = command.args(more).stdout(out).spawn().unwrap();
        let said = || fs::read_to_string(scratch.path("serving")).unwrap();
        wait_until("it is served", || said().ends_with("}\n"));
        let serving: Value = serde_json::from_str(&said()).unwrap();
        match serving["uri"].as_str().and_then(|uri| uri.strip_prefix("nbd://")) {
            None => list_connected(scratch, printed, UnixStream::connect(&socket).unwrap()),
            Some(address) => list_connected(scratch, printed, TcpStream::connect(address).unwrap()),
        }
        printed.run(scratch, "info", &[&volume]);
        printed.run(scratch, "stat", &[&volume]);
        signal(server.id(), "TERM");
        server.wait().unwrap();
        printed.note("nbd", &said());
    }
    printed.run(scratch, "block delete", &["--snapshots", &device]);
}

/// Lists the block devices while a client is connected to one.
fn list_connected(scratch: &Scratch, printed: &mut Printed, stream: impl Read + Write) {
    let mut client = Client::connect(stream).unwrap();
    assert_eq!(client.go("disk").unwrap().0, 1);
    printed.run(scratch, "block list", &[&scratch.text("blocks")]);
}

fn try_offline(scratch: &Scratch, printed: &mut Printed) {
    let image = &*scratch.image();
    printed.run(scratch, "info", &[image]);
    printed.run(scratch, "check", &["--data", image]);
    printed.run(scratch, "check -p", &[image]);
    crate::common::harm_a_count(image);
    for (option, code) in [("-n", 4), ("-y", 1)] {
        let checked = scratch.dendro(["check", option, "--json", image]);
        assert_eq!(checked.code, Some(code), "{checked:?}");
        printed.note("check", &checked.out);
    }
    for what in ["superblocks", "checkpoint", "segments", "partials", "records", "nodes", "map"] {
        printed.run(scratch, "dump", &[image, what]);
    }
    printed.run(scratch, "dump", &[image]);
    let shown = scratch.dendro(["dump", "--json", image, "--path", "/b"]).succeeds().out;
    printed.note("dump", &shown);
    let lines = shown.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let extent = lines.filter_map(|line| line["extent"]["offset"].as_u64()).next().unwrap();
    printed.run(scratch, "dump", &[image, "--offset", &extent.to_string()]);
    printed.run(scratch, "ls", &["-R", image]);
    printed.run(scratch, "rebuild", &[image]);
    let to = scratch.text("copied");
    fs::create_dir(&to).unwrap();
    printed.run(scratch, "rebuild", &["--to", &to, image]);
    // What is there already is a problem.
    let again = scratch.dendro(["rebuild", "--json", "--to", &to, image]);
    printed.note("rebuild", &again.out);
    printed.run(scratch, "image", &["--metadata", "--data", image, &scratch.text("metadata.img")]);
    // A page of a file, and of a map, damaged.
    let mut bytes = fs::read(image).unwrap();
    let at = bytes.windows(100).position(|window| window == [7; 100]).unwrap();
    let file = fs::File::options().write(true).open(image).unwrap();
    file.write_all_at(b"A", at as u64).unwrap();
    let damaged = scratch.dendro(["check", "--data", "--json", image]);
    assert_eq!(damaged.code, Some(4), "{damaged:?}");
    printed.note("check", &damaged.out);
    fs::create_dir(scratch.path("copies")).unwrap();
    let copies = scratch.text("copies");
    let copied = scratch.dendro(["cp", "-rk", "--json", image, "/", &copies]).out;
    let copied = printed.note("cp", &copied);
    let lost = copied["problems"][0]["path"].as_str().unwrap();
    printed.note("cat", &scratch.dendro(["cat", "-k", "--json", image, lost, "/b"]).out);
    try_damage(scratch, printed);
    bytes = fs::read(image).unwrap();
    let nodes = scratch.dendro(["dump", "--json", image, "nodes"]).succeeds().out;
    let root: Value = serde_json::from_str(nodes.lines().next().unwrap()).unwrap();
    let at = root["node"]["place"]["offset"].as_u64().unwrap();
    bytes[at as usize + 100] ^= 1;
    file.write_all_at(&bytes[at as usize + 100..][..1], at + 100).unwrap();
    printed.note("dump", &scratch.dendro(["dump", "--json", image, "map"]).out);
    let damaged = scratch.dendro(["check", "--json", image]);
    printed.note("check", &damaged.out);
}

#[test]
fn what_is_printed_is_what_the_page_says() {
    if skips_mounts() || !crate::common::is_root() {
        return;
    }
    let scratch = Scratch::new();
    let mut printed = Printed::default();
    let made = ["-L", "home", "--segment-size", "1M", "--size", "64M", &scratch.image()];
    printed.run(&scratch, "mkfs", &made);
    try_the_mount(&scratch, &mut printed);
    try_versions(&scratch, &mut printed);
    printed.run(&scratch, "umount", &[&scratch.mount_point()]);
    try_devices(&scratch, &mut printed);
    try_blocks(&scratch, &mut printed);
    try_offline(&scratch, &mut printed);
    let differences = printed.differences();
    assert!(differences.is_empty(), "the page and what is printed:\n{}", differences.join("\n"));
}
