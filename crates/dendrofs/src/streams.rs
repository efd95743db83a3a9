//! Versions that go and come as streams.

use std::io::{Read, Write};
use std::ops::ControlFlow;

use dendro_base::{Uuid, random_bytes};
use dendro_disk::{Error as DiskError, Snapshot, VersionTable, Versions, View};
use dendro_stream::{Decoder, Encoder, Header, Position, Problem, Sequence, StreamError, Version};
use dendro_transfer::{ReceiveError, SendError, SendRange, Wanted, abandon, origin, receive, send};

use crate::error::{Error, Result};
use crate::volume::Volume;

impl Volume {
    /// Writes the snapshot `of` to `stream`, as `dendro send` does: all that it has, or what it has
    /// and the snapshot `base` has not. A volume that has the base receives it
    /// ([`Self::receive`], `dendro receive`). Others may change the volume meanwhile.
    ///
    /// # Errors
    /// [`Error::Disk`] if one of the two is no snapshot, or cannot be read. [`Error::System`] if
    /// `stream` fails. The stream is worth nothing then.
    pub fn send(&self, of: View, base: Option<View>, stream: impl Write) -> Result<()> {
        let disk = &**self.open_disk().disk();
        let uuid = disk.superblock().uuid;
        let table = disk.versions();
        let version = |view| Ok::<_, Error>(version(uuid, snapshot(&table, view)?));
        let header = Header {
            stream: Uuid::from_random(random_bytes()?),
            source: uuid,
            version: version(of)?,
            base: base.map(version).transpose()?,
            is_compressed: false,
            kind: table.kind_of(of.branch),
            head_of: None,
            is_followed: false,
            rest: None,
        };
        let encoder = Encoder::begin(stream, &header, None)?;
        let range = SendRange { of, base, from: Position::START };
        let (mut stream, _) = send(disk, range, encoder, &mut |_| ControlFlow::Continue(()))
            .map_err(|error| match error {
                SendError::List { error, .. } | SendError::Disk(error) => Error::Disk(error),
                SendError::Thread(error) | SendError::Write(error) => Error::System(error),
                // Nobody interrupts it.
                SendError::Interrupted => {
                    Error::Stream { errno: libc::EINTR, why: error.to_string() }
                }
            })?;
        Ok(stream.flush()?)
    }

    /// Receives the version of a stream, as `dendro send` writes it, as a snapshot; or all of
    /// several that follow each other. Returns the last one. `stream` is read up to the end of the
    /// stream.
    ///
    /// The snapshot is called `name`, or without that as it was on the volume that it was sent
    /// from; so is each of several. Those of several that are here already are passed over. A
    /// version is durable when it was received, and there whole or not at all. One thread receives
    /// at a time; others wait.
    ///
    /// # Errors
    /// [`Error::Stream`] if the stream is wrong or cut off (`EBADMSG`), or if it does not fit:
    /// the version is here already (`EEXIST`), or what it is based on is not (`ENOENT`). Of
    /// several, those before are here. [`Error::Disk`] if the name is taken or cannot be one, or if
    /// there is no room. [`Error::System`] if `stream` fails.
    pub fn receive(&self, stream: impl Read, name: Option<&str>) -> Result<View> {
        let _receiving = self.open_disk().receiving();
        let disk = &**self.open_disk().disk();
        // What a failure has left takes room.
        abandon(disk)?;
        let uuid = disk.superblock().uuid;
        let mut sequence = Sequence::new(stream);
        let mut received = None;
        loop {
            let begun = sequence.next_stream().map_err(|error| error_of(error.into()))?;
            let Some(mut decoder) = begun else { break };
            let is_one_of_several = received.is_some() || decoder.header().is_followed;
            let name = name.filter(|_| !is_one_of_several);
            let view = receive_one(disk, uuid, &mut decoder, name, is_one_of_several);
            received = Some(view.map_err(error_of)?);
        }
        // A sequence has a stream at least: without one, its header is missing.
        received.ok_or_else(|| Error::Stream { errno: libc::EBADMSG, why: "no stream".into() })
    }
}

fn snapshot(table: &VersionTable, view: View) -> Result<&Snapshot> {
    Ok(table.snapshot_of(view).ok_or(DiskError::NoSuchView(view))?)
}

fn version(volume: Uuid, snapshot: &Snapshot) -> Version {
    let Snapshot { time, name, .. } = snapshot.clone();
    Version { origin: origin(volume, snapshot), time, name }
}

fn receive_one(
    disk: &dyn Versions,
    uuid: Uuid,
    decoder: &mut Decoder<impl Read>,
    name: Option<&str>,
    is_one_of_several: bool,
) -> std::result::Result<View, ReceiveError> {
    let wanted = Wanted { name, note_interval_bytes: None };
    match receive(disk, uuid, decoder, wanted, &mut |_| ControlFlow::Continue(())) {
        Err(ReceiveError::IsHere(snapshot)) if is_one_of_several => {
            while decoder.next_item()?.is_some() {}
            Ok(snapshot.view())
        }
        received => Ok(received?.view()),
    }
}

fn error_of(error: ReceiveError) -> Error {
    let why = error.to_string();
    let errno = match error {
        ReceiveError::Stream(StreamError { problem: Problem::Io(error), .. }) => {
            return Error::System(error);
        }
        ReceiveError::Disk(error) => return Error::Disk(error),
        ReceiveError::List { error, .. } => error_of_list(&error),
        ReceiveError::Stream(_) => libc::EBADMSG,
        ReceiveError::IsHere(_) | ReceiveError::PartIsHere(_) => libc::EEXIST,
        ReceiveError::NoBase(_) | ReceiveError::NoPart(_) | ReceiveError::Gap(_) => libc::ENOENT,
        ReceiveError::NumberInUse(_) => libc::EINVAL,
        // Nobody interrupts it, and nothing is kept.
        ReceiveError::Interrupted | ReceiveError::Kept { .. } => libc::EINTR,
    };
    Error::Stream { errno, why }
}

/// The number of an error that a list of the stream has met. What no list can be is an error of the
/// stream.
fn error_of_list(error: &DiskError) -> i32 {
    match error.errno() {
        libc::EINVAL | libc::EEXIST | libc::ENOENT => libc::EBADMSG,
        errno => errno,
    }
}
