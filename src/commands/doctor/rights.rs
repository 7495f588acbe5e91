//! Compares the rights that the manager needs, as `manifests/rbac` grants them, with those that a
//! subject has according to the API server.

use std::{collections::BTreeMap, fmt};

use anyhow::Context as _;
use http::Request;
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    authorization::v1::{ResourceRule, SelfSubjectRulesReview, SelfSubjectRulesReviewSpec},
    rbac::v1::PolicyRule,
};
use kube::Client;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::api::{names::FETCHER, worker_cluster::Home};
use crate::commands::cluster_client::{Permission, review};

const MANAGEMENT: &str = include_str!("../../../manifests/rbac/management.yaml");
const KKP_SEED: &str = include_str!("../../../manifests/rbac/kkp-seed/management.yaml");
const WORKER: &str = include_str!("../../../manifests/rbac/worker.yaml");
const NODE_CREDENTIALS: &str = include_str!("../../../manifests/rbac/worker-node-credentials.yaml");

/// What grants the rights in a worker cluster.
const GRANT: &str = "run osm tenant add again (with --node-credentials where that is \
                                set), or in the worker cluster: osm rbac worker | kubectl apply \
                                --server-side --force-conflicts -f -";

/// What the manager uses in a worker cluster that is its tenant's home.
const HOME: &str = include_str!("home.yaml");

/// What grants the rights in a worker cluster that is its tenant's home.
const GRANT_AT_HOME: &str = "grant the kubeconfig's identity in the worker cluster what the \
                             installer of its own operating-system-manager granted to that one";

/// Returns what grants the rights in a worker cluster.
pub(super) const fn grant(home: Home) -> &'static str {
    match home {
        Home::Management => GRANT,
        Home::Worker => GRANT_AT_HOME,
    }
}

/// Returns what to do about a failed call to a worker cluster: grant rights if one is missing.
pub(super) fn grant_or_wait(error: &kube::Error, home: Home) -> &'static str {
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => grant(home),
        _ => "run this again once the worker cluster's API server answers; its log says more",
    }
}

/// Rules by the namespace in which they must apply. The namespace is empty for a role that is bound
/// wherever there is a tenant.
pub(super) type Needs = BTreeMap<String, Vec<PolicyRule>>;

/// Returns the rules that the manager needs in the management cluster.
pub(super) fn in_management() -> anyhow::Result<Needs> {
    needs(MANAGEMENT)
}

/// Returns the rules that it needs there to serve the user clusters of a KKP seed.
pub(super) fn in_kkp_seed() -> anyhow::Result<Needs> {
    needs(KKP_SEED)
}

/// Returns the rules that it needs in a worker cluster.
pub(super) fn in_worker(home: Home) -> anyhow::Result<Needs> {
    needs(match home {
        Home::Management => WORKER,
        Home::Worker => HOME,
    })
}

/// Returns the rules that it needs there for credentials per machine deployment.
pub(super) fn for_node_credentials() -> anyhow::Result<Needs> {
    needs(NODE_CREDENTIALS)
}

/// Returns the rules of every role in a file, by the role's namespace.
fn needs(file: &str) -> anyhow::Result<Needs> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(file).context("cannot parse an embedded manifest")?;
    let mut needs = Needs::new();
    for mut document in documents {
        let namespace = document
            .pointer("/metadata/namespace")
            .and_then(Value::as_str);
        let namespace = namespace.unwrap_or_default().to_owned();
        if let Some(rules) = document.get_mut("rules") {
            let rules: Vec<PolicyRule> =
                serde_json::from_value(rules.take()).context("cannot parse an embedded rule")?;
            needs.entry(namespace).or_default().extend(rules);
        }
    }
    Ok(needs)
}

/// The subject whose rights are checked: the user, or another one whom the user impersonates.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) client: &'a Client,
    pub(super) user: Option<&'a str>,
}

impl Subject<'_> {
    /// Returns the name under which the API server knows the subject.
    pub(super) async fn name(&self) -> Result<String, kube::Error> {
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let answer: SelfSubjectReview = self.ask(path, &SelfSubjectReview::default()).await?;
        let user = answer.status.and_then(|it| it.user_info);
        Ok(user.and_then(|it| it.username).unwrap_or_default())
    }

    /// Returns the rights that it lacks of these rules, in a namespace or (if `everywhere` is
    /// empty) in all.
    ///
    /// One request returns all rights that RBAC grants. If another authorizer grants rights but
    /// cannot list them, each missing right is checked separately.
    pub(super) async fn missing(
        &self,
        (namespace, everywhere): (&str, &str),
        wanted: &[PolicyRule],
    ) -> Result<Vec<Lacking>, kube::Error> {
        let granted = self.rules(namespace).await?;
        let missing = granted.missing(wanted);
        if granted.is_complete {
            return Ok(missing);
        }
        let mut denied = Vec::new();
        for lacking in missing {
            if !self.can_i(everywhere, &lacking).await? {
                denied.push(lacking);
            }
        }
        Ok(denied)
    }

    async fn can_i(&self, namespace: &str, lacking: &Lacking) -> Result<bool, kube::Error> {
        let permission = Permission {
            verb: &lacking.verb,
            group: &lacking.group,
            resource: &lacking.resource,
            namespace,
            name: &lacking.name,
        };
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = self.ask(path, &review(&permission)).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    /// Returns the subject's rights in a namespace.
    async fn rules(&self, namespace: &str) -> Result<Granted, kube::Error> {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        let review = SelfSubjectRulesReview {
            spec: SelfSubjectRulesReviewSpec {
                namespace: Some(namespace.to_owned()),
            },
            ..SelfSubjectRulesReview::default()
        };
        let answer: SelfSubjectRulesReview = self.ask(path, &review).await?;
        let status = answer.status.unwrap_or_default();
        Ok(Granted {
            rules: status.resource_rules,
            is_complete: !status.incomplete,
        })
    }

    async fn ask<K: Serialize + DeserializeOwned>(
        &self,
        path: &str,
        review: &K,
    ) -> Result<K, kube::Error> {
        let body = serde_json::to_vec(review).map_err(kube::Error::SerdeError)?;
        let mut request = Request::post(path).header("content-type", "application/json");
        if let Some(user) = self.user {
            request = request.header("impersonate-user", user);
        }
        let request = request.body(body).map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }
}

/// The rights of a subject in a namespace.
struct Granted {
    rules: Vec<ResourceRule>,
    /// True if no other authorizer may grant more.
    is_complete: bool,
}

/// A right that is not granted.
pub(super) struct Lacking {
    verb: String,
    group: String,
    resource: String,
    name: String,
}

impl Lacking {
    /// Returns true if the manager can serve without it. It then only cannot correct the fetcher's
    /// rights.
    pub(super) fn is_optional(&self) -> bool {
        self.name == FETCHER
    }
}

/// Formats the right like `create secrets` or `get namespaces kube-system`.
impl fmt::Display for Lacking {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.verb, self.resource)?;
        match self.name.as_str() {
            "" => Ok(()),
            name => write!(formatter, " {name}"),
        }
    }
}

impl Granted {
    /// Returns the rights that are missing of these rules.
    fn missing(&self, wanted: &[PolicyRule]) -> Vec<Lacking> {
        let mut missing = Vec::new();
        for rule in wanted {
            let none = vec![String::new()];
            let groups = rule.api_groups.iter().flatten();
            for (group, resource) in
                groups.flat_map(|group| rule.resources.iter().flatten().map(move |it| (group, it)))
            {
                for name in rule.resource_names.as_ref().unwrap_or(&none) {
                    for verb in &rule.verbs {
                        let permission = (
                            verb.as_str(),
                            group.as_str(),
                            resource.as_str(),
                            name.as_str(),
                        );
                        if !self.rules.iter().any(|rule| allows(rule, permission)) {
                            missing.push(Lacking {
                                verb: verb.clone(),
                                group: group.clone(),
                                resource: resource.clone(),
                                name: name.clone(),
                            });
                        }
                    }
                }
            }
        }
        missing
    }
}

fn allows(rule: &ResourceRule, (verb, group, resource, name): (&str, &str, &str, &str)) -> bool {
    let has = |all: &[String], wanted: &str| all.iter().any(|it| it == "*" || it == wanted);
    let names = rule.resource_names.as_deref().unwrap_or_default();
    let subresource = resource
        .split_once('/')
        .map(|(_, subresource)| format!("*/{subresource}"));
    let resources = rule.resources.as_deref().unwrap_or_default();
    has(&rule.verbs, verb)
        && has(rule.api_groups.as_deref().unwrap_or_default(), group)
        && (has(resources, resource)
            || subresource.is_some_and(|wanted| resources.contains(&wanted)))
        && (names.is_empty() || names.iter().any(|it| it == name))
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use http::Response;
    use kube::client::Body;
    use serde_json::json;
    use tower::service_fn;

    use super::*;

    fn missing(rules: Value, wanted: &[PolicyRule]) -> Vec<String> {
        let granted = Granted {
            rules: serde_json::from_value(rules).unwrap(),
            is_complete: true,
        };
        granted
            .missing(wanted)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn what_is_granted_is_not_missing_and_what_is_not_is_named() {
        let wanted = in_worker(Home::Management).unwrap();
        let everything = json!([{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }]);
        for rules in wanted.values() {
            assert!(missing(everything.clone(), rules).is_empty());
        }
        let in_default = wanted.get("default").unwrap();
        assert_eq!(missing(json!([]), in_default), ["list endpointslices"]);
        let few = json!([{
            "verbs": ["get"], "apiGroups": [""], "resources": ["namespaces"],
            "resourceNames": ["kube-system"],
        }]);
        let anywhere = missing(few, wanted.get("").unwrap());
        assert!(!anywhere.contains(&"get namespaces kube-system".to_owned()));
        assert!(anywhere.contains(&"get namespaces cloud-init-settings".to_owned()));
        assert!(anywhere.contains(&"create namespaces".to_owned()));
    }

    #[test]
    fn to_correct_the_fetcher_is_optional_and_nothing_else() {
        let nothing = Granted {
            rules: Vec::new(),
            is_complete: true,
        };
        let wanted = in_worker(Home::Management).unwrap();
        let missing = wanted.values().flat_map(|rules| nothing.missing(rules));
        let optional = missing.filter(Lacking::is_optional);
        let optional: Vec<String> = optional.map(|it| it.to_string()).collect();
        let expected = [
            "patch roles cloud-init-getter",
            "patch rolebindings cloud-init-getter",
            "delete rolebindings cloud-init-getter",
        ];
        assert_eq!(optional, expected);
    }

    #[test]
    fn what_each_file_grants_is_enough_for_itself() {
        let in_worker = [Home::Management, Home::Worker].map(in_worker);
        let others = [in_management(), for_node_credentials()];
        for needs in in_worker.into_iter().chain(others) {
            for rules in needs.unwrap().values() {
                let granted = serde_json::to_value(rules).unwrap();
                assert!(missing(granted, rules).is_empty() && !rules.is_empty());
            }
        }
    }

    /// Creates an API server that lists these rules, and allows single requests to read. Also
    /// returns the number of requests.
    fn a_server(listed: Value) -> (Client, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let server = service_fn(move |request: Request<Body>| {
            let (listed, counter) = (listed.clone(), Arc::clone(&counter));
            async move {
                let (head, body) = request.into_parts();
                assert_eq!(head.headers["impersonate-user"], "somebody");
                let body = body.collect_bytes().await.unwrap();
                let mut review: Value = serde_json::from_slice(&body).unwrap();
                review["status"] = if head.uri.path().ends_with("selfsubjectrulesreviews") {
                    listed
                } else {
                    counter.fetch_add(1, Ordering::SeqCst);
                    let permission = &review["spec"]["resourceAttributes"];
                    assert_eq!(permission["namespace"], "default");
                    json!({ "allowed": permission["verb"] == "get" })
                };
                let answer = Response::new(Body::from(serde_json::to_vec(&review).unwrap()));
                Ok::<_, Infallible>(answer)
            }
        });
        (Client::new(server, "default"), asked)
    }

    #[tokio::test]
    async fn what_an_incomplete_list_lacks_is_asked_for_one_by_one() {
        let wanted: Vec<PolicyRule> = serde_json::from_value(json!([{
            "verbs": ["list", "get", "patch"], "apiGroups": [""], "resources": ["secrets"],
        }]))
        .unwrap();
        let rules = json!([{ "verbs": ["list"], "apiGroups": [""], "resources": ["secrets"] }]);
        for (is_incomplete, lacking, questions) in [
            (true, vec!["patch secrets"], 2),
            (false, vec!["get secrets", "patch secrets"], 0),
        ] {
            let (client, asked) = a_server(json!({
                "resourceRules": rules, "nonResourceRules": [], "incomplete": is_incomplete,
            }));
            let subject = Subject {
                client: &client,
                user: Some("somebody"),
            };
            let missing = subject.missing(("default", "default"), &wanted).await;
            let missing: Vec<String> = missing.unwrap().iter().map(ToString::to_string).collect();
            assert_eq!(missing, lacking);
            assert_eq!(asked.load(Ordering::SeqCst), questions);
        }
    }

    #[test]
    fn a_right_for_a_name_is_none_for_all_names_and_a_subresource_is_its_own() {
        let named = json!([{
            "verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"],
        }]);
        let all: Vec<PolicyRule> = serde_json::from_value(
            json!([{ "verbs": ["get"], "apiGroups": [""], "resources": ["secrets", "pods/log"] }]),
        )
        .unwrap();
        assert_eq!(missing(named, &all), ["get secrets", "get pods/log"]);
        let logs = json!([{ "verbs": ["get"], "apiGroups": [""], "resources": ["*/log"] }]);
        assert_eq!(missing(logs, &all), ["get secrets"]);
    }
}
