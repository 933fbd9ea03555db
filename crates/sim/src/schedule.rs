//! How does one seed run, and what was wrong? A run ends well, or with what was found; a panic of the engine is found too.

use crate::look::Wrong;
use crate::plan::{Act, Plan};
use crate::world::World;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

pub use crate::world::Tally;

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub tally: Tally,
    /// What may not be, in one line.
    pub wrong: Option<String>,
    /// What happened, if it was asked for.
    pub history: Vec<String>,
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static IS_RUNNING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Panics of a run are results, not output.
fn keep_panics_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_RUNNING.get() {
                return before(info);
            }
            let what = info.payload().downcast_ref::<&str>().map(|s| (*s).to_string());
            let what = what.or_else(|| info.payload().downcast_ref::<String>().cloned()).unwrap_or_default();
            let place = info.location().map(|l| format!(" ({}:{})", l.file(), l.line())).unwrap_or_default();
            PANIC.with_borrow_mut(|panic| {
                panic.get_or_insert(format!("panic: {what}{place}"));
            });
        }));
    });
}

/// Runs the plan's acts.
pub fn run(plan: &Plan) -> Outcome {
    run_acts(plan, &plan.acts, false)
}

/// Runs these acts of the plan.
pub fn run_acts(plan: &Plan, acts: &[Act], with_history: bool) -> Outcome {
    keep_panics_quiet();
    PANIC.set(None);
    IS_RUNNING.set(true);
    let mut world = World::new(plan, with_history);
    let ended = catch_unwind(AssertUnwindSafe(|| world.run(acts)));
    let history = world.history();
    let tally = world.tally;
    let closed = catch_unwind(AssertUnwindSafe(|| close(world)));
    IS_RUNNING.set(false);
    let panicked = || Some(PANIC.take().unwrap_or_else(|| "a panic".into()));
    let wrong = match (ended, closed) {
        (Ok(Ok(())), Ok(())) => None,
        (Ok(Err(Wrong(what))), _) => Some(what),
        (Err(_), _) | (_, Err(_)) => panicked(),
    };
    Outcome { tally, wrong, history }
}

/// Sessions one by one: where an invariant is broken, a rollback may panic too, and two at once would end the process.
fn close(mut world: World) {
    let mut failed = None;
    while let Some(client) = world.clients.pop() {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(client))) {
            failed.get_or_insert(panic);
        }
    }
    drop(world);
    if let Some(panic) = failed {
        std::panic::resume_unwind(panic);
    }
}
