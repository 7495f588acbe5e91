//! The state of a world without what differs from run to run: uids, versions, times, and the
//! random halves of tokens. Digests are checked here and left out.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use fake_cluster::{Cluster, object};
use osm::{
    api::{
        config::OperatingSystemConfigSpec,
        names::{
            CONTENT, INPUT_DIGESTS, INPUTS, KUBECONFIG_KEY, MACHINES_BEHIND, MADE_FOR, TEMPLATE,
        },
    },
    plan::{
        desired::{config_digest, secret_digest},
        digest::{Digest, DigestKey},
    },
    tenant::{access::fingerprint, secret_text::SecretText},
};
use serde_json::{Value, json};

use crate::world::World;

/// Every object of every cluster, by `cluster resource namespace/name`.
pub type Snapshot = BTreeMap<String, Value>;

/// What is no business of the manager's, or only shows what happened on the way.
const LEFT_OUT: [&str; 3] = ["events", "configmaps", "leases"];

/// Takes a snapshot, and checks what holds in every settled state.
pub fn take(world: &World) -> Snapshot {
    let secrets = Secrets::of(world);
    let mut snapshot = Snapshot::new();
    let mut inputs: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (name, cluster) in world.clusters() {
        for resource in cluster.resources() {
            if LEFT_OUT
                .iter()
                .any(|left_out| resource.starts_with(left_out))
            {
                continue;
            }
            for found in cluster.objects(&resource) {
                let metadata = |field| text(&found, &format!("/metadata/{field}"));
                let key = format!(
                    "{name} {resource} {}/{}",
                    metadata("namespace"),
                    metadata("name")
                );
                let tenant = if name == "management" {
                    metadata("namespace")
                } else {
                    name
                };
                secrets.check(&found, (tenant, &key));
                // A machine deployment's own credentials are not rendered.
                let is_rendered = annotation(&found, CONTENT).is_some();
                if let Some(made_for) = annotation(&found, MADE_FOR).filter(|_| is_rendered) {
                    let digest = annotation(&found, INPUTS).cloned().unwrap_or_default();
                    inputs.entry(made_for.to_string()).or_default().push(digest);
                }
                snapshot.insert(key, secrets.without_luck(found));
            }
        }
    }
    for (made_for, digests) in inputs {
        let first = digests.first();
        assert!(
            digests.iter().all(|digest| Some(digest) == first),
            "what was made for {made_for} was made from the same: {digests:?}"
        );
    }
    snapshot
}

/// The first difference between two snapshots, for people.
pub fn difference(expected: &Snapshot, found: &Snapshot) -> Option<String> {
    for (key, value) in expected {
        match found.get(key) {
            None => return Some(format!("{key} is missing")),
            Some(other) if other != value => {
                return Some(format!("{key}\n expected {value:#}\n found {other:#}"));
            }
            Some(_) => {}
        }
    }
    let too_many = found.keys().find(|key| !expected.contains_key(*key));
    too_many.map(|key| format!("{key} is too many"))
}

/// The secrets of a world that differ from run to run.
struct Secrets {
    texts: Vec<(String, &'static str)>,
    /// By tenant.
    keys: BTreeMap<String, DigestKey>,
    /// Which kubeconfigs are registered.
    registered: BTreeSet<String>,
}

impl Secrets {
    fn of(world: &World) -> Self {
        let mut texts = Vec::new();
        let mut keys = BTreeMap::new();
        let mut registered = BTreeSet::new();
        for (name, cluster) in world.clusters() {
            for secret in cluster.objects("secrets") {
                let token = decoded(&secret, "token");
                let random = decoded(&secret, "token-secret");
                let name_of_secret = text(&secret, "/metadata/name");
                if name_of_secret == "cloud-init-getter-token" {
                    let key = DigestKey::derive(&SecretText::new(token.clone()));
                    keys.insert(name.to_owned(), key);
                }
                let is_own = name_of_secret.ends_with("-cloud-init-getter-token");
                let marker = if is_own { "<own token>" } else { "<token>" };
                texts.extend([(token, marker), (random, "<random>")]);
                let kubeconfig = decoded(&secret, KUBECONFIG_KEY);
                let access: Value = serde_json::from_str(&kubeconfig).unwrap_or_default();
                let credential = text(&access, "/users/0/user/token").to_owned();
                texts.push((credential, "<credential>"));
                let uid = text(&secret, "/metadata/uid");
                registered.insert(fingerprint(uid, kubeconfig.as_bytes()));
            }
        }
        texts.retain(|(text, _)| !text.is_empty());
        // Mock tokens are numbered: the first is a prefix of the tenth.
        texts.sort_by_key(|(text, _)| Reverse(text.len()));
        Self {
            texts,
            keys,
            registered,
        }
    }

    /// What the annotations say of the bytes is true.
    fn check(&self, object: &Value, (tenant, name): (&str, &str)) {
        let Some(content) = annotation(object, CONTENT) else {
            return;
        };
        let key = self.keys.get(tenant);
        let key = key.expect("a tenant with our objects has a fetcher");
        let digest = if text(object, "/kind") == "Secret" {
            secret_digest(key, decoded(object, "cloud-config").as_bytes())
        } else {
            let spec = object.get("spec").cloned().unwrap_or_default();
            let spec: OperatingSystemConfigSpec =
                serde_json::from_value(spec).expect("a config has a spec");
            config_digest(key, &spec)
        };
        let content = content.as_str().unwrap_or_default();
        assert_eq!(Digest::from_annotation(content), digest, "{name}");
    }

    fn without_luck(&self, mut object: Value) -> Value {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in [
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "managedFields",
                "generation",
            ] {
                metadata.remove(field);
            }
            if let Some(annotations) = metadata
                .get_mut("annotations")
                .and_then(Value::as_object_mut)
            {
                for key in [
                    CONTENT,
                    INPUTS,
                    INPUT_DIGESTS,
                    TEMPLATE,
                    // The machines' past is not that of a world without faults.
                    MACHINES_BEHIND,
                    "kubernetes.io/service-account.uid",
                ] {
                    annotations.remove(key);
                }
            }
        }
        if text(&object, "/kind") == "Namespace" {
            // What a server adds.
            for field in ["spec", "status"] {
                object.as_object_mut().map(|it| it.remove(field));
            }
        }
        if let Some(data) = object.get_mut("data").and_then(Value::as_object_mut) {
            // A token's end is a time, and the authority of a cluster in memory is drawn again.
            for key in ["expiration", "ca.crt"] {
                data.remove(key);
            }
            for value in data.values_mut() {
                *value = json!(self.named(&decode(value)));
            }
        }
        if let Some(observed) = object.pointer_mut("/status/observedKubeconfig") {
            let known = observed.as_str().unwrap_or_default();
            *observed = json!(self.registered.contains(known));
        }
        timeless(object.get_mut("status"));
        object
    }

    fn named(&self, text: &str) -> String {
        self.texts
            .iter()
            .fold(text.to_owned(), |text, (secret, name)| {
                text.replace(secret, name)
            })
    }
}

fn timeless(status: Option<&mut Value>) {
    let Some(status) = status.and_then(Value::as_object_mut) else {
        return;
    };
    status.remove("observedGeneration");
    for list in ["conditions", "machineDeployments"] {
        let items = status.get_mut(list).and_then(Value::as_array_mut);
        let Some(items) = items else { continue };
        // What was not checked is not known, as if nothing were said.
        items.retain(|item| text(item, "/reason") != "NotChecked");
        // Conditions are a map by their type; their order tells which was written first. That of
        // machine deployments tells which are behind.
        let key = |item: &Value| [text(item, "/type"), text(item, "/name")].concat();
        items.sort_by_cached_key(key);
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            for time in [
                "lastTransitionTime",
                "since",
                "traceId",
                "behind",
                "observedGeneration",
            ] {
                item.remove(time);
            }
        }
    }
}

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.get("metadata")?.get("annotations")?.get(key)
}

/// A text in an object; empty where there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// A value of a Secret; empty where there is none.
pub fn decoded(secret: &Value, key: &str) -> String {
    secret
        .get("data")
        .and_then(|data| data.get(key))
        .map(decode)
        .unwrap_or_default()
}

fn decode(value: &Value) -> String {
    let bytes = STANDARD.decode(value.as_str().unwrap_or_default());
    String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
}

/// A Secret of `cloud-init-settings`.
pub fn boot_secret(worker: &Cluster, name: &str) -> Option<Value> {
    worker.get(object("secrets", "cloud-init-settings", name))
}
