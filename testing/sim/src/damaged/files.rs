//! Damaged images of volumes with files: what is read, what a check says, what repair and rebuild
//! make of them.

use dendro_base::sync::Arc;
use dendro_base::{Rng, Timestamp};
use dendro_check::{RebuildOptions, rebuild};
use dendro_device::sim::CrashStyle;
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{LogicalDisk, Versions, View};
use dendro_fs::format::VOLUME_LIST;
use dendro_fs::testing::{ReadableNode, StepClock};
use dendro_fs::{Caller, FileSystem, FsError, Ino, Mending, RepairOptions, repair_branches};
use dendro_logdisk::{LogDisk, OnLoss};

use super::anatomy::{Anatomy, Touched};
use super::look::{Look, check, opening, overlay};
use super::source::{Kind, Source, finish_background};
use super::volume::{Work, options, record};
use crate::system::Outcome;

const REPAIR: RepairOptions = RepairOptions {
    safe_only: false,
    data: true,
    memory_bytes: 1 << 20,
    now: NOW,
    hash_key: [9; 16],
};

/// The files of a volume at a moment of the work, and the image of that moment.
struct Whole {
    image: Vec<u8>,
    anatomy: Arc<Anatomy>,
    look: Look,
}

/// Images of recorded work on files.
pub(super) struct Files {
    work: Work,
    whole: Option<Whole>,
}

impl Files {
    pub(super) fn record(seed: u64) -> Outcome<Self> {
        Ok(Self { work: record(seed)?, whole: None })
    }
}

impl Source for Files {
    fn image(&self, rng: &mut Rng) -> (usize, Vec<u8>) {
        let count = self.work.recording.len() as u64 + 1;
        // At the end of the work there is most to be lost.
        let event = match rng.below(3) {
            0 => count - 1,
            _ => rng.below(count).max(rng.below(count)),
        } as usize;
        let style = CrashStyle::draw(rng);
        (event, self.work.recording.image_at(event, rng, style).to_bytes())
    }

    fn look_at(&mut self, image: &[u8], anatomy: &Arc<Anatomy>) -> Outcome<()> {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(image));
        let engine = &self.work.engine;
        let disk = engine
            .open_disk(device, opening(engine, true, OnLoss::Stop))
            .map_err(|error| format!("undamaged: {error}"))?;
        let look = Look::at(&Arc::new(disk))?;
        look.find_moment(&self.work.moments).map_err(|why| format!("undamaged: {why}"))?;
        if !look.is_whole() {
            return Err("undamaged, and something cannot be read".into());
        }
        self.whole = Some(Whole { image: image.to_vec(), anatomy: Arc::clone(anatomy), look });
        Ok(())
    }

    fn examine(&self, image: &[u8], is_forged: bool) -> Outcome<Kind> {
        let Some(whole) = &self.whole else { return Err("there is no image".into()) };
        let touched = match is_forged {
            true => None,
            false => whole.anatomy.touched(&whole.image, image),
        };
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(image));
        Examined { work: &self.work, whole, device, touched, is_forged }.examine()
    }
}

/// When volumes are rebuilt.
const NOW: Timestamp = Timestamp(1_800_000_000_000_000_000);

/// A damaged image.
struct Examined<'a> {
    work: &'a Work,
    whole: &'a Whole,
    device: Arc<dyn Device>,
    /// What the damage has touched; `None` if more than nodes and blocks may be damaged.
    touched: Option<Touched>,
    is_forged: bool,
}

/// Whether two files have the same contents: all but what a repair of others changes.
fn same_contents(before: &ReadableNode, after: &ReadableNode) -> bool {
    let (Some(before), Some(after)) = (&before.node, &after.node) else { return false };
    let of = |node: &dendro_fs::testing::TreeNode| {
        let dendro_fs::testing::TreeNode { kind, perm, uid, gid, rdev, size, .. } = *node;
        (kind, perm, uid, gid, rdev, size)
    };
    of(before) == of(after)
        && before.pages == after.pages
        && before.target == after.target
        && before.xattrs == after.xattrs
}

impl Examined<'_> {
    fn open(
        &self,
        device: Arc<dyn Device>,
        read_only: bool,
        on_loss: OnLoss,
    ) -> dendro_disk::Result<Arc<LogDisk>> {
        let engine = &self.work.engine;
        engine.open_disk(device, opening(engine, read_only, on_loss)).map(Arc::new)
    }

    fn examine(&self) -> Outcome<Kind> {
        let checked = check(&self.work.engine, &self.device);
        // What is made of the rest behind damage may be of several moments.
        if let Ok(disk) = self.open(overlay(&self.device), true, OnLoss::Skip) {
            drop(Look::at(&disk));
        }
        let mut is_whole = None;
        for read_only in [true, false] {
            let device = overlay(&self.device);
            let disk = match self.open(Arc::clone(&device), read_only, OnLoss::Stop) {
                Ok(disk) => disk,
                Err(error) if checked.is_clean => {
                    return Err(format!("the check finds it clean; it cannot be opened: {error}"));
                }
                Err(error) => {
                    let has_log = self.whole.anatomy.has_log();
                    let may_fail =
                        |of: &Touched| of.has_system_lists() || of.has_nodes() && has_log;
                    if self.touched.as_ref().is_some_and(|touched| !may_fail(touched)) {
                        return Err(format!(
                            "only files are damaged; it cannot be opened: {error}"
                        ));
                    }
                    self.give_up()?;
                    continue;
                }
            };
            let looked = self.look(&disk, checked.is_clean)?;
            is_whole = Some(looked);
            if !read_only {
                use_files(&disk, self.is_forged)?;
                let is_written = disk.shut_down().is_ok();
                drop(disk);
                let after = check(&self.work.engine, &device);
                if checked.is_clean && is_written && !after.is_clean {
                    return Err(format!("written to, it is not clean: {}", after.what));
                }
            }
        }
        let mended = self.mend(checked.is_disk_sound)?;
        Ok(match (self.is_forged, is_whole) {
            (true, _) => Kind::Forged { is_sound: checked.is_clean, mended },
            (false, None) => Kind::Refused { mended },
            (false, Some(true)) => Kind::Whole { is_sound: checked.is_clean, mended },
            (false, Some(false)) => Kind::Partly { mended },
        })
    }

    /// Reads all versions. Returns whether everything could be read.
    fn look(&self, disk: &Arc<LogDisk>, is_clean: bool) -> Outcome<bool> {
        let look = match Look::at(disk) {
            Err(_) if self.is_forged && !is_clean => return Ok(false),
            look => look?,
        };
        if is_clean && !look.is_whole() {
            return Err("the check finds it clean; it cannot be read".into());
        }
        if !self.is_forged {
            look.find_moment(&self.work.moments)?;
        }
        if let Some(touched) = &self.touched {
            for view in self.whole.look.views() {
                undamaged_is_read(&look, view, touched).map_err(|why| format!("{view}: {why}"))?;
            }
        }
        Ok(look.is_whole())
    }

    /// Gives up what is lost, and uses the rest.
    fn give_up(&self) -> Outcome<()> {
        let device = overlay(&self.device);
        let Ok(disk) = self.open(device, false, OnLoss::Truncate) else { return Ok(()) };
        drop(Look::at(&disk));
        use_files(&disk, true)?;
        drop(disk.shut_down());
        Ok(())
    }

    /// Rebuilds the map if need be, and repairs the files. Returns whether anything was mended.
    fn mend(&self, is_disk_sound: bool) -> Outcome<bool> {
        let device = overlay(&self.device);
        let mut checkpoint = None;
        if !is_disk_sound {
            let options = RebuildOptions { now: NOW, ..RebuildOptions::default() };
            let Ok(report) = rebuild(&*device, &options, &mut |_, _| ()) else { return Ok(false) };
            checkpoint = report.checkpoint;
            let again =
                rebuild(&*device, &RebuildOptions { dry_run: true, ..options }, &mut |_, _| ())
                    .map_err(|error| format!("rebuilt, and not again: {error}"))?;
            if again.extent != dendro_check::Extent::Nothing {
                return Err(format!("rebuilt, and it would be again: {again:?}"));
            }
            if let Ok(disk) = self.open(overlay(&device), false, OnLoss::Stop) {
                drop(disk.shut_down());
            }
        }
        let opened = match self.open(Arc::clone(&device), false, OnLoss::Stop) {
            Err(_) => self.open(Arc::clone(&device), false, OnLoss::Truncate),
            opened => opened,
        };
        let disk = match opened {
            Ok(disk) => disk,
            Err(error) if !is_disk_sound && !self.is_forged => {
                return Err(format!("rebuilt, it cannot be opened: {error}"));
            }
            Err(_) => return Ok(false),
        };
        if disk.shut_down().is_err() {
            return Ok(false);
        }
        drop(disk);
        let mut before = check(&self.work.engine, &device);
        if !before.is_disk_sound {
            // Nothing tells the rebuild what a forger has changed.
            if self.is_forged {
                return Ok(false);
            }
            // What the log behind the checkpoint named has become a part of the map.
            let options = RebuildOptions { now: NOW, ..RebuildOptions::default() };
            let Ok(_) = rebuild(&*device, &options, &mut |_, _| ()) else { return Ok(false) };
            before = check(&self.work.engine, &device);
            if !before.is_disk_sound {
                return Err(format!("rebuilt, the disk is not sound: {}", before.what));
            }
        }
        let is_mended = before.found.iter().any(|of| of.is_in_head);
        if is_mended && !self.repair(&device)? {
            return Ok(false);
        }
        let after = check(&self.work.engine, &device);
        let mut left = after.found.iter().filter(|of| of.is_in_head).map(|of| &of.finding);
        if left.any(|of| of.code.mending() != Mending::Never) || !after.is_disk_sound {
            return Err(format!("repaired, it is not clean: {}", after.what));
        }
        if let Some(touched) = &self.touched {
            let disk = self.open(Arc::clone(&device), true, OnLoss::Stop);
            let disk = disk.map_err(|error| format!("repaired, it cannot be opened: {error}"))?;
            let look = Look::repaired(&disk).map_err(|why| format!("repaired: {why}"))?;
            let survived = self.undamaged_has_survived(&look, touched);
            if survived.is_err() && self.is_later(checkpoint) {
                return Ok(true);
            }
            survived?;
        }
        Ok(is_mended || !is_disk_sound)
    }

    /// Whether the rebuild found a checkpoint that is newer than the one in force before the
    /// damage: the crash came before a superblock named it. The files are of a later moment then.
    fn is_later(&self, checkpoint: Option<u64>) -> bool {
        let whole: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&self.whole.image));
        let in_force = self.open(whole, true, OnLoss::Stop).map(|disk| disk.stats().checkpoint_seq);
        in_force.is_ok_and(|in_force| checkpoint > Some(in_force))
    }

    /// Repairs the heads of all branches. Returns false if there is no space for that.
    fn repair(&self, device: &Arc<dyn Device>) -> Outcome<bool> {
        let disk = self.open(Arc::clone(device), false, OnLoss::Stop);
        let disk = disk.map_err(|error| format!("checked, it cannot be opened: {error}"))?;
        let mut rest = || Ok(disk.background_step().map(drop)?);
        let repaired = match repair_branches(&*disk, &REPAIR, &mut |_| (), &mut rest) {
            Err(FsError::Disk(dendro_disk::Error::NoSpace { .. })) => return Ok(false),
            // A forger may have forbidden it.
            Err(FsError::Disk(dendro_disk::Error::ReadOnly(_)) | FsError::NotSupported(_))
                if self.is_forged =>
            {
                return Ok(false);
            }
            done => done.map_err(|error| format!("the repair: {error}"))?,
        };
        if let Some((finding, error)) = repaired.failures.first() {
            return Err(format!("{finding} is not mended: {error}"));
        }
        disk.shut_down().map_err(|error| format!("after the repair: {error}"))?;
        Ok(true)
    }

    /// Whether all files that the damage has not touched are there with their contents, and by
    /// their names where it has not touched the directories either.
    fn undamaged_has_survived(&self, look: &Look, touched: &Touched) -> Outcome<()> {
        let heads = look.views().filter(|view| view.epoch.is_none());
        for view in heads {
            let (Some(before), Some(after)) = (self.whole.look.tree(view), look.tree(view)) else {
                continue;
            };
            for (path, node) in &before.nodes {
                let is_touched = |node: &ReadableNode| {
                    let pages = node.node.iter().flat_map(|node| node.pages.keys());
                    touched.has_page(node.ino.0, 0)
                        || pages.into_iter().any(|page| touched.has_page(node.ino.0, *page))
                };
                if is_touched(node) {
                    continue;
                }
                let parents = path.match_indices('/').map(|(at, _)| &path[..at]).chain([""]);
                let mut parents = parents.filter_map(|path| before.nodes.get(path));
                let has_name = !parents.any(|node| touched.has_list(node.ino.0));
                let found = match has_name {
                    true => after.nodes.get(path).filter(|found| found.ino == node.ino),
                    false => after.nodes.values().find(|found| found.ino == node.ino),
                };
                if !found.is_some_and(|found| same_contents(node, found)) {
                    let was = &node.node;
                    return Err(format!("{view}: /{path}, undamaged, was {was:?}, is {found:?}"));
                }
            }
        }
        Ok(())
    }
}

/// Whether everything in a version can be read that the damage has not touched.
fn undamaged_is_read(look: &Look, view: View, touched: &Touched) -> Outcome<()> {
    let has_list = |ino: Ino| touched.has_list(ino.0);
    let Some(tree) = look.tree(view) else {
        let may_be = touched.has_list(VOLUME_LIST.0) || has_list(Ino::ROOT);
        return if may_be { Ok(()) } else { Err("it cannot be mounted".into()) };
    };
    for (path, found) in &tree.nodes {
        // Long targets of links are pages.
        let lacks_records = found.lacks_records && !touched.has_page(found.ino.0, 0);
        let lacks = found.node.is_none() || lacks_records || found.lacks_entries;
        if lacks && !has_list(found.ino) {
            return Err(format!("/{path} is undamaged, and cannot be read"));
        }
        let is_touched = |page: &&u64| touched.has_page(found.ino.0, **page);
        if let Some(page) = found.bad_pages.iter().find(|page| !is_touched(page)) {
            return Err(format!("page {page} of /{path} is undamaged, and cannot be read"));
        }
    }
    Ok(())
}

/// Writes files, and reads them; and does the background work that is due.
fn use_files(disk: &Arc<LogDisk>, may_be_wrong: bool) -> Outcome<()> {
    let below = Arc::clone(disk) as Arc<dyn LogicalDisk>;
    let view = disk.versions().main_head();
    let clock = Arc::new(StepClock::default());
    if let Ok(fs) = FileSystem::mount(below, options(view, false), clock) {
        let written = write_and_read(&fs);
        if !may_be_wrong {
            written?;
        }
        drop(fs.close());
    }
    finish_background(disk)
}

fn write_and_read(fs: &FileSystem) -> Outcome<()> {
    let caller = Caller::default();
    let data = vec![0xa7; 5000];
    // A directory that cannot be read, or a full volume, is no mistake here.
    let Ok(attr) = fs.mknod(&caller, Ino::ROOT, b"new", 0o100_644, 0) else { return Ok(()) };
    if fs.write(attr.ino, 100, &data, false).is_ok() {
        let mut found = vec![0; data.len()];
        match fs.read(attr.ino, 100, &mut found) {
            Ok(_) if found == data => {}
            answer => return Err(format!("what was just written reads as {answer:?}")),
        }
    }
    drop(fs.rename(
        &caller,
        Ino::ROOT,
        b"new",
        Ino::ROOT,
        b"newer",
        dendro_fs::RenameFlags::empty(),
    ));
    drop(fs.unlink(Ino::ROOT, b"newer"));
    fs.forget(attr.ino, 1);
    Ok(())
}
