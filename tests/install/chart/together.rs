//! Two installations in one management cluster, each with its own tenant.

use super::*;

const NAMESPACES: [&str; 2] = ["osm-first", "osm-second"];

/// Installs a release named like its namespace, which serves one tenant's namespace.
async fn install_for(cluster: &ControlPlane, namespace: &str, tenant: &str, values: &str) {
    let of_both = format!("namespaces={{{tenant}}},webhook.enabled=true,fleet={namespace}");
    let install = ["install", namespace, "osm", "--create-namespace"];
    let arguments = [
        &install[..],
        &["--namespace", namespace, "--set", &of_both, "--set", values],
    ];
    let done = helm(cluster, &arguments.concat()).await;
    done.expect("it is installed");
}

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

#[tokio::test(flavor = "multi_thread")]
async fn two_installations_in_one_cluster_serve_a_tenant_each() {
    let (management, berlin, lisbon) = tokio::join!(
        a_cluster("management"),
        a_cluster("berlin"),
        a_cluster("lisbon")
    );
    make_the_tenants_namespaces(&management).await;
    let done = helm(&management, &["install", "osm-crds", "osm-crds"]).await;
    done.expect("the definitions are installed");
    let [first, second] = NAMESPACES;
    let policies = "tenantPolicies[0].match.namespaces={tenant-berlin},\
        tenantPolicies[0].machineDeployments=7,tenantDefaults.clusterDNS={10.96.0.10}";
    install_for(&management, first, TENANT, policies).await;
    let apart = "fullnameOverride=osm-canary,rbac.aggregate=false";
    install_for(&management, second, "tenant-lisbon", apart).await;
    for kind in [
        "clusterrole",
        "clusterrolebinding",
        "validatingwebhookconfiguration",
    ] {
        let of = [
            names(&management, kind, first).await,
            names(&management, kind, second).await,
        ];
        let [first, second] = of.map(BTreeSet::from_iter);
        assert!(!first.is_empty() && !second.is_empty(), "{kind}");
        assert!(first.is_disjoint(&second), "{first:?} {second:?}");
    }
    let roles = names(&management, "clusterrole", second).await;
    assert!(!roles.iter().any(|it| it.ends_with("-view")), "{roles:?}");
    assert_rights_of_its_own(&management, first, MANAGER).await;
    assert_rights_of_its_own(&management, second, "osm-canary").await;
    let one = start_installed(&management, (first, MANAGER), &[]).await;
    let other = start_installed(&management, (second, "osm-canary"), &[]).await;
    serves_a_tenant(&management, &berlin, "berlin").await;
    serves_a_tenant(&management, &lisbon, "lisbon").await;
    for namespace in NAMESPACES {
        let leases = ["get", "leases", "-n", namespace, "-o", "name"];
        let leases = kubectl(&management, &leases).await;
        let expected = format!("lease.coordination.k8s.io/{namespace}-install");
        assert_eq!(leases.trim(), expected);
    }
    drop([one, other]);
}
