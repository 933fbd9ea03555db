//! What does one long query cost those who ask for single rows meanwhile, or change them? The same clients at a moderate rate, in turns alone and beside
//! a query that runs all the time; what counts is the response that one in a hundred exceeds.

use super::{Bench, Case};
use crate::adapter::freshet_wire::Wire;
use crate::adapter::wire::{Address, ask_in_turn};
use crate::error::{BenchError, on};
use crate::figure::{Due, Figure};
use crate::progress::during;
use std::path::Path;

/// Each way is asked so many times.
const ROUNDS: usize = 3;
const WAYS: [&str; 2] = ["alone", "beside"];
/// Statements a second of all clients together: what keeps no core busy.
const RATE_PER_S: u64 = 1_000;
const P99_DUE: f64 = 2.0;

/// Looks at all pairs of accounts, and finds none that it wants.
const LONG_QUERY: &str =
    "SELECT count(*) FROM pgbench_accounts a CROSS JOIN pgbench_accounts b WHERE a.abalance + b.aid < -2000000000";

impl Bench<'_> {
    pub(super) fn measure_beside(&mut self, case: &Case, wire: &Wire) -> Result<(), BenchError> {
        let script = self.write_script(case)?;
        let mut responses_us: [Vec<u64>; 2] = Default::default();
        for _ in 0..ROUNDS {
            for (way, responses) in WAYS.into_iter().zip(&mut responses_us) {
                let what = format!("freshet-wire: {} {way}", case.name);
                let asked = during(&what, 0, |_| match way {
                    "alone" => self.responses_us(wire.address(), case, &script),
                    _ => self.while_it_runs(wire.address(), || self.responses_us(wire.address(), case, &script)),
                });
                responses.extend(asked?);
            }
        }
        // What pgbench tells of was answered.
        self.note_added("freshet-wire", case, responses_us.iter().map(|responses| responses.len() as u64).sum());
        let seconds = self.args.seconds as f64 * ROUNDS as f64;
        let mut p99_us = [0.0; 2];
        for ((way, responses), p99_us) in WAYS.into_iter().zip(&mut responses_us).zip(&mut p99_us) {
            responses.sort_unstable();
            let (p50, p99) = (share_of(responses, 0.5), share_of(responses, 0.99));
            *p99_us = p99;
            let count = responses.len() as f64;
            let what = format!("statements, {way}");
            self.tell(Figure {
                workload: "pgbench",
                adapter: "freshet-wire",
                sessions: case.clients,
                rate_per_s: count / seconds,
                p50_us: Some(p50),
                p99_us: Some(p99),
                note: format!("99 of 100 within {p99:.0} us, half of them within {p50:.0} us"),
                ..Figure::new(case.name, &what, count, "statements", seconds)
            });
        }
        let figure = Figure {
            workload: "pgbench",
            adapter: "freshet-wire",
            sessions: case.clients,
            ..Figure::new(case.name, "p99 beside a long query, to alone", 0.0, "", 0.0)
                .ratio(p99_us[1] / p99_us[0].max(1.0))
        };
        self.tell(figure.due_if(self.is_judged, Due::RatioAtMost(P99_DUE)));
        Ok(())
    }

    /// What pgbench's log says of each statement: from when it was sent until it was answered.
    fn responses_us(&self, address: Address, case: &Case, script: &Path) -> Result<Vec<u64>, BenchError> {
        let logs = self.scratch.path().join("beside-logs");
        std::fs::create_dir_all(&logs).map_err(on(&logs))?;
        let (clients, seconds, scale, rate) = (
            case.clients.to_string(),
            self.args.seconds.to_string(),
            self.args.scale.to_string(),
            RATE_PER_S.to_string(),
        );
        let (script, prefix) = (script.display().to_string(), logs.join("log").display().to_string());
        let words = ["-n", "-M", case.mode, "-f", &script, "-s", &scale, "-c", &clients, "-T", &seconds, "-R", &rate];
        self.ask("freshet-wire", address, &[&words[..], &["-l", "--log-prefix", &prefix]].concat())?;
        let mut responses = Vec::new();
        for file in std::fs::read_dir(&logs).map_err(on(&logs))? {
            let file = file.map_err(on(&logs))?.path();
            let text = std::fs::read_to_string(&file).map_err(on(&file))?;
            let told = text.lines().map(response_us).collect::<Option<Vec<u64>>>();
            responses.extend(told.ok_or_else(|| BenchError::Engine("pgbench's log is not understood".to_owned()))?);
        }
        std::fs::remove_dir_all(&logs).map_err(on(&logs))?;
        Ok(responses)
    }

    /// Beside the long query, which outlives it.
    fn while_it_runs<T>(
        &self,
        address: Address,
        work: impl FnOnce() -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let limit_ms = self.args.seconds * 1_000 + 5_000;
        let statements = [format!("SET statement_timeout = {limit_ms}"), LONG_QUERY.to_owned()];
        std::thread::scope(|scope| {
            let long = scope.spawn(|| ask_in_turn(address, &statements).is_err());
            let worked = work();
            let is_over = long.is_finished();
            // It ends by its time limit.
            match long.join() {
                Ok(true) if !is_over => worked,
                _ => Err(BenchError::Engine("the long query did not run all the time".to_owned())),
            }
        })
    }
}

/// Of a line of the log: client, number, microseconds from when it was due, script, second, microsecond, microseconds that it began late.
fn response_us(line: &str) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    number(2)?.checked_sub(number(6)?)
}

fn share_of(sorted: &[u64], share: f64) -> f64 {
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, |&us| us as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_the_time_from_sending_to_the_answer() {
        assert_eq!(response_us("3 17 4830 0 1412881037 912698 30"), Some(4800));
        assert_eq!(response_us("3 17 skipped 0 1412881037 912698 30"), None);
        assert_eq!(response_us("3 17 4830 0 1412881037 912698"), None, "without a rate");
    }

    #[test]
    fn one_in_a_hundred_takes_longer() {
        let sorted: Vec<u64> = (1..=1000).collect();
        assert_eq!((share_of(&sorted, 0.5), share_of(&sorted, 0.99), share_of(&[], 0.99)), (501.0, 991.0, 0.0));
    }
}
