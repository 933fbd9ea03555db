//! What happens at the memory limit? Growth is refused; reads, updates and deletes go on; what was dropped comes back.

use freshet_db::{Database, Options, Session, SqlError};
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

struct World {
    db: Database,
    _dir: TempDir,
}

impl World {
    fn new(limit_mib: u64) -> World {
        let dir = tempfile::tempdir().expect("a directory for the database");
        let options =
            Options { memory_limit_bytes: limit_mib << 20, log_size_bytes: 64 << 20, ..Options::small(dir.path()) };
        World { db: Database::open(options).expect("the database opens"), _dir: dir }
    }

    fn session(&self) -> Session {
        self.db.session().expect("a session")
    }

    /// Until garbage collection has caught up.
    fn settle(&self) {
        let left = || {
            let uses = self.db.engine().memory();
            let of_versions = uses.iter().filter(|u| ["versions", "transactions"].contains(&u.kind.as_str()));
            let of_pages = uses.iter().filter(|u| u.object == "dropped tables" && u.kind == "records");
            of_versions.chain(of_pages).map(|u| u.bytes).sum::<u64>()
        };
        for _ in 0..1_000_000 {
            if left() < 1 << 20 {
                return;
            }
            std::thread::yield_now();
        }
        panic!("garbage stays: {:?}", self.db.engine().memory());
    }
}

fn number(session: &mut Session, sql: &str) -> Result<i64, SqlError> {
    let statement = session.prepare(sql)?;
    Ok(session.query(&statement, &[])?.i64(0, 0).expect("a number"))
}

/// Runs a statement that needs no growth, waiting for garbage collection where older versions fill the reserve.
fn run_in_time(session: &mut Session, sql: &str) -> u64 {
    for _ in 0..2000 {
        match session.run(sql) {
            Ok(count) => return count,
            Err(error) if error.sqlstate == "53200" => std::thread::yield_now(),
            Err(error) => panic!("{sql}: {error}"),
        }
    }
    panic!("{sql}: the reserve was never free");
}

/// Inserts rows until there is no more room; gives how many are there.
fn fill(session: &mut Session) -> i64 {
    let mut count = 0;
    let mut step = 4096;
    while step > 0 {
        let (from, to) = (count + 1, count + step);
        let sql = format!(
            "INSERT INTO t SELECT g, 0, 'a note that is long enough to be stored beside its row, number ' || g FROM generate_series({from}, {to}) g"
        );
        match session.run(&sql) {
            Ok(_) => count += step,
            Err(error) => {
                assert_eq!(error.sqlstate, "53200", "{error}");
                step /= 4;
            }
        }
    }
    count
}

const CREATE: &str = "CREATE TABLE t (id bigint PRIMARY KEY, n bigint NOT NULL, note text)";

#[test]
fn at_the_limit_growth_is_refused_and_the_rest_goes_on() {
    let world = World::new(32);
    let mut session = world.session();
    session.run(CREATE).expect("creates");
    let rows = fill(&mut session);
    assert!(rows > 20_000, "{rows}");
    let limit = world.db.engine().memory_limit();
    assert!(limit.used_bytes <= limit.limit_bytes && limit.restart_bytes <= limit.limit_bytes, "{limit:?}");

    // Reads and in-place updates.
    assert_eq!(number(&mut session, "SELECT count(*) FROM t").expect("reads"), rows);
    assert_eq!(number(&mut session, "SELECT n FROM t WHERE id = 1").expect("reads"), 0);
    for _ in 0..1000 {
        run_in_time(&mut session, "UPDATE t SET n = n + 1 WHERE id = 1");
    }
    assert_eq!(number(&mut session, "SELECT n FROM t WHERE id = 1").expect("reads"), 1000);

    // More than the reserve holds at once is refused whole, and leaves nothing.
    match session.run("UPDATE t SET n = n + 1") {
        Ok(count) => assert_eq!(count as i64, rows),
        Err(error) => {
            assert_eq!(error.sqlstate, "53200", "{error}");
            assert_eq!(number(&mut session, "SELECT sum(n)::bigint FROM t").expect("reads"), 1000);
        }
    }

    // Another index is growth.
    let error = session.run("CREATE INDEX t_n ON t (n, id)").expect_err("no room");
    assert_eq!(error.sqlstate, "53200", "{error}");
    let error = session.run("CREATE INDEX t_n ON t USING hash (n)").expect_err("no room");
    assert_eq!(error.sqlstate, "53200", "{error}");

    // What fits the reserve ends, however full the rest is.
    let share = rows / 16;
    let deleted = run_in_time(&mut session, &format!("DELETE FROM t WHERE id <= {share}"));
    assert_eq!(deleted as i64, share);
    for part in 1..16 {
        run_in_time(
            &mut session,
            &format!("DELETE FROM t WHERE id > {} AND id <= {}", part * share, (part + 1) * share),
        );
    }
    run_in_time(&mut session, "DELETE FROM t");
    assert_eq!(number(&mut session, "SELECT count(*) FROM t").expect("reads"), 0);

    // Deleted rows leave their slots: as many fit again.
    world.settle();
    let again = fill(&mut session);
    assert!(again >= rows * 9 / 10, "{again} of {rows}");
    session.run("DROP TABLE t").expect("drops");
    session.run(CREATE).expect("creates");
    world.settle();
    let fresh = fill(&mut session);
    assert!(fresh >= rows * 9 / 10, "{fresh} of {rows}");
}

/// A session whose transaction has read and rests.
fn pin(world: &World) -> Session {
    let mut session = world.session();
    session.run("BEGIN ISOLATION LEVEL REPEATABLE READ").expect("begins");
    number(&mut session, "SELECT 1").expect("reads");
    session
}

#[test]
fn the_oldest_snapshot_makes_room_for_updates() {
    let world = World::new(24);
    let (mut reader, mut writer) = (world.session(), world.session());
    writer.run(CREATE).expect("creates");
    writer.run("INSERT INTO t SELECT g, 0, NULL FROM generate_series(1, 10000) g").expect("inserts");
    reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ").expect("begins");
    assert_eq!(number(&mut reader, "SELECT sum(n)::bigint FROM t").expect("reads"), 0);
    let mut rounds = 0;
    // A snapshot between two updates needs what the first one wrote: without it that would be forgotten.
    let mut between = Vec::new();
    let error = loop {
        run_in_time(&mut writer, "UPDATE t SET n = n + 1");
        between.push(pin(&world));
        rounds += 1;
        if rounds % 8 == 0 {
            // What it reads is its snapshot's, until there is none.
            match number(&mut reader, "SELECT sum(n)::bigint FROM t") {
                Ok(sum) => assert_eq!(sum, 0),
                Err(error) => break error,
            }
        }
        assert!(rounds < 1000, "the versions of a thousand rounds do not fit the limit");
    };
    assert_eq!(error.sqlstate, "72000", "{error}");
    assert_eq!(number(&mut reader, "SELECT 1").expect_err("the transaction has failed").sqlstate, "25P02");
    reader.run("ROLLBACK").expect("rolls back");
    assert_eq!(number(&mut reader, "SELECT min(n) FROM t").expect("reads"), rounds);
}

#[test]
fn a_statement_that_reads_too_long_is_told() {
    let world = World::new(24);
    let mut writer = world.session();
    writer.run(CREATE).expect("creates");
    writer.run("INSERT INTO t SELECT g, 0, NULL FROM generate_series(1, 10000) g").expect("inserts");
    let done = AtomicBool::new(false);
    let error = std::thread::scope(|scope| {
        let read = scope.spawn(|| {
            let mut reader = world.session();
            let read = number(&mut reader, "SELECT sum(n)::bigint FROM t, generate_series(1, 1000000) g");
            done.store(true, Ordering::SeqCst);
            read.expect_err("a thousand million rows take longer than memory lasts")
        });
        let mut between = Vec::new();
        while !done.load(Ordering::SeqCst) {
            // 53200 while the reader has not noticed.
            match writer.run("UPDATE t SET n = n + 1") {
                Ok(_) if between.len() < 100 => between.push(pin(&world)),
                Ok(_) => {}
                Err(error) => assert_eq!(error.sqlstate, "53200", "{error}"),
            }
        }
        read.join().expect("the reader ends")
    });
    assert_eq!(error.sqlstate, "72000", "{error}");
    run_in_time(&mut writer, "UPDATE t SET n = 7");
    assert_eq!(number(&mut writer, "SELECT sum(n)::bigint FROM t").expect("reads"), 70_000);
}

#[test]
fn results_sorts_and_groups_are_refused_before_they_grow() {
    let world = World::new(32);
    let mut session = world.session();
    for sql in [
        "SELECT g, g FROM generate_series(1, 100000000) g",
        "SELECT repeat('x', 1000) FROM generate_series(1, 100000000) g",
        "SELECT g FROM generate_series(1, 100000000) g ORDER BY -g",
        "SELECT DISTINCT g FROM generate_series(1, 100000000) g",
        "SELECT g, count(*) FROM generate_series(1, 100000000) g GROUP BY g",
        "SELECT count(DISTINCT g) FROM generate_series(1, 100000000) g",
        "SELECT count(*) FROM (SELECT g FROM generate_series(1, 100000000) g) s",
    ] {
        let error = number(&mut session, sql).expect_err(sql);
        assert_eq!(error.sqlstate, "53200", "{sql}: {error}");
        assert_eq!(number(&mut session, "SELECT count(*) FROM generate_series(1, 1000)").expect("goes on"), 1000);
    }
    let queries =
        number(&mut session, "SELECT coalesce(sum(bytes), 0)::bigint FROM freshet_memory WHERE kind = 'queries'");
    assert!(queries.expect("reads") < 1 << 20, "what was refused is given back");
}

#[test]
fn a_limit_that_cannot_hold_the_database_is_refused() {
    let dir = tempfile::tempdir().expect("a directory for the database");
    let options =
        |mib: u64| Options { memory_limit_bytes: mib << 20, log_size_bytes: 64 << 20, ..Options::small(dir.path()) };
    let refused = Database::open(options(1)).err().expect("1 MiB is no limit");
    assert!(refused.0.contains("too low"), "{refused}");
    let db = Database::open(options(32)).expect("opens");
    let mut session = db.session().expect("a session");
    session.run(CREATE).expect("creates");
    session.run("INSERT INTO t SELECT g, 0, repeat('x', 500) FROM generate_series(1, 20000) g").expect("inserts");
    drop((session, db));
    let refused = Database::open(options(8)).err().expect("10 MB of rows do not fit 8 MiB");
    assert!(refused.0.contains("memory limit"), "{refused}");
    let db = Database::open(options(32)).expect("opens with what it had");
    let mut session = db.session().expect("a session");
    assert_eq!(number(&mut session, "SELECT count(*) FROM t").expect("reads"), 20_000);
}
