//! The table of functions and operators that are each a Rust function of their own; an operator's name is its symbol.

use super::arguments::Arguments;
use super::{FunctionId, Signature};
use super::{catalog, formatting, hash, interval, json, math, moment, network, regex, text};
use crate::error::SqlError;
use crate::value::Datum;
use crate::value::pgtype::NUMERIC;
use freshet_engine::schema::Type::{
    Array, Bool, Bytea, CharByte, Date, Float4, Float8, Int2, Int4, Int8, Interval, Json, Jsonb, Name, Text, Time,
    Timestamp, Timestamptz, Uuid,
};
use freshet_engine::schema::{NetworkKind, OidKind, SystemKind, Type};
use std::sync::LazyLock;

pub(super) type Run = fn(&Arguments<'_>) -> Result<Datum, SqlError>;

pub(super) struct Entry {
    pub name: &'static str,
    arguments: &'static [Type],
    result: Type,
    pub run: Run,
    /// NULL for a NULL argument, without a call.
    pub strict: bool,
    pub volatile: bool,
    /// It depends on the schema or the session.
    pub asks_catalog: bool,
    /// It takes or gives moments, and asks no session's zone.
    pub any_zone: bool,
}

const TEXTS: Type = Array(&Text);
const INTEGERS: Type = Array(&Int4);
const OID: Type = Type::Oid(OidKind::Oid);
const CLASS: Type = Type::Oid(OidKind::Class);
const TREE: Type = Type::System(SystemKind::NodeTree);
const ACL: Type = Array(&Type::System(SystemKind::AclItem));
const NAMES: Type = Array(&Name);
const VOID: Type = Type::System(SystemKind::Void);
const INET: Type = Type::Network(NetworkKind::Inet);
const CIDR: Type = Type::Network(NetworkKind::Cidr);
const MAC: Type = Type::Network(NetworkKind::Mac);
const MAC8: Type = Type::Network(NetworkKind::Mac8);
const LSN: Type = Type::System(SystemKind::Lsn);
const BPCHAR: Type = super::BPCHAR;

macro_rules! entries {
    ($($name:literal ($($argument:expr),*) -> $result:expr, $run:path $(, $how:ident)?;)+) => {
        static ENTRIES: &[Entry] = &[$(Entry {
            name: $name,
            arguments: &[$($argument),*],
            result: $result,
            run: $run,
            strict: !entries!(@is lenient $($how)?),
            volatile: entries!(@is volatile $($how)?),
            asks_catalog: entries!(@is stable $($how)?),
            any_zone: entries!(@is zoneless $($how)?),
        }),+];
    };
    (@is lenient lenient) => { true };
    (@is lenient open) => { true };
    (@is stable stable) => { true };
    (@is stable open) => { true };
    (@is volatile volatile) => { true };
    (@is zoneless zoneless) => { true };
    (@is $which:ident $($other:ident)?) => { false };
}

/// The number of the function with this name, which has one signature.
#[cfg(feature = "query")]
pub(super) fn number_of(name: &str) -> u16 {
    let at = ENTRIES.iter().position(|entry| entry.name == name);
    at.expect("the table has the functions that the code asks it for") as u16
}

pub(super) fn entry(at: u16) -> &'static Entry {
    &ENTRIES[usize::from(at)]
}

pub(super) fn signatures() -> impl Iterator<Item = &'static Signature> {
    static SIGNATURES: LazyLock<Vec<Signature>> = LazyLock::new(|| {
        let signature = |(i, e): (usize, &Entry)| Signature {
            name: e.name,
            id: FunctionId::More(i as u16),
            arguments: e.arguments,
            result: e.result,
        };
        ENTRIES.iter().enumerate().map(signature).collect()
    });
    SIGNATURES.iter()
}

entries! {
    // Intervals, and dates and times with them.
    "+" (Interval, Interval) -> Interval, interval::plus;
    "-" (Interval, Interval) -> Interval, interval::minus;
    "-" (Interval) -> Interval, interval::negated;
    "*" (Interval, Float8) -> Interval, interval::times;
    "*" (Float8, Interval) -> Interval, interval::times;
    "/" (Interval, Float8) -> Interval, interval::divided;
    "+" (Date, Interval) -> Timestamp, interval::date_plus;
    "+" (Interval, Date) -> Timestamp, interval::date_plus;
    "-" (Date, Interval) -> Timestamp, interval::date_minus;
    "+" (Timestamp, Interval) -> Timestamp, interval::timestamp_plus;
    "+" (Interval, Timestamp) -> Timestamp, interval::timestamp_plus;
    "-" (Timestamp, Interval) -> Timestamp, interval::timestamp_minus;
    "+" (Timestamptz, Interval) -> Timestamptz, interval::moment_plus;
    "+" (Interval, Timestamptz) -> Timestamptz, interval::moment_plus;
    "-" (Timestamptz, Interval) -> Timestamptz, interval::moment_minus;
    "+" (Time, Interval) -> Time, interval::time_plus;
    "+" (Interval, Time) -> Time, interval::time_plus;
    "-" (Time, Interval) -> Time, interval::time_minus;
    "-" (Time, Time) -> Interval, interval::times_apart;
    "-" (Timestamp, Timestamp) -> Interval, interval::timestamps_apart;
    "-" (Timestamptz, Timestamptz) -> Interval, interval::timestamps_apart, zoneless;
    "timestamp" (Timestamp, Int4) -> Timestamp, moment::with_digits;
    "timestamptz" (Timestamptz, Int4) -> Timestamptz, moment::with_digits;
    "time" (Time, Int4) -> Time, moment::with_digits;
    "interval" (Interval, Int4) -> Interval, interval::with_digits;
    "justify_days" (Interval) -> Interval, interval::justify_days;
    "justify_hours" (Interval) -> Interval, interval::justify_hours;
    "justify_interval" (Interval) -> Interval, interval::justify_interval;
    "make_interval" (Int4, Int4, Int4, Int4, Int4, Int4, Float8) -> Interval, interval::make_interval;
    "date_part" (Text, Interval) -> Float8, interval::date_part;
    "extract" (Text, Interval) -> NUMERIC, interval::extract;
    "date_trunc" (Text, Interval) -> Interval, interval::date_trunc;
    "isfinite" (Interval) -> Bool, interval::isfinite;
    "age" (Timestamp, Timestamp) -> Interval, interval::age;
    "age" (Timestamptz, Timestamptz) -> Interval, interval::age_of_moments;
    "age" (Timestamp) -> Interval, interval::age_today;
    "age" (Timestamptz) -> Interval, interval::age_today;
    // Dates and times.
    "date_trunc" (Text, Timestamptz, Text) -> Timestamptz, moment::date_trunc_in;
    "date_bin" (Interval, Timestamp, Timestamp) -> Timestamp, moment::date_bin;
    "date_bin" (Interval, Timestamptz, Timestamptz) -> Timestamptz, moment::date_bin, zoneless;
    "timezone" (Text, Timestamp) -> Timestamptz, moment::to_moment, zoneless;
    "timezone" (Text, Timestamptz) -> Timestamp, moment::to_local, zoneless;
    "timezone" (Interval, Timestamp) -> Timestamptz, moment::to_moment_by, zoneless;
    "timezone" (Interval, Timestamptz) -> Timestamp, moment::to_local_by, zoneless;
    "make_time" (Int4, Int4, Float8) -> Time, moment::make_time;
    "make_timestamp" (Int4, Int4, Int4, Int4, Int4, Float8) -> Timestamp, moment::make_timestamp;
    "make_timestamptz" (Int4, Int4, Int4, Int4, Int4, Float8) -> Timestamptz, moment::make_timestamptz;
    "make_timestamptz" (Int4, Int4, Int4, Int4, Int4, Float8, Text) -> Timestamptz, moment::make_timestamptz;
    "to_timestamp" (Float8) -> Timestamptz, moment::to_timestamp, zoneless;
    "clock_timestamp" () -> Timestamptz, moment::clock_timestamp, volatile;
    "timeofday" () -> Text, moment::timeofday, volatile;
    "overlaps" (Timestamp, Timestamp, Timestamp, Timestamp) -> Bool, moment::overlaps, lenient;
    "overlaps" (Timestamptz, Timestamptz, Timestamptz, Timestamptz) -> Bool, moment::overlaps, lenient;
    "overlaps" (Time, Time, Time, Time) -> Bool, moment::overlaps, lenient;
    "to_char" (Timestamp, Text) -> Text, formatting::timestamp_to_char;
    "to_char" (Timestamptz, Text) -> Text, formatting::moment_to_char;
    "to_char" (Interval, Text) -> Text, formatting::interval_to_char;
    "to_char" (NUMERIC, Text) -> Text, formatting::numeric_to_char;
    "to_char" (Int4, Text) -> Text, formatting::integer_to_char;
    "to_char" (Int8, Text) -> Text, formatting::integer_to_char;
    "to_char" (Float4, Text) -> Text, formatting::float_to_char;
    "to_char" (Float8, Text) -> Text, formatting::float_to_char;
    "to_date" (Text, Text) -> Date, formatting::to_date;
    "to_timestamp" (Text, Text) -> Timestamptz, formatting::to_timestamp;
    "to_number" (Text, Text) -> NUMERIC, formatting::to_number;
    // Numbers.
    "sin" (Float8) -> Float8, math::sin;
    "cos" (Float8) -> Float8, math::cos;
    "tan" (Float8) -> Float8, math::tan;
    "cot" (Float8) -> Float8, math::cot;
    "asin" (Float8) -> Float8, math::asin;
    "acos" (Float8) -> Float8, math::acos;
    "atan" (Float8) -> Float8, math::atan;
    "atan2" (Float8, Float8) -> Float8, math::atan2;
    "sind" (Float8) -> Float8, math::sind;
    "cosd" (Float8) -> Float8, math::cosd;
    "tand" (Float8) -> Float8, math::tand;
    "cotd" (Float8) -> Float8, math::cotd;
    "asind" (Float8) -> Float8, math::asind;
    "acosd" (Float8) -> Float8, math::acosd;
    "atand" (Float8) -> Float8, math::atand;
    "atan2d" (Float8, Float8) -> Float8, math::atan2d;
    "sinh" (Float8) -> Float8, math::sinh;
    "cosh" (Float8) -> Float8, math::cosh;
    "tanh" (Float8) -> Float8, math::tanh;
    "asinh" (Float8) -> Float8, math::asinh;
    "acosh" (Float8) -> Float8, math::acosh;
    "atanh" (Float8) -> Float8, math::atanh;
    "degrees" (Float8) -> Float8, math::degrees;
    "radians" (Float8) -> Float8, math::radians;
    "gcd" (Int4, Int4) -> Int4, math::gcd;
    "gcd" (Int8, Int8) -> Int8, math::gcd;
    "gcd" (NUMERIC, NUMERIC) -> NUMERIC, math::gcd_numeric;
    "lcm" (Int4, Int4) -> Int4, math::lcm;
    "lcm" (Int8, Int8) -> Int8, math::lcm;
    "lcm" (NUMERIC, NUMERIC) -> NUMERIC, math::lcm_numeric;
    "factorial" (Int8) -> NUMERIC, math::factorial;
    "random" () -> Float8, math::random, volatile;
    "setseed" (Float8) -> VOID, math::setseed, volatile;
    "width_bucket" (NUMERIC, NUMERIC, NUMERIC, Int4) -> Int4, math::width_bucket_numeric;
    "width_bucket" (Float8, Float8, Float8, Int4) -> Int4, math::width_bucket_float;
    "~" (Int2) -> Int2, math::bit_not;
    "~" (Int4) -> Int4, math::bit_not;
    "~" (Int8) -> Int8, math::bit_not;
    "|/" (Float8) -> Float8, math::sqrt;
    "||/" (Float8) -> Float8, math::cbrt;
    // Text.
    "to_hex" (Int4) -> Text, text::to_hex;
    "to_hex" (Int8) -> Text, text::to_hex;
    "encode" (Bytea, Text) -> Text, text::encode;
    "decode" (Text, Text) -> Bytea, text::decode;
    "sha224" (Bytea) -> Bytea, text::sha224;
    "sha256" (Bytea) -> Bytea, text::sha256;
    "sha384" (Bytea) -> Bytea, text::sha384;
    "sha512" (Bytea) -> Bytea, text::sha512;
    "get_byte" (Bytea, Int4) -> Int4, text::get_byte;
    "set_byte" (Bytea, Int4, Int4) -> Bytea, text::set_byte;
    "get_bit" (Bytea, Int8) -> Int4, text::get_bit;
    "set_bit" (Bytea, Int8, Int4) -> Bytea, text::set_bit;
    "bit_count" (Bytea) -> Int8, text::bit_count;
    "position" (Bytea, Bytea) -> Int4, text::position_bytes;
    "overlay" (Text, Text, Int4) -> Text, text::overlay;
    "overlay" (Text, Text, Int4, Int4) -> Text, text::overlay;
    "overlay" (Bytea, Bytea, Int4) -> Bytea, text::overlay_bytes;
    "overlay" (Bytea, Bytea, Int4, Int4) -> Bytea, text::overlay_bytes;
    "quote_ident" (Text) -> Text, text::quote_ident;
    "name at" (Name, Int4) -> CharByte, text::name_at;
    "quote_literal" (Text) -> Text, text::quote_literal;
    "quote_nullable" (Text) -> Text, text::quote_nullable, lenient;
    "^@" (Text, Text) -> Bool, text::starts_with;
    "convert_from" (Bytea, Text) -> Text, text::convert_from;
    "convert_to" (Text, Text) -> Bytea, text::convert_to;
    "normalize" (Text) -> Text, text::normalize;
    "normalize" (Text, Text) -> Text, text::normalize;
    "is_normalized" (Text) -> Bool, text::is_normalized;
    "is_normalized" (Text, Text) -> Bool, text::is_normalized;
    "unistr" (Text) -> Text, text::unistr;
    "like" (Text, Text) -> Bool, text::like;
    "notlike" (Text, Text) -> Bool, text::not_like;
    "like" (Bytea, Bytea) -> Bool, text::like_bytes;
    "notlike" (Bytea, Bytea) -> Bool, text::not_like_bytes;
    "like_escape" (Text, Text) -> Text, text::like_escape;
    "like_escape" (Bytea, Bytea) -> Bytea, text::like_escape_bytes;
    "string_to_array" (Text, Text) -> TEXTS, text::string_to_array, lenient;
    "string_to_array" (Text, Text, Text) -> TEXTS, text::string_to_array, lenient;
    "parse_ident" (Text) -> TEXTS, text::parse_ident;
    "parse_ident" (Text, Bool) -> TEXTS, text::parse_ident;
    "gen_random_uuid" () -> Uuid, text::gen_random_uuid, volatile;
    // The extension's that makes keys.
    "uuid_generate_v4" () -> Uuid, text::gen_random_uuid, volatile;
    "uuid_nil" () -> Uuid, text::uuid_nil;
    // A subquery's value and how many rows it gave. No text names it.
    "\0only_row" (Text, Int8) -> Text, text::only_row, lenient;
    // Hashes.
    "hashtext" (Text) -> Int4, hash::of_bytes;
    "hashtextextended" (Text, Int8) -> Int8, hash::of_bytes;
    "hashname" (Name) -> Int4, hash::of_bytes;
    "hashnameextended" (Name, Int8) -> Int8, hash::of_bytes;
    "hashbpchar" (BPCHAR) -> Int4, hash::of_padded;
    "hashbpcharextended" (BPCHAR, Int8) -> Int8, hash::of_padded;
    "hashint2" (Int2) -> Int4, hash::of_int;
    "hashint2extended" (Int2, Int8) -> Int8, hash::of_int;
    "hashint4" (Int4) -> Int4, hash::of_int;
    "hashint4extended" (Int4, Int8) -> Int8, hash::of_int;
    "hashint8" (Int8) -> Int4, hash::of_int;
    "hashint8extended" (Int8, Int8) -> Int8, hash::of_int;
    "hashoid" (OID) -> Int4, hash::of_oid;
    "hashoidextended" (OID, Int8) -> Int8, hash::of_oid;
    "hashfloat4" (Float4) -> Int4, hash::of_float;
    "hashfloat4extended" (Float4, Int8) -> Int8, hash::of_float;
    "hashfloat8" (Float8) -> Int4, hash::of_float;
    "hashfloat8extended" (Float8, Int8) -> Int8, hash::of_float;
    "time_hash" (Time) -> Int4, hash::of_int;
    "time_hash_extended" (Time, Int8) -> Int8, hash::of_int;
    "timestamp_hash" (Timestamp) -> Int4, hash::of_int;
    "timestamp_hash_extended" (Timestamp, Int8) -> Int8, hash::of_int;
    "uuid_hash" (Uuid) -> Int4, hash::of_uuid;
    "uuid_hash_extended" (Uuid, Int8) -> Int8, hash::of_uuid;
    "hashinet" (INET) -> Int4, hash::of_network;
    "hashinetextended" (INET, Int8) -> Int8, hash::of_network;
    "hashmacaddr" (MAC) -> Int4, hash::of_bytes;
    "hashmacaddrextended" (MAC, Int8) -> Int8, hash::of_bytes;
    "hashmacaddr8" (MAC8) -> Int4, hash::of_bytes;
    "hashmacaddr8extended" (MAC8, Int8) -> Int8, hash::of_bytes;
    // Addresses.
    "<<" (INET, INET) -> Bool, network::is_within;
    "<<=" (INET, INET) -> Bool, network::is_within_or_equal;
    ">>" (INET, INET) -> Bool, network::contains;
    ">>=" (INET, INET) -> Bool, network::contains_or_equals;
    "&&" (INET, INET) -> Bool, network::overlaps;
    "~" (INET) -> INET, network::not;
    "&" (INET, INET) -> INET, network::and;
    "|" (INET, INET) -> INET, network::or;
    "+" (INET, Int8) -> INET, network::plus;
    "+" (Int8, INET) -> INET, network::plus;
    "-" (INET, Int8) -> INET, network::minus;
    "-" (INET, INET) -> Int8, network::apart;
    "abbrev" (INET) -> Text, network::abbrev;
    "abbrev" (CIDR) -> Text, network::abbrev;
    "broadcast" (INET) -> INET, network::broadcast;
    "family" (INET) -> Int4, network::family;
    "host" (INET) -> Text, network::host;
    "hostmask" (INET) -> INET, network::hostmask;
    "inet_merge" (INET, INET) -> CIDR, network::inet_merge;
    "inet_same_family" (INET, INET) -> Bool, network::inet_same_family;
    "masklen" (INET) -> Int4, network::masklen;
    "netmask" (INET) -> INET, network::netmask;
    "network" (INET) -> CIDR, network::network;
    "set_masklen" (INET, Int4) -> INET, network::set_masklen;
    "set_masklen" (CIDR, Int4) -> CIDR, network::set_masklen;
    "~" (MAC) -> MAC, network::not_mac;
    "~" (MAC8) -> MAC8, network::not_mac;
    "&" (MAC, MAC) -> MAC, network::and_mac;
    "&" (MAC8, MAC8) -> MAC8, network::and_mac;
    "|" (MAC, MAC) -> MAC, network::or_mac;
    "|" (MAC8, MAC8) -> MAC8, network::or_mac;
    "trunc" (MAC) -> MAC, network::trunc_mac;
    "trunc" (MAC8) -> MAC8, network::trunc_mac;
    "macaddr8_set7bit" (MAC8) -> MAC8, network::macaddr8_set7bit;
    // Regular expressions.
    "~" (Text, Text) -> Bool, regex::matches;
    "~*" (Text, Text) -> Bool, regex::matches_folded;
    "!~" (Text, Text) -> Bool, regex::differs;
    "!~*" (Text, Text) -> Bool, regex::differs_folded;
    "similar to" (Text, Text, Text) -> Bool, regex::similar;
    "regexp_like" (Text, Text) -> Bool, regex::regexp_like;
    "regexp_like" (Text, Text, Text) -> Bool, regex::regexp_like;
    "regexp_match" (Text, Text) -> TEXTS, regex::regexp_match;
    "regexp_match" (Text, Text, Text) -> TEXTS, regex::regexp_match;
    "regexp_replace" (Text, Text, Text) -> Text, regex::regexp_replace;
    "regexp_replace" (Text, Text, Text, Text) -> Text, regex::regexp_replace;
    "regexp_replace" (Text, Text, Text, Int4) -> Text, regex::regexp_replace_from;
    "regexp_replace" (Text, Text, Text, Int4, Int4) -> Text, regex::regexp_replace_from;
    "regexp_replace" (Text, Text, Text, Int4, Int4, Text) -> Text, regex::regexp_replace_from;
    "regexp_split_to_array" (Text, Text) -> TEXTS, regex::regexp_split_to_array;
    "regexp_split_to_array" (Text, Text, Text) -> TEXTS, regex::regexp_split_to_array;
    "regexp_count" (Text, Text) -> Int4, regex::regexp_count;
    "regexp_count" (Text, Text, Int4) -> Int4, regex::regexp_count;
    "regexp_count" (Text, Text, Int4, Text) -> Int4, regex::regexp_count;
    "regexp_instr" (Text, Text) -> Int4, regex::regexp_instr;
    "regexp_instr" (Text, Text, Int4) -> Int4, regex::regexp_instr;
    "regexp_instr" (Text, Text, Int4, Int4) -> Int4, regex::regexp_instr;
    "regexp_instr" (Text, Text, Int4, Int4, Int4) -> Int4, regex::regexp_instr;
    "regexp_instr" (Text, Text, Int4, Int4, Int4, Text) -> Int4, regex::regexp_instr;
    "regexp_instr" (Text, Text, Int4, Int4, Int4, Text, Int4) -> Int4, regex::regexp_instr;
    "regexp_substr" (Text, Text) -> Text, regex::regexp_substr;
    "regexp_substr" (Text, Text, Int4) -> Text, regex::regexp_substr;
    "regexp_substr" (Text, Text, Int4, Int4) -> Text, regex::regexp_substr;
    "regexp_substr" (Text, Text, Int4, Int4, Text) -> Text, regex::regexp_substr;
    "regexp_substr" (Text, Text, Int4, Int4, Text, Int4) -> Text, regex::regexp_substr;
    "substring" (Text, Text) -> Text, regex::substring;
    "substring" (Text, Text, Text) -> Text, regex::substring_similar;
    // The catalog.
    "format_type" (OID, Int4) -> Text, catalog::format_type, open;
    "pg_get_expr" (TREE, OID) -> Text, catalog::pg_get_expr, stable;
    "pg_get_expr" (TREE, OID, Bool) -> Text, catalog::pg_get_expr, stable;
    "pg_get_constraintdef" (OID) -> Text, catalog::pg_get_constraintdef, stable;
    "pg_get_constraintdef" (OID, Bool) -> Text, catalog::pg_get_constraintdef, stable;
    "pg_get_indexdef" (OID) -> Text, catalog::pg_get_indexdef, stable;
    "pg_get_indexdef" (OID, Int4, Bool) -> Text, catalog::pg_get_indexdef, stable;
    "pg_get_viewdef" (OID) -> Text, catalog::pg_get_viewdef, stable;
    "pg_get_viewdef" (OID, Bool) -> Text, catalog::pg_get_viewdef, stable;
    "pg_get_viewdef" (OID, Int4) -> Text, catalog::pg_get_viewdef, stable;
    "pg_get_viewdef" (Text) -> Text, catalog::pg_get_viewdef, stable;
    "pg_get_viewdef" (Text, Bool) -> Text, catalog::pg_get_viewdef, stable;
    "pg_get_ruledef" (OID) -> Text, catalog::pg_get_ruledef, stable;
    "pg_get_ruledef" (OID, Bool) -> Text, catalog::pg_get_ruledef, stable;
    "pg_get_triggerdef" (OID) -> Text, catalog::nothing;
    "pg_get_triggerdef" (OID, Bool) -> Text, catalog::nothing;
    "pg_get_partkeydef" (OID) -> Text, catalog::nothing;
    "pg_get_partition_constraintdef" (OID) -> Text, catalog::nothing;
    "pg_get_statisticsobjdef" (OID) -> Text, catalog::nothing;
    "pg_get_statisticsobjdef_columns" (OID) -> Text, catalog::nothing;
    "pg_get_functiondef" (OID) -> Text, catalog::nothing;
    "pg_get_function_sqlbody" (OID) -> Text, catalog::nothing;
    "pg_get_function_arguments" (OID) -> Text, catalog::pg_get_function_arguments, stable;
    "pg_get_function_identity_arguments" (OID) -> Text, catalog::pg_get_function_arguments, stable;
    "pg_get_function_result" (OID) -> Text, catalog::pg_get_function_result, stable;
    "pg_get_userbyid" (OID) -> Name, catalog::pg_get_userbyid, stable;
    "pg_get_serial_sequence" (Text, Text) -> Text, catalog::pg_get_serial_sequence, stable;
    "to_regclass" (Text) -> CLASS, catalog::to_regclass, stable;
    "to_regtype" (Text) -> Type::Oid(OidKind::Type), catalog::to_regtype, stable;
    "to_regproc" (Text) -> Type::Oid(OidKind::Proc), catalog::to_regproc, stable;
    "to_regprocedure" (Text) -> Type::Oid(OidKind::Procedure), catalog::to_regprocedure, stable;
    "to_regnamespace" (Text) -> Type::Oid(OidKind::Namespace), catalog::to_regnamespace, stable;
    "to_regrole" (Text) -> Type::Oid(OidKind::Role), catalog::to_regrole, stable;
    "to_regcollation" (Text) -> Type::Oid(OidKind::Collation), catalog::to_regcollation, stable;
    "pg_table_is_visible" (OID) -> Bool, catalog::pg_table_is_visible, stable;
    "pg_type_is_visible" (OID) -> Bool, catalog::pg_type_is_visible, stable;
    "pg_function_is_visible" (OID) -> Bool, catalog::is_visible;
    "pg_operator_is_visible" (OID) -> Bool, catalog::is_visible;
    "pg_opclass_is_visible" (OID) -> Bool, catalog::is_visible;
    "pg_opfamily_is_visible" (OID) -> Bool, catalog::is_visible;
    "pg_conversion_is_visible" (OID) -> Bool, catalog::is_visible;
    "pg_collation_is_visible" (OID) -> Bool, catalog::is_visible;
    "pg_statistics_obj_is_visible" (OID) -> Bool, catalog::is_visible;
    "pg_ts_config_is_visible" (OID) -> Bool, catalog::is_visible;
    "pg_ts_dict_is_visible" (OID) -> Bool, catalog::is_visible;
    "pg_ts_parser_is_visible" (OID) -> Bool, catalog::is_visible;
    "pg_ts_template_is_visible" (OID) -> Bool, catalog::is_visible;
    "current_schemas" (Bool) -> NAMES, catalog::current_schemas, stable;
    "pg_my_temp_schema" () -> OID, catalog::pg_my_temp_schema, stable;
    "pg_is_other_temp_schema" (OID) -> Bool, catalog::pg_is_other_temp_schema, stable;
    "obj_description" (OID) -> Text, catalog::obj_description, stable;
    "obj_description" (OID, Name) -> Text, catalog::obj_description, stable;
    "col_description" (OID, Int4) -> Text, catalog::col_description, stable;
    "shobj_description" (OID, Name) -> Text, catalog::shobj_description, stable;
    "pg_encoding_to_char" (Int4) -> Name, catalog::pg_encoding_to_char;
    "pg_char_to_encoding" (Name) -> Int4, catalog::pg_char_to_encoding;
    "pg_client_encoding" () -> Name, catalog::encoding;
    "getdatabaseencoding" () -> Name, catalog::encoding;
    "pg_relation_size" (CLASS) -> Int8, catalog::pg_relation_size, stable;
    "pg_relation_size" (CLASS, Text) -> Int8, catalog::pg_relation_size, stable;
    // Nobody counts them.
    "pg_stat_get_numscans" (OID) -> Int8, catalog::zero;
    "pg_table_size" (CLASS) -> Int8, catalog::pg_relation_size, stable;
    "pg_indexes_size" (CLASS) -> Int8, catalog::pg_indexes_size, stable;
    "pg_total_relation_size" (CLASS) -> Int8, catalog::pg_total_relation_size, stable;
    "pg_database_size" (Name) -> Int8, catalog::pg_database_size, stable;
    "pg_database_size" (OID) -> Int8, catalog::pg_database_size, stable;
    "pg_tablespace_size" (Name) -> Int8, catalog::pg_tablespace_size, stable;
    "pg_tablespace_size" (OID) -> Int8, catalog::pg_tablespace_size, stable;
    "pg_tablespace_location" (OID) -> Text, catalog::pg_tablespace_location;
    "pg_size_pretty" (Int8) -> Text, catalog::pg_size_pretty;
    "pg_size_pretty" (NUMERIC) -> Text, catalog::pg_size_pretty;
    "pg_size_bytes" (Text) -> Int8, catalog::pg_size_bytes;
    "pg_relation_filenode" (CLASS) -> OID, catalog::nothing;
    "pg_relation_is_publishable" (CLASS) -> Bool, catalog::pg_relation_is_publishable, stable;
    "pg_sequence_last_value" (CLASS) -> Int8, catalog::pg_sequence_last_value, stable;
    "pg_is_in_recovery" () -> Bool, catalog::not_in_recovery;
    "acldefault" (CharByte, OID) -> ACL, catalog::acldefault, stable;
    "oidvectortypes" (Array(&OID)) -> Text, catalog::oidvectortypes, stable;
    "pg_get_function_arg_default" (OID, Int4) -> Text, catalog::nothing;
    "pg_get_statisticsobjdef_expressions" (OID) -> TEXTS, catalog::nothing;
    "pg_partition_root" (CLASS) -> CLASS, catalog::nothing;
    "pg_collation_actual_version" (OID) -> Text, catalog::nothing;
    "pg_database_collation_actual_version" (OID) -> Text, catalog::nothing;
    "pg_current_logfile" () -> Text, catalog::nothing;
    "pg_current_logfile" (Text) -> Text, catalog::nothing;
    "pg_last_wal_receive_lsn" () -> LSN, catalog::nothing;
    "pg_last_wal_replay_lsn" () -> LSN, catalog::nothing;
    "pg_last_xact_replay_timestamp" () -> Timestamptz, catalog::nothing, zoneless;
    "pg_is_wal_replay_paused" () -> Bool, catalog::not_recovering;
    "pg_jit_available" () -> Bool, catalog::no;
    "row_security_active" (OID) -> Bool, catalog::no;
    "row_security_active" (Text) -> Bool, catalog::row_security_active, stable;
    "pg_trigger_depth" () -> Int4, catalog::zero;
    "pg_encoding_max_length" (Int4) -> Int4, catalog::pg_encoding_max_length;
    "pg_safe_snapshot_blocking_pids" (Int4) -> INTEGERS, catalog::nobody;
    "pg_stat_clear_snapshot" () -> VOID, catalog::done, volatile;
    "pg_stat_force_next_flush" () -> VOID, catalog::done, volatile;
    "pg_relation_is_updatable" (CLASS, Bool) -> Int4, catalog::pg_relation_is_updatable, stable;
    "pg_column_is_updatable" (CLASS, Int2, Bool) -> Bool, catalog::pg_column_is_updatable, stable;
    "pg_get_replica_identity_index" (CLASS) -> CLASS, catalog::pg_get_replica_identity_index, stable;
    "pg_indexam_has_property" (OID, Text) -> Bool, catalog::pg_indexam_has_property;
    "pg_index_has_property" (CLASS, Text) -> Bool, catalog::pg_index_has_property, stable;
    "pg_index_column_has_property" (CLASS, Int4, Text) -> Bool, catalog::pg_index_column_has_property, stable;
    // Documents.
    "->" (Json, Text) -> Json, json::field;
    "->" (Json, Int4) -> Json, json::element;
    "->" (Jsonb, Text) -> Jsonb, json::field;
    "->" (Jsonb, Int4) -> Jsonb, json::element;
    "->>" (Json, Text) -> Text, json::field;
    "->>" (Json, Int4) -> Text, json::element;
    "->>" (Jsonb, Text) -> Text, json::field;
    "->>" (Jsonb, Int4) -> Text, json::element;
    "#>" (Json, TEXTS) -> Json, json::at_path;
    "#>" (Jsonb, TEXTS) -> Jsonb, json::at_path;
    "#>>" (Json, TEXTS) -> Text, json::at_path;
    "#>>" (Jsonb, TEXTS) -> Text, json::at_path;
    "@>" (Jsonb, Jsonb) -> Bool, json::contains;
    "<@" (Jsonb, Jsonb) -> Bool, json::is_contained;
    "?" (Jsonb, Text) -> Bool, json::has_key;
    "?|" (Jsonb, TEXTS) -> Bool, json::has_any_key;
    "?&" (Jsonb, TEXTS) -> Bool, json::has_all_keys;
    "||" (Jsonb, Jsonb) -> Jsonb, json::merge;
    "-" (Jsonb, Text) -> Jsonb, json::delete_key;
    "-" (Jsonb, Int4) -> Jsonb, json::delete_element;
    "-" (Jsonb, TEXTS) -> Jsonb, json::delete_keys;
    "#-" (Jsonb, TEXTS) -> Jsonb, json::delete_path;
    "json_typeof" (Json) -> Text, json::type_of;
    "jsonb_typeof" (Jsonb) -> Text, json::type_of;
    "json_array_length" (Json) -> Int4, json::array_length;
    "jsonb_array_length" (Jsonb) -> Int4, json::array_length;
    "jsonb_set" (Jsonb, TEXTS, Jsonb) -> Jsonb, json::set;
    "jsonb_set" (Jsonb, TEXTS, Jsonb, Bool) -> Jsonb, json::set;
    "jsonb_set_lax" (Jsonb, TEXTS, Jsonb) -> Jsonb, json::set_lax, lenient;
    "jsonb_set_lax" (Jsonb, TEXTS, Jsonb, Bool) -> Jsonb, json::set_lax, lenient;
    "jsonb_set_lax" (Jsonb, TEXTS, Jsonb, Bool, Text) -> Jsonb, json::set_lax, lenient;
    "jsonb_insert" (Jsonb, TEXTS, Jsonb) -> Jsonb, json::insert;
    "jsonb_insert" (Jsonb, TEXTS, Jsonb, Bool) -> Jsonb, json::insert;
    "jsonb_strip_nulls" (Jsonb) -> Jsonb, json::strip_nulls;
    "json_strip_nulls" (Json) -> Json, json::strip_nulls;
    "jsonb_pretty" (Jsonb) -> Text, json::pretty;
    "json_object" (TEXTS) -> Json, json::object_of_pairs;
    "jsonb_object" (TEXTS) -> Jsonb, json::object_of_pairs;
    "json_object" (TEXTS, TEXTS) -> Json, json::object_of_two;
    "jsonb_object" (TEXTS, TEXTS) -> Jsonb, json::object_of_two;
}
