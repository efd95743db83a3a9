//! The model is a logical disk.

use dendro_disk::conformance::space;
use dendro_disk::model::ModelDisk;

dendro_disk::conformance_tests!(|| Box::new(ModelDisk::new(None)));

#[test]
fn a_full_disk_refuses_and_gives_space_back() {
    let disk = ModelDisk::new(Some(10_000_000));
    space::a_full_disk_refuses_and_gives_space_back(&disk, &mut || ());
}

#[test]
fn what_is_reserved_stays_writable_while_others_fill_the_disk() {
    let disk = ModelDisk::new(Some(10_000_000));
    space::what_is_reserved_stays_writable_while_others_fill_the_disk(&disk);
}

#[test]
fn pages_of_a_snapshot_are_moved_with_what_was_reserved_for_them() {
    let disk = ModelDisk::new(Some(20_000_000));
    space::pages_of_a_snapshot_are_moved_with_what_was_reserved_for_them(&disk);
}
