//! An embedding program whose log fails: every call that would acknowledge says 58030, now and from then on, and reading goes on.

use freshet_db::{Database, Options, SqlError};
use std::path::Path;
use std::process::Command;

/// Set in the process that the limit is for: the directory of its database.
const CHILD: &str = "FRESHET_TEST_FAILING_LOG";

/// A limit on file sizes makes writes fail, for a whole process: so this test has one of its own.
#[test]
fn an_embedded_database_with_a_failed_log_acknowledges_nothing() {
    if let Ok(dir) = std::env::var(CHILD) {
        return lose_the_log(Path::new(&dir));
    }
    let dir = tempfile::tempdir().expect("a directory for the database");
    let name = "an_embedded_database_with_a_failed_log_acknowledges_nothing";
    let own = std::env::current_exe().expect("this test has a file");
    let child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(own)
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, dir.path())
        .output()
        .expect("sh runs");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    let db = Database::open(Options::small(dir.path())).expect("opens again");
    let mut session = db.session().expect("a session");
    assert_eq!(session.run("select id from t where id = 1").expect("reads"), 1);
}

fn lose_the_log(dir: &Path) {
    let db = Database::open(Options::small(dir)).expect("opens");
    let mut session = db.session().expect("a session");
    session.run("create table t (id int primary key); insert into t values (1)").expect("a log that works");
    let deferred = db.session().and_then(|mut other| {
        other.run("set synchronous_commit = off; begin; insert into t values (50)")?;
        Ok(other)
    });
    let mut deferred = deferred.expect("a transaction under way");
    let pid = std::process::id().to_string();
    let limited = Command::new("prlimit").args(["--pid", &pid, "--fsize=4096"]).status().expect("prlimit runs");
    assert!(limited.success());
    let state = |result: Result<u64, SqlError>| result.expect_err("the log fails").sqlstate;
    for id in 2..5 {
        assert_eq!(state(session.run(&format!("insert into t values ({id})"))), "58030");
    }
    assert_eq!(state(deferred.run("commit")), "58030");
    assert_eq!(db.checkpoint().expect_err("nothing is written any more").sqlstate, "58030");
    assert!(db.engine().failure().is_some_and(|reason| reason.contains("the log failed (")));
    let mut reader = db.session().expect("a session");
    assert_eq!(reader.run("select id from t where id = 1").expect("reading durable rows goes on"), 1);
}
