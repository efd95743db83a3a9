//! What nobody waits for while rosters are written.

use dendro_format::roster::extents::TAIL_LEN_BYTES;

use super::spread::{SEGMENT, part, spread};
use super::*;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// A device that has another thread look at something while it is flushed.
struct Asking {
    below: Sim,
    asked: std::sync::mpsc::Sender<bool>,
    answered: Arc<Mutex<std::sync::mpsc::Receiver<()>>>,
}

impl Device for Asking {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> dendro_device::Result<()> {
        self.below.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> dendro_device::Result<()> {
        self.below.write_at(offset, bytes)
    }
    fn flush(&self) -> dendro_device::Result<()> {
        if self.asked.send(true).is_ok() {
            let answer = self.answered.lock().recv_timeout(PATIENCE);
            answer.expect("whoever asks does not wait for a device");
        }
        self.below.flush()
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> dendro_device::Result<()> {
        self.below.discard(offset, len_bytes)
    }
}

#[test]
fn what_is_lost_together_is_known_without_waiting_for_a_device() {
    use std::sync::mpsc::channel;
    let (devices, set) = spread(&[4, 4]);
    drop(set);
    let ((asked, asks), (answers, answered)) = (channel(), channel());
    let answered = Arc::new(Mutex::new(answered));
    let asking = |below| Asking { below, asked: asked.clone(), answered: Arc::clone(&answered) };
    let look = |at: usize| Found::look(asking(Arc::clone(&devices[at])), path(at)).ok().unwrap();
    let set = DeviceSet::assemble(vec![look(0), look(1)], false, clock()).unwrap();
    std::thread::scope(|scope| {
        let known = &set;
        scope.spawn(move || {
            while asks.recv_timeout(2 * PATIENCE) == Ok(true) {
                assert_eq!(known.part_at(3 * SEGMENT).unwrap().number, 1);
                answers.send(()).unwrap();
            }
        });
        // Each of these writes rosters.
        set.add(asking(part(4, 9)), path(2), uuid(2), None).unwrap();
        set.truncate(6 * SEGMENT + TAIL_LEN_BYTES).unwrap();
        set.remove(&uuid(2)).unwrap();
        while set.bring_up_step().unwrap().is_some() {}
        asked.send(false).unwrap();
    });
}
