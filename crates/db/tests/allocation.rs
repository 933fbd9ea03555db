//! Does a prepared statement allocate in steady state? Counted by this thread's allocator, which also counts what grows.

#[path = "../../engine/tests/counting/mod.rs"]
mod counting;

use freshet_db::{Database, Datum, IntoDatum, Options, Session, Statement};

const ROWS: i64 = 200;

struct World {
    session: Session,
    _db: Database,
    _dir: tempfile::TempDir,
}

fn world() -> World {
    let dir = tempfile::tempdir().expect("a directory for the database");
    let db = Database::open(Options::small(dir.path())).expect("the database opens");
    let mut session = db.session().expect("a session");
    session
        .run("create table t (id bigint primary key, a bigint not null, b int, note text) with (primary_key = hash)")
        .expect("creates");
    session.run("create unique index t_a on t (a)").expect("creates");
    let insert = session.prepare("insert into t values ($1, $2, $3, $4)").expect("plans");
    for id in 0..ROWS {
        let values =
            [id.into_datum(), (id * 10).into_datum(), 7.into_datum(), "a note of more than twelve bytes".into_datum()];
        session.execute(&insert, &values).expect("inserts");
    }
    World { session, _db: db, _dir: dir }
}

/// Allocations of `runs` runs, after as many that may still grow buffers.
fn allocations(runs: i64, mut run: impl FnMut(i64)) -> u64 {
    (0..runs).for_each(&mut run);
    let before = counting::allocations();
    (0..runs).for_each(&mut run);
    counting::allocations() - before
}

fn one(session: &mut Session, statement: &Statement, parameters: &[Datum]) -> i64 {
    let rows = session.query(statement, parameters).expect("reads");
    assert_eq!(rows.len(), 1);
    rows.i64(0, 0).expect("a number")
}

/// Where a loop allocates, the counter counts: this test of the tests would fail without it.
#[test]
fn the_counter_counts() {
    assert_eq!(allocations(10, |i| drop(std::hint::black_box(vec![i]))), 10);
}

#[test]
fn a_select_by_key_allocates_nothing() {
    let mut world = world();
    for sql in ["select a from t where id = $1", "select a, note, b from t where id = $1"] {
        let select = world.session.prepare(sql).expect("plans");
        let count = allocations(ROWS, |id| assert_eq!(one(&mut world.session, &select, &[Datum::Int(id)]), id * 10));
        assert_eq!(count, 0, "{sql}");
    }
}

#[test]
fn a_select_by_key_of_an_ordered_index_allocates_nothing() {
    let mut world = world();
    let select = world.session.prepare("select id from t where a = $1").expect("plans");
    let count = allocations(ROWS, |id| assert_eq!(one(&mut world.session, &select, &[Datum::Int(id * 10)]), id));
    assert_eq!(count, 0);
}

#[test]
fn a_range_of_an_index_allocates_nothing() {
    let mut world = world();
    for sql in [
        "select id, b from t where a >= $1 order by a limit 60",
        "select id, a, note from t where a <= $1 order by a desc limit 60",
        "select id from t where a between $1 and $1 + 700",
    ] {
        let select = world.session.prepare(sql).expect("plans");
        let count = allocations(ROWS, |id| {
            let rows = world.session.query(&select, &[Datum::Int(id * 10)]).expect("reads");
            assert_eq!(rows.i64(0, 0), Some(id), "{sql}");
        });
        assert_eq!(count, 0, "{sql}");
    }
}

#[test]
fn a_select_by_a_key_that_is_not_there_allocates_nothing() {
    let mut world = world();
    let select = world.session.prepare("select a from t where id = $1").expect("plans");
    let count = allocations(ROWS, |id| {
        let rows = world.session.query(&select, &[Datum::Int(id + ROWS)]).expect("reads");
        assert!(rows.is_empty());
    });
    assert_eq!(count, 0);
}

#[test]
fn a_select_by_a_list_of_keys_allocates_nothing() {
    let mut world = world();
    let select = world.session.prepare("select id, a from t where id in ($1, $2, $3, $4)").expect("plans");
    let count = allocations(ROWS - 3, |id| {
        let keys = [Datum::Int(id + 2), Datum::Int(id), Datum::Int(id + 3), Datum::Int(id)];
        let rows = world.session.query(&select, &keys).expect("reads");
        assert_eq!(rows.len(), 3);
        assert_eq!(rows.i64(2, 1), Some((id + 3) * 10));
    });
    assert_eq!(count, 0);
}

#[test]
fn many_sets_of_parameters_allocate_nothing() {
    let mut world = world();
    let select = world.session.prepare("select a from t where id = $1").expect("plans");
    let count = allocations(ROWS - 2, |id| {
        let keys = [[Datum::Int(id)], [Datum::Int(-1)], [Datum::Int(id + 2)]];
        let found = world.session.query_many(&select, &[&keys[0], &keys[1], &keys[2]]).expect("reads");
        assert_eq!((found.of(0), found.of(1), found.of(2)), (0..1, 1..1, 1..2));
        assert_eq!(found.rows().i64(1, 0), Some((id + 2) * 10));
    });
    assert_eq!(count, 0);
}

/// Allocations of so many commits, after as many that may still grow buffers. Each gives its ticket; every hundredth is waited for.
fn allocations_of_commits(
    world: &mut World,
    runs: i64,
    mut run: impl FnMut(&mut Session, i64) -> freshet_db::Ticket,
) -> u64 {
    let mut count = 0;
    for at in 0..2 * runs {
        let before = counting::allocations();
        let ticket = run(&mut world.session, at);
        count += if at < runs { 0 } else { counting::allocations() - before };
        if at % 100 == 99 {
            // Whoever waits may write the log himself, group by group.
            world._db.wait(ticket).expect("durable");
        }
    }
    count
}

/// What piles up until the next flush (garbage, staged records) grows now and then, and is used again: few of many commits allocate.
#[test]
fn a_commit_allocates_next_to_nothing() {
    let mut world = world();
    let update = world.session.prepare("update t set b = b + 1 where id = $1").expect("plans");
    let runs = 4_000;
    let count = allocations_of_commits(&mut world, runs, |session, at| {
        let (changed, ticket) = session.execute_ticket(&update, &[Datum::Int(at % ROWS)]).expect("updates");
        assert_eq!(changed, 1);
        ticket
    });
    assert!(count < runs as u64 / 20, "{count} allocations in {runs} commits");
}

#[test]
fn an_insert_and_a_delete_allocate_next_to_nothing() {
    let mut world = world();
    world.session.run("create table k (id bigint primary key, a bigint) with (primary_key = hash)").expect("creates");
    let insert = world.session.prepare("insert into k values ($1, $2)").expect("plans");
    let delete = world.session.prepare("delete from k where id = $1").expect("plans");
    let runs = 4_000;
    let count = allocations_of_commits(&mut world, runs, |session, at| {
        let (changed, ticket) = session.execute_ticket(&insert, &[Datum::Int(at), Datum::Int(7)]).expect("inserts");
        assert_eq!(changed, 1);
        ticket
    });
    let of_deletes = allocations_of_commits(&mut world, runs, |session, at| {
        let (changed, ticket) = session.execute_ticket(&delete, &[Datum::Int(at)]).expect("deletes");
        assert_eq!(changed, 1);
        ticket
    });
    assert!(count < runs as u64 / 20 && of_deletes < runs as u64 / 20, "{count} and {of_deletes} in {runs} commits");
}

/// What the longer way of a row may allocate: three or less were counted.
const OF_A_ROW_MAX: u64 = 4;

/// Long values, and transactions of several statements.
#[test]
fn the_longer_ways_allocate_little() {
    let mut world = world();
    let [insert, delete, update, select] = [
        "insert into t values ($1, $2, $3, $4)",
        "delete from t where id = $1",
        "update t set b = b + 1 where id = $1",
        "select b from t where id = $1",
    ]
    .map(|sql| world.session.prepare(sql).expect("plans"));
    let [begin, commit] = ["begin", "commit"].map(|sql| world.session.prepare(sql).expect("plans"));
    let runs = 1_000;
    // The text that is given as a parameter is the caller's.
    let of_inserts = allocations_of_commits(&mut world, runs, |session, at| {
        let [id, a, b] = [ROWS + at, at * 10 + 1, 7].map(Datum::Int);
        let values = [id, a, b, "a note of more than twelve bytes".into_datum()];
        session.execute_ticket(&insert, &values).expect("inserts").1
    });
    let of_deletes = allocations_of_commits(&mut world, runs, |session, at| {
        session.execute_ticket(&delete, &[Datum::Int(ROWS + at)]).expect("deletes").1
    });
    let of_transactions = allocations_of_commits(&mut world, runs, |session, at| {
        let mut transaction = session.begin().expect("begins");
        transaction.query(&select, &[Datum::Int(at % ROWS)]).expect("reads");
        transaction.execute(&update, &[Datum::Int(at % ROWS)]).expect("updates");
        transaction.commit_ticket().expect("commits")
    });
    let of_prepared = allocations_of_commits(&mut world, runs, |session, at| {
        session.execute_ticket(&begin, &[]).expect("begins");
        session.execute_ticket(&update, &[Datum::Int(at % ROWS)]).expect("updates");
        session.execute_ticket(&commit, &[]).expect("commits").1
    });
    let counted = [of_inserts, of_deletes, of_transactions, of_prepared];
    assert!(counted.iter().all(|count| *count < OF_A_ROW_MAX * runs as u64), "{counted:?} in {runs} runs each");
}

/// Whoever waits alone gathers and writes a group by himself: five allocations were counted for each group, of however many commits.
#[test]
fn a_durable_change_allocates_for_its_group_only() {
    const OF_A_GROUP_MAX: u64 = 8;
    let mut world = world();
    let update = world.session.prepare("update t set b = b + 1 where id = $1").expect("plans");
    let runs = 500;
    let count = allocations(runs, |at| {
        assert_eq!(world.session.execute(&update, &[Datum::Int(at % ROWS)]).expect("updates"), 1);
    });
    assert!(count < OF_A_GROUP_MAX * runs as u64, "{count} allocations in {runs} groups");
}
