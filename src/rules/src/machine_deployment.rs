//! Which profile serves a machine deployment that names none.

/// No default profile exists for the operating system.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to populate OSP annotation for machinedeployment with unsupported Operating System \
     {operating_system}"
)]
pub struct NoDefaultProfile {
    /// The operating system, as the machine deployment names it.
    pub operating_system: String,
}

impl NoDefaultProfile {
    /// A word for metrics and conditions.
    pub const fn category(&self) -> &'static str {
        "operating_system_unsupported"
    }
}

/// The default profile for an operating system on a cloud provider.
///
/// `utility` is the provisioning utility that the machine deployment asks for, or empty.
///
/// ```
/// use osm_rules::machine_deployment::default_profile;
///
/// assert_eq!(default_profile("ubuntu", "aws", ""), Ok("osp-ubuntu"));
/// assert_eq!(default_profile("flatcar", "aws", "ignition"), Ok("osp-flatcar"));
/// assert!(default_profile("minix", "aws", "").is_err());
/// ```
///
/// # Errors
///
/// No default profile is for the operating system.
pub fn default_profile(
    operating_system: &str,
    cloud_provider: &str,
    utility: &str,
) -> Result<&'static str, NoDefaultProfile> {
    match (operating_system, cloud_provider, utility) {
        // Anexia boots Flatcar with cloud-init, too.
        ("flatcar", "anexia", "cloud-init") => Ok("osp-flatcar-cloud-init"),
        ("flatcar", ..) => Ok("osp-flatcar"),
        ("ubuntu", ..) => Ok("osp-ubuntu"),
        ("amzn2", ..) => Ok("osp-amzn2"),
        ("rockylinux", ..) => Ok("osp-rockylinux"),
        ("rhel", ..) => Ok("osp-rhel"),
        _ => Err(NoDefaultProfile {
            operating_system: operating_system.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operating_system_has_a_default_profile() {
        for (operating_system, cloud_provider, utility, expected) in [
            ("ubuntu", "aws", "", "osp-ubuntu"),
            ("flatcar", "aws", "ignition", "osp-flatcar"),
            ("flatcar", "aws", "cloud-init", "osp-flatcar"),
            ("flatcar", "anexia", "ignition", "osp-flatcar"),
            ("flatcar", "anexia", "", "osp-flatcar"),
            ("flatcar", "anexia", "cloud-init", "osp-flatcar-cloud-init"),
            ("ubuntu", "anexia", "cloud-init", "osp-ubuntu"),
            ("amzn2", "aws", "", "osp-amzn2"),
            ("rockylinux", "vsphere", "", "osp-rockylinux"),
            ("rhel", "azure", "cloud-init", "osp-rhel"),
        ] {
            let chosen = default_profile(operating_system, cloud_provider, utility);
            assert_eq!(
                chosen,
                Ok(expected),
                "{operating_system} {cloud_provider} {utility}"
            );
        }
    }

    #[test]
    fn an_unknown_operating_system_has_none() {
        for name in ["", "Ubuntu", "windows"] {
            let refused = default_profile(name, "aws", "").unwrap_err();
            assert_eq!(
                refused.to_string(),
                format!(
                    "failed to populate OSP annotation for machinedeployment with unsupported \
                     Operating System {name}"
                )
            );
            assert_eq!(refused.category(), "operating_system_unsupported");
        }
    }
}
