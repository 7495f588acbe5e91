//! Tests that profiles in Go's language and their Jinja form render the same bytes.

mod drawn;

use super::{
    super::{
        convert::{ConvertError, compare, convert},
        fixtures::World,
    },
    go_templates::{Case, FIELDS, PROFILES, Profile, TEMPLATES, a_go_world},
    *,
};
use osm_api::profile::{OperatingSystemProfileSpec, TemplateLanguage};

/// The number of samples for each template of the goldens.
const SAMPLES: u64 = 4;

/// Creates a profile with one file, in an encoding that can contain any text, and named templates.
fn a_go_profile(templates: &[(&str, &str)], file: &str) -> World {
    let mut world = a_go_world();
    let mut entry = a_file("/f", file);
    if let Some(inline) = &mut entry.content.inline {
        inline.encoding = Some("b64".to_owned());
    }
    let half = &mut world.profile.provisioning_config;
    half.files = vec![entry];
    half.templates = templates
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect();
    world
}

/// Returns the only file of a profile.
fn file_of(profile: &OperatingSystemProfileSpec) -> String {
    data(&profile.provisioning_config.files[0])
}

/// Converts a file to Jinja.
fn jinja(template: &str) -> Result<String, String> {
    let world = a_go_profile(&[], template);
    match convert(&world.profile) {
        Ok(converted) => Ok(file_of(&converted)),
        Err(error) => Err(error.to_string()),
    }
}

/// The results for many profiles.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    idiomatic: usize,
    with_go_functions: usize,
    refused: usize,
    /// Profiles that are invalid in Go's language, too.
    unreadable: usize,
}

impl Tally {
    /// Renders a profile's Jinja form with the data of the goldens, and both forms with samples.
    fn add(&mut self, mut world: World, golden: Option<&str>) -> Result<(), String> {
        let source = world.profile.clone();
        world.profile = match convert(&source) {
            Ok(converted) => converted,
            Err(ConvertError::Refused(_)) => {
                self.refused += 1;
                return Ok(());
            }
            Err(ConvertError::Source(_)) => {
                self.unreadable += 1;
                return Ok(());
            }
            Err(error) => return Err(format!("{}: {error}", file_of(&source))),
        };
        let text = file_of(&world.profile);
        if format!("{:?}", world.profile).contains("go_") {
            self.with_go_functions += 1;
        } else {
            self.idiomatic += 1;
        }
        let place = format!("{}\n  {text}\n  ", file_of(&source));
        let rendered = world.render();
        let rendered = rendered.map(|rendered| data(&rendered.config.provisioning_config.files[0]));
        if rendered.as_deref().ok() != golden {
            return Err(format!("{place}wanted {golden:?}\n  found  {rendered:?}"));
        }
        let comparison = compare(&source, &world.profile, SAMPLES).unwrap();
        if comparison.different.is_empty() {
            Ok(())
        } else {
            Err(format!("{place}{:?}", comparison.different))
        }
    }
}

#[test]
fn templates_render_in_jinja_as_go_renders_them() {
    let cases: Vec<Case> = serde_json::from_str(TEMPLATES).unwrap();
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    for case in &cases {
        let wanted = case.wanted();
        let golden = (!case.failed).then_some(wanted.as_str());
        wrong.extend(tally.add(a_go_profile(&[], &case.template), golden).err());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let all = tally.idiomatic + tally.with_go_functions + tally.refused + tally.unreadable;
    assert_eq!(all, cases.len());
    assert!(tally.refused <= 3, "{tally:?}");
    assert!(tally.idiomatic >= 56, "{tally:?}");
}

#[test]
fn named_templates_render_in_jinja_as_go_renders_them() {
    let profiles: Vec<Profile> = serde_json::from_str(PROFILES).unwrap();
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    for profile in &profiles {
        let golden = (!profile.failed).then_some(profile.output.as_str());
        let templates: Vec<(&str, &str)> = profile
            .templates
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        wrong.extend(
            tally
                .add(a_go_profile(&templates, &profile.file), golden)
                .err(),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Most of them exist to be interpreted twice, which has no equivalent in Jinja.
    assert!(tally.refused <= 19, "{tally:?}");
    assert!(tally.idiomatic >= 8, "{tally:?}");
}

#[test]
fn what_profiles_use_becomes_jinja_as_people_write_it() {
    let check = |template: &str, expected: &str| {
        let found = jinja(template);
        assert_eq!(found.as_deref(), Ok(expected), "{template}");
    };
    check("{{ .KubeVersion }}", "{{ KubeVersion }}");
    check(
        "a\n{{- if .HTTPProxy }}\n{{ .HTTPProxy }}\n{{- end }}",
        "a\n{%- if HTTPProxy is not none %}\n{{ HTTPProxy }}\n{%- endif %}",
    );
    check(
        "{{ if .KubeReserved }}a{{ end }}{{ if .HostCACert }}b{{ end }}",
        "{% if KubeReserved is not none %}a{% endif %}{% if HostCACert %}b{% endif %}",
    );
    check(
        "{{ if eq .CloudProviderName \"aws\" }}a{{ else if not .NoProxy }}b{{ else }}c{{ end }}",
        "{% if CloudProviderName == \"aws\" %}a{% elif NoProxy is none %}b{% else %}c{% endif %}",
    );
    check(
        "{{ range $k, $v := .KubeReserved }}{{ $k }}={{ $v }}{{ end }}",
        "{% for k, v in KubeReserved|items %}{{ k }}={{ v }}{% endfor %}",
    );
    check(
        "{{ range .ClusterDNSIPs }}{{ . }},{{ else }}none{{ end }}",
        "{% for item in ClusterDNSIPs %}{{ item }},{% else %}none{% endfor %}",
    );
    check(
        "{{ with .MaxPods }}maxPods: {{ . }}{{ end }}",
        "{% if MaxPods is not none %}maxPods: {{ MaxPods }}{% endif %}",
    );
    check(
        "{{ if semverCompare \"~1.33.0\" .KubeVersion }}x{{ end }}",
        "{% if semver_matches(KubeVersion, \"~1.33.0\") %}x{% endif %}",
    );
    check(
        "{{ if and .NetworkConfig (or .NetworkConfig.CIDR .InTreeCCMAvailable) }}x{{ end }}",
        "{% if NetworkConfig is not none and (NetworkConfig.CIDR or InTreeCCMAvailable) %}x\
         {% endif %}",
    );
    check("{{- /* why */ -}}\na", "{# why -#}\na");
    check(
        "{{ $n := 0 }}{{ range .ClusterDNSIPs }}{{ $n = add $n 1 }}{{ end }}{{ $n }}",
        "{% set n = namespace(value=0) %}{% for item in ClusterDNSIPs %}\
         {% set n.value = go_add(n.value, 1) %}{% endfor %}{{ n.value }}",
    );
    check(
        "{{ define \"a b\" }}{{ .KubeVersion }}{{ end }}{{ template \"a b\" . }}",
        "{% macro a_b() %}{{ KubeVersion }}{% endmacro -%}\n{{ a_b() }}",
    );
    check(
        "{{ .SecretName | trim | b64enc }} {{ printf \"%s:%s\" .SecretName .Token }}",
        "{{ SecretName|trim|b64encode }} {{ SecretName ~ \":\" ~ Token }}",
    );
    check(
        "{{ .NoProxy }}",
        "{{ \"<nil>\" if NoProxy is none else NoProxy }}",
    );
    check(
        "{{ .variables.site }}",
        "{{ variables.site|default(\"<no value>\") }}",
    );
    check(
        "${#a} {{ upper .Token }}",
        "${{ \"{#\" }}a} {{ go_upper(Token) }}",
    );
}

#[test]
fn white_space_and_line_ends_survive() {
    let mut tally = Tally::default();
    for (template, golden) in [
        ("a\r\n{{- .KubeVersion -}}\r\n b\r\n", "av1.34.1b\r\n"),
        ("\u{c}{{- .KubeVersion -}}\u{a0}b", "\u{c}v1.34.1\u{a0}b"),
        (
            "\u{a0} \n{{- .KubeVersion -}}\n \u{b}b\n\n",
            "\u{a0}v1.34.1\u{b}b\n\n",
        ),
        ("{{ .KubeVersion -}} \n", "v1.34.1"),
        ("{ {{- .KubeVersion }}}{", "{v1.34.1}{"),
        ("{% raw %}{# x #}{{ \"{{\" }}%}", "{% raw %}{# x #}{{%}"),
        (
            " {{- define \"x\" -}} y {{- end -}} a {{- template \"x\" -}} b",
            "ayb",
        ),
    ] {
        let world = a_go_profile(&[], template);
        let rendered = world.render().unwrap();
        let text = data(&rendered.config.provisioning_config.files[0]);
        assert_eq!(text, golden, "{template:?}");
        assert_eq!(tally.add(world, Some(golden)), Ok(()));
    }
    assert_eq!(tally.with_go_functions, 0);
}

#[test]
fn what_has_no_equal_form_is_refused_with_its_place_and_a_way_out() {
    let check = |templates: &[(&str, &str)], file: &str, expected: &str| {
        let world = a_go_profile(templates, file);
        let error = convert(&world.profile).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(
        &[("t", "a\n{{ \"{{\" }}")],
        "",
        "spec.provisioningConfig, template `t`, line 2: the template prints `{{`, and what it \
         prints is read as a template once more; move the text into a file",
    );
    check(
        &[("t", "{{ .Missing }}")],
        "",
        "template `t`, line 1: there is no variable `Missing`",
    );
    check(
        &[("t", "")],
        "\n{{ define \"t\" }}a{{ end }}",
        "file `/f`, line 1: the profile has a template `t` as well",
    );
    check(
        &[],
        "\n{{ toJson . }}",
        "file `/f`, line 2: the data as a whole (`.` or `$`) is given to a function",
    );
    check(
        &[],
        "{{ $x := .KubeReserved }}{{ $x = .SystemReserved }}",
        "file `/f`, line 1: `$x` is assigned to, and Jinja can only do so with texts",
    );
    check(
        &[],
        "{{ template \"nope\" }}",
        "template \"nope\" is not defined",
    );
}

#[test]
fn a_converted_profile_says_jinja_in_both_ways() {
    let mut world = a_go_profile(&[], "{{ .KubeVersion }}");
    for (version, expected) in [
        ("v1.2.3", "v1.2.3+jinja"),
        ("v1.2.3-rc.1+build.5", "v1.2.3-rc.1+build.5.jinja"),
    ] {
        world.profile.version = version.to_owned();
        let converted = convert(&world.profile).unwrap();
        assert_eq!(converted.version, expected);
        let language = TemplateLanguage::Jinja;
        assert_eq!(converted.template_language, Some(language));
        assert_eq!(convert(&converted), Err(ConvertError::IsJinja));
    }
}

/// A profile with common constructs, and with rare ones.
const PROFILE: &str = r#"
osName: rhel
osVersion: "9.4"
version: v1.0.0
supportedCloudProviders: [{name: aws}, {name: vsphere}]
bootstrapConfig:
  files:
  - path: /opt/bin/bootstrap
    permissions: 755
    content:
      inline:
        encoding: b64
        data: |
          #!/bin/bash
          {{- /* the proxy comes first */ -}}
          {{- template "proxy" }}
          for word in "${#a[@]}" ${a%}{%x}; do echo "{#"; done
          curl {{ .ServerURL }}/{{ .SecretName }} {{- if .CloudConfig }} --config {{ end }}
          {{- with .RhelConfig }}
          {{ if and .AttachSubscription (not .RHELUseSatelliteServer) }}
          attach {{ .RHELOrganizationName | quote }} {{ .RHELActivationKey }} {{ $.KubeVersion }}
          {{- else if .DistUpgradeOnBoot -}}
          upgrade
          {{- else }}
          {{ .RHSMOfflineToken }}{{ end }}
          {{- end }}
  templates:
    proxy: |
      {{- if .HTTPProxy }}
      HTTP_PROXY={{ .HTTPProxy }}
      {{- end }}
      {{- if or .NoProxy (eq .NetworkIPFamily "IPv6") }}
      NO_PROXY={{ .NoProxy }}
      {{ end }}

provisioningConfig:
  supportedContainerRuntimes:
  - name: containerd
    files:
    - path: /etc/containerd/config.toml
      content: {inline: {encoding: b64, data: "{{ .ContainerRuntimeConfig }}"}}
    templates:
      runtime: "{{ .ContainerRuntime }} {{ .PauseImage }}"
      both: "not this one"
  files:
  - path: /etc/kubernetes/kubelet.conf
    content:
      inline:
        encoding: b64
        data: |
          {{ define "line" }}{{ range $i, $x := . }}{{ if $i }},{{ end }}{{ $x }}{{ end }}{{ end -}}
          {{ define "map" }}{{ range $k, $v := . }}
            {{ $k }}: {{ $v | quote }}{{ else }} {}{{ end }}{{ end -}}
          {{ define "gate" }}{{ . }}!{{ end -}}
          clusterDNS:
          {{- range .ClusterDNSIPs }}
          - "{{ . }}"
          {{- else }} []
          {{- end }}
          line: {{ template "line" .ClusterDNSIPs }}
          kubeReserved:
          {{- if .KubeReserved }}
          {{- range $key, $value := .KubeReserved }}
            {{ $key }}: {{ $value }}
          {{- end }}
          {{- else }} {cpu: 200m}
          {{- end }}
          systemReserved: {{ with .SystemReserved }}{{ template "map" . }}{{ end }}
          featureGates: {{- $count := 0 }}
          {{- range $name, $isOn := .KubeletFeatureGates -}}
          {{- if $isOn }}
            {{ $name }}: {{ $isOn }}{{ template "gate" $name }}{{ template "gate" $isOn }}
          {{- $count = add $count 1 }}
          {{- if gt $count 1 }}{{ break }}{{ end }}
          {{- end }}
          {{- end }}
          count: {{ $count }} of {{ len .KubeletFeatureGates }}
          {{- with $max := .MaxPods }}
          maxPods: {{ . }} {{ $max }} {{ add $max 1 }}
          {{- end }}
          {{- if not .ImageMinimumGCAge }}
          none
          {{- else }}
          imageMinimumGCAge: {{ .ImageMinimumGCAge }}
          {{- end }}
          {{- if semverCompare ">=1.33.0 <1.35.0" .KubeVersion }}
          crictl: 1.34
          {{- else if and .InTreeCCMAvailable (semverCompare "<1.29" .KubeVersion) }}
          crictl: {{ .KubeVersion | trimPrefix "v" }}
          {{- else }}
          crictl: {{ .ContainerLogMaxSize }} {{ .EvictionHard }}
          {{- end }}
          {{- with $network := .NetworkConfig }}
          cidr: {{ .CIDR | default "none" }} {{ $network.IPFamily }} {{ len .DNS.Servers }}
          {{- range $index, $server := .DNS.Servers }}
          {{ $index }}: {{ $server }}
          {{- end }}
          {{- end }}
          static: {{ .NetworkConfig.IsStaticIPConfig }} {{ .NetworkConfig.GetIPFamily }}
          site: {{ .variables.site }}{{ if .variables.site }}!{{ end }} {{ index .variables "a.b" }}
          taints: {{ .InitialTaints | indent 2 }}
          yaml: {{ toYaml .KubeReserved }} {{ toJson .RhelConfig.AttachSubscription }}
          {{ template "runtime" . }}
          {{- template "both" }}
          {{ block "own" .UbuntuConfig }}{{ .DistUpgradeOnBoot }}{{ end }}
  - path: /etc/plain
    content: {inline: {encoding: b64, data: "no action {% if x %}{# no"}}
  templates:
    both: |
      {{ if .HostCACert }}
      {{ .HostCACert }}
      {{ end }}
    unused: "{{ range .ClusterDNSIPs }}{{ . }} {{ end }}"
"#;

#[test]
fn a_profile_and_its_jinja_form_render_alike_whatever_the_machine_deployment() {
    let profile: OperatingSystemProfileSpec = serde_saphyr::from_str(PROFILE).unwrap();
    let converted = convert(&profile).unwrap();
    let comparison = compare(&profile, &converted, 400).unwrap();
    assert_eq!(comparison.different, []);
    assert!(comparison.equal > 300, "{comparison:?}");
}

#[test]
fn a_difference_between_two_profiles_is_found_and_named() {
    let profile: OperatingSystemProfileSpec = serde_saphyr::from_str(PROFILE).unwrap();
    let mut converted = convert(&profile).unwrap();
    let file = &mut converted.provisioning_config.files[0];
    let inline = file.content.inline.as_mut().unwrap();
    inline.data = inline
        .data
        .replace("KubeReserved is not none", "KubeReserved");
    let comparison = compare(&profile, &converted, 100).unwrap();
    let (_, problem) = &comparison.different[0];
    assert_eq!(problem, "file `/etc/kubernetes/kubelet.conf` differs");
}

#[test]
fn every_variable_is_the_same_in_both_forms() {
    for name in FIELDS {
        let template = format!(
            "{{{{ .{name} }}}}|{{{{ if .{name} }}}}1{{{{ end }}}}|{{{{ with .{name} }}}}{{{{ . }}}}\
             {{{{ end }}}}|{{{{ toYaml .{name} }}}}|{{{{ kindOf .{name} }}}}|\
             {{{{ empty .{name} }}}}|{{{{ $x := .{name} }}}}{{{{ $x }}}}|{{{{ default 1 $x }}}}"
        );
        let world = a_go_profile(&[], &template);
        let converted = convert(&world.profile).unwrap();
        let comparison = compare(&world.profile, &converted, 12).unwrap();
        assert_eq!(comparison.different, [], "{}", file_of(&converted));
        assert!(comparison.equal > 6, "{name}: {comparison:?}");
    }
}

#[test]
fn go_functions_in_jinja_take_no_more_than_a_render_may() {
    let text = |template: &str| {
        let mut world = a_go_profile(&[], template);
        world.profile.template_language = Some(TemplateLanguage::Jinja);
        let rendered = world.render();
        rendered.map(|rendered| data(&rendered.config.provisioning_config.files[0]))
    };
    assert_eq!(text("{{ go_upper(\"a\") }}"), Ok("A".to_owned()));
    let listed = text("{{ go_text(go_append([1, {\"a\": none}], namespace(b=2))) }}");
    assert_eq!(listed, Ok("[1 map[a:<nil>] map[b:2]]".to_owned()));
    for template in [
        "{{ go_repeat(100000000, \"x\") }}",
        "{{ go_until(100000000) }}",
        "{% for i in go_items(1000000000) %}{% endfor %}",
    ] {
        let outcome = text(template);
        assert!(
            matches!(outcome, Err(RenderError::WorkTooLarge { .. })),
            "{outcome:?}"
        );
    }
    for template in [
        "{% set d = go_dict() %}{% set n = namespace(x=d) %}{{ go_text(go_set(d, \"n\", n)) }}",
        "{% set d = go_dict() %}{{ go_text(go_set(d, \"d\", {\"x\": [d]})) }}",
        "{% set n = namespace(x=1) %}{% set n.x = go_dict() %}",
        "{{ go_text(go_data(\"KubeReserved\", {\"x\": namespace}) ) }}",
    ] {
        let outcome = text(template);
        assert!(
            matches!(outcome, Err(RenderError::Template { .. })),
            "{template} {outcome:?}"
        );
    }
}
