//! The data of a render as Go's templates see it: pointers and structs where Go has them.

use std::collections::BTreeMap;

use minijinja::{Value, value::ValueKind};

use super::{
    translate::ROOT,
    value::{Element, Field, List, Map, Methods, Pointer, Struct},
};

/// What a template can read.
const ROOT_FIELDS: [&str; 45] = [
    "AmazonLinuxConfig",
    "BootstrapKubeconfig",
    "BootstrapKubeconfigSecretName",
    "CNIVersion",
    "CloudConfig",
    "CloudProviderName",
    "ClusterDNSIPs",
    "ContainerLogMaxFiles",
    "ContainerLogMaxSize",
    "ContainerRuntime",
    "ContainerRuntimeAuthConfig",
    "ContainerRuntimeConfig",
    "ContainerRuntimeConfigV2",
    "EvictionHard",
    "ExternalCloudProvider",
    "FlatcarConfig",
    "HTTPProxy",
    "HostCACert",
    "ImageGCHighThresholdPercent",
    "ImageGCLowThresholdPercent",
    "ImageMaximumGCAge",
    "ImageMinimumGCAge",
    "InTreeCCMAvailable",
    "InitialTaints",
    "KubeReserved",
    "KubeVersion",
    "KubeletConfiguration",
    "KubeletFeatureGates",
    "KubeletSystemdUnit",
    "KubernetesCACert",
    "MaxPods",
    "NetworkConfig",
    "NetworkIPFamily",
    "NoProxy",
    "PauseImage",
    "RHSubscription",
    "RhelConfig",
    "RockyLinuxConfig",
    "SecretName",
    "ServerAddress",
    "ServerURL",
    "SystemReserved",
    "Token",
    "UbuntuConfig",
    "variables",
];

/// Fields that are pointers: nil, or true whatever they point to.
const POINTERS: [&str; 13] = [
    "HTTPProxy",
    "NoProxy",
    "KubeReserved",
    "SystemReserved",
    "EvictionHard",
    "MaxPods",
    "ImageGCHighThresholdPercent",
    "ImageGCLowThresholdPercent",
    "ImageMinimumGCAge",
    "ImageMaximumGCAge",
    "ContainerLogMaxSize",
    "ContainerLogMaxFiles",
    "NetworkConfig",
];

/// Names of structs' fields in JSON, where lowering the first letter does not make them.
const JSON_NAMES: [(&str, &str); 11] = [
    ("CIDR", "cidr"),
    ("DNS", "dns"),
    ("IPFamily", "ipFamily"),
    ("RHELSubscriptionManagerUser", "rhelSubscriptionManagerUser"),
    (
        "RHELSubscriptionManagerPassword",
        "rhelSubscriptionManagerPassword",
    ),
    ("RHSMOfflineToken", "rhsmOfflineToken"),
    ("RHELUseSatelliteServer", "rhelUseSatelliteServer"),
    ("RHELSatelliteServer", "rhelSatelliteServer"),
    ("RHELOrganizationName", "rhelOrganizationName"),
    ("RHELActivationKey", "rhelActivationKey"),
    ("GetIPFamily", ""),
];

/// Fields of structs, which have static names.
const STRUCT_FIELDS: [(&str, &str); 9] = [
    ("DistUpgradeOnBoot", "distUpgradeOnBoot"),
    ("DisableAutoUpdate", "disableAutoUpdate"),
    ("DisableLocksmithD", "disableLocksmithD"),
    ("DisableUpdateEngine", "disableUpdateEngine"),
    ("ProvisioningUtility", "provisioningUtility"),
    ("AttachSubscription", "attachSubscription"),
    ("Gateway", "gateway"),
    ("Servers", "servers"),
    ("IsStaticIPConfig", ""),
];

/// Methods that a nil network answers.
const NETWORK_METHODS: Methods = &[
    ("IsStaticIPConfig", || Value::from(false)),
    ("GetIPFamily", || Value::from("")),
];

/// Whether the data has a field.
pub(super) fn is_root_field(name: &str) -> bool {
    ROOT_FIELDS.contains(&name)
}

/// The variables of a render, from those that Jinja templates have.
pub(in crate::render) fn variables(
    data: &BTreeMap<&'static str, Value>,
) -> BTreeMap<&'static str, Value> {
    let mut variables: BTreeMap<&'static str, Value> = data
        .iter()
        .map(|(name, value)| (*name, variable(name, value)))
        .collect();
    let fields = variables.iter().map(|(name, value)| Field {
        name,
        json: "",
        value: value.clone(),
        is_method: true,
    });
    let root = Pointer::to(Value::from_object(Struct(fields.collect())));
    variables.insert(ROOT, root);
    variables
}

fn variable(name: &str, value: &Value) -> Value {
    if name == "NetworkConfig" && value.is_none() {
        return Value::from_object(Pointer {
            target: None,
            methods: NETWORK_METHODS,
        });
    }
    let is_pointer = POINTERS.contains(&name);
    if is_pointer && value.is_none() {
        return Pointer::nil();
    }
    let converted = match value.kind() {
        ValueKind::Map if name == "KubeletFeatureGates" => map(value, Element::Bool),
        ValueKind::Map if name == "NetworkConfig" || name.ends_with("Config") => struct_of(value),
        ValueKind::Map => map(value, Element::Text),
        ValueKind::Seq | ValueKind::Iterable => list(value),
        _ => value.clone(),
    };
    if is_pointer {
        Pointer::to(converted)
    } else {
        converted
    }
}

fn list(value: &Value) -> Value {
    List::value(value.try_iter().into_iter().flatten().collect())
}

fn map(value: &Value, element: Element) -> Value {
    let entries = value.try_iter().into_iter().flatten().map(|key| {
        let entry = value.get_item(&key).unwrap_or_default();
        (key.as_str().unwrap_or_default().to_owned(), entry)
    });
    Map::typed(entries.collect(), element)
}

fn struct_of(value: &Value) -> Value {
    let keys = value.try_iter().into_iter().flatten();
    let fields = keys.filter_map(|key| {
        let found = value.get_item(&key).unwrap_or_default();
        let (name, json) = JSON_NAMES
            .iter()
            .chain(&STRUCT_FIELDS)
            .find(|(name, _)| Some(*name) == key.as_str())?;
        Some(Field {
            name,
            json,
            value: match found.kind() {
                ValueKind::Map => struct_of(&found),
                ValueKind::Seq | ValueKind::Iterable => list(&found),
                _ => found,
            },
            is_method: json.is_empty(),
        })
    });
    Value::from_object(Struct(fields.collect()))
}
