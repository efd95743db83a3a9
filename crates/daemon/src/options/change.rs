//! Options of an existing mount: how they are shown, and which can be changed.

use std::collections::BTreeSet;

use dendro_device::Direct;
use dendro_format::Compression;
use dendro_fs::AtimePolicy;
use dendro_fuse::{Access, Choice, Order};
use dendro_logdisk::{Discards, OnLoss};

use super::{MountOptions, is_foreign, pieces};
use crate::text;

/// Options that the kernel gets by `mount -o remount`. It ignores `dirsync` then.
const OF_THE_KERNEL: [&str; 15] = [
    "ro",
    "rw",
    "dev",
    "nodev",
    "suid",
    "nosuid",
    "exec",
    "noexec",
    "symfollow",
    "nosymfollow",
    "sync",
    "async",
    "nosync",
    "remount",
    "sloppy",
];

/// Options that can be changed while the volume is mounted.
pub const CHANGEABLE: [&str; 11] = [
    "commit",
    "policy",
    "coalesce",
    "retain",
    "users",
    "group",
    "owner",
    "noowner",
    "relatime",
    "noatime",
    "strictatime",
];

/// Options that mount(8) adds to a remount, because they are in the table of mounts.
const IN_TABLE_ONLY: [&str; 3] = ["fuseblk", "nofuseblk", "loop"];

impl MountOptions {
    /// These options after a change by `lists`. With `is_remount`, options of the kernel are left
    /// to the caller.
    ///
    /// # Errors
    /// An option makes no sense, or cannot be changed.
    pub fn changed<'a>(
        &self,
        lists: impl IntoIterator<Item = &'a str>,
        is_remount: bool,
    ) -> Result<Self, String> {
        let mut changed = self.clone();
        let (mut fixed, mut of_kernel, mut unknown) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for option in pieces(lists).into_iter().filter(|option| !option.is_empty()) {
            let name = option.split_once('=').map_or(&*option, |(name, _)| name);
            if OF_THE_KERNEL.contains(&name) {
                if !is_remount {
                    of_kernel.insert(option);
                }
                continue;
            }
            // The table of mounts shows it for each mount without noatime.
            let is_no_wish = IN_TABLE_ONLY.contains(&name)
                || (name == "relatime" && changed.atime == AtimePolicy::Strictatime);
            if is_remount && is_no_wish {
                continue;
            }
            let mut trial = changed.clone();
            if !trial.set(&option)? {
                if !is_foreign(&option) {
                    unknown.insert(option);
                }
                continue;
            }
            if trial == changed {
                continue;
            }
            match CHANGEABLE.contains(&name) {
                true => changed = trial,
                false => drop(fixed.insert(option)),
            }
        }
        let list = |options: BTreeSet<String>| options.into_iter().collect::<Vec<_>>().join(", ");
        if !unknown.is_empty() {
            return Err(format!(
                "unknown mount option {}; `dendro set --help` lists what can be changed",
                list(unknown)
            ));
        }
        if !of_kernel.is_empty() {
            let options = list(of_kernel);
            return Err(format!("{options}: `mount -o remount,{options}` changes that, as root"));
        }
        if !fixed.is_empty() {
            return Err(format!(
                "{} cannot be changed while it is mounted; unmount it, and mount it again so \
                 (commit=, retain=, policy=, coalesce=, users=, group=, owner and when access times \
                 change can be)",
                list(fixed)
            ));
        }
        Ok(changed)
    }

    /// Takes over the options that the kernel got in the last remount, if there was one.
    pub fn note_kernel_options(&mut self, options: &[String]) {
        // Only `sync` is left out of the list where it is not set.
        self.sync &= options.is_empty();
        for option in options.iter().filter(|option| OF_THE_KERNEL.contains(&&***option)) {
            // These are flags without values, which are always valid.
            let _ = self.set(option);
        }
    }

    /// The options that the kernel gets by `mount -o remount`.
    pub fn of_kernel(&self) -> Vec<String> {
        let flags = [
            (self.read_only, "ro", "rw"),
            (self.dev, "dev", "nodev"),
            (self.suid, "suid", "nosuid"),
            (self.exec, "exec", "noexec"),
            (self.symfollow, "symfollow", "nosymfollow"),
        ];
        let flags = flags.into_iter().map(|(is_set, set, other)| if is_set { set } else { other });
        flags.chain(self.sync.then_some("sync")).map(str::to_owned).collect()
    }

    /// All options, in a form that makes the same mount again.
    pub fn in_force(&self) -> Vec<String> {
        let choose = |is_first: bool, first: &str, other: &str| {
            if is_first { first.to_owned() } else { other.to_owned() }
        };
        let mut all = vec![
            choose(self.read_only, "ro", "rw"),
            match self.access.unwrap_or_default() {
                Access::All => "allow_other".into(),
                Access::OwnerAndRoot => "allow_root".into(),
                Access::Owner => "noallow_other".into(),
            },
            match self.atime {
                AtimePolicy::Relatime => "relatime".into(),
                AtimePolicy::Noatime => "noatime".into(),
                AtimePolicy::Strictatime => "strictatime".into(),
            },
            choose(self.dev, "dev", "nodev"),
            choose(self.suid, "suid", "nosuid"),
            choose(self.exec, "exec", "noexec"),
            choose(self.snapdir, "snapdir", "nosnapdir"),
            match self.discards {
                Discards::InTime => "discard".into(),
                Discards::AtOnce => "discard=online".into(),
                Discards::Never => "nodiscard".into(),
            },
            format!("commit={}", self.commit_interval.as_secs()),
        ];
        let flags = [
            (!self.symfollow, "nosymfollow"),
            (!self.xattr, "noxattr"),
            (self.sync, "sync"),
            (self.dirsync, "dirsync"),
            (self.check, "check"),
        ];
        let is_set = |flag: &(bool, &str)| flag.0;
        all.extend(flags.into_iter().filter(is_set).map(|(_, name)| name.to_owned()));
        match self.on_loss {
            OnLoss::Stop => {}
            OnLoss::Truncate => all.push("recover=truncate".into()),
            OnLoss::Skip => all.push("recover=skip".into()),
        }
        match self.order {
            Order::Strict => {}
            Order::Close => all.push("order=close".into()),
        }
        match self.direct {
            Direct::Auto => {}
            Direct::Always => all.push("direct".into()),
            Direct::Writes => all.push("direct=writes".into()),
            Direct::Never => all.push("buffered".into()),
        }
        match self.transport {
            Choice::Auto => {}
            Choice::Uring => all.push("transport=uring".into()),
            Choice::Device => all.push("transport=dev".into()),
        }
        let kind = |of: Option<Compression>| of.map_or("none".into(), |of| of.to_string());
        let values = [
            ("cache", self.cache_bytes.map(exact_size)),
            ("checkpoint", self.checkpoint_bytes.map(exact_size)),
            ("policy", self.policy.map(|kind| kind.name().to_owned())),
            ("reserve", self.reserve_percent.map(|percent| percent.to_string())),
            ("coalesce", self.coalesce.map(|is_on| choose(is_on, "on", "off"))),
            ("compress", self.compression.map(kind)),
            ("compress-cold", self.cold_compression.map(kind)),
            ("threads", self.threads.map(|threads| threads.to_string())),
            ("retain", self.retain.as_ref().map(ToString::to_string)),
            ("metrics", self.metrics.map(|address| address.to_string())),
        ];
        let value = |(name, value): (&str, Option<String>)| Some(format!("{name}={}", value?));
        all.extend(values.into_iter().filter_map(value));
        all.extend(self.delegates.options());
        all
    }
}

/// A size as an option's value, in the largest unit of which it is a whole number.
fn exact_size(bytes: u64) -> String {
    let units = [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    let text = match units.into_iter().find(|&(unit, _)| bytes > 0 && bytes.is_multiple_of(unit)) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    };
    debug_assert_eq!(text::parse_size(&text), Ok(bytes));
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn options(list: &str) -> MountOptions {
        MountOptions::parse([list]).unwrap()
    }

    #[test]
    fn what_can_be_changed_is_and_what_cannot_is_named() {
        let now = options("cache=64M,strictatime,retain=1d:all,allow_other");
        let changed =
            now.changed(["commit=1,retain=10m:all,1d:1m", "coalesce=off"], false).unwrap();
        assert_eq!(changed.commit_interval, Duration::from_secs(1));
        assert_eq!(changed.retain, options("retain=10m:all,1d:1m").retain);
        assert_eq!((changed.coalesce, changed.cache_bytes), (Some(false), now.cache_bytes));
        assert_eq!(now.changed(["retain=none"], false).unwrap().retain, None);
        // What is so already, and what says nothing, is no change.
        let same = "cache=64M,defaults,x-test,allow_other,nofail,user_id=0";
        assert_eq!(now.changed([same], false), Ok(now.clone()));
        for (list, named) in [
            ("cache=1G,commit=1,noallow_other", "cache=1G, noallow_other cannot be changed"),
            ("clone=b", "clone=b cannot be changed"),
            ("dirsync", "dirsync cannot be changed"),
            ("sync", "`mount -o remount,sync`"),
            ("ro,noexec", "`mount -o remount,noexec, ro`"),
            ("bogus", "unknown mount option bogus"),
            ("commit=0", "commit=: 0 is not"),
        ] {
            let why = now.changed([list], false).unwrap_err();
            assert!(why.contains(named), "{list}: {why}");
        }
        // A remount names what the table of mounts has.
        let table =
            "rw,nosuid,relatime,user_id=0,group_id=0,default_permissions,allow_other,remount";
        assert_eq!(now.changed([table], true), Ok(now.clone()));
        assert!(now.changed(["remount,cache=1G"], true).unwrap_err().contains("cache=1G"));
        assert!(now.changed(["remount,dirsync"], true).unwrap_err().contains("dirsync cannot"));
        let with_dirsync = options("dirsync");
        assert_eq!(with_dirsync.changed(["remount,dirsync,sync"], true), Ok(with_dirsync));
        assert_eq!(now.changed(["noatime"], true).unwrap().atime, AtimePolicy::Noatime);
    }

    #[test]
    fn sizes_in_force_are_told_in_whole_units() {
        for (bytes, told) in [(1 << 30, "1G"), (1004 << 20, "1004M"), (5 << 10, "5K"), (7, "7")] {
            assert_eq!(exact_size(bytes), told);
        }
        let default = crate::volume::memory::default_cache_bytes();
        assert!(exact_size(default).ends_with(['M', 'G']), "{default}");
    }

    #[test]
    fn what_is_in_force_can_be_read_back() {
        for list in [
            "defaults",
            "ro,noatime,nosymfollow,commit=2,cache=1234567,checkpoint=4M,policy=greedy",
            "recover=truncate,metrics=9350,compress=none",
            "compress=zstd:7,compress-cold=zstd:12,direct=writes",
            "users=root:4711,group=4712,owner",
            "allow_root,strictatime,discard=online,reserve=7,coalesce=on,buffered,transport=dev,threads=3,dirsync",
            "retain=10m:all,1d:1m,nosnapdir,nodiscard,nodev,nosuid,noexec,sync,direct",
        ] {
            let given = options(list);
            let options = given.in_force();
            let read = MountOptions::parse(options.iter().map(String::as_str)).unwrap();
            let expected = MountOptions { access: Some(given.access.unwrap_or_default()), ..given };
            assert_eq!(read, expected, "{options:?}");
        }
    }
}
