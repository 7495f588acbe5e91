//! Completes the flags of a command with the settings of the manager, so that it judges as the
//! manager does.

use anyhow::bail;
use clap::Args;
use kube::Client;

use super::{Fleet, Fleets, not_watched};
use crate::api::worker_cluster::FleetId;
use crate::commands::{
    cluster_client::{ClusterClient, KubeconfigSource},
    selection::Selection,
};
use crate::settings::{Completed, PublishedSettings, TypedFlags};

/// The flags of a command, completed with the settings of a fleet.
#[derive(Debug)]
pub struct Followed<F> {
    /// The flags.
    pub flags: F,
    /// Says whose settings they are.
    pub origin: String,
    /// The fleet; `None` if there is none.
    pub fleet: Option<Fleet>,
}

impl<F> Followed<F> {
    /// Limits a selection of tenants to those that the fleet watches.
    ///
    /// # Errors
    ///
    /// It names a namespace that the fleet does not watch.
    pub fn limit(&self, selection: Selection) -> anyhow::Result<Selection> {
        let Some(Fleet {
            name,
            settings: Some(Ok(settings)),
            ..
        }) = &self.fleet
        else {
            return Ok(selection);
        };
        let mut named = selection.namespaces.iter();
        if let Some(namespace) = named.find(|it| !settings.watches(it)) {
            bail!("{}", not_watched(name, namespace));
        }
        if selection.namespaces.is_empty() {
            return Ok(Selection {
                namespaces: settings.namespaces.clone(),
                is_watched: true,
                except: settings.except_namespaces.clone(),
                ..selection
            });
        }
        Ok(selection)
    }
}

/// Returns the flags of a command with the settings of the manager of the selected tenants. Flags
/// that were typed count more. `namespace` is the manager's.
///
/// # Errors
///
/// The manager's settings cannot be learnt.
pub async fn follow<F: Args>(
    source: &KubeconfigSource,
    (namespace, selection): (&str, &Selection),
    typed: &TypedFlags,
) -> anyhow::Result<Followed<F>> {
    let client = ClusterClient::management(source).await?.client;
    let fleets = Fleets::read(&client, namespace).await?;
    let of_tenants = fleet_of(&client, selection).await;
    let named = typed.value("fleet").map(str::to_owned);
    let elsewhere = of_tenants.as_ref().filter(|it| !fleets.may_have(it));
    if let Some(elsewhere) = elsewhere.filter(|_| named.is_none()) {
        let place = elsewhere.namespace.as_deref().unwrap_or_default();
        bail!("fleet {elsewhere} serves the tenant: pass --manager-namespace {place}");
    }
    let named = named.or(of_tenants.map(|it| it.name));
    fleets.follow(named.as_deref(), typed)
}

/// Returns the fleet that writes the statuses of the selected tenants, if they are selected by
/// their namespaces and it is the same one.
async fn fleet_of(client: &Client, selection: &Selection) -> Option<FleetId> {
    if selection.namespaces.is_empty() {
        return None;
    }
    let owns = selection.worker_clusters(client).await.ok()?.objects;
    let mut fleets = owns.into_iter().filter_map(|own| own.status?.fleet());
    let first = fleets.next()?;
    fleets.all(|it| it.may_be(&first)).then_some(first)
}

/// Returns the flags of a command as they were typed.
///
/// # Errors
///
/// A value is invalid.
pub fn follow_nobody<F: Args>(typed: &TypedFlags) -> anyhow::Result<Followed<F>> {
    Ok(Followed {
        flags: PublishedSettings::default().complete(typed)?.flags,
        origin: "the settings are those of the flags alone".to_owned(),
        fleet: None,
    })
}

impl Fleets {
    /// Returns the flags of a command with the settings of the named fleet, or of the only one.
    fn follow<F: Args>(
        &self,
        named: Option<&str>,
        typed: &TypedFlags,
    ) -> anyhow::Result<Followed<F>> {
        // Of a manager that does not run, it is enough to know what it published.
        let is_known = |it: &&Fleet| it.runs() || it.settings.is_some();
        let Some(fleet) = self.choose(named)?.filter(is_known) else {
            let mut followed = follow_nobody(typed)?;
            followed.origin = format!("no manager runs: {}", followed.origin);
            return Ok(followed);
        };
        let Completed { flags, otherwise } = fleet.settings()?.complete(typed)?;
        let mut origin = format!("the settings are those of fleet {}", fleet.name);
        if !fleet.runs() {
            origin = format!("{origin}, which does not run: {}", fleet.is_silent());
        }
        if !otherwise.is_empty() {
            origin = format!("{origin}, but for {}", otherwise.join(", "));
        }
        Ok(Followed {
            flags,
            origin,
            fleet: Some(fleet.clone()),
        })
    }
}
