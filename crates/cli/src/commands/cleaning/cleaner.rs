//! A cleaner that uses only the control socket, with the engine's policies.

use std::collections::BTreeSet;

use dendro_base::Rng;
use dendro_control::cleaning::{
    BlockOutcome, BlockSource, BlocksRequest, CleaningStatus, MAX_BLOCKS, NamedBlock, SegmentFacts,
    SegmentOutcome, SegmentState, SegmentsRequest,
};
use dendro_control::{Client, ClientError};
use dendro_policy::{Class, Kind, Policy};

/// The most empty segments that wait for one checkpoint.
const MAX_EMPTIED: usize = 16;

/// What a cleaner has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Done {
    /// Segments that were emptied.
    pub(crate) segments: u64,
    /// Live bytes in them.
    pub(crate) live_bytes: u64,
    /// Blocks written again, including those of segments that could not be emptied.
    pub(crate) moved_blocks: u64,
}

/// The result of cleaning a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// It has no live data.
    Emptied,
    /// Another cleaner has cleaned it, or it is being filled.
    Gone,
    /// There was no room for its live data.
    NoRoom,
    /// Some blocks cannot be read, or belong to nothing.
    Stuck,
}

/// The cleaner.
pub(crate) struct Cleaner {
    client: Client,
    policy: Box<dyn Policy>,
    rng: Rng,
    /// Segments with a larger share of live data are not cleaned.
    most_live: f64,
    /// Segments that are not tried again.
    passed_over: BTreeSet<u32>,
    /// Segments that are empty and not yet clean.
    emptied: Vec<u32>,
    done: Done,
}

impl Cleaner {
    pub(crate) fn new(client: Client, policy: Kind, most_live: f64) -> Self {
        Self {
            client,
            policy: policy.policy(),
            rng: Rng::new(u64::from(std::process::id())),
            most_live,
            passed_over: BTreeSet::new(),
            emptied: Vec::new(),
            done: Done::default(),
        }
    }

    /// What it has done so far.
    pub(crate) const fn done(&self) -> &Done {
        &self.done
    }

    /// The segment to clean next, of those that `may_be` accepts, and the current state of the
    /// volume.
    pub(crate) fn choose(
        &mut self,
        may_be: impl Fn(&SegmentFacts, &CleaningStatus) -> bool,
    ) -> Result<(Option<SegmentFacts>, CleaningStatus), ClientError> {
        let all = self.client.all_segments()?;
        let present = all.present;
        let most_live_bytes = self.most_live * present.segment_bytes as f64;
        let is_candidate = |facts: &&SegmentFacts| {
            facts.state == SegmentState::Dirty
                && (f64::from(facts.live_bytes) <= most_live_bytes
                    || (facts.is_fast && present.fast_is_short()))
                && !self.passed_over.contains(&facts.number)
                && may_be(facts, &present)
        };
        let candidates = all.segments.iter().filter(is_candidate);
        let candidates: Vec<_> =
            candidates.map(|facts| as_policies_see_it(facts, &present)).collect();
        let now = dendro_policy::Present {
            clock: present.clock,
            live_bytes: present.live_bytes,
            segment_bytes: present.segment_bytes,
            segment_count: present.segment_count,
        };
        let chosen = self.policy.victim(&candidates, &now, &mut self.rng);
        let facts = chosen.and_then(|chosen| {
            all.segments.iter().find(|facts| facts.number == chosen.number).copied()
        });
        Ok((facts, present))
    }

    /// Empties a segment. It becomes clean together with others, by [`Self::release`] at the
    /// latest.
    pub(crate) fn clean(&mut self, victim: &SegmentFacts) -> Result<End, ClientError> {
        let mut end = self.empty(victim.number)?;
        if end == End::NoRoom && !self.emptied.is_empty() {
            self.release()?;
            end = self.empty(victim.number)?;
        }
        match end {
            End::Emptied => {
                self.done.segments += 1;
                self.done.live_bytes += u64::from(victim.live_bytes);
                self.emptied.push(victim.number);
                if self.emptied.len() >= MAX_EMPTIED {
                    self.release()?;
                }
            }
            End::Stuck => {
                self.passed_over.insert(victim.number);
            }
            End::Gone | End::NoRoom => {}
        }
        Ok(end)
    }

    /// Allows another try for segments that could not be emptied.
    pub(crate) fn forget_failures(&mut self) {
        self.passed_over.clear();
    }

    /// How many segments are empty and not known to be clean.
    pub(crate) fn emptied_count(&self) -> u32 {
        self.emptied.len() as u32
    }

    /// Makes the empty segments clean.
    pub(crate) fn release(&mut self) -> Result<(), ClientError> {
        let emptied = std::mem::take(&mut self.emptied);
        if emptied.is_empty() {
            return Ok(());
        }
        let released = self.client.segclean(emptied.clone())?;
        for (number, outcome) in emptied.into_iter().zip(released.segments) {
            if outcome == SegmentOutcome::Pending {
                self.emptied.push(number);
            }
        }
        Ok(())
    }

    fn empty(&mut self, number: u32) -> Result<End, ClientError> {
        for source in [BlockSource::Summaries, BlockSource::Map] {
            let blocks = self.live_blocks(number, source)?;
            // No reply about it: it is clean by now or being filled, or it cannot be read.
            let mut is_stuck = blocks.is_none();
            let mut live = blocks.unwrap_or_default();
            // Neighbours in a file become neighbours in the log.
            live.sort_by_key(|block| match *block {
                NamedBlock::Page { list, page, .. } => (0, list, page),
                NamedBlock::Node { node, .. } => (1, node.list, node.index),
            });
            for some in live.chunks(MAX_BLOCKS) {
                let outcomes = self.client.markv(some.to_vec())?.blocks;
                let count = |outcome| outcomes.iter().filter(|&&found| found == outcome).count();
                self.done.moved_blocks += count(BlockOutcome::Moved) as u64;
                if count(BlockOutcome::NoRoom) > 0 {
                    return Ok(End::NoRoom);
                }
                is_stuck |= count(BlockOutcome::Unreadable) > 0;
            }
            let request = SegmentsRequest { from: number, max: Some(1) };
            let now = self.client.segments(request)?.segments.first().copied();
            match now.filter(|now| now.number == number).map(|now| now.state) {
                Some(SegmentState::Pending) => return Ok(End::Emptied),
                // Nodes of the map leave it with the checkpoint that makes it clean.
                Some(SegmentState::Dirty) if !is_stuck => {}
                Some(SegmentState::Dirty) => return Ok(End::Stuck),
                _ => return Ok(End::Gone),
            }
        }
        Ok(End::Stuck)
    }

    /// The live blocks of a segment; `None` if the daemon does not report it.
    fn live_blocks(
        &self,
        segment: u32,
        source: BlockSource,
    ) -> Result<Option<Vec<NamedBlock>>, ClientError> {
        let mut live = Vec::new();
        let mut cursor = None;
        loop {
            let request = BlocksRequest { segment, source, cursor, max: None };
            let blocks = match self.client.blocks(request) {
                Err(ClientError::Refused(_)) => return Ok(None),
                other => other?,
            };
            let places = self.client.bmapv(blocks.blocks.clone())?;
            let lives = blocks.blocks.into_iter().zip(places.live);
            live.extend(lives.filter(|(_, lives)| *lives).map(|(block, _)| block));
            cursor = blocks.next;
            if cursor.is_none() {
                return Ok(Some(live));
            }
        }
    }
}

fn as_policies_see_it(facts: &SegmentFacts, present: &CleaningStatus) -> dendro_policy::Segment {
    dendro_policy::Segment {
        number: facts.number,
        live_bytes: facts.live_bytes,
        capacity_bytes: u32::try_from(present.segment_bytes).unwrap_or(u32::MAX),
        class: Class::from_number(facts.class),
        written_at: facts.written_at,
        last_death: facts.last_death,
        filled_at: facts.filled_at,
        deaths: facts.deaths,
        times_cleaned: 0,
    }
}
