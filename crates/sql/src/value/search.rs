//! Where does a constant lie among the values of a column? An index on an `integer` column can answer `x < 2.5`: as
//! `x <= 2`. The answer agrees with what the comparison operator would find row by row.

use super::cast;
use super::numeric::Numeric;
use super::{Datum, datetime, text};
use freshet_engine::schema::{Type, Value};

/// A constant's place among the values that a column can hold.
#[derive(Clone, PartialEq, Debug)]
pub enum Place {
    /// It equals this value of the column's type.
    At(Datum),
    /// It is above this value and below the next one.
    Above(Datum),
    BelowAll,
    AboveAll,
}

/// The place of a value that is not null; `None` if the column's order says nothing about the comparison (then every
/// row must be compared).
pub fn place(from: Type, value: &Value<'_>, column: Type) -> Option<Place> {
    if value.is_null() {
        return None;
    }
    let (from, column) = (from.unrounded(), column.unrounded());
    match column {
        Type::Int2 | Type::Int4 | Type::Int8 => among_integers(from, value, column),
        Type::Decimal { precision, scale } => {
            if cast::is_float(from) {
                return None;
            }
            let place = among_decimals(&cast::to_numeric(from, value)?, precision, scale);
            Some(place)
        }
        Type::Numeric { .. } if cast::is_float(from) => None,
        Type::Numeric { .. } => {
            let number = cast::to_numeric(from, value)?;
            Some(Place::At(Datum::Bytes(number.to_stored())))
        }
        Type::Float8 => {
            let float = cast::to_f64(from, value)?.ok()?;
            Some(Place::At(Datum::Float(float)))
        }
        Type::Float4 => among_floats4(cast::to_f64(from, value)?.ok()?),
        Type::Text | Type::Varchar(_) | Type::Char(_) => among_texts(from, value, column),
        Type::Date | Type::Timestamp | Type::Timestamptz => among_moments(from, value, column),
        _ => cast::same_base(from, column).then(|| Place::At(Datum::from(*value))),
    }
}

/// Largest and smallest value of an integer type.
fn integer_bounds(column: Type) -> (i64, i64) {
    match column {
        Type::Int2 => (i16::MIN.into(), i16::MAX.into()),
        Type::Int4 => (i32::MIN.into(), i32::MAX.into()),
        _ => (i64::MIN, i64::MAX),
    }
}

fn among_integers(from: Type, value: &Value<'_>, column: Type) -> Option<Place> {
    /// Integers beyond are rounded when they are compared with a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let (floor, exact) = match *value {
        Value::Int(v) if cast::is_integer(from) => (v, true),
        Value::Float(v) if v.is_nan() => return Some(Place::AboveAll),
        Value::Float(v) if v.is_infinite() => return Some(infinite(v > 0.0)),
        Value::Float(v) if v.abs() < EXACT => (v.floor() as i64, v.fract() == 0.0),
        Value::Float(_) => return None,
        _ => match cast::to_numeric(from, value)? {
            Numeric::NaN | Numeric::Infinity => return Some(Place::AboveAll),
            Numeric::NegativeInfinity => return Some(Place::BelowAll),
            number => {
                let floor = number.floor().ok()?;
                let exact = floor == number;
                match floor.to_i64("bigint") {
                    Ok(floor) => (floor, exact),
                    Err(_) => return Some(infinite(number.signum() > 0)),
                }
            }
        },
    };
    let (least, greatest) = integer_bounds(column);
    Some(if floor < least {
        Place::BelowAll
    } else if floor > greatest || floor == greatest && !exact {
        Place::AboveAll
    } else if exact {
        Place::At(Datum::Int(floor))
    } else {
        Place::Above(Datum::Int(floor))
    })
}

fn infinite(positive: bool) -> Place {
    if positive { Place::AboveAll } else { Place::BelowAll }
}

fn among_decimals(number: &Numeric, precision: u8, scale: u8) -> Place {
    let cut = match number {
        Numeric::NaN | Numeric::Infinity => return Place::AboveAll,
        Numeric::NegativeInfinity => return Place::BelowAll,
        Numeric::Finite(_) => number.trunc(scale.into()),
    };
    let Ok(cut) = cut else {
        return infinite(number.signum() > 0);
    };
    let Ok(unscaled) = cut.to_decimal(precision, scale) else {
        return infinite(number.signum() > 0);
    };
    if cut == *number {
        return Place::At(Datum::Decimal(unscaled));
    }
    // Cutting a negative number went up.
    let floor = if number.signum() < 0 { unscaled - 1 } else { unscaled };
    match Numeric::from_decimal(floor, scale).to_decimal(precision, scale) {
        Ok(floor) => Place::Above(Datum::Decimal(floor)),
        Err(_) => Place::BelowAll,
    }
}

/// `real` is compared as `double precision`.
fn among_floats4(float: f64) -> Option<Place> {
    let narrow = float as f32;
    if f64::from(narrow) == float || float.is_nan() {
        return Some(Place::At(Datum::Float(narrow.into())));
    }
    // Rounding may have gone up, to infinity too.
    let below = if f64::from(narrow) > float { narrow.next_down() } else { narrow };
    Some(Place::Above(Datum::Float(below.into())))
}

fn among_texts(from: Type, value: &Value<'_>, column: Type) -> Option<Place> {
    match *value {
        _ if !cast::is_text(from) => None,
        // Blanks at the end of a `varchar` do not count against a `char`, which is stored without them; an index of the `varchar` has them.
        _ if matches!((from, column), (Type::Char(_), Type::Varchar(_))) => None,
        Value::Bytes(bytes) if matches!((from, column), (Type::Varchar(_), Type::Char(_))) => {
            Some(Place::At(Datum::Bytes(text::trim_blanks(bytes).into())))
        }
        Value::Bytes(bytes) => Some(Place::At(Datum::Bytes(bytes.into()))),
        _ => None,
    }
}

fn among_moments(from: Type, value: &Value<'_>, column: Type) -> Option<Place> {
    let Value::Int(v) = *value else {
        return None;
    };
    match (from, column) {
        _ if from == column => Some(Place::At(Datum::Int(v))),
        (Type::Date, Type::Timestamp | Type::Timestamptz) => Some(match cast::date_to_timestamp(v) {
            Ok(timestamp) => Place::At(Datum::Int(timestamp)),
            // Beyond all finite timestamps, before infinity.
            Err(_) => Place::Above(Datum::Int(datetime::INFINITY - 1)),
        }),
        (Type::Timestamp | Type::Timestamptz, Type::Timestamp | Type::Timestamptz) => Some(Place::At(Datum::Int(v))),
        (Type::Timestamp | Type::Timestamptz, Type::Date) => Some(match v {
            datetime::INFINITY => Place::At(Datum::Int(datetime::DATE_INFINITY)),
            datetime::NEGATIVE_INFINITY => Place::At(Datum::Int(datetime::DATE_NEGATIVE_INFINITY)),
            _ => {
                let day = Datum::Int(v.div_euclid(datetime::DAY_US));
                match v.rem_euclid(datetime::DAY_US) {
                    0 => Place::At(day),
                    _ => Place::Above(day),
                }
            }
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::operator::{BinaryOp, BinaryOperator};
    use crate::value::{from_text, pgtype};
    use std::cmp::Ordering;

    /// What the place says of the order of a column's value and the constant.
    fn order_by_place(column: Type, row: &Value<'_>, place: &Place) -> Ordering {
        match place {
            Place::BelowAll => Ordering::Greater,
            Place::AboveAll => Ordering::Less,
            Place::At(at) => column.compare(row, &at.as_value()),
            Place::Above(below) => match column.compare(row, &below.as_value()) {
                Ordering::Greater => Ordering::Greater,
                _ => Ordering::Less,
            },
        }
    }

    #[test]
    fn places_agree_with_comparisons() {
        let numbers = [
            "0",
            "1",
            "2",
            "-1",
            "2.5",
            "-2.5",
            "1.005",
            "1.01",
            "32767",
            "-32768",
            "32767.5",
            "99.99",
            "-99.99",
            "99.995",
            "100",
            "1e30",
            "-1e30",
            "0.1",
            "NaN",
            "Infinity",
            "-Infinity",
            "9007199254740993",
            "16777217",
            "3e38",
        ];
        let moments =
            ["2020-01-01", "2020-01-01 00:00:01", "infinity", "-infinity", "300000-01-01", "1999-12-31 23:59:59"];
        let texts = ["", "ab", "ab ", "b", "abc"];
        let number_types = [
            Type::Int2,
            Type::Int4,
            Type::Int8,
            Type::Float4,
            Type::Float8,
            pgtype::numeric(4, 2),
            pgtype::numeric(38, 0),
            pgtype::NUMERIC,
        ];
        let moment_types = [Type::Date, Type::Timestamp, Type::Timestamptz];
        let text_types = [Type::Text, Type::Char(3), Type::Varchar(3)];
        let mut compared = 0;
        let mut check = |column: Type, row: &str, constant_type: Type, constant: &str| {
            let (Ok(row), Ok(constant)) =
                (from_text(column, row.as_bytes()), from_text(constant_type, constant.as_bytes()))
            else {
                return;
            };
            let Some(place) = place(constant_type, &constant.as_value(), column) else {
                return;
            };
            let operator =
                BinaryOperator::resolve(BinaryOp::Lt, Some(column), Some(constant_type)).expect("comparable");
            let expected = operator.compare(&row.as_value(), &constant.as_value()).expect("in range");
            let ours = order_by_place(column, &row.as_value(), &place);
            assert_eq!(ours, expected, "{row:?} of {column:?} and {constant:?} of {constant_type:?}: {place:?}");
            compared += 1;
        };
        for (types, values) in
            [(number_types.as_slice(), numbers.as_slice()), (&moment_types, &moments), (&text_types, &texts)]
        {
            for column in types {
                for constant_type in types {
                    for row in values {
                        for constant in values {
                            check(*column, row, *constant_type, constant);
                        }
                    }
                }
            }
        }
        assert!(compared > 5000, "{compared}");
    }
}
