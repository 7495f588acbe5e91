//! Gives cargo-fuzz's inputs to the target `provider_spec`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| osm_fuzz::provider_spec(data));
