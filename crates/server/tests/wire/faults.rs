//! Clients that die at every byte of a conversation, that do not read what they asked for, that ask for more than there is: nothing stays locked, nothing
//! leaks, nobody else notices.

use crate::client::*;
use crate::{Fixture, until};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A conversation that takes locks on every road: in a transaction, in a pipeline, in a COPY, for the session.
fn conversation() -> Vec<u8> {
    [
        query("begin; update faults set v = v + 1 where id = 1; savepoint s; select pg_advisory_lock(250606)"),
        [parse("p", "update faults set v = v + $1 where id = $2", &[]), bind_text("", "p", &["1", "2"])].concat(),
        [describe_portal(""), execute("", 0), sync()].concat(),
        query("commit"),
        [bind_text("", "p", &["1", "1"]), execute("", 0), bind_text("", "p", &["1", "2"]), execute("", 0), sync()]
            .concat(),
        query("copy faults from stdin"),
        [copy_data(b"100\t1\n"), copy_data(b"101\t1\n"), copy_fail("enough")].concat(),
        query("begin; lock table faults in share mode; select * from faults for update"),
    ]
    .concat()
}

fn startup() -> Vec<u8> {
    let mut startup = pgwire::messages::startup::Startup::new();
    startup.parameters.insert("user".to_owned(), "tester".to_owned());
    encoded(startup)
}

/// Sends so many bytes and is gone.
fn die_after(address: SocketAddr, bytes: &[u8]) {
    let mut client = Client::open(address);
    client.send(bytes);
}

/// Waits until all clients but the watcher are gone. Some may not even have been taken in yet: whoever is let in now came behind them.
fn until_alone(fixture: &Fixture, watcher: &mut Client) {
    drop(Client::connect(fixture.server.local_addr()));
    let others = "select (select count(*) from pg_stat_activity where pid <> pg_backend_pid())
         + (select count(*) from pg_locks where pid <> pg_backend_pid())";
    until("all sessions have ended", || fixture.server.sessions() == 1 && watcher.value(others) == "0");
}

#[test]
fn a_client_that_dies_anywhere_leaves_nothing_locked() {
    let fixture = Fixture::new(|_| {});
    let address = fixture.server.local_addr();
    let mut watcher = Client::connect(address);
    watcher.query("create table faults(id int primary key, v int)");
    watcher.query("insert into faults values (1, 0), (2, 0)");
    let whole = [startup(), conversation()].concat();
    for cut in 0..=whole.len() {
        die_after(address, &whole[..cut]);
    }
    until_alone(&fixture, &mut watcher);
    watcher.query("set lock_timeout = '1s'");
    assert_eq!(watcher.query("update faults set v = 0")[0], Reply::Complete("UPDATE 2".into()));
    assert_eq!(watcher.value("select pg_try_advisory_lock(250606)"), "t");
    assert_eq!(watcher.value("select count(*) from faults where id >= 100"), "0");
    watcher.query("alter table faults add column w int");
}

/// Descriptors and memory are as before, whatever became of a thousand clients.
#[test]
fn nothing_leaks() {
    let fixture = Fixture::new(|_| {});
    let address = fixture.server.local_addr();
    let mut watcher = Client::connect(address);
    watcher.query("create table faults(id int primary key, v int)");
    watcher.query("insert into faults select x, 0 from generate_series(1, 250) as t(x)");
    let whole = [startup(), conversation()].concat();
    let mut round = |count: usize| {
        for number in 0..count {
            let mut client = Client::connect(address);
            client.query("create temporary table own(id int); insert into own values (1)");
            client.send(&query("select * from faults, faults as other"));
            drop(client);
            die_after(address, &whole[..number * 7 % whole.len()]);
        }
        until_alone(&fixture, &mut watcher);
        let bytes = "select sum(bytes)::bigint from freshet_memory where kind in ('sessions', 'queries')";
        watcher.value(bytes).parse::<i64>().expect("a number")
    };
    round(30);
    let before = round(30);
    let after = round(200);
    assert!(after <= before + (256 << 10), "{before} bytes before, {after} after");
}

/// The end of a client stands behind what it has sent, of which a session with something to do reads so much and no more.
#[test]
fn a_client_that_dies_behind_a_long_pipeline_leaves_nothing_locked() {
    let fixture = Fixture::new(|_| {});
    let address = fixture.server.local_addr();
    let (mut watcher, mut holder) = (Client::connect(address), Client::connect(address));
    watcher.query("create table behind(id int primary key, v int)");
    watcher.query("insert into behind values (1, 0), (2, 0)");
    watcher.query("set lock_timeout = '20s'");
    holder.query("begin; update behind set v = 1 where id = 2");
    // What the socket has no room for stays at the client, and its end with it.
    let many = query(&format!("select '{}'", "x".repeat(1000))).repeat(100);
    for what in ["update behind set v = 2 where id = 2", "select count(*) from generate_series(1, 100000000000)"] {
        let mut client = Client::connect(address);
        client.query("begin");
        client.query("update behind set v = 3 where id = 1");
        client.send(&query(what));
        client.send(&many);
        drop(client);
        assert_eq!(
            watcher.query("update behind set v = 4 where id = 1")[0],
            Reply::Complete("UPDATE 1".into()),
            "{what}"
        );
    }
    holder.query("rollback");
}

/// A client that asks for much and reads nothing costs what its limits say; the others are served, and its locks go with it.
#[test]
fn a_client_that_never_reads_holds_nobody_up() {
    let fixture = Fixture::new(|_| {});
    let address = fixture.server.local_addr();
    let mut watcher = Client::connect(address);
    watcher.query("create table unread(id int primary key, note text)");
    watcher.query("insert into unread select x, repeat('x', 500) from generate_series(1, 20000) as t(x)");
    let used = |fixture: &Fixture| fixture.database.engine().memory_limit().used_bytes;
    let before = used(&fixture);
    let mut unread = Client::connect(address);
    unread.query("begin");
    unread.query("update unread set note = 'mine' where id = 1");
    // A gigabyte, of which the sockets' buffers take a few MB.
    let copies = std::iter::repeat_n(query("copy unread to stdout"), 100);
    unread.send(&copies.flatten().collect::<Vec<u8>>());
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        assert_eq!(watcher.value("select length(note) from unread where id = 2"), "500");
        let more = used(&fixture).saturating_sub(before);
        assert!(more < 16 << 20, "{more} bytes for a client that does not read");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(unread);
    watcher.query("set lock_timeout = '10s'");
    assert_eq!(watcher.query("update unread set note = '' where id = 1")[0], Reply::Complete("UPDATE 1".into()));
}

/// What there is no memory for fails by itself, alone.
#[test]
fn a_result_larger_than_the_memory_is_refused_alone() {
    let fixture = Fixture::new(|_| {});
    let address = fixture.server.local_addr();
    let mut watcher = Client::connect(address);
    watcher.query("create table large(id int primary key, v int)");
    watcher.query("insert into large values (1, 0)");
    let mut greedy = Client::connect(address);
    // Rows that only pass through are given part by part; those that are ordered are all there before the first.
    let all = "select x, repeat('y', 1000) from generate_series(1, 1000000000) as t(x) order by 2, 1 desc";
    greedy.send(&query(all));
    let end = Instant::now() + Duration::from_secs(60);
    while !greedy.hears_within(Duration::from_millis(1)) {
        assert!(Instant::now() < end, "it is refused in time");
        assert_eq!(watcher.query("update large set v = v + 1 where id = 1")[0], Reply::Complete("UPDATE 1".into()));
    }
    assert_eq!(sqlstate(&greedy.until_ready()), "53200");
    assert_eq!(greedy.value("select 1"), "1");
}

/// What becomes of a session whose client does not read the rows that it asked for.
struct Unread<'a> {
    fixture: &'a Fixture,
    watcher: Client,
    client: Client,
    pid: String,
    before: u64,
}

const MANY_ROWS: &str = "select x, repeat('y', 1000) from generate_series(1, 30000) as t(x)";

impl Unread<'_> {
    /// Rows of the statement are there, and stay there.
    fn new<'a>(fixture: &'a Fixture, setup: &str, statement: &str) -> Unread<'a> {
        let address = fixture.server.local_addr();
        let (watcher, mut client) = (Client::connect(address), Client::connect(address));
        let pid = client.value("select pg_backend_pid()");
        client.query(setup);
        let before = fixture.database.engine().memory_limit().used_bytes;
        client.send(&query(statement));
        let seen = format!("select concat(state, wait_event_type, wait_event) from pg_stat_activity where pid = {pid}");
        let mut unread = Unread { fixture, watcher, client, pid, before };
        // For good, not for as long as the sockets' buffers take the last rows.
        let mut since = Instant::now();
        until("it waits for its client", || {
            let waits = unread.watcher.value(&seen) == "activeClientClientWrite" && unread.held() > 512 << 10;
            since = if waits { since } else { Instant::now() };
            since.elapsed() > Duration::from_millis(100)
        });
        unread
    }

    fn held(&self) -> u64 {
        self.fixture.database.engine().memory_limit().used_bytes.saturating_sub(self.before)
    }

    fn gives_its_memory_back(&self) {
        until("the rows are gone", || self.held() < 256 << 10);
    }
}

/// Rows, and how they end.
fn end_of(replies: &[Reply]) -> &[Reply] {
    let rows = replies.iter().take_while(|reply| matches!(reply, Reply::Columns(_) | Reply::Row(_))).count();
    assert!(rows < 30_001, "not all of them came");
    &replies[rows..]
}

#[test]
fn rows_that_nobody_reads_end_when_they_are_told_to() {
    let fixture = Fixture::new(|_| {});
    type End = fn(&mut Unread<'_>);
    let ends: [(&str, End); 3] = [
        ("", |unread| unread.client.cancel()),
        ("", |unread| {
            let cancelled = unread.watcher.value(&format!("select pg_cancel_backend({})", unread.pid));
            assert_eq!(cancelled, "t");
        }),
        ("set statement_timeout = '500ms'", |_| {}),
    ];
    for (setup, end) in ends {
        let mut unread = Unread::new(&fixture, setup, MANY_ROWS);
        end(&mut unread);
        unread.gives_its_memory_back();
        let replies = unread.client.until_ready();
        assert!(matches!(end_of(&replies), [Reply::Error(_, state, _), Reply::Ready('I')] if state == "57014"));
        assert_eq!(unread.client.value("select 1"), "1");
    }
    let ends: [(&str, End, &str); 3] = [
        ("set idle_session_timeout = '500ms'", |_| {}, "57P05"),
        ("begin; set idle_in_transaction_session_timeout = '500ms'", |_| {}, "25P03"),
        (
            "",
            |unread| {
                unread.watcher.query(&format!("select pg_terminate_backend({})", unread.pid));
            },
            "57P01",
        ),
    ];
    for (setup, end, expected) in ends {
        let mut unread = Unread::new(&fixture, setup, MANY_ROWS);
        end(&mut unread);
        unread.gives_its_memory_back();
        let last = loop {
            match unread.client.read() {
                Reply::Columns(_) | Reply::Row(_) => {}
                last => break last,
            }
        };
        assert!(
            matches!(&last, Reply::Error(severity, state, _) if severity == "FATAL" && state == expected),
            "{last:?}"
        );
        assert_eq!(unread.client.read(), Reply::Closed);
    }
}

/// A client that reads slowly does something.
#[test]
fn a_client_that_reads_slowly_is_not_idle() {
    let fixture = Fixture::new(|_| {});
    let mut unread = Unread::new(&fixture, "set idle_session_timeout = '1s'", MANY_ROWS);
    let end = Instant::now() + Duration::from_millis(2500);
    let mut rows = 0;
    while rows < 30_000 {
        match unread.client.read() {
            Reply::Row(_) => rows += 1,
            Reply::Columns(_) => {}
            other => panic!("{other:?} after {rows} rows"),
        }
        // So slow that the whole takes longer than the limit, and each part of it does not.
        if rows % 300 == 0 {
            std::thread::sleep(end.saturating_duration_since(Instant::now()) / 20);
        }
    }
    assert_eq!(unread.client.read(), Reply::Complete("SELECT 30000".into()));
}

/// What is committed is not told to have failed.
#[test]
fn rows_of_a_change_that_is_committed_are_owed() {
    let fixture = Fixture::new(|_| {});
    Client::connect(fixture.server.local_addr()).query("create table owed(id int, note text)");
    // Twice in memory: where they are stored, and as the answer.
    let insert = "insert into owed select x, repeat('y', 1000) from generate_series(1, 15000) as t(x) returning *";
    let mut unread = Unread::new(&fixture, "set statement_timeout = '20s'", insert);
    for _ in 0..3 {
        unread.client.cancel();
        std::thread::sleep(Duration::from_millis(20));
    }
    let replies = unread.client.until_ready();
    assert_eq!(replies[replies.len() - 2..], [Reply::Complete("INSERT 0 15000".into()), Reply::Ready('I')]);
    assert_eq!(unread.watcher.value("select count(*) from owed"), "15000");

    let mut unread = Unread::new(&fixture, "begin", insert);
    let with_rows = unread.held();
    unread.client.cancel();
    // What was inserted may stay until it is cleaned up.
    until("the rows are gone", || unread.held() + (8 << 20) < with_rows);
    let replies = unread.client.until_ready();
    assert!(matches!(end_of(&replies), [Reply::Error(_, state, _), Reply::Ready('E')] if state == "57014"));
    unread.client.query("commit");
    assert_eq!(unread.watcher.value("select count(*) from owed"), "15000");
}
