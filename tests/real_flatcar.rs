//! Our profiles for Flatcar: what they render to is Ignition of version 2.3.0, or a cloud-config
//! that coreos-cloudinit reads, and the scripts do on a machine what they should.
//!
//! `.ci/consumers` installs the programs that a machine does not bring.

use osm::api::profile::OperatingSystemProfileSpec;

use crate::{
    cases::every_case,
    programs::{check_scripts, check_units, command, run, text, write_program},
    readers::Reader,
};

#[path = "real_flatcar/bootstrap.rs"]
mod bootstrap;
#[path = "real_cloud_init/cases.rs"]
mod cases;
#[path = "real_flatcar/coreos_cloudinit.rs"]
mod coreos_cloudinit;
#[path = "real_flatcar/ignition.rs"]
mod ignition;
#[path = "real_cloud_init/programs.rs"]
mod programs;
#[path = "rendering/readers.rs"]
mod readers;
#[path = "real_cloud_init/root.rs"]
mod root;
#[path = "real_flatcar/setup.rs"]
mod setup;
#[path = "rendering/subject.rs"]
mod subject;

#[test]
fn bash_and_shellcheck_accept_every_script() {
    check_scripts();
}

#[test]
fn systemd_accepts_every_unit() {
    check_units();
}

/// machine-controller does not compress for Flatcar, so AWS's limit is that of the text.
#[test]
fn a_bootstrap_document_stays_below_every_providers_limit() {
    for case in every_case() {
        let bytes = case.bootstrap.document.len();
        assert!(bytes <= 16_384, "{}: {bytes} bytes", case.name);
    }
}

fn is_wanted(spec: &OperatingSystemProfileSpec) -> bool {
    Reader::of(spec) != Reader::CloudInit
}
