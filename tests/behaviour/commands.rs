//! Commands of the real binary against the clusters of a scenario, as an administrator.

use std::process::Stdio;

use tempfile::NamedTempFile;
use tokio::process::Command;

use crate::server::ok;
use crate::stage::{Stage, Tenant};

/// What a command said.
#[derive(Debug)]
pub struct Said {
    /// Its exit code.
    pub code: Option<i32>,
    /// Its result.
    pub out: String,
    /// What it said beside.
    pub err: String,
}

impl Said {
    /// Everything that it said.
    pub fn all(&self) -> String {
        format!("{}{}", self.out, self.err)
    }
}

/// An administrator with a kubeconfig for each cluster.
pub struct Admin {
    management: NamedTempFile,
    worker: NamedTempFile,
}

/// A kubeconfig in a file.
pub fn a_file(kubeconfig: &str) -> NamedTempFile {
    let file = NamedTempFile::new().expect("there is room for a file");
    std::fs::write(file.path(), kubeconfig).expect("the file is ours");
    file
}

/// The path of a file.
pub fn path(file: &NamedTempFile) -> &str {
    file.path().to_str().expect("our path is text")
}

impl Admin {
    /// The tenant's administrator.
    pub fn of(tenant: &Tenant) -> Self {
        Self {
            management: a_file(&tenant.management_admin()),
            worker: a_file(&tenant.worker.admin_in("default")),
        }
    }

    /// Runs a command on the management cluster.
    pub async fn osm(&self, words: &[&str]) -> Said {
        let management = ["--kubeconfig", path(&self.management)];
        run(&[words, &management].concat()).await
    }

    /// Runs a command about a tenant of a stage, on the management cluster. It learns from the
    /// stage's manager with which settings that runs.
    pub async fn osm_about(&self, (stage, tenant): (&Stage, &Tenant), words: &[&str]) -> Said {
        let tenant = ["--tenant", &tenant.namespace, "--fleet", stage.name()];
        self.osm(&[words, &tenant].concat()).await
    }

    /// Runs a command on both clusters.
    pub async fn osm_in_both(&self, words: &[&str]) -> Said {
        let worker = ["--worker-kubeconfig", path(&self.worker)];
        self.osm(&[words, &worker].concat()).await
    }
}

/// What bash offers for a line, whose last word is not finished.
pub async fn completed(kubeconfig: &NamedTempFile, line: &[&str]) -> Vec<String> {
    let osm = std::path::Path::new(env!("CARGO_BIN_EXE_osm"));
    let folder = osm.parent().and_then(|it| it.to_str());
    let words: Vec<String> = line.iter().map(|word| format!("'{word}'")).collect();
    let script = format!(
        "source <(osm completions bash)\n\
         COMP_WORDS=({}) COMP_CWORD={} COMP_TYPE=9\n\
         _clap_complete_osm osm '{}'\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        line.len() - 1,
        line.last().copied().unwrap_or_default()
    );
    let output = Command::new("bash")
        .args(["-c", &script])
        .env(
            "PATH",
            format!("{}:/usr/bin:/bin", folder.unwrap_or_default()),
        )
        .env("KUBECONFIG", kubeconfig.path())
        .output();
    let output = ok(output.await, "bash is there");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::to_owned).collect()
}

/// Runs a command.
pub async fn run(words: &[&str]) -> Said {
    let output = Command::new(env!("CARGO_BIN_EXE_osm"))
        .args(words)
        .env_clear()
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = ok(output.await, "the binary was built with this test");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Said {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}
