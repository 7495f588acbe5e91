//! Rewrites the templates of one half in Jinja.

use std::collections::BTreeSet;

use super::{
    jinja::{self, Names},
    parser::parse,
    translate::Set,
    tree::Refusal,
};

/// A text, or the line and the reason why it cannot be rewritten.
type Converted = Result<String, (usize, String)>;

/// Rewrites the templates of one half. The named ones must come first.
pub(crate) struct HalfConverter {
    /// The names of the named templates.
    templates: BTreeSet<String>,
    /// The names that their variables take. An included template shares the names of its includer.
    names: Names,
}

impl HalfConverter {
    pub(crate) fn new(templates: BTreeSet<String>) -> Self {
        Self {
            templates,
            names: Names::default(),
        }
    }

    /// Rewrites a named template.
    pub(crate) fn named(&mut self, name: &str, source: &str) -> Converted {
        if name.contains(['"', '\\', '\n']) {
            let problem = "its name has a quote, a backslash or a line break, which Go reads when \
                           it reads the template once more; rename it";
            return Err((1, problem.to_owned()));
        }
        read(source).and_then(|set| jinja::named(&set, &mut self.names).map_err(describe))
    }

    /// Rewrites a file.
    pub(crate) fn file(&self, path: &str, source: &str) -> Converted {
        let set = read(source)?;
        let is_replaced = |name: &&str| self.templates.contains(*name);
        let own = set.definitions.keys().map(String::as_str);
        if let Some(name) = std::iter::once(path).chain(own).find(is_replaced) {
            let problem = format!(
                "the profile has a template `{name}` as well, which takes the place of this one; \
                 rename one of the two"
            );
            return Err((1, problem));
        }
        jinja::file(&set, &self.templates, &self.names).map_err(describe)
    }
}

fn read(source: &str) -> Result<Set, (usize, String)> {
    parse(source).map(Set::from).map_err(describe)
}

fn describe(refusal: Refusal) -> (usize, String) {
    (refusal.line, refusal.problem)
}
