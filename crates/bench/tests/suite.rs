//! Does every workload on adapters run on tiny data with all its cases, and is bad input answered with what there is?

use clap::Parser;
use freshet_bench::error::BenchError;
use freshet_bench::{BenchArgs, execute};
use std::path::Path;
use told::figures;

mod told;

#[derive(Parser, Debug)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

fn bench(words: &str, dir: &Path) -> Result<(), BenchError> {
    let words: Vec<String> = words.split(' ').map(|word| word.replace("DIR", &dir.display().to_string())).collect();
    let cli = Cli::try_parse_from(std::iter::once("bench".to_owned()).chain(words)).expect("the words are known");
    execute(cli.bench)
}

const TINY: &str = "--rows 1000 --seconds 0.05 --warm-up 0.01 --data DIR/data";
/// Those that are there wherever this is built; servers have tests of their own.
#[cfg(feature = "peers")]
const ADAPTERS: &str = "freshet,freshet-native,sqlite,redb";
#[cfg(not(feature = "peers"))]
const ADAPTERS: &str = "freshet,freshet-native";

#[test]
fn every_case_of_ptime_is_measured_on_every_adapter() {
    let dir = tempfile::tempdir().expect("a directory");
    let words = format!("ptime {TINY} --sessions 16 --adapter {ADAPTERS} --json DIR/a.json --html DIR/a.html");
    bench(&words, dir.path()).expect("runs");
    let told = figures(&dir.path().join("a.json"));
    let has = |case: &str, adapter: &str| told.iter().any(|f| f["case"] == case && f["adapter"] == adapter);
    let everywhere = ["load", "search", "search-row", "search-batched", "update", "update-deferred", "update-lone"];
    let mixes = ["insert", "delete", "mix-90-10", "mix-80-20", "mix-50-50", "connections"];
    for case in everywhere.iter().chain(&mixes) {
        ADAPTERS.split(',').for_each(|adapter| assert!(has(case, adapter), "{case} on {adapter}"));
    }
    for case in ["search-btree", "update-btree", "insert-btree", "delete-btree", "mix-90-10-btree", "streams"] {
        ["freshet", "freshet-native"].iter().for_each(|adapter| assert!(has(case, adapter), "{case} on {adapter}"));
    }
    // Of the hash rate: both were measured with as many sessions. On a machine that does something else nothing may be answered in so short a window.
    let is_measured = |case: &str, adapter: &str| {
        let mut rates =
            told.iter().filter(|f| f["case"] == case && f["adapter"] == adapter && f["figure"] == "operations");
        rates.all(|f| f["rate_per_s"].as_f64() > Some(0.0))
    };
    let is_beside = |case: &str, adapter: &str| {
        told.iter().any(|f| f["case"] == case && f["adapter"] == adapter && f["figure"] == "of the hash rate")
    };
    let mut beside = 0;
    for case in ["search-btree", "update-btree", "insert-btree", "delete-btree", "mix-90-10-btree"] {
        let hash = case.strip_suffix("-btree").expect("it has it");
        for adapter in ["freshet", "freshet-native"] {
            let is_due = is_measured(case, adapter) && is_measured(hash, adapter);
            assert!(is_beside(case, adapter) || !is_due, "{case} on {adapter}");
            beside += usize::from(is_beside(case, adapter));
        }
    }
    assert!(beside > 0);
    assert!(told.iter().filter(|f| f["case"] == "update").all(|f| f["rate_per_s"].as_f64().is_some()));
    let page = std::fs::read_to_string(dir.path().join("a.html")).expect("a report");
    assert!(page.contains("<svg") && page.contains("published, F1") && page.contains("mix-90-10"));
    assert!(!page.contains("http://") && !page.contains("https://"), "a report needs nothing else");
    bench("compare DIR/a.json DIR/a.json", dir.path()).expect("compares");
    assert_eq!(std::fs::read_dir(dir.path().join("data")).expect("lists").count(), 0, "databases are removed");
}

#[test]
fn hotspot_and_scan_run_on_every_adapter() {
    let dir = tempfile::tempdir().expect("a directory");
    for (workload, cases) in [("hotspot", &["one-row", "ten-rows"][..]), ("scan", &["sum"])] {
        let words = format!("{workload} {TINY} --sessions 16 --adapter {ADAPTERS} --json DIR/{workload}.json");
        bench(&words, dir.path()).expect("runs");
        let told = figures(&dir.path().join(format!("{workload}.json")));
        for case in cases {
            for adapter in ADAPTERS.split(',') {
                let has = told.iter().any(|f| f["case"] == *case && f["adapter"] == adapter);
                assert!(has, "{workload} {case} on {adapter}");
            }
        }
    }
}

#[test]
fn unknown_names_are_answered_with_those_there_are() {
    let dir = tempfile::tempdir().expect("a directory");
    let refused = |words: &str| match bench(words, dir.path()) {
        Err(BenchError::Usage(text)) => text,
        other => panic!("{words}: {other:?}"),
    };
    let case = refused(&format!("ptime {TINY} --case serch"));
    assert!(case.contains("no case serch") && case.contains("search-btree"), "{case}");
    let adapter = refused(&format!("scan {TINY} --adapter oracle"));
    assert!(adapter.contains("no adapter oracle") && adapter.contains("freshet-native"), "{adapter}");
    let twice = refused(&format!("ptime {TINY} --log 2 --log DIR"));
    assert!(twice.contains("--log 2"), "{twice}");
    let missing = bench("compare DIR/nothing.json DIR/nothing.json", dir.path());
    assert!(matches!(missing, Err(BenchError::Machine(_))));
    let workload = refused("tpcc --rows 5");
    assert!(workload.contains("no workload tpcc") && workload.contains("hotspot, scan"), "{workload}");
}

#[test]
fn too_little_memory_is_said_before_the_run_with_the_remedy() {
    let dir = tempfile::tempdir().expect("a directory");
    let words = "scan --rows 4000000000 --seconds 0.05 --data DIR/data --adapter freshet-native";
    match bench(words, dir.path()) {
        Err(BenchError::Machine(text)) => assert!(text.contains("memory") && text.contains("--rows"), "{text}"),
        other => panic!("{other:?}"),
    }
}
