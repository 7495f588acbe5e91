//! Authorization by the role and binding objects stored in the cluster, and the record
//! of which grants were used. Aggregated roles and the escalation check on writing roles are left
//! out: a user who may write a role may grant anything.

use std::collections::BTreeSet;

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

/// Names a role in a namespace, or a cluster role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoleName {
    /// The namespace of a role, "" for a cluster role.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl RoleName {
    /// A role in a namespace.
    pub fn role(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// A cluster role.
    pub fn cluster_role(name: &str) -> Self {
        Self::role("", name)
    }
}

/// One verb on one resource, or on one path: the smallest thing that a rule grants.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// The API group, "" for the core group, "*" for all.
    pub group: String,
    /// The resource, with its subresource after a slash.
    pub resource: String,
    /// The only object it is for, or "" for all.
    pub name: String,
    /// The path of a rule on paths, otherwise "".
    pub path: String,
    /// The verb.
    pub verb: String,
}

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

    /// Whether a value in a rule is for this request.
    fn fits(&self, part: Part, value: &str) -> bool {
        let target = &self.target;
        let is = |wanted: &str| value == "*" || value == wanted;
        match part {
            Part::Verb => is(&self.verb),
            Part::Path if target.is_resource() => false,
            Part::Path => match value.strip_suffix('*') {
                Some(prefix) => self.path.starts_with(prefix),
                None => !value.is_empty() && value == self.path,
            },
            _ if !target.is_resource() => false,
            Part::Group => is(&target.group),
            Part::Resource if target.subresource.is_empty() => is(&target.resource),
            Part::Resource => match value.split_once('/') {
                Some((resource, sub)) => {
                    sub == target.subresource && (resource == "*" || resource == target.resource)
                }
                None => value == "*",
            },
            Part::Name => value.is_empty() || value == target.name,
        }
    }

    fn resource(&self) -> String {
        if self.target.subresource.is_empty() {
            self.target.resource.clone()
        } else {
            format!("{}/{}", self.target.resource, self.target.subresource)
        }
    }
}

/// Which grants have been used, by role.
#[derive(Debug, Default)]
pub(crate) struct Used(BTreeSet<(RoleName, Grant)>);

/// The grants that allow a request; empty when none does.
fn granting(store: &Store, user: &User, wanted: &Attributes) -> Vec<(RoleName, Grant)> {
    let mut found = Vec::new();
    for (_, binding) in store.all(CLUSTER_ROLE_BINDINGS) {
        if binds(binding, "", user) {
            collect(store, binding, wanted, &mut found);
        }
    }
    if !wanted.target.namespace.is_empty() {
        for ((namespace, _), binding) in store.all(ROLE_BINDINGS) {
            if *namespace == wanted.target.namespace && binds(binding, namespace, user) {
                collect(store, binding, wanted, &mut found);
            }
        }
    }
    found
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

fn role_of<'a>(store: &'a Store, binding: &Value) -> Option<(RoleName, &'a Value)> {
    let name = text(binding, "/roleRef/name");
    if text(binding, "/roleRef/kind") == "ClusterRole" {
        let role = store.find(CLUSTER_ROLES, "", name)?;
        return Some((RoleName::cluster_role(name), role));
    }
    let namespace = text(binding, "/metadata/namespace");
    let role = store.find(ROLES, namespace, name)?;
    Some((RoleName::role(namespace, name), role))
}

fn collect(
    store: &Store,
    binding: &Value,
    wanted: &Attributes,
    found: &mut Vec<(RoleName, Grant)>,
) {
    let Some((name, role)) = role_of(store, binding) else {
        return;
    };
    for rule in items(role, "/rules") {
        let matching = grants_where(rule, |part, value| wanted.fits(part, value));
        found.extend(matching.into_iter().map(|grant| (name.clone(), grant)));
    }
}

/// Every grant of a role, its rules multiplied out.
fn grants(role: &Value) -> Vec<Grant> {
    let rules = items(role, "/rules").iter();
    rules
        .flat_map(|rule| grants_where(rule, |_, _| true))
        .collect()
}

/// A field of a rule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Verb,
    Path,
    Group,
    Resource,
    Name,
}

/// The grants of a rule that consist of values that fit. To multiply out the others for each
/// request would take longer than the request.
fn grants_where(rule: &Value, fits: impl Fn(Part, &str) -> bool) -> Vec<Grant> {
    let documents = |field: &str, part: Part| {
        let values = items(rule, field).iter().filter_map(Value::as_str);
        let values: Vec<&str> = values.filter(|value| fits(part, value)).collect();
        values
    };
    let mut all = Vec::new();
    let verbs = documents("/verbs", Part::Verb);
    if verbs.is_empty() {
        return all;
    }
    let paths = documents("/nonResourceURLs", Part::Path);
    let resources = documents("/resources", Part::Resource);
    let groups = documents("/apiGroups", Part::Group);
    let names = match items(rule, "/resourceNames") {
        [] => vec![""],
        _ => documents("/resourceNames", Part::Name),
    };
    for verb in verbs {
        all.extend(paths.iter().map(|path| Grant {
            path: (*path).to_owned(),
            verb: verb.to_owned(),
            ..Grant::default()
        }));
        for (group, resource) in product(&groups, &resources) {
            all.extend(names.iter().map(|name| Grant {
                group: group.to_owned(),
                resource: resource.to_owned(),
                name: (*name).to_owned(),
                path: String::new(),
                verb: verb.to_owned(),
            }));
        }
    }
    all
}

fn product<'a>(left: &[&'a str], right: &[&'a str]) -> impl Iterator<Item = (&'a str, &'a str)> {
    left.iter().flat_map(|l| right.iter().map(|r| (*l, *r)))
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

/// Whether the user may, without noting it.
pub(crate) fn may(store: &Store, user: &User, wanted: &Attributes) -> bool {
    user.is_master() || is_free(user, wanted) || !granting(store, user, wanted).is_empty()
}

/// Refuses the request, or notes which grants allow it.
pub(crate) fn authorize(
    store: &Store,
    record: &mut Used,
    user: &User,
    wanted: &Attributes,
) -> Result<(), Refusal> {
    if user.is_master() || is_free(user, wanted) {
        return Ok(());
    }
    let found = granting(store, user, wanted);
    if found.is_empty() {
        return Err(refusal(user, wanted));
    }
    record.0.extend(found);
    Ok(())
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

/// The grants of a role that no request has used so far.
pub(crate) fn unused(store: &Store, used: &Used, role: &RoleName) -> Vec<Grant> {
    let storage = if role.namespace.is_empty() {
        CLUSTER_ROLES
    } else {
        ROLES
    };
    let Some(object) = store.find(storage, &role.namespace, &role.name) else {
        return Vec::new();
    };
    let mut grants = grants(object);
    grants.retain(|grant| !used.0.contains(&(role.clone(), grant.clone())));
    grants
}

/// The rules that hold for a user in a namespace, as a `SelfSubjectRulesReview` lists them.
pub(crate) fn rules_for(store: &Store, user: &User, namespace: &str) -> Vec<Value> {
    let cluster = store.all(CLUSTER_ROLE_BINDINGS);
    let local = store
        .all(ROLE_BINDINGS)
        .filter(|((ns, _), _)| ns == namespace);
    cluster
        .chain(local)
        .filter(|((ns, _), binding)| binds(binding, ns, user))
        .filter_map(|(_, binding)| role_of(store, binding))
        .flat_map(|(_, role)| items(role, "/rules").to_vec())
        .collect()
}
