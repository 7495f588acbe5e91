//! The same installation by kustomize and by the chart: the objects do not differ, except in labels
//! and in what the chart states though it is the default.

use loadtest::control_plane::Assets;

use super::*;

/// The folders that are put together as an operator would, and the same for the chart.
fn variants() -> [(&'static str, Value); 2] {
    [
        ("webhooks", json!({"webhook": {"enabled": true}})),
        (
            "cert-manager",
            json!({"webhook": {"enabled": true, "certManager": {"enabled": true}}}),
        ),
    ]
}

/// What kustomize makes of a folder below `tests/install`.
fn kustomized(folder: &str) -> Vec<Value> {
    let folder = manifests("../tests/install").join(folder);
    let assets = Assets::find_now().expect("there is a Kubernetes");
    let folder = folder.to_str().expect("our paths are text");
    let printed = run_program(assets.binary("kubectl"), &["kustomize", folder], "");
    objects(&printed.expect("it is put together"))
}

/// What the chart states though it is the default, or adds to a pod.
const STATED: [&str; 4] = [
    "--configuration=operating-system-manager",
    "--certificate-secret=operating-system-manager-webhook",
    "--fleet=osm",
    "--lease-namespace=operating-system-manager",
];

/// An object without its labels, and without what may differ.
fn bare(mut object: Value) -> Value {
    let host = "--host=operating-system-manager-webhook.operating-system-manager.svc";
    let remove = |object: &mut Value, place: &str, key: &str| {
        let place = object.pointer_mut(place).and_then(Value::as_object_mut);
        place.and_then(|it| it.remove(key));
    };
    remove(&mut object, "/metadata", "labels");
    if object["kind"] == "Deployment" {
        remove(&mut object, "/spec", "revisionHistoryLimit");
        remove(&mut object, "/spec/template", "metadata");
        let container = "/spec/template/spec/containers/0";
        remove(&mut object, container, "imagePullPolicy");
        let arguments = object.pointer_mut(&format!("{container}/args"));
        let arguments = arguments.and_then(Value::as_array_mut);
        arguments.expect("it has arguments").retain(|it| {
            let is_stated = |stated: &&str| *it == **stated;
            !STATED.iter().any(is_stated) && *it != host
        });
    }
    object
}

/// Objects by kind and name, without those that the chart leaves to others.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let of_others = ["Namespace", "CustomResourceDefinition"];
    let ours = objects
        .into_iter()
        .filter(|it| of_others.iter().all(|kind| it["kind"] != **kind));
    let named = ours.map(|it| {
        let name = format!("{} {}", it["kind"], it["metadata"]["name"]);
        (name, bare(it))
    });
    named.collect()
}

#[test]
fn kustomize_and_the_chart_install_the_same() {
    for (folder, values) in variants() {
        let [one, other] =
            [kustomized(folder), objects(&template_in(MANAGER, &values))].map(by_name);
        let [of_one, of_other] = [&one, &other].map(|it| it.keys().collect::<Vec<_>>());
        assert_eq!(of_one, of_other, "{folder}");
        for (name, object) in &one {
            assert_eq!(*object, other[name], "{folder}: {name}");
        }
    }
}

#[test]
fn every_object_of_kustomize_has_the_labels_of_this_release() {
    let folders = variants().map(|(folder, _)| folder);
    for folder in folders.into_iter().chain(["monitored"]) {
        for object in kustomized(folder) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let labels = &object["metadata"]["labels"];
            let label = |key: &str| labels[format!("app.kubernetes.io/{key}")].clone();
            assert_eq!(label("version"), env!("CARGO_PKG_VERSION"), "{object:#}");
            assert_eq!(label("managed-by"), "kustomize", "{object:#}");
            assert_eq!(label("part-of"), MANAGER, "{object:#}");
            assert_eq!(label("instance"), MANAGER, "{object:#}");
            let is_webhook = name.ends_with("-webhook") || object["webhooks"].is_array();
            let component = if is_webhook { "webhook" } else { "manager" };
            assert_eq!(label("component"), component, "{object:#}");
            if object["kind"] == "Namespace" {
                let standard = &labels["pod-security.kubernetes.io/enforce"];
                assert_eq!(standard, "restricted", "{object:#}");
            }
            if object["kind"] == "Deployment" {
                let pod = &object["spec"]["template"]["metadata"]["labels"];
                assert_eq!(pod, labels, "{object:#}");
                let selector = json!({"app.kubernetes.io/name": name});
                assert_eq!(object["spec"]["selector"]["matchLabels"], selector);
            }
        }
    }
}
