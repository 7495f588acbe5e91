//! Compares Go templates with what Go renders from the same templates and data.
//!
//! `tests/oracle` creates the golden files. These tests do not need Go.

use super::{
    super::{
        fixtures::World,
        reference::{ONLY_IN_JINJA, VARIABLES, Variable},
    },
    *,
};
use osm_api::profile::TemplateLanguage;

/// What Go renders from single templates, and from profiles with named ones.
pub(super) const TEMPLATES: &str = include_str!("../../../../tests/golden/go-templates.json");
pub(super) const PROFILES: &str = include_str!("../../../../tests/golden/go-profiles.json");

#[derive(serde::Deserialize)]
pub(super) struct Case {
    pub(super) template: String,
    #[serde(default)]
    pub(super) output: String,
    #[serde(default)]
    pub(super) failed: bool,
}

impl Case {
    /// Returns the expected output. The age of an image prints as a kubelet reads it; Go also
    /// prints the name of its type.
    pub(super) fn wanted(&self) -> String {
        self.output.replace("&Duration{Duration:1m30s,}", "1m30s")
    }
}

/// Creates the data of the oracle.
pub(super) fn a_go_world() -> World {
    let mut world = a_world();
    world.profile.template_language = Some(TemplateLanguage::GoTemplate);
    world.provider_spec = serde_json::json!({
        "operatingSystem": "ubuntu",
        "cloudProvider": "aws",
    });
    world.settings.cluster_dns = vec!["10.0.0.10".parse().unwrap(), "fd00::a".parse().unwrap()];
    world.settings.external_cloud_provider = true;
    world.settings.http_proxy = Some("http://proxy.example.com:3128".to_owned());
    world.settings.no_proxy = None;
    let gates = [
        ("ContextualLogging", false),
        ("APIServerIdentity", true),
        ("WatchList", true),
    ];
    world.settings.kubelet_feature_gates =
        gates.map(|(name, is_on)| (name.to_owned(), is_on)).into();
    for (name, value) in [
        ("KubeReserved", "memory=1Gi,cpu=200m"),
        ("SystemReserved", ""),
        ("MaxPods", "110"),
        ("ImageMinimumGCAge", "90s"),
        ("ContainerLogMaxSize", ""),
    ] {
        let name = format!("v1.kubelet-config.machine-controller.kubermatic.io/{name}");
        world.annotations.insert(name, value.to_owned());
    }
    world
}

/// Renders a template as the only file, in an encoding that can contain any text.
fn text(world: &mut World, template: &str) -> Result<String, RenderError> {
    let mut file = a_file("/f", template);
    if let Some(inline) = &mut file.content.inline {
        inline.encoding = Some("b64".to_owned());
    }
    world.profile.provisioning_config.files = vec![file];
    let rendered = world.render()?;
    Ok(data(&rendered.config.provisioning_config.files[0]))
}

#[test]
fn templates_render_as_go_renders_them() {
    let cases: Vec<Case> = serde_json::from_str(TEMPLATES).unwrap();
    let mut world = a_go_world();
    let mut wrong = Vec::new();
    for case in &cases {
        let outcome = text(&mut world, &case.template);
        let is_right = match &outcome {
            Ok(text) => !case.failed && *text == case.wanted(),
            Err(_) => case.failed,
        };
        if !is_right {
            let wanted = if case.failed {
                "an error"
            } else {
                &case.output
            };
            wrong.push(format!(
                "{}\n  wanted {wanted:?}\n  found  {outcome:?}",
                case.template
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} are wrong:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}

#[derive(serde::Deserialize)]
pub(super) struct Profile {
    pub(super) templates: BTreeMap<String, String>,
    pub(super) file: String,
    #[serde(default)]
    pub(super) output: String,
    #[serde(default)]
    pub(super) failed: bool,
}

#[test]
fn named_templates_are_interpreted_twice_as_profiles_rely_on() {
    let profiles: Vec<Profile> = serde_json::from_str(PROFILES).unwrap();
    for profile in profiles {
        let mut world = a_go_world();
        world.profile.provisioning_config.templates = profile.templates.clone();
        let outcome = text(&mut world, &profile.file);
        let (templates, file) = (&profile.templates, &profile.file);
        if profile.failed {
            assert!(outcome.is_err(), "{templates:?} {file}: {outcome:?}");
        } else {
            assert_eq!(outcome, Ok(profile.output), "{templates:?} {file}");
        }
    }
}

#[test]
fn what_depends_on_more_than_its_arguments_is_refused_by_name() {
    for name in [
        "env",
        "expandenv",
        "getHostByName",
        "now",
        "date",
        "ago",
        "randAlphaNum",
        "randInt",
        "shuffle",
        "uuidv4",
        "genPrivateKey",
        "genCA",
        "derivePassword",
        "bcrypt",
        "htpasswd",
        "encryptAES",
        "decryptAES",
    ] {
        let template = format!("a\n{{{{ if false }}}}{{{{ {name} \"x\" }}}}{{{{ end }}}}");
        let error = text(&mut a_go_world(), &template).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!(
                "profile, spec.provisioningConfig, file `/f`, line 2: function `{name}` is refused"
            )),
            "{error}"
        );
    }
}

#[test]
fn errors_name_the_line_and_quote_no_value() {
    let check = |template: &str, expected: &str| {
        let error = text(&mut a_go_world(), template).unwrap_err().to_string();
        let expected = format!("profile, spec.provisioningConfig, file `/f`, line {expected}");
        assert_eq!(error, expected);
    };
    check("a\n\n{{ .Nope }}", "3: can't evaluate field Nope");
    check("{{ /* x\n*/ }}", "1: unexpected `/` in command");
    check(
        "{{- /* x\n*/ -}}\n\n{{ upper 1 }}",
        "4: upper: wrong type for value; expected string; got int",
    );
    check(
        "\n{{ eq .Token 1 }}",
        "2: eq: incompatible types for comparison: string and int",
    );
    check("{{ nope }}", "1: function \"nope\" not defined");
    check(
        "{{ fail .Token }}",
        "1: fail: the template says that it cannot go on",
    );
    check("{{ template \"x\" }}", "1: template \"x\" not defined");
}

#[test]
fn the_stored_config_has_markers_in_place_of_secrets_in_go_templates_too() {
    let mut world = a_go_world();
    let half = &mut world.profile.provisioning_config;
    half.templates
        .insert("t".to_owned(), "{{ .Token }}".to_owned());
    half.templates
        .insert("u".to_owned(), "{{ .KubeVersion }}".to_owned());
    half.files = vec![
        a_file("/a", "{{ template \"t\" }}"),
        a_file("/b", "{{ .BootstrapKubeconfig }}{{ template \"u\" }}"),
        a_file("/c", "{{ with $ }}{{ .Token }}{{ end }}"),
        a_file(
            "/d",
            "{{ define \"x\" }}{{ .Token }}{{ end }}{{ template \"x\" . }}",
        ),
    ];
    let rendered = world.render().unwrap();
    let files = &rendered.stored_config.provisioning_config.files;
    let stored: Vec<String> = files.iter().take(4).map(data).collect();
    assert_eq!(
        stored,
        [
            "\n<redacted: Token>",
            "<redacted: BootstrapKubeconfig>\nv1.34.1",
            "<redacted: Token>",
            "<redacted: Token>",
        ]
    );
    let inline = &rendered.config.provisioning_config.files;
    assert_eq!(data(&inline[0]), "\nfetch-secret");
    assert_eq!(data(&inline[3]), "fetch-secret");
}

#[test]
fn a_network_is_a_struct_behind_a_pointer() {
    let mut world = a_go_world();
    world.provider_spec = serde_json::json!({
        "operatingSystem": "ubuntu",
        "cloudProvider": "aws",
        "network": {"ipFamily": "IPv4+IPv6"},
    });
    let mut check = |template: &str, expected: &str| {
        let rendered = text(&mut world, template);
        assert_eq!(rendered, Ok(expected.to_owned()), "{template}");
    };
    check("{{ if .NetworkConfig }}a{{ end }}", "a");
    check("{{ .NetworkConfig.IPFamily }}", "IPv4+IPv6");
    check("{{ .NetworkConfig.GetIPFamily }}", "IPv4+IPv6");
    check("{{ .NetworkConfig.IsStaticIPConfig }}", "false");
    check("{{ .NetworkConfig.DNS }}", "{[]}");
    check(
        "{{ range .NetworkConfig.DNS.Servers }}x{{ else }}none{{ end }}",
        "none",
    );
    check(
        "{{ with .NetworkConfig }}{{ .CIDR }}|{{ .Gateway }}{{ end }}",
        "|",
    );
    check("{{ .NetworkConfig }}", "{  {[]} IPv4+IPv6}");
    check("{{ .NetworkConfig.IPFamily.IsDualstack }}", "true");
    check("{{ .NetworkConfig.GetIPFamily.HasIPv4 }}", "true");
    assert!(text(&mut world, "{{ .NetworkConfig.Nope }}").is_err());
    // Go writes `null` for servers that do not exist, and `[]` for an empty list.
    assert!(text(&mut world, "{{ toJson .NetworkConfig }}").is_err());
    world.provider_spec = serde_json::json!({
        "operatingSystem": "flatcar",
        "operatingSystemSpec": {"provisioningUtility": "cloud-init"},
        "cloudProvider": "aws",
        "network": {"cidr": "10.0.0.2/24", "dns": {"servers": ["10.0.0.3"]}},
    });
    assert_eq!(
        text(&mut world, "{{ toJson .NetworkConfig }}"),
        Ok(r#"{"cidr":"10.0.0.2/24","gateway":"","dns":{"servers":["10.0.0.3"]}}"#.to_owned())
    );
}

#[test]
fn arithmetic_on_the_settings_of_a_kubelet_counts_with_their_numbers() {
    let mut world = a_go_world();
    let mut check = |template: &str, expected: &str| {
        let rendered = text(&mut world, template);
        assert_eq!(rendered, Ok(expected.to_owned()), "{template}");
    };
    check("{{ add 255 (mul 11 .MaxPods) }}Mi", "1465Mi");
    check(
        "{{ int .MaxPods }} {{ int64 .MaxPods }} {{ float64 .MaxPods }}",
        "110 110 110",
    );
    check("{{ div 220 .MaxPods }} {{ div .MaxPods 2 }}", "2 55");
    check("{{ if gt (int .MaxPods) 100 }}many{{ end }}", "many");
    check(
        "{{ max .MaxPods 5 }} {{ addf .MaxPods 0.5 }} {{ round .MaxPods 0 }}",
        "110 110.5 110",
    );
}

#[test]
fn durations_and_versions_have_their_methods() {
    let mut world = a_go_world();
    let mut check = |template: &str, expected: &str| {
        let rendered = text(&mut world, template);
        assert_eq!(rendered, Ok(expected.to_owned()), "{template}");
    };
    check("{{ .ImageMinimumGCAge.Duration }}", "1m30s");
    check(
        "{{ .ImageMinimumGCAge.Duration.Minutes }} {{ .ImageMinimumGCAge.Seconds }}",
        "1.5 90",
    );
    check(
        "{{ (semver .KubeVersion).LessThan (semver \"1.35\") }}",
        "true",
    );
    check("{{ (semver \"1.35\").Compare (semver .KubeVersion) }}", "1");
    check("{{ (semver .KubeVersion).Minor }}", "34");
}

#[test]
fn the_age_of_an_image_prints_as_a_kubelet_reads_it() {
    let printed = text(
        &mut a_go_world(),
        "imageMinimumGCAge: {{ .ImageMinimumGCAge }}",
    );
    assert_eq!(printed, Ok("imageMinimumGCAge: 1m30s".to_owned()));
}

/// Fields of every kind in the data.
pub(super) const FIELDS: [&str; 54] = [
    "AmazonLinuxConfig.DistUpgradeOnBoot",
    "BootstrapKubeconfig",
    "BootstrapKubeconfigSecretName",
    "CNIVersion",
    "CloudConfig",
    "ContainerRuntime",
    "ContainerRuntimeAuthConfig",
    "ContainerRuntimeConfig",
    "ContainerRuntimeConfigV2",
    "FlatcarConfig.DisableAutoUpdate",
    "FlatcarConfig.DisableLocksmithD",
    "FlatcarConfig.DisableUpdateEngine",
    "FlatcarConfig.ProvisioningUtility",
    "HostCACert",
    "ImageGCHighThresholdPercent",
    "ImageGCLowThresholdPercent",
    "ImageMaximumGCAge",
    "InTreeCCMAvailable",
    "InitialTaints",
    "KubeletConfiguration",
    "KubeletSystemdUnit",
    "KubernetesCACert",
    "NetworkIPFamily",
    "PauseImage",
    "RHSubscription",
    "RhelConfig.AttachSubscription",
    "RhelConfig.DistUpgradeOnBoot",
    "RhelConfig.RHELActivationKey",
    "RhelConfig.RHELOrganizationName",
    "RhelConfig.RHELSatelliteServer",
    "RhelConfig.RHELSubscriptionManagerPassword",
    "RhelConfig.RHELSubscriptionManagerUser",
    "RhelConfig.RHELUseSatelliteServer",
    "RhelConfig.RHSMOfflineToken",
    "RockyLinuxConfig.DistUpgradeOnBoot",
    "SecretName",
    "ServerAddress",
    "ServerURL",
    "Token",
    "variables",
    "ClusterDNSIPs",
    "ContainerLogMaxFiles",
    "ContainerLogMaxSize",
    "EvictionHard",
    "ExternalCloudProvider",
    "FlatcarConfig",
    "HTTPProxy",
    "ImageMinimumGCAge",
    "KubeReserved",
    "KubeVersion",
    "KubeletFeatureGates",
    "MaxPods",
    "NetworkConfig",
    "SystemReserved",
];

#[test]
fn a_go_template_can_read_every_variable_but_those_that_the_reference_names() {
    let mut world = a_go_world();
    // Here is no network.
    let rows = VARIABLES.iter();
    for Variable { name, go_type, .. } in rows.filter(|row| !row.name.starts_with("NetworkConfig."))
    {
        let direct = text(&mut world, &format!("{{{{ .{name} }}}}"));
        assert_eq!(
            direct.is_ok(),
            *go_type != ONLY_IN_JINJA,
            "{name}: {direct:?}"
        );
        if direct.is_err() {
            continue;
        }
        let through_dot = format!(
            "{{{{ define \"x\" }}}}{{{{ .{name} }}}}{{{{ end }}}}{{{{ template \"x\" . }}}}"
        );
        assert_eq!(direct, text(&mut world, &through_dot), "{name}");
    }
}

#[test]
fn comments_in_yaml_are_read_over() {
    let template = r##"{{ (fromYaml "# a\na: 1 # b\n# c\nb:\n# d\n- 2 # e\n# f\n").b }}"##;
    assert_eq!(text(&mut a_go_world(), template), Ok("[2]".to_owned()));
}
