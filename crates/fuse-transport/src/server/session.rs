//! A mount from the handshake to its end, and the threads that serve it.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};

use zerocopy::IntoBytes;

use super::cpus;
use super::dispatch::{Body, Dispatcher};
use super::reply;
use super::worker::{Worker, read_init};
use crate::dev_fuse::DEVICE;
use crate::errno::Errno;
use crate::filesystem::FileSystem;
use crate::mounting::Mounted;
use crate::notify::Notifier;
use crate::protocol::abi::{MAJOR, MINOR};
use crate::protocol::init::{self, Agreed, Offer, Wishes};
use crate::protocol::types::InitFlags;
use crate::raw::{End, Ring};

/// The file in which root can allow requests over io_uring.
const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// The most that the payloads of all rings may take, unless one for each thread takes more. Only
/// those that were used take memory.
const RINGS_MAX_BYTES: usize = 1 << 30;

/// How requests are to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Over io_uring if the kernel has it and the administrator allows it, otherwise over
    /// `/dev/fuse`.
    #[default]
    Auto,
    /// Over io_uring; it is an error if that is not available.
    Uring,
    /// Over `/dev/fuse`.
    Device,
}

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Over io_uring: each CPU has a queue, whose threads are pinned to that CPU.
    Uring {
        /// The number of queues.
        queues: usize,
        /// The number of threads for each queue, each with a ring.
        threads_per_queue: usize,
    },
    /// Over `/dev/fuse`.
    Device {
        /// The number of threads that read from it.
        threads: usize,
    },
}

impl fmt::Display for Transport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uring { queues, threads_per_queue } => {
                write!(formatter, "io_uring, {queues} queues, {threads_per_queue} threads each")
            }
            Self::Device { threads } => write!(formatter, "{}, {threads} threads", DEVICE),
        }
    }
}

/// How to serve a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What to ask of the kernel in the handshake.
    pub wishes: Wishes,
    /// How requests are to come.
    pub choice: Choice,
    /// The number of threads that read from `/dev/fuse`, if requests come over it.
    pub device_threads: usize,
    /// The number of threads for each CPU's queue, if requests come over io_uring. A CPU that is
    /// offline gets one. A request that waits, as fsync does for the device, occupies a thread.
    pub threads_per_queue: usize,
    /// The number of requests that each of these threads can have in its ring. With more than one,
    /// a request may have to wait for the one before it.
    pub entries_per_thread: usize,
    /// How far the kernel reads ahead of programs that read sequentially. Only root can set this;
    /// for others, and with 0, it is the kernel's default of 128 KiB.
    pub read_ahead_bytes: usize,
    /// If set, only this user and root are served.
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
/// If the kernel does not have it (before Linux 6.14, or built without), or if this user may not
/// change it.
pub fn enable_uring() -> io::Result<()> {
    fs::write(ENABLE_URING, "Y")
        .map_err(|error| io::Error::new(error.kind(), format!("{ENABLE_URING}: {error}")))
}

/// A mount that is ready to serve.
pub struct Session<F> {
    mounted: Mounted,
    dispatcher: Dispatcher<F>,
    options: Options,
    rings: Vec<Ring>,
    transport: Transport,
    why_no_uring: Option<String>,
}

impl<F: FileSystem> Session<F> {
    /// Does the handshake for a new mount, which `fs` serves from then on.
    ///
    /// # Errors
    /// If the kernel is too old, if the file system was unmounted meanwhile and, with
    /// [`Choice::Uring`], if io_uring is not available.
    pub fn start(mounted: Mounted, fs: F, options: Options) -> io::Result<Self> {
        let offer = receive_offer(&mounted)?;
        let payload_len = payload_len(&options);
        let rings = match options.choice {
            Choice::Device => Err(io::Error::other("io_uring was not asked for")),
            Choice::Auto | Choice::Uring => make_rings(&mounted, &offer, &options, payload_len),
        };
        let (rings, why_no_uring) = match rings {
            Ok(rings) => (rings, None),
            Err(error) if options.choice == Choice::Uring => {
                // Nothing will serve this mount, so its callers must not wait.
                let _ = reply::send(mounted.device().as_fd(), offer.unique, Err(Errno::IO));
                return Err(error);
            }
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let agreed = init::agree(&offer, &options.wishes, !rings.is_empty()).ok_or_else(|| {
            let (major, minor) = (offer.major, offer.minor);
            io::Error::other(format!("the kernel speaks FUSE {major}.{minor}, which is too old"))
        })?;
        let dispatcher = Dispatcher::new(fs, agreed, options.only_user);
        let answer = init::answer(&offer, &agreed, &options.wishes);
        reply::send(mounted.device().as_fd(), offer.unique, Ok(answer.as_bytes()))?;
        if options.read_ahead_bytes > 0 {
            // After the reply, since that sets it to the default.
            if let Err(error) = mounted.set_read_ahead(options.read_ahead_bytes) {
                log::debug!("the kernel's read-ahead stays as it is: {error}");
            }
        }
        if agreed.flags.contains(InitFlags::WRITEBACK_CACHE)
            && let Err(error) = mounted.lift_dirty_limits()
        {
            log::debug!("the kernel's limits of dirty pages stay as they are: {error}");
        }
        let transport = if rings.is_empty() {
            Transport::Device { threads: options.device_threads.max(1) }
        } else {
            let threads_per_queue = options.threads_per_queue.max(1);
            let queues = rings.iter().map(|ring| ring.cpu() + 1).max().unwrap_or(0);
            Transport::Uring { queues, threads_per_queue }
        };
        Ok(Self { mounted, dispatcher, options, rings, transport, why_no_uring })
    }

    /// How requests come.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        self.transport
    }

    /// Why requests do not come over io_uring, if they do not.
    #[must_use]
    pub fn why_no_uring(&self) -> Option<&str> {
        self.why_no_uring.as_deref()
    }

    /// What was agreed on in the handshake.
    #[must_use]
    pub const fn agreed(&self) -> &Agreed {
        self.dispatcher.agreed()
    }

    /// The file system that serves the mount.
    #[must_use]
    pub const fn file_system(&self) -> &F {
        self.dispatcher.file_system()
    }

    /// Notifies the kernel of changes that it does not know of.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(self.mounted.device()))
    }

    /// Serves until the file system is unmounted.
    ///
    /// # Errors
    /// If the connection to the kernel fails. Then it is aborted: programs that use the mount get
    /// errors.
    ///
    /// # Panics
    /// If the file system panics. The connection is aborted first.
    pub fn run(self) -> io::Result<()> {
        let Self { mounted, dispatcher, options, rings, transport, .. } = self;
        let payload_len = payload_len(&options);
        let threads = Threads { mounted: &mounted, dispatcher: &dispatcher, payload_len };
        let refused = AtomicBool::new(false);
        thread::scope(|scope| {
            let mut spawned = Vec::new();
            let started = match transport {
                Transport::Device { threads: count } => (1..count)
                    .try_for_each(|index| threads.spawn_reader(scope, index, &mut spawned)),
                Transport::Uring { .. } => rings
                    .into_iter()
                    .try_for_each(|ring| threads.spawn_ring(scope, ring, &refused, &mut spawned)),
            };
            let outcome = started.and_then(|()| {
                threads.guard(|| {
                    let mut worker = Worker::new(mounted.device().as_fd(), payload_len)?;
                    match transport {
                        Transport::Device { .. } => worker.serve(&dispatcher),
                        Transport::Uring { .. } => worker.serve_beside_rings(&dispatcher),
                    }
                })
            });
            if outcome.is_err() {
                mounted.abort();
            }
            spawned.into_iter().fold(outcome, |outcome, thread| match thread.join() {
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

/// The length of each payload: the longest WRITE, and the longest reply to READ.
fn payload_len(options: &Options) -> usize {
    let page_len = rustix::param::page_size();
    (options.wishes.max_write_bytes as usize).next_multiple_of(page_len).max(2 * page_len)
}

/// Receives INIT. The kernel sends it again if its major version is newer than the one spoken here.
fn receive_offer(mounted: &Mounted) -> io::Result<Offer> {
    loop {
        let message = read_init(mounted.device().as_fd())?
            .ok_or_else(|| io::Error::other("it was unmounted at once"))?;
        let offer = init::parse(&message)
            .map_err(|_| io::Error::other("the kernel's first request is not INIT"))?;
        if offer.major <= MAJOR {
            return Ok(offer);
        }
        let older = [MAJOR, MINOR];
        reply::send(mounted.device().as_fd(), offer.unique, Ok(older.as_bytes()))?;
    }
}

/// The rings for all queues, or why there are none.
fn make_rings(
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

type Spawned<'scope> = Vec<thread::ScopedJoinHandle<'scope, io::Result<()>>>;

/// What all threads that serve one mount share.
struct Threads<'env, F> {
    mounted: &'env Mounted,
    dispatcher: &'env Dispatcher<F>,
    payload_len: usize,
}

impl<F> Clone for Threads<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Threads<'_, F> {}

impl<'env, F: FileSystem> Threads<'env, F> {
    /// Runs `work`, and aborts the connection if that fails or panics. Otherwise the requests that
    /// this thread should have served would wait forever.
    fn guard(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        struct AbortOnPanic<'a>(&'a Mounted);
        impl Drop for AbortOnPanic<'_> {
            fn drop(&mut self) {
                if thread::panicking() {
                    self.0.abort();
                }
            }
        }
        let _abort = AbortOnPanic(self.mounted);
        work().inspect_err(|error| {
            log::error!("serving FUSE requests failed: {error}");
            self.mounted.abort();
        })
    }

    fn spawn_reader<'scope>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        index: usize,
        spawned: &mut Spawned<'scope>,
    ) -> io::Result<()> {
        let threads = *self;
        let mut worker = Worker::new(threads.mounted.device().as_fd(), threads.payload_len)?;
        let thread = thread::Builder::new()
            .name(format!("fuse-{index}"))
            .spawn_scoped(scope, move || threads.guard(|| worker.serve(threads.dispatcher)))?;
        spawned.push(thread);
        Ok(())
    }

    fn spawn_ring<'scope>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        mut ring: Ring,
        refused: &'env AtomicBool,
        spawned: &mut Spawned<'scope>,
    ) -> io::Result<()> {
        let threads = *self;
        let cpu = ring.cpu();
        let work = move || {
            cpus::pin_to(cpu);
            if !cpus::raise_priority() {
                log::debug!("clients may move between CPUs: RLIMIT_NICE allows no higher priority");
            }
            let end = ring.serve(|arrival| {
                let body = Body::Shared { buffer: arrival.buffer, len: arrival.len };
                let reply = threads.dispatcher.serve(&arrival.header, arrival.arguments, body);
                // Requests without a reply do not come over rings. If one does, its entry must
                // still go back to the kernel.
                reply.unwrap_or(Ok(0))
            })?;
            match end {
                End::Unmounted => Ok(()),
                End::Refused(error) => {
                    // The kernel may have accepted some entries, and must not put requests there.
                    drop(ring);
                    if !refused.swap(true, Ordering::Relaxed) {
                        log::warn!(
                            "the kernel does not accept io_uring for this mount: {error}; requests \
                             come over {}",
                            DEVICE
                        );
                    }
                    Worker::new(threads.mounted.device().as_fd(), threads.payload_len)?
                        .serve(threads.dispatcher)
                }
            }
        };
        let thread = thread::Builder::new()
            .name(format!("fuse-cpu-{cpu}"))
            .spawn_scoped(scope, move || threads.guard(work))?;
        spawned.push(thread);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dev_fuse;
    use crate::mounting::{Access, MountRequest, UnmountMode, mount, unmount};
    use crate::protocol::types::{Request, StatFs};

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

    /// A kernel may offer io_uring and then not accept the rings, or only some of them.
    #[test]
    #[cfg_attr(miri, ignore = "needs a kernel")]
    fn requests_of_rings_that_the_kernel_refuses_are_served_from_the_device() {
        let is_left_out = std::env::var_os("DENDRO_SKIP_MOUNT").is_some()
            || dev_fuse::open().is_err()
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
                let serving = scope.spawn(move || session.run());
                for _ in 0..20 {
                    let stat = rustix::fs::statvfs(directory.path()).expect("it is answered");
                    assert_eq!(stat.f_blocks, 17);
                }
                unmount(directory.path(), UnmountMode::Idle).expect("nobody uses it");
                serving.join().expect("no panic").expect("served to the end");
            });
        }
    }
}
