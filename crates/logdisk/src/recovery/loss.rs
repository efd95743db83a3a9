//! Whether something that was durable is lost, and what (DESIGN §6).

use dendro_base::Timestamp;
use dendro_format::Checkpoint;

use super::beyond::LogEnd;
use super::roll_forward::Chain;
use super::start::Doubt;

/// Describes what is lost, if anything that was durable is lost or may be. An older checkpoint is a
/// loss even where the log leads from it to the same state: its map has items that were collected
/// since, and their blocks may be overwritten.
pub(super) fn find(
    checkpoint: &Checkpoint,
    chain: &Chain,
    doubt: Option<&Doubt>,
) -> Option<String> {
    let mut lost: Vec<String> = Vec::new();
    match doubt {
        Some(Doubt { why, position: Some(position), .. }) if chain.reaches(*position) => {
            lost.push(format!("{why}, from which the log leads to the same state"));
        }
        Some(Doubt { why, .. }) => {
            lost.push(format!("{why}, from which the log does not lead as far"));
        }
        None => {}
    }
    let LogEnd { seq, segment, offset_bytes, .. } = chain.end;
    let (commit_seq, time) = state_of(checkpoint, chain);
    if let Some(beyond) = chain.beyond.as_ref().filter(|beyond| beyond.durable_seq >= seq) {
        lost.push(format!(
            "the log is damaged at byte {offset_bytes} of segment {segment}, or where it \
             continues: partial segment {seq} does not fit, and {} says that all up to {} were \
             durable; units {} to {} lie behind it, written up to {}",
            beyond.last.seq,
            beyond.durable_seq,
            commit_seq + 1,
            beyond.last.commit_seq,
            beyond.last.time.utc(),
        ));
    } else if let Some(why) = &chain.unreadable {
        lost.push(format!("the log may go on where the device cannot be read: {why}"));
    }
    (!lost.is_empty()).then(|| {
        format!(
            "{}. What can be had is the state after unit {commit_seq}, written at {}",
            lost.join("; "),
            time.utc()
        )
    })
}

/// The last unit that recovery finds, and about when it was written.
fn state_of(checkpoint: &Checkpoint, chain: &Chain) -> (u64, Timestamp) {
    let last = chain.partials.last().map(|last| (last.header.commit_seq, last.header.time));
    last.unwrap_or((checkpoint.commit_seq, checkpoint.time))
}
