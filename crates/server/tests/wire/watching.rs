//! What the server tells of itself: statistics views and HTTP.

use crate::client::*;
use crate::{Fixture, WORKERS};
use freshet_server::http::Http;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

#[test]
fn statements_are_counted_by_their_text_without_constants() {
    let fixture = Fixture::new(|_| {});
    let mut client = Client::connect(fixture.server.local_addr());
    client.query("create table counted(id int primary key, v int)");
    assert_eq!(client.value("select count(*) from pg_stat_statements"), "0", "nobody tracks");
    client.query("set pg_stat_statements.track = 'top'");
    for id in 1..=5 {
        client.query(&format!("insert into counted values ({id}, 0)"));
        client.query(&format!("UPDATE counted SET v = v + {id} WHERE id = {id}"));
        client.query(&format!("select v,  id from counted where v > {id} or id < {id} order by 2 limit 100"));
    }
    client.send(&[parse("s", "select v from counted where id = $1", &[]), sync()].concat());
    client.until_ready();
    let get = |id: &str| [bind_text("", "s", &[id]), execute("", 0), sync()].concat();
    client.send(&["1", "2", "99"].map(get).concat());
    (0..3).for_each(|_| drop(client.until_ready()));
    assert_eq!(client.sqlstate("select 1 / (v - v) from counted where id = 1"), "22012");
    let rows = client.rows(
        "select query, calls, rows, min_exec_time <= mean_exec_time and mean_exec_time <= max_exec_time and
         abs(total_exec_time - calls * mean_exec_time) < 0.001 and stddev_exec_time >= 0 and max_exec_time > 0
         from pg_stat_statements where query like '%counted%' and query not like '%pg_stat%' order by query",
    );
    let row = |query: &str, calls: &str, rows: &str| vec![text(query), text(calls), text(rows), text("t")];
    let expected = [
        row("UPDATE counted SET v = v + $1 WHERE id = $2", "5", "5"),
        row("insert into counted values ($1, $2)", "5", "5"),
        row("select v from counted where id = $1", "3", "2"),
        row("select v, id from counted where v > $1 or id < $2 order by 2 limit $3", "5", "10"),
    ];
    assert_eq!(rows, expected);

    // Others' runs of the same statement are added; one statement can be forgotten, and all.
    let mut other = Client::connect(fixture.server.local_addr());
    other.query("set pg_stat_statements.track = 'all'");
    other.query("insert into counted values (6, 0)");
    let insert = "from pg_stat_statements where query like 'insert into counted%'";
    assert_eq!(client.value(&format!("select sum(calls) {insert}")), "6");
    client.query(&format!("select pg_stat_statements_reset(0, 0, queryid) {insert}"));
    assert_eq!(client.value(&format!("select count(*) {insert}")), "0");
    client.query("set pg_stat_statements.track = 'none'");
    client.query("select pg_stat_statements_reset()");
    assert_eq!(client.value("select count(*) from pg_stat_statements"), "0");
    assert_eq!(client.value("select dealloc from pg_stat_statements_info where stats_reset is not null"), "0");
}

#[test]
fn the_database_counts_what_is_done() {
    let fixture = Fixture::new(|_| {});
    let mut client = Client::connect(fixture.server.local_addr());
    client.query("create table work(id int primary key, v int)");
    let counts = "select xact_commit, xact_rollback, tup_inserted, tup_updated, tup_deleted, deadlocks, sessions from pg_stat_database";
    let numbers = |client: &mut Client| -> Vec<i64> {
        client.rows(counts)[0].iter().map(|cell| cell.as_ref().expect("a count").parse().expect("a number")).collect()
    };
    let before = numbers(&mut client);
    client.query("insert into work select x, 0 from generate_series(1, 10) as t(x)");
    client.query("insert into work values (11, 0)");
    client.query("begin; update work set v = 1 where id <= 3; rollback");
    client.query("update work set v = 2 where id = 4");
    client.query("begin; delete from work where id = 5; commit");
    client.send(&query("copy work from stdin"));
    assert_eq!(client.read(), Reply::CopyIn(false, 2));
    drop(Client::connect(fixture.server.local_addr()));
    client.send(&[copy_data(b"20\t1\n21\t1\n"), copy_done()].concat());
    client.until_ready();
    client.query("insert into work values (1, 1)");
    client
        .query("insert into work values (1, 9), (2, 9), (30, 9) on conflict (id) do update set v = 9 where work.v < 9");
    client.query("insert into work values (1, 1) on conflict do nothing");
    let after = numbers(&mut client);
    let more: Vec<i64> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
    // Commits: the first look, four inserts, an update, a delete, a COPY. Rollbacks: the block, and the key that was there.
    assert_eq!(more, [8, 2, 14, 6, 1, 0, 1]);
    assert_eq!(client.value("select wal_records > 0 and wal_bytes > 0 and wal_sync > 0 from pg_stat_wal"), "t");
    client.query("checkpoint");
    assert_eq!(client.value("select checkpoints_req from pg_stat_bgwriter"), "1");
}

#[test]
fn indexes_locks_garbage_and_latencies_have_views() {
    let fixture = Fixture::new(|_| {});
    let address = fixture.server.local_addr();
    let mut client = Client::connect(address);
    client.query("create table seen(id int primary key, v int); create index seen_v on seen using hash(v)");
    client.query("insert into seen select x, x from generate_series(1, 100) as t(x)");
    let rows = client.rows(
        "select indexrelname, kind, entries, bytes > 0 from freshet_stat_index where relname = 'seen' order by 1",
    );
    let row = |name: &str, kind: &str| [name, kind, "100", "t"].map(text).to_vec();
    assert_eq!(rows, [row("seen_pkey", "btree"), row("seen_v", "hash")]);
    client.query("begin; update seen set v = 0 where id = 1");
    let mut waiter = Client::connect(address);
    waiter.send(&query("update seen set v = 1 where id = 1"));
    assert!(!waiter.hears_within(Duration::from_millis(100)));
    assert_eq!(client.value("select waiting = 1 and longest_wait_us > 0 and waits >= 1 from freshet_stat_locks"), "t");
    client.query("commit");
    waiter.until_ready();
    assert_eq!(client.value("select waiting = 0 and longest_wait_us = 0 from freshet_stat_locks"), "t");
    assert_eq!(client.value("select left_items > 0 and version_bytes >= 0 from freshet_stat_garbage"), "t");
    // Each answer until now is one, the one of this query is not over.
    let responses: u64 = client.value("select sum(responses) from freshet_stat_latency").parse().expect("a number");
    assert!((8..100).contains(&responses), "{responses}");
    let slow =
        "select coalesce(sum(responses), 0) from freshet_stat_latency where below_us is null or below_us > 65536";
    // An answer is counted once it was written: the waiter's may have been read before.
    let is_told = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        client.value(slow) != "0"
    });
    assert!(is_told, "who waited for the lock waited for 100 ms");
}

fn get(address: SocketAddr, request: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).expect("it listens");
    socket.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("text");
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("a length");
    if !request.starts_with("HEAD") {
        assert_eq!(length, body.len().to_string());
    }
    (status, body.to_owned())
}

#[test]
fn metrics_and_health_are_told_over_http() {
    let fixture = Fixture::new(|_| {});
    let http = Http::start("127.0.0.1:0".parse().expect("an address"), fixture.server.watched()).expect("a port");
    let of = |path: &str| get(http.local_addr(), &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
    let mut client = Client::connect(fixture.server.local_addr());
    client.query("create table told(id int primary key)");
    (1..=3).for_each(|id| drop(client.query(&format!("insert into told values ({id})"))));
    client.sqlstate("insert into told values (1)");
    assert_eq!((of("/healthz").0, of("/readyz").0), (200, 200));
    let (status, metrics) = of("/metrics?x=1");
    assert_eq!(status, 200);
    let value = |name: &str| -> f64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("freshet_{name} ")));
        line.unwrap_or_else(|| panic!("{name} in {metrics}")).parse().expect("a number")
    };
    assert_eq!(
        [value("ready"), value("sessions"), value("rows_inserted_total"), value("errors_total")],
        [1., 1., 3., 1.]
    );
    assert_eq!(value("response_seconds_bucket{le=\"+Inf\"}"), value("response_seconds_count"));
    assert!(value("log_flushes_total") > 0. && value("memory_used_bytes") < value("memory_limit_bytes"));
    // Every line is a comment, or a name with a number.
    for line in metrics.lines() {
        let is_comment = line.starts_with("# HELP freshet_") || line.starts_with("# TYPE freshet_");
        let is_sample =
            line.starts_with("freshet_") && line.rsplit(' ').next().is_some_and(|v| v.parse::<f64>().is_ok());
        assert!(is_comment || is_sample, "{line}");
    }
    // It answers while every worker has a long statement, and whoever talks nonsense is told.
    let mut long: Vec<Client> = (0..WORKERS + 1).map(|_| Client::connect(fixture.server.local_addr())).collect();
    long.iter_mut().for_each(|c| c.send(&query("select count(*) from generate_series(1, 10000000000)")));
    assert_eq!(of("/readyz").0, 200);
    assert_eq!(of("/nothing").0, 404);
    assert_eq!(get(http.local_addr(), "POST /metrics HTTP/1.1\r\n\r\n").0, 405);
    assert_eq!(get(http.local_addr(), "HEAD /metrics HTTP/1.0\r\n\r\n"), (200, String::new()));
    assert_eq!(get(http.local_addr(), "Q\0\0\x01 nonsense\r\n\r\n").0, 400);
    assert_eq!(get(http.local_addr(), &format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(9000))).0, 431);
    drop(long);
    let watched = fixture.server.watched();
    drop(client);
    assert_eq!(fixture.server.drain(Duration::from_secs(10)), 0);
    let (status, why) = of("/readyz");
    assert!(status == 503 && why.contains("shutting down"), "{why}");
    assert_eq!(of("/healthz").0, 200);
    assert!(watched.unreadiness().is_some());
}

/// More than it serves at a time, for longer than it has patience with one.
#[test]
fn who_says_nothing_over_http_keeps_no_probe_out() {
    let fixture = Fixture::new(|_| {});
    let http = Http::start("127.0.0.1:0".parse().expect("an address"), fixture.server.watched()).expect("a port");
    let silent: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(http.local_addr()).expect("it listens")).collect();
    assert_eq!(get(http.local_addr(), "GET /healthz HTTP/1.1\r\n\r\n").0, 200);
    drop(silent);
}

#[test]
fn an_opening_database_is_not_ready() {
    use freshet_server::listener;
    use freshet_server::recovery::Recovery;
    let options = listener::Options::new("127.0.0.1:0".parse().expect("an address"));
    let starting = listener::start(options, Recovery::new(false)).expect("a free port");
    let http = Http::start("127.0.0.1:0".parse().expect("an address"), starting.watched()).expect("a port");
    let of = |path: &str| get(http.local_addr(), &format!("GET {path} HTTP/1.1\r\n\r\n"));
    let (status, why) = of("/readyz");
    assert!(status == 503 && why.contains("starting up"), "{why}");
    assert_eq!(of("/healthz").0, 200);
    assert!(of("/metrics").1.contains("freshet_ready 0"));
}

/// Asks until the one row is this.
fn until_seen(watcher: &mut Client, question: &str, expected: &[&str]) {
    let end = Instant::now() + Duration::from_secs(30);
    let expected: Vec<_> = expected.iter().map(|cell| text(cell)).collect();
    loop {
        let rows = watcher.rows(question);
        if rows.first() == Some(&expected) {
            return;
        }
        assert!(Instant::now() < end, "{question}: {rows:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn it_is_seen_where_clients_are_and_what_they_wait_for() {
    let fixture = Fixture::new(|options| options.long_statements_max = 1);
    let address = fixture.server.local_addr();
    let (mut watcher, mut client) = (Client::connect(address), Client::connect(address));
    let pid = client.value("select pg_backend_pid()");
    let of = |columns: &str| format!("select {columns} from pg_stat_activity where pid = {pid}");
    let own = client.own_address();
    let place = watcher.rows(&of("client_addr, client_port"));
    assert_eq!(place, [[text(&own.ip().to_string()), text(&own.port().to_string())]]);

    let waits = of("state, wait_event_type, wait_event");
    until_seen(&mut watcher, &waits, &["idle", "Client", "ClientRead"]);
    client.query("create table seen(id int primary key, v int)");
    client.query("insert into seen values (1, 0)");
    client.send(&query("copy seen from stdin"));
    until_seen(&mut watcher, &waits, &["active", "Client", "ClientRead"]);
    client.send(&copy_fail("enough"));
    client.until_ready();
    until_seen(&mut watcher, &waits, &["idle", "Client", "ClientRead"]);

    let mut running = Client::connect(address);
    let endless = "select count(*) from generate_series(1, 10000000000)";
    running.send(&query(endless));
    let begun = "select count(*) from pg_stat_activity where state = 'active' and wait_event is null and query like '%10000000000%'";
    until_seen(&mut watcher, &format!("{begun} and pid <> pg_backend_pid()"), &["1"]);
    client.send(&query(endless));
    until_seen(&mut watcher, &waits, &["active", "Extension", "LongStatementPlace"]);
    client.cancel();
    assert_eq!(sqlstate(&client.until_ready()), "57014");
    until_seen(&mut watcher, &waits, &["idle", "Client", "ClientRead"]);
    running.cancel();
    running.until_ready();

    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                client.query("update seen set v = v + 1 where id = 1");
            }
        });
        until_seen(&mut watcher, &waits, &["active", "IO", "WALSync"]);
        is_over.store(true, Ordering::Relaxed);
    });
}

/// What another's session does is not shown to who is not it, and where it is from neither.
#[test]
fn where_others_are_is_theirs() {
    let fixture = Fixture::new(|_| {});
    let mut client = Client::connect(fixture.server.local_addr());
    let other = Client::connect(fixture.server.local_addr());
    client.query("create role seen_nobody");
    client.query("set role seen_nobody");
    let nulls = "client_addr is null and client_port is null and wait_event is null";
    assert_eq!(
        client.value(&format!("select bool_and({nulls}) from pg_stat_activity where pid <> pg_backend_pid()")),
        "t"
    );
    drop(other);
}
