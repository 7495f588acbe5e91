//! Settings of the kubelet: its version and the annotations of a machine deployment.
//!
//! Annotations follow the kubelet's own rules: a value that no kubelet accepts is refused, because
//! machines with it would never become nodes.

use std::collections::BTreeMap;

use super::{duration::GoDuration, error::RenderError, version::Version};
use osm_tenant::settings::{KubeletConfiguration, TenantSettings};

pub(super) mod credential_providers;
pub(super) mod drop_in;
pub mod known;
mod values;

use known::{GateFault, Known};
use values::{
    log_files, log_size, non_negative_age, non_negative_integer, percent, reserved, thresholds,
};

/// The prefix of the annotations. The text between it and the slash is ignored.
const PREFIX: &str = "v1.kubelet-config.machine-controller.kubermatic.io";

/// The prefix of annotations that set a feature gate, whose name follows.
pub const FEATURE_GATES_PREFIX: &str = "v1.kubelet-featuregates.machine-controller.kubermatic.io/";

/// The names of the settings: what follows the slash in an annotation's key.
pub const SETTINGS: [&str; 10] = [
    "ContainerLogMaxFiles",
    "ContainerLogMaxSize",
    "EvictionHard",
    "ImageGCHighThresholdPercent",
    "ImageGCLowThresholdPercent",
    "ImageMaximumGCAge",
    "ImageMinimumGCAge",
    "KubeReserved",
    "MaxPods",
    "SystemReserved",
];

/// The percentages of a disk at which a kubelet stops and begins to remove unused images, if they
/// are not configured.
const IMAGE_GC_LOW_THRESHOLD_DEFAULT: i32 = 80;
const IMAGE_GC_HIGH_THRESHOLD_DEFAULT: i32 = 85;
/// How long a kubelet keeps an unused image if it is not configured, or configured with zero.
const IMAGE_MINIMUM_GC_AGE_DEFAULT: GoDuration = GoDuration::new(120_000_000_000);

/// The signals at which kubelets of our default profiles evict pods. Those that the annotation
/// `EvictionHard` leaves out do not count any more.
const EVICTION_SIGNALS: [&str; 4] = [
    "imagefs.available",
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
];

/// Returns the name of the setting that an annotation's key is for, which may not exist.
pub fn setting(key: &str) -> Option<&str> {
    let rest = key.strip_prefix(PREFIX)?;
    rest.split_once('/').map(|(_, name)| name)
}

/// An annotation with a value that no kubelet accepts, or that it takes otherwise than it seems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The annotation's key.
    pub annotation: String,
    /// What is wrong with the value.
    pub reason: String,
}

impl From<Fault> for RenderError {
    fn from(fault: Fault) -> Self {
        Self::KubeletAnnotation {
            annotation: fault.annotation,
            reason: fault.reason,
        }
    }
}

/// Returns every annotation with a value that no kubelet accepts.
pub fn faults(annotations: &BTreeMap<String, String>) -> Vec<Fault> {
    KubeletSettings::read(annotations).1
}

/// Returns the annotations with which a kubelet of a version does not start: feature gates, and
/// fields of its configuration. They count only where the tenant's settings allow them.
pub fn faults_of_version(annotations: &BTreeMap<String, String>, version: &str) -> Vec<Fault> {
    let settings = TenantSettings {
        kubelet_feature_gates: BTreeMap::new(),
        kubelet_feature_gates_from_annotations: true,
        kubelet: KubeletConfiguration {
            from_annotations: true,
            ..KubeletConfiguration::default()
        },
        ..TenantSettings::default()
    };
    let gates = feature_gates(annotations, &settings, version).err();
    let fields = drop_in::drop_ins(annotations, &settings, version).err();
    let errors = gates.into_iter().chain(fields);
    let faults = errors.filter_map(|error| match error {
        RenderError::FeatureGate { annotation, reason }
        | RenderError::KubeletAnnotation { annotation, reason } => {
            Some(Fault { annotation, reason })
        }
        _ => None,
    });
    faults.collect()
}

/// Returns every annotation with a value that a kubelet takes otherwise than it seems.
pub fn surprises(annotations: &BTreeMap<String, String>) -> Vec<Fault> {
    let settings = KubeletSettings::read(annotations).0;
    let zero = settings.max_pods.filter(|most| *most == 0).map(|_| {
        let reason = "a kubelet takes 0 as its default, 110";
        ("MaxPods", reason.to_owned())
    });
    let own = settings
        .eviction_hard
        .as_ref()
        .filter(|own| !own.is_empty());
    let missing = own.and_then(|own| {
        let missing = EVICTION_SIGNALS.into_iter();
        let missing: Vec<&str> = missing.filter(|it| !own.contains_key(*it)).collect();
        let reason = format!("no pod is evicted any more by {}", missing.join(", "));
        (!missing.is_empty()).then_some(("EvictionHard", reason))
    });
    let found = zero.into_iter().chain(missing);
    let faults = found.filter_map(|(name, reason)| {
        let mut keys = annotations.keys();
        let annotation = keys.rfind(|key| setting(key) == Some(name))?.clone();
        Some(Fault { annotation, reason })
    });
    faults.collect()
}

/// The settings of the kubelet in a machine deployment's annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KubeletSettings {
    pub(super) kube_reserved: Option<BTreeMap<String, String>>,
    pub(super) system_reserved: Option<BTreeMap<String, String>>,
    pub(super) eviction_hard: Option<BTreeMap<String, String>>,
    pub(super) max_pods: Option<i32>,
    pub(super) image_gc_high_threshold_percent: Option<i32>,
    pub(super) image_gc_low_threshold_percent: Option<i32>,
    pub(super) image_minimum_gc_age: Option<GoDuration>,
    pub(super) image_maximum_gc_age: Option<GoDuration>,
    pub(super) container_log_max_size: Option<String>,
    pub(super) container_log_max_files: Option<String>,
}

impl KubeletSettings {
    /// Parses the annotations.
    pub(super) fn parse(annotations: &BTreeMap<String, String>) -> Result<Self, RenderError> {
        let (settings, faults) = Self::read(annotations);
        match faults.into_iter().next() {
            Some(fault) => Err(fault.into()),
            None => Ok(settings),
        }
    }

    fn read(annotations: &BTreeMap<String, String>) -> (Self, Vec<Fault>) {
        let mut settings = Self::default();
        let mut faults = Vec::new();
        let mut keys = BTreeMap::new();
        let ours = annotations.range(PREFIX.to_owned()..);
        for (key, value) in ours.take_while(|(key, _)| key.starts_with(PREFIX)) {
            let Some(name) = setting(key) else {
                continue;
            };
            keys.insert(name, key);
            if let Err(reason) = settings.set(name, value.trim()) {
                faults.push(Fault {
                    annotation: key.clone(),
                    reason,
                });
            }
        }
        for (name, reason) in settings.conflicts() {
            let key = keys.get(name).copied().cloned();
            faults.extend(key.map(|annotation| Fault { annotation, reason }));
        }
        (settings, faults)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "KubeReserved" => self.kube_reserved = Some(reserved(value)?),
            "SystemReserved" => self.system_reserved = Some(reserved(value)?),
            "EvictionHard" => self.eviction_hard = Some(thresholds(value)?),
            "MaxPods" => self.max_pods = Some(non_negative_integer("maxPods", value)?),
            "ImageGCHighThresholdPercent" => {
                self.image_gc_high_threshold_percent =
                    Some(percent("imageGCHighThresholdPercent", value)?);
            }
            "ImageGCLowThresholdPercent" => {
                self.image_gc_low_threshold_percent =
                    Some(percent("imageGCLowThresholdPercent", value)?);
            }
            "ImageMinimumGCAge" => {
                self.image_minimum_gc_age = Some(non_negative_age("imageMinimumGCAge", value)?);
            }
            "ImageMaximumGCAge" => {
                self.image_maximum_gc_age = Some(non_negative_age("imageMaximumGCAge", value)?);
            }
            "ContainerLogMaxSize" => self.container_log_max_size = Some(log_size(value)?),
            "ContainerLogMaxFiles" => self.container_log_max_files = Some(log_files(value)?),
            _ => {}
        }
        Ok(())
    }

    /// Returns the settings that a kubelet refuses beside another one, each with the reason.
    fn conflicts(&self) -> Vec<(&'static str, String)> {
        let mut conflicts = Vec::new();
        let (low, high) = (
            self.image_gc_low_threshold_percent,
            self.image_gc_high_threshold_percent,
        );
        let least = low.unwrap_or(IMAGE_GC_LOW_THRESHOLD_DEFAULT);
        let most = high.unwrap_or(IMAGE_GC_HIGH_THRESHOLD_DEFAULT);
        if least >= most {
            conflicts.push(if low.is_some() {
                let reason =
                    format!("{least} must be less than ImageGCHighThresholdPercent, {most}");
                ("ImageGCLowThresholdPercent", reason)
            } else {
                let reason =
                    format!("{most} must be more than ImageGCLowThresholdPercent, {least}");
                ("ImageGCHighThresholdPercent", reason)
            });
        }
        if let Some(maximum) = self.image_maximum_gc_age {
            let minimum = self.image_minimum_gc_age;
            let minimum = minimum.filter(|minimum| minimum.nanoseconds() > 0);
            let minimum = minimum.unwrap_or(IMAGE_MINIMUM_GC_AGE_DEFAULT);
            if maximum.nanoseconds() > 0 && maximum.nanoseconds() <= minimum.nanoseconds() {
                let reason = format!("{maximum} must be greater than ImageMinimumGCAge, {minimum}");
                conflicts.push(("ImageMaximumGCAge", reason));
            }
        }
        conflicts
    }
}

/// Returns the tenant's feature gates, overlaid by those of the annotations if the tenant allows
/// that. The kubelet must start with all of them.
pub(super) fn feature_gates(
    annotations: &BTreeMap<String, String>,
    settings: &TenantSettings,
    version: &str,
) -> Result<BTreeMap<String, bool>, RenderError> {
    let own = if settings.kubelet_feature_gates_from_annotations {
        annotated_gates(annotations)?
    } else {
        BTreeMap::new()
    };
    let mut gates = settings.kubelet_feature_gates.clone();
    gates.extend(own.iter().map(|(name, is_on)| (name.clone(), *is_on)));
    let Some(known) = Known::of(version) else {
        return Ok(gates);
    };
    let Some(GateFault { gate, problem }) = known.refuses(&gates) else {
        return Ok(gates);
    };
    let reason = format!("kubelet 1.{} {problem}", known.minor());
    Err(if own.contains_key(&gate) {
        let annotation = format!("{FEATURE_GATES_PREFIX}{gate}");
        RenderError::FeatureGate { annotation, reason }
    } else {
        RenderError::TenantFeatureGate { gate, reason }
    })
}

fn annotated_gates(
    annotations: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, bool>, RenderError> {
    let mut gates = BTreeMap::new();
    let ours = annotations.range(FEATURE_GATES_PREFIX.to_owned()..);
    for (annotation, value) in ours {
        let Some(name) = annotation.strip_prefix(FEATURE_GATES_PREFIX) else {
            break;
        };
        let refused = |reason: String| RenderError::FeatureGate {
            annotation: annotation.clone(),
            reason,
        };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            let reason = format!("`{name}` must be a feature gate: letters and digits");
            return Err(refused(reason));
        }
        let is_on = value
            .parse()
            .map_err(|_| refused(format!("{value:?} must be \"true\" or \"false\"")))?;
        gates.insert(name.to_owned(), is_on);
    }
    Ok(gates)
}

/// Returns the kubelet's version for templates: with a `v`, and with all three numbers.
pub(super) fn kubelet_version(text: &str) -> Result<String, RenderError> {
    match Version::parse(text) {
        Some(version) => Ok(format!("v{version}")),
        None => Err(RenderError::KubeletVersion {
            reason: format!("`{text}` is an invalid semantic version"),
        }),
    }
}
