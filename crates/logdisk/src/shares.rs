//! What versions take, and where they differ.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use dendro_disk::{Lid, Result, Share, View};
use dendro_format::{Key, Space, Value};

use crate::disk::LogDisk;
use crate::fault::Fault;
use crate::line::Line;
use crate::reap::Entry;
use crate::store::Held;
use crate::versions::Versions;

/// Entries of the map looked at with the lock held once.
const STEP_LEN: usize = 4096;

/// Someone who sees blocks.
struct Seer {
    line: Line,
    /// Whose share it adds to, by number: a version's own, or of a moment that only the one branch
    /// made from it needs, that branch's. `None`: what it sees goes with no single version.
    owner: Option<usize>,
    is_version: bool,
}

/// All versions, and the moments that branches were made from.
struct Seers {
    shares: Vec<Share>,
    /// In the order of their owners.
    seers: Vec<Seer>,
}

impl Seers {
    fn of(versions: &Versions) -> Result<Self> {
        let views: Vec<View> = versions.table().views().collect();
        let mut seers = Vec::new();
        for (number, view) in views.iter().enumerate() {
            let line = versions.line(*view)?;
            seers.push(Seer { line, owner: Some(number), is_version: true });
        }
        for (line, child) in versions.forks() {
            let is_child = |view: &View| view.epoch.is_none() && Some(view.branch) == child;
            let owner = views.iter().position(is_child);
            seers.push(Seer { line, owner, is_version: false });
        }
        seers.sort_by_key(|seer| seer.owner);
        let share = |view| Share { view, exclusive_bytes: 0, seen_bytes: 0 };
        Ok(Self { shares: views.into_iter().map(share).collect(), seers })
    }

    /// Adds up who sees which pages of a chunk.
    fn add(&mut self, chunk: &[Entry], of_list: &[Entry]) {
        // How many owners see each page of each entry, and the last that did.
        let mut seen_by: BTreeMap<(usize, u32), (usize, Option<usize>)> = BTreeMap::new();
        for seer in &self.seers {
            let newest = of_list.iter().rev().find(|(key, _)| seer.line.sees(key));
            if !matches!(newest, Some((_, Value::List(_)))) {
                continue;
            }
            let mut said = 0_u32;
            for (at, (key, value)) in chunk.iter().enumerate().rev() {
                let Value::Chunk(pages) = value else { continue };
                if !seer.line.sees(key) {
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
                said |= pages.present() | pages.holes();
            }
        }
        for ((at, slot), (count, owner)) in seen_by {
            let Value::Chunk(pages) = &chunk[at].1 else { continue };
            if let (1, Some(owner), Some(page)) = (count, owner, pages.get(slot)) {
                self.shares[owner].exclusive_bytes += u64::from(page.footprint_bytes());
            }
        }
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
                None => return Ok(seers.shares),
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
