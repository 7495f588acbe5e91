//! Checks the management cluster (CRDs, rights, replicas) and this machine.

use k8s_openapi::{
    api::core::v1::Namespace,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, CustomResourceExt as _, ResourceExt};

use super::{
    Check, DESCRIPTORS_BESIDE, DESCRIPTORS_PER_CLUSTER, Options, State,
    registrations::{Registered, Registrations},
    rights,
    rights::Subject,
};
use crate::api::{
    config::OperatingSystemConfig, names::KUBE_SYSTEM, profile::OperatingSystemProfile,
    worker_cluster::WorkerCluster,
};
use crate::client::pages;
use crate::commands::managers::Fleets;
use crate::telemetry::chain::{chain, whole};
use crate::tenant::{inventory::Inventory, report::counted};

const PLACE: &str = "management";
/// The manager's namespace in `manifests/rbac`.
const NAMESPACE: &str = "operating-system-manager";
/// The maximum number of namespaces in which rights are checked. In further ones the answer would
/// be the same.
const NAMESPACES_MAX: usize = 50;

/// Checks the management cluster. `found` is absent if the registrations cannot be listed.
pub(super) async fn run_checks(
    options: &Options,
    (client, fleets): (&Client, &anyhow::Result<Fleets>),
    found: Option<&Registrations>,
) -> anyhow::Result<Vec<Check>> {
    let tenants = found.map_or(&[][..], |it| &it.registered);
    let mut checks = vec![definitions(client).await];
    checks.extend(rights_of_the_manager(options, client, tenants).await?);
    checks.push(replicas(options, fleets));
    if let Some(why) = &options.settings_unknown {
        let fix = "pass the manager's flags to this command, with --without-manager";
        checks.push(Check::doubtful(PLACE, "settings", (why.clone(), fix)));
    }
    let Some(found) = found else {
        return Ok(checks);
    };
    checks.extend(descriptors(options, tenants.len()));
    if tenants.is_empty() && found.checks.is_empty() {
        let (message, fix) = if options.selection.is_all() {
            (
                "no worker cluster is registered",
                "osm tenant add NAME --worker-kubeconfig FILE",
            )
        } else {
            (
                "no registered worker cluster is selected",
                "osm tenants shows all; check --namespace and --selector",
            )
        };
        let message = message.to_owned();
        checks.push(Check::doubtful(PLACE, "registrations", (message, fix)));
    }
    Ok(checks)
}

/// Checks that the CRDs are those of this release.
async fn definitions(client: &Client) -> Check {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut found = Vec::new();
    for ours in [
        OperatingSystemConfig::crd(),
        OperatingSystemProfile::crd(),
        WorkerCluster::crd(),
    ] {
        let name = ours.name_any();
        match api.get_opt(&name).await {
            Ok(None) => found.push(format!("{name} is missing")),
            Ok(Some(there)) if !is_same(&ours, &there) => {
                found.push(format!("{name} is of another release"));
            }
            Ok(Some(_)) => {}
            Err(error) => {
                let message = format!("cannot read definition {name}: {}", chain(&error));
                let fix = "use a kubeconfig that may get customresourcedefinitions";
                return Check::doubtful(PLACE, "definitions", (message, fix));
            }
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    if found.is_empty() {
        return Check::ok(
            PLACE,
            "definitions",
            format!("all three are of osm {version}"),
        );
    }
    let message = format!("{} (this is osm {version})", found.join(", "));
    let fix = "osm crds | kubectl apply --server-side --force-conflicts -f -";
    Check::wrong(PLACE, "definitions", (message, fix))
}

/// Returns true if the schemas are the same. They define what a release knows; the server adds
/// fields elsewhere.
fn is_same(ours: &CustomResourceDefinition, there: &CustomResourceDefinition) -> bool {
    ours.spec.versions.iter().all(|wanted| {
        let mut versions = there.spec.versions.iter();
        versions.any(|it| it.name == wanted.name && it.schema == wanted.schema && it.served)
    })
}

/// Checks the manager's rights: by impersonating the manager if the user may do that, and otherwise
/// the user's own rights.
async fn rights_of_the_manager(
    options: &Options,
    client: &Client,
    tenants: &[Registered],
) -> anyhow::Result<Vec<Check>> {
    let (namespace, account) = (&options.manager.namespace, &options.manager.name);
    let account = format!("system:serviceaccount:{namespace}:{account}");
    let manager = Subject {
        client,
        user: Some(&account),
    };
    let caller = Subject { client, user: None };
    let is_manager = manager.name().await.is_ok_and(|name| name == account);
    let subject = if is_manager { manager } else { caller };
    let who = match subject.name().await {
        Ok(who) => who,
        Err(error) => {
            let message = format!("cannot ask who this is: {}", chain(&error));
            let fix = cannot_ask(&error, "selfsubjectreviews");
            return Ok(vec![Check::doubtful(PLACE, "rights", (message, &fix))]);
        }
    };
    let mut missing = Vec::new();
    let mut places: Vec<(String, &str)> = vec![(KUBE_SYSTEM.to_owned(), "kube-system")];
    places.push((options.manager.namespace.clone(), "replicas"));
    let is_of_kkp = |it: &Inventory| *it == Inventory::Kkp;
    if options.inventories.iter().any(is_of_kkp) {
        places.push((options.manager.namespace.clone(), "kkp-seed"));
    }
    if !options.inventories.iter().all(is_of_kkp) {
        let namespaces = tenants.iter().filter_map(|(secret, _)| secret.namespace());
        let namespaces = namespaces.take(NAMESPACES_MAX);
        places.extend(namespaces.map(|namespace| (namespace, "tenants")));
    }
    for (namespace, which) in places {
        // Reading the uid of kube-system is a right on an object without a namespace.
        let everywhere = if which == "kube-system" {
            ""
        } else {
            namespace.as_str()
        };
        let wanted = wanted(which)?;
        let lacking = match subject.missing((&namespace, everywhere), &wanted).await {
            Ok(lacking) => lacking,
            Err(error) => {
                let message = format!("cannot ask what {who} may do: {}", chain(&error));
                let fix = cannot_ask(&error, "selfsubjectrulesreviews");
                return Ok(vec![Check::doubtful(PLACE, "rights", (message, &fix))]);
            }
        };
        let place = match which {
            "kkp-seed" => "in all namespaces (osm rbac management-kkp-seed)".to_owned(),
            _ => format!("in {namespace}"),
        };
        missing.extend(lacking.iter().map(|it| format!("{it} {place}")));
    }
    let fix = if who == account && !missing.is_empty() {
        grant(client, options).await
    } else {
        AS_THE_MANAGER.to_owned()
    };
    Ok(vec![check_of((&who, &account), &missing, fix)])
}

/// What to do so that the manager's own rights are checked.
const AS_THE_MANAGER: &str = "run this as the manager's ServiceAccount, or as somebody who may \
                              impersonate it; if it is another one, pass --manager-namespace and \
                              --service-account";

/// Returns what to do if the API server does not answer a review, which every user may create.
fn cannot_ask(error: &kube::Error, reviews: &str) -> String {
    if pages::is_forbidden(error) {
        return format!("grant the ClusterRole system:basic-user, which may create {reviews}");
    }
    "run this again once the API server answers; its log says more".to_owned()
}

/// Returns the command that grants the manager's rights. Its role for Leases is in the manager's
/// namespace, which must exist.
async fn grant(client: &Client, options: &Options) -> String {
    let namespace = options.manager.namespace.as_str();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let create = match namespaces.get_metadata_opt(namespace).await {
        Ok(None) => format!("kubectl create namespace {namespace} && "),
        _ => String::new(),
    };
    let is_of_kkp = |it: &Inventory| *it == Inventory::Kkp;
    let apply = if namespace != NAMESPACE {
        "kubectl apply --server-side -k YOUR_OVERLAY, or helm upgrade"
    } else if options.inventories.iter().all(is_of_kkp) {
        "osm rbac management | kubectl apply --server-side -f -; osm rbac management-kkp-seed | \
         kubectl apply --server-side -f -"
    } else {
        "osm rbac management | kubectl apply --server-side -f -; osm rbac \
         management-all-namespaces | kubectl apply --server-side -f -"
    };
    format!(
        "{create}{apply}; or bind ClusterRole operating-system-manager-tenants in the namespaces \
         that are named; if the manager is another ServiceAccount, pass --manager-namespace and \
         --service-account"
    )
}

/// Returns the rules of one role of `manifests/rbac`.
fn wanted(which: &str) -> anyhow::Result<Vec<k8s_openapi::api::rbac::v1::PolicyRule>> {
    if which == "kkp-seed" {
        return Ok(rights::in_kkp_seed()?.remove("").unwrap_or_default());
    }
    let mut needs = rights::in_management()?;
    let replicas = needs.remove(NAMESPACE).unwrap_or_default();
    let everywhere = needs.remove("").unwrap_or_default();
    let is_identity = |rule: &k8s_openapi::api::rbac::v1::PolicyRule| rule.resource_names.is_some();
    Ok(match which {
        "replicas" => replicas,
        "kube-system" => everywhere.into_iter().filter(is_identity).collect(),
        _ => everywhere
            .into_iter()
            .filter(|it| !is_identity(it))
            .collect(),
    })
}

/// Returns the check of the rights of `who`, which are the manager's only if that is its account.
fn check_of((who, account): (&str, &str), missing: &[String], fix: String) -> Check {
    let is_manager = who == account;
    if missing.is_empty() && is_manager {
        return Check::ok(PLACE, "rights", format!("{who} has all that it needs"));
    }
    if missing.is_empty() {
        let message =
            format!("{who} has all that the manager needs; the manager was not asked for");
        return Check::new(PLACE, "rights", State::Ok, message).mended(fix);
    }
    let missing = missing.join(", ");
    if is_manager {
        let message = format!("{who} may not: {missing}");
        return Check::wrong(PLACE, "rights", (message, &fix));
    }
    let message = format!(
        "the rights of {account} are not known, because {who} may not impersonate it; {who} \
         itself may not: {missing}"
    );
    Check::doubtful(PLACE, "rights", (message, &fix))
}

/// Checks that the manager runs: every replica renews a Lease.
fn replicas(options: &Options, fleets: &anyhow::Result<Fleets>) -> Check {
    let what = "replicas";
    let namespace = &options.manager.namespace;
    let fleet = fleets
        .as_ref()
        .map_err(|error| whole(error.as_ref()).to_string());
    let fleet = fleet.and_then(|fleets| {
        let chosen = fleets.choose(options.fleet.as_deref());
        chosen.map_err(|error| error.to_string())
    });
    let why = match fleet {
        Err(why) => {
            let fix = "use a kubeconfig that may list Leases; --manager-namespace and --fleet say \
                       which are meant";
            return Check::doubtful(PLACE, what, (why, fix));
        }
        Ok(Some(fleet)) if fleet.runs() => {
            let renew = counted(
                fleet.replicas.len(),
                "replica renews its Lease",
                "replicas renew their Leases",
            );
            return Check::ok(PLACE, what, format!("fleet {}: {renew}", fleet.name));
        }
        Ok(Some(fleet)) => fleet.is_silent(),
        Ok(None) => format!("no Lease in {namespace}"),
    };
    let fix = format!(
        "kubectl get pods -n {namespace} shows why none runs; if none is installed: kubectl apply \
         --server-side -k manifests/kustomize/base"
    );
    let message = format!("{why}: no manager runs, or its clock is wrong");
    Check::wrong(PLACE, what, (message, &fix))
}

fn descriptors(options: &Options, tenants: usize) -> Option<Check> {
    let limit = options.descriptors?;
    let needed = u64::try_from(tenants)
        .unwrap_or(u64::MAX)
        .saturating_mul(DESCRIPTORS_PER_CLUSTER)
        .saturating_add(DESCRIPTORS_BESIDE);
    let place = "this machine";
    let tenants = counted(tenants, "tenant takes", "tenants take");
    let message = format!("a process may have {limit}; {tenants} up to {needed}");
    Some(if limit >= needed {
        Check::ok(place, "file descriptors", message)
    } else {
        let fix = "where osm run is, raise the hard limit (ulimit -Hn, LimitNOFILE=)";
        Check::doubtful(place, "file descriptors", (message, fix))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_of_the_management_cluster_has_rules() {
        for which in ["replicas", "kube-system", "tenants"] {
            assert!(!wanted(which).unwrap().is_empty(), "{which}");
        }
    }

    #[test]
    fn one_changed_field_is_another_release() {
        let ours = WorkerCluster::crd();
        assert!(is_same(&ours, &ours.clone()));
        let mut there = ours.clone();
        there.spec.versions[0].schema =
            OperatingSystemConfig::crd().spec.versions[0].schema.clone();
        assert!(!is_same(&ours, &there));
    }
}
