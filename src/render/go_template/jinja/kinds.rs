//! What is known of a value before any template runs: Go's types of the data, which the values of
//! a Jinja template do not carry.

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Truth,
    Number,
    /// A list of texts.
    List,
    /// A map.
    Map(Entry),
    Struct(Record),
    /// What may be nil.
    Pointer(Target),
    /// An entry of a map, which may be missing.
    Entry(Entry),
    /// The data as a whole.
    Root,
    /// Nil.
    Nothing,
    /// A value of Go's own, whose kind only a run tells.
    Go,
    /// The same, and known to be a list.
    GoList,
}

/// What a map holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Text,
    Truth,
}

/// What a pointer leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Text,
    Age,
    Number,
    Map,
    Network,
}

/// A struct of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Network,
    Dns,
    Upgrade,
    Flatcar,
    Rhel,
}

impl Kind {
    /// Whether Jinja's value and Go's are the same.
    pub(super) const fn is_scalar(self) -> bool {
        matches!(self, Self::Text | Self::Truth | Self::Number)
    }

    /// Whether a variable that is assigned to may hold it: see `osm_plain`.
    pub(super) const fn is_plain(self) -> bool {
        self.is_scalar() || matches!(self, Self::GoList)
    }
}

/// The kind of a variable that is known to be there.
pub(super) fn variable(name: &str) -> Kind {
    match name {
        "ExternalCloudProvider" | "InTreeCCMAvailable" => Kind::Truth,
        "ClusterDNSIPs" => Kind::List,
        "KubeletFeatureGates" => Kind::Map(Entry::Truth),
        "RHSubscription" | "variables" => Kind::Map(Entry::Text),
        "HTTPProxy" | "NoProxy" | "ContainerLogMaxSize" | "ContainerLogMaxFiles" => {
            Kind::Pointer(Target::Text)
        }
        "ImageMinimumGCAge" | "ImageMaximumGCAge" => Kind::Pointer(Target::Age),
        "MaxPods" | "ImageGCHighThresholdPercent" | "ImageGCLowThresholdPercent" => {
            Kind::Pointer(Target::Number)
        }
        "KubeReserved" | "SystemReserved" | "EvictionHard" => Kind::Pointer(Target::Map),
        "NetworkConfig" => Kind::Pointer(Target::Network),
        "AmazonLinuxConfig" | "UbuntuConfig" | "RockyLinuxConfig" => Kind::Struct(Record::Upgrade),
        "FlatcarConfig" => Kind::Struct(Record::Flatcar),
        "RhelConfig" => Kind::Struct(Record::Rhel),
        _ => Kind::Text,
    }
}

/// The kind of a struct's field.
pub(super) fn field(record: Record, name: &str) -> Option<Kind> {
    Some(match (record, name) {
        (Record::Network, "CIDR" | "Gateway" | "IPFamily" | "GetIPFamily")
        | (Record::Flatcar, "ProvisioningUtility")
        | (
            Record::Rhel,
            "RHELSubscriptionManagerUser"
            | "RHELSubscriptionManagerPassword"
            | "RHSMOfflineToken"
            | "RHELSatelliteServer"
            | "RHELOrganizationName"
            | "RHELActivationKey",
        ) => Kind::Text,
        (Record::Network, "IsStaticIPConfig")
        | (Record::Upgrade | Record::Rhel, "DistUpgradeOnBoot")
        | (Record::Rhel, "AttachSubscription" | "RHELUseSatelliteServer")
        | (Record::Flatcar, "DisableAutoUpdate" | "DisableLocksmithD" | "DisableUpdateEngine") => {
            Kind::Truth
        }
        (Record::Network, "DNS") => Kind::Struct(Record::Dns),
        (Record::Dns, "Servers") => Kind::List,
        _ => return None,
    })
}

/// What a function makes whenever it makes something.
pub(super) fn made_by(function: &str) -> Kind {
    match function {
        "abbrev" | "adler32sum" | "b32enc" | "b64enc" | "base" | "camelcase" | "cat" | "clean"
        | "dir" | "ext" | "html" | "indent" | "initials" | "join" | "js" | "kebabcase"
        | "kindOf" | "lower" | "nindent" | "nospace" | "print" | "printf" | "println" | "quote"
        | "regexQuoteMeta" | "repeat" | "replace" | "sha1sum" | "sha256sum" | "sha512sum"
        | "snakecase" | "squote" | "substr" | "swapcase" | "title" | "toJson" | "toRawJson"
        | "toString" | "toYaml" | "trim" | "trimAll" | "trimPrefix" | "trimSuffix" | "trunc"
        | "untitle" | "upper" | "urlquery" | "wrap" | "wrapWith" => Kind::Text,
        "contains" | "empty" | "eq" | "ge" | "gt" | "has" | "hasKey" | "hasPrefix"
        | "hasSuffix" | "kindIs" | "le" | "lt" | "ne" | "regexMatch" | "semverCompare" => {
            Kind::Truth
        }
        "add" | "add1" | "atoi" | "div" | "int" | "int64" | "len" | "max" | "min" | "mod"
        | "mul" | "sub" => Kind::Number,
        "append" | "concat" | "keys" | "list" | "prepend" | "sortAlpha" | "splitList" | "tuple"
        | "uniq" | "until" | "values" | "without" => Kind::GoList,
        _ => Kind::Go,
    }
}
