//! Where does chance come from? One seed, and a seed of its own for everything that happens.

pub use freshet_engine::io::mem::Dice;

/// Questions to dice.
pub trait Chance {
    fn one_in(&mut self, count: u64) -> bool;

    /// The position of a weight, chosen in proportion to it.
    fn weighted(&mut self, weights: &[u32]) -> usize;
}

impl Chance for Dice {
    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn weighted(&mut self, weights: &[u32]) -> usize {
        let sum: u64 = weights.iter().map(|w| u64::from(*w)).sum();
        let mut left = self.below(sum.max(1));
        for (at, weight) in weights.iter().enumerate() {
            match left.checked_sub(u64::from(*weight)) {
                Some(rest) => left = rest,
                None => return at,
            }
        }
        0
    }
}
