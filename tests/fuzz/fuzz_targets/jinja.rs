//! Gives cargo-fuzz's inputs to the target `jinja`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| osm_fuzz::jinja(data));
