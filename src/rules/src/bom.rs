//! Lists what a profile makes a machine fetch, so that a site can mirror it: what the profile lists
//! itself, else what can be read out of its rendered files.

use std::{collections::BTreeSet, fmt};

use regex::Regex;

use super::{
    profile::usable_providers,
    sample::{API_SERVER, Sample},
};
use osm_api::config::OperatingSystemConfigSpec;
use osm_render::{
    Half, Limits, RenderError, downloads::downloads, render, template::CompiledProfile,
};
use osm_tenant::settings::TenantSettings;

/// The kinds of a profile's own list.
const KINDS: [&str; 5] = ["file", "checksum", "apt", "yum", "package"];

/// The folder from which containerd reads which mirror serves which registry.
const HOSTS: &str = "/etc/containerd/certs.d/";

/// One thing that machines fetch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Download {
    /// Its kind: a word of a profile's list, `url` where it was found by reading, `image`, or
    /// `mirror`.
    pub kind: String,
    /// Its URL, or its name.
    pub value: String,
    /// The file and line that it was read from.
    pub place: Option<String>,
}

/// The downloads of machines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    /// Everything, each once.
    pub downloads: BTreeSet<Download>,
    /// Set if the list comes from reading, and may lack what a script puts together.
    pub is_by_reading: bool,
}

/// Why there is no bill.
#[derive(Debug, thiserror::Error)]
pub enum NoBill {
    /// The profile cannot be rendered.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The profile's list cannot be read.
    #[error("template `artefacts`: `{line}` is not a kind ({kinds}) and a value", kinds = KINDS.join(", "))]
    Line {
        /// The line.
        line: String,
    },
}

impl fmt::Display for Download {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind, self.value)?;
        match &self.place {
            Some(place) => write!(formatter, "  # {place}"),
            None => Ok(()),
        }
    }
}

/// Returns what a profile makes machines fetch, on all cloud providers that it supports.
///
/// # Errors
///
/// The profile cannot be rendered for one of its cloud providers.
pub fn bill(
    profile: &CompiledProfile,
    settings: &TenantSettings,
    kubelet_version: &str,
) -> Result<Bill, NoBill> {
    let mut bill = Bill::default();
    for provider in usable_providers(profile.spec()) {
        let sample = Sample::new(profile.spec(), provider, kubelet_version)?;
        let input = sample.input(profile, settings);
        if let Some(list) = downloads(&input, &Limits::default())? {
            bill.downloads.extend(read_list(&list)?);
        } else {
            let rendered = render(&input, &Limits::default())?;
            bill.downloads.extend(read_files(&rendered.stored_config));
            bill.is_by_reading = true;
        }
    }
    Ok(bill)
}

/// Returns what the settings of a tenant add, whatever the profile.
pub fn images(settings: &TenantSettings) -> BTreeSet<Download> {
    let download = |kind: &str, value: String| Download {
        kind: kind.to_owned(),
        value,
        place: None,
    };
    let pause = Some(&settings.pause_image).filter(|image| !image.is_empty());
    let mirrors = settings
        .registry_mirrors
        .iter()
        .flat_map(|(registry, mirrors)| {
            let mirrors = mirrors.iter();
            mirrors.map(move |mirror| download("mirror", format!("{registry} {mirror}")))
        });
    let pause = pause.map(|image| download("image", image.clone()));
    pause.into_iter().chain(mirrors).collect()
}

fn read_list(lines: &[String]) -> Result<Vec<Download>, NoBill> {
    let download = |line: &String| match line.split_once(' ') {
        Some((kind, value)) if KINDS.contains(&kind) => Ok(Download {
            kind: kind.to_owned(),
            value: value.trim().to_owned(),
            place: None,
        }),
        _ => Err(NoBill::Line { line: line.clone() }),
    };
    lines.iter().map(download).collect()
}

/// The machine itself, and the API server, need no mirror.
fn is_own(url: &str) -> bool {
    let own = [
        API_SERVER,
        "http://127.0.0.1",
        "https://127.0.0.1",
        "http://localhost",
    ];
    own.iter().any(|own| url.starts_with(own))
}

/// The URLs of rendered files, without those of comments and of the documentation of units.
/// Variables of a shell stay as they are.
fn read_files(config: &OperatingSystemConfigSpec) -> Vec<Download> {
    let url = Regex::new(r#"https?://(?:\$\{[^}]*\}|[^\s"'`<>|()\[\]{};,\\])+"#);
    let url = url.expect("the expression is a constant");
    let halves = [
        (Half::Bootstrap, &config.bootstrap_config.files),
        (Half::Provisioning, &config.provisioning_config.files),
    ];
    let mut found = Vec::new();
    for (half, file) in halves
        .iter()
        .flat_map(|(half, files)| files.iter().map(move |file| (half, file)))
    {
        // Made from the settings, which `images` lists.
        if file.path.starts_with(HOSTS) {
            continue;
        }
        let data = file
            .content
            .inline
            .as_ref()
            .map_or("", |inline| &inline.data);
        let lines = data.lines().enumerate();
        let is_for_people =
            |line: &str| line.starts_with('#') || line.starts_with("Documentation=");
        for (index, line) in lines.filter(|(_, line)| !is_for_people(line.trim_start())) {
            let urls = url
                .find_iter(line)
                .map(|found| found.as_str().trim_end_matches(['.', ':']));
            found.extend(urls.filter(|url| !is_own(url)).map(|url| Download {
                kind: "url".to_owned(),
                value: url.to_owned(),
                place: Some(format!("{half} {}:{}", file.path, index + 1)),
            }));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(half: &str) -> CompiledProfile {
        let text = format!(
            "osName: ubuntu\nosVersion: '24.04'\nversion: v1.0.0\nbootstrapConfig: {{}}\n\
             supportedCloudProviders: [{{name: aws}}, {{name: azure}}]\nprovisioningConfig:\n{half}"
        );
        let spec = serde_saphyr::from_str(&text).expect("a profile");
        CompiledProfile::compile(&spec).expect("the profile compiles")
    }

    fn downloads_of(profile: &CompiledProfile) -> (Vec<String>, bool) {
        let bill = bill(profile, &TenantSettings::default(), "1.34.1").expect("a bill");
        let lines = bill.downloads.iter().map(ToString::to_string);
        (lines.collect(), bill.is_by_reading)
    }

    #[test]
    fn a_list_is_sorted_and_each_line_stands_once_for_all_providers() {
        let profile = profile(
            "  templates:\n    artefacts: |\n      package socat\n      \
             file https://a.example/{{ .KubeVersion }}/kubelet\n\n      apt {{ .CloudProviderName }}\n",
        );
        let expected = [
            "apt aws",
            "apt azure",
            "file https://a.example/v1.34.1/kubelet",
            "package socat",
        ];
        assert_eq!(
            downloads_of(&profile),
            (expected.map(str::to_owned).to_vec(), false)
        );
    }

    #[test]
    fn a_line_of_no_known_kind_is_refused() {
        let profile = profile("  templates: {artefacts: 'image pause'}\n");
        let refused = bill(&profile, &TenantSettings::default(), "1.34.1").unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("`image pause` is not a kind (file,"),
            "{refused}"
        );
    }

    #[test]
    fn without_a_list_urls_are_read_with_their_place() {
        let profile = profile(
            "  files:\n  - path: /opt/bin/setup\n    content:\n      inline:\n        data: |\n          \
             # see https://docs.example/\n          \
             Documentation=https://docs.example/ man:x(1)\n          \
             curl -o x \"https://a.example/${ARCH}/{{ .KubeVersion }}.tgz\" {{ .ServerURL }}/api\n",
        );
        let expected =
            "url https://a.example/${ARCH}/v1.34.1.tgz  # provisioningConfig /opt/bin/setup:3";
        assert_eq!(downloads_of(&profile), (vec![expected.to_owned()], true));
    }

    #[test]
    fn the_settings_add_the_pause_image_and_the_mirrors() {
        let settings = TenantSettings {
            pause_image: "mirror.example/pause:3.10".to_owned(),
            registry_mirrors: [("docker.io".to_owned(), vec!["https://m.example".to_owned()])]
                .into(),
            ..TenantSettings::default()
        };
        let reported: Vec<_> = images(&settings).iter().map(ToString::to_string).collect();
        assert_eq!(
            reported,
            [
                "image mirror.example/pause:3.10",
                "mirror docker.io https://m.example"
            ]
        );
        assert_eq!(images(&TenantSettings::default()), BTreeSet::new());
    }
}
