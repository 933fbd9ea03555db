//! Variances, correlation, regression. Of whole and decimal numbers exact, with the digits that PostgreSQL gives them; of floats by the
//! method of Youngs and Cramer, as PostgreSQL does.

use super::{Gathered, Signature, counts_as_numeric, number, result_of};
use crate::error::SqlError;
use crate::value::Datum;
use crate::value::cast::{is_implicit, number_rank};
use crate::value::numeric::Numeric;
use freshet_engine::schema::Type;
use num_bigint::BigInt;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Statistic {
    VarPop,
    VarSamp,
    StddevPop,
    StddevSamp,
    Corr,
    CovarPop,
    CovarSamp,
    RegrCount,
    RegrAvgX,
    RegrAvgY,
    RegrSxx,
    RegrSyy,
    RegrSxy,
    RegrSlope,
    RegrIntercept,
    RegrR2,
}

impl Statistic {
    pub(super) fn named(name: &str) -> Option<Statistic> {
        Some(match name {
            "var_pop" => Statistic::VarPop,
            "var_samp" | "variance" => Statistic::VarSamp,
            "stddev_pop" => Statistic::StddevPop,
            "stddev_samp" | "stddev" => Statistic::StddevSamp,
            "corr" => Statistic::Corr,
            "covar_pop" => Statistic::CovarPop,
            "covar_samp" => Statistic::CovarSamp,
            "regr_count" => Statistic::RegrCount,
            "regr_avgx" => Statistic::RegrAvgX,
            "regr_avgy" => Statistic::RegrAvgY,
            "regr_sxx" => Statistic::RegrSxx,
            "regr_syy" => Statistic::RegrSyy,
            "regr_sxy" => Statistic::RegrSxy,
            "regr_slope" => Statistic::RegrSlope,
            "regr_intercept" => Statistic::RegrIntercept,
            "regr_r2" => Statistic::RegrR2,
            _ => return None,
        })
    }

    fn of_one(self) -> bool {
        matches!(self, Statistic::VarPop | Statistic::VarSamp | Statistic::StddevPop | Statistic::StddevSamp)
    }

    pub(super) fn resolve(self, given: &[Option<Type>], count: usize) -> Option<Signature> {
        let what = Gathered::Statistic(self);
        if self.of_one() {
            let of = given.first().copied()?.unwrap_or(Type::Float8);
            let one = count == 1 && number_rank(of).is_some();
            return one.then(|| Signature { what, arguments: vec![of], result: result_of(of) });
        }
        let fits = count == 2 && given.iter().all(|ty| ty.is_none_or(|ty| is_implicit(ty, Type::Float8)));
        let result = if self == Statistic::RegrCount { Type::Int8 } else { Type::Float8 };
        fits.then(|| Signature { what, arguments: vec![Type::Float8; 2], result })
    }

    pub(super) fn finish(self, of: Type, rows: &[Vec<Datum>]) -> Result<Datum, SqlError> {
        if self.of_one() && counts_as_numeric(of) {
            return self.exact(of, rows);
        }
        if self.of_one() {
            return Ok(self.of_floats(rows).map_or(Datum::Null, Datum::Float));
        }
        if self == Statistic::RegrCount {
            return Ok(Datum::Int(rows.len() as i64));
        }
        Ok(self.of_pairs(rows).map_or(Datum::Null, Datum::Float))
    }

    fn exact(self, of: Type, rows: &[Vec<Datum>]) -> Result<Datum, SqlError> {
        let sample = matches!(self, Statistic::VarSamp | Statistic::StddevSamp);
        let root = matches!(self, Statistic::StddevPop | Statistic::StddevSamp);
        let count = rows.len() as i64;
        let (mut sum, mut squares) = (Numeric::zero(), Numeric::zero());
        for row in rows {
            let value = number(of, &row[0].as_value());
            squares = squares.add(&value.mul(&value)?)?;
            sum = sum.add(&value)?;
        }
        if sample && count <= 1 {
            return Ok(Datum::Null);
        }
        if !matches!(sum, Numeric::Finite(_)) {
            return Ok(Datum::Bytes(Numeric::NaN.to_stored()));
        }
        let counted = Numeric::from_i64(count);
        let spread = counted.mul(&squares)?.sub(&sum.mul(&sum)?)?;
        if spread.signum() <= 0 {
            return Ok(Datum::Bytes(Numeric::zero().to_stored()));
        }
        let by = counted.mul(&Numeric::from_i64(if sample { count - 1 } else { count }))?;
        let variance = spread.div(&by)?;
        let result = if root { square_root(&variance)? } else { variance };
        Ok(Datum::Bytes(result.to_stored()))
    }

    fn of_floats(self, rows: &[Vec<Datum>]) -> Option<f64> {
        let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for row in rows {
            let Datum::Float(x) = row[0] else { continue };
            count += 1.0;
            sum += x;
            if count > 1.0 {
                let apart: f64 = x * count - sum;
                squares += apart * apart / (count * (count - 1.0));
            } else if !x.is_finite() {
                squares = f64::NAN;
            }
        }
        let sample = matches!(self, Statistic::VarSamp | Statistic::StddevSamp);
        if sample && count <= 1.0 {
            return None;
        }
        let variance = squares / if sample { count - 1.0 } else { count };
        Some(if matches!(self, Statistic::StddevPop | Statistic::StddevSamp) { variance.sqrt() } else { variance })
    }

    /// The first argument is y, the second x.
    fn of_pairs(self, rows: &[Vec<Datum>]) -> Option<f64> {
        let (mut n, mut sx, mut sxx, mut sy, mut syy, mut sxy) = (0.0f64, 0.0f64, 0.0f64, 0.0f64, 0.0f64, 0.0f64);
        for row in rows {
            let (Datum::Float(y), Datum::Float(x)) = (&row[0], &row[1]) else { continue };
            let before = n;
            n += 1.0;
            sx += x;
            sy += y;
            if before > 0.0 {
                let (dx, dy) = (x * n - sx, y * n - sy);
                let scale = 1.0 / (n * before);
                sxx += dx * dx * scale;
                syy += dy * dy * scale;
                sxy += dx * dy * scale;
            } else if !x.is_finite() || !y.is_finite() {
                (sxx, syy, sxy) = (f64::NAN, f64::NAN, f64::NAN);
            }
        }
        Some(match self {
            Statistic::Corr if sxx == 0.0 || syy == 0.0 => return None,
            Statistic::Corr => sxy / (sxx * syy).sqrt(),
            Statistic::CovarPop => sxy / n,
            Statistic::CovarSamp if n < 2.0 => return None,
            Statistic::CovarSamp => sxy / (n - 1.0),
            Statistic::RegrAvgX => sx / n,
            Statistic::RegrAvgY => sy / n,
            Statistic::RegrSxx => sxx,
            Statistic::RegrSyy => syy,
            Statistic::RegrSxy => sxy,
            _ if sxx == 0.0 => return None,
            Statistic::RegrSlope => sxy / sxx,
            Statistic::RegrIntercept => (sy - sx * sxy / sxx) / n,
            _ if syy == 0.0 => 1.0,
            _ => (sxy * sxy) / (sxx * syy),
        })
    }
}

/// The root with as many digits after the point as the number shows.
fn square_root(number: &Numeric) -> Result<Numeric, SqlError> {
    let mut shown = Vec::new();
    number.write(&mut shown);
    let shown = String::from_utf8_lossy(&shown).into_owned();
    let scale = usize::from(number.scale());
    let digits: String = shown.chars().filter(char::is_ascii_digit).collect();
    // One digit more than wanted, to round by.
    let zeros = "0".repeat(scale + 2);
    let scaled: BigInt = format!("{digits}{zeros}").parse().unwrap_or_default();
    let root: BigInt = (scaled.sqrt() + 5) / 10;
    let text = format!("{root:0>width$}", width = scale + 1);
    let (before, after) = text.split_at(text.len() - scale);
    Numeric::parse(if scale == 0 { before.to_owned() } else { format!("{before}.{after}") }.as_bytes())
}
