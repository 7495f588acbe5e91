//! Findings in a profile's files, units and container runtimes, except for their templates.

use std::{collections::BTreeSet, sync::LazyLock};

use regex::Regex;

use super::{
    super::{
        document::Document,
        profile::{files, halves, is_mode},
        rule::Rule,
    },
    FieldFinding,
};
use osm_api::profile::{
    ENCODING_GZIP, FileContentInline, OperatingSystemProfileSpec, ProfileConfig,
    ProvisioningUtility,
};
use osm_render::encode::Encoding;

/// The mode bit that lets everybody write a file.
const WRITE_BY_OTHERS: i32 = 2;

/// What is left of `https://host/${name}/file` or `https://${name}/file` if the name is replaced
/// with nothing, but no URL in a path or after another one.
static EMPTY_URL_PART: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"https?://(?:/|(?:[^\s"'/,;]+/)*[^\s"'/,;]*[^\s"'/,;:]//)"#;
    Regex::new(pattern).expect("the pattern is valid")
});

/// The mode bits that set the user and the group of who runs a file.
const SET_ID: i32 = 6;

pub(super) fn check(spec: &OperatingSystemProfileSpec) -> Vec<FieldFinding> {
    let mut findings = Vec::new();
    for (half, config) in halves(spec) {
        for (field, file) in files(half, config) {
            let inline = file.content.inline.as_ref();
            let encoding = inline.and_then(|inline| inline.encoding.as_deref());
            if let Some((encoding, fault)) = encoding.and_then(|it| Some((it, fault(spec, it)?))) {
                let field = format!("{field}.content.inline.encoding");
                let message = format!("{field}: machines cannot decode `{encoding}`{fault}");
                let fix = "write `b64` or `gzip`, or leave it out";
                findings.push(FieldFinding::new(
                    Rule::UNKNOWN_ENCODING,
                    &field,
                    message,
                    fix,
                ));
            }
            if inline.is_some_and(|inline| EMPTY_URL_PART.is_match(&inline.data)) {
                let field = format!("{field}.content.inline.data");
                let message = format!("{field}: a URL has an empty part");
                let fix = "if Flux replaces `${…}` in the profile, annotate it with \
                           `kustomize.toolkit.fluxcd.io/substitute: disabled`";
                findings.push(FieldFinding::new(
                    Rule::EMPTY_URL_PART,
                    &field,
                    message,
                    fix,
                ));
            }
            if inline.is_some_and(keeps_carriage_return) {
                let field = format!("{field}.content.inline.data");
                let message = format!(
                    "{field}: the first line ends with a carriage return, which becomes part of \
                     the interpreter's name"
                );
                let fix = "end lines with a line feed alone, as `dos2unix` does";
                findings.push(FieldFinding::new(
                    Rule::CARRIAGE_RETURN,
                    &field,
                    message,
                    fix,
                ));
            }
            if is_mode(file.permissions) && (file.permissions % 10) & WRITE_BY_OTHERS != 0 {
                let field = format!("{field}.permissions");
                let mode = file.permissions;
                let message = format!("{field}: {mode} lets everybody write {}", file.path);
                let fix = "remove the 2 from the last digit, such as 755 for 757";
                findings.push(FieldFinding::new(
                    Rule::WORLD_WRITABLE,
                    &field,
                    message,
                    fix,
                ));
            }
            let sets_id = is_mode(file.permissions) && (file.permissions / 1_000) & SET_ID != 0;
            if sets_id && !is_for_ignition(spec) {
                let field = format!("{field}.permissions");
                let mode = file.permissions;
                let message = format!(
                    "{field}: cloud-init changes the owner after the mode, with which {} loses \
                     the first digit of {mode}",
                    file.path
                );
                let fix = "run `chmod` in `modules.runcmd` or in a hook";
                findings.push(FieldFinding::new(Rule::LOST_MODE, &field, message, fix));
            }
        }
        findings.extend(duplicates(half, config));
    }
    findings
}

/// Returns true if a script's first line ends with a carriage return on the machine. In a document,
/// only an encoded text keeps it.
fn keeps_carriage_return(inline: &FileContentInline) -> bool {
    let first = inline.data.split('\n').next().unwrap_or_default();
    let encoding = inline.encoding.as_deref().unwrap_or_default();
    first.starts_with("#!") && first.ends_with('\r') && ["b64", ENCODING_GZIP].contains(&encoding)
}

/// Returns why a file's encoding is not decoded before the file is written: by cloud-init, or by
/// Ignition, for which the renderer encodes.
fn fault(spec: &OperatingSystemProfileSpec, encoding: &str) -> Option<String> {
    match Encoding::of(encoding) {
        Err(reason) => Some(format!(": {reason}")),
        Ok(Encoding::Unknown) => Some(String::new()),
        Ok(Encoding::Text | Encoding::ByAuthor) if is_for_ignition(spec) => {
            (!encoding.is_empty()).then(String::new)
        }
        Ok(_) => None,
    }
}

fn is_for_ignition(spec: &OperatingSystemProfileSpec) -> bool {
    spec.provisioning_utility == Some(ProvisioningUtility::Ignition)
}

fn duplicates(half: &str, config: &ProfileConfig) -> Vec<FieldFinding> {
    let mut findings = Vec::new();
    let mut units = BTreeSet::new();
    for (index, unit) in config.units.iter().enumerate() {
        if !units.insert(&unit.name) {
            let field = format!("{half}.units[{index}].name");
            let message = format!("{field}: an earlier unit has the name {}, too", unit.name);
            let fix = "remove one of the two";
            findings.push(FieldFinding::new(
                Rule::DUPLICATE_UNIT,
                &field,
                message,
                fix,
            ));
        }
    }
    let mut runtimes = BTreeSet::new();
    for (index, runtime) in config.supported_container_runtimes.iter().enumerate() {
        let field = format!("{half}.supportedContainerRuntimes[{index}]");
        if !runtimes.insert(format!("{:?}", runtime.name)) {
            let message = format!("{field}.name: the runtime is listed already");
            let fix = "move its files to the first entry";
            findings.push(FieldFinding::new(
                Rule::DUPLICATE_RUNTIME,
                &field,
                message,
                fix,
            ));
        }
        for name in runtime.templates.keys() {
            if config.templates.contains_key(name) {
                let field = format!("{field}.templates.{name}");
                let message = format!("{field}: {half}.templates.{name} hides it");
                let fix = "remove or rename one of the two";
                findings.push(FieldFinding::new(
                    Rule::DUPLICATE_TEMPLATE,
                    &field,
                    message,
                    fix,
                ));
            }
        }
    }
    findings
}

/// Finds permissions that are written as an octal number, but are parsed as another number.
pub(super) fn octal_permissions(
    document: &Document,
    spec: &OperatingSystemProfileSpec,
) -> Vec<FieldFinding> {
    let all = halves(spec).into_iter();
    all.flat_map(|(half, config)| files(half, config))
        .map(|(field, _)| format!("{field}.permissions"))
        .filter(|field| is_octal(document, field))
        .map(|field| octal_finding(document, &field))
        .collect()
}

/// Returns true if permissions are written as an octal number: kubectl reads `0644` as 420.
pub(super) fn is_octal(document: &Document, field: &str) -> bool {
    field.ends_with(".permissions") && octal_digits(document, field).is_some()
}

fn octal_digits<'a>(document: &'a Document, field: &str) -> Option<&'a str> {
    let written = document.written(field)?;
    let digits = written.strip_prefix('0')?.trim_start_matches(['o', '0']);
    let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    (!digits.is_empty() && is_number(digits)).then_some(digits)
}

pub(super) fn octal_finding(document: &Document, field: &str) -> FieldFinding {
    let written = document.written(field).unwrap_or_default();
    let digits = octal_digits(document, field).unwrap_or_default();
    let message = format!("{field}: the API server reads `{written}` as another number");
    let fix = format!("write {digits}");
    FieldFinding::new(Rule::OCTAL_PERMISSIONS, field, message, fix)
}
