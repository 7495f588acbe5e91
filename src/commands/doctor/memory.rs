//! The memory that the manager needs for a tenant's machine deployments.

use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
    core::DeserializeGuard,
};

use super::{Check, rights};
use crate::api::{
    machine_deployment::MachineDeployment, names::TOO_LARGE, weight, worker_cluster::Home,
};
use crate::client::{
    memory::GUARANTEED_BYTES,
    pages::{self, Pages},
};
use crate::telemetry::chain::chain;

const WHAT: &str = "machine deployments";
/// A page of machine deployments: 5 KiB each.
const PAGE: u32 = 100;

/// A machine deployment and the memory that the manager charges for it.
struct Charged {
    name: String,
    bytes: usize,
}

/// Lists the machine deployments, and compares their memory with the guaranteed part of a tenant.
pub(super) async fn machine_deployments(place: &str, client: &Client, home: Home) -> Check {
    let kind = ApiResource::erase::<MachineDeployment>(&());
    let all: Api<DeserializeGuard<DynamicObject>> = Api::all_with(client.clone(), &kind);
    let mut pages = Pages::of(ListParams::default(), PAGE);
    let mut charged = Vec::new();
    loop {
        match pages.next(&all).await {
            Ok(Some(page)) => charged.extend(page.objects.iter().map(charge)),
            Ok(None) => return compare(place, charged),
            Err(error) => {
                let (message, fix) = not_listed(&error, home);
                return Check::wrong(place, WHAT, (message, &fix));
            }
        }
    }
}

/// Returns why the machine deployments cannot be listed, and what to do.
fn not_listed(error: &kube::Error, home: Home) -> (String, String) {
    // A server that does not serve the group answers without a `Status`.
    if pages::is_not_served(error) {
        let message = "the cluster does not serve MachineDeployments (cluster.k8s.io/v1alpha1)";
        let fix = "install machine-controller in the worker cluster: its manifests have the CRD";
        return (message.to_owned(), fix.to_owned());
    }
    let message = format!("cannot list them: {}", chain(error));
    (message, rights::grant_or_wait(error, home).to_owned())
}

fn charge(object: &DynamicObject) -> Charged {
    let namespace = object.namespace().unwrap_or_default();
    // Of an object that is too large, only the name and the weight were read.
    let too_large = object.annotations().get(TOO_LARGE);
    let bytes = too_large.and_then(|bytes| bytes.parse().ok());
    let weigh = || serde_json::to_vec(object).map_or(0, |text| weight::of(&text));
    Charged {
        name: format!("{namespace}/{}", object.name_any()),
        bytes: bytes.unwrap_or_else(weigh),
    }
}

fn compare(place: &str, charged: Vec<Charged>) -> Check {
    let (count, bytes) = (charged.len(), charged.iter().map(|it| it.bytes).sum());
    let message = format!("{count}, for which the manager needs {}", kib(bytes));
    let largest = charged.into_iter().max_by_key(|it| it.bytes);
    let Some(largest) = largest.filter(|_| bytes > GUARANTEED_BYTES) else {
        return Check::ok(place, WHAT, message);
    };
    let message = format!(
        "{message}; a tenant is guaranteed {}, and {} alone needs {}",
        kib(GUARANTEED_BYTES),
        largest.name,
        kib(largest.bytes)
    );
    let fix = "remove annotations that nobody reads, or see that the manager's memory limit is \
               enough (docs/capacity.md)";
    Check::doubtful(place, WHAT, (message, fix))
}

fn kib(bytes: usize) -> String {
    format!("{} KiB", bytes.div_ceil(1 << 10))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::State, *};

    fn a_machine_deployment(annotation: (&str, &str)) -> DynamicObject {
        let (key, value) = annotation;
        let object = json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": { "name": "a", "namespace": "b", "annotations": { key: value } },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_tenant_that_needs_more_than_is_guaranteed_is_a_warning_with_the_largest() {
        let long = "a".repeat(GUARANTEED_BYTES / 2);
        let half = || charge(&a_machine_deployment(("long", &long)));
        let check = compare("place", vec![half()]);
        assert_eq!(check.state, State::Ok, "{}", check.message);
        let check = compare("place", vec![half(), half()]);
        assert_eq!(check.state, State::Warn);
        assert!(
            check
                .message
                .starts_with("2, for which the manager needs 10")
        );
        assert!(
            check.message.contains("b/a alone needs 51"),
            "{}",
            check.message
        );
    }

    #[test]
    fn a_cluster_without_the_kind_needs_machine_controller_and_no_rights() {
        let answer = |code: u16| {
            kube::Error::Api(Box::new(kube::core::Status {
                code,
                ..kube::core::Status::default()
            }))
        };
        // As kube decodes "404 page not found": the reason is not `NotFound`.
        let (_, fix) = not_listed(&answer(404), Home::Management);
        assert!(fix.starts_with("install machine-controller"), "{fix}");
        let (_, fix) = not_listed(&answer(403), Home::Management);
        assert!(fix.contains("osm tenant add"), "{fix}");
        let (_, fix) = not_listed(&answer(500), Home::Management);
        assert!(!fix.contains("osm tenant add"), "{fix}");
    }

    #[test]
    fn one_that_is_too_large_to_be_read_counts_with_what_it_weighs() {
        let charged = charge(&a_machine_deployment((TOO_LARGE, "3000000")));
        assert_eq!((&*charged.name, charged.bytes), ("b/a", 3_000_000));
    }
}
