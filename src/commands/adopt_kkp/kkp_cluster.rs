//! KKP's object for a user cluster, as far as it says how many replicas the user cluster's manager
//! has: `pkg/apis/kubermatic/v1/cluster.go` and
//! `pkg/resources/operatingsystemmanager/deployment.go` in
//! <https://github.com/kubermatic/kubermatic>.

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Direction;

/// The settings of a user cluster.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default)]
#[kube(
    group = "kubermatic.k8c.io",
    version = "v1",
    kind = "Cluster",
    plural = "clusters",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// What an operator has set for the components of its control plane.
    #[serde(default)]
    components_override: ComponentsOverride,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
struct ComponentsOverride {
    operating_system_manager: Option<OperatingSystemManager>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
struct OperatingSystemManager {
    replicas: Option<i32>,
}

impl Cluster {
    /// Returns true if KKP's manager serves the user cluster, or is to do so.
    pub(super) fn wants_its_manager(&self) -> bool {
        let of_manager = self
            .spec
            .components_override
            .operating_system_manager
            .as_ref();
        of_manager.and_then(|it| it.replicas) != Some(0)
    }
}

/// Returns the merge patch of the Cluster. Without a number, KKP runs one replica.
pub(super) fn patch(direction: Direction) -> Value {
    let replicas = match direction {
        Direction::ToUs => json!(0),
        Direction::Back => Value::Null,
    };
    json!({"spec": {"componentsOverride": {"operatingSystemManager": {"replicas": replicas}}}})
}

/// Returns the command with that patch.
pub fn command(id: &str, direction: Direction) -> String {
    let patch = patch(direction);
    format!("kubectl patch clusters.kubermatic.k8c.io {id} --type merge -p '{patch}'")
}
