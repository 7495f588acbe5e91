//! Gives cargo-fuzz's inputs to the target `kubelet_annotations`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| osm_fuzz::kubelet_annotations(data));
