//! Credentials that end, over days in which the management API is away for hours.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use fake_cluster::{Cluster, Fault, Matcher, Options, User};
use http::{HeaderValue, Request, header::AUTHORIZATION};
use jiff::{SignedDuration, Timestamp};
use kube::{client::Body, runtime::watcher};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};
use tower::{ServiceExt, util::BoxCloneSyncService};

use super::moving_on::{put, shared, transport};
use crate::client::{
    clock::Clock,
    token::{self, Tokens},
    transport::Transport,
    watch::Scope,
};
use crate::fleet::{
    self, Source, Sources,
    registry::Registry,
    sharding::{Holder, View, precautions::Precautions, shard::Shard},
    supervisor::*,
};
use crate::tenant::{
    access::renewal::ServiceAccountName, inventory::Inventory, secret_text::SecretText,
};

const HOUR: Duration = Duration::from_hours(1);
/// The age at which a token is renewed.
const AGE: Duration = Duration::from_hours(24);
/// The lifetime of the first token, in seconds.
const WEEK: i64 = 7 * 24 * 3600;

fn a_cluster(name: &str, started_at: Timestamp) -> Cluster {
    Cluster::new(Options {
        name: name.to_owned(),
        started_at,
        ..Options::default()
    })
}

/// Lets a user do everything.
fn entitle(cluster: &Cluster, user: &str) {
    put(
        cluster,
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": "everything" },
            "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }],
        }),
    );
    put(
        cluster,
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": "everything" },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "everything",
            },
            "subjects": [{
                "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user,
            }],
        }),
    );
}

fn account(namespace: &str) -> ServiceAccountName {
    ServiceAccountName {
        namespace: namespace.to_owned(),
        name: "osm".to_owned(),
    }
}

/// Creates the ServiceAccount, and returns its name as a user.
fn has_account(
    cluster: &Cluster,
    ServiceAccountName { namespace, name }: &ServiceAccountName,
) -> String {
    put(
        cluster,
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": name, "namespace": namespace },
        }),
    );
    format!("system:serviceaccount:{namespace}:{name}")
}

/// A transport that authenticates with a token.
fn authenticated(cluster: &Cluster, token: &SecretText) -> Transport {
    let value = HeaderValue::try_from(format!("Bearer {}", token.expose())).unwrap();
    let with_token = transport(cluster).map_request(move |mut request: Request<Body>| {
        request.headers_mut().insert(AUTHORIZATION, value.clone());
        request
    });
    BoxCloneSyncService::new(with_token)
}

/// A tenant whose cluster is engaged by a manager that runs.
struct Fleet {
    management: Cluster,
    worker: Cluster,
    _tasks: JoinSet<()>,
}

impl Fleet {
    async fn start(credentials: &str) -> Self {
        Self::start_beside(a_cluster("worker", Timestamp::UNIX_EPOCH), credentials).await
    }

    async fn start_beside(worker: Cluster, credentials: &str) -> Self {
        let management = a_cluster("management", Timestamp::UNIX_EPOCH);
        for definition in [
            include_str!("../../../../manifests/crds/workerclusters.yaml"),
            include_str!("../../../../manifests/crds/operatingsystemprofiles.yaml"),
        ] {
            management.apply_yaml(definition).unwrap();
        }
        let (own, in_worker) = (account("default"), account("kube-system"));
        let user = has_account(&management, &own);
        entitle(&management, &user);
        let user_object = if credentials == "Federated" {
            worker.trust(
                &management,
                "operatingsystemmanager.k8c.io/berlin/berlin",
                "osm:",
            );
            entitle(&worker, &format!("osm:{user}"));
            json!({})
        } else {
            let in_worker_user = has_account(&worker, &in_worker);
            entitle(&worker, &in_worker_user);
            let first = token::request(&worker.client(), &in_worker, None, WEEK).await;
            json!({ "token": first.unwrap().expose() })
        };
        register(&management, &worker, (credentials, &user_object));
        let token = SecretText::new(management.token(&User::service_account("default", "osm")));
        let management_transport = authenticated(&management, &token);
        let tasks = run((&management, &worker), management_transport).await;
        Self {
            management,
            worker,
            _tasks: tasks,
        }
    }

    /// How often the worker cluster has answered with each code, since the last time.
    fn answers(&self) -> BTreeMap<u16, usize> {
        let mut codes = BTreeMap::new();
        for entry in self.worker.take_audit() {
            *codes.entry(entry.code).or_default() += 1;
        }
        codes
    }

    /// The management API is away for a time.
    async fn outage(&self, lasts: Duration) {
        let away = self
            .management
            .inject(Matcher::default(), Fault::ConnectionRefused);
        sleep(lasts).await;
        self.management.clear_fault(away);
    }
}

fn register(management: &Cluster, worker: &Cluster, (credentials, user): (&str, &Value)) {
    put(
        management,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "berlin"}}),
    );
    put(
        management,
        json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
            "metadata": { "name": "berlin", "namespace": "berlin" },
            "spec": { "kubeconfigSecretRef": { "name": "berlin" }, "credentials": credentials },
        }),
    );
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "there",
        "clusters": [{ "name": "there", "cluster": {
            "server": "https://berlin.example:6443",
            "certificate-authority-data": STANDARD.encode(worker.ca_pem()),
        }}],
        "contexts": [{ "name": "there", "context": { "cluster": "there", "user": "osm" } }],
        "users": [{ "name": "osm", "user": user }],
    });
    put(
        management,
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {
                "name": "berlin", "namespace": "berlin",
                "labels": { "operatingsystemmanager.k8c.io/worker-cluster": "true" },
            },
            "data": { "kubeconfig": STANDARD.encode(kubeconfig.to_string()) },
        }),
    );
}

/// Runs a manager, and returns once it serves the tenant.
async fn run(
    (management, worker): (&Cluster, &Cluster),
    management_transport: Transport,
) -> JoinSet<()> {
    let clock = Clock::tokio(Timestamp::UNIX_EPOCH);
    let registry = Arc::new(Registry::new(&[Inventory::Label].into()));
    let (worker_clusters, follow) =
        worker_clusters::follow(&management.client(), &Scope::All, &registry);
    let (sender, mut engagements) = mpsc::unbounded_channel();
    let clusters = (management, worker);
    let reached = worker.clone();
    let shared = Shared {
        management: management_transport,
        connector: Arc::new(move |access, _| {
            let token = access.credential.token().ok_or("it has no token")?;
            Ok(authenticated(&reached, token))
        }),
        tokens: Tokens::new(AGE),
        ..shared(clusters, (registry, worker_clusters), clock.clone(), sender)
    };
    let fence = Fence::closed(clock, Duration::ZERO);
    fence.extend(Duration::from_hours(1000));
    let mut all = Shard::nothing("a");
    all.settle(&View([Holder::parse("a_1")].into()));
    let shards = watch::Sender::new(all);
    let placement = Placement {
        shards: shards.subscribe(),
        let_go: watch::Sender::new(Shard::nothing("a")),
        fence,
        precautions: Precautions::default(),
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(follow);
    let selected = "operatingsystemmanager.k8c.io/worker-cluster=true";
    tasks.spawn(fleet::run(fleet::Params {
        shared: Arc::new(shared),
        placement,
        management: management.client(),
        scope: Scope::All,
        sources: Sources {
            except: std::collections::BTreeSet::new(),
            inventories: vec![Source::Secrets {
                inventory: Inventory::Label,
                selected: watcher::Config::default().labels(selected),
            }],
        },
        cancel: CancellationToken::new(),
    }));
    let engaged = timeout(HOUR, engagements.recv()).await;
    drop(engaged.expect("it is engaged").expect("it is served"));
    // They live as long as the tasks.
    tasks.spawn(async move {
        let _alive = (shards, engagements);
        std::future::pending::<()>().await;
    });
    tasks
}

#[tokio::test(start_paused = true)]
async fn a_renewed_token_has_no_gap_while_the_management_api_is_away() {
    let fleet = Fleet::start("Renewed").await;
    // The renewal is due while the API is away.
    sleep(22 * HOUR).await;
    fleet.outage(6 * HOUR).await;
    sleep(HOUR).await;
    let renewals = fleet.management.writes();
    let renewals = renewals.iter().filter(|it| it.target.resource == "secrets");
    assert_eq!(renewals.count(), 1, "as soon as the API is back");
    sleep(8 * 24 * HOUR).await;
    let answers = fleet.answers();
    assert!(!answers.contains_key(&401), "{answers:?}");
    assert!(
        answers.get(&200).is_some_and(|it| *it > 1000),
        "{answers:?}"
    );
}

/// All that its tokens say is that they are old. Each is renewed, and not in an endless loop.
#[tokio::test(start_paused = true)]
async fn a_worker_cluster_that_lies_about_time_has_one_renewal_a_minute() {
    let long_ago = Timestamp::UNIX_EPOCH - 100 * SignedDuration::from_hours(24);
    let fleet = Fleet::start_beside(a_cluster("worker", long_ago), "Renewed").await;
    fleet.management.clear_audit();
    sleep(HOUR).await;
    let renewals = fleet.management.writes();
    let renewals = renewals.iter().filter(|it| it.target.resource == "secrets");
    let renewals = renewals.count();
    assert!((50..=61).contains(&renewals), "{renewals}");
}

#[tokio::test(start_paused = true)]
async fn a_federated_cluster_is_served_again_by_the_first_token_after_an_outage() {
    let fleet = Fleet::start("Federated").await;
    sleep(5 * HOUR).await;
    let before = fleet.answers();
    assert!(!before.contains_key(&401), "{before:?}");
    fleet.outage(6 * HOUR).await;
    let meanwhile = fleet.answers();
    assert!(meanwhile.contains_key(&401), "{meanwhile:?}");
    // The longest time between two attempts.
    sleep(Duration::from_secs(16)).await;
    drop(fleet.answers());
    sleep(13 * HOUR).await;
    let after = fleet.answers();
    assert!(
        !after.contains_key(&401) && after.contains_key(&200),
        "{after:?}"
    );
}
