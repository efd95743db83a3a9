//! What a mounted volume tells of itself: to people, to Prometheus, and into a file.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::common::{Scratch, skips_mounts};
use serde_json::Value;

/// The value of a sample.
#[track_caller]
fn sample(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find(|line| line.split(' ').next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in {metrics}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// A port that nobody has, a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn scrape(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

#[test]
fn people_get_groups_words_and_units() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = scratch.mount_point();
    let mut file = File::create(scratch.inside("file")).unwrap();
    file.write_all(&vec![7; 3 << 20]).unwrap();
    file.sync_all().unwrap();
    let text = scratch.dendro(["stat", &mount]).succeeds().out;
    let line = |start: &str| {
        let found = text.lines().find(|line| line.trim_start().starts_with(start));
        found.unwrap_or_else(|| panic!("no {start} in {text}"))
    };
    assert!(line("state").ends_with("good: no request has failed"), "{text}");
    assert!(line("by programs").contains("3 MiB of data"), "{text}");
    let syncs: Vec<_> = line("syncs").split_whitespace().collect();
    assert_eq!(syncs[1], "1", "{text}");
    assert!(matches!(syncs[4], "µs" | "ms" | "s"), "{text}");
    assert!(line("debt").contains("none"), "{text}");
    assert!(!text.contains("_bytes"), "{text}");
    let json = scratch.dendro(["stat", "--json", &mount]).succeeds().out;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["latency"]["sync"]["requests"], 1);
    assert!(json["latency"]["write"]["median_ns"].as_u64() > Some(0), "{json}");
    assert!(json["mounted_ns"].as_u64() > Some(1000), "{json}");
}

#[test]
fn a_volume_that_is_full_or_kept_from_writing_says_so() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = scratch.mount_point();
    let metrics = || scratch.dendro(["stat", "--metrics", &mount]).succeeds().out;
    assert_eq!(sample(&metrics(), "dendro_failed_requests_total{reason=\"no_space\"}"), 0.0);
    assert_eq!(sample(&metrics(), "dendro_latched"), 0.0);
    let mut file = File::create(scratch.inside("file")).unwrap();
    while file.write_all(&vec![7; 1 << 20]).is_ok() {}
    assert!(sample(&metrics(), "dendro_failed_requests_total{reason=\"no_space\"}") >= 1.0);
    let text = scratch.dendro(["stat", &mount]).succeeds().out;
    assert!(text.contains("found no room (ENOSPC)"), "{text}");
    // The past is told of by its age.
    assert!(!metrics().contains("dendro_oldest_snapshot_age_seconds "), "there is none");
    scratch.dendro(["snapshot", "create", &format!("{mount}@one")]).succeeds();
    let age = sample(&metrics(), "dendro_oldest_snapshot_age_seconds");
    assert!((0.0..100.0).contains(&age), "{age}");
    assert_eq!(sample(&metrics(), "dendro_snapshots"), 1.0);
    assert!(sample(&metrics(), "dendro_cleaning_debt_segments") >= 0.0);
}

#[test]
fn a_file_for_a_collector_is_whole_at_any_moment() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = scratch.mount_point();
    fs::create_dir(scratch.path("collected")).unwrap();
    let file = scratch.text("collected/home.prom");
    // What was there is replaced by another file, not overwritten in place.
    fs::write(&file, "old").unwrap();
    let mut old = File::open(&file).unwrap();
    scratch.dendro(["stat", "--metrics", "--to", &file, &mount]).succeeds();
    let mut text = String::new();
    old.read_to_string(&mut text).unwrap();
    assert_eq!(text, "old");
    let new = fs::read_to_string(&file).unwrap();
    let count = sample(&new, "dendro_request_duration_seconds_count{kind=\"lookup\"}");
    let least = sample(&new, "dendro_request_duration_seconds_bucket{kind=\"lookup\",le=\"+Inf\"}");
    assert_eq!(count, least);
    let names: Vec<_> = fs::read_dir(scratch.path("collected")).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let nowhere = scratch.text("nowhere/home.prom");
    let failed = scratch.dendro(["stat", "--metrics", "--to", &nowhere, &mount]);
    failed.fails(1, &[&nowhere, "No such file"]);
    scratch.dendro(["stat", "--to", &file, &mount]).fails(2, &["--metrics"]);
}

#[test]
fn metrics_are_on_a_port_as_long_as_the_volume_is_mounted() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    let port = free_port();
    let option = format!("metrics={port}");
    scratch.mount_with(&option);
    let reply = scrape(port).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
    assert_eq!(sample(&reply, "dendro_latched"), 0.0);
    let info = scratch.dendro(["info", &scratch.mount_point()]).succeeds().out;
    assert!(info.contains(&format!("metrics=127.0.0.1:{port}")), "{info}");

    // Another volume cannot have it, and says whose fault that is.
    let (other, place) = (scratch.text("other.img"), scratch.text("other"));
    fs::create_dir(&place).unwrap();
    scratch.dendro(["mkfs", "-q", "--size", "64M", &other]).succeeds();
    let refused = scratch.dendro(["mount", "-o", &option, &other, &place]);
    refused.fails(32, &["metrics=", &format!("127.0.0.1:{port}"), "another port"]);
    scratch.dendro(["mount", &other, &place]).succeeds();
    let changed = scratch.dendro(["set", &place, "metrics=9"]);
    changed.fails(1, &["metrics=9", "cannot be changed while it is mounted"]);
    scratch.dendro(["umount", &place]).succeeds();

    scratch.umount();
    assert!(scrape(port).is_err());
}
