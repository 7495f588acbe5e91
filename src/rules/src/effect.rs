//! What it would take to bring a changed document into effect on a machine that was made from the
//! old one: a class for each file, unit and key that differs.
//!
//! It is less than a new machine only if that is known to be enough.

mod document;
mod syntax;
mod table;

use std::{collections::BTreeSet, fmt};

use serde::Serialize;

use self::document::{Content, Part, parts};

/// What has to happen on a running machine so that a change is in effect. Each class includes those
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Class {
    /// Nothing: both say the same.
    None,
    /// Its program reads the file again by itself.
    Reload,
    /// Units are restarted that no pod notices.
    RestartUnit,
    /// The kubelet is restarted. Pods go on.
    RestartKubelet,
    /// containerd is restarted. Pods go on.
    RestartContainerd,
    /// The node is drained first, because its pods would notice.
    Drain,
    /// It is read at boot alone.
    Reboot,
    /// Only a new machine has it.
    NewMachine,
}

impl Class {
    /// All classes, the least first.
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::Reload,
        Self::RestartUnit,
        Self::RestartKubelet,
        Self::RestartContainerd,
        Self::Drain,
        Self::Reboot,
        Self::NewMachine,
    ];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Reload => "Reload",
            Self::RestartUnit => "RestartUnit",
            Self::RestartKubelet => "RestartKubelet",
            Self::RestartContainerd => "RestartContainerd",
            Self::Drain => "Drain",
            Self::Reboot => "Reboot",
            Self::NewMachine => "NewMachine",
        }
    }

    /// Returns the class of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The effect of one difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Effect {
    /// The path of a file or a unit, another key of the document, or the document itself.
    pub part: String,
    /// What it takes.
    pub class: Class,
    /// The units to restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<&'static str>,
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

/// Returns the effect of each difference between the documents of a machine; empty if there is
/// none. No content is quoted.
pub fn effects(old: Documents<'_>, new: Documents<'_>) -> Vec<Effect> {
    let mut effects = Vec::new();
    // A machine reads it once.
    if old.bootstrap != new.bootstrap {
        effects.push(Effect::new_machine("bootstrap document"));
    }
    if old.provisioning == new.provisioning {
        return effects;
    }
    let sides = parts(old.provisioning).zip(parts(new.provisioning));
    let Some((old, new)) = sides else {
        effects.push(Effect::new_machine("provisioning document"));
        return effects;
    };
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut found: Vec<Effect> = names
        .into_iter()
        .filter_map(|name| {
            let sides = (old.get(name), new.get(name));
            (sides.0 != sides.1).then(|| of_file(name, sides))
        })
        .collect();
    found.sort_by_key(|effect| std::cmp::Reverse(effect.class));
    effects.extend(found);
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
            _ => known.units.to_vec(),
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
