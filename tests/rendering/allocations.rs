//! How many allocations a render takes, with everything compiled: counted, so that the figure is
//! the same on every machine, busy or not.
//!
//! The allocator counts for a whole program, so this is one of its own. The times are in
//! `cargo bench --bench render`.

use std::sync::Arc;

use osm::{
    api::{
        profile::{File, FileContent, OperatingSystemProfileSpec, PERMISSIONS_DEFAULT},
        weight,
    },
    render::{default_profiles::default_profile, template::CompiledProfile},
};

use crate::subject::Subject;

/// What a warm render of `osp-ubuntu` may take, both documents among it: a tenth more than the 968
/// that it takes. A copy of the profile is a hundred more; a compile is nine thousand.
const ALLOCATIONS_MAX: u64 = 1_065;
/// In bytes, as above, of 276,000: the config in both forms and both documents are half of it.
const BYTES_MAX: u64 = 305_000;

#[test]
fn a_warm_render_takes_no_more_allocations_than_it_did() {
    let profile = default_profile("osp-ubuntu").expect("it is a default profile");
    let profile = CompiledProfile::compile(&profile.spec).expect("it compiles");
    let subject = Subject::new();
    // The first one fills what is kept.
    let first = subject.render(&profile).expect("it renders");
    let counted = allocation_counter::measure(|| {
        let again = subject.render(&profile).expect("it renders");
        assert_eq!(again.config, first.config);
    });
    println!("{counted:?}");
    assert!(counted.count_total <= ALLOCATIONS_MAX, "{counted:?}");
    assert!(counted.bytes_total <= BYTES_MAX, "{counted:?}");
}

/// Tenants reserve half of what their profiles may take.
#[test]
fn a_profile_takes_at_most_twice_what_is_reserved_for_it() {
    let shipped = default_profile("osp-ubuntu").expect("it is a default profile");
    let mut pieces = shipped.spec.clone();
    let small = File {
        path: String::new(),
        permissions: PERMISSIONS_DEFAULT,
        content: FileContent::default(),
    };
    pieces.bootstrap_config.files = vec![small; 1_000];
    let mut names = shipped.spec.clone();
    let numbers = (0..1_000).map(|number| (number.to_string(), String::new()));
    names.provisioning_config.templates = numbers.collect();
    for spec in [shipped.spec.clone(), pieces, names] {
        let json = serde_json::to_vec(&spec).expect("it is plain values");
        let mut kept = None;
        let counted = allocation_counter::measure(|| {
            let read: OperatingSystemProfileSpec =
                serde_json::from_slice(&json).expect("it was just written");
            kept = Some(Arc::new(read));
        });
        let reserved = weight::of(&json);
        println!("{counted:?} of {reserved}");
        let taken = usize::try_from(counted.bytes_current).expect("it is kept");
        assert!(taken <= 2 * reserved, "{taken} of {reserved}");
        drop(kept);
    }
}

#[test]
fn without_its_templates_a_profile_takes_a_kilobyte_and_renders_the_same() {
    let profile = default_profile("osp-ubuntu").expect("it is a default profile");
    let profile = Arc::new(profile.spec.clone());
    let compile = || CompiledProfile::compile_shared(&profile).expect("it compiles");
    // The first one fills what is kept for all.
    let whole = compile();
    let mut kept = None;
    let counted = allocation_counter::measure(|| kept = Some(compile().drop_templates()));
    println!("{counted:?}");
    assert!(counted.bytes_current < 1_024, "{counted:?}");
    let subject = Subject::new();
    let kept = kept.expect("it was compiled");
    let documents = [&whole, &kept].map(|profile| {
        let rendered = subject.render(profile).expect("it renders");
        let documents = [rendered.provisioning, rendered.bootstrap];
        documents.map(|document| document.as_bytes().to_vec())
    });
    let [whole, again] = documents;
    assert_eq!(whole, again);
}
