//! What PostgreSQL 15 answered, in `recorded/*.tsv`, and what must hold for any value.

use super::cast::{self, CastContext};
use super::function::Function;
use super::numeric::NumericSum;
use super::operator::{BinaryOp, BinaryOperator};
use super::pgtype::{self, NUMERIC, UNLIMITED};
use super::{Datum, Numeric, from_binary, from_text, operator, pattern, plain_integer, to_binary, to_text};
use crate::error::SqlError;
use freshet_engine::schema::{Type, Value};
use num_bigint::BigInt;
use proptest::prelude::*;

fn type_of(name: &str) -> Option<Type> {
    let modifiers = |prefix: &str| -> Option<Vec<i32>> {
        let list = name.strip_prefix(prefix)?.strip_suffix(')')?;
        Some(list.split(',').map(|n| n.parse().expect("a modifier is a number")).collect())
    };
    if let Some(m) = modifiers("numeric(") {
        return Some(pgtype::numeric(m[0] as u16, m[1] as i16));
    }
    if let Some(m) = modifiers("varchar(") {
        return Some(Type::Varchar(m[0] as u32));
    }
    if let Some(m) = modifiers("char(") {
        return Some(Type::Char(m[0] as u32));
    }
    Some(match name {
        "bool" => Type::Bool,
        "int2" => Type::Int2,
        "int4" => Type::Int4,
        "int8" => Type::Int8,
        "float4" => Type::Float4,
        "float8" => Type::Float8,
        "numeric" => NUMERIC,
        "text" => Type::Text,
        "varchar" => Type::Varchar(UNLIMITED),
        "bpchar" => Type::Char(UNLIMITED),
        "bytea" => Type::Bytea,
        "date" => Type::Date,
        "time" => Type::Time,
        "timestamp" => Type::Timestamp,
        "timestamptz" => Type::Timestamptz,
        "uuid" => Type::Uuid,
        "unknown" => return None,
        other => panic!("no type {other}"),
    })
}

fn unescaped(field: &str) -> String {
    let mut out = String::new();
    let mut chars = field.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next().expect("an escape has two characters") {
                't' => '\t',
                'n' => '\n',
                other => other,
            },
            plain => plain,
        });
    }
    out
}

fn value(ty: Type, field: &str) -> Result<Datum, SqlError> {
    match field {
        "\\N" => Ok(Datum::Null),
        _ => from_text(ty, unescaped(field).as_bytes()),
    }
}

fn text(ty: Type, value: &Value<'_>) -> String {
    let mut out = Vec::new();
    to_text(ty, value, &mut out);
    String::from_utf8(out).expect("text output is UTF-8")
}

/// An answer as the tables have it.
fn answer(result: Result<String, SqlError>) -> String {
    let text = result.unwrap_or_else(|error| {
        let part = |name, text: Option<String>| text.map_or(String::new(), |t| format!(" {name} {t}"));
        let (detail, hint) = (part("DETAIL", error.detail), part("HINT", error.hint));
        format!("ERROR {} {}{detail}{hint}", error.sqlstate, error.message)
    });
    text.replace('\n', "\\n").replace('\t', "\\t")
}

/// A value cast to text, and its type.
fn typed(ty: Type, result: Result<Datum, SqlError>) -> String {
    answer(result.and_then(|datum| {
        let text = match cast::cast(ty, &datum.as_value(), Type::Text, true)? {
            Datum::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            _ => "NULL".to_owned(),
        };
        Ok(format!("{text} {}", pgtype::name(ty)))
    }))
}

/// Runs a table through `ours` and reports all differences at once.
fn check(table: &str, ours: impl Fn(&[&str]) -> String) {
    let mut differences = Vec::new();
    let mut cases = 0;
    for line in table.lines() {
        let (case, recorded) = line.rsplit_once('\t').expect("a case has an answer");
        let fields: Vec<&str> = case.split('\t').collect();
        let ours = ours(&fields);
        if ours != recorded {
            differences.push(format!("{case}\n  ours     {ours}\n  recorded {recorded}"));
        }
        cases += 1;
    }
    assert!(cases > 100, "the table is read");
    assert!(differences.is_empty(), "{} of {cases} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn texts_and_bytes_are_as_recorded() {
    check(include_str!("recorded/text.tsv"), |fields| {
        let ty = type_of(fields[0]).expect("a case has a type");
        answer(value(ty, fields[1]).map(|datum| {
            let mut bytes = Vec::new();
            to_binary(ty, &datum.as_value(), &mut bytes);
            let back = from_binary(ty, &bytes).expect("sent bytes are received");
            assert_eq!(text(ty, &back.as_value()), text(ty, &datum.as_value()), "{fields:?}");
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            format!("{} {hex}", text(ty, &datum.as_value()))
        }))
    });
}

#[test]
fn casts_are_as_recorded() {
    check(include_str!("recorded/cast.tsv"), |fields| {
        let (from, to) = (type_of(fields[0]).expect("typed"), type_of(fields[2]).expect("typed"));
        let result = value(from, fields[1]).and_then(|datum| cast::cast(from, &datum.as_value(), to, true));
        assert!(cast::context(from, to).is_some() || matches!(&result, Err(e) if e.sqlstate == "42846"), "{fields:?}");
        typed(to, result)
    });
}

fn operator_of(symbol: &str) -> BinaryOp {
    use BinaryOp::*;
    let all = [
        Add, Sub, Mul, Div, Mod, Power, BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight, Concat, Eq, Ne, Lt, Le, Gt, Ge,
        Like, NotLike, ILike, NotILike,
    ];
    all.into_iter().find(|op| op.symbol() == symbol).expect("the symbol is an operator's")
}

#[test]
fn operators_are_as_recorded() {
    check(include_str!("recorded/operator.tsv"), |fields| {
        let op = operator_of(fields[0]);
        let found = BinaryOperator::resolve(op, type_of(fields[1]), type_of(fields[3]));
        match found {
            Err(error) => answer(Err(error)),
            Ok(operator) => {
                let sides =
                    value(operator.left, fields[2]).and_then(|left| Ok((left, value(operator.right, fields[4])?)));
                typed(operator.result, sides.and_then(|(l, r)| operator.apply(&l.as_value(), &r.as_value())))
            }
        }
    });
}

#[test]
fn functions_are_as_recorded() {
    check(include_str!("recorded/function.tsv"), |fields| {
        let pairs: Vec<(Option<Type>, &str)> = fields[1..].chunks(2).map(|pair| (type_of(pair[0]), pair[1])).collect();
        let types: Vec<Option<Type>> = pairs.iter().map(|(ty, _)| *ty).collect();
        let function = match Function::resolve(fields[0], &types) {
            Ok(function) => function,
            Err(error) => return answer(Err(error)),
        };
        let arguments: Result<Vec<Datum>, SqlError> = pairs
            .iter()
            .zip(&function.arguments)
            .map(|((ty, field), to)| match ty {
                None => value(*to, field),
                Some(ty) => cast::cast(*ty, &value(*ty, field)?.as_value(), *to, false),
            })
            .collect();
        let result = arguments.and_then(|arguments| {
            let values: Vec<Value<'_>> = arguments.iter().map(Datum::as_value).collect();
            function.call(&values)
        });
        typed(function.result, result)
    });
}

#[test]
fn char_stores_no_blanks_and_shows_them() {
    let stored = from_text(Type::Char(5), b"ab  ").expect("fits");
    assert_eq!(stored, Datum::Bytes(b"ab".as_slice().into()));
    assert_eq!(text(Type::Char(5), &stored.as_value()), "ab   ");
    assert_eq!(text(Type::Char(UNLIMITED), &stored.as_value()), "ab");
}

#[test]
fn text_that_is_too_long_is_refused_unless_blanks_or_a_cast() {
    let refused = from_text(Type::Varchar(3), b"abcd").expect_err("four characters");
    assert_eq!(refused.sqlstate, "22001");
    assert_eq!(refused.message, "value too long for type character varying(3)");
    let blanks = from_text(Type::Varchar(3), "aé    ".as_bytes()).expect("the excess is blank");
    assert_eq!(blanks, Datum::Bytes("aé ".as_bytes().into()));
    let long = Value::Bytes(b"abcd");
    assert!(cast::coerce_typmod(&long, Type::Text, Type::Varchar(3)).is_err());
    let cut = cast::cast(Type::Text, &long, Type::Varchar(3), true).expect("a cast cuts");
    assert_eq!(cut, Datum::Bytes(b"abc".as_slice().into()));
}

#[test]
fn text_must_be_utf8_without_nul() {
    let cases: [(&[u8], &str); 4] =
        [(b"a\0b", "0x00"), (b"ab\xff", "0xff"), (b"\xc3(", "0xc3 0x28"), (b"\xe2\x82", "0xe2 0x82")];
    for (bytes, shown) in cases {
        let error = from_text(Type::Text, bytes).expect_err("not text");
        assert_eq!(error.sqlstate, "22021");
        assert_eq!(error.message, format!("invalid byte sequence for encoding \"UTF8\": {shown}"));
        assert_eq!(from_binary(Type::Varchar(9), bytes).expect_err("not text"), error);
    }
}

#[test]
fn binary_of_the_wrong_length_or_range_is_refused() {
    let cases: [(Type, &[u8], &str); 10] = [
        (Type::Int4, b"\0\0\0", "08P01"),
        (Type::Int4, b"\0\0\0\0\0", "22P03"),
        (Type::Bool, b"", "08P01"),
        (Type::Uuid, b"abc", "08P01"),
        (NUMERIC, b"\0\x01", "08P01"),
        (NUMERIC, b"\0\x01\0\0\0\0\0\0", "08P01"),
        (NUMERIC, b"\0\x01\0\0\x12\0\0\0\0\x01", "22P03"),
        (NUMERIC, b"\0\x01\0\0\0\0\0\0\x27\x10", "22P03"),
        (Type::Date, b"\x7f\xff\xff\xfe", "22008"),
        (Type::Time, b"\xff\xff\xff\xff\xff\xff\xff\xff", "22008"),
    ];
    for (ty, bytes, sqlstate) in cases {
        let error = from_binary(ty, bytes).expect_err("not a value");
        assert_eq!(error.sqlstate, sqlstate, "{ty:?} {bytes:?}");
    }
}

#[test]
fn a_sent_numeric_is_cut_at_its_scale() {
    // 1.2345 with scale 2.
    let bytes = b"\0\x02\0\0\0\0\0\x02\0\x01\x09\x29";
    let received = from_binary(NUMERIC, bytes).expect("valid");
    assert_eq!(text(NUMERIC, &received.as_value()), "1.23");
    let received = from_binary(pgtype::numeric(5, 1), bytes).expect("valid");
    assert_eq!(received, Datum::Decimal(12));
}

#[test]
fn casts_know_their_context() {
    use CastContext::*;
    let cases = [
        (Type::Int4, Type::Int8, Some(Implicit)),
        (Type::Int8, Type::Int4, Some(Assignment)),
        (pgtype::numeric(5, 2), NUMERIC, Some(Implicit)),
        (NUMERIC, Type::Float8, Some(Implicit)),
        (Type::Float8, NUMERIC, Some(Assignment)),
        (Type::Int4, Type::Text, Some(Assignment)),
        (Type::Text, Type::Int4, Some(Explicit)),
        (Type::Bool, Type::Int4, Some(Explicit)),
        (Type::Bool, Type::Int8, None),
        (Type::Date, Type::Timestamptz, Some(Implicit)),
        (Type::Timestamptz, Type::Date, Some(Assignment)),
        (Type::Time, Type::Date, None),
        (Type::Uuid, Type::Bytea, None),
    ];
    for (from, to, expected) in cases {
        assert_eq!(cast::context(from, to), expected, "{from:?} to {to:?}");
    }
}

#[test]
fn decimals_stay_integers_while_they_surely_fit() {
    let decimal = |precision, scale| Type::Decimal { precision, scale };
    let cases = [
        (BinaryOp::Add, decimal(12, 2), decimal(10, 4), decimal(15, 4)),
        (BinaryOp::Mul, decimal(12, 2), Type::Int4, decimal(22, 2)),
        (BinaryOp::Mul, decimal(20, 2), Type::Int8, NUMERIC),
        (BinaryOp::Sub, decimal(38, 0), Type::Int2, NUMERIC),
        (BinaryOp::Div, decimal(12, 2), decimal(12, 2), NUMERIC),
        (BinaryOp::Mod, decimal(38, 2), decimal(3, 1), decimal(38, 2)),
    ];
    for (op, left, right, expected) in cases {
        let result = operator::binary_result_type(op, Some(left), Some(right));
        assert_eq!(result.expect("numbers"), expected, "{op:?} {left:?} {right:?}");
    }
}

#[test]
fn sums_outgrow_their_integer() {
    let mut sum = NumericSum::default();
    assert!(sum.average().expect("no error").is_none());
    for _ in 0..3 {
        sum.add_decimal(i128::MAX, 2).expect("fits a numeric");
    }
    sum.add_decimal(15, 1).expect("fits");
    sum.add_decimal(1, 3).expect("fits");
    let mut out = Vec::new();
    sum.sum().expect("fits").expect("five were added").write(&mut out);
    let expected: BigInt = BigInt::from(i128::MAX) * 30 + 1501;
    let expected = expected.to_string();
    let (whole, places) = expected.split_at(expected.len() - 3);
    assert_eq!(String::from_utf8_lossy(&out), format!("{whole}.{places}"));
    assert_eq!(sum.count(), 5);
}

#[test]
fn three_valued_logic() {
    let values = [None, Some(false), Some(true)];
    for a in values {
        for b in values {
            let both = [a, b];
            let expected_and = match () {
                _ if both.contains(&Some(false)) => Some(false),
                _ if both.contains(&None) => None,
                _ => Some(true),
            };
            assert_eq!(operator::and(a, b), expected_and);
            let inverted = operator::and(operator::not(a), operator::not(b));
            assert_eq!(operator::or(a, b), operator::not(inverted));
        }
    }
}

#[test]
fn like_with_escapes() {
    let like = |value: &str, pattern: &str, escape| pattern::like(value.as_bytes(), pattern.as_bytes(), escape, false);
    assert_eq!(like("a%c", "a\\%c", Some('\\')), Ok(true));
    assert_eq!(like("abc", "a\\%c", Some('\\')), Ok(false));
    assert_eq!(like("a\\bc", "a\\%c", None), Ok(true));
    assert_eq!(like("a_c", "aé_c", Some('é')), Ok(true));
    assert_eq!(like("日本", "_本", Some('\\')), Ok(true));
    // Only a character that comes to the end of the pattern finds the escape alone.
    assert_eq!(like("x", "abc\\", Some('\\')), Ok(false));
    assert_eq!(like("abc", "abc\\", Some('\\')), Ok(false));
    assert_eq!(like("abcd", "abc\\", Some('\\')).expect_err("ends with escape").sqlstate, "22025");
    assert_eq!(pattern::like_prefix(b"ab\\%c_d%", Some('\\')), b"ab%c");
}

#[test]
fn literals_take_the_smallest_type() {
    let ty = |digits| cast::number_literal(digits).expect("a number").0;
    assert_eq!(ty("2147483647"), Type::Int4);
    assert_eq!(ty("2147483648"), Type::Int8);
    assert_eq!(ty("9223372036854775808"), Type::Decimal { precision: 19, scale: 0 });
    assert_eq!(ty("1.50"), Type::Decimal { precision: 3, scale: 2 });
    assert_eq!(ty("0.001"), Type::Decimal { precision: 3, scale: 3 });
    assert_eq!(ty("1e100"), NUMERIC);
}

/// A matcher that tries everything, to compare the quick one with.
fn like_slowly(value: &[char], pattern: &[char]) -> bool {
    match pattern {
        [] => value.is_empty(),
        ['%', rest @ ..] => (0..=value.len()).any(|i| like_slowly(&value[i..], rest)),
        ['_', rest @ ..] => !value.is_empty() && like_slowly(&value[1..], rest),
        [c, rest @ ..] => value.first() == Some(c) && like_slowly(&value[1..], rest),
    }
}

/// A number's text: sign, digits, a point somewhere.
fn number_text() -> impl Strategy<Value = String> {
    ("-?", "[0-9]{1,45}", 0usize..45).prop_map(|(sign, digits, places)| {
        let point = digits.len() - places.min(digits.len());
        format!("{sign}{}.{}", &digits[..point], &digits[point..])
    })
}

fn special_or_number() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => number_text(),
        2 => (number_text(), -200i32..200).prop_map(|(n, e)| format!("{n}e{e}")),
        1 => prop_oneof![Just("NaN".to_owned()), Just("Infinity".to_owned()), Just("-Infinity".to_owned()), Just("0".to_owned())],
    ]
}

fn number(text: &str) -> Numeric {
    Numeric::parse(text.as_bytes()).expect("the text is a number")
}

/// A finite number as an integer at `scale`, which is not smaller than its own.
fn unscaled(text: &str, scale: usize) -> BigInt {
    let (whole, places) = text.split_once('.').expect("the text has a point");
    let digits = format!("{whole}{places:0<scale$}");
    BigInt::parse_bytes(digits.as_bytes(), 10).expect("digits")
}

fn shown(number: &Numeric) -> String {
    let mut out = Vec::new();
    number.write(&mut out);
    String::from_utf8(out).expect("ASCII")
}

proptest! {
    #[test]
    fn what_is_read_in_the_plainest_way_is_what_the_input_function_reads(text in "[ +-]?[0-9]{0,20}[ x]?", wide in any::<i64>()) {
        for ty in [Type::Int2, Type::Int4, Type::Int8] {
            if let Some(integer) = plain_integer(ty, text.as_bytes()) {
                prop_assert_eq!(from_text(ty, text.as_bytes()), Ok(Datum::Int(integer)));
            }
            let narrow = wide >> 16;
            let is_of_type = from_text(ty, narrow.to_string().as_bytes()).is_ok();
            prop_assert_eq!(plain_integer(ty, narrow.to_string().as_bytes()), is_of_type.then_some(narrow));
        }
        prop_assert_eq!(plain_integer(Type::Text, b"1"), None);
    }

    #[test]
    fn stored_numerics_read_back_and_order_as_numbers(a in special_or_number(), b in special_or_number()) {
        let (a, b) = (number(&a), number(&b));
        let (stored_a, stored_b) = (a.to_stored(), b.to_stored());
        prop_assert_eq!(shown(&Numeric::from_stored(&stored_a)), shown(&a));
        prop_assert_eq!(text(NUMERIC, &Value::Bytes(&stored_a)), shown(&a));
        let (key_a, key_b) = (NUMERIC.key_bytes(&stored_a), NUMERIC.key_bytes(&stored_b));
        prop_assert_eq!(key_a.cmp(key_b), a.cmp(&b));
        // Keys are padded with zeros.
        prop_assert_ne!(key_a.last(), Some(&0));
    }

    #[test]
    fn equal_numbers_have_equal_keys(digits in number_text(), zeros in 0usize..9) {
        let (a, b) = (number(&digits), number(&format!("{digits}{}", "0".repeat(zeros))));
        let (a, b) = (a.to_stored(), b.to_stored());
        prop_assert_eq!(NUMERIC.key_bytes(&a), NUMERIC.key_bytes(&b));
    }

    #[test]
    fn numerics_are_received_as_sent(digits in special_or_number()) {
        let stored = number(&digits).to_stored();
        let mut bytes = Vec::new();
        to_binary(NUMERIC, &Value::Bytes(&stored), &mut bytes);
        prop_assert_eq!(from_binary(NUMERIC, &bytes), Ok(Datum::Bytes(stored)));
    }

    #[test]
    fn decimals_agree_with_numerics(unscaled in any::<i128>(), scale in 0u8..=38) {
        let unscaled = unscaled % 10i128.pow(37);
        let ty = Type::Decimal { precision: 38, scale };
        let stored = Numeric::from_decimal(unscaled, scale).to_stored();
        let (decimal, numeric) = (Value::Decimal(unscaled), Value::Bytes(&stored));
        prop_assert_eq!(text(ty, &decimal), text(NUMERIC, &numeric));
        let (mut a, mut b) = (Vec::new(), Vec::new());
        to_binary(ty, &decimal, &mut a);
        to_binary(NUMERIC, &numeric, &mut b);
        prop_assert_eq!(&a, &b);
        prop_assert_eq!(from_binary(ty, &a), Ok(Datum::Decimal(unscaled)));
        prop_assert_eq!(from_text(ty, text(ty, &decimal).as_bytes()), Ok(Datum::Decimal(unscaled)));
    }

    #[test]
    fn arithmetic_agrees_with_integers(a in number_text(), b in number_text()) {
        let scale = 45;
        let (x, y) = (unscaled(&a, scale), unscaled(&b, scale));
        let (a, b) = (number(&a), number(&b));
        let at_scale = |n: &Numeric| unscaled(&format!("{}{}", shown(n), if n.scale() == 0 { "." } else { "" }), scale);
        prop_assert_eq!(at_scale(&a.add(&b).expect("fits")), &x + &y);
        prop_assert_eq!(at_scale(&a.sub(&b).expect("fits")), &x - &y);
        prop_assert_eq!(a.cmp(&b), x.cmp(&y));
        if y != BigInt::ZERO {
            prop_assert_eq!(at_scale(&a.rem(&b).expect("not zero")), &x % &y);
        }
        let product = a.mul(&b).expect("fits");
        prop_assert_eq!(product.scale(), a.scale() + b.scale());
        let product = unscaled(&format!("{}.", shown(&product).replace('.', "")), 0);
        let own = |n: &Numeric| unscaled(&format!("{}.", shown(n).replace('.', "")), 0);
        prop_assert_eq!(product, own(&a) * own(&b));
    }

    #[test]
    fn quotients_are_nearest(a in number_text(), b in number_text()) {
        let (a, b) = (number(&a), number(&b));
        prop_assume!(b.signum() != 0);
        let quotient = a.div(&b).expect("not zero");
        // |a - q b| <= |b| / 2 units of the last place.
        let error = a.sub(&quotient.mul(&b).expect("fits")).expect("fits").abs();
        let unit = number(&format!("1e-{}", quotient.scale()));
        let twice = error.mul(&Numeric::from_i64(2)).expect("fits");
        prop_assert!(twice <= b.abs().mul(&unit).expect("fits"));
    }

    #[test]
    fn floats_read_back(bits in any::<u64>()) {
        let float = f64::from_bits(bits);
        prop_assume!(!float.is_nan());
        let Datum::Float(back) = from_text(Type::Float8, text(Type::Float8, &Value::Float(float)).as_bytes()).expect("a float") else {
            panic!("a float reads as a float");
        };
        prop_assert_eq!(back.to_bits(), bits);
        let narrow = f32::from_bits(bits as u32);
        prop_assume!(!narrow.is_nan());
        let Datum::Float(back) = from_text(Type::Float4, text(Type::Float4, &Value::Float(narrow.into())).as_bytes()).expect("a float") else {
            panic!("a float reads as a float");
        };
        prop_assert_eq!((back as f32).to_bits(), narrow.to_bits());
    }

    #[test]
    fn moments_read_back(timestamp in -211_813_488_000_000_000i64..9_223_371_331_200_000_000) {
        for ty in [Type::Timestamp, Type::Timestamptz] {
            let shown = text(ty, &Value::Int(timestamp));
            prop_assert_eq!(from_text(ty, shown.as_bytes()), Ok(Datum::Int(timestamp)), "{}", shown);
        }
        let days = timestamp.div_euclid(86_400_000_000);
        let shown = text(Type::Date, &Value::Int(days));
        prop_assert_eq!(from_text(Type::Date, shown.as_bytes()), Ok(Datum::Int(days)), "{}", shown);
        let time = timestamp.rem_euclid(86_400_000_000);
        let shown = text(Type::Time, &Value::Int(time));
        prop_assert_eq!(from_text(Type::Time, shown.as_bytes()), Ok(Datum::Int(time)), "{}", shown);
    }

    #[test]
    fn bytes_and_uuids_read_back(bytes in prop::collection::vec(any::<u8>(), 0..40), uuid in any::<u128>()) {
        let shown = text(Type::Bytea, &Value::Bytes(&bytes));
        prop_assert_eq!(from_text(Type::Bytea, shown.as_bytes()), Ok(Datum::Bytes(bytes.into())));
        let shown = text(Type::Uuid, &Value::Uuid(uuid));
        prop_assert_eq!(from_text(Type::Uuid, shown.as_bytes()), Ok(Datum::Uuid(uuid)));
    }

    #[test]
    fn like_finds_what_a_search_finds(value in "[abé]{0,12}", pattern in "[abé%_]{0,8}") {
        let (v, p): (Vec<char>, Vec<char>) = (value.chars().collect(), pattern.chars().collect());
        prop_assert_eq!(pattern::like(value.as_bytes(), pattern.as_bytes(), Some('\\'), false), Ok(like_slowly(&v, &p)));
    }

    #[test]
    fn no_input_panics(bytes in prop::collection::vec(any::<u8>(), 0..24), words in "[-+:./ 0-9a-zT]{0,30}") {
        let types = [
            Type::Bool, Type::Int2, Type::Int8, Type::Float4, Type::Float8, NUMERIC, pgtype::numeric(9, 3),
            pgtype::numeric(5, -3), Type::Char(3), Type::Bytea, Type::Date, Type::Time, Type::Timestamp,
            Type::Timestamptz, Type::Uuid,
        ];
        for ty in types {
            for input in [bytes.as_slice(), words.as_bytes()] {
                if let Ok(datum) = from_text(ty, input) {
                    text(ty, &datum.as_value());
                }
                if let Ok(datum) = from_binary(ty, input) {
                    text(ty, &datum.as_value());
                }
            }
        }
    }
}
