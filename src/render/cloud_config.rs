//! The configuration of a cloud provider in the kubelet itself, which kubelets before 1.29 read.
//!
//! Newer kubelets, and clusters with an external cloud provider, have none. Of the formats of old
//! only the one for AWS is kept: it takes nothing but names from the machine deployment. The others
//! hold credentials; where one of them would be needed, `overwriteCloudConfig` gives it.

use serde_json::Value;

use super::{error::RenderError, input::ProviderConfig, version::Version};
use crate::api::profile::CloudProvider;

/// The first kubelet without cloud providers of its own.
const FIRST_WITHOUT: (u64, u64) = (1, 29);

/// What the kubelet's cloud provider is configured with, if the machine deployment does not say.
///
/// # Errors
///
/// If the kubelet is old enough to need a configuration that is not known here.
pub(super) fn legacy(
    provider: &ProviderConfig,
    cloud_provider: &CloudProvider,
    kube_version: &str,
) -> Result<String, RenderError> {
    let is_new = Version::parse(kube_version)
        .is_none_or(|version| (version.major, version.minor) >= FIRST_WITHOUT);
    if is_new {
        return Ok(String::new());
    }
    match cloud_provider {
        CloudProvider::Aws => aws(&provider.cloud_provider_spec),
        CloudProvider::Azure
        | CloudProvider::Gce
        | CloudProvider::KubeVirt
        | CloudProvider::OpenStack
        | CloudProvider::VSphere => Err(RenderError::CloudConfig {
            reason: format!(
                "a kubelet before 1.29 needs the configuration of {}; set `overwriteCloudConfig`, \
                 or use an external cloud provider",
                cloud_provider.as_str()
            ),
        }),
        _ => Ok(String::new()),
    }
}

fn aws(spec: &Value) -> Result<String, RenderError> {
    let mut out = "[global]\n".to_owned();
    for (key, field) in [
        ("Zone", "availabilityZone"),
        ("VPC", "vpcId"),
        ("SubnetID", "subnetId"),
    ] {
        out.push_str(key);
        out.push('=');
        push_quoted(&mut out, text(spec, field)?);
        out.push('\n');
    }
    Ok(out)
}

/// A value of the provider's settings, which may stand in an object by itself.
fn text<'v>(spec: &'v Value, field: &str) -> Result<&'v str, RenderError> {
    let found = spec.get(field).unwrap_or(&Value::Null);
    match found.get("value").unwrap_or(found) {
        Value::Null if found.is_null() => Ok(""),
        Value::String(text) if found.is_string() || is_alone(found) => Ok(text),
        _ => Err(RenderError::CloudConfig {
            reason: format!(
                "a kubelet before 1.29 needs `cloudProviderSpec.{field}` as a text; set it, or \
                 `overwriteCloudConfig`"
            ),
        }),
    }
}

/// Whether a value refers to no Secret or `ConfigMap`, which would come first.
fn is_alone(value: &Value) -> bool {
    let is_set = |name| {
        value
            .get(name)
            .is_some_and(|reference| !reference.is_null())
    };
    !["secretKeyRef", "configMapKeyRef"].into_iter().any(is_set)
}

fn push_quoted(out: &mut String, text: &str) {
    out.push('"');
    out.push_str(&text.replace('\\', "\\\\").replace('"', "\\\""));
    out.push('"');
}
