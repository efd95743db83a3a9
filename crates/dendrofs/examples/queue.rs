//! A queue that survives crashes: what was pushed is popped once, in order.
//!
//! A list has a record for each message, and the root list a record with the place of the first
//! one.
//! A push is one unit, and so is a pop. Neither waits for the device: after a crash the queue is as
//! it was after one of them. `sync` is for a message that somebody was told of.
//!
//!     cargo run --example queue -- /tmp/queue.img

use std::path::Path;

use dendrofs::disk::{Aru, Lid, ListHints};
use dendrofs::{CreateOptions, Error, OpenOptions, Runner, Volume};

/// The record of the root list that names the queue's list and its first message.
const HEAD: u64 = 0;

/// A queue of messages of up to 1,024 bytes.
pub struct Queue {
    volume: Volume,
    list: Lid,
    first: u64,
    end: u64,
}

impl Queue {
    /// Opens the queue in an image, which is made if there is none.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if !path.exists() {
            let volume = Volume::create(path, 64 << 20, &CreateOptions::lists())?;
            let list = volume.disk().allocate_list()?;
            let mut unit = Aru::new(volume.main());
            unit.create_list(list, ListHints::default());
            unit.put_record(Volume::ROOT, HEAD, head(list, 0));
            volume.disk().commit(unit)?;
            volume.close()?;
        }
        let volume = Volume::open(path, &OpenOptions::new())?;
        let record = volume.disk().record(volume.main(), Volume::ROOT, HEAD)?;
        let record = record.ok_or_else(|| Error::NoSuchVersion("the queue".into()))?;
        let number = |at: usize| {
            let bytes = record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            u64::from_le_bytes(bytes.unwrap_or_default())
        };
        let (list, first) = (Lid(number(0)), number(8));
        let mut end = first;
        loop {
            let batch = volume.disk().records(volume.main(), list, end, 128)?;
            match batch.last() {
                Some((last, _)) => end = last + 1,
                None => return Ok(Self { volume, list, first, end }),
            }
        }
    }

    /// Adds a message.
    pub fn push(&mut self, message: &[u8]) -> Result<(), Error> {
        let mut unit = Aru::new(self.volume.main());
        unit.put_record(self.list, self.end, message);
        self.volume.disk().commit(unit)?;
        self.end += 1;
        Ok(())
    }

    /// Takes the first message.
    pub fn pop(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let disk = self.volume.disk();
        let Some(message) = disk.record(self.volume.main(), self.list, self.first)? else {
            return Ok(None);
        };
        let mut unit = Aru::new(self.volume.main());
        unit.delete_record(self.list, self.first);
        unit.put_record(Volume::ROOT, HEAD, head(self.list, self.first + 1));
        disk.commit(unit)?;
        self.first += 1;
        Ok(Some(message.to_vec()))
    }

    /// How many messages wait.
    pub fn waiting(&self) -> u64 {
        self.end - self.first
    }

    /// Makes everything durable.
    pub fn sync(&self) -> Result<(), Error> {
        self.volume.flush()
    }

    /// The volume, for a runner.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }
}

fn head(list: Lid, first: u64) -> Vec<u8> {
    [list.0.to_le_bytes(), first.to_le_bytes()].concat()
}

#[allow(dead_code, reason = "tests use the rest of this file")]
fn main() -> Result<(), Error> {
    let path = std::env::args_os().nth(1).unwrap_or_else(|| "queue.img".into());
    let mut queue = Queue::open(Path::new(&path))?;
    let runner = Runner::start(queue.volume())?;
    println!("{} messages wait", queue.waiting());
    if let Some(message) = queue.pop()? {
        println!("the first was: {}", String::from_utf8_lossy(&message));
    }
    for number in 0..3 {
        queue.push(format!("message {number} of process {}", std::process::id()).as_bytes())?;
    }
    queue.sync()?;
    println!("{} wait now, whatever happens", queue.waiting());
    runner.stop();
    Ok(())
}
