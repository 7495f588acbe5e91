//! How newer versions are rolled out to a tenant and its machines.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::Class;

/// How newer versions are rolled out to a tenant.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// When a newer default profile replaces the installed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_profiles: Option<ProfileRollout>,
    /// Controls the replacement of machines that were created from another document than machines
    /// get now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machines: Option<MachineRollout>,
}

/// When a newer default profile replaces the installed one.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum ProfileRollout {
    /// When the tenant has a rollout slot in its fleet.
    #[default]
    Waves,
    /// Immediately, before all other tenants.
    Immediate,
    /// Not at all, until this setting is changed.
    Manual,
}

/// Controls the replacement of machines that were created from another document than machines get
/// now.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineRollout {
    /// When machines are replaced.
    pub replace: MachineReplacement,
    /// The maximum number of machine deployments that replace their machines at the same time.
    #[schemars(with = "i32", range(min = 1, max = 1000))]
    pub max_concurrent: u32,
    /// Machines are not replaced by a change that takes less than this. Absent means the
    /// fleet's default, or `Reload`: a change without an effect replaces nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_class: Option<Class>,
    /// The manager does nothing to running machines if a change takes more than this, unless it is
    /// permitted for that change. Absent means the fleet's default, or that there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_class: Option<Class>,
}

impl MachineRollout {
    /// Returns these settings, with the classes of others where they name none.
    #[must_use]
    pub fn or_classes_of(self, defaults: Self) -> Self {
        Self {
            min_class: self.min_class.or(defaults.min_class),
            max_class: self.max_class.or(defaults.max_class),
            ..self
        }
    }
}

impl Default for MachineRollout {
    fn default() -> Self {
        Self {
            replace: MachineReplacement::default(),
            max_concurrent: 1,
            min_class: None,
            max_class: None,
        }
    }
}

/// When machines are replaced.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum MachineReplacement {
    /// Never. Users replace them.
    #[default]
    Never,
    /// When machines get another document than the one from which they were created.
    WhenOutdated,
}
