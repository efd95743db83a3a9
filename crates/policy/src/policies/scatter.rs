//! A policy for tests, which chooses at random.

use dendro_base::Rng;
use dendro_base::sync::Mutex;

use crate::class::{Class, Classes};
use crate::kind::Kind;
use crate::policy::Policy;
use crate::segment::{Present, Segment};

/// Chooses each answer at random, so that every class is filled and every segment is cleaned at
/// some time, even on volumes that are too small for other policies to use any class.
#[derive(Debug)]
pub struct Scatter {
    classes: Classes,
    rng: Mutex<Rng>,
}

impl Scatter {
    /// A policy with these classes, whose answers follow from `seed`.
    #[must_use]
    pub fn new(classes: Classes, seed: u64) -> Self {
        Self { classes, rng: Mutex::new(Rng::new(seed)) }
    }
}

impl Policy for Scatter {
    /// The default kind; no test depends on it.
    fn kind(&self) -> Kind {
        Kind::default()
    }

    fn victims(
        &self,
        candidates: &[Segment],
        count: usize,
        _present: &Present,
        rng: &mut Rng,
    ) -> Vec<Segment> {
        let mut dirty: Vec<_> = candidates.iter().copied().filter(Segment::has_dead).collect();
        let mut victims = Vec::new();
        while victims.len() < count && !dirty.is_empty() {
            victims.push(dirty.swap_remove(rng.below(dirty.len() as u64) as usize));
        }
        victims
    }

    fn classes(&self, _present: &Present) -> Classes {
        self.classes
    }

    fn user_class(&self, _left: Option<&Segment>, _present: &Present) -> Class {
        let index = self.rng.lock().below(u64::from(self.classes.users) + 1) as u8;
        if index < self.classes.users { Class::user(index) } else { Class::MAIN }
    }

    fn survivor_class(&self, _left: &Segment, _present: &Present) -> Class {
        let index = self.rng.lock().below(u64::from(self.classes.survivors) + 1) as u8;
        if index < self.classes.survivors { Class::survivor(index) } else { Class::MAIN }
    }
}
