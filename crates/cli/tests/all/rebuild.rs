//! `dendro rebuild`: volumes of which superblocks or parts of the map are destroyed.

use std::time::Duration;
use std::{fs, thread};

use crate::common::{Scratch, harm, skips_mounts};
use dendro_disk::{Aru, Error, Lid, ListHints, LogicalDisk, View};
use dendro_fs::Ino;
use dendro_fs::format::DIR_BASE;

const MIB: usize = 1 << 20;

/// Destroys everything in an image that begins with these bytes at a multiple of the page.
fn destroy(image: &str, magic: &[u8]) -> usize {
    let mut bytes = fs::read(image).unwrap();
    let mut count = 0;
    for page in bytes.chunks_mut(4096).filter(|page| page.starts_with(magic)) {
        page.fill(0);
        count += 1;
    }
    fs::write(image, bytes).unwrap();
    count
}

#[test]
fn a_volume_without_superblocks_is_found_again_with_its_files() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    let has_files = !skips_mounts();
    if has_files {
        scratch.mount();
        fs::create_dir(scratch.inside("directory")).unwrap();
        fs::write(scratch.inside("directory/file"), vec![7; MIB]).unwrap();
        scratch.umount();
    }
    scratch.dendro(["rebuild", &image]).succeeds();
    assert!(destroy(&image, b"dendrofs") > 0);
    scratch.dendro(["info", &image]).fails(1, &["not a dendrofs volume"]);
    let before = fs::read(&image).unwrap();
    let told = scratch.dendro(["rebuild", "-n", &image]);
    assert_eq!(told.code, Some(4), "{told:?}");
    let to = scratch.text("copy.img");
    let copied = scratch.dendro(["rebuild", "--to", &to, &image]);
    assert_eq!(copied.code, Some(1), "{copied:?}");
    assert!(fs::read(&image).unwrap() == before, "the volume itself is not changed");
    scratch.dendro(["rebuild", "--to", &to, &image]).fails(8, &["exists"]);
    scratch.dendro(["check", "--data", &to]).succeeds();
    let rebuilt = scratch.dendro(["rebuild", &image]);
    assert_eq!(rebuilt.code, Some(1), "{rebuilt:?}");
    assert!(rebuilt.out.contains("nothing is lost"), "{rebuilt:?}");
    let features = &scratch.info(&image)["features"]["incompatible"];
    let has = |name: &str| features.as_array().unwrap().iter().any(|feature| feature == name);
    assert!(has("versions") && !has("set") && !has("spread"), "{features}");
    scratch.dendro(["check", "--data", &image]).succeeds();
    if has_files {
        scratch.mount();
        assert_eq!(fs::read(scratch.inside("directory/file")).unwrap(), vec![7; MIB]);
        scratch.umount();
    }
}

#[test]
fn a_volume_whose_beginning_is_lost_is_found_by_the_backup_at_its_end() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    let has_files = !skips_mounts();
    if has_files {
        scratch.mount();
        fs::write(scratch.inside("file"), vec![7; MIB]).unwrap();
        scratch.umount();
    }
    let mut bytes = fs::read(&image).unwrap();
    bytes[..2 * MIB].fill(0);
    fs::write(&image, &bytes).unwrap();
    let mount = ["mount", &image, &scratch.mount_point()];
    scratch.dendro(mount).fails(32, &["the backup at its end", "dendro rebuild", "-o ro"]);
    assert!(fs::read(&image).unwrap() == bytes, "nothing is written");
    let info = scratch.dendro(["info", &image]);
    assert!(info.code == Some(0) && info.out.contains("the backup at its end"), "{info:?}");
    let checked = scratch.dendro(["check", &image]);
    assert_eq!(checked.code, Some(4), "{checked:?}");
    if has_files {
        scratch.dendro(["ls", &image, "/"]).succeeds();
    }
    let rebuilt = scratch.dendro(["rebuild", &image]);
    assert!(rebuilt.code == Some(1) && rebuilt.out.contains("nothing is lost"), "{rebuilt:?}");
    scratch.dendro(["check", "--data", &image]).succeeds();
    if has_files {
        scratch.mount();
        assert_eq!(fs::read(scratch.inside("file")).unwrap(), vec![7; MIB]);
        scratch.umount();
    }
}

#[test]
fn files_are_copied_out_of_a_volume_that_is_left_as_it_is() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.mount();
    fs::create_dir(scratch.inside("directory")).unwrap();
    fs::write(scratch.inside("directory/file"), vec![7; MIB]).unwrap();
    scratch.dendro(["snapshot", "create", &format!("{}@before", scratch.mount_point())]).succeeds();
    fs::write(scratch.inside("directory/file"), "new").unwrap();
    // On a volume that is full a rebuild has the engine's reserves.
    let mut number = 0;
    while fs::write(scratch.inside(&format!("filler{number}")), vec![1; MIB]).is_ok() {
        number += 1;
    }
    scratch.umount();
    let nodes = scratch.dendro(["dump", "--json", &image, "nodes"]).succeeds().out;
    let mut bytes = fs::read(&image).unwrap();
    for line in nodes.lines() {
        let node: serde_json::Value = serde_json::from_str(line).unwrap();
        let Some(at) = node["node"]["place"]["offset"].as_u64() else { continue };
        bytes[at as usize..][..64].fill(0xa5);
    }
    bytes[..2 * MIB].fill(0);
    fs::write(&image, &bytes).unwrap();
    for (version, expected) in [("", b"new".to_vec()), ("@before", vec![7; MIB])] {
        let to = scratch.text(&format!("to{version}"));
        fs::create_dir(&to).unwrap();
        let target = format!("{image}{version}");
        let done = scratch.dendro(["rebuild", "--to", &to, &target]);
        assert!(done.out.contains("nothing was written to it"), "{done:?}");
        assert!(done.out.contains("copied"), "{done:?}");
        assert_eq!(fs::read(format!("{to}/directory/file")).unwrap(), expected, "{done:?}");
        assert!(fs::read(&image).unwrap() == bytes, "the volume is not changed");
        // What is there is not overwritten.
        let again = scratch.dendro(["rebuild", "--json", "--to", &to, &target]);
        assert_eq!(again.code, Some(4), "{again:?}");
        let again: serde_json::Value = serde_json::from_str(&again.out).unwrap();
        assert!(again["copied"]["problem_count"].as_u64() > Some(0), "{again}");
    }
}

/// Fills a volume with records, so that its map leaves no room for another one, and destroys all
/// checkpoints.
fn fill_with_map_and_lose_it(image: &str) {
    harm(image, |disk, aru| {
        let list = disk.allocate_list().unwrap();
        aru.create_list(list, ListHints::default());
        disk.commit(std::mem::replace(aru, Aru::new(View::HEAD))).unwrap();
        for index in 0.. {
            let mut aru = Aru::new(View::HEAD);
            aru.put_record(list, index, vec![index as u8; 900]);
            match disk.commit(aru) {
                Ok(_) => {}
                Err(Error::NoSpace { .. }) => return,
                Err(error) => panic!("{error}"),
            }
        }
    });
    let mut bytes = fs::read(image).unwrap();
    let checkpoints = bytes.chunks_mut(64).filter(|grain| grain.starts_with(b"DCP1"));
    assert!(checkpoints.map(|grain| grain.fill(0)).count() > 0);
    fs::write(image, bytes).unwrap();
}

#[test]
fn a_full_volume_is_rebuilt_in_a_longer_copy_or_in_memory() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.mount();
    fs::write(scratch.inside("file"), vec![7; MIB]).unwrap();
    scratch.umount();
    fill_with_map_and_lose_it(&image);
    let bytes = fs::read(&image).unwrap();
    let tried = scratch.dendro(["rebuild", "-n", &image]);
    assert!(tried.code == Some(4) && tried.out.contains("without -n: too few"), "{tried:?}");
    let copy = scratch.text("copy.img");
    for (options, lacks_room) in [(&[][..], true), (&["--to", &copy], false)] {
        let tried =
            scratch.dendro(["rebuild", "-n", "--json"].iter().chain(options).chain(&[&*image]));
        let tried: serde_json::Value = serde_json::from_str(&tried.out).unwrap();
        assert_eq!(tried["lacks_room"].as_bool(), Some(lacks_room), "{tried}");
        assert_eq!(tried["grown_bytes"].as_u64() > Some(0), !lacks_room, "{tried}");
    }
    assert!(fs::read(&image).unwrap() == bytes && !fs::exists(&copy).unwrap());
    scratch.dendro(["rebuild", &image]).fails(8, &["too few segments are free", "--to"]);
    let to = scratch.text("to");
    fs::create_dir(&to).unwrap();
    let done = scratch.dendro(["rebuild", "--to", &to, &image]);
    assert!(done.out.contains("copied") && !done.err.contains("may be missing"), "{}", done.err);
    assert_eq!(fs::read(format!("{to}/file")).unwrap(), vec![7; MIB]);
    let done = scratch.dendro(["rebuild", "--json", "--to", &copy, &image]);
    let done: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    let grown_bytes = done["grown_bytes"].as_u64().unwrap();
    let len_bytes = fs::metadata(&copy).unwrap().len();
    assert!(grown_bytes > 0 && len_bytes == bytes.len() as u64 + grown_bytes, "{done}");
    scratch.dendro(["mount", &copy, &scratch.mount_point()]).succeeds();
    assert_eq!(fs::read(scratch.inside("file")).unwrap(), vec![7; MIB]);
    fs::remove_file(scratch.inside("file")).unwrap();
    scratch.umount();
}

#[test]
fn files_that_lost_their_names_are_copied_below_lost_found() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.mount();
    fs::create_dir(scratch.inside("directory")).unwrap();
    fs::write(scratch.inside("directory/file"), vec![7; MIB]).unwrap();
    scratch.umount();
    harm(&image, |disk, aru| {
        let root = Lid(Ino::ROOT.0);
        for (index, _) in disk.records(aru.view(), root, DIR_BASE, 100).unwrap() {
            aru.delete_record(root, index);
        }
    });
    scratch.dendro(["snapshot", "create", &format!("{image}@nameless")]).succeeds();
    let before = fs::read(&image).unwrap();
    for version in ["", "@nameless"] {
        let to = scratch.text(&format!("to{version}"));
        fs::create_dir(&to).unwrap();
        let target = format!("{image}{version}");
        let done = scratch.dendro(["rebuild", "--to", &to, &target]);
        assert!(done.out.contains("1 file, 2 directories"), "{done:?}");
        let found: Vec<_> = fs::read_dir(format!("{to}/lost+found")).unwrap().collect();
        assert_eq!(found.len(), 1, "{found:?}");
        let directory = found[0].as_ref().unwrap().path();
        assert_eq!(fs::read(directory.join("file")).unwrap(), vec![7; MIB]);
        assert!(fs::read(&image).unwrap() == before, "the volume is not changed");
    }
}

#[test]
fn what_holds_nothing_of_a_volume_is_refused() {
    let scratch = Scratch::new();
    fs::write(scratch.image(), vec![0; 16 * MIB]).unwrap();
    scratch.dendro(["rebuild", &scratch.image()]).fails(8, &["there is no dendrofs volume here"]);
}

#[test]
fn a_device_that_has_lost_its_end_is_rebuilt_with_what_is_left() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.mount();
    let data = |number: u8| vec![number + 1; MIB];
    let path = |number: u8| scratch.inside(&format!("file{number}"));
    (0..40).for_each(|number| fs::write(path(number), data(number)).unwrap());
    // The new map needs room.
    (0..8).for_each(|number| fs::remove_file(path(number)).unwrap());
    scratch.umount();
    let bytes = fs::read(&image).unwrap();
    fs::write(&image, &bytes[..30 * MIB + 4096]).unwrap();
    scratch
        .dendro(["mount", &image, &scratch.mount_point()])
        .fails(32, &["it was cut off", "dendro rebuild"]);
    let copy = scratch.text("copy.img");
    for (arguments, rebuilt) in [(&["--to", &copy][..], &copy), (&[], &image)] {
        let done = scratch.dendro(["rebuild", "--json"].iter().chain(arguments).chain(&[&*image]));
        assert_eq!(done.code, Some(4), "{done:?}");
        let told: serde_json::Value = serde_json::from_str(&done.out).unwrap();
        assert_eq!(told["lost_end_bytes"].as_u64(), Some(33 << 20), "{told}");
        let affected = told["affected_files"].as_array().unwrap();
        let is_told = |number: u8| {
            let path = format!("/file{number}");
            affected.iter().any(|of| of["paths"].as_array().unwrap().contains(&path.clone().into()))
        };
        scratch.dendro(["check", rebuilt]).succeeds();
        scratch.dendro(["mount", rebuilt, &scratch.mount_point()]).succeeds();
        let mut whole = 0;
        for number in 8..40 {
            match fs::read(path(number)) {
                Ok(found) => {
                    assert!(found == data(number), "file {number} has other data");
                    whole += 1;
                }
                Err(_) => assert!(is_told(number), "file {number} is lost: {told}"),
            }
        }
        assert!((10..35).contains(&whole), "{whole} files are whole");
        // What is left fills the shorter volume. There is room a moment after the removals: the
        // kernel says later that it has forgotten the files.
        (8..20).for_each(|number| fs::remove_file(path(number)).unwrap());
        let is_written = || fs::write(scratch.inside("new"), data(99)).is_ok();
        let mut tries = 0;
        while !is_written() {
            tries += 1;
            assert!(tries < 500, "it stays full");
            thread::sleep(Duration::from_millis(20));
        }
        scratch.umount();
        scratch.dendro(["check", rebuilt]).succeeds();
    }
    scratch.dendro(["rebuild", &image]).succeeds();
}
