//! What dendrofs costs, in ratios to something measured beside it in the same run.
//!
//! - `dendro-bench [DIRECTORY]`: what operations cost. Each figure is the median of several rounds
//!   that alternate with the rounds of what it is compared with.
//! - `dendro-bench engine`: of these, the engine alone, in memory.
//! - `dendro-bench files [COUNT]`: what the requests of a mount cost, without kernel and device.
//! - `dendro-bench cleaning [WORKLOAD [POLICY [GIB]]]`: what cleaning writes. Counts, in memory;
//!   all workloads on 4 GiB take half an hour.
//! - `dendro-bench coalescing [DIRECTORY]`: reading what was written in random order, before and
//!   after it was put together.
//! - `dendro-bench versions`: what snapshots and clones cost, in memory.
//! - `dendro-bench many-versions [SHAPE|all [COUNT...]]`: what one more costs beside thousands, in
//!   memory.
//! - `dendro-bench tpc-b [DIRECTORY [PERCENT...]]`, `dendro-bench rewriting [DIRECTORY
//!   [PERCENT...]]`: how fast volumes are that are nearly full, and what the time goes to.
//! - `dendro-bench mount [OPTIONS] [DIRECTORY]`: operations through mounts, beside a file system
//!   that answers from memory, and ext4, XFS and btrfs on the same device; `--help` has the
//!   options. As root, with `dendro` built beside it, or in `DENDRO`.
//!
//! DIRECTORY (the current one unless given) is where image files go, best a disk and not a tmpfs.
//! Nothing is asserted: machines are noisy, and figures are for people to read.

mod amplification;
mod cleaning;
mod coalescing;
mod engine;
mod file_device;
mod files;
mod many_versions;
mod measure;
mod mounts;
mod nearly_full;
mod versions;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let directory = |at: usize| PathBuf::from(arguments.get(at).map_or(".", String::as_str));
    let numbers = |from: usize| -> Vec<u64> {
        arguments.iter().skip(from).filter_map(|argument| argument.parse().ok()).collect()
    };
    let result = match arguments.first().map(String::as_str) {
        Some("cleaning") => {
            let chosen = |at: usize| arguments.get(at).map(String::as_str);
            cleaning::run(chosen(1).unwrap_or_default(), chosen(2), numbers(3).first().copied())
        }
        Some("coalescing") => coalescing::run(&directory(1)),
        Some("engine") => {
            heading();
            engine::run();
            Ok(())
        }
        Some("files") => {
            files::run(numbers(1).first().copied());
            Ok(())
        }
        Some("versions") => {
            versions::run();
            Ok(())
        }
        Some("many-versions") => {
            many_versions::run(arguments.get(1).map(String::as_str), &numbers(2));
            Ok(())
        }
        Some("tpc-b") => nearly_full::tpc_b(&directory(1), &numbers(2)),
        // What `mount` starts.
        Some("null") => {
            mounts::serve_null(arguments.get(1).map_or("auto", String::as_str), &directory(2))
        }
        Some("mount") => mounts::run(&arguments[1..]),
        Some("rewriting") => nearly_full::rewriting(&directory(1), &numbers(2)),
        _ => costs(&directory(0)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dendro-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn heading() {
    println!("{:<58} {:>14} {:>14} {:>8}", "", "dendrofs", "beside it", "ratio");
}

fn costs(directory: &Path) -> io::Result<()> {
    heading();
    engine::run();
    amplification::run();
    file_device::run(directory)
}
