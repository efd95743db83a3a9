//! The first branch may lose its head and all that was made from it. It does not come back.

use dendro_base::{Origin, Timestamp, Uuid};
use dendro_check::{Options, verify};
use dendro_disk::model::ModelVersions;
use dendro_disk::{Aru, CommitSeq, Lid, ListHints, LogicalDisk, Versions, View};
use dendro_logdisk::LogDisk;

use crate::common::{drain, formatted, list_of, open};

/// Receives a version that has nothing to do with the volume's own: one list, with a record.
fn receive(disk: &LogDisk) -> View {
    let head = disk.begin_receive(None, None).expect("there is room").head();
    let mut aru = Aru::new(head);
    aru.create_list(Lid(3), ListHints::default()).put_record(Lid(3), 1, &b"received"[..]);
    disk.commit(aru).expect("there is room");
    let origin = Origin { volume: Uuid([7; 16]), epoch: 5 };
    disk.end_receive(head.branch, Some("received"), origin, Timestamp(1)).expect("it ends").view()
}

/// Replaces the first branch by one that comes from `to`.
type Leave = fn(&LogDisk, View);

fn roll_back(disk: &LogDisk, to: View) {
    disk.roll_back(0, to).expect("it is a snapshot of the same client");
}

fn promote_a_clone(disk: &LogDisk, of: View) {
    let clone = disk.branch_off(of, "clone").expect("the name is new");
    disk.promote(clone.branch).expect("it is a branch of the same client");
    disk.delete(View::HEAD).expect("it is not the main branch any more");
}

#[test]
fn the_first_branch_stays_away_when_a_received_version_has_taken_its_place() {
    for leave in [roll_back as Leave, promote_a_clone] {
        for (has_snapshot, is_shut_down) in
            [(false, true), (true, true), (false, false), (true, false)]
        {
            let (device, disk) = formatted(16 << 20);
            list_of(&disk, View::HEAD, 200);
            let own = has_snapshot.then(|| disk.snapshot(0, None).expect("there is room").view());
            let received = receive(&disk);
            leave(&disk, received);
            if let Some(own) = own {
                disk.delete(own).expect("it is a snapshot");
            }
            drain(&disk);
            let main = disk.versions().main_head();
            assert_ne!(main.branch, 0);
            let mut aru = Aru::new(main);
            aru.put_record(Lid(3), 2, &b"own"[..]);
            disk.commit(aru).expect("there is room");
            let before = ModelVersions::read_from(&disk).expect("it can be read");
            assert_eq!(before.table().branches().count(), 1);
            if is_shut_down {
                disk.shut_down().expect("the device works");
            } else {
                disk.flush(CommitSeq::LATEST).expect("the device works");
            }
            drop(disk);
            let disk = open(&device);
            let views = |of: &ModelVersions| of.table().views().collect::<Vec<_>>();
            let after = ModelVersions::read_from(&disk).expect("it can be read");
            assert_eq!(views(&before), views(&after));
            assert_eq!(disk.versions().main_head(), main);
            assert_eq!(disk.versions().branch_named("main").map(|of| of.branch), Some(main.branch));
            for view in views(&before) {
                assert_eq!(before.state(view), after.state(view), "{view}");
            }
            drain(&disk);
            disk.shut_down().expect("the device works");
            drop(disk);
            let report = verify(&*device, &Options { data: true });
            assert_eq!(report.findings, []);
        }
    }
}
