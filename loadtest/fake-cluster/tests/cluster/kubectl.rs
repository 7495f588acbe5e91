//! The real `kubectl` works with the TLS front. It is looked for in `KUBEBUILDER_ASSETS` and on the
//! path; without it these tests fail, they are not skipped.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use fake_cluster::{Cluster, User, object};
use tempfile::NamedTempFile;

#[expect(
    clippy::disallowed_methods,
    reason = "only the environment knows where kubectl is"
)]
fn kubectl_path() -> PathBuf {
    let assets = std::env::var("KUBEBUILDER_ASSETS").ok().map(PathBuf::from);
    let path = std::env::var("PATH").unwrap_or_default();
    assets
        .into_iter()
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join("kubectl"))
        .find(|candidate| candidate.is_file())
        .expect("kubectl must be in KUBEBUILDER_ASSETS or on the PATH for this test")
}

#[expect(
    clippy::disallowed_methods,
    reason = "kubectl is what this test is about"
)]
async fn kubectl(kubeconfig: &Path, arguments: &[&str]) -> String {
    let (kubeconfig, path) = (kubeconfig.to_owned(), kubectl_path());
    let arguments: Vec<String> = arguments
        .iter()
        .map(|&argument| argument.to_owned())
        .collect();
    let run = move || {
        std::process::Command::new(path)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--request-timeout=20s", "--cache-dir"])
            .arg(tempfile::tempdir().expect("there is room").path())
            .args(&arguments)
            .output()
            .expect("kubectl starts")
    };
    let output = tokio::task::spawn_blocking(run)
        .await
        .expect("the wait does not fail");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("there is room");
    file.write_all(text.as_bytes()).expect("there is room");
    file
}

const MANIFESTS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: red}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget, shortNames: [gd]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}}}
";

const GADGET: &str = "
apiVersion: example.com/v1
kind: Gadget
metadata: {name: one}
spec: {size: 7}
";

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies_gets_and_deletes() {
    let cluster = Cluster::default();
    let front = cluster.serve_tls().await.unwrap();
    let config = file(&front.kubeconfig(&User::admin()));
    let (manifests, gadget) = (file(MANIFESTS), file(GADGET));
    let path = |file: &NamedTempFile| file.path().to_string_lossy().into_owned();
    for _ in 0..2 {
        kubectl(config.path(), &["apply", "-f", &path(&manifests)]).await;
    }
    kubectl(
        config.path(),
        &["apply", "--server-side", "-f", &path(&gadget)],
    )
    .await;
    let table = kubectl(config.path(), &["get", "gd"]).await;
    assert!(table.contains("SIZE") && table.contains('7'), "{table}");
    let all = kubectl(
        config.path(),
        &["get", "configmaps,secrets,namespaces", "-A"],
    )
    .await;
    assert!(all.contains("settings"), "{all}");
    kubectl(config.path(), &["label", "configmap", "settings", "a=b"]).await;
    let yaml = kubectl(
        config.path(),
        &["get", "configmap", "settings", "-o", "yaml"],
    )
    .await;
    assert!(
        yaml.contains("color: red") && yaml.contains("a: b"),
        "{yaml}"
    );
    let team = file("apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n");
    kubectl(config.path(), &["apply", "-f", &path(&team)]).await;
    kubectl(config.path(), &["delete", "namespace", "team"]).await;
    kubectl(config.path(), &["delete", "-f", &path(&manifests)]).await;
    assert!(
        cluster
            .get(object("configmaps", "default", "settings"))
            .is_none()
    );
}
