//! The linter: finds errors and probable mistakes in a profile's YAML without a cluster, each with
//! its place. Of machine deployments, it checks the annotations.
//!
//! It reports the errors and warnings of `rules::profile` with the same messages. In addition, it
//! compares the YAML with the CRD's schema, compiles the templates, and renders the profile for a
//! sample machine deployment.

use std::sync::Arc;

use kube_core::CustomResourceExt as _;
use serde_json::Value as Json;

use super::{
    annotations::{self, Remark},
    document::{Document, Place},
    profile::{ProfileRefused, Warning, halves, refusals, warnings},
    rule::Rule,
    shape::{Mismatch, MismatchKind, mismatches, schema_of},
};
use osm_api::{
    names::PROFILE_KINDS,
    profile::{
        OperatingSystemProfile, OperatingSystemProfileSpec, TemplateLanguage,
        VERSION_METADATA_JINJA,
    },
};
use osm_render::{default_profiles::default_profile, overlay::resolve};

mod files;
mod rendered;
mod templates;

/// A function that returns a profile by its name.
pub type Find<'a> = dyn Fn(&str) -> Option<Arc<OperatingSystemProfileSpec>> + 'a;

/// An error or a probable mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule that found it.
    pub rule: Rule,
    /// The place in the file.
    pub place: Place,
    /// What is wrong, starting with the field.
    pub message: String,
    /// How to correct it.
    pub fix: String,
}

/// A finding with its field, but without its place in the file.
struct FieldFinding {
    rule: Rule,
    field: String,
    /// The line within the field's text.
    line: Option<usize>,
    message: String,
    fix: String,
}

impl FieldFinding {
    fn new(rule: Rule, field: &str, message: String, fix: impl Into<String>) -> Self {
        Self {
            rule,
            field: field.to_owned(),
            line: None,
            message,
            fix: fix.into(),
        }
    }

    fn at(self, document: &Document) -> Finding {
        let place = match self.line {
            Some(line) => document.line_in(&self.field, line),
            None => document.place(&self.field),
        };
        Finding {
            rule: self.rule,
            place,
            message: self.message,
            fix: self.fix,
        }
    }
}

/// Returns the findings of all profiles and machine deployments in a text, sorted by place. `find`
/// returns the profiles that the profiles extend.
pub fn lint(text: &str, find: &Find<'_>) -> Vec<Finding> {
    let documents = match Document::read_all(text) {
        Ok(documents) => documents,
        Err(malformed) => {
            return vec![Finding {
                rule: Rule::YAML,
                place: malformed.place,
                message: malformed.problem,
                fix: "correct the YAML; nothing else was checked".to_owned(),
            }];
        }
    };
    let profiles = documents.iter().filter(|document| is_profile(document));
    let mut findings: Vec<Finding> = profiles
        .flat_map(|document| lint_document(document, find))
        .collect();
    let machine_deployments = documents.iter().filter(|it| is_machine_deployment(it));
    findings.extend(machine_deployments.flat_map(lint_machine_deployment));
    let is_known = |document| is_profile(document) || is_machine_deployment(document);
    for document in documents.iter().filter(|it| is_known(it)) {
        findings.extend(misread_keys(document).map(|it| it.at(document)));
    }
    if !documents.iter().any(is_known) {
        let first = documents.first();
        findings.push(Finding {
            rule: Rule::NOT_A_PROFILE,
            place: first.map_or(Place::START, |document| document.place("kind")),
            message: "no document is an OperatingSystemProfile or a MachineDeployment".to_owned(),
            fix: "begin with `apiVersion: operatingsystemmanager.k8c.io/v1alpha1` and \
                  `kind: OperatingSystemProfile`"
                .to_owned(),
        });
    }
    findings.sort_by_key(|finding| (finding.place, finding.rule));
    findings.dedup();
    findings
}

/// Returns true if a document is a profile. A document without a kind is one if it has a spec.
pub fn is_profile(document: &Document) -> bool {
    document
        .kind()
        .map_or(document.value.get("spec").is_some(), |kind| {
            PROFILE_KINDS.contains(&kind)
        })
}

fn is_machine_deployment(document: &Document) -> bool {
    document.kind() == Some("MachineDeployment")
}

/// Returns the findings in a machine deployment, none of which quotes what may be secret.
fn lint_machine_deployment(document: &Document) -> Vec<Finding> {
    let Ok(decoded) = serde_json::from_value(document.value.clone()) else {
        let message = "the machine deployment has a field of the wrong type".to_owned();
        let fix = "write annotations and the kubelet's version in quotes, and numbers without";
        let finding = FieldFinding::new(Rule::WRONG_TYPE, "kind", message, fix);
        return vec![finding.at(document)];
    };
    let finding = |remark: Remark| {
        FieldFinding::new(remark.rule, &remark.field, remark.message, remark.fix).at(document)
    };
    annotations::remarks(&decoded)
        .into_iter()
        .map(finding)
        .collect()
}

fn lint_document(document: &Document, find: &Find<'_>) -> Vec<Finding> {
    let mut findings = check_object(&document.value);
    let mut found = mismatches(
        &schema_of(OperatingSystemProfile::crd()),
        &document.value,
        "",
    );
    // The rule of the version says more.
    let is_beyond = |it: &Mismatch| matches!(it.kind, MismatchKind::Refused { .. });
    found.retain(|it| it.path != "spec.version" || !is_beyond(it));
    // Unknown fields, which the API server drops, and values beyond their limits do not prevent
    // decoding; other mismatches do.
    let is_refused =
        |it: &Mismatch| !is_beyond(it) && !matches!(it.kind, MismatchKind::UnknownField { .. });
    let is_whole = !found.iter().any(is_refused);
    findings.extend(
        found
            .into_iter()
            .map(|mismatch| mismatch_finding(document, mismatch)),
    );
    let spec = document.value.get("spec").cloned().unwrap_or_default();
    if is_whole && let Ok(spec) = serde_json::from_value::<OperatingSystemProfileSpec>(spec) {
        let name = document.value.pointer("/metadata/name");
        let name = name.and_then(Json::as_str).unwrap_or_default();
        findings.extend(check_required(&document.value, &spec));
        findings.extend(lint_spec(name, &spec, find));
        findings.extend(files::octal_permissions(document, &spec));
    }
    findings.into_iter().map(|it| it.at(document)).collect()
}

/// Returns a sentence for each finding in a profile that matches the schema, with how to correct
/// it, but without a place. Only default profiles are known as bases: whether another base exists
/// is not reported, because that depends on the namespace.
pub fn remarks(name: &str, spec: &OperatingSystemProfileSpec) -> Vec<String> {
    let find = |name: &str| default_profile(name).map(|profile| Arc::new(profile.spec));
    let findings = lint_spec(name, spec, &find).into_iter();
    findings
        .filter(|it| it.rule != Rule::OVERLAY)
        .map(|it| format!("{}; {}", it.message, it.fix))
        .collect()
}

/// Returns all compiler errors of a profile's templates.
pub(super) fn compile_errors(spec: &OperatingSystemProfileSpec) -> Vec<String> {
    let layers = Layers {
        own: spec,
        whole: spec,
    };
    let findings = templates::check(&layers).into_iter();
    findings.map(|it| it.message).collect()
}

/// Returns the findings in a profile that matches the schema.
fn lint_spec(name: &str, spec: &OperatingSystemProfileSpec, find: &Find<'_>) -> Vec<FieldFinding> {
    // What an overlay leaves out comes from its base.
    let is_own = |refused: &ProfileRefused| {
        spec.extends.is_none() || *refused != ProfileRefused::IgnitionVersion
    };
    let mut findings: Vec<FieldFinding> = refusals(spec)
        .into_iter()
        .filter(is_own)
        .map(|refused| refusal_finding(spec, refused))
        .collect();
    let is_own = |warning: &Warning| spec.extends.is_none() || *warning != Warning::NoCloudProvider;
    findings.extend(
        warnings(spec)
            .into_iter()
            .filter(is_own)
            .map(warning_finding),
    );
    if spec.template_language == Some(TemplateLanguage::GoTemplate) && spec.is_jinja_by_version() {
        let field = "spec.templateLanguage";
        let message =
            format!("{field}: it is GoTemplate, and spec.version says `+{VERSION_METADATA_JINJA}`");
        let fix = "correct one of them";
        findings.push(FieldFinding::new(
            Rule::LANGUAGE_CONFLICT,
            field,
            message,
            fix,
        ));
    }
    findings.extend(files::check(spec));
    match resolve(name, spec, find) {
        Ok(whole) => findings.extend(lint_whole(&Layers {
            own: spec,
            whole: &whole,
        })),
        Err(error) => {
            let fix =
                "pass the profile that it extends with --base, unless it is a default profile";
            findings.push(FieldFinding::new(
                Rule::OVERLAY,
                "spec.extends",
                error.to_string(),
                fix,
            ));
        }
    }
    findings
}

/// A profile as it is written, and merged with what it extends.
struct Layers<'a> {
    own: &'a OperatingSystemProfileSpec,
    whole: &'a OperatingSystemProfileSpec,
}

impl Layers<'_> {
    /// Returns the field for findings in parts that this profile does not contain itself.
    fn below(&self) -> &'static str {
        match self.own.extends {
            Some(_) => "spec.extends",
            None => "spec",
        }
    }
}

fn lint_whole(layers: &Layers<'_>) -> Vec<FieldFinding> {
    let mut findings = templates::check(layers);
    let compiles = findings.is_empty();
    findings.extend(templates::unused(layers));
    if compiles {
        findings.extend(templates::misspelt(layers));
        findings.extend(rendered::check(layers));
    }
    findings
}

/// Finds missing fields that only a profile that extends another may leave out.
fn check_required(value: &Json, spec: &OperatingSystemProfileSpec) -> Vec<FieldFinding> {
    let fields = [
        "supportedCloudProviders",
        "bootstrapConfig",
        "provisioningConfig",
    ];
    let is_missing =
        |name: &&str| spec.extends.is_none() && value.pointer(&format!("/spec/{name}")).is_none();
    let finding = |name| {
        let field = format!("spec.{name}");
        let message = format!("{field}: it is missing");
        FieldFinding::new(
            Rule::MISSING_FIELD,
            &field,
            message,
            "add it, or extend a profile that has it",
        )
    };
    fields.into_iter().filter(is_missing).map(finding).collect()
}

fn check_object(value: &Json) -> Vec<FieldFinding> {
    let mut findings = Vec::new();
    let expected: [(&str, &[&str]); 2] = [
        ("apiVersion", &["operatingsystemmanager.k8c.io/v1alpha1"]),
        ("kind", &PROFILE_KINDS),
    ];
    for (name, expected) in expected {
        let found = value.get(name).and_then(Json::as_str);
        if let Some(first) = expected.first()
            && !found.is_some_and(|found| expected.contains(&found))
        {
            let message = format!("{name}: it is not `{first}`");
            let fix = format!("write `{name}: {first}`");
            findings.push(FieldFinding::new(Rule::NOT_A_PROFILE, name, message, fix));
        }
    }
    let name = value.pointer("/metadata/name").and_then(Json::as_str);
    if name.is_none_or(str::is_empty) {
        let message = "metadata.name: it is missing".to_owned();
        let fix = "name the profile, such as osp-example";
        findings.push(FieldFinding::new(
            Rule::NOT_A_PROFILE,
            "metadata.name",
            message,
            fix,
        ));
    }
    findings
}

/// Returns the differences between a document and the schema of its kind. A value is quoted only if
/// the schema lists the allowed values.
pub fn lint_shape(document: &Document, schema: &Json) -> Vec<Finding> {
    let found = mismatches(schema, &document.value, "").into_iter();
    let found = found.map(|mismatch| mismatch_finding(document, mismatch));
    let found = found.chain(misread_keys(document));
    found.map(|it| it.at(document)).collect()
}

fn misread_keys(document: &Document) -> impl Iterator<Item = FieldFinding> {
    document.misread_keys().map(|(field, read)| {
        let message = format!("{field}: kubectl reads this key as `{read}`");
        FieldFinding::new(Rule::MISREAD_KEY, field, message, "put the key in quotes")
    })
}

fn mismatch_finding(document: &Document, mismatch: Mismatch) -> FieldFinding {
    let (message, fix) = mismatch.sentences();
    let field = mismatch.path;
    match mismatch.kind {
        MismatchKind::WrongType { .. } if files::is_octal(document, &field) => {
            files::octal_finding(document, &field)
        }
        MismatchKind::WrongType { expected } => {
            let fix = match (expected.as_str(), document.written(&field)) {
                ("string", Some(_)) => "put it in quotes".to_owned(),
                _ => fix,
            };
            FieldFinding::new(Rule::WRONG_TYPE, &field, message, fix)
        }
        MismatchKind::UnknownField { .. } => {
            FieldFinding::new(Rule::UNKNOWN_FIELD, &field, message, fix)
        }
        MismatchKind::WrongValue { .. } | MismatchKind::Refused { .. } => {
            FieldFinding::new(Rule::WRONG_VALUE, &field, message, fix)
        }
        MismatchKind::Missing => FieldFinding::new(Rule::MISSING_FIELD, &field, message, fix),
    }
}

fn refusal_finding(spec: &OperatingSystemProfileSpec, refused: ProfileRefused) -> FieldFinding {
    let message = refused.to_string();
    match refused {
        ProfileRefused::Units(_) => {
            let mut halves = halves(spec).into_iter();
            let half = halves.find(|(_, config)| !config.units.is_empty());
            let field = half.map_or("spec".to_owned(), |(half, _)| format!("{half}.units"));
            let fix = format!("remove {field}, and write each unit as a file");
            FieldFinding::new(Rule::UNITS_UNSUPPORTED, &field, message, fix)
        }
        ProfileRefused::IgnitionVersion => {
            let field = "spec.ignitionVersion";
            FieldFinding::new(Rule::IGNITION_VERSION, field, message, "remove it")
        }
        ProfileRefused::NoContent { field } => {
            let fix = "write `inline: {data: \"\"}` for an empty file";
            FieldFinding::new(Rule::MISSING_INLINE, &field, message, fix)
        }
        ProfileRefused::Version { .. } | ProfileRefused::SameVersion => FieldFinding::new(
            Rule::VERSION,
            "spec.version",
            message,
            "write one such as v1.2.3",
        ),
    }
}

fn warning_finding(warning: Warning) -> FieldFinding {
    let message = warning.to_string();
    match warning {
        Warning::DuplicatePath { field, .. } => FieldFinding::new(
            Rule::DUPLICATE_PATH,
            &field,
            message,
            "remove one of the two",
        ),
        Warning::RelativePath { field } => FieldFinding::new(
            Rule::RELATIVE_PATH,
            &field,
            message,
            "begin the path with a slash",
        ),
        Warning::Permissions { field, .. } => {
            let fix = "write the octal digits as they are, without a leading zero";
            FieldFinding::new(Rule::PERMISSIONS, &field, message, fix)
        }
        Warning::NoCloudProvider => {
            let field = "spec.supportedCloudProviders";
            FieldFinding::new(
                Rule::NO_CLOUD_PROVIDER,
                field,
                message,
                "name at least one provider",
            )
        }
        Warning::Unknown { field, nearest, .. } => {
            let fix = nearest.map_or_else(
                || "remove it, unless another version of the manager reads the profile".to_owned(),
                |nearest| format!("write `{nearest}`"),
            );
            FieldFinding::new(Rule::UNKNOWN_NAME, &field, message, fix)
        }
        Warning::VersionPrefix { prefix } => {
            let fix = format!("remove `{prefix}`");
            FieldFinding::new(Rule::VERSION_PREFIX, "spec.version", message, fix)
        }
        Warning::LanguageNotInVersion => {
            let fix = format!("append `+{VERSION_METADATA_JINJA}` to the version");
            FieldFinding::new(Rule::LANGUAGE_NOT_IN_VERSION, "spec.version", message, fix)
        }
    }
}

#[cfg(test)]
mod tests;
