//! The daemon's log.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dendro_base::sync::Mutex;
use dendro_base::{Clock, SystemClock, Timestamp};
use dendro_control::socket;
use rustix::fs::OFlags;

use crate::failure::Failure;
use crate::text;

const SYSLOG_SOCKET: &str = "/dev/log";

/// The most messages in a [`WINDOW`]; a broken device causes one for each request.
const MAX_IN_WINDOW: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

/// A place for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Standard error.
    StandardError,
    /// The system's log.
    Syslog,
    /// A file, to which messages are appended.
    File(PathBuf),
}

enum Sink {
    StandardError,
    Syslog(UnixDatagram, Fallback),
    File(File),
}

/// A file for warnings and errors if the system's log does not take messages. It is created with
/// the first of them.
struct Fallback {
    path: PathBuf,
    file: Mutex<Option<File>>,
}

impl Fallback {
    /// A file beside the control sockets, where only this user can write; named after the volume.
    fn new(about: &Path) -> Self {
        let name = about.file_name().unwrap_or(about.as_os_str());
        let mut path = socket::directory().join(name).into_os_string();
        path.push(".log");
        Self { path: path.into(), file: Mutex::default() }
    }

    fn write(&self, now: Timestamp, level: log::Level, text: &str) -> std::io::Result<()> {
        if level > log::Level::Warn {
            return Ok(());
        }
        let mut file = self.file.lock();
        if file.is_none() {
            // Nothing is written where another user could have put a file.
            socket::create_directory(&socket::directory())?;
            let mut options = File::options();
            options.append(true).create(true).mode(0o600).custom_flags(no_follow());
            let opened = options.open(&self.path)?;
            *file = Some(opened);
            set_place(self.path.display().to_string());
        }
        match &mut *file {
            Some(file) => writeln!(file, "{} {level}: {text}", text::time(now.secs())),
            None => Ok(()),
        }
    }
}

/// `O_NOFOLLOW`.
const fn no_follow() -> i32 {
    OFlags::NOFOLLOW.bits().cast_signed()
}

/// The place of messages, for users.
static PLACE: Mutex<String> = Mutex::new(String::new());

fn set_place(place: String) {
    *PLACE.lock() = place;
}

/// The place of messages, for users.
pub fn place() -> String {
    PLACE.lock().clone()
}

#[derive(Default)]
struct Window {
    start: Timestamp,
    count: u32,
}

struct Logger {
    sink: Sink,
    /// Names the volume, since other programs write to the same log.
    about: String,
    window: Mutex<Window>,
}

/// Sends all messages of this process, and panics, to `destination`. Only the first call has an
/// effect.
pub fn start(destination: &Destination, about: &Path) -> Result<(), Failure> {
    let sink = match destination {
        Destination::StandardError => Sink::StandardError,
        Destination::Syslog => Sink::Syslog(UnixDatagram::unbound()?, Fallback::new(about)),
        Destination::File(path) => {
            let open = File::options().append(true).create(true).open(path);
            Sink::File(open.map_err(|error| {
                Failure::new(format_args!("log file {}: {error}", path.display()))
            })?)
        }
    };
    set_place(match destination {
        Destination::StandardError => "standard error".into(),
        Destination::Syslog if Path::new(SYSLOG_SOCKET).exists() => "syslog".into(),
        Destination::Syslog => Fallback::new(about).path.display().to_string(),
        Destination::File(path) => path.display().to_string(),
    });
    let logger = Logger { sink, about: about.display().to_string(), window: Mutex::default() };
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
    Ok(())
}

/// Ends the process at a panic in any thread: the state that the thread held is unknown, and the
/// next mount recovers what is on the device.
pub fn abort_on_panic() {
    static PANICKED: AtomicBool = AtomicBool::new(false);
    std::panic::set_hook(Box::new(|panic| {
        if PANICKED.swap(true, Ordering::AcqRel) {
            // Another thread panicked first; it gets time to log that.
            std::thread::sleep(Duration::from_secs(1));
        } else {
            log::error!("stopped by a bug, please report it: {panic}");
        }
        std::process::abort();
    }));
}

impl log::Log for Logger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Info
    }

    fn log(&self, record: &log::Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let now = SystemClock.now();
        let Some(note) = self.admit(now) else { return };
        let text = format!("{}: {}{note}", self.about, record.args());
        // A failure of the fallback cannot be reported anywhere.
        let _ = match &self.sink {
            Sink::StandardError => writeln!(std::io::stderr(), "dendro: {text}"),
            Sink::File(file) => {
                let mut file = file;
                writeln!(file, "{} {}: {text}", text::time(now.secs()), record.level())
            }
            Sink::Syslog(socket, fallback) => {
                // Facility "daemon" is 3; the levels are those of syslog(3).
                let severity = match record.level() {
                    log::Level::Error => 3,
                    log::Level::Warn => 4,
                    _ => 6,
                };
                let pid = std::process::id();
                let line = format!("<{}>dendro[{pid}]: {text}", 3 * 8 + severity);
                let sent = socket.send_to(line.as_bytes(), SYSLOG_SOCKET).map(drop);
                sent.or_else(|_| fallback.write(now, record.level(), &text))
            }
        };
    }

    fn flush(&self) {}
}

impl Logger {
    /// Whether one more message is written, and what is added to it.
    fn admit(&self, now: Timestamp) -> Option<&'static str> {
        let mut window = self.window.lock();
        if now.since(window.start) >= WINDOW {
            *window = Window { start: now, count: 0 };
        }
        window.count = window.count.saturating_add(1);
        match window.count {
            count if count < MAX_IN_WINDOW => Some(""),
            MAX_IN_WINDOW => Some(" (more of this is not logged for ten seconds)"),
            _ => None,
        }
    }
}
