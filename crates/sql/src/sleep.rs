//! How does a statement wait for a time to come? One thread wakes all who sleep; it is started by the first.

use freshet_engine::io::urgency::{Served, start_thread};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Nobody sleeps longer: three years.
const LONGEST: Duration = Duration::from_secs(100_000_000);

type Key = (Instant, u64);

#[derive(Default)]
struct Sleepers {
    by_end: Mutex<BTreeMap<Key, Waker>>,
    /// Somebody is to be woken earlier than the thread meant to look.
    is_earlier: Condvar,
}

static SLEEPERS: OnceLock<&'static Sleepers> = OnceLock::new();

fn sleepers() -> io::Result<&'static Sleepers> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _starting = STARTING.lock();
    if let Some(sleepers) = SLEEPERS.get() {
        return Ok(sleepers);
    }
    let sleepers: &'static Sleepers = Box::leak(Box::default());
    let thread = std::thread::Builder::new().name("freshet-sleep".to_owned());
    start_thread(thread, Served::AsOthers, || sleepers.wake_in_time())?;
    Ok(SLEEPERS.get_or_init(|| sleepers))
}

impl Sleepers {
    fn wake_in_time(&self) {
        let mut by_end = self.by_end.lock();
        loop {
            let now = Instant::now();
            match by_end.first_entry() {
                None => self.is_earlier.wait(&mut by_end),
                Some(first) if first.key().0 > now => {
                    let end = first.key().0;
                    self.is_earlier.wait_until(&mut by_end, end);
                }
                Some(first) => {
                    let waker = first.remove();
                    // Whoever is woken may drop a sleep of its own.
                    MutexGuard::unlocked(&mut by_end, || waker.wake());
                }
            }
        }
    }
}

/// Ready when its time has passed; until then whoever awaits it holds no thread.
pub struct Sleep {
    sleepers: &'static Sleepers,
    key: Key,
}

impl Sleep {
    /// Fails where the system gives no thread.
    pub fn of(length: Duration) -> io::Result<Sleep> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let end = Instant::now() + length.min(LONGEST);
        Ok(Sleep { sleepers: sleepers()?, key: (end, NEXT.fetch_add(1, Ordering::Relaxed)) })
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.key.0 {
            return Poll::Ready(());
        }
        let mut by_end = self.sleepers.by_end.lock();
        by_end.insert(self.key, context.waker().clone());
        if by_end.first_key_value().is_some_and(|(first, _)| *first == self.key) {
            self.sleepers.is_earlier.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.sleepers.by_end.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshet_engine::txn::block_on;

    #[test]
    fn each_sleeps_its_own_time_and_leaves_nothing() {
        let began = Instant::now();
        let mut long = Sleep::of(Duration::from_secs(3600)).expect("a thread");
        assert!(block_on(&mut long, Some(Duration::from_millis(30))).is_none());
        let mut sleeps: Vec<Sleep> =
            [80, 20, 50].map(|ms| Sleep::of(Duration::from_millis(ms)).expect("a thread")).into();
        for (sleep, ms) in sleeps.iter_mut().zip([80, 20, 50]) {
            assert!(block_on(sleep, Some(Duration::from_secs(20))).is_some());
            assert!(began.elapsed() >= Duration::from_millis(ms));
        }
        assert!(began.elapsed() < Duration::from_secs(10));
        drop(long);
        assert!(SLEEPERS.get().expect("started").by_end.lock().is_empty());
    }
}
