//! Every operating system on every cloud: what is stored of a render holds no secret, and what is
//! said of one that fails holds none either.

use std::collections::BTreeMap;

use osm::api::config::OperatingSystemConfigSpec;
use osm::api::profile::{CloudProvider, OperatingSystemProfile};
use osm::api::worker_cluster::StoredConfig;
use osm::render::input::{ProviderConfig, RegistryCredential};
use osm::render::template::CompiledProfile;
use osm::render::{RenderError, Rendered};
use osm::tenant::secret_text::SecretText;
use serde_json::{Value, json};

use crate::clouds::{CLOUDS, SUBSCRIPTION, System, provider_spec, systems};
use crate::subject::Subject;

/// What every secret begins with.
const MARK: &str = "c4n4ry";
/// Secrets that do not come from the provider spec.
const TOKENS: [&str; 3] = [
    "c4n4ry-fetch-token",
    "c4n4ry-own-fetch-token",
    "c4n4ry-bootstrap-token",
];

fn subject() -> Subject {
    let secret = |field: &str| SecretText::new(format!("{MARK}-registry-{field}"));
    let by_password = RegistryCredential {
        username: secret("username"),
        password: secret("password"),
        ..RegistryCredential::default()
    };
    let by_token = RegistryCredential {
        auth: secret("auth"),
        identity_token: secret("identity-token"),
        ..RegistryCredential::default()
    };
    let [fetch_token, own, bootstrap_kubeconfig] = TOKENS.map(SecretText::new);
    Subject {
        fetch_token,
        own_fetch_token: Some(own),
        bootstrap_kubeconfig,
        registry_credentials: BTreeMap::from([
            ("docker.io".to_owned(), by_password),
            ("quay.io".to_owned(), by_token),
        ]),
        ..Subject::new()
    }
}

fn compiled(system: &System) -> CompiledProfile {
    let profile: OperatingSystemProfile =
        serde_saphyr::from_str(system.yaml).expect("a default profile is a profile");
    CompiledProfile::compile(&profile.spec).expect("a default profile compiles")
}

/// Renders it for a provider spec; what is made of that for the render tells no secret.
fn render_for(
    subject: &mut Subject,
    profile: &CompiledProfile,
    provider_spec: &Value,
) -> Result<Rendered, RenderError> {
    subject.provider_spec = provider_spec.clone();
    subject.with_input(profile, |input| {
        let provider = input.machine_deployment.provider;
        assert!(!format!("{provider:?}").contains(MARK), "{provider:?}");
        assert!(!format!("{input:?}").contains(MARK), "{input:?}");
        Ok(())
    })?;
    subject.render(profile)
}

fn text(config: &OperatingSystemConfigSpec) -> String {
    serde_json::to_string(config).expect("a config is plain values")
}

#[test]
fn no_stored_config_of_any_system_on_any_cloud_holds_a_secret() {
    let mut count = 0;
    for system in systems() {
        let (mut subject, profile) = (subject(), compiled(&system));
        for (cloud, places) in CLOUDS {
            let at = format!("{} on {cloud}", system.profile);
            subject.settings.stored_config = StoredConfig::Markers;
            let spec = provider_spec(&system, (cloud, places), MARK);
            let rendered =
                render_for(&mut subject, &profile, &spec).expect("a default profile renders");
            let stored = text(&rendered.stored_config);
            assert!(!stored.contains(MARK), "{at}: {stored}");
            assert!(!format!("{rendered:?}").contains("c4n4ry-own"), "{at}");
            // They were there to be found.
            let inline = text(&rendered.config);
            let mut wanted = vec!["own-fetch-token", "registry-password", "cloud-config"];
            wanted.extend(places);
            if system.name == "rhel" {
                wanted.extend(&SUBSCRIPTION[..2]);
            }
            for place in wanted {
                let canary = format!("{MARK}-{}", place.replace('/', "-"));
                assert!(inline.contains(&canary), "{at}: {canary}");
            }
            assert!(!inline.contains("c4n4ry-fetch-token"), "{at}");
            subject.settings.stored_config = StoredConfig::Inline;
            let rendered =
                render_for(&mut subject, &profile, &spec).expect("a default profile renders");
            assert_eq!(text(&rendered.stored_config), inline, "{at}");
            count += 1;
        }
    }
    assert_eq!(count, 9 * 19, "every system on every cloud");
}

#[test]
fn every_cloud_that_a_machine_deployment_can_name_is_in_the_table() {
    let mut names = CloudProvider::KNOWN.each_ref().map(CloudProvider::as_str);
    names.sort_unstable();
    assert_eq!(names, CLOUDS.map(|(cloud, _)| cloud));
}

#[test]
fn no_error_about_a_provider_spec_holds_a_value_of_it() {
    let mut refused = 0;
    for system in systems() {
        for (cloud, places) in CLOUDS {
            let good = provider_spec(&system, (cloud, places), MARK);
            for pointer in pointers(&good, "") {
                for wrong in [
                    json!([MARK]),
                    json!({ "value": [MARK] }),
                    json!({ MARK: MARK }),
                    json!(format!("{MARK}\u{0}\n---\n{MARK}")),
                    json!(7),
                ] {
                    let mut spec = good.clone();
                    let place = spec.pointer_mut(&pointer).expect("it was just found");
                    *place = wrong;
                    if let Err(error) = check(&spec) {
                        refused += 1;
                        let error = format!("{error} {error:?}");
                        let at = format!("{} on {cloud}, {pointer}", system.profile);
                        assert!(!error.contains(&format!("{MARK}-")), "{at}: {error}");
                        let is_named = pointer.ends_with("operatingSystem")
                            || pointer.ends_with("cloudProvider")
                            || pointer.ends_with("provisioningUtility")
                            // A key that nobody knows is named.
                            || error.contains("unknown");
                        assert!(is_named || !error.contains(MARK), "{at}: {error}");
                    }
                }
            }
        }
    }
    assert!(refused > 1_000, "{refused} are refused");
}

/// What the plan and the render refuse before a template is run, whatever the profile.
fn check(spec: &Value) -> Result<(), RenderError> {
    let provider = ProviderConfig::decode(spec)?;
    assert!(!format!("{provider:?}").contains(&format!("{MARK}-")));
    provider.known_operating_system()?;
    provider.known_cloud_provider()?;
    provider.provisioning_utility().map(drop)
}

/// Every place in a value, as a JSON pointer.
fn pointers(value: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    if let Value::Object(fields) = value {
        for (name, value) in fields {
            let at = format!("{at}/{name}");
            found.extend(pointers(value, &at));
            found.push(at);
        }
    }
    found
}
