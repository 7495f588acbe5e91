//! Checks whether the manager may renew the token of a registration. It finds out by itself only
//! when the token is a day old.

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Client;

use super::{Check, rights::Subject};
use crate::telemetry::chain::chain;
use crate::tenant::{
    access::{ClusterAccess, renewal::ServiceAccountName},
    id::RegistrationId,
};

const WHAT: &str = "token renewal";

/// Checks it: in the worker cluster as the kubeconfig's identity, and in the management cluster as
/// the manager, if the user may impersonate it.
pub(super) async fn run_check(
    id: &RegistrationId,
    (access, worker): (&ClusterAccess, &Client),
    (management, manager): (&Client, &ServiceAccountName),
) -> Check {
    let place = id.tenant.namespace();
    let Some(account) = access.account() else {
        let message = "the kubeconfig has no token of a ServiceAccount".to_owned();
        let fix = "run osm tenant add --renew-token";
        return Check::wrong(place, WHAT, (message, fix));
    };
    let user = format!(
        "system:serviceaccount:{}:{}",
        manager.namespace, manager.name
    );
    let in_worker = Subject {
        client: worker,
        user: None,
    };
    let in_management = Subject {
        client: management,
        user: Some(&user),
    };
    let token = ("serviceaccounts/token", account.name.as_str(), "create");
    let secret = ("secrets", &*id.name, "update");
    for (subject, namespace, right, [file, unknown]) in [
        (
            in_worker,
            account.namespace.as_str(),
            token,
            [
                "worker-token-renewal.yaml in the worker cluster",
                "run this again once the worker cluster's API server answers; its log says more",
            ],
        ),
        (
            in_management,
            place,
            secret,
            [
                "tenant-token-renewal.yaml in the management cluster",
                "run this as somebody who may impersonate the manager",
            ],
        ),
    ] {
        let wanted = [rule(right)];
        match subject.missing((namespace, namespace), &wanted).await {
            Ok(missing) => {
                if let Some(lacking) = missing.first() {
                    let message = format!("missing: {lacking} in {namespace}");
                    let fix = format!("run osm tenant add --renew-token, or apply {file}");
                    return Check::wrong(place, WHAT, (message, &fix));
                }
            }
            Err(error) => {
                let message = format!("cannot ask for the rights: {}", chain(&error));
                return Check::doubtful(place, WHAT, (message, unknown));
            }
        }
    }
    Check::ok(place, WHAT, "the manager may renew the token")
}

/// Returns the rule that allows this verb for a resource with this name.
fn rule((resource, name, verb): (&str, &str, &str)) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: Some(vec![name.to_owned()]),
        verbs: vec![verb.to_owned()],
        ..PolicyRule::default()
    }
}
