//! What dendrofs costs, in ratios to something measured beside it in the same run.
//!
//! `dendro-bench [DIRECTORY]` prints a table; DIRECTORY (the current one unless given) is where
//! the image file of the device benchmarks goes, best a disk and not a tmpfs. Each figure is the
//! median of several rounds that alternate with the rounds of what it is compared with. Nothing is
//! asserted: machines are noisy, and figures are for people to read.

mod amplification;
mod cleaning;
mod engine;
mod file_device;
mod measure;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let directory = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    if std::env::args().nth(1).as_deref() == Some("cleaning") {
        cleaning::run();
        return ExitCode::SUCCESS;
    }
    println!("{:<58} {:>14} {:>14} {:>8}", "", "dendrofs", "beside it", "ratio");
    engine::run();
    amplification::run();
    match file_device::run(&directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dendro-bench: {}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}
