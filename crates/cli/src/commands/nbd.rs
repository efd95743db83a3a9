//! `dendro nbd`: serves block devices, in the foreground. `listen`: where. `control`: what it
//! answers meanwhile. `mounted`: who serves while the volume is mounted. `report`: what is said of
//! it.

mod control;
mod listen;
mod mounted;
mod report;

use std::path::Path;
use std::sync::Arc;

use dendro_base::{Clock, SystemClock};
use dendro_block::Devices;
use dendro_daemon::logging::{self, Destination};
use dendro_daemon::volume::memory::nbd_memory_bytes;
use dendro_device::Direct;
use dendro_nbd::{Activity, Exports, Server};
use dendrofs::{Runner, Volume};
use listen::{Listening, Place};
use report::{Serving, report};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::block::NbdArgs;
use crate::failure::Failure;
use crate::offline;
use crate::target::{self, Target, tag};

pub(crate) fn run(args: &NbdArgs, quiet: bool) -> Result<(), Failure> {
    match target::find_open(&tag::resolve(&args.volume)?)? {
        Target::Unmounted(source) => serve(&source, args, quiet),
        Target::Mounted(served) if served.pong.serves_blocks => Err(Failure::new(format_args!(
            "{}: its block devices are served already, by process {}",
            served.pong.source, served.pong.pid
        ))),
        Target::Mounted(served) => mounted::serve(&served, args, quiet),
    }
}

/// Serves a volume that nobody has open.
fn serve(source: &Path, args: &NbdArgs, quiet: bool) -> Result<(), Failure> {
    // What cannot be listened at is said before the volume is opened.
    let place = Place::new(args)?;
    logging::start(&Destination::StandardError, source)?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let (devices, disk) = match args.read_only {
        true => offline::open_to_read(source, offline::as_mounted())?,
        // No kernel of ours has a cache above, as that of a mount has.
        false => offline::open_for_writing_by(source, Direct::Writes, offline::as_mounted())?,
    };
    let (disk, since) = (Arc::new(disk), SystemClock.now());
    let uuid = disk.superblock().uuid.to_string();
    let fail =
        |why: &dyn std::fmt::Display| Failure::new(format_args!("{}: {why}", source.display()));
    let volume = Volume::from(Arc::clone(&disk));
    let exports = Arc::new(Devices::new(volume.shared_disk(), args.read_only));
    let export_count = exports.all().map_err(|error| fail(&error))?.len() as u64;
    let Listening { listener, tls, uri, _socket } = place.listen(&uuid)?;
    // A volume for reading needs no threads.
    let runner = if args.read_only { None } else { Some(Runner::start(&volume)) };
    let runner = runner.transpose().map_err(|error| fail(&error))?;
    let activity = Arc::new(Activity::new(nbd_memory_bytes(disk.cache_size_bytes())));
    let shared = Arc::clone(&exports) as Arc<dyn Exports>;
    let server = Server::start(listener, shared, tls, Arc::clone(&activity))?;
    let (shown, pid) = (source.display().to_string(), std::process::id());
    let serving = Serving { source: shown, uuid, pid, uri, export_count };
    report(&serving, args, quiet)?;
    let admin = control::BlockAdmin::new(disk, &devices, exports, activity, &serving, since);
    control::answer_until(&admin, || {
        signals.forever().next();
    });
    drop(admin);
    server.stop();
    drop(runner);
    volume.close().map_err(|error| fail(&error))?;
    devices.close().map_err(|error| fail(&error))
}
