//! Workers that share a queue: each job is taken once, and nobody waits for another.

use crate::world::World;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

const WORKERS: usize = 4;
const JOBS: usize = 200;

fn queue() -> World {
    let world = World::new("CREATE TABLE jobs (id int PRIMARY KEY, state text NOT NULL, priority int, worker int)");
    let jobs = format!("INSERT INTO jobs SELECT n, 'ready', n % 7, NULL FROM generate_series(1, {JOBS}) AS n");
    world.client().ok(&jobs);
    world
}

/// Runs `take` (one job per call; none: the queue is empty) in all workers, and checks that each job was taken by one of them.
fn drain(world: &World, take: impl Fn(&mut crate::world::Client, usize) -> Vec<i64> + Sync) {
    let taken = AtomicUsize::new(0);
    let all: Vec<Vec<i64>> = std::thread::scope(|threads| {
        let work = |worker: usize| {
            let (world, take, taken) = (&world, &take, &taken);
            move || {
                let mut client = world.client();
                let mut own = Vec::new();
                while taken.load(Ordering::Relaxed) < JOBS {
                    let jobs = take(&mut client, worker);
                    taken.fetch_add(jobs.len(), Ordering::Relaxed);
                    own.extend(jobs);
                }
                own
            }
        };
        let workers: Vec<_> = (0..WORKERS).map(|worker| threads.spawn(work(worker))).collect();
        workers.into_iter().map(|worker| worker.join().expect("the worker runs")).collect()
    });
    let all: Vec<i64> = all.concat();
    assert_eq!(all.len(), JOBS);
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), JOBS, "a job was taken twice");
    assert_eq!(world.client().number("SELECT count(*) FROM jobs WHERE state <> 'taken'"), Some(0));
}

fn ids(client: &crate::world::Client) -> Vec<i64> {
    (0..client.rows.len()).map(|row| client.rows.i64(row, 0).expect("a job has a number")).collect()
}

/// Takes the jobs that a locking query gives.
fn take(client: &mut crate::world::Client, worker: usize, query: &str) -> Vec<i64> {
    client.ok("BEGIN");
    client.ok(query);
    let jobs = ids(client);
    for job in &jobs {
        client.ok(&format!("UPDATE jobs SET state = 'taken', worker = {worker} WHERE id = {job}"));
    }
    client.ok("COMMIT");
    jobs
}

/// `Client::run` panics if a statement waits for a lock.
#[test]
fn a_queue_is_drained_by_select_then_update() {
    let world = queue();
    let first = "SELECT id FROM jobs WHERE state = 'ready' ORDER BY priority DESC, id LIMIT 1 FOR UPDATE SKIP LOCKED";
    drain(&world, |client, worker| take(client, worker, first));
}

#[test]
fn a_queue_is_drained_by_one_update() {
    let world = queue();
    drain(&world, |client, worker| {
        client.ok(&format!(
            "UPDATE jobs SET state = 'taken', worker = {worker} WHERE id = (SELECT id FROM jobs WHERE state = 'ready' \
             ORDER BY priority DESC, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"
        ));
        ids(client)
    });
}

#[cfg(feature = "query")]
#[test]
fn a_queue_is_drained_by_several_at_a_time() {
    let world = queue();
    drain(&world, |client, worker| {
        client.ok(&format!(
            "WITH picked AS (SELECT id FROM jobs WHERE state = 'ready' ORDER BY priority DESC, id LIMIT 5 \
             FOR UPDATE SKIP LOCKED) UPDATE jobs SET state = 'taken', worker = {worker} FROM picked \
             WHERE jobs.id = picked.id RETURNING jobs.id"
        ));
        ids(client)
    });
}

/// A query of the other road finds the rows; what changed since it looked is looked at again.
#[cfg(feature = "query")]
#[test]
fn a_queue_is_drained_by_a_join() {
    let world = queue();
    world.client().ok("CREATE TABLE wanted (state text)");
    world.client().ok("INSERT INTO wanted VALUES ('ready')");
    let some = "SELECT j.id FROM jobs j JOIN wanted w ON w.state = j.state ORDER BY j.priority DESC, j.id LIMIT 3 \
                FOR UPDATE OF j SKIP LOCKED";
    drain(&world, |client, worker| take(client, worker, some));
}

#[test]
fn rows_are_locked_in_order_and_asked_again() {
    let world = World::new("CREATE TABLE t (id int PRIMARY KEY, v int)");
    world.client().ok("INSERT INTO t VALUES (1, 30), (2, 20), (3, 10)");
    let (mut a, mut b) = (world.client(), world.client());
    a.ok("BEGIN");
    a.ok("UPDATE t SET v = 100 WHERE id = 3");
    // The first in its order is locked: it waits, and then leaves out what no longer meets the condition.
    let wait = b.waits("SELECT id FROM t WHERE v < 50 ORDER BY v LIMIT 1 FOR UPDATE");
    a.ok("COMMIT");
    b.resume(wait).expect("it goes on");
    assert_eq!(ids(&b), [2]);
}
