//! What is measured: file systems, each made anew on the same device, and the device itself.

use std::fs::{self, File};
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use dendro_fuse_transport::{
    Access, Choice, MountRequest, Options, Session, UnmountMode, mount, unmount,
};

use super::null::{self, Null};

const MIB: usize = 1 << 20;

/// How a file system outside the kernel is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// As mounts are: over io_uring where that can be had.
    Auto,
    /// By /dev/fuse.
    Device,
    /// As `Auto`, and the kernel collects what is written: `order=close`.
    Collected,
}

impl Way {
    const ALL: [Self; 3] = [Self::Auto, Self::Device, Self::Collected];

    /// The word for it on the command line of the null file system.
    const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Device => "dev",
            Self::Collected => "close",
        }
    }

    const fn dendro_options(self) -> &'static str {
        match self {
            Self::Auto => "transport=auto",
            Self::Device => "transport=dev",
            Self::Collected => "transport=auto,order=close",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Dendrofs(Way),
    /// A file system that answers from memory.
    Null(Way),
    /// One of the kernel's.
    Kernel(&'static str),
    /// The device, without a file system.
    Device,
}

impl Target {
    /// All that can be asked for.
    pub(super) const ALL: [Self; 10] = [
        Self::Dendrofs(Way::Auto),
        Self::Null(Way::Auto),
        Self::Dendrofs(Way::Device),
        Self::Null(Way::Device),
        Self::Dendrofs(Way::Collected),
        Self::Null(Way::Collected),
        Self::Kernel("ext4"),
        Self::Kernel("xfs"),
        Self::Kernel("btrfs"),
        Self::Device,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Dendrofs(Way::Auto) => "dendrofs",
            Self::Dendrofs(Way::Device) => "dendrofs-dev",
            Self::Dendrofs(Way::Collected) => "dendrofs-close",
            Self::Null(Way::Auto) => "null",
            Self::Null(Way::Device) => "null-dev",
            Self::Null(Way::Collected) => "null-close",
            Self::Kernel(name) => name,
            Self::Device => "device",
        }
    }

    /// Why it cannot be measured here, if so.
    pub(super) fn missing(self) -> Option<String> {
        let Self::Kernel(name) = self else { return None };
        let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        if !known.lines().any(|line| line.split_whitespace().next_back() == Some(name)) {
            return Some(format!("{name} is left out: this kernel does not have it"));
        }
        let maker = format!("mkfs.{name}");
        let asked =
            Command::new(&maker).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
        match asked {
            Err(error) => Some(format!("{name} is left out: {maker}: {error}")),
            Ok(_) => None,
        }
    }
}

/// Where all of it happens.
pub(super) struct Place {
    dendro: PathBuf,
    dendro_options: String,
    device: LoopDevice,
    mount_point: PathBuf,
}

impl Place {
    /// Makes an image of `size_bytes` in `directory`, all of it written, with a loop device.
    pub(super) fn new(
        dendro: PathBuf,
        dendro_options: String,
        directory: &Path,
        size_bytes: u64,
    ) -> io::Result<Self> {
        let mount_point = directory.join("dendro-bench-mount");
        fs::create_dir_all(&mount_point)?;
        let device = LoopDevice::new(&directory.join("dendro-bench-mount.img"), size_bytes)?;
        Ok(Self { dendro, dendro_options, device, mount_point })
    }

    pub(super) fn device(&self) -> &Path {
        &self.device.path
    }

    /// Makes the file system, mounts it, lets `work` use it, and unmounts it.
    pub(super) fn with<T>(
        &self,
        target: Target,
        work: impl FnOnce(&Path) -> io::Result<T>,
    ) -> io::Result<T> {
        match target {
            Target::Dendrofs(way) => {
                let dendro = |arguments: &[&str], paths: &[&Path]| {
                    run(Command::new(&self.dendro).arg("-q").args(arguments).args(paths))
                };
                dendro(&["mkfs", "--force"], &[self.device()])?;
                let options = format!("{},{}", way.dendro_options(), self.dendro_options);
                dendro(&["mount", "-o", &options], &[self.device(), &self.mount_point])?;
                let outcome = work(&self.mount_point);
                dendro(&["umount"], &[&self.mount_point])?;
                outcome
            }
            Target::Null(way) => self.with_null(way, work),
            Target::Kernel(name) => {
                let without_discard: &[&str] = match name {
                    "ext4" => {
                        &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"]
                    }
                    _ => &["-q", "-f", "-K"],
                };
                run(Command::new(format!("mkfs.{name}")).args(without_discard).arg(self.device()))?;
                run(Command::new("mount")
                    .args(["-t", name])
                    .args([self.device(), &self.mount_point]))?;
                let outcome = work(&self.mount_point);
                run(Command::new("umount").arg(&self.mount_point))?;
                outcome
            }
            Target::Device => work(self.device()),
        }
    }

    /// The server is a process of its own, as a daemon is: switching to it and back is a part of
    /// every request.
    fn with_null<T>(&self, way: Way, work: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        let mut server = Command::new(std::env::current_exe()?)
            .args(["null", way.word()])
            .arg(&self.mount_point)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        // It says a line when it is ready, and ends without where it fails.
        let mut said = String::new();
        if let Some(pipe) = server.stdout.take() {
            io::BufReader::new(pipe).read_line(&mut said)?;
        }
        let outcome = if said.is_empty() {
            Err(io::Error::other("the null file system did not start"))
        } else {
            let outcome = work(&self.mount_point);
            unmount(&self.mount_point, UnmountMode::Idle).map_err(io::Error::other)?;
            outcome
        };
        let status = server.wait()?;
        if !status.success() {
            return Err(io::Error::other(format!("the null file system: {status}")));
        }
        outcome
    }
}

/// Mounts the null file system on `mount_point`, in the way that `word` stands for, and serves it,
/// until it is unmounted.
pub(crate) fn serve_null(word: &str, mount_point: &Path) -> io::Result<()> {
    let known = Way::ALL.into_iter().find(|way| way.word() == word);
    let way = known.ok_or_else(|| io::Error::other(format!("\"{word}\" is no way to mount")))?;
    let request = MountRequest {
        source: "null".into(),
        subtype: "null".into(),
        read_only: false,
        access: Access::All,
        default_permissions: true,
        dev: true,
        suid: true,
        exec: true,
        sync: false,
        dirsync: false,
        noatime: false,
        nosymfollow: false,
        block_device: false,
    };
    let mounted = mount(mount_point, &request).map_err(io::Error::other)?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let options = Options {
        choice: if way == Way::Device { Choice::Device } else { Choice::Auto },
        wishes: null::wishes(way == Way::Collected),
        device_threads: cores + 2,
        threads_per_queue: (16 / cores).clamp(2, 8),
        read_ahead_bytes: 8 * MIB,
        ..Options::default()
    };
    let session = Session::start(mounted, Null::default(), options).inspect_err(|_| {
        let _ = unmount(mount_point, UnmountMode::Detach);
    })?;
    println!("ready");
    session.run()
}

impl Drop for Place {
    fn drop(&mut self) {
        // Where a round has failed, its mount may still be there.
        let _ = unmount(&self.mount_point, UnmountMode::Detach);
        let _ = fs::remove_dir(&self.mount_point);
    }
}

/// A loop device over an image file of its own, both gone when it is dropped.
struct LoopDevice {
    image: PathBuf,
    path: PathBuf,
}

impl LoopDevice {
    fn new(image: &Path, size_bytes: u64) -> io::Result<Self> {
        write_all(image, size_bytes)?;
        let output = Command::new("losetup")
            .args(["--find", "--show", "--direct-io=on"])
            .arg(image)
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            let _ = fs::remove_file(image);
            return Err(io::Error::other(format!("losetup: {}", output.status)));
        }
        let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let device = Self { image: image.to_path_buf(), path };
        // Blocks stay where they are, whatever a file system gives back.
        let name = device.path.file_name().unwrap_or_default();
        fs::write(Path::new("/sys/block").join(name).join("queue/discard_max_bytes"), "0")?;
        Ok(device)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = run(Command::new("losetup").arg("--detach").arg(&self.path));
        let _ = fs::remove_file(&self.image);
    }
}

/// A file all of whose blocks have been written: what is written later finds its place.
fn write_all(path: &Path, size_bytes: u64) -> io::Result<()> {
    use std::io::Write;
    let mut file = File::create(path)?;
    let zeros = vec![0; MIB];
    for _ in 0..size_bytes.div_ceil(MIB as u64) {
        file.write_all(&zeros)?;
    }
    file.sync_all()
}

fn run(command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        io::Error::new(error.kind(), format!("{}: {error}", command.get_program().display()))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{command:?}: {}: {}", output.status, said.trim())))
}
