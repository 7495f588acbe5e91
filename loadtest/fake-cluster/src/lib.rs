//! An honest Kubernetes API server in memory.
//!
//! A [`Cluster`] answers as a real kube-apiserver does: lists with paging, watches that resume,
//! server-side apply, finalizers, custom resources, RBAC. It has two fronts. [`Cluster::front`] is
//! a tower service without sockets, which works under tokio's paused clock. [`Cluster::serve_tls`]
//! listens on loopback, for real clients such as `kubectl`.
//!
//! ```
//! use fake_cluster::{Cluster, Fault, Matcher, Verb, object};
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::Api;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), kube::Error> {
//! let cluster = Cluster::default();
//! cluster.inject_times(Matcher::on(&[Verb::Create], "configmaps"),
//!     Fault::status(500), 1);
//! let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
//! let mut map = ConfigMap::default();
//! map.metadata.name = Some("a".to_owned());
//! assert!(maps.create(&Default::default(), &map).await.is_err());
//! assert!(maps.create(&Default::default(), &map).await.is_ok());
//! assert!(cluster.get(object("configmaps", "default", "a")).is_some());
//! assert_eq!(cluster.writes().len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! What is left out is said at the top of each file; the largest are admission webhooks, conversion
//! webhooks, garbage collection and everything that runs workloads.

#![expect(clippy::missing_errors_doc, reason = "as for a real API server")]

mod age;
mod apply;
mod audit;
mod auth;
mod authority;
mod backup;
mod body;
mod cluster;
pub mod contract;
mod controllers;
mod crd;
mod delete;
mod discovery;
mod fault;
mod fields;
pub mod front;
mod kinds;
mod kubeconfig;
mod manifests;
mod meta;
mod patch;
mod rbac;
mod read;
mod request;
mod reviews;
mod rules;
mod schema;
mod selector;
mod serve;
mod state;
mod status;
mod store;
mod table;
mod validate;
mod watch;
mod write;

pub use crate::{
    audit::AuditEntry,
    auth::User,
    authority::Identity,
    backup::{Backup, Revisions},
    cluster::{Cluster, HistoryEntry, ObjectRef, object},
    fault::{Chunks, EventFilter, Fault, FaultId, Matcher},
    front::{tls::TlsFront, tower::Front},
    kubeconfig::cluster_info,
    request::{Target, Verb},
    serve::AnswerBody,
    state::Options,
    status::{Cause, Refusal},
    watch::BoxError,
};
