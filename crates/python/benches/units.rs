//! What small units and large reads cost through Python, beside the Rust library:
//! cargo bench -p dendro-python
//!
//! Both do the same on one thread, on a volume in memory, and take turns. The figures are medians
//! of CPU time.

#[path = "../tests/all/interpreter.rs"]
#[allow(dead_code, reason = "tests use the rest of it")]
mod interpreter;

use std::process::Command;

use dendrofs::disk::Aru;
use dendrofs::{CreateOptions, Volume};
use rustix::time::{ClockId, clock_gettime};

use interpreter::{interpreter, lay_out, root};

/// As in `units.py`.
const UNITS: u64 = 200_000;
const RECORDS: u64 = 50_000;
const READS: u64 = 2_000;
const MIB: usize = 1 << 20;

const ROUNDS: usize = 9;

fn now_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds of a unit.
fn unit() -> f64 {
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

/// Nanoseconds of reading a MiB of a file.
fn read() -> f64 {
    let volume = Volume::in_memory(128 << 20, &CreateOptions::files()).expect("it is large enough");
    let files = volume.files(volume.main()).expect("it has files");
    let bytes: Vec<u8> = (0..=255).cycle().take(4 * MIB).collect();
    files.write("file", &bytes).expect("there is room");
    let file = files.open("file").expect("it is there");
    let mut buf = vec![0; MIB];
    let start = now_ns();
    for number in 0..READS {
        let count = file.read_at(number % 4 * MIB as u64, &mut buf).expect("the device works");
        assert_eq!(count, MIB);
    }
    (now_ns() - start) / READS as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let dir = tempfile::tempdir().expect("there is room");
    lay_out(dir.path());
    let python = || -> Vec<f64> {
        let mut command = Command::new(interpreter());
        command.arg("-B").arg(root().join("benches/units.py")).env("PYTHONPATH", dir.path());
        let output = command.output().expect("the interpreter starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("it prints numbers");
        text.split_whitespace().map(|number| number.parse().expect("it is a number")).collect()
    };
    let rounds: Vec<_> = (0..ROUNDS).map(|_| (unit(), read(), python())).collect();
    let of_rust_unit = median(rounds.iter().map(|round| round.0).collect());
    let of_rust_read = median(rounds.iter().map(|round| round.1).collect());
    let of_python = |index: usize| median(rounds.iter().map(|round| round.2[index]).collect());
    let rate = |ns: f64| 1e6 / ns;
    let show = |what: &str, rust: f64, python: f64| {
        println!(
            "{what}: Rust {rust:.0} ns, Python {python:.0} ns of CPU time, {:.2} times as long",
            python / rust
        );
    };
    show("a small unit", of_rust_unit, of_python(0));
    println!(
        "  {:.0} thousand a second in Rust, {:.0} thousand in Python",
        rate(of_rust_unit),
        rate(of_python(0))
    );
    show("reading a MiB as bytes", of_rust_read, of_python(1));
    show("reading a MiB into a buffer", of_rust_read, of_python(2));
}
