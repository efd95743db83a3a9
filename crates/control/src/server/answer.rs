//! From a request to its reply: which operation of [`Admin`] each command calls.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use crate::admin::Admin;
use crate::messages::cleaning::Waited;
use crate::messages::versions::VersionsAsked;
use crate::messages::{AdminError, Command, Outcome, Reply, Request};
use crate::socket::Caller;

/// The refusal of a request that is meant for another daemon than `admin`, or for a mount that it
/// does not have.
pub(super) fn refused_by(request: &Request, admin: &dyn Admin) -> Option<Reply> {
    let why = request.addressee.as_ref()?.differs_from(&admin.ping())?;
    Some(Reply::new(Outcome::NotMeant(why)))
}

/// The reply to another user's request, with which `descriptor` may have come; a descriptor may go
/// with the reply, too.
pub(super) fn reply_to_other(
    caller: &Caller,
    request: &Request,
    descriptor: Option<OwnedFd>,
    admin: &dyn Admin,
) -> (Reply, Option<OwnedFd>) {
    if let Some(refusal) = refused_by(request, admin) {
        return (refusal, None);
    }
    match admin.for_other(caller, request, descriptor) {
        Ok((outcome, descriptor)) => (Reply::new(outcome), descriptor),
        Err(error) => (Reply::refusal(error), None),
    }
}

/// The reply to `request`, with which `descriptor` may have come. [`Command::Segwait`] is answered
/// at once, with the state of the moment.
pub(super) fn reply_to(request: &Request, descriptor: Option<OwnedFd>, admin: &dyn Admin) -> Reply {
    // The mount may have been unmounted while the request waited for a thread.
    refused_by(request, admin).unwrap_or_else(|| {
        answer(request, descriptor, admin).map_or_else(Reply::refusal, Reply::new)
    })
}

fn answer(
    request: &Request,
    descriptor: Option<OwnedFd>,
    admin: &dyn Admin,
) -> Result<Outcome, AdminError> {
    Ok(match &request.command {
        Command::Ping => Outcome::Pong(admin.ping()),
        Command::Info => Outcome::Info(Box::new(admin.info()?)),
        Command::Stat => Outcome::Stat(admin.stat()?),
        Command::Sync => admin.sync().map(|()| Outcome::Done)?,
        Command::Shutdown => admin.shut_down().map(|()| Outcome::Done)?,
        Command::Metrics => Outcome::Metrics(admin.metrics()?),
        Command::Cleaner(change) => Outcome::Cleaner(admin.change_cleaner(change)?),
        Command::Coalesce(asked) => {
            let mount = request.mount(asked.mount.as_ref());
            Outcome::Coalesced(admin.coalesce(mount, asked)?)
        }
        Command::Segments(asked) => Outcome::Segments(admin.segments(asked)?),
        Command::Blocks(asked) => Outcome::Blocks(admin.blocks(asked)?),
        Command::Bmapv(named) => Outcome::Places(admin.bmapv(&named.blocks)?),
        Command::Markv(named) => Outcome::Marked(admin.markv(&named.blocks)?),
        Command::Segwait(asked) => {
            let present = admin.present();
            let is_low = asked.is_met(&present);
            Outcome::Waited(Waited { is_low, present })
        }
        Command::Segclean(named) => Outcome::Released(admin.segclean(&named.segments)?),
        Command::Versions(VersionsAsked { mount, request: asked }) => {
            Outcome::Versions(admin.versions(request.mount(mount.as_ref()), asked)?)
        }
        Command::Damage(asked) => Outcome::Damage(admin.damage(*asked)?),
        Command::Scrub(asked) => Outcome::Scrub(admin.scrub(*asked)?),
        Command::Check(asked) => {
            let report = admin.check(*asked, &mut |_| ControlFlow::Continue(()))?;
            Outcome::Checked(Box::new(report))
        }
        Command::Send(asked) => {
            Outcome::Sent(Box::new(admin.send(request.mount(None), asked, descriptor)?))
        }
        Command::Resize(asked) => {
            Outcome::Resized(admin.resize(asked, &mut |_| ControlFlow::Continue(()))?)
        }
        Command::Devices(asked) => Outcome::Devices(admin.devices(asked)?),
        Command::BlockDevices(asked) => Outcome::BlockDevices(admin.block_devices(asked)?),
        Command::ServeBlockDevices(asked) => admin
            .serve_block_devices(asked, descriptor, &mut |_| ControlFlow::Break(()))
            .map(|()| Outcome::Done)?,
        Command::Receive(asked) => Outcome::Received(Box::new(admin.receive(asked, descriptor)?)),
        Command::Mount(asked) => Outcome::Mount(admin.mount(asked, descriptor)?),
        Command::Unmount(asked) => {
            admin.unmount(request.mount(None), *asked).map(|()| Outcome::Done)?
        }
        Command::Set(asked) => {
            let mount = request.mount(asked.mount.as_ref());
            Outcome::Set(Box::new(admin.set(mount, asked)?))
        }
    })
}
