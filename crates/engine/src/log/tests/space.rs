//! Bounded space: refused early, never run out of; recycled below what images replace.

use super::*;

/// Commits until the log is full; the number of commits.
fn fill(log: &Arc<Log>, first: u64) -> u64 {
    let mut workers: Vec<_> = (0..3).map(|_| log.worker().unwrap()).collect();
    for number in first.. {
        match try_commit(&mut workers[number as usize % 3], number) {
            Ok(_) => {}
            Err(ReserveError::Busy(wait)) => wait.wait_inline(),
            Err(ReserveError::Refused(LogError::Full { used_bytes, capacity_bytes })) => {
                assert!(used_bytes <= capacity_bytes);
                return number - first;
            }
            Err(ReserveError::Refused(error)) => panic!("{error}"),
        }
        if number % 5 == 0 {
            log.step();
        }
    }
    unreachable!("the log has an end")
}

fn files(io: &MemIo, options: &LogOptions) -> usize {
    let names = options.dirs.iter().flat_map(|dir| io.list(dir).unwrap());
    names.filter(|name| name.ends_with(".seg")).count()
}

#[test]
fn a_full_log_refuses_and_what_was_promised_still_fits() {
    for devices in 1..=2 {
        let (io, options) = (MemIo::new(), options(devices));
        let log = create(&io, &options);
        let mut first = 0;
        for round in 0..5 {
            let count = fill(&log, first);
            first += count + 1;
            assert!(count > 50, "round {round}: {count} commits into an empty log");
            drive(&log);
            assert!(log.durable() >= Epoch(log.now().epoch().0 - 1), "everything promised was written");
            assert!(files(&io, &options) <= 6 * devices);
            assert!(log.used_bytes() <= log.capacity_bytes());
            // A witness may have no room; nothing else is impossible.
            log.finish().unwrap();
            let start = log.log_start(Epoch(log.durable().0 + 1));
            log.recycle_below(&start).unwrap();
            assert!(log.used_bytes() <= SEGMENT_BYTES * devices as u64, "only current segments are left");
        }
    }
}

/// Fills a log in rounds: every worker reserves, then each commits in an epoch of its own, followed by epochs that nobody
/// reserved. `before` shifts where in a segment the rounds begin.
fn trickle(before: usize) {
    let (io, options) = (MemIo::new(), options(1));
    let log = create(&io, &options);
    for _ in 0..before {
        log.flush_inline(log.now()).unwrap();
    }
    let mut workers: Vec<_> = std::iter::from_fn(|| log.worker().ok()).collect();
    assert_eq!(workers.len(), 7, "as many as the segment size allows");
    let bytes = [7; 2000];
    loop {
        let mut held = Vec::new();
        for worker in &mut workers {
            match worker.reserve(bytes.len() as u64) {
                Ok(reserved) => held.push(reserved),
                Err(ReserveError::Busy(_)) | Err(ReserveError::Refused(LogError::Full { .. })) => {}
                Err(refused) => panic!("{refused:?}"),
            }
        }
        if held.is_empty() {
            break;
        }
        for reserved in held {
            let mut announced = reserved.announce();
            let cts = announced.draw();
            announced.stage(cts.epoch(), &[&bytes]);
            announced.leave();
            assert!(log.flush_inline(cts).unwrap());
            for _ in 0..3 {
                log.flush_inline(log.now()).unwrap();
            }
        }
    }
    assert!(files(&io, &options) == 6 && log.poisoned().is_none());
}

#[test]
fn reservations_kept_for_long_still_fit_one_by_one() {
    (0..20).for_each(trickle);
}

#[test]
fn recycling_keeps_what_is_needed_and_hides_what_is_stale() {
    let (io, options) = (MemIo::new(), options(1));
    let log = create(&io, &options);
    let mut expected = BTreeMap::new();
    let mut worker = log.worker().unwrap();
    let mut start = LogStart::default();
    for number in 0..600 {
        let cts = commit(&mut worker, number);
        expected.insert(number, (Incarnation(1), cts.epoch()));
        log.flush_inline(cts).unwrap();
        if number % 40 == 39 {
            start = log.log_start(Epoch(log.durable().0 - 7));
            log.recycle_below(&start).unwrap();
        }
    }
    drop((worker, log));
    expected.retain(|_, batch| batch.1 >= start.epoch);
    let again = scan(&dynamic(&io), &options, &start, start.prev).unwrap();
    assert_eq!(recovered(&again), expected);
    drop(again);
    // With an older start, what was recycled is missed.
    assert!(matches!(scan_all(&io, &options), Err(LogDamage::Lost { .. })));
}

/// A start that was saved names a segment that is there, whatever came to the log between its being asked for and the recycling: the
/// current segment may be full by then, and its groups of no use.
#[test]
fn what_a_saved_start_names_is_not_recycled() {
    let (io, options) = (MemIo::new(), options(1));
    let log = create(&io, &options);
    let mut worker = log.worker().unwrap();
    let mut moved = 0;
    for number in 0..400 {
        // One group or two, so that each place of a segment is met.
        for before in 0..1 + number % 2 {
            let cts = commit(&mut worker, 10_000 * before + number);
            log.flush_inline(cts).unwrap();
        }
        let start = log.log_start(Epoch(log.durable().0 + 1));
        let named = start.devices[0].segment;
        let cts = commit(&mut worker, 30_000 + number);
        log.flush_inline(cts).unwrap();
        drive(&log);
        log.recycle_below(&start).unwrap();
        let later = log.log_start(Epoch(log.durable().0)).devices[0].segment;
        moved += u32::from(later > named);
        let again =
            scan(&dynamic(&io.fork().crash(number)), &options, &start, start.prev).expect("nobody took anything away");
        assert_eq!(recovered(&again).keys().copied().collect::<Vec<_>>(), [30_000 + number]);
    }
    assert!(moved > 5, "{moved}");
}

/// Earlier releases did recycle it, which is no damage: the segment behind it proves that it holds nothing of use.
#[test]
fn a_recycled_first_segment_of_no_use_is_no_damage() {
    let (io, options) = (MemIo::new(), options(1));
    let log = create(&io, &options);
    let mut worker = log.worker().unwrap();
    let segment = |number: SegmentNo| options.dirs[0].join(super::super::segment::file_name(number));
    let (mut moved, mut stayed) = (0, 0);
    for number in 0..200 {
        for before in 0..1 + number % 2 {
            let cts = commit(&mut worker, 10_000 * before + number);
            log.flush_inline(cts).unwrap();
        }
        let start = log.log_start(Epoch(log.durable().0 + 1));
        let named = start.devices[0].segment;
        let cts = commit(&mut worker, 30_000 + number);
        log.flush_inline(cts).unwrap();
        drive(&log);
        let copy = io.fork().crash(number);
        copy.lose(&segment(named));
        let found = scan(&dynamic(&copy), &options, &start, start.prev);
        match log.log_start(Epoch(log.durable().0)).devices[0].segment > named {
            true => {
                moved += 1;
                assert_eq!(recovered(&found.expect("it holds nothing of use")).len(), 1);
            }
            false => {
                stayed += 1;
                assert!(found.is_err());
            }
        }
        log.recycle_below(&start).unwrap();
    }
    assert!(moved > 3 && stayed > 100, "{moved}, {stayed}");
}

#[test]
fn a_full_log_opens_and_is_freed_by_a_checkpoint() {
    let (io, options) = (MemIo::new(), options(1));
    let log = create(&io, &options);
    fill(&log, 0);
    drive(&log);
    drop(log);
    let (log, scan) = reopen(&io.crash(3), &options);
    let mut worker = log.worker().unwrap();
    assert!(matches!(try_commit(&mut worker, 5000), Err(ReserveError::Refused(LogError::Full { .. }))));
    // The horizon covers everything recovered, so a checkpoint needs no flush.
    assert!(log.durable() >= scan.durable());
    let start = log.log_start(Epoch(log.durable().0 + 1));
    log.recycle_below(&start).unwrap();
    let cts = commit(&mut worker, 5001);
    log.wait_durable(cts).wait_inline().unwrap();
}

#[test]
fn a_full_file_system_is_a_full_log_until_there_is_space() {
    let (io, options) = (MemIo::new(), options(1));
    let clock = MemClock::new();
    let log = Log::create(dynamic(&io), clock.clone(), &options, DATABASE).unwrap();
    io.set_space_bytes(2 * SEGMENT_BYTES + (20 << 10));
    let count = fill(&log, 0);
    assert!(log.poisoned().is_none());
    drive(&log);
    assert_eq!(files(&io, &options), 2);
    io.set_space_bytes(u64::MAX);
    clock.advance_us(2_000_000);
    assert!(fill(&log, count + 1) > count, "it grows on once the disk does");
}

#[test]
fn staging_is_bounded_and_large_frames_are_refused() {
    let (io, options) = (MemIo::new(), options(1));
    let log = create(&io, &options);
    let mut workers: Vec<_> = (0..5).map(|_| log.worker().unwrap()).collect();
    let limit = log.frame_limit_bytes();
    let refused = workers[0].reserve(limit + 1).err();
    assert!(matches!(refused, Some(ReserveError::Refused(LogError::FrameTooLarge { .. }))));
    let mut held = Vec::new();
    let (first, last) = workers.split_at_mut(3);
    for worker in first {
        held.push(worker.reserve(limit).unwrap());
    }
    // Three quarters and prefixes are promised, a fourth does not fit beside them.
    let (fourth, fifth) = last.split_at_mut(1);
    assert!(matches!(fourth[0].reserve(limit), Err(ReserveError::Busy(_))));
    let Err(ReserveError::Busy(wait)) = fifth[0].reserve(limit) else { panic!("no room is left") };
    let waiter = std::thread::spawn(move || wait.wait());
    drop(held);
    waiter.join().unwrap();
    assert!(fifth[0].reserve(limit).is_ok());
}

#[test]
fn options_that_cannot_work_are_refused() {
    let refuse = |change: fn(&mut LogOptions)| {
        let mut options = options(2);
        change(&mut options);
        let result = Log::create(dynamic(&MemIo::new()), MemClock::new(), &options, DATABASE);
        assert!(matches!(result, Err(LogError::Options { .. })));
    };
    refuse(|options| options.dirs.clear());
    refuse(|options| options.dirs[1] = options.dirs[0].clone());
    refuse(|options| options.segment_bytes += 1);
    refuse(|options| options.stage_limit_bytes = options.segment_bytes);
    refuse(|options| options.log_size_bytes = 4 * options.segment_bytes);
}
