//! What the kubelet is told: its configuration and its command line.

use serde_json::{Value, json};

use crate::{
    cases::{case, case_of, every_case, every_profile},
    documents::parse,
};

#[test]
fn the_configuration_has_the_documented_defaults() {
    let configuration = configuration("osp-ubuntu/aws/1.34.1");
    let reserved = json!({ "cpu": "200m", "ephemeral-storage": "1Gi", "memory": "200Mi" });
    let eviction = json!({
        "imagefs.available": "15%",
        "memory.available": "100Mi",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
    });
    for (field, expected) in [
        ("apiVersion", json!("kubelet.config.k8s.io/v1beta1")),
        ("kind", json!("KubeletConfiguration")),
        ("cgroupDriver", json!("systemd")),
        ("clusterDNS", json!(["10.10.10.10"])),
        ("clusterDomain", json!("cluster.local")),
        ("containerLogMaxFiles", json!(5)),
        ("containerLogMaxSize", json!("100Mi")),
        ("evictionHard", eviction),
        (
            "featureGates",
            json!({ "RotateKubeletServerCertificate": true }),
        ),
        ("kubeReserved", reserved.clone()),
        ("maxParallelImagePulls", json!(10)),
        ("protectKernelDefaults", json!(true)),
        ("readOnlyPort", json!(0)),
        ("resolvConf", json!("/run/systemd/resolve/resolv.conf")),
        ("rotateCertificates", json!(true)),
        ("serializeImagePulls", json!(false)),
        ("serverTLSBootstrap", json!(true)),
        ("systemReserved", reserved),
        ("volumePluginDir", json!("/var/lib/kubelet/volumeplugins")),
    ] {
        assert_eq!(configuration.get(field), Some(&expected), "{field}");
    }
    for absent in [
        "maxPods",
        "imageGCHighThresholdPercent",
        "imageMinimumGCAge",
    ] {
        assert_eq!(configuration.get(absent), None, "{absent}");
    }
}

/// A drop-in is read later, so that it would win over what profiles write.
#[test]
fn what_a_configuration_has_cannot_be_set_in_a_drop_in() {
    for case in every_case() {
        let configuration = configuration(&case.name);
        let profile = every_profile().iter().find(|it| it.name == case.profile);
        let profile = profile.expect("a case has a profile");
        for field in configuration.as_object().expect("it is a map").keys() {
            let mut machine = case.machine.clone();
            machine.settings.kubelet.fields = [(field.clone(), json!(1))].into_iter().collect();
            let refused = machine.render(&profile.compiled).err().unwrap_or_default();
            assert!(
                refused.contains("sets it"),
                "{}: {field}: {refused}",
                case.name
            );
        }
    }
}

#[test]
fn annotations_replace_the_defaults() {
    let configuration = configuration("osp-ubuntu/openstack/annotated-1.34.1");
    for (field, expected) in [
        ("containerLogMaxFiles", json!(7)),
        ("containerLogMaxSize", json!("50Mi")),
        (
            "evictionHard",
            json!({ "memory.available": "5%", "nodefs.available": "1Gi" }),
        ),
        ("imageGCHighThresholdPercent", json!(80)),
        ("imageGCLowThresholdPercent", json!(0)),
        ("imageMinimumGCAge", json!("2m0s")),
        ("imageMaximumGCAge", json!("24h0m0s")),
        (
            "kubeReserved",
            json!({ "cpu": "300m", "memory": "1Gi", "ephemeral-storage": "2Gi" }),
        ),
        ("maxPods", json!(222)),
        ("systemReserved", json!({ "cpu": "100m" })),
    ] {
        assert_eq!(configuration.get(field), Some(&expected), "{field}");
    }
    let gates = json!({ "RotateKubeletServerCertificate": true, "ContextualLogging": false });
    assert_eq!(configuration.get("featureGates"), Some(&gates));
    assert!(
        unit("osp-ubuntu/openstack/annotated-1.34.1")
            .contains("\"--register-with-taints=dedicated=gpu:NoSchedule\"")
    );
}

#[test]
fn flags_follow_the_provider_and_the_ip_families() {
    let external = "--cloud-provider=external";
    let hostname = "--hostname-override=${KUBELET_HOSTNAME}";
    let address = "--node-ip=${KUBELET_NODE_IP}";
    for (name, expected) in [
        ("osp-ubuntu/aws/1.34.1", vec![address]),
        ("osp-ubuntu/aws/external", vec![external, hostname, address]),
        // AWS has a cloud provider in both cases, which then sets both addresses.
        ("osp-ubuntu/aws/dual", vec![]),
        ("osp-ubuntu/aws/dual-external", vec![external, hostname]),
        ("osp-ubuntu/aws/ipv6", vec![address]),
        ("osp-ubuntu/openstack/1.34.1", vec![address]),
        ("osp-ubuntu/openstack/external", vec![external, address]),
        ("osp-ubuntu/openstack/dual", vec![address]),
        ("osp-ubuntu/openstack/dual-external", vec![external]),
    ] {
        let unit = unit(name);
        let found: Vec<_> = [external, hostname, address]
            .into_iter()
            .filter(|flag| unit.contains(flag))
            .collect();
        assert_eq!(found, expected, "{name}");
        assert!(!unit.contains("--register-with-taints"), "{name}");
    }
}

#[test]
fn a_hostile_taint_stays_one_word_of_the_unit() {
    let expected = r#""--register-with-taints=a=\"b$$c%%d\\:NoSchedule" \"#;
    assert!(
        unit("osp-ubuntu/aws/hostile")
            .lines()
            .any(|line| line.trim() == expected)
    );
}

#[test]
fn every_supported_version_gets_the_tools_of_its_minor() {
    for case in every_case() {
        if case.name.ends_with("/hostile") {
            continue;
        }
        let kubelet = case.machine.kubelet;
        let (minor, _) = kubelet.rsplit_once('.').expect("a version has three parts");
        let setup = case.text("/opt/bin/setup");
        for line in [
            format!("\nkube_version='v{kubelet}'\n"),
            format!("\ncrictl_version='v{minor}.0'\n"),
            "\ncni_version='v1.9.1'\n".to_owned(),
        ] {
            assert!(setup.contains(&line), "{} without {line}", case.name);
        }
    }
    let setup = case("osp-ubuntu/openstack/1.34.1").text("/opt/bin/setup");
    assert!(setup.contains("\ncontainerd_version='2.2*'\n"));
}

#[test]
fn the_configuration_fits_the_distribution() {
    let resolved = json!("/run/systemd/resolve/resolv.conf");
    for (profile, resolv_conf, fail_cgroup_v1) in [
        ("osp-amzn2", None, Some(json!(false))),
        ("osp-amzn2023", None, None),
        ("osp-centos-stream", None, None),
        (
            "osp-debian",
            Some(json!("/etc/kubernetes/resolv.conf")),
            None,
        ),
        ("osp-flatcar", Some(resolved.clone()), None),
        ("osp-flatcar-cloud-init", Some(resolved.clone()), None),
        ("osp-rhel", None, None),
        ("osp-rockylinux", None, None),
        ("osp-ubuntu", Some(resolved), None),
    ] {
        let configuration = configuration(&case_of(profile, "1.36.0").name);
        assert_eq!(
            configuration.get("resolvConf"),
            resolv_conf.as_ref(),
            "{profile}"
        );
        let found = configuration.get("failCgroupV1");
        assert_eq!(found, fail_cgroup_v1.as_ref(), "{profile}");
    }
}

fn configuration(name: &str) -> Value {
    parse(case(name).text("/etc/kubernetes/kubelet.conf").as_bytes())
}

fn unit(name: &str) -> &'static str {
    case(name).text("/etc/systemd/system/kubelet.service")
}
