//! The provider spec of a machine deployment, decoded as machine-controller decodes it.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::go_decode::{DecodeError, UnknownKeys, fields, set_flag, set_text, set_texts};
use crate::error::RenderError;
use osm_api::profile::{CloudProvider, OperatingSystem, ProvisioningUtility};
use osm_tenant::secret_text::{SecretText, exposed};

const KEYS: &[&str] = &[
    "sshPublicKeys",
    "caPublicKey",
    "cloudProvider",
    "cloudProviderSpec",
    "operatingSystem",
    "operatingSystemSpec",
    "network",
    "overwriteCloudConfig",
];
const NETWORK_KEYS: &[&str] = &["cidr", "gateway", "dns", "ipFamily"];
const DNS_KEYS: &[&str] = &["servers"];
const OPERATING_SYSTEM_KEYS: &[&str] = &[
    "distUpgradeOnBoot",
    "disableAutoUpdate",
    "disableLocksmithD",
    "disableUpdateEngine",
    "provisioningUtility",
    "rhelSubscriptionManagerUser",
    "rhelSubscriptionManagerPassword",
    "rhsmOfflineToken",
    "attachSubscription",
    "rhelUseSatelliteServer",
    "rhelSatelliteServer",
    "rhelOrganizationName",
    "rhelActivationKey",
];

/// The provider spec of a machine deployment. It may contain credentials of the cloud provider, so
/// its `Debug` output contains only names.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProviderConfig {
    /// The operating system, as given.
    pub operating_system: String,
    /// The cloud provider, as given.
    pub cloud_provider: String,
    /// The cloud provider's own settings, undecoded.
    pub cloud_provider_spec: Value,
    /// The public SSH keys, as given.
    pub ssh_public_keys: Vec<String>,
    /// The network, if the provider spec has one.
    pub network: Option<Network>,
    /// The settings for the operating system.
    pub operating_system_spec: OperatingSystemSpec,
    /// The cloud provider's configuration file, verbatim.
    #[serde(with = "exposed::optional")]
    pub overwrite_cloud_config: Option<SecretText>,
}

/// The network of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The machine's address with the length of the network prefix.
    pub cidr: String,
    /// The gateway.
    pub gateway: String,
    /// The DNS servers.
    pub dns_servers: Vec<String>,
    /// The IP families, in order.
    pub ip_family: String,
}

impl Network {
    /// Returns true if the machine's address is configured here instead of by DHCP.
    pub fn is_static(&self) -> bool {
        !self.cidr.is_empty() || !self.gateway.is_empty() || !self.dns_servers.is_empty()
    }
}

/// The settings for the operating system. Only the part of the machine's own one is ever set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatingSystemSpec {
    /// True if packages are upgraded at the first boot.
    pub dist_upgrade_on_boot: bool,
    /// Flatcar's part.
    pub flatcar: FlatcarSpec,
    /// Red Hat Enterprise Linux's part.
    pub rhel: RhelSpec,
}

/// Flatcar's part of the operating system's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each name is machine-controller's own")]
pub struct FlatcarSpec {
    pub disable_auto_update: bool,
    pub disable_locksmithd: bool,
    pub disable_update_engine: bool,
    pub provisioning_utility: String,
}

/// Red Hat Enterprise Linux's part of the operating system's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each name is machine-controller's own")]
pub struct RhelSpec {
    #[serde(with = "exposed")]
    pub subscription_manager_user: SecretText,
    #[serde(with = "exposed")]
    pub subscription_manager_password: SecretText,
    #[serde(with = "exposed")]
    pub rhsm_offline_token: SecretText,
    pub attach_subscription: bool,
    pub use_satellite_server: bool,
    pub satellite_server: String,
    #[serde(with = "exposed")]
    pub organization_name: SecretText,
    #[serde(with = "exposed")]
    pub activation_key: SecretText,
}

impl ProviderConfig {
    /// Decodes the value, and refuses unknown keys.
    ///
    /// # Errors
    ///
    /// A value has the wrong type, or a key is unknown.
    pub fn decode(value: &Value) -> Result<Self, RenderError> {
        Self::decode_with(value, UnknownKeys::Refused)
    }

    /// Decodes the value, and skips unknown keys.
    ///
    /// # Errors
    ///
    /// A value has the wrong type.
    pub fn decode_lenient(value: &Value) -> Result<Self, RenderError> {
        Self::decode_with(value, UnknownKeys::Ignored)
    }

    fn decode_with(value: &Value, unknown: UnknownKeys) -> Result<Self, RenderError> {
        if value.is_null() {
            return Err(RenderError::ProviderSpecEmpty);
        }
        let mut config = Self::default();
        config
            .set_all(value, unknown)
            .map_err(|error| RenderError::ProviderConfig {
                reason: error.to_string(),
            })?;
        Ok(config)
    }

    /// Returns the operating system, or an error if it is unknown.
    ///
    /// # Errors
    ///
    /// This version does not know the operating system.
    pub fn known_operating_system(&self) -> Result<OperatingSystem, RenderError> {
        match OperatingSystem::from(self.operating_system.as_str()) {
            OperatingSystem::Other(name) => {
                Err(RenderError::UnknownOperatingSystem { name: name.into() })
            }
            known => Ok(known),
        }
    }

    /// Returns the cloud provider, or an error if it is unknown.
    ///
    /// # Errors
    ///
    /// This version does not know the cloud provider.
    pub fn known_cloud_provider(&self) -> Result<CloudProvider, RenderError> {
        match CloudProvider::from(self.cloud_provider.as_str()) {
            CloudProvider::Other(name) => {
                Err(RenderError::UnknownCloudProvider { name: name.into() })
            }
            known => Ok(known),
        }
    }

    /// Returns the tool that reads the documents on the machine.
    ///
    /// # Errors
    ///
    /// The provider spec names a tool that does not exist.
    pub fn provisioning_utility(&self) -> Result<ProvisioningUtility, RenderError> {
        if self.operating_system != OperatingSystem::Flatcar.as_str() {
            return Ok(ProvisioningUtility::CloudInit);
        }
        match self
            .operating_system_spec
            .flatcar
            .provisioning_utility
            .as_str()
        {
            "" | "ignition" => Ok(ProvisioningUtility::Ignition),
            "cloud-init" => Ok(ProvisioningUtility::CloudInit),
            other => Err(RenderError::UnknownUtility {
                name: other.to_owned(),
            }),
        }
    }

    fn set_all(&mut self, value: &Value, unknown: UnknownKeys) -> Result<(), DecodeError> {
        let mut operating_system_spec = &Value::Null;
        for (name, value) in fields(value, KEYS, unknown)? {
            let set = match name {
                "operatingSystemSpec" => {
                    operating_system_spec = value;
                    Ok(())
                }
                "network" => set_network(&mut self.network, value, unknown),
                name => self.set_field(name, value),
            };
            set.map_err(|error| error.within(name))?;
        }
        self.set_operating_system_spec(operating_system_spec)
            .map_err(|error| error.within("operatingSystemSpec"))
    }

    fn set_field(&mut self, name: &str, value: &Value) -> Result<(), DecodeError> {
        match name {
            "sshPublicKeys" => set_texts(&mut self.ssh_public_keys, value)?,
            "caPublicKey" => set_text(&mut String::new(), value)?,
            "cloudProvider" => set_text(&mut self.cloud_provider, value)?,
            "cloudProviderSpec" => self.cloud_provider_spec = value.clone(),
            "operatingSystem" => set_text(&mut self.operating_system, value)?,
            _ => self.overwrite_cloud_config = secret_or_none(value)?,
        }
        Ok(())
    }

    /// Decodes the settings for the operating system. Keys of another operating system are skipped,
    /// except for the one that documents read for every operating system.
    fn set_operating_system_spec(&mut self, value: &Value) -> Result<(), DecodeError> {
        let is_flatcar = self.operating_system == OperatingSystem::Flatcar.as_str();
        let is_rhel = self.operating_system == OperatingSystem::Rhel.as_str();
        let spec = &mut self.operating_system_spec;
        for (name, value) in fields(value, OPERATING_SYSTEM_KEYS, UnknownKeys::Ignored)? {
            let set = match name {
                "distUpgradeOnBoot" => set_flag(&mut spec.dist_upgrade_on_boot, value),
                _ if is_flatcar => set_flatcar(&mut spec.flatcar, name, value),
                _ if is_rhel => set_rhel(&mut spec.rhel, name, value),
                _ => Ok(()),
            };
            set.map_err(|error| error.within(name))?;
        }
        Ok(())
    }
}

fn set_flatcar(spec: &mut FlatcarSpec, name: &str, value: &Value) -> Result<(), DecodeError> {
    match name {
        "disableAutoUpdate" => set_flag(&mut spec.disable_auto_update, value),
        "disableLocksmithD" => set_flag(&mut spec.disable_locksmithd, value),
        "disableUpdateEngine" => set_flag(&mut spec.disable_update_engine, value),
        "provisioningUtility" => set_text(&mut spec.provisioning_utility, value),
        _ => Ok(()),
    }
}

fn set_rhel(spec: &mut RhelSpec, name: &str, value: &Value) -> Result<(), DecodeError> {
    match name {
        "rhelSubscriptionManagerUser" => set_secret(&mut spec.subscription_manager_user, value),
        "rhelSubscriptionManagerPassword" => {
            set_secret(&mut spec.subscription_manager_password, value)
        }
        "rhsmOfflineToken" => set_secret(&mut spec.rhsm_offline_token, value),
        "attachSubscription" => set_flag(&mut spec.attach_subscription, value),
        "rhelUseSatelliteServer" => set_flag(&mut spec.use_satellite_server, value),
        "rhelSatelliteServer" => set_text(&mut spec.satellite_server, value),
        "rhelOrganizationName" => set_secret(&mut spec.organization_name, value),
        "rhelActivationKey" => set_secret(&mut spec.activation_key, value),
        _ => Ok(()),
    }
}

fn set_secret(field: &mut SecretText, value: &Value) -> Result<(), DecodeError> {
    if let Some(secret) = secret_or_none(value)? {
        *field = secret;
    }
    Ok(())
}

fn secret_or_none(value: &Value) -> Result<Option<SecretText>, DecodeError> {
    if value.is_null() {
        return Ok(None);
    }
    let mut text = String::new();
    set_text(&mut text, value)?;
    Ok(Some(SecretText::new(text)))
}

/// Decodes the network. A second `network` is merged into the first, as Go decodes into an existing
/// pointer.
fn set_network(
    network: &mut Option<Network>,
    value: &Value,
    unknown: UnknownKeys,
) -> Result<(), DecodeError> {
    if value.is_null() {
        *network = None;
        return Ok(());
    }
    let network = network.get_or_insert_default();
    for (name, value) in fields(value, NETWORK_KEYS, unknown)? {
        let set = match name {
            "cidr" => set_text(&mut network.cidr, value),
            "gateway" => set_text(&mut network.gateway, value),
            "ipFamily" => set_text(&mut network.ip_family, value),
            _ => set_dns(network, value, unknown),
        };
        set.map_err(|error| error.within(name))?;
    }
    Ok(())
}

fn set_dns(network: &mut Network, value: &Value, unknown: UnknownKeys) -> Result<(), DecodeError> {
    for (name, servers) in fields(value, DNS_KEYS, unknown)? {
        set_texts(&mut network.dns_servers, servers).map_err(|error| error.within(name))?;
    }
    Ok(())
}

impl fmt::Debug for ProviderConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ProviderConfig")
            .field("operating_system", &self.operating_system)
            .field("cloud_provider", &self.cloud_provider)
            .finish_non_exhaustive()
    }
}
