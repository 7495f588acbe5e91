//! What is known about a value before a template runs: the Go types of the data, which the values
//! of a Jinja template lack.

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
    /// A value that may be nil.
    Pointer(Target),
    /// An entry of a map, which may be missing.
    Entry(Entry),
    /// The data as a whole.
    Root,
    /// Nil.
    Nothing,
    /// A value of Go's own, whose kind is known only at run time.
    Go,
    /// A value of Go's own that is known to be a list.
    GoList,
}

/// The values of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Text,
    Truth,
}

/// The target of a pointer.
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
    /// Returns true if Jinja's value and Go's are the same.
    pub(super) const fn is_scalar(self) -> bool {
        matches!(self, Self::Text | Self::Truth | Self::Number)
    }

    /// Returns true if an assigned variable may contain it. See `osm_plain`.
    pub(super) const fn is_plain(self) -> bool {
        self.is_scalar() || matches!(self, Self::GoList)
    }
}

/// Returns the kind of a variable of the data.
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

/// Returns the kind of a struct's field.
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

/// Returns the kind of a function's result.
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
