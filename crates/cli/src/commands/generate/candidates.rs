//! Candidates for the word that a user types: mount options, and versions of a volume.

use dendro_control::versions::{VersionList, VersionsReply, VersionsRequest};
use dendro_daemon::options;

use crate::args::Candidates;
use crate::failure::Failure;
use crate::output;
use crate::target::{self, tag};

/// The name of a branch's head, as in `@head`.
const HEAD: &str = "head";

/// Prints the candidates for the first of `words`, one in each line. It prints nothing if there are
/// none. The other words are the command line that contains the first.
pub(crate) fn print(what: Candidates, words: &[String]) -> Result<(), Failure> {
    let Some((word, line)) = words.split_first() else { return Ok(()) };
    let all = match what {
        Candidates::Options => version_options(word, line).unwrap_or_else(|| options(word)),
        Candidates::Settings => settings(word),
        Candidates::Versions => version_names(word),
    };
    output::print(&all.iter().map(|one| format!("{one}\n")).collect::<String>())
}

/// Completes the version in the last option of `word`. Returns `None` if that option names no
/// version. The versions are those of the first operand in `line` that is a mounted volume.
fn version_options(word: &str, line: &[String]) -> Option<Vec<String>> {
    let begun = word.rsplit(',').next().unwrap_or(word);
    let (of_snapshots, begun) = match begun.split_once('=')? {
        ("snapshot", begun) => (true, begun),
        ("clone", begun) => (false, begun),
        _ => return None,
    };
    let before = &word[..word.len() - begun.len()];
    let list = operands(line).find_map(|operand| {
        let source = tag::resolve(operand.as_ref()).ok()?;
        match target::ask(&source, VersionsRequest::List) {
            Ok(VersionsReply::List(list)) => Some(list),
            _ => None,
        }
    });
    let list = list.unwrap_or_default();
    let names = matching(&list, of_snapshots, begun);
    // The head is not a snapshot.
    let names = names.filter(|name| !of_snapshots || *name != HEAD);
    Some(names.map(|name| format!("{before}{name}")).collect())
}

/// The words of `line` that may name a volume. `line` begins with the command.
fn operands(line: &[String]) -> impl Iterator<Item = &String> {
    let is_verb_next = line.first().is_some_and(|of| of.rsplit('/').next() == Some("dendro"));
    let of_command = if is_verb_next { 2 } else { 1 };
    line.iter().skip(of_command).filter(|word| !word.is_empty() && !word.starts_with('-'))
}

/// Completes the last option in `word`.
fn options(word: &str) -> Vec<String> {
    let (before, begun) = match word.rfind(',') {
        Some(comma) => word.split_at(comma + 1),
        None => ("", word),
    };
    let known = options::KNOWN.split(',').map(str::trim);
    let values = |name: &str| -> &'static [&'static str] {
        match name {
            "transport=" => &["auto", "uring", "dev"],
            "coalesce=" => &["on", "off"],
            "discard=" => &["batched", "online"],
            "policy=" => &[
                "ladder",
                "greedy",
                "cost-benefit",
                "age-threshold",
                "cost-age-times",
                "d-choices",
            ],
            _ => &[],
        }
    };
    let with_values = known.flat_map(|name| match values(name) {
        [] => vec![name.to_owned()],
        values => values.iter().map(|value| format!("{name}{value}")).collect(),
    });
    with_values
        .filter(|option| option.starts_with(begun))
        .map(|option| format!("{before}{option}"))
        .collect()
}

/// The options that begin with `word` and can be changed while the volume is mounted.
fn settings(word: &str) -> Vec<String> {
    let is_one = |option: &String| {
        let name = option.split_once('=').map_or(&**option, |(name, _)| name);
        options::CHANGEABLE.contains(&name)
    };
    options("").into_iter().filter(is_one).filter(|option| option.starts_with(word)).collect()
}

/// Completes `word`, which consists of a target and the beginning of a version's name.
fn version_names(word: &str) -> Vec<String> {
    let Some(sign) = word.rfind(['@', ':']) else {
        return Vec::new();
    };
    let (base, begun) = (&word[..sign], &word[sign + 1..]);
    let target = match base.split_once(':') {
        Some((target, _)) if std::path::Path::new(base).symlink_metadata().is_err() => target,
        _ => base,
    };
    // Without a volume, or without a daemon that answers, there are no candidates.
    let target = if target.is_empty() { "." } else { target };
    let Ok(VersionsReply::List(list)) = target::ask(target.as_ref(), VersionsRequest::List) else {
        return Vec::new();
    };
    matching(&list, word.as_bytes()[sign] == b'@', begun)
        .map(|name| format!("{}{name}", &word[..=sign]))
        .collect()
}

/// The snapshots or the branches in `list` whose names begin with `begun`.
fn matching<'a>(
    list: &'a VersionList,
    of_snapshots: bool,
    begun: &'a str,
) -> impl Iterator<Item = &'a str> {
    let snapshots = list.snapshots.iter().filter_map(|of| of.name.as_deref());
    let heads = std::iter::once(HEAD);
    let branches = list.branches.iter().map(|of| of.name.as_str());
    let all: Vec<&str> = match of_snapshots {
        true => snapshots.chain(heads).collect(),
        false => branches.collect(),
    };
    all.into_iter().filter(move |name| name.starts_with(begun))
}

#[cfg(test)]
mod tests {
    use dendro_control::versions::{BranchInfo, SnapshotInfo};

    use super::*;

    #[test]
    fn the_last_option_is_completed() {
        assert_eq!(options("com"), ["commit=", "compress=", "compress-cold="]);
        assert_eq!(options("ro,noat"), ["ro,noatime"]);
        assert_eq!(options("transport=u"), ["transport=uring"]);
        assert!(options("").contains(&"retain=".to_owned()));
        assert!(options("").contains(&"policy=greedy".to_owned()));
        assert_eq!(options("no-such"), [""; 0]);
    }

    #[test]
    fn all_that_can_be_set_is_offered() {
        assert_eq!(settings("co"), ["commit=", "coalesce=on", "coalesce=off"]);
        assert_eq!(settings("cache"), [""; 0]);
        for name in options::CHANGEABLE {
            assert!(settings("").iter().any(|option| option.starts_with(name)), "{name}");
        }
    }

    #[test]
    fn every_option_that_is_offered_is_taken() {
        for option in options("").iter().filter(|option| !option.ends_with('=')) {
            let parsed = options::MountOptions::parse([option.as_str()]);
            assert!(parsed.is_ok(), "{option}: {parsed:?}");
        }
    }

    #[test]
    fn what_may_be_a_volume_stands_behind_the_command() {
        let of = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            operands(&words).cloned().collect::<Vec<_>>()
        };
        assert_eq!(of("dendro mount -o ro home.img mnt"), ["ro", "home.img", "mnt"]);
        assert_eq!(of("/usr/sbin/mount.dendro /dev/vdb mnt"), ["/dev/vdb", "mnt"]);
        assert_eq!(of(""), [""; 0]);
        // Options that name no version are completed elsewhere. Without a volume there are no
        // candidates.
        assert_eq!(version_options("ro,commit=", &[]), None);
        assert_eq!(version_options("ro", &[]), None);
        assert_eq!(version_options("ro,clone=", &[]), Some(vec![]));
    }

    #[test]
    fn versions_are_told_by_their_sign() {
        let named =
            |name: &str| SnapshotInfo { name: Some(name.into()), ..SnapshotInfo::default() };
        let branch = BranchInfo { name: "bold".into(), ..BranchInfo::default() };
        let snapshots = vec![named("before"), named("after"), SnapshotInfo::default()];
        let list = VersionList { branches: vec![branch], snapshots, ..VersionList::default() };
        let of = |of_snapshots, begun| matching(&list, of_snapshots, begun).collect::<Vec<_>>();
        assert_eq!(of(true, "b"), ["before"]);
        assert_eq!(of(true, ""), ["before", "after", "head"]);
        assert_eq!(of(false, "b"), ["bold"]);
        assert_eq!(version_names("no-version-in-it"), [""; 0]);
    }
}
