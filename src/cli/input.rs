//! Reads the input of commands: profiles, machine deployments, a WorkerCluster. Errors name the
//! file, the line and the field. Files that may contain secrets are never quoted.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use clap::Args;
use kube::{CustomResourceExt as _, api::ObjectMeta};
use serde_json::Value as Json;

use crate::api::{
    machine_deployment::MachineDeployment,
    profile::{OperatingSystemProfile, OperatingSystemProfileSpec},
    worker_cluster::{WorkerCluster, WorkerClusterSpec},
};
use crate::render::{
    default_profiles::{self, DefaultProfile, default_profiles},
    overlay::{OverlayError, resolve},
    thin::content_object,
};
use crate::rules::{
    document::Document,
    lint::{is_profile, lint, lint_shape},
    rule::Severity,
    settings,
    shape::{schema_of, similar},
};
use crate::settings::tenant_defaults;
use crate::tenant::settings::{SettingsError, TenantSettings};

/// The file name that means stdin.
pub(super) const STDIN: &str = "-";

/// The sources of a tenant's settings.
#[derive(Args, Clone, Debug)]
pub(super) struct SettingsFlags {
    /// The tenant's WorkerCluster, whose spec contains its settings. Without it, the default
    /// settings apply.
    #[arg(long, value_name = "FILE")]
    worker_cluster: Option<PathBuf>,

    /// The settings of tenants that set none, as for `osm run`.
    #[arg(long, value_name = "FILE")]
    tenant_defaults: Option<PathBuf>,
}

impl SettingsFlags {
    /// Returns the tenant's settings, or the error in its spec.
    pub(super) fn load(&self) -> anyhow::Result<Result<TenantSettings, SettingsError>> {
        let defaults = tenant_defaults(self.tenant_defaults.as_deref())?;
        let Some(path) = &self.worker_cluster else {
            return Ok(Ok(defaults));
        };
        let documents = documents_without_quotes(path)?;
        let document = only(path, &documents, "WorkerCluster")?;
        Ok(defaults.with(&worker_cluster_spec(path, document)?))
    }
}

/// Returns the spec of a WorkerCluster in a file. What the API server would refuse is refused.
pub(super) fn worker_cluster_spec(
    path: &Path,
    document: &Document,
) -> anyhow::Result<WorkerClusterSpec> {
    refuse_shape(path, document, &schema_of(WorkerCluster::crd()))?;
    let cluster: WorkerCluster = serde_json::from_value(document.value.clone())
        .map_err(|_| anyhow::anyhow!("{}: not a WorkerCluster", path.display()))?;
    if let Some(refused) = settings::refused(&cluster.spec) {
        bail!("{}: {refused}", path.display());
    }
    Ok(cluster.spec)
}

/// The bases of overlays, besides the default profiles.
#[derive(Args, Clone, Debug)]
pub(super) struct BaseFlags {
    /// A base of other profiles, besides the default profiles; may be repeated.
    #[arg(long = "base", value_name = "PROFILE")]
    bases: Vec<String>,
}

/// The profiles that others may extend, by name.
pub(super) struct Bases(BTreeMap<String, Arc<OperatingSystemProfileSpec>>);

impl BaseFlags {
    /// Loads the default profiles and the given ones. A given profile replaces a default of its
    /// name.
    pub(super) fn load(&self) -> anyhow::Result<Bases> {
        let defaults = default_profiles().iter().map(|profile| profile.name);
        let given = self.bases.iter().map(String::as_str);
        let profiles = defaults.chain(given).map(|argument| {
            let profile = profile(argument)?;
            Ok((profile.name, Arc::new(profile.spec)))
        });
        Ok(Bases(profiles.collect::<anyhow::Result<_>>()?))
    }
}

impl Bases {
    /// Returns a profile by its name, or the content of a default profile that has it.
    pub(super) fn find(&self, name: &str) -> Option<Arc<OperatingSystemProfileSpec>> {
        let given = self
            .0
            .get(name)
            .or_else(|| self.0.get(&content_object(name)));
        given.cloned().or_else(|| {
            default_profiles::default_profile(name).map(|content| Arc::new(content.spec))
        })
    }

    /// Merges a profile with its bases.
    pub(super) fn resolve(&self, profile: &NamedProfile) -> Result<NamedProfile, OverlayError> {
        let find = |name: &str| self.find(name);
        Ok(NamedProfile {
            name: profile.name.clone(),
            spec: resolve(&profile.name, &profile.spec, find)?,
        })
    }
}

/// A profile with its name.
pub(super) struct NamedProfile {
    pub(super) name: String,
    pub(super) spec: OperatingSystemProfileSpec,
}

/// Reads a file, or stdin for `-`.
pub(super) fn read(path: &Path) -> anyhow::Result<String> {
    if path != Path::new(STDIN) {
        return fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    }
    let mut text = String::new();
    io::stdin()
        .read_to_string(&mut text)
        .context("cannot read stdin")?;
    Ok(text)
}

/// Loads a default profile by its name, or a profile from a file.
pub(super) fn profile(argument: &str) -> anyhow::Result<NamedProfile> {
    parse_profile(argument, &profile_text(argument)?)
}

/// Returns the text of a default profile by its name, or of a file.
pub(super) fn profile_text(argument: &str) -> anyhow::Result<String> {
    match default_profile(argument) {
        Ok(profile) => Ok(profile.yaml.to_owned()),
        Err(unknown) => read(Path::new(argument))
            .with_context(|| format!("`{argument}` is no file, and {unknown}")),
    }
}

/// Returns a default profile by its name. The error suggests one that is nearly called so.
pub(super) fn default_profile(name: &str) -> anyhow::Result<&'static DefaultProfile> {
    let mut all = default_profiles().iter();
    if let Some(found) = all.find(|profile| profile.name == name) {
        return Ok(found);
    }
    let names = || default_profiles().iter().map(|profile| profile.name);
    let among = match similar(name, names()) {
        Some(known) => format!("; did you mean {known}?"),
        None => format!(" ({})", names().collect::<Vec<_>>().join(", ")),
    };
    bail!("no default profile is called {name}{among}")
}

fn parse_profile(file: &str, text: &str) -> anyhow::Result<NamedProfile> {
    let (_, profile) = profile_object(file, text)?;
    Ok(NamedProfile {
        name: profile.metadata.name.unwrap_or_else(|| file.to_owned()),
        spec: profile.spec,
    })
}

/// Returns the only profile of a text, as an object and decoded.
pub(super) fn profile_object(
    file: &str,
    text: &str,
) -> anyhow::Result<(Json, OperatingSystemProfile)> {
    let found = Document::read_all(text).unwrap_or_default().into_iter();
    let mut profiles = found.filter(is_profile).map(|document| document.value);
    let first = profiles.next();
    if profiles.next().is_some() {
        bail!("{file}: it holds more than one OperatingSystemProfile; split it");
    }
    if let Some(object) = first
        && let Ok(profile) = serde_json::from_value(object.clone())
    {
        return Ok((object, profile));
    }
    let mut findings = lint(text, &|_| None).into_iter();
    let error = findings.find(|finding| finding.rule.severity() == Severity::Error);
    match error {
        Some(first) => bail!("{file}:{}: {}; {}", first.place, first.message, first.fix),
        None => bail!("{file}: not an OperatingSystemProfile"),
    }
}

/// Returns the machine deployments of a file, in their order.
pub(super) fn machine_deployments(path: &Path) -> anyhow::Result<Vec<MachineDeployment>> {
    let documents = documents_without_quotes(path)?;
    let found = documents
        .iter()
        .filter(|document| is_kind(document, "MachineDeployment"));
    let found: Vec<_> = found.map(|document| decode(&document.value)).collect();
    if found.is_empty() {
        bail!(
            "{}: no document has `kind: MachineDeployment`",
            path.display()
        );
    }
    Ok(found)
}

/// Decodes a machine deployment as the controller does: one that cannot be decoded has only its
/// metadata.
fn decode(value: &Json) -> MachineDeployment {
    let decoded = serde_json::from_value(value.clone());
    let metadata = || value.get("metadata").cloned().unwrap_or_default();
    decoded.unwrap_or_else(|_| {
        let metadata: ObjectMeta = serde_json::from_value(metadata()).unwrap_or_default();
        metadata.into()
    })
}

/// Returns the documents of a file that may contain secrets. Errors do not quote it.
pub(super) fn documents_without_quotes(path: &Path) -> anyhow::Result<Vec<Document>> {
    Document::read_all(&read(path)?).map_err(|malformed| {
        let file = path.display();
        anyhow::anyhow!(
            "{file}:{}: it is no YAML, or has a key twice",
            malformed.place
        )
    })
}

/// Refuses a document that does not match its schema, with its first error.
pub(super) fn refuse_shape(path: &Path, document: &Document, schema: &Json) -> anyhow::Result<()> {
    match lint_shape(document, schema).into_iter().next() {
        Some(first) => {
            let file = path.display();
            bail!("{file}:{}: {}; {}", first.place, first.message, first.fix)
        }
        None => Ok(()),
    }
}

fn only<'a>(path: &Path, documents: &'a [Document], kind: &str) -> anyhow::Result<&'a Document> {
    let found: Vec<_> = documents
        .iter()
        .filter(|document| is_kind(document, kind))
        .collect();
    match found.as_slice() {
        [document] => Ok(document),
        _ => bail!(
            "{}: it must hold one document with `kind: {kind}`, and holds {}",
            path.display(),
            found.len()
        ),
    }
}

fn is_kind(document: &Document, kind: &str) -> bool {
    document.kind() == Some(kind)
}
