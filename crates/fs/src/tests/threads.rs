//! Many threads at the same time.

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_disk::model::ModelDisk;
use dendro_disk::{Lid, LogicalDisk, View};
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Fixture, USER, noatime};
use crate::testing::{Driver, Generator, Model, Profile, StepClock, Tree};
use crate::{Ino, OpenOptions, Options, RenameFlags};

const THREADS: u64 = 8;

/// Threads in a scope: they end with the test.
fn in_threads(work: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let work = &work;
            scope.spawn(move || work(number));
        }
    });
}

#[test]
fn threads_on_the_same_files_end_and_leave_a_sound_file_system() {
    for lookups_keep_files in [false, true] {
        let options = Options { lookups_keep_files, inode_cache_len: 32, ..noatime() };
        let mut fixture = Fixture::with(ModelDisk::new(None), options, u64::MAX);
        let (fs, clock) = (Arc::clone(&fixture.fs), StepClock::default());
        in_threads(|number| {
            // The steps of each thread fit a model of its own. On the common tree they run into the
            // changes of other threads.
            let mut model = Model::new(clock.set_step(0), 0, 0, 0o755);
            let mut generator = Generator::new(number, Profile::default());
            let mut driver = Driver::new(Arc::clone(&fs));
            for _ in 0..3000 {
                let step = generator.next(&model);
                let _ = model.run(&step, clock.set_step(1));
                if let Err(errno) = driver.run(&step) {
                    assert_ne!(errno, 5, "no damage: {step:?}");
                }
            }
        });
        fixture.assert_sound();
        Tree::of_fs(&fixture.fs).unwrap();
        drop(fs);
        fixture.remount();
        fixture.assert_sound();
        assert!(fixture.fs.state().orphans().is_empty());
    }
}

#[test]
fn directories_that_move_around_each_other_do_not_lock_up() {
    let fixture = Fixture::new();
    let fs = &fixture.fs;
    let dirs: Vec<Ino> = (0..6).map(|n| fixture.dir(&format!("d{n}"))).collect();
    in_threads(|number| {
        let mut rng = Rng::new(number);
        for _ in 0..4000 {
            let mut pick = || match rng.below(7) {
                6 => Ino::ROOT,
                n => dirs[n as usize],
            };
            let (from, to) = (pick(), pick());
            let name = format!("d{}", rng.below(6));
            let flags = if rng.chance(20) { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
            let _ = fs.rename(&USER, from, name.as_bytes(), to, name.as_bytes(), flags);
            let _ = fs.lookup(from, name.as_bytes());
            if rng.chance(10) {
                let _ = fs.rmdir(from, b"x");
                let _ = fs.mkdir(&USER, to, b"x", 0o755);
            }
        }
    });
    fixture.assert_sound();
    assert_eq!(dirs.iter().filter(|&&ino| fs.getattr(ino).unwrap().nlink >= 2).count(), 6);
}

#[test]
fn concurrent_appends_and_overwrites_of_one_file_are_whole() {
    let fixture = Fixture::new();
    let fs = &fixture.fs;
    let ino = fixture.file("f");
    in_threads(|number| {
        let byte = number as u8 + 1;
        for round in 0..200 {
            fs.write(ino, (round % 16) * 10_000, &[byte; 10_000], false).unwrap();
            let mut buf = [0; 10_000];
            if fs.read(ino, (round % 16) * 10_000, &mut buf).unwrap() == buf.len() {
                assert!(buf.iter().all(|&other| other == buf[0]), "a write is seen in part");
            }
        }
    });
    fixture.assert_sound();
}

#[test]
fn files_removed_while_others_open_and_close_them_are_freed() {
    let fixture = Fixture::new();
    let fs = &fixture.fs;
    in_threads(|number| {
        let mut rng = Rng::new(number);
        for _ in 0..2000 {
            let name = format!("f{}", rng.below(4));
            if let Ok(attr) =
                fs.create(&USER, Ino::ROOT, name.as_bytes(), 0o644, OpenOptions::default())
            {
                fs.write(attr.ino, rng.below(5000), b"some data", false).unwrap();
                let _ = fs.unlink(Ino::ROOT, name.as_bytes());
                fs.write(attr.ino, rng.below(5000), b"more data", false).unwrap();
                fs.release(attr.ino);
                fs.forget(attr.ino, 1);
            }
        }
    });
    for n in 0..4 {
        let _ = fs.unlink(Ino::ROOT, format!("f{n}").as_bytes());
    }
    fixture.assert_sound();
    assert_eq!(fixture.disk.state().list_count(), 3, "nothing is left");
}

#[test]
fn a_removed_file_that_is_forgotten_while_the_file_system_is_closed_is_gone_after_that() {
    for round in 0..1500_u32 {
        let options = Options { lookups_keep_files: true, ..noatime() };
        let fixture = Fixture::with(ModelDisk::new(None), options, u64::MAX);
        let file = fixture.fs.mknod(&USER, Ino::ROOT, b"file", 0o644, 0).unwrap().ino;
        fixture.fs.unlink(Ino::ROOT, b"file").unwrap();
        let is_ready = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                is_ready.store(true, Ordering::Release);
                fixture.fs.forget(file, 1);
            });
            while !is_ready.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            // So that the two meet at different points.
            (0..round % 300).for_each(|_| std::hint::spin_loop());
            fixture.fs.close().unwrap();
            // The disk may be shut down now.
            let hints = fixture.disk.hints(View::HEAD, Lid(file.0)).unwrap();
            assert!(hints.is_none(), "round {round}");
        });
    }
}
