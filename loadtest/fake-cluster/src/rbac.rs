//! Authorization by the role and binding objects stored in the cluster. Aggregated roles and the
//! escalation check on writing roles are left out: a user who may write a role may grant anything.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    auth::User,
    meta::{items, text},
    request::{Call, Target},
    status::{Refusal, details},
    store::Store,
};

const ROLES: &str = "rbac.authorization.k8s.io/roles";
const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/clusterroles";
const ROLE_BINDINGS: &str = "rbac.authorization.k8s.io/rolebindings";
const CLUSTER_ROLE_BINDINGS: &str = "rbac.authorization.k8s.io/clusterrolebindings";

/// What a request wants, in the words of RBAC.
#[derive(Debug, Clone)]
pub(crate) struct Attributes {
    pub verb: String,
    pub target: Target,
    pub path: String,
}

impl Attributes {
    pub(crate) fn of(call: &Call) -> Self {
        let mut target = call.target.clone();
        if target.resource == "namespaces" && target.namespace.is_empty() {
            target.namespace.clone_from(&target.name);
        }
        Self {
            verb: call.verb.as_str().to_owned(),
            target,
            path: call.path.clone(),
        }
    }

    /// Whether a rule of a role allows this request.
    fn is_granted_by(&self, rule: &Value) -> bool {
        let target = &self.target;
        let any = |field: &str, fits: &dyn Fn(&str) -> bool| {
            let mut values = items(rule, field).iter().filter_map(Value::as_str);
            values.any(fits)
        };
        let is = |value: &str, wanted: &str| value == "*" || value == wanted;
        if !any("/verbs", &|verb| is(verb, &self.verb)) {
            return false;
        }
        if !target.is_resource() {
            return any("/nonResourceURLs", &|path| match path.strip_suffix('*') {
                Some(prefix) => self.path.starts_with(prefix),
                None => !path.is_empty() && path == self.path,
            });
        }
        any("/apiGroups", &|group| is(group, &target.group))
            && any("/resources", &|value| match value.split_once('/') {
                _ if target.subresource.is_empty() => is(value, &target.resource),
                Some((resource, subresource)) => {
                    subresource == target.subresource && is(resource, &target.resource)
                }
                None => value == "*",
            })
            && (items(rule, "/resourceNames").is_empty()
                || any("/resourceNames", &|name| {
                    name.is_empty() || name == target.name
                }))
    }

    fn resource(&self) -> String {
        if self.target.subresource.is_empty() {
            self.target.resource.clone()
        } else {
            format!("{}/{}", self.target.resource, self.target.subresource)
        }
    }
}

fn binds(binding: &Value, namespace: &str, user: &User) -> bool {
    items(binding, "/subjects").iter().any(|subject| {
        let name = text(subject, "/name");
        match text(subject, "/kind") {
            "User" => user.name == name,
            "Group" => user.groups.iter().any(|group| group == name),
            "ServiceAccount" => {
                let own = text(subject, "/namespace");
                let own = if own.is_empty() { namespace } else { own };
                user.name == format!("system:serviceaccount:{own}:{name}")
            }
            _ => false,
        }
    })
}

fn role_of<'a>(store: &'a Store, binding: &Value) -> Option<&'a Arc<Value>> {
    let name = text(binding, "/roleRef/name");
    match text(binding, "/roleRef/kind") {
        "ClusterRole" => store.find(CLUSTER_ROLES, "", name),
        _ => store.find(ROLES, text(binding, "/metadata/namespace"), name),
    }
}

/// What every authenticated user may do on the real server by its built-in roles.
fn is_free(user: &User, wanted: &Attributes) -> bool {
    let open = ["/healthz", "/livez", "/readyz", "/version"];
    if !wanted.target.is_resource() && wanted.verb == "get" {
        let discovery = ["/api", "/apis", "/openapi"];
        let under = |roots: &[&str]| {
            roots.iter().any(|root| {
                wanted
                    .path
                    .strip_prefix(root)
                    .is_some_and(|r| r.is_empty() || r.starts_with('/'))
            })
        };
        return under(&open) || (user.is_authenticated() && under(&discovery));
    }
    user.is_authenticated()
        && wanted.verb == "create"
        && wanted.target.resource.starts_with("selfsubject")
}

/// Whether the user may.
pub(crate) fn may(store: &Store, user: &User, wanted: &Attributes) -> bool {
    let namespace = &wanted.target.namespace;
    user.is_master()
        || is_free(user, wanted)
        || rules_of(store, user, namespace).any(|rule| wanted.is_granted_by(rule))
}

/// Refuses the request unless the user may.
pub(crate) fn authorize(store: &Store, user: &User, wanted: &Attributes) -> Result<(), Refusal> {
    if may(store, user, wanted) {
        return Ok(());
    }
    Err(refusal(user, wanted))
}

fn refusal(user: &User, wanted: &Attributes) -> Refusal {
    let Target {
        group,
        resource,
        namespace,
        name,
        ..
    } = &wanted.target;
    if !wanted.target.is_resource() {
        let message = format!(
            "forbidden: User \"{}\" cannot {} path \"{}\"",
            user.name, wanted.verb, wanted.path
        );
        return Refusal::unauthorized_access(message, serde_json::json!({}));
    }
    let place = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{namespace}\"")
    };
    let qualified = if group.is_empty() {
        resource.clone()
    } else {
        format!("{resource}.{group}")
    };
    let what = if name.is_empty() {
        qualified
    } else {
        format!("{qualified} \"{name}\"")
    };
    let message = format!(
        "{what} is forbidden: User \"{}\" cannot {} resource \"{}\" in API group \"{group}\" {place}",
        user.name,
        wanted.verb,
        wanted.resource(),
    );
    Refusal::unauthorized_access(message, details(name, group, resource))
}

/// The rules that hold for a user in a namespace, or cluster-wide if it is "".
pub(crate) fn rules_of<'a>(
    store: &'a Store,
    user: &User,
    namespace: &str,
) -> impl Iterator<Item = &'a Value> {
    let cluster = store.all(CLUSTER_ROLE_BINDINGS);
    let local = store
        .all(ROLE_BINDINGS)
        .filter(move |((ns, _), _)| ns == namespace);
    cluster
        .chain(local)
        .filter(move |((ns, _), binding)| binds(binding, ns, user))
        .filter_map(|(_, binding)| role_of(store, binding))
        .flat_map(|role| items(role, "/rules"))
}
