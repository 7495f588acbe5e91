//! A real kube-apiserver with its etcd in the place of a cluster in memory. It answers the same
//! questions: what was asked of it, and what its objects take.
//!
//! A real server does not tell whether a patch has changed anything: each that was answered well
//! counts as a write here.

use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use fake_cluster::{AuditEntry, Target, Verb};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::Value;
use tokio::time::Instant;

use super::measure;
use crate::control_plane::{AuditEvent, AuditStage, ControlPlane, Params};

/// Old revisions are no part of what is measured: they are gone after two of these.
const COMPACTION: &str = "--etcd-compaction-interval=10s";
/// What etcd holds, without pages that are free.
const IN_USE: &str = "etcd_mvcc_db_total_size_in_use_in_bytes";
const FIELD_MANAGER: &str = "loadtest";

/// A running cluster, and the manager's account in it.
pub struct RealCluster {
    plane: ControlPlane,
    client: Client,
    kubeconfig: String,
    seen: Mutex<Seen>,
}

/// What was read of the server's audit log.
#[derive(Default)]
struct Seen {
    offset: u64,
    entries: Vec<AuditEntry>,
}

impl RealCluster {
    /// Starts one with these manifests, and a token for an account, whose namespace is there by
    /// them.
    pub async fn start(
        name: &str,
        manifests: &[&str],
        (namespace, account): (&str, &str),
    ) -> anyhow::Result<Self> {
        let plane = ControlPlane::start(Params {
            name: name.to_owned(),
            api_server_flags: vec![COMPACTION.to_owned()],
            ..Params::default()
        });
        let plane = Box::pin(plane).await.context("starting a control plane")?;
        for manifest in manifests {
            Box::pin(plane.apply_yaml(manifest)).await?;
        }
        Ok(Self {
            kubeconfig: plane
                .kubeconfig_for_service_account(namespace, account)
                .await?,
            client: plane.client().await?,
            plane,
            seen: Mutex::default(),
        })
    }

    /// The manager's way in.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Stores an object.
    pub async fn put(&self, object: Value) -> anyhow::Result<()> {
        let object: DynamicObject = serde_json::from_value(object).context("reading an object")?;
        let kind = object.types.clone().context("it has a kind")?;
        let name = object.metadata.name.clone().context("it has a name")?;
        let resource = ApiResource::from_gvk(&(&kind).try_into()?);
        let client = self.client.clone();
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let stored = api.patch(&name, &params, &Patch::Apply(&object)).await;
        stored.with_context(|| format!("storing {} {name}", kind.kind))?;
        Ok(())
    }

    /// How many of the requests since they were taken are of some kind.
    pub fn count_requests(&self, is_one: impl Fn(&AuditEntry) -> bool) -> anyhow::Result<usize> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        self.read_on(&mut seen)?;
        Ok(seen.entries.iter().filter(|entry| is_one(entry)).count())
    }

    /// The requests so far, which are forgotten then. What cannot be read is left for the next
    /// count, which tells why.
    pub fn take_audit(&self) -> Vec<AuditEntry> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.read_on(&mut seen);
        std::mem::take(&mut seen.entries)
    }

    fn read_on(&self, seen: &mut Seen) -> anyhow::Result<()> {
        let (events, offset) = self.plane.audit_events_from(seen.offset)?;
        seen.offset = offset;
        seen.entries.extend(events.iter().filter_map(entry));
        Ok(())
    }

    /// What etcd's database holds, in bytes.
    pub async fn etcd_bytes(&self) -> anyhow::Result<f64> {
        let text = measure::page(&self.plane.etcd_address(), "/metrics").await?;
        let line = text.lines().find_map(|line| line.strip_prefix(IN_USE));
        let value = line.context("etcd tells what it holds")?.trim();
        value
            .parse()
            .with_context(|| format!("{IN_USE} is {value}"))
    }
}

/// As a cluster in memory notes it; a watch when it begins, everything else when it ends.
fn entry(event: &AuditEvent) -> Option<AuditEntry> {
    let verb = verb(&event.verb)?;
    if (verb == Verb::Watch) != (event.stage == AuditStage::ResponseStarted) {
        return None;
    }
    let age = Timestamp::now()
        .duration_since(event.answered)
        .unsigned_abs();
    let now = Instant::now();
    Some(AuditEntry {
        sequence: 0,
        at: now.checked_sub(age).unwrap_or(now),
        verb,
        target: Target {
            group: event.api_group.clone(),
            resource: event.resource.clone(),
            subresource: event.subresource.clone(),
            namespace: event.namespace.clone(),
            name: event.name.clone(),
            ..Target::default()
        },
        path: event.request_uri.clone(),
        user: event.user.clone(),
        user_agent: event.user_agent.clone(),
        code: event.code,
        dry_run: false,
        wrote: verb.is_mutating() && (200..300).contains(&event.code),
    })
}

fn verb(name: &str) -> Option<Verb> {
    let all = [
        Verb::Get,
        Verb::List,
        Verb::Watch,
        Verb::Create,
        Verb::Update,
        Verb::Patch,
        Verb::Delete,
        Verb::DeleteCollection,
    ];
    all.into_iter().find(|verb| verb.as_str() == name)
}
