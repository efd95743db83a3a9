//! Mount options, as they follow `-o`.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use dendro_control::versions::{Moment, VersionName};
use dendro_device::Direct;
use dendro_fs::AtimePolicy;
use dendro_fuse::{Access, Choice, Order};
use dendro_logdisk::{Compression, Discards, OnLoss};
use dendro_policy::Kind;
use dendro_versions::{Retention, name};

use crate::delegation::Delegates;
use crate::{local_time, text};

/// Options that mount(8), systemd and fstab handle and still pass on.
const FOREIGN: [&str; 26] = [
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "nousers",
    "group",
    "nogroup",
    "nofail",
    "fail",
    "_netdev",
    "silent",
    "loud",
    "nomand",
    "noiversion",
    "default_permissions",
    "atime",
    "norelatime",
    "nostrictatime",
    // These have no meaning here. Access times are always lazy, versions of i-nodes and mandatory
    // locks do not exist, and directories have access times like files.
    "lazytime",
    "nolazytime",
    "iversion",
    "mand",
    "diratime",
    "nodiratime",
];

/// Prefixes of such options.
const FOREIGN_PREFIXES: [&str; 9] = [
    "x-",
    "X-",
    "comment=",
    "uhelper=",
    "helper=",
    "subtype=",
    // Options in the table of mounts, which mount(8) passes on with remount.
    "user_id=",
    "group_id=",
    "blksize=",
];

/// All options, for messages and for completions.
pub const KNOWN: &str = "ro, rw, allow_other, allow_root, noallow_other, relatime, noatime, \
                     strictatime, commit=, cache=, checkpoint=, policy=, reserve=, coalesce=, compress=, compress-cold=, discard, discard=, nodiscard, \
                     direct, direct=writes, buffered, threads=, transport=, enable_uring, fuseblk, nofuseblk, loop, \
                     remount, sync, dirsync, xattr, noxattr, order=, dev, nodev, suid, nosuid, exec, noexec, symfollow, nosymfollow, \
                     fsname=, clone=, \
                     snapshot=, at=, retain=, recover=, device=, degraded, check, nocheck, snapdir, nosnapdir, metrics=, users=, group=, \
                     owner, noowner";

const LONGEST_COMMIT: Duration = Duration::from_secs(3600);
const MIN_CACHE_BYTES: u64 = 1 << 20;
const MIN_CHECKPOINT_BYTES: u64 = 1 << 20;
const MAX_RESERVE_PERCENT: u8 = 50;
const MAX_THREADS: usize = 256;

/// The options of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// The mount is read-only.
    pub read_only: bool,
    /// The device is opened read-only, so that no view of the volume can be changed.
    pub read_only_device: bool,
    /// Who may use the mount; `None`: the default for the user who mounts.
    pub access: Option<Access>,
    /// When reading changes access times.
    pub atime: AtimePolicy,
    /// How long written data may stay volatile.
    pub commit_interval: Duration,
    /// Memory for the map's nodes; `None`: the engine's default.
    pub cache_bytes: Option<u64>,
    /// Log between checkpoints; `None`: the engine's default.
    pub checkpoint_bytes: Option<u64>,
    /// The cleaner's policy; `None`: the engine's default.
    pub policy: Option<Kind>,
    /// The share of each segment that stays free of live data when the volume is full; `None`: the
    /// engine's default.
    pub reserve_percent: Option<u8>,
    /// Whether scattered files are coalesced in idle times; `None`: the engine's default.
    pub coalesce: Option<bool>,
    /// How new data is compressed, or that it is not; `None`: as the volume says.
    pub compression: Option<Option<Compression>>,
    /// How the cleaner compresses what it moves, or that it does not; `None`: as the volume says.
    pub cold_compression: Option<Option<Compression>>,
    /// Whether the volume is checked in the background after an unclean end.
    pub check: bool,
    /// Other devices of the volume than the one that is named.
    pub devices: Vec<PathBuf>,
    /// Whether devices of the volume that have everything may be absent.
    pub is_degraded: bool,
    /// What happens if durable data were lost.
    pub on_loss: OnLoss,
    /// When clean segments are discarded on the device or in the image file.
    pub discards: Discards,
    /// Whether the device's page cache is bypassed.
    pub direct: Direct,
    /// The number of threads that serve requests; `None`: the default for the machine.
    pub threads: Option<usize>,
    /// The transport of requests.
    pub transport: Choice,
    /// Whether FUSE over io_uring is enabled on this machine first.
    pub enable_uring: bool,
    /// Whether it is mounted as a block device; `None`: the default for the source and the user.
    pub fuseblk: Option<bool>,
    /// Whether an image is attached to a loop device.
    pub is_loop: bool,
    /// Whether an existing mount is to be changed.
    pub is_remount: bool,
    /// Whether each write is durable when it returns.
    pub sync: bool,
    /// Whether each change of a directory is durable when it returns.
    pub dirsync: bool,
    /// When the kernel hands over what programs write.
    pub order: Order,
    /// Whether device files give access to devices.
    pub dev: bool,
    /// Whether set-user-ID bits have an effect.
    pub suid: bool,
    /// Whether programs can be run.
    pub exec: bool,
    /// Whether symbolic links are followed.
    pub symfollow: bool,
    /// Whether programs have extended attributes and access control lists.
    pub xattr: bool,
    /// The source in the table of mounts.
    pub fs_name: Option<String>,
    /// The version; by default the main branch's head.
    pub version: VersionName,
    /// Whether a hidden directory in the root shows the past.
    pub snapdir: bool,
    /// The retention of automatic snapshots, one of which is taken at each commit interval with
    /// changes.
    pub retain: Option<Retention>,
    /// The address at which metrics are served over TCP.
    pub metrics: Option<SocketAddr>,
    /// The users besides root and the mounting user who may make versions.
    pub delegates: Delegates,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            read_only_device: false,
            access: None,
            atime: AtimePolicy::Relatime,
            commit_interval: Duration::from_secs(5),
            cache_bytes: None,
            checkpoint_bytes: None,
            policy: None,
            reserve_percent: None,
            coalesce: None,
            compression: None,
            cold_compression: None,
            check: false,
            devices: Vec::new(),
            is_degraded: false,
            on_loss: OnLoss::Stop,
            discards: Discards::InTime,
            direct: Direct::Auto,
            threads: None,
            transport: Choice::Auto,
            enable_uring: false,
            fuseblk: None,
            is_loop: false,
            is_remount: false,
            sync: false,
            dirsync: false,
            order: Order::Strict,
            dev: true,
            suid: true,
            exec: true,
            symfollow: true,
            xattr: true,
            fs_name: None,
            version: VersionName::default(),
            snapdir: true,
            retain: None,
            metrics: None,
            delegates: Delegates::default(),
        }
    }
}

/// Whether `piece` continues a rule of retention, which itself contains commas.
fn continues_retention(piece: &str) -> bool {
    piece.contains(':') && !piece.contains('=') && piece.parse::<Retention>().is_ok()
}

/// Splits lists of options into options.
fn pieces<'a>(lists: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for piece in lists.into_iter().flat_map(|list| list.split(',')).map(str::trim) {
        match all.last_mut().filter(|last| last.starts_with("retain=")) {
            Some(rule) if continues_retention(piece) => *rule += &format!(",{piece}"),
            _ => all.push(piece.to_owned()),
        }
    }
    all
}

mod change;

pub use change::CHANGEABLE;

impl MountOptions {
    /// Parses lists of options; later options win.
    pub fn parse<'a>(lists: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let all = pieces(lists);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        // mount(8) passes sloppy on: NFS and automounters mix options of many systems.
        let sloppy = all.contains(&"sloppy");
        let mut options = Self::default();
        let mut unknown = BTreeSet::new();
        for option in all.into_iter().filter(|&option| !option.is_empty() && option != "sloppy") {
            if !options.set(option)? && !is_foreign(option) && !sloppy {
                unknown.insert(option);
            }
        }
        if unknown.is_empty() {
            // Such a mount is for reading only.
            options.read_only |= options.on_loss == OnLoss::Skip;
            options.read_only_device = options.read_only;
            // The past does not change.
            options.read_only |= options.version.moment.is_some();
            return Ok(options);
        }
        let unknown: Vec<String> = unknown.iter().map(|option| format!("\"{option}\"")).collect();
        Err(format!("unknown mount option {}; known are {KNOWN}", unknown.join(", ")))
    }

    /// The options that apply to the whole volume and differ from their defaults.
    pub fn of_volume(&self) -> Vec<&'static str> {
        let default = Self::default();
        let all = [
            ("commit=", self.commit_interval != default.commit_interval),
            ("cache=", self.cache_bytes.is_some()),
            ("checkpoint=", self.checkpoint_bytes.is_some()),
            ("policy=", self.policy.is_some()),
            ("reserve=", self.reserve_percent.is_some()),
            ("coalesce=", self.coalesce.is_some()),
            ("compress=", self.compression.is_some()),
            ("compress-cold=", self.cold_compression.is_some()),
            ("check", self.check),
            ("device=", !self.devices.is_empty()),
            ("degraded", self.is_degraded),
            ("recover=", self.on_loss != default.on_loss),
            ("direct, direct=writes, buffered", self.direct != default.direct),
            ("fuseblk", self.fuseblk == Some(true)),
            ("metrics=", self.metrics.is_some()),
        ];
        all.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect()
    }

    /// Refuses delegation to users who cannot reach the control socket.
    pub fn check_delegation(&self) -> Result<(), String> {
        match self.delegates.is_empty() || rustix::process::geteuid().is_root() {
            true => Ok(()),
            false => {
                Err("users=, group=, owner: only in mounts that root makes; the control socket of \
                          others lies where nobody else gets"
                    .into())
            }
        }
    }

    /// Takes one option; returns false if it is unknown.
    fn set(&mut self, option: &str) -> Result<bool, String> {
        match option.split_once('=') {
            Some(("direct", "writes")) => {
                self.direct = Direct::Writes;
                Ok(true)
            }
            Some((name, value)) => self.set_value(name, value),
            None => self.set_flag(option),
        }
    }

    fn set_flag(&mut self, option: &str) -> Result<bool, String> {
        match option {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "allow_other" => self.access = Some(Access::All),
            "allow_root" => self.access = Some(Access::OwnerAndRoot),
            "noallow_other" => self.access = Some(Access::Owner),
            "relatime" => self.atime = AtimePolicy::Relatime,
            "noatime" => self.atime = AtimePolicy::Noatime,
            "strictatime" => self.atime = AtimePolicy::Strictatime,
            "xattr" => self.xattr = true,
            "noxattr" => self.xattr = false,
            "direct" => self.direct = Direct::Always,
            "discard" => self.discards = Discards::InTime,
            "nodiscard" => self.discards = Discards::Never,
            "buffered" => self.direct = Direct::Never,
            "enable_uring" => self.enable_uring = true,
            "fuseblk" => self.fuseblk = Some(true),
            "nofuseblk" => self.fuseblk = Some(false),
            "loop" => self.is_loop = true,
            "sync" => self.sync = true,
            "async" | "nosync" => self.sync = false,
            "dirsync" => self.dirsync = true,
            "dev" => self.dev = true,
            "nodev" => self.dev = false,
            "suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "exec" => self.exec = true,
            "noexec" => self.exec = false,
            "symfollow" => self.symfollow = true,
            "nosymfollow" => self.symfollow = false,
            "degraded" => self.is_degraded = true,
            "check" => self.check = true,
            "nocheck" => self.check = false,
            "snapdir" => self.snapdir = true,
            "nosnapdir" => self.snapdir = false,
            "owner" => self.delegates.set_owner(true),
            "noowner" => self.delegates.set_owner(false),
            "remount" => self.is_remount = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_value(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let in_option = |why: String| format!("mount option {name}=: {why}");
        let kind = || Compression::parse(value).map_err(in_option);
        let size = |smallest: u64| {
            let bytes = text::parse_size(value).map_err(in_option)?;
            match bytes {
                bytes if bytes >= smallest => Ok(Some(bytes)),
                _ => Err(in_option(format!(
                    "{value} is too small; {} at least",
                    text::size(smallest)
                ))),
            }
        };
        match name {
            "commit" => {
                let interval = text::parse_period(value).map_err(in_option)?;
                if interval.is_zero() || interval > LONGEST_COMMIT {
                    return Err(in_option(format!("{value} is not from 1 to 3600 seconds")));
                }
                self.commit_interval = interval;
            }
            "cache" => self.cache_bytes = size(MIN_CACHE_BYTES)?,
            "checkpoint" => self.checkpoint_bytes = size(MIN_CHECKPOINT_BYTES)?,
            "policy" => {
                let kind = value.parse::<Kind>();
                self.policy = Some(kind.map_err(|error| in_option(error.to_string()))?);
            }
            "reserve" => {
                let percent = value.strip_suffix('%').unwrap_or(value).parse().ok();
                let percent = percent.filter(|percent| (1..=MAX_RESERVE_PERCENT).contains(percent));
                self.reserve_percent = Some(percent.ok_or_else(|| {
                    in_option(format!("{value} is not from 1 to {MAX_RESERVE_PERCENT} percent"))
                })?);
            }
            "discard" => {
                self.discards = match value {
                    "batched" => Discards::InTime,
                    "online" => Discards::AtOnce,
                    _ => return Err(in_option(format!("{value} is none of batched and online"))),
                };
            }
            "coalesce" => self.coalesce = Some(text::parse_switch(value).map_err(in_option)?),
            "compress" => self.compression = Some(kind()?),
            "compress-cold" => self.cold_compression = Some(kind()?),
            "threads" => {
                let threads =
                    value.parse().ok().filter(|threads| (1..=MAX_THREADS).contains(threads));
                self.threads = Some(threads.ok_or_else(|| {
                    in_option(format!("{value} is not a number from 1 to {MAX_THREADS}"))
                })?);
            }
            "transport" => {
                self.transport = match value {
                    "auto" => Choice::Auto,
                    "uring" => Choice::Uring,
                    "dev" => Choice::Device,
                    _ => return Err(in_option(format!("{value} is none of auto, uring and dev"))),
                };
            }
            "order" => {
                self.order = match value {
                    "strict" => Order::Strict,
                    "close" => Order::Close,
                    _ => return Err(in_option(format!("{value} is none of strict and close"))),
                };
            }
            "clone" => self.version.branch = Some(value.to_owned()),
            "snapshot" => {
                self.version.moment = Some(Moment { text: value.to_owned(), unix_ns: None });
            }
            "at" => {
                let now = local_time::now().map_err(|failure| in_option(failure.message))?;
                self.version.moment = Some(name::parse_moment(value, &now).map_err(in_option)?);
            }
            "recover" => {
                self.on_loss = match value {
                    "stop" => OnLoss::Stop,
                    "truncate" => OnLoss::Truncate,
                    "skip" => OnLoss::Skip,
                    _ => {
                        return Err(in_option(format!(
                            "{value} is none of stop, truncate and skip"
                        )));
                    }
                };
            }
            "retain" if value == "none" => self.retain = None,
            "retain" => self.retain = Some(value.parse().map_err(in_option)?),
            "metrics" => self.metrics = Some(parse_port(value).map_err(in_option)?),
            "device" => {
                let path = std::path::absolute(value);
                self.devices.push(path.map_err(|error| in_option(error.to_string()))?);
            }
            "users" => self.delegates.set_users(value).map_err(in_option)?,
            "group" => self.delegates.set_groups(value).map_err(in_option)?,
            "fsname" => self.fs_name = Some(value.to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Parses an address with a port; a port alone is reachable from this machine only.
fn parse_port(text: &str) -> Result<SocketAddr, String> {
    let address = match text.parse::<u16>() {
        Ok(port) => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        Err(_) => text.parse::<SocketAddr>().ok(),
    };
    address.filter(|address| address.port() > 0).ok_or_else(|| {
        format!(
            "{text} is no port, nor an address with one; write for instance 9350, 0.0.0.0:9350 or \
             [::1]:9350"
        )
    })
}

fn is_foreign(option: &str) -> bool {
    FOREIGN.contains(&option) || FOREIGN_PREFIXES.iter().any(|prefix| option.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_later_ones_win() {
        let lists = [
            "ro,noatime,commit=30,policy=greedy",
            "rw,cache=64M,x-systemd.automount,nofail,,direct,transport=uring,transport=dev",
        ];
        let options = MountOptions::parse(lists).unwrap();
        assert!(!options.read_only);
        assert_eq!(options.atime, AtimePolicy::Noatime);
        assert_eq!(options.commit_interval, Duration::from_secs(30));
        assert_eq!(options.cache_bytes, Some(64 << 20));
        assert_eq!(options.direct, Direct::Always);
        assert_eq!(options.transport, Choice::Device);
        assert!(!options.enable_uring);
        assert_eq!(options.policy, Some(Kind::Greedy));
        let common = "defaults,nodiratime,lazytime,iversion,mand,x-systemd.automount,user,users,nofail,\
                      _netdev,comment=a table,symfollow,norelatime";
        assert_eq!(MountOptions::parse([common]), Ok(MountOptions::default()));
        assert!(!MountOptions::parse(["nosymfollow"]).unwrap().symfollow);
    }

    #[test]
    fn the_word_users_of_fstab_names_nobody_and_a_list_does() {
        let fstab = MountOptions::parse(["users,group,user"]).unwrap();
        assert!(fstab.delegates.is_empty());
        let named = MountOptions::parse(["users=root:4711,group=4712,owner"]).unwrap();
        assert_eq!(named.delegates.options(), ["users=root:4711", "group=4712", "owner"]);
        let last = MountOptions::parse(["users=4711,users=4712,owner,noowner"]).unwrap();
        assert_eq!(last.delegates.options(), ["users=4712"]);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (list, named) in [
            ("rw,bogus,worse=1", "\"bogus\", \"worse=1\""),
            ("commit=0", "commit=: 0 is not"),
            ("commit=soon", "\"soon\""),
            ("cache=5", "1 MiB at least"),
            ("threads=0", "threads="),
            ("lazy", "\"lazy\""),
            ("reserve=0", "reserve=: 0 is not"),
            ("reserve=51%", "reserve=: 51% is not"),
            ("coalesce=perhaps", "coalesce=: \"perhaps\" is neither"),
            ("policy=best", "policy=: there is no cleaning policy \"best\""),
            ("compress=gzip", "compress=: \"gzip\" is no compression"),
            ("compress-cold=zstd:16", "compress-cold=: \"16\" is no level"),
            ("recover=all", "recover=: all is none of"),
            ("order=any", "order=: any is none of"),
            ("transport=pigeon", "transport=: pigeon is none of"),
            ("metrics=here", "metrics=: here is no port"),
            ("metrics=0", "metrics=: 0 is no port"),
            ("metrics=70000", "metrics=: 70000 is no port"),
            ("users=root:no-such-user", "users=: there is no user no-such-user"),
            ("group=no-such-group", "group=: there is no group no-such-group"),
        ] {
            let error = MountOptions::parse([list]).unwrap_err();
            assert!(error.contains(named), "{list}: {error}");
        }
        assert!(MountOptions::parse(["bogus,sloppy"]).is_ok());
    }

    #[test]
    fn what_holds_for_the_whole_volume_is_told_apart() {
        let of = |list| MountOptions::parse([list]).unwrap().of_volume();
        assert_eq!(of("ro,noatime,clone=b,threads=3,retain=1d:all"), [""; 0]);
        assert_eq!(of("cache=9M,commit=5,direct"), ["cache=", "direct, direct=writes, buffered"]);
        assert_eq!(of("coalesce=off"), ["coalesce="]);
        assert_eq!(of("recover=truncate"), ["recover="]);
    }

    #[test]
    fn a_port_alone_is_reached_from_here_alone() {
        let of = |list| MountOptions::parse([list]).unwrap().metrics.unwrap().to_string();
        assert_eq!(of("metrics=9350"), "127.0.0.1:9350");
        assert_eq!(of("metrics=0.0.0.0:9350"), "0.0.0.0:9350");
        assert_eq!(of("metrics=[::1]:9350"), "[::1]:9350");
    }

    #[test]
    fn a_rule_of_retention_has_commas_of_its_own() {
        let options = MountOptions::parse(["noatime,retain=10m:all,1d:1m,30d:1h,ro"]).unwrap();
        assert_eq!(options.retain, Some("10m:all,1d:1m,30d:1h".parse().unwrap()));
        assert!(options.read_only);
        assert!(MountOptions::parse(["retain=10m:all,1m:all"]).is_err(), "it goes backwards");
        assert!(MountOptions::parse(["1d:1m"]).is_err());
    }

    #[test]
    fn the_past_is_mounted_read_only_and_a_clone_is_not() {
        let clone = MountOptions::parse(["clone=b"]).unwrap();
        assert_eq!(clone.version.branch.as_deref(), Some("b"));
        assert!(!clone.read_only);
        let past = MountOptions::parse(["snapshot=one,rw"]).unwrap();
        assert!(past.read_only && !past.read_only_device);
        assert!(MountOptions::parse(["snapshot=one,ro"]).unwrap().read_only_device);
        let past = MountOptions::parse(["at=2026-11-21T10:00Z,clone=b"]).unwrap();
        assert!(past.read_only);
        assert_eq!(past.version.moment.unwrap().unix_ns, Some(1_795_255_200_000_000_000));
        assert!(MountOptions::parse(["at=a/b"]).is_err());
    }
}
