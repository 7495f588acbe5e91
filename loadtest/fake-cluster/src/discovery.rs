//! What a cluster says about itself: groups, versions, resources, the server's version, and enough
//! `OpenAPI` for `kubectl` to leave validation to the server. Schemas are not published.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{kinds::Kind, state::State};

const MINOR: &str = "36";

impl State {
    /// The answer for a path that is no resource, or `None` when there is nothing at that path.
    pub(crate) fn discover(&self, path: &str, accept: &str) -> Option<Value> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let aggregated = accept.split(',').any(|part| {
            part.contains("as=APIGroupDiscoveryList") && part.split(';').any(|o| o.trim() == "v=v2")
        });
        match parts.as_slice() {
            ["version"] => Some(version()),
            [".well-known", "openid-configuration"] => Some(json!({
                "issuer": "https://kubernetes.default.svc.cluster.local",
                "jwks_uri": "https://127.0.0.1/openid/v1/jwks",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            })),
            ["api"] if aggregated => {
                Some(self.aggregated(&BTreeMap::from([(String::new(), vec!["v1".to_owned()])])))
            }
            ["apis"] if aggregated => Some(self.aggregated(&self.groups())),
            ["api"] => Some(json!({
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [],
            })),
            ["apis"] => {
                let groups: Vec<Value> = self
                    .groups()
                    .iter()
                    .map(|(name, versions)| group(name, versions))
                    .collect();
                Some(json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
            }
            ["apis", name] => self.groups().get(*name).map(|versions| {
                let mut found = group(name, versions);
                crate::meta::set(&mut found, &["kind"], json!("APIGroup"));
                crate::meta::set(&mut found, &["apiVersion"], json!("v1"));
                found
            }),
            ["api", version] => self.resources("", version),
            ["apis", group, version] => self.resources(group, version),
            ["openapi", "v2"] => Some(json!({
                "swagger": "2.0",
                "info": { "title": "Kubernetes", "version": format!("v1.{MINOR}.0") },
                "paths": {},
                "definitions": {},
            })),
            ["openapi", "v3"] => Some(self.openapi_index()),
            ["openapi", "v3", "api", version] => Some(self.openapi("", version)),
            ["openapi", "v3", "apis", group, version] => Some(self.openapi(group, version)),
            _ => None,
        }
    }

    /// Groups but the core one, with their versions in the order of preference.
    fn groups(&self) -> BTreeMap<String, Vec<String>> {
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for kind in self.kinds().filter(|kind| !kind.group.is_empty()) {
            let versions = groups.entry(kind.group.clone()).or_default();
            if !versions.contains(&kind.version) {
                versions.push(kind.version.clone());
            }
        }
        groups
    }

    fn kinds_in(&self, group: &str, version: &str) -> Vec<&Kind> {
        self.kinds()
            .filter(|kind| kind.group == group && kind.version == version)
            .map(AsRef::as_ref)
            .collect()
    }

    fn resources(&self, group: &str, version: &str) -> Option<Value> {
        let kinds = self.kinds_in(group, version);
        if kinds.is_empty() {
            return None;
        }
        let resources: Vec<Value> = kinds.iter().flat_map(|kind| entries(kind)).collect();
        Some(json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": crate::kinds::api_version(group, version),
            "resources": resources,
        }))
    }

    fn aggregated(&self, groups: &BTreeMap<String, Vec<String>>) -> Value {
        let items: Vec<Value> = groups
            .iter()
            .map(|(name, versions)| {
                let versions: Vec<Value> = versions
                    .iter()
                    .map(|version| {
                        let kinds = self.kinds_in(name, version);
                        let resources: Vec<Value> =
                            kinds.iter().map(|kind| aggregated_entry(kind)).collect();
                        json!({ "version": version, "freshness": "Current", "resources": resources })
                    })
                    .collect();
                json!({ "metadata": { "name": name, "creationTimestamp": null }, "versions": versions })
            })
            .collect();
        json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        })
    }

    fn openapi_index(&self) -> Value {
        let mut paths = Map::new();
        let mut add = |root: &str| {
            let url = format!("/openapi/v3/{root}?hash={}", self.store.revision());
            paths.insert(root.to_owned(), json!({ "serverRelativeURL": url }));
        };
        add("api/v1");
        for (group, versions) in self.groups() {
            for version in versions {
                add(&format!("apis/{group}/{version}"));
            }
        }
        json!({ "paths": paths })
    }

    fn openapi(&self, group: &str, version: &str) -> Value {
        let mut paths = Map::new();
        for kind in self.kinds_in(group, version) {
            let place = if kind.namespaced {
                "namespaces/{namespace}/"
            } else {
                ""
            };
            let path = format!("{}/{place}{}/{{name}}", root(kind), kind.resource);
            paths.insert(
                path,
                json!({ "patch": {
                "parameters": [{ "name": "fieldValidation", "in": "query" }],
                "responses": {},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": {
                    "group": kind.group, "version": kind.version, "kind": kind.kind,
                },
            } }),
            );
        }
        json!({
            "openapi": "3.0.0",
            "info": { "title": "Kubernetes", "version": format!("v1.{MINOR}.0") },
            "paths": paths,
            "components": { "schemas": {} },
        })
    }
}

fn root(kind: &Kind) -> String {
    let base = if kind.group.is_empty() {
        "/api"
    } else {
        "/apis"
    };
    format!("{base}/{}", kind.api_version())
}

fn version() -> Value {
    json!({
        "major": "1", "minor": MINOR, "gitVersion": format!("v1.{MINOR}.0"), "gitCommit": "",
        "gitTreeState": "clean", "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go1.26",
        "compiler": "gc", "platform": "linux/amd64",
    })
}

fn group(name: &str, versions: &[String]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({ "groupVersion": format!("{name}/{version}"), "version": version }))
        .collect();
    json!({ "name": name, "versions": versions, "preferredVersion": versions.first() })
}

fn subresources(kind: &Kind) -> Vec<&'static str> {
    let mut found = Vec::new();
    if kind.status {
        found.push("status");
    }
    if kind.is("", "serviceaccounts") {
        found.push("token");
    }
    if kind.is("", "namespaces") {
        found.push("finalize");
    }
    found
}

fn entries(kind: &Kind) -> Vec<Value> {
    let mut found = vec![json!({
        "name": kind.resource, "singularName": kind.singular, "namespaced": kind.namespaced,
        "kind": kind.kind, "verbs": kind.verbs(), "shortNames": kind.short_names,
        "categories": kind.categories,
    })];
    for subresource in subresources(kind) {
        let verbs: &[&str] = if subresource == "token" {
            &["create"]
        } else {
            &["get", "patch", "update"]
        };
        found.push(json!({
            "name": format!("{}/{subresource}", kind.resource), "singularName": "",
            "namespaced": kind.namespaced, "kind": kind.kind, "verbs": verbs,
        }));
    }
    found
}

fn aggregated_entry(kind: &Kind) -> Value {
    let own = json!({ "group": kind.group, "version": kind.version, "kind": kind.kind });
    let subresources: Vec<Value> = subresources(kind)
        .iter()
        .map(|name| {
            json!({ "subresource": name, "responseKind": own, "verbs": ["get", "patch", "update"] })
        })
        .collect();
    json!({
        "resource": kind.resource,
        "responseKind": own,
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": kind.verbs(),
        "shortNames": kind.short_names,
        "categories": kind.categories,
        "subresources": subresources,
    })
}
