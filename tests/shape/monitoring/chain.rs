//! From a `ServiceMonitor` through a Service to the port of a pod, as Prometheus' operator goes.

use std::collections::BTreeMap;

use serde_json::Value;

fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |it| it["kind"] == *kind)
}

/// Whether labels are among others.
fn selects(wanted: &Value, labels: &Value) -> bool {
    let wanted = wanted.as_object().expect("it selects by labels");
    !wanted.is_empty() && wanted.iter().all(|(name, value)| labels[name] == *value)
}

/// The ports that are scraped, by Deployment.
fn scraped(objects: &[Value]) -> BTreeMap<String, Vec<i64>> {
    let mut scraped: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for monitor in of_kind(objects, "ServiceMonitor") {
        let monitor = &monitor["spec"];
        let services = of_kind(objects, "Service").filter(|it| {
            selects(
                &monitor["selector"]["matchLabels"],
                &it["metadata"]["labels"],
            )
        });
        for service in services {
            for endpoint in monitor["endpoints"].as_array().expect("it has endpoints") {
                assert_eq!(endpoint["path"], "/metrics", "{monitor}");
                let ports = service["spec"]["ports"].as_array();
                let mut ports = ports.expect("it has ports").iter();
                let Some(port) = ports.find(|it| it["name"] == endpoint["port"]) else {
                    continue;
                };
                for deployment in of_kind(objects, "Deployment") {
                    let template = &deployment["spec"]["template"];
                    if selects(
                        &service["spec"]["selector"],
                        &template["metadata"]["labels"],
                    ) {
                        let ports = template["spec"]["containers"][0]["ports"].as_array();
                        let mut ports = ports.expect("it has ports").iter();
                        let found = ports.find(|it| it["name"] == port["targetPort"]);
                        let found = found.and_then(|it| it["containerPort"].as_i64());
                        let name = deployment["metadata"]["name"].as_str();
                        let name = name.expect("it has a name").to_owned();
                        scraped.entry(name).or_default().extend(found);
                    }
                }
            }
        }
    }
    scraped
}

/// The arguments of each Deployment.
pub fn arguments(objects: &[Value]) -> BTreeMap<String, Vec<String>> {
    let deployments = of_kind(objects, "Deployment").map(|deployment| {
        let name = deployment["metadata"]["name"].as_str();
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let arguments = container["args"].as_array().expect("it has arguments");
        let arguments = arguments.iter().filter_map(Value::as_str);
        let name = name.expect("it has a name").to_owned();
        (name, arguments.map(str::to_owned).collect())
    });
    deployments.collect()
}

/// Asserts that of each Deployment the port is scraped on which it shows its metrics, once.
pub fn assert_scraped(objects: &[Value]) {
    let shown = arguments(objects).into_iter().map(|(name, arguments)| {
        let mut admin = arguments.iter().filter_map(|it| {
            let address = it.strip_prefix("--admin-address=")?;
            address.rsplit_once(':')?.1.parse().ok()
        });
        let port: i64 = admin.next().expect("it has an admin address");
        (name, vec![port])
    });
    assert_eq!(scraped(objects), shown.collect::<BTreeMap<_, _>>());
}
