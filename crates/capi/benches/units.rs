//! What a small unit costs through C, beside the Rust library: cargo bench -p dendro-capi
//!
//! Both commit the same units, a record of 100 bytes each, on one thread, on a volume in memory,
//! and take turns. The figures are medians of CPU time.

#[path = "../tests/all/cc.rs"]
#[allow(dead_code, reason = "tests use the rest of it")]
mod cc;

use std::process::Command;

use dendrofs::disk::Aru;
use dendrofs::{CreateOptions, Volume};
use rustix::time::{ClockId, clock_gettime};

use cc::{Link, compile, run};

/// As in `units.c`.
const UNITS: u64 = 200_000;
const RECORDS: u64 = 50_000;

const ROUNDS: usize = 9;

fn now_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds of a unit.
fn rust() -> f64 {
    let volume = Volume::in_memory(512 << 20, &CreateOptions::lists()).expect("it is large enough");
    let (head, value) = (volume.main(), [7_u8; 100]);
    let start = now_ns();
    for number in 0..UNITS {
        let mut unit = Aru::new(head);
        unit.put_record(Volume::ROOT, number * 7919 % RECORDS, &value[..]);
        volume.disk().commit(unit).expect("there is room");
    }
    let took = now_ns() - start;
    volume.close().expect("the device works");
    took / UNITS as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let dir = tempfile::tempdir().expect("there is room");
    let program = compile("benches/units.c", dir.path(), Link::Shared, &["-O2"]);
    let c = || {
        let output = run(&mut Command::new(&program)).stdout;
        let text = String::from_utf8(output).expect("it prints a number");
        text.trim().parse::<f64>().expect("it prints a number")
    };
    let (of_rust, of_c): (Vec<f64>, Vec<f64>) = (0..ROUNDS).map(|_| (rust(), c())).unzip();
    let (of_rust, of_c) = (median(of_rust), median(of_c));
    let rate = |ns: f64| 1e6 / ns;
    println!("Rust: {of_rust:.0} ns a unit, {:.0} thousand a second of CPU time", rate(of_rust));
    println!("C:    {of_c:.0} ns a unit, {:.0} thousand a second of CPU time", rate(of_c));
    println!("C takes {:.2} times as long", of_c / of_rust);
}
