//! What versions take, and where they differ.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use dendro_disk::{Lid, Result, Share, View};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::{Key, Space, Value};
use rustc_hash::FxHashMap;

use crate::disk::LogDisk;
use crate::fault::Fault;
use crate::lineage::{Lineage, Stretch};
use crate::reap::Entry;
use crate::store::Held;
use crate::versions::Versions;

/// Entries of the map looked at with the lock held once.
const STEP_LEN: usize = 4096;

/// Someone who sees blocks.
struct Seer {
    nearest: Stretch,
    /// Whose share it adds to, by number: a version's own, or of a moment that only the one branch
    /// made from it needs, that branch's. `None`: what it sees goes with no single version.
    owner: Option<usize>,
    is_version: bool,
}

/// Those who see something of one branch, by the last epoch that they see of it.
#[derive(Default)]
struct OnBranch {
    /// Last epoch, and number of the seer.
    seers: Vec<(u64, usize)>,
    /// For each of these, by how much more it sees than the one before.
    more_bytes: Vec<i64>,
}

impl OnBranch {
    /// The places in [`Self::seers`] of those who see what was written in epoch `from` and gave way
    /// in epoch `to`; 2⁶⁴ − 1 when it has not.
    fn range(&self, from: u64, to: u64) -> Range<usize> {
        let at = |epoch: u64| self.seers.partition_point(|(last, _)| *last < epoch);
        let end = if to == u64::MAX { self.seers.len() } else { at(to) };
        at(from)..end.max(at(from))
    }
}

/// All versions, and the moments that branches were made from.
struct Seers {
    shares: Vec<Share>,
    /// In the order of their owners.
    seers: Vec<Seer>,
    lineage: Lineage,
    branches: FxHashMap<u32, OnBranch>,
}

impl Seers {
    fn of(versions: &Versions) -> Result<Self> {
        let views: Vec<View> = versions.table().views().collect();
        let mut seers = Vec::new();
        for (number, view) in views.iter().enumerate() {
            let nearest = versions.line(*view)?.nearest();
            seers.push(Seer { nearest, owner: Some(number), is_version: true });
        }
        let heads: FxHashMap<u32, usize> = (0..)
            .zip(&views)
            .filter(|(_, view)| view.epoch.is_none())
            .map(|(number, view)| (view.branch, number))
            .collect();
        for (branch, last_epoch, child) in versions.forks() {
            let nearest = Stretch { branch, last_epoch };
            let owner = child.and_then(|child| heads.get(&child).copied());
            seers.push(Seer { nearest, owner, is_version: false });
        }
        seers.sort_by_key(|seer| seer.owner);
        let mut branches: FxHashMap<u32, OnBranch> = FxHashMap::default();
        for (number, seer) in seers.iter().enumerate() {
            for stretch in versions.lineage().line_of(seer.nearest).stretches() {
                let on_branch = branches.entry(stretch.branch).or_default();
                on_branch.seers.push((stretch.last_epoch, number));
            }
        }
        for on_branch in branches.values_mut() {
            on_branch.seers.sort_unstable();
            on_branch.more_bytes = vec![0; on_branch.seers.len() + 1];
        }
        let share = |view| Share { view, exclusive_bytes: 0, seen_bytes: 0 };
        let shares = views.into_iter().map(share).collect();
        Ok(Self { shares, seers, lineage: versions.lineage().clone(), branches })
    }

    /// Adds up who sees which pages of a chunk.
    fn add(&mut self, chunk: &[Entry], of_list: &[Entry]) {
        let branch = chunk[0].0.branch;
        if chunk.iter().chain(of_list).all(|(key, _)| key.branch == branch) {
            self.add_of_branch(branch, chunk, of_list);
        } else {
            self.add_of_several(chunk, of_list);
        }
    }

    /// As [`Self::add`], where all was written in one branch: each page is seen by those who see of it
    /// what was written from when the page was to when it gave way.
    fn add_of_branch(&mut self, branch: u32, chunk: &[Entry], of_list: &[Entry]) {
        let Some(on_branch) = self.branches.get_mut(&branch) else { return };
        let is_there = |entry: &Entry| matches!(entry.1, Value::List(_));
        let periods = of_list.chunk_by(|a, b| is_there(a) == is_there(b));
        let ends = periods.clone().skip(1).map(|period| period[0].0.epoch).chain([u64::MAX]);
        for (period, end) in periods.zip(ends).filter(|(period, _)| is_there(&period[0])) {
            let made = period[0].0;
            // From the last to the first: until when each slot's page is seen.
            let mut until = [end; CHUNK_PAGES as usize];
            for (key, value) in chunk.iter().rev() {
                let Value::Chunk(pages) = value else { continue };
                for (slot, page) in pages.iter() {
                    let end = until[slot as usize];
                    let range = on_branch.range(key.epoch.max(made.epoch), end);
                    let bytes = u64::from(page.footprint_bytes());
                    on_branch.more_bytes[range.start] += bytes as i64;
                    on_branch.more_bytes[range.end] -= bytes as i64;
                    let mut owners =
                        on_branch.seers[range].iter().map(|(_, at)| self.seers[*at].owner);
                    if let Some(Some(owner)) = owners.next()
                        && owners.all(|other| other == Some(owner))
                    {
                        self.shares[owner].exclusive_bytes += bytes;
                    }
                }
                for slot in (0..CHUNK_PAGES as u32).filter(|slot| pages.said() >> slot & 1 == 1) {
                    until[slot as usize] = until[slot as usize].min(key.epoch);
                }
            }
        }
    }

    /// As [`Self::add`], asking everyone.
    fn add_of_several(&mut self, chunk: &[Entry], of_list: &[Entry]) {
        // How many owners see each page of each entry, and the last that did.
        let mut seen_by: BTreeMap<(usize, u32), (usize, Option<usize>)> = BTreeMap::new();
        for seer in &self.seers {
            let line = self.lineage.line_of(seer.nearest);
            let newest = of_list.iter().rev().find(|(key, _)| line.sees(key));
            if !matches!(newest, Some((_, Value::List(_)))) {
                continue;
            }
            let mut said = 0_u32;
            for (at, (key, value)) in chunk.iter().enumerate().rev() {
                let Value::Chunk(pages) = value else { continue };
                if !line.sees(key) {
                    continue;
                }
                for (slot, page) in pages.iter().filter(|(slot, _)| said >> slot & 1 == 0) {
                    if let Some(owner) = seer.owner.filter(|_| seer.is_version) {
                        self.shares[owner].seen_bytes += u64::from(page.footprint_bytes());
                    }
                    let (count, last) = seen_by.entry((at, slot)).or_default();
                    if *count == 0 || seer.owner.is_none() || *last != seer.owner {
                        *count += 1;
                    }
                    *last = seer.owner;
                }
                said |= pages.said();
            }
        }
        for ((at, slot), (count, owner)) in seen_by {
            let Value::Chunk(pages) = &chunk[at].1 else { continue };
            if let (1, Some(owner), Some(page)) = (count, owner, pages.get(slot)) {
                self.shares[owner].exclusive_bytes += u64::from(page.footprint_bytes());
            }
        }
    }

    /// What each version sees, and has alone.
    fn finish(mut self) -> Vec<Share> {
        for on_branch in self.branches.values() {
            let mut seen_bytes = 0_i64;
            for ((_, at), more_bytes) in on_branch.seers.iter().zip(&on_branch.more_bytes) {
                seen_bytes += more_bytes;
                let seer = &self.seers[*at];
                if let Some(owner) = seer.owner.filter(|_| seer.is_version) {
                    self.shares[owner].seen_bytes += seen_bytes as u64;
                }
            }
        }
        self.shares
    }
}

impl LogDisk {
    /// Goes through the map and adds up, for each version, the blocks that it sees and those that
    /// only it sees.
    pub(crate) fn count_shares(&self) -> Result<Vec<Share>> {
        let mut seers = Seers::of(&self.core.read().state.versions)?;
        let mut next = Key::MIN;
        loop {
            let (things, end) = self.look(|core, nodes| {
                let mut things: Vec<(Vec<Entry>, Vec<Entry>)> = Vec::new();
                let end = core.end_of_step(&next, nodes)?;
                if let Some(end) = &end {
                    core.state.visit_things(&next, end, nodes, &mut |entries, of_list| {
                        if entries[0].0.space == Space::Chunks {
                            things.push((entries.to_vec(), of_list.to_vec()));
                        }
                    })?;
                }
                Ok((things, end))
            })?;
            for (chunk, of_list) in &things {
                seers.add(chunk, of_list);
            }
            match end {
                Some(end) => next = end,
                None => return Ok(seers.finish()),
            }
        }
    }

    /// Lists that have an entry that only one of the two views sees. Where nothing was written
    /// since the views have parted, the map is not looked at.
    pub(crate) fn find_changed_lists(
        &self,
        a: View,
        b: View,
        from: Lid,
        max: usize,
    ) -> Result<Vec<Lid>> {
        let mut lists = Vec::new();
        let mut next = Key::first(from.0, Space::List, 0);
        let end = Key::first(Lid::CLIENT_END.0, Space::List, 0);
        let mut nodes = Held::cached(&self.store);
        while lists.len() < max {
            let core = self.core.read();
            let lines = (core.state.versions.line(a)?, core.state.versions.line(b)?);
            let common = lines.0.parts_after(&lines.1);
            let mut count = 0;
            let mut found = None;
            let mut at = next;
            let walked = core.state.map.visit_newer(&next, &end, common, &nodes, &mut |key, _| {
                count += 1;
                at = *key;
                if lines.0.sees(key) != lines.1.sees(key) {
                    found = Some(key.list);
                }
                if found.is_some() || count > STEP_LEN {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            match walked {
                Ok(()) => {}
                Err(Fault::Miss(place)) => {
                    let _pin = core.state.segments.pin(place.addr);
                    drop(core);
                    nodes.load(&place)?;
                    continue;
                }
                Err(fault) => return Err(fault.into_error()),
            }
            if let Some(list) = found {
                lists.push(Lid(list));
                next = Key::first(list + 1, Space::List, 0);
            } else if count > STEP_LEN {
                next = at;
            } else {
                break;
            }
            drop(core);
            nodes = Held::cached(&self.store);
        }
        Ok(lists)
    }
}
