//! The real binary, in a place of its own that is cleaned up whatever happens.

pub(crate) mod failing;
pub(crate) mod pages;

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dendro_base::SystemClock;
use dendro_device::{Device, FileDevice, OpenOptions as DeviceOptions};
use dendro_disk::{Aru, Lid, LogicalDisk, Versions};
use dendro_fs::Ino;
use dendro_fs::format::HEAD_INDEX;
use dendro_logdisk::{LogDisk, OpenOptions};

/// No command may take longer.
const TIMEOUT_S: &str = "120";

/// A directory with an image, a mount point and a runtime directory; all mounts below it are taken
/// away when it is dropped.
pub(crate) struct Scratch {
    directory: Option<tempfile::TempDir>,
    root: PathBuf,
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("dendro-test-").tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir(root.join("mnt")).unwrap();
        Self { directory: Some(directory), root }
    }

    /// The same with an empty volume in the image, of 64 MiB.
    pub(crate) fn with_volume() -> Self {
        let scratch = Self::new();
        scratch.mkfs("64M");
        scratch
    }

    pub(crate) fn mkfs(&self, size: &str) {
        self.dendro(["mkfs", "-q", "--segment-size", "1M", "--size", size, &self.image()])
            .succeeds();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn image(&self) -> String {
        self.text("image")
    }

    pub(crate) fn mount_point(&self) -> String {
        self.text("mnt")
    }

    /// A path inside the mount.
    pub(crate) fn inside(&self, name: &str) -> PathBuf {
        self.root.join("mnt").join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The binary, to be run with a time limit.
    pub(crate) fn command<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new("timeout");
        // In the foreground a signal is passed on to the command alone, and once.
        let options = ["--foreground", "--signal=KILL", TIMEOUT_S];
        command.args(options).arg(env!("CARGO_BIN_EXE_dendro"));
        command.args(arguments);
        self.prepare(&mut command);
        command
    }

    /// Sets what every command needs in its environment.
    pub(crate) fn prepare(&self, command: &mut Command) {
        command.env("DENDRO_RUNTIME_DIR", self.path("run")).env("LC_ALL", "C");
        command.stdin(Stdio::null());
    }

    pub(crate) fn dendro<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Said {
        said(self.command(arguments).output().unwrap())
    }

    pub(crate) fn mount(&self) {
        self.mount_with("defaults");
    }

    pub(crate) fn mount_with(&self, options: &str) {
        let log = self.text("log");
        self.dendro([
            "mount",
            "--log-file",
            &log,
            "-o",
            options,
            &self.image(),
            &self.mount_point(),
        ])
        .succeeds();
    }

    pub(crate) fn umount(&self) {
        self.dendro(["umount", &self.mount_point()]).succeeds();
    }

    /// A mount in the foreground, ready.
    pub(crate) fn mount_in_foreground(&self) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dendro"));
        command.args(["mount", "-f", &self.image(), &self.mount_point()]);
        self.prepare(&mut command);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let mut line = Vec::new();
        let mut byte = [0];
        while stderr.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
            line.push(byte[0]);
        }
        let line = String::from_utf8(line).unwrap();
        assert!(line.contains("is mounted on"), "{line}");
        // The rest is wanted by nobody, but must not fill the pipe.
        #[allow(clippy::disallowed_methods, reason = "a test is no engine")]
        thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        child
    }

    /// The process behind the mount.
    pub(crate) fn daemon_pid(&self) -> u32 {
        let info = self.dendro(["info", "--json", &self.mount_point()]).succeeds();
        let info: serde_json::Value = serde_json::from_str(&info.out).unwrap();
        info["mount"]["pid"].as_u64().unwrap().try_into().unwrap()
    }

    /// Ends the daemon as a crash would.
    pub(crate) fn kill_daemon(&self) {
        let pid = self.daemon_pid();
        signal(pid, "KILL");
        wait_until("the daemon is gone", || !is_running(pid));
    }

    pub(crate) fn is_mounted(&self) -> bool {
        mounts().contains(&format!(" {} ", self.mount_point()))
    }

    /// What `dendro info --json` says.
    pub(crate) fn info(&self, target: &str) -> serde_json::Value {
        serde_json::from_str(&self.dendro(["info", "--json", target]).succeeds().out).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let prefix = self.root.to_str().unwrap().to_owned();
        for line in mounts().lines().rev() {
            let Some(point) = line.split(' ').nth(1).filter(|point| point.starts_with(&prefix))
            else {
                continue;
            };
            let done = self.dendro(["umount", "--force", point]);
            if done.code != Some(0) {
                let _ = Command::new("umount").args(["-l", point]).status();
            }
        }
        if let Some(directory) = self.directory.take() {
            if thread::panicking() {
                let log = fs::read_to_string(self.path("log")).unwrap_or_default();
                eprintln!("the daemon's log:\n{log}");
            }
            drop(directory);
        }
    }
}

impl Said {
    /// Asserts that it went well.
    #[track_caller]
    pub(crate) fn succeeds(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Asserts that it failed with `code` and a message that has all of `parts`.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, parts: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        for part in parts {
            assert!(self.err.contains(part), "no \"{part}\" in {self:?}");
        }
        assert!(!self.err.contains("panicked"), "{self:?}");
        self
    }
}

pub(crate) fn said(output: Output) -> Said {
    Said {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

pub(crate) fn mounts() -> String {
    fs::read_to_string("/proc/self/mounts").unwrap()
}

pub(crate) fn signal(pid: u32, name: &str) {
    // The shell's own: a small system may have no other.
    let command = format!("kill -s {name} {pid}");
    let status = Command::new("sh").args(["-c", &command]).status().unwrap();
    assert!(status.success());
}

/// Whether the process runs; a zombie does not.
pub(crate) fn is_running(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}

#[track_caller]
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("it never happened that {what}");
}

/// Whether tests that mount are to be left out; says so.
pub(crate) fn skips_mounts() -> bool {
    let skips = std::env::var_os("DENDRO_SKIP_MOUNT").is_some();
    if skips {
        eprintln!("left out, as DENDRO_SKIP_MOUNT is set");
    } else {
        assert!(
            Path::new("/dev/fuse").exists(),
            "there is no /dev/fuse here (modprobe fuse); DENDRO_SKIP_MOUNT=1 leaves mounts out"
        );
    }
    skips
}

/// Whether this is root; says so if not, since root alone can do what the test needs.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root {
        eprintln!("left out: it takes root");
    }
    is_root
}

/// Does harm to the main branch's file system of an unmounted volume.
pub(crate) fn harm(image: &str, harm: impl FnOnce(&LogDisk, &mut Aru<'_>)) {
    let device: FileDevice = DeviceOptions::new().open(Path::new(image)).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    let disk = LogDisk::open(device, OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    let mut aru = Aru::new(disk.versions().main_head());
    harm(&disk, &mut aru);
    disk.commit(aru).unwrap();
    disk.shut_down().unwrap();
}

/// Makes the link count of the root directory wrong.
pub(crate) fn harm_a_count(image: &str) {
    harm(image, |disk, aru| {
        let root = Lid(Ino::ROOT.0);
        let mut inode = disk.record(aru.view(), root, HEAD_INDEX).unwrap().unwrap().to_vec();
        inode[16] = 77;
        aru.put_record(root, HEAD_INDEX, inode);
    });
}
