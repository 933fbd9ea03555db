//! Device sets that change between incarnations: directories in another order, new ones, and old ones that leave.

use super::crash::{Coverage, History, begin, live};
use super::*;
use std::path::Path;

/// Directories by number; the others of `all` are retired.
fn of(dirs: &[usize], all: usize) -> LogOptions {
    let path = |i: usize| PathBuf::from(format!("log{i}"));
    let retired_dirs = (0..all).filter(|i| !dirs.contains(i)).map(path).collect();
    let log_size_bytes = dirs.len() as u64 * 6 * SEGMENT_BYTES;
    LogOptions { dirs: dirs.iter().copied().map(path).collect(), retired_dirs, log_size_bytes, ..options(1) }
}

/// Commits so many frames on all devices, from `first` on.
fn fill(log: &Arc<Log>, first: u64, count: u64) {
    let mut workers: Vec<_> = (0..4).map(|_| log.worker().unwrap()).collect();
    for number in first..first + count {
        commit(&mut workers[number as usize % 4], number);
        if number % 3 == 0 {
            drive(log);
        }
    }
    drive(log);
}

fn numbers(scan: &Scan) -> Vec<u64> {
    recovered(scan).into_keys().collect()
}

#[test]
fn directories_may_come_in_any_order() {
    let io = MemIo::new();
    fill(&create(&io, &of(&[0, 1, 2], 3)), 0, 50);
    for (life, order) in [[2, 0, 1], [1, 0, 2], [0, 1, 2]].into_iter().enumerate() {
        let (log, scan) = reopen(&io, &of(&order, 3));
        let end = 50 + 20 * life as u64;
        assert_eq!(numbers(&scan), (0..end).collect::<Vec<_>>());
        fill(&log, end, 20);
    }
}

#[test]
fn a_device_joins_with_the_next_incarnation() {
    let io = MemIo::new();
    fill(&create(&io, &of(&[1], 0)), 0, 30);
    let (log, scan) = reopen(&io, &of(&[0, 1], 0));
    assert_eq!((numbers(&scan).len(), log.devices()), (30, 2));
    fill(&log, 30, 30);
    drop((log, scan));
    let held = |dir: &str| io.names().iter().filter(|name| name.starts_with(dir)).count();
    assert!(held("log0") > 2, "the new device is used");
    let missing = scan_all(&io, &of(&[1], 0)).err();
    assert!(matches!(missing, Some(LogDamage::MissingDevice { device: DeviceId(0), .. })), "{missing:?}");
    assert_eq!(numbers(&reopen(&io, &of(&[0, 1], 0)).1).len(), 60);
}

#[test]
fn a_directory_with_segments_of_nobody_does_not_join() {
    let io = MemIo::new();
    fill(&create(&io, &of(&[0], 0)), 0, 10);
    io.create_dir_all(Path::new("log1")).unwrap();
    io.replace(Path::new("log1/log-000000000001.seg"), &vec![0; SEGMENT_BYTES as usize]);
    assert!(matches!(scan_all(&io, &of(&[0, 1], 0)).err(), Some(LogDamage::Foreign { .. })));
}

#[test]
fn a_device_leaves_when_the_log_start_has_passed_it() {
    let io = MemIo::new();
    fill(&create(&io, &of(&[0, 1], 0)), 0, 30);
    // What it alone may know must be read: without it nothing opens.
    let missing = scan_all(&io, &of(&[0], 0)).err();
    assert!(matches!(missing, Some(LogDamage::MissingDevice { device: DeviceId(1), .. })), "{missing:?}");
    let (log, scan) = reopen(&io, &of(&[0], 2));
    assert_eq!((numbers(&scan).len(), log.devices()), (30, 1));
    fill(&log, 30, 10);
    drop((log, scan));
    // Retired as it is, its groups are needed until images have replaced them.
    let missing = scan_all(&io, &of(&[0], 0)).err();
    assert!(matches!(missing, Some(LogDamage::MissingDevice { device: DeviceId(1), .. })), "{missing:?}");
    let (log, scan) = reopen(&io, &of(&[0], 2));
    assert_eq!(numbers(&scan).len(), 40);
    fill(&log, 40, 5);
    let start = log.log_start(log.durable());
    log.recycle_below(&start).unwrap();
    fill(&log, 45, 5);
    drop((log, scan));
    let scan = super::scan(&dynamic(&io), &of(&[0], 0), &start, Epoch(0)).unwrap();
    assert!(numbers(&scan).ends_with(&[45, 46, 47, 48, 49]));
    // It may come back, with what it had.
    drop(scan);
    let again = super::scan(&dynamic(&io), &of(&[1, 0], 0), &start, Epoch(0)).unwrap();
    let log = Log::open(dynamic(&io), MemClock::new(), &of(&[1, 0], 0), &again).unwrap();
    fill(&log, 50, 20);
    drop((log, again));
    let again = super::scan(&dynamic(&io), &of(&[0, 1], 0), &start, Epoch(0)).unwrap();
    assert!(numbers(&again).ends_with(&(45..70).collect::<Vec<_>>()));
}

/// Four lives, each on another set of devices, the power cut in the first after `cut` operations and somewhere in the others.
fn lives(seed: u64, cut: Option<u64>, coverage: &mut Coverage) -> u64 {
    const SETS: [&[usize]; 7] = [&[0, 1], &[1, 2], &[2, 0, 1], &[3], &[3, 0], &[1], &[0, 3, 2]];
    let mut dice = Dice(seed);
    let mut history = History::default();
    let mut created = false;
    let mut io = MemIo::new();
    let mut operations = 0;
    for life in 0..4 {
        match (life, cut) {
            (0, Some(cut)) => io.cut_power_after(cut),
            (1 | 2, Some(cut)) => io.cut_power_after(Dice(seed ^ cut ^ life).below(if life == 1 { 60 } else { 200 })),
            _ => {}
        }
        // A creation that the power ended is repeated as it was.
        let set = if created { dice.below(SETS.len() as u64) } else { seed % SETS.len() as u64 };
        let options = of(SETS[set as usize], if created { 4 } else { 0 });
        if let Some((log, clock)) = begin(&io, &options, &mut history, &mut created) {
            live(&log, &clock, &mut history, &mut dice, 150, coverage);
        }
        operations = operations.max(if life == 0 { io.operations() } else { 0 });
        io = io.crash(seed ^ cut.unwrap_or(0) << 8 ^ life);
    }
    let set = if created { dice.below(SETS.len() as u64) } else { seed % SETS.len() as u64 };
    let options = of(SETS[set as usize], if created { 4 } else { 0 });
    assert!(begin(&io, &options, &mut history, &mut created).is_some(), "with power it opens");
    operations
}

#[test]
fn changing_sets_survive_a_power_cut_at_every_operation() {
    let mut coverage = Coverage::default();
    for seed in 100..108 {
        let operations = lives(seed, None, &mut coverage);
        for cut in (seed % 3..operations).step_by(3) {
            lives(seed, Some(cut), &mut coverage);
        }
    }
}
