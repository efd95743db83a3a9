//! What is crashed.

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_device::sim::SimDevice;

use crate::trace::Trace;

/// What went wrong, in words.
pub type Outcome<T> = Result<T, String>;

/// A stack of layers over a device, and random work for it.
pub trait System: Sync {
    /// What is known of a moment of the work.
    type State: Clone + Send + Sync;
    /// What is found after a crash.
    type Found;

    /// Makes an empty volume on `device`, durable.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn format(&self, device: &Arc<SimDevice>) -> Outcome<Self::State>;

    /// Opens the volume, finds the state it is in by [`Trace::reopened`], and does about
    /// `step_count` random steps, entering every state and promise into `trace`. The device is
    /// recording since just before the call.
    ///
    /// # Errors
    /// Whatever is not as it must be.
    fn work(
        &self,
        device: &Arc<SimDevice>,
        rng: &mut Rng,
        step_count: usize,
        trace: &mut Trace<Self::State>,
    ) -> Outcome<()>;

    /// Opens the volume as after a crash, reads everything, and leaves it without shutting down.
    /// How exactly it goes about it follows from `rng`.
    ///
    /// # Errors
    /// Whatever is not as it must be after any crash.
    fn inspect(&self, device: &Arc<SimDevice>, rng: &mut Rng) -> Outcome<Self::Found>;

    /// Whether what was found is this state.
    fn is_state(&self, found: &Self::Found, state: &Self::State) -> bool;

    /// Says in words how what was found differs from a state.
    fn explain(&self, found: &Self::Found, state: &Self::State) -> String;
}
