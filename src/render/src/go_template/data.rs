//! The data of a render as Go templates see it: with pointers and structs where Go has them.

use std::collections::BTreeMap;

use minijinja::{Value, value::ValueKind};

use super::{
    super::duration::GoDuration,
    translate::ROOT,
    value::{Element, Field, INT64, List, Map, Methods, Pointer, Struct, Typed},
};

/// The fields of the data.
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

/// The fields that are pointers, which are nil, or true whatever they point to, with the types of
/// their targets.
const POINTERS: [(&str, &str); 13] = [
    ("HTTPProxy", "string"),
    ("NoProxy", "string"),
    ("KubeReserved", "map[string]string"),
    ("SystemReserved", "map[string]string"),
    ("EvictionHard", "map[string]string"),
    ("MaxPods", INT32),
    ("ImageGCHighThresholdPercent", INT32),
    ("ImageGCLowThresholdPercent", INT32),
    ("ImageMinimumGCAge", AGE),
    ("ImageMaximumGCAge", AGE),
    ("ContainerLogMaxSize", "string"),
    ("ContainerLogMaxFiles", "string"),
    ("NetworkConfig", "providerconfig.NetworkConfig"),
];

const INT32: &str = "int32";
/// The type of a duration in the Kubernetes API.
pub(super) const AGE: &str = "v1.Duration";

/// The types of structs, by the fields that contain them.
const STRUCTS: [(&str, &str); 7] = [
    ("NetworkConfig", "providerconfig.NetworkConfig"),
    ("DNS", "providerconfig.DNSConfig"),
    ("AmazonLinuxConfig", "amzn2.Config"),
    ("FlatcarConfig", "flatcar.Config"),
    ("RhelConfig", "rhel.Config"),
    ("UbuntuConfig", "ubuntu.Config"),
    ("RockyLinuxConfig", "rockylinux.Config"),
];

/// The fields that JSON omits if they are empty.
const OMITTED: [&str; 5] = [
    "ipFamily",
    "provisioningUtility",
    "rhelSubscriptionManagerUser",
    "rhelSubscriptionManagerPassword",
    "rhsmOfflineToken",
];

/// Returns true if JSON omits a field when it is empty.
pub(super) fn is_omitted_if_empty(json: &str) -> bool {
    OMITTED.contains(&json)
}

/// The JSON names of struct fields, unless they are the lower-cased field name.
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

/// The fields of structs, whose names must be static.
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

/// The methods that can be called on a nil network.
const NETWORK_METHODS: Methods = &[
    ("IsStaticIPConfig", || Value::from(false)),
    ("GetIPFamily", || family(&Value::from(""))),
];

/// Returns true if the data has a field of this name.
pub(super) fn is_root_field(name: &str) -> bool {
    ROOT_FIELDS.contains(&name)
}

/// Creates the variables of a render from those of Jinja templates.
pub(crate) fn variables(data: &BTreeMap<&'static str, Value>) -> BTreeMap<&'static str, Value> {
    let mut variables: BTreeMap<&'static str, Value> = data
        .iter()
        .map(|(name, value)| (*name, variable(name, value)))
        .collect();
    let fields = variables.iter();
    let fields = fields.map(|(name, value)| Field::method(name, value.clone()));
    let root = Pointer::to(Value::from_object(Struct {
        fields: fields.collect(),
        type_name: "resources.filesData",
    }));
    variables.insert(ROOT, root);
    variables
}

/// Returns a variable with the type that its name implies.
pub(super) fn variable(name: &str, value: &Value) -> Value {
    let pointer = POINTERS.iter().find(|(known, _)| *known == name);
    let target = pointer.map_or("", |(_, target)| target);
    if pointer.is_some() && value.is_none() {
        return Value::from_object(Pointer {
            target: None,
            type_name: target,
            methods: if name == "NetworkConfig" {
                NETWORK_METHODS
            } else {
                &[]
            },
        });
    }
    let converted = match value.kind() {
        _ if target == AGE => age(value),
        ValueKind::Map if name == "KubeletFeatureGates" => map(value, Element::Bool),
        ValueKind::Map => match struct_type(name) {
            Some(type_name) => struct_of(type_name, value),
            None => map(value, Element::Text),
        },
        ValueKind::Seq | ValueKind::Iterable => addresses(value),
        ValueKind::Number if target == INT32 => {
            Typed::number(INT32, value.as_i64().unwrap_or_default())
        }
        _ if name == "CloudProviderName" => {
            Typed::text("v1alpha1.CloudProvider", value, Vec::new())
        }
        _ => value.clone(),
    };
    if pointer.is_some() {
        Pointer::to(converted)
    } else {
        converted
    }
}

fn struct_type(name: &str) -> Option<&'static str> {
    let found = STRUCTS.iter().find(|(known, _)| *known == name)?;
    Some(found.1)
}

/// Returns a duration, parsed from its text. It prints as a kubelet reads it. Go prints it with the
/// name of the type around it.
fn age(value: &Value) -> Value {
    let text = value.as_str().unwrap_or_default();
    let nanoseconds = GoDuration::parse(text).map_or(0, GoDuration::nanoseconds);
    let duration = duration(nanoseconds);
    let mut fields = vec![Field {
        name: "Duration",
        json: "",
        value: duration,
        is_method: false,
    }];
    fields.extend(duration_methods(nanoseconds));
    Value::from_object(Struct {
        fields,
        type_name: AGE,
    })
}

/// Returns a `time.Duration`.
fn duration(nanoseconds: i64) -> Value {
    Value::from_object(Typed {
        type_name: "time.Duration",
        kind_name: INT64,
        value: Value::from(nanoseconds),
        shown: Some(GoDuration::new(nanoseconds).to_string()),
        methods: duration_methods(nanoseconds),
    })
}

fn duration_methods(nanoseconds: i64) -> Vec<Field> {
    // Like Go, adds the whole part and the rest separately.
    #[expect(clippy::cast_precision_loss, reason = "as Go does it")]
    let parts = |unit: i64| (nanoseconds / unit) as f64 + (nanoseconds % unit) as f64 / unit as f64;
    let int64 = |unit: i64| Typed::number(INT64, nanoseconds / unit);
    vec![
        Field::method("String", GoDuration::new(nanoseconds).to_string()),
        Field::method("Hours", parts(3_600_000_000_000)),
        Field::method("Minutes", parts(60_000_000_000)),
        Field::method("Seconds", parts(1_000_000_000)),
        Field::method("Milliseconds", int64(1_000_000)),
        Field::method("Microseconds", int64(1_000)),
        Field::method("Nanoseconds", int64(1)),
    ]
}

/// Returns the address families of a network.
fn family(value: &Value) -> Value {
    let name = value.as_str().unwrap_or_default();
    let is_dual = matches!(name, "IPv4+IPv6" | "IPv6+IPv4");
    let methods = vec![
        Field::method("HasIPv4", is_dual || matches!(name, "" | "IPv4")),
        Field::method("HasIPv6", is_dual || name == "IPv6"),
        Field::method("IsDualstack", is_dual),
    ];
    Typed::text("net.IPFamily", value, methods)
}

/// Returns addresses, which print as texts. For Go, they are lists of bytes.
fn addresses(value: &Value) -> Value {
    let items = value.try_iter().into_iter().flatten().map(|address| {
        let shown = address.as_str().unwrap_or_default().to_owned();
        Value::from_object(Typed {
            type_name: "net.IP",
            kind_name: "slice",
            methods: vec![Field::method("String", shown.clone())],
            shown: Some(shown),
            value: address,
        })
    });
    List::of("net.IP", items.collect())
}

fn map(value: &Value, element: Element) -> Value {
    let entries = value.try_iter().into_iter().flatten().map(|key| {
        let entry = value.get_item(&key).unwrap_or_default();
        (key.as_str().unwrap_or_default().to_owned(), entry)
    });
    Map::typed(entries.collect(), element)
}

fn struct_of(type_name: &'static str, value: &Value) -> Value {
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
            value: member(name, &found),
            is_method: json.is_empty(),
        })
    });
    Value::from_object(Struct {
        fields: fields.collect(),
        type_name,
    })
}

fn member(name: &str, value: &Value) -> Value {
    match (name, value.kind()) {
        ("IPFamily" | "GetIPFamily", _) => family(value),
        ("ProvisioningUtility", _) => Typed::text("flatcar.ProvisioningUtility", value, Vec::new()),
        (_, ValueKind::Map) => struct_of(struct_type(name).unwrap_or_default(), value),
        (_, ValueKind::Seq | ValueKind::Iterable) => {
            List::of("string", value.try_iter().into_iter().flatten().collect())
        }
        _ => value.clone(),
    }
}
