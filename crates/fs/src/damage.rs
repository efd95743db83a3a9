//! Damage that was found, recorded in the volume until a user acknowledges it. The records are in
//! the list that describes the volume, in the main branch's head. Software that does not know them
//! ignores them.

use dendro_base::Timestamp;
use dendro_disk::{Aru, LogicalDisk, View};
use zerocopy::IntoBytes;

use crate::error::Result;
use crate::layout::format::{
    DAMAGE_BASE, DAMAGE_END, DAMAGE_NO_VERSION, DAMAGE_OF_HEAD, DamageV1, RECORD_VERSION,
    VOLUME_LIST, split_bytes, split_head,
};

/// The most places that are recorded.
pub const MAX_KEPT_DAMAGE: usize = (DAMAGE_END - DAMAGE_BASE) as usize;

/// The longest path, and the longest description, that are not cut off.
const MAX_PATH_LEN: usize = 640;
const MAX_PROBLEM_LEN: usize = 240;

/// What a damaged place holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamagedPart {
    /// A page: its list, and its index in the list.
    Page(u64, u64),
    /// A node of the map.
    Node,
    /// The header or the records of a partial segment.
    Records,
    /// A checkpoint.
    Checkpoint,
    /// A superblock.
    Superblock,
    /// One of two copies of a node of the map, of which the other is sound.
    NodeCopy,
}

impl DamagedPart {
    /// Its number, list and page in a record.
    const fn encode(self) -> (u8, u64, u64) {
        match self {
            Self::Page(list, page) => (0, list, page),
            Self::Node => (0, 0, 0),
            Self::Records => (1, 0, 0),
            Self::Checkpoint => (2, 0, 0),
            Self::Superblock => (3, 0, 0),
            Self::NodeCopy => (4, 0, 0),
        }
    }

    const fn decode(number: u8, list: u64, page: u64) -> Self {
        match number {
            1 => Self::Records,
            2 => Self::Checkpoint,
            3 => Self::Superblock,
            4 => Self::NodeCopy,
            _ if list != 0 => Self::Page(list, page),
            _ => Self::Node,
        }
    }

    /// The list and the index of a page.
    #[must_use]
    pub const fn page(self) -> Option<(u64, u64)> {
        match self {
            Self::Page(list, page) => Some((list, page)),
            _ => None,
        }
    }
}

/// A place on the device whose content is not what was written there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptDamage {
    /// The address in bytes.
    pub addr_bytes: u64,
    /// What lies there.
    pub part: DamagedPart,
    /// A version that contains it, if one was found.
    pub view: Option<View>,
    /// The path of the file in that version; empty if none was found.
    pub path: Vec<u8>,
    /// What is wrong.
    pub problem: String,
    /// When it was found first.
    pub first: Timestamp,
    /// When it was found last.
    pub last: Timestamp,
    /// How often it was found.
    pub met_count: u64,
}

impl KeptDamage {
    fn encode(&self) -> Vec<u8> {
        let path = &self.path[..self.path.len().min(MAX_PATH_LEN)];
        let mut problem = self.problem.as_str();
        while problem.len() > MAX_PROBLEM_LEN {
            problem = problem.char_indices().next_back().map_or("", |(at, _)| &problem[..at]);
        }
        let (part, list, page) = self.part.encode();
        let (branch, epoch) = match self.view {
            Some(View { branch, epoch }) => (branch, epoch.unwrap_or(DAMAGE_OF_HEAD)),
            None => (DAMAGE_NO_VERSION, 0),
        };
        let head = DamageV1 {
            version: RECORD_VERSION,
            part,
            path_len: (path.len() as u16).into(),
            problem_len: (problem.len() as u16).into(),
            reserved1: 0.into(),
            branch: branch.into(),
            reserved2: 0.into(),
            epoch: epoch.into(),
            addr: self.addr_bytes.into(),
            list: list.into(),
            page: page.into(),
            first_nanos: self.first.0.into(),
            last_nanos: self.last.0.into(),
            met_count: self.met_count.into(),
        };
        [head.as_bytes(), path, problem.as_bytes()].concat()
    }

    fn decode(record: &[u8]) -> Result<Self> {
        let (head, rest) = split_head::<DamageV1>(record, "a record of damage")?;
        let (path, rest) = split_bytes(rest, usize::from(head.path_len.get()), "a path")?;
        let (problem, _) = split_bytes(rest, usize::from(head.problem_len.get()), "a problem")?;
        let epoch = Some(head.epoch.get()).filter(|&epoch| epoch != DAMAGE_OF_HEAD);
        let view = View { branch: head.branch.get(), epoch };
        Ok(Self {
            addr_bytes: head.addr.get(),
            part: DamagedPart::decode(head.part, head.list.get(), head.page.get()),
            view: Some(view).filter(|view| view.branch != DAMAGE_NO_VERSION),
            path: path.to_vec(),
            problem: String::from_utf8_lossy(problem).into_owned(),
            first: Timestamp(head.first_nanos.get()),
            last: Timestamp(head.last_nanos.get()),
            met_count: head.met_count.get(),
        })
    }
}

/// The damage that is recorded in the main branch's `head`, in the order of the records. Malformed
/// records are skipped.
///
/// # Errors
/// Errors of the disk.
pub fn kept_damage(disk: &dyn LogicalDisk, head: View) -> Result<Vec<KeptDamage>> {
    let records = disk.records(head, VOLUME_LIST, DAMAGE_BASE, MAX_KEPT_DAMAGE)?;
    let ours = records
        .iter()
        .filter(|(index, record)| *index < DAMAGE_END && record.first() == Some(&RECORD_VERSION));
    Ok(ours.filter_map(|(_, record)| KeptDamage::decode(record).ok()).collect())
}

/// Records `all` damage, but at most [`MAX_KEPT_DAMAGE`] places, in place of what was recorded
/// before.
///
/// # Errors
/// Errors of the disk.
pub fn keep_damage(disk: &dyn LogicalDisk, head: View, all: &[KeptDamage]) -> Result<()> {
    let recorded = disk.records(head, VOLUME_LIST, DAMAGE_BASE, MAX_KEPT_DAMAGE)?;
    let mut aru = Aru::new(head);
    for (index, damage) in (DAMAGE_BASE..DAMAGE_END).zip(all) {
        let record = damage.encode();
        if !recorded.iter().any(|(at, old)| *at == index && **old == *record) {
            aru.put_record(VOLUME_LIST, index, record);
        }
    }
    let end = DAMAGE_BASE + all.len().min(MAX_KEPT_DAMAGE) as u64;
    for (index, _) in recorded.iter().filter(|(index, _)| (end..DAMAGE_END).contains(index)) {
        aru.delete_record(VOLUME_LIST, *index);
    }
    if !aru.ops().is_empty() {
        disk.commit(aru)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Fixture;
    use crate::verify;

    fn damage(number: u64) -> KeptDamage {
        KeptDamage {
            addr_bytes: number * 4096,
            part: match number % 6 {
                0 => DamagedPart::Node,
                1 => DamagedPart::Records,
                2 => DamagedPart::Checkpoint,
                3 => DamagedPart::Superblock,
                4 => DamagedPart::NodeCopy,
                _ => DamagedPart::Page(7, number),
            },
            view: (!number.is_multiple_of(3)).then_some(View { branch: 1, epoch: Some(number) }),
            path: b"/dir/\xff".to_vec(),
            problem: "wrong".into(),
            first: Timestamp(-5),
            last: Timestamp(5),
            met_count: 3,
        }
    }

    #[test]
    fn what_is_kept_is_there_until_it_is_replaced() {
        let fixture = Fixture::new();
        let disk = &*fixture.disk;
        assert_eq!(kept_damage(disk, View::HEAD), Ok(Vec::new()));
        let all: Vec<_> = (1..=MAX_KEPT_DAMAGE as u64 + 5).map(damage).collect();
        keep_damage(disk, View::HEAD, &all).unwrap();
        assert_eq!(kept_damage(disk, View::HEAD).unwrap(), all[..MAX_KEPT_DAMAGE]);
        let head = KeptDamage { view: Some(View::HEAD), ..damage(1) };
        keep_damage(disk, View::HEAD, std::slice::from_ref(&head)).unwrap();
        assert_eq!(kept_damage(disk, View::HEAD).unwrap(), std::slice::from_ref(&head));
        let commits = fixture.disk.history().len();
        keep_damage(disk, View::HEAD, &[head]).unwrap();
        assert_eq!(fixture.disk.history().len(), commits, "nothing has changed");
        assert!(verify(disk, View::HEAD).unwrap().is_empty());
        keep_damage(disk, View::HEAD, &[]).unwrap();
        assert_eq!(kept_damage(disk, View::HEAD), Ok(Vec::new()));
        fixture.assert_sound();
    }

    #[test]
    fn what_is_too_long_is_cut_and_no_bytes_panic() {
        let long = KeptDamage { path: vec![b'x'; 5000], problem: "ä".repeat(5000), ..damage(2) };
        let record = long.encode();
        assert!(record.len() <= dendro_disk::MAX_RECORD_LEN_BYTES);
        let read = KeptDamage::decode(&record).unwrap();
        assert_eq!((read.path.len(), read.problem.len()), (MAX_PATH_LEN, MAX_PROBLEM_LEN));
        for len in 0..record.len() {
            assert!(KeptDamage::decode(&record[..len]).is_err());
        }
    }
}
