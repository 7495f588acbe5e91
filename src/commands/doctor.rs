//! Checks everything that the manager needs, with the rights and the network of the user, and says
//! how to fix what is missing. Writes nothing.

mod conditions;
mod connection;
pub(super) mod management;
mod memory;
mod registrations;
mod renewal;
mod rights;
mod tenant;

use std::{borrow::Cow, collections::BTreeSet};

use futures::{StreamExt as _, stream};
use serde::Serialize;

use self::connection::{Answer, is_unauthorized, reach, refused};
use super::{
    cluster_client::{ClusterClient, KubeconfigSource, ensure_namespace},
    count::Count,
    managers::Fleets,
    selection::Selection,
};
use crate::telemetry::chain::chain;
use crate::tenant::{
    access::{AccessRules, renewal::ServiceAccountName},
    inventory::Inventory,
};

/// The maximum number of connections to a worker cluster: one, or four if its server speaks only
/// HTTP/1.1.
pub const DESCRIPTORS_PER_CLUSTER: u64 = 4;
/// The number of descriptors for everything but worker clusters.
pub const DESCRIPTORS_BESIDE: u64 = 64;

/// The number of tenants that are checked at the same time. Of a large fleet that is down, each
/// takes the whole time that a connection may take.
const TENANTS_AT_ONCE: usize = 256;

/// The options of the checks.
#[derive(Clone, Debug)]
pub struct Options {
    /// Access to the management cluster.
    pub management: KubeconfigSource,
    /// The tenants to check.
    pub selection: Selection,
    /// The label selector of registrations.
    pub selector: String,
    /// The manager's inventories.
    pub inventories: BTreeSet<Inventory>,
    /// The keys under which Secrets may have their kubeconfigs.
    pub keys: Vec<String>,
    /// The manager's ServiceAccount. The replicas' Leases are in its namespace.
    pub manager: ServiceAccountName,
    /// The fleet to check; `None` for the only one that runs.
    pub fleet: Option<String>,
    /// Why the manager's settings are not known. Those here are then the flags'.
    pub settings_unknown: Option<String>,
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
    /// The subject of the check: for a condition of a WorkerCluster, its type.
    pub what: Cow<'static, str>,
    /// The result.
    pub state: State,
    /// The finding.
    pub message: String,
    /// The remediation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Check {
    fn new(
        place: &str,
        what: impl Into<Cow<'static, str>>,
        state: State,
        message: impl Into<String>,
    ) -> Self {
        Self {
            place: place.to_owned(),
            what: what.into(),
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

/// The result of all checks.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// The checks, in the order in which they are printed.
    pub checks: Vec<Check>,
    /// False if the management cluster does not accept the credential. Nothing else was checked.
    pub is_authorized: bool,
}

impl From<Vec<Check>> for Diagnosis {
    fn from(checks: Vec<Check>) -> Self {
        Self {
            checks,
            is_authorized: true,
        }
    }
}

/// Runs all checks.
///
/// # Errors
///
/// Returns an error only if the management cluster cannot be reached.
pub async fn run_checks(options: &Options, count: &Count) -> anyhow::Result<Diagnosis> {
    let cluster = ClusterClient::management(&options.management).await?;
    let unauthorized = || Diagnosis {
        checks: vec![refused(&options.management, &cluster)],
        is_authorized: false,
    };
    let mut rules = options.rules.clone();
    let server = cluster.server.authority();
    if let Some(server) = server.and_then(|server| server.as_str().parse().ok()) {
        rules.addresses.denied_servers.push(server);
    }
    let Answer::Clock(here) = reach("management", &cluster.client).await? else {
        return Ok(unauthorized());
    };
    let mut checks = vec![Check::ok("management", "connection", "it answers")];
    let fleets = Fleets::read(&cluster.client, &options.manager.namespace).await;
    let found = match registrations::fetch(options, &cluster.client).await {
        Ok(found) => found,
        // A server may answer the first request without looking at the credential.
        Err(error) if is_unauthorized(&error) => return Ok(unauthorized()),
        Err(error) => {
            let message = format!("cannot list registrations: {}", chain(&error));
            let fix = "use a kubeconfig that may list Secrets and WorkerClusters";
            let check = Check::wrong("management", "registrations", (message, fix));
            let manager = (&cluster.client, &fleets);
            checks.extend(management::run_checks(options, manager, None).await?);
            checks.push(check);
            return Ok(checks.into());
        }
    };
    let owns = found.registered.iter().filter_map(|(_, own)| own.as_ref());
    let fleets = match fleets {
        Ok(fleets) => Ok(fleets.with_those_of(&cluster.client, owns).await),
        Err(error) => Err(error),
    };
    let tenants = &found.registered;
    if tenants.is_empty() && found.checks.is_empty() {
        for namespace in &options.selection.namespaces {
            ensure_namespace(&cluster.client, namespace).await?;
        }
    }
    let manager = (&cluster.client, &fleets);
    checks.extend(management::run_checks(options, manager, Some(&found)).await?);
    count.begin(tenants.len());
    let keys: Vec<&str> = options.keys.iter().map(String::as_str).collect();
    let of_tenants = stream::iter(tenants)
        .map(async |(secret, own)| {
            let by = tenant::By {
                rules: &rules,
                keys: &keys,
                here,
                manager: (&cluster.client, &options.manager),
                fleets: fleets.as_ref().ok(),
            };
            let checks = tenant::run_checks(by, secret, own.as_ref()).await;
            count.advance();
            checks
        })
        .buffered(TENANTS_AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    checks.extend(found.checks);
    checks.extend(of_tenants.into_iter().flatten());
    Ok(checks.into())
}
