//! `dendro stream restore`: files out of kept streams, without a volume.
//!
//! The streams are received into a volume of their own, on a sparse file that has no name and goes
//! with the command. So what is restored is what a volume that received them would have.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::BufReader;
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use dendro_daemon::volume::clock;
use dendro_daemon::{streams, text};
use dendro_device::{Device, OpenOptions as DeviceOptions};
use dendro_disk::View;
use dendro_fs::{FileSystem, Options as FsOptions};
use dendro_logdisk::{FormatOptions, LogDisk};

use super::input::open_input;
use crate::args::streams::StreamRestoreArgs;
use crate::commands::files::cp::{How, Output, copy};
use crate::failure::Failure;
use crate::offline::as_mounted;
use crate::output::progress::Progress;

/// The length that the volume begins with, and the one that it can have.
const LEN_BYTES: u64 = 64 << 20;
const MAX_LEN_BYTES: u64 = 1 << 50;
const SEGMENT_SIZE_BYTES: u64 = 1 << 20;

pub(super) fn run(args: &StreamRestoreArgs, quiet: bool) -> Result<(), Failure> {
    let disk = Arc::new(volume_beside(Path::new(&args.to))?);
    let progress = Progress::new(quiet);
    for base in &args.bases {
        load(&disk, base, None, &progress)?;
    }
    let view = load(&disk, &args.file, args.snapshot.as_deref(), &progress)?;
    drop(progress);
    let fail =
        |why: &dyn std::fmt::Display| Failure::new(format_args!("{}: {why}", args.file.display()));
    let options = FsOptions { view, read_only: true, ..FsOptions::default() };
    let fs = FileSystem::mount(disk as _, options, clock())
        .map_err(|error| fail(&format_args!("it has no files: {error}")))?;
    let all = [OsString::from("/")];
    let paths = if args.paths.is_empty() { &all[..] } else { &args.paths };
    let how = How { recursive: true, keep_going: args.keep_going };
    let output = if args.json { Output::Json } else { Output::Text { quiet } };
    match copy(&fs, paths, &args.to, how, output)? {
        0 => Ok(()),
        1 => Err(fail(&"one file was not restored, or not all of it, see above")),
        count => Err(fail(&format_args!("{count} files were not restored, or not all, see above"))),
    }
}

/// An empty volume on the file system that `to` is on, or will be on.
fn volume_beside(to: &Path) -> Result<LogDisk, Failure> {
    let directory = match to.parent() {
        _ if to.is_dir() => to,
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let path = directory.join(format!(".dendro-restore-{}", std::process::id()));
    let fail =
        |error: &dyn std::fmt::Display| Failure::new(format_args!("{}: {error}", path.display()));
    // Nobody else may read what was sent.
    let new = File::options().write(true).create_new(true).mode(0o600).open(&path);
    new.map_err(|error| fail(&error))?;
    let device = DeviceOptions::new().overwrite(true).create(&path, LEN_BYTES);
    let removed = fs::remove_file(&path);
    let device: Arc<dyn Device> = Arc::new(device.map_err(|error| fail(&error))?);
    removed.map_err(|error| fail(&error))?;
    let options = FormatOptions {
        segment_size_bytes: SEGMENT_SIZE_BYTES,
        max_len_bytes: MAX_LEN_BYTES,
        ..FormatOptions::default()
    };
    dendro_logdisk::create(&device, &options, as_mounted(), &clock()).map_err(|error| fail(&error))
}

/// Receives the streams in `file`, up to the one of the snapshot `last` if that is given. Returns
/// the version that was received last.
fn load(
    disk: &LogDisk,
    file: &Path,
    last: Option<&str>,
    progress: &Progress,
) -> Result<View, Failure> {
    let input = BufReader::new(open_input(file)?);
    let mut go_on = |read_bytes| {
        progress.show(format!("{} of {} read", text::size(read_bytes), file.display()));
        // If it fails, so does what comes next.
        let _ = disk.background_step();
        ControlFlow::Continue(())
    };
    streams::load(disk, input, last, &mut go_on)
        .map_err(|why| Failure::new(format_args!("{}: {why}", file.display())))
}
