//! Gives cargo-fuzz's inputs to the target `go_template`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| osm_fuzz::go_template(data));
