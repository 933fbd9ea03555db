//! One row that everybody wants: a thousand sessions queue for it, each is woken once and in its turn, and none looks in between.

use crate::world::*;
use freshet_engine::catalog::IndexKind;
use freshet_engine::engine::{Engine, Options};
use freshet_engine::ids::RowId;
use freshet_engine::io::mem::{MemClock, MemIo};
use freshet_engine::schema::Value;
use freshet_engine::txn::{Isolation, Stop, Strength, WaitToken};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

const WAITERS: usize = 1000;

#[derive(Default)]
struct Bell(AtomicU32);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct Waiter {
    session: Session,
    token: WaitToken,
    bell: Arc<Bell>,
}

impl Waiter {
    fn poll(&mut self) -> Poll<()> {
        let waker = Waker::from(self.bell.clone());
        Pin::new(&mut self.token).poll(&mut Context::from_waker(&waker))
    }

    fn wakes(&self) -> u32 {
        self.bell.0.load(Ordering::SeqCst)
    }
}

fn world() -> Engine {
    let options = Options { sessions_max: WAITERS as u32 + 16, ..Options::small("/db") };
    Engine::open_with(Arc::new(MemIo::new()), MemClock::new(), options).expect("opens")
}

/// A session that has asked for the row and must wait.
fn queue(engine: &Engine, id: RowId) -> Waiter {
    let mut session = Session::new(engine);
    begin(&mut session, Isolation::ReadCommitted);
    let Err(Stop::Wait(token)) = set_n(&mut session, id, 0) else { panic!("the row is another's") };
    session.rollback_statement();
    let mut waiter = Waiter { session, token, bell: Arc::default() };
    assert_eq!(waiter.poll(), Poll::Pending);
    waiter
}

#[test]
fn a_thousand_waiters_are_woken_once_each_in_their_order() {
    let engine = world();
    let mut holder = Session::new(&engine);
    create(&mut holder, IndexKind::Hash);
    let id = commit_insert(&mut holder, 1, 0, "hot");
    begin(&mut holder, Isolation::ReadCommitted);
    set_n(&mut holder, id, 1).expect("the row is free");
    let mut waiters: Vec<Waiter> = (0..WAITERS).map(|_| queue(&engine, id)).collect();
    assert!(waiters.iter().all(|w| w.wakes() == 0), "nobody is woken while the row is held");
    holder.commit().expect("commits");
    for at in 0..WAITERS {
        let woken = waiters.iter().filter(|w| w.wakes() > 0).count();
        assert_eq!(woken, at + 1, "each release wakes one");
        let waiter = &mut waiters[at];
        assert_eq!((waiter.wakes(), waiter.poll()), (1, Poll::Ready(())));
        waiter.session.begin_statement();
        let before = get(&mut waiter.session, 1).expect("there").0;
        assert_eq!(before as usize, at + 1, "what the last holder committed");
        set_n(&mut waiter.session, id, before + 1).expect("the lock was handed over");
        waiter.session.commit().expect("commits");
    }
    assert_eq!(read(&mut holder, 1).expect("there").0 as usize, WAITERS + 1);
}

#[test]
fn a_cycle_through_a_long_queue_is_found() {
    let engine = world();
    let mut first = Session::new(&engine);
    create(&mut first, IndexKind::Hash);
    let (hot, other) = (commit_insert(&mut first, 1, 0, "hot"), commit_insert(&mut first, 2, 0, "other"));
    begin(&mut first, Isolation::ReadCommitted);
    set_n(&mut first, hot, 1).expect("free");
    let mut last = Session::new(&engine);
    begin(&mut last, Isolation::ReadCommitted);
    set_n(&mut last, other, 1).expect("free");
    let _queued: Vec<Waiter> = (0..100).map(|_| queue(&engine, hot)).collect();
    let Err(Stop::Wait(_token)) = set_n(&mut last, hot, 2) else { panic!("the row is another's") };
    last.rollback_statement();
    let stop = set_n(&mut first, other, 2).expect_err("a deadlock");
    assert!(matches!(stop, Stop::Error(freshet_engine::txn::Error::Deadlock(_))), "{stop:?}");
    first.rollback();
    last.rollback();
}

#[test]
fn a_row_locked_by_its_key_is_the_newest_one_and_no_uncommitted_one_is_waited_for_in_vain() {
    let engine = world();
    let mut a = Session::new(&engine);
    let mut b = Session::new(&engine);
    create(&mut a, IndexKind::Hash);
    commit_insert(&mut a, 1, 10, "one");
    let lock = |session: &mut Session, id: i64| {
        let table = table(session);
        let mut row = freshet_engine::schema::Row::default();
        let index = table.indexes[0].clone();
        let found = session.lock_by_key(&table, &index, |_| Value::Int(id), Strength::Update, &mut row)?;
        Ok::<_, Stop>(found.map(|_| row.get(&table.layout, 1) == Value::Int(10)))
    };
    // Another's insert is not there before its commit: it is not waited for.
    begin(&mut b, Isolation::ReadCommitted);
    insert(&mut b, 2, 10, "two").expect("inserts");
    a.begin(Isolation::ReadCommitted, false);
    a.begin_statement_at_newest();
    assert_eq!(lock(&mut a, 2).expect("no wait"), None);
    b.commit().expect("commits");
    a.begin_statement_at_newest();
    assert_eq!(lock(&mut a, 2).expect("free"), Some(true));
    // One that another deletes is waited for, and gone after its commit.
    begin(&mut b, Isolation::ReadCommitted);
    let table = table(&b);
    let mut row = freshet_engine::schema::Row::default();
    let id = b.get(&table, &table.indexes[0], |_| Value::Int(1), &mut row).expect("there");
    delete(&mut b, id).expect("deletes");
    a.begin_statement_at_newest();
    assert!(matches!(lock(&mut a, 1), Err(Stop::Wait(_))));
    a.rollback_statement();
    b.commit().expect("commits");
    a.begin_statement_at_newest();
    assert_eq!(lock(&mut a, 1).expect("decided"), None);
    a.rollback();
}
