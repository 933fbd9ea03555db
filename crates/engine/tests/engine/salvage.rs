//! What a salvage saves of a damaged database: everything that is whole, nothing that never was, and a list of the rest.

use crate::damaged::{Rows, contents, subject, written};
use freshet_engine::engine::{Engine, Options};
use freshet_engine::inspect::Fate;
use freshet_engine::io::Io;
use freshet_engine::io::mem::{MemClock, MemIo};
use freshet_engine::salvage::{Salvaged, salvage};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Salvages into a world of its own; the rows of the new database if the table came over.
fn save(io: &MemIo, options: &Options) -> (Salvaged, Option<Rows>) {
    let source: Arc<dyn Io> = Arc::new(io.clone());
    let operations = io.operations();
    let target = MemIo::new();
    let open =
        |io: &MemIo| Engine::open_with(Arc::new(io.clone()), MemClock::new(), Options::small("/new")).expect("opens");
    let engine = open(&target);
    let salvaged =
        salvage(&source, &subject(options), &engine, &mut |_| {}).expect("a new database takes what is left");
    assert_eq!(io.operations(), operations, "the source is only read");
    drop(engine);
    let engine = open(&target.crash(1));
    let rows = engine.schema().table("t").is_some().then(|| contents(&engine));
    (salvaged, rows)
}

/// The damage done to a copy.
fn with(io: &MemIo, damage: impl FnOnce(&MemIo)) -> MemIo {
    let copy = io.crash(3);
    damage(&copy);
    copy
}

fn newest_segment(io: &MemIo) -> PathBuf {
    let names = io.names();
    let segments = names.into_iter().filter(|n| n.starts_with("/db/log") && n.extension().is_some_and(|e| e == "seg"));
    let used = |path: &PathBuf| io.contents(path).expect("a file")[..8] == *b"FRESHGRP";
    segments.filter(used).max().expect("a segment in use")
}

#[test]
fn a_whole_database_is_saved_whole() {
    let (io, options, expected) = written();
    let (salvaged, rows) = save(&io, &options);
    assert!(salvaged.is_complete() && salvaged.findings.is_empty(), "{salvaged}");
    assert_eq!(rows.as_ref(), Some(&expected));
    assert_eq!((salvaged.tables.len(), salvaged.tables[0].rows), (1, 8));
}

#[test]
fn without_a_manifest_images_and_log_are_enough() {
    let (io, options, expected) = written();
    let damaged = with(&io, |io| io.lose(Path::new("/db/manifest")));
    let (salvaged, rows) = save(&damaged, &options);
    assert!(!salvaged.findings.is_empty());
    assert_eq!(rows, Some(expected), "{salvaged}");
}

#[test]
fn behind_a_lost_epoch_whole_rows_are_saved_and_others_keep_an_older_version() {
    let (io, options, expected) = written();
    let segment = newest_segment(&io);
    // The first group holds the first of two changes of row 1; the change of row 2 comes later.
    let damaged = with(&io, |io| io.flip_bit(&segment, 150, 1).expect("the file is there"));
    let (salvaged, rows) = save(&damaged, &options);
    let rows = rows.expect("the catalog is whole");
    assert!(!salvaged.is_complete());
    let older: Vec<_> = salvaged.losses.iter().filter(|loss| loss.fate == Fate::Older).collect();
    assert_eq!(older.len(), 1, "{salvaged}");
    assert_eq!((older[0].table.as_deref(), older[0].key.as_deref()), (Some("t"), Some("id = 1")), "{salvaged}");
    let by_id = |rows: &Rows| rows.iter().map(|row| (row.0, row.clone())).collect::<BTreeMap<_, _>>();
    let (saved, expected) = (by_id(&rows), by_id(&expected));
    assert_eq!(saved[&1].1, 10, "as of the checkpoint");
    for id in expected.keys().filter(|id| **id != 1) {
        assert_eq!(saved.get(id), expected.get(id), "row {id}: {salvaged}");
    }
}

/// Whatever one flipped bit does: a row is saved as it was once or not at all, and who lacks one is told.
#[test]
fn nothing_is_saved_that_never_was() {
    let (io, options, expected) = written();
    let ever = |id: i64, n: i64| (71..=73).contains(&n) || n == id * 10 || id >= 100 && n < 4;
    let mut incomplete = 0;
    for path in io.names().into_iter().filter(|path| !path.ends_with("lock")) {
        let bytes = io.contents(&path).expect("a file");
        let used: Vec<usize> = bytes.iter().enumerate().filter(|(_, b)| **b != 0).map(|(at, _)| at).collect();
        for &offset in used.iter().step_by(1 + used.len() / 25) {
            let damaged = with(&io, |io| io.flip_bit(&path, offset as u64, 2).expect("the file is there"));
            let (salvaged, rows) = save(&damaged, &options);
            let rows = rows.unwrap_or_default();
            for (id, n, note) in &rows {
                let of_row = expected.iter().find(|row| row.0 == *id).unwrap_or_else(|| panic!("row {id} never was"));
                assert!(ever(*id, *n) && *note == of_row.2, "{} at {offset}: row {id} is {n}", path.display());
            }
            if rows != expected {
                assert!(!salvaged.is_complete(), "{} at {offset}: {salvaged}\n{rows:?}", path.display());
                incomplete += 1;
            }
        }
    }
    assert!(incomplete > 20, "{incomplete}");
}

#[test]
fn fixtures_of_every_version_are_saved_whole() {
    for io in crate::format::fixtures() {
        let (salvaged, _) = save(&io, &crate::format::options());
        assert!(salvaged.is_complete(), "{salvaged}");
        let every = salvaged.tables.iter().find(|saved| saved.table == "every").expect("a table of every type");
        assert_eq!((every.rows, every.older, every.lost), (20, 0, 0));
    }
}

/// An image of rows is lost: the refusal names the table, and what the log alone knows is saved.
#[test]
fn a_lost_image_takes_its_rows_and_no_others() {
    let (io, options, expected) = written();
    let path = io.names().into_iter().rfind(|n| n.starts_with("/db/images-000001")).expect("a segment");
    let bytes = io.contents(&path).expect("a file");
    // The first image of records that is not the system table's.
    let heads = (0..bytes.len()).step_by(8).filter(|at| bytes[*at..].starts_with(b"FIMG"));
    let of_table = |at: &usize| bytes[at + 8] > 1 && bytes[at + 16] == 0;
    let at = heads.into_iter().find(of_table).expect("an image of the table");
    let damaged = with(&io, |io| io.flip_bit(&path, at as u64 + 100, 0).expect("the file is there"));
    let opened = Engine::open_with(Arc::new(damaged.clone()), MemClock::new(), options.clone());
    let Err(refused) = opened else { panic!("a damaged image is served") };
    assert!(refused.0.contains("1 pages are affected, of t"), "{refused}");
    let (salvaged, rows) = save(&damaged, &options);
    let rows = rows.expect("the catalog is whole");
    // Inserted after the checkpoint, into slots that were never used before.
    assert!(rows.iter().any(|row| row.0 == 300) && rows.iter().all(|row| expected.contains(row)), "{salvaged}");
    let of_page =
        salvaged.losses.iter().any(|loss| loss.table.as_deref() == Some("t") && loss.reason.contains("image"));
    assert!(of_page, "{salvaged}");
}
