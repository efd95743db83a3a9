//! What other modules see of the engine, and tell it.

use dendro_base::sync::Arc;
use dendro_base::{Clock, Uuid};
use dendro_disk::Error;

use crate::engine::Engine;
use crate::engine::main_head::MainHead;
use crate::engine::reuse_queue::ReuseQueue;
use crate::engine::streams::Streams;
use crate::log::writer::{Closed, Writer};
use crate::map::budget::Others;

impl Engine {
    /// The end of the main log.
    pub(crate) const fn log(&self) -> &MainHead {
        &self.log
    }

    /// The payload streams.
    pub(crate) const fn streams(&self) -> &Streams {
        &self.streams
    }

    /// The segments that are to be filled again without a checkpoint.
    pub(crate) const fn reuse_queue(&self) -> &ReuseQueue {
        &self.reuse_queue
    }

    /// The number of the last commit.
    pub(crate) const fn commit_seq(&self) -> u64 {
        self.commit_seq
    }

    pub(crate) const fn uuid(&self) -> Uuid {
        self.uuid
    }

    pub(crate) const fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) const fn writer(&self) -> &Arc<Writer> {
        &self.writer
    }

    /// Notes that the main log is durable up to this partial segment.
    pub(crate) fn note_durable(&mut self, partial_seq: u64) {
        self.durable_seq = self.durable_seq.max(partial_seq);
        self.reuse_queue.note_durable(partial_seq);
    }

    /// Bytes of log since the last checkpoint.
    pub(crate) const fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// The bytes of log that recovery would read.
    pub(crate) const fn replay_bytes(&self) -> u64 {
        self.replay_bytes
    }

    /// Notes that so much log lies behind the checkpoint from which the volume was opened.
    pub(crate) const fn note_recovered(&mut self, log_bytes: u64) {
        self.log_bytes = log_bytes;
    }

    /// Notes that recovery begins here once the checkpoint is durable that was just frozen.
    pub(crate) const fn note_frozen(&mut self) {
        (self.log_bytes, self.replay_bytes) = (0, 0);
    }

    /// The reason why no more units are accepted, if they are not.
    pub(crate) const fn closed_reason(&self) -> Option<&Error> {
        self.closed_reason.as_ref()
    }

    /// Accepts no more units, unless it does so already for another reason.
    pub(crate) fn close(&mut self, reason: Error) {
        self.closed_reason.get_or_insert(reason);
    }

    /// Accepts units again.
    pub(crate) fn reopen(&mut self) {
        self.closed_reason = None;
    }

    /// The number of clean segments that payload streams do not take: the reserves.
    pub(crate) const fn kept_segments(&self) -> usize {
        self.kept_segments
    }

    /// Sets the number of clean segments that payload streams do not take.
    pub(crate) const fn keep_segments(&mut self, count: u64) {
        self.kept_segments = count as usize;
    }

    /// What takes memory beside the clean nodes of the map.
    pub(crate) fn beside_clean_nodes(&self) -> Others {
        Others {
            table_bytes: self.state.segments().memory_bytes(),
            resident_bytes: self.state.map().resident_bytes(),
        }
    }

    /// Partial segments that have not been written yet.
    pub(crate) fn unwritten(&self) -> impl Iterator<Item = &Closed> {
        self.in_memory.iter().map(|closed| &**closed)
    }

    /// Counts a unit that was applied, with its bytes of pages and of records.
    pub(crate) const fn count_unit(&mut self, page_bytes: u64, record_bytes: u64) {
        self.commit_seq += 1;
        self.user_page_bytes += page_bytes;
        self.user_record_bytes += record_bytes;
    }

    /// Notes that the stream of the map has written this much.
    pub(crate) const fn note_map_written(&mut self, len_bytes: u64) {
        self.written_bytes += len_bytes;
    }

    /// Notes that a client waits for a flush.
    pub(crate) fn note_flush(&mut self) {
        self.streams.note_flush();
        self.state.segments_mut().note_flush();
    }

    /// The bytes that were written to the log since the disk was opened.
    pub(crate) const fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    pub(crate) const fn user_page_bytes(&self) -> u64 {
        self.user_page_bytes
    }

    pub(crate) const fn user_record_bytes(&self) -> u64 {
        self.user_record_bytes
    }
}
