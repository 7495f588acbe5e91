//! The script for edge machines, read by bash and shellcheck, and run beside stand-ins for the
//! programs that would change this machine.

use std::{fs, path::Path, process::Output};

use osm::{
    render::edge_script::{EdgeScriptInput, edge_script},
    tenant::secret_text::SecretText,
};

use crate::{
    cases,
    programs::{command, consumers, run, text, write_program},
};

fn script() -> String {
    let script = edge_script(&EdgeScriptInput {
        api_server: "https://10.0.0.1:6443",
        certificate_authority: "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
        fetch_token: &SecretText::new(cases::HOSTILE),
        secret: "workers-kube-system-bootstrap-config",
    });
    script.expose().to_owned()
}

#[test]
fn bash_and_shellcheck_accept_the_edge_script() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("script.sh");
    fs::write(&path, script()).expect("a script can be written");
    let shellcheck = consumers().join("venv/bin/shellcheck");
    for check in [
        command("bash").arg("-n").arg(&path),
        command(shellcheck).args(["-S", "warning"]).arg(&path),
    ] {
        let output = run(check);
        assert!(output.status.success(), "{}", text(&output));
    }
}

/// What stands in for the programs of an edge machine.
const CURL: &str = "#!/bin/bash\n\
    printf '%s\\n' \"$@\" > \"$MACHINE/curl\"\n\
    for ((at = 1; at <= $#; at++)); do\n\
      [ \"${!at}\" != --header ] || { next=$((at + 1)); header=\"${!next}\"; }\n\
      [ \"${!at}\" != --output ] || { next=$((at + 1)); echo '{}' > \"${!next}\"; }\n\
    done\n\
    cp \"${header#@}\" \"$MACHINE/header\"\n\
    exit \"${CURL_ENDS:-0}\"\n";
const JQ: &str = "#!/bin/bash\nprintf '#cloud-config\\n' | base64\n";
const CLOUD_INIT: &str = "#!/bin/bash\n\
    [ \"$1\" != --version ] || { echo \"/usr/bin/cloud-init $VERSION\"; exit; }\n\
    echo \"$*\" >> \"$MACHINE/cloud-init\"\n\
    case \"$*\" in *\"${SYNTAX}\"*) touch \"$MACHINE/etc/systemd/system/bootstrap.service\" ;; esac\n";
const SYSTEMCTL: &str = "#!/bin/bash\necho \"$*\" >> \"$MACHINE/systemctl\"\n";
const ID: &str = "#!/bin/bash\necho 0\n";

/// Runs the script in a folder that stands for an edge machine.
fn run_on(machine: &Path, environment: &[(&str, &str)]) -> Output {
    let bin = machine.join("bin");
    for folder in ["bin", "etc/systemd/system"] {
        fs::create_dir_all(machine.join(folder)).expect("a folder can be made");
    }
    for (name, program) in [
        ("curl", CURL),
        ("jq", JQ),
        ("cloud-init", CLOUD_INIT),
        ("systemctl", SYSTEMCTL),
        ("id", ID),
    ] {
        write_program(&bin.join(name), program);
    }
    let there = script().replace("/etc/", &format!("{}/etc/", machine.display()));
    write_program(&machine.join("script.sh"), &there);
    let path = format!("{}:/usr/bin:/bin", bin.display());
    run(command("bash")
        .arg(machine.join("script.sh"))
        .env("PATH", path)
        .env("MACHINE", machine)
        .envs(environment.iter().copied()))
}

fn read(machine: &Path, name: &str) -> String {
    fs::read_to_string(machine.join(name)).unwrap_or_default()
}

#[test]
fn the_edge_script_speaks_to_every_cloud_init() {
    for (version, syntax) in [
        ("22.4.2", "--file DOCUMENT init"),
        ("23.4.4", "--file DOCUMENT init"),
        ("24.1.3", "init --file DOCUMENT"),
        ("25.1.4", "init --file DOCUMENT"),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let machine = folder.path();
        let document = "etc/cloud/cloud.cfg.d/workers-kube-system-bootstrap-config.cfg";
        let at = machine.join(document).display().to_string();
        let syntax = syntax.replace("DOCUMENT", &at);
        let output = run_on(machine, &[("VERSION", version), ("SYNTAX", &syntax)]);
        assert!(output.status.success(), "{version}: {}", text(&output));
        assert_eq!(read(machine, "cloud-init"), format!("clean\n{syntax}\n"));
        assert_eq!(read(machine, document), "#cloud-config\n");
        let started = "daemon-reload\nenable bootstrap.service\nrestart bootstrap.service\n";
        assert_eq!(read(machine, "systemctl"), started);
        let header = format!("Authorization: Bearer {}\n", cases::HOSTILE);
        assert_eq!(read(machine, "header"), header);
        let arguments = read(machine, "curl");
        assert!(arguments.contains("--cacert\n"), "{arguments}");
        assert!(!arguments.contains(cases::HOSTILE), "{arguments}");
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
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let mut environment = environment.to_vec();
        environment.push(("VERSION", "24.1.3"));
        let output = run_on(folder.path(), &environment);
        assert!(!output.status.success(), "{said}");
        assert!(text(&output).contains(said), "{}", text(&output));
        assert_eq!(read(folder.path(), "systemctl"), "", "nothing is started");
    }
}
