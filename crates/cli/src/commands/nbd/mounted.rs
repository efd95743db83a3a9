//! `dendro nbd` of a volume that is mounted: its daemon serves, at this process's socket.

use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;

use dendro_control::ServingEnd;
use dendro_control::block_devices::ServeBlockDevicesRequest;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::listen::{Listening, Place};
use super::report::{Serving, report};
use crate::args::block::NbdArgs;
use crate::failure::{Failure, usage};
use crate::target::Served;

/// Has the daemon serve, until a signal comes.
pub(super) fn serve(served: &Served, args: &NbdArgs, quiet: bool) -> Result<(), Failure> {
    let place = Place::new(args)?;
    let tls_certificates = args.tls_certificates.as_deref().map(|directory| {
        let absolute = std::path::absolute(directory)?;
        let text = absolute.to_str().map(str::to_owned);
        text.ok_or_else(|| usage(format_args!("{}: is not UTF-8", directory.display())))
    });
    let tls_certificates = tls_certificates.transpose()?;
    // From here on a signal does not leave the socket behind.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let (sender, ends) = mpsc::channel::<ServingEnd>();
    thread::Builder::new().name("signals".into()).spawn(move || {
        signals.forever().next();
        // One that comes early is for what has not begun yet.
        if let Ok(end) = ends.recv() {
            end.end();
        }
    })?;
    let source = &served.pong.source;
    let uuid = &served.pong.uuid;
    let Listening { listener, uri, _socket, .. } = place.listen(uuid)?;
    let pid = std::process::id();
    let request = ServeBlockDevicesRequest {
        uri: uri.clone(),
        pid,
        read_only: args.read_only,
        tls_certificates,
    };
    let mut reported = Ok(());
    let client = served.client.clone().about_volume();
    let outcome = client.serve_block_devices(request, listener.as_fd(), |info, end| {
        let export_count = info.export_count;
        let (source, uuid, uri) = (source.clone(), uuid.clone(), uri.clone());
        reported = report(&Serving { source, uuid, pid, uri, export_count }, args, quiet);
        if reported.is_err() {
            end.end();
        }
        // The thread is there until the process ends.
        let _ = sender.send(end);
    });
    outcome.map_err(|error| Failure::new(format_args!("{source}: {error}")))?;
    reported
}
