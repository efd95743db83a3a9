//! Salvage: what can be applied of the log behind a place where it is damaged ([`OnLoss::Skip`]).
//!
//! A record states what is to be put where, so most records can be applied to an older state than
//! the one that they were written for. The result is a state that never existed. It is for reading
//! only, to copy what was written after the damage.
//!
//! A record is applied if what it changes exists; a list that was created in the lost part does
//! not. Pages are not moved or exchanged, because it is unknown which pages these were; nor is
//! that finished which was unfinished before the lost part, because the lost part may have done so
//! and others may have written since. If the lost part made or deleted a version, all that follows
//! belongs to other epochs, and nothing more is applied.
//!
//! [`OnLoss::Skip`]: crate::OnLoss::Skip

use std::fmt;

use dendro_disk::{Error, Lid};
use dendro_format::rearrangement::REARRANGEMENT_INDEX;
use dendro_format::record::Records;
use dendro_format::versions::VERSIONS_LIST;
use dendro_format::{Layout, Record};

use super::beyond::Later;
use super::replay::{apply_record, apply_version};
use crate::fault::{Fault, Outcome};
use crate::log::partial::RecordContext;
use crate::map::Nodes;
use crate::state::State;

/// The result of a salvage.
#[derive(Debug, Default)]
pub(super) struct Salvaged {
    applied_count: u64,
    dropped_count: u64,
    /// The last unit that is complete as far as its records could be applied.
    pub(super) last_unit: Option<u64>,
    /// Why the rest was not applied.
    stopped: Option<String>,
}

impl fmt::Display for Salvaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { applied_count, dropped_count, .. } = self;
        match self.last_unit {
            Some(unit) => write!(
                f,
                "behind the damage {applied_count} records up to unit {unit} were applied and \
                 {dropped_count} could not be; what is shown is no state that ever was"
            )?,
            None => write!(f, "nothing behind the damage could be applied")?,
        }
        self.stopped.as_ref().map_or(Ok(()), |why| write!(f, "; it ends where {why}"))
    }
}

/// Applies what can be applied of `later`. It is in the order of the log, and some of it may be
/// missing.
pub(super) fn salvage<'a>(
    state: &mut State,
    later: impl Iterator<Item = &'a Later>,
    layout: Layout,
    nodes: &dyn Nodes,
) -> Salvaged {
    let mut salvaged = Salvaged::default();
    if state.versions().rearrangement().is_some() {
        salvaged.dropped_count += 1;
        if let Err(fault) = state.enter_version(REARRANGEMENT_INDEX, None, nodes) {
            salvaged.stopped = Some(fault.into_error().to_string());
            return salvaged;
        }
    }
    // The first records of a unit are applied only if the unit's end is found.
    let mut begun = (0, Vec::new());
    for Later { header, records } in later {
        let mut context = RecordContext::start(header.epoch);
        let (complete, rest) = records.split_at(header.complete_len_bytes as usize);
        let (next_seq, mut pending) = begun;
        if next_seq != header.seq {
            pending.clear();
        }
        if !complete.is_empty() {
            for (start, records) in pending.drain(..).chain([(context, complete)]) {
                context = start;
                if let Err(error) =
                    apply_records(state, records, &mut context, layout, nodes, &mut salvaged)
                {
                    salvaged.stopped = Some(error.into_error().to_string());
                    return salvaged;
                }
            }
            salvaged.last_unit = Some(header.commit_seq);
        }
        if !rest.is_empty() {
            pending.push((context, rest));
        }
        begun = (header.seq.saturating_add(1), pending);
    }
    salvaged
}

/// Applies the records of one partial segment. An error means that nothing behind can be applied
/// either.
fn apply_records(
    state: &mut State,
    records: &[u8],
    context: &mut RecordContext,
    layout: Layout,
    nodes: &dyn Nodes,
    salvaged: &mut Salvaged,
) -> Outcome<()> {
    for record in Records::new(records) {
        let record = record.map_err(|malformed| Error::Corrupted(malformed.to_string()))?;
        match record {
            // Moves are not applied, so what is left of them is not known.
            Record::PutRecord { list: VERSIONS_LIST, index: REARRANGEMENT_INDEX, .. } => {
                salvaged.dropped_count += 1;
            }
            Record::PutRecord { list: VERSIONS_LIST, .. }
            | Record::DeleteRecord { list: VERSIONS_LIST, .. } => {
                apply_version(state, &record, nodes)?;
                state.versions().check()?;
            }
            // Whether the reused segment still held something live is found when the blocks are
            // read.
            Record::Reuse { .. } => continue,
            Record::Version { .. } => apply_record(state, &record, context, layout, nodes)?,
            _ => {
                if !context.is_moved && context.epoch != state.versions().epoch() {
                    let why = format!(
                        "it continues in epoch {}, which began in the lost part",
                        context.epoch
                    );
                    return Err(Error::Corrupted(why).into());
                }
                let applied = match is_applicable(state, &record, context, nodes) {
                    Ok(true) => apply_record(state, &record, context, layout, nodes).is_ok(),
                    _ => false,
                };
                let count =
                    if applied { &mut salvaged.applied_count } else { &mut salvaged.dropped_count };
                *count += 1;
            }
        }
        state.account_for_nodes();
        if state.map().dirty_len_bytes() > layout.len_bytes() {
            let why = "its changes do not fit on the volume";
            return Err(Fault::from(Error::Corrupted(why.into())));
        }
    }
    Ok(())
}

/// Whether what a record changes exists.
fn is_applicable(
    state: &State,
    record: &Record<'_>,
    context: &RecordContext,
    nodes: &dyn Nodes,
) -> Outcome<bool> {
    let has = |list: u64| {
        let ancestry = state.versions().head_ancestry(context.branch)?;
        Ok(list < Lid::CLIENT_END.0 && state.has_list(ancestry, list, nodes)?)
    };
    match *record {
        Record::CreateList { list, .. } => has(list).map(|is_there| !is_there),
        Record::WriteRun { .. } | Record::WriteBlock { .. } if context.is_moved => Ok(true),
        Record::SetHints { list, .. }
        | Record::DeleteList { list }
        | Record::PutRecord { list, .. }
        | Record::DeleteRecord { list, .. }
        | Record::WriteRun { list, .. }
        | Record::WriteBlock { list, .. }
        | Record::ZeroPages { list, .. }
        | Record::PunchPages { list, .. } => has(list),
        _ => Ok(false),
    }
}
