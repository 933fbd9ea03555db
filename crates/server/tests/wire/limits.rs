//! Waits and what ends them: cancel, time limits, the death of a client.

use crate::client::*;
use crate::{Fixture, WORKERS, connect};
use std::time::{Duration, Instant};

/// A session that holds the lock of row 1, and a second row.
fn holder(table: &str) -> Client {
    let mut client = connect();
    client.query(&format!("create table {table}(id int primary key, v int)"));
    client.query(&format!("insert into {table} values (1, 0), (2, 0)"));
    client.query("begin");
    client.query(&format!("update {table} set v = 1 where id = 1"));
    client
}

#[test]
fn a_blocked_statement_waits_and_then_runs() {
    let mut holder = holder("limit_wait");
    let mut waiter = connect();
    waiter.send(&query("update limit_wait set v = v + 10 where id = 1"));
    // Whoever shares the worker goes on meanwhile.
    for _ in 0..8 {
        assert_eq!(connect().value("select v from limit_wait where id = 2"), "0");
    }
    assert!(!waiter.hears_within(Duration::from_millis(20)));
    holder.query("commit");
    assert_eq!(waiter.until_ready(), [Reply::Complete("UPDATE 1".into()), Reply::Ready('I')]);
    assert_eq!(waiter.value("select v from limit_wait where id = 1"), "11");
}

#[test]
fn a_cancel_request_ends_the_wait() {
    let mut holder = holder("limit_cancel");
    let mut waiter = connect();
    waiter.query("begin");
    waiter.send(&query("update limit_cancel set v = 2 where id = 1"));
    // A request that comes before the statement has nothing to cancel, so ask until it is heard.
    loop {
        waiter.cancel();
        if waiter.hears_within(Duration::from_millis(10)) {
            break;
        }
    }
    let replies = waiter.until_ready();
    assert_eq!(sqlstate(&replies), "57014");
    assert_eq!(replies.last(), Some(&Reply::Ready('E')));
    waiter.query("rollback");
    assert_eq!(waiter.value("select 1"), "1");
    holder.query("rollback");
    assert_eq!(waiter.value("select v from limit_cancel where id = 1"), "0");
}

/// A cancellation that took effect is answered sooner.
const RESENT_AFTER: Duration = Duration::from_millis(500);

/// Runs for minutes, within one thread.
const ENDLESS: &str = "select count(*) from generate_series(1, 10000000000)";

#[test]
fn a_long_statement_holds_nobody_up_and_can_be_cancelled() {
    // One for each worker.
    let mut long: Vec<Client> = (0..WORKERS).map(|_| connect()).collect();
    long.iter_mut().for_each(|client| client.send(&query(ENDLESS)));
    for _ in 0..8 {
        assert_eq!(connect().value("select 1"), "1");
    }
    for client in &mut long {
        // Where a worker has not read the statement yet, there is nothing to cancel.
        while !client.hears_within(RESENT_AFTER) {
            client.cancel();
        }
        assert_eq!(sqlstate(&client.until_ready()), "57014");
        assert_eq!(client.value("select 2"), "2");
    }
}

#[test]
fn a_long_change_is_made_once_and_in_its_transaction() {
    let mut client = connect();
    client.query("create table limit_long(id int primary key, v int)");
    client.query("begin");
    let inserted = client.query("insert into limit_long select x, 0 from generate_series(1, 50000) as t(x)");
    assert_eq!(inserted, [Reply::Complete("INSERT 0 50000".into()), Reply::Ready('T')]);
    assert_eq!(connect().value("select count(*) from limit_long"), "0");
    client.query("update limit_long set v = v + 1");
    client.query("create index limit_long_v on limit_long(v)");
    assert_eq!(client.value("select count(*) from limit_long where v = 1"), "50000");
    client.query("commit");
    assert_eq!(connect().value("select sum(v) from limit_long"), "50000");
}

#[test]
fn a_long_statement_ends_with_its_time_or_its_client() {
    let mut client = connect();
    client.query("create table limit_gone(id int primary key)");
    client.query("set statement_timeout = '30ms'");
    assert_eq!(client.sqlstate(ENDLESS), "57014");
    client.query("set statement_timeout = 0");
    client.query("begin");
    client.query("insert into limit_gone values (1)");
    client.send(&query(ENDLESS));
    drop(client);
    // Waits for the lock of the row that the dead client inserted.
    assert_eq!(connect().query("insert into limit_gone values (1)")[0], Reply::Complete("INSERT 0 1".into()));
}

#[test]
fn replies_do_not_wait_for_the_long_statement_behind_them() {
    let mut client = connect();
    client.query("create table limit_before(id int primary key)");
    client.send(&[query("insert into limit_before values (1)"), query(ENDLESS)].concat());
    assert_eq!(client.until_ready(), [Reply::Complete("INSERT 0 1".into()), Reply::Ready('I')]);
    client.cancel();
    assert_eq!(sqlstate(&client.until_ready()), "57014");
}

/// Whether it is found while rows are changed or in the wait that follows.
#[test]
fn a_cancel_request_during_a_long_change_ends_the_wait_behind_it() {
    let mut holder = connect();
    holder.query("create table limit_late(id int primary key, v int)");
    holder.query("insert into limit_late select x, 0 from generate_series(1, 100000) as t(x)");
    holder.query("begin");
    holder.query("update limit_late set v = 1 where id = 100000");
    let mut witness = connect();
    witness.query("set lock_timeout = '1ms'");
    let mut long = connect();
    long.send(&query("update limit_late set v = v + 1"));
    while witness.query("update limit_late set v = v where id = 1")[0] == Reply::Complete("UPDATE 1".into()) {}
    long.cancel();
    assert_eq!(sqlstate(&long.until_ready()), "57014");
    holder.query("rollback");
    assert_eq!(long.value("select count(*) from limit_late where v = 0"), "100000");
}

#[test]
fn a_wrong_secret_cancels_nothing() {
    let mut client = connect();
    let key = client.key.as_mut().expect("a key");
    key.secret_key = pgwire::messages::startup::SecretKey::I32(0);
    client.cancel();
    assert_eq!(client.value("select 1"), "1");
}

#[test]
fn time_limits_end_the_wait() {
    let _holder = holder("limit_time");
    let mut waiter = connect();
    waiter.query("set lock_timeout = '20ms'");
    assert_eq!(waiter.sqlstate("update limit_time set v = 2 where id = 1"), "55P03");
    waiter.query("set lock_timeout = 0");
    waiter.query("set statement_timeout = '20ms'");
    assert_eq!(waiter.sqlstate("update limit_time set v = 2 where id = 1"), "57014");
    assert_eq!(
        waiter.query("update limit_time set v = 2 where id = 2"),
        [Reply::Complete("UPDATE 1".into()), Reply::Ready('I')]
    );
}

#[test]
fn a_client_that_dies_gives_its_locks_back() {
    let holder = holder("limit_death");
    let mut waiter = connect();
    waiter.send(&query("update limit_death set v = v + 10 where id = 1"));
    drop(holder);
    assert_eq!(waiter.until_ready(), [Reply::Complete("UPDATE 1".into()), Reply::Ready('I')]);
    assert_eq!(waiter.value("select v from limit_death where id = 1"), "10");
}

#[test]
fn a_client_that_dies_while_it_waits_gives_its_locks_back() {
    let mut holder = holder("limit_death_waiting");
    let mut dying = connect();
    dying.query("begin");
    dying.query("update limit_death_waiting set v = 5 where id = 2");
    dying.send(&query("update limit_death_waiting set v = 5 where id = 1"));
    assert!(!dying.hears_within(Duration::from_millis(20)));
    drop(dying);
    let mut next = connect();
    assert_eq!(
        next.query("update limit_death_waiting set v = v + 1 where id = 2"),
        [Reply::Complete("UPDATE 1".into()), Reply::Ready('I')]
    );
    assert_eq!(next.value("select v from limit_death_waiting where id = 2"), "1");
    holder.query("commit");
}

/// A client that sends much and reads nothing does not make the server hold its answers.
#[test]
fn a_client_that_does_not_read_is_not_served_further() {
    let mut client = connect();
    client.query("create table limit_unread(id int primary key)");
    let large = query("select x from generate_series(1, 20000) as t(x)");
    let rounds = 40;
    let mut writer = client;
    let pipeline: Vec<u8> = std::iter::repeat_n(large, rounds).flatten().collect();
    writer.send(&pipeline);
    assert_eq!(connect().value("select 1"), "1", "others are served");
    for _ in 0..rounds {
        assert_eq!(writer.until_ready().len(), 20_003);
    }
}

#[test]
fn deadlocks_are_told_to_one_of_the_two() {
    let mut first = holder("limit_deadlock");
    let mut second = connect();
    second.query("begin");
    second.query("update limit_deadlock set v = 1 where id = 2");
    first.send(&query("update limit_deadlock set v = 2 where id = 2"));
    second.send(&query("update limit_deadlock set v = 2 where id = 1"));
    // The victim's locks go with its error, so that the other goes on without a word from anybody.
    let ends = [first.until_ready(), second.until_ready()];
    let victims = ends.iter().filter(|replies| matches!(&replies[0], Reply::Error(_, state, _) if state == "40P01"));
    assert_eq!(victims.count(), 1, "{ends:?}");
    let winners = ends.iter().filter(|replies| replies[0] == Reply::Complete("UPDATE 1".into()));
    assert_eq!(winners.count(), 1, "{ends:?}");
}

/// A third session sees who waits for whom, and ends first the wait, then the session.
#[test]
fn who_waits_is_seen_and_can_be_told() {
    let mut holder = holder("limit_seen");
    let (mut waiter, mut watcher) = (connect(), connect());
    let (by, of) = (holder.value("select pg_backend_pid()"), waiter.value("select pg_backend_pid()"));
    waiter.query("set application_name = 'limit_seen'");
    waiter.send(&query("update limit_seen set v = 2 where id = 1"));
    assert!(!waiter.hears_within(Duration::from_millis(50)));
    assert_eq!(watcher.value(&format!("select pg_blocking_pids({of})")), format!("{{{by}}}"));
    let is_blocked = |by: &str| format!("select pg_isolation_test_session_is_blocked({of}, '{{{by}}}')");
    assert_eq!(watcher.value(&is_blocked(&by)), "t");
    assert_eq!(watcher.value(&is_blocked("0")), "f");
    let states = "select state, wait_event_type, query from pg_stat_activity where application_name = 'limit_seen'";
    let cell = |text: &str| Some(text.to_owned());
    let update = "update limit_seen set v = 2 where id = 1";
    assert_eq!(watcher.rows(states), [[cell("active"), cell("Lock"), cell(update)]]);
    let state = watcher.value(&format!("select state from pg_stat_activity where pid = {by}"));
    assert_eq!(state, "idle in transaction");
    let waits = format!("select count(*) from pg_locks where pid = {of} and not granted");
    assert_eq!(watcher.value(&waits), "1");
    assert_eq!(watcher.value(&format!("select pg_cancel_backend({of})")), "t");
    let ended = waiter.until_ready();
    assert!(matches!(&ended[0], Reply::Error(_, state, _) if state == "57014"), "{ended:?}");
    assert_eq!(watcher.value(&waits), "0");
    assert_eq!(watcher.value("select pg_cancel_backend(2147483647)"), "f");
    assert_eq!(watcher.value(&format!("select pg_terminate_backend({of})")), "t");
    assert!(matches!(waiter.read(), Reply::Error(_, state, _) if state == "57P01"));
    holder.query("rollback");
}

/// A change on a thread of its own is told of its session's end as the session is, and of nothing else.
#[test]
fn a_session_that_changes_many_rows_ends_with_one_error() {
    let (mut worker, mut watcher) = (connect(), connect());
    let pid = worker.value("select pg_backend_pid()");
    worker.query("create table limit_many(id int primary key, v bigint)");
    worker.query("insert into limit_many select g, 0 from generate_series(1, 10000) g");
    worker.send(&query(
        "begin; update limit_many set v = 1;
        insert into limit_many select g, 0 from generate_series(1, 2000000000) g where g < 0 or sin(g) > 2",
    ));
    let runs =
        format!("select count(*) from pg_stat_activity where pid = {pid} and query like '%insert into limit_many%'");
    while watcher.value(&runs) != "1" {
        let failed = worker.hears_within(Duration::from_millis(5)) && matches!(worker.read(), Reply::Error(..));
        assert!(!failed, "it does not run");
    }
    assert_eq!(watcher.value(&format!("select pg_terminate_backend({pid})")), "t");
    let ended = worker.until_ready();
    let ended: Vec<_> = ended.iter().filter(|reply| !matches!(reply, Reply::Complete(_))).collect();
    let [Reply::Error(severity, state, _), Reply::Closed] = ended[..] else { panic!("{ended:?}") };
    assert_eq!((severity.as_str(), state.as_str()), ("FATAL", "57P01"));
    assert_eq!(watcher.value("select count(*) from limit_many where v <> 0"), "0");
    assert_eq!(watcher.query("update limit_many set v = 1 where id = 1")[0], Reply::Complete("UPDATE 1".into()));
}

#[test]
fn a_transaction_in_which_nothing_happens_is_ended() {
    let mut idle = connect();
    idle.query("set idle_in_transaction_session_timeout = 50");
    assert!(!idle.hears_within(Duration::from_millis(200)), "there is none");
    idle.query("begin");
    idle.query("select pg_advisory_xact_lock(250303)");
    assert!(matches!(idle.read(), Reply::Error(_, state, _) if state == "25P03"));
    let mut next = connect();
    next.query("set lock_timeout = '5s'");
    assert_eq!(next.rows("select pg_advisory_xact_lock(250303)").len(), 1, "it is free");
}

/// What it has locked is locked until its Sync.
#[test]
fn a_pipeline_without_sync_in_which_nothing_happens_is_ended() {
    let mut idle = connect();
    idle.query("set idle_in_transaction_session_timeout = 200");
    idle.send(
        &[parse("", "select pg_advisory_xact_lock(250304)", &[]), bind_text("", "", &[]), execute("", 0)].concat(),
    );
    let last = loop {
        match idle.read() {
            Reply::Error(_, state, _) => break state,
            Reply::Closed => panic!("it is told why"),
            _ => {}
        }
    };
    assert_eq!(last, "25P03");
    let mut next = connect();
    next.query("set lock_timeout = '5s'");
    assert_eq!(next.rows("select pg_advisory_xact_lock(250304)").len(), 1, "it is free");
}

/// Commits of one burst are made durable together, each with its own acknowledgement.
#[test]
fn a_pipeline_of_commits_costs_few_flushes() {
    const COMMITS: u64 = 200;
    let fixture = Fixture::new(|_| {});
    let mut client = Client::connect(fixture.server.local_addr());
    client.query("create table limit_flush(id int primary key)");
    client.send(&[parse("ins", "insert into limit_flush values ($1)", &[]), sync()].concat());
    client.until_ready();
    let before = fixture.database.stats();
    let insert = |id: u64| [bind_text("", "ins", &[&id.to_string()]), execute("", 0), sync()].concat();
    client.send(&(0..COMMITS).flat_map(insert).collect::<Vec<u8>>());
    for _ in 0..COMMITS {
        assert_eq!(client.until_ready()[1], Reply::Complete("INSERT 0 1".into()));
    }
    let after = fixture.database.stats();
    assert_eq!(after.commit_records - before.commit_records, COMMITS);
    let groups = after.groups - before.groups;
    assert!((1..=COMMITS / 4).contains(&groups), "{groups} groups for {COMMITS} commits");
}

/// More of them than there are threads for sessions and for long statements, and nobody is held up; each can be told to end at once.
#[test]
fn who_sleeps_holds_nobody_up_and_can_be_woken() {
    const SLEEP: &str = "select pg_sleep(3600), 'sleeper'";
    let mut sleepers: Vec<Client> = (0..8 * WORKERS).map(|_| connect()).collect();
    let pids: Vec<String> = sleepers.iter_mut().map(|client| client.value("select pg_backend_pid()")).collect();
    sleepers.iter_mut().for_each(|client| client.send(&query(SLEEP)));
    let mut other = connect();
    let asleep = format!(
        "select count(*) from pg_stat_activity where query = '{}' and wait_event_type = 'Timeout' and wait_event = 'PgSleep' and state = 'active'",
        SLEEP.replace('\'', "''")
    );
    while other.value(&asleep) != sleepers.len().to_string() {}
    for _ in 0..8 {
        assert_eq!(connect().value("select 1"), "1");
    }
    assert_eq!(
        other.value("select count(*) from generate_series(1, 200000)"),
        "200000",
        "a long statement has its place"
    );
    let woken = Instant::now();
    for (i, client) in sleepers.iter_mut().enumerate() {
        if i % 2 == 0 {
            client.cancel();
        } else {
            assert_eq!(other.value(&format!("select pg_cancel_backend({})", pids[i])), "t");
        }
        assert_eq!(sqlstate(&client.until_ready()), "57014");
        assert_eq!(client.value("select 2"), "2");
    }
    assert!(woken.elapsed() < Duration::from_secs(10), "{:?}", woken.elapsed());
    assert_eq!(other.value(&asleep), "0");
    other.query("set statement_timeout = '50ms'");
    let began = Instant::now();
    assert_eq!(other.sqlstate("select pg_sleep(3600)"), "57014");
    assert!((Duration::from_millis(50)..Duration::from_secs(5)).contains(&began.elapsed()), "{:?}", began.elapsed());
    other.query("set statement_timeout = 0; set lock_timeout = '10ms'");
    assert_eq!(other.value("select count(pg_sleep(0.03))"), "1", "no lock is waited for");
}

/// Statements that take a while, each of another kind: what of them is long is the sort, the groups, the rewrite of the table.
const OF_EVERY_KIND: [&str; 11] = [
    "select id from limit_kinds order by s offset 99990",
    "select s from limit_kinds order by s limit 50000 offset 49990",
    "select a.id from limit_kinds a join limit_kinds b on b.id = a.id order by a.s offset 99990",
    "select s, count(*) from limit_kinds group by s order by s offset 99990",
    "select distinct s from limit_kinds order by s offset 99990",
    "select count(distinct s) from limit_kinds",
    "copy (select id from limit_kinds order by s offset 99990) to stdout",
    "update limit_kinds set v = v + 1",
    "alter table limit_kinds alter column v type bigint using v + 1",
    "alter table limit_kinds add check (length(s) > 3)",
    "create index on limit_kinds (s)",
];

/// Ends the statement in the middle of it; false if it was over before.
fn ends_midway(client: &mut Client, statement: &str, whole: Duration) -> bool {
    client.send(&query(statement));
    std::thread::sleep(whole / 2);
    let asked = Instant::now();
    client.cancel();
    let replies = client.until_ready();
    let took = asked.elapsed();
    match replies.iter().any(|reply| matches!(reply, Reply::Error(..))) {
        true => assert_eq!(sqlstate(&replies), "57014", "{statement}"),
        false => return false,
    }
    assert!(took < Duration::from_secs(2), "{statement}: {took:?} after it was asked to end");
    true
}

#[test]
fn statements_of_every_kind_end_when_they_are_asked_to() {
    // Other tests want the memory of the server that they share.
    let fixture = Fixture::new(|_| {});
    let mut client = Client::connect(fixture.server.local_addr());
    client.query("set freshet.road = compiled");
    client.query("create table limit_kinds(id int primary key, s text, v int)");
    client.query("insert into limit_kinds select x, md5(x::text), x from generate_series(1, 100000) as t(x)");
    for statement in OF_EVERY_KIND {
        // Where the machine is busy, one run says little of how long the next one takes. What never looks is over before each time.
        let ended = (0..5).any(|_| {
            let started = Instant::now();
            let replies = client.query(statement);
            assert!(!replies.iter().any(|reply| matches!(reply, Reply::Error(..))), "{statement}: {replies:?}");
            ends_midway(&mut client, statement, started.elapsed())
        });
        assert!(ended, "{statement} does not look whether it is to end");
        assert_eq!(client.value("select 1"), "1");
    }
}
