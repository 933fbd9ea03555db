//! What do a thousand sessions cost? They and 64 of the same, in turns, asked of our server and of one that does nothing: what the machine itself
//! loses by so many clients is no fault of ours, and what a shared machine loses from one minute to the next is nobody's.

use super::{Asked, Bench, CLIENTS_MOST, Case, Script};
use crate::adapter::wire::ask;
use crate::error::BenchError;
use crate::figure::{Due, Figure};
use crate::progress::during;
use crate::served::System;

/// Each number of sessions is asked so many times.
const ROUNDS: usize = 3;
const FEW: usize = 64;
/// A thousand against 64, divided by the responder's own ratio.
const RATIO_DUE: f64 = 0.9;

impl Bench<'_> {
    pub(super) fn measure_many(&mut self, case: &Case, systems: &[System]) -> Result<(), BenchError> {
        let script = self.write_script(case)?;
        let few = Case { clients: FEW, ..*case };
        let systems =
            [of(systems, |s| matches!(s, System::Responder(_))), of(systems, |s| matches!(s, System::Freshet(_)))];
        let mut rounds: [[Vec<Asked>; 2]; 2] = Default::default();
        for _ in 0..ROUNDS {
            for (system, rounds) in systems.into_iter().zip(&mut rounds) {
                for (case, rounds) in [&few, case].into_iter().zip(rounds) {
                    let what = format!("{}: {} of {}", system.name(), case.name, case.clients);
                    let of = (system.name(), system.address(), system.server());
                    let ask_it = || during(&what, 0, |_| self.run_script(of, case, &script));
                    rounds.push(system.while_asked(ask_it)?);
                }
                if matches!(system, System::Freshet(_)) && case.script != Script::Select {
                    system.while_asked(|| ask(system.address(), "CHECKPOINT"))?;
                }
            }
        }
        let mut ratios = [None; 2];
        for ((system, rounds), ratio) in systems.into_iter().zip(&rounds).zip(&mut ratios) {
            let sums = rounds.each_ref().map(|rounds| Asked::of_rounds(rounds));
            for (case, sum) in [&few, case].into_iter().zip(&sums) {
                let figure = self.figure(case, system, sum);
                self.tell(figure);
            }
            self.note_added(system.name(), case, sums.iter().map(|sum| sum.transactions).sum());
            let [few, many] = sums.map(|sum| sum.rate_per_s);
            *ratio = (few > 0.0 && many > 0.0).then(|| many / few);
        }
        // A thousand may take all of a short run to come.
        let [Some(limit), Some(ours)] = ratios else { return Ok(()) };
        let figure = Figure {
            workload: "pgbench",
            adapter: "freshet-wire",
            sessions: CLIENTS_MOST,
            note: format!("1,000 sessions to 64: {ours:.2} here, {limit:.2} of the responder"),
            ..Figure::new(case.name, "of 64 sessions", 0.0, "", 0.0).ratio(ours / limit)
        };
        self.tell(figure.due_if(self.is_judged, Due::RatioAtLeast(RATIO_DUE)));
        Ok(())
    }
}

fn of(systems: &[System], is: fn(&System) -> bool) -> &System {
    systems.iter().find(|system| is(system)).expect("invariant: all systems run")
}
