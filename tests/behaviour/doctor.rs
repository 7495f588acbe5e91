//! `osm doctor` against live clusters, where something is wrong: what it finds, how bad it is, and
//! what it says to do.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use serde_json::{Value, json};

use crate::administrator::{create, delete};
use crate::commands::{Admin, Said, a_file, path, run};
use crate::fixtures::{a_kubeconfig, a_secret};
use crate::links::DEFINITION;
use crate::process::Manager;
use crate::server::{Account, ok};
use crate::stage::{Stage, Tenant, WORKER};
use crate::wait;
use crate::world::World;

/// A ServiceAccount that every cluster has, and that may do nothing.
const STRANGER: Account = Account {
    namespace: "default",
    name: "default",
};

/// The checks of one run.
struct Checks {
    code: Option<i32>,
    all: Vec<Value>,
}

impl Checks {
    /// What a command said as JSON.
    fn of(said: &Said) -> Self {
        let all = serde_json::from_str(&said.out);
        Self {
            code: said.code,
            all: ok(all, &format!("it is JSON: {said:?}")),
        }
    }

    /// Those of the scenario's tenant, or of the management cluster.
    async fn about(stage: &Stage, tenant: &Tenant, more: &[&str]) -> Self {
        let words = [&["doctor", "-o", "json"][..], more].concat();
        Self::of(&Admin::of(tenant).osm_about((stage, tenant), &words).await)
    }

    /// The checks in one place that are not as they should be, each as its subject and state.
    fn wrong_in(&self, place: &str) -> Vec<(&str, &str)> {
        let text = |it: &'_ Value| it.as_str().unwrap_or_default().to_owned();
        let all = self.all.iter();
        all.filter(|it| it["place"] == *place && text(&it["state"]) != "Ok")
            .map(|it| {
                let of = |key: &str| it.get(key).and_then(Value::as_str).unwrap_or_default();
                (of("what"), of("state"))
            })
            .collect()
    }

    /// The first check in a place that has a text in its message.
    fn that_says(&self, place: &str, text: &str) -> &Value {
        let says = |it: &&Value| {
            let message = it["message"].as_str().unwrap_or_default();
            it["place"] == *place && message.contains(text)
        };
        let found = self.all.iter().find(says);
        assert!(found.is_some(), "no {text:?} in {place}: {:#?}", self.all);
        found.unwrap_or(&Value::Null)
    }
}

fn has(check: &Value, key: &str, text: &str) {
    let found = check[key].as_str().unwrap_or_default();
    assert!(found.contains(text), "{text:?} is not in {key} of {check}");
}

pub async fn a_doctor_knows_registrations_that_are_gone_or_that_nothing_refers_to(
    world: &'static World,
) {
    let stage = Stage::open(world, "doctor-gone");
    let (tenant, manager) = Manager::with_registered(&stage).await;
    tenant.says("Ready", "True", "Ready").await;
    tenant.leave().await;
    let place = tenant.namespace.as_str();
    let found = Checks::about(&stage, &tenant, &[]).await;
    assert_eq!(found.wrong_in(place), [("WorkerCluster", "Fail")]);
    assert_eq!(found.code, Some(3));
    let command = format!("osm tenant remove {WORKER} -n {place} --on-removal release");
    let check = found.that_says(place, "RegistrationRemoved: ");
    has(check, "message", &command);
    has(check, "fix", "Run the command in the message");
    for check in &found.all {
        let message = check["message"].as_str().unwrap_or_default();
        assert!(!message.contains("no worker cluster is"), "{check}");
    }

    // Somebody creates it with a reference to a Secret that is not there.
    let worker_clusters = tenant.worker_clusters();
    delete(&worker_clusters, WORKER).await;
    let elsewhere = json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
        "metadata": { "name": WORKER }, "spec": { "kubeconfigSecretRef": { "name": "other" } },
    });
    let elsewhere = serde_json::from_value(elsewhere);
    create(&worker_clusters, &ok(elsewhere, "it is a WorkerCluster")).await;
    let found = Checks::about(&stage, &tenant, &[]).await;
    let not_yet = format!("WorkerCluster {WORKER} refers to Secret other, which does not exist");
    let check = found.that_says(place, &not_yet);
    assert_eq!((&check["state"], found.code), (&json!("Warn"), Some(0)));
    has(check, "fix", "create Secret other with the label ");

    tenant.register().await;
    let found = Checks::about(&stage, &tenant, &[]).await;
    let registered = format!("Secret {WORKER} is registered, and no WorkerCluster refers to it");
    let check = found.that_says(place, &format!("{not_yet}; {registered}"));
    assert_eq!((&check["state"], found.code), (&json!("Fail"), Some(3)));
    has(
        check,
        "fix",
        &format!("set spec.kubeconfigSecretRef.name to {WORKER}"),
    );
    let command = format!("kubectl delete workercluster {WORKER} -n {place}");
    has(check, "fix", &command);
    create(
        &tenant.registrations(),
        &a_secret("other", ("kubeconfig", "")),
    )
    .await;
    let found = Checks::about(&stage, &tenant, &[]).await;
    let label = format!(
        "Secret other, which does not have the label {}",
        stage.selector()
    );
    has(found.that_says(place, &registered), "message", &label);
    delete(&worker_clusters, WORKER).await;
    tenant.says("Ready", "True", "Ready").await;
    let found = Checks::about(&stage, &tenant, &[]).await;
    assert_eq!((found.wrong_in(place), found.code), (vec![], Some(0)));
    manager.stop().await;
}

pub async fn a_doctor_claims_nothing_about_what_it_may_not_read(world: &'static World) {
    let management = &world.management;
    let (server, authority) = (management.url(), management.authority());
    let refused = a_file(&a_kubeconfig(&server, &authority, "no-such-token"));
    let words = ["doctor", "--kubeconfig", path(&refused)];
    let found = Checks::of(&run(&[&words[..], &["-o", "json"]].concat()).await);
    assert_eq!(
        (found.code, found.all.len()),
        (Some(1), 1),
        "{:?}",
        found.all
    );
    let check = found.that_says("management", "does not accept the credential of ");
    assert_eq!(check["state"], "Fail");
    has(
        check,
        "message",
        &format!("the current context of {} (401", path(&refused)),
    );
    has(check, "message", &server);
    let table = run(&words).await;
    assert_eq!(table.code, Some(1), "{table:?}");
    let end = "1 check: 0 warnings, 1 failure\n";
    assert!(table.out.ends_with(end), "{table:?}");

    let stranger = a_file(&management.kubeconfig(STRANGER).await);
    let words = ["doctor", "-o", "json", "--kubeconfig", path(&stranger)];
    let found = Checks::of(&run(&words).await);
    assert_eq!(found.code, Some(3), "{:?}", found.all);
    let check = found.that_says("management", "cannot list registrations: ");
    assert_eq!(check["state"], "Fail");
    // The rights are the user's own: to grant them to the manager helps nobody.
    let check = found.that_says("management", "may not impersonate it");
    assert_eq!(
        (&check["what"], &check["state"]),
        (&json!("rights"), &json!("Warn"))
    );
    has(check, "fix", "may impersonate it");
    for check in &found.all {
        let message = check["message"].as_str().unwrap_or_default();
        let claims = ["no worker cluster is", "0 tenants"];
        assert!(!claims.iter().any(|it| message.contains(it)), "{check}");
    }
}

pub async fn a_doctor_prescribes_what_helps(world: &'static World) {
    let stage = Stage::open(world, "doctor-fixes");
    let tenant = stage.tenant().await;
    let place = tenant.namespace.as_str();
    let definitions: Api<CustomResourceDefinition> = Api::all(tenant.admin.clone());
    delete(&definitions, DEFINITION).await;
    wait::for_absence(&definitions, DEFINITION).await;
    tenant.register().await;
    // No manager runs that could say what its flags are.
    let selector = stage.selector();
    let flags = ["--without-manager", "--allow-loopback-servers"];
    let flags = [&flags[..], &["--registration-selector", &selector]].concat();
    wait::until("the doctor names machine-controller", async || {
        let nowhere = [&flags[..], &["--manager-namespace", "nowhere"]].concat();
        let found = Checks::about(&stage, &tenant, &nowhere).await;
        let rights = found.that_says("management", "may not: ");
        has(rights, "fix", "kubectl create namespace nowhere && ");
        let wanted = "the cluster does not serve MachineDeployments";
        let mut all = found.all.iter();
        let check = all.find(|it| it["what"] == "machine deployments")?;
        let is_it = check["message"].as_str()?.starts_with(wanted);
        is_it.then(|| has(check, "fix", "install machine-controller"))
    })
    .await;
    // Without these, the inventory would stay empty.
    let of_seed = ["--manager-namespace", "nowhere", "--inventory", "kkp"];
    let of_seed = [&flags[..], &of_seed].concat();
    let found = Checks::about(&stage, &tenant, &of_seed).await;
    let rights = found.that_says("management", "may not: ");
    has(rights, "message", "deployments");
    has(rights, "message", "(osm rbac management-kkp-seed)");

    let file = "tenants-example/worker-crds/machinedeployments.yaml";
    tenant.worker.apply_file(file).await;

    let (server, authority) = (tenant.worker.url(), tenant.worker.authority());
    let refused = a_kubeconfig(&server, &authority, "no-such-token");
    tenant.set_kubeconfig(&refused).await;
    let found = Checks::about(&stage, &tenant, &flags).await;
    let check = found.that_says(place, "does not accept the kubeconfig's credential");
    assert_eq!(
        (&check["what"], &check["state"]),
        (&json!("connection"), &json!("Fail"))
    );
    has(check, "fix", "put a valid kubeconfig into the Secret");
    assert_eq!(found.code, Some(3));
}
