//! `dendro replicate`: keeps a standby that is like a volume, some seconds behind it.
//!
//! Each round makes a snapshot of the source, sends what the standby has not, and deletes the
//! snapshots that are needed no more: the last one on both sides is the base of the next round. All
//! state is in the names of these snapshots, so the command may end at any moment: the next one
//! goes on. What was received in part when the connection broke off is sent to its end first.

mod standby;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dendro_base::{Clock, SystemClock, Timestamp};
use dendro_control::streams::SendRequest;
use dendro_control::versions::{
    Moment, SnapshotInfo, VersionList, VersionName, VersionsReply, VersionsRequest,
};
use dendro_daemon::text;
use dendro_disk::{FIRST_CLIENT, VersionTable};
use dendro_versions::Retention;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use self::standby::{Kept, Present, Standby};
use crate::args::replicate::ReplicateArgs;
use crate::commands::streams::send_to;
use crate::commands::versions::versions;
use crate::failure::{Failure, usage};
use crate::output::{self, json};
use crate::target::{self, Keeper, Place, unexpected};

/// How long is waited after the first failure. Each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// How often is looked whether it is to end.
const STEP: Duration = Duration::from_millis(100);

/// The outcome of a round, as JSON.
#[derive(Debug, Serialize)]
struct Line<'a> {
    standby: &'a str,
    time_unix_ns: i64,
    /// `sent`, `unchanged` or `failed`.
    state: &'static str,
    /// The last snapshot that the standby has.
    last_snapshot: Option<String>,
    /// What was sent in this round.
    stream_bytes: u64,
    took_ns: u64,
    /// How far the standby is behind the source; `None`: it has nothing of it.
    lag_ns: Option<u64>,
    problem: Option<String>,
    /// How long is waited before the next try.
    retry_after_ns: Option<u64>,
}

/// What a round has done.
struct Done {
    state: &'static str,
    stream_bytes: u64,
}

pub(crate) fn run(args: &ReplicateArgs, quiet: bool) -> Result<(), Failure> {
    let standby = Standby::find(args)?;
    let stop = stop_on_signals()?;
    let mut replicator =
        Replicator { args, standby, stop, quiet, present: None, in_step: None, last: None };
    let mut pause = FIRST_PAUSE;
    loop {
        let begun = SystemClock.now();
        let done = replicator.round(begun);
        if replicator.is_to_end() {
            return replicator.end();
        }
        let wait = match &done {
            Ok(_) => {
                pause = FIRST_PAUSE;
                args.every.saturating_sub(SystemClock.now().since(begun))
            }
            Err(failure) if args.once => return Err(failure.clone()),
            Err(_) => {
                let present = pause;
                pause = (pause * 2).min(LONGEST_PAUSE);
                present
            }
        };
        replicator.report(&done, begun, wait)?;
        if args.once || replicator.sleep(wait) {
            return replicator.end();
        }
    }
}

/// A flag that SIGINT and SIGTERM set. The second of them ends the process at once.
fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

struct Replicator<'a> {
    args: &'a ReplicateArgs,
    standby: Standby,
    stop: Arc<AtomicBool>,
    quiet: bool,
    /// What the standby has; `None`: that is not known.
    present: Option<Present>,
    /// The moment of the source that the standby is like.
    in_step: Option<Timestamp>,
    /// The last snapshot that both have.
    last: Option<String>,
}

impl Replicator<'_> {
    fn is_to_end(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits. Returns whether it is to end.
    fn sleep(&self, wait: Duration) -> bool {
        let begun = SystemClock.now();
        while !self.is_to_end() {
            let left = wait.saturating_sub(SystemClock.now().since(begun));
            if left.is_zero() {
                return false;
            }
            thread::sleep(left.min(STEP));
        }
        true
    }

    fn end(&self) -> Result<(), Failure> {
        if !self.quiet && !self.args.once {
            let last = self.last.as_ref().map_or("nothing".into(), |name| format!("@{name}"));
            output::message(format_args!("{}: ended; it has {last}", self.standby.named()));
        }
        Ok(())
    }

    fn report(
        &self,
        done: &Result<Done, Failure>,
        begun: Timestamp,
        wait: Duration,
    ) -> Result<(), Failure> {
        let now = SystemClock.now();
        let lag = self.in_step.map(|moment| now.since(moment));
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let took_ns = ns(now.since(begun));
        let (state, stream_bytes, problem) = match done {
            Ok(done) => (done.state, done.stream_bytes, None),
            Err(failure) => ("failed", 0, Some(failure.message.clone())),
        };
        if self.args.json {
            let line = Line {
                standby: self.standby.named(),
                time_unix_ns: now.0,
                state,
                last_snapshot: self.last.clone(),
                stream_bytes,
                took_ns,
                lag_ns: lag.map(ns),
                retry_after_ns: problem.as_ref().map(|_| ns(wait)),
                problem,
            };
            return output::print(&json::line(&line)?);
        }
        let behind = lag.map_or_else(String::new, |lag| {
            format!("; the standby is {} behind", text::duration(ns(lag)))
        });
        match problem {
            Some(why) => output::message(format_args!(
                "{why}; the next try comes in {}{behind}",
                text::duration(ns(wait))
            )),
            None if state == "sent" && !self.quiet => output::message(format_args!(
                "@{}: {} in {}{behind}",
                self.last.as_deref().unwrap_or_default(),
                text::size(stream_bytes),
                text::duration(took_ns)
            )),
            None => {}
        }
        Ok(())
    }

    /// Brings the standby to the present state of the source.
    fn round(&mut self, begun: Timestamp) -> Result<Done, Failure> {
        let Place { keeper, version, .. } = target::find_version(&self.args.source)?;
        if version.moment.is_some() {
            let source = &self.args.source;
            return Err(usage(format_args!("{source}: name a volume or a branch, no moment")));
        }
        let head = VersionName { branch: version.branch, moment: None };
        // Unless this round comes to its end, the next one looks again.
        let mut present = match self.present.take() {
            Some(present) => present,
            None => self.standby.look()?,
        };
        let source = Source::look(&keeper, head, &present)?;
        let mut stream_bytes = 0;
        if let Some(token) = present.part.take() {
            stream_bytes += self.finish(&keeper, &source, &token)?;
            present = self.standby.look()?;
        }
        let last = source.newest_common(&present);
        self.last = last.as_ref().map(|last| last.name.clone());
        self.in_step = last.as_ref().map(|last| Timestamp(last.created_unix_ns));
        if let Some(last) = &last
            && source.is_like(&keeper, &last.name)?
        {
            self.in_step = Some(begun);
            let state = if stream_bytes > 0 { "sent" } else { "unchanged" };
            self.prune(&keeper, &source, &mut present, &last.name, begun);
            self.present = Some(present);
            return Ok(Done { state, stream_bytes });
        }
        let made = source.snapshot(&keeper, begun)?;
        let name = made.name.clone().unwrap_or_default();
        let request = SendRequest {
            of: named(&name),
            from: last.map(|last| named(&last.name)),
            level: self.args.compress,
            ..SendRequest::default()
        };
        stream_bytes += self.send(&keeper, request)?;
        self.last = Some(name.clone());
        self.in_step = Some(Timestamp(made.created_unix_ns));
        let (created_unix_ns, held) = (made.created_unix_ns, false);
        present.snapshots.push(Kept { name: name.clone(), created_unix_ns, held });
        self.prune(&keeper, &source, &mut present, &name, begun);
        self.present = Some(present);
        Ok(Done { state: "sent", stream_bytes })
    }

    fn send(&self, keeper: &Keeper, request: SendRequest) -> Result<u64, Failure> {
        let stop = &self.stop;
        self.standby.receive(|pipe| {
            let mut pipe = Stoppable { pipe, stop };
            // A progress line would not tell more than the line after each round does.
            Ok(send_to(keeper, request, &mut pipe, true)?.sequence_bytes)
        })
    }

    /// Sends the rest of what has broken off, or has it given up.
    fn finish(
        &self,
        keeper: &Keeper,
        source: &Source,
        token: &dendro_stream::Token,
    ) -> Result<u64, Failure> {
        let is_there = |epoch| source.list.snapshots.iter().any(|of| of.epoch == epoch);
        let is_own = token.version.volume.to_string() == source.uuid;
        if !is_own || !is_there(token.version.epoch) {
            self.standby.abort()?;
            return Ok(0);
        }
        let (level, resume) = (self.args.compress, Some(token.to_string()));
        self.send(keeper, SendRequest { level, resume, ..SendRequest::default() })
    }

    /// Deletes what is needed no more. What cannot be deleted stays until the next round.
    fn prune(
        &self,
        keeper: &Keeper,
        source: &Source,
        present: &mut Present,
        last: &str,
        now: Timestamp,
    ) {
        let there = source.to_delete(last);
        let of_standby =
            to_delete(&present.snapshots, &source.prefix, last, self.args.keep.as_ref(), now);
        if let Err(failure) = source.delete(keeper, &there) {
            output::message(failure.message);
        }
        match self.standby.delete(&of_standby) {
            Ok(()) => present.snapshots.retain(|of| !of_standby.contains(&of.name)),
            Err(failure) => output::message(failure.message),
        }
    }
}

/// A pipe that takes nothing more once it is to end.
struct Stoppable<'a, W> {
    pipe: &'a mut W,
    stop: &'a AtomicBool,
}

impl<W: std::io::Write> std::io::Write for Stoppable<'_, W> {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(std::io::Error::other("it was interrupted")),
            false => self.pipe.write(buf),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.pipe.flush()
    }
}

/// The snapshot of this name.
fn named(name: &str) -> VersionName {
    let moment = Some(Moment { text: name.to_owned(), unix_ns: None });
    VersionName { branch: None, moment }
}

/// The source, as it was at the beginning of a round.
struct Source {
    uuid: String,
    list: VersionList,
    /// The branch that is replicated.
    head: VersionName,
    /// What the names of its snapshots for this standby begin with.
    prefix: String,
}

impl Source {
    fn look(keeper: &Keeper, head: VersionName, present: &Present) -> Result<Self, Failure> {
        let uuid = keeper.uuid()?;
        if uuid == present.uuid {
            return Err(usage("the standby is the volume itself"));
        }
        let list = versions(keeper)?;
        let branch = list.branches.iter().find(|branch| match &head.branch {
            Some(name) => branch.name == *name,
            None => branch.main,
        });
        let branch = branch.ok_or_else(|| {
            let name = head.branch.clone().unwrap_or_default();
            Failure::new(format_args!("there is no branch called {name}"))
        })?;
        // A standby can have several branches, and a branch several standbys.
        let of_standby = present.uuid.get(..8).unwrap_or_default();
        let prefix = format!("replica-{of_standby}-{}-", branch.branch);
        let head = VersionName { branch: Some(branch.name.clone()), moment: None };
        Ok(Self { uuid, list, head, prefix })
    }

    /// The snapshots that were made for this standby, the oldest first.
    fn own(&self) -> impl DoubleEndedIterator<Item = (&str, &SnapshotInfo)> {
        self.list.snapshots.iter().filter_map(|of| {
            let name = of.name.as_deref().filter(|name| name.starts_with(&self.prefix))?;
            Some((name, of))
        })
    }

    /// The newest snapshot that both have.
    fn newest_common(&self, present: &Present) -> Option<Kept> {
        let common = self.own().filter_map(|(name, of)| {
            let kept = present.snapshots.iter().find(|kept| kept.name == name)?;
            Some((of.epoch, kept))
        });
        common.max_by_key(|(epoch, _)| *epoch).map(|(_, kept)| kept.clone())
    }

    /// Whether the branch is as it was in this snapshot.
    fn is_like(&self, keeper: &Keeper, name: &str) -> Result<bool, Failure> {
        let (old, new) = (named(name), self.head.clone());
        match keeper.ask(VersionsRequest::Diff { old, new, skip: 0 })? {
            VersionsReply::Diff(diff) => Ok(diff.changes.is_empty()),
            other => Err(unexpected(&other)),
        }
    }

    fn snapshot(&self, keeper: &Keeper, now: Timestamp) -> Result<SnapshotInfo, Failure> {
        let time = jiff::Timestamp::from_nanosecond(i128::from(now.0))?;
        let name = format!("{}{}", self.prefix, time.strftime("%Y-%m-%dT%H.%M.%S%.3fZ"));
        let of = self.head.clone();
        match keeper.ask(VersionsRequest::Snapshot { of, name: Some(name) })? {
            VersionsReply::Snapshot(made) => Ok(made),
            other => Err(unexpected(&other)),
        }
    }

    /// The snapshots for this standby that are needed no more once both have `last`.
    fn to_delete(&self, last: &str) -> Vec<String> {
        let others = self.own().filter(|(name, of)| *name != last && !of.held);
        others.map(|(name, _)| name.to_owned()).collect()
    }

    fn delete(&self, keeper: &Keeper, names: &[String]) -> Result<(), Failure> {
        if names.is_empty() {
            return Ok(());
        }
        let versions = names.iter().map(|name| named(name)).collect();
        keeper.ask(VersionsRequest::Delete { versions, dry_run: false }).map(drop)
    }
}

/// The snapshots of the standby, with names that begin with `prefix`, that `keep` does not keep;
/// without a rule all but `last`.
fn to_delete(
    snapshots: &[Kept],
    prefix: &str,
    last: &str,
    keep: Option<&Retention>,
    now: Timestamp,
) -> Vec<String> {
    let mut own: Vec<&Kept> =
        snapshots.iter().filter(|of| of.name.starts_with(prefix) && !of.held).collect();
    own.sort_by_key(|of| of.created_unix_ns);
    // The rule is one for snapshots of a table, in which these get epochs from 1 on.
    let mut table = VersionTable::new(Timestamp(0));
    for of in &own {
        let time = Timestamp(of.created_unix_ns);
        table.snapshot(table.main, None, time).expect("a table without names takes any snapshot");
    }
    let all = || table.snapshots().map(dendro_disk::Snapshot::view).collect();
    let doomed = keep.map_or_else(all, |rule| rule.to_delete(&table, FIRST_CLIENT, now));
    let number = |view: dendro_disk::View| view.epoch.map_or(0, |epoch| epoch - 1) as usize;
    let names = doomed.into_iter().filter_map(|view| own.get(number(view)).map(|of| &of.name));
    names.filter(|name| *name != last).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standby_keeps_what_the_rule_keeps_and_the_last_one() {
        let kept = |name: &str, second: i64, held| Kept {
            name: name.into(),
            created_unix_ns: second * 1_000_000_000,
            held,
        };
        let snapshots = [
            kept("replica-c", 200, false),
            kept("replica-a", 0, false),
            kept("replica-b", 100, false),
            kept("replica-held", 50, true),
            kept("monday", 60, false),
        ];
        let doomed = |last: &str, rule: Option<&str>, now: i64| {
            let rule = rule.map(|rule| rule.parse::<Retention>().unwrap());
            to_delete(&snapshots, "replica-", last, rule.as_ref(), Timestamp(now * 1_000_000_000))
        };
        assert_eq!(doomed("replica-c", None, 200), ["replica-a", "replica-b"]);
        assert_eq!(doomed("replica-c", Some("150s:all"), 200), ["replica-a"]);
        assert_eq!(doomed("replica-c", Some("1h:all"), 200), [""; 0]);
        assert_eq!(doomed("replica-a", Some("1s:all"), 1000), ["replica-b", "replica-c"]);
    }
}
