//! The policies by name.

use std::fmt;
use std::str::FromStr;

use crate::{AgeThreshold, CostAgeTimes, CostBenefit, DChoices, Greedy, Ladder, Policy};

/// Which policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// [`Ladder`]
    #[default]
    Ladder,
    /// [`Greedy`]
    Greedy,
    /// [`CostBenefit`]
    CostBenefit,
    /// [`AgeThreshold`]
    AgeThreshold,
    /// [`CostAgeTimes`]
    CostAgeTimes,
    /// [`DChoices`]
    DChoices,
}

impl Kind {
    /// All of them, the default first.
    pub const ALL: [Self; 6] = [
        Self::Ladder,
        Self::Greedy,
        Self::CostBenefit,
        Self::AgeThreshold,
        Self::CostAgeTimes,
        Self::DChoices,
    ];

    /// What it is called on the command line and over the control socket.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ladder => "ladder",
            Self::Greedy => "greedy",
            Self::CostBenefit => "cost-benefit",
            Self::AgeThreshold => "age-threshold",
            Self::CostAgeTimes => "cost-age-times",
            Self::DChoices => "d-choices",
        }
    }

    /// The policy with its settings as documented.
    #[must_use]
    pub fn policy(self) -> Box<dyn Policy> {
        match self {
            Self::Ladder => Box::new(Ladder),
            Self::Greedy => Box::new(Greedy),
            Self::CostBenefit => Box::new(CostBenefit),
            Self::AgeThreshold => Box::new(AgeThreshold),
            Self::CostAgeTimes => Box::new(CostAgeTimes),
            Self::DChoices => Box::new(DChoices),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// There is no policy of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no cleaning policy \"{}\"; there are", self.0)?;
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            let separator = if at == 0 { "" } else { "," };
            write!(f, "{separator} {kind}")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownPolicy {}

impl FromStr for Kind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_found_by_its_name() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(kind.policy().kind(), kind);
        }
        assert_eq!(Kind::default(), Kind::ALL[0]);
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_there_are() {
        let error = "best".parse::<Kind>().unwrap_err().to_string();
        assert!(
            error.starts_with("there is no cleaning policy \"best\"; there are ladder, greedy")
        );
    }
}
