//! What a render for a sample machine deployment shows, on each cloud provider that the profile
//! supports.

use super::{
    super::{
        profile::{files, halves},
        sample::{KUBELET_VERSION, Sample},
        user_data::fit,
    },
    Layers, Rule, Told,
    templates::tell,
};
use crate::api::{config::OperatingSystemConfigSpec, profile::CloudProvider};
use crate::render::{Limits, RenderError, Rendered, render, template::CompiledProfile};
use crate::tenant::settings::TenantSettings;

/// The bit of a mode that lets everybody read.
const READ_BY_OTHERS: i32 = 4;

pub(super) fn check(layers: &Layers<'_>) -> Vec<Told> {
    let Ok(profile) = CompiledProfile::compile(layers.whole) else {
        return Vec::new();
    };
    let mut told: Vec<Told> = Vec::new();
    for provider in &layers.whole.supported_cloud_providers {
        let found = match render_sample(&profile, provider.name) {
            Ok(rendered) => {
                let mut found = readable_secrets(layers, &rendered);
                found.extend(size(layers, rendered));
                found
            }
            Err(error) => vec![Told {
                rule: Rule::RENDER_FAILED,
                fix: "test with `is defined`, or set it: `osm render` takes what a tenant sets"
                    .to_owned(),
                ..tell(layers, &error)
            }],
        };
        // What holds on every provider is told once.
        for finding in found {
            if !told.iter().any(|known| known.message == finding.message) {
                told.push(finding);
            }
        }
    }
    told
}

fn render_sample(
    profile: &CompiledProfile,
    cloud_provider: CloudProvider,
) -> Result<Rendered, RenderError> {
    let sample = Sample::new(profile.spec(), cloud_provider, KUBELET_VERSION)?;
    let settings = TenantSettings::default();
    render(&sample.input(profile, &settings), &Limits::default())
}

/// What is said of the size of the documents.
fn size(layers: &Layers<'_>, rendered: Rendered) -> Option<Told> {
    let (rule, message) = match fit(rendered) {
        Ok(fitting) => (Rule::DOCUMENT_NEAR_LIMIT, fitting.near_limit?),
        Err(error) => (Rule::DOCUMENT_SIZE, error.to_string()),
    };
    let fix = "move what is large to spec.provisioningConfig, or compress it by `encoding: gzip`";
    Some(Told::new(rule, layers.below(), message, fix))
}

/// The stored config differs from the whole one exactly where a secret stands.
fn readable_secrets(layers: &Layers<'_>, rendered: &Rendered) -> Vec<Told> {
    let files_of = |config: &OperatingSystemConfigSpec| {
        [&config.bootstrap_config, &config.provisioning_config].map(|half| half.files.clone())
    };
    let pairs = files_of(&rendered.config)
        .into_iter()
        .zip(files_of(&rendered.stored_config));
    let mut told = Vec::new();
    for ((half, config), (whole, stored)) in halves(layers.own).into_iter().zip(pairs) {
        let fields = files(half, config);
        for (file, stored) in whole.iter().zip(&stored) {
            if file.content != stored.content && (file.permissions % 10) & READ_BY_OTHERS != 0 {
                let own = fields.iter().find(|(_, own)| own.path == file.path);
                let field = own.map_or(layers.below().to_owned(), |(field, _)| {
                    format!("{field}.permissions")
                });
                let (mode, path) = (file.permissions, &file.path);
                let message = format!("{field}: {mode} lets everybody read the secret in {path}");
                let fix = "write 600, or 700 for a script";
                told.push(Told::new(Rule::SECRET_READABLE, &field, message, fix));
            }
        }
    }
    told
}
