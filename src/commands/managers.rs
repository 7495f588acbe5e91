//! The managers of a management cluster, as the Leases of their replicas show them: which fleets
//! there are, with which settings they run, and which replica serves a tenant.

pub mod follow;
mod serving;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, bail};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, ResourceExt, api::ListParams, core::DeserializeGuard};
use tokio::time::{Instant, sleep};

pub use self::serving::{Serving, Unserved};
use crate::api::{
    names::{FLEET_LABEL, RUNS_VERSION, RUNS_WITH},
    worker_cluster::FleetId,
};
use crate::client::pages;
use crate::fleet::sharding::Holder;
use crate::settings::PublishedSettings;

/// A Lease counts for this much longer than it lasts: clocks of users may be wrong.
const SKEW: SignedDuration = SignedDuration::from_mins(1);
/// A replica renews its Lease several times within this time.
const OBSERVED: Duration = Duration::from_secs(20);
/// The interval between two lists of Leases that are observed.
const INTERVAL: Duration = Duration::from_secs(1);

/// A fleet, as its Leases show it.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// The name, from the flag `--fleet`.
    pub name: String,
    /// The namespace of its Leases, in which its replicas run.
    pub namespace: String,
    /// The replicas that hold their Leases.
    pub replicas: BTreeSet<String>,
    /// True if a replica has not given its Lease back, and has not renewed it either. The clock of
    /// this machine decides that.
    pub has_expired: bool,
    /// The releases of these replicas, with their number. Releases that did not publish their
    /// version have an empty one.
    pub versions: BTreeMap<String, usize>,
    /// The time at which a replica last renewed its Lease.
    pub renewed: Option<Timestamp>,
    /// The settings of the replica that joined last. `None` if its release does not publish them.
    pub settings: Option<Result<PublishedSettings, String>>,
}

impl Fleet {
    /// Returns the namespaces that it leaves to other fleets.
    pub fn except_namespaces(&self) -> Vec<String> {
        let settings = self.settings.as_ref().and_then(|it| it.as_ref().ok());
        settings.map_or_else(Vec::new, |it| it.except_namespaces.clone())
    }
}

/// The fleets whose replicas run in a namespace. Leases elsewhere are not believed: a tenant may
/// write those in its own namespace.
#[derive(Clone, Debug, Default)]
pub struct Fleets {
    all: Vec<Fleet>,
    /// The namespace.
    place: String,
    /// Those of other installations, and where they were looked for.
    elsewhere: BTreeMap<String, Vec<Fleet>>,
}

impl Fleet {
    /// Returns true if one of its replicas holds its Lease.
    pub fn runs(&self) -> bool {
        !self.replicas.is_empty()
    }

    /// Says since when no replica runs.
    pub(super) fn is_silent(&self) -> String {
        let Self {
            name, namespace, ..
        } = self;
        match self.renewed {
            Some(last) => format!(
                "no replica of fleet {name} has renewed its Lease in {namespace} since {last:.0}"
            ),
            None => format!("no replica of fleet {name} has a Lease in {namespace}"),
        }
    }

    /// Returns what it publishes.
    ///
    /// # Errors
    ///
    /// Its release publishes nothing, or what this one cannot read.
    pub fn settings(&self) -> anyhow::Result<&PublishedSettings> {
        match &self.settings {
            Some(Ok(settings)) => Ok(settings),
            Some(Err(why)) => bail!(
                "fleet {} runs with settings that this release of osm does not know ({why}): use \
                 the manager's release of osm",
                self.name
            ),
            None => bail!(
                "fleet {} is of a release that publishes no settings",
                self.name
            ),
        }
    }
}

fn not_watched(fleet: &str, namespace: &str) -> String {
    format!(
        "fleet {fleet} does not watch namespace {namespace} (its flags --namespace and --except-namespace)"
    )
}

impl Fleets {
    /// Lists the Leases in the manager's namespace.
    ///
    /// # Errors
    ///
    /// A call to the API server fails.
    pub async fn read(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let leases = leases(client, namespace).await?;
        Ok(Self {
            all: fleets(&leases, Timestamp::now()),
            place: namespace.to_owned(),
            elsewhere: BTreeMap::new(),
        })
    }

    /// Lists the Leases, and waits until those that have expired by this machine's clock are
    /// renewed, or until they have not been for a while: a replica that counts as gone after that
    /// is gone by any clock.
    ///
    /// # Errors
    ///
    /// A call to the API server fails.
    pub async fn observe(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let before = Self::read(client, namespace).await?;
        let is_doubtful = |it: &Fleet| !it.runs() && it.has_expired;
        let renewed = before.all.iter().filter_map(|it| it.renewed).max();
        let deadline = Instant::now() + OBSERVED;
        while before.all.iter().any(is_doubtful) && Instant::now() < deadline {
            sleep(INTERVAL).await;
            let leases = leases(client, namespace).await?;
            let last = renew_times(&leases).max();
            if let Some(last) = last.filter(|last| Some(*last) > renewed) {
                return Ok(Self {
                    all: fleets(&leases, last),
                    ..before
                });
            }
        }
        Ok(before)
    }

    /// Returns all fleets.
    pub fn all(&self) -> &[Fleet] {
        &self.all
    }

    /// Returns the fleet with this name, or the only one that runs. Without a running one, returns
    /// the one that ran last. `None` if there has never been one.
    ///
    /// # Errors
    ///
    /// There is none of this name, or there are several and none is named.
    pub fn choose(&self, name: Option<&str>) -> anyhow::Result<Option<&Fleet>> {
        let known = || {
            let known = self.all.iter();
            let known: Vec<_> = known.map(|it| it.name.as_str()).collect();
            known.join(", ")
        };
        let of_name = |it: &&Fleet| name.is_none_or(|name| it.name == name);
        let mut running = self.all.iter().filter(of_name).filter(|it| it.runs());
        let found = match (running.next(), running.next()) {
            (Some(only), None) => Some(only),
            (Some(_), Some(_)) => bail!(
                "several fleets run in {}: {}; choose one by --fleet",
                self.place,
                known()
            ),
            (None, _) => self.all.iter().filter(of_name).max_by_key(|it| it.renewed),
        };
        match (found, name) {
            (None, Some(name)) if !self.all.is_empty() => {
                bail!(
                    "no Lease in {} is of fleet {name}; there are: {}",
                    self.place,
                    known()
                )
            }
            _ => Ok(found),
        }
    }

    /// Returns true if the Leases of a fleet may be among those that were read.
    pub(super) fn may_have(&self, fleet: &FleetId) -> bool {
        fleet.namespace.as_ref().is_none_or(|it| *it == self.place)
    }
}

async fn leases(client: &Client, namespace: &str) -> anyhow::Result<Vec<Lease>> {
    let leases: Api<DeserializeGuard<Lease>> = Api::namespaced(client.clone(), namespace);
    let listed = pages::all(&leases, ListParams::default().labels(FLEET_LABEL)).await;
    let listed = listed.with_context(|| format!("cannot list Leases in {namespace}"))?;
    Ok(listed.objects)
}

fn renew_times(leases: &[Lease]) -> impl Iterator<Item = Timestamp> {
    let specs = leases.iter().filter_map(|it| it.spec.as_ref());
    specs.filter_map(|it| Some(it.renew_time.as_ref()?.0))
}

/// Whether a replica holds its Lease, and since when.
type Joined = (bool, Option<Timestamp>);

/// Returns the fleets whose Leases these are.
fn fleets(leases: &[Lease], now: Timestamp) -> Vec<Fleet> {
    let mut fleets: BTreeMap<String, (Fleet, Option<Joined>)> = BTreeMap::new();
    for lease in leases {
        let Some(name) = lease.labels().get(FLEET_LABEL) else {
            continue;
        };
        let (fleet, joined) = fleets.entry(name.clone()).or_insert_with(|| {
            let fleet = Fleet {
                name: name.clone(),
                namespace: lease.namespace().unwrap_or_default(),
                ..Fleet::default()
            };
            (fleet, None)
        });
        let spec = lease.spec.as_ref();
        let renewed = spec.and_then(|it| it.renew_time.as_ref()).map(|it| it.0);
        fleet.renewed = fleet.renewed.max(renewed);
        let annotations = lease.annotations();
        let holder = holder(lease, now);
        let is_held = holder.is_some();
        fleet.has_expired |= !is_held && is_somebodys(lease);
        if let Some(holder) = holder {
            fleet.replicas.insert(holder.instance);
            let version = annotations.get(RUNS_VERSION).cloned().unwrap_or_default();
            *fleet.versions.entry(version).or_default() += 1;
        }
        // Those of a replica that runs count more than those of one that does not.
        let acquired = spec.and_then(|it| it.acquire_time.as_ref()).map(|it| it.0);
        let acquired = Some((is_held, acquired));
        if *joined < acquired {
            *joined = acquired;
            let settings = annotations.get(RUNS_WITH);
            fleet.settings = settings.map(|text| {
                serde_json::from_str(text).map_err(|error: serde_json::Error| error.to_string())
            });
        }
    }
    fleets.into_values().map(|(fleet, _)| fleet).collect()
}

/// Returns true if a replica has not given its Lease back.
fn is_somebodys(lease: &Lease) -> bool {
    let holder = lease
        .spec
        .as_ref()
        .and_then(|it| it.holder_identity.as_ref());
    holder.is_some_and(|it| !it.is_empty())
}

/// Returns the replica that holds a Lease.
fn holder(lease: &Lease, now: Timestamp) -> Option<Holder> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.as_ref().filter(|it| !it.is_empty())?;
    let lasts = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or_default().into());
    let age = now.duration_since(spec.renew_time.as_ref()?.0);
    let is_valid = -SKEW <= age && age <= lasts.saturating_add(SKEW);
    is_valid.then(|| Holder::parse(holder))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tenant::id::TenantId;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    /// A Lease of a fleet that was renewed this many seconds ago.
    fn a_lease((fleet, holder): (&str, &str), seconds_ago: i64, settings: Option<&str>) -> Lease {
        let at = Timestamp::from_second(-seconds_ago).unwrap();
        let mut annotations = json!({ RUNS_VERSION: "0.1.0" });
        if let Some(settings) = settings {
            annotations[RUNS_WITH] = settings.into();
        }
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("{fleet}-{holder}"), "namespace": "osm",
                "labels": { FLEET_LABEL: fleet }, "annotations": annotations,
            },
            "spec": {
                "holderIdentity": holder, "leaseDurationSeconds": 15,
                "acquireTime": format!("{at:.6}"), "renewTime": format!("{at:.6}"),
            },
        }))
        .unwrap()
    }

    fn seen(leases: &[Lease]) -> Fleets {
        Fleets {
            all: fleets(leases, NOW),
            place: "osm".to_owned(),
            elsewhere: BTreeMap::new(),
        }
    }

    fn id((name, namespace): (&str, Option<&str>)) -> FleetId {
        FleetId {
            name: name.to_owned(),
            namespace: namespace.map(str::to_owned),
        }
    }

    fn serving(fleets: &Fleets, fleet: Option<&str>) -> Serving {
        let fleet = fleet.map(|name| id((name, None)));
        fleets.serving(&TenantId::new("berlin"), fleet.as_ref())
    }

    fn unserved(serving: &Serving) -> Option<Unserved> {
        match serving {
            Serving::Nobody(why, _) => Some(*why),
            _ => None,
        }
    }

    const EVERYTHING: &str = r#"{"namespaces": [], "flags": {}, "files": {}}"#;
    const LISBON: &str = r#"{"namespaces": ["lisbon"], "flags": {}, "files": {}}"#;

    #[test]
    fn a_tenant_is_served_by_one_replica_of_its_fleet_that_holds_its_lease() {
        let fleets = seen(&[
            a_lease(("osm", "a_1"), 70, Some(EVERYTHING)),
            a_lease(("osm", "b_1"), 80, Some(EVERYTHING)),
            a_lease(("canary", "c_1"), 80, None),
        ]);
        assert_eq!(serving(&fleets, Some("osm")), Serving::By("a".to_owned()));
        let Serving::Nobody(why, text) = serving(&fleets, Some("canary")) else {
            panic!("{fleets:?}");
        };
        assert_eq!(why, Unserved::NoManager);
        assert!(text.contains("fleet canary") && text.contains("since 1969-12-31T23:58:40Z"));
        let gone = serving(&fleets, Some("gone"));
        assert_eq!(unserved(&gone), Some(Unserved::NoLease));
        assert!(fleets.all().iter().any(|it| it.has_expired));
        assert_eq!(serving(&fleets, None), Serving::Unknown);
        let future = seen(&[a_lease(("osm", "a_1"), -90, None)]);
        assert!(!future.all()[0].runs(), "somebody has set its clock");
        let nobody = serving(&seen(&[a_lease(("osm", ""), 0, None)]), None);
        assert_eq!(unserved(&nobody), Some(Unserved::NoManager), "it left");
    }

    #[test]
    fn a_tenant_outside_of_the_namespaces_of_its_fleet_is_not_served() {
        let fleets = seen(&[a_lease(("osm", "a_1"), 0, Some(LISBON))]);
        let found = serving(&fleets, Some("osm"));
        assert_eq!(unserved(&found), Some(Unserved::NotWatched));
        let lisbon = |fleet| fleets.serving(&TenantId::new("lisbon"), Some(&id(fleet)));
        assert_eq!(lisbon(("osm", Some("osm"))), Serving::By("a".to_owned()));
        // Another installation has a fleet of this name.
        let canary = ("osm", Some("osm-canary"));
        assert_eq!(lisbon(canary), Serving::Elsewhere(id(canary)));
        let mut known = fleets.clone();
        let gone = a_lease(("osm", "c_1"), 90, None);
        known
            .elsewhere
            .insert("osm-canary".to_owned(), super::fleets(&[gone], NOW));
        let found = known.serving(&TenantId::new("lisbon"), Some(&id(canary)));
        assert_eq!(unserved(&found), Some(Unserved::NoManager));
    }

    #[test]
    fn the_only_fleet_that_runs_is_chosen_and_of_several_the_one_that_is_named() {
        let running = [
            a_lease(("osm", "a_1"), 0, Some(EVERYTHING)),
            a_lease(("canary", "c_1"), 90, Some("{")),
        ];
        let fleets = seen(&running);
        let chosen = |name: Option<&str>| fleets.choose(name).unwrap().unwrap();
        assert_eq!(chosen(None).name, "osm");
        assert!(chosen(None).settings().is_ok());
        let other = chosen(Some("canary")).settings().unwrap_err().to_string();
        assert!(other.contains("use the manager's release"), "{other}");
        let why = fleets.choose(Some("gone")).unwrap_err().to_string();
        assert!(why.contains("canary, osm"), "{why}");
        let both = [running[0].clone(), a_lease(("canary", "c_1"), 0, None)];
        let why = seen(&both).choose(None).unwrap_err().to_string();
        assert!(why.contains("--fleet"), "{why}");
        assert!(seen(&[]).choose(Some("osm")).unwrap().is_none());
    }

    #[test]
    fn the_settings_are_those_of_the_replica_that_joined_last() {
        let fleets = seen(&[
            a_lease(("osm", "a_1"), 30, Some(LISBON)),
            a_lease(("osm", "b_1"), 60, Some(EVERYTHING)),
            a_lease(("osm", ""), 0, Some(EVERYTHING)),
        ]);
        let found = fleets.all()[0].settings().unwrap();
        assert_eq!(found.namespaces, ["lisbon"]);
    }

    /// A Lease that has expired by the clock of this machine.
    async fn observed(renewed_after: Option<Duration>) -> bool {
        let cluster = fake_cluster::Cluster::default();
        let put = |seconds_ago| {
            let mut lease = a_lease(("osm", "a_1"), seconds_ago, None);
            lease.metadata.namespace = Some("osm".to_owned());
            let mut lease = serde_json::to_value(lease).unwrap();
            lease["apiVersion"] = "coordination.k8s.io/v1".into();
            lease["kind"] = "Lease".into();
            cluster.put_raw(lease).unwrap();
        };
        put(900);
        let client = cluster.client();
        let renew = async {
            if let Some(after) = renewed_after {
                sleep(after).await;
                put(890);
            }
        };
        let (observed, ()) = tokio::join!(Fleets::observe(&client, "osm"), renew);
        observed.unwrap().all()[0].runs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_renews_its_lease_runs_whatever_the_clock_here_says() {
        assert!(observed(Some(OBSERVED / 2)).await);
        assert!(!observed(None).await);
        assert!(!observed(Some(OBSERVED * 2)).await);
    }
}
