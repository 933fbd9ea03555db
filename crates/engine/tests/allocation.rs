//! Does the log allocate in steady state? Counted by this thread's allocator, which also counts what grows.

mod counting;

use counting::allocations;
use freshet_engine::ids::DeviceId;
use freshet_engine::io::os::{OsClock, OsIo};
use freshet_engine::log::{DatabaseId, Log, LogOptions, Progress, Worker};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Stages a frame by each worker, registers a waiter, then closes, gathers, writes and syncs their epoch on this thread.
fn flush_one_epoch(log: &Arc<Log>, workers: &mut [Worker]) {
    let mut last = None;
    for worker in workers {
        let reserved = worker.reserve(40).expect("there is room");
        let (mut announced, cts) = reserved.announce_and_draw();
        announced.stage(cts.epoch(), &[&[7; 16], &[8; 24]]);
        announced.leave_quietly();
        last = Some(cts);
    }
    let cts = last.expect("there are workers");
    let (mut waits, mut context) = (pin!(log.wait_durable(cts)), Context::from_waker(Waker::noop()));
    assert!(waits.as_mut().poll(&mut context).is_pending());
    assert!(log.flush_inline(cts).expect("the log works"));
    assert!(matches!(waits.poll(&mut context), Poll::Ready(Ok(()))));
}

fn segments_in(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir).expect("the log's directory").map(|entry| entry.expect("a file").file_name());
    names.filter(|name| name.to_string_lossy().starts_with("log-")).count()
}

/// Of however many devices: what is gathered, named, written and acknowledged has its memory from the groups before.
#[test]
fn a_group_is_sealed_and_written_without_allocating() {
    /// Less than half a segment of groups of 4 KiB, so that no file is prepared meanwhile.
    const EPOCHS: usize = 100;
    for devices in 1..=3u16 {
        let dir = tempfile::tempdir().expect("a directory for the log");
        let dirs: Vec<PathBuf> = (0..devices).map(|device| dir.path().join(format!("log{device}"))).collect();
        let options = LogOptions {
            segment_bytes: 4 << 20,
            log_size_bytes: u64::from(devices) * (16 << 20),
            stage_limit_bytes: 64 << 10,
            idle_witness_us: u64::MAX / 2,
            ..LogOptions::new(dirs.clone())
        };
        let log = Log::create(Arc::new(OsIo::default()), Arc::new(OsClock::new()), &options, DatabaseId(7))
            .expect("the log is made");
        let mut workers: Vec<_> =
            (0..2 * devices).map(|at| log.worker_on(DeviceId(at % devices)).expect("a worker")).collect();
        // Spare segments are made ahead of the groups, not in their turn; with the current one each device has three.
        while log.step() == Progress::Worked {}
        (0..EPOCHS).for_each(|_| flush_one_epoch(&log, &mut workers));
        while !dirs.iter().all(|dir| segments_in(dir) == 3) {
            log.step();
        }
        let (before, groups) = (allocations(), log.stats().groups);
        (0..EPOCHS).for_each(|_| flush_one_epoch(&log, &mut workers));
        let allocations = allocations() - before;
        assert_eq!(log.stats().groups - groups, u64::from(devices) * EPOCHS as u64);
        assert_eq!(allocations, 0, "in {EPOCHS} epochs on {devices} devices");
    }
}
