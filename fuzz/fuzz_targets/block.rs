#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dendro_format::testing::target::block(bytes));
