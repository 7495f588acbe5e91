//! A profile's templates, compiled once and shared by every tenant that has the same profile.
//!
//! Templates are Jinja, or Go's, of which `go_template` tells. In Jinja a file's data is one
//! template; the profile's named `templates` are further ones, which files and one another reach by
//! name: `{% include "name" %}` puts the named template's text in place, with the variables of the
//! place; `{% from "name" import macro %}` takes macros out of it. Names are those of the same
//! half, containerd's own overlaid by the half's. A name that is not there is an error, at render
//! time.
//!
//! Whitespace is Jinja's: a line break stays unless a tag says `-%}` or `{%-`; nothing is trimmed
//! by itself, and the last line break of a file is kept.
//!
//! Nothing here reads a clock, an environment, a network, a file or a source of randomness.

use std::{collections::BTreeSet, fmt, sync::Arc};

use minijinja::Environment;
use sha2::{Digest, Sha256};

use super::{
    default_profiles::is_shipped,
    engine::{self, Source},
    error::{Half, RenderError},
    go_template::{self, GoHalf},
    source::{files_of, half_of, inline_of, templates_of},
};
use crate::api::profile::{OperatingSystemProfileSpec, TemplateLanguage};

/// The variable with the kubelet's bootstrap kubeconfig.
pub(super) const BOOTSTRAP_KUBECONFIG: &str = "BootstrapKubeconfig";

/// A profile with its templates compiled.
pub struct CompiledProfile {
    spec: Arc<OperatingSystemProfileSpec>,
    digest: String,
    is_shipped: bool,
    reads_bootstrap_kubeconfig: bool,
    /// `None` after [`Self::drop_templates`].
    templates: Option<Templates>,
}

/// A profile's templates by half.
pub(super) struct Templates {
    bootstrap: CompiledHalf,
    provisioning: CompiledHalf,
}

/// The templates of one half, by their language.
pub(super) enum CompiledHalf {
    Jinja(JinjaHalf),
    Go(GoHalf),
}

/// The Jinja templates of one half.
pub(super) struct JinjaHalf {
    pub(super) environment: Environment<'static>,
    pub(super) files: Vec<CompiledFile>,
}

/// One file's template.
pub(super) struct CompiledFile {
    /// The template's name in the environment; `None` where the data is no template at all.
    pub(super) template: Option<String>,
    /// The variables that it may read, itself or in what it includes.
    pub(super) reads: BTreeSet<String>,
}

impl CompiledProfile {
    /// Compiles a profile's templates.
    ///
    /// # Errors
    ///
    /// The first template that does not parse.
    pub fn compile(spec: &OperatingSystemProfileSpec) -> Result<Self, RenderError> {
        Self::compile_shared(&Arc::new(spec.clone()))
    }

    /// As [`Self::compile`], without a copy of the profile.
    ///
    /// # Errors
    ///
    /// The first template that does not parse.
    pub fn compile_shared(spec: &Arc<OperatingSystemProfileSpec>) -> Result<Self, RenderError> {
        let templates = Templates::compile(spec)?;
        let digest = digest(spec);
        Ok(Self {
            reads_bootstrap_kubeconfig: templates.read(BOOTSTRAP_KUBECONFIG),
            templates: Some(templates),
            is_shipped: is_shipped(&digest) || is_shipped_without_language(spec),
            digest,
            spec: Arc::clone(spec),
        })
    }

    /// Drops the compiled templates, which take about 17 times the memory of their text.
    /// [`render`](super::render) compiles them again.
    #[must_use]
    pub fn drop_templates(self) -> Self {
        Self {
            templates: None,
            ..self
        }
    }

    /// The profile.
    pub fn spec(&self) -> &OperatingSystemProfileSpec {
        &self.spec
    }

    /// The hex SHA-256 of the profile as JSON with sorted keys.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Whether this release or an earlier one shipped the profile.
    pub fn is_shipped(&self) -> bool {
        self.is_shipped
    }

    /// Whether a template may read the kubelet's bootstrap kubeconfig, whose token changes.
    pub fn reads_bootstrap_kubeconfig(&self) -> bool {
        self.reads_bootstrap_kubeconfig
    }

    /// Returns the compiled templates, unless they were dropped.
    pub(super) fn templates(&self) -> Option<&Templates> {
        self.templates.as_ref()
    }
}

impl Templates {
    /// Compiles the templates of a profile.
    pub(super) fn compile(spec: &OperatingSystemProfileSpec) -> Result<Self, RenderError> {
        Ok(Self {
            bootstrap: compile_half(spec, Half::Bootstrap)?,
            provisioning: compile_half(spec, Half::Provisioning)?,
        })
    }

    /// Whether a file may read a variable.
    fn read(&self, name: &str) -> bool {
        self.bootstrap.reads(name) || self.provisioning.reads(name)
    }

    pub(super) fn half(&self, half: Half) -> &CompiledHalf {
        match half {
            Half::Bootstrap => &self.bootstrap,
            Half::Provisioning => &self.provisioning,
        }
    }
}

impl fmt::Debug for CompiledProfile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CompiledProfile")
            .field("digest", &self.digest)
            .field("has_templates", &self.templates.is_some())
            .finish_non_exhaustive()
    }
}

/// A digest of the content alone: two equal profiles have the same, wherever they stand.
fn digest(spec: &OperatingSystemProfileSpec) -> String {
    // A profile is made of texts, numbers and JSON already, so writing it as JSON cannot fail.
    let mut json = serde_json::to_value(spec).unwrap_or_default();
    json.sort_all_objects();
    hex::encode(Sha256::digest(json.to_string()))
}

/// CRDs of other installers drop `templateLanguage`; the version's build metadata implies it.
fn is_shipped_without_language(spec: &OperatingSystemProfileSpec) -> bool {
    spec.template_language.is_none()
        && is_shipped(&digest(&OperatingSystemProfileSpec {
            template_language: Some(spec.language()),
            ..spec.clone()
        }))
}

impl CompiledHalf {
    /// Whether a file may read a variable, itself or in what it includes.
    fn reads(&self, name: &str) -> bool {
        match self {
            Self::Jinja(half) => half.files.iter().any(|file| file.reads.contains(name)),
            Self::Go(half) => half.reads(name),
        }
    }
}

fn compile_half(
    spec: &OperatingSystemProfileSpec,
    half: Half,
) -> Result<CompiledHalf, RenderError> {
    match spec.language() {
        TemplateLanguage::Jinja => compile_jinja(spec, half).map(CompiledHalf::Jinja),
        TemplateLanguage::GoTemplate => GoHalf::compile(spec, half).map(CompiledHalf::Go),
    }
}

fn compile_jinja(spec: &OperatingSystemProfileSpec, half: Half) -> Result<JinjaHalf, RenderError> {
    let config = half_of(spec, half);
    let mut environment = engine::environment();
    let mut shared = BTreeSet::new();
    let templates = templates_of(config);
    let included_bytes = templates.values().map(|text| text.len()).sum();
    let data = files_of(config).filter_map(|file| file.content.inline.as_ref());
    let mut sources = data
        .map(|inline| inline.data.as_str())
        .chain(templates.values().copied());
    if sources.any(|source| source.contains(go_template::PREFIX)) {
        go_template::offer(&mut environment);
    }
    for (name, source) in templates {
        let source = Source {
            half,
            name: name.to_owned(),
            label: format!("template `{name}`"),
            text: source,
            included_bytes,
        };
        shared.append(&mut engine::add(&mut environment, &source)?);
    }
    let mut files = Vec::new();
    for (index, file) in files_of(config).enumerate() {
        let data = inline_of(half, file)?.data.as_str();
        let name = engine::file_name(index);
        let mut reads = BTreeSet::new();
        let is_template = ["{{", "{%", "{#"].iter().any(|mark| data.contains(mark));
        if is_template {
            let source = Source {
                half,
                name: name.clone(),
                label: format!("file `{}`", file.path),
                text: data,
                included_bytes,
            };
            reads = engine::add(&mut environment, &source)?;
            if ["include", "import"].iter().any(|word| data.contains(word)) {
                reads.extend(shared.iter().cloned());
            }
        }
        files.push(CompiledFile {
            template: is_template.then_some(name),
            reads,
        });
    }
    Ok(JinjaHalf { environment, files })
}
