//! What machines report on their nodes is a condition of their tenant.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use osm::api::{condition::ConditionType, names::MACHINE_REPORT};
use serde_json::json;

use crate::administrator::{create, delete, merge};
use crate::fixtures::{self, a_little_machine_deployment};
use crate::process::Manager;
use crate::rotation::install;
use crate::stage::{Stage, Tenant, message};
use crate::world::World;

pub async fn what_machines_report_is_a_condition(world: &'static World) {
    let stage = Stage::open(world, "machine-reports");
    let tenant = stage.tenant().await;
    tenant.register().await;
    let manager = Manager::start(&stage, &["--facts-interval", "1s"]).await;
    install(&tenant, &fixtures::a_profile("v1.0.0", "text")).await;
    drop(tenant.serve(&a_little_machine_deployment("workers")).await);
    let report = json!({ "machineUpdates": "Report" });
    tenant.configure(report).await;
    let rights = "osm rbac worker-machine-reports";
    says(&tenant, ("Unknown", "NodesForbidden"), rights).await;
    let rights = "manifests/rbac/worker-machine-reports.yaml";
    tenant.worker.apply_file(rights).await;
    says(&tenant, ("Unknown", "NoReports"), "no machine reports").await;

    let nodes = tenant.nodes();
    let node = Node {
        metadata: fixtures::named("report-a"),
        ..Node::default()
    };
    create(&nodes, &node).await;
    for (report, status, reason, part) in [
        ("Applied", "True", "DocumentsApplied", ""),
        ("Behind", "False", "MachinesBehind", "report-a"),
        (
            "FilesDiffer",
            "False",
            "MachinesDiffer",
            "not as in their document: report-a",
        ),
        ("Applied", "True", "DocumentsApplied", ""),
    ] {
        let report = format!("{report} {:.0}", Timestamp::now());
        let reported = json!({ "metadata": { "annotations": { MACHINE_REPORT: report } } });
        merge(&nodes, "report-a", reported).await;
        says(&tenant, (status, reason), part).await;
        tenant.says("Ready", "True", "Ready").await;
    }
    tenant.configure(json!({})).await;
    says(&tenant, ("Unknown", "NoReports"), "no machine deployment").await;
    delete(&nodes, "report-a").await;
    manager.stop().await;
}

async fn says(tenant: &Tenant, (status, reason): (&str, &str), part: &str) {
    let kind = ConditionType::DocumentsApplied.as_str();
    let own = tenant.says(kind, status, reason).await;
    assert!(message(&own, kind).contains(part), "{own:?}");
}
