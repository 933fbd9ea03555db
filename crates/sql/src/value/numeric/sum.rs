//! Sums over many rows: one checked 128-bit addition each as long as that suffices.

use super::{Numeric, POWERS};
use crate::error::SqlError;

/// A running sum and count of numerics of any scales.
#[derive(Clone, Default, Debug)]
pub struct NumericSum {
    small: i128,
    /// The scale of `small`.
    scale: u8,
    /// What left `small`: sums that outgrew it, numbers that have no place in it.
    large: Option<Numeric>,
    count: i64,
}

impl NumericSum {
    /// How many were added.
    pub fn count(&self) -> i64 {
        self.count
    }

    /// Adds an integer at a scale: a `Decimal` value, or an integer at scale 0.
    pub fn add_decimal(&mut self, unscaled: i128, scale: u8) -> Result<(), SqlError> {
        if scale == self.scale
            && let Some(sum) = self.small.checked_add(unscaled)
        {
            self.small = sum;
            self.count += 1;
            return Ok(());
        }
        self.add_rescaled(unscaled, scale)
    }

    fn add_rescaled(&mut self, unscaled: i128, scale: u8) -> Result<(), SqlError> {
        if scale > self.scale
            && let Some(rescaled) =
                POWERS.get(usize::from(scale - self.scale)).and_then(|power| self.small.checked_mul(*power))
        {
            self.small = rescaled;
            self.scale = scale;
        }
        let at_scale = self
            .scale
            .checked_sub(scale)
            .and_then(|places| POWERS.get(usize::from(places)))
            .and_then(|power| unscaled.checked_mul(*power));
        match at_scale.and_then(|v| self.small.checked_add(v)) {
            Some(sum) => {
                self.small = sum;
                self.count += 1;
                Ok(())
            }
            None => self.add(&Numeric::from_decimal(unscaled, scale)),
        }
    }

    pub fn add(&mut self, number: &Numeric) -> Result<(), SqlError> {
        self.large = Some(match &self.large {
            Some(large) => large.add(number)?,
            None => number.clone(),
        });
        self.count += 1;
        Ok(())
    }

    /// The sum; `None` if nothing was added.
    pub fn sum(&self) -> Result<Option<Numeric>, SqlError> {
        if self.count == 0 {
            return Ok(None);
        }
        let small = Numeric::from_decimal(self.small, self.scale);
        match &self.large {
            None => Ok(Some(small)),
            Some(large) => large.add(&small).map(Some),
        }
    }

    /// The mean; `None` if nothing was added.
    pub fn average(&self) -> Result<Option<Numeric>, SqlError> {
        let Some(sum) = self.sum()? else {
            return Ok(None);
        };
        sum.div(&Numeric::from_i64(self.count)).map(Some)
    }
}
