//! The templates of a profile, compiled once and shared by every tenant that has the same profile.
//!
//! Templates are written in Jinja or in Go's template language (see `go_template`). In Jinja, the
//! data of a file is a template. The profile's named `templates` are further ones, which files and
//! other templates use by name: `{% include "name" %}` inserts the text of the named template, with
//! the variables of that place, and `{% from "name" import macro %}` imports its macros. Names are
//! those of the same half: containerd's, overlaid by the half's own. An unknown name is an error at
//! render time.
//!
//! Whitespace is handled as in Jinja: a line break stays unless a tag says `-%}` or `{%-`. Nothing
//! is trimmed by default, and the last line break of a file is kept.
//!
//! Templates cannot read a clock, an environment, a network, a file or a source of randomness.

use std::{collections::BTreeSet, fmt, sync::Arc};

use minijinja::Environment;

use super::{
    default_profiles::is_shipped,
    engine::{self, Source},
    error::{Half, RenderError},
    go_template::{self, GoHalf},
    source::{files_of, half_of, inline_of, templates_of},
    thin::digest,
};
use osm_api::profile::{OperatingSystemProfileSpec, TemplateLanguage};

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
    /// The template's name in the environment; `None` if the data is not a template.
    pub(super) template: Option<String>,
    /// The variables that it may read, itself or in an include.
    pub(super) reads: BTreeSet<String>,
}

impl CompiledProfile {
    /// Compiles the templates of a profile.
    ///
    /// # Errors
    ///
    /// Returns the error of the first template that cannot be compiled.
    pub fn compile(spec: &OperatingSystemProfileSpec) -> Result<Self, RenderError> {
        Self::compile_shared(&Arc::new(spec.clone()))
    }

    /// Does the same as [`Self::compile`], but without copying the profile.
    ///
    /// # Errors
    ///
    /// Returns the error of the first template that cannot be compiled.
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

    /// Returns the profile.
    pub fn spec(&self) -> &OperatingSystemProfileSpec {
        &self.spec
    }

    /// Returns the hex SHA-256 of the profile as JSON with sorted keys.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns true if this release or an earlier one shipped the profile.
    pub fn is_shipped(&self) -> bool {
        self.is_shipped
    }

    /// Returns true if a template may read the kubelet's bootstrap kubeconfig, whose token changes.
    pub fn reads_bootstrap_kubeconfig(&self) -> bool {
        self.reads_bootstrap_kubeconfig
    }

    /// Returns the names that its Jinja templates read and do not define: variables and functions.
    pub fn names_read(&self) -> BTreeSet<&str> {
        let halves = self
            .templates
            .iter()
            .flat_map(|it| [&it.bootstrap, &it.provisioning]);
        let files = halves.flat_map(|half| match half {
            CompiledHalf::Jinja(half) => half.files.as_slice(),
            CompiledHalf::Go(_) => &[],
        });
        files
            .flat_map(|file| file.reads.iter().map(String::as_str))
            .collect()
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

    /// Returns true if a file may read a variable.
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

/// Returns true if the profile is a shipped one without a language. CRDs of other installers drop
/// `templateLanguage`, and the version's build metadata implies it.
fn is_shipped_without_language(spec: &OperatingSystemProfileSpec) -> bool {
    spec.template_language.is_none()
        && is_shipped(&digest(&OperatingSystemProfileSpec {
            template_language: Some(spec.language()),
            ..spec.clone()
        }))
}

impl CompiledHalf {
    /// Returns true if a file may read a variable, itself or in an include.
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
