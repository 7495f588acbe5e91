//! Installs the process as its manifests say into an empty, real Kubernetes, and serves a worker
//! cluster with the rights and arguments that they give it.

mod admission;
#[cfg(test)]
#[path = "../shape/monitoring/chain.rs"]
mod chain;
#[cfg(test)]
mod chart;
#[cfg(test)]
mod cluster_api;
#[cfg(test)]
mod kkp_seed;
#[cfg(test)]
mod page;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod port_forward;
#[cfg(test)]
mod previous_manager;
#[cfg(test)]
mod uninstall;
mod upgrade;
mod webhooks;
#[cfg(test)]
mod without_machine_controller;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{Api, api::PostParams};
use loadtest::control_plane::{ControlPlane, Params};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

const MANAGER: &str = "operating-system-manager";
const TENANT: &str = "tenant-berlin";
/// Nothing here takes longer, unless it never ends.
const DEADLINE: Duration = Duration::from_mins(1);

fn manifests(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("manifests")
        .join(path)
}

async fn a_cluster(name: &str) -> ControlPlane {
    let params = Params {
        name: name.to_owned(),
        ..Params::default()
    };
    ControlPlane::start(params).await.expect("it starts")
}

/// Runs kubectl as an administrator of a cluster, and hands out what it printed.
async fn kubectl(cluster: &ControlPlane, arguments: &[&str]) -> String {
    let printed = try_kubectl(cluster, arguments).await;
    assert!(printed.is_ok(), "{arguments:?}: {printed:?}");
    printed.unwrap_or_default()
}

/// As [`kubectl`], or hands out what it printed as an error.
async fn try_kubectl(cluster: &ControlPlane, arguments: &[&str]) -> Result<String, String> {
    let kubeconfig = cluster.folder().join("administrator.kubeconfig");
    std::fs::write(&kubeconfig, cluster.admin_kubeconfig()).expect("the folder is ours");
    let output = Command::new(cluster.kubectl())
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .args(arguments)
        .output()
        .await
        .expect("kubectl runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(errors.into_owned());
    }
    assert!(!errors.contains("Warning"), "{arguments:?}: {errors}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

async fn install(cluster: &ControlPlane, variant: &str) {
    let folder = manifests("kustomize").join(variant);
    let folder = folder.to_str().expect("our paths are text");
    let apply = ["apply", "--server-side", "--validate=strict", "-k", folder];
    kubectl(cluster, &apply).await;
    let again = kubectl(cluster, &["diff", "--server-side", "-k", folder]).await;
    assert_eq!(again, "", "what was applied is what the server keeps");
}

/// Installs both charts, or the second with other values, and hands out what Helm printed.
async fn helm(cluster: &ControlPlane, arguments: &[&str]) -> Result<String, String> {
    let kubeconfig = cluster.folder().join("administrator.kubeconfig");
    std::fs::write(&kubeconfig, cluster.admin_kubeconfig()).expect("the folder is ours");
    let output = Command::new(chart::program())
        .env("HOME", cluster.folder())
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .args(arguments)
        .current_dir(manifests("helm"))
        .output()
        .await
        .expect(".ci/consumers has built helm");
    let [printed, errors] = [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8(bytes).expect("helm writes text"));
    if output.status.success() {
        Ok(printed)
    } else {
        Err(errors)
    }
}

async fn deployment(cluster: &ControlPlane, namespace: &str, name: &str) -> Deployment {
    let client = cluster.client().await.expect("a client");
    let deployments: Api<Deployment> = Api::namespaced(client, namespace);
    deployments.get(name).await.expect("it was applied")
}

async fn start(cluster: &ControlPlane, more: &[&str]) -> Child {
    start_installed(cluster, (MANAGER, MANAGER), more).await
}

/// Writes the files of a `ConfigMap` into a folder of their own, if there is one.
async fn mount(cluster: &ControlPlane, namespace: &str, name: &str) -> PathBuf {
    let folder = cluster.folder().join(format!("etc-{namespace}"));
    std::fs::create_dir_all(&folder).expect("the folder is ours");
    let client = cluster.client().await.expect("a client");
    let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
    let map = maps.get_opt(name).await.expect("the server answers");
    for (file, text) in map.and_then(|it| it.data).into_iter().flatten() {
        std::fs::write(folder.join(file), text).expect("the folder is ours");
    }
    folder
}

/// Where the process that is installed in a namespace logs.
fn log_of(cluster: &ControlPlane, namespace: &str) -> PathBuf {
    cluster.folder().join(format!("{namespace}.log"))
}

/// Starts the process that a Deployment describes, by namespace and name, except where its machine
/// differs from a pod's.
async fn start_installed(
    cluster: &ControlPlane,
    (namespace, name): (&str, &str),
    more: &[&str],
) -> Child {
    let deployment = deployment(cluster, namespace, name).await;
    let pod = deployment.spec.template.spec.expect("it describes a pod");
    let account = pod.service_account_name.expect("it has an identity");
    let kubeconfig = cluster
        .kubeconfig_for_service_account(namespace, &account)
        .await
        .expect("it was applied");
    let path = cluster.folder().join(format!("{namespace}.kubeconfig"));
    std::fs::write(&path, kubeconfig).expect("the folder is ours");
    let container = pod.containers.into_iter().next();
    let arguments = container.and_then(|it| it.args).expect("it has arguments");
    let files = format!("{}/", mount(cluster, namespace, name).await.display());
    let on_this_machine = arguments
        .iter()
        .map(|argument| match argument.strip_suffix(":8080") {
            Some(admin_address) => format!("{admin_address}:0"),
            None => argument.replace("/etc/osm/", &files),
        });
    let log = std::fs::File::create(log_of(cluster, namespace)).expect("the folder is ours");
    Command::new(env!("CARGO_BIN_EXE_osm"))
        .args(on_this_machine)
        .arg("--kubeconfig")
        .arg(&path)
        .args(["--allow-loopback-servers", "--instance=install"])
        .args(more)
        .stdin(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .expect("the binary was built with this test")
}

/// Makes a tenant as the pages tell an operator to, and waits until its machine deployment is
/// served. The worker cluster knows nothing of the manager before.
async fn serves_a_tenant(management: &ControlPlane, worker: &ControlPlane, name: &str) {
    let begun = Instant::now();
    kubectl(worker, &["apply", "-f", &example("worker-crds")]).await;
    let printed = add_the_tenant(management, worker, name).await;
    let ready = format!("ready: tenant-{name}/{name}");
    assert!(printed.contains(&ready), "{printed}");
    let added = begun.elapsed();
    its_machine_deployment_is_served(management, worker, name).await;
    let all = begun.elapsed();
    eprintln!("an empty worker cluster is ready after {added:.1?}, served after {all:.1?}");
}

/// A file of the examples.
fn example(file: &str) -> String {
    let path = manifests("../tenants-example").join(file);
    path.to_str().expect("our paths are text").to_owned()
}

async fn its_machine_deployment_is_served(
    management: &ControlPlane,
    worker: &ControlPlane,
    name: &str,
) {
    let machine_deployment = example(&format!("tenant-{name}/worker.yaml"));
    kubectl(worker, &["apply", "-f", &machine_deployment]).await;
    let namespace = format!("tenant-{name}");
    wait_for(management, (&namespace, name), SERVED).await;
}

/// What a WorkerCluster has once its only machine deployment is served.
const SERVED: &str = "--for=jsonpath={.status.served}=1/1";

/// Waits until a WorkerCluster is as kubectl is told.
async fn wait_for(management: &ControlPlane, (namespace, name): (&str, &str), wanted: &str) {
    let own = ["workercluster", name, "-n", namespace];
    let wait = [&["wait", wanted, "--timeout=120s"], &own[..]];
    kubectl(management, &wait.concat()).await;
}

/// Runs `osm tenant add`, and hands out what it printed.
async fn add_the_tenant(management: &ControlPlane, worker: &ControlPlane, name: &str) -> String {
    let [of_management, of_worker] = [management, worker].map(|cluster| {
        let path = cluster.folder().join("administrator.kubeconfig");
        std::fs::write(&path, cluster.admin_kubeconfig()).expect("the folder is ours");
        path
    });
    let output = Command::new(env!("CARGO_BIN_EXE_osm"))
        .args(["tenant", "add", name, "--allow-loopback-servers"])
        .arg("--kubeconfig")
        .arg(of_management)
        .arg("--worker-kubeconfig")
        .arg(of_worker)
        .output()
        .await
        .expect("the binary was built with this test");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    printed
}

async fn make_the_tenants_namespaces(management: &ControlPlane) {
    for name in [TENANT, "tenant-lisbon"] {
        kubectl(management, &["create", "namespace", name]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_listed_namespaces_nothing_else_can_be_read_and_the_tenant_is_served() {
    let (management, worker) = tokio::join!(a_cluster("management"), a_cluster("worker"));
    make_the_tenants_namespaces(&management).await;
    install(&management, "listed-namespaces").await;
    let account = format!("--as=system:serviceaccount:{MANAGER}:{MANAGER}");
    for (namespace, may_read_secrets) in [(TENANT, true), ("default", false)] {
        let may = ["auth", "can-i", "--list", "-n", namespace, &account];
        let rights = kubectl(&management, &may).await;
        assert_eq!(rights.contains("secrets"), may_read_secrets, "{rights}");
    }
    let process = start(&management, &[]).await;
    serves_a_tenant(&management, &worker, "berlin").await;
    drop(process);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_charts_install_serve_a_tenant_and_leave_its_objects_when_they_go() {
    let (management, worker) = tokio::join!(a_cluster("management"), a_cluster("worker"));
    make_the_tenants_namespaces(&management).await;
    page::run(&management, "install.md", "## With Helm").await;
    let listed = ["--set", "namespaces={tenant-berlin,tenant-lisbon}"];
    let upgrade = ["upgrade", "osm", "osm", "--namespace", MANAGER];
    let done = helm(&management, &[&upgrade[..], &listed].concat()).await;
    done.expect("the process is upgraded");
    let process = start(&management, &[]).await;
    serves_a_tenant(&management, &worker, "berlin").await;
    drop(process);
    for release in [
        ["uninstall", "osm", "--namespace", MANAGER].as_slice(),
        &["uninstall", "osm-crds", "--namespace", MANAGER],
    ] {
        helm(&management, release).await.expect("it is removed");
    }
    let left = kubectl(
        &management,
        &["get", "workerclusters", "-n", TENANT, "-o", "name"],
    )
    .await;
    assert_eq!(
        left.trim(),
        "workercluster.operatingsystemmanager.k8c.io/berlin"
    );
}

/// A kind that the Prometheus operator brings, as far as it matters here.
fn definition(kind: &str) -> String {
    let plural = format!("{}s", kind.to_lowercase());
    format!(
        "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.monitoring.coreos.com}}
spec:
  group: monitoring.coreos.com
  names: {{kind: {kind}, plural: {plural}}}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn where_prometheus_has_its_operator_the_service_is_monitored() {
    let management = a_cluster("management").await;
    for kind in ["ServiceMonitor", "PrometheusRule"] {
        let applied = management.apply_yaml(&definition(kind)).await;
        applied.expect("the definition is taken");
    }
    let established = [
        "wait",
        "--for=condition=Established",
        "crd",
        "servicemonitors.monitoring.coreos.com",
        "prometheusrules.monitoring.coreos.com",
    ];
    kubectl(&management, &established).await;
    install(&management, "../../tests/install/monitored").await;
    let mut found = Vec::new();
    for kind in ["servicemonitor", "service"] {
        let get = ["get", kind, MANAGER, "-n", MANAGER, "-o", "json"];
        let printed = kubectl(&management, &get).await;
        found.push(serde_json::from_str::<Value>(&printed).expect("kubectl prints JSON"));
    }
    let [monitor, service] = found.as_slice() else {
        unreachable!("two kinds were asked for");
    };
    let endpoint = &monitor["spec"]["endpoints"][0]["port"];
    assert_eq!(*endpoint, service["spec"]["ports"][0]["name"]);
    let wanted = monitor["spec"]["selector"]["matchLabels"].as_object();
    for (label, value) in wanted.expect("it selects by labels") {
        assert_eq!(service["metadata"]["labels"][label], *value, "{label}");
    }
    let get = [
        "get",
        "prometheusrule,configmap",
        "-n",
        MANAGER,
        "-o",
        "json",
    ];
    let applied = kubectl(&management, &get).await;
    let applied: Value = serde_json::from_str(&applied).expect("kubectl prints JSON");
    let values = "serviceMonitor.enabled=true,prometheusRule.enabled=true,dashboards.enabled=true,\
        webhook.enabled=true,networkPolicy.apiServers[0].ipBlock.cidr=10.0.0.0/28,\
        prometheusRule.pages=https://git.berlin.example/osm/docs";
    let values = values.replace(' ', "");
    let printed = ["template", MANAGER, "osm", "--set", &values];
    let printed = helm(&management, &printed).await.expect("they are values");
    let printed: Vec<Value> = serde_saphyr::from_multiple(&printed).expect("Helm prints YAML");
    chain::assert_scraped(&printed);
    assert_who_may_come(&printed);
    let content = |objects: &[Value], kind: &str, part: &str| {
        let mut found = objects.iter().filter(|it| it["kind"] == *kind);
        let named = |it: &&Value| kind == "PrometheusRule" || !it[part]["fleet.json"].is_null();
        found.find(named).map(|it| it[part].clone())
    };
    let applied = applied["items"].as_array().expect("it is a list");
    for (kind, part) in [("PrometheusRule", "spec"), ("ConfigMap", "data")] {
        let by_helm = content(&printed, kind, part);
        assert!(by_helm.is_some(), "{kind}: {printed:#?}");
        assert_eq!(content(applied, kind, part), by_helm, "{kind}");
    }
    let rules = content(applied, "PrometheusRule", "spec").unwrap_or_default();
    let links = rules.to_string();
    let ours = links.matches("https://git.berlin.example/osm/docs/alerts.md#osm");
    let alerts = links.matches("\"alert\":").count();
    assert!(alerts >= 12, "{links}");
    assert_eq!(ours.count(), alerts, "{links}");
}

/// Pods of the cluster may read both admin ports, and whom the values name may call the webhooks.
fn assert_who_may_come(objects: &[Value]) {
    let text = |rule: &Value, path| rule.pointer(path).cloned().unwrap_or_default();
    let policies = objects.iter().filter(|it| it["kind"] == "NetworkPolicy");
    let rules = policies.filter_map(|it| it.pointer("/spec/ingress")?.as_array());
    let rules: BTreeMap<String, Vec<Value>> =
        rules.flatten().fold(BTreeMap::new(), |mut rules, rule| {
            let port = text(rule, "/ports/0/port").to_string();
            rules.entry(port).or_default().push(text(rule, "/from"));
            rules
        });
    let anybody_here = json!([{"namespaceSelector": {}}]);
    let named = json!([{"ipBlock": {"cidr": "10.0.0.0/28"}}]);
    let expected = [
        (
            "\"admin\"".to_owned(),
            vec![anybody_here.clone(), anybody_here],
        ),
        ("\"webhook\"".to_owned(), vec![named]),
    ];
    assert_eq!(rules, expected.into());
}
