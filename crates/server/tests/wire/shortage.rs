//! A server that the system gives no more of something: threads, file sizes, descriptors, a reader of what it says. It says so to whom it concerns,
//! and serves on.

use crate::client::*;
use crate::command::{Running, freshet};
use crate::operation::wait_for_line;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn limit(child: &Child, limit: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("prlimit").args(["--pid", &pid, limit]).status().expect("prlimit runs").success());
}

/// The command behind another, with its environment.
fn behind(wrapper: &Command, served: &Command) -> Command {
    let mut command = Command::new(wrapper.get_program());
    command.args(wrapper.get_args()).arg(served.get_program()).args(served.get_args());
    for (name, value) in served.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stderr(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// A limit on threads is none for root: then the server runs as somebody who has nothing else, behind this command.
fn somebody(data: &Path) -> Command {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    std::fs::create_dir(data).expect("a new directory");
    if std::fs::metadata(data).expect("it is there").uid() != 0 {
        return Command::new("env");
    }
    let user = 200_000 + std::process::id() % 100_000;
    std::os::unix::fs::chown(data, Some(user), Some(user)).expect("root may");
    let above = data.parent().expect("a scratch directory");
    std::fs::set_permissions(above, std::fs::Permissions::from_mode(0o755)).expect("its own directory");
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".to_owned()]);
    command
}

fn ends_well(server: Running) {
    server.signal("-TERM");
    let (code, told) = server.end();
    assert_eq!(code, Some(0), "{told}");
}

/// What a statement's values took goes back to the system, though nothing else happens: it stands against the limit until then.
#[test]
fn large_values_keep_nobody_out_for_long() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let data = directory.path().join("data");
    let served = with(&data, &["--workers", "2", "--memory-limit", "256MiB", "--log-size", "64MiB"]);
    let server = Running::listening(served);
    let mut client = Client::connect(server.address);
    // Two values of 300 MB.
    assert_eq!(client.value("select length(upper(repeat('ab', 150000000)))"), "300000000");
    drop(client);
    let resident_mib = || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("what is resident");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") >> 10
    };
    let end = Instant::now() + Duration::from_secs(20);
    while resident_mib() >= 256 {
        assert!(Instant::now() < end, "{} MiB are resident", resident_mib());
        std::thread::sleep(Duration::from_millis(50));
    }
    // It is looked how much is resident every 20 ms.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(Client::connect(server.address).value("select 1"), "1");
    ends_well(server);
}

#[test]
fn a_limit_on_threads_ends_nothing() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let data = directory.path().join("data");
    let served = with(&data, &["--workers", "2", "--memory-limit", "256MiB", "--log-size", "64MiB"]);
    let somebody = somebody(&data);
    let server = Running::listening(behind(&somebody, &served));
    let mut client = Client::connect(server.address);
    client.query("create table few(id int primary key, v text)");
    client.query("insert into few select g, 'x' from generate_series(1, 5000) g");
    client.query("create table loaded(id int)");
    // The same user's processes are more already: from now on there is no further thread.
    let mut limit = Command::new("prlimit");
    limit.args(["--pid", &server.child.id().to_string(), "--nproc=1"]);
    assert!(behind(&somebody, &limit).status().expect("prlimit runs").success());
    let mut clients: Vec<Client> = (0..8).map(|_| Client::connect(server.address)).collect();
    let index = "create index on few (v, id)";
    for statement in
        ["update few set v = v || 'y'", "select count(*) from few where v < 'x' || id", index, "checkpoint"]
    {
        clients.iter_mut().for_each(|client| client.send(&query(statement)));
        for client in &mut clients {
            let replies = client.until_ready();
            let is_refused = matches!(&replies[0], Reply::Error(_, state, _) if state == "53000" || state == "40P01");
            let is_done = replies.iter().any(|reply| matches!(reply, Reply::Complete(_)));
            assert!(is_done || is_refused, "{statement}: {replies:?}");
        }
    }
    client.send(&query("copy loaded from stdin"));
    let lines: String = (0..200_000).map(|line| format!("{line}\n")).collect();
    lines.as_bytes().chunks(60_000).for_each(|piece| client.send(&copy_data(piece)));
    client.send(&copy_done());
    assert!(client.until_ready().contains(&Reply::Complete("COPY 200000".into())));
    assert_eq!(client.value("select count(*) from few where v like 'xy%'"), "5000");
    ends_well(server);
}

/// A small server with these settings instead of its own.
fn with(data: &Path, arguments: &[&str]) -> Command {
    let small = [("--memory-limit", "64MiB"), ("--log-size", "8MiB"), ("--segment-size", "1MiB")];
    let mut all =
        vec!["serve", "--listen", "127.0.0.1:0", "--huge-pages", "false", "--drain-timeout", "200ms", "--data"];
    all.push(data.to_str().expect("a readable path"));
    all.extend(small.into_iter().filter(|(flag, _)| !arguments.contains(flag)).flat_map(|(flag, value)| [flag, value]));
    all.extend(arguments);
    freshet(&all)
}

fn scratch() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let data = directory.path().join("data");
    (directory, data)
}

/// A pager that stands still, a log driver that hangs.
#[test]
fn who_does_not_read_what_the_server_says_stops_nothing() {
    let (_directory, data) = scratch();
    let mut server = Running::listening(with(&data, &["--log-format", "json"]));
    let mut client = Client::connect(server.address);
    client.query("set log_min_duration_statement = 0");
    let text = "x".repeat(4000);
    // Several times what a pipe and the test's own buffer take.
    for number in 0..100 {
        assert_eq!(client.value(&format!("select {number} /* {text} */")), number.to_string());
    }
    client.query("create table told(id int primary key)");
    let mut next = Client::connect(server.address);
    assert_eq!(next.value("select 1"), "1");
    drop((client, next));
    server.signal("-TERM");
    let end = Instant::now() + Duration::from_secs(30);
    let status = loop {
        if let Some(status) = server.child.try_wait().expect("a child") {
            break status;
        }
        assert!(Instant::now() < end, "it waits for its reader");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(0));
}

#[test]
fn what_the_server_says_last_is_read() {
    let (_directory, data) = scratch();
    let server = Running::listening(with(&data, &["--log-format", "json"]));
    let mut client = Client::connect(server.address);
    client.query("set log_min_duration_statement = 0");
    let text = "x".repeat(4000);
    for number in 0..100 {
        client.value(&format!("select {number} /* {text} */"));
    }
    server.signal("-TERM");
    std::thread::sleep(Duration::from_millis(200));
    let (code, told) = server.end();
    assert_eq!(code, Some(0));
    let statements = told.lines().filter(|line| line.contains("\"statement\"") && line.contains(&text)).count();
    assert!(statements == 100 && told.contains("SIGTERM: stopping"), "{statements} statements were told");
}

/// Images and what COPY writes are refused; commits, whose segments are no longer than the limit, go on.
#[test]
fn a_limit_on_file_sizes_is_an_error_of_who_meets_it() {
    let (directory, data) = scratch();
    let server = Running::listening(with(&data, &["--log-size", "32MiB", "--memory-limit", "256MiB"]));
    let mut client = Client::connect(server.address);
    client.query("create table long(id int primary key, v text)");
    client.query("insert into long select g, repeat('x', 1000) from generate_series(1, 4000) g");
    limit(&server.child, "--fsize=1048576:unlimited");
    let refused = client.query("checkpoint");
    assert!(
        matches!(&refused[0], Reply::Error(_, state, told) if state == "58030" && told.contains("too large")),
        "{refused:?}"
    );
    let file = directory.path().join("copied");
    let copy = format!("copy long to '{}'", file.display());
    assert_eq!(client.sqlstate(&copy), "58030");
    assert_eq!(client.query("insert into long values (0, 'and on')")[0], Reply::Complete("INSERT 0 1".into()));
    limit(&server.child, "--fsize=unlimited");
    assert_eq!(client.query("checkpoint")[0], Reply::Complete("CHECKPOINT".into()));
    assert_eq!(client.query(&copy)[0], Reply::Complete("COPY 4001".into()));
    ends_well(server);
}

/// `systemctl reload`, or logrotate's, may come at any time.
#[test]
fn sighup_does_not_end_a_recovery() {
    let (directory, data) = scratch();
    let place = directory.path().join("socket");
    std::fs::create_dir(&place).expect("a new directory");
    let place = place.to_str().expect("a readable path");
    let large =
        ["--log-size", "256MiB", "--segment-size", "4MiB", "--memory-limit", "512MiB", "--recovery-target", "0"];
    let command = || with(&data, &[&large[..], &["--socket", place]].concat());
    let server = Running::listening(command());
    let mut client = Client::connect(server.address);
    client.query("create table long(id int primary key, v text)");
    for round in 0..4 {
        let rows = format!("generate_series({0}, {0} + 29999) g", round * 30_000);
        client.query(&format!("insert into long select g, repeat('x', 300) from {rows}"));
    }
    let names = || std::fs::read_dir(place).expect("a directory").map(|entry| entry.expect("an entry").path());
    server.signal("-KILL");
    server.end();
    names().for_each(|name| std::fs::remove_file(name).expect("its own"));
    let child = command().spawn().expect("the binary runs");
    let end = Instant::now() + Duration::from_secs(20);
    // It listens before it recovers.
    while names().next().is_none() {
        assert!(Instant::now() < end, "it does not listen");
        std::thread::sleep(Duration::from_millis(1));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().expect("kill runs").success());
    let mut server = Running::of(child);
    wait_for_line(&mut server, "the configuration was read again");
    assert_eq!(Client::connect(server.address).value("select count(*) from long"), "120000");
    ends_well(server);
}
