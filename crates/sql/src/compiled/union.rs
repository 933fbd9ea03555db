//! How are the rows of an OR found? By a path for each of its arms, one arm after the other.
//!
//! 1. A path gives all rows that meet the conditions that it is by, and perhaps others: those are left out, for another arm gives them if it is theirs.
//! 2. A row that meets those of an earlier arm came up there. So each row comes up once, and nothing is remembered of those that did.
//! 3. A row that the OR wants meets those of one arm at least, and comes up. The OR itself is asked in the step's filter.

use super::access::{Access, Choice, Cursor, Knowledge, Rank, StepView, choose_one, next, open};
use super::query::holds;
use super::{Halt, Run};
use crate::compiled::estimate::shares;
use crate::expr::Expr;
use freshet_engine::catalog::Table;
use std::cmp::Reverse;
use std::sync::Arc;

/// One arm of an OR.
#[derive(Clone, Debug)]
pub struct Arm {
    pub access: Access,
    /// What makes a row this arm's: those of its own conditions that its path is by. (Others may not be asked where an OR before them, or a
    /// condition, keeps them from being asked.)
    pub condition: Vec<Expr>,
}

/// Where the loop over a union stands.
pub struct UnionCursor {
    arm: usize,
    cursor: Option<Box<Cursor>>,
}

impl UnionCursor {
    pub fn new() -> UnionCursor {
        UnionCursor { arm: 0, cursor: None }
    }

    pub fn next(&mut self, arms: &[Arm], view: &StepView<'_>, run: &mut Run<'_>) -> Result<bool, Halt> {
        while let Some(arm) = arms.get(self.arm) {
            let view = StepView { access: &arm.access, ..*view };
            let cursor = match &mut self.cursor {
                Some(cursor) => cursor,
                None => self.cursor.insert(Box::new(open(&view, run)?)),
            };
            while next(&view, cursor, run)? {
                if is_of(arms, self.arm, &view, run)? {
                    return Ok(true);
                }
            }
            self.cursor = None;
            self.arm += 1;
        }
        Ok(false)
    }
}

/// Whether the row at hand meets this arm and none before it.
fn is_of(arms: &[Arm], at: usize, view: &StepView<'_>, run: &Run<'_>) -> Result<bool, Halt> {
    let frame = run.frame(view.tables);
    if !holds(&arms[at].condition, &frame)? {
        return Ok(false);
    }
    for arm in &arms[..at] {
        if holds(&arm.condition, &frame)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Arms that are tried: each row may be asked all of them.
const ARMS_MAX: usize = 1024;
/// Of a table's rows: those who want more had better read it whole.
const SHARE_MAX: f64 = 0.25;

/// The union of lookups that answers the condition `conditions[at]`, if that is an OR of which every arm has a path.
pub fn try_union(
    table: &Arc<Table>,
    source: u16,
    conditions: &[Expr],
    at: usize,
    available: &dyn Fn(u16) -> bool,
    known: &Knowledge,
) -> Option<Choice> {
    let Expr::Or(list) = &conditions[at] else { return None };
    let is_answerable = || !conditions[at].is_volatile() && !conditions[at].mentions(|s| s != source && !available(s));
    if list.len() > ARMS_MAX || !is_answerable() {
        return None;
    }
    let plain = |(i, c): &(usize, &Expr)| *i != at && matches!(c, Expr::Compare { .. });
    let others: Vec<&Expr> = conditions.iter().enumerate().filter(plain).map(|(_, c)| c).collect();
    let chosen = list.iter().map(|arm| try_arm(table, source, arm, &others, available, known));
    let (arms, ranks): (Vec<Arm>, Vec<Rank>) = chosen.collect::<Option<Vec<_>>>()?.into_iter().unzip();
    if let Some(known) = known.of(table)
        && shares([&conditions[at]], source, table, Some(&known)) > SHARE_MAX
    {
        return None;
    }
    let least = |of: fn(&Rank) -> usize| ranks.iter().map(of).min().unwrap_or(0);
    let (equalities, bounds) = (least(|rank| rank.equalities), least(|rank| rank.bounds));
    Some(Choice {
        access: Access::Union(arms),
        // What an arm asks besides may be guarded by what stands before it: it is asked in its place.
        answered: Vec::new(),
        keyed: vec![at],
        ordered: false,
        rank: Rank {
            one_row: false,
            equalities,
            bounds,
            // One path that has as much comes before it: it may give an order.
            list: equalities == 0 && bounds == 0,
            ordered: false,
            whole_key: ranks.iter().all(|rank| rank.whole_key),
            spare_columns: Reverse(ranks.iter().map(|rank| rank.spare_columns.0).max().unwrap_or(0)),
        },
    })
}

/// The path to the rows of an arm, if one of its own conditions leads there.
fn try_arm(
    table: &Arc<Table>,
    source: u16,
    arm: &Expr,
    others: &[&Expr],
    available: &dyn Fn(u16) -> bool,
    known: &Knowledge,
) -> Option<(Arm, Rank)> {
    let own = match arm {
        Expr::And(list) => list.clone(),
        one => vec![one.clone()],
    };
    let mut all = own.clone();
    all.extend(others.iter().map(|&other| other.clone()));
    let choice = choose_one(table, source, &all, available, known);
    let condition: Vec<Expr> = choice.keyed.iter().filter_map(|&at| own.get(at).cloned()).collect();
    let Rank { equalities, bounds, list, .. } = choice.rank;
    let is_narrow = equalities > 0 || list || bounds == 2;
    (!condition.is_empty() && is_narrow).then(|| (Arm { access: choice.access, condition }, choice.rank))
}
