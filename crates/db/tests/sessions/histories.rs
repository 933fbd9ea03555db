//! Sessions of several threads that speak SQL: do their histories have the order that their level promises (`cycles.rs` of the engine's tests)?
//!
//! Seeds as there. That the check bites is shown by weaker levels: write skew in what REPEATABLE READ gives, and lost updates in READ COMMITTED.

#[path = "../../../engine/tests/engine/cycles.rs"]
mod cycles;

use crate::world::World;
use cycles::{Committed, History, Model, Write, seeds};
use freshet_db::{Session, SqlError};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

const KEYS: u64 = 5;
const SETUP: &str = "CREATE TABLE lists (id int PRIMARY KEY, note text NOT NULL);
    CREATE TABLE registers (id int PRIMARY KEY, note text NOT NULL, version int NOT NULL)";

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

fn table(model: Model) -> &'static str {
    if model == Model::Lists { "lists" } else { "registers" }
}

/// The values of a key, found by its index, by a range of it or by looking through the table.
fn read(s: &mut Session, model: Model, key: u64, by: u64) -> Result<Vec<u64>, SqlError> {
    let found_by = match by {
        0 => format!("id = {key}"),
        1 => format!("id > {key} - 1 AND id < {key} + 1"),
        _ => format!("id + 0 = {key}"),
    };
    s.run_text(&format!("SELECT note FROM {} WHERE {found_by}", table(model)))?;
    let rows = s.rows();
    assert!(rows.len() < 2, "a key has one row");
    let note = if rows.is_empty() { "" } else { rows.text(0, 0).expect("a note is set") };
    Ok(note.split_terminator(',').map(|value| value.parse().expect("a number")).collect())
}

fn write(s: &mut Session, model: Model, key: u64, value: u64) -> Result<Write, SqlError> {
    let sql = match model {
        Model::Lists => format!(
            "INSERT INTO lists VALUES ({key}, '{value},') ON CONFLICT (id) DO UPDATE SET note = lists.note || excluded.note RETURNING 0"
        ),
        Model::Registers => format!(
            "INSERT INTO registers VALUES ({key}, '{value}', 1)
             ON CONFLICT (id) DO UPDATE SET note = excluded.note, version = registers.version + 1 RETURNING version"
        ),
    };
    s.run_text(&sql)?;
    Ok(Write { key, value, order: s.rows().i64(0, 0).expect("it is counted") as u64 })
}

fn attempt(
    s: &mut Session,
    level: &str,
    model: Model,
    dice: &mut Dice,
    next: &AtomicU64,
    done: &mut Committed,
) -> Result<(), SqlError> {
    s.run(&format!("BEGIN ISOLATION LEVEL {level}"))?;
    for _ in 0..2 + dice.below(3) {
        std::thread::yield_now();
        let (key, by, writes) = (dice.below(KEYS), dice.below(3), dice.below(2) == 0);
        let is_own = done.writes.iter().any(|w| w.key == key);
        let values = read(s, model, key, by)?;
        if !is_own {
            done.reads.push((key, values));
        } else if model == Model::Registers {
            continue;
        }
        if writes {
            std::thread::yield_now();
            done.writes.push(write(s, model, key, next.fetch_add(1, Ordering::Relaxed))?);
        }
    }
    std::thread::yield_now();
    s.run("COMMIT").map(|_| ())
}

/// What one thread's transactions that committed did, and how many did not.
fn work(
    world: &World,
    model: Model,
    level: &str,
    thread: usize,
    seed: u64,
    count: usize,
    next: &AtomicU64,
) -> (Vec<Committed>, usize) {
    let mut s = world.db.session().expect("a session");
    let mut dice = Dice(seed.wrapping_mul(100) + thread as u64);
    let (mut committed, mut aborted) = (Vec::new(), 0);
    for n in 0..count {
        let mut done = Committed { id: thread * count + n, reads: Vec::new(), writes: Vec::new() };
        match attempt(&mut s, level, model, &mut dice, next, &mut done) {
            Ok(()) => committed.push(done),
            Err(error) => {
                assert!(["40001", "40P01"].contains(&error.sqlstate), "{error}");
                s.run("ROLLBACK").expect("it is rolled back");
                aborted += 1;
            }
        }
    }
    (committed, aborted)
}

fn history(model: Model, level: &str, seed: u64) -> History {
    let world = World::new(SETUP);
    let next = AtomicU64::new(1);
    let (mut committed, mut aborted) = (Vec::new(), 0);
    std::thread::scope(|scope| {
        let (world, next) = (&world, &next);
        let threads: Vec<_> =
            (0..4).map(|thread| scope.spawn(move || work(world, model, level, thread, seed, 60, next))).collect();
        for thread in threads {
            let (some, failed) = thread.join().expect("no thread panics");
            committed.extend(some);
            aborted += failed;
        }
    });
    let mut s = world.db.session().expect("a session");
    let last = (0..KEYS).map(|key| (key, read(&mut s, model, key, 0).expect("it is read")));
    let last = last.collect::<BTreeMap<_, _>>();
    History::new(model, committed, aborted, &last)
}

#[test]
fn histories_of_sql_sessions_are_as_their_level_promises() {
    for seed in seeds() {
        for model in [Model::Lists, Model::Registers] {
            for level in ["SERIALIZABLE", "REPEATABLE READ"] {
                let history = history(model, level, seed);
                assert_eq!(history.violation(level == "SERIALIZABLE"), None, "seed {seed}: {model:?}, {level}");
                assert!(history.committed.len() > 20 && history.aborted > 0, "there was something to see");
            }
        }
    }
}

#[test]
fn what_weaker_levels_let_through_is_found() {
    for (level, strict) in [("REPEATABLE READ", true), ("READ COMMITTED", false)] {
        for model in [Model::Lists, Model::Registers] {
            let found = (1..20).any(|seed| history(model, level, seed).violation(strict).is_some());
            assert!(found, "{model:?}, {level}");
        }
    }
}
