//! How newer versions reach a tenant: what its operator says about pace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How newer versions reach a tenant.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// When a newer default profile replaces the installed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_profiles: Option<ProfileRollout>,
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
