//! What cleaning costs those who write, on a file, with the threads that the daemon has.
//!
//! - *TPC-B* as in BSD-LFS's papers: accounts, tellers and branches updated at random, a page each,
//!   and an appended history, at several shares of the volume that live. Throughput while cleaning
//!   is compared with the same volume's while it has clean segments enough and cleaning rests,
//!   in turns.
//! - *Rewriting* as in the Linux LFS's of 2007: records of 64 KiB over 80 % of the device's size,
//!   uniform, and with a tenth of the records getting nine tenths of the writes. Time is compared
//!   with that of a volume of which a quarter lives.

mod bank;
mod rewriting;
mod rig;

use std::io;
use std::path::Path;

/// TPC-B, at these shares that live, or at all that the papers had.
pub(crate) fn tpc_b(directory: &Path, percents: &[u64]) -> io::Result<()> {
    let percents = if percents.is_empty() { &[48, 60, 70, 80, 90] } else { percents };
    with_image(directory, |image| bank::bank(image, percents))
}

/// The experiment of 2007, at these shares that live beside a quarter.
pub(crate) fn rewriting(directory: &Path, percents: &[u64]) -> io::Result<()> {
    let percents = if percents.is_empty() { &[50, 75, 85, 90] } else { percents };
    with_image(directory, |image| rewriting::rewrite_all(image, percents))
}

fn with_image(directory: &Path, work: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let image = directory.join("dendro-bench-full.img");
    let result = work(&image);
    let _ = std::fs::remove_file(&image);
    result
}
