//! The workload `pgbench`: our server, PostgreSQL, and a server that does nothing, asked the same by PostgreSQL's own client, which shares the
//! machine with them.
//!
//! All three run at the same time, and those that are not asked are at rest; each case asks them one after the other, so that what else happens
//! on the machine meets all alike. The [`crate::responder`]'s rate is the limit: what is missing to it is the server's own work. Every commit of ours and
//! of PostgreSQL's is durable. Afterwards the accounts hold what the history and the counters say, or there is no figure.

use crate::adapter::Setup;
use crate::adapter::child::Server;
use crate::adapter::freshet_wire::{self, Wire};
use crate::adapter::postgres::{self, Postgres};
use crate::adapter::wire::{Address, ask};
use crate::error::{BenchError, on};
use crate::figure::{self, Due, Figure, Setting};
use crate::log_plan::LogPlan;
use crate::machine::{Machine, memory_available, processors};
use crate::progress::{during, say};
use crate::responder::Responder;
use crate::scratch::Scratch;
use crate::served::{self, Sockets, System};
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

mod beside;
mod jdbc;
mod many;
mod ship;

/// What an account with its index takes in either server, and both together.
const ACCOUNT_BYTES: u64 = 1_000;
const ACCOUNTS_OF_SCALE_ONE: u64 = 100_000;
const MEMORY_BESIDE_BYTES: u64 = 512 << 20;
const CLIENTS_MOST: usize = 1_000;
/// PostgreSQL has a process for each: it is asked with no more.
const POSTGRES_CLIENTS_MOST: usize = 256;
const PIPELINE: usize = 20;
/// With fewer accounts, or a build that is not optimised, a run only shows that it works.
const JUDGED_SCALE: u64 = 10;
/// What the machine is measured with, for the figures' file.
const PROBE_BYTES: u64 = 64 << 20;

/// Our server, PostgreSQL and one that does nothing, asked by pgbench
#[derive(Args, Clone, Debug)]
pub struct PgbenchArgs {
    /// Hundreds of thousands of accounts
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=2_000))]
    scale: u64,
    /// Seconds of each measurement, whole ones: what pgbench takes
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Over loopback, not through socket files as PostgreSQL's clients go by default on the server's machine
    #[arg(long)]
    tcp: bool,
    /// Only these cases [default: all]
    #[arg(long = "case", value_name = "CASE", value_delimiter = ',')]
    cases: Vec<String>,
    /// Append the figures as JSON lines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where the databases are made
    #[arg(long, value_name = "DIR", default_value = "freshet-data/bench")]
    data: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Script {
    Select,
    Update,
    /// The standard transaction of seven statements.
    TpcB,
}

/// What is asked, how, and what is due of our server.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    script: Script,
    clients: usize,
    /// Statements in one message; 1: each by itself.
    pipeline: usize,
    mode: &'static str,
    of_responder: Option<f64>,
    of_postgres: Option<f64>,
    /// Asked of our server only: directly, and through `freshet ship`.
    is_shipped: bool,
    /// By a program in Java instead of pgbench.
    is_jdbc: bool,
    /// Asked of our server only: alone, and beside a long query.
    is_beside: bool,
    /// Of our server and the responder, and of few sessions in turn.
    is_many: bool,
}

const fn case(name: &'static str, script: Script, clients: usize) -> Case {
    Case {
        name,
        script,
        clients,
        pipeline: 1,
        mode: "prepared",
        of_responder: None,
        of_postgres: None,
        is_shipped: false,
        is_jdbc: false,
        is_beside: false,
        is_many: false,
    }
}

const fn shipped(name: &'static str, script: Script, clients: usize) -> Case {
    Case { is_shipped: true, ..case(name, script, clients) }
}

const fn many(name: &'static str, script: Script) -> Case {
    Case { is_many: true, ..case(name, script, CLIENTS_MOST) }
}

/// Beyond that many threads the driver only takes more of the two cores.
const JDBC_CLIENTS: usize = 16;

const fn jdbc(name: &'static str, script: Script, together: usize) -> Case {
    Case { is_jdbc: true, pipeline: together, of_postgres: Some(3.0), ..case(name, script, JDBC_CLIENTS) }
}

const fn beside(name: &'static str, script: Script) -> Case {
    Case { is_beside: true, ..case(name, script, 4) }
}

const CASES: [Case; 20] = [
    Case { of_responder: Some(0.75), of_postgres: Some(3.0), ..case("select", Script::Select, 64) },
    Case {
        pipeline: PIPELINE,
        of_responder: Some(0.5),
        of_postgres: Some(5.0),
        ..case("select-pipelined", Script::Select, 8)
    },
    Case { of_postgres: Some(5.0), ..case("update", Script::Update, 64) },
    Case { of_postgres: Some(1.0), ..case("update-lone", Script::Update, 1) },
    Case { pipeline: PIPELINE, of_postgres: Some(5.0), ..case("update-pipelined", Script::Update, 8) },
    Case { of_postgres: Some(3.0), ..case("tpcb-8", Script::TpcB, 8) },
    Case { of_postgres: Some(3.0), ..case("tpcb-64", Script::TpcB, 64) },
    Case { mode: "simple", of_postgres: Some(2.0), ..case("select-simple", Script::Select, 64) },
    Case { mode: "extended", ..case("select-extended", Script::Select, 64) },
    many("select-1000", Script::Select),
    many("update-1000", Script::Update),
    beside("select-beside", Script::Select),
    beside("update-beside", Script::Update),
    shipped("ship", Script::Select, 200),
    shipped("ship-update", Script::Update, 200),
    shipped("ship-lone", Script::Select, 1),
    jdbc("jdbc-select", Script::Select, 1),
    jdbc("jdbc-select-batch", Script::Select, PIPELINE),
    jdbc("jdbc-update", Script::Update, 1),
    jdbc("jdbc-batch", Script::Update, PIPELINE),
];

impl Case {
    fn text(&self) -> String {
        match self.script {
            Script::TpcB => TPC_B.to_owned(),
            _ if self.pipeline == 1 => self.statement(""),
            _ => {
                let statements: String = (0..self.pipeline).map(|n| self.statement(&n.to_string())).collect();
                format!("\\startpipeline\n{statements}\\endpipeline\n")
            }
        }
    }

    fn statement(&self, n: &str) -> String {
        let aid = format!("\\set aid{n} random(1, {ACCOUNTS_OF_SCALE_ONE} * :scale)\n");
        match self.script {
            Script::Select => format!("{aid}SELECT abalance FROM pgbench_accounts WHERE aid = :aid{n};\n"),
            _ => format!("{aid}UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid{n};\n"),
        }
    }

    fn statements_each(&self) -> f64 {
        self.pipeline as f64
    }
}

const TPC_B: &str = "\\set aid random(1, 100000 * :scale)
\\set bid random(1, 1 * :scale)
\\set tid random(1, 10 * :scale)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
";

fn clients_most(system: &System) -> usize {
    if matches!(system, System::Postgres(_)) { POSTGRES_CLIENTS_MOST } else { CLIENTS_MOST }
}

/// What pgbench found.
struct Asked {
    /// Transactions of the script.
    rate_per_s: f64,
    latency_ms: f64,
    transactions: u64,
    cpu_seconds: f64,
    rounds: f64,
}

impl Asked {
    /// All rounds, of equal length, as one.
    fn of_rounds(rounds: &[Asked]) -> Asked {
        let count = rounds.len() as f64;
        Asked {
            rate_per_s: rounds.iter().map(|asked| asked.rate_per_s).sum::<f64>() / count,
            latency_ms: rounds.iter().map(|asked| asked.latency_ms).sum::<f64>() / count,
            transactions: rounds.iter().map(|asked| asked.transactions).sum(),
            cpu_seconds: rounds.iter().map(|asked| asked.cpu_seconds).sum(),
            rounds: count,
        }
    }

    fn cpu_us_each(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.transactions.max(1) as f64
    }
}

struct Bench<'a> {
    args: &'a PgbenchArgs,
    program: PathBuf,
    scratch: Scratch,
    sockets: Sockets,
    figures: Vec<Figure>,
    /// Updates of one that were acknowledged, by system.
    added: BTreeMap<&'static str, u64>,
    is_judged: bool,
}

pub fn run(args: &PgbenchArgs) -> Result<(), BenchError> {
    let chosen = chosen(&args.cases)?;
    figure::refuse_unwritable(&args.json)?;
    std::fs::create_dir_all(&args.data).map_err(on(&args.data))?;
    let program = program()?;
    let need = args.scale * ACCOUNTS_OF_SCALE_ONE * ACCOUNT_BYTES + MEMORY_BESIDE_BYTES;
    if memory_available() < need {
        let (need, have) = (need >> 20, memory_available() >> 20);
        return Err(BenchError::Machine(format!(
            "pgbench needs about {need} MiB of memory and {have} MiB are available: use a smaller --scale"
        )));
    }
    let machine = Machine::measure(&args.data, PROBE_BYTES)?;
    machine.lines().iter().for_each(|line| say(line));
    let scratch = Scratch::new(&args.data, "pgbench")?;
    let is_judged = args.scale >= JUDGED_SCALE && machine.optimised;
    let sockets = Sockets::new(args.tcp)?;
    let mut bench = Bench { args, program, scratch, sockets, figures: Vec::new(), added: BTreeMap::new(), is_judged };
    let systems = bench.start()?;
    systems.iter().for_each(|system| system.server().rests());
    let driver = jdbc::driver();
    for case in chosen {
        if let (true, Err(missing)) = (case.is_jdbc, &driver) {
            say(&format!("  {}", missing.line(case.name)));
            continue;
        }
        let is_ours_alone = case.is_shipped || case.is_beside;
        match systems.iter().find(|system| is_ours_alone && matches!(system, System::Freshet(_))) {
            Some(ours @ System::Freshet(wire)) => ours.while_asked(|| match case.is_beside {
                true => bench.measure_beside(case, wire),
                false => bench.measure_shipped(case, wire),
            })?,
            _ if case.is_many => bench.measure_many(case, &systems)?,
            _ => bench.measure(case, &systems, driver.as_deref().ok())?,
        }
    }
    systems.iter().try_for_each(|system| system.while_asked(|| bench.check(system)))?;
    say("");
    figure::rates_table(&bench.figures).iter().for_each(|line| say(line));
    if let Some(path) = &args.json {
        let config = BTreeMap::from([
            ("scale", args.scale.to_string()),
            ("seconds", args.seconds.to_string()),
            ("through", served::through(args.tcp).to_owned()),
        ]);
        let setting = Setting { commit: figure::commit(), version: env!("CARGO_PKG_VERSION"), config, machine };
        figure::append_json(path, &bench.figures, &setting)?;
    }
    say("");
    say(&figure::verdict(&bench.figures));
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<&'static Case>, BenchError> {
    if let Some(unknown) = names.iter().find(|name| !CASES.iter().any(|case| case.name == **name)) {
        let known: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        return Err(BenchError::Usage(format!("pgbench has no case {unknown}; there are: {}", known.join(", "))));
    }
    Ok(CASES.iter().filter(|case| names.is_empty() || names.iter().any(|name| name == case.name)).collect())
}

/// PostgreSQL's client, which comes with its server.
fn program() -> Result<PathBuf, BenchError> {
    let program = postgres::programs()?.join("pgbench");
    freshet_wire::program()?;
    match program.is_file() {
        true => Ok(program),
        false => Err(BenchError::Machine(format!("{} is not there; apt-get install -y postgresql", program.display()))),
    }
}

impl Bench<'_> {
    fn start(&self) -> Result<Vec<System>, BenchError> {
        let log = LogPlan::of_all(&[]).map_err(BenchError::Usage)?;
        let memory_bytes = self.args.scale * ACCOUNTS_OF_SCALE_ONE * ACCOUNT_BYTES / 2 + MEMORY_BESIDE_BYTES / 2;
        let setup = |name: &str, sessions| {
            let dir = self.scratch.path().join(name);
            std::fs::create_dir_all(&dir).map_err(on(&dir))?;
            let socket = self.sockets.of(name);
            Ok::<_, BenchError>(Setup { socket, ..Setup::new(dir, log.clone(), memory_bytes, sessions)? })
        };
        let systems = vec![
            System::Responder(Responder::start(self.scratch.path(), None, self.sockets.of("responder").as_deref())?),
            System::Postgres(Postgres::start(&setup("postgres", POSTGRES_CLIENTS_MOST)?)?),
            System::Freshet(Wire::start(&setup("freshet-wire", CLIENTS_MOST)?)?),
        ];
        for system in &systems[1..] {
            let scale = self.args.scale.to_string();
            let fill =
                || self.ask(system.name(), system.address(), &["-i", "-s", &scale, "-I", "dtgvp", "-q"]).map(drop);
            during(&format!("{}: {scale} times 100,000 accounts", system.name()), 0, |_| fill())?;
        }
        Ok(systems)
    }

    /// Runs pgbench to its end; what it said.
    fn ask(&self, name: &str, address: Address, words: &[&str]) -> Result<String, BenchError> {
        let Address { at, user, database, socket } = address;
        let host = socket.map_or_else(|| at.ip().to_string(), |directory| directory.display().to_string());
        let mut command = Command::new(&self.program);
        command.args(["-h", &host, "-p", &at.port().to_string(), "-U", user]).args(words).arg(database);
        let ended = command.output().map_err(on(&self.program))?;
        if ended.status.success() {
            return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&ended.stderr);
        let lines: Vec<&str> = said.lines().rev().take(3).collect();
        Err(BenchError::Engine(format!("pgbench against {name}: {}", lines.join(" | "))))
    }

    /// Whom, where, and whose processor time it takes.
    fn run_script(
        &self,
        (name, address, server): (&str, Address, &Server),
        case: &Case,
        script: &Path,
    ) -> Result<Asked, BenchError> {
        let threads = processors().min(case.clients).to_string();
        let (clients, seconds, scale) =
            (case.clients.to_string(), self.args.seconds.to_string(), self.args.scale.to_string());
        let script = script.display().to_string();
        let words = [
            "-n",
            "-M",
            case.mode,
            "-f",
            &script,
            "-s",
            &scale,
            "-c",
            &clients,
            "-j",
            &threads,
            "-T",
            &seconds,
            // A conflict is no failure of the system; none is expected at READ COMMITTED.
            "--max-tries=10",
        ];
        let before = server.cpu_seconds();
        let said = self.ask(name, address, &words)?;
        let cpu_seconds = server.cpu_seconds() - before;
        let number = |name: &str| -> Option<f64> {
            let line = said.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.split('/').next()?.parse().ok()
        };
        let transactions = number("number of transactions actually processed: ")
            .ok_or_else(|| BenchError::Engine(format!("pgbench says nothing that is understood: {said}")))?;
        // It leaves them out, or says NaN, where there was nothing in that time.
        let told = |name: &str| number(name).filter(|number| number.is_finite()).unwrap_or(0.0);
        let (rate_per_s, latency_ms) = (told("tps = "), told("latency average = "));
        Ok(Asked { rate_per_s, latency_ms, transactions: transactions as u64, cpu_seconds, rounds: 1.0 })
    }

    fn write_script(&self, case: &Case) -> Result<PathBuf, BenchError> {
        let script = self.scratch.path().join(format!("{}.sql", case.name));
        std::fs::write(&script, case.text()).map_err(on(&script))?;
        Ok(script)
    }

    fn measure(&mut self, case: &Case, systems: &[System], driver: Option<&Path>) -> Result<(), BenchError> {
        let script = self.write_script(case)?;
        let mut rates: BTreeMap<&'static str, f64> = BTreeMap::new();
        let asks = |system: &&System| case.clients <= clients_most(system);
        for system in systems.iter().filter(asks) {
            let what = format!("{}: {}", system.name(), case.name);
            let of = (system.name(), system.address(), system.server());
            let ask_it = |_: &_| match driver.filter(|_| case.is_jdbc) {
                Some(driver) => self.run_jdbc(of, case, driver),
                None => self.run_script(of, case, &script),
            };
            let asked = system.while_asked(|| during(&what, 0, ask_it))?;
            let figure = self.figure(case, system, &asked);
            rates.insert(system.name(), figure.rate_per_s);
            self.note_added(system.name(), case, asked.transactions);
            let figure = match system {
                System::Freshet(_) => self.compared(figure, case, &rates),
                _ => figure,
            };
            self.tell(figure);
            if matches!(system, System::Freshet(_)) && case.script != Script::Select {
                // The next case does not meet the checkpoint that this one caused.
                system.while_asked(|| ask(system.address(), "CHECKPOINT"))?;
            }
        }
        if let (Some(due), Some(theirs), Some(ours)) =
            (case.of_postgres, rates.get("postgres"), rates.get("freshet-wire"))
        {
            let limit = rates.get("responder").map(|limit| format!("the responder {:.2} x", limit / theirs));
            let figure = Figure {
                workload: "pgbench",
                adapter: "freshet-wire",
                sessions: case.clients,
                note: limit.unwrap_or_default(),
                ..Figure::new(case.name, "times PostgreSQL", 0.0, "", 0.0).ratio(ours / theirs)
            };
            self.tell(figure.due_if(self.is_judged, Due::RatioAtLeast(due)));
        }
        Ok(())
    }

    /// So many runs of the case's script were acknowledged.
    fn note_added(&mut self, system: &'static str, case: &Case, transactions: u64) {
        if case.script == Script::Update {
            *self.added.entry(system).or_default() += transactions * case.pipeline as u64;
        }
    }

    fn figure(&self, case: &Case, system: &System, asked: &Asked) -> Figure {
        let unit = if case.script == Script::TpcB { "transactions" } else { "statements" };
        let amount = asked.transactions as f64 * case.statements_each();
        Figure {
            workload: "pgbench",
            adapter: system.name(),
            sessions: case.clients,
            rate_per_s: asked.rate_per_s * case.statements_each(),
            note: format!(
                "mean {:.2} ms; server {:.1} us of processor each",
                asked.latency_ms,
                asked.cpu_seconds * 1e6 / amount.max(1.0)
            ),
            ..Figure::new(case.name, unit, amount, unit, self.args.seconds as f64 * asked.rounds)
        }
    }

    fn compared(&self, mut figure: Figure, case: &Case, rates: &BTreeMap<&'static str, f64>) -> Figure {
        if let Some(theirs) = rates.get("postgres") {
            figure.peers = BTreeMap::from([("postgres", figure.rate_per_s / theirs)]);
        }
        let Some(&limit) = rates.get("responder") else { return figure };
        match case.of_responder {
            Some(due) => figure.limit(limit).due_if(self.is_judged, Due::RatioAtLeast(due)),
            None => figure.limit(limit),
        }
    }

    fn tell(&mut self, figure: Figure) {
        let line = figure::rates_table(std::slice::from_ref(&figure)).pop().unwrap_or_default();
        say(&format!("  {line}"));
        self.figures.push(figure);
    }

    /// The accounts hold what was acknowledged: the updates of one, and what the history says. What was under way when pgbench stopped
    /// was answered too: it waits for it.
    fn check(&self, system: &System) -> Result<(), BenchError> {
        if matches!(system, System::Responder(_)) {
            return Ok(());
        }
        let number = |sql| system.number(sql);
        let accounts = number("SELECT sum(abalance)::bigint FROM pgbench_accounts")?;
        let history = number("SELECT coalesce(sum(delta), 0)::bigint FROM pgbench_history")?;
        let tellers = number("SELECT sum(tbalance)::bigint FROM pgbench_tellers")?;
        let branches = number("SELECT sum(bbalance)::bigint FROM pgbench_branches")?;
        let added = self.added.get(system.name()).copied().unwrap_or_default() as i64;
        if accounts == history + added && tellers == history && branches == history {
            return Ok(());
        }
        Err(BenchError::WrongData(format!(
            "{}: accounts hold {accounts}, tellers {tellers}, branches {branches}; the history says {history}, and {added} were added",
            system.name()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_pgbenchs_own_language() {
        let text = CASES.iter().find(|case| case.name == "select-pipelined").expect("it is a case").text();
        assert!(text.starts_with("\\startpipeline\n\\set aid0 random") && text.ends_with("\\endpipeline\n"), "{text}");
        assert_eq!(text.matches("SELECT").count(), PIPELINE);
    }

    #[test]
    fn an_unknown_case_names_those_there_are() {
        let error = chosen(&["selekt".to_owned()]).err().expect("refused").to_string();
        assert!(error.contains("tpcb-64"), "{error}");
    }
}
