//! Spares that are made beside commits, on a device whose calls take their time by a clock of their own.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::io::Clock;

use super::hooked::{Call, HookedIo};
use super::*;

const SEGMENT: u64 = 4 << 20;
const SEGMENTS: u64 = 4;

/// What a device takes.
#[derive(Clone, Copy, Debug)]
struct Device {
    seek_us: u64,
    bytes_per_us: u64,
    sync_us: u64,
    dir_us: u64,
}

const SSD: Device = Device { seek_us: 20, bytes_per_us: 2_000, sync_us: 30, dir_us: 500 };
const CLOUD: Device = Device { seek_us: 300, bytes_per_us: 250, sync_us: 700, dir_us: 3_000 };
const DISK: Device = Device { seek_us: 8_000, bytes_per_us: 150, sync_us: 8_000, dir_us: 16_000 };

impl Device {
    fn takes_us(self, call: Call) -> u64 {
        match call {
            Call::Write(bytes) => self.seek_us + bytes / self.bytes_per_us,
            Call::Sync => self.sync_us,
            Call::SyncDir => self.dir_us,
        }
    }

    /// A commit that finds nothing in its way.
    fn commit_us(self, bytes: u64) -> u64 {
        self.takes_us(Call::Write(bytes)) + self.sync_us
    }
}

/// Moved by what files do.
#[derive(Debug, Default)]
struct Time(AtomicU64);

impl Time {
    fn pass(&self, us: u64) {
        self.0.fetch_add(us, Ordering::SeqCst);
    }
}

impl Clock for Time {
    fn monotonic_us(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn wall_us(&self) -> u64 {
        self.monotonic_us()
    }
}

/// Commits of so many bytes, one after the other, some segments full of them, so long after each other; what each took, in order of that. A driver
/// steps meanwhile as the engine's does.
fn commits(device: Device, bytes: u64, think_us: u64) -> Vec<u64> {
    let options = LogOptions {
        segment_bytes: SEGMENT,
        log_size_bytes: 4 * SEGMENTS * SEGMENT,
        stage_limit_bytes: SEGMENT / 2,
        idle_witness_us: u64::MAX / 2,
        ..options(1)
    };
    let time = Arc::new(Time::default());
    let passes = time.clone();
    let io = HookedIo::new(MemIo::new(), move |call| passes.pass(device.takes_us(call)));
    let log = Log::create(io, time.clone(), &options, DATABASE).unwrap();
    drive(&log);
    let mut worker = log.worker().unwrap();
    // A group is padded to blocks.
    let body = vec![7; bytes as usize - 500];
    let commit = |_| {
        let began_us = time.monotonic_us();
        let reserved = worker.reserve(body.len() as u64).expect("a spare is there before it is needed");
        let (mut announced, cts) = reserved.announce_and_draw();
        announced.stage(cts.epoch(), &[&body]);
        announced.leave_quietly();
        assert!(log.flush_inline(cts).unwrap());
        let took_us = time.monotonic_us() - began_us;
        let until_us = time.monotonic_us() + think_us;
        while time.monotonic_us() < until_us {
            if log.step() != Progress::Worked {
                time.pass((until_us - time.monotonic_us()).min(10_000));
            }
        }
        took_us
    };
    let mut all: Vec<u64> = (0..SEGMENTS * SEGMENT / bytes).map(commit).collect();
    all.sort_unstable();
    all
}

/// Whatever the device and however large the groups: nobody is refused for want of a spare.
#[test]
fn a_spare_is_there_before_it_is_needed() {
    for device in [SSD, CLOUD, DISK] {
        for bytes in [4 << 10, 64 << 10, 512 << 10] {
            let took = commits(device, bytes, 0);
            // Inline behind a step of preparing, at worst one of four groups, a sync and a name.
            let most_us = device.commit_us(bytes) + device.commit_us(SEGMENT) + device.sync_us + device.dir_us;
            assert!(took[took.len() - 1] <= most_us, "{device:?}, {bytes} bytes: {:?}", took.last());
        }
    }
}

/// Where there is time between commits, nineteen of twenty find the device free.
#[test]
fn commits_with_time_between_them_do_not_wait_for_spares() {
    for device in [SSD, CLOUD, DISK] {
        let took = commits(device, 4 << 10, 20 * device.commit_us(4 << 10));
        let due_us = device.commit_us(4 << 10);
        assert_eq!(took[took.len() * 19 / 20], due_us, "{device:?}");
    }
}

/// A bulk load that stages whatever it may. What a commit beside it waits for is a group as short as a large transaction's; where nobody commits for a while its
/// groups are as long as the device likes them.
#[test]
fn a_load_keeps_nobody_waiting_for_long_groups() {
    const FRAME: usize = 256 << 10;
    let options = LogOptions {
        segment_bytes: 32 << 20,
        log_size_bytes: 256 << 20,
        stage_limit_bytes: 16 << 20,
        idle_witness_us: u64::MAX / 2,
        ..options(1)
    };
    let time = Arc::new(Time::default());
    let passes = time.clone();
    let io = HookedIo::new(MemIo::new(), move |call| passes.pass(SSD.takes_us(call)));
    let log = Log::create(io, time.clone(), &options, DATABASE).unwrap();
    drive(&log);
    let (mut loader, mut worker) = (log.worker().unwrap(), log.worker().unwrap());
    let body = vec![7; FRAME - 100];
    let mut load = || {
        let mut staged = 0;
        while let Ok(reserved) = loader.reserve_load(body.len() as u64) {
            let (mut announced, cts) = reserved.announce_and_draw();
            announced.stage_bulk(cts.epoch(), &[&body]);
            announced.leave_quietly();
            staged += body.len() as u64;
        }
        staged
    };
    let mut commit = || {
        let began_us = time.monotonic_us();
        let (mut announced, cts) = worker.reserve(100).expect("loads leave room").announce_and_draw();
        announced.stage(cts.epoch(), &[&[7; 100]]);
        announced.leave_quietly();
        assert!(log.flush_inline(cts).unwrap());
        time.monotonic_us() - began_us
    };
    let beside = options.bulk_frame_limit_bytes() + FRAME as u64;
    commit();
    for _ in 0..20 {
        let staged = load();
        assert!((beside / 2..=beside).contains(&staged), "{staged}");
        let (took_us, most_us) = (commit(), SSD.commit_us(staged + 8192) + SSD.commit_us(4 << 20));
        assert!(took_us <= most_us, "{took_us} us, {most_us} with a step of a spare");
    }
    time.pass(super::super::flush::AWAITED_US);
    let staged = load();
    assert!(staged >= options.frame_limit_bytes(), "{staged} bytes where nobody waits");
}
