//! `freshet_restart` and EXPLAIN RESTART: how long would a restart take now, and why? A row per phase, then what they come to.

use super::{About, Cells, SystemView, number, text};
use crate::error::SqlError;
use crate::value::Datum;
use freshet_engine::promise::{Forecast, Phase, State};
use freshet_engine::schema::Type;

pub struct RestartView;

impl SystemView for RestartView {
    fn name(&self) -> &'static str {
        "freshet_restart"
    }

    fn columns(&self) -> &'static [(&'static str, Type)] {
        &[
            ("phase", Type::Text),
            ("amount", Type::Int8),
            ("unit", Type::Text),
            ("rate_per_s", Type::Float8),
            ("seconds", Type::Float8),
            ("note", Type::Text),
        ]
    }

    fn rows(&self, about: &About<'_>) -> Result<Vec<Cells>, SqlError> {
        let forecast = about.engine.restart_forecast();
        let mut rows: Vec<Cells> = forecast.phases.iter().map(|phase| phase_row(&forecast, phase)).collect();
        let longest = |dominates: bool| if dominates { "dominates" } else { "" };
        rows.push(sum("fixed", Some(forecast.fixed_seconds), longest(forecast.dominating().is_none())));
        rows.push(sum("predicted total", forecast.predicted_seconds, state_note(forecast.state)));
        rows.push(sum("right after a checkpoint", forecast.floor_seconds, ""));
        let target = forecast.target.map(|target| target.as_secs_f64());
        rows.push(sum("target", target, if target.is_none() { "off" } else { "" }));
        let foretold = match forecast.last.predicted_seconds {
            Some(seconds) => format!("predicted {seconds:.3} s"),
            None => "not predicted".to_owned(),
        };
        rows.push(sum("last restart", Some(forecast.last.seconds), &foretold));
        Ok(rows)
    }
}

fn phase_row(forecast: &Forecast, phase: &Phase) -> Cells {
    let note = match phase.rate_per_s {
        None => "not measured yet",
        Some(_) if forecast.dominating() == Some(phase.work) => "dominates",
        Some(_) => "",
    };
    vec![
        text(phase.work.name()),
        number(phase.amount),
        text(phase.work.unit()),
        float(phase.rate_per_s.map(f64::round)),
        float(phase.rate_per_s.map(|_| rounded(phase.seconds))),
        text(note),
    ]
}

fn sum(name: &str, seconds: Option<f64>, note: &str) -> Cells {
    vec![text(name), Datum::Null, Datum::Null, Datum::Null, float(seconds.map(rounded)), text(note)]
}

fn state_note(state: State) -> &'static str {
    match state {
        State::Off => "no target",
        State::Unknown => "not measured yet",
        State::Held => "within the target",
        State::Near => "images and indexes alone come near the target",
        State::Behind => "above the target: checkpoints do not keep up",
        State::OutOfReach => "out of reach: images and indexes alone take longer",
    }
}

fn float(value: Option<f64>) -> Datum {
    value.map_or(Datum::Null, Datum::Float)
}

/// To microseconds: more digits say nothing.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}
