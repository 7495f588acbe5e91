//! Describes a request to a Kubernetes API server, read from its method and address.
//!
//! Only what stands in the path is read: the API's own naming scheme makes names and namespaces
//! tell apart from the kinds of things, so that spans and metrics get few and stable names.

use http::{Method, Uri};

use crate::telemetry::metrics::Verb;

/// One request, as the API server's authorizer would name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ApiRequest<'a> {
    /// The operation.
    pub verb: Verb,
    /// The group and version, with their root: `api/v1`, `apis/apps/v1`; the whole path where it
    /// names no resource.
    pub version: &'a str,
    /// The namespace, if the request is for one.
    pub scope: Scope,
    /// The plural, such as `secrets`; empty where the path names no resource.
    pub resource: &'a str,
    /// One object, or several.
    pub target: Target,
    /// Such as `status`.
    pub subresource: Option<&'a str>,
}

/// The scope of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// In the whole cluster.
    Cluster,
    /// In one namespace.
    Namespace,
}

/// The target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// All objects of the resource.
    All,
    /// The object of one name.
    One,
}

impl<'a> ApiRequest<'a> {
    /// Reads the method and the address; anything that is not the Kubernetes API is described by
    /// its path alone.
    pub fn parse(method: &Method, uri: &'a Uri) -> Self {
        let path = uri.path();
        let Some((version, rest)) = split_version(path) else {
            return Self::without_resource(method, path);
        };
        let mut rest = rest.split('/').filter(|segment| !segment.is_empty());
        let parts = [
            rest.next(),
            rest.next(),
            rest.next(),
            rest.next(),
            rest.next(),
        ];
        let (scope, resource, name, subresource) = match parts {
            // A namespace has subresources itself; everything else below it is a resource.
            [
                Some("namespaces"),
                name,
                None | Some("status" | "finalize"),
                ..,
            ] => (Scope::Cluster, "namespaces", name, parts[2]),
            [
                Some("namespaces"),
                Some(_),
                Some(resource),
                name,
                subresource,
            ] => (Scope::Namespace, resource, name, subresource),
            [Some(resource), name, subresource, ..] => {
                (Scope::Cluster, resource, name, subresource)
            }
            _ => return Self::without_resource(method, path),
        };
        let target = if name.is_some() {
            Target::One
        } else {
            Target::All
        };
        let verb = verb(method, uri, target);
        Self {
            verb,
            version,
            scope,
            resource,
            target,
            subresource,
        }
    }

    fn without_resource(method: &Method, path: &'a str) -> Self {
        let verb = if method == Method::GET {
            Verb::Get
        } else {
            Verb::Other
        };
        Self {
            verb,
            version: path.trim_matches('/'),
            scope: Scope::Cluster,
            resource: "",
            target: Target::All,
            subresource: None,
        }
    }

    /// The path with names replaced by what they are.
    pub fn template(&self) -> String {
        let mut path = format!("/{}", self.version);
        if self.scope == Scope::Namespace {
            path.push_str("/namespaces/{namespace}");
        }
        if !self.resource.is_empty() {
            path.push('/');
            path.push_str(self.resource);
        }
        if self.target == Target::One {
            path.push_str("/{name}");
        }
        if let Some(subresource) = self.subresource {
            path.push('/');
            path.push_str(subresource);
        }
        path
    }

    /// The span's name: `GET secrets`, `PATCH workerclusters/status`, `WATCH machinedeployments`.
    pub fn title(&self, method: &Method) -> String {
        let method = if self.verb == Verb::Watch {
            "WATCH"
        } else {
            method.as_str()
        };
        match (self.resource, self.subresource) {
            ("", _) => format!("{method} /{}", self.version),
            (resource, Some(subresource)) => format!("{method} {resource}/{subresource}"),
            (resource, None) => format!("{method} {resource}"),
        }
    }
}

/// Finds `api/v1` or `apis/<group>/<version>`, behind whatever prefix a proxy puts before it, and
/// cuts there.
fn split_version(path: &str) -> Option<(&str, &str)> {
    let (start, segments) = [("/api/", 2), ("/apis/", 3)]
        .into_iter()
        .filter_map(|(root, segments)| path.find(root).map(|at| (at + 1, segments)))
        .min()?;
    let from_root = path.get(start..)?;
    let end = from_root
        .match_indices('/')
        .nth(segments - 1)
        .map_or(from_root.len(), |(position, _)| position);
    Some((from_root.get(..end)?, from_root.get(end..)?))
}

fn verb(method: &Method, uri: &Uri, target: Target) -> Verb {
    let is_watch = || {
        uri.query()
            .is_some_and(|query| query.split('&').any(|part| part == "watch=true"))
    };
    match (method.as_str(), target) {
        ("GET", _) if is_watch() => Verb::Watch,
        ("GET", Target::One) => Verb::Get,
        ("GET", Target::All) => Verb::List,
        ("POST", _) => Verb::Create,
        ("PUT", _) => Verb::Update,
        ("PATCH", _) => Verb::Patch,
        ("DELETE", Target::One) => Verb::Delete,
        ("DELETE", Target::All) => Verb::DeleteCollection,
        _ => Verb::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, uri: &str, expected: (Verb, &str, &str)) {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let uri: Uri = uri.parse().unwrap();
        let request = ApiRequest::parse(&method, &uri);
        let (verb, title, template) = expected;
        assert_eq!(
            (
                request.verb,
                request.title(&method).as_str(),
                request.template().as_str()
            ),
            (verb, title, template),
            "{uri}"
        );
    }

    #[test]
    fn requests_are_named_by_what_they_ask_for() {
        check(
            "GET",
            "https://10.0.0.1:6443/api/v1/namespaces/cloud-init-settings/secrets/a?x=secret",
            (
                Verb::Get,
                "GET secrets",
                "/api/v1/namespaces/{namespace}/secrets/{name}",
            ),
        );
        check(
            "GET",
            "/api/v1/namespaces/cloud-init-settings/secrets?limit=500",
            (
                Verb::List,
                "GET secrets",
                "/api/v1/namespaces/{namespace}/secrets",
            ),
        );
        check(
            "GET",
            "/apis/cluster.k8s.io/v1alpha1/machinedeployments?&watch=true&timeoutSeconds=290",
            (
                Verb::Watch,
                "WATCH machinedeployments",
                "/apis/cluster.k8s.io/v1alpha1/machinedeployments",
            ),
        );
        check(
            "PATCH",
            "/apis/operatingsystemmanager.k8c.io/v1alpha1/namespaces/t/workerclusters/c/status",
            (
                Verb::Patch,
                "PATCH workerclusters/status",
                concat!(
                    "/apis/operatingsystemmanager.k8c.io/v1alpha1",
                    "/namespaces/{namespace}/workerclusters/{name}/status"
                ),
            ),
        );
        check(
            "POST",
            "/api/v1/namespaces",
            (Verb::Create, "POST namespaces", "/api/v1/namespaces"),
        );
        check(
            "PUT",
            "/api/v1/namespaces/t/finalize",
            (
                Verb::Update,
                "PUT namespaces/finalize",
                "/api/v1/namespaces/{name}/finalize",
            ),
        );
        check(
            "DELETE",
            "/api/v1/nodes",
            (Verb::DeleteCollection, "DELETE nodes", "/api/v1/nodes"),
        );
    }

    #[test]
    fn a_path_behind_a_proxy_loses_its_prefix() {
        check(
            "DELETE",
            "https://rancher.example/k8s/clusters/c-m-1/api/v1/namespaces/n/secrets/s",
            (
                Verb::Delete,
                "DELETE secrets",
                "/api/v1/namespaces/{namespace}/secrets/{name}",
            ),
        );
    }

    #[test]
    fn a_namespace_called_api_is_a_namespace() {
        check(
            "GET",
            "/apis/apps/v1/namespaces/api/deployments/apis",
            (
                Verb::Get,
                "GET deployments",
                "/apis/apps/v1/namespaces/{namespace}/deployments/{name}",
            ),
        );
    }

    #[test]
    fn what_is_no_resource_is_reported_by_its_path() {
        check("GET", "/version", (Verb::Get, "GET /version", "/version"));
        check("GET", "/apis", (Verb::Get, "GET /apis", "/apis"));
        check(
            "GET",
            "/apis/apps/v1",
            (Verb::Get, "GET /apis/apps/v1", "/apis/apps/v1"),
        );
        check("GET", "/", (Verb::Get, "GET /", "/"));
    }
}
