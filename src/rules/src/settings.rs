//! What the API server refuses of a WorkerCluster's settings beyond their schema, for files that no
//! API server sees.

use regex::Regex;

use osm_api::worker_cluster::{
    WorkerClusterSpec,
    limits::{MIRROR, PROXY},
};

/// What a file with certificates in PEM has.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// Returns what the rules of the definition say against settings, starting with the field. Values
/// that may hold a password are not quoted.
pub fn refused(spec: &WorkerClusterSpec) -> Option<String> {
    let is_proxy = |url: &String| url.contains('@') || matches(PROXY, url);
    if !spec.http_proxy.iter().all(is_proxy) {
        let must = "must be a URL such as http://proxy.example.com:3128";
        return Some(format!("spec.httpProxy: {must}"));
    }
    for (field, bundle) in [
        ("hostCABundle", &spec.host_ca_bundle),
        ("kubernetesCABundle", &spec.kubernetes_ca_bundle),
    ] {
        let is_bundle = |text: &String| text.is_empty() || text.contains(CERTIFICATE);
        if !bundle.iter().all(is_bundle) {
            return Some(format!("spec.{field}: must contain certificates in PEM"));
        }
    }
    let mut mirrors = spec.registry_mirrors.iter().flatten();
    mirrors.find_map(|(registry, urls)| {
        let wrong = urls.iter().find(|url| !matches(MIRROR, url))?;
        Some(format!(
            "spec.registryMirrors.{registry}: `{wrong}` is not a URL"
        ))
    })
}

fn matches(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).is_ok_and(|it| it.is_match(text))
}
