//! `to_char` and `to_number` of numbers.
//!
//! A template has digit positions before and after the point. A number fills those before it from the right; `9` leaves blank what it
//! does not fill, `0` shows a zero from there on. The sign stands before the first digit, unless the template says where. What does not fit is
//! shown as `#`.

mod input;
mod output;
mod template;

pub(crate) use input::to_number;
pub(crate) use output::{float_to_char, integer_to_char, numeric_to_char};
