//! Merges overlays with their bases. An overlay is a profile that extends another, and contains
//! only what differs.
//!
//! Lists with names are merged by name, so that an overlay replaces one file or one template and
//! keeps the rest. The order of the base is kept, and new entries follow. Templates are not parsed
//! here: the merged profile is compiled like any other.

use std::{collections::BTreeMap, sync::Arc};

use super::thin::{content_object, is_thin, parse_content_name};
use osm_api::profile::{
    CloudInitModules, ContainerRuntime, ContainerRuntimeSpec, DeclaredEffect, DropIn, File,
    OperatingSystemProfileSpec, ProfileConfig, ProvisioningUtility, Unit,
};

/// The maximum number of overlays on one base: a site's, a team's and a purpose's, and one to
/// spare. A person who reads a profile must be able to remember the whole chain.
pub const OVERLAYS_MAX: usize = 4;

/// The reason why an overlay cannot be merged with its base.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverlayError {
    /// The base does not exist.
    #[error(
        "OperatingSystemProfile \"{profile}\", spec.extends: there is no OperatingSystemProfile \
         \"{base}\" in its namespace; create it, or name another"
    )]
    BaseMissing {
        /// The overlay.
        profile: String,
        /// The base.
        base: String,
    },
    /// The base is the content of a default profile, which is not known here.
    #[error(
        "OperatingSystemProfile \"{profile}\", spec.extends: the content {base} is not known here: \
         there is no OperatingSystemProfile \"{}\" in the manager's namespace",
        content_object(base)
    )]
    ContentUnknown {
        /// The thin profile.
        profile: String,
        /// The name of the content.
        base: String,
    },
    /// A thin profile was edited.
    #[error(
        "OperatingSystemProfile \"{profile}\", spec.extends: {base} is the content of a default \
         profile, which cannot be changed in part; create a profile of another name that extends \
         {0}, or write what `osm profiles show {0}` prints",
        parse_content_name(base).map_or("", |(name, _)| name)
    )]
    ContentEdited {
        /// The profile.
        profile: String,
        /// The name of the content.
        base: String,
    },
    /// A profile extends itself, directly or through others.
    #[error(
        "OperatingSystemProfile \"{profile}\", spec.extends: \"{base}\" extends \"{profile}\" in \
         turn; take spec.extends out of one of them"
    )]
    Cycle {
        /// The overlay that closes the cycle.
        profile: String,
        /// The profile that it extends.
        base: String,
    },
    /// Too many overlays extend one another.
    #[error(
        "OperatingSystemProfile \"{profile}\", spec.extends: more than {OVERLAYS_MAX} overlays lie \
         upon each other; extend a profile that is nearer to the base"
    )]
    TooDeep {
        /// The topmost overlay.
        profile: String,
    },
    /// The two are for different operating systems.
    #[error(
        "OperatingSystemProfile \"{profile}\", spec.osName: it is {found}, and that of \"{base}\", \
         which it extends, is {expected}; say {expected}, or extend another"
    )]
    OperatingSystem {
        /// The overlay.
        profile: String,
        /// The base.
        base: String,
        /// The overlay's operating system.
        found: String,
        /// The base's operating system.
        expected: String,
    },
    /// The templates of the two are written in different languages.
    #[error(
        "OperatingSystemProfile \"{profile}\", spec.templateLanguage: it is {found}, and that of \
         \"{base}\", which it extends, is {expected}; leave it out, and +jinja in spec.version, or \
         extend another"
    )]
    Language {
        /// The overlay.
        profile: String,
        /// The base.
        base: String,
        /// The overlay's language.
        found: &'static str,
        /// The base's language.
        expected: &'static str,
    },
}

impl OverlayError {
    /// Returns the error's category in one word, for metrics.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::BaseMissing { .. } => "overlay-base-missing",
            Self::ContentUnknown { .. } => "overlay-content-unknown",
            Self::ContentEdited { .. } => "overlay-content-edited",
            Self::Cycle { .. } => "overlay-cycle",
            Self::TooDeep { .. } => "overlay-depth",
            Self::OperatingSystem { .. } => "overlay-operating-system",
            Self::Language { .. } => "overlay-language",
        }
    }
}

/// Merges a profile with the profiles that it extends. A profile that extends none is unchanged.
///
/// `find` returns another profile of its namespace by name. The result extends no profile, and
/// specifies the language of its templates.
///
/// # Errors
///
/// A base is missing, profiles extend each other in a cycle or too deeply, or do not fit together.
pub fn resolve(
    name: &str,
    spec: &OperatingSystemProfileSpec,
    find: impl Fn(&str) -> Option<Arc<OperatingSystemProfileSpec>>,
) -> Result<OperatingSystemProfileSpec, OverlayError> {
    let overlays = chain(name, spec, find)?;
    let mut overlays = overlays.into_iter().rev();
    let Some((mut base, lowest)) = overlays.next() else {
        return Ok(spec.clone());
    };
    let mut merged = OperatingSystemProfileSpec::clone(&lowest);
    for (name, overlay) in overlays {
        merged = lay(Named(&name, &overlay), Named(&base, &merged))?;
        base = name;
    }
    if spec.extends.is_some() {
        merged = lay(Named(name, spec), Named(&base, &merged))?;
    }
    Ok(merged)
}

/// Returns everything that a profile extends, from the nearest to the base.
fn chain(
    name: &str,
    spec: &OperatingSystemProfileSpec,
    find: impl Fn(&str) -> Option<Arc<OperatingSystemProfileSpec>>,
) -> Result<Vec<(String, Arc<OperatingSystemProfileSpec>)>, OverlayError> {
    let mut below: Vec<(String, Arc<OperatingSystemProfileSpec>)> = Vec::new();
    let mut next = spec.extends.clone();
    while let Some(base) = next.take() {
        let profile = below.last().map_or(name, |(name, _)| name).to_owned();
        if base == name || below.iter().any(|(known, _)| *known == base) {
            return Err(OverlayError::Cycle { profile, base });
        }
        if below.len() == OVERLAYS_MAX {
            let profile = name.to_owned();
            return Err(OverlayError::TooDeep { profile });
        }
        let is_content = parse_content_name(&base).is_some();
        if is_content && !is_thin(below.last().map_or(spec, |(_, lowest)| lowest)) {
            return Err(OverlayError::ContentEdited { profile, base });
        }
        let Some(found) = find(&base) else {
            return Err(if is_content {
                OverlayError::ContentUnknown { profile, base }
            } else {
                OverlayError::BaseMissing { profile, base }
            });
        };
        next.clone_from(&found.extends);
        below.push((base, found));
    }
    Ok(below)
}

/// A profile and its name.
#[derive(Clone, Copy)]
struct Named<'a>(&'a str, &'a OperatingSystemProfileSpec);

/// Merges an overlay with its base.
fn lay(
    Named(profile, overlay): Named<'_>,
    Named(base_name, base): Named<'_>,
) -> Result<OperatingSystemProfileSpec, OverlayError> {
    if overlay.os_name != base.os_name {
        return Err(OverlayError::OperatingSystem {
            profile: profile.to_owned(),
            base: base_name.to_owned(),
            found: overlay.os_name.as_str().to_owned(),
            expected: base.os_name.as_str().to_owned(),
        });
    }
    // An overlay that specifies no language has the language of its base.
    let expected = base.language();
    let names_language = overlay.template_language.is_some() || overlay.is_jinja_by_version();
    if names_language && overlay.language() != expected {
        return Err(OverlayError::Language {
            profile: profile.to_owned(),
            base: base_name.to_owned(),
            found: overlay.language().as_str(),
            expected: expected.as_str(),
        });
    }
    let providers = match overlay.supported_cloud_providers.as_slice() {
        [] => base.supported_cloud_providers.as_slice(),
        named => named,
    };
    // The API server sets `cloud-init` if the field is absent.
    let utility = overlay
        .provisioning_utility
        .filter(|utility| *utility != ProvisioningUtility::CloudInit);
    Ok(OperatingSystemProfileSpec {
        extends: None,
        os_name: overlay.os_name.clone(),
        os_version: overlay.os_version.clone(),
        version: overlay.version.clone(),
        template_language: Some(expected),
        supported_cloud_providers: providers.to_vec(),
        bootstrap_config: lay_half(&overlay.bootstrap_config, &base.bootstrap_config),
        provisioning_config: lay_half(&overlay.provisioning_config, &base.provisioning_config),
        provisioning_utility: utility.or(base.provisioning_utility),
        ignition_version: overlay.ignition_version.or(base.ignition_version),
        effects: lay_effects(&overlay.effects, &base.effects),
    })
}

fn lay_effects(overlay: &[DeclaredEffect], base: &[DeclaredEffect]) -> Vec<DeclaredEffect> {
    let is_kept = |it: &&DeclaredEffect| overlay.iter().all(|own| own.path != it.path);
    let kept = base.iter().filter(is_kept);
    kept.chain(overlay).cloned().collect()
}

fn lay_half(overlay: &ProfileConfig, base: &ProfileConfig) -> ProfileConfig {
    let mut merged = base.clone();
    for file in &overlay.files {
        if !replace_file(&mut merged, file) {
            merged.files.push(file.clone());
        }
    }
    merged.templates.extend(overlay.templates.clone());
    for runtime in &overlay.supported_container_runtimes {
        lay_runtime(&mut merged, runtime);
    }
    for unit in &overlay.units {
        match merged.units.iter_mut().find(|it| it.name == unit.name) {
            Some(known) => lay_unit(known, unit),
            None => merged.units.push(unit.clone()),
        }
    }
    if let Some(modules) = &overlay.modules {
        lay_modules(merged.modules.get_or_insert_default(), modules);
    }
    merged
}

/// Replaces the file with the same path, in the half itself or with containerd. Returns false if
/// there is none. A machine can have only one file at each path.
fn replace_file(half: &mut ProfileConfig, file: &File) -> bool {
    let of_containerd = half
        .supported_container_runtimes
        .iter_mut()
        .filter(|runtime| runtime.name == ContainerRuntime::Containerd)
        .flat_map(|runtime| &mut runtime.files);
    let mut files = half.files.iter_mut().chain(of_containerd);
    let known = files.find(|known| known.path == file.path);
    known.map(|known| known.clone_from(file)).is_some()
}

fn lay_runtime(half: &mut ProfileConfig, overlay: &ContainerRuntimeSpec) {
    let runtimes = &mut half.supported_container_runtimes;
    let known = runtimes.iter().position(|it| it.name == overlay.name);
    let index = known.unwrap_or_else(|| {
        runtimes.push(ContainerRuntimeSpec {
            name: overlay.name,
            files: Vec::new(),
            templates: BTreeMap::new(),
        });
        runtimes.len() - 1
    });
    let is_used = overlay.name == ContainerRuntime::Containerd;
    for file in &overlay.files {
        if is_used && replace_file(half, file) {
            continue;
        }
        if let Some(runtime) = half.supported_container_runtimes.get_mut(index) {
            let known = runtime.files.iter_mut().find(|it| it.path == file.path);
            match known {
                Some(known) => known.clone_from(file),
                None => runtime.files.push(file.clone()),
            }
        }
    }
    if let Some(runtime) = half.supported_container_runtimes.get_mut(index) {
        runtime.templates.extend(overlay.templates.clone());
    }
}

fn lay_unit(base: &mut Unit, overlay: &Unit) {
    base.enable = overlay.enable.or(base.enable);
    base.mask = overlay.mask.or(base.mask);
    if overlay.content.is_some() {
        base.content.clone_from(&overlay.content);
    }
    for drop_in in &overlay.drop_ins {
        let mut known = base.drop_ins.iter_mut();
        match known.find(|it| it.name == drop_in.name) {
            Some(known) => known.clone_from(drop_in),
            None => base.drop_ins.push(DropIn::clone(drop_in)),
        }
    }
}

fn lay_modules(base: &mut CloudInitModules, overlay: &CloudInitModules) {
    base.bootcmd.extend(overlay.bootcmd.clone());
    base.runcmd.extend(overlay.runcmd.clone());
    base.rh_subscription.extend(overlay.rh_subscription.clone());
    for (name, repository) in &overlay.yum_repos {
        let known = base.yum_repos.entry(name.clone()).or_default();
        known.extend(repository.clone());
    }
    if overlay.yum_repo_dir.is_some() {
        base.yum_repo_dir.clone_from(&overlay.yum_repo_dir);
    }
}

#[cfg(test)]
mod tests;
