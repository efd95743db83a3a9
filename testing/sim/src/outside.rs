//! A cleaner outside the engine, as the log-structured disk may meet one at any moment: mostly
//! right, sometimes outdated, sometimes lying, and gone after any of its calls.

use dendro_base::Rng;
use dendro_disk::{Error, Result};
use dendro_format::Addr;
use dendro_logdisk::LogDisk;
use dendro_logdisk::external::{Block, BlockName, SegmentFacts, SegmentStatus, SummaryCursor};

/// Begins to clean a segment, and gets as far as chance has it.
pub(crate) fn clean(disk: &LogDisk, rng: &mut Rng) -> Result<()> {
    let all = disk.segments(0, usize::MAX);
    let is_victim = |facts: &&SegmentFacts| facts.status == SegmentStatus::Dirty;
    let dirty: Vec<u32> = all.iter().filter(is_victim).map(|facts| facts.number).collect();
    if dirty.is_empty() {
        return Ok(());
    }
    let victim = dirty[rng.below(dirty.len() as u64) as usize];
    // What cannot be read is not cleaned, and no harm is done.
    let from = SummaryCursor::default();
    let Ok(told) = disk.segment_blocks(victim, from, 1 + rng.below(400) as usize) else {
        return Ok(());
    };
    let mut blocks = told.blocks;
    for block in &mut blocks {
        if rng.chance(5) {
            lie(block, rng);
        }
    }
    if rng.chance(10) {
        return Ok(());
    }
    if rng.chance(50) {
        let names: Vec<BlockName> = blocks.iter().map(|block| block.name).collect();
        let Ok(places) = disk.locate(&names) else { return Ok(()) };
        let mut places = places.into_iter();
        blocks.retain(|block| places.next().flatten() == Some(block.addr));
    }
    match disk.rewrite(&blocks) {
        // The map could not be read: some were moved, and the rest stays.
        Err(Error::Io(_)) => return Ok(()),
        outcome => drop(outcome?),
    }
    if rng.chance(30) {
        disk.release(&[victim, rng.below(20) as u32])?;
    }
    Ok(())
}

fn lie(block: &mut Block, rng: &mut Rng) {
    match (rng.below(3), &mut block.name) {
        (0, _) => block.addr = Addr(rng.next_u64()),
        (1, BlockName::Page { page_index, .. }) => *page_index = rng.below(100),
        (_, BlockName::Page { list, .. }) => *list = rng.below(50),
        (_, BlockName::Node { level, .. }) => *level = rng.below(4) as u8,
    }
}
