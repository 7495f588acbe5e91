//! Worker clusters that trust the management cluster's ServiceAccount tokens. No Secret has a
//! credential for them.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::Api;
use osm::api::machine_deployment::MachineDeployment;
use osm::api::names::{KUBE_SYSTEM, WORKER_CLUSTER_LABEL};
use osm::api::worker_cluster::WorkerCluster;
use osm::client::token;
use osm::tenant::access::renewal::ServiceAccountName;
use serde_json::json;

use crate::administrator::{create, find, list, merge};
use crate::commands::{a_file, path, run};
use crate::fixtures::{a_machine_deployment, a_secret, the_last_lease};
use crate::process::Manager;
use crate::server::{Server, ok};
use crate::stage::{conditions, message};
use crate::wait;
use crate::world::{MANAGER, World, has_machine_controller, install};

/// What the names of the management cluster's users begin with in worker clusters.
const PREFIX: &str = "osm:";

/// The subject of the roles, as the manifests have it.
const SUBJECT: &str = "- kind: ServiceAccount
  name: operating-system-manager
  namespace: kube-system
";

/// A management cluster whose keys everybody may look up.
async fn a_management_cluster(world: &World) -> Server {
    let server = Server::start_issuer(world.kind, "issuer").await;
    install(&server, &["management", "management-all-namespaces"]).await;
    let keys = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: everybody-finds-the-keys}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: system:service-account-issuer-discovery
subjects:
- {kind: Group, apiGroup: rbac.authorization.k8s.io, name: \"system:unauthenticated\"}
";
    server.apply(keys).await;
    let leases: Api<Lease> = Api::namespaced(server.admin().await, MANAGER.namespace);
    create(&leases, &the_last_lease("federation")).await;
    server
}

/// Gives the management cluster's manager its rights in a worker cluster.
async fn entitle(worker: &Server) {
    let user = format!("{PREFIX}{}", MANAGER.user());
    let rights = include_str!("../../manifests/rbac/worker.yaml");
    let subject = format!("- kind: User\n  apiGroup: rbac.authorization.k8s.io\n  name: {user}\n");
    worker.apply(&rights.replace(SUBJECT, &subject)).await;
}

/// A worker cluster that trusts the management cluster.
async fn a_worker_cluster(management: &Server, name: &str, audience: &str) -> Server {
    let server = Server::start_trusting(management, name, (audience, PREFIX)).await;
    has_machine_controller(&server).await;
    server
}

/// A kubeconfig without a credential.
fn without_credential(worker: &Server) -> String {
    let cluster = json!({
        "server": worker.url(), "certificate-authority-data": worker.authority(),
    });
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "worker",
        "clusters": [{ "name": "worker", "cluster": cluster }],
        "users": [{ "name": "manager", "user": {} }],
        "contexts": [{ "name": "worker", "context": { "cluster": "worker", "user": "manager" } }],
    })
    .to_string()
}

struct Tenant<'a> {
    management: &'a Server,
    name: &'a str,
}

impl Tenant<'_> {
    async fn worker_clusters(&self) -> Api<WorkerCluster> {
        Api::namespaced(self.management.admin().await, self.name)
    }

    async fn register(&self, kubeconfig: &str) {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.name },
        });
        self.management.apply(&namespace.to_string()).await;
        let own = json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
            "metadata": { "name": "worker", "namespace": self.name },
            "spec": { "kubeconfigSecretRef": { "name": "worker" }, "credentials": "Federated" },
        });
        self.management.apply(&own.to_string()).await;
        let mut secret = a_secret("worker", ("kubeconfig", kubeconfig));
        secret.metadata.labels =
            Some([(WORKER_CLUSTER_LABEL.to_owned(), "true".to_owned())].into());
        let secrets: Api<Secret> = Api::namespaced(self.management.admin().await, self.name);
        create(&secrets, &secret).await;
    }

    async fn says(&self, wanted: (&str, &str, &str)) -> WorkerCluster {
        let what = format!("{} says {wanted:?}", self.name);
        let api = self.worker_clusters().await;
        wait::for_object(&api, "worker", &what, |it| conditions(it).contains(&wanted)).await
    }
}

/// What the audience of a token can look like in it, wherever it begins.
fn in_tokens(audience: &str) -> Vec<String> {
    let shifted = (0..3_usize).map(|shift| {
        let text = format!("{}{audience}", "x".repeat(shift));
        let whole = text.len() * 8 / 6;
        let encoded = URL_SAFE_NO_PAD.encode(text);
        // What other bytes decide, too, is left out.
        encoded
            .chars()
            .take(whole)
            .skip((shift * 8).div_ceil(6))
            .collect()
    });
    shifted.collect()
}

/// Whether a token with this audience is stored: in the files of etcd, or in any Secret.
async fn is_stored(management: &Server, audience: &str) -> bool {
    let stored: Vec<u8> = if let Some(plane) = management.real() {
        files(&plane.folder().join("etcd"))
    } else {
        let secrets: Api<Secret> = Api::all(management.admin().await);
        let all = list(&secrets).await.into_iter();
        let values = all.flat_map(|secret| secret.data.unwrap_or_default().into_values());
        values.flat_map(|it| it.0).collect()
    };
    let parts = in_tokens(audience);
    let has = |part: &String| memchr::memmem::find(&stored, part.as_bytes()).is_some();
    parts.iter().any(has)
}

/// What is in the files of a folder.
fn files(folder: &Path) -> Vec<u8> {
    let mut found = Vec::new();
    for entry in ok(std::fs::read_dir(folder), "the folder is ours") {
        let path = ok(entry, "it is readable").path();
        found.extend(if path.is_dir() {
            files(&path)
        } else {
            ok(std::fs::read(&path), "it is readable")
        });
    }
    found
}

/// The same token would be found, if anybody stored it.
async fn would_be_found(management: &Server, audience: &str) {
    let client = management.admin().await;
    let account = ServiceAccountName {
        namespace: MANAGER.namespace.to_owned(),
        name: MANAGER.name.to_owned(),
    };
    let token = token::request(&client, &account, Some(audience.to_owned()), 3600).await;
    let token = ok(token, "an administrator may request a token");
    let secrets: Api<Secret> = Api::namespaced(client, "first");
    create(&secrets, &a_secret("a-token", ("token", token.expose()))).await;
    assert!(is_stored(management, audience).await);
}

/// An operator's commands request a token for the manager.
async fn commands_answer(management: &Server) {
    let kubeconfig = a_file(&management.admin_in("default"));
    let osm = async |command: &str, more: &[&str]| {
        let words = [command, "-n", "first", "--allow-loopback-servers"];
        let words = [&words[..], &["--kubeconfig", path(&kubeconfig)], more].concat();
        run(&words).await
    };
    let plan = osm("plan", &[]).await;
    assert_eq!(plan.code, Some(0), "{plan:?}");
    assert!(plan.out.contains("workers: unchanged"), "{plan:?}");
    let doctor = osm("doctor", &[]).await;
    assert_eq!(doctor.code, Some(0), "{doctor:?}");
    assert!(doctor.out.contains("all that are needed"), "{doctor:?}");
    let another = ["--service-account", "another"];
    let refused = osm("plan", &another).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let why = "cannot request a token of the manager's ServiceAccount \
               operating-system-manager/another";
    assert!(refused.out.contains(why), "{refused:?}");
    let doctor = osm("doctor", &another).await;
    assert!(
        doctor.out.contains("create serviceaccounts/token"),
        "{doctor:?}"
    );
}

pub async fn clusters_are_served_with_no_stored_credential(world: &'static World) {
    let management = a_management_cluster(world).await;
    let audience = |tenant: &str| format!("operatingsystemmanager.k8c.io/{tenant}/worker");
    let own = a_worker_cluster(&management, "trusting", &audience("first")).await;
    entitle(&own).await;
    let [first, second] = ["first", "second"].map(|name| Tenant {
        management: &management,
        name,
    });
    let kubeconfig = management.kubeconfig(MANAGER).await;
    let manager = Manager::start_in(&kubeconfig, &["--fleet", "federation"]).await;
    first.register(&without_credential(&own)).await;

    // It may not request tokens yet.
    let refused = ("Registered", "False", "FederationFailed");
    let said = first.says(refused).await;
    let why = message(&said, "Registered");
    assert!(why.contains("osm rbac management-federation"), "{why}");
    let rights = "manifests/rbac/management-federation.yaml";
    management.apply_file(rights).await;
    let workers: Api<MachineDeployment> = Api::namespaced(own.admin().await, KUBE_SYSTEM);
    create(&workers, &a_machine_deployment("workers")).await;
    first.says(("Ready", "True", "Ready")).await;
    first.says(("CredentialValid", "True", "Valid")).await;

    // The token for one cluster is nothing in another one: it is for another audience.
    second.register(&without_credential(&own)).await;
    let said = second
        .says(("Connected", "False", "CredentialRefused"))
        .await;
    let why = message(&said, "Connected");
    assert!(why.contains("Unauthorized"), "{why}");

    assert!(!is_stored(&management, &audience("first")).await);
    would_be_found(&management, &audience("first")).await;
    commands_answer(&management).await;

    // A credential beside it is a mistake.
    let secrets: Api<Secret> = Api::namespaced(management.admin().await, "first");
    let given = without_credential(&own).replace(r#""user":{}"#, r#""user":{"token":"a"}"#);
    merge(
        &secrets,
        "worker",
        json!({ "stringData": { "kubeconfig": given } }),
    )
    .await;
    let said = first
        .says(("Registered", "False", "KubeconfigRefused"))
        .await;
    let why = message(&said, "Registered");
    assert!(
        why.contains("leave it out") && !why.contains("\"a\""),
        "{why}"
    );
    let back = json!({ "stringData": { "kubeconfig": without_credential(&own) } });
    merge(&secrets, "worker", back).await;
    first.says(("Ready", "True", "Ready")).await;
    manager.stop().await;
}

pub async fn a_cluster_is_added_that_trusts_the_management_cluster(world: &'static World) {
    let management = a_management_cluster(world).await;
    let audience = "operatingsystemmanager.k8c.io/first/worker";
    let own = a_worker_cluster(&management, "trusting", audience).await;
    let kubeconfig = management.kubeconfig(MANAGER).await;
    let words = ["--fleet", "federation", "--renew-tokens-after", "1s"];
    let manager = Manager::start_in(&kubeconfig, &words).await;
    let (in_management, in_worker) = (
        a_file(&management.admin_in("default")),
        a_file(&own.admin_in("default")),
    );
    let words = ["tenant", "add", "worker", "-n", "first", "--federated"];
    let reach = [
        "--allow-loopback-servers",
        "--kubeconfig",
        path(&in_management),
    ];
    let worker = ["--worker-kubeconfig", path(&in_worker)];
    let added = run(&[&words[..], &reach, &worker].concat()).await;
    assert_eq!(added.code, Some(0), "{added:?}");
    for line in [
        "--authentication-config with this file",
        "kind: AuthenticationConfiguration",
        audience,
    ] {
        assert!(added.out.contains(line), "{line}: {added:?}");
    }
    if management.real().is_some() {
        let issuer = format!("url: {}\n", management.url());
        assert!(added.out.contains(&issuer), "{added:?}");
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(own.admin().await, KUBE_SYSTEM);
    let account = find(&accounts, MANAGER.name).await;
    assert!(account.is_none(), "nobody needs it");

    // Its token is renewed in memory.
    own.settle_audit().await;
    let begun = Timestamp::now();
    wait::until("two more tokens are requested", async || {
        let mut asked = management.requests(MANAGER, begun);
        asked.retain(|it| it.verb == "create" && it.resource == "serviceaccounts/token");
        (asked.len() >= 2).then_some(())
    })
    .await;
    let workers: Api<MachineDeployment> = Api::namespaced(own.admin().await, KUBE_SYSTEM);
    create(&workers, &a_machine_deployment("workers")).await;
    let api: Api<WorkerCluster> = Api::namespaced(management.admin().await, "first");
    let is_served =
        |it: &WorkerCluster| it.status.as_ref().and_then(|it| it.served.as_deref()) == Some("1/1");
    wait::for_object(&api, "worker", "it is served", is_served).await;

    // And back: without the flag, once its operator says so.
    let first = Tenant {
        management: &management,
        name: "first",
    };
    merge(
        &api,
        "worker",
        json!({ "spec": { "credentials": "AsRegistered" } }),
    )
    .await;
    let refused = ("Registered", "False", "KubeconfigRefused");
    first.says(refused).await;
    let words = ["tenant", "add", "worker", "-n", "first"];
    let back = run(&[&words[..], &reach, &worker].concat()).await;
    assert_eq!(back.code, Some(0), "{back:?}");
    first.says(("Ready", "True", "Ready")).await;
    manager.stop().await;
}
