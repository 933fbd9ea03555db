//! Does each workload of the peers' figures run, on tiny data, with the oracle's consent?

use clap::Parser;
use freshet_bench::BenchArgs;
use freshet_bench::adapter::{freshet_wire, postgres};
use std::path::Path;
use std::process::ExitCode;

mod told;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

/// Runs `freshet bench` with these words, on little data for a moment, and gives the figures.
fn bench(words: &str) -> Result<Vec<serde_json::Value>, String> {
    bench_own(words, &["--rows", "2000", "--seconds", "0.05", "--warm-up", "0.01"])
}

fn bench_own(words: &str, own: &[&str]) -> Result<Vec<serde_json::Value>, String> {
    let dir = tempfile::tempdir_in("/tmp").expect("a directory");
    open_to_others(dir.path());
    let json = dir.path().join("figures.json");
    let data = dir.path().join("data");
    let own = own.iter().copied().map(str::to_owned);
    let places = ["--json".to_owned(), json.display().to_string(), "--data".to_owned(), data.display().to_string()];
    let words = words.split(' ').map(str::to_owned);
    let cli = Cli::try_parse_from(std::iter::once("bench".to_owned()).chain(words).chain(own).chain(places));
    let code = freshet_bench::run(cli.map_err(|error| error.to_string())?.bench);
    if format!("{code:?}") != format!("{:?}", ExitCode::SUCCESS) {
        return Err(format!("{code:?}"));
    }
    assert_eq!(std::fs::read_dir(&data).expect("lists").count(), 0, "a run leaves nothing");
    Ok(told::figures(&json))
}

/// PostgreSQL's server runs as another user where we are root.
fn open_to_others(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).expect("ours");
}

fn cases(figures: &[serde_json::Value]) -> Vec<String> {
    let mut cases: Vec<String> = figures.iter().filter_map(|f| Some(f["case"].as_str()?.to_owned())).collect();
    cases.dedup();
    cases
}

#[test]
fn the_directory_is_asked_in_every_way() {
    let figures = bench("directory --adapter freshet,freshet-native --sessions 8").expect("runs");
    let told = cases(&figures);
    for case in ["load", "q1", "q2", "q3", "q4", "mix", "index-build"] {
        assert_eq!(told.iter().filter(|told| *told == case).count(), 2, "{case}: {told:?}");
    }
}

#[test]
fn messages_go_over_the_wire_where_there_is_a_server() {
    let asked = bench("directory --adapter postgres,freshet-wire --case messages");
    if freshet_wire::program().is_err() && postgres::programs().is_err() {
        println!("left out: neither PostgreSQL nor FRESHET_BIN");
        assert!(asked.is_err());
        return;
    }
    // On a busy disk none may be answered in time.
    let figures = asked.expect("runs");
    let told: Vec<&str> = figures.iter().filter_map(|f| f["figure"].as_str()).collect();
    let messages = ["1 a message", "10 a message", "50 a message"];
    assert!(told.chunks(3).all(|of_one| of_one == messages), "{told:?}");
}

#[test]
#[cfg(feature = "peers")]
fn a_system_that_has_not_the_indexes_costs_nobody_the_figures() {
    let figures = bench("directory --adapter sqlite,redb --case q1 --sessions 4").expect("runs");
    assert!(figures.iter().all(|f| f["adapter"] == "sqlite") && !figures.is_empty(), "{figures:?}");
    assert!(bench("directory --adapter redb --case q1").is_err(), "nothing is left to measure");
}

#[test]
fn a_run_that_measures_nothing_fails() {
    assert!(bench("tptbm --adapter sqlite").is_err(), "it has no modelled devices");
    assert!(bench("directory --adapter freshet-native --case messages").is_err(), "it has no wire");
}

#[test]
fn loops_run_in_memory_and_accounts_balance() {
    let figures = bench("extreme --adapter freshet-native,freshet --sessions 2").expect("runs");
    let told = cases(&figures);
    for case in ["insert", "delete", "update", "search", "traverse", "accounts"] {
        assert_eq!(told.iter().filter(|told| *told == case).count(), 2, "{case}: {told:?}");
    }
}

#[test]
#[cfg(feature = "peers")]
fn loops_run_on_the_disk_engine_too() {
    let figures = bench("extreme --adapter freshet-native,sqlite --sessions 2").expect("runs");
    let beside: Vec<&str> =
        figures.iter().filter(|f| f["figure"] == "to the disk engine").filter_map(|f| f["case"].as_str()).collect();
    // On a busy disk none of the others may be answered in time.
    assert!(["insert", "delete"].iter().all(|case| beside.contains(case)), "{beside:?}");
    let of_sqlite = figures.iter().filter(|f| f["adapter"] == "sqlite").cloned().collect::<Vec<_>>();
    assert_eq!(cases(&of_sqlite), ["insert", "delete", "update", "search", "traverse", "accounts"]);
}

#[test]
fn a_file_is_copied_into_tables_and_back() {
    let ask = |words: &str| bench_own(words, &["--rows", "2000", "--runs", "2"]);
    let there: Vec<&str> =
        [("freshet-wire", freshet_wire::program().is_ok()), ("postgres", postgres::programs().is_ok())]
            .into_iter()
            .filter_map(|(name, is_there)| is_there.then_some(name))
            .collect();
    assert!(ask("copy --case into").is_err());
    if there.is_empty() {
        println!("left out: neither PostgreSQL nor FRESHET_BIN");
        assert!(ask("copy").is_err());
        return;
    }
    // The oracle counts rows, sums and the bytes of the file that comes out.
    for (words, asked) in [("copy", vec!["from", "to"]), ("copy --case to", vec!["to"])] {
        let figures = ask(words).expect("runs");
        assert_eq!(cases(&figures), asked);
        for case in asked {
            let of_case: Vec<&serde_json::Value> = figures.iter().filter(|f| f["case"] == case).collect();
            let rates: Vec<&str> =
                of_case.iter().filter(|f| f["figure"] == "rows").filter_map(|f| f["adapter"].as_str()).collect();
            assert_eq!(rates, there, "{of_case:?}");
            let compared = of_case.iter().filter(|f| f["figure"] == "times PostgreSQL").count();
            assert_eq!(compared, usize::from(there.len() == 2), "{of_case:?}");
            assert!(of_case.iter().all(|f| f["due"].is_null()), "2,000 rows are not judged: {of_case:?}");
        }
    }
}

#[test]
fn modelled_devices_limit_what_they_should() {
    let figures = bench("tptbm --case updates --sessions 1").expect("runs");
    let rate = |name: &str| {
        let found = figures.iter().find(|f| f["figure"].as_str() == Some(name) && f["sessions"] == 1);
        found.and_then(|f| f["rate_per_s"].as_f64()).expect(name)
    };
    assert!(rate("A write-through") <= 1.0 / 0.0065, "a write-through disk flushes in 6.5 ms");
    let html = tempfile::NamedTempFile::new().expect("a file");
    let disks = bench(&format!("disks --case cache-off --sessions 4 --html {}", html.path().display())).expect("runs");
    assert!(disks[0]["rate_per_s"].as_f64() <= Some(4.0 / 0.008), "{disks:?}");
    let page = std::fs::read_to_string(html.path()).expect("a report");
    assert!(page.contains("published, F2") && page.contains("stroke-dasharray=\"5 4\""), "response times are drawn");
}

#[test]
fn rates_are_told_by_the_number_of_disks() {
    let figures = bench("disks --case cache-on,volume,flush,deferred --sessions 8").expect("runs");
    let of = |case: &str| -> Vec<&str> {
        figures.iter().filter(|f| f["case"] == case).filter_map(|f| f["figure"].as_str()).collect()
    };
    let by_disks = ["operations", "operations", "2 disks to 1", "operations", "4 disks to 2"];
    assert_eq!((of("volume"), of("flush")), (by_disks.to_vec(), by_disks.to_vec()));
    assert_eq!((of("cache-on"), of("deferred")), (vec!["operations"], vec!["durable", "deferred"]));
    let at = |case: &str| -> Vec<f64> {
        figures
            .iter()
            .filter(|f| f["case"] == case && f["figure"] == "operations")
            .filter_map(|f| f["at"].as_f64())
            .collect()
    };
    assert_eq!((at("volume"), at("cache-on")), (vec![1.0, 2.0, 4.0], vec![8.0]));
}

#[test]
fn subscribers_are_read_updated_and_inserted_over_every_device() {
    // The oracle counts the rows that were inserted.
    let figures = bench("tptbm --case mix --sessions 8").expect("runs");
    let told: Vec<&str> = figures.iter().filter_map(|f| f["figure"].as_str()).collect();
    let devices = ["A write-through", "B write-behind, shared", "B write-behind, dedicated", "C file cache"];
    assert_eq!(told[..4], devices);
    assert!(figures.iter().all(|f| f["case"] == "mix"), "{told:?}");
}

#[test]
fn a_log_may_lie_in_another_directory_or_on_models() {
    let log = tempfile::tempdir().expect("a directory");
    let figures = bench(&format!("directory --adapter freshet --case q4 --sessions 4 --log {}", log.path().display()));
    assert_eq!(cases(&figures.expect("runs")), ["q4"]);
    assert_eq!(std::fs::read_dir(log.path()).expect("lists").count(), 0, "a run leaves nothing there");
    let figures =
        bench("directory --adapter freshet --case q4 --sessions 4 --log model:flush=5ms,count=2").expect("runs");
    assert!(figures[0]["rate_per_s"].as_f64() <= Some(4.0 / 0.005), "{figures:?}");
}

/// Where O_DIRECT may be refused. A log needs room there, which the memory of a small container does not give.
#[test]
fn a_log_may_lie_in_memory() {
    let shared = Path::new("/dev/shm");
    let room = freshet_bench::machine::disk_available(shared).unwrap_or(0);
    if room < 5 << 30 {
        return;
    }
    let log = tempfile::tempdir_in(shared).expect("a directory");
    let words = format!("directory --adapter ADAPTERS --case q4 --sessions 4 --log {}", log.path().display());
    let adapters = if cfg!(feature = "peers") { "freshet,sqlite" } else { "freshet" };
    let figures = bench(&words.replace("ADAPTERS", adapters)).expect("runs");
    let told: Vec<&str> = figures.iter().filter_map(|f| f["adapter"].as_str()).collect();
    assert_eq!(told.join(","), adapters);
    assert_eq!(std::fs::read_dir(log.path()).expect("lists").count(), 0, "a run leaves nothing there");
}

#[test]
fn wrong_options_are_refused() {
    for words in [
        "directory --case q9",
        "extreme --adapter oracle",
        "tptbm --log 2",
        "disks --log 2",
        "directory --log model:speed=9",
        "directory --log /nowhere/at/all",
    ] {
        assert!(bench(words).is_err(), "{words}");
    }
}
