//! Threads: workers, waiters and drivers at once, on the twin and on real files.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::ids::DeviceId;
use crate::io::os::{OsClock, OsIo};

use super::hooked::{Call, HookedIo};
use super::*;

/// What a thread drives.
#[derive(Clone, Copy)]
enum Part {
    All,
    /// The same, and it lets commits come together, as the engine's thread does.
    Lingering,
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
                let mut since = None;
                while !stop.load(Ordering::SeqCst) {
                    if matches!(part, Part::Lingering) && log.linger(&mut since) {
                        continue;
                    }
                    let progress = match part {
                        Part::All | Part::Lingering => log.step(),
                        Part::Device(device) => log.device_step(DeviceId(device)),
                        Part::Preparing => log.prepare_step(),
                    };
                    if progress != Progress::Worked {
                        // Long enough that a lost wake makes the test time out.
                        let idle = Duration::from_secs(20);
                        match part {
                            Part::All | Part::Lingering => log.park(idle),
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
    // It may be of an empty epoch, which finds no room in a log that is full.
    log.recycle_below(&log.log_start(log.durable())).unwrap();
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

/// As a session does that goes on to wait inline.
fn commit_quietly(worker: &mut Worker, number: u64) -> Cts {
    let bytes = frame(number);
    let (mut announced, cts) = worker.reserve(bytes.len() as u64).unwrap().announce_and_draw();
    announced.stage(cts.epoch(), &[&bytes]);
    announced.leave_quietly();
    cts
}

/// A thread that drives sleeps meanwhile: to wake it costs more than the flush of a fast device, and it would contend for the writing.
#[test]
fn a_lone_commit_that_flushes_inline_wakes_no_parked_driver() {
    for devices in [1, 2] {
        let (io, options) = (MemIo::new(), options(devices));
        let log = create(&io, &options);
        let mut worker = log.worker().unwrap();
        // A segment is begun, and the next one prepared.
        let first = commit_quietly(&mut worker, 100);
        log.wait_durable(first).wait_inline().unwrap();
        drive(&log);
        let parts: &[Part] = if devices == 1 { &[Part::All] } else { &[Part::Device(0), Part::Device(1)] };
        let drivers: Vec<_> = parts.iter().map(|part| Driver::start(&log, *part)).collect();
        while !log.is_anyone_parked() {
            std::thread::yield_now();
        }
        let before = log.wakes();
        // Less than a segment: a spare is prepared by whoever has nothing else to do.
        for number in 0..8 {
            let cts = commit_quietly(&mut worker, number);
            log.wait_durable(cts).wait_inline().unwrap();
        }
        assert_eq!(log.wakes(), before, "{devices} devices");
        // One that does not wait inline does: the count counts.
        while !log.is_anyone_parked() {
            std::thread::yield_now();
        }
        let cts = commit(&mut worker, 8);
        log.wait_durable(cts).wait().unwrap();
        assert!(log.wakes() > before);
        drop(drivers);
    }
}

#[test]
fn the_next_group_fills_while_one_flushes() {
    let options = options(1);
    // The syncs that may still begin and end, and those that are under way.
    let syncs = Arc::new((Mutex::new([usize::MAX / 2, 0]), Condvar::new()));
    let io = MemIo::new();
    let of_files = syncs.clone();
    let slow = HookedIo::new(io.clone(), move |call| {
        if matches!(call, Call::Sync) {
            let (syncs, changed) = &*of_files;
            let mut state = syncs.lock().unwrap();
            state[1] += 1;
            changed.notify_all();
            state = changed.wait_while(state, |state| state[0] == 0).unwrap();
            state[0] -= 1;
            state[1] -= 1;
        }
    });
    let log = Log::create(slow, MemClock::new(), &options, DATABASE).unwrap();
    drive(&log);
    let may_sync = |count| {
        syncs.0.lock().unwrap()[0] = count;
        syncs.1.notify_all();
    };
    let mut worker = log.worker().unwrap();
    may_sync(0);
    let driver = Driver::start(&log, Part::All);
    let first = commit(&mut worker, 0);
    let under_way = syncs.1.wait_while(syncs.0.lock().unwrap(), |state| state[1] == 0).unwrap();
    drop(under_way);
    let groups = log.stats().groups;
    let later: Vec<Cts> =
        (1..10).map(|number| try_commit(&mut worker, number).expect("the flush is in nobody's way")).collect();
    assert!(log.durable() < first.epoch(), "it is still under way");
    assert!(later.iter().all(|cts| cts.epoch() == Epoch(first.epoch().0 + 1)), "{first:?}, {later:?}");
    may_sync(usize::MAX / 2);
    log.wait_durable(later[8]).wait().unwrap();
    assert_eq!(log.stats().groups, groups + 1, "all that came meanwhile is one group");
    drop(driver);
    drop(log);
    assert_eq!(recovered(&scan_all(&io.crash(3), &options).unwrap()).len(), 10);
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

/// A log that is patient, its clock, an attendant that is at work, and a thread that drives as the engine's does.
fn patient_log(io: &MemIo) -> (Arc<Log>, Arc<MemClock>, Attendant, Driver) {
    let clock = MemClock::new();
    let mut log = Log::create(dynamic(io), clock.clone(), &options(1), DATABASE).unwrap();
    Arc::get_mut(&mut log).expect("nobody has it yet").patience_us = 300;
    drive(&log);
    log.attendance.set_patient(true);
    let attendant = log.attendant();
    attendant.works();
    let driver = Driver::start(&log, Part::Lingering);
    while !log.is_anyone_parked() {
        std::thread::yield_now();
    }
    (log, clock, attendant, driver)
}

/// Begins to wait, as a session of an event loop does.
fn begin_to_wait(log: &Arc<Log>, cts: Cts) -> Pin<Box<DurableWait>> {
    let mut wait = Box::pin(log.wait_durable(cts));
    assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    wait
}

#[test]
fn a_patient_log_waits_until_the_last_attendant_rests() {
    let io = MemIo::new();
    let (log, _clock, attendant, _driver) = patient_log(&io);
    let other = log.attendant();
    other.works();
    let mut worker = log.worker().unwrap();
    for number in 0..20 {
        let cts = commit(&mut worker, number);
        let wait = begin_to_wait(&log, cts);
        let wakes = log.wakes();
        // Much else is done: so it stays patient.
        attendant.turns(1_000);
        other.rests();
        attendant.turns(1);
        assert!(
            log.wakes() <= wakes + 1,
            "who rests while others are at work tells the driver that it may wait so long"
        );
        assert!(wait.outcome().is_none());
        attendant.rests();
        wait_until_durable(&log, cts, || {});
        assert!(matches!(wait.outcome(), Some(Ok(()))));
        attendant.works();
        other.works();
        // The driver sleeps for good before the next.
        while !log.is_anyone_parked() {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_patient_log_flushes_at_a_turn_s_end_when_its_patience_is_over() {
    let io = MemIo::new();
    let (log, clock, attendant, _driver) = patient_log(&io);
    let mut worker = log.worker().unwrap();
    let first = begin_to_wait(&log, commit(&mut worker, 1));
    clock.advance_us(299);
    attendant.turns(1);
    let cts = commit(&mut worker, 2);
    let second = begin_to_wait(&log, cts);
    attendant.turns(1);
    assert!(first.outcome().is_none());
    clock.advance_us(1);
    attendant.turns(1);
    wait_until_durable(&log, cts, || {});
    assert!(matches!((first.outcome(), second.outcome()), (Some(Ok(())), Some(Ok(())))));
    assert_eq!(log.stats().groups, 1, "one for both");
}

#[test]
fn what_nobody_waits_for_is_told_at_a_turn_s_end() {
    let io = MemIo::new();
    let (log, clock, attendant, _driver) = patient_log(&io);
    let wakes = log.wakes();
    let cts = commit(&mut log.worker().unwrap(), 1);
    assert_eq!(log.wakes(), wakes);
    attendant.turns(1_000);
    wait_until_durable(&log, cts, || clock.advance_us(100));
    // Where nobody is at work, the driver is told at once.
    attendant.rests();
    let cts = commit(&mut log.worker().unwrap(), 2);
    wait_until_durable(&log, cts, || clock.advance_us(100));
}

/// Somebody else sees to it, while time `passes`.
fn wait_until_durable(log: &Log, cts: Cts, passes: impl Fn()) {
    let begun = std::time::Instant::now();
    while log.durable() < cts.epoch() {
        assert!(begun.elapsed() < Duration::from_secs(10), "nobody was woken");
        passes();
        std::thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn a_thread_that_flushes_once_needs_no_driver() {
    for devices in 1..4 {
        let (io, options) = (MemIo::new(), options(devices));
        let log = create(&io, &options);
        let mut workers: Vec<Worker> = (0..devices).map(|_| log.worker().unwrap()).collect();
        let mut calls = 0;
        for number in 0..20 {
            let last = workers.iter_mut().map(|worker| commit(worker, number)).max().expect("there are workers");
            let wait = log.wait_durable(last);
            // Where a segment has to be made first, once is not enough.
            while wait.outcome().is_none() {
                wait.flush_once();
                calls += 1;
                assert!(calls < 40, "of {devices} devices, number {number}");
            }
            assert!(matches!(wait.outcome(), Some(Ok(()))));
        }
    }
}

#[test]
fn a_thread_that_flushes_once_waits_for_no_worker_and_the_wait_goes_on() {
    let (io, options) = (MemIo::new(), options(1));
    let log = create(&io, &options);
    let (mut one, mut other) = (log.worker().unwrap(), log.worker().unwrap());
    let cts = commit(&mut one, 1);
    let bytes = frame(2);
    let mut announced = other.reserve(bytes.len() as u64).unwrap().announce();
    let late = announced.draw();
    let wait = log.wait_durable(cts);
    wait.flush_once();
    assert!(wait.outcome().is_none(), "the epoch is open as long as a worker is announced in it");
    announced.stage(late.epoch(), &[&bytes]);
    announced.leave();
    wait.flush_once();
    assert!(matches!(wait.outcome(), Some(Ok(()))));
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

/// A device that is free does not run ahead of a slow one that has to write twice for the same epoch: who commits meanwhile would wait for a third flush.
#[test]
fn an_epoch_stays_open_while_a_slow_device_that_has_some_of_it_writes() {
    let (io, options) = (MemIo::new(), options(2));
    for flush_us in [8_000, 80] {
        let clock = MemClock::new();
        let log = Log::create(dynamic(&io.crash(flush_us)), clock.clone(), &options, DATABASE).unwrap();
        drive(&log);
        let [free, busy] = [DeviceId(0), DeviceId(1)];
        let (mut of_free, mut of_busy) = (log.worker_on(free).unwrap(), log.worker_on(busy).unwrap());
        // One seals; then each device writes and syncs.
        let works = |device: DeviceId, steps: usize| {
            for _ in 0..steps {
                assert_eq!(log.device_step(device), Progress::Worked, "{device:?}");
                clock.advance_us(flush_us);
            }
        };
        let first = [commit(&mut of_free, 0), commit(&mut of_busy, 1)].map(|cts| cts.epoch());
        works(free, 3);
        assert_eq!((first[0], log.durable() < first[0]), (first[1], true), "the other device has not written");

        // Nobody who is busy has some: it is written at once.
        let alone = commit(&mut of_free, 2).epoch();
        works(free, 3);
        works(busy, 2);
        assert_eq!((log.durable(), alone.0), (alone, first[0].0 + 1));

        let second = [commit(&mut of_free, 3), commit(&mut of_busy, 4)].map(|cts| cts.epoch());
        works(free, 3);
        let waiting = [commit(&mut of_busy, 5), commit(&mut of_free, 6)].map(|cts| cts.epoch());
        assert_eq!(waiting, [Epoch(second[0].0 + 1); 2]);
        if flush_us < 300 {
            works(free, 3);
            works(busy, 4);
            assert_eq!(log.durable(), waiting[0], "of fast devices the next is sealed meanwhile");
            continue;
        }
        assert_eq!(log.device_step(free), Progress::Idle);
        assert_eq!(commit(&mut of_free, 7).epoch(), waiting[0]);
        works(busy, 2);
        assert_eq!(log.durable(), second[0]);
        works(free, 3);
        works(busy, 2);
        assert_eq!(log.durable(), waiting[0]);
    }
}

/// What is staged on a device that waits for a slow one wakes no driver, and what lies beyond a group's worth does not wait.
#[test]
fn frames_that_wait_for_a_slow_device_wake_nobody_until_they_are_many() {
    let io = MemIo::new();
    let options =
        LogOptions { segment_bytes: 4 << 20, log_size_bytes: 48 << 20, stage_limit_bytes: 2 << 20, ..options(2) };
    let clock = MemClock::new();
    let log = Log::create(dynamic(&io), clock.clone(), &options, DATABASE).unwrap();
    drive(&log);
    let [free, busy] = [DeviceId(0), DeviceId(1)];
    let (mut of_free, mut of_busy) = (log.worker_on(free).unwrap(), log.worker_on(busy).unwrap());
    for number in [0, 2] {
        commit(&mut of_free, number);
        commit(&mut of_busy, number + 1);
        for device in [free, free, free, busy, busy] {
            // Of the second group the busy device has not ended its.
            if number == 0 || device == free {
                assert_eq!(log.device_step(device), Progress::Worked);
                clock.advance_us(8_000);
            }
        }
    }
    let epoch = commit(&mut of_busy, 4).epoch();
    let parked = std::thread::scope(|scope| {
        scope.spawn(|| log.device_park(free, Duration::from_secs(20)));
        while !log.is_anyone_parked() {
            std::thread::yield_now();
        }
        let wakes = log.wakes();
        (5..105).for_each(|number| assert_eq!(commit(&mut of_free, number).epoch(), epoch));
        let woken = log.wakes() - wakes;
        // Four hundred times 300 bytes are not many, a thousand are.
        let mut number = 105;
        while log.wakes() == wakes {
            assert!(number < 2_000, "the driver is woken once much is staged");
            assert_eq!(commit(&mut of_free, number).epoch(), epoch);
            number += 1;
        }
        (woken, number)
    });
    assert!(parked.0 == 0 && parked.1 > 400, "{parked:?}");
    assert_eq!(log.device_step(free), Progress::Worked);
    assert!(log.now().epoch() > epoch);
}

/// Each look takes it further: so long seems whatever is done between two.
#[derive(Debug)]
struct Ticking {
    now_us: AtomicU64,
    tick_us: u64,
}

impl crate::io::Clock for Ticking {
    fn monotonic_us(&self) -> u64 {
        self.now_us.fetch_add(self.tick_us, Ordering::SeqCst)
    }

    fn wall_us(&self) -> u64 {
        self.now_us.load(Ordering::SeqCst)
    }
}

/// Makes the second spare of a log in use; in how many steps, and how often it rested.
fn make_spare_of_16_steps(tick_us: u64) -> (usize, usize) {
    let segment_bytes = 16 * (256 << 10);
    let (io, options) = (MemIo::new(), LogOptions { segment_bytes, log_size_bytes: 6 * segment_bytes, ..options(1) });
    let clock = Arc::new(Ticking { now_us: AtomicU64::new(0), tick_us });
    let log = Log::create(dynamic(&io), clock, &options, DATABASE).unwrap();
    let steps = (0..).take_while(|_| log.prepare_step() == Progress::Worked).count();
    assert_eq!(steps, 16, "before the first group nobody rests");
    let mut worker = log.worker().unwrap();
    // It takes one of the two.
    let cts = commit(&mut worker, 0);
    assert!(log.flush_inline(cts).unwrap());
    let (mut worked, mut rested) = (0, 0);
    while log.device(DeviceId(0)).spares.load(Ordering::SeqCst) < 2 {
        match log.prepare_step() {
            Progress::Worked => worked += 1,
            Progress::Idle => rested += 1,
            other => panic!("{other:?}"),
        }
    }
    (worked, rested)
}

#[test]
fn a_spare_that_is_in_no_hurry_leaves_the_device_to_commits() {
    // A rest is nine looks long, and to be told of it takes two or three. The first steps may have been the commit's.
    let (worked, rested) = make_spare_of_16_steps(100);
    assert!((8..=16).contains(&worked) && rested > 2 * worked, "{worked} steps, {rested} rests");
    // 256 KiB took 100 ms.
    let (worked, _) = make_spare_of_16_steps(100_000);
    assert!((20..=32).contains(&worked), "{worked} steps of 128 KiB");
}
