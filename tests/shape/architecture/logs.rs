//! Log lines about a tenant name it, so that an operator of a thousand knows which one it is.

use syn::visit::{self, Visit};

use crate::architecture::circles::{attributes, is_for_tests};
use crate::architecture::source;

/// The modules whose lines are each about one tenant. Those below `OF_THE_FLEET` are about all.
const OF_TENANTS: &[&str] = &["controllers", "fleet"];
const OF_THE_FLEET: &[&str] = &["controllers::rollout", "fleet::sharding"];

/// The fields that name a tenant or its registration.
const NAMES: &[&str] = &["registration", "tenant", "namespace", "worker_cluster"];

/// The lines that do not name their tenant.
pub fn check() -> Vec<String> {
    let files = source::modules("src");
    let nameless = files.iter().flat_map(|(module, text)| {
        let path = module.join("::");
        let is_below = |it: &&str| path == **it || path.starts_with(&format!("{it}::"));
        let is_checked = OF_TENANTS.iter().any(&is_below) && !OF_THE_FLEET.iter().any(is_below);
        let lines = if is_checked {
            nameless(text)
        } else {
            Vec::new()
        };
        lines.into_iter().map(move |line| {
            format!("{path}: a log line must have one of the fields {NAMES:?}: {line}")
        })
    });
    nameless.collect()
}

fn nameless(text: &str) -> Vec<String> {
    let mut lines = Lines(Vec::new());
    lines.visit_file(&syn::parse_file(text).expect("the compiler reads it, too"));
    lines.0
}

struct Lines(Vec<String>);

impl<'ast> Visit<'ast> for Lines {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let words = call.path.segments.iter().map(|it| it.ident.to_string());
        let words: Vec<String> = words.collect();
        let is_line = matches!(
            words.iter().map(String::as_str).collect::<Vec<_>>()[..],
            ["tracing", "error" | "warn" | "info"]
        );
        let tokens = call.tokens.to_string();
        let is_field = |word: &str| {
            let fields = tokens.split('"').next().unwrap_or_default();
            fields.split([' ', '%', '?', ',']).any(|it| it == word)
        };
        if is_line && !NAMES.iter().any(|name| is_field(name)) {
            self.0.push(tokens);
        }
    }
}

#[test]
fn a_line_without_its_tenant_is_found() {
    for (line, is_found) in [
        ("tracing::warn!(\"the token of the tenant is gone\")", true),
        ("tracing::info!(error = 1, \"tenant\")", true),
        ("tracing::warn!(%registration, \"gone\")", false),
        ("tracing::warn!(registration = %self.id, \"gone\")", false),
        ("tracing::debug!(\"again\")", false),
    ] {
        let text = format!("fn f() {{ {line}; }}");
        assert_eq!(!nameless(&text).is_empty(), is_found, "{line}");
    }
}
