//! What does a session take? Allocations of the server's threads are counted: for a statement in steady state, and of a session that does nothing.

#[path = "wire/client.rs"]
#[allow(dead_code, reason = "the other tests use all of it")]
mod client;

use client::*;
use freshet_db::{Database, Options};
use freshet_server::listener::{self, Server};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

std::thread_local! {
    /// A thread of a test is the clients', all others are the server's.
    static IS_CLIENT: Cell<bool> = const { Cell::new(false) };
}

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);

struct Counting;

fn count(allocations: u64, bytes: i64) {
    // A thread that is going away has no mark any more.
    if !IS_CLIENT.try_with(Cell::get).unwrap_or(false) {
        ALLOCATIONS.fetch_add(allocations, Ordering::Relaxed);
        BYTES.fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as i64 - layout.size() as i64);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROWS: u32 = 5_000;

/// A server that nobody else in this process uses meanwhile.
struct World {
    server: Server,
    _database: Database,
    _directory: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl World {
    fn new() -> World {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        IS_CLIENT.set(true);
        let directory = tempfile::tempdir().expect("a scratch directory");
        let database = Database::open(Options {
            memory_limit_bytes: 256 << 20,
            log_size_bytes: 64 << 20,
            segment_bytes: 4 << 20,
            ..Options::small(directory.path())
        });
        let database = database.expect("a new database");
        let mut options = listener::Options::new("127.0.0.1:0".parse().expect("an address"));
        options.workers = 1;
        let server = listener::listen(&database, options).expect("a free port");
        let world = World { server, _database: database, _directory: directory, _alone: alone };
        let mut client = world.connect();
        client.query("create table t(id int primary key, v int not null, note text) with (primary_key = hash)");
        client.query(&format!(
            "insert into t select x, 0, repeat('n', 100) from generate_series(0, {}) as t(x)",
            ROWS - 1
        ));
        world
    }

    fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    fn connect(&self) -> Client {
        Client::connect(self.address())
    }
}

/// Statements between two Syncs' worth of answers.
const PIPELINE: u32 = 20;
const PIPELINES: u32 = 100;

/// Allocations for each of so many runs of the statement, bound with these result formats.
fn allocations_of_each(world: &World, sql: &str, formats: &[i16]) -> f64 {
    let mut client = world.connect();
    client.send(&[parse("s", sql, &[]), sync()].concat());
    client.until_ready();
    let mut pipelines = |from: u32| {
        for at in 0..PIPELINES {
            let one = |number: u32| {
                let id = ((from + at * PIPELINE + number) % ROWS).to_string();
                let bind = bind_formats("", "s", &[], &[Some(id.as_bytes())], formats);
                [bind, execute("", 0), sync()].concat()
            };
            client.send(&(0..PIPELINE).flat_map(one).collect::<Vec<u8>>());
            for _ in 0..PIPELINE {
                let replies = client.until_ready();
                assert!(replies.iter().any(|reply| matches!(reply, Reply::Complete(_))), "{replies:?}");
            }
        }
    };
    pipelines(0);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    pipelines(1);
    (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64 / f64::from(PIPELINE * PIPELINES)
}

#[test]
fn a_statement_allocates_nothing_in_steady_state() {
    let world = World::new();
    // What the threads behind do meanwhile is counted too: the log takes some for each of its groups, of which a pipeline is one or a few.
    let cases: [(&str, &[i16], f64); 5] = [
        ("select v, note from t where id = $1", &[], 0.05),
        ("select v, note from t where id = $1", &[1], 0.05),
        ("select v, note from t where id = $1", &[0, 1], 0.05),
        ("update t set v = v + 1 where id = $1", &[], 1.0),
        ("delete from t where id = $1 and v < 0", &[], 1.0),
    ];
    for (sql, formats, most) in cases {
        let each = allocations_of_each(&world, sql, formats);
        println!("{sql} {formats:?}: {each} allocations each");
        assert!(each <= most, "{sql} {formats:?}: {each} allocations each");
    }
}

type Work<'a> = Box<dyn Fn(&mut Client) + 'a>;

/// What a session may take while it does nothing, whatever it did before.
const IDLE_BYTES: i64 = 64 << 10;

#[test]
fn a_session_that_does_nothing_takes_little() {
    let world = World::new();
    let long = "x".repeat(200_000);
    let works: [(&str, Work); 6] = [
        ("nothing", Box::new(|_| {})),
        ("a look-up", Box::new(|client| drop(client.query("select v from t where id = 7")))),
        ("a result of 1,000 rows", Box::new(|client| drop(client.query("select * from t limit 1000")))),
        ("all rows", Box::new(|client| drop(client.query("select * from t")))),
        (
            "a long statement",
            Box::new(|client| assert_eq!(client.value(&format!("select length('{long}')")), "200000")),
        ),
        (
            "a long parameter, and many rows changed",
            Box::new(|client| {
                client.send(&[run("select length($1)", &[&long]), sync()].concat());
                client.until_ready();
                client.query("begin");
                client.query("update t set v = v + 1 where id < 400");
                client.query("rollback");
            }),
        ),
    ];
    const SESSIONS: i64 = 10;
    for (name, work) in works {
        // What the statement leaves for all sessions is there before.
        work(&mut world.connect());
        let before = settled();
        let mut clients: Vec<Client> = (0..SESSIONS).map(|_| world.connect()).collect();
        clients.iter_mut().for_each(&work);
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let each = (BYTES.load(Ordering::Relaxed) - before) / SESSIONS;
            if each <= IDLE_BYTES {
                println!("{name}: {each} bytes each");
                break;
            }
            assert!(Instant::now() < end, "{name}: {each} bytes each");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(clients.iter_mut().all(|client| client.value("select 1") == "1"));
    }
}

/// What is allocated when the sessions before are gone.
fn settled() -> i64 {
    let mut last = i64::MAX;
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let now = BYTES.load(Ordering::Relaxed);
        if (now - last).abs() < 1024 {
            return now;
        }
        last = now;
    }
}
