//! How a program reads a text, and what a difference of two texts takes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Class, document::yaml};

/// Names, by the class that a change of them has. Any other name needs a new machine.
pub(super) type Fields = &'static [(Class, &'static [&'static str])];

/// How a program reads a text.
#[derive(Clone, Copy)]
pub(super) enum Syntax {
    /// Every byte counts.
    Bytes,
    /// The kernel's settings, as systemd-sysctl reads them.
    Settings,
    /// A unit of systemd, with the flags of its command.
    Unit(Fields),
    /// YAML with the fields of the first level.
    Yaml(Fields),
    /// TOML with fields at any level.
    Toml(Fields),
}

impl Syntax {
    /// Returns the class of a change, which is `all` where everything has the same.
    pub(super) fn class(self, all: Class, (old, new): (&str, &str)) -> Class {
        match self {
            Self::Bytes if old == new => Class::None,
            Self::Bytes => all,
            Self::Settings => of_settings(all, (old, new)),
            Self::Unit(fields) => of_unit(fields, (old, new)),
            Self::Yaml(fields) => {
                let sides = yaml(old).zip(yaml(new));
                let of = |(old, new)| of_fields(fields, Depth::First, (&old, &new));
                sides.map_or(Class::NewMachine, of)
            }
            Self::Toml(fields) => {
                let parse = |text| toml::from_str::<Map<String, Value>>(text).ok();
                let sides = parse(old).zip(parse(new));
                let of = |(old, new)| of_fields(fields, Depth::Any, (&old, &new));
                sides.map_or(Class::NewMachine, of)
            }
        }
    }
}

fn named(fields: Fields, name: &str) -> Option<Class> {
    let found = fields.iter().find(|(_, names)| names.contains(&name));
    found.map(|(class, _)| *class)
}

/// Where the fields are that have a class.
#[derive(Clone, Copy)]
enum Depth {
    First,
    Any,
}

/// Returns the class of the fields that differ. A field that is there differs from a missing one,
/// whatever it holds.
fn of_fields(
    fields: Fields,
    depth: Depth,
    (old, new): (&Map<String, Value>, &Map<String, Value>),
) -> Class {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let classes = names.into_iter().map(|name| {
        let sides = (old.get(name), new.get(name));
        match (sides, depth) {
            _ if sides.0 == sides.1 => Class::None,
            _ if let Some(class) = named(fields, name) => class,
            ((Some(Value::Object(old)), Some(Value::Object(new))), Depth::Any) => {
                of_fields(fields, depth, (old, new))
            }
            _ => Class::NewMachine,
        }
    });
    classes.max().unwrap_or(Class::None)
}

/// The line of a unit, with what follows a `\\` at its end, below its section.
type Line<'a> = (&'a str, String);

fn of_unit(fields: Fields, (old, new): (&str, &str)) -> Class {
    let (old, new) = (unit_lines(old), unit_lines(new));
    if old == new {
        return Class::None;
    }
    let mut counts: BTreeMap<&Line<'_>, i64> = BTreeMap::new();
    for (lines, one) in [(&old, 1), (&new, -1)] {
        for line in lines {
            *counts.entry(line).or_default() += one;
        }
    }
    let differing: Vec<_> = counts.iter().filter(|(_, count)| **count != 0).collect();
    // Only their order differs.
    if differing.is_empty() {
        return Class::NewMachine;
    }
    let commands = |is_of: fn(i64) -> bool| {
        let lines = differing.iter().filter(move |(_, count)| is_of(**count));
        let commands = lines.filter_map(|(line, _)| line.1.strip_prefix("ExecStart="));
        commands.map(words).collect::<Vec<_>>()
    };
    let command = match (&*commands(|count| count > 0), &*commands(|count| count < 0)) {
        ([], []) => Class::None,
        ([old], [new]) => of_command(fields, (old, new)),
        _ => named(fields, "ExecStart").unwrap_or(Class::NewMachine),
    };
    let others = differing.iter().filter_map(|((section, line), _)| {
        let (name, _) = line.split_once('=').unwrap_or((line, ""));
        let is_key = matches!(*section, "[Unit]" | "[Service]") && !name.starts_with('-');
        let class = named(fields, name).filter(|_| is_key);
        let is_command = (*section, name) == ("[Service]", "ExecStart");
        (!is_command).then_some(class.unwrap_or(Class::NewMachine))
    });
    others.max().unwrap_or(Class::None).max(command)
}

/// Returns the class of the flags that differ, each with its value behind a `=`.
fn of_command(fields: Fields, (old, new): (&[&str], &[&str])) -> Class {
    if let Some(class) = named(fields, "ExecStart") {
        return class;
    }
    let (old, new): (BTreeSet<&str>, BTreeSet<&str>) =
        (old.iter().copied().collect(), new.iter().copied().collect());
    let differing = old.symmetric_difference(&new);
    let classes = differing.map(|word| {
        let flag = word.split_once('=').map_or("", |(flag, _)| flag);
        let class = named(fields, word).or_else(|| named(fields, flag));
        class.unwrap_or(Class::NewMachine)
    });
    // Only their order differs.
    classes.max().unwrap_or(Class::NewMachine)
}

fn words(command: &str) -> Vec<&str> {
    let words = command.split_whitespace();
    words.map(|word| word.trim_matches(['"', '\''])).collect()
}

/// Returns the lines of a unit that say something.
fn unit_lines(text: &str) -> Vec<Line<'_>> {
    let (mut section, mut lines, mut open) = ("", Vec::new(), false);
    for line in text.lines() {
        let said = line.trim_start();
        if said.starts_with(['#', ';']) || (said.is_empty() && !open) {
            continue;
        }
        if !open && said.starts_with('[') {
            section = said.trim_end();
            continue;
        }
        // Of two at the end, the first one escapes the second.
        let goes_on = said.chars().rev().take_while(|it| *it == '\\').count() % 2 == 1;
        let part = said.strip_suffix('\\').filter(|_| goes_on).unwrap_or(said);
        match lines.last_mut() {
            Some((_, last)) if open => {
                let last: &mut String = last;
                last.push(' ');
                last.push_str(part);
            }
            _ => lines.push((section, part.to_owned())),
        }
        open = goes_on;
    }
    lines
}

/// Settings that devices take over when they appear.
const OF_NEW_DEVICES: [&str; 2] = ["net.ipv4.conf.default.", "net.ipv6.conf.default."];

fn of_settings(all: Class, (old, new): (&str, &str)) -> Class {
    let (old, new) = (settings(old), settings(new));
    let is_kept = |name: &&str| new.contains_key(name);
    if !old.keys().all(is_kept) {
        return Class::Reboot;
    }
    let differing = new
        .iter()
        .filter(|(name, value)| old.get(*name) != Some(value));
    let is_of_new_devices = |name: &str| OF_NEW_DEVICES.iter().any(|it| name.starts_with(it));
    let classes = differing.map(|(name, value)| match value {
        Some(_) if !is_of_new_devices(name) => all,
        _ => Class::Reboot,
    });
    classes.max().unwrap_or(Class::None)
}

/// Returns the settings by name. A line without a value is about what not to set.
fn settings(text: &str) -> BTreeMap<&str, Option<&str>> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    lines
        .map(|line| match line.split_once('=') {
            // A `-` ignores failures.
            Some((name, value)) => (name.trim().trim_start_matches('-'), Some(value.trim())),
            None => (line, None),
        })
        .collect()
}
