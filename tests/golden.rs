//! The documents against vectors that others made: the bytes that users have today.
//!
//! The vectors are no part of the project. They are read from the folder that `OSM_CONFORMANCE`
//! names, or from `../shared/conformance`; where there is neither, the tests say so and pass.

use std::{
    fs,
    path::{Path, PathBuf},
};

use osm::{
    api::{config::OperatingSystemConfig, machine_deployment::MachineDeployment},
    render::{
        encode::{MachineFacts, encode},
        error::Half,
        input::ProviderConfig,
    },
};

const CASES: [&str; 2] = ["ubuntu-aws", "flatcar-aws"];

#[expect(
    clippy::disallowed_methods,
    reason = "the vectors lie outside of the project, and only their finder knows where"
)]
fn vectors() -> Option<PathBuf> {
    let folder = std::env::var("OSM_CONFORMANCE").map_or_else(
        |_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance"),
        PathBuf::from,
    );
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("left out: no conformance vectors at {}", folder.display());
    None
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> String {
    eprintln!("{}: {error}", path.display());
    String::new()
}

#[test]
fn the_documents_of_a_known_config_are_equal_to_the_byte() {
    let Some(vectors) = vectors() else { return };
    for case in CASES {
        let folder = vectors.join("reconcile").join(case);
        let config: OperatingSystemConfig =
            serde_saphyr::from_str(&read(&folder.join("expected-config.yaml"))).unwrap();
        let machine_deployment: MachineDeployment =
            serde_saphyr::from_str(&read(&folder.join("machine-deployment.yaml"))).unwrap();
        let value = machine_deployment
            .spec
            .template
            .spec
            .provider_spec
            .value
            .unwrap();
        let provider = ProviderConfig::decode(&value).unwrap();
        let machine = MachineFacts {
            name: machine_deployment.metadata.name.as_deref().unwrap(),
            dist_upgrade_on_boot: provider.operating_system_spec.dist_upgrade_on_boot,
        };
        for (half, file) in [
            (Half::Bootstrap, "expected-bootstrap"),
            (Half::Provisioning, "expected-provisioning"),
        ] {
            let document = encode(&config.spec, half, machine).unwrap();
            let expected = read(&folder.join(file));
            let document = String::from_utf8_lossy(document.as_bytes());
            for (line, (got, wanted)) in document.lines().zip(expected.lines()).enumerate() {
                assert_eq!(got, wanted, "{case}, {file}, line {}", line + 1);
            }
            assert_eq!(document, expected, "{case}, {file}");
        }
    }
}
