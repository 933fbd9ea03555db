//! A server as whoever operates it meets it: it is told to stop or to read its configuration again, killed under load, and says what it does.

use crate::client::*;
use crate::command::{Running, freshet, serve};
use std::io::BufRead;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn with(data: &Path, arguments: &[&str]) -> Command {
    let mut command = serve(data, "127.0.0.1:0");
    command.args(arguments);
    command
}

pub fn wait_for_line(server: &mut Running, part: &str) -> String {
    loop {
        let mut line = String::new();
        assert!(server.stderr.read_line(&mut line).expect("text") > 0, "it ended before it said {part}");
        if line.contains(part) {
            return line;
        }
    }
}

#[test]
fn sigterm_lets_open_transactions_end() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let data = directory.path().join("data");
    let mut server = Running::listening(with(&data, &["--drain-timeout", "60s"]));
    let [mut idle, mut open, mut running] = [(); 3].map(|()| Client::connect(server.address));
    open.query("create table drained(id int primary key)");
    open.query("begin; insert into drained values (1)");
    running.send(&query("select count(*) from generate_series(1, 5000000)"));
    // Until its query has begun it is idle, and idle sessions end.
    let begun = "select count(*) from pg_stat_activity where state = 'active' and query like '%5000000%' and pid <> pg_backend_pid()";
    let until = Instant::now() + Duration::from_secs(10);
    while open.value(begun) != "1" && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    server.signal("-TERM");
    wait_for_line(&mut server, "SIGTERM");
    assert!(matches!(idle.read(), Reply::Error(fatal, state, _) if fatal == "FATAL" && state == "57P01"));
    let mut late = Client::open(server.address);
    late.start(&[("user", "tester")]);
    assert!(matches!(late.read(), Reply::Error(_, state, _) if state == "57P03"));
    let counted = running.until_ready();
    assert!(matches!(&counted[1], Reply::Row(row) if row[0].as_deref() == Some(b"5000000")), "{counted:?}");
    assert_eq!(open.query("insert into drained values (2)")[0], Reply::Complete("INSERT 0 1".into()));
    assert_eq!(open.query("commit")[0], Reply::Complete("COMMIT".into()));
    assert!(matches!(open.read(), Reply::Error(_, state, _) if state == "57P01"));
    let (code, told) = server.end();
    assert_eq!(code, Some(0), "{told}");
    let server = Running::start(&data);
    assert_eq!(Client::connect(server.address).value("select count(*) from drained"), "2");
    server.signal("-INT");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_drain_has_an_end() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let data = directory.path().join("data");
    let server = Running::listening(with(&data, &["--drain-timeout", "300ms"]));
    let mut open = Client::connect(server.address);
    open.query("create table drained(id int primary key)");
    open.query("begin; insert into drained values (1)");
    let began = Instant::now();
    server.signal("-TERM");
    assert!(matches!(open.read(), Reply::Error(_, state, _) if state == "57P01"));
    assert!(began.elapsed() >= Duration::from_millis(300));
    let (code, told) = server.end();
    assert!(code == Some(0) && told.contains("1 sessions have not ended"), "{told}");
}

#[test]
fn sighup_takes_up_what_can_change() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let data = directory.path().join("data");
    let file = directory.path().join("freshet.toml");
    let write = |text: &str| std::fs::write(&file, text).expect("a file");
    write("workers = 2\n[settings]\nlock_timeout = '2s'\n");
    let mut server = Running::listening(with(&data, &["--config", file.to_str().expect("a readable path")]));
    let mut client = Client::connect(server.address);
    assert_eq!((client.value("show lock_timeout"), client.value("show max_connections")), ("2s".into(), "1000".into()));
    write("workers = 1\nrecovery_target = '33s'\n[settings]\nlock_timeout = '7s'\nlog_min_duration_statement = 0\n");
    server.signal("-HUP");
    wait_for_line(&mut server, "4 changes");
    wait_for_line(&mut server, "workers: 2 -> 1 needs a restart");
    wait_for_line(&mut server, "settings.lock_timeout");
    client.query("select 1");
    assert_eq!((client.value("show lock_timeout"), client.value("show recovery_target")), ("7s".into(), "33s".into()));
    client.query("select 'slow enough'");
    let line = wait_for_line(&mut server, "slow enough");
    assert!(line.contains("duration: ") && line.contains(" ms  statement: select 'slow enough'"), "{line}");
    write("no_such_key = 1");
    server.signal("-HUP");
    wait_for_line(&mut server, "the configuration in force stays");
    assert_eq!(client.value("show lock_timeout"), "7s");
    let rule = "[[rule]]\ntype = 'host'\ndatabase = 'all'\nuser = 'all'\naddress = '127.0.0.1/32'\nmethod = 'trust'\n";
    write(&format!("workers = 1\n{rule}"));
    server.signal("-HUP");
    wait_for_line(&mut server, "the configuration was read again");
    write("workers = 1\n");
    server.signal("-HUP");
    wait_for_line(&mut server, "no [[rule]] is left");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

/// A pipe that nobody writes to, in the place of the configuration file.
#[test]
fn signals_are_served_while_the_configuration_is_read() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let file = directory.path().join("freshet.toml");
    std::fs::write(&file, "workers = 2\n").expect("a file");
    let data = directory.path().join("data");
    let mut server = Running::listening(with(&data, &["--config", file.to_str().expect("a readable path")]));
    std::fs::remove_file(&file).expect("it is there");
    let made = std::process::Command::new("mkfifo").arg(&file).status().expect("mkfifo runs");
    assert!(made.success());
    server.signal("-HUP");
    let mut client = Client::connect(server.address);
    assert_eq!(client.value("select 1"), "1");
    wait_for_line(&mut server, "the configuration could not be read in 10 s; the configuration in force stays");
    server.signal("-HUP");
    let began = Instant::now();
    server.signal("-INT");
    assert_eq!(server.end().0, Some(0));
    assert!(began.elapsed() < Duration::from_secs(8), "it waits for the pipe");
}

#[test]
fn the_log_can_be_json() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let server = Running::listening(with(&directory.path().join("data"), &["--log-format", "json"]));
    let mut client = Client::connect(server.address);
    client.query("set log_min_duration_statement = '1ms'");
    client.query("select count(*) from generate_series(1, 1000000)");
    client.query("select 1");
    let said = server.said.clone();
    server.signal("-TERM");
    let (code, told) = server.end();
    assert_eq!(code, Some(0));
    let lines: Vec<serde_json::Value> =
        said.lines().chain(told.lines()).map(|line| serde_json::from_str(line).expect(line)).collect();
    let slow: Vec<_> = lines.iter().filter(|line| line["target"] == "statement").collect();
    assert!(slow.iter().any(|line| line["user"] == "tester" && line["duration_ms"].as_f64() > Some(1.0)), "{told}");
    assert!(lines.iter().all(|line| line["timestamp"].is_string() && line["level"].is_string()));
}

/// What was acknowledged is there after any end.
#[test]
fn ends_under_load_lose_nothing_acknowledged() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let data = directory.path().join("data");
    let mut acknowledged = Vec::new();
    for (round, signal) in ["-TERM", "-KILL", "-INT", "-KILL"].into_iter().enumerate() {
        let server = Running::start(&data);
        let address = server.address;
        let mut client = Client::connect(address);
        if round == 0 {
            client.query("create table kept(id bigint primary key)");
        }
        assert_eq!(missing(&mut client, &acknowledged), Vec::<i64>::new(), "before round {round}");
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                std::thread::spawn(move || insert_until_the_end(Client::connect(address), (round * 4 + writer) as i64))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        server.signal(signal);
        let (code, told) = server.end();
        assert_eq!(code, if signal == "-KILL" { None } else { Some(0) }, "{told}");
        for writer in writers {
            acknowledged.extend(writer.join().expect("a writer"));
        }
    }
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());
    let server = Running::start(&data);
    assert_eq!(missing(&mut Client::connect(server.address), &acknowledged), Vec::<i64>::new());
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

fn insert_until_the_end(mut client: Client, writer: i64) -> Vec<i64> {
    let mut done = Vec::new();
    for number in 0.. {
        let id = writer * 1_000_000 + number;
        if client.try_send(&query(&format!("insert into kept values ({id})"))).is_err() {
            break;
        }
        match client.until_ready().first() {
            Some(Reply::Complete(_)) => done.push(id),
            _ => break,
        }
    }
    done
}

fn missing(client: &mut Client, acknowledged: &[i64]) -> Vec<i64> {
    let rows = client.rows("select id from kept");
    let there: std::collections::HashSet<i64> =
        rows.into_iter().filter_map(|row| row[0].as_ref()?.parse().ok()).collect();
    acknowledged.iter().copied().filter(|id| !there.contains(id)).collect()
}

/// A process has as many descriptors open after a hundred clients that were killed as before.
#[test]
fn descriptors_do_not_leak() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let server = Running::start(&directory.path().join("data"));
    let mut watcher = Client::connect(server.address);
    watcher.query("create table held(id int primary key)");
    let files = format!("/proc/{}/fd", server.child.id());
    let open = || std::fs::read_dir(&files).expect("its files").count();
    let round = || {
        for id in 0..100 {
            let mut client = Client::connect(server.address);
            client.query(&format!("begin; insert into held values ({id})"));
            drop(client);
            drop(Client::open(server.address));
        }
    };
    round();
    let mut settled = |most: usize| {
        let end = Instant::now() + Duration::from_secs(20);
        while watcher.value("select count(*) from pg_stat_activity") != "1" || open() > most {
            assert!(Instant::now() < end, "{} open, {most} before", open());
            std::thread::sleep(Duration::from_millis(10));
        }
        open()
    };
    let before = settled(usize::MAX);
    round();
    settled(before);
    assert_eq!(watcher.value("select count(*) from held"), "0");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

/// The log needs files too: clients who take what there is keep themselves out, not it.
#[test]
fn connections_that_want_all_descriptors_do_not_end_the_server() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let served = serve(&directory.path().join("data"), "127.0.0.1:0");
    let mut limited = Command::new("prlimit");
    limited.arg("--nofile=160:160").arg(served.get_program()).args(served.get_args()).stderr(Stdio::piped());
    for (name, value) in served.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let server = Running::listening(limited);
    let mut client = Client::connect(server.address);
    client.query("create table kept(id int primary key, note text)");
    let silent: Vec<_> = (0..400).map(|_| Client::open(server.address)).collect();
    // Several segments of the log.
    for id in 0..60 {
        let insert = format!("insert into kept values ({id}, repeat('x', 50000))");
        assert_eq!(client.query(&insert)[0], Reply::Complete("INSERT 0 1".into()));
    }
    drop(silent);
    let end = Instant::now() + Duration::from_secs(20);
    let mut next = loop {
        let mut next = Client::open(server.address);
        // Where there is no room yet it is closed, maybe before it has spoken.
        let mut startup = pgwire::messages::startup::Startup::new();
        startup.parameters.insert("user".to_owned(), "tester".to_owned());
        if next.try_send(&encoded(startup)).is_ok() && next.until_ready() == [Reply::Ready('I')] {
            break next;
        }
        assert!(Instant::now() < end, "nobody comes in any more");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(next.value("select count(*) from kept"), "60");
    server.signal("-TERM");
    let (code, told) = server.end();
    assert_eq!(code, Some(0), "{told}");
}

/// `freshet top` asks over an ordinary connection.
#[test]
fn top_shows_what_a_server_does() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let server = Running::start(&directory.path().join("data"));
    let mut client = Client::connect(server.address);
    client.query("create table watched(id int primary key); insert into watched values (1)");
    client.query("set application_name = 'a shop'");
    client.query("begin; update watched set id = 2");
    let to = format!("host=127.0.0.1 port={} user=watcher", server.address.port());
    let look = |to: &str| {
        let look = freshet(&["top", "--once", "--interval", "0.2", "--to", to]).output().expect("the binary runs");
        let text = [look.stdout, look.stderr].concat();
        (look.status.code(), String::from_utf8(text).expect("text"))
    };
    let (code, shown) = look(&to);
    assert_eq!(code, Some(0), "{shown}");
    for part in ["1 sessions, 0 active", "a shop", "idle in transaction", "log used", "p99", "commits per second"] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    assert_eq!(look("host=127.0.0.1 port=1 user=x").0, Some(1));
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn an_idle_server_ends_when_its_directory_is_moved() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let (data, moved) = (directory.path().join("data"), directory.path().join("moved"));
    let server = Running::start(&data);
    let mut client = Client::connect(server.address);
    client.query("create table kept(id bigint primary key); insert into kept values (1)");
    std::fs::rename(&data, &moved).expect("renames");
    assert!(matches!(client.read(), Reply::Error(fatal, ..) if fatal == "FATAL"));
    let (code, told) = server.end();
    assert!(code == Some(3) && told.contains("the directory was moved or replaced"), "{told}");
    let server = Running::start(&moved);
    assert_eq!(Client::connect(server.address).value("select count(*) from kept"), "1");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}
