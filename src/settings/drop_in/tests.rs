use std::io::Write as _;

use super::*;

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn typed(line: &str) -> ControllerFlags {
    let words = words(line);
    let read = read("osm-controller", CONTROLLER_FLAGS, &words).unwrap();
    assert_eq!(read.ignored, [""; 0], "{line}");
    read.flags
}

fn settings(line: &str) -> DropInSettings {
    typed(line).check().unwrap()
}

/// What the check says of a line that has the namespace.
fn refused(line: &str) -> String {
    let flags = typed(&format!("-namespace=kube-system {line}"));
    flags.check().unwrap_err().to_string()
}

/// The table that operators know: each flag with its default.
const DEFAULTS: &[(&str, &str)] = &[
    ("kubeconfig", ""),
    ("worker-cluster-kubeconfig", ""),
    ("worker-count", "10"),
    ("namespace", ""),
    ("container-runtime", r#""containerd""#),
    ("external-cloud-provider", ""),
    ("cluster-dns", r#""10.10.10.10""#),
    ("pause-image", ""),
    ("initial-taints", ""),
    ("disable-default-osps", ""),
    (
        "node-kubelet-feature-gates",
        r#""RotateKubeletServerCertificate=true""#,
    ),
    ("node-http-proxy", ""),
    (
        "node-no-proxy",
        r#"".svc,.cluster.local,localhost,127.0.0.1""#,
    ),
    ("node-insecure-registries", ""),
    ("node-registry-mirrors", ""),
    ("node-containerd-registry-mirrors", ""),
    ("node-registry-credentials-secret", ""),
    ("device-ownership-from-security-context", ""),
    ("health-probe-address", r#""127.0.0.1:8085""#),
    ("metrics-address", r#""127.0.0.1:8080""#),
    ("worker-health-probe-address", r#""127.0.0.1:8086""#),
    ("worker-metrics-address", r#""127.0.0.1:8081""#),
    ("leader-elect", "true"),
    ("override-bootstrap-kubelet-apiserver", ""),
    ("bootstrap-token-service-account-name", ""),
    ("kubernetes-ca-bundle", ""),
    ("host-ca-bundle", ""),
    ("ca-bundle", ""),
    ("log-debug", ""),
    ("log-format", "JSON"),
];
const WEBHOOK_DEFAULTS: &[(&str, &str)] = &[
    ("metrics-bind-address", r#"":8080""#),
    ("health-probe-bind-address", r#"":8081""#),
    ("leader-elect", ""),
    ("namespace", ""),
    ("cert-dir", r#""/tmp/k8s-webhook-server/serving-certs""#),
    ("log-debug", ""),
    ("log-format", "JSON"),
    ("kubeconfig", ""),
];

/// The flags that a usage names, with their defaults.
fn reported(usage: &str) -> BTreeMap<String, String> {
    let mut reported = BTreeMap::new();
    for flag in usage.split("\n  -").skip(1) {
        let (head, text) = flag.split_once('\n').unwrap();
        let name = head.split(' ').next().unwrap();
        let default = text
            .trim_end()
            .strip_suffix(')')
            .and_then(|text| text.rsplit_once("(default "))
            .map_or("", |(_, default)| default);
        reported.insert(name.to_owned(), default.to_owned());
    }
    reported
}

#[test]
fn the_flags_and_their_defaults_are_those_that_operators_know() {
    let table = |table: &[(&str, &str)]| -> BTreeMap<String, String> {
        let owned = |&(name, default): &(&str, &str)| (name.to_owned(), default.to_owned());
        table.iter().map(owned).collect()
    };
    assert_eq!(reported(&usage("x", CONTROLLER_FLAGS)), table(DEFAULTS));
    assert_eq!(
        reported(&usage("x", WEBHOOK_FLAGS)),
        table(WEBHOOK_DEFAULTS)
    );
}

#[test]
fn a_line_with_the_namespace_alone_has_the_defaults() {
    let settings = settings("-namespace kube-system");
    assert_eq!(settings.mode, Mode::SingleCluster);
    assert_eq!(settings.namespace, "kube-system");
    assert_eq!(settings.reconciles_max, 10);
    assert_eq!(settings.kubeconfig, None);
    assert_eq!(settings.leader_election, LeaderElection::Held);
    assert_eq!(settings.default_profiles, DefaultProfileInstallation::Kept);
    assert_eq!(settings.health_addresses, ["127.0.0.1:8085"]);
    assert_eq!(settings.metrics_addresses, ["127.0.0.1:8080"]);
    let expected = TenantSettings {
        mirror_order: MirrorOrder::ByUrl,
        stored_config: StoredConfig::Inline,
        profile_rollout: ProfileRollout::Immediate,
        ..TenantSettings::default()
    };
    assert_eq!(settings.tenant, expected);
}

#[test]
fn kubeones_line_is_understood() {
    let settings = settings(
        "-log-debug=false -log-format=json -health-probe-address=0.0.0.0:8085 \
         -metrics-address=0.0.0.0:8080 -cluster-dns=169.254.20.10 -namespace=kube-system \
         -container-runtime=containerd -pause-image=registry.example/pause:3.9 \
         -external-cloud-provider \
         -node-containerd-registry-mirrors=docker.io=https://b.example \
         -node-containerd-registry-mirrors=docker.io=https://a.example \
         -node-containerd-registry-mirrors=quay.io=http://quay.example?x=y \
         -node-insecure-registries=one.example:5000,two.example \
         -node-registry-credentials-secret=kube-system/registry-credentials \
         -node-http-proxy=http://proxy.example:3128 -node-no-proxy=.svc,10.0.0.0/8 \
         -device-ownership-from-security-context",
    );
    let tenant = &settings.tenant;
    assert_eq!(tenant.cluster_dns, [IpAddr::from([169, 254, 20, 10])]);
    assert!(tenant.external_cloud_provider && tenant.device_ownership_from_security_context);
    assert_eq!(tenant.pause_image, "registry.example/pause:3.9");
    assert_eq!(
        tenant.registry_mirrors["docker.io"],
        ["https://b.example", "https://a.example"]
    );
    assert_eq!(
        tenant.registry_mirrors["quay.io"],
        ["http://quay.example?x=y"]
    );
    assert_eq!(
        tenant.insecure_registries,
        ["one.example:5000", "two.example"]
    );
    let secret = settings.registry_credentials.unwrap();
    assert_eq!(
        (secret.namespace.as_str(), secret.name.as_str()),
        ("kube-system", "registry-credentials")
    );
    let proxies = (tenant.http_proxy.as_deref(), tenant.no_proxy.as_deref());
    assert_eq!(
        proxies,
        (Some("http://proxy.example:3128"), Some(".svc,10.0.0.0/8"))
    );
    assert_eq!(settings.health_addresses, ["0.0.0.0:8085"]);
}

#[test]
fn kkps_line_is_understood() {
    let settings = settings(
        "-kubeconfig /etc/kubernetes/kubeconfig/kubeconfig -health-probe-address 0.0.0.0:8085 \
         -metrics-address 0.0.0.0:8080 -namespace kube-system -cluster-dns 10.240.16.10 \
         -container-runtime containerd -external-cloud-provider \
         -node-registry-mirrors mirror.example,quay.io=http://quay.example \
         -node-insecure-registries one.example -pause-image registry.example/pause:3.9 \
         -node-http-proxy http://proxy.example:3128 -node-no-proxy .svc,.cluster.local \
         -node-kubelet-feature-gates \
         GracefulNodeShutdown=true,RotateKubeletServerCertificate=false \
         -node-registry-credentials-secret cluster-abc/registry -disable-default-osps",
    );
    assert_eq!(
        settings.kubeconfig.unwrap(),
        Path::new("/etc/kubernetes/kubeconfig/kubeconfig")
    );
    assert_eq!(
        settings.default_profiles,
        DefaultProfileInstallation::Disabled
    );
    let tenant = &settings.tenant;
    assert_eq!(
        tenant.registry_mirrors["docker.io"],
        ["https://mirror.example"]
    );
    assert_eq!(tenant.registry_mirrors["quay.io"], ["http://quay.example"]);
    let gates: Vec<_> = tenant.kubelet_feature_gates.iter().collect();
    assert_eq!(
        gates,
        [
            (&"GracefulNodeShutdown".to_owned(), &true),
            (&ROTATE_SERVER_CERTIFICATE.to_owned(), &false)
        ]
    );
}

#[test]
fn kkps_line_of_the_webhook_is_understood() {
    let line = words("-log-debug=false -log-format json -namespace kube-system");
    let read = read("webhook", WEBHOOK_FLAGS, &line).unwrap();
    let expected = WebhookFlags {
        namespace: "kube-system".to_owned(),
        ..WebhookFlags::default()
    };
    assert_eq!(read.flags, expected);
    let settings = read.flags.check().unwrap();
    assert_eq!(settings.admin_addresses, ["[::]:8081", "[::]:8080"]);
    let folder = std::path::Path::new("/tmp/k8s-webhook-server/serving-certs");
    assert_eq!(settings.certificate_folder, folder);
}

#[test]
fn a_worker_cluster_brings_addresses_of_its_own() {
    let settings = settings(
        "-namespace=osm -kubeconfig=m -worker-cluster-kubeconfig=w -metrics-address=0 \
         -worker-metrics-address=:9 -leader-elect=false",
    );
    assert_eq!(settings.mode, Mode::OneWorker);
    assert_eq!(
        settings.health_addresses,
        ["127.0.0.1:8085", "127.0.0.1:8086"]
    );
    assert_eq!(settings.metrics_addresses, ["[::]:9"]);
    assert_eq!(settings.leader_election, LeaderElection::None);
}

#[test]
fn what_cannot_be_used_is_reported_in_the_words_that_operators_know() {
    let error = ControllerFlags::default().check().unwrap_err();
    assert_eq!(error.to_string(), "-namespace is required");
    for (line, reported) in [
        (
            "-container-runtime=docker",
            "docker not supported; containerd is the only supported container runtimes",
        ),
        (
            "-cluster-dns=10.0.0.1,ten",
            "invalid cluster dns specified: unable to parse ip ten",
        ),
        (
            "-cluster-dns=",
            "invalid cluster dns specified: unable to parse ip ",
        ),
        (
            "-node-kubelet-feature-gates=",
            r#"invalid kubelet feature gates specified: invalid kubelet feature gate: """#,
        ),
        (
            "-node-kubelet-feature-gates=A=true,B",
            r#"invalid kubelet feature gates specified: invalid kubelet feature gate: "B""#,
        ),
        (
            "-node-kubelet-feature-gates=A=on",
            r#"invalid kubelet feature gates specified: failed to parse kubelet feature gate: "A=on""#,
        ),
        (
            "-node-registry-credentials-secret=credentials",
            "-node-registry-credentials-secret is in incorrect format \"credentials\", should be \
             in 'namespace/secretname'",
        ),
        (
            "-bootstrap-token-service-account-name=a/b/c",
            "splitting the bootstrap-token-service-account-name flag value in '/' returned 3 \
             parts, expected exactly two",
        ),
        ("-worker-count=0", "-worker-count must be at least 1"),
    ] {
        assert_eq!(refused(line), reported, "{line}");
    }
    let stop = read("x", CONTROLLER_FLAGS, &words("-log-format=xml")).unwrap_err();
    let reported =
        "invalid value \"xml\" for flag -log-format: invalid format 'xml'\nUsage of x:\n";
    assert!(stop.text.starts_with(reported), "{}", stop.text);
    let line = words("-node-containerd-registry-mirrors=docker.io");
    let stop = read("x", CONTROLLER_FLAGS, &line).unwrap_err();
    assert!(stop.text.contains(": should have exactly 1 =\n"));
}

#[test]
fn a_bundle_has_a_certificate_and_is_used_as_it_is() {
    let file = |text: &str| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    };
    let certificate = rcgen::generate_simple_self_signed(["authority".to_owned()]);
    let bundle = format!("# ours\n{}\n", certificate.unwrap().cert.pem());
    let (good, bad) = (file(&bundle), file("no certificate\n"));
    let (good, bad) = (good.path().display(), bad.path().display());
    let settings = settings(&format!(
        "-namespace=a -host-ca-bundle={good} -kubernetes-ca-bundle={good} -ca-bundle=/nowhere"
    ));
    assert_eq!(settings.tenant.host_ca_bundle, bundle);
    assert_eq!(settings.tenant.kubernetes_ca_bundle, Some(bundle));
    for flag in ["host-ca-bundle", "kubernetes-ca-bundle"] {
        assert_eq!(
            refused(&format!("-{flag}={bad}")),
            format!("-{flag} is invalid: file does not contain valid PEM-encoded certificates")
        );
        let missing = refused(&format!("-{flag}=/nowhere"));
        let reported = format!("-{flag} is invalid: failed to read file \"/nowhere\": ");
        assert!(missing.starts_with(&reported), "{missing}");
    }
}

#[test]
fn a_mirror_without_a_registry_is_one_of_docker() {
    let mirrors = |list: &str| registries::mirrors(&[], list);
    let of = |registry: &str, urls: &[&str]| {
        let urls = urls.iter().map(|url| (*url).to_owned()).collect();
        BTreeMap::from([(registry.to_owned(), urls)])
    };
    for (list, expected) in [
        (
            " a.example , http://b.example,",
            ("docker.io", &["https://a.example", "http://b.example"][..]),
        ),
        ("quay.io=q.example", ("quay.io", &["https://q.example"])),
        (
            "localhost:5000=x",
            ("docker.io", &["https://localhost:5000=x"]),
        ),
        ("quay.io=", ("quay.io", &["https://"])),
    ] {
        assert_eq!(mirrors(list), of(expected.0, expected.1), "{list}");
    }
    assert!(mirrors("").is_empty());
    let given = [("docker.io".to_owned(), "first.example".to_owned())];
    let both = registries::mirrors(&given, "second.example");
    assert_eq!(
        both["docker.io"],
        ["first.example", "https://second.example"]
    );
}
