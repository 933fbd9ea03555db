//! What COPY FROM reads.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| freshet_sql::fuzz::copy_in(bytes));
