//! Operations through mounts: dendrofs, a file system that answers everything from memory on the
//! same transport, which is as fast as a mount can be, and the kernel's own, all on one loop
//! device.
//!
//! The device is an image file that has been written from one end to the other, opened with direct
//! I/O, and deaf to discards, so that no file system's blocks have to be found anew on the host's.
//! Each round makes each file system afresh; the rounds alternate.

mod clients;
mod null;
mod operations;
mod plot;
mod report;
mod targets;
mod tree;

use std::fs;
use std::io;
use std::path::PathBuf;

use clap::Parser;
use dendro_fuse_transport::enable_uring;

pub(crate) use null::Null;
use operations::{Figure, Scale, Workload};
use report::Report;
pub(crate) use targets::serve_null;
use targets::{Place, Target};
use tree::Tarball;

/// Measures operations through mounts, beside other file systems. As root.
#[derive(Debug, Parser)]
#[command(name = "dendro-bench mount")]
struct Args {
    /// Where the image file goes: best a disk, and not a tmpfs
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// A fifth of everything
    #[arg(long)]
    quick: bool,
    /// How many times all of it is done; what is told are medians
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How many clients at a time
    #[arg(long, value_delimiter = ',', default_value = "1,2,8")]
    clients: Vec<usize>,
    /// What is measured: of dendrofs, null, dendrofs-close, null-close, dendrofs-dev, null-dev,
    /// ext4, xfs, btrfs, device
    #[arg(long, value_delimiter = ',', default_value = "dendrofs,null,ext4,xfs,btrfs,device")]
    targets: Vec<String>,
    /// A source tree, as a tarball: unpacked, looked through, read, removed
    #[arg(long)]
    tree: Option<PathBuf>,
    /// Which operations: on names, small files, blocks, large files, those with fsync, what
    /// programs do, and the tree
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "names,small,blocks,bulk,synced,programs,tree"
    )]
    only: Vec<String>,
    /// The size of the device, in MiB
    #[arg(long, default_value_t = 4096)]
    size_mib: u64,
    /// Mount options for dendrofs
    #[arg(long, default_value = "")]
    options: String,
    /// Print JSON and no table
    #[arg(long)]
    json: bool,
    /// Draw the rates into this SVG file
    #[arg(long)]
    plot: Option<PathBuf>,
}

/// Measures as the command line says, which is given without the program's name.
pub(crate) fn run(arguments: &[String]) -> io::Result<()> {
    let name = std::iter::once("dendro-bench mount".to_owned());
    let args = Args::parse_from(name.chain(arguments.iter().cloned()));
    if !rustix::process::geteuid().is_root() {
        return Err(io::Error::other("this takes root: it mounts, and drops the kernel's caches"));
    }
    let dendro = std::env::var_os("DENDRO").map_or_else(
        || std::env::current_exe().map(|path| path.with_file_name("dendro")),
        |path| Ok(PathBuf::from(path)),
    )?;
    let targets = targets(&args)?;
    let tarball = args.directory.join("dendro-bench-mount.tar");
    let tarball = args.tree.as_ref().map(|tree| Tarball::new(tree, tarball)).transpose()?;
    let place = Place::new(dendro, args.options.clone(), &args.directory, args.size_mib << 20)?;
    let mut report = Report::new(about(&args), &targets);
    for round in 0..args.rounds {
        for at in 0..targets.len() {
            // Another one goes first each time.
            let target = targets[(at + round) % targets.len()];
            eprintln!("round {} of {}: {}", round + 1, args.rounds, target.name());
            // One that fails is no reason to lose what was measured of the others.
            let measured = measure(&place, target, &args, tarball.as_ref());
            let measured = measured.unwrap_or_else(|error| {
                eprintln!("{} is left out of this round: {error}", target.name());
                Vec::new()
            });
            for (clients, figures) in measured {
                report.add(target, clients, &figures);
            }
        }
    }
    if let Some(path) = &args.plot {
        fs::write(path, plot::svg(&report))?;
    }
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{}", report.table()),
    }
    Ok(())
}

/// What is asked for and can be measured.
fn targets(args: &Args) -> io::Result<Vec<Target>> {
    let mut targets = Vec::new();
    for name in &args.targets {
        let known = Target::ALL.into_iter().find(|target| target.name() == name);
        let target =
            known.ok_or_else(|| io::Error::other(format!("there is no target \"{name}\"")))?;
        match target.missing() {
            Some(why) => eprintln!("{why}"),
            None => targets.push(target),
        }
    }
    Ok(targets)
}

/// What is to be known of the run beside its figures.
fn about(args: &Args) -> Vec<String> {
    let uname = rustix::system::uname();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let transport = match enable_uring() {
        Ok(()) => "FUSE over io_uring".into(),
        Err(error) => format!("FUSE by /dev/fuse ({error})"),
    };
    vec![
        format!("Linux {}, {cores} CPUs; {transport}.", uname.release().to_string_lossy()),
        format!(
            "Medians of {} rounds; one loop device of {} MiB, direct I/O, without discards.",
            args.rounds, args.size_mib
        ),
    ]
}

type Measured = Vec<(usize, Vec<Figure>)>;

/// One round of one target.
fn measure(
    place: &Place,
    target: Target,
    args: &Args,
    tarball: Option<&Tarball>,
) -> io::Result<Measured> {
    let scale = if args.quick { Scale::QUICK } else { Scale::FULL };
    place.with(target, |root| {
        let mut measured = Vec::new();
        for &clients in &args.clients {
            let mut workload =
                Workload { root, clients: clients.max(1), scale, figures: Vec::new() };
            match target {
                Target::Device => workload.run_on_device()?,
                _ => workload.run(&args.only)?,
            }
            measured.push((workload.clients, workload.figures));
        }
        let wants_tree = target != Target::Device && args.only.iter().any(|group| group == "tree");
        if let Some(tarball) = tarball.filter(|_| wants_tree) {
            let mut figures = Vec::new();
            tree::run(root, tarball, &mut figures)?;
            measured.push((1, figures));
        }
        Ok(measured)
    })
}

#[cfg(test)]
mod tests {
    use super::targets::Way;
    use super::*;

    #[test]
    fn each_target_has_a_name_of_its_own() {
        for target in Target::ALL {
            let same = Target::ALL.into_iter().filter(|other| other.name() == target.name());
            assert_eq!(same.count(), 1, "{}", target.name());
        }
        assert_eq!(Target::Dendrofs(Way::Auto).name(), "dendrofs");
    }
}
