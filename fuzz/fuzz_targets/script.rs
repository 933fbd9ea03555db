//! A script of statements.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| freshet_sql::fuzz::script(bytes));
