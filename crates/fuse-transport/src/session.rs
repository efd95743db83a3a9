//! A mount's life from the handshake to its end.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};

use zerocopy::IntoBytes;

use crate::cpus;
use crate::device::{self, Worker};
use crate::dispatch::Server;
use crate::errno::Errno;
use crate::filesystem::FileSystem;
use crate::init::{self, Agreed, Offer, Wishes};
use crate::mount::Mounted;
use crate::notify::Notifier;
use crate::raw::{End, Ring};
use crate::types::InitFlags;

/// Where root can allow requests over io_uring.
const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// What the buffers of all rings may take at most, unless one for each takes more. Only those that
/// have been used take memory.
const RINGS_MAX_BYTES: usize = 1 << 30;

/// Which way requests shall come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Over io_uring where kernel and administrator allow it, otherwise by `/dev/fuse`.
    #[default]
    Auto,
    /// Over io_uring or not at all.
    Uring,
    /// By `/dev/fuse`.
    Device,
}

/// Which way requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Over io_uring: each CPU has a queue, whose threads stay on that CPU.
    Uring {
        /// How many queues.
        queues: usize,
        /// How many threads, each with a ring, serve one queue.
        threads_per_queue: usize,
    },
    /// By `/dev/fuse`.
    Device {
        /// How many threads read from it.
        threads: usize,
    },
}

impl fmt::Display for Transport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uring { queues, threads_per_queue } => {
                write!(formatter, "io_uring, {queues} queues, {threads_per_queue} threads each")
            }
            Self::Device { threads } => write!(formatter, "{}, {threads} threads", device::DEVICE),
        }
    }
}

/// How to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What is wanted of the kernel.
    pub wishes: Wishes,
    /// Which way requests shall come.
    pub choice: Choice,
    /// How many threads serve `/dev/fuse`, if requests come that way.
    pub device_threads: usize,
    /// How many threads serve each CPU's queue, if they come over io_uring; one is enough where the
    /// CPU is not running. A request that waits, as fsync does for the device, has a thread to
    /// itself.
    pub threads_per_queue: usize,
    /// How many requests each of these threads may have in its ring. More than one may have to
    /// wait for the one before.
    pub entries_per_thread: usize,
    /// How far the kernel may read ahead of programs that read in order, if that can be set: root
    /// alone can raise it. 0: as it does by itself, 128 KiB.
    pub read_ahead_bytes: usize,
    /// If set, this user and root alone are served.
    pub only_user: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            wishes: Wishes::default(),
            choice: Choice::Auto,
            device_threads: 4,
            threads_per_queue: 4,
            entries_per_thread: 1,
            read_ahead_bytes: 0,
            only_user: None,
        }
    }
}

/// Allows FUSE over io_uring on this machine, for mounts from now on.
///
/// # Errors
/// When the kernel has none of it (before Linux 6.14, or configured without), or this user may not.
pub fn enable_uring() -> io::Result<()> {
    fs::write(ENABLE_URING, "Y")
        .map_err(|error| io::Error::new(error.kind(), format!("{ENABLE_URING}: {error}")))
}

/// A mount that is ready to be served.
pub struct Session<F> {
    mounted: Mounted,
    server: Server<F>,
    options: Options,
    rings: Vec<Ring>,
    transport: Transport,
    why_no_uring: Option<String>,
}

impl<F: FileSystem> Session<F> {
    /// Shakes hands with the kernel about a fresh mount, which `fs` serves from then on.
    ///
    /// # Errors
    /// When the kernel is too old, when it was unmounted meanwhile, and with [`Choice::Uring`]
    /// when there is no io_uring.
    pub fn start(mounted: Mounted, fs: F, options: Options) -> io::Result<Self> {
        let offer = shake_hands(&mounted)?;
        let payload_len = payload_len(&options);
        let rings = match options.choice {
            Choice::Device => Err(io::Error::other("io_uring was not asked for")),
            Choice::Auto | Choice::Uring => rings(&mounted, &offer, &options, payload_len),
        };
        let (rings, why_no_uring) = match rings {
            Ok(rings) => (rings, None),
            Err(error) if options.choice == Choice::Uring => {
                // Nobody will serve this mount; its callers need not wait.
                let _ = device::write(mounted.device().as_fd(), offer.unique, Err(Errno::IO));
                return Err(error);
            }
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let agreed = init::agree(&offer, &options.wishes, !rings.is_empty()).ok_or_else(|| {
            let (major, minor) = (offer.major, offer.minor);
            io::Error::other(format!("the kernel speaks FUSE {major}.{minor}, which is too old"))
        })?;
        let server = Server::new(fs, agreed, options.only_user);
        let answer = init::answer(&offer, &agreed, &options.wishes);
        device::write(mounted.device().as_fd(), offer.unique, Ok(answer.as_bytes()))?;
        if options.read_ahead_bytes > 0 {
            // Only now: the answer has set what it was.
            if let Err(error) = mounted.set_read_ahead(options.read_ahead_bytes) {
                log::debug!("the kernel reads ahead as it likes: {error}");
            }
        }
        let transport = if rings.is_empty() {
            Transport::Device { threads: options.device_threads.max(1) }
        } else {
            let threads_per_queue = options.threads_per_queue.max(1);
            let queues = rings.iter().map(|ring| ring.cpu() + 1).max().unwrap_or(0);
            Transport::Uring { queues, threads_per_queue }
        };
        Ok(Self { mounted, server, options, rings, transport, why_no_uring })
    }

    /// Which way requests come.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        self.transport
    }

    /// Why requests do not come over io_uring, if they do not.
    #[must_use]
    pub fn why_no_uring(&self) -> Option<&str> {
        self.why_no_uring.as_deref()
    }

    /// What was agreed on.
    #[must_use]
    pub const fn agreed(&self) -> &Agreed {
        self.server.agreed()
    }

    /// What serves the mount.
    #[must_use]
    pub const fn file_system(&self) -> &F {
        self.server.file_system()
    }

    /// Tells the kernel what has changed behind its back.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(self.mounted.device()))
    }

    /// Serves until the file system is unmounted, by whomever.
    ///
    /// # Errors
    /// When the connection to the kernel fails. It is cut off then: whoever uses the mount gets
    /// errors.
    ///
    /// # Panics
    /// When the file system does; the connection is cut off first.
    pub fn run(self) -> io::Result<()> {
        let Self { mounted, server, options, rings, transport, .. } = self;
        let payload_len = payload_len(&options);
        let crew = Crew { mounted: &mounted, server: &server, payload_len };
        let refused = AtomicBool::new(false);
        thread::scope(|scope| {
            let mut helpers = Vec::new();
            let started = match transport {
                Transport::Device { threads } => {
                    (1..threads).try_for_each(|index| crew.hire_reader(scope, index, &mut helpers))
                }
                Transport::Uring { .. } => rings
                    .into_iter()
                    .try_for_each(|ring| crew.hire_ring(scope, ring, &refused, &mut helpers)),
            };
            let outcome = started.and_then(|()| {
                crew.guard(|| {
                    let mut worker = Worker::new(mounted.device().as_fd(), payload_len)?;
                    match transport {
                        Transport::Device { .. } => worker.serve(&server),
                        Transport::Uring { .. } => worker.serve_beside_rings(&server),
                    }
                })
            });
            if outcome.is_err() {
                mounted.abort();
            }
            helpers.into_iter().fold(outcome, |outcome, helper| match helper.join() {
                Ok(result) => outcome.and(result),
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }
}

impl<F> fmt::Debug for Session<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Session")
            .field("mounted", &self.mounted)
            .field("options", &self.options)
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

/// What each buffer must hold: the longest WRITE and the longest answer to READ.
fn payload_len(options: &Options) -> usize {
    let page_len = rustix::param::page_size();
    (options.wishes.max_write_bytes as usize).next_multiple_of(page_len).max(2 * page_len)
}

/// Reads INIT, of which the kernel may send several until the major version is one that is known
/// here.
fn shake_hands(mounted: &Mounted) -> io::Result<Offer> {
    loop {
        let message = device::read_init(mounted.device().as_fd())?
            .ok_or_else(|| io::Error::other("it was unmounted at once"))?;
        let offer = init::parse(&message)
            .map_err(|_| io::Error::other("the kernel began with something else than INIT"))?;
        if offer.major <= crate::abi::MAJOR {
            return Ok(offer);
        }
        let older = [crate::abi::MAJOR, crate::abi::MINOR];
        device::write(mounted.device().as_fd(), offer.unique, Ok(older.as_bytes()))?;
    }
}

/// The rings for all queues; why there are none otherwise.
fn rings(
    mounted: &Mounted,
    offer: &Offer,
    options: &Options,
    payload_len: usize,
) -> io::Result<Vec<Ring>> {
    if !offer.flags.contains(InitFlags::OVER_IO_URING) {
        let advice = match fs::read_to_string(ENABLE_URING) {
            Ok(_) => format!("it is switched off; root can `echo Y > {ENABLE_URING}`"),
            Err(_) => "this kernel cannot do it".into(),
        };
        return Err(io::Error::other(format!("FUSE over io_uring: {advice}")));
    }
    let queues = cpus::possible().ok_or_else(|| io::Error::other("cannot count the CPUs"))?;
    let online = cpus::online();
    let threads_of = |cpu: usize| match &online {
        Some(online) if !online.contains(&cpu) => 1,
        _ => options.threads_per_queue.max(1),
    };
    let threads: usize = (0..queues).map(threads_of).sum();
    let most = (RINGS_MAX_BYTES / payload_len / threads.max(1)).max(1);
    let entries = options.entries_per_thread.clamp(1, most);
    (0..queues)
        .flat_map(|cpu| std::iter::repeat_n(cpu, threads_of(cpu)))
        .map(|cpu| {
            let queue_index = u16::try_from(cpu).map_err(io::Error::other)?;
            Ring::new(Arc::clone(mounted.device()), queue_index, entries, payload_len)
        })
        .collect::<io::Result<_>>()
        .map_err(|error| io::Error::new(error.kind(), format!("io_uring: {error}")))
}

type Helpers<'scope> = Vec<thread::ScopedJoinHandle<'scope, io::Result<()>>>;

/// What all threads that serve one mount share.
struct Crew<'env, F> {
    mounted: &'env Mounted,
    server: &'env Server<F>,
    payload_len: usize,
}

impl<F> Clone for Crew<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Crew<'_, F> {}

impl<'env, F: FileSystem> Crew<'env, F> {
    /// Runs `work`, and cuts the connection off if that fails or panics: the requests that this
    /// thread should have served would wait forever.
    fn guard(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        struct Cut<'a>(&'a Mounted);
        impl Drop for Cut<'_> {
            fn drop(&mut self) {
                if thread::panicking() {
                    self.0.abort();
                }
            }
        }
        let _cut = Cut(self.mounted);
        work().inspect_err(|error| {
            log::error!("serving FUSE requests failed: {error}");
            self.mounted.abort();
        })
    }

    fn hire_reader<'scope>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        index: usize,
        helpers: &mut Helpers<'scope>,
    ) -> io::Result<()> {
        let crew = *self;
        let mut worker = Worker::new(crew.mounted.device().as_fd(), crew.payload_len)?;
        let helper = thread::Builder::new()
            .name(format!("fuse-{index}"))
            .spawn_scoped(scope, move || crew.guard(|| worker.serve(crew.server)))?;
        helpers.push(helper);
        Ok(())
    }

    fn hire_ring<'scope>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        mut ring: Ring,
        refused: &'env AtomicBool,
        helpers: &mut Helpers<'scope>,
    ) -> io::Result<()> {
        let crew = *self;
        let cpu = ring.cpu();
        let work = move || {
            cpus::stay_on(cpu);
            if !cpus::come_first() {
                log::debug!("clients will change CPUs: RLIMIT_NICE allows no higher priority");
            }
            let end = ring.serve(|arrival| {
                let body =
                    crate::dispatch::Body::Shared { buffer: arrival.buffer, len: arrival.len };
                let answer = crew.server.serve(&arrival.header, arrival.arguments, body);
                // What has no answer does not come this way; should it, its buffer must go back.
                answer.unwrap_or(Ok(0))
            })?;
            match end {
                End::Unmounted => Ok(()),
                End::Refused(error) => {
                    // Should the kernel have taken a part of it, it must not put requests there.
                    drop(ring);
                    if !refused.swap(true, Ordering::Relaxed) {
                        log::warn!(
                            "the kernel does not take io_uring for this mount: {error}; requests \
                             come by {}",
                            device::DEVICE
                        );
                    }
                    Worker::new(crew.mounted.device().as_fd(), crew.payload_len)?.serve(crew.server)
                }
            }
        };
        let helper = thread::Builder::new()
            .name(format!("fuse-cpu-{cpu}"))
            .spawn_scoped(scope, move || crew.guard(work))?;
        helpers.push(helper);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::{Access, MountRequest, UnmountMode, mount, unmount};
    use crate::types::{Request, StatFs};

    struct Counts;

    impl FileSystem for Counts {
        fn statfs(&self, _: &Request, _: u64) -> crate::Result<StatFs> {
            Ok(StatFs { blocks: 17, fragment_bytes: 4096, ..StatFs::default() })
        }
    }

    fn request() -> MountRequest {
        MountRequest {
            source: "test".into(),
            subtype: "test".into(),
            read_only: false,
            access: Access::All,
            default_permissions: true,
            dev: false,
            suid: false,
            exec: false,
            sync: false,
            dirsync: false,
            noatime: false,
            nosymfollow: false,
            block_device: false,
        }
    }

    /// A kernel may offer io_uring and then not take the rings, all of them or some.
    #[test]
    fn what_the_kernel_does_not_take_over_rings_is_served_from_the_device() {
        let is_left_out = std::env::var_os("DENDRO_SKIP_MOUNT").is_some()
            || device::open().is_err()
            || !rustix::process::geteuid().is_root();
        if is_left_out {
            eprintln!("left out: /dev/fuse cannot be opened, or mounts are not wanted");
            return;
        }
        for broken in [&[0][..], &[1], &[0, 1, 2, 3]] {
            let directory = tempfile::tempdir().expect("there is room");
            let mounted = mount(directory.path(), &request()).expect("root can mount");
            let options = Options { threads_per_queue: 2, ..Options::default() };
            let mut session = Session::start(mounted, Counts, options).expect("it is mounted");
            if session.rings.is_empty() {
                eprintln!("left out: {}", session.why_no_uring().unwrap_or_default());
            }
            for (index, ring) in session.rings.iter_mut().enumerate() {
                if broken.contains(&index) {
                    // The kernel wants room for the longest request.
                    let device = Arc::clone(session.mounted.device());
                    let queue = u16::try_from(ring.cpu()).expect("few");
                    *ring = Ring::new(device, queue, 1, 4096).expect("there are rings");
                }
            }
            thread::scope(|scope| {
                let server = scope.spawn(move || session.run());
                for _ in 0..20 {
                    let stat = rustix::fs::statvfs(directory.path()).expect("it is answered");
                    assert_eq!(stat.f_blocks, 17);
                }
                unmount(directory.path(), UnmountMode::Idle).expect("nobody uses it");
                server.join().expect("no panic").expect("served to the end");
            });
        }
    }
}
