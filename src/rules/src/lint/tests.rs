//! One small profile without a finding, and what each change of it brings.

use super::*;
use osm_render::default_profiles::default_profiles;

const PROFILE: &str = "apiVersion: operatingsystemmanager.k8c.io/v1alpha1
kind: OperatingSystemProfile
metadata:
  name: osp-example
spec:
  osName: ubuntu
  osVersion: '24.04'
  version: v1.0.0+jinja
  templateLanguage: Jinja
  supportedCloudProviders:
  - name: aws
  bootstrapConfig:
    files:
    - path: /etc/motd
      permissions: 600
      content:
        inline:
          data: |
            {{ KubeVersion }}
            {% include 'hook' %}
    templates:
      hook: |
        {{ Token }}
  provisioningConfig: {}
";

/// A default profile.
fn default(name: &str) -> Option<Arc<OperatingSystemProfileSpec>> {
    let mut profiles = default_profiles().iter();
    let yaml = profiles.find(|profile| profile.name == name)?.yaml;
    let profile: OperatingSystemProfile = serde_saphyr::from_str(yaml).ok()?;
    Some(Arc::new(profile.spec))
}

/// Findings as `rule line`, after each replacement was made in the profile that has none.
fn check(replacements: &[(&str, &str)]) -> Vec<String> {
    let mut text = PROFILE.to_owned();
    for (old, new) in replacements {
        assert!(text.contains(old), "{old}");
        text = text.replace(old, new);
    }
    let reported = |finding: &Finding| {
        assert!(!finding.fix.is_empty() && !finding.message.is_empty());
        format!("{} {}", finding.rule, finding.place.line)
    };
    lint(&text, &default).iter().map(reported).collect()
}

#[test]
fn a_good_profile_has_no_finding_and_so_have_the_default_ones() {
    assert_eq!(lint(PROFILE, &default), []);
    for profile in default_profiles() {
        assert_eq!(lint(profile.yaml, &default), [], "{}", profile.name);
    }
}

/// Each change of the profile brings its finding, whatever else it brings.
fn check_each(cases: &[(&str, &str, &str)]) {
    for (old, new, expected) in cases {
        let found = check(&[(*old, *new)]);
        assert!(
            found.contains(&(*expected).to_owned()),
            "{expected}: {found:?}"
        );
    }
}

#[test]
fn each_rule_of_the_spec_finds_what_it_is_for_at_its_line() {
    check_each(&[
        (
            "osName: ubuntu",
            "osName: ubuntu\n  osName: ubuntu",
            "yaml 7",
        ),
        (
            "kind: OperatingSystemProfile",
            "kind: Secret",
            "not-a-profile 2",
        ),
        ("name: osp-example", "labels: {}", "not-a-profile 3"),
        (
            "osVersion:",
            "osVersoin: x\n  osVersion:",
            "unknown-field 7",
        ),
        ("'24.04'", "24.04", "wrong-type 7"),
        ("      hook: |", "      on: |", "misread-key 22"),
        ("      hook: |", "      1.0: |", "misread-key 22"),
        ("Language: Jinja", "Language: Jinga", "wrong-value 9"),
        ("name: aws", "name: amazon", "unknown-name 11"),
        ("osName: ubuntu", "osName: ubunto", "unknown-name 6"),
        ("  osVersion: '24.04'\n", "", "missing-field 5"),
        ("v1.0.0+jinja", "1.0.0+jinja", "version 8"),
        ("v1.0.0+jinja", "xv1.0.0+jinja", "version-prefix 8"),
        (
            "Language: Jinja",
            "Language: GoTemplate",
            "language-conflict 9",
        ),
        ("+jinja", "", "language-not-in-version 8"),
        (
            "Providers:\n  - name: aws",
            "Providers: []",
            "no-cloud-provider 10",
        ),
        ("  provisioningConfig: {}\n", "", "missing-field 5"),
        (
            "osName: ubuntu",
            "extends: osp-none\n  osName: ubuntu",
            "overlay 6",
        ),
        (
            "osName: ubuntu",
            "ignitionVersion: 3.3.0\n  osName: ubuntu",
            "ignition-version 6",
        ),
        (
            "Config: {}",
            "Config: {units: [{name: a.service}]}",
            "units-unsupported 24",
        ),
        (
            "Config: {}",
            "Config: {files: [{path: /a, content: {}}]}",
            "missing-inline 24",
        ),
    ]);
}

#[test]
fn each_rule_of_files_and_templates_finds_what_it_is_for_at_its_line() {
    let file = "    - path: /etc/motd\n      permissions: 600\n";
    let again =
        "    - path: /etc/motd\n      permissions: 600\n      content: {inline: {data: ''}}\n";
    let runtime = "provisioningConfig:\n    templates: {one: x}\n    supportedContainerRuntimes:\n    - name: containerd\n      files: [{path: /a, content: {inline: {data: '{% include \"one\" %}'}}}]\n      templates:\n        one: x\n    - {name: containerd, files: []}";
    check_each(&[
        (
            "inline:\n",
            "inline:\n          encoding: rot13\n",
            "unknown-encoding 18",
        ),
        (
            "Config: {}",
            "Config: {files: [{path: /a, content: {inline: {encoding: b64, data: \"#!/bin/bash\\r\\n\"}}}]}",
            "carriage-return 24",
        ),
        ("permissions: 600", "permissions: 688", "permissions 15"),
        (
            "permissions: 600",
            "permissions: 0600",
            "octal-permissions 15",
        ),
        (
            "permissions: 600",
            "permissions: 0o600",
            "octal-permissions 15",
        ),
        ("permissions: 600", "permissions: 602", "world-writable 15"),
        ("permissions: 600", "permissions: 4755", "lost-mode 15"),
        (
            "            {{ KubeVersion }}",
            "            https://mirror.example.com/a//{{ KubeVersion }}",
            "empty-url-part 18",
        ),
        (
            "            {{ KubeVersion }}",
            "            https:///{{ KubeVersion }}",
            "empty-url-part 18",
        ),
        ("path: /etc", "path: etc", "relative-path 14"),
        (
            "  provisioningConfig: {}",
            "  effects: [{path: /etc/none, class: Reload}]\n  provisioningConfig: {}",
            "effect-without-file 24",
        ),
        (file, &format!("{again}{file}"), "duplicate-path 17"),
        ("provisioningConfig: {}", runtime, "duplicate-template 30"),
        ("provisioningConfig: {}", runtime, "duplicate-runtime 31"),
        (
            "{{ KubeVersion }}",
            "{{ KubeVersion }",
            "template-syntax 19",
        ),
        ("{% include 'hook' %}", "", "unused-template 22"),
        (
            "{{ KubeVersion }}",
            "{{ variables.site }}",
            "render-failed 19",
        ),
        ("permissions: 600", "permissions: 644", "secret-readable 15"),
    ]);
}

#[test]
fn a_url_in_a_path_or_a_list_has_no_empty_part() {
    for text in [
        "https://10.0.0.1:2379,https://10.0.0.2:2379",
        "https://mirror.example.com/https://example.com/a",
    ] {
        let line = format!("            {text} {{{{ KubeVersion }}}}");
        assert_eq!(
            check(&[("            {{ KubeVersion }}", &line)]),
            [""; 0],
            "{text}"
        );
    }
}

#[test]
fn units_of_one_name_and_functions_that_are_refused_are_found_in_gos_language() {
    let found = check(&[
        ("osName: ubuntu", "osName: flatcar"),
        ("+jinja\n  templateLanguage: Jinja", ""),
        ("{{ KubeVersion }}", "{{ now }}"),
        ("{% include 'hook' %}", "{{ template \"hook\" }}"),
        ("{{ Token }}", "{{ .Token }} {{ env \"HOME\" }}"),
        (
            "Config: {}",
            "Config:\n    units:\n    - name: a.service\n    - name: a.service",
        ),
    ]);
    assert_eq!(
        found,
        [
            "refused-function 18",
            "refused-function 22",
            "duplicate-unit 26"
        ]
    );
}

#[test]
fn the_path_of_a_file_does_not_decide_which_rule_is_broken() {
    let found = check(&[(
        "Config: {}",
        "Config: {files: [{path: '/a` is refused: ', content: {inline: {data: '{% if %}'}}}]}",
    )]);
    assert_eq!(found, ["template-syntax 24"]);
}

#[test]
fn every_broken_template_is_reported_and_not_only_the_first() {
    let found = check(&[
        ("{{ KubeVersion }}", "{{ KubeVersion }"),
        ("{{ Token }}", "ok\n        {{ Token"),
        (
            "Config: {}",
            "Config: {files: [{path: /a, content: {inline: {data: '{% if %}'}}}]}",
        ),
    ]);
    assert_eq!(
        found,
        [
            "template-syntax 19",
            "template-syntax 24",
            "template-syntax 25"
        ]
    );
}

#[test]
fn a_text_without_a_profile_says_so_and_other_documents_are_left_alone() {
    assert_eq!(lint("", &default)[0].rule, Rule::NOT_A_PROFILE);
    assert_eq!(
        lint("kind: Secret\nspec: 1\n", &default)[0].rule,
        Rule::NOT_A_PROFILE
    );
    let text = format!("kind: Secret\nspec: 1\n---\n{PROFILE}");
    assert_eq!(lint(&text, &default), []);
}

#[test]
fn every_encoding_that_the_machine_decodes_is_accepted() {
    let with = |encoding: &str, utility: &str| {
        check(&[
            (
                "inline:\n",
                &format!("inline:\n          encoding: '{encoding}'\n"),
            ),
            (
                "osName: ubuntu",
                &format!("osName: flatcar\n  provisioningUtility: {utility}"),
            ),
        ])
    };
    let (decoded, renamed) = (
        ["", "b64", "gzip"],
        ["base64", "GZIP+B64", " gz+b64 ", "Text/Plain"],
    );
    let unknown = |encoding, utility| {
        let found = with(encoding, utility);
        found
            .iter()
            .any(|finding| finding.starts_with("unknown-encoding"))
    };
    for encoding in decoded.into_iter().chain(renamed) {
        assert!(!unknown(encoding, "cloud-init"), "{encoding}");
        // Ignition knows no encodings: the renderer encodes for it.
        assert_eq!(
            unknown(encoding, "ignition"),
            renamed.contains(&encoding),
            "{encoding}"
        );
    }
    // What cloud-init decodes, and the renderer does not encode.
    for encoding in ["gz64", "GZ", "gz", "Gzip", "B64", " b64"] {
        assert!(unknown(encoding, "cloud-init"), "{encoding}");
    }
}

#[test]
fn the_annotations_of_machine_deployments_are_linted_at_their_lines() {
    let key = "v1.kubelet-config.machine-controller.kubermatic.io";
    let text = format!(
        "kind: MachineDeployment\nmetadata:\n  name: a\n  annotations:\n    {key}/maxPods: '50'\n    \
         {key}/SystemReserved: 'cpu: 200m'\nspec:\n  template:\n    metadata:\n      \
         annotations:\n        {key}/MaxPods: '5'\n"
    );
    let findings = lint(&text, &default);
    let found = findings.iter().map(|it| (it.rule, it.place.line));
    let expected = [
        (Rule::UNKNOWN_ANNOTATION, 5),
        (Rule::KUBELET_ANNOTATION, 6),
        (Rule::MISPLACED_ANNOTATION, 11),
    ];
    assert_eq!(found.collect::<Vec<_>>(), expected);
    let old = text.replace(
        "  template:\n",
        "  template:\n    spec:\n      versions:\n        kubelet: 1.12.0\n",
    );
    let found = lint(&old, &default);
    let found = found.iter().find(|it| it.rule == Rule::UNSUPPORTED_KUBELET);
    assert_eq!(found.map(|it| it.place.line), Some(11), "{found:?}");
    let number = text.replace("'50'", "50");
    assert_eq!(lint(&number, &default)[0].rule, Rule::WRONG_TYPE);
    assert_eq!(
        lint(
            "kind: MachineDeployment\nmetadata: {}\nspec: {}\n",
            &default
        ),
        []
    );
}

#[test]
fn profiles_of_other_kinds_and_in_lists_are_linted() {
    let custom = PROFILE.replace("OperatingSystemProfile", "CustomOperatingSystemProfile");
    assert_eq!(lint(&custom, &default), []);
    let item = |line: &str| format!("  {line}\n");
    let items: String = PROFILE.lines().map(item).collect();
    let list = items.replacen("  apiVersion", "- apiVersion", 1);
    let list = format!("apiVersion: v1\nkind: List\nitems:\n{list}");
    assert_eq!(lint(&list, &default), []);
    let broken = list.replace("{{ KubeVersion }}", "{{ KubeVersion }");
    let found = lint(&broken, &default);
    assert_eq!(
        (found[0].rule, found[0].place.line),
        (Rule::TEMPLATE_SYNTAX, 22)
    );
}

#[test]
fn each_finding_says_what_to_do_about_it() {
    let reported = |old: &str, new: &str| {
        let finding = lint(&PROFILE.replace(old, new), &default).remove(0);
        format!("{}; {}", finding.message, finding.fix)
    };
    let wrong = reported("Language: Jinja", "Language: \"Jinga\"");
    assert!(wrong.contains("`Jinga` is not allowed"), "{wrong}");
    let undefined = reported("{{ KubeVersion }}", "{{ variables.site }}");
    assert!(undefined.contains("test with `is defined`"), "{undefined}");
    let unsafe_value = reported("Config: {}", "Config: {modules: {runcmd: ['a: b']}}");
    assert!(
        unsafe_value.ends_with("no machine deployment can use the profile until then"),
        "{unsafe_value}"
    );
    let in_go = PROFILE.replace("+jinja\n  templateLanguage: Jinja", "");
    let in_go = in_go
        .replace("{% include 'hook' %}", "{{ template \"hook\" }}")
        .replace("{{ Token }}", "{{ .Token }}")
        .replace("{{ KubeVersion }}", "{{ .MaxPods.x }}");
    let in_go = lint(&in_go, &default).remove(0);
    assert!(in_go.fix.contains("`if` or `with`"), "{in_go:?}");
}

#[test]
fn every_rule_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<_> = Rule::ALL.iter().map(|rule| rule.id()).collect();
    assert_eq!(names.len(), Rule::ALL.len());
    // One that is missing in the list would stand in no page.
    let declared = include_str!("../rule.rs").matches("pub const ").count() - 1;
    let functions = include_str!("../rule.rs").matches("pub const fn").count();
    assert_eq!(declared - functions, Rule::ALL.len());
}

/// An overlay of a default profile, with more below its provisioning half.
fn overlay(base: &str, half: &str) -> Vec<Finding> {
    let text = format!(
        "apiVersion: operatingsystemmanager.k8c.io/v1alpha1\nkind: OperatingSystemProfile\n\
         metadata:\n  name: osp-mine\nspec:\n  extends: {base}\n  osName: ubuntu\n  \
         osVersion: '24.04'\n  version: v1.0.0\n  provisioningConfig:\n{half}"
    );
    lint(&text, &default)
}

#[test]
fn an_overlay_is_linted_with_what_it_extends() {
    let file = "    files:\n    - path: /opt/bin/setup\n      permissions: 700\n      content: {inline: {data: 'x {{ ";
    assert_eq!(
        overlay("osp-ubuntu", &format!("{file}KubeVersion }}}}'}}}}\n")),
        []
    );
    let found = |base, half: &str| {
        let finding = overlay(base, half).into_iter().next();
        finding.map(|finding| format!("{} {}", finding.rule, finding.place.line))
    };
    let broken = format!("{file}KubeVersion }}'}}}}\n");
    assert_eq!(
        found("osp-ubuntu", &broken).as_deref(),
        Some("template-syntax 14")
    );
    let unused = "    templates: {nobody: x}\n";
    assert_eq!(
        found("osp-ubuntu", unused).as_deref(),
        Some("unused-template 11")
    );
    assert_eq!(found("osp-other", unused).as_deref(), Some("overlay 6"));
    assert_eq!(found("osp-mine", unused).as_deref(), Some("overlay 6"));
}
