//! Server and client, and what the server makes of bad input.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;

use std::time::Duration;

use dendro_control::cleaning::{
    BlockOutcome, Blocks, BlocksRequest, CleanerChange, CleanerSettings, CleaningStatus,
    MAX_BLOCKS, MAX_SEGMENTS, Marked, NamedBlock, NodeName, Places, Released, SegmentOutcome,
    Segments, SegmentsRequest, SegwaitRequest,
};
use dendro_control::{
    Admin, AdminError, Cleaning, Client, ClientError, Command, Facts, MAX_REQUEST_LEN_BYTES,
    MountNamed, MountReply, MountRequest, Pong, Request, Scrape, Server, SetRequest, ViewInfo,
    VolumeInfo, parse_request,
};

/// How many threads serve.
const THREADS: usize = 2;

#[derive(Default)]
struct Volume {
    syncs: AtomicU32,
    /// As long as it is held, no sync returns.
    is_slow: Mutex<bool>,
    is_fast: Condvar,
    clean_count: AtomicU32,
    fast_wanted_count: AtomicU32,
}

/// Answers with what shows that the request arrived as it was sent.
impl Cleaning for Volume {
    fn present(&self) -> CleaningStatus {
        CleaningStatus {
            clean_count: self.clean_count.load(Ordering::Relaxed),
            fast_wanted_count: self.fast_wanted_count.load(Ordering::Relaxed),
            ..CleaningStatus::default()
        }
    }

    fn segments(&self, request: &SegmentsRequest) -> Result<Segments, AdminError> {
        let segments = [Default::default(); 3].to_vec();
        let next = (request.from < 30).then_some(request.from + 10);
        Ok(Segments { present: self.present(), segments, next })
    }

    fn blocks(&self, request: &BlocksRequest) -> Result<Blocks, AdminError> {
        let blocks = vec![NamedBlock::Page {
            list: 1,
            page: 2,
            branch: 0,
            epoch: 1,
            addr: request.segment.into(),
        }];
        Ok(Blocks { blocks, next: request.cursor.clone() })
    }

    fn bmapv(&self, blocks: &[NamedBlock]) -> Result<Places, AdminError> {
        let is_page = |block: &NamedBlock| matches!(block, NamedBlock::Page { .. });
        let addr = |block: &NamedBlock| match *block {
            NamedBlock::Page { addr, .. } | NamedBlock::Node { addr, .. } => Some(addr),
        };
        Ok(Places {
            live: blocks.iter().map(is_page).collect(),
            addrs: blocks.iter().map(addr).collect(),
        })
    }

    fn markv(&self, blocks: &[NamedBlock]) -> Result<Marked, AdminError> {
        Ok(Marked { blocks: vec![BlockOutcome::NoRoom; blocks.len()] })
    }

    fn segclean(&self, segments: &[u32]) -> Result<Released, AdminError> {
        Ok(Released { segments: vec![SegmentOutcome::Live; segments.len()] })
    }
}

impl Admin for Volume {
    fn ping(&self) -> Pong {
        Pong {
            software: "1".into(),
            pid: 7,
            uuid: "u".into(),
            source: "/image".into(),
            mount_point: "/mnt".into(),
            daemon: "d".into(),
            views: vec![ViewInfo { id: 4, device: "0:52".into(), ..ViewInfo::default() }],
            ..Pong::default()
        }
    }

    fn info(&self) -> Result<VolumeInfo, AdminError> {
        Ok(VolumeInfo { label: "a \"quoted\" name\n".into(), ..VolumeInfo::default() })
    }

    fn stat(&self) -> Result<Facts, AdminError> {
        Ok(Facts::from([("syncs".into(), self.syncs.load(Ordering::Relaxed).into())]))
    }

    fn metrics(&self) -> Result<String, AdminError> {
        Ok(format!("dendro_syncs_total {}\n", self.syncs.load(Ordering::Relaxed)))
    }

    fn change_cleaner(&self, change: &CleanerChange) -> Result<CleanerSettings, AdminError> {
        match change.policy.as_deref() {
            Some("bad") => Err(AdminError("no policy bad".into())),
            policy => Ok(CleanerSettings {
                policy: policy.unwrap_or_default().into(),
                min_clean_segments: change.min_clean_segments,
                max_clean_segments: change.max_clean_segments,
                suspended: change.suspended.unwrap_or(false),
                coalesce_share_percent: change.coalesce_share_percent.unwrap_or(0),
                ..CleanerSettings::default()
            }),
        }
    }

    fn mount(
        &self,
        request: &MountRequest,
        device: Option<OwnedFd>,
    ) -> Result<MountReply, AdminError> {
        let Some(device) = device else { return Ok(MountReply::Ending) };
        let mut passed = String::new();
        File::from(device).read_to_string(&mut passed).map_err(|_| AdminError("bad".into()))?;
        let mount_point = request.mount_point.clone();
        let view = ViewInfo { mount_point, version: passed, ..ViewInfo::default() };
        Ok(MountReply::Served(Box::new(view)))
    }

    fn set(
        &self,
        mount: Option<MountNamed<'_>>,
        request: &SetRequest,
    ) -> Result<ViewInfo, AdminError> {
        let (mount_point, options) = (format!("{mount:?}"), request.options.clone());
        Ok(ViewInfo { mount_point, options, ..ViewInfo::default() })
    }

    fn sync(&self) -> Result<(), AdminError> {
        drop(self.is_fast.wait_while(self.is_slow.lock().unwrap(), |is_slow| *is_slow).unwrap());
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn shut_down(&self) -> Result<(), AdminError> {
        Err(AdminError("busy".into()))
    }
}

/// Runs `test` while [`THREADS`] threads serve, and one sees to those that wait.
fn with_server(test: impl FnOnce(&Server)) {
    with_volume(|server, _| test(server));
}

fn with_volume(test: impl FnOnce(&Server, &Volume)) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::bind(&directory.path().join("run"), "uuid").unwrap();
    let volume = Volume::default();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| server.run(&volume));
        }
        scope.spawn(|| server.run_waits(&volume));
        // What fails is to be said, not waited for.
        let result = catch_unwind(AssertUnwindSafe(|| test(&server, &volume)));
        server.stop();
        result.unwrap_or_else(|panic| resume_unwind(panic));
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
        assert_eq!(client.change_cleaner(CleanerChange::default()).unwrap(), Default::default());
        let change = CleanerChange {
            policy: Some("good".into()),
            max_clean_segments: Some(7),
            suspended: Some(true),
            ..CleanerChange::default()
        };
        let settings = client.change_cleaner(change).unwrap();
        assert_eq!((settings.policy.as_str(), settings.suspended), ("good", true));
        assert_eq!((settings.min_clean_segments, settings.max_clean_segments), (None, Some(7)));
        let change = CleanerChange { policy: Some("bad".into()), ..CleanerChange::default() };
        assert_eq!(client.change_cleaner(change).unwrap_err().to_string(), "no policy bad");
        match client.shut_down() {
            Err(ClientError::Refused(why)) => assert_eq!(why, "busy"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn options_are_set_of_the_mount_that_is_meant() {
    with_volume(|server, _| {
        let client = Client::new(server.path());
        let this = client.clone().meaning(&client.ping().unwrap());
        let request = SetRequest {
            mount: Some("0:52".into()),
            options: vec!["commit=1".into()],
            ..SetRequest::default()
        };
        let set = |client: &Client, request: &SetRequest| client.set(request.clone()).unwrap();
        let by_number = MountNamed::Device("0:52");
        let view = set(&client, &request);
        assert_eq!(view.mount_point, format!("{:?}", Some(by_number)));
        assert_eq!(view.options, request.options);
        // A number is given again; what is never given again counts.
        let by_itself = format!("{:?}", Some(MountNamed::View(4)));
        assert_eq!(set(&this.clone().about(4), &request).mount_point, by_itself);
        assert_eq!(set(&this, &SetRequest::default()).mount_point, "None");
        let gone = this.about(5).set(request);
        assert!(matches!(gone, Err(ClientError::NotMeant(_))), "{gone:?}");
    });
}

#[test]
fn a_request_that_is_meant_for_another_is_refused() {
    with_volume(|server, volume| {
        let client = Client::new(server.path());
        let pong = client.ping().unwrap();
        let this = client.clone().meaning(&pong);
        this.sync().unwrap();
        this.clone().about(4).sync().unwrap();
        assert_eq!(volume.syncs.load(Ordering::Relaxed), 2);
        let refused = |client: &Client, why: &str| match client.sync() {
            Err(ClientError::NotMeant(said)) => assert!(said.contains(why), "{said}"),
            other => panic!("{other:?}"),
        };
        refused(&this.about(5), "has been unmounted");
        let other = client.clone().meaning(&Pong { uuid: "v".into(), ..pong.clone() });
        refused(&other, "meant for volume v, and this is the daemon of volume u, on /image");
        assert!(matches!(other.ping(), Err(ClientError::NotMeant(_))));
        let former = Pong { daemon: "c".into(), ..pong };
        refused(&client.clone().meaning(&former), "a daemon that has ended");
        let waiting = SegwaitRequest { clean_below: 0, timeout_ms: 60_000, for_fast: false };
        let answer = client.clone().meaning(&former).segwait(waiting);
        assert!(matches!(answer, Err(ClientError::NotMeant(_))), "{answer:?}");
        assert_eq!(volume.syncs.load(Ordering::Relaxed), 2, "nothing was done");
        // What others send that have chosen the socket themselves.
        let said = raw(
            server,
            br#"{"version":1,"command":"sync","for":{"uuid":"u","more":1}}
"#,
        );
        assert!(said.contains("done"), "{said}");
        let said = raw(
            server,
            br#"{"version":1,"for":{"uuid":"w"},"command":"sync"}
"#,
        );
        assert!(said.contains(r#""outcome":"not_meant""#) && said.contains("volume w"), "{said}");
        client.sync().unwrap();
        assert_eq!(volume.syncs.load(Ordering::Relaxed), 4);
    });
}

#[test]
fn who_it_is_is_said_however_many_requests_take_long() {
    with_volume(|server, volume| {
        *volume.is_slow.lock().unwrap() = true;
        let client = Client::new(server.path());
        thread::scope(|scope| {
            let syncs: Vec<_> = (0..3 * THREADS)
                .map(|_| scope.spawn(|| Client::new(server.path()).sync()))
                .collect();
            for _ in 0..20 {
                let answer = client.ping();
                thread::sleep(Duration::from_millis(10));
                if answer.is_err() {
                    // All are to end, or the failure could not be told.
                    server.stop();
                }
                assert_eq!(answer.unwrap().pid, 7);
            }
            *volume.is_slow.lock().unwrap() = false;
            volume.is_fast.notify_all();
            for sync in syncs {
                sync.join().unwrap().unwrap();
            }
        });
        assert_eq!(volume.syncs.load(Ordering::Relaxed), 3 * THREADS as u32);
    });
}

#[test]
fn a_daemon_that_falls_silent_is_not_waited_for_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("uuid.sock");
    // As one that was stopped: connections are taken by the kernel, and nobody reads them.
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let client = Client::new(&path).meaning(&Pong { pid: 4711, ..Pong::default() });
    match client.sync() {
        Err(ClientError::Unresponsive(mute)) => {
            let said = mute.to_string();
            assert!(said.contains("process 4711, does not answer"), "{said}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_is_passed_with_the_request_to_serve_it() {
    with_server(|server| {
        let client = Client::new(server.path());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "passed").unwrap();
        // Longer than what is read at once.
        let request = MountRequest { mount_point: "/m".repeat(9000), ..MountRequest::default() };
        assert_eq!(client.mount(request.clone(), None).unwrap(), MountReply::Ending);
        let file = File::open(&path).unwrap();
        match client.mount(request.clone(), Some(file.as_fd())).unwrap() {
            MountReply::Served(view) => {
                assert_eq!((view.mount_point, &*view.version), (request.mount_point, "passed"));
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_connection_is_not_passed_to_another_users_daemon() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: it takes root");
        return;
    }
    with_server(|server| {
        let client = Client::new(server.path());
        let directory = server.path().parent().unwrap();
        let asked = || client.mount(MountRequest::default(), None);
        assert_eq!(asked().unwrap(), MountReply::Ending);
        // A way that others can turn elsewhere.
        let link = directory.with_file_name("link");
        std::os::unix::fs::symlink(directory, &link).unwrap();
        let by_link = Client::new(link.join(server.path().file_name().unwrap()));
        assert!(by_link.ping().is_ok() && by_link.mount(MountRequest::default(), None).is_err());
        std::os::unix::fs::chown(directory, Some(65534), None).unwrap();
        match asked() {
            Err(ClientError::Refused(why)) => assert!(why.contains("user 65534"), "{why}"),
            other => panic!("{other:?}"),
        }
        client.sync().unwrap();
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
fn a_server_whose_name_was_removed_still_ends() {
    with_server(|server| {
        std::fs::remove_file(server.path()).unwrap();
        assert!(Client::new(server.path()).ping().is_err());
    });
}

#[test]
fn a_daemon_that_is_gone_is_named_in_the_error() {
    let error = Client::new("/nonexistent/uuid.sock").ping().unwrap_err();
    assert!(error.to_string().contains("/nonexistent/uuid.sock"), "{error}");
}

const PAGE: NamedBlock =
    NamedBlock::Page { list: u64::MAX, page: 1 << 63, branch: 3, epoch: 9, addr: 4096 };
const NODE: NamedBlock = NamedBlock::Node {
    node: NodeName {
        level: 3,
        list: u64::MAX,
        space: 2,
        index: u64::MAX,
        branch: u32::MAX,
        epoch: u64::MAX,
    },
    addr: u64::MAX,
};

#[test]
fn cleaners_are_answered_block_by_block() {
    with_server(|server| {
        let client = Client::new(server.path());
        let places = client.bmapv(vec![PAGE, NODE]).unwrap();
        assert_eq!(places.live, [true, false]);
        assert_eq!(places.addrs, [Some(4096), Some(u64::MAX)]);
        let marked = client.markv(vec![NODE; MAX_BLOCKS]).unwrap();
        assert_eq!(marked.blocks, vec![BlockOutcome::NoRoom; MAX_BLOCKS]);
        let released = client.segclean(vec![u32::MAX; MAX_SEGMENTS]).unwrap();
        assert_eq!(released.segments.len(), MAX_SEGMENTS);
        let request =
            BlocksRequest { segment: 9, cursor: Some("x".into()), ..BlocksRequest::default() };
        let blocks = client.blocks(request).unwrap();
        assert_eq!(
            blocks.blocks,
            [NamedBlock::Page { list: 1, page: 2, branch: 0, epoch: 1, addr: 9 }]
        );
        assert_eq!(blocks.next.as_deref(), Some("x"));
        // From 0, 10, 20 and 30 on, three each.
        assert_eq!(client.all_segments().unwrap().segments.len(), 12);
    });
}

#[test]
fn more_than_a_request_may_name_is_refused_whole() {
    with_server(|server| {
        let client = Client::new(server.path());
        let too_many = [
            client.markv(vec![PAGE; MAX_BLOCKS + 1]).unwrap_err(),
            client.bmapv(vec![PAGE; MAX_BLOCKS + 1]).unwrap_err(),
            client.segclean(vec![0; MAX_SEGMENTS + 1]).unwrap_err(),
        ];
        for error in too_many {
            assert!(error.to_string().contains("are the most"), "{error}");
        }
    });
}

#[test]
fn hostile_requests_of_cleaners_are_refused_by_the_protocol() {
    let parse = |text: &str| {
        parse_request(text.as_bytes()).map(|request| request.command).map_err(|error| error.0)
    };
    for wrong in [
        r#"{"version":1,"command":"markv"}"#,
        r#"{"version":1,"command":"markv","blocks":7}"#,
        r#"{"version":1,"command":"markv","blocks":[7]}"#,
        r#"{"version":1,"command":"markv","blocks":[{}]}"#,
        r#"{"version":1,"command":"markv","blocks":[{"list":1,"page":1}]}"#,
        r#"{"version":1,"command":"markv","blocks":[{"list":-1,"page":1,"addr":0}]}"#,
        r#"{"version":1,"command":"markv","blocks":[{"list":1.5,"page":1,"addr":0}]}"#,
        r#"{"version":1,"command":"markv","blocks":[{"list":18446744073709551616,"page":1,"addr":0}]}"#,
        r#"{"version":1,"command":"markv","blocks":[{"node":{"level":256,"list":1,"space":0,"index":0,"branch":0,"epoch":0},"addr":0}]}"#,
        r#"{"version":1,"command":"segclean","segments":[4294967296]}"#,
        r#"{"version":1,"command":"segclean","segments":[-1]}"#,
        r#"{"version":1,"command":"segments","from":-1}"#,
        r#"{"version":1,"command":"segments","max":1e300}"#,
        r#"{"version":1,"command":"blocks"}"#,
        r#"{"version":1,"command":"blocks","segment":1,"source":"the moon"}"#,
        r#"{"version":1,"command":"blocks","segment":1,"cursor":5}"#,
        r#"{"version":1,"command":"segwait","clean_below":1}"#,
        r#"{"version":1,"command":"segwait","clean_below":1,"timeout_ms":-5}"#,
    ] {
        let error = parse(wrong).unwrap_err();
        assert!(error.contains("not a request of this protocol"), "{wrong}: {error}");
    }
    // What is not known is passed over; what may be missing is filled in.
    let request = r#"{"version":1,"command":"segments","max":3,"colour":"red"}"#;
    let asked = SegmentsRequest { from: 0, max: Some(3) };
    assert_eq!(parse(request), Ok(Command::Segments(asked)));
    for command in [
        Command::Markv(dendro_control::cleaning::BlocksNamed { blocks: vec![PAGE, NODE] }),
        Command::Segwait(SegwaitRequest { clean_below: 7, timeout_ms: u64::MAX, for_fast: true }),
    ] {
        let line = serde_json::to_string(&Request::new(command.clone())).unwrap();
        assert_eq!(parse(&line), Ok(command));
    }
}

#[test]
fn any_bytes_are_no_more_than_refused() {
    // Bits of requests, cut and stirred.
    let sound = br#"{"version":1,"command":"markv","blocks":[{"list":1,"page":2,"addr":4096}]}"#;
    let mut state = 1_u64;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % limit
    };
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut line = sound.to_vec();
        for _ in 0..1 + below(3) {
            let (at, from) = (below(line.len()), below(line.len()));
            match below(3) {
                0 => line[at] = below(256) as u8,
                1 => line.truncate(at.max(1)),
                _ => line[at] = line[from],
            }
        }
        accepted += u32::from(parse_request(&line).is_ok());
    }
    assert!((1..10_000).contains(&accepted), "{accepted} of them are requests still");
}

#[test]
fn a_wait_ends_when_segments_are_few_or_its_time_is_over() {
    with_volume(|server, volume| {
        volume.clean_count.store(10, Ordering::Relaxed);
        let client = Client::new(server.path());
        let wait = |clean_below, timeout_ms| {
            client.segwait(SegwaitRequest { clean_below, timeout_ms, for_fast: false }).unwrap()
        };
        assert!(wait(11, 60_000).is_low);
        assert!(!wait(10, 0).is_low);
        assert!(!wait(10, 150).is_low);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(10, 60_000));
            thread::sleep(Duration::from_millis(100));
            assert!(!waiting.is_finished());
            volume.clean_count.store(9, Ordering::Relaxed);
            let waited = waiting.join().unwrap();
            assert!(waited.is_low);
            assert_eq!(waited.present.clean_count, 9);
        });
        volume.fast_wanted_count.store(1, Ordering::Relaxed);
        assert!(!wait(9, 0).is_low);
        let for_fast = SegwaitRequest { clean_below: 9, timeout_ms: 60_000, for_fast: true };
        assert!(client.segwait(for_fast).unwrap().is_low);
    });
}

#[test]
fn many_that_wait_or_die_waiting_keep_nobody_from_being_answered() {
    with_server(|server| {
        let request =
            b"{\"version\":1,\"command\":\"segwait\",\"clean_below\":0,\"timeout_ms\":600000}\n";
        let begin = || {
            let mut stream = UnixStream::connect(server.path()).unwrap();
            stream.write_all(request).unwrap();
            stream
        };
        let waiting: Vec<UnixStream> = (0..60).map(|_| begin()).collect();
        assert_eq!(Client::new(server.path()).ping().unwrap().pid, 7);
        drop(waiting);
        // Each dies at once, many more than may wait at a time.
        for _ in 0..300 {
            drop(begin());
        }
        thread::sleep(Duration::from_millis(200));
        let mut waiting: Vec<UnixStream> = (0..64).map(|_| begin()).collect();
        for stream in &mut waiting {
            stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        }
        thread::sleep(Duration::from_millis(200));
        let refused =
            waiting.iter().filter(|stream| (&**stream).read(&mut [0; 16]).is_ok()).count();
        assert_eq!(refused, 0, "the dead make room for the living");
        let mut reply = String::new();
        begin().read_to_string(&mut reply).unwrap();
        assert!(reply.contains("too many"), "{reply}");
        // At its end the daemon lets them go.
        server.stop();
        for stream in &mut waiting {
            let mut reply = String::new();
            stream.set_read_timeout(None).unwrap();
            stream.read_to_string(&mut reply).unwrap();
            assert!(reply.contains("the daemon ends"), "{reply}");
        }
    });
}

#[test]
fn metrics_can_be_scraped_over_http_and_asked_for() {
    with_server(|server| {
        assert_eq!(Client::new(server.path()).metrics().unwrap(), "dendro_syncs_total 0\n");
        let reply = raw(server, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n");
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"));
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        assert_eq!(body, "dendro_syncs_total 0\n");
        let reply = raw(server, b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(reply.starts_with("HTTP/1.1 200") && reply.ends_with("\r\n\r\n"), "{reply}");
        for wrong in [&b"GET /secrets HTTP/1.1\r\n\r\n"[..], b"GET \r\n\r\n", b"GET  \n\n"] {
            assert!(raw(server, wrong).starts_with("HTTP/1.1 404"));
        }
        let reply = raw(server, b"POST /metrics HTTP/1.1\r\n\r\n");
        assert!(reply.contains("\"outcome\":\"error\""), "{reply}");
        let endless =
            [&b"GET /metrics HTTP/1.1\r\n"[..], &vec![b'x'; MAX_REQUEST_LEN_BYTES]].concat();
        let reply = raw(server, &endless);
        assert!(reply.is_empty() || reply.contains("longer than"), "{reply}");
    });
}

/// What comes back over TCP.
fn scraped(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn metrics_are_served_on_a_port_and_nothing_else_is() {
    let scrape = Scrape::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = scrape.address().unwrap();
    // It is said whose port it is that somebody else has.
    let taken = Scrape::bind(address).unwrap_err();
    assert!(taken.to_string().contains(&address.to_string()), "{taken}");
    let daemon = Volume::default();
    thread::scope(|scope| {
        let serving = scope.spawn(|| scrape.run(&daemon));
        let reply = scraped(address, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
        assert!(reply.ends_with("\r\n\r\ndendro_syncs_total 0\n"), "{reply}");
        assert!(scraped(address, b"GET / HTTP/1.0\n\n").starts_with("HTTP/1.1 404"));
        let command = b"{\"version\":1,\"command\":\"sync\"}\n\n";
        assert!(scraped(address, command).starts_with("HTTP/1.1 400"));
        assert_eq!(daemon.syncs.load(Ordering::Relaxed), 0, "a port changes nothing");
        // Who says nothing keeps others waiting for a while, and who is gone for none.
        let silent = TcpStream::connect(address).unwrap();
        drop(TcpStream::connect(address).unwrap());
        assert!(scraped(address, b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        drop(silent);
        scrape.stop();
        serving.join().unwrap();
    });
}

#[test]
fn a_request_in_many_pieces_is_one_request() {
    with_server(|server| {
        for request in
            [&b"{\"version\":1,\"command\":\"ping\"}\n"[..], b"GET /metrics HTTP/1.1\r\n\r\n"]
        {
            let mut stream = UnixStream::connect(server.path()).unwrap();
            for byte in request {
                stream.write_all(&[*byte]).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
            let mut reply = String::new();
            stream.read_to_string(&mut reply).unwrap();
            assert!(reply.contains("pong") || reply.contains("200 OK"), "{reply}");
        }
    });
}
