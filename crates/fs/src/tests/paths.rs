//! The paths of files.

use std::collections::BTreeSet;

use dendro_disk::{Aru, LogicalDisk, View};

use super::{Fixture, USER};
use crate::format::DIR_BASE;
use crate::{Ino, paths_of};

fn named(fixture: &Fixture, wanted: &[Ino]) -> Vec<Vec<String>> {
    let wanted_set: BTreeSet<Ino> = wanted.iter().copied().collect();
    let paths = paths_of(&*fixture.disk, View::HEAD, &wanted_set, 0).unwrap();
    assert!(paths.keys().all(|ino| wanted_set.contains(ino)));
    let of = |ino: &Ino| {
        let mut of: Vec<_> = paths
            .get(ino)
            .into_iter()
            .flatten()
            .map(|path| String::from_utf8_lossy(path).into_owned())
            .collect();
        of.sort();
        of
    };
    wanted.iter().map(of).collect()
}

#[test]
fn files_are_called_by_all_their_paths() {
    let fixture = Fixture::new();
    let dir = fixture.dir("d");
    let sub = fixture.fs.mkdir(&USER, dir, b"sub", 0o755).unwrap().ino;
    let file = fixture.file_with("f", b"x");
    fixture.fs.link(file, sub, b"other").unwrap();
    let absent = Ino(file.0 + 1000);
    assert_eq!(
        named(&fixture, &[Ino::ROOT, dir, sub, file, absent]),
        [vec!["/"], vec!["/d"], vec!["/d/sub"], vec!["/d/sub/other", "/f"], vec![]]
    );
}

#[test]
fn damage_on_the_way_takes_the_names_behind_it_alone() {
    let fixture = Fixture::new();
    let (dir, file) = (fixture.dir("d"), fixture.file_with("f", b"x"));
    let sub = fixture.fs.mkdir(&USER, dir, b"sub", 0o755).unwrap().ino;
    let records = fixture.disk.records(View::HEAD, dir.lid(), DIR_BASE, 1).unwrap();
    let mut aru = Aru::new(View::HEAD);
    aru.put_record(dir.lid(), records[0].0, vec![0xff; 40]);
    fixture.disk.commit(aru).unwrap();
    assert_eq!(named(&fixture, &[sub, file]), [vec![], vec!["/f".to_owned()]]);
}

#[test]
fn directories_that_lie_in_each_other_have_no_path() {
    let fixture = Fixture::new();
    let outer = fixture.dir("d");
    let inner = fixture.fs.mkdir(&USER, outer, b"sub", 0o755).unwrap().ino;
    // Move the root's record of the outer directory to the inner one. Then neither leads to the
    // root.
    let records = fixture.disk.records(View::HEAD, Ino::ROOT.lid(), DIR_BASE, 1).unwrap();
    let mut aru = Aru::new(View::HEAD);
    aru.put_record(inner.lid(), records[0].0, records[0].1.to_vec());
    aru.delete_record(Ino::ROOT.lid(), records[0].0);
    fixture.disk.commit(aru).unwrap();
    assert_eq!(named(&fixture, &[outer, inner]), [Vec::<String>::new(), Vec::new()]);
}
