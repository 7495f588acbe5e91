//! The fleet page of this process: who may see it, and what it shows.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::admin::fleet_page::{Access, AccessParams, FleetPage};
use crate::client::clock::Clock;
use crate::fleet::{
    fleet_summary::{self, Sources},
    registry::Registry,
    sharding::shard::Shard,
};
use crate::settings::Settings;

/// Returns the fleet page, or `None` if the socket has no local address.
pub fn of(
    settings: &Settings,
    listener: &TcpListener,
    (registry, shards, clock): (&Arc<Registry>, &watch::Receiver<Shard>, &Clock),
) -> Option<Arc<FleetPage>> {
    let address = listener.local_addr().ok()?;
    let (registry, shards, clock) = (Arc::clone(registry), shards.clone(), clock.clone());
    let replica = settings.replica.instance.clone();
    let access = AccessParams {
        address,
        token_file: settings.fleet_page.token_file.clone(),
        hosts: settings.fleet_page.hosts.clone(),
        now: {
            let clock = clock.clone();
            Arc::new(move || clock.now())
        },
    };
    Some(Arc::new(FleetPage::new(Access::new(access), move |sort| {
        let shard = shards.borrow().clone();
        let sources = Sources {
            registry: &registry,
            shard: &shard,
        };
        fleet_summary::summary(sources, (replica.clone(), clock.now()), sort)
    })))
}
