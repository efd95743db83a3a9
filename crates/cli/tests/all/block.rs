//! `dendro block` and `dendro nbd`.

use std::fs;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::Duration;

use dendro_base::{Clock, SystemClock};
use dendro_nbd::testing::{Client, option, string};
use serde_json::Value;

use crate::common::{Scratch, signal, skips_mounts, wait_until};

/// Serves the volume, at the default socket.
fn serve(scratch: &Scratch, more: &[&str]) -> (Child, String) {
    let out = fs::File::create(scratch.path("serving")).unwrap();
    let mut command = scratch.command(["nbd", "--json", &scratch.image()]);
    let child = command.args(more).stdout(out).spawn().unwrap();
    let said = || fs::read_to_string(scratch.path("serving")).unwrap();
    wait_until("it is served", || said().ends_with("}\n"));
    let serving: Value = serde_json::from_str(&said()).unwrap();
    let uri = serving["uri"].as_str().unwrap().to_owned();
    (child, uri.split_once("socket=").map_or(uri.clone(), |(_, socket)| socket.to_owned()))
}

/// The server's process: timeout(1) is the one that is started.
fn pid(scratch: &Scratch) -> u32 {
    let serving = fs::read_to_string(scratch.path("serving")).unwrap();
    let serving: Value = serde_json::from_str(&serving).unwrap();
    serving["pid"].as_u64().unwrap() as u32
}

fn end(mut server: Child) {
    signal(server.id(), "TERM");
    assert!(server.wait().unwrap().success());
}

fn open(socket: &str, name: &str) -> Client<UnixStream> {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut client = Client::connect(stream).unwrap();
    assert_eq!(client.go(name).unwrap().0, 1, "{name}");
    client
}

fn names(scratch: &Scratch) -> Vec<String> {
    let listed = scratch.dendro(["block", "list", "--json", &scratch.image()]).succeeds();
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    let devices = listed["block_devices"].as_array().unwrap();
    devices.iter().map(|device| device["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn devices_are_made_served_cloned_and_deleted() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    let disk = format!("{image}/disk");
    scratch.dendro(["block", "create", &disk, "100G"]).succeeds();
    let (server, socket) = serve(&scratch, &[]);
    let mut client = open(&socket, "");
    assert_eq!(client.size_bytes(), 100 << 30);
    client.write(99 << 30, b"written", 0).unwrap().unwrap();
    end(server);
    assert!(!fs::exists(&socket).unwrap());

    scratch.dendro(["snapshot", "create", &format!("{image}:disk@kept")]).succeeds();
    scratch.dendro(["clone", &format!("{image}:disk@kept"), "copy"]).succeeds();
    assert_eq!(names(&scratch), ["disk", "disk@kept", "copy", "copy@kept"]);
    let (mut server, socket) = serve(&scratch, &[]);
    for name in ["disk", "disk@kept", "copy"] {
        let read = open(&socket, name).read(99 << 30, 7).unwrap().unwrap();
        assert_eq!(read.data, b"written", "{name}");
    }
    open(&socket, "copy").write(0, b"copy", 1).unwrap().unwrap();
    signal(server.id(), "KILL");
    server.wait().unwrap();
    // timeout(1) was killed, and not the server.
    signal(pid(&scratch), "KILL");

    // The socket that it has left is replaced.
    let (server, socket) = serve(&scratch, &["--read-only"]);
    let mut client = open(&socket, "copy");
    assert_eq!(client.read(0, 4).unwrap().unwrap().data, b"copy");
    assert_eq!(client.write(0, b"more", 0).unwrap().error, 1);
    end(server);

    scratch.dendro(["block", "resize", &disk, "1G"]).fails(1, &["--shrink"]);
    scratch.dendro(["block", "resize", "--shrink", &disk, "1G"]).succeeds();
    scratch.dendro(["block", "delete", &format!("{image}/copy")]).succeeds();
    scratch.dendro(["block", "delete", &disk]).fails(1, &["@kept", "--snapshots"]);
    scratch.dendro(["block", "delete", "--snapshots", &format!("{image}:disk")]).succeeds();
    assert_eq!(names(&scratch), [""; 0]);
}

#[test]
fn snapshots_and_clones_are_made_while_devices_are_served() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.dendro(["block", "create", &format!("{image}/disk"), "1G"]).succeeds();
    let (server, socket) = serve(&scratch, &[]);
    let mut client = open(&socket, "disk");
    client.write(0, b"before", 0).unwrap().unwrap();
    scratch.dendro(["snapshot", "create", &format!("{image}:disk@kept")]).succeeds();
    client.write(0, b"after.", 0).unwrap().unwrap();
    scratch.dendro(["clone", &format!("{image}:disk@kept"), "copy"]).succeeds();
    for (name, expected) in [("disk", b"after."), ("disk@kept", b"before"), ("copy", b"before")] {
        assert_eq!(open(&socket, name).read(0, 6).unwrap().unwrap().data, expected, "{name}");
    }
    let listed = scratch.dendro(["snapshot", "list", &image]).succeeds();
    assert!(listed.out.contains("kept"), "{listed:?}");
    // What would take a device away from its clients is refused.
    let kept = format!("{image}:disk@kept");
    scratch.dendro(["rollback", &kept]).fails(1, &[":disk", "disconnect them first"]);
    let pid = format!("served already, by process {}", pid(&scratch));
    scratch.dendro(["nbd", &image]).fails(1, &[&pid]);
    drop(client);
    wait_until("it is closed", || scratch.dendro(["rollback", &kept]).code == Some(0));
    let rolled_back = open(&socket, "disk").read(0, 6).unwrap().unwrap().data;
    assert_eq!(rolled_back, b"before");
    end(server);
    let left = names(&scratch);
    for name in ["disk", "disk@kept", "copy", "copy@kept"] {
        assert!(left.iter().any(|left| left == name), "{name}: {left:?}");
    }
}

/// The connections of this process are listed: one to `disk`, two to `other`.
fn list_connections(scratch: &Scratch) {
    let image = scratch.image();
    let listed = scratch.dendro(["block", "list", &image]).succeeds().out;
    let ends: Vec<_> = listed.lines().map(|line| line.split(' ').next_back().unwrap()).collect();
    assert_eq!(ends, ["connections", "1", "2"], "{listed}");
    let listed = scratch.dendro(["block", "list", "--connections", &image]).succeeds().out;
    let client = format!("process {}", std::process::id());
    let lines: Vec<_> = listed.lines().collect();
    for (line, name) in lines[1..].iter().zip(["disk", "other", "other"]) {
        assert!(line.starts_with(name) && line.contains(&client), "{listed}");
        assert!(line.contains("reads and writes") && line.ends_with("no"), "{listed}");
    }
    assert_eq!(lines.len(), 4, "{listed}");
    let listed = scratch.dendro(["block", "list", "--json", &image]).succeeds();
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    let connection = &listed["block_devices"][1]["connections"][1];
    assert_eq!(connection["pid"], std::process::id());
    assert!(connection["address"].is_null() && connection["connected_unix_ns"].is_i64());
    assert_eq!((&connection["can_write"], &connection["encrypted"]), (&true.into(), &false.into()));
}

/// Devices change beside clients that have others open, whoever has the volume.
fn change_beside_clients(scratch: &Scratch, socket: &str) {
    let volume = scratch.image();
    let (disk, other) = (format!("{volume}/disk"), format!("{volume}:other"));
    let mut client = open(socket, "disk");
    client.write((1 << 20) - 3, b"end", 0).unwrap().unwrap();
    scratch.dendro(["block", "create", &other, "2M"]).succeeds();
    scratch.dendro(["block", "create", &other, "2M"]).fails(1, &["other: ", "already"]);
    assert_eq!(names(scratch), ["disk", "other"]);
    let mut second = open(socket, "other");
    second.write(0, b"second", 1).unwrap().unwrap();
    let third = open(socket, "other");
    list_connections(scratch);
    let command = "`dendro block list --connections` lists";
    for (name, used) in [(&disk, "disk has 1 connection "), (&other, "other has 2 connections ")] {
        let refused = scratch.dendro(["block", "delete", name]);
        refused.fails(1, &[used, command, "disconnect them first"]);
    }
    let refused = scratch.dendro(["client", "delete", &other]);
    refused.fails(1, &["other has 2 connections ", command, "disconnect them first"]);
    drop(third);
    let shrink = ["block", "resize", "--shrink", &disk, "4K"];
    scratch.dendro(shrink).fails(1, &["has 1 connection ", command, "disconnect them first"]);
    scratch.dendro(["block", "resize", &disk, "2M"]).succeeds();
    // The client reads and writes as before, and the next one sees the size.
    assert_eq!(client.read((1 << 20) - 3, 3).unwrap().unwrap().data, b"end");
    let mut next = open(socket, "disk");
    assert_eq!(next.size_bytes(), 2 << 20);
    next.write((2 << 20) - 3, b"END", 0).unwrap().unwrap();
    scratch.dendro(["branch", "rename", &other, "new"]).succeeds();
    assert_eq!(second.read(0, 6).unwrap().unwrap().data, b"second");
    // A connection is to a device, whatever that is called by now.
    let listed = scratch.dendro(["block", "list", "--connections", &volume]).succeeds().out;
    assert!(listed.contains("new  ") && !listed.contains("other"), "{listed}");
    drop(second);
    let delete = || scratch.dendro(["block", "delete", &format!("{volume}/new")]).code;
    wait_until("it is deleted", || delete() == Some(0));
    assert_eq!(names(scratch), ["disk"]);
}

/// What [`change_beside_clients`] has left, once nobody has the volume.
fn check_changed(scratch: &Scratch) {
    assert_eq!(names(scratch), ["disk"]);
    scratch.dendro(["check", &scratch.image()]).succeeds();
    let (server, socket) = serve(scratch, &[]);
    let mut client = open(&socket, "");
    assert_eq!(client.read((1 << 20) - 3, 6).unwrap().unwrap().data, b"end\0\0\0");
    assert_eq!(client.read((2 << 20) - 3, 3).unwrap().unwrap().data, b"END");
    end(server);
}

#[test]
fn devices_are_changed_while_they_are_served() {
    let scratch = Scratch::with_volume();
    scratch.dendro(["block", "create", &format!("{}/disk", scratch.image()), "1M"]).succeeds();
    let (server, socket) = serve(&scratch, &[]);
    change_beside_clients(&scratch, &socket);
    end(server);
    check_changed(&scratch);
}

#[test]
fn facts_are_told_while_devices_are_served() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.dendro(["block", "create", &format!("{image}/disk"), "1G"]).succeeds();
    let (server, socket) = serve(&scratch, &[]);
    let data = vec![7; 1 << 20];
    open(&socket, "disk").write(0, &data, 1).unwrap().unwrap();
    let info = scratch.dendro(["info", &image]).succeeds().out;
    let pid = format!("by process {}", pid(&scratch));
    for part in ["nowhere", "  served      nbd+unix:///?socket=", &*pid] {
        assert!(info.contains(part), "{part}: {info}");
    }
    assert!(!info.contains("not shut down") && !info.contains("read-only"), "{info}");
    let stat = scratch.dendro(["stat", "--json", &image]).succeeds().out;
    let stat: Value = serde_json::from_str(&stat).unwrap();
    assert!(stat["user_page_bytes"].as_u64().unwrap() >= 1 << 20, "{stat}");
    assert_eq!(stat["nbd_write_requests"], 1);
    assert_eq!(stat["nbd_write_bytes"], 1 << 20);
    assert_eq!(stat["nbd_connections_in_all"], 1);
    assert_eq!(stat["latched"], false);
    let shown = scratch.dendro(["stat", &image]).succeeds().out;
    assert!(shown.contains(&image) && shown.contains("1 request: 1 MiB"), "{shown}");
    scratch.dendro(["sync", &image]).succeeds();
    // It does not clean for others.
    scratch.dendro(["clean", "status", &image]).fails(1, &["is not mounted"]);
    let metrics = scratch.dendro(["stat", "--metrics", &image]).succeeds().out;
    for line in [
        "dendro_nbd_requests_total{kind=\"write\"} 1\n",
        "dendro_nbd_bytes_total{kind=\"write\"} 1048576\n",
        "dendro_nbd_failed_requests_total{reason=\"io\"} 0\n",
        "dendro_nbd_connections_total 1\n",
        "dendro_memory_bytes{part=\"nbd\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    assert!(metrics.contains("dendro_user_page_bytes_total"), "{metrics}");
    end(server);

    let (server, _) = serve(&scratch, &["--read-only"]);
    let info = scratch.dendro(["info", "--json", &image]).succeeds().out;
    let info: Value = serde_json::from_str(&info).unwrap();
    assert!(info["block_server"]["read_only"].is_string(), "{info}");
    let stat = scratch.dendro(["stat", "--json", &image]).succeeds().out;
    assert!(stat.contains("\"latched\":false") || stat.contains("\"latched\": false"), "{stat}");
    end(server);
    let info = scratch.dendro(["info", &image]).succeeds().out;
    assert!(!info.contains("served"), "{info}");
}

/// Writes what compresses well to a device, and returns how many bytes more are used then.
fn used_by_text(scratch: &Scratch, socket: &str, name: &str) -> u64 {
    let used = || scratch.info(&scratch.image())["space"]["live_bytes"].as_u64().unwrap();
    let before = used();
    let mut client = open(socket, name);
    client.write(0, &text(), 1).unwrap().unwrap();
    check_text(socket, name);
    used() - before
}

/// What compresses well.
fn text() -> Vec<u8> {
    b"what is said once and again ".iter().copied().cycle().take(4 << 20).collect()
}

/// Fails if that is not what the device has.
fn check_text(socket: &str, name: &str) {
    let read = open(socket, name).read(0, text().len() as u32).unwrap().unwrap().data;
    assert!(read == text(), "{name}");
}

#[test]
fn a_device_is_compressed_as_it_was_made() {
    let scratch = Scratch::with_volume();
    let volume = scratch.image();
    let create = |name: &str, more: &[&str]| {
        let device = format!("{volume}/{name}");
        scratch.dendro([&["block", "create", &device, "1G"], more].concat()).succeeds();
    };
    create("plain", &[]);
    create("zstd", &["--compress", "zstd"]);
    let (server, socket) = serve(&scratch, &[]);
    create("lz4", &["--compress", "lz4"]);
    create("none", &["--compress", "none"]);
    scratch.dendro(["clone", &format!("{volume}:zstd"), "copy"]).succeeds();
    for name in ["plain", "none"] {
        let used = used_by_text(&scratch, &socket, name);
        assert!(used >= 4 << 20, "{name}: {used}");
    }
    for name in ["zstd", "lz4", "copy"] {
        let used = used_by_text(&scratch, &socket, name);
        assert!(used < 1 << 20, "{name}: {used}");
    }
    end(server);
    let listed = scratch.dendro(["block", "list", "--json", &volume]).succeeds();
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    for device in listed["block_devices"].as_array().unwrap() {
        let expected = match device["name"].as_str().unwrap() {
            "plain" => "default",
            name if name.starts_with("copy") => "zstd",
            name => name.split('@').next().unwrap(),
        };
        assert_eq!(device["compress"], expected, "{device}");
    }
    let listed = scratch.dendro(["block", "list", &volume]).succeeds().out;
    let zstd = listed.lines().find(|line| line.starts_with("zstd ")).unwrap();
    assert!(zstd.contains("  zstd  "), "{listed}");
    let device = format!("{volume}/more");
    for (kind, why) in [("zstd:7", "no level of its own"), ("gzip", "none, lz4 and zstd")] {
        scratch.dendro(["block", "create", "--compress", kind, &device, "1G"]).fails(2, &[why]);
    }
}

#[test]
fn what_a_device_has_is_compressed_on_request_served_or_not() {
    let scratch = Scratch::with_volume();
    let volume = scratch.image();
    for name in ["one", "two"] {
        scratch.dendro(["block", "create", &format!("{volume}/{name}"), "1G"]).succeeds();
    }
    let (server, socket) = serve(&scratch, &[]);
    for name in ["one", "two"] {
        assert!(used_by_text(&scratch, &socket, name) >= 4 << 20);
    }
    let compress = |name: &str| {
        let target = format!("{volume}:{name}");
        let done = scratch.dendro(["clean", "coalesce", "--compress=lz4", "--json", &target]);
        let done: Value = serde_json::from_str(&done.succeeds().out).unwrap();
        assert!(done["saved_bytes"].as_u64() > Some(3 << 20), "{done}");
    };
    compress("one");
    end(server);
    compress("two");
    let (server, socket) = serve(&scratch, &[]);
    for name in ["one", "two"] {
        check_text(&socket, name);
    }
    end(server);
}

#[test]
fn who_serves_the_volume_is_said_at_once() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.dendro(["block", "create", &format!("{image}/disk"), "1M"]).succeeds();
    let (server, _) = serve(&scratch, &[]);
    let served = format!("served by process {} (dendro nbd); end that first", pid(&scratch));
    let since = SystemClock.now();
    let mount = scratch.mount_point();
    for (code, command) in [
        (32, &["mount", &image, &mount][..]),
        (8, &["check", &image]),
        (1, &["scrub", &image]),
        (1, &["segments", &image]),
        (1, &["resize", &image, "128M"]),
        (1, &["damage", &image]),
        (1, &["damage", "--clear", &image]),
        (8, &["rebuild", &image]),
        (1, &["device", "forget", &image]),
    ] {
        scratch.dendro(command).fails(code, &[&image, &served]);
    }
    // A wait for one of them takes longer.
    let took_s = SystemClock.now().secs() - since.secs();
    assert!(took_s < 20, "{took_s} s");
    // One that has been told to end is waited for.
    signal(server.id(), "TERM");
    scratch.dendro(["check", &image]).succeeds();
    let mut server = server;
    assert!(server.wait().unwrap().success());
    // Readers do not disturb each other.
    let (server, _) = serve(&scratch, &["--read-only"]);
    scratch.dendro(["check", &image]).succeeds();
    scratch.dendro(["damage", &image]).succeeds();
    scratch.dendro(["resize", &image, "128M"]).fails(1, &["(dendro nbd)"]);
    end(server);
}

#[test]
fn what_cannot_be_done_is_said() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    let disk = format!("{image}/disk");
    scratch.dendro(["block", "create", &image, "1G"]).fails(2, &["VOLUME/NAME"]);
    scratch.dendro(["block", "create", &disk, "1000"]).fails(1, &["multiple of 4096"]);
    let main = format!("{image}/main");
    scratch.dendro(["block", "create", &main, "1G"]).fails(1, &["already"]);
    scratch.dendro(["block", "delete", &main]).fails(1, &["main is no block device"]);
    scratch.dendro(["block", "delete", &disk]).fails(1, &["no such block device"]);
    scratch
        .dendro(["block", "resize", &format!("{image}:main"), "1G"])
        .fails(1, &["no block device"]);
    assert_eq!(names(&scratch), [""; 0]);
    scratch.dendro(["nbd", "--listen", "0.0.0.0:0", &image]).fails(2, &["--allow-plain"]);
    let none = scratch.text("none");
    scratch.dendro(["nbd", "--tls-certificates", &none, &image]).fails(1, &["none/ca-cert.pem: "]);
    let file = scratch.text("file");
    fs::write(&file, "mine").unwrap();
    scratch.dendro(["nbd", "--socket", &file, &image]).fails(1, &["no socket"]);
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

#[test]
fn a_port_of_this_machine_needs_no_certificates() {
    let scratch = Scratch::with_volume();
    scratch.dendro(["block", "create", &format!("{}/disk", scratch.image()), "1G"]).succeeds();
    let (server, uri) = serve(&scratch, &["--listen", "localhost:0"]);
    let address = uri.strip_prefix("nbd://").unwrap();
    assert!(address.starts_with("localhost:"), "{uri}");
    let mut client = Client::connect(std::net::TcpStream::connect(address).unwrap()).unwrap();
    assert_eq!(client.go("disk").unwrap().0, 1);
    client.write(5, b"bytes", 1).unwrap().unwrap();
    assert_eq!(client.read(4, 7).unwrap().unwrap().data, b"\0bytes\0");
    end(server);
}

/// A client compares it with the certificate.
#[test]
fn the_host_of_a_uri_is_the_one_that_was_given() {
    let scratch = Scratch::with_volume();
    let certificates = concat!(env!("CARGO_MANIFEST_DIR"), "/../nbd/tests/tls");
    for host in ["localhost", "127.0.0.1"] {
        let listen = format!("{host}:0");
        let (server, uri) =
            serve(&scratch, &["--listen", &listen, "--tls-certificates", certificates]);
        let port = uri.strip_prefix(&format!("nbds://{host}:")).expect(&uri);
        assert_ne!(port.trim_end_matches('/').parse::<u16>().unwrap(), 0);
        end(server);
    }
}

#[test]
fn devices_are_changed_while_the_volume_is_mounted() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let image = scratch.image();
    for target in [&image, &scratch.mount_point()] {
        scratch.dendro(["block", "list", target]).succeeds();
    }
    let disk = format!("{image}/disk");
    scratch.dendro(["block", "create", &disk, "1M"]).succeeds();
    scratch
        .dendro(["block", "resize", &format!("{}:disk", scratch.mount_point()), "2M"])
        .succeeds();
    scratch.dendro(["block", "resize", &disk, "1M"]).fails(1, &["--shrink"]);
    scratch.dendro(["block", "delete", &disk]).succeeds();
    scratch.dendro(["block", "create", "--compress", "zstd", &disk, "1M"]).succeeds();
    let listed = || scratch.dendro(["block", "list", &image]).succeeds().out;
    assert!(listed().contains("zstd"), "{}", listed());
    scratch.umount();
    assert!(listed().contains("zstd"), "{}", listed());
    assert_eq!(names(&scratch), ["disk"]);
}

#[test]
fn a_mounted_volume_serves_its_devices_beside_its_files() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let image = scratch.image();
    scratch.dendro(["block", "create", &format!("{image}/disk"), "1M"]).succeeds();
    let (server, socket) = serve(&scratch, &[]);
    fs::write(scratch.inside("file"), b"a file").unwrap();
    change_beside_clients(&scratch, &socket);
    assert_eq!(fs::read(scratch.inside("file")).unwrap(), b"a file");
    let kept = format!("{image}:disk@kept");
    scratch.dendro(["snapshot", "create", &kept]).succeeds();
    let client = open(&socket, "disk@kept");
    scratch.dendro(["snapshot", "delete", &kept]).fails(1, &["@kept", "disconnect them first"]);
    drop(client);
    wait_until("it is deleted", || scratch.dendro(["snapshot", "delete", &kept]).code == Some(0));
    let info = scratch.dendro(["info", &image]).succeeds().out;
    let pid = format!("by process {}", pid(&scratch));
    for part in [&*scratch.mount_point(), "  served      nbd+unix:///?socket=", &*pid] {
        assert!(info.contains(part), "{part}: {info}");
    }
    let again = scratch.text("again");
    let refused = scratch.dendro(["nbd", "--socket", &again, &scratch.mount_point()]);
    refused.fails(1, &["served already, at nbd+unix:", &pid]);
    assert!(!fs::exists(&again).unwrap(), "its socket is left");
    end(server);
    assert!(!fs::exists(&socket).unwrap());
    assert!(scratch.info(&image)["block_server"].is_null());
    scratch.umount();
    check_changed(&scratch);
}

#[test]
fn serving_ends_with_its_process_or_with_the_mount() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let image = scratch.image();
    scratch.dendro(["block", "create", &format!("{image}/disk"), "1M"]).succeeds();
    let (server, socket) = serve(&scratch, &["--read-only"]);
    let mut client = open(&socket, "disk");
    assert_eq!(client.write(0, b"x", 0).unwrap().error, 1);
    assert!(scratch.info(&image)["block_server"]["read_only"].is_string());
    end(server);
    assert!(client.read(0, 1).is_err(), "it has ended");

    let (mut server, socket) = serve(&scratch, &[]);
    let mut client = open(&socket, "disk");
    client.write(0, b"first", 0).unwrap().unwrap();
    signal(pid(&scratch), "KILL");
    assert!(!server.wait().unwrap().success());
    wait_until("it is over", || scratch.info(&image)["block_server"].is_null());
    assert!(client.read(0, 1).is_err(), "it has ended");

    // The socket that it has left is replaced. The last mount takes the server with it.
    let (mut server, socket) = serve(&scratch, &[]);
    let mut client = open(&socket, "disk");
    assert_eq!(client.read(0, 5).unwrap().unwrap().data, b"first");
    // The daemon has counted what the servers before this one did.
    let stat = scratch.dendro(["stat", "--json", &image]).succeeds().out;
    let stat: Value = serde_json::from_str(&stat).unwrap();
    assert_eq!((&stat["nbd_connections_in_all"], &stat["nbd_connections"]), (&3.into(), &1.into()));
    assert_eq!(
        (&stat["nbd_write_requests"], &stat["nbd_refused_requests"]),
        (&2.into(), &1.into())
    );
    client.write(0, b"third", 0).unwrap().unwrap();
    scratch.umount();
    assert_eq!(server.wait().unwrap().code(), Some(1));
    assert!(!fs::exists(&socket).unwrap());
    assert!(client.read(0, 1).is_err(), "it has ended");

    // So does its daemon, and what was to be durable is there.
    scratch.mount();
    let (mut server, socket) = serve(&scratch, &[]);
    let mut client = open(&socket, "disk");
    assert_eq!(client.read(0, 5).unwrap().unwrap().data, b"third");
    client.write(8, b"durable", 1).unwrap().unwrap();
    scratch.kill_daemon();
    assert_eq!(server.wait().unwrap().code(), Some(1));
    scratch.dendro(["umount", &scratch.mount_point()]).succeeds();
    let (server, socket) = serve(&scratch, &[]);
    let read = open(&socket, "disk").read(0, 15).unwrap().unwrap().data;
    assert_eq!(read, b"third\0\0\0durable");
    end(server);
}

#[test]
fn a_mounted_volume_serves_at_ports_and_with_certificates() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    scratch.dendro(["block", "create", &format!("{}/disk", scratch.image()), "1G"]).succeeds();
    let (server, uri) = serve(&scratch, &["--listen", "localhost:0"]);
    let address = uri.strip_prefix("nbd://").unwrap();
    let mut client = Client::connect(std::net::TcpStream::connect(address).unwrap()).unwrap();
    assert_eq!(client.go("disk").unwrap().0, 1);
    client.write(5, b"bytes", 1).unwrap().unwrap();
    drop(client);
    end(server);
    let certificates = concat!(env!("CARGO_MANIFEST_DIR"), "/../nbd/tests/tls");
    let (server, socket) = serve(&scratch, &["--tls-certificates", certificates]);
    let mut client = Client::connect(UnixStream::connect(&socket).unwrap()).unwrap();
    let replies = client.option(option::GO, &[&*string("disk"), &[0, 0]].concat()).unwrap();
    // NBD_REP_ERR_TLS_REQD
    assert_eq!(replies[0].0, (1 << 31) + 5);
    end(server);
    scratch.umount();
}
