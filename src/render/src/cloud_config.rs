//! The configuration of a cloud provider in the kubelet itself, which kubelets before 1.29 read.
//!
//! Newer kubelets, and clusters with an external cloud provider, have none. Of the former formats
//! only the one for AWS is supported: it contains only names from the machine deployment. The
//! others contain credentials. Where one of them is needed, `overwriteCloudConfig` must contain it.

use serde_json::Value;

use super::{error::RenderError, input::ProviderConfig, version::Version};
use osm_api::profile::CloudProvider;

/// The first kubelet version without built-in cloud providers.
const FIRST_WITHOUT: (u64, u64) = (1, 29);

/// Returns the configuration of the kubelet's cloud provider, if the machine deployment does not
/// contain one.
///
/// # Errors
///
/// Returns an error if the kubelet is old enough to need a configuration that is not supported.
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

/// Returns a value of the provider's settings. It may be wrapped in an object.
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

/// Returns true if a value refers to no Secret or `ConfigMap`, which would take precedence.
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
