//! What holds for any machine deployment, tenant and profile: ten thousand random ones, the same
//! on each run, render or are refused, and nothing panics. A seed that breaks something is named:
//! `OSM_SEED=1234 cargo test --test rendering properties` runs it alone.

use std::{
    collections::BTreeMap,
    panic::{self, AssertUnwindSafe},
    thread,
};

use osm::{
    api::{
        profile::{CloudProvider, OperatingSystemProfile, OperatingSystemProfileSpec},
        worker_cluster::{Binaries, Binary, ImageCredentialProvider},
    },
    render::{
        RenderError, Rendered, default_profiles::default_profiles, input::RegistryCredential,
        template::CompiledProfile,
    },
    tenant::secret_text::SecretText,
};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Map, Value, json};

use crate::subject::Subject;

/// How many inputs are tried.
const INPUTS: u64 = 10_000;
/// How many at a time: the smallest machine that builds this has two cores.
const THREADS: u64 = 2;

/// Texts that are plain, and texts that have broken something somewhere.
const TEXTS: [&str; 24] = [
    "",
    "a",
    "value",
    "10.0.0.1",
    "fd00::1/64",
    "IPv4+IPv6",
    "true",
    "cpu=200m,memory=1Gi",
    "memory.available<100Mi",
    "99999999999999999999",
    "-1",
    "1h30m",
    "100Mi",
    "it's",
    "a: b",
    "a #b",
    " leading",
    "trailing ",
    "two\nlines",
    "tab\there",
    "{{ Token }}",
    "<MACHINE_NAME>",
    "\u{85}\u{2028}",
    "\"\\\u{1}",
];
const VERSIONS: [&str; 10] = [
    "1.33.0",
    "v1.34.5",
    "1.35",
    "1.36.1",
    "1.36.0-rc.1",
    "1.34.1+build",
    "2",
    "latest",
    "",
    "1.33.0.1",
];
/// How many of them, from the first on, are versions.
const GOOD_VERSIONS: usize = 6;
/// Annotations of the kubelet's, each with a value that it can have.
const ANNOTATIONS: [(&str, &str); 12] = [
    ("KubeReserved", "cpu=200m,memory=1Gi"),
    ("SystemReserved", "ephemeral-storage=30Gi"),
    ("EvictionHard", "memory.available<100Mi"),
    ("MaxPods", "110"),
    ("ContainerLogMaxSize", "100Mi"),
    ("ContainerLogMaxFiles", "5"),
    ("ImageGCHighThresholdPercent", "85"),
    ("ImageGCLowThresholdPercent", "80"),
    ("ImageMinimumGCAge", "2m"),
    ("ImageMaximumGCAge", "1h30m"),
    ("Unknown", "x"),
    ("", ""),
];
const SYSTEM_KEYS: [&str; 8] = [
    "distUpgradeOnBoot",
    "disableAutoUpdate",
    "provisioningUtility",
    "rhelSubscriptionManagerUser",
    "rhelSubscriptionManagerPassword",
    "attachSubscription",
    "rhelUseSatelliteServer",
    "rhelActivationKey",
];

#[test]
fn any_input_renders_twice_alike_or_is_refused() {
    let profiles = compiled_profiles();
    if let Some(seed) = chosen_seed() {
        check(seed, &profiles);
        return;
    }
    let outcomes = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|worker| {
                let profiles = &profiles;
                scope.spawn(move || run(worker, profiles))
            })
            .collect();
        let mut outcomes = BTreeMap::new();
        for worker in workers {
            let counts = worker
                .join()
                .expect("a worker reports instead of panicking");
            for (category, count) in counts {
                *outcomes.entry(category).or_insert(0) += count;
            }
        }
        outcomes
    });
    println!("{outcomes:#?}");
    assert_eq!(outcomes.get("broken"), None, "see the seeds above");
    let rendered = outcomes.get("rendered").copied().unwrap_or_default();
    assert!(
        rendered > INPUTS / 5,
        "too few inputs render, so little is proved: {outcomes:?}"
    );
    assert!(outcomes.len() > 6, "too few kinds of refusal: {outcomes:?}");
}

/// Every profile that is shipped, and one in Go's language that prints all that is random.
fn compiled_profiles() -> Vec<CompiledProfile> {
    let shipped = default_profiles().iter().map(|profile| {
        let profile: OperatingSystemProfile =
            serde_saphyr::from_str(profile.yaml).expect("a default profile is a profile");
        profile.spec
    });
    let compile = |spec: OperatingSystemProfileSpec| {
        CompiledProfile::compile(&spec).expect("the profile compiles")
    };
    shipped.chain([printing_profile()]).map(compile).collect()
}

fn printing_profile() -> OperatingSystemProfileSpec {
    let everything = "{{ .KubeVersion }}{{ .ClusterDNSIPs }}{{ .HTTPProxy }}{{ .NoProxy }}\
        {{ .KubeReserved }}{{ .MaxPods }}{{ with .NetworkConfig }}{{ .CIDR }}{{ .DNS.Servers }}\
        {{ end }}{{ .InitialTaints }}{{ .KubeletFeatureGates }}{{ .ImageMinimumGCAge }}\
        {{ .RhelConfig.DistUpgradeOnBoot }}{{ .ContainerRuntimeConfig }}{{ .Token }}";
    serde_json::from_value(json!({
        "osName": "ubuntu",
        "osVersion": "24.04",
        "version": "v1.0.0",
        "supportedCloudProviders": [],
        "bootstrapConfig": {"files": [
            {"path": "/a", "content": {"inline": {"data": everything}}},
        ]},
        "provisioningConfig": {"templates": {"t": everything}, "files": [
            {"path": "/b", "content": {"inline": {"encoding": "b64", "data": "{{ template \"t\" }}"}}},
        ]},
    }))
    .expect("the profile is written above")
}

#[expect(
    clippy::disallowed_methods,
    reason = "a person who looks for a fault sets its seed in the environment"
)]
fn chosen_seed() -> Option<u64> {
    std::env::var("OSM_SEED").ok()?.parse().ok()
}

fn run(worker: u64, profiles: &[CompiledProfile]) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for seed in (worker..INPUTS).step_by(usize::try_from(THREADS).expect("a small number")) {
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| check(seed, profiles)));
        if outcome.is_err() {
            eprintln!("OSM_SEED={seed} breaks something");
        }
        *counts.entry(outcome.unwrap_or("broken")).or_insert(0) += 1;
    }
    counts
}

/// Tries one input, and names what became of it.
fn check(seed: u64, profiles: &[CompiledProfile]) -> &'static str {
    let mut random = StdRng::seed_from_u64(seed);
    let profile = profiles.choose(&mut random).expect("there are profiles");
    let subject = a_subject(&mut random, profile);
    let outcome = subject.render(profile);
    assert_eq!(outcome, subject.render(profile));
    let rendered = match outcome {
        Ok(rendered) => rendered,
        Err(error) => return refused(&error),
    };
    no_secret_is_stored(&rendered);
    no_marker_is_delivered(&rendered);
    "rendered"
}

fn refused(error: &RenderError) -> &'static str {
    let said = error.to_string();
    assert!(!said.contains("hidden-"), "an error tells a secret: {said}");
    let places = ["profile", "machine deployment", "settings", "Config"];
    assert!(places.iter().any(|place| said.contains(place)), "{said}");
    error.category()
}

fn no_secret_is_stored(rendered: &Rendered) {
    let stored = serde_json::to_string(&rendered.stored_config).expect("a config is JSON");
    assert!(!stored.contains("hidden-"), "a secret is stored");
}

fn no_marker_is_delivered(rendered: &Rendered) {
    for document in [&rendered.bootstrap, &rendered.provisioning] {
        let text = String::from_utf8_lossy(document.as_bytes());
        assert!(!text.contains("<redacted:"), "a marker is delivered");
        assert!(!text.is_empty());
    }
}

fn a_subject(random: &mut StdRng, profile: &CompiledProfile) -> Subject {
    let mut subject = Subject::new();
    subject.provider_spec = a_provider_spec(random, profile.spec());
    let good = VERSIONS.split_at(GOOD_VERSIONS).0;
    subject.kubelet_version = mostly(random, good, &VERSIONS);
    for _ in 0..random.random_range(0..4) {
        let (name, good) = *ANNOTATIONS.choose(random).expect("the list is not empty");
        let key = format!("v1.kubelet-config.machine-controller.kubermatic.io/{name}");
        let value = mostly(random, &[good], &TEXTS);
        subject.annotations.insert(key, value);
    }
    set_settings(random, &mut subject);
    for _ in 0..random.random_range(0..2) {
        let credential = RegistryCredential {
            username: SecretText::new("hidden-user"),
            password: SecretText::new(format!("hidden-{}", pick(random, &TEXTS))),
            ..RegistryCredential::default()
        };
        let registry = format!("registry{}.example.com", random.random_range(0..9));
        subject.registry_credentials.insert(registry, credential);
    }
    subject
}

fn set_settings(random: &mut StdRng, subject: &mut Subject) {
    let settings = &mut subject.settings;
    settings.external_cloud_provider = random.random();
    settings.device_ownership_from_security_context = random.random();
    let maybe = |random: &mut StdRng| random.random::<bool>().then(|| pick(random, &TEXTS));
    settings.http_proxy = maybe(random);
    settings.no_proxy = maybe(random);
    settings.api_server_override = maybe(random).filter(|text| !text.is_empty());
    settings.host_ca_bundle = pick(random, &TEXTS);
    settings.pause_image = pick(random, &TEXTS);
    settings.initial_taints = pick(random, &TEXTS);
    let programs = random.random_range(0..3);
    settings.image_credential_providers = (0..programs).map(|_| a_program(random)).collect();
    for _ in 0..random.random_range(0..3) {
        let gate = mostly(random, &["ContextualLogging", "WatchList"], &TEXTS);
        settings.kubelet_feature_gates.insert(gate, random.random());
        settings
            .insecure_registries
            .push(mostly(random, &["docker.io", "a:5000"], &TEXTS));
        let mirrors = vec![
            mostly(
                random,
                &["HTTPS://u:p@s@a.example/a b", "b.example:5000"],
                &TEXTS,
            ),
            "https://mirror.example.com".to_owned(),
        ];
        settings
            .registry_mirrors
            .insert(pick(random, &TEXTS), mirrors);
        settings
            .variables
            .insert(a_variable(random), pick(random, &TEXTS));
    }
}

fn a_program(random: &mut StdRng) -> ImageCredentialProvider {
    let binary = |random: &mut StdRng| {
        random.random::<bool>().then(|| Binary {
            url: pick(random, &TEXTS),
            sha256: "0".repeat(64),
        })
    };
    ImageCredentialProvider {
        name: mostly(random, &["ecr", "acr"], &TEXTS),
        binaries: Binaries {
            amd64: binary(random),
            arm64: binary(random),
        },
        match_images: vec![pick(random, &TEXTS)],
        default_cache_duration: "1h".to_owned(),
        args: vec![pick(random, &TEXTS)],
        ..ImageCredentialProvider::default()
    }
}

fn a_variable(random: &mut StdRng) -> String {
    pick(
        random,
        &[
            "containerdVersion",
            "kubernetesDownloadURL",
            "extraPackages",
            "site",
        ],
    )
}

/// Mostly what the profile is for, now and then anything.
fn a_provider_spec(random: &mut StdRng, profile: &OperatingSystemProfileSpec) -> Value {
    let mut spec = Map::new();
    let system = if random.random_ratio(9, 10) {
        profile.os_name.as_str().to_owned()
    } else {
        pick(random, &["ubuntu", "flatcar", "rhel", "windows", ""])
    };
    spec.insert("operatingSystem".to_owned(), system.into());
    let provider = profile
        .supported_cloud_providers
        .choose(random)
        .map_or(CloudProvider::Aws, |provider| provider.name.clone());
    let provider = if random.random_ratio(9, 10) {
        provider.as_str().to_owned()
    } else {
        pick(random, &["aws", "edge", "moon"])
    };
    spec.insert("cloudProvider".to_owned(), provider.into());
    spec.insert(
        "cloudProviderSpec".to_owned(),
        json!({"password": "hidden-cloud-password"}),
    );
    spec.insert(
        "operatingSystemSpec".to_owned(),
        a_system_spec(random, profile),
    );
    if random.random() {
        let good = ["ssh-ed25519 AAAA a@b", "ssh-rsa BBBB", "ssh-rsa BBBB "];
        let keys: Vec<String> = (0..3).map(|_| mostly(random, &good, &TEXTS)).collect();
        spec.insert("sshPublicKeys".to_owned(), keys.into());
    }
    if random.random_ratio(1, 3) {
        let family = pick(
            random,
            &["", "IPv4", "IPv6", "IPv4+IPv6", "IPv6+IPv4", "IPv5"],
        );
        spec.insert("network".to_owned(), json!({"ipFamily": family}));
    }
    if random.random_ratio(1, 10) {
        let address = pick(random, &TEXTS);
        let network =
            json!({"cidr": address, "gateway": "10.0.0.1", "dns": {"servers": ["1.1.1.1"]}});
        spec.insert("network".to_owned(), network);
    }
    if random.random_ratio(1, 5) {
        let config = format!("hidden-{}", pick(random, &TEXTS));
        spec.insert("overwriteCloudConfig".to_owned(), config.into());
    }
    if random.random_ratio(1, 20) {
        spec.insert(
            pick(random, &["unknown", "network", "SSHPUBLICKEYS"]),
            json!(7),
        );
    }
    Value::Object(spec)
}

fn a_system_spec(random: &mut StdRng, profile: &OperatingSystemProfileSpec) -> Value {
    let mut spec = Map::new();
    if let Some(utility) = profile.provisioning_utility {
        spec.insert("provisioningUtility".to_owned(), utility.as_str().into());
    }
    for _ in 0..random.random_range(0..3) {
        let key = pick(random, &SYSTEM_KEYS);
        let value = match key.as_str() {
            "distUpgradeOnBoot"
            | "disableAutoUpdate"
            | "attachSubscription"
            | "rhelUseSatelliteServer" => Value::from(random.random::<bool>()),
            "provisioningUtility" => pick(random, &["cloud-init", "ignition", "other"]).into(),
            _ => format!("hidden-{}", pick(random, &TEXTS)).into(),
        };
        let value = if random.random_ratio(1, 20) {
            json!([1])
        } else {
            value
        };
        spec.insert(key, value);
    }
    Value::Object(spec)
}

/// One of the good ones, and now and then any.
fn mostly(random: &mut StdRng, good: &[&str], any: &[&str]) -> String {
    let texts = if random.random_ratio(9, 10) {
        good
    } else {
        any
    };
    pick(random, texts)
}

fn pick(random: &mut StdRng, texts: &[&str]) -> String {
    (*texts.choose(random).expect("the list is not empty")).to_owned()
}
