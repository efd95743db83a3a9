use std::collections::BTreeMap;

use dendro_base::Rng;
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::{Chunk, PageRef, Space};

use super::*;
use crate::fault::Fault;
use crate::map::node::LEAF_LEN_BYTES;

/// For trees all of which is in memory.
struct NoNodes;

impl Nodes for NoNodes {
    fn node(&self, place: &NodePtr) -> Outcome<Arc<Resident>> {
        Err(Fault::Miss(*place))
    }

    fn take(&self, place: &NodePtr) -> Outcome<Arc<Resident>> {
        Err(Fault::Miss(*place))
    }

    fn node_if_cached(&self, _: &NodePtr) -> Option<Arc<Resident>> {
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
    let mut entries = Vec::new();
    let end = Key { list: u64::MAX, ..Key::MIN };
    map.visit(&Key::MIN, &end, &NoNodes, &mut |key, value| {
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
fn random_changes_are_those_of_a_sorted_table_and_leave_frozen_trees_alone() {
    let mut rng = Rng::new(7);
    let (mut map, mut model) = (Map::default(), BTreeMap::new());
    let mut frozen = Vec::new();
    let mut taken_whole = 0;
    for step in 0..30_000_u32 {
        let key = record(rng.below(40), rng.below(60));
        match rng.below(10) {
            0..5 => {
                let value = value(&mut rng);
                let old = map.put(key, value.clone(), &NoNodes).unwrap().old;
                assert_eq!(old, model.insert(key, value));
            }
            5..7 if model.contains_key(&key) => {
                let value = value(&mut rng);
                map.change(&key, &NoNodes, |old| *old = value.clone()).unwrap();
                model.insert(key, value);
            }
            7..9 => assert_eq!(map.remove(&key, &NoNodes).unwrap(), model.remove(&key)),
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
fn leaves_are_split_when_what_they_hold_grows_where_it_is() {
    let mut map = Map::default();
    let key = |index| Key { list: 9, space: Space::Chunks, index, branch: 0, epoch: 1 };
    for index in 0..3000 {
        let mut chunk = Chunk::default();
        chunk.set(7, PageRef::ZERO);
        map.put(key(index), Value::Chunk(Arc::new(chunk)), &NoNodes).unwrap();
    }
    for index in 0..3000 {
        map.change(&key(index), &NoNodes, |value| {
            let Value::Chunk(chunk) = value else { panic!("a chunk was put") };
            (0..CHUNK_PAGES as u32).for_each(|slot| Arc::make_mut(chunk).set(slot, PageRef::ZERO));
        })
        .unwrap();
    }
    assert!(longest_leaf(map.root.as_ref().unwrap()) <= LEAF_LEN_BYTES);
    let is_full = |value: &Value| matches!(value, Value::Chunk(chunk) if chunk.len() == 32);
    assert_eq!(entries(&map).iter().filter(|(_, value)| is_full(value)).count(), 3000);
}
