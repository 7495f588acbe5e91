//! What a compiler of a profile's templates finds: all of it, not only the first.

use super::{
    super::profile::{files, halves},
    Layers, Rule, Told,
};
use crate::api::profile::{ContainerRuntime, OperatingSystemProfileSpec, ProfileConfig};
use crate::render::{
    Half, RenderError, artefacts::ARTEFACTS, error::TemplatePlace, template::CompiledProfile,
};

/// A template, with the field that holds its text.
pub(super) struct TextField {
    pub(super) half: Half,
    /// What errors call it.
    pub(super) label: String,
    /// The field.
    pub(super) field: String,
    /// The name that others use it by; a file has none.
    name: Option<String>,
    text: String,
}

/// Every template of a profile that can reach a document.
pub(super) fn text_fields(spec: &OperatingSystemProfileSpec) -> Vec<TextField> {
    let mut found = Vec::new();
    for (half, (path, config)) in [Half::Bootstrap, Half::Provisioning]
        .into_iter()
        .zip(halves(spec))
    {
        for (field, file) in files(path, config) {
            let inline = file.content.inline.as_ref();
            found.push(TextField {
                half,
                label: format!("file `{}`", file.path),
                field: format!("{field}.content.inline.data"),
                name: None,
                text: inline.map_or_else(String::new, |inline| inline.data.clone()),
            });
        }
        for (path, templates) in template_maps(path, config) {
            found.extend(templates.iter().map(|(name, text)| TextField {
                half,
                label: format!("template `{name}`"),
                field: format!("{path}.templates.{name}"),
                name: Some(name.clone()),
                text: text.clone(),
            }));
        }
    }
    found
}

type Templates = std::collections::BTreeMap<String, String>;

/// The half's own templates first: they hide those of the runtime.
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

/// What cannot be compiled. Whatever was told is emptied, so that the next one is found.
pub(super) fn check(layers: &Layers<'_>) -> Vec<Told> {
    let mut spec = layers.whole.clone();
    fill_missing(&mut spec);
    let mut told = Vec::new();
    for _ in text_fields(layers.whole) {
        let Err(error) = CompiledProfile::compile(&spec) else {
            break;
        };
        told.push(tell(layers, &error));
        if !error.place().is_some_and(|place| empty(&mut spec, place)) {
            break;
        }
    }
    told
}

/// An error of a template, at its line.
pub(super) fn tell(layers: &Layers<'_>, error: &RenderError) -> Told {
    let (rule, fix) = match error {
        RenderError::RefusedFunction { .. } => (
            Rule::REFUSED_FUNCTION,
            "hand the value in by spec.variables of the WorkerCluster",
        ),
        _ => (Rule::TEMPLATE_SYNTAX, "correct the template at this line"),
    };
    let fields = text_fields(layers.own);
    let place = error.place();
    let field = place.and_then(|place| find(&fields, place));
    let path = field.map_or(layers.below(), |field| field.field.as_str());
    Told {
        line: field.and(place).and_then(|place| place.line),
        ..Told::new(rule, path, error.to_string(), fix)
    }
}

/// The text in which an error happened: the innermost template.
fn find<'a>(fields: &'a [TextField], place: &TemplatePlace) -> Option<&'a TextField> {
    let included = place.included.as_ref();
    let label = included.map_or(place.name.clone(), |name| format!("template `{name}`"));
    let mut fields = fields.iter().filter(|field| field.half == place.half);
    fields.find(|field| field.label == label)
}

/// A file without content is told by another rule.
fn fill_missing(spec: &mut OperatingSystemProfileSpec) {
    for config in [&mut spec.bootstrap_config, &mut spec.provisioning_config] {
        let runtimes = config.supported_container_runtimes.iter_mut();
        let files = runtimes.flat_map(|runtime| &mut runtime.files);
        for file in config.files.iter_mut().chain(files) {
            file.content.inline.get_or_insert_default();
        }
    }
}

/// Empties the text that an error names; says whether there was one.
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

/// Named templates whose name stands in no other text of their half. `artefacts` is for `osm bom`.
pub(super) fn unused(layers: &Layers<'_>) -> Vec<Told> {
    let fields = text_fields(layers.whole);
    let is_named = |field: &TextField, name: &str| {
        ['"', '\'', '`']
            .iter()
            .any(|quote| field.text.contains(&format!("{quote}{name}{quote}")))
    };
    let tell = |field: &TextField| {
        let name = field.name.as_deref().filter(|name| *name != ARTEFACTS)?;
        let others = fields
            .iter()
            .filter(|other| other.half == field.half && other.name.as_deref() != Some(name));
        let is_used = others.into_iter().any(|other| is_named(other, name));
        let path = &field.field;
        let message = format!("{path}: no file and no other template of the half names it");
        let fix = "remove it, or include it by its name";
        (!is_used).then(|| Told::new(Rule::UNUSED_TEMPLATE, path, message, fix))
    };
    text_fields(layers.own).iter().filter_map(tell).collect()
}
