//! Access with a token of the management cluster, which the worker cluster trusts. The token is in
//! memory alone, and is valid in this worker cluster alone.

use super::{EngageError, Keeping};
use crate::api::{condition::ConditionType, reason::Reason};
use crate::client::{connect::Clients, pages, token};
use crate::fleet::{discovery::Registration, engagement::Shared};
use crate::telemetry::chain::chain;
use crate::tenant::{
    access::ClusterAccess,
    id::RegistrationId,
    policy::TenantPolicy,
    secret_text::{SecretBytes, SecretText},
};

/// How long a token is to be valid, in seconds: an hour.
const TOKEN_SECONDS: i64 = 3600;

/// Returns the audience of the tokens for a worker cluster.
pub fn audience(id: &RegistrationId) -> String {
    format!(
        "operatingsystemmanager.k8c.io/{}/{}",
        id.tenant.namespace(),
        id.name
    )
}

/// Returns the access to a worker cluster whose kubeconfig has no credential.
pub(super) async fn federated(
    (shared, management): (&Shared, &Clients),
    policy: &TenantPolicy,
    (registration, kubeconfig): (&Registration, &SecretBytes),
) -> Result<ClusterAccess, EngageError> {
    let token = own_token(shared, management, &registration.id).await?;
    ClusterAccess::parse_federated(kubeconfig.expose(), &policy.access, token).map_err(|error| {
        shared.metrics.failed(error.category());
        let why = chain(&error).to_string();
        EngageError::refused(ConditionType::Registered, Reason::KubeconfigRefused, why)
    })
}

async fn own_token(
    shared: &Shared,
    management: &Clients,
    id: &RegistrationId,
) -> Result<SecretText, EngageError> {
    let failed =
        |why: String| EngageError::failed(ConditionType::Registered, Reason::FederationFailed, why);
    let management = management.client();
    let account = shared.tokens.own_account(&management).await;
    let account = account.map_err(|error| failed(chain(&error).to_string()))?;
    let requested = token::request(&management, account, Some(audience(id)), TOKEN_SECONDS).await;
    requested.map_err(|error| {
        let why = chain(&error);
        failed(if pages::is_forbidden(&error) {
            format!("{why}; apply what `osm rbac management-federation` prints in the management cluster")
        } else {
            why.to_string()
        })
    })
}

/// Uses a new token for all later requests.
///
/// # Errors
///
/// Why there is none. The text is for operators.
pub(super) async fn renew(keeping: Keeping<'_>) -> Result<(), String> {
    let Keeping {
        shared,
        policy,
        attempt,
        ..
    } = keeping;
    let registration = keeping.registered.registration.borrow().clone();
    let registration = registration.ok_or("the registration is gone")?;
    let kubeconfig = registration.kubeconfig.known()?;
    let managed = (shared, keeping.management);
    let access = federated(managed, policy, (&registration, kubeconfig)).await;
    let access = access.map_err(|error| error.message)?;
    if access.principal() != attempt.principal {
        return Err("the registration has changed meanwhile".to_owned());
    }
    let transport = (shared.connector)(&access, &policy.access);
    let transport = transport.map_err(|error| chain(error.as_ref()).to_string())?;
    attempt.transport.renew(transport);
    attempt.expiries.send_replace(access.expiries().into());
    Ok(())
}
