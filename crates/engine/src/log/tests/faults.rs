//! A device that fails: nothing is acknowledged afterwards, and nothing is tried again.

use crate::io::mem::{Call, Fault};

use super::*;

fn poisons(call: Call, fault: Fault) {
    poisons_by(FlushWay::WriteThenSync, call, fault);
    poisons_by(FlushWay::DurableWrite, call, fault);
}

fn poisons_by(way: FlushWay, call: Call, fault: Fault) {
    for nth in 0..8 {
        let (io, options) = (MemIo::new(), options(2));
        let log = create(&io, &options);
        (0..2).for_each(|device| log.set_flush_way(crate::ids::DeviceId(device), way));
        let mut workers = [log.worker().unwrap(), log.worker().unwrap()];
        io.plan_fault(call, nth, fault);
        let mut acknowledged = Vec::new();
        let mut number = 0;
        let refused = loop {
            let worker = &mut workers[number as usize % 2];
            let cts = match try_commit(worker, number) {
                Ok(cts) => cts,
                Err(ReserveError::Busy(wait)) => {
                    wait.wait_inline();
                    continue;
                }
                Err(ReserveError::Refused(error)) => break error,
            };
            if let Ok(()) = log.wait_durable(cts).wait_inline() {
                acknowledged.push(number);
            }
            number += 1;
        };
        assert!(matches!(refused, LogError::Poisoned { .. }), "{refused}");
        let durable = log.durable();
        let syncs = io.operations();
        assert_eq!(log.step(), Progress::Poisoned);
        assert_eq!(log.device_step(crate::ids::DeviceId(1)), Progress::Poisoned);
        assert!(log.finish().is_err() && log.flush_inline(log.now()).is_err());
        assert!(log.wait_durable(log.now()).wait().is_err(), "waiters get the error");
        assert!(log.wait_durable(Cts::last_of(durable)).wait().is_ok(), "what was durable stays so");
        assert_eq!((io.operations(), log.durable()), (syncs, durable), "nothing is tried again");
        drop((workers, log));
        let scan = scan_all(&io.crash(nth), &options).unwrap();
        let found = recovered(&scan);
        assert!(acknowledged.iter().all(|number| found.contains_key(number)));
    }
}

#[test]
fn a_failed_write_poisons() {
    poisons(Call::Write, Fault::Eio);
    poisons(Call::Write, Fault::Short(512));
}

#[test]
fn a_failed_sync_poisons() {
    poisons(Call::Sync, Fault::Eio);
}

#[test]
fn a_group_that_finds_no_space_poisons() {
    // Segments are written in full before their use, so this file system has broken its word.
    let (io, options) = (MemIo::new(), options(1));
    let log = create(&io, &options);
    drive(&log);
    let cts = commit(&mut log.worker().unwrap(), 1);
    io.plan_fault(Call::Write, 0, Fault::Enospc);
    assert!(matches!(log.wait_durable(cts).wait_inline(), Err(LogError::Poisoned { action: "write", .. })));
}

#[test]
fn waiters_of_a_flush_that_fails_get_the_error() {
    let (io, options) = (MemIo::new(), options(1));
    let log = create(&io, &options);
    drive(&log);
    let cts = commit(&mut log.worker().unwrap(), 1);
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let wait = log.wait_durable(cts);
            std::thread::spawn(move || wait.wait())
        })
        .collect();
    io.plan_fault(Call::Sync, 0, Fault::Eio);
    while log.step() != Progress::Poisoned {}
    for waiter in waiting {
        let error = waiter.join().unwrap().unwrap_err();
        assert!(matches!(error, LogError::Poisoned { action: "sync", .. }), "{error}");
    }
}

#[test]
fn an_unreadable_log_is_an_error_not_a_loss() {
    let (io, options) = (MemIo::new(), options(1));
    let log = create(&io, &options);
    commit(&mut log.worker().unwrap(), 1);
    drive(&log);
    drop(log);
    for nth in 0..3 {
        io.plan_fault(Call::Read, nth, Fault::Eio);
        assert!(matches!(scan_all(&io, &options), Err(LogDamage::Io { .. })), "read {nth}");
    }
    assert_eq!(recovered(&scan_all(&io, &options).unwrap()).len(), 1);
}

/// What a forked process has of the log is no log: the other one's acknowledged groups would be written over.
#[test]
fn a_fork_of_the_logs_process_writes_and_acknowledges_nothing() {
    for way in [FlushWay::WriteThenSync, FlushWay::DurableWrite] {
        let (io, options) = (MemIo::new(), options(1));
        let log = create(&io, &options);
        log.set_flush_way(crate::ids::DeviceId(0), way);
        let mut worker = log.worker().unwrap();
        let cts = commit(&mut worker, 1);
        assert!(log.wait_durable(cts).wait_inline().is_ok());
        let durable = log.durable();
        log.pretend_forked();
        // Whoever prepares a segment may see it first: then there is no room for the commit.
        let refusal = loop {
            match try_commit(&mut worker, 2) {
                Ok(cts) => break log.wait_durable(cts).wait_inline().expect_err("it is another's log").to_string(),
                Err(ReserveError::Busy(wait)) => wait.wait_inline(),
                Err(ReserveError::Refused(error)) => break error.to_string(),
            }
        };
        assert!(refusal.contains("fork"), "{refusal}");
        assert_eq!(log.durable(), durable);
    }
}
