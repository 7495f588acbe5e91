//! Reads the kubeconfig of a registration of which only metadata is known.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, core::DeserializeGuard};

use super::EngageError;
use crate::api::{condition::ConditionType, reason::Reason};
use crate::client::connect::Clients;
use crate::fleet::{
    discovery::{self, Registration},
    registry::RegisteredCluster,
};
use crate::telemetry::chain::chain;

/// Returns the registration with its kubeconfig. Those who follow the registration see it, too,
/// unless it has changed since.
///
/// # Errors
///
/// The Secret cannot be read, or is another one by now.
pub async fn read_kubeconfig(
    management: &Clients,
    registered: &RegisteredCluster,
    registration: &Registration,
) -> Result<Arc<Registration>, EngageError> {
    let failed = |why: String| {
        let (registered, refused) = (ConditionType::Registered, Reason::KubeconfigRefused);
        EngageError::failed(
            registered,
            refused,
            format!("cannot read the Secret: {why}"),
        )
    };
    let id = &registration.id;
    let secrets: Api<DeserializeGuard<Secret>> =
        Api::namespaced(management.client(), id.tenant.namespace());
    let secret = secrets.get(&id.name).await;
    let secret = secret.map_err(|error| failed(chain(&error).to_string()))?;
    let read = discovery::registration(&registration.inventory, secret);
    if read.uid != registration.uid {
        return Err(failed("it was deleted, and created again".to_owned()));
    }
    let read = Arc::new(Registration {
        kubeconfig: read.kubeconfig,
        ..registration.clone()
    });
    registered.fill(&read);
    Ok(read)
}
