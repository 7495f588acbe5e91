//! The join check: periodically does what a machine of one machine deployment does to become a
//! node. It fetches a document with the fetcher's token, and requests a certificate as the kubelet,
//! which the API server checks and does not keep. Both use the address and the certificate
//! authority in the documents.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{Client, ResourceExt};

use super::{context::Context, machine_deployment::dereference, tokens};
use crate::api::{
    condition::ConditionType,
    names::{DerivedNames, FETCHER_TOKEN},
    reason::Reason,
};
use crate::client::{
    connect::{ClientParts, Clients},
    transport,
};
use crate::controllers::queue::triggers::Affected;
use crate::plan::{bootstrap, machine_access::MachineAccess};
use crate::telemetry::{
    chain::chain,
    metrics::{ClusterKind, JoinCheck},
};
use crate::tenant::{
    access::{AccessError, ClusterAccess, expiry},
    address::AddressRefused,
    report::ConditionState,
    secret_text::SecretText,
};

mod approval;
mod fetch;
mod kubelet;

/// What to do about a certificate authority that expires.
const NEW_AUTHORITY: &str = "add its successor to kubernetesCABundle in the WorkerCluster, or to \
                             the kubeconfig of the registration, and to ConfigMap \
                             kube-public/cluster-info";

/// The delay of the second attempt. A first failure is not reported.
pub const SECOND_TRY: Duration = Duration::from_secs(30);

/// The result of a check.
#[derive(Debug)]
enum Outcome {
    /// A machine can join.
    Can,
    /// It can until then, when the certificate authority in its documents expires.
    CanUntil(Timestamp),
    /// It cannot, for this reason.
    Cannot(Reason, String),
    /// Unknown, for this reason. The second text is for the log only.
    Unknown(Reason, String, Option<String>),
}

/// Checks one machine deployment, and sets the condition `MachinesCanJoin`.
pub async fn check(context: &Context) {
    let all = context.machine_deployments.state();
    let names = all.iter().map(|it| {
        let namespace = it.namespace().unwrap_or_default();
        DerivedNames::new(&namespace, &it.name_any())
    });
    let names: Vec<DerivedNames> = names
        .filter(|names| context.tokens.get(&names.key).is_some())
        .collect();
    let keys = names.iter().map(|names| names.key.clone()).collect();
    let chosen = context.join_checks.next(&keys);
    let Some(names) = names.iter().find(|it| Some(&it.key) == chosen.as_ref()) else {
        forget(context, "there is no machine deployment to check");
        return;
    };
    let mut found = outcome(context, names).await;
    let queue = &context.join_checks;
    if let Some(Outcome::Cannot(reason, _)) = &found
        && !queue.has_failed(&names.key)
    {
        if *reason == Reason::BootstrapTokenRefused {
            // Somebody may have deleted or changed it: the next read of all tokens is minutes away.
            // If this fails, that read reports it.
            drop(tokens::check(context).await);
        }
        // A single answer may be transient, for example of an API server that has just started.
        tokio::time::sleep(SECOND_TRY.min(context.engagement.shared.cluster_info_interval)).await;
        found = outcome(context, names).await;
    }
    let has_failed = matches!(found, Some(Outcome::Cannot(..)));
    queue.ended(has_failed.then_some(names.key.as_str()));
    if let Some(found) = found {
        report(context, found);
    }
}

/// Sets a condition that was set before to unknown, because nothing is checked.
pub fn forget(context: &Context, why: &str) {
    let kind = ConditionType::MachinesCanJoin;
    let own = context.engagement.worker_cluster.borrow().clone();
    let tenant_status = &context.engagement.tenant_status;
    if tenant_status.was_set(kind, own.as_deref()) {
        tenant_status.set_condition(kind, ConditionState::unknown(Reason::NotChecked, why));
    }
}

fn report(context: &Context, outcome: Outcome) {
    let (counted, finding, cause) = match outcome {
        Outcome::Can => (JoinCheck::Can, ConditionState::well(Reason::CanJoin), None),
        Outcome::CanUntil(end) => {
            let message = format!(
                "the certificate authority in machines' documents expires at {end}; {NEW_AUTHORITY}"
            );
            let well = ConditionState::well(Reason::AuthorityExpiresSoon);
            (JoinCheck::Can, ConditionState { message, ..well }, None)
        }
        Outcome::Cannot(reason, why) => (
            JoinCheck::Cannot,
            ConditionState::retried(reason, why),
            None,
        ),
        Outcome::Unknown(reason, why, cause) => (
            JoinCheck::Unknown,
            ConditionState::unknown(reason, why),
            cause,
        ),
    };
    let engagement = &context.engagement;
    engagement.shared.metrics.join_checked(counted);
    let kind = ConditionType::MachinesCanJoin;
    let is_news = engagement.tenant_status.set_condition(kind, finding);
    if let Some(cause) = cause.filter(|_| is_news) {
        let registration = &engagement.registration;
        tracing::info!(%registration, cause, "cannot reach the address that machines use");
    }
}

/// Does what a machine does. Returns `None` if its inputs are missing or change meanwhile.
async fn outcome(context: &Context, names: &DerivedNames) -> Option<Outcome> {
    let settings = dereference::settings(context).ok()?;
    let cluster_info = context.cluster_info();
    let machine_access =
        MachineAccess::new(&settings, &cluster_info, &context.engagement.kubeconfig_ca);
    let now = context.engagement.health.server_time();
    let soon = match authority_end(&machine_access.authorities(&cluster_info), now) {
        Ok(soon) => soon,
        Err(expired) => return Some(expired),
    };
    let token = context.tokens.get(&names.key)?.token;
    let own = context.node_credentials.own_token(&settings, names)?;
    let fetch_token = own.as_ref().unwrap_or(&cluster_info.fetch_token);
    let holder = match own {
        Some(_) => &names.fetcher_token,
        None => FETCHER_TOKEN,
    };
    let kubeconfig = machine_access.fetch_kubeconfig(fetch_token);
    let fetches = match client(context, &kubeconfig) {
        Ok(client) => {
            let manager = context.engagement.worker.client();
            fetch::fetches((client, manager), (&names.provisioning, holder)).await
        }
        Err(refused) => refused,
    };
    // It may have gone meanwhile, with its documents.
    context.tokens.get(&names.key)?;
    let joins = bootstrap::kubeconfig(&cluster_info, &machine_access.api_server, &token);
    Some(match fetches {
        Outcome::Can => match client(context, &joins) {
            Ok(client) => match (kubelet::joins(client, now).await, soon) {
                (Outcome::Can, Some(end)) => Outcome::CanUntil(end),
                (outcome, _) => outcome,
            },
            Err(refused) => refused,
        },
        Outcome::Cannot(Reason::FetchRefused | Reason::UnexpectedAnswer, _) if own.is_some() => {
            // Its own fetcher may have lost its Role. A reconcile restores it.
            context.node_credentials.forget(&names.key);
            let key = names.key.clone();
            context.triggers.enqueue(Affected::Token(key));
            fetches
        }
        Outcome::Unknown(..) if machine_access.has_other_authority_than(&cluster_info) => {
            Outcome::Cannot(
                Reason::AuthoritiesDiffer,
                format!(
                    "machines fetch from {0} and join at {0} with certificate authorities that have no \
                 certificate in common: set kubernetesCABundle in the WorkerCluster to the one in \
                 ConfigMap kube-public/cluster-info",
                    machine_access.api_server
                ),
            )
        }
        other => other,
    })
}

/// Returns when the first certificate authority in the documents expires, if it does so soon. The
/// TLS of this program ignores that, and those of curl and of the kubelet do not.
fn authority_end(authorities: &[String], now: Timestamp) -> Result<Option<Timestamp>, Outcome> {
    let ends = authorities.iter().map(String::as_bytes);
    let ends = ends.filter_map(expiry::of_authority);
    let Some(first) = ends.min_by_key(expiry::Expiry::ends) else {
        return Ok(None);
    };
    let end = first.ends();
    if end <= now {
        let why = format!(
            "the certificate authority in machines' documents expired at {end}; {NEW_AUTHORITY}"
        );
        return Err(Outcome::Cannot(Reason::AuthorityExpired, why));
    }
    Ok(first.is_near(now).then_some(end))
}

fn unreachable_from_here(why: String) -> Outcome {
    Outcome::Unknown(Reason::NotChecked, why, None)
}

/// Returns the outcome of a failed call. An address that only the machines' network reaches proves
/// nothing; any answer to a request does. The message is the same for each machine deployment.
fn of_error(error: &kube::Error, (reason, what): (Reason, &str)) -> Outcome {
    let why = chain(error);
    match error {
        kube::Error::Api(status) if [401, 403].contains(&status.code) => {
            Outcome::Cannot(reason, format!("{what}: {why}"))
        }
        kube::Error::Api(_) => Outcome::Cannot(Reason::UnexpectedAnswer, format!("{what}: {why}")),
        error if transport::is_certificate_refused(error) => {
            Outcome::Cannot(Reason::CertificateRefused, format!("{what}: {why}"))
        }
        error => Outcome::Unknown(
            Reason::NotChecked,
            format!("the address that machines use is not reached from here: {why}"),
            transport::hidden_cause(error).map(str::to_owned),
        ),
    }
}

/// Returns the outcome for an address to which this program does not connect. A machine's own
/// address leads no machine to a cluster.
fn not_connected_to(error: &AccessError) -> Outcome {
    match error {
        AccessError::ServerRefused {
            host,
            source: AddressRefused::Loopback | AddressRefused::Unspecified,
            ..
        } => Outcome::Cannot(
            Reason::AddressUnusable,
            format!(
                "`{host}`, at which machines look for the API server, is each machine itself: set \
                 apiServerOverride in the WorkerCluster, or correct ConfigMap \
                 kube-public/cluster-info"
            ),
        ),
        error => unreachable_from_here(chain(error).to_string()),
    }
}

/// Returns a client that connects as a machine does, within the tenant's rules for addresses and
/// its budget. Its calls do not affect the cluster's health.
fn client(context: &Context, kubeconfig: &SecretText) -> Result<Client, Outcome> {
    let engagement = &context.engagement;
    let rules = &engagement.policy.access;
    let access = ClusterAccess::parse(kubeconfig.expose().as_bytes(), rules)
        .map_err(|error| not_connected_to(&error))?;
    let transport = (engagement.shared.connector)(&access, rules)
        .map_err(|error| unreachable_from_here(chain(&*error).to_string()))?;
    let clients = Clients::new(ClientParts {
        transport,
        budget: Arc::clone(&engagement.worker_budget),
        share: None,
        timeout: engagement.shared.request_timeout,
        health: None,
        fence: None,
        memory: Some(Arc::clone(&engagement.shared.memory)),
        kind: ClusterKind::Worker,
        metrics: engagement.shared.metrics.clone(),
    });
    Ok(clients.client())
}
