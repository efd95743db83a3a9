//! The model is a logical disk with versions.

use dendro_disk::conformance::snapshots;
use dendro_disk::model::ModelDisk;

dendro_disk::versions_conformance_tests!(|| Box::new(ModelDisk::new(None)));

#[test]
fn space_comes_back_when_versions_go() {
    let disk = ModelDisk::new(Some(100_000_000));
    snapshots::space_comes_back_when_versions_go(&disk, &mut || ());
}

#[test]
fn a_full_disk_lets_versions_go() {
    snapshots::a_full_disk_lets_versions_go(&ModelDisk::new(Some(3_000_000)), &mut || ());
}
