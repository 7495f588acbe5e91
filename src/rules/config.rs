//! What may be done to a config.

use crate::api::config::OperatingSystemConfigSpec;

/// Why a config is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigRefused {
    /// A config never changes; a rotation makes another one.
    #[error("OperatingSystemConfig is immutable and updates are not allowed")]
    Immutable,
}

impl ConfigRefused {
    /// A word for metrics and conditions.
    pub const fn category(self) -> &'static str {
        match self {
            Self::Immutable => "config_immutable",
        }
    }
}

/// Judges an update.
pub fn check_update(
    old: &OperatingSystemConfigSpec,
    new: &OperatingSystemConfigSpec,
) -> Result<(), ConfigRefused> {
    if old == new {
        Ok(())
    } else {
        Err(ConfigRefused::Immutable)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_config_is_immutable_whatever_changes() {
        let spec = |config: serde_json::Value| -> OperatingSystemConfigSpec {
            let mut spec = json!({
                "osName": "ubuntu", "osVersion": "24.04", "cloudProvider": { "name": "aws" },
                "bootstrapConfig": {}, "provisioningConfig": {},
            });
            spec["provisioningConfig"] = config;
            serde_json::from_value(spec).unwrap()
        };
        let old = spec(json!({}));
        // Empty and absent are the same to whoever reads the config.
        assert_eq!(check_update(&old, &spec(json!({ "files": [] }))), Ok(()));
        let changed = spec(json!({ "userSSHKeys": ["ssh-ed25519 AAAA"] }));
        let refused = check_update(&old, &changed).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "OperatingSystemConfig is immutable and updates are not allowed"
        );
        assert_eq!(refused.category(), "config_immutable");
    }
}
