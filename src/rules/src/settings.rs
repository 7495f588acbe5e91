//! What the API server refuses of a WorkerCluster's settings beyond their schema, for files that no
//! API server sees.

use regex::Regex;

use osm_api::worker_cluster::{
    WorkerClusterSpec,
    limits::{CERTIFICATE, CERTIFICATES_MUST, MIRROR, PROXY, PROXY_MUST},
};

/// Returns what the rules of the definition say against settings, starting with the field. Values
/// that may hold a password are not quoted.
pub fn refused(spec: &WorkerClusterSpec) -> Option<String> {
    let is_proxy = |url: &String| url.contains('@') || matches(PROXY, url);
    if !spec.http_proxy.iter().all(is_proxy) {
        return Some(format!("spec.httpProxy: {PROXY_MUST}"));
    }
    for (field, bundle) in [
        ("hostCABundle", &spec.host_ca_bundle),
        ("kubernetesCABundle", &spec.kubernetes_ca_bundle),
    ] {
        let is_bundle = |text: &String| text.is_empty() || text.contains(CERTIFICATE);
        if !bundle.iter().all(is_bundle) {
            return Some(format!("spec.{field}: {CERTIFICATES_MUST}"));
        }
    }
    let mut mirrors = spec.registry_mirrors.iter().flatten();
    mirrors.find_map(|(registry, urls)| {
        let wrong = urls.iter().find(|url| !matches(MIRROR, url))?;
        let wrong = if wrong.contains('@') {
            "a mirror".to_owned()
        } else {
            format!("`{wrong}`")
        };
        Some(format!(
            "spec.registryMirrors.{registry}: {wrong} is not a URL"
        ))
    })
}

fn matches(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).is_ok_and(|it| it.is_match(text))
}
