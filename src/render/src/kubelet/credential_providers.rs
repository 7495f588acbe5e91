//! The programs that a kubelet asks for credentials as it pulls images: its configuration of them,
//! and where a machine downloads them from.

use std::collections::BTreeMap;

use minijinja::Value;
use serde_json::json;

use super::known::Known;
use crate::error::RenderError;
use osm_api::worker_cluster::ImageCredentialProvider;
use osm_tenant::settings::TenantSettings;

/// The file with the configuration, which the kubelet's flag names.
const CONFIG: &str = "/etc/kubernetes/image-credential-providers.json";
/// What a kubelet's command line needs, so that it asks the programs.
pub(crate) const WORDS: [&str; 3] = [
    "--image-credential-provider-bin-dir",
    "--image-credential-provider-config",
    CONFIG,
];

/// The version of the programs' input and output that every kubelet since 1.26 knows.
const PROGRAM_API: &str = "credentialprovider.kubelet.k8s.io/v1";
/// The feature gate of tokenAttributes, which is in beta, and the one of all gates in beta.
const TOKENS_GATE: &str = "KubeletServiceAccountTokenForCredentialProviders";
const ALL_BETA: &str = "AllBeta";

/// Returns the file's path and text, if the tenant has such programs.
pub(crate) fn config(
    settings: &TenantSettings,
    feature_gates: &BTreeMap<String, bool>,
    version: &str,
) -> Result<Option<(String, String)>, RenderError> {
    let programs = &settings.image_credential_providers;
    if programs.is_empty() {
        return Ok(None);
    }
    if let Some(with_token) = programs.iter().find(|it| it.token_attributes.is_some()) {
        let refused = |reason: &str| {
            let name = with_token.name.clone();
            let reason = format!("kubelet {version} {reason}");
            Err(RenderError::ImageCredentialProvider { name, reason })
        };
        if Known::of(version).is_none() {
            return refused("is not supported, and may not know tokenAttributes");
        }
        let is_on = |gate: &str| feature_gates.get(gate).copied();
        if is_on(TOKENS_GATE).or(is_on(ALL_BETA)) == Some(false) {
            return refused(&format!(
                "does not start with tokenAttributes and the feature gate `{TOKENS_GATE}` off"
            ));
        }
    }
    let whole = json!({
        "apiVersion": "kubelet.config.k8s.io/v1",
        "kind": "CredentialProviderConfig",
        "providers": programs.iter().map(entry).collect::<Vec<_>>(),
    });
    Ok(Some((CONFIG.to_owned(), format!("{whole:#}\n"))))
}

/// Returns a program as the kubelet's configuration has it.
fn entry(program: &ImageCredentialProvider) -> serde_json::Value {
    // It is made of plain values, so writing it as JSON cannot fail.
    let mut entry = serde_json::to_value(program).unwrap_or_default();
    if let Some(fields) = entry.as_object_mut() {
        fields.remove("binaries");
        fields.insert("apiVersion".to_owned(), PROGRAM_API.into());
    }
    entry.sort_all_objects();
    entry
}

/// Returns the programs as templates see them: a list of maps.
pub(crate) fn variable(programs: &[ImageCredentialProvider]) -> Value {
    let of = |program: &ImageCredentialProvider| {
        let binaries = program.binaries.existing().into_iter();
        let binaries = binaries.map(|(architecture, binary)| {
            let pairs = [("url", &binary.url), ("sha256", &binary.sha256)];
            let pairs = pairs.map(|(key, value)| (key, Value::from(value.as_str())));
            (architecture, Value::from_pairs(pairs))
        });
        Value::from_pairs([
            ("name", Value::from(program.name.as_str())),
            ("binaries", Value::from_pairs(binaries)),
        ])
    };
    programs.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{World, a_file, a_world, data};
    use osm_api::worker_cluster::{Binaries, Binary, TokenAttributes};

    const UNIT: &str = "--image-credential-provider-bin-dir=/opt/bin \
        {% for program in image_credential_providers %}\
        {{ program.name }} {{ program.binaries.amd64.url }} {{ program.binaries.amd64.sha256 }} \
        {{ program.binaries.arm64 is defined }} \
        --image-credential-provider-config=/etc/kubernetes/image-credential-providers.json\
        {% endfor %}";

    fn a_program() -> ImageCredentialProvider {
        ImageCredentialProvider {
            name: "ecr".to_owned(),
            binaries: Binaries {
                amd64: Some(Binary {
                    url: "https://site.example/ecr".to_owned(),
                    sha256: "ab".repeat(32),
                }),
                arm64: None,
            },
            match_images: vec!["*.dkr.ecr.*.amazonaws.com".to_owned()],
            default_cache_duration: "12h".to_owned(),
            ..ImageCredentialProvider::default()
        }
    }

    fn a_world_with(program: ImageCredentialProvider) -> World {
        let mut world = a_world();
        world.profile.provisioning_config.files = vec![a_file("/unit", UNIT)];
        world.settings.image_credential_providers = vec![program];
        world
    }

    fn error(world: &World) -> String {
        let refused = world.render().expect_err("it is refused");
        refused.to_string()
    }

    #[test]
    fn a_program_is_in_the_kubelets_configuration_and_in_what_templates_read() {
        let rendered = a_world_with(a_program()).render().expect("it is sound");
        let [unit, .., config] = &rendered.config.provisioning_config.files[..] else {
            panic!("a file is added");
        };
        let sum = "ab".repeat(32);
        let wanted = format!(
            "--image-credential-provider-bin-dir=/opt/bin ecr https://site.example/ecr {sum} false \
             --image-credential-provider-config={CONFIG}"
        );
        assert_eq!(data(unit), wanted);
        assert_eq!(config.path, CONFIG);
        let config: serde_json::Value = serde_json::from_str(&data(config)).expect("it is JSON");
        let wanted = json!({
            "apiVersion": "kubelet.config.k8s.io/v1",
            "kind": "CredentialProviderConfig",
            "providers": [{
                "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
                "name": "ecr",
                "matchImages": ["*.dkr.ecr.*.amazonaws.com"],
                "defaultCacheDuration": "12h",
            }],
        });
        assert_eq!(config, wanted);
    }

    #[test]
    fn tokens_of_pods_need_a_kubelet_that_gives_them() {
        let mut world = a_world_with(ImageCredentialProvider {
            token_attributes: Some(TokenAttributes::default()),
            ..a_program()
        });
        assert!(world.render().is_ok());
        for gate in [ALL_BETA, TOKENS_GATE] {
            let set = [(gate.to_owned(), false)];
            world.settings.kubelet_feature_gates = set.into_iter().collect();
            let told = error(&world);
            assert!(told.contains("`ecr`: kubelet v1.34"), "{told}");
            assert!(told.contains(TOKENS_GATE), "{told}");
        }
        let gates = &mut world.settings.kubelet_feature_gates;
        gates.extend([(ALL_BETA.to_owned(), false), (TOKENS_GATE.to_owned(), true)]);
        assert!(world.render().is_ok());
        world.settings.kubelet_feature_gates.clear();
        world.kubelet_version = "1.33.1".to_owned();
        let told = error(&world);
        assert!(told.contains("may not know tokenAttributes"), "{told}");
    }

    #[test]
    fn a_profile_that_does_not_let_the_kubelet_ask_is_refused() {
        let mut world = a_world_with(a_program());
        let without = UNIT.replace("-bin-dir", "");
        for unit in ["kubelet", &without] {
            world.profile.provisioning_config.files = vec![a_file("/unit", unit)];
            let told = error(&world);
            assert!(
                told.contains("--image-credential-provider-config"),
                "{told}"
            );
        }
        // What a profile writes there itself is its own.
        world.settings.image_credential_providers.clear();
        let drop_in = "/etc/kubernetes/kubelet.conf.d/10-own.conf";
        world.profile.provisioning_config.files = vec![a_file(CONFIG, "{}"), a_file(drop_in, "{}")];
        assert!(world.render().is_ok());
    }
}
