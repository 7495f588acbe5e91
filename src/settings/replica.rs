//! This replica among the others: its name, and the terms of its Lease.

use std::time::Duration;

use super::{InvalidSetting, PublishedSettings, RunFlags, at_least};
use crate::api::worker_cluster::FleetId;

/// A fleet's name is the value of a label; with a replica's it is the name of a Lease.
pub(super) const NAME_BYTES_MAX: usize = 63;
/// Between the last moment at which a write is sent and the one at which a renewal was, four
/// renewals fit; below this they are closer together than round trips.
const RENEWALS_MIN: Duration = Duration::from_secs(1);

/// This replica among the others.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// Its name.
    pub instance: String,
    /// The fleet that it is a member of.
    pub fleet: String,
    /// The namespace of the Leases.
    pub lease_namespace: String,
    /// For how long its Lease holds after it was written.
    pub lease_duration: Duration,
    /// The settings that it publishes in its Lease.
    pub published: PublishedSettings,
}

impl ReplicaSettings {
    /// Returns what identifies the fleet.
    pub fn fleet_id(&self) -> FleetId {
        FleetId {
            name: self.fleet.clone(),
            namespace: Some(self.lease_namespace.clone()),
        }
    }
}

impl RunFlags {
    pub(super) fn replica(&self) -> Result<ReplicaSettings, InvalidSetting> {
        let instance = self.instance.clone().unwrap_or_else(drawn);
        for (flag, name) in [("instance", &instance), ("fleet", &self.fleet)] {
            if !is_name(name) {
                return Err(InvalidSetting::Name { flag });
            }
        }
        at_least(
            "lease-duration",
            self.lease_duration,
            self.request_timeout + RENEWALS_MIN,
        )?;
        Ok(ReplicaSettings {
            instance,
            fleet: self.fleet.clone(),
            lease_namespace: self.lease_namespace.clone(),
            lease_duration: self.lease_duration,
            published: PublishedSettings::of(self)?,
        })
    }
}

/// The host's name and something random: a process that comes back is another replica.
fn drawn() -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().to_lowercase();
    let host: String = host
        .chars()
        .map(|letter| if is_letter(letter) { letter } else { '-' })
        .take(NAME_BYTES_MAX / 2)
        .collect();
    format!("h-{host}-{:08x}", rand::random::<u32>())
}

fn is_letter(letter: char) -> bool {
    letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-'
}

/// Pods' names may have dots.
fn is_name(name: &str) -> bool {
    let is_inner = |letter: char| is_letter(letter) || letter == '.';
    let is_edge = |letter: Option<char>| {
        letter.is_some_and(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
    };
    name.len() <= NAME_BYTES_MAX
        && name.chars().all(is_inner)
        && is_edge(name.chars().next())
        && is_edge(name.chars().next_back())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_name_is_a_name() {
        assert!(is_name(&drawn()), "{}", drawn());
        assert_ne!(drawn(), drawn());
    }

    #[test]
    fn names_are_what_leases_and_headers_can_hold() {
        for (name, expected) in [
            ("osm-7d9f-x2b", true),
            ("osm.0", true),
            ("", false),
            ("Osm", false),
            ("osm_0", false),
            ("-osm", false),
            ("osm-", false),
            ("o m", false),
            (&"o".repeat(64), false),
        ] {
            assert_eq!(is_name(name), expected, "{name}");
        }
    }
}
