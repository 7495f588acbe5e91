//! The parts of a profile that are rendered: the files and named templates of each half.

use std::collections::BTreeMap;

use super::error::{Half, RenderError};
use osm_api::profile::{
    ContainerRuntime, File, FileContentInline, OperatingSystemProfileSpec, ProfileConfig,
};

/// Returns this half of a profile.
pub(super) fn half_of(profile: &OperatingSystemProfileSpec, half: Half) -> &ProfileConfig {
    match half {
        Half::Bootstrap => &profile.bootstrap_config,
        Half::Provisioning => &profile.provisioning_config,
    }
}

/// Returns the files of a half in the order in which they are written: its own, then containerd's.
pub(super) fn files_of(config: &ProfileConfig) -> impl Iterator<Item = &File> {
    let runtime = config
        .supported_container_runtimes
        .iter()
        .find(|runtime| runtime.name == ContainerRuntime::Containerd);
    let runtime_files = runtime.map_or(&[][..], |runtime| runtime.files.as_slice());
    config.files.iter().chain(runtime_files)
}

/// Returns the named templates of a half: containerd's, overlaid by its own.
pub(super) fn templates_of(config: &ProfileConfig) -> BTreeMap<&str, &str> {
    let runtime = config
        .supported_container_runtimes
        .iter()
        .find(|runtime| runtime.name == ContainerRuntime::Containerd);
    runtime
        .into_iter()
        .flat_map(|runtime| &runtime.templates)
        .chain(&config.templates)
        .map(|(name, source)| (name.as_str(), source.as_str()))
        .collect()
}

/// Returns the inline part of a file's content.
pub(super) fn inline_of(half: Half, file: &File) -> Result<&FileContentInline, RenderError> {
    file.content
        .inline
        .as_ref()
        .ok_or_else(|| RenderError::MissingInline {
            half,
            path: file.path.clone(),
        })
}
