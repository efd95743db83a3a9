//! Whom a request is meant for.
//!
//! A socket's name, a process's number and a mounted file system's device number are all given
//! again. Between the moment in which somebody has found a daemon and that in which the request
//! arrives, another one may have them. So a request says whom it means, and any other refuses it.

use serde::{Deserialize, Serialize};

use crate::protocol::Pong;

/// Whom a request is meant for. What is not said may be any.
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
    /// The daemon that has said `pong`.
    #[must_use]
    pub fn of(pong: &Pong) -> Self {
        let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        Self { uuid: said(&pong.uuid), daemon: said(&pong.daemon), view: None }
    }

    /// The same, about one of its mounts; one without a number, as an older daemon's have none, is not
    /// named.
    #[must_use]
    pub fn about(self, view: u64) -> Self {
        Self { view: Some(view).filter(|&view| view != 0), ..self }
    }

    /// Why the daemon that would say `pong` is not the one, if it is not.
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
    use crate::mounts::ViewInfo;

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
    fn who_is_meant_is_compared_as_far_as_it_is_said() {
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
