//! `freshet-sim`: schedules by seed.

use clap::Parser;
use freshet_sim::plan::Plan;
use freshet_sim::schedule::{Outcome, Tally, run, run_acts};
use freshet_sim::shrink::shrink;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Runs the real engine in a simulated world, one schedule per seed.
#[derive(Parser)]
#[command(name = "freshet-sim", version)]
struct Arguments {
    /// One seed: says what happens, and shrinks what fails.
    #[arg(long, conflicts_with_all = ["seeds", "forever"])]
    seed: Option<u64>,
    /// So many seeds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Until something is found.
    #[arg(long)]
    forever: bool,
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// With a planted bug.
    #[cfg(feature = "planted")]
    #[arg(long, value_parser = bug)]
    plant: Option<freshet_engine::planted::Bug>,
    /// Measures how many seeds each planted bug takes.
    #[cfg(feature = "planted")]
    #[arg(long)]
    hunt: bool,
    /// Does not shrink.
    #[arg(long)]
    whole: bool,
}

#[cfg(feature = "planted")]
fn bug(name: &str) -> Result<freshet_engine::planted::Bug, String> {
    use freshet_engine::planted::Bug;
    let known = || Bug::ALL.iter().map(|b| b.name()).collect::<Vec<_>>().join(", ");
    Bug::named(name).ok_or_else(|| format!("one of {}", known()))
}

impl Arguments {
    /// On every thread that runs schedules.
    fn plant(&self) {
        #[cfg(feature = "planted")]
        freshet_engine::planted::plant(self.plant);
    }

    fn replays_with(&self, seed: u64) -> String {
        let line = format!("freshet-sim --seed {seed}");
        #[cfg(feature = "planted")]
        if let Some(bug) = self.plant {
            return format!("{line} --plant {}", bug.name());
        }
        line
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    #[cfg(feature = "planted")]
    if arguments.hunt {
        return hunt(&arguments);
    }
    match arguments.seed {
        Some(seed) => one(&arguments, seed),
        None => many(&arguments),
    }
}

fn one(arguments: &Arguments, seed: u64) -> ExitCode {
    arguments.plant();
    let plan = Plan::of(seed);
    let outcome = run(&plan);
    let acts = match outcome.wrong {
        Some(_) if !arguments.whole => shrink(&plan),
        _ => plan.acts.clone(),
    };
    let Outcome { tally, wrong, history } = run_acts(&plan, &acts, true);
    history.iter().for_each(|line| println!("{line}"));
    println!("{tally:?}");
    match wrong {
        None => {
            println!("seed {seed}: nothing found");
            ExitCode::SUCCESS
        }
        Some(what) => {
            println!("seed {seed}, {} of {} acts: {what}", acts.len(), plan.acts.len());
            println!("{}", arguments.replays_with(seed));
            ExitCode::FAILURE
        }
    }
}

/// What several threads share.
struct Progress {
    next: AtomicU64,
    end: u64,
    found: AtomicBool,
    sum: Mutex<Tally>,
    started: Instant,
}

fn many(arguments: &Arguments) -> ExitCode {
    let end = if arguments.forever { u64::MAX } else { arguments.from.saturating_add(arguments.seeds) };
    let progress = Progress {
        next: AtomicU64::new(arguments.from),
        end,
        found: AtomicBool::new(false),
        sum: Mutex::default(),
        started: Instant::now(),
    };
    let current: Vec<Current> = (0..arguments.threads.max(1)).map(|_| Current::default()).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = current.iter().map(|c| scope.spawn(|| work(arguments, &progress, c))).collect();
        let watcher = scope.spawn(|| watch(arguments, &current, &is_over));
        workers.into_iter().for_each(|worker| worker.join().expect("panics of a schedule are results"));
        is_over.store(true, Ordering::SeqCst);
        watcher.thread().unpark();
    });
    let count = progress.next.load(Ordering::SeqCst).min(end) - arguments.from;
    let rate = count as f64 / progress.started.elapsed().as_secs_f64();
    println!("{:?}", progress.sum.lock().expect("no thread panicked with it"));
    println!("{count} schedules, {rate:.0} a second on {} threads", arguments.threads.max(1));
    if progress.found.load(Ordering::SeqCst) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// A schedule that takes so long hangs, and cannot be stopped from outside its thread.
const HANGS_AFTER: Duration = Duration::from_secs(120);

/// The seed that a thread runs, and since when.
type Current = Mutex<Option<(u64, Instant)>>;

/// Ends the process when a schedule hangs.
fn watch(arguments: &Arguments, current: &[Current], is_over: &AtomicBool) {
    while !is_over.load(Ordering::SeqCst) {
        std::thread::park_timeout(Duration::from_secs(1));
        for running in current {
            let running = *running.lock().expect("no thread panicked with it");
            if let Some((seed, _)) = running.filter(|(_, since)| since.elapsed() > HANGS_AFTER) {
                println!("seed {seed}: hangs\n  {}", arguments.replays_with(seed));
                std::process::exit(3);
            }
        }
    }
}

fn work(arguments: &Arguments, progress: &Progress, current: &Current) {
    arguments.plant();
    let mut said = Instant::now();
    let mut tally = Tally::default();
    loop {
        let seed = progress.next.fetch_add(1, Ordering::SeqCst);
        if seed >= progress.end || arguments.forever && progress.found.load(Ordering::SeqCst) {
            break;
        }
        *current.lock().expect("no thread panicked with it") = Some((seed, Instant::now()));
        let outcome = run(&Plan::of(seed));
        tally.add(&outcome.tally);
        if let Some(what) = outcome.wrong {
            progress.found.store(true, Ordering::SeqCst);
            println!("seed {seed}: {what}\n  {}", arguments.replays_with(seed));
        }
        if arguments.forever && said.elapsed() > Duration::from_secs(10) {
            said = Instant::now();
            let count = seed - arguments.from;
            println!("{count} schedules, {:.0} a second", count as f64 / progress.started.elapsed().as_secs_f64());
        }
    }
    *current.lock().expect("no thread panicked with it") = None;
    progress.sum.lock().expect("no thread panicked with it").add(&tally);
}

#[cfg(feature = "planted")]
fn hunt(arguments: &Arguments) -> ExitCode {
    let mut all = true;
    for &bug in freshet_engine::planted::Bug::ALL {
        let started = Instant::now();
        let caught = freshet_sim::hunt::hunt(bug, arguments.from, arguments.seeds);
        let seconds = started.elapsed().as_secs_f64();
        match caught {
            Some((seed, what)) => {
                println!(
                    "{:<26} seed {seed:>6} ({} seeds, {seconds:.1} s): {what}",
                    bug.name(),
                    seed - arguments.from + 1
                );
            }
            None => {
                all = false;
                println!("{:<26} not found in {} seeds, {seconds:.1} s", bug.name(), arguments.seeds);
            }
        }
    }
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
