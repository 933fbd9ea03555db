//! What must be refused: losses below the acknowledged horizon, and directories that are not what they were.

use std::path::Path;

use crate::ids::DeviceId;
use crate::io::BLOCK_BYTES;
use crate::log::scan::{Place, Proof};

use super::*;

/// A log of `epochs` epochs, each with frames on every device, the last one witnessed.
fn written(devices: usize, epochs: u64) -> (MemIo, LogOptions) {
    let (io, options) = (MemIo::new(), options(devices));
    let log = create(&io, &options);
    let mut workers: Vec<_> = (0..devices).map(|_| log.worker().unwrap()).collect();
    for epoch in 0..epochs {
        for (i, worker) in workers.iter_mut().enumerate() {
            commit(worker, epoch * devices as u64 + i as u64);
        }
        drive(&log);
    }
    log.finish().unwrap();
    (io, options)
}

fn segment(options: &LogOptions, device: usize) -> PathBuf {
    options.dirs[device].join(super::super::segment::file_name(SegmentNo(1)))
}

fn group_at(io: &MemIo, path: &Path, block: usize) -> group::GroupHeader {
    group::GroupHeader::decode(&io.contents(path).unwrap()[block * BLOCK_BYTES..]).unwrap()
}

fn refused(io: &MemIo, options: &LogOptions) -> LogDamage {
    scan_all(io, options).err().expect("damage is refused")
}

#[test]
fn any_flipped_bit_of_an_acknowledged_group_is_refused_and_located() {
    let (io, options) = written(1, 6);
    let path = segment(&options, 0);
    let header = group_at(&io, &path, 2);
    let used = (header.bytes() as u64 + header.body_bytes) * 8;
    for bit in (0..used).step_by(37) {
        let offset = header.offset + bit / 8;
        io.flip_bit(&path, offset, (bit % 8) as u32).unwrap();
        let LogDamage::Lost { place, durable, .. } = refused(&io, &options) else { panic!("bit {bit}") };
        assert_eq!((durable.0 + 1, place.epoch), (header.epoch.0, header.epoch));
        assert_eq!((place.path.as_path(), place.offset, place.device), (path.as_path(), header.offset, DeviceId(0)));
        io.flip_bit(&path, offset, (bit % 8) as u32).unwrap();
    }
    scan_all(&io, &options).unwrap();
}

#[test]
fn the_last_acknowledged_group_is_guarded_by_its_witness() {
    let (io, options) = written(2, 4);
    // Epochs 1 to 4 carry frames, 5 is the witness that `finish` leaves; it lies on device 1.
    io.flip_bit(&segment(&options, 0), 3 * BLOCK_BYTES as u64 + 200, 0).unwrap();
    match refused(&io, &options) {
        LogDamage::Lost { durable: Epoch(3), acknowledged: Epoch(4), proof: Proof::Witness(witness), place } => {
            assert_eq!((witness.device, witness.epoch), (DeviceId(1), Epoch(5)));
            let expected = Place {
                offset: 3 * BLOCK_BYTES as u64,
                epoch: Epoch(4),
                device: DeviceId(0),
                path: segment(&options, 0),
            };
            assert_eq!(place, expected);
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_torn_tail_is_no_damage() {
    let (io, options) = written(1, 4);
    let path = segment(&options, 0);
    // The witness group itself acknowledges nothing; with it gone, so may be the last epoch.
    io.flip_bit(&path, 4 * BLOCK_BYTES as u64, 0).unwrap();
    assert_eq!(recovered(&scan_all(&io, &options).unwrap()).len(), 4);
    io.flip_bit(&path, 3 * BLOCK_BYTES as u64, 0).unwrap();
    let scan = scan_all(&io, &options).unwrap();
    assert_eq!((scan.chain_end(), recovered(&scan).len()), (Epoch(3), 3));
}

#[test]
fn epochs_that_images_rely_on_must_be_there() {
    let (io, options) = written(1, 3);
    let ask = |relied_on| scan(&dynamic(&io), &options, &LogStart::default(), Epoch(relied_on));
    assert!(ask(4).is_ok());
    match ask(5).err() {
        Some(LogDamage::Lost { proof: Proof::Images, acknowledged: Epoch(5), .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_whole_lost_segment_below_the_fence_is_refused() {
    let (io, options) = written(1, 5);
    drop(reopen(&io, &options));
    let zeros = vec![0; SEGMENT_BYTES as usize];
    io.replace(&segment(&options, 0), &zeros);
    match refused(&io, &options) {
        LogDamage::Lost { proof: Proof::Fence, acknowledged: Epoch(6), durable: Epoch(0), .. } => {}
        other => panic!("{other}"),
    }
}

/// Fills segments one after another and begins the next; says how many frames that took.
fn fill_segments(log: &Arc<Log>, segments: u64) -> u64 {
    let mut worker = log.worker().unwrap();
    let frames = segments * SEGMENT_BYTES / BLOCK_BYTES as u64 + 3;
    for number in 0..frames {
        commit(&mut worker, number);
        drive(log);
    }
    frames
}

/// Every segment of a log, and whether it was used.
fn segments_of(io: &MemIo, options: &LogOptions) -> BTreeMap<SegmentNo, bool> {
    let names = io.list(&options.dirs[0]).unwrap();
    let numbers = names.iter().filter_map(|name| super::super::segment::parse_name(name));
    let is_used = |number| {
        let path = options.dirs[0].join(super::super::segment::file_name(number));
        super::super::segment::read_marker(&io.contents(&path).unwrap()).is_none()
    };
    numbers.map(|number| (number, is_used(number))).collect()
}

/// Whoever takes a segment away, or cuts one short, is told: the newest epochs as well, that nothing else proves.
#[test]
fn a_segment_taken_away_or_cut_short_is_refused() {
    for lives in 0..2 {
        let (io, options) = (MemIo::new(), options(1));
        let mut log = create(&io, &options);
        for _ in 0..lives {
            fill_segments(&log, 0);
            drop(log);
            log = reopen(&io, &options).0;
        }
        fill_segments(&log, 2);
        drop(log);
        let segments = segments_of(&io, &options);
        assert!(segments.values().filter(|used| **used).count() >= 3 && segments.values().any(|used| !used));
        scan_all(&io, &options).unwrap();
        let last_used = segments.iter().filter(|(_, used)| **used).map(|(number, _)| *number).max().unwrap();
        let last = *segments.keys().max().unwrap();
        for (&number, used) in &segments {
            let path = options.dirs[0].join(super::super::segment::file_name(number));
            let whole = io.contents(&path).unwrap();
            for bytes in [None, Some(0), Some(BLOCK_BYTES), Some(2 * BLOCK_BYTES)] {
                match bytes {
                    None => io.lose(&path),
                    Some(bytes) => io.replace(&path, &whole[..bytes]),
                }
                let found = scan_all(&io, &options).err();
                let told = |due: Option<u64>| match &found {
                    Some(LogDamage::SegmentTaken { path: taken, bytes, .. }) => *taken == path && *bytes == due,
                    _ => false,
                };
                let due = bytes.map(|bytes| bytes as u64);
                match (used, number) {
                    // Only what lies behind it proves the last one, and nothing is lost with it.
                    (false, number) if number == last && bytes.is_none() => assert!(found.is_none(), "{found:?}"),
                    (true, number) if number < last_used => {
                        assert!(
                            told(due) || matches!(found, Some(LogDamage::Lost { .. })),
                            "{number:?} {bytes:?} {found:?}"
                        );
                    }
                    (true, _) => assert!(told(due), "{number:?} {bytes:?} {found:?}"),
                    (false, _) => assert!(found.is_none() || told(due), "{number:?} {bytes:?} {found:?}"),
                }
                io.replace(&path, &whole);
            }
        }
        scan_all(&io, &options).unwrap();
    }
}

/// A recovery that was cut short has renamed spares of the incarnation before: that is no damage, and what is damage stays it.
#[test]
fn spares_renamed_by_an_open_that_did_not_end_prove_nothing() {
    let (io, options) = (MemIo::new(), options(1));
    let log = create(&io, &options);
    let frames = fill_segments(&log, 1);
    log.finish().unwrap();
    drop(log);
    assert_eq!(
        segments_of(&io, &options).values().filter(|used| !**used).count(),
        2,
        "an open has two spares to rename"
    );
    let whole = io.fork();
    reopen(&whole, &options);
    for cut in 0..whole.operations() - io.operations() {
        let tried = io.fork();
        tried.cut_power_after(cut);
        let _ = scan_all(&tried, &options)
            .map(|scan| Log::open(dynamic(&tried), MemClock::new(), &options, &scan).map(drop));
        assert!(tried.is_dark());
        for seed in 0..8 {
            let after = tried.crash(seed);
            let scan = scan_all(&after, &options).unwrap_or_else(|damage| panic!("cut {cut}, seed {seed}: {damage}"));
            assert_eq!(recovered(&scan).len() as u64, frames);
        }
    }
}

#[test]
fn groups_too_far_beyond_the_horizon_are_refused_without_any_witness() {
    // Groups of a first incarnation whose witnesses say nothing, as a lying disk might leave them.
    let (io, options) = written(1, 6);
    let path = segment(&options, 0);
    let mut bytes = io.contents(&path).unwrap();
    for block in 0..7 {
        let at = block * BLOCK_BYTES;
        let mut header = group::GroupHeader::decode(&bytes[at..]).unwrap();
        header.witness = Epoch(0);
        header.encode(&mut bytes[at..]);
    }
    bytes[3 * BLOCK_BYTES] ^= 1;
    io.replace(&path, &bytes);
    match refused(&io, &options) {
        LogDamage::Lost { proof: Proof::Successor(place), durable: Epoch(3), .. } => assert_eq!(place.epoch, Epoch(6)),
        other => panic!("{other}"),
    }
}

#[test]
fn lost_copied_and_foreign_directories_are_refused() {
    let (io, options) = written(3, 2);
    let fence = |i: usize| options.dirs[i].join(fence::FILE_NAME);

    let mut fewer = options.clone();
    fewer.dirs.pop();
    assert!(matches!(refused(&io, &fewer), LogDamage::MissingDevice { device: DeviceId(2), .. }));

    let mut copied = options.clone();
    copied.retired_dirs.push(PathBuf::from("copy"));
    io.create_dir_all(Path::new("copy")).unwrap();
    io.replace(Path::new("copy/fence"), &io.contents(&fence(1)).unwrap());
    assert!(matches!(refused(&io, &copied), LogDamage::SameDevice { device: DeviceId(1), .. }));

    let mut elsewhere = options.clone();
    elsewhere.dirs[1] = PathBuf::from("not-mounted");
    assert!(matches!(refused(&io, &elsewhere), LogDamage::MissingDevice { device: DeviceId(1), .. }));

    let kept = io.contents(&fence(1)).unwrap();
    io.lose(&fence(1));
    assert!(matches!(refused(&io, &options), LogDamage::MissingDevice { device: DeviceId(1), .. }));
    io.replace(&fence(1), &kept);

    let other = MemIo::new();
    Log::create(dynamic(&other), MemClock::new(), &options, DatabaseId(7)).unwrap();
    io.replace(&fence(1), &other.contents(&fence(1)).unwrap());
    assert!(matches!(refused(&io, &options), LogDamage::OtherDatabase { .. }));
    io.replace(&fence(1), &kept);

    io.lose(&segment(&options, 2));
    assert!(matches!(refused(&io, &options), LogDamage::Lost { .. } | LogDamage::MissingDevice { .. }));
}

#[test]
fn a_fence_that_lags_is_repaired_and_one_that_contradicts_is_refused() {
    let (io, options) = written(2, 2);
    let fence = |i: usize| options.dirs[i].join(fence::FILE_NAME);
    let old = io.contents(&fence(1)).unwrap();
    drop(reopen(&io, &options));
    io.replace(&fence(1), &old);
    io.replace(Path::new("backup/fence"), &[]);
    drop(reopen(&io, &options));
    let blocks = |path: &Path| io.contents(path).unwrap().len() / BLOCK_BYTES;
    assert_eq!((blocks(&fence(0)), blocks(&fence(1)), blocks(Path::new("backup/fence"))), (3, 3, 3));

    // A damaged record in every copy, with a valid one behind it.
    let kept = io.contents(&fence(0)).unwrap();
    for path in [fence(0), fence(1), PathBuf::from("backup/fence")] {
        io.flip_bit(&path, BLOCK_BYTES as u64 + 50, 1).unwrap();
    }
    assert!(matches!(refused(&io, &options), LogDamage::FenceDamaged { offset: 4096, .. }));
    // One good copy mends the others.
    io.replace(&fence(0), &kept);
    assert!(scan_all(&io, &options).is_ok());
    drop(reopen(&io, &options));
    assert_eq!(io.contents(&fence(1)).unwrap()[..3 * BLOCK_BYTES].len(), 3 * BLOCK_BYTES);
    assert!(scan_all(&io, &options).is_ok());
    // The first record over the last one: as bad as none.
    let mut doubled = io.contents(&fence(0)).unwrap();
    let last = doubled.len() - BLOCK_BYTES;
    doubled.copy_within(..BLOCK_BYTES, last);
    io.replace(Path::new("backup/fence"), &doubled);
    let scan = scan_all(&io, &options).unwrap();
    assert_eq!(scan.fence().newest().incarnation.0 as usize, doubled.len() / BLOCK_BYTES);
    drop(scan);
    for path in [fence(0), fence(1)] {
        io.replace(&path, &doubled);
    }
    let damage = refused(&io, &options);
    assert!(matches!(damage, LogDamage::FenceDamaged { .. }), "{damage}");
}

#[test]
fn a_directory_as_it_was_in_an_earlier_incarnation_is_refused() {
    for devices in 1..=2 {
        let (io, options) = written(devices, 2);
        // A clean end: nothing in the log itself points beyond it.
        let (log, _) = reopen(&io, &options);
        drop(log);
        let dir = options.dirs[devices - 1].clone();
        let names: Vec<_> = io.names().into_iter().filter(|path| path.starts_with(&dir)).collect();
        let kept: Vec<_> =
            names.into_iter().filter_map(|path| Some((path.clone(), io.contents(&path).ok()?))).collect();
        let (log, _) = reopen(&io, &options);
        let mut worker = log.worker().unwrap();
        commit(&mut worker, 1_000_000);
        drive(&log);
        drop((worker, log));
        for (path, bytes) in kept {
            io.replace(&path, &bytes);
        }
        match refused(&io, &options) {
            LogDamage::MissingDevice { device, path } => {
                assert_eq!((usize::from(device.0), path), (devices - 1, dir));
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn groups_newer_than_the_fence_are_refused() {
    let (io, options) = written(1, 2);
    let old: Vec<_> = [options.dirs[0].join(fence::FILE_NAME), PathBuf::from("backup/fence")]
        .map(|path| (path.clone(), io.contents(&path).unwrap()))
        .into();
    let (log, scan) = reopen(&io, &options);
    commit(&mut log.worker().unwrap(), 99);
    drive(&log);
    drop((log, scan));
    for (path, bytes) in old {
        io.replace(&path, &bytes);
    }
    assert!(matches!(refused(&io, &options), LogDamage::UnknownIncarnation { incarnation: Incarnation(2), .. }));
}

#[test]
fn copied_blocks_are_no_groups() {
    let (io, options) = written(1, 3);
    let path = segment(&options, 0);
    let mut bytes = io.contents(&path).unwrap();
    // An operator, or a row that contains log bytes, puts a group where none was written.
    bytes.copy_within(0..BLOCK_BYTES, 9 * BLOCK_BYTES);
    io.replace(&path, &bytes);
    let twin = options.dirs[0].join(super::super::segment::file_name(SegmentNo(77)));
    io.replace(&twin, &bytes);
    assert_eq!(recovered(&scan_all(&io, &options).unwrap()).len(), 3);
}

#[test]
fn unknown_versions_are_named() {
    let (io, options) = written(1, 1);
    let path = options.dirs[0].join(fence::FILE_NAME);
    let mut bytes = io.contents(&path).unwrap();
    bytes[8] = 2;
    bytes[12..16].fill(0);
    let crc = crc32c::crc32c(&bytes[..BLOCK_BYTES]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    io.replace(&path, &bytes);
    let damage = refused(&io, &options);
    assert!(matches!(damage, LogDamage::UnknownVersion { version: 2, .. }), "{damage}");
    assert!(damage.to_string().contains("version 2"));
}

#[test]
fn only_one_process_uses_a_directory() {
    let (io, options) = written(1, 1);
    let (log, scan) = reopen(&io, &options);
    assert!(matches!(refused(&io, &options), LogDamage::Locked { .. }));
    drop(scan);
    assert!(matches!(refused(&io, &options), LogDamage::Locked { .. }));
    drop(log);
    assert!(scan_all(&io, &options).is_ok());
}

#[test]
fn creation_spares_what_has_content_and_repeats_what_was_not_finished() {
    let (io, options) = written(1, 1);
    let again = |io: &MemIo| Log::create(dynamic(io), MemClock::new(), &options, DatabaseId(5));
    assert!(matches!(again(&io), Err(LogError::Exists { .. })));
    let fresh = MemIo::new();
    drop(again(&fresh).unwrap());
    drop(again(&fresh).unwrap());
    assert!(matches!(refused(&MemIo::new(), &options), LogDamage::Absent { .. }));
}
