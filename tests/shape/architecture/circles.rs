//! Circles of files: files that use each other, directly or by way of others. A module may use what
//! is inside of it, and what is inside may use the module: they are one thing. Every path counts,
//! in `use` and inline, but for tests.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

/// The files of a crate, by the path of their module, such as `["fleet", "registry"]`. The root has
/// an empty one.
pub type Files = BTreeMap<Vec<String>, String>;

/// Returns the circles of a crate: of each, which file uses which.
pub fn circles(files: &Files) -> Vec<Vec<String>> {
    let uses: Uses = files
        .iter()
        .map(|(module, text)| (module.clone(), used(module, text, files)))
        .collect();
    let arrows = |circle: &BTreeSet<Vec<String>>| -> Vec<String> {
        let inside = uses.iter().filter(|(file, _)| circle.contains(*file));
        inside
            .flat_map(|(file, others)| others.iter().map(move |other| (file, other)))
            .filter(|(_, other)| circle.contains(*other))
            .map(|(file, other)| format!("{} -> {}", file.join("::"), other.join("::")))
            .collect()
    };
    let groups = together(&uses);
    let circles = groups.iter().filter(|it| it.len() > 1);
    circles.map(arrows).collect()
}

/// The modules that a file uses, without itself, what is around it, and what is inside of it.
fn used(module: &[String], text: &str, files: &Files) -> BTreeSet<Vec<String>> {
    let paths = Paths::of(module, text);
    let known = |path: &Vec<String>| {
        let mut module = path.clone();
        while !files.contains_key(&module) {
            module.pop()?;
        }
        Some(module)
    };
    let found = paths.found.iter().filter_map(known);
    found
        .filter(|other| !other.starts_with(module) && !module.starts_with(other))
        .collect()
}

/// Returns the paths of a file that lead out of its crate, such as `std::fs::read`.
pub fn outside(text: &str) -> BTreeSet<String> {
    Paths::of(&[], text).outside
}

/// The paths of a file.
struct Paths {
    /// The module that is visited.
    inside: Vec<String>,
    /// Those behind `crate`, `self` and `super`, from the root.
    found: BTreeSet<Vec<String>>,
    /// All others, as they are written.
    outside: BTreeSet<String>,
}

impl Paths {
    fn of(module: &[String], text: &str) -> Self {
        let mut paths = Self {
            inside: module.to_vec(),
            found: BTreeSet::new(),
            outside: BTreeSet::new(),
        };
        let file = syn::parse_file(text).expect("the compiler reads it, too");
        paths.visit_file(&file);
        paths
    }

    fn add(&mut self, words: &[String]) {
        let Some(first) = words.first() else { return };
        let mut path = match first.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => self.inside.clone(),
            _ => {
                self.outside.insert(words.join("::"));
                return;
            }
        };
        for word in words {
            match word.as_str() {
                "crate" | "self" => {}
                "super" => drop(path.pop()),
                _ => path.push(word.clone()),
            }
        }
        self.found.insert(path);
    }

    fn add_tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |word: &syn::Ident| [before, &[word.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.add_tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.add(&with(&name.ident)),
            syn::UseTree::Rename(rename) => self.add(&with(&rename.ident)),
            syn::UseTree::Glob(_) => self.add(before),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|it| self.add_tree(before, it));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.inside.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.inside.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words = path.segments.iter().map(|it| it.ident.to_string());
        self.add(&words.collect::<Vec<_>>());
        visit::visit_path(self, path);
    }

    /// Arguments of a macro are paths where they look like one.
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        let text = call.tokens.to_string().replace(' ', "");
        let is_word = |it: char| it.is_alphanumeric() || it == '_' || it == ':';
        for path in text.split(|it| !is_word(it)) {
            let words = path.split("::").map(str::to_owned);
            self.add(&words.collect::<Vec<_>>());
        }
    }
}

pub fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Fn(it) => &it.attrs,
        syn::Item::Impl(it) => &it.attrs,
        syn::Item::Mod(it) => &it.attrs,
        syn::Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

pub fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|it| {
        let condition = it
            .path()
            .is_ident("cfg")
            .then(|| it.parse_args::<syn::Path>());
        condition.is_some_and(|it| it.is_ok_and(|it| it.is_ident("test")))
    })
}

type Uses = BTreeMap<Vec<String>, BTreeSet<Vec<String>>>;

/// Groups files of which each is reached from each (Kosaraju).
fn together(uses: &Uses) -> Vec<BTreeSet<Vec<String>>> {
    let mut used_by = Uses::new();
    for (file, others) in uses {
        for other in others {
            used_by
                .entry(other.clone())
                .or_default()
                .insert(file.clone());
        }
    }
    let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
    for file in uses.keys() {
        walk(uses, file, &mut seen, &mut order);
    }
    let (mut groups, mut seen) = (Vec::new(), BTreeSet::new());
    for file in order.iter().rev() {
        let mut group = Vec::new();
        walk(&used_by, file, &mut seen, &mut group);
        groups.push(group.into_iter().collect());
    }
    groups
}

/// Visits what can be reached from a file, the farthest first.
fn walk(
    uses: &Uses,
    file: &Vec<String>,
    seen: &mut BTreeSet<Vec<String>>,
    order: &mut Vec<Vec<String>>,
) {
    if !seen.insert(file.clone()) {
        return;
    }
    for other in uses.get(file).into_iter().flatten() {
        walk(uses, other, seen, order);
    }
    order.push(file.clone());
}

/// A file by its module as paths name it.
fn file((module, text): (&str, &str)) -> (Vec<String>, String) {
    let names = module.split("::").filter(|it| !it.is_empty());
    (names.map(str::to_owned).collect(), text.to_owned())
}

#[test]
fn a_circle_is_found_whatever_way_a_path_is_written() {
    for (first, second) in [
        ("use crate::{a::b, c};", "use super::a;"),
        ("fn f() { crate::c::g() }", "fn g(_: crate::a::A) {}"),
        ("use super::c::*;", "mod inner { use super::super::a; }"),
        (
            "fn f() { println!(\"{}\", crate::c::X) }",
            "use crate::a::A;",
        ),
    ] {
        let files = [
            ("a", first),
            ("c", second),
            ("a::b", ""),
            ("", "mod a; mod c;"),
        ];
        let found = circles(&files.map(file).into());
        assert_eq!(found, [["a -> c", "c -> a"]], "{first} {second}");
    }
    for (first, second) in [
        (
            "use self::b::B; use crate::c;",
            "#[cfg(test)] mod tests { use crate::a; }",
        ),
        ("use crate::c;", "// use crate::a;"),
        ("use self::b::B;", "use std::fmt;"),
    ] {
        let files = [
            ("a", first),
            ("c", second),
            ("a::b", "use super::A;"),
            ("", ""),
        ];
        let found = circles(&files.map(file).into());
        assert!(found.is_empty(), "{first} {second}: {found:?}");
    }
}
