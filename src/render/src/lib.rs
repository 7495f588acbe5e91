//! Renders a profile and the facts of one machine deployment into a config and two documents.
//!
//! Values in, values out: the same input gives the same bytes, on any machine and at any time.
//! Nothing here uses a Kubernetes client, a clock, a task or a log.
//!
//! ```text
//! RenderInput ──► ValidInput ──► TemplateData ──► files ──► config ──► bootstrap, provisioning
//!                                       └──► files with markers ──► stored config
//! ```

use std::{collections::BTreeMap, fmt};

use minijinja::Value;

mod allocation_limit;
pub mod annotation_hash;
mod cloud_config;
mod compose;
mod containerd;
pub mod convert;
mod data;
pub mod default_profiles;
pub mod downloads;
mod duration;
pub mod edge_script;
pub mod encode;
mod engine;
pub mod error;
mod functions;
mod go_json;
mod go_template;
mod go_url;
pub mod input;
pub mod kubelet;
pub mod limits;
pub mod machine_updates;
mod no_proxy;
pub mod overlay;
mod problem;
pub mod recent;
pub mod reference;
mod sandbox;
mod source;
pub mod template;
pub mod thin;
pub mod user_data;
mod version;

pub use error::{Half, RenderError};
pub use go_template::key_as_read;
pub use input::RenderInput;
pub use limits::Limits;
pub use user_data::UserData;

use compose::{Form, RenderedFiles, compose};
use data::ValidInput;
use encode::{MachineInput, encode};
use engine::{Fuel, Job, Label};
use osm_api::{
    config::OperatingSystemConfigSpec, profile::TemplateLanguage, worker_cluster::StoredConfig,
};
use source::{files_of, half_of, inline_of};
use template::{CompiledHalf, JinjaHalf, Templates};

/// The result of a render.
#[derive(Clone, PartialEq)]
pub struct Rendered {
    /// The config with all secrets, from which the documents are encoded.
    pub config: OperatingSystemConfigSpec,
    /// The config as it is stored: with a marker in place of each secret, and without the cloud
    /// provider's settings, unless the tenant's settings include them.
    pub stored_config: OperatingSystemConfigSpec,
    /// The document that turns a machine into a node.
    pub provisioning: UserData,
    /// The document that a machine gets as user data.
    pub bootstrap: UserData,
}

impl fmt::Debug for Rendered {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Rendered")
            .field("provisioning", &self.provisioning)
            .field("bootstrap", &self.bootstrap)
            .finish_non_exhaustive()
    }
}

/// Renders a profile for a machine deployment.
///
/// # Errors
///
/// A template fails or exceeds a limit, or a value of the machine deployment cannot be used.
pub fn render(input: &RenderInput<'_>, limits: &Limits) -> Result<Rendered, RenderError> {
    let valid = ValidInput::new(*input)?;
    let rendered = render_parts(&valid, limits)?;
    compose::refuse_unread(&valid, &rendered.config)?;
    Ok(rendered)
}

/// Renders a profile that may be without the parts that make a node.
fn render_parts(valid: &ValidInput<'_>, limits: &Limits) -> Result<Rendered, RenderError> {
    let input = &valid.input;
    compose::provisioning_utility(valid)?;
    let data = valid.template_data();
    let marked_names: Vec<&'static str> = data.marked.keys().copied().collect();
    let mut with_markers = data.inline.clone();
    with_markers.extend(data.marked);
    let language = input.profile.spec().language();
    let recompiled;
    let templates = if let Some(templates) = input.profile.templates() {
        templates
    } else {
        recompiled = Templates::compile(input.profile.spec())?;
        &recompiled
    };
    let pass = Pass {
        input,
        templates,
        limits,
        fuel: engine::start(limits, go_template::printed_parts),
        variables: Variables::new(&data.inline, &with_markers, language),
        marked_names,
    };
    let (bootstrap, bootstrap_marked) = pass.render_half(Half::Bootstrap)?;
    let (provisioning, provisioning_marked) = pass.render_half(Half::Provisioning)?;
    let files = RenderedFiles {
        bootstrap,
        provisioning,
    };
    let marked_files = RenderedFiles {
        bootstrap: bootstrap_marked,
        provisioning: provisioning_marked,
    };
    let config = compose(valid, files, Form::Inline)?;
    let machine = MachineInput {
        name: input.machine_deployment.name,
        dist_upgrade_on_boot: input
            .machine_deployment
            .provider
            .operating_system_spec
            .dist_upgrade_on_boot,
    };
    Ok(Rendered {
        provisioning: encode(&config, Half::Provisioning, machine)?,
        bootstrap: encode(&config, Half::Bootstrap, machine)?,
        stored_config: match input.settings.stored_config {
            StoredConfig::Markers => compose(valid, marked_files, Form::Stored)?,
            StoredConfig::Inline => config.clone(),
        },
        config,
    })
}

/// The variables of templates, inline and with markers in place of secrets.
enum Variables {
    Jinja { inline: Value, marked: Value },
    Go { inline: Data, marked: Data },
}

type Data = BTreeMap<&'static str, Value>;

impl Variables {
    fn new(inline: &Data, marked: &Data, language: TemplateLanguage) -> Self {
        match language {
            TemplateLanguage::Jinja => Self::Jinja {
                inline: Value::from_pairs(inline.clone()),
                marked: Value::from_pairs(marked.clone()),
            },
            TemplateLanguage::GoTemplate => Self::Go {
                inline: go_template::variables(inline),
                marked: go_template::variables(marked),
            },
        }
    }
}

/// One pass over a profile's files, for both forms of the config.
struct Pass<'a> {
    input: &'a RenderInput<'a>,
    templates: &'a Templates,
    limits: &'a Limits,
    fuel: Fuel,
    variables: Variables,
    /// The names of the variables that differ between the two.
    marked_names: Vec<&'static str>,
}

impl Pass<'_> {
    /// Returns the rendered files of a half, inline and with markers. A file that reads no secret
    /// is rendered once.
    fn render_half(&self, half: Half) -> Result<(Vec<String>, Vec<String>), RenderError> {
        match (self.templates.half(half), &self.variables) {
            (CompiledHalf::Jinja(compiled), Variables::Jinja { inline, marked }) => {
                self.render_jinja((half, compiled), inline, marked)
            }
            (CompiledHalf::Go(compiled), Variables::Go { inline, marked }) => {
                compiled.render(&go_template::Pass {
                    limits: self.limits,
                    fuel: &self.fuel,
                    inline,
                    marked,
                    marked_names: &self.marked_names,
                })
            }
            // The variables are always in the language of the profile.
            _ => Ok((Vec::new(), Vec::new())),
        }
    }

    fn render_jinja(
        &self,
        (half, compiled): (Half, &JinjaHalf),
        inline: &Value,
        marked_variables: &Value,
    ) -> Result<(Vec<String>, Vec<String>), RenderError> {
        let config = half_of(self.input.profile.spec(), half);
        let mut texts = Vec::with_capacity(compiled.files.len());
        let mut marked = Vec::with_capacity(compiled.files.len());
        for (file, plan) in files_of(config).zip(&compiled.files) {
            let Some(template) = &plan.template else {
                let data = &inline_of(half, file)?.data;
                texts.push(data.clone());
                marked.push(data.clone());
                continue;
            };
            let job = Job {
                half,
                environment: &compiled.environment,
                template,
                label: Label::File(&file.path),
                limits: self.limits,
                fuel: &self.fuel,
            };
            let text = engine::render(&job, inline)?;
            let reads_secret = self
                .marked_names
                .iter()
                .any(|name| plan.reads.contains(*name));
            marked.push(if reads_secret {
                engine::render(&job, marked_variables)?
            } else {
                text.clone()
            });
            texts.push(text);
        }
        Ok((texts, marked))
    }
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;
