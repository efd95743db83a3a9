//! The history of a volume and where its space goes, in characters and drawn.

use std::fs;

use crate::common::{Scratch, skips_mounts};

/// A branch, and snapshots of which most have no name.
fn with_history(scratch: &Scratch) -> String {
    let mount = scratch.mount_point();
    let at = |version: &str| format!("{mount}{version}");
    let snapshot = |version: &str| {
        scratch.dendro(["snapshot", "create", "-q", &at(version)]).succeeds();
    };
    fs::write(scratch.inside("file"), vec![1; 300_000]).unwrap();
    snapshot("@first");
    for _ in 0..5 {
        snapshot("");
    }
    snapshot("@base");
    scratch.dendro(["clone", &at("@base"), "work"]).succeeds();
    fs::write(scratch.inside("file"), vec![2; 300_000]).unwrap();
    snapshot("@last");
    fs::remove_file(scratch.inside("file")).unwrap();
    scratch.dendro(["sync", &mount]).succeeds();
    mount
}

#[test]
fn the_history_is_a_graph() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = with_history(&scratch);
    let text = scratch.dendro(["log", "--graph", &mount]).succeeds().out;
    let starts: Vec<String> = text
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
        .collect();
    let expected = [
        "● :main now",
        "● @last 1",
        "│ ● :work",
        "├─╯",
        "● @base 1",
        "┊ 5 snapshots",
        "● @first 1",
    ];
    assert_eq!(starts.len(), expected.len(), "{text}");
    for (start, expected) in starts.iter().zip(expected) {
        // Ages are what they are.
        let expected = expected.trim_end_matches(" 1");
        assert!(start.starts_with(expected), "{start}, not {expected}: {text}");
    }
    assert!(text.contains(&format!("the main branch, on {mount}")), "{text}");
    let all = scratch.dendro(["log", "--all", &mount]).succeeds().out;
    assert_eq!(all.lines().count(), 2 + 2 + 8, "{all}");
    assert!(!all.contains('│'), "{all}");

    let drawing = scratch.text("log.svg");
    scratch.dendro(["log", "--plot", &drawing, &mount]).succeeds();
    let svg = fs::read_to_string(&drawing).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains(">@base<") && svg.contains(">5 snapshots<"));
    scratch.dendro(["log", "--plot", "log.png", &mount]).fails(2, &["log.png", ".svg"]);
    let named = format!("{mount}@base");
    scratch.dendro(["log", &named]).fails(2, &[&named, "the whole volume"]);
    // Of a volume that is not mounted, too.
    scratch.umount();
    let text = scratch.dendro(["log", "--graph", &scratch.image()]).succeeds().out;
    assert!(text.contains("├─╯") && !text.contains(", on "), "{text}");
}

#[test]
fn where_the_space_goes_is_a_bar_and_a_drawing() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = with_history(&scratch);
    let text = scratch.dendro(["usage", &mount]).succeeds().out;
    let bar = text.lines().find(|line| line.contains("··")).unwrap();
    assert_eq!(bar.trim().chars().count(), 76, "{text}");
    for part in ["in one snapshot alone", "dead, for the cleaner", "kept for cleaning"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    // What is alone in a snapshot is the file that was overwritten, and removed.
    let last = text.lines().find(|line| line.starts_with("@last")).unwrap();
    assert!(last.contains("KiB") && last.contains('█'), "{text}");
    assert!(text.contains("and 5 snapshots without a name that hold nothing alone"), "{text}");
    let all = scratch.dendro(["usage", "--all", &mount]).succeeds().out;
    assert_eq!(all.lines().count(), text.lines().count() + 4, "{all}");

    let drawing = scratch.text("usage.svg");
    scratch.dendro(["usage", "--plot", &drawing, &mount]).succeeds();
    let svg = fs::read_to_string(&drawing).unwrap();
    assert!(svg.contains("deleting @last alone would free") && svg.contains(">and 5 more<"));
    scratch.dendro(["usage", "--plot", "usage.png", &mount]).fails(2, &["usage.png", ".svg"]);
    // The parts are those of the drawing of segments.
    let segments = scratch.text("segments.svg");
    scratch.dendro(["segments", "--plot", &segments, &mount]).succeeds();
    assert!(fs::read_to_string(&segments).unwrap().contains("clean, and kept for cleaning"));
}
