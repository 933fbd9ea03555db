//! Could this have happened? A history of transactions that read and appended to lists, against the isolation they ran at.
//!
//! A list says which versions of its row came before: whoever read `[4, 9, 7]` saw the writes of 4, 9 and 7 in this order. So the order of
//! versions is known, not guessed, and every violation shows as a contradiction or as a cycle (Elle: Kingsbury & Alvaro, VLDB 2021).
//!
//! Each transaction has a moment at which it reads, b, and one at which it commits, c; in READ COMMITTED each statement reads at a b of its own. The
//! history is possible iff these moments have an order:
//!
//! | known | so |
//! |---|---|
//! | all reads and writes of a transaction | b before c |
//! | j read what i appended | c(i) before b(j) |
//! | j appended behind i, in REPEATABLE READ | c(i) before b(j): the first to commit wins |
//! | the same in READ COMMITTED | c(i) before c(j) |
//! | j did not see what i appended | b(j) before c(i) |
//! | a session's transactions | c before the next b |
//! | i was known to be durable before j began | c(i) before b(j) |
//!
//! That is snapshot isolation with real time (Adya's start-ordered graph); write skew is possible and no violation. What no order can express
//! is looked for by itself: an append that was rolled back or is not there, twice there, or seen half.

use std::collections::{BTreeMap, BTreeSet};

/// Names an append; never used again.
pub type Value = u64;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// What one statement read, by key: at one snapshot.
    Read(Vec<(u64, Vec<Value>)>),
    /// The list as the append found it under the row's lock.
    Append { key: u64, before: Vec<Value>, value: Value },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    ReadCommitted,
    RepeatableRead,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    pub session: usize,
    pub level: Level,
    pub committed: bool,
    pub ops: Vec<Op>,
    /// By one clock: before it read anything; and when its commit was known to be durable, if anybody waited for that.
    pub began: u64,
    pub durable: Option<u64>,
}

/// What is wrong, in one line each; nothing if the history is possible. `last` is what is there at the end. Each session's transactions are in
/// the order in which it ran them.
pub fn violations(history: &[Transaction], last: &BTreeMap<u64, Vec<Value>>) -> Vec<String> {
    let mut wrong = Vec::new();
    let versions = Versions::of(history, last, &mut wrong);
    for (at, transaction) in history.iter().enumerate().filter(|(_, t)| t.committed) {
        check_reads(at, transaction, &versions, &mut wrong);
    }
    // Beside these an order of moments would say the same again.
    if wrong.is_empty() {
        wrong.extend(Order::of(history, &versions).cycle(history));
    }
    wrong
}

/// The order of versions.
struct Versions<'a> {
    last: &'a BTreeMap<u64, Vec<Value>>,
    /// Who appended a value.
    writers: BTreeMap<Value, usize>,
}

impl<'a> Versions<'a> {
    fn of(history: &[Transaction], last: &'a BTreeMap<u64, Vec<Value>>, wrong: &mut Vec<String>) -> Versions<'a> {
        let mut writers = BTreeMap::new();
        for (at, transaction) in history.iter().enumerate() {
            for op in &transaction.ops {
                if let Op::Append { value, .. } = op {
                    writers.insert(*value, at);
                }
            }
        }
        let mut seen = BTreeSet::new();
        for (key, list) in last {
            for value in list {
                match writers.get(value) {
                    Some(&at) if !history[at].committed => {
                        wrong.push(format!("{key} keeps {value}, which was rolled back"));
                    }
                    Some(_) if seen.insert(*value) => {}
                    _ => wrong.push(format!("{key} has {value} twice, or nobody appended it")),
                }
            }
        }
        for (value, &at) in &writers {
            if history[at].committed && !seen.contains(value) {
                wrong.push(format!("{value} was committed and is lost: {:?}", history[at]));
            }
        }
        Versions { last, writers }
    }

    /// The final list of a key.
    fn list(&self, key: u64) -> &[Value] {
        self.last.get(&key).map_or(&[], Vec::as_slice)
    }

    /// No transaction's number for what nobody appended, which has been told by then.
    fn writer(&self, value: Value) -> usize {
        self.writers.get(&value).copied().unwrap_or(usize::MAX)
    }
}

/// What a transaction read fits the versions, its own appends, and in REPEATABLE READ what it read before.
fn check_reads(at: usize, transaction: &Transaction, versions: &Versions<'_>, wrong: &mut Vec<String>) {
    let mut own: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    let mut snapshot: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    for op in &transaction.ops {
        if let Op::Append { key, before, value } = op
            && versions.list(*key).get(before.len()) != Some(value)
        {
            wrong.push(format!(
                "{transaction:?} put {value} behind {before:?}: it is not there in {:?}",
                versions.list(*key)
            ));
        }
        let (reads, appended) = match op {
            Op::Read(reads) => (reads.clone(), None),
            Op::Append { key, before, value } => (vec![(*key, before.clone())], Some((*key, *value))),
        };
        for (key, list) in reads {
            let mine = own.entry(key).or_default();
            let Some(others) = list.strip_suffix(mine.as_slice()) else {
                wrong.push(format!("{transaction:?} read {list:?} of {key} and does not see its own {mine:?}"));
                continue;
            };
            if transaction.level == Level::RepeatableRead
                && *snapshot.entry(key).or_insert_with(|| others.to_vec()) != others
            {
                wrong.push(format!(
                    "{transaction:?} read {key} twice and saw two versions: {:?}, {others:?}",
                    snapshot[&key]
                ));
            }
            if !versions.list(key).starts_with(others) {
                wrong.push(format!("{transaction:?} read {list:?} of {key}, which became {:?}", versions.list(key)));
            } else if let Some(half) = half_seen(others, versions.list(key), versions, at) {
                wrong.push(format!(
                    "{transaction:?} read {list:?} of {key} and saw {half} without the rest of its transaction"
                ));
            }
        }
        if let Some((key, value)) = appended {
            own.entry(key).or_default().push(value);
        }
    }
}

/// A value at the end of a list whose transaction appended more to it.
fn half_seen(seen: &[Value], whole: &[Value], versions: &Versions<'_>, reader: usize) -> Option<Value> {
    let (last, next) = (seen.last()?, whole.get(seen.len())?);
    let writer = versions.writer(*last);
    (writer != reader && writer == versions.writer(*next)).then_some(*last)
}

/// Moments and what lies before what.
struct Order {
    after: Vec<Vec<usize>>,
    /// The transaction of each moment; none of a moment of the clock.
    of: Vec<Option<usize>>,
}

impl Order {
    fn of(history: &[Transaction], versions: &Versions<'_>) -> Order {
        let mut order = Order { after: Vec::new(), of: Vec::new() };
        let ends: Vec<usize> = (0..history.len()).map(|at| order.moment(Some(at))).collect();
        let mut sessions: BTreeMap<usize, usize> = BTreeMap::new();
        let mut firsts = Vec::new();
        for (at, transaction) in history.iter().enumerate() {
            let end = ends[at];
            let mut begin = order.moment(Some(at));
            firsts.push(begin);
            if let Some(before) = sessions.insert(transaction.session, end) {
                order.put(before, begin);
            }
            for op in transaction.ops.iter().filter(|_| transaction.committed) {
                order.see(op, at, begin, &ends, versions, transaction.level);
                if transaction.level == Level::ReadCommitted {
                    let next = order.moment(Some(at));
                    order.put(begin, next);
                    begin = next;
                }
            }
            order.put(begin, end);
        }
        order.follow_the_clock(history, &firsts, &ends);
        order
    }

    fn moment(&mut self, of: Option<usize>) -> usize {
        self.after.push(Vec::new());
        self.of.push(of);
        self.of.len() - 1
    }

    fn put(&mut self, before: usize, after: usize) {
        self.after[before].push(after);
    }

    fn see(&mut self, op: &Op, me: usize, begin: usize, ends: &[usize], versions: &Versions<'_>, level: Level) {
        let others = |list: &[Value]| list.iter().filter(|v| versions.writer(**v) != me).count();
        match op {
            Op::Read(reads) => {
                for (key, list) in reads {
                    let (seen, whole) = (others(list), versions.list(*key));
                    if let Some(last) = whole[..seen].last() {
                        self.put(ends[versions.writer(*last)], begin);
                    }
                    if let Some(next) = whole.get(seen).filter(|next| versions.writer(**next) != me) {
                        self.put(begin, ends[versions.writer(*next)]);
                    }
                }
            }
            Op::Append { key, before, .. } => {
                if let Some(last) = versions.list(*key)[..others(before)].last() {
                    let to = if level == Level::RepeatableRead { begin } else { ends[me] };
                    self.put(ends[versions.writer(*last)], to);
                }
            }
        }
    }

    /// A line of moments of the clock: what was durable lies before them, what began after them behind.
    fn follow_the_clock(&mut self, history: &[Transaction], begins: &[usize], ends: &[usize]) {
        let mut times: Vec<(u64, bool, usize)> = Vec::new();
        for (at, transaction) in history.iter().enumerate() {
            // At the same time nothing is said.
            times.push((transaction.began, false, begins[at]));
            times.extend(transaction.durable.filter(|_| transaction.committed).map(|time| (time, true, ends[at])));
        }
        times.sort_unstable();
        let mut now = self.moment(None);
        for (_, is_end, moment) in times {
            if is_end {
                let next = self.moment(None);
                self.put(now, next);
                self.put(moment, next);
                now = next;
            } else {
                self.put(now, moment);
            }
        }
    }

    /// The transactions of one cycle, if there is one.
    fn cycle(&self, history: &[Transaction]) -> Option<String> {
        let mut incoming = vec![0; self.after.len()];
        self.after.iter().flatten().for_each(|&to| incoming[to] += 1);
        let mut free: Vec<usize> = (0..incoming.len()).filter(|&m| incoming[m] == 0).collect();
        let mut left = incoming.len();
        while let Some(moment) = free.pop() {
            left -= 1;
            for &to in &self.after[moment] {
                incoming[to] -= 1;
                if incoming[to] == 0 {
                    free.push(to);
                }
            }
        }
        if left == 0 {
            return None;
        }
        // Backwards from what is left, always to something that is left, one comes to a cycle.
        let is_left = |m: usize| incoming[m] > 0;
        let before = |m: usize| (0..self.after.len()).find(|&b| is_left(b) && self.after[b].contains(&m));
        let mut path: Vec<usize> = vec![(0..incoming.len()).find(|&m| is_left(m))?];
        loop {
            let next = before(path[path.len() - 1])?;
            if let Some(start) = path.iter().position(|&m| m == next) {
                let mut on: Vec<usize> = path[start..].iter().rev().filter_map(|&m| self.of[m]).collect();
                on.dedup();
                let lines: Vec<String> = on.iter().map(|&at| format!("{:?}", history[at])).collect();
                return Some(format!("no order of these is possible: {}", lines.join(" -> ")));
            }
            path.push(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lists: &[(u64, &[Value])]) -> Op {
        Op::Read(lists.iter().map(|(key, list)| (*key, list.to_vec())).collect())
    }

    fn append(key: u64, before: &[Value], value: Value) -> Op {
        Op::Append { key, before: before.to_vec(), value }
    }

    fn of(session: usize, level: Level, ops: Vec<Op>) -> Transaction {
        Transaction { session, level, committed: true, ops, began: 0, durable: None }
    }

    fn si(session: usize, ops: Vec<Op>) -> Transaction {
        of(session, Level::RepeatableRead, ops)
    }

    fn found(history: &[Transaction], last: &[(u64, &[Value])]) -> String {
        let last = last.iter().map(|(key, list)| (*key, list.to_vec())).collect();
        violations(history, &last).join("; ")
    }

    #[test]
    fn write_skew_is_possible_and_a_long_fork_is_not() {
        let skew = [
            si(1, vec![read(&[(1, &[]), (2, &[])]), append(1, &[], 10)]),
            si(2, vec![read(&[(1, &[]), (2, &[])]), append(2, &[], 20)]),
        ];
        assert_eq!(found(&skew, &[(1, &[10]), (2, &[20])]), "");
        let fork = [
            si(1, vec![append(1, &[], 10)]),
            si(2, vec![append(2, &[], 20)]),
            si(3, vec![read(&[(1, &[10]), (2, &[])])]),
            si(4, vec![read(&[(1, &[]), (2, &[20])])]),
        ];
        assert!(found(&fork, &[(1, &[10]), (2, &[20])]).contains("no order"));
    }

    #[test]
    fn two_statements_of_read_committed_may_see_two_states_and_one_may_not() {
        let writer = si(1, vec![append(1, &[], 10), append(2, &[], 20)]);
        let last: &[(u64, &[Value])] = &[(1, &[10]), (2, &[20])];
        let reader = |level, ops| [writer.clone(), of(2, level, ops)];
        let two = vec![read(&[(1, &[])]), read(&[(2, &[20])])];
        assert_eq!(found(&reader(Level::ReadCommitted, two.clone()), last), "");
        assert!(found(&reader(Level::RepeatableRead, two), last).contains("no order"));
        let one = vec![read(&[(1, &[]), (2, &[20])])];
        assert!(found(&reader(Level::ReadCommitted, one), last).contains("no order"));
        let back = vec![read(&[(1, &[10])]), read(&[(1, &[])])];
        assert!(found(&reader(Level::ReadCommitted, back), last).contains("no order"));
    }

    #[test]
    fn what_is_lost_kept_twice_or_half_is_told() {
        let both = [si(1, vec![append(1, &[], 10)]), si(2, vec![append(1, &[], 20)])];
        assert!(found(&both, &[(1, &[20])]).contains("10 was committed and is lost"));
        assert!(found(&both, &[(1, &[10, 20])]).contains("not there"), "the second to commit did not see the first");
        let aware = [si(1, vec![append(1, &[], 10)]), si(2, vec![read(&[(1, &[])]), append(1, &[10], 20)])];
        assert!(found(&aware, &[(1, &[10, 20])]).contains("two versions"));
        let elsewhere =
            [both[0].clone(), si(2, vec![read(&[(2, &[])]), append(1, &[10], 20)]), si(3, vec![append(2, &[], 30)])];
        assert_eq!(found(&elsewhere, &[(1, &[10, 20]), (2, &[30])]), "");
        let mut undone = both.clone();
        undone[0].committed = false;
        assert!(found(&undone, &[(1, &[10, 20])]).contains("rolled back"));
        assert_eq!(found(&undone, &[(1, &[20])]), "");
        let half = [si(1, vec![append(1, &[], 10), append(1, &[10], 11)]), si(2, vec![read(&[(1, &[10])])])];
        assert!(found(&half, &[(1, &[10, 11])]).contains("without the rest"));
        let blind = [si(1, vec![append(1, &[], 10), read(&[(1, &[])])])];
        assert!(found(&blind, &[(1, &[10])]).contains("does not see its own"));
        let twice = [si(1, vec![append(1, &[], 10)]), si(2, vec![read(&[(1, &[])]), read(&[(1, &[10])])])];
        assert!(found(&twice, &[(1, &[10])]).contains("two versions"));
    }

    #[test]
    fn what_was_durable_before_is_seen() {
        let mut late = [si(1, vec![append(1, &[], 10)]), si(2, vec![read(&[(1, &[])])])];
        assert_eq!(found(&late, &[(1, &[10])]), "");
        (late[0].durable, late[1].began) = (Some(5), 6);
        assert!(found(&late, &[(1, &[10])]).contains("no order"));
        (late[0].durable, late[0].session) = (None, 2);
        assert!(found(&late, &[(1, &[10])]).contains("no order"), "a session sees its own commits");
    }
}
