//! The overlay for a KKP seed, and the commands of its page.

#[path = "../kkp/clusters.rs"]
mod clusters;

use osm::api::names::PROFILE;
use tokio::task::JoinSet;

use super::*;

const PAGE: &str = "kkp.md";
/// The user cluster of the page.
const NAME: &str = "abc123";
const NAMESPACE: &str = "cluster-abc123";
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
    wait_for(&seed, (NAMESPACE, NAME), SERVED).await;
    let shown = ["-n", NAMESPACE, "get", "workercluster", NAME];
    let shown = kubectl(&seed, &shown).await;
    assert!(shown.contains("True"), "{shown}");

    let given_back = page::run(&seed, PAGE, "## Go back").await;
    assert!(
        given_back.contains("1 user cluster given back"),
        "{given_back}"
    );
    says(&seed, "RegistrationRemoved").await;
    let commands = page::blocks(PAGE, "## Hand clusters over");
    let by_hand = commands.last().expect("the page has it");
    page::run_commands(&seed, by_hand).await;
    says(&seed, "Accepted").await;
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
    for yaml in [clusters::DEFINITION, USER_CLUSTER, &secret.to_string()] {
        seed.apply_yaml(yaml).await.expect("it is applied");
    }
    let established = ["wait", "--for=condition=Established", "crd", "--all"];
    kubectl(seed, &established).await;
    let client = seed.client().await.expect("a client");
    let (all, made) = (clusters::clusters(&client), clusters::cluster(NAME, None));
    let made = all.create(&PostParams::default(), &made).await;
    made.expect("KKP has it");
    let mut kkp = JoinSet::new();
    kkp.spawn(clusters::follow(client));
    kkp
}

/// A machine deployment with the annotation that KKP's webhook sets.
async fn has_machines(user: &ControlPlane) {
    let file = example("tenant-berlin/worker.yaml");
    kubectl(user, &["apply", "-f", &file]).await;
    let profile = format!("{PROFILE}=osp-ubuntu");
    kubectl(user, &["annotate", "-f", &file, &profile]).await;
}

/// Waits until the condition `Registered` has a reason.
async fn says(seed: &ControlPlane, reason: &str) {
    let of_registered = "{.status.conditions[?(@.type==\"Registered\")].reason}";
    let wanted = format!("--for=jsonpath={of_registered}={reason}");
    wait_for(seed, (NAMESPACE, NAME), &wanted).await;
}

/// What the operator sets is served: a manager without the registration would not see it.
async fn is_the_operators(seed: &ControlPlane) {
    let set = "{\"spec\":{\"pauseImage\":\"ours/pause\"}}";
    let own = ["workercluster", NAME, "-n", NAMESPACE];
    let patch = [&["patch"], &own[..], &["--type=merge", "-p", set]];
    kubectl(seed, &patch.concat()).await;
    let generation = [&["get"], &own[..], &["-o=jsonpath={.metadata.generation}"]];
    let generation = kubectl(seed, &generation.concat()).await;
    let observed = format!("--for=jsonpath={{.status.observedGeneration}}={generation}");
    wait_for(seed, (NAMESPACE, NAME), &observed).await;
    let image = [&["get"], &own[..], &["-o=jsonpath={.spec.pauseImage}"]];
    assert_eq!(kubectl(seed, &image.concat()).await, "ours/pause");
}
