use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use dendro_base::Rng;
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::{Addr, Chunk, PageRef, Space};
use rustc_hash::FxHashMap;

use super::*;
use crate::fault::Fault;
use crate::map::node::{LEAF_LEN_BYTES, Resident, SharedNode};
use crate::map::settling::collect_dirty;

/// A source for trees that are completely in memory.
struct NoNodes;

impl Nodes for NoNodes {
    fn node(&self, place: &NodePtr) -> Outcome<SharedNode> {
        Err(Fault::Miss(*place))
    }

    fn take(&self, place: &NodePtr) -> Outcome<SharedNode> {
        Err(Fault::Miss(*place))
    }

    fn node_if_cached(&self, _: &NodePtr) -> Option<SharedNode> {
        None
    }
}

const fn record(list: u64, index: u64) -> Key {
    Key { list, space: Space::Records, index, branch: 0, epoch: 1 }
}

fn value(rng: &mut Rng) -> Value {
    let mut bytes = vec![0; 1 + rng.below(300) as usize];
    rng.fill(&mut bytes);
    Value::Record(Arc::from(bytes))
}

fn entries(map: &Map) -> Vec<(Key, Value)> {
    entries_in(map, &NoNodes)
}

fn entries_in(map: &Map, nodes: &dyn Nodes) -> Vec<(Key, Value)> {
    let mut entries = Vec::new();
    let end = Key { list: u64::MAX, ..Key::MIN };
    map.visit(&Key::MIN, &end, nodes, &mut |key, value| {
        entries.push((*key, value.clone()));
        ControlFlow::Continue(())
    })
    .unwrap();
    entries
}

fn listed(model: &BTreeMap<Key, Value>) -> Vec<(Key, Value)> {
    model.iter().map(|(key, value)| (*key, value.clone())).collect()
}

#[test]
fn random_changes_match_a_sorted_table_and_do_not_change_frozen_trees() {
    let mut rng = Rng::new(7);
    let (mut map, mut model) = (Map::default(), BTreeMap::new());
    let mut frozen = Vec::new();
    let mut taken_whole = 0;
    for step in 0..30_000_u32 {
        let key = record(rng.below(40), rng.below(60));
        match rng.below(10) {
            0..5 => {
                let value = value(&mut rng);
                let replaced = map.put(&key, value.clone(), &NoNodes).unwrap();
                let old = model.insert(key, value);
                assert_eq!(replaced == Replaced::Entry, old.is_some());
            }
            5..9 => assert_eq!(map.remove(&key, &NoNodes).unwrap(), model.remove(&key)),
            9 => {
                let (from, to) = (record(key.list, 0), record(key.list, 1 + rng.below(60)));
                if let Some(taken) = map.take_from_leaf(&from, &to, &NoNodes).unwrap() {
                    let expected = model.extract_if(from..to, |_, _| true);
                    assert!(expected.eq(taken), "step {step}");
                    taken_whole += 1;
                }
            }
            _ => {}
        }
        assert_eq!(map.get(&key, &NoNodes).unwrap().as_ref(), model.get(&key));
        if step % 5000 == 0 {
            frozen.push((map.freeze(), listed(&model)));
        }
    }
    assert!(taken_whole > 100 && !model.is_empty());
    assert_eq!(entries(&map), listed(&model));
    for (root, expected) in frozen {
        let level = root.as_ref().map_or(0, |(_, level)| *level);
        let map = Map { root: root.map(|(root, _)| root), level, ..Map::default() };
        assert_eq!(entries(&map), expected);
    }
}

fn longest_leaf(child: &Child) -> usize {
    let Child::Dirty(resident) = child else { return 0 };
    match &resident.node {
        Node::Leaf(leaf) => leaf.len_bytes(),
        Node::Inner(inner) => {
            inner.entries.iter().map(|(_, child)| longest_leaf(child)).max().unwrap_or(0)
        }
    }
}

#[test]
fn a_leaf_is_split_when_its_values_grow_in_place() {
    let mut map = Map::default();
    let key = |index| Key { list: 9, space: Space::Chunks, index, branch: 0, epoch: 1 };
    for index in 0..3000 {
        let mut chunk = Chunk::default();
        chunk.set(7, PageRef::ZERO);
        map.put(&key(index), Value::Chunk(Arc::new(chunk)), &NoNodes).unwrap();
    }
    for index in 0..3000 {
        for slot in 0..CHUNK_PAGES as u32 {
            map.set_page(&key(index), slot, PageRef::ZERO, &NoNodes).unwrap();
        }
    }
    assert!(longest_leaf(map.root.as_ref().unwrap()) <= LEAF_LEN_BYTES);
    let is_full = |value: &Value| matches!(value, Value::Chunk(chunk) if chunk.len() == 32);
    assert_eq!(entries(&map).iter().filter(|(_, value)| is_full(value)).count(), 3000);
}

#[test]
fn undoing_a_change_restores_the_entries_and_leaves_no_empty_leaf() {
    let mut rng = Rng::new(11);
    let (mut map, mut model) = (Map::default(), BTreeMap::new());
    let chunk_key = |index| Key { space: Space::Chunks, ..record(7, index) };
    for round in 0..600_u32 {
        map.begin();
        let mut changed = model.clone();
        for _ in 0..rng.below(60) {
            let key = record(rng.below(4), rng.below(400));
            match rng.below(12) {
                0..4 => {
                    let value = value(&mut rng);
                    map.put(&key, value.clone(), &NoNodes).unwrap();
                    changed.insert(key, value);
                }
                4..8 => assert_eq!(map.remove(&key, &NoNodes).unwrap(), changed.remove(&key)),
                8 => {
                    let to = record(key.list, key.index + 1 + rng.below(60));
                    if map.take_from_leaf(&key, &to, &NoNodes).unwrap().is_some() {
                        changed.retain(|at, _| *at < key || *at >= to);
                    }
                }
                _ => {
                    let (key, slot) = (chunk_key(rng.below(30)), rng.below(32) as u32);
                    let mut chunk = match changed.get(&key) {
                        Some(Value::Chunk(chunk)) => Chunk::clone(chunk),
                        _ => Chunk::with_holes(&[None; CHUNK_PAGES as usize], 1 << 9),
                    };
                    if changed.contains_key(&key) {
                        map.set_page(&key, slot, PageRef::ZERO, &NoNodes).unwrap();
                        chunk.set(slot, PageRef::ZERO);
                    } else {
                        let value = Value::Chunk(Arc::new(chunk.clone()));
                        map.put(&key, value, &NoNodes).unwrap();
                    }
                    changed.insert(key, Value::Chunk(Arc::new(chunk)));
                }
            }
        }
        assert_eq!(entries(&map), listed(&changed), "round {round}, as changed");
        if rng.below(2) == 0 {
            map.roll_back();
        } else {
            map.settle_changes(&NoNodes);
            model = changed;
        }
        assert_eq!(entries(&map), listed(&model), "round {round}");
        assert!(map.root.as_ref().is_none_or(has_no_empty_leaf), "round {round}");
    }
    assert!(!model.is_empty());
}

fn has_no_empty_leaf(child: &Child) -> bool {
    let Child::Dirty(resident) = child else { return true };
    match &resident.node {
        Node::Leaf(leaf) => !leaf.entries().is_empty(),
        Node::Inner(inner) => {
            !inner.entries.is_empty()
                && inner.entries.iter().all(|(_, child)| has_no_empty_leaf(child))
        }
    }
}

/// Nodes that checkpoints have written, by their places.
#[derive(Default)]
struct Written(RefCell<FxHashMap<NodePtr, SharedNode>>);

impl Nodes for Written {
    fn node(&self, place: &NodePtr) -> Outcome<SharedNode> {
        self.node_if_cached(place).ok_or(Fault::Miss(*place))
    }

    fn take(&self, place: &NodePtr) -> Outcome<SharedNode> {
        self.0.borrow_mut().remove(place).ok_or(Fault::Miss(*place))
    }

    fn node_if_cached(&self, place: &NodePtr) -> Option<SharedNode> {
        self.0.borrow().get(place).cloned()
    }
}

impl Written {
    /// Writes a node as a checkpoint does.
    fn write(&self, resident: &SharedNode, number: u64) -> NodePtr {
        let place = NodePtr { addr: Addr(number), len_bytes: 1, crc32c: 0 };
        let stored = match &resident.node {
            Node::Inner(inner) => Node::Inner(inner.with_places()),
            leaf => leaf.clone(),
        };
        resident.set_written(ChildPtr::of_unknown_age(place));
        self.0.borrow_mut().insert(place, Resident::new(stored));
        place
    }

    /// The clean nodes under `child`.
    fn clean_under(&self, child: &Child, clean: &mut BTreeSet<u64>) {
        let resident = match child {
            Child::Dirty(resident) => {
                assert!(resident.written().is_none(), "a written node is clean");
                SharedNode::clone(resident)
            }
            Child::Clean(child) => {
                assert!(clean.insert(child.place.addr.0), "a node has one parent");
                self.node(&child.place).unwrap()
            }
        };
        if let Node::Inner(inner) = &resident.node {
            inner.entries.iter().for_each(|(_, child)| self.clean_under(child, clean));
        }
    }
}

/// A map that changes, and what it must be equal to.
struct Changing {
    rng: Rng,
    map: Map,
    model: BTreeMap<Key, Value>,
    nodes: Written,
    /// The written nodes that count as used.
    used: BTreeSet<u64>,
}

impl Changing {
    fn change(&mut self, most: u64) {
        let (rng, map, nodes) = (&mut self.rng, &mut self.map, &self.nodes);
        for _ in 0..rng.below(most) {
            let key = record(rng.below(20), rng.below(300));
            if rng.below(5) < 3 {
                let value = value(rng);
                map.put(&key, value.clone(), nodes).unwrap();
                self.model.insert(key, value);
            } else {
                assert_eq!(map.remove(&key, nodes).unwrap(), self.model.remove(&key));
            }
        }
        for place in self.map.take_released() {
            assert!(self.used.remove(&place.addr.0), "a clean node is released once");
        }
    }
}

#[test]
fn a_checkpoint_settled_in_slices_makes_clean_what_has_not_changed_meanwhile() {
    for seed in 0..10 {
        let mut changing = Changing {
            rng: Rng::new(seed),
            map: Map::default(),
            model: BTreeMap::new(),
            nodes: Written::default(),
            used: BTreeSet::new(),
        };
        let (mut written_count, mut slices) = (0, 0);
        for round in 0..60 {
            changing.change(if round % 5 == 0 { 2000 } else { 40 });
            let mut order = Vec::new();
            if let Some((root, _)) = changing.map.freeze() {
                changing.change(20);
                collect_dirty(&root, &mut order);
            }
            for resident in &order {
                written_count += 1;
                let place = changing.nodes.write(resident, written_count);
                changing.used.insert(place.addr.0);
            }
            changing.change(40);
            let mut next = Some(Key::MIN);
            while let Some(from) = next {
                next = changing.map.settle(&from, 10);
                slices += 1;
                if next.is_some() {
                    changing.change(20);
                }
            }
            for resident in order.iter().filter(|resident| resident.is_superseded()) {
                let place = resident.written().expect("it was written just now").place;
                assert!(changing.used.remove(&place.addr.0), "a node is superseded once");
            }
            let mut clean = BTreeSet::new();
            if let Some(root) = &changing.map.root {
                changing.nodes.clean_under(root, &mut clean);
            }
            assert_eq!(clean, changing.used, "seed {seed}, round {round}");
            let found = entries_in(&changing.map, &changing.nodes);
            assert_eq!(found, listed(&changing.model), "seed {seed}, round {round}");
        }
        assert!(slices > 300, "{slices}");
    }
}
