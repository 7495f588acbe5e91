//! A profile with one provisioning file.

use osm::api::profile::{OperatingSystemProfileSpec, TemplateLanguage};
use serde_json::json;

/// A profile for Ubuntu whose only file has this template.
pub fn a_profile_of(language: TemplateLanguage, template: &str) -> OperatingSystemProfileSpec {
    let profile = json!({
        "osName": "ubuntu",
        "osVersion": "24.04",
        "version": "v1.0.0",
        "templateLanguage": language,
        "supportedCloudProviders": [],
        "bootstrapConfig": {},
        "provisioningConfig": {"files": [
            {"path": "/f", "content": {"inline": {"data": template}}},
        ]},
    });
    serde_json::from_value(profile).expect("the profile is written above")
}
