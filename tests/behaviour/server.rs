//! One API server of either world, behind one set of methods. Nothing here knows the manager.

use std::fmt::Debug;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use base64::{Engine, engine::general_purpose::STANDARD};
use fake_cluster::{Cluster, Options, TlsFront, User};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use kube::{Api, Client};
use loadtest::control_plane::{ControlPlane, Issuer, Params, client_of};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::{
    audit::{Anchor, Request},
    fixtures, wait,
};

/// Which world a suite runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// API servers in memory, behind TLS on loopback.
    Fake,
    /// kube-apiserver and etcd.
    Real,
}

/// One API server.
pub struct Server {
    backend: Backend,
    admin: OnceCell<Client>,
    tokens: AtomicU32,
}

enum Backend {
    Fake {
        cluster: Cluster,
        front: TlsFront,
        anchor: Anchor,
    },
    Real(Box<ControlPlane>),
}

/// A ServiceAccount.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// Its namespace.
    pub namespace: &'static str,
    /// Its name.
    pub name: &'static str,
}

impl Account {
    /// As RBAC and audits name it.
    pub fn user(self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

impl Server {
    /// Starts one.
    pub async fn start(kind: Kind, name: &str) -> Self {
        let backend = match kind {
            Kind::Fake => {
                let cluster = Cluster::new(Options {
                    name: name.to_owned(),
                    started_at: Timestamp::now(),
                    ..Options::default()
                });
                let front = cluster.serve_tls().await.expect("loopback has a free port");
                Backend::Fake {
                    cluster,
                    front,
                    anchor: Anchor::now(),
                }
            }
            Kind::Real => {
                return Self::start_real(Params {
                    name: name.to_owned(),
                    ..Params::default()
                })
                .await;
            }
        };
        Self::of(backend)
    }

    async fn start_real(params: Params) -> Self {
        let started = ControlPlane::start(params).await;
        Self::of(Backend::Real(Box::new(ok(
            started,
            "a control plane starts",
        ))))
    }

    fn of(backend: Backend) -> Self {
        Self {
            backend,
            admin: OnceCell::new(),
            tokens: AtomicU32::new(0),
        }
    }

    /// Starts one whose tokens others can verify.
    pub async fn start_issuer(kind: Kind, name: &str) -> Self {
        match kind {
            Kind::Fake => Self::start(kind, name).await,
            Kind::Real => {
                Self::start_real(Params {
                    name: name.to_owned(),
                    issuer: Issuer::Itself,
                    ..Params::default()
                })
                .await
            }
        }
    }

    /// Starts one that accepts another one's tokens for an audience. The names of its users begin
    /// with a prefix.
    pub async fn start_trusting(
        issuer: &Self,
        name: &str,
        (audience, prefix): (&str, &str),
    ) -> Self {
        match &issuer.backend {
            Backend::Fake { cluster, .. } => {
                let trusting = Self::start(Kind::Fake, name).await;
                if let Backend::Fake { cluster: own, .. } = &trusting.backend {
                    own.trust(cluster, audience, prefix);
                }
                trusting
            }
            Backend::Real(plane) => {
                let configuration = json!({
                    "apiVersion": "apiserver.config.k8s.io/v1",
                    "kind": "AuthenticationConfiguration",
                    "jwt": [{
                        "issuer": {
                            "url": plane.server(),
                            "certificateAuthority": plane.ca_certificate(),
                            "audiences": [audience],
                        },
                        "claimMappings": { "username": { "claim": "sub", "prefix": prefix } },
                    }],
                });
                let file = plane.folder().join(format!("{name}.json"));
                ok(
                    std::fs::write(&file, configuration.to_string()),
                    "the folder is ours",
                );
                Self::start_real(Params {
                    name: name.to_owned(),
                    api_server_flags: vec![format!("--authentication-config={}", file.display())],
                    ..Params::default()
                })
                .await
            }
        }
    }

    /// A client that may do everything.
    pub async fn admin(&self) -> Client {
        let kubeconfig = match &self.backend {
            Backend::Fake { front, .. } => front.kubeconfig(&User::admin()),
            Backend::Real(plane) => plane.admin_kubeconfig(),
        };
        let make = || async { ok(client_of(&kubeconfig).await, "our own kubeconfig works") };
        self.admin.get_or_init(make).await.clone()
    }

    /// A kubeconfig that may do everything, with a namespace that is meant where none is named.
    pub fn admin_in(&self, namespace: &str) -> String {
        let kubeconfig = match &self.backend {
            Backend::Fake { front, .. } => front.kubeconfig(&User::admin()),
            Backend::Real(plane) => plane.admin_kubeconfig(),
        };
        let kubeconfig = kubeconfig.replace("    namespace: default\n", "");
        kubeconfig.replace(
            "\n  context:\n",
            &format!("\n  context:\n    namespace: {namespace}\n"),
        )
    }

    /// The version that it reports.
    pub async fn version(&self) -> String {
        let info = self.admin().await.apiserver_version().await;
        ok(info, "the API server tells its version").git_version
    }

    /// Its URL.
    pub fn url(&self) -> String {
        match &self.backend {
            Backend::Fake { front, .. } => front.url(),
            Backend::Real(plane) => plane.server().to_owned(),
        }
    }

    /// Its certificate authority, as kubeconfigs have it.
    pub fn authority(&self) -> String {
        STANDARD.encode(self.authority_pem())
    }

    /// The same certificate in another text: with a comment beside it.
    pub fn commented_authority(&self) -> String {
        STANDARD.encode(format!("# this cluster's own\n{}", self.authority_pem()))
    }

    fn authority_pem(&self) -> String {
        match &self.backend {
            Backend::Fake { cluster, .. } => cluster.ca_pem(),
            Backend::Real(plane) => plane.ca_certificate().to_owned(),
        }
    }

    /// Applies manifests as an administrator.
    pub async fn apply(&self, yaml: &str) {
        match &self.backend {
            Backend::Fake { cluster, .. } => ok(cluster.apply_yaml(yaml), "manifests apply"),
            Backend::Real(plane) => ok(plane.apply_yaml(yaml).await, "manifests apply"),
        }
    }

    /// Applies a file of the repository.
    pub async fn apply_file(&self, path: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let yaml = std::fs::read_to_string(path).expect("the file is part of the repository");
        self.apply(&yaml).await;
    }

    /// Ends the API server; what it stores stays.
    pub async fn stop(&self) {
        match &self.backend {
            Backend::Fake { front, .. } => front.stop().await,
            Backend::Real(plane) => ok(plane.stop_api_server().await, "an API server stops"),
        }
    }

    /// Starts the API server again, on its old port.
    pub async fn start_again(&self) {
        match &self.backend {
            Backend::Fake { front, .. } => ok(front.start().await, "the port is still ours"),
            Backend::Real(plane) => ok(plane.start_api_server().await, "an API server starts"),
        }
    }

    /// A fresh token of a ServiceAccount: that of a new Secret, which the token controller fills.
    pub async fn token(&self, account: Account) -> String {
        let number = self.tokens.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", account.name);
        let secrets: Api<Secret> = Api::namespaced(self.admin().await, account.namespace);
        let secret = fixtures::a_token_secret(&name, account.name);
        ok(
            secrets.create(&PostParams::default(), &secret).await,
            "a token Secret is made",
        );
        let filled = wait::for_object(&secrets, &name, "the Secret has a token", |secret| {
            fixtures::has_data(secret, "token")
        });
        fixtures::text(&filled.await, "token")
    }

    /// A kubeconfig with a fresh token of a ServiceAccount.
    pub async fn kubeconfig(&self, account: Account) -> String {
        let token = self.token(account).await;
        fixtures::a_kubeconfig(&self.url(), &self.authority(), &token)
    }

    /// Every request that a user has sent since a time, oldest first.
    pub fn requests(&self, account: Account, since: Timestamp) -> Vec<Request> {
        let user = account.user();
        let mut requests = self.audit();
        requests.retain(|request| request.user == user && request.received >= since);
        requests.sort_by_key(|request| request.received);
        requests
    }

    /// Waits until every request that was answered before is in the audit: a real audit log may
    /// lag behind, but keeps the order.
    pub async fn settle_audit(&self) {
        let maps: Api<ConfigMap> = Api::default_namespaced(self.admin().await);
        let number = self.tokens.fetch_add(1, Ordering::Relaxed);
        let name = format!("mark-{number}");
        let nothing = ok(maps.get_opt(&name).await, "an administrator may look");
        assert!(nothing.is_none(), "nobody makes marks");
        wait::until("the audit log has caught up", async || {
            let is_mark = |request: &Request| request.name == name;
            self.audit().iter().any(is_mark).then_some(())
        })
        .await;
    }

    fn audit(&self) -> Vec<Request> {
        match &self.backend {
            Backend::Fake {
                cluster, anchor, ..
            } => {
                let entries = cluster.audit();
                entries.into_iter().map(|it| anchor.request(it)).collect()
            }
            Backend::Real(plane) => {
                let events = ok(plane.audit_events(), "the audit log is readable");
                events.into_iter().map(Request::from).collect()
            }
        }
    }

    /// Stores an object that no schema would let in, where that is possible: in memory.
    pub fn store_unchecked(&self, object: Value) {
        if let Backend::Fake { cluster, .. } = &self.backend {
            cluster.put_raw(object).expect("the kind is served");
        }
    }

    /// The control plane, where that is what this is.
    pub fn real(&self) -> Option<&ControlPlane> {
        match &self.backend {
            Backend::Fake { .. } => None,
            Backend::Real(plane) => Some(plane),
        }
    }
}

/// The value, or a failed test that says what should have held.
pub fn ok<T, E: Debug>(result: Result<T, E>, what: &str) -> T {
    result.expect(what)
}
