//! The workload `tpch`: the 22 queries of TPC-H beside PostgreSQL, in one run, on the same data.
//!
//! Freshet runs embedded, PostgreSQL over loopback; both get a query as text, plan it and give all rows. PostgreSQL has its data in its buffers,
//! its statistics made, and two workers beside the process of the session. Each query runs once to warm up, then so often as asked for; the
//! best counts. The answers are compared row by row, in order: a figure of a wrong answer is none.

mod queries;
mod schema;

use crate::adapter::postgres::Postgres;
use crate::adapter::{Missing, Setup, postgres, wire};
use crate::error::BenchError;
use crate::figure::{self, Due, Figure, Setting};
use crate::log_plan::LogPlan;
use crate::machine::Machine;
use crate::progress::{during, say};
use crate::scratch::Scratch;
use clap::Args;
use freshet_db::{Database, Options, Session};
use queries::Query;
use schema::TABLES;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// What the rows of scale 1 take in memory, with their indexes and versions, and as much again for queries.
const MEMORY_OF_SCALE_ONE: f64 = 6e9;
const MEMORY_BESIDE_BYTES: u64 = 1 << 30;
const QUERIES: usize = 22;
/// Below this scale only the answers are judged.
const JUDGED_SCALE: f64 = 1.0;
const WORKERS: usize = 2;
/// Of PostgreSQL for each sort and hash: enough that nothing of scale 1 goes to disk, as nothing of ours does.
const WORK_MEM: &str = "256MB";

/// What the machine is measured with, for the figures' file.
const PROBE_BYTES: u64 = 64 << 20;

/// The 22 queries of TPC-H, beside PostgreSQL
#[derive(Args, Clone, Debug)]
pub struct TpchArgs {
    /// Size of the data: 1 is about 1 GB
    #[arg(long, value_name = "F", default_value_t = 0.1, value_parser = scale)]
    scale: f64,
    /// Only these queries [default: all]
    #[arg(long = "query", value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=QUERIES as u64))]
    queries: Vec<u64>,
    /// Runs of each query after the first, of which the best counts
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: u64,
    /// Without PostgreSQL: nothing is compared
    #[arg(long)]
    alone: bool,
    /// Show how we run each query
    #[arg(long)]
    explain: bool,
    /// Append the figures as JSON lines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where the databases are made
    #[arg(long, value_name = "DIR", default_value = "freshet-data/bench")]
    data: PathBuf,
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if (0.001..=100.0).contains(&scale) => Ok(scale),
        _ => Err("a number from 0.001 to 100".to_owned()),
    }
}

/// The rows of an answer, as text.
type Answer = Vec<Vec<Option<String>>>;

/// An answer, and the seconds that the best run took.
struct Asked {
    answer: Answer,
    seconds: f64,
}

pub fn run(args: &TpchArgs) -> Result<(), BenchError> {
    figure::refuse_unwritable(&args.json)?;
    if !args.alone {
        (postgres::KIND.is_available)().map_err(without_postgres)?;
    }
    std::fs::create_dir_all(&args.data).map_err(crate::error::on(&args.data))?;
    let numbers: Vec<usize> = match args.queries.as_slice() {
        [] => (1..=QUERIES).collect(),
        some => some.iter().map(|&n| n as usize).collect(),
    };
    let queries: Vec<Query> = numbers.into_iter().map(|n| queries::query(n, args.scale)).collect();
    let postgres = if args.alone { None } else { Some(ask_postgres(args, &queries)?) };
    let ours = ask_freshet(args, &queries)?;
    let mut figures = Vec::new();
    let mut wrong = Vec::new();
    for (at, (query, ours)) in queries.iter().zip(&ours).enumerate() {
        let theirs = postgres.as_ref().map(|all| &all[at]);
        if let Some(difference) = theirs.and_then(|theirs| difference(&ours.answer, &theirs.answer)) {
            say(&format!("query {}: {difference}", query.number));
            wrong.push(query.number);
        }
        figures.extend(figures_of(&format!("q{}", query.number), ours, theirs));
    }
    figures.extend(totals(args.scale, &ours, postgres.as_deref()));
    figure::table(&figures).iter().for_each(|line| say(line));
    if let Some(path) = &args.json {
        figure::append_json(path, &figures, &setting(args)?)?;
    }
    match wrong.as_slice() {
        [] => {
            say(&figure::verdict(&figures));
            Ok(())
        }
        wrong => Err(BenchError::WrongData(format!("other answers than PostgreSQL's: queries {wrong:?}"))),
    }
}

fn without_postgres(missing: Missing) -> BenchError {
    BenchError::Machine(format!("{missing}; or --alone, and nothing is compared"))
}

fn setting(args: &TpchArgs) -> Result<Setting, BenchError> {
    let config = BTreeMap::from([("scale", args.scale.to_string()), ("runs", args.runs.to_string())]);
    let machine = Machine::measure(&args.data, PROBE_BYTES)?;
    Ok(Setting { commit: figure::commit(), version: env!("CARGO_PKG_VERSION"), config, machine })
}

/// A figure of ours, which says how long PostgreSQL took, and one of PostgreSQL's.
fn figures_of(case: &str, ours: &Asked, theirs: Option<&Asked>) -> Vec<Figure> {
    let figure = |adapter, asked: &Asked| Figure {
        workload: "tpch",
        adapter,
        ..Figure::new(case, adapter, asked.answer.len() as f64, "rows", asked.seconds)
    };
    let mut own = figure("freshet", ours);
    own.rate_per_s = 0.0;
    let Some(theirs) = theirs else {
        return vec![own];
    };
    own.peers = BTreeMap::from([("postgres", theirs.seconds / ours.seconds)]);
    let times = theirs.seconds / ours.seconds;
    let own = own.note(format!("{times:.2} times as fast as PostgreSQL, which took {:.3} s", theirs.seconds));
    vec![own]
}

fn totals(scale: f64, ours: &[Asked], theirs: Option<&[Asked]>) -> Option<Figure> {
    let total = |all: &[Asked]| all.iter().map(|asked| asked.seconds).sum::<f64>();
    let seconds = total(ours);
    let figure = Figure { workload: "tpch", adapter: "freshet", ..Figure::new("total", "freshet", 0.0, "", seconds) };
    let Some(theirs) = theirs else {
        return Some(figure);
    };
    let theirs = total(theirs);
    let figure = figure.ratio(seconds / theirs).note(format!("PostgreSQL took {theirs:.3} s"));
    Some(if scale >= JUDGED_SCALE { figure.due(Due::RatioAtMost(1.0)) } else { figure })
}

/// What is first found to differ.
fn difference(ours: &Answer, theirs: &Answer) -> Option<String> {
    if ours.len() != theirs.len() {
        return Some(format!("{} rows, PostgreSQL gives {}", ours.len(), theirs.len()));
    }
    let (row, (ours, theirs)) = ours.iter().zip(theirs).enumerate().find(|(_, (a, b))| a != b)?;
    Some(format!("row {}: {ours:?}, PostgreSQL gives {theirs:?}", row + 1))
}

fn ask_freshet(args: &TpchArgs, queries: &[Query]) -> Result<Vec<Asked>, BenchError> {
    let scratch = Scratch::new(&args.data, "tpch-freshet")?;
    let memory_limit_bytes = (MEMORY_OF_SCALE_ONE * args.scale) as u64 + MEMORY_BESIDE_BYTES;
    let db = Database::open(Options { memory_limit_bytes, ..Options::new(scratch.path().join("data")) })?;
    let mut session = db.session()?;
    let started = Instant::now();
    for table in &TABLES {
        session.run(&table.definition())?;
        let copy = format!("COPY {} FROM STDIN", table.name);
        during(&format!("freshet: {}", table.name), 0, |_| session.copy_in(&copy, table.rows(args.scale)))?;
        table.after().iter().try_for_each(|statement| session.run(statement).map(drop))?;
    }
    session.run("ANALYZE")?;
    session.run(&format!("SET freshet.query_memory_mb = {}", (memory_limit_bytes >> 21).max(64)))?;
    say(&format!("freshet: loaded in {:.1} s", started.elapsed().as_secs_f64()));
    queries.iter().map(|query| ask_one(&mut session, query, args)).collect()
}

fn ask_one(session: &mut Session, query: &Query, args: &TpchArgs) -> Result<Asked, BenchError> {
    let failed = |error: freshet_db::SqlError| BenchError::Engine(format!("query {}: {error}", query.number));
    query.before.iter().try_for_each(|sql| session.run(sql).map(drop)).map_err(failed)?;
    let mut asked = Asked { answer: Answer::new(), seconds: f64::INFINITY };
    for run in 0..=args.runs {
        let started = Instant::now();
        let statement = session.prepare(&query.sql).map_err(failed)?;
        let rows = session.query(&statement, &[]).map_err(failed)?;
        let seconds = started.elapsed().as_secs_f64();
        if run == 0 {
            let columns = 0..statement.columns().len();
            asked.answer =
                (0..rows.len()).map(|row| columns.clone().map(|column| rows.display(row, column)).collect()).collect();
        } else {
            asked.seconds = asked.seconds.min(seconds);
        }
    }
    say(&format!("freshet: query {} in {:.3} s", query.number, asked.seconds));
    if args.explain {
        let statement = session.prepare(&format!("EXPLAIN {}", query.sql)).map_err(failed)?;
        let rows = session.query(&statement, &[]).map_err(failed)?;
        (0..rows.len()).filter_map(|row| rows.display(row, 0)).for_each(|line| say(&line));
    }
    query.undo.iter().try_for_each(|sql| session.run(sql).map(drop)).map_err(failed)?;
    Ok(asked)
}

fn ask_postgres(args: &TpchArgs, queries: &[Query]) -> Result<Vec<Asked>, BenchError> {
    let scratch = Scratch::new(&args.data, "tpch-postgres")?;
    let memory_bytes = (MEMORY_OF_SCALE_ONE * args.scale) as u64 / 2 + MEMORY_BESIDE_BYTES;
    let setup =
        Setup::new(scratch.path().to_owned(), LogPlan::of_all(&[]).map_err(BenchError::Usage)?, memory_bytes, 8)?;
    let server = Postgres::start(&setup)?;
    let started = Instant::now();
    for table in &TABLES {
        wire::ask(server.address(), &table.definition())?;
        let mut rows = table.rows(args.scale);
        wire::copy(server.address(), table.name, |text| {
            let mut bytes = Vec::new();
            while bytes.len() < 1 << 20 && rows.next_row(&mut bytes) {}
            text.push_str(&String::from_utf8_lossy(&bytes));
            !bytes.is_empty()
        })?;
        table.after().iter().try_for_each(|statement| wire::ask(server.address(), statement).map(drop))?;
    }
    wire::ask(server.address(), "VACUUM ANALYZE")?;
    say(&format!("postgres: loaded in {:.1} s", started.elapsed().as_secs_f64()));
    let settings = [format!("SET max_parallel_workers_per_gather = {WORKERS}"), format!("SET work_mem = '{WORK_MEM}'")];
    queries.iter().map(|query| ask_server(&server, query, &settings, args.runs)).collect()
}

fn ask_server(server: &Postgres, query: &Query, settings: &[String], runs: u64) -> Result<Asked, BenchError> {
    let mut statements = settings.to_vec();
    statements.extend(query.before.clone());
    let first = statements.len();
    let last = first + runs as usize;
    statements.extend((first..=last).map(|_| query.sql.clone()));
    statements.extend(query.undo.clone());
    let mut answered = wire::ask_in_turn(server.address(), &statements)?;
    let best = answered[first + 1..=last].iter().map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min);
    say(&format!("postgres: query {} in {best:.3} s", query.number));
    Ok(Asked { answer: std::mem::take(&mut answered[first].0), seconds: best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_without_postgresql_is_said() {
        let missing = Missing { reason: "it is not there".into(), remedy: "install it".into() };
        let error = without_postgres(missing).to_string();
        assert_eq!(error, "it is not there; install it; or --alone, and nothing is compared");
    }

    #[test]
    fn the_first_difference_is_told() {
        let row = |text: &str| vec![Some(text.to_owned()), None];
        assert_eq!(difference(&vec![row("1.0")], &vec![row("1.0")]), None);
        let told = difference(&vec![row("1.0"), row("2")], &vec![row("1.0"), row("2.0")]).expect("they differ");
        assert!(told.starts_with("row 2"), "{told}");
        assert!(difference(&vec![row("1.0")], &Vec::new()).is_some());
    }
}
