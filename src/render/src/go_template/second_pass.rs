//! The second interpretation of a profile's named templates.
//!
//! The output of a named template becomes the body of a definition, and is parsed together with
//! each file. If it contains an action, the action is executed, however it got there.

use std::collections::BTreeSet;

use super::{
    super::{
        allocation_limit,
        engine::{self, Label, Source},
        error::{RenderError, TemplatePlace},
    },
    ACTION, File, GoHalf, Pass, View,
    parser::{Parsed, parse},
    translate::{Set, translate},
    tree::is_empty,
};

/// The white space that `{{-` trims.
pub(super) const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];
/// The cost of parsing a byte of source again.
const READING: usize = 16;

/// Returns true if a text contains no action, and its name cannot break the definition.
pub(super) fn is_plain(name: &str, text: &str) -> bool {
    !text.contains(ACTION) && !name.contains(['"', '\\', '\n'])
}

/// Returns what a plain text prints where it is called. It is on lines of its own, and the last
/// line break is trimmed.
pub(super) fn body_of(text: &str) -> String {
    let kept = text.trim_end_matches(SPACES);
    if kept.is_empty() {
        String::new()
    } else {
        format!("\n{kept}")
    }
}

/// Returns the definition as which a text is parsed.
fn definition_of(name: &str, text: &str) -> String {
    format!("\n{{{{- define \"{name}\" }}}}\n{text}\n{{{{- end }}}}")
}

impl GoHalf {
    /// Renders a file, parsed together with all named texts.
    pub(super) fn interpret_again(
        &self,
        pass: &Pass<'_>,
        file: &File,
        view: &View,
    ) -> Result<String, RenderError> {
        let place = || TemplatePlace {
            half: self.half,
            name: format!("file `{}`", file.path),
            included: None,
            line: None,
        };
        let bytes: usize = view.texts.values().map(String::len).sum();
        let weight = (bytes + file.source.len()).saturating_mul(READING);
        allocation_limit::spend(weight).map_err(|_| RenderError::WorkTooLarge {
            place: place(),
            bytes_max: pass.limits.work_bytes_max,
        })?;
        // The text may contain secrets, so it is not quoted.
        let broken = || RenderError::Template {
            place: place(),
            problem: "the templates, once rendered, are no templates: what they rendered to is \
                      interpreted a second time, and holds `{{`"
                .to_owned(),
        };
        let mut set = self.read("", &file.source)?;
        for (name, text) in &view.texts {
            let parsed = parse(&definition_of(name, text)).map_err(|_| broken())?;
            merge(&mut set, &file.path, parsed);
        }
        let printed = translate(&set, &BTreeSet::new()).map_err(|_| broken())?;
        let key = engine::file_name(usize::MAX);
        let mut environment = self.environment.clone();
        let source = Source {
            half: self.half,
            name: key.clone(),
            label: String::new(),
            text: "",
            included_bytes: 0,
        };
        engine::add_printed(&mut environment, &source, printed).map_err(|_| broken())?;
        let mut job = self.job(pass, &key, Label::File(&file.path));
        job.environment = &environment;
        engine::render(&job, &view.context).map_err(|error| match error {
            RenderError::Template { place, .. } => RenderError::Template {
                place,
                problem: "a template, once rendered, failed when it was interpreted a second time"
                    .to_owned(),
            },
            other => other,
        })
    }
}

/// Merges the definitions of a text into a file's set. An empty definition replaces nothing.
fn merge(set: &mut Set, path: &str, parsed: Parsed) {
    if !is_empty(&parsed.body) {
        set.body = parsed.body;
    }
    for definition in parsed.definitions {
        if definition.name == path {
            if !is_empty(&definition.body) {
                set.body = definition.body;
            }
        } else if !is_empty(&definition.body) || !set.definitions.contains_key(&definition.name) {
            set.definitions.insert(definition.name, definition.body);
        }
    }
}
