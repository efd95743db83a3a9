//! Daemons that answer, that do not, and that talk nonsense.

use std::os::unix::net::UnixListener;

use super::*;
use crate::messages::{MAX_REQUEST_LEN_BYTES, Outcome, Reply};

/// A directory of sockets.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, number: usize) -> PathBuf {
        self.0.path().join(format!("{number}.sock"))
    }

    /// Sockets that nobody accepts from.
    fn listeners(&self, count: usize) -> Vec<UnixListener> {
        (0..count).map(|number| UnixListener::bind(self.path(number)).unwrap()).collect()
    }

    fn paths(&self, count: usize) -> Vec<PathBuf> {
        (0..count).map(|number| self.path(number)).collect()
    }
}

fn of(source: &str, pid: u32) -> Pong {
    Pong { pid, source: source.into(), ..Pong::default() }
}

fn answer(listener: &UnixListener, pong: &Pong) {
    let (stream, _) = listener.accept().unwrap();
    // Who answers and hangs up before it was asked cannot be asked any more.
    socket::read_line(&stream, MAX_REQUEST_LEN_BYTES, Some(PING_TIMEOUT)).unwrap();
    let line = serde_json::to_string(&Reply::new(Outcome::Pong(pong.clone()))).unwrap() + "\n";
    socket::write_all(&stream, line.as_bytes()).unwrap();
}

fn find_image(sockets: Vec<PathBuf>) -> FindOutcome {
    let is_it = |pong: &Pong| pong.source == "/image";
    find_among(sockets, is_it, is_it)
}

#[test]
fn who_does_not_answer_keeps_nobody_from_being_found() {
    let place = Place::new();
    let listeners = place.listeners(200);
    let began = now();
    let found = std::thread::scope(|scope| {
        let last = listeners.last().unwrap();
        scope.spawn(move || answer(last, &of("/image", 17)));
        find_image(place.paths(200))
    });
    match found {
        FindOutcome::Daemon(found) => {
            assert_eq!((found.0.path(), found.1.pid), (&*place.path(199), 17))
        }
        other => panic!("{other:?}"),
    }
    assert!(began.elapsed() < PING_TIMEOUT, "it was asked after others had not answered");
}

#[test]
fn who_is_gone_or_talks_nonsense_is_passed_over() {
    let place = Place::new();
    drop(UnixListener::bind(place.path(0)).unwrap());
    let listener = UnixListener::bind(place.path(1)).unwrap();
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (stream, _) = listener.accept().unwrap();
            socket::write_all(&stream, b"hello\n").unwrap();
        });
        find_image(place.paths(3))
    });
    assert!(matches!(found, FindOutcome::Nobody), "{found:?}");
}

#[test]
fn who_does_not_answer_is_told_to_those_who_look_for_it_and_waited_for_by_nobody_else() {
    let place = Place::new();
    let _listeners = place.listeners(3);
    for (number, source) in ["/one", "/image", "/three"].into_iter().enumerate() {
        identity_file::write(&place.path(number), &of(source, number as u32)).unwrap();
    }
    let began = now();
    match find_image(place.paths(3)) {
        FindOutcome::Unresponsive(mute) => {
            assert!(mute.to_string().contains("process 1, does not answer"))
        }
        other => panic!("{other:?}"),
    }
    let waited = began.elapsed();
    assert!(waited >= PING_TIMEOUT && waited < 2 * PING_TIMEOUT, "{waited:?} for three");
    let began = now();
    let found = find_among(place.paths(3), |_| true, |identity| identity.source == "/four");
    assert!(matches!(found, FindOutcome::Nobody), "{found:?}");
    assert!(began.elapsed() < PING_TIMEOUT / 4, "others were waited for");
}

/// A daemon that was stopped long ago: so many have asked that nobody can connect any more.
#[test]
fn who_cannot_even_be_asked_is_told_at_once() {
    let place = Place::new();
    let _listeners = place.listeners(1);
    identity_file::write(&place.path(0), &of("/image", 5)).unwrap();
    let mut asking = Vec::new();
    loop {
        match socket::connect_at_once(&place.path(0)) {
            Ok(stream) => asking.push(stream),
            Err(error) => break assert!(socket::is_overrun(&error), "{error}"),
        }
    }
    match find_image(place.paths(1)) {
        FindOutcome::Unresponsive(mute) => assert_eq!(mute.pid, 5),
        other => panic!("{other:?}"),
    }
}
