//! Which states a crash may leave.

/// A state that the work went through.
#[derive(Clone, Debug)]
struct Entry<S> {
    state: S,
    /// The first event count at which a crash may leave it: one more than had happened when the
    /// change began.
    visible_from: usize,
    /// The last one: after a reopening found an earlier state, this one is gone for good.
    visible_to: usize,
}

/// The states that the work on a recorded device went through, in order, with the points of the
/// recording they belong to. The points are event counts: how much had happened.
#[derive(Clone, Debug)]
pub struct Trace<S> {
    entries: Vec<Entry<S>>,
    /// What was promised to be durable: at which event count, and which entry. Both rise.
    promises: Vec<(usize, usize)>,
    /// Whether what is found at the first opening cannot be lost again.
    starts_durable: bool,
}

impl<S> Trace<S> {
    /// Work that starts on a device that durably holds `state`.
    pub fn new(state: S) -> Self {
        Self::after_crash([state])
    }

    /// Work that starts on a device that durably holds one of `states`, in the order they were
    /// gone through; the opening will tell which.
    pub fn after_crash(states: impl IntoIterator<Item = S>) -> Self {
        let entries = states
            .into_iter()
            .map(|state| Entry { state, visible_from: 0, visible_to: usize::MAX })
            .collect();
        Self { entries, promises: vec![(0, 0)], starts_durable: true }
    }

    /// The number of the newest state.
    #[must_use]
    pub fn last(&self) -> usize {
        self.entries.len() - 1
    }

    /// A state.
    #[must_use]
    pub fn state(&self, entry: usize) -> &S {
        &self.entries[entry].state
    }

    /// Adds the state that a change made which began after `event_count` events, and returns its
    /// number.
    pub fn push(&mut self, state: S, event_count: usize) -> usize {
        let entry = Entry { state, visible_from: event_count + 1, visible_to: usize::MAX };
        self.entries.push(entry);
        self.last()
    }

    /// Says that `entry` and all before it were promised to be durable when `event_count` events
    /// had happened.
    pub fn promise(&mut self, entry: usize, event_count: usize) {
        let (_, promised) = self.promises[self.promises.len() - 1];
        if entry > promised {
            self.promises.push((event_count, entry));
        }
    }

    /// Says that the disk was opened anew, which began after `event_count` events, and found the
    /// newest state that `is_found` is true for. Newer ones are gone. Returns its number.
    ///
    /// When it is opened for the first time, what was found counts after `decides_at` events. A
    /// crash before that may leave another of the states that it may have been in.
    ///
    /// # Errors
    /// None of the states that may be there is the one that is.
    pub fn reopened(
        &mut self,
        event_count: usize,
        decides_at: usize,
        is_found: impl Fn(&S) -> bool,
    ) -> Result<usize, NotFound> {
        let found = self.find(event_count, is_found)?;
        if !self.starts_durable {
            for entry in &mut self.entries[found + 1..] {
                entry.visible_to = entry.visible_to.min(event_count);
            }
        } else if let Some(last) = decides_at.checked_sub(1) {
            self.entries[found + 1..].iter_mut().for_each(|entry| entry.visible_to = last);
            self.promises.push((decides_at, found));
        } else {
            // The device had only this to give, and an opening alone must not change that.
            self.entries.truncate(found + 1);
            self.promises = vec![(0, found)];
        }
        self.starts_durable = false;
        Ok(found)
    }

    /// The states that a crash may leave after `event_count` events, with their numbers, oldest
    /// first.
    pub fn allowed(&self, event_count: usize) -> impl DoubleEndedIterator<Item = (usize, &S)> {
        let promised = self.promises.partition_point(|&(at, _)| at <= event_count);
        let floor = self.promises[promised - 1].1;
        self.entries.iter().enumerate().skip(floor).filter_map(move |(number, entry)| {
            let visible = (entry.visible_from..=entry.visible_to).contains(&event_count);
            (visible || number == floor).then_some((number, &entry.state))
        })
    }

    /// All states that ever were.
    pub fn states(&self) -> impl Iterator<Item = &S> {
        self.entries.iter().map(|entry| &entry.state)
    }

    /// The newest state that a crash may leave after `event_count` events and `is_found` is true
    /// for.
    ///
    /// # Errors
    /// There is none; the answer says what could have been.
    pub fn find(
        &self,
        event_count: usize,
        is_found: impl Fn(&S) -> bool,
    ) -> Result<usize, NotFound> {
        if let Some((number, _)) = self.allowed(event_count).rev().find(|(_, s)| is_found(s)) {
            return Ok(number);
        }
        let numbers: Vec<usize> = self.allowed(event_count).map(|(number, _)| number).collect();
        let elsewhere = self.entries.iter().rposition(|entry| is_found(&entry.state));
        Err(NotFound { oldest: numbers[0], newest: numbers[numbers.len() - 1], elsewhere })
    }
}

/// What was found after a crash is none of the states that may be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotFound {
    /// The oldest state that could have been found.
    pub oldest: usize,
    /// The newest.
    pub newest: usize,
    /// Which other state it is, if it is one.
    pub elsewhere: Option<usize>,
}

impl std::fmt::Display for NotFound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "expected a state from {} to {}, ", self.oldest, self.newest)?;
        match self.elsewhere {
            Some(entry) if entry < self.oldest => {
                write!(f, "found {entry}: what was promised to be durable is lost")
            }
            Some(entry) => write!(f, "found {entry}, which cannot be there yet or any more"),
            None => f.write_str("found one that never was"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(trace: &Trace<char>, event_count: usize) -> String {
        trace.allowed(event_count).map(|(_, state)| state).collect()
    }

    #[test]
    fn a_crash_leaves_what_began_before_it_and_was_not_promised_earlier() {
        let mut trace = Trace::new('a');
        trace.push('b', 0);
        trace.push('c', 5);
        trace.promise(1, 8);
        assert_eq!(allowed(&trace, 0), "a");
        assert_eq!(allowed(&trace, 5), "ab");
        assert_eq!(allowed(&trace, 7), "abc");
        assert_eq!(allowed(&trace, 8), "bc");
        assert_eq!(trace.find(8, |&state| state == 'b'), Ok(1));
        let lost = trace.find(8, |&state| state == 'a').unwrap_err();
        assert_eq!(lost, NotFound { oldest: 1, newest: 2, elsewhere: Some(0) });
    }

    #[test]
    fn what_a_reopening_did_not_find_never_comes_back() {
        let mut trace = Trace::new('a');
        trace.reopened(0, 0, |&state| state == 'a').unwrap();
        trace.push('b', 0);
        trace.push('c', 1);
        assert_eq!(trace.reopened(4, 4, |&state| state == 'b'), Ok(1));
        trace.push('d', 6);
        assert_eq!(allowed(&trace, 4), "abc");
        assert_eq!(allowed(&trace, 6), "ab");
        assert_eq!(allowed(&trace, 7), "abd");
    }

    #[test]
    fn after_a_crash_the_first_opening_decides() {
        let mut trace = Trace::after_crash("abc".chars());
        assert_eq!(trace.reopened(0, 0, |&state| state == 'b'), Ok(1));
        assert_eq!(trace.last(), 1);
        assert_eq!(allowed(&trace, 0), "b");
    }

    #[test]
    fn an_opening_that_is_cut_off_decides_nothing_if_it_decides_late() {
        let mut trace = Trace::after_crash("abc".chars());
        assert_eq!(trace.reopened(0, 5, |&state| state == 'b'), Ok(1));
        trace.push('d', 5);
        assert_eq!(allowed(&trace, 4), "abc");
        assert_eq!(allowed(&trace, 5), "b");
        assert_eq!(allowed(&trace, 6), "bd");
    }
}
