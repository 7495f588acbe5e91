//! What a changed document takes on a machine that runs.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What has to happen on a running machine so that a change is in effect. Each class includes those
/// before it.
#[derive(
    Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema,
)]
#[schemars(inline, description = "")]
pub enum Class {
    /// Nothing: both say the same.
    None,
    /// Its program reads the file again by itself.
    Reload,
    /// Units are restarted that no pod notices.
    RestartUnit,
    /// The kubelet is restarted. Pods go on.
    RestartKubelet,
    /// containerd is restarted. Pods go on.
    RestartContainerd,
    /// The node is drained first, because its pods would notice.
    Drain,
    /// It is read at boot alone.
    Reboot,
    /// Only a new machine has it.
    NewMachine,
}

impl Class {
    /// All classes, the least first.
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::Reload,
        Self::RestartUnit,
        Self::RestartKubelet,
        Self::RestartContainerd,
        Self::Drain,
        Self::Reboot,
        Self::NewMachine,
    ];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Reload => "Reload",
            Self::RestartUnit => "RestartUnit",
            Self::RestartKubelet => "RestartKubelet",
            Self::RestartContainerd => "RestartContainerd",
            Self::Drain => "Drain",
            Self::Reboot => "Reboot",
            Self::NewMachine => "NewMachine",
        }
    }

    /// Returns the class of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}
