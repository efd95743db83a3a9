//! The policies, one in each module, and how each is made from its name.

mod age_threshold;
mod cost_age_times;
mod cost_benefit;
mod d_choices;
mod greedy;
mod multi_generational;
#[cfg(feature = "testing")]
mod scatter;
#[cfg(test)]
mod tests;

pub use age_threshold::AgeThreshold;
pub use cost_age_times::CostAgeTimes;
pub use cost_benefit::CostBenefit;
pub use d_choices::DChoices;
pub use greedy::Greedy;
pub use multi_generational::MultiGenerational;
#[cfg(feature = "testing")]
pub use scatter::Scatter;

use crate::kind::Kind;
use crate::policy::Policy;

impl Kind {
    /// The policy with its settings as documented.
    #[must_use]
    pub fn policy(self) -> Box<dyn Policy> {
        match self {
            Self::MultiGenerational => Box::new(MultiGenerational),
            Self::Greedy => Box::new(Greedy),
            Self::CostBenefit => Box::new(CostBenefit),
            Self::AgeThreshold => Box::new(AgeThreshold),
            Self::CostAgeTimes => Box::new(CostAgeTimes),
            Self::DChoices => Box::new(DChoices),
        }
    }
}
