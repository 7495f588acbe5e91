//! Which kubelets are supported, and what documents tell a kubelet that it does not know.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use osm_api::config::{ConfigHalf, OperatingSystemConfigSpec};
use osm_render::kubelet::known::Known;
pub use osm_render::kubelet::known::MINORS;

/// Something that a document tells a kubelet, and that this kubelet does not know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unknown {
    /// The file or unit.
    pub path: String,
    /// What the kubelet does not have, and what it does about that.
    pub problem: String,
}

impl Unknown {
    /// Returns the sentence about certain kubelets, such as `kubelet 1.36`.
    pub fn sentence(&self, kubelets: &str) -> String {
        format!("{}: {kubelets} {}", self.path, self.problem)
    }
}

/// Returns what the files and units of a rendered config tell a kubelet of a version that it does
/// not know. Nothing is known of kubelets that are not supported.
pub fn unknown(config: &OperatingSystemConfigSpec, version: &str) -> Vec<Unknown> {
    let Some(known) = Known::of(version) else {
        return Vec::new();
    };
    let halves = [&config.bootstrap_config, &config.provisioning_config];
    let texts = halves.into_iter().flat_map(ConfigHalf::texts);
    let mut all: Vec<Unknown> = texts
        .flat_map(|(path, text)| {
            let flags = unknown_flags(text, known).into_iter();
            let problems = flags.chain(unknown_fields(text, known));
            problems.map(|problem| Unknown {
                path: path.to_owned(),
                problem,
            })
        })
        .collect();
    all.sort();
    all.dedup();
    all
}

/// Returns what is wrong with the flags of a unit that runs a kubelet.
fn unknown_flags(text: &str, known: &Known) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let commands = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("ExecStart="));
    let of_kubelets = commands.filter(|command| {
        let program = command.split_whitespace().next().unwrap_or_default();
        program.rsplit('/').next() == Some("kubelet")
    });
    let flags = of_kubelets
        .flat_map(str::split_whitespace)
        .filter_map(|word| word.trim_start_matches('"').strip_prefix("--"));
    flags
        .filter_map(|flag| {
            // A kubelet reads underscores as dashes.
            let name = flag.split(['=', '"']).next()?.replace('_', "-");
            let is_known = name.is_empty() || name.contains(['$', '%']) || known.has_flag(&name);
            (!is_known).then(|| format!("does not have the flag `--{name}`, and does not start"))
        })
        .collect()
}

/// Returns what is wrong with a kubelet's configuration.
fn unknown_fields(text: &str, known: &Known) -> Vec<String> {
    if !text.contains("KubeletConfiguration") {
        return Vec::new();
    }
    let Ok(configuration) = serde_saphyr::from_str::<Json>(text) else {
        return Vec::new();
    };
    if configuration.get("kind").and_then(Json::as_str) != Some("KubeletConfiguration") {
        return Vec::new();
    }
    let mut problems = Vec::new();
    visit("", &configuration, known, &mut problems);
    let gates = configuration.get("featureGates").cloned();
    let gates = gates.and_then(|it| serde_json::from_value::<BTreeMap<String, bool>>(it).ok());
    let fault = gates.and_then(|gates| known.refuses(&gates));
    problems.extend(fault.map(|it| it.problem));
    problems
}

fn visit(path: &str, value: &Json, known: &Known, problems: &mut Vec<String>) {
    match value {
        Json::Object(fields) => {
            let is_map = known.field(path) == Some("map");
            for (name, value) in fields {
                let path = match path {
                    _ if is_map => format!("{path}{{}}"),
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                if known.field(&path).is_some() {
                    visit(&path, value, known, problems);
                } else {
                    problems.push(format!("does not have the field `{path}`, and ignores it"));
                }
            }
        }
        Json::Array(elements) => {
            let path = format!("{path}[]");
            for element in elements {
                visit(&path, element, known, problems);
            }
        }
        _ => {}
    }
}

/// Returns a sentence if a version is outside of the supported range, or is none that Kubernetes
/// has released. What is no version has an error of its own.
pub fn unsupported(version: &str) -> Option<String> {
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut number = || numbers.next()?.parse::<u64>().ok();
    let (major, minor) = (number()?, number()?);
    if major != 1 || !MINORS.contains(&minor) {
        return Some(format!(
            "kubelet {version} is not supported: documents are tested with 1.{} to 1.{}",
            MINORS.start(),
            MINORS.end()
        ));
    }
    let (_, suffix) = version.split_once(['-', '+'])?;
    let mut names = ["alpha.", "beta.", "rc."].iter();
    (!names.any(|name| suffix.starts_with(name))).then(|| {
        format!(
            "kubelet {version} is no release of Kubernetes: machines find it only at a site of \
             their own, which the variable kubernetesDownloadURL names"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kubelet_does_not_know_is_told() {
        let unit = "[Service]\nExecStart=/opt/bin/kubelet \\\n  \"--pod-infra-container-image=x\" \\\n  \
                    --v=2 --cert_dir=/a $EXTRA --network-plugin cni\nExecStartPre=/x --y\n";
        let configuration = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                             maxPods: 1\nmaxpods: 1\nauthentication: {x509: {clientCAfile: /a}}\n\
                             evictionHard: {a: b}\nregisterWithTaints: [{key: a, name: b}]\n\
                             featureGates: {NoSuchGate: true}\n";
        let flags = |version: &str| {
            let found = unknown_flags(unit, Known::of(version).expect(version));
            let name = |it: String| it.split('`').nth(1).map(str::to_owned);
            found.into_iter().filter_map(name).collect::<Vec<_>>()
        };
        assert_eq!(flags("1.34.0"), ["--network-plugin"]);
        assert_eq!(
            flags("1.36.0"),
            ["--pod-infra-container-image", "--network-plugin"]
        );
        let known = Known::of("1.37.0").expect("it is supported");
        let found = unknown_fields(configuration, known);
        let named: Vec<_> = found.iter().filter_map(|it| it.split('`').nth(1)).collect();
        let fields = [
            "maxpods",
            "authentication.x509.clientCAfile",
            "registerWithTaints[].name",
        ];
        assert_eq!(named, [&fields[..], &["NoSuchGate"]].concat());
        assert!(found[3].contains("does not start"), "{}", found[3]);
    }

    #[test]
    fn a_version_is_supported_by_its_minor() {
        for version in ["1.34.0", "v1.37.9", "1.35", "1.36.0-rc.1", "latest", ""] {
            assert_eq!(unsupported(version), None, "{version}");
        }
        for version in ["1.36.0-eks-1234", "v1.35.1+k3s1"] {
            let found = unsupported(version).expect(version);
            assert!(found.contains("no release"), "{found}");
        }
        for version in ["1.12.0", "1.12.0+x", "v1.33.11", "1.99.0", "2.34.0"] {
            let found = unsupported(version).expect(version);
            assert!(found.contains("1.34 to 1.37"), "{found}");
        }
    }
}
