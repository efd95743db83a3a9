//! The daemon or mount that a request is meant for.
//!
//! Socket names, process numbers and device numbers are reused. Between the moment in which a
//! client finds a daemon and the moment in which its request arrives, another daemon may have got
//! them. So a request names its addressee, and any other daemon refuses it.

use serde::{Deserialize, Serialize};

use super::volume::Pong;

/// The daemon or mount that a request is meant for. What is `None` may be any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addressee {
    /// The volume's UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The daemon, as [`Pong::daemon`]: copies of an image have the same UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon: Option<String>,
    /// The mount that the request is about, as [`ViewInfo::id`](crate::ViewInfo::id).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<u64>,
}

impl Addressee {
    /// The daemon that has replied `pong`.
    #[must_use]
    pub fn of(pong: &Pong) -> Self {
        let named = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        Self { uuid: named(&pong.uuid), daemon: named(&pong.daemon), view: None }
    }

    /// The same, about one of its mounts. Number 0 names none: daemons of older releases do not
    /// number their mounts.
    #[must_use]
    pub fn about(self, view: u64) -> Self {
        Self { view: Some(view).filter(|&view| view != 0), ..self }
    }

    /// Why the daemon that replies `pong` is not the addressee, if it is not.
    pub(crate) fn differs_from(&self, pong: &Pong) -> Option<String> {
        if let Some(uuid) = self.uuid.as_ref().filter(|&uuid| *uuid != pong.uuid) {
            return Some(format!(
                "the request is meant for volume {uuid}, and this is the daemon of volume {}, on {}; \
                 that one is no longer mounted",
                pong.uuid, pong.source
            ));
        }
        if self.daemon.as_ref().is_some_and(|daemon| *daemon != pong.daemon) {
            return Some(format!(
                "the request is meant for a daemon that has ended; process {} serves {} now",
                pong.pid, pong.source
            ));
        }
        if self.view.is_some_and(|id| pong.views.iter().all(|view| view.id != id)) {
            return Some(format!(
                "the mount that the request is about has been unmounted; {} itself is named by its \
                 image or device",
                pong.source
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::ViewInfo;

    fn pong() -> Pong {
        Pong {
            uuid: "u".into(),
            daemon: "d".into(),
            source: "/image".into(),
            views: vec![ViewInfo { id: 3, ..ViewInfo::default() }],
            ..Pong::default()
        }
    }

    #[test]
    fn an_addressee_is_compared_as_far_as_it_is_named() {
        let said = Addressee::of(&pong());
        assert_eq!(Addressee::default().differs_from(&pong()), None);
        assert_eq!(said.differs_from(&pong()), None);
        assert_eq!(said.clone().about(3).differs_from(&pong()), None);
        assert_eq!(said.clone().about(0).differs_from(&pong()), None, "not named");
        let why = said.clone().about(2).differs_from(&pong()).unwrap();
        assert!(why.contains("has been unmounted"), "{why}");
        let other = Pong { uuid: "v".into(), ..pong() };
        let why = said.differs_from(&other).unwrap();
        assert!(why.contains("volume u") && why.contains("volume v"), "{why}");
        // A copy of the image has taken over the socket.
        let copy = Pong { daemon: "e".into(), ..pong() };
        assert!(said.differs_from(&copy).unwrap().contains("has ended"));
        let older = Addressee::of(&Pong { daemon: String::new(), ..pong() });
        assert_eq!(older.differs_from(&copy), None);
    }
}
