//! Receives a version of a disk from a stream, whole or not at all.
//!
//! A version is received into a branch of its own, which starts from this disk's copy of the base.
//! When the end of the stream was read and is right, one change makes a snapshot of the branch.
//! Until then nobody can name what was received, and after a crash it is deleted ([`abandon`]).
//!
//! Where the caller wants that, a part that was received is kept when the stream breaks off. Then
//! the branch has a [`Token`] as its note: everything before its position is in the branch. The
//! note is a commit behind those that it speaks of, so it is true after a crash too. What lies
//! behind its position may be in the branch already; it comes again with the rest of the stream,
//! which [`apply`](crate::apply) takes twice without a difference.

use std::io::Read;
use std::ops::ControlFlow;

use dendro_base::{Origin, Uuid};
use dendro_disk::{Branch, CommitSeq, Error, Snapshot, VersionTable, Versions, View, check_name};
use dendro_stream::{Decoder, Header, Position, Token, Version};

use crate::apply::Applier;
use crate::error::ReceiveError;
use crate::origin;

/// A good number of bytes that are received between two notes. After a crash, at most so many are
/// sent again.
pub const NOTE_INTERVAL_BYTES: u64 = 64 << 20;

/// Deletes what is left of versions that were not received completely, and that are not kept to be
/// gone on with. No version may be received meanwhile, but clients may be made: what begins one
/// stays until the disk is opened the next time ([`dendro_disk::abandon`]).
///
/// # Errors
/// As [`Versions::delete`].
pub fn abandon(disk: &dyn Versions) -> Result<(), Error> {
    let table = disk.versions();
    let is_meant = |branch: &Branch| {
        branch.receive_note().is_none() && table.own_kind(branch.branch).is_none()
    };
    delete_where(disk, &is_meant).map(drop)
}

/// Deletes all that is there of versions that were not received completely, and returns of how many
/// there was something. No version may be received meanwhile.
///
/// # Errors
/// As [`Versions::delete`].
pub fn abort(disk: &dyn Versions) -> Result<usize, Error> {
    delete_where(disk, &|_| true)
}

fn delete_where(disk: &dyn Versions, is_meant: &dyn Fn(&Branch) -> bool) -> Result<usize, Error> {
    let table = disk.versions();
    let meant = table.branches().filter(|branch| branch.is_receiving() && is_meant(branch));
    let heads: Vec<View> = meant.map(Branch::head).collect();
    heads.iter().try_for_each(|head| disk.delete(*head))?;
    Ok(heads.len())
}

/// The versions of which a part is kept, and how far each was received.
pub fn kept_parts(table: &VersionTable) -> impl Iterator<Item = Token> {
    table.branches().filter_map(token_of)
}

fn token_of(branch: &Branch) -> Option<Token> {
    branch.receive_note()?.parse().ok()
}

/// How a version is received.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// The name of the snapshot; `None`: the one that it had on the volume that sent it.
    pub name: Option<&'a str>,
    /// After how many bytes it is noted how far it was received, so that this much is kept if it
    /// breaks off; `None`: nothing is kept.
    pub note_interval_bytes: Option<u64>,
}

/// Receives the version of a stream into `disk`, the volume `volume`, as a snapshot. It is durable
/// when this returns. `go_on` is asked between pieces, with the number of bytes of the stream that
/// were read.
///
/// # Errors
/// [`ReceiveError`]; nothing has changed then that anybody sees.
pub fn receive<R: Read>(
    disk: &dyn Versions,
    volume: Uuid,
    decoder: &mut Decoder<R>,
    wanted: Wanted<'_>,
    go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Snapshot, ReceiveError> {
    let header = decoder.header().clone();
    let name = wanted.name.or(header.version.name.as_deref());
    let place = find_place(&disk.versions(), volume, &header, name)?;
    let mut receiver = Receiver::begin(disk, &header, place, wanted.note_interval_bytes)?;
    let received = receiver.take_all(decoder, go_on).and_then(|()| {
        let Version { origin, time, .. } = header.version;
        Ok(disk.end_receive(receiver.head().branch, name, origin, time)?)
    });
    match received {
        Ok(snapshot) => {
            disk.flush(CommitSeq::LATEST)?;
            Ok(snapshot)
        }
        Err(error) => Err(receiver.break_off(error)),
    }
}

/// Where a version is received.
enum Place {
    /// In a new branch that starts from this snapshot, or from nothing.
    New(Option<View>),
    /// In the branch that has a part of it.
    Part(View, Token),
}

/// Checks what can be checked before the stream is read.
fn find_place(
    table: &VersionTable,
    volume: Uuid,
    header: &Header,
    name: Option<&str>,
) -> Result<Place, ReceiveError> {
    let find = |version: &Version| {
        table.snapshots().find(|snapshot| origin(volume, snapshot) == version.origin)
    };
    if let Some(snapshot) = find(&header.version) {
        return Err(ReceiveError::IsHere(Box::new(snapshot.clone())));
    }
    if let Some(name) = name {
        check_name(name)?;
        if table.snapshot_named(name).is_some() {
            return Err(Error::NameTaken(name.to_owned()).into());
        }
    }
    let base = header.base.as_ref().map(|base| base.origin);
    let part = table.branches().find_map(|branch| {
        let token = token_of(branch).filter(|token| token.version == header.version.origin)?;
        Some((branch.head(), token))
    });
    match (header.rest, part) {
        (None, Some((_, token))) => Err(ReceiveError::PartIsHere(Box::new(token))),
        (Some(rest), Some((head, token))) if token.base == base => match rest <= token.position {
            true => Ok(Place::Part(head, token)),
            false => Err(ReceiveError::Gap(Box::new(token))),
        },
        (Some(_), _) => Err(ReceiveError::NoPart(Box::new(header.version.clone()))),
        (None, None) => match &header.base {
            None => Ok(Place::New(None)),
            Some(base) => match find(base) {
                Some(snapshot) => Ok(Place::New(Some(snapshot.view()))),
                None => Err(ReceiveError::NoBase(Box::new(base.clone()))),
            },
        },
    }
}

/// A version that is being received.
struct Receiver<'d> {
    disk: &'d dyn Versions,
    applier: Applier<'d>,
    /// What is noted; `None`: nothing is kept.
    token: Option<Token>,
    note_interval_bytes: u64,
}

impl<'d> Receiver<'d> {
    fn begin(
        disk: &'d dyn Versions,
        header: &Header,
        place: Place,
        interval_bytes: Option<u64>,
    ) -> Result<Self, ReceiveError> {
        let note_interval_bytes = interval_bytes.unwrap_or(NOTE_INTERVAL_BYTES);
        match place {
            Place::Part(head, token) => {
                let applier = Applier::again(disk, head);
                Ok(Self { disk, applier, token: Some(token), note_interval_bytes })
            }
            Place::New(base) => {
                let head = disk.begin_receive(base, header.kind)?.head();
                let applier = Applier::new(disk, head);
                let mut receiver = Self { disk, applier, token: None, note_interval_bytes };
                if interval_bytes.is_some() {
                    let (version, base) =
                        (header.version.origin, header.base.as_ref().map(|base| base.origin));
                    let token = Token { version, base, position: Position::START };
                    receiver.note(token).map_err(|error| receiver.break_off(error.into()))?;
                }
                Ok(receiver)
            }
        }
    }

    const fn head(&self) -> View {
        self.applier.head()
    }

    fn take_all<R: Read>(
        &mut self,
        decoder: &mut Decoder<R>,
        go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), ReceiveError> {
        let mut read_bytes = decoder.read_bytes();
        let mut noted_bytes = read_bytes;
        loop {
            let Some(item) = decoder.next_item()? else { return self.applier.settle() };
            self.applier.take(&item, &mut || go_on(read_bytes))?;
            // Once for each frame.
            if decoder.read_bytes() != read_bytes {
                read_bytes = decoder.read_bytes();
                if go_on(read_bytes).is_break() {
                    return Err(ReceiveError::Interrupted);
                }
                if read_bytes - noted_bytes >= self.note_interval_bytes {
                    noted_bytes = read_bytes;
                    self.note_position()?;
                }
            }
        }
    }

    /// Notes how far it was received, if that is to be kept.
    fn note_position(&mut self) -> Result<(), ReceiveError> {
        let Some(token) = self.token else { return Ok(()) };
        self.applier.settle()?;
        // The rest of a stream may begin before what is here.
        let position = self.applier.position().max(token.position);
        Ok(self.note(Token { position, ..token })?)
    }

    fn note(&mut self, token: Token) -> Result<(), Error> {
        self.disk.note_receive(self.head().branch, &token.to_string())?;
        self.token = Some(token);
        Ok(())
    }

    /// Deletes what was received, or keeps it. Returns the error that says so.
    fn break_off(&mut self, error: ReceiveError) -> ReceiveError {
        let is_hopeless = matches!(error, ReceiveError::NumberInUse(_));
        if self.token.is_none() || is_hopeless {
            // If that fails, whoever opens the disk next does it.
            let _ = self.disk.delete(self.head());
            return error;
        }
        // After an error of the disk, what was taken last may be missing: the note before holds.
        let is_of_stream = matches!(error, ReceiveError::Stream(_) | ReceiveError::Interrupted);
        if is_of_stream {
            let _ = self.note_position();
        }
        let _ = self.disk.flush(CommitSeq::LATEST);
        match self.token {
            Some(token) => ReceiveError::Kept { token: Box::new(token), error: Box::new(error) },
            None => error,
        }
    }
}

/// Where the snapshot with this origin is on the volume `volume`.
#[must_use]
pub fn find_origin(table: &VersionTable, volume: Uuid, wanted: Origin) -> Option<Snapshot> {
    table.snapshots().find(|snapshot| origin(volume, snapshot) == wanted).cloned()
}
