//! A source tree: unpacked, looked through, read, and removed, by the system's own programs.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::operations::{Figure, settle};
use crate::measure::time;

/// A tarball, not compressed, and how many names are in it.
pub(super) struct Tarball {
    path: PathBuf,
    names: usize,
}

impl Tarball {
    /// Unpacks what `source` is compressed with to `path`, where it stays until this is dropped.
    pub(super) fn new(source: &Path, path: PathBuf) -> io::Result<Self> {
        let mut tarball = Self { path, names: 0 };
        let decompressor = match source.extension().and_then(std::ffi::OsStr::to_str) {
            Some("xz") => "xz",
            Some("gz" | "tgz") => "gzip",
            Some("bz2") => "bzip2",
            Some("zst") => "zstd",
            _ => "cat",
        };
        let mut command = Command::new(decompressor);
        if decompressor != "cat" {
            command.args(["--decompress", "--stdout"]);
        }
        let target = File::create(&tarball.path)?;
        let status = command.arg(source).stdin(Stdio::null()).stdout(target).status()?;
        if !status.success() {
            return Err(io::Error::other(format!("{decompressor}: {status}")));
        }
        let listing =
            Command::new("tar").arg("--list").arg("--file").arg(&tarball.path).output()?;
        let names = listing.stdout.iter().filter(|&&byte| byte == b'\n').count();
        tarball.names = names;
        Ok(tarball)
    }
}

impl Drop for Tarball {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Measures with `tarball` in `root`.
pub(super) fn run(root: &Path, tarball: &Tarball, figures: &mut Vec<Figure>) -> io::Result<()> {
    let tree = root.join("tree");
    fs::create_dir(&tree)?;
    settle(root)?;
    let mut push = |operation, work: &dyn Fn() -> io::Result<()>| {
        let mut outcome = Ok(());
        let took = time(|| outcome = work());
        let rate = tarball.names as f64 / took.as_secs_f64();
        figures.push(Figure { operation, unit: "names/s", rate });
        outcome
    };
    let tar = || {
        let mut command = Command::new("tar");
        command.arg("--directory").arg(&tree);
        command
    };
    push("untar + sync", &|| {
        run_to_end(tar().arg("--extract").arg("--file").arg(&tarball.path))?;
        settle(root)
    })?;
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    push("find with sizes, cold", &|| {
        run_to_end(Command::new("find").arg(&tree).args(["-printf", "%s %p\\n"]))
    })?;
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    push("tar, cold", &|| run_to_end(tar().args(["--create", "--file", "-", "."])))?;
    push("rm -r + sync", &|| {
        run_to_end(Command::new("rm").arg("-r").arg(&tree))?;
        settle(root)
    })
}

/// Runs `command`, and reads what it writes: tar looks at no file where nobody reads.
fn run_to_end(command: &mut Command) -> io::Result<()> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut buffer = vec![0; 1 << 16];
    if let Some(mut pipe) = child.stdout.take() {
        while pipe.read(&mut buffer)? > 0 {}
    }
    let status = child.wait()?;
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{}: {status}", command.get_program().display())))
}
