//! Which rows does a window's frame name? Its bounds as they were written, checked as PostgreSQL checks them, and their offsets' values.

use super::plan::{Planner, refuse};
use crate::bind::expr::Bound;
use crate::bind::scope::Scope;
use crate::bind::{Bind, Binder, PLACEHOLDERS};
use crate::compiled::sort::KeyOrder;
use crate::error::SqlError;
use crate::expr::Expr;
use crate::value::cast::{self, CastContext, is_float, is_numeric};
use crate::value::interval::Interval;
use crate::value::pgtype::{NUMERIC, name as type_name};
use crate::value::{Datum, Numeric};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{WindowFrame, WindowFrameBound, WindowFrameUnits};
use freshet_engine::schema::Type;
use sqlparser::ast::{self, WindowFrameBound as Written};

/// An end of a frame.
#[derive(Clone, PartialEq, Debug)]
pub enum Edge {
    /// UNBOUNDED PRECEDING.
    First,
    Before(Datum),
    Current,
    After(Datum),
    /// UNBOUNDED FOLLOWING.
    Last,
}

/// EXCLUDE: which rows around the current one are left out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Exclusion {
    #[default]
    Nothing,
    Row,
    /// The row and its peers.
    Group,
    /// Its peers, but not the row.
    Ties,
}

impl Exclusion {
    /// As the parser calls it.
    pub fn named(name: &str) -> Exclusion {
        match name {
            "row" => Exclusion::Row,
            "group" => Exclusion::Group,
            "ties" => Exclusion::Ties,
            _ => Exclusion::Nothing,
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Frame {
    pub units: ast::WindowFrameUnits,
    pub start: Edge,
    pub end: Edge,
    /// Of RANGE with an offset.
    pub along: Option<Along>,
    pub exclusion: Exclusion,
}

/// What a range's offsets are counted along: the key, as what they are added to, and their type.
#[derive(Clone, PartialEq, Debug)]
pub struct Along {
    pub key: Expr,
    pub ty: Type,
    pub offset: Type,
}

impl Frame {
    /// Of a window that names none.
    pub const UNSAID: Frame = Frame {
        units: ast::WindowFrameUnits::Range,
        start: Edge::First,
        end: Edge::Current,
        along: None,
        exclusion: Exclusion::Nothing,
    };

    /// Whether DataFusion has no such frame.
    pub fn is_ours(&self) -> bool {
        self.along.is_some() || self.exclusion != Exclusion::Nothing || self.is_backwards()
    }

    /// Whether it ends before it starts, by the offsets alone: so it has no rows.
    fn is_backwards(&self) -> bool {
        match (&self.start, &self.end) {
            (Edge::Before(Datum::Int(start)), Edge::Before(Datum::Int(end))) => start < end,
            (Edge::After(Datum::Int(start)), Edge::After(Datum::Int(end))) => start > end,
            _ => false,
        }
    }

    /// As DataFusion has it, without what is left out of it; `None`: it has no such frame.
    pub fn plain(&self) -> Option<WindowFrame> {
        if self.is_backwards() {
            return None;
        }
        let units = match self.units {
            ast::WindowFrameUnits::Rows => WindowFrameUnits::Rows,
            ast::WindowFrameUnits::Groups => WindowFrameUnits::Groups,
            ast::WindowFrameUnits::Range if self.along.is_none() => WindowFrameUnits::Range,
            ast::WindowFrameUnits::Range => return None,
        };
        let count = |offset: &Datum| match offset {
            Datum::Int(rows) => ScalarValue::UInt64(u64::try_from(*rows).ok()),
            _ => ScalarValue::UInt64(None),
        };
        let bound = |edge: &Edge| match edge {
            Edge::First => WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
            Edge::Before(offset) => WindowFrameBound::Preceding(count(offset)),
            Edge::Current => WindowFrameBound::CurrentRow,
            Edge::After(offset) => WindowFrameBound::Following(count(offset)),
            Edge::Last => WindowFrameBound::Following(ScalarValue::UInt64(None)),
        };
        Some(WindowFrame::new_bounds(units, bound(&self.start), bound(&self.end)))
    }
}

impl Planner<'_> {
    pub(super) fn bind_frame(
        &self,
        binder: &mut Binder<'_>,
        frame: &ast::WindowFrame,
        order: &[(Expr, KeyOrder)],
        scope: &Scope,
    ) -> Bind<Frame> {
        let (start, end) = (&frame.start_bound, frame.end_bound.as_ref());
        check_bounds(start, end)?;
        let end = end.unwrap_or(&Written::CurrentRow);
        let along = match frame.units {
            ast::WindowFrameUnits::Groups if order.is_empty() => {
                return Err(SqlError::new("42P20", "GROUPS mode requires an ORDER BY clause").into());
            }
            ast::WindowFrameUnits::Range if has_offset(start) || has_offset(end) => match order {
                [(key, by)] => Some(along(binder, key, by.ty)?),
                _ => {
                    let message = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column";
                    return Err(SqlError::new("42P20", message).into());
                }
            },
            _ => None,
        };
        let start = self.edge(binder, start, ("starting", frame.units), along.as_ref(), scope)?;
        let end = self.edge(binder, end, ("ending", frame.units), along.as_ref(), scope)?;
        Ok(Frame { units: frame.units, start, end, along, exclusion: Exclusion::Nothing })
    }

    fn edge(
        &self,
        binder: &mut Binder<'_>,
        bound: &Written,
        (side, units): (&str, ast::WindowFrameUnits),
        along: Option<&Along>,
        scope: &Scope,
    ) -> Bind<Edge> {
        let (offset, of): (_, fn(Datum) -> Edge) = match bound {
            Written::CurrentRow => return Ok(Edge::Current),
            Written::Preceding(None) => return Ok(Edge::First),
            Written::Following(None) => return Ok(Edge::Last),
            Written::Preceding(Some(offset)) => (offset, Edge::Before),
            Written::Following(Some(offset)) => (offset, Edge::After),
        };
        let wanted = along.map_or(Type::Int8, |along| along.offset);
        let value = self.offset(binder, offset, units, along, scope)?;
        match self.constant(&value, "a window's frame")? {
            // What the parameters are is not known yet.
            Datum::Null if self.reader.is_none() => Ok(Edge::Current),
            Datum::Null => Err(SqlError::new("22004", format!("frame {side} offset must not be null")).into()),
            offset if is_negative(wanted, along, &offset) => {
                let message = match along {
                    Some(_) => "invalid preceding or following size in window function".to_owned(),
                    None => format!("frame {side} offset must not be negative"),
                };
                Err(SqlError::new("22013", message).into())
            }
            offset => Ok(of(offset)),
        }
    }

    /// An offset of the type that it must have.
    fn offset(
        &self,
        binder: &mut Binder<'_>,
        written: &ast::Expr,
        units: ast::WindowFrameUnits,
        along: Option<&Along>,
        scope: &Scope,
    ) -> Bind<Expr> {
        let written = match written {
            // The grammar takes a literal here for an interval's.
            ast::Expr::Interval(interval) if interval.leading_field.is_none() => &interval.value,
            other => other,
        };
        let bound = binder.bind(written, scope)?;
        if bound.expr.mentions(|source| source < PLACEHOLDERS) {
            let message = format!("argument of {units} must not contain variables");
            return Err(SqlError::new("42P10", message).into());
        }
        let wanted = along.map_or(Type::Int8, |along| along.offset);
        let context = if along.is_some() { CastContext::Implicit } else { CastContext::Assignment };
        let is_fit = |ty: Type| cast::context(ty, wanted).is_some_and(|needed| needed <= context);
        if let Some(ty) = bound.ty.filter(|&ty| ty != wanted && !is_fit(ty)) {
            let ty = type_name(ty);
            return Err(match along {
                None => SqlError::new("42804", format!("argument of {units} must be type bigint, not type {ty}")),
                Some(along) => {
                    let key = type_name(along.ty);
                    let what = "RANGE with offset PRECEDING/FOLLOWING is not supported for column type";
                    SqlError::new("0A000", format!("{what} {key} and offset type {ty}"))
                        .with_hint("Cast the offset value to an appropriate type.")
                }
            }
            .into());
        }
        binder.coerce(bound, wanted, context)
    }
}

fn has_offset(bound: &Written) -> bool {
    matches!(bound, Written::Preceding(Some(_)) | Written::Following(Some(_)))
}

fn check_bounds(start: &Written, end: Option<&Written>) -> Result<(), SqlError> {
    let wrong = match (start, end) {
        (Written::Following(None), _) => "frame start cannot be UNBOUNDED FOLLOWING",
        (_, Some(Written::Preceding(None))) => "frame end cannot be UNBOUNDED PRECEDING",
        (Written::Following(Some(_)), None) => "frame starting from following row cannot end with current row",
        (Written::CurrentRow, Some(Written::Preceding(_))) => {
            "frame starting from current row cannot have preceding rows"
        }
        (Written::Following(Some(_)), Some(Written::Preceding(_) | Written::CurrentRow)) => {
            "frame starting from following row cannot have preceding rows"
        }
        _ => return Ok(()),
    };
    Err(SqlError::new("42P20", wrong))
}

/// Dates are counted along as the moments at which they begin, numbers without a precision.
fn along(binder: &mut Binder<'_>, key: &Expr, ty: Type) -> Bind<Along> {
    let ty = ty.unrounded();
    let (counted, offset) = match ty {
        Type::Int2 | Type::Int4 | Type::Int8 => (ty, Type::Int8),
        ty if is_float(ty) => (ty, Type::Float8),
        ty if is_numeric(ty) => (NUMERIC, NUMERIC),
        Type::Date => (Type::Timestamp, Type::Interval),
        Type::Time | Type::Timestamp | Type::Timestamptz | Type::Interval => (ty, Type::Interval),
        other => {
            let name = type_name(other);
            return refuse(format!("RANGE with offset PRECEDING/FOLLOWING for column type {name}"));
        }
    };
    let key = binder.coerce(Bound::new(key.clone(), ty), counted, CastContext::Implicit)?;
    Ok(Along { key, ty: counted, offset })
}

fn is_negative(ty: Type, along: Option<&Along>, offset: &Datum) -> bool {
    match offset {
        Datum::Int(count) => *count < 0,
        Datum::Float(length) => length.is_nan() || *length < 0.0,
        Datum::Bytes(stored) if ty == Type::Interval => {
            let interval = Interval::from_stored(stored);
            // Of a time only the time counts.
            let is_time = along.is_some_and(|along| along.ty == Type::Time);
            if is_time { interval.us < 0 } else { interval.length_us() < 0 }
        }
        Datum::Bytes(stored) => {
            let number = Numeric::from_stored(stored);
            matches!(number, Numeric::NaN) || number.signum() < 0
        }
        _ => false,
    }
}
