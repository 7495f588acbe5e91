//! The script for edge machines, beside stand-ins for the programs that would change this machine.

use std::process::Output;

use osm::{
    render::edge_script::{EdgeScriptInput, edge_script},
    tenant::secret_text::SecretText,
};

use crate::{
    cases::HOSTILE,
    programs::{run, text},
    root::Root,
};

pub fn script() -> String {
    let script = edge_script(&EdgeScriptInput {
        api_server: "https://10.0.0.1:6443",
        certificate_authority: "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
        fetch_token: &SecretText::new(HOSTILE),
        secret: "workers-kube-system-bootstrap-config",
    });
    script.expose().to_owned()
}

/// What stands in for the programs of an edge machine.
const CURL: &str = "#!/bin/bash\n\
    printf '%s\\n' \"$@\" > \"$ROOT/curl\"\n\
    for ((at = 1; at <= $#; at++)); do\n\
      [ \"${!at}\" != --header ] || { next=$((at + 1)); header=\"${!next}\"; }\n\
      [ \"${!at}\" != --output ] || { next=$((at + 1)); echo '{}' > \"${!next}\"; }\n\
    done\n\
    cp \"${header#@}\" \"$ROOT/header\"\n\
    exit \"${CURL_ENDS:-0}\"\n";
const JQ: &str = "#!/bin/bash\nprintf '#cloud-config\\n' | base64\n";
const CLOUD_INIT: &str = "#!/bin/bash\n\
    [ \"$1\" != --version ] || { echo \"/usr/bin/cloud-init $VERSION\"; exit; }\n\
    echo \"$*\" >> \"$ROOT/cloud-init\"\n\
    case \"$*\" in *\"${SYNTAX}\"*) touch \"$ROOT/etc/systemd/system/bootstrap.service\" ;; esac\n";
const ID: &str = "#!/bin/bash\necho 0\n";

/// Runs the script on an edge machine.
fn run_on(root: &Root, environment: &[(&str, &str)]) -> Output {
    for (name, program) in [
        ("curl", CURL),
        ("jq", JQ),
        ("cloud-init", CLOUD_INIT),
        ("id", ID),
    ] {
        root.install(name, program);
    }
    root.write("script.sh", &root.moved(&script()));
    run(root
        .bash(&["script.sh"])
        .env("ROOT", root.at(""))
        .envs(environment.iter().copied()))
}

#[test]
fn the_edge_script_speaks_to_every_cloud_init() {
    for (version, syntax) in [
        ("22.4.2", "--file DOCUMENT init"),
        ("23.4.4", "--file DOCUMENT init"),
        ("24.1.3", "init --file DOCUMENT"),
        ("25.1.4", "init --file DOCUMENT"),
    ] {
        let root = Root::new();
        let document = "etc/cloud/cloud.cfg.d/workers-kube-system-bootstrap-config.cfg";
        let at = root.at(document).display().to_string();
        let syntax = syntax.replace("DOCUMENT", &at);
        let output = run_on(&root, &[("VERSION", version), ("SYNTAX", &syntax)]);
        assert!(output.status.success(), "{version}: {}", text(&output));
        assert_eq!(root.read("cloud-init"), format!("clean\n{syntax}\n"));
        assert_eq!(root.read(document), "#cloud-config\n");
        let started = [
            "daemon-reload",
            "enable bootstrap.service",
            "restart bootstrap.service",
        ];
        assert_eq!(
            root.calls(),
            started.map(|call| format!("systemctl {call}"))
        );
        let header = format!("Authorization: Bearer {HOSTILE}\n");
        assert_eq!(root.read("header"), header);
        let arguments = root.read("curl");
        assert!(arguments.contains("--cacert\n"), "{arguments}");
        assert!(!arguments.contains(HOSTILE), "{arguments}");
    }
}

#[test]
fn the_edge_script_stops_where_something_goes_wrong() {
    for (environment, said) in [
        (
            [("CURL_ENDS", "22"), ("SYNTAX", "init")],
            "cannot fetch Secret workers-kube-system-bootstrap-config",
        ),
        (
            [("CURL_ENDS", "0"), ("SYNTAX", "never")],
            "cloud-init did not write the files of",
        ),
    ] {
        let root = Root::new();
        let mut environment = environment.to_vec();
        environment.push(("VERSION", "24.1.3"));
        let output = run_on(&root, &environment);
        assert!(!output.status.success(), "{said}");
        assert!(text(&output).contains(said), "{}", text(&output));
        assert!(root.calls().is_empty(), "nothing is started");
    }
}
