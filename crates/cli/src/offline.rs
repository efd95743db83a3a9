//! Unmounted volumes, which the command opens itself.

use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dendro_control::VolumeInfo;
use dendro_control::cleaning::Segments;
use dendro_control::coalescing::{CoalesceRequest, Coalesced};
use dendro_control::damage::{DamageInfo, DamageRequest};
use dendro_control::devices::{DevicesInfo, DevicesRequest};
use dendro_control::resizing::{ResizeProgress, ResizeRequest, Resized};
use dendro_control::scrub::ScrubInfo;
use dendro_control::streams::{ReceiveRequest, ReceivedInfo, SendRequest, SentInfo};
use dendro_control::versions::{VersionsReply, VersionsRequest, ViewName};
use dendro_daemon::unmounted::met_damage;
use dendro_daemon::volume::devices::{Devices, open_devices_to_read, open_devices_to_write};
use dendro_daemon::volume::memory::default_cache_bytes;
use dendro_daemon::volume::{LAST_DAEMON_GRACE, clock, describe, open_disk};
use dendro_daemon::{Failure, cleaning, devices, resizing, scrub, streams};
use dendro_device::{Direct, OpenOptions as DeviceOptions};
use dendro_disk::{LogicalDisk, Versions, View};
use dendro_fs::{FileSystem, Options as FsOptions, keep_damage};
use dendro_logdisk::{LogDisk, OpenOptions};
use dendro_versions::Service;

/// How long the writer of an unmounted volume waits for a buffer. It is woken for one.
const WRITER_WAIT: Duration = Duration::from_secs(5);

/// Facts about an unmounted volume.
pub(crate) fn info(source: &Path) -> Result<VolumeInfo, Failure> {
    let (devices, disk) = open_to_read(source, as_mounted())?;
    let met_damage = Some(met_damage(&disk, false)?).filter(|met| met.place_count > 0);
    Ok(VolumeInfo { met_damage, ..describe(source, &disk, &devices) })
}

/// The damage that is kept with an unmounted volume; forgets it if `request` says so.
pub(crate) fn damage(source: &Path, request: DamageRequest) -> Result<DamageInfo, Failure> {
    if !request.clear {
        return Ok(met_damage(&open(source)?, true)?);
    }
    let disk = Arc::new(open_for_writing(source, OpenOptions::default())?.1);
    let info = met_damage(&disk, true);
    let forgotten = keep_damage(&*disk, disk.versions().main_head(), &[]);
    let shut_down = disk.shut_down();
    let info = info?;
    forgotten?;
    shut_down.map_err(|error| Failure::new(format_args!("{}: {error}", source.display())))?;
    Ok(info)
}

/// Scrubs an unmounted volume, and calls `show` after each step. Half of the memory is for the map
/// and half for what is read next.
pub(crate) fn scrub(
    source: &Path,
    memory_bytes: Option<u64>,
    show: impl FnMut(&ScrubInfo),
) -> Result<(ScrubInfo, DamageInfo), Failure> {
    let half = memory_bytes.map(|bytes| bytes / 2);
    let options = as_mounted();
    let cache_size_bytes = half.unwrap_or(u64::MAX).min(options.cache_size_bytes);
    // What the page cache has says nothing of the medium.
    let options = OpenOptions { cache_size_bytes, ..options };
    let (_, disk) = open_to_read_by(source, Direct::Auto, options)?;
    scrub::scrub_to_end(&disk, half, show)
        .map_err(|error| Failure::new(format_args!("{}: {error}", source.display())))
}

/// The scrub that is recorded with an unmounted volume, and the damage that is.
pub(crate) fn kept_scrub(source: &Path) -> Result<(ScrubInfo, DamageInfo), Failure> {
    let disk = open(source)?;
    Ok((scrub::kept_info(&disk)?, met_damage(&disk, true)?))
}

/// The files of a version of an unmounted volume.
pub(crate) fn open_view(source: &Path, version: ViewName) -> Result<FileSystem, Failure> {
    let view = View { branch: version.branch, epoch: version.epoch };
    let options = FsOptions { view, read_only: true, ..FsOptions::default() };
    FileSystem::mount(Arc::new(open(source)?) as _, options, clock())
        .map_err(|error| Failure::new(format_args!("{}: {error}", source.display())))
}

/// Sends a version of an unmounted volume to `out`. `show` is called with the number of bytes that
/// were written.
pub(crate) fn send(
    source: &Path,
    request: &SendRequest,
    out: impl Write,
    mut show: impl FnMut(u64),
) -> Result<SentInfo, Failure> {
    // What is read once would put out of the page cache what others need.
    let (_, disk) = open_to_read_by(source, Direct::Auto, as_mounted())?;
    let here = disk.versions().main_head();
    let mut go_on = |written_bytes| {
        show(written_bytes);
        ControlFlow::Continue(())
    };
    streams::send(&disk, here, request, out, &mut go_on)
        .map_err(|why| Failure::new(format_args!("{}: {why}", source.display())))
}

/// Receives a version into an unmounted volume from `input`. `show` is called with the number of
/// bytes that were read.
pub(crate) fn receive(
    source: &Path,
    request: &ReceiveRequest,
    input: impl Read,
    mut show: impl FnMut(u64),
) -> Result<ReceivedInfo, Failure> {
    let fail =
        |why: &dyn std::fmt::Display| Failure::new(format_args!("{}: {why}", source.display()));
    let (_, disk) = open_for_writing(source, as_mounted())?;
    let mut go_on = |read_bytes| {
        show(read_bytes);
        // A daemon does this at the same time. If it fails, so does what comes next.
        let _ = disk.background_step();
        ControlFlow::Continue(())
    };
    let received = beside_writer(&disk, || streams::receive(&disk, request, input, &mut go_on));
    let shut_down = disk.shut_down();
    let info = received.map_err(|why| fail(&why))?;
    shut_down.map_err(|error| fail(&error))?;
    Ok(info)
}

/// Does `work` while another thread writes the log, as in a daemon. The disk is to be shut down
/// after that.
fn beside_writer<T>(disk: &LogDisk, work: impl FnOnce() -> T) -> T {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let write = || {
            let mut step = Ok(true);
            while !is_done.load(Ordering::Acquire) && step.is_ok() {
                // If this fails, so does what `work` does next.
                step = disk.write_step(WRITER_WAIT);
            }
        };
        // Without the thread, `work` writes the log itself.
        let _ = thread::Builder::new().name("writer".into()).spawn_scoped(scope, write);
        let _end = EndOfWriter { is_done: &is_done, disk };
        work()
    })
}

/// Ends the thread of [`beside_writer`], however its work ends.
struct EndOfWriter<'a> {
    is_done: &'a AtomicBool,
    disk: &'a LogDisk,
}

impl Drop for EndOfWriter<'_> {
    fn drop(&mut self) {
        self.is_done.store(true, Ordering::Release);
        self.disk.end_waiting();
    }
}

/// Carries out a request about the versions of an unmounted volume.
pub(crate) fn versions(source: &Path, request: &VersionsRequest) -> Result<VersionsReply, Failure> {
    let refused = |error| Failure::new(format_args!("{}: {error}", source.display()));
    if !request.is_change() {
        let service = Service::new(Arc::new(open(source)?), clock());
        return service.answer(request).map_err(refused);
    }
    let disk = Arc::new(open_for_writing(source, OpenOptions::default())?.1);
    let answer = Service::new(Arc::clone(&disk) as _, clock()).answer(request);
    let shut_down = disk.shut_down();
    let reply = answer.map_err(refused)?;
    shut_down.map_err(|error| Failure::new(format_args!("{}: {error}", source.display())))?;
    Ok(reply)
}

/// Coalesces what a request names of an unmounted volume; calls `show` after each part.
pub(crate) fn coalesce(
    source: &Path,
    mut request: CoalesceRequest,
    mut show: impl FnMut(&Coalesced),
) -> Result<Coalesced, Failure> {
    let fail =
        |why: &dyn std::fmt::Display| Failure::new(format_args!("{}: {why}", source.display()));
    let disk =
        if request.dry_run { open(source)? } else { open_for_writing(source, as_mounted())?.1 };
    let view = disk.versions().main_head();
    let mut all = Coalesced::default();
    let outcome = loop {
        match cleaning::coalesce(&disk, view, &request) {
            Err(error) => break Err(fail(&error)),
            Ok(done) => all.add(&done),
        }
        show(&all);
        request.from = all.next;
        if all.next.is_none() || all.lacks_room {
            break Ok(all);
        }
        // A daemon does this at the same time.
        if let Err(error) = disk.background_step() {
            break Err(fail(&error));
        }
    };
    if !request.dry_run {
        let shut_down = disk.shut_down();
        outcome.as_ref().map_err(Clone::clone)?;
        shut_down.map_err(|error| fail(&error))?;
    }
    outcome
}

/// Resizes an unmounted volume, and calls `show` with how far it is.
pub(crate) fn resize(
    source: &Path,
    request: &ResizeRequest,
    mut show: impl FnMut(ResizeProgress),
) -> Result<Resized, Failure> {
    let fail =
        |why: &dyn std::fmt::Display| Failure::new(format_args!("{}: {why}", source.display()));
    let (device, disk) = open_for_writing(source, as_mounted())?;
    let mut tell = |progress| {
        show(progress);
        ControlFlow::Continue(())
    };
    let resized = resizing::resize(&disk, &device, request, &mut tell).map_err(|why| fail(&why));
    disk.shut_down().map_err(|error| fail(&error)).and(resized)
}

/// Lists or changes the devices of an unmounted volume, and brings up those that are behind. `show`
/// is called with the bytes that are still to be copied, and with those that were at first.
pub(crate) fn devices(
    source: &Path,
    request: &DevicesRequest,
    mut show: impl FnMut(u64, u64),
) -> Result<DevicesInfo, Failure> {
    if *request == DevicesRequest::List {
        let (devices, disk) = open_to_read(source, as_mounted())?;
        return Ok(devices::info(&disk, &devices, source));
    }
    let fail =
        |why: &dyn std::fmt::Display| Failure::new(format_args!("{}: {why}", source.display()));
    let (devices, disk) = open_for_writing(source, as_mounted())?;
    let options = DeviceOptions::new().lock_wait(LAST_DAEMON_GRACE);
    let mut tell = |_| ControlFlow::Continue(());
    let changed = devices::change(&disk, &devices, source, request, &options, &mut tell);
    let all_bytes = devices.left_to_copy_bytes();
    let mut brought_up = Ok(());
    if changed.is_ok() {
        brought_up = loop {
            match devices.bring_up_step() {
                Ok(Some(_)) => show(devices.left_to_copy_bytes(), all_bytes),
                Ok(None) => break Ok(()),
                Err(error) => break Err(fail(&error)),
            }
        };
    }
    let shut_down = disk.shut_down();
    changed?;
    brought_up?;
    shut_down.map_err(|error| fail(&error))?;
    devices.close().map_err(|error| fail(&error))?;
    Ok(devices::info(&disk, &devices, source))
}

/// The segments of an unmounted volume.
pub(crate) fn segments(source: &Path) -> Result<Segments, Failure> {
    Ok(cleaning::all_segments(&open(source)?))
}

/// Opens an unmounted volume, and the devices that it lies on.
pub(crate) fn open_for_writing(
    source: &Path,
    options: OpenOptions,
) -> Result<(Arc<Devices>, LogDisk), Failure> {
    open_for_writing_by(source, Direct::Auto, options)
}

/// As [`open_for_writing`], its devices opened as `direct` says.
pub(crate) fn open_for_writing_by(
    source: &Path,
    direct: Direct,
    options: OpenOptions,
) -> Result<(Arc<Devices>, LogDisk), Failure> {
    let device_options = DeviceOptions::new().direct(direct);
    let devices = Arc::new(open_devices_to_write(source, &device_options)?);
    let disk = open_disk(source, &devices, options)?;
    Ok((devices, disk))
}

/// Opens an unmounted volume for reading, on those of its devices that are there.
pub(crate) fn open_to_read(
    source: &Path,
    options: OpenOptions,
) -> Result<(Arc<Devices>, LogDisk), Failure> {
    // The next command reads the same few blocks again.
    open_to_read_by(source, Direct::Never, options)
}

fn open_to_read_by(
    source: &Path,
    direct: Direct,
    options: OpenOptions,
) -> Result<(Arc<Devices>, LogDisk), Failure> {
    let device_options = DeviceOptions::new().direct(direct);
    let devices = Arc::new(open_devices_to_read(source, &device_options)?);
    let disk = open_disk(source, &devices, OpenOptions { read_only: true, ..options })?;
    Ok((devices, disk))
}

/// Opens an unmounted volume for reading.
pub(crate) fn open(source: &Path) -> Result<LogDisk, Failure> {
    open_to_read(source, as_mounted()).map(|(_, disk)| disk)
}

/// Options with the default cache of a mount: the number of dirty nodes limits how much can be
/// written in all.
pub(crate) fn as_mounted() -> OpenOptions {
    OpenOptions { cache_size_bytes: default_cache_bytes(), ..OpenOptions::default() }
}
