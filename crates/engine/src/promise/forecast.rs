//! The sum: what a restart now would take, what dominates it, and what a checkpoint could change.

use super::costs::{Costs, LastRestart};
use super::work::{Work, Workload};
use std::time::Duration;

/// One kind of work of the predicted restart.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Phase {
    pub work: Work,
    pub amount: u64,
    /// Units a second; `None` where nothing is known yet.
    pub rate_per_s: Option<f64>,
    pub seconds: f64,
}

/// Where the promise stands, the better the lower.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// No target is set.
    Off,
    /// Costs are not measured yet.
    Unknown,
    /// The prediction is below the target, and checkpoints keep it there.
    Held,
    /// Images and indexes alone take more than 90 % of the target.
    Near,
    /// The log grows faster than checkpoints replace it: the prediction is above the target.
    Behind,
    /// Images and indexes alone take longer than the target: no checkpoint can help.
    OutOfReach,
}

/// What a restart now would take.
#[derive(Clone, PartialEq, Debug)]
pub struct Forecast {
    pub phases: Vec<Phase>,
    /// What a restart takes whatever it reads.
    pub fixed_seconds: f64,
    /// `None`: some work has no cost yet.
    pub predicted_seconds: Option<f64>,
    /// The same right after a checkpoint.
    pub floor_seconds: Option<f64>,
    pub target: Option<Duration>,
    pub state: State,
    pub last: LastRestart,
}

/// Predicted seconds now, and right after a checkpoint.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Sums {
    pub predicted: f64,
    pub floor: f64,
}

/// Above this share of the target by the floor alone, its coming loss is told.
const NEAR_SHARE: f64 = 0.9;
const START_SHARE: f64 = 0.8;
const LEFT_SHARE: f64 = 0.7;
/// A log that does not grow leaves a checkpoint no more time than this.
const LEFT_SECONDS_MAX: f64 = 600.0;

/// Seconds by kind of work, and their sum with the fixed part; `None` if a kind that there is has no cost yet.
pub(super) fn sum(costs: &Costs, workload: &Workload) -> Option<f64> {
    let one = |work: Work| match workload[work] {
        0 => Some(0.0),
        amount => costs.per_unit(work).map(|cost| cost * amount as f64),
    };
    Work::ALL.into_iter().map(one).sum::<Option<f64>>().map(|seconds| seconds + costs.rest_seconds())
}

pub(super) fn phases(costs: &Costs, workload: &Workload) -> Vec<Phase> {
    let phase = |work: Work| {
        let cost = costs.per_unit(work);
        Phase {
            work,
            amount: workload[work],
            rate_per_s: cost.map(|c| 1.0 / c),
            seconds: cost.unwrap_or(0.0) * workload[work] as f64,
        }
    };
    Work::ALL.into_iter().map(phase).collect()
}

/// Where the target stands towards prediction and floor.
pub(super) fn state(target: Option<f64>, sums: Option<Sums>) -> State {
    match (target, sums) {
        (None, _) => State::Off,
        (_, None) => State::Unknown,
        (Some(target), Some(sums)) if sums.floor >= target => State::OutOfReach,
        (Some(target), Some(sums)) if sums.predicted > target => State::Behind,
        (Some(target), Some(sums)) if sums.floor > NEAR_SHARE * target => State::Near,
        _ => State::Held,
    }
}

/// The prediction at which a checkpoint begins (module invariants 1 and 2); `growth` is in seconds of restart a second.
pub(super) fn start_at(target: f64, floor: f64, growth: f64, checkpoint_seconds: f64) -> Option<f64> {
    let room = target - floor;
    if room <= 0.0 {
        return None;
    }
    let while_it_runs = growth * checkpoint_seconds;
    Some((START_SHARE * target).min(target - while_it_runs).max(floor + room / 2.0))
}

/// Until the prediction passes the target, with a margin: growth is an estimate.
pub(super) fn time_left(target: f64, predicted: f64, growth: f64) -> Duration {
    let seconds = LEFT_SHARE * (target - predicted) / growth.max(f64::MIN_POSITIVE);
    Duration::from_secs_f64(seconds.clamp(0.0, LEFT_SECONDS_MAX))
}

impl Forecast {
    /// The phase that takes longest, if any takes time.
    pub fn dominating(&self) -> Option<Work> {
        let longest = self.phases.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds))?;
        (longest.seconds > self.fixed_seconds).then_some(longest.work)
    }

    /// A line for a log, where there is something to worry about.
    pub fn warning(&self) -> Option<String> {
        let target = self.target?.as_secs_f64();
        let (predicted, floor) = (self.predicted_seconds?, self.floor_seconds?);
        match self.state {
            State::Off | State::Unknown | State::Held => None,
            State::Near => Some(format!(
                "recovery_target of {target} s is nearly out of reach: loading images and rebuilding indexes alone would take {floor:.1} s"
            )),
            State::Behind => Some(format!(
                "recovery_target of {target} s is missed for now: a restart would take {predicted:.1} s, checkpoints do not keep up with the log"
            )),
            State::OutOfReach => Some(format!(
                "recovery_target of {target} s is out of reach: loading images and rebuilding indexes alone would take {floor:.1} s; no checkpoint can help"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::costs::Measured;
    use super::*;

    #[test]
    fn a_sum_needs_a_cost_only_for_work_that_there_is() {
        let measured = Measured { total_seconds: 0.25, threads: 1, ..Measured::default() };
        let mut costs = Costs::default().after(&measured);
        costs.calibrate(Work::Deltas, 1e6, 0.5);
        let mut workload = Workload::default();
        assert_eq!(sum(&costs, &workload), Some(0.25));
        workload[Work::Deltas] = 2_000_000;
        assert!((sum(&costs, &workload).expect("calibrated") - 1.25).abs() < 1e-9);
        workload[Work::Images] = 1;
        assert_eq!(sum(&costs, &workload), None);
    }

    #[test]
    fn checkpoints_begin_late_enough_to_be_worth_it_and_early_enough_to_end_in_time() {
        assert_eq!(start_at(10.0, 2.0, 0.0, 5.0), Some(8.0));
        // The log grows by half a second a second for five seconds.
        assert_eq!(start_at(10.0, 2.0, 0.5, 5.0), Some(7.5));
        // However fast it grows, half of the room is used.
        assert_eq!(start_at(10.0, 2.0, 5.0, 5.0), Some(6.0));
        assert_eq!(start_at(10.0, 9.0, 0.0, 5.0), Some(9.5));
        assert_eq!(start_at(10.0, 10.0, 0.0, 5.0), None);
    }

    #[test]
    fn a_checkpoint_has_the_time_until_the_target_would_be_passed() {
        assert_eq!(time_left(10.0, 8.0, 0.5), Duration::from_secs_f64(2.8));
        assert_eq!(time_left(10.0, 11.0, 0.5), Duration::ZERO);
        assert_eq!(time_left(10.0, 8.0, 0.0), Duration::from_secs_f64(LEFT_SECONDS_MAX));
    }

    #[test]
    fn states_follow_floor_and_prediction() {
        let target = Some(10.0);
        let sums = |predicted: f64, floor: f64| Some(Sums { predicted, floor });
        assert_eq!(state(None, sums(1.0, 1.0)), State::Off);
        assert_eq!(state(target, None), State::Unknown);
        assert_eq!(state(target, sums(5.0, 2.0)), State::Held);
        assert_eq!(state(target, sums(9.8, 9.5)), State::Near);
        assert_eq!(state(target, sums(11.0, 2.0)), State::Behind);
        assert_eq!(state(target, sums(11.0, 10.5)), State::OutOfReach);
    }
}
