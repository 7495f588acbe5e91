//! Findings from rendering the profile for a sample machine deployment, once for each supported
//! cloud provider.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::{
        kubelet::{MINORS, Unknown, unknown},
        profile::{files, halves, usable_providers},
        rule::Rule,
        sample::{KUBELET_VERSION, Sample},
        user_data::fit,
    },
    FieldFinding, Layers,
    templates::error_finding,
};
use osm_api::{
    config::OperatingSystemConfigSpec,
    profile::{CloudProvider, DeclaredEffect, TemplateLanguage},
};
use osm_render::{Limits, RenderError, Rendered, render, template::CompiledProfile};
use osm_tenant::settings::TenantSettings;

/// The mode bit that lets everybody read a file.
const READ_BY_OTHERS: i32 = 4;

pub(super) fn check(layers: &Layers<'_>) -> Vec<FieldFinding> {
    let Ok(profile) = CompiledProfile::compile(layers.whole) else {
        return Vec::new();
    };
    let mut findings = kubelet_options(layers, &profile);
    let mut written = BTreeSet::new();
    for provider in usable_providers(layers.whole) {
        let found = match render_sample(&profile, provider, KUBELET_VERSION) {
            Ok(rendered) => {
                written.extend(paths(&rendered.config));
                let mut found = readable_secrets(layers, &rendered);
                found.extend(size(layers, rendered));
                found
            }
            Err(error) => vec![FieldFinding {
                rule: Rule::RENDER_FAILED,
                fix: advice(layers, &error).to_owned(),
                ..error_finding(layers, &error)
            }],
        };
        // A finding that is the same for all providers is reported once.
        for finding in found {
            if !findings
                .iter()
                .any(|known| known.message == finding.message)
            {
                findings.push(finding);
            }
        }
    }
    findings.extend(effects_without_file(layers, &written));
    findings
}

/// Returns the paths of the files and units of a machine.
fn paths(config: &OperatingSystemConfigSpec) -> Vec<String> {
    let provisioning = &config.provisioning_config;
    let files = provisioning.files.iter().map(|it| it.path.clone());
    let units = provisioning.units.iter().flat_map(|unit| {
        let path = format!("/etc/systemd/system/{}", unit.name);
        let drop_ins = unit.drop_ins.iter();
        let drop_ins = drop_ins.map(|it| format!("{path}.d/{}", it.name));
        drop_ins.chain([path.clone()]).collect::<Vec<_>>()
    });
    files.chain(units).collect()
}

/// Finds effects of what no sample has. Nothing is known if there is none.
fn effects_without_file(layers: &Layers<'_>, written: &BTreeSet<String>) -> Vec<FieldFinding> {
    let own = layers.own.effects.iter().enumerate();
    let unknown = own.filter(|(_, it)| !written.is_empty() && !written.contains(&it.path));
    let finding = |(index, effect): (usize, &DeclaredEffect)| {
        let field = format!("spec.effects[{index}].path");
        let message = format!("{field}: no file or unit of a machine is {}", effect.path);
        let fix = "write the path as the document has it, or remove the effect";
        FieldFinding::new(Rule::EFFECT_WITHOUT_FILE, &field, message, fix)
    };
    unknown.map(finding).collect()
}

fn render_sample(
    profile: &CompiledProfile,
    cloud_provider: &CloudProvider,
    kubelet: &str,
) -> Result<Rendered, RenderError> {
    let sample = Sample::new(profile.spec(), cloud_provider, kubelet)?;
    let settings = TenantSettings::default();
    render(&sample.input(profile, &settings), &Limits::default())
}

/// Finds what documents tell a kubelet that one of a supported minor does not know.
fn kubelet_options(layers: &Layers<'_>, profile: &CompiledProfile) -> Vec<FieldFinding> {
    let provider = usable_providers(layers.whole).next();
    let mut minors = BTreeMap::<Unknown, Vec<String>>::new();
    for minor in MINORS {
        let version = format!("1.{minor}.0");
        let rendered = provider.map(|provider| render_sample(profile, provider, &version));
        let Some(Ok(rendered)) = rendered else {
            continue;
        };
        for unknown in unknown(&rendered.config, &version) {
            minors
                .entry(unknown)
                .or_default()
                .push(format!("1.{minor}"));
        }
    }
    let findings = minors.into_iter().map(|(unknown, minors)| {
        let message = unknown.sentence(&format!("kubelet {}", minors.join(", ")));
        let fix = "leave it out, or write it for other kubelets alone, by `KubeVersion`";
        FieldFinding::new(Rule::KUBELET_OPTION, layers.below(), message, fix)
    });
    findings.collect()
}

/// Returns what to do about a sample that cannot be rendered.
fn advice(layers: &Layers<'_>, error: &RenderError) -> &'static str {
    match (error, layers.whole.language()) {
        (RenderError::Template { .. }, TemplateLanguage::Jinja) => {
            "test with `is defined`, or set it: `osm render` accepts a tenant's settings"
        }
        (RenderError::Template { .. }, TemplateLanguage::GoTemplate) => {
            "test with `if` or `with` what may be unset, or correct the template"
        }
        _ => "correct it: no machine deployment can use the profile until then",
    }
}

/// Returns the finding about the size of the documents.
fn size(layers: &Layers<'_>, rendered: Rendered) -> Option<FieldFinding> {
    let (rule, message) = match fit(rendered) {
        Ok(documents) => (Rule::DOCUMENT_NEAR_LIMIT, documents.near_limit?),
        Err(error) => (Rule::DOCUMENT_SIZE, error.to_string()),
    };
    let fix = "make its large files smaller";
    Some(FieldFinding::new(rule, layers.below(), message, fix))
}

/// Finds files with a secret that everybody may read. A file contains a secret exactly if its
/// content in the stored config differs from that in the complete config.
fn readable_secrets(layers: &Layers<'_>, rendered: &Rendered) -> Vec<FieldFinding> {
    let files_of = |config: &OperatingSystemConfigSpec| {
        [&config.bootstrap_config, &config.provisioning_config].map(|half| half.files.clone())
    };
    let pairs = files_of(&rendered.config)
        .into_iter()
        .zip(files_of(&rendered.stored_config));
    let mut findings = Vec::new();
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
                findings.push(FieldFinding::new(
                    Rule::SECRET_READABLE,
                    &field,
                    message,
                    fix,
                ));
            }
        }
    }
    findings
}
