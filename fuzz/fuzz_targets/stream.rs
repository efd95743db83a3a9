#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dendro_stream::testing::target::stream(bytes));
