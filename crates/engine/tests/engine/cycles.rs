//! Histories of transactions, and cycles in them: shared by the tests of the engine and those of SQL sessions.
//!
//! Each transaction reads and writes some keys; each write is of a value of its own. Two models: lists that are only appended to, whose last state
//! tells the order of versions, and registers, where each write says its place in that order (the commit timestamp, or a count of its own). From
//! what was read follow the edges (Adya 1999):
//!
//! | edge | from | to |
//! |---|---|---|
//! | ww | who wrote a version | who wrote the next one |
//! | wr | who wrote a version | who read it |
//! | rw | who read a version | who wrote the next one |
//!
//! SERIALIZABLE: no cycle. REPEATABLE READ is snapshot isolation: no cycle of ww and wr edges, and none with one rw edge; two are write skew.

use std::collections::{BTreeMap, HashMap, HashSet};

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Model {
    Lists,
    Registers,
}

pub struct Write {
    pub key: u64,
    pub value: u64,
    /// Of a register: grows from version to version.
    pub order: u64,
}

/// A transaction that committed.
pub struct Committed {
    pub id: usize,
    /// Of a key, the values that were found: of a register at most one.
    pub reads: Vec<(u64, Vec<u64>)>,
    pub writes: Vec<Write>,
}

pub struct History {
    model: Model,
    pub committed: Vec<Committed>,
    pub aborted: usize,
    /// Of each key, its values in the order of versions, each with who wrote it.
    versions: BTreeMap<u64, Vec<(u64, usize)>>,
    /// What the lists should hold in the end and do not, or the other way round.
    lost: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Edge {
    Depends,
    /// rw
    Against,
}

/// Some seeds, the same each time unless the environment says otherwise.
pub fn seeds() -> std::ops::Range<u64> {
    let of = |name: &str| std::env::var(name).ok().and_then(|t| t.parse::<u64>().ok());
    let first = of("FRESHET_TEST_SEED").unwrap_or(1);
    first..first + 4 * of("FRESHET_TEST_SCALE").unwrap_or(1)
}

impl History {
    /// `last`: what each key holds in the end.
    pub fn new(model: Model, committed: Vec<Committed>, aborted: usize, last: &BTreeMap<u64, Vec<u64>>) -> History {
        let mut history = History { model, committed, aborted, versions: BTreeMap::new(), lost: None };
        history.order_versions(last);
        history
    }

    fn order_versions(&mut self, last: &BTreeMap<u64, Vec<u64>>) {
        let mut versions: BTreeMap<u64, Vec<(u64, u64, usize)>> = BTreeMap::new();
        for txn in &self.committed {
            for write in &txn.writes {
                versions.entry(write.key).or_default().push((write.order, write.value, txn.id));
            }
        }
        for (key, mut of_key) in versions {
            of_key.sort();
            if self.model == Model::Lists {
                let at = |value: u64| last[&key].iter().position(|&v| v == value);
                of_key.sort_by_key(|v| at(v.1));
                let (gone, held) = (of_key.iter().find(|v| at(v.1).is_none()), last[&key].len());
                if gone.is_some() || of_key.len() != held {
                    self.lost = Some(format!("{} were appended to {key}, it has {held}; gone: {gone:?}", of_key.len()));
                }
            }
            self.versions.insert(key, of_key.into_iter().map(|(_, value, id)| (value, id)).collect());
        }
    }

    /// A promise that the history breaks: SERIALIZABLE's if `strict`, else REPEATABLE READ's.
    pub fn violation(&self, strict: bool) -> Option<String> {
        if self.lost.is_some() {
            return self.lost.clone();
        }
        let edges = match self.edges() {
            Ok(edges) => edges,
            Err(what) => return Some(what),
        };
        for (&from, out) in &edges {
            for &(to, edge) in out {
                // Of other cycles than write skew, one edge may be rw: then the rest are not.
                if reaches(&edges, to, from, |e| strict || e == Edge::Depends) {
                    return Some(format!("a cycle by {from} -{edge:?}-> {to}"));
                }
            }
        }
        None
    }

    /// Or a read that no order of versions explains.
    fn edges(&self) -> Result<HashMap<usize, HashSet<(usize, Edge)>>, String> {
        let mut edges: HashMap<usize, HashSet<(usize, Edge)>> = HashMap::new();
        let mut add = |from: usize, to: usize, edge: Edge| {
            if from != to {
                edges.entry(from).or_default().insert((to, edge));
            }
        };
        for of_key in self.versions.values() {
            of_key.windows(2).for_each(|pair| add(pair[0].1, pair[1].1, Edge::Depends));
        }
        for txn in &self.committed {
            for (key, values) in &txn.reads {
                let of_key = self.versions.get(key).map_or(&[][..], Vec::as_slice);
                let Some(last) = values.last() else {
                    of_key.first().iter().for_each(|next| add(txn.id, next.1, Edge::Against));
                    continue;
                };
                let Some(at) = of_key.iter().position(|v| v.0 == *last) else {
                    return Err(format!("{} read {last}, which nobody committed", txn.id));
                };
                if self.model == Model::Lists && !of_key.iter().map(|v| v.0).take(at + 1).eq(values.iter().copied()) {
                    return Err(format!("{} read {values:?} of {of_key:?}", txn.id));
                }
                add(of_key[at].1, txn.id, Edge::Depends);
                // What it appended itself comes in between.
                let next = of_key[at + 1..].iter().find(|v| v.1 != txn.id);
                next.iter().for_each(|next| add(txn.id, next.1, Edge::Against));
            }
        }
        Ok(edges)
    }
}

fn reaches(
    edges: &HashMap<usize, HashSet<(usize, Edge)>>,
    from: usize,
    to: usize,
    with: impl Fn(Edge) -> bool,
) -> bool {
    let (mut seen, mut next) = (HashSet::from([from]), vec![from]);
    while let Some(at) = next.pop() {
        if at == to {
            return true;
        }
        let out = edges.get(&at).into_iter().flatten().filter(|(_, edge)| with(*edge));
        next.extend(out.map(|(to, _)| *to).filter(|to| seen.insert(*to)));
    }
    false
}
