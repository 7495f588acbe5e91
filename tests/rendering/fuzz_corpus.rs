//! The inputs that fuzzing is begun with and those that it found, given to their targets:
//! `tests/fuzz/corpus/TARGET/` has them. docs/testing.md says how to look for more.

use std::{fs, panic, path::Path};

#[path = "../fuzz/src/lib.rs"]
#[expect(
    clippy::duplicate_mod,
    reason = "for cargo fuzz it is a crate of its own"
)]
mod targets;

#[test]
fn every_kept_input_holds_what_its_target_demands() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    let mut broken = Vec::new();
    for (name, target) in targets::TARGETS {
        let folder = corpus.join(name);
        let inputs: Vec<_> = fs::read_dir(&folder)
            .expect("every target has a folder of inputs")
            .map(|entry| entry.expect("a folder can be read").path())
            .collect();
        assert!(!inputs.is_empty(), "{name} has no input");
        for input in inputs {
            let data = fs::read(&input).expect("an input is readable");
            if panic::catch_unwind(|| target(&data)).is_err() {
                broken.push(input.display().to_string());
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn a_target_bites() {
    let secret = "{\"operatingSystem\":\"ubuntu\",\"cloudProvider\":\"aws\",\"sshPublicKeys\":[\"hidden-x\"]}";
    let outcome = panic::catch_unwind(|| targets::provider_spec(secret.as_bytes()));
    assert!(
        outcome.is_err(),
        "a secret in a stored config goes unnoticed"
    );
}
