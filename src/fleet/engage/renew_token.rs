//! Renews the token in a registration: requests another one in the worker cluster, and writes it
//! into the Secret. That it is used from then on is what happens with every renewed credential.

use std::fmt::Display;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::Api;

use super::Attempt;
use crate::client::{connect::Clients, pages, token, write};
use crate::fleet::{engagement::Shared, registry::RegisteredCluster};
use crate::telemetry::chain::chain;
use crate::tenant::{
    access::{ClusterAccess, kubeconfig_key, renewal::with_token},
    inventory::Inventory,
    policy::TenantPolicy,
    secret_text::SecretBytes,
};

/// How long a renewed token is to be valid, in seconds: a week. The API server may grant less.
pub const TOKEN_SECONDS: i64 = 7 * 24 * 3600;

/// A cluster that is served, as far as its credential is concerned.
#[derive(Clone, Copy)]
pub struct Keeping<'a> {
    /// The state that all tenants share.
    pub shared: &'a Shared,
    /// The registered cluster.
    pub registered: &'a RegisteredCluster,
    /// The tenant's share of the management API.
    pub management: &'a Clients,
    /// The tenant's policy.
    pub policy: &'a TenantPolicy,
    /// How the cluster was engaged.
    pub attempt: &'a Attempt,
}

/// Renews the token of a registration.
///
/// # Errors
///
/// Why it is not renewed. The text is for operators.
pub(super) async fn renew(keeping: Keeping<'_>) -> Result<(), String> {
    let registration = keeping.registered.registration.borrow().clone();
    let registration = registration.ok_or("the registration is gone")?;
    if registration.inventory != Inventory::Label {
        return Err("its Secret belongs to another program, which renews it".to_owned());
    }
    let kubeconfig = registration.kubeconfig.known()?;
    let access = ClusterAccess::parse(kubeconfig.expose(), &keeping.policy.access);
    let access = access.map_err(|error| chain(&error).to_string())?;
    if access.principal() != keeping.attempt.principal {
        return Err("the registration has changed meanwhile".to_owned());
    }
    let account = access
        .account()
        .ok_or("it is not that of a ServiceAccount")?;
    let worker = keeping.attempt.worker.client();
    let token = token::request(&worker, &account, None, TOKEN_SECONDS).await;
    let token = token.map_err(|error| {
        refused(
            &error,
            "apply worker-token-renewal.yaml in the worker cluster",
        )
    })?;
    let renewed = with_token((kubeconfig, &access), &token, &keeping.policy.access);
    let renewed = renewed.map_err(|why| why.to_string())?;
    let secrets: Api<Secret> = Api::namespaced(
        keeping.management.client(),
        registration.id.tenant.namespace(),
    );
    let name = &registration.id.name;
    let found = secrets
        .get(name)
        .await
        .map_err(|error| of_secret(name, &error))?;
    let changed = changed(
        found,
        &registration.inventory.keys(),
        (kubeconfig, &renewed),
    )?;
    let replaced = write::replace(&secrets, name, &changed).await;
    replaced.map_err(|error| of_secret(name, &error))?;
    tracing::info!(registration = %registration.id, "renewed the token");
    Ok(())
}

/// Returns the Secret with another kubeconfig. Its resource version ensures that nothing is
/// overwritten that we have not read.
fn changed(
    mut secret: Secret,
    keys: &[&str],
    (before, renewed): (&SecretBytes, &SecretBytes),
) -> Result<Secret, String> {
    if secret.immutable == Some(true) {
        return Err("the Secret is immutable; create it again without `immutable`".to_owned());
    }
    let data = secret.data.get_or_insert_default();
    let key = kubeconfig_key(data, keys).unwrap_or_default().to_owned();
    match data.get_mut(&key) {
        Some(ByteString(now)) if now == before.expose() => {
            *now = renewed.expose().to_vec();
            Ok(secret)
        }
        _ => Err("the Secret has changed meanwhile".to_owned()),
    }
}

fn of_secret(name: &str, error: &kube::Error) -> String {
    let help = "apply tenant-token-renewal.yaml in the management cluster";
    format!("Secret {name}: {}", refused(error, help))
}

/// Returns the text of an error, with what grants the missing right.
fn refused(error: &kube::Error, help: impl Display) -> String {
    let why = chain(error);
    if pages::is_forbidden(error) {
        return format!("{why}; {help}");
    }
    why.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kubeconfig_that_was_renewed_is_replaced() {
        let [before, renewed] = ["before", "renewed"].map(|it| SecretBytes::new(it.into()));
        let given = |data: &[(&str, &str)]| {
            let data = data.iter();
            let data = data.map(|(key, text)| ((*key).to_owned(), ByteString((*text).into())));
            let secret = Secret {
                data: Some(data.collect()),
                ..Secret::default()
            };
            let keys = ["kubeconfig", "value"];
            let changed = changed(secret, &keys, (&before, &renewed)).ok()?;
            let texts = changed.data?.into_values();
            texts
                .map(|ByteString(it)| String::from_utf8(it).ok())
                .collect::<Option<Vec<_>>>()
        };
        let replaced = given(&[("kubeconfig", "before"), ("value", "before")]);
        assert_eq!(replaced.unwrap(), ["renewed", "before"]);
        let replaced = given(&[("kubeconfig", ""), ("value", "before")]);
        assert_eq!(replaced.unwrap(), ["", "renewed"]);
        for changed in [
            &[("kubeconfig", "another")][..],
            &[("other", "before")],
            &[],
        ] {
            assert_eq!(given(changed), None, "{changed:?}");
        }
        let immutable = Secret {
            immutable: Some(true),
            ..Secret::default()
        };
        let refused = changed(immutable, &["kubeconfig"], (&before, &renewed));
        assert!(refused.unwrap_err().contains("create it again"));
    }
}
