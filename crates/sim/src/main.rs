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
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| work(arguments, &progress));
        }
    });
    let count = progress.next.load(Ordering::SeqCst).min(end) - arguments.from;
    let rate = count as f64 / progress.started.elapsed().as_secs_f64();
    println!("{:?}", progress.sum.lock().expect("no thread panicked with it"));
    println!("{count} schedules, {rate:.0} a second on {} threads", arguments.threads.max(1));
    if progress.found.load(Ordering::SeqCst) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn work(arguments: &Arguments, progress: &Progress) {
    arguments.plant();
    let mut said = Instant::now();
    let mut tally = Tally::default();
    loop {
        let seed = progress.next.fetch_add(1, Ordering::SeqCst);
        if seed >= progress.end || arguments.forever && progress.found.load(Ordering::SeqCst) {
            break;
        }
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
