//! Checks one tenant: whether its kubeconfig is accepted and works, the rights in the worker
//! cluster, and what the cluster reports about itself.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, ResourceExt};

use super::{
    Check, conditions,
    connection::{Answer, clock, reach_tenant, refused_by_worker},
    memory, renewal, rights,
    rights::Subject,
};
use crate::api::{
    names::CLOUD_INIT_SETTINGS,
    worker_cluster::{Credentials, Home, NodeCredentials, WorkerCluster, WorkerClusterStatus},
};
use crate::commands::{
    cluster_client::as_the_manager,
    managers::{Fleets, Serving, Unserved},
    worker_access::WorkerAccess,
};
use crate::fleet::{
    cluster_info::{self, InUse},
    engage,
};
use crate::telemetry::chain::{chain, whole};
use crate::tenant::{
    access::{AccessRules, ClusterAccess, renewal::ServiceAccountName},
    id::{RegistrationId, TenantId},
};

/// What the checks of all tenants share.
#[derive(Clone, Copy)]
pub(super) struct By<'a> {
    /// The manager's rules for kubeconfigs.
    pub rules: &'a AccessRules,
    /// The keys under which Secrets may have their kubeconfigs.
    pub keys: &'a [&'a str],
    /// How far the management cluster's clock is ahead of this machine's.
    pub here: Option<SignedDuration>,
    /// The management cluster, and the manager's ServiceAccount there.
    pub manager: (&'a Client, &'a ServiceAccountName),
    /// The fleets of the management cluster, if they are known.
    pub fleets: Option<&'a Fleets>,
}

/// Checks one tenant.
pub(super) async fn run_checks(
    by: By<'_>,
    secret: &Secret,
    own: Option<&WorkerCluster>,
) -> Vec<Check> {
    let rules = by.rules;
    let place = secret.namespace().unwrap_or_default();
    let place = place.as_str();
    let mut checks = own.map_or_else(Vec::new, |own| state(place, own, by));
    let credentials = own.map(|own| own.spec.credentials).unwrap_or_default();
    let registered = WorkerAccess {
        secret,
        keys: by.keys,
        credentials,
    };
    let access = match registered.access(rules) {
        Ok(access) => access,
        Err(error) => {
            let fix = "correct the kubeconfig in the Secret, or create it again by osm tenant add";
            checks.push(Check::wrong(
                place,
                "kubeconfig",
                (whole(error.as_ref()).to_string(), fix),
            ));
            return checks;
        }
    };
    let server = access.server.url();
    checks.push(Check::ok(
        place,
        "kubeconfig",
        format!("accepted, for {server}"),
    ));
    let access = match registered.access_of(by.manager, rules).await {
        Ok(access) => access,
        Err(error) => {
            let message = format!("{}; nothing more is checked", whole(error.as_ref()));
            let fix = "run the command as a user who may create serviceaccounts/token there";
            checks.push(Check::doubtful(place, "token", (message, fix)));
            return checks;
        }
    };
    let client = match as_the_manager(&access, rules) {
        Ok(client) => client,
        Err(error) => {
            let fix = "put another kubeconfig into the Secret";
            checks.push(Check::wrong(
                place,
                "kubeconfig",
                (whole(error.as_ref()).to_string(), fix),
            ));
            return checks;
        }
    };
    let id = RegistrationId::new(place, &secret.name_any());
    checks.extend(in_cluster((&id, own), (&access, &client), by).await);
    checks
}

/// Checks who serves a tenant, and what its conditions say. They say nothing if nobody does.
fn state(place: &str, own: &WorkerCluster, by: By<'_>) -> Vec<Check> {
    let what = "served";
    let fleet = own.status.as_ref().and_then(WorkerClusterStatus::fleet);
    let tenant = TenantId::new(place);
    let serving = by
        .fleets
        .map(|fleets| fleets.serving(&tenant, fleet.as_ref()));
    if let Some(Serving::Nobody(unserved, why)) = serving {
        let fix = match unserved {
            Unserved::NoManager => "see the check of replicas above",
            Unserved::NoLease => "pass --manager-namespace if its manager runs elsewhere",
            Unserved::NotWatched => {
                "start the manager for this namespace, too, or remove the tenant"
            }
        };
        let message = format!("{why}: its conditions say what was");
        return vec![Check::wrong(place, what, (message, fix))];
    }
    let mut checks = conditions::run_checks(place, own);
    match serving {
        Some(Serving::By(replica)) => {
            checks.push(Check::ok(place, what, format!("by replica {replica}")));
        }
        Some(Serving::Elsewhere(fleet)) => {
            let message = format!("by fleet {fleet}, whose Leases cannot be read");
            let fix = "use a kubeconfig that may list Leases there";
            checks.push(Check::doubtful(place, what, (message, fix)));
        }
        _ => {}
    }
    checks
}

/// Checks what the cluster says.
async fn in_cluster(
    (id, own): (&RegistrationId, Option<&WorkerCluster>),
    (access, client): (&ClusterAccess, &Client),
    by: By<'_>,
) -> Vec<Check> {
    let place = id.tenant.namespace();
    let mut checks = Vec::new();
    match reach_tenant(place, client).await {
        Ok(Answer::Clock(there)) => checks.push(clock(place, (by.here, there))),
        Ok(Answer::Unauthorized) => {
            checks.push(refused_by_worker(place));
            return checks;
        }
        Err(error) => {
            let fix = "look at network, address and certificate; from here it may differ from \
                       where the manager is";
            checks.push(Check::wrong(
                place,
                "connection",
                (whole(error.as_ref()).to_string(), fix),
            ));
            return checks;
        }
    }
    checks.push(identity(place, client, own).await);
    checks.push(rights_there(place, client, own).await);
    checks.push(memory::machine_deployments(place, client, Home::of(own)).await);
    checks.push(cluster_info_of(place, client, access).await);
    if own.is_some_and(|own| own.spec.credentials == Credentials::Renewed) {
        checks.push(renewal::run_check(id, (access, client), by.manager).await);
    }
    checks
}

async fn identity(place: &str, client: &Client, own: Option<&WorkerCluster>) -> Check {
    let what = "identity";
    let known = own.and_then(|own| own.status.as_ref()?.cluster_uid.clone());
    let home = Home::of(own);
    let found = engage::identity(client, home).await;
    match (found.map(Option::unwrap_or_default), known) {
        (Err(error), _) => {
            let message = format!("it does not tell who it is: {}", chain(&error));
            Check::wrong(place, what, (message, rights::grant_or_wait(&error, home)))
        }
        (Ok(found), Some(known)) if found != known => {
            let message = format!("uid {found}, and the WorkerCluster is about {known}");
            let fix = "put the old kubeconfig back, or set spec.confirmedClusterUid";
            Check::wrong(place, what, (message, fix))
        }
        (Ok(found), _) => Check::ok(place, what, format!("uid {found}")),
    }
}

async fn rights_there(place: &str, client: &Client, own: Option<&WorkerCluster>) -> Check {
    let what = "rights";
    let home = Home::of(own);
    let fix = rights::grant(home);
    match missing(client, own).await {
        Ok(missing) if !missing.needed.is_empty() => {
            let message = format!("missing: {}", missing.needed.join(", "));
            Check::wrong(place, what, (message, fix))
        }
        Ok(missing) if !missing.optional.is_empty() => {
            let message = format!(
                "missing to correct what machines fetch with, where somebody changes it: {}",
                missing.optional.join(", ")
            );
            Check::doubtful(place, what, (message, fix))
        }
        Ok(_) => Check::ok(place, what, "all that are needed"),
        Err(error) => {
            let message = format!("cannot ask: {}", whole(error.as_ref()));
            let fix = match error.downcast_ref() {
                Some(error) => rights::grant_or_wait(error, home),
                None => fix,
            };
            Check::doubtful(place, what, (message, fix))
        }
    }
}

/// The rights that the kubeconfig's identity lacks.
#[derive(Default)]
struct Missing {
    /// Without these, a tenant is not served.
    needed: Vec<String>,
    /// See [`rights::Lacking::is_optional`].
    optional: Vec<String>,
}

async fn missing(client: &Client, own: Option<&WorkerCluster>) -> anyhow::Result<Missing> {
    let subject = Subject { client, user: None };
    let mut needs = rights::in_worker(Home::of(own))?;
    let node_credentials = own.and_then(|own| own.spec.node_credentials);
    if node_credentials == Some(NodeCredentials::PerMachineDeployment) {
        for (namespace, rules) in rights::for_node_credentials()? {
            needs.entry(namespace).or_default().extend(rules);
        }
    }
    let mut missing = Missing::default();
    for (namespace, rules) in &needs {
        // Rules for the whole cluster apply in every namespace.
        let asked = match namespace.as_str() {
            "" => CLOUD_INIT_SETTINGS,
            namespace => namespace,
        };
        for lacking in subject.missing((asked, namespace), rules).await? {
            let kind = if lacking.is_optional() {
                &mut missing.optional
            } else {
                &mut missing.needed
            };
            kind.push(match namespace.as_str() {
                "" => lacking.to_string(),
                namespace => format!("{lacking} in {namespace}"),
            });
        }
    }
    Ok(missing)
}

async fn cluster_info_of(place: &str, client: &Client, access: &ClusterAccess) -> Check {
    let what = "facts";
    let authority = &access.certificate_authority;
    match cluster_info::read_once(client, authority, InUse::default()).await {
        Ok(cluster_info) => Check::ok(
            place,
            what,
            format!("nodes reach {}", cluster_info.api_server),
        ),
        Err(error) => {
            let message = chain(&error).to_string();
            let fix = error.reason().remediation().unwrap_or_default();
            Check::wrong(place, what, (message, &fix))
        }
    }
}
