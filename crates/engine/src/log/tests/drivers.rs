//! Threads: workers, waiters and drivers at once, on the twin and on real files.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::ids::DeviceId;
use crate::io::os::{OsClock, OsIo};

use super::*;

/// What a thread drives.
#[derive(Clone, Copy)]
enum Part {
    All,
    Device(u16),
    Preparing,
}

/// A thread that drives a part until dropped.
struct Driver {
    stop: Arc<AtomicBool>,
    log: Arc<Log>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Driver {
    fn start(log: &Arc<Log>, part: Part) -> Driver {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (stop, log) = (stop.clone(), log.clone());
            move || {
                while !stop.load(Ordering::SeqCst) {
                    let progress = match part {
                        Part::All => log.step(),
                        Part::Device(device) => log.device_step(DeviceId(device)),
                        Part::Preparing => log.prepare_step(),
                    };
                    if progress != Progress::Worked {
                        // Long enough that a lost wake makes the test time out.
                        let idle = Duration::from_secs(20);
                        match part {
                            Part::All => log.park(idle),
                            Part::Device(device) => log.device_park(DeviceId(device), idle),
                            Part::Preparing => log.prepare_park(idle),
                        }
                    }
                }
            }
        });
        Driver { stop, log: log.clone(), thread: Some(thread) }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let thread = self.thread.take().unwrap();
        // A wake is not remembered for a thread that is about to park.
        while !thread.is_finished() {
            self.log.wake();
            std::thread::yield_now();
        }
        thread.join().unwrap();
    }
}

fn commit_many(log: &Arc<Log>, thread: u64, count: u64) -> BTreeMap<u64, Epoch> {
    let mut worker = log.worker().unwrap();
    let mut numbers = BTreeMap::new();
    for i in 0..count {
        let number = thread * 1_000_000 + i;
        let cts = loop {
            match try_commit(&mut worker, number) {
                Ok(cts) => break cts,
                Err(ReserveError::Busy(wait)) => wait.wait(),
                Err(ReserveError::Refused(LogError::Full { .. })) => {
                    let start = log.log_start(log.durable());
                    log.recycle_below(&start).unwrap();
                    // Space may hang on what is not durable yet.
                    log.wait_durable(log.now()).wait().unwrap();
                }
                Err(ReserveError::Refused(error)) => panic!("{error}"),
            }
        };
        if i % 4 == 0 {
            log.wait_durable(cts).wait().unwrap();
            assert!(log.durable() >= cts.epoch());
        }
        numbers.insert(number, cts.epoch());
    }
    numbers
}

fn threads_commit(devices: usize, parts: &[Part]) {
    let (io, options) = (MemIo::new(), options(devices));
    let log = create(&io, &options);
    let running: Vec<_> = parts.iter().map(|part| Driver::start(&log, *part)).collect();
    let committed = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (log, committed) = (&log, &committed);
            scope.spawn(move || committed.fetch_add(commit_many(log, thread, 400).len(), Ordering::SeqCst));
        }
    });
    let last = log.now();
    log.wait_durable(last).wait().unwrap();
    assert_eq!(committed.load(Ordering::SeqCst), 1200);
    drop(running);
    let start = log.log_start(Epoch(0));
    drop(log);
    let scan = scan(&dynamic(&io.crash(9)), &options, &start, Epoch(0)).unwrap();
    assert!(scan.durable() >= last.epoch());
    recovered(&scan);
}

#[test]
fn one_driver_serves_many_workers() {
    threads_commit(1, &[Part::All]);
}

#[test]
fn a_thread_per_device_serves_many_workers() {
    threads_commit(3, &[Part::Device(0), Part::Device(1), Part::Device(2), Part::Preparing]);
}

#[test]
fn without_a_driver_the_waiters_drive() {
    let (io, mut options) = (MemIo::new(), options(2));
    options.log_size_bytes *= 4;
    let log = create(&io, &options);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let log = &log;
            scope.spawn(move || {
                let mut worker = log.worker().unwrap();
                for i in 0..30 {
                    let cts = commit(&mut worker, thread * 1000 + i);
                    log.wait_durable(cts).wait_inline().unwrap();
                }
            });
        }
    });
    drop(log);
    assert_eq!(recovered(&scan_all(&io.crash(2), &options).unwrap()).len(), 90);
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_thousand_waiters_are_woken_once_each() {
    let (io, options) = (MemIo::new(), options(1));
    let log = create(&io, &options);
    let cts = commit(&mut log.worker().unwrap(), 1);
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut waits: Vec<_> = (0..1000).map(|_| Box::pin(log.wait_durable(cts))).collect();
    for wait in &mut waits {
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drive(&log);
    assert_eq!(count.0.load(Ordering::SeqCst), 1000);
    for wait in &mut waits {
        assert!(matches!(wait.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(Ok(()))));
    }
    assert!(matches!(pin!(log.wait_durable(cts)).poll(&mut Context::from_waker(&waker)), Poll::Ready(Ok(()))));
}

#[test]
fn a_wait_for_an_empty_epoch_closes_it_and_idleness_leaves_one_witness() {
    let (io, options) = (MemIo::new(), options(2));
    let clock = MemClock::new();
    let log = Log::create(dynamic(&io), clock.clone(), &options, DATABASE).unwrap();
    drive(&log);
    assert_eq!(log.stats().groups, 0, "an idle log writes nothing");
    log.wait_durable(log.now()).wait_inline().unwrap();
    assert_eq!((log.stats().groups, log.stats().body_bytes), (1, 0));
    clock.advance_us(1_000_000);
    drive(&log);
    assert_eq!(log.stats().groups, 1, "without content there is nothing to witness");
    let cts = commit(&mut log.worker().unwrap(), 1);
    drive(&log);
    assert!(log.durable() >= cts.epoch());
    assert_eq!(log.stats().groups, 2);
    clock.advance_us(9_999);
    drive(&log);
    assert_eq!(log.stats().groups, 2);
    clock.advance_us(1);
    drive(&log);
    clock.advance_us(1_000_000);
    drive(&log);
    assert_eq!(log.stats().groups, 3, "one witness, then silence");
}

#[test]
fn everything_up_to_the_watermark_is_installed() {
    const THREADS: usize = 3;
    const EPOCHS: u64 = 300;
    let clock = epoch::CommitClock::new(Epoch(1), 16);
    // What each thread has drawn and not installed; zero for nothing.
    let pending: Vec<_> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
    let closed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for pending in &pending {
            scope.spawn(|| {
                let slot = clock.claim().unwrap();
                let mut last = Cts::ZERO;
                while closed.load(Ordering::SeqCst) < EPOCHS {
                    let bound = clock.announce(slot);
                    let cts = clock.draw();
                    assert!(cts > bound && cts > last);
                    last = cts;
                    pending.store(cts.0, Ordering::SeqCst);
                    std::hint::spin_loop();
                    pending.store(0, Ordering::SeqCst);
                    clock.leave(slot);
                }
                clock.release(slot);
            });
        }
        for epoch in (1..=EPOCHS).map(Epoch) {
            let watermark = clock.watermark();
            for uninstalled in pending.iter().map(|cts| cts.load(Ordering::SeqCst)) {
                assert!(uninstalled == 0 || uninstalled > watermark.0, "{uninstalled} below {watermark:?}");
            }
            clock.close(epoch);
            while !clock.has_left(epoch) {
                std::thread::yield_now();
            }
            for uninstalled in pending.iter().map(|cts| cts.load(Ordering::SeqCst)) {
                assert!(uninstalled == 0 || Cts(uninstalled).epoch() > epoch, "{epoch:?} is not left");
            }
            assert!(clock.watermark() >= Cts::last_of(epoch));
            closed.store(epoch.0, Ordering::SeqCst);
        }
    });
    assert_eq!(clock.watermark(), clock.now());
}

#[test]
fn real_files_carry_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(2);
    options.dirs = vec![dir.path().join("a"), dir.path().join("b/c")];
    options.fence_dirs = vec![dir.path().join("backup")];
    options.scan_threads = 2;
    let io: Arc<dyn Io> = Arc::new(OsIo::new());
    let clock = Arc::new(OsClock::new());
    let log = Log::create(io.clone(), clock.clone(), &options, DATABASE).unwrap();
    // One device each way.
    log.set_flush_way(crate::ids::DeviceId(1), FlushWay::DurableWrite);
    let driver = Driver::start(&log, Part::All);
    let numbers = commit_many(&log, 1, 40);
    log.wait_durable(log.now()).wait().unwrap();
    drop(driver);
    log.finish().unwrap();
    assert!(matches!(scan(&io, &options, &LogStart::default(), Epoch(0)), Err(LogDamage::Locked { .. })));
    drop(log);
    let again = scan(&io, &options, &LogStart::default(), Epoch(0)).unwrap();
    let found = recovered(&again);
    assert!(found.keys().eq(numbers.keys()));
    let log = Log::open(io, clock, &options, &again).unwrap();
    assert_eq!(log.incarnation(), Incarnation(2));
}
