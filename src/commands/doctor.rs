//! Checks everything that the manager needs, with the rights and the network of the user, and says
//! how to fix what is missing. Writes nothing.

pub(super) mod management;
mod memory;
mod rights;
mod tenant;

use futures::{StreamExt as _, stream};
use http::Request;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Client, ResourceExt,
    api::{ListParams, ObjectMeta},
};
use serde::Serialize;

use super::{
    AT_ONCE,
    cluster_client::{ClusterClient, KubeconfigSource, ensure_namespace},
    count::Count,
    selection::{Selection, registration_of},
};
use crate::api::worker_cluster::WorkerCluster;
use crate::client::{clock::answered_at, pages};
use crate::telemetry::chain::chain;
use crate::tenant::access::AccessRules;

/// The maximum number of connections to a worker cluster: one, or four if its server speaks only
/// HTTP/1.1.
pub const DESCRIPTORS_PER_CLUSTER: u64 = 4;
/// The number of descriptors for everything but worker clusters.
pub const DESCRIPTORS_BESIDE: u64 = 64;
/// A clock that is wrong by more than this starts to matter.
const SKEW_WARN_SECONDS: u64 = 10;
/// If clocks differ by more than this, tokens are refused.
const SKEW_FAIL_SECONDS: u64 = 300;

/// The options of the checks.
#[derive(Clone, Debug)]
pub struct Options {
    /// Access to the management cluster.
    pub management: KubeconfigSource,
    /// The tenants to check.
    pub selection: Selection,
    /// The label selector of registrations.
    pub selector: String,
    /// The namespace of the replicas' Leases and of the manager's ServiceAccount.
    pub namespace: String,
    /// The manager's ServiceAccount.
    pub service_account: String,
    /// The manager's rules for kubeconfigs.
    pub rules: AccessRules,
    /// The limit of file descriptors of a process on this machine.
    pub descriptors: Option<u64>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum State {
    /// It is as it should be.
    Ok,
    /// It is not as it should be, but may work.
    Warn,
    /// It is wrong.
    Fail,
}

/// A check with its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The place: `management`, `this machine`, or a tenant's namespace.
    pub place: String,
    /// The subject of the check.
    pub what: &'static str,
    /// The result.
    pub state: State,
    /// The finding.
    pub message: String,
    /// The remediation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Check {
    fn new(place: &str, what: &'static str, state: State, message: impl Into<String>) -> Self {
        Self {
            place: place.to_owned(),
            what,
            state,
            message: message.into(),
            fix: None,
        }
    }

    fn ok(place: &str, what: &'static str, message: impl Into<String>) -> Self {
        Self::new(place, what, State::Ok, message)
    }

    fn wrong(place: &str, what: &'static str, (message, fix): (String, &str)) -> Self {
        Self::new(place, what, State::Fail, message).mended(fix)
    }

    fn doubtful(place: &str, what: &'static str, (message, fix): (String, &str)) -> Self {
        Self::new(place, what, State::Warn, message).mended(fix)
    }

    fn mended(self, fix: impl Into<String>) -> Self {
        Self {
            fix: Some(fix.into()),
            ..self
        }
    }
}

/// Runs all checks.
///
/// # Errors
///
/// Returns an error only if the management cluster cannot be reached.
pub async fn run_checks(options: &Options, count: &Count) -> anyhow::Result<Vec<Check>> {
    let cluster = ClusterClient::management(&options.management).await?;
    let mut rules = options.rules.clone();
    let server = cluster.server.authority();
    if let Some(server) = server.and_then(|server| server.as_str().parse().ok()) {
        rules.addresses.denied_servers.push(server);
    }
    let here = reach("management", &cluster.client).await?;
    let mut checks = vec![Check::ok("management", "connection", "it answers")];
    let tenants = registrations(options, &cluster.client).await;
    let tenants = match tenants {
        Ok((tenants, unreadable)) => {
            if tenants.is_empty() {
                for namespace in &options.selection.namespaces {
                    ensure_namespace(&cluster.client, namespace).await?;
                }
            }
            checks.extend(unreadable.iter().map(unreadable_worker_cluster));
            tenants
        }
        Err(error) => {
            let message = format!("cannot list registrations: {}", chain(&error));
            let fix = "use a kubeconfig that may list Secrets and WorkerClusters";
            checks.push(Check::doubtful(
                "management",
                "registrations",
                (message, fix),
            ));
            Vec::new()
        }
    };
    checks.extend(management::run_checks(options, &cluster.client, &tenants).await?);
    count.begin(tenants.len());
    let of_tenants = stream::iter(&tenants)
        .map(async |(secret, own)| {
            let checks = tenant::run_checks((&rules, here), secret, own.as_ref()).await;
            count.advance();
            checks
        })
        .buffered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    checks.extend(of_tenants.into_iter().flatten());
    Ok(checks)
}

fn unreadable_worker_cluster(found: &ObjectMeta) -> Check {
    let name = found.name.as_deref().unwrap_or_default();
    let message = format!("{name} cannot be read by this version of osm");
    let fix = "correct it: osm crds has its schema, and the API server names what differs";
    let place = found.namespace.as_deref().unwrap_or_default();
    Check::wrong(place, "WorkerCluster", (message, fix))
}

/// A registration and its WorkerCluster.
type Registered = (Secret, Option<WorkerCluster>);

/// The registrations, and the WorkerClusters that cannot be decoded.
type Registrations = (Vec<Registered>, Vec<ObjectMeta>);

async fn registrations(options: &Options, client: &Client) -> Result<Registrations, kube::Error> {
    let selection = &options.selection;
    let (mut secrets, mut owns, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    for (_, api) in selection.apis::<Secret>(client) {
        let params = ListParams::default().labels(&options.selector);
        secrets.extend(pages::all(&api, params).await?.objects);
    }
    for (_, api) in selection.apis::<WorkerCluster>(client) {
        match pages::all(&api, selection.params()).await {
            // Another check reports missing CRDs.
            Err(error) if pages::is_not_served(&error) => {}
            listed => {
                let listed = listed?;
                owns.extend(listed.objects);
                unreadable.extend(listed.unreadable);
            }
        }
    }
    let of = |secret: &Secret| {
        let registration = (secret.namespace(), secret.name_any());
        let mut owns = owns.iter();
        owns.find(|own| registration_of(own) == registration)
            .cloned()
    };
    let registered = secrets.into_iter().map(|it| (of(&it), it));
    let registered = registered
        .filter(|(own, _)| selection.labels.is_none() || own.is_some())
        .map(|(own, secret)| (secret, own));
    Ok((registered.collect(), unreadable))
}

/// Checks that a cluster answers. Returns how far its clock is ahead of this machine's, if the
/// answer contains the time.
async fn reach(place: &str, client: &Client) -> anyhow::Result<Option<SignedDuration>> {
    use anyhow::Context as _;
    let request = Request::get("/version").body(kube::client::Body::empty())?;
    let answer = client
        .send(request)
        .await
        .with_context(|| format!("cannot reach the cluster ({place})"))?;
    let there = answered_at(answer.headers());
    Ok(there.map(|there| there.duration_since(Timestamp::now())))
}

/// Compares the clocks of the management cluster and of a worker cluster, each given by how far it
/// is ahead of this machine's. This machine's own clock may be wrong.
fn clock(place: &str, (here, there): (Option<SignedDuration>, Option<SignedDuration>)) -> Check {
    let Some((here, there)) = here.zip(there) else {
        return Check::ok(place, "connection", "it answers");
    };
    let what = "connection and clock";
    let skew = there.as_secs().abs_diff(here.as_secs());
    let message = format!("it answers; its clock and the management cluster's differ by {skew} s");
    let fix = "let the machines of both synchronise their clocks (chrony, systemd-timesyncd): \
               they decide what has expired";
    match skew {
        0..=SKEW_WARN_SECONDS => Check::ok(place, what, message),
        SKEW_FAIL_SECONDS.. => Check::wrong(place, what, (message, fix)),
        _ => Check::doubtful(place, what, (message, fix)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_compared_with_each_other_and_not_with_this_machines() {
        let ahead = |seconds| Some(SignedDuration::from_secs(seconds));
        let state = |here, there| clock("x", (here, there)).state;
        assert_eq!(state(ahead(0), ahead(1)), State::Ok);
        assert_eq!(state(ahead(7_200), ahead(7_201)), State::Ok);
        assert_eq!(state(None, ahead(7_200)), State::Ok);
        assert_eq!(state(ahead(0), ahead(-60)), State::Warn);
        let wrong = clock("x", (ahead(-1_800), ahead(1_800)));
        assert!(wrong.state == State::Fail && wrong.fix.is_some());
    }
}
