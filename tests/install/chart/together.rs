//! Two installations in one management cluster, each with its own tenant.

use loadtest::egress_proxy::{Answer, EgressProxy};

use super::*;

/// The namespaces of the installations, and the names of their Deployments.
const NAMESPACES: [&str; 2] = [MANAGER, "osm-canary"];

const RELEASES: [&str; 2] = ["osm", "osm-canary"];

/// What `kubectl get` prints of the objects of a kind that a release has, sorted.
async fn names(cluster: &ControlPlane, kind: &str, release: &str) -> Vec<String> {
    let selector = format!("app.kubernetes.io/instance={release}");
    let get = ["get", kind, "--selector", &selector, "-o", "name"];
    let printed = kubectl(cluster, &get).await;
    let mut names: Vec<String> = printed.lines().map(str::to_owned).collect();
    names.sort();
    names
}

async fn assert_rights_of_its_own(cluster: &ControlPlane, namespace: &str, account: &str) {
    let account = format!("--as=system:serviceaccount:{namespace}:{account}");
    for (index, tenant) in [TENANT, "tenant-lisbon"].into_iter().enumerate() {
        let list = ["auth", "can-i", "--list", "-n", tenant, &account];
        let may_read = kubectl(cluster, &list).await.contains("secrets");
        assert_eq!(
            may_read,
            NAMESPACES[index] == namespace,
            "{account} in {tenant}"
        );
    }
    for other in NAMESPACES {
        let list = ["auth", "can-i", "--list", "-n", other, &account];
        let may_renew = kubectl(cluster, &list).await.contains("leases");
        assert_eq!(may_renew, other == namespace, "{account} in {other}");
    }
}

/// Asserts that `osm doctor` finds nothing wrong with an installation and one of its tenants.
async fn assert_healthy(cluster: &ControlPlane, namespace: &str, tenant: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_osm"))
        .args(["doctor", "--allow-loopback-servers", "--kubeconfig"])
        .arg(cluster.folder().join("administrator.kubeconfig"))
        .args(["--manager-namespace", namespace, "-n", tenant])
        .args(["--service-account", namespace])
        .output()
        .await
        .expect("the binary was built with this test");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{namespace}: {printed}");
    eprintln!("{printed}");
}

/// Has the API server validate the pod of `helm test`, and runs what it runs, with its rights.
async fn passes_its_test(cluster: &ControlPlane, (release, namespace): (&str, &str)) {
    let hooks = ["get", "hooks", release, "--namespace", namespace];
    let hooks = helm(cluster, &hooks).await.expect("it is installed");
    let file = cluster.folder().join("hooks.yaml");
    std::fs::write(&file, &hooks).expect("the folder is ours");
    let file = file.to_str().expect("our paths are text");
    let create = [
        "create",
        "--dry-run=server",
        "--validate=strict",
        "-f",
        file,
    ];
    let created = kubectl(cluster, &create).await;
    let expected = format!("pod/{namespace}-test created (server dry run)");
    assert_eq!(created.trim(), expected);
    let pods = objects(&hooks);
    let pod = pods.first().expect("it was created");
    assert_eq!(pod["metadata"]["annotations"]["helm.sh/hook"], "test");
    let manager = deployment(cluster, namespace, namespace).await;
    let manager = json!(manager.spec.template.spec);
    let container = &pod["spec"]["containers"][0];
    let account = &pod["spec"]["serviceAccountName"];
    assert_eq!(container["image"], manager["containers"][0]["image"]);
    assert_eq!(*account, manager["serviceAccountName"]);
    let arguments = container["args"].as_array().expect("it has arguments");
    let output = Command::new(env!("CARGO_BIN_EXE_osm"))
        .args(arguments.iter().filter_map(Value::as_str))
        .arg("--kubeconfig")
        // Of the account, with which the manager was started.
        .arg(cluster.folder().join(format!("{namespace}.kubeconfig")))
        .output()
        .await
        .expect("the binary was built with this test");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{namespace}: {printed}");
}

/// Sets more values of both installations; the second one reaches its tenant through the proxy.
async fn upgraded(management: &ControlPlane) -> EgressProxy {
    let more = "webhook.enabled=true,tenantPolicies[0].match.namespaces={tenant-berlin},\
        tenantPolicies[0].machineDeployments=7,\
        tenantPolicies[0].profileNamespaces={shared-profiles},tenantDefaults.clusterDNS={10.96.0.10}";
    let proxy = EgressProxy::start(Answer::Connected).await;
    let proxy = proxy.expect("it starts");
    let through_it = format!("{more},egressProxy.url={}", proxy.url());
    for (release, (namespace, more)) in RELEASES
        .into_iter()
        .zip(NAMESPACES.into_iter().zip([more, &through_it]))
    {
        let upgrade = [
            "upgrade",
            release,
            "osm",
            "--reset-then-reuse-values",
            "--set",
            more,
        ];
        let upgrade = [&upgrade[..], &["--namespace", namespace]].concat();
        let done = helm(management, &upgrade).await;
        done.expect("it is upgraded");
    }
    proxy
}

fn only_connects_to(proxy: &EgressProxy, cluster: &ControlPlane) {
    let server = cluster.server().trim_start_matches("https://");
    let asked = proxy.requests();
    let to_it = format!("CONNECT {server} ");
    assert!(
        !asked.is_empty() && asked.iter().all(|it| it.starts_with(&to_it)),
        "{asked:?}"
    );
}

async fn takes_the_proxy_of_the_page(management: &ControlPlane) {
    let [first, _] = NAMESPACES;
    page::run(management, "install.md", "## A proxy to worker clusters").await;
    let arguments = "jsonpath={.spec.template.spec.containers[0].args}";
    let of_the_first = ["get", "deployment", first, "-n", first, "-o", arguments];
    let arguments = kubectl(management, &of_the_first).await;
    let proxy = "\"--egress-proxy=http://proxy.example:3128\"";
    assert!(arguments.contains(proxy), "{arguments}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_installations_in_one_cluster_serve_a_tenant_each() {
    let (management, berlin, lisbon) = tokio::join!(
        a_cluster("management"),
        a_cluster("berlin"),
        a_cluster("lisbon")
    );
    make_the_tenants_namespaces(&management).await;
    kubectl(&management, &["create", "namespace", "shared-profiles"]).await;
    let done = helm(&management, &["install", "osm-crds", "osm-crds"]).await;
    done.expect("the definitions are installed");
    page::run(
        &management,
        "install.md",
        "### Two installations in one cluster",
    )
    .await;
    let [first, second] = NAMESPACES;
    let proxy = upgraded(&management).await;
    for kind in [
        "clusterrole",
        "clusterrolebinding",
        "validatingwebhookconfiguration",
    ] {
        let of = [
            names(&management, kind, RELEASES[0]).await,
            names(&management, kind, RELEASES[1]).await,
        ];
        let [first, second] = of.map(BTreeSet::from_iter);
        assert!(!first.is_empty() && !second.is_empty(), "{kind}");
        assert!(first.is_disjoint(&second), "{first:?} {second:?}");
    }
    let roles = names(&management, "clusterrole", RELEASES[1]).await;
    assert!(!roles.iter().any(|it| it.ends_with("-view")), "{roles:?}");
    for namespace in NAMESPACES {
        assert_rights_of_its_own(&management, namespace, namespace).await;
    }
    let one = start_installed(&management, (first, first), &[]).await;
    let other = start_installed(&management, (second, second), &[]).await;
    serves_a_tenant(&management, &berlin, "berlin").await;
    serves_a_tenant(&management, &lisbon, "lisbon").await;
    only_connects_to(&proxy, &lisbon);
    for (namespace, fleet) in NAMESPACES.into_iter().zip(["osm", "canary"]) {
        let leases = ["get", "leases", "-n", namespace, "-o", "name"];
        let leases = kubectl(&management, &leases).await;
        let expected = format!("lease.coordination.k8s.io/{fleet}-install");
        assert_eq!(leases.trim(), expected);
    }
    for (namespace, tenant) in [(first, TENANT), (second, "tenant-lisbon")] {
        assert_healthy(&management, namespace, tenant).await;
    }
    for installation in RELEASES.into_iter().zip(NAMESPACES) {
        passes_its_test(&management, installation).await;
    }
    drop([one, other]);
    takes_the_proxy_of_the_page(&management).await;
    for name in NAMESPACES {
        let webhook = format!("{name}-webhook");
        let process = webhooks::start_webhooks_of(&management, (name, &webhook)).await;
        webhooks::until_trusted(&management, name).await;
        drop(process);
    }
}
