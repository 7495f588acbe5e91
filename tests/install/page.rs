//! The commands of a page, run as they are written.

use super::*;

/// Runs the commands of all `sh` blocks that a page of `docs` has below a heading, as an
/// administrator of a cluster, and returns what they printed.
pub(super) async fn run(cluster: &ControlPlane, page: &str, heading: &str) -> String {
    let commands = blocks(page, heading).concat();
    run_commands(cluster, &commands).await
}

/// Returns the `sh` blocks that a page of `docs` has below a heading.
pub(super) fn blocks(page: &str, heading: &str) -> Vec<String> {
    let page = std::fs::read_to_string(manifests("../docs").join(page)).expect("it is there");
    let (_, section) = page.split_once(heading).expect("the page has the heading");
    let section = section.split("\n##").next().unwrap_or_default();
    let blocks = section.split("```").skip(1).step_by(2);
    let blocks: Vec<_> = blocks
        .filter_map(|block| block.strip_prefix("sh\n"))
        .map(str::to_owned)
        .collect();
    assert!(!blocks.is_empty(), "{heading} has commands");
    blocks
}

/// Runs commands as an administrator of a cluster, with the programs that the pages use, in a
/// folder of the cluster that has the manifests.
pub(super) async fn run_commands(cluster: &ControlPlane, commands: &str) -> String {
    let folder = cluster.folder();
    let linked = std::os::unix::fs::symlink(manifests(""), folder.join("manifests"));
    let is_there = |it: &std::io::Error| it.kind() == std::io::ErrorKind::AlreadyExists;
    assert!(
        linked.is_ok() || linked.as_ref().is_err_and(is_there),
        "{linked:?}"
    );
    let kubeconfig = folder.join("administrator.kubeconfig");
    std::fs::write(&kubeconfig, cluster.admin_kubeconfig()).expect("the folder is ours");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kubectl = cluster.kubectl();
    let of_kubectl = kubectl.parent().expect("it is in a folder");
    let commands = format!(
        "PATH={}:{}:{}:$PATH\n{commands}",
        osm(cluster).display(),
        of_kubectl.display(),
        root.join("target/consumers/go").display(),
    );
    let output = Command::new("sh")
        .args(["-euc", &commands])
        .env("HOME", cluster.folder())
        .env("KUBECONFIG", kubeconfig)
        .current_dir(folder)
        .output()
        .await
        .expect("there is a shell");
    let errors = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{commands}: {printed}{errors}");
    printed
}

/// Returns a folder with `osm`, which here accepts worker clusters on this machine.
fn osm(cluster: &ControlPlane) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = cluster.folder().join("bin");
    std::fs::create_dir_all(&folder).expect("the folder is ours");
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in\n\
         adopt | plan | tenant) exec {0} \"$@\" --allow-loopback-servers ;;\n\
         esac\nexec {0} \"$@\"\n",
        env!("CARGO_BIN_EXE_osm")
    );
    let program = folder.join("osm");
    std::fs::write(&program, script).expect("the folder is ours");
    let runs = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, runs).expect("the file is ours");
    folder
}
