//! What a mount begins with: the newest superblock, and the checkpoint that it names.

use dendro_base::units::PAGE_SIZE;
use dendro_disk::Error;
use dendro_format::superblock::SUPERBLOCK_LEN_BYTES;
use dendro_format::{Addr, Superblock, checksum, checksum_append};

use crate::damage::Part;
use crate::volume::Volume;

/// What is damaged: where it lies, what it is, and what is wrong.
type Problem = (Addr, Part, String);

impl Volume {
    /// Reads the newest superblock and its checkpoint. Returns how many of these are damaged.
    pub(super) fn scrub_roots(&self) -> u64 {
        let newest = self.superblock().clone();
        let checkpoints = [Some(newest.checkpoint_addr), newest.checkpoint_mirror];
        let checkpoints =
            checkpoints.into_iter().flatten().map(|addr| self.checkpoint_problem(&newest, addr));
        let problems: Vec<_> =
            [self.superblock_problem(&newest)].into_iter().chain(checkpoints).collect();
        // What a new checkpoint has replaced may have been overwritten.
        if self.superblock().seq != newest.seq {
            return 0;
        }
        let problems = problems.into_iter().flatten();
        problems
            .map(|(addr, part, why)| self.damage().note(addr, part, &Error::Corrupted(why)))
            .count() as u64
    }

    fn superblock_problem(&self, newest: &Superblock) -> Option<Problem> {
        let offset = self.layout().superblock_offset(newest.seq);
        let mut slot = [0; SUPERBLOCK_LEN_BYTES];
        let problem = match self.device().read_at(offset, &mut slot) {
            Err(error) => error.to_string(),
            Ok(()) => match Superblock::decode(&slot) {
                Ok(found) if found.seq == newest.seq && found.uuid == newest.uuid => return None,
                Ok(_) => "it is another one than the newest".into(),
                Err(malformed) => malformed.problem.to_owned(),
            },
        };
        let addr = Addr::from_bytes(offset);
        Some((addr, Part::Superblock, format!("the newest superblock, at {addr}: {problem}")))
    }

    /// What is wrong with the copy of the newest checkpoint at `addr`.
    fn checkpoint_problem(&self, newest: &Superblock, addr: Addr) -> Option<Problem> {
        let mut crc32c = checksum(&[]);
        let mut at_bytes = addr.bytes();
        let end_bytes = at_bytes + u64::from(newest.checkpoint_len_bytes);
        let mut piece = [0; 16 * PAGE_SIZE];
        while at_bytes < end_bytes {
            let len = (end_bytes - at_bytes).min(piece.len() as u64) as usize;
            if let Err(error) = self.device().read_at(at_bytes, &mut piece[..len]) {
                let problem = format!("the checkpoint at {addr}: {error}");
                return Some((addr, Part::Checkpoint, problem));
            }
            crc32c = checksum_append(crc32c, &piece[..len]);
            at_bytes += len as u64;
        }
        if crc32c == newest.checkpoint_crc32c {
            return None;
        }
        let problem = format!("the checkpoint at {addr}: its checksum is wrong");
        Some((addr, Part::Checkpoint, problem))
    }
}
