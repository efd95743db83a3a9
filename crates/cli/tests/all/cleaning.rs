//! Cleaning and looking at segments by the real binary, over real mounts: contents stay, whoever
//! cleans, however it ends.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dendro_base::Rng;
use serde_json::Value;

use crate::common::{Scratch, said, signal, skips_mounts, wait_until};

const PAGE: usize = 4096;

/// A file whose pages are overwritten at random, and what each holds.
struct Churn {
    file: File,
    /// Each page's version, from which its bytes follow.
    pages: Vec<u64>,
    state: u64,
}

impl Churn {
    fn new(scratch: &Scratch, count: usize) -> Self {
        File::create(scratch.inside("churn")).unwrap();
        let mut churn = Self::opened(scratch, vec![0; count]);
        for page in 0..count {
            churn.write(page);
        }
        churn
    }

    fn below(&mut self, limit: usize) -> usize {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.state >> 33) as usize % limit
    }

    fn bytes(page: usize, version: u64) -> [u8; PAGE] {
        let mut state = (page as u64) << 32 | version;
        std::array::from_fn(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
    }

    fn write(&mut self, page: usize) {
        self.pages[page] += 1;
        let bytes = Self::bytes(page, self.pages[page]);
        self.file.write_all_at(&bytes, (page * PAGE) as u64).unwrap();
    }

    fn overwrite(&mut self, count: usize) {
        for _ in 0..count {
            let page = self.below(self.pages.len());
            self.write(page);
        }
    }

    /// What is read, past the kernel's cache, is what was written.
    fn check(&self) {
        rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let mut found = [0; PAGE];
        for (page, &version) in self.pages.iter().enumerate() {
            self.file.read_exact_at(&mut found, (page * PAGE) as u64).unwrap();
            assert!(found == Self::bytes(page, version), "page {page}");
        }
    }

    /// The file as it is there, with these versions in it.
    fn opened(scratch: &Scratch, pages: Vec<u64>) -> Self {
        let file = OpenOptions::new().read(true).write(true).open(scratch.inside("churn"));
        Self { file: file.unwrap(), pages, state: 1 }
    }

    /// What it holds, so that the volume can be unmounted.
    fn close(self) -> Vec<u64> {
        self.pages
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

impl Scratch {
    /// What a command prints as JSON.
    fn asks<const N: usize>(&self, arguments: [&str; N]) -> Value {
        json(&self.dendro(arguments).succeeds().out)
    }

    /// The verifier, which shares no code with the engine, finds nothing on the unmounted image.
    fn verify(&self) {
        let device = dendro_device::OpenOptions::new()
            .read_only(true)
            .direct(dendro_device::Direct::Never)
            .lock_wait(Duration::from_secs(10))
            .open(self.path("image"))
            .unwrap();
        let report = dendro_check::verify(&device, &dendro_check::Options { data: true });
        assert!(report.is_sound(), "{report}");
    }

    fn socket(&self) -> String {
        self.info(&self.mount_point())["mount"]["socket"].as_str().unwrap().to_owned()
    }

    fn cleanerd(&self, policy: &str) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dendro"));
        command.args(["-q", "cleanerd", "--policy", policy, "--pause", "0", "--most-live", "97%"]);
        command.args(["--min-clean-segments", "90%", "--max-clean-segments", "95%"]);
        command.arg(self.mount_point());
        self.prepare(&mut command);
        command.stderr(Stdio::piped()).spawn().unwrap()
    }
}

#[test]
fn clean_makes_as_many_segments_clean_as_it_is_told() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.dendro(["clean", "run", &scratch.image()]).fails(1, &["is not mounted"]);
    scratch.mount();
    let mount_point = scratch.mount_point();
    let mut churn = Churn::new(&scratch, 7000);
    churn.overwrite(3000);
    scratch.dendro(["sync", &mount_point]).succeeds();
    let said = scratch.asks(["clean", "run", "--segments", "3", "--json", &mount_point]);
    assert_eq!(said["cleaned_segments"], 3);
    assert_eq!(said["stuck_segments"], 0);
    let before = said["clean_segments"].as_u64().unwrap();
    let goal = (before + 2).to_string();
    let said = scratch.asks(["clean", "run", "--until-clean", &goal, "--json", &mount_point]);
    assert!(said["clean_segments"].as_u64() >= Some(before + 2), "{said}");
    for policy in
        ["ladder", "greedy", "cost-benefit", "age-threshold", "cost-age-times", "d-choices"]
    {
        churn.overwrite(500);
        let text =
            scratch.dendro(["clean", "run", "--all", "--policy", policy, &mount_point]).succeeds();
        assert!(text.out.contains(" cleaned, "), "{text:?}");
    }
    let figures = scratch.asks(["segments", "--json", &mount_point]);
    let sparse = &figures["histogram"].as_array().unwrap()[..7];
    assert!(sparse.iter().all(|count| *count == 0), "{figures}");
    churn.check();
    scratch
        .dendro(["clean", "run", "--policy", "best", &mount_point])
        .fails(2, &["'best'", "greedy"]);
    let pages = churn.close();
    scratch.umount();
    scratch.verify();
    scratch.mount();
    let churn = Churn::opened(&scratch, pages);
    churn.check();
    drop(churn);
    scratch.umount();
}

#[test]
fn the_policy_is_chosen_at_the_mount_and_changed_while_it_is_mounted() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount_with("policy=greedy,reserve=10");
    let mount_point = scratch.mount_point();
    let shown = || scratch.asks(["clean", "status", "--json", &mount_point]);
    assert_eq!(shown()["policy"], "greedy");
    let mut churn = Churn::new(&scratch, 8000);
    for policy in ["ladder", "cost-benefit", "age-threshold", "cost-age-times", "d-choices"] {
        let said =
            scratch.dendro(["clean", "set", "--selection-policy", policy, &mount_point]).succeeds();
        assert!(said.out.contains(policy), "{said:?}");
        assert_eq!(shown()["policy"], policy);
        churn.overwrite(4000);
    }
    assert!(scratch.asks(["stat", "--json", &mount_point])["cleaned_segments"].as_u64() > Some(10));
    scratch.dendro(["clean", "set", "-p", "best", &mount_point]).fails(2, &["'best'", "ladder"]);
    scratch.dendro(["clean", "set", &mount_point]).fails(2, &["required", "--selection-policy"]);
    let status = shown();
    assert_eq!(status["segment_bytes"].as_u64(), Some(1 << 20), "{status}");
    assert!(status["cleaned_segments"].as_u64() > Some(10), "{status}");
    assert!(status["dead_bytes"].as_u64() > Some(1 << 20), "{status}");
    let said = scratch.dendro(["clean", "status", &mount_point]).succeeds();
    assert!(said.out.contains("d-choices") && said.out.contains("in reserve"), "{said:?}");
    churn.check();
    drop(churn);
    scratch.umount();
    scratch.verify();
}

#[test]
fn a_suspended_cleaner_rests_and_an_idle_one_makes_segments_for_later() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount_point = scratch.mount_point();
    scratch.dendro(["clean", "suspend", &mount_point]).succeeds();
    let mut churn = Churn::new(&scratch, 5000);
    churn.overwrite(3000);
    churn.file.sync_all().unwrap();
    let stat = || scratch.asks(["stat", "--json", &mount_point]);
    let before = stat();
    let changed = ["clean", "set", "--json", "--max-clean-segments", "50", &mount_point];
    let settings = scratch.asks(changed);
    assert_eq!(
        (&settings["suspended"], &settings["max_clean_segments"]),
        (&true.into(), &50.into())
    );
    thread::sleep(Duration::from_millis(2500));
    assert_eq!(stat()["cleaned_segments"], before["cleaned_segments"]);
    scratch.dendro(["clean", "resume", &mount_point]).succeeds();
    wait_until("it cleans in the idle time", || {
        stat()["cleaned_segments"].as_u64() > before["cleaned_segments"].as_u64()
    });
    churn.check();
    drop(churn);
    scratch.umount();
    scratch.verify();
}

#[test]
fn the_cleaner_of_the_documentation_works() {
    if skips_mounts() {
        return;
    }
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("left out: there is no python3 here");
        return;
    }
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/cleaner.py");
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mut churn = Churn::new(&scratch, 7000);
    churn.overwrite(3000);
    // Pages that their segments' summaries do not tell of by the names they have.
    let moved = scratch.inside("moved");
    fs::write(&moved, Churn::bytes(1, 2).repeat(500)).unwrap();
    scratch.dendro(["sync", &scratch.mount_point()]).succeeds();
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60", "python3", example, &scratch.socket(), "8"]);
    scratch.prepare(&mut command);
    let said = said(command.output().unwrap()).succeeds();
    assert!(said.out.contains("8 segments cleaned"), "{said:?}");
    assert_eq!(said.out.lines().filter(|line| line.ends_with(": clean")).count(), 8, "{said:?}");
    let stat = scratch.asks(["stat", "--json", &scratch.mount_point()]);
    assert_eq!(stat["external_released_segments"], 8);
    assert!(stat["external_moved_bytes"].as_u64() > Some(1_000_000), "{stat}");
    churn.check();
    assert!(fs::read(&moved).unwrap() == Churn::bytes(1, 2).repeat(500));
    drop(churn);
    scratch.umount();
    scratch.verify();
}

#[test]
fn cleaners_killed_while_files_are_written_lose_nothing() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount_point = scratch.mount_point();
    let mut churn = Churn::new(&scratch, 8000);
    let before = scratch.asks(["stat", "--json", &mount_point]);
    for round in 0..8 {
        // Two at once, with different policies, beside the daemon's own.
        let mut cleaners = ["ladder", "d-choices"].map(|policy| scratch.cleanerd(policy));
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    churn.overwrite(20);
                }
            });
            for cleaner in &mut cleaners {
                thread::sleep(Duration::from_millis(60 + 37 * round));
                cleaner.kill().unwrap();
                cleaner.wait().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        churn.check();
    }
    let after = scratch.asks(["stat", "--json", &mount_point]);
    let grown = |name: &str| after[name].as_u64().unwrap() - before[name].as_u64().unwrap();
    // How far each got before its end is the scheduler's choice.
    assert!(grown("external_moved_bytes") > 0, "they had work: {after}");
    // The daemon too is killed while one cleans, and the volume recovers.
    let mut cleaner = scratch.cleanerd("greedy");
    churn.overwrite(2000);
    churn.file.sync_all().unwrap();
    scratch.kill_daemon();
    let mut text = String::new();
    cleaner.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(cleaner.wait().unwrap().success(), "{text}");
    scratch.dendro(["umount", &mount_point]).succeeds();
    scratch.mount();
    let churn = Churn::opened(&scratch, churn.close());
    churn.check();
    drop(churn);
    scratch.umount();
    scratch.verify();
}

#[test]
fn cleanerd_ends_by_itself_when_the_volume_is_unmounted() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mut command = scratch.command(["cleanerd", "--verbose", &scratch.mount_point()]);
    let mut cleaner = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = cleaner.stderr.take().unwrap();
    let mut start = [0; 10];
    stderr.read_exact(&mut start).unwrap();
    // It waits: there is nothing to do.
    scratch.umount();
    let mut text = String::new();
    stderr.read_to_string(&mut text).unwrap();
    assert!(cleaner.wait().unwrap().success(), "{text}");
    assert!(text.contains("its daemon has ended"), "{text}");
    let misled = ["cleanerd", "--min-clean-segments", "50%", "--max-clean-segments", "10"];
    scratch.mount();
    let mount_point = scratch.mount_point();
    scratch
        .dendro(misled.into_iter().chain([mount_point.as_str()]))
        .fails(2, &["--min-clean-segments", "32"]);
    scratch.umount();
}

#[test]
fn what_a_client_lies_about_harms_nobody() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mut churn = Churn::new(&scratch, 3000);
    churn.overwrite(1000);
    let socket = scratch.socket();
    let asks = |request: &str| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        json(&reply)
    };
    let all: Vec<String> = (0..70).map(|number: u32| number.to_string()).collect();
    let released = asks(&format!(
        "{{\"version\":1,\"command\":\"segclean\",\"segments\":[{}]}}\n",
        all.join(",")
    ));
    let outcomes = released["value"]["segments"].as_array().unwrap();
    assert_eq!(outcomes.len(), 70);
    assert_eq!((&outcomes[0], &outcomes[69]), (&"unknown".into(), &"unknown".into()));
    assert!(outcomes.contains(&"live".into()) && outcomes.contains(&"open".into()), "{released}");
    let claims: Vec<String> = (0..1000_u64)
        .map(|at| format!("{{\"list\":{},\"page\":{at},\"addr\":{}}}", at % 9, (2 << 20) + at * 64))
        .collect();
    let marked = asks(&format!(
        "{{\"version\":1,\"command\":\"markv\",\"blocks\":[{}]}}\n",
        claims.join(",")
    ));
    let outcomes = marked["value"]["blocks"].as_array().unwrap();
    assert_eq!(outcomes.len(), 1000);
    assert!(outcomes.iter().filter(|&outcome| *outcome == "dead").count() > 900, "{marked}");
    for wrong in [
        "{\"version\":1,\"command\":\"blocks\",\"segment\":1}\n",
        "{\"version\":1,\"command\":\"blocks\",\"segment\":5,\"cursor\":\"moon\"}\n",
        "{\"version\":1,\"command\":\"blocks\",\"segment\":4294967295}\n",
    ] {
        assert_eq!(asks(wrong)["outcome"], "error", "{wrong}");
    }
    churn.check();
    drop(churn);
    scratch.umount();
    scratch.verify();
}

#[test]
fn segments_look_the_same_mounted_and_not() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    let empty = scratch.asks(["segments", "--json", &image]);
    assert_eq!(empty["segments"].as_array().unwrap().len(), 61);
    assert!(empty["clean_segments"].as_u64() > Some(55), "{empty}");
    if skips_mounts() {
        return;
    }
    scratch.mount();
    let mut churn = Churn::new(&scratch, 4000);
    churn.overwrite(2000);
    drop(churn);
    scratch.dendro(["clean", "run", "-q", &scratch.mount_point()]).succeeds();
    let mounted = scratch.asks(["segments", "--json", &scratch.mount_point()]);
    assert_eq!(mounted["segments"], scratch.asks(["segments", "--json", &image])["segments"]);
    scratch.umount();
    let offline = scratch.asks(["segments", "--json", &image]);
    let live = |facts: &Value| -> u64 {
        let segments = facts["segments"].as_array().unwrap();
        segments.iter().map(|facts| facts["live_bytes"].as_u64().unwrap()).sum()
    };
    // The nodes of a last checkpoint aside.
    assert!(live(&mounted).abs_diff(live(&offline)) < 100_000);
    assert!(offline["utilisation"].as_f64() > Some(0.2), "{offline}");

    let text = scratch.dendro(["segments", &image]).succeeds().out;
    for part in [&image, "segments", "dirty", "90 to 100%", "main", "█"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let list = scratch.dendro(["segments", "--list", &image]).succeeds().out;
    assert_eq!(list.lines().count(), 62);
    let svg = scratch.text("plot.svg");
    scratch.dendro(["segments", "--plot", &svg, &image]).succeeds();
    let drawing = fs::read_to_string(svg).unwrap();
    assert!(drawing.starts_with("<svg "), "{drawing}");
    for part in [&image, "prefers-color-scheme:dark", "alive, in percent", "in one branch alone"] {
        assert!(drawing.contains(part), "no {part} in {drawing}");
    }
    scratch
        .dendro(["segments", "--plot", &scratch.text("plot.png"), &image])
        .fails(2, &["plot.png", ".svg", "rsvg-convert"]);
}

#[test]
fn figures_can_be_watched_and_scraped() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount_point = scratch.mount_point();
    let mut watch = scratch.command(["stat", "--watch", "0.2", "--count", "5", "--json"]);
    let watch = watch.arg(&mount_point).stdout(Stdio::piped()).spawn().unwrap();
    let mut churn = Churn::new(&scratch, 2000);
    churn.overwrite(500);
    churn.file.sync_all().unwrap();
    let said = said(watch.wait_with_output().unwrap()).succeeds();
    let lines: Vec<Value> = said.out.lines().map(json).collect();
    assert_eq!(lines.len(), 5);
    let amplification = lines[4]["write_amplification_overall"].as_f64().unwrap();
    assert!((0.5..3.0).contains(&amplification), "{said:?}");
    let text = scratch.dendro(["stat", "-w", "0.01", "-c", "2", &mount_point]).succeeds().out;
    assert!(text.lines().count() == 3 && text.contains("MEDIAN"), "{text}");

    let metrics = scratch.dendro(["stat", "--metrics", &mount_point]).succeeds().out;
    let mut stream = UnixStream::connect(scratch.socket()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut scraped = String::new();
    stream.read_to_string(&mut scraped).unwrap();
    let samples = |text: &str| -> Vec<String> {
        let is_sample = |line: &&str| line.starts_with("dendro_");
        text.lines().filter(is_sample).map(|line| line.split(' ').next().unwrap().into()).collect()
    };
    assert_eq!(samples(&metrics), samples(&scraped));
    assert!(samples(&metrics).len() > 20);
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let value = line.rsplit(' ').next().unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    // Each name is told of once, before its samples.
    let mut types: Vec<&str> = metrics.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    let count = types.len();
    types.dedup();
    assert_eq!(types.len(), count);
    drop(churn);
    signal(scratch.daemon_pid(), "TERM");
    wait_until("it is unmounted", || !scratch.is_mounted());
}

#[test]
fn what_lies_scattered_is_put_together_by_file_tree_and_volume() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount_point = scratch.mount_point();
    fs::create_dir(scratch.inside("below")).unwrap();
    let mut churn = Churn::new(&scratch, 2000);
    let mut other = File::create(scratch.inside("below/other")).unwrap();
    for _ in 0..60 {
        churn.overwrite(5);
        other.write_all(&[7; 5 * PAGE]).unwrap();
    }
    let path = |name: &str| scratch.inside(name).display().to_string();
    let ask = |target: &str| {
        let done = scratch.asks(["clean", "coalesce", "--json", target]);
        assert_eq!(done["ended_for_room"], false, "{done}");
        done
    };
    scratch.dendro(["sync", &mount_point]).succeeds();
    let trial = scratch.asks(["clean", "coalesce", "-n", "--json", &path("churn")]);
    assert_eq!(trial["page_bytes"], 2000 * PAGE);
    assert_eq!(ask(&path("below"))["page_bytes"], 300 * PAGE);
    let done = ask(&path("churn"));
    assert_eq!(done["moved_bytes"], trial["moved_bytes"]);
    assert_eq!(done["pieces_after"], trial["pieces_after"]);
    let pieces = |of: &Value, member: &str| of[member].as_u64().unwrap();
    assert!(pieces(&done, "pieces_after") + 20 < pieces(&done, "pieces_before"), "{done}");
    let stat = scratch.asks(["stat", "--json", &mount_point]);
    assert!(stat["coalesced_bytes"].as_u64() >= done["moved_bytes"].as_u64(), "{stat}");
    churn.check();
    let set =
        ["clean", "set", "--json", "--coalesce", "off", "--coalesce-piece", "8K", &mount_point];
    let set = scratch.asks(set);
    assert_eq!((&set["coalesce"], &set["coalesce_piece_bytes"]), (&false.into(), &8192.into()));
    let text = scratch.dendro(["clean", "status", &mount_point]).succeeds();
    assert!(text.out.contains("coalesce_piece"), "{text:?}");
    let everything = ask(&mount_point);
    assert_eq!(everything["page_bytes"], 2300 * PAGE);
    churn.overwrite(200);
    let pages = churn.close();
    drop(other);
    scratch.umount();
    let text = scratch.dendro(["clean", "coalesce", "-n", &scratch.image()]).succeeds();
    assert!(text.out.contains("are written again"), "{text:?}");
    let done = ask(&scratch.image());
    assert_eq!(done["page_bytes"], 2300 * PAGE);
    scratch.verify();
    scratch.mount();
    Churn::opened(&scratch, pages).check();
}

#[test]
fn what_is_there_is_compressed_by_tree_and_volume_where_that_takes_less() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let path = |name: &str| scratch.inside(name).display().to_string();
    fs::create_dir(scratch.inside("below")).unwrap();
    let text: String = (0..200_000).map(|line| format!("line {line}\n")).collect();
    let mut noise = vec![0; 2 << 20];
    Rng::new(4).fill(&mut noise);
    let contents = [
        ("below/text", text.as_bytes()),
        ("below/noise", &noise),
        ("other", &text.as_bytes()[..1 << 20]),
    ];
    for (name, content) in contents {
        fs::write(scratch.inside(name), content).unwrap();
    }
    let stored = |name: &str| {
        let usage = scratch.asks(["usage", "--files", "--json", &path(name)]);
        usage["stored_bytes"].as_u64().unwrap()
    };
    let compress = |how: &str, target: &str| {
        let done = scratch.asks(["clean", "coalesce", "--json", how, target]);
        assert_eq!(done["ended_for_room"], false, "{done}");
        done
    };
    scratch.dendro(["sync", &scratch.mount_point()]).succeeds();
    let before = stored("below");
    let trial = ["clean", "coalesce", "-n", "--compress=zstd:9", &path("below")];
    let said = scratch.dendro(trial).succeeds().out;
    assert!(said.contains("zstd:9 would make "), "{said}");
    assert_eq!(stored("below"), before);
    let done = compress("--compress=zstd:9", &path("below"));
    assert_eq!(done["compress"], "zstd:9");
    assert_eq!(done["saved_bytes"], before - stored("below"));
    assert!(stored("below/text") < text.len() as u64 / 4, "{done}");
    assert_eq!(stored("below/noise"), noise.len() as u64);
    assert!(stored("other") >= 1 << 20);
    let done = compress("--compress", &scratch.mount_point());
    assert_eq!(done["compress"], "zstd:3");
    assert!(stored("other") < 1 << 18, "{done}");
    let wrong = ["clean", "coalesce", "--compress=gzip", &path("other")];
    scratch.dendro(wrong).fails(2, &["gzip", "lz4"]);
    scratch.umount();
    scratch.verify();
    scratch.mount();
    for (name, content) in contents {
        assert!(fs::read(scratch.inside(name)).unwrap() == content, "{name}");
    }
    scratch.umount();
}

#[test]
fn cleanerd_empties_fast_devices_while_the_volumes_own_cleaner_is_suspended() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::new();
    let [image, fast] = ["image", "fast"].map(|name| scratch.text(name));
    for (path, megabytes) in [(&image, 128), (&fast, 24)] {
        File::create(path).unwrap().set_len(megabytes << 20).unwrap();
    }
    scratch.dendro(["mkfs", "-q", "--copies", "1", "--fast", &fast, &image]).succeeds();
    scratch.mount();
    let mount_point = scratch.mount_point();
    scratch.dendro(["clean", "suspend", &mount_point]).succeeds();
    let churn = Churn::new(&scratch, 9000);
    churn.file.sync_all().unwrap();
    let fast_share_clean = || {
        let listed = scratch.asks(["segments", "--json", &mount_point]);
        let fast: Vec<&Value> = listed["segments"].as_array().unwrap().iter().collect();
        let fast: Vec<_> = fast.into_iter().filter(|of| of["is_fast"] == true).collect();
        let clean = fast.iter().filter(|of| of["state"] == "clean").count();
        assert!(fast.len() >= 20, "{listed}");
        clean as f64 / fast.len() as f64
    };
    assert!(fast_share_clean() < 0.2, "what is written goes to the fast device first");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dendro"));
    command.args(["-q", "cleanerd", "--pause", "0", "--min-clean-segments", "1"]);
    command.args(["--max-clean-segments", "2", &mount_point]);
    scratch.prepare(&mut command);
    let mut cleaner = command.spawn().unwrap();
    wait_until("a quarter of the fast segments is clean", || fast_share_clean() >= 0.2);
    churn.check();
    drop(churn);
    scratch.umount();
    assert!(cleaner.wait().unwrap().success());
    scratch.dendro(["check", "--data", &image]).succeeds();
}
