//! Many threads on a disk that stays nearly full, with others that clean it all the time.
//!
//! Each writer has a list of its own and so many pages, and goes on writing over them. All that
//! fits together, by what the disk itself says is available; so nothing may be refused. Or they
//! write until they are refused, and then give some back: what is there then must be less than was
//! asked for, but for what heads have open and cleaners are filling.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_device::Device;
use dendro_device::sim::SimDevice;
use dendro_disk::model::ModelState;
use dendro_disk::{CommitSeq, Error, Lid, LogicalDisk, Op, PAGE_SIZE};

use super::{Log, create_shared, joined};
use crate::crash::{Failure, Run};
use crate::disk::{DiskState, DiskSystem, Engine};
use crate::system::{Outcome, System};

/// Pages of one write, at most.
const MAX_PAGES: u64 = 8;
/// What a unit is reckoned to take that writes so many.
const UNIT_BYTES: u64 = (MAX_PAGES + 6) * PAGE_SIZE as u64;
/// What may be said to be available and be refused, on a disk that is full to the last: the
/// segments that a writer's head and a cleaner's are filling.
const SEGMENTS_IN_USE: u64 = 2;
/// What a page is reckoned to take of the map, each time that the map is kept.
const MAP_BYTES_PER_PAGE: u64 = 64;

/// Who works on the disk, and how full it is.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// Threads that write.
    pub writers: u64,
    /// Threads that clean, and do all else that is done in the background.
    pub cleaners: u64,
    /// How many per cent of what is available the writers use; `None`: all that they get.
    pub full_percent: Option<u64>,
    /// Units that each writer commits, those included that fill the disk.
    pub unit_count: u64,
}

impl Crowd {
    /// Two to five writers, one to three that clean, and a disk that is 90 to 100 % full.
    #[must_use]
    pub fn draw(rng: &mut Rng) -> Self {
        Self {
            writers: 2 + rng.below(4),
            cleaners: 1 + rng.below(3),
            full_percent: rng.chance(70).then(|| 90 + rng.below(11)),
            unit_count: 150 + rng.below(150),
        }
    }

    /// How many pages each writer may have, where so much is available and the map is kept `copies`
    /// times.
    fn pages_each(&self, available_bytes: u64, copies: u64) -> u64 {
        let Some(percent) = self.full_percent else { return u64::MAX };
        // The next unit must fit as well.
        let most = available_bytes.saturating_sub(UNIT_BYTES);
        let bytes_per_page = PAGE_SIZE as u64 + copies * MAP_BYTES_PER_PAGE;
        (available_bytes * percent / 100).min(most) / bytes_per_page / self.writers
    }
}

/// Formats a device and lets the crowd work on it.
///
/// # Errors
/// The work itself failed, without any crash.
pub fn record<E: Engine>(
    system: &DiskSystem<E>,
    seed: u64,
    device_len_bytes: u64,
    crowd: &Crowd,
) -> Result<Run<DiskState>, Failure> {
    let attempt = || {
        let mut rng = Rng::new(seed);
        let device = Arc::new(SimDevice::new(device_len_bytes, rng.next_u64()));
        let empty = system.format(&device)?;
        device.start_recording();
        let disk = system.engine.open(Arc::clone(&device) as Arc<dyn Device>)?;
        let log = Log::default();
        let lists: Outcome<Vec<Lid>> =
            (0..crowd.writers).map(|_| create_shared(&disk, &device, &log)).collect();
        let shared = create_shared(&disk, &device, &log)?;
        let copies = system.engine.metadata_copies(&disk);
        let most_pages = crowd.pages_each(disk.space().available_bytes, copies);
        let scene = Scene {
            system,
            disk: &disk,
            device: &device,
            log: &log,
            shared,
            most_pages,
            slack_bytes: SEGMENTS_IN_USE * system.engine.segment_len_bytes(),
            is_bounded: crowd.full_percent.is_some(),
            returned_space: AtomicU64::new(0),
        };
        scene.play(&lists?, crowd, &mut rng).map_err(|message| {
            format!("{crowd:?}: {message}; {}", system.engine.describe(&disk))
        })?;
        let trace = log.into_trace(empty)?;
        let found =
            ModelState::read_from(&disk).map_err(|error| format!("reading failed: {error}"))?;
        if let Some(difference) = found.diff(trace.state(trace.last()).contents.main()) {
            return Err(format!("without a crash: {difference}"));
        }
        let recording = device.take_recording().ok_or("the recording was taken")?;
        disk.shut_down().map_err(|error| format!("it cannot be shut down: {error}"))?;
        drop(disk);
        let verified = system.engine.verify(&*device);
        verified.map_err(|error| format!("inconsistent after the shutdown: {error}"))?;
        Ok(Run { seed, recording, trace })
    };
    attempt().map_err(|message| Failure { seed, crash: None, message })
}

/// What all of them see.
struct Scene<'a, E: Engine> {
    system: &'a DiskSystem<E>,
    disk: &'a E::Disk,
    device: &'a SimDevice,
    log: &'a Log,
    /// A list that each unit changes.
    shared: Lid,
    most_pages: u64,
    slack_bytes: u64,
    /// Whether all that is written fits.
    is_bounded: bool,
    /// How often somebody began or ended to give space back.
    returned_space: AtomicU64,
}

impl<E: Engine> Scene<'_, E> {
    fn play(&self, lists: &[Lid], crowd: &Crowd, rng: &mut Rng) -> Outcome<()> {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let cleaners: Vec<_> = (0..crowd.cleaners)
                .map(|_| (rng.fork(), &done))
                .map(|(rng, done)| scope.spawn(move || self.clean(rng, done)))
                .collect();
            let writers: Vec<_> = lists
                .iter()
                .map(|&list| Writer { scene: self, list, rng: rng.fork(), pages: 0 })
                .map(|mut writer| scope.spawn(move || writer.work(crowd.unit_count)))
                .collect();
            let written: Vec<Outcome<()>> = writers.into_iter().map(joined).collect();
            done.store(true, Ordering::Release);
            let cleaned: Vec<Outcome<()>> = cleaners.into_iter().map(joined).collect();
            written.into_iter().chain(cleaned).collect()
        })
    }

    fn clean(&self, mut rng: Rng, done: &AtomicBool) -> Outcome<()> {
        while !done.load(Ordering::Acquire) {
            self.system
                .engine
                .clean(self.disk, &mut rng)
                .map_err(|error| format!("cleaning failed: {error}"))?;
            std::thread::yield_now();
        }
        Ok(())
    }
}

struct Writer<'a, E: Engine> {
    scene: &'a Scene<'a, E>,
    list: Lid,
    rng: Rng,
    /// Pages that have been written; those from here on are holes.
    pages: u64,
}

impl<E: Engine> Writer<'_, E> {
    fn work(&mut self, unit_count: u64) -> Outcome<()> {
        for _ in 0..unit_count {
            let has_enough = self.pages > 0 && self.rng.chance(3);
            if has_enough || !self.write()? {
                self.give_back()?;
            }
            if self.rng.chance(6) {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Appends, or writes over what is there; says whether there was space.
    fn write(&mut self) -> Outcome<bool> {
        if self.scene.most_pages == 0 {
            return Ok(true);
        }
        let appends = self.pages < self.scene.most_pages;
        let most = if appends { self.scene.most_pages - self.pages } else { self.pages };
        let count = (1 + self.rng.below(MAX_PAGES)).min(most);
        let first_page = if appends { self.pages } else { self.rng.below(self.pages - count + 1) };
        let data = self.data(count);
        let write = Op::WritePages { list: self.list, first_page, data: data.into() };
        let returned_before = self.scene.returned_space.load(Ordering::SeqCst);
        match self.commit(write, false) {
            Ok(_) => {
                self.pages = self.pages.max(first_page + count);
                Ok(true)
            }
            Err(Error::NoSpace { needed_bytes, available_bytes }) => {
                // As long as nobody has given any back, there was more before than there is now.
                let left_bytes = self.scene.disk.space().available_bytes;
                let returned = self.scene.returned_space.load(Ordering::SeqCst);
                let is_sure = returned == returned_before && returned.is_multiple_of(2);
                if self.scene.is_bounded
                    || is_sure && left_bytes >= needed_bytes + self.scene.slack_bytes
                {
                    return Err(format!(
                        "{needed_bytes} bytes were refused for {available_bytes}, but there were \
                         {left_bytes}"
                    ));
                }
                Ok(false)
            }
            Err(error) => Err(format!("a commit failed: {error}")),
        }
    }

    /// Random bytes; some pages hold less than a page.
    fn data(&mut self, count: u64) -> Vec<u8> {
        let mut data = vec![0; count as usize * PAGE_SIZE];
        let is_short = self.rng.chance(20);
        for page in data.chunks_mut(PAGE_SIZE) {
            let len =
                if is_short { 1 + self.rng.below(PAGE_SIZE as u64) } else { PAGE_SIZE as u64 };
            self.rng.fill(&mut page[..len as usize]);
        }
        data
    }

    /// Makes a hole of some of the last pages, for which there is always room.
    fn give_back(&mut self) -> Outcome<()> {
        let count = 1 + self.rng.below(self.pages.max(1));
        self.pages = self.pages.saturating_sub(count);
        let punch = Op::PunchPages { list: self.list, first_page: self.pages, count };
        self.scene.returned_space.fetch_add(1, Ordering::SeqCst);
        let answer = self.commit(punch, true);
        self.scene.returned_space.fetch_add(1, Ordering::SeqCst);
        answer.map(drop).map_err(|error| format!("space is not given back: {error}"))
    }

    fn commit(&mut self, op: Op<'static>, reclaims: bool) -> Result<CommitSeq, Error> {
        let value = self.rng.next_u64().to_le_bytes().to_vec().into();
        let mark = Op::PutRecord { list: self.scene.shared, index: self.list.0, value };
        self.scene.log.commit(self.scene.disk, self.scene.device, vec![op, mark], reclaims)
    }

    fn flush(&mut self) -> Outcome<()> {
        let asked = self.rng.chance(50).then_some(CommitSeq::LATEST);
        self.scene
            .log
            .flush(self.scene.disk, self.scene.device, asked)
            .map_err(|error| format!("a flush failed: {error}"))
    }
}
