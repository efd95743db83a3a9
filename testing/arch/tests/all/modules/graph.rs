//! Arrows between named places, and circles in them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Arrows, each with one reason why it is there.
#[derive(Default)]
pub(crate) struct Arrows {
    arrows: BTreeMap<String, BTreeMap<String, String>>,
}

impl Arrows {
    /// Adds an arrow, unless it is there already.
    pub(crate) fn add(&mut self, tail: &str, head: &str, reason: &str) {
        let heads = self.arrows.entry(tail.to_owned()).or_default();
        heads.entry(head.to_owned()).or_insert_with(|| reason.to_owned());
    }

    /// Circles, each as lines that name its arrows: a shortest one through each place that no
    /// earlier one goes through. There are none only if the arrows form no circle at all.
    pub(crate) fn circles(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for place in self.arrows.keys() {
            if seen.contains(place) {
                continue;
            }
            if let Some(circle) = self.shortest_circle(place) {
                let arrows = circle.iter().zip(&circle[1..]);
                let lines = arrows.map(|(tail, head)| {
                    format!("    {tail} -> {head}: {}\n", self.arrows[*tail][*head])
                });
                circles.push(lines.collect());
                seen.extend(circle);
            }
        }
        circles
    }

    /// The places of a shortest way from a place back to itself, which stands at both ends.
    fn shortest_circle<'a>(&'a self, start: &'a String) -> Option<Vec<&'a String>> {
        let mut reached_from: BTreeMap<&String, &String> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(place) = queue.pop_front() {
            for head in self.arrows.get(place).into_iter().flat_map(BTreeMap::keys) {
                if head == start {
                    let mut circle = vec![start, place];
                    while let Some(before) = reached_from.get(circle[circle.len() - 1]) {
                        circle.push(before);
                    }
                    if place == start {
                        circle.pop();
                    }
                    circle.reverse();
                    circle.push(start);
                    circle.dedup();
                    return Some(circle);
                }
                if !reached_from.contains_key(head) {
                    reached_from.insert(head, place);
                    queue.push_back(head);
                }
            }
        }
        None
    }
}
