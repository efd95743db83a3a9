//! The acts that led to a state, from which the model is made again.

use dendro_base::sync::Arc;
use dendro_fs::testing::{Model, Step, StepClock};

/// The permission bits of the root directory.
pub(crate) const ROOT_MODE: u32 = 0o755;

/// Everything that was done, the last act first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script(Option<Arc<Scene>>);

#[derive(Debug)]
struct Scene {
    before: Script,
    act: Act,
}

#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// A step and its number, which is its time.
    Step(u64, Step),
    /// All open files were closed.
    CloseAll,
}

impl Script {
    pub(crate) fn then(&self, act: Act) -> Self {
        Self(Some(Arc::new(Scene { before: self.clone(), act })))
    }

    /// The model after it.
    pub(crate) fn perform(&self) -> Model {
        let mut acts = Vec::new();
        let mut at = self;
        while let Some(scene) = &at.0 {
            acts.push(&scene.act);
            at = &scene.before;
        }
        let clock = StepClock::default();
        let mut model = Model::new(clock.set_step(0), 0, 0, ROOT_MODE);
        for act in acts.into_iter().rev() {
            match act {
                Act::Step(number, step) => drop(model.run(step, clock.set_step(*number))),
                Act::CloseAll => model.close_all(),
            }
        }
        model
    }
}
