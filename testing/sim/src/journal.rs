//! A tiny logical disk: the model in memory, and a journal of its commits on the device.
//!
//! It shows that the harness works: the sound one passes, and each [`Bug`] planted in it must be
//! found. The journal is a row of batches, each written with one write:
//!
//! | offset | size | field                                        |
//! |-------:|-----:|----------------------------------------------|
//! |      0 |    8 | the hash of the batch before (0 for the first) |
//! |      8 |    8 | length of the payload in bytes               |
//! |     16 |    8 | hash of the payload                          |
//! |     24 |    8 | hash of the three fields above               |
//! |     32 |    … | payload: commits, then zeros to a whole block |

mod codec;

use std::ops::Range;

use dendro_base::Rng;
use dendro_base::sync::{Arc, Mutex};
use dendro_device::{BLOCK_SIZE, Device};
use dendro_disk::model::ModelDisk;
use dendro_disk::{
    Aru, CommitSeq, Completion, Error, Lid, ListHints, LogicalDisk, Record, Reservation, Result,
    ScanPoint, Scanned, Space, View,
};

use crate::disk::Engine;
use crate::system::Outcome;

const HEADER_LEN_BYTES: usize = 32;

/// What is held back in memory before a batch is written without a flush.
const BATCH_LEN_BYTES: usize = 64 << 10;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A flush writes, but does not flush the device.
    SkipFlush,
    /// Recovery does not compare the payload's hash.
    SkipPayloadHash,
    /// Recovery does not compare the hash of the batch before, so that a batch of an earlier life
    /// can be taken for a continuation.
    SkipChain,
    /// A commit's last change is left out of the journal when the commit has many.
    LoseChange,
    /// Recovery takes the commits of a batch one by one until one is broken, instead of all or
    /// none.
    TornCommit,
    /// After a failed write or flush it continues as if it had succeeded.
    ForgetFailure,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::SkipFlush,
        Self::SkipPayloadHash,
        Self::SkipChain,
        Self::LoseChange,
        Self::TornCommit,
        Self::ForgetFailure,
    ];
}

/// Makes [`Journal`]s.
#[derive(Clone, Copy, Debug, Default)]
pub struct JournalEngine {
    /// What is wrong with them.
    pub bug: Option<Bug>,
}

#[derive(Debug)]
struct Tail {
    /// Where the next batch goes.
    offset: u64,
    /// The hash of the last batch's header.
    chain: u64,
    /// Commits that were not written.
    batch: Vec<u8>,
}

/// A logical disk with a journal.
pub struct Journal {
    memory: ModelDisk,
    device: Arc<dyn Device>,
    tail: Mutex<Tail>,
    bug: Option<Bug>,
}

fn hash(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        Rng::new(hash ^ u64::from_le_bytes(word)).next_u64()
    })
}

fn word(bytes: &[u8], offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(word)
}

impl Journal {
    /// Replays the journal.
    fn open(device: Arc<dyn Device>, bug: Option<Bug>) -> Outcome<Self> {
        let memory = ModelDisk::new(None);
        let mut tail = Tail { offset: 0, chain: 0, batch: Vec::new() };
        while let Some((payload, chain)) = read_batch(&*device, &tail, bug)? {
            tail.chain = chain;
            tail.offset += batch_len(payload.len());
            codec::decode(&payload, bug == Some(Bug::TornCommit), |aru| {
                memory.commit(aru).map(drop).map_err(|error| error.to_string())
            })?;
        }
        Ok(Self { memory, device, tail: Mutex::new(tail), bug })
    }

    /// Refuses writes from now on.
    fn fail(&self, error: &dendro_device::Error) -> Error {
        let why = error.to_string();
        if self.bug != Some(Bug::ForgetFailure) {
            self.memory.fail(&why);
        }
        Error::Failed(why)
    }

    fn write(&self, tail: &mut Tail) -> Result<()> {
        if tail.batch.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(tail.batch.len() + BLOCK_SIZE);
        for field in [tail.chain, tail.batch.len() as u64, hash(&tail.batch)] {
            bytes.extend(field.to_le_bytes());
        }
        let chain = hash(&bytes);
        bytes.extend(chain.to_le_bytes());
        bytes.append(&mut tail.batch);
        bytes.resize(bytes.len().next_multiple_of(BLOCK_SIZE), 0);
        self.device.write_at(tail.offset, &bytes).map_err(|error| self.fail(&error))?;
        tail.chain = chain;
        tail.offset += bytes.len() as u64;
        Ok(())
    }
}

/// What a batch with a payload of this length takes on the device.
const fn batch_len(payload_len_bytes: usize) -> u64 {
    (HEADER_LEN_BYTES + payload_len_bytes).next_multiple_of(BLOCK_SIZE) as u64
}

/// The batch at the tail, and the chain after it; `None` when there is none that is whole.
fn read_batch(
    device: &dyn Device,
    tail: &Tail,
    bug: Option<Bug>,
) -> Outcome<Option<(Vec<u8>, u64)>> {
    let room = device.len_bytes().saturating_sub(tail.offset);
    if room < BLOCK_SIZE as u64 {
        return Ok(None);
    }
    let mut header = [0; HEADER_LEN_BYTES];
    device.read_at(tail.offset, &mut header).map_err(|error| error.to_string())?;
    let (len, chain) = (word(&header, 8), word(&header, 24));
    let continues = bug == Some(Bug::SkipChain) || word(&header, 0) == tail.chain;
    if !continues || hash(&header[..24]) != chain || len > room - HEADER_LEN_BYTES as u64 {
        return Ok(None);
    }
    let mut payload = vec![0; len as usize];
    device
        .read_at(tail.offset + HEADER_LEN_BYTES as u64, &mut payload)
        .map_err(|error| error.to_string())?;
    let checked = !matches!(bug, Some(Bug::SkipPayloadHash | Bug::TornCommit));
    if checked && hash(&payload) != word(&header, 16) {
        return Ok(None);
    }
    Ok(Some((payload, chain)))
}

impl LogicalDisk for Journal {
    fn allocate_list(&self) -> Result<Lid> {
        self.memory.allocate_list()
    }

    fn try_commit(&self, aru: &mut Aru<'_>) -> Result<CommitSeq> {
        let mut tail = self.tail.lock();
        let mut encoded = Vec::new();
        let lost = usize::from(self.bug == Some(Bug::LoseChange) && aru.ops().len() > 10);
        codec::encode(&aru.ops()[..aru.ops().len() - lost], &mut encoded);
        let end = tail.offset + batch_len(tail.batch.len() + encoded.len());
        if end > self.device.len_bytes() && !aru.reclaims() {
            let available_bytes = self.device.len_bytes() - tail.offset;
            return Err(Error::NoSpace { needed_bytes: encoded.len() as u64, available_bytes });
        }
        let seq = self.memory.try_commit(aru)?;
        tail.batch.append(&mut encoded);
        if tail.batch.len() >= BATCH_LEN_BYTES {
            self.write(&mut tail)?;
        }
        Ok(seq)
    }

    fn flush(&self, up_to: CommitSeq) -> Result<()> {
        self.memory.flush(CommitSeq(0))?;
        self.write(&mut self.tail.lock())?;
        if self.bug != Some(Bug::SkipFlush) {
            self.device.flush().map_err(|error| self.fail(&error))?;
        }
        self.memory.flush(up_to)
    }

    fn last_commit(&self) -> CommitSeq {
        self.memory.last_commit()
    }

    fn when_durable(&self, up_to: CommitSeq, then: Completion) {
        then(self.flush(up_to));
    }

    fn flush_list(&self, _: View, _: Lid) -> Result<()> {
        self.flush(CommitSeq::LATEST)
    }

    fn reserve(&self, len_bytes: u64) -> Result<Reservation> {
        self.memory.reserve(len_bytes)
    }

    fn space(&self) -> Space {
        self.memory.space()
    }

    fn read_only_reason(&self) -> Option<String> {
        self.memory.read_only_reason()
    }

    fn shut_down(&self) -> Result<()> {
        self.flush(CommitSeq::LATEST)?;
        self.memory.shut_down()
    }

    fn hints(&self, view: View, list: Lid) -> Result<Option<ListHints>> {
        self.memory.hints(view, list)
    }

    fn lists(&self, view: View, from: Lid, max: usize) -> Result<Vec<Lid>> {
        self.memory.lists(view, from, max)
    }

    fn record(&self, view: View, list: Lid, index: u64) -> Result<Option<Record>> {
        self.memory.record(view, list, index)
    }

    fn records(&self, view: View, list: Lid, from: u64, max: usize) -> Result<Vec<(u64, Record)>> {
        self.memory.records(view, list, from, max)
    }

    fn read_pages(&self, view: View, list: Lid, first_page: u64, buf: &mut [u8]) -> Result<()> {
        self.memory.read_pages(view, list, first_page, buf)
    }

    fn next_data(&self, view: View, list: Lid, from: u64) -> Result<Option<u64>> {
        self.memory.next_data(view, list, from)
    }

    fn next_hole(&self, view: View, list: Lid, from: u64) -> Result<u64> {
        self.memory.next_hole(view, list, from)
    }

    fn count_pages(&self, view: View, list: Lid, range: Range<u64>) -> Result<u64> {
        self.memory.count_pages(view, list, range)
    }

    fn scan(
        &self,
        view: View,
        from: ScanPoint,
        max: usize,
    ) -> Result<(Vec<Scanned>, Option<ScanPoint>)> {
        self.memory.scan(view, from, max)
    }
}

impl Engine for JournalEngine {
    type Disk = Journal;

    fn format(&self, device: Arc<dyn Device>) -> Outcome<()> {
        device.write_at(0, &[0; BLOCK_SIZE]).map_err(|error| error.to_string())?;
        device.flush().map_err(|error| error.to_string())
    }

    fn open(&self, device: Arc<dyn Device>) -> Outcome<Journal> {
        Journal::open(device, self.bug)
    }

    fn background(&self, disk: &Journal, _rng: &mut Rng) -> Outcome<()> {
        disk.write(&mut disk.tail.lock()).map_err(|error| error.to_string())
    }
}
