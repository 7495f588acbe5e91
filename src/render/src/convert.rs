//! Rewrites a profile in Go's template language in Jinja, so that it renders the same bytes.
//!
//! Constructs that have no equivalent in Jinja are refused, with their place and what to do.

use std::fmt;

mod compare;
mod samples;

pub use compare::{Comparison, compare};

use super::{
    error::{Half, RenderError},
    go_template::HalfConverter,
    source::{half_of, templates_of},
    template::CompiledProfile,
};
use osm_api::profile::{
    File, OperatingSystemProfileSpec, ProfileConfig, TemplateLanguage, VERSION_METADATA_JINJA,
};

/// A place in a profile that has no equivalent in Jinja.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The half of the profile.
    pub half: Half,
    /// The file or the named template.
    pub place: String,
    /// The line in it.
    pub line: usize,
    /// The reason, and what to do.
    pub problem: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            half,
            place,
            line,
            problem,
        } = self;
        write!(formatter, "spec.{half}, {place}, line {line}: {problem}")
    }
}

/// The reason why a profile is not converted.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConvertError {
    /// Its templates are Jinja.
    #[error(
        "spec.templateLanguage, or the metadata of spec.version: the profile is in Jinja already"
    )]
    IsJinja,
    /// It does not compile in its present form.
    #[error("the profile as it stands does not compile")]
    Source(#[source] RenderError),
    /// Some places have no equivalent.
    #[error("{}", lines(.0))]
    Refused(Vec<Refusal>),
    /// The result exceeds the limits for Jinja.
    #[error("the profile, rewritten, does not compile")]
    Result(#[source] RenderError),
}

fn lines(refusals: &[Refusal]) -> String {
    let lines: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Rewrites a profile in Jinja.
///
/// # Errors
///
/// A template uses what has no counterpart in Jinja, or the conversion renders something else.
pub fn convert(
    spec: &OperatingSystemProfileSpec,
) -> Result<OperatingSystemProfileSpec, ConvertError> {
    if spec.language() == TemplateLanguage::Jinja {
        return Err(ConvertError::IsJinja);
    }
    CompiledProfile::compile(spec).map_err(ConvertError::Source)?;
    let mut converted = spec.clone();
    let mut refusals = Vec::new();
    for half in [Half::Bootstrap, Half::Provisioning] {
        let config = match half {
            Half::Bootstrap => &mut converted.bootstrap_config,
            Half::Provisioning => &mut converted.provisioning_config,
        };
        convert_half(half, half_of(spec, half), config, &mut refusals);
    }
    if !refusals.is_empty() {
        return Err(ConvertError::Refused(refusals));
    }
    converted.template_language = Some(TemplateLanguage::Jinja);
    converted.version = jinja_version(&spec.version);
    CompiledProfile::compile(&converted).map_err(ConvertError::Result)?;
    Ok(converted)
}

/// Returns the version with build metadata that selects Jinja.
fn jinja_version(version: &str) -> String {
    let sign = if version.contains('+') { '.' } else { '+' };
    format!("{version}{sign}{VERSION_METADATA_JINJA}")
}

fn convert_half(
    half: Half,
    source: &ProfileConfig,
    config: &mut ProfileConfig,
    refusals: &mut Vec<Refusal>,
) {
    let known = templates_of(source);
    let mut converter = HalfConverter::new(known.keys().map(|name| (*name).to_owned()).collect());
    let runtimes = &mut config.supported_container_runtimes;
    let templates = runtimes.iter_mut().map(|runtime| &mut runtime.templates);
    for (name, text) in templates.chain([&mut config.templates]).flatten() {
        let place = format!("template `{name}`");
        match converter.named(name, text) {
            Ok(jinja) => *text = jinja,
            Err((line, problem)) => refusals.push(Refusal {
                half,
                place,
                line,
                problem,
            }),
        }
    }
    let files = runtimes.iter_mut().map(|runtime| &mut runtime.files);
    for file in std::iter::once(&mut config.files).chain(files).flatten() {
        let File { path, content, .. } = file;
        let Some(inline) = &mut content.inline else {
            continue;
        };
        match converter.file(path, &inline.data) {
            Ok(jinja) => inline.data = jinja,
            Err((line, problem)) => refusals.push(Refusal {
                half,
                place: format!("file `{path}`"),
                line,
                problem,
            }),
        }
    }
}
