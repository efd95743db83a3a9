use dendro_base::Rng;

use super::*;

fn new() -> Versions {
    Versions::new(Timestamp(0))
}

/// Makes a random change, which may be refused.
fn change_at_random(versions: &mut Versions, rng: &mut Rng, step: u64) -> Vec<Change> {
    let views: Vec<_> = versions.table().views().collect();
    let view = views[rng.below(views.len() as u64) as usize];
    let (name, time) = (format!("v{step}"), Timestamp(step as i64));
    let main = versions.table().main;
    let dice = rng.below(16);
    let changed = versions.change(|table| match dice {
        0..4 => table.branch_off(view, &name, time).map(drop),
        4..8 => table.snapshot(view.branch, Some(&name), time).map(drop),
        8 => table.promote(view.branch),
        9 => table.roll_back(main, view, time).map(drop),
        10 => table.rename(view, &name),
        _ => table.delete(view),
    });
    changed.map_or_else(|_| Vec::new(), |((), changes)| changes)
}

fn assert_alike(followed: &Versions, read: &Versions, context: &str) {
    assert_eq!(followed.table, read.table, "{context}");
    assert_eq!(followed.facts.len(), read.facts.len(), "{context}");
    for (branch, facts) in &followed.facts {
        let other = &read.facts[branch];
        assert_eq!(facts.has_head, other.has_head, "{context}: {branch}");
        assert_eq!(facts.pins, other.pins, "{context}: {branch}");
        assert_eq!(facts.forks, other.forks, "{context}: {branch}");
        let ancestries =
            [followed, read].map(|all| all.whole_ancestry(*branch).expect("it is there"));
        assert!(ancestries[0].spans().eq(ancestries[1].spans()), "{context}: {branch}");
    }
}

#[test]
fn facts_updated_by_a_change_equal_facts_read_from_its_records() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut versions = new();
        let mut records: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut replayed = new();
        for step in 0..60 {
            for (index, record) in change_at_random(&mut versions, &mut rng, step) {
                replayed.enter(index, record.as_deref()).unwrap();
                match record {
                    Some(record) => drop(records.insert(index, record)),
                    None => drop(records.remove(&index)),
                }
            }
            versions.check().unwrap();
            let context = format!("seed {seed}, step {step}");
            assert_alike(&versions, &replayed, &context);
            let mut read = new();
            for (index, record) in &records {
                read.enter(*index, Some(record)).unwrap();
            }
            assert_alike(&versions, &read, &context);
            read.refresh();
            assert_alike(&versions, &read, &context);
        }
    }
}

/// Computes [`Versions::sees_alone`] ancestor by ancestor.
fn is_alone(versions: &Versions, branch: u32, older: u32, epoch: u64) -> bool {
    let table = versions.table();
    let ancestry = table.ancestry(View { branch, epoch: None });
    if table.pins(branch).next().is_some() || older >= branch {
        return false;
    }
    ancestry[1..].iter().take_while(|(ancestor, _)| *ancestor >= older).all(|(ancestor, fork)| {
        let since = if *ancestor == older { epoch } else { 0 };
        let has_other = table.forks_on(*ancestor).filter(|(at, _)| at == fork).count() > 1;
        let is_pinned = table.snapshots_on(*ancestor).any(|of| of.epoch >= since)
            || table.forks_on(*ancestor).any(|(at, _)| at >= since && at != *fork);
        !table.has_head(*ancestor) && !has_other && !is_pinned
    })
}

#[test]
fn sees_alone_is_right_beyond_pass_through_branches() {
    let (mut alone, mut farther) = (0, 0);
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut versions = new();
        for step in 0..60 {
            change_at_random(&mut versions, &mut rng, step);
            let branches: Vec<_> = versions.table().branches().map(|of| of.branch).collect();
            let branch = branches[rng.below(branches.len() as u64) as usize];
            let ancestry = versions.table().ancestry(View { branch, epoch: None });
            for (at, (older, last)) in ancestry.iter().enumerate().skip(1) {
                let epoch = 1 + rng.below(*last);
                let expected = is_alone(&versions, branch, *older, epoch);
                let found = versions.sees_alone(branch, *older, epoch);
                assert_eq!(found, expected, "seed {seed}, step {step}: {branch} with {older}");
                alone += u32::from(found);
                farther += u32::from(found && at > 1);
            }
        }
    }
    assert!(alone > 100 && farther > 20, "it happened {alone} and {farther} times");
}

#[test]
fn a_change_puts_only_its_own_records_however_many_versions_there_are() {
    let mut versions = new();
    for number in 0..5000 {
        let name = format!("v{number}");
        let (_, changes) = versions
            .change(|table| match number % 2 {
                0 => table.snapshot(0, Some(&name), Timestamp(0)).map(drop),
                _ => table.branch_off(View::HEAD, &name, Timestamp(0)).map(drop),
            })
            .unwrap();
        let indexes: Vec<_> = changes.iter().map(|(index, _)| *index).collect();
        let own = match number % 2 {
            0 => snapshot_index(number + 1),
            _ => branch_index(number as u32 / 2 + 1),
        };
        assert_eq!(indexes, [own, COUNTERS_INDEX]);
    }
    let renamed =
        |name: &'static str| move |table: &mut VersionTable| table.rename(View::HEAD, name);
    let (_, changes) = versions.change(renamed("trunk")).unwrap();
    assert_eq!(changes.len(), 1);
    let (_, changes) = versions.change(renamed("trunk")).unwrap();
    assert_eq!(changes, [], "it is called so already");
}

#[test]
fn a_deletion_is_recorded_although_a_collection_for_forks_is_already_due() {
    let mut versions = new();
    let mut replayed = new();
    let mut clone = View::HEAD;
    for name in ["clone", "clone of it"] {
        let made = versions.change(|table| table.branch_off(clone, name, Timestamp(0))).unwrap();
        clone = made.0.head();
        for (index, record) in made.1 {
            replayed.enter(index, record.as_deref()).unwrap();
        }
    }
    assert!(versions.collect_behind_forks());
    let parent = View { branch: clone.branch - 1, epoch: None };
    let (_, changes) = versions.change(|table| table.delete(parent)).unwrap();
    for (index, record) in changes {
        replayed.enter(index, record.as_deref()).unwrap();
    }
    let since = replayed.collect_since().expect("a collection is due for what only the head saw");
    assert!(since <= versions.collect_since().unwrap());
}
