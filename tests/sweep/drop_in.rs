//! One cluster in the place of another program: who leads, what is taken over, and what the flags
//! of that one bring about.

use std::{sync::Arc, time::Duration};

use fake_cluster::{Cluster, Fault, Matcher, Options, Verb, object};
use osm::{
    app::single::{self, Dependencies},
    client::clock::Clock,
    render_worker::Renderer,
    settings::drop_in::{CONTROLLER_FLAGS, DropInSettings, read},
    telemetry::metrics::Metrics,
};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    fixtures,
    scenarios::{BOOTSTRAP, KUBELET_KUBECONFIG, PROVISIONING, annotate, annotations, document},
    snapshot::{boot_secret, decoded, text},
    wire::{Life, transport},
    world::{QUIET, account, put},
};

/// A Lease lasts this long, one looks this often, and a start takes less than a second.
const TAKEN_OVER: Duration = Duration::from_secs(15 + 2 + 1);

const NONE: [&str; 0] = [];

/// One cluster, in which another program could be at work.
pub struct Place {
    /// The cluster.
    pub cluster: Cluster,
    /// Where the worker cluster is another one.
    worker: Option<Cluster>,
    begun: Instant,
}

/// One process in it.
pub struct Process {
    cancel: CancellationToken,
    tasks: JoinSet<anyhow::Result<()>>,
    life: Arc<Life>,
}

fn settings(more: &[&str]) -> DropInSettings {
    let line = ["-namespace=kube-system", "-disable-default-osps"];
    let words: Vec<String> = line.iter().chain(more).map(|&it| it.to_owned()).collect();
    let read = read("osm-controller", CONTROLLER_FLAGS, &words).expect("the flags are known");
    read.flags.check().expect("the flags fit")
}

/// A cluster with what its makers install.
fn a_cluster(name: &str) -> Cluster {
    let cluster = Cluster::new(Options {
        name: name.to_owned(),
        ..Options::default()
    });
    for manifest in [
        include_str!("../drop_in/definitions.yaml"),
        include_str!("../drop_in/rights.yaml"),
        include_str!("../../tenants-example/worker-crds/machinedeployments.yaml"),
    ] {
        cluster.apply_yaml(manifest).expect("the manifests apply");
    }
    cluster
}

impl Place {
    /// A cluster with a profile and a machine deployment.
    pub fn new() -> Self {
        Self::of(a_cluster("single"), None)
    }

    /// A cluster with a profile, and one with a machine deployment.
    fn of_two_clusters() -> Self {
        Self::of(a_cluster("management"), Some(a_cluster("worker")))
    }

    fn of(cluster: Cluster, worker: Option<Cluster>) -> Self {
        let place = Self {
            cluster,
            worker,
            begun: Instant::now(),
        };
        place.profile("kube-system", "text\n");
        put(place.served(), fixtures::a_machine_deployment("workers"));
        place
    }

    /// The cluster of machine deployments.
    fn served(&self) -> &Cluster {
        self.worker.as_ref().unwrap_or(&self.cluster)
    }

    /// A profile as these definitions keep it.
    fn profile(&self, namespace: &str, text: &str) {
        let version = format!("v1.0.{}+jinja", text.len());
        let mut profile = fixtures::a_profile(namespace, &version, text);
        let spec = profile.pointer_mut("/spec").and_then(Value::as_object_mut);
        spec.expect("it has one").remove("templateLanguage");
        put(&self.cluster, profile);
    }

    /// Starts a process with these flags.
    pub fn start(&self, more: &[&str]) -> Process {
        let life = Life::new();
        let manager = account("kube-system");
        let worker = self.worker.as_ref();
        let given = Dependencies {
            management: transport("single", self.cluster.front_as(&manager), None, &life),
            worker: worker.map(|it| transport("worker", it.front_as(&manager), None, &life)),
            certificate_authority: b"authority".as_slice().into(),
            clock: Clock::tokio(Options::default().started_at + self.begun.elapsed()),
            pages: Vec::new(),
            metrics: Metrics::new(),
            renderer: Renderer::InProcess,
        };
        let cancel = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let mut flags = more.to_vec();
        if self.worker.is_some() {
            flags.push("-worker-cluster-kubeconfig=in-memory");
        }
        tasks.spawn(single::run_with(settings(&flags), given, cancel.clone()));
        Process {
            cancel,
            tasks,
            life,
        }
    }

    fn document(&self, name: &str) -> String {
        document(self.served(), name)
    }

    fn holder(&self) -> String {
        let lease = object("leases", "kube-system", "operating-system-manager");
        let lease = self.cluster.get(lease).unwrap_or_default();
        text(&lease, "/spec/holderIdentity").to_owned()
    }

    /// What was refused for lack of rights.
    fn refused(&self) -> Vec<String> {
        let audit = self.cluster.audit();
        let refused = audit.iter().filter(|entry| entry.code == 403);
        refused.map(crate::world::line).collect()
    }
}

impl Process {
    fn writes(&self) -> Vec<String> {
        self.life.lines()
    }

    /// Ends it at once, as by `kill -9`.
    pub async fn kill(mut self) {
        self.tasks.shutdown().await;
    }

    async fn stop(mut self) {
        self.cancel.cancel();
        self.ended().await.expect("it ends in order");
    }

    async fn ended(&mut self) -> anyhow::Result<()> {
        let ended = self.tasks.join_next().await.expect("there is one task");
        ended.expect("it does not panic")
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_processes_one_leads_and_the_other_follows_when_it_is_killed() {
    let place = Place::new();
    let first = place.start(&[]);
    sleep(QUIET).await;
    let holder = place.holder();
    assert!(!holder.is_empty() && !first.writes().is_empty());
    let second = place.start(&[]);
    sleep(QUIET).await;
    assert_eq!(place.holder(), holder);
    assert_eq!(second.writes(), NONE, "it waits");
    first.kill().await;
    place.profile("kube-system", "another text\n");
    sleep(TAKEN_OVER).await;
    assert_ne!(place.holder(), holder);
    assert!(place.document(PROVISIONING).contains("another text"));
    // One that ends in order lets go: who waits is there within two looks.
    let third = place.start(&[]);
    sleep(Duration::from_secs(3)).await;
    second.stop().await;
    place.profile("kube-system", "a third text\n");
    sleep(Duration::from_secs(5)).await;
    assert!(place.document(PROVISIONING).contains("a third text"));
    third.stop().await;
    assert_eq!(place.holder(), "");
    assert_eq!(place.refused(), NONE);
}

/// The Lease of the first cluster is renewed while that of the second is waited for.
#[tokio::test(start_paused = true)]
async fn after_a_leader_of_two_clusters_is_killed_another_leads_and_none_of_the_rest_ends() {
    let place = Place::of_two_clusters();
    let first = place.start(&[]);
    sleep(QUIET).await;
    assert!(place.document(PROVISIONING).contains("text"));
    let mut others = Vec::new();
    for _ in 0..2 {
        others.push(place.start(&[]));
        sleep(Duration::from_secs(1)).await;
    }
    first.kill().await;
    sleep(Duration::from_mins(10)).await;
    for other in &mut others {
        let ended = other.tasks.try_join_next();
        assert!(ended.is_none(), "{ended:?}");
    }
    place.profile("kube-system", "another text\n");
    sleep(QUIET).await;
    assert!(place.document(PROVISIONING).contains("another text"));
    let idle = others.iter().filter(|it| it.writes().is_empty());
    assert_eq!(idle.count(), 1, "one leads and one waits");
    assert_eq!(place.refused(), NONE);
}

#[tokio::test(start_paused = true)]
async fn one_that_stops_while_it_waits_for_the_second_lease_releases_the_first() {
    let place = Place::of_two_clusters();
    let creations = Matcher::on(&[Verb::Create], "leases");
    place.served().inject(creations, Fault::status(500));
    let process = place.start(&[]);
    sleep(QUIET).await;
    assert_ne!(place.holder(), "");
    process.stop().await;
    assert_eq!(place.holder(), "");
}

/// Only the Lease cannot be written: everything else could, and is not.
#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_writes_no_more_and_ends_before_another_leads() {
    let place = Place::new();
    let mut first = place.start(&[]);
    sleep(QUIET).await;
    let second = place.start(&[]);
    sleep(QUIET).await;
    let broken = Instant::now();
    let updates = Matcher::on(&[Verb::Update], "leases");
    let fault = place.cluster.inject(updates, Fault::status(500));
    // A write may take ten of the fifteen seconds that the Lease lasts.
    sleep(Duration::from_millis(5_500)).await;
    first.life.forget();
    place.profile("kube-system", "another text\n");
    let error = first.ended().await.expect_err("it has lost the Lease");
    let told = error.to_string();
    assert!(told.starts_with("leader election lost"), "{told}");
    assert!(broken.elapsed() < Duration::from_secs(13));
    assert_eq!(first.writes(), NONE);
    assert!(!place.document(PROVISIONING).contains("another text"));
    place.cluster.clear_fault(fault);
    sleep(TAKEN_OVER).await;
    assert!(place.document(PROVISIONING).contains("another text"));
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_leader_election_there_is_no_lease() {
    let place = Place::new();
    let process = place.start(&["-leader-elect=false"]);
    sleep(QUIET).await;
    process.stop().await;
    let leases = |entry: &fake_cluster::AuditEntry| entry.target.resource == "leases";
    assert!(!place.cluster.audit().iter().any(leases));
    assert!(place.document(PROVISIONING).contains("text"));
}

/// The three annotations by which the program before us decides are the same, so the bytes stay.
#[tokio::test(start_paused = true)]
async fn what_the_program_before_made_keeps_its_bytes() {
    let place = Place::new();
    let process = place.start(&[]);
    sleep(QUIET).await;
    process.stop().await;
    for name in [PROVISIONING, BOOTSTRAP] {
        let mut secret = boot_secret(&place.cluster, name).expect("it was made");
        let annotations = annotations(&mut secret);
        annotations.retain(|key, _| key.starts_with("k8c.io/"));
        assert_eq!(annotations.len(), 3);
        if let Some(data) = secret.pointer_mut("/data/cloud-config") {
            *data = json!("b3RoZXI=");
        }
        put(&place.cluster, secret);
    }
    let uids = || {
        [PROVISIONING, BOOTSTRAP].map(|name| {
            boot_secret(&place.cluster, name).map(|it| text(&it, "/metadata/uid").to_owned())
        })
    };
    let before = uids();
    let process = place.start(&[]);
    sleep(QUIET).await;
    process.stop().await;
    assert_eq!(before, uids());
    assert_eq!(place.document(PROVISIONING), "other");
    assert_eq!(place.refused(), NONE);
}

#[tokio::test(start_paused = true)]
async fn a_profile_of_another_namespace_is_used_and_followed() {
    let place = Place::new();
    put(&place.cluster, fixtures::a_namespace("shared"));
    place.profile("shared", "shared text\n");
    let mut machine_deployment = fixtures::a_machine_deployment("workers");
    let key = "k8c.io/operating-system-profile-namespace";
    annotate(&mut machine_deployment, key, "shared");
    put(&place.cluster, machine_deployment);
    let process = place.start(&[]);
    sleep(QUIET).await;
    assert!(place.document(PROVISIONING).contains("shared text"));
    place.profile("shared", "another shared text\n");
    sleep(Duration::from_secs(5)).await;
    assert!(place.document(PROVISIONING).contains("another shared text"));
    process.stop().await;
}

/// Where the operator names a ServiceAccount, its token is in the kubelet's kubeconfig, and no
/// bootstrap token is made. That takes a right more.
#[tokio::test(start_paused = true)]
async fn a_service_accounts_token_serves_in_place_of_bootstrap_tokens() {
    let place = Place::new();
    let objects = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: kubelets, namespace: kube-system}\nsecrets: [{name: other}, {name: kubelets-token}]\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: other, namespace: kube-system}\n---\napiVersion: v1\nkind: Secret\ntype: kubernetes.io/service-account-token\nmetadata: {name: kubelets-token, namespace: kube-system, annotations: {kubernetes.io/service-account.name: kubelets}}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: kubelets, namespace: kube-system}\nrules: [{apiGroups: ['']  , resources: [serviceaccounts], verbs: [get]}]\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: kubelets, namespace: kube-system}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: kubelets}\nsubjects: [{kind: ServiceAccount, name: operating-system-manager, namespace: kube-system}]\n";
    place.cluster.apply_yaml(objects).expect("they apply");
    let process = place.start(&["-bootstrap-token-service-account-name=kube-system/kubelets"]);
    sleep(QUIET).await;
    process.stop().await;
    let token = place
        .cluster
        .get(object("secrets", "kube-system", "kubelets-token"))
        .expect("it is there");
    let token = decoded(&token, "token");
    assert!(!token.is_empty());
    let kubeconfig = boot_secret(&place.cluster, KUBELET_KUBECONFIG);
    let kubeconfig = decoded(&kubeconfig.expect("it was made"), "kubeconfig");
    assert!(kubeconfig.contains(&token), "{kubeconfig}");
    let made = |entry: &fake_cluster::AuditEntry| {
        entry.verb == Verb::Create
            && entry.target.name.starts_with("bootstrap-token-")
            && (
                entry.target.resource.as_str(),
                entry.target.namespace.as_str(),
            ) == ("secrets", "kube-system")
    };
    assert!(!place.cluster.audit().iter().any(made));
}

/// The rights reach to Events of `kube-system` alone.
#[tokio::test(start_paused = true)]
async fn an_event_that_may_not_be_written_holds_nothing_up() {
    let place = Place::new();
    let mut elsewhere = fixtures::a_machine_deployment("workers");
    for (pointer, value) in [
        ("/metadata/namespace", "default"),
        (
            "/metadata/annotations/k8c.io~1operating-system-profile",
            "late",
        ),
    ] {
        let found = elsewhere.pointer_mut(pointer);
        *found.expect("it is there") = json!(value);
    }
    put(&place.cluster, elsewhere);
    let process = place.start(&[]);
    sleep(QUIET).await;
    let refused = place.refused();
    let is_event = |line: &String| line.starts_with("create events default/");
    assert!(
        !refused.is_empty() && refused.iter().all(is_event),
        "{refused:?}"
    );
    let mut late = place
        .cluster
        .get(object("operatingsystemprofiles", "kube-system", "own"));
    let late = late.as_mut().expect("it is there");
    late["metadata"] = json!({"name": "late", "namespace": "kube-system"});
    put(&place.cluster, late.take());
    sleep(Duration::from_secs(5)).await;
    let document = place.document("workers-default-bootstrap-config");
    assert!(document.contains("fetch with"));
    process.stop().await;
}
