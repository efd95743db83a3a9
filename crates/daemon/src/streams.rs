//! Send streams: what is written and what is applied for a request, and the facts about a stream.
//! Mounted volumes and others send and receive in the same way.

use std::io::{self, Read, Write};
use std::ops::ControlFlow;

use dendro_base::{Clock, SystemClock, Uuid};
use dendro_control::streams::{
    ReceiveRequest, ReceivedInfo, SendRequest, StreamInfo, StreamVersion,
};
use dendro_control::versions::VersionName;
use dendro_disk::{Error, Snapshot, VersionTable, Versions, View};
use dendro_logdisk::LogDisk;
use dendro_stream::{Counts, Decoder, Encoder, Header, Level, Version};
use dendro_transfer::{
    SendError, abandon, origin, receive as receive_version, send as send_version,
};
use dendro_versions::name;

use crate::volume::random_bytes;

/// What counts the bytes that are written to it.
struct Counted<W> {
    out: W,
    written_bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let len = self.out.write(buf)?;
        self.written_bytes += len as u64;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes the stream that `request` asks for. Names without a branch refer to the branch of `here`.
/// `go_on` is asked between pieces, with the number of bytes that were written.
///
/// # Errors
/// Why it was not done, or not to its end.
pub fn send(
    disk: &LogDisk,
    here: View,
    request: &SendRequest,
    out: impl Write,
    go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<StreamInfo, String> {
    let table = disk.versions();
    let of = snapshot(&table, here, &request.of)?;
    let base = request.from.as_ref().map(|from| snapshot(&table, here, from)).transpose()?;
    if let Some(base) = &base
        && !table.past(of.view()).contains(&base)
    {
        return Err(format!(
            "{} is not in the history of {}: name a snapshot that it goes on from",
            base.title(),
            of.title()
        ));
    }
    let level = request
        .level
        .map(|level| Level::new(level).ok_or(format!("{level}: the levels of zstd are 1 to 19")))
        .transpose()?;
    let volume = disk.superblock().uuid;
    let stream = random_bytes().map_err(|failure| failure.message)?;
    let header = Header {
        stream: Uuid::from_random(stream),
        source: volume,
        version: version(volume, &of),
        base: base.as_ref().map(|base| version(volume, base)),
        is_compressed: level.is_some(),
    };
    let out = Counted { out, written_bytes: 0 };
    let view = of.view();
    let base = base.as_ref().map(Snapshot::view);
    let sent = Encoder::begin(out, &header, level)
        .map_err(SendError::from)
        .and_then(|encoder| send_version(disk, view, base, encoder, go_on));
    match sent {
        Ok((out, counts)) => Ok(info(&header, &counts, out.written_bytes)),
        Err(SendError::List { error: Error::NoSuchView(gone), .. })
        | Err(SendError::Disk(Error::NoSuchView(gone))) => Err(format!(
            "@{} is gone: somebody, or retention, has deleted it meanwhile",
            gone.epoch.unwrap_or_default()
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// Receives the version of the stream in `input`. Nobody may receive another one meanwhile. `go_on`
/// is asked between pieces, with the number of bytes that were read.
///
/// # Errors
/// Why it was not done; then nothing has changed.
pub fn receive(
    disk: &LogDisk,
    request: &ReceiveRequest,
    input: impl Read,
    go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<ReceivedInfo, String> {
    // What a crash has left takes room.
    abandon(disk).map_err(|error| error.to_string())?;
    let mut decoder = Decoder::begin(input).map_err(|error| error.to_string())?;
    let volume = disk.superblock().uuid;
    let snapshot = receive_version(disk, volume, &mut decoder, request.name.as_deref(), go_on)
        .map_err(|error| error.to_string())?;
    Ok(ReceivedInfo {
        name: snapshot.name,
        epoch: snapshot.epoch,
        stream: info(decoder.header(), decoder.counts(), decoder.read_bytes()),
    })
}

/// The snapshot that `version` names.
fn snapshot(table: &VersionTable, here: View, version: &VersionName) -> Result<Snapshot, String> {
    let view = name::resolve(table, here, version, SystemClock.now())?;
    let found = table.snapshots_on(view.branch).find(|snapshot| snapshot.view() == view);
    found.cloned().ok_or_else(|| {
        "a head changes while it is read: name a snapshot, as `dendro snapshot create` makes them"
            .to_owned()
    })
}

fn version(volume: Uuid, snapshot: &Snapshot) -> Version {
    let Snapshot { time, name, .. } = snapshot.clone();
    Version { origin: origin(volume, snapshot), time, name }
}

/// The facts about a stream of so many bytes.
#[must_use]
pub fn info(header: &Header, counts: &Counts, stream_bytes: u64) -> StreamInfo {
    StreamInfo {
        stream_uuid: header.stream.to_string(),
        source_uuid: header.source.to_string(),
        snapshot: stream_version(&header.version),
        base_snapshot: header.base.as_ref().map(stream_version),
        compressed: header.is_compressed,
        stream_bytes,
        made_lists: counts.made_lists,
        changed_lists: counts.changed_lists,
        deleted_lists: counts.deleted_lists,
        put_records: counts.put_records,
        deleted_records: counts.deleted_records,
        data_pages: counts.pages,
        zero_pages: counts.zero_pages,
        content_bytes: counts.content_bytes,
    }
}

fn stream_version(version: &Version) -> StreamVersion {
    StreamVersion {
        name: version.name.clone(),
        volume_uuid: version.origin.volume.to_string(),
        epoch: version.origin.epoch,
        created_unix_ns: version.time.0,
    }
}
