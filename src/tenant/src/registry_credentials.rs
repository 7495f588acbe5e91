//! Where a tenant's registry credentials are.

use osm_api::worker_cluster::{Home, WorkerClusterSpec};

use crate::mode::NamespacedName;

/// The Secret that a WorkerCluster names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the management cluster.
    Management(NamespacedName),
    /// In the worker cluster, which is the tenant's home.
    Home(NamespacedName),
}

/// Returns the Secret that a WorkerCluster in this namespace names. A namespace in the reference is
/// one of the tenant's home; it never leads to another namespace of the management cluster.
pub fn named_by(spec: &WorkerClusterSpec, namespace: &str) -> Option<Place> {
    let reference = spec.registry_credentials_secret_ref.as_ref()?;
    let name = reference.name.clone();
    Some(match (&reference.namespace, spec.home) {
        (Some(at_home), Home::Worker) => Place::Home(NamespacedName {
            namespace: at_home.clone(),
            name,
        }),
        _ => Place::Management(NamespacedName {
            namespace: namespace.to_owned(),
            name,
        }),
    })
}

#[cfg(test)]
mod tests {
    use osm_api::worker_cluster::RegistryCredentialsReference;

    use super::*;

    #[test]
    fn only_at_home_in_the_worker_cluster_is_another_namespace_read() {
        for (home, namespace, expected) in [
            (Home::Management, None, Some(("berlin", false))),
            (Home::Management, Some("other"), Some(("berlin", false))),
            (Home::Worker, None, Some(("berlin", false))),
            (Home::Worker, Some("other"), Some(("other", true))),
        ] {
            let spec = WorkerClusterSpec {
                home,
                registry_credentials_secret_ref: Some(RegistryCredentialsReference {
                    name: "registries".to_owned(),
                    namespace: namespace.map(str::to_owned),
                }),
                ..WorkerClusterSpec::default()
            };
            let found = named_by(&spec, "berlin").map(|place| match place {
                Place::Management(named) => (named.namespace, false),
                Place::Home(named) => (named.namespace, true),
            });
            let expected = expected.map(|(namespace, at_home)| (namespace.to_owned(), at_home));
            assert_eq!(found, expected, "{home:?} {namespace:?}");
        }
    }
}
