//! Proves the real control plane itself: that clusters are independent, that they refuse what a
//! real one refuses, and that nothing of them stays behind.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use loadtest::control_plane::{AuditEvent, ControlPlane, Params, client_of};
use serde_json::json;

/// For what the control plane does by itself, within seconds; generous for a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

async fn a_control_plane(name: &str) -> ControlPlane {
    let begin = Instant::now();
    let params = Params {
        name: name.to_owned(),
        ..Params::default()
    };
    let plane = ControlPlane::start(params)
        .await
        .expect("the control plane starts");
    let version = plane
        .server_version()
        .await
        .expect("the API server tells its version");
    // Past the test harness, so that every run shows what it ran against.
    let ready = begin.elapsed();
    let _ = writeln!(
        std::io::stderr(),
        "{name}: Kubernetes {version}, ready after {ready:?}"
    );
    plane
}

fn a_config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name } })).expect("a literal ConfigMap")
}

/// Asks until there is an answer; fails the test after [`PATIENCE`].
async fn eventually<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(
            Instant::now() < deadline,
            "{what} did not happen within {PATIENCE:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn two_clusters_start_at_once_and_know_nothing_of_each_other() {
    let (left, right) = tokio::join!(a_control_plane("left"), a_control_plane("right"));
    assert_ne!(left.server(), right.server());
    assert_ne!(left.ca_certificate(), right.ca_certificate());

    let here: Api<ConfigMap> = Api::default_namespaced(left.client().await.unwrap());
    let there: Api<ConfigMap> = Api::default_namespaced(right.client().await.unwrap());
    here.create(&PostParams::default(), &a_config_map("only-here"))
        .await
        .unwrap();
    assert!(there.get_opt("only-here").await.unwrap().is_none());

    // The administrator of one is nobody in the other, whose certificate it does not even trust.
    let crossed = left
        .admin_kubeconfig()
        .replace(left.server(), right.server());
    let crossed: Api<ConfigMap> = Api::default_namespaced(client_of(&crossed).await.unwrap());
    assert!(crossed.list(&ListParams::default()).await.is_err());

    left.shutdown().await.unwrap();
    assert!(
        there.get_opt("only-here").await.unwrap().is_none(),
        "the right one still serves"
    );
}

#[tokio::test]
async fn it_refuses_what_rbac_does_not_grant_and_the_audit_log_says_so() {
    let plane = a_control_plane("rbac").await;
    let kubeconfig = plane
        .kubeconfig_for_service_account("default", "nobody")
        .await
        .unwrap();
    let secrets: Api<Secret> = Api::default_namespaced(client_of(&kubeconfig).await.unwrap());
    let list = async || secrets.list(&ListParams::default()).await;
    assert!(matches!(list().await, Err(kube::Error::Api(status)) if status.code == 403));

    plane
        .apply_yaml(include_str!("control_plane/reader.yaml"))
        .await
        .unwrap();
    // The authorizer reads roles from a watch, a moment later.
    eventually("the grant", async || list().await.ok()).await;

    let event = eventually("the refusal in the audit log", async || {
        plane
            .audit_events()
            .unwrap()
            .into_iter()
            .find(|event| event.code == 403)
    })
    .await;
    let AuditEvent {
        verb,
        resource,
        namespace,
        user,
        ..
    } = event;
    assert_eq!(
        (&*verb, &*resource, &*namespace),
        ("list", "secrets", "default")
    );
    assert_eq!(user, "system:serviceaccount:default:nobody");
    assert!(event.received <= event.answered);
    let agents = plane
        .audit_events()
        .unwrap()
        .into_iter()
        .map(|event| event.user_agent);
    assert!(
        agents
            .into_iter()
            .any(|agent| agent.starts_with("kube-controller-manager/v"))
    );

    let member = plane
        .kubeconfig_with_client_certificate("jane", Some("readers"))
        .unwrap();
    let secrets: Api<Secret> = Api::default_namespaced(client_of(&member).await.unwrap());
    secrets
        .list(&ListParams::default())
        .await
        .expect("the group may list");
}

#[tokio::test]
async fn its_controllers_fill_token_secrets_sign_cluster_info_and_empty_namespaces() {
    let plane = a_control_plane("controllers").await;
    plane
        .apply_yaml(include_str!("control_plane/tokens.yaml"))
        .await
        .unwrap();
    let client = plane.client().await.unwrap();

    let secrets: Api<Secret> = Api::namespaced(client.clone(), "doomed");
    let token = eventually("the token", async || {
        secrets.get("legacy").await.ok()?.data?.remove("token")
    })
    .await;
    assert_eq!(
        token.0.split(|byte| *byte == b'.').count(),
        3,
        "it is a JWT"
    );

    let public: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    let info = eventually("the signature", async || {
        let data = public.get("cluster-info").await.ok()?.data?;
        data.contains_key("jws-kubeconfig-abcdef").then_some(data)
    })
    .await;
    assert!(info.get("kubeconfig").unwrap().contains(plane.server()));

    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .delete("doomed", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    eventually("the end of the namespace", async || {
        namespaces
            .get_opt("doomed")
            .await
            .ok()?
            .is_none()
            .then_some(())
    })
    .await;
    let accounts: Api<ServiceAccount> = Api::namespaced(client, "doomed");
    assert!(accounts.get_opt("default").await.unwrap().is_none());
}

#[tokio::test]
async fn a_definition_and_its_objects_may_be_applied_as_one_text() {
    let plane = a_control_plane("definitions").await;
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/control_plane/definitions");
    plane.apply_folder(&folder).await.unwrap();
    plane
        .apply_folder(&folder)
        .await
        .expect("a second time changes nothing");

    let kind = GroupVersionKind::gvk("example.com", "v1", "Greeting");
    let resource = ApiResource::from_gvk(&kind);
    let client = plane.client().await.unwrap();
    let greetings: Api<DynamicObject> = Api::namespaced_with(client, "greetings", &resource);
    assert_eq!(
        greetings.get("hello").await.unwrap().data["spec"]["text"],
        "hello"
    );
}

#[tokio::test]
async fn an_outage_refuses_connections_and_loses_no_data() {
    let plane = a_control_plane("outage").await;
    let server = plane.server().to_owned();
    let maps: Api<ConfigMap> = Api::default_namespaced(plane.client().await.unwrap());
    maps.create(&PostParams::default(), &a_config_map("kept"))
        .await
        .unwrap();

    plane.stop_api_server().await.unwrap();
    assert!(matches!(
        maps.get("kept").await,
        Err(kube::Error::Service(_))
    ));

    plane.start_api_server().await.unwrap();
    assert_eq!(plane.server(), server);
    maps.get("kept")
        .await
        .expect("what was written before the outage");
    // The controllers have seen the outage too, and go on.
    plane
        .apply_yaml(include_str!("control_plane/tokens.yaml"))
        .await
        .unwrap();
    let secrets: Api<Secret> = Api::namespaced(plane.client().await.unwrap(), "doomed");
    eventually("a token after the outage", async || {
        secrets.get("legacy").await.ok()?.data
    })
    .await;
}

#[tokio::test]
async fn a_component_that_ends_is_an_error_with_the_end_of_its_log() {
    let params = Params {
        api_server_flags: vec!["--no-such-flag".to_owned()],
        ..Params::default()
    };
    let error = ControlPlane::start(params)
        .await
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("kube-apiserver ended"), "{error}");
    assert!(error.contains("unknown flag: --no-such-flag"), "{error}");
}

#[tokio::test]
async fn a_drop_leaves_neither_processes_nor_data() {
    let plane = a_control_plane("dropped").await;
    let folder = plane.folder().to_owned();
    assert_eq!(
        processes_of(&folder),
        3 * 3,
        "three components, each with its shell and watcher"
    );
    drop(plane);
    assert_eq!(processes_of(&folder), 0);
    assert!(!folder.exists());
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "starts the program under test")]
async fn a_killed_parent_leaves_no_process() {
    // Has the binaries built, if they are to be, before the time of the child is measured.
    loadtest::control_plane::Assets::find().await.unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let log = std::fs::File::create(scratch.path().join("output")).unwrap();
    let mut parent = Command::new(env!("CARGO_BIN_EXE_control-plane"))
        .arg("--kubeconfig-dir")
        .arg(scratch.path())
        .stdout(log)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let folder = eventually("the start of the cluster", async || {
        let output = std::fs::read_to_string(scratch.path().join("output")).unwrap();
        let line = output
            .lines()
            .find_map(|line| line.strip_prefix("data and logs in "))?;
        // The line after it is there too, so that this one is whole.
        output
            .contains("export KUBECONFIG")
            .then(|| Path::new(line).to_owned())
    })
    .await;
    assert!(processes_of(&folder) > 0);

    parent.kill().unwrap();
    parent.wait().unwrap();
    eventually("the end of every process", async || {
        (processes_of(&folder) == 0).then_some(())
    })
    .await;
}

/// How many processes run in the folder of a cluster, as each of its processes does.
fn processes_of(folder: &Path) -> usize {
    std::fs::read_dir("/proc")
        .expect("Linux has /proc")
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path().join("cwd")).ok())
        .filter(|cwd| cwd == folder)
        .count()
}
