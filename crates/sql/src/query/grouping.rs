//! Which sets of keys do ROLLUP, CUBE and GROUPING SETS ask for?

use super::plan::refuse;
use crate::bind::Bind;
use crate::parse::{is_none, is_sets};
use sqlparser::ast::Expr;

/// PostgreSQL's limit on the sets of one GROUP BY.
const SETS_MAX: usize = 4096;
/// Keys of all sets together: each is a copy.
const KEYS_MAX: usize = 1 << 17;

/// Whether an entry of GROUP BY is more than a key.
pub fn is_set(expr: &Expr) -> bool {
    match expr {
        Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_) => true,
        Expr::Tuple(items) => items.is_empty(),
        _ => false,
    }
}

/// The sets of a whole GROUP BY: of each entry one, in every combination.
pub fn expanded(list: &[Expr]) -> Bind<Vec<Vec<Expr>>> {
    let mut all: Vec<Vec<Expr>> = vec![Vec::new()];
    for entry in list {
        let own = sets_of(entry)?;
        let keys = |sets: &[Vec<Expr>]| sets.iter().map(Vec::len).sum::<usize>();
        check(all.len() * own.len(), keys(&all) * own.len() + keys(&own) * all.len())?;
        let combined = all.iter().flat_map(|before| own.iter().map(move |set| [before.as_slice(), set].concat()));
        all = combined.collect();
    }
    Ok(all)
}

fn check(sets: usize, keys: usize) -> Bind<()> {
    if sets > SETS_MAX {
        return refuse(format!("more than {SETS_MAX} grouping sets"));
    }
    if keys > KEYS_MAX {
        return refuse(format!("grouping sets of more than {KEYS_MAX} keys together"));
    }
    Ok(())
}

fn sets_of(entry: &Expr) -> Bind<Vec<Vec<Expr>>> {
    Ok(match entry {
        Expr::Rollup(groups) => {
            let keys: usize = groups.iter().map(Vec::len).sum();
            check(groups.len() + 1, keys.saturating_mul(groups.len() + 1) / 2)?;
            (0..=groups.len()).rev().map(|count| groups[..count].concat()).collect()
        }
        Expr::Cube(groups) => {
            let keys: usize = groups.iter().map(Vec::len).sum();
            let sets = 1usize << groups.len().min(16);
            check(sets, keys.saturating_mul(sets) / 2)?;
            let chosen = |bits: usize| {
                let kept = groups.iter().enumerate().filter(|(i, _)| bits >> (groups.len() - 1 - i) & 1 == 1);
                kept.flat_map(|(_, group)| group.clone()).collect()
            };
            (0..1usize << groups.len()).rev().map(chosen).collect()
        }
        Expr::GroupingSets(sets) => {
            let mut all = Vec::new();
            for set in sets {
                match set.as_slice() {
                    [one] => all.extend(sets_of(one)?),
                    several => all.push(several.to_vec()),
                }
                check(all.len(), 0)?;
            }
            all
        }
        Expr::Tuple(items) => vec![items.clone()],
        key => match within_sets(key) {
            Some(entry) => sets_of(&entry)?,
            None => vec![vec![key.clone()]],
        },
    })
}

/// ROLLUP, CUBE and GROUPING SETS within GROUPING SETS, which the grammar takes for calls.
fn within_sets(key: &Expr) -> Option<Expr> {
    if is_none(key) {
        return Some(Expr::Tuple(Vec::new()));
    }
    let Expr::Function(function) = key else { return None };
    if is_sets(&function.name) {
        let args = crate::bind::expr::plain_args(&function.args)?;
        return Some(Expr::GroupingSets(args.into_iter().map(|arg| vec![arg.clone()]).collect()));
    }
    let name = function.name.to_string().to_lowercase();
    let is_entry = matches!(name.as_str(), "rollup" | "cube");
    let args = crate::bind::expr::plain_args(&function.args).filter(|_| is_entry)?;
    let group = |arg: &Expr| match arg {
        Expr::Tuple(items) => items.clone(),
        other => vec![other.clone()],
    };
    let groups = args.into_iter().map(group).collect();
    Some(if name == "cube" { Expr::Cube(groups) } else { Expr::Rollup(groups) })
}
