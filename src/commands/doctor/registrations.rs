//! The registrations and the WorkerClusters that belong to them, and checks of those that belong to
//! none.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, ObjectMeta},
    core::DeserializeGuard,
};

use super::{Check, Options, State};
use crate::api::{
    condition::ConditionType, names::WORKER_CLUSTER_LABEL, reason::Reason,
    worker_cluster::WorkerCluster,
};
use crate::client::pages;
use crate::commands::{
    AT_ONCE,
    selection::{Selection, registration_of},
};
use crate::fleet::discovery::kkp::{SECRET, cluster_in};
use crate::tenant::report::Removal;

const WHAT: &str = "WorkerCluster";

/// A registration and its WorkerCluster.
pub(super) type Registered = (Secret, Option<WorkerCluster>);

/// A Secret that a WorkerCluster names, and that is no registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Missing,
    NotSelected,
    /// It is a registration, and an older WorkerCluster names it.
    Taken,
    /// It cannot be read.
    Unknown,
}

/// A WorkerCluster whose Secret is no registration.
struct Orphan {
    own: WorkerCluster,
    secret: Named,
}

/// What is registered, and what is not as it should be.
pub(super) struct Registrations {
    pub(super) registered: Vec<Registered>,
    pub(super) checks: Vec<Check>,
}

/// Lists the registrations and the WorkerClusters, and finds out which belong together.
pub(super) async fn fetch(
    options: &Options,
    client: &Client,
) -> Result<Registrations, kube::Error> {
    let selection = &options.selection;
    let (mut secrets, mut owns, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    for (_, api) in selection.apis::<Secret>(client) {
        let params = ListParams::default().labels(&options.selector);
        secrets.extend(pages::all(&api, params).await?.objects);
    }
    for (_, api) in selection.apis::<WorkerCluster>(client) {
        match pages::all(&api, selection.params()).await {
            // Another check reports missing CRDs.
            Err(error) if pages::is_not_served(&error) => {}
            listed => {
                let listed = listed?;
                owns.extend(listed.objects);
                unreadable.extend(listed.unreadable);
            }
        }
    }
    let excepts = |metadata: &ObjectMeta| selection.excepts(metadata.namespace.as_ref());
    secrets.retain(|it: &Secret| !excepts(&it.metadata));
    owns.retain(|it: &WorkerCluster| !excepts(&it.metadata));
    unreadable.retain(|it| !excepts(it));
    let of_inventories = owns.iter().filter(|own| is_of_inventory(own));
    let of_inventories = stream::iter(of_inventories)
        .map(|own| unlabelled(client, own))
        .buffered(AT_ONCE);
    let of_inventories: Vec<_> = of_inventories.try_collect().await?;
    secrets.extend(of_inventories.into_iter().flatten());
    let (registered, alone) = pairs(secrets, owns, selection);
    let orphans = stream::iter(alone)
        .map(async |own| {
            let is_taken = registered.iter().any(|(secret, _)| names(&own, secret));
            let secret = if is_taken {
                Named::Taken
            } else {
                named(client, &own).await
            };
            Orphan { own, secret }
        })
        .buffered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    let mut checks: Vec<Check> = unreadable.iter().map(unreadable_worker_cluster).collect();
    checks.extend(unpaired(&registered, orphans, &options.selector));
    Ok(Registrations { registered, checks })
}

/// Returns true if a registration needs no label: the manager created its WorkerCluster for a
/// Secret of another program, or it is KKP's.
fn is_of_inventory(own: &WorkerCluster) -> bool {
    let (namespace, secret) = registration_of(own);
    let is_of_kkp =
        || secret == SECRET && namespace.is_some_and(|namespace| cluster_in(&namespace).is_some());
    let mut owners = own.owner_references().iter();
    owners.any(|owner| owner.kind == "Secret" && owner.name == secret) || is_of_kkp()
}

/// Reads the Secret that a WorkerCluster names, unless it has the label of a registration.
async fn unlabelled(client: &Client, own: &WorkerCluster) -> Result<Option<Secret>, kube::Error> {
    let (namespace, name) = registration_of(own);
    let secrets: Api<DeserializeGuard<Secret>> =
        Api::namespaced(client.clone(), &namespace.unwrap_or_default());
    let found = secrets.get_opt(&name).await?.and_then(|found| found.0.ok());
    Ok(found.filter(|it| !it.labels().contains_key(WORKER_CLUSTER_LABEL)))
}

fn names(own: &WorkerCluster, secret: &Secret) -> bool {
    registration_of(own) == (secret.namespace(), secret.name_any())
}

/// Returns the registrations, each with its WorkerCluster, and the WorkerClusters of none.
fn pairs(
    secrets: Vec<Secret>,
    mut owns: Vec<WorkerCluster>,
    selection: &Selection,
) -> (Vec<Registered>, Vec<WorkerCluster>) {
    let mut registered = Vec::new();
    // Of several that name one Secret, the manager uses the oldest.
    owns.sort_by_cached_key(|own| (own.creation_timestamp().map(|it| it.0), own.uid()));
    for secret in secrets {
        let found = owns.iter().position(|own| names(own, &secret));
        let own = found.map(|index| owns.remove(index));
        if selection.labels.is_none() || own.is_some() {
            registered.push((secret, own));
        }
    }
    (registered, owns)
}

/// Looks up the Secret that a WorkerCluster names.
async fn named(client: &Client, own: &WorkerCluster) -> Named {
    let (namespace, name) = registration_of(own);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace.unwrap_or_default());
    match secrets.get_metadata_opt(&name).await {
        Ok(None) => Named::Missing,
        Ok(Some(_)) => Named::NotSelected,
        Err(_) => Named::Unknown,
    }
}

/// Returns the checks of registrations without a WorkerCluster, and of WorkerClusters without a
/// registration.
fn unpaired(registered: &[Registered], mut orphans: Vec<Orphan>, selector: &str) -> Vec<Check> {
    let mut checks = Vec::new();
    for (secret, _) in registered.iter().filter(|(_, own)| own.is_none()) {
        // The manager cannot create the WorkerCluster of a Secret if another one has its name.
        let is_it = |orphan: &Orphan| {
            (orphan.own.namespace(), orphan.own.name_any())
                == (secret.namespace(), secret.name_any())
        };
        let found = orphans.iter().position(is_it);
        checks.push(match found.map(|index| orphans.remove(index)) {
            Some(orphan) => refers_elsewhere(&orphan, selector),
            None => collides(registered, secret)
                .unwrap_or_else(|| not_made_yet(&secret.namespace().unwrap_or_default())),
        });
    }
    checks.extend(orphans.iter().filter_map(|it| without_secret(it, selector)));
    checks
}

/// Returns the check of a registration whose WorkerCluster would have the name of another one's.
fn collides(registered: &[Registered], secret: &Secret) -> Option<Check> {
    let (place, name) = (secret.namespace()?, secret.name_any());
    let is_it =
        |own: &&WorkerCluster| own.namespace().as_ref() == Some(&place) && own.name_any() == name;
    let other = registered
        .iter()
        .filter_map(|(_, own)| own.as_ref())
        .find(is_it)?;
    let (_, owner) = registration_of(other);
    let message = format!(
        "Secret {name} is registered, and WorkerCluster {name} refers to Secret {owner}, which is \
         registered as well; one namespace is one tenant"
    );
    let fix = format!(
        "remove one of the two registrations, for example: kubectl label secret {name} -n {place} \
         {WORKER_CLUSTER_LABEL}-"
    );
    Some(Check::wrong(&place, WHAT, (message, &fix)))
}

fn not_made_yet(place: &str) -> Check {
    let message = "the manager has made no WorkerCluster yet".to_owned();
    let fix = "does it run, and does it watch that namespace?";
    Check::doubtful(place, "state", (message, fix))
}

/// Says which Secret a WorkerCluster names, and why that is no registration.
fn reference(orphan: &Orphan, selector: &str) -> String {
    let (name, (_, secret)) = (orphan.own.name_any(), registration_of(&orphan.own));
    let why = match orphan.secret {
        Named::Missing => "does not exist".to_owned(),
        Named::NotSelected => format!("does not have the label {selector}"),
        Named::Taken => "an older WorkerCluster refers to".to_owned(),
        Named::Unknown => format!("does not exist, or does not have the label {selector}"),
    };
    format!("WorkerCluster {name} refers to Secret {secret}, which {why}")
}

fn refers_elsewhere(orphan: &Orphan, selector: &str) -> Check {
    let place = orphan.own.namespace().unwrap_or_default();
    let name = orphan.own.name_any();
    let message = format!(
        "{}; Secret {name} is registered, and no WorkerCluster refers to it",
        reference(orphan, selector)
    );
    let fix = recreate(&name, &place);
    Check::wrong(&place, WHAT, (message, &fix))
}

/// Says how to make a WorkerCluster refer to the Secret of its own name.
fn recreate(name: &str, place: &str) -> String {
    format!(
        "set spec.kubeconfigSecretRef.name to {name}; the field cannot be changed, so delete the \
         WorkerCluster first (kubectl delete workercluster {name} -n {place}), and create it again"
    )
}

/// Returns the check of a WorkerCluster whose Secret is no registration; `None` if another
/// installation serves it.
fn without_secret(orphan: &Orphan, selector: &str) -> Option<Check> {
    let own = &orphan.own;
    let (place, name) = (own.namespace().unwrap_or_default(), own.name_any());
    let conditions = own.status.as_ref().map(|status| &*status.conditions);
    let of = |kind: ConditionType| kind.find_in(conditions.unwrap_or_default());
    let registered = of(ConditionType::Registered);
    if let Some(removed) = registered.filter(|it| it.reason == Reason::RegistrationRemoved) {
        let message = format!(
            "WorkerCluster {name}: {}: {}",
            removed.reason, removed.message
        );
        let released = of(ConditionType::Released);
        let fix = match released.and_then(|it| Removal::of(&it.reason)) {
            Some(removal) if removal.is_released() => {
                format!("kubectl delete workercluster {name} -n {place}, or register it again")
            }
            removal => removal
                .map_or(Reason::RegistrationRemoved, Removal::reason)
                .remediation()
                .unwrap_or_default(),
        };
        return Some(Check::wrong(&place, WHAT, (message, &fix)));
    }
    let message = reference(orphan, selector);
    let add = match registration_of(own) {
        (_, secret) if secret == name => {
            format!("osm tenant add {name} -n {place} --worker-kubeconfig FILE")
        }
        // That command refuses a WorkerCluster that refers to a Secret of another name.
        (_, secret) => format!(
            "create Secret {secret} with the label {selector} (docs/register.md#register); or {}",
            recreate(&name, &place)
        ),
    };
    let (state, fix) = match (orphan.secret, conditions) {
        (Named::Taken, _) => {
            let fix = format!("kubectl delete workercluster {name} -n {place}");
            (State::Fail, fix)
        }
        // Selected by the flag of another installation.
        (Named::NotSelected, Some(_)) => return None,
        (Named::NotSelected, None) => {
            let (_, secret) = registration_of(own);
            let label = format!("{WORKER_CLUSTER_LABEL}=true");
            let fix = format!("kubectl label secret {secret} -n {place} {label}");
            (State::Fail, fix)
        }
        // Nothing was registered yet.
        (_, None) => (State::Warn, add),
        (_, Some(_)) => (State::Fail, add),
    };
    Some(Check::new(&place, WHAT, state, message).mended(fix))
}

fn unreadable_worker_cluster(found: &ObjectMeta) -> Check {
    let name = found.name.as_deref().unwrap_or_default();
    let message = format!("{name} cannot be read by this version of osm");
    let fix = "correct it: osm crds has its schema, and the API server names what differs";
    let place = found.namespace.as_deref().unwrap_or_default();
    Check::wrong(place, WHAT, (message, fix))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns the check of the WorkerCluster `a`, which refers to Secret `b`.
    fn check(secret: Named, conditions: Option<&[(&str, &str)]>) -> Option<(State, String)> {
        let condition = |(kind, reason): &(&str, &str)| {
            json!({
                "type": kind, "status": "False", "reason": reason, "message": "the message",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let status = conditions.map(|all| {
            let all: Vec<_> = all.iter().map(condition).collect();
            json!({ "conditions": all })
        });
        let own = json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
            "metadata": { "name": "a", "namespace": "n" },
            "spec": { "kubeconfigSecretRef": { "name": "b" } }, "status": status,
        });
        let own = serde_json::from_value(own).unwrap();
        let check = without_secret(&Orphan { own, secret }, "x=y")?;
        Some((check.state, check.fix.unwrap_or_default()))
    }

    fn of_json<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn a_secret(name: &str) -> Secret {
        of_json(json!({"metadata": {"name": name, "namespace": "n"}}))
    }

    fn an_own((name, secret): (&str, &str), created: &str) -> WorkerCluster {
        of_json(json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
            "metadata": {
                "name": name, "namespace": "n", "uid": name,
                "creationTimestamp": format!("2026-01-01T00:00:0{created}Z"),
            },
            "spec": {"kubeconfigSecretRef": {"name": secret}},
        }))
    }

    #[test]
    fn of_two_that_refer_to_one_secret_the_oldest_is_used() {
        let owns = vec![an_own(("younger", "s"), "2"), an_own(("older", "s"), "1")];
        let (registered, alone) = pairs(vec![a_secret("s")], owns, &Selection::default());
        let used = registered.iter().filter_map(|(_, own)| own.as_ref());
        assert_eq!(
            used.map(ResourceExt::name_any).collect::<Vec<_>>(),
            ["older"]
        );
        assert_eq!(
            alone.iter().map(ResourceExt::name_any).collect::<Vec<_>>(),
            ["younger"]
        );
    }

    /// An inventory names the WorkerCluster of Secret `a-kubeconfig` as the labelled Secret `a`.
    #[test]
    fn a_registration_whose_name_is_taken_is_told_from_one_that_is_new() {
        let found = |name| {
            let of_inventory = (
                a_secret("a-kubeconfig"),
                Some(an_own((name, "a-kubeconfig"), "1")),
            );
            let registered = [of_inventory, (a_secret("a"), None)];
            let checks = unpaired(&registered, Vec::new(), "x=y");
            (
                checks.len(),
                checks[0].state,
                checks[0].fix.clone().unwrap_or_default(),
            )
        };
        let (count, state, fix) = found("a");
        assert_eq!((count, state), (1, State::Fail));
        assert!(fix.contains("kubectl label secret a -n n"), "{fix}");
        assert_eq!(found("other").1, State::Warn);
    }

    #[test]
    fn a_registration_that_is_gone_fails_with_what_is_left_to_do() {
        for (released, fix) in [
            (
                "Released",
                "kubectl delete workercluster a -n n, or register it again",
            ),
            ("Kept", "Run the command in the message"),
            ("KubeconfigGone", "Run the command in the message"),
            ("OfANewerRelease", "See removing a registration"),
        ] {
            let conditions = [
                ("Registered", "RegistrationRemoved"),
                ("Released", released),
            ];
            for secret in [Named::Missing, Named::NotSelected] {
                let (state, said) = check(secret, Some(&conditions)).unwrap();
                assert_eq!(state, State::Fail);
                assert!(said.starts_with(fix), "{released}: {said}");
            }
        }
    }

    #[test]
    fn what_another_installation_serves_is_left_out() {
        let served = [("Connected", "Unreachable")];
        assert_eq!(check(Named::NotSelected, Some(&served)), None);
        let state = |secret, conditions| check(secret, conditions).map(|(state, _)| state);
        assert_eq!(state(Named::Missing, Some(&served)), Some(State::Fail));
        assert_eq!(state(Named::NotSelected, None), Some(State::Fail));
        let taken = check(Named::Taken, None);
        let fix = "kubectl delete workercluster a -n n".to_owned();
        assert_eq!(taken, Some((State::Fail, fix)));
        assert_eq!(state(Named::Missing, None), Some(State::Warn));
        let (_, fix) = check(Named::Missing, None).unwrap();
        assert!(
            fix.starts_with("create Secret b with the label x=y"),
            "{fix}"
        );
    }
}
