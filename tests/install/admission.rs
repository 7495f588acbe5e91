//! A real API server calls the real webhooks, and does what they say.

mod cluster;

use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::Secret,
};
use kube::Api;
use loadtest::control_plane::client_of;
use osm::{
    admission::{
        authority::CertificateBundle,
        certificate_rotator::{self, CertificateRotator},
        identity::Identity,
        reviewer::Reviewer,
        server,
    },
    app::webhook::{self, Certificates, Params},
    render_worker::Pool,
    telemetry::metrics::Metrics,
};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use cluster::{Cluster, NAMESPACE, NO_UNITS, SAME_VERSION, a_profile, text, with};

#[tokio::test(flavor = "multi_thread")]
async fn a_real_api_server_asks_the_webhooks_and_does_what_they_say() {
    let cluster = Cluster::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it listens").port();
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("an address");
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    let folder = tempfile::tempdir().expect("a folder");
    for (file, text) in [
        ("tls.crt", certificate.clone()),
        ("tls.key", key.serialize_pem()),
    ] {
        std::fs::write(folder.path().join(file), text).expect("the folder is ours");
    }
    let cancel = CancellationToken::new();
    let params = Params {
        listener,
        admins: Vec::new(),
        certificates: Certificates::FileWatcher(folder.path().to_owned()),
        metrics: Metrics::new(),
        workers: Arc::new(Pool::new(env!("CARGO_BIN_EXE_osm"))),
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(webhook::run(params, cancel.clone()));
    cluster.configure(port, Some(&certificate)).await;
    cluster.until_asked().await;

    profiles(&cluster).await;
    configs(&cluster).await;
    machine_deployments(&cluster).await;
    worker_clusters(&cluster).await;

    cancel.cancel();
    let ended = tasks.join_next().await.expect("it runs");
    ended.expect("no panic").expect("it ends well");
}

async fn profiles(cluster: &Cluster) {
    let profile = a_profile("osp-mine");
    assert_eq!(cluster.apply(&profile).await, Ok(String::new()));
    let changed = with(profile.clone(), "/spec/osVersion", json!("26.04"));
    let refused = cluster
        .apply(&changed)
        .await
        .expect_err("the version is the same");
    assert!(refused.contains(SAME_VERSION), "{refused}");
    let uid = "operatingSystemProfile validation request ";
    assert!(refused.contains(uid), "{refused}");
    let bumped = with(changed, "/spec/version", json!("v1.2.4"));
    assert_eq!(cluster.apply(&bumped).await, Ok(String::new()));

    let relative = with(
        a_profile("osp-warned"),
        "/spec/provisioningConfig/files/0/path",
        json!("etc/hello"),
    );
    let warned = cluster.apply(&relative).await.expect("it is a warning");
    assert!(
        warned.contains("Warning: spec.provisioningConfig.files[0].path"),
        "{warned}"
    );
    let broken = with(
        a_profile("osp-broken"),
        "/spec/provisioningConfig/files/0/content/inline/data",
        json!("{{ if }}"),
    );
    let refused = cluster
        .apply(&broken)
        .await
        .expect_err("it does not compile");
    assert!(refused.contains("/etc/hello"), "{refused}");
    let units = with(
        a_profile("osp-units"),
        "/spec/bootstrapConfig",
        json!({
            "units": [{"name": "a.service"}], "files": [],
        }),
    );
    let refused = cluster
        .apply(&units)
        .await
        .expect_err("only Flatcar has units");
    assert!(refused.contains(NO_UNITS), "{refused}");
    let flatcar = with(units, "/spec/osName", json!("flatcar"));
    assert_eq!(cluster.apply(&flatcar).await, Ok(String::new()));
    cluster.delete("operatingsystemprofile", "osp-units").await;
}

async fn configs(cluster: &Cluster) {
    let config = json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemConfig",
        "metadata": {"name": "workers", "namespace": NAMESPACE},
        "spec": {
            "osName": "ubuntu", "osVersion": "24.04", "cloudProvider": {"name": "aws"},
            "bootstrapConfig": {}, "provisioningConfig": {},
        },
    });
    assert_eq!(cluster.apply(&config).await, Ok(String::new()));
    let labelled = with(config.clone(), "/metadata/labels", json!({"a": "b"}));
    assert_eq!(cluster.apply(&labelled).await, Ok(String::new()));
    let changed = with(config, "/spec/osVersion", json!("26.04"));
    let refused = cluster.apply(&changed).await.expect_err("it never changes");
    let expected = "OperatingSystemConfig is immutable and updates are not allowed";
    assert!(refused.contains(expected), "{refused}");
}

async fn worker_clusters(cluster: &Cluster) {
    let plain = json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
        "metadata": {"name": "a", "namespace": NAMESPACE},
        "spec": {"kubeconfigSecretRef": {"name": "a"}},
    });
    assert_eq!(cluster.apply(&plain).await, Ok(String::new()));
    let paused = with(plain, "/spec/paused", json!(true));
    assert_eq!(cluster.apply(&paused).await, Ok(String::new()));
    let mirrors = json!({"docker.io": ["https://mirror.example"]});
    let mirrored = with(paused, "/spec/registryMirrors", mirrors);
    let warned = cluster.apply(&mirrored).await.expect("it is a warning");
    let expected = "Warning: on running machines, spec.registryMirrors would take Reload: ";
    assert!(warned.contains(expected), "{warned}");
}

async fn machine_deployments(cluster: &Cluster) {
    let machine_deployment = |name: &str, system: &str| {
        let provider = json!({"operatingSystem": system, "cloudProvider": "aws"});
        json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"name": name}},
                "template": {
                    "metadata": {"labels": {"name": name}},
                    "spec": {
                        "providerSpec": {"value": provider},
                        "versions": {"kubelet": "1.34.1"},
                    },
                },
            },
        })
    };
    let sent = machine_deployment("workers", "rockylinux");
    assert_eq!(cluster.apply(&sent).await, Ok(String::new()));
    let stored = cluster.get("machinedeployment", "workers").await;
    let annotation = "/metadata/annotations/k8c.io~1operating-system-profile";
    assert_eq!(text(&stored, annotation), "osp-rockylinux");
    assert_eq!(
        stored.get("spec"),
        sent.get("spec"),
        "nothing else was touched"
    );
    let windows = machine_deployment("windows", "windows");
    let refused = cluster
        .apply(&windows)
        .await
        .expect_err("it has no profile");
    let expected = "failed to populate OSP annotation for machinedeployment with unsupported \
                    Operating System windows";
    assert!(refused.contains(expected), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_our_own_are_trusted_renewed_and_put_right() {
    let cluster = Cluster::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it listens").port();
    cluster.configure(port, None).await;
    // With the rights that the manifests grant, and no others.
    let client = client_of(&cluster.webhooks_own_kubeconfig().await)
        .await
        .expect("a client");
    let now = Arc::new(Mutex::new(Timestamp::now()));
    let (mut rotator, identity) = a_rotator(&client, &now);
    let server = server::Params {
        listener,
        identity,
        router: Reviewer::new(Metrics::new()).router(),
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(server::run(server, CancellationToken::new()));

    // So long ago that the authority is due now.
    let today = *now.lock().expect("no panic holds it");
    *now.lock().expect("no panic holds it") = today - SignedDuration::from_hours(24 * 2_500);
    rotator.reconcile().await.expect("everything is made");
    let first = bundle(&client).await;
    *now.lock().expect("no panic holds it") = today;
    rotator
        .reconcile()
        .await
        .expect("a second authority is trusted");
    let second = bundle(&client).await;
    assert_eq!(second.certificate, first.certificate);
    assert!(second.authorities.ends_with(&first.authorities));
    assert_eq!(trusted(&client).await, second.authorities);
    rotator.reconcile().await.expect("it signs");
    let third = bundle(&client).await;
    assert_ne!(third.certificate, first.certificate);
    cluster.until_asked().await;
    let refused = cluster
        .apply(&units())
        .await
        .expect_err("the webhook was asked");
    assert!(refused.contains(NO_UNITS), "{refused}");

    rotator.reconcile().await.expect("all is well");
    assert_eq!(bundle(&client).await, third, "what is good is kept");
    cluster.configure(port, None).await;
    rotator.reconcile().await.expect("it is put right");
    assert_eq!(trusted(&client).await, third.authorities);
}

type Now = Arc<Mutex<Timestamp>>;

/// A replica's rotator, and where it shows its certificate.
fn a_rotator(
    client: &kube::Client,
    now: &Now,
) -> (CertificateRotator, watch::Receiver<Option<Identity>>) {
    let now = Arc::clone(now);
    let (shown, identity) = watch::channel(None);
    let rotator = CertificateRotator::new(certificate_rotator::Params {
        client: client.clone(),
        namespace: NAMESPACE.to_owned(),
        secret: "operating-system-manager-webhook".to_owned(),
        configurations: "operating-system-manager".to_owned(),
        hosts: vec!["127.0.0.1".to_owned()],
        now: Arc::new(move || *now.lock().expect("no panic holds it")),
        shown,
        metrics: Metrics::new(),
    });
    (rotator, identity)
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_come_at_once_agree_on_one_certificate() {
    let cluster = Cluster::start().await;
    cluster.configure(1, None).await;
    let kubeconfig = cluster.webhooks_own_kubeconfig().await;
    let client = client_of(&kubeconfig).await.expect("a client");
    let now = Arc::new(Mutex::new(Timestamp::now()));
    let (mut one, first) = a_rotator(&client, &now);
    let (mut other, second) = a_rotator(&client, &now);
    let (came, came_too) = tokio::join!(one.reconcile(), other.reconcile());
    assert!(came.is_ok() || came_too.is_ok(), "{came:?} {came_too:?}");
    let bundle = bundle(&client).await;
    let own = Identity::from_pem(bundle.certificate.as_bytes(), bundle.key.as_bytes());
    let own = own.expect("it is whole");
    // Nobody shows what another has overwritten.
    for (came, shown) in [(came, &first), (came_too, &second)] {
        assert!(came.is_err() || shown.borrow().as_ref() == Some(&own));
    }
    one.reconcile().await.expect("all is well");
    other.reconcile().await.expect("all is well");
    assert_eq!(trusted(&client).await, bundle.authorities);
    for shown in [first, second] {
        assert_eq!(shown.borrow().as_ref(), Some(&own));
    }
}

fn units() -> Value {
    let half = json!({"units": [{"name": "a.service"}], "files": []});
    with(a_profile("osp-units"), "/spec/bootstrapConfig", half)
}

async fn bundle(client: &kube::Client) -> CertificateBundle {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let secret = secrets.get("operating-system-manager-webhook").await;
    let data = secret.expect("it may be read").data.unwrap_or_default();
    CertificateBundle::from_data(&data).expect("it is whole")
}

async fn trusted(client: &kube::Client) -> String {
    let all: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let found = all
        .get("operating-system-manager")
        .await
        .expect("it may be read");
    let webhooks = found.webhooks.unwrap_or_default();
    let mut bundles: Vec<String> = webhooks
        .into_iter()
        .map(|webhook| webhook.client_config.ca_bundle.unwrap_or_default().0)
        .map(|bundle| String::from_utf8(bundle).expect("PEM is text"))
        .collect();
    bundles.dedup();
    assert_eq!(bundles.len(), 1, "all trust the same");
    bundles.concat()
}
