//! The fleet page of this process: who may see it, and what it shows.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::admin::fleet_page::{Access, AccessParams, Fleet, FleetPage};
use crate::api::worker_cluster::{WorkerCluster, WorkerClusterStatus};
use crate::client::clock::Clock;
use crate::fleet::{
    fleet_summary::{self, Sources},
    registry::{Place, RegisteredCluster, Registry},
    sharding::shard::Shard,
};
use crate::plan::status;
use crate::settings::Settings;
use crate::tenant::{
    id::RegistrationId,
    settings::TenantSettings,
    summary::{FleetSummary, Rfc3339Time, Sort, TenantPage},
};

/// Returns the fleet page, or `None` if the socket has no local address.
pub fn of(
    settings: &Settings,
    listener: &TcpListener,
    (registry, shards, clock): (&Arc<Registry>, &watch::Receiver<Shard>, &Clock),
) -> Option<Arc<FleetPage>> {
    let address = listener.local_addr().ok()?;
    let access = AccessParams {
        address,
        token_file: settings.fleet_page.token_file.clone(),
        hosts: settings.fleet_page.hosts.clone(),
        now: {
            let clock = clock.clone();
            Arc::new(move || clock.now())
        },
    };
    let fleet = OwnFleet {
        registry: Arc::clone(registry),
        shards: shards.clone(),
        clock: clock.clone(),
        replica: settings.replica.instance.clone(),
        defaults: settings.tenant_defaults.clone(),
    };
    Some(Arc::new(FleetPage::new(Access::new(access), fleet)))
}

/// The fleet as this process knows it.
struct OwnFleet {
    registry: Arc<Registry>,
    shards: watch::Receiver<Shard>,
    clock: Clock,
    replica: String,
    defaults: TenantSettings,
}

impl Fleet for OwnFleet {
    fn summary(&self, sort: Sort) -> FleetSummary {
        let shard = self.shards.borrow().clone();
        let sources = Sources {
            registry: &self.registry,
            shard: &shard,
        };
        let taken_by = (self.replica.clone(), self.clock.now());
        fleet_summary::summary(sources, taken_by, sort)
    }

    fn tenant(&self, name: &str) -> Option<TenantPage> {
        let (namespace, name) = name.split_once('/')?;
        let id = RegistrationId::new(namespace, name);
        let registered = self.registry.get(&id)?;
        let shard = self.shards.borrow().clone();
        let sources = Sources {
            registry: &self.registry,
            shard: &shard,
        };
        let own = registered.worker_cluster.borrow().clone();
        let spec = own.as_ref().map(|own| &own.spec);
        let settings = spec.map_or(Ok(self.defaults.clone()), |spec| self.defaults.with(spec));
        let now = self.clock.now();
        Some(TenantPage {
            replica: self.replica.clone(),
            taken_at: Rfc3339Time(now),
            tenant: sources.row(&registered, &self.replica),
            status: status_of(&registered, own.as_deref(), now),
            settings_refused: settings.as_ref().err().map(ToString::to_string),
            settings: settings.map_or_else(
                |_| Vec::new(),
                |settings| settings.in_use(spec, &self.defaults),
            ),
            events: registered.status.sent_events.list(),
        })
    }
}

/// Returns the status that this replica writes about a tenant that it serves, also while the
/// management cluster does not take it, and the stored status of another tenant.
fn status_of(
    registered: &RegisteredCluster,
    own: Option<&WorkerCluster>,
    now: Timestamp,
) -> WorkerClusterStatus {
    let stored = own.and_then(|own| own.status.clone()).unwrap_or_default();
    if registered.place() == Place::Elsewhere {
        return stored;
    }
    registered.status.read(|report| {
        status::status(status::Params {
            report,
            before: &stored,
            generation: own.and_then(|own| own.metadata.generation),
            now,
        })
    })
}
