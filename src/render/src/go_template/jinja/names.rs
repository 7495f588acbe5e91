//! The names of a template's variables: those that the author chose, if they are free.

use std::collections::BTreeSet;

use super::{super::data::is_root_field, code::WORDS};

/// Functions that a variable of this name would hide.
const FUNCTIONS: [&str; 5] = ["range", "dict", "namespace", "semver_matches", "b64encode"];

/// The names that are taken.
#[derive(Clone, Debug, Default)]
pub(in crate::go_template) struct Names(BTreeSet<String>);

impl Names {
    /// Takes a free name that is as close as possible to the requested one.
    pub(super) fn take(&mut self, wanted: &str) -> String {
        let mut name: String = wanted
            .chars()
            .map(|next| {
                if next.is_ascii_alphanumeric() {
                    next
                } else {
                    '_'
                }
            })
            .collect();
        if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
            name.insert_str(0, "value");
        }
        let is_prefix = |prefix| name.starts_with(prefix);
        if is_reserved(&name) || is_prefix("go_") || is_prefix("osm_") {
            name.push_str("_value");
        }
        let mut free = name.clone();
        let mut count = 1;
        while !self.0.insert(free.clone()) {
            count += 1;
            free = format!("{name}_{count}");
        }
        free
    }

    /// Releases names whose scope has ended.
    pub(super) fn release(&mut self, names: &[String]) {
        for name in names {
            self.0.remove(name);
        }
    }
}

fn is_reserved(name: &str) -> bool {
    is_root_field(name) || FUNCTIONS.contains(&name) || WORDS.contains(&name)
}
