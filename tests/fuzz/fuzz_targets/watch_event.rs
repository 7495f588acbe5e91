//! Gives cargo-fuzz's inputs to the target `watch_event`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| osm_fuzz::watch_event(data));
