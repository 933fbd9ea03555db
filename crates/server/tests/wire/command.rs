//! The `freshet` command as a process: how it starts, refuses to, stops, and what a kill leaves.

use crate::client::{Client, Reply, query, run, sync};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;

pub fn freshet(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshet"));
    command.args(arguments).stderr(Stdio::piped()).stdout(Stdio::piped());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FRESHET_")) {
        command.env_remove(name);
    }
    command
}

pub fn serve(data: &Path, listen: &str) -> Command {
    let data = data.to_str().expect("a readable path");
    let small = ["--memory-limit", "64MiB", "--log-size", "8MiB", "--segment-size", "1MiB", "--huge-pages", "false"];
    let mut command = freshet(&["serve", "--data", data, "--listen", listen]);
    command.args(small).env("FRESHET_DRAIN_TIMEOUT", "200ms");
    command
}

/// A server that listens.
pub struct Running {
    pub child: Child,
    pub stderr: BufReader<ChildStderr>,
    pub address: SocketAddr,
    /// What it said before it listened.
    pub said: String,
}

impl Running {
    pub fn start(data: &Path) -> Running {
        Running::listening(serve(data, "127.0.0.1:0"))
    }

    pub fn listening(mut command: Command) -> Running {
        Running::of(command.spawn().expect("the binary runs"))
    }

    /// One that was just started.
    pub fn of(mut child: Child) -> Running {
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut told = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(stderr.read_line(&mut line).expect("text") > 0, "it ended: {told}");
            if let Some((_, address)) = line.split_once("listening on ") {
                let address = address.split(|c: char| !c.is_ascii_digit() && c != '.' && c != ':').next();
                break address.and_then(|address| address.parse().ok()).expect("an address");
            }
            told.push_str(&line);
        };
        Running { child, stderr, address, said: told }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Exit code and what it said after it listened.
    pub fn end(mut self) -> (Option<i32>, String) {
        let mut told = String::new();
        self.stderr.read_to_string(&mut told).expect("text");
        (self.child.wait().expect("it ends").code(), told)
    }
}

/// Exit code 1 and one line.
fn refused(output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    told
}

#[test]
fn a_signal_stops_it_cleanly_and_a_kill_loses_nothing() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let data = directory.path().join("data");
    for (round, signal) in ["-TERM", "-INT", "-KILL", "-TERM"].into_iter().enumerate() {
        let server = Running::start(&data);
        let mut client = Client::connect(server.address);
        if round == 0 {
            client.query("create table kept(id int primary key)");
        }
        assert_eq!(client.value("select count(*) from kept"), round.to_string());
        // Of sessions that are gone, however they went.
        assert_eq!(client.value("select count(*) from pg_class where relname = 'passing'"), "0");
        client.query("create temp table passing(id int); insert into passing values (1)");
        client.query(&format!("insert into kept values ({round})"));
        client.query(&format!("begin; insert into kept values ({})", 100 + round));
        server.signal(signal);
        let (code, told) = server.end();
        assert_eq!(code, if signal == "-KILL" { None } else { Some(0) }, "{told}");
    }
}

#[test]
fn one_directory_and_one_port_are_for_one_process() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let data = directory.path().join("data");
    let server = Running::start(&data);
    let second = serve(&data, "127.0.0.1:0").output().expect("the binary runs");
    let told = refused(&second);
    assert!(told.contains(data.to_str().expect("a readable path")), "{told}");
    let other = directory.path().join("other");
    let busy = serve(&other, &server.address.to_string()).output().expect("the binary runs");
    assert!(refused(&busy).contains("in use"));
    assert!(!other.exists(), "nothing is made where nothing can be served");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_directory_that_cannot_be_one_is_told() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "not a directory").expect("a file");
    let told = refused(&serve(&file.join("data"), "127.0.0.1:0").output().expect("the binary runs"));
    assert!(told.contains("file"), "{told}");
    let far = serve(directory.path(), "192.0.2.1:0").output().expect("the binary runs");
    assert!(refused(&far).contains("loopback"));
}

/// The last word of every road is 58030, and then the connection ends.
fn told_of_failure(client: &mut Client) -> Result<(), Vec<Reply>> {
    let mut replies = Vec::new();
    while !matches!(replies.last(), Some(Reply::Closed)) {
        replies.extend(client.until_ready());
    }
    match &replies[..] {
        [.., Reply::Error(_, state, _), Reply::Closed] if state == "58030" => Ok(()),
        _ => Err(replies),
    }
}

/// The device starts to refuse writes: nothing more is acknowledged on any road, every session is told, the server says so
/// and ends, and a restart finds what was acknowledged.
#[test]
fn a_failed_log_ends_the_server() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let data = directory.path().join("data");
    let server = Running::start(&data);
    let [mut simple, mut extended, mut pipelined, mut idle, mut holder, mut waiting] =
        [(); 6].map(|()| Client::connect(server.address));
    simple.query("create table acknowledged(id int primary key)");
    simple.query("insert into acknowledged values (1)");
    holder.query("begin; update acknowledged set id = 100 where id = 1");
    waiting.send(&query("delete from acknowledged where id = 1"));
    assert!(!waiting.hears_within(Duration::from_millis(50)), "it waits for the row");
    let pid = server.child.id().to_string();
    let sunk = Command::new("prlimit").args(["--pid", &pid, "--fsize=4096"]).status().expect("prlimit runs");
    assert!(sunk.success());
    // Whichever comes first meets the failure, if the witness of an idle log has not; the others find a failed log.
    simple.send(&query("insert into acknowledged values (2)"));
    extended.send(&[run("insert into acknowledged values (3)", &[]), sync()].concat());
    let both = [4, 5].map(|id| run(&format!("insert into acknowledged values ({id})"), &[]));
    pipelined.send(&[both.concat(), sync()].concat());
    for (road, client) in [
        ("simple", &mut simple),
        ("extended", &mut extended),
        ("a pipeline", &mut pipelined),
        ("idle", &mut idle),
        ("in a transaction", &mut holder),
        ("waiting for a row", &mut waiting),
    ] {
        told_of_failure(client).unwrap_or_else(|replies| panic!("{road}: {replies:?}"));
    }
    let (code, told) = server.end();
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("the log failed (") && told.contains("log-0"), "{told}");

    let server = Running::start(&data);
    let mut client = Client::connect(server.address);
    assert_eq!(client.value("select count(*) from acknowledged where id = 1"), "1");
    assert_eq!(client.value("select count(*) from acknowledged where id = 100"), "0");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn the_configuration_in_force_is_printed() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let file = directory.path().join("freshet.toml");
    std::fs::write(&file, "data = '/from/file'\nlisten = '127.0.0.1:7001'\nworkers = 3\nlog_size = '1GiB'")
        .expect("a file");
    let printed = freshet(&["serve", "--print-config", "--listen", "127.0.0.1:7003"])
        .env("FRESHET_CONFIG", &file)
        .env("FRESHET_LISTEN", "127.0.0.1:7002")
        .env("FRESHET_LOG_SIZE", "2GiB")
        .env("FRESHET_LOG", "/log/a:/log/b")
        .output()
        .expect("the binary runs");
    assert_eq!(printed.status.code(), Some(0));
    let printed = String::from_utf8(printed.stdout).expect("text");
    for line in [
        "data = \"/from/file\"",
        "log = [\"/log/a\", \"/log/b\"]",
        "listen = \"127.0.0.1:7003\"",
        "log_size = \"2GiB\"",
        "workers = 3",
        "max_connections = 1000",
    ] {
        assert!(printed.lines().any(|l| l == line), "{line} in:\n{printed}");
    }
}

#[test]
fn wrong_usage_has_its_own_code() {
    let code = |arguments: &[&str]| freshet(arguments).output().expect("the binary runs").status.code();
    assert_eq!(code(&["serve"]), Some(2), "no data directory");
    assert_eq!(code(&["serve", "--data", "x", "--memory-limit", "much"]), Some(2));
    assert_eq!(code(&["serve", "--config", "/no/such/file"]), Some(2));
    assert_eq!(code(&["dance"]), Some(2));
    assert_eq!(code(&["--help"]), Some(0));
}

fn told(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    (output.status.code(), text)
}

/// Changes a byte of the last group but one, which the witness behind it guards; says where the group is.
fn damage(segment: &Path) -> usize {
    let mut bytes = std::fs::read(segment).expect("the first segment");
    let groups = (0..bytes.len()).step_by(4096).filter(|at| bytes[*at..].starts_with(b"FRESHGRP"));
    let offset = groups.rev().nth(1).expect("two groups");
    bytes[offset + 150] ^= 1;
    std::fs::write(segment, bytes).expect("the first segment");
    offset
}

#[test]
fn a_damaged_database_is_checked_refused_and_salvaged() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("a readable path").to_string();
    let (data, saved) = (path("data"), path("saved"));
    let run = |arguments: &[&str]| told(&freshet(arguments).output().expect("the binary runs"));
    assert_eq!(run(&["check", "--data", &data]).0, Some(2), "there is nothing");
    let server = Running::start(Path::new(&data));
    let mut client = Client::connect(server.address);
    client.query("create table t(id int primary key, note text)");
    client.query("insert into t values (1, 'a note that is longer than its descriptor')");
    client.query("checkpoint");
    for id in 2..5 {
        client.query(&format!("insert into t values ({id}, null)"));
    }
    let (code, said) = run(&["check", "--data", &data]);
    assert!(code == Some(2) && said.contains("in use"), "{said}");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));

    let (code, said) = run(&["check", "--data", &data]);
    assert!(code == Some(0) && said.starts_with("whole; "), "{said}");
    assert_eq!(run(&["salvage", "--data", &data, "--to", &data]).0, Some(2), "it is not empty");
    let file = format!("{data}/log/log-000000000001.seg");
    let offset = damage(Path::new(&file));
    let (code, said) = run(&["check", "--data", &data, "--json"]);
    let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((code, &report["damaged"]), (Some(1), &serde_json::Value::Bool(true)), "{said}");
    let findings = report["findings"].as_array().expect("a list");
    let placed = findings.iter().find(|f| f["file"] == file.as_str() && f["offset"] == offset);
    assert!(placed.is_some_and(|f| f["device"] == 0 && f["epoch"].is_u64()), "{said}");
    let refusal = refused(&serve(Path::new(&data), "127.0.0.1:0").output().expect("the binary runs"));
    assert!(refusal.contains("acknowledged epochs are behind the damage"), "{refusal}");

    let (code, said) = run(&["salvage", "--data", &data, "--to", &saved]);
    assert!(code == Some(1) && said.contains("table t: "), "{said}");
    let server = Running::start(Path::new(&saved));
    let mut client = Client::connect(server.address);
    assert_eq!(client.value("select note from t where id = 1"), "a note that is longer than its descriptor");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    assert_eq!(run(&["check", "--data", &saved]).0, Some(0));
}

#[test]
fn what_is_salvaged_of_a_whole_database_is_all_of_it() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("a readable path").to_string();
    let (data, saved) = (path("data"), path("saved"));
    let server = Running::start(Path::new(&data));
    let mut client = Client::connect(server.address);
    for statement in [
        "create table p(id int primary key, v text unique)",
        "insert into p values (1, 'a'), (2, 'b')",
        "create schema tenant",
        "create table tenant.p(id int generated always as identity primary key, p int references public.p on delete cascade)",
        "insert into tenant.p(p) values (1), (2)",
        "create table ser(id serial primary key, ck int check (ck > 0))",
        "insert into ser(ck) values (1), (2)",
        "create sequence sq start 100",
        "select nextval('sq')",
        "create view vw as select v from p",
        "create role bob login password 'secret'",
        "grant select on p to bob",
        "alter view vw owner to bob",
        "comment on table p is 'a parent'",
        "create temp table p(a int)",
        "insert into pg_temp.p values (1)",
    ] {
        let told = client.query(statement);
        assert!(!told.iter().any(|reply| matches!(reply, Reply::Error(..))), "{statement}: {told:?}");
    }
    server.signal("-KILL");
    server.end();
    let told_by = |arguments: &[&str]| told(&freshet(arguments).output().expect("the binary runs"));
    let (code, said) = told_by(&["salvage", "--data", &data, "--to", &saved]);
    assert!(code == Some(0) && said.ends_with("everything was saved\n"), "{said}");
    assert!(said.contains("table tenant.p: 2 rows saved"), "{said}");

    let server = Running::start(Path::new(&saved));
    let mut client = Client::connect(server.address);
    for (query, expected) in [
        ("insert into tenant.p(p) values (1) returning id > 2", "t"),
        ("insert into ser(ck) values (3) returning id > 2", "t"),
        ("select nextval('sq') > 100", "t"),
        ("select v from vw where v > 'a'", "b"),
        ("select has_table_privilege('bob', 'p', 'SELECT')", "t"),
        ("select relowner::regrole::text from pg_class where relname = 'vw'", "bob"),
        ("select obj_description('public.p'::regclass)", "a parent"),
        ("select count(*) from pg_class where relname = 'p'", "2"),
        ("select rolpassword is not null from pg_authid where rolname = 'bob'", "t"),
    ] {
        assert_eq!(client.value(query), expected, "{query}");
    }
    for (statement, expected) in
        [("insert into tenant.p(p) values (9)", "23503"), ("insert into ser(ck) values (0)", "23514")]
    {
        let told = client.query(statement);
        assert!(matches!(&told[0], Reply::Error(_, state, _) if state == expected), "{told:?}");
    }
    assert_eq!(client.query("delete from p where id = 2")[0], Reply::Complete("DELETE 1".into()));
    assert_eq!(client.value("select count(*) from tenant.p"), "2");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    std::fs::write(format!("{saved}/unfinished"), "").expect("a file");
    let refusal = refused(&serve(Path::new(&saved), "127.0.0.1:0").output().expect("the binary runs"));
    assert!(refusal.contains("is what a salvage left half done"), "{refusal}");
}
