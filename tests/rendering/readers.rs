//! Which documents of the default profiles the tests with real readers render: for which program,
//! cloud providers and kubelets. `docs/compatibility.md` is generated from the same.

use osm::api::profile::{OperatingSystem, OperatingSystemProfileSpec, ProvisioningUtility};

/// The kubelets' versions, one of each supported minor.
pub const KUBELETS: [&str; 4] = ["1.34.1", "1.35.0", "1.36.0", "1.37.0"];

/// The program that reads a profile's documents on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// cloud-init.
    CloudInit,
    /// What Flatcar has in place of cloud-init. No package has it: a test keeps its grammar.
    CoreosCloudinit,
    /// Ignition.
    Ignition,
}

impl Reader {
    /// Returns the reader of a profile's documents.
    pub fn of(profile: &OperatingSystemProfileSpec) -> Self {
        match (&profile.os_name, profile.provisioning_utility) {
            (_, Some(ProvisioningUtility::Ignition)) => Self::Ignition,
            (OperatingSystem::Flatcar, _) => Self::CoreosCloudinit,
            _ => Self::CloudInit,
        }
    }
}

/// Returns the names of the cloud providers that a profile is for.
pub fn providers(profile: &OperatingSystemProfileSpec) -> impl Iterator<Item = &str> {
    let providers = profile.supported_cloud_providers.iter();
    providers.map(|provider| provider.name.as_str())
}
