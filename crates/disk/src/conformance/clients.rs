//! Clients beside the first.

use super::versions::Rig;
use crate::{ClientKind, Error, FIRST_CLIENT, Lid, ListHints, MAIN, Op, Versions, View};

const HEAD: View = View::HEAD;

fn new_client(rig: &mut Rig<'_>, name: &str, kind: ClientKind) -> View {
    rig.try_new_client(name, kind).expect("the name is new").head()
}

fn make(rig: &mut Rig<'_>, head: View, list: Lid) {
    rig.push(head, Op::CreateList { list, hints: ListHints::default() });
}

/// With more records than are removed at once.
fn fill(rig: &mut Rig<'_>, view: View, list: Lid, value: &'static [u8]) {
    rig.commit(view, |aru| {
        for index in 0..300 {
            aru.put_record(list, index, value);
        }
    });
    rig.write(view, list, 7, "abc");
}

/// Each has a list of number 1, and any others that it makes.
pub fn clients_number_their_lists_by_themselves(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let first = rig.list(HEAD);
    assert_eq!(first, Lid::FIRST);
    fill(&mut rig, HEAD, first, b"main");
    let heads = [("a", ClientKind::Block), ("b", ClientKind::Application)]
        .map(|(name, kind)| new_client(&mut rig, name, kind));
    rig.check();
    for head in heads {
        fill(&mut rig, head, first, b"client");
        make(&mut rig, head, Lid(40));
        fill(&mut rig, head, Lid(40), b"40");
    }
    // The first client too may make any list that it does not have itself.
    make(&mut rig, HEAD, Lid(40));
    assert!(disk.allocate_list().expect("a number") > Lid(40));
    rig.check();
    // A number that a version of the client has is not made again, whoever else has it.
    let kept = rig.snapshot(heads[0].branch);
    rig.push(heads[0], Op::DeleteList { list: Lid(40) });
    let again = rig.try_commit(heads[0], |aru| {
        aru.create_list(Lid(40), ListHints::default());
    });
    assert_eq!(again, Err(Error::ListExists(Lid(40))));
    rig.delete(kept);
    // Deleting is for one client alone, and so is making it anew.
    rig.push(heads[1], Op::DeleteList { list: Lid(40) });
    make(&mut rig, heads[1], Lid(40));
    rig.check();
    rig.push(HEAD, Op::DeleteList { list: first });
    rig.check();
    rig.delete(heads[1]);
    rig.check();
}

/// A client is the branches and snapshots that come from its first one.
pub fn clients_have_their_own_versions(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = rig.list(HEAD);
    rig.write(HEAD, list, 0, "m");
    let ours = rig.snapshot(0);
    let head = new_client(&mut rig, "vm", ClientKind::Block);
    rig.write(head, Lid::FIRST, 0, "c");
    let theirs = rig.snapshot(head.branch);
    let clone = rig.branch_off(theirs, "copy");
    rig.write(clone, Lid::FIRST, 1, "d");
    assert_eq!(rig.promote(head.branch), Err(Error::OtherClient(head)));
    assert_eq!(rig.promote(clone.branch), Err(Error::OtherClient(clone)));
    for (branch, to) in [(0, theirs), (head.branch, ours), (clone.branch, ours)] {
        assert_eq!(rig.try_roll_back(branch, to).map(drop), Err(Error::OtherClient(to)));
    }
    let taken = rig.try_new_client("copy", ClientKind::Files).map(drop);
    assert_eq!(taken, Err(Error::NameTaken("copy".into())));
    assert!(matches!(rig.try_new_client("a/b", ClientKind::Files), Err(Error::BadName(..))));
    // A rollback hands the name on, and the clone does not get it.
    let rolled = rig.roll_back(head.branch, theirs);
    rig.check();
    let table = disk.versions();
    assert_eq!(table.client_of(clone.branch), (head.branch, Some(ClientKind::Block)));
    assert_eq!(table.client_of(rolled.branch), (head.branch, Some(ClientKind::Block)));
    assert_eq!(table.client_of(0), (FIRST_CLIENT, None));
    let [first, vm] = &table.clients()[..] else { panic!("{:?}", table.clients()) };
    let name = |head: Option<u32>| table.branch(head.expect("a head")).map(|of| of.name.clone());
    assert_eq!((name(first.head), name(vm.head)), (Some(MAIN.into()), Some("vm".into())));
    assert_eq!(vm.views, [clone, rolled, theirs]);
    rig.rename(rolled, "guest").expect("the name is new");
    rig.hold(theirs, true).expect("a snapshot");
    assert!(matches!(rig.try_delete(theirs), Err(Error::InUse(..))));
    rig.hold(theirs, false).expect("a snapshot");
    for view in [theirs, clone, rolled] {
        rig.delete(view);
        rig.check();
    }
    assert_eq!(disk.versions().clients().len(), 1);
}

/// It is there when it is named, with all that it was given.
pub fn a_client_is_begun_filled_and_named(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let head = rig.try_begin_receive(None, Some(ClientKind::Files)).expect("a branch").head();
    for list in [Lid(1), Lid(2), Lid(9)] {
        make(&mut rig, head, list);
        rig.write(head, list, 0, "x");
    }
    assert_eq!(disk.versions().clients().len(), 1);
    assert_eq!(rig.name_client(0, "c").map(drop), Err(Error::NoSuchView(HEAD)));
    assert_eq!(rig.name_client(head.branch, MAIN).map(drop), Err(Error::NameTaken(MAIN.into())));
    rig.name_client(head.branch, "files").expect("the name is new");
    rig.check();
    let again = rig.name_client(head.branch, "again").map(drop);
    assert_eq!(again, Err(Error::NoSuchView(head)));
    // What is received without a kind is no client.
    let plain = rig.begin_receive(None);
    assert_eq!(rig.name_client(plain.branch, "c").map(drop), Err(Error::NoSuchView(plain)));
    rig.delete(plain);
    assert_eq!(disk.versions().kind_of(head.branch), Some(ClientKind::Files));
    rig.delete(head);
    rig.check();
}
