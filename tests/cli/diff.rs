//! `osm diff`, and overlays in every command.

use crate::folder::{Folder, SECRETS};

const DIFF: &str = "--machine-deployment workers.yaml --cluster facts.yaml";

#[test]
fn a_difference_is_reported_by_half_and_file_and_ends_with_three() {
    let folder = Folder::new();
    let ran = folder.osm(&format!("diff my-profile.yaml my-profile.yaml {DIFF}"));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    folder.change(
        ("my-profile.yaml", "new.yaml"),
        "permissions: 644",
        "permissions: 600",
    );
    folder.change(
        ("new.yaml", "new.yaml"),
        "path: /opt/bin/setup",
        "path: /opt/bin/other",
    );
    let ran = folder.osm(&format!("diff my-profile.yaml new.yaml {DIFF}"));
    for expected in [
        "# machine deployment workers\n",
        "--- my-profile.yaml bootstrapConfig /etc/token\n+++ new.yaml bootstrapConfig /etc/token\n",
        "-# 644\n+# 600\n <redacted: Token>\n",
        "--- my-profile.yaml provisioningConfig /opt/bin/setup\n+++ /dev/null\n",
        "--- /dev/null\n+++ new.yaml provisioningConfig /opt/bin/other\n",
    ] {
        assert!(ran.stdout.contains(expected), "{expected}\n{}", ran.stdout);
    }
    assert_eq!(ran.code, 3);
    assert!(!ran.stdout.contains(SECRETS[0]), "{}", ran.stdout);
    folder.change(("new.yaml", "new.yaml"), "name: aws", "name: azure");
    let ran = folder.osm(&format!("diff my-profile.yaml new.yaml {DIFF}"));
    assert!(
        ran.code == 1 && ran.stderr.contains("refused: workers by new.yaml: "),
        "{ran:?}"
    );
}

#[test]
fn no_character_of_a_profile_controls_the_terminal_and_rendered_bytes_stay() {
    let folder = Folder::new();
    let data = "data: \"x\"";
    // Writes from right to left; other characters of the kind are refused in documents.
    let hostile = "data: \"\\u202e\"";
    let overlay = format!(
        "apiVersion: operatingsystemmanager.k8c.io/v1alpha1
kind: OperatingSystemProfile
metadata: {{name: osp-over}}
spec:
  extends: osp-mine
  osName: ubuntu
  osVersion: '24.04'
  version: v1.0.0
  bootstrapConfig:
    files:
    - {{path: /etc/token, permissions: 600, content: {{inline: {{{data}}}}}}}
"
    );
    folder.write("plain.yaml", &overlay);
    folder.write("hostile.yaml", &overlay.replace(data, hostile));
    let based = format!("{DIFF} --base my-profile.yaml");
    let ran = folder.osm(&format!("diff plain.yaml hostile.yaml {based}"));
    assert!(ran.stdout.contains("\n+\\u{202e}\n"), "{:?}", ran.stdout);
    let ran = folder.osm(
        "render hostile.yaml --machine-deployment workers.yaml --cluster facts.yaml \
         --base my-profile.yaml -o bootstrap",
    );
    assert!(ran.stdout.contains("    \u{202e}\n"), "{:?}", ran.stdout);
}

#[test]
fn an_overlay_is_rendered_over_its_base_and_compared_with_it() {
    let folder = Folder::new();
    let overlay = "apiVersion: operatingsystemmanager.k8c.io/v1alpha1
kind: OperatingSystemProfile
metadata: {name: osp-over}
spec:
  extends: osp-mine
  osName: ubuntu
  osVersion: '24.04'
  version: v1.0.0
  bootstrapConfig:
    files:
    - {path: /etc/token, permissions: 600, content: {inline: {data: '{{ Token }}'}}}
";
    folder.write("over.yaml", overlay);
    let based = format!("{DIFF} --base my-profile.yaml");
    let ran = folder.osm(&format!("diff over.yaml {based}"));
    assert!(
        ran.code == 3
            && ran
                .stdout
                .contains("--- osp-mine bootstrapConfig /etc/token\n"),
        "{ran:?}"
    );
    assert!(!ran.stdout.contains("/opt/bin/setup"), "{ran:?}");
    let ran = folder.osm(&format!("render over.yaml {based}"));
    assert!(
        ran.code == 0 && ran.stdout.contains("/opt/bin/setup"),
        "{ran:?}"
    );
    assert_eq!(
        folder
            .osm("lint over.yaml --base my-profile.yaml --deny-warnings")
            .code,
        0
    );
    let ran = folder.osm("lint over.yaml");
    assert!(
        ran.code == 3 && ran.stdout.starts_with("over.yaml:5:3: error[overlay]: "),
        "{ran:?}"
    );
    let ran = folder.osm(&format!("render over.yaml {DIFF}"));
    assert!(
        ran.code == 1 && ran.stderr.contains("there is no OperatingSystemProfile"),
        "{ran:?}"
    );
    let ran = folder.osm(&format!("diff over.yaml {DIFF}"));
    assert!(
        ran.code == 1 && ran.stderr.contains("give it by --base"),
        "{ran:?}"
    );
}
