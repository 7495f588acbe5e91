//! Which inputs of a document have changed since it was written: the provisioning Secret keeps a
//! short digest of each. Those that other annotations tell have none: the revision, the annotations
//! and the profile's version.

use std::collections::BTreeMap;

use super::validate::Deployment;
use osm_tenant::{
    certificates,
    settings::{TenantSettings, in_use::field_of_spec},
};

/// The characters of a digest. It tells two values apart, and identifies none.
const CHARACTERS: usize = 6;

const TOKEN: &str = "token";

/// The inputs that are no settings: their names in the annotation, and for people.
const OTHERS: [(&str, &str); 5] = [
    (TOKEN, "the token of machines"),
    ("profile", "the profile's content"),
    ("apiServer", "the API server's address"),
    ("certificateAuthority", "the certificate authority"),
    ("registryCredentials", "credentials of registries"),
];

/// Returns an annotation's value: the digests of the inputs of a render, each as `name=digest`. A
/// setting that is as built in has none.
pub(super) fn record(deployment: &Deployment) -> String {
    let key = &deployment.digest_key;
    let digest = |parts: Vec<&[u8]>| {
        let digest = key.digest(parts);
        let short = digest.as_str().get(..CHARACTERS);
        short.unwrap_or_default().to_owned()
    };
    let own_token = deployment.own_fetch_token.as_ref();
    let own_token = own_token.map(|it| it.expose().as_bytes());
    let authority = certificates::meaning(&deployment.kubernetes_ca);
    let credentials = deployment.registry_credentials.iter();
    let credentials = credentials.flat_map(|(registry, credential)| {
        let parts = credential.parts().map(|it| it.expose().as_bytes());
        [registry.as_bytes()].into_iter().chain(parts)
    });
    let others = [
        own_token.into_iter().collect(),
        vec![deployment.profile.digest().as_bytes()],
        vec![deployment.api_server.as_bytes()],
        vec![authority.as_bytes()],
        credentials.collect(),
    ];
    let others = OTHERS.iter().zip(others);
    let others = others.map(|((name, _), parts)| format!("{name}={}", digest(parts)));
    let values = |settings: &TenantSettings| match serde_json::to_value(settings) {
        Ok(serde_json::Value::Object(values)) => values,
        _ => serde_json::Map::new(),
    };
    let built_in = values(&TenantSettings::default());
    let settings = values(&deployment.settings.by_meaning()).into_iter();
    let set = settings.filter(|(name, value)| built_in.get(name) != Some(value));
    let set = set.map(|(name, value)| {
        let value = digest(vec![value.to_string().as_bytes()]);
        format!("spec.{}={value}", field_of_spec(&name))
    });
    others.chain(set).collect::<Vec<_>>().join(" ")
}

/// Returns the names of the inputs that differ between two records, for people. The key of the
/// digests is derived from the token: with another one, nothing else can be compared.
pub(super) fn changed(before: &str, now: &str) -> Vec<String> {
    let (before, now) = (parse(before), parse(now));
    let differs = |name: &&str| before.get(name) != now.get(name);
    let named = |name: &str| {
        let other = OTHERS.iter().find(|(known, _)| *known == name);
        other.map_or(name, |(_, words)| words).to_owned()
    };
    if differs(&TOKEN) {
        return vec![named(TOKEN)];
    }
    let all: std::collections::BTreeSet<&str> = before.keys().chain(now.keys()).copied().collect();
    all.into_iter().filter(differs).map(named).collect()
}

fn parse(record: &str) -> BTreeMap<&str, &str> {
    record
        .split(' ')
        .filter_map(|it| it.split_once('='))
        .collect()
}
