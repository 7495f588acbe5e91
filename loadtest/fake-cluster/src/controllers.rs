//! What happens by itself after a write: definitions begin to serve, namespaces get their default
//! contents and are emptied when deleted, service account tokens appear. It stands for the parts of
//! kube-controller-manager that clients rely on; no workload ever runs here.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    auth::TokenClaims,
    kinds::{Kind, storage_name},
    meta::{account_of, name, namespace, remove, set, set_metadata, text},
    state::State,
    store::Key,
    validate::is_deleting,
    write::finished,
};

const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";

impl State {
    /// The objects that every cluster has.
    pub(crate) fn populate(&mut self) {
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let labels = json!({ "kubernetes.io/metadata.name": name });
            self.put_new(
                "/namespaces",
                json!({
                    "apiVersion": "v1", "kind": "Namespace",
                    "metadata": { "name": name, "labels": labels },
                    "spec": { "finalizers": ["kubernetes"] },
                    "status": { "phase": "Active" },
                }),
            );
            self.fill_namespace(name);
        }
        // kube-apiserver creates it, and never again: its uid is that of the cluster.
        self.put_new(
            "/configmaps",
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {
                    "name": "extension-apiserver-authentication", "namespace": "kube-system",
                },
            }),
        );
        self.put_new(
            "/services",
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": { "name": "kubernetes", "namespace": "default" },
                "spec": {
                    "clusterIP": "10.96.0.1", "type": "ClusterIP",
                    "ports": [{ "name": "https", "port": 443, "protocol": "TCP" }],
                },
                "status": { "loadBalancer": {} },
            }),
        );
        self.put_new(
            "discovery.k8s.io/endpointslices",
            json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {
                    "name": "kubernetes", "namespace": "default",
                    "labels": { "kubernetes.io/service-name": "kubernetes" },
                },
                "addressType": "IPv4",
                "endpoints": [{ "addresses": ["127.0.0.1"], "conditions": { "ready": true } }],
                "ports": [{ "name": "https", "port": 6443, "protocol": "TCP" }],
            }),
        );
        for (name, resource, verbs) in [
            (
                "system:node-bootstrapper",
                "certificatesigningrequests",
                &["create", "get", "list", "watch"][..],
            ),
            (
                "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
                "certificatesigningrequests/nodeclient",
                &["create"],
            ),
        ] {
            let role = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": { "name": name },
                "rules": [{
                    "apiGroups": ["certificates.k8s.io"], "resources": [resource], "verbs": verbs,
                }],
            });
            self.put_new("rbac.authorization.k8s.io/clusterroles", role);
        }
    }

    /// Stores an object as if a controller of the cluster had created it.
    pub(crate) fn put_new(&mut self, storage: &str, mut object: Value) -> Arc<Value> {
        let key = (namespace(&object).to_owned(), name(&object).to_owned());
        let uid = self.new_uid();
        set_metadata(&mut object, "uid", uid);
        set_metadata(&mut object, "creationTimestamp", self.now());
        self.store.put(storage, key, object)
    }

    fn fill_namespace(&mut self, namespace: &str) {
        if !self.options.controllers {
            return;
        }
        self.put_new(
            "/serviceaccounts",
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": { "name": "default", "namespace": namespace },
            }),
        );
        let ca = self.ca_pem.clone();
        self.put_new(
            "/configmaps",
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": "kube-root-ca.crt", "namespace": namespace },
                "data": { "ca.crt": ca },
            }),
        );
    }

    /// Follows up on an object that was created or changed.
    pub(crate) fn after_write(&mut self, kind: &Kind, object: &Arc<Value>) {
        let object_name = name(object).to_owned();
        if kind.is("apiextensions.k8s.io", "customresourcedefinitions") {
            self.serve_custom(&object_name, Some(object));
        }
        if !self.options.controllers {
            return;
        }
        if kind.is("", "namespaces") {
            if is_deleting(object) {
                self.empty_namespace(&object_name);
            } else if self
                .store
                .find("/serviceaccounts", &object_name, "default")
                .is_none()
            {
                self.fill_namespace(&object_name);
            }
        }
        if kind.is("", "secrets") && text(object, "/type") == TOKEN_TYPE {
            self.fill_token(&(namespace(object).to_owned(), object_name));
        }
    }

    /// Removes an object and follows up on it.
    pub(crate) fn remove(&mut self, kind: &Kind, key: &Key) -> Option<Arc<Value>> {
        let last = self.store.remove(&kind.storage, key)?;
        if kind.is("apiextensions.k8s.io", "customresourcedefinitions") {
            self.remove_customs(&last);
        }
        if self.options.controllers {
            if kind.is("", "serviceaccounts") {
                self.remove_tokens_of(key);
            }
            if !key.0.is_empty() {
                self.finish_namespace(&key.0);
            }
        }
        Some(last)
    }

    fn remove_customs(&mut self, crd: &Value) {
        let storage = storage_name(text(crd, "/spec/group"), text(crd, "/spec/names/plural"));
        let keys: Vec<Key> = self
            .store
            .all(&storage)
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            self.store.remove(&storage, &key);
        }
        self.serve_custom(name(crd), None);
    }

    fn remove_tokens_of(&mut self, account: &Key) {
        let secrets = self.store.all("/secrets");
        let tokens = secrets.filter(|((namespace, _), secret)| {
            *namespace == account.0
                && text(secret, "/type") == TOKEN_TYPE
                && account_of(secret) == account.1
        });
        for key in tokens.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.store.remove("/secrets", &key);
        }
    }

    /// Deletes everything in a namespace that is being deleted.
    fn empty_namespace(&mut self, namespace: &str) {
        let kinds: Vec<Arc<Kind>> = self
            .kinds()
            .filter(|kind| kind.namespaced)
            .cloned()
            .collect();
        for storage in self.store.storages() {
            let Some(kind) = kinds.iter().find(|kind| kind.storage == storage) else {
                continue;
            };
            let objects: Vec<(Key, Arc<Value>)> = self
                .store
                .all(&storage)
                .filter(|((ns, _), _)| ns == namespace)
                .map(|(key, object)| (key.clone(), Arc::clone(object)))
                .collect();
            for (key, object) in objects {
                if finished(kind, &object) {
                    self.store.remove(&storage, &key);
                } else if !is_deleting(&object) {
                    let mut marked = Value::clone(&object);
                    set_metadata(&mut marked, "deletionTimestamp", self.now());
                    set_metadata(&mut marked, "deletionGracePeriodSeconds", 0);
                    self.store.put(&storage, key, marked);
                }
            }
        }
        self.finish_namespace(namespace);
    }

    /// Removes a namespace that is being deleted and is empty by now.
    fn finish_namespace(&mut self, namespace: &str) {
        let key = (String::new(), namespace.to_owned());
        let Some(object) = self.store.get("/namespaces", &key).cloned() else {
            return;
        };
        if !is_deleting(&object) || !self.store.is_empty_of(namespace) {
            return;
        }
        let mut last = Value::clone(&object);
        remove(&mut last, &["spec", "finalizers"]);
        if crate::meta::texts(&last, "/metadata/finalizers").is_empty() {
            self.store.remove("/namespaces", &key);
        } else if last != *object {
            self.store.put("/namespaces", key, last);
        }
    }

    /// Gives a token Secret its token, or removes it when the account it speaks for is not there.
    fn fill_token(&mut self, key: &Key) {
        let Some(secret) = self.store.get("/secrets", key).cloned() else {
            return;
        };
        let account_name = account_of(&secret).to_owned();
        let account = self.store.find("/serviceaccounts", &key.0, &account_name);
        let Some(uid) = account.map(|account| text(account, "/metadata/uid").to_owned()) else {
            self.store.remove("/secrets", key);
            return;
        };
        let bound = text(
            &secret,
            "/metadata/annotations/kubernetes.io~1service-account.uid",
        );
        if !bound.is_empty() && bound != uid {
            self.store.remove("/secrets", key);
            return;
        }
        if !text(&secret, "/data/token").is_empty() {
            return;
        }
        let token = self.credentials.sign(&TokenClaims {
            namespace: &key.0,
            account: &account_name,
            uid: &uid,
            secret: &key.1,
            validity: None,
            audiences: Vec::new(),
        });
        let mut filled = Value::clone(&secret);
        set(
            &mut filled,
            &[
                "metadata",
                "annotations",
                "kubernetes.io/service-account.uid",
            ],
            json!(uid),
        );
        for (field, value) in [
            ("token", token.as_str()),
            ("ca.crt", self.ca_pem.as_str()),
            ("namespace", key.0.as_str()),
        ] {
            set(&mut filled, &["data", field], json!(STANDARD.encode(value)));
        }
        self.store.put("/secrets", key.clone(), filled);
    }
}
