//! The log as its callers see it, over the in-memory twin.

mod crash;
mod damage;
mod devices;
mod drivers;
mod faults;
mod hooked;
mod pace;
mod space;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::ids::{Cts, Epoch};
use crate::io::mem::{Dice, MemClock, MemIo};
use crate::io::{AlignedBuf, FlushWay, Io};

use super::*;

const DATABASE: DatabaseId = DatabaseId(0x00c0_ffee_0000_0000_0000_0000_0000_0001);
const SEGMENT_BYTES: u64 = 64 << 10;

fn options(devices: usize) -> LogOptions {
    LogOptions {
        dirs: (0..devices).map(|i| PathBuf::from(format!("log{i}"))).collect(),
        retired_dirs: Vec::new(),
        fence_dirs: vec![PathBuf::from("backup")],
        segment_bytes: SEGMENT_BYTES,
        log_size_bytes: devices as u64 * 6 * SEGMENT_BYTES,
        stage_limit_bytes: 16 << 10,
        direct_io: true,
        idle_witness_us: 10_000,
        scan_threads: 1,
    }
}

fn dynamic(io: &MemIo) -> Arc<dyn Io> {
    Arc::new(io.clone())
}

fn create(io: &MemIo, options: &LogOptions) -> Arc<Log> {
    Log::create(dynamic(io), MemClock::new(), options, DATABASE).unwrap()
}

fn scan_all(io: &MemIo, options: &LogOptions) -> Result<Scan, LogDamage> {
    scan(&dynamic(io), options, &LogStart::default(), Epoch(0))
}

fn reopen(io: &MemIo, options: &LogOptions) -> (Arc<Log>, Scan) {
    let scan = scan_all(io, options).unwrap();
    (Log::open(dynamic(io), MemClock::new(), options, &scan).unwrap(), scan)
}

/// A frame that can be recognised: its number, then bytes that follow from it.
fn frame(number: u64) -> Vec<u8> {
    let len = Dice(number).below(600) as usize;
    number.to_le_bytes().into_iter().chain((0..len).map(|i| (number as usize + i) as u8)).collect()
}

/// Commits one frame without flushing; none when the log has no room now.
fn try_commit(worker: &mut Worker, number: u64) -> Result<Cts, ReserveError> {
    let bytes = frame(number);
    let mut announced = worker.reserve(bytes.len() as u64)?.announce();
    let cts = announced.draw();
    announced.stage(cts.epoch(), &[&bytes[..8], &bytes[8..]]);
    announced.leave();
    Ok(cts)
}

fn commit(worker: &mut Worker, number: u64) -> Cts {
    loop {
        match try_commit(worker, number) {
            Ok(cts) => return cts,
            Err(ReserveError::Busy(wait)) => wait.wait_inline(),
            Err(ReserveError::Refused(error)) => panic!("{error}"),
        }
    }
}

fn drive(log: &Log) {
    while log.step() == Progress::Worked {}
}

/// An epoch of which nothing reached the disk may be numbered again by the next incarnation; this never is.
type Batch = (Incarnation, Epoch);

/// The numbers of all frames of a scan with their epochs; panics on a damaged or doubled one.
fn recovered(scan: &Scan) -> BTreeMap<u64, Batch> {
    let mut numbers = BTreeMap::new();
    let mut buf = AlignedBuf::new();
    for group in scan.groups() {
        let body = scan.read_group(group, &mut buf).unwrap();
        for found in frames(body) {
            let bytes = found.unwrap();
            let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert_eq!(bytes, frame(number), "frame {number} has other bytes");
            assert_eq!(numbers.insert(number, (group.incarnation, group.epoch)), None, "frame {number} is there twice");
        }
    }
    numbers
}

#[test]
fn what_is_durable_is_read_back_on_any_number_of_devices() {
    for devices in 1..=3 {
        let (io, options) = (MemIo::new(), options(devices));
        let log = create(&io, &options);
        let mut workers: Vec<_> = (0..5).map(|_| log.worker().unwrap()).collect();
        let mut expected = BTreeMap::new();
        for number in 0..200 {
            let cts = commit(&mut workers[number as usize % 5], number);
            expected.insert(number, (Incarnation(1), cts.epoch()));
            if number % 7 == 0 {
                drive(&log);
                assert!(log.durable() >= cts.epoch());
            }
        }
        drive(&log);
        let stats = log.stats();
        assert_eq!(stats.groups, stats.syncs);
        drop((workers, log));
        let (log, scan) = reopen(&io.crash(1), &options);
        assert_eq!(recovered(&scan), expected);
        assert_eq!(scan.discarded(), Discarded::default());
        assert!(log.now().epoch() > expected.values().max().unwrap().1);
    }
}
