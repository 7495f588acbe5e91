//! The names of operating systems and cloud providers. Stored objects may contain any name, from an
//! older or a newer release. Code that needs a known name checks for it.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of an operating system. The set is open: a stored profile may contain a name that
/// another version of machine-controller knows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperatingSystem {
    /// Flatcar Container Linux.
    Flatcar,
    /// Red Hat Enterprise Linux.
    Rhel,
    /// Ubuntu.
    Ubuntu,
    /// Amazon Linux 2.
    Amzn2,
    /// Rocky Linux.
    RockyLinux,
    /// Any other. No machine deployment can use it.
    Other(Box<str>),
}

impl OperatingSystem {
    /// The operating systems that machine deployments can use.
    pub const KNOWN: [Self; 5] = [
        Self::Flatcar,
        Self::Rhel,
        Self::Ubuntu,
        Self::Amzn2,
        Self::RockyLinux,
    ];

    /// Returns the name as objects spell it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Flatcar => "flatcar",
            Self::Rhel => "rhel",
            Self::Ubuntu => "ubuntu",
            Self::Amzn2 => "amzn2",
            Self::RockyLinux => "rockylinux",
            Self::Other(name) => name,
        }
    }
}

/// The name of a cloud provider. The set is open, like that of [`OperatingSystem`]: profiles that
/// were stored years ago contain `equinixmetal`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each name is the provider's own")]
pub enum CloudProvider {
    Aws,
    Azure,
    DigitalOcean,
    Edge,
    Gce,
    Hetzner,
    KubeVirt,
    Linode,
    Nutanix,
    OpenStack,
    VSphere,
    Fake,
    Alibaba,
    Anexia,
    Scaleway,
    BareMetal,
    External,
    VmwareCloudDirector,
    OpenNebula,
    /// Any other. No machine deployment can use it.
    Other(Box<str>),
}

impl CloudProvider {
    /// The cloud providers that machine deployments can use.
    pub const KNOWN: [Self; 19] = [
        Self::Aws,
        Self::Azure,
        Self::DigitalOcean,
        Self::Edge,
        Self::Gce,
        Self::Hetzner,
        Self::KubeVirt,
        Self::Linode,
        Self::Nutanix,
        Self::OpenStack,
        Self::VSphere,
        Self::Fake,
        Self::Alibaba,
        Self::Anexia,
        Self::Scaleway,
        Self::BareMetal,
        Self::External,
        Self::VmwareCloudDirector,
        Self::OpenNebula,
    ];

    /// Returns the name as objects spell it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Aws => "aws",
            Self::Azure => "azure",
            Self::DigitalOcean => "digitalocean",
            Self::Edge => "edge",
            Self::Gce => "gce",
            Self::Hetzner => "hetzner",
            Self::KubeVirt => "kubevirt",
            Self::Linode => "linode",
            Self::Nutanix => "nutanix",
            Self::OpenStack => "openstack",
            Self::VSphere => "vsphere",
            Self::Fake => "fake",
            Self::Alibaba => "alibaba",
            Self::Anexia => "anexia",
            Self::Scaleway => "scaleway",
            Self::BareMetal => "baremetal",
            Self::External => "external",
            Self::VmwareCloudDirector => "vmware-cloud-director",
            Self::OpenNebula => "opennebula",
            Self::Other(name) => name,
        }
    }
}

/// Implements reading and writing a name of an open set as a string: one of `KNOWN`, or `Other`.
macro_rules! open_set {
    ($names:ident) => {
        impl From<&str> for $names {
            fn from(name: &str) -> Self {
                let known = Self::KNOWN.into_iter().find(|known| known.as_str() == name);
                known.unwrap_or_else(|| Self::Other(name.into()))
            }
        }

        impl Serialize for $names {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $names {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::from(&*Cow::<str>::deserialize(deserializer)?))
            }
        }

        impl JsonSchema for $names {
            fn schema_name() -> Cow<'static, str> {
                stringify!($names).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string" })
            }

            fn inline_schema() -> bool {
                true
            }
        }
    };
}

open_set!(OperatingSystem);
open_set!(CloudProvider);
