use std::cell::Cell;

use dendro_base::Rng;

use super::*;

const DIRECT: Alignment = Alignment { offset_bytes: 512, memory_bytes: 512 };

/// A file in memory that transfers as little at a time as a file may, interrupts now and then, and
/// refuses what is not aligned.
struct Hesitant {
    content: RefCell<Vec<u8>>,
    alignment: Alignment,
    rng: RefCell<Rng>,
    hesitates: bool,
    calls: Cell<usize>,
}

impl Hesitant {
    fn new(len_bytes: usize, alignment: Alignment) -> Self {
        let content = (0..len_bytes).map(|i| (i % 253) as u8).collect();
        Self {
            content: RefCell::new(content),
            alignment,
            rng: RefCell::new(Rng::new(1)),
            hesitates: true,
            calls: Cell::new(0),
        }
    }

    fn count(&self, offset: u64, memory: *const u8, len: usize) -> rustix::io::Result<usize> {
        self.calls.set(self.calls.get() + 1);
        if !self.alignment.fits(offset, memory, len) {
            return Err(Errno::INVAL);
        }
        let mut rng = self.rng.borrow_mut();
        if !self.hesitates {
            return Ok(len);
        }
        if rng.chance(20) {
            return Err(Errno::INTR);
        }
        let unit = self.alignment.offset_bytes;
        Ok((1 + rng.below(3) as usize).min(len / unit) * unit)
    }
}

impl RawIo for Hesitant {
    fn pread(&self, buf: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
        let content = self.content.borrow();
        let rest = &content[content.len().min(offset as usize)..];
        let count = self.count(offset, buf.as_ptr(), buf.len())?.min(rest.len());
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
    fn pwrite(&self, bytes: &[u8], offset: u64) -> rustix::io::Result<usize> {
        let count = self.count(offset, bytes.as_ptr(), bytes.len())?;
        let at = offset as usize;
        self.content.borrow_mut()[at..at + count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }
    /// Stops within a part, at its end or in a later one.
    fn preadv(&self, parts: &mut [IoSliceMut<'_>], offset: u64) -> rustix::io::Result<usize> {
        let mut done = 0;
        for part in parts {
            let count = self.pread(part, offset + done as u64)?;
            done += count;
            if count < part.len() {
                break;
            }
        }
        Ok(done)
    }
    fn pwritev(&self, parts: &[IoSlice<'_>], offset: u64) -> rustix::io::Result<usize> {
        let mut done = 0;
        for part in parts {
            let count = self.pwrite(part, offset + done as u64)?;
            done += count;
            if count < part.len() {
                break;
            }
        }
        Ok(done)
    }
}

#[test]
fn short_and_interrupted_reads_of_any_alignment_are_completed() {
    for alignment in [Alignment::NONE, DIRECT] {
        let io = Hesitant::new(1 << 20, alignment);
        let content = io.content.borrow().clone();
        let mut rng = Rng::new(2);
        let mut memory = AlignedBuf::zeroed(1 << 20);
        for round in 0..300 {
            let max = if round % 10 == 0 { 700_000 } else { 9000 };
            let len = rng.below(max) as usize;
            let offset = rng.below((content.len() - len) as u64) as usize;
            // Half the time the address is off the alignment by as much as the offset is.
            let at = if rng.chance(50) { offset % 512 } else { rng.below(512) as usize };
            let buf = &mut memory[at..at + len];
            buf.fill(0xff);
            read(&io, alignment, offset as u64, buf).unwrap();
            assert!(*buf == content[offset..offset + len], "{len} bytes at {offset}");
        }
    }
}

#[test]
fn short_and_interrupted_writes_of_any_memory_are_completed() {
    for alignment in [Alignment::NONE, DIRECT] {
        let io = Hesitant::new(1 << 20, alignment);
        let mut expected = io.content.borrow().clone();
        let mut rng = Rng::new(3);
        let mut memory = AlignedBuf::zeroed(1 << 20);
        for round in 0..100 {
            let blocks = if round % 10 == 0 { 160 } else { 1 + rng.below(3) as usize };
            let at = rng.below(4096) as usize;
            let bytes = &mut memory[at..at + blocks * 4096];
            rng.fill(bytes);
            let offset = rng.below(256 - blocks as u64) as usize * 4096;
            write(&io, alignment, offset as u64, bytes).unwrap();
            expected[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        assert!(*io.content.borrow() == expected);
    }
}

/// Where each of some parts begins and how long it is; together they are in the first 64 KiB.
fn random_parts(rng: &mut Rng, unit: usize) -> Vec<(usize, usize)> {
    let mut at = 0;
    let mut part = || {
        let start = at + rng.below(3) as usize * unit;
        let len = rng.below(8) as usize * unit;
        at = start + len;
        (start, len)
    };
    (0..4).map(|_| part()).collect()
}

#[test]
fn short_and_interrupted_transfers_of_parts_are_completed() {
    for alignment in [Alignment::NONE, DIRECT] {
        let io = Hesitant::new(64 << 10, alignment);
        let mut expected = io.content.borrow().clone();
        let mut rng = Rng::new(4);
        let mut memory = AlignedBuf::zeroed(64 << 10);
        for round in 0..200 {
            let lens = random_parts(&mut rng, 512);
            let len = lens.iter().map(|&(_, len)| len).sum::<usize>();
            let offset = rng.below(((64 << 10) - len) as u64 / 512) as usize * 512;
            rng.fill(&mut memory);
            if round % 2 == 0 {
                let parts: Vec<IoSlice<'_>> =
                    lens.iter().map(|&(at, len)| IoSlice::new(&memory[at..at + len])).collect();
                write_parts(&io, alignment, offset as u64, &parts).unwrap();
                let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
                expected[offset..offset + len].copy_from_slice(&bytes);
            }
            let mut rest = &mut memory[..];
            let mut end = 0;
            let mut parts = Vec::new();
            for &(at, len) in &lens {
                let (part, behind) = rest.split_at_mut(at - end).1.split_at_mut(len);
                (rest, end) = (behind, at + len);
                parts.push(IoSliceMut::new(part));
            }
            read_parts(&io, alignment, offset as u64, &mut parts).unwrap();
            let bytes: Vec<u8> =
                lens.iter().flat_map(|&(at, len)| memory[at..at + len].iter().copied()).collect();
            assert!(bytes == expected[offset..offset + len], "round {round}");
        }
        assert!(*io.content.borrow() == expected);
    }
}

#[test]
fn parts_that_end_with_the_file_too_early_are_an_error_not_a_loop() {
    let io = Hesitant::new(4096, DIRECT);
    let mut memory = AlignedBuf::zeroed(8192);
    let (a, b) = memory.split_at_mut(4096);
    let mut parts = [IoSliceMut::new(a), IoSliceMut::new(b)];
    let error = read_parts(&io, DIRECT, 0, &mut parts).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn an_aligned_transfer_is_one_system_call() {
    let mut io = Hesitant::new(1 << 20, DIRECT);
    io.hesitates = false;
    let mut memory = AlignedBuf::zeroed(64 << 10);
    read(&io, DIRECT, 8192, &mut memory).unwrap();
    write(&io, DIRECT, 8192, &memory).unwrap();
    assert_eq!(io.calls.get(), 2);
}

#[test]
fn a_large_unaligned_read_copies_only_its_ends_where_memory_allows() {
    let mut io = Hesitant::new(2 << 20, DIRECT);
    io.hesitates = false;
    let mut memory = AlignedBuf::zeroed(2 << 20);
    read(&io, DIRECT, 100, &mut memory[100..1_000_000]).unwrap();
    assert_eq!(io.calls.get(), 3);
}

#[test]
fn a_file_that_ends_too_early_is_an_error_not_a_loop() {
    let io = Hesitant::new(4096, DIRECT);
    let error = read(&io, DIRECT, 0, &mut AlignedBuf::zeroed(8192)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}
