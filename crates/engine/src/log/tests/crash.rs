//! A power cut at every operation, any part of the unsynced writes kept, twice in a row.
//!
//! The checker knows which frames were staged in which epoch, which epochs were acknowledged, and which were found
//! missing once:
//!
//! 1. every frame of an acknowledged epoch is there, once;
//! 2. an epoch is there whole or not at all;
//! 3. an epoch that was discarded never comes back.

use std::collections::BTreeSet;

use crate::ids::DeviceId;

use super::*;

#[derive(Clone, Default)]
pub(super) struct History {
    epochs: BTreeMap<Batch, BTreeSet<u64>>,
    next_number: u64,
    acknowledged: BTreeSet<Batch>,
    discarded: BTreeSet<Batch>,
    /// What the manifest of this imaginary database says.
    start: LogStart,
}

impl History {
    fn relied_on(&self) -> Epoch {
        Epoch(self.start.epoch.0.saturating_sub(1))
    }

    /// Compares a scan with what must and may be there; what is missing now is gone for ever.
    fn check(&mut self, scan: &Scan) {
        let found = recovered(scan);
        let acknowledged = self.acknowledged.last().map_or(Epoch(0), |batch| batch.1);
        assert!(scan.durable() >= acknowledged, "the horizon is below what was acknowledged");
        assert!(found.values().all(|batch| batch.1 >= self.start.epoch), "a group below the log's start is replayed");
        let known: BTreeSet<u64> = self.epochs.values().flatten().copied().collect();
        assert!(found.keys().all(|number| known.contains(number)), "a frame that was never staged");
        for (&batch, numbers) in self.epochs.iter().filter(|((_, epoch), _)| *epoch >= self.start.epoch) {
            let present = numbers.iter().filter(|number| found.get(number) == Some(&batch)).count();
            assert!(present == 0 || present == numbers.len(), "{batch:?} is half there");
            if present == 0 {
                assert!(!self.acknowledged.contains(&batch), "acknowledged {batch:?} is lost");
                self.discarded.insert(batch);
            }
            assert!(present == 0 || !self.discarded.contains(&batch), "discarded {batch:?} came back");
        }
    }

    /// Notes what `log` acknowledges now.
    fn acknowledge(&mut self, log: &Log) {
        let incarnation = log.incarnation();
        let durable = (incarnation, Epoch(0))..=(incarnation, log.durable());
        self.acknowledged.extend(self.epochs.range(durable).map(|(batch, _)| *batch));
    }

    fn commit(&mut self, worker: &mut Worker) -> Result<(), ReserveError> {
        let cts = try_commit(worker, self.next_number)?;
        let batch = (worker.log().incarnation(), cts.epoch());
        self.epochs.entry(batch).or_default().insert(self.next_number);
        self.next_number += 1;
        Ok(())
    }

    fn recycle(&mut self, log: &Log, horizon: Epoch) {
        let start = log.log_start(horizon);
        // Sessions go on meanwhile: the segment that the start names may be full when the recycling begins.
        if self.next_number.is_multiple_of(3) {
            drive(log);
        }
        // The manifest is durable from here on, whatever becomes of the recycling.
        self.start = start;
        let _ = log.recycle_below(&self.start);
    }
}

/// Opens what is there, or creates it; none when the power fails.
pub(super) fn begin(
    io: &MemIo,
    options: &LogOptions,
    history: &mut History,
    created: &mut bool,
) -> Option<(Arc<Log>, Arc<MemClock>)> {
    let clock = MemClock::new();
    if !*created {
        let log = Log::create(dynamic(io), clock.clone(), options, DATABASE).ok()?;
        *created = true;
        return Some((log, clock));
    }
    match scan(&dynamic(io), options, &history.start, history.relied_on()) {
        Ok(scan) => {
            history.check(&scan);
            Some((Log::open(dynamic(io), clock.clone(), options, &scan).ok()?, clock))
        }
        Err(LogDamage::Io { .. }) => None,
        Err(damage) => panic!("a crash is no damage: {damage}"),
    }
}

/// What the lives went through, so that a test can tell that it tested something.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    discarded: usize,
    acknowledged: usize,
    full: usize,
    reused_segments: u64,
    witnesses: u64,
}

/// One life of the database: random commits, steps, idle times and checkpoints, until `events` or the power end.
pub(super) fn live(
    log: &Arc<Log>,
    clock: &MemClock,
    history: &mut History,
    dice: &mut Dice,
    events: usize,
    coverage: &mut Coverage,
) {
    let mut workers: Vec<_> = (0..4).map(|_| log.worker().unwrap()).collect();
    for device in (0..log.devices()).map(DeviceId) {
        log.set_flush_way(device, [FlushWay::WriteThenSync, FlushWay::DurableWrite][dice.below(2) as usize]);
    }
    for _ in 0..events {
        match dice.below(64) {
            0..=25 => match history.commit(&mut workers[dice.below(4) as usize]) {
                Ok(()) => {}
                Err(ReserveError::Busy(_)) => drive(log),
                Err(ReserveError::Refused(LogError::Full { .. })) => {
                    coverage.full += 1;
                    drive(log);
                    history.recycle(log, log.durable());
                }
                Err(ReserveError::Refused(_)) => break,
            },
            26..=40 => {
                log.step();
            }
            41..=58 => {
                log.device_step(DeviceId(dice.below(u64::from(log.devices())) as u16));
            }
            59..=60 => {
                let before = log.stats().epochs;
                drive(log);
                clock.advance_us(20_000);
                log.step();
                coverage.witnesses += log.stats().epochs - before;
            }
            61..=62 => {
                let _ = log.flush_inline(log.now());
            }
            _ => {
                let back = dice.below(6);
                history.recycle(log, Epoch((log.durable().0 + 1).saturating_sub(back)));
            }
        }
        history.acknowledge(log);
    }
    let newest = history.start.devices.iter().map(|start| start.segment.0).max();
    coverage.reused_segments += newest.unwrap_or(0).saturating_sub(6);
}

/// Three lives with a power cut in the first after `cut` operations and somewhere in the second. Returns the
/// operations of the first life.
fn lives(devices: usize, seed: u64, cut: Option<u64>, coverage: &mut Coverage) -> u64 {
    let options = options(devices);
    let mut history = History::default();
    let mut created = false;
    let mut dice = Dice(seed);
    let mut io = MemIo::new();
    let mut operations = 0;
    for life in 0..3 {
        match (life, cut) {
            (0, Some(cut)) => io.cut_power_after(cut),
            (1, Some(cut)) => io.cut_power_after(Dice(seed ^ cut).below(150)),
            _ => {}
        }
        if let Some((log, clock)) = begin(&io, &options, &mut history, &mut created) {
            live(&log, &clock, &mut history, &mut dice, 500, coverage);
        }
        operations = operations.max(if life == 0 { io.operations() } else { 0 });
        io = io.crash(seed ^ cut.unwrap_or(0) << 8 ^ life);
    }
    assert!(begin(&io, &options, &mut history, &mut created).is_some(), "with power it opens");
    coverage.discarded += history.discarded.len();
    coverage.acknowledged += history.acknowledged.len();
    operations
}

fn every_operation(devices: usize, seeds: std::ops::Range<u64>) {
    let mut coverage = Coverage::default();
    for seed in seeds {
        let operations = lives(devices, seed, None, &mut coverage);
        assert!(operations > 200, "the scenario does little: {operations} operations");
        for cut in 0..operations {
            lives(devices, seed, Some(cut), &mut coverage);
        }
    }
    let Coverage { discarded, acknowledged, reused_segments, witnesses, .. } = coverage;
    assert!(discarded > 100 && acknowledged > 1000 && reused_segments > 100 && witnesses > 100, "{coverage:?}");
}

#[test]
fn one_device_survives_a_power_cut_at_every_operation() {
    every_operation(1, 0..3);
}

#[test]
fn two_devices_survive_a_power_cut_at_every_operation() {
    every_operation(2, 10..12);
}

#[test]
fn three_devices_survive_a_power_cut_at_every_operation() {
    every_operation(3, 20..22);
}
