//! What it would take to bring a changed document into effect on a machine that was made from the
//! old one: a class for each file, unit and key that differs.
//!
//! It is less than a new machine only if that is known to be enough.

mod document;
mod syntax;
mod table;

use std::collections::BTreeSet;

use serde::Serialize;

use self::document::{Content, Part, parts};
use super::user_data::SECRET_BYTES_MAX;
use osm_api::{change::Class, profile::DeclaredEffect};
use osm_render::Rendered;

/// The effect of one difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Effect {
    /// The path of a file or a unit, another key of the document, or the document itself.
    pub part: String,
    /// What it takes.
    pub class: Class,
    /// The units to restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<String>,
}

impl Effect {
    /// Returns the effect of something that only a new machine has.
    pub fn new_machine(part: &str) -> Self {
        Self {
            part: part.to_owned(),
            class: Class::NewMachine,
            units: Vec::new(),
        }
    }
}

/// The highest number of effects, the greatest first, and the longest name of a part: the tenant
/// writes the existing documents.
const EFFECTS_MAX: usize = 100;
const NAME_CHARACTERS_MAX: usize = 256;

/// The two documents of a machine.
#[derive(Clone, Copy)]
pub struct Documents<'a> {
    /// What it boots with. It contains a token.
    pub bootstrap: &'a [u8],
    /// What makes a node of it. It contains secrets.
    pub provisioning: &'a [u8],
}

impl<'a> Documents<'a> {
    /// Returns the documents of a render.
    pub fn of(rendered: &'a Rendered) -> Self {
        Self {
            bootstrap: rendered.bootstrap.as_bytes(),
            provisioning: rendered.provisioning.as_bytes(),
        }
    }
}

/// Returns the effect of each difference between the documents of a machine; empty if there is
/// none. No content is quoted.
pub fn effects(old: Documents<'_>, new: Documents<'_>, declared: &[DeclaredEffect]) -> Vec<Effect> {
    let mut effects = Vec::new();
    // A machine reads it once.
    if old.bootstrap != new.bootstrap {
        effects.push(Effect::new_machine("bootstrap document"));
    }
    effects.extend(of_provisioning(
        (old.provisioning, new.provisioning),
        declared,
    ));
    effects.truncate(EFFECTS_MAX);
    effects
}

/// Returns the effect of each difference between two provisioning documents, the greatest first;
/// empty if there is none. No content is quoted.
pub fn of_provisioning((old, new): (&[u8], &[u8]), declared: &[DeclaredEffect]) -> Vec<Effect> {
    if old == new {
        return Vec::new();
    }
    let old = (old.len() <= SECRET_BYTES_MAX)
        .then(|| parts(old))
        .flatten();
    let Some((old, new)) = old.zip(parts(new)) else {
        return vec![Effect::new_machine("provisioning document")];
    };
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut effects: Vec<Effect> = names
        .into_iter()
        .filter_map(|name| {
            let sides = (old.get(name), new.get(name));
            let own = declared.iter().find(|it| it.path == *name);
            (sides.0 != sides.1).then(|| own.map_or_else(|| of_file(name, sides), of_declared))
        })
        .collect();
    effects.sort_by_key(|effect| std::cmp::Reverse(effect.class));
    effects.truncate(EFFECTS_MAX);
    for effect in &mut effects {
        effect.part = effect.part.chars().take(NAME_CHARACTERS_MAX).collect();
    }
    effects
}

/// Returns the class of all effects together.
pub fn class(effects: &[Effect]) -> Class {
    let classes = effects.iter().map(|effect| effect.class);
    classes.max().unwrap_or(Class::None)
}

/// The number of parts that are named, and the maximum length of each.
const PARTS_MAX: usize = 3;
const PART_CHARACTERS_MAX: usize = 80;

/// Names the parts that take the most, in at most 300 characters.
pub fn greatest_parts(effects: &[Effect]) -> String {
    let class = class(effects);
    let greatest = effects.iter().filter(|it| it.class == class);
    let greatest: Vec<&str> = greatest.map(|it| it.part.as_str()).collect();
    let shortened = greatest.iter().take(PARTS_MAX);
    let shortened = shortened.map(|it| it.chars().take(PART_CHARACTERS_MAX).collect());
    let first = shortened.collect::<Vec<String>>().join(", ");
    match greatest.len().saturating_sub(PARTS_MAX) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Returns what the author of the profile says.
fn of_declared(declared: &DeclaredEffect) -> Effect {
    let units = match declared.class {
        // The API server refuses it.
        Class::RestartUnit if declared.units.is_empty() => {
            return Effect::new_machine(&declared.path);
        }
        Class::RestartKubelet => vec!["kubelet.service".to_owned()],
        Class::RestartContainerd => vec!["containerd.service".to_owned()],
        _ => declared.units.clone(),
    };
    Effect {
        part: declared.path.clone(),
        class: declared.class,
        units,
    }
}

fn of_file(path: &str, (old, new): (Option<&Part>, Option<&Part>)) -> Effect {
    let Some((known, syntax)) = table::find(path) else {
        return Effect::new_machine(path);
    };
    let Some(sides) = text(old).zip(text(new)) else {
        return Effect::new_machine(path);
    };
    let is_other_file = old.map(|part| part.mode) != new.map(|part| part.mode);
    let at_least = match (is_other_file, new) {
        (true, None) => known.class.max(known.when_gone),
        (true, Some(_)) => known.class,
        (false, _) => Class::None,
    };
    let class = syntax.class(known.class, sides).max(at_least);
    Effect {
        part: path.to_owned(),
        class,
        units: match class {
            Class::None | Class::NewMachine => Vec::new(),
            _ => known.units.iter().map(|it| (*it).to_owned()).collect(),
        },
    }
}

/// Returns what a program would read, if that is known. Of a missing file, that is nothing.
fn text(part: Option<&Part>) -> Option<&str> {
    match part.map(|part| &part.content) {
        Some(Content::Text(text)) => Some(text),
        Some(Content::Opaque(_)) => None,
        None => Some(""),
    }
}

#[cfg(test)]
mod tests;
