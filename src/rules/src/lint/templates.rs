//! Findings of the template compiler: all errors, not only the first.

use super::{
    super::{
        profile::{files, halves},
        rule::Rule,
        shape::similar,
    },
    FieldFinding, Layers,
};
use osm_api::profile::{ContainerRuntime, OperatingSystemProfileSpec, ProfileConfig};
use osm_render::{
    Half, RenderError, downloads::DOWNLOADS, error::TemplatePlace, reference::VARIABLES,
    template::CompiledProfile,
};

/// A template, with the field that contains its text.
pub(super) struct TextField {
    pub(super) half: Half,
    /// The name of the template in errors.
    pub(super) label: String,
    /// The field.
    pub(super) field: String,
    /// The name by which other templates include it; `None` for a file.
    name: Option<String>,
    text: String,
}

/// Returns every template of a profile that can be part of a document.
pub(super) fn text_fields(spec: &OperatingSystemProfileSpec) -> Vec<TextField> {
    let mut text_fields_of_spec = Vec::new();
    for (half, (path, config)) in [Half::Bootstrap, Half::Provisioning]
        .into_iter()
        .zip(halves(spec))
    {
        for (field, file) in files(path, config) {
            let inline = file.content.inline.as_ref();
            text_fields_of_spec.push(TextField {
                half,
                label: format!("file `{}`", file.path),
                field: format!("{field}.content.inline.data"),
                name: None,
                text: inline.map_or_else(String::new, |inline| inline.data.clone()),
            });
        }
        for (path, templates) in template_maps(path, config) {
            text_fields_of_spec.extend(templates.iter().map(|(name, text)| TextField {
                half,
                label: format!("template `{name}`"),
                field: format!("{path}.templates.{name}"),
                name: Some(name.clone()),
                text: text.clone(),
            }));
        }
    }
    text_fields_of_spec
}

type Templates = std::collections::BTreeMap<String, String>;

/// Returns the maps of named templates with their paths. The half's own map comes first: it hides
/// those of the runtime.
fn template_maps<'a>(path: &str, config: &'a ProfileConfig) -> Vec<(String, &'a Templates)> {
    let runtimes = config.supported_container_runtimes.iter().enumerate();
    let containerd = runtimes
        .filter(|(_, runtime)| runtime.name == ContainerRuntime::Containerd)
        .map(|(index, runtime)| {
            let path = format!("{path}.supportedContainerRuntimes[{index}]");
            (path, &runtime.templates)
        });
    std::iter::once((path.to_owned(), &config.templates))
        .chain(containerd)
        .collect()
}

/// Returns all compiler errors. After each error, its text is emptied so that the
/// compiler finds the next one.
pub(super) fn check(layers: &Layers<'_>) -> Vec<FieldFinding> {
    let mut spec = layers.whole.clone();
    fill_missing(&mut spec);
    let mut findings = Vec::new();
    for _ in text_fields(layers.whole) {
        let Err(error) = CompiledProfile::compile(&spec) else {
            break;
        };
        findings.push(error_finding(layers, &error));
        if !error.place().is_some_and(|place| empty(&mut spec, place)) {
            break;
        }
    }
    findings
}

/// Returns the finding for an error of a template, with its line.
pub(super) fn error_finding(layers: &Layers<'_>, error: &RenderError) -> FieldFinding {
    let (rule, fix) = match error {
        RenderError::RefusedFunction { .. } => (
            Rule::REFUSED_FUNCTION,
            "pass the value in spec.variables of the WorkerCluster",
        ),
        _ => (Rule::TEMPLATE_SYNTAX, "correct the template at this line"),
    };
    let fields = text_fields(layers.own);
    let place = error.place();
    let field = place.and_then(|place| innermost(&fields, place));
    let path = field.map_or(layers.below(), |field| field.field.as_str());
    FieldFinding {
        line: field.and(place).and_then(|place| place.line),
        ..FieldFinding::new(rule, path, error.to_string(), fix)
    }
}

/// Returns the innermost template in which an error happened.
fn innermost<'a>(fields: &'a [TextField], place: &TemplatePlace) -> Option<&'a TextField> {
    let included = place.included.as_ref();
    let label = included.map_or(place.name.clone(), |name| format!("template `{name}`"));
    let mut fields = fields.iter().filter(|field| field.half == place.half);
    fields.find(|field| field.label == label)
}

/// Adds empty content to files that have none: another rule reports them.
fn fill_missing(spec: &mut OperatingSystemProfileSpec) {
    for config in [&mut spec.bootstrap_config, &mut spec.provisioning_config] {
        let runtimes = config.supported_container_runtimes.iter_mut();
        let files = runtimes.flat_map(|runtime| &mut runtime.files);
        for file in config.files.iter_mut().chain(files) {
            file.content.inline.get_or_insert_default();
        }
    }
}

/// Empties the text that an error names. Returns false if there was none.
fn empty(spec: &mut OperatingSystemProfileSpec, place: &TemplatePlace) -> bool {
    let config = match place.half {
        Half::Bootstrap => &mut spec.bootstrap_config,
        Half::Provisioning => &mut spec.provisioning_config,
    };
    let mut files = config.files.iter_mut().collect::<Vec<_>>();
    let mut templates = config.templates.iter_mut().collect::<Vec<_>>();
    for runtime in &mut config.supported_container_runtimes {
        files.extend(&mut runtime.files);
        templates.extend(&mut runtime.templates);
    }
    let files = files.into_iter().filter_map(|file| {
        let text = &mut file.content.inline.as_mut()?.data;
        Some((format!("file `{}`", file.path), text))
    });
    let templates = templates
        .into_iter()
        .map(|(name, text)| (format!("template `{name}`"), text));
    let mut named = files
        .chain(templates)
        .filter(|(label, _)| *label == place.name);
    let text = named.find(|(_, text)| !text.is_empty());
    text.map(|(_, text)| text.clear()).is_some()
}

/// Finds variables that do not exist and are nearly called as one that does.
pub(super) fn misspelt(layers: &Layers<'_>) -> Vec<FieldFinding> {
    let Ok(profile) = CompiledProfile::compile(layers.whole) else {
        return Vec::new();
    };
    let variables = || VARIABLES.iter().map(|row| row.name);
    let names = profile.names_read().into_iter();
    let unknown = names.filter(|name| !variables().any(|known| known == *name));
    let fields = text_fields(layers.own);
    let finding = |name: &str| {
        let known = similar(name, variables())?;
        let mut places = fields
            .iter()
            .filter_map(|it| Some((it, it.text.find(name)?)));
        let (field, at) = places.next()?;
        let line = field
            .text
            .get(..at)
            .map_or(0, |before| before.matches('\n').count());
        let message = format!("{}: there is no variable `{name}`", field.field);
        let fix = format!("did you mean `{known}`?");
        Some(FieldFinding {
            line: Some(line + 1),
            ..FieldFinding::new(Rule::UNKNOWN_VARIABLE, &field.field, message, &fix)
        })
    };
    unknown.filter_map(finding).collect()
}

/// Finds named templates whose name is in no other text of their half. `artefacts` is always used,
/// by `osm bom`.
pub(super) fn unused(layers: &Layers<'_>) -> Vec<FieldFinding> {
    let fields = text_fields(layers.whole);
    let is_named = |field: &TextField, name: &str| {
        ['"', '\'', '`']
            .iter()
            .any(|quote| field.text.contains(&format!("{quote}{name}{quote}")))
    };
    let finding = |field: &TextField| {
        let name = field.name.as_deref().filter(|name| *name != DOWNLOADS)?;
        let others = fields
            .iter()
            .filter(|other| other.half == field.half && other.name.as_deref() != Some(name));
        let is_used = others.into_iter().any(|other| is_named(other, name));
        let path = &field.field;
        let message = format!("{path}: no file and no other template of the half names it");
        let fix = "remove it, or include it by its name";
        (!is_used).then(|| FieldFinding::new(Rule::UNUSED_TEMPLATE, path, message, fix))
    };
    text_fields(layers.own).iter().filter_map(finding).collect()
}
