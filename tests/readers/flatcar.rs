//! Our profiles for Flatcar: what they render to is Ignition of version 2.3.0, or a cloud-config
//! that coreos-cloudinit reads, and the scripts do on a machine what they should.
//!
//! `.ci/consumers` installs the programs that a machine does not bring.

use crate::cases::flatcar_cases;

mod coreos_cloudinit;
pub mod ignition;
mod setup;

/// machine-controller does not compress for Flatcar, so AWS's limit is that of the text.
#[test]
fn a_bootstrap_document_stays_below_every_providers_limit() {
    for case in flatcar_cases() {
        let bytes = case.bootstrap.document.len();
        assert!(bytes <= 16_384, "{}: {bytes} bytes", case.name);
    }
}
