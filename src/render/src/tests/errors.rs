//! Tests every error, with its message.

use super::*;
use crate::{
    error::RenderError as E, fixtures::World, input::ProviderConfig, template::CompiledProfile,
};
use osm_api::profile::IgnitionVersion;

fn check(change: impl Fn(&mut World), category: &str, message: &str) {
    let mut world = a_world();
    change(&mut world);
    let error = world.render().unwrap_err();
    assert_eq!(error.to_string(), message);
    assert_eq!(error.category(), category, "{message}");
}

fn with_template(text: &'static str) -> impl Fn(&mut World) {
    move |world| world.profile.bootstrap_config.files = vec![a_file("/f", text)]
}

fn with_modules(modules: CloudInitModules) -> impl Fn(&mut World) {
    move |world| world.profile.bootstrap_config.modules = Some(modules.clone())
}

#[test]
fn what_is_wrong_with_a_profile_is_said() {
    check(
        |world| world.profile.ignition_version = Some(IgnitionVersion::V3),
        "ignition-version",
        "profile, spec.ignitionVersion: it is set, and spec.provisioningUtility is not \
         `ignition`; remove one of the two",
    );
    check(
        |world| {
            world.profile.template_language = None;
            world.profile.bootstrap_config.files = vec![a_file("/f", "a\n{{ if }}")];
        },
        "template-syntax",
        "profile, spec.bootstrapConfig, file `/f`, line 2: missing value for if",
    );
    check(
        |world| {
            world.profile.bootstrap_config.files = vec![a_file("/f", "")];
            world.profile.bootstrap_config.files[0].content = FileContent::default();
        },
        "missing-inline",
        "profile, spec.bootstrapConfig, file `/f`: content.inline is missing",
    );
    check(
        with_template("a\n{% if %}"),
        "template-syntax",
        "profile, spec.bootstrapConfig, file `/f`, line 2: unexpected end of block",
    );
    check(
        |world| world.profile.provisioning_utility = Some(ProvisioningUtility::Ignition),
        "provisioning-utility",
        "specified provisioning utility \"ignition\" is not supported by the \
         OperatingSystemProfile: the machine deployment needs \"cloud-init\" \
         (profile, spec.provisioningUtility)",
    );
}

#[test]
fn a_failing_template_names_its_line_and_the_kind_of_problem_alone() {
    let template = |text, problem: &str| {
        let message = format!("profile, spec.bootstrapConfig, file `/f`, line 2: {problem}");
        check(with_template(text), "template", &message);
    };
    template("\n{{ Nonsense }}", "`Nonsense` is undefined");
    template("\n{{ HTTPProxy }}", allocation_limit::PRINTS_NONE);
    template(
        "\n{{ Token - 1 }}",
        "an operation that its values do not allow",
    );
    template("\n{{ Token * 2 }}", allocation_limit::NO_NUMBER);
    template("\n{% include Token %}", "no template with this name");
    template("\n{{ variables }}", allocation_limit::NO_TEXT);
    template(
        "\n{{ semver_matches(Token, '1.x') }}",
        "semver_matches: the version is not a semantic version",
    );
    template("\n{{ Token|nonsense }}", "filter nonsense is unknown");
    template("\n{{ debug() }}", "debug is unknown");
    template(
        "{% if true\n %}{{ Token|upper(1, 2) }}{% endif %}",
        "too many arguments",
    );
}

#[test]
fn no_filter_of_the_engine_but_the_one_for_defaults_takes_an_undefined_value() {
    let lists = "length count first last min max sum list reverse items dictsort sort unique \
                 map('upper') select reject selectattr('a') rejectattr('a') join";
    let texts = "lower upper capitalize trim split lines string int float bool abs round \
                 replace('a','b') indent(2)";
    for filter in [lists, texts].iter().flat_map(|all| all.split_whitespace()) {
        let rendered = a_world().text(&format!("{{% set x = Nonsense|{filter} %}}"));
        assert!(rendered.is_err(), "{filter}: {rendered:?}");
    }
    let rendered = a_world().text("{{ Nonsense|default('a') }}");
    assert_eq!(rendered.unwrap(), "a");
}

#[test]
fn an_error_in_an_included_template_names_both() {
    check(
        |world| {
            with_template("{% include 'inner' %}")(world);
            let templates = &mut world.profile.bootstrap_config.templates;
            templates.insert("inner".to_owned(), "\n\n{{ Nonsense }}".to_owned());
        },
        "template",
        "profile, spec.bootstrapConfig, file `/f`, in template `inner`, line 3: \
         `Nonsense` is undefined",
    );
}

#[test]
fn limits_are_named() {
    check(
        |world| {
            with_template("{% for i in range(100) %}{{ i }}{% endfor %}")(world);
            world.limits.fuel = 50;
        },
        "template-fuel",
        "profile, spec.bootstrapConfig, file `/f`, line 1: \
         the profile runs more than 50 instructions (64 bytes count as one)",
    );
    check(
        |world| {
            with_template("{{ ServerURL }}")(world);
            world.limits.output_bytes_max = 5;
        },
        "template-output",
        "profile, spec.bootstrapConfig, file `/f`: the template writes more than 5 bytes",
    );
    check(
        |world| {
            with_template("{% set a = ServerURL ~ ServerURL %}")(world);
            world.limits.work_bytes_max = 5;
        },
        "template-work",
        "profile, spec.bootstrapConfig, file `/f`, line 1: \
         the profile makes more than 5 bytes of intermediate values",
    );
}

#[test]
fn what_is_wrong_with_a_machine_deployment_is_said() {
    const VALUE: &str = "machine deployment, spec.template.spec.providerSpec.value";
    let provider = |spec: serde_json::Value, category: &str, message: &str| {
        let change = |world: &mut World| world.provider_spec = spec.clone();
        check(change, category, &format!("{VALUE}{message}"));
    };
    provider(
        json!(null),
        "provider-spec",
        ": providerSpec cannot be empty",
    );
    provider(
        json!({"x": 1}),
        "provider-spec",
        ": failed to decode provider configs: json: unknown field \"x\"",
    );
    provider(
        json!({"operatingSystem": "beos", "cloudProvider": "aws"}),
        "operating-system",
        ".operatingSystem: failed to add operating system spec: unknown OperatingSystem `beos`",
    );
    provider(
        json!({"operatingSystem": "ubuntu", "cloudProvider": "packet"}),
        "cloud-provider",
        ".cloudProvider: unknown cloud provider `packet`",
    );
    provider(
        json!({"operatingSystem": "ubuntu", "cloudProvider": "aws", "network": {"cidr": "x"}}),
        "static-network",
        ".network: static IP config is not supported with: ubuntu",
    );
    provider(
        json!({
            "operatingSystem": "flatcar",
            "cloudProvider": "aws",
            "operatingSystemSpec": {"provisioningUtility": "x"},
        }),
        "provisioning-utility",
        ".operatingSystemSpec.provisioningUtility: `x` is neither `ignition` nor `cloud-init`",
    );
    check(
        |world| "v1.x".clone_into(&mut world.kubelet_version),
        "kubelet-version",
        "machine deployment, spec.template.spec.versions.kubelet: \
         invalid kubelet version: `v1.x` is an invalid semantic version",
    );
    check(
        |world| {
            let key = "v1.kubelet-config.machine-controller.kubermatic.io/MaxPods";
            world.annotations.insert(key.to_owned(), "x".to_owned());
        },
        "kubelet-annotation",
        "machine deployment, annotation v1.kubelet-config.machine-controller.kubermatic.io/MaxPods: \
         parsing maxPods: strconv.ParseInt: parsing \"x\": invalid syntax",
    );
}

#[test]
fn a_registry_that_machines_could_not_use_is_refused_without_its_text() {
    let mirror = |url: &'static str, reason: &str| {
        let change = |world: &mut World| {
            let urls = vec!["https://a.example".to_owned(), url.to_owned()];
            let mirrors = &mut world.settings.registry_mirrors;
            mirrors.insert("ghcr.io".to_owned(), urls);
        };
        let message = format!("settings, registryMirrors of `ghcr.io`, mirror 2: {reason}");
        check(change, "registry", &message);
    };
    mirror("", "it names no host");
    mirror(
        "10.0.0.1:5000",
        "it has a port and no scheme: write `https://` before it",
    );
    mirror(
        "https://user:pass word@a.example",
        "the part before `@` must be percent-encoded",
    );
    mirror("https://a.example:port", "its port is no number");
    check(
        |world| world.settings.insecure_registries = vec!["*".to_owned()],
        "registry",
        "settings, insecureRegistries: `*` names no host; give it mirrors in registryMirrors, \
         or name each registry",
    );
}

#[test]
fn a_value_that_would_break_out_of_the_document_is_refused() {
    let unsafe_value = |change: &dyn Fn(&mut World), place: &str| {
        let mut world = a_world();
        change(&mut world);
        let error = world.render().unwrap_err();
        assert_eq!(error.category(), "unsafe-value");
        let E::Unsafe { place: found, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(found, place, "{error}");
    };
    let file = |path: &'static str, text: &'static str| {
        move |world: &mut World| world.profile.bootstrap_config.files = vec![a_file(path, text)]
    };
    unsafe_value(&file("/a\nb", ""), "file `/a\\nb`, path");
    unsafe_value(&file("/a", "x\ry"), "file `/a`, content");
    unsafe_value(&file("/a", "x\u{2028}y"), "file `/a`, content");
    unsafe_value(&file("/a", "  x\n y"), "file `/a`, content");
    unsafe_value(
        &|world| {
            file("/a", "")(world);
            world.profile.bootstrap_config.files[0].permissions = 689;
        },
        "file `/a`, permissions",
    );
    unsafe_value(
        &|world| world.provider_spec["sshPublicKeys"] = json!(["ssh-rsa A", "a\nb"]),
        "userSSHKeys[1]",
    );
    for command in [
        "a: b", "a #b", "a\nb", "- a", "{a}", "a:", "'a' b", "[a", "[[a]]", "",
    ] {
        let modules = CloudInitModules {
            runcmd: vec![command.to_owned()],
            ..CloudInitModules::default()
        };
        unsafe_value(&with_modules(modules), "modules.runcmd[0]");
    }
    let subscription = |key: &str, value: &str| CloudInitModules {
        rh_subscription: BTreeMap::from([(key.to_owned(), value.to_owned())]),
        ..CloudInitModules::default()
    };
    unsafe_value(
        &with_modules(subscription("password", "a: b")),
        "modules.rh_subscription.password",
    );
    unsafe_value(
        &with_modules(subscription("a: b", "")),
        "modules.rh_subscription, a key",
    );
}

#[test]
fn a_value_of_the_wrong_type_is_refused_by_its_field() {
    let base = json!({"operatingSystem": "rhel"});
    for (field, value, expected) in [
        (
            "sshPublicKeys",
            json!("a"),
            "string into sshPublicKeys, which is a list of strings",
        ),
        (
            "network",
            json!({"dns": {"servers": [1]}}),
            "number into network.dns.servers, which is a string",
        ),
        (
            "OperatingSystemSpec",
            json!({"attachSubscription": "hunter2"}),
            "string into operatingSystemSpec.attachSubscription, which is a boolean",
        ),
    ] {
        let mut provider = base.clone();
        provider[field] = value;
        let error = ProviderConfig::decode(&provider).unwrap_err().to_string();
        let expected = format!("json: cannot unmarshal {expected}");
        assert!(error.ends_with(&expected), "{error}");
    }
}

#[test]
fn a_key_is_decoded_whatever_its_case() {
    let value = json!({
        "CLOUDPROVIDER": "aws",
        "cloudprovider": "gce",
        "OperatingſYstem": "flatcar",
        "networK": {"CIDR": "a"},
        "Network": {"gateway": "b", "dns": {"Servers": ["c"]}},
        "operatingSystemSpec": {"disableautoupdate": true, "unknown": 1},
        "sshPublicKeys": null,
    });
    let config = ProviderConfig::decode(&value).unwrap();
    assert_eq!(config.cloud_provider, "gce");
    assert_eq!(config.operating_system, "flatcar");
    let network = config.network.unwrap();
    assert_eq!(
        (network.cidr.as_str(), network.gateway.as_str()),
        ("a", "b")
    );
    assert_eq!(network.dns_servers, ["c"]);
    assert!(config.operating_system_spec.flatcar.disable_auto_update);

    let unknown = json!({"network": {"x": 1}, "y": 2});
    assert!(ProviderConfig::decode(&unknown).is_err());
    assert!(ProviderConfig::decode_lenient(&unknown).is_ok());
}

#[test]
fn a_profile_whose_version_says_jinja_is_jinja() {
    let mut profile = a_profile();
    profile.template_language = None;
    // Go's language has no filters with an argument in brackets.
    profile.bootstrap_config.files = vec![a_file("/f", "{{ Token|default('x') }}")];
    assert!(CompiledProfile::compile(&profile).is_err());
    "v1.0.0+jinja".clone_into(&mut profile.version);
    assert!(CompiledProfile::compile(&profile).is_ok());
    "v1.0.0+build.jinja.1".clone_into(&mut profile.version);
    assert!(CompiledProfile::compile(&profile).is_ok());
}
