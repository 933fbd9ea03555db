//! What does `freshet ship` save the server, and what does it cost a lone request? The same clients with connections of their own, over TCP as
//! from another host, and behind a multiplexer of theirs, by its socket file, in turns, asked of one server.

use super::{Asked, Bench, Case, Script};
use crate::adapter::freshet_wire::Wire;
use crate::adapter::shipped::Shipped;
use crate::adapter::wire::{Address, ask};
use crate::error::BenchError;
use crate::figure::{Due, Figure};
use crate::progress::during;

/// Each way is asked so many times.
const ROUNDS: usize = 2;
const ADAPTERS: [&str; 2] = ["freshet-wire", "freshet-ship"];
/// Statements per second of the server's processor time, in multiples of direct connections'.
const SAVED_DUE: f64 = 2.0;
/// What a lone request may take longer.
const LONE_US_DUE: f64 = 50.0;

impl Bench<'_> {
    pub(super) fn measure_shipped(&mut self, case: &Case, wire: &Wire) -> Result<(), BenchError> {
        let script = self.write_script(case)?;
        let shipped = Shipped::start(self.scratch.path(), wire.address())?;
        let ways = [Address { socket: None, ..wire.address() }, shipped.address()];
        let mut rounds: [Vec<Asked>; 2] = Default::default();
        let before = shipped.server().cpu_seconds();
        for _ in 0..ROUNDS {
            for ((name, at), rounds) in ADAPTERS.into_iter().zip(ways).zip(&mut rounds) {
                let what = format!("{name}: {}", case.name);
                // Whoever accepts them, one server answers.
                rounds.push(during(&what, 0, |_| self.run_script((name, at, wire.server()), case, &script))?);
            }
        }
        let ship_cpu_seconds = shipped.server().cpu_seconds() - before;
        let sums = rounds.each_ref().map(|rounds| Asked::of_rounds(rounds));
        self.note_added(ADAPTERS[0], case, sums.iter().map(|sum| sum.transactions).sum());
        if case.script == Script::Update {
            ask(wire.address(), "CHECKPOINT")?;
        }
        for (adapter, sum) in ADAPTERS.into_iter().zip(&sums) {
            let mut note =
                format!("mean {:.3} ms; server {:.1} us of processor each", sum.latency_ms, sum.cpu_us_each());
            if adapter == ADAPTERS[1] {
                let each = ship_cpu_seconds * 1e6 / sum.transactions.max(1) as f64;
                note.push_str(&format!(", ship {each:.1}"));
            }
            let seconds = self.args.seconds as f64 * sum.rounds;
            self.tell(Figure {
                workload: "pgbench",
                adapter,
                sessions: case.clients,
                rate_per_s: sum.rate_per_s,
                note,
                ..Figure::new(case.name, "statements", sum.transactions as f64, "statements", seconds)
            });
        }
        let [direct, shipped] = sums;
        let (figure, ratio, due) = match case.clients {
            1 => {
                let more_us = (shipped.latency_ms - direct.latency_ms) * 1e3;
                ("longer, of 50 us", more_us / LONE_US_DUE, Some(Due::RatioAtMost(1.0)))
            }
            _ => {
                let due = (case.script == Script::Select).then_some(Due::RatioAtLeast(SAVED_DUE));
                ("statements per server CPU second", direct.cpu_us_each() / shipped.cpu_us_each(), due)
            }
        };
        let compared = Figure {
            workload: "pgbench",
            adapter: ADAPTERS[1],
            sessions: case.clients,
            ..Figure::new(case.name, figure, 0.0, "", 0.0).ratio(ratio)
        };
        self.tell(match due {
            Some(due) => compared.due_if(self.is_judged, due),
            None => compared,
        });
        Ok(())
    }
}
