//! The flags of the fleet page.

use std::path::PathBuf;

use clap::Args;

use super::InvalidSetting;

/// The longest name of a host, in characters, by RFC 1035.
const HOST_CHARACTERS_MAX: usize = 253;

/// The flags, as they are typed.
#[derive(Args, Clone, Debug, Default)]
pub struct FleetPageFlags {
    /// Serve /fleet and /fleet.json to clients that send the token in this file as
    /// `Authorization: Bearer`, and to browsers that sign in with it. Without it they are served
    /// where --admin-address is on loopback, to this machine alone, and nowhere else.
    #[arg(long, value_name = "FILE")]
    fleet_page_token_file: Option<PathBuf>,

    /// A name of the host in the address by which browsers reach the fleet page, besides
    /// `localhost` and IP addresses; may be repeated.
    #[arg(
        long = "fleet-page-host",
        value_name = "NAME",
        requires = "fleet_page_token_file"
    )]
    hosts: Vec<String>,
}

/// The settings of the fleet page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetPageSettings {
    /// File with the token of the fleet page; read at every request.
    pub token_file: Option<PathBuf>,
    /// Names under which browsers may sign in.
    pub hosts: Vec<String>,
}

impl FleetPageFlags {
    /// Validates the flags.
    ///
    /// # Errors
    ///
    /// [`InvalidSetting::FleetPageHost`] if a host is not a name.
    pub fn check(self) -> Result<FleetPageSettings, InvalidSetting> {
        if let Some(found) = self.hosts.iter().find(|host| !is_name(host)) {
            let found = found.clone();
            return Err(InvalidSetting::FleetPageHost { found });
        }
        Ok(FleetPageSettings {
            token_file: self.fleet_page_token_file,
            hosts: self.hosts,
        })
    }
}

/// Returns true if a text is a DNS name, without a port or a scheme.
fn is_name(host: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label
                .chars()
                .all(|it| it.is_ascii_alphanumeric() || it == '-')
    };
    host.len() <= HOST_CHARACTERS_MAX && host.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_without_a_scheme_or_a_port() {
        for (host, expected) in [
            ("osm.example", true),
            ("OSM-1.example.com", true),
            ("osm", true),
            ("https://osm.example", false),
            ("osm.example:443", false),
            ("osm.example.", false),
            ("*.example", false),
            ("", false),
            (&"a".repeat(254), false),
        ] {
            let flags = FleetPageFlags {
                hosts: vec!["a.example".to_owned(), host.to_owned()],
                ..FleetPageFlags::default()
            };
            assert_eq!(flags.check().is_ok(), expected, "{host}");
        }
    }
}
