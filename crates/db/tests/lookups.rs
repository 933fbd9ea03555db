//! Do the short ways of a SELECT by key give what the long ones give? One key, a list, many sets of parameters, in both indexes, against a scan
//! that no index answers, while rows change, move to other keys, go and come.

use freshet_db::{Database, Datum, IntoDatum, Options, Session, Value};
use std::sync::atomic::{AtomicBool, Ordering};

struct World {
    db: Database,
    _dir: tempfile::TempDir,
}

fn world(rows: i64) -> World {
    let dir = tempfile::tempdir().expect("a directory for the database");
    let db = Database::open(Options::small(dir.path())).expect("the database opens");
    let mut session = db.session().expect("a session");
    session
        .run("create table t (id bigint primary key, a bigint, b int, name text) with (primary_key = hash)")
        .expect("creates");
    session.run("create unique index t_a on t (a); create unique index t_b on t (b, id); create unique index t_n on t using hash (name)").expect("creates");
    let insert = session.prepare("insert into t values ($1, $2, $3, $4)").expect("plans");
    for id in 0..rows {
        let name = format!("the name of number {id}");
        session
            .execute(&insert, &[id.into_datum(), (id * 3).into_datum(), (id % 7).into_datum(), name.into_datum()])
            .expect("inserts");
    }
    World { db, _dir: dir }
}

/// The ids that a query gives, in order.
fn ids(session: &mut Session, sql: &str, parameters: &[Datum]) -> Vec<i64> {
    let statement = session.prepare(sql).expect("plans");
    let rows = session.query(&statement, parameters).expect("reads");
    let mut ids: Vec<i64> = (0..rows.len()).map(|row| rows.i64(row, 0).expect("a number")).collect();
    ids.sort_unstable();
    ids
}

/// All ways to ask for one column's values agree.
fn agree(session: &mut Session, column: &str, values: &[Datum]) {
    let by_key = format!("select id, name, b from t where {column} = $1");
    let scanned = format!("select id, name, b from t where {column} + 0 = $1");
    let select = session.prepare(&by_key).expect("plans");
    let sets: Vec<[Datum; 1]> = values.iter().map(|value| [value.clone()]).collect();
    let sets: Vec<&[Datum]> = sets.iter().map(|set| set.as_slice()).collect();
    let found = session.query_many(&select, &sets).expect("reads");
    let many: Vec<Vec<i64>> =
        (0..sets.len()).map(|i| found.of(i).map(|row| found.rows().i64(row, 0).expect("a number")).collect()).collect();
    let mut all = Vec::new();
    for (set, many) in sets.iter().zip(many) {
        let expected = ids(session, &scanned, set);
        assert_eq!(ids(session, &by_key, set), expected, "{column} = {set:?}");
        assert_eq!(many, expected, "{column} = {set:?} among many");
        all.extend(expected);
    }
    all.sort_unstable();
    all.dedup();
    let marks: Vec<String> = (1..=values.len()).map(|i| format!("${i}")).collect();
    let list = format!("select id, name from t where {column} in ({})", marks.join(", "));
    assert_eq!(ids(session, &list, values), all, "{column} in a list");
    let longer = format!("select id from t where {column} in ({}) and b >= 0 order by id", marks.join(", "));
    assert_eq!(ids(session, &longer, values), all, "{column} in a list with more to it");
}

fn numbers(range: std::ops::Range<i64>) -> Vec<Datum> {
    range.map(|v| ((v * 37) % 401 - 3).into_datum()).chain([Datum::Null, 5.into_datum(), 5.into_datum()]).collect()
}

#[test]
fn every_way_to_look_up_gives_the_same() {
    let world = world(300);
    let mut session = world.db.session().expect("a session");
    agree(&mut session, "id", &numbers(0..100));
    agree(&mut session, "a", &numbers(0..100));
    session.run("delete from t where id % 5 = 0; update t set a = a + 1 where id % 3 = 0; update t set a = null where id % 7 = 1").expect("changes");
    session.run("insert into t values (0, 1000, 2, 'new'), (5, 30, 2, null)").expect("inserts");
    agree(&mut session, "id", &numbers(0..100));
    agree(&mut session, "a", &numbers(0..100));
}

#[test]
fn within_a_transaction_its_own_changes_are_found() {
    let world = world(50);
    let mut session = world.db.session().expect("a session");
    session.run("begin").expect("begins");
    session.run("update t set a = 1001 where id = 7").expect("updates");
    assert_eq!(ids(&mut session, "select id from t where a in ($1, $2)", &[1001.into_datum(), 21.into_datum()]), [7]);
    assert_eq!(ids(&mut session, "select id from t where a = $1", &[1001.into_datum()]), [7]);
    session.run("rollback").expect("rolls back");
    assert_eq!(ids(&mut session, "select id from t where a in ($1, $2)", &[1001.into_datum(), 21.into_datum()]), [7]);
    assert_eq!(ids(&mut session, "select id from t where a = $1", &[1001.into_datum()]), [0; 0]);
}

#[test]
fn keys_of_several_columns_and_of_text() {
    let world = world(60);
    let mut session = world.db.session().expect("a session");
    let by_both = "select id from t where b = $1 and id in ($2, $3, $4)";
    let keys = [3.into_datum(), 10.into_datum(), 11.into_datum(), 17.into_datum()];
    assert_eq!(ids(&mut session, by_both, &keys), [10, 17]);
    let names = ["the name of number 12".into_datum(), "nobody's".into_datum(), "the name of number 59".into_datum()];
    assert_eq!(ids(&mut session, "select id from t where name in ($1, $2, $3)", &names), [12, 59]);
    assert_eq!(ids(&mut session, "select id from t where name = $1", &names[2..]), [59]);
    let select = session.prepare("select name from t where name = $1").expect("plans");
    let rows = session.query(&select, &names[..1]).expect("reads");
    assert_eq!(rows.get(0, 0), Value::Bytes(b"the name of number 12"));
}

#[test]
fn a_schema_that_changed_is_noticed() {
    let world = world(20);
    let (mut session, mut other) = (world.db.session().expect("a session"), world.db.session().expect("another"));
    let select = session.prepare("select a from t where id = $1").expect("plans");
    assert_eq!(session.query(&select, &[4.into_datum()]).expect("reads").i64(0, 0), Some(12));
    other.run("truncate t").expect("empties");
    assert!(session.query(&select, &[4.into_datum()]).expect("reads").is_empty());
    other.run("drop table t").expect("drops");
    let error = session.query(&select, &[4.into_datum()]).map(|rows| rows.len()).expect_err("there is no such table");
    assert_eq!(error.sqlstate, "42P01");
}

/// Whoever commits reads what it committed, and sees nothing go back: while another session's commits move the horizon.
#[test]
fn a_session_reads_what_it_wrote() {
    let world = world(10);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = world.db.session().expect("a session");
            let update = other.prepare("update t set b = b + 1 where id = 9").expect("plans");
            while !stop.load(Ordering::Relaxed) {
                other.execute_ticket(&update, &[]).expect("updates");
            }
        });
        let mut session = world.db.session().expect("a session");
        let update = session.prepare("update t set b = $1 where id = 1").expect("plans");
        let select = session.prepare("select b from t where id = $1").expect("plans");
        let mut last = 0;
        for i in 0..500 {
            session.execute_ticket(&update, &[i.into_datum()]).expect("updates");
            assert_eq!(session.query(&select, &[1.into_datum()]).expect("reads").i64(0, 0), Some(i));
            let others = session.query(&select, &[9.into_datum()]).expect("reads").i64(0, 0).expect("a number");
            assert!(others >= last, "{others} after {last}");
            last = others;
        }
        stop.store(true, Ordering::Relaxed);
    });
}
