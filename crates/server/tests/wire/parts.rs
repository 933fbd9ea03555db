//! Results larger than a part: they leave while their query still runs, and say what they would have said whole.

use crate::client::{Client, Reply, bind_formats, execute, parse, query, sqlstate, sync, text_row};
use crate::{Fixture, connect, until};
use std::time::{Duration, Instant};

/// Takes rows up to what follows them; how many there were, all like `expected`.
fn take_rows(client: &mut Client, mut is_expected: impl FnMut(usize, &[Option<String>]) -> bool) -> (usize, Reply) {
    let mut rows = 0;
    loop {
        match client.read() {
            Reply::Columns(_) if rows == 0 => {}
            reply @ Reply::Row(_) => {
                let row = text_row(&reply).expect("it is a row");
                assert!(is_expected(rows, &row), "row {rows}: {row:?}");
                rows += 1;
            }
            other => return (rows, other),
        }
    }
}

/// 300 MB of rows where a query may hold 64 MB, and the database all in all 256.
#[test]
fn a_result_larger_than_the_memory_comes_whole_and_in_order() {
    let fixture = Fixture::new(|_| {});
    let mut client = Client::connect(fixture.server.local_addr());
    client.query("set freshet.query_memory_mb = 64");
    let before = fixture.database.engine().memory_limit().used_bytes;
    client.send(&query("select g, repeat('y', 500) from generate_series(1, 600000) g; select 'next'"));
    let mut most = 0;
    let (rows, end) = take_rows(&mut client, |at, row| {
        if at % 10_000 == 0 {
            most = fixture.database.engine().memory_limit().used_bytes.saturating_sub(before).max(most);
        }
        let [Some(number), Some(text)] = row else { return false };
        *number == (at + 1).to_string() && text.len() == 500
    });
    assert_eq!((rows, end), (600_000, Reply::Complete("SELECT 600000".into())));
    assert!(most < 64 << 20, "{most} bytes were held");
    let (rows, end) = take_rows(&mut client, |_, row| row == [Some("next".to_owned())]);
    assert_eq!((rows, end), (1, Reply::Complete("SELECT 1".into())));
    assert_eq!(client.read(), Reply::Ready('I'));
}

/// Stored rows, by a plan that is made and by one that is kept; in a transaction with its own changes, and binary.
#[test]
fn a_prepared_query_of_a_large_table_counts_the_rows_of_all_parts() {
    let fixture = Fixture::new(|_| {});
    let mut client = Client::connect(fixture.server.local_addr());
    client.query("create table parts_stored(id int primary key, v bigint, note text)");
    client.query("insert into parts_stored select g, g * 3, repeat('n', 100) from generate_series(1, 200000) g");
    client.query("begin");
    client.query("update parts_stored set v = -1 where id % 1000 = 0");
    client.send(&[parse("p", "select id, v, note from parts_stored where id > $1", &[23]), sync()].concat());
    client.until_ready();
    for _ in 0..3 {
        client.send(&[bind_formats("", "p", &[0], &[Some(b"0")], &[1]), execute("", 0), sync()].concat());
        assert_eq!(client.read(), Reply::BindComplete);
        let mut seen = vec![false; 200_001];
        let end = loop {
            let reply = client.read();
            let Reply::Row(row) = reply else { break reply };
            let [Some(id), Some(v), Some(note)] = &row[..] else { panic!("{row:?}") };
            let id = i32::from_be_bytes(id[..].try_into().expect("an int4"));
            let due = if id % 1000 == 0 { -1 } else { i64::from(id) * 3 };
            assert_eq!((i64::from_be_bytes(v[..].try_into().expect("an int8")), note.len()), (due, 100), "row {id}");
            assert!(!std::mem::replace(&mut seen[id as usize], true), "{id} comes twice");
        };
        assert_eq!(end, Reply::Complete("SELECT 200000".into()));
        assert_eq!(client.read(), Reply::Ready('T'));
        assert!(seen[1..].iter().all(|seen| *seen));
    }
    client.query("rollback");
    assert_eq!(client.value("select count(*) from parts_stored where v = -1"), "0");
}

/// What fails at a late row has given the early ones, as in PostgreSQL.
#[test]
fn an_error_behind_parts_ends_the_statement() {
    let mut client = connect();
    let late = "select repeat('z', 100), 1 / (g - 399000) from generate_series(1, 400000) g";
    for (begin, status) in [("select 1", 'I'), ("begin", 'E')] {
        client.query(begin);
        client.send(&query(late));
        let (rows, end) = take_rows(&mut client, |_, _| true);
        assert!(rows < 399_000, "{rows} rows");
        assert!(matches!(&end, Reply::Error(_, state, _) if state == "22012"), "{end:?}");
        assert_eq!(client.read(), Reply::Ready(status));
        client.query("rollback");
        assert_eq!(client.value("select 1"), "1");
    }
}

/// Who would have to be run in another way gives nothing before that is known.
#[test]
fn sums_that_outgrow_their_numbers_are_right() {
    let fixture = Fixture::new(|_| {});
    let mut client = Client::connect(fixture.server.local_addr());
    client.query("create table parts_wide(id int primary key, d numeric(38, 0), note text)");
    client.query("insert into parts_wide select g, g, repeat('n', 100) from generate_series(1, 120000) g");
    client.query("update parts_wide set d = 99999999999999999999999999999999999999 where id = 110000");
    client.send(&query("select d + d, note from parts_wide"));
    let mut largest = String::new();
    let (rows, end) = take_rows(&mut client, |_, row| {
        let sum = row[0].clone().expect("no null");
        if sum.len() > largest.len() {
            largest = sum;
        }
        true
    });
    assert_eq!((rows, end), (120_000, Reply::Complete("SELECT 120000".into())));
    assert_eq!(largest, "199999999999999999999999999999999999998");
    client.until_ready();
}

/// What waits and runs again gives its rows once.
#[test]
fn a_query_that_sleeps_late_gives_each_row_once() {
    let mut client = connect();
    client.send(&query(
        "select g, repeat('s', 100), case when g = 199000 then pg_sleep(0.01) end from generate_series(1, 200000) g",
    ));
    let (rows, end) = take_rows(&mut client, |at, row| row[0] == Some((at + 1).to_string()));
    assert_eq!((rows, end), (200_000, Reply::Complete("SELECT 200000".into())));
    client.until_ready();
}

/// Its snapshot goes with the client, and its own thread is there for the next.
#[test]
fn a_client_that_goes_between_parts_leaves_nothing() {
    let fixture = Fixture::new(|_| {});
    let mut watcher = Client::connect(fixture.server.local_addr());
    watcher.query("create table parts_left(id int primary key, note text)");
    watcher.query("insert into parts_left select g, repeat('n', 200) from generate_series(1, 120000) g");
    let before = fixture.database.engine().memory_limit().used_bytes;
    for _ in 0..5 {
        let mut client = Client::connect(fixture.server.local_addr());
        client.send(&query("select * from parts_left"));
        for _ in 0..100 {
            client.read();
        }
        drop(client);
    }
    let others = "select count(*) from pg_stat_activity where backend_type = 'client backend'";
    until("the clients are gone", || watcher.value(others) == "1");
    until("their memory is free", || {
        fixture.database.engine().memory_limit().used_bytes.saturating_sub(before) < 2 << 20
    });
    assert_eq!(watcher.query("drop table parts_left")[0], Reply::Complete("DROP TABLE".into()));
}

/// Its first rows come long before its last is computed, and a cancel between parts ends it.
#[test]
fn a_query_without_end_gives_rows_until_it_is_cancelled() {
    let fixture = Fixture::new(|_| {});
    let mut client = Client::connect(fixture.server.local_addr());
    let begun = Instant::now();
    client.send(&query("select x, repeat('y', 1000) from generate_series(1, 1000000000) as t(x)"));
    for _ in 0..20_000 {
        assert!(matches!(client.read(), Reply::Columns(_) | Reply::Row(_)));
    }
    assert!(begun.elapsed() < Duration::from_secs(60));
    client.cancel();
    let replies = loop {
        match client.read() {
            Reply::Row(_) => {}
            other => break vec![other, client.read()],
        }
    };
    assert_eq!(sqlstate(&replies), "57014");
    assert_eq!(replies[1], Reply::Ready('I'));
    assert_eq!(client.value("select 1"), "1");
}

/// A client that does not read keeps what its query has yet to read, until others need the room: then it is told, and they have it.
#[test]
fn an_unread_query_gives_way_to_updates() {
    let fixture = Fixture::within(48 << 20, |_| {});
    let mut writer = Client::connect(fixture.server.local_addr());
    writer.query("create table parts_pinned(id int primary key, v int)");
    // As many as there is room for: more than the reserve has room for versions of.
    let mut ids = 0;
    let insert =
        |ids: i32| format!("insert into parts_pinned select g, 0 from generate_series({}, {}) g", ids + 1, ids + 1_000);
    while matches!(writer.query(&insert(ids))[0], Reply::Complete(_)) {
        ids += 1_000;
    }
    let mut unread = Client::connect(fixture.server.local_addr());
    unread.send(&query("select id, v, repeat('n', 1000) from parts_pinned"));
    assert!(matches!(unread.read(), Reply::Columns(_)));
    let end = Instant::now() + Duration::from_secs(60);
    let mut was_refused = false;
    for slice in (0..ids / 1_000).cycle() {
        assert!(Instant::now() < end, "updates go through again, or always did");
        let (from, to) = (slice * 1_000 + 1, slice * 1_000 + 1_000);
        match &writer.query(&format!("update parts_pinned set v = v + 1 where id between {from} and {to}"))[0] {
            Reply::Complete(_) if was_refused => break,
            Reply::Complete(tag) => assert_eq!(tag, "UPDATE 1000"),
            // While the other one has not noticed.
            Reply::Error(_, state, _) => was_refused = state == "53200",
            other => panic!("{other:?}"),
        }
    }
    let (rows, end) = take_rows(&mut unread, |_, row| row[1].as_deref() == Some("0"));
    assert!(rows < ids as usize);
    assert!(matches!(&end, Reply::Error(_, state, _) if state == "72000"), "{end:?} after {rows} rows");
    assert_eq!(unread.read(), Reply::Ready('I'));
    let last = "update parts_pinned set v = -1 where id <= 1000";
    assert_eq!(writer.query(last)[0], Reply::Complete("UPDATE 1000".into()));
}

/// Nothing is committed before the last part: a cancel ends it whatever it has locked.
#[test]
fn what_locks_rows_and_is_not_read_can_be_cancelled() {
    let fixture = Fixture::new(|_| {});
    let mut watcher = Client::connect(fixture.server.local_addr());
    watcher.query("create table parts_locked(id int primary key, note text)");
    watcher.query("insert into parts_locked select g, repeat('n', 400) from generate_series(1, 60000) g");
    watcher.query("set lock_timeout = '20s'");
    let mut unread = Client::connect(fixture.server.local_addr());
    let locking = "select * from (select * from parts_locked for update) s";
    for setup in ["select 1", "set statement_timeout = '300ms'"] {
        unread.query(setup);
        unread.send(&query(locking));
        assert!(matches!(unread.read(), Reply::Columns(_)));
        if setup == "select 1" {
            unread.cancel();
        }
        let update = "update parts_locked set note = '' where id = 60000";
        assert_eq!(watcher.query(update)[0], Reply::Complete("UPDATE 1".into()), "{setup}");
        let (_, end) = take_rows(&mut unread, |_, _| true);
        let is_whole = end == Reply::Complete("SELECT 60000".into());
        assert!(is_whole || matches!(&end, Reply::Error(_, state, _) if state == "57014"), "{setup}: {end:?}");
        unread.read();
    }
}
