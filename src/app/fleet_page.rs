//! The fleet page of this process: whom it is shown to, and what it shows.

use std::sync::Arc;

use tokio::net::TcpListener;

use crate::admin::fleet_page::{Access, FleetPage};
use crate::fleet::{census, clock::Clock, roster::Roster};
use crate::settings::Settings;

/// The page; none where the socket does not say where it listens.
pub fn of(
    settings: &Settings,
    listener: &TcpListener,
    (roster, clock): (&Arc<Roster>, &Clock),
) -> Option<Arc<FleetPage>> {
    let address = listener.local_addr().ok()?;
    let (roster, clock) = (Arc::clone(roster), clock.clone());
    let replica = settings.replica.instance.clone();
    Some(Arc::new(FleetPage::new(
        Access::at(address, settings.fleet_page_token_file.clone()),
        move |filter| census::overview(&roster, (replica.clone(), clock.now()), filter),
    )))
}
