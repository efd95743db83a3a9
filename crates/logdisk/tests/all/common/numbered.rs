//! A list with a record and a page for each number, for tests of what is left of it.

use dendro_disk::{Aru, Lid, LogicalDisk, PAGE_SIZE, Result, View};
use dendro_logdisk::LogDisk;

pub(crate) const LIST: Lid = Lid::FIRST;

/// What the page with this index is full of; not zero.
pub(crate) fn mark(index: u64) -> u8 {
    (index % 251) as u8 + 1
}

/// Puts a record and a page.
pub(crate) fn put(disk: &LogDisk, index: u64) -> Result<()> {
    let mut aru = Aru::new(View::HEAD);
    aru.put_record(LIST, index, index.to_le_bytes().to_vec());
    aru.write_pages(LIST, index, vec![mark(index); PAGE_SIZE]);
    disk.commit(aru).map(drop)
}

/// How many records and pages there are; each of them is as it was put.
pub(crate) fn count(disk: &LogDisk) -> u64 {
    let mut count = 0;
    while disk.record(View::HEAD, LIST, count).expect("the map is sound").is_some() {
        let mut page = vec![0; PAGE_SIZE];
        disk.read_pages(View::HEAD, LIST, count, &mut page).expect("the block is sound");
        assert!(page.iter().all(|byte| *byte == mark(count)));
        count += 1;
    }
    count
}
