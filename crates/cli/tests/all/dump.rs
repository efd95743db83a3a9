//! `dendro dump`: every kind of it, on sound, damaged and mounted volumes.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::process::Stdio;

use crate::common::{Said, Scratch, skips_mounts};
use serde_json::Value;

const ALL: [&str; 7] =
    ["superblocks", "checkpoint", "segments", "partials", "records", "nodes", "map"];

/// The objects of a dump in JSON: their kinds and what they hold.
fn objects(said: &Said) -> Vec<(String, Value)> {
    let object = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap();
        let mut members: Vec<_> = value.as_object().unwrap().clone().into_iter().collect();
        members.retain(|(name, _)| name != "schema");
        assert_eq!(members.len(), 1, "{line}");
        members.pop().unwrap()
    };
    said.out.lines().map(object).collect()
}

fn json(scratch: &Scratch, arguments: &[&str]) -> Vec<(String, Value)> {
    let image = scratch.image();
    let all = ["dump", "--json", &image].into_iter().chain(arguments.iter().copied());
    objects(&scratch.dendro(all).succeeds())
}

fn of_kind<'a>(objects: &'a [(String, Value)], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|(name, _)| name == kind).map(|(_, value)| value).collect()
}

#[test]
fn a_dump_begins_with_superblock_checkpoint_and_log() {
    let scratch = Scratch::with_volume();
    let objects = json(&scratch, &[]);
    let kinds: Vec<_> = objects.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["superblock", "checkpoint", "log"]);
    let info = scratch.info(&scratch.image());
    assert_eq!(objects[0].1["uuid"], info["uuid"]);
    assert_eq!(objects[0].1["seq"], info["superblock"]["sequence"]);
    assert_eq!(objects[0].1["clean"], true);
    assert_eq!(objects[1].1["seq"], info["checkpoint"]["sequence"]);
    assert_eq!(objects[1].1["live_bytes"], info["space"]["live_bytes"]);
    assert_eq!(objects[2].1["replayed_count"], 0);
    let text = scratch.dendro(["dump", &scratch.image()]).succeeds().out;
    assert!(text.contains(info["uuid"].as_str().unwrap()) && text.contains("state       clean"));
}

#[test]
fn every_structure_of_a_volume_can_be_shown() {
    let scratch = Scratch::with_volume();
    scratch.dendro(["snapshot", "create", &format!("{}@one", scratch.image())]).succeeds();
    for what in ALL {
        let text = scratch.dendro(["dump", &scratch.image(), what]).succeeds();
        assert!(!text.out.is_empty() && text.err.is_empty(), "{what}: {text:?}");
        assert!(!json(&scratch, &[what]).is_empty());
    }
    let superblocks = json(&scratch, &["superblocks"]);
    let seqs: Vec<_> = superblocks.iter().map(|(_, at)| at["seq"].as_u64().unwrap()).collect();
    assert!(seqs.len() > 1 && seqs.is_sorted(), "{seqs:?}");

    // The records say which nodes there are; the map is made of some of them.
    let records = json(&scratch, &["records"]);
    let written: BTreeSet<_> = of_kind(&records, "record")
        .iter()
        .filter(|record| record["kind"] == "node")
        .map(|record| record["place"]["offset"].as_u64().unwrap())
        .collect();
    let nodes = json(&scratch, &["nodes"]);
    for node in of_kind(&nodes, "node") {
        assert!(written.contains(&node["place"]["offset"].as_u64().unwrap()), "{node}");
    }
    // A new volume has its root directory, whose list is 1.
    let entries = json(&scratch, &["map", "--list", "1"]);
    assert!(!entries.is_empty() && entries.iter().all(|(_, entry)| entry["key"]["list"] == 1));
    assert!(json(&scratch, &["map"]).len() > entries.len());
    assert_eq!(json(&scratch, &["map", "--list", "12345"]), []);
}

#[test]
fn live_bytes_of_the_segments_add_up() {
    let scratch = Scratch::with_volume();
    let objects = json(&scratch, &["segments"]);
    let total = of_kind(&objects, "total")[0]["live_bytes"].as_u64().unwrap();
    let segments = of_kind(&objects, "segment");
    let sum: u64 = segments.iter().map(|row| row["live_bytes"].as_u64().unwrap()).sum();
    assert_eq!(sum, total);
    assert_eq!(total, scratch.info(&scratch.image())["space"]["live_bytes"]);
    let numbers: Vec<_> =
        segments.iter().map(|row| row["segment"].as_u64().unwrap().to_string()).collect();
    let one = json(&scratch, &["segments", "--segment", &numbers[0]]);
    assert_eq!(of_kind(&one, "segment"), [segments[0]]);
    assert_eq!(of_kind(&one, "end").len(), 1);
    let partials = json(&scratch, &["partials", "--segment", &numbers[0]]);
    assert_eq!(of_kind(&one, "partial"), of_kind(&partials, "partial"));
}

#[test]
fn what_makes_no_sense_is_a_usage_error() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.dendro(["dump", &image, "everything"]).fails(2, &["everything"]);
    scratch.dendro(["dump", &image, "map", "--segment", "3"]).fails(2, &["--segment goes with"]);
    scratch.dendro(["dump", &image, "--log"]).fails(2, &["--log goes with"]);
    scratch.dendro(["dump", &image, "nodes", "--list", "3"]).fails(2, &["--list goes with"]);
    scratch
        .dendro(["dump", &image, "partials", "--segment", "1"])
        .fails(2, &[&image, "2 to 62", "not 1"]);
}

#[test]
fn what_is_no_volume_is_not_dumped() {
    let scratch = Scratch::new();
    let zeros = scratch.text("zeros");
    fs::write(&zeros, vec![0; 4 << 20]).unwrap();
    scratch.dendro(["dump", &zeros]).fails(1, &[&zeros, "no dendrofs volume"]);
    let missing = scratch.text("missing");
    scratch.dendro(["dump", &missing]).fails(1, &[&missing, "No such file"]);
    scratch.dendro(["dump", "/proc"]).fails(1, &["/proc", "neither"]);
}

#[test]
fn damage_is_told_and_the_rest_is_shown() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    let mut bytes = fs::read(&image).unwrap();
    let nodes = json(&scratch, &["nodes"]);
    let root = nodes[0].1["place"]["offset"].as_u64().unwrap() as usize;
    bytes[root + 100] ^= 1;
    fs::write(&image, &bytes).unwrap();
    let at = format!("byte {root}");
    for what in ["map", "nodes", "segments"] {
        scratch.dendro(["dump", &image, what]).fails(1, &["map node", &at, "checksum"]);
    }
    let said = scratch.dendro(["dump", "--json", &image, "map"]).fails(1, &[&image, "damaged"]);
    assert_eq!(of_kind(&objects(&said), "problem").len(), 1);
    for what in ["superblocks", "checkpoint", "partials", "records"] {
        scratch.dendro(["dump", &image, what]).succeeds();
    }
    scratch.dendro(["dump", &image]).succeeds();

    // Every byte flipped once in a while: an answer, never a panic.
    let whole = bytes;
    for step in 0..2 * ALL.len() {
        let mut bytes = whole.clone();
        for at in (step * 97..bytes.len().min(6 << 20)).step_by(4096 + 61) {
            bytes[at] ^= 0x55;
        }
        fs::write(&image, &bytes).unwrap();
        let said = scratch.dendro(["dump", &image, ALL[step % ALL.len()]]);
        assert!(matches!(said.code, Some(0 | 1)) && !said.err.contains("panicked"), "{said:?}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let scratch = Scratch::with_volume();
    let mut command = scratch.command(["dump", &scratch.image(), "records"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(said, "");
}

#[test]
fn a_mounted_volume_can_be_dumped_and_goes_on() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    fs::write(scratch.inside("file"), [7; 10_000]).unwrap();
    scratch.dendro(["sync", &scratch.mount_point()]).succeeds();
    let mount_point = scratch.mount_point();
    let image = scratch.image();
    for target in [&image, &mount_point] {
        let said = scratch.dendro(["dump", target, "records", "--log", "--json"]).succeeds();
        assert!(said.err.contains("is mounted on"), "{said:?}");
        let objects = objects(&said);
        let written = of_kind(&objects, "record").into_iter().any(|record| {
            record["kind"] == "write_run" && record["crc32cs"].as_array().unwrap().len() == 2
        });
        assert!(written, "{said:?}");
        assert!(of_kind(&objects, "log")[0]["replayed_count"].as_u64().unwrap() > 0);
    }
    let quiet = scratch.dendro(["dump", "-q", &image]).succeeds();
    assert!(quiet.err.is_empty() && quiet.out.contains("in use"), "{quiet:?}");
    fs::write(scratch.inside("file"), "goes on").unwrap();
    scratch.umount();
    assert_eq!(scratch.info(&image)["checkpoint"]["clean"], true);
}

#[test]
fn a_crashed_volume_shows_the_log_that_the_next_mount_will_roll_forward() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    fs::write(scratch.inside("file"), [7; 10_000]).unwrap();
    scratch.dendro(["sync", &scratch.mount_point()]).succeeds();
    scratch.kill_daemon();
    let image = scratch.image();
    let objects = json(&scratch, &[]);
    let log = of_kind(&objects, "log")[0].clone();
    assert!(log["replayed_count"].as_u64().unwrap() > 0 && log["lost"].is_null(), "{log}");
    let info = scratch.info(&image);
    assert_eq!(info["checkpoint"]["log_bytes"], log["replayed_bytes"]);
    assert_eq!(info["checkpoint"]["last_commit"], log["commit_seq"]);
    assert_eq!(info["checkpoint"]["sequence"], objects[1].1["seq"]);
}

#[test]
fn a_files_place_leads_to_its_bytes_and_back_to_the_file() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    fs::create_dir(scratch.inside("dir")).unwrap();
    let content: Vec<u8> = (0..100_000_u32).map(|at| (at / 4096) as u8 + 1).collect();
    fs::write(scratch.inside("dir/file"), &content).unwrap();
    scratch.dendro(["snapshot", "create", &format!("{}@one", scratch.mount_point())]).succeeds();
    fs::remove_file(scratch.inside("dir/file")).unwrap();
    scratch.umount();
    let image = scratch.image();
    let bytes = fs::read(&image).unwrap();
    scratch
        .dendro(["dump", &image, "--path", "/dir/file"])
        .fails(1, &["/dir/file", "no such file"]);
    let then = format!("{image}@one");
    let objects =
        objects(&scratch.dendro(["dump", "--json", &then, "--path", "dir/file"]).succeeds());
    let list = of_kind(&objects, "file")[0]["list"].as_u64().unwrap();
    assert!(!of_kind(&objects, "node").is_empty());
    assert!(of_kind(&objects, "entry").iter().all(|entry| entry["key"]["list"] == list));
    let extents = of_kind(&objects, "extent");
    let mut found = vec![0; content.len()];
    for extent in &extents {
        let number = |name: &str| extent[name].as_u64().unwrap() as usize;
        let (from, len) = (number("offset"), number("len_bytes"));
        assert_eq!(from, number("segment") * (1 << 20) + number("segment_offset_bytes"));
        found[number("first_page") * 4096..][..len].copy_from_slice(&bytes[from..from + len]);
    }
    assert!(found == content);

    let place = (extents[0]["offset"].as_u64().unwrap() + 5000).to_string();
    let objects = json(&scratch, &["--offset", &place]);
    assert_eq!(of_kind(&objects, "place")[0]["part"], "payload of a partial segment");
    assert_eq!(of_kind(&objects, "record")[0]["list"], list);
    let owner = of_kind(&objects, "owner")[0];
    assert_eq!((&owner["list"], &owner["page"]), (&list.into(), &1.into()), "{owner}");
    assert_eq!((&owner["version"], &owner["paths"][0]), (&"@one".into(), &"/dir/file".into()));
    let text = scratch.dendro(["dump", &image, "--offset", &place]).succeeds().out;
    assert!(text.contains("@one/dir/file"), "{text}");
}

#[test]
fn every_kind_of_place_is_told() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    let part = |at: u64| {
        let objects = json(&scratch, &["--offset", &at.to_string()]);
        of_kind(&objects, "place")[0]["part"].as_str().unwrap().to_owned()
    };
    assert_eq!(part(100), "superblock");
    assert_eq!(part((1 << 20) + 4096 * 100), "slot without a superblock");
    assert_eq!(part(40 << 20), "behind the last partial segment");
    let partials = json(&scratch, &["partials"]);
    let partial = of_kind(&partials, "partial")[0];
    let number = |name: &str| partial[name].as_u64().unwrap();
    let start = (number("segment") << 20) + number("offset_bytes");
    assert_eq!(part(start + 3), "header of a partial segment");
    let records = start + number("records_offset_bytes");
    assert_eq!(part(records + 1), "records of a partial segment");
    let nodes = json(&scratch, &["nodes"]);
    let node = of_kind(&nodes, "node")[0]["place"]["offset"].as_u64().unwrap();
    let objects = json(&scratch, &["--offset", &(node + 10).to_string()]);
    assert_eq!(of_kind(&objects, "node")[0]["place"]["offset"], node);
    scratch.dendro(["dump", &image, "--offset", "64M"]).fails(2, &[&image, "ends at byte"]);
    scratch.dendro(["dump", &image, "map", "--offset", "1"]).fails(2, &["--offset"]);
}

#[test]
fn a_file_that_is_in_the_log_alone_is_found_there() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    fs::write(scratch.inside("file"), [7; 10_000]).unwrap();
    scratch.dendro(["sync", &scratch.mount_point()]).succeeds();
    scratch.kill_daemon();
    let objects = json(&scratch, &["--path", "/file"]);
    let list = &of_kind(&objects, "file")[0]["list"];
    let records = of_kind(&objects, "record");
    assert!(records.iter().any(|record| record["kind"] == "write_run"), "{records:?}");
    assert!(records.iter().all(|record| record["list"] == *list), "{records:?}");
}
