//! Gives cargo-fuzz's inputs to the target `kubeconfig`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| osm_fuzz::kubeconfig(data));
