//! The downloads of a profile, as the profile itself lists them: its named template `artefacts`,
//! rendered like a file, in each half that has one. Each line is a kind and a value.

use super::{
    Limits, RenderError, RenderInput, data::ValidInput, render_parts, source::templates_of,
    template::CompiledProfile,
};
use osm_api::profile::{
    File, FileContent, FileContentInline, OperatingSystemProfileSpec, PERMISSIONS_DEFAULT,
    ProfileConfig, TemplateLanguage,
};

/// The name of the template.
pub const DOWNLOADS: &str = "artefacts";

/// Returns the trimmed lines of both halves' lists, or `None` if neither half has a list.
///
/// # Errors
///
/// A list cannot be rendered.
pub fn downloads(
    input: &RenderInput<'_>,
    limits: &Limits,
) -> Result<Option<Vec<String>>, RenderError> {
    let Some(spec) = lists(input.profile.spec()) else {
        return Ok(None);
    };
    let profile = CompiledProfile::compile(&spec)?;
    let input = RenderInput {
        profile: &profile,
        ..*input
    };
    let config = render_parts(&ValidInput::new(input)?, limits)?.config;
    let files = [config.bootstrap_config, config.provisioning_config].map(|half| half.files);
    let list = |file: File| (file.path == path()).then_some(file.content.inline?.data);
    let texts: Vec<String> = files.into_iter().flatten().filter_map(list).collect();
    let lines = texts.iter().flat_map(|text| text.lines()).map(str::trim);
    let lines = lines.filter(|line| !line.is_empty());
    Ok(Some(lines.map(str::to_owned).collect()))
}

/// Returns the profile with only its lists, as files, so that the rules for files apply to them.
fn lists(spec: &OperatingSystemProfileSpec) -> Option<OperatingSystemProfileSpec> {
    let mut lists = spec.clone();
    let include = match spec.language() {
        TemplateLanguage::Jinja => format!("{{% include \"{DOWNLOADS}\" %}}"),
        TemplateLanguage::GoTemplate => format!("{{{{ template \"{DOWNLOADS}\" }}}}"),
    };
    let mut has_list = false;
    for half in [&mut lists.bootstrap_config, &mut lists.provisioning_config] {
        let is_listed = templates_of(half).contains_key(DOWNLOADS);
        has_list |= is_listed;
        keep_list(half, is_listed.then(|| include.clone()));
    }
    has_list.then_some(lists)
}

fn keep_list(half: &mut ProfileConfig, data: Option<String>) {
    for runtime in &mut half.supported_container_runtimes {
        runtime.files.clear();
    }
    half.units.clear();
    half.modules = None;
    half.files = data
        .into_iter()
        .map(|data| File {
            path: path(),
            permissions: PERMISSIONS_DEFAULT,
            content: FileContent {
                inline: Some(FileContentInline {
                    encoding: None,
                    data,
                }),
            },
        })
        .collect();
}

fn path() -> String {
    format!("/{DOWNLOADS}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{World, a_file, a_world};
    use crate::input::ProviderConfig;

    fn list(world: &World) -> Option<Vec<String>> {
        let profile = CompiledProfile::compile(&world.profile).unwrap();
        let provider = ProviderConfig::decode(&world.provider_spec).unwrap();
        downloads(&world.input(&profile, &provider), &world.limits).unwrap()
    }

    fn with_list(text: &str) -> World {
        let mut world = a_world();
        let half = &mut world.profile.provisioning_config;
        half.templates.insert(DOWNLOADS.to_owned(), text.to_owned());
        // The rest of the profile is not used, even if it is broken.
        half.files = vec![a_file("/f", "{{ variables.nothing }}")];
        world
    }

    #[test]
    fn a_profile_with_a_list_says_what_it_fetches_in_either_language() {
        let world = with_list("file https://a.example/{{ KubeVersion }}/kubelet");
        let expected = Some(vec!["file https://a.example/v1.34.1/kubelet".to_owned()]);
        assert_eq!(list(&world), expected);
        // What only a whole profile must do with settings, a list need not.
        let mut world = world;
        let fields = [("cpuManagerPolicy".to_owned(), "static".into())];
        world.settings.kubelet.fields = fields.into_iter().collect();
        assert_eq!(list(&world), expected);
        let mut world = with_list("file https://a.example/{{ .KubeVersion }}/kubelet");
        world.profile.template_language = Some(TemplateLanguage::GoTemplate);
        world.profile.provisioning_config.files.clear();
        assert_eq!(list(&world), expected);
    }

    #[test]
    fn both_halves_are_asked_and_a_profile_without_a_list_says_so() {
        let mut world = with_list("package containerd.io");
        let half = &mut world.profile.bootstrap_config;
        half.templates
            .insert(DOWNLOADS.to_owned(), "package curl\n".to_owned());
        let lines = ["package curl", "package containerd.io"];
        assert_eq!(list(&world), Some(lines.map(str::to_owned).to_vec()));
        assert_eq!(list(&a_world()), None);
    }
}
