//! Holds the examples to the program: what people copy must work.

use std::{fs, path::Path};

use k8s_openapi::api::core::v1::Secret;
use osm::{
    api::{
        machine_deployment::MachineDeployment,
        names::{KUBECONFIG_KEY, WORKER_CLUSTER_LABEL},
        worker_cluster::WorkerCluster,
    },
    rules,
    tenant::{
        access::{AccessRules, ClusterAccess},
        settings::TenantSettings,
    },
};
use serde::de::DeserializeOwned;
use serde_json::Value;

const TENANTS: [&str; 2] = ["berlin", "lisbon"];

fn read(tenant: &str, file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tenants-example");
    fs::read_to_string(folder.join(format!("tenant-{tenant}")).join(file))
        .expect("the example exists")
}

/// The only document of a kind.
fn document<T: DeserializeOwned>(text: &str, kind: &str) -> T {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).expect("the example is YAML");
    let document = documents
        .into_iter()
        .find(|document| document.get("kind").is_some_and(|found| found == kind));
    serde_json::from_value(document.expect("the kind is there"))
        .expect("the document is of its kind")
}

#[test]
fn the_settings_of_each_tenant_are_valid_and_name_its_registration() {
    for tenant in TENANTS {
        let cluster: WorkerCluster = document(&read(tenant, "management.yaml"), "WorkerCluster");
        let registration: Secret = document(&read(tenant, "kubeconfig-secret.yaml"), "Secret");
        assert!(
            TenantSettings::default().with(&cluster.spec).is_ok(),
            "{tenant}"
        );
        assert_eq!(cluster.metadata.namespace, registration.metadata.namespace);
        let name = registration.metadata.name.unwrap();
        assert_eq!(cluster.spec.kubeconfig_secret_ref.name, name);
        let labels = registration.metadata.labels.unwrap();
        assert_eq!(
            labels.get(WORKER_CLUSTER_LABEL).map(String::as_str),
            Some("true")
        );
    }
}

#[test]
fn each_registration_is_accepted_once_its_placeholders_are_filled() {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let authority = rcgen::generate_simple_self_signed(["worker".to_owned()]).unwrap();
    let authority = STANDARD.encode(authority.cert.pem());
    for tenant in TENANTS {
        let secret: Secret = document(&read(tenant, "kubeconfig-secret.yaml"), "Secret");
        let template = secret.string_data.unwrap().remove(KUBECONFIG_KEY).unwrap();
        let rules = AccessRules::default();
        assert!(
            ClusterAccess::parse(template.as_bytes(), &rules).is_err(),
            "{tenant}"
        );
        let kubeconfig = template
            .replace("${SERVER}", "https://worker.example:6443")
            .replace("${CERTIFICATE_AUTHORITY_DATA}", &authority)
            .replace("${TOKEN}", "a-token");
        let access = ClusterAccess::parse(kubeconfig.as_bytes(), &rules).unwrap();
        assert_eq!(access.server.url(), "https://worker.example:6443");
    }
}

#[test]
fn each_machine_deployment_has_a_default_profile() {
    for tenant in TENANTS {
        let found: MachineDeployment = document(&read(tenant, "worker.yaml"), "MachineDeployment");
        let provider = found.spec.template.spec.provider_spec.json();
        let text = |key: &str| provider[key].as_str().unwrap();
        let (system, cloud) = (text("operatingSystem"), text("cloudProvider"));
        let profile = rules::machine_deployment::default_profile(system, cloud, "");
        assert_eq!(profile, Ok("osp-ubuntu"), "{tenant}");
        assert!(!found.spec.template.spec.versions.kubelet.is_empty());
    }
}
