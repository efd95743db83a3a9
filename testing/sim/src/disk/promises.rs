//! What a disk promises beside units that are committed: flushes of every kind, calls when
//! something is durable, and conditions.
//!
//! Which kind it is depends on how many units have been committed, and is not drawn, so that a seed
//! does the same work whatever kinds there are.

use dendro_base::sync::{Arc, Mutex};
use dendro_disk::model::ModelVersions;
use dendro_disk::{Aru, CommitSeq, Error, Lid, LogicalDisk, Op, Outlasts, View};

use super::engine::Engine;
use super::session::{Awaited, Session, head_state};
use crate::system::Outcome;

/// How many commits are looked at for the last change of a list.
const MAX_LOOKED_BACK: usize = 50;

impl<E: Engine> Session<'_, E> {
    pub(super) fn flush(&mut self) -> Outcome<()> {
        let kind = self.life.commits.len() % 5;
        let (seq, entry) = match self.rng.below(4) {
            0 if !self.life.commits.is_empty() => {
                let which = self.rng.below(self.life.commits.len() as u64) as usize;
                self.life.commits[which]
            }
            _ => (CommitSeq::LATEST, self.life.newest()),
        };
        let disk = &self.life.disk;
        let flushed = match kind {
            0 => disk.flush(seq).map(|()| Some(entry)),
            1 => match disk.flush_for(Outlasts::Medium, seq) {
                // It is durable where it is.
                Ok(()) | Err(Error::OneCopy) => Ok(Some(entry)),
                Err(error) => Err(error),
            },
            // The end of the process is not the end of the machine.
            2 => disk.flush_for(Outlasts::Process, seq).map(|()| {
                self.life.written = self.life.written.max(entry);
                None
            }),
            3 => self.flush_list(),
            _ => {
                self.await_durable(seq, entry);
                Ok(None)
            }
        };
        match flushed {
            Ok(Some(entry)) => self.trace.promise(entry, self.device.recorded_count()),
            Ok(None) => {}
            Err(error) => return self.notice(&format!("a flush failed: {error}")),
        }
        if kind < 2 && seq == CommitSeq::LATEST {
            self.hear();
            if !self.awaited.is_empty() {
                return Err("everything is durable, and who waits for it was not told".to_owned());
            }
        }
        Ok(())
    }

    /// Flushes one list of the main head, and returns the state that its last change made.
    fn flush_list(&self) -> dendro_disk::Result<Option<usize>> {
        let contents = &self.life.state.contents;
        let view = contents.table().main_head();
        let lists: Vec<Lid> =
            head_state(contents, view).lists(Lid(0)).map(|(lid, _)| lid).collect();
        let Some(&list) = lists.get(self.life.commits.len() % lists.len().max(1)) else {
            return Ok(None);
        };
        self.life.disk.flush_list(view, list)?;
        Ok(self.last_change(view, list))
    }

    /// The state that the last change of a list has made, if it is not long ago.
    fn last_change(&self, view: View, list: Lid) -> Option<usize> {
        let content = head_state(&self.life.state.contents, view).list(list);
        let mut changed = None;
        for &(_, entry) in self.life.commits.iter().rev().take(MAX_LOOKED_BACK) {
            let then = self.trace.state(entry).contents.state(view).ok();
            if then.and_then(|state| state.list(list)) != content {
                return changed;
            }
            changed = Some(entry);
        }
        None
    }

    /// The last commit before which a list had other contents, if that is not long ago.
    fn before_last_change(&self, view: View, list: Lid) -> Option<CommitSeq> {
        let content = head_state(&self.life.state.contents, view).list(list);
        let commits = self.life.commits.iter().rev().take(MAX_LOOKED_BACK);
        let mut states = commits.map(|&(seq, entry)| (seq, &self.trace.state(entry).contents));
        let differs = |contents: &ModelVersions| {
            contents.state(view).is_ok_and(|state| state.list(list) != content)
        };
        states.find(|(_, contents)| differs(contents)).map(|(seq, _)| seq)
    }

    /// Has it told when what is committed up to `seq`, which is the state `entry`, is durable.
    fn await_durable(&mut self, seq: CommitSeq, entry: usize) {
        let told = Arc::new(Mutex::new(None));
        let teller = Arc::clone(&told);
        let then = move |outcome: dendro_disk::Result<()>| *teller.lock() = Some(outcome.is_ok());
        self.life.disk.when_durable(seq, Box::new(then));
        self.awaited.push(Awaited { entry, told });
    }

    /// Takes what has been told to be durable for a promise.
    pub(super) fn hear(&mut self) {
        let (trace, event_count) = (&mut self.trace, self.device.recorded_count());
        self.awaited.retain(|Awaited { entry, told }| {
            let told = *told.lock();
            if told == Some(true) {
                trace.promise(*entry, event_count);
            }
            told.is_none()
        });
    }

    /// Gives some units conditions that hold. Tries others before on a condition that does not,
    /// which must change nothing.
    pub(super) fn set_conditions(&self, aru: &mut Aru<'_>, unit: &[Op<'_>]) -> Outcome<()> {
        let (view, disk) = (aru.view(), &self.life.disk);
        // The branch may have been deleted since the unit was begun.
        let Ok(state) = self.life.state.contents.state(view) else { return Ok(()) };
        let Some((list, content)) = state.lists(Lid(0)).next() else { return Ok(()) };
        match self.life.commits.len() % 4 {
            1 => drop(aru.require_unchanged(list, disk.last_commit())),
            2 => drop(aru.require_record(list, 0, content.record(0).cloned())),
            3 => {
                let mut refused = Aru::new(view);
                for op in unit {
                    refused.push(op.clone());
                }
                match self.before_last_change(view, list) {
                    Some(seq) => refused.require_unchanged(list, seq),
                    None => {
                        let value = Some(b"nobody has this"[..].into());
                        refused.require_record(list, u64::MAX, value)
                    }
                };
                if disk.try_commit(&mut refused).is_ok() {
                    return Err("a unit was committed whose condition does not hold".to_owned());
                }
                if refused.ops() != unit {
                    return Err("a unit that was refused came back changed".to_owned());
                }
            }
            _ => {}
        }
        Ok(())
    }
}
