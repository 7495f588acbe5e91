//! How many allocations a render takes, with everything compiled: counted, so that the figure is
//! the same on every machine, busy or not.
//!
//! The allocator counts for a whole program, so this is one of its own. The times are in
//! `cargo bench --bench render`.

use osm::render::{default_profiles::default_profile, template::CompiledProfile};

use subject::Subject;

#[path = "rendering/subject.rs"]
mod subject;

/// What a warm render of `osp-ubuntu` may take, both documents among it: a tenth more than the 871
/// that it takes. A copy of the profile is a hundred more; a compile is nine thousand.
const ALLOCATIONS_MAX: u64 = 960;
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
