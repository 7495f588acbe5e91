//! Canaries in every field that holds a secret, of every cloud and every operating system, for two
//! tenants at once: nothing of them is told, and nothing of one tenant reaches the other.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use kube::api::Api;
use loadtest::collector::Collector;
use osm::api::machine_deployment::MachineDeployment;
use osm::api::names::{CLOUD_INIT_SETTINGS, PROFILE};
use osm::api::profile::OperatingSystemProfile;
use serde_json::{Value, json};

use crate::administrator::{create, list};
use crate::clouds::{CLOUDS, System, provider_spec, systems};
use crate::commands::{Admin, Said};
use crate::fixtures::{
    self, a_little_machine_deployment, a_machine_deployment, a_profile, with_annotation,
};
use crate::life::{all, page};
use crate::process::Binary;
use crate::rotation::install;
use crate::server::ok;
use crate::stage::{Stage, Tenant, WORKER};
use crate::wait::DEADLINE;
use crate::world::{IN_WORKER, World};

/// What nobody but the machines of a tenant may learn, by kind.
type Secrets = BTreeMap<String, String>;

pub async fn no_secret_of_any_cloud_is_reported_and_nothing_of_a_tenant_reaches_another(
    world: &'static World,
) {
    let stage = Stage::open(world, "canaries");
    let [berlin, lisbon] = stage.tenants(["berlin", "lisbon"]).await;
    let collector = ok(Collector::start().await, "loopback has a free port");
    let endpoint = collector.endpoint();
    let binary = Binary::start(
        &stage,
        &["--log-filter", "trace", "--otlp-endpoint", &endpoint],
    );
    let both = [(&berlin, "berlin"), (&lisbon, "lisbon")];
    for (tenant, name) in both {
        register(tenant, name).await;
        for (cloud, system) in clouds_of(name)
            .into_iter()
            .zip(systems().into_iter().cycle())
        {
            drop(tenant.create(&a_worker(name, &system, cloud)).await);
        }
        drop(tenant.create(&a_broken_worker(name)).await);
        drop(tenant.create(&a_failing_worker(name)).await);
    }
    for (tenant, name) in both {
        for (cloud, _) in clouds_of(name) {
            let entry = format!("kube-system/{name}-{cloud}");
            tenant.entry(&entry, ("Served", "Current")).await;
        }
        let broken = format!("kube-system/{name}-broken");
        tenant.entry(&broken, ("Refused", "NoDefaultProfile")).await;
        let failing = format!("kube-system/{name}-failing");
        tenant.entry(&failing, ("Refused", "RenderFailed")).await;
    }
    let mut commands = Vec::new();
    for (tenant, name) in both {
        commands.extend(told_by_commands(&stage, tenant, name).await);
    }
    let secrets_of_berlin = secrets_of(&berlin, "berlin").await;
    let secrets_of_lisbon = secrets_of(&lisbon, "lisbon").await;
    let mut told = told_by(binary, &collector).await;
    told.append(&mut commands);
    for (place, text) in &told {
        for line in text.lines() {
            let is_of_both = both.iter().all(|(it, _)| line.contains(&it.namespace));
            assert!(!is_of_both, "{place} speaks of two tenants: {line}");
        }
    }
    for (tenant, name) in both {
        told.extend(written_about(tenant, name).await);
    }
    hold_none(&told, &secrets_of_berlin);
    hold_none(&told, &secrets_of_lisbon);
    for ((own, name), (other, foreign)) in both
        .into_iter()
        .zip([(&lisbon, secrets_of_lisbon), (&berlin, secrets_of_berlin)])
    {
        let mut texts = written_about(own, name).await;
        texts.extend(held_by(own, name).await);
        hold_none(&texts, &foreign);
        let named = ("the other tenant".to_owned(), other.namespace.clone());
        hold_none(&texts, &Secrets::from([named]));
    }
}

/// No text has any of the secrets in it.
fn hold_none(texts: &[(String, String)], secrets: &Secrets) {
    for (place, text) in texts {
        for (what, secret) in secrets {
            assert!(!text.contains(secret.as_str()), "{what} stands in {place}");
        }
    }
}

/// Everything that commands say about a tenant to an administrator.
async fn told_by_commands(stage: &Stage, tenant: &Tenant, name: &str) -> Vec<(String, String)> {
    let admin = Admin::of(tenant);
    let namespace = tenant.namespace.as_str();
    let worker = format!("{name}-aws");
    let mut told = Vec::new();
    for (words, code) in [
        (&["tenants", "-o", "wide", "-n", namespace][..], 0),
        (&["tenants", "-o", "json", "-n", namespace], 0),
        (&["explain", &worker], 0),
        (&["explain", &worker, "-o", "json"], 0),
        (&["plan", "--format", "json"], 1),
        (&["doctor"], 3),
        (&["doctor", "-o", "json"], 3),
    ] {
        let said = match words {
            ["tenants", ..] => admin.osm(words).await,
            _ => admin.osm_about((stage, tenant), words).await,
        };
        assert_eq!(said.code, Some(code), "{words:?}: {said:?}");
        assert!(said.out.len() > 40, "{words:?} says something: {said:?}");
        told.push((words.join(" "), unfolded(&said)));
    }
    // It makes a token, and registers the tenant with that.
    let label = format!("scenario={}", stage.name());
    let add = ["tenant", "add", WORKER, "-n", namespace, "--label", &label];
    let more = ["--allow-loopback-servers", "-o", "yaml", "--wait", "0s"];
    let said = admin.osm_in_both(&[&add[..], &more].concat()).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    told.push(("osm tenant add".to_owned(), unfolded(&said)));
    told
}

/// Everything that a command said, with what stands in base64 decoded, wherever lines end.
fn unfolded(said: &Said) -> String {
    let all = said.all();
    let in_one: String = all.split_whitespace().collect();
    readable(all.as_bytes()) + &readable(in_one.as_bytes())
}

/// Ends the process, and hands out everything that it has said: pages, log and spans.
async fn told_by(binary: Binary, collector: &Collector) -> Vec<(String, String)> {
    let address = binary.admin_address().await;
    let mut told = Vec::new();
    let pages = [
        "/metrics",
        "/livez",
        "/readyz",
        "/fleet",
        "/fleet.json",
        "/",
    ];
    for path in pages {
        told.push((path.to_owned(), page(&address, path).await));
    }
    let log = binary.stop().await;
    let spans = collector
        .wait_for(|spans| spans.len() > 100, DEADLINE)
        .await;
    let spans = ok(spans, "the spans came").into_iter();
    let spans: Vec<String> = spans.map(|span| format!("{span:?}")).collect();
    let mut pages = told.iter();
    assert!(pages.any(|(_, page)| page.contains("osm_reconciles_total")));
    assert!(pages.any(|(_, page)| page.contains("NoDefaultProfile")));
    assert!(log.contains("reconciled"), "it has logged");
    told.push(("the log".to_owned(), log));
    told.push(("the spans".to_owned(), spans.join("\n")));
    told
}

/// The first tenant has a machine deployment on every cloud, the other on a few.
fn clouds_of(name: &str) -> Vec<(&'static str, &'static [&'static str])> {
    let few = if name == "berlin" { CLOUDS.len() } else { 4 };
    CLOUDS.into_iter().take(few).collect()
}

/// What every canary of a tenant begins with.
fn mark(name: &str) -> String {
    format!("c4n4ry-{name}")
}

/// A tenant with credentials of registries, a kubeconfig that is refused before one that works, and
/// every default profile for every cloud.
async fn register(tenant: &Tenant, name: &str) {
    let mark = mark(name);
    let by_password = json!({
        "username": format!("{mark}-registry-user"), "password": format!("{mark}-registry-password"),
    });
    let by_token = json!({
        "auth": format!("{mark}-registry-auth"), "identitytoken": format!("{mark}-registry-token"),
    });
    let mut registries = fixtures::a_secret("registries", ("docker.io", &by_password.to_string()));
    let data = registries.string_data.get_or_insert_default();
    data.insert("quay.io".to_owned(), by_token.to_string());
    create(&tenant.registrations(), &registries).await;
    tenant
        .worker
        .apply_file("manifests/rbac/worker-node-credentials.yaml")
        .await;
    tenant
        .configure(json!({
            "registryCredentialsSecretRef": { "name": "registries" },
            "nodeCredentials": "PerMachineDeployment",
        }))
        .await;
    let refused = format!("users: [{{name: {mark}-user, user: {{password: {mark}-password}}}}]");
    tenant.register_as(WORKER, &refused).await;
    tenant
        .says("Registered", "False", "KubeconfigRefused")
        .await;
    for system in systems() {
        install(tenant, &everywhere(&system)).await;
    }
    install(tenant, &a_profile("v1.0.0", "{{ Token.no.such.field }}")).await;
    let kubeconfig = tenant.worker.kubeconfig(IN_WORKER).await;
    tenant.set_kubeconfig(&kubeconfig).await;
}

/// A copy of a default profile for every cloud.
fn everywhere(system: &System) -> OperatingSystemProfile {
    let mut profile: OperatingSystemProfile =
        serde_saphyr::from_str(system.yaml).expect("a default profile is a profile");
    profile.metadata = fixtures::named(&format!("all-{}", system.profile));
    let clouds: Value = CLOUDS
        .iter()
        .map(|(cloud, _)| json!({ "name": cloud }))
        .collect();
    profile.spec.supported_cloud_providers =
        serde_json::from_value(clouds).expect("every name is known");
    profile
}

fn a_worker(name: &str, system: &System, cloud: (&str, &[&str])) -> MachineDeployment {
    let mut made = a_machine_deployment(&format!("{name}-{}", cloud.0));
    let spec = provider_spec(system, cloud, &mark(name));
    made.spec.template.spec.provider_spec.value = Some(spec.into());
    with_annotation(made, (PROFILE, &format!("all-{}", system.profile)))
}

/// One that is refused, with credentials in it.
fn a_broken_worker(name: &str) -> MachineDeployment {
    let mut made = a_machine_deployment(&format!("{name}-broken"));
    let nowhere = System {
        profile: "",
        yaml: "",
        name: "no-such-system",
    };
    let spec = provider_spec(
        &nowhere,
        ("openstack", &["username", "password"]),
        &mark(name),
    );
    made.spec.template.spec.provider_spec.value = Some(spec.into());
    made
}

/// One whose template fails on a secret.
fn a_failing_worker(name: &str) -> MachineDeployment {
    a_little_machine_deployment(&format!("{name}-failing"))
}

async fn secrets_of(tenant: &Tenant, name: &str) -> Secrets {
    let mut secrets = BTreeMap::from([(format!("a canary of {name}"), mark(name))]);
    let mut take = |found: &Secret, key: &str| {
        let text = fixtures::text(found, key);
        if !text.is_empty() {
            secrets.insert(format!("{name}: {} of {}", key, found.name_any()), text);
        }
    };
    for found in &list(&tenant.secrets()).await {
        take(found, "token");
    }
    for found in &list(&tenant.tokens()).await {
        take(found, "token");
        take(found, "token-secret");
    }
    let own = tenant.registrations().get(WORKER).await;
    let own = fixtures::text(&ok(own, "it is registered"), "kubeconfig");
    let own: Value = ok(serde_saphyr::from_str(&own), "a kubeconfig is YAML");
    let token = own.pointer("/users/0/user/token").and_then(Value::as_str);
    let token = token.expect("it is registered by a token").to_owned();
    assert!(token.len() > 20, "it is a token");
    secrets.insert(format!("{name}: the token of the registration"), token);
    let kinds = secrets.len();
    // The fetcher, two tokens for each machine deployment, and the manager itself.
    assert!(
        kinds > 2 * clouds_of(name).len(),
        "{kinds} secrets are known"
    );
    secrets
}

/// What others than its machines may read of a tenant, by where it stands.
async fn written_about(tenant: &Tenant, name: &str) -> Vec<(String, String)> {
    let admin = tenant.admin.clone();
    let secrets = list(&tenant.secrets()).await;
    let metadata: Vec<_> = secrets.iter().map(|it| &it.metadata).collect();
    let metadata = serde_json::to_string(&metadata).expect("metadata is JSON");
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), CLOUD_INIT_SETTINGS);
    let roles: Api<Role> = Api::namespaced(admin.clone(), CLOUD_INIT_SETTINGS);
    let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), CLOUD_INIT_SETTINGS);
    let namespaces: Api<Namespace> = Api::all(admin);
    [
        ("the Events", all(&tenant.events()).await),
        ("the worker's Events", all(&tenant.worker_events()).await),
        ("the WorkerClusters", all(&tenant.worker_clusters()).await),
        ("the configs", all(&tenant.configs()).await),
        ("the profiles", all(&tenant.profiles()).await),
        ("the Secrets' metadata", metadata),
        ("the ServiceAccounts", all(&accounts).await),
        ("the Roles", all(&roles).await),
        ("the RoleBindings", all(&bindings).await),
    ]
    .into_iter()
    .map(|(place, text)| (format!("{place} of {name}"), text))
    .chain([namespace_claims(&namespaces, tenant).await])
    .collect()
}

/// The namespaces of the worker cluster; the claim names the tenant that holds it.
async fn namespace_claims(namespaces: &Api<Namespace>, tenant: &Tenant) -> (String, String) {
    let text = all(namespaces).await;
    assert!(text.contains(&tenant.namespace), "it is claimed");
    ("the worker's namespaces".to_owned(), text)
}

/// What a tenant's machines get.
async fn held_by(tenant: &Tenant, name: &str) -> Vec<(String, String)> {
    let secrets = list(&tenant.secrets()).await;
    let values = secrets.into_iter().flat_map(|secret| {
        let name = secret.name_any();
        let data = secret.data.unwrap_or_default().into_iter();
        data.map(move |(key, value)| (format!("{name}, {key}"), readable(&value.0)))
    });
    let found: Vec<(String, String)> = values.collect();
    let own = mark(name);
    let reached = found.iter().filter(|(_, text)| text.contains(&own)).count();
    let wanted = clouds_of(name).len();
    assert!(reached >= wanted, "canaries reach {reached} documents");
    found
}

/// The bytes as text, with what stands in base64 decoded beside it.
fn readable(bytes: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    let words: Vec<String> = text
        .split(|c: char| !(c.is_ascii_alphanumeric() || "+/=".contains(c)))
        .filter(|word| word.len() > 40)
        .filter_map(|word| STANDARD.decode(word).ok())
        .map(|decoded| String::from_utf8_lossy(&decoded).into_owned())
        .collect();
    for word in words {
        text.push('\n');
        text.push_str(&word);
    }
    text
}
