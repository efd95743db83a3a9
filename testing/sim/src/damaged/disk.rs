//! Damaged images of logical disks with lists.

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_check::{Finding, Options as CheckOptions, Severity, verify};
use dendro_device::sim::CrashStyle;
use dendro_device::{Device, MemoryDevice};
use dendro_disk::model::ModelVersions;
use dendro_disk::{Aru, CommitSeq, LogicalDisk, PAGE_SIZE, Versions};
use dendro_logdisk::{LogDisk, OnLoss, OpenOptions};

use super::agreement::find_moment;
use super::anatomy::Anatomy;
use super::look::{opening, overlay};
use super::source::{Kind, Source, finish_background};
use crate::campaign::Effort;
use crate::crash::{self, Run};
use crate::disk::{DiskState, DiskSystem};
use crate::log::LogEngine;
use crate::system::Outcome;
use crate::workload;

/// Images of recorded work on a disk.
pub(super) struct Lists {
    system: DiskSystem<LogEngine>,
    run: Run<DiskState>,
}

/// The first system of those that follow from the seed whose images are quickly made and read.
fn small_of_seed(seed: u64) -> (DiskSystem<LogEngine>, Effort) {
    let is_small = |effort: &Effort| effort.device_len_bytes <= 8 << 20 && effort.step_count <= 200;
    (0_u64..)
        .map(|number| workload::of_seed(seed ^ number.rotate_left(40)))
        .find(|(_, effort)| is_small(effort))
        .unwrap_or_else(|| unreachable!("most are small"))
}

impl Lists {
    pub(super) fn record(seed: u64) -> Outcome<Self> {
        let (system, effort) = small_of_seed(seed);
        let run = crash::record(&system, seed, effort.device_len_bytes, effort.step_count)
            .map_err(|failure| failure.message)?;
        Ok(Self { system, run })
    }

    fn open(
        &self,
        device: Arc<dyn Device>,
        read_only: bool,
        on_loss: OnLoss,
    ) -> dendro_disk::Result<LogDisk> {
        let options: OpenOptions = opening(&self.system.engine, read_only, on_loss);
        self.system.engine.open_disk(device, options)
    }

    /// Gives up what is lost, if anything is, and uses the rest.
    fn give_up(&self, device: &Arc<dyn Device>) -> Outcome<()> {
        let Ok(disk) = self.open(overlay(device), false, OnLoss::Truncate) else { return Ok(()) };
        drop(ModelVersions::read_from(&disk));
        use_it(&disk)?;
        drop(disk.shut_down());
        Ok(())
    }
}

impl Source for Lists {
    fn image(&self, rng: &mut Rng) -> (usize, Vec<u8>) {
        // Later, there is more to be lost.
        let len = self.run.recording.len() as u64 + 1;
        let event = rng.below(len).max(rng.below(len)) as usize;
        let style = CrashStyle::draw(rng);
        (event, self.run.recording.image_at(event, rng, style).to_bytes())
    }

    fn look_at(&mut self, _: &[u8], _: &Arc<Anatomy>) -> Outcome<()> {
        Ok(())
    }

    fn examine(&self, image: &[u8], is_forged: bool) -> Outcome<Kind> {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(image));
        // As `dendro check` does: the blocks of the log behind the checkpoint are verified after it
        // was rolled forward.
        let verified = overlay(&device);
        let is_sound_after = is_sound(&*verified)
            && self
                .open(Arc::clone(&verified), false, OnLoss::Stop)
                .is_ok_and(|disk| disk.shut_down().is_ok())
            && is_sound(&*verified);
        // What is made of the rest behind damage may be of several moments.
        if let Ok(disk) = self.open(overlay(&device), true, OnLoss::Skip) {
            drop(ModelVersions::read_from(&disk));
        }
        if let Ok(disk) = self.open(overlay(&device), true, OnLoss::Stop)
            && !is_forged
        {
            let mut states = self.run.trace.states().map(|state| &state.contents);
            find_moment(&disk, &mut states)
                .map_err(|why| format!("opened for reading only: {why}"))?;
        }
        let opened = overlay(&device);
        let disk = match self.open(Arc::clone(&opened), false, OnLoss::Stop) {
            Ok(disk) => disk,
            Err(error) if is_sound_after => {
                return Err(format!("the check finds it sound, and it cannot be opened: {error}"));
            }
            Err(_) => {
                self.give_up(&device)?;
                return Ok(match is_forged {
                    true => Kind::Forged { is_sound: false, mended: false },
                    false => Kind::Refused { mended: false },
                });
            }
        };
        let is_whole = match ModelVersions::read_from(&disk) {
            Ok(_) => true,
            Err(error) if is_sound_after => {
                return Err(format!("the check finds it sound, and it cannot be read: {error}"));
            }
            Err(_) => false,
        };
        if !is_forged {
            let mut states = self.run.trace.states().map(|state| &state.contents);
            find_moment(&disk, &mut states)?;
        }
        use_it(&disk)?;
        let shut_down = disk.shut_down();
        drop(disk);
        if is_sound_after && shut_down.is_ok() && !is_forged && !is_sound(&*opened) {
            return Err(format!(
                "it was sound, and is not any more after it was written to: {:?}",
                findings(&*opened)
            ));
        }
        Ok(match (is_forged, is_whole) {
            (true, _) => Kind::Forged { is_sound: is_sound_after, mended: false },
            (false, true) => Kind::Whole { is_sound: is_sound_after, mended: false },
            (false, false) => Kind::Partly { mended: false },
        })
    }
}

fn is_sound(device: &dyn Device) -> bool {
    findings(device).is_empty()
}

/// What a check finds that is worse than a note.
fn findings(device: &dyn Device) -> Vec<Finding> {
    let report = verify(device, &CheckOptions { data: true });
    report.findings.into_iter().filter(|finding| finding.severity() > Severity::Note).collect()
}

/// Writes something, and does the background work that is due.
fn use_it(disk: &LogDisk) -> Outcome<()> {
    let view = disk.versions().main_head();
    for list in disk.lists(view, dendro_disk::Lid(0), 8).unwrap_or_default() {
        let mut aru = Aru::new(view);
        aru.put_record(list, 1, &b"new"[..])
            .write_pages(list, 2, &[7; PAGE_SIZE])
            .punch_pages(list, 0, 2);
        drop(disk.commit(aru));
    }
    drop(disk.flush(CommitSeq::LATEST));
    finish_background(disk)
}
