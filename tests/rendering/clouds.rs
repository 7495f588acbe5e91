//! The fields of every cloud provider's spec that hold credentials, as machine-controller reads
//! them, and a provider spec with a canary in each.

use osm::render::default_profiles::default_profiles;
use serde_json::{Value, json};

/// Cloud providers, each with the places of its credentials in `cloudProviderSpec`.
pub const CLOUDS: [(&str, &[&str]); 19] = [
    ("alibaba", &["accessKeyID", "accessKeySecret"]),
    ("anexia", &["token"]),
    (
        "aws",
        &[
            "accessKeyId",
            "secretAccessKey",
            "assumeRoleARN",
            "assumeRoleExternalID",
        ],
    ),
    (
        "azure",
        &["tenantID", "clientID", "clientSecret", "subscriptionID"],
    ),
    ("baremetal", &["driverSpec/auth/kubeconfig"]),
    ("digitalocean", &["token"]),
    ("edge", &["token"]),
    ("external", &["token"]),
    ("fake", &["token"]),
    ("gce", &["serviceAccount"]),
    ("hetzner", &["token"]),
    ("kubevirt", &["auth/kubeconfig"]),
    ("linode", &["token"]),
    ("nutanix", &["username", "password", "proxyURL"]),
    ("opennebula", &["username", "password"]),
    (
        "openstack",
        &[
            "username",
            "password",
            "applicationCredentialID",
            "applicationCredentialSecret",
            "tokenID",
            "trustDevicePath",
        ],
    ),
    ("scaleway", &["accessKey", "secretKey"]),
    (
        "vmware-cloud-director",
        &["username", "password", "apiToken"],
    ),
    ("vsphere", &["username", "password"]),
];

/// The subscription of Red Hat Enterprise Linux.
pub const SUBSCRIPTION: [&str; 5] = [
    "rhelSubscriptionManagerUser",
    "rhelSubscriptionManagerPassword",
    "rhsmOfflineToken",
    "rhelOrganizationName",
    "rhelActivationKey",
];

/// A default profile and the operating system that it is for.
#[derive(Clone)]
pub struct System {
    pub profile: &'static str,
    pub yaml: &'static str,
    pub name: &'static str,
}

/// Every default profile.
pub fn systems() -> Vec<System> {
    let systems = default_profiles().iter().map(|profile| System {
        profile: profile.name,
        yaml: profile.yaml,
        name: match profile.name {
            "osp-amzn2" | "osp-amzn2023" => "amzn2",
            "osp-rhel" => "rhel",
            "osp-centos-stream" | "osp-rockylinux" => "rockylinux",
            "osp-flatcar" | "osp-flatcar-cloud-init" => "flatcar",
            _ => "ubuntu",
        },
    });
    systems.collect()
}

/// A provider spec with a canary in each place that may hold a secret: the mark, and the place.
#[expect(
    clippy::indexing_slicing,
    reason = "a JSON object that is written has every key"
)]
pub fn provider_spec(system: &System, (cloud, places): (&str, &[&str]), mark: &str) -> Value {
    let canary = |place: &str| format!("{mark}-{}", place.replace('/', "-"));
    let mut cloud_spec = json!({ "region": "somewhere" });
    for (index, place) in places.iter().enumerate() {
        // machine-controller takes a value as it is, or in an object.
        let value = match index % 2 {
            0 => json!({ "value": canary(place) }),
            _ => json!(canary(place)),
        };
        let mut at = &mut cloud_spec;
        for step in place.split('/') {
            at = &mut at[step];
        }
        *at = value;
    }
    let mut system_spec = json!({ "distUpgradeOnBoot": false });
    if system.name == "rhel" {
        for place in SUBSCRIPTION {
            system_spec[place] = json!(canary(place));
        }
        system_spec["attachSubscription"] = json!(true);
    }
    if system.profile == "osp-flatcar-cloud-init" {
        system_spec["provisioningUtility"] = json!("cloud-init");
    }
    json!({
        "sshPublicKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKm0 ops@example.com"],
        "cloudProvider": cloud,
        "cloudProviderSpec": cloud_spec,
        "operatingSystem": system.name,
        "operatingSystemSpec": system_spec,
        "overwriteCloudConfig": format!("[global]\npassword = {}\n", canary("cloud-config")),
    })
}
