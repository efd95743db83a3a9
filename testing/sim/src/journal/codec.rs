//! Commits as bytes.

use dendro_disk::{Aru, Lid, ListHints, Op, View};

use crate::system::Outcome;

/// Adds a commit: how many changes it has, then each as a tag, four numbers and bytes.
pub(super) fn encode(ops: &[Op<'_>], out: &mut Vec<u8>) {
    out.extend((ops.len() as u64).to_le_bytes());
    for op in ops {
        let (tag, numbers, bytes) = parts(op);
        out.push(tag);
        numbers.into_iter().for_each(|number| out.extend(number.to_le_bytes()));
        out.extend((bytes.len() as u64).to_le_bytes());
        out.extend(bytes);
    }
}

fn parts<'o>(op: &'o Op<'_>) -> (u8, [u64; 5], &'o [u8]) {
    match op {
        Op::CreateList { list, hints } => (0, hints_numbers(*list, *hints), &[]),
        Op::DeleteList { list } => (1, [list.0, 0, 0, 0, 0], &[]),
        Op::SetHints { list, hints } => (2, hints_numbers(*list, *hints), &[]),
        Op::PutRecord { list, index, value } => (3, [list.0, *index, 0, 0, 0], value),
        Op::DeleteRecord { list, index } => (4, [list.0, *index, 0, 0, 0], &[]),
        Op::WritePages { list, first_page, data } => (5, [list.0, *first_page, 0, 0, 0], data),
        Op::WriteBytes { list, offset_bytes, data } => (11, [list.0, *offset_bytes, 0, 0, 0], data),
        Op::ZeroPages { list, first_page, count } => (6, [list.0, *first_page, *count, 0, 0], &[]),
        Op::PunchPages { list, first_page, count } => (7, [list.0, *first_page, *count, 0, 0], &[]),
        Op::MovePages { from, from_page, to, to_page, count } => {
            (8, [from.0, *from_page, *count, to.0, *to_page], &[])
        }
        Op::SwapPages { a, b } => (9, [a.0, 0, 0, b.0, 0], &[]),
        Op::RestoreList { list, hints } => (10, hints_numbers(*list, *hints), &[]),
    }
}

fn hints_numbers(list: Lid, hints: ListHints) -> [u64; 5] {
    let (bits, near) = hints.parts();
    [list.0, bits.into(), near, 0, 0]
}

fn hints_of(bits: u64, near: u64) -> ListHints {
    ListHints::from_parts(bits as u16, near)
}

/// Hands out the commits of a payload, one after the other. With `halves`, also the intact first
/// part of a broken one.
pub(super) fn decode(
    mut bytes: &[u8],
    halves: bool,
    mut commit: impl FnMut(Aru<'_>) -> Outcome<()>,
) -> Outcome<()> {
    while !bytes.is_empty() {
        let count = number(&mut bytes).ok_or("a commit is cut off")?;
        let mut aru = Aru::new(View::HEAD);
        for _ in 0..count {
            match decode_op(&mut bytes) {
                Some(op) => {
                    aru.push(op);
                }
                None if halves => return commit(aru).or(Ok(())),
                None => return Err("a change is cut off".into()),
            }
        }
        match commit(aru) {
            Err(_) if halves => return Ok(()),
            answer => answer?,
        }
    }
    Ok(())
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let (word, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*word))
}

fn decode_op<'b>(bytes: &mut &'b [u8]) -> Option<Op<'b>> {
    let (&tag, rest) = bytes.split_first()?;
    *bytes = rest;
    let mut numbers = [0; 5];
    for value in &mut numbers {
        *value = number(bytes)?;
    }
    let len = usize::try_from(number(bytes)?).ok()?;
    let (data, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    let [list, index, count, other, other_index] = numbers;
    let (list, other) = (Lid(list), Lid(other));
    Some(match tag {
        0 => Op::CreateList { list, hints: hints_of(index, count) },
        1 => Op::DeleteList { list },
        2 => Op::SetHints { list, hints: hints_of(index, count) },
        3 => Op::PutRecord { list, index, value: data.into() },
        4 => Op::DeleteRecord { list, index },
        5 => Op::WritePages { list, first_page: index, data: data.into() },
        6 => Op::ZeroPages { list, first_page: index, count },
        7 => Op::PunchPages { list, first_page: index, count },
        8 => Op::MovePages { from: list, from_page: index, to: other, to_page: other_index, count },
        9 => Op::SwapPages { a: list, b: other },
        10 => Op::RestoreList { list, hints: hints_of(index, count) },
        11 => Op::WriteBytes { list, offset_bytes: index, data: data.into() },
        _ => return None,
    })
}
