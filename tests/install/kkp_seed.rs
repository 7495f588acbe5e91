//! The overlay for a KKP seed, and the commands of its page.

use kube::{
    ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use tokio::task::JoinSet;

use super::*;

const PAGE: &str = "kkp.md";
/// The user cluster of the page.
const NAMESPACE: &str = "cluster-abc123";
const NAME: &str = "abc123";
/// How often the test looks at what an operator has changed, as KKP does.
const PAUSE: Duration = Duration::from_millis(100);

/// KKP's definition, without its schema.
const CLUSTERS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusters.kubermatic.k8c.io}
spec:
  group: kubermatic.k8c.io
  scope: Cluster
  names: {kind: Cluster, listKind: ClusterList, plural: clusters, singular: cluster}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
";

/// What KKP keeps for a user cluster, besides its kubeconfig.
const USER_CLUSTER: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: cluster-abc123}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: operating-system-manager, namespace: cluster-abc123}
spec:
  replicas: 1
  selector: {matchLabels: {app: operating-system-manager}}
  template:
    metadata: {labels: {app: operating-system-manager}}
    spec:
      containers:
      - name: operating-system-manager
        image: quay.io/kubermatic/osm:v1
        command: [/usr/local/bin/osm-controller]
        args: [-namespace, kube-system, -cluster-dns, 169.254.20.10, -container-runtime, containerd]
";

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_is_served_and_given_back_with_the_commands_of_its_page() {
    let (seed, user) = tokio::join!(a_cluster("seed"), a_cluster("user"));
    install(&seed, "kkp-seed").await;
    secrets_of_one_name_can_be_read(&seed).await;
    let _kkp = has_the_user_cluster(&seed, &user).await;
    let process = start(&seed, &[]).await;

    // The last one ends with this code, because something would be written.
    let look = page::blocks(PAGE, "## Look first").concat();
    let look = format!("{} || test $? -eq 3", look.trim_end());
    let looked = page::run_commands(&seed, &look).await;
    assert!(looked.contains("LeftOut"), "{looked}");
    assert!(looked.contains("abc123: would be handed over"), "{looked}");
    let handed_over = page::run(&seed, PAGE, "## Hand clusters over").await;
    assert!(handed_over.contains("abc123: served, "), "{handed_over}");
    let again = "0 user clusters handed over";
    assert!(handed_over.contains(again), "{handed_over}");
    has_machines(&user).await;
    is_served(&seed, NAMESPACE).await;
    let shown = ["-n", NAMESPACE, "get", "workercluster", NAME];
    let shown = kubectl(&seed, &shown).await;
    assert!(shown.contains("True"), "{shown}");

    let given_back = page::run(&seed, PAGE, "## Go back").await;
    assert!(
        given_back.contains("1 user cluster given back"),
        "{given_back}"
    );
    says(&seed, NAMESPACE, "RegistrationRemoved").await;
    let commands = page::blocks(PAGE, "## Hand clusters over");
    let by_hand = commands.last().expect("the page has it");
    page::run_commands(&seed, by_hand).await;
    says(&seed, NAMESPACE, "Accepted").await;
    drop(process);

    let everywhere = manifests("rbac/management-all-namespaces.yaml");
    let everywhere = everywhere.to_str().expect("our paths are text");
    kubectl(&seed, &["apply", "--server-side", "-f", everywhere]).await;
    page::run(&seed, PAGE, "## One cluster with settings of its own").await;
    let process = start(&seed, &["--inventory=label"]).await;
    is_the_operators(&seed).await;
    drop(process);
}

async fn secrets_of_one_name_can_be_read(seed: &ControlPlane) {
    let account = format!("--as=system:serviceaccount:{MANAGER}:{MANAGER}");
    let may = ["auth", "can-i", "--list", "-n", "default", &account];
    let rights = kubectl(seed, &may).await;
    let of_secrets: Vec<_> = rights
        .lines()
        .filter(|it| it.starts_with("secrets"))
        .collect();
    assert_eq!(of_secrets.len(), 1, "{rights}");
    let is_of_one_name = of_secrets
        .iter()
        .all(|it| it.contains("[operatingsystemmanager-kubeconfig]"));
    assert!(is_of_one_name, "{rights}");
}

/// Makes the user cluster as KKP does, and plays KKP until the result is dropped.
async fn has_the_user_cluster(seed: &ControlPlane, user: &ControlPlane) -> JoinSet<()> {
    for yaml in [
        include_str!("../drop_in/rights.yaml"),
        include_str!("../drop_in/definitions.yaml"),
    ] {
        user.apply_yaml(yaml).await.expect("it is applied");
    }
    kubectl(user, &["apply", "-f", &example("worker-crds")]).await;
    let kubeconfig = user.kubeconfig_for_service_account("kube-system", MANAGER);
    let kubeconfig = kubeconfig.await.expect("it was applied");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "operatingsystemmanager-kubeconfig", "namespace": NAMESPACE },
        "stringData": { "kubeconfig": kubeconfig },
    });
    for yaml in [CLUSTERS, USER_CLUSTER, &secret.to_string()] {
        seed.apply_yaml(yaml).await.expect("it is applied");
    }
    let established = ["wait", "--for=condition=Established", "crd", "--all"];
    kubectl(seed, &established).await;
    let cluster = json!({
        "apiVersion": "kubermatic.k8c.io/v1", "kind": "Cluster", "metadata": { "name": NAME },
        "spec": {},
    });
    seed.apply_yaml(&cluster.to_string())
        .await
        .expect("it is applied");
    let client = seed.client().await.expect("a client");
    let mut kkp = JoinSet::new();
    kkp.spawn(scale(client));
    kkp
}

/// Scales each Deployment as its Cluster says, which is one replica if it says nothing.
async fn scale(client: kube::Client) {
    let kind = GroupVersionKind::gvk("kubermatic.k8c.io", "v1", "Cluster");
    let kind = ApiResource::from_gvk_with_plural(&kind, "clusters");
    let clusters: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let field = "/spec/componentsOverride/operatingSystemManager/replicas";
    loop {
        let cluster = clusters.get(NAME).await;
        if let Ok(cluster) = cluster {
            let replicas = cluster.data.pointer(field).and_then(Value::as_i64);
            let namespace = format!("cluster-{}", cluster.name_any());
            let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
            let scaled = json!({ "spec": { "replicas": replicas.unwrap_or(1) } });
            let scaled = Patch::Merge(scaled);
            let parameters = PatchParams::default();
            let patched = deployments.patch(MANAGER, &parameters, &scaled).await;
            patched.expect("it is there");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// A machine deployment with the annotation that KKP's webhook sets.
async fn has_machines(user: &ControlPlane) {
    let file = example("tenant-berlin/worker.yaml");
    kubectl(user, &["apply", "-f", &file]).await;
    let profile = "k8c.io/operating-system-profile=osp-ubuntu";
    let annotate = ["annotate", "-f", &file, profile];
    kubectl(user, &annotate).await;
}

/// Waits until the condition `Registered` has a reason.
async fn says(management: &ControlPlane, namespace: &str, reason: &str) {
    let reason =
        format!("--for=jsonpath={{.status.conditions[?(@.type==\"Registered\")].reason}}={reason}");
    let wait = [
        "wait",
        "workercluster",
        "--all",
        "-n",
        namespace,
        "--timeout=120s",
    ];
    kubectl(management, &[&wait[..], &[&reason]].concat()).await;
}

async fn is_served(management: &ControlPlane, namespace: &str) {
    let served = "--for=jsonpath={.status.served}=1/1";
    let wait = [
        "wait",
        "workercluster",
        "--all",
        "-n",
        namespace,
        "--timeout=120s",
    ];
    kubectl(management, &[&wait[..], &[served]].concat()).await;
}

/// What KKP changes is not followed any more, and the cluster is served.
async fn is_the_operators(seed: &ControlPlane) {
    says(seed, NAMESPACE, "Accepted").await;
    let paused = ["-n", NAMESPACE, "patch", "workercluster", NAME];
    let paused = [
        &paused[..],
        &[
            "--type=merge",
            "-p",
            "{\"spec\":{\"pauseImage\":\"ours/pause\"}}",
        ],
    ];
    kubectl(seed, &paused.concat()).await;
    let ready = [
        "wait",
        "workercluster",
        NAME,
        "-n",
        NAMESPACE,
        "--timeout=120s",
    ];
    kubectl(seed, &[&ready[..], &["--for=condition=Ready"]].concat()).await;
    let spec = [
        "-n",
        NAMESPACE,
        "get",
        "workercluster",
        NAME,
        "-o",
        "jsonpath={.spec.pauseImage}",
    ];
    assert_eq!(kubectl(seed, &spec).await, "ours/pause");
}
