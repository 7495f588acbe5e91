//! Profiles in Go's template language, on the same engine as all others.
//!
//! Our own parser reads a template, which is then rewritten in the engine's language, with one
//! function per operation of Go. So the engine's limits apply to these templates as well.
//!
//! ```text
//! source ─► lexer ─► parser ─► tree ─► translate ─► the engine, with functions and values of Go's
//! ```
//!
//! A profile's named `templates` are interpreted twice, because profiles have come to rely on that.
//! Each is rendered alone, with the data, and its text becomes the body of a template of that name,
//! which files call. If no such text contains `{{`, the second pass changes nothing, and the text
//! is inserted. Otherwise it is parsed again with every file.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::{
    AutoEscape, Environment, Error, Output, State, UndefinedBehavior, Value,
    value::{Kwargs, ValueOrKwargs},
};

use super::{
    allocation_limit,
    engine::{self, Fuel, Job, Label, Source},
    error::{Half, RenderError, TemplatePlace},
    limits::{FUEL, Limits, RECURSION_MAX, SOURCE_BYTES_MAX},
    problem, sandbox,
    source::{files_of, half_of, inline_of, templates_of},
};
use osm_api::profile::OperatingSystemProfileSpec;

mod convert;
mod data;
mod functions;
mod go_functions;
mod jinja;
mod json;
mod lexer;
mod parser;
mod print;
mod second_pass;
mod toml;
mod translate;
mod tree;
mod value;
mod yaml;

pub(super) use convert::HalfConverter;
pub(super) use data::variables;
pub(super) use go_functions::{PREFIX, add_to as offer};
pub(super) use value::printed_parts;
pub use yaml::key_as_read;

use parser::parse;
use second_pass::is_plain;
use translate::{ROOT, Set, TEXTS, translate};
use tree::{Refusal, RefusedPart};

/// The delimiter that begins an action.
const ACTION: &str = "{{";

/// The Go templates of one half, compiled.
pub(super) struct GoHalf {
    half: Half,
    environment: Environment<'static>,
    texts: Vec<Text>,
    files: Vec<File>,
}

/// A named template of the profile.
struct Text {
    name: String,
    reads: BTreeSet<String>,
}

/// A file.
struct File {
    path: String,
    source: String,
    /// The name of its template in the environment; `None` if the file is not a template.
    template: Option<String>,
    reads: BTreeSet<String>,
    /// True if a named template can replace a definition in it. It is then parsed again in each
    /// render.
    is_replaced: bool,
}

/// The arguments of a render of a half.
pub(super) struct Pass<'a> {
    pub(super) limits: &'a Limits,
    pub(super) fuel: &'a Fuel,
    /// The variables, inline and with markers in place of secrets.
    pub(super) inline: &'a BTreeMap<&'static str, Value>,
    pub(super) marked: &'a BTreeMap<&'static str, Value>,
    /// The names of the variables that differ between the two.
    pub(super) marked_names: &'a [&'static str],
}

impl Pass<'_> {
    fn has_secret(&self, reads: &BTreeSet<String>) -> bool {
        let is_read = |name: &&str| reads.contains(*name);
        reads.contains(ROOT) || self.marked_names.iter().any(is_read)
    }
}

impl GoHalf {
    /// Compiles the templates of a half.
    pub(super) fn compile(
        spec: &OperatingSystemProfileSpec,
        half: Half,
    ) -> Result<Self, RenderError> {
        let config = half_of(spec, half);
        let templates = templates_of(config);
        let names: BTreeSet<String> = templates.keys().map(|name| (*name).to_owned()).collect();
        let mut compiled = Self {
            half,
            environment: environment(),
            texts: Vec::new(),
            files: Vec::new(),
        };
        for (index, (name, source)) in templates.into_iter().enumerate() {
            let label = format!("template `{name}`");
            let set = compiled.read(&label, source)?;
            let key = text_key(index);
            let reads = compiled.add((&key, &label), &set, &BTreeSet::new())?;
            compiled.texts.push(Text {
                name: name.to_owned(),
                reads,
            });
        }
        for (index, file) in files_of(config).enumerate() {
            let data = inline_of(half, file)?.data.as_str();
            let mut entry = File {
                path: file.path.clone(),
                source: data.to_owned(),
                template: None,
                reads: BTreeSet::new(),
                is_replaced: names.contains(&file.path),
            };
            if data.contains(ACTION) {
                let label = format!("file `{}`", file.path);
                let set = compiled.read(&label, data)?;
                let key = engine::file_name(index);
                entry.reads = compiled.add((&key, &label), &set, &names)?;
                entry.is_replaced |= set.definitions.keys().any(|name| names.contains(name));
                entry.template = Some(key);
            }
            compiled.files.push(entry);
        }
        Ok(compiled)
    }

    /// Returns true if a file may read a variable, itself or in a template that it calls.
    pub(super) fn reads(&self, name: &str) -> bool {
        let is_in = |reads: &BTreeSet<String>| reads.contains(name) || reads.contains(ROOT);
        self.files.iter().any(|file| is_in(&file.reads))
            || self.texts.iter().any(|text| is_in(&text.reads))
    }

    fn read(&self, label: &str, source: &str) -> Result<Set, RenderError> {
        if source.len() > SOURCE_BYTES_MAX {
            return Err(self.syntax_error(
                label,
                Refusal {
                    line: 1,
                    problem: format!("the template has more than {SOURCE_BYTES_MAX} bytes"),
                    part: RefusedPart::Template,
                },
            ));
        }
        parse(source)
            .map(Set::from)
            .map_err(|refusal| self.syntax_error(label, refusal))
    }

    fn add(
        &mut self,
        (key, label): (&str, &str),
        set: &Set,
        texts: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>, RenderError> {
        let text = translate(set, texts).map_err(|refusal| self.syntax_error(label, refusal))?;
        let source = Source {
            half: self.half,
            name: key.to_owned(),
            label: label.to_owned(),
            text: "",
            included_bytes: 0,
        };
        engine::add_printed(&mut self.environment, &source, text)
    }

    fn syntax_error(&self, label: &str, refusal: Refusal) -> RenderError {
        let Refusal {
            line,
            problem,
            part,
        } = refusal;
        let place = TemplatePlace {
            half: self.half,
            name: label.to_owned(),
            included: None,
            line: Some(line),
        };
        match part {
            RefusedPart::Template => RenderError::TemplateSyntax { place, problem },
            RefusedPart::Function => RenderError::RefusedFunction { place, problem },
        }
    }

    /// Returns the rendered files of the half, inline and with markers.
    pub(super) fn render(
        &self,
        pass: &Pass<'_>,
    ) -> Result<(Vec<String>, Vec<String>), RenderError> {
        let inline = self.texts_in(pass, pass.inline, None)?;
        let is_secret = self.texts.iter().any(|text| pass.has_secret(&text.reads));
        let marked = if is_secret {
            Some(self.texts_in(pass, pass.marked, Some(&inline))?)
        } else {
            None
        };
        let inline = View::new(pass.inline, inline);
        let marked = match marked {
            Some(texts) => View::new(pass.marked, texts),
            None => View::new(pass.marked, inline.texts.clone()),
        };
        let mut texts = Vec::with_capacity(self.files.len());
        let mut marked_texts = Vec::with_capacity(self.files.len());
        for file in &self.files {
            let text = self.file(pass, file, &inline)?;
            let has_secret = pass.has_secret(&file.reads)
                || is_secret && file.reads.contains(TEXTS)
                || !file.is_fast(&inline)
                || !file.is_fast(&marked);
            marked_texts.push(if has_secret {
                self.file(pass, file, &marked)?
            } else {
                text.clone()
            });
            texts.push(text);
        }
        Ok((texts, marked_texts))
    }

    /// Renders the named templates. Those without a secret are taken from `known`.
    fn texts_in(
        &self,
        pass: &Pass<'_>,
        variables: &BTreeMap<&'static str, Value>,
        known: Option<&BTreeMap<String, String>>,
    ) -> Result<BTreeMap<String, String>, RenderError> {
        let context = Value::from_pairs(variables.clone());
        let mut texts = BTreeMap::new();
        for (index, text) in self.texts.iter().enumerate() {
            let known = known.filter(|_| !pass.has_secret(&text.reads));
            let rendered = if let Some(rendered) = known.and_then(|known| known.get(&text.name)) {
                rendered.clone()
            } else {
                let key = text_key(index);
                let job = self.job(pass, &key, Label::Template(&text.name));
                engine::render(&job, &context)?
            };
            texts.insert(text.name.clone(), rendered);
        }
        Ok(texts)
    }

    fn job<'a>(&'a self, pass: &Pass<'a>, template: &'a str, label: Label<'a>) -> Job<'a> {
        Job {
            half: self.half,
            environment: &self.environment,
            template,
            label,
            limits: pass.limits,
            fuel: pass.fuel,
        }
    }

    fn file(&self, pass: &Pass<'_>, file: &File, view: &View) -> Result<String, RenderError> {
        if !file.is_fast(view) {
            return self.interpret_again(pass, file, view);
        }
        let Some(template) = &file.template else {
            return Ok(file.source.clone());
        };
        let job = self.job(pass, template, Label::File(&file.path));
        engine::render(&job, &view.context)
    }
}

impl File {
    /// Returns true if the file's compiled template, into which the texts are inserted, is
    /// sufficient.
    fn is_fast(&self, view: &View) -> bool {
        view.is_plain && !self.is_replaced
    }
}

/// The variables of one view, with the named templates that were rendered with them.
struct View {
    context: Value,
    texts: BTreeMap<String, String>,
    /// True if no text has to be interpreted a second time.
    is_plain: bool,
}

impl View {
    fn new(variables: &BTreeMap<&'static str, Value>, texts: BTreeMap<String, String>) -> Self {
        let mut variables = variables.clone();
        let bodies = texts
            .iter()
            .map(|(name, text)| (name.as_str(), Value::from(second_pass::body_of(text))));
        variables.insert(TEXTS, Value::from_pairs(bodies));
        Self {
            context: Value::from_pairs(variables),
            is_plain: texts.iter().all(|(name, text)| is_plain(name, text)),
            texts,
        }
    }
}

/// Returns the name of a named template's own text in the environment.
fn text_key(index: usize) -> String {
    format!("\ntemplates[{index}]")
}

/// Creates an engine without templates, with Go's functions and Go's way of printing.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_syntax(sandbox::syntax());
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_formatter(format_value);
    environment.set_recursion_limit(RECURSION_MAX);
    environment.set_fuel(Some(FUEL));
    allocation_limit::add_to(&mut environment);
    environment.add_function("namespace", namespace);
    functions::add_to(&mut environment);
    environment
}

/// Creates the namespace of an assigned variable. `declare` writes the call with the initial value.
fn namespace(start: Kwargs) -> Result<Value, Error> {
    minijinja::functions::namespace(Some(ValueOrKwargs::from(Value::from(start))))
}

fn format_value(out: &mut Output, _: &mut State, value: &Value) -> Result<(), Error> {
    let text = print::printed(value)?;
    allocation_limit::spend(text.len())?;
    Ok(out.write_str(&text)?)
}
