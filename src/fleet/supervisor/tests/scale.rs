use fake_cluster::Cluster;
use jiff::Timestamp;
use tower::{BoxError, util::BoxCloneSyncService};

use crate::api::worker_cluster::FleetId;
use crate::client::{
    clock::Clock, memory::Memory, permits::Permits, rate_limit::SharedBudget, token::Tokens,
    watch::Scope,
};
use crate::fleet::{
    discovery::{Gone, KubeconfigText, Registration, Settings},
    index::visits,
    registry::{CONSIDERED_MAX, Registry},
    sharding::{Holder, View, precautions::Precautions},
    supervisor::*,
};
use crate::telemetry::metrics::Metrics;
use crate::tenant::{
    defaults::TenantDefaults, inventory::Inventory, policies::TenantPolicies, policy::TenantPolicy,
};

const REGISTRATIONS: usize = 10_000;

fn shared() -> Arc<Shared> {
    let registry = Arc::new(Registry::new(&[Inventory::Label].into()));
    let nowhere = Scope::Namespaces(Vec::new());
    let (worker_clusters, _) =
        worker_clusters::follow(&Cluster::default().client(), &nowhere, &registry);
    let policy = TenantPolicy::default();
    let nobody = tower::service_fn(|_| async { Err(BoxError::from("nobody answers")) });
    Arc::new(Shared {
        fleet: FleetId::default(),
        handover_timeout: Duration::from_secs(30),
        registry,
        worker_clusters,
        management: BoxCloneSyncService::new(nobody),
        management_uid: String::new().into(),
        former_management_clusters: Vec::new(),
        connector: Arc::new(|_, _| Err("nothing is reached".into())),
        permits: Permits::new(1),
        memory: Arc::new(Memory::unlimited()),
        management_budget: Arc::new(SharedBudget::new(policy.management_requests)),
        policies: Arc::new(TenantPolicies {
            rules: Vec::new(),
            default: Arc::new(policy),
        }),
        defaults: TenantDefaults::default(),
        request_timeout: Duration::from_secs(10),
        tokens: Tokens::new(Duration::MAX),
        cluster_info_interval: Duration::from_mins(10),
        clock: Clock::tokio(Timestamp::UNIX_EPOCH),
        metrics: Metrics::new(),
        serve: Arc::new(|_| Box::pin(async {})),
        report: Arc::new(|_| Box::pin(async {})),
    })
}

fn a_grant(instances: &[&str]) -> Shard {
    let mut grant = Shard::nothing("me");
    grant.settle(&View(
        instances.iter().map(|it| Holder::parse(it)).collect(),
    ));
    grant
}

fn a_registration(index: usize) -> Registration {
    Registration {
        id: RegistrationId::new(&format!("tenant-{index}"), "kubeconfig"),
        uid: index.to_string(),
        created: Timestamp::UNIX_EPOCH,
        version: String::new(),
        kubeconfig: KubeconfigText::Missing,
        inventory: Inventory::Label,
        settings: Settings::Operator,
    }
}

/// Does what the fleet's loop does after each event.
fn discovered(supervisor: &mut Supervisor, discovered: Discovered) {
    supervisor.discovered(discovered);
    supervisor.report();
}

/// Asserts how often each registration was visited since the last call.
#[track_caller]
fn assert_visits_of_each(most: usize) {
    let visits = visits::take();
    assert!(
        visits <= most * REGISTRATIONS,
        "{visits} visits of {REGISTRATIONS} registrations"
    );
}

/// Creates the supervisor of the only replica, which serves no tenant yet.
fn a_supervisor() -> (
    Supervisor,
    tokio::sync::watch::Sender<Shard>,
    tokio::sync::watch::Receiver<Shard>,
) {
    let clock = Clock::tokio(Timestamp::UNIX_EPOCH);
    let (shards, granted) = tokio::sync::watch::channel(a_grant(&["me"]));
    let (let_go, let_go_of) = tokio::sync::watch::channel(Shard::nothing("me"));
    let placement = Placement {
        shards: granted,
        let_go,
        fence: Fence::closed(clock, Duration::ZERO),
        precautions: Precautions::default(),
    };
    let supervisor = Supervisor::new(shared(), placement, CancellationToken::new());
    (supervisor, shards, let_go_of)
}

#[tokio::test(start_paused = true)]
async fn the_end_lets_other_tasks_run_between_members() {
    let (mut supervisor, _grants, _let_go_of) = a_supervisor();
    for index in 0..REGISTRATIONS {
        let registration = Box::new(a_registration(index));
        discovered(&mut supervisor, Discovered::Present(registration));
    }
    let tokens = supervisor.serving.values().map(|it| it.cancel.clone());
    let tokens: Vec<CancellationToken> = tokens.collect();
    let (mut before, mut most) = (0, 0);
    let mut finish = std::pin::pin!(supervisor.finish());
    std::future::poll_fn(|context| {
        let polled = finish.as_mut().poll(context);
        if before < REGISTRATIONS {
            let now = tokens.iter().filter(|it| it.is_cancelled()).count();
            most = most.max(now - before);
            before = now;
        }
        polled
    })
    .await;
    assert_eq!(before, REGISTRATIONS);
    // The number of operations that tokio lets a task do in one poll, plus the one that it stops
    // at.
    assert!(
        most <= 128 + 1,
        "{most} cluster tasks were cancelled in one poll"
    );
}

#[tokio::test(start_paused = true)]
async fn what_happens_to_each_registration_visits_no_other() {
    let (mut supervisor, shards, let_go_of) = a_supervisor();
    visits::take();
    for index in 0..REGISTRATIONS {
        let registration = Box::new(a_registration(index));
        discovered(&mut supervisor, Discovered::Present(registration));
    }
    let seen = (0..REGISTRATIONS).map(|index| a_registration(index).id);
    let (limit, seen) = (None, seen.collect());
    discovered(
        &mut supervisor,
        Discovered::Complete {
            inventory: Inventory::Label,
            limit,
            seen,
        },
    );
    assert_eq!(supervisor.serving.len(), REGISTRATIONS);
    assert_eq!(*let_go_of.borrow(), a_grant(&["me"]));
    assert_visits_of_each(2);

    shards.send_replace(a_grant(&["me", "other"]));
    supervisor.place();
    supervisor.report();
    assert_eq!(*let_go_of.borrow(), a_grant(&["me"]), "tasks are under way");
    assert_visits_of_each(2);
    let leaving: Vec<Id> = supervisor.leaving.iter().copied().collect();
    assert!((REGISTRATIONS / 3..REGISTRATIONS).contains(&leaving.len()));
    for id in leaving {
        assert_eq!(*let_go_of.borrow(), a_grant(&["me"]));
        supervisor.ended(Ok(id));
        supervisor.report();
    }
    assert_eq!(*let_go_of.borrow(), a_grant(&["me", "other"]));
    assert_visits_of_each(2);

    for index in 0..REGISTRATIONS {
        discovered(
            &mut supervisor,
            Discovered::Gone(Gone::new(&Inventory::Label, a_registration(index).id)),
        );
    }
    assert_eq!(
        supervisor.shared.registry.all().len(),
        supervisor.serving.len()
    );
    assert_visits_of_each(2);
}

/// The ten thousand of one namespace, each older than the one before.
fn of_one_namespace(index: usize) -> Registration {
    let age = i64::try_from(REGISTRATIONS - index).unwrap();
    Registration {
        id: RegistrationId::new("tenant", &format!("kubeconfig-{index}")),
        created: Timestamp::from_second(age).unwrap(),
        ..a_registration(index)
    }
}

#[tokio::test(start_paused = true)]
async fn of_one_namespace_few_have_a_task_and_one_that_comes_back_waits_for_its_last() {
    let (mut supervisor, _grants, _let_go_of) = a_supervisor();
    for index in 0..REGISTRATIONS {
        let registration = Box::new(of_one_namespace(index));
        discovered(&mut supervisor, Discovered::Present(registration));
    }
    let tasks = |supervisor: &Supervisor| {
        let tasks = supervisor.serving.values();
        tasks.filter(|it| !it.cancel.is_cancelled()).count()
    };
    assert_eq!(tasks(&supervisor), CONSIDERED_MAX);

    // The last that was left out is the next, but its task has not ended.
    let next = of_one_namespace(REGISTRATIONS - CONSIDERED_MAX - 1).id;
    let before = supervisor.here.get(&next).copied().unwrap();
    let gone = Gone::new(&Inventory::Label, of_one_namespace(REGISTRATIONS - 1).id);
    discovered(&mut supervisor, Discovered::Gone(gone));
    assert!(supervisor.shared.registry.get(&next).is_some());
    assert_eq!(supervisor.here.get(&next), Some(&before));
    supervisor.ended(Ok(before));
    let now = supervisor.here.get(&next).copied().unwrap();
    assert_ne!(now, before);
    let serving = supervisor.serving.get(&now).unwrap();
    assert!(!serving.cancel.is_cancelled());
}
