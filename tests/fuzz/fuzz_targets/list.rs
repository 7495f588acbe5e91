//! Gives cargo-fuzz's inputs to the target `list`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| osm_fuzz::list(data));
