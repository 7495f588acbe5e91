//! Decides which network addresses a worker cluster's API server may have.
//!
//! A tenant chooses the server, and this process connects to it from inside the management
//! cluster's network. Without rules, a kubeconfig could reach what only we can reach. The parser
//! checks literal addresses and names. The connector checks every address that a name resolves to,
//! because a name may lead anywhere. Nothing here resolves names or connects.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use super::host::{self, Host};

/// The rules for addresses to which we connect on behalf of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRules {
    /// Controls connections to this machine itself.
    pub loopback: Loopback,
    /// The ranges in which servers must be. If empty, everything that is not refused otherwise is
    /// allowed.
    pub allowed: Vec<AddressRange>,
    /// The ranges in which servers must not be.
    pub denied: Vec<AddressRange>,
    /// Servers that are not worker clusters, above all the management cluster's API.
    pub denied_servers: Vec<DeniedServer>,
}

impl Default for AddressRules {
    fn default() -> Self {
        let denied = |name: &str| DeniedServer {
            host: Host::Name(name.to_owned()),
            port: None,
        };
        Self {
            loopback: Loopback::Refused,
            allowed: Vec::new(),
            denied: Vec::new(),
            denied_servers: OWN_API_NAMES.into_iter().map(denied).collect(),
        }
    }
}

/// The names by which every pod reaches the API server of its own cluster, here the management
/// cluster.
const OWN_API_NAMES: [&str; 4] = [
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Controls connections to this machine itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loopback {
    /// They are refused: services that listen there trust every client that reaches them.
    #[default]
    Refused,
    /// They are allowed, for demonstrations and tests in which worker clusters run beside this
    /// process.
    Allowed,
}

/// A server that no tenant may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedServer {
    /// The host.
    pub host: Host,
    /// The port; `None` for every port. Several API servers may share an address.
    pub port: Option<u16>,
}

/// The error for a text that is not a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a server such as api.example, 10.0.0.1:6443 or [fd00::1]:6443")]
pub struct NotAServer(String);

impl FromStr for DeniedServer {
    type Err = NotAServer;

    fn from_str(text: &str) -> Result<Self, NotAServer> {
        let refused = || NotAServer(text.to_owned());
        let (host, port) = host::split_port(text);
        let port = match port {
            Some(port) => Some(host::parse_port(port).ok_or_else(refused)?),
            None => None,
        };
        let host = Host::parse(host).ok_or_else(refused)?;
        Ok(Self { host, port })
    }
}

/// The reason why an address is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefused {
    /// This machine itself.
    #[error("it is a loopback address, which only --allow-loopback-servers accepts")]
    Loopback,
    /// The address of no host. Some systems use it to connect to themselves.
    #[error("it is the unspecified address")]
    Unspecified,
    /// The local network segment, where metadata services answer.
    #[error("it is a link-local address")]
    LinkLocal,
    /// A group of hosts.
    #[error("it is a multicast address")]
    Multicast,
    /// Broadcast and reserved ranges.
    #[error("it is a reserved address")]
    Reserved,
    /// A cloud's metadata service outside of the link-local range.
    #[error("it is the address of a cloud's metadata service")]
    MetadataService,
    /// An address that a gateway translates to another one, which cannot be determined from it.
    #[error("it hides another address")]
    Translated,
    /// A range that the operator denies.
    #[error("the operator denies its range")]
    DeniedRange,
    /// It is in no range that the operator allows.
    #[error("it is in no range that the operator allows")]
    OutsideAllowed,
    /// A server that is no worker cluster's.
    #[error("it is the API server of the management cluster")]
    DeniedServer,
}

/// The addresses of metadata services outside of special ranges. They return the credentials of the
/// machine that asks.
const METADATA_SERVICES: [AddressRange; 9] = [
    // Azure
    four([168, 63, 129, 16]),
    // Oracle
    four([192, 0, 0, 192]),
    six([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128),
    // Alibaba
    four([100, 100, 100, 200]),
    six([0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200], 128),
    // AWS: metadata, EKS Pod Identity, DNS and time have addresses in this block.
    six([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32),
    // Google
    six([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),
    // Scaleway
    six([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128),
    // Akamai
    six([0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1], 128),
];

const fn four(octets: [u8; 4]) -> AddressRange {
    AddressRange {
        network: IpAddr::V4(Ipv4Addr::from_octets(octets)),
        prefix: Ipv4Addr::BITS,
    }
}

const fn six(segments: [u16; 8], prefix: u32) -> AddressRange {
    AddressRange {
        network: IpAddr::V6(Ipv6Addr::from_segments(segments)),
        prefix,
    }
}

impl AddressRules {
    /// Checks that connections to an address are allowed. The connector calls this for every
    /// address to which a name resolved, and connects to exactly the address that was checked.
    ///
    /// # Errors
    ///
    /// The address is denied.
    pub fn check(&self, endpoint: SocketAddr) -> Result<(), AddressRefused> {
        let address = effective(endpoint.ip())?;
        match kind(address) {
            Some(AddressRefused::Loopback) if self.loopback == Loopback::Allowed => {}
            Some(refused) => return Err(refused),
            None => {}
        }
        if self.denied.iter().any(|range| range.contains(address)) {
            return Err(AddressRefused::DeniedRange);
        }
        if !self.allowed.is_empty() && !self.allowed.iter().any(|range| range.contains(address)) {
            return Err(AddressRefused::OutsideAllowed);
        }
        self.check_denied(&Host::Address(address), endpoint.port())
    }

    /// Checks that a host may be used. For a name, this says nothing about where it leads.
    ///
    /// # Errors
    ///
    /// The host is denied, or is an address that is.
    pub fn check_host(&self, host: &Host, port: u16) -> Result<(), AddressRefused> {
        match host {
            Host::Address(address) => self.check(SocketAddr::new(*address, port)),
            Host::Name(name) => {
                let local = name == "localhost" || name.ends_with(".localhost");
                if local && self.loopback == Loopback::Refused {
                    return Err(AddressRefused::Loopback);
                }
                self.check_denied(host, port)
            }
        }
    }

    fn check_denied(&self, host: &Host, port: u16) -> Result<(), AddressRefused> {
        let denied = self
            .denied_servers
            .iter()
            .any(|server| server.host == *host && server.port.is_none_or(|denied| denied == port));
        if denied {
            Err(AddressRefused::DeniedServer)
        } else {
            Ok(())
        }
    }
}

/// Returns the address at which packets arrive. An IPv4 address inside of an IPv6 one counts as
/// itself.
fn effective(address: IpAddr) -> Result<IpAddr, AddressRefused> {
    let IpAddr::V6(six) = address else {
        return Ok(address);
    };
    if let Some(four) = six.to_ipv4_mapped() {
        return Ok(IpAddr::V4(four));
    }
    if six.is_loopback() || six.is_unspecified() {
        return Ok(address);
    }
    match six.segments() {
        // `::/96` are the former IPv4-compatible addresses, and 64:ff9b::/96 is the well-known
        // prefix of NAT64. An address of 6to4 contains that of its gateway.
        [0 | 0x64, 0 | 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            let four = Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
            Ok(IpAddr::V4(four))
        }
        // Other translations: NAT64 with a local prefix, Teredo, and other addresses that begin
        // with 0.
        [0, ..] | [0x64, 0xff9b, ..] | [0x2001, 0, ..] => Err(AddressRefused::Translated),
        _ => Ok(address),
    }
}

/// Returns the reason why an address is refused for every tenant, if there is one.
fn kind(address: IpAddr) -> Option<AddressRefused> {
    let is_metadata = |range: &AddressRange| range.contains(address);
    if METADATA_SERVICES.iter().any(is_metadata) {
        return Some(AddressRefused::MetadataService);
    }
    if address.is_multicast() {
        return Some(AddressRefused::Multicast);
    }
    if address.is_loopback() {
        return Some(AddressRefused::Loopback);
    }
    match address {
        // All of 0.0.0.0/8 is "this host on this network".
        IpAddr::V4(four) if four.octets().starts_with(&[0]) => Some(AddressRefused::Unspecified),
        IpAddr::V4(four) if four.is_link_local() => Some(AddressRefused::LinkLocal),
        // 240.0.0.0/4 with the broadcast address at its end.
        IpAddr::V4(four) if four.to_bits() >> 28 == 0xf => Some(AddressRefused::Reserved),
        IpAddr::V6(six) if six.is_unspecified() => Some(AddressRefused::Unspecified),
        IpAddr::V6(six) if six.is_unicast_link_local() => Some(AddressRefused::LinkLocal),
        _ => None,
    }
}

/// A range of addresses: `10.0.0.0/8`, `fd00::/8`, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    network: IpAddr,
    prefix: u32,
}

impl AddressRange {
    /// Returns true if an address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let host_bits = Ipv4Addr::BITS.saturating_sub(self.prefix);
                let differing = network.to_bits() ^ address.to_bits();
                differing.checked_shr(host_bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let host_bits = Ipv6Addr::BITS.saturating_sub(self.prefix);
                let differing = network.to_bits() ^ address.to_bits();
                differing.checked_shr(host_bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// The error for a text that is not a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a range of addresses such as 10.0.0.0/8")]
pub struct NotARange(String);

impl FromStr for AddressRange {
    type Err = NotARange;

    fn from_str(text: &str) -> Result<Self, NotARange> {
        let refused = || NotARange(text.to_owned());
        let (network, prefix) = match text.split_once('/') {
            Some((network, prefix)) => (network, Some(prefix)),
            None => (text, None),
        };
        let network: IpAddr = network.parse().map_err(|_| refused())?;
        let bits = match network {
            IpAddr::V4(_) => Ipv4Addr::BITS,
            IpAddr::V6(_) => Ipv6Addr::BITS,
        };
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| refused())?,
            None => bits,
        };
        if prefix > bits {
            return Err(refused());
        }
        Ok(Self { network, prefix })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.network, self.prefix)
    }
}

#[cfg(test)]
mod tests;
