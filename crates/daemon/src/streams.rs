//! Send streams: what is written and what is applied for a request, and the facts about a stream.
//! Mounted volumes and others send and receive in the same way.

use std::io::{self, Read, Write};
use std::ops::ControlFlow;

use dendro_base::{Clock, SystemClock, Uuid};
use dendro_control::streams::{
    ReceiveRequest, ReceivedInfo, SendRequest, SentHead, SentInfo, StreamInfo, StreamVersion,
};
use dendro_control::versions::VersionName;
use dendro_disk::{CommitSeq, Error, LogicalDisk, Snapshot, VersionTable, Versions, View};
use dendro_logdisk::LogDisk;
use dendro_stream::{
    Counts, Decoder, Encoder, HeadOf, Header, Level, Position, Sequence, Token, Version,
};
use dendro_transfer::{
    NOTE_INTERVAL_BYTES, Plan, ReceiveError, SendError, SendRange, Step, Wanted, abandon, abort,
    find_origin, origin, receive as receive_version, send as send_version,
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

/// Writes what `request` asks for: a stream, or a sequence of them. Names without a branch refer to
/// the branch of `here`. `go_on` is asked between pieces, with the number of bytes that were
/// written.
///
/// # Errors
/// Why it was not done, or not to its end.
pub fn send(
    disk: &LogDisk,
    here: View,
    request: &SendRequest,
    out: impl Write,
    go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<SentInfo, String> {
    let level = request
        .level
        .map(|level| Level::new(level).ok_or(format!("{level}: the levels of zstd are 1 to 19")))
        .transpose()?;
    let token = request.resume.as_ref().map(|text| text.parse::<Token>());
    let token = token.transpose().map_err(|error| error.to_string())?;
    let out = Counted { out, written_bytes: 0 };
    let mut sender = Sender { disk, level, out, go_on, sent: SentInfo::default() };
    let table = disk.versions();
    if let Some(heads) = &request.all {
        return sender.send_all(heads, token.as_ref());
    }
    let step = match &token {
        Some(token) => rest(disk, &table, token)?,
        None => {
            let of = snapshot(&table, here, &request.of)?;
            let from = request.from.as_ref();
            let base = from.map(|from| snapshot(&table, here, from)).transpose()?;
            Step { of, base, is_followed: false }
        }
    };
    if let Some(base) = &step.base
        && !table.past(step.of.view()).contains(&base)
    {
        return Err(format!(
            "{} is not in the history of {}: name a snapshot that it goes on from",
            base.title(),
            step.of.title()
        ));
    }
    sender.send(&step, token.map(|token| token.position), None)?;
    Ok(sender.sent)
}

/// What is sent of the version of which somebody has a part.
fn rest(disk: &LogDisk, table: &VersionTable, token: &Token) -> Result<Step, String> {
    let find = |origin| {
        find_origin(table, disk.superblock().uuid, origin).ok_or_else(|| {
            format!(
                "the snapshot {origin}, which the token names, is not here: it was deleted, or is \
                 of another volume"
            )
        })
    };
    let base = token.base.map(find).transpose()?;
    Ok(Step { of: find(token.version)?, base, is_followed: false })
}

/// Writes streams.
struct Sender<'a, W> {
    disk: &'a LogDisk,
    level: Option<Level>,
    out: Counted<W>,
    go_on: &'a mut dyn FnMut(u64) -> ControlFlow<()>,
    sent: SentInfo,
}

impl<W: Write> Sender<'_, W> {
    /// Sends all snapshots; from the rest of the one that `token` names on.
    fn send_all(mut self, heads: &[SentHead], token: Option<&Token>) -> Result<SentInfo, String> {
        let table = self.disk.versions();
        let mut plan = Plan::new(&table);
        let mut first = None;
        if let Some(token) = token {
            let Step { of, base, .. } = rest(self.disk, &table, token)?;
            plan = plan.beginning_with(of.epoch);
            first = Some((base, token.position));
        }
        loop {
            let Some(mut step) = plan.next_step(&self.disk.versions()) else {
                return Err("the last snapshot was deleted meanwhile".into());
            };
            let from = first.take().map(|(base, position)| {
                step.base = base;
                position
            });
            let head = heads.iter().find(|head| head.epoch == step.of.epoch);
            self.send(&step, from, head)?;
            if !step.is_followed {
                return Ok(self.sent);
            }
        }
    }

    fn send(
        &mut self,
        step: &Step,
        rest: Option<Position>,
        head: Option<&SentHead>,
    ) -> Result<(), String> {
        let volume = self.disk.superblock().uuid;
        let stream = random_bytes().map_err(|failure| failure.message)?;
        let base = step.base.as_ref();
        let header = Header {
            stream: Uuid::from_random(stream),
            source: volume,
            version: version(volume, &step.of),
            base: base.map(|base| version(volume, base)),
            is_compressed: self.level.is_some(),
            kind: self.disk.versions().kind_of(step.of.branch),
            head_of: head.map(|head| HeadOf { branch: head.branch.clone(), is_main: head.main }),
            is_followed: step.is_followed,
            rest,
        };
        let range = SendRange {
            of: step.of.view(),
            base: base.map(Snapshot::view),
            from: rest.unwrap_or(Position::START),
        };
        let before_bytes = self.out.written_bytes;
        let Self { disk, out, go_on, .. } = self;
        let mut go_on = |written_bytes| go_on(before_bytes + written_bytes);
        let sent = Encoder::begin(&mut *out, &header, self.level)
            .map_err(SendError::from)
            .and_then(|encoder| send_version(*disk, range, encoder, &mut go_on));
        let (_, counts) = sent.map_err(|error| match error {
            SendError::List { error: Error::NoSuchView(gone), .. }
            | SendError::Disk(Error::NoSuchView(gone)) => format!(
                "@{} is gone: somebody, or retention, has deleted it meanwhile",
                gone.epoch.unwrap_or_default()
            ),
            error => error.to_string(),
        })?;
        self.sent = SentInfo {
            stream_count: self.sent.stream_count + 1,
            sequence_bytes: self.out.written_bytes,
            stream: info(&header, &counts, self.out.written_bytes - before_bytes),
        };
        Ok(())
    }
}

/// Receives the versions of the streams in `input`. Nobody may receive others meanwhile. `go_on` is
/// asked between pieces, with the number of bytes that were read.
///
/// # Errors
/// Why it was not done; then nothing has changed, except that the versions before the one that was
/// not received are there.
pub fn receive(
    disk: &LogDisk,
    request: &ReceiveRequest,
    input: impl Read,
    go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<ReceivedInfo, String> {
    if request.abort {
        let count = abort(disk).map_err(|error| error.to_string())?;
        disk.flush(CommitSeq::LATEST).map_err(|error| error.to_string())?;
        return Ok(ReceivedInfo { aborted_count: Some(count as u64), ..ReceivedInfo::default() });
    }
    // What a crash has left takes room.
    abandon(disk).map_err(|error| error.to_string())?;
    let mut sequence = Sequence::new(input);
    let mut received = ReceivedInfo::default();
    loop {
        let begun = sequence.next_stream().map(|next| {
            next.map(|mut decoder| {
                let outcome = receive_one(disk, request, &mut decoder, &mut received, go_on);
                outcome.map_err(|error| error.to_string())
            })
        });
        match begun {
            Ok(None) => return Ok(received),
            Ok(Some(Ok(()))) => {}
            Ok(Some(Err(why))) => return Err(sequence.describe(&why)),
            Err(error) => return Err(sequence.describe(&error)),
        }
    }
}

/// Receives one version, and adds it to `received`.
fn receive_one(
    disk: &LogDisk,
    request: &ReceiveRequest,
    decoder: &mut Decoder<impl Read>,
    received: &mut ReceivedInfo,
    go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<(), ReceiveError> {
    let header = decoder.header().clone();
    let is_one_of_several = header.is_followed || received.sequence_bytes > 0;
    // A name that is given is that of one version.
    let name = request.name.as_deref().filter(|_| !is_one_of_several);
    let note_interval_bytes = request.resumable.then_some(NOTE_INTERVAL_BYTES);
    let wanted = Wanted { name, note_interval_bytes };
    let before_bytes = received.sequence_bytes;
    let mut go_on = |read_bytes| go_on(before_bytes + read_bytes);
    let volume = disk.superblock().uuid;
    let snapshot = match receive_version(disk, volume, decoder, wanted, &mut go_on) {
        Ok(snapshot) => {
            received.received_count += 1;
            snapshot
        }
        Err(ReceiveError::IsHere(snapshot)) if is_one_of_several => {
            while decoder.next_item()?.is_some() {}
            received.skipped_count += 1;
            *snapshot
        }
        Err(error) => return Err(error),
    };
    match header.head_of {
        Some(HeadOf { is_main: true, .. }) => received.main_snapshot = Some(snapshot.title()),
        Some(HeadOf { branch, .. })
            if request.branches && disk.versions().branch_named(&branch).is_none() =>
        {
            disk.branch_off(snapshot.view(), &branch)?;
            disk.flush(CommitSeq::LATEST)?;
            received.made_branches.push(branch);
        }
        _ => {}
    }
    received.name = snapshot.name;
    received.epoch = snapshot.epoch;
    received.sequence_bytes += decoder.read_bytes();
    received.stream = info(decoder.header(), decoder.counts(), decoder.read_bytes());
    Ok(())
}

/// Receives the versions of the streams in `input` into a volume that has nothing else, under names
/// that they did not have; up to the one that was called `last`, if that is given. Returns the
/// version that was received last.
///
/// # Errors
/// Why it was not done.
pub fn load(
    disk: &LogDisk,
    input: impl Read,
    last: Option<&str>,
    go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<View, String> {
    let mut sequence = Sequence::new(input);
    let mut newest = None;
    loop {
        let begun = sequence.next_stream().map_err(|error| error.to_string());
        let loaded = begun.and_then(|next| {
            let Some(mut decoder) = next else { return Ok(None) };
            let header = decoder.header().clone();
            let name = format!("loaded-{}", disk.versions().epoch);
            let wanted = Wanted { name: Some(&name), note_interval_bytes: None };
            let volume = disk.superblock().uuid;
            let received = receive_version(disk, volume, &mut decoder, wanted, go_on);
            let snapshot = received.map_err(|error| error.to_string())?;
            Ok(Some((snapshot.view(), header)))
        });
        match loaded.map_err(|why| sequence.describe(&why))? {
            Some((view, header)) if last.is_some() && header.version.name.as_deref() == last => {
                return Ok(view);
            }
            Some((view, _)) => newest = Some(view),
            None => break,
        }
    }
    match (last, newest) {
        (Some(last), _) => Err(format!("it has no snapshot called {last}")),
        (None, Some(view)) => Ok(view),
        (None, None) => Err("it has no snapshot".into()),
    }
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
        head_of: header.head_of.as_ref().map(|of| of.branch.clone()),
        rest: header.rest.is_some(),
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
