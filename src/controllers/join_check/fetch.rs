//! What a machine does first: it fetches its provisioning document.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use super::{Outcome, of_error};
use crate::api::{names::CLOUD_INIT_SETTINGS, reason::Reason};
use crate::controllers::machine_deployment::apply::held_by;

/// Reads the metadata of a provisioning Secret, which requires the same right as a machine needs.
/// `holder` is the Secret with the token, which `manager` may read.
pub(super) async fn fetches(
    (machine, manager): (Client, Client),
    (name, holder): (&str, &str),
) -> Outcome {
    let secrets: Api<Secret> = Api::namespaced(machine, CLOUD_INIT_SETTINGS);
    let Err(error) = secrets.get_metadata(name).await else {
        return Outcome::Can;
    };
    let code = match &error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    };
    let remedy = match code {
        401 => match finalizers(manager, holder).await {
            Some(finalizers) => format!(
                "; Secret {CLOUD_INIT_SETTINGS}/{holder} with their token is being deleted, and \
                 its finalizers hold it: {finalizers}"
            ),
            None => format!(
                "; if their address is that of this cluster, run `kubectl -n \
                 {CLOUD_INIT_SETTINGS} delete secret {holder}` in it, and the manager creates \
                 their token again"
            ),
        },
        404 => "; if it exists in this cluster, their address leads to another one".to_owned(),
        _ => String::new(),
    };
    let secret = format!("Secret {CLOUD_INIT_SETTINGS}/{name}");
    let what = format!("machines cannot fetch {secret}{remedy}");
    of_error(&error, (Reason::FetchRefused, &what))
}

/// Returns the finalizers of the Secret if it is being deleted.
async fn finalizers(manager: Client, name: &str) -> Option<String> {
    let secrets: Api<Secret> = Api::namespaced(manager, CLOUD_INIT_SETTINGS);
    held_by(&secrets.get_metadata_opt(name).await.ok()??.metadata)
}
