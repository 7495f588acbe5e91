//! Which inputs of a document have changed since it was written: the provisioning Secret keeps a
//! short digest of each. Those that other annotations tell have none: the revision, the annotations
//! and the profile's version.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::Value;

use super::validate::Deployment;
use osm_tenant::{
    certificates,
    settings::{TenantSettings, in_use::SETTINGS},
};

/// The characters of a digest. It tells two values apart, and identifies none.
const CHARACTERS: usize = 6;

/// The token of machines. The key of all digests is derived from it.
const TOKEN: (&str, &str) = ("token", "the token of machines");

/// The other inputs that are no settings: their names in the annotation and for people, and the
/// setting that overrides them.
const OTHERS: [(&str, &str, &str); 4] = [
    ("profile", "the profile's content", ""),
    ("apiServer", "the API server's address", "apiServerOverride"),
    (
        "certificateAuthority",
        "the certificate authority",
        "kubernetesCABundle",
    ),
    ("registryCredentials", "a credential of a registry", ""),
];

/// The settings of a tenant for which nothing is set.
static BUILT_IN: LazyLock<Value> = LazyLock::new(|| values(&TenantSettings::default()));

fn values(settings: &TenantSettings) -> Value {
    serde_json::to_value(settings).expect("settings are plain values")
}

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
    let others: [Vec<&[u8]>; 4] = [
        vec![deployment.profile.digest().as_bytes()],
        vec![deployment.api_server.as_bytes()],
        vec![authority.as_bytes()],
        credentials.collect(),
    ];
    let others = OTHERS.iter().zip(others);
    let others = others.map(|((name, ..), parts)| (*name, digest(parts)));
    let settings = values(&deployment.settings.by_meaning());
    let set = SETTINGS.into_iter().filter_map(|(name, key)| {
        let value = settings
            .get(key)
            .filter(|it| BUILT_IN.get(key) != Some(it))?;
        Some((name, digest(vec![value.to_string().as_bytes()])))
    });
    let token = [(TOKEN.0, digest(own_token.into_iter().collect()))];
    let all = token.into_iter().chain(others).chain(set);
    let all = all.map(|(name, digest)| format!("{name}={digest}"));
    all.collect::<Vec<_>>().join(" ")
}

/// Returns the names of the inputs that differ between two records, for people. With another token,
/// nothing else can be compared. Names that are not ours are left out.
pub(super) fn changed(before: &str, now: &str) -> Vec<&'static str> {
    let (before, now) = (parse(before), parse(now));
    let differs = |name: &str| before.get(name) != now.get(name);
    if differs(TOKEN.0) {
        return vec![TOKEN.1];
    }
    let settings = SETTINGS.into_iter().map(|(name, _)| name);
    let mut all: Vec<&str> = settings.filter(|name| differs(name)).collect();
    let others = OTHERS.into_iter();
    let others = others.filter(|(name, _, by)| differs(name) && !all.contains(by));
    let others: Vec<&str> = others.map(|(_, words, _)| words).collect();
    all.extend(others);
    all
}

fn parse(record: &str) -> BTreeMap<&str, &str> {
    record
        .split(' ')
        .filter_map(|it| it.split_once('='))
        .collect()
}
