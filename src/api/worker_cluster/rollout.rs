//! How newer versions reach a tenant and its machines: what its operator says about pace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How newer versions reach a tenant.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// When a newer default profile replaces the installed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_profiles: Option<ProfileRollout>,
    /// Whether machines are replaced that were made from another document than the one that
    /// machines get now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machines: Option<MachineRollout>,
}

/// When a newer default profile replaces the installed one.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum ProfileRollout {
    /// When the tenant's turn has come, among all tenants of the fleet.
    #[default]
    Waves,
    /// At once: this tenant goes ahead of all others.
    Immediate,
    /// Not at all, until this is changed.
    Manual,
}

/// Whether machines are replaced that were made from another document than the one that machines
/// get now.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineRollout {
    /// When machines are replaced.
    pub replace: MachineReplacement,
    /// How many machine deployments replace their machines at the same time.
    #[schemars(with = "i32", range(min = 1, max = 1000))]
    pub max_concurrent: u32,
}

impl Default for MachineRollout {
    fn default() -> Self {
        Self {
            replace: MachineReplacement::default(),
            max_concurrent: 1,
        }
    }
}

/// When machines are replaced.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum MachineReplacement {
    /// Never by us: users decide.
    #[default]
    Never,
    /// When machines get another document than the one that they were made from.
    WhenOutdated,
}
