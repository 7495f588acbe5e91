//! From a chart to a newer one, and back.

use super::*;

/// Copies the chart, and adds a value that is a map, as a newer chart may have one.
fn a_newer_chart() -> tempfile::TempDir {
    let newer = tempfile::tempdir().expect("there is room");
    copy(&manifests("helm/osm"), newer.path());
    let change = |name: &str, change: &dyn Fn(String) -> String| {
        let path = newer.path().join(name);
        let text = std::fs::read_to_string(&path).expect("it is there");
        std::fs::write(&path, change(text)).expect("it is writable");
    };
    change("values.yaml", &|text| text + "\nnewer: {replicas: 7}\n");
    change("values.schema.json", &|text| {
        let properties = "\"properties\": {\"newer\": {\"type\": \"object\"},";
        text.replacen("\"properties\": {", properties, 1)
    });
    change("templates/_values.tpl", &|text| {
        text.replacen("- global\n", "- global\n- newer\n", 1)
    });
    change("templates/_deployment.tpl", &|text| {
        let count = "{{ include \"osm.replicas\" . }}";
        text.replacen(count, "{{ $root.Values.newer.replicas }}", 1)
    });
    newer
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("there is room");
    for entry in std::fs::read_dir(from).expect("it is a folder") {
        let path = entry.expect("it is readable").path();
        let to = to.join(path.file_name().expect("it has a name"));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(&path, &to).expect("there is room");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_chart_keeps_what_was_set_and_is_rolled_back() {
    let management = a_cluster("management").await;
    let install = ["install", "osm", "osm", "--set", "fleet=canary"];
    let place = ["--namespace", MANAGER, "--create-namespace"];
    let install = [&install[..], &place].concat();
    helm(&management, &install).await.expect("it is installed");
    let newer = a_newer_chart();
    let upgrade = ["upgrade", "osm", newer.path().to_str().expect("it is text")];
    let upgrade = [&upgrade[..], &["--namespace", MANAGER]].concat();
    let refused = helm(&management, &[&upgrade[..], &["--reuse-values"]].concat()).await;
    let refused = refused.expect_err("the default is missing");
    let fix = "the values have no newer: they are those of an older chart";
    assert!(refused.contains(fix), "{refused}");

    let kept = [&upgrade[..], &["--reset-then-reuse-values"]].concat();
    helm(&management, &kept).await.expect("it is upgraded");
    let found = async || {
        let spec = deployment(&management, MANAGER, MANAGER).await.spec;
        let pod = spec.template.spec.expect("it has pods");
        let arguments = pod.containers[0].args.clone().unwrap_or_default();
        (
            spec.replicas,
            arguments.contains(&"--fleet=canary".to_owned()),
        )
    };
    assert_eq!(found().await, (Some(7), true));
    let back = ["rollback", "osm", "--namespace", MANAGER];
    helm(&management, &back).await.expect("it is rolled back");
    assert_eq!(found().await, (Some(3), true));
}

#[test]
fn former_names_of_values_mean_the_same() {
    let values = |[replicas, arguments, env]: [&str; 3]| {
        let all = json!({
            replicas: 0, arguments: ["--log-format=text"], env: [{"name": "A", "value": "b"}],
        });
        let mut webhook = all.clone();
        webhook["enabled"] = json!(true);
        merged(&[&all, &json!({ "webhook": webhook })])
    };
    let now = template(&values(["replicaCount", "extraArgs", "extraEnv"]));
    assert_eq!(template(&values(["replicas", "arguments", "env"])), now);
    assert_eq!(now.matches("replicas: 0\n").count(), 2, "{now}");
    // Values of a chart that had other names lack these.
    let none = json!({"extraArgs": null, "extraEnv": null});
    let none = merged(&[
        &none,
        &json!({"webhook": merged(&[&none, &json!({"enabled": true})])}),
    ]);
    assert_eq!(
        template(&none),
        template(&json!({"webhook": {"enabled": true}}))
    );
}
