#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dendro_nbd::testing::take_any(bytes));
