//! Server and client, and what the server makes of bad input.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use dendro_control::{
    Admin, AdminError, Client, ClientError, Facts, MAX_REQUEST_LEN_BYTES, Pong, Server, VolumeInfo,
};

#[derive(Default)]
struct Volume {
    syncs: AtomicU32,
}

impl Admin for Volume {
    fn ping(&self) -> Pong {
        Pong {
            software: "1".into(),
            pid: 7,
            uuid: "u".into(),
            source: "/image".into(),
            mount_point: "/mnt".into(),
        }
    }

    fn info(&self) -> Result<VolumeInfo, AdminError> {
        Ok(VolumeInfo { label: "a \"quoted\" name\n".into(), ..VolumeInfo::default() })
    }

    fn stat(&self) -> Result<Facts, AdminError> {
        Ok(Facts::from([("syncs".into(), self.syncs.load(Ordering::Relaxed).into())]))
    }

    fn sync(&self) -> Result<(), AdminError> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn shut_down(&self) -> Result<(), AdminError> {
        Err(AdminError("busy".into()))
    }
}

/// Runs `test` while two threads serve.
fn with_server(test: impl FnOnce(&Server)) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::bind(&directory.path().join("run"), "uuid").unwrap();
    let volume = Volume::default();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| server.run(&volume));
        }
        test(&server);
        server.stop();
    });
    let path = server.path().to_path_buf();
    drop(server);
    assert!(!path.exists());
}

/// What comes back for `bytes`.
fn raw(server: &Server, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(server.path()).unwrap();
    // The server may stop reading what is too long.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut reply = String::new();
    let _ = stream.read_to_string(&mut reply);
    reply
}

#[test]
fn every_command_gets_its_answer() {
    with_server(|server| {
        let client = Client::new(server.path());
        assert_eq!(client.ping().unwrap().pid, 7);
        assert_eq!(client.info().unwrap().label, "a \"quoted\" name\n");
        client.sync().unwrap();
        client.sync().unwrap();
        assert_eq!(client.stat().unwrap()["syncs"], 2);
        match client.shut_down() {
            Err(ClientError::Refused(why)) => assert_eq!(why, "busy"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn malformed_requests_are_answered_with_an_error_and_do_no_harm() {
    with_server(|server| {
        let long = vec![b'x'; MAX_REQUEST_LEN_BYTES + 1];
        let deep = [vec![b'['; 10_000], b"\n".to_vec()].concat();
        for bytes in [
            &b"\n"[..],
            b"",
            b"{}\n",
            b"null\n",
            b"\xff\xfe\x00\n",
            b"{\"version\":1}\n",
            b"{\"version\":1,\"command\":\"explode\"}\n",
            b"{\"version\":-1,\"command\":\"ping\"}\n",
            b"{\"version\":1,\"command\":\"ping\"}",
            &long,
            &deep,
        ] {
            let reply = raw(server, bytes);
            let shown = &bytes[..bytes.len().min(60)];
            // A reply to what is too long can be lost when the connection is reset.
            if bytes.len() < MAX_REQUEST_LEN_BYTES {
                assert!(reply.contains("\"outcome\":\"error\""), "{shown:?}: {reply}");
            }
        }
        assert!(Client::new(server.path()).ping().is_ok());
    });
}

#[test]
fn another_protocol_version_is_refused_with_advice() {
    with_server(|server| {
        let reply = raw(server, b"{\"version\":2,\"command\":\"later\"}\n");
        assert!(reply.contains("protocol version 2") && reply.contains("same release"), "{reply}");
    });
}

#[test]
fn a_client_that_says_nothing_does_not_keep_others_waiting() {
    with_server(|server| {
        let _silent = UnixStream::connect(server.path()).unwrap();
        assert!(Client::new(server.path()).ping().is_ok());
    });
}

#[test]
fn a_dead_daemons_socket_is_replaced_and_a_live_ones_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let bind = || Server::bind(directory.path(), "uuid").unwrap();
    let first = bind();
    let second = bind();
    assert_ne!(first.path(), second.path());
    let path = first.path().to_path_buf();
    std::mem::forget(second);
    // A killed daemon: its listener is closed, its socket stays.
    drop(std::os::unix::net::UnixListener::bind(directory.path().join("other.sock")).unwrap());
    let third = Server::bind(directory.path(), "other").unwrap();
    assert_eq!(third.path(), directory.path().join("other.sock"));
    drop(first);
    assert!(!path.exists());
}

#[test]
fn a_daemon_that_is_gone_is_named_in_the_error() {
    let error = Client::new("/nonexistent/uuid.sock").ping().unwrap_err();
    assert!(error.to_string().contains("/nonexistent/uuid.sock"), "{error}");
}
