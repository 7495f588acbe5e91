//! The managers of a management cluster, as the Leases of their replicas show them: which fleets
//! there are, with which settings they run, and which replica serves a tenant.

pub mod follow;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, ResourceExt, api::ListParams, core::DeserializeGuard};

use crate::api::names::{FLEET_LABEL, RUNS_VERSION, RUNS_WITH};
use crate::client::pages;
use crate::fleet::sharding::{Holder, shard::owner};
use crate::settings::PublishedSettings;
use crate::telemetry::chain::chain;
use crate::tenant::id::TenantId;

/// A Lease counts for this much longer than it lasts: clocks of users may be wrong.
const SKEW: SignedDuration = SignedDuration::from_mins(1);

/// A fleet, as its Leases show it.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// The name, from the flag `--fleet`.
    pub name: String,
    /// The namespace of its Leases, in which its replicas run.
    pub namespace: String,
    /// The replicas that hold their Leases.
    pub replicas: BTreeSet<String>,
    /// The releases of these replicas, with their number. Releases that did not publish their
    /// version have an empty one.
    pub versions: BTreeMap<String, usize>,
    /// The time at which a replica last renewed its Lease.
    pub renewed: Option<Timestamp>,
    /// The settings of the replica that joined last. `None` if its release does not publish them.
    pub settings: Option<Result<PublishedSettings, String>>,
}

/// The fleets of a management cluster.
#[derive(Clone, Debug, Default)]
pub struct Fleets {
    all: Vec<Fleet>,
    /// The only namespace whose Leases could be listed, and why.
    limit: Option<(String, String)>,
}

/// Who serves a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serving {
    /// This replica.
    By(String),
    /// No replica, for this reason. What a status says was true once.
    Nobody(Unserved, String),
    /// It is not known.
    Unknown,
}

/// Why no replica serves a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// No replica of its fleet runs.
    NoManager,
    /// Its fleet does not watch its namespace any more.
    NotWatched,
}

impl Unserved {
    /// Returns the word for the state of such a tenant.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoManager => "NoManager",
            Self::NotWatched => "NotWatched",
        }
    }
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
    format!("fleet {fleet} does not watch namespace {namespace} (its flag --namespace)")
}

impl Fleets {
    /// Lists the Leases of all fleets, or those in the manager's namespace if the user may not list
    /// others.
    ///
    /// # Errors
    ///
    /// A call to the API server fails.
    pub async fn read(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let params = ListParams::default().labels(FLEET_LABEL);
        let everywhere: Api<DeserializeGuard<Lease>> = Api::all(client.clone());
        let (listed, limit) = match pages::all(&everywhere, params.clone()).await {
            Err(error) if pages::is_forbidden(&error) => {
                let there: Api<DeserializeGuard<Lease>> =
                    Api::namespaced(client.clone(), namespace);
                let why = chain(&error).to_string();
                (
                    pages::all(&there, params).await,
                    Some((namespace.to_owned(), why)),
                )
            }
            listed => (listed, None),
        };
        let listed = listed.with_context(|| match &limit {
            Some((namespace, _)) => format!("cannot list Leases in {namespace}"),
            None => "cannot list Leases".to_owned(),
        })?;
        Ok(Self {
            all: fleets(&listed.objects, Timestamp::now()),
            limit,
        })
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
            let known: Vec<_> = known
                .map(|it| format!("{} (in {})", it.name, it.namespace))
                .collect();
            known.join(", ")
        };
        let of_name = |it: &&Fleet| name.is_none_or(|name| it.name == name);
        let mut running = self.all.iter().filter(of_name).filter(|it| it.runs());
        let found = match (running.next(), running.next()) {
            (Some(only), None) => Some(only),
            (Some(_), Some(_)) => bail!("several fleets run: {}; choose one by --fleet", known()),
            (None, _) => self.all.iter().filter(of_name).max_by_key(|it| it.renewed),
        };
        match (found, name) {
            (None, Some(name)) if !self.all.is_empty() => {
                bail!("no Lease is of fleet {name}; there are: {}", known())
            }
            _ => Ok(found),
        }
    }

    /// Returns who serves a tenant, whose status is written by this fleet.
    pub fn serving(&self, tenant: &TenantId, fleet: Option<&str>) -> Serving {
        let of_name = |it: &&Fleet| fleet.is_none_or(|fleet| it.name == fleet);
        let candidates: Vec<&Fleet> = self.all.iter().filter(of_name).collect();
        let is_watched = |it: &&&Fleet| match &it.settings {
            Some(Ok(settings)) => settings.watches(tenant.namespace()),
            _ => true,
        };
        let running = || candidates.iter().filter(|it| it.runs());
        if let Some(serving) = running().find(is_watched) {
            let replicas = serving.replicas.iter().map(String::as_str);
            let replica = owner(replicas, tenant).map(str::to_owned);
            return match fleet {
                Some(_) => replica.map_or(Serving::Unknown, Serving::By),
                // A status of a release that did not name its fleet.
                None => Serving::Unknown,
            };
        }
        if let Some(other) = running().next() {
            let why = not_watched(&other.name, tenant.namespace());
            return Serving::Nobody(Unserved::NotWatched, why);
        }
        let silent = candidates.iter().max_by_key(|it| it.renewed);
        match (silent, &self.limit, fleet) {
            (Some(silent), ..) => Serving::Nobody(Unserved::NoManager, silent.is_silent()),
            (None, Some(_), _) => Serving::Unknown,
            (None, None, Some(fleet)) => {
                let why = format!("no Lease is of its fleet {fleet}");
                Serving::Nobody(Unserved::NoManager, why)
            }
            (None, None, None) => {
                Serving::Nobody(Unserved::NoManager, "no manager has a Lease".to_owned())
            }
        }
    }

    /// Says why it is not known who serves tenants of fleets in other namespaces.
    pub fn limit(&self) -> Option<String> {
        let (namespace, why) = self.limit.as_ref()?;
        Some(format!("only the Leases in {namespace} were listed: {why}"))
    }
}

/// Returns the fleets whose Leases these are.
fn fleets(leases: &[Lease], now: Timestamp) -> Vec<Fleet> {
    let mut fleets: BTreeMap<(String, String), (Fleet, Option<Timestamp>)> = BTreeMap::new();
    for lease in leases {
        let Some(name) = lease.labels().get(FLEET_LABEL) else {
            continue;
        };
        let namespace = lease.namespace().unwrap_or_default();
        let key = (name.clone(), namespace.clone());
        let (fleet, joined) = fleets.entry(key).or_insert_with(|| {
            let name = name.clone();
            let fleet = Fleet {
                name,
                namespace,
                ..Fleet::default()
            };
            (fleet, None)
        });
        let spec = lease.spec.as_ref();
        let renewed = spec.and_then(|it| it.renew_time.as_ref()).map(|it| it.0);
        fleet.renewed = fleet.renewed.max(renewed);
        let annotations = lease.annotations();
        if let Some(holder) = holder(lease, now) {
            fleet.replicas.insert(holder.instance);
            let version = annotations.get(RUNS_VERSION).cloned().unwrap_or_default();
            *fleet.versions.entry(version).or_default() += 1;
        }
        let acquired = spec.and_then(|it| it.acquire_time.as_ref()).map(|it| it.0);
        if joined.is_none() || *joined < acquired {
            *joined = acquired;
            let settings = annotations.get(RUNS_WITH);
            fleet.settings = settings.map(|text| {
                serde_json::from_str(text).map_err(|error: serde_json::Error| error.to_string())
            });
        }
    }
    fleets.into_values().map(|(fleet, _)| fleet).collect()
}

/// Returns the replica that holds a Lease.
fn holder(lease: &Lease, now: Timestamp) -> Option<Holder> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.as_ref().filter(|it| !it.is_empty())?;
    let lasts = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or_default().into());
    let age = now.duration_since(spec.renew_time.as_ref()?.0);
    (age <= lasts.saturating_add(SKEW)).then(|| Holder::parse(holder))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            limit: None,
        }
    }

    fn serving(fleets: &Fleets, fleet: Option<&str>) -> Serving {
        fleets.serving(&TenantId::new("berlin"), fleet)
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
        assert_eq!(unserved(&gone), Some(Unserved::NoManager));
        assert_eq!(serving(&fleets, None), Serving::Unknown);
        let nobody = serving(&seen(&[a_lease(("osm", ""), 0, None)]), None);
        assert_eq!(unserved(&nobody), Some(Unserved::NoManager), "it left");
    }

    #[test]
    fn a_tenant_outside_of_the_namespaces_of_its_fleet_is_not_served() {
        let fleets = seen(&[a_lease(("osm", "a_1"), 0, Some(LISBON))]);
        let found = serving(&fleets, Some("osm"));
        assert_eq!(unserved(&found), Some(Unserved::NotWatched));
        let lisbon = fleets.serving(&TenantId::new("lisbon"), Some("osm"));
        assert_eq!(lisbon, Serving::By("a".to_owned()));
    }

    #[test]
    fn what_leases_in_other_namespaces_say_is_not_known() {
        let limited = Fleets {
            limit: Some(("osm".to_owned(), "forbidden".to_owned())),
            ..seen(&[a_lease(("osm", "a_1"), 0, None)])
        };
        assert_eq!(serving(&limited, Some("canary")), Serving::Unknown);
        assert_eq!(serving(&limited, Some("osm")), Serving::By("a".to_owned()));
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
        assert!(why.contains("canary (in osm), osm (in osm)"), "{why}");
        let both = [running[0].clone(), a_lease(("canary", "c_1"), 0, None)];
        let why = seen(&both).choose(None).unwrap_err().to_string();
        assert!(why.contains("--fleet"), "{why}");
        assert!(seen(&[]).choose(Some("osm")).unwrap().is_none());
    }

    #[test]
    fn the_settings_are_those_of_the_replica_that_joined_last() {
        let fleets = seen(&[
            a_lease(("osm", "a_1"), 0, Some(LISBON)),
            a_lease(("osm", "b_1"), 60, Some(EVERYTHING)),
        ]);
        let found = fleets.all()[0].settings().unwrap();
        assert_eq!(found.namespaces, ["lisbon"]);
    }
}
