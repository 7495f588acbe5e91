//! What is wrong with a profile's YAML, finding by finding, each with its place: everything that a
//! cluster would say, and what probably is a mistake, before any cluster sees it.
//!
//! It says what `rules::profile` says in the same words, and adds the shape of the YAML, what a
//! compiler of the templates finds, and what a render with a sample shows.

use std::sync::Arc;

use kube::CustomResourceExt as _;
use serde_json::Value as Json;

use super::{
    document::{Document, Place},
    profile::{ProfileRefused, Warning, halves, refusals, warnings},
    shape::{Mismatch, MismatchKind, mismatches, schema_of},
};
use crate::api::profile::{
    OperatingSystemProfile, OperatingSystemProfileSpec, TemplateLanguage, VERSION_METADATA_JINJA,
};
use crate::render::{default_profiles::default_profile, overlay::resolve};

mod files;
mod rendered;
mod rule;
mod templates;

pub use rule::{Rule, Severity};

/// Gives a profile by its name.
pub type Find<'a> = dyn Fn(&str) -> Option<Arc<OperatingSystemProfileSpec>> + 'a;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// Where.
    pub place: Place,
    /// What is wrong, with the field.
    pub message: String,
    /// What to do about it.
    pub fix: String,
}

/// A finding that knows its field, and not its place yet.
struct Told {
    rule: Rule,
    field: String,
    /// The line in the field's text.
    line: Option<usize>,
    message: String,
    fix: String,
}

impl Told {
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

/// Judges all profiles of a text, in the order of their places. What they extend is asked of
/// `find`.
pub fn lint(text: &str, find: &Find<'_>) -> Vec<Finding> {
    let documents = match Document::read_all(text) {
        Ok(documents) => documents,
        Err(malformed) => {
            return vec![Finding {
                rule: Rule::YAML,
                place: malformed.place,
                message: malformed.problem,
                fix: "correct the YAML; nothing else was looked at".to_owned(),
            }];
        }
    };
    let profiles = documents.iter().filter(|document| is_profile(document));
    let mut findings: Vec<Finding> = profiles
        .flat_map(|document| lint_document(document, find))
        .collect();
    if !documents.iter().any(is_profile) {
        let first = documents.first();
        findings.push(Finding {
            rule: Rule::NOT_A_PROFILE,
            place: first.map_or(Place::START, |document| document.place("kind")),
            message: "no document is an OperatingSystemProfile".to_owned(),
            fix: "begin with `apiVersion: operatingsystemmanager.k8c.io/v1alpha1` and \
                  `kind: OperatingSystemProfile`"
                .to_owned(),
        });
    }
    findings.sort_by_key(|finding| (finding.place, finding.rule));
    findings.dedup();
    findings
}

/// Whether a document is a profile. One that lacks its kind, but has a spec, is meant to be one.
fn is_profile(document: &Document) -> bool {
    let kind = document.value.get("kind").and_then(Json::as_str);
    kind.map_or(document.value.get("spec").is_some(), |kind| {
        kind == "OperatingSystemProfile"
    })
}

fn lint_document(document: &Document, find: &Find<'_>) -> Vec<Finding> {
    let mut told = check_object(&document.value);
    let found = mismatches(
        &schema_of(OperatingSystemProfile::crd()),
        &document.value,
        "",
    );
    // What the API server refuses cannot be decoded; what it drops can.
    let is_refused =
        |mismatch: &Mismatch| !matches!(mismatch.kind, MismatchKind::UnknownField { .. });
    let is_whole = !found.iter().any(is_refused);
    told.extend(
        found
            .into_iter()
            .map(|mismatch| tell_mismatch(document, mismatch)),
    );
    let spec = document.value.get("spec").cloned().unwrap_or_default();
    if is_whole && let Ok(spec) = serde_json::from_value::<OperatingSystemProfileSpec>(spec) {
        let name = document.value.pointer("/metadata/name");
        let name = name.and_then(Json::as_str).unwrap_or_default();
        told.extend(check_required(&document.value, &spec));
        told.extend(lint_spec(name, &spec, find));
        told.extend(files::octal_permissions(document, &spec));
    }
    told.into_iter().map(|told| told.at(document)).collect()
}

/// What is wrong with a profile of the right shape, of which there is no text to point at: each a
/// sentence with what to do about it. A profile that extends another is judged as if that one were
/// a default profile; only its namespace knows whether it exists.
pub fn remarks(name: &str, spec: &OperatingSystemProfileSpec) -> Vec<String> {
    let find = |name: &str| default_profile(name).map(|profile| Arc::new(profile.spec));
    let told = lint_spec(name, spec, &find).into_iter();
    told.filter(|told| told.rule != Rule::OVERLAY)
        .map(|told| format!("{}; {}", told.message, told.fix))
        .collect()
}

/// Why the templates of a profile cannot be compiled: all of it, in the compiler's words.
pub(super) fn compile_errors(spec: &OperatingSystemProfileSpec) -> Vec<String> {
    let layers = Layers {
        own: spec,
        whole: spec,
    };
    let told = templates::check(&layers).into_iter();
    told.map(|told| told.message).collect()
}

/// Judges a profile that has the right shape.
fn lint_spec(name: &str, spec: &OperatingSystemProfileSpec, find: &Find<'_>) -> Vec<Told> {
    // What an overlay leaves out is its base's.
    let is_own = |refused: &ProfileRefused| {
        spec.extends.is_none() || *refused != ProfileRefused::IgnitionVersion
    };
    let mut told: Vec<Told> = refusals(spec)
        .into_iter()
        .filter(is_own)
        .map(|refused| tell_refusal(spec, refused))
        .collect();
    let is_own = |warning: &Warning| spec.extends.is_none() || *warning != Warning::NoCloudProvider;
    told.extend(warnings(spec).into_iter().filter(is_own).map(tell_warning));
    if spec.template_language == Some(TemplateLanguage::GoTemplate) && spec.is_jinja_by_version() {
        let field = "spec.templateLanguage";
        let message =
            format!("{field}: it is GoTemplate, and spec.version says `+{VERSION_METADATA_JINJA}`");
        let fix = "correct the one that is wrong";
        told.push(Told::new(Rule::LANGUAGE_CONFLICT, field, message, fix));
    }
    told.extend(files::check(spec));
    match resolve(name, spec, find) {
        Ok(whole) => told.extend(lint_whole(&Layers {
            own: spec,
            whole: &whole,
        })),
        Err(error) => {
            let fix = "give what it extends by --base, if it is no default profile";
            told.push(Told::new(
                Rule::OVERLAY,
                "spec.extends",
                error.to_string(),
                fix,
            ));
        }
    }
    told
}

/// A profile as it is written, and laid over what it extends.
struct Layers<'a> {
    own: &'a OperatingSystemProfileSpec,
    whole: &'a OperatingSystemProfileSpec,
}

impl Layers<'_> {
    /// The field to blame for what is not of this profile's own.
    fn below(&self) -> &'static str {
        match self.own.extends {
            Some(_) => "spec.extends",
            None => "spec",
        }
    }
}

fn lint_whole(layers: &Layers<'_>) -> Vec<Told> {
    let mut told = templates::check(layers);
    let compiles = told.is_empty();
    told.extend(templates::unused(layers));
    if compiles {
        told.extend(rendered::check(layers));
    }
    told
}

/// What only a profile that extends another may leave out.
fn check_required(value: &Json, spec: &OperatingSystemProfileSpec) -> Vec<Told> {
    let fields = [
        "supportedCloudProviders",
        "bootstrapConfig",
        "provisioningConfig",
    ];
    let is_missing =
        |name: &&str| spec.extends.is_none() && value.pointer(&format!("/spec/{name}")).is_none();
    let tell = |name| {
        let field = format!("spec.{name}");
        let message = format!("{field}: it is missing");
        Told::new(
            Rule::MISSING_FIELD,
            &field,
            message,
            "add it, or extend a profile that has it",
        )
    };
    fields.into_iter().filter(is_missing).map(tell).collect()
}

fn check_object(value: &Json) -> Vec<Told> {
    let mut told = Vec::new();
    let expected = [
        "operatingsystemmanager.k8c.io/v1alpha1",
        "OperatingSystemProfile",
    ];
    for (name, expected) in ["apiVersion", "kind"].into_iter().zip(expected) {
        if value.get(name).and_then(Json::as_str) != Some(expected) {
            let message = format!("{name}: it is not `{expected}`");
            let fix = format!("write `{name}: {expected}`");
            told.push(Told::new(Rule::NOT_A_PROFILE, name, message, fix));
        }
    }
    let name = value.pointer("/metadata/name").and_then(Json::as_str);
    if name.is_none_or(str::is_empty) {
        let message = "metadata.name: it is missing".to_owned();
        let fix = "name the profile, such as osp-example";
        told.push(Told::new(
            Rule::NOT_A_PROFILE,
            "metadata.name",
            message,
            fix,
        ));
    }
    told
}

/// Where a document differs from the schema of its kind. Values are quoted where the schema lists
/// what is allowed, and nowhere else.
pub fn lint_shape(document: &Document, schema: &Json) -> Vec<Finding> {
    mismatches(schema, &document.value, "")
        .into_iter()
        .map(|mismatch| tell_mismatch(document, mismatch).at(document))
        .collect()
}

fn tell_mismatch(document: &Document, mismatch: Mismatch) -> Told {
    let field = mismatch.path;
    match mismatch.kind {
        MismatchKind::UnknownField { similar } => Told::new(
            Rule::UNKNOWN_FIELD,
            &field,
            format!("{field}: no such field exists, and the API server would drop it"),
            similar.map_or("remove it".to_owned(), |name| {
                format!("did you mean `{name}`?")
            }),
        ),
        MismatchKind::WrongType { .. } if files::is_octal(document, &field) => {
            files::tell_octal(document, &field)
        }
        MismatchKind::WrongType { expected } => {
            let hint = match (expected.as_str(), document.written(&field)) {
                ("string", Some(_)) => "put it in quotes".to_owned(),
                _ => format!("write a value of type {expected}"),
            };
            let message = format!("{field}: the value is not of type {expected}");
            Told::new(Rule::WRONG_TYPE, &field, message, hint)
        }
        MismatchKind::WrongValue { allowed } => {
            let written = document.written(&field).unwrap_or("the value");
            Told::new(
                Rule::WRONG_VALUE,
                &field,
                format!("{field}: `{written}` is not allowed"),
                format!("write one of {}", allowed.join(", ")),
            )
        }
        MismatchKind::Missing => {
            let message = format!("{field}: it is missing");
            Told::new(Rule::MISSING_FIELD, &field, message, "add it")
        }
    }
}

fn tell_refusal(spec: &OperatingSystemProfileSpec, refused: ProfileRefused) -> Told {
    let message = refused.to_string();
    match refused {
        ProfileRefused::Units(_) => {
            let mut halves = halves(spec).into_iter();
            let half = halves.find(|(_, config)| !config.units.is_empty());
            let field = half.map_or("spec".to_owned(), |(half, _)| format!("{half}.units"));
            let fix = format!("remove {field}, and write each unit as a file");
            Told::new(Rule::UNITS_UNSUPPORTED, &field, message, fix)
        }
        ProfileRefused::IgnitionVersion => {
            let field = "spec.ignitionVersion";
            Told::new(Rule::IGNITION_VERSION, field, message, "remove it")
        }
        ProfileRefused::NoContent { field } => {
            let fix = "write `inline: {data: \"\"}` for an empty file";
            Told::new(Rule::MISSING_INLINE, &field, message, fix)
        }
        ProfileRefused::Version { .. } | ProfileRefused::SameVersion => Told::new(
            Rule::VERSION,
            "spec.version",
            message,
            "write one such as v1.2.3",
        ),
    }
}

fn tell_warning(warning: Warning) -> Told {
    let message = warning.to_string();
    match warning {
        Warning::DuplicatePath { field, .. } => Told::new(
            Rule::DUPLICATE_PATH,
            &field,
            message,
            "remove one of the two",
        ),
        Warning::RelativePath { field } => Told::new(
            Rule::RELATIVE_PATH,
            &field,
            message,
            "begin the path with a slash",
        ),
        Warning::Permissions { field, .. } => {
            let fix = "write the octal digits as they are, without a leading zero";
            Told::new(Rule::PERMISSIONS, &field, message, fix)
        }
        Warning::NoCloudProvider => {
            let field = "spec.supportedCloudProviders";
            Told::new(
                Rule::NO_CLOUD_PROVIDER,
                field,
                message,
                "name at least one provider",
            )
        }
        Warning::VersionPrefix { prefix } => {
            let fix = format!("remove `{prefix}`");
            Told::new(Rule::VERSION_PREFIX, "spec.version", message, fix)
        }
        Warning::LanguageNotInVersion => {
            let fix = format!("append `+{VERSION_METADATA_JINJA}` to the version");
            Told::new(Rule::LANGUAGE_NOT_IN_VERSION, "spec.version", message, fix)
        }
    }
}

#[cfg(test)]
mod tests;
