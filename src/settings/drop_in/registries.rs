//! Registries and their mirrors, as flags name them.

use std::collections::BTreeMap;

/// The registry of mirrors that name none.
const DEFAULT_REGISTRY: &str = "docker.io";

/// Registries without a verified certificate: a list with commas.
pub(super) fn insecure(list: &str) -> Vec<String> {
    parts(list).map(str::to_owned).collect()
}

/// Mirrors by registry, in the order of trial: those that are given as they are, then those of a
/// list with commas, which may leave out the registry and the scheme.
pub(super) fn mirrors(given: &[(String, String)], list: &str) -> BTreeMap<String, Vec<String>> {
    let mut mirrors: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (registry, url) in given {
        let of_registry = mirrors.entry(registry.clone()).or_default();
        of_registry.push(url.clone());
    }
    for part in parts(list) {
        let is_registry = |text: &str| {
            let mut bytes = text.bytes();
            !text.is_empty() && bytes.all(|it| it.is_ascii_alphanumeric() || b".-".contains(&it))
        };
        let (registry, mirror) = match part.split_once('=') {
            Some((registry, mirror)) if is_registry(registry) => (registry, mirror),
            _ => (DEFAULT_REGISTRY, part),
        };
        let url = if mirror.starts_with("http") {
            mirror.to_owned()
        } else {
            format!("https://{mirror}")
        };
        mirrors.entry(registry.to_owned()).or_default().push(url);
    }
    mirrors
}

fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}
