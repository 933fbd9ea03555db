//! Every adapter that is there answers alike: what it was told is what it holds. One that is not there says so, with a remedy.

use super::*;
use crate::shape::{Order, record168};

const ROWS: u64 = 300;

fn setup(dir: &std::path::Path) -> Setup {
    Setup {
        connections: 4,
        ..Setup::new(dir.to_owned(), LogPlan::default(), 256 << 20, 64).expect("nothing is opened")
    }
}

/// Runs operations on all sessions at once and adds up what was answered.
fn all(driver: &mut dyn Driver, ops: &[Op<'_>]) -> Answer {
    let (mut total, mut busy, mut done) = (Answer::default(), 0, Vec::new());
    for (session, op) in ops.iter().enumerate() {
        match driver.submit(session, op).expect("is taken") {
            Submitted::Done(answer) => total.add(answer),
            Submitted::InFlight => busy += 1,
        }
    }
    while busy > 0 {
        driver.completions(true, &mut done).expect("answers");
        busy -= done.len();
        done.drain(..).for_each(|completion| total.add(completion.answer));
    }
    total
}

fn exercise(kind: &Kind) {
    // Where the user postgres may go too.
    let dir = tempfile::tempdir_in("/tmp").expect("a directory");
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("ours");
    }
    let mut adapter = (kind.start)(&setup(dir.path())).expect("starts");
    adapter.create(&[record168(Order::Hash)]).expect("creates");
    let done = AtomicU64::new(0);
    adapter.load(&Loading { table: 0, rows: 0..ROWS, threads: 2, done: &done }).expect("loads");
    assert_eq!(adapter.content(0).expect("counts"), Content { rows: ROWS, sum: 0 });
    let mut driver = adapter.driver(32, true).expect("connects");
    let add = |key: i64| Op::Update { table: 0, index: 0, key, column: 5, add: 2 };
    let updates: Vec<Op> = (0..32).map(add).collect();
    assert_eq!(all(&mut *driver, &updates), Answer { rows: 32, sum: 0 });
    let search = |fetch| move |key: i64| Op::Search { table: 0, index: 0, key, fetch };
    let searches: Vec<Op> = (16..40).map(search(Fetch::Counter)).chain((0..4).map(search(Fetch::Row))).collect();
    assert_eq!(all(&mut *driver, &searches), Answer { rows: 28, sum: 2 * (16 + 4) });
    let keys: Vec<i64> = (30..34).collect();
    let many = Op::SearchMany { table: 0, index: 0, keys: &keys };
    assert_eq!(all(&mut *driver, &[many]), Answer { rows: 4, sum: 4 });
    let mut cells = Vec::new();
    (record168(Order::Hash).row)(ROWS, &mut cells);
    let insert = Op::Insert { table: 0, cells: &cells };
    let delete = Op::Delete { table: 0, index: 0, key: 299 };
    let absent = Op::Delete { table: 0, index: 0, key: 12_345 };
    let transactions: Vec<[Op; 3]> = (0..8).map(|n| [add(n), add(n + 8), search(Fetch::Counter)(n)]).collect();
    let together: Vec<Op> = transactions.iter().map(|ops| Op::Transaction(ops)).collect();
    let answered = all(&mut *driver, &together);
    assert_eq!(answered, Answer { rows: 24, sum: 8 * 4 });
    assert_eq!(all(&mut *driver, &[insert, delete, absent]), Answer { rows: 2, sum: 0 });
    let sum = 2 * 32 + 2 * 16;
    assert_eq!(all(&mut *driver, &[Op::Sum { table: 0 }]), Answer { rows: ROWS, sum });
    drop(driver);
    assert_eq!(adapter.content(0).expect("counts"), Content { rows: ROWS, sum });
    let facts = adapter.facts();
    assert!(facts.log_bytes.is_none_or(|bytes| bytes > 0), "{facts:?}");
}

#[test]
fn every_adapter_that_is_there_holds_what_it_was_told() {
    for kind in KINDS {
        match (kind.is_available)() {
            Ok(()) => exercise(kind),
            Err(missing) => assert!(!missing.reason.is_empty() && !missing.remedy.is_empty(), "{}", kind.name),
        }
    }
}

/// A log that lies with its data is on the directory that was given for logs, and so are the data.
#[test]
#[cfg(feature = "peers")]
fn a_system_in_one_place_lies_where_its_log_should() {
    let in_one_place: Vec<&Kind> = KINDS.iter().filter(|kind| kind.is_in_one_place).collect();
    assert_eq!(in_one_place.iter().map(|kind| kind.name).collect::<Vec<_>>(), ["sqlite", "redb"]);
    let files = |dir: &std::path::Path| std::fs::read_dir(dir).expect("lists").count();
    for kind in in_one_place {
        let (data, log) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let setup = Setup { log: LogPlan::Directories(vec![log.path().to_owned()]), ..setup(data.path()) };
        let mut adapter = (kind.start)(&setup).expect("starts");
        adapter.create(&[record168(Order::Hash)]).expect("creates");
        adapter.load(&Loading { table: 0, rows: 0..ROWS, threads: 1, done: &AtomicU64::new(0) }).expect("loads");
        assert_eq!(files(data.path()), 0, "{}", kind.name);
        let place = setup.log.directories(data.path()).swap_remove(0);
        assert!(place.starts_with(log.path()) && files(&place) > 0, "{}", kind.name);
    }
}

#[test]
fn a_server_that_ends_says_why() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "echo no space left >&2; exit 1"]);
    let mut server =
        child::Server::start("sh", command, dir.path(), rustix::process::Signal::INT).expect("sh is there");
    let refused = || Err(crate::error::BenchError::Engine("refused".into()));
    let error = server.wait_until(refused).expect_err("it ends").to_string();
    assert!(error.contains("no space left"), "{error}");
}

#[test]
fn a_process_of_its_own_cannot_be_put_on_modelled_devices() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = "model:flush=1ms".parse().expect("a model");
    for kind in KINDS.iter().filter(|kind| ["freshet-wire", "postgres"].contains(&kind.name)) {
        let error = (kind.start)(&Setup { log: LogPlan::clone(&log), ..setup(dir.path()) }).err();
        let error = error.expect("refused").to_string();
        assert!(error.contains("--log"), "{error}");
    }
}
