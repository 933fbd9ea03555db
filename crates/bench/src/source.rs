//! What do the sessions ask for? Operations on rows of one table, drawn at random or in order, and what was acknowledged.

use crate::adapter::{Answer, Content, Fetch, Op};
use crate::error::BenchError;
use crate::random::Random;
use crate::run::Source;
use std::ops::Range;

/// Which operation comes next.
#[derive(Clone, PartialEq, Debug)]
pub enum Draw {
    Search(Fetch),
    /// So many keys in one statement.
    Many(usize),
    Update,
    /// Updates in a hundred operations; the others are searches.
    Mix {
        updates: u64,
    },
    /// Each of these keys once.
    Insert(Range<u64>),
    Delete(Range<u64>),
}

/// Operations on one table whose keys are row numbers, found by its first index.
pub struct Rows {
    draw: Draw,
    table: usize,
    /// Random keys are below.
    rows: u64,
    counter: usize,
    row: fn(u64, &mut Vec<i64>),
    random: Random,
    keys: Vec<i64>,
    cells: Vec<i64>,
    /// By session: the operation under way is an update.
    updates: Vec<bool>,
    /// What the system acknowledged.
    pub updated: u64,
    pub inserted: u64,
    pub deleted: u64,
    pub searched: u64,
}

impl Rows {
    /// `seed` differs by thread.
    pub fn new(
        draw: Draw,
        table: usize,
        shape: &crate::shape::TableShape,
        rows: u64,
        sessions: usize,
        seed: u64,
    ) -> Rows {
        Rows {
            draw,
            table,
            rows,
            counter: shape.counter,
            row: shape.row,
            random: Random((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            keys: Vec::new(),
            cells: Vec::new(),
            updates: vec![false; sessions],
            updated: 0,
            inserted: 0,
            deleted: 0,
            searched: 0,
        }
    }

    /// Keys that an answer speaks of.
    fn keys_each(&self) -> u64 {
        match self.draw {
            Draw::Many(keys) => keys as u64,
            _ => 1,
        }
    }

    /// One key from each of as many equal parts: none comes twice.
    fn draw_keys(&mut self, count: usize) {
        let part = (self.rows / count as u64).max(1);
        self.keys.clear();
        for n in 0..count as u64 {
            self.keys.push(((n * part) % self.rows + self.random.below(part)) as i64);
        }
    }

    fn update(&mut self, session: usize) -> Op<'_> {
        self.updates[session] = true;
        let key = self.random.below(self.rows) as i64;
        Op::Update { table: self.table, index: 0, key, column: self.counter, add: 1 }
    }

    fn search(&mut self, session: usize, fetch: Fetch) -> Op<'_> {
        self.updates[session] = false;
        Op::Search { table: self.table, index: 0, key: self.random.below(self.rows) as i64, fetch }
    }
}

impl Source for Rows {
    #[inline]
    fn next(&mut self, session: usize) -> Option<Op<'_>> {
        let table = self.table;
        Some(match &mut self.draw {
            &mut Draw::Search(fetch) => self.search(session, fetch),
            Draw::Update => self.update(session),
            &mut Draw::Mix { updates } if self.random.below(100) < updates => self.update(session),
            Draw::Mix { .. } => self.search(session, Fetch::Counter),
            &mut Draw::Many(count) => {
                self.draw_keys(count);
                Op::SearchMany { table, index: 0, keys: &self.keys }
            }
            Draw::Insert(keys) => {
                let key = keys.next()?;
                self.cells.clear();
                (self.row)(key, &mut self.cells);
                Op::Insert { table, cells: &self.cells }
            }
            Draw::Delete(keys) => Op::Delete { table, index: 0, key: keys.next()? as i64 },
        })
    }

    #[inline]
    fn answered(&mut self, session: usize, answer: Answer) -> Result<(), BenchError> {
        if answer.rows != self.keys_each() {
            let (due, got) = (self.keys_each(), answer.rows);
            return Err(BenchError::WrongData(format!("{:?}: {due} rows were there, {got} were answered", self.draw)));
        }
        match self.draw {
            Draw::Insert(_) => self.inserted += 1,
            Draw::Delete(_) => self.deleted += 1,
            _ if self.updates[session] => self.updated += 1,
            _ => self.searched += answer.rows,
        }
        Ok(())
    }
}

/// What a table must hold after these sources, who found `before`.
pub fn content_after(before: Content, sources: &[Rows]) -> Content {
    sources.iter().fold(before, |content, source| Content {
        rows: content.rows + source.inserted - source.deleted,
        sum: content.sum.wrapping_add(source.updated as i64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{Order, record168};

    #[test]
    fn many_keys_are_different_and_there() {
        for rows in [64, 65, 1000] {
            let mut source = Rows::new(Draw::Many(64), 0, &record168(Order::Hash), rows, 1, 3);
            for _ in 0..100 {
                let Some(Op::SearchMany { keys, .. }) = source.next(0) else { panic!("searches") };
                let mut sorted = keys.to_vec();
                sorted.sort_unstable();
                sorted.dedup();
                assert!(sorted.len() == 64 && sorted[0] >= 0 && sorted[63] < rows as i64, "{rows} {sorted:?}");
            }
        }
    }

    #[test]
    fn an_answer_with_too_few_rows_is_wrong_data() {
        let mut source = Rows::new(Draw::Update, 0, &record168(Order::Hash), 10, 1, 3);
        assert!(source.next(0).is_some());
        assert!(source.answered(0, Answer { rows: 1, sum: 0 }).is_ok());
        assert!(matches!(source.answered(0, Answer::default()), Err(BenchError::WrongData(_))));
        assert_eq!(content_after(Content { rows: 10, sum: 0 }, &[source]), Content { rows: 10, sum: 1 });
    }
}
