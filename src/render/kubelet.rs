//! Settings of the kubelet: its version and the annotations of a machine deployment.

use std::collections::BTreeMap;

use super::{duration::GoDuration, error::RenderError, version::Version};
use crate::tenant::settings::TenantSettings;

/// The prefix of the annotations. What stands between it and the slash is not looked at.
const PREFIX: &str = "v1.kubelet-config.machine-controller.kubermatic.io";

/// The prefix of annotations that set a feature gate, whose name follows.
const FEATURE_GATES_PREFIX: &str = "v1.kubelet-featuregates.machine-controller.kubermatic.io/";

/// What a machine deployment's annotations say about its kubelets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KubeletSettings {
    pub(super) kube_reserved: Option<BTreeMap<String, String>>,
    pub(super) system_reserved: Option<BTreeMap<String, String>>,
    pub(super) eviction_hard: Option<BTreeMap<String, String>>,
    pub(super) max_pods: Option<i32>,
    pub(super) image_gc_high_threshold_percent: Option<i32>,
    pub(super) image_gc_low_threshold_percent: Option<i32>,
    pub(super) image_minimum_gc_age: Option<String>,
    pub(super) image_maximum_gc_age: Option<String>,
    pub(super) container_log_max_size: Option<String>,
    pub(super) container_log_max_files: Option<String>,
}

impl KubeletSettings {
    /// Reads the annotations.
    pub(super) fn parse(annotations: &BTreeMap<String, String>) -> Result<Self, RenderError> {
        let mut settings = Self::default();
        let ours = annotations.range(PREFIX.to_owned()..);
        for (key, value) in ours.take_while(|(key, _)| key.starts_with(PREFIX)) {
            if let Some((_, name)) = key.split_once('/') {
                settings.set(name, value)?;
            }
        }
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), RenderError> {
        match name {
            "KubeReserved" => self.kube_reserved = Some(pairs(value, '=')),
            "SystemReserved" => self.system_reserved = Some(pairs(value, '=')),
            "EvictionHard" => self.eviction_hard = Some(pairs(value, '<')),
            "MaxPods" => self.max_pods = Some(integer("MaxPods", "maxPods", value)?),
            "ImageGCHighThresholdPercent" => {
                self.image_gc_high_threshold_percent = Some(integer(
                    "ImageGCHighThresholdPercent",
                    "imageGCHighThresholdPercent",
                    value,
                )?);
            }
            "ImageGCLowThresholdPercent" => {
                self.image_gc_low_threshold_percent = Some(integer(
                    "ImageGCLowThresholdPercent",
                    "imageGCLowThresholdPercent",
                    value,
                )?);
            }
            "ImageMinimumGCAge" => {
                self.image_minimum_gc_age =
                    Some(age("ImageMinimumGCAge", "imageMinimumGCAge", value)?);
            }
            "ImageMaximumGCAge" => {
                self.image_maximum_gc_age =
                    Some(age("ImageMaximumGCAge", "imageMaximumGCAge", value)?);
            }
            "ContainerLogMaxSize" => self.container_log_max_size = Some(value.to_owned()),
            "ContainerLogMaxFiles" => self.container_log_max_files = Some(value.to_owned()),
            _ => {}
        }
        Ok(())
    }
}

/// The tenant's feature gates, with those of the annotations laid over them where the tenant allows
/// it.
pub(super) fn feature_gates(
    annotations: &BTreeMap<String, String>,
    settings: &TenantSettings,
) -> Result<BTreeMap<String, bool>, RenderError> {
    let mut gates = settings.kubelet_feature_gates.clone();
    if !settings.kubelet_feature_gates_from_annotations {
        return Ok(gates);
    }
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

/// The kubelet's version as templates see it: with a `v`, and with all three numbers.
pub(super) fn kubelet_version(text: &str) -> Result<String, RenderError> {
    match Version::parse(text) {
        Some(version) => Ok(format!("v{version}")),
        None => Err(RenderError::KubeletVersion {
            reason: format!("`{text}` is an invalid semantic version"),
        }),
    }
}

/// Nothing is trimmed, and a pair without a separator is skipped.
fn pairs(value: &str, separator: char) -> BTreeMap<String, String> {
    value
        .split(',')
        .filter_map(|pair| pair.split_once(separator))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn integer(annotation: &'static str, field: &str, value: &str) -> Result<i32, RenderError> {
    let digits = value.strip_prefix(['+', '-']).unwrap_or(value);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let problem = if is_number {
        "value out of range"
    } else {
        "invalid syntax"
    };
    value.parse().map_err(|_| RenderError::KubeletAnnotation {
        annotation: annotation.into(),
        reason: format!("parsing {field}: strconv.ParseInt: parsing {value:?}: {problem}"),
    })
}

fn age(annotation: &'static str, field: &str, value: &str) -> Result<String, RenderError> {
    match GoDuration::parse(value) {
        Ok(duration) => Ok(duration.to_string()),
        Err(reason) => Err(RenderError::KubeletAnnotation {
            annotation: annotation.into(),
            reason: format!("parsing {field}: {reason}"),
        }),
    }
}
