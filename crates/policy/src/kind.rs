//! The policies by name.

use std::fmt;
use std::str::FromStr;

/// Which policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// [`MultiGenerational`](crate::MultiGenerational)
    #[default]
    MultiGenerational,
    /// [`Greedy`](crate::Greedy)
    Greedy,
    /// [`CostBenefit`](crate::CostBenefit)
    CostBenefit,
    /// [`AgeThreshold`](crate::AgeThreshold)
    AgeThreshold,
    /// [`CostAgeTimes`](crate::CostAgeTimes)
    CostAgeTimes,
    /// [`DChoices`](crate::DChoices)
    DChoices,
}

impl Kind {
    /// All of them, the default first.
    pub const ALL: [Self; 6] = [
        Self::MultiGenerational,
        Self::Greedy,
        Self::CostBenefit,
        Self::AgeThreshold,
        Self::CostAgeTimes,
        Self::DChoices,
    ];

    /// Its name on the command line and over the control socket.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MultiGenerational => "ladder",
            Self::Greedy => "greedy",
            Self::CostBenefit => "cost-benefit",
            Self::AgeThreshold => "age-threshold",
            Self::CostAgeTimes => "cost-age-times",
            Self::DChoices => "d-choices",
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
