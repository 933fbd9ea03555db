//! Power cuts beside threads: writers, devices, garbage and the lanes of checkpoints at the same time, which no seed can order.
//!
//! Each writer moves ones among rows of its own, and counts its moves in a marker row by a later commit. After a cut the moves still sum to
//! zero, and no marker is below what was durable.

use crate::world::*;
use freshet_engine::catalog::IndexKind;
use freshet_engine::engine::{Engine, Options, Part};
use freshet_engine::ids::{Cts, DeviceId, RowId};
use freshet_engine::io::mem::{MemClock, MemIo};
use freshet_engine::schema::{Row, Value};
use freshet_engine::txn::{self, Isolation, Stop, TableCursor};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::yield_now;
use std::time::Duration;

const ROWS: usize = 600;
const WRITERS: usize = 3;
/// The marker of writer w has this and w as its id.
const MARKERS: i64 = 10_000;
const PARTS: [Part; 5] =
    [Part::Device(DeviceId(0)), Part::Device(DeviceId(1)), Part::Prepare, Part::Garbage, Part::Checkpoint];

fn open(io: &MemIo) -> Engine {
    let options = Options {
        stage_limit_bytes: 160 << 10,
        segment_bytes: 256 << 10,
        log_size_bytes: 2 << 20,
        image_segment_bytes: 128 << 10,
        log_dirs: vec!["/l0".into(), "/l1".into()],
        backup_dirs: vec!["/b0".into(), "/b1".into()],
        ..Options::small("/db")
    };
    Engine::open_with(Arc::new(io.clone()), MemClock::new(), options).expect("opens")
}

fn fill(engine: &Engine) {
    let mut session = Session::new(engine);
    create(&mut session, IndexKind::Hash);
    for id in 0..ROWS as i64 {
        commit_insert(&mut session, id, 0, &"x".repeat(300));
    }
    for writer in 0..WRITERS as i64 {
        commit_insert(&mut session, MARKERS + writer, 0, "a marker");
    }
    while engine.step() {}
}

/// Row id, key and number of every row.
fn all(engine: &Engine) -> Vec<(RowId, i64, i64)> {
    let mut session = Session::new(engine);
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    let table = table(&session);
    let (mut cursor, mut row, mut found) = (TableCursor::default(), Row::default(), Vec::new());
    while let Some(at) = session.scan_next(&table, &mut cursor, &mut row) {
        let [id, n] = row_of_ids(&table, &row);
        found.push((at, id, n));
    }
    session.commit().expect("a read commits");
    found
}

fn markers(engine: &Engine) -> Vec<i64> {
    let mut markers: Vec<_> = all(engine).into_iter().filter(|r| r.1 >= MARKERS).map(|r| (r.1, r.2)).collect();
    markers.sort_unstable();
    markers.into_iter().map(|(_, n)| n).collect()
}

/// What the threads of one round share.
struct Round<'a> {
    engine: &'a Engine,
    rows: &'a [RowId],
    markers: &'a [RowId],
    over: AtomicBool,
    moves: AtomicU64,
    /// By writer: moves that are durable.
    durable: Vec<AtomicU64>,
}

impl Round<'_> {
    fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    fn turn(&self, part: Part) {
        while !self.is_over() {
            if part == Part::Checkpoint {
                self.engine.request_checkpoint_within(Duration::ZERO);
            }
            if !self.engine.step_part(part) {
                yield_now();
            }
        }
    }

    /// `None`: the round is over, or the log is full and nothing has changed.
    fn commit(&self, session: &mut txn::Session) -> Option<Cts> {
        while !self.is_over() {
            match session.commit() {
                Ok(committed) => return Some(committed.cts),
                Err(Stop::Wait(_)) => yield_now(),
                Err(_) => return None,
            }
        }
        None
    }

    /// Adds to the rows' numbers, in one transaction; a note goes with them now and then.
    fn add(&self, session: &mut txn::Session, changes: &[(RowId, i64)], note: Option<&str>) -> Option<Cts> {
        session.begin(Isolation::ReadCommitted, false);
        session.begin_statement();
        let table = session.schema().table("t").expect("created").clone();
        for &(at, by) in changes {
            let mut old = Row::default();
            session.lock(&table, at, &mut old).expect("nobody else has it");
            let mut new = old.clone();
            new.set(&table.layout, 1, &Value::Int(row_of_ids(&table, &old)[1] + by));
            if let Some(note) = note {
                new.set(&table.layout, 2, &Value::Bytes(note.as_bytes()));
            }
            if session.update(&table, at, &old, &mut new).is_err() {
                session.rollback();
                return None;
            }
        }
        self.commit(session)
    }

    fn write(&self, writer: usize, mut seed: u64) {
        let mut session = self.engine.connect().expect("a place");
        let mut count = self.durable[writer].load(SeqCst);
        let mut told: VecDeque<(u64, Cts)> = VecDeque::new();
        while !self.is_over() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Half of the moves are among three hot rows.
            let own = if seed >> 63 == 0 { 3 } else { ROWS / WRITERS };
            let [from, to] = [seed >> 20, seed >> 40].map(|s| self.rows[s as usize % own * WRITERS + writer]);
            let note = "y".repeat(30 + (seed >> 32) as usize % 900);
            let note = (seed >> 30).is_multiple_of(3).then_some(note.as_str());
            if from == to || self.add(&mut session, &[(from, -1), (to, 1)], note).is_none() {
                continue;
            }
            while let Some((moves, _)) = told.pop_front_if(|(_, cts)| self.engine.is_durable(*cts)) {
                self.durable[writer].store(moves, SeqCst);
            }
            while !self.is_over() {
                if let Some(cts) = self.add(&mut session, &[(self.markers[writer], 1)], None) {
                    count += 1;
                    told.push_back((count, cts));
                    self.moves.fetch_add(1, SeqCst);
                    break;
                }
            }
        }
    }

    /// Until enough has happened; then the power goes. What was durable before it did.
    fn cut(&self, io: &MemIo, number: u64) -> (MemIo, Vec<i64>) {
        let checkpoints = self.engine.stats().checkpoints + 3;
        while self.moves.load(SeqCst) < 400 + number * 150 || self.engine.stats().checkpoints < checkpoints {
            yield_now();
        }
        let durable = self.durable.iter().map(|d| d.load(SeqCst) as i64).collect();
        let after = io.crash(number);
        self.over.store(true, SeqCst);
        (after, durable)
    }
}

#[test]
fn a_power_cut_beside_threads_loses_nothing_acknowledged() {
    let mut io = MemIo::new();
    fill(&open(&io));
    for number in 0..6 {
        let engine = open(&io);
        let (marked, plain): (Vec<_>, Vec<_>) = all(&engine).into_iter().partition(|r| r.1 >= MARKERS);
        let mut marked = marked;
        marked.sort_unstable_by_key(|r| r.1);
        let round = Round {
            engine: &engine,
            rows: &plain.iter().map(|r| r.0).collect::<Vec<_>>(),
            markers: &marked.iter().map(|r| r.0).collect::<Vec<_>>(),
            over: AtomicBool::new(false),
            moves: AtomicU64::new(0),
            durable: marked.iter().map(|r| AtomicU64::new(r.2 as u64)).collect(),
        };
        let (after, durable) = std::thread::scope(|scope| {
            let round = &round;
            PARTS.into_iter().for_each(|part| drop(scope.spawn(move || round.turn(part))));
            (0..WRITERS).for_each(|w| drop(scope.spawn(move || round.write(w, number * 77 + w as u64))));
            round.cut(&io, number)
        });
        drop(engine);
        let engine = open(&after);
        let rows = all(&engine);
        assert_eq!(rows.len(), ROWS + WRITERS);
        assert_eq!(rows.iter().filter(|r| r.1 < MARKERS).map(|r| r.2).sum::<i64>(), 0, "round {number}");
        let kept = markers(&engine);
        assert!(kept.iter().zip(&durable).all(|(k, d)| k >= d), "round {number}: {kept:?} after {durable:?}");
        drop(engine);
        io = after.crash(number);
    }
}
