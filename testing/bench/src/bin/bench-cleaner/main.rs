//! How close the cleaning policies come to what is possible: write amplification, simulated.
//!
//! `bench-cleaner [POLICY…]` prints a table of all policies, or of those named, over all workloads;
//! `oracle` is one that knows when each block will die.
//! Blocks of one size on a volume in memory, of which 80% lives; counts, so a run repeats to the
//! last digit. The policies are those that the engine runs, the very same code.
//! `docs/CLEANER.md` says what the figures mean.

mod limit;
mod run;
mod volume;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use dendro_bench::workload::Kind;
use dendro_policy::{Kind as PolicyKind, UnknownPolicy};
use run::{Length, amplification};
use volume::{Decider, Shape};

/// 4 GiB in segments of 2 MiB. What the figures depend on is the number of segments, for those that
/// are open hold dead space too, and with few of them that shows; 2048 segments of the default size
/// are a volume of 8 GiB, so real ones have rather more. Segments of 512 blocks fill as smoothly as
/// larger ones and take half the time.
const SHAPE: Shape = Shape { segment_count: 2048, segment_blocks: 512, live_percent: 80 };
/// What is counted, in times the volume's blocks.
const COUNTED: f64 = 4.0;
/// The oracle needs no time to learn.
const ORACLE_WARM_UP: f64 = 3.0;

const ORACLE: &str = "oracle";

/// A line of the table: a policy, or the oracle.
#[derive(Clone, Copy, Debug)]
struct Row(Option<PolicyKind>);

impl Row {
    fn named(name: &str) -> Result<Self, UnknownPolicy> {
        if name == ORACLE { Ok(Self(None)) } else { name.parse().map(|kind| Self(Some(kind))) }
    }

    const fn name(self) -> &'static str {
        match self.0 {
            Some(kind) => kind.name(),
            None => ORACLE,
        }
    }

    fn measure(self, kind: Kind) -> f64 {
        let Some(policy) = self.0 else {
            let length = Length { warm_up: ORACLE_WARM_UP, counted: COUNTED };
            return amplification(SHAPE, kind, Decider::Oracle, length);
        };
        let policy = policy.policy();
        let length = Length { warm_up: kind.warm_up(), counted: COUNTED };
        amplification(SHAPE, kind, Decider::Policy(policy.as_ref()), length)
    }
}

fn main() -> ExitCode {
    let named: Result<Vec<Row>, _> =
        std::env::args().skip(1).map(|name| Row::named(&name)).collect();
    let rows = match named {
        Ok(rows) if rows.is_empty() => {
            PolicyKind::ALL.into_iter().map(Some).chain([None]).map(Row).collect()
        }
        Ok(rows) => rows,
        Err(error) => {
            eprintln!("bench-cleaner: {error}");
            return ExitCode::FAILURE;
        }
    };
    print_line("", Kind::ALL.map(|kind| kind.name().to_owned()));
    print_line("aim", Kind::ALL.map(|kind| text(kind.aim())));
    let limits = Kind::ALL.map(|kind| {
        let rates = kind.workload(SHAPE.live_blocks(), 0).rates()?;
        Some(limit::known_rates(&rates, f64::from(SHAPE.live_percent) / 100.0))
    });
    print_line("rates known", limits.map(text));
    print_measured(&rows);
    ExitCode::SUCCESS
}

/// Measures all cells, as many at a time as there are cores, and prints each line when it is whole.
fn print_measured(rows: &[Row]) {
    let columns = Kind::ALL.len();
    let next = AtomicUsize::new(0);
    let cells = Mutex::new(vec![None; rows.len() * columns]);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(row) = rows.get(at / columns) else { return };
                    let measured = row.measure(Kind::ALL[at % columns]);
                    let mut cells = cells.lock().unwrap_or_else(|broken| broken.into_inner());
                    cells[at] = Some(measured);
                    let first = at - at % columns;
                    let line = &cells[first..first + columns];
                    if line.iter().all(Option::is_some) {
                        print_line(row.name(), line.iter().map(|cell| text(*cell)));
                    }
                }
            });
        }
    });
}

fn text(figure: Option<f64>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.2}"))
}

fn print_line(name: &str, cells: impl IntoIterator<Item = String>) {
    let cells: String = cells.into_iter().map(|cell| format!("{cell:>11}")).collect();
    println!("{name:<15}{cells}");
}
