//! What passes through the loops of a run that EXPLAIN ANALYZE measures?
//!
//! A run that nobody measures pays one look for each loop that it opens: the measured loops are other code.

use super::access;
use super::query::{Query, holds, nulls};
use super::{Flow, Halt, Run};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What was measured, by query.
#[derive(Default)]
pub struct Watch(HashMap<usize, Vec<StepWatch>>);

/// Of one loop.
#[derive(Clone, Copy, Default, Debug)]
pub struct StepWatch {
    pub loops: u64,
    /// That met the conditions, and that did not.
    pub rows: u64,
    pub removed: u64,
    /// Until the first row of the first loop, and in all; without what the loops within it took.
    pub startup: Duration,
    pub total: Duration,
}

impl Watch {
    /// What was measured of a query's loop; `None`: it was never opened.
    pub fn step(&self, query: &Query, depth: usize) -> Option<StepWatch> {
        self.0.get(&name(query))?.get(depth).copied()
    }
}

/// A query is told from others by where it lies: no program moves while it runs.
fn name(query: &Query) -> usize {
    std::ptr::from_ref(query) as usize
}

fn note(query: &Query, depth: usize, run: &mut Run<'_>, f: impl FnOnce(&mut StepWatch)) {
    if let Some(watch) = &mut run.scratch.watch {
        let steps = watch.0.entry(name(query)).or_insert_with(|| vec![StepWatch::default(); query.steps.len()]);
        f(&mut steps[depth]);
    }
}

/// `query::descend` for a run that is measured.
pub fn descend(
    query: &Query,
    depth: usize,
    run: &mut Run<'_>,
    each: &mut impl FnMut(&mut Run<'_>) -> Result<Flow, Halt>,
) -> Result<Flow, Halt> {
    let Some(step) = query.steps.get(depth) else {
        return each(run);
    };
    let view = query.view(depth);
    let started = Instant::now();
    let mut cursor = access::open(&view, run)?;
    note(query, depth, run, |step| {
        step.loops += 1;
        step.total += started.elapsed();
    });
    let mut matched = false;
    loop {
        let started = Instant::now();
        let is_there = access::next(&view, &mut cursor, run)?;
        let mut passes = is_there;
        if is_there {
            if let Some(on) = &step.outer {
                passes = holds(on, &run.frame(&query.tables))?;
                matched |= passes;
            }
            passes = passes && holds(&step.filter, &run.frame(&query.tables))?;
        }
        note(query, depth, run, |step| {
            step.total += started.elapsed();
            step.rows += u64::from(passes);
            step.removed += u64::from(is_there && !passes);
            if passes && step.startup == Duration::ZERO {
                step.startup = step.total;
            }
        });
        if !is_there {
            break;
        }
        if passes && descend(query, depth + 1, run, each)? == Flow::Stop {
            return Ok(Flow::Stop);
        }
    }
    if step.outer.is_some() && !matched {
        nulls(query, step.source, run);
        if holds(&step.filter, &run.frame(&query.tables))? {
            note(query, depth, run, |step| step.rows += 1);
            return descend(query, depth + 1, run, each);
        }
    }
    Ok(Flow::Continue)
}
