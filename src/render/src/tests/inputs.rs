//! Tests of the data that templates can read.

use super::*;
use crate::{
    fixtures::World,
    kubelet::{KubeletSettings, SETTINGS, faults},
    machine_updates,
    version::{Constraints, Version},
};
use osm_api::{names::MACHINE_UPDATES, worker_cluster::MachineUpdates};

#[test]
fn every_variable_that_existing_profiles_know_is_there() {
    let world = a_world();
    for name in [
        "KubeVersion",
        "ClusterDNSIPs",
        "KubernetesCACert",
        "HostCACert",
        "CloudProviderName",
        "CloudConfig",
        "InTreeCCMAvailable",
        "ExternalCloudProvider",
        "ContainerRuntime",
        "ContainerRuntimeConfig",
        "ContainerRuntimeConfigV2",
        "ContainerRuntimeAuthConfig",
        "InitialTaints",
        "HTTPProxy",
        "NoProxy",
        "KubeletFeatureGates",
        "BootstrapKubeconfig",
        "Token",
        "ServerURL",
        "SecretName",
        "BootstrapKubeconfigSecretName",
        "NetworkConfig",
        "NetworkIPFamily",
        "PauseImage",
        "KubeReserved",
        "SystemReserved",
        "EvictionHard",
        "MaxPods",
        "ImageGCHighThresholdPercent",
        "ImageGCLowThresholdPercent",
        "ContainerLogMaxSize",
        "ContainerLogMaxFiles",
        "ImageMinimumGCAge",
        "ImageMaximumGCAge",
        "AmazonLinuxConfig",
        "UbuntuConfig",
        "RockyLinuxConfig",
        "FlatcarConfig",
        "RhelConfig",
        "KubeletConfiguration",
        "KubeletSystemdUnit",
        "CNIVersion",
        "ServerAddress",
        "RHSubscription",
        "variables",
    ] {
        let template = format!("{{% if {name} is defined %}}yes{{% endif %}}");
        assert_eq!(world.text(&template).unwrap(), "yes", "{name}");
    }
}

#[test]
fn variables_have_the_values_that_existing_profiles_expect() {
    let mut world = a_world();
    world.provider_spec = json!({
        "operatingSystem": "flatcar",
        "cloudProvider": "aws",
        "operatingSystemSpec": {"disableAutoUpdate": true, "provisioningUtility": "cloud-init"},
        "network": {"cidr": "10.0.0.2/24", "dns": {"servers": ["1.1.1.1", "fd00::1"]}},
    });
    for (name, value) in [
        ("MaxPods", "110"),
        ("KubeReserved", "cpu=1, memory=1Gi"),
        ("EvictionHard", "pid.available<5%"),
        ("ImageMinimumGCAge", "90s"),
        ("ContainerLogMaxSize", "1Mi"),
        ("Unknown", "x"),
    ] {
        let key = format!("v1.kubelet-config.machine-controller.kubermatic.io/{name}");
        world.annotations.insert(key, value.to_owned());
    }
    world
        .settings
        .variables
        .insert("site".to_owned(), "berlin".to_owned());
    let check = |template: &str, expected: &str| {
        assert_eq!(world.text(template).unwrap(), expected, "{template}");
    };
    check("{{ KubeVersion }}", "v1.34.1");
    check(
        "{{ SecretName }}",
        "workers-kube-system-provisioning-config",
    );
    check(
        "{{ BootstrapKubeconfigSecretName }}",
        "kube-system-workers-kubelet-bootstrap-config",
    );
    check("{{ ClusterDNSIPs|join(',') }}", "10.10.10.10");
    check("{{ InTreeCCMAvailable }}", "true");
    check("{{ FlatcarConfig.DisableAutoUpdate }}", "true");
    check("{{ RhelConfig.AttachSubscription }}", "false");
    check(
        "{{ NetworkConfig.CIDR }} {{ NetworkConfig.DNS.Servers|join(' ') }}",
        "10.0.0.2/24 1.1.1.1 fd00::1",
    );
    check("{{ NetworkConfig.IsStaticIPConfig }}", "true");
    check("{{ MaxPods }}", "110");
    check(
        "{% for k, v in KubeReserved|items %}{{ k }}:{{ v }};{% endfor %}",
        "cpu:1;memory:1Gi;",
    );
    check(
        "{% for k in EvictionHard %}{{ k }}<{{ EvictionHard[k] }}{% endfor %}",
        "pid.available<5%",
    );
    check("{{ ImageMinimumGCAge }}", "1m30s");
    check("{{ ContainerLogMaxSize }}", "1Mi");
    check("{{ variables.site }}", "berlin");
    check("{% if SystemReserved is none %}none{% endif %}", "none");
    check("{% if HTTPProxy %}a{% else %}b{% endif %}", "b");
    check("{{ HTTPProxy or 'direct' }}", "direct");
    check("{{ NoProxy }}", ".svc,.cluster.local,localhost,127.0.0.1");
}

const GATES: &str = "v1.kubelet-featuregates.machine-controller.kubermatic.io";
const PRINT_GATES: &str =
    "{% for k, v in KubeletFeatureGates|items %}{{ k }}={{ 'on' if v else 'off' }};{% endfor %}";

#[test]
fn annotations_are_laid_over_the_feature_gates_where_the_tenant_allows_it() {
    let mut world = a_world();
    let [kept, turned, added] = ["NodeSwap", "ContextualLogging", "ImageVolume"];
    world.settings.kubelet_feature_gates =
        BTreeMap::from([(kept.to_owned(), true), (turned.to_owned(), true)]);
    for (name, value) in [(turned, "false"), (added, "true")] {
        let annotation = format!("{GATES}/{name}");
        world.annotations.insert(annotation, value.to_owned());
    }
    let beside = format!("{GATES}.example/Other");
    world.annotations.insert(beside, "true".to_owned());
    let own = format!("{turned}=on;{kept}=on;");
    assert_eq!(world.text(PRINT_GATES).unwrap(), own);
    world.settings.kubelet_feature_gates_from_annotations = true;
    let laid_over = format!("{turned}=off;{added}=on;{kept}=on;");
    assert_eq!(world.text(PRINT_GATES).unwrap(), laid_over);
}

#[test]
fn a_feature_gate_with_which_the_kubelet_does_not_start_is_refused_where_it_is_set() {
    let mut world = a_world();
    world.settings.kubelet_feature_gates = BTreeMap::from([("NoSuchGate".to_owned(), true)]);
    let error = world.text("").unwrap_err().to_string();
    let problem =
        "kubelet 1.34 does not start with the feature gate `NoSuchGate`, which it does not have";
    assert_eq!(
        error,
        format!("settings, kubeletFeatureGates, `NoSuchGate`: {problem}")
    );
    world.kubelet_version = "1.33.9".to_owned();
    assert!(world.text("").is_ok(), "what that one knows is not known");
    world.kubelet_version = "v1.34".to_owned();
    world.settings.kubelet_feature_gates.clear();
    world.settings.kubelet_feature_gates_from_annotations = true;
    let annotation = format!("{GATES}/NoSuchGate");
    world
        .annotations
        .insert(annotation.clone(), "false".to_owned());
    let error = world.text("").unwrap_err().to_string();
    assert_eq!(
        error,
        format!("machine deployment, annotation {annotation}: {problem}")
    );
}

#[test]
fn a_feature_gate_that_cannot_be_read_matters_only_where_it_is_read() {
    for (name, value, problem) in [
        ("Gate", "yes", "\"yes\" must be \"true\" or \"false\""),
        ("Gate", "", "\"\" must be \"true\" or \"false\""),
        (
            "a-b",
            "true",
            "`a-b` must be a feature gate: letters and digits",
        ),
        ("", "true", "`` must be a feature gate: letters and digits"),
    ] {
        let mut world = a_world();
        let annotation = format!("{GATES}/{name}");
        world.annotations.insert(annotation, value.to_owned());
        assert!(world.text("").is_ok(), "it is not even read");
        world.settings.kubelet_feature_gates_from_annotations = true;
        let error = world.text("").unwrap_err();
        assert_eq!(error.category(), "feature-gate");
        let expected = format!("machine deployment, annotation {GATES}/{name}: {problem}");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn every_annotation_that_no_kubelet_accepts_is_refused_by_its_key() {
    const PREFIX: &str = "v1.kubelet-config.machine-controller.kubermatic.io";
    let check = |values: &[(&str, &str)], expected: &[&str]| {
        let annotations: BTreeMap<String, String> = values
            .iter()
            .map(|(name, value)| (format!("{PREFIX}/{name}"), (*value).to_owned()))
            .collect();
        let found = faults(&annotations);
        let names = found.iter().map(|fault| fault.annotation.as_str());
        let expected: Vec<String> = expected
            .iter()
            .map(|name| format!("{PREFIX}/{name}"))
            .collect();
        assert_eq!(names.collect::<Vec<_>>(), expected, "{found:?}");
        let mut world = a_world();
        world.annotations = annotations;
        let refused = world.text("").err().map(|error| error.to_string());
        let first = expected.first();
        assert_eq!(refused.is_some(), first.is_some());
        if let (Some(refused), Some(first)) = (refused, first) {
            assert!(
                refused.contains(&format!("annotation {first}: ")),
                "{refused}"
            );
        }
    };
    check(
        &[
            ("EvictionHard", "memory.available=1Gi"),
            ("MaxPods", "-1"),
            ("SystemReserved", "cpu: 1"),
        ],
        &["EvictionHard", "MaxPods", "SystemReserved"],
    );
    for name in SETTINGS {
        let accepts_nothing =
            name.contains("Reserved") || name.contains("Log") || name == "EvictionHard";
        check(
            &[(name, "")],
            if accepts_nothing {
                &[]
            } else {
                std::slice::from_ref(&name)
            },
        );
        check(&[(name, "nonsense")], std::slice::from_ref(&name));
    }
    // Unknown names are ignored.
    check(&[("maxPods", "x"), ("Bogus", "x")], &[]);
    let percents = |low, high| {
        [
            ("ImageGCLowThresholdPercent", low),
            ("ImageGCHighThresholdPercent", high),
        ]
    };
    check(&percents("80", "85"), &[]);
    check(&percents("85", "85"), &["ImageGCLowThresholdPercent"]);
    // What is not set has the kubelet's default: 80 and 85.
    let [(low, _), (high, _)] = percents("", "");
    check(&[(high, "81")], &[]);
    check(&[(high, "10")], &[high]);
    check(&[(low, "84")], &[]);
    check(&[(low, "90")], &[low]);
    let ages = |least, most| [("ImageMinimumGCAge", least), ("ImageMaximumGCAge", most)];
    check(&ages("1m", "1h"), &[]);
    check(&ages("1h", "0s"), &[]);
    check(&ages("1h", "1h"), &["ImageMaximumGCAge"]);
    // Zero means the kubelet's default of two minutes.
    check(&ages("0s", "1m"), &["ImageMaximumGCAge"]);
    check(&[("ImageMaximumGCAge", "2m")], &["ImageMaximumGCAge"]);
    check(&[("ImageMaximumGCAge", "3m")], &[]);
}

#[test]
fn what_lies_between_the_annotations_prefix_and_the_slash_does_not_count() {
    let annotations = BTreeMap::from([(
        "v1.kubelet-config.machine-controller.kubermatic.ioXYZ/MaxPods".to_owned(),
        "7".to_owned(),
    )]);
    assert_eq!(
        KubeletSettings::parse(&annotations).unwrap().max_pods,
        Some(7)
    );
}

#[test]
fn versions_are_read_leniently() {
    let check = |text: &str, expected: Option<&str>| {
        let found = Version::parse(text).map(|version| version.to_string());
        assert_eq!(found.as_deref(), expected, "{text}");
    };
    check("1.31", Some("1.31.0"));
    check("v1.31.0", Some("1.31.0"));
    check("1", Some("1.0.0"));
    check("1.31.0-rc.1+b.2", Some("1.31.0-rc.1+b.2"));
    check("1.31.0+b-2", Some("1.31.0+b-2"));
    check("", None);
    check("1.2.3.4", None);
    check("1.x", None);
    check("1.2.3-01", None);
    check("1.2.3-", None);
    check(" 1.2", None);
}

#[test]
fn constraints_have_the_meaning_that_existing_profiles_rely_on() {
    let check = |constraint: &str, yes: &[&str], no: &[&str]| {
        let constraints = Constraints::parse(constraint).unwrap();
        for (versions, expected) in [(yes, true), (no, false)] {
            for version in versions {
                let parsed = Version::parse(version).unwrap();
                assert_eq!(
                    constraints.is_satisfied_by(&parsed),
                    expected,
                    "{constraint} {version}"
                );
            }
        }
    };
    check(
        "~1.33.0",
        &["v1.33.0", "1.33.9"],
        &["1.34.0", "1.33.0-rc.1", "1.32.9"],
    );
    check("~1", &["1.0.0", "1.9.9"], &["2.0.0"]);
    check("^1.2", &["1.2.0", "1.9.0"], &["1.1.9", "2.0.0"]);
    check("^0.2.3", &["0.2.3", "0.2.9"], &["0.3.0", "0.2.2"]);
    check("^0.0.3", &["0.0.3"], &["0.0.4"]);
    check("^0", &["0.9.0"], &["1.0.0"]);
    check(
        ">= 1.29, < 1.31",
        &["1.29.0", "1.30.9"],
        &["1.31.0", "1.28.0", "1.30.0-rc.1"],
    );
    check(">=1.29 <1.31", &["1.30.0"], &["1.31.0"]);
    check(">=1.29 || 1.20.x", &["1.20.7", "1.30.0"], &["1.21.0"]);
    check("1.29 - 1.31", &["1.29.0", "1.31.9"], &["1.32.0"]);
    check("1.29.1 - 1.31.0", &["1.31.0"], &["1.31.1", "1.29.0"]);
    check("1.2.3", &["1.2.3", "1.2.3+x"], &["1.2.4"]);
    check("=1.2", &["1.2.9"], &["1.3.0"]);
    check("!=1.2", &["1.3.0"], &["1.2.9", "1.3.0-rc.1"]);
    check(
        "!=1.2.3",
        &["1.2.4"],
        &["1.2.3", "1.2.3-rc.1", "1.2.4-rc.1"],
    );
    check("!=1.2.3-rc.1", &["1.2.3-rc.2", "1.2.3"], &["1.2.3-rc.1"]);
    check(">1", &["2.0.0"], &["1.9.9"]);
    check(">1.2", &["1.3.0"], &["1.2.9"]);
    check("<=1.2", &["1.2.9", "0.1.0"], &["1.3.0"]);
    check("<1.2", &["1.1.9"], &["1.2.0"]);
    check("*", &["0.0.0", "9.9.9"], &["1.0.0-rc.1"]);
    check("", &["9.9.9"], &[]);
    check(
        ">=1.29.0-0",
        &["1.29.0-rc.1", "1.30.0-rc.1", "1.29.0"],
        &["1.28.0"],
    );
    check(">=1.29.0-0 <1.31", &["1.30.0-rc.1"], &["1.31.0"]);
    check("=> v1.2 =< 1.4", &["1.3.0"], &["1.5.0"]);
    for constraint in [
        "nonsense", "1.2.3.4", "> = 1", ">1,", "1 -", "1.2.3foo", "01x",
    ] {
        assert!(Constraints::parse(constraint).is_none(), "{constraint}");
    }
}

#[test]
fn an_address_of_ipv4_within_ipv6_is_written_as_the_first() {
    let mut world = a_world();
    world.settings.cluster_dns = vec!["::ffff:10.0.0.1".parse().unwrap()];
    assert_eq!(
        world.text("{{ ClusterDNSIPs|join }}"),
        Ok("10.0.0.1".to_owned())
    );
}

#[test]
fn a_kubelet_before_1_29_gets_the_cloud_config_that_it_reads() {
    let mut world = a_world();
    let aws = json!({
        "operatingSystem": "ubuntu",
        "cloudProvider": "aws",
        "cloudProviderSpec": {
            "availabilityZone": "eu-central-1a",
            "vpcId": {"value": "vpc-\"1\""},
        },
    });
    let wanted = "[global]\nZone=\"eu-central-1a\"\nVPC=\"vpc-\\\"1\\\"\"\nSubnetID=\"\"\n";
    world.provider_spec = aws;
    for (kubelet, wanted) in [("1.28.15", wanted), ("1.29.0", ""), ("1.34.0-rc.1", "")] {
        world.kubelet_version = kubelet.to_owned();
        assert_eq!(
            world.text("{{ CloudConfig }}"),
            Ok(wanted.to_owned()),
            "{kubelet}"
        );
    }
    world.kubelet_version = "1.28.15".to_owned();
    world.settings.external_cloud_provider = true;
    assert_eq!(world.text("{{ CloudConfig }}"), Ok(String::new()));
    // The files of other providers contain credentials, and are not generated.
    world.settings.external_cloud_provider = false;
    world.provider_spec = json!({"operatingSystem": "ubuntu", "cloudProvider": "openstack"});
    let error = world.text("x").unwrap_err().to_string();
    assert!(
        error.starts_with("failed to fetch cloud-config: "),
        "{error}"
    );
    world.provider_spec["overwriteCloudConfig"] = json!("mine");
    assert_eq!(world.text("{{ CloudConfig }}"), Ok("mine".to_owned()));
}

#[test]
fn a_machine_deployment_overrides_whether_its_machines_report() {
    let reports = |world: &World| {
        let rendered = world.render()?;
        let files = rendered.config.provisioning_config.files;
        Ok::<_, RenderError>(files.iter().any(|it| it.path == "/etc/osm/machine/files"))
    };
    for (setting, annotation, expected) in [
        (MachineUpdates::Disabled, None, false),
        (MachineUpdates::Reload, None, true),
        (MachineUpdates::Disabled, Some("Report"), true),
        (MachineUpdates::Reload, Some("Disabled"), false),
    ] {
        let mut world = a_world();
        world.settings.machine_updates = setting;
        let annotation = annotation.map(|value| (MACHINE_UPDATES.to_owned(), value.to_owned()));
        world.annotations.extend(annotation);
        assert_eq!(reports(&world).unwrap(), expected, "{setting:?}");
    }
    let mut world = a_world();
    let unknown = (MACHINE_UPDATES.to_owned(), "true".to_owned());
    world.annotations.extend([unknown]);
    let told = format!("annotation {MACHINE_UPDATES}: it must be `Disabled`, `Report` or `Reload`");
    assert!(reports(&world).unwrap_err().to_string().ends_with(&told));
}

#[test]
fn a_file_that_its_author_encoded_is_listed_and_neither_compared_nor_taken() {
    const PATH: &str = "/etc/profile.d/a.sh";
    let mut world = a_world();
    world.settings.machine_updates = MachineUpdates::Reload;
    for (encoding, is_taken) in [(None, true), (Some("base64"), false)] {
        let mut file = crate::fixtures::a_file(PATH, "ZWNobwo=");
        let inline = file.content.inline.as_mut().unwrap();
        inline.encoding = encoding.map(str::to_owned);
        world.profile.provisioning_config.files = vec![file];
        let rendered = world.render().unwrap();
        let files = rendered.config.provisioning_config.files;
        let list = files.iter().find(|it| it.path == machine_updates::FILES);
        let list = crate::fixtures::data(list.unwrap());
        let line = list.lines().find(|it| it.ends_with(PATH)).unwrap();
        assert_eq!(line == format!("- - - {PATH}"), !is_taken, "{line}");
        assert_eq!(machine_updates::is_taken(PATH, &world.profile), is_taken);
    }
}
