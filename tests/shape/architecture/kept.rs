//! Holds `docs/bounds.md` to the code: whatever is kept and can grow has a row there, with who
//! chooses it, what bounds it, and who forgets it. So a field that a hostile worker cluster fills
//! is not added by the way, and a bound that a row names is not removed.
//!
//! Kept is what a lock, a channel, a store or an `Arc` in a field holds, the struct around a lock,
//! and what a loop owns. What a function has in a variable is not seen, and neither is what a
//! library keeps.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use super::circles::is_for_tests;
use super::first_word;
use super::source::{self, Source};

/// The modules that keep something about tenants. A command ends, and a type of another module,
/// such as an object of the API, is one field wherever it is kept.
const KEEPERS: &str = " client controllers fleet plan render_worker telemetry tenant ";

/// What holds state that changes, and what shares it.
const LOCKS: &str = " DashMap Mutex OnceCell OnceLock Receiver RwLock Sender Store ";
const SHARED: &str = " Arc Weak ";

/// Structs without a lock that a loop, a watch or a task owns.
const OWNED_BY_LOOPS: &str = " account::Account context::Context engagement::Engagement \
    hints::Hints kkp::Finder machine_rollout::Rollout observed_leases::ObservedLeases \
    precautions::CrashLog profile_store::Follower quarantine::Quarantine \
    response_filter::ResponseFilter supervisor::Supervisor tenant_status::ConditionLog ";

/// Texts of their own file: what has one is kept, not how it is wrapped.
const TEXTS: &str = " SecretBytes SecretText ";

/// Foreign types that do not grow: numbers, times, closed sets, handles, and what only wraps
/// another. A type that is neither here nor in the keepers needs a row wherever it is kept.
const FIXED: &str = " Api Arc AtomicBool AtomicI64 AtomicU32 AtomicU64 AtomicUsize Box BoxStream \
    CancellationToken Client ClusterKind ConditionType Credentials Duration Home Instant IpAddr \
    MachineDeploymentState MachineRollout Mutex NodeCredentials NonZeroU32 Notify OnceCell \
    OnceLock Option PathBuf ProfileRollout Reason Receiver Result RwLock Semaphore Sender \
    StoredConfig Timestamp Trigger Weak Zeroizing bool f64 i64 u16 u32 u64 u8 usize ";

fn has(words: &str, word: &str) -> bool {
    words.contains(&format!(" {word} "))
}

/// A file: its types with their fields, and the module that each imported name comes from.
struct File {
    path: String,
    module: String,
    kinds: Vec<(String, Vec<(String, Paths)>)>,
    imports: BTreeMap<String, String>,
}

/// The paths in the type of a field: all, and those that something holds or shares.
#[derive(Default)]
struct Paths {
    all: Vec<Vec<String>>,
    held: Vec<Vec<String>>,
    is_locked: bool,
    depth: usize,
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_type(&mut self, kind: &'ast syn::Type) {
        match kind {
            syn::Type::FnPtr(_) | syn::Type::TraitObject(_) | syn::Type::Reference(_) => {}
            syn::Type::Slice(it) => {
                self.all.push(vec!["slice".to_owned()]);
                self.visit_type(&it.elem);
            }
            _ => visit::visit_type(self, kind),
        }
    }

    fn visit_type_path(&mut self, kind: &'ast syn::TypePath) {
        let words = kind.path.segments.iter().map(|it| it.ident.to_string());
        let words: Vec<String> = words.collect();
        let last = words.last().cloned().unwrap_or_default();
        if self.depth > 0 {
            self.held.push(words.clone());
        }
        self.all.push(words);
        let is_lock = has(LOCKS, &last);
        let holds = usize::from(is_lock || has(SHARED, &last));
        self.is_locked |= is_lock;
        self.depth += holds;
        visit::visit_type_path(self, kind);
        self.depth -= holds;
    }
}

impl File {
    fn new(source: &Source<'_>) -> Self {
        let mut file = Self {
            path: source.path.to_owned(),
            module: (*source.module_path().last().unwrap_or(&"")).to_owned(),
            kinds: Vec::new(),
            imports: BTreeMap::new(),
        };
        file.visit_file(&syn::parse_file(source.text).expect("the compiler reads it, too"));
        file
    }

    fn add(&mut self, name: &syn::Ident, generics: &syn::Generics, fields: Vec<Field<'_>>) {
        let parameters = generics.type_params().map(|it| vec![it.ident.to_string()]);
        let parameters: Vec<_> = parameters.collect();
        let fields = fields.into_iter().map(|(field, kind)| {
            let mut paths = Paths::default();
            paths.visit_type(kind);
            paths.all.retain(|it| !parameters.contains(it));
            (field, paths)
        });
        self.kinds.push((name.to_string(), fields.collect()));
    }

    fn add_tree(&mut self, module: &str, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(it) => self.add_tree(&it.ident.to_string(), &it.tree),
            syn::UseTree::Group(it) => it.items.iter().for_each(|it| self.add_tree(module, it)),
            syn::UseTree::Name(it) => {
                self.imports.insert(it.ident.to_string(), module.to_owned());
            }
            syn::UseTree::Rename(_) | syn::UseTree::Glob(_) => {}
        }
    }

    /// The name of a type in a row.
    fn title(&self, kind: &str) -> String {
        format!("{}::{kind}", self.module)
    }
}

type Field<'a> = (String, &'a syn::Type);

fn named<'a>(fields: &'a syn::Fields, before: &str) -> Vec<Field<'a>> {
    let named = fields.iter().enumerate().map(|(index, field)| {
        let name = field.ident.as_ref().map(ToString::to_string);
        let name = name.unwrap_or_else(|| index.to_string());
        (format!("{before}{name}"), &field.ty)
    });
    named.collect()
}

impl<'ast> Visit<'ast> for File {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree("", &item.tree);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        let fields = vec![("0".to_owned(), &*item.ty)];
        self.add(&item.ident, &item.generics, fields);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add(&item.ident, &item.generics, named(&item.fields, ""));
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        let variants = item.variants.iter();
        let fields = variants.flat_map(|it| named(&it.fields, &format!("{}.", it.ident)));
        self.add(&item.ident, &item.generics, fields.collect());
    }
}

/// A type: the file that it is in, and its place there.
type Kind<'a> = (&'a File, usize);

/// The own types that a path in a file leads to.
fn resolve<'a>(files: &'a [File], file: &'a File, path: &[String]) -> Vec<Kind<'a>> {
    let of = |it: &'a File| {
        let kinds = it.kinds.iter().enumerate();
        let is_it = kinds.filter(|(_, (name, _))| path.last() == Some(name) && !has(TEXTS, name));
        is_it.map(|(index, _)| (it, index)).collect::<Vec<_>>()
    };
    let from = match path {
        [.., module, _] => module,
        [name] => match file.imports.get(name) {
            Some(module) => module,
            None => return of(file),
        },
        [] => return Vec::new(),
    };
    let from = match from.as_str() {
        "super" => file.path.rsplit('/').nth(1).unwrap_or_default(),
        "self" => &file.module,
        other => other,
    };
    let below = format!("/{from}/");
    let from = files
        .iter()
        .filter(|it| it.module == from || it.path.contains(&below));
    from.flat_map(of).collect()
}

/// The fields that are kept and can grow, by the names that rows have, with their files.
fn kept(files: &[File]) -> BTreeMap<String, &str> {
    let mut open = Vec::new();
    for file in files {
        for (index, (name, fields)) in file.kinds.iter().enumerate() {
            let has_lock = fields.iter().any(|(_, it)| it.is_locked);
            if has_lock || has(OWNED_BY_LOOPS, &file.title(name)) {
                open.push((file, index));
            }
            let held = fields.iter().flat_map(|(_, it)| &it.held);
            open.extend(held.flat_map(|it| resolve(files, file, it)));
        }
    }
    let (mut kept, mut seen) = (BTreeMap::new(), BTreeSet::new());
    while let Some((file, index)) = open.pop() {
        let Some((name, fields)) = file
            .kinds
            .get(index)
            .filter(|_| seen.insert((&file.path, index)))
        else {
            continue;
        };
        for (field, paths) in fields {
            for path in &paths.all {
                let own = resolve(files, file, path);
                let last = path.last().map_or("", String::as_str);
                if own.is_empty() && !has(FIXED, last) {
                    kept.insert(format!("{}.{field}", file.title(name)), file.path.as_str());
                }
                open.extend(own);
            }
        }
    }
    kept
}

/// What stands between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Whether a row's name is that of a field. One that ends with a star is of all that begin so.
fn is_of(name: &str, field: &str) -> bool {
    let all = name.strip_suffix('*');
    all.map_or(name == field, |all| field.starts_with(all))
}

/// The constants, functions, types and fields that a text defines; a flag is a field.
fn defined(source: &str) -> BTreeSet<&str> {
    let marks = ["const ", "fn ", "struct ", "enum ", "pub "];
    let words = marks.iter().flat_map(|mark| source.split(mark).skip(1));
    words.map(first_word).collect()
}

/// The last word of a name in a row, as the code has it.
fn in_code(name: &str) -> String {
    let last = name.rsplit("::").next().unwrap_or_default();
    last.trim_start_matches("--").replace('-', "_")
}

/// What of the page does not fit the code.
fn broken(kept: &BTreeMap<String, &str>, page: &str, source: &str) -> Vec<String> {
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let rows = rows.map(|line| {
        line.trim_matches(&['|', ' '][..])
            .split(" | ")
            .collect::<Vec<_>>()
    });
    let (mut broken, mut names) = (Vec::new(), Vec::new());
    let defined = defined(source);
    for row in rows {
        let [fields, _, chosen, bound, forgotten] = row[..] else {
            broken.push(format!("a row has other cells than five: {row:?}"));
            continue;
        };
        let is_theirs = chosen.contains("worker cluster");
        for name in quoted(fields) {
            if !kept.keys().any(|field| is_of(name, field)) {
                broken.push(format!("`{name}` is not kept any more: delete it"));
            }
            if is_theirs && name.ends_with('*') {
                broken.push(format!(
                    "`{name}`: name each field that a worker cluster chooses"
                ));
            }
        }
        if is_theirs && !bound.contains('`') {
            broken.push(format!(
                "{fields}: name the constant that bounds it: {bound}"
            ));
        }
        let words = [bound, forgotten].into_iter().flat_map(quoted);
        let gone = words.filter(|name| !defined.contains(&*in_code(name)));
        broken.extend(gone.map(|name| format!("{fields}: the source has no `{name}`")));
        names.extend(quoted(fields));
    }
    let is_missing = |field: &&String| !names.iter().any(|name| is_of(name, field));
    broken.extend(kept.keys().filter(is_missing).map(|field| {
        let path = kept.get(field).copied().unwrap_or_default();
        format!(
            "{path}: `{field}` is kept and can grow: write a row that says who chooses it, which \
             constant bounds it, and which function forgets it"
        )
    }));
    broken
}

#[test]
fn whatever_is_kept_has_a_bound_and_somebody_forgets_it() {
    let all = source::all("src", "rs");
    let sources = all.iter().map(|(path, text)| Source { path, text });
    let keepers = sources.filter(|it| {
        let is_keeper = it.module_path().first().is_some_and(|it| has(KEEPERS, it));
        is_keeper && !it.is_test()
    });
    let files: Vec<File> = keepers.map(|it| File::new(&it)).collect();
    let texts: String = all.iter().map(|(_, text)| text.as_str()).collect();
    let page = source::all("docs", "md").into_iter();
    let page = page.filter(|(path, _)| path == "docs/bounds.md");
    let page: String = page.map(|(_, text)| text).collect();
    let broken = broken(&kept(&files), &page, &texts);
    assert!(broken.is_empty(), "docs/bounds.md:\n{}", broken.join("\n"));
}

#[test]
fn a_field_without_a_row_and_a_row_without_a_field_or_bound_are_reported() {
    let text = "use crate::b::Inner; struct Outer { inner: Mutex<Inner>, count: u64 }";
    let inner =
        "pub struct Inner { known: HashMap<u64, Instant>, at: Instant, secret: SecretText }";
    let files = [("src/fleet/a.rs", text), ("src/fleet/b.rs", inner)];
    let files = files.map(|(path, text)| File::new(&Source { path, text }));
    let kept = kept(&files);
    let fields: Vec<_> = kept.keys().map(String::as_str).collect();
    assert_eq!(fields, ["b::Inner.known", "b::Inner.secret"]);
    let secret = "| `b::Inner.secret` | x | worker cluster | `KEPT_MAX` | `forget` |\n";
    let source = "const KEPT_MAX: usize = 1; fn forget() {}";
    for (row, expected) in [
        ("| `b::Inner.known` | x | us | one | never |", ""),
        ("| `b::Inner.*` | x | operator | one | never |", ""),
        ("", "src/fleet/b.rs: `b::Inner.known` is kept"),
        (
            "| `b::Inner.*` | x | worker cluster | `KEPT_MAX` | x |",
            "`b::Inner.*`: name each",
        ),
        (
            "| `b::Inner.known` | x | worker cluster | one | x |",
            "`b::Inner.known`: name the",
        ),
        (
            "| `b::Inner.known` | x | us | `GONE_MAX` | x |",
            "`b::Inner.known`: the source has no",
        ),
        ("| `b::Inner.known` | x | us |", "a row has other cells"),
        (
            "| `b::Inner.known`, `a::Outer.gone` | x | us | x | x |",
            "`a::Outer.gone` is not kept",
        ),
    ] {
        let broken = broken(&kept, &format!("{secret}{row}\n"), source);
        let is_expected = match &broken[..] {
            [] => expected.is_empty(),
            [first, ..] => !expected.is_empty() && first.starts_with(expected),
        };
        assert!(is_expected, "{row}: {broken:?}");
    }
}
