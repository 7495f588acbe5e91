//! Gives cargo-fuzz's inputs to the target `review`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| osm_fuzz::review(data));
