//! The fleet page of this process: who may see it, and what it shows.

use std::sync::Arc;

use tokio::net::TcpListener;

use crate::admin::fleet_page::{Access, FleetPage};
use crate::client::clock::Clock;
use crate::fleet::{fleet_summary, registry::Registry};
use crate::settings::Settings;

/// Returns the fleet page, or `None` if the socket has no local address.
pub fn of(
    settings: &Settings,
    listener: &TcpListener,
    (registry, clock): (&Arc<Registry>, &Clock),
) -> Option<Arc<FleetPage>> {
    let address = listener.local_addr().ok()?;
    let (registry, clock) = (Arc::clone(registry), clock.clone());
    let replica = settings.replica.instance.clone();
    Some(Arc::new(FleetPage::new(
        Access::at(address, settings.fleet_page_token_file.clone()),
        move |filter| fleet_summary::summary(&registry, (replica.clone(), clock.now()), filter),
    )))
}
